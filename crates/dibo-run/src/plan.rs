//! `[run]`: how long, what is looked at, when to stop.
use crate::section::Section;
use anyhow::Result;
use dibo::engine::Plan;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `[run]`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RunKeys {
    /// Iterations at most.
    pub iterations: usize,
    /// Iterations between two looks at the metrics.
    every: usize,
    /// Stop when the metric is better than this; 0 to go on to the end.
    target: f64,
    /// What the target and `tune` look at; empty for the problem's own.
    metric: String,
    /// What is kept of a run is the state of the evaluation where this metric was best; empty for the last.
    best: String,
    /// A run whose metric is above this has diverged and ends.
    diverged_above: f64,
    /// Points kept of each curve at most.
    pub points: usize,
    /// One run after the other, each with all threads: for times and peak memory that others do not disturb.
    pub alone: bool,
}

impl Default for RunKeys {
    fn default() -> Self {
        RunKeys {
            iterations: 1000,
            every: 20,
            target: 0.0,
            metric: String::new(),
            best: String::new(),
            diverged_above: 1e3,
            points: 400,
            alone: false,
        }
    }
}

impl RunKeys {
    /// Reads `[run]` and checks its values.
    pub fn read(section: &Section<'_>) -> Result<Self> {
        let keys: RunKeys = section.read(&[])?;
        for (name, value) in [("iterations", keys.iterations), ("every", keys.every), ("points", keys.points)]
        {
            if value == 0 {
                return Err(section.error(name, format!("{name} is 0; it must be 1 or more")));
            }
        }
        for (name, value) in [("target", keys.target), ("diverged_above", keys.diverged_above)] {
            if value < 0.0 || value.is_nan() {
                return Err(section.error(name, format!("{name} is {value}; it must be 0 or more")));
            }
        }
        Ok(keys)
    }

    /// The metric that the file names, else the problem's first.
    pub fn metric<'a>(&'a self, first: Option<&'a str>) -> Option<&'a str> {
        if self.metric.is_empty() { first } else { Some(&self.metric) }
    }

    /// For the engine; `first` is the metric that the problem names first.
    pub fn plan(&self, first: Option<&str>) -> Plan {
        let target = self.metric(first).filter(|_| self.target > 0.0).map(|m| (m.to_string(), self.target));
        let best = Some(self.best.clone()).filter(|b| !b.is_empty());
        let RunKeys { iterations, every, diverged_above, .. } = *self;
        Plan { iterations, every, target, diverged_above, best }
    }

    /// Metrics are computed after each so many iterations.
    pub fn every(&self) -> usize {
        self.every
    }

    /// Distance between the points of a curve that are kept: the same for all seeds, so that they can be
    /// averaged.
    pub fn keep_every(&self) -> usize {
        self.every * self.iterations.div_ceil(self.every).div_ceil(self.points).max(1)
    }
}
