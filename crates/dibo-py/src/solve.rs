//! A run: the engine works without Python's lock, looks for Ctrl-C, and keeps what is done whatever happens.
use crate::device;
use crate::graph::Graph;
use crate::keep::{Keep, Lender};
use crate::memory::{Number, shown};
use crate::oracle::{NotFinite, Oracle, exception, name, raised, rows};
use crate::problems::Builtin;
use dibo::algorithm::{Algorithm, AnyAlgorithm, GraphNeeds, Mixes, Needs, Parameters, State, Vectors};
use dibo::engine::{self, Outcome, Plan, Sample, Watch};
use dibo::metrics::{Values, evaluate};
use dibo::network::{Lossy, Network, Simulator, Wishes};
use dibo::problem::{Bilevel, Start};
use dibo::rows::{Rows, Threads, View};
use dibo::{Error, Result, trace};
use numpy::{PyArray1, PyReadonlyArray2};
use pyo3::exceptions::{PyKeyboardInterrupt, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often a run looks for Ctrl-C and shows how far it is.
const LOOK: Duration = Duration::from_millis(25);

/// Between two looks at the clock: an iteration may take less than a microsecond.
const STEPS: usize = 32;

fn invalid(what: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(what.to_string())
}

/// What is kept of a run: evaluations, and the variables where it ended.
#[derive(Default)]
struct Kept {
    samples: Vec<Sample>,
    k: usize,
    views: Vec<(&'static str, Py<PyAny>)>,
}

#[derive(Clone)]
struct Shared {
    kept: Arc<Mutex<Kept>>,
    keep: Keep,
}

impl Shared {
    fn with<R>(&self, with: impl FnOnce(&mut Kept) -> R) -> R {
        with(&mut self.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Copies the variables, or lends them where they lie on a GPU; one that has failed has none.
    fn save<T: Number>(&self, k: Option<usize>, views: &[View<'_, T>]) {
        let views = Python::attach(|py| -> PyResult<Vec<_>> {
            let lender = Bound::new(py, Lender::new(&self.keep))?;
            views.iter().map(|v| Ok((v.name, shown(&lender, v)?))).collect()
        })
        .unwrap_or_default();
        self.with(|kept| {
            kept.views = views;
            kept.k = k.unwrap_or(kept.k);
        });
    }
}

/// The wish to stop of whoever watches from another thread.
pub type Stop = Arc<AtomicBool>;

/// An algorithm whose state is looked after: Ctrl-C is seen between iterations, and what a failed iteration
/// leaves is kept.
struct Watched<'a, T> {
    inner: &'a dyn Algorithm<T>,
    kept: Shared,
    keep: Keep,
    stop: Option<Stop>,
}

impl<T: Number> Parameters for Watched<'_, T> {
    fn check(&self) -> Result<(), String> {
        self.inner.check()
    }

    fn needs(&self) -> Needs {
        self.inner.needs()
    }

    fn mixes(&self) -> Mixes {
        self.inner.mixes()
    }

    fn graph_needs(&self) -> GraphNeeds {
        self.inner.graph_needs()
    }

    fn rounds(&self) -> usize {
        self.inner.rounds()
    }

    fn wishes(&self) -> Wishes {
        self.inner.wishes()
    }

    fn vectors(&self, blocks: usize) -> Vectors {
        self.inner.vectors(blocks)
    }
}

impl<T: Number> Algorithm<T> for Watched<'_, T> {
    fn start(
        &self,
        problem: &dyn Bilevel<T>,
        network: &mut dyn Network<T>,
        start: Option<&Start>,
    ) -> Result<Box<dyn State<T>>> {
        let inner = Some(self.inner.start(problem, network, start)?);
        let (kept, keep, stop) = (self.kept.clone(), self.keep.clone(), self.stop.clone());
        Ok(Box::new(WatchedState { stop, inner, kept, keep, looked: Instant::now(), steps: 0 }))
    }
}

struct WatchedState<T: Number> {
    stop: Option<Stop>,
    inner: Option<Box<dyn State<T>>>,
    kept: Shared,
    keep: Keep,
    looked: Instant,
    steps: usize,
}

impl<T: Number> WatchedState<T> {
    fn inner(&mut self) -> &mut dyn State<T> {
        &mut **self.inner.as_mut().expect("there until it is dropped")
    }

    /// Lets Python's own handlers see the signals that have come.
    fn look(&mut self) -> Result<()> {
        self.steps += 1;
        if self.stop.as_ref().is_some_and(|stop| stop.load(Relaxed)) {
            return Err(raised(PyKeyboardInterrupt::new_err(())));
        }
        if !self.steps.is_multiple_of(STEPS) || self.looked.elapsed() < LOOK {
            return Ok(());
        }
        self.looked = Instant::now();
        Python::attach(|py| py.check_signals()).map_err(raised)
    }
}

impl<T: Number> State<T> for WatchedState<T> {
    fn step(&mut self, k: usize, problem: &dyn Bilevel<T>, network: &mut dyn Network<T>) -> Result<()> {
        let done = self.look().and_then(|()| self.inner().step(k, problem, network));
        if done.is_err() {
            let kept = self.kept.clone();
            kept.save(Some(k), &self.inner().views());
        }
        done
    }

    fn views(&mut self) -> Vec<View<'_, T>> {
        self.inner().views()
    }

    fn memory(&mut self) -> Vec<&mut Rows<T>> {
        self.inner().memory()
    }
}

/// Arrays that were lent may be alive still: then so is what they were lent from.
impl<T: Number> Drop for WatchedState<T> {
    fn drop(&mut self) {
        self.keep.put(self.inner.take());
    }
}

/// How the metrics of a state are found.
pub type Measure<'a, T> =
    dyn FnMut(usize, &dyn Bilevel<T>, &[View<'_, T>]) -> Result<Vec<(String, f64)>> + Send + 'a;

/// The metrics where all agents are in this process.
pub fn measure<T: Number>(
    _k: usize,
    problem: &dyn Bilevel<T>,
    views: &[View<'_, T>],
) -> Result<Vec<(String, f64)>> {
    Ok(evaluate(problem, views)?.into_iter().map(|(name, value)| (name.to_string(), value)).collect())
}

struct Watcher<'a, T> {
    measure: &'a mut Measure<'a, T>,
    kept: Shared,
    progress: Option<Py<PyAny>>,
    shown: Instant,
}

impl<T: Number> Watch<T> for Watcher<'_, T> {
    fn values(
        &mut self,
        k: usize,
        problem: &dyn Bilevel<T>,
        views: &[View<'_, T>],
    ) -> Result<Vec<(String, f64)>> {
        let values = (self.measure)(k, problem, views);
        if values.is_err() {
            self.kept.save(Some(k), views);
        }
        values
    }

    fn sample(&mut self, sample: &Sample) {
        self.kept.with(|kept| {
            kept.k = sample.k;
            kept.samples.push(sample.clone());
        });
    }

    fn measure(&mut self, k: usize, views: &[View<'_, T>]) -> Result<(Values, Option<String>)> {
        if self.shown.elapsed() < LOOK {
            return Ok(Default::default());
        }
        self.shown = Instant::now();
        let looked = Python::attach(|py| {
            py.check_signals()?;
            self.progress.as_ref().map_or(Ok(()), |show| show.call1(py, (k,)).map(|_| ()))
        });
        if looked.is_err() {
            self.kept.save(Some(k), views);
        }
        looked.map_err(raised)?;
        Ok(Default::default())
    }

    fn finished(&mut self, views: &[View<'_, T>]) {
        self.kept.save(None, views);
    }
}

/// What a caller says about a run.
pub struct Asked {
    /// How to go.
    pub plan: Plan,
    /// Where to begin, if not where the problem says.
    pub start: Option<Start>,
    /// Threads to use.
    pub threads: usize,
    /// Told how far it is.
    pub progress: Option<Py<PyAny>>,
    /// Asked to stop from elsewhere.
    pub stop: Option<Stop>,
}

impl Done {
    /// Why it failed, if it did.
    #[cfg(feature = "net")]
    pub fn failure(&self) -> Option<&Error> {
        self.outcome.as_ref().err()
    }

    /// What was done is kept, and the run has failed.
    #[cfg(feature = "net")]
    pub fn fail(&mut self, error: Error) {
        self.outcome = Err(error);
    }
}

/// Everything that comes out of a run.
pub struct Done {
    kept: Kept,
    outcome: Result<(Outcome, u64)>,
}

/// Runs over a network and keeps what is done.
pub fn drive<'a, T: Number, N: Network<T> + Send + 'static>(
    algorithm: &dyn Algorithm<T>,
    problem: &dyn Bilevel<T>,
    mut network: N,
    measure: &'a mut Measure<'a, T>,
    asked: Asked,
    keep: &Keep,
) -> Done {
    let kept = Shared { kept: Arc::default(), keep: keep.clone() };
    let watched = Watched { inner: algorithm, kept: kept.clone(), keep: keep.clone(), stop: asked.stop };
    let mut watch = Watcher { measure, kept: kept.clone(), progress: asked.progress, shown: Instant::now() };
    let record =
        engine::run(&watched, problem, &mut network, asked.start.as_ref(), &asked.plan, None, &mut watch);
    keep.put(network);
    let outcome = record.map(|record| (record.outcome, record.state_bytes));
    Done { kept: kept.with(std::mem::take), outcome }
}

fn go<T: Number>(
    py: Python<'_>,
    algorithm: &dyn Algorithm<T>,
    problem: &dyn Bilevel<T>,
    graph: &Graph,
    asked: Asked,
    keep: &Keep,
) -> PyResult<Done> {
    let (sequence, loss) = (graph.build(asked.plan.iterations)?, graph.loss()?);
    let threads = Threads::new(asked.threads);
    Ok(py.detach(|| match loss {
        Some(loss) => {
            drive(algorithm, problem, Lossy::new(sequence, loss, threads), &mut measure, asked, keep)
        }
        None => drive(algorithm, problem, Simulator::new(sequence, threads), &mut measure, asked, keep),
    }))
}

/// The same with all rows on a GPU.
#[cfg(feature = "cuda")]
fn go_on_device(
    py: Python<'_>,
    ordinal: usize,
    algorithm: &dyn Algorithm<f32>,
    problem: &dyn Bilevel<f32>,
    graph: &Graph,
    asked: Asked,
    keep: &Keep,
) -> PyResult<Done> {
    let (sequence, loss) = (graph.build(asked.plan.iterations)?, graph.loss()?);
    if loss.is_some() {
        return Err(invalid("links that lose messages are not simulated on a GPU; give device='cpu'"));
    }
    py.detach(|| {
        let gpu = device::open(ordinal)?;
        let network = device::DeviceNetwork::new(&gpu, sequence, Threads::new(asked.threads));
        let done = drive(algorithm, problem, network, &mut measure, asked, keep);
        // What is lent may be read in any stream from now on.
        gpu.synchronize();
        Ok(done)
    })
}

/// Says that there is no GPU.
#[cfg(not(feature = "cuda"))]
fn go_on_device(
    _py: Python<'_>,
    ordinal: usize,
    _algorithm: &dyn Algorithm<f32>,
    _problem: &dyn Bilevel<f32>,
    _graph: &Graph,
    _asked: Asked,
    _keep: &Keep,
) -> PyResult<Done> {
    Err(device::gpu(ordinal).err().unwrap_or_else(|| invalid("there is no GPU")))
}

/// An algorithm by its name with parameters as JSON.
pub fn algorithm(name: &str, parameters: &str) -> PyResult<Box<dyn AnyAlgorithm>> {
    let parameters = serde_json::from_str(parameters).map_err(invalid)?;
    let algorithm = trace::algorithm(name, parameters).map_err(invalid)?;
    let checked: &dyn Algorithm<f64> = &*algorithm;
    checked.check().map_err(invalid)?;
    Ok(algorithm)
}

/// Refuses an algorithm whose parameters are wrong.
#[pyfunction]
pub fn check(name: &str, parameters: &str) -> PyResult<()> {
    algorithm(name, parameters).map(|_| ())
}

/// What an algorithm says of itself: what it needs, how it mixes.
#[pyfunction]
pub fn describe(name: &str, parameters: &str) -> PyResult<(&'static str, String)> {
    let algorithm = algorithm(name, parameters)?;
    let parameters: &dyn Algorithm<f64> = &*algorithm;
    Ok((parameters.needs().words(), format!("{:?}", parameters.mixes())))
}

/// Runs an algorithm on a problem over a network, all agents in this process.
#[pyfunction]
#[pyo3(signature = (problem, algorithm, parameters, graph, *, iterations, every, target = None,
    diverged_above = 1e3, threads = 1, start_x = None, start_y = None, progress = None, single = false,
    device = None))]
#[expect(clippy::too_many_arguments, reason = "keywords of a Python function")]
pub fn solve<'py>(
    py: Python<'py>,
    problem: &Bound<'py, PyAny>,
    algorithm: &str,
    parameters: &str,
    graph: &str,
    iterations: usize,
    every: usize,
    target: Option<(String, f64)>,
    diverged_above: f64,
    threads: usize,
    start_x: Option<PyReadonlyArray2<'py, f64>>,
    start_y: Option<PyReadonlyArray2<'py, f64>>,
    progress: Option<Py<PyAny>>,
    single: bool,
    device: Option<usize>,
) -> PyResult<Bound<'py, PyDict>> {
    if !(1..=1024).contains(&threads) {
        return Err(invalid(format!("threads is {threads}; it must be between 1 and 1024")));
    }
    let (algorithm, graph) = (self::algorithm(algorithm, parameters)?, Graph::read(graph)?);
    let start = (start_x.is_some() || start_y.is_some()).then(|| Start {
        x: start_x.as_ref().map(rows).unwrap_or_default(),
        y: start_y.as_ref().map(rows).unwrap_or_default(),
        ..Start::default()
    });
    let plan = Plan { iterations, every, target, diverged_above, best: None };
    let asked = Asked { plan, start, threads, progress, stop: None };
    let keep = Keep::default();
    let done = if let Ok(builtin) = problem.cast::<Builtin>() {
        go::<f64>(py, &*algorithm, &*builtin.get().0, &graph, asked, &keep)?
    } else if let Some(ordinal) = device {
        let oracle = Oracle::<f32>::new(problem, Some(&keep))?;
        go_on_device(py, ordinal, &*algorithm, &oracle, &graph, asked, oracle.keep())?
    } else if single {
        let oracle = Oracle::<f32>::new(problem, Some(&keep))?;
        go::<f32>(py, &*algorithm, &oracle, &graph, asked, oracle.keep())?
    } else {
        let oracle = Oracle::<f64>::new(problem, Some(&keep))?;
        go::<f64>(py, &*algorithm, &oracle, &graph, asked, oracle.keep())?
    };
    result(py, done)
}

