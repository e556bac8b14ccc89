//! The table of memory for runs on data: what must be held, as a formula, and the measured peak.
use super::{Body, Extra, Place, words};
use crate::results::Manifest;

/// Its heading.
const TITLE: &str =
    "Memory: the formula and what was measured (the peak where runs went one after the other)";

/// A row per series that has data; nothing if there is none.
pub fn extra(manifest: &Manifest) -> Option<Extra> {
    let bytes = |value: u64| words::quantity("bytes", value as f64);
    let row = |index: usize| -> Option<Vec<String>> {
        let run = manifest
            .runs
            .iter()
            .filter(|run| run.series == index && run.memory.data_bytes > 0)
            .max_by_key(|run| run.memory.peak_bytes)?;
        let held = run.state_bytes + run.memory.data_bytes;
        let (peak, ratio) = match run.memory.peak_bytes {
            0 => ("–".into(), "–".into()),
            peak => (bytes(peak), format!("{:.2}", peak as f64 / held as f64)),
        };
        let label = manifest.series[index].label.clone();
        Some(vec![
            label,
            run.memory.vectors.clone(),
            bytes(run.state_bytes),
            bytes(run.memory.data_bytes),
            bytes(held),
            peak,
            ratio,
        ])
    };
    let rows: Vec<Vec<String>> = (0..manifest.series.len()).filter_map(row).collect();
    let head = [
        "series",
        "vectors of the state",
        "state",
        "data",
        "state + data",
        "measured peak",
        "peak / (state + data)",
    ];
    let all: Vec<Vec<String>> = std::iter::once(head.map(String::from).to_vec()).chain(rows).collect();
    (all.len() > 1).then(|| Extra::new(TITLE, Body::Table(all)).at(Place::Last))
}
