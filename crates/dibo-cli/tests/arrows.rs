//! The arrows between crates, and between rooms (modules) of each crate: a room uses only the rooms that the
//! design allows it, and no arrow runs back.
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A crate, the crates it may use, and its rooms with the rooms that each may use.
struct Crate {
    name: &'static str,
    crates: &'static [&'static str],
    rooms: &'static [(&'static str, &'static [&'static str])],
}

/// A new room must be entered here. What a crate's root offers (`crate::name` in `lib.rs`) may be used by its
/// rooms.
const CRATES: &[Crate] = &[
    Crate { name: "dibo", crates: &[], rooms: LIBRARY },
    Crate {
        name: "dibo-report",
        crates: &[],
        rooms: &[
            ("results", &[]),
            ("report", &["results"]),
            ("judge", &["report", "results"]),
            ("live", &["report", "results"]),
        ],
    },
    Crate {
        name: "dibo-learn",
        crates: &[],
        rooms: &[("samples", &[]), ("read", &["samples"]), ("model", &["samples"])],
    },
    Crate {
        name: "dibo-paper",
        crates: &["dibo_report"],
        rooms: &[
            ("claims", &[]),
            ("experiments", &[]),
            ("kept", &["claims"]),
            ("page", &["claims", "kept"]),
            ("zoo", &["experiments", "kept", "page"]),
        ],
    },
    Crate {
        name: "dibo-cuda",
        crates: &["dibo"],
        rooms: &[
            ("sticky", &[]),
            ("kernels", &[]),
            ("products", &[]),
            ("gpu", &["kernels", "products", "sticky"]),
            ("memory", &["gpu"]),
            ("rows", &["gpu", "memory"]),
            ("network", &["gpu", "kernels", "memory", "rows"]),
            ("batches", &["gpu", "memory"]),
            ("mlp", &["batches", "gpu", "kernels", "memory", "products"]),
            ("bert", &["batches", "gpu", "kernels", "memory", "products"]),
            ("learning", &["batches", "bert", "gpu", "kernels", "memory", "mlp", "products", "rows"]),
            ("labels", &["batches", "bert", "gpu", "learning", "memory", "rows"]),
        ],
    },
    Crate {
        name: "dibo-net",
        crates: &["dibo"],
        rooms: &[
            ("transport", &[]),
            ("packet", &[]),
            ("disk", &[]),
            ("certificates", &[]),
            ("hub", &["transport"]),
            ("wire", &["transport"]),
            ("keys", &["packet"]),
            ("identity", &["keys", "wire"]),
            ("node", &["keys", "packet", "transport"]),
            ("agents", &["node", "packet"]),
            ("gather", &["agents", "node", "packet"]),
            ("life", &["agents", "disk", "node"]),
        ],
    },
    Crate {
        name: "dibo-run",
        crates: &["dibo", "dibo_cuda", "dibo_learn", "dibo_report"],
        rooms: &[
            ("section", &[]),
            ("device", &[]),
            ("allocator", &[]),
            ("stop", &[]),
            ("taken", &[]),
            ("saved", &[]),
            ("texts", &["saved"]),
            ("download", &[]),
            ("progress", &["say"]),
            ("data", &["download", "texts"]),
            ("plan", &["section"]),
            ("graphs", &["section"]),
            ("sites", &["data"]),
            ("problems", &["data", "device", "saved", "section", "sites"]),
            ("registry", &["graphs", "problems", "section"]),
            ("setting", &["graphs", "plan", "problems"]),
            ("experiment", &["graphs", "plan", "registry", "section", "setting"]),
            ("keys", &["experiment", "graphs", "plan", "registry", "section"]),
            ("pictures", &["experiment"]),
            ("door", &["device", "problems", "section", "setting"]),
            ("origin", &[]),
            (
                "runner",
                &[
                    "allocator",
                    "device",
                    "door",
                    "experiment",
                    "origin",
                    "progress",
                    "say",
                    "setting",
                    "stop",
                ],
            ),
            ("check", &["door", "experiment", "runner", "setting"]),
            ("tune", &["check", "door", "experiment", "progress", "registry", "say", "setting", "stop"]),
        ],
    },
    Crate {
        name: "dibo-cli",
        crates: &["dibo", "dibo_learn", "dibo_net", "dibo_paper", "dibo_report", "dibo_run"],
        rooms: &[
            ("peer", &[]),
            ("live", &[]),
            ("run", &["live", "peer"]),
            ("clean", &["run"]),
            ("predict", &[]),
            ("report", &["run"]),
            ("tune", &[]),
            ("bench", &[]),
            ("book", &[]),
            ("keys", &[]),
            ("list", &["cores"]),
            ("new", &[]),
            ("shell", &["Cli"]),
            ("no_net", &[]),
            ("net", &["live", "run"]),
            ("paper", &["peer"]),
            ("main", &[]),
        ],
    },
    Crate {
        name: "dibo-py",
        crates: &["dibo", "dibo_cli", "dibo_cuda", "dibo_net", "dibo_report", "dibo_run"],
        rooms: &[
            ("keep", &[]),
            ("array", &["keep"]),
            ("device", &["array", "keep"]),
            ("memory", &["device", "keep"]),
            ("graph", &[]),
            ("problems", &[]),
            ("network", &["graph"]),
            ("oracle", &["keep", "memory"]),
            ("command", &["oracle"]),
            ("solve", &["device", "graph", "keep", "memory", "oracle", "problems"]),
            ("agent", &["graph", "keep", "memory", "oracle", "solve"]),
        ],
    },
];

