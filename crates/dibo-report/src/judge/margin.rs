//! From numbers over seeds to a verdict: by how much a claim holds, with a 95 % interval.
use crate::report::claims::Verdict;
use crate::report::words::number;

/// One thing that a claim says, as a number that is above zero where it is so.
#[derive(Clone, Debug, PartialEq)]
pub struct Margin {
    /// Where, such as `cr = 0.4`; empty where a claim is one thing.
    pub what: String,
    /// By how much: infinite for what is simply so, or for a comparison with a run that has no end.
    pub value: f64,
    /// Its unit, such as `points`.
    pub unit: &'static str,
    /// Whether it could not come out otherwise, whatever the runs do.
    pub constructed: bool,
}

impl Margin {
    /// How far it holds.
    pub fn new(what: impl Into<String>, value: f64) -> Self {
        Margin { what: what.into(), value, unit: "", constructed: false }
    }

    /// What is so or is not, without a size.
    pub fn fact(what: impl Into<String>, so: bool) -> Self {
        Margin::new(what, if so { f64::INFINITY } else { f64::NEG_INFINITY })
    }

    /// `lower` against `higher`, both above zero, as the logarithm of their ratio; infinite where one is.
    pub fn ratio(what: impl Into<String>, lower: f64, higher: f64) -> Self {
        // What diverged twice is not better than itself.
        let value = if lower.is_infinite() { f64::NEG_INFINITY } else { (higher / lower).ln() };
        Margin::new(what, value).unit("in ln")
    }

    /// The same with a unit.
    pub fn unit(mut self, unit: &'static str) -> Self {
        self.unit = unit;
        self
    }

    /// The same for what the method itself decides, before any run.
    pub fn by_construction(mut self) -> Self {
        self.constructed = true;
        self
    }

    /// The same, but against the claim where this is not so (a method that diverged).
    pub fn only_if(mut self, so: bool) -> Self {
        if !so {
            self.value = f64::NEG_INFINITY;
        }
        self
    }
}

/// What a margin says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Yes,
    No,
    Close,
    One(bool),
    Constructed,
}

/// A margin with what it is when each part of the seeds is left out; `None` where it is then not to be had.
pub struct Measured {
    /// With all seeds.
    pub margin: Margin,
    /// Without each part.
    pub without: Vec<Option<f64>>,
}

impl Measured {
    /// The 95 % interval by leaving out: for differences of means over seeds it is Student's for paired
    /// differences, and it serves ratios and fitted exponents as well.
    pub fn interval(&self) -> Option<(f64, f64)> {
        let (n, value) = (self.without.len() as f64, self.margin.value);
        let mut left: Vec<f64> = self.without.iter().copied().collect::<Option<_>>()?;
        // What is beyond all measure in the claim's favour counts as the best that was measured.
        let best = left.iter().copied().filter(|v| v.is_finite()).fold(value, f64::max);
        left.iter_mut().filter(|v| **v == f64::INFINITY).for_each(|v| *v = best);
        if left.len() < 2 || !value.is_finite() || !left.iter().all(|v| v.is_finite()) {
            return None;
        }
        let mean = left.iter().sum::<f64>() / n;
        let square: f64 = left.iter().map(|v| (v - mean).powi(2)).sum();
        let half = student(left.len() - 1) * ((n - 1.0) / n * square).sqrt();
        Some((value - half, value + half))
    }

    fn side(&self) -> Side {
        let value = self.margin.value;
        if value.is_nan() || value == f64::NEG_INFINITY {
            return if self.without.is_empty() { Side::One(false) } else { Side::No };
        }
        match (self.margin.constructed, self.without.is_empty(), self.interval()) {
            (true, ..) => [Side::No, Side::Constructed][usize::from(value > 0.0)],
            (_, true, _) => Side::One(value > 0.0),
            _ if value == f64::INFINITY => Side::Yes,
            (_, _, Some((low, _))) if low > 0.0 => Side::Yes,
            (_, _, Some((_, high))) if high < 0.0 => Side::No,
            _ => Side::Close,
        }
    }

    /// The number with its interval, where it has a size.
    fn words(&self) -> Option<String> {
        let (Margin { what, value, unit, .. }, interval) = (&self.margin, self.interval());
        let (low, high) = interval.filter(|_| !self.margin.constructed)?;
        let text = format!("{what} {} [{}, {}] {unit}", number(*value), number(low), number(high));
        Some(text.trim().into())
    }
}

/// All of a claim's margins together: it holds where all do, and only under some where others do not.
pub fn verdict(all: &[Measured]) -> Verdict {
    let with = |side: Side| all.iter().filter(move |m| m.side() == side);
    let any = |side: Side| with(side).next().is_some();
    if all.is_empty() {
        return Verdict::NotMeasured;
    }
    if any(Side::One(true)) || any(Side::One(false)) {
        return Verdict::OneSeed(!any(Side::One(false)) && !any(Side::No));
    }
    let sure = with(Side::Yes).map(|m| m.margin.what.clone());
    let built = with(Side::Constructed).map(|m| format!("{} (by construction)", m.margin.what));
    let under: Vec<String> = sure.chain(built).collect();
    match (any(Side::Yes), any(Side::No), any(Side::Close)) {
        (_, true, _) if !under.is_empty() => Verdict::HoldsOnlyUnder(under.join(", ")),
        (_, true, _) => Verdict::DoesNotHold,
        (_, false, true) => Verdict::TooClose,
        (true, false, false) => Verdict::Holds,
        (false, false, false) => Verdict::ByConstruction,
    }
}

