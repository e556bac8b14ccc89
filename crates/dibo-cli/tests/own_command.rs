//! A command with a problem of its own has every subcommand.
use std::path::Path;
use std::process::{Command, Output};

/// The example, which cargo builds before the tests run.
fn own(folder: &Path, arguments: &[&str]) -> Output {
    let tests = std::env::current_exe().unwrap();
    let example = tests.parent().and_then(Path::parent).unwrap().join("examples/own_command");
    Command::new(example).current_dir(folder).args(arguments).output().expect("the example is built")
}

fn good(folder: &Path, arguments: &[&str], says: &str) {
    let output = own(folder, arguments);
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    // Long lines are folded.
    let said = out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(output.status.success() && said.contains(says), "{arguments:?}: {out}{err}");
}

#[test]
fn every_subcommand_takes_a_problem_of_ones_own() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    good(folder, &["list"], "targets");
    good(folder, &["check", "targets", "--seconds", "1"], "distance went from");
    good(folder, &["run", "targets", "--quiet"], "report: results/targets/report.html");
    good(folder, &["report", "results/targets"], "report.html");
    let short = ["--set", "run.iterations=200", "--quiet"];
    good(folder, &[&["tune", "targets"][..], &short].concat(), "best: ");
    #[cfg(feature = "net")]
    good(folder, &[&["launch", "targets", "--verify", "--seeds", "1"][..], &short].concat(), "every bit");
    // FAB's x ends near the mean target, 4.
    let text = std::fs::read_to_string(folder.join("results/targets/curves.csv")).unwrap();
    let last: f64 = text.lines().last().unwrap().split(',').nth(7).unwrap().parse().unwrap();
    assert!(last < 0.2, "{last}");
    // What dibo itself offers is not lost, and mistakes are named alike.
    let wrong = own(folder, &["run", "targets", "--set", "problem.target=[1.0]"]);
    let message = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(wrong.status.code() == Some(2) && message.contains("did you mean 'targets'"), "{message}");
}
