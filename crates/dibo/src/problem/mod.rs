//! Problems: local objectives f_i, g_i and their gradients. A problem knows no graph.
//!
//! A problem of your own is one `impl Bilevel` with two gradients; everything else has a default. See
//! `examples/own_problem.rs`.
mod constants;
mod counted;
mod curved;
pub mod learning;
mod policy_evaluation;
mod quadratic;
mod robust;
mod waves;

pub use constants::{ClosedForms, Constants, estimate, penalty_gradient};
pub use counted::{Counted, Oracle};
pub use curved::Curved;
pub use learning::Learning;
pub use policy_evaluation::{Instance, NoiseOn, PolicyEvaluation};
pub use quadratic::{Matrices, Quadratic};
pub use robust::Robust;
pub use waves::Waves;

use crate::error::Result;
use crate::rows::{Real, Stack, Threads, Upper, View};

/// Which call this is: iteration, rows and threads.
#[derive(Clone, Copy)]
pub struct At<'a> {
    /// Iteration: with the agent it names the minibatch and the noise, so the same `k` gives the same sample
    /// at any point.
    pub k: usize,
    /// The agent of each row.
    pub owned: &'a [usize],
    /// Threads to use.
    pub threads: &'a Threads,
}

/// The factors of f and g in the penalty function: (1, λ) as written, (1/λ, 1) normalised.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Penalty {
    /// Factor of f.
    pub f: f64,
    /// Factor of g.
    pub g: f64,
}

/// How SOBA's directions come by second derivatives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Products {
    /// As products.
    Exact,
    /// As differences of two gradients, at y + δz and y − δz.
    Differences {
        /// δ.
        delta: f64,
        /// δ is what ‖δz‖ is of 1 + ‖y‖.
        relative: bool,
    },
    /// As products, and there is no z: each agent has its own (1/L) Σ_{j<J} (I − ∇²ᵧᵧg/L)ʲ ∇ᵧf instead.
    Series {
        /// L.
        curvature: f64,
        /// J.
        terms: usize,
    },
}

/// Starting points, one row per agent of the whole network, or one row where all start alike; what is empty
/// starts at zero.
#[derive(Clone, Debug, Default)]
pub struct Start {
    /// Upper variable.
    pub x: Vec<Vec<f64>>,
    /// Lower variable.
    pub y: Vec<Vec<f64>>,
    /// Its twin; `y` if empty.
    pub z: Vec<Vec<f64>>,
    /// SOBA's auxiliary variable.
    pub v: Vec<Vec<f64>>,
}

impl Start {
    /// Where z starts.
    pub fn twin(&self) -> &Vec<Vec<f64>> {
        if self.z.is_empty() { &self.y } else { &self.z }
    }

    /// Everybody at this x, with y at y_λ*(x) (at y*(x) for methods without a penalty) and z at y*(x).
    pub fn warm(forms: &dyn ClosedForms, x: Vec<f64>, lambda: Option<f64>) -> Self {
        let z = forms.lower_solution(&x);
        let y = lambda.map_or_else(|| z.clone(), |lambda| forms.penalty_lower_solution(&x, lambda));
        Start { x: vec![x], y: vec![y], z: vec![z], v: Vec::new() }
    }

    /// An agent's row among those of a variable; a single row is everybody's.
    pub fn row(rows: &[Vec<f64>], agent: usize) -> Option<&[f64]> {
        let row = if rows.len() == 1 { rows.first() } else { rows.get(agent) };
        row.map(Vec::as_slice)
    }
}

/// One evaluation: names with values.
pub type Values = Vec<(&'static str, f64)>;

/// What a metric is, for tables, axes and whoever looks for the best of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name in files.
    pub name: &'static str,
    /// In words.
    pub label: &'static str,
    /// Unit, such as `%`; empty for a plain number.
    pub unit: &'static str,
    /// Which way is better.
    pub better: Better,
}

/// Which way a metric is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// A loss, an error.
    Lower,
    /// An accuracy.
    Higher,
    /// It only describes.
    Neither,
}

impl Metric {
    /// A metric that is better when it is lower.
    pub const fn lower(name: &'static str, label: &'static str) -> Self {
        Metric { name, label, unit: "", better: Better::Lower }
    }

    /// A metric that is better when it is higher.
    pub const fn higher(name: &'static str, label: &'static str, unit: &'static str) -> Self {
        Metric { name, label, unit, better: Better::Higher }
    }

    /// A metric that only describes.
    pub const fn plain(name: &'static str, label: &'static str) -> Self {
        Metric { name, label, unit: "", better: Better::Neither }
    }
}

