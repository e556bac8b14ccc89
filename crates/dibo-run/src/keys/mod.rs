//! Every key that an experiment file may hold, with its type, its default and its doc comment: a page for
//! people and a JSON schema for editors. Both are made of the types that read the files, so that neither can
//! say anything else than the readers do.
mod page;
mod schema;

use crate::experiment::Head;
use crate::graphs::Common;
use crate::plan::RunKeys;
use crate::registry::Registry;
use crate::section::{Keys, did_you_mean};
use anyhow::{Result, bail};
use dibo_report::results::Figure;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value};

/// What an `[[algorithm]]` may hold beside its parameters and what the problem takes of it.
const OF_EVERY_ALGORITHM: [(&str, &str); 4] = [
    ("name", "Which algorithm."),
    ("label", "Its name in tables and plots; its usual one if not given."),
    ("group", "Gathers algorithms for a panel or a claim."),
    ("case", "The named case in which it runs; every case if not given."),
];

/// One key.
pub struct Key {
    /// As it stands in files.
    pub name: String,
    /// Its doc comment.
    pub about: String,
    /// What it is if not given; `None` if it must be given.
    pub default: Option<Value>,
    schema: Value,
    /// What its type refers to.
    shared: Value,
}

impl Key {
    /// A value of its type, in TOML: the default where there is one.
    pub fn example(&self) -> Value {
        if let Some(default) = self.default.as_ref().filter(|d| !d.is_null()) {
            return default.clone();
        }
        let first = |of: &Value| {
            let ways = of["oneOf"].as_array().or(of["anyOf"].as_array());
            ways.and_then(|w| w[0].get("const").cloned())
        };
        match self.schema["type"].as_str() {
            Some("integer") => Value::from(1),
            Some("boolean") => Value::from(true),
            Some("string") => Value::from("text"),
            Some("array") => Value::Array(Vec::new()),
            _ => first(&self.schema).or_else(|| first(&self.shared)).unwrap_or_else(|| Value::from(0.5)),
        }
    }
}

/// The keys of a section, or of one of its kinds.
pub struct Part {
    /// `problem`, `graph`, `run`, `algorithm`, `figure`; empty for what stands before them.
    pub section: &'static str,
    /// The kind of problem or graph, or the algorithm; empty for what all kinds have.
    pub kind: &'static str,
    /// What it is.
    pub about: String,
    /// Its keys.
    pub keys: Vec<Key>,
    /// Of what an `[[algorithm]]` says of the problem: the kinds of problem that it holds for.
    pub problems: Vec<&'static str>,
}

/// The keys of everything that a registry knows.
pub struct Reference {
    /// Section by section.
    pub parts: Vec<Part>,
    /// Types that several keys share.
    definitions: Map<String, Value>,
}

/// The name of a definition that a type refers to.
fn name(reference: &str) -> Option<&str> {
    reference.rsplit('/').next()
}

fn text(value: &Value, key: &str) -> String {
    value.get(key).and_then(Value::as_str).unwrap_or_default().replace('\n', " ")
}

fn part(types: &mut SchemaGenerator, section: &'static str, kind: &'static str, keys: Keys) -> Part {
    let mut schema = keys(types).to_value();
    // A type that is another under a name of its own has that one's keys.
    while let Some(definition) =
        schema["$ref"].as_str().and_then(name).and_then(|n| types.definitions().get(n))
    {
        schema = definition.clone();
    }
    let required = |key: &String| {
        schema["required"].as_array().is_some_and(|r| r.iter().any(|r| r.as_str() == Some(key)))
    };
    let key = |(name, schema): (&String, &Value)| Key {
        name: name.clone(),
        about: text(schema, "description"),
        default: (!required(name)).then(|| schema.get("default").cloned().unwrap_or_default()),
        schema: plain(schema),
        shared: Value::Null,
    };
    let keys = schema["properties"].as_object().map(|p| p.iter().map(key).collect()).unwrap_or_default();
    Part { section, kind, about: text(&schema, "description"), keys, problems: Vec::new() }
}

/// The type alone, without what is said of the key, and without null, which TOML does not have.
fn plain(schema: &Value) -> Value {
    let Value::Object(all) = schema else { return schema.clone() };
    let mut all = all.clone();
    for word in ["description", "default", "format"] {
        all.remove(word);
    }
    if let Some(Value::Array(types)) = all.get_mut("type") {
        types.retain(|t| t != "null");
        if let [one] = types.as_slice() {
            all["type"] = one.clone();
        }
    }
    if let Some(Value::Array(ways)) = all.get_mut("anyOf") {
        ways.retain(|w| w["type"] != "null");
        if let [one] = ways.as_slice() {
            return plain(one);
        }
    }
    Value::Object(all)
}

