//! A run in a few words: problem, algorithm, graphs, iterations.
use super::{Plan, Record, drive};
use crate::algorithm::{Algorithm, State, View};
use crate::error::Result;
use crate::graph::{Cycle, GraphSequence, Loss};
use crate::mixing::Sequence;
use crate::network::{Lossy, Network, Simulator};
use crate::problem::{Bilevel, Start};
use crate::rows::{Real, Threads};

/// A run of an algorithm on a problem, all agents in this process. Whatever is not said has a sound default:
/// the paper's graphs, the problem's own start, 1000 iterations, one thread.
///
/// ```
/// use dibo::{Run, algorithm::fab::Fab, graph::Cycle, problem::PolicyEvaluation};
///
/// # fn main() -> dibo::Result<()> {
/// let problem = PolicyEvaluation::random(10, 20, 5, 0).normalised();
/// let fab = Fab { lambda: 60.0.into(), ..Fab::normalised(0.1) };
/// let end = Run::new(&problem, &fab).graphs(Cycle::new(10, 0.3, 0)).iterations(6000).run()?;
/// assert!(end.record.last("relative_error").unwrap() < 0.05);
/// assert_eq!(end.rows("x").unwrap().len(), 10);
/// # Ok(())
/// # }
/// ```
pub struct Run<'a, T: Real> {
    problem: &'a dyn Bilevel<T>,
    algorithm: &'a dyn Algorithm<T>,
    mixing: Option<Sequence>,
    loss: Option<Loss>,
    start: Option<&'a Start>,
    seed: u64,
    threads: usize,
    plan: Plan,
}

impl<'a, T: Real> Run<'a, T> {
    /// This algorithm on this problem.
    pub fn new<P: Bilevel<T>, A: Algorithm<T>>(problem: &'a P, algorithm: &'a A) -> Self {
        Run {
            problem,
            algorithm,
            mixing: None,
            loss: None,
            start: None,
            seed: 0,
            threads: 1,
            plan: Plan { iterations: 1000, every: 20, target: None, diverged_above: 1e3, best: None },
        }
    }

    /// Over these graphs, with uniform weights.
    pub fn graphs(mut self, graphs: impl GraphSequence + 'static) -> Self {
        self.mixing = Some(Sequence::uniform(graphs));
        self
    }

    /// Over graphs with weights of their own.
    pub fn mixing(mut self, mixing: Sequence) -> Self {
        self.mixing = Some(mixing);
        self
    }

    /// Over links that lose messages for good.
    pub fn loss(mut self, loss: Loss) -> Self {
        self.loss = Some(loss);
        self
    }

    /// The seed of the default graphs.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// From here instead of the problem's own start.
    pub fn start(mut self, start: &'a Start) -> Self {
        self.start = Some(start);
        self
    }

    /// At most so many iterations.
    pub fn iterations(mut self, iterations: usize) -> Self {
        self.plan.iterations = iterations;
        self
    }

    /// Metrics are computed after each so many iterations.
    pub fn every(mut self, every: usize) -> Self {
        self.plan.every = every;
        self
    }

    /// Stop when this metric is better than this value.
    pub fn target(mut self, metric: &str, value: f64) -> Self {
        self.plan.target = Some((metric.into(), value));
        self
    }

    /// On so many threads.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Runs.
    pub fn run(self) -> Result<End<T>> {
        let threads = Threads::new(self.threads);
        let default = || Sequence::uniform(Cycle::new(self.problem.agents(), 0.3, self.seed));
        let mixing = self.mixing.unwrap_or_else(default);
        mixing.check(self.algorithm.graph_needs())?;
        let mut network: Box<dyn Network<T>> = match self.loss {
            Some(loss) => Box::new(Lossy::new(mixing, loss, threads)),
            None => Box::new(Simulator::new(mixing, threads)),
        };
        let Run { problem, algorithm, start, plan, .. } = self;
        let (record, state) = drive(algorithm, problem, &mut *network, start, &plan, None, &mut ())?;
        Ok(End { record, state: std::cell::RefCell::new(state) })
    }
}

/// How a run ended, and where.
pub struct End<T> {
    /// Outcome and metrics along the run.
    pub record: Record,
    state: std::cell::RefCell<Box<dyn State<T>>>,
}

impl<T: Real> End<T> {
    /// The agents' mean of a variable (`x`, `y`, …); `None` if there is no such variable or agents have
    /// different numbers of entries.
    pub fn mean(&self, name: &str) -> Option<Vec<f64>> {
        self.view(name, |v| v.mean()).flatten()
    }

    /// A variable of every agent.
    pub fn rows(&self, name: &str) -> Option<Vec<Vec<T>>> {
        self.view(name, |v| v.to_vecs())
    }

    fn view<R>(&self, name: &str, with: impl FnOnce(&View<'_, T>) -> R) -> Option<R> {
        self.state.borrow_mut().views().iter().find(|v| v.name == name).map(with)
    }
}
