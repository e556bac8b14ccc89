//! Experiment files as text: sweeps are unfolded and sections cut out with their places, so that every error
//! still points at the line of the file that the user wrote.
use anyhow::{Result, anyhow};
use dibo_report::results::Value;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Gives the keys of a section: names, types, defaults and doc comments.
pub type Keys = fn(&mut schemars::SchemaGenerator) -> schemars::Schema;

/// A file's text and the name to use in messages.
#[derive(Clone, Debug)]
pub struct Source {
    /// What to call it.
    pub name: String,
    /// What is in it.
    pub text: String,
    /// Keys whose lists are values, not sweeps (a list of lists sweeps over them).
    pub lists: Vec<&'static str>,
}

/// "; did you mean 'x'?" if one of the known words is close to a word, else nothing.
pub fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let close = known.into_iter().map(|k| (strsim::normalized_damerau_levenshtein(word, k), k));
    match close.filter(|c| c.0 >= 0.6).max_by(|a, b| a.0.total_cmp(&b.0)) {
        Some((_, best)) => format!("; did you mean '{best}'?"),
        None => String::new(),
    }
}

impl Source {
    /// `FILE:LINE: what`.
    pub fn error(&self, at: usize, what: impl std::fmt::Display) -> anyhow::Error {
        let line = self.text.get(..at.min(self.text.len())).unwrap_or(&self.text).matches('\n').count() + 1;
        anyhow!("{}:{line}: {what}", self.name)
    }

    /// An error of the TOML reader, on one line.
    pub fn toml_error(&self, error: &toml::de::Error) -> anyhow::Error {
        let message = error
            .message()
            .split('\n')
            .map(str::trim)
            .filter(|l| !l.is_empty())
            .collect::<Vec<_>>()
            .join("; ");
        self.error(error.span().map_or(0, |s| s.start), message)
    }

    /// The text with `--set key=value` carried out. `algorithm.key` sets it in every algorithm that has the
    /// key, `algorithm.0.key` in the first alone.
    pub fn with(mut self, overrides: &[String]) -> Result<Source> {
        if overrides.is_empty() {
            return Ok(self);
        }
        let mut document: toml_edit::DocumentMut = self.text.parse().map_err(|e: toml_edit::TomlError| {
            self.error(e.span().map_or(0, |s| s.start), e.message().replace('\n', "; "))
        })?;
        for set in overrides {
            let (key, value) = set
                .split_once('=')
                .ok_or_else(|| anyhow!("--set {set}: write it as key=value, such as run.iterations=100"))?;
            let value: toml_edit::Value = value.trim().parse().unwrap_or_else(|_| value.trim().into());
            let mut path: Vec<&str> = key.trim().split('.').collect();
            let last = path
                .pop()
                .filter(|l| !l.is_empty())
                .ok_or_else(|| anyhow!("--set {set}: the key is empty"))?;
            let mut tables: Vec<&mut dyn toml_edit::TableLike> = vec![document.as_table_mut()];
            let mut listed = false;
            for part in path {
                if let (true, Ok(which)) = (listed, part.parse::<usize>()) {
                    let count = tables.len();
                    if which >= count {
                        return Err(anyhow!("--set {set}: there are {count} of them, and 0 is the first"));
                    }
                    (tables, listed) = (vec![tables.swap_remove(which)], false);
                    continue;
                }
                listed = false;
                let mut inner = Vec::new();
                for table in tables {
                    match table.entry(part).or_insert(toml_edit::table()) {
                        toml_edit::Item::ArrayOfTables(list) => {
                            listed = true;
                            inner.extend(list.iter_mut().map(|t| t as &mut dyn toml_edit::TableLike))
                        }
                        item => inner.extend(item.as_table_like_mut()),
                    }
                }
                tables = inner;
            }
            if tables.is_empty() {
                return Err(anyhow!("--set {set}: '{key}' lies in something that is not a table"));
            }
            // Of several algorithms, those that have the key; all, if none has it.
            if tables.iter().any(|t| t.contains_key(last)) {
                tables.retain(|t| t.contains_key(last));
            }
            tables.into_iter().for_each(|t| drop(t.insert(last, toml_edit::value(value.clone()))));
            // What the user sets now is stronger than what a case says.
            if let (Some((section, key)), Some(cases)) = (
                key.trim().split_once('.'),
                document.get_mut("case").and_then(|c| c.as_array_of_tables_mut()),
            ) {
                for case in cases.iter_mut() {
                    case.get_mut(section).and_then(|t| t.as_table_like_mut()).map(|t| t.remove(key));
                }
            }
        }
        self.text = document.to_string();
        self.name = format!("{} (with --set)", self.name);
        Ok(self)
    }
}

