//! What the theory asks of a problem: its constants (μ and the Lipschitz constants of Assumption 3) and,
//! where there are any, its closed forms.
use super::{At, Bilevel, Start};
use crate::error::Result;
use crate::rng::{Purpose, stream};
use crate::rows::{Real, Stack, Threads, Upper};
use rand::RngExt;
use rand_distr::StandardNormal;

/// The constants of Assumption 3, the largest (μ: the smallest) over all agents.
#[derive(Clone, Debug, PartialEq)]
pub struct Constants {
    /// Every g_i is μ-strongly convex in y.
    pub mu: f64,
    /// Lipschitz constant of f_i in y.
    pub l_f0: f64,
    /// Lipschitz constant of ∇f_i.
    pub l_f1: f64,
    /// Lipschitz constant of ∇²f_i.
    pub l_f2: f64,
    /// Lipschitz constant of ∇g_i.
    pub l_g1: f64,
    /// Lipschitz constant of ∇²g_i.
    pub l_g2: f64,
    /// g's largest curvature in y alone.
    pub g_curvature: f64,
    /// Largest singular value of y*'s derivative, where it is known.
    pub sigma_max: Option<f64>,
    /// Lipschitz constant of the single-level ∇F_i, where there is a single-level objective.
    pub l_single: Option<f64>,
    /// True for closed forms, false for estimates: those come from a few points and agents, and are too small
    /// rather than too large (μ too large).
    pub exact: bool,
    /// Where they hold, in words.
    pub region: &'static str,
    /// Agents with equal data have equal numbers.
    pub kinds: Vec<usize>,
}

/// What a problem can say exactly about its solution maps. All are of the whole network: F and G are means
/// over the agents.
pub trait ClosedForms: Send + Sync {
    /// y*(x), the minimiser of G(x, ·).
    fn lower_solution(&self, x: &[f64]) -> Vec<f64>;
    /// y_λ*(x), the minimiser of F(x, ·) + λG(x, ·).
    fn penalty_lower_solution(&self, x: &[f64], lambda: f64) -> Vec<f64>;
    /// F(x, y) and G(x, y).
    fn values(&self, x: &[f64], y: &[f64]) -> (f64, f64);
    /// ∇F*(x), the gradient of F(x, y*(x)).
    fn hypergradient(&self, x: &[f64]) -> Vec<f64>;

    /// L_λ*(x) = F(x, y_λ*) + λ(G(x, y_λ*) − G(x, y*)).
    fn penalty_objective(&self, x: &[f64], lambda: f64) -> f64 {
        let (f, g) = self.values(x, &self.penalty_lower_solution(x, lambda));
        f + lambda * (g - self.values(x, &self.lower_solution(x)).1)
    }
}

/// ∇L_λ*(x) = ∇ₓF(x, y_λ*) + λ(∇ₓG(x, y_λ*) − ∇ₓG(x, y*)).
pub fn penalty_gradient<T: Real>(
    problem: &dyn Bilevel<T>,
    forms: &dyn ClosedForms,
    x: &[f64],
    lambda: f64,
) -> Result<Vec<f64>> {
    let round = |v: &[f64]| v.iter().map(|v| T::of(*v)).collect::<Vec<T>>();
    let (y, z) = (forms.penalty_lower_solution(x, lambda), forms.lower_solution(x));
    let (xs, y, z) = (round(x), round(&y), round(&z));
    let (mut gx, mut gy) = (vec![T::ZERO; x.len()], vec![T::ZERO; y.len()]);
    let mut sum = vec![0.0; x.len()];
    let n = problem.agents();
    for i in 0..n {
        let mut add = |factor: f64, gx: &[T]| {
            sum.iter_mut().zip(gx).for_each(|(s, g)| *s += factor * g.f64() / n as f64)
        };
        problem.grad_f(i, 0, &xs, &y, &mut gx, &mut gy)?;
        add(1.0, &gx);
        problem.grad_g(i, 0, &xs, &y, &mut gx, &mut gy)?;
        add(lambda, &gx);
        problem.grad_g(i, 0, &xs, &z, &mut gx, &mut gy)?;
        add(-lambda, &gx);
    }
    Ok(sum)
}

/// A gradient to be differenced: from a point (all its variables in a row) to the gradient there.
type Gradient<'a, T> = dyn Fn(&[T]) -> Result<Vec<f64>> + 'a;

