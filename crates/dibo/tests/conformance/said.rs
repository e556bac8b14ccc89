//! What methods say of themselves is so: what they keep and send, what they refuse, where they can run.
use super::*;
use dibo::algorithm::{Grid, Mixes, Theorem};
use dibo::mixing::Rule;
use std::sync::Arc;

/// Vectors of the width of x and of y that a state's memory is made of, push-sum's weights left out.
fn remembered(algorithm: &dyn Algorithm<f64>) -> [usize; 2] {
    let (dx, dy) = (2, 100);
    let problem = Quadratic::random(3, dx, dy, 80, false);
    let mut network = Simulator::new(as_wanted(algorithm, &unbalanced(3, 81)), Threads::one());
    let mut state = algorithm.start(&problem, &mut network, None).unwrap();
    let numbers: usize = state.memory().iter().map(|rows| rows.width()).filter(|width| *width > 1).sum();
    [numbers % dy / dx, numbers / dy]
}

/// Vectors beside the memory, which every step writes anew: what is pulled, fresh gradients, copies of one
/// variable's columns, an inner loop's path.
fn room(entry: &Entry) -> [usize; 2] {
    let has = |key: &str| entry.parameters.get(key).is_some_and(|v| *v != json!(false));
    match entry.name {
        // A gradient, or the one at the point that was left.
        "push-sgd" | "subgradient-push" | "push-saga" | "push-asgd" => [1, 0],
        // The same for x and y, where y begins, the adjoint, and y's path, which Push-ASGD remembers.
        "dl-push-pull" => [0, 2 + INNER + 1],
        "dl-push-sgd" | "dl-push-saga" => [1, 3 + INNER + 1],
        "dl-push-asgd" => [1, 3],
        // The next ψ or v, on a device.
        "exact-diffusion" | "extra" => [1, 0],
        // STORM has the directions at the point before.
        "vrdbo" => [1, 1],
        "penalty-storm" => [1, 2],
        "push-soba" if has("a") => [1, 2],
        // One variable after the other: copies of its v and d; ED and EXTRA as above.
        "sparkle-gt" => [2, 4],
        "sparkle-ed" | "sparkle-extra" => [3, 6],
        "sparkle-ed-gt" => [2, 6],
        "cell" if has("sweep") => [3, 6],
        "cell" if has("a") => [1, 2],
        "cell" if has("mixing_x") => [2, 4],
        // u and ∇ᵧf; without trackers there is still room for them.
        "ma-dsbo" if has("tracked") => [1, 1],
        "ma-dsbo" => [2, 2],
        // The Neumann term.
        "hgp" => [0, 1],
        // What v and s are pulled to, and a gradient for y and z.
        "c2dfb" => [2, 5],
        _ => [0, 0],
    }
}

#[test]
fn what_a_method_says_it_keeps_is_its_memory_and_room() {
    for entry in entries() {
        let algorithm = algorithm(entry.name, entry.parameters.clone());
        let (said, kept, room) = (algorithm.vectors(1), remembered(&*algorithm), room(&entry));
        let place = format!("{} {}", entry.name, entry.parameters);
        // A single-level objective has the width of x here.
        assert_eq!([said.upper + said.single, said.lower], [kept[0] + room[0], kept[1] + room[1]], "{place}");
        assert!(said.single == 0 || said.upper + said.lower == 0, "{place}: one level or two");
    }
    // A gradient of each block.
    let saga = algorithm("push-saga", parameters("push-saga"));
    assert_eq!(saga.vectors(10).single, saga.vectors(1).single + 9);
}

#[test]
fn rounds_are_those_that_a_step_takes() {
    let problem = Quadratic::random(4, 2, 3, 82, false);
    for Entry { name, parameters, .. } in entries().into_iter().filter(|e| e.name != "centralized-fab") {
        let algorithm = algorithm(name, parameters.clone());
        let mut network = Simulator::new(as_wanted(&*algorithm, &unbalanced(4, 83)), Threads::one());
        let mut state = algorithm.start(&problem, &mut network, None).unwrap();
        state.step(0, &problem, &mut network).unwrap();
        let before = network.traffic().rounds;
        (1..4).for_each(|k| state.step(k, &problem, &mut network).unwrap());
        assert_eq!(network.traffic().rounds - before, 3 * algorithm.rounds() as u64, "{name} {parameters}");
    }
}

