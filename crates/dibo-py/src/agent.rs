//! Some agents of a problem in this process, the others elsewhere on the network.
use crate::graph::Graph;
use crate::keep::Keep;
use crate::memory::Number;
use crate::oracle::{Oracle, raised};
use crate::solve::{Asked, Done, Stop, algorithm, drive, result};
use dibo::Error;
use dibo::algorithm::Algorithm;
use dibo::engine::Plan;
use dibo::mixing::Sequence;
use dibo::problem::Bilevel;
use dibo::rows::{Threads, View};
use dibo_net::agents::{Agents, Links, Shared, lock};
use dibo_net::certificates::Subject;
use dibo_net::gather;
use dibo_net::identity::Certificate;
use dibo_net::keys::Identity;
use dibo_net::node::{Node, Settings};
use dibo_net::wire::{Endpoints, Role, Tls, Wire, close};
use pyo3::exceptions::{PyKeyboardInterrupt, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

/// How often Ctrl-C is looked for, and others are answered while this process computes.
const LOOK: Duration = Duration::from_millis(20);

/// Where the others are, and what all must have in common.
struct Meeting {
    endpoints: Endpoints,
    settings: Settings,
    links: Links,
}

fn failed(what: impl std::fmt::Display) -> PyErr {
    PyRuntimeError::new_err(what.to_string())
}

/// Makes a test authority and certificates of these hosts in a folder, each with the agents that it may speak
/// for: first and last of every range.
#[pyfunction]
pub fn certificates(
    folder: PathBuf,
    hosts: Vec<(String, Vec<(usize, usize)>)>,
    days: u64,
) -> PyResult<Vec<PathBuf>> {
    let hosts: Vec<Subject> = hosts.into_iter().map(|(host, agents)| Subject { host, agents }).collect();
    // A little earlier, for clocks that are not quite right.
    let from = SystemTime::now() - Duration::from_secs(3600);
    dibo_net::certificates::make(&folder, &hosts, from, days).map_err(PyValueError::new_err)
}

/// Runs the agents `own` of a problem; the processes of all others must run the same (`digest`).
#[pyfunction]
#[pyo3(signature = (problem, algorithm, parameters, graph, *, own, listen, connect, tls, insecure, network,
    digest, patience, iterations, every, threads = 1, single = false))]
#[expect(clippy::too_many_arguments, reason = "keywords of a Python function")]
pub fn agent<'py>(
    py: Python<'py>,
    problem: &Bound<'py, PyAny>,
    algorithm: &str,
    parameters: &str,
    graph: &str,
    own: Vec<usize>,
    listen: Vec<String>,
    connect: Vec<String>,
    tls: Option<(PathBuf, String)>,
    insecure: bool,
    network: String,
    digest: [u8; 32],
    patience: f64,
    iterations: usize,
    every: usize,
    threads: usize,
    single: bool,
) -> PyResult<Bound<'py, PyDict>> {
    let (algorithm, graph) = (self::algorithm(algorithm, parameters)?, Graph::read(graph)?);
    let sequence = graph.build(iterations)?;
    let tls = tls.map(|(folder, host)| Tls::in_folder(&folder, &host));
    let identity = tls.as_ref().map(Certificate::read).transpose().map_err(PyValueError::new_err)?;
    let endpoints = Endpoints { listen, connect, role: Role::Peer, tls, insecure, network };
    endpoints.check().map_err(PyValueError::new_err)?;
    let age = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
    let settings = Settings {
        patience: Duration::try_from_secs_f64(patience).map_err(failed)?,
        // Without checkpoints nobody can come back.
        returns: false,
        identity: identity.map(|certificate| Arc::new(certificate) as Arc<dyn Identity>),
        ..Settings::new(sequence.agents(), own, digest, 0, age)
    };
    let meeting = Meeting { endpoints, settings, links: Links { loss: graph.loss()?, wait: None } };
    let plan = Plan { iterations, every, target: None, diverged_above: f64::MAX, best: None };
    let stop = Stop::default();
    let asked = Asked { plan, start: None, threads, progress: None, stop: Some(stop) };
    let keep = Keep::default();
    let done = if single {
        let oracle = Oracle::<f32>::new(problem, Some(&keep))?;
        beside::<f32>(py, &*algorithm, &oracle, sequence, meeting, asked, &keep)?
    } else {
        let oracle = Oracle::<f64>::new(problem, Some(&keep))?;
        beside::<f64>(py, &*algorithm, &oracle, sequence, meeting, asked, &keep)?
    };
    result(py, done)
}

