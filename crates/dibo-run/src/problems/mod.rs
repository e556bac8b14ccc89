//! What a `[problem]` section can be. A kind of problem is a struct of its keys that says how many agents it
//! has and builds the problem of one seed; everything else has a default.
pub mod labels;
mod learned;
pub mod learning;
mod picture;
mod small;

pub use small::{PolicyEvaluationKeys, QuadraticKeys, RobustKeys, WavesKeys};

use crate::device::Accelerator;
use crate::section::{Keys, Section};
use crate::sites::Files;
use anyhow::{Result, bail};
use dibo::algorithm::{AnyAlgorithm, Axis, Needs};
use dibo::mixing::Sequence;
use dibo::network::Network;
use dibo::problem::Bilevel;
use dibo::rows::{Threads, View};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::Path;
use std::sync::Arc;

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
    /// The links over which its agents will talk.
    pub links: &'a Sequence,
    /// The agents and files of this process, where others have the rest.
    pub local: Option<&'a Local>,
    /// How its agents meet the others before a run; all are here if nobody says.
    pub meeting: Option<&'a dyn Meeting>,
}

/// The agents of one process and the files of their own.
#[derive(Clone, Debug, Default)]
pub struct Local {
    /// Its agents.
    pub owned: Vec<usize>,
    /// Their files.
    pub files: Files,
}

/// What is done where all agents meet: the network they talk over is given, and what they agreed on is kept.
pub type Talk<'a> = dyn FnMut(&mut dyn Network<f64>) -> Result<Vec<u8>> + 'a;

/// A place where the agents of several processes can agree on something before a run.
pub trait Meeting {
    /// Lets the agents of this process take part in a talk over these links; one that has taken place before
    /// is not held again.
    fn meet(&self, links: &Sequence, talk: &mut Talk<'_>) -> Result<Vec<u8>>;
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

/// Writes what one takes home of the state at the end, of these agents, into a folder.
pub type Export<T> = Box<dyn Fn(&[View<'_, T>], &[usize], &Path) -> Result<()> + Send + Sync>;

/// What is made of the state at the end of a run.
pub struct Finale<T> {
    /// A picture.
    pub picture: Option<Picture<T>>,
    /// Files to take home.
    pub export: Option<Export<T>>,
    /// The data as arrays in a folder, for other programs.
    pub pool: Option<Pool>,
}

/// Writes the data of all agents as arrays into a folder, for programs that work on it in one place; gives
/// back of every row whether its label is wrong, where that is known.
pub type Pool = Box<dyn Fn(&Path) -> Result<Vec<Option<bool>>> + Send + Sync>;

impl<T> Default for Finale<T> {
    fn default() -> Self {
        Finale { picture: None, export: None, pool: None }
    }
}

/// A problem of either type of numbers, which what is made of its end may hold, too.
pub enum Numbers {
    /// 32 bits.
    F32(Arc<dyn Bilevel<f32>>, Finale<f32>),
    /// 64 bits.
    F64(Arc<dyn Bilevel<f64>>, Finale<f64>),
}

/// A problem that has been made.
pub struct Built {
    /// The problem.
    pub problem: Numbers,
    /// Bytes of its data.
    pub data_bytes: u64,
    /// What should be said before it runs, such as the memory that it takes on a device.
    pub note: Option<String>,
    /// What makes its results doubtful, in words.
    pub warnings: Vec<String>,
}

impl Built {
    /// A problem with 64-bit numbers and nothing else to say.
    pub fn new(problem: impl Bilevel<f64> + 'static) -> Self {
        let problem = Numbers::F64(Arc::new(problem), Finale::default());
        Built { problem, data_bytes: 0, note: None, warnings: Vec::new() }
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
    /// Whether a run leaves files to take home.
    fn exports(&self) -> bool {
        false
    }
    /// Whether one on a device does, too.
    fn exports_from_device(&self) -> bool {
        false
    }
    /// Whether its data belongs to single agents, each of whom may have nothing but its own.
    fn is_own(&self) -> bool {
        false
    }
    /// Files that belong to single agents: over a network each process has its own, and nobody compares them.
    fn private_files(&self, _folder: &Path) -> Vec<std::path::PathBuf> {
        Vec::new()
    }
    /// Data that must be there, in words; `Err` says how to get what is missing.
    fn data(&self) -> Result<Option<String>> {
        Ok(None)
    }
    /// Its size, if it can be told before it is built.
    fn size(&self, _folder: &Path) -> Option<Size> {
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
    /// What a run of so few iterations never comes to.
    fn too_short(&self, _iterations: usize) -> Option<String> {
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
    /// Its keys, for the reference.
    pub(crate) keys: Keys,
    /// What it takes from an `[[algorithm]]`, for the reference.
    pub(crate) of_algorithm: Keys,
}

impl ProblemEntry {
    /// The entry of a type of keys that takes nothing from an `[[algorithm]]`.
    pub fn of<K: Kind + Serialize + DeserializeOwned + JsonSchema + 'static>(name: &'static str) -> Self {
        ProblemEntry {
            name,
            algorithm_keys: &[],
            lists: &[],
            read: |problem, _, _| Ok(Box::new(problem.read::<K>(&["kind"])?)),
            keys: K::json_schema,
            of_algorithm: |_| schemars::Schema::default(),
        }
    }
}
