//! The quantities of the proof along a run: errors D and S, distances to the solution maps, the Lyapunov
//! functions Φ^(b) and Φ^(s), the penalty's bias; and the invariants that must hold whatever the steps are.
use super::graph::MixingConstants;
use super::steps::{Net, Reading, fab, fab_constants, single, single_weights};
use crate::error::Result;
use crate::mixing::{Mixing, Sequence};
use crate::problem::{Bilevel, Constants, penalty_gradient};
use crate::rows::{Real, View};
use std::collections::BTreeMap;

/// The steps of a tracked method at one iteration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Steps {
    /// FAB's: λ, the steps of x, y and z, and g's factor in the directions (λ as written, 1 normalised).
    Penalty {
        /// Penalty.
        lambda: f64,
        /// Steps of x, y and z.
        eta: [f64; 3],
        /// Factor of g.
        g: f64,
    },
    /// AB/Push-Pull's.
    Single(f64),
}

impl Steps {
    /// What trackers are multiplied with to be the theory's: those of the normalised form are λ times too
    /// small.
    fn tracker_scale(self) -> f64 {
        match self {
            Steps::Penalty { lambda, g, .. } => lambda / g,
            Steps::Single(_) => 1.0,
        }
    }

    /// The step of the variable with this place among `VARIABLES`, if the method has it.
    fn eta(self, index: usize) -> Option<f64> {
        match self {
            Steps::Penalty { eta, .. } => eta.get(index).copied(),
            Steps::Single(eta) => (index == 0).then_some(eta),
        }
    }
}

/// What one look at a state gives.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Quantities by name.
    pub values: Vec<(&'static str, f64)>,
    /// The invariant that does not hold, in words.
    pub broken: Option<String>,
}

/// Watches one run.
pub struct Observer {
    vectors: BTreeMap<usize, (Vec<f64>, Vec<f64>)>,
    net: Option<Net>,
    constants: Option<Constants>,
    before: Option<Before>,
    largest_direction: f64,
}

