//! T1 to T5: what the theorems say; G1 and G2: what a growing penalty gains.
use dibo_report::judge::{Fit, Judged, Run, list, over_instances, power};
use dibo_report::report::claims::Verdict::{DoesNotHold, Holds, HoldsOnlyUnder};
use dibo_report::results::RunRecord;

/// An exponent of K: the fit of the means, how many lengths, and the exponents of the instances with their
/// standard error.
struct Exponent {
    fit: Fit,
    lengths: usize,
    instances: Option<(f64, f64)>,
}

impl Exponent {
    fn words(&self) -> String {
        let each = self
            .instances
            .map_or(String::new(), |(mean, error)| format!("; instance by instance {mean:.3} ± {error:.3}"));
        format!("K^({:.3} ± {:.3}) over {} lengths{each}", self.fit.slope, self.fit.error, self.lengths)
    }
}

/// The series of a rate, all of whose runs must have done all their iterations.
fn finished(run: &Run<'_>, wanted: impl Fn(usize) -> bool) -> Result<Vec<usize>, String> {
    let series = run.series(wanted);
    match series.iter().find(|i| run.runs(**i).any(|r| r.outcome != "finished")) {
        Some(i) => Err(format!("not all runs of {} went to their end", run.manifest.series[*i].label)),
        None => Ok(series),
    }
}

/// A number of each run, fitted as a power of the run's length K.
fn over_lengths(run: &Run<'_>, series: &[usize], of: &dyn Fn(&RunRecord) -> f64) -> Result<Exponent, String> {
    let points: Vec<(f64, f64)> =
        series.iter().filter_map(|i| Some((run.number(*i, "run.iterations")?, run.mean(*i, of)))).collect();
    let span = points.iter().map(|p| p.0).fold(0.0, f64::max)
        / points.iter().map(|p| p.0).fold(f64::INFINITY, f64::min);
    if points.len() < 4 || span.is_nan() || span < 10.0 {
        return Err("this needs runs of at least four lengths K over a factor of ten".into());
    }
    let fit = power(&points).ok_or("a value is zero or not finite")?;
    let of_seed = |seed: &u64| {
        let point = |i: &usize| {
            Some((run.number(*i, "run.iterations")?, of(run.runs(*i).find(|r| r.seed == *seed)?)))
        };
        power(&series.iter().filter_map(point).collect::<Vec<_>>()).map(|f| f.slope)
    };
    let slopes: Vec<f64> = run.manifest.seeds.iter().filter_map(of_seed).collect();
    Ok(Exponent { fit, lengths: points.len(), instances: over_instances(&slopes) })
}

/// FAB's runs with the theorem's own λ for each K.
fn over_k(run: &Run<'_>, of: &dyn Fn(&RunRecord) -> f64) -> Result<Exponent, String> {
    let series = finished(run, |i| run.text(i, "algorithm.penalty_form") == "written")?;
    let schedule = series.iter().all(|i| {
        let (Some(k), Some(lambda)) = (run.number(*i, "run.iterations"), run.number(*i, "algorithm.lambda"))
        else {
            return false;
        };
        (lambda / k.cbrt() - 1.0).abs() < 0.01
    });
    if !schedule {
        return Err(
            "this needs runs of at least four lengths K over a factor of ten, each with λ = K^⅓".into()
        );
    }
    over_lengths(run, &series, of)
}

fn mean_of(r: &RunRecord, name: &str) -> f64 {
    r.mean.get(name).copied().unwrap_or(f64::NAN)
}

/// How an exponent is to be read.
const ERRORS: &str = "a bound holds if the fall is at least as fast. The first error is that of the fit to \
    the means, the second the standard error over instances";

pub fn t1(run: &Run<'_>) -> Judged {
    let exponent = over_k(run, &|r| r.smallest.get("hypergradient").map_or(f64::NAN, |h| h * h))?;
    let verdict = if exponent.fit.slope < -2.0 / 3.0 + 0.1 { Holds } else { DoesNotHold };
    let reading = format!(
        "exponent of K for the smallest ‖∇F*‖² of a run over all evaluations (−2/3 ± 0.1 where the \
        penalty's bias rules); {ERRORS}"
    );
    Ok((verdict, exponent.words(), reading))
}

