//! Columns that fill up row by row: roles, kinds of columns and limits are the same for all formats.
use crate::samples::{Choice, Feature, Ids, ReadError, Roles, Samples, Words, short};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfc_quick};

/// So many values any file may have, however small it is: 1 GiB of numbers.
const VALUES: usize = 1 << 28;
/// So many values a file may have for each of its bytes: a hostile file must not fill the memory.
const VALUES_A_BYTE: usize = 64;

/// So many columns a file may have.
pub(super) const COLUMNS: usize = 1 << 20;

/// So many values a file of so many bytes may have.
pub(super) fn most_values(bytes: u64) -> usize {
    VALUES.max(usize::try_from(bytes).unwrap_or(usize::MAX).saturating_mul(VALUES_A_BYTE))
}

/// One value as a file has it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Value<'a> {
    Missing,
    Whole(i128),
    Number(f64),
    Short(f32),
    Flag(bool),
    /// Text of a format that has no types: may be a number.
    Text(&'a str),
    /// A word, whatever it looks like.
    Word(&'a str),
    Numbers(&'a [f32]),
}

/// What a text without a type is.
enum Parsed {
    Missing,
    Number(f32),
    Word,
}

fn is_missing(text: &str) -> bool {
    matches!(text, "" | "NA" | "N/A" | "NaN" | "nan" | "None" | "?") || text.eq_ignore_ascii_case("null")
}

/// A short decimal number such as -12.5: two numbers that are exact, so that their quotient is the nearest.
fn plain(text: &str) -> Option<f32> {
    const TENS: [f32; 11] = [1.0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10];
    let (negative, digits) = match text.as_bytes() {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    // Nine digits fit into the whole number; more are for the general way.
    if digits.is_empty() || digits.len() > 10 {
        return None;
    }
    let (mut whole, mut behind) = (0u32, None);
    for (place, &byte) in digits.iter().enumerate() {
        match byte {
            b'0'..=b'9' if place < 9 || behind.is_some() => whole = whole * 10 + u32::from(byte - b'0'),
            b'.' if behind.is_none() && digits.len() > 1 => behind = Some(digits.len() - 1 - place),
            _ => return None,
        }
    }
    let number = (whole <= 1 << 24).then(|| whole as f32 / TENS[behind.unwrap_or(0)])?;
    Some(if negative { -number } else { number })
}

fn parse(text: &str) -> Parsed {
    if let Some(number) = plain(text) {
        return Parsed::Number(number);
    }
    let number = |text: &str| match text.parse::<f32>() {
        Ok(v) if v.is_nan() => Parsed::Missing,
        Ok(v) => Parsed::Number(v),
        Err(_) => Parsed::Word,
    };
    // Almost all are plain numbers: they are tried first.
    match text.as_bytes().first() {
        Some(b'0'..=b'9' | b'-' | b'+' | b'.') => number(text),
        _ if is_missing(text) => Parsed::Missing,
        _ if text.eq_ignore_ascii_case("true") => Parsed::Number(1.0),
        _ if text.eq_ignore_ascii_case("false") => Parsed::Number(0.0),
        _ => number(text),
    }
}

impl<'a> Value<'a> {
    /// As a person would write it; none where it is missing.
    fn text(&self) -> Result<Option<Cow<'a, str>>, String> {
        // Adding zero takes the sign from a zero that has one.
        Ok(match *self {
            Value::Missing => None,
            Value::Whole(v) => Some(v.to_string().into()),
            Value::Number(v) => (!v.is_nan()).then(|| (v + 0.0).to_string().into()),
            Value::Short(v) => (!v.is_nan()).then(|| (v + 0.0).to_string().into()),
            Value::Flag(v) => Some(if v { "true" } else { "false" }.into()),
            Value::Text(text) | Value::Word(text) => Some(text.trim().into()),
            Value::Numbers(_) => return Err("a list, but this column needs one value a row".into()),
        })
    }

    /// As exactly as it is known without much work; none for what is no number.
    fn exact(&self) -> Option<f64> {
        match *self {
            Value::Whole(v) => Some(v as f64),
            Value::Number(v) => Some(v),
            Value::Text(text) => text.trim_ascii().parse().ok(),
            _ => None,
        }
    }

    fn number(&self) -> Option<f32> {
        match *self {
            Value::Whole(v) => Some(v as f32),
            Value::Number(v) => Some(v as f32),
            Value::Short(v) => Some(v),
            Value::Flag(v) => Some(f32::from(u8::from(v))),
            _ => None,
        }
    }
}

/// What a column is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Label,
    Id,
    Owner,
    Clean,
    Truth,
    Text,
    Feature,
    Unused,
}

impl Part {
    fn word(self) -> &'static str {
        match self {
            Part::Label => "label",
            Part::Id => "id",
            Part::Owner => "owner",
            Part::Clean => "clean",
            Part::Truth => "truth",
            Part::Text => "text",
            Part::Feature | Part::Unused => "feature",
        }
    }
}