/// What the next look compares with.
struct Before {
    k: usize,
    lyapunov: Option<Lyapunov>,
    /// Where each averaged variable is to be one iteration later, and how large the numbers are that this
    /// comes from.
    next: Vec<(&'static str, Vec<f64>, f64)>,
}

/// The value of a proof's Lyapunov function.
#[derive(Clone, Copy)]
struct Lyapunov {
    value: f64,
    /// Whether the steps are inside the proved conditions.
    inside: bool,
    /// By how much it then falls in the next iteration, at least.
    fall: f64,
}

/// What all variables of one state give.
#[derive(Default)]
struct Measured {
    values: Vec<(&'static str, f64)>,
    broken: Option<String>,
    /// V_D and V_S: the errors D and S of all variables together.
    errors: [f64; 2],
    /// Averages by variable.
    hats: BTreeMap<&'static str, Vec<f64>>,
    /// As in [`Before`].
    next: Vec<(&'static str, Vec<f64>, f64)>,
}

impl Observer {
    /// Looks at iterations 0, `every`, 2·`every`, … up to `last`. The matrices must be stochastic.
    pub fn new(
        sequence: &Sequence,
        mixing: Option<&MixingConstants>,
        constants: Option<Constants>,
        every: usize,
        last: usize,
    ) -> Self {
        let net = mixing.map(|m| Net::new(sequence.agents(), m));
        Observer {
            vectors: vectors_at(sequence, every, last),
            net,
            constants,
            before: None,
            largest_direction: 0.0,
        }
    }

    /// One look.
    pub fn look<T: Real>(
        &mut self,
        k: usize,
        problem: &dyn Bilevel<T>,
        steps: Option<Steps>,
        views: &[View<'_, T>],
    ) -> Result<Seen> {
        let tolerance = if size_of::<T>() == 4 { 1e-3 } else { 1e-9 };
        let Some(measured) = self.measure(k, steps, views, tolerance) else { return Ok(Seen::default()) };
        let Measured { mut values, mut broken, errors, hats, next } = measured;
        values.extend([("V_D", errors[0]), ("V_S", errors[1])]);
        if let Some(largest) = self.dynamics_residual(k, &hats) {
            values.push(("averaged_dynamics", largest));
            if largest > tolerance {
                broken = Some(format!(
                    "at k = {k} the averages do not move as α_k says: residual {largest:.1e}. A^k is not \
                    row-stochastic, or rows were changed outside the iteration"
                ));
            }
        }
        let lyapunov = match steps {
            Some(Steps::Penalty { lambda, eta, g }) => {
                self.bilevel(problem, lambda, eta.map(|e| e * g / lambda), &hats, errors, &mut values)?
            }
            Some(Steps::Single(eta)) => self.single(problem, eta, &hats, errors),
            None => None,
        };
        if let Some(now) = lyapunov {
            values.push(("lyapunov", now.value));
            broken = broken.or_else(|| self.lyapunov_broken(k, now));
        }
        self.before = Some(Before { k, lyapunov, next });
        Ok(Seen { values, broken })
    }

    /// Averages and errors of all variables of a state, and whether the trackers still sum to the directions;
    /// nothing at iterations that are not looked at.
    fn measure<T: Real>(
        &mut self,
        k: usize,
        steps: Option<Steps>,
        views: &[View<'_, T>],
        tolerance: f64,
    ) -> Option<Measured> {
        let (alpha, beta) = self.vectors.get(&k)?;
        let following = self.vectors.get(&(k + 1)).map(|(alpha, _)| alpha);
        let find = |name: &str| views.iter().find(|v| v.name == name);
        let scale = steps.map_or(1.0, Steps::tracker_scale);
        let ones = vec![1.0; beta.len()];
        let mut measured = Measured::default();
        for (name, [t_name, d_name], [d_label, s_label], index) in VARIABLES {
            let Some(v) = find(name).filter(|v| v.columns.is_some()) else { continue };
            let hat = average(v, alpha);
            let d = decision_spread(v, alpha, &hat);
            measured.errors[0] += d;
            measured.values.push((d_label, d));
            if let (Some(t), Some(direction)) = (find(t_name), find(d_name)) {
                let total = average(t, &ones);
                let s = scale * scale * tracking_spread(t, beta, &total);
                measured.errors[1] += s;
                measured.values.push((s_label, s));
                let gap = tracking_gap(&total, direction, &ones, &mut self.largest_direction);
                if gap > tolerance * self.largest_direction {
                    measured.broken = Some(format!(
                        "at k = {k} the trackers {t_name} sum to something else than the directions \
                        {d_name}: relative gap {:.1e}. Weights were lost on the way: B^k is not \
                        column-stochastic, or a message is missing",
                        gap / self.largest_direction
                    ));
                }
                // x̂⁺ = x̂ − η Σ [α_{k+1}]_i t_i
                if let (Some(eta), Some(following)) = (steps.and_then(|s| s.eta(index)), following) {
                    let push = average(t, following);
                    let size = norm(hat.iter().copied()) + eta * norm(push.iter().copied());
                    let expected = hat.iter().zip(&push).map(|(h, p)| h - eta * p).collect();
                    measured.next.push((name, expected, size));
                }
            }
            measured.hats.insert(name, hat);
        }
        Some(measured)
    }

    /// How far the averages are from where the look one iteration earlier expected them, relative to the
    /// numbers that this came from; nothing if there was no such look.
    fn dynamics_residual(&self, k: usize, hats: &BTreeMap<&'static str, Vec<f64>>) -> Option<f64> {
        let before = self.before.as_ref().filter(|b| b.k + 1 == k)?;
        let mut largest = 0.0f64;
        for (name, expected, size) in &before.next {
            let residual = norm(expected.iter().zip(&hats[name]).map(|(e, h)| e - h));
            largest = largest.max(residual / size.max(f64::MIN_POSITIVE));
        }
        Some(largest)
    }

    /// Words, if the Lyapunov function fell by less than the proof says between two looks that were both
    /// inside its conditions; between looks that are further apart than an iteration it must not rise.
    fn lyapunov_broken(&self, k: usize, now: Lyapunov) -> Option<String> {
        let before = self.before.as_ref()?;
        let old = before.lyapunov.filter(|old| old.inside && now.inside)?;
        let fall = if before.k + 1 == k { old.fall } else { 0.0 };
        let missing = now.value - old.value + fall;
        (missing > 1e-9 * now.value.abs().max(1e-300)).then(|| {
            format!(
                "at k = {k} the Lyapunov function changed by {:.1e} although the steps are inside the \
                proved conditions, under which it falls by {fall:.1e} or more",
                now.value - old.value
            )
        })
    }

    /// Φ^(b), and whether the steps (of the written form) are inside the conditions.
    fn bilevel<T: Real>(
        &self,
        problem: &dyn Bilevel<T>,
        lambda: f64,
        eta: [f64; 3],
        hats: &BTreeMap<&'static str, Vec<f64>>,
        [v_d, v_s]: [f64; 2],
        values: &mut Vec<(&'static str, f64)>,
    ) -> Result<Option<Lyapunov>> {
        let (Some(forms), Some(x), Some(y), Some(z)) =
            (problem.closed_forms(), hats.get("x"), hats.get("y"), hats.get("z"))
        else {
            return Ok(None);
        };
        let distance = |a: &[f64], b: Vec<f64>| norm(a.iter().zip(b).map(|(a, b)| a - b));
        let (z_gap, y_gap) =
            (distance(z, forms.lower_solution(x)), distance(y, forms.penalty_lower_solution(x, lambda)));
        let exact = forms.hypergradient(x);
        let penalty = penalty_gradient(problem, forms, x, lambda)?;
        let bias = norm(penalty.iter().zip(&exact).map(|(p, h)| p - h));
        values.extend([
            ("z_gap", z_gap),
            ("y_gap", y_gap),
            ("hypergradient_weighted", norm(exact.into_iter())),
            ("penalty_bias", bias),
        ]);
        let (Some(net), Some(c)) = (&self.net, &self.constants) else { return Ok(None) };
        let k = fab_constants(c, net, Reading::Mended);
        let [first, second] = [eta[0] * lambda / eta[2] * k.c_b[0], eta[0] * lambda / eta[1] * k.c_b[1]];
        let value = forms.penalty_objective(x, lambda)
            + first * z_gap * z_gap
            + second * y_gap * y_gap
            + lambda * k.c_b[2] * net.n / net.alpha.0 * v_d
            + v_s / lambda;
        let inside = fab(c, net, lambda, eta, Reading::Mended).iter().all(|c| c.margin() >= 1.0);
        // The descent of Lemma step_size_condition.
        let fall = 0.25 * net.alpha.0 * net.beta.0 * eta[0] * norm(penalty.into_iter()).powi(2)
            + 0.2 * net.c * k.c_b[2] * lambda * net.n / net.alpha.0 * v_d;
        Ok(Some(Lyapunov { value, inside, fall }))
    }

    /// Φ^(s), and whether the step is inside the conditions.
    fn single<T: Real>(
        &self,
        problem: &dyn Bilevel<T>,
        eta: f64,
        hats: &BTreeMap<&'static str, Vec<f64>>,
        [d, s]: [f64; 2],
    ) -> Option<Lyapunov> {
        let value = problem.single_level().zip(hats.get("x")).and_then(|(single, x)| single.value(x));
        let l = self.constants.as_ref().and_then(|c| c.l_single);
        let (Some(value), Some(net), Some(l)) = (value, &self.net, l) else { return None };
        let [of_d, of_s] = single_weights(l, net);
        let value = value + of_d * net.n / net.alpha.0 * d + of_s * s;
        let inside = single(l, net, eta, Reading::Mended).iter().all(|c| c.margin() >= 1.0);
        Some(Lyapunov { value, inside, fall: 0.0 })
    }
}

/// A variable, its tracker and direction, the names of its errors, and which step is its.
type Variable = (&'static str, [&'static str; 2], [&'static str; 2], usize);

const VARIABLES: [Variable; 4] = [
    ("x", ["tx", "dx"], ["D_x", "S_x"], 0),
    ("y", ["ty", "dy"], ["D_y", "S_y"], 1),
    ("z", ["tz", "dz"], ["D_z", "S_z"], 2),
    ("v", ["tv", "dv"], ["D_v", "S_v"], 3),
];

/// α_k and β_k at the iterations that are looked at.
fn vectors_at(sequence: &Sequence, every: usize, last: usize) -> BTreeMap<usize, (Vec<f64>, Vec<f64>)> {
    let n = sequence.agents();
    let wanted = |k: usize| k.is_multiple_of(every) || k == last;
    let mut mixing = Mixing::<f64>::default();
    let (mut beta, mut alpha) = (vec![1.0 / n as f64; n], vec![1.0 / n as f64; n]);
    let mut all = BTreeMap::new();
    for k in 0..=last {
        if wanted(k) {
            all.insert(k, (Vec::new(), beta.clone()));
        }
        sequence.fill(k, &mut mixing);
        let mut next = vec![0.0; n];
        mixing.for_each_entry(|i, j, _, b| next[i] += b * beta[j]);
        beta = next;
    }
    for k in (0..last + 200).rev() {
        sequence.fill(k, &mut mixing);
        let mut back = vec![0.0; n];
        mixing.for_each_entry(|i, j, a, _| back[j] += alpha[i] * a);
        alpha = back;
        if let Some(at) = all.get_mut(&k) {
            at.0.clone_from(&alpha);
        }
    }
    all
}

fn norm(v: impl Iterator<Item = f64>) -> f64 {
    v.map(|v| v * v).sum::<f64>().sqrt()
}

/// How far the sum of the trackers is from the sum of the directions. The size of all directions, against
/// which rounding is judged, is entered into `largest`.
fn tracking_gap<T: Real>(total: &[f64], direction: &View<'_, T>, ones: &[f64], largest: &mut f64) -> f64 {
    let sum = average(direction, ones);
    let size: f64 = (0..direction.rows.count()).map(|i| norm(direction.row(i).iter().map(|d| d.f64()))).sum();
    *largest = largest.max(size);
    norm(total.iter().zip(&sum).map(|(t, d)| t - d))
}

/// Σ w_i v_i.
pub fn average<T: Real>(view: &View<'_, T>, weights: &[f64]) -> Vec<f64> {
    let mut sum = vec![0.0; view.row(0).len()];
    for (i, w) in weights.iter().enumerate() {
        sum.iter_mut().zip(view.row(i)).for_each(|(s, v)| *s += w * v.f64());
    }
    sum
}

/// D(v, α) = Σ α_i ‖v_i − v̂‖².
pub fn decision_spread<T: Real>(view: &View<'_, T>, alpha: &[f64], hat: &[f64]) -> f64 {
    let square =
        |i: usize| view.row(i).iter().zip(hat).map(|(v, h)| (v.f64() - h) * (v.f64() - h)).sum::<f64>();
    alpha.iter().enumerate().map(|(i, a)| a * square(i)).sum()
}

/// S(t, β) = Σ β_j ‖t_j/β_j − Σt‖².
pub fn tracking_spread<T: Real>(view: &View<'_, T>, beta: &[f64], total: &[f64]) -> f64 {
    let square = |j: usize, b: f64| {
        view.row(j).iter().zip(total).map(|(t, s)| (t.f64() / b - s) * (t.f64() / b - s)).sum::<f64>()
    };
    beta.iter().enumerate().map(|(j, b)| b * square(j, *b)).sum()
}
