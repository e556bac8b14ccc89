//! The zoo: every method on a few small tasks over five networks. Its results are kept in small, and its page
//! is made of them; why a method does not run somewhere stands in the experiment's file.
mod kept;
mod page;

use crate::experiments::EXPERIMENTS;
pub use kept::{Cell, Cost, ZooKept};
pub use page::page;

/// A task of the zoo: its experiment, its words, what is measured, and when that is good enough to ask for
/// the cost.
pub struct Task {
    /// The experiment's name.
    pub name: &'static str,
    /// In words.
    pub words: &'static str,
    /// The metric of its tables.
    pub metric: &'static str,
    /// How good is good enough.
    pub target: f64,
    /// Higher is better.
    pub upwards: bool,
}

/// The tasks, from the smallest to the largest.
pub const TASKS: &[Task] = &[
    Task { name: "zoo", words: "Policy evaluation", metric: "relative_error", target: 0.01, upwards: false },
    Task {
        name: "zoo-quadratic",
        words: "The quadratic problem",
        metric: "relative_error",
        target: 0.01,
        upwards: false,
    },
    Task {
        name: "zoo-cleaning",
        words: "Finding wrong labels",
        metric: "test_accuracy",
        target: 60.0,
        upwards: true,
    },
    Task {
        name: "zoo-tuning",
        words: "Learning a regulariser",
        metric: "test_accuracy",
        target: 60.0,
        upwards: true,
    },
];

/// The networks by their case in the files, with their words.
pub const NETWORKS: &[(&str, &str)] = &[
    ("static", "both ways, for ever"),
    ("changing", "both ways, changing"),
    ("directed", "one way, for ever"),
    ("changing-directed", "one way, changing"),
    ("lossy", "both ways, 20 % lost"),
];

/// Why a method does not run over a network, as the experiment's file says it in a line such as
/// `# d-soba, directed: needs doubly stochastic weights`.
pub fn reason<'a>(file: &'a str, method: &str, network: &str) -> Option<&'a str> {
    let begin = |place: &str| format!("# {method}, {place}: ");
    let lines = || file.lines();
    lines().find_map(|l| l.strip_prefix(&begin(network)).or_else(|| l.strip_prefix(&begin("everywhere"))))
}

/// The text of a task's experiment.
pub fn file(task: &Task) -> &'static str {
    EXPERIMENTS.iter().find(|(name, _)| *name == task.name).map_or("", |(_, text)| text)
}