/// The columns that have a role, by name.
pub(super) fn named(roles: &Roles) -> impl Iterator<Item = (Part, &str)> {
    let all = [
        (Part::Label, &roles.label),
        (Part::Id, &roles.id),
        (Part::Owner, &roles.owner),
        (Part::Clean, &roles.clean),
        (Part::Truth, &roles.truth),
        (Part::Text, &roles.text),
    ];
    all.into_iter().filter_map(|(part, name)| Some((part, name.as_deref()?)))
}

/// A word as Unicode composes it (NFC): é may be written as one character or as e and an accent, which look
/// the same.
pub(super) fn composed(word: &str) -> Cow<'_, str> {
    match is_nfc_quick(word.chars()) {
        IsNormalized::Yes => word.into(),
        _ => word.nfc().collect::<String>().into(),
    }
}

/// Words that get numbers in the order in which they come.
#[derive(Debug, Default)]
struct Interner {
    words: Words,
    places: HashMap<String, u32>,
}

impl Interner {
    /// False if the word would be one more than there may be.
    fn push(&mut self, word: &str, most: usize) -> bool {
        let code = match self.places.get(word) {
            Some(&code) => code,
            None => {
                let plain = composed(word);
                let known = self.places.get(&*plain).copied();
                let code = known.unwrap_or(self.words.words.len() as u32);
                if known.is_none() {
                    if self.words.words.len() >= most {
                        return false;
                    }
                    self.words.words.push(plain.clone().into_owned());
                    self.places.insert(plain.into_owned(), code);
                }
                // The next time in the same spelling it is found at once.
                self.places.insert(word.into(), code);
                code
            }
        };
        self.words.codes.push(code);
        true
    }

    fn missing(&mut self, count: usize) {
        self.words.codes.extend(std::iter::repeat_n(Words::MISSING, count));
    }

    fn done(mut self) -> Words {
        self.words.codes.shrink_to_fit();
        self.words
    }
}

/// What a column has so far.
#[derive(Debug)]
enum Data {
    /// Nothing but missing values: it may become numbers or words.
    Open,
    /// Numbers; the first row whose number is not finite. Such a row is no mistake if words follow.
    Numbers {
        width: usize,
        values: Vec<f32>,
        infinite: Option<usize>,
    },
    Words(Interner),
    Ids(Vec<String>),
    Texts(Vec<String>),
    Flags(Vec<bool>),
    /// A word after numbers whose texts are gone: the file must be read again.
    Again,
}

#[derive(Debug)]
struct Column {
    name: String,
    part: Part,
    rows: usize,
    data: Data,
    /// Words whatever they look like.
    is_words: bool,
    /// The first number with all its digits, and whether another differs: 32 bits may not tell.
    first: Option<f64>,
    differ: bool,
}

impl Column {
    fn see(&mut self, value: &Value) {
        if self.differ {
            return;
        }
        if let Some(number) = value.exact().filter(|n| n.is_finite()) {
            self.differ = *self.first.get_or_insert(number) != number;
        }
    }
}

/// All columns of one file.
pub(super) struct Table<'a> {
    file: &'a Path,
    roles: &'a Roles,
    chosen: Option<HashSet<&'a str>>,
    columns: Vec<Column>,
    by_name: HashMap<String, usize>,
    /// So many values may still come.
    left: usize,
    most_categories: usize,
}

