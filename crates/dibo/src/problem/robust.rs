//! A small nonconvex bilevel problem with closed forms, on which all of Assumption 3 holds everywhere: a
//! robust fit.
//!
//! f_i(x,y) = w Σ_j ρ(y_j − b_ij) + τ/2 ‖x‖² with ρ(u) = u²/(1 + u²), and g_i(x,y) = ½‖y − C_i x − h_i‖². So
//! y*(x) = C̄x + h̄, and F* is a sum of wells: far from a well it is flat, between two it is concave.
use super::constants::{ClosedForms, Constants};
use super::{At, Bilevel, Metric, SecondOrder, SingleLevel, Start, Values};
use crate::error::Result;
use crate::rng::{Purpose, stream};
use crate::rows::{Stack, Upper};
use nalgebra::{DMatrix, DVector};
use rand::RngExt;

/// A robust fit.
#[derive(Clone, Debug)]
pub struct Robust {
    c: Vec<DMatrix<f64>>,
    h: Vec<DVector<f64>>,
    b: Vec<DVector<f64>>,
    mean_c: DMatrix<f64>,
    mean_h: DVector<f64>,
    weight: f64,
    tau: f64,
    start: Start,
}

fn rho(u: f64) -> f64 {
    u * u / (1.0 + u * u)
}

fn slope(u: f64) -> f64 {
    2.0 * u / (1.0 + u * u).powi(2)
}

fn curvature(u: f64) -> f64 {
    (2.0 - 6.0 * u * u) / (1.0 + u * u).powi(3)
}

/// The largest |ρ′|, at u = 1/√3.
const STEEPEST: f64 = 0.649_519_052_838_329;
/// The largest |ρ″|, at u = 0; the smallest ρ″ is −½.
const MOST_CURVED: f64 = 2.0;
/// The largest |ρ‴| = |24u(u² − 1)|/(1 + u²)⁴, rounded up.
const MOST_TWISTED: f64 = 4.6686;

impl Robust {
    /// Random maps and targets: what all agents share, and a part of each one's own. There are more targets
    /// than x can meet, so some are given up, and which ones depends on where the agents start.
    pub fn random(agents: usize, dx: usize, dy: usize, seed: u64) -> Self {
        let table = |agent: u64, part: u64, rows: usize, columns: usize, size: f64| {
            let mut r = stream(seed, Purpose::Instance, agent, part);
            DMatrix::from_fn(rows, columns, |_, _| r.random_range(-size..size))
        };
        let column = |m: DMatrix<f64>| m.column(0).into_owned();
        let shared = agents as u64;
        let (c0, b0) = (table(shared, 1, dy, dx, 1.0), table(shared, 2, dy, 1, 3.0));
        let own = |i: usize, part: u64, columns: usize, size: f64| table(i as u64, part, dy, columns, size);
        let c: Vec<_> = (0..agents).map(|i| &c0 + own(i, 1, dx, 0.3)).collect();
        let h: Vec<_> = (0..agents).map(|i| column(own(i, 3, 1, 0.5))).collect();
        let b: Vec<_> = (0..agents).map(|i| column(&b0 + own(i, 2, 1, 0.5))).collect();
        let n = agents as f64;
        let mean_c = c.iter().skip(1).fold(c[0].clone(), |s, m| s + m) / n;
        let mean_h = h.iter().skip(1).fold(h[0].clone(), |s, m| s + m) / n;
        Robust { c, h, b, mean_c, mean_h, weight: 1.0, tau: 0.01, start: Start::default() }
    }

    /// From x = 0 with y and z at their solutions there, as the rate's theorem asks ([`Start::warm`]).
    pub fn warm(mut self, lambda: Option<f64>) -> Self {
        self.start = Start::warm(&self, vec![0.0; self.mean_c.ncols()], lambda);
        self
    }

    /// ∇F and F of the single-level objective F(x) = mean_i f_i(x, C_i x + h_i).
    fn single(&self, x: &[f64]) -> (f64, DVector<f64>) {
        let x = DVector::from_column_slice(x);
        let (mut value, mut gradient) = (0.0, DVector::zeros(x.len()));
        for i in 0..self.c.len() {
            let u = &self.c[i] * &x + &self.h[i] - &self.b[i];
            value += self.weight * u.iter().map(|u| rho(*u)).sum::<f64>();
            gradient += self.c[i].transpose() * u.map(slope) * self.weight;
        }
        let n = self.c.len() as f64;
        (value / n + 0.5 * self.tau * x.norm_squared(), gradient / n + x * self.tau)
    }
}

