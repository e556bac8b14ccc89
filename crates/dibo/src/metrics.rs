//! What is measured along a run: on the problem's side and on the network's, never inside an algorithm.
use crate::algorithm::{State, View};
use crate::problem::Bilevel;
use crate::rows::Real;

/// The mean over agents of the variable called `name`; `None` if the state has no such variable or it is private.
pub fn mean<T: Real>(state: &mut dyn State<T>, name: &str) -> Option<Vec<f64>> {
    state.views().iter().find(|v| v.name == name).and_then(View::mean)
}

/// (1/n) Σ ‖v_i − v̄‖².
fn consensus_error<T: Real>(view: &View<'_, T>, mean: &[f64]) -> f64 {
    let square = |i: usize| view.row(i).iter().zip(mean).map(|(v, m)| (v.f64() - m) * (v.f64() - m)).sum::<f64>();
    (0..view.rows.count()).map(square).sum::<f64>() / view.rows.count() as f64
}

/// ‖Σt − Σd‖ and Σ‖d_i‖ of one tracker and its direction.
fn tracking_gap<T: Real>(t: &View<'_, T>, d: &View<'_, T>) -> (f64, f64) {
    let width = t.columns.as_ref().map_or(t.rows.width(), |c| c.len());
    let (mut gap, mut size) = (vec![0.0; width], 0.0);
    for i in 0..t.rows.count() {
        gap.iter_mut().zip(t.row(i)).zip(d.row(i)).for_each(|((g, t), d)| *g += t.f64() - d.f64());
        size += d.row(i).iter().map(|d| d.f64() * d.f64()).sum::<f64>().sqrt();
    }
    (gap.iter().map(|g| g * g).sum::<f64>().sqrt(), size)
}

/// One evaluation: names with values.
pub type Values = Vec<(&'static str, f64)>;

/// Everything that can be said of a state now: the problem's metrics at the agents' mean, the consensus error of each decision
/// variable and the relative gap |Σt − Σd| / Σ‖d‖.
pub fn evaluate<T: Real>(problem: &dyn Bilevel<T>, views: &[View<'_, T>]) -> Values {
    let find = |name: &str| views.iter().find(|v| v.name == name);
    let mut values = problem.state_metrics(views);
    for (name, label) in [("x", "consensus_x"), ("y", "consensus_y"), ("z", "consensus_z")] {
        // A private variable has no consensus to reach.
        if let Some((view, mean)) = find(name).filter(|v| v.columns.is_some()).and_then(|v| Some((v, v.mean()?))) {
            values.push((label, consensus_error(view, &mean)));
        }
    }
    let pairs = [("tx", "dx"), ("ty", "dy"), ("tz", "dz"), ("tv", "dv")];
    let gaps: Vec<_> = pairs.iter().filter_map(|(t, d)| Some(tracking_gap(find(t)?, find(d)?))).collect();
    if !gaps.is_empty() {
        let (gap, size) = gaps.iter().fold((0.0, 0.0), |(a, b), (g, s)| (a + g, b + s));
        values.push(("tracking_gap", if gap == 0.0 { 0.0 } else { gap / size }));
    }
    values
}
