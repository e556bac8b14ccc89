//! The book says what is so: pages of methods are made from the code, links lead somewhere, experiment files
//! in it can be read, and its commands run (the long ones shortened).
use dibo_cli::standard;
use dibo_run::keys::{Part, Reference};
use dibo_run::{Registry, Setting};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Every chapter with its place in `docs`, and the README.
fn chapters() -> Vec<(String, String)> {
    let docs = root().join("docs");
    let mut names: Vec<String> = Vec::new();
    for folder in ["", "methods"] {
        for file in std::fs::read_dir(docs.join(folder)).unwrap() {
            let name = Path::new(folder).join(file.unwrap().file_name()).display().to_string();
            names.extend(name.ends_with(".md").then_some(name));
        }
    }
    names.sort();
    let mut all: Vec<(String, String)> =
        names.into_iter().map(|n| (n.clone(), text(&docs.join(n)))).collect();
    all.push(("../README.md".into(), text(&root().join("README.md"))));
    all
}

/// The fenced blocks of a language.
fn blocks(chapter: &str, language: &str) -> Vec<String> {
    let (mut all, mut inside): (Vec<String>, Option<String>) = (Vec::new(), None);
    for line in chapter.lines() {
        match (line.trim_start().strip_prefix("```"), &mut inside) {
            (Some(_), Some(_)) => all.extend(inside.take()),
            (Some(word), None) if word == language => inside = Some(String::new()),
            (None, Some(block)) => {
                block.push_str(line);
                block.push('\n');
            }
            _ => (),
        }
    }
    all
}

#[derive(Deserialize)]
struct Words {
    parts: BTreeMap<String, String>,
    method: Vec<Method>,
}

#[derive(Deserialize)]
struct Method {
    names: Vec<String>,
    formula: Vec<String>,
    when: String,
    #[serde(default)]
    keys: toml::Table,
}

/// The method with some value for all that must be given, on a small problem.
fn setting(registry: &Registry, part: &Part, method: &Method) -> Setting {
    let mut file = format!("[problem]\nkind = \"quadratic\"\n[[algorithm]]\nname = \"{}\"\n", part.kind);
    for key in part.keys.iter().filter(|k| k.default.is_none() && !method.keys.contains_key(&k.name)) {
        writeln!(file, "{} = {}", key.name, key.example()).unwrap();
    }
    for (key, value) in &method.keys {
        writeln!(file, "{key} = {value}").unwrap();
    }
    let source = registry.source(part.kind.into(), &file);
    let read = registry.parse(source, "test", Path::new("."), false);
    read.unwrap_or_else(|e| panic!("{e:#}\n{file}")).settings.remove(0)
}

/// What the code knows of a method's cost and needs.
fn facts(setting: &Setting) -> Vec<(&'static str, String)> {
    let parameters = setting.parameters();
    let graph = parameters.graph_needs();
    let links = match (graph.doubly_stochastic, graph.one_graph) {
        (_, true) => "one undirected graph for ever",
        (true, false) => "undirected ones, which may change",
        (false, false) => match parameters.mixes() {
            dibo::algorithm::Mixes::Centrally => "none: all gradients are averaged in one place",
            _ => "directed ones, which may change",
        },
    };
    let vectors = parameters.vectors(1);
    let widths = [(vectors.upper, "x"), (vectors.lower, "y"), (vectors.single, "the single-level variable")];
    let kept = widths.iter().filter(|w| w.0 > 0).map(|(n, of)| format!("{n} of the width of {of}"));
    let axes: Vec<String> = parameters
        .tiers()
        .iter()
        .map(|t| t.axes.iter().map(|a| format!("`{}`", a.key)).collect::<Vec<_>>().join(" × "))
        .collect();
    let theorem = match parameters.theorem() {
        Some(_) => "yes; `dibo check` gives its steps",
        None => "none that dibo knows",
    };
    vec![
        ("needs of the problem", parameters.needs().words().into()),
        ("links", links.into()),
        ("rounds an iteration", parameters.rounds().to_string()),
        ("vectors an agent keeps", kept.collect::<Vec<_>>().join(", ")),
        ("theorem", theorem.into()),
        ("what `dibo tune` looks for", if axes.is_empty() { "–".into() } else { axes.join(", then ") }),
    ]
}

