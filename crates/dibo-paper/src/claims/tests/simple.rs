//! FAB's weights beside simple ways: every verdict, and the numbers beside it.
use super::numbers::all_said;
use super::*;

const CR: (&str, &str) = ("problem.cr", "0.4");

/// FAB and a simple way, with their accuracies at the end.
fn beside(fab: f64, way: (&'static str, &'static str), other: f64) -> Vec<Fake> {
    vec![learned("fab", &[CR], &[10.0, fab]), learned("push-pull", &[CR, way], &[10.0, other])]
}

/// The same with areas under the curve; a metric's name for each.
fn told(fab: f64, other: f64, of_other: &'static str) -> Vec<Fake> {
    let way = ("algorithm.train_on", "validation");
    let mut both = vec![
        fake("fab", &[CR]).metric("auc").curve(&[0.5, fab]),
        fake("push-pull", &[CR, way]).metric(of_other).curve(&[0.5, other]),
    ];
    both.iter_mut().for_each(|f| f.also = &["test_accuracy"]);
    both
}

/// A claim, results that agree with it, and the method it praises.
pub(super) fn praise() -> Vec<Praise> {
    let rounds = ("algorithm.way", "rounds");
    vec![("W1", beside(85.0, rounds, 84.0), "fab"), ("W2", told(0.97, 0.95, "auc_model"), "fab")]
}

#[test]
fn every_simple_way_counts() {
    for way in ["clean-only", "rounds", "noisy-rounds", "em", "joint"].map(|way| ("algorithm.way", way)) {
        assert_eq!(verdict("W1", beside(85.0, way, 84.0)), Verdict::Holds, "{way:?}");
        assert_eq!(verdict("W1", beside(85.0, way, 86.0)), Verdict::DoesNotHold, "{way:?}");
    }
    let validation = ("algorithm.train_on", "validation");
    assert_eq!(verdict("W1", beside(85.0, validation, 86.0)), Verdict::DoesNotHold);
    let frozen = |end| {
        let settings = [CR, ("algorithm.eta_x", "0")];
        vec![
            learned("fab", &[CR, ("algorithm.eta_x", "10")], &[10.0, 85.0]),
            learned("fab", &settings, &[1.0, end]),
        ]
    };
    assert_eq!(verdict("W1", frozen(84.0)), Verdict::Holds);
    assert_eq!(verdict("W1", frozen(86.0)), Verdict::DoesNotHold);
    // The paper's baselines are not among them, nor is another upper variable FAB's weights.
    assert_eq!(verdict("W1", beside(85.0, ("algorithm.way", "noisy"), 84.0)), Verdict::NotMeasured);
    let mut matrix = beside(85.0, validation, 84.0);
    matrix[0] = learned("fab", &[CR, ("algorithm.way", "bilevel")], &[10.0, 85.0]);
    assert_eq!(verdict("W1", matrix), Verdict::NotMeasured);
}

#[test]
fn weights_against_probabilities() {
    for metric in ["auc_model", "auc"] {
        assert_eq!(verdict("W2", told(0.97, 0.95, metric)), Verdict::Holds, "{metric}");
        assert_eq!(verdict("W2", told(0.93, 0.95, metric)), Verdict::DoesNotHold, "{metric}");
    }
    assert_eq!(verdict("W2", told(0.97, 0.95, "loss")), Verdict::NotMeasured, "a way without a score");
}

#[test]
fn numbers_beside_simple_ways() {
    let more = |mut fakes: Vec<Fake>| {
        fakes.push(learned("fab", &[CR, ("algorithm.eta_x", "1")], &[10.0, 80.0]));
        fakes
    };
    let rounds = ("algorithm.way", "rounds");
    all_said(vec![
        ("W1", more(beside(85.0, rounds, 84.5)), &["fab 85.00, push-pull 84.50", "the best one counts"]),
        ("W2", told(0.97, 0.9512, "auc_model"), &["fab 0.9700, push-pull 0.9512"]),
    ]);
}
