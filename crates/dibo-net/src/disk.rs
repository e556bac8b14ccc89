//! What a process keeps on its disk: files that are whole or not there, two generations of checkpoints, and
//! which lives it has had.
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Result as Io, Write};
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::Xxh3;

/// Where files are kept; tests bring disks that fill up, tear and lose.
pub trait Disk: Send + Sync {
    /// A file's bytes; none if there is no such file.
    fn read(&self, file: &str) -> Io<Option<Vec<u8>>>;
    /// Puts a file in place as a whole: after success it survives a crash, after failure or a crash the old
    /// one is there.
    fn write(&self, file: &str, bytes: &[u8]) -> Io<()>;
    /// Removes a file, if it is there.
    fn remove(&self, file: &str) -> Io<()>;
    /// Where it is, for messages.
    fn place(&self) -> String;
}

/// A folder, held by one process at a time.
pub struct Folder {
    path: PathBuf,
    _lock: File,
}

impl Folder {
    /// Makes the folder if need be, and holds it as long as this lives; refuses if another process does.
    pub fn hold(path: &Path) -> Result<Self, String> {
        let fails = |e: std::io::Error| format!("cannot use the folder {}: {e}", path.display());
        std::fs::create_dir_all(path).map_err(fails)?;
        let mut options = OpenOptions::new();
        let lock = options.create(true).truncate(false).write(true).open(path.join("process.lock"));
        let lock = lock.map_err(fails)?;
        match lock.try_lock() {
            Ok(()) => Ok(Folder { path: path.to_path_buf(), _lock: lock }),
            Err(std::fs::TryLockError::WouldBlock) => Err(format!(
                "another process runs these agents from the folder {}: it goes on, this one does not start",
                path.display()
            )),
            Err(std::fs::TryLockError::Error(e)) => Err(fails(e)),
        }
    }
}

impl Disk for Folder {
    fn read(&self, file: &str) -> Io<Option<Vec<u8>>> {
        read(&self.path.join(file))
    }

    fn write(&self, file: &str, bytes: &[u8]) -> Io<()> {
        let (path, new) = (self.path.join(file), self.path.join(format!("{file}.tmp")));
        let written = File::create(&new).and_then(|mut f| {
            f.write_all(bytes)?;
            // The name must not be there before the bytes are.
            f.sync_all()
        });
        if let Err(e) = written.and_then(|()| std::fs::rename(&new, &path)) {
            let _ = std::fs::remove_file(&new);
            return Err(e);
        }
        #[cfg(unix)]
        File::open(&self.path)?.sync_all()?;
        Ok(())
    }

    fn remove(&self, file: &str) -> Io<()> {
        match std::fs::remove_file(self.path.join(file)) {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    fn place(&self) -> String {
        self.path.display().to_string()
    }
}

/// A folder that is only read, whoever holds it.
pub struct ReadFolder(pub PathBuf);

impl Disk for ReadFolder {
    fn read(&self, file: &str) -> Io<Option<Vec<u8>>> {
        read(&self.0.join(file))
    }

    fn write(&self, _: &str, _: &[u8]) -> Io<()> {
        Err(ErrorKind::ReadOnlyFilesystem.into())
    }

    fn remove(&self, _: &str) -> Io<()> {
        Err(ErrorKind::ReadOnlyFilesystem.into())
    }

    fn place(&self) -> String {
        self.0.display().to_string()
    }
}

fn read(file: &Path) -> Io<Option<Vec<u8>>> {
    match std::fs::read(file) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        read => read.map(Some),
    }
}

/// Identifies a file of this kind.
const MAGIC: &[u8; 8] = b"dibo-nt1";
const SUM: usize = 16;

fn checksum(parts: &[&[u8]]) -> [u8; SUM] {
    let mut hash = Xxh3::new();
    parts.iter().for_each(|p| hash.update(p));
    hash.digest128().to_le_bytes()
}

/// What was found under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// What was written.
    Whole(Vec<u8>),
    /// There is no such file.
    Missing,
    /// It is whole, but of another experiment, setting, seed or version.
    Another,
    /// It cannot be read, and why.
    Damaged(String),
}