/// The columns of all evaluations, the variables at the end, and how it ended; an exception is handed over,
/// not raised, so that what was done is not lost with it.
pub fn result<'py>(py: Python<'py>, done: Done) -> PyResult<Bound<'py, PyDict>> {
    let Done { kept: Kept { samples, k, views }, outcome } = done;
    let result = PyDict::new(py);
    let columns = PyDict::new(py);
    let column = |of: &dyn Fn(&Sample) -> f64| PyArray1::from_iter(py, samples.iter().map(of));
    columns.set_item("iteration", PyArray1::from_iter(py, samples.iter().map(|s| s.k as i64)))?;
    columns.set_item("seconds", column(&|s| s.seconds))?;
    columns.set_item("bytes", PyArray1::from_iter(py, samples.iter().map(|s| s.traffic.bytes as i64)))?;
    for (name, of) in [("gradients", 0), ("products", 1)] {
        let count = |s: &Sample| if of == 0 { s.oracle.gradients } else { s.oracle.products };
        columns.set_item(name, PyArray1::from_iter(py, samples.iter().map(|s| count(s) as i64)))?;
    }
    let ends = samples.first().into_iter().chain(samples.last());
    for metric in ends.flat_map(|s| s.values.iter().map(|v| name(v.0.clone()))) {
        if !columns.contains(metric)? {
            columns.set_item(metric, column(&|s| s.get(metric).unwrap_or(f64::NAN)))?;
        }
    }
    result.set_item("columns", columns)?;
    let variables = PyDict::new(py);
    for (name, array) in views {
        variables.set_item(name, array)?;
    }
    result.set_item("variables", variables)?;
    let (word, at, error, reason) = match outcome {
        Ok((outcome, bytes)) => {
            result.set_item("state_bytes", bytes)?;
            (outcome.word(), samples.last().map_or(k, |s| s.k), None, None)
        }
        Err(error) => ended(py, error, k),
    };
    result.set_item("status", word)?;
    result.set_item("k", at)?;
    result.set_item("error", error)?;
    result.set_item("reason", reason)?;
    Ok(result)
}

type Ended = (&'static str, usize, Option<Py<PyAny>>, Option<String>);

/// How an error ends a run: Ctrl-C stops it, numbers that are no longer finite mean that it diverged,
/// everything else is the caller's.
fn ended(py: Python<'_>, error: Error, k: usize) -> Ended {
    if let Error::Problem { source, .. } = &error
        && let Some(found) = source.downcast_ref::<NotFinite>()
    {
        if found.k > 0 {
            return ("diverged", k, None, Some(found.to_string()));
        }
        let error = PyValueError::new_err(format!("{found}, where every run starts"));
        return ("failed", 0, Some(error.into_value(py).into_any()), None);
    }
    let error = match exception(error) {
        Ok(error) if error.is_instance_of::<PyKeyboardInterrupt>(py) => {
            return ("stopped", k, None, Some("interrupted".into()));
        }
        Ok(error) => error,
        Err(Error::Invalid(what)) => invalid(what),
        Err(error @ Error::Unsupported(_)) => invalid(error),
        Err(other) => PyRuntimeError::new_err(other.to_string()),
    };
    ("failed", k, Some(error.into_value(py).into_any()), None)
}