/// The rooms of the library.
const LIBRARY: &[(&str, &[&str])] = &[
    ("error", &[]),
    ("memory", &[]),
    ("kernels", &["memory"]),
    ("rows", &["kernels", "memory"]),
    ("rng", &[]),
    ("schedule", &[]),
    // Of kernels only `Csr`, the shape in which they want links: see
    // `only_the_link_pattern_of_kernels_in_graph`.
    ("graph", &["rng", "kernels"]),
    ("mixing", &["graph", "kernels", "rows"]),
    ("network", &["error", "kernels", "rows", "mixing", "graph"]),
    ("agreement", &["error", "mixing", "network", "rows"]),
    ("data", &["rng", "memory"]),
    ("problem", &["error", "kernels", "rows", "rng", "data"]),
    ("algorithm", &["error", "rng", "rows", "network", "problem", "schedule"]),
    ("metrics", &["error", "algorithm", "problem", "rows"]),
    ("engine", &["algorithm", "error", "graph", "metrics", "mixing", "network", "problem", "rows"]),
    ("theory", &["error", "graph", "mixing", "problem", "rows"]),
    ("trace", &["error", "algorithm", "graph", "mixing", "network", "problem", "rows"]),
];

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name).join("src")
}

/// All Rust files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()) {
        match entry.is_dir() {
            true => found.extend(files(&entry)),
            // `tests.rs` and `fuzz.rs` are modules for tests that lie in files of their own.
            false if entry.ends_with("tests.rs") || entry.ends_with("fuzz.rs") => {}
            false if entry.extension().is_some_and(|e| e == "rs") => found.push(entry),
            false => {}
        }
    }
    found
}

/// The program without comments, texts and modules for tests: what is left is what the library itself uses.
fn program(text: &str) -> String {
    let mut left = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        let skip = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if rest.starts_with("'\"'") || rest.starts_with("'\\\"'") {
            rest[1..].find('\'').unwrap() + 2
        } else if rest.starts_with('"') {
            text_length(rest)
        } else if let Some(item) = rest.strip_prefix("#[cfg(test)]") {
            rest.len() - item.len() + item_length(item)
        } else {
            0
        };
        if skip > 0 {
            rest = &rest[skip..];
        } else {
            let c = rest.chars().next().unwrap();
            left.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    left
}

fn text_length(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            '\\' if !escaped => escaped = true,
            '"' if !escaped => return at + 1,
            _ => escaped = false,
        }
    }
    text.len()
}

