//! Each agent inverts its own Hessian by a series: dy = ∇ᵧg, dx = ∇ₓf − ∇²ₓᵧg s with s = (1/L) Σ_{j<J}
//! (I − ∇²ᵧᵧg/L)ʲ ∇ᵧf. Off by the agents' inequality at any step.
use super::{Call, Direction, X, Y, Z, by_agent, products, take_off};
use crate::algorithm::Workspaces;
use crate::error::Result;
use crate::problem::{At, Bilevel, Products};
use crate::rows::{Real, Stack};

/// The series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NeumannLocal {
    /// L, at least the largest curvature of g.
    pub curvature: f64,
    /// J.
    pub terms: usize,
}

impl NeumannLocal {
    /// Says which number is out of range.
    pub fn check(&self) -> Result<(), String> {
        if !(self.curvature > 0.0 && self.curvature.is_finite()) {
            return Err(format!("curvature is {}; it must be above 0", self.curvature));
        }
        match self.terms {
            1..=1_000_000 => Ok(()),
            terms => Err(format!("terms is {terms}; it must lie between 1 and 1,000,000")),
        }
    }
}

impl<T: Real> Direction<T> for NeumannLocal {
    fn workspace(&self, dx: usize, dy: usize) -> usize {
        dx + 3 * dy
    }

    fn of_agent(
        &self,
        problem: &dyn Bilevel<T>,
        call: Call,
        [x, y, _]: [&[T]; 3],
        [dx, dy, _]: [&mut [T]; 3],
        workspace: &mut [T],
    ) -> Result<()> {
        let (Call { agent, k, .. }, second) = (call, products(problem)?);
        let (gx, rest) = workspace.split_at_mut(x.len());
        let (term, rest) = rest.split_at_mut(y.len());
        let (product, sum) = rest.split_at_mut(y.len());
        if call.wants(X) {
            problem.grad_f(agent, k, x, y, dx, term)?;
            sum.fill(T::ZERO);
            let each = T::of(1.0 / self.curvature);
            for j in 0..self.terms {
                sum.iter_mut().zip(&*term).for_each(|(s, t)| *s += each * *t);
                // What follows the last term is not used.
                if j + 1 < self.terms {
                    second.yy(agent, k, x, y, term, product)?;
                    term.iter_mut().zip(&*product).for_each(|(t, p)| *t -= each * *p);
                }
            }
            second.xy(agent, k, x, y, sum, gx)?;
            take_off(dx, gx);
        }
        if call.wants(Y) {
            problem.grad_g(agent, k, x, y, gx, dy)?;
        }
        Ok(())
    }

    /// In one pass where the problem has it, else agent by agent. On a device the sum is z of SOBA's
    /// directions after J steps z −= (∇²ᵧᵧg z − ∇ᵧf)/L from 0.
    fn of_all(
        &self,
        problem: &dyn Bilevel<T>,
        at: At<'_>,
        only: Option<usize>,
        v: &Stack<T, 3>,
        d: &mut Stack<T, 3>,
        workspaces: &Workspaces<T>,
    ) -> Result<()> {
        let Some(mut afar) = workspaces.afar() else {
            let by = Products::Series { curvature: self.curvature, terms: self.terms };
            return match problem.soba_directions(at, by, only, v, d)? {
                true => Ok(()),
                false => by_agent(self, problem, at, only, v, d, workspaces),
            };
        };
        [X, Y].into_iter().for_each(|variable| afar.put(variable, (v, variable)));
        if only != Some(Y) {
            afar.clear_z();
            for _ in 0..self.terms {
                afar.soba(problem, at, Some(Z))?;
                afar.step_z(1.0 / self.curvature);
            }
            afar.soba(problem, at, Some(X))?;
            afar.give(X, (d, X), 0.0, 1.0);
        }
        if only != Some(X) {
            afar.soba(problem, at, Some(Y))?;
            afar.give(Y, (d, Y), 0.0, 1.0);
        }
        Ok(())
    }
}