pub fn t2(run: &Run<'_>) -> Judged {
    let sum =
        over_k(run, &|r| ["consensus_x", "consensus_y", "consensus_z"].iter().map(|n| mean_of(r, n)).sum())?;
    let (x, y) =
        (over_k(run, &|r| mean_of(r, "consensus_x"))?.fit, over_k(run, &|r| mean_of(r, "consensus_y"))?.fit);
    let verdict = if sum.fit.slope < -1.0 + 0.05 { Holds } else { DoesNotHold };
    let number = format!("{}; x alone {:.2}, y alone {:.2}", sum.words(), x.slope, y.slope);
    let reading = format!(
        "exponent of K for the mean over a run of the consensus errors of x, y and z together (their \
        minimum is 0 at the start, where all agents are equal); {ERRORS}. It is steeper than −1 where the \
        errors follow the steps: they are of size (η·direction)², and η² alone gives K^−2/3 on top of \
        directions that die out"
    );
    Ok((verdict, number, reading))
}

pub fn t3(run: &Run<'_>) -> Judged {
    let series = finished(run, |i| run.algorithm(i) == "push-pull")?;
    let gradient = over_lengths(run, &series, &|r| mean_of(r, "gradient_squared"))?;
    let consensus = over_lengths(run, &series, &|r| mean_of(r, "consensus_x"))?;
    let verdict = if gradient.fit.slope < -0.95 && consensus.fit.slope < -0.95 { Holds } else { DoesNotHold };
    let number = format!("mean ‖∇F‖²: {}; mean consensus error: {}", gradient.words(), consensus.words());
    Ok((
        verdict,
        number,
        format!(
            "one constant step for all K; {ERRORS}. Near a strict minimum convergence is linear, so the \
            sums over k stay bounded and the means fall like 1/K"
        ),
    ))
}

/// The series of one length and group: the metric at the end, best first, of fixed penalties and of
/// schedules; and whether schedules were tried, though they may all have diverged.
struct Contest {
    name: String,
    fixed: Vec<(f64, usize)>,
    growing: Vec<(f64, usize)>,
    tried: bool,
}

fn contests(run: &Run<'_>, metric: &str, upwards: bool) -> Vec<Contest> {
    let mut all: Vec<Contest> = Vec::new();
    for i in run.of("fab") {
        let end = run.mean(i, |r| r.last.get(metric).copied().unwrap_or(f64::NAN));
        let name = format!("{} K = {}", run.text(i, "algorithm.group"), run.text(i, "run.iterations"))
            .trim()
            .to_string();
        let at = all.iter().position(|c| c.name == name).unwrap_or_else(|| {
            all.push(Contest { name, fixed: Vec::new(), growing: Vec::new(), tried: false });
            all.len() - 1
        });
        let grows = run.text(i, "algorithm.lambda").contains("power");
        all[at].tried |= grows;
        let list = if grows { &mut all[at].growing } else { &mut all[at].fixed };
        if end.is_finite() && !run.failed(i) {
            list.push((end, i));
            list.sort_by(|a, b| if upwards { b.0.total_cmp(&a.0) } else { a.0.total_cmp(&b.0) });
        }
    }
    all.retain(|c| !c.fixed.is_empty() && c.tried);
    all
}

/// Compares the best of both kinds in each contest.
fn growing(
    run: &Run<'_>,
    metric: &str,
    upwards: bool,
    better: impl Fn(f64, f64) -> bool,
    reading: &str,
) -> Judged {
    let all = contests(run, metric, upwards);
    if all.is_empty() {
        return Err("this needs runs with fixed penalties and with schedules".into());
    }
    let best = |c: &Contest| c.growing.first().copied();
    let won: Vec<&Contest> =
        all.iter().filter(|c| best(c).is_some_and(|g| better(g.0, c.fixed[0].0))).collect();
    let lambda = |i: usize| run.text(i, "algorithm.lambda").replace(' ', "");
    let line = |c: &Contest| {
        let (f, fi) = c.fixed[0];
        let schedule = best(c).map_or("every schedule diverges".into(), |(g, i)| {
            format!("schedule {} gives {g:.3e}", lambda(i))
        });
        format!("{}: fixed λ = {} gives {f:.3e}, {schedule}", c.name, lambda(fi))
    };
    let verdict = match won.len() {
        0 => DoesNotHold,
        n if n == all.len() => Holds,
        _ => HoldsOnlyUnder(list(won.iter().map(|c| c.name.clone()))),
    };
    Ok((verdict, all.iter().map(line).collect::<Vec<_>>().join("; "), reading.into()))
}

