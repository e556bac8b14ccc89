//! Experiment files: cases, groups, and that every built-in one runs.
use crate::door::{Place, open};
use crate::problems::Numbers;
use crate::section::Source;
use crate::{Experiment, Registry, Request, Setting, check, pictures, runner};
use anyhow::Result;
use dibo::rows::Threads;
use dibo_report::{judge, report};
use std::path::Path;
use std::time::Duration;

fn registry() -> Registry {
    Registry::new().experiments(dibo_paper::EXPERIMENTS).judges(dibo_paper::claims::JUDGES)
}

fn load(name: &str, set: &[String]) -> Result<Experiment> {
    registry().load(&Request { file: name.into(), set: set.to_vec(), ..Request::default() })
}

fn read(text: &str, overrides: &[&str]) -> Result<Experiment> {
    let registry = registry();
    let source: Source = registry.source("test.toml".into(), text);
    let overrides: Vec<String> = overrides.iter().map(|o| o.to_string()).collect();
    registry.parse(source.with(&overrides)?, "test", Path::new("."), false)
}

const CASES: &str = r#"
[problem]
kind = "policy-evaluation"

[[algorithm]]
name = "fab"
group = "one"
lambda = 60
eta_x = 0.1
eta_y = 0.1

[[case]]
graph.nu = 0.1
problem.omega = [1, 2]

[[case]]
graph.nu = 0.5
problem.omega = 3
algorithm.lambda = 10
"#;

/// As a BERT's do, whose metrics of all data would take far longer.
#[test]
fn where_an_iteration_takes_long_a_trial_is_one_of_them_without_metrics() {
    let text = CASES.split("[[case]]").next().unwrap();
    let (experiment, one) = (read(text, &[]).unwrap(), Threads::one());
    let opened = open(&experiment.settings[0], 0, Place::new(Path::new("."), &one)).unwrap();
    let tried = opened.visit(check::Trial { time: Duration::from_nanos(1), look: true }).unwrap();
    assert!(tried.iterations == 1 && tried.seconds > 0.0 && tried.metric.is_none(), "{tried:?}");
    let tried = opened.visit(check::Trial { time: Duration::from_secs(30), look: true }).unwrap();
    assert!(tried.iterations > 1 && tried.metric.is_some(), "{tried:?}");
}

#[test]
fn cases_change_settings_together() {
    let e = read(CASES, &[]).unwrap();
    let of = |e: &Experiment, key: &str| e.settings.iter().map(|s| s.series.words(key)).collect::<Vec<_>>();
    assert_eq!(of(&e, "graph.nu"), ["0.1", "0.1", "0.5"]);
    assert_eq!(of(&e, "problem.omega"), ["1", "2", "3"]);
    assert_eq!(of(&e, "algorithm.lambda"), ["60", "60", "10"]);
    // They are values, not words: however a number is written, it is the same setting.
    assert_eq!(e.settings[1].series.settings["problem.omega"].number(), Some(2.0));
    let rewritten = read(&CASES.replace("0.1", "1.0e-1"), &[]).unwrap();
    let digest = |e: &Experiment| e.settings[0].digest(&e.folder).unwrap().finalize();
    assert_eq!((of(&rewritten, "graph.nu"), digest(&rewritten)), (of(&e, "graph.nu"), digest(&e)));
    assert!(e.settings.iter().all(|s| s.series.label.contains("group=one") && s.series.label.contains("ν=")));
    // The command line is stronger than a case.
    assert_eq!(of(&read(CASES, &["graph.nu=0.7"]).unwrap(), "graph.nu"), ["0.7"; 3]);
    for (from, to, says) in [
        ("graph.nu = 0.5", "graph = { nu = 0.5 }", "test.toml:17: graph: write the settings of a case as"),
        ("graph.nu = 0.5", "grape.nu = 0.5", "test.toml:17: grape: write the settings of a case as"),
        ("graph.nu = 0.5", "graph.mu = 0.5", "test.toml:17: unknown field `mu`"),
        ("graph.nu = 0.5", "graph.nu = 5", "test.toml:17: nu is 5"),
        ("[[case]]\ngraph.nu = 0.5", "[[case]]\nnu = 0.5", "test.toml:17: nu: write"),
    ] {
        let error = format!("{:#}", read(&CASES.replace(from, to), &[]).err().unwrap());
        assert!(error.contains(says), "{error}");
    }
}

