//! Files that say what they are a result of and whether they are whole; and the folder that holds them,
//! locked while a process works in it.
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeSet;
use std::fs::{DirEntry, File, TryLockError};
use std::io::{BufWriter, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// How a sealed file begins: magic with the format's version.
const MAGIC: &[u8; 12] = b"dibo-seal-1\n";
/// Bytes of a digest and of a checksum.
const HASH: usize = 32;
/// What a sealed file has beside its body.
const FRAME: u64 = (MAGIC.len() + 2 * HASH) as u64;

const LOCK: &str = ".lock";
const IDENTITY: &str = ".experiment";
const CHECKSUMS: &str = "checksums.txt";
const MANIFEST: &str = "manifest.json";
/// What ends the list of checksums, in place of a path.
const LINES_ABOVE: &str = "the lines above";

/// Files that dibo itself writes into a results folder.
const OWN_FILES: &[&str] = &[
    IDENTITY,
    CHECKSUMS,
    MANIFEST,
    "curves.csv",
    "curves.parquet",
    "report.html",
    "claims.csv",
    "tune.csv",
    "best.toml",
    "labels.csv",
    "labels.parquet",
    "suspicious.csv",
    "cleaned.csv",
    "owners.csv",
    "noise.csv",
    "learned.csv",
    "model.json",
    "model.onnx",
    "model.safetensors",
    "peers.json",
];
/// How the names of own tables with better labels begin; what follows is the name of a user's file.
const CLEANED: &str = "cleaned_";
/// How they end, in small letters.
const TABLES: &[&str] = &[".csv", ".tsv", ".tab"];
/// Where processes of a network keep theirs: it may be there before anybody opens the results folder.
const AGENTS: &str = "agents";
/// Where in it a launch that was stopped says what all its processes had agreed on: the same one goes on
/// there.
pub const STOPPED: &str = "stopped";
/// Folders that dibo itself makes in a results folder.
const OWN_FOLDERS: &[&str] = &["runs", "plots", "tracks", AGENTS, "taken", "all-checked"];
/// How the files that dibo itself writes into these end.
const OWN_ENDINGS: &[&str] = &[
    "done",
    "checkpoint",
    "track",
    "rows",
    "left",
    "memory",
    "agreed",
    "life",
    "lock",
    "log",
    "svg",
    "png",
    "tmp",
    "csv",
    "txt",
    "json",
    "onnx",
    "safetensors",
    "parquet",
    "tsv",
    "tab",
    "part",
    "experiment",
];
/// What is kept to go on with: nothing for a reader.
const WORKING: &[&str] = &["runs", "tracks", AGENTS];

/// How often a folder is looked for that another process removes at the same time.
const ATTEMPTS: usize = 1000;

/// What was found under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// What was sealed.
    Found(Vec<u8>),
    /// There is no such file.
    Missing,
    /// It is whole, but of another experiment, setting, seed or version.
    Another,
    /// What is wrong with it.
    Damaged(String),
}

/// Writes `body` with the digest of what it is a result of and a checksum over everything: to a temporary
/// name, flushed to the disk, then renamed.
pub fn seal(path: &Path, digest: &[u8; HASH], body: &[u8]) -> Result<()> {
    seal_with(path, digest, |file| file.write_all(body))
}

/// The same for a body that is written piece by piece, so that a large one need not be copied.
pub fn seal_with(
    path: &Path,
    digest: &[u8; HASH],
    write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
) -> Result<()> {
    write_file_with(path, |file| {
        let mut hashed =
            Hashed { file: BufWriter::with_capacity(1 << 16, file), hash: blake3::Hasher::new() };
        hashed.write_all(MAGIC)?;
        hashed.write_all(digest)?;
        write(&mut hashed)?;
        let checksum = hashed.hash.finalize();
        hashed.file.write_all(checksum.as_bytes())?;
        hashed.file.flush()
    })
}

/// A writer that hashes what goes through it.
struct Hashed<W: Write> {
    file: W,
    hash: blake3::Hasher,
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.hash.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}

