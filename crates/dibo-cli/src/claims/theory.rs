//! T1, T2, T4 and T5: what the theorems say.
use super::Judged;
use super::data::{Fit, Run, power};
use crate::report::claims::Verdict::{DoesNotHold, Holds};

/// Series with their own λ for each K, and a number of each: fitted as a power of K.
fn over_k(run: &Run<'_>, of: impl Fn(usize) -> f64) -> Result<(Fit, usize), String> {
    let series = run.series(|i| run.text(i, "algorithm.penalty_form") == "written" && run.runs(i).all(|r| r.outcome == "finished"));
    let points: Vec<(f64, f64)> = series.iter().filter_map(|i| Some((run.number(*i, "run.iterations")?, of(*i)))).collect();
    let schedule = series.iter().all(|i| {
        let (Some(k), Some(lambda)) = (run.number(*i, "run.iterations"), run.number(*i, "algorithm.lambda")) else { return false };
        (lambda / k.cbrt() - 1.0).abs() < 0.01
    });
    let decades = points.iter().map(|p| p.0).fold(0.0, f64::max) / points.iter().map(|p| p.0).fold(f64::INFINITY, f64::min);
    if points.len() < 4 || decades.is_nan() || decades < 10.0 || !schedule {
        return Err("this needs runs of at least four lengths K over a factor of ten, each with λ = K^⅓".into());
    }
    power(&points).map(|fit| (fit, points.len())).ok_or_else(|| "a value is zero or not finite".into())
}

pub fn t1(run: &Run<'_>) -> Judged {
    let square = |i: usize| run.mean(i, |r| r.smallest.get("hypergradient").map_or(f64::NAN, |h| h * h));
    let (fit, count) = over_k(run, square)?;
    let verdict = if fit.slope < -2.0 / 3.0 + 0.05 { Holds } else { DoesNotHold };
    let reading = "exponent of K for the smallest ‖∇F*‖² of a run, ± its standard error, over all evaluations; a bound holds if the fall is at least as fast. The standard error is that of the fit alone, not over instances";
    Ok((verdict, format!("K^({:.3} ± {:.3}) over {count} lengths", fit.slope, fit.error), reading.into()))
}

pub fn t2(run: &Run<'_>) -> Judged {
    let of = |name: &str| over_k(run, |i| run.mean(i, |r| r.mean.get(name).copied().unwrap_or(f64::NAN)));
    let all = |i: usize| {
        run.mean(i, |r| ["consensus_x", "consensus_y", "consensus_z"].iter().map(|n| r.mean.get(*n).copied().unwrap_or(f64::NAN)).sum())
    };
    let (sum, count) = over_k(run, all)?;
    let (x, y) = (of("consensus_x")?.0, of("consensus_y")?.0);
    let verdict = if sum.slope < -1.0 + 0.05 { Holds } else { DoesNotHold };
    let number = format!("K^({:.3} ± {:.3}) over {count} lengths; x alone {:.2}, y alone {:.2}", sum.slope, sum.error, x.slope, y.slope);
    let reading = "exponent of K for the mean over a run of the consensus errors of x, y and z together (their minimum is 0 at the start, where all agents are equal); a bound holds if the fall is at least as fast. The standard error is that of the fit alone, not over instances";
    Ok((verdict, number, reading.into()))
}

pub fn t4(run: &Run<'_>) -> Judged {
    let series = run.series(|i| run.text(i, "algorithm.penalty_form") == "normalised" && run.runs(i).all(|r| r.outcome == "finished"));
    let mut points = Vec::new();
    for i in series {
        let bias = run.mean(i, |r| r.last.get("hypergradient").copied().unwrap_or(f64::NAN));
        // At rest: the last tenth of the run changes it by less than a per cent.
        let rest = (run.end(i, "hypergradient") / bias - 1.0).abs() < 0.01;
        if !rest {
            return Err(format!("the run with λ = {} has not come to rest", run.text(i, "algorithm.lambda")));
        }
        points.extend(run.number(i, "algorithm.lambda").map(|lambda| (lambda, bias)));
    }
    let fit = power(&points).ok_or("this needs long runs with at least three penalties")?;
    let verdict = if fit.slope < -0.95 { Holds } else { DoesNotHold };
    let reading = "exponent of λ for ‖∇F*‖ where long runs come to rest (the last tenth changes it by less than 1 %)";
    Ok((verdict, format!("λ^({:.3} ± {:.3}) over {} penalties", fit.slope, fit.error, points.len()), reading.into()))
}

pub fn t5(run: &Run<'_>) -> Judged {
    let column = run.curves.metrics.iter().position(|m| m == "tracking_gap").ok_or("no method with trackers was run")?;
    let sound = |series: usize, seed: u64| run.runs(series).any(|r| r.seed == seed && r.outcome != "diverged");
    let rows = run.curves.rows.iter().filter(|r| sound(r.series, r.seed));
    let largest = rows.filter_map(|r| r.values.get(column)).copied().filter(|v| !v.is_nan()).fold(f64::NAN, f64::max);
    if largest.is_nan() {
        return Err("no method with trackers was run".into());
    }
    let reading = "largest |Σt − Σd| / Σ‖d‖ over all kept evaluations. The averaged dynamics with α_k and β_k are not looked at in a run";
    Ok((if largest < 1e-12 { Holds } else { DoesNotHold }, format!("{largest:.1e}"), reading.into()))
}
