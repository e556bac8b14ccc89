//! Every algorithm on every problem through every command: it works, or is refused in one line with exit code
//! 2.
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

const PROBLEMS: [(&str, &str); 7] = [
    ("policy-evaluation", "agents = 4\nstates = 6\nfeatures = 2"),
    ("quadratic", "agents = 4"),
    ("robust", "agents = 4"),
    ("waves", "agents = 4"),
    ("cleaning", "agents = 4\ntrain = 5\nvalidation = 5\ntest = 50"),
    ("tuning", "agents = 4\ntrain = 5\nvalidation = 5\ntest = 50\ntau_form = \"exp\"\ntau = 0.1"),
    ("labels", "agents = 4\nsamples = 80\nchecked = 5\ntest = 50\nwarm = 2"),
];

fn parameters(algorithm: &str) -> String {
    let mut text = match algorithm {
        "push-soba" => "eta_x = 0.01\neta_y = 0.02\n",
        fab if fab.contains("fab") => {
            "lambda = 20\npenalty_form = \"normalised\"\neta_x = 0.01\neta_y = 0.02\n"
        }
        "push-pull-soba" => "eta_x = 0.01\neta_y = 0.02\n",
        "cell" => "direction = \"soba\"\nmixing = \"gt\"\neta_x = 0.01\neta_y = 0.02\n",
        "d-soba-fo" => "theta = 0.3\ndelta = 0.01\neta_x = 0.01\neta_y = 0.02\n",
        "sldbo" => "radius_z = 10\neta_x = 0.01\neta_y = 0.02\n",
        "mdbo" | "vrdbo" => {
            "eta = 0.5\nalpha_1 = 0.6\nalpha_2 = 0.6\nbeta_1 = 0.02\nbeta_2 = 0.04\ncurvature = 8\n\
            terms = 3\n"
        }
        "dsgda-gt" => "lambda = 10\neta_x = 0.001\neta_y = 0.002\n",
        "penalty-storm" => "lambda = 10\na = 0.3\neta_x = 0.001\neta_y = 0.002\n",
        "sun-dsbo-gt" | "sun-dsbo-se" => "mu = 0.1\ngamma = 0.4\neta_x = 0.01\neta_y = 0.02\n",
        "ma-dsbo" => "theta = 0.3\ninner = 2\ninner_z = 2\neta_x = 0.01\neta_y = 0.02\n",
        "hgp" => "alpha = 0.05\ninner = 2\nterms = 2\npushes = 2\neta_x = 0.01\neta_y = 0.02\n",
        "c2dfb" => {
            "lambda = 10\ninner = 2\ngossip_in = 0.5\ngossip_out = 0.5\neta_x = 0.001\neta_y = 0.002\n"
        }
        "single-cell" => "mixing = \"ed\"\neta = 0.01\n",
        soba if soba.starts_with("d-soba") || soba.starts_with("sparkle") => {
            "theta = 0.3\neta_x = 0.01\neta_y = 0.02\n"
        }
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
            // The methods from the last list on may ask for one undirected graph for ever; all run over one.
            let names = dibo::algorithm::NAMES.iter().map(|n| n.0);
            let later = names.skip_while(|n| *n != "push-soba").any(|n| n == *algorithm);
            let graph = if later { "kind = \"ring\"\nundirected = true" } else { "kind = \"cycle\"" };
            let text = format!(
                "[problem]\nkind = \"{problem}\"\n{keys}\n[graph]\n{graph}\n[run]\niterations = 6\n\
                every = 3\n[[algorithm]]\nname = \"{algorithm}\"\n{}",
                parameters(algorithm)
            );
            std::fs::write(folder.path().join(format!("{name}.toml")), text).unwrap();
            let every_command = !later || ["quadratic", "cleaning"].contains(&problem);
            files.push((name, *algorithm, every_command));
        }
    }
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some((name, algorithm, every_command)) = files.get(next.fetch_add(1, Relaxed)) {
                    let file = format!("{name}.toml");
                    let run = goes(folder.path(), &["run", &file, "--quiet", "--threads", "1"]);
                    // Every problem has what every method asks for.
                    assert!(run.is_ok(), "{algorithm} in {name}: {run:?}");
                    // All commands open a run by the same door: for cells two problems tell enough.
                    if *every_command {
                        let all = ["tune", &file, "--quiet", "--threads", "1", "--seeds", "1"];
                        let tune = goes(folder.path(), &all);
                        let check = goes(folder.path(), &["check", &file, "--seconds", "0.01"]);
                        assert!(tune.is_ok() && check.is_ok(), "{name}: {tune:?} {check:?}");
                    }
                    #[cfg(feature = "net")]
                    if *every_command {
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
}

/// What a method needs of graphs is asked by every command alike, in one line that says what would be right.
#[test]
fn graphs_that_a_method_cannot_use_are_refused_by_every_command_alike() {
    let folder = tempfile::tempdir().unwrap();
    let cases = [
        (
            "sparkle-ed",
            "kind = \"cycle\"\nundirected = true",
            "needs one graph for ever; links or weights change",
        ),
        ("extra", "kind = \"cycle\"\nundirected = true", "needs one graph for ever"),
        ("d-soba", "kind = \"cycle\"", "needs doubly stochastic weights"),
        ("sldbo", "kind = \"ring\"\nundirected = true\nweights = 0.3", ""),
        (
            "mdbo",
            "kind = \"ring\"\nweights = \"metropolis\"",
            "goes one way; these weights need undirected = true",
        ),
        ("dgd", "kind = \"exponential\"\nundirected = true\nweights = \"maximum-degree\"", ""),
    ];
    for (number, (algorithm, graph, words)) in cases.into_iter().enumerate() {
        let text = format!(
            "[problem]\nkind = \"quadratic\"\nagents = 6\n[graph]\n{graph}\n[run]\niterations = 6\n\
            [[algorithm]]\nname = \"{algorithm}\"\n{}",
            parameters(algorithm)
        );
        let file = format!("{number}.toml");
        std::fs::write(folder.path().join(&file), text).unwrap();
        let all = [
            goes(folder.path(), &["run", &file, "--quiet", "--threads", "1"]),
            goes(folder.path(), &["tune", &file, "--quiet", "--threads", "1", "--seeds", "1"]),
        ];
        for said in all {
            match words {
                "" => assert!(said.is_ok(), "{algorithm}: {said:?}"),
                words => assert!(said.as_ref().is_err_and(|e| e.contains(words)), "{algorithm}: {said:?}"),
            }
        }
    }
}
