//! The reference as a page in Markdown, and single parts of it for the terminal.
use super::{Key, Part, Reference, text};
use serde_json::{Map, Value};
use std::fmt::Write;

const HEAD: &str = "\
# Every key of an experiment file

Made by `dibo keys` from the types that read the files; `dibo keys WORD` shows one section, kind, algorithm or
key, and `dibo keys --schema` prints the [JSON schema](dibo.schema.json) that editors take.

A list instead of a value is a sweep: every combination of the lists is run. Keys that take a list as their
value sweep over a list of lists.
";

/// What stands above the keys of a section, in the order of the file.
const SECTIONS: [(&str, &str); 6] = [
    ("", "## Before the first section\n"),
    ("problem", "## `[problem]`\n\n`kind` says which problem; it must be given.\n"),
    ("graph", "## `[graph]`\n"),
    ("run", "## `[run]`\n"),
    ("algorithm", "## `[[algorithm]]`\n"),
    ("figure", "## `[[figure]]`\n"),
];

const CASES: &str = "\
## `[[case]]`

Values of `problem`, `graph`, `run` and `algorithm` that belong together, such as `graph.nu = 0.5` with
`problem.omega = 3`, one on each line. What a case says stands above what the section says. Every algorithm
runs in every case, unless its `case` names one, or several in a list: a case may have a `name`, by which its
series are then told apart.
";

impl Reference {
    /// The whole page.
    pub fn page(&self) -> String {
        let mut page = String::from(HEAD);
        for (section, head) in SECTIONS {
            let _ = write!(page, "\n{head}");
            for part in self.parts.iter().filter(|p| p.section == section) {
                self.write(&mut page, part);
            }
        }
        let _ = write!(page, "\n{CASES}\n## Words and schedules\n");
        for (name, definition) in &self.definitions {
            let _ = write!(page, "\n### {name}\n\n{}\n", text(definition, "description"));
            if let Some(ways) = choices(definition) {
                let _ = writeln!(page, "\n| value | what it is |\n|---|---|");
                for way in ways {
                    let _ = writeln!(page, "| {} | {} |", self.value(way), text(way, "description"));
                }
            } else {
                let _ = write!(page, "\n{}", self.table(&fields(definition)));
            }
        }
        page
    }

    fn write(&self, page: &mut String, part: &Part) {
        if !part.kind.is_empty() {
            let _ = write!(page, "\n### `{}`\n", part.kind);
        }
        if !part.problems.is_empty() {
            let kinds: Vec<String> = part.problems.iter().map(|p| format!("`{p}`")).collect();
            let _ = write!(page, "\n### On problems of kind {}\n", kinds.join(" or "));
        }
        let about = part.in_a_word();
        if !about.is_empty() {
            let _ = write!(page, "\n{about}\n");
        }
        match part.keys.is_empty() {
            true => page.push_str("\nIt has no keys of its own.\n"),
            false => {
                let _ = write!(page, "\n{}", self.table(&part.keys));
            }
        }
    }

    /// The keys of a part as a table in Markdown.
    pub fn table_of(&self, part: &Part) -> String {
        self.table(&part.keys)
    }

    fn table(&self, keys: &[Key]) -> String {
        let mut table = String::from("| key | value | default | what it is |\n|---|---|---|---|\n");
        for key in keys {
            let (name, about) = (&key.name, key.about.replace('|', "\\|"));
            let value = self.value(&key.schema);
            let _ = writeln!(table, "| `{name}` | {value} | {} | {about} |", default(key));
        }
        table
    }

    /// A part for the terminal; of a part that was found by one of its keys, that key alone.
    pub(super) fn in_words(&self, part: &Part, word: &str) -> String {
        let place = match (part.section, part.kind) {
            ("", _) => "before the first section".into(),
            (section @ ("algorithm" | "figure"), "") => format!("[[{section}]]"),
            ("algorithm", name) => format!("[[algorithm]] name = \"{name}\""),
            (section, "") => format!("[{section}]"),
            (section, kind) => format!("[{section}] kind = \"{kind}\""),
        };
        let of = match part.problems.as_slice() {
            [] => String::new(),
            kinds => format!(" on problems of kind {}", kinds.join(" or ")),
        };
        let mut lines = format!("{place}{of}\n");
        if !part.kind.is_empty() {
            let _ = writeln!(lines, "  {}", part.in_a_word());
        }
        let whole = part.section == word || part.kind == word;
        for key in part.keys.iter().filter(|k| whole || k.name == word) {
            let value = unlinked(&self.value(&key.schema));
            let _ = writeln!(lines, "  {:<18} {value}; {}", key.name, in_default(key));
            let _ = writeln!(lines, "  {:<18} {}", "", key.about);
        }
        lines
    }

