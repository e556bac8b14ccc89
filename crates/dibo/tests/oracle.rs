//! Seven settings of six algorithms against iterates that were computed independently with 60 digits.
use serde_json::Value;

#[test]
fn iterates_agree_with_the_oracle() {
    let got = dibo::trace::trace(include_str!("data/oracle-input.json")).unwrap();
    let expected: Value = serde_json::from_str(include_str!("data/oracle-expected.json")).unwrap();
    let mut compared = 0;
    for (algorithm, snapshots) in expected.as_object().unwrap() {
        for (k, values) in snapshots.as_object().unwrap() {
            let got = &got[algorithm][k];
            assert_eq!(
                got.as_object().unwrap().len(),
                values.as_object().unwrap().len(),
                "{algorithm} at {k}: the same variables"
            );
            for (name, expected) in values.as_object().unwrap() {
                close(&got[name], expected, &format!("{algorithm} at k = {k}, {name}"), &mut compared);
            }
        }
    }
    assert!(compared > 1000, "{compared} numbers compared");
}

fn close(got: &Value, expected: &Value, place: &str, compared: &mut usize) {
    match (got, expected) {
        (Value::Array(g), Value::Array(e)) if g.len() == e.len() => {
            g.iter().zip(e).for_each(|(g, e)| close(g, e, place, compared))
        }
        (Value::Number(g), Value::Number(e)) => {
            let (g, e) = (g.as_f64().unwrap(), e.as_f64().unwrap());
            assert!((g - e).abs() <= 1e-12 + 1e-10 * e.abs(), "{place}: {g} instead of {e}");
            *compared += 1;
        }
        _ => panic!("{place}: {got} instead of {expected}"),
    }
}
