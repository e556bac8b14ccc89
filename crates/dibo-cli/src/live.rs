//! The page that watches a run or a launch: where it is served, and the graph of the moment that it shows.
use anyhow::Result;
use dibo::mixing::Sequence;
use dibo_report::live::{Live, Network, Server, Wishes};
use dibo_run::{Experiment, runner, say, stop};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

/// Serves the page that watches, and says where.
pub fn watched(experiment: &Experiment, threads: usize, out: &Path) -> Result<(Arc<Live>, Server)> {
    let manifest = runner::before(experiment, threads, SystemTime::now());
    let wishes = Wishes { stop: Box::new(stop::ask), keep: Box::new(stop::ask_to_keep) };
    let live = Arc::new(Live::new(manifest, wishes));
    let server = Server::start(live.clone(), out)?;
    say!("live page, for this machine and who has the address: {}", server.address());
    Ok((live, server))
}

/// The graphs of an experiment's runs, those of the run that was looked at last kept.
pub struct Graphs {
    experiment: Arc<Experiment>,
    last: Mutex<Option<((usize, u64), Sequence)>>,
}

impl Graphs {
    /// Of nothing yet.
    pub fn new(experiment: Arc<Experiment>) -> Self {
        Graphs { experiment, last: Mutex::new(None) }
    }

    /// Who sends to whom in one run's graph of this number.
    pub fn links(&self, s: usize, seed: u64, number: usize) -> Option<(usize, Vec<(usize, usize)>)> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.as_ref().is_none_or(|(of, _)| *of != (s, seed)) {
            let graphs = self.experiment.settings.get(s)?.graphs(seed, &self.experiment.folder);
            *last = Some(((s, seed), graphs.ok()?));
        }
        let (_, sequence) = last.as_ref()?;
        Some((sequence.agents(), sequence.graphs().at(number).edges().collect()))
    }

    /// The graph that a run in this process uses now.
    pub fn of_run(&self, s: usize, seed: u64, iteration: usize) -> Option<Network> {
        let (agents, links) = self.links(s, seed, iteration)?;
        let label = &self.experiment.settings.get(s)?.series.label;
        Some(Network::new(agents, format!("{label}, seed {seed}, iteration {iteration}"), links))
    }
}
