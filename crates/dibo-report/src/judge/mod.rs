//! Verdicts on claims, from the numbers of a results folder alone: one short function per claim, which the
//! crate that makes the claim brings along.
mod margin;
mod run;

use crate::report::Extra;
use crate::report::claims::{Claim, Verdict};
use crate::report::words;
use crate::results::{Curves, Manifest};
pub use margin::Margin;
use margin::{Measured, intervals, verdict};
pub use run::{Cell, Class, Fit, Run, fit, list, over_instances, power};

/// What a run says about a claim: how far each thing that it says is so, the number and how to read it; or
/// why it cannot tell.
pub type Judged = Result<(Vec<Margin>, String, String), String>;

/// One claim and how it is judged.
///
/// A judge sees results in which every series has a run for every seed, and none was stopped. Runs that
/// diverged may be among them: the reading names them, and the judge sees to it that none of them passes for
/// a success. Where a run is broken nothing is judged, unless the judge counts such runs.
///
/// A judge gives margins. The verdict comes of them: the judge is asked again without each seed, and from how
/// much the margins then differ follows whether they are above zero beyond doubt.
///
/// ```
/// use dibo_report::judge::{Judge, Judged, Margin, Run};
///
/// /// Every run reaches its target.
/// fn all_reach(run: &Run<'_>) -> Judged {
///     let slow: Vec<usize> = run.series(|i| !run.all_reached(i));
///     let all = Margin::fact("all series", slow.is_empty());
///     Ok((vec![all], format!("{} series do not", slow.len()), "runs that reach the target".into()))
/// }
///
/// const MINE: &[Judge] = &[Judge::new("REACH", "Every run reaches its target", all_reach)];
/// ```
#[derive(Clone, Copy)]
pub struct Judge {
    /// Its id, as experiment files give it, such as `P1`.
    pub id: &'static str,
    /// The claim in plain words.
    pub statement: &'static str,
    /// Reads the verdict off the results.
    pub judge: fn(&Run<'_>) -> Judged,
    /// Outcomes other than `finished` and `reached` that the claim is about and the judge counts.
    pub counts: &'static [&'static str],
    /// A table for the page beside the verdict.
    pub table: Option<fn(&Run<'_>) -> Option<Extra>>,
}

impl Judge {
    /// A claim about runs that come to their end.
    pub const fn new(id: &'static str, statement: &'static str, judge: fn(&Run<'_>) -> Judged) -> Self {
        Judge { id, statement, judge, counts: &[], table: None }
    }

    /// The same for a claim about how runs end: the judge counts runs with these outcomes itself.
    pub const fn counting(mut self, outcomes: &'static [&'static str]) -> Self {
        self.counts = outcomes;
        self
    }

    /// The same with a table for the page.
    pub const fn with_table(mut self, table: fn(&Run<'_>) -> Option<Extra>) -> Self {
        self.table = Some(table);
        self
    }
}

/// Judges the claims that an experiment asks for.
pub fn judge(judges: &[Judge], manifest: &Manifest, curves: &Curves) -> Vec<Claim> {
    let run = Run { manifest, curves };
    let missing = missing(manifest);
    let judge_one = |id: &String| {
        let found = judges.iter().find(|judge| judge.id == id);
        let judged = match found {
            None => Err("no judge is known for this claim".into()),
            Some(_) if !missing.is_empty() => Err(missing.clone()),
            Some(judge) => judge.ask(&run),
        };
        let (verdict, number, mut reading) =
            judged.unwrap_or_else(|why| (Verdict::NotMeasured, String::new(), why));
        if !manifest.overrides.is_empty() {
            reading += &format!("; this run was changed by --set {}", manifest.overrides.join(" --set "));
        }
        let statement = found.map_or_else(String::new, |judge| judge.statement.into());
        Claim { id: id.clone(), statement, verdict, number, reading }
    };
    manifest.claims.iter().map(judge_one).collect()
}

/// The tables that go with the claims an experiment asks for, where all runs are there.
pub fn extras(judges: &[Judge], manifest: &Manifest, curves: &Curves) -> Vec<Extra> {
    if !missing(manifest).is_empty() {
        return Vec::new();
    }
    let run = Run { manifest, curves };
    let wanted = judges.iter().filter(|judge| manifest.claims.iter().any(|id| id == judge.id));
    wanted.filter_map(|judge| judge.table?(&run)).collect()
}

impl Judge {
    /// The verdict, number and reading on results that are whole.
    fn ask(&self, run: &Run<'_>) -> Result<(Verdict, String, String), String> {
        let with = |outcome: &str| {
            if self.counts.contains(&outcome) {
                return String::new();
            }
            let of =
                |seed: &u64, series: usize| run.runs(series).any(|r| r.seed == *seed && r.outcome == outcome);
            named(run.manifest, of)
        };
        let broken = with("broken");
        if !broken.is_empty() {
            return Err(format!("a run is broken: {broken}"));
        }
        let diverged = with("diverged");
        let note = if diverged.is_empty() { String::new() } else { format!("; diverged: {diverged}") };
        match (self.judge)(run) {
            Ok((margins, number, reading)) => {
                let all = self.measured(run, margins);
                Ok((verdict(&all), number + &intervals(&all), reading + &note))
            }
            Err(why) => Err(why + &note),
        }
    }

