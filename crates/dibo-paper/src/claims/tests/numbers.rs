//! The number that stands beside each verdict, worked out by hand from made-up runs; and the parts of a claim
//! that count by themselves. An iteration of FAB takes 0.01 s here, one of another method 0.1 s.
use super::*;

/// What is missing from the number or the reading of a claim.
fn unsaid(id: &str, fakes: Vec<Fake>, expected: &[&str]) -> Option<String> {
    let claim = claim(id, fakes);
    let all = format!("{}; {}", claim.number, claim.reading);
    let missing: Vec<&&str> = expected.iter().filter(|part| !all.contains(**part)).collect();
    (!missing.is_empty()).then(|| format!("{id} does not say {missing:?}: {all}"))
}

pub(super) fn all_said(table: Vec<(&str, Vec<Fake>, &[&str])>) {
    let unsaid: Vec<String> =
        table.into_iter().filter_map(|(id, fakes, expected)| unsaid(id, fakes, expected)).collect();
    assert!(unsaid.is_empty(), "{}", unsaid.join("\n"));
}

#[test]
fn numbers_of_steps_and_penalties() {
    let at = |steps, t| row(steps, "reached", t);
    let lambda = |lambda, t| at([lambda, "0.1", "0.1", "0.1"], t);
    let (slow, lost) =
        (at(["60", "0.1", "0.08", "0.1"], 9000), row(["60", "0.1", "0.12", "0.1"], "diverged", 60));
    let (low, high) = (at(["60", "0.1", "0.06", "0.06"], 3300), at(["60", "0.1", "0.14", "0.14"], 3000));
    let x = |eta, t| at(["60", eta, "0.1", "0.1"], t);
    let mut half = printed_table(1.1);
    half[1].outcome = "finished";
    all_said(vec![
        ("P1", vec![base(), lambda("80", 4000), lambda("120", 6100)], &["T/λ between 50.0 and 50.8"]),
        ("P2", vec![base(), too_small("finished", 0.03)], &["λ=4: ends at 0.03, 0 of 3 reach 1 %"]),
        ("P3", vec![base(), slow, lost], &["ηy=0.08 ηz=0.1: 3.0× slower", "ηy=0.12 ηz=0.1: diverges"]),
        // Another penalty's row does not count.
        ("P4", vec![base(), low, high, lambda("80", 4000)], &["3000 to 3300 iterations"]),
        ("P5", vec![x("0.06", 5000), base(), x("0.14", 2100)], &["T·ηx = 300, 300, 294"]),
        // ln 1.1 in each of the sixteen rows that the paper brings to its target.
        ("TABLE", printed_table(1.1), &["21 of 21 outcomes", "iterations 0.095 over 16 rows"]),
        ("TABLE", half, &["20 of 21 outcomes", "iterations 0.095 over 15 rows"]),
    ]);
}

