//! Step sizes and penalties as functions of the iteration.
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A positive number that may change with `k`. In TOML: `0.1`, `{ start = 0.15, decay = 1e-5 }`, `{ start =
/// 1, power = 0.33 }` or `{ start = 0.1, end = 0.001, over = 5000 }`.
///
/// ```
/// use dibo::schedule::{InverseTime, Schedule};
///
/// let falling = Schedule::InverseTime(InverseTime { start: 0.1, decay: 0.01 });
/// assert_eq!((falling.at(0), falling.at(100)), (0.1, 0.05));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "a number, { start, decay } for start/(1 + decay·k), { start, power } for start·(k+1)^power, \
        or { start, end, over } for a straight line"
)]
pub enum Schedule {
    /// The same number at every iteration.
    Constant(f64),
    /// `start / (1 + decay·k)`.
    InverseTime(InverseTime),
    /// `start · (k+1)^power`: growth for `power > 0`, decay for `power < 0`.
    Polynomial(Polynomial),
    /// From `start` to `end` on a straight line, then `end`.
    Line(Line),
}

/// `start / (1 + decay·k)`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InverseTime {
    /// Value at `k = 0`.
    pub start: f64,
    /// How fast it falls.
    pub decay: f64,
}

/// `start · (k+1)^power`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Polynomial {
    /// Value at `k = 0`.
    pub start: f64,
    /// Exponent.
    pub power: f64,
}

/// From `start` to `end` over so many iterations, then `end`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// Value at `k = 0`.
    pub start: f64,
    /// Value from `over` on.
    pub end: f64,
    /// Iterations between the two.
    pub over: usize,
}

impl Schedule {
    /// The value at iteration `k`.
    pub fn at(&self, k: usize) -> f64 {
        match self {
            Schedule::Constant(value) => *value,
            Schedule::InverseTime(s) => s.start / (1.0 + s.decay * k as f64),
            Schedule::Polynomial(s) => s.start * ((k + 1) as f64).powf(s.power),
            Schedule::Line(s) if k >= s.over => s.end,
            Schedule::Line(s) => s.start + (s.end - s.start) * (k as f64 / s.over as f64),
        }
    }

    /// Says what is wrong if the value is not finite and above 0 at every iteration (0 itself only where
    /// `zero_allowed`).
    pub fn check(&self, name: &str, zero_allowed: bool) -> Result<(), String> {
        let (start, other) = match self {
            Schedule::Constant(value) => (*value, 0.0),
            Schedule::InverseTime(s) if s.decay < 0.0 => {
                return Err(format!("{name}: decay is {}; it must be 0 or more", s.decay));
            }
            Schedule::InverseTime(s) => (s.start, s.decay),
            Schedule::Polynomial(s) => (s.start, s.power),
            Schedule::Line(s) if s.over == 0 => {
                return Err(format!("{name}: over is 0; it must be 1 or more"));
            }
            Schedule::Line(s) if !(s.end > 0.0 || s.end == 0.0 && zero_allowed) => {
                return Err(format!("{name}: end is {}; it must be above 0", s.end));
            }
            Schedule::Line(s) => (s.start, s.end),
        };
        let allowed = if zero_allowed { "0 or more" } else { "above 0" };
        if !start.is_finite() || !other.is_finite() || start < 0.0 || (start == 0.0 && !zero_allowed) {
            return Err(format!("{name} is {start}; it must be a finite number {allowed}"));
        }
        Ok(())
    }
}

impl From<f64> for Schedule {
    fn from(value: f64) -> Self {
        Schedule::Constant(value)
    }
}

impl std::fmt::Display for Schedule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Schedule::Constant(value) => write!(f, "{value}"),
            Schedule::InverseTime(s) => write!(f, "{}/(1+{}k)", s.start, s.decay),
            Schedule::Polynomial(s) => write!(f, "{}(k+1)^{}", s.start, s.power),
            Schedule::Line(s) => write!(f, "{} to {}", s.start, s.end),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        assert_eq!(Schedule::from(0.1).at(99), 0.1);
        assert_eq!(Schedule::InverseTime(InverseTime { start: 0.15, decay: 1e-5 }).at(100_000), 0.075);
        assert_eq!(Schedule::Polynomial(Polynomial { start: 2.0, power: 0.5 }).at(8), 6.0);
        let line = Line { start: 1.0, end: 0.5, over: 4 };
        assert_eq!([0, 2, 4, 9].map(|k| Schedule::Line(line).at(k)), [1.0, 0.75, 0.5, 0.5]);
        for (wrong, word) in [(Line { over: 0, ..line }, "over"), (Line { end: 0.0, ..line }, "end")] {
            assert!(Schedule::Line(wrong).check("eta", false).unwrap_err().contains(word));
        }
        assert!(Schedule::from(0.0).check("eta_x", false).unwrap_err().contains("above 0"));
        assert!(Schedule::from(f64::NAN).check("eta_x", true).is_err());
        assert!(Schedule::from(0.0).check("eta_x", true).is_ok());
    }
}