impl ClosedForms for Robust {
    fn lower_solution(&self, x: &[f64]) -> Vec<f64> {
        (&self.mean_c * DVector::from_column_slice(x) + &self.mean_h).as_slice().to_vec()
    }

    /// Coordinate by coordinate: the root of w·mean_i ρ′(y − b_i) + λ(y − y*), which rises in y for λ > w/2.
    fn penalty_lower_solution(&self, x: &[f64], lambda: f64) -> Vec<f64> {
        let (n, far) = (self.b.len() as f64, self.weight * STEEPEST / lambda);
        let solve = |(j, centre): (usize, f64)| {
            let value = |y: f64| {
                self.b.iter().map(|b| self.weight * slope(y - b[j])).sum::<f64>() / n + lambda * (y - centre)
            };
            let rise =
                |y: f64| self.b.iter().map(|b| self.weight * curvature(y - b[j])).sum::<f64>() / n + lambda;
            let (mut low, mut high, mut y) = (centre - far, centre + far, centre);
            for _ in 0..100 {
                let v = value(y);
                if v == 0.0 || high - low <= 1e-16 * (1.0 + y.abs()) {
                    break;
                }
                if v > 0.0 {
                    high = y
                } else {
                    low = y
                }
                let newton = y - v / rise(y);
                y = if newton > low && newton < high { newton } else { 0.5 * (low + high) };
            }
            y
        };
        self.lower_solution(x).into_iter().enumerate().map(solve).collect()
    }

    fn values(&self, x: &[f64], y: &[f64]) -> (f64, f64) {
        let (xv, yv, n) = (DVector::from_column_slice(x), DVector::from_column_slice(y), self.c.len() as f64);
        let f = self.b.iter().map(|b| (&yv - b).iter().map(|u| rho(*u)).sum::<f64>()).sum::<f64>()
            * self.weight
            / n;
        let g =
            self.c.iter().zip(&self.h).map(|(c, h)| 0.5 * (&yv - c * &xv - h).norm_squared()).sum::<f64>()
                / n;
        (f + 0.5 * self.tau * xv.norm_squared(), g)
    }

    fn hypergradient(&self, x: &[f64]) -> Vec<f64> {
        let y = DVector::from_vec(self.lower_solution(x));
        let n = self.b.len() as f64;
        let fy = self.b.iter().fold(DVector::zeros(y.len()), |sum, b| sum + (&y - b).map(slope))
            * (self.weight / n);
        (self.mean_c.transpose() * fy + DVector::from_column_slice(x) * self.tau).as_slice().to_vec()
    }
}

impl Bilevel<f64> for Robust {
    fn agents(&self) -> usize {
        self.c.len()
    }

    fn upper(&self) -> Upper {
        Upper::Shared(self.mean_c.ncols())
    }

    fn start(&self) -> Start {
        self.start.clone()
    }

    fn lower(&self) -> usize {
        self.mean_c.nrows()
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
        gy.iter_mut().zip(y).zip(&self.b[agent]).for_each(|((g, y), b)| *g = self.weight * slope(y - b));
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
        let gap =
            DVector::from_column_slice(y) - &self.c[agent] * DVector::from_column_slice(x) - &self.h[agent];
        gx.copy_from_slice((-(self.c[agent].transpose() * &gap)).as_slice());
        gy.copy_from_slice(gap.as_slice());
        Ok(())
    }

    fn second_order(&self) -> Option<&dyn SecondOrder<f64>> {
        Some(self)
    }

    fn single_level(&self) -> Option<&dyn SingleLevel<f64>> {
        Some(self)
    }

    fn constants(&self) -> Option<Constants> {
        let sigma = self.c.iter().map(|c| c.singular_values().max()).fold(0.0, f64::max);
        Some(Constants {
            mu: 1.0,
            l_f0: self.weight * STEEPEST * (self.lower() as f64).sqrt(),
            l_f1: (self.weight * MOST_CURVED).max(self.tau),
            l_f2: self.weight * MOST_TWISTED,
            l_g1: 1.0 + sigma * sigma,
            l_g2: 0.0,
            g_curvature: 1.0,
            sigma_max: Some(self.mean_c.singular_values().max()),
            l_single: Some(self.weight * MOST_CURVED * sigma * sigma + self.tau),
            exact: true,
            region: "everywhere",
            kinds: (0..self.c.len()).collect(),
        })
    }