/// Reads what was sealed under a name for this digest.
pub fn unseal(path: &Path, digest: &[u8; HASH]) -> Kept {
    match open_seal(path) {
        Ok((found, body)) if found == *digest => Kept::Found(body),
        Ok(_) => Kept::Another,
        Err(other) => other,
    }
}

/// The digest and the body of a sealed file that is whole.
fn open_seal(path: &Path) -> std::result::Result<([u8; HASH], Vec<u8>), Kept> {
    let failed = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound => Kept::Missing,
        _ => Kept::Damaged(format!("cannot read {}: {error}", path.display())),
    };
    let damaged = |what: &str| Kept::Damaged(format!("{} is damaged: {what}", path.display()));
    let mut file = File::open(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    let body = length.checked_sub(FRAME).ok_or_else(|| damaged("it is cut short"))?;
    let body = usize::try_from(body).map_err(|_| damaged("it is too long"))?;
    let (mut magic, mut digest, mut checksum) = ([0; MAGIC.len()], [0; HASH], [0; HASH]);
    let mut content = Vec::new();
    content.try_reserve_exact(body).map_err(|_| damaged("there is no memory for it"))?;
    content.resize(body, 0);
    for part in [&mut magic[..], &mut digest, &mut content, &mut checksum] {
        file.read_exact(part).map_err(|error| damaged(&error.to_string()))?;
    }
    let mut hash = blake3::Hasher::new();
    hash.update(&magic).update(&digest).update(&content);
    if *hash.finalize().as_bytes() != checksum {
        return Err(damaged("its checksum does not fit"));
    }
    // Whole, but in a format of another version.
    if magic != *MAGIC { Err(Kept::Another) } else { Ok((digest, content)) }
}

/// Writes a file so that a reader sees the old content or the new, never a part: to a temporary name,
/// flushed to the disk, then renamed.
pub fn write_file(path: &Path, content: &[u8]) -> Result<()> {
    write_file_with(path, |file| file.write_all(content))
}

/// The same for content that is written piece by piece.
pub fn write_file_with(path: &Path, write: impl FnOnce(&mut File) -> std::io::Result<()>) -> Result<()> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let name = path.file_name().with_context(|| format!("{} is not a file name", path.display()))?;
    let mut temporary = name.to_os_string();
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    temporary.push(format!(".{}-{count}.tmp", std::process::id()));
    let temporary = path.with_file_name(temporary);
    let whole = || -> std::io::Result<()> {
        let mut file = File::create(&temporary)?;
        write(&mut file)?;
        // A full disk may only be seen here.
        file.sync_all()?;
        drop(file);
        std::fs::rename(&temporary, path)?;
        sync_folder(path)
    };
    whole().with_context(|| format!("cannot write {}", path.display())).inspect_err(|_| {
        let _ = std::fs::remove_file(&temporary);
    })
}

/// Flushes the entry of a file that was renamed.
fn sync_folder(path: &Path) -> std::io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Other systems have no handle of a folder to flush.
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

/// Refuses what cannot be the name of a folder or a file: only letters, digits and - _ . are allowed, no dot
/// comes first, and 100 characters are the most.
pub fn check_name(what: &str, name: &str) -> Result<()> {
    let plain = |c: char| c.is_alphanumeric() || "-_.".contains(c);
    let sound = !name.is_empty() && !name.starts_with('.') && name.chars().all(plain);
    // Systems count bytes: letters beyond ASCII have up to four.
    ensure!(
        sound && name.chars().count() <= 100 && name.len() <= 200,
        "{what} is {name:?}, which cannot be the name of a file: use letters, digits, - _ and . only, no dot \
        first, 100 characters at most"
    );
    Ok(())
}

/// A results folder that this process holds: locked, and belonging to one experiment.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// Locked until it is closed.
    lock: Option<File>,
    /// Folders that were made for it, innermost first.
    made: Vec<PathBuf>,
}