/// Works on another thread while this one, which alone may be Python's main one, looks for Ctrl-C.
fn beside<T: Number>(
    py: Python<'_>,
    algorithm: &dyn Algorithm<T>,
    problem: &dyn Bilevel<T>,
    sequence: Sequence,
    meeting: Meeting,
    asked: Asked,
    keep: &Keep,
) -> PyResult<Done> {
    let stop = asked.stop.clone().unwrap_or_default();
    let finished = AtomicBool::new(false);
    py.detach(|| {
        std::thread::scope(|scope| {
            let work = scope.spawn(|| {
                let done = meet_and_run(algorithm, problem, sequence, meeting, asked, keep);
                finished.store(true, Relaxed);
                done
            });
            while !finished.load(Relaxed) && !work.is_finished() {
                std::thread::sleep(LOOK);
                if Python::attach(|py| py.check_signals()).is_err() {
                    stop.store(true, Relaxed);
                }
            }
            work.join().unwrap_or_else(|_| Err("the run broke off; its message is above".into()))
        })
    })
    .map_err(|what| match stop.load(Relaxed) {
        true => PyKeyboardInterrupt::new_err(what),
        false => failed(what),
    })
}

fn meet_and_run<T: Number>(
    algorithm: &dyn Algorithm<T>,
    problem: &dyn Bilevel<T>,
    sequence: Sequence,
    meeting: Meeting,
    asked: Asked,
    keep: &Keep,
) -> Result<Done, String> {
    let Meeting { endpoints, settings, links } = meeting;
    let (own, agents, me) = (settings.owned.clone(), settings.agents, settings.owned[0] as u32);
    let session = endpoints.open()?;
    let wire = Wire::new(&session, &endpoints.network, Role::Peer, me)?;
    let stop = asked.stop.clone().unwrap_or_default();
    let node: Shared = Arc::new(Mutex::new(Node::new(Box::new(wire), settings, stop.clone(), warn)));
    serve(&node);
    lock(&node).meet()?;
    let network = Agents::new(node.clone(), sequence, own, links, Threads::new(asked.threads));
    let gatherer = node.clone();
    let mut measure = move |k: usize, problem: &dyn Bilevel<T>, views: &[View<'_, T>]| {
        gather::values(&gatherer, k, agents, problem, views, false)
    };
    let mut done = drive(algorithm, problem, network, &mut measure, asked, keep);
    // The others may still need this process; if they end badly, what it has done is handed over with it.
    if done.failure().is_none()
        && let Err(why) = lock(&node).finish()
    {
        done.fail(Error::Network(why));
    }
    // Where it waits for others, it is the network that notices Ctrl-C.
    if stop.load(Relaxed) && matches!(done.failure(), Some(Error::Network(_))) {
        done.fail(raised(PyKeyboardInterrupt::new_err("asked to stop")));
    }
    if let Some(error) = done.failure() {
        // The others hear why at once, instead of waiting in vain.
        lock(&node).give_up(format!("agent {me} cannot go on: {error}"));
    }
    drop(node);
    close(session);
    Ok(done)
}

/// What a person should know of the network goes to Python's `logging`.
fn warn(what: &str) {
    let said = Python::attach(|py| -> PyResult<()> {
        let logger = py.import("logging")?.call_method1("getLogger", ("dibo",))?;
        logger.call_method1("warning", ("%s", what)).map(drop)
    });
    // A handler that raises must not end the run.
    said.unwrap_or_else(|error| Python::attach(|py| error.write_unraisable(py, None)));
}

/// Answers others while this process computes.
fn serve(node: &Shared) {
    let node = Arc::downgrade(node);
    std::thread::spawn(move || {
        while let Some(node) = node.upgrade() {
            if let Ok(mut node) = node.try_lock() {
                node.pump(Duration::ZERO);
            }
            drop(node);
            std::thread::sleep(LOOK);
        }
    });
}