/// Estimates by power iteration on differences of gradients, at the start and at points near it, for a few
/// agents. A minibatch problem is asked at k = 0.
pub fn estimate<T: Real>(problem: &dyn Bilevel<T>) -> Result<Constants> {
    let n = problem.agents();
    // A large model's gradients are dear, and its largest curvature stands out.
    let (asked, rounds) = match problem.lower() {
        0..2_000 => (3, 30),
        2_000..50_000 => (2, 8),
        _ => (1, 6),
    };
    let mut c = Constants {
        mu: f64::INFINITY,
        l_f0: 0.0,
        l_f1: 0.0,
        l_f2: 0.0,
        l_g1: 0.0,
        l_g2: 0.0,
        g_curvature: 0.0,
        sigma_max: None,
        l_single: None,
        exact: false,
        region: "near the start",
        kinds: (0..n).collect(),
    };
    let start = problem.start();
    for agent in (0..n.min(asked)).map(|a| a * n / n.min(asked)) {
        let width = match problem.upper() {
            Upper::Shared(width) => width,
            Upper::Private(widths) => widths[agent],
        };
        let mut r = stream(0, Purpose::Start, agent as u64, 1);
        let mut normal =
            |len: usize| (0..len).map(|_| r.sample::<f64, _>(StandardNormal)).collect::<Vec<f64>>();
        let probe = Probe { problem, start: &start, agent, width, rounds };
        probe.bilevel(&mut c, &mut normal)?;
        probe.single(&mut c, &mut normal)?;
    }
    Ok(c)
}

/// One agent that is asked.
struct Probe<'a, T> {
    problem: &'a dyn Bilevel<T>,
    start: &'a Start,
    agent: usize,
    width: usize,
    rounds: usize,
}

