//! P16 and P17: rings.
use dibo_report::judge::{Class, Judged, Margin, Run, fit, list, power};

/// For each n (growing) the fewest iterations over all steps with which every seed reached the target, and
/// that step.
fn best(run: &Run<'_>, blocks: bool) -> Vec<(f64, f64, f64)> {
    let mut found: Vec<(f64, f64, f64)> = Vec::new();
    for i in run.series(|i| (run.flag(i, "problem.blocks") == Some(true)) == blocks && run.all_reached(i)) {
        let (Some(n), Some(eta)) = (run.number(i, "problem.agents"), run.number(i, "algorithm.eta_x")) else {
            continue;
        };
        let new = (n, run.iterations(i), eta);
        match found.iter_mut().find(|f| f.0 == n) {
            Some(old) if old.1 <= new.1 => {}
            Some(old) => *old = new,
            None => found.push(new),
        }
    }
    found.sort_by(|a, b| a.0.total_cmp(&b.0));
    found
}

pub fn p16(run: &Run<'_>) -> Judged {
    let (turn, blocks) = (best(run, false), best(run, true));
    if blocks.len() < 3 {
        return Err("with patterns in blocks fewer than three sizes reached the target".into());
    }
    let points: Vec<(f64, f64)> = blocks.iter().map(|b| (b.0, b.1)).collect();
    let exponential: Vec<(f64, f64)> = points.iter().map(|(n, t)| (*n, t.ln())).collect();
    let (power, exponential) = (power(&points).ok_or("no fit")?, fit(&exponential).ok_or("no fit")?);
    let growth = blocks.windows(2).map(|w| (w[1].1 / w[0].1).ln()).fold(f64::INFINITY, f64::min);
    let flat = turn.len() >= 2 && turn.iter().all(|t| t.1 == turn[0].1);
    let polynomial = (exponential.rms / power.rms).ln();
    let each = blocks.iter().map(|(n, t, eta)| format!("T({n}) = {t:.0} at step {eta}"));
    let number = format!(
        "blocks: {}; power n^{:.2}±{:.2} (rms log residual {:.3}), exponential e^({:.3}·n) ({:.3}){}",
        list(each),
        power.slope,
        power.error,
        power.rms,
        exponential.slope,
        exponential.rms,
        turn.first().map_or(String::new(), |t| if flat {
            format!("; in turn: T = {:.0} for every n", t.1)
        } else {
            String::new()
        })
    );
    let reading = "with the patterns in turn the run is exactly that of five agents, whatever n is; in \
        blocks the largest step that a ring bears falls like n^−3, and T is that of the best step of each n \
        on a grid of ratio √2. At one common small step T does not depend on n";
    let mut margins =
        vec![Margin::new("patterns in blocks and each ring's best step", growth.min(polynomial))];
    if !turn.is_empty() {
        margins.push(Margin::fact("patterns in turn, as printed", !flat));
    }
    Ok((margins, number, reading.into()))
}

pub fn p17(run: &Run<'_>) -> Judged {
    let mut steps: Vec<(f64, Vec<(f64, usize)>)> = Vec::new();
    for i in run.of("fab") {
        let (Some(a), Some(eta)) = (run.number(i, "graph.weights"), run.number(i, "algorithm.eta_x")) else {
            continue;
        };
        match steps.iter_mut().find(|s| s.0 == eta) {
            Some(step) => step.1.push((a, i)),
            None => steps.push((eta, vec![(a, i)])),
        }
    }
    steps.retain(|s| s.1.len() > 1);
    if steps.is_empty() {
        return Err("fewer than two weights were run at one step".into());
    }
    let (mut margins, mut each) = (Vec::new(), Vec::new());
    for (eta, series) in &mut steps {
        series.sort_by(|a, b| a.0.total_cmp(&b.0));
        let reached = series.iter().all(|(_, i)| run.all_reached(*i));
        let gain = |w: &[(f64, usize)]| (run.iterations(w[0].1) / run.iterations(w[1].1)).ln();
        let gain = series.windows(2).map(gain).fold(f64::INFINITY, f64::min);
        margins.push(Margin::new(format!("step {eta}"), gain).unit("in ln").only_if(reached));
        let outcome = |a: f64, i: usize| match run.class(i) {
            Class::Converges => format!("T({a}) = {:.0}", run.iterations(i)),
            other => format!("a={a} {}", other.word()),
        };
        each.push(format!("step {eta}: {}", list(series.iter().map(|(a, i)| outcome(*a, *i)))));
    }
    Ok((
        margins,
        each.join("; "),
        "the weight belongs to the link i → i+1 and is used in both A and B; iterations to 1 %".into(),
    ))
}
