//! The reference as a JSON schema (draft 2020-12), for editors and other programs.
use super::{Key, Part, Reference};
use serde_json::{Map, Value, json};

impl Reference {
    /// The schema of an experiment file. Keys of other kinds and algorithms are refused as dibo refuses them,
    /// unless the file has cases, which may change the kind itself.
    pub fn schema(&self) -> Value {
        let head = self.keys("", "").map(|k| (k.name.clone(), said(k, k.schema.clone())));
        let mut properties: Map<String, Value> = head.collect();
        let any = |section: &str| json!({ "$ref": format!("#/$defs/any-{section}") });
        for section in ["problem", "graph", "run"] {
            properties.insert(section.into(), any(section));
        }
        properties.insert("algorithm".into(), tables(any("algorithm")));
        let case = ["problem", "graph", "run", "algorithm"].map(|s| (s.to_string(), any(s)));
        let mut case: Map<String, Value> = case.into_iter().collect();
        let name = "By which algorithms ask for it, and its series are told apart.";
        case.insert("name".into(), json!({ "type": "string", "description": name }));
        properties.insert("case".into(), tables(closed(case)));
        let figure = self.keys("figure", "").map(|k| (k.name.clone(), said(k, k.schema.clone()))).collect();
        properties.insert("figure".into(), tables(closed(figure)));
        let kinds = ["problem", "graph"].map(|s| (s.to_string(), self.by_kind(s)));
        let kinds: Map<String, Value> = kinds.into_iter().collect();
        let exact = json!({ "properties": kinds, "allOf": self.by_problem() });
        let mut definitions = self.definitions.clone();
        definitions.insert("algorithm".into(), self.algorithm());
        for section in ["problem", "graph", "run", "algorithm"] {
            definitions.insert(format!("any-{section}"), self.any(section));
        }
        let mut schema = closed(properties);
        schema["$defs"] = Value::Object(definitions);
        let more = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "dibo experiment",
            "description": "An experiment file of dibo. A list instead of a value is a sweep.",
            "required": ["problem", "algorithm"],
            "if": { "required": ["case"] },
            "else": exact,
        });
        for (key, value) in more.as_object().into_iter().flatten() {
            schema[key] = value.clone();
        }
        schema
    }

    fn parts(&self, section: &str) -> impl Iterator<Item = &Part> {
        self.parts.iter().filter(move |p| p.section == section)
    }

    fn keys<'a>(&'a self, section: &'a str, kind: &'a str) -> impl Iterator<Item = &'a Key> {
        self.parts(section)
            .filter(move |p| p.kind == kind && p.problems.is_empty())
            .flat_map(|p| p.keys.iter())
    }

    fn names(&self, section: &str) -> Vec<&'static str> {
        self.parts(section).map(|p| p.kind).filter(|k| !k.is_empty()).collect()
    }

    /// A section with the keys of any of its kinds.
    fn any(&self, section: &str) -> Value {
        let mut ways: Map<String, Value> = Map::new();
        for key in self.parts(section).flat_map(|p| p.keys.iter()) {
            let new = ways.entry(key.name.clone()).or_insert_with(|| said(key, json!({ "anyOf": [] })));
            let Some(types) = new["anyOf"].as_array_mut() else { continue };
            for way in swept(&key.schema) {
                if !types.contains(&way) {
                    types.push(way);
                }
            }
        }
        let names = self.names(section);
        if !names.is_empty() {
            let key = if section == "algorithm" { "name" } else { "kind" };
            ways.insert(key.into(), json!({ "anyOf": swept(&json!({ "enum": names })) }));
        }
        closed(ways)
    }

    /// `if` the kind is this one, `then` these keys with these types.
    fn by_kind(&self, section: &str) -> Value {
        let mut all = Vec::new();
        for kind in self.names(section) {
            let keys = self.keys(section, kind).chain(self.keys(section, ""));
            let mut keys = types(keys);
            keys.insert("kind".into(), json!(true));
            // A graph of which nothing is said is the first.
            let unsaid = section == "graph" && all.is_empty();
            let given = if unsaid { json!([]) } else { json!(["kind"]) };
            let is = json!({ "properties": { "kind": { "const": kind } }, "required": given });
            all.push(json!({ "if": is, "then": closed(keys) }));
        }
        json!({ "allOf": all })
    }

    /// `if` the problem is of this kind, `then` algorithms have their own keys and what it takes of them.
    fn by_problem(&self) -> Vec<Value> {
        let taking: Vec<&Part> = self.parts("algorithm").filter(|p| !p.problems.is_empty()).collect();
        let others = self.names("problem").into_iter();
        let others: Vec<&str> = others.filter(|k| taking.iter().all(|p| !p.problems.contains(k))).collect();
        let groups = taking.iter().map(|p| (&p.problems, types(p.keys.iter())));
        let rule = |(kinds, taken): (&Vec<&str>, Map<String, Value>)| {
            let is = json!({ "properties": { "kind": { "enum": kinds } }, "required": ["kind"] });
            let own = json!({
                "$ref": "#/$defs/algorithm", "properties": taken, "unevaluatedProperties": false
            });
            json!({
                "if": { "properties": { "problem": is }, "required": ["problem"] },
                "then": { "properties": { "algorithm": { "items": own } } }
            })
        };
        groups.chain([(&others, Map::new())]).filter(|g| !g.0.is_empty()).map(rule).collect()
    }

    /// `if` the algorithm is this one, `then` these are its keys.
    fn algorithm(&self) -> Value {
        let own = |name: &'static str| {
            let keys = types(self.keys("algorithm", name).chain(self.keys("algorithm", "")));
            json!({
                "if": { "properties": { "name": { "const": name } }, "required": ["name"] },
                "then": { "properties": keys }
            })
        };
        // Several in turn may have each other's keys.
        let several = json!({
            "if": { "properties": { "name": { "type": "array" } } },
            "then": { "$ref": "#/$defs/any-algorithm" }
        });
        json!({ "allOf": self.names("algorithm").into_iter().map(own).chain([several]).collect::<Vec<_>>() })
    }
}

/// Keys with their types, of which each may be swept.
fn types<'a>(keys: impl Iterator<Item = &'a Key>) -> Map<String, Value> {
    keys.map(|k| (k.name.clone(), json!({ "anyOf": swept(&k.schema) }))).collect()
}

/// A table with these keys and no others.
fn closed(properties: Map<String, Value>) -> Value {
    json!({ "type": "object", "properties": properties, "additionalProperties": false })
}

/// A list of tables, `[[…]]`.
fn tables(of: Value) -> Value {
    json!({ "type": "array", "items": of })
}

/// A value, or a list of them to sweep over.
fn swept(schema: &Value) -> Vec<Value> {
    vec![schema.clone(), json!({ "type": "array", "items": schema, "minItems": 1 })]
}

/// A type with what is said of the key.
fn said(key: &Key, mut schema: Value) -> Value {
    if !key.about.is_empty() {
        schema["description"] = json!(key.about);
    }
    if let Some(default) = key.default.as_ref().filter(|d| !d.is_null()) {
        schema["default"] = default.clone();
    }
    schema
}
