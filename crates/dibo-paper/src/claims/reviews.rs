//! B1 to B3: reviews with wrong labels.
use super::bounds::*;
use super::learning::{ACCURACY, baselines, best, chosen, corrupt, fabs, rates};
use dibo_report::judge::{Judged, Margin, Run, list};

/// FAB against the best baseline wherever both were run.
pub fn b1(run: &Run<'_>) -> Judged {
    let (mut margins, mut texts) = (Vec::new(), Vec::new());
    for cell in run.cells() {
        let of = |all: Vec<usize>| all.into_iter().filter(|i| cell.series.contains(i)).collect::<Vec<_>>();
        let (ours, others) = (of(fabs(run, true)), of(baselines(run)));
        if ours.is_empty() || others.is_empty() {
            continue;
        }
        let (Some((fab, accuracy)), Some((rival, there))) =
            (chosen(run, ours.into_iter()), best(run, others.into_iter()))
        else {
            margins.push(Margin::fact(cell.name.clone(), false));
            continue;
        };
        margins.push(Margin::new(cell.name.clone(), accuracy - there).unit("points"));
        let names = (run.name(fab), run.name(rival));
        let text = format!("{} {} {accuracy:.2} %, {} {there:.2} %", cell.name, names.0, names.1);
        texts.push(text.trim().to_string());
    }
    if margins.is_empty() {
        return Err("FAB and a baseline were not run side by side".into());
    }
    let reading = "mean test accuracy at the end; FAB with the setting that has the least validation loss, \
        against the best baseline of the same setting";
    Ok((margins, list(texts), reading.into()))
}

/// The first evaluations, and how much the accuracy goes up and down.
pub fn b2(run: &Run<'_>) -> Judged {
    let all = run.series(|i| !run.curve(i, "iteration", ACCURACY).is_empty());
    let first = |i: usize| run.curve(i, "iteration", ACCURACY)[0].y;
    // What it loses between evaluations: 0 for a curve that only rises.
    let falls = |i: usize| {
        let curve = run.curve(i, "iteration", ACCURACY);
        curve.windows(2).map(|w| (w[0].y - w[1].y).max(0.0)).sum::<f64>()
    };
    if all.is_empty() {
        return Err("there are no accuracy curves".into());
    }
    let least = |of: &dyn Fn(usize) -> f64| all.iter().map(|i| of(*i)).fold(f64::INFINITY, f64::min);
    let most = all.iter().map(|i| first(*i)).fold(f64::NEG_INFINITY, f64::max);
    let margins = vec![
        Margin::new("“starts near 0 %”", NEAR_ZERO - most).unit("points"),
        Margin::new("“oscillates”", least(&falls) - PEAK_SAME).unit("points"),
    ];
    let number = format!("first accuracies {:.1} to {most:.1} %", least(&first));
    let reading = "test accuracy of the averaged model at the first evaluation, and what it loses between \
        evaluations in all, more than a point";
    Ok((margins, number, reading.into()))
}

/// Who reaches a level first, at small and at large corruption rates.
pub fn b3(run: &Run<'_>) -> Judged {
    let time = |i: usize| {
        let curve = run.curve(i, "seconds", ACCURACY);
        let reached = curve.iter().find(|p| p.y >= REVIEWS_LEVEL && !run.failed(i));
        reached.map_or(f64::INFINITY, |p| p.x)
    };
    let (mut margins, mut texts) = (Vec::new(), Vec::new());
    for cr in rates(run)? {
        let here = |i: &usize| corrupt(run, *i, cr);
        let least = |all: Vec<usize>| all.into_iter().filter(here).map(time).fold(f64::INFINITY, f64::min);
        let (fab, rival) = (least(fabs(run, true)), least(baselines(run)));
        if fab.is_infinite() && rival.is_infinite() {
            return Err(format!("at cr = {cr} nobody came to {REVIEWS_LEVEL} %"));
        }
        let small = cr <= 0.2;
        let (ahead, behind) = if small { (rival, fab) } else { (fab, rival) };
        margins.push(Margin::ratio(format!("cr = {cr}"), ahead, behind));
        texts.push(format!("cr={cr}: FAB {fab:.0} s, the fastest baseline {rival:.0} s"));
    }
    if margins.len() < 2 {
        return Err("one corruption rate alone says nothing about growth".into());
    }
    let reading = format!(
        "seconds to a test accuracy of {REVIEWS_LEVEL} %: the baselines first up to cr = 0.2, FAB beyond"
    );
    Ok((margins, list(texts), reading))
}