/// A bilevel problem: minimise Σ f_i(x, y*(x)) where y*(x) minimises Σ g_i(x, ·).
pub trait Bilevel<T: Real>: Send + Sync {
    /// Number of agents.
    fn agents(&self) -> usize;
    /// Shape of the upper variable.
    fn upper(&self) -> Upper;
    /// Length of the lower variable.
    fn lower(&self) -> usize;
    /// Writes ∇ₓf_i and ∇ᵧf_i at (x, y) with the sample of iteration `k`.
    fn grad_f(&self, agent: usize, k: usize, x: &[T], y: &[T], gx: &mut [T], gy: &mut [T]) -> Result<()>;
    /// Writes ∇ₓg_i and ∇ᵧg_i at (x, y) with the sample of iteration `k`.
    fn grad_g(&self, agent: usize, k: usize, x: &[T], y: &[T], gx: &mut [T], gy: &mut [T]) -> Result<()>;

    /// The directions of FAB at (x, y, z), the paper's (5), for all owned agents:
    /// `dx = f ∇ₓf(x,y) + g (∇ₓg(x,y) − ∇ₓg(x,z))`, `dy = f ∇ᵧf(x,y) + g ∇ᵧg(x,y)`, `dz = g ∇ᵧg(x,z)`.
    fn penalty_directions(
        &self,
        at: At<'_>,
        penalty: Penalty,
        v: &Stack<T, 3>,
        d: &mut Stack<T, 3>,
    ) -> Result<()> {
        penalty_directions_by_agent(self, at, penalty, v, d)
    }

    /// SOBA's directions at (x, y, z) for all owned agents, where the problem has them faster than from its
    /// gradients: `dx = ∇ₓf − ∇²ₓᵧg z`, `dy = ∇ᵧg`, `dz = ∇²ᵧᵧg z − ∇ᵧf`, all at (x, y). Says whether it has.
    /// With `only` one variable's direction alone is wanted (0 for x, 1 for y, 2 for z), and what becomes of
    /// the others does not matter.
    fn soba_directions(
        &self,
        _at: At<'_>,
        _by: Products,
        _only: Option<usize>,
        _v: &Stack<T, 3>,
        _d: &mut Stack<T, 3>,
    ) -> Result<bool> {
        Ok(false)
    }

    /// Products with second derivatives of g, for the methods that need them.
    fn second_order(&self) -> Option<&dyn SecondOrder<T>> {
        None
    }

    /// The single-level objective that baselines minimise, where there is one.
    fn single_level(&self) -> Option<&dyn SingleLevel<T>> {
        None
    }

    /// The constants of the theory, where they have closed forms; [`estimate`] serves elsewhere.
    fn constants(&self) -> Option<Constants> {
        None
    }

    /// The solution maps, where they have closed forms.
    fn closed_forms(&self) -> Option<&dyn ClosedForms> {
        None
    }

    /// Where the agents start, unless the caller says otherwise.
    fn start(&self) -> Start {
        Start::default()
    }

    /// The metrics that this problem reports, with their units and labels. The first is the one that targets,
    /// `tune` and the look for divergence go by.
    fn measures(&self) -> Vec<Metric> {
        Vec::new()
    }

    /// What can be said about a point: metrics by name, from the agents' mean x (and y where there is one).
    fn metrics(&self, _x: &[f64], _y: Option<&[f64]>) -> Result<Values> {
        Ok(Values::new())
    }

