//! P6 to P15: FAB against the double-loop baselines.
use super::bounds::*;
use dibo_report::judge::{Cell, Judged, Margin, Run, list};
use dibo_report::report::average::Point;
use dibo_report::report::words::{number, quantity};

const ERROR: &str = "relative_error";

/// FAB's series and the baselines' of each cell that has both.
fn cells(run: &Run<'_>) -> Result<Vec<(Cell, usize, Vec<usize>)>, String> {
    let split = |cell: Cell| {
        let fab = *cell.series.iter().find(|i| run.algorithm(**i) == "fab")?;
        let baselines: Vec<usize> =
            cell.series.iter().copied().filter(|i| run.algorithm(*i).starts_with("dl-")).collect();
        (!baselines.is_empty()).then_some((cell, fab, baselines))
    };
    let cells: Vec<_> = run.cells().into_iter().filter_map(split).collect();
    if cells.is_empty() {
        Err("FAB and a double-loop baseline were not run on the same problem".into())
    } else {
        Ok(cells)
    }
}

fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)))
}

fn span((low, high): (f64, f64)) -> String {
    if number(low) == number(high) { number(low) } else { format!("{} to {}", number(low), number(high)) }
}

fn lowest(curve: &[Point]) -> Option<Point> {
    curve.iter().copied().min_by(|a, b| a.y.total_cmp(&b.y))
}

/// The smallest of these.
fn least(values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().fold(f64::INFINITY, f64::min)
}

/// Whether a double loop's inner loops go on where the last one ended; and both in words.
fn kept(run: &Run<'_>, series: usize) -> bool {
    run.text(series, "algorithm.inner_start") == "kept"
}

const STARTS: [&str; 2] = ["inner loops that start anew", "inner loops that go on"];

pub fn p6(run: &Run<'_>) -> Judged {
    let cells = cells(run)?;
    let mut margins = Vec::new();
    for (cell, fab, baselines) in &cells {
        for (metric, word) in [(ERROR, "error"), ("objective", "loss")] {
            let what = format!("{} {word}", cell.name).trim().to_string();
            let rival = least(baselines.iter().map(|b| run.end(*b, metric)));
            margins.push(Margin::ratio(what, run.end(*fab, metric), rival).only_if(!run.failed(*fab)));
        }
    }
    let fab = range(cells.iter().map(|c| run.end(c.1, ERROR)));
    let others = range(cells.iter().flat_map(|c| &c.2).map(|b| run.end(*b, ERROR)));
    let best = cells
        .iter()
        .flat_map(|c| &c.2)
        .filter_map(|b| lowest(&run.curve(*b, "iteration", ERROR)))
        .map(|p| p.y);
    let best = best.fold(f64::INFINITY, f64::min);
    let reading = format!(
        "at the printed steps and T = 20 inner iterations; mean relative error over the last tenth of the \
        run, and of the loss F; the lowest error that any baseline passes on its way is {}",
        number(best)
    );
    let settings = if cells.len() == 1 { "one setting".into() } else { format!("{} settings", cells.len()) };
    Ok((margins, format!("FAB {}, baselines {} over {settings}", span(fab), span(others)), reading))
}