/// Says what a method with these parameters is refused for.
fn refused(name: &str, parameters: &Value) -> String {
    let Value::Object(parameters) = parameters.clone() else { panic!("parameters are an object") };
    let made = dibo::trace::algorithm(name, parameters.clone());
    made.and_then(|a| a.check()).expect_err(&format!("{name} {parameters:?} is refused"))
}

/// Below 0, 0 where something is counted, far too many rounds, shares above 1: all are refused by name.
#[test]
fn every_number_out_of_range_is_refused_by_its_key() {
    let mut tried = 0;
    for Entry { name, parameters, .. } in entries() {
        let set = |key: &str, value: Value| {
            let mut all = parameters.clone();
            all[key] = value;
            all
        };
        for (key, value) in parameters.as_object().unwrap() {
            let mut wrong = match value {
                Value::Number(n) if n.is_u64() => vec![json!(0)],
                Value::Number(_) => vec![json!(-1.0)],
                // A schedule.
                Value::Object(_) => vec![json!(-1.0), json!(0.0)],
                _ => Vec::new(),
            };
            if ["inner", "inner_z", "terms", "pushes"].contains(&&**key) {
                wrong.push(json!(1_000_001));
            }
            if ["theta", "beta", "a", "gossip_in", "gossip_out"].contains(&&**key) {
                wrong.extend([json!(0.0), json!(1.5)]);
                algorithm(name, set(key, json!(1.0)));
            }
            if key == "gamma" {
                wrong.push(json!(0.0));
            }
            for value in wrong {
                let says = refused(name, &set(key, value.clone()));
                assert!(says.starts_with(&format!("{key} is")), "{name} with {key} = {value}: {says}");
                tried += 1;
            }
        }
    }
    assert!(tried > 150, "{tried}");
}

#[test]
fn cells_refuse_what_does_not_go_together() {
    let cell = |more: Value| {
        let mut all = with(json!({"direction": "soba", "mixing": "ab"}));
        more.as_object().unwrap().iter().for_each(|(key, value)| all[key] = value.clone());
        all
    };
    algorithm("cell", cell(json!({})));
    for (more, says) in [
        (json!({"mixing": "sgp", "damping": 0.5}), "push-sum has no A to soften"),
        (json!({"mixing_y": "push-diging", "damping": 0.5}), "push-sum has no A to soften"),
        (json!({"damping": 1.5}), "damping is 1.5; it must be above 0 and at most 1"),
        (json!({"damping": 0.5, "lazy": true}), "lazy and damping are two ways to soften W; give one"),
        (json!({"mixing": "sgp", "radius_z": 1.0}), "push-sum's estimate cannot be projected"),
        (json!({"radius_z": 0.0}), "radius_z is 0; it must be above 0"),
        (json!({"lambda": 3.0}), "lambda belongs to direction \"penalty\", which is not chosen"),
        (json!({"warm": true}), "warm belongs to estimator \"momentum\", which is not chosen"),
        (json!({"direction": "penalty"}), "lambda is missing; direction \"penalty\" needs it"),
        (json!({"estimator": "storm"}), "a is missing; estimator \"storm\" needs it"),
    ] {
        let found = refused("cell", &cell(more.clone()));
        assert!(found.contains(says), "{more}: {found}");
    }
    // What is given with the right choice is taken.
    for more in [
        json!({"damping": 0.5}),
        json!({"mixing": "sgp", "lazy": false}),
        json!({"mixing_x": "sgp", "radius_z": 1.0}),
        json!({"direction": "penalty", "lambda": 3.0, "penalty_form": "normalised"}),
        json!({"estimator": "momentum", "theta": 0.3, "warm": true}),
    ] {
        algorithm("cell", cell(more));
    }
    let falling = json!({"start": 3.0, "power": 1.0});
    let more = json!({"direction": "penalty", "lambda": falling, "penalty_form": "normalised"});
    assert!(refused("cell", &cell(more)).contains("takes a constant lambda"));
    let lazy = |mixing: &str, lazy| json!({"eta": 0.05, "mixing": mixing, "lazy": lazy});
    assert!(refused("single-cell", &lazy("sgp", true)).contains("push-sum has no A to soften"));
    algorithm("single-cell", lazy("sgp", false));
    algorithm("single-cell", lazy("gt", true));
}

