//! What problems say of themselves: sizes, starts, metrics, how often they were asked, and what they refuse.
use super::*;
use dibo::problem::{Instance, Oracle, SingleLevel, Start};

fn sized(problem: &dyn Bilevel<f64>) -> (usize, Upper, usize, Option<(usize, usize)>) {
    let single = problem.single_level().map(|s| (s.agents(), s.width()));
    (problem.agents(), problem.upper(), problem.lower(), single)
}

#[test]
fn problems_have_the_sizes_they_were_made_with() {
    let policy = PolicyEvaluation::random(3, 7, 2, 1);
    assert_eq!(sized(&policy), (3, Upper::Shared(2), 7, Some((3, 2))));
    assert_eq!(sized(&Quadratic::random(3, 2, 7, 1, false)), (3, Upper::Shared(2), 7, Some((3, 2))));
    assert_eq!(sized(&Robust::random(3, 2, 7, 1)), (3, Upper::Shared(2), 7, Some((3, 2))));
    assert_eq!(sized(&Waves::random(3, 2, 1)), (3, Upper::Shared(2), 2, Some((3, 2))));
    assert_eq!(sized(&Counted::new(&policy, Oracle::default())), sized(&policy));
}

/// At x* nothing is left, at 0 and at 2x* all is; F* is least at x*, where its slope is 0.
#[test]
fn metrics_measure_the_distance_to_the_solution() {
    let (policy, quadratic, waves) =
        (PolicyEvaluation::random(3, 9, 3, 2), Quadratic::random(3, 3, 4, 2, false), Waves::random(3, 3, 2));
    let problems: [(&dyn Bilevel<f64>, Vec<f64>); 3] = [
        (&policy, policy.solution().to_vec()),
        (&quadratic, quadratic.solution()),
        (&waves, waves.solution()),
    ];
    for (problem, best) in problems {
        let at = |times: f64, name: &str| {
            let x: Vec<f64> = best.iter().map(|x| times * x).collect();
            let values = problem.metrics(&x, None).unwrap();
            assert_eq!(
                values.iter().map(|v| v.0).collect::<Vec<_>>(),
                problem.measures().iter().map(|m| m.name).collect::<Vec<_>>()
            );
            values.iter().find(|v| v.0 == name).map(|v| v.1)
        };
        let near = |value: Option<f64>, expected: f64| (value.unwrap() - expected).abs() < 1e-9;
        for (times, error) in [(0.0, 1.0), (0.5, 0.5), (1.0, 0.0), (2.0, 1.0)] {
            assert!(near(at(times, "relative_error"), error), "{times}: {:?}", at(times, "relative_error"));
        }
        assert!(near(at(1.0, "hypergradient"), 0.0));
        // F* is quadratic in all three, so its slope grows with the distance.
        let slope = at(2.0, "hypergradient").unwrap();
        assert!(slope > 1e-3 && near(at(0.0, "hypergradient"), slope));
        assert!(near(at(1.5, "hypergradient"), slope / 2.0));
        if let Some(least) = at(1.0, "objective") {
            let gap = at(2.0, "objective").unwrap() - least;
            assert!(gap > 1e-3 && near(at(0.0, "objective"), least + gap));
            assert!(near(at(1.5, "objective"), least + gap / 4.0));
        }
    }
}

/// With a y the bilevel objective is measured, without one the single-level one.
#[test]
fn the_robust_fit_is_measured_by_what_is_minimised() {
    let problem = Robust::random(3, 2, 4, 3);
    let x = [0.4, -0.7];
    let y = ClosedForms::lower_solution(&problem, &x);
    let values = |y| problem.metrics(&x, y).unwrap().into_iter().map(|v| v.1).collect::<Vec<f64>>();
    let (bilevel, single) = (values(Some(&y[..])), values(None));
    assert_eq!(bilevel[0], problem.values(&x, &y).0);
    assert_eq!(Some(single[0]), SingleLevel::value(&problem, &x));
    let norm = |g: &[f64]| g.iter().map(|g| g * g).sum::<f64>().sqrt();
    assert!((bilevel[1] - norm(&ClosedForms::hypergradient(&problem, &x))).abs() < 1e-12);
    let mut mean = vec![0.0; 2];
    for i in 0..3 {
        single_level_gradient(&problem, i, 0, &x).iter().zip(&mut mean).for_each(|(g, m)| *m += g / 3.0);
    }
    assert!((single[1] - norm(&mean)).abs() < 1e-12);
    for [_, gradient, squared] in [bilevel, single].map(|v| <[f64; 3]>::try_from(v).unwrap()) {
        assert!((gradient * gradient - squared).abs() < 1e-12);
    }
}