/// An algorithm may learn τ in another way, from another start; a baseline's τ stays a plain number.
#[test]
fn an_algorithm_may_change_how_tau_is_learned() {
    let text = r#"
[problem]
kind = "tuning"
agents = 10
tau = 0.15
tau_form = "exp"

[[algorithm]]
name = "fab"
lambda = 1
eta_x = 0.01
eta_y = 0.005

[[algorithm]]
name = "fab"
tau_form = "plain"
tau = 0.0
lambda = 1
eta_x = 3e-4
eta_y = 0.02

[[algorithm]]
name = "push-pull"
tau = 0
eta = 0.005
"#;
    let e = read(text, &[]).unwrap();
    let starts = |s: &Setting| {
        let one = Threads::one();
        let place = Place::new(Path::new("."), &one);
        match open(s, 0, place).unwrap().built.problem {
            Numbers::F32(p, _) => p.start().x,
            Numbers::F64(..) => panic!("tuning has 32 bits here"),
        }
    };
    assert_eq!(
        e.settings.iter().map(starts).collect::<Vec<_>>(),
        [[[0.15f64.ln()]], [[0.0]], [[0.15f64.ln()]]]
    );
    // Whoever learns τ = x itself is told that it may fall below 0; it is also what a file gets that says
    // nothing.
    let plain = |text: &str| {
        let warned = |s: &Setting| s.problem.caution(&*s.algorithm).is_some();
        read(text, &[]).unwrap().settings.iter().map(warned).collect::<Vec<_>>()
    };
    assert_eq!(plain(text), [false, true, false]);
    assert_eq!(plain(&text.replace("tau_form = \"exp\"", "")), [true, true, false]);
    let error = format!("{:#}", read(&text.replace("\"plain\"", "\"square\""), &[]).err().unwrap());
    assert!(
        error.contains("test.toml:16") && error.contains("`plain`, `projected`, `exp`, `softplus`"),
        "{error}"
    );
}

/// Values that let an experiment run without downloaded data, for three iterations: the part of MNIST that
/// comes with dibo stands in, with fewer samples where fixed numbers are asked for.
fn short(full: &Experiment) -> Vec<String> {
    let mut short = vec!["run.iterations=3".to_string(), "run.every=1".into()];
    let has = |key: &str| full.settings[0].series.settings.get(key);
    if has("problem.data").is_some_and(|d| d.is("files")) {
        short.extend(["problem.files=[]", "problem.test_file=\"\"", "problem.owner=\"\""].map(String::from));
    }
    if has("problem.data").is_some() {
        short.extend(["problem.data=mnist-2500", "problem.test=200"].map(String::from));
        if has("problem.model").is_some_and(|m| m.is("bert")) {
            short.push("problem.model=linear".into());
        }
        if has("problem.samples").is_some() {
            short.push("problem.samples=0".into());
        }
        if has("problem.train").and_then(|t| t.number()).is_some_and(|t| t >= 1e4) {
            short.extend(["problem.train=2000", "problem.validation=500"].map(String::from));
        }
        if has("problem.checked").and_then(|c| c.number()).is_some_and(|c| c >= 100.0) {
            short.push("problem.checked=10".into());
        }
    }
    short
}

