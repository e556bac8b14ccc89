//! The outcome table: one row per series, for the page and for the terminal.
use super::{average, words};
use crate::results::{Manifest, RunRecord, Series, Value};

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
    let names = manifest.metrics.iter().map(|metric| &metric.name);
    let pool: Vec<&String> = if asked.is_empty() { names.filter(known).take(2).collect() } else { asked };
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
    let value = |series: &Series, key: &String| series.settings.get(key).map_or("–".into(), Value::to_string);
    let close = |text: &str| text.replace(' ', "");
    let says = |series: &Series, key| close(&series.label).contains(&close(&value(series, key)));
    let swept = manifest.series.iter().any(|series| series.swept.iter().any(|key| !says(series, key)));
    let mut head = vec!["series".to_string()];
    if swept {
        head.push("settings".into());
    }
    head.extend(["outcome".into(), "iterations".into()]);
    head.extend(metrics.iter().map(|name| words::heading(manifest, name)));
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

/// As wide as a label may be before columns give way.
const LABEL: usize = 32;

/// The outcome table as aligned text, at most 80 characters wide: less important columns give way first, and
/// what is long goes on in the next line.
pub fn terminal_table(manifest: &Manifest) -> String {
    const WIDEST: usize = 80;
    let mut table = outcome(manifest);
    let metrics = main_metrics(manifest);
    // The label already says what is swept.
    let mut give_way: Vec<String> = ["settings", "products", "state", "gradients"].map(String::from).into();
    give_way.extend(metrics.iter().skip(1).rev().map(|name| words::heading(manifest, name)));
    give_way.extend(["sent", "time"].map(String::from));
    table.drop(&give_way[0]);
    for name in &give_way[1..] {
        if total(&table.least_widths()) <= WIDEST {
            break;
        }
        table.drop(name);
    }
    let mut widths = table.least_widths();
    // What room is left goes to the label, then to the heads.
    for (column, wanted) in table.widths().into_iter().enumerate() {
        let spare = WIDEST.saturating_sub(total(&widths));
        widths[column] = wanted.min(widths[column] + spare);
    }
    while total(&widths) > WIDEST {
        let widest = (0..widths.len()).max_by_key(|column| (widths[*column], *column));
        let shrunk = if widths[0] > LABEL / 2 { Some(0) } else { widest };
        widths[shrunk.expect("a table has columns")] -= 1;
    }
    let rule = "─".repeat(total(&widths)) + "\n";
    let rows = table.rows.iter().map(|row| lines(row, &widths, &table.right));
    lines(&table.head, &widths, &table.right) + &rule + &rows.collect::<String>()
}

/// Characters of a row with columns of these widths.
fn total(widths: &[usize]) -> usize {
    widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1)
}

/// One row as text: several lines where a cell is wider than its column.
fn lines(row: &[String], widths: &[usize], right: &[bool]) -> String {
    let cells: Vec<Vec<String>> =
        row.iter().zip(widths).map(|(cell, width)| words::folded(cell, *width, 0)).collect();
    let mut text = String::new();
    for nth in 0..cells.iter().map(Vec::len).max().unwrap_or(0) {
        let mut line = String::new();
        for ((cell, &width), &right) in cells.iter().zip(widths).zip(right) {
            let cell = cell.get(nth).map_or("", String::as_str);
            let space = " ".repeat(width.saturating_sub(cell.chars().count()));
            line += &if right { format!("{space}{cell}  ") } else { format!("{cell}{space}  ") };
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

impl Table {
    /// Takes the columns from `name` on away, as a table of their own with the same rows.
    pub fn cut(&mut self, name: &str) -> Option<Table> {
        let at = self.head.iter().position(|head| head == name)?;
        let first = |row: &[String], rest: Vec<String>| row.iter().take(1).cloned().chain(rest).collect();
        let head = self.head.split_off(at);
        let right = [false].into_iter().chain(self.right.split_off(at)).collect();
        let rows = self.rows.iter_mut().map(|row| {
            let rest = row.split_off(at);
            first(row, rest)
        });
        Some(Table { rows: rows.collect(), head: first(&self.head, head), right })
    }

    fn widths(&self) -> Vec<usize> {
        let width = |column: usize| {
            self.rows.iter().chain([&self.head]).map(|row| row[column].chars().count()).max().unwrap_or(0)
        };
        (0..self.head.len()).map(width).collect()
    }

    /// The least widths: labels of a fair length, cells as they are, and heads with a word to a line.
    fn least_widths(&self) -> Vec<usize> {
        let letters = |text: &str| text.chars().count();
        let least = |column: usize| {
            let cells = self.rows.iter().map(|row| letters(&row[column])).max().unwrap_or(0);
            let head = self.head[column].split_whitespace().map(letters).max().unwrap_or(0);
            if column == 0 { cells.max(head).min(LABEL) } else { cells.max(head) }
        };
        (0..self.head.len()).map(least).collect()
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