fn page(registry: &Registry, reference: &Reference, words: &Words, name: &str) -> String {
    let entry = registry.algorithms.iter().find(|a| a.name == name).unwrap();
    let part = reference.parts.iter().find(|p| p.kind == name).unwrap();
    let method = words.method.iter().find(|m| m.names.iter().any(|n| n == name));
    let method = method.unwrap_or_else(|| panic!("docs/methods/words.toml has no words for {name}"));
    let mut page = format!("# {} (`{name}`)\n\n", entry.label);
    if !entry.about.is_empty() {
        writeln!(page, "{}.\n", part.in_a_word()).unwrap();
    }
    page += "```text\n";
    for line in &method.formula {
        let line = words.parts.iter().fold(line.clone(), |l, (k, v)| l.replace(&format!("{{{k}}}"), v));
        writeln!(page, "{line}").unwrap();
    }
    write!(page, "```\n\n**When to take it.** {}\n\n| | |\n|---|---|\n", method.when).unwrap();
    for (what, is) in facts(&setting(registry, part, method)) {
        writeln!(page, "| {what} | {is} |").unwrap();
    }
    let keys = reference.table_of(part).replace("](#", "](../reference.md#");
    write!(
        page,
        "\n## Keys\n\n{keys}\nHow it did beside the others: [the field's methods](../methods.md).\n"
    )
    .unwrap();
    page
}

/// `DIBO_WRITE=1 cargo test --release -p dibo-cli --test book` writes the pages anew.
#[test]
fn pages_of_methods_are_what_the_code_says() {
    let (registry, folder) = (standard(), root().join("docs/methods"));
    let words: Words = toml::from_str(&text(&folder.join("words.toml"))).unwrap();
    let reference = Reference::of(&registry);
    let summary = text(&root().join("docs/SUMMARY.md"));
    for algorithm in &registry.algorithms {
        let (file, new) = (
            folder.join(format!("{}.md", algorithm.name)),
            page(&registry, &reference, &words, algorithm.name),
        );
        if std::env::var_os("DIBO_WRITE").is_some() {
            std::fs::write(&file, &new).unwrap();
        }
        assert!(text(&file) == new, "{} is old; DIBO_WRITE=1 writes it anew", file.display());
        assert!(summary.contains(&format!("(methods/{}.md)", algorithm.name)), "{}", algorithm.name);
    }
}

#[test]
fn every_chapter_is_in_the_summary_and_links_lead_somewhere() {
    let summary = text(&root().join("docs/SUMMARY.md"));
    for (name, chapter) in chapters() {
        let listed = name.starts_with("..") || name == "SUMMARY.md" || summary.contains(&format!("({name})"));
        assert!(listed, "{name} is not in SUMMARY.md");
        let folder = root().join("docs").join(&name);
        for link in chapter.split("](").skip(1).filter_map(|l| l.split(')').next()) {
            let file = link.split('#').next().unwrap_or_default();
            if link.contains("://") || file.is_empty() || link.contains(' ') {
                continue;
            }
            let there = folder.parent().unwrap().join(file);
            assert!(there.exists(), "{name}: there is no {link}");
        }
    }
}

#[test]
fn the_readme_counts_the_methods_that_there_are() {
    let words = format!("{} methods", standard().algorithms.len());
    assert!(text(&root().join("README.md")).contains(&words), "README must say that there are {words}");
}

/// A newcomer should know in a minute what it is for.
#[test]
fn the_readme_is_short() {
    let words = text(&root().join("README.md")).split_whitespace().count();
    assert!(words <= 900, "{words} words");
}

#[test]
fn experiment_files_in_the_book_can_be_read() {
    let (registry, mut read) = (standard(), 0);
    for (name, chapter) in chapters() {
        for block in blocks(&chapter, "toml").iter().filter(|b| b.contains("[problem]")) {
            let source = registry.source(name.clone(), block);
            registry.parse(source, "test", Path::new("."), false).unwrap_or_else(|e| panic!("{e:#}"));
            read += 1;
        }
    }
    assert!(read >= 3, "{read} files");
}

