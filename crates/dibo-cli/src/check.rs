//! What can be said before a run: is the graph as the theory asks, how small are the weights, can the steps work.
use crate::experiment::spec::Problem;
use crate::experiment::{Experiment, Setting};
use crate::report::plot;
use anyhow::Result;
use dibo::rows::Threads;
use dibo::theory;
use std::fmt::Write;
use std::path::Path;

/// Refuses what cannot run and notes warnings in the settings.
pub fn before(experiment: &mut Experiment) -> Result<()> {
    let folder = experiment.folder.clone();
    // Algorithms share problems and graphs; each pair is looked at once.
    let mut seen = std::collections::BTreeSet::new();
    for setting in &experiment.settings {
        let shared = setting.series.settings.iter().filter(|(key, _)| !key.starts_with("algorithm.") || *key == "algorithm.name");
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
    for setting in &mut experiment.settings {
        setting.series.warnings = warnings(setting, seed, &folder)?;
    }
    Ok(())
}

fn warnings(setting: &Setting, seed: u64, folder: &Path) -> Result<Vec<String>> {
    let Some(steps) = setting.algorithm.penalty_steps(0).filter(|_| setting.has_closed_forms()) else { return Ok(Vec::new()) };
    let Problem::PolicyEvaluation(p) = setting.problem(seed, folder, &Threads::one())? else { return Ok(Vec::new()) };
    Ok(theory::step_warnings(steps.eta, steps.g, p.sigma_max(), p.g_curvature()))
}

/// A page of text about an experiment.
pub fn explain(experiment: &Experiment) -> Result<String> {
    let mut text = format!("{}: {}\n", experiment.name, experiment.title);
    let mut said = Vec::new();
    let seed = experiment.seeds[0];
    for setting in &experiment.settings {
        setting.check(seed, &experiment.folder)?;
        let agents = setting.agents(seed, &experiment.folder)?;
        let graphs = setting.graphs(agents, seed, &experiment.folder)?;
        let facts = theory::graph_facts(&graphs, setting.run.iterations.min(120));
        let line = format!(
            "graph: {agents} agents, {:.1} links an iteration; smallest weights a = {:.4}, b = {:.4}; {}",
            facts.links, facts.a, facts.b, facts.connectivity
        );
        if !said.contains(&line) {
            writeln!(text, "\n{line}")?;
            said.push(line);
        }
        writeln!(text, "- {}", setting.series.label)?;
        for warning in warnings(setting, seed, &experiment.folder)? {
            writeln!(text, "    warning: {warning}")?;
        }
    }
    Ok(text)
}

/// Draws the topology pictures that an experiment asks for.
pub fn pictures(experiment: &Experiment, out: &Path) -> Result<()> {
    for figure in experiment.figures.iter().filter(|f| f.kind == "graphs") {
        let setting = &experiment.settings[0];
        let agents = setting.agents(experiment.seeds[0], &experiment.folder)?;
        let sequence = setting.graphs(agents, experiment.seeds[0], &experiment.folder)?;
        let ring: Vec<(usize, usize)> = (0..agents).map(|i| (i, (i + 1) % agents)).collect();
        let phases = [("Phase I: augmented Erdős–Rényi", 0), ("Phase II: directed ring", 10), ("Phase III: reversed ring", 20)];
        let list: Vec<(String, plot::Edges)> = phases
            .iter()
            .map(|(title, k)| {
                let graph = sequence.graphs().at(*k);
                (title.to_string(), graph.edges().map(|(s, r)| (s, r, *k == 0 && !ring.contains(&(s, r)))).collect())
            })
            .collect();
        plot::graphs(agents, &list)?.save(out, &figure.name)?;
    }
    Ok(())
}
