//! Damage of every kind is seen, and a folder has one holder and one experiment.
use super::*;

/// An empty folder of a test's own, removed at its end.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("dibo-store-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Place(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const A: [u8; 32] = [1; 32];
const B: [u8; 32] = [2; 32];

/// Numbers without a pattern, the same in each run of the test (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % n as u64) as usize
    }
}

fn error<T: std::fmt::Debug>(result: Result<T>) -> String {
    let text = format!("{:#}", result.unwrap_err());
    assert!(!text.contains('\n'), "{text}");
    text
}

#[test]
fn what_was_sealed_is_found_by_its_digest_alone() {
    let place = Place::new("seal");
    let path = place.0.join("0-1.done");
    assert_eq!(unseal(&path, &A), Kept::Missing);
    for body in [&b""[..], b"body", &[7; 200_000]] {
        seal(&path, &A, body).unwrap();
        assert_eq!(unseal(&path, &A), Kept::Found(body.into()));
        assert_eq!(unseal(&path, &B), Kept::Another);
    }
    seal_with(&path, &B, |file| (0..100u8).try_for_each(|i| file.write_all(&[i; 1000]))).unwrap();
    let Kept::Found(body) = unseal(&path, &B) else { panic!("it was sealed just now") };
    assert!(body.len() == 100_000 && body[99_999] == 99);
    assert!(matches!(unseal(&place.0, &A), Kept::Damaged(_)), "a folder is no file");
    // A whole file in a format of another version.
    let mut other = b"dibo-seal-9\n".to_vec();
    other.extend([1; 32]);
    let checksum = blake3::hash(&other);
    other.extend(checksum.as_bytes());
    std::fs::write(&path, &other).unwrap();
    assert_eq!(unseal(&path, &A), Kept::Another);
}

#[test]
fn a_write_that_fails_is_an_error_and_leaves_the_old_file() {
    let place = Place::new("fails");
    let path = place.0.join("0-1.checkpoint");
    seal(&path, &A, b"old").unwrap();
    let full = || std::io::Error::new(ErrorKind::StorageFull, "no space left");
    let text = error(seal_with(&path, &A, |file| {
        file.write_all(&[0; 100_000])?;
        Err(full())
    }));
    assert!(text.contains("cannot write") && text.contains("no space left"), "{text}");
    assert_eq!(unseal(&path, &A), Kept::Found(b"old".into()));
    assert_eq!(std::fs::read_dir(&place.0).unwrap().count(), 1, "no temporary file is left");
    assert!(error(write_file(&place.0.join("none/file"), b"")).contains("cannot write"));
    // A disk that is full: Linux has one to try.
    if Path::new("/dev/full").exists() {
        let text = error(seal_with(&path, &A, |_| {
            let mut file = File::options().write(true).open("/dev/full")?;
            file.write_all(b"x")
        }));
        assert!(text.contains("cannot write"), "{text}");
    }
}

/// A folder as a run leaves it.
fn written(path: &Path) -> Folder {
    let folder = Folder::open(path, "small", &A, false).unwrap();
    write_file(&path.join("manifest.json"), b"{\"version\": 1}\n").unwrap();
    write_file(&path.join("curves.csv"), "1,2,3\n".repeat(100).as_bytes()).unwrap();
    std::fs::create_dir_all(path.join("plots")).unwrap();
    write_file(&path.join("plots/error.svg"), b"<svg/>").unwrap();
    write_file(&path.join("report.html"), b"<p>").unwrap();
    write_file(&path.join("owners.csv"), b"").unwrap();
    std::fs::create_dir_all(path.join("runs")).unwrap();
    for run in 0..3u8 {
        seal(&path.join(format!("runs/{run}-0.done")), &A, &[run; 50]).unwrap();
    }
    folder.finish().unwrap();
    folder
}

/// What is wrong with the folder, by every means there is.
fn findings(path: &Path) -> Vec<String> {
    let mut found = verify(path).unwrap_or_else(|error| vec![format!("{error:#}")]);
    for run in 0..3 {
        let name = format!("runs/{run}-0.done");
        if !matches!(unseal(&path.join(&name), &A), Kept::Found(_)) {
            found.push(name);
        }
    }
    found
}

