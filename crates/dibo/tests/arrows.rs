//! The arrows between rooms (modules of the library): a room uses only the rooms that the design allows it.
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Each room and the rooms it may use. `theory`, `trace` and what else reads whole experiments stand above
/// all others and are listed too, so that a new room must be entered here before it compiles into the tests.
const MAY_USE: &[(&str, &[&str])] = &[
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
    ("data", &["rng", "memory"]),
    ("problem", &["error", "kernels", "rows", "rng", "data"]),
    ("algorithm", &["error", "rows", "network", "problem", "schedule"]),
    ("metrics", &["error", "algorithm", "problem", "rows"]),
    ("engine", &["algorithm", "error", "graph", "metrics", "mixing", "network", "problem", "rows"]),
    ("theory", &["error", "graph", "mixing", "problem", "rows"]),
    ("trace", &["error", "algorithm", "graph", "mixing", "network", "problem", "rows"]),
];

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// All Rust files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()) {
        match entry.is_dir() {
            true => found.extend(files(&entry)),
            // `tests.rs` is a module for tests that lies in a file of its own.
            false if entry.ends_with("tests.rs") => {}
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
fn room(file: &Path) -> String {
    let inside = file.strip_prefix(source()).unwrap();
    inside.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs").to_string()
}

#[test]
fn rooms_use_only_what_they_may() {
    let (mut arrows, mut wrong) = (0, Vec::new());
    for file in files(&source()).iter().filter(|f| room(f) != "lib") {
        let own = room(file);
        let Some((_, allowed)) = MAY_USE.iter().find(|(name, _)| *name == own) else {
            wrong.push(format!("room '{own}' is not in the table of this test: say what it may use"));
            continue;
        };
        let text = std::fs::read_to_string(file).unwrap();
        for used in rooms_used(&program(&text)).into_iter().filter(|used| *used != own) {
            arrows += 1;
            if !allowed.contains(&used.as_str()) {
                wrong.push(format!("{} uses '{used}'; '{own}' may use {allowed:?}", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(arrows > 20, "only {arrows} uses found: is the reader of this test broken?");
}

#[test]
fn only_the_link_pattern_of_kernels_in_graph() {
    for file in files(&source().join("graph")) {
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
fn unsafe_has_its_rooms() {
    for file in files(&source()).iter().filter(|f| !["kernels", "memory"].contains(&room(f).as_str())) {
        let text = program(&std::fs::read_to_string(file).unwrap());
        let words = text.split(|c: char| !(c.is_alphanumeric() || c == '_'));
        assert!(words.filter(|word| *word == "unsafe").count() == 0, "unsafe in {}", file.display());
    }
}

#[test]
fn the_table_has_no_circle() {
    // Take away rooms that use only rooms already taken; all must go. (`kernels` under `graph` is the one
    // arrow against the drawing.)
    let mut taken: BTreeSet<&str> = BTreeSet::new();
    while let Some((room, _)) =
        MAY_USE.iter().find(|(room, uses)| !taken.contains(room) && uses.iter().all(|u| taken.contains(u)))
    {
        taken.insert(room);
    }
    assert_eq!(taken.len(), MAY_USE.len());
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
