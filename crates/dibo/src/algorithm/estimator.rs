//! How noise is treated: what a variable moves along, made of the directions it has seen.
use super::loops::check_share;
use super::stacks::like;
use crate::rows::{Real, Stack, Threads};
use crate::schedule::Schedule;

/// An estimator of one variable.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Estimator {
    /// The direction itself.
    #[default]
    Plain,
    /// m⁺ = (1 − θ) m + θ d.
    Momentum {
        /// θ.
        theta: f64,
        /// m is used one iteration late.
        late: bool,
        /// m⁰ is the first direction, not 0.
        warm: bool,
    },
    /// m⁺ = (1 − a)(m + d − d₋) + a d, with d₋ at the previous point and the present sample.
    Storm {
        /// a, which may fall: the noise of m then goes to 0.
        a: Schedule,
    },
}

impl Estimator {
    /// Says which number is out of range.
    pub fn check(&self) -> Result<(), String> {
        match self {
            Estimator::Plain => Ok(()),
            Estimator::Momentum { theta, .. } => check_share("theta", *theta),
            Estimator::Storm { a } => a.check("a", false).and_then(|()| check_share("a", a.at(0))),
        }
    }

    /// Whether it is STORM.
    pub fn looks_back(&self) -> bool {
        matches!(self, Estimator::Storm { .. })
    }
}

/// The memory of the estimators of x, y and z.
pub struct Estimates<T> {
    kinds: [Estimator; 3],
    /// m.
    pub m: Stack<T, 3>,
    /// d₋, where STORM asks for it.
    pub back: Option<Stack<T, 3>>,
}

impl<T: Real> Estimates<T> {
    /// For a stack of this shape; `None` where all are plain.
    pub fn new(kinds: [Estimator; 3], shape: &Stack<T, 3>) -> Option<Self> {
        let zero = like(shape);
        let back = kinds.iter().any(Estimator::looks_back).then(|| zero.clone());
        let all_plain = kinds.iter().all(|kind| *kind == Estimator::Plain);
        (!all_plain).then_some(Estimates { kinds, m: zero, back })
    }

    /// Whether a variable moves along its direction itself.
    pub fn plain(&self, variable: usize) -> bool {
        self.kinds[variable] == Estimator::Plain
    }

    /// Makes of the fresh directions d of these variables what they move along.
    pub fn take(&mut self, k: usize, only: Option<usize>, d: &mut Stack<T, 3>, threads: &Threads) {
        let Self { kinds, m, back } = self;
        for (v, kind) in kinds.iter().enumerate().filter(|(v, _)| only.is_none_or(|only| only == *v)) {
            match (*kind, back.as_ref()) {
                (Estimator::Plain, _) => {}
                (Estimator::Momentum { theta, late, warm }, _) => {
                    m.momentum(v, d, (if k == 0 && warm { 1.0 } else { theta }, late), threads);
                }
                (Estimator::Storm { a }, Some(back)) if k > 0 => {
                    m.storm(v, d, (1.0 - a.at(k).min(1.0), back), threads);
                }
                // m⁰ is the first direction.
                (Estimator::Storm { .. }, _) => m.momentum(v, d, (1.0, false), threads),
            }
        }
    }
}