#[test]
fn every_flipped_bit_and_every_cut_is_found() {
    let place = Place::new("damage");
    let path = &place.0;
    let _folder = written(path);
    assert_eq!(findings(path), [""; 0]);
    let files: Vec<PathBuf> = [
        ".experiment",
        "checksums.txt",
        "manifest.json",
        "curves.csv",
        "plots/error.svg",
        "report.html",
        "runs/0-0.done",
        "runs/2-0.done",
    ]
    .iter()
    .map(|name| path.join(name))
    .collect();
    let mut random = Random(7);
    for trial in 0..70 {
        let file = &files[if trial < 16 { trial / 2 } else { random.below(files.len()) }];
        let sound = std::fs::read(file).unwrap();
        let mut bytes = sound.clone();
        if trial < 50 {
            bytes[random.below(sound.len())] ^= 1 << random.below(8);
        } else {
            bytes.truncate(random.below(sound.len()));
        }
        std::fs::write(file, &bytes).unwrap();
        let found = findings(path);
        assert_eq!(found.len(), 1, "trial {trial}, {}: {found:?}", file.display());
        std::fs::write(file, &sound).unwrap();
    }
    std::fs::remove_file(path.join("curves.csv")).unwrap();
    assert_eq!(verify(path).unwrap(), ["curves.csv is missing"]);
    std::fs::remove_file(path.join(CHECKSUMS)).unwrap();
    assert!(error(verify(path)).contains("checksums.txt"));
}

#[test]
fn the_list_is_in_b3sum_s_format() {
    let place = Place::new("list");
    let _folder = written(&place.0);
    let text = std::fs::read_to_string(place.0.join(CHECKSUMS)).unwrap();
    let names: Vec<&str> = text.lines().map(|line| &line[66..]).collect();
    let all =
        ["curves.csv", "manifest.json", "owners.csv", "plots/error.svg", "report.html", "the lines above"];
    assert_eq!(names, all);
    let empty = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262  owners.csv";
    assert!(text.contains(empty), "{text}");
}

/// Their owners may change them at any time.
#[test]
fn files_of_users_are_in_no_list() {
    let place = Place::new("theirs");
    let folder = written(&place.0);
    let list = || std::fs::read_to_string(place.0.join(CHECKSUMS)).unwrap();
    let before = list();
    let own = ["notes.txt", "mine/curves.csv", "cleaned_by_hand.csv", "plots/sketch.pdf", "data.csv"];
    for name in own {
        std::fs::create_dir_all(place.0.join(name).parent().unwrap()).unwrap();
        std::fs::write(place.0.join(name), b"mine").unwrap();
    }
    folder.finish().unwrap();
    assert_eq!(list(), before);
    // Those that dibo copied from what a setting left are its own.
    for name in ["taken/0/cleaned_site.csv", "cleaned_site.csv"] {
        std::fs::create_dir_all(place.0.join(name).parent().unwrap()).unwrap();
        std::fs::write(place.0.join(name), b"dibo's").unwrap();
    }
    folder.finish().unwrap();
    assert!(list().contains("  cleaned_site.csv\n") && list().contains("  taken/0/cleaned_site.csv\n"));
    // A list of an older dibo has them all.
    let lines = format!(
        "{}{}  notes.txt\n",
        before.split_inclusive('\n').take(5).collect::<String>(),
        "0".repeat(64)
    );
    let end = format!("{}  {LINES_ABOVE}\n", blake3::hash(lines.as_bytes()).to_hex());
    std::fs::write(place.0.join(CHECKSUMS), lines + &end).unwrap();
    assert_eq!(verify(&place.0).unwrap(), [""; 0]);
}