pub fn p7(run: &Run<'_>) -> Judged {
    let cells = cells(run)?;
    let (mut margins, mut crossings, mut by_time) = (Vec::new(), Vec::new(), 0);
    let mut pairs = 0;
    for (cell, fab, baselines) in &cells {
        let (ours, ours_in_time) = (run.curve(*fab, "iteration", ERROR), run.curve(*fab, "seconds", ERROR));
        let mut by_start = [f64::INFINITY; 2];
        for b in baselines {
            pairs += 1;
            let theirs = run.curve(*b, "iteration", ERROR);
            // How far ahead FAB is at each evaluation: it must be behind somewhere, and ahead at the end.
            let gaps: Vec<(f64, f64)> = ours
                .iter()
                .zip(&theirs)
                .filter(|(o, t)| o.x == t.x && o.x > 0.0)
                .map(|(o, t)| (o.x, (t.y / o.y).ln()))
                .collect();
            let (behind, end) = (-least(gaps.iter().map(|g| g.1)), gaps.last().map_or(f64::NAN, |g| g.1));
            let margin = &mut by_start[usize::from(kept(run, *b))];
            *margin = margin.min(behind).min(if end.is_nan() { f64::NEG_INFINITY } else { end });
            crossings.extend(gaps.iter().rev().find(|g| g.1 <= 0.0).filter(|_| end > 0.0).map(|g| g.0));
            // Is FAB ahead at every moment of the clock?
            let at =
                |t: f64| ours_in_time.iter().take_while(|p| p.x <= t).last().map_or(f64::INFINITY, |p| p.y);
            let ahead = run.curve(*b, "seconds", ERROR).iter().skip(1).all(|p| at(p.x) <= p.y);
            by_time += usize::from(ahead);
        }
        for (margin, words) in by_start.into_iter().zip(STARTS).filter(|(m, _)| *m < f64::INFINITY) {
            let what = format!("{} {words}", cell.name).trim().to_string();
            margins.push(Margin::new(what, margin).unit("in ln").only_if(!run.failed(*fab)));
        }
    }
    let number = if crossings.is_empty() {
        "no crossing".into()
    } else {
        format!("FAB goes ahead for good at iterations {}", span(range(crossings.into_iter())))
    };
    let reading = format!(
        "at the printed steps and T = 20; relative error against iterations, where an iteration of a \
        baseline has 20 inner ones; by the clock FAB is ahead at every moment against {by_time} of {pairs} \
        baselines"
    );
    Ok((margins, number, reading))
}

pub fn p8(run: &Run<'_>) -> Judged {
    let series = run.of("dl-push-sgd");
    if series.is_empty() {
        return Err("DL-Push-SGD was not run".into());
    }
    let (mut margins, mut texts) = (Vec::new(), Vec::new());
    for (goes_on, words) in [false, true].into_iter().zip(STARTS) {
        let here: Vec<usize> = series.iter().copied().filter(|i| kept(run, *i) == goes_on).collect();
        if here.is_empty() {
            continue;
        }
        let stages = here.iter().map(|i| stagnation(run, *i)).collect::<Result<Vec<_>, _>>()?;
        let [low, at, end] = [|s: &Stagnation| s.low.y, |s: &Stagnation| s.low.x, |s: &Stagnation| s.end]
            .map(|of| span(range(stages.iter().map(of))));
        texts.push(format!("{words}: error falls to {low} at iteration {at}, ends at {end}"));
        let rests = least(stages.iter().map(|s| s.rests));
        margins.push(Margin::new(format!("{words}, “stagnates” read as “comes to rest”"), rests));
        let stays = least(stages.iter().map(|s| s.stays)).min(rests);
        margins.push(Margin::new(words, stays));
    }
    let reading = "drop: below 70 % of the start within the first fifth; rest: less than 10 % change over \
        the last quarter; stagnates: at most 20 % above the lowest point. T short inner steps leave most of \
        the hypergradient's second part out, so the method rests elsewhere than at the solution";
    Ok((margins, list(texts), reading.into()))
}

/// How a curve drops and comes to rest: how far both are so, and how far it also stays at what it fell to.
struct Stagnation {
    rests: f64,
    stays: f64,
    low: Point,
    end: f64,
}

fn stagnation(run: &Run<'_>, series: usize) -> Result<Stagnation, String> {
    let curve = run.curve(series, "iteration", ERROR);
    let (Some(first), Some(last), Some(low)) = (curve.first(), curve.last(), lowest(&curve)) else {
        return Err("no curve".into());
    };
    let early = least(curve.iter().filter(|p| p.x < 0.2 * last.x).map(|p| p.y));
    let middle = curve.iter().find(|p| p.x >= 0.75 * last.x).map_or(f64::NAN, |p| p.y);
    let drop = (DROP * first.y / early).ln();
    let rest = if run.failed(series) { f64::NEG_INFINITY } else { REST - (last.y / middle - 1.0).abs() };
    Ok(Stagnation { rests: drop.min(rest), stays: (RISE * low.y / last.y).ln(), low, end: last.y })
}