/// Half of the coordinates begin where the lower level curves down.
#[test]
fn waves_begin_among_waves() {
    let problem = Waves::random(3, 4, 4);
    let start = problem.start();
    let [y] = &start.y[..] else { panic!("one row for all") };
    let rest = ClosedForms::lower_solution(&problem, &[0.0; 4]);
    for (j, (y, rest)) in y.iter().zip(&rest).enumerate() {
        let expected = if j % 2 == 0 { 1.6 } else { 0.3 };
        assert!((y - rest - expected).abs() < 1e-12);
        let mut v = vec![0.0; 4];
        v[j] = 1.0;
        let curvature = products(&problem, 0, 0, &[0.0; 4], &start.y[0], &v).1[j];
        assert_eq!(curvature < 0.0, j % 2 == 0, "{curvature}");
    }
    assert!(start.x.is_empty() && start.twin() == &start.y);
}

#[test]
fn starts_are_everybodys_or_each_agents_own() {
    let (one, three) = (vec![vec![1.0]], vec![vec![1.0], vec![2.0], vec![3.0]]);
    assert_eq!(Start::row(&one, 2), Some(&[1.0][..]));
    assert_eq!(Start::row(&three, 2), Some(&[3.0][..]));
    assert_eq!((Start::row(&three, 3), Start::row(&[], 0)), (None, None));
    let own = Start { y: one.clone(), z: three.clone(), ..Start::default() };
    assert_eq!(own.twin(), &three);
    // Without a penalty y starts at y*(x) as z does.
    let problem = PolicyEvaluation::random(3, 9, 3, 2);
    for lambda in [None, Some(5.0)] {
        let warm = problem.clone().warm(lambda).start();
        assert_eq!((&warm.x, &warm.z), (&vec![vec![0.0; 3]], &vec![problem.lower_solution(&[0.0; 3])]));
        assert_eq!(warm.y == warm.z, lambda.is_none());
    }
}

/// An agent's gradient counts once, a penalty's directions three times, SOBA's as what they are made of.
#[test]
fn oracle_calls_are_counted() {
    let problem = PolicyEvaluation::random(3, 20, 2, 5);
    let calls = |job: &dyn Fn(&Counted<'_, f64>)| {
        let counted = Counted::new(&problem, Oracle { gradients: 100, products: 200 });
        job(&counted);
        (counted.calls().gradients - 100, counted.calls().products - 200)
    };
    let (x, y) = (vec![0.1; 2], vec![0.2; 20]);
    let mut v: Stack<f64, 3> = Stack::zeros(2, &Upper::Shared(2), &[20, 20]);
    v.shared.data_mut().fill(0.3);
    let threads = Threads::one();
    let at = At { k: 0, owned: &[2, 0], threads: &threads };
    assert_eq!(calls(&|c| drop(grad_f(c, 1, 0, &x, &y))), (1, 0));
    assert_eq!(calls(&|c| drop(grad_g(c, 1, 0, &x, &y))), (1, 0));
    assert_eq!(calls(&|c| drop(products(c, 1, 0, &x, &y, &y))), (0, 2));
    assert_eq!(calls(&|c| drop(single_level_gradient(c, 1, 0, &x))), (1, 0));
    let penalty = Penalty { f: 1.0, g: 2.0 };
    assert_eq!(calls(&|c| c.penalty_directions(at, penalty, &v, &mut v.clone()).unwrap()), (6, 0));
    for (by, expected) in
        [(Products::Exact, (4, 4)), (Products::Differences { delta: 1e-3, relative: true }, (8, 0))]
    {
        assert_eq!(
            calls(&|c| assert!(c.soba_directions(at, by, None, &v, &mut v.clone()).unwrap())),
            expected
        );
    }
    let differences = Products::Differences { delta: 1e-3, relative: true };
    for (by, only, expected) in [
        (Products::Exact, 0, (2, 2)),
        (Products::Exact, 1, (2, 0)),
        (Products::Exact, 2, (2, 2)),
        (differences, 0, (6, 0)),
        (differences, 1, (2, 0)),
        (differences, 2, (6, 0)),
    ] {
        let one = |c: &Counted<'_, f64>| c.soba_directions(at, by, Some(only), &v, &mut v.clone());
        assert_eq!(calls(&|c| assert!(one(c).unwrap())), expected, "variable {only} alone");
    }
    // Who has no directions of its own is asked for gradients instead, and those are counted.
    let quadratic = Quadratic::random(3, 2, 20, 5, false);
    let counted = Counted::new(&quadratic, Oracle::default());
    assert!(!counted.soba_directions(at, Products::Exact, None, &v, &mut v.clone()).unwrap());
    assert_eq!(counted.calls(), Oracle::default());
}

