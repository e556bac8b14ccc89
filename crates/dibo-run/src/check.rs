//! What can be said before a run: is the network as the theory asks, what are the constants, which steps are
//! proved to work and which are known not to.
use crate::experiment::spec::Problem;
use crate::experiment::{Experiment, Setting};
use crate::report::plot;
use crate::report::words::number;
use anyhow::Result;
use dibo::algorithm::PenaltySteps;
use dibo::problem::{At, Bilevel, Constants, Penalty, estimate};
use dibo::rows::{Stack, Threads, Upper};
use dibo::theory::graph::{GraphConstants, constants};
use dibo::theory::problem::derived;
use dibo::theory::steps::{self, Condition, Net, Reading, binding};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// Refuses what cannot run and notes warnings in the settings.
pub fn before(experiment: &mut Experiment) -> Result<()> {
    let folder = experiment.folder.clone();
    // Algorithms share problems and graphs; each pair is looked at once.
    let mut seen = std::collections::BTreeSet::new();
    for setting in &experiment.settings {
        let shared = setting
            .series
            .settings
            .iter()
            .filter(|(key, _)| !key.starts_with("algorithm.") || *key == "algorithm.name");
        let shared: Vec<_> = shared.collect();
        let graph: Vec<_> = shared.iter().copied().filter(|(key, _)| *key != "algorithm.name").collect();
        let (new, new_graph) = (seen.insert(format!("{shared:?}")), seen.insert(format!("{graph:?}")));
        for seed in &experiment.seeds {
            if new {
                setting.check_needs(*seed, &folder)?;
            }
            if new_graph {
                setting.check_graph(*seed, &folder)?;
            }
        }
    }
    let seed = experiment.seeds[0];
    let mut known = Known::default();
    for setting in &mut experiment.settings {
        setting.series.warnings = warnings(setting, seed, &folder, &mut known)?;
    }
    Ok(())
}

/// What has been found out already: settings share problems and networks.
#[derive(Default)]
pub struct Known {
    growth: BTreeMap<String, f64>,
}

/// What is known to go wrong. Apart from lost weights that comes from closed forms, so only where the problem
/// has them.
pub fn warnings(setting: &Setting, seed: u64, folder: &Path, known: &mut Known) -> Result<Vec<String>> {
    if setting.algorithm.frozen_weights() {
        let graphs = setting.graphs(setting.agents(seed, folder)?, seed, folder)?;
        if constants(&graphs, setting.run.iterations.min(60)).lossy {
            return Ok(vec![
                "will not converge: it keeps the weights of iteration 0 while links come and go, so part of \
                every sum is lost"
                    .into(),
            ]);
        }
    }
    let Some(steps) = setting.algorithm.penalty_steps(0).filter(|_| setting.has_closed_forms()) else {
        return Ok(Vec::new());
    };
    let Problem::PolicyEvaluation(p) = setting.problem(seed, folder, &Threads::one())? else {
        return Ok(Vec::new());
    };
    let Some(c) = p.constants() else { return Ok(Vec::new()) };
    let mut all = steps::step_warnings(steps.eta, steps.g, c.sigma_max.unwrap_or(0.0), c.g_curvature);
    if all.is_empty() && setting.mixes_by_pulling() {
        let h = steps.eta[1].max(steps.eta[2]) * steps.g * c.g_curvature;
        all.extend(network_limit(setting, seed, folder, &c.kinds, h, known)?.map(|(rate, share)| {
            let eta = number(steps.eta[1].max(steps.eta[2]) * share);
            format!(
                "will diverge: on this network differences between agents grow by {rate:.4} an \
                iteration; eta_y and eta_z must be below {eta} here"
            )
        }));
    }
    Ok(all)
}

/// What may go wrong though no warning is sure: x, y and z together are stiffer than y and z alone, but their
/// coupling is not the same for all agents.
fn caution(setting: &Setting, seed: u64, folder: &Path, known: &mut Known) -> Result<Option<String>> {
    if setting.learns_plain_tau() {
        return Ok(Some(
            "may diverge: τ = x can fall below 0, where the lower level has no minimum; tau_form = \"exp\" \
            keeps it above"
                .into(),
        ));
    }
    let Some(steps) = setting
        .algorithm
        .penalty_steps(0)
        .filter(|_| setting.has_closed_forms() && setting.mixes_by_pulling())
    else {
        return Ok(None);
    };
    let Problem::PolicyEvaluation(p) = setting.problem(seed, folder, &Threads::one())? else {
        return Ok(None);
    };
    let Some(c) = p.constants() else { return Ok(None) };
    let limit = network_limit(setting, seed, folder, &c.kinds, joint_curvature(&*p, steps, &c.kinds), known)?;
    Ok(limit.map(|(_, share)| {
        format!("may diverge: close to what this network bears; {share:.2} times these steps are safer")
    }))
}

