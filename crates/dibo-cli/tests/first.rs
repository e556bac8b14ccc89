//! First contact: files that `new` writes, lists, completions and manual pages.
use std::path::Path;
use std::process::{Command, Output};

fn dibo(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dibo")).current_dir(folder).args(arguments).output().unwrap()
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Writes and reads a file with these choices.
fn new(arguments: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let all = ["dibo", "new", "mine.toml"].iter().chain(arguments);
    let file = folder.path().join("mine.toml");
    let all: Vec<std::ffi::OsString> =
        all.map(|a| if *a == "mine.toml" { file.clone().into() } else { a.into() }).collect();
    dibo_cli::command(&dibo_cli::standard(), all).unwrap_or_else(|e| panic!("{arguments:?}: {e:#}"));
    std::fs::read_to_string(file).unwrap()
}

#[test]
fn everything_there_is_can_be_begun_with() {
    let registry = dibo_cli::standard();
    for problem in &registry.problems {
        assert!(new(&["--problem", problem.name]).contains(&format!("kind = \"{}\"", problem.name)));
    }
    for graph in &registry.graphs {
        assert!(new(&["--graph", graph.name]).contains(&format!("kind = \"{}\"", graph.name)));
    }
    for algorithm in &registry.algorithms {
        assert!(new(&["--algorithm", algorithm.name]).contains(&format!("name = \"{}\"", algorithm.name)));
    }
    // Links both ways where the method needs them.
    assert!(new(&["--algorithm", "d-soba"]).contains("\nundirected = true"));
    assert!(new(&["--agents", "7", "--iterations", "90"]).contains("\nagents = 7"));
}

#[test]
fn what_is_new_runs_and_what_is_there_stays() {
    let folder = tempfile::tempdir().unwrap();
    let begun = dibo(folder.path(), &["new", "mine.toml", "--algorithm", "fab", "--algorithm", "push-soba"]);
    assert!(begun.status.success(), "{}", said(&begun));
    let ran = dibo(folder.path(), &["run", "mine.toml", "--set", "run.iterations=40", "--quiet"]);
    assert!(ran.status.success() && said(&ran).contains("report.html"), "{}", said(&ran));
    let again = dibo(folder.path(), &["new", "mine.toml"]);
    assert!(!again.status.success() && said(&again).contains("is there already"), "{}", said(&again));
    let wrong = dibo(folder.path(), &["new", "other.toml", "--problem", "polcy-evaluation"]);
    assert!(said(&wrong).contains("did you mean 'policy-evaluation'?"), "{}", said(&wrong));
    assert!(!folder.path().join("other.toml").exists());
}

#[test]
fn the_list_says_what_each_needs_within_80_columns() {
    let folder = tempfile::tempdir().unwrap();
    let list = dibo(folder.path(), &["list"]);
    let text = said(&list);
    assert!(list.status.success(), "{text}");
    for word in ["quickstart", "30 runs of 900 iterations", "no data", "erdos-renyi", "push-soba"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    let widest = text.lines().max_by_key(|l| l.chars().count()).unwrap();
    assert!(widest.chars().count() <= 80, "{widest}");
}

#[test]
fn shells_and_man_know_the_command() {
    let folder = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = dibo(folder.path(), &["completions", shell]);
        assert!(output.status.success() && said(&output).contains("certificates"), "{shell}");
    }
    assert!(said(&dibo(folder.path(), &["man"])).contains(".TH"));
    assert!(dibo(folder.path(), &["man", "pages"]).status.success());
    assert!(folder.path().join("pages/dibo-run.1").exists());
}