    fn closed_forms(&self) -> Option<&dyn ClosedForms> {
        Some(self)
    }

    fn measures(&self) -> Vec<Metric> {
        vec![
            Metric::lower("loss", "objective"),
            Metric::lower("hypergradient", "norm of the hypergradient"),
            Metric::lower("gradient_squared", "squared norm of the gradient"),
        ]
    }

    /// A method without y minimises the single-level objective; its gradient is what is reported then.
    fn metrics(&self, x: &[f64], y: Option<&[f64]>) -> Result<Values> {
        let (objective, gradient) = match y {
            Some(_) => (self.values(x, &self.lower_solution(x)).0, DVector::from_vec(self.hypergradient(x))),
            None => self.single(x),
        };
        Ok(vec![
            ("loss", objective),
            ("hypergradient", gradient.norm()),
            ("gradient_squared", gradient.norm_squared()),
        ])
    }
}

impl SecondOrder<f64> for Robust {
    fn yy(&self, _agent: usize, _k: usize, _x: &[f64], _y: &[f64], v: &[f64], out: &mut [f64]) -> Result<()> {
        out.copy_from_slice(v);
        Ok(())
    }

    fn xy(&self, agent: usize, _k: usize, _x: &[f64], _y: &[f64], v: &[f64], out: &mut [f64]) -> Result<()> {
        out.copy_from_slice((-(self.c[agent].transpose() * DVector::from_column_slice(v))).as_slice());
        Ok(())
    }
}

/// F_i(x) = f_i(x, C_i x + h_i).
impl SingleLevel<f64> for Robust {
    fn agents(&self) -> usize {
        self.c.len()
    }

    fn width(&self) -> usize {
        self.mean_c.ncols()
    }

    fn gradients(&self, at: At<'_>, x: &Stack<f64, 1>, d: &mut Stack<f64, 1>) -> Result<()> {
        d.for_each_row(at.threads, 16, |_, row, [d]| {
            let (i, x) = (at.owned[row], DVector::from_column_slice(x.row(row)[0]));
            let u = &self.c[i] * &x + &self.h[i] - &self.b[i];
            d.copy_from_slice((self.c[i].transpose() * u.map(slope) * self.weight + x * self.tau).as_slice());
        });
        Ok(())
    }