/// Beginnings of pieces: in a text that was cut together, and in the file.
type Places = Vec<(usize, usize)>;

/// One table of a file, and which element of each swept list is meant.
#[derive(Clone)]
pub struct Section<'a> {
    source: &'a Source,
    entries: Vec<Entry>,
    header: usize,
    picks: BTreeMap<String, usize>,
}

#[derive(Clone)]
struct Entry {
    key: String,
    key_span: Range<usize>,
    value: Range<usize>,
    /// Spans of the elements of a swept list; empty for a plain value.
    elements: Vec<Range<usize>>,
    /// What the elements hold; of a plain value, itself alone.
    values: Vec<Value>,
    /// Whether a case gave it: then it differs between series and shows like a swept value.
    shows: bool,
}

/// A value as its TOML has it. What no type of ours could hold (a date, a number beyond 64 bits) stays as it
/// was written: whoever reads the key refuses it, with its line.
fn typed(value: &Spanned<DeValue<'_>>) -> Value {
    match value.get_ref() {
        DeValue::Boolean(flag) => Value::Flag(*flag),
        DeValue::Integer(n) => match i64::from_str_radix(n.as_str(), n.radix()) {
            Ok(n) => Value::Whole(n),
            Err(_) => n.as_str().into(),
        },
        DeValue::Float(x) => x.as_str().parse::<f64>().map_or_else(|_| x.as_str().into(), Value::from),
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Datetime(date) => Value::Text(date.to_string()),
        DeValue::Array(list) => Value::List(list.iter().map(typed).collect()),
        DeValue::Table(table) => {
            Value::Table(table.iter().map(|(key, v)| (key.get_ref().to_string(), typed(v))).collect())
        }
    }
}

impl<'a> Section<'a> {
    /// The section of a table that the reader found in `source`.
    pub fn new(source: &'a Source, header: usize, table: &DeTable<'_>) -> Result<Self> {
        let mut entries = Vec::new();
        for (key, value) in table.iter() {
            let (key_span, span) = (key.span(), value.span());
            let inline = source.text.get(span.start..).is_some_and(|t| t.starts_with('{'));
            if value.get_ref().is_table() && !inline || span.start < key_span.end {
                return Err(source.error(
                    key_span.start,
                    format!("write {} as an inline table, {{ … }}, on one line", key.get_ref()),
                ));
            }
            let mut elements = Vec::new();
            if let DeValue::Array(list) = value.get_ref() {
                let nested = list.iter().all(|e| e.get_ref().is_array());
                if !source.lists.contains(&&**key.get_ref()) || (nested && !list.is_empty()) {
                    elements = list.iter().map(Spanned::span).collect();
                    if elements.is_empty() {
                        return Err(source.error(
                            span.start,
                            format!("{} is an empty list; a sweep needs at least one value", key.get_ref()),
                        ));
                    }
                }
            }
            let values = match value.get_ref() {
                DeValue::Array(list) if !elements.is_empty() => list.iter().map(typed).collect(),
                _ => vec![typed(value)],
            };
            entries.push(Entry {
                key: key.get_ref().to_string(),
                key_span,
                value: span,
                elements,
                values,
                shows: false,
            });
        }
        Ok(Section { source, entries, header, picks: BTreeMap::new() })
    }

    /// This section with the values of a case instead of its own.
    pub fn overlaid(&self, case: &Section<'a>) -> Section<'a> {
        let mut section = self.clone();
        section.entries.retain(|e| case.entries.iter().all(|c| c.key != e.key));
        section.entries.extend(case.entries.iter().cloned());
        section
    }

    /// What it says shows in labels like swept values.
    pub fn shown(&mut self) {
        self.entries.iter_mut().for_each(|e| e.shows = true);
    }

    /// Adds a value that stands elsewhere in the file; it shows like a swept one.
    pub fn add(&mut self, key: &str, key_span: Range<usize>, value: &Spanned<DeValue<'_>>) {
        self.entries.push(Entry {
            key: key.into(),
            key_span,
            value: value.span(),
            elements: Vec::new(),
            values: vec![typed(value)],
            shows: true,
        });
    }

    /// The words that a key has: one, those of a list, or none.
    pub fn words(&self, key: &str) -> Vec<String> {
        let entry = self.entries.iter().find(|e| e.key == key);
        entry.into_iter().flat_map(|e| &e.values).map(Value::to_string).collect()
    }

    /// How many combinations [`unfold`](Self::unfold) makes.
    pub fn combinations(&self) -> f64 {
        self.entries.iter().map(|e| e.elements.len().max(1) as f64).product()
    }

    /// The keys that are given.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|e| e.key.as_str())
    }

