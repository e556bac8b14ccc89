//! The penalty's direction of one variable, for methods that move x, y and z in turn and keep them apart.
use super::direction::{X, Y};
use super::loops::each;
use super::{Workspaces, at};
use crate::error::Result;
use crate::network::Network;
use crate::problem::{Bilevel, Penalty};
use crate::rows::{Real, Stack};

/// Writes one variable's direction of the penalty: ∇ₓf(x, y) + λ(∇ₓg(x, y) − ∇ₓg(x, z)), ∇ᵧ(f + λg)(x, y) or
/// λ∇ᵧg(x, z).
pub fn penalty_direction<T: Real>(
    variable: usize,
    d: &mut Stack<T, 1>,
    [x, y, z]: [&Stack<T, 1>; 3],
    (k, lambda): (usize, f64),
    problem: &dyn Bilevel<T>,
    network: &dyn Network<T>,
    workspaces: &Workspaces<T>,
) -> Result<()> {
    if let Some(mut afar) = workspaces.afar() {
        let penalty = Penalty { f: 1.0, g: lambda };
        return afar.penalty(variable, d, [x, y, z], penalty, problem, at(k, network));
    }
    let lambda = T::of(lambda);
    if variable == X {
        return each(d, (x, y), network, workspaces, |i, d| {
            problem.grad_f(i.agent, k, i.x, i.y, d, i.gy)?;
            problem.grad_g(i.agent, k, i.x, i.y, i.gx, i.gy)?;
            d.iter_mut().zip(&*i.gx).for_each(|(d, g)| *d += lambda * *g);
            problem.grad_g(i.agent, k, i.x, z.row(i.row)[0], i.gx, i.gy)?;
            d.iter_mut().zip(&*i.gx).for_each(|(d, g)| *d -= lambda * *g);
            Ok(())
        });
    }
    each(d, (x, if variable == Y { y } else { z }), network, workspaces, |i, d| {
        problem.grad_g(i.agent, k, i.x, i.y, i.gx, d)?;
        d.iter_mut().for_each(|d| *d = lambda * *d);
        if variable == Y {
            problem.grad_f(i.agent, k, i.x, i.y, i.gx, i.gy)?;
            d.iter_mut().zip(&*i.gy).for_each(|(d, f)| *d += *f);
        }
        Ok(())
    })
}
