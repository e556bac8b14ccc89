//! The readers of experiment files: sweeps, and a million damaged inputs without a panic (`DIBO_FUZZ=1000000
//! cargo test --release fuzz`).
use crate::{Experiment, Registry};
use anyhow::Result;
use dibo_report::results::{Curves, Manifest};
use std::collections::BTreeSet;
use std::path::Path;

const TRACE: &str = include_str!("../tests/trace.json");

fn sensitivity() -> &'static str {
    dibo_paper::EXPERIMENTS.iter().find(|e| e.0 == "sensitivity").map_or("", |e| e.1)
}

fn read(registry: &Registry, text: &str, set: &[String]) -> Result<Experiment> {
    let source = registry.source("test.toml".into(), text);
    registry.parse(source.with(set)?, "test", Path::new("."), false)
}

#[test]
fn lists_are_sweeps_and_labels_tell_them_apart() {
    let text = "[problem]\nkind = \"quadratic\"\nagents = [2, 3]\n[graph]\nphases = [1, 2, \
        3]\n[[algorithm]]\nname = \"fab\"\nlambda = 1\n\
                eta_x = [0.1, { start = 0.2, decay = 0.01 }]\neta_y = 0.1\n[[algorithm]]\nname = \
                \"fab\"\nlambda = 2\neta_x = 0.1\neta_y = 0.1\n";
    let experiment = read(&Registry::new(), text, &[]).unwrap();
    let labels: Vec<_> = experiment.settings.iter().map(|s| s.series.label.as_str()).collect();
    assert_eq!(labels[0], "FAB agents=2 ηx=0.1");
    assert_eq!(labels.len(), 6);
    assert_eq!(labels.iter().collect::<BTreeSet<_>>().len(), 6, "{labels:?}");
    assert_eq!(experiment.settings[1].parameters().penalty_steps(100).unwrap().eta[0], 0.1);
}

/// `features` is a list of columns in one problem and a number in another.
#[test]
fn a_list_is_a_value_only_where_its_problem_takes_one() {
    let text = "[problem]\nkind = \"policy-evaluation\"\nagents = 3\nfeatures = [3, 5]\n[[algorithm]]\n\
        name = \"fab\"\nlambda = 1\neta_x = 0.1\neta_y = 0.1\n";
    assert_eq!(read(&Registry::new(), text, &[]).unwrap().settings.len(), 2);
    let set = ["problem.features=[2, 3, 4]".to_string()];
    assert_eq!(read(&Registry::new(), text, &set).unwrap().settings.len(), 3);
}

#[test]
fn overrides_reach_every_algorithm() {
    let set = ["algorithm.eta_x=0.5".to_string(), "run.iterations=7".into(), "seeds=3".into()];
    let experiment = read(&Registry::new(), sensitivity(), &set).unwrap();
    assert!(
        experiment
            .settings
            .iter()
            .all(|s| s.parameters().penalty_steps(0).unwrap().eta[0] == 0.5 && s.run.iterations == 7)
    );
    assert_eq!(experiment.seeds.len(), 3);
}

#[test]
fn an_override_may_mean_one_algorithm_alone() {
    let text = "[problem]\nkind = \"quadratic\"\n[[algorithm]]\nname = \"fab\"\nlambda = 1\neta_x = 0.1\n\
        eta_y = 0.1\n[[algorithm]]\nname = \"fab\"\nlambda = 2\neta_x = { start = 0.1, decay = 0.01 }\n\
        eta_y = 0.1\n";
    let steps = |set: &str| {
        let experiment = read(&Registry::new(), text, &[set.to_string()])?;
        let step = |s: &crate::setting::Setting| s.parameters().penalty_steps(0).unwrap().eta[0];
        Ok::<_, anyhow::Error>(experiment.settings.iter().map(step).collect::<Vec<_>>())
    };
    assert_eq!(steps("algorithm.0.eta_x=0.5").unwrap(), [0.5, 0.1]);
    assert_eq!(steps("algorithm.1.eta_x.start=0.5").unwrap(), [0.1, 0.5]);
    let beyond = steps("algorithm.2.eta_x=0.5").unwrap_err().to_string();
    assert_eq!(beyond, "--set algorithm.2.eta_x=0.5: there are 2 of them, and 0 is the first");
}

/// A small generator for damage: no need for more than speed here.
struct Damage(u64);