    /// The margins, and what they are without each seed (each twentieth of many seeds).
    fn measured(&self, run: &Run<'_>, margins: Vec<Margin>) -> Vec<Measured> {
        const PARTS: usize = 20;
        let parts = match run.manifest.seeds.len() {
            0 | 1 => 0,
            seeds => seeds.min(PARTS),
        };
        let mut all: Vec<Measured> =
            margins.into_iter().map(|margin| Measured { margin, without: Vec::new() }).collect();
        for part in 0..parts {
            let mut manifest = run.manifest.clone();
            let mut nth = 0..;
            manifest.seeds.retain(|_| nth.next().is_none_or(|n: usize| n % parts != part));
            let seeds = manifest.seeds.clone();
            manifest.runs.retain(|run| seeds.contains(&run.seed));
            let rest = (self.judge)(&Run { manifest: &manifest, curves: run.curves });
            let rest = rest.map_or_else(|_| Vec::new(), |(margins, ..)| margins);
            for measured in &mut all {
                let same = rest.iter().find(|margin| margin.what == measured.margin.what);
                measured.without.push(same.map(|margin| margin.value));
            }
        }
        all
    }
}

/// Which runs are missing or were stopped, in words; empty if none.
fn missing(manifest: &Manifest) -> String {
    let outcome = |seed: &u64, series: usize| {
        let run = manifest.runs.iter().find(|run| run.series == series && run.seed == *seed);
        run.map(|run| run.outcome.as_str())
    };
    let none = named(manifest, |seed, series| outcome(seed, series).is_none());
    let stopped = named(manifest, |seed, series| outcome(seed, series) == Some("stopped"));
    let part = |words: &str, which: String| (!which.is_empty()).then(|| format!("{words} {which}"));
    let parts = [part("no run of", none), part("stopped before the end:", stopped)];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// The series of which some seeds are wanted, with these: `FAB ν=0.3 (seeds 1, 4 to 9)`; the first five.
fn named(manifest: &Manifest, wanted: impl Fn(&u64, usize) -> bool) -> String {
    const MOST: usize = 5;
    let seeds_of = |index: usize| -> Option<String> {
        let seeds: Vec<u64> = manifest.seeds.iter().copied().filter(|seed| wanted(seed, index)).collect();
        let label = &manifest.series[index].label;
        match seeds[..] {
            [] => None,
            _ if seeds.len() == manifest.seeds.len() && seeds.len() > 1 => {
                Some(format!("{label} (all seeds)"))
            }
            [seed] => Some(format!("{label} (seed {seed})")),
            _ => Some(format!("{label} (seeds {})", ranges(&seeds))),
        }
    };
    let all: Vec<String> = (0..manifest.series.len()).filter_map(seeds_of).collect();
    let more = all.len().saturating_sub(MOST);
    let text = list(all.into_iter().take(MOST));
    if more > 0 { format!("{text} and {more} more series") } else { text }
}

/// Seeds in words, three and more in a row by their ends: `1, 4 to 9`.
fn ranges(seeds: &[u64]) -> String {
    let rows = seeds.chunk_by(|a, b| a.checked_add(1) == Some(*b));
    let words = rows.flat_map(|row| match row {
        [first, _, .., last] => vec![format!("{first} to {last}")],
        few => few.iter().map(u64::to_string).collect(),
    });
    list(words)
}

/// The claims as lines for the terminal, at most 80 characters wide; the ids stand in a column of their own.
pub fn terminal(claims: &[Claim]) -> String {
    let widest = claims.iter().map(|claim| claim.id.chars().count()).max().unwrap_or(0).clamp(5, 20);
    let mut text = String::new();
    for claim in claims {
        // What many claims lack is said once.
        let same = |other: &&Claim| claim.number.is_empty() && other.reading == claim.reading;
        let number = match claims.iter().find(same).filter(|other| other.id != claim.id) {
            Some(other) => format!("as {}", other.id),
            None if claim.number.is_empty() => claim.reading.clone(),
            None => claim.number.clone(),
        };
        let words = format!("{}: {} ({number})", claim.statement, claim.verdict.words());
        let ids = words::folded(&claim.id, widest, 0);
        let lines = words::folded(&words, 79 - widest, 0);
        for nth in 0..ids.len().max(lines.len()) {
            let at = |column: &[String]| column.get(nth).cloned().unwrap_or_default();
            text += format!("{:<widest$} {}", at(&ids), at(&lines)).trim_end();
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests;