/// Each built-in experiment is read, checked, explained, run for a few iterations, judged and drawn.
#[test]
fn every_built_in_experiment_runs() {
    let folder = tempfile::tempdir().unwrap();
    for (name, _) in dibo_paper::EXPERIMENTS {
        let full = load(name, &[]).unwrap();
        assert!(!full.title.is_empty() && full.about.len() > 100 && !full.figures.is_empty(), "{name}");
        let mut e = load(name, &short(&full)).unwrap();
        e.seeds.truncate(1);
        // Of the zoo's hundreds of settings, which are much alike, some run here.
        let (mut nth, some) = (0, e.settings.len().div_ceil(60));
        e.settings.retain(|_| {
            nth += 1;
            nth % some == 1 % some
        });
        check::before(&mut e).unwrap_or_else(|e| panic!("{name}: {e:#}"));
        if e.settings[0].agents(&e.folder).unwrap() <= 100 {
            let (text, _) = check::explain(&e, 2, Duration::ZERO).unwrap();
            assert!(text.contains("smallest weights") && text.contains("Needs: about"), "{name}: {text}");
        }
        let out = folder.path().join(name);
        let options = runner::Options { out: out.clone(), threads: 2, device: None, quiet: true, live: None };
        let (manifest, curves) = runner::run(&e, &options).unwrap();
        pictures::topology(&e, &out).unwrap();
        let judged = judge::judge(dibo_paper::claims::JUDGES, &manifest, &curves);
        assert_eq!(judged.len(), e.claims.len());
        assert!(judged.iter().all(|c| !c.statement.is_empty()), "{name} asks for a claim that nobody judges");
        let extras = judge::extras(dibo_paper::claims::JUDGES, &manifest, &curves);
        let page = report::write(&out, &manifest, &curves, &judged, &extras).unwrap();
        let text = std::fs::read_to_string(page).unwrap();
        let undrawn = text.split("Not drawn").nth(1).map(|t| t.chars().take(120).collect::<String>());
        // Three iterations are too few for a value at the end of a run that stops at a target.
        assert!(undrawn.is_none(), "{name}: {undrawn:?}");
    }
}

/// Of the table's 21 rows exactly the divergent ones carry the warning about ηy and ηz, on each of the ten
/// instances.
#[test]
fn the_table_s_divergent_rows_are_warned_of_and_no_others() {
    let e = load("sensitivity", &[]).unwrap();
    let mut known = check::Cache::default();
    for setting in &e.settings {
        let value = |key: &str| setting.series.settings.get(key).and_then(|v| v.number());
        let (y, z) = (value("algorithm.eta_y").unwrap(), value("algorithm.eta_z"));
        // The paper's table: ηz below ηy diverges, all else does not.
        let diverges = z.is_some_and(|z| z < y);
        for seed in &e.seeds {
            let found = check::warnings(setting, *seed, &e.folder, &mut known).unwrap();
            assert_eq!(!found.is_empty(), diverges, "{} seed {seed}: {found:?}", setting.series.label);
            assert!(found.iter().all(|w| w.contains("eta_x·(1/eta_z − 1/eta_y)·σ_max²")), "{found:?}");
        }
    }
}

/// A run that ends before its way begins says so, and no other does.
#[test]
fn a_run_that_ends_before_its_way_begins_is_warned_of() {
    for iterations in [150, 450, 3000, 3001] {
        let e = load("labels-fashion", &[format!("run.iterations={iterations}")]).unwrap();
        for setting in &e.settings {
            let key = match (setting.series.words("algorithm.way").as_str(), iterations) {
                ("bilevel", 150 | 450) => "warm = 450",
                ("bilevel", 3000) => "jointly = 3000",
                ("em" | "joint" | "weights", 150) => "warm = 150",
                _ => "",
            };
            let found = check::warnings(setting, 1, &e.folder, &mut check::Cache::default()).unwrap();
            let wanted =
                format!("ends before its way begins: {key}, and the run has {iterations} iterations");
            assert_eq!(found, if key.is_empty() { vec![] } else { vec![wanted] });
        }
    }
}

/// The network's own condition: patterns in blocks on a ring make the printed step diverge, patterns in turn
/// do not.
#[test]
fn rings_are_warned_of_where_they_diverge() {
    let e = load("ring-size", &["run.iterations=50000".into()]).unwrap();
    let mut known = check::Cache::default();
    let mut warned = |blocks: &str, eta: &str, agents: &str| {
        let text = |s: &Setting, key: &str| s.series.words(key);
        let wanted = |s: &&Setting| {
            text(s, "problem.blocks") == blocks
                && text(s, "algorithm.eta_x") == eta
                && text(s, "problem.agents") == agents
        };
        let setting = e.settings.iter().find(wanted).unwrap();
        check::warnings(setting, 0, &e.folder, &mut known).unwrap()
    };
    assert!(warned("false", "0.1", "10").is_empty() && warned("false", "0.1", "25").is_empty());
    for agents in ["10", "25"] {
        assert!(warned("true", "0.1", agents)[0].contains("on this network"));
        assert!(warned("true", "0.0005", agents).is_empty());
    }
}
