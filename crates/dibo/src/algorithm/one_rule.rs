//! A single-level method that is one mixing rule: x moves by it along gradients.
use super::mixer::Mix;
use super::mover::Mover;
use super::{Descent, GraphNeeds, Method, Mixes, Oracle, View};
use crate::error::{Error, Result};
use crate::network::Network;
use crate::rows::{Real, Rows, Stack};
use crate::schedule::Schedule;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A mixing rule at work alone.
pub struct Gossip<T> {
    eta: Schedule,
    rows: Mover<T>,
}

/// A method that is one mixing rule.
pub trait OneRule: Clone + Serialize + DeserializeOwned + Send + Sync + 'static {
    /// The rule.
    fn rule(&self) -> Mix;
    /// The step.
    fn step(&self) -> Schedule;
    /// c of (1 − c) v + c W v.
    fn share(&self) -> Result<f64, String> {
        Ok(self.rule().share())
    }
}

impl<R: OneRule> Method for R {
    fn begin<T: Real>(
        &self,
        x: Stack<T, 1>,
        _blocks: usize,
        network: &mut dyn Network<T>,
        oracle: &mut Oracle<'_, T>,
    ) -> Result<Box<dyn Descent<T>>> {
        let share = self.share().map_err(Error::Invalid)?;
        Ok(Box::new(Gossip::begin(self.rule(), share, self.step(), x, network, oracle)?))
    }

    fn check(&self) -> Result<(), String> {
        self.share()?;
        self.step().check("eta", false)
    }

    fn mixes(&self) -> Mixes {
        self.rule().mixes()
    }

    fn graph_needs(&self) -> GraphNeeds {
        Mix::needs_of(&[self.rule()])
    }

    fn rounds(&self) -> usize {
        self.rule().rounds()
    }

    fn vectors(&self, _blocks: usize) -> usize {
        2 + self.rule().vectors()
    }

    fn eta(&self, k: usize) -> f64 {
        self.step().at(k)
    }
}

impl<T: Real> Gossip<T> {
    /// At x, with the first gradients.
    pub fn begin(
        mix: Mix,
        share: f64,
        eta: Schedule,
        x: Stack<T, 1>,
        network: &mut dyn Network<T>,
        oracle: &mut Oracle<'_, T>,
    ) -> Result<Self> {
        let mut rows = Mover::new(mix, share, x);
        oracle(network, 0, &rows.v, &mut rows.d)?;
        rows.renewed();
        Ok(Gossip { eta, rows })
    }
}

impl<T: Real> Descent<T> for Gossip<T> {
    fn step(&mut self, k: usize, network: &mut dyn Network<T>, oracle: &mut Oracle<'_, T>) -> Result<()> {
        let Self { eta, rows } = self;
        rows.go(k, eta.at(k), network)?;
        oracle(network, k + 1, &rows.v, &mut rows.d)?;
        rows.renewed();
        Ok(())
    }

    fn point(&self) -> &Stack<T, 1> {
        &self.rows.v
    }

    fn views(&mut self) -> Vec<View<'_, T>> {
        self.rows.views(["x", "tx", "dx"])
    }

    fn memory(&mut self) -> Vec<&mut Rows<T>> {
        self.rows.memory()
    }
}