#[test]
fn numbers_against_double_loops() {
    let slow = [1.0, 0.9, 0.5, 0.1, 0.01, 0.01];
    let drop = [1.0, 0.4, 0.4, 0.4, 0.4, 0.4];
    let mut late = pair(&[], &slow, &drop);
    late[0].slow = 10.0;
    let sgd = [vec![1.0, 0.4, 0.3], vec![0.35; 7]].concat();
    let sized =
        |agents, end: f64| pair(&[("problem.agents", agents)], &[1.0, end, end], &[1.0, 0.9, 2.0 * end]);
    let noise =
        |omega, fab: f64, sgd: f64| pair(&[("problem.omega", omega)], &[1.0, fab, fab], &[1.0, sgd, sgd]);
    let both = |a: Vec<Fake>, b: Vec<Fake>| a.into_iter().chain(b).collect::<Vec<_>>();
    let nu = |nu, middle, bytes| Fake {
        bytes,
        ..fake("fab", &[("graph.nu", nu)]).curve(&[1.0, middle, 0.05, 0.05, 0.05])
    };
    let dl = |name, curve: &[f64]| fake(name, &[]).curve(curve);
    let race = vec![
        dl("fab", &[1.0, 0.5]),
        dl("dl-push-pull", &[1.0, 0.5, 0.5]),
        dl("dl-push-sgd", &[1.0, 0.9, 0.5]),
    ];
    all_said(vec![
        (
            "P6",
            pair(&[], &[1.0, 0.5, 0.1], &[1.0, 0.2, 0.3]),
            &["FAB 0.1, baselines 0.3 over one setting", "any baseline passes on its way is 0.2"],
        ),
        (
            "P6",
            both(sized("10", 0.1), sized("20", 0.2)),
            &["FAB 0.1 to 0.2, baselines 0.2 to 0.4 over 2 settings"],
        ),
        // Behind at 20 and 40, ahead from 60 on; a baseline's first look is after two seconds.
        ("P7", pair(&[], &slow, &drop), &["ahead for good at iterations 40", "against 1 of 1 baselines"]),
        ("P7", late, &["ahead for good at iterations 40", "against 0 of 1 baselines"]),
        // Ten looks, eleven iterations apart.
        ("P8", pair(&[], &slow, &sgd), &["start anew: error falls to 0.3 at iteration 22, ends at 0.35"]),
        (
            "P9",
            both(noise("1", 0.1, 0.5), noise("3", 0.3, 0.6)),
            &["noise on transition: FAB ×3.00 (to 0.3), baselines at most ×1.20"],
        ),
        ("P10", vec![nu("0.1", 0.5, 100), nu("0.5", 0.05, 200)], &["50 at ν=0.1, 25 at ν=0.5"]),
        ("P11", vec![nu("0.1", 0.5, 100), nu("0.5", 0.05, 200)], &["fab 100 B at ν=0.1, 200 B at ν=0.5"]),
        (
            "P12",
            vec![dl("dl-push-sgd", &drop), dl("dl-push-saga", &drop.map(|d| 1.02 * d))],
            &["largest gap 2.00 % with tracking"],
        ),
        (
            "P13",
            pair(&[], &[1.0, 0.1, 0.1], &[1.0, 0.15, 0.2]),
            &[
                "FAB ends at 0.1 in 1 s; best baseline 0.2 after as many iterations, 1 after as many seconds",
                "passes on its way is 0.15",
            ],
        ),
        ("P14", race, &["dl-push-pull 5 s, dl-push-sgd 10 s"]),
        (
            "P15",
            both(sized("10", 0.1), sized("100", 0.2)),
            &["FAB 0.1 → 0.2 as n goes from 10 to 100", "the baselines 0.2 → 0.4 as n goes from 10 to 100"],
        ),
    ]);
}

#[test]
fn numbers_of_rings_and_variants() {
    let ring = |blocks, n: f64, t: f64| {
        let text = format!("{n}");
        let keys = [("problem.agents", &*text), ("problem.blocks", blocks), ("algorithm.eta_x", "0.1")];
        fake("fab", &keys).ended("reached", t as usize)
    };
    let mut rings: Vec<Fake> = [10.0, 20.0, 40.0].map(|n: f64| ring("true", n, n.powi(3))).into();
    // A slower step of the same ring does not count.
    rings.push(ring("true", 20.0, 9999.0));
    rings.extend([10.0, 20.0].map(|n| ring("false", n, 70.0)));
    let weight = |a, t| fake("fab", &[("graph.weights", a), ("algorithm.eta_x", "0.02")]).ended("reached", t);
    let one = |name, state| Fake { state, ..fake(name, &[]).curve(&[1.0, 0.01, 0.01]) };
    let bears = |name, eta, outcome| {
        fake(name, &[("algorithm.eta_x", eta), ("algorithm.lambda", "60")]).ended(outcome, 10)
    };
    let steps = vec![
        bears("fab", "0.003", "finished"),
        bears("fab", "0.15", "finished"),
        bears("fab", "0.3", "diverged"),
        bears("push-sum-fab", "0.003", "finished"),
        bears("push-sum-fab", "0.15", "diverged"),
        bears("push-sum-fab", "0.3", "diverged"),
    ];
    all_said(vec![
        (
            "P16",
            rings,
            &["T(10) = 1000 at step 0.1, T(20) = 8000", "power n^3.00±0.00", "in turn: T = 70 for every n"],
        ),
        (
            "P17",
            vec![weight("[0.05, 0.5]", 900), weight("[0.2, 0.5]", 500)],
            &["step 0.02: T(0.05) = 900, T(0.2) = 500"],
        ),
        (
            "P18",
            vec![fake("static-fab", &[]).curve(&[1.0, 0.9])],
            &["0 of 3 runs diverge; error at the end 0.9"],
        ),
        (
            "P19",
            vec![one("fab", 90), one("push-sum-fab", 120), one("push-pull-soba", 110)],
            &[
                "10000.0 / 100000.0 / 100000.0 µs an iteration",
                "500 ms / 5 s / 5 s to an error of 0.05",
                "90 B / 120 B / 110 B of state",
                "beyond 1.10×",
            ],
        ),
        ("P21", steps, &["FAB 0.15, PushSum_FAB 0.003; written out, not divided by λ: 0.0025 and 5.00e-5"]),
    ]);
}

