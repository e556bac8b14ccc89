//! C2, C4 to C8 and C10: hyper-cleaning in time, over unlike agents, networks and model sizes.
use super::learning::{ACCURACY, baselines, best, fabs, label, last, values};
use dibo_report::judge::{Judged, Run, fit, list};
use dibo_report::report::average::Point;
use dibo_report::report::claims::Verdict::{self, DoesNotHold, Holds, HoldsOnlyUnder};
use dibo_report::report::words::{quantity, without};

/// The series of one method at each value of a setting, smallest value first.
struct Sweep {
    name: String,
    at: Vec<(f64, usize)>,
}

impl Sweep {
    /// Series at the smallest and the largest value.
    fn ends(&self) -> (usize, usize) {
        (self.at[0].1, self.at[self.at.len() - 1].1)
    }

    fn is_fab(&self, run: &Run<'_>) -> bool {
        fabs(run, true).contains(&self.at[0].1)
    }

    fn is_baseline(&self, run: &Run<'_>) -> bool {
        baselines(run).contains(&self.at[0].1)
    }
}

/// All methods that were run at two or more values of a setting.
fn sweeps(run: &Run<'_>, key: &str) -> Result<Vec<Sweep>, String> {
    let mut found: Vec<Sweep> = Vec::new();
    for i in run.series(|_| true) {
        let Some(value) = run.number(i, key) else { continue };
        let name = without(&label(run, i), &[(key, run.text(i, key))]);
        match found.iter_mut().find(|s| s.name == name) {
            Some(known) => known.at.push((value, i)),
            None => found.push(Sweep { name, at: vec![(value, i)] }),
        }
    }
    found.iter_mut().for_each(|s| s.at.sort_by(|a, b| a.0.total_cmp(&b.0)));
    found.retain(|s| s.at.len() > 1 && s.at[0].0 < s.at[s.at.len() - 1].0);
    if found.is_empty() { Err(format!("no method was run at two values of {key}")) } else { Ok(found) }
}

/// The sweeps of methods of which no run diverged, and whether there are others.
fn sound_sweeps(run: &Run<'_>, key: &str) -> Result<(Vec<Sweep>, bool), String> {
    let mut all = sweeps(run, key)?;
    let before = all.len();
    all.retain(|s| s.at.iter().all(|(_, i)| !run.failed(*i)));
    let lost = all.len() < before;
    if all.is_empty() {
        Err(format!("every method diverged at some value of {key}"))
    } else {
        Ok((all, lost))
    }
}

/// FAB's sweep with the highest accuracy at the end, over all values.
fn best_fab<'a>(run: &Run<'_>, all: &'a [Sweep]) -> Result<&'a Sweep, String> {
    let mean = |s: &Sweep| s.at.iter().map(|(_, i)| last(run, *i, ACCURACY)).sum::<f64>() / s.at.len() as f64;
    let fab = all.iter().filter(|s| s.is_fab(run)).max_by(|a, b| mean(a).total_cmp(&mean(b)));
    fab.ok_or("FAB was not run to its ends with a moving upper variable at two values".into())
}

/// The last value of a curve at or before x.
fn value_at(curve: &[Point], x: f64) -> f64 {
    curve.iter().take_while(|p| p.x <= x).last().map_or(f64::NAN, |p| p.y)
}

/// FAB above all baselines in time.
pub fn c2(run: &Run<'_>) -> Judged {
    let (mut texts, mut won, mut all) = (Vec::new(), Vec::new(), 0);
    for cr in values(run, &run.series(|_| true), "problem.cr") {
        let here = |i: &usize| run.text(*i, "problem.cr") == cr;
        let (fab, _) =
            best(run, fabs(run, true).into_iter().filter(here)).ok_or("FAB was not run to an end")?;
        let rivals: Vec<usize> =
            baselines(run).into_iter().filter(here).filter(|i| !run.failed(*i)).collect();
        let seconds = |i: usize| run.mean(i, |r| r.seconds);
        // The moment at which the first method is done: all have a value there.
        let until = rivals.iter().chain([&fab]).map(|i| seconds(*i)).fold(f64::INFINITY, f64::min);
        let at = |i: usize| value_at(&run.curve(i, "seconds", ACCURACY), until);
        let rival = rivals
            .iter()
            .map(|i| (*i, at(*i)))
            .filter(|r| r.1.is_finite())
            .max_by(|a, b| a.1.total_cmp(&b.1));
        let (rival, there) = rival.ok_or("no baseline that was run to its end has a curve in time")?;
        all += 1;
        if at(fab) > there {
            won.push(cr.clone());
        }
        texts.push(format!(
            "cr={cr}, after {}: FAB {:.2} %, {} {there:.2} %",
            quantity("seconds", until),
            at(fab),
            run.name(rival)
        ));
    }
    let verdict = match won.len() {
        _ if all == 0 => return Err("nothing was run".into()),
        w if w == all => Holds,
        0 => DoesNotHold,
        _ => HoldsOnlyUnder(format!("cr = {}", won.join(", "))),
    };
    Ok((
        verdict,
        list(texts),
        "mean test accuracy when the first of the methods has done its iterations; seconds of iterations on \
        this machine"
            .into(),
    ))
}