/// Who has push-sum's weight pushes, and who asks for weights that add up both ways has them from undirected
/// graphs; ED, EXTRA and C2DFB also ask that these stay.
#[test]
fn what_methods_ask_of_a_network() {
    let both_ways = [
        "d-soba",
        "d-soba-fo",
        "sparkle-gt",
        "sparkle-ed",
        "sparkle-extra",
        "sparkle-ed-gt",
        "sldbo",
        "mdbo",
        "vrdbo",
        "dsgda-gt",
        "penalty-storm",
        "sun-dsbo-gt",
        "sun-dsbo-se",
        "ma-dsbo",
        "c2dfb",
        "dgd",
        "diffusion",
        "diging",
        "atc-tracking",
        "aug-dgm",
        "exact-diffusion",
        "extra",
    ];
    let one_graph = ["sparkle-ed", "sparkle-extra", "sparkle-ed-gt", "c2dfb", "exact-diffusion", "extra"];
    let problem = Quadratic::random(4, 2, 3, 82, false);
    for Entry { name, parameters, .. } in entries() {
        let (algorithm, place) = (algorithm(name, parameters.clone()), format!("{name} {parameters}"));
        let (needs, wishes) = (algorithm.graph_needs(), algorithm.wishes());
        // A cell with one variable that diffuses asks for what diffusion asks.
        let mixed = parameters.get("mixing_x").is_some();
        assert_eq!(needs.doubly_stochastic, mixed || both_ways.contains(&name), "{place}");
        assert_eq!(needs.one_graph, one_graph.contains(&name), "{place}");
        assert_eq!(wishes.frozen_weights, name == "static-fab", "{place}");
        assert_eq!(wishes.running_sums, name == "running-sum-fab", "{place}");
        let mut network = Simulator::new(as_wanted(&*algorithm, &unbalanced(4, 83)), Threads::one());
        let mut state = algorithm.start(&problem, &mut network, None).unwrap();
        let weighs = name == "hgp" || variable(&mut *state, "w").is_some();
        assert_eq!(algorithm.mixes() == Mixes::PushSum, weighs, "{place}");
        let theorem = match name {
            "fab" => Some(Theorem::Penalty),
            "push-pull" => Some(Theorem::SingleLevel),
            _ => None,
        };
        assert_eq!(algorithm.theorem(), theorem, "{place}");
    }
}