/// Up to the semicolon, or to the brace that closes the first one opened. rustfmt puts that brace on a line
/// of its own.
fn item_length(item: &str) -> usize {
    let (semicolon, brace) = (item.find(';'), item.find('{'));
    match (semicolon, brace) {
        (Some(s), b) if b.is_none_or(|b| s < b) => s + 1,
        _ => item.find("\n}").map_or(item.len(), |end| end + 2),
    }
}

/// The rooms that a program names after `crate::`, also in braces: `crate::{rows, rng::stream}`.
fn rooms_used(program: &str) -> BTreeSet<String> {
    let word = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let mut used = BTreeSet::new();
    for (at, mark) in program.match_indices("crate::") {
        let after = &program[at + mark.len()..];
        let Some(list) = after.strip_prefix('{') else {
            used.insert(word(after));
            continue;
        };
        let (mut depth, mut expecting) = (0, true);
        for (at, c) in list.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => expecting = true,
                c if c.is_whitespace() => {}
                _ if expecting => {
                    used.insert(word(&list[at..]));
                    expecting = false;
                }
                _ => {}
            }
        }
    }
    used
}

/// The room a file belongs to: the first part of its path.
fn room(name: &str, file: &Path) -> String {
    let inside = file.strip_prefix(source(name)).unwrap();
    inside.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs").to_string()
}

/// The crates of this workspace that a program names.
fn crates_used(program: &str) -> BTreeSet<String> {
    let words = program.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
    let first = words.filter_map(|w| w.split_once("::")).map(|w| w.0);
    first.filter(|w| *w == "dibo" || w.starts_with("dibo_")).map(String::from).collect()
}

