//! What a `[problem]` section can be. A kind of problem is a struct of its keys that says how many agents it
//! has and builds the problem of one seed; everything else has a default.
pub mod learning;
mod picture;
mod small;

pub use small::{PolicyEvaluationKeys, QuadraticKeys, RobustKeys};

use crate::device::Accelerator;
use crate::section::Section;
use anyhow::{Result, bail};
use dibo::algorithm::{AnyAlgorithm, Axis, Needs};
use dibo::problem::Bilevel;
use dibo::rows::{Threads, View};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::Path;

/// What a problem is built for.
pub struct Ask<'a> {
    /// The seed of its random numbers.
    pub seed: u64,
    /// Where relative files begin.
    pub folder: &'a Path,
    /// Threads that it may use.
    pub threads: &'a Threads,
    /// The algorithm that will run on it.
    pub algorithm: &'a dyn AnyAlgorithm,
    /// The device on which it is to lie, if any.
    pub device: Option<&'a Accelerator>,
}

impl Ask<'_> {
    /// Refuses a device, for problems that have no code for one.
    pub fn on_host(&self, kind: &str) -> Result<()> {
        match self.device {
            None => Ok(()),
            Some(_) => bail!("{kind} does not run on the GPU; leave --device away"),
        }
    }
}

/// Looks at the state at the end of a run and draws it as SVG.
pub type Picture<T> = Box<dyn Fn(&[View<'_, T>]) -> Option<String> + Send + Sync>;

/// A problem of either type of numbers.
pub enum Numbers {
    /// 32 bits.
    F32(Box<dyn Bilevel<f32>>, Option<Picture<f32>>),
    /// 64 bits.
    F64(Box<dyn Bilevel<f64>>, Option<Picture<f64>>),
}

/// A problem that has been made.
pub struct Built {
    /// The problem.
    pub problem: Numbers,
    /// Bytes of its data.
    pub data_bytes: u64,
    /// What should be said before it runs, such as the memory that it takes on a device.
    pub note: Option<String>,
}

impl Built {
    /// A problem with 64-bit numbers and nothing else to say.
    pub fn new(problem: impl Bilevel<f64> + 'static) -> Self {
        Built { problem: Numbers::F64(Box::new(problem), None), data_bytes: 0, note: None }
    }
}

/// How large a problem is, told before it is built.
#[derive(Clone, Copy, Debug, Default)]
pub struct Size {
    /// Numbers of an agent's upper variable.
    pub upper: usize,
    /// Numbers of the lower variable.
    pub lower: usize,
    /// Numbers of the single-level objective's variable.
    pub single: usize,
    /// Parts of an agent's data, for methods that remember a gradient for each.
    pub blocks: usize,
    /// Bytes of a number.
    pub number: usize,
    /// Bytes of the problem itself.
    pub bytes: f64,
}

/// The keys of a `[problem]`, read and ready to build.
pub trait Kind: Send + Sync {
    /// Says which value is out of range; the message begins with its key.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }
    /// Number of agents.
    fn agents(&self, folder: &Path) -> Result<usize>;
    /// Makes the problem of one seed.
    fn build(&self, ask: &Ask<'_>) -> Result<Built>;
    /// Files that its values name, beside the experiment file or in the data folder: results depend on their
    /// contents.
    fn files(&self, _folder: &Path) -> Vec<std::path::PathBuf> {
        Vec::new()
    }
    /// Data that must be there, in words; `Err` says how to get what is missing.
    fn data(&self) -> Result<Option<String>> {
        Ok(None)
    }
    /// Its size, if it can be told before it is built.
    fn size(&self) -> Option<Size> {
        None
    }
    /// Keys of its own in an `[[algorithm]]` that `tune` looks for.
    fn axes(&self, _needs: Needs) -> Vec<Axis> {
        Vec::new()
    }
    /// What may go wrong with this algorithm.
    fn caution(&self, _algorithm: &dyn AnyAlgorithm) -> Option<String> {
        None
    }
    /// Whether its constants have closed forms: then `check` knows more.
    fn closed_forms(&self) -> bool {
        false
    }
}

/// A problem by its name.
pub struct ProblemEntry {
    /// In files.
    pub name: &'static str,
    /// Keys that it takes from an `[[algorithm]]`.
    pub algorithm_keys: &'static [&'static str],
    /// Keys whose lists are values, not sweeps.
    pub lists: &'static [&'static str],
    pub(crate) read: fn(&Section<'_>, &Section<'_>, Needs) -> Result<Box<dyn Kind>>,
}

impl ProblemEntry {
    /// The entry of a type of keys that takes nothing from an `[[algorithm]]`.
    pub fn of<K: Kind + Serialize + DeserializeOwned + 'static>(name: &'static str) -> Self {
        ProblemEntry {
            name,
            algorithm_keys: &[],
            lists: &[],
            read: |problem, _, _| Ok(Box::new(problem.read::<K>(&["kind"])?)),
        }
    }
}