/// ED and EXTRA are lazy unless told otherwise, each variable by its own rule; momentum with θ = 1 is none.
#[test]
fn names_are_the_cells_that_they_stand_for() {
    let problem = Quadratic::random(5, 2, 3, 84, false);
    let graph = unbalanced(5, 85).graphs().at(0);
    let ends = |name: &str, parameters: Value, lazy: bool| {
        let graphs = List::new(vec![graph.union(&graph.reversed())]);
        let weights = Sequence::new(Arc::new(graphs), Rule::Metropolis { lazy }).unwrap();
        let mut network = Simulator::new(weights, Threads::one());
        let algorithm = algorithm(name, parameters);
        let mut state = algorithm.start(&problem, &mut network, Some(&random_start(&problem, 86))).unwrap();
        (0..30).for_each(|k| state.step(k, &problem, &mut network).unwrap());
        variable(&mut *state, "x").unwrap()
    };
    let theta = || with(json!({"theta": 1.0}));
    let cell = |mixing: &str, more: Value| {
        let mut all = with(json!({"direction": "soba", "mixing": mixing, "sweep": "sequential"}));
        more.as_object().unwrap().iter().for_each(|(key, value)| all[key] = value.clone());
        ("cell", all)
    };
    let single = |mixing: &str, lazy: Option<bool>| {
        ("single-cell", json!({"eta": 0.05, "mixing": mixing, "lazy": lazy}))
    };
    let eta = || json!({"eta": 0.05});
    // The last says whether the weights under the cell are lazy.
    for (name, parameters, (same, by_hand), lazy) in [
        ("sparkle-gt", theta(), cell("gt-atc", json!({})), false),
        ("sparkle-ed", theta(), cell("ed", json!({"lazy": false})), true),
        ("sparkle-extra", theta(), cell("extra", json!({"lazy": false})), true),
        ("sparkle-ed-gt", theta(), cell("ed", json!({"mixing_x": "gt-atc"})), false),
        ("exact-diffusion", eta(), single("ed", Some(false)), true),
        ("extra", eta(), single("extra", Some(false)), true),
        ("dgd", eta(), single("dgd-cta", None), false),
        ("diffusion", eta(), single("dgd-atc", None), false),
        ("diging", eta(), single("gt", None), false),
        ("atc-tracking", eta(), single("gt-xatc", None), false),
        ("aug-dgm", eta(), single("gt-atc-raw", None), false),
    ] {
        assert_close(&ends(name, parameters, false), &ends(same, by_hand, lazy), 1e-10, name);
    }
}

#[test]
fn each_step_of_an_inner_loop_has_a_sample_of_its_own() {
    let quadratic = Quadratic::random(4, 2, 3, 82, false);
    for Entry { name, parameters, .. } in inner_loops().into_iter().filter(|e| e.name != "c2dfb") {
        let inner = parameters["inner"].as_u64().unwrap() as usize;
        let problem = Renamed::new(&quadratic, (0..4).collect());
        let algorithm = algorithm(name, parameters.clone());
        let mut network = Simulator::new(as_wanted(&*algorithm, &unbalanced(4, 83)), Threads::one());
        let mut state = algorithm.start(&problem, &mut network, None).unwrap();
        (0..4).for_each(|k| state.step(k, &problem, &mut network).unwrap());
        let asked = problem.asked.into_inner().unwrap();
        assert_eq!(asked, (0..4 * inner).collect::<Vec<_>>(), "{name} {parameters}");
    }
}

/// A tracker is shown beside the direction and the variable that it belongs to.
#[test]
fn no_tracker_is_shown_alone() {
    let problem = Quadratic::random(4, 2, 3, 82, false);
    for Entry { name, parameters, .. } in entries() {
        let algorithm = algorithm(name, parameters.clone());
        let mut network = Simulator::new(as_wanted(&*algorithm, &unbalanced(4, 83)), Threads::one());
        let mut state = algorithm.start(&problem, &mut network, None).unwrap();
        let shown: Vec<&str> = state.views().iter().map(|view| view.name).collect();
        for variable in shown.iter().filter_map(|name| name.strip_prefix('t')) {
            let there = |name: &str| shown.contains(&name);
            assert!(there(variable) && there(&format!("d{variable}")), "{name} {parameters}: {shown:?}");
        }
    }
}

/// Beside the state on a device: y, z and their directions there; what the adjoint changes by for a double
/// loop, and two vectors more for HGP.
#[test]
fn loops_need_more_on_a_device() {
    for Entry { name, parameters, .. } in entries() {
        let expected = match name {
            "mdbo" | "vrdbo" | "ma-dsbo" | "c2dfb" => 4,
            "dl-push-pull" | "dl-push-sgd" | "dl-push-saga" | "dl-push-asgd" => 5,
            "hgp" => 6,
            _ => 0,
        };
        assert_eq!(algorithm(name, parameters.clone()).more_on_device(), expected, "{name} {parameters}");
    }
}

