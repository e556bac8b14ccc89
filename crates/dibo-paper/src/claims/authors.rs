//! S1 to S5 and D1 to D3: what SPARKLE's and D-SOBA's authors say of their methods, on tasks like theirs.
use super::bounds::MIXED_SAME;
use super::learning::{ACCURACY, corrupt, last, rates};
use dibo_report::judge::{Judged, Margin, Run, list};
use dibo_report::report::words::number;
use dibo_report::results::RunRecord;

const ERROR: &str = "relative_error";

/// The methods that SPARKLE's authors find best.
const BEST: [&str; 2] = ["sparkle-ed", "sparkle-extra"];

/// The cases of an experiment, in order of appearance.
fn cases<'a>(run: &'a Run<'_>) -> Vec<&'a str> {
    let mut all: Vec<&str> = Vec::new();
    for i in run.series(|_| true) {
        let case = run.text(i, "algorithm.case");
        if !all.contains(&case) {
            all.push(case);
        }
    }
    all
}

/// These methods' series in one place, in their order; none where one of them was not run there.
fn all_of(run: &Run<'_>, names: &[&str], here: impl Fn(usize) -> bool) -> Option<Vec<usize>> {
    names.iter().map(|name| run.of(name).into_iter().find(|i| here(*i))).collect()
}

/// Whether every one of ours ends nearer the solution than each of theirs, case by case.
fn nearer(run: &Run<'_>, ours: &[&str], theirs: &[&str]) -> Judged {
    let (mut margins, mut texts) = (Vec::new(), Vec::new());
    for case in cases(run) {
        let here = |i: usize| run.text(i, "algorithm.case") == case;
        let (Some(ours), Some(theirs)) = (all_of(run, ours, here), all_of(run, theirs, here)) else {
            continue;
        };
        let sound = !ours.iter().any(|i| run.failed(*i));
        let worst = ours.iter().map(|i| run.end(*i, ERROR)).fold(0.0, f64::max);
        for rival in &theirs {
            let what = format!("{case} against {}", run.name(*rival)).trim().to_string();
            margins.push(Margin::ratio(what, worst, run.end(*rival, ERROR)).only_if(sound));
        }
        let each = |i: &usize| format!("{} {}", run.name(*i), number(run.end(*i, ERROR)));
        texts.push(format!("{case}: {}", list(ours.iter().chain(&theirs).map(each))).trim().to_string());
    }
    if margins.is_empty() {
        return Err(format!("{} were nowhere run together", [ours, theirs].concat().join(", ")));
    }
    let reading = "mean relative error over the last tenth of the run, all after as many iterations; of \
        several praised methods the worst counts. Steps are tuned for each method and place";
    Ok((margins, texts.join("; "), reading.into()))
}

/// ED and EXTRA against gradient tracking and no correction.
pub fn s1(run: &Run<'_>) -> Judged {
    nearer(run, &BEST, &["sparkle-gt", "d-soba"])
}

/// ED for y and z with gradient tracking for x, against gradient tracking for all.
pub fn s2(run: &Run<'_>) -> Judged {
    nearer(run, &["sparkle-ed-gt"], &["sparkle-gt"])
}

/// ED and EXTRA against others' methods.
pub fn s3(run: &Run<'_>) -> Judged {
    nearer(run, &BEST, &["mdbo", "sldbo"])
}

/// Gradients and products with second derivatives of a run.
fn work(record: &RunRecord) -> f64 {
    (record.gradients + record.products) as f64
}

/// What two series have come to, in the last tenth of the way, when both have done as much work as the lazier
/// one does in all.
fn at_equal_work(run: &Run<'_>, pair: [usize; 2], metric: &str) -> [f64; 2] {
    let unit = |i: usize| run.mean(i, |record| work(record) / record.iterations.max(1) as f64);
    let each = pair.map(|i| (run.curve(i, "iteration", metric), unit(i)));
    let whole = each.iter().map(|(curve, unit)| curve.last().map_or(0.0, |p| p.x * unit));
    // A millionth more, so that rounding takes no look away.
    let budget = whole.fold(f64::INFINITY, f64::min) * (1.0 + 1e-6);
    each.map(|(curve, unit)| {
        let within: Vec<_> = curve.iter().take_while(|p| p.x * unit <= budget).collect();
        let from = within.last().map_or(0.0, |p| 0.9 * p.x);
        let tail: Vec<f64> = within.iter().filter(|p| p.x >= from).map(|p| p.y).collect();
        tail.iter().sum::<f64>() / tail.len() as f64
    })
}

