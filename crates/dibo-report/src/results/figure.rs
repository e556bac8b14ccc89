//! The plots an experiment file asks for.
use super::check_name;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Columns of the curves that a line may run along.
const ALONG: [&str; 5] = ["iteration", "seconds", "bytes", "gradients", "products"];
/// What every run ends with beside its metrics.
const ENDINGS: [&str; 8] = [
    "iterations",
    "seconds",
    "bytes",
    "bytes_per_iteration",
    "gradients",
    "products",
    "state_bytes",
    "peak_bytes",
];
/// What can be drawn.
const KINDS: [&str; 4] = ["line", "bar", "points", "graphs"];

/// One plot, as the experiment file asks for it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// File name without ending, and anchor in the report.
    pub name: String,
    /// Caption.
    #[serde(default)]
    pub title: String,
    /// Column on the horizontal axis: `iteration`, `seconds`, `bytes`, `gradients`, `products`, or
    /// `setting:KEY` for a swept setting (then each point is one series' last value).
    #[serde(default = "iteration")]
    pub x: String,
    /// Column on the vertical axis: a metric, or for `kind = "bar"` and `"points"` also `seconds`, `bytes`,
    /// `state_bytes`, `peak_bytes`, `iterations`, `bytes_per_iteration`; with `min:` or `mean:` before a
    /// metric, its smallest value or its mean along the run.
    pub y: String,
    /// A second metric drawn dotted on the right axis.
    #[serde(default)]
    pub y2: Option<String>,
    /// `line` (median over seeds, and the middle 80 % of them), `bar` (one bar per series with its seeds),
    /// `points`, or `graphs` (the topology picture).
    #[serde(default = "line")]
    pub kind: String,
    /// Logarithmic axes, any of `x` and `y`, such as `"xy"`.
    #[serde(default)]
    pub log: String,
    /// Only series whose settings have these values; `"0.15|0.2"` allows several, and an empty one stands for
    /// a setting that is not given.
    #[serde(default)]
    pub only: BTreeMap<String, String>,
    /// One panel for each value of this setting, side by side.
    #[serde(default)]
    pub panels: Option<String>,
    /// First iteration shown, where the beginning would flatten the rest.
    #[serde(default)]
    pub from: usize,
}

impl Figure {
    /// The mean curve of a metric against iterations.
    pub fn line(y: &str, log: &str) -> Self {
        Figure {
            name: y.replace('_', "-"),
            title: String::new(),
            x: iteration(),
            y: y.into(),
            y2: None,
            kind: line(),
            log: log.into(),
            only: BTreeMap::new(),
            panels: None,
            from: 0,
        }
    }

    /// Whether the figure can be drawn of runs with these metrics; `settings` says whether a key is one of
    /// the experiment's. An error begins with the figure's key that is wrong.
    pub fn check(&self, metrics: &[&str], settings: &dyn Fn(&str) -> bool) -> Result<(), String> {
        check_name("name", &self.name).map_err(|error| error.to_string())?;
        known("kind", &self.kind, &KINDS, "")?;
        if !self.log.chars().all(|letter| "xy".contains(letter)) {
            return Err(format!("log is '{}'; known are x, y and xy", self.log));
        }
        if let Some(key) = self.panels.as_deref().filter(|key| !settings(key)) {
            return Err(format!("panels is '{key}', which is no setting of this experiment"));
        }
        for (key, values) in self.only.iter().filter(|(key, _)| !settings(key)) {
            // An empty value asks for series that do not have the setting.
            if values.split('|').all(|value| !value.is_empty()) {
                return Err(format!("only has '{key}', which is no setting of this experiment"));
            }
        }
        match self.kind.as_str() {
            "graphs" => Ok(()),
            "line" => self.check_line(metrics),
            _ => self.check_ends(metrics, settings),
        }
    }

    /// A line runs along a column and shows metrics.
    fn check_line(&self, metrics: &[&str]) -> Result<(), String> {
        if self.x.starts_with("setting:") {
            return Err(format!("x is '{}', which needs kind = \"points\"", self.x));
        }
        known("x", &self.x, &ALONG, " and, for kind = \"points\", setting:KEY")?;
        known("y", &self.y, metrics, "")?;
        self.y2.as_ref().map_or(Ok(()), |name| known("y2", name, metrics, ""))
    }