#[test]
fn numbers_of_rates() {
    let bias = |lambda: f64| {
        let keys = [("algorithm.lambda", &*format!("{lambda}")), ("algorithm.penalty_form", "normalised")];
        fake("fab", &keys).metric("hypergradient").curve(&[1.0 / lambda; 3])
    };
    let penalty = |lambda, metric, end| {
        fake("fab", &[("run.iterations", "100"), ("algorithm.lambda", lambda)])
            .metric(metric)
            .curve(&[1.0, end])
    };
    let growing = r#"{ "start": 1, "power": 0.5 }"#;
    let mut agree = lengths("fab", "consensus_x", -1.2);
    agree.iter_mut().for_each(|f| f.also = &["consensus_y", "consensus_z"]);
    all_said(vec![
        // The square of ‖∇F*‖ falls twice as fast.
        (
            "T1",
            lengths("fab", "hypergradient", -0.34),
            &["from 0: K^(-0.680 ± 0.000) over 4 lengths; instance by instance -0.680 ± 0.000"],
        ),
        ("T2", agree, &["K^(-1.200 ± 0.000) over 4 lengths", "x alone -1.20, y alone -1.20"]),
        ("T3", both_means(-1.1), &["mean ‖∇F‖²: K^(-1.100", "mean consensus error: K^(-1.100"]),
        ("T4", [10.0, 20.0, 40.0].map(bias).into(), &["λ^(-1.000 ± 0.000) over 3 penalties"]),
        // A mean of 2e-14 over 101 looks.
        ("T5", vec![fake("fab", &EVERY).metric("tracking_gap").curve(&[0.0, 5.08e-14])], &["2.6e-12"]),
        (
            "G1",
            vec![
                penalty("60", "relative_error", 0.5),
                penalty("80", "relative_error", 0.6),
                penalty(growing, "relative_error", 0.4),
            ],
            &["K = 100: fixed λ = 60 gives 5.000e-1, schedule", "gives 4.000e-1"],
        ),
        (
            "G2",
            vec![
                penalty("60", "test_accuracy", 70.0),
                penalty("80", "test_accuracy", 80.0),
                penalty(growing, "test_accuracy", 81.0),
            ],
            &["K = 100: fixed λ = 80 gives 8.000e1, schedule", "gives 8.100e1"],
        ),
    ]);
}

#[test]
fn numbers_of_cleaning() {
    let at = |name, cr, curve: &[f64]| learned(name, &[("problem.cr", cr)], curve);
    let rates = || {
        let all = [
            ("fab", "0.4", 85.0),
            ("push-pull", "0.4", 83.0),
            ("fab", "0.6", 84.0),
            ("push-pull", "0.6", 30.0),
        ];
        all.map(|(name, cr, end)| at(name, cr, &[10.0, 80.0, end])).into()
    };
    let rho = |name, rho, end, state| Fake { state, ..learned(name, &[("problem.rho", rho)], &[10.0, end]) };
    let rhos = || {
        let ours = [rho("fab", "1.0", 85.0, 100), rho("fab", "0.1", 84.0, 102)];
        ours.into_iter()
            .chain([rho("push-pull", "1.0", 84.0, 50), rho("push-pull", "0.1", 80.0, 50)])
            .collect::<Vec<_>>()
    };
    let nu = |nu, curve: [f64; 5], bytes| Fake { bytes, ..learned("fab", &[("graph.nu", nu)], &curve) };
    let nus = || {
        vec![nu("0.2", [10.0, 80.0, 84.0, 82.0, 84.0], 100), nu("0.4", [10.0, 80.0, 84.0, 84.1, 84.5], 200)]
    };
    let sizes = || {
        let one = |h: u64| Fake {
            bytes: 1000 * (795 * h + 10),
            ..fake("fab", &[("problem.hidden", &h.to_string())])
        };
        [64, 128, 256].map(one).into()
    };
    let sent = || vec![Fake { bytes: 210, ..fake("fab", &[]) }, fake("push-pull", &[])];
    all_said(vec![
        (
            "C1",
            rates(),
            &["cr=0.4: fab 85.00 % against 83.00 % (push-pull)", "cr=0.6: fab 84.00 % against 30.00 %"],
        ),
        // FAB is done after a second, when the other has only been looked at once.
        ("C2", rates(), &["cr=0.4, after 1 s: FAB 85.00 %, push-pull 10.00 %"]),
        ("C3", rates(), &["push-pull 83.0 % at cr=0.4, 30.0 % at cr=0.6"]),
        ("C4", rhos(), &["fab -1.00 points, push-pull -4.00 points", "from ρ = 1 to ρ = 0.1; FAB is fab"]),
        ("C5", rhos(), &["fab 1.96 % of 102 B", "push-pull 0.00 % of 50 B"]),
        ("C6", nus(), &["fab 0.50 points"]),
        ("C7", nus(), &["fab wobble 2.000 to 0.250 points, 100 B to 200 B"]),
        ("C8", sent(), &["FAB 210 B, push-pull 100 B"]),
        ("C9", rates(), &["+2.00 points at cr=0.4, +54.00 points at cr=0.6"]),
        // Of the three laws p^1.5 is the nearest to three points on a line.
        ("C10", sizes(), &["bytes: off a + b·p by 0.00 %, off a + b·p^1.5 by 2.46 %"]),
        ("C11", sent(), &["2.10 times"]),
        ("C12", vec![fake("fab", &[]).metric("auc").curve(&[0.5, 0.95])], &["fab: AUC 0.950"]),
    ]);
}

