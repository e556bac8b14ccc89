//! C2, C4 to C8 and C10: hyper-cleaning in time, over unlike agents, networks and model sizes.
use super::bounds::*;
use super::learning::{ACCURACY, baselines, chosen, corrupt, fabs, last, rates};
use dibo_report::judge::{Judged, Margin, Run, fit, list};
use dibo_report::report::average::Point;
use dibo_report::report::words::{self, quantity};

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
        let name = words::labelled(&run.manifest.series[i], |swept| swept == key);
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

/// FAB's sweep with the least validation loss at the end, over all values.
fn best_fab<'a>(run: &Run<'_>, all: &'a [Sweep]) -> Result<&'a Sweep, String> {
    let mean = |s: &Sweep| s.at.iter().map(|(_, i)| last(run, *i, "loss")).sum::<f64>() / s.at.len() as f64;
    let fab = all.iter().filter(|s| s.is_fab(run)).min_by(|a, b| mean(a).total_cmp(&mean(b)));
    fab.ok_or("FAB was not run to its ends with a moving upper variable at two values".into())
}

/// The last value of a curve at or before x.
fn value_at(curve: &[Point], x: f64) -> f64 {
    curve.iter().take_while(|p| p.x <= x).last().map_or(f64::NAN, |p| p.y)
}

