//! The outcome table: one row per series, for the page and for the terminal.
use super::{average, words};
use crate::results::{Manifest, RunRecord, Series};

/// A table with its head; `right` marks columns of numbers.
pub struct Table {
    /// Names of the columns.
    pub head: Vec<String>,
    /// Whether each column is set flush right.
    pub right: Vec<bool>,
    /// One row per series.
    pub rows: Vec<Vec<String>>,
}

/// The metrics worth a column: those the figures show, else the first ones; three at most.
pub fn main_metrics(manifest: &Manifest) -> Vec<String> {
    let mut chosen: Vec<String> = Vec::new();
    let asked = manifest
        .figures
        .iter()
        .flat_map(|figure| [Some(&figure.y), figure.y2.as_ref()].into_iter().flatten());
    let known = |name: &&String| manifest.runs.iter().any(|run| run.last.contains_key(*name));
    let asked: Vec<&String> = asked.filter(known).collect();
    let pool: Vec<&String> =
        if asked.is_empty() { manifest.metrics.iter().filter(known).take(2).collect() } else { asked };
    for name in pool {
        if !chosen.contains(name) && chosen.len() < 3 {
            chosen.push(name.clone());
        }
    }
    chosen
}

/// The outcome of each series over its seeds.
pub fn outcome(manifest: &Manifest) -> Table {
    let metrics = main_metrics(manifest);
    let products = manifest.runs.iter().any(|run| run.products > 0);
    // Where the labels say all that is swept, a column of settings would only repeat them.
    let value =
        |series: &Series, key: &String| series.settings.get(key).cloned().unwrap_or_else(|| "–".into());
    let swept = manifest
        .series
        .iter()
        .any(|series| series.swept.iter().any(|key| !series.label.contains(&value(series, key))));
    let mut head = vec!["series".to_string()];
    if swept {
        head.push("settings".into());
    }
    head.extend(["outcome".into(), "iterations".into()]);
    head.extend(metrics.iter().map(|name| words::column(name)));
    head.extend(["time", "sent", "gradients"].map(String::from));
    if products {
        head.push("products".into());
    }
    head.push("state".into());
    let rows = manifest.series.iter().enumerate().map(|(index, series)| {
        let runs: Vec<&RunRecord> = manifest.runs.iter().filter(|run| run.series == index).collect();
        let mut row = vec![series.label.clone()];
        if swept {
            let setting = |key: &String| format!("{} = {}", words::symbol(key), value(series, key));
            row.push(series.swept.iter().map(setting).collect::<Vec<_>>().join(", "));
        }
        row.push(outcomes(&runs));
        row.push(iterations(&runs));
        row.extend(metrics.iter().map(|name| last(&runs, name)));
        let average = |name: &str| {
            let values: Vec<f64> = runs.iter().map(|run| average::ending(run, name)).collect();
            if values.is_empty() { "–".into() } else { words::quantity(name, average::mean_sd(&values).0) }
        };
        row.extend(["seconds", "bytes", "gradients"].map(average));
        if products {
            row.push(average("products"));
        }
        row.push(average("state_bytes"));
        row
    });
    let rows: Vec<Vec<String>> = rows.collect();
    let right = head.iter().map(|name| !["series", "settings", "outcome"].contains(&name.as_str())).collect();
    Table { head, right, rows }
}

/// `10 reached`, or `8 reached, 2 diverged`.
fn outcomes(runs: &[&RunRecord]) -> String {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for run in runs {
        match counts.iter_mut().find(|(name, _)| *name == run.outcome) {
            Some((_, count)) => *count += 1,
            None => counts.push((&run.outcome, 1)),
        }
    }
    match counts[..] {
        [] => "no run".into(),
        [(name, 1)] => name.into(),
        _ => counts.iter().map(|(name, count)| format!("{count} {name}")).collect::<Vec<_>>().join(", "),
    }
}

/// Mean, and the smallest and largest where they differ.
fn iterations(runs: &[&RunRecord]) -> String {
    let counts = runs.iter().map(|run| run.iterations);
    let (Some(least), Some(most)) = (counts.clone().min(), counts.clone().max()) else { return "–".into() };
    let mean = counts.sum::<usize>() as f64 / runs.len() as f64;
    if least == most { format!("{least}") } else { format!("{mean:.0} [{least}, {most}]") }
}

/// Mean and deviation of a metric's last value over the runs that did not diverge.
fn last(runs: &[&RunRecord], name: &str) -> String {
    let sound = runs.iter().filter(|run| run.outcome != "diverged");
    let values: Vec<f64> =
        sound.map(|run| average::ending(run, name)).filter(|value| value.is_finite()).collect();
    if values.is_empty() {
        return "–".into();
    }
    let (mean, deviation) = average::mean_sd(&values);
    words::mean_and_deviation(mean, deviation)
}

/// The outcome table as aligned text, at most 110 characters wide; less important columns give way first.
pub fn terminal_table(manifest: &Manifest) -> String {
    const WIDEST: usize = 110;
    let mut table = outcome(manifest);
    let metrics = main_metrics(manifest);
    // The label already says what is swept.
    let mut give_way: Vec<String> = ["settings", "products", "state", "gradients"].map(String::from).into();
    give_way.extend(metrics.iter().skip(1).rev().map(|name| words::column(name)));
    give_way.extend(["sent", "time"].map(String::from));
    table.drop(&give_way[0]);
    for name in &give_way[1..] {
        if table.width() <= WIDEST {
            break;
        }
        table.drop(name);
    }
    let over = table.width().saturating_sub(WIDEST);
    if over > 0 {
        let room = table.widths()[0].saturating_sub(over).max(12);
        for label in table
            .rows
            .iter_mut()
            .filter_map(|row| row.first_mut())
            .filter(|label| label.chars().count() > room)
        {
            *label = label.chars().take(room - 1).chain(['…']).collect();
        }
    }
    let widths = table.widths();
    let line = |row: &[String]| {
        let mut text = String::new();
        for ((cell, &width), &right) in row.iter().zip(&widths).zip(&table.right) {
            let space = " ".repeat(width.saturating_sub(cell.chars().count()));
            text += &if right { format!("{space}{cell}  ") } else { format!("{cell}{space}  ") };
        }
        text.trim_end().to_string() + "\n"
    };
    let rule = "─".repeat(widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1)) + "\n";
    line(&table.head) + &rule + &table.rows.iter().map(|row| line(row)).collect::<String>()
}

impl Table {
    fn widths(&self) -> Vec<usize> {
        let width = |column: usize| {
            self.rows.iter().chain([&self.head]).map(|row| row[column].chars().count()).max().unwrap_or(0)
        };
        (0..self.head.len()).map(width).collect()
    }

    fn width(&self) -> usize {
        self.widths().iter().sum::<usize>() + 2 * self.head.len().saturating_sub(1)
    }

    fn drop(&mut self, name: &str) {
        if let Some(column) = self.head.iter().position(|head| head == name) {
            self.head.remove(column);
            self.right.remove(column);
            for row in &mut self.rows {
                row.remove(column);
            }
        }
    }
}
