//! The reference of keys says what the readers do: every key that is accepted is in it and every key in it is
//! accepted, and the schema accepts and refuses what dibo does.
use dibo_run::Registry;
use dibo_run::keys::{Part, Reference};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Reads a file's text as `dibo run` does.
fn read(registry: &Registry, text: &str) -> Result<(), String> {
    let source = registry.source("test.toml".into(), text);
    registry.parse(source, "test", Path::new("."), true).map(drop).map_err(|e| format!("{e:#}"))
}

#[test]
fn the_pages_are_what_the_code_says() {
    let reference = Reference::of(&dibo_cli::standard());
    let kept = |name: &str| std::fs::read_to_string(root().join("docs").join(name)).unwrap();
    assert!(kept("reference.md") == reference.page(), "`dibo keys > docs/reference.md` writes it anew");
    let schema = format!("{:#}\n", reference.schema());
    assert!(
        kept("dibo.schema.json") == schema,
        "`dibo keys --schema > docs/dibo.schema.json` writes it anew"
    );
}

#[test]
fn every_key_is_explained() {
    for part in Reference::of(&dibo_cli::standard()).parts {
        for key in &part.keys {
            assert!(!key.about.is_empty(), "[{}] {}: {} has no words", part.section, part.kind, key.name);
        }
    }
}

/// A file whose one line is in a section of a kind; what else must be there has some value.
fn file(part: &Part, line: &str) -> String {
    let some = |part: &Part, section: &str, head: &str| {
        let mut text = format!("{head}\n");
        if part.section == section {
            text += &format!("{line}\n");
            let given = line.split(" =").next().unwrap_or_default();
            for key in part.keys.iter().filter(|k| k.default.is_none() && k.name != given) {
                let value = key.example();
                text += &format!("{} = {value}\n", key.name);
            }
        }
        text
    };
    let kind = |section: &str, other: &'static str| match part.section == section && !part.kind.is_empty() {
        true => part.kind,
        false => other,
    };
    let problem = part.problems.first().copied().unwrap_or("quadratic");
    let problem = some(part, "problem", &format!("[problem]\nkind = \"{}\"", kind("problem", problem)));
    let graph = match line.starts_with("kind") {
        true => some(part, "graph", "[graph]"),
        false => some(part, "graph", &format!("[graph]\nkind = \"{}\"", kind("graph", "cycle"))),
    };
    let name = format!("[[algorithm]]\nname = \"{}\"", kind("algorithm", "fab"));
    let name = if line.starts_with("name") { "[[algorithm]]".into() } else { name };
    let mut algorithm = some(part, "algorithm", &name);
    if part.section != "algorithm" || part.kind.is_empty() {
        algorithm += "lambda = 1\neta_x = 0.1\neta_y = 0.1\n";
    }
    let figure = if part.section == "figure" { some(part, "figure", "[[figure]]") } else { String::new() };
    some(part, "", "") + &problem + &graph + &some(part, "run", "[run]") + &algorithm + &figure
}

#[test]
fn what_the_readers_take_is_in_the_reference() {
    let registry = dibo_cli::standard();
    for part in &Reference::of(&registry).parts {
        let common = part.kind.is_empty() && ["graph", "algorithm"].contains(&part.section);
        if common {
            continue;
        }
        let error = read(&registry, &file(part, "no_such_key = 1")).unwrap_err();
        assert!(error.contains("unknown field `no_such_key`"), "{} {}: {error}", part.section, part.kind);
        let known: BTreeSet<&str> = error.split('`').skip(3).step_by(2).collect();
        let written: BTreeSet<&str> = part.keys.iter().map(|k| k.name.as_str()).collect();
        assert_eq!(known, written, "[{}] {}", part.section, part.kind);
    }
    for problem in &registry.problems {
        let reference = Reference::of(&registry);
        let taken = reference.parts.iter().filter(|p| p.problems.contains(&problem.name));
        let written: BTreeSet<&str> = taken.flat_map(|p| p.keys.iter().map(|k| k.name.as_str())).collect();
        assert_eq!(problem.algorithm_keys.iter().copied().collect::<BTreeSet<_>>(), written);
    }
}