impl<'a> Table<'a> {
    /// A table without columns, for a file of so many bytes.
    pub(super) fn new(file: &'a Path, roles: &'a Roles, bytes: u64) -> Result<Self, ReadError> {
        let mut seen: HashMap<&str, Part> = HashMap::new();
        for (part, name) in named(roles) {
            if let Some(other) = seen.insert(name, part) {
                let what = format!("has two roles, {} and {}: it may have one", other.word(), part.word());
                return Err(ReadError::new(file, what).column(name));
            }
        }
        let chosen = match &roles.features {
            Choice::All => None,
            Choice::Some(names) => Some(names.iter().map(String::as_str).collect::<HashSet<_>>()),
        };
        for name in chosen.iter().flatten() {
            if let Some(part) = seen.get(name) {
                let what = format!("is the {} and cannot be a feature: name it once", part.word());
                return Err(ReadError::new(file, what).column(*name));
            }
        }
        let left = most_values(bytes);
        let most_categories = if roles.most_categories == 0 { 64 } else { roles.most_categories };
        let (columns, by_name) = (Vec::new(), HashMap::new());
        Ok(Table { file, roles, chosen, columns, by_name, left, most_categories })
    }

    /// One more column.
    pub(super) fn add(&mut self, name: &str) -> Result<usize, ReadError> {
        let place = self.columns.len();
        if self.by_name.insert(name.into(), place).is_some() {
            let what = "there are two columns of this name: rename one";
            return Err(ReadError::new(self.file, what).column(name));
        }
        if place >= COLUMNS {
            let what = format!("more than {COLUMNS} columns: at most so many are read");
            return Err(ReadError::new(self.file, what));
        }
        let role = named(self.roles).find(|(_, n)| *n == name).map(|(part, _)| part);
        let part = match (&self.chosen, role) {
            (_, Some(part)) => part,
            (Some(chosen), _) if !chosen.contains(name) => Part::Unused,
            _ => Part::Feature,
        };
        if part == Part::Feature && name.is_empty() {
            let what = format!(
                "column {} has no name: give it one, or name the features with --features \
                 (pandas writes such a column unless index=False)",
                place + 1
            );
            return Err(ReadError::new(self.file, what));
        }
        let is_words = part == Part::Feature && self.roles.words.iter().any(|w| w == name);
        let data = match part {
            _ if is_words => Data::Words(Interner::default()),
            Part::Label | Part::Owner | Part::Truth => Data::Words(Interner::default()),
            Part::Id => Data::Ids(Vec::new()),
            Part::Text => Data::Texts(Vec::new()),
            Part::Clean => Data::Flags(Vec::new()),
            Part::Feature | Part::Unused => Data::Open,
        };
        let (name, first, differ) = (name.into(), None, false);
        self.columns.push(Column { name, part, rows: 0, data, is_words, first, differ });
        Ok(place)
    }

