//! `dibo list`: what there is, what each experiment shows and what it needs.
use anyhow::Result;
use dibo_report::report::words::quantity;
use dibo_run::keys::Reference;
use dibo_run::{Experiment, Registry, Request, check, data, fold, say};
use std::path::{Path, PathBuf};

/// What is to be listed.
#[derive(clap::Args)]
pub struct Options {
    /// Try each experiment for a moment and say how long its iterations will take
    #[arg(long)]
    time: bool,
    /// Folder of the data sets [default: DIBO_DATA, else the platform's data folder]
    #[arg(long)]
    data: Option<PathBuf>,
}

/// Prints the lists.
pub fn list(registry: &Registry, options: Options) -> Result<()> {
    data::set_folder(options.data);
    say!("Experiments (run NAME):");
    for (name, _) in &registry.experiments {
        let e = registry.load(&Request { file: name.to_string(), ..Request::default() })?;
        say!("  {name}\n{}\n{}", fold(&format!("      {}", e.title)), fold(&needs(&e, options.time)));
    }
    let reference = Reference::of(registry);
    for (section, head) in
        [("problem", "Problems (kind in [problem])"), ("graph", "Graphs (kind in [graph])")]
    {
        say!("\n{head}:");
        for part in reference.parts.iter().filter(|p| p.section == section && !p.kind.is_empty()) {
            say!("{}", line(part.kind, &part.in_a_word()));
        }
    }
    say!("\nAlgorithms (name in an [[algorithm]]):");
    for algorithm in &registry.algorithms {
        let about = if algorithm.about.is_empty() { algorithm.label } else { algorithm.about };
        say!("{}", line(algorithm.name, about));
    }
    say!("\n`keys NAME` explains the keys of any of them.");
    Ok(())
}

/// A name and what it is, with later lines under the first.
fn line(name: &str, about: &str) -> String {
    let (mut lines, mut width) = (format!("  {name:<21}"), 23);
    for word in about.split_whitespace() {
        let length = word.chars().count() + 1;
        if width + length > 80 {
            lines += &format!("\n{:23}", "");
            width = 23;
        }
        lines += &format!(" {word}");
        width += length;
    }
    lines
}

/// Runs, memory, data and, where it is asked for, time.
fn needs(experiment: &Experiment, time: bool) -> String {
    let cores = crate::cores();
    let have = experiment.settings.iter().map(|s| s.data()).find(|d| !matches!(d, Ok(None)));
    let data: String = match &have {
        None => "no data".into(),
        // The name alone, of what is said of it.
        Some(Ok(words)) => words.iter().flat_map(|w| w.split(':').next()).collect(),
        Some(Err(_)) => "its data is not here (`data` says how to get it)".into(),
    };
    let runs = experiment.settings.len() * experiment.seeds.len();
    let most = experiment.settings.iter().map(|s| s.run.iterations).max().unwrap_or(0);
    let needed = check::needed(experiment, cores, false, Path::new("."));
    let memory = match &needed {
        Ok(needed) => quantity("bytes", needed.memory),
        Err(_) => "memory not known".into(),
    };
    let took = match needed {
        Ok(needed) if time && !matches!(have, Some(Err(_))) => {
            let told = check::announce(experiment, needed, cores, false);
            let told = told.ok().and_then(|t| t.rsplit_once(", ").map(|t| t.1.to_string()));
            told.map_or(String::new(), |t| format!("; {t} on {cores} cores"))
        }
        _ => String::new(),
    };
    format!("      {runs} runs of {most} iterations; {memory}{took}; {data}")
}