pub fn p9(run: &Run<'_>) -> Judged {
    let cells = cells(run)?;
    let kinds: Vec<String> = cells.iter().fold(Vec::new(), |mut kinds, c| {
        let kind = run.text(c.1, "problem.noise_on").to_string();
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
        kinds
    });
    let (mut margins, mut each) = (Vec::new(), Vec::new());
    for kind in &kinds {
        let mut of_kind: Vec<_> =
            cells.iter().filter(|c| run.text(c.1, "problem.noise_on") == *kind).collect();
        of_kind.sort_by(|a, b| {
            run.number(a.1, "problem.omega")
                .unwrap_or(0.0)
                .total_cmp(&run.number(b.1, "problem.omega").unwrap_or(0.0))
        });
        let (Some(quiet), Some(loud)) = (of_kind.first(), of_kind.last()) else { continue };
        if run.number(quiet.1, "problem.omega") == run.number(loud.1, "problem.omega") {
            return Err("only one noise level was run".into());
        }
        run.sound([quiet, loud].into_iter().flat_map(|c| c.2.iter().copied().chain([c.1])))?;
        let growth = |a: usize, b: usize| run.end(b, ERROR) / run.end(a, ERROR);
        let fab = growth(quiet.1, loud.1);
        let others = quiet.2.iter().zip(&loud.2).map(|(a, b)| growth(*a, *b)).fold(0.0, f64::max);
        let kind = if kind.is_empty() { "transition" } else { kind };
        each.push(format!(
            "noise on {kind}: FAB ×{fab:.2} (to {}), baselines at most ×{others:.2}",
            number(run.end(loud.1, ERROR))
        ));
        margins.push(Margin::ratio(format!("noise on {kind}"), others, fab));
    }
    let reading = "end error with the largest ω divided by that with the smallest";
    Ok((margins, list(each), reading.into()))
}

/// Series of one algorithm by growing ν.
fn by_nu(run: &Run<'_>, algorithm: &str) -> Vec<(f64, usize)> {
    let mut found: Vec<(f64, usize)> =
        run.of(algorithm).into_iter().filter_map(|i| Some((run.number(i, "graph.nu")?, i))).collect();
    found.sort_by(|a, b| a.0.total_cmp(&b.0));
    found
}

pub fn p10(run: &Run<'_>) -> Judged {
    let found = by_nu(run, "fab");
    if found.len() < 2 || found[0].0 == found[found.len() - 1].0 {
        return Err("only one ν was run".into());
    }
    let times: Vec<Option<f64>> =
        found.iter().map(|(_, i)| run.first_below(*i, "iteration", ERROR, NEAR_ENOUGH)).collect();
    let times: Vec<f64> =
        times.into_iter().collect::<Option<_>>().ok_or("FAB did not come within 10 % everywhere")?;
    let gain = times[0] / times[times.len() - 1];
    let sound = found.iter().all(|(_, i)| !run.failed(*i));
    let margin = Margin::ratio("", FASTER, gain).only_if(sound);
    let agree: Vec<f64> = found.iter().map(|(_, i)| run.end(*i, "consensus_x")).collect();
    let each = found.iter().zip(&times).map(|((nu, _), t)| format!("{t:.0} at ν={nu}"));
    let reading = format!(
        "FAB's iterations to a relative error of 10 %; a gain below 2 % counts as none. Mixing is not what \
        limits it here: what ν does change is the disagreement about x, {} times smaller at the largest ν",
        number(agree[0] / agree[agree.len() - 1])
    );
    Ok((vec![margin], list(each), reading))
}

pub fn p11(run: &Run<'_>) -> Judged {
    let mut algorithms: Vec<&str> = Vec::new();
    for i in run.series(|_| true) {
        if !algorithms.contains(&run.algorithm(i)) {
            algorithms.push(run.algorithm(i));
        }
    }
    if algorithms.is_empty() {
        return Err("nothing was run".into());
    }
    let cost = |i: usize| run.mean(i, |r| r.bytes as f64 / r.iterations.max(1) as f64);
    let (mut margins, mut each) = (Vec::new(), Vec::new());
    for algorithm in algorithms {
        let found = by_nu(run, algorithm);
        if found.len() < 2 || found[0].0 == found[found.len() - 1].0 {
            return Err("only one ν was run".into());
        }
        let growth = least(found.windows(2).map(|w| (cost(w[1].1) / cost(w[0].1)).ln()));
        margins.push(Margin::new(run.name(found[0].1), growth).by_construction());
        let (low, high) = (found[0], found[found.len() - 1]);
        let bytes = |i: usize| quantity("bytes_per_iteration", cost(i));
        each.push(format!(
            "{} {} at ν={}, {} at ν={}",
            run.name(low.1),
            bytes(low.1),
            low.0,
            bytes(high.1),
            high.0
        ));
    }
    Ok((
        margins,
        list(each),
        "bytes that all agents send in one (outer) iteration: a link more is a message more".into(),
    ))
}

