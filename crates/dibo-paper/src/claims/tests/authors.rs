//! What SPARKLE's and D-SOBA's authors say: every verdict, and the numbers beside it.
use super::*;

/// Methods in a case with their errors at the end.
fn errors(case: &str, ends: &[(&'static str, f64)]) -> Vec<Fake> {
    let one = |&(name, end)| fake(name, &[("algorithm.case", case)]).curve(&[1.0, end, end]);
    ends.iter().map(one).collect()
}

/// Methods at a share of wrong labels with their accuracies at the end.
fn accuracies(cr: &str, ends: &[(&'static str, f64)]) -> Vec<Fake> {
    ends.iter().map(|&(name, end)| learned(name, &[("problem.cr", cr)], &[10.0, end, end])).collect()
}

/// SPARKLE's variants and all others, so that the first ends lower than the second.
fn sparkle(ed: f64, other: f64) -> Vec<(&'static str, f64)> {
    let ours = ["sparkle-ed", "sparkle-extra", "sparkle-ed-gt"].map(|name| (name, ed));
    let theirs = ["sparkle-gt", "d-soba", "ma-dsbo", "mdbo", "sldbo"].map(|name| (name, other));
    ours.into_iter().chain(theirs).collect()
}

/// D-SOBA with so many tables of features among twenty agents over a graph.
fn d_soba(graph: &str, tables: &str, end: f64) -> Fake {
    let keys = [("graph.kind", graph), ("problem.feature_patterns", tables), ("problem.agents", "20")];
    fake("d-soba", &keys).curve(&[1.0, end, end])
}

/// A claim, results that agree with it, and the method it praises.
pub(super) fn praise() -> Vec<Praise> {
    let ring = || errors("ring", &sparkle(0.1, 0.2));
    let cleaned = || accuracies("0.1", &sparkle(80.0, 70.0));
    let networks = vec![d_soba("ring", "20", 0.2), d_soba("complete", "20", 0.1), d_soba("ring", "1", 0.1)];
    vec![
        ("S1", ring(), "sparkle-ed"),
        ("S1", ring(), "sparkle-extra"),
        ("S2", ring(), "sparkle-ed-gt"),
        ("S3", ring(), "sparkle-ed"),
        ("S4", cleaned(), "sparkle-extra"),
        ("S5", cleaned(), "sparkle-ed-gt"),
        ("D1", networks, "d-soba"),
        ("D2", errors("ring", &[("d-soba", 0.1), ("ma-dsbo", 0.2)]), "d-soba"),
        ("D3", accuracies("0.1", &[("d-soba", 80.0), ("ma-dsbo", 70.0), ("mdbo", 70.0)]), "d-soba"),
    ]
}

#[test]
fn errors_of_sparkle() {
    for (id, rival) in [("S1", "sparkle-gt"), ("S2", "sparkle-gt"), ("S3", "sldbo")] {
        assert_eq!(verdict(id, errors("ring", &sparkle(0.1, 0.2))), Verdict::Holds, "{id}");
        assert_eq!(verdict(id, errors("ring", &sparkle(0.2, 0.1))), Verdict::DoesNotHold, "{id}");
        assert_eq!(verdict(id, errors("ring", &sparkle(0.1, 0.1))), Verdict::TooClose, "{id}: a tie");
        let both = || errors("ring", &sparkle(0.1, 0.2)).into_iter().chain(errors("all", &sparkle(0.2, 0.1)));
        let under = verdict(id, both().collect());
        let Verdict::HoldsOnlyUnder(under) = under else { panic!("{id}: {under:?}") };
        assert!(under.contains(&format!("ring against {rival}")) && !under.contains("all"), "{id}: {under}");
        // A case where one of them is missing says nothing.
        let few =
            errors("ring", &sparkle(0.1, 0.2)).into_iter().chain(errors("few", &[("sparkle-gt", 0.01)]));
        assert_eq!(verdict(id, few.collect()), Verdict::Holds, "{id}");
        // A rival that diverged is beaten, and named.
        let mut beaten = errors("ring", &sparkle(0.2, 0.1));
        beaten.iter_mut().skip(3).for_each(|f| f.outcome = "diverged");
        let beaten = claim(id, beaten);
        assert_eq!(beaten.verdict, Verdict::Holds, "{id}");
        assert!(beaten.reading.contains(&format!("{rival} (all seeds)")), "{id}: {}", beaten.reading);
    }
    // Of ED and EXTRA the worse one counts.
    let mut one = errors("ring", &sparkle(0.1, 0.2));
    one[1] = one[1].at(0.3);
    assert_eq!(verdict("S1", one), Verdict::DoesNotHold);
}

impl Fake {
    /// The same with another end.
    fn at(&self, end: f64) -> Fake {
        let keys: Vec<(&'static str, &str)> = self.settings.iter().map(|(k, v)| (*k, v.as_str())).collect();
        fake(self.algorithm, &keys).curve(&[1.0, end, end])
    }
}

#[test]
fn accuracies_for_the_same_gradients() {
    let rates = |low: f64, high: f64| {
        let both = accuracies("0.1", &sparkle(80.0, low)).into_iter();
        both.chain(accuracies("0.3", &sparkle(75.0, high))).collect::<Vec<_>>()
    };
    for id in ["S4", "D3"] {
        let won = |low: f64, high: f64| match id {
            "S4" => rates(low, high),
            // Only D-SOBA keeps what was SPARKLE's.
            _ => {
                let mut all = rates(low, high);
                let ends = [80.0, 75.0];
                for (nth, f) in all.iter_mut().filter(|f| f.algorithm == "d-soba").enumerate() {
                    *f = learned(
                        "d-soba",
                        &[("problem.cr", ["0.1", "0.3"][nth])],
                        &[10.0, ends[nth], ends[nth]],
                    );
                }
                all
            }
        };
        assert_eq!(verdict(id, won(70.0, 70.0)), Verdict::Holds, "{id}");
        assert_eq!(verdict(id, won(90.0, 90.0)), Verdict::DoesNotHold, "{id}");
        assert_eq!(verdict(id, won(80.0, 75.0)), Verdict::TooClose, "{id}: a tie");
        let Verdict::HoldsOnlyUnder(under) = verdict(id, won(70.0, 90.0)) else { panic!("{id}") };
        assert!(under.contains("cr = 0.1 against mdbo") && !under.contains("0.3"), "{id}: {under}");
    }
    // MDBO is better at the end and has computed five times as much: after as much work it is behind.
    let costly = |gradients| {
        let curve = [10.0, 60.0, 70.0, 80.0, 85.0, 90.0];
        let mdbo = learned("mdbo", &[("problem.cr", "0.1")], &curve);
        let mut all = accuracies("0.1", &[("d-soba", 80.0), ("ma-dsbo", 70.0)]);
        all.push(Fake { gradients, ..mdbo });
        all
    };
    assert_eq!(verdict("D3", costly(5)), Verdict::Holds);
    assert_eq!(verdict("D3", costly(1)), Verdict::HoldsOnlyUnder("cr = 0.1 against ma-dsbo".into()));
    let mut lost = costly(1);
    lost[2].outcome = "diverged";
    assert_eq!(verdict("D3", lost), Verdict::Holds, "a run that diverged counts against its method");
}

#[test]
fn mixed_strategies_go_by_construction() {
    let both = |mixed: f64| accuracies("0.1", &[("sparkle-ed", 80.0), ("sparkle-ed-gt", mixed)]);
    assert_eq!(verdict("S5", both(80.0)), Verdict::ByConstruction);
    assert_eq!(verdict("S5", both(82.0)), Verdict::DoesNotHold, "then it is not what we think");
}

#[test]
fn networks_and_agents_of_d_soba() {
    let all = |complete: f64, alike: f64| {
        vec![d_soba("ring", "20", 0.2), d_soba("complete", "20", complete), d_soba("ring", "1", alike)]
    };
    assert_eq!(verdict("D1", all(0.1, 0.1)), Verdict::Holds);
    assert_eq!(verdict("D1", all(0.3, 0.3)), Verdict::DoesNotHold);
    assert_eq!(verdict("D1", all(0.2, 0.2)), Verdict::TooClose);
    let one = Verdict::HoldsOnlyUnder("a better connected network".into());
    assert_eq!(verdict("D1", all(0.1, 0.3)), one);
    assert_eq!(verdict("D1", vec![d_soba("ring", "20", 0.2)]), Verdict::NotMeasured);
    // Ten agents are not compared with twenty.
    let keys = [("graph.kind", "complete"), ("problem.feature_patterns", "20"), ("problem.agents", "10")];
    let other = fake("d-soba", &keys).curve(&[1.0, 0.1, 0.1]);
    assert_eq!(verdict("D1", vec![d_soba("ring", "20", 0.2), other]), Verdict::NotMeasured);
}

#[test]
fn inner_loops_against_none() {
    let both = |d_soba: f64, inner: &[f64], gradients| {
        let ma = fake("ma-dsbo", &[("algorithm.case", "ring")]).curve(inner);
        let mut all = errors("ring", &[("d-soba", d_soba)]);
        all.push(Fake { gradients, ..ma });
        all
    };
    let falls = [1.0, 0.5, 0.2, 0.1, 0.05, 0.01];
    assert_eq!(verdict("D2", both(0.1, &falls, 5)), Verdict::Holds, "after as much work");
    assert_eq!(verdict("D2", both(0.1, &falls, 1)), Verdict::DoesNotHold);
    assert_eq!(verdict("D2", both(0.01, &falls, 1)), Verdict::TooClose);
    // A product is as much work as a gradient.
    let mut products = both(0.1, &falls, 1);
    products[1].products = 4;
    assert_eq!(verdict("D2", products), Verdict::Holds);
    let mut lost = both(0.1, &falls, 1);
    lost[1].outcome = "diverged";
    assert_eq!(verdict("D2", lost), Verdict::Holds, "a run that diverged counts against its method");
}

#[test]
fn numbers_beside_the_verdicts() {
    let said = |id: &str, fakes: Vec<Fake>, words: &str| {
        let claim = claim(id, fakes);
        assert!(claim.number.contains(words), "{id}: {}", claim.number);
    };
    let ring = || errors("ring", &sparkle(0.1, 0.2));
    let ours = "sparkle-ed 0.1, sparkle-extra 0.1";
    said("S1", ring(), &format!("ring: {ours}, sparkle-gt 0.2, d-soba 0.2"));
    said("S2", ring(), "ring: sparkle-ed-gt 0.1, sparkle-gt 0.2");
    said("S3", ring(), &format!("ring: {ours}, mdbo 0.2, sldbo 0.2"));
    let cleaned = || accuracies("0.1", &sparkle(80.0, 70.0));
    said("S4", cleaned(), "cr=0.1: sparkle-ed 80.00 %, d-soba 70.00 %");
    said("S5", cleaned(), "cr=0.1: mixed 80.00 %, ED alone 80.00 %");
    said("D3", cleaned(), "cr=0.1: d-soba 70.00 %, ma-dsbo 70.00 %");
    let two = vec![d_soba("ring", "20", 0.2), d_soba("complete", "20", 0.1)];
    said("D1", two, "a better connected network: 0.1 against 0.2");
    // MA-DSBO has done as much after 20 of its 100 iterations, at its second look.
    let ma = fake("ma-dsbo", &[("algorithm.case", "ring")]).curve(&[1.0, 0.5, 0.2, 0.1, 0.05, 0.01]);
    let mut both = errors("ring", &[("d-soba", 0.1)]);
    both.push(Fake { gradients: 5, ..ma });
    said("D2", both, "ring: D-SOBA 0.1, MA-DSBO 0.5");
}
