//! P18 to P21: other ways to join the techniques.
use super::bounds::*;
use dibo_report::judge::{Judged, Margin, Run, list};
use dibo_report::report::words::{number, quantity};

const ERROR: &str = "relative_error";

/// The groups of an experiment: names with their series.
fn groups(run: &Run<'_>) -> Vec<(String, Vec<usize>)> {
    let mut groups: Vec<(String, Vec<usize>)> = Vec::new();
    for i in run.series(|_| true) {
        let name = run.text(i, "algorithm.group");
        match groups.iter_mut().find(|g| g.0 == name) {
            Some(group) => group.1.push(i),
            None => groups.push((name.into(), vec![i])),
        }
    }
    groups
}

fn find(run: &Run<'_>, group: &[usize], algorithm: &str) -> Result<usize, String> {
    group
        .iter()
        .copied()
        .find(|i| run.algorithm(*i) == algorithm)
        .ok_or_else(|| format!("{algorithm} was not run in every group"))
}

pub fn p18(run: &Run<'_>) -> Judged {
    let series = run.of("static-fab");
    if series.is_empty() {
        return Err("Static_FAB was not run".into());
    }
    let diverged = series.iter().map(|i| run.count(*i, "diverged").0).sum::<usize>();
    let all = series.iter().map(|i| run.count(*i, "diverged").1).sum::<usize>();
    let ends: Vec<f64> = series.iter().map(|i| run.end(*i, ERROR)).collect();
    let least = ends.iter().copied().fold(f64::INFINITY, f64::min);
    let margins = vec![
        Margin::fact("“diverges” as written", diverged == all),
        Margin::ratio("“diverges” read as “does not converge”: it stalls", STALLED, least),
    ];
    let reading = "the weights of the first graph over links that really fail: what is sent over a missing \
        link is lost, so all values shrink and x never leaves 0 (relative error 1). On a graph that does \
        not change Static_FAB is FAB";
    Ok((
        margins,
        format!(
            "{diverged} of {all} runs diverge; error at the end {}",
            list(ends.iter().map(|e| number(*e)))
        ),
        reading.into(),
    ))
}

/// How far the clock can be trusted: the largest ratio between the times of FAB series that differ in their
/// group alone, 1.1 at least.
fn clock_noise(run: &Run<'_>, time: impl Fn(usize) -> f64) -> f64 {
    let key = |i: usize| {
        run.manifest.series[i].settings.iter().filter(|(k, _)| *k != "algorithm.group").collect::<Vec<_>>()
    };
    let fabs = run.of("fab");
    let pairs = fabs
        .iter()
        .flat_map(|a| fabs.iter().map(move |b| (*a, *b)))
        .filter(|(a, b)| a != b && key(*a) == key(*b));
    pairs.map(|(a, b)| time(a) / time(b)).filter(|r| r.is_finite()).fold(1.1, f64::max)
}

pub fn p19(run: &Run<'_>) -> Judged {
    let groups = groups(run);
    if groups.is_empty() {
        return Err("nothing was run".into());
    }
    let level = CLOSE_BY;
    let reach = |i: usize| run.first_below(i, "seconds", ERROR, level).unwrap_or(f64::INFINITY);
    let noise = clock_noise(run, reach);
    let (mut margins, mut lost, mut tie, mut each) = (Vec::new(), false, false, Vec::new());
    for (name, group) in &groups {
        let all = [
            find(run, group, "fab")?,
            find(run, group, "push-sum-fab")?,
            find(run, group, "push-pull-soba")?,
        ];
        let seconds = all.map(|i| run.mean(i, |r| 1e6 * r.seconds / r.iterations.max(1) as f64));
        let times = all.map(reach);
        let memory = all.map(|i| run.mean(i, |r| r.state_bytes as f64));
        for other in 1..3 {
            lost |= times[0] >= times[other];
            let what = format!("{name} against {}", run.name(all[other])).trim().to_string();
            let sound = !run.failed(all[0]) && memory[0] <= memory[other];
            margins.push(Margin::ratio(what, noise * times[0], times[other]).only_if(sound));
            tie |= memory[0] == memory[other];
        }
        let say = |v: [f64; 3], f: &dyn Fn(f64) -> String| v.map(f).join(" / ");
        each.push(format!(
            "{name}: {} µs an iteration, {} to an error of {level}, {} of state",
            say(seconds, &|s| format!("{s:.1}")),
            say(times, &|s| if s.is_finite() { quantity("seconds", s) } else { "never".into() }),
            say(memory, &|m| quantity("state_bytes", m))
        ));
    }
    if tie {
        margins.push(Margin::fact("less memory than PushPull_SOBA", false));
    }
    let reading = format!(
        "FAB / PushSum_FAB / PushPull_SOBA; state is the vectors that live from one iteration to the next. \
        A time counts as longer only beyond {noise:.2}×, the spread of equal FAB runs here{}. As printed \
        the steps are in different forms; at equal steps all need about the same number of iterations, and \
        drawing the graphs takes much of each{}",
        if lost { "" } else { "; FAB has the shortest time in every comparison" },
        if tie {
            ". Where two keep equally much, FAB is not best in memory, whatever the clock says"
        } else {
            ""
        }
    );
    Ok((margins, each.join("; "), reading))
}