impl Reference {
    /// Asks everything in a registry for its keys.
    pub fn of(registry: &Registry) -> Self {
        let mut types = SchemaGenerator::default();
        let mut parts = vec![part(&mut types, "", "", Head::json_schema)];
        for problem in &registry.problems {
            parts.push(part(&mut types, "problem", problem.name, problem.keys));
        }
        parts.push(part(&mut types, "graph", "", Common::json_schema));
        for graph in &registry.graphs {
            parts.push(part(&mut types, "graph", graph.name, graph.keys));
        }
        parts.push(part(&mut types, "run", "", RunKeys::json_schema));
        parts.push(every_algorithm());
        for problem in registry.problems.iter().filter(|p| !p.algorithm_keys.is_empty()) {
            let own = part(&mut types, "algorithm", "", problem.of_algorithm);
            let names = |p: &Part| p.keys.iter().map(|k| k.name.clone()).collect::<Vec<_>>();
            match parts.iter_mut().find(|p| !p.problems.is_empty() && names(p) == names(&own)) {
                Some(same) => same.problems.push(problem.name),
                None => parts.push(Part { problems: vec![problem.name], ..own }),
            }
        }
        for algorithm in &registry.algorithms {
            let own = part(&mut types, "algorithm", algorithm.name, algorithm.keys);
            let about = match algorithm.about {
                "" => algorithm.label.into(),
                about => about.into(),
            };
            parts.push(Part { about, ..own });
        }
        parts.push(part(&mut types, "figure", "", Figure::json_schema));
        let names: Vec<&str> = registry.graphs.iter().map(|g| g.name).collect();
        for key in parts.iter_mut().filter(|p| p.section == "graph").flat_map(|p| &mut p.keys) {
            if key.name == "kind" {
                key.schema = serde_json::json!({ "enum": names });
            }
        }
        let all = types.take_definitions(true);
        let mut definitions = Map::new();
        for key in parts.iter_mut().flat_map(|p| &mut p.keys) {
            needed(&key.schema, &all, &mut definitions);
            let name = key.schema["$ref"].as_str().and_then(name);
            key.shared = name.and_then(|n| all.get(n)).cloned().unwrap_or_default();
        }
        Reference { parts, definitions }
    }

    /// What a word asks for: a section, a kind, an algorithm or a type; or a key, wherever it stands.
    pub fn find(&self, word: &str) -> Result<String> {
        let of = |p: &&Part| p.section == word || p.kind == word;
        let mut found: Vec<&Part> = self.parts.iter().filter(of).collect();
        if let Some((name, definition)) = self.definitions.iter().find(|d| d.0.eq_ignore_ascii_case(word)) {
            return Ok(self.definition_in_words(name, definition));
        }
        if found.is_empty() {
            found = self.parts.iter().filter(|p| p.keys.iter().any(|k| k.name == word)).collect();
        }
        if found.is_empty() {
            let all = self.parts.iter().flat_map(|p| [p.section, p.kind]);
            let keys = self.parts.iter().flat_map(|p| p.keys.iter().map(|k| k.name.as_str()));
            bail!("nothing is called '{word}'{}", did_you_mean(word, all.chain(keys)));
        }
        Ok(found.into_iter().map(|p| self.in_words(p, word)).collect::<Vec<_>>().join("\n"))
    }
}

/// Copies the definitions that a type refers to, and those that they refer to.
fn needed(schema: &Value, all: &Map<String, Value>, into: &mut Map<String, Value>) {
    match schema {
        Value::Object(fields) => {
            let own = schema["$ref"].as_str().and_then(name);
            if let Some((name, definition)) = own.and_then(|n| all.get_key_value(n))
                && into.insert(name.clone(), definition.clone()).is_none()
            {
                needed(definition, all, into);
            }
            fields.values().for_each(|v| needed(v, all, into));
        }
        Value::Array(list) => list.iter().for_each(|v| needed(v, all, into)),
        _ => (),
    }
}

fn every_algorithm() -> Part {
    let key = |(name, about): (&str, &str)| Key {
        name: name.into(),
        about: about.into(),
        default: (name != "name").then_some(Value::Null),
        schema: serde_json::json!({ "type": "string" }),
        shared: Value::Null,
    };
    let about = "What every `[[algorithm]]` may hold; the parameters of each follow below.".into();
    let keys = OF_EVERY_ALGORITHM.map(key).into();
    Part { section: "algorithm", kind: "", about, keys, problems: Vec::new() }
}