/// What a counted problem does not count it hands on.
#[test]
fn a_counted_problem_is_the_problem() {
    use dibo::rows::{Rows, View};
    let problem = Robust::random(3, 2, 4, 3).warm(Some(3.0));
    let counted = Counted::new(&problem, Oracle::default());
    assert_eq!(counted.start().y, problem.start().y);
    assert_eq!(counted.measures(), problem.measures());
    let x = Rows::from_vectors(&[[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]]);
    let views = [View::whole("x", &x)];
    let values = counted.state_metrics(&views).unwrap();
    assert_eq!(values, problem.metrics(&[0.3, 0.4], None).unwrap());
    assert!(values.len() == 3 && counted.own_sums(&[0], &views).unwrap().is_none());
    let single = counted.single_level().unwrap();
    assert_eq!((single.blocks(), single.start_from(&problem.start())), (1, &problem.start().x));
    let curved = Curved::from_matrices(&[matrices()], 0.0).unwrap();
    let lacking = Counted::new(&curved, Oracle::default());
    assert!(lacking.second_order().is_some() && lacking.single_level().is_none());
}

/// One number for x and two for y.
fn matrices() -> Matrices {
    Matrices {
        xx: vec![vec![1.0]],
        yy: vec![vec![1.0, 0.0], vec![0.0, 1.0]],
        xy: vec![vec![0.1, 0.2]],
        p: vec![1.0],
        q: vec![1.0, 2.0],
        g_yy: vec![vec![2.0, 0.0], vec![0.0, 3.0]],
        g_xy: vec![vec![0.5, -0.5]],
        h: vec![0.3, 0.4],
        a: vec![2.0],
    }
}

#[test]
fn matrices_that_do_not_fit_are_named() {
    let says = |change: &dyn Fn(&mut Matrices)| {
        let mut wrong = matrices();
        change(&mut wrong);
        Quadratic::from_matrices(&[matrices(), wrong]).err().unwrap()
    };
    assert!(Quadratic::from_matrices(&[matrices(), matrices()]).is_ok());
    let square = "must have 2 rows of 2 finite numbers";
    assert_eq!(says(&|m| drop(m.yy.pop())), format!("agent 1: Q {square}"));
    assert_eq!(says(&|m| m.g_yy[1] = vec![0.0]), format!("agent 1: H {square}"));
    assert_eq!(says(&|m| m.g_yy[1][1] = f64::NAN), format!("agent 1: H {square}"));
    assert_eq!(says(&|m| m.xy = m.yy.clone()), "agent 1: S must have 1 rows of 2 finite numbers");
    assert_eq!(says(&|m| m.g_xy.clear()), "agent 1: C must have 1 rows of 2 finite numbers");
    assert_eq!(says(&|m| m.p.push(1.0)), "agent 1: p must have 1 rows of 1 finite numbers");
    assert_eq!(says(&|m| m.h.clear()), "agent 1: h must have 1 rows of 2 finite numbers");
    assert_eq!(says(&|m| m.g_yy[0][0] = -9.0), "agents: the mean of H is not positive definite");
    let empty = |change: &dyn Fn(&mut Matrices)| {
        let mut wrong = matrices();
        change(&mut wrong);
        Quadratic::from_matrices(&[wrong]).err().unwrap()
    };
    assert!(empty(&|m| m.p.clear()).contains("one number or more for x and for y"));
    assert!(empty(&|m| m.q.clear()).contains("one number or more for x and for y"));
    assert!(Quadratic::from_matrices(&[]).err().unwrap().contains("at least one"));
    let curved = |a: Vec<f64>, kappa| Curved::from_matrices(&[Matrices { a, ..matrices() }], kappa).err();
    assert_eq!(curved(vec![2.0], 0.5), None);
    assert_eq!(curved(vec![], 0.0), None, "what is not curved needs no direction");
    assert_eq!(curved(vec![2.0], -0.5), Some("kappa is -0.5; it must be 0 or more".into()));
    assert_eq!(curved(vec![2.0, 1.0], 0.5), Some("a must have 1 finite numbers for every agent".into()));
    assert!(curved(vec![f64::NAN], 0.5).is_some());
}