/// The largest step times curvature of an agent's x, y and z together: the spectral radius of diag(η)J, where
/// J is the derivative of FAB's directions. They are affine here, so differences give J exactly.
fn joint_curvature(problem: &dyn Bilevel<f64>, steps: PenaltySteps, kinds: &[usize]) -> f64 {
    let (upper, m) = (problem.upper(), problem.lower());
    let Upper::Shared(d) = upper else { return 0.0 };
    let (size, penalty) = (d + 2 * m, Penalty { f: steps.g / steps.lambda, g: steps.g });
    let eta = |r: usize| steps.eta[if r < d { 0 } else { 1 + usize::from(r >= d + m) }];
    let of_agent = |agent: usize| {
        let directions = |unit: Option<usize>| {
            let mut v: Stack<f64, 3> = Stack::zeros(1, &upper, &[m, m]);
            unit.into_iter().for_each(|c| v.shared.row_mut(0)[c] = 1.0);
            let mut out = v.clone();
            problem.penalty_directions(
                At { k: 0, owned: &[agent], threads: &Threads::one() },
                penalty,
                &v,
                &mut out,
            );
            out.shared.row(0)[..size].to_vec()
        };
        let rest = directions(None);
        let columns: Vec<Vec<f64>> =
            (0..size).map(|c| directions(Some(c)).iter().zip(&rest).map(|(a, b)| a - b).collect()).collect();
        let (mut v, mut radius) = ((0..size).map(|i| 1.0 + (i as f64).sin()).collect::<Vec<f64>>(), 0.0);
        for _ in 0..300 {
            let mut next = vec![0.0; size];
            columns
                .iter()
                .zip(&v)
                .for_each(|(column, x)| next.iter_mut().zip(column).for_each(|(n, c)| *n += c * x));
            next.iter_mut().enumerate().for_each(|(r, n)| *n *= eta(r));
            radius = next.iter().map(|n| n * n).sum::<f64>().sqrt();
            v = next.iter().map(|n| n / radius.max(f64::MIN_POSITIVE)).collect();
        }
        radius
    };
    // Agents of one kind are alike; a few kinds tell enough.
    let mut first: Vec<usize> = kinds.to_vec();
    first.sort_unstable();
    first.dedup();
    first.into_iter().take(8).map(of_agent).fold(0.0, f64::max)
}

/// Whether the network itself makes a step times curvature `h` unstable (the ring's cubic condition, on any
/// network): by what factor differences grow an iteration, and what share of the steps it bears. A growth
/// that the run is too short to show does not count.
fn network_limit(
    setting: &Setting,
    seed: u64,
    folder: &Path,
    kinds: &[usize],
    h: f64,
    known: &mut Known,
) -> Result<Option<(f64, f64)>> {
    let graphs = setting.graphs(setting.agents(seed, folder)?, seed, folder)?;
    let shared = |key: &str| key.starts_with("graph.") || key.starts_with("problem.");
    let place = |h: f64| {
        format!(
            "{seed} {:?} {h}",
            setting.series.settings.iter().filter(|(k, _)| shared(k)).collect::<Vec<_>>()
        )
    };
    let mut growth =
        |h: f64| *known.growth.entry(place(h)).or_insert_with(|| steps::growth(&graphs, kinds, h));
    let rate = growth(h);
    if setting.run.iterations as f64 * rate.ln() <= 14.0 {
        return Ok(None);
    }
    let (mut low, mut high) = (0.0, h);
    for _ in 0..8 {
        let middle = 0.5 * (low + high);
        if growth(middle) > 1.0 { high = middle } else { low = middle }
    }
    Ok(Some((rate, low / h)))
}

/// A page of text about an experiment.
pub fn explain(experiment: &Experiment) -> Result<String> {
    let mut text = format!("{}: {}\n", experiment.name, experiment.title);
    let (seed, folder) = (experiment.seeds[0], &experiment.folder);
    let mut said: BTreeMap<String, Place> = BTreeMap::new();
    let (mut known, mut warned) = (Known::default(), 0);
    let mut heading = String::new();
    for setting in &experiment.settings {
        setting.check(seed, folder)?;
        let key = setting.place_key();
        if !said.contains_key(&key) {
            said.insert(key.clone(), Place::new(setting, seed, folder)?);
        }
        let place = &said[&key];
        if heading != key {
            write!(text, "\n{}", place.text)?;
            heading = key;
        }
        writeln!(text, "- {}", setting.series.label)?;
        let found = warnings(setting, seed, folder, &mut known)?;
        for line in proofs(setting, place) {
            writeln!(text, "    {line}")?;
        }
        warned += usize::from(!found.is_empty());
        for warning in &found {
            writeln!(text, "    warning: {warning}")?;
        }
        if found.is_empty() {
            let exact = place.constants.as_ref().is_some_and(|c| c.exact);
            let unknown = match exact {
                false => " (without closed forms little is known)",
                _ if setting.mixes_by_pulling() || setting.series.algorithm == "centralized-fab" => "",
                _ => " (what its own way of mixing bears on this network is not computed)",
            };
            let practice =
                caution(setting, seed, folder, &mut known)?.unwrap_or(format!("nothing to warn of{unknown}"));
            writeln!(text, "    in practice: {practice}")?;
        }
    }
    match warned {
        0 => writeln!(text, "\nNothing to warn of.")?,
        _ => writeln!(text, "\n{warned} of {} settings carry a warning.", experiment.settings.len())?,
    }
    Ok(text)
}

