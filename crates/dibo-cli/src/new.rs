//! `dibo new`: an experiment file with every key of what was chosen, each with its doc comment.
use anyhow::{Context, Result, bail, ensure};
use dibo_run::keys::{Key, Reference};
use dibo_run::{Registry, Request, say};
use std::fmt::Write as _;
use std::io::{BufRead, IsTerminal, Write as _};
use std::path::{Path, PathBuf};

/// What the file is to hold. Without any of them, and in a terminal, dibo asks.
#[derive(clap::Args)]
pub struct Options {
    /// The file to write; it must not be there yet
    file: PathBuf,
    /// Kind of problem
    #[arg(long)]
    problem: Option<String>,
    /// Kind of graph
    #[arg(long)]
    graph: Option<String>,
    /// An algorithm (may be repeated)
    #[arg(long)]
    algorithm: Vec<String>,
    /// Number of agents
    #[arg(long)]
    agents: Option<usize>,
    /// Iterations
    #[arg(long)]
    iterations: Option<usize>,
}

/// Where to start from where something must be given: what suits the small problems.
const START: [(&str, &str); 12] = [
    ("lambda", "60"),
    ("penalty_form", "\"normalised\""),
    ("eta", "0.05"),
    ("eta_x", "0.05"),
    ("eta_y", "0.1"),
    ("direction", "\"soba\""),
    ("mixing", "\"ab\""),
    ("theta", "0.3"),
    ("a", "0.1"),
    ("inner", "10"),
    ("inner_z", "10"),
    ("terms", "10"),
];

/// Writes the file.
pub fn new(registry: &Registry, options: Options) -> Result<()> {
    let place = options.file.display().to_string();
    ensure!(!options.file.exists(), "{place} is there already; choose another name or remove it");
    let asked = options.problem.is_none() && options.graph.is_none() && options.algorithm.is_empty();
    let choice = match asked && std::io::stdin().is_terminal() {
        true => ask(registry, options)?,
        false => options,
    };
    let text = text(registry, &choice)?;
    std::fs::write(&choice.file, &text).with_context(|| format!("cannot write {place}"))?;
    // What was written is read as every command would; what no command takes is not left behind.
    if let Err(error) = registry.load(&Request { file: place.clone(), ..Request::default() }) {
        let _ = std::fs::remove_file(&choice.file);
        return Err(error);
    }
    let next = format!(
        "{place}: `check {place}` says what to expect, `tune {place}` finds steps, `run {place}` runs it"
    );
    say!("{}", dibo_run::fold(&next));
    Ok(())
}

/// A few questions, with an answer for whoever has none.
fn ask(registry: &Registry, options: Options) -> Result<Options> {
    let mut lines = std::io::stdin().lock().lines();
    let mut question = |what: &str, known: &[&str], otherwise: &str| -> Result<String> {
        say!("{what}? {}", dibo_run::fold(&known.join(", ")));
        print!("  [{otherwise}] ");
        std::io::stdout().flush()?;
        let answer = lines.next().transpose()?.unwrap_or_default().trim().to_string();
        Ok(if answer.is_empty() { otherwise.into() } else { answer })
    };
    let problems: Vec<&str> = registry.problems.iter().map(|p| p.name).collect();
    let graphs: Vec<&str> = registry.graphs.iter().map(|g| g.name).collect();
    let algorithms: Vec<&str> = registry.algorithms.iter().map(|a| a.name).collect();
    let problem = question("Which problem", &problems, problems[0])?;
    let agents = question("How many agents", &[], "10")?;
    let agents = agents.parse().with_context(|| format!("'{agents}' is no number of agents"))?;
    let graph = question("Which graphs", &graphs, graphs[0])?;
    let names = question("Which algorithms, with commas between them", &algorithms, algorithms[0])?;
    let algorithm = names.split(',').map(|n| n.trim().to_string()).collect();
    Ok(Options { problem: Some(problem), graph: Some(graph), algorithm, agents: Some(agents), ..options })
}