/// Largest relative gap of two mean curves; infinite where one is missing or has runs that diverged.
fn gap(run: &Run<'_>, a: usize, b: usize) -> f64 {
    let curves = (run.curve(a, "iteration", ERROR), run.curve(b, "iteration", ERROR));
    if run.failed(a) || run.failed(b) || curves.0.is_empty() || curves.1.is_empty() {
        return f64::INFINITY;
    }
    curves.0.iter().zip(&curves.1).map(|(a, b)| (a.y - b.y).abs() / a.y).fold(0.0, f64::max)
}

pub fn p12(run: &Run<'_>) -> Judged {
    let (mut plain, mut tracked): (Vec<f64>, Vec<f64>) = (Vec::new(), Vec::new());
    for cell in run.cells() {
        let Some(sgd) = cell.series.iter().find(|i| run.algorithm(**i) == "dl-push-sgd") else { continue };
        for saga in cell.series.iter().filter(|i| run.algorithm(**i) == "dl-push-saga") {
            let gaps =
                if run.flag(*saga, "algorithm.tracking") == Some(false) { &mut plain } else { &mut tracked };
            gaps.push(gap(run, *sgd, *saga));
        }
    }
    if plain.is_empty() && tracked.is_empty() {
        return Err("DL-Push-SGD and DL-Push-SAGA were not both run".into());
    }
    let largest = |gaps: &[f64]| gaps.iter().copied().fold(0.0, f64::max);
    let say = |gaps: &[f64], name: &str| {
        (!gaps.is_empty()).then(|| format!("largest gap {:.2} % {name}", 100.0 * largest(gaps)))
    };
    let number =
        list([say(&plain, "without tracking"), say(&tracked, "with tracking")].into_iter().flatten());
    let mut margins = Vec::new();
    if !plain.is_empty() {
        let margin = Margin::new("Push-SAGA without its gradient tracking", COINCIDE - largest(&plain));
        margins.push(margin.by_construction());
    }
    if !tracked.is_empty() {
        margins.push(Margin::new("Push-SAGA with its gradient tracking", COINCIDE - largest(&tracked)));
    }
    let reading = "gap of the two mean error curves, relative, at its largest; below 5 % counts as \
        coinciding. On full batches SAGA's estimate is the gradient itself, so all that is left is its \
        gradient tracking: without that the two are one method";
    Ok((margins, number, reading.into()))
}

/// The cell with the most agents.
fn largest_cell(run: &Run<'_>) -> Result<(Cell, usize, Vec<usize>), String> {
    let most = |c: &(Cell, usize, Vec<usize>)| run.number(c.1, "problem.agents").unwrap_or(0.0);
    cells(run)?.into_iter().max_by(|a, b| most(a).total_cmp(&most(b))).ok_or_else(|| "nothing was run".into())
}

pub fn p13(run: &Run<'_>) -> Judged {
    let (_, fab, baselines) = largest_cell(run)?;
    let end = if run.failed(fab) { f64::INFINITY } else { run.end(fab, ERROR) };
    let clock = run.curve(fab, "seconds", ERROR).last().map_or(0.0, |p| p.x);
    let at = |b: usize| {
        run.curve(b, "seconds", ERROR).iter().take_while(|p| p.x <= clock).last().map_or(f64::NAN, |p| p.y)
    };
    let by_end = baselines.iter().map(|b| run.end(*b, ERROR)).fold(f64::INFINITY, f64::min);
    let by_clock = baselines.iter().map(|b| at(*b)).fold(f64::INFINITY, f64::min);
    let lowest = baselines
        .iter()
        .filter_map(|b| lowest(&run.curve(*b, "iteration", ERROR)))
        .map(|p| p.y)
        .fold(f64::INFINITY, f64::min);
    let number = format!(
        "FAB ends at {} in {}; best baseline {} after as many iterations, {} after as many seconds",
        number(end),
        quantity("seconds", clock),
        number(by_end),
        number(by_clock)
    );
    let reading = format!(
        "relative error; the lowest that any baseline passes on its way is {}",
        dibo_report::report::words::number(lowest)
    );
    let margins = [("iterations", by_end), ("time", by_clock)];
    let margins = margins.map(|(what, rival)| Margin::ratio(what, end, rival));
    Ok((margins.into(), number, reading))
}

