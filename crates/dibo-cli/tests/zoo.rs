//! The zoo: no cell is empty without a reason, and the reasons are true. What its files rest on: cases with a
//! name, and tuning that finds steps for all seeds.
use dibo::algorithm::NAMES;
use dibo::rows::Threads;
use dibo_paper::zoo::{NETWORKS, TASKS, file, reason};
use dibo_run::door::{Place, open};
use dibo_run::{Experiment, Registry};
use std::path::Path;
use std::process::Command;

fn read(text: &str) -> anyhow::Result<Experiment> {
    let registry = Registry::new();
    registry.parse(registry.source("test.toml".into(), text), "test", Path::new("."), true)
}

/// The network of a setting of the zoo.
fn case(series: &dibo_report::results::Series) -> String {
    series.words("algorithm.case")
}

#[test]
fn every_method_runs_over_every_network_or_has_its_reason() {
    for task in TASKS {
        let all = read(file(task)).unwrap();
        assert_eq!(all.seeds, [100, 101, 102, 103, 104], "{}: tuning has the seeds below", task.name);
        for (method, _) in NAMES {
            for (network, _) in NETWORKS {
                let here = |s: &&dibo_run::setting::Setting| {
                    s.series.algorithm == *method && case(&s.series) == *network
                };
                let runs = all.settings.iter().filter(here).count();
                let why = reason(file(task), method, network);
                assert!(
                    runs == 1 && why.is_none() || runs == 0 && why.is_some_and(|w| w.len() > 5),
                    "{}, {method}, {network}: {runs} blocks, {why:?}",
                    task.name
                );
            }
        }
    }
}

/// Where the files say that a network lacks what a method needs, dibo refuses it with these words.
#[test]
fn what_the_zoo_leaves_out_is_refused() {
    let text = file(TASKS.iter().find(|t| t.name == "zoo-quadratic").unwrap());
    let head = text.split("[[algorithm]]").next().unwrap();
    let threads = Threads::one();
    let mut refused = 0;
    for block in text.split("[[algorithm]]").skip(1).filter(|b| b.contains("case = \"static\"")) {
        let block = block.split("\n#").next().unwrap().split("[[figure]]").next().unwrap();
        let name = block.split('"').nth(1).unwrap();
        for (network, _) in NETWORKS {
            let Some(why) = reason(text, name, network).filter(|w| w.starts_with("needs")) else { continue };
            let moved = block.replace("case = \"static\"", &format!("case = \"{network}\""));
            let one = read(&format!("{head}[[algorithm]]{moved}")).unwrap();
            let error = open(&one.settings[0], 100, Place::new(Path::new("."), &threads)).err();
            let error = error.map(|e| format!("{e:#}")).unwrap_or_default();
            assert!(error.contains(why), "{name}, {network}: {error}");
            refused += 1;
        }
    }
    assert!(refused > 20, "{refused}: is the reader of this test broken?");
}

const NAMED: &str = r#"
[problem]
kind = "policy-evaluation"

[[algorithm]]
name = "fab"
case = "still"
lambda = 60
eta_x = 0.1
eta_y = 0.1

[[algorithm]]
name = "push-soba"
eta_x = 0.1
eta_y = 0.1

[[case]]
name = "still"
graph.kind = "ring"
graph.undirected = true

[[case]]
name = "one way"
graph.kind = "cycle"
"#;

/// An algorithm that names a case runs there alone; a case's name stands in labels for all that it says.
#[test]
fn an_algorithm_may_name_its_cases() {
    let labels = |text: &str| {
        let read = read(text).unwrap();
        read.settings.iter().map(|s| s.series.label.clone()).collect::<Vec<_>>()
    };
    let fab = "FAB case=still";
    assert_eq!(labels(NAMED), [fab, "Push-SOBA case=still", "Push-SOBA case=oneway"]);
    let both = NAMED.replace("case = \"still\"", "case = [\"still\", \"one way\"]");
    assert_eq!(labels(&both)[..2], [fab, "FAB case=oneway"]);
    let wrong = NAMED.replace("case = \"still\"", "case = \"stil\"");
    let error = format!("{:#}", read(&wrong).err().unwrap());
    let says =
        "test.toml:7: case is 'stil'; the file's named cases are: still, one way; did you mean 'still'?";
    assert_eq!(error, says);
}