impl Folder {
    /// Opens or makes the folder of the experiment `name`, where `digest` is that of its settings.
    ///
    /// It is refused if another process holds it, or if it has results of another experiment or of other
    /// settings of the same one, unless `fresh` takes it over: then dibo's own files in it are removed, and
    /// no others. A folder of a user's own is refused, `fresh` or not, where dibo would write over a file of
    /// theirs.
    pub fn open(path: &Path, name: &str, digest: &[u8; HASH], fresh: bool) -> Result<Folder> {
        check_name("the experiment's name", name)?;
        refuse_foreign(path)?;
        let mut folder = Folder { path: path.into(), lock: None, made: Vec::new() };
        folder.acquire()?;
        if fresh || is_bare(path) {
            remove_own(path)?;
        } else {
            folder.check(name, digest)?;
        }
        if !path.join(IDENTITY).exists() {
            seal(&path.join(IDENTITY), digest, name.as_bytes())?;
        }
        Ok(folder)
    }

    /// Makes the folder where there is none, and locks it.
    fn acquire(&mut self) -> Result<()> {
        let place = self.path.join(LOCK);
        let fail = || format!("cannot work in {}; give another folder with --out", self.path.display());
        for _ in 0..ATTEMPTS {
            let missing = self.path.ancestors().filter(|p| !p.as_os_str().is_empty() && !p.exists());
            self.made.extend(missing.map(Path::to_path_buf).collect::<Vec<_>>());
            std::fs::create_dir_all(&self.path).with_context(fail)?;
            let file = File::options().create(true).truncate(false).write(true).open(&place);
            let file = match file {
                // Another process made it, had nothing to leave in it, and removed it just now.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                file => file.with_context(fail)?,
            };
            match file.try_lock() {
                Ok(()) if same_file(&file, &place) => {
                    self.lock = Some(file);
                    return Ok(());
                }
                Ok(()) => continue,
                Err(TryLockError::WouldBlock) => bail!(
                    "{} is in use by another dibo; wait for it, or give another folder with --out",
                    self.path.display()
                ),
                Err(TryLockError::Error(error)) => return Err(error).with_context(fail),
            }
        }
        bail!("{}: others make and remove it all the time", fail())
    }

