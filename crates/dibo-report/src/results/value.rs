//! A setting's value: typed, as the experiment file has it, so that nobody reads numbers out of words.
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// What one key of an experiment file holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// `true` or `false`.
    Flag(bool),
    /// A whole number.
    Whole(i64),
    /// A number with a point or a power; finite, for JSON has no others.
    Number(f64),
    /// Words; also `inf` and `nan`.
    Text(String),
    /// A list that is a value, not a sweep.
    List(Vec<Value>),
    /// An inline table, such as a schedule.
    Table(BTreeMap<String, Value>),
}

impl Value {
    /// The number; the first one of a list.
    pub fn number(&self) -> Option<f64> {
        match self {
            Value::Whole(n) => Some(*n as f64),
            Value::Number(x) => Some(*x),
            Value::List(all) => all.first()?.number(),
            _ => None,
        }
    }

    /// The words of a text.
    pub fn text(&self) -> Option<&str> {
        match self {
            Value::Text(words) => Some(words),
            _ => None,
        }
    }

    /// What a table holds under a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        match self {
            Value::Table(entries) => entries.get(key),
            _ => None,
        }
    }

    /// Whether a person who writes these words means this value: `1e-4` is `0.0001`.
    pub fn is(&self, words: &str) -> bool {
        self.to_string() == words || self.number().is_some_and(|x| words.parse() == Ok(x))
    }
}

impl Value {
    /// As a reader wants it: a number that changes with k as its formula, all else as it is written.
    pub fn words(&self) -> String {
        let Value::Table(entries) = self else { return self.to_string() };
        let of = |names: &[&str]| -> Option<Vec<&Value>> {
            let all: Option<Vec<&Value>> = names.iter().map(|name| entries.get(*name)).collect();
            all.filter(|all| all.len() == entries.len())
        };
        match (of(&["start", "power"]), of(&["start", "decay"]), of(&["start", "end", "over"])) {
            (Some(v), ..) => format!("{}(k+1)^{}", v[0], v[1]),
            (_, Some(v), _) => format!("{}/(1+{}k)", v[0], v[1]),
            (.., Some(v)) => format!("{} to {} by {}", v[0], v[1], v[2]),
            _ => self.to_string(),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Flag(flag) => write!(f, "{flag}"),
            Value::Whole(n) => write!(f, "{n}"),
            Value::Number(x) => {
                let (plain, power) = (format!("{x}"), format!("{x:e}"));
                f.write_str(if plain.len() > 6 && power.len() < plain.len() { &power } else { &plain })
            }
            Value::Text(words) => f.write_str(words),
            Value::List(all) => {
                let all: Vec<String> = all.iter().map(Value::to_string).collect();
                write!(f, "[{}]", all.join(", "))
            }
            Value::Table(entries) => {
                let all: Vec<String> = entries.iter().map(|(key, v)| format!("{key} = {v}")).collect();
                write!(f, "{{ {} }}", all.join(", "))
            }
        }
    }
}

impl From<&str> for Value {
    fn from(words: &str) -> Self {
        Value::Text(words.into())
    }
}

impl From<f64> for Value {
    fn from(x: f64) -> Self {
        if x.is_finite() { Value::Number(x) } else { Value::Text(x.to_string()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_comes_back_from_json_as_it_was() {
        let table = BTreeMap::from([("power".to_string(), Value::Number(0.1 + 0.2))]);
        let list = vec![Value::Number(1e-300), Value::Whole(-3)];
        let all = [
            Value::Flag(true),
            Value::Whole(1),
            Value::Number(1.0),
            Value::Number(1.0 / 3.0),
            Value::from("1"),
            Value::from(f64::INFINITY),
            Value::List(list),
            Value::Table(table),
        ];
        for value in all {
            let json = serde_json::to_string(&value).unwrap();
            assert_eq!(serde_json::from_str::<Value>(&json).unwrap(), value, "{json}");
        }
    }

    #[test]
    fn values_in_words() {
        let words = [0.0001, 1e-5, 0.1, 60.0, 1e8, 0.333333].map(|x| Value::Number(x).to_string());
        assert_eq!(words, ["0.0001", "1e-5", "0.1", "60", "1e8", "0.333333"]);
        let list = Value::List(vec![Value::Number(0.1), Value::Whole(2)]);
        assert_eq!((list.to_string().as_str(), list.number()), ("[0.1, 2]", Some(0.1)));
        assert!(Value::Number(1e-4).is("1e-4") && Value::Number(1e-4).is("0.0001"));
        assert!(!Value::from("1").is("1.0") && Value::Whole(1).is("1.0"));
    }
}