#[test]
fn one_holder_at_a_time() {
    let place = Place::new("lock");
    let path = place.0.join("results/small");
    let first = Folder::open(&path, "small", &A, false).unwrap();
    assert_eq!(first.path(), path);
    for fresh in [false, true] {
        let text = error(Folder::open(&path, "small", &A, fresh));
        assert!(text.contains("in use") && text.contains("--out"), "{text}");
    }
    write_file(&path.join("manifest.json"), b"{}").unwrap();
    drop(first);
    Folder::open(&path, "small", &A, false).unwrap();
    assert!(path.join("manifest.json").exists());
    // Many at once: never two of them inside, and each comes in or is refused.
    let inside = AtomicU64::new(0);
    let path = place.0.join("many");
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..50 {
                    match Folder::open(&path, "small", &A, false) {
                        Ok(folder) => {
                            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                            inside.fetch_sub(1, Ordering::SeqCst);
                            drop(folder);
                        }
                        Err(error) => assert!(format!("{error:#}").contains("--out"), "{error:#}"),
                    }
                }
            });
        }
    });
}

#[test]
fn one_experiment_and_one_setting() {
    let place = Place::new("identity");
    let path = place.0.join("small");
    drop(written(&path));
    let text = error(Folder::open(&path, "other", &A, false));
    assert!(text.contains("results of small, not of other") && text.contains("--fresh"), "{text}");
    let text = error(Folder::open(&path, "small", &B, false));
    assert!(text.contains("other settings") && text.contains("--out"), "{text}");
    drop(Folder::open(&path, "small", &A, false).unwrap());
    // An older folder does not say whose it is, a damaged one neither.
    std::fs::write(path.join(IDENTITY), b"?").unwrap();
    assert!(error(Folder::open(&path, "small", &A, false)).contains("--fresh"));
    std::fs::remove_file(path.join(IDENTITY)).unwrap();
    assert!(error(Folder::open(&path, "small", &A, false)).contains("do not say of which experiment"));
}

#[test]
fn fresh_removes_what_is_dibo_s_and_nothing_else() {
    let place = Place::new("fresh");
    let path = place.0.join("small");
    drop(written(&path));
    let kept = ["notes.txt", "plots/sketch.pdf", "curves.csv.bak", "mine/manifest.json", ".hidden"];
    std::fs::create_dir_all(path.join("mine")).unwrap();
    for name in kept {
        std::fs::write(path.join(name), b"mine").unwrap();
    }
    std::fs::write(path.join("curves.csv.12-3.tmp"), b"half").unwrap();
    let folder = Folder::open(&path, "other", &B, true).unwrap();
    assert!(kept.iter().all(|name| path.join(name).exists()));
    for gone in ["manifest.json", "curves.csv", "curves.csv.12-3.tmp", "runs", "plots/error.svg", CHECKSUMS] {
        assert!(!path.join(gone).exists(), "{gone}");
    }
    drop(folder);
    drop(Folder::open(&path, "other", &B, false).unwrap());
    assert!(path.join("notes.txt").exists());
}

/// Another's results would stand beside new ones as though they were theirs.
#[test]
fn fresh_removes_what_cleaning_left() {
    let place = Place::new("fresh-clean");
    let path = place.0.join("cleaned");
    drop(written(&path));
    let gone = [
        "labels.parquet",
        "cleaned_site0.csv",
        "cleaned_S1.TSV",
        "taken/0/cleaned_site0.csv",
        "taken/1/labels.parquet",
        "taken/1/cleaned_S1.TSV",
        "taken/1/labels.part",
        "all-checked/.experiment",
        "all-checked/.lock",
        "all-checked/manifest.json",
        "all-checked/runs/0-0.done",
        "all-checked/taken/0/labels.parquet",
    ];
    // What was not copied from there is somebody's own, and so is what dibo does not write.
    let kept = ["cleaned_by_hand.csv", "cleaned_notes.txt", "taken/1/notes.pdf"];
    for name in gone.iter().chain(&kept) {
        std::fs::create_dir_all(path.join(name).parent().unwrap()).unwrap();
        std::fs::write(path.join(name), b"x").unwrap();
    }
    let folder = Folder::open(&path, "small", &A, true).unwrap();
    assert!(kept.iter().all(|name| path.join(name).exists()));
    for name in gone.iter().chain(&["all-checked", "taken/0"]) {
        assert!(!path.join(name).exists(), "{name}");
    }
    drop(folder);
}

