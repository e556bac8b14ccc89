//! C1, C3, C9, C11, C12 and H1 to H4: cleaning and tuning.
use super::bounds::*;
use dibo_report::judge::{Judged, Margin, Run, list};

pub const ACCURACY: &str = "test_accuracy";

/// Mean of a metric at the end of a series' runs.
pub fn last(run: &Run<'_>, series: usize, metric: &str) -> f64 {
    run.mean(series, |r| r.last.get(metric).copied().unwrap_or(f64::NAN))
}

/// Series of FAB whose upper variable moves, and those in which it is frozen (ηx = 0).
pub fn fabs(run: &Run<'_>, moves: bool) -> Vec<usize> {
    run.series(|i| run.algorithm(i) == "fab" && (run.number(i, "algorithm.eta_x") != Some(0.0)) == moves)
}

/// Baselines: single-level methods on all samples.
pub fn baselines(run: &Run<'_>) -> Vec<usize> {
    run.series(|i| run.algorithm(i) != "fab" && run.text(i, "algorithm.train_on") != "validation")
}

/// Whether a series has this share of wrong labels.
pub fn corrupt(run: &Run<'_>, series: usize, cr: f64) -> bool {
    run.number(series, "problem.cr") == Some(cr)
}

/// The shares of wrong labels of an experiment, in order of appearance.
pub fn rates(run: &Run<'_>) -> Result<Vec<f64>, String> {
    let mut found: Vec<f64> = Vec::new();
    for i in run.series(|_| true) {
        let cr = run.number(i, "problem.cr").ok_or("the share of wrong labels, problem.cr, is not given")?;
        if !found.contains(&cr) {
            found.push(cr);
        }
    }
    Ok(found)
}

/// The series with the highest accuracy at the end, and that accuracy.
pub fn best(run: &Run<'_>, series: impl Iterator<Item = usize>) -> Option<(usize, f64)> {
    // A series with runs that diverged has no end to compare.
    let sound = series.filter(|i| !run.failed(*i));
    sound
        .map(|i| (i, last(run, i, ACCURACY)))
        .filter(|(_, a)| a.is_finite())
        .max_by(|a, b| a.1.total_cmp(&b.1))
}

/// The series that a user would take: that with the least loss on the validation samples, never that with
/// the highest test accuracy; and its accuracy.
pub fn chosen(run: &Run<'_>, series: impl Iterator<Item = usize>) -> Option<(usize, f64)> {
    let sound = series.filter(|i| !run.failed(*i));
    let loss = |i: usize| last(run, i, "loss");
    let least = sound.min_by(|a, b| loss(*a).total_cmp(&loss(*b)));
    least.map(|i| (i, last(run, i, ACCURACY))).filter(|(_, a)| a.is_finite())
}

/// The name of a series.
pub fn label(run: &Run<'_>, series: usize) -> String {
    run.manifest.series[series].label.clone()
}

/// A corruption rate, FAB's chosen series and its accuracy, the best baseline and its accuracy.
type Lead = (f64, usize, f64, usize, f64);

/// FAB's chosen series against the best baseline, for each corruption rate.
fn lead(run: &Run<'_>) -> Result<Vec<Lead>, String> {
    let mut rows = Vec::new();
    for cr in rates(run)? {
        let here = |i: &usize| corrupt(run, *i, cr);
        let ours: Vec<usize> = fabs(run, true).into_iter().filter(here).collect();
        let first = *ours.first().ok_or("FAB was not run")?;
        // A FAB that diverged with every setting has lost, whoever else was run.
        let fab = chosen(run, ours.into_iter()).unwrap_or((first, f64::NEG_INFINITY));
        let other =
            best(run, baselines(run).into_iter().filter(here)).ok_or("no baseline was run to an end")?;
        rows.push((cr, fab.0, fab.1, other.0, other.1));
    }
    if rows.is_empty() { Err("nothing was run".into()) } else { Ok(rows) }
}