/// The margins with their intervals, the nearest to zero first.
pub fn intervals(all: &[Measured]) -> String {
    const MOST: usize = 6;
    let mut near: Vec<(f64, String)> =
        all.iter().filter_map(|m| Some((m.margin.value.abs(), m.words()?))).collect();
    near.sort_by(|a, b| a.0.total_cmp(&b.0));
    let more = near.len().saturating_sub(MOST);
    let text: Vec<String> = near.into_iter().take(MOST).map(|(_, words)| words).collect();
    match (text.is_empty(), more) {
        (true, _) => String::new(),
        (_, 0) => format!("; margin with its 95 % interval: {}", text.join(", ")),
        _ => format!("; margin with its 95 % interval: {} and {more} larger ones", text.join(", ")),
    }
}

/// The 97.5 % point of Student's distribution. Up to 30 degrees of freedom from its table, beyond by the
/// first terms of its expansion about the normal distribution, which are then right to four digits.
fn student(freedom: usize) -> f64 {
    const TABLE: [f64; 30] = [
        12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281, 2.2010, 2.1788,
        2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860, 2.0796, 2.0739, 2.0687, 2.0639,
        2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423,
    ];
    let (z, f) = (1.959_964_f64, freedom as f64);
    let expanded =
        || z + (z.powi(3) + z) / (4.0 * f) + (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * f * f);
    freedom.checked_sub(1).and_then(|at| TABLE.get(at).copied()).unwrap_or_else(expanded)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A margin over seeds that differ by these numbers: their mean, and what it is without each.
    fn over(values: &[f64]) -> Measured {
        let mean = |v: &[f64]| v.iter().sum::<f64>() / v.len() as f64;
        let without = (0..values.len()).filter(|_| values.len() > 1).map(|i| {
            let rest: Vec<f64> =
                values.iter().enumerate().filter(|(j, _)| *j != i).map(|(_, v)| *v).collect();
            Some(mean(&rest))
        });
        Measured { margin: Margin::new("here", mean(values)), without: without.collect() }
    }

    #[test]
    fn the_interval_is_student_s_for_paired_differences() {
        // Differences 1, 2, 3, 4, 5: mean 3, standard deviation 1.5811, 2.7764 · 1.5811 / √5 = 1.9632.
        let (low, high) = over(&[1.0, 2.0, 3.0, 4.0, 5.0]).interval().unwrap();
        assert!((low - 1.0368).abs() < 1e-4 && (high - 4.9632).abs() < 1e-4, "{low} {high}");
        for (freedom, printed) in [(1, 12.7062), (9, 2.2622), (30, 2.0423), (40, 2.0211), (60, 2.0003)] {
            assert!((student(freedom) - printed).abs() < 2e-4, "{freedom}");
        }
        assert!((student(100_000) - 1.95998).abs() < 1e-4);
    }

    #[test]
    fn every_verdict_can_come_out() {
        let (yes, no, close) = (over(&[1.0, 1.1, 0.9]), over(&[-1.0, -1.1, -0.9]), over(&[1.0, -1.1, 0.9]));
        let fact = |so: bool, seeds: usize| Measured {
            margin: Margin::fact("it", so),
            without: vec![Some(1.0); seeds],
        };
        let built = |value: f64| Measured {
            margin: Margin::new("bytes", value).by_construction(),
            without: vec![Some(value); 3],
        };
        let of = |all: Vec<Measured>| verdict(&all);
        assert_eq!(of(vec![]), Verdict::NotMeasured);
        assert_eq!(of(vec![over(&[1.0, 1.1, 0.9]), fact(true, 3)]), Verdict::Holds);
        assert_eq!(of(vec![no, over(&[1.0, -1.1, 0.9])]), Verdict::DoesNotHold);
        assert_eq!(of(vec![yes, fact(false, 3)]), Verdict::HoldsOnlyUnder("here".into()));
        assert_eq!(of(vec![close, fact(true, 3)]), Verdict::TooClose);
        assert_eq!(of(vec![over(&[0.0, 0.0, 0.0])]), Verdict::TooClose, "a tie");
        assert_eq!(of(vec![built(2.0)]), Verdict::ByConstruction);
        assert_eq!(of(vec![built(-2.0)]), Verdict::DoesNotHold, "then the construction is not what we think");
        assert_eq!(of(vec![built(2.0), over(&[1.0, 1.1, 0.9])]), Verdict::Holds);
        assert_eq!(of(vec![over(&[1.0])]), Verdict::OneSeed(true));
        assert_eq!(of(vec![over(&[1.0]), over(&[-1.0])]), Verdict::OneSeed(false));
        assert_eq!(of(vec![fact(false, 0)]), Verdict::OneSeed(false));
        assert_eq!(
            of(vec![over(&[f64::NAN, 1.0])]),
            Verdict::DoesNotHold,
            "what has no number is no success"
        );
    }

    #[test]
    fn ratios_know_what_diverged() {
        let infinite = f64::INFINITY;
        assert_eq!(Margin::ratio("", 1.0, infinite).value, infinite);
        assert_eq!(Margin::ratio("", infinite, 1.0).value, -infinite);
        assert_eq!(Margin::ratio("", infinite, infinite).value, -infinite);
        assert_eq!(Margin::new("", 1.0).only_if(false).value, -infinite);
    }

    #[test]
    fn intervals_are_said_the_nearest_first() {
        let all = [over(&[4.0, 5.0, 6.0]), over(&[1.0, 2.0, 3.0])];
        let text = intervals(&all);
        let (two, five) = (text.find("here 2 [").unwrap(), text.find("here 5 [").unwrap());
        assert!(two < five, "{text}");
        assert_eq!(intervals(&[over(&[1.0])]), "");
        let many: Vec<Measured> = (1..10).map(|i| over(&[i as f64, i as f64 + 1.0])).collect();
        assert!(intervals(&many).ends_with("and 3 larger ones"));
    }
}