    /// For problems whose data must not leave its agent: sums that each of these agents, one a row of the
    /// views, makes of its own variables and data. [`metrics_of_sums`](Self::metrics_of_sums) takes them,
    /// added up over all agents.
    fn own_sums(&self, _agents: &[usize], _views: &[View<'_, T>]) -> Result<Option<Vec<Vec<f64>>>> {
        Ok(None)
    }

    /// The metrics that the sums of all agents give.
    fn metrics_of_sums(&self, _sums: &[f64]) -> Values {
        Values::new()
    }

    /// Metrics of a whole state, for problems that look at more than the mean.
    fn state_metrics(&self, views: &[View<'_, T>]) -> Result<Values> {
        let mean = |name: &str| views.iter().find(|v| v.name == name).and_then(View::mean);
        mean("x").map_or_else(|| Ok(Values::new()), |x| self.metrics(&x, mean("y").as_deref()))
    }
}

/// Products with the second derivatives of g_i.
pub trait SecondOrder<T: Real>: Send + Sync {
    /// Writes ∇²ᵧᵧg_i(x, y)·v.
    fn yy(&self, agent: usize, k: usize, x: &[T], y: &[T], v: &[T], out: &mut [T]) -> Result<()>;
    /// Writes ∇²ₓᵧg_i(x, y)·v, a vector like x.
    fn xy(&self, agent: usize, k: usize, x: &[T], y: &[T], v: &[T], out: &mut [T]) -> Result<()>;
}

/// Where a problem has no products of its own: ∇²ᵧᵧg_i·v, or ∇²ₓᵧg_i·v, as a central difference of ∇g_i along
/// v. The step is small beside y and far above the rounding of `T`.
pub fn difference_product<T: Real>(
    problem: &dyn Bilevel<T>,
    agent: usize,
    k: usize,
    [x, y, v]: [&[T]; 3],
    out: &mut [T],
    mixed: bool,
) -> Result<()> {
    let norm = |v: &[T]| v.iter().map(|v| v.f64() * v.f64()).sum::<f64>().sqrt();
    let size = norm(v);
    if size == 0.0 {
        out.fill(T::ZERO);
        return Ok(());
    }
    // The third root of the rounding: what the difference cuts off is then as small as what rounding adds.
    let rounding: f64 = if size_of::<T>() == 4 { 1.2e-7 } else { 2.2e-16 };
    let delta = rounding.cbrt() * (1.0 + norm(y)) / size;
    let (mut gx, mut gy) = (vec![T::ZERO; x.len()], vec![T::ZERO; y.len()]);
    let mut point: Vec<T> = y.to_vec();
    for sign in [1.0, -1.0] {
        let step = T::of(sign * delta);
        point.iter_mut().zip(y.iter().zip(v)).for_each(|(p, (y, v))| *p = *y + step * *v);
        problem.grad_g(agent, k, x, &point, &mut gx, &mut gy)?;
        let (from, scale) = (if mixed { &gx } else { &gy }, T::of(0.5 * sign / delta));
        match sign > 0.0 {
            true => out.iter_mut().zip(from).for_each(|(o, g)| *o = scale * *g),
            false => out.iter_mut().zip(from).for_each(|(o, g)| *o += scale * *g),
        }
    }
    Ok(())
}

/// A single-level objective Σ F_i(x).
pub trait SingleLevel<T: Real>: Send + Sync {
    /// Number of agents.
    fn agents(&self) -> usize;
    /// Length of x.
    fn width(&self) -> usize;
    /// Into how many blocks an agent's data is cut; iteration k uses block k mod this. One block is a full
    /// batch.
    fn blocks(&self) -> usize {
        1
    }
    /// Which of the starting points is x's.
    fn start_from<'a>(&self, start: &'a Start) -> &'a Vec<Vec<f64>> {
        &start.x
    }
    /// Writes ∇F_i(x_i) with the sample of iteration `at.k` for all owned agents.
    fn gradients(&self, at: At<'_>, x: &Stack<T, 1>, d: &mut Stack<T, 1>) -> Result<()>;
    /// F(x), the mean over agents, where it is cheap to tell.
    fn value(&self, _x: &[f64]) -> Option<f64> {
        None
    }
}

/// FAB's directions from the gradients of f and g, agent by agent.
fn penalty_directions_by_agent<T: Real, P: Bilevel<T> + ?Sized>(
    problem: &P,
    at: At<'_>,
    penalty: Penalty,
    v: &Stack<T, 3>,
    d: &mut Stack<T, 3>,
) -> Result<()> {
    let (f, g) = (T::of(penalty.f), T::of(penalty.g));
    d.try_for_each_row(at.threads, 1, |_, row, [dx, dy, dz]| {
        let (i, [x, y, z]) = (at.owned[row], v.row(row));
        let (mut gx, mut gy) = (vec![T::ZERO; x.len()], vec![T::ZERO; y.len()]);
        problem.grad_g(i, at.k, x, z, &mut gx, &mut gy)?;
        dx.iter_mut().zip(&gx).for_each(|(d, g1)| *d = -(g * *g1));
        dz.iter_mut().zip(&gy).for_each(|(d, g1)| *d = g * *g1);
        problem.grad_g(i, at.k, x, y, &mut gx, &mut gy)?;
        dx.iter_mut().zip(&gx).for_each(|(d, g1)| *d += g * *g1);
        dy.iter_mut().zip(&gy).for_each(|(d, g1)| *d = g * *g1);
        problem.grad_f(i, at.k, x, y, &mut gx, &mut gy)?;
        dx.iter_mut().zip(&gx).for_each(|(d, f1)| *d += f * *f1);
        dy.iter_mut().zip(&gy).for_each(|(d, f1)| *d += f * *f1);
        Ok(())
    })
}