/// FAB above the baselines at one τ, and against each baseline's best τ.
fn ahead_at(run: &Run<'_>, tau: f64) -> Judged {
    let at = run.series(|i| baselines(run).contains(&i) && run.number(i, "algorithm.tau") == Some(tau));
    if at.is_empty() {
        return Err(format!("no baseline was run at τ = {tau}"));
    }
    let (mut texts, mut margins, mut won_best, mut all) = (Vec::new(), Vec::new(), 0, 0);
    for (cr, fab, accuracy, other, top) in lead(run)? {
        let here = at.iter().copied().filter(|i| corrupt(run, *i, cr));
        let (rival, there) = best(run, here).ok_or("no baseline was run to an end at this τ")?;
        all += 1;
        won_best += usize::from(accuracy > top);
        margins.push(Margin::new(format!("cr = {cr}"), accuracy - there).unit("points"));
        for i in fabs(run, true).into_iter().filter(|i| *i != fab && corrupt(run, *i, cr)) {
            let what = format!("cr = {cr}, {}", run.name(i));
            let margin = Margin::new(what, last(run, i, ACCURACY) - there).unit("points");
            margins.push(margin.only_if(!run.failed(i)));
        }
        let best_of_all = format!("best of all τ {top:.2} % ({})", label(run, other));
        texts.push(format!(
            "{} {accuracy:.2} % against {there:.2} % ({}); {best_of_all}",
            label(run, fab),
            label(run, rival)
        ));
    }
    let reading = format!(
        "mean test accuracy of the averaged model at the end; FAB with the setting that has the least \
        validation loss, and each other setting, the printed one among them, by itself; at their best τ \
        FAB is above all baselines in {won_best} of {all} corruption rates"
    );
    Ok((margins, list(texts), reading))
}

/// FAB above every baseline at τ = 0.2.
pub fn h1(run: &Run<'_>) -> Judged {
    ahead_at(run, 0.2)
}

/// FAB above every baseline at τ = 0.15, the value that the paper's FAB learns.
pub fn h2(run: &Run<'_>) -> Judged {
    ahead_at(run, 0.15)
}

/// FAB above all baselines at each cr.
pub fn ahead(run: &Run<'_>) -> Judged {
    let rows = lead(run)?;
    let text = list(rows.iter().map(|(cr, f, a, o, b)| {
        format!("cr={cr}: {} {a:.2} % against {b:.2} % ({})", label(run, *f), label(run, *o))
    }));
    let margins = rows.iter().map(|r| Margin::new(format!("cr = {}", r.0), r.2 - r.4).unit("points"));
    Ok((
        margins.collect(),
        text,
        "mean test accuracy of the averaged model at the end, over seeds; FAB with the setting that has the \
        least validation loss, against the best baseline"
            .into(),
    ))
}

/// FAB's τ settles near 0.15.
pub fn h3(run: &Run<'_>) -> Judged {
    let series = fabs(run, true);
    let ends: Vec<(usize, f64, f64)> = series
        .iter()
        .filter(|i| !run.failed(**i))
        .filter_map(|i| {
            let curve = run.curve(*i, "iteration", "tau");
            let (end, half) = (curve.last()?, curve.get(curve.len() / 2)?);
            Some((*i, end.y, (end.y - half.y).abs()))
        })
        .collect();
    if series.is_empty() {
        return Err("FAB was not run with a moving τ".into());
    }
    let text = list(ends.iter().map(|(i, end, moved)| {
        format!("{}: τ = {end:.4}, moved {moved:.4} in the second half", label(run, *i))
    }));
    let diverged: usize = series.iter().map(|i| run.count(*i, "diverged").0).sum();
    let margin = |i: &usize| {
        let found = ends.iter().find(|e| e.0 == *i);
        let near =
            found.map_or(f64::NAN, |(_, end, moved)| (TAU_NEAR - (end - TAU).abs()).min(TAU_STILL - moved));
        Margin::new(label(run, *i), near).only_if(found.is_some())
    };
    Ok((
        series.iter().map(margin).collect(),
        format!("{text}; {diverged} runs diverged"),
        "near means between 0.1 and 0.2 at the end, and moved by less than 0.01 over the second half".into(),
    ))
}

/// The baselines at τ=.15 are a little better than at τ=.2.
pub fn h4(run: &Run<'_>) -> Judged {
    let at =
        |tau: f64| run.series(|i| run.algorithm(i) != "fab" && run.number(i, "algorithm.tau") == Some(tau));
    let (low, high) = (at(0.15), at(0.2));
    if low.is_empty() || low.len() != high.len() {
        return Err("the baselines were not run at τ = 0.15 and 0.2".into());
    }
    run.sound(low.iter().chain(&high).copied())?;
    let gaps: Vec<f64> =
        low.iter().zip(&high).map(|(l, h)| last(run, *l, ACCURACY) - last(run, *h, ACCURACY)).collect();
    let text = list(low.iter().zip(&gaps).map(|(l, g)| format!("{}: {g:+.2} points", label(run, *l))));
    let margins = low.iter().zip(&gaps).map(|(l, g)| Margin::new(label(run, *l), *g).unit("points"));
    Ok((margins.collect(), text, "accuracy at τ = 0.15 minus that at τ = 0.2".into()))
}

/// The corruption rates in order, smallest first; two are needed.
fn growing_rates(run: &Run<'_>) -> Result<Vec<f64>, String> {
    let mut rates = rates(run)?;
    rates.sort_by(f64::total_cmp);
    if rates.len() < 2 {
        Err("one corruption rate alone says nothing about growth".into())
    } else {
        Ok(rates)
    }
}

