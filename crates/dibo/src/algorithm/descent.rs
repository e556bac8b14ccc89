//! What the single-level methods have in common: they move one variable along gradients that someone else
//! computes. So the same file serves alone (on a single-level objective) and inside the double loop (on g for
//! y, on the hypergradient for x).
use super::{Algorithm, Needs, State, View, at, fill};
use crate::network::Network;
use crate::problem::{Bilevel, Start};
use crate::rows::{Real, Rows, Stack, Upper};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Writes gradients at the given points with sample `k`: `oracle(network, k, points, gradients)`.
pub type Oracle<'a, T> = dyn FnMut(&mut dyn Network<T>, usize, &Stack<T, 1>, &mut Stack<T, 1>) + 'a;

/// Parameters of a method that moves one variable.
pub trait Method: Clone + Serialize + DeserializeOwned + Send + Sync + 'static {
    /// Prepares its state at `x`. A method with memory of past gradients keeps one for each of `blocks` parts
    /// of the data.
    fn begin<T: Real>(
        &self,
        x: Stack<T, 1>,
        blocks: usize,
        network: &mut dyn Network<T>,
        oracle: &mut Oracle<'_, T>,
    ) -> Box<dyn Descent<T>>;
    /// Says which parameter is out of range.
    fn check(&self) -> Result<(), String>;
    /// The step at iteration k.
    fn eta(&self, k: usize) -> f64;
}

/// A method at work.
pub trait Descent<T: Real>: Send {
    /// Iteration `k`, over the links of the network's next round.
    fn step(&mut self, k: usize, network: &mut dyn Network<T>, oracle: &mut Oracle<'_, T>);
    /// Where the agents are.
    fn point(&self) -> &Stack<T, 1>;
    /// The variable, and with it trackers and weights, under the paper's names.
    fn views(&mut self) -> Vec<View<'_, T>>;
    /// All memory.
    fn memory(&mut self) -> Vec<&mut Rows<T>>;
}

/// A method on the problem's single-level objective.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Single<M>(pub M);

struct SingleState<T>(Box<dyn Descent<T>>);

fn gradients<T: Real>(
    problem: &dyn Bilevel<T>,
) -> impl FnMut(&mut dyn Network<T>, usize, &Stack<T, 1>, &mut Stack<T, 1>) {
    let objective = problem.single_level().expect("checked before the run");
    move |network, k, x, d| objective.gradients(at(k, network), x, d)
}

impl<T: Real, M: Method> Algorithm<T> for Single<M> {
    fn start(
        &self,
        problem: &dyn Bilevel<T>,
        network: &mut dyn Network<T>,
        start: &Start,
    ) -> Box<dyn State<T>> {
        let objective = problem.single_level().expect("checked before the run");
        let mut x = Stack::zeros(network.owned().len(), &Upper::Shared(objective.width()), &[]);
        fill(network, &mut x, [objective.start_from(start)]);
        Box::new(SingleState(self.0.begin(x, objective.blocks(), network, &mut gradients(problem))))
    }

    fn check(&self) -> Result<(), String> {
        self.0.check()
    }

    fn needs(&self) -> Needs {
        Needs::SingleLevel
    }

    fn single_step(&self, k: usize) -> Option<f64> {
        Some(self.0.eta(k))
    }
}

impl<T: Real> State<T> for SingleState<T> {
    fn step(&mut self, k: usize, problem: &dyn Bilevel<T>, network: &mut dyn Network<T>) {
        self.0.step(k, network, &mut gradients(problem));
    }

    fn views(&mut self) -> Vec<View<'_, T>> {
        self.0.views()
    }

    fn memory(&mut self) -> Vec<&mut Rows<T>> {
        self.0.memory()
    }
}