pub fn g1(run: &Run<'_>) -> Judged {
    let reading = "relative error at the end, mean over seeds; the fixed λ is the best of the grid for that \
        K, chosen afterwards. A schedule gains if its error is lower by more than 5 %";
    growing(run, "relative_error", false, |growing, fixed| growing < 0.95 * fixed, reading)
}

pub fn g2(run: &Run<'_>) -> Judged {
    let reading = "test accuracy of the averaged model at the end, mean over seeds; a schedule gains if it \
        is higher by more than 0.2 points";
    growing(run, "test_accuracy", true, |growing, fixed| growing > fixed + 0.2, reading)
}

pub fn t4(run: &Run<'_>) -> Judged {
    let series = finished(run, |i| run.text(i, "algorithm.penalty_form") == "normalised")?;
    let mut points = Vec::new();
    for &i in &series {
        let bias = run.mean(i, |r| r.last.get("hypergradient").copied().unwrap_or(f64::NAN));
        // At rest: the last tenth of the run changes it by less than a per cent.
        let rest = (run.end(i, "hypergradient") / bias - 1.0).abs() < 0.01;
        if !rest {
            return Err(format!("the run with λ = {} has not come to rest", run.text(i, "algorithm.lambda")));
        }
        points.extend(run.number(i, "algorithm.lambda").map(|lambda| (lambda, bias)));
    }
    let fit = power(&points).ok_or("this needs long runs with at least three penalties")?;
    let of_seed = |seed: &u64| {
        let last = |i: &usize| {
            run.runs(*i).find(|r| r.seed == *seed).and_then(|r| r.last.get("hypergradient").copied())
        };
        power(
            &series
                .iter()
                .filter_map(|i| Some((run.number(*i, "algorithm.lambda")?, last(i)?)))
                .collect::<Vec<_>>(),
        )
        .map(|f| f.slope)
    };
    let each = over_instances(&run.manifest.seeds.iter().filter_map(of_seed).collect::<Vec<_>>());
    let each =
        each.map_or(String::new(), |(mean, error)| format!("; instance by instance {mean:.3} ± {error:.3}"));
    let verdict = if fit.slope < -0.95 { Holds } else { DoesNotHold };
    let reading =
        "exponent of λ for ‖∇F*‖ where long runs come to rest (the last tenth changes it by less than 1 %)";
    Ok((
        verdict,
        format!("λ^({:.3} ± {:.3}) over {} penalties{each}", fit.slope, fit.error, points.len()),
        reading.into(),
    ))
}

pub fn t5(run: &Run<'_>) -> Judged {
    let column = run
        .curves
        .metrics
        .iter()
        .position(|m| m == "tracking_gap")
        .ok_or("no method with trackers was run")?;
    let sound =
        |series: usize, seed: u64| run.runs(series).any(|r| r.seed == seed && r.outcome != "diverged");
    let largest = |column: usize| {
        let rows = run.curves.rows.iter().filter(|r| sound(r.series, r.seed));
        let values = rows.filter_map(|r| r.values.get(column)).copied();
        values.filter(|v| !v.is_nan()).fold(f64::NAN, f64::max)
    };
    let gap = largest(column);
    if gap.is_nan() {
        return Err("no method with trackers was run to its end".into());
    }
    let dynamics = run.curves.metrics.iter().position(|m| m == "averaged_dynamics");
    let dynamics = dynamics.map(largest).filter(|r| !r.is_nan());
    let broken = run.manifest.runs.iter().find(|r| r.outcome == "broken");
    let more = dynamics.map_or(String::new(), |r| format!("; averaged dynamics {r:.1e}"));
    let reading = "largest |Σt − Σd| / Σ‖d‖ over all kept evaluations; the averaged dynamics with α_k and \
        β_k are looked at with --watch theory and run.every=1";
    Ok((
        if broken.is_none() && gap.max(dynamics.unwrap_or(0.0)) < 1e-12 { Holds } else { DoesNotHold },
        format!("{gap:.1e}{more}{}", broken.map_or("", |_| "; a run was seen to be broken")),
        reading.into(),
    ))
}
