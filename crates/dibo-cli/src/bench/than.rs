//! This dibo beside another one: both are asked in turn, and of each number the best counts.
use super::{Options, Part};
use anyhow::{Context, Result, bail, ensure};
use dibo_run::say;
use std::path::Path;

/// One number of the tables: what it is, and whether more is better.
type Cell = (String, bool, f64);

/// Asks both in turn and prints the ratios; above 1 this one is faster.
pub fn run(options: &Options, other: &Path, cores: usize) -> Result<()> {
    ensure!(other.is_file(), "there is no program {}", other.display());
    let me = std::env::current_exe().context("cannot find this program to start it again")?;
    let mut best: [Vec<Cell>; 2] = [Vec::new(), Vec::new()];
    for _ in 0..options.rounds {
        for (best, program) in best.iter_mut().zip([me.as_path(), other]) {
            for cell in ask(program, options.only, cores)? {
                match best.iter_mut().find(|c| c.0 == cell.0) {
                    Some(known) if cell.1 => known.2 = known.2.max(cell.2),
                    Some(known) => known.2 = known.2.min(cell.2),
                    None => best.push(cell),
                }
            }
        }
    }
    let [mine, theirs] = best;
    say!("{:<44} {:>12} {:>12} {:>8}", "the best of each", "this one", "the other", "ratio");
    for (name, more, value) in &mine {
        let Some((_, _, old)) = theirs.iter().find(|c| c.0 == *name) else { continue };
        let ratio = if *more { value / old } else { old / value };
        say!("{name:<44} {value:>12.2} {old:>12.2} {ratio:>8.2}");
    }
    Ok(())
}

fn ask(program: &Path, only: Option<Part>, cores: usize) -> Result<Vec<Cell>> {
    let mut command = std::process::Command::new(program);
    command.args(["bench", "--rounds", "1", "--threads", &cores.to_string()]);
    match only {
        Some(Part::Policy) => drop(command.args(["--only", "policy"])),
        Some(Part::Cleaning) => drop(command.args(["--only", "cleaning"])),
        // Not compared, and an older one has no such part: both others are asked for.
        Some(Part::Ways | Part::Methods) | None => {}
    }
    let output = command.output().with_context(|| format!("cannot start {}", program.display()))?;
    ensure!(output.status.success(), "{} failed", program.display());
    let cells = parse(&String::from_utf8_lossy(&output.stdout));
    if cells.is_empty() {
        bail!("{} printed no table", program.display());
    }
    Ok(cells)
}

/// The rows of the two tables: agents with iterations a second, threads with milliseconds.
fn parse(text: &str) -> Vec<Cell> {
    let mut cells = Vec::new();
    let mut columns: &[(&str, bool)] = &[];
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.first() {
            Some(&"agents") => {
                columns = &[
                    ("1 thread", true),
                    ("all threads", true),
                    ("runs side by side", true),
                    ("fresh graphs", true),
                ]
            }
            Some(&"threads") => columns = &[("iteration, ms", false), ("gradients, ms", false)],
            Some(first) => {
                let Ok(row) = first.parse::<usize>() else { continue };
                let of = if columns.len() == 4 { "agents" } else { "threads" };
                for ((name, more), word) in columns.iter().zip(&words[1..]) {
                    if let Ok(value) = word.parse() {
                        cells.push((format!("{row} {of}: {name}"), *more, value));
                    }
                }
            }
            None => {}
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    #[test]
    fn tables_are_read() {
        let text = "FAB …\n\nagents     1 thread    2 threads\n    10      1426000      1420000      \
            2811000       \
                    900000     12.5           30 %\n\n threads  iteration, ms\n       1          \
                    21.30          \
                    18.00   100\n";
        let cells = super::parse(text);
        assert_eq!(cells.len(), 6);
        assert_eq!(cells[0], ("10 agents: 1 thread".into(), true, 1_426_000.0));
        assert_eq!(cells[5], ("1 threads: gradients, ms".into(), false, 18.0));
    }
}
