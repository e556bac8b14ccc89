//! What users met and must not meet again: silent mistakes, old results shown as new, panics, hangs.
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn dibo(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dibo")).current_dir(folder).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A run that must go well; what it prints.
fn good(folder: &Path, arguments: &[&str]) -> String {
    let output = dibo(folder, arguments);
    assert!(output.status.success(), "{arguments:?}: {}{}", text(&output.stdout), text(&output.stderr));
    // Long lines are folded.
    text(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A run that must be refused in one line with these words, soon.
fn refused(folder: &Path, arguments: &[&str], words: &[&str]) {
    let began = Instant::now();
    let output = dibo(folder, arguments);
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}{}", text(&output.stdout));
    assert_eq!(message.trim().lines().count(), 1, "{arguments:?}: {message}");
    assert!(words.iter().all(|w| message.contains(w)), "{arguments:?}: {words:?} in {message}");
    assert!(began.elapsed() < Duration::from_secs(20), "{arguments:?} took {:?}", began.elapsed());
}

const SMALL: &str = include_str!("small.toml");

fn small(folder: &Path) {
    std::fs::write(folder.join("small.toml"), SMALL).unwrap();
}

/// Seconds by the manifest.
fn seconds(folder: &Path) -> f64 {
    let text = std::fs::read_to_string(folder.join("manifest.json")).unwrap();
    serde_json::from_str::<serde_json::Value>(&text).unwrap()["seconds"].as_f64().unwrap()
}

/// The curves without the seconds.
fn numbers(folder: &Path) -> Vec<String> {
    let csv = std::fs::read_to_string(folder.join("curves.csv")).unwrap();
    let row =
        |l: &str| l.split(',').enumerate().filter(|c| c.0 != 3).map(|c| c.1).collect::<Vec<_>>().join(",");
    csv.lines().map(row).collect()
}

#[test]
fn tune_runs_over_the_network_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    small(folder.path());
    let csv = |loss: &str| {
        let set = format!("graph.loss={loss}");
        good(folder.path(), &["tune", "small.toml", "--quiet", "--seeds", "1", "--out", loss, "--set", &set]);
        std::fs::read_to_string(folder.path().join(loss).join("tune.csv")).unwrap()
    };
    assert_ne!(csv("0.5"), csv("0.0"));
    let words = &["there is no metric 'nonsense'", "relative_error"];
    refused(folder.path(), &["tune", "small.toml", "--metric", "nonsense"], words);
    assert!(!folder.path().join("results").exists(), "a refused call leaves nothing behind");
}

#[test]
fn check_gives_no_all_clear_that_it_cannot_give() {
    let folder = tempfile::tempdir().unwrap();
    small(folder.path());
    let check = |set: &[&str]| {
        let set: Vec<&str> = set.iter().flat_map(|s| ["--set", s]).collect();
        good(folder.path(), &[&["check", "small.toml", "--seconds", "3"], &set[..]].concat())
    };
    let plain = check(&[]);
    assert!(plain.contains("No warning, which is no promise") && plain.contains("of memory"), "{plain}");
    let far = check(&["algorithm.eta_x=50", "run.iterations=3000"]);
    assert!(far.contains("diverge") && far.contains("1 of 1 settings carry a warning"), "{far}");
    let lossy = check(&["graph.loss=0.3"]);
    assert!(lossy.contains("links lose messages"), "{lossy}");
    let loops = SMALL.split("[[algorithm]]").next().unwrap().to_string()
        + "[[algorithm]]\nname = \"dl-push-pull\"\neta = 5.0\ninner = 5\n";
    std::fs::write(folder.path().join("loops.toml"), loops).unwrap();
    let loops = good(folder.path(), &["check", "loops.toml", "--seconds", "3"]);
    assert!(loops.contains("diverges"), "{loops}");
    let data = dibo(folder.path(), &["check", "fmcr", "--data", "nowhere", "--seconds", "1"]);
    assert_eq!(data.status.code(), Some(2));
    assert!(text(&data.stdout).contains("cannot run"), "{}", text(&data.stdout));
}

/// μ of tuning is at least 2τ, for every agent: all start with the one row that the problem gives.
#[test]
fn every_agent_starts_where_the_problem_says() {
    let folder = tempfile::tempdir().unwrap();
    let file = "[problem]\nkind = \"tuning\"\nagents = 5\ntrain = 20\nvalidation = 5\ntau = \
        0.15\n[run]\niterations = 2\n\
                [[algorithm]]\nname = \"fab\"\nlambda = 1\neta_x = 0.001\neta_y = 0.005\n";
    std::fs::write(folder.path().join("t.toml"), file).unwrap();
    for agents in ["1", "5"] {
        let set = format!("problem.agents={agents}");
        let said = good(folder.path(), &["check", "t.toml", "--seconds", "0.1", "--set", &set]);
        let mu = said.split("μ = ").nth(1).and_then(|t| t.split(',').next()).unwrap().parse::<f64>().unwrap();
        assert!(mu > 0.29, "{agents} agents: {mu}");
    }
}

#[test]
fn old_results_do_not_pass_for_new_ones() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let file = SMALL.replace("kind = \"cycle\"\nnu = 0.3", "kind = \"file\"\nfile = \"graphs.json\"");
    std::fs::write(folder.join("small.toml"), file).unwrap();
    let ring = "[[0,1],[1,2],[2,3],[3,4],[4,0]";
    std::fs::write(folder.join("graphs.json"), format!("[{{\"edges\": {ring}]}}]")).unwrap();
    good(folder, &["run", "small.toml", "--quiet"]);
    let before = numbers(&folder.join("results/small"));
    // A sitting that finds all done adds no seconds; others add theirs.
    let first = seconds(&folder.join("results/small"));
    assert!(good(folder, &["run", "small.toml", "--quiet"]).contains("2 of 2 runs were found finished"));
    assert_eq!(seconds(&folder.join("results/small")), first);
    std::fs::write(folder.join("graphs.json"), format!("[{{\"edges\": {ring},[0,2]]}}]")).unwrap();
    assert!(!good(folder, &["run", "small.toml", "--quiet"]).contains("found finished"));
    assert_ne!(numbers(&folder.join("results/small")), before);
    // More seeds go on in the same folder; other settings get one of their own, other experiments are
    // refused.
    let second = seconds(&folder.join("results/small"));
    assert!(
        good(folder, &["run", "small.toml", "--quiet", "--seeds", "3"]).contains("2 of 3 runs were found")
    );
    assert!(seconds(&folder.join("results/small")) > second);
    let set = ["run", "small.toml", "--quiet", "--set", "algorithm.eta_x=0.05"];
    let other = good(folder, &set);
    assert!(!other.contains("results/small/"), "{other}");
    refused(
        folder,
        &[&set[..], &["--out", "results/small"]].concat(),
        &["with other settings", "--out", "--fresh"],
    );
    std::fs::write(folder.join("second.toml"), SMALL).unwrap();
    refused(
        folder,
        &["run", "second.toml", "--out", "results/small"],
        &["holds results of small, not of second"],
    );
    good(folder, &["run", "second.toml", "--quiet", "--out", "results/small", "--fresh"]);
}

