//! Agents as processes of this machine.
#![cfg(feature = "net")]
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const SMALL: &str = r#"title = "a small run"
seeds = 1

[problem]
kind = "policy-evaluation"
agents = 5
f_weight = 1.0
g_weight = 0.5

[graph]
kind = "cycle"
nu = 0.3

[run]
iterations = 60
every = 20

[[algorithm]]
name = "fab"
penalty_form = "normalised"
lambda = 60
eta_x = 0.1
eta_y = 0.1
"#;

fn launch(folder: &Path, more: &[&str]) -> Command {
    std::fs::write(folder.join("small.toml"), SMALL).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_dibo"));
    command.current_dir(folder).args(["launch", "small.toml", "--processes", "3", "--quiet"]).args(more);
    command
}

fn gives_the_simulators_bits(more: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let output = launch(folder.path(), more).arg("--verify").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success()
            && said.contains("every bit")
            && said.contains("s from the last result until all processes had ended"),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn spoilt_packets_over_tls_give_the_simulators_bits() {
    gives_the_simulators_bits(&["--faults", "drop=0.2,duplicate=0.2,delay=0.2"]);
}

/// A launch clears what an earlier one left, and nothing else.
#[test]
fn a_folder_of_somebody_else_s_agents_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let notes = folder.path().join("o/agents/notes.txt");
    std::fs::create_dir_all(notes.parent().unwrap()).unwrap();
    std::fs::write(&notes, "mine").unwrap();
    for more in [&["--out", "o"][..], &["--out", "o", "--fresh"]] {
        let output = launch(folder.path(), more).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("has a notes.txt that dibo did not write"), "{said}");
        assert_eq!(std::fs::read_to_string(&notes).unwrap(), "mine");
    }
}