#[test]
fn what_is_in_the_reference_the_readers_take() {
    let registry = dibo_cli::standard();
    for part in &Reference::of(&registry).parts {
        for key in &part.keys {
            let text = file(part, &format!("{} = {}", key.name, key.example()));
            let error = read(&registry, &text).err().unwrap_or_default();
            let unknown = error.contains("unknown field") || error.contains("invalid type");
            assert!(!unknown, "[{}] {}: {}: {error}\n{text}", part.section, part.kind, key.name);
        }
    }
}

/// Every experiment file that dibo has.
fn shipped() -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> =
        dibo_paper::EXPERIMENTS.iter().map(|(name, text)| (name.to_string(), text.to_string())).collect();
    for file in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|e| e == "toml") {
            all.push((path.display().to_string(), std::fs::read_to_string(&path).unwrap()));
        }
    }
    assert!(all.len() > 30);
    all
}

fn as_json(text: &str) -> Value {
    serde_json::to_value(text.parse::<toml::Table>().unwrap()).unwrap()
}

#[test]
fn the_schema_takes_every_shipped_file() {
    let schema = jsonschema::validator_for(&Reference::of(&dibo_cli::standard()).schema()).unwrap();
    for (name, text) in shipped() {
        if let Err(error) = schema.validate(&as_json(&text)) {
            panic!("{name}: {} at {}", error, error.instance_path());
        }
    }
}

/// Puts a key into every table of every shipped file, one after the other: a key that nobody knows, and keys
/// of other kinds.
#[test]
fn the_schema_refuses_unknown_keys_as_dibo_does() {
    let registry = dibo_cli::standard();
    let reference = Reference::of(&registry);
    let schema = jsonschema::validator_for(&reference.schema()).unwrap();
    let mut keys: Vec<(String, Value)> = vec![("no_such_key".into(), Value::from(1))];
    for part in &reference.parts {
        keys.extend(part.keys.iter().map(|k| (k.name.clone(), k.example())));
    }
    let (mut refused, mut taken, mut turn) = (0, 0, 0);
    for (name, text) in shipped() {
        let tables: Vec<usize> =
            text.lines().enumerate().filter(|(_, l)| l.starts_with('[')).map(|(i, _)| i).collect();
        // The zoo's files have hundreds of tables that are alike.
        for table in tables.iter().copied().step_by(tables.len().div_ceil(24)) {
            for round in 0..12 {
                turn += 1;
                let (key, value) = if round == 0 { &keys[0] } else { &keys[turn * 31 % keys.len()] };
                let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
                let case = lines[table].starts_with("[[case");
                let place = if case { "graph." } else { "" };
                lines.insert(table + 1, format!("{place}{key} = {value}"));
                let text = lines.join("\n");
                // A key that is there already is no TOML.
                let Ok(json) = text.parse::<toml::Table>().map(|t| serde_json::to_value(t).unwrap()) else {
                    continue;
                };
                let told = read(&registry, &text);
                let here = || format!("{name}: {key} after line {}: {told:?}", table + 1);
                match &told {
                    Ok(()) => {
                        taken += 1;
                        assert!(schema.is_valid(&json), "{}: {:?}", here(), schema.validate(&json));
                    }
                    // Cases may change the kind itself, which a schema cannot follow.
                    Err(e) if e.contains("unknown field") && (json.get("case").is_none() || round == 0) => {
                        refused += 1;
                        assert!(!schema.is_valid(&json), "{}", here());
                    }
                    Err(_) => (),
                }
            }
        }
    }
    assert!(refused > 1000 && taken > 50, "{refused} refused, {taken} taken");
}