    /// Every combination of the swept lists.
    pub fn unfold(&self) -> Vec<Section<'a>> {
        let mut all = vec![self.clone()];
        for entry in self.entries.iter().filter(|e| !e.elements.is_empty()) {
            let pick = |s: &Section<'a>, i: usize| {
                let mut s = s.clone();
                s.picks.insert(entry.key.clone(), i);
                s
            };
            all = all.iter().flat_map(|s| (0..entry.elements.len()).map(move |i| pick(s, i))).collect();
        }
        all
    }

    /// Keys that are swept.
    pub fn swept(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().filter(|e| e.elements.len() > 1 || e.shows).map(|e| e.key.as_str())
    }

    /// Every key with its value.
    pub fn settings(&self) -> impl Iterator<Item = (&str, &Value)> {
        let picked = |e: &Entry| self.picks.get(&e.key).copied().unwrap_or(0);
        self.entries.iter().map(move |e| (e.key.as_str(), &e.values[picked(e)]))
    }

    /// One value that is a text.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.settings().find(|s| s.0 == key)?.1.text()
    }

    /// An error at the line of a key, or of the section's header.
    pub fn error(&self, key: &str, what: impl std::fmt::Display) -> anyhow::Error {
        let at = self.entries.iter().find(|e| e.key == key).map_or(self.header, |e| e.key_span.start);
        self.source.error(at, what)
    }

    /// An error that a check of values found; such messages begin with the key.
    pub fn value_error(&self, what: String) -> anyhow::Error {
        let key = what.split([' ', ':']).next().unwrap_or_default().to_string();
        self.error(&key, what)
    }

    fn span(&self, entry: &Entry) -> Range<usize> {
        self.picks.get(&entry.key).map_or(entry.value.clone(), |i| entry.elements[*i].clone())
    }

    /// Reads the section into its type, without the keys in `except`. What does not depend on the type stands
    /// apart, to be compiled once.
    pub fn read<P: DeserializeOwned + Serialize>(&self, except: &[&str]) -> Result<P> {
        let (text, places) = self.alone(except);
        let value: P = toml::from_str(&text).map_err(|e| self.misread(&e, &places))?;
        self.all_known(except, toml::Table::try_from(&value))?;
        Ok(value)
    }

    /// The section's keys and values by themselves, and where each of them stands in the file.
    fn alone(&self, except: &[&str]) -> (String, Places) {
        let (mut text, mut places) = (String::new(), Places::new());
        for entry in self.entries.iter().filter(|e| !except.contains(&e.key.as_str())) {
            for (part, end) in [(entry.key_span.clone(), " = "), (self.span(entry), "\n")] {
                places.push((text.len(), part.start));
                text += &self.source.text[part];
                text += end;
            }
        }
        (text, places)
    }

    fn misread(&self, error: &toml::de::Error, places: &Places) -> anyhow::Error {
        let message = error.message().trim();
        match message.starts_with("missing field") {
            // What is missing has no place of its own: name the section's.
            true => self.source.error(self.header, message),
            // Some types name the fields that they know: say which one is close.
            false => {
                let mut quoted = message.split('`').skip(1).step_by(2);
                let close = match message.starts_with("unknown field") {
                    true => did_you_mean(quoted.next().unwrap_or_default(), quoted),
                    false => String::new(),
                };
                let text = message.split('\n').map(str::trim).filter(|l| !l.is_empty());
                let text = text.collect::<Vec<_>>().join("; ");
                let at = error.span().map_or(0, |s| s.start);
                let before = places.iter().take_while(|p| p.0 <= at).last();
                let place = before.map_or(self.header, |(alone, file)| file + at - alone);
                self.source.error(place, text + &close)
            }
        }
    }

    /// Flattened types let unknown keys pass: whatever does not come back when the value is written was not
    /// understood.
    fn all_known(&self, except: &[&str], written: Result<toml::Table, toml::ser::Error>) -> Result<()> {
        let known = written.map_err(|e| self.source.error(self.header, e))?;
        let unknown = |e: &&Entry| !except.contains(&e.key.as_str()) && !known.contains_key(&e.key);
        match self.entries.iter().find(unknown) {
            None => Ok(()),
            Some(e) => {
                let known: Vec<&str> = known.keys().map(String::as_str).collect();
                Err(self.unknown_key(&e.key, &known))
            }
        }
    }

    /// The error for a key that nobody takes.
    fn unknown_key(&self, key: &str, known: &[&str]) -> anyhow::Error {
        let allowed = known.iter().map(|k| format!("`{k}`")).collect::<Vec<_>>().join(", ");
        let close = did_you_mean(key, known.iter().copied());
        self.error(key, format!("unknown field `{key}`, expected one of {allowed}{close}"))
    }
}
