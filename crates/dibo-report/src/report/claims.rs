//! Claims with their verdicts, as a report shows them and as a file has them.
use crate::results::write_file;
use anyhow::{Context, Result};
use std::path::Path;

/// One claim with its verdict.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Its id, such as `P1`.
    pub id: String,
    /// The claim in plain words.
    pub statement: String,
    /// What the run says about it.
    pub verdict: Verdict,
    /// The measured number, with its unit.
    pub number: String,
    /// How to read the number.
    pub reading: String,
}

/// What a run says about a claim.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// The run agrees.
    Holds,
    /// The run disagrees.
    DoesNotHold,
    /// The run agrees where this condition is met.
    HoldsOnlyUnder(String),
    /// The seeds differ too much, or the sides too little.
    TooClose,
    /// It could not have come out otherwise.
    ByConstruction,
    /// There is one seed, which agrees or does not.
    OneSeed(bool),
    /// The run cannot tell.
    NotMeasured,
}

impl Verdict {
    /// In words.
    pub fn words(&self) -> String {
        match self {
            Verdict::Holds => "holds".into(),
            Verdict::DoesNotHold => "does not hold".into(),
            Verdict::HoldsOnlyUnder(condition) => format!("holds only under {condition}"),
            Verdict::TooClose => "too close to tell".into(),
            Verdict::ByConstruction => "by construction".into(),
            Verdict::OneSeed(true) => "one seed, which agrees".into(),
            Verdict::OneSeed(false) => "one seed, which does not agree".into(),
            Verdict::NotMeasured => "not measured".into(),
        }
    }
}

/// Writes claims as a table: one a line, with its verdict, the number with its interval and how to read it.
pub fn write_csv(path: &Path, claims: &[Claim]) -> Result<()> {
    let fail = || format!("cannot write {}", path.display());
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(["claim", "verdict", "statement", "number", "reading"]).with_context(fail)?;
    for Claim { id, statement, verdict, number, reading } in claims {
        writer.write_record([id, &verdict.words(), statement, number, reading]).with_context(fail)?;
    }
    let text = writer.into_inner().map_err(|error| error.into_error()).with_context(fail)?;
    write_file(path, &text)
}
