//! A general quadratic bilevel problem with closed forms, for tests and for learning what an algorithm does.
//!
//! f_i(x,y) = ½xᵀPᵢx + ½yᵀQᵢy + xᵀSᵢy + pᵢᵀx + qᵢᵀy and g_i(x,y) = ½yᵀHᵢy + xᵀCᵢy + hᵢᵀy, with Hᵢ positive
//! definite.
use super::constants::{ClosedForms, Constants};
use super::{At, Bilevel, Metric, SecondOrder, SingleLevel, Values};
use crate::error::Result;
use crate::rng::{Purpose, stream};
use crate::rows::{Stack, Upper};
use nalgebra::{DMatrix, DVector};
use rand::RngExt;

/// One agent's matrices.
#[derive(Clone, Debug)]
struct Local {
    p: DMatrix<f64>,
    q: DMatrix<f64>,
    s: DMatrix<f64>,
    h: DMatrix<f64>,
    c: DMatrix<f64>,
    p0: DVector<f64>,
    q0: DVector<f64>,
    h0: DVector<f64>,
}

/// One agent's matrices, row by row, as a file gives them: S and C have a row for each number of x.
#[derive(Clone, Debug, serde::Deserialize)]
pub struct Matrices {
    /// ∇²ₓₓf.
    #[serde(rename = "P")]
    pub xx: Vec<Vec<f64>>,
    /// ∇²ᵧᵧf.
    #[serde(rename = "Q")]
    pub yy: Vec<Vec<f64>>,
    /// ∇²ₓᵧf.
    #[serde(rename = "S")]
    pub xy: Vec<Vec<f64>>,
    /// Linear part of f in x.
    pub p: Vec<f64>,
    /// Linear part of f in y.
    pub q: Vec<f64>,
    /// ∇²ᵧᵧg.
    #[serde(rename = "H")]
    pub g_yy: Vec<Vec<f64>>,
    /// ∇²ₓᵧg.
    #[serde(rename = "C")]
    pub g_xy: Vec<Vec<f64>>,
    /// Linear part of g in y.
    pub h: Vec<f64>,
    /// Direction in x of the curved part, where there is one.
    #[serde(default)]
    pub a: Vec<f64>,
}

impl Matrices {
    fn local(&self, dx: usize, dy: usize) -> Result<Local, String> {
        let table = |name: &str, t: &Vec<Vec<f64>>, rows: usize, columns: usize| {
            let fits = t.len() == rows && t.iter().all(|r| r.len() == columns);
            let finite = t.iter().flatten().all(|v| v.is_finite());
            match fits && finite {
                true => Ok(DMatrix::from_fn(rows, columns, |i, j| t[i][j])),
                false => Err(format!("{name} must have {rows} rows of {columns} finite numbers")),
            }
        };
        let vector = |name: &str, v: &Vec<f64>, len: usize| {
            table(name, &vec![v.clone()], 1, len).map(|m| m.transpose().column(0).into_owned())
        };
        Ok(Local {
            p: table("P", &self.xx, dx, dx)?,
            q: table("Q", &self.yy, dy, dy)?,
            s: table("S", &self.xy, dx, dy)?,
            h: table("H", &self.g_yy, dy, dy)?,
            c: table("C", &self.g_xy, dx, dy)?,
            p0: vector("p", &self.p, dx)?,
            q0: vector("q", &self.q, dy)?,
            h0: vector("h", &self.h, dy)?,
        })
    }
}

/// A quadratic bilevel problem.
///
/// ```
/// let problem = dibo::problem::Quadratic::random(5, 2, 3, 0, false);
/// let best = problem.solution();
/// assert!(problem.hypergradient(&best).iter().all(|g| g.abs() < 1e-8));
/// ```
#[derive(Clone, Debug)]
pub struct Quadratic {
    locals: Vec<Local>,
    mean: Local,
}

