//! Metrics as tables and plots call them.
use serde::{Deserialize, Serialize};

/// A metric: its column, and the words for readers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Entry")]
pub struct MetricInfo {
    /// The column's name, such as `test_accuracy`.
    pub name: String,
    /// For axes and tables, such as `test accuracy`.
    pub label: String,
    /// Such as `%`; empty for a number without unit.
    pub unit: String,
    /// `lower`, `higher`, or empty where neither is better.
    pub better: String,
}

impl MetricInfo {
    /// A metric of which nothing but the name is known.
    pub fn plain(name: &str) -> Self {
        let label = name.replace('_', " ");
        MetricInfo { name: name.into(), label, unit: String::new(), better: String::new() }
    }
}

/// A metric in a manifest: older ones have the name alone.
#[derive(Deserialize)]
#[serde(untagged)]
enum Entry {
    Name(String),
    Full {
        name: String,
        label: Option<String>,
        #[serde(default)]
        unit: String,
        #[serde(default)]
        better: String,
    },
}

impl From<Entry> for MetricInfo {
    fn from(entry: Entry) -> Self {
        match entry {
            Entry::Name(name) => MetricInfo::plain(&name),
            Entry::Full { name, label, unit, better } => {
                let label = label.unwrap_or_else(|| MetricInfo::plain(&name).label);
                MetricInfo { name, label, unit, better }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_alone_are_read_as_well() {
        let old: Vec<MetricInfo> = serde_json::from_str("[\"relative_error\"]").unwrap();
        assert_eq!(old, [MetricInfo::plain("relative_error")]);
        assert_eq!(old[0].label, "relative error");
        let short: MetricInfo = serde_json::from_str("{\"name\": \"auc\"}").unwrap();
        assert_eq!(short, MetricInfo::plain("auc"));
        let full = MetricInfo { label: "τ".into(), better: "lower".into(), ..MetricInfo::plain("tau") };
        let text = serde_json::to_string(&full).unwrap();
        assert_eq!(serde_json::from_str::<MetricInfo>(&text).unwrap(), full);
    }
}
