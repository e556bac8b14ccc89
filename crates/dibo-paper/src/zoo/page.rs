//! The page of the zoo, made of what is kept. No number of its tables is typed by hand.
use super::{Cell, NETWORKS, TASKS, Task, ZooKept, file, reason};
use crate::kept::{End, Kept};
use crate::page::{statement, table};
use dibo_report::report::words::number;

/// The whole page, of the zoo's results and of those that judge what other authors claim.
pub fn page(kept: &[ZooKept], judged: &[Kept]) -> String {
    let mut text = format!("{}\n## Which to take when\n\n{}\n", include_str!("head.md"), which(kept));
    text += include_str!("which.md");
    for task in TASKS {
        text += &format!("\n## {}\n\n", task.words);
        match kept.iter().find(|k| k.name == task.name) {
            Some(k) => text += &of_task(task, k),
            None => text += "Not kept yet.\n",
        }
    }
    text + &authors(judged)
}

/// The claims of SPARKLE's and D-SOBA's authors on tasks like theirs.
fn authors(judged: &[Kept]) -> String {
    let mut text = format!("\n## What other authors claim\n\n{}", include_str!("authors.md"));
    for name in ["authors-policy", "authors-cleaning"] {
        text += &match judged.iter().find(|k| k.name == name) {
            Some(k) => of_authors(k),
            None => format!("\n`{name}`: not kept yet.\n"),
        };
    }
    text
}

/// Verdicts and ends of one of their tasks.
fn of_authors(k: &Kept) -> String {
    let mut text = format!(
        "\n### {}\n\n`dibo run {}`: {} seeds, {:.0} s, dibo {}, {}, {}.\n\n",
        k.title, k.name, k.seeds, k.seconds, k.version, k.date, k.machine
    );
    let claims = k.claims.iter().map(|claim| {
        let number = if claim.number.is_empty() { &claim.reading } else { &claim.number };
        vec![claim.id.clone(), statement(&claim.id).into(), format!("**{}**", claim.verdict), number.clone()]
    });
    text += &table(&["id", "claim", "verdict", "number"], claims);
    let digits = if k.metric.contains('%') { 1 } else { 4 };
    let end = |e: &End| {
        let end = e.last.map(|(mean, sd)| format!("{mean:.digits$} ± {sd:.digits$}"));
        let lost = if e.outcomes.contains("diverged") { format!(" ({})", e.outcomes) } else { String::new() };
        end.unwrap_or("–".into()) + &lost
    };
    text += &format!(
        "\nThe {} at the end, mean ± standard deviation over seeds (the claims' numbers are means over \
        the last tenth of the way; [how to read them](paper.md#how-to-read-the-numbers)):\n\n",
        k.metric
    );
    text + &by_place(k.ends.iter().map(|e| (e.label.as_str(), end(e))))
}

/// A line for each method and a column for each place, of labels such as `FAB case=ring-10`.
fn by_place<'a>(ends: impl Iterator<Item = (&'a str, String)>) -> String {
    let (mut places, mut rows): (Vec<&str>, Vec<(&str, Vec<String>)>) = (vec!["method"], Vec::new());
    for (label, end) in ends {
        let (method, place) = label.rsplit_once(' ').unwrap_or((label, ""));
        let place = place.strip_prefix("case=").unwrap_or(place);
        if !places.contains(&place) {
            places.push(place);
        }
        match rows.iter_mut().find(|row| row.0 == method) {
            Some(row) => row.1.push(end),
            None => rows.push((method, vec![end])),
        }
    }
    table(&places, rows.into_iter().map(|(method, ends)| [vec![method.to_string()], ends].concat()))
}

/// The metric at the end in words, and what is good enough.
fn measured(task: &Task) -> (String, String) {
    match task.upwards {
        true => ("test accuracy in %".into(), format!("{} % test accuracy", number(task.target))),
        false => ("relative error".into(), format!("a relative error of {} %", number(100.0 * task.target))),
    }
}

fn of_task(task: &Task, k: &ZooKept) -> String {
    let (metric, target) = measured(task);
    let mut heads = vec!["method"];
    heads.extend(NETWORKS.iter().map(|n| n.1));
    let mut text = format!(
        "`dibo run {}`: {} iterations, seeds {}, {:.0} s, dibo {}, {}, {}. The {metric} at the end: median \
        [lowest, highest] of the seeds.\n\n",
        k.name,
        k.iterations,
        k.seeds.iter().map(u64::to_string).collect::<Vec<_>>().join(", "),
        k.seconds,
        k.version,
        k.date,
        k.machine
    );
    let methods = methods(task, k);
    let rows = |cell: &dyn Fn(&Cell) -> String| {
        let row = |(name, label): &(String, String)| {
            let of = |network: &str| match find(k, name, network) {
                Some(c) => cell(c),
                None => reason(file(task), name, network).unwrap_or("").to_string(),
            };
            std::iter::once(label.clone()).chain(NETWORKS.iter().map(|n| of(n.0))).collect()
        };
        methods.iter().map(row).collect::<Vec<Vec<String>>>()
    };
    text += &table(&heads, rows(&ended));
    text += &format!(
        "\nTo {target}, all agents together, median of the seeds: iterations; MB; thousand gradients and \
        products; ms of the simulator.\n\n"
    );
    text + &table(&heads, rows(&cost))
}