#[test]
fn a_user_s_own_folder_is_refused_and_stays_as_it_is() {
    let place = Place::new("foreign");
    for (i, name) in [
        "labels.csv",
        "cleaned.csv",
        "Cleaned_a.CSV",
        "manifest.json",
        "checksums.txt",
        "plots/a.png",
        "runs/a",
    ]
    .into_iter()
    .enumerate()
    {
        let path = place.0.join(i.to_string());
        std::fs::create_dir_all(path.join(name).parent().unwrap()).unwrap();
        std::fs::write(path.join(name), b"mine").unwrap();
        for fresh in [false, true] {
            let text = error(Folder::open(&path, "small", &A, fresh));
            let first = name.split('/').next().unwrap();
            let what = format!("has a {first} that dibo did not write; give another folder with --out");
            assert!(text.contains(&what), "{text}");
        }
        assert_eq!(std::fs::read(path.join(name)).unwrap(), b"mine");
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 1, "{name}: something was written");
    }
    // Of processes there is nothing but folders and logs.
    let path = place.0.join("processes");
    std::fs::create_dir_all(path.join("agents/0")).unwrap();
    std::fs::write(path.join("agents/0.log"), b"").unwrap();
    std::fs::write(path.join("agents/notes.txt"), b"mine").unwrap();
    for fresh in [false, true] {
        let text = error(Folder::open(&path, "small", &A, fresh));
        assert!(text.contains("has a agents/notes.txt that dibo did not write"), "{text}");
    }
    assert_eq!(std::fs::read(path.join("agents/notes.txt")).unwrap(), b"mine");
    // Other files are no hindrance, nor are the folders of processes or empty ones.
    let path = place.0.join("other");
    std::fs::create_dir_all(path.join("plots")).unwrap();
    std::fs::create_dir_all(path.join("agents/0")).unwrap();
    std::fs::write(path.join("notes.txt"), b"mine").unwrap();
    drop(Folder::open(&path, "small", &A, false).unwrap());
    // Results that an older dibo left are dibo's.
    let path = place.0.join("older");
    drop(written(&path));
    std::fs::remove_file(path.join(IDENTITY)).unwrap();
    drop(Folder::open(&path, "small", &A, true).unwrap());
    assert!(!path.join("manifest.json").exists());
    std::fs::write(path.join("manifest.json"), b"{\"series\": [], \"runs\": []}").unwrap();
    std::fs::remove_file(path.join(IDENTITY)).unwrap();
    drop(Folder::open(&path, "small", &A, true).unwrap());
}

#[test]
fn a_run_that_leaves_nothing_leaves_no_folder() {
    let place = Place::new("empty");
    let path = place.0.join("results/small");
    let folder = Folder::open(&path, "small", &A, false).unwrap();
    std::fs::create_dir_all(path.join("runs")).unwrap();
    drop(folder);
    assert!(!place.0.join("results").exists());
    let folder = Folder::open(&path, "small", &A, false).unwrap();
    std::fs::write(path.join("notes.txt"), b"mine").unwrap();
    drop(folder);
    assert!(path.join("notes.txt").exists(), "what is in it stays");
    // A folder that was there before stays.
    let before = place.0.join("before");
    std::fs::create_dir_all(&before).unwrap();
    drop(Folder::open(&before, "small", &A, false).unwrap());
    assert!(before.exists());
    // A run that was killed left nothing but its name: the next one may be another.
    seal(&before.join(IDENTITY), &A, b"small").unwrap();
    drop(Folder::open(&before, "other", &B, false).unwrap());
    assert_eq!(unseal(&before.join(IDENTITY), &B), Kept::Found(b"other".into()));
    // A file is no folder.
    std::fs::write(place.0.join("file"), b"").unwrap();
    assert!(error(Folder::open(&place.0.join("file"), "small", &A, false)).contains("--out"));
}

#[test]
fn names_stay_in_their_folder() {
    for good in ["fmcr", "rl-n100", "a_b.c", "größe", &"a".repeat(100)] {
        check_name("name", good).unwrap();
    }
    for bad in ["", ".", "..", "../../x", "a/b", "a\\b", ".hidden", "a b", "a\n", "C:x", &"a".repeat(101)] {
        let text = error(check_name("name", bad));
        assert!(text.starts_with("name is "), "{text}");
    }
    assert!(Folder::open(Path::new("nowhere"), "../../x", &A, false).is_err());
    assert!(!Path::new("nowhere").exists());
}