    fn value(&self, x: &[f64]) -> Option<f64> {
        Some(self.single(x).0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where f has no fit, its objective is τ/2 ‖x‖² alone.
    #[test]
    fn the_single_level_objective_curves_by_its_fit_and_tau() {
        let problem = Robust::random(3, 2, 4, 1);
        let flat = Robust { weight: 0.0, ..problem.clone() };
        assert_eq!(flat.constants().unwrap().l_single, Some(0.01));
        let sigma = problem.c.iter().map(|c| c.singular_values().max()).fold(0.0, f64::max);
        let whole = problem.constants().unwrap().l_single.unwrap();
        assert!((whole - 2.0 * sigma * sigma - 0.01).abs() < 1e-12);
    }

    /// Against the largest slopes of ρ and its derivatives on a grid; what is of f grows with its weight.
    #[test]
    fn the_constants_are_the_largest_there_are() {
        let (step, eps) = (1e-4, 1e-5);
        let grid = || (0..40_000).map(|i| f64::from(i) * step);
        let largest = |of: &dyn Fn(f64) -> f64| grid().map(|u| of(u).abs()).fold(0.0, f64::max);
        let difference = |of: fn(f64) -> f64| move |u: f64| (of(u + eps) - of(u - eps)) / (2.0 * eps);
        let [steepest, curved, twisted] = [rho, slope, curvature].map(|of| largest(&difference(of)));
        for weight in [0.5, 3.0] {
            let c = Robust { weight, ..Robust::random(3, 2, 9, 1) }.constants().unwrap();
            let near = |exact: f64, found: f64| (exact - weight * found).abs() < 1e-4 * exact;
            assert!(near(c.l_f0, 3.0 * steepest), "{} {steepest}", c.l_f0);
            assert!(near(c.l_f1, curved) && near(c.l_f2, twisted), "{c:?} {curved} {twisted}");
        }
        assert_eq!(Robust { weight: 0.0, ..Robust::random(3, 2, 4, 1) }.constants().unwrap().l_f1, 0.01);
    }

    #[test]
    fn the_fit_counts_by_its_weight() {
        let [none, once, thrice] = [0.0, 1.0, 3.0]
            .map(|weight| Robust { weight, ..Robust::random(3, 2, 4, 1) }.single(&[0.4, -0.7]));
        assert!((thrice.0 - none.0 - 3.0 * (once.0 - none.0)).abs() < 1e-12);
        assert!((thrice.1 - &none.1 - 3.0 * (once.1 - &none.1)).norm() < 1e-12);
        // The agents' own gradients have it in their mean.
        let heavy = Robust { weight: 3.0, ..Robust::random(3, 2, 4, 1) };
        let mut x: Stack<f64, 1> = Stack::zeros(3, &Upper::Shared(2), &[]);
        (0..3).for_each(|i| x.row_mut(i)[0].copy_from_slice(&[0.4, -0.7]));
        let mut d = x.clone();
        let at = At { k: 0, owned: &[0, 1, 2], threads: &crate::rows::Threads::one() };
        SingleLevel::gradients(&heavy, at, &x, &mut d).unwrap();
        let expected = heavy.single(&[0.4, -0.7]).1;
        for (j, expected) in expected.iter().enumerate() {
            let mean = (0..3).map(|i| d.row(i)[0][j]).sum::<f64>() / 3.0;
            assert!((mean - expected).abs() < 1e-12, "{mean} {expected}");
        }
    }

    /// Values, gradients and closed forms of a fit that does not count once, against each other.
    #[test]
    fn a_heavy_fit_has_the_slopes_of_its_values() {
        let problem = Robust { weight: 3.0, tau: 0.2, ..Robust::random(3, 2, 4, 1) };
        let forms: &dyn ClosedForms = &problem;
        let (x, y) = ([0.4, -0.7], [0.3, 1.2, -0.8, 2.0]);
        let differences = |at: &[f64], of: &dyn Fn(&[f64]) -> f64| -> Vec<f64> {
            let shifted = |j: usize, by: f64| {
                let mut at = at.to_vec();
                at[j] += by;
                of(&at)
            };
            (0..at.len()).map(|j| (shifted(j, 1e-5) - shifted(j, -1e-5)) / 2e-5).collect()
        };
        let near = |a: &[f64], b: &[f64], place: &str| {
            assert!(a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-7), "{place}");
        };
        // f + λ(g) of all agents in y.
        let in_y = |y: &[f64], lambda: f64| {
            let (mut sum, mut gx, mut gy) = (vec![0.0; 4], [0.0; 2], [0.0; 4]);
            for i in 0..3 {
                problem.grad_f(i, 0, &x, y, &mut gx, &mut gy).unwrap();
                sum.iter_mut().zip(gy).for_each(|(s, g)| *s += g / 3.0);
                problem.grad_g(i, 0, &x, y, &mut gx, &mut gy).unwrap();
                sum.iter_mut().zip(gy).for_each(|(s, g)| *s += lambda * g / 3.0);
            }
            sum
        };
        near(&differences(&y, &|y| forms.values(&x, y).0), &in_y(&y, 0.0), "f in y");
        near(&in_y(&forms.penalty_lower_solution(&x, 7.0), 7.0), &[0.0; 4], "y of λ = 7");
        let best = |x: &[f64]| forms.values(x, &forms.lower_solution(x)).0;
        near(&differences(&x, &best), &forms.hypergradient(&x), "∇F*");
        let single = problem.single(&x);
        near(&differences(&x, &|x| problem.single(x).0), single.1.as_slice(), "∇F of one level");
        assert_eq!(problem.value(&x), Some(single.0));
    }

    #[test]
    fn a_warm_start_is_at_the_solutions() {
        let problem = Robust::random(3, 2, 4, 1).warm(Some(3.0));
        let start = problem.start();
        assert_eq!((start.x, start.z), (vec![vec![0.0; 2]], vec![problem.lower_solution(&[0.0; 2])]));
        assert_eq!(start.y, [problem.penalty_lower_solution(&[0.0; 2], 3.0)]);
    }
}