pub fn p14(run: &Run<'_>) -> Judged {
    let (_, fab, baselines) = largest_cell(run)?;
    let level = BASELINES_REACH;
    let time = |b: usize| run.first_below(b, "seconds", ERROR, level).unwrap_or(f64::INFINITY);
    let ours =
        *baselines.iter().find(|b| run.algorithm(**b) == "dl-push-pull").ok_or("DL-Push-Pull was not run")?;
    if baselines.iter().all(|b| time(*b).is_infinite()) {
        return Err(format!("no baseline came below {level}"));
    }
    let rival = least(baselines.iter().filter(|b| **b != ours).map(|b| time(*b)));
    let margin = Margin::ratio("", time(ours), rival).only_if(!run.failed(ours));
    let each = baselines.iter().map(|b| match time(*b) {
        t if t.is_finite() => format!("{} {}", run.name(*b), quantity("seconds", t)),
        _ => format!("{} never", run.name(*b)),
    });
    let reading = format!(
        "seconds to a relative error of {level} with n = {}; the printed steps of the baselines differ by \
        up to fifty times, and this decides",
        run.words(fab, "problem.agents")
    );
    Ok((vec![margin], list(each), reading))
}

pub fn p15(run: &Run<'_>) -> Judged {
    let cells = cells(run)?;
    let keys = [("problem.agents", "problem.omega", "n"), ("problem.omega", "problem.agents", "ω")];
    // For each of n and ω, and for FAB and the baselines: how much worse is the least of them? And in words.
    let (mut margins, mut notes) = (Vec::new(), Vec::new());
    for (key, other, sign) in keys {
        let less = |a: usize, b: usize| {
            run.number(a, key) < run.number(b, key) && run.value(a, other) == run.value(b, other)
        };
        let pairs: Vec<_> = cells
            .iter()
            .flat_map(|a| cells.iter().map(move |b| (a, b)))
            .filter(|(a, b)| less(a.1, b.1))
            .collect();
        run.sound(pairs.iter().flat_map(|(a, b)| [a, b]).flat_map(|c| c.2.iter().copied().chain([c.1])))?;
        let mut compare = |who: &str, list: Vec<(usize, usize)>| {
            let (from, to) = (
                range(list.iter().map(|p| run.end(p.0, ERROR))),
                range(list.iter().map(|p| run.end(p.1, ERROR))),
            );
            let growth = range(list.iter().map(|p| run.end(p.1, ERROR) / run.end(p.0, ERROR)));
            let (i, j) = list[0];
            notes.push(format!(
                "{who} {} → {} as {sign} goes from {} to {}",
                span(from),
                span(to),
                run.words(i, key),
                run.words(j, key)
            ));
            margins.push(Margin::ratio(format!("{sign} for {who}"), WORSE, growth.0));
        };
        if !pairs.is_empty() {
            compare("FAB", pairs.iter().map(|(a, b)| (a.1, b.1)).collect());
            compare(
                "the baselines",
                pairs.iter().flat_map(|(a, b)| a.2.iter().copied().zip(b.2.iter().copied())).collect(),
            );
        }
    }
    if margins.is_empty() {
        return Err("only one size and noise level was run".into());
    }
    let reading = "end error at equal steps; an increase below 1 % counts as none. With more agents the \
        noise of the mean gradient is smaller, not larger; the baselines rest so far off that the noise \
        does not show. The paper compares runs with different steps";
    Ok((margins, list(notes), reading.into()))
}
