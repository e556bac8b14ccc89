//! Whatever a user writes, the answer is a result or an error that says what is wrong: never a panic.
mod common;
use common::Matrix;
use dibo::mixing::Sequence;
use dibo::rows::{Rows, Threads};
use dibo::trace;
use proptest::prelude::*;
use serde_json::{Value, json};

/// Numbers that go wrong in files: signs, zeros, overflow, and what is fine.
fn number() -> impl Strategy<Value = f64> {
    prop_oneof![
        8 => 0.0..1.0f64,
        1 => -2.0..2.0f64,
        1 => prop::sample::select(vec![
            0.0, -0.0, 1.0, 0.5, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e308, 1e-308, -1e-17,
        ]),
    ]
}

/// A table that may be ragged.
fn table() -> impl Strategy<Value = Matrix> {
    (0..6usize).prop_flat_map(|n| {
        let straight = prop::collection::vec(prop::collection::vec(number(), n), n);
        let ragged = prop::collection::vec(prop::collection::vec(number(), 0..6), 0..6);
        prop_oneof![4 => straight, 1 => ragged]
    })
}

/// A square table of numbers above 0 (or some zeros), which can be made stochastic.
fn positive(n: usize) -> impl Strategy<Value = Matrix> {
    prop::collection::vec(prop::collection::vec(prop_oneof![3 => 0.1..1.0f64, 1 => Just(0.0)], n), n)
}

fn stochastic(n: usize) -> impl Strategy<Value = (Matrix, Matrix)> {
    (positive(n), positive(n)).prop_map(move |(mut a, mut b)| {
        for i in 0..n {
            a[i][i] = 1.0;
            b[i][i] = 1.0;
        }
        for i in 0..n {
            let row: f64 = a[i].iter().sum();
            a[i].iter_mut().for_each(|w| *w /= row);
            let column: f64 = b.iter().map(|row| row[i]).sum();
            b.iter_mut().for_each(|row| row[i] /= column);
        }
        (a, b)
    })
}

