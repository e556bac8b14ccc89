//! A quadratic problem whose lower level is curved: g_i gains κ/4 Σ_j y_j⁴ + κ/4 (aᵢᵀx)²‖y‖². With it one
//! sees at which point a second derivative was taken, and what a finite difference costs.
use super::quadratic::{Matrices, Quadratic};
use super::{Bilevel, SecondOrder};
use crate::error::Result;
use crate::rows::Upper;

/// A quadratic problem with a curved lower level.
#[derive(Clone, Debug)]
pub struct Curved {
    base: Quadratic,
    a: Vec<Vec<f64>>,
    kappa: f64,
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

impl Curved {
    /// Explicit matrices and κ ≥ 0; says what is wrong with them.
    pub fn from_matrices(agents: &[Matrices], kappa: f64) -> Result<Self, String> {
        let base = Quadratic::from_matrices(agents)?;
        let Upper::Shared(dx) = base.upper() else { return Err("x must be shared".into()) };
        if !(kappa >= 0.0 && kappa.is_finite()) {
            return Err(format!("kappa is {kappa}; it must be 0 or more"));
        }
        let a: Vec<Vec<f64>> = agents.iter().map(|m| m.a.clone()).collect();
        match kappa == 0.0 || a.iter().all(|a| a.len() == dx && a.iter().all(|v| v.is_finite())) {
            true => Ok(Curved { base, a, kappa }),
            false => Err(format!("a must have {dx} finite numbers for every agent")),
        }
    }

    /// aᵀx, and a.
    fn bend(&self, agent: usize, x: &[f64]) -> (f64, &[f64]) {
        match self.kappa == 0.0 {
            true => (0.0, &[]),
            false => (dot(&self.a[agent], x), &self.a[agent]),
        }
    }
}

impl Bilevel<f64> for Curved {
    fn agents(&self) -> usize {
        self.base.agents()
    }

    fn upper(&self) -> Upper {
        self.base.upper()
    }

    fn lower(&self) -> usize {
        self.base.lower()
    }

    fn grad_f(
        &self,
        agent: usize,
        k: usize,
        x: &[f64],
        y: &[f64],
        gx: &mut [f64],
        gy: &mut [f64],
    ) -> Result<()> {
        self.base.grad_f(agent, k, x, y, gx, gy)
    }

    fn grad_g(
        &self,
        agent: usize,
        k: usize,
        x: &[f64],
        y: &[f64],
        gx: &mut [f64],
        gy: &mut [f64],
    ) -> Result<()> {
        self.base.grad_g(agent, k, x, y, gx, gy)?;
        let ((s, a), half) = (self.bend(agent, x), 0.5 * self.kappa);
        let size = dot(y, y);
        gx.iter_mut().zip(a).for_each(|(g, a)| *g += half * s * size * a);
        gy.iter_mut().zip(y).for_each(|(g, y)| *g += self.kappa * y * y * y + half * s * s * y);
        Ok(())
    }

    fn second_order(&self) -> Option<&dyn SecondOrder<f64>> {
        Some(self)
    }
}

impl SecondOrder<f64> for Curved {
    fn yy(&self, agent: usize, k: usize, x: &[f64], y: &[f64], v: &[f64], out: &mut [f64]) -> Result<()> {
        SecondOrder::yy(&self.base, agent, k, x, y, v, out)?;
        let (s, _) = self.bend(agent, x);
        let curve = |y: f64| self.kappa * (3.0 * y * y + 0.5 * s * s);
        out.iter_mut().zip(y.iter().zip(v)).for_each(|(o, (y, v))| *o += curve(*y) * v);
        Ok(())
    }

    fn xy(&self, agent: usize, k: usize, x: &[f64], y: &[f64], v: &[f64], out: &mut [f64]) -> Result<()> {
        SecondOrder::xy(&self.base, agent, k, x, y, v, out)?;
        let (s, a) = self.bend(agent, x);
        let each = self.kappa * s * dot(y, v);
        out.iter_mut().zip(a).for_each(|(o, a)| *o += each * a);
        Ok(())
    }
}