    pub(super) fn find(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    pub(super) fn part(&self, column: usize) -> Part {
        self.columns[column].part
    }

    pub(super) fn name(&self, column: usize) -> &str {
        &self.columns[column].name
    }

    /// A mistake at a place.
    pub(super) fn wrong(&self, row: usize, column: usize, what: impl Into<String>) -> ReadError {
        ReadError::new(self.file, what).row(row + 1).column(&self.columns[column].name)
    }

    /// All columns that roles name are there.
    pub(super) fn check(&self) -> Result<(), ReadError> {
        let words = self.roles.words.iter().map(String::as_str);
        let features = self.chosen.iter().flatten().copied().chain(words).map(|n| (Part::Feature, n));
        // Those that come first in the order of the words, so that the message is the same each time.
        let mut features: Vec<_> = features.filter(|(_, n)| !self.by_name.contains_key(*n)).collect();
        features.sort_by_key(|(_, n)| *n);
        let names = self.columns.iter().map(|c| c.name.as_str());
        for (part, name) in named(self.roles).chain(features) {
            if !self.by_name.contains_key(name) {
                return Err(ReadError::new(self.file, unknown(part, name, names.clone())));
            }
        }
        Ok(())
    }

    /// The next value of a column; rows between its last one and this are missing.
    pub(super) fn push(&mut self, column: usize, row: usize, value: Value) -> Result<(), ReadError> {
        let Column { rows, part, data, .. } = &mut self.columns[column];
        // The one case that is worth a way of its own: a number in a column of numbers.
        if let (Value::Text(text), Data::Numbers { width: 1, values, .. }) = (value, data)
            && let Some(number) = plain(text)
            && *rows == row
            && self.left > 0
        {
            values.push(number);
            *rows += 1;
            self.left -= 1;
            return Ok(());
        }
        if *part == Part::Unused {
            return Ok(());
        }
        let rows = *rows;
        if row > rows {
            self.fill(column, row)?;
        } else if row < rows {
            return Err(self.wrong(row, column, "comes twice in this row"));
        }
        if self.columns[column].is_words {
            let text = value.text().map_err(|what| self.wrong(row, column, what))?;
            self.feature(column, row, text.as_deref().map_or(Value::Missing, Value::Word))?;
        } else if self.columns[column].part == Part::Feature {
            self.feature(column, row, value)?;
        } else {
            self.role(column, row, value)?;
        }
        self.columns[column].rows = row + 1;
        Ok(())
    }

    fn spend(&mut self, values: usize, row: usize, column: usize) -> Result<(), ReadError> {
        match self.left.checked_sub(values) {
            Some(left) => self.left = left,
            None => {
                let what = "far more values than a file of this size may have: split it into several";
                return Err(self.wrong(row, column, what));
            }
        }
        Ok(())
    }

    fn feature(&mut self, place: usize, row: usize, value: Value) -> Result<(), ReadError> {
        let most = self.most_categories;
        let column = &mut self.columns[place];
        let number = match (value, &mut column.data) {
            (_, Data::Again) => return Ok(()),
            (Value::Numbers(_), _) => return self.list(place, row, value),
            (Value::Text(text) | Value::Word(text), Data::Words(words)) => {
                let text = text.trim();
                if is_missing(text) {
                    words.missing(1);
                } else if !words.push(text, most) {
                    return Err(self.too_many(row, place));
                }
                return self.spend(1, row, place);
            }
            (Value::Text(text), _) => match parse(text.trim_ascii()) {
                Parsed::Missing => f32::NAN,
                Parsed::Number(number) => number,
                Parsed::Word => return self.first_word(place, row, text.trim()),
            },
            (Value::Word(text), data) => match data {
                _ if is_missing(text.trim()) => f32::NAN,
                Data::Open => return self.first_word(place, row, text.trim()),
                _ => {
                    let what = format!("the word '{}' after rows with numbers: use one kind", short(text));
                    return Err(self.wrong(row, place, what));
                }
            },
            _ => value.number().unwrap_or(f32::NAN),
        };
        column.see(&value);
        match &mut column.data {
            Data::Open if number.is_nan() => {}
            Data::Words(words) if number.is_nan() => words.missing(1),
            Data::Words(_) => {
                return Err(self.wrong(row, place, "a number after rows with words: use one kind"));
            }
            Data::Numbers { width: 1, values, infinite } => {
                if number.is_infinite() {
                    infinite.get_or_insert(row);
                }
                values.push(number);
            }
            Data::Numbers { width, values, .. } if number.is_nan() => {
                let width = *width;
                values.extend(std::iter::repeat_n(f32::NAN, width));
                return self.spend(width, row, place);
            }
            _ => return self.list(place, row, Value::Numbers(&[number])),
        }
        self.spend(1, row, place)
    }

    fn too_many(&self, row: usize, column: usize) -> ReadError {
        let what = format!(
            "more than {} different words: leave the column out (name the features with --features) or raise \
             the limit (most_categories)",
            self.most_categories
        );
        self.wrong(row, column, what)
    }

    /// A word in a column that had none: it has words if all before were missing.
    fn first_word(&mut self, place: usize, row: usize, word: &str) -> Result<(), ReadError> {
        self.spend(row + 1, row, place)?;
        let column = &mut self.columns[place];
        column.data = match column.data {
            Data::Open => {
                let mut words = Interner::default();
                words.missing(row);
                words.push(word, 1);
                Data::Words(words)
            }
            _ => Data::Again,
        };
        Ok(())
    }

    fn list(&mut self, place: usize, row: usize, value: Value) -> Result<(), ReadError> {
        let Value::Numbers(list) = value else { return Ok(()) };
        if list.is_empty() {
            return Err(self.wrong(row, place, "an empty list: it needs one number or more"));
        }
        if matches!(self.columns[place].data, Data::Open) {
            self.spend(row.saturating_mul(list.len()), row, place)?;
            let values = vec![f32::NAN; row * list.len()];
            self.columns[place].data = Data::Numbers { width: list.len(), values, infinite: None };
        }
        self.spend(list.len(), row, place)?;
        match &mut self.columns[place].data {
            Data::Numbers { width, values, infinite } if *width == list.len() => {
                if list.iter().any(|v| v.is_infinite()) {
                    infinite.get_or_insert(row);
                }
                values.extend_from_slice(list);
                Ok(())
            }
            Data::Numbers { width, .. } => {
                let what = format!("{} numbers, but {width} in the rows before: use one length", list.len());
                Err(self.wrong(row, place, what))
            }
            _ => Err(self.wrong(row, place, "a list after rows with words: use one kind")),
        }
    }

    fn role(&mut self, place: usize, row: usize, value: Value) -> Result<(), ReadError> {
        let text = value.text().map_err(|what| self.wrong(row, place, what))?;
        self.spend(1, row, place)?;
        let column = &mut self.columns[place];
        let word = text.as_deref().filter(|t| !is_missing(t));
        match (&mut column.data, word) {
            (Data::Words(words), Some(word)) => {
                words.push(word, usize::MAX);
            }
            (Data::Words(words), None) if column.part == Part::Truth => words.missing(1),
            (Data::Ids(ids), _) if text.as_ref().is_some_and(|t| !t.is_empty()) => {
                ids.push(text.unwrap_or_default().into_owned());
            }
            (Data::Texts(texts), _) => texts.push(text.unwrap_or_default().into_owned()),
            (Data::Flags(flags), word) => match flag(word.unwrap_or_default()) {
                Some(flag) => flags.push(flag),
                None => {
                    let what = format!(
                        "'{}' does not say whether the label has been checked: \
                         write 1, true, yes, checked or clean, or 0, false, no or nothing",
                        short(word.unwrap_or_default())
                    );
                    return Err(self.wrong(row, place, what));
                }
            },
            _ => return Err(self.no_value(row, place, text.as_deref())),
        }
        Ok(())
    }

    fn no_value(&self, row: usize, place: usize, text: Option<&str>) -> ReadError {
        let word = self.columns[place].part.word();
        let what = match text {
            Some(text) if !text.is_empty() => {
                format!("no {word}: '{text}' counts as missing; write another word or leave the row out")
            }
            _ => format!("no {word}: give it one or leave the row out"),
        };
        self.wrong(row, place, what)
    }

    /// Missing values up to this row.
    fn fill(&mut self, place: usize, to: usize) -> Result<(), ReadError> {
        let column = &mut self.columns[place];
        let row = column.rows;
        let count = to - row;
        let width = match (&mut column.data, column.part) {
            (Data::Open | Data::Again, _) => 0,
            (Data::Numbers { width, .. }, _) => *width,
            (_, Part::Feature | Part::Clean | Part::Truth | Part::Text) => 1,
            _ => return Err(self.no_value(row, place, None)),
        };
        self.spend(count.saturating_mul(width), row, place)?;
        let column = &mut self.columns[place];
        match &mut column.data {
            Data::Numbers { values, .. } => values.extend(std::iter::repeat_n(f32::NAN, count * width)),
            Data::Words(words) => words.missing(count),
            Data::Flags(flags) => flags.extend(std::iter::repeat_n(false, count)),
            Data::Texts(texts) => texts.extend(std::iter::repeat_n(String::new(), count)),
            Data::Open | Data::Again | Data::Ids(_) => {}
        }
        column.rows = to;
        Ok(())
    }

    /// The columns that must be read again as words; they are empty from now on.
    pub(super) fn again(&mut self) -> Vec<usize> {
        let mut places = Vec::new();
        for (place, column) in self.columns.iter_mut().enumerate() {
            if matches!(column.data, Data::Again) {
                column.data = Data::Words(Interner::default());
                column.rows = 0;
                places.push(place);
            }
        }
        places
    }

    /// The samples, once all of so many rows are in. Without features only where the caller has its own.
    pub(super) fn done(mut self, rows: usize, features: bool) -> Result<Samples, ReadError> {
        if rows == 0 {
            return Err(ReadError::new(self.file, "there are no rows of data: at least one is needed"));
        }
        self.check()?;
        if features && !self.columns.iter().any(|c| matches!(c.part, Part::Feature | Part::Text)) {
            let what = "no column is left for features: every one has another role or is not chosen";
            return Err(ReadError::new(self.file, what));
        }
        for place in 0..self.columns.len() {
            if self.columns[place].part != Part::Unused && self.columns[place].rows < rows {
                self.fill(place, rows)?;
            }
        }
        let mut samples = empty(self.file, rows);
        for Column { name, part, data, differ, .. } in self.columns {
            match (data, part) {
                (Data::Words(words), Part::Label) => samples.labels = words.done(),
                (Data::Words(words), Part::Owner) => samples.owners = Some(words.done()),
                (Data::Words(words), Part::Truth) => samples.truth = Some(words.done()),
                (Data::Words(words), _) => {
                    samples.features.push(Feature::Category { name, words: words.done() });
                }
                (Data::Flags(flags), _) => samples.clean = Some(flags),
                (Data::Texts(texts), _) => samples.texts = Some(texts),
                (Data::Ids(ids), _) => {
                    different(&ids).map_err(|(row, what)| {
                        ReadError::new(self.file, what).row(row).column(name.as_str())
                    })?;
                    samples.ids = Ids::Own(ids);
                }
                (Data::Numbers { infinite: Some(row), .. }, _) => {
                    let what = "infinite or too large (at most 3.4e38): give a finite number, or nothing \
                                if it is missing";
                    return Err(ReadError::new(self.file, what).row(row + 1).column(name));
                }
                (Data::Numbers { width, mut values, .. }, _) => {
                    values.shrink_to_fit();
                    let mut seen = values.iter().filter(|v| !v.is_nan());
                    if differ && seen.next().is_some_and(|first| seen.all(|v| v == first)) {
                        samples.merged.push(name.clone());
                    }
                    samples.features.push(Feature::Numbers { name, width, values });
                }
                (Data::Open, Part::Feature) => {
                    let values = vec![f32::NAN; rows];
                    samples.features.push(Feature::Numbers { name, width: 1, values });
                }
                (Data::Open | Data::Again, _) => {}
            }
        }
        Ok(samples)
    }
}

/// So many rows of which nothing is known yet.
pub(super) fn empty(file: &Path, rows: usize) -> Samples {
    Samples {
        file: PathBuf::from(file),
        rows,
        ids: Ids::Numbers,
        labels: Words::default(),
        owners: None,
        clean: None,
        truth: None,
        texts: None,
        features: Vec::new(),
        image: None,
        merged: Vec::new(),
    }
}

fn flag(word: &str) -> Option<bool> {
    match word.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "checked" | "clean" => Some(true),
        "" | "0" | "false" | "no" | "empty" | "missing" => Some(false),
        _ => None,
    }
}