    /// Whose folder is it?
    fn check(&self, name: &str, digest: &[u8; HASH]) -> Result<()> {
        let path = self.path.display();
        let out = "give another folder with --out, or --fresh (run, launch, tune, clean) to remove what dibo \
            wrote there";
        match open_seal(&self.path.join(IDENTITY)) {
            Ok((found, body)) if found == *digest && body == name.as_bytes() => Ok(()),
            Ok((_, body)) if body == name.as_bytes() => {
                bail!("{path} holds results of {name} with other settings; {out}")
            }
            Ok((_, body)) => {
                bail!("{path} holds results of {}, not of {name}; {out}", String::from_utf8_lossy(&body))
            }
            Err(Kept::Missing) if !self.path.join(MANIFEST).exists() => Ok(()),
            Err(Kept::Missing) => {
                bail!("{path} holds results that do not say of which experiment; {out}")
            }
            Err(Kept::Damaged(what)) => bail!("{what}; {out}"),
            Err(_) => bail!("{path} holds results of another version of dibo; {out}"),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes `checksums.txt`.
    pub fn finish(&self) -> Result<()> {
        write_checksums(&self.path)
    }
}

impl Drop for Folder {
    /// Removes a folder that was made for a run which left nothing in it.
    fn drop(&mut self) {
        if self.made.is_empty() {
            return;
        }
        // What another process holds by now is not touched.
        if self.lock.is_some() {
            for name in OWN_FOLDERS {
                // Does nothing unless it is empty.
                let _ = std::fs::remove_dir(self.path.join(name));
            }
            if !is_bare(&self.path) {
                return;
            }
            if !cfg!(unix) {
                // An open file cannot be removed there.
                self.lock = None;
            }
            let _ = std::fs::remove_file(self.path.join(IDENTITY));
            let _ = std::fs::remove_file(self.path.join(LOCK));
        }
        for folder in &self.made {
            let _ = std::fs::remove_dir(folder);
        }
    }
}

/// Whether nothing is in a folder but what `Folder` itself puts there: as a run leaves it that was ended
/// before it had a result.
fn is_bare(path: &Path) -> bool {
    let own = |entry: std::io::Result<DirEntry>| {
        entry.is_ok_and(|entry| [LOCK, IDENTITY].iter().any(|own| entry.file_name() == *own))
    };
    std::fs::read_dir(path).is_ok_and(|mut entries| entries.all(own))
}

/// Whether dibo itself writes a file or a folder of this name into a results folder. Some systems take
/// capitals and small letters for the same.
pub fn is_own(name: &str) -> bool {
    let name = name.to_lowercase();
    let table = || name.starts_with(CLEANED) && TABLES.iter().any(|end| name.ends_with(end));
    OWN_FILES.iter().chain(OWN_FOLDERS).any(|own| name == *own) || table()
}

/// Whether a folder has something of dibo's beside what processes keep to go on with.
pub fn has_results(path: &Path) -> bool {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let mut names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.any(|name| is_own(&name) && ![IDENTITY, AGENTS].contains(&name.as_str()))
}

/// Refuses a folder without any mark of dibo that has something by a name that dibo writes: it is somebody's
/// own. Nothing is written yet, not even a lock.
fn refuse_foreign(path: &Path) -> Result<()> {
    if !path.is_dir() {
        return Ok(());
    }
    let found = match entries(path) {
        // Another dibo that had nothing to leave in it removed it just now.
        Err(error) if is_gone(&error) => return Ok(()),
        found => found?,
    };
    let mut foreign = Vec::new();
    for (entry, name) in found {
        let empty = || std::fs::read_dir(entry.path()).is_ok_and(|mut inside| inside.next().is_none());
        if name == AGENTS {
            foreign.extend(foreign_in_agents(&entry.path()).map(|inside| format!("{AGENTS}/{inside}")));
        } else if is_own(&name) && !empty() {
            foreign.push(name);
        }
    }
    // The marks come last: another dibo that works there puts its own first and removes it last.
    match foreign.iter().min() {
        Some(name) if !is_marked(path) => {
            bail!("{} has a {name} that dibo did not write; give another folder with --out", path.display())
        }
        _ => Ok(()),
    }
}

/// Whether what was to be read is not there.
fn is_gone(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == ErrorKind::NotFound)
}

/// Something in a folder of processes that is neither a folder nor a log of one: it is somebody's own.
pub fn foreign_in_agents(root: &Path) -> Option<String> {
    let own = |name: &String| {
        let number = name.strip_suffix(".log").unwrap_or(name);
        ["certificates", "router.log", STOPPED].contains(&name.as_str()) || number.parse::<usize>().is_ok()
    };
    let entries = std::fs::read_dir(root).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).find(|name| !own(name))
}

/// Whether a folder bears a mark of dibo. Others have a `manifest.json`, too, and lists of checksums.
fn is_marked(path: &Path) -> bool {
    let text = |name: &str| std::fs::read(path.join(name)).unwrap_or_default();
    let says = |name: &str, words: &[&str]| {
        let text = text(name);
        words.iter().all(|word| text.windows(word.len()).any(|part| part == word.as_bytes()))
    };
    path.join(IDENTITY).exists()
        || says(CHECKSUMS, &[LINES_ABOVE])
        || says(MANIFEST, &["\"series\"", "\"runs\""])
}

/// Whether an open file is still the one of this name, and not one that was removed in between.
#[cfg(unix)]
fn same_file(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let id = |data: &std::fs::Metadata| (data.dev(), data.ino());
    matches!((file.metadata(), std::fs::metadata(path)), (Ok(a), Ok(b)) if id(&a) == id(&b))
}

