//! The page about the paper and what README says of it are what the kept results say.
use dibo_paper::claims::JUDGES;
use dibo_paper::kept::{Kept, Speed, read_all};
use dibo_paper::page::{labels_in_short, page, table_in_short};
use dibo_paper::zoo::{TASKS, ZooKept};
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn kept() -> Vec<Kept> {
    Kept::read_all(&Path::new(env!("CARGO_MANIFEST_DIR")).join("kept")).unwrap()
}

#[test]
fn the_page_is_made_of_the_kept_results() {
    let text = std::fs::read_to_string(root().join("docs/paper.md")).unwrap();
    assert!(text == page(&kept()), "docs/paper.md is not what `dibo paper` makes: run it");
}

#[test]
fn every_claim_is_on_the_page_with_an_interval_or_a_word_why_not() {
    let text = page(&kept());
    for judge in JUDGES {
        assert!(text.contains(&format!("| {} | ", judge.id)), "{}", judge.id);
    }
    let without = ["by construction", "one seed", "not measured"];
    for (kept, claim) in kept().iter().flat_map(|k| k.claims.iter().map(move |c| (k, c))) {
        let fact = ["P18", "P21"].contains(&claim.id.as_str());
        let said = claim.number.contains("95 % interval")
            || without.iter().any(|word| claim.verdict.starts_with(word))
            || fact;
        assert!(said, "{}, {}: {} {}", kept.name, claim.id, claim.verdict, claim.number);
        assert!(kept.seeds > 1 || !claim.verdict.starts_with("holds"), "{}: one seed", kept.name);
    }
}

#[test]
fn readme_says_what_is_kept() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let words = table_in_short(&kept()).unwrap();
    assert!(readme.contains(&words), "README must say of the paper's table: {words}");
    for words in labels_in_short(&kept()).unwrap() {
        assert!(readme.contains(&words), "README must say of the quick start: {words}");
    }
}

/// Speeds are never asserted; what was measured, where and when is kept, and README says no other numbers.
#[test]
fn readme_tells_the_speeds_that_are_kept() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let speeds: Vec<Speed> = read_all(&Path::new(env!("CARGO_MANIFEST_DIR")).join("kept/speed")).unwrap();
    assert_eq!(speeds.len(), 4);
    for speed in speeds {
        let words = speed.words();
        assert!(!speed.values.is_empty() && !speed.machine.is_empty() && !speed.date.is_empty(), "{words}");
        assert!(readme.contains(&words), "README must say of speed: {words}");
    }
}

#[test]
fn kept_results_are_small_and_of_known_experiments() {
    for k in kept() {
        assert!(dibo_paper::EXPERIMENTS.iter().any(|(name, _)| *name == k.name), "{}", k.name);
        assert!(k.text().len() < 200_000, "{}: {} bytes", k.name, k.text().len());
        assert_eq!(k.ends.len(), k.curves.len(), "{}", k.name);
    }
}

#[test]
fn the_zoo_s_page_is_made_of_its_kept_results_and_has_no_empty_cell() {
    let zoo: Vec<ZooKept> = read_all(&Path::new(env!("CARGO_MANIFEST_DIR")).join("kept/zoo")).unwrap();
    assert_eq!(zoo.len(), TASKS.len());
    let text = std::fs::read_to_string(root().join("docs/zoo.md")).unwrap();
    assert!(
        text == dibo_paper::zoo::page(&zoo, &kept()),
        "docs/zoo.md is not what `dibo paper` makes: run it"
    );
    for line in text.lines().filter(|l| l.starts_with('|')) {
        assert!(!line.contains("|  |") && !line.contains("| |"), "an empty cell: {line}");
    }
}
