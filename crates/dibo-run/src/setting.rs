//! One setting of an experiment: an algorithm with its parameters on a problem over a network.
use crate::graphs::Graph;
use crate::plan::RunKeys;
use crate::problems::Kind;
use anyhow::{Context, Result, bail};
use dibo::algorithm::{AnyAlgorithm, Mixes, Parameters};
use dibo::graph::Loss;
use dibo::mixing::Sequence;
use dibo_report::results::Series;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// What one series of the results stands for.
pub struct Setting {
    /// For the results.
    pub series: Series,
    /// How to run.
    pub run: RunKeys,
    /// The algorithm with its parameters.
    pub algorithm: Box<dyn AnyAlgorithm>,
    pub(crate) problem: Box<dyn Kind>,
    pub(crate) graph: Graph,
    /// The file, for messages.
    pub(crate) place: String,
}

impl Setting {
    /// What its algorithm says of itself.
    pub fn parameters(&self) -> &dyn Parameters {
        let algorithm: &dyn dibo::algorithm::Algorithm<f64> = &*self.algorithm;
        algorithm
    }

    /// True for the methods that pull decisions through A and push trackers through B, one round an
    /// iteration: what the theory is about.
    pub fn mixes_by_pulling(&self) -> bool {
        self.parameters().mixes() == Mixes::PullAndPush
    }

    /// Names the problem and the network, which other settings may share.
    pub fn place_key(&self) -> String {
        let of_place = |key: &str| !key.starts_with("algorithm.") && !key.starts_with("run.");
        let shared: Vec<_> = self.series.settings.iter().filter(|(key, _)| of_place(key)).collect();
        format!("{shared:?} {:?}", self.parameters().wishes())
    }

    /// Number of agents.
    pub fn agents(&self, folder: &Path) -> Result<usize> {
        self.problem.agents(folder).with_context(|| format!("{}: [problem]", self.place))
    }

    /// The graphs of one seed, with frozen weights where the algorithm wants them.
    pub fn graphs(&self, seed: u64, folder: &Path) -> Result<Sequence> {
        let agents = self.agents(folder)?;
        let built = self.graph.build(agents, seed, folder);
        let sequence = built.with_context(|| format!("{}: [graph]", self.place))?;
        Ok(if self.parameters().wishes().frozen_weights { sequence.frozen() } else { sequence })
    }

    /// Which messages are lost with one seed.
    pub fn loss(&self, seed: u64) -> Result<Option<Loss>> {
        self.graph.loss(seed).map_err(anyhow::Error::msg)
    }

    /// Refuses a graph that breaks the assumptions.
    pub fn check_graph(&self, seed: u64, folder: &Path) -> Result<()> {
        let graphs = self.graphs(seed, folder)?;
        let Some(window) = self.graph.window(graphs.graphs()) else { return Ok(()) };
        let Err(e) = graphs.check_connected(window, self.run.iterations) else { return Ok(()) };
        // Links that connect all agents over several iterations are what `window` is for.
        let way_out = match connecting_window(&graphs, self.run.iterations) {
            Some(c) => format!("over {c} iterations together they are: set window = {c}, or"),
            None => "set".into(),
        };
        bail!(
            "{}: [graph]: seed {seed}: {e}; {way_out} allow_disconnected = true to run all the same",
            self.place
        )
    }

    /// Data that must be there, in words; `Err` says how to get what is missing.
    pub fn data(&self) -> Result<Option<String>> {
        self.problem.data()
    }

    /// The files that results depend on.
    pub fn files(&self, folder: &Path) -> Vec<PathBuf> {
        self.problem.files(folder).into_iter().chain(self.graph.files(folder)).collect()
    }

    /// Adds to a digest what single agents own: a run depends on it where one process has it all.
    pub fn add_private(&self, folder: &Path, hash: &mut blake3::Hasher) -> Result<()> {
        for file in self.problem.private_files(folder) {
            hash.update(&contents(&file)?);
        }
        Ok(())
    }