/// A network with a problem: what all settings on them share.
struct Place {
    text: String,
    net: Option<Net>,
    constants: Option<Constants>,
}

impl Place {
    fn new(setting: &Setting, seed: u64, folder: &Path) -> Result<Self> {
        let agents = setting.agents(seed, folder)?;
        let graphs = setting.graphs(agents, seed, folder)?;
        let facts = constants(&graphs, setting.run.iterations.min(90));
        let mut text = network(&facts);
        let net = facts.mixing.as_ref().map(|m| Net::new(agents, m));
        let constants = match setting.problem(seed, folder, &Threads::one()) {
            Ok(problem) => Some(problem_constants(&problem)),
            Err(e) => {
                writeln!(text, "Problem: its constants are not estimated ({e:#}).")?;
                None
            }
        };
        if let Some(c) = &constants {
            text += &about_problem(c);
        }
        Ok(Place { text, net, constants })
    }
}

/// The constants of a problem: closed forms, else estimates.
pub fn problem_constants(problem: &Problem) -> Constants {
    match problem {
        Problem::PolicyEvaluation(p) => p.constants().unwrap_or_else(|| estimate(&**p as &dyn Bilevel<f64>)),
        Problem::Quadratic(p) => p.constants().unwrap_or_else(|| estimate(&**p as &dyn Bilevel<f64>)),
        Problem::Robust(p) => p.constants().unwrap_or_else(|| estimate(&**p as &dyn Bilevel<f64>)),
        Problem::Learning32(p) => estimate(&**p as &dyn Bilevel<f32>),
        Problem::Learning64(p) => estimate(&**p as &dyn Bilevel<f64>),
    }
}

fn network(g: &GraphConstants) -> String {
    let mut text = format!(
        "Network: {} agents, {:.1} links an iteration; smallest weights a = {}, b = {}.\n",
        g.agents,
        g.links,
        number(g.a),
        number(g.b)
    );
    let looked = if g.whole {
        format!("one period of {}", g.looked_at)
    } else {
        format!("{} iterations looked at", g.looked_at)
    };
    text += &match g.window {
        Some(1) => format!("  Strongly connected at every iteration ({looked}), as the theorems ask.\n"),
        Some(c) => {
            format!(
                "  Connected only over windows of C = {c} iterations ({looked}); the theorems' constants \
                are those of a window.\n"
            )
        }
        None => format!("  Not connected over any window of the {looked}: the theorems do not apply.\n"),
    };
    if g.lossy {
        text += "  Weights are lost: links that are down take their share with them, rows of A or columns \
            of B do not sum to 1. No theorem applies.\n";
    }
    let Some(m) = &g.mixing else { return text };
    let _ = writeln!(
        text,
        "  Diameter at most {}, edge-utility {} {}. n·α_k lies in [{}, {}], n·β_k in [{}, {}] (the worst \
        case aⁿ is {}).",
        m.diameter,
        if m.utility.exact { "exactly" } else { "at most" },
        m.utility.value,
        number(m.alpha.0),
        number(m.alpha.1),
        number(m.beta.0),
        number(m.beta.1),
        number(g.a.powi(g.agents as i32))
    );
    let window = if g.window == Some(1) {
        "an iteration".to_string()
    } else {
        format!("every {} iterations", g.window.unwrap_or(1))
    };
    let _ = writeln!(
        text,
        "  Disagreement: the lemmas promise 1 − c = 1 − {} (trackers 1 − e = 1 − {}) {window}; the worst \
        measured is {} ({}), and over a long stretch it is {} ({}) an iteration.",
        number(m.worst.c),
        number(m.worst.e),
        number(1.0 - m.worst.measured_c),
        number(1.0 - m.worst.measured_e),
        number(m.rate.0),
        number(m.rate.1)
    );
    text
}