/// FAB above all baselines in time.
pub fn c2(run: &Run<'_>) -> Judged {
    let (mut texts, mut margins) = (Vec::new(), Vec::new());
    for cr in rates(run)? {
        let here = |i: &usize| corrupt(run, *i, cr);
        let ours: Vec<usize> = fabs(run, true).into_iter().filter(here).collect();
        if ours.is_empty() {
            return Err("FAB was not run".into());
        }
        let Some((fab, _)) = chosen(run, ours.into_iter()) else {
            margins.push(Margin::fact(format!("cr = {cr}"), false));
            texts.push(format!("cr={cr}: FAB diverged"));
            continue;
        };
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
        margins.push(Margin::new(format!("cr = {cr}"), at(fab) - there).unit("points"));
        texts.push(format!(
            "cr={cr}, after {}: FAB {:.2} %, {} {there:.2} %",
            quantity("seconds", until),
            at(fab),
            run.name(rival)
        ));
    }
    if margins.is_empty() {
        return Err("nothing was run".into());
    }
    Ok((
        margins,
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
    let least = |of: &mut dyn Iterator<Item = f64>| of.fold(f64::INFINITY, f64::min);
    let degrade = least(&mut rivals.iter().map(|s| fall(s)).chain([fall(fab)]));
    let lead = least(&mut rivals.iter().map(|s| fall(s) - fall(fab)));
    let text = list(all.iter().map(|s| format!("{} {:+.2} points", s.name, -fall(s))));
    let margins = vec![
        Margin::new("“all degrade”", degrade).unit("points"),
        Margin::new("“FAB the least”", lead).unit("points"),
    ];
    let (low, high) = (fab.at[0].0, fab.at[fab.at.len() - 1].0);
    Ok((
        margins,
        text,
        format!("change of the final accuracy from ρ = {high} to ρ = {low}; FAB is {}", fab.name),
    ))
}

/// One margin for each of these methods, and one against the claim where others diverged.
fn for_these(all: &[Sweep], lost: bool, margin: impl Fn(&Sweep) -> f64) -> Vec<Margin> {
    let each = all.iter().map(|s| Margin::new(s.name.clone(), margin(s)));
    each.chain(lost.then(|| Margin::fact("the methods that diverged", false))).collect()
}

/// ρ hardly changes memory.
pub fn c5(run: &Run<'_>) -> Judged {
    let all = sweeps(run, "problem.rho")?;
    let held = |i: usize| run.mean(i, |r| r.memory.peak_bytes as f64);
    if all.iter().flat_map(|s| &s.at).any(|(_, i)| run.runs(*i).any(|r| r.memory.peak_bytes == 0)) {
        return Err("the peak memory was not measured: runs went side by side (run.alone = true)".into());
    }
    let spread = |s: &Sweep| {
        let sizes = s.at.iter().map(|(_, i)| held(*i));
        let (least, most) = sizes.fold((f64::INFINITY, 0.0f64), |(a, b), v| (a.min(v), b.max(v)));
        (most - least) / most
    };
    let text = list(all.iter().map(|s| {
        format!("{} {:.2} % of {}", s.name, 100.0 * spread(s), quantity("peak_bytes", held(s.ends().0)))
    }));
    Ok((
        for_these(&all, false, |s| MEMORY_SAME - spread(s)),
        text,
        "largest difference of the measured peak memory between values of ρ; hardly means by less than 5 %"
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
    Ok((
        for_these(&all, lost, |s| PEAK_SAME - spread(s)),
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
    let gain = |s: &Sweep| (wobble(s.ends().0) / wobble(s.ends().1)).ln();
    let growth = |s: &Sweep| (cost(s.ends().1) / cost(s.ends().0)).ln();
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
    let steadier = for_these(&all, lost, gain).into_iter().map(|m| m.only_if(dearer));
    let least = all.iter().map(growth).fold(f64::INFINITY, f64::min);
    let dear = Margin::new("“costs more”", least).by_construction();
    Ok((
        steadier.chain([dear]).collect(),
        text,
        "from the smallest to the largest ν: mean change of the accuracy between evaluations in the second \
        half, bytes an iteration"
            .into(),
    ))
}

/// FAB communicates most.
pub fn c8(run: &Run<'_>) -> Judged {
    let cost = |i: usize| run.mean(i, |r| r.bytes as f64 / r.iterations.max(1) as f64);
    let (mut margins, mut texts) = (Vec::new(), Vec::new());
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
        margins.push(Margin::ratio(cell.name.clone(), cost(rival), fab).by_construction());
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
        margins,
        list(texts),
        "bytes an iteration over all links, against the baseline that sends most: what a method sends \
        follows from its updates"
            .into(),
    ))
}

/// Parameters of an MLP 784-h-10.
fn parameters(hidden: f64) -> f64 {
    785.0 * hidden + 10.0 * (hidden + 1.0)
}

/// A law of growth and its name.
type Law = (&'static str, fn(f64) -> f64);

/// Laws that growth may follow instead of a line.
const LAWS: [Law; 3] = [("√p", f64::sqrt), ("log p", f64::ln), ("p^1.5", |p| p.powf(1.5))];

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
    let (mut margins, mut texts) = (Vec::new(), Vec::new());
    for (name, cost) in costs {
        let mut worst = f64::INFINITY;
        for s in &all {
            let points: Vec<(f64, f64)> = s.at.iter().map(|(h, i)| (parameters(*h), cost(*i))).collect();
            let most = points.iter().map(|p| p.1).fold(0.0, f64::max);
            let off = |law: fn(f64) -> f64| {
                let line = fit(&points.iter().map(|(p, c)| (law(*p), c / most)).collect::<Vec<_>>());
                line.map(|line| (line.rms.max(1e-9), line.slope))
            };
            let (line, slope) = off(|p| p).ok_or("a cost is not finite")?;
            let others = LAWS.iter().filter_map(|(law, of)| Some((*law, off(*of)?.0)));
            let (law, rival) = others.min_by(|a, b| a.1.total_cmp(&b.1)).ok_or("a cost is not finite")?;
            worst = worst.min(if slope > 0.0 { (rival / line).ln() } else { f64::NEG_INFINITY });
            texts.push(format!(
                "{}, {name}: off a + b·p by {:.2} %, off a + b·{law} by {:.2} %",
                s.name,
                100.0 * line,
                100.0 * rival
            ));
        }
        margins.push(Margin::new(name, worst).unit("in ln"));
    }
    let reading = "rms distance from the best fit against the number p of parameters, in parts of the \
        largest value: linear means rising, and nearer to a + b·p than to the best of √p, log p and p^1.5. \
        Memory is the measured peak where there is one, else the state's";
    Ok((margins, list(texts), reading.into()))
}

#[cfg(test)]
mod tests {
    /// 784 × 128 weights and 128 biases, 128 × 10 weights and 10 biases.
    #[test]
    fn parameters_are_weights_and_biases() {
        assert_eq!(super::parameters(128.0), 101_770.0);
    }
}
