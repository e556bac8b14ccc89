//! `dibo-report` names no method, no problem and no claim: what it must not know stands here.
use dibo_paper::{EXPERIMENTS, claims::JUDGES};
use std::path::Path;

/// The values of `key` in the sections of an experiment file with this head.
fn values<'a>(text: &'a str, head: &str, key: &str) -> Vec<&'a str> {
    let mut inside = false;
    let mut found = Vec::new();
    for line in text.lines() {
        if line.starts_with('[') {
            inside = line == head;
        }
        if let Some((_, value)) = line.split_once(" = ").filter(|(name, _)| inside && *name == key) {
            found.push(value.trim_matches('"'));
        }
    }
    found
}

/// The parts of all source files under a folder that are no tests.
fn sources(folder: &Path, into: &mut Vec<(String, String)>) {
    for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            sources(&entry, into);
        } else if !entry.ends_with("tests.rs") {
            let text = std::fs::read_to_string(&entry).unwrap();
            let text = text.split("#[cfg(test)]").next().unwrap_or_default();
            into.push((entry.display().to_string(), text.into()));
        }
    }
}

#[test]
fn the_report_names_none_of_the_paper_s_things() {
    let mut names: Vec<&str> = JUDGES.iter().map(|judge| judge.id).collect();
    for (_, text) in EXPERIMENTS {
        names.extend(values(text, "[[algorithm]]", "name"));
        names.extend(values(text, "[problem]", "kind"));
        names.extend(values(text, "[run]", "metric"));
    }
    for known in ["fab", "static-fab", "policy-evaluation", "cleaning", "P6"] {
        assert!(names.contains(&known), "{known}: is the reader of this test broken?");
    }
    let mut files = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../dibo-report/src"), &mut files);
    assert!(files.len() > 10);
    for (file, text) in &files {
        for name in &names {
            assert!(!text.contains(&format!("\"{name}\"")), "{file} names {name}");
        }
    }
}

#[test]
fn every_claim_of_an_experiment_has_one_judge() {
    for (name, text) in EXPERIMENTS {
        let Some(list) = text.lines().find_map(|line| line.strip_prefix("claims = [")) else { continue };
        for id in list.trim_end_matches(']').split(", ").map(|id| id.trim_matches('"')) {
            assert_eq!(JUDGES.iter().filter(|judge| judge.id == id).count(), 1, "{name} asks for {id}");
        }
    }
}