impl Quadratic {
    /// Random matrices, different for each agent; with `indefinite`, the agents' Pᵢ and Qᵢ need not be
    /// positive definite.
    pub fn random(agents: usize, dx: usize, dy: usize, seed: u64, indefinite: bool) -> Self {
        let locals: Vec<Local> = (0..agents)
            .map(|i| {
                let mut r = stream(seed, Purpose::Instance, i as u64, 0);
                let mut table =
                    |rows, columns| DMatrix::from_fn(rows, columns, |_, _| r.random_range(-1.0..1.0));
                let square = |m: DMatrix<f64>, floor: f64| {
                    let n = m.nrows();
                    &m * m.transpose() / n as f64 + DMatrix::identity(n, n) * floor
                };
                let tilt = if indefinite { 0.5 } else { 0.0 };
                let mut sym = |n: usize| {
                    let m = table(n, n);
                    (&m + m.transpose()) * tilt
                };
                let (px, qy) = (sym(dx), sym(dy));
                Local {
                    p: square(table(dx, dx), 0.5) + px,
                    q: square(table(dy, dy), 0.5) + qy,
                    s: table(dx, dy) * 0.2,
                    h: square(table(dy, dy), 1.0),
                    c: table(dx, dy) * 0.5,
                    p0: table(dx, 1).column(0).into_owned(),
                    q0: table(dy, 1).column(0).into_owned(),
                    h0: table(dy, 1).column(0).into_owned(),
                }
            })
            .collect();
        Self::of(locals)
    }

    /// Explicit matrices, one set an agent; says what is wrong with their shapes.
    pub fn from_matrices(agents: &[Matrices]) -> Result<Self, String> {
        let (dx, dy) = agents.first().map_or((0, 0), |a| (a.p.len(), a.q.len()));
        if dx == 0 || dy == 0 {
            return Err("agents: at least one, with one number or more for x and for y, is needed".into());
        }
        let locals =
            agents.iter().enumerate().map(|(i, a)| a.local(dx, dy).map_err(|e| format!("agent {i}: {e}")));
        let problem = Self::of(locals.collect::<Result<_, _>>()?);
        match problem.mean.h.clone().cholesky() {
            Some(_) => Ok(problem),
            None => Err("agents: the mean of H is not positive definite".into()),
        }
    }

    fn of(locals: Vec<Local>) -> Self {
        let n = locals.len() as f64;
        let sum = |of: fn(&Local) -> &DMatrix<f64>| {
            locals[1..].iter().fold(of(&locals[0]).clone(), |a, l| a + of(l)) / n
        };
        let sum0 = |of: fn(&Local) -> &DVector<f64>| {
            locals[1..].iter().fold(of(&locals[0]).clone(), |a, l| a + of(l)) / n
        };
        let mean = Local {
            p: sum(|l| &l.p),
            q: sum(|l| &l.q),
            s: sum(|l| &l.s),
            h: sum(|l| &l.h),
            c: sum(|l| &l.c),
            p0: sum0(|l| &l.p0),
            q0: sum0(|l| &l.q0),
            h0: sum0(|l| &l.h0),
        };
        Quadratic { locals, mean }
    }

    fn shape(&self) -> (usize, usize) {
        self.mean.s.shape()
    }

    /// The lower solution map y*(x) = −H⁻¹(Cᵀx + h).
    pub fn lower_solution(&self, x: &[f64]) -> Vec<f64> {
        let m = &self.mean;
        let rhs = m.c.transpose() * DVector::from_column_slice(x) + &m.h0;
        (-m.h.clone().cholesky().expect("positive definite").solve(&rhs)).as_slice().to_vec()
    }

    /// ∇F(x, y*(x)).
    pub fn hypergradient(&self, x: &[f64]) -> Vec<f64> {
        let m = &self.mean;
        let (xv, y) = (DVector::from_column_slice(x), DVector::from_vec(self.lower_solution(x)));
        let fx = &m.p * &xv + &m.s * &y + &m.p0;
        let fy = &m.q * &y + m.s.transpose() * &xv + &m.q0;
        let v = m.h.clone().cholesky().expect("positive definite").solve(&fy);
        (fx - &m.c * v).as_slice().to_vec()
    }

    /// F(x, y*(x)).
    pub fn objective(&self, x: &[f64]) -> f64 {
        let m = &self.mean;
        let (x, y) = (DVector::from_column_slice(x), DVector::from_vec(self.lower_solution(x)));
        0.5 * x.dot(&(&m.p * &x))
            + 0.5 * y.dot(&(&m.q * &y))
            + x.dot(&(&m.s * &y))
            + m.p0.dot(&x)
            + m.q0.dot(&y)
    }