impl<T: Real> Probe<'_, T> {
    /// ∇ₓ and ∇ᵧ of g (or of f) at a point.
    fn split(&self, p: &[T], of_g: bool) -> Result<(Vec<T>, Vec<T>)> {
        let (x, y) = p.split_at(self.width);
        let (mut gx, mut gy) = (vec![T::ZERO; x.len()], vec![T::ZERO; y.len()]);
        match of_g {
            true => self.problem.grad_g(self.agent, 0, x, y, &mut gx, &mut gy)?,
            false => self.problem.grad_f(self.agent, 0, x, y, &mut gx, &mut gy)?,
        }
        Ok((gx, gy))
    }

    fn whole(&self, p: &[T], of_g: bool) -> Result<Vec<f64>> {
        let (gx, gy) = self.split(p, of_g)?;
        Ok(gx.iter().chain(&gy).map(|v| v.f64()).collect())
    }

    fn bilevel(&self, c: &mut Constants, normal: &mut dyn FnMut(usize) -> Vec<f64>) -> Result<()> {
        let (width, lower, rounds) = (self.width, self.problem.lower(), self.rounds);
        let mut first = vec![T::ZERO; width + lower];
        for (from, at) in [(&self.start.x, 0), (&self.start.y, width)] {
            let row = Start::row(from, self.agent).unwrap_or_default();
            row.iter().zip(&mut first[at..]).for_each(|(v, to)| *to = T::of(*v));
        }
        // A step of length 1 into a random direction in x and in y.
        let (dx, dy) = (unit(normal(width)), unit(normal(lower)));
        let second: Vec<T> =
            first.iter().zip(dx.iter().chain(&dy)).map(|(p, d)| T::of(p.f64() + d)).collect();
        let f: &Gradient<'_, T> = &|p: &[T]| self.whole(p, false);
        let g: &Gradient<'_, T> = &|p: &[T]| self.whole(p, true);
        for point in [&first, &second] {
            let in_y: &Gradient<'_, T> = &|y: &[T]| {
                let p: Vec<T> = point[..width].iter().chain(y).copied().collect();
                Ok(self.split(&p, true)?.1.iter().map(|v| v.f64()).collect())
            };
            let of_f = self.split(point, false)?.1;
            c.l_f0 = c.l_f0.max(norm(&of_f.iter().map(|v| v.f64()).collect::<Vec<_>>()));
            c.l_f1 = c.l_f1.max(largest(f, point, normal(width + lower), rounds)?.0);
            c.l_g1 = c.l_g1.max(largest(g, point, normal(width + lower), rounds)?.0);
            let (curvature, _) = largest(in_y, &point[width..], normal(lower), rounds)?;
            c.g_curvature = c.g_curvature.max(curvature);
            // The smallest curvature: power iteration on (curvature − H).
            let mut v = unit(normal(lower));
            let mut left = 0.0;
            for _ in 0..rounds {
                let h = product(in_y, &point[width..], &v)?;
                let next: Vec<f64> = v.iter().zip(&h).map(|(v, h)| curvature * v - h).collect();
                left = v.iter().zip(&next).map(|(a, b)| a * b).sum();
                v = unit(next);
            }
            c.mu = c.mu.min(curvature - left);
        }
        for (gradient, to) in [(f, &mut c.l_f2), (g, &mut c.l_g2)] {
            let apart = first.iter().zip(&second).map(|(a, b)| a.f64() - b.f64());
            let distance = norm(&apart.collect::<Vec<_>>());
            let v = largest(gradient, &first, normal(width + lower), rounds)?.1;
            for v in [v, unit(normal(width + lower))] {
                let (here, there) = (product(gradient, &first, &v)?, product(gradient, &second, &v)?);
                let change: Vec<f64> = here.iter().zip(there).map(|(a, b)| a - b).collect();
                *to = to.max(norm(&change) / distance);
            }
        }
        Ok(())
    }

    fn single(&self, c: &mut Constants, normal: &mut dyn FnMut(usize) -> Vec<f64>) -> Result<()> {
        let Some(single) = self.problem.single_level() else { return Ok(()) };
        let width = single.width();
        let shape = Upper::Shared(width);
        let gradient: &Gradient<'_, T> = &|p: &[T]| {
            let mut x: Stack<T, 1> = Stack::zeros(1, &shape, &[]);
            x.row_mut(0)[0].copy_from_slice(p);
            let mut d = x.clone();
            single.gradients(At { k: 0, owned: &[self.agent], threads: &Threads::one() }, &x, &mut d)?;
            Ok(d.row(0)[0].iter().map(|v| v.f64()).collect())
        };
        let mut x = vec![T::ZERO; width];
        let row = Start::row(single.start_from(self.start), self.agent).unwrap_or_default();
        row.iter().zip(&mut x).for_each(|(v, to)| *to = T::of(*v));
        let l = largest(gradient, &x, normal(width), self.rounds)?.0;
        c.l_single = Some(c.l_single.unwrap_or(0.0).max(l));
        Ok(())
    }
}

fn norm(v: &[f64]) -> f64 {
    v.iter().map(|v| v * v).sum::<f64>().sqrt()
}

fn unit(v: Vec<f64>) -> Vec<f64> {
    let size = norm(&v);
    if size > 0.0 { v.into_iter().map(|v| v / size).collect() } else { v }
}

/// The product of the gradient's derivative with a unit vector, by a central difference.
fn product<T: Real>(gradient: &Gradient<'_, T>, at: &[T], v: &[f64]) -> Result<Vec<f64>> {
    // The third root of the type's rounding balances rounding and curvature.
    let eps = if size_of::<T>() == 4 { 5e-3 } else { 1e-5 }
        * (1.0 + norm(&at.iter().map(|a| a.f64()).collect::<Vec<_>>()) / (at.len() as f64).sqrt());
    let moved =
        |sign: f64| at.iter().zip(v).map(|(a, v)| T::of(a.f64() + sign * eps * v)).collect::<Vec<T>>();
    let (plus, minus) = (gradient(&moved(1.0))?, gradient(&moved(-1.0))?);
    Ok(plus.iter().zip(&minus).map(|(p, m)| (p - m) / (2.0 * eps)).collect())
}

/// The largest curvature (in size) of a function and its direction, by power iteration.
fn largest<T: Real>(
    gradient: &Gradient<'_, T>,
    at: &[T],
    start: Vec<f64>,
    rounds: usize,
) -> Result<(f64, Vec<f64>)> {
    let (mut v, mut size) = (unit(start), 0.0);
    for _ in 0..rounds {
        let next = product(gradient, at, &v)?;
        size = norm(&next);
        if size == 0.0 || !size.is_finite() {
            break;
        }
        v = unit(next);
    }
    Ok((size, v))
}
