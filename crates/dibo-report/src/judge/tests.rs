//! What every claim is held to, whoever judges it.
use super::*;
use crate::report::Body;
use crate::results::{FORMAT, Machine, RunRecord, Series};

const JUDGES: &[Judge] = &[
    Judge::new("EASY", "It always holds", |_| Ok((vec![Margin::fact("", true)], "1".into(), "so".into())))
        .with_table(|_| Some(Extra::new("A table", Body::Table(vec![])))),
    Judge::new("ENDS", "It counts how runs end", |run| {
        Ok((vec![Margin::fact("", true)], format!("{}", run.count(0, "broken").0), String::new()))
    })
    .counting(&["diverged", "broken"]),
];

/// Two series with seeds 3 and 4, and how each run ended; an empty word for no run.
fn results(outcomes: [[&str; 2]; 2]) -> Manifest {
    let series = |label: &str| Series {
        name: label.into(),
        label: label.into(),
        algorithm: "a".into(),
        settings: Default::default(),
        swept: vec![],
        warnings: vec![],
    };
    let run = |series: usize, seed: u64, outcome: &str| RunRecord {
        series,
        seed,
        outcome: outcome.into(),
        reason: None,
        best: None,
        iterations: 1,
        seconds: 1.0,
        bytes: 1,
        gradients: 1,
        products: 0,
        state_bytes: 1,
        memory: Default::default(),
        last: Default::default(),
        smallest: Default::default(),
        mean: Default::default(),
    };
    let all = (0..2).flat_map(|i| (0..2).map(move |j| (i, j))).filter(|(i, j)| !outcomes[*i][*j].is_empty());
    Manifest {
        format: FORMAT,
        version: String::new(),
        commit: None,
        command: None,
        name: "small".into(),
        title: String::new(),
        about: String::new(),
        file: String::new(),
        overrides: vec![],
        seeds: vec![3, 4],
        machine: Machine { system: String::new(), cpu: String::new(), threads: 1, memory: 0, device: None },
        started: 0,
        seconds: 0.0,
        peak_memory: None,
        metrics: vec![],
        series: vec![series("one ν=0.1"), series("two")],
        runs: all.map(|(i, j)| run(i, 3 + j as u64, outcomes[i][j])).collect(),
        figures: vec![],
        claims: ["EASY", "ENDS", "NONE"].map(String::from).into(),
    }
}

fn claims(outcomes: [[&str; 2]; 2]) -> Vec<Claim> {
    judge(JUDGES, &results(outcomes), &Curves::default())
}

#[test]
fn nothing_is_judged_before_all_runs_are_there() {
    for (outcomes, says) in [
        ([["finished", ""], ["finished", "finished"]], "no run of one ν=0.1 (seed 4)"),
        ([["finished", "reached"], ["", ""]], "no run of two (all seeds)"),
        ([["finished", "stopped"], ["", "diverged"]], "no run of two (seed 3); stopped before the end: one"),
    ] {
        let manifest = results(outcomes);
        for claim in claims(outcomes).iter().take(2) {
            assert_eq!((&claim.verdict, claim.number.as_str()), (&Verdict::NotMeasured, ""));
            assert!(claim.reading.contains(says), "{}", claim.reading);
        }
        assert!(extras(JUDGES, &manifest, &Curves::default()).is_empty());
    }
    let whole = [["finished", "reached"], ["finished", "finished"]];
    assert!(claims(whole)[..2].iter().all(|claim| claim.verdict == Verdict::Holds));
    assert_eq!(extras(JUDGES, &results(whole), &Curves::default()).len(), 1);
    assert_eq!(claims(whole)[2].verdict, Verdict::NotMeasured);
}

#[test]
fn runs_that_failed_are_named_or_counted() {
    let diverged = claims([["finished", "finished"], ["diverged", "finished"]]);
    assert_eq!(diverged[0].reading, "so; diverged: two (seed 3)");
    assert_eq!(diverged[1].reading, "", "it counts them itself");
    let broken = claims([["broken", "finished"], ["finished", "finished"]]);
    assert_eq!(broken[0].verdict, Verdict::NotMeasured);
    assert_eq!(broken[0].reading, "a run is broken: one ν=0.1 (seed 3)");
    assert_eq!((&broken[1].verdict, broken[1].number.as_str()), (&Verdict::Holds, "1"));
}

#[test]
fn long_lists_of_runs_are_cut() {
    let mut manifest = results([["", ""], ["", ""]]);
    manifest.series = vec![manifest.series[1].clone(); 20];
    assert_eq!(ranges(&[1, 4, 5, 6, 9, 10, u64::MAX]), "1, 4 to 6, 9, 10, 18446744073709551615");
    assert!(missing(&manifest).ends_with("two (all seeds) and 15 more series"), "{}", missing(&manifest));
}

#[test]
fn claims_fit_the_terminal() {
    let claim = |id: &str, words: &str| Claim {
        id: id.into(),
        statement: format!("The claim {words}"),
        verdict: Verdict::HoldsOnlyUnder(words.into()),
        number: words.into(),
        reading: String::new(),
    };
    let long = "DL-Push-SAGA λ=60 ν=0.3 τ=0.15, ".repeat(9);
    let whole = "η".repeat(300);
    let text =
        terminal(&[claim("P1", &long), claim("MY-OWN-CLAIM", &whole), claim(&"X".repeat(50), "short")]);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert_eq!(text.matches('η').count(), 900, "nothing is lost");
    let text = terminal(&claims([["finished", "stopped"], ["", ""]]));
    assert!(text.matches("no run of").count() == 1 && text.contains("not measured (as EASY)"), "{text}");
    assert!(terminal(&claims([["finished"; 2]; 2])).starts_with("EASY  It always holds: holds (1)\n"));
}