/// Rows of A and columns of B sum to 1 at the first iterations.
fn assert_stochastic(sequence: &Sequence) {
    let n = sequence.agents();
    for k in 0..4 {
        let m = sequence.at::<f64>(k);
        for i in 0..n {
            let (row, column) =
                ((0..n).map(|j| m.a(i, j)).sum::<f64>(), (0..n).map(|j| m.b(j, i)).sum::<f64>());
            assert!(
                (row - 1.0).abs() < 1e-8 && (column - 1.0).abs() < 1e-8,
                "sums {row} and {column} at k = {k}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_matrices_are_taken_or_refused(pairs in prop::collection::vec((table(), table()), 0..4)) {
        match Sequence::given(pairs) {
            Ok(sequence) => assert_stochastic(&sequence),
            Err(e) => prop_assert!(!e.is_empty()),
        }
    }

    #[test]
    fn stochastic_matrices_are_taken_as_they_are(
        pairs in (1..6usize).prop_flat_map(|n| prop::collection::vec(stochastic(n), 1..4)),
    ) {
        let sequence = Sequence::given(pairs.clone()).unwrap();
        assert_stochastic(&sequence);
        for (k, (a, b)) in pairs.iter().enumerate() {
            let m = sequence.at::<f64>(k);
            for i in 0..a.len() {
                for j in 0..a.len() {
                    prop_assert_eq!((m.a(i, j), m.b(i, j)), (a[i][j], b[i][j]));
                }
            }
        }
        // One entry off by more than rounding is refused.
        let mut wrong = pairs;
        wrong[0].0[0][0] += 1e-6;
        prop_assert!(Sequence::given(wrong).is_err_and(|e| e.contains("row-stochastic")));
    }

    #[test]
    fn any_edges_are_taken_or_refused(
        n in 0..6usize,
        lists in prop::collection::vec(prop::collection::vec((0..8usize, 0..8usize), 0..12), 0..4),
        huge in any::<bool>(),
    ) {
        let mut lists = lists;
        if let (true, Some(first)) = (huge, lists.first_mut()) {
            first.push((usize::MAX, 1));
        }
        let graph = |edges| serde_json::from_value(json!({"edges": edges})).unwrap();
        let graphs: Vec<trace::Graph> = lists.iter().map(graph).collect();
        let sound = !lists.is_empty() && lists.iter().flatten().all(|(s, r)| *s < n && *r < n);
        match trace::mixing(&graphs, n) {
            Ok(sequence) => {
                prop_assert!(sound);
                assert_stochastic(&sequence);
            }
            Err(_) => prop_assert!(!sound),
        }
    }

    #[test]
    fn graphs_of_any_kind_are_taken_or_refused(
        n in 0..6usize,
        graphs in prop::collection::vec((any::<bool>(), any::<bool>(), any::<bool>(), table()), 0..4),
    ) {
        let graph = |(edges, a, b, table): &(bool, bool, bool, Matrix)| -> Option<trace::Graph> {
            let mut object = json!({});
            if *edges {
                object["edges"] = json!([[0, 1], [1, 0]]);
            }
            if *a {
                object["A"] = json!(table);
            }
            if *b {
                object["B"] = json!(table);
            }
            // A number that JSON cannot hold is refused before it comes here.
            serde_json::from_value(object).ok()
        };
        let graphs: Vec<trace::Graph> = graphs.iter().filter_map(graph).collect();
        if let Ok(sequence) = trace::mixing(&graphs, n) {
            assert_stochastic(&sequence);
        }
    }
}

/// The oracle's input with an entry for every algorithm that it lacks, and few iterations.
fn base() -> Value {
    static BASE: std::sync::OnceLock<Value> = std::sync::OnceLock::new();
    BASE.get_or_init(made).clone()
}

/// Every algorithm that runs on the oracle's graphs, which go one way: those that need links both ways are
/// left out.
fn made() -> Value {
    let mut input: Value = serde_json::from_str(include_str!("data/oracle-input.json")).unwrap();
    input["snapshots"] = json!([0, 1, 7]);
    let known = input["algorithms"].as_object().unwrap().clone();
    let steps = json!({"start": 0.03, "decay": 0.1});
    let tries = [
        json!({"eta": 0.1}),
        json!({"eta": 0.1, "beta": 0.5}),
        json!({"eta": 0.1, "inner": 3}),
        json!({"eta": 0.1, "beta": 0.5, "inner": 3}),
        json!({"lambda": 4.0, "eta_x": 0.05, "eta_y": steps}),
        json!({"eta_x": 0.01, "eta_y": steps}),
        json!({"direction": "soba-fd", "delta": 1e-3, "mixing": "ab", "eta_x": 0.01, "eta_y": steps}),
        json!({"mixing": "push-diging", "eta": 0.1}),
    ];
    let mut all = known.clone();
    for (name, _) in dibo::algorithm::NAMES.iter().filter(|(name, _)| !known.contains_key(*name)) {
        let found = tries.iter().find_map(|parameters| {
            let mut parameters = parameters.clone();
            parameters["name"] = json!(name);
            input["algorithms"] = json!({ *name: parameters });
            trace::trace(&input.to_string()).is_ok().then_some(parameters)
        });
        all.extend(found.map(|parameters| (name.to_string(), parameters)));
    }
    input["algorithms"] = Value::Object(all);
    input
}

/// Every place in a JSON value, as a path of keys and positions.
fn places(value: &Value, here: &str, all: &mut Vec<String>) {
    all.push(here.to_string());
    match value {
        Value::Object(object) => object.iter().for_each(|(key, v)| places(v, &format!("{here}/{key}"), all)),
        Value::Array(array) => {
            array.iter().enumerate().for_each(|(i, v)| places(v, &format!("{here}/{i}"), all))
        }
        _ => {}
    }
}

/// What a place may be overwritten with.
fn strange() -> impl Strategy<Value = Value> {
    let values = json!([
        null, true, "", "fab", "dl-push-saga", 0, 1, -1, 3, 17, 0.5, 1e308, -1e308, 1e-308, 1e18,
        18446744073709551615u64, [], {}, [[]], [[0, 9]], [1.0],
        {"start": 1, "power": 400}, {"start": 0.1, "decay": -1}, {"name": "push-pull"}
    ]);
    prop::sample::select(values.as_array().unwrap().clone())
}

/// Whether the run that a text asks for is a short one: the mutations are not to turn this test into a
/// benchmark.
fn is_short(input: &Value) -> bool {
    let few = |v: &Value| v.as_u64().is_none_or(|k| k <= 50 || k > 10_000_000);
    let snapshots = input["snapshots"].as_array().is_none_or(|all| all.iter().all(few));
    let inner = input["algorithms"].as_object().is_none_or(|all| all.values().all(|a| few(&a["inner"])));
    snapshots && inner
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 1500,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn changed_inputs_are_taken_or_refused(
        changes in prop::collection::vec(
            (any::<prop::sample::Index>(), prop::option::of(strange())),
            1..4,
        ),
    ) {
        let mut input = base();
        for (at, new) in changes {
            let mut all = Vec::new();
            places(&input, "", &mut all);
            let path = at.get(&all);
            match (new, path.rsplit_once('/')) {
                (Some(new), _) => *input.pointer_mut(path).unwrap() = new,
                (None, Some((parent, last))) => match input.pointer_mut(parent).unwrap() {
                    Value::Object(object) => drop(object.remove(last)),
                    Value::Array(array) => drop(array.remove(last.parse().unwrap())),
                    _ => unreachable!("only these have places inside"),
                },
                (None, None) => input = Value::Null,
            }
        }
        if is_short(&input)
            && let Err(e) = trace::trace(&input.to_string())
        {
            prop_assert!(!e.is_empty());
        }
    }

    #[test]
    fn damaged_texts_are_taken_or_refused(
        changes in prop::collection::vec(
            (
                any::<prop::sample::Index>(),
                0..3u8,
                prop::sample::select(b"0123456789.eE+-[]{},:\"nx ".to_vec()),
            ),
            1..5,
        ),
    ) {
        let mut text = base().to_string().into_bytes();
        for (at, kind, byte) in changes {
            let at = at.index(text.len());
            match kind {
                0 => text[at] = byte,
                1 => text.insert(at, byte),
                _ => drop(text.remove(at)),
            }
        }
        let text = String::from_utf8(text).expect("only ASCII is put in");
        // A text that is not JSON is refused at once; any other must ask for a short run.
        if serde_json::from_str::<Value>(&text).map_or(true, |input| is_short(&input)) {
            let _ = trace::trace(&text);
        }
    }
}

#[test]
fn the_unchanged_input_runs() {
    let output = trace::trace(&base().to_string()).unwrap();
    let output = output.as_object().unwrap();
    // The paper's methods and the cells that go over directed links.
    let paper = [
        "fab",
        "centralized-fab",
        "static-fab",
        "push-sum-fab",
        "push-pull-soba",
        "push-saga",
        "dl-push-asgd",
    ];
    let cells = ["push-soba", "cell", "single-cell"];
    for name in paper.into_iter().chain(cells) {
        assert!(output.contains_key(name), "{name} is missing of {:?}", output.keys());
    }
}

/// Cases that mutations rarely hit.
#[test]
fn extreme_settings_are_errors() {
    let with = |path: &str, value: Value| {
        let mut input = base();
        let (parent, key) = path.rsplit_once('/').unwrap();
        input.pointer_mut(parent).unwrap()[key] = value;
        trace::trace(&input.to_string())
    };
    for (path, value) in [
        ("/algorithms/dl-push-pull/inner", json!(u64::MAX)),
        ("/algorithms/dl-push-pull/inner", json!(1u64 << 40)),
        ("/algorithms/dl-push-pull/inner", json!(0)),
        ("/snapshots", json!([10_000_001])),
        ("/algorithms/fab/eta_x", json!(-0.1)),
        ("/graphs", json!([])),
        ("/problem/tau", json!(-1.0)),
    ] {
        assert!(with(path, value.clone()).is_err(), "{path} = {value}");
    }
    // Features of size 1e3 and this weight overflow the objective's Hessian.
    let mut input = base();
    input["problem"]["features"] = json!([[200.0, 900.0], [700.0, 400.0], [500.0, 100.0]]);
    input["algorithms"]["fab"]["f_weight"] = json!(1e305);
    assert!(trace::trace(&input.to_string()).is_err_and(|e| e.contains("algorithms.fab: f_weight")));
}

/// What Exact Diffusion and EXTRA do in one pass has the bits of the passes it stands for, on any threads.
#[test]
fn one_pass_is_the_passes_one_after_the_other() {
    let made = |seed: u64| {
        let mut rows: Rows<f64> = Rows::zeros(9, 5000);
        (0..9).for_each(|i| {
            let numbers = (0..5000).map(|j| ((seed * 77 + i as u64 * 5000 + j) as f64).sin());
            rows.row_mut(i).iter_mut().zip(numbers).for_each(|(to, from)| *to = from);
        });
        rows
    };
    let (one, eta) = (Threads::one(), vec![0.3; made(0).stride()]);
    let (v, psi, m) = (made(1), made(2), made(3));
    let mut stepped = v.clone();
    stepped.sub_scaled_columns(&eta, &m, &one);
    let mut diffused = v.clone();
    diffused.add(&stepped, &one);
    diffused.add_scaled(-1.0, &psi, &one);
    let mut change = psi.clone();
    change.scale_difference(1.0, &v, &one);
    let mut ahead = v.clone();
    ahead.add(&change, &one);
    let mut taken_off = psi.clone();
    taken_off.scale_difference(1.0, &m, &one);
    let mut corrected = v.clone();
    corrected.sub_scaled_columns(&eta, &taken_off, &one);
    for threads in [1, 2, 3].map(Threads::new) {
        let run = |job: &dyn Fn(&mut Rows<f64>, &mut Rows<f64>)| {
            let (mut a, mut b) = (v.clone(), psi.clone());
            job(&mut a, &mut b);
            (a, b)
        };
        assert!(run(&|a, b| a.diffuse(b, &eta, &m, &threads)) == (diffused.clone(), stepped.clone()));
        assert!(run(&|a, b| a.extrapolate(b, &threads)) == (ahead.clone(), v.clone()));
        assert!(run(&|a, b| a.sub_scaled_change(b, &eta, &m, &threads)) == (corrected.clone(), m.clone()));
    }
}