/// The baselines degrade strongly as cr grows.
pub fn c3(run: &Run<'_>) -> Judged {
    let rates = growing_rates(run)?;
    let (low, high) = (rates[0], rates[rates.len() - 1]);
    let (mut falls, mut margins) = (Vec::new(), Vec::new());
    for i in baselines(run).into_iter().filter(|i| corrupt(run, *i, low)) {
        let twin = baselines(run).into_iter().find(|j| {
            corrupt(run, *j, high)
                && run.algorithm(*j) == run.algorithm(i)
                && run.value(*j, "algorithm.tau") == run.value(i, "algorithm.tau")
        });
        let Some(j) = twin else { continue };
        let (name, a, b) = (run.name(i), last(run, i, ACCURACY), last(run, j, ACCURACY));
        let sound = !run.failed(i) && !run.failed(j);
        margins.push(Margin::new(name.clone(), a - b - STRONGLY).unit("points").only_if(sound));
        if sound {
            falls.push((name, a, b));
        }
    }
    if falls.is_empty() {
        return Err("no baseline was run to an end at both ends of the corruption rates".into());
    }
    let text =
        list(falls.iter().map(|(name, a, b)| format!("{name} {a:.1} % at cr={low}, {b:.1} % at cr={high}")));
    Ok((margins, text, "strongly means by more than 5 points".into()))
}

/// FAB's lead grows with cr.
pub fn c9(run: &Run<'_>) -> Judged {
    let (rates, rows) = (growing_rates(run)?, lead(run)?);
    let leads: Vec<(&f64, f64)> =
        rates.iter().filter_map(|cr| rows.iter().find(|r| r.0 == *cr).map(|r| (cr, r.2 - r.4))).collect();
    let growth = leads.windows(2).map(|w| w[1].1 - w[0].1).fold(f64::INFINITY, f64::min);
    let text = list(leads.iter().map(|(cr, lead)| format!("{lead:+.2} points at cr={cr}")));
    Ok((
        vec![Margin::new("", growth).unit("points").only_if(leads.iter().all(|l| l.1.is_finite()))],
        text,
        "FAB with the setting of the least validation loss over the best baseline, at the end; the least \
        growth from one rate to the next"
            .into(),
    ))
}

/// FAB costs about twice AB/Push-Pull's bytes.
pub fn c11(run: &Run<'_>) -> Judged {
    let of = |series: Vec<usize>| {
        series.first().map(|i| run.mean(*i, |r| r.bytes as f64 / r.iterations.max(1) as f64))
    };
    let (fab, ab) = (
        of(fabs(run, true)).ok_or("FAB was not run")?,
        of(run.of("push-pull")).ok_or("AB/Push-Pull was not run")?,
    );
    let ratio = fab / ab;
    Ok((
        vec![Margin::new("", TWICE_NEAR - (ratio - 2.0).abs()).by_construction()],
        format!("{ratio:.2} times"),
        "bytes an iteration over all links: y, z and their trackers against one model and its tracker; \
        sample weights are not sent"
            .into(),
    ))
}

/// The learned weights separate clean from corrupted samples.
pub fn c12(run: &Run<'_>) -> Judged {
    let moving: Vec<usize> =
        fabs(run, true).into_iter().filter(|i| last(run, *i, "auc").is_finite()).collect();
    if moving.is_empty() {
        return Err("no series learns sample weights".into());
    }
    let of = |i: usize, m: &str| last(run, i, m);
    let text = list(moving.iter().map(|i| {
        format!(
            "{}: AUC {:.3}, F1 {:.3}, mean |Δψ| {:.3}, weights {:.2} clean and {:.2} wrong, accuracy {:.2} %",
            label(run, *i),
            of(*i, "auc"),
            of(*i, "f1"),
            of(*i, "psi_moved"),
            of(*i, "weight_clean"),
            of(*i, "weight_wrong"),
            of(*i, ACCURACY)
        )
    }));
    let others =
        run.series(|i| fabs(run, false).contains(&i) || run.text(i, "algorithm.train_on") == "validation");
    let rest = list(others.iter().map(|i| format!("{} {:.2} %", label(run, *i), of(*i, ACCURACY))));
    let margin = |i: &usize| Margin::new(label(run, *i), of(*i, "auc") - SEPARATES).only_if(!run.failed(*i));
    Ok((
        moving.iter().map(margin).collect(),
        if rest.is_empty() { text } else { format!("{text}; against {rest}") },
        "separate means an area under the ROC curve of 0.9 or more, wrong samples being those with low \
        weights"
            .into(),
    ))
}