#[test]
fn a_folder_serves_one_process_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    small(folder.path());
    let mut first = Command::new(env!("CARGO_BIN_EXE_dibo"))
        .current_dir(folder.path())
        .args([
            "run",
            "small.toml",
            "--out",
            "o",
            "--set",
            "run.iterations=100000000",
            "--set",
            "run.every=1000",
        ])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while !folder.path().join("o/runs").is_dir() {
        std::thread::sleep(Duration::from_millis(10));
    }
    let second =
        ["run", "small.toml", "--out", "o", "--set", "run.iterations=100000000", "--set", "run.every=1000"];
    refused(folder.path(), &second, &["in use by another dibo"]);
    // SIGTERM is Ctrl-C: what is done is kept.
    Command::new("kill").args(["-TERM", &first.id().to_string()]).status().unwrap();
    assert_eq!(first.wait().unwrap().code(), Some(130));
    assert!(
        folder.path().join("o/runs/0-0.checkpoint").exists()
            && folder.path().join("o/manifest.json").exists()
    );
}

#[test]
fn names_stay_inside_and_failures_leave_nothing() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("in")).unwrap();
    let inside = folder.path().join("in");
    std::fs::write(inside.join("x.toml"), format!("name = \"../../x\"\n{SMALL}")).unwrap();
    refused(&inside, &["run", "x.toml"], &["name", "letters"]);
    std::fs::write(
        inside.join("f.toml"),
        format!("{SMALL}[[figure]]\nname = \"../f\"\ny = \"relative_error\"\n"),
    )
    .unwrap();
    refused(&inside, &["run", "f.toml"], &["name is \"../f\"", "letters"]);
    assert!(!inside.join("results").exists());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn what_would_be_ignored_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let figure = |line: &str| format!("{SMALL}[[figure]]\nname = \"a\"\ny = \"relative_error\"\n{line}\n");
    let cleaning = |line: &str| {
        format!(
            "[problem]\nkind = \"cleaning\"\nagents = 4\ntrain = 5\nvalidation = 5\n[[algorithm]]\nname = \
            \"fab\"\n\
            lambda = 1\neta_x = 0.1\neta_y = 0.01\n{line}\n"
        )
    };
    let cases: [(String, &[&str]); 17] = [
        (
            SMALL.replace("every = 20", "every = 20\ntarget = 0.1\nmetric = \"nonsense\""),
            &["nonsense", "relative_error"],
        ),
        (
            SMALL.replace("every = 20", "every = 20\nmetric = \"relativ_error\""),
            &["did you mean 'relative_error'"],
        ),
        (figure("x = \"time\""), &["x is 'time'", "iteration"]),
        (figure("panels = \"graph.mu\""), &["panels is 'graph.mu'"]),
        (figure("log = \"z\""), &["log is 'z'"]),
        (SMALL.replace("kind = \"cycle\"", "kind = \"file\"\nfile = \"g.json\""), &["unknown field `nu`"]),
        (SMALL.replace("kind = \"cycle\"\nnu = 0.3", "kind = \"file\""), &["file is missing"]),
        (SMALL.replace("nu = 0.3", "nu = 0.3\nloss = 0.2\nburst = 1e9"), &["burst is 1000000000"]),
        (cleaning("train_on = \"validation\""), &["train_on has no effect"]),
        (cleaning("tau = 0.1"), &["tau has no effect"]),
        (SMALL.replace("[graph]", "[grpah]"), &["no section 'grpah'", "did you mean 'graph'"]),
        (SMALL.replace("seeds = 2", "seeds = [\"a\"]"), &["seeds is"]),
        (SMALL.replace("seeds = 2", "seeds = [-1]"), &["seeds is"]),
        (SMALL.replace("seeds = 2", "seeds = [1, \"b\", 2.5]"), &["seeds is"]),
        (SMALL.replace("name = \"fab\"", "name = \"fub\""), &["did you mean 'fab'"]),
        (SMALL.replace("eta_x", "eta_xx"), &["did you mean 'eta_x'"]),
        (format!("claims = [\"P77\"]\n{SMALL}"), &["nobody judges 'P77'"]),
    ];
    for (file, words) in cases {
        std::fs::write(folder.join("bad.toml"), &file).unwrap();
        refused(folder, &["run", "bad.toml", "--quiet"], words);
    }
    // A contact plan that connects everybody over a window only: the way out is `window`.
    let plan = r#"[{"edges": [[0,1],[1,2],[2,0]]}, {"edges": [[2,3],[3,4],[4,2]]}]"#;
    std::fs::write(folder.join("plan.json"), plan).unwrap();
    let file = SMALL.replace("kind = \"cycle\"\nnu = 0.3", "kind = \"file\"\nfile = \"plan.json\"");
    std::fs::write(folder.join("plan.toml"), &file).unwrap();
    refused(folder, &["run", "plan.toml"], &["set window = 2"]);
    std::fs::write(folder.join("plan.toml"), file.replace("plan.json\"", "plan.json\"\nwindow = 2")).unwrap();
    good(folder, &["run", "plan.toml", "--quiet"]);
    assert!(text(&dibo(folder, &["run", "sensitivty"]).stderr).contains("did you mean 'sensitivity'"));
}