#[test]
fn rooms_and_crates_use_only_what_they_may() {
    let (mut arrows, mut wrong) = (0, Vec::new());
    for Crate { name, crates, rooms } in CRATES {
        let root: Vec<String> = roots(name);
        for file in files(&source(name)) {
            let (own, text) = (room(name, &file), program(&std::fs::read_to_string(&file).unwrap()));
            let this = name.replace('-', "_");
            for used in crates_used(&text).into_iter().filter(|c| *c != this) {
                if !crates.contains(&used.as_str()) {
                    wrong
                        .push(format!("{} uses the crate {used}; {name} may use {crates:?}", file.display()));
                }
            }
            if own == "lib" {
                continue;
            }
            let Some((_, allowed)) = rooms.iter().find(|(room, _)| *room == own) else {
                wrong.push(format!(
                    "room '{own}' of {name} is not in the table of this test: say what it may use"
                ));
                continue;
            };
            for used in rooms_used(&text).into_iter().filter(|used| *used != own && !root.contains(used)) {
                arrows += 1;
                if !allowed.contains(&used.as_str()) {
                    wrong.push(format!("{} uses '{used}'; '{own}' may use {allowed:?}", file.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(arrows > 60, "only {arrows} uses found: is the reader of this test broken?");
}

/// What a crate's root itself defines: functions and types that all its rooms may use.
fn roots(name: &str) -> Vec<String> {
    let text = program(&std::fs::read_to_string(source(name).join("lib.rs")).unwrap());
    let words: Vec<&str> =
        text.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|w| !w.is_empty()).collect();
    let defines = |w: &&[&str]| ["fn", "struct", "enum", "trait", "const", "macro_rules"].contains(&w[0]);
    words.windows(2).filter(defines).map(|w| w[1].to_string()).collect()
}

#[test]
fn only_the_link_pattern_of_kernels_in_graph() {
    for file in files(&source("dibo").join("graph")) {
        let text = program(&std::fs::read_to_string(&file).unwrap());
        for (at, mark) in text.match_indices("crate::kernels") {
            assert!(
                text[at + mark.len()..].starts_with("::Csr"),
                "{} uses more of kernels than Csr",
                file.display()
            );
        }
    }
}

#[test]
fn the_tables_have_no_circle() {
    // Take away rooms that use only rooms already taken; all must go. (What is no room comes from the crate's
    // root.)
    for Crate { name, rooms, .. } in CRATES {
        let is_room = |used: &&&str| rooms.iter().any(|(room, _)| room == *used);
        let mut taken: BTreeSet<&str> = BTreeSet::new();
        while let Some((room, _)) = rooms.iter().find(|(room, uses)| {
            !taken.contains(room) && uses.iter().filter(is_room).all(|u| taken.contains(u))
        }) {
            taken.insert(room);
        }
        assert_eq!(taken.len(), rooms.len(), "{name}");
    }
}

/// Sections of code that must not be long, and lines that must not be wide: what a reader can take in.
#[test]
fn lines_are_at_most_110_columns_wide() {
    let mut wrong = Vec::new();
    for Crate { name, .. } in CRATES {
        for folder in ["src", "tests", "examples"] {
            let folder = source(name).join("..").join(folder);
            for file in if folder.is_dir() { files(&folder) } else { Vec::new() } {
                for (number, line) in std::fs::read_to_string(&file).unwrap().lines().enumerate() {
                    if line.chars().count() > 110 {
                        wrong.push(format!("{}:{}", file.display(), number + 1));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} lines are too wide: {}", wrong.len(), wrong.join(" "));
}

#[test]
fn no_function_is_longer_than_80_lines() {
    let mut wrong = Vec::new();
    for Crate { name, .. } in CRATES {
        for file in files(&source(name)).iter().filter(|f| room(name, f) != "kernels") {
            let text = std::fs::read_to_string(file).unwrap();
            let mut open: Option<(usize, String)> = None;
            for (number, line) in text.lines().enumerate() {
                let indent = line.len() - line.trim_start().len();
                let words = line.trim_start();
                let starts = ["fn ", "pub fn ", "pub(crate) fn ", "pub(super) fn ", "unsafe fn "]
                    .iter()
                    .any(|w| words.starts_with(w));
                if open.is_none() && starts && !words.ends_with(';') {
                    open = Some((number, " ".repeat(indent) + "}"));
                }
                if let Some((from, close)) = open.take_if(|(_, close)| line == close.as_str()) {
                    let _ = close;
                    if number - from + 1 > 80 {
                        wrong.push(format!("{}:{}: {} lines", file.display(), from + 1, number - from + 1));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// `unsafe` has its rooms: kernels and memory of the library, the allocator's counter, the GPU crate, arrays
/// of a GPU that Python sees; and one line of the wire, which sets a variable of the environment that its
/// transport reads.
#[test]
fn unsafe_stays_in_its_rooms() {
    for Crate { name, .. } in CRATES.iter().filter(|c| c.name != "dibo-cuda") {
        for file in files(&source(name)) {
            let text = program(&std::fs::read_to_string(&file).unwrap());
            let mut words = text.split(|c: char| !(c.is_alphanumeric() || c == '_'));
            let allowed =
                ["allocator", "array", "kernels", "memory", "wire"].contains(&room(name, &file).as_str());
            assert!(allowed || words.all(|w| w != "unsafe"), "{} has unsafe code", file.display());
        }
    }
}

#[test]
fn the_reader_sees_what_is_there_and_skips_what_is_not() {
    let text = "use crate::rows::Rows; // crate::engine\nuse crate::{rng::{Purpose, stream}, \
        mixing};\nconst T: &str = \"crate::trace\";\n\
                fn f() { crate::network::go('\"'); }\n#[cfg(test)]\nmod tests {\n    use \
                crate::problem::At;\n}\nuse crate::schedule::Schedule;\n\
                #[cfg(test)]\nuse crate::theory;\n";
    assert_eq!(
        rooms_used(&program(text)).into_iter().collect::<Vec<_>>(),
        ["mixing", "network", "rng", "rows", "schedule"]
    );
}