/// Results of other settings are refused before the work; `--fresh` removes them, and nothing of others.
#[test]
fn a_launch_takes_over_other_results_when_it_is_told_to() {
    let folder = tempfile::tempdir().unwrap();
    let run = |more: &[&str]| {
        let output = launch(folder.path(), &["--tcp", "--out", "o"]).args(more).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert_eq!(run(&[]), (Some(0), String::new()));
    std::fs::write(folder.path().join("o/notes.txt"), "mine").unwrap();
    let before = std::fs::metadata(folder.path().join("o/agents/0.log")).unwrap().modified().unwrap();
    let other = ["--set", "run.iterations=40"];
    let (code, said) = run(&other);
    assert!(code == Some(2) && said.contains("with other settings") && said.contains("--fresh"), "{said}");
    let after = std::fs::metadata(folder.path().join("o/agents/0.log")).unwrap().modified().unwrap();
    assert_eq!(before, after);
    assert_eq!(run(&[&other[..], &["--fresh", "--verify"]].concat()).0, Some(0));
    assert_eq!(std::fs::read_to_string(folder.path().join("o/notes.txt")).unwrap(), "mine");
    let manifest = std::fs::read_to_string(folder.path().join("o/manifest.json")).unwrap();
    assert!(manifest.contains("run.iterations=40"), "{manifest}");
}

/// It writes to agents that are gone, which must not be its end.
#[test]
fn a_router_outlives_agents_that_are_killed() {
    gives_the_simulators_bits(&[
        "--router",
        "--set",
        "run.iterations=3000",
        "--kills",
        "4",
        "--kill-every",
        "0.2",
        "--checkpoint",
        "0.1",
    ]);
}

/// Waits for what must become true.
fn until(what: &str, mut is: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is() {
        assert!(begin.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn no_agent_outlives_a_launch_that_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = launch(folder.path(), &["--tcp", "--out", "o", "--set", "run.iterations=100000000"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let agents = folder.path().join("o/agents");
    until("the agents run", || agents.join("0/0-0.a.checkpoint").exists());
    // SIGKILL: it cannot tell its agents.
    child.kill().unwrap();
    child.wait().unwrap();
    for log in ["0.log", "2.log", "4.log"] {
        until(log, || {
            std::fs::read_to_string(agents.join(log))
                .is_ok_and(|text| text.contains("the process that started this one is gone"))
        });
    }
}

/// A process of the small run, over plain TCP on this machine.
fn agent(folder: &Path, own: &str, port: u16, more: &[&str]) -> Command {
    std::fs::write(folder.join("small.toml"), SMALL).unwrap();
    let end = if own.starts_with('0') { "--listen" } else { "--connect" };
    let mut command = Command::new(env!("CARGO_BIN_EXE_dibo"));
    command.current_dir(folder).args(["agent", "small.toml", "--own", own, end]);
    command.arg(format!("tcp/127.0.0.1:{port}")).args(["--out", "o"]).args(more);
    command
}

/// What `dibo status` says long after the processes said something.
fn status(folder: &Path) -> String {
    for entry in std::fs::read_dir(folder.join("o/agents")).unwrap() {
        let file = entry.unwrap().path().join("status.json");
        if let Ok(text) = std::fs::read(&file) {
            let mut status: serde_json::Value = serde_json::from_slice(&text).unwrap();
            status["at"] = 1.into();
            std::fs::write(&file, status.to_string()).unwrap();
        }
    }
    let mut status = Command::new(env!("CARGO_BIN_EXE_dibo"));
    let output = status.current_dir(folder).args(["status", "small.toml", "--out", "o"]).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Processes that ended in order are done, however long ago.
#[test]
fn who_has_ended_is_done() {
    let folder = tempfile::tempdir().unwrap();
    let output = launch(folder.path(), &["--tcp", "--out", "o"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = status(folder.path());
    assert_eq!(said.matches(", done,").count(), 3, "{said}");
    assert!(!said.contains("not running?"), "{said}");
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// What differs is said by both, and neither starts.
#[test]
fn options_that_differ_are_named() {
    let (folder, port) = (tempfile::tempdir().unwrap(), free_port());
    let one = agent(folder.path(), "0-2", port, &["--show-private"]).stderr(Stdio::piped()).spawn().unwrap();
    let two = agent(folder.path(), "3-4", port, &[]).output().unwrap();
    for output in [one.wait_with_output().unwrap(), two] {
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && said.contains("it differs in the options --lossy or --show-private"),
            "{said}"
        );
    }
    let said = status(folder.path());
    assert_eq!(said.matches("failed: ").count(), 2, "{said}");
    assert!(said.contains("--show-private") && !said.contains("not running?"), "{said}");
}

/// So does a graph file in which one link of the 34th of 37 graphs is another.
#[test]
fn graph_files_that_differ_are_named() {
    let port = free_port();
    let run = |own: &str, link: &str| {
        let folder = tempfile::tempdir().unwrap();
        let ring = r#"{"edges": [[0, 1], [1, 2], [2, 3], [3, 4], [4, 0]]}"#;
        let mut graphs = vec![ring.to_string(); 37];
        graphs[33] = ring.replace("[0, 1]", link);
        std::fs::write(folder.path().join("graphs.json"), format!("[{}]", graphs.join(","))).unwrap();
        let mut command = agent(folder.path(), own, port, &[]);
        let file = SMALL.replace("kind = \"cycle\"\nnu = 0.3", "kind = \"file\"\nfile = \"graphs.json\"");
        std::fs::write(folder.path().join("small.toml"), file).unwrap();
        (command.stderr(Stdio::piped()).spawn().unwrap(), folder)
    };
    let (one, _one) = run("0-2", "[0, 1]");
    let (two, _two) = run("3-4", "[0, 1], [0, 2]");
    for output in [one.wait_with_output().unwrap(), two.wait_with_output().unwrap()] {
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains("it differs in settings, seeds or"), "{said}");
    }
}

/// A learning task, whose sample weights are nobody else's business: `gather --verify` compares what was
/// told, with the folders of all processes and with that of the first alone.
#[test]
fn what_is_private_is_not_missed() {
    let (folder, port) = (tempfile::tempdir().unwrap(), free_port());
    let processes = ["0-2", "3-4"].map(|own| agent(folder.path(), own, port, &[]));
    let (begin, end) = SMALL.split_once("[problem]").unwrap();
    let rest = end.split_once("[graph]").unwrap().1;
    let problem = "kind = \"cleaning\"\nagents = 5\ntrain = 5\nvalidation = 5\ntest = 50";
    let file = format!("{begin}[problem]\n{problem}\n\n[graph]{rest}");
    std::fs::write(folder.path().join("small.toml"), file).unwrap();
    let running = processes.map(|mut command| command.stderr(Stdio::piped()).spawn().unwrap());
    for output in running.map(|process| process.wait_with_output().unwrap()) {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let gather = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dibo"));
        command.current_dir(folder.path()).args(["gather", "small.toml", "--out", "o", "--verify"]);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        assert!(said.contains("not compared, since made of private variables"), "{said}");
        assert!(said.contains(" MB at most in one of "), "{said}");
        said
    };
    let said = gather();
    assert!(said.contains("every bit of every row and metric is the simulator's"), "{said}");
    assert!(!said.contains("are not here"), "{said}");
    std::fs::remove_dir_all(folder.path().join("o/agents/3")).unwrap();
    let said = gather();
    assert!(said.contains("compared: the rows of 3 of 5 agents"), "{said}");
    let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("the folders of agents 3, 4 are not here: gradients, memory and wire"), "{said}");
    // A run that was never begun is missed.
    let mut command = Command::new(env!("CARGO_BIN_EXE_dibo"));
    command.current_dir(folder.path()).args(["gather", "small.toml", "--out", "o", "--seeds", "3"]);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("of 3 runs are not done"), "{said}");
}

/// From one folder a process runs once; `dibo status` shows what it waits for.
#[test]
fn a_second_start_is_refused_and_a_status_is_shown() {
    let (folder, port) = (tempfile::tempdir().unwrap(), free_port());
    let mut first = agent(folder.path(), "0-2", port, &[]).stderr(Stdio::null()).spawn().unwrap();
    until("a status is there", || folder.path().join("o/agents/0/status.json").exists());
    let second = agent(folder.path(), "0-2", free_port(), &[]).output().unwrap();
    let said = String::from_utf8_lossy(&second.stderr);
    assert!(!second.status.success() && said.contains("another process runs these agents"), "{said}");
    until("who is missing is shown", || {
        let mut status = Command::new(env!("CARGO_BIN_EXE_dibo"));
        let status =
            status.current_dir(folder.path()).args(["status", "small.toml", "--out", "o"]).output().unwrap();
        String::from_utf8_lossy(&status.stdout).contains("waiting for agents 3, 4 to appear")
    });
    let _ = first.kill();
    let _ = first.wait();
    let said = status(folder.path());
    assert!(said.contains("not running?"), "{said}");
}