/// Results of an earlier version are not taken for those of a later one: a number that is raised is raised
/// here, too.
#[test]
fn versions_are_those_since_numbers_last_changed() {
    for Entry { name, parameters, .. } in entries() {
        let expected = match name {
            "dl-push-saga" => 3,
            "push-saga" | "dl-push-pull" | "dl-push-sgd" | "dl-push-asgd" | "mdbo" | "vrdbo" => 2,
            "cell" if parameters["direction"] == "neumann-local" => 2,
            _ => 1,
        };
        assert_eq!(algorithm(name, parameters.clone()).version(), expected, "{name} {parameters}");
    }
}

/// η/(1 + k) at k = 3 is a quarter; subgradient-push divides it by √4 as well.
#[test]
fn steps_of_single_level_methods_fall_as_their_schedule_says() {
    for Entry { name, mut parameters, .. } in entries() {
        let single =
            matches!(algorithm(name, parameters.clone()).needs(), dibo::algorithm::Needs::SingleLevel);
        if !single {
            assert_eq!(algorithm(name, parameters).single_step(3), None, "{name}");
            continue;
        }
        parameters["eta"] = json!({"start": 0.08, "decay": 1.0});
        let expected = if name == "subgradient-push" { 0.01 } else { 0.02 };
        assert_eq!(algorithm(name, parameters).single_step(3), Some(expected), "{name}");
    }
}

/// λ = 3(k + 1) and ηx = 0.1/(1 + k), at k = 1; divided by λ, g counts once.
#[test]
fn steps_of_penalty_methods_are_told() {
    let falling = json!({"start": 0.1, "decay": 1.0});
    let steps = json!({"lambda": {"start": 3.0, "power": 1.0}, "eta_x": falling, "eta_y": 0.3, "eta_z": 0.4});
    let fabs = ["fab", "centralized-fab", "static-fab", "running-sum-fab", "push-sum-fab"];
    for name in fabs.into_iter().chain(["dsgda-gt"]) {
        let said = algorithm(name, steps.clone()).penalty_steps(1).unwrap();
        assert_eq!((said.lambda, said.g, said.eta), (6.0, 6.0, [0.05, 0.3, 0.4]), "{name}");
        if fabs.contains(&name) {
            let mut divided = steps.clone();
            divided["penalty_form"] = json!("normalised");
            let said = algorithm(name, divided).penalty_steps(1).unwrap();
            assert_eq!((said.lambda, said.g, said.eta), (6.0, 1.0, [0.05, 0.3, 0.4]), "{name}");
        }
    }
    let known = fabs.into_iter().chain(["dsgda-gt", "penalty-storm", "cell"]).collect::<Vec<_>>();
    for Entry { name, parameters, .. } in entries() {
        let penalty = known.contains(&name) && parameters.get("lambda").is_some();
        let said = algorithm(name, parameters.clone()).penalty_steps(0);
        assert_eq!(said.is_some(), penalty, "{name} {parameters}");
    }
}

/// Grids rise and have what the file says among them; only the last tier is fine, and only that does without
/// lists of the file.
#[test]
fn tuning_goes_from_coarse_to_fine_around_what_the_file_says() {
    for Entry { name, parameters, .. } in entries() {
        let tiers = algorithm(name, parameters).tiers();
        for (at, tier) in tiers.iter().enumerate() {
            assert_eq!(tier.fine, at > 0 && at + 1 == tiers.len(), "{name}: tier {at}");
            assert!((1..=2).contains(&tier.axes.len()), "{name}");
            for axis in &tier.axes {
                let values = match &axis.grid {
                    Grid::Values(values) => values,
                    Grid::Around { factors, otherwise } => {
                        assert!(factors.contains(&1.0) && *otherwise > 0.0, "{name}: {}", axis.key);
                        let around = factors[0] * factors[factors.len() - 1];
                        assert!(!tier.fine || (around - 1.0).abs() < 1e-12, "{name}: {around}");
                        factors
                    }
                };
                assert!(values.len() > 1 && values[0] > 0.0 && values.is_sorted_by(|a, b| a < b), "{name}");
                assert!(!(tier.fine && axis.listed), "{name}: {}", axis.key);
            }
            // The axis that a tier is about takes a list; a second one may be there to rescue steps.
            assert!(tier.fine || tier.axes[0].listed, "{name}: tier {at}");
        }
    }
}