/// What a test can do with a command of the book.
enum Deed {
    /// Run it with these arguments more.
    Run(&'static [&'static str]),
    /// Not here: it needs what the default build, or this machine, does not have.
    Leave,
}

fn deed(command: &str) -> Option<Deed> {
    const SHORT: &[&str] = &["--set", "run.iterations=20", "--seeds", "1", "--quiet"];
    let words: Vec<&str> = command.split_whitespace().collect();
    let has = |word: &str| words.contains(&word);
    Some(match words.first().copied()? {
        "run" if has("--device") || has("--peer") => Deed::Leave,
        "run" if has("--set") => Deed::Run(&["--quiet"]),
        "run" => Deed::Run(SHORT),
        "tune" => Deed::Run(&["--set", "run.iterations=20", "--set", "seeds=1", "--quiet"]),
        "check" => Deed::Run(&["--seconds", "0.5"]),
        "clean" => Deed::Run(&["--quiet"]),
        "new" | "list" | "keys" | "completions" | "man" | "data" | "predict" | "report" => Deed::Run(&[]),
        "launch" if cfg!(feature = "net") => Deed::Run(&["--set", "run.iterations=20", "--quiet"]),
        "launch" | "agent" | "gather" | "status" | "certificates" | "router" | "bench" => Deed::Leave,
        _ => return None,
    })
}

/// The words of a command line.
fn split(line: &str) -> Vec<String> {
    let (mut words, mut quoted) = (vec![String::new()], false);
    for letter in line.chars() {
        match letter {
            '"' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            letter => words.last_mut().unwrap().push(letter),
        }
    }
    words.retain(|w| !w.is_empty());
    words
}

/// Five small tables with the columns that the book speaks of.
fn tables(folder: &Path) {
    for site in 0..5 {
        let mut rows = String::from("patient,age,pressure,diagnosis,reviewed\n");
        for row in 0..40 {
            let (age, sick) = (20 + (row * 7 + site * 3) % 60, (row * 7 + site * 3) % 60 > 30);
            let wrong = row % 5 == 0 && row % 4 != 0;
            let label = if sick != wrong { "ill" } else { "well" };
            let (pressure, checked) = (100 + age / 2 + row % 3, u8::from(row % 4 == 0));
            writeln!(rows, "p{site}-{row},{age},{pressure},{label},{checked}").unwrap();
        }
        std::fs::write(folder.join(format!("site{site}.csv")), rows).unwrap();
    }
}

/// Every `dibo` line of the fenced shell blocks, chapter by chapter, each in a folder of its own.
#[test]
fn the_commands_of_the_book_run() {
    let (mut ran, mut left) = (0, 0);
    for (name, chapter) in chapters() {
        let folder = tempfile::tempdir().unwrap();
        tables(folder.path());
        for (number, block) in blocks(&chapter, "toml").iter().enumerate() {
            let file = if number == 0 { "loops.toml".into() } else { format!("file{number}.toml") };
            std::fs::write(folder.path().join(file), block).unwrap();
        }
        for line in blocks(&chapter, "sh").iter().flat_map(|b| b.lines()) {
            let line = line.split(" #").next().unwrap_or_default().trim();
            let Some(command) = line.strip_prefix("dibo ") else { continue };
            let command = command.split(" > ").next().unwrap_or_default();
            let known = deed(command).unwrap_or_else(|| panic!("{name}: nobody knows `{line}`"));
            let Deed::Run(more) = known else {
                left += 1;
                continue;
            };
            let mut arguments = split(command);
            let over = |word: &str| arguments.iter().any(|a| a == word);
            let more: Vec<&str> =
                if over("--seeds") { more[..more.len().min(2)].to_vec() } else { more.to_vec() };
            arguments.extend(more.iter().map(|m| m.to_string()));
            let output = Command::new(env!("CARGO_BIN_EXE_dibo"))
                .current_dir(folder.path())
                .args(&arguments)
                .output()
                .unwrap();
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{name}: `{line}` ({arguments:?}): {error}");
            ran += 1;
        }
    }
    assert!(ran >= 12, "{ran} ran, {left} were left");
}