/// All degrade as ρ falls, FAB the least.
pub fn c4(run: &Run<'_>) -> Judged {
    let (all, _) = sound_sweeps(run, "problem.rho")?;
    let fall = |s: &Sweep| last(run, s.ends().1, ACCURACY) - last(run, s.ends().0, ACCURACY);
    let fab = best_fab(run, &all)?;
    let rivals: Vec<&Sweep> = all.iter().filter(|s| s.is_baseline(run)).collect();
    if rivals.is_empty() {
        return Err("no baseline was run to its ends at two values of ρ".into());
    }
    let least = rivals.iter().all(|s| fall(fab) < fall(s));
    let degrade = fall(fab) > 0.0 && rivals.iter().all(|s| fall(s) > 0.0);
    let text = list(all.iter().map(|s| format!("{} {:+.2} points", s.name, -fall(s))));
    let verdict = match (degrade, least) {
        (true, true) => Holds,
        (false, true) => HoldsOnlyUnder("\"FAB the least\": not all degrade".into()),
        (true, false) => HoldsOnlyUnder("\"all degrade\": FAB does not degrade the least".into()),
        _ => DoesNotHold,
    };
    let (low, high) = (fab.at[0].0, fab.at[fab.at.len() - 1].0);
    Ok((
        verdict,
        text,
        format!("change of the final accuracy from ρ = {high} to ρ = {low}; FAB is {}", fab.name),
    ))
}

/// Holds, holds only for some methods (where others diverged at most for some), or for none.
fn for_these(good: &[&Sweep], all: &[Sweep], lost: bool) -> Verdict {
    match good.len() {
        n if n == all.len() && !lost => Holds,
        0 => DoesNotHold,
        _ => HoldsOnlyUnder(list(good.iter().map(|s| s.name.clone()))),
    }
}

/// ρ hardly changes memory.
pub fn c5(run: &Run<'_>) -> Judged {
    let all = sweeps(run, "problem.rho")?;
    let held = |i: usize| run.mean(i, |r| r.state_bytes as f64);
    let spread = |s: &Sweep| {
        let sizes = s.at.iter().map(|(_, i)| held(*i));
        let (least, most) = sizes.fold((f64::INFINITY, 0.0f64), |(a, b), v| (a.min(v), b.max(v)));
        (most - least) / most
    };
    let text = list(all.iter().map(|s| {
        format!("{} {:.2} % of {}", s.name, 100.0 * spread(s), quantity("state_bytes", held(s.ends().0)))
    }));
    let flat: Vec<&Sweep> = all.iter().filter(|s| spread(s) < 0.05).collect();
    Ok((
        for_these(&flat, &all, false),
        text,
        "largest difference of the state's memory between values of ρ (the data is the same); hardly means \
        by less than 5 %"
            .into(),
    ))
}

/// ν hardly changes the peak accuracy.
pub fn c6(run: &Run<'_>) -> Judged {
    let (all, lost) = sound_sweeps(run, "graph.nu")?;
    let top =
        |i: usize| run.curve(i, "iteration", ACCURACY).iter().map(|p| p.y).fold(f64::NEG_INFINITY, f64::max);
    let spread = |s: &Sweep| {
        let tops: Vec<f64> = s.at.iter().map(|(_, i)| top(*i)).collect();
        tops.iter().copied().fold(f64::NEG_INFINITY, f64::max)
            - tops.iter().copied().fold(f64::INFINITY, f64::min)
    };
    if !all.iter().all(|s| spread(s).is_finite()) {
        return Err("there are no accuracy curves".into());
    }
    let text = list(all.iter().map(|s| format!("{} {:.2} points", s.name, spread(s))));
    let flat: Vec<&Sweep> = all.iter().filter(|s| spread(s) <= 1.0).collect();
    Ok((
        for_these(&flat, &all, lost),
        text,
        "difference of the highest accuracy along the mean curves between values of ν; hardly means by 1 \
        point at most"
            .into(),
    ))
}

