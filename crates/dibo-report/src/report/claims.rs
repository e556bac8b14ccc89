//! Claims with their verdicts, as a report shows them.

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
