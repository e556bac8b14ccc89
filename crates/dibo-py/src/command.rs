//! The command, experiment files and pictures: the same as from a shell.
use crate::oracle::Oracle;
use dibo_report::report::plot;
use dibo_report::results::{CurveRow, Curves, Figure, Manifest};
use dibo_run::problems::{Ask, Built, Finale, Kind, Numbers};
use dibo_run::stop;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How often Ctrl-C is looked for.
const LOOK: Duration = Duration::from_millis(25);

/// One command at a time: what it says and the wish to stop are the process's.
static BUSY: Mutex<()> = Mutex::new(());

/// The problem that files of this process can name: that of the call at hand.
static PROBLEM: Mutex<Option<Py<PyAny>>> = Mutex::new(None);

/// `[problem] kind = "python"`: a problem of Python's, so that `check` and `tune` open it through the same
/// door as all others.
#[derive(Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PythonKeys {
    /// Number of agents.
    agents: usize,
    /// Whether its numbers have 32 bits.
    single: bool,
}

impl Kind for PythonKeys {
    fn agents(&self, _: &Path) -> anyhow::Result<usize> {
        Ok(self.agents)
    }

    fn build(&self, ask: &Ask<'_>) -> anyhow::Result<Built> {
        ask.on_host("a problem of Python's")?;
        let problem = Python::attach(|py| -> PyResult<Numbers> {
            // Not held while Python runs: another thread may wait for it with Python's lock in hand.
            let known = PROBLEM.lock().unwrap_or_else(PoisonError::into_inner);
            let make = known.as_ref().map(|make| make.clone_ref(py));
            drop(known);
            let make = make.ok_or_else(|| PyValueError::new_err("no problem is given"))?;
            let oracle = make.bind(py).call0()?;
            Ok(match self.single {
                true => Numbers::F32(Arc::new(Oracle::new(&oracle, None)?), Finale::default()),
                false => Numbers::F64(Arc::new(Oracle::new(&oracle, None)?), Finale::default()),
            })
        })?;
        Ok(Built { problem, data_bytes: 0, note: None, warnings: Vec::new() })
    }
}

/// The exception of Python's inside an error, if there is one.
fn raised(py: Python<'_>, error: &anyhow::Error) -> Option<PyErr> {
    error.chain().find_map(|cause| {
        if let Some(error) = cause.downcast_ref::<PyErr>() {
            return Some(error.clone_ref(py));
        }
        match cause.downcast_ref::<dibo::Error>() {
            Some(dibo::Error::Watcher(source)) => source.downcast_ref::<PyErr>().map(|e| e.clone_ref(py)),
            _ => None,
        }
    })
}

/// Ends the listening.
struct Silence;

impl Drop for Silence {
    fn drop(&mut self) {
        dibo_run::listen(None);
    }
}

/// Runs a command of dibo; `say` gets its lines. Gives its exit code; what went wrong is raised. After Ctrl-C
/// it stops at the next evaluation, keeps what is done and gives 130.
#[pyfunction]
#[pyo3(signature = (arguments, say, oracle = None))]
pub fn command(
    py: Python<'_>,
    arguments: Vec<String>,
    say: &Bound<'_, PyAny>,
    oracle: Option<Py<PyAny>>,
) -> PyResult<u8> {
    let Ok(_busy) = BUSY.try_lock() else {
        return Err(PyRuntimeError::new_err("another command of dibo is running in this process"));
    };
    stop::by_caller();
    *PROBLEM.lock().unwrap_or_else(PoisonError::into_inner) = oracle;
    let (lines, mut said) = channel::<String>();
    dibo_run::listen(Some(Box::new(move |line| drop(lines.send(line.to_string())))));
    let work = std::thread::Builder::new().name("dibo".into()).spawn(move || {
        let arguments = std::iter::once("dibo".to_string()).chain(arguments).map(Into::into);
        // The last sender goes with it, which ends the loop below, whatever happens.
        let _silence = Silence;
        dibo_cli::command(&dibo_cli::standard().problem::<PythonKeys>("python"), arguments)
    })?;
    let mut failed = None;
    loop {
        let next = &mut said;
        match py.detach(move || next.recv_timeout(LOOK)) {
            Ok(line) => {
                let written = say.call1((line,)).map(|_| ());
                failed = failed.or(written.err());
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        // Python's own handler has its say; what it raises stops the command.
        if py.check_signals().is_err() {
            stop::ask();
        }
    }
    let result = py.detach(|| work.join());
    match (failed, result) {
        (Some(error), _) => Err(error),
        (_, Err(_)) => Err(PyRuntimeError::new_err("the command broke off; its message is above")),
        (_, Ok(Err(error))) => Err(raised(py, &error)
            .unwrap_or_else(|| PyValueError::new_err(format!("{error:#}").replace('\n', " ")))),
        (_, Ok(Ok(code))) => Ok(number(code)),
    }
}

/// The number of an exit code, which the standard library does not tell.
fn number(code: ExitCode) -> u8 {
    (0..=u8::MAX).find(|n| ExitCode::from(*n) == code).unwrap_or(1)
}

/// A row of curves: series, seed, iteration, seconds, bytes, gradients, products, metrics.
type Row = (usize, u64, usize, f64, u64, u64, u64, Vec<f64>);

/// Draws a figure of some curves as SVG; the manifest names the series.
#[pyfunction]
pub fn draw(
    py: Python<'_>,
    figure: &str,
    manifest: &str,
    metrics: Vec<String>,
    rows: Vec<Row>,
) -> PyResult<String> {
    let wrong = |e: serde_json::Error| PyValueError::new_err(e.to_string());
    let figure: Figure = serde_json::from_str(figure).map_err(wrong)?;
    let manifest: Manifest = serde_json::from_str(manifest).map_err(wrong)?;
    let row = |(series, seed, iteration, seconds, bytes, gradients, products, values)| CurveRow {
        series,
        seed,
        iteration,
        seconds,
        bytes,
        gradients,
        products,
        values,
    };
    let curves = Curves { metrics, rows: rows.into_iter().map(row).collect() };
    let drawn = py.detach(|| plot::draw(&figure, &manifest, &curves));
    drawn.map(|picture| picture.svg).map_err(|e| PyValueError::new_err(format!("{e:#}")))
}