/// Every method that runs or has its reason, with its name for readers, in the order of the file.
fn methods(task: &Task, k: &ZooKept) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = Vec::new();
    let said = file(task).lines().filter_map(|l| match l.strip_prefix("name = \"") {
        Some(name) => Some(name.trim_end_matches('"').to_string()),
        None => Some(l.strip_prefix("# ")?.split_once(", ")?.0.to_string()),
    });
    for name in said.filter(|n| !NETWORKS.iter().any(|(network, _)| network == n)) {
        let known = NETWORKS
            .iter()
            .any(|n| find(k, &name, n.0).is_some() || reason(file(task), &name, n.0).is_some());
        if known && !all.iter().any(|(other, _)| *other == name) {
            let label =
                k.cells.iter().find(|c| c.method == name).map_or(format!("`{name}`"), |c| c.label.clone());
            all.push((name, label));
        }
    }
    all
}

fn find<'a>(k: &'a ZooKept, method: &str, network: &str) -> Option<&'a Cell> {
    k.cells.iter().find(|c| c.method == method && c.network == network)
}

fn ended(cell: &Cell) -> String {
    let end = cell.end.map(|[middle, low, high]| format!("{} [{}, {}]", two(middle), two(low), two(high)));
    match (end, cell.diverged) {
        (Some(end), 0) => end,
        (Some(end), n) => format!("{end}, {n} diverged"),
        (None, _) => "all diverged".into(),
    }
}

/// Two digits of small numbers, four of accuracies.
fn two(value: f64) -> String {
    if value.abs() >= 10.0 { format!("{value:.1}") } else { format!("{value:.1e}") }
}

fn cost(cell: &Cell) -> String {
    match &cell.cost {
        Some(c) => format!(
            "{}; {}; {}; {}",
            number(c.iterations),
            three(c.bytes / 1e6),
            three(c.gradients / 1e3),
            three(c.seconds * 1e3)
        ),
        None if cell.reached == 0 => "never".into(),
        None => format!("{} seeds only", cell.reached),
    }
}

fn three(value: f64) -> String {
    if value >= 100.0 {
        format!("{value:.0}")
    } else {
        number(format!("{value:.2e}").parse().unwrap_or(value))
    }
}

/// For every task and network: the best by each measure, and where FAB stands.
fn which(kept: &[ZooKept]) -> String {
    let mut rows = Vec::new();
    for (task, k) in TASKS.iter().filter_map(|t| Some((t, kept.iter().find(|k| k.name == t.name)?))) {
        for (network, words) in NETWORKS {
            // A central place is no method over a network, and one that diverges is none to take.
            let here = || {
                let networked =
                    k.cells.iter().filter(|c| c.network == *network && c.method != "centralized-fab");
                networked.filter(|c| c.diverged == 0)
            };
            let by = |of: &dyn Fn(&Cell) -> Option<f64>| {
                let mut all: Vec<(f64, &Cell)> = here().filter_map(|c| Some((of(c)?, c))).collect();
                all.sort_by(|a, b| a.0.total_cmp(&b.0));
                let place = all.iter().position(|(_, c)| c.method == "fab");
                let fab = place.map_or("FAB: no".into(), |p| format!("FAB: {} of {}", p + 1, all.len()));
                match all.first() {
                    Some((best, _)) => {
                        let ties: Vec<&str> =
                            all.iter().filter(|a| a.0 == *best).map(|a| a.1.label.as_str()).take(3).collect();
                        format!("{} ({fab})", ties.join(", "))
                    }
                    None => "none".into(),
                }
            };
            let sign = if task.upwards { -1.0 } else { 1.0 };
            rows.push(vec![
                task.words.to_string(),
                words.to_string(),
                by(&|c| c.end.map(|e| sign * e[0])),
                by(&|c| c.cost.as_ref().map(|c| c.iterations)),
                by(&|c| c.cost.as_ref().map(|c| c.bytes)),
                by(&|c| c.cost.as_ref().map(|c| c.gradients)),
            ]);
        }
    }
    table(
        &["task", "network", "best at the end", "fewest iterations", "fewest bytes", "fewest gradients"],
        rows,
    )
}
