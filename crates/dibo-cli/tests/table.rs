//! Every algorithm on every problem through every command: it works, or is refused in one line with exit code
//! 2.
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

const PROBLEMS: [(&str, &str); 6] = [
    ("policy-evaluation", "agents = 4\nstates = 6\nfeatures = 2"),
    ("quadratic", "agents = 4"),
    ("robust", "agents = 4"),
    ("cleaning", "agents = 4\ntrain = 5\nvalidation = 5\ntest = 50"),
    ("tuning", "agents = 4\ntrain = 5\nvalidation = 5\ntest = 50\ntau_form = \"exp\"\ntau = 0.1"),
    ("labels", "agents = 4\nsamples = 80\nchecked = 5\ntest = 50\nwarm = 2"),
];

fn parameters(algorithm: &str) -> String {
    let mut text = match algorithm {
        fab if fab.contains("fab") => {
            "lambda = 20\npenalty_form = \"normalised\"\neta_x = 0.01\neta_y = 0.02\n"
        }
        "push-pull-soba" => "eta_x = 0.01\neta_y = 0.02\n",
        _ => "eta = 0.01\n",
    }
    .to_string();
    if algorithm.contains("asgd") {
        text += "beta = 0.5\n";
    }
    if algorithm.starts_with("dl-") {
        text += "inner = 2\n";
    }
    text
}

/// Whether a command worked; what it says if it was refused, which must be one line.
fn goes(folder: &Path, arguments: &[&str]) -> Result<(), String> {
    let output =
        Command::new(env!("CARGO_BIN_EXE_dibo")).current_dir(folder).args(arguments).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr).trim().to_string();
    match output.status.code() {
        Some(0) => Ok(()),
        Some(2) => {
            assert!(
                message.lines().count() <= 1 && !message.contains("panicked"),
                "{arguments:?}: {message}"
            );
            Err(message)
        }
        code => panic!("{arguments:?}: {code:?} {message}"),
    }
}

#[test]
fn every_algorithm_on_every_problem_goes_or_is_refused_by_every_command_alike() {
    let folder = tempfile::tempdir().unwrap();
    let mut files = Vec::new();
    for (problem, keys) in PROBLEMS {
        for (algorithm, _) in dibo::algorithm::NAMES {
            let name = format!("{problem}-{algorithm}");
            let text = format!(
                "[problem]\nkind = \"{problem}\"\n{keys}\n[run]\niterations = 6\nevery = 3\n\
                [[algorithm]]\nname = \"{algorithm}\"\n{}",
                parameters(algorithm)
            );
            std::fs::write(folder.path().join(format!("{name}.toml")), text).unwrap();
            files.push((name, problem, *algorithm));
        }
    }
    let (next, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some((name, problem, algorithm)) = files.get(next.fetch_add(1, Relaxed)) {
                    let file = format!("{name}.toml");
                    let run = goes(folder.path(), &["run", &file, "--quiet", "--threads", "1"]);
                    let tune =
                        goes(folder.path(), &["tune", &file, "--quiet", "--threads", "1", "--seeds", "1"]);
                    let check = goes(folder.path(), &["check", &file, "--seconds", "0.01"]);
                    // Second-order products are all that some problems lack.
                    let second = algorithm.starts_with("dl-") || *algorithm == "push-pull-soba";
                    let learning = ["cleaning", "tuning", "labels"].contains(problem);
                    assert_eq!(run.is_err(), second && learning, "{name}: {run:?}");
                    assert_eq!(
                        (tune.is_err(), check.is_err()),
                        (run.is_err(), run.is_err()),
                        "{name}: {tune:?}"
                    );
                    if let (Err(run), Err(tune)) = (&run, &tune) {
                        assert_eq!(run, tune, "{name}");
                        assert!(run.contains("needs second-order products"), "{run}");
                        refused.fetch_add(1, Relaxed);
                    }
                    #[cfg(feature = "net")]
                    {
                        let arguments = ["launch", &file, "--processes", "2", "--tcp", "--quiet", "--out"];
                        let out = format!("{name}-launch");
                        let launch = goes(folder.path(), &[&arguments[..], &[&out, "--verify"]].concat());
                        let central = *algorithm == "centralized-fab";
                        assert_eq!(launch.is_err(), run.is_err() || central, "{name}: {launch:?}");
                    }
                }
            });
        }
    });
    assert_eq!(refused.load(Relaxed), 15);
}
