//! W1 and W2: FAB's sample weights against what anybody would try first.
use super::learning::{ACCURACY, best, fabs, last};
use dibo_report::judge::{Judged, Margin, Run, list};

/// Series that clean or avoid wrong labels without weights: validation or checked samples alone, weights
/// frozen at ½, samples kept in rounds, a noise matrix.
fn simple(run: &Run<'_>) -> Vec<usize> {
    let ways = ["clean-only", "rounds", "noisy-rounds", "em", "joint"];
    let way = |i: usize| ways.contains(&run.text(i, "algorithm.way"));
    let mut all = run.series(|i| run.text(i, "algorithm.train_on") == "validation" || way(i));
    all.extend(fabs(run, false));
    all
}

/// Whether FAB's weights are better than every simple way of the same setting; `ours` and `theirs` measure
/// one series, `unit` and `digits` say how the numbers are written.
fn above(
    run: &Run<'_>,
    ours: impl Fn(usize) -> f64,
    theirs: impl Fn(usize) -> f64,
    (unit, digits): (&'static str, usize),
    reading: &str,
) -> Judged {
    let (mut margins, mut texts) = (Vec::new(), Vec::new());
    for cell in run.cells() {
        let here = |all: Vec<usize>| all.into_iter().filter(|i| cell.series.contains(i)).collect::<Vec<_>>();
        let (mut fab, rivals) = (here(fabs(run, true)), here(simple(run)));
        fab.retain(|i| ["", "weights"].contains(&run.text(*i, "algorithm.way")));
        let rivals: Vec<usize> = rivals.into_iter().filter(|i| !theirs(*i).is_nan()).collect();
        if fab.is_empty() || rivals.is_empty() {
            continue;
        }
        let Some((fab, _)) = best(run, fab.into_iter()) else {
            margins.push(Margin::fact(cell.name.clone(), false));
            continue;
        };
        let mut text = format!("{} {} {:.digits$}", cell.name, run.name(fab), ours(fab));
        for rival in rivals {
            let (name, there) = (run.name(rival), theirs(rival));
            let lead = if run.failed(rival) { f64::INFINITY } else { ours(fab) - there };
            let what = format!("{} against {name}", cell.name).trim().to_string();
            margins.push(Margin::new(what, lead).unit(unit));
            text += &format!(", {name} {there:.digits$}");
        }
        texts.push(text.trim().to_string());
    }
    if margins.is_empty() {
        return Err("FAB and a simple way were not run side by side".into());
    }
    Ok((margins, list(texts), reading.into()))
}

/// By test accuracy.
pub fn w1(run: &Run<'_>) -> Judged {
    let accuracy = |i: usize| last(run, i, ACCURACY);
    let reading = "mean test accuracy at the end; of FAB's settings the best one counts";
    above(run, accuracy, accuracy, ("points", 2), reading)
}

/// By the area under the ROC curve.
pub fn w2(run: &Run<'_>) -> Judged {
    let weights = |i: usize| last(run, i, "auc");
    // A model gives each label a probability; where the problem has no weights that is its only score.
    let model = |i: usize| match last(run, i, "auc_model") {
        score if score.is_nan() => weights(i),
        score => score,
    };
    let reading = "area under the ROC curve at the end. A label counts as wrong that has a low weight under \
        FAB (problems of kind labels: a low probability under its model), a low probability under a simple \
        way's model; of FAB's settings the most accurate one counts";
    above(run, weights, model, ("of AUC", 4), reading)
}