#[test]
fn numbers_of_tuning_reviews_and_others() {
    let cr = ("problem.cr", "0.4");
    let tuned = |name, tau, end| learned(name, &[cr, ("algorithm.tau", tau)], &[10.0, end]);
    let fab = |end| learned("fab", &[cr], &[10.0, end]);
    let bench = [("problem.cr", "0.7"), ("problem.data", "mnist")];
    let bome =
        [("problem.cr", "0.5"), ("problem.data", "fashion-mnist"), ("algorithm.train_on", "validation")];
    let raced = also_hold_of_accuracies().into_iter().find(|(id, _)| *id == "B3").unwrap().1;
    all_said(vec![
        (
            "H1",
            vec![fab(86.0), tuned("push-pull", "0.2", 85.0), tuned("push-sgd", "0.15", 85.5)],
            &[
                "fab 86.00 % against 85.00 % (push-pull); best of all τ 85.50 % (push-sgd)",
                "in 1 of 1 corruption rates",
            ],
        ),
        (
            "H2",
            vec![fab(86.0), tuned("push-pull", "0.2", 87.0), tuned("push-sgd", "0.15", 85.5)],
            &[
                "fab 86.00 % against 85.50 % (push-sgd); best of all τ 87.00 % (push-pull)",
                "in 0 of 1 corruption rates",
            ],
        ),
        // As good is not above.
        (
            "H1",
            vec![fab(86.0), tuned("push-pull", "0.2", 85.0), tuned("push-sgd", "0.15", 86.0)],
            &["in 0 of 1 corruption rates"],
        ),
        (
            "H3",
            vec![fake("fab", &[]).metric("tau").curve(&[0.1, 0.145, 0.15])],
            &["fab: τ = 0.1500, moved 0.0050 in the second half; 0 runs diverged"],
        ),
        (
            "H4",
            vec![tuned("push-pull", "0.15", 85.0), tuned("push-pull", "0.2", 84.0)],
            &["push-pull: +1.00 points"],
        ),
        (
            "B1",
            vec![fab(84.0), learned("push-pull", &[cr], &[50.0, 80.0])],
            &["fab 84.00 %, push-pull 80.00 %"],
        ),
        (
            "B2",
            vec![learned("fab", &[], &[1.0, 80.0]), learned("push-pull", &[], &[3.0, 80.0])],
            &["first accuracies 1.0 to 3.0 %"],
        ),
        // The fourth look is after 99 iterations.
        (
            "B3",
            raced,
            &["cr=0.1: FAB 1 s, the fastest baseline 0 s", "cr=0.4: FAB 0 s, the fastest baseline 10 s"],
        ),
        (
            "BENCH",
            vec![fake("centralized-fab", &bench).metric("test_accuracy_z").curve(&[10.0, 86.0])],
            &["p=0.7: ours 14.00 %, theirs 14.3 to 14.5 %"],
        ),
        (
            "BOME",
            vec![learned("push-pull", &bome, &[10.0, 82.0])],
            &["validation only: ours 82.00 %, theirs 82.38 %"],
        ),
    ]);
}

