//! The penalty's directions, f∇f + g∇g with (f, g) = (1, λ), and the Moreau envelope's, which are those of
//! (μ, 1) with a spring 1/γ between y and z. A penalty divided by λ is Moreau's with μ = 1/λ and γ = ∞.
use super::{Call, Direction, X, Y, Z, by_agent};
use crate::algorithm::Workspaces;
use crate::error::Result;
use crate::problem::{At, Bilevel, Penalty};
use crate::rows::{Real, Stack};
use crate::schedule::Schedule;

/// The factors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Penalised {
    /// Factor of f.
    pub f: Schedule,
    /// Factor of g.
    pub g: Schedule,
    /// γ of the Moreau envelope: 1/γ must exceed the weak convexity of g.
    pub gamma: Option<f64>,
}

impl Penalised {
    /// Says which number is out of range.
    pub fn check(&self) -> Result<(), String> {
        match self.gamma {
            Some(gamma) if !(gamma > 0.0 && gamma.is_finite()) => {
                Err(format!("gamma is {gamma}; it must be above 0"))
            }
            Some(_) => self.f.check("mu", false),
            None => self.g.check("lambda", false),
        }
    }

    fn factors(&self, k: usize) -> Penalty {
        Penalty { f: self.f.at(k), g: self.g.at(k) }
    }
}

impl<T: Real> Direction<T> for Penalised {
    fn of_agent(
        &self,
        problem: &dyn Bilevel<T>,
        call: Call,
        [x, y, z]: [&[T]; 3],
        [dx, dy, dz]: [&mut [T]; 3],
        workspace: &mut [T],
    ) -> Result<()> {
        let Call { agent, k, .. } = call;
        let penalty = self.factors(k);
        let (f, g) = (T::of(penalty.f), T::of(penalty.g));
        let (gx, rest) = workspace.split_at_mut(x.len());
        let gy = &mut rest[..y.len()];
        if call.wants(X) || call.wants(Z) {
            problem.grad_g(agent, k, x, z, gx, gy)?;
            dx.iter_mut().zip(&*gx).filter(|_| call.wants(X)).for_each(|(d, v)| *d = -(g * *v));
            dz.iter_mut().zip(&*gy).filter(|_| call.wants(Z)).for_each(|(d, v)| *d = g * *v);
        }
        if call.wants(X) || call.wants(Y) {
            problem.grad_g(agent, k, x, y, gx, gy)?;
            dx.iter_mut().zip(&*gx).filter(|_| call.wants(X)).for_each(|(d, v)| *d += g * *v);
            dy.iter_mut().zip(&*gy).filter(|_| call.wants(Y)).for_each(|(d, v)| *d = g * *v);
            problem.grad_f(agent, k, x, y, gx, gy)?;
            dx.iter_mut().zip(&*gx).filter(|_| call.wants(X)).for_each(|(d, v)| *d += f * *v);
            dy.iter_mut().zip(&*gy).filter(|_| call.wants(Y)).for_each(|(d, v)| *d += f * *v);
        }
        spring(self.gamma, call, [y, z], [dy, dz]);
        Ok(())
    }

    /// All three at once are the problem's own, which it may have faster than one by one.
    fn of_all(
        &self,
        problem: &dyn Bilevel<T>,
        at: At<'_>,
        only: Option<usize>,
        v: &Stack<T, 3>,
        d: &mut Stack<T, 3>,
        workspaces: &Workspaces<T>,
    ) -> Result<()> {
        // On a device all three come at once, whichever is wanted.
        if only.is_some() && !v.on_device() {
            return by_agent(self, problem, at, only, v, d, workspaces);
        }
        problem.penalty_directions(at, self.factors(at.k), v, d)?;
        if let Some(gamma) = self.gamma.filter(|_| v.on_device()) {
            for variable in [Y, Z] {
                d.blend_on_device(variable, 1.0, 1.0 / gamma, (v, Z));
                d.blend_on_device(variable, 1.0, -1.0 / gamma, (v, Y));
            }
        } else if self.gamma.is_some() {
            d.for_each_row(at.threads, 16, |_, row, [_, dy, dz]| {
                let ([_, y, z], call) = (v.row(row), Call { agent: at.owned[row], k: at.k, only });
                spring(self.gamma, call, [y, z], [dy, dz]);
            });
        }
        Ok(())
    }
}

/// The part of ‖y − z‖²/2γ: −(y − z)/γ in y and (z − y)/γ in z.
fn spring<T: Real>(gamma: Option<f64>, call: Call, [y, z]: [&[T]; 2], [dy, dz]: [&mut [T]; 2]) {
    let Some(gamma) = gamma else { return };
    let each = T::of(1.0 / gamma);
    if call.wants(Y) {
        dy.iter_mut().zip(y.iter().zip(z)).for_each(|(d, (y, z))| *d -= each * (*y - *z));
    }
    if call.wants(Z) {
        dz.iter_mut().zip(y.iter().zip(z)).for_each(|(d, (y, z))| *d += each * (*z - *y));
    }
}