    /// The stationary point of F(x, y*(x)), by solving the linear system that the hypergradient is.
    pub fn solution(&self) -> Vec<f64> {
        self.root(|x| self.hypergradient(x))
    }

    /// The stationary point of min_y f + λ(g − min_z g).
    pub fn penalty_solution(&self, lambda: f64) -> Vec<f64> {
        let m = &self.mean;
        self.root(|x| {
            let xv = DVector::from_column_slice(x);
            let z = DVector::from_vec(self.lower_solution(x));
            let lhs = &m.q + &m.h * lambda;
            let rhs = m.s.transpose() * &xv + &m.q0 + (m.c.transpose() * &xv + &m.h0) * lambda;
            let y = -lhs.lu().solve(&rhs).expect("λ is large enough");
            (&m.p * &xv + &m.s * &y + &m.p0 + &m.c * (y - z) * lambda).as_slice().to_vec()
        })
    }

    /// The root of an affine map.
    fn root(&self, map: impl Fn(&[f64]) -> Vec<f64>) -> Vec<f64> {
        let n = self.shape().0;
        let b = DVector::from_vec(map(&vec![0.0; n]));
        let column = |j: usize| {
            DVector::from_vec(map(&(0..n).map(|i| f64::from(u8::from(i == j))).collect::<Vec<_>>())) - &b
        };
        let a = DMatrix::from_columns(&(0..n).map(column).collect::<Vec<_>>());
        (-a.lu().solve(&b).expect("one stationary point")).as_slice().to_vec()
    }
}

/// [[p, s], [sᵀ, q]].
fn blocks(p: &DMatrix<f64>, s: &DMatrix<f64>, q: &DMatrix<f64>) -> DMatrix<f64> {
    let (n, m) = s.shape();
    DMatrix::from_fn(n + m, n + m, |i, j| match (i < n, j < n) {
        (true, true) => p[(i, j)],
        (true, false) => s[(i, j - n)],
        (false, true) => s[(j, i - n)],
        (false, false) => q[(i - n, j - n)],
    })
}

impl ClosedForms for Quadratic {
    fn lower_solution(&self, x: &[f64]) -> Vec<f64> {
        Quadratic::lower_solution(self, x)
    }

    fn penalty_lower_solution(&self, x: &[f64], lambda: f64) -> Vec<f64> {
        let (m, x) = (&self.mean, DVector::from_column_slice(x));
        let rhs = m.s.transpose() * &x + &m.q0 + (m.c.transpose() * &x + &m.h0) * lambda;
        (-(&m.q + &m.h * lambda).lu().solve(&rhs).expect("λ is large enough")).as_slice().to_vec()
    }

    fn values(&self, x: &[f64], y: &[f64]) -> (f64, f64) {
        let (m, x, y) = (&self.mean, DVector::from_column_slice(x), DVector::from_column_slice(y));
        let f = 0.5 * x.dot(&(&m.p * &x))
            + 0.5 * y.dot(&(&m.q * &y))
            + x.dot(&(&m.s * &y))
            + m.p0.dot(&x)
            + m.q0.dot(&y);
        (f, 0.5 * y.dot(&(&m.h * &y)) + x.dot(&(&m.c * &y)) + m.h0.dot(&y))
    }

    fn hypergradient(&self, x: &[f64]) -> Vec<f64> {
        Quadratic::hypergradient(self, x)
    }
}

fn write(out: &mut [f64], v: DVector<f64>) {
    out.copy_from_slice(v.as_slice());
}

impl Bilevel<f64> for Quadratic {
    fn agents(&self) -> usize {
        self.locals.len()
    }

    fn upper(&self) -> Upper {
        Upper::Shared(self.shape().0)
    }

    fn lower(&self) -> usize {
        self.shape().1
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
        let (l, x, y) = (&self.locals[agent], DVector::from_column_slice(x), DVector::from_column_slice(y));
        write(gx, &l.p * &x + &l.s * &y + &l.p0);
        write(gy, &l.q * &y + l.s.transpose() * &x + &l.q0);
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
        let (l, x, y) = (&self.locals[agent], DVector::from_column_slice(x), DVector::from_column_slice(y));
        write(gx, &l.c * &y);
        write(gy, &l.h * &y + l.c.transpose() * &x + &l.h0);
        Ok(())
    }