/// PushPull_SOBA has no penalty and so no bias: Centralized_FAB may bound all but it.
#[test]
fn what_is_bounded_without_push_pull_soba() {
    let all = |fab: f64, soba: f64| {
        let one = |name, end: f64| fake(name, &[]).curve(&[1.0, end, end]);
        vec![one("centralized-fab", 0.4), one("fab", fab), one("push-pull-soba", soba)]
    };
    assert_eq!(verdict("P20", all(0.5, 0.5)), Verdict::Holds);
    let without = Verdict::HoldsOnlyUnder(", PushPull_SOBA left out".into());
    assert_eq!(verdict("P20", all(0.5, 0.3)), without);
    assert_eq!(verdict("P20", all(0.3, 0.5)), Verdict::DoesNotHold, "FAB is not left out");
    // One of four looks is too many, a line's width is not.
    let looks = |curve: &[f64]| {
        vec![fake("centralized-fab", &[]).curve(&[1.0, 0.4, 0.4, 0.4, 0.4]), fake("fab", &[]).curve(curve)]
    };
    assert_eq!(verdict("P20", looks(&[1.0, 0.39, 0.39, 0.39, 0.39])), Verdict::Holds);
    assert_eq!(verdict("P20", looks(&[1.0, 0.5, 0.3, 0.5, 0.5])), Verdict::DoesNotHold);
    let said = |fakes| claim("P20", fakes).number.contains("PushPull_SOBA left out");
    assert!(said(all(0.5, 0.5)) && !said(looks(&[1.0, 0.5, 0.5, 0.5, 0.5])), "nobody is left out");
    // One of twenty may be noise.
    let centre = || fake("centralized-fab", &[]).curve(&[0.4; 21]);
    let often = |below: usize| {
        let curve: Vec<f64> = (0..21).map(|k| if (1..=below).contains(&k) { 0.3 } else { 0.5 }).collect();
        vec![centre(), fake("fab", &[]).curve(&curve)]
    };
    assert_eq!(verdict("P20", often(1)), Verdict::Holds);
    assert_eq!(verdict("P20", often(2)), Verdict::DoesNotHold);
    // The start, where all are equal, is no look at a run.
    assert_eq!(verdict("P20", looks(&[0.1, 0.5, 0.5, 0.5, 0.5])), Verdict::Holds);
    let claim = claim("P20", all(0.5, 0.3));
    assert!(claim.number.contains("(0.4): 100 % fab (0.5), 0 % push-pull-soba (0.3)"), "{}", claim.number);
}

/// A user takes the setting with the least validation loss; every other one of FAB's counts by itself,
/// against the baselines of its own corruption rate. The made-up loss is the accuracy itself.
#[test]
fn every_setting_of_fab_counts_by_itself() {
    let one = |name, cr, key, value, end| {
        let more = learned(name, &[("problem.cr", cr), (key, value)], &[10.0, end]);
        Fake { also: &["loss"], ..more }
    };
    for (id, tau) in [("H1", "0.2"), ("H2", "0.15")] {
        let judged = |cr, ends: [f64; 2], rival| {
            vec![
                one("fab", cr, "algorithm.eta_x", "1", ends[0]),
                one("fab", cr, "algorithm.eta_x", "2", ends[1]),
                one("push-pull", cr, "algorithm.tau", tau, rival),
            ]
        };
        assert_eq!(verdict(id, judged("0.4", [86.0, 87.0], 85.0)), Verdict::Holds);
        let other = Verdict::HoldsOnlyUnder("cr = 0.4, fab".into());
        assert_eq!(verdict(id, judged("0.4", [84.0, 87.0], 85.0)), other, "the chosen one lost");
        assert_eq!(verdict(id, judged("0.4", [83.0, 84.0], 85.0)), Verdict::DoesNotHold);
        // At a higher rate all are worse, and compared there.
        let both = judged("0.4", [86.0, 87.0], 85.0).into_iter().chain(judged("0.6", [72.0, 73.0], 71.0));
        assert_eq!(verdict(id, both.collect()), Verdict::Holds);
        // A setting that diverged has lost, though others hold.
        let mut lost = judged("0.4", [86.0, 87.0], 85.0);
        lost[1].outcome = "diverged";
        assert_eq!(verdict(id, lost), Verdict::HoldsOnlyUnder("cr = 0.4".into()));
    }
}
