//! BENCH and BOME: numbers that others have published, beside ours.
use super::bounds::{BENCH_POINTS, BOME_POINTS};
use super::learning::{ACCURACY, last};
use dibo_report::judge::{Judged, Margin, Run, list};

/// Ours beside theirs: what, ours, theirs from and to.
type Pair = (String, f64, (f64, f64));

/// Distance of a number from a range; infinite for what is no number.
fn off(ours: f64, (low, high): (f64, f64)) -> f64 {
    if ours.is_nan() { f64::INFINITY } else { (low - ours).max(ours - high).max(0.0) }
}

/// The metric at the end of a series' runs; NaN where one diverged.
fn end(run: &Run<'_>, series: usize, metric: &str) -> f64 {
    if run.failed(series) { f64::NAN } else { last(run, series, metric) }
}

fn judge(pairs: &[Pair], within: f64, reading: &str) -> Judged {
    if pairs.is_empty() {
        return Err("none of the published settings was run".into());
    }
    let range = |(low, high): (f64, f64)| {
        if low == high { format!("{low:.2}") } else { format!("{low:.1} to {high:.1}") }
    };
    let text = list(pairs.iter().map(|(what, ours, theirs)| match ours.is_nan() {
        true => format!("{what}: ours has no end, theirs {} %", range(*theirs)),
        false => format!("{what}: ours {ours:.2} %, theirs {} %", range(*theirs)),
    }));
    let margin =
        |(what, ours, theirs): &Pair| Margin::new(what.clone(), within - off(*ours, *theirs)).unit("points");
    Ok((pairs.iter().map(margin).collect(), text, format!("within {within} points; {reading}")))
}

/// benchmark_bilevel's test errors of MNIST cleaning, by the probability that a label is redrawn.
const BENCH: [(f64, (f64, f64)); 3] = [(0.5, (13.6, 13.6)), (0.7, (14.3, 14.5)), (0.9, (17.1, 17.1))];

/// benchmark_bilevel's published errors.
pub fn bench(run: &Run<'_>) -> Judged {
    let mut pairs = Vec::new();
    for (p, theirs) in BENCH {
        for i in
            run.series(|i| run.number(i, "problem.cr") == Some(p) && run.text(i, "problem.data") == "mnist")
        {
            pairs.push((format!("p={p}"), 100.0 - end(run, i, "test_accuracy_z"), theirs));
        }
    }
    judge(&pairs, BENCH_POINTS, "test error of z at the end")
}

/// BOME's test accuracies: data, noisy + validation, validation only, clean + validation.
const BOME: [(&str, [f64; 3]); 2] =
    [("mnist", [83.99, 91.06, 92.52]), ("fashion-mnist", [81.71, 82.38, 84.47])];

/// BOME's published linear baselines.
pub fn bome(run: &Run<'_>) -> Judged {
    let mut pairs = Vec::new();
    for (data, theirs) in BOME {
        let names = ["noisy + validation", "validation only", "clean + validation"];
        for ((name, (on, cr)), theirs) in
            names.iter().zip([("both", 0.5), ("validation", 0.5), ("both", 0.0)]).zip(theirs)
        {
            let wanted = |i: usize| {
                run.text(i, "problem.data") == data
                    && run.text(i, "algorithm.train_on") == on
                    && run.number(i, "problem.cr") == Some(cr)
            };
            for i in run.series(wanted) {
                pairs.push((format!("{data}, {name}"), end(run, i, ACCURACY), (theirs, theirs)));
            }
        }
    }
    judge(
        &pairs,
        BOME_POINTS,
        "mean test accuracy at the end over seeds; theirs at the smallest loss on samples left over",
    )
}