fn different(ids: &[String]) -> Result<(), (usize, String)> {
    let mut seen = HashMap::with_capacity(ids.len());
    for (row, id) in ids.iter().enumerate() {
        if let Some(first) = seen.insert(id.as_str(), row as u32) {
            let what = format!("the id '{}' is that of row {} too: ids must differ", short(id), first + 1);
            return Err((row + 1, what));
        }
    }
    Ok(())
}

/// The message for a column that does not exist.
pub(super) fn unknown<'n>(part: Part, name: &str, columns: impl Iterator<Item = &'n str> + Clone) -> String {
    const SHOWN: usize = 20;
    let lower = name.to_lowercase();
    let distance = |other: &str| strsim::damerau_levenshtein(&lower, &other.to_lowercase());
    // Names as long as a page are no candidates: the distance takes time and memory.
    let near = columns.clone().filter(|c| c.len() <= 200 && name.len() <= 200);
    // Of a name at least one letter must be right.
    let most = (name.len() / 3).max(2).min(name.chars().count().saturating_sub(1));
    let near = near.map(|c| (distance(c), c)).min().filter(|(d, _)| *d <= most);
    let hint = near.map(|(_, c)| format!("; did you mean '{}'?", short(c))).unwrap_or_default();
    let count = columns.clone().count();
    let mut list: Vec<String> = columns.take(SHOWN).map(|c| format!("'{}'", short(c))).collect();
    if count > SHOWN {
        list.push(format!("{} more", count - SHOWN));
    }
    let list = if list.is_empty() { "none".into() } else { list.join(", ") };
    format!("there is no column '{}' for the {}{hint} (columns: {list})", short(name), part.word())
}

/// A message of others in one line of bearable length.
pub(super) fn line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(300).collect()
}