/// An open file cannot be removed on other systems.
#[cfg(not(unix))]
fn same_file(_: &File, path: &Path) -> bool {
    path.exists()
}

/// The files that dibo itself wrote into a results folder, and its folders, which may hold others' too.
/// Tables with better labels are dibo's where `taken` has them, too, from where they were copied.
fn own_entries(path: &Path) -> Result<(Entries, Entries)> {
    let (mut files, mut folders) = (Vec::new(), Vec::new());
    let mut copied = BTreeSet::new();
    for taken in ["taken", "all-checked/taken"] {
        copied_names(&path.join(taken), &mut copied)?;
    }
    for (entry, name) in entries(path)? {
        let kind = entry.file_type().with_context(|| format!("cannot read {}", entry.path().display()))?;
        let own =
            |file: &&str| name == **file || name.starts_with(&format!("{file}.")) && is_temporary(&name);
        if kind.is_dir() && OWN_FOLDERS.contains(&name.as_str()) {
            folders.push((entry, name));
        } else if !kind.is_dir() && (OWN_FILES.iter().any(own) || copied.contains(&name)) {
            files.push((entry, name));
        }
    }
    Ok((files, folders))
}

/// Removes the files that dibo itself wrote into a results folder, and its folders where nothing else is in
/// them. What says that the folder is dibo's goes last.
fn remove_own(path: &Path) -> Result<()> {
    let (files, folders) = own_entries(path)?;
    let (marks, files): (Entries, Entries) = files.into_iter().partition(|(_, name)| name == IDENTITY);
    files.iter().try_for_each(|(file, _)| remove_file(&file.path()))?;
    folders.iter().try_for_each(|(folder, _)| remove_inside(&folder.path()))?;
    marks.iter().try_for_each(|(file, _)| remove_file(&file.path()))
}

/// The names of tables with better labels that every setting left.
fn copied_names(taken: &Path, names: &mut BTreeSet<String>) -> Result<()> {
    if !taken.is_dir() {
        return Ok(());
    }
    for (setting, _) in entries(taken)? {
        if setting.path().is_dir() {
            let found = entries(&setting.path())?.into_iter().map(|(_, name)| name);
            names.extend(found.filter(|name| name.starts_with(CLEANED)));
        }
    }
    Ok(())
}

fn remove_inside(folder: &Path) -> Result<()> {
    for (entry, name) in entries(folder)? {
        let kind = entry.file_type().with_context(|| format!("cannot read {}", entry.path().display()))?;
        if kind.is_dir() {
            remove_inside(&entry.path())?;
        } else if has_own_ending(&name) {
            remove_file(&entry.path())?;
        }
    }
    // Stays where something of another's is in it.
    let _ = std::fs::remove_dir(folder);
    Ok(())
}

fn remove_file(path: &Path) -> Result<()> {
    std::fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display()))
}

fn is_temporary(name: &str) -> bool {
    name.ends_with(".tmp")
}

/// Whether a file is there for a while only, or hidden.
fn is_passing(name: &str) -> bool {
    name.starts_with('.') || is_temporary(name)
}

/// Whether dibo itself writes such files into its folders.
fn has_own_ending(name: &str) -> bool {
    name.rsplit_once('.').is_some_and(|(_, end)| OWN_ENDINGS.contains(&&*end.to_lowercase()))
}

/// Entries of a folder with their names.
type Entries = Vec<(DirEntry, String)>;

/// The entries of a folder that have a readable name.
fn entries(folder: &Path) -> Result<Entries> {
    let fail = || format!("cannot read {}", folder.display());
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(fail)? {
        let entry = entry.with_context(fail)?;
        // dibo writes no other names, and a list of lines cannot hold them.
        if let Some(name) = entry.file_name().to_str().filter(|name| !name.contains(['\n', '\\'])) {
            let name = name.to_string();
            found.push((entry, name));
        }
    }
    Ok(found)
}