impl Damage {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % n.max(1)
    }

    fn to(&mut self, text: &str) -> Vec<u8> {
        const PIECES: &[&str] = &[
            "[",
            "]",
            "{",
            "}",
            "=",
            "\"",
            "\n",
            ",",
            "-1",
            "0",
            "1e999",
            "nan",
            "999999999999999999999",
            "[[algorithm]]",
            "[1, 2]",
            "[]",
            "'",
            "\\u0000",
            ".",
            "é",
            "#",
            "lambda = [1, [2]]\n",
            "{ start = 1, power = 2 }",
            "\u{feff}",
            "true",
            "null",
            "\"A\":",
            "\"\"\"",
        ];
        let mut bytes = text.as_bytes().to_vec();
        for _ in 0..1 + self.below(4) {
            let at = self.below(bytes.len() + 1);
            match self.below(5) {
                0 => bytes.truncate(at),
                1 => drop(bytes.splice(at..at, PIECES[self.below(PIECES.len())].bytes())),
                2 => {
                    let end = (at + self.below(30)).min(bytes.len());
                    let piece = PIECES[self.below(PIECES.len())].bytes();
                    drop(bytes.splice(at..end, piece));
                }
                3 if at < bytes.len() => bytes[at] = self.below(256) as u8,
                _ => {
                    let end = (at + self.below(200)).min(bytes.len());
                    let piece = bytes[at..end].to_vec();
                    let to = self.below(bytes.len() + 1);
                    drop(bytes.splice(to..to, piece));
                }
            }
        }
        bytes
    }
}

/// Half of it on each of two threads.
#[test]
fn fuzz_readers() {
    let count: usize = std::env::var("DIBO_FUZZ").ok().and_then(|n| n.parse().ok()).unwrap_or(20_000);
    std::thread::scope(|scope| {
        [1, 2].map(|seed| scope.spawn(move || damaged(seed, count.div_ceil(2)))).map(drop)
    });
}

/// So many damaged inputs.
fn damaged(seed: u64, count: usize) {
    let registry = Registry::new();
    let small: String = sensitivity().lines().take(45).map(|l| format!("{l}\n")).collect();
    let trace = TRACE.replace("100\n ]", "5\n ]");
    let folder = tempfile::tempdir().unwrap();
    let mut damage = Damage(seed);
    let (mut good, mut bad) = (0, 0);
    for i in 0..count {
        let result = match i % 4 {
            0 => read(&registry, &String::from_utf8_lossy(&damage.to(&small)), &[]).map(drop),
            // A good file with a damaged --set, as often as a damaged file.
            1 => {
                let keys = [
                    "run.iterations=7",
                    "seeds=3",
                    "algorithm.eta_x=[0.1, 0.2]",
                    "graph.kind=\"file\"",
                    "name=x",
                ];
                let set = keys[damage.below(keys.len())];
                let set = String::from_utf8_lossy(&damage.to(set)).into_owned();
                read(&registry, &small, &[set]).map(drop)
            }
            2 => dibo::trace::trace(&String::from_utf8_lossy(&damage.to(&trace)))
                .map(drop)
                .map_err(anyhow::Error::msg),
            // Files on disk are slower: every hundredth is enough.
            _ if i % 400 == 3 => {
                let csv = "series,seed,iteration,seconds,bytes,gradients,products,relative_error\n\
                    0,0,0,0.0,0,0,0,1.0\n\
                    0,0,20,0.1,10,30,0,0.5\n";
                let path = folder.path().join("curves.csv");
                std::fs::write(&path, damage.to(csv)).unwrap();
                std::fs::write(
                    folder.path().join("manifest.json"),
                    damage.to("{\"version\": \"0\", \"name\": \"n\", \"seeds\": [0]}"),
                )
                .unwrap();
                let manifest = Manifest::read(folder.path()).map(drop);
                Curves::read_csv(&path).map(drop).and(manifest)
            }
            _ => {
                let bytes = damage.to("dibo-ck1 some bytes that are not a checkpoint");
                dibo::engine::Checkpoint::<f64>::from_bytes(&bytes).map(drop).map_err(anyhow::Error::msg)
            }
        };
        match result {
            Ok(()) => good += 1,
            Err(e) => {
                assert!(!format!("{e:#}").trim().is_empty());
                bad += 1;
            }
        }
    }
    assert!(good > 0 && bad > 0, "{good} good, {bad} bad");
}
