//! Pictures beside the plots: what a problem draws at the end of a run, and the topology.
use crate::experiment::Experiment;
use anyhow::Result;
use dibo_report::report::plot;
use dibo_report::results::Manifest;
use std::path::Path;

/// The pictures that the runs left in a results folder: series, title, SVG.
pub fn kept(out: &Path, manifest: &Manifest) -> Vec<(usize, String, String)> {
    let read = |s: usize| std::fs::read_to_string(out.join("runs").join(format!("{s}.svg"))).ok();
    // A picture says itself what it shows.
    let titled = |s: usize| {
        let svg = read(s)?;
        let shows =
            svg.split("<title>").nth(1).and_then(|t| t.split("</title>").next()).unwrap_or("at the end");
        Some((s, format!("{}: {shows} (first seed)", manifest.series[s].label), svg))
    };
    (0..manifest.series.len()).filter_map(titled).collect()
}

/// Draws the topology pictures that an experiment asks for: one graph of each of the cycle's phases.
pub fn topology(experiment: &Experiment, out: &Path) -> Result<()> {
    for figure in experiment.figures.iter().filter(|f| f.kind == "graphs") {
        let sequence = experiment.settings[0].graphs(experiment.seeds[0], &experiment.folder)?;
        let agents = sequence.agents();
        let ring: Vec<(usize, usize)> = (0..agents).map(|i| (i, (i + 1) % agents)).collect();
        let phases = [
            ("Phase I: augmented Erdős–Rényi", 0),
            ("Phase II: directed ring", 10),
            ("Phase III: reversed ring", 20),
        ];
        let edges = |k: usize| {
            let graph = sequence.graphs().at(k);
            graph.edges().map(|(s, r)| (s, r, k == 0 && !ring.contains(&(s, r)))).collect()
        };
        let list: Vec<(String, plot::Edges)> =
            phases.iter().map(|(title, k)| (title.to_string(), edges(*k))).collect();
        plot::graphs(agents, &list)?.save(out, &figure.name)?;
    }
    Ok(())
}
