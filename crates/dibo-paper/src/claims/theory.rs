//! T1 to T5: what the theorems say; G1 and G2: what a growing penalty gains.
use super::bounds::*;
use dibo_report::judge::{Fit, Judged, Margin, Run, over_instances, power};
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

/// The starts that were run: warm, with y and z at their solutions for x⁰ as the theorem asks, and from 0.
fn starts(run: &Run<'_>) -> Vec<(&'static str, bool)> {
    let written = |warm: bool| {
        run.series(|i| {
            run.text(i, "algorithm.penalty_form") == "written"
                && (run.text(i, "problem.start") == "warm") == warm
        })
    };
    let all = [("warm start", true), ("y and z from 0", false)];
    all.into_iter().filter(|(_, warm)| !written(*warm).is_empty()).collect()
}

/// FAB's runs with the theorem's own λ for each K.
fn over_k(run: &Run<'_>, warm: bool, of: &dyn Fn(&RunRecord) -> f64) -> Result<Exponent, String> {
    let series = finished(run, |i| {
        run.text(i, "algorithm.penalty_form") == "written" && (run.text(i, "problem.start") == "warm") == warm
    })?;
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

/// Which of the theorem's conditions runs meet.
const CONDITIONS: &str = "Of the theorem's conditions λ = K^⅓ and η in proportion to K^−⅓ hold, and with a \
    warm start that y and z start at their solutions for x⁰; the constant of the steps is far above the \
    proved one (`dibo check` says by how much)";

/// One exponent for each start that was run.
fn for_each_start(
    run: &Run<'_>,
    bound: f64,
    words: &dyn Fn(bool) -> Result<(Exponent, String), String>,
) -> Result<(Vec<Margin>, String), String> {
    let (mut margins, mut texts) = (Vec::new(), Vec::new());
    for (start, warm) in starts(run) {
        let (exponent, more) = words(warm)?;
        margins.push(Margin::new(start, bound + RATE_SLACK - exponent.fit.slope));
        texts.push(format!("{start}: {}{more}", exponent.words()));
    }
    if margins.is_empty() {
        return Err("FAB was not run with directions as written".into());
    }
    Ok((margins, texts.join("; ")))
}

pub fn t1(run: &Run<'_>) -> Judged {
    let square = |r: &RunRecord| r.smallest.get("hypergradient").map_or(f64::NAN, |h| h * h);
    let (margins, number) =
        for_each_start(run, -2.0 / 3.0, &|warm| Ok((over_k(run, warm, &square)?, String::new())))?;
    let reading = format!(
        "exponent of K for the smallest ‖∇F*‖² of a run over all evaluations, −2/3 or less within 0.05; \
        {ERRORS}. {CONDITIONS}"
    );
    Ok((margins, number, reading))
}

pub fn t2(run: &Run<'_>) -> Judged {
    let of =
        |r: &RunRecord| ["consensus_x", "consensus_y", "consensus_z"].iter().map(|n| mean_of(r, n)).sum();
    let (margins, number) = for_each_start(run, -1.0, &|warm| {
        let alone = |name| over_k(run, warm, &|r| mean_of(r, name)).map(|e| e.fit.slope);
        let (x, y) = (alone("consensus_x")?, alone("consensus_y")?);
        Ok((over_k(run, warm, &of)?, format!(", x alone {x:.2}, y alone {y:.2}")))
    })?;
    let reading = format!(
        "exponent of K for the mean over a run of the consensus errors of x, y and z together (their \
        minimum is 0 at the start, where all agents are equal); {ERRORS}. It is steeper than −1 where the \
        errors follow the steps: they are of size (η·direction)², and η² alone gives K^−2/3 on top of \
        directions that die out. {CONDITIONS}"
    );
    Ok((margins, number, reading))
}

pub fn t3(run: &Run<'_>) -> Judged {
    let series = finished(run, |i| run.algorithm(i) == "push-pull")?;
    let gradient = over_lengths(run, &series, &|r| mean_of(r, "gradient_squared"))?;
    let consensus = over_lengths(run, &series, &|r| mean_of(r, "consensus_x"))?;
    let margin = |what, e: &Exponent| Margin::new(what, -1.0 + RATE_SLACK - e.fit.slope);
    let margins = vec![margin("gradient", &gradient), margin("consensus", &consensus)];
    let number = format!("mean ‖∇F‖²: {}; mean consensus error: {}", gradient.words(), consensus.words());
    let reading = format!(
        "one constant step for all K, where gradients are still far above rounding; {ERRORS}. Near a \
        strict minimum convergence is linear: then the sums over k stay bounded and the means fall like \
        1/K by themselves"
    );
    Ok((margins, number, reading))
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
        let name = format!("{} K = {}", run.text(i, "algorithm.group"), run.words(i, "run.iterations"))
            .trim()
            .to_string();
        let at = all.iter().position(|c| c.name == name).unwrap_or_else(|| {
            all.push(Contest { name, fixed: Vec::new(), growing: Vec::new(), tried: false });
            all.len() - 1
        });
        let grows = run.value(i, "algorithm.lambda").is_some_and(|l| l.get("power").is_some());
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
    margin: impl Fn(&str, f64, f64) -> Margin,
    reading: &str,
) -> Judged {
    let all = contests(run, metric, upwards);
    if all.is_empty() {
        return Err("this needs runs with fixed penalties and with schedules".into());
    }
    let best = |c: &Contest| c.growing.first().copied();
    let lambda = |i: usize| run.words(i, "algorithm.lambda").replace(' ', "");
    let line = |c: &Contest| {
        let (f, fi) = c.fixed[0];
        let schedule = best(c).map_or("every schedule diverges".into(), |(g, i)| {
            format!("schedule {} gives {g:.3e}", lambda(i))
        });
        format!("{}: fixed λ = {} gives {f:.3e}, {schedule}", c.name, lambda(fi))
    };
    let margin = |c: &Contest| match best(c) {
        Some((growing, _)) => margin(&c.name, growing, c.fixed[0].0),
        None => Margin::fact(c.name.clone(), false),
    };
    let margins = all.iter().map(margin).collect();
    Ok((margins, all.iter().map(line).collect::<Vec<_>>().join("; "), reading.into()))
}

pub fn g1(run: &Run<'_>) -> Judged {
    let reading = "relative error at the end, mean over seeds; the fixed λ is the best of the grid for that \
        K, chosen afterwards. A schedule gains if its error is lower by more than 5 %";
    let margin = |what: &str, growing, fixed| Margin::ratio(what, growing, GROWING_ERROR * fixed);
    growing(run, "relative_error", false, margin, reading)
}

pub fn g2(run: &Run<'_>) -> Judged {
    let reading = "test accuracy of the averaged model at the end, mean over seeds; a schedule gains if it \
        is higher by more than 0.2 points";
    let margin =
        |what: &str, growing, fixed| Margin::new(what, growing - fixed - GROWING_POINTS).unit("points");
    growing(run, "test_accuracy", true, margin, reading)
}

pub fn t4(run: &Run<'_>) -> Judged {
    let series = finished(run, |i| run.text(i, "algorithm.penalty_form") == "normalised")?;
    let mut points = Vec::new();
    for &i in &series {
        let bias = run.mean(i, |r| r.last.get("hypergradient").copied().unwrap_or(f64::NAN));
        // At rest: the last tenth of the run changes it by less than a per cent.
        let rest = (run.end(i, "hypergradient") / bias - 1.0).abs() < 0.01;
        if !rest {
            return Err(format!(
                "the run with λ = {} has not come to rest",
                run.words(i, "algorithm.lambda")
            ));
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
    let margin = Margin::new("", -1.0 + RATE_SLACK - fit.slope);
    let reading =
        "exponent of λ for ‖∇F*‖ where long runs come to rest (the last tenth changes it by less than 1 %)";
    Ok((
        vec![margin],
        format!("λ^({:.3} ± {:.3}) over {} penalties{each}", fit.slope, fit.error, points.len()),
        reading.into(),
    ))
}

pub fn t5(run: &Run<'_>) -> Judged {
    // What was looked at after every single iteration.
    let all = run.series(|i| run.number(i, "run.every") == Some(1.0));
    if all.is_empty() {
        return Err("this needs runs that are looked at after every iteration (run.every = 1)".into());
    }
    // A sum bounds its largest part: the largest gap is not kept, the mean over all evaluations is.
    let largest = |metric: &str| {
        let of = |r: &RunRecord| r.mean.get(metric).map(|mean| mean * (r.iterations + 1) as f64);
        let sound = all.iter().flat_map(|i| run.runs(*i)).filter(|r| r.outcome != "diverged");
        sound.filter_map(of).filter(|v| !v.is_nan()).fold(f64::NAN, f64::max)
    };
    let (gap, dynamics) = (largest("tracking_gap"), largest("averaged_dynamics"));
    if gap.is_nan() {
        return Err("no method with trackers was run to its end".into());
    }
    let broken = run.manifest.runs.iter().any(|r| r.outcome == "broken");
    let more = if dynamics.is_nan() { String::new() } else { format!("; averaged dynamics {dynamics:.1e}") };
    let reading = "sum over all iterations, which bounds the largest, of |Σt − Σd| / Σ‖d‖; the averaged \
        dynamics with α_k and β_k are looked at with --watch theory";
    Ok((
        vec![Margin::new("", (EXACT / gap.max(dynamics)).ln()).unit("in ln").only_if(!broken)],
        format!("{gap:.1e}{more}{}", if broken { "; a run was seen to be broken" } else { "" }),
        reading.into(),
    ))
}