    /// A type for the terminal.
    pub(super) fn definition_in_words(&self, name: &str, definition: &Value) -> String {
        let mut lines = format!("{}: {}\n", name.to_lowercase(), text(definition, "description"));
        for way in choices(definition).unwrap_or_default() {
            let value = unlinked(&self.value(way));
            let _ = writeln!(lines, "  {value:<18} {}", text(way, "description"));
        }
        for key in fields(definition) {
            let value = unlinked(&self.value(&key.schema));
            let _ = writeln!(lines, "  {:<18} {value}: {}", key.name, key.about);
        }
        unlinked(&lines)
    }

    /// A type in words.
    fn value(&self, schema: &Value) -> String {
        if let Some(name) = schema["$ref"].as_str() {
            let name = super::name(name).unwrap_or(name);
            let definition = self.definitions.get(name).unwrap_or(&Value::Null);
            let words = choices(definition).unwrap_or_default();
            return match words.iter().all(|w| w.get("const").is_some()) && !words.is_empty() {
                true => words.iter().map(|w| self.value(w)).collect::<Vec<_>>().join(", "),
                false => format!("[{}](#{})", name.to_lowercase(), name.to_lowercase()),
            };
        }
        if let Some(words) = schema["enum"].as_array() {
            return words.iter().map(|w| format!("`{w}`")).collect::<Vec<_>>().join(", ");
        }
        if let Some(word) = schema.get("const") {
            return format!("`{word}`");
        }
        if let Some(ways) = choices(schema) {
            return ways.iter().map(|w| self.value(w)).collect::<Vec<_>>().join(", or ");
        }
        let many = |count: Option<u64>, what: String| match count {
            Some(count) => format!("list of {count}: {what}"),
            None => format!("list: {what}"),
        };
        match schema["type"].as_str() {
            Some("number") => "number".into(),
            Some("integer") => "whole number".into(),
            Some("string") => "text".into(),
            Some("boolean") => "`true` or `false`".into(),
            Some("array") => many(schema["maxItems"].as_u64(), self.value(&schema["items"])),
            _ => "table".into(),
        }
    }
}

impl Part {
    /// What it is, in a sentence; doc comments of kinds begin with the name that stands above them.
    pub fn in_a_word(&self) -> String {
        let about = self.about.split_once("`: ").filter(|a| a.0.starts_with("`kind = "));
        let mut letters = about.map_or(self.about.as_str(), |a| a.1).chars();
        letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
    }
}

/// The alternatives of a type, one by one.
fn choices(schema: &Value) -> Option<Vec<&Value>> {
    let ways = schema.get("oneOf").or(schema.get("anyOf"))?;
    Some(ways.as_array()?.iter().collect())
}

/// The fields of a table.
fn fields(definition: &Value) -> Vec<Key> {
    let empty = Map::new();
    let all = definition["properties"].as_object().unwrap_or(&empty);
    let key = |(name, schema): (&String, &Value)| Key {
        name: name.clone(),
        about: text(schema, "description"),
        default: None,
        schema: schema.clone(),
        shared: Value::Null,
    };
    all.iter().map(key).collect()
}

fn default(key: &Key) -> String {
    match &key.default {
        None => "**must be given**".into(),
        Some(Value::Null) => "–".into(),
        Some(value) => format!("`{value}`"),
    }
}

fn in_default(key: &Key) -> String {
    match &key.default {
        None => "must be given".into(),
        Some(Value::Null) => "may be left away".into(),
        Some(value) => format!("{value} if not given"),
    }
}

/// Without the marks of Markdown.
fn unlinked(text: &str) -> String {
    let mut plain = text.replace(['`', '['], "");
    while let (Some(from), Some(to)) = (plain.find("]("), plain.find(')')) {
        plain.replace_range(from..=to, "");
    }
    plain
}
