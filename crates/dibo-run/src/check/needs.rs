//! How much memory and disk an experiment needs, told before it runs; what cannot fit is refused.
use crate::experiment::Experiment;
use crate::runner::workers;
use crate::setting::Setting;
use anyhow::{Result, bail};
use dibo_report::report::words::quantity;
use std::path::Path;

/// Bytes that an experiment needs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Needed {
    /// Of memory, at most at a time.
    pub memory: f64,
    /// On disk.
    pub disk: f64,
}

/// Bytes of one run's state, graph and problem; of those whose problem does not tell its size, the graph
/// alone.
fn of_run(setting: &Setting, folder: &Path, device: bool) -> Result<f64> {
    let agents = setting.agents(folder)?;
    // Links of one iteration: a place in the list and a weight in each matrix; some are kept twice.
    let graph = 32.0 * setting.graph.links(agents);
    let Some(size) = setting.problem.size(folder) else { return Ok(graph) };
    // The state of a run on a device lies there, and is looked at when it is opened.
    if device {
        return Ok(graph + size.bytes);
    }
    let vectors = setting.parameters().vectors(size.blocks);
    let padded = |width: usize| width.next_multiple_of(16) as f64;
    let numbers = vectors.upper as f64 * padded(size.upper)
        + vectors.lower as f64 * padded(size.lower)
        + vectors.single as f64 * padded(size.single);
    Ok(graph + size.bytes + agents as f64 * numbers * size.number as f64)
}

/// What an experiment needs; an error if this machine does not have it.
pub fn needed(experiment: &Experiment, threads: usize, device: bool, out: &Path) -> Result<Needed> {
    let folder = experiment.folder.as_path();
    let mut sizes = Vec::new();
    let mut disk = 1e6;
    for setting in &experiment.settings {
        let run = of_run(setting, folder, device)?;
        if let Some(free) = free_memory().filter(|free| run > *free) {
            bail!(
                "{}: {} needs about {} of memory for one run; {} are free",
                setting.place,
                setting.series.label,
                quantity("bytes", run),
                quantity("bytes", free)
            );
        }
        sizes.push(run);
        // A run's evaluations, about ten metrics each, and what is kept of them in the tables.
        let looks = setting.run.iterations as f64 / setting.run.every() as f64 + 2.0;
        disk +=
            experiment.seeds.len() as f64 * (looks * 400.0 + looks.min(setting.run.points as f64) * 300.0);
    }
    sizes.sort_by(|a, b| b.total_cmp(a));
    let together = workers(experiment, threads, device);
    let largest = sizes.first().copied().unwrap_or(0.0);
    // As many of the largest as run side by side; a checkpoint of each may lie on the disk.
    let memory = 3e7
        + sizes
            .iter()
            .flat_map(|s| std::iter::repeat_n(s, experiment.seeds.len()))
            .take(together)
            .sum::<f64>();
    disk += largest * together as f64;
    let needed = Needed { memory, disk };
    if let Some(free) = free_memory().filter(|free| memory > *free) {
        bail!(
            "{}: about {} of memory are needed for {together} runs side by side; {} are free (--threads 1 \
            runs one \
            at a time)",
            experiment.name,
            quantity("bytes", memory),
            quantity("bytes", free)
        );
    }
    if let Some(free) = free_disk(out).filter(|free| needed.disk > *free) {
        let (disk, free) = (quantity("bytes", needed.disk), quantity("bytes", free));
        bail!(
            "{}: about {disk} are needed on the disk of {}; {free} are free",
            experiment.name,
            out.display()
        );
    }
    Ok(needed)
}

/// Bytes of memory that programs can still take, where the system tells.
fn free_memory() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|l| l.starts_with("MemAvailable:"))?;
    line.split_whitespace().nth(1)?.parse::<f64>().ok().map(|kb| 1024.0 * kb)
}

/// Free bytes on the disk of a folder that may not be there yet.
fn free_disk(folder: &Path) -> Option<f64> {
    let there = folder.ancestors().find(|p| p.exists()).filter(|p| !p.as_os_str().is_empty());
    fs4::available_space(there.unwrap_or(Path::new("."))).ok().map(|bytes| bytes as f64)
}
