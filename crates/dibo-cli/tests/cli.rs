//! The command as a user meets it: good runs, bad input, resuming.
use std::path::Path;
use std::process::{Command, Output};

fn dibo(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dibo"))
        .current_dir(folder)
        .args(arguments)
        .output()
        .expect("the command starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

const SMALL: &str = r#"title = "a small run"
seeds = 2

[problem]
kind = "policy-evaluation"
agents = 5
f_weight = 1.0
g_weight = 0.5

[graph]
kind = "cycle"
nu = 0.3

[run]
iterations = 400
every = 20

[[algorithm]]
name = "fab"
penalty_form = "normalised"
lambda = [20, 60]
eta_x = 0.1
eta_y = 0.1

[[figure]]
name = "error"
y = "relative_error"
log = "y"
"#;

#[test]
fn a_run_leaves_everything_behind() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("small.toml"), SMALL).unwrap();
    let output = dibo(folder.path(), &["run", "small.toml", "--quiet"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let out = folder.path().join("results/small");
    for file in
        ["manifest.json", "curves.csv", "curves.parquet", "report.html", "plots/error.svg", "plots/error.png"]
    {
        assert!(out.join(file).metadata().unwrap().len() > 0, "{file}");
    }
    assert!(text(&output.stdout).contains("λ=60"));
    let page = std::fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.contains("a small run") && page.contains("<svg"));
    // The report can be made again from the folder alone.
    std::fs::remove_file(out.join("report.html")).unwrap();
    std::fs::write(out.join("plots/error.svg"), "another").unwrap();
    let again = || text(&dibo(folder.path(), &["report", "results/small"]).stdout);
    assert!(again().contains("plots/error.svg is damaged: made anew"));
    assert!(out.join("report.html").exists());
    // What was made anew is what the list of checksums says from then on.
    assert!(!again().contains("made anew"));
}

#[test]
fn verdicts_are_a_file_too() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("small.toml"), format!("claims = [\"P1\"]\n{SMALL}")).unwrap();
    let output = dibo(folder.path(), &["run", "small.toml", "--quiet"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let out = folder.path().join("results/small");
    let claims = || std::fs::read_to_string(out.join("claims.csv")).unwrap();
    let written = claims();
    let lines: Vec<&str> = written.lines().collect();
    assert!(lines.len() == 2 && lines[0].starts_with("claim,verdict,") && lines[1].starts_with("P1,"));
    assert!(std::fs::read_to_string(out.join("checksums.txt")).unwrap().contains("  claims.csv\n"));
    // It is drawn from the numbers as the page is.
    std::fs::write(out.join("claims.csv"), "claim\n").unwrap();
    let again = dibo(folder.path(), &["report", "results/small"]);
    assert!(text(&again.stdout).contains("claims.csv is damaged: made anew"), "{}", text(&again.stderr));
    assert_eq!(claims(), written);
}

#[test]
fn threads_do_not_change_results() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("small.toml"), SMALL).unwrap();
    let curves = |threads: &str| {
        let out = format!("out{threads}");
        let output = dibo(
            folder.path(),
            &[
                "run",
                "small.toml",
                "--quiet",
                "--threads",
                threads,
                "--out",
                &out,
                "--seeds",
                "1",
                "--set",
                "problem.agents=500",
            ],
        );
        assert!(output.status.success(), "{}", text(&output.stderr));
        let csv = std::fs::read_to_string(folder.path().join(out).join("curves.csv")).unwrap();
        // All but the seconds.
        csv.lines()
            .map(|l| {
                l.split(',')
                    .enumerate()
                    .filter(|(i, _)| *i != 3)
                    .map(|(_, v)| v)
                    .collect::<Vec<_>>()
                    .join(",")
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(curves("1"), curves("2"));
    assert_eq!(curves("1"), curves("3"));
}

#[test]
fn bad_input_gets_one_clear_line_and_exit_code_2() {
    let folder = tempfile::tempdir().unwrap();
    let cases: &[(&str, &str, &[&str])] = &[
        ("eta_x = 0.1", "eta_xx = 0.1", &["bad.toml:22", "eta_xx", "eta_y"]),
        ("eta_x = 0.1", "eta_x = 0.0001\neta_y = -1", &["bad.toml"]),
        ("eta_y = 0.1", "eta_y = 0", &["bad.toml:23", "eta_y is 0", "above 0"]),
        ("eta_y = 0.1", "eta_y = -0.5", &["bad.toml:23", "eta_y is -0.5", "above 0"]),
        ("nu = 0.3", "nu = 1.5", &["bad.toml:12", "nu is 1.5", "between 0 and 1"]),
        ("agents = 5", "agents = 0", &["bad.toml:6", "agents is 0"]),
        ("agents = 5", "agents = \"five\"", &["bad.toml:6", "invalid type"]),
        ("name = \"fab\"", "name = \"fub\"", &["bad.toml:19", "no algorithm 'fub'", "push-pull-soba"]),
        ("kind = \"cycle\"", "kind = \"cyclic\"", &["bad.toml:11", "cyclic", "erdos-renyi"]),
        (
            "kind = \"cycle\"",
            "kind = \"erdos-renyi\"",
            &["bad.toml", "not strongly connected", "cannot reach agent", "allow_disconnected"],
        ),
        (
            "kind = \"cycle\"\nnu = 0.3",
            "kind = \"file\"\nfile = \"missing.json\"",
            &["bad.toml", "missing.json"],
        ),
        ("kind = \"policy-evaluation\"", "kind = \"poker\"", &["bad.toml:5", "poker", "quadratic"]),
        ("iterations = 400", "iterations = 0", &["bad.toml:15", "iterations is 0"]),
        ("seeds = 2", "seeds = 0", &["bad.toml:2", "seeds"]),
        ("lambda = [20, 60]", "lambda = []", &["bad.toml:21", "empty list"]),
        ("lambda = [20, 60]", "lambda = [20, -3]", &["bad.toml:21", "lambda is -3"]),
        ("lambda = [20, 60]", "", &["bad.toml:18", "missing field `lambda`"]),
        ("[run]", "[rum]", &["bad.toml:14", "rum"]),
        ("[[figure]]", "[[figures]]", &["bad.toml:25", "figures"]),
        ("eta_y = 0.1", "eta_y = 0.1\nlabel = 3", &["bad.toml:24", "label is 3", "label = \"3\""]),
        (
            "[run]",
            "[[case]]\nname = \"a\"\n\n[[case]]\nname = \"a\"\ngraph.nu = 0.4\n\n[run]",
            &["bad.toml:18", "two cases are called 'a'"],
        ),
        ("title = ", "title ", &["bad.toml:1"]),
    ];
    for (from, to, expected) in cases {
        assert!(SMALL.contains(from));
        std::fs::write(folder.path().join("bad.toml"), SMALL.replacen(from, to, 1)).unwrap();
        let output = dibo(folder.path(), &["run", "bad.toml", "--quiet"]);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{to}: {message}{}", text(&output.stdout));
        assert_eq!(message.trim().lines().count(), 1, "{message}");
        for word in *expected {
            assert!(message.contains(word), "{to}: '{word}' is missing in: {message}");
        }
    }
    let missing = dibo(folder.path(), &["run", "nothing.toml"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(
        text(&missing.stderr).contains("there is no experiment")
            && text(&missing.stderr).contains("sensitivity"),
        "{}",
        text(&missing.stderr)
    );
    let set = dibo(folder.path(), &["run", "sensitivity", "--set", "run.itertions=5"]);
    assert_eq!(set.status.code(), Some(2));
    assert!(text(&set.stderr).contains("itertions"), "{}", text(&set.stderr));
}

#[test]
fn a_matrix_that_is_not_stochastic_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let half = "[[0.5,0.5],[0.5,0.5]]";
    for (a, b, expected) in [
        ("[[0.5,0.6],[0.5,0.5]]", half, "A of graph 0 is not row-stochastic: row 0 sums to 1.1"),
        (half, "[[0.5,0.6],[0.5,0.5]]", "B of graph 0 is not column-stochastic: column 1 sums to 1.1"),
        (half, "[[1.5,0.5],[-0.5,0.5]]", "B of graph 0 holds -0.5"),
        (half, "[[0.5,1.0],[0.5,0.0]]", "graphs.json: B of graph 0 has 0 on its diagonal, in row 1"),
    ] {
        std::fs::write(folder.path().join("graphs.json"), format!("[{{\"A\": {a}, \"B\": {b}}}]")).unwrap();
        let file = SMALL
            .replacen("kind = \"cycle\"\nnu = 0.3", "kind = \"file\"\nfile = \"graphs.json\"", 1)
            .replacen("agents = 5", "agents = 2", 1);
        std::fs::write(folder.path().join("bad.toml"), file).unwrap();
        let output = dibo(folder.path(), &["run", "bad.toml", "--quiet"]);
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains(expected), "{}", text(&output.stderr));
    }
}

#[test]
fn a_stopped_run_goes_on_to_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("small.toml"), SMALL).unwrap();
    let go = |out: &str, iterations: &str| {
        Command::new(env!("CARGO_BIN_EXE_dibo"))
            .current_dir(folder.path())
            .args(["run", "small.toml", "--quiet", "--out", out, "--set"])
            .arg(format!("run.iterations={iterations}"))
            .args(["--set", "problem.omega=0.1", "--set", "run.every=100"])
            .spawn()
            .unwrap()
    };
    assert!(go("whole", "400000").wait().unwrap().success());
    // Interrupt the second one as soon as it is at work, then let it go on. If it was too fast, it has simply
    // finished.
    let mut child = go("parts", "400000");
    let runs = folder.path().join("parts/runs");
    while !runs.is_dir() && child.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    let _ = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    let code = child.wait().unwrap().code();
    assert!(matches!(code, Some(130 | 0)), "{code:?}");
    assert!(go("parts", "400000").wait().unwrap().success());
    let values = |out: &str| {
        let csv = std::fs::read_to_string(folder.path().join(out).join("curves.csv")).unwrap();
        csv.lines()
            .map(|l| {
                l.split(',')
                    .enumerate()
                    .filter(|(i, _)| *i != 3)
                    .map(|(_, v)| v.to_string())
                    .collect::<Vec<_>>()
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(values("whole"), values("parts"));
}

/// What was finished before is in the table of a run that stops before it comes to it.
#[test]
fn a_stopped_run_shows_what_was_finished_before() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("small.toml"), SMALL).unwrap();
    let go = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dibo"));
        command.current_dir(folder.path()).args([
            "run",
            "small.toml",
            "--quiet",
            "--out",
            "o",
            "--threads",
            "1",
        ]);
        command.args(["--set", "run.iterations=400000", "--set", "run.every=400000"]);
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap()
    };
    assert!(go().wait().unwrap().success());
    let runs = folder.path().join("o/runs");
    let mut done: Vec<_> = std::fs::read_dir(&runs).unwrap().map(|f| f.unwrap().path()).collect();
    done.retain(|file| file.extension().is_some_and(|e| e == "done"));
    done.sort();
    assert!(done.len() > 1);
    std::fs::remove_file(&done[0]).unwrap();
    // Interrupted in the first run, which is done again.
    let mut child = go();
    std::thread::sleep(std::time::Duration::from_millis(300));
    let _ = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    child.wait().unwrap();
    let manifest = std::fs::read_to_string(folder.path().join("o/manifest.json")).unwrap();
    let manifest: serde_json::Value = serde_json::from_str(&manifest).unwrap();
    let finished = |run: &&serde_json::Value| run["outcome"] == "finished";
    let finished = manifest["runs"].as_array().unwrap().iter().filter(finished).count();
    assert!(finished >= done.len() - 1, "{finished} of {}", done.len());
}

