//! SOBA's directions with central differences of ∇g along z instead of products: first order, and the same
//! where g is quadratic in (x, y).
use super::{Call, Direction, X, Y, Z};
use crate::error::Result;
use crate::problem::{Bilevel, Products};
use crate::rows::Real;

/// The difference is taken between y + δz and y − δz.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SobaFd {
    /// δ.
    pub delta: f64,
    /// δ is what ‖δz‖ is of 1 + ‖y‖, so that neither a small nor a large z loses digits.
    pub relative: bool,
}

impl SobaFd {
    /// Says whether δ is out of range.
    pub fn check(&self) -> Result<(), String> {
        match self.delta > 0.0 && self.delta.is_finite() {
            true => Ok(()),
            false => Err(format!("delta is {}; it must be above 0", self.delta)),
        }
    }

    fn delta<T: Real>(&self, y: &[T], z: &[T]) -> f64 {
        let norm = |v: &[T]| v.iter().map(|v| v.f64() * v.f64()).sum::<f64>().sqrt();
        match (self.relative, norm(z)) {
            (true, size) if size > 0.0 && size.is_finite() => self.delta * (1.0 + norm(y)) / size,
            _ => self.delta,
        }
    }
}

impl<T: Real> Direction<T> for SobaFd {
    fn workspace(&self, dx: usize, dy: usize) -> usize {
        2 * dx + 3 * dy
    }

    fn of_agent(
        &self,
        problem: &dyn Bilevel<T>,
        call: Call,
        [x, y, z]: [&[T]; 3],
        [dx, dy, dz]: [&mut [T]; 3],
        workspace: &mut [T],
    ) -> Result<()> {
        let Call { agent, k, .. } = call;
        let (gx, rest) = workspace.split_at_mut(x.len());
        let (hx, rest) = rest.split_at_mut(x.len());
        let (gy, rest) = rest.split_at_mut(y.len());
        let (hy, point) = rest.split_at_mut(y.len());
        if call.wants(X) || call.wants(Z) {
            let delta = self.delta(y, z);
            let (step, scale) = (T::of(delta), T::of(0.5 / delta));
            point.iter_mut().zip(y).zip(z).for_each(|((p, y), z)| *p = *y + step * *z);
            problem.grad_g(agent, k, x, point, hx, hy)?;
            point.iter_mut().zip(y).zip(z).for_each(|((p, y), z)| *p = *y - step * *z);
            problem.grad_g(agent, k, x, point, gx, gy)?;
            hx.iter_mut().zip(&*gx).for_each(|(h, g)| *h = (*h - *g) * scale);
            hy.iter_mut().zip(&*gy).for_each(|(h, g)| *h = (*h - *g) * scale);
            problem.grad_f(agent, k, x, y, gx, gy)?;
            if call.wants(X) {
                dx.iter_mut().zip(&*gx).zip(&*hx).for_each(|((d, g), h)| *d = *g - *h);
            }
            if call.wants(Z) {
                dz.iter_mut().zip(&*gy).zip(&*hy).for_each(|((d, g), h)| *d = *h - *g);
            }
        }
        if call.wants(Y) {
            problem.grad_g(agent, k, x, y, gx, dy)?;
        }
        Ok(())
    }

    fn products(&self) -> Option<Products> {
        Some(Products::Differences { delta: self.delta, relative: self.relative })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ‖y‖ = 5 and ‖z‖ = 2: δz is as long as 6·10⁻³ where δ is of 1 + ‖y‖.
    #[test]
    fn the_step_is_of_y_and_not_of_z() {
        let of = |relative, z: [f64; 2]| SobaFd { delta: 1e-3, relative }.delta(&[3.0, -4.0], &z);
        assert!((of(true, [0.0, -2.0]) - 3e-3).abs() < 1e-15);
        assert_eq!((of(false, [0.0, -2.0]), of(true, [0.0, 0.0])), (1e-3, 1e-3));
        assert_eq!(of(true, [f64::INFINITY, 0.0]), 1e-3);
    }
}
