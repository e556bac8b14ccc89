//! What methods with inner loops look at: directions of one variable of all owned agents, agent by agent on
//! the host, at once on a device.
use super::direction::{X, Y, Z, products, take_off};
use super::loops::each;
use super::{Workspaces, at};
use crate::error::Result;
use crate::network::Network;
use crate::problem::{Bilevel, Penalty};
use crate::rows::{Real, Stack};

/// Where all agents are: their x and y.
pub type Here<'a, T> = (&'a Stack<T, 1>, &'a Stack<T, 1>);

/// Writes ∇ᵧg at (x, y) with this sample.
pub fn lower_gradients<T: Real>(
    d: &mut Stack<T, 1>,
    here: Here<'_, T>,
    sample: usize,
    problem: &dyn Bilevel<T>,
    network: &dyn Network<T>,
    workspaces: &Workspaces<T>,
) -> Result<()> {
    let Some(mut afar) = workspaces.afar() else {
        return each(d, here, network, workspaces, |i, d| problem.grad_g(i.agent, sample, i.x, i.y, i.gx, d));
    };
    afar.put(X, (here.0, 0));
    afar.put(Y, (here.1, 0));
    afar.soba(problem, at(sample, network), Some(Y))?;
    afar.give(Y, (d, 0), 0.0, 1.0);
    Ok(())
}

/// Writes ∇ₓf and ∇ᵧf at (x, y).
pub fn upper_gradients<T: Real>(
    [fx, fy]: [&mut Stack<T, 1>; 2],
    (x, y): Here<'_, T>,
    k: usize,
    problem: &dyn Bilevel<T>,
    network: &dyn Network<T>,
    workspaces: &Workspaces<T>,
) -> Result<()> {
    let Some(mut afar) = workspaces.afar() else {
        let owned = network.owned();
        return fx.try_for_each_pair(fy, network.threads(), |_, row, fx, fy| {
            problem.grad_f(owned[row], k, x.row(row)[0], y.row(row)[0], fx, fy)
        });
    };
    // At z = 0 SOBA's directions are ∇ₓf and −∇ᵧf.
    afar.put(X, (x, 0));
    afar.put(Y, (y, 0));
    afar.clear_z();
    afar.soba(problem, at(k, network), None)?;
    afar.give(X, (fx, 0), 0.0, 1.0);
    afar.give(Z, (fy, 0), 0.0, -1.0);
    Ok(())
}

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
        [(X, x), (Y, y), (Z, z)].into_iter().for_each(|(variable, v)| afar.put(variable, (v, 0)));
        afar.penalty(problem, at(k, network), Penalty { f: 1.0, g: lambda })?;
        afar.give(variable, (d, 0), 0.0, 1.0);
        return Ok(());
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

/// The linear system ∇²ᵧᵧg z = ∇ᵧf at one (x, y), and the hypergradient u = ∇ₓf − ∇²ₓᵧg z that it gives.
pub struct LinearSystem<T> {
    pub u: Stack<T, 1>,
    /// ∇ᵧf.
    pub b: Stack<T, 1>,
    pub workspaces: Workspaces<T>,
}

impl<T: Real> LinearSystem<T> {
    /// u = ∇ₓf, b = ∇ᵧf.
    pub fn begin(
        &mut self,
        k: usize,
        here: Here<'_, T>,
        problem: &dyn Bilevel<T>,
        network: &dyn Network<T>,
    ) -> Result<()> {
        let Self { u, b, workspaces } = self;
        // A device has them with what they are taken from.
        if let Some(mut afar) = workspaces.afar() {
            afar.put(Y, (here.1, 0));
            return Ok(());
        }
        upper_gradients([u, b], here, k, problem, network, workspaces)
    }

    /// d = ∇²ᵧᵧg z − ∇ᵧf, where z is 0 if this is the first.
    pub fn residual(
        &self,
        (k, first): (usize, bool),
        here: Here<'_, T>,
        (z, d): (&Stack<T, 1>, &mut Stack<T, 1>),
        problem: &dyn Bilevel<T>,
        network: &dyn Network<T>,
    ) -> Result<()> {
        let Self { b, workspaces, .. } = self;
        if let Some(mut afar) = workspaces.afar() {
            afar.put(Z, (z, 0));
            afar.soba(problem, at(k, network), Some(Z))?;
            afar.give(Z, (d, 0), 0.0, 1.0);
            return Ok(());
        }
        let second = products(problem)?;
        each(d, here, network, workspaces, |i, d| {
            match first {
                true => d.fill(T::ZERO),
                false => second.yy(i.agent, k, i.x, i.y, z.row(i.row)[0], d)?,
            }
            take_off(d, b.row(i.row)[0]);
            Ok(())
        })
    }

    /// u −= ∇²ₓᵧg z.
    pub fn end(
        &mut self,
        k: usize,
        here: Here<'_, T>,
        z: &Stack<T, 1>,
        problem: &dyn Bilevel<T>,
        network: &dyn Network<T>,
    ) -> Result<()> {
        let Self { u, workspaces, .. } = self;
        if let Some(mut afar) = workspaces.afar() {
            afar.put(Z, (z, 0));
            afar.soba(problem, at(k, network), Some(X))?;
            afar.give(X, (u, 0), 0.0, 1.0);
            return Ok(());
        }
        let second = products(problem)?;
        each(u, here, network, workspaces, |i, u| {
            second.xy(i.agent, k, i.x, i.y, z.row(i.row)[0], i.gx)?;
            take_off(u, i.gx);
            Ok(())
        })
    }
}
