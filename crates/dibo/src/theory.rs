//! What can be said before a run: connectivity and weights of a graph sequence, and the step conditions found by experiment.
use crate::graph::{DiGraph, GraphSequence};
use crate::mixing::{Mixing, Sequence};

/// Facts about the first iterations of a sequence.
#[derive(Clone, Debug)]
pub struct GraphFacts {
    /// Mean number of links an iteration.
    pub links: f64,
    /// Smallest non-zero weight of A.
    pub a: f64,
    /// Smallest non-zero weight of B.
    pub b: f64,
    /// Which windows connect all agents, in words.
    pub connectivity: String,
}

/// Looks at iterations `0..iterations` (or one period, if that is shorter).
pub fn graph_facts(sequence: &Sequence, iterations: usize) -> GraphFacts {
    let last = sequence.period().map_or(iterations, |p| iterations.min(p)).max(1);
    let (mut links, mut a, mut b, mut apart, mut longest) = (0, f64::INFINITY, f64::INFINITY, 0, 0);
    for k in 0..last {
        let m: Mixing<f64> = sequence.at(k);
        let (ak, bk) = m.smallest();
        (a, b, links) = (a.min(ak), b.min(bk), links + m.graph.links());
        match m.graph.diameter() {
            Some(d) => longest = longest.max(d),
            None => apart += 1,
        }
    }
    let connectivity = if apart == 0 {
        format!("strongly connected at each of {last} iterations, diameter at most {longest}")
    } else {
        let window = smallest_window(sequence.graphs(), last);
        let window = window.map_or("no window connects all agents".to_string(), |w| format!("connected over windows of {w}"));
        format!("not strongly connected at {apart} of {last} iterations; {window}")
    };
    GraphFacts { links: links as f64 / last as f64, a, b, connectivity }
}

/// The smallest C such that all whole windows `[mC, (m+1)C)` inside `0..last` are strongly connected.
pub fn smallest_window(graphs: &dyn GraphSequence, last: usize) -> Option<usize> {
    let all: Vec<DiGraph> = (0..last).map(|k| graphs.at(k)).collect();
    let connected = |w: &[DiGraph]| w.iter().skip(1).fold(w[0].clone(), |u, g| u.union(g)).unreachable_pair().is_none();
    (1..=last).find(|c| all.chunks_exact(*c).all(connected))
}

/// What is known to go wrong with the steps `eta` of x, y and z. `g` is g's factor in the directions (λ as written, 1 normalised), `sigma_max` is the largest singular
/// value of the lower solution's Jacobian, `curvature` g's largest second derivative in y.
///
/// When y and z lag behind x, (I + ηx(1/ηy − 1/ηz)·M'M) dx/dk = −(ηx/λ)·∇F*: with ηx(1/ηz − 1/ηy)·σ_max² > 1 the matrix turns negative.
pub fn step_warnings([x, y, z]: [f64; 3], g: f64, sigma_max: f64, curvature: f64) -> Vec<String> {
    let mut warnings = Vec::new();
    let lag = x * (1.0 / z - 1.0 / y) * sigma_max * sigma_max;
    if lag > 1.0 {
        warnings.push(format!(
            "will diverge: eta_x·(1/eta_z − 1/eta_y)·σ_max² = {lag:.3} is above 1; raise eta_z to at least {:.4}",
            1.0 / (1.0 / y + 1.0 / (x * sigma_max * sigma_max))
        ));
    }
    for (name, eta) in [("eta_y", y), ("eta_z", z)] {
        let step = eta * g * curvature;
        if step >= 2.0 {
            warnings.push(format!(
                "will diverge: {name} times g's curvature is {step:.3}, at or above 2; {name} must be below {:.3e} here (or use penalty_form = \"normalised\")",
                2.0 / (g * curvature)
            ));
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Cycle, OnePeerExponential};

    #[test]
    fn the_table_s_divergent_rows_are_warned_of() {
        // σ_max² of the paper's instances is near 22.
        assert!(step_warnings([0.1; 3], 1.0, 4.7, 1.0).is_empty());
        assert!(step_warnings([0.1, 0.06, 0.1], 1.0, 4.7, 1.0).is_empty(), "slow, but it does not diverge");
        for eta in [[0.1, 0.12, 0.1], [0.1, 0.1, 0.08]] {
            assert_eq!(step_warnings(eta, 1.0, 4.7, 1.0).len(), 1);
        }
        assert_eq!(step_warnings([0.1; 3], 60.0, 4.7, 2.0).len(), 2);
    }

    #[test]
    fn facts_about_graphs() {
        let facts = graph_facts(&Sequence::uniform(Cycle::new(6, 0.0, 0)), 60);
        assert_eq!((facts.links, facts.a, facts.b), (6.0, 0.5, 0.5));
        assert!(facts.connectivity.contains("diameter at most 5"));
        assert_eq!(smallest_window(&OnePeerExponential::new(8), 12), Some(3));
    }
}