/// However far the next evaluation is, a run that is told to stop keeps what it has.
#[test]
fn a_run_without_evaluations_stops_at_once_and_keeps_a_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("small.toml"), SMALL).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_dibo"))
        .current_dir(folder.path())
        .args(["run", "small.toml", "--quiet", "--out", "o"])
        .args(["--set", "run.iterations=1000000000", "--set", "run.every=1000000000"])
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let runs = folder.path().join("o/runs");
    while !runs.is_dir() {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    std::thread::sleep(std::time::Duration::from_millis(200));
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let asked = std::time::Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if asked.elapsed().as_secs() > 60 {
            child.kill().unwrap();
            panic!("it did not stop within a minute");
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    };
    assert_eq!(status.code(), Some(130));
    assert!(std::fs::read_dir(&runs).unwrap().count() > 0, "nothing was kept");
}

/// A program that is compared with fails: what was computed before is kept, and the failure is said.
#[test]
fn a_peer_that_fails_costs_no_report() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("small.toml"), SMALL).unwrap();
    let output = dibo(folder.path(), &["run", "small.toml", "--quiet", "--out", "o", "--peer", "false"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    for file in ["report.html", "curves.csv", "manifest.json"] {
        assert!(folder.path().join("o").join(file).exists(), "{file} is missing");
    }
}

#[test]
fn trace_prints_json() {
    let folder = tempfile::tempdir().unwrap();
    let input = concat!(env!("CARGO_MANIFEST_DIR"), "/../dibo/tests/data/oracle-input.json");
    let output = dibo(folder.path(), &["trace", input]);
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(value["push-pull-soba"]["100"]["tv"][3][2].is_number());
    let missing = dibo(folder.path(), &["trace", "nothing.json"]);
    assert_eq!(missing.status.code(), Some(2));
}

#[test]
fn tune_finds_goes_on_and_writes_a_file_that_runs() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("small.toml"), SMALL.replace("every = 20", "every = 20\ntarget = 0.2"))
        .unwrap();
    let tune = |arguments: &[&str]| {
        let output = dibo(
            folder.path(),
            &[&["tune", "small.toml", "--quiet", "--seeds", "2", "--out", "t"], arguments].concat(),
        );
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let line = |out: &str, with: &str| {
        out.lines()
            .find(|l| l.contains(with))
            .unwrap_or_else(|| panic!("{with} is missing in {out}"))
            .to_string()
    };
    let first = tune(&[]);
    let best = line(&first, "best: ");
    // The lists of the file are the grid: λ is 20 or 60.
    assert!(best.contains("lambda = 20") || best.contains("lambda = 60"), "{best}");
    for file in ["best.toml", "tune.csv", "plots/tune.svg", "plots/tune.png"] {
        assert!(folder.path().join("t").join(file).metadata().unwrap().len() > 0, "{file}");
    }
    // All is kept: the same command runs nothing and says the same.
    let again = tune(&[]);
    assert_eq!(line(&again, "best: "), best);
    assert!(line(&again, "iterations run").starts_with("0 iterations run"), "{again}");
    // Cut off in the middle: half of what was kept is gone, the rest is done again, to the same end.
    let tracks: Vec<_> =
        std::fs::read_dir(folder.path().join("t/tracks")).unwrap().map(|e| e.unwrap().path()).collect();
    tracks.iter().step_by(2).for_each(|p| std::fs::remove_file(p).unwrap());
    let resumed = tune(&[]);
    assert_eq!(line(&resumed, "best: "), best);
    assert!(!line(&resumed, "iterations run").starts_with("0 iterations run"));
    let run = dibo(folder.path(), &["run", "t/best.toml", "--quiet", "--out", "r"]);
    assert!(run.status.success(), "{}", text(&run.stderr));
    // Another algorithm than the file's is refused with what there is.
    let missing = dibo(folder.path(), &["tune", "small.toml", "--algorithm", "push-sgd"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(text(&missing.stderr).contains("the file has fab"));
}

#[test]
fn watching_the_theory_records_it_and_stops_a_run_that_breaks_it() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("small.toml"), SMALL).unwrap();
    let run = |arguments: &[&str]| {
        let output = dibo(
            folder.path(),
            &[&["run", "small.toml", "--quiet", "--seeds", "1", "--watch", "theory"], arguments].concat(),
        );
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    assert!(!run(&["--out", "w", "--set", "run.every=1", "--set", "run.iterations=50"]).contains("stopped,"));
    let out = folder.path().join("w");
    let curves = std::fs::read_to_string(out.join("curves.csv")).unwrap();
    for column in
        ["V_D", "V_S", "D_x", "S_z", "y_gap", "z_gap", "lyapunov", "penalty_bias", "averaged_dynamics"]
    {
        assert!(curves.lines().next().unwrap().contains(column), "{column}");
    }
    assert!(out.join("plots/theory-lyapunov.svg").exists());
    // Frozen weights over links that fail lose mass.
    let broken = run(&["--set", "algorithm.name=static-fab", "--out", "broken"]);
    assert!(broken.contains("Weights were lost"), "{broken}");
    let wrong = dibo(folder.path(), &["run", "small.toml", "--watch", "birds"]);
    assert_eq!(wrong.status.code(), Some(2));
}