/// The files of one part of an experiment.
pub struct Store<'a> {
    disk: &'a dyn Disk,
    digest: [u8; 32],
    job: String,
}

/// The two files that hold checkpoints in turn.
const GENERATIONS: [&str; 2] = ["a.checkpoint", "b.checkpoint"];

/// A checkpoint: its round, its file, its bytes.
pub type Generation = (u64, usize, Vec<u8>);

impl<'a> Store<'a> {
    /// Files whose names begin with `job` and that belong to what this digest stands for.
    pub fn new(disk: &'a dyn Disk, digest: [u8; 32], job: String) -> Self {
        Store { disk, digest, job }
    }

    /// Where they are, for messages.
    pub fn place(&self) -> String {
        self.disk.place()
    }

    fn name(&self, ending: &str) -> String {
        format!("{}.{ending}", self.job)
    }

    /// Reads the file with this ending.
    pub fn read(&self, ending: &str) -> Found {
        let file = self.name(ending);
        let bytes = match self.disk.read(&file) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Found::Missing,
            Err(e) => return Found::Damaged(format!("cannot read {file} in {}: {e}", self.place())),
        };
        let damaged = |what| Found::Damaged(format!("{file} in {} is damaged: {what}", self.place()));
        let Some((head, rest)) = bytes.split_at_checked(MAGIC.len() + 32) else {
            return damaged("it is cut short");
        };
        let Some((body, sum)) = rest.split_last_chunk::<SUM>() else { return damaged("it is cut short") };
        if head[..MAGIC.len()] != *MAGIC {
            return damaged("it is none of these files");
        }
        if checksum(&[head, body]) != *sum {
            return damaged("its checksum is wrong");
        }
        if head[MAGIC.len()..] != self.digest {
            return Found::Another;
        }
        Found::Whole(body.to_vec())
    }

    /// Writes the file with this ending.
    pub fn write(&self, ending: &str, body: &[u8]) -> Result<(), String> {
        let mut bytes = Vec::with_capacity(MAGIC.len() + 32 + body.len() + SUM);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&self.digest);
        bytes.extend_from_slice(body);
        let sum = checksum(&[&bytes]);
        bytes.extend_from_slice(&sum);
        let file = self.name(ending);
        self.disk.write(&file, &bytes).map_err(|e| format!("cannot write {file} in {}: {e}", self.place()))
    }

    /// Reads what was written with [`write_value`](Self::write_value); a damaged file is as good as none, and
    /// is said to be.
    pub fn read_value<V: serde::de::DeserializeOwned>(&self, ending: &str) -> Option<V> {
        match self.read(ending) {
            Found::Whole(bytes) => postcard::from_bytes(&bytes).ok(),
            Found::Damaged(what) => {
                eprintln!("{what}");
                None
            }
            Found::Missing | Found::Another => None,
        }
    }

    /// Writes a value.
    pub fn write_value(&self, ending: &str, value: &impl serde::Serialize) -> Result<(), String> {
        let body = postcard::to_stdvec(value).map_err(|e| format!("cannot write {ending}: {e}"))?;
        self.write(ending, &body)
    }

    /// The checkpoints that are whole, the newest first, as (round, file, bytes); and what is wrong with the
    /// others.
    pub fn checkpoints(&self) -> (Vec<Generation>, Vec<String>) {
        let (mut whole, mut wrong) = (Vec::new(), Vec::new());
        for (at, ending) in GENERATIONS.iter().enumerate() {
            match self.read(ending) {
                Found::Whole(mut body) if body.len() >= 8 => {
                    let rest = body.split_off(8);
                    let round = u64::from_le_bytes(body.try_into().expect("eight bytes"));
                    whole.push((round, at, rest));
                }
                Found::Whole(_) => wrong.push(format!("{} is cut short", self.name(ending))),
                Found::Damaged(what) => wrong.push(what),
                Found::Another => wrong.push(format!(
                    "{} in {} is of another experiment, setting or version",
                    self.name(ending),
                    self.place()
                )),
                Found::Missing => {}
            }
        }
        whole.sort_by_key(|(round, ..)| std::cmp::Reverse(*round));
        (whole, wrong)
    }

    /// Writes a checkpoint into one of the two files.
    pub fn write_checkpoint(&self, at: usize, round: u64, body: &[u8]) -> Result<(), String> {
        self.write(GENERATIONS[at % 2], &[&round.to_le_bytes(), body].concat())
    }

    /// Removes the checkpoints, which nobody needs any more.
    pub fn remove_checkpoints(&self) {
        // What stays is of no use and does no harm.
        GENERATIONS.iter().for_each(|ending| drop(self.disk.remove(&self.name(ending))));
    }
}