/// Denser is steadier and costs more.
pub fn c7(run: &Run<'_>) -> Judged {
    let (all, lost) = sound_sweeps(run, "graph.nu")?;
    let cost = |i: usize| run.mean(i, |r| r.bytes as f64 / r.iterations.max(1) as f64);
    // Mean step between evaluations in the second half, where the curves are flat.
    let wobble = |i: usize| {
        let curve = run.curve(i, "iteration", ACCURACY);
        let late = &curve[curve.len() / 2..];
        late.windows(2).map(|w| (w[1].y - w[0].y).abs()).sum::<f64>() / late.len().saturating_sub(1) as f64
    };
    if !all.iter().flat_map(|s| &s.at).all(|(_, i)| wobble(*i).is_finite()) {
        return Err("the curves have too few evaluations to see how steady they are".into());
    }
    let dearer = all.iter().all(|s| cost(s.ends().1) > cost(s.ends().0));
    let steadier: Vec<&Sweep> = all.iter().filter(|s| wobble(s.ends().1) < wobble(s.ends().0)).collect();
    let text = list(all.iter().map(|s| {
        let (low, high) = s.ends();
        let bytes = |i: usize| quantity("bytes_per_iteration", cost(i));
        format!(
            "{} wobble {:.3} to {:.3} points, {} to {}",
            s.name,
            wobble(low),
            wobble(high),
            bytes(low),
            bytes(high)
        )
    }));
    let verdict = match (dearer, steadier.len()) {
        (true, s) if s == all.len() && !lost => Holds,
        (true, 0) => HoldsOnlyUnder("\"costs more\": no method is steadier".into()),
        (true, _) => HoldsOnlyUnder(list(steadier.iter().map(|s| s.name.clone()))),
        _ => DoesNotHold,
    };
    Ok((
        verdict,
        text,
        "from the smallest to the largest ν: mean change of the accuracy between evaluations in the second \
        half, bytes an iteration"
            .into(),
    ))
}

/// FAB communicates most.
pub fn c8(run: &Run<'_>) -> Judged {
    let cost = |i: usize| run.mean(i, |r| r.bytes as f64 / r.iterations.max(1) as f64);
    let (mut holds, mut texts) = (true, Vec::new());
    for cell in run.cells() {
        let fab = cell
            .series
            .iter()
            .copied()
            .filter(|i| run.algorithm(*i) == "fab")
            .map(cost)
            .fold(f64::INFINITY, f64::min);
        let rival = cell
            .series
            .iter()
            .copied()
            .filter(|i| run.algorithm(*i) != "fab")
            .max_by(|a, b| cost(*a).total_cmp(&cost(*b)));
        let Some(rival) = rival.filter(|_| fab.is_finite()) else { continue };
        holds &= fab > cost(rival);
        let bytes = |v: f64| quantity("bytes_per_iteration", v);
        texts.push(
            format!("{} FAB {}, {} {}", cell.name, bytes(fab), run.name(rival), bytes(cost(rival)))
                .trim()
                .to_string(),
        );
    }
    if texts.is_empty() {
        return Err("FAB and a baseline were not run side by side".into());
    }
    Ok((
        if holds { Holds } else { DoesNotHold },
        list(texts),
        "bytes an iteration over all links, against the baseline that sends most".into(),
    ))
}

/// Parameters of an MLP 784-h-10.
fn parameters(hidden: f64) -> f64 {
    785.0 * hidden + 10.0 * (hidden + 1.0)
}

/// Communication, memory and time grow linearly with the model.
pub fn c10(run: &Run<'_>) -> Judged {
    let all: Vec<Sweep> = sweeps(run, "problem.hidden")?.into_iter().filter(|s| s.at.len() > 2).collect();
    if all.is_empty() {
        return Err("fewer than three sizes of the hidden layer were run".into());
    }
    let memory = |i: usize| {
        run.mean(i, |r| if r.memory.peak_bytes > 0 { r.memory.peak_bytes } else { r.state_bytes } as f64)
    };
    let per = |i: usize, of: f64| of / run.iterations(i).max(1.0);
    let costs: [(&str, &dyn Fn(usize) -> f64); 3] = [
        ("bytes", &|i| per(i, run.mean(i, |r| r.bytes as f64))),
        ("memory", &memory),
        ("time", &|i| per(i, run.mean(i, |r| r.seconds))),
    ];
    let (mut straight, mut texts) = (Vec::new(), Vec::new());
    for (name, cost) in costs {
        let mut worst = 0.0f64;
        for s in &all {
            let points: Vec<(f64, f64)> = s.at.iter().map(|(h, i)| (parameters(*h), cost(*i))).collect();
            let most = points.iter().map(|p| p.1).fold(0.0, f64::max);
            let line = fit(&points).ok_or("a cost is not finite")?;
            let off = line.rms / most;
            worst = worst.max(if line.slope > 0.0 { off } else { f64::INFINITY });
            texts.push(format!("{}, {name}: off a line by {:.1} %", s.name, 100.0 * off));
        }
        if worst < 0.05 {
            straight.push(name);
        }
    }
    let verdict = match straight.len() {
        3 => Holds,
        0 => DoesNotHold,
        _ => HoldsOnlyUnder(straight.join(" and ")),
    };
    let reading = "rms distance from the best straight line against the number of parameters, in parts of \
        the largest value; linear means below 5 %, rising. Memory is the measured peak where there is one, \
        else the state's";
    Ok((verdict, list(texts), reading.into()))
}