fn about_problem(c: &Constants) -> String {
    let d = derived(c);
    let how = if c.exact {
        format!("closed forms ({})", c.region)
    } else {
        format!("estimated {} from a few agents, so too small rather than too large", c.region)
    };
    let single = c.l_single.map_or(String::new(), |l| format!(", single-level L = {}", number(l)));
    let mut text = format!(
        "Problem: μ = {}, L_f0 = {}, L_f1 = {}, L_f2 = {}, L_g1 = {}, L_g2 = {}{single}: {how}.\n",
        number(c.mu),
        number(c.l_f0),
        number(c.l_f1),
        number(c.l_f2),
        number(c.l_g1),
        number(c.l_g2)
    );
    if c.mu <= 0.0 {
        text +=
            "  The lower level is not strongly convex where it was looked at: the theorems do not apply.\n";
    } else {
        let _ = writeln!(
            text,
            "  So L_*1 = {}, L_*2 = {}, the penalty's bias is at most √C_gap/λ = {}/λ, and the lemmas need \
            λ ≥ {}.",
            number(d.l_star1),
            number(d.l_star2),
            number(d.c_gap.sqrt()),
            number(d.lambda)
        );
    }
    text
}

/// What the theorems say about a setting's steps.
fn proofs(setting: &Setting, place: &Place) -> Vec<String> {
    let (Some(net), Some(c)) = (&place.net, &place.constants) else { return Vec::new() };
    if c.mu <= 0.0 {
        return Vec::new();
    }
    if let Some(PenaltySteps { lambda, eta, g }) =
        setting.algorithm.penalty_steps(0).filter(|_| setting.series.algorithm == "fab")
    {
        let written = eta.map(|e| e * g / lambda);
        if written[0] == 0.0 {
            return vec!["theorem: x does not move (eta_x = 0), so only the lower level is solved".into()];
        }
        let all = steps::fab(c, net, lambda, written, Reading::Mended);
        let (of_lambda, of_steps): (Vec<Condition>, Vec<Condition>) =
            all.into_iter().partition(|c| c.name.starts_with("1/λ"));
        let worst = of_lambda.iter().map(|c| c.allows).fold(0.0, f64::max);
        let mut lines = vec![match worst <= lambda {
            true => format!("theorem: λ = {} is large enough (at least {})", number(lambda), number(worst)),
            false => format!(
                "theorem: λ = {} is too small for the lemmas, which need at least {}",
                number(lambda),
                number(worst)
            ),
        }];
        // The normalised form's steps are λ times the written ones.
        let form = lambda / g;
        let allowed = steps::fab_allowed(c, net, lambda.max(worst)).map(|e| e * form);
        lines.push(verdict(
            &of_steps,
            &format!("eta_x = {}, eta_y = eta_z = {}", number(allowed[0]), number(allowed[1])),
        ));
        return lines;
    }
    if let (Some(eta), Some(l), "push-pull") =
        (setting.algorithm.single_step(0), c.l_single, setting.series.algorithm.as_str())
    {
        let all = steps::single(l, net, eta, Reading::Mended);
        let allowed = all.iter().map(|c| c.allows).fold(f64::INFINITY, f64::min);
        return vec![verdict(&all, &format!("eta = {}", number(allowed)))];
    }
    Vec::new()
}

fn verdict(conditions: &[Condition], allowed: &str) -> String {
    let Some(worst) = binding(conditions) else { return String::new() };
    match worst.margin() >= 1.0 {
        true => format!(
            "theorem: the steps are inside all {} conditions; {} binds with margin {}; up to {allowed}",
            conditions.len(),
            worst.name,
            number(worst.margin())
        ),
        false => {
            let broken = conditions.iter().filter(|c| c.margin() < 1.0).count();
            format!(
                "theorem: does not cover these steps ({broken} of {} conditions fail; {} most, by a factor \
                {}); it covers {allowed}. Its constants are worst cases",
                conditions.len(),
                worst.name,
                number(1.0 / worst.margin())
            )
        }
    }
}

/// Draws the topology pictures that an experiment asks for.
pub fn pictures(experiment: &Experiment, out: &Path) -> Result<()> {
    for figure in experiment.figures.iter().filter(|f| f.kind == "graphs") {
        let setting = &experiment.settings[0];
        let agents = setting.agents(experiment.seeds[0], &experiment.folder)?;
        let sequence = setting.graphs(agents, experiment.seeds[0], &experiment.folder)?;
        let ring: Vec<(usize, usize)> = (0..agents).map(|i| (i, (i + 1) % agents)).collect();
        let phases = [
            ("Phase I: augmented Erdős–Rényi", 0),
            ("Phase II: directed ring", 10),
            ("Phase III: reversed ring", 20),
        ];
        let list: Vec<(String, plot::Edges)> = phases
            .iter()
            .map(|(title, k)| {
                let graph = sequence.graphs().at(*k);
                (
                    title.to_string(),
                    graph.edges().map(|(s, r)| (s, r, *k == 0 && !ring.contains(&(s, r)))).collect(),
                )
            })
            .collect();
        plot::graphs(agents, &list)?.save(out, &figure.name)?;
    }
    Ok(())
}
