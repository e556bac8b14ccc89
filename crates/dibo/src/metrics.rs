//! What is measured along a run: on the problem's side and on the network's, never inside an algorithm.
use crate::algorithm::{State, View};
use crate::error::Result;
pub use crate::problem::Values;
use crate::problem::{Bilevel, Metric};
use crate::rows::Real;

/// The mean over agents of the variable called `name`; `None` if the state has no such variable or it is
/// private.
pub fn mean<T: Real>(state: &mut dyn State<T>, name: &str) -> Option<Vec<f64>> {
    state.views().iter().find(|v| v.name == name).and_then(View::mean)
}

/// What is reported of every run, whatever the problem.
pub const ALWAYS: [Metric; 4] = [
    Metric::lower("consensus_x", "consensus error of x"),
    Metric::lower("consensus_y", "consensus error of y"),
    Metric::lower("consensus_z", "consensus error of z"),
    Metric::lower("tracking_gap", "tracking gap |Σt − Σd| / Σ‖d‖"),
];

/// Everything that can be said of a state now: the problem's metrics at the agents' mean, the consensus error
/// of each decision variable and the relative gap |Σt − Σd| / Σ‖d‖.
pub fn evaluate<T: Real>(problem: &dyn Bilevel<T>, views: &[View<'_, T>]) -> Result<Values> {
    let everybody: Vec<usize> = (0..problem.agents()).collect();
    let values = match problem.own_sums(&everybody, views)? {
        Some(sums) => problem.metrics_of_sums(&added(sums)),
        None => problem.state_metrics(views)?,
    };
    Ok(with_general(values, views))
}

/// The sums of all agents, added in their order.
pub fn added(sums: impl IntoIterator<Item = Vec<f64>>) -> Vec<f64> {
    let mut all = Vec::new();
    for sums in sums {
        all.resize(sums.len().max(all.len()), 0.0);
        all.iter_mut().zip(sums).for_each(|(a, s)| *a += s);
    }
    all
}

/// The problem's metrics, and what is reported whatever the problem.
pub fn with_general<T: Real>(mut values: Values, views: &[View<'_, T>]) -> Values {
    let find = |name: &str| views.iter().find(|v| v.name == name);
    for (name, label) in [("x", "consensus_x"), ("y", "consensus_y"), ("z", "consensus_z")] {
        // A private variable has no consensus to reach.
        if let Some((view, mean)) =
            find(name).filter(|v| v.columns.is_some()).and_then(|v| Some((v, v.mean()?)))
        {
            values.push((label, view.consensus_error(&mean)));
        }
    }
    let pairs = [("tx", "dx"), ("ty", "dy"), ("tz", "dz"), ("tv", "dv")];
    let gaps: Vec<_> = pairs.iter().filter_map(|(t, d)| Some(find(t)?.gap(find(d)?))).collect();
    if !gaps.is_empty() {
        let (gap, size) = gaps.iter().fold((0.0, 0.0), |(a, b), (g, s)| (a + g, b + s));
        values.push(("tracking_gap", if gap == 0.0 { 0.0 } else { gap / size }));
    }
    values
}