pub fn p20(run: &Run<'_>) -> Judged {
    let (mut margins, mut each) = (Vec::new(), Vec::new());
    let groups = groups(run);
    if groups.is_empty() {
        return Err("nothing was run".into());
    }
    for (name, group) in &groups {
        let centre = find(run, group, "centralized-fab")?;
        let bound = run.curve(centre, "iteration", ERROR);
        let share = |other: usize| {
            let theirs = run.curve(other, "iteration", ERROR);
            let pairs: Vec<bool> = bound
                .iter()
                .zip(&theirs)
                .filter(|(b, _)| b.x > 0.0)
                .map(|(b, t)| b.y <= BOUNDED_BY * t.y)
                .collect();
            pairs.iter().filter(|p| **p).count() as f64 / pairs.len().max(1) as f64
        };
        let shares: Vec<(usize, f64)> =
            group.iter().filter(|i| **i != centre).map(|i| (*i, share(*i))).collect();
        // What diverged bounds nothing. A bound is a share of 0.95 or more, so one of exactly 0.95 is one.
        let least = |of: &mut dyn Iterator<Item = &(usize, f64)>| {
            of.map(|s| s.1 - BOUNDED_SHARE + f64::EPSILON).fold(f64::INFINITY, f64::min)
        };
        let others = &mut shares.iter().filter(|s| run.algorithm(s.0) != "push-pull-soba");
        let all = least(&mut shares.iter());
        margins.push(Margin::new(name.clone(), all).only_if(!run.failed(centre)));
        if shares.iter().any(|s| run.algorithm(s.0) == "push-pull-soba") {
            let left = Margin::new(format!("{name}, PushPull_SOBA left out"), least(others));
            margins.push(left.only_if(!run.failed(centre)));
        }
        let against = list(shares.iter().map(|(i, share)| {
            format!("{:.0} % {} ({})", 100.0 * share, run.name(*i), number(run.end(*i, ERROR)))
        }));
        each.push(format!("{name} ({}): {against}", number(run.end(centre, ERROR))));
    }
    let reading = "share of the run's evaluations where Centralized_FAB's mean error is at most 5 % above \
        the other's (from 95 % on it counts as a bound), and mean error over the last tenth in brackets. \
        SOBA has no penalty and so no penalty bias; as printed all steps differ";
    Ok((margins, each.join("; "), reading.into()))
}

/// The largest step up to which no run of an algorithm diverged, and whether a larger one did.
fn largest_step(run: &Run<'_>, algorithm: &str) -> Result<(f64, bool), String> {
    let mut steps: Vec<(f64, bool)> = run
        .of(algorithm)
        .into_iter()
        .filter_map(|i| Some((run.number(i, "algorithm.eta_x")?, run.count(i, "diverged").0 == 0)))
        .collect();
    steps.sort_by(|a, b| a.0.total_cmp(&b.0));
    if steps.len() < 3 {
        return Err(format!("fewer than three steps of {algorithm} were run"));
    }
    let stable = steps.iter().take_while(|s| s.1).count();
    if stable == 0 {
        return Err(format!("even the smallest step of {algorithm} diverged"));
    }
    Ok((steps[stable - 1].0, stable < steps.len()))
}

pub fn p21(run: &Run<'_>) -> Judged {
    let ((fab, _), (sum, end)) = (largest_step(run, "fab")?, largest_step(run, "push-sum-fab")?);
    let lambda = run.of("fab").first().and_then(|i| run.number(*i, "algorithm.lambda")).unwrap_or(1.0);
    let number = format!(
        "FAB {fab}, PushSum_FAB {sum}{}; written out, not divided by λ: {} and {}",
        if end { "" } else { " or more" },
        number(fab / lambda),
        number(sum / lambda)
    );
    let margin = Margin::fact("", fab >= FAB_STEP && sum <= PUSH_SUM_STEP);
    let reading = "largest step at which no run diverged, both with directions divided by λ = 60 and one \
        step for x, y and z. The paper's 0.15 is a step of the divided form and its 0.001 one of the \
        written form";
    Ok((vec![margin], number, reading.into()))
}