#[test]
fn tables_that_do_not_fit_are_named() {
    let table = |rows: &[&[f64]]| rows.iter().map(|r| r.to_vec()).collect::<Matrix>();
    let (phi, p) = (table(&[&[1.0], &[2.0]]), table(&[&[0.5, 0.5], &[0.2, 0.8]]));
    let r = table(&[&[1.0, 0.0], &[0.0, 1.0], &[1.0, 1.0]]);
    let says = |features: &[&Matrix], p: &Matrix, r: &Matrix, gamma, tau| {
        PolicyEvaluation::from_tables(features, p, r, gamma, tau).err().unwrap_or_default()
    };
    assert_eq!(says(&[&phi], &p, &r, 0.9, 0.1), "");
    assert_eq!(says(&[&phi; 3], &p, &r, 1.0, 0.1), "");
    assert_eq!(says(&[&phi; 2], &p, &r, 0.9, 0.1), "features are given for 2 agents; 1 or 3 are needed");
    let short = table(&[&[1.0]]);
    assert_eq!(says(&[&short], &p, &r, 0.9, 0.1), "features must have 2 rows of 1 numbers");
    assert_eq!(says(&[&phi], &p, &short, 0.9, 0.1), "rewards must have 1 rows of 2 numbers");
    let wide = table(&[&[0.5, 0.5, 0.0], &[0.2, 0.8, 0.0]]);
    assert_eq!(says(&[&phi], &wide, &r, 0.9, 0.1), "transition must have 2 rows of 2 numbers");
    let endless = table(&[&[f64::INFINITY], &[2.0]]);
    assert_eq!(says(&[&endless], &p, &r, 0.9, 0.1), "features holds a number that is not finite");
    for (row, sum) in [([0.2, 0.7], "0.8999999999999999"), ([-0.5, 1.5], "1")] {
        let wrong = table(&[&[0.5, 0.5], &row]);
        let found = says(&[&phi], &wrong, &r, 0.9, 0.1);
        assert!(found.starts_with(&format!("transition row 1 sums to {sum};")), "{found}");
    }
    for (gamma, tau) in [(1.1, 0.1), (-0.1, 0.1), (0.9, -0.1), (0.9, f64::INFINITY)] {
        assert!(
            says(&[&phi], &p, &r, gamma, tau).starts_with(&format!("gamma is {gamma} and tau is {tau};"))
        );
    }
    assert!(says(&[&phi], &p, &Matrix::new(), 0.9, 0.1).starts_with("0 agents, 2 states and 1 features"));
    assert!(says(&[&phi], &Matrix::new(), &r, 0.9, 0.1).starts_with("3 agents, 0 states"));
    // Φ − γPΦ vanishes for equal features and γ = 1: then only τ curves F*.
    let flat = table(&[&[1.0], &[1.0]]);
    assert!(says(&[&flat], &p, &r, 1.0, 0.0).contains("tau must be above 0"));
    assert!(PolicyEvaluation::random(3, 7, 2, 1).tau(-1e9).err().unwrap().contains("not strongly convex"));
    let weights = PolicyEvaluation::random(3, 7, 2, 1).try_weights(f64::NAN, 1.0).err().unwrap();
    assert!(weights.starts_with("f_weight is NaN: "), "{weights}");
}

/// Six agents with two kinds of rewards, in turn or in blocks; with noise every agent is one of its own.
#[test]
fn patterns_are_dealt_in_turn_or_in_blocks() {
    let kinds = |instance: Instance, omega: f64| {
        let problem = instance.random(1).unwrap().noise(omega, NoiseOn::State, 0);
        problem.constants().unwrap().kinds
    };
    let two = Instance { agents: 6, reward_patterns: 2, ..Instance::default() };
    assert_eq!(kinds(two.clone(), 0.0), [0, 1, 0, 1, 0, 1]);
    assert_eq!(kinds(Instance { blocks: true, ..two.clone() }, 0.0), [0, 0, 0, 3, 3, 3]);
    assert_eq!(kinds(Instance { feature_patterns: 3, ..two.clone() }, 0.0), [0, 1, 2, 3, 4, 5]);
    assert_eq!(kinds(Instance { reward_patterns: 0, ..two.clone() }, 0.0), [0, 1, 2, 3, 4, 5]);
    assert_eq!(kinds(two, 0.1), [0, 1, 2, 3, 4, 5]);
}

/// A product with nothing is nothing, and one with a long vector is as long: ∇²g is linear in it.
#[test]
fn products_by_differences_are_linear() {
    let problem = Waves::random(2, 3, 6);
    let (x, y, v) = ([0.1, 0.2, 0.3], [0.5, -0.4, 0.9], [0.3, -0.2, 0.7]);
    let product = |v: &[f64], mixed| {
        let mut out = vec![f64::NAN; 3];
        dibo::problem::difference_product(&problem, 1, 0, [&x, &y, v], &mut out, mixed).unwrap();
        out
    };
    let (xy, yy) = products(&problem, 1, 0, &x, &y, &v);
    for (mixed, expected) in [(true, xy), (false, yy)] {
        assert_eq!(product(&[0.0; 3], mixed), [0.0; 3]);
        for times in [1e-6, 1.0, 1e6] {
            let long: Vec<f64> = v.iter().map(|v| times * v).collect();
            for (got, expected) in product(&long, mixed).iter().zip(&expected) {
                assert!((got / times - expected).abs() < 1e-8, "{times}: {got} {expected}");
            }
        }
    }
}
