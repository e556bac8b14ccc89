//! Cells and published methods against iterates that were computed independently: 110 runs on static,
//! changing and directed networks, a quadratic and a curved problem, with and without noise.
use serde_json::Value;
use std::io::Read;

#[test]
fn iterates_agree_with_the_table() {
    let got = dibo::trace::trace(include_str!("data/table-input.json")).unwrap();
    let mut text = String::new();
    flate2::read::GzDecoder::new(&include_bytes!("data/table-expected.json.gz")[..])
        .read_to_string(&mut text)
        .unwrap();
    let expected: Value = serde_json::from_str(&text).unwrap();
    let (mut compared, mut wrong) = (0, Vec::new());
    let runs = expected["runs"].as_object().unwrap();
    for (name, snapshots) in runs {
        let far = snapshots.as_object().unwrap().iter().find_map(|(k, values)| {
            values.as_object().unwrap().iter().find_map(|(variable, expected)| {
                far(&got["runs"][name][k][variable], expected, &mut compared)
                    .map(|e| format!("{name} at k = {k}, {variable}: {e}"))
            })
        });
        wrong.extend(far);
    }
    assert!(wrong.is_empty(), "{} of {} runs differ:\n{}", wrong.len(), runs.len(), wrong.join("\n"));
    assert!(runs.len() == 110 && compared > 20_000, "{} runs, {compared} numbers", runs.len());
}

/// The first number that is further off than 1e-9 of its size and 1e-11.
fn far(got: &Value, expected: &Value, compared: &mut usize) -> Option<String> {
    match (got, expected) {
        (Value::Array(g), Value::Array(e)) if g.len() == e.len() => {
            g.iter().zip(e).find_map(|(g, e)| far(g, e, compared))
        }
        (Value::Number(g), Value::Number(e)) => {
            let (g, e) = (g.as_f64().unwrap(), e.as_f64().unwrap());
            *compared += 1;
            // The table keeps 12 digits.
            ((g - e).abs() > 1e-11 + 1e-9 * e.abs()).then(|| format!("{g} instead of {e}"))
        }
        _ => Some(format!("{got} instead of {expected}")),
    }
}

#[test]
fn what_is_wrong_with_a_table_is_said() {
    let input: Value = serde_json::from_str(include_str!("data/table-input.json")).unwrap();
    type Change<'a> = &'a dyn Fn(&mut Value);
    let said = |change: Change<'_>| {
        let mut input = input.clone();
        change(&mut input);
        dibo::trace::trace(&input.to_string()).unwrap_err()
    };
    let cases: [(Change<'_>, &str); 7] = [
        (&|t| t["runs"][0]["network"] = "ring".into(), "there is no network 'ring'"),
        (&|t| t["runs"][0]["function"] = "sgd".into(), "function is 'sgd'"),
        (&|t| t["runs"][0]["parameters"]["mixing"]["y"] = "adam".into(), "unknown variant `adam`"),
        (&|t| t["agents"][1]["H"] = serde_json::json!([[1.0]]), "agent 1: H must have 3 rows of 3"),
        (&|t| t["start"]["x"] = serde_json::json!([1.0]), "start.x must have 2 numbers"),
        (&|t| t["networks"]["static"]["graphs"][0][0] = serde_json::json!([0, 9]), "edge [0, 9]"),
        (&|t| t["kappa"] = serde_json::json!({}), "kappa has no 'quadratic'"),
    ];
    for (change, words) in cases {
        let error = said(change);
        assert!(error.contains(words) && !error.contains('\n'), "{error}");
    }
}
