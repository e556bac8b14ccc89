//! A problem whose lower level is not convex, with a known answer: f_i = ½‖y − b_i‖² + τ/2 ‖x‖² and g_i = Σ_j
//! w(y_j − x_j − h_j) + c_iᵀy with w(u) = u²/2 + 3/2 sin²u and Σ_i c_i = 0.
//!
//! w curves down to −2, but its one stationary point is u = 0: so y*(x) = x + h, F* is a bowl, and x* = (b̄ −
//! h)/(1 + τ). SOBA's linear system has no sense where w curves down; Moreau's rule asks for γ < ½ only.
use super::constants::ClosedForms;
use super::{At, Bilevel, Metric, SecondOrder, SingleLevel, Start, Values};
use crate::error::Result;
use crate::rng::{Purpose, stream};
use crate::rows::{Stack, Upper};
use rand::RngExt;

/// Waves on the way down.
#[derive(Clone, Debug)]
pub struct Waves {
    b: Vec<Vec<f64>>,
    c: Vec<Vec<f64>>,
    h: Vec<f64>,
    mean_b: Vec<f64>,
    tau: f64,
}

fn slope(u: f64) -> f64 {
    u + 1.5 * (2.0 * u).sin()
}

fn curvature(u: f64) -> f64 {
    1.0 + 3.0 * (2.0 * u).cos()
}

impl Waves {
    /// Random targets and shifts for so many agents and numbers of x and of y.
    pub fn random(agents: usize, dim: usize, seed: u64) -> Self {
        let table = |part: u64, size: f64| -> Vec<Vec<f64>> {
            let row = |i: u64| {
                let mut r = stream(seed, Purpose::Instance, i, part);
                (0..dim).map(|_| r.random_range(-size..size)).collect()
            };
            (0..agents as u64).map(row).collect()
        };
        let mean = |rows: &[Vec<f64>], j: usize| rows.iter().map(|r| r[j]).sum::<f64>() / agents as f64;
        let (mut b, mut c, h) = (table(1, 1.0), table(2, 0.5), table(3, 1.0).swap_remove(0));
        b.iter_mut().flatten().for_each(|b| *b += 2.0);
        for j in 0..dim {
            let m = mean(&c, j);
            c.iter_mut().for_each(|row| row[j] -= m);
        }
        let mean_b = (0..dim).map(|j| mean(&b, j)).collect();
        Waves { b, c, h, mean_b, tau: 0.1 }
    }

    /// x*.
    pub fn solution(&self) -> Vec<f64> {
        self.mean_b.iter().zip(&self.h).map(|(b, h)| (b - h) / (1.0 + self.tau)).collect()
    }

    /// y_j − x_j − h_j.
    fn gaps<'a>(&'a self, x: &'a [f64], y: &'a [f64]) -> impl Iterator<Item = f64> + 'a {
        y.iter().zip(x).zip(&self.h).map(|((y, x), h)| y - x - h)
    }
}

impl ClosedForms for Waves {
    fn lower_solution(&self, x: &[f64]) -> Vec<f64> {
        x.iter().zip(&self.h).map(|(x, h)| x + h).collect()
    }

    /// Coordinate by coordinate the root of y − b̄ + λ w′(y − x − h) next to the lower solution, by Newton's
    /// method.
    fn penalty_lower_solution(&self, x: &[f64], lambda: f64) -> Vec<f64> {
        let solve = |(start, b): (f64, &f64)| {
            (0..50).fold(start, |y, _| {
                let value = y - b + lambda * slope(y - start);
                y - value / (1.0 + lambda * curvature(y - start))
            })
        };
        self.lower_solution(x).into_iter().zip(&self.mean_b).map(solve).collect()
    }

    fn values(&self, x: &[f64], y: &[f64]) -> (f64, f64) {
        let n = self.b.len() as f64;
        let fit = |b: &Vec<f64>| y.iter().zip(b).map(|(y, b)| (y - b) * (y - b)).sum::<f64>();
        let f = 0.5 * self.b.iter().map(fit).sum::<f64>() / n
            + 0.5 * self.tau * x.iter().map(|x| x * x).sum::<f64>();
        (f, self.gaps(x, y).map(|u| 0.5 * u * u + 1.5 * u.sin() * u.sin()).sum())
    }