    /// Bars and points show what runs end with.
    fn check_ends(&self, metrics: &[&str], settings: &dyn Fn(&str) -> bool) -> Result<(), String> {
        match self.x.strip_prefix("setting:") {
            Some(key) if settings(key) => {}
            Some(key) => return Err(format!("x is 'setting:{key}', which is no setting of this experiment")),
            None if self.kind == "points" => {
                return Err(format!("x is '{}'; kind = \"points\" needs setting:KEY", self.x));
            }
            // Bars have no horizontal column, so that only a word that is wrong everywhere matters.
            None => known("x", &self.x, &ALONG, " and setting:KEY")?,
        }
        if let Some(name) = &self.y2 {
            return Err(format!("y2 is '{name}', which needs kind = \"line\""));
        }
        let plain = match self.y.split_once(':') {
            Some(("min" | "mean", metric)) => {
                return known("y", metric, metrics, "")
                    .map_err(|why| why.replacen(&format!("'{metric}'"), &format!("'{}'", self.y), 1));
            }
            _ => &self.y,
        };
        let all: Vec<&str> = metrics.iter().chain(&ENDINGS).copied().collect();
        known("y", plain, &all, "")
    }
}

/// An error that names what is known, and the nearest of them, unless the word is among them.
fn known(key: &str, word: &str, all: &[&str], more: &str) -> Result<(), String> {
    if all.contains(&word) {
        return Ok(());
    }
    let nearest = all.iter().map(|one| (strsim::damerau_levenshtein(word, one), one)).min();
    let near = nearest.filter(|(distance, _)| *distance <= (word.chars().count() / 3).max(1));
    let hint = near.map_or(String::new(), |(_, one)| format!("; did you mean '{one}'?"));
    Err(format!("{key} is '{word}'; known are {}{more}{hint}", all.join(", ")))
}

fn iteration() -> String {
    "iteration".into()
}

fn line() -> String {
    "line".into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(change: impl Fn(&mut Figure)) -> Result<(), String> {
        let mut figure = Figure::line("relative_error", "xy");
        change(&mut figure);
        let settings = |key: &str| ["graph.nu", "algorithm.eta_x"].contains(&key);
        figure.check(&["relative_error", "tau", "auc"], &settings)
    }

    #[test]
    fn what_can_be_drawn_is_allowed() {
        check(|_| {}).unwrap();
        check(|f| (f.x, f.y2, f.panels) = ("seconds".into(), Some("tau".into()), Some("graph.nu".into())))
            .unwrap();
        check(|f| (f.kind, f.x, f.y) = ("points".into(), "setting:graph.nu".into(), "min:auc".into()))
            .unwrap();
        check(|f| (f.kind, f.y) = ("bar".into(), "peak_bytes".into())).unwrap();
        check(|f| (f.kind, f.y) = ("graphs".into(), String::new())).unwrap();
        check(|f| drop(f.only.insert("graph.nu".into(), "0.1|0.3".into()))).unwrap();
        check(|f| drop(f.only.insert("algorithm.tau".into(), String::new()))).unwrap();
    }

    #[test]
    fn what_cannot_is_refused_with_the_key_and_a_hint() {
        type Change = fn(&mut Figure);
        let cases: [(Change, &str, &str); 16] = [
            (
                |f| f.x = "iterations".into(),
                "x is 'iterations'; known are iteration, ",
                "did you mean 'iteration'?",
            ),
            (|f| f.x = "setting:graph.nu".into(), "x is 'setting:graph.nu'", "kind = \"points\""),
            (|f| f.y = "relativ_err".into(), "y is 'relativ_err'", "did you mean 'relative_error'?"),
            (|f| f.y = "seconds".into(), "y is 'seconds'; known are relative_error, tau, auc", ""),
            (|f| f.y2 = Some("ta".into()), "y2 is 'ta'", "did you mean 'tau'?"),
            (|f| f.panels = Some("graph.mu".into()), "panels is 'graph.mu'", "no setting"),
            (|f| f.log = "yz".into(), "log is 'yz'", "x, y and xy"),
            (|f| f.kind = "lines".into(), "kind is 'lines'", "did you mean 'line'?"),
            (|f| f.name = "../../x".into(), "name is ", "letters"),
            (|f| f.name = String::new(), "name is ", "letters"),
            (|f| drop(f.only.insert("nu".into(), "0.1".into())), "only has 'nu'", "no setting"),
            (|f| f.kind = "points".into(), "x is 'iteration'", "setting:KEY"),
            (|f| (f.kind, f.x) = ("points".into(), "setting:nu".into()), "x is 'setting:nu'", "no setting"),
            (|f| (f.kind, f.y) = ("bar".into(), "min:auk".into()), "y is 'min:auk'", "did you mean 'auc'?"),
            (|f| (f.kind, f.y) = ("bar".into(), "secs".into()), "y is 'secs'", "seconds"),
            (|f| (f.kind, f.y2) = ("bar".into(), Some("tau".into())), "y2 is 'tau'", "kind = \"line\""),
        ];
        for (change, begins, has) in cases {
            let error = check(change).unwrap_err();
            assert!(error.starts_with(begins) && error.contains(has) && !error.contains('\n'), "{error}");
        }
    }
}