#[test]
fn what_cannot_fit_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    small(folder.path());
    let run = |more: &[&str], words: &[&str]| {
        refused(folder.path(), &[&["run", "small.toml", "--quiet"][..], more].concat(), words)
    };
    run(&["--seeds", "99999999999"], &["--seeds is 99999999999"]);
    let values: Vec<String> = (1..=1000).map(|i| format!("{i}")).collect();
    let list = format!("[{}]", values.join(","));
    let [a, b, c] = ["lambda", "eta_x", "eta_y"].map(|key| format!("algorithm.{key}={list}"));
    run(&["--set", &a, "--set", &b, "--set", &c], &["1000000000 settings", "--yes"]);
    run(&["--set", "problem.agents=1000000"], &["of memory"]);
    run(&["--set", "problem.states=1000000"], &["of memory"]);
    let file = "[problem]\nkind = \"cleaning\"\nmodel = \"mlp\"\nhidden = 1048576\n[[algorithm]]\nname = \
        \"fab\"\n\
                lambda = 1\neta_x = 0.1\neta_y = 0.01\n";
    std::fs::write(folder.path().join("wide.toml"), file).unwrap();
    refused(folder.path(), &["run", "wide.toml"], &["FAB needs about", "of memory"]);
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_behind_the_output_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    small(folder.path());
    for arguments in [&["list"][..], &["--help"], &["run", "small.toml", "--quiet"], &["check", "small.toml"]]
    {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_dibo"));
        let output = command.current_dir(folder.path()).args(arguments).stdout(full).output().unwrap();
        let message = text(&output.stderr);
        assert!(
            output.status.code() == Some(2) && message.contains("cannot write to standard output"),
            "{message}"
        );
        assert_eq!(message.trim().lines().count(), 1, "{message}");
    }
}