    fn hypergradient(&self, x: &[f64]) -> Vec<f64> {
        let y = self.lower_solution(x);
        y.iter().zip(x).zip(&self.mean_b).map(|((y, x), b)| y - b + self.tau * x).collect()
    }
}

impl Bilevel<f64> for Waves {
    fn agents(&self) -> usize {
        self.b.len()
    }

    fn upper(&self) -> Upper {
        Upper::Shared(self.h.len())
    }

    fn lower(&self) -> usize {
        self.h.len()
    }

    fn grad_f(
        &self,
        agent: usize,
        _k: usize,
        x: &[f64],
        y: &[f64],
        gx: &mut [f64],
        gy: &mut [f64],
    ) -> Result<()> {
        gx.iter_mut().zip(x).for_each(|(g, x)| *g = self.tau * x);
        gy.iter_mut().zip(y).zip(&self.b[agent]).for_each(|((g, y), b)| *g = y - b);
        Ok(())
    }

    fn grad_g(
        &self,
        agent: usize,
        _k: usize,
        x: &[f64],
        y: &[f64],
        gx: &mut [f64],
        gy: &mut [f64],
    ) -> Result<()> {
        for (j, u) in self.gaps(x, y).enumerate() {
            gx[j] = -slope(u);
            gy[j] = slope(u) + self.c[agent][j];
        }
        Ok(())
    }

    fn second_order(&self) -> Option<&dyn SecondOrder<f64>> {
        Some(self)
    }

    fn single_level(&self) -> Option<&dyn SingleLevel<f64>> {
        Some(self)
    }

    fn closed_forms(&self) -> Option<&dyn ClosedForms> {
        Some(self)
    }

    /// In the waves: y where w curves down for half of the coordinates.
    fn start(&self) -> Start {
        let y: Vec<f64> =
            self.h.iter().enumerate().map(|(j, h)| h + if j % 2 == 0 { 1.6 } else { 0.3 }).collect();
        Start { y: vec![y], ..Start::default() }
    }

    fn measures(&self) -> Vec<Metric> {
        vec![
            Metric::lower("relative_error", "relative error"),
            Metric::lower("hypergradient", "norm of the hypergradient"),
        ]
    }

    fn metrics(&self, x: &[f64], _y: Option<&[f64]>) -> Result<Values> {
        let norm = |v: &[f64]| v.iter().map(|v| v * v).sum::<f64>().sqrt();
        let best = self.solution();
        let gap: Vec<f64> = x.iter().zip(&best).map(|(a, b)| a - b).collect();
        let slope = norm(&self.hypergradient(x));
        Ok(vec![("relative_error", norm(&gap) / norm(&best)), ("hypergradient", slope)])
    }
}

impl SecondOrder<f64> for Waves {
    fn yy(&self, _: usize, _: usize, x: &[f64], y: &[f64], v: &[f64], out: &mut [f64]) -> Result<()> {
        out.iter_mut().zip(self.gaps(x, y).zip(v)).for_each(|(o, (u, v))| *o = curvature(u) * v);
        Ok(())
    }

    fn xy(&self, _: usize, _: usize, x: &[f64], y: &[f64], v: &[f64], out: &mut [f64]) -> Result<()> {
        out.iter_mut().zip(self.gaps(x, y).zip(v)).for_each(|(o, (u, v))| *o = -curvature(u) * v);
        Ok(())
    }
}

/// The single-level objective is f_i(x, x + h).
impl SingleLevel<f64> for Waves {
    fn agents(&self) -> usize {
        self.b.len()
    }

    fn width(&self) -> usize {
        self.h.len()
    }

    fn gradients(&self, at: At<'_>, x: &Stack<f64, 1>, d: &mut Stack<f64, 1>) -> Result<()> {
        for (row, agent) in at.owned.iter().enumerate() {
            let ([x], [d]) = (x.row(row), d.row_mut(row));
            for j in 0..x.len() {
                d[j] = x[j] + self.h[j] - self.b[*agent][j] + self.tau * x[j];
            }
        }
        Ok(())
    }
}