/// Runs a command on a file of this text; what it says on both streams, and whether it went well.
fn dibo(text: &str, arguments: &[&str]) -> (String, bool, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file.toml"), text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_dibo"));
    command.current_dir(folder.path()).args(arguments).args(["--quiet", "--out", "out"]);
    let output = command.output().unwrap();
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    (said.concat(), output.status.success(), folder)
}

#[test]
fn tuning_takes_place_in_a_named_case() {
    let text = NAMED.replace("[problem]", "[run]\niterations = 20\n[problem]");
    let tune = |case: &str| {
        dibo(&text, &["tune", "file.toml", "--seeds", "1", "--algorithm", "fab", "--case", case])
    };
    let (said, well, folder) = tune("still");
    assert!(well, "{said}");
    let best = std::fs::read_to_string(folder.path().join("out/best.toml")).unwrap();
    assert!(best.contains("kind = \"ring\"") && !best.contains("case"), "{best}");
    let (said, well, _) = tune("one way");
    assert!(!well && said.contains("--case one way: it runs in still"), "{said}");
}

fn one(graph: &str, method: &str, iterations: usize) -> String {
    format!(
        "[problem]\nkind = \"quadratic\"\nagents = 10\ndim_x = 5\ndim_y = 10\n[graph]\n{graph}\n[run]\n\
        iterations = {iterations}\nevery = 10\n[[algorithm]]\n{method}"
    )
}

/// All settings that are best with the first seed diverge with another here: those behind get their turn.
#[test]
fn tuning_goes_on_where_the_best_of_one_seed_diverge_with_another() {
    let graph = "kind = \"erdos-renyi\"\nnu = 0.3\nconnected = true\nredraw = \"never\"";
    let text = one(graph, "name = \"push-soba\"\neta_x = 0.03\neta_y = 0.1\n", 3000);
    let (said, well, _) = dibo(&text, &["tune", "file.toml", "--seeds", "4"]);
    assert!(well && said.contains("\nbest: eta_x = "), "{said}");
}

/// Metrics that are no numbers are written into a track and read again.
#[test]
fn tuning_reads_tracks_of_runs_without_numbers() {
    let graph = "kind = \"ring\"\nundirected = true\nloss = 0.2";
    let text = one(graph, "name = \"dl-push-sgd\"\ninner = 10\ninner_start = \"kept\"\neta = 0.001\n", 1000);
    let (said, well, _) = dibo(&text, &["tune", "file.toml", "--seeds", "2"]);
    assert!(!well && said.contains("every setting of tier 1 diverged"), "{said}");
}

/// HGP takes both parts of ∇f in one call: T gradients of g and one of f, for each agent and iteration.
#[test]
fn hgp_computes_no_gradient_twice() {
    let method = "name = \"hgp\"\nalpha = 0.1\ninner = 3\nterms = 2\npushes = 2\neta_x = 0.01\neta_y = 0.1\n";
    let text = one("kind = \"ring\"\nundirected = true", method, 20);
    let (said, well, folder) = dibo(&text, &["run", "file.toml"]);
    assert!(well, "{said}");
    let curves = std::fs::read_to_string(folder.path().join("out/curves.csv")).unwrap();
    let (head, last) = (curves.lines().next().unwrap(), curves.lines().last().unwrap());
    let column = head.split(',').position(|name| name == "gradients").unwrap();
    assert_eq!(last.split(',').nth(column).unwrap(), (10 * 20 * (3 + 1)).to_string());
}