/// A generator for damage.
struct Damage(u64);

impl Damage {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % n.max(1)
    }
}

/// All files of a folder.
fn files(folder: &Path, all: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()) {
        if entry.is_dir() { files(&entry, all) } else { all.push(entry) }
    }
    all.sort();
}

/// 50 bit flips and 20 truncations in any file of a results folder: each is told of by `report` or by the
/// next `run`, and the numbers of that run are those of the first.
#[test]
fn damage_changes_no_number_silently() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    small(folder);
    good(folder, &["run", "small.toml", "--quiet"]);
    let out = folder.join("results/small");
    let expected = numbers(&out);
    let (mut all, mut damage) = (Vec::new(), Damage(7));
    files(&out, &mut all);
    all.retain(|f| f.metadata().unwrap().len() > 0);
    assert!(all.len() > 8, "{all:?}");
    for trial in 0..70 {
        let file = &all[damage.below(all.len())];
        let whole = std::fs::read(file).unwrap();
        let mut bytes = whole.clone();
        match trial < 50 {
            true => bytes[damage.below(whole.len())] ^= 1 << damage.below(8),
            false => bytes.truncate(damage.below(whole.len())),
        }
        std::fs::write(file, &bytes).unwrap();
        let report = dibo(folder, &["report", "results/small"]);
        let run = dibo(folder, &["run", "small.toml", "--quiet"]);
        let said = text(&report.stdout) + &text(&report.stderr) + &text(&run.stdout) + &text(&run.stderr);
        let told = ["damaged", "changed", "missing", "not as", "cut off", "made anew"]
            .iter()
            .any(|w| said.contains(w));
        assert!(told, "{trial}: damage of {} was not told of: {said}", file.display());
        if run.status.success() {
            assert_eq!(numbers(&out), expected, "{}", file.display());
        } else {
            // Whose folder it is can no longer be told: it is refused until it is taken over.
            assert!(file.ends_with(".experiment"), "{}: {said}", file.display());
            good(folder, &["run", "small.toml", "--quiet", "--fresh"]);
            assert_eq!(numbers(&out), expected);
        }
    }
}