/// The lives of a process: who holds its folder knows that the earlier ones are over.
pub struct Lives {
    /// This life: no other has the same number.
    pub incarnation: u64,
    /// Those before it, the newest last.
    pub after: Vec<u64>,
}

/// Lives that are remembered.
const REMEMBERED: usize = 64;

impl Lives {
    /// Begins a new life and writes it down before anybody hears of it. `random` keeps lives apart that know
    /// nothing of each other, such as those of two folders; the clock plays no part.
    pub fn begin(disk: &dyn Disk, random: u32) -> Result<Self, String> {
        let store = Store::new(disk, [0; 32], "process".into());
        let mut after: Vec<u64> = store.read_value("life").unwrap_or_default();
        let newest = after.iter().map(|life| life >> 32).max().unwrap_or(0);
        let incarnation = (newest + 1) << 32 | u64::from(random);
        after.push(incarnation);
        let old = after.len().saturating_sub(REMEMBERED);
        after.drain(..old);
        store.write_value("life", &after)?;
        after.pop();
        Ok(Lives { incarnation, after })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_checkpoint_falls_back_to_the_older_one() {
        let path = std::env::temp_dir().join(format!("dibo-disk-{}", std::process::id()));
        let folder = Folder::hold(&path).unwrap();
        assert!(Folder::hold(&path).err().unwrap().contains("another process runs"));
        let store = Store::new(&folder, [3; 32], "0-0".into());
        assert_eq!(store.read("done"), Found::Missing);
        store.write_checkpoint(0, 10, b"ten").unwrap();
        store.write_checkpoint(1, 20, b"twenty").unwrap();
        let rounds = || store.checkpoints().0.into_iter().map(|c| (c.0, c.2)).collect::<Vec<_>>();
        assert_eq!(rounds(), [(20, b"twenty".to_vec()), (10, b"ten".to_vec())]);
        assert_eq!(Store::new(&folder, [4; 32], "0-0".into()).checkpoints().0, []);
        let newest = path.join("0-0.b.checkpoint");
        let bytes = std::fs::read(&newest).unwrap();
        // Cut anywhere, or with any bit turned, it is not taken.
        for damaged in (0..bytes.len()).map(|at| bytes[..at].to_vec()).chain((0..bytes.len()).map(|at| {
            let mut bytes = bytes.clone();
            bytes[at] ^= 4;
            bytes
        })) {
            std::fs::write(&newest, damaged).unwrap();
            assert_eq!(rounds(), [(10, b"ten".to_vec())]);
            assert_eq!(store.checkpoints().1.len(), 1);
        }
        let (one, two) = (Lives::begin(&folder, 7).unwrap(), Lives::begin(&folder, 7).unwrap());
        assert!(two.incarnation > one.incarnation && two.after == [one.incarnation]);
        drop(folder);
        Folder::hold(&path).unwrap();
        std::fs::remove_dir_all(&path).unwrap();
    }
}
