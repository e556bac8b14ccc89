//! Every bound that a judge goes by, in one table, with its reason. They come from the paper's text or from
//! its own numbers, and T5's was set after a first run.

/// A bound: the claim, what is bounded, the number and why that number.
pub type Bound = (&'static str, &'static str, f64, &'static str);

macro_rules! bounds {
    ($($name:ident = $value:literal, $claim:literal, $what:literal, $why:literal;)*) => {
        $(#[doc = $what] pub const $name: f64 = $value;)*
        /// All bounds.
        pub const BOUNDS: &[Bound] = &[$(($claim, $what, $value, $why)),*];
    };
}

bounds! {
    TABLE_RMS = 0.2, "TABLE", "rms log error of the iteration counts",
        "the paper's table is one instance that it does not give; ours differ from their mean by more";
    TARGET = 0.01, "P2", "relative error that counts as recovered", "the table's own target";
    LINEAR_SPREAD = 1.25, "P1", "largest T/λ over the smallest",
        "the paper's own rows have 1.13; twice that spread";
    SLOWER = 1.5, "P3", "times the iterations that count as slow",
        "the paper's mildest row has 3.4; equal rows of its table differ by 1.27";
    ROBUST = 1.3, "P4", "largest T over the smallest", "the paper's own rows go from 3200 to 4060: 1.27";
    DROP = 0.7, "P8", "part of its start that the error falls to in the first fifth",
        "“sharp initial drop”: a third of the error within a fifth of the run";
    REST = 0.1, "P8", "relative change over the last quarter", "“stagnates”: a tenth in a quarter of the run";
    RISE = 1.2, "P8", "end over the lowest point",
        "what has risen by a fifth did not stagnate where it fell to";
    NEAR_ENOUGH = 0.1, "P10", "relative error to reach", "every ν reaches it before noise and bias count";
    FASTER = 1.02, "P10", "times fewer iterations that count as faster",
        "the grid of evaluations is 1 to 2 %";
    COINCIDE = 0.05, "P12", "largest relative gap of the curves", "“nearly identical”: within a line's width";
    BASELINES_REACH = 0.8, "P14", "relative error to reach",
        "what the slow baselines reach at all with many agents";
    WORSE = 1.01, "P15", "growth of the error that counts", "less than a per cent does not show in a figure";
    STALLED = 0.5, "P18", "relative error that counts as not converged",
        "half of the way to the solution is left";
    CLOSE_BY = 0.05, "P19", "relative error to reach", "below what the printed steps' noise leaves";
    BOUNDED_BY = 1.05, "P20", "times the other's error that still bounds it", "a line's width";
    BOUNDED_SHARE = 0.95, "P20", "share of the evaluations where it must", "one in twenty may be noise";
    FAB_STEP = 0.15, "P21", "step that FAB must bear", "the paper's number";
    PUSH_SUM_STEP = 0.01, "P21", "step that PushSum_FAB may bear at most",
        "the paper's 0.001, within ten times";
    TAU = 0.15, "H3", "τ to settle near", "the paper's number";
    TAU_NEAR = 0.05, "H3", "distance that counts as near", "the step of the paper's grid";
    TAU_STILL = 0.01, "H3", "movement over the second half that counts as settled", "a fifth of that";
    STRONGLY = 5.0, "C3", "points lost that count as strong", "what the paper's figures show to the eye";
    MEMORY_SAME = 0.05, "C5", "relative difference of the peak memory",
        "“hardly”: a line's width in the paper's bars";
    PEAK_SAME = 1.0, "C6", "points between the highest accuracies", "“hardly”: the paper's curves overlap";
    TWICE_NEAR = 0.2, "C11", "distance of the ratio from 2", "“about twice”: a tenth of it";
    SEPARATES = 0.9, "C12", "area under the ROC curve",
        "nine of ten pairs of a wrong and a right label in order";
    RATE_SLACK = 0.05, "T1 to T4", "of a fitted exponent",
        "the theorems are about all K, the fit is over a few";
    EXACT = 1e-10, "T5", "sum over a run of |Σt − Σd| / Σ‖d‖",
        "rounding of 1e-15 in each of some thousand iterations leaves 1e-12; one lost message makes 1e-3";
    GROWING_ERROR = 0.95, "G1", "times the best fixed penalty's error", "5 %: beyond the choice of a grid";
    GROWING_POINTS = 0.2, "G2", "points above the best fixed penalty", "beyond the test set's own error";
    BENCH_POINTS = 0.7, "BENCH", "points from the published error", "their seeds differ by that much";
    BOME_POINTS = 1.0, "BOME", "points from the published accuracy",
        "another optimiser and another stopping rule";
    MIXED_SAME = 1.0, "S5", "points between the accuracies", "“similar”: curves that overlap to the eye";
    NEAR_ZERO = 10.0, "B2", "accuracy in % that counts as near 0", "a fifth of what guessing gives";
    REVIEWS_LEVEL = 75.0, "B3", "accuracy in % to reach",
        "between guessing and the 82 to 85 that all end near";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bound_has_a_reason() {
        assert!(BOUNDS.iter().all(|(claim, what, value, why)| {
            !claim.is_empty() && !what.is_empty() && value.is_finite() && why.len() > 10
        }));
    }
}