/// The files in a folder of dibo's that a reader may rely on, by their paths from the results folder on.
fn list_files(folder: &Path, prefix: &str, names: &mut Vec<String>) -> Result<()> {
    for (entry, name) in entries(folder)? {
        let kind = entry.file_type().with_context(|| format!("cannot read {}", entry.path().display()))?;
        if is_passing(&name) {
            continue;
        }
        let path = format!("{prefix}{name}");
        if kind.is_dir() {
            list_files(&entry.path(), &format!("{path}/"), names)?;
        } else if kind.is_file() && has_own_ending(&name) {
            names.push(path);
        }
    }
    Ok(())
}

/// The checksum of a file, in hexadecimal digits.
fn checksum(path: &Path) -> Result<String> {
    let fail = || format!("cannot read {}", path.display());
    let mut hash = blake3::Hasher::new();
    hash.update_reader(File::open(path).with_context(fail)?).with_context(fail)?;
    Ok(hash.finalize().to_hex().to_string())
}

/// Writes `checksums.txt`, a line for every file of dibo's that a reader may rely on: b3sum's format, ended
/// by the checksum of the lines before.
///
/// Left out are what begins with a dot, what is kept to go on with (`runs`, `tracks`, `agents`), temporary
/// files, and a user's own, which may change.
pub fn write_checksums(path: &Path) -> Result<()> {
    let (files, folders) = own_entries(path)?;
    let relied = |(entry, name): &(DirEntry, String)| {
        !is_passing(name) && name != CHECKSUMS && entry.file_type().is_ok_and(|kind| kind.is_file())
    };
    let mut names: Vec<String> = files.into_iter().filter(relied).map(|(_, name)| name).collect();
    for (entry, name) in folders.iter().filter(|(_, name)| !WORKING.contains(&name.as_str())) {
        list_files(&entry.path(), &format!("{name}/"), &mut names)?;
    }
    names.sort();
    let mut text = String::new();
    for name in names {
        text += &format!("{}  {name}\n", checksum(&path.join(&name))?);
    }
    text += &format!("{}  {LINES_ABOVE}\n", blake3::hash(text.as_bytes()).to_hex());
    write_file(&path.join(CHECKSUMS), text.as_bytes())
}

/// Which files of a results folder are not as they were written, each in words; an error if `checksums.txt`
/// itself is missing or damaged.
pub fn verify(path: &Path) -> Result<Vec<String>> {
    let list = path.join(CHECKSUMS);
    let bytes = std::fs::read(&list).with_context(|| {
        format!("cannot read {}; is {} a results folder of a run that ended?", list.display(), path.display())
    })?;
    let damaged = || format!("{} is damaged", list.display());
    let text = String::from_utf8(bytes).with_context(damaged)?;
    let last = text.trim_end_matches('\n').rfind('\n').map_or(0, |at| at + 1);
    let (lines, end) = text.split_at(last);
    ensure!(
        end == format!("{}  {LINES_ABOVE}\n", blake3::hash(lines.as_bytes()).to_hex()),
        "{}: its own checksum does not fit",
        damaged()
    );
    let mut wrong = Vec::new();
    for line in lines.lines() {
        let (expected, name) = line.split_once("  ").with_context(damaged)?;
        // Older lists have a user's own files, which may change.
        if !name.split('/').next().is_some_and(is_own) {
            continue;
        }
        let file = path.join(name);
        match file.try_exists() {
            Ok(false) => wrong.push(format!("{name} is missing")),
            _ => match checksum(&file) {
                Ok(found) if found == expected => {}
                Ok(_) => wrong.push(format!("{name} is damaged")),
                Err(error) => wrong.push(format!("{error:#}")),
            },
        }
    }
    match open_seal(&path.join(IDENTITY)) {
        Ok(_) | Err(Kept::Another) => {}
        Err(Kept::Damaged(_)) => wrong.push(format!("{IDENTITY} is damaged")),
        Err(_) => wrong.push(format!("{IDENTITY} is missing")),
    }
    Ok(wrong)
}

#[cfg(test)]
mod tests;