    fn second_order(&self) -> Option<&dyn SecondOrder<f64>> {
        Some(self)
    }

    fn single_level(&self) -> Option<&dyn SingleLevel<f64>> {
        Some(self)
    }

    fn constants(&self) -> Option<Constants> {
        let size = |m: DMatrix<f64>| m.symmetric_eigenvalues().amax();
        let largest = |of: &dyn Fn(&Local) -> f64| self.locals.iter().map(of).fold(0.0, f64::max);
        let best = DVector::from_vec(self.solution());
        let jacobian = -self.mean.h.clone().cholesky()?.solve(&self.mean.c.transpose());
        // ∇ᵧf_i at (x, y*(x)) is affine in x: its value at x* and its derivative bound it on the ball.
        let y = DVector::from_vec(self.lower_solution(best.as_slice()));
        let steepest = |l: &Local| {
            let at_best = &l.q * &y + l.s.transpose() * &best + &l.q0;
            at_best.norm() + (&l.q * &jacobian + l.s.transpose()).singular_values().max() * best.norm()
        };
        Some(Constants {
            mu: self
                .locals
                .iter()
                .map(|l| l.h.clone().symmetric_eigenvalues().min())
                .fold(f64::INFINITY, f64::min),
            l_f0: largest(&steepest),
            l_f1: largest(&|l| size(blocks(&l.p, &l.s, &l.q))),
            l_f2: 0.0,
            l_g1: largest(&|l| size(blocks(&DMatrix::zeros(l.c.nrows(), l.c.nrows()), &l.c, &l.h))),
            l_g2: 0.0,
            g_curvature: largest(&|l| size(l.h.clone())),
            sigma_max: Some(jacobian.singular_values().max()),
            l_single: Some(largest(&|l| size(l.p.clone()))),
            exact: true,
            region: "L_f0 for ‖x − x*‖ ≤ ‖x*‖ and y = y*(x), the others everywhere",
            kinds: (0..self.locals.len()).collect(),
        })
    }

    fn closed_forms(&self) -> Option<&dyn ClosedForms> {
        Some(self)
    }

    fn measures(&self) -> Vec<Metric> {
        vec![
            Metric::lower("relative_error", "relative error"),
            Metric::lower("objective", "objective F*"),
            Metric::lower("hypergradient", "norm of the hypergradient"),
        ]
    }

    fn metrics(&self, x: &[f64], _y: Option<&[f64]>) -> Result<Values> {
        let best = self.solution();
        let norm = |v: &[f64]| v.iter().map(|v| v * v).sum::<f64>().sqrt();
        let gap: Vec<f64> = x.iter().zip(&best).map(|(a, b)| a - b).collect();
        Ok(vec![
            ("relative_error", norm(&gap) / norm(&best)),
            ("objective", self.objective(x)),
            ("hypergradient", norm(&self.hypergradient(x))),
        ])
    }
}

impl SecondOrder<f64> for Quadratic {
    fn yy(&self, agent: usize, _k: usize, _x: &[f64], _y: &[f64], v: &[f64], out: &mut [f64]) -> Result<()> {
        write(out, &self.locals[agent].h * DVector::from_column_slice(v));
        Ok(())
    }

    fn xy(&self, agent: usize, _k: usize, _x: &[f64], _y: &[f64], v: &[f64], out: &mut [f64]) -> Result<()> {
        write(out, &self.locals[agent].c * DVector::from_column_slice(v));
        Ok(())
    }
}

/// The single-level objective is f_i(x, 0): a quadratic that differs between agents.
impl SingleLevel<f64> for Quadratic {
    fn agents(&self) -> usize {
        self.locals.len()
    }

    fn width(&self) -> usize {
        self.shape().0
    }

    fn gradients(&self, at: At<'_>, x: &Stack<f64, 1>, d: &mut Stack<f64, 1>) -> Result<()> {
        d.for_each_row(at.threads, 1, |_, row, [d]| {
            let l = &self.locals[at.owned[row]];
            write(d, &l.p * DVector::from_column_slice(x.row(row)[0]) + &l.p0);
        });
        Ok(())
    }

    fn value(&self, x: &[f64]) -> Option<f64> {
        let x = DVector::from_column_slice(x);
        Some(0.5 * x.dot(&(&self.mean.p * &x)) + self.mean.p0.dot(&x))
    }
}