    /// What a run depends on, beside the seed and what single agents own: every value, the contents of the
    /// files that values name, the versions of dibo and of the algorithm, the width of the CPU's registers.
    pub fn digest(&self, folder: &Path) -> Result<blake3::Hasher> {
        let mut hash = blake3::Hasher::new();
        let mut part = |name: &str, bytes: &[u8]| {
            hash.update(name.as_bytes()).update(&(bytes.len() as u64).to_le_bytes()).update(bytes);
        };
        part("dibo", env!("CARGO_PKG_VERSION").as_bytes());
        part("version", &self.parameters().version().to_le_bytes());
        for (key, value) in self.series.settings.iter().filter(|(k, _)| *k != "algorithm.label") {
            part(key, serde_json::to_string(value)?.as_bytes());
        }
        for file in self.files(folder) {
            part(&file.file_name().unwrap_or_default().to_string_lossy(), &contents(&file)?);
        }
        Ok(hash)
    }
}

/// The number of iterations over which the links together connect everybody, if a small one will do.
fn connecting_window(graphs: &Sequence, iterations: usize) -> Option<usize> {
    let most = graphs.period().unwrap_or(32).clamp(2, 256);
    (2..=most).find(|c| graphs.check_connected(*c, iterations).is_ok())
}

/// The digest of what is read of a file or a folder of images; read once in the life of this process.
pub fn contents(file: &Path) -> Result<[u8; 32]> {
    static KNOWN: Mutex<BTreeMap<PathBuf, [u8; 32]>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(digest) = known.get(file) {
        return Ok(*digest);
    }
    let parts = dibo_learn::read::parts(file)?;
    let digest = if parts == [file] { bytes(file)? } else { named(file, &parts)? };
    known.insert(file.to_path_buf(), digest);
    Ok(digest)
}

/// The digest of files with their names: an image that is moved to another class is the same image.
fn named(place: &Path, parts: &[PathBuf]) -> Result<[u8; 32]> {
    let mut hash = blake3::Hasher::new();
    for part in parts {
        let name = part.strip_prefix(place).ok().or(part.file_name().map(Path::new)).unwrap_or(part);
        let name = name.to_string_lossy().replace('\\', "/");
        hash.update(&(name.len() as u64).to_le_bytes()).update(name.as_bytes()).update(&bytes(part)?);
    }
    Ok(*hash.finalize().as_bytes())
}

/// The digest of one file's bytes.
fn bytes(file: &Path) -> Result<[u8; 32]> {
    let fail = || format!("cannot read {}", file.display());
    let mut hash = blake3::Hasher::new();
    std::io::copy(&mut std::fs::File::open(file).with_context(fail)?, &mut hash).with_context(fail)?;
    Ok(*hash.finalize().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::contents;

    /// The digest of a place with these files, in a folder that nobody has asked of before.
    fn digest(place: &str, files: &[(&str, &str)]) -> [u8; 32] {
        let folder = tempfile::tempdir().unwrap();
        for (name, bytes) in files {
            let file = folder.path().join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, bytes).unwrap();
        }
        contents(&folder.path().join(place)).unwrap()
    }

    #[test]
    fn what_is_read_of_a_place_is_what_counts() {
        // A plain file is known by its bytes, as ever.
        assert_eq!(digest("a.csv", &[("a.csv", "x"), ("b.csv", "y")]), *blake3::hash(b"x").as_bytes());
        let images = [("d/cat/1.png", "1"), ("d/cat/2.png", "2"), ("d/dog/3.png", "3")];
        let kept = digest("d", &images);
        assert_eq!(
            digest("d", &[&images[..], &[("d/dog/notes.txt", "n"), ("e/cat/1.png", "4")]].concat()),
            kept
        );
        // The same images in the same order, one of them in another class.
        assert_ne!(digest("d", &[images[0], ("d/dog/2.png", "2"), images[2]]), kept);
        assert_ne!(digest("d", &[images[0], images[1], ("d/dog/3.png", "4")]), kept);
        let listed = |label: &str| digest("d", &[("d/labels.csv", label), ("d/1.png", "1")]);
        assert_ne!(listed("file,label\n1.png,cat\n"), listed("file,label\n1.png,dog\n"));
        let idx = |labels| {
            digest("a-images-idx3-ubyte", &[("a-images-idx3-ubyte", "i"), ("a-labels-idx1-ubyte", labels)])
        };
        assert_ne!(idx("0"), idx("1"));
    }
}
