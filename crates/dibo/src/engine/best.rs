//! The state of the best evaluation: a run can end there instead of at its last iteration.
use super::{Outcome, Plan, Sample, restore};
use crate::algorithm::State;
use crate::error::{Error, Result};
use crate::problem::{Better, Bilevel};
use crate::rows::{Real, Rows};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// The state at the evaluation whose metric is best so far.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound = "T: Real")]
pub struct Best<'a, T: Clone> {
    /// Iterations done by then.
    pub k: usize,
    /// The metric.
    pub value: f64,
    /// The state's memory.
    pub memory: Vec<Cow<'a, [T]>>,
}

impl<T: Real> Best<'_, T> {
    /// The same without a copy.
    pub(super) fn borrowed(&self) -> Best<'_, T> {
        let memory = self.memory.iter().map(|m| Cow::Borrowed(m.as_ref())).collect();
        Best { k: self.k, value: self.value, memory }
    }

    /// The same with a copy of its own.
    pub(super) fn into_owned(self) -> Best<'static, T> {
        let memory = self.memory.into_iter().map(|m| Cow::Owned(m.into_owned())).collect();
        Best { k: self.k, value: self.value, memory }
    }
}

/// Keeps the best state, where the plan names a metric.
pub(super) struct Keeper<'a, T: Real> {
    /// The metric, and whether it is better when higher.
    metric: Option<(&'a str, bool)>,
    pub best: Option<Best<'static, T>>,
}

impl<'a, T: Real> Keeper<'a, T> {
    pub fn new(problem: &dyn Bilevel<T>, plan: &'a Plan, best: Option<Best<'static, T>>) -> Result<Self> {
        let Some(name) = plan.best.as_deref() else { return Ok(Keeper { metric: None, best: None }) };
        let known = problem.measures();
        let metric = known.iter().find(|m| m.name == name).map(|m| m.better);
        let higher = match metric {
            Some(Better::Neither) | None => {
                let names = known.iter().filter(|m| m.better != Better::Neither).map(|m| m.name);
                let names = names.collect::<Vec<_>>().join(", ");
                let what = format!("best is '{name}'; this problem has a better and a worse of {names}");
                return Err(Error::Invalid(what));
            }
            Some(better) => better == Better::Higher,
        };
        Ok(Keeper { metric: Some((name, higher)), best })
    }

    /// Looks at an evaluation. Of two that are alike the later has learned more; nothing is learned at 0.
    pub fn see(&mut self, sample: &Sample, state: &mut dyn State<T>) {
        let Some((name, higher)) = self.metric else { return };
        let Some(value) = sample.get(name).filter(|v| v.is_finite() && sample.k > 0) else { return };
        let behind = |b: &Best<'_, T>| if higher { value < b.value } else { value > b.value };
        if self.best.as_ref().is_some_and(behind) {
            return;
        }
        // The old one's memory is used again: a state can be large.
        let mut old = self.best.take().map_or_else(Vec::new, |best| best.memory).into_iter();
        let copy = |rows: &mut Rows<T>| {
            let mut numbers = old.next().map_or_else(Vec::new, Cow::into_owned);
            rows.copy_to(&mut numbers);
            Cow::Owned(numbers)
        };
        let memory = state.memory().into_iter().map(copy).collect();
        self.best = Some(Best { k: sample.k, value, memory });
    }

    /// Puts the state of a run that came to its end back to where it was best, and says when that was.
    pub fn go_back(self, outcome: Outcome, state: &mut dyn State<T>) -> Result<Option<usize>> {
        let ended = matches!(outcome, Outcome::Finished | Outcome::Reached(_));
        let Some(best) = self.best.filter(|_| ended) else { return Ok(None) };
        restore(state, &best.memory)?;
        Ok(Some(best.k))
    }
}