/// The text of the file.
fn text(registry: &Registry, options: &Options) -> Result<String> {
    let reference = Reference::of(registry);
    let problem = options.problem.as_deref().unwrap_or("policy-evaluation");
    let mut names: Vec<&str> = options.algorithm.iter().map(String::as_str).collect();
    if names.is_empty() {
        names.push("fab");
    }
    let with = |graph: &str, undirected: bool| -> Result<String> {
        let mut all = head(&reference, options)?;
        let agents = options.agents.map(|a| ("agents", a.to_string()));
        section(&mut all, &reference, "problem", problem, &Vec::from_iter(agents))?;
        let both = undirected.then(|| ("undirected", "true".to_string()));
        let plan = (graph == "file").then(|| ("file", "\"graph.json\"".to_string()));
        section(&mut all, &reference, "graph", graph, &Vec::from_iter(both.into_iter().chain(plan)))?;
        let iterations = options.iterations.map(|i| ("iterations", i.to_string()));
        section(&mut all, &reference, "run", "", &Vec::from_iter(iterations))?;
        for name in &names {
            section(&mut all, &reference, "algorithm", name, &[])?;
            taken(&mut all, &reference, problem);
        }
        Ok(all)
    };
    let graph = options.graph.as_deref().unwrap_or("cycle");
    let first = with(graph, false)?;
    // Methods for links both ways, or for one graph for ever, get them.
    let source = registry.source(options.file.display().to_string(), &first);
    let read = registry.parse(source, "new", Path::new("."), false)?;
    let needs: Vec<_> = read.settings.iter().map(|s| s.parameters().graph_needs()).collect();
    let stays = needs.iter().any(|n| n.one_graph) && options.graph.is_none();
    with(if stays { "ring" } else { graph }, needs.iter().any(|n| n.doubly_stochastic))
}

fn head(reference: &Reference, options: &Options) -> Result<String> {
    let name = options.file.file_stem().unwrap_or_default().to_string_lossy();
    let mut text = String::from(
        "#:schema ./dibo.schema.json\n# Lines that begin with # are what holds if nothing is said. A list \
        instead of a value is a sweep.\n\n",
    );
    let given = [("title", toml::Value::from(&*name).to_string()), ("seeds", "3".into())];
    keys(&mut text, reference.parts.iter().find(|p| p.section.is_empty()).map_or(&[], |p| &p.keys), &given);
    Ok(text)
}

/// A section with the keys of its kind and those that all kinds have.
fn section(
    text: &mut String,
    reference: &Reference,
    section: &str,
    kind: &str,
    given: &[(&str, String)],
) -> Result<()> {
    let parts = || reference.parts.iter().filter(|p| p.section == section && p.problems.is_empty());
    if parts().all(|p| p.kind != kind) {
        let known: Vec<&str> = parts().map(|p| p.kind).filter(|k| !k.is_empty()).collect();
        let close = dibo_run::section::did_you_mean(kind, known.iter().copied());
        bail!("there is no {section} '{kind}'; known are {}{close}", known.join(", "));
    }
    let (word, brackets) = match section {
        "algorithm" => ("name", format!("[[{section}]]")),
        _ => ("kind", format!("[{section}]")),
    };
    let _ = writeln!(text, "\n{brackets}");
    for part in parts().filter(|p| p.kind == kind || p.kind.is_empty() && section == "graph") {
        if part.kind == kind && !kind.is_empty() {
            let _ = writeln!(text, "# {}\n{word} = \"{kind}\"", part.in_a_word());
        }
        keys(text, &part.keys, given);
    }
    Ok(())
}

/// What the problem takes of an algorithm.
fn taken(text: &mut String, reference: &Reference, problem: &str) {
    for part in reference.parts.iter().filter(|p| p.problems.contains(&problem)) {
        keys(text, &part.keys, &[]);
    }
}

/// Each key with its doc comment; what need not be said as a comment.
fn keys(text: &mut String, keys: &[Key], given: &[(&str, String)]) {
    for key in keys.iter().filter(|k| k.name != "kind") {
        let name = &key.name;
        let start = START.iter().find(|s| s.0 == name).map(|s| s.1.to_string());
        let own = given.iter().find(|g| g.0 == name).map(|g| g.1.clone());
        let (value, said) = match (own, &key.default) {
            (Some(value), _) => (value, true),
            (None, None) => (start.unwrap_or_else(|| key.example().to_string()), true),
            (None, Some(default)) if default.is_null() => ("…".into(), false),
            // The form in which steps need not shrink with the penalty.
            (None, Some(_)) if name == "penalty_form" => (start.unwrap_or_default(), true),
            (None, Some(default)) => (default.to_string(), false),
        };
        let line = format!("{}{name} = {value}", if said { "" } else { "# " });
        let _ = writeln!(text, "{line:<34} # {}", key.about);
    }
}