/// Whether every one of ours is more accurate than each of theirs after as much work, rate by rate.
fn above(run: &Run<'_>, ours: &[&str], theirs: &[&str]) -> Judged {
    let (mut margins, mut texts) = (Vec::new(), Vec::new());
    for cr in rates(run)? {
        let here = |i: usize| corrupt(run, i, cr);
        let (Some(ours), Some(theirs)) = (all_of(run, ours, here), all_of(run, theirs, here)) else {
            continue;
        };
        let sound = !ours.iter().any(|i| run.failed(*i));
        for rival in theirs {
            let pairs = ours.iter().map(|i| (*i, at_equal_work(run, [*i, rival], ACCURACY)));
            let lead = |pair: &(usize, [f64; 2])| pair.1[0] - pair.1[1];
            let Some((weakest, [ahead, behind])) = pairs.min_by(|a, b| lead(a).total_cmp(&lead(b))) else {
                continue;
            };
            let points = if run.failed(rival) { f64::INFINITY } else { ahead - behind };
            let what = format!("cr = {cr} against {}", run.name(rival));
            margins.push(Margin::new(what, points).unit("points").only_if(sound));
            let (name, other) = (run.name(weakest), run.name(rival));
            texts.push(format!("cr={cr}: {name} {ahead:.2} %, {other} {behind:.2} %"));
        }
    }
    if margins.is_empty() {
        return Err(format!("{} were nowhere run together", [ours, theirs].concat().join(", ")));
    }
    let reading = "mean test accuracy of the averaged model in the last tenth of the way to as many \
        gradients and products with second derivatives as the lazier of two methods computes in all; of \
        several praised methods the weakest counts. Steps are tuned for each method";
    Ok((margins, list(texts), reading.into()))
}

/// ED and EXTRA against D-SOBA and others' methods.
pub fn s4(run: &Run<'_>) -> Judged {
    above(run, &BEST, &["d-soba", "ma-dsbo", "mdbo"])
}

/// D-SOBA against others' methods.
pub fn d3(run: &Run<'_>) -> Judged {
    above(run, &["d-soba"], &["ma-dsbo", "mdbo"])
}

/// The mixed method against ED for all. A sample's weight belongs to one agent here: no x is mixed.
pub fn s5(run: &Run<'_>) -> Judged {
    let (mut margins, mut texts) = (Vec::new(), Vec::new());
    for cr in rates(run)? {
        let here = |i: usize| corrupt(run, i, cr);
        let Some(both) = all_of(run, &["sparkle-ed-gt", "sparkle-ed"], here) else { continue };
        let [mixed, plain] = [both[0], both[1]].map(|i| last(run, i, ACCURACY));
        let sound = !both.iter().any(|i| run.failed(*i));
        let margin = Margin::new(format!("cr = {cr}"), MIXED_SAME - (mixed - plain).abs());
        margins.push(margin.unit("points").only_if(sound).by_construction());
        texts.push(format!("cr={cr}: mixed {mixed:.2} %, ED alone {plain:.2} %"));
    }
    if margins.is_empty() {
        return Err("SPARKLE-ED-GT and SPARKLE-ED were nowhere run together".into());
    }
    let reading = "mean test accuracy at the end. The two differ in how x is mixed, and here a sample's \
        weight belongs to the agent that has the sample: no x is mixed, and both are one method";
    Ok((margins, list(texts), reading.into()))
}

/// D-SOBA over denser networks, and where agents are more alike.
pub fn d1(run: &Run<'_>) -> Judged {
    let all = run.of("d-soba");
    let tables = |i: usize| run.number(i, "problem.feature_patterns").unwrap_or(1.0);
    let graph = |i: usize| run.text(i, "graph.kind");
    let pairs = all.iter().flat_map(|a| all.iter().map(move |b| (*a, *b)));
    let pairs = pairs.filter(|(a, b)| run.number(*a, "problem.agents") == run.number(*b, "problem.agents"));
    let (mut margins, mut texts) = (Vec::new(), Vec::new());
    for (a, b) in pairs {
        let what = if tables(a) == tables(b) && graph(a) == "complete" && graph(b) == "ring" {
            "a better connected network"
        } else if graph(a) == graph(b) && tables(a) < tables(b) {
            "more alike agents"
        } else {
            continue;
        };
        let [near, far] = [a, b].map(|i| run.end(i, ERROR));
        let sound = !run.failed(a) && !run.failed(b);
        margins.push(Margin::ratio(what, near, far).only_if(sound));
        texts.push(format!("{what}: {} against {}", number(near), number(far)));
    }
    if margins.is_empty() {
        return Err("D-SOBA was not run over two networks, or with agents alike and unlike".into());
    }
    let reading = "D-SOBA's mean relative error over the last tenth of the run: all links against a ring, \
        and agents with the same features against features of their own; steps are tuned for each";
    Ok((margins, list(texts), reading.into()))
}

/// D-SOBA against the inner loops of MA-DSBO.
pub fn d2(run: &Run<'_>) -> Judged {
    let (mut margins, mut texts) = (Vec::new(), Vec::new());
    for case in cases(run) {
        let here = |i: usize| run.text(i, "algorithm.case") == case;
        let Some(both) = all_of(run, &["d-soba", "ma-dsbo"], here) else { continue };
        let [ours, theirs] = [both[0], both[1]];
        let [near, far] = at_equal_work(run, [ours, theirs], ERROR);
        let far = if run.failed(theirs) { f64::INFINITY } else { far };
        margins.push(Margin::ratio(case, near, far).only_if(!run.failed(ours)));
        texts.push(format!("{case}: D-SOBA {}, MA-DSBO {}", number(near), number(far)).trim().to_string());
    }
    if margins.is_empty() {
        return Err("D-SOBA and MA-DSBO were nowhere run together".into());
    }
    let reading = "mean relative error in the last tenth of the way to as many gradients and products with \
        second derivatives as the lazier of the two computes in all. Steps are tuned for each method and \
        place";
    Ok((margins, texts.join("; "), reading.into()))
}
