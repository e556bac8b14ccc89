//! Own files: every agent's rows, and what the agents agree on before they learn: classes, columns, scaling
//! and how many rows there are. Only that leaves a site.
use anyhow::{Context, Result, bail, ensure};
use dibo::agreement::Agreement;
use dibo::problem::learning::Site;
use dibo::problem::learning::labels::Totals;
use dibo::rng::{Purpose, stream};
use dibo_learn::{
    Choice, Encoded, Encoding, Feature, Ids, Image, Roles, Samples, SavedModel, Words, as_pixels, pixels,
};
use rand::seq::SliceRandom;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// How the numbers of a column are scaled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// Images by one mean and deviation, everything else number by number.
    #[default]
    Auto,
    /// Each number by its own mean and deviation.
    Each,
    /// All numbers of a column by one mean and deviation.
    Common,
    /// As they are.
    None,
}

/// The files of the agents that are here.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Files {
    /// One a site, or one that says who owns a row.
    pub rows: Vec<PathBuf>,
    /// Checked rows in files of their own: one a site, or none.
    pub checked: Vec<PathBuf>,
    /// The language model that turns texts into numbers, where a column has some.
    pub bert: Option<Bert>,
}

/// A folder as the Hugging Face hub has it, after how many tokens texts are cut, and what is made of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bert {
    /// The folder.
    pub folder: PathBuf,
    /// Tokens.
    pub tokens: usize,
    /// It is trained itself, so rows are token numbers; else rows are what it makes of them as it is.
    pub trained: bool,
}

/// One agent's rows before anything is agreed on.
#[derive(Clone)]
pub struct Own {
    /// What its owner is called.
    pub owner: String,
    given: Part,
    checked: Part,
}

/// Some rows of a file.
#[derive(Clone)]
pub struct Part {
    samples: Arc<Samples>,
    rows: Vec<u32>,
}

/// What agents tell each other of their columns and classes.
#[derive(Serialize, Deserialize)]
struct Profile {
    /// Labels of the rows that are judged.
    given: BTreeSet<String>,
    /// Labels of checked rows.
    checked: BTreeSet<String>,
    /// Checked rows stand in a file of their own.
    apart: bool,
    columns: Vec<Column>,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Column {
    name: String,
    /// Numbers a row; 0 for words.
    width: usize,
    words: BTreeSet<String>,
    /// The shape, in a file with images.
    image: Option<Image>,
    /// No row has a value: it is what the others have.
    is_missing: bool,
}

/// What all agents agree on, as one of them knows it: the last digit of a mean may differ.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Agreed {
    /// Names of the classes, in order.
    pub classes: Vec<String>,
    /// How features become numbers.
    pub encoding: Encoding,
    /// How many rows there are.
    pub given: f64,
    /// How many checked rows are trained on.
    pub checked: f64,
    /// What makes the result doubtful, in words.
    pub warnings: Vec<String>,
}

impl Agreed {
    /// For the problem.
    pub fn totals(&self) -> Totals {
        Totals { given: self.given, checked: self.checked }
    }

    /// The number of a class.
    fn class(&self, word: &str) -> Option<u8> {
        self.classes.iter().position(|c| c == word).map(|c| c as u8)
    }

    /// The class of a true label, which may be spelled in another way: a table writes whole numbers with gaps
    /// as 1.0. One that nobody gave is no class of the model: no method sees the truth.
    fn true_class(&self, word: &str) -> u16 {
        let alike = || self.classes.iter().position(|c| alike(c, word)).map(|c| c as u16);
        self.class(word).map(u16::from).or_else(alike).unwrap_or(Site::NOBODYS)
    }
}

/// Reads a file; texts become numbers.
pub fn samples(file: &Path, roles: &Roles, bert: Option<&Bert>) -> Result<Samples> {
    let mut samples = dibo_learn::read(file, roles)?;
    if let (Some(texts), Some(name)) = (&samples.texts, &roles.text) {
        let bert = bert.with_context(|| {
            format!("column '{name}' has texts: --bert FOLDER (bert = \"FOLDER\") names a language model")
        })?;
        let (width, values) = match bert.trained {
            false => crate::data::embeddings(&bert.folder, texts, bert.tokens)?,
            true => {
                text_alone(&samples, name)?;
                (bert.tokens, crate::data::tokens(&bert.folder, texts, bert.tokens)?)
            }
        };
        samples.features.push(Feature::Numbers { name: name.clone(), width, values });
    }
    Ok(samples)
}

/// Refuses other features: a BERT that is trained reads texts alone.
fn text_alone(samples: &Samples, text: &str) -> Result<()> {
    let Some(other) = samples.features.first() else { return Ok(()) };
    bail!(
        "{}: column '{}' is a feature beside the texts, but a BERT that is trained reads these alone; \
        --features '{text}' (features = [\"{text}\"]) leaves all others out",
        samples.file.display(),
        other.name()
    )
}

/// Refuses a folder whose tokens are others than those that a BERT was trained with.
pub fn same_tokens(model: &SavedModel, folder: &Path) -> Result<()> {
    let (known, own) = (model.about.get(TOKENIZER), crate::data::tokenizer(folder)?);
    ensure!(
        known.is_none_or(|known| *known == own),
        "{}: its tokenizer.json is another one than the model was trained with; give the folder of then",
        folder.display()
    );
    Ok(())
}

/// What a saved BERT calls its tokenizer's digest.
pub const TOKENIZER: &str = "tokenizer";

/// Reads a file once in the life of this process.
fn load(file: &Path, roles: &Roles, bert: Option<&Bert>) -> Result<Arc<Samples>> {
    type Known = BTreeMap<String, Arc<Samples>>;
    static KNOWN: Mutex<Known> = Mutex::new(BTreeMap::new());
    let changed = std::fs::metadata(file).and_then(|m| m.modified()).ok();
    let key = format!("{} {changed:?} {roles:?} {bert:?}", file.display());
    let mut known = KNOWN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(samples) = known.get(&key) {
        return Ok(samples.clone());
    }
    let samples = Arc::new(samples(file, roles, bert)?);
    known.insert(key, samples.clone());
    Ok(samples)
}

/// Owners in order, with their rows.
fn by_owner(samples: &Arc<Samples>, owners: &Words) -> Result<Vec<(String, Part)>> {
    let mut rows: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    for row in 0..samples.rows {
        let place = || format!("{}, row {}: nobody owns it", samples.file.display(), row + 1);
        rows.entry(owners.get(row).with_context(place)?).or_default().push(row as u32);
    }
    let part = |(owner, rows): (&str, Vec<u32>)| (owner.to_string(), Part { samples: samples.clone(), rows });
    Ok(rows.into_iter().map(part).collect())
}

/// Checked rows in files of their own: by owner where a column says, else by the file's place. Their features
/// are those of the rows that are judged, so that they may have the same columns.
fn checked_apart(files: &Files, roles: &Roles, words: &[String]) -> Result<BTreeMap<String, Part>> {
    let mut apart: BTreeMap<String, Part> = BTreeMap::new();
    for (i, (file, rows)) in files.checked.iter().zip(&files.rows).enumerate() {
        // By the roles with which it was read before, so that it is not read again.
        let rows = load(rows, roles, files.bert.as_ref())?;
        let names = rows.features.iter().map(Feature::name).filter(|f| roles.text.as_deref() != Some(f));
        let features = Choice::Some(names.map(String::from).collect());
        let roles = Roles { clean: None, truth: None, features, words: words.to_vec(), ..roles.clone() };
        let samples = load(file, &roles, files.bert.as_ref())?;
        let parts = match &samples.owners {
            Some(owners) => by_owner(&samples, owners)?,
            None => vec![(i.to_string(), Part { rows: (0..samples.rows as u32).collect(), samples })],
        };
        for (owner, part) in parts {
            if let Some(other) = apart.get(&owner) {
                bail!(two_files(&owner, other, &part));
            }
            apart.insert(owner, part);
        }
    }
    Ok(apart)
}

/// Why an owner's rows in two files are refused.
fn two_files(owner: &str, one: &Part, other: &Part) -> String {
    let (one, other) = (shown(one), shown(other));
    format!("'{owner}' owns rows in {one} and in {other}; put the rows of an owner into one file")
}

/// Columns of words by the roles and by these rows: a few checked rows may have only numbers in them.
fn with_words(roles: &Roles, parts: &[(String, Part)]) -> Vec<String> {
    let features = parts.iter().flat_map(|(_, part)| &part.samples.features);
    let words = features.filter(|f| matches!(f, Feature::Category { .. })).map(|f| f.name().to_string());
    roles.words.iter().cloned().chain(words).collect::<BTreeSet<_>>().into_iter().collect()
}

/// The rows of the agents whose files are here.
pub fn read(files: &Files, roles: &Roles) -> Result<Vec<Own>> {
    ensure!(!files.rows.is_empty(), "no file with rows is given");
    ensure!(
        files.checked.is_empty() || files.checked.len() == files.rows.len(),
        "{} files of checked rows for {} files of rows; there must be one for each, or none",
        files.checked.len(),
        files.rows.len()
    );
    let mut parts: Vec<(String, Part)> = Vec::new();
    for file in &files.rows {
        let samples = load(file, roles, files.bert.as_ref())?;
        match &samples.owners {
            Some(owners) => parts.extend(by_owner(&samples, owners)?),
            None => {
                let name = file.file_stem().unwrap_or(file.as_os_str()).to_string_lossy().into_owned();
                let rows = (0..samples.rows as u32).collect();
                parts.push((name, Part { samples, rows }));
            }
        }
    }
    let mut names: BTreeMap<&str, &Part> = BTreeMap::new();
    for (name, part) in &parts {
        if let Some(other) = names.insert(name, part) {
            ensure!(part.samples.owners.is_none(), two_files(name, other, part));
            bail!("two sites are called '{name}'; file names must differ");
        }
    }
    let mut apart = checked_apart(files, roles, &with_words(roles, &parts))?;
    let mut sites = Vec::new();
    for (i, (owner, part)) in parts.into_iter().enumerate() {
        let is_clean = |row: &u32| part.samples.clean.as_ref().is_some_and(|c| c[*row as usize]);
        let (checked, given): (Vec<u32>, Vec<u32>) = part.rows.iter().partition(|row| is_clean(row));
        let mut checked = Part { samples: part.samples.clone(), rows: checked };
        let key = if roles.owner.is_some() { owner.clone() } else { i.to_string() };
        if let Some(own) = apart.remove(&key) {
            ensure!(
                checked.rows.is_empty(),
                "{}: checked rows stand in a column, too; give one of the two",
                own.samples.file.display()
            );
            checked = own;
        }
        let place = part.samples.file.display().to_string();
        ensure!(!given.is_empty(), "{place}: '{owner}' has no row whose label is to be judged");
        sites.push(Own { owner, given: Part { samples: part.samples, rows: given }, checked });
    }
    if let Some((owner, part)) = apart.first_key_value() {
        bail!("{}: '{owner}' has checked rows and no others", part.samples.file.display());
    }
    Ok(sites)
}

impl Own {
    /// How many rows are to be judged.
    pub fn rows(&self) -> usize {
        self.given.rows.len()
    }

    /// How many are checked.
    pub fn checked(&self) -> usize {
        self.checked.rows.len()
    }

    /// How many numbers a model sees of a row, by this site's own words.
    pub fn width(&self) -> usize {
        let width = |f: &Feature| match f {
            Feature::Numbers { width, .. } => *width,
            Feature::Category { words, .. } => words.words.len(),
        };
        self.given.samples.features.iter().map(width).sum()
    }

    /// How many checked rows are trained on if this part is held out.
    fn trained(&self, held: f64) -> usize {
        self.checked.rows.len() - held_out(self.checked.rows.len(), held)
    }

    fn profile(&self) -> Profile {
        let labels = |part: &Part| -> BTreeSet<String> {
            let words = part.rows.iter().filter_map(|r| part.samples.labels.get(*r as usize));
            words.collect::<BTreeSet<&str>>().into_iter().map(String::from).collect()
        };
        let Samples { image, features, file, .. } = &*self.given.samples;
        let column = |feature: &Feature| {
            let (name, is_missing) = (feature.name().to_string(), feature.is_missing());
            let (width, words) = match feature {
                Feature::Numbers { width, .. } => (*width, BTreeSet::new()),
                Feature::Category { words, .. } => {
                    (0, words.words.iter().chain(self.checked_words(&name)).cloned().collect())
                }
            };
            Column { name, width, words, image: image.filter(|_| width > 1), is_missing }
        };
        let apart = self.checked.samples.file != *file;
        let (given, checked) = (labels(&self.given), labels(&self.checked));
        Profile { given, checked, apart, columns: features.iter().map(column).collect() }
    }

    /// The words of a column of checked rows.
    fn checked_words(&self, name: &str) -> &[String] {
        match self.checked.samples.features.iter().find(|f| f.name() == name) {
            Some(Feature::Category { words, .. }) => &words.words,
            _ => &[],
        }
    }

    /// Calls `see` with the numbers of each row of a column.
    fn numbers(&self, name: &str, mut see: impl FnMut(&[f32])) -> Result<()> {
        for part in [&self.given, &self.checked] {
            let feature = part.samples.features.iter().find(|f| f.name() == name);
            match feature {
                Some(Feature::Numbers { width, values, .. }) => {
                    part.rows.iter().for_each(|r| see(&values[*r as usize * width..][..*width]));
                }
                _ if part.rows.is_empty() => {}
                _ => bail!("{}, column '{name}': numbers are expected", part.samples.file.display()),
            }
        }
        Ok(())
    }

    /// Whether a column of single numbers differs from row to row, in its file or as it is held.
    fn varies(&self, name: &str) -> bool {
        let merged = [&self.given, &self.checked].iter().any(|p| p.samples.merged.iter().any(|m| m == name));
        let (mut first, mut differ) = (None, false);
        let seen = self.numbers(name, |row| {
            for v in row.iter().filter(|v| !v.is_nan()) {
                differ |= first.get_or_insert(*v) != v;
            }
        });
        merged || seen.is_ok() && differ
    }

    /// The rows as numbers: those to be judged, checked ones, held-out ones; and where each comes from.
    pub fn site(&self, agreed: &Agreed, held: f64, agent: usize, seed: u64) -> Result<Site> {
        let class = |part: &Part, words: &Words, row: u32| -> Result<u8> {
            let word = words.get(row as usize).unwrap_or_default();
            let place = || format!("{}, row {}", part.samples.file.display(), row + 1);
            agreed.class(word).with_context(|| format!("{}: '{word}' is no known class", place()))
        };
        let mut checked = self.checked.rows.clone();
        checked.shuffle(&mut stream(seed, Purpose::Split, agent as u64, 0));
        let (mut features, mut labels) = (Vec::new(), Vec::new());
        for (part, rows) in [(&self.given, &self.given.rows), (&self.checked, &checked)] {
            let encoded = agreed.encoding.apply(&part.samples, rows.iter().map(|r| *r as usize))?;
            if features.is_empty() {
                features = encoded;
            } else {
                features.extend(encoded);
            }
            for row in rows {
                labels.push(class(part, &part.samples.labels, *row)?);
            }
        }
        let truth = match &self.given.samples.truth {
            None => Vec::new(),
            Some(truth) => {
                let classes: Vec<u16> = truth.words.iter().map(|w| agreed.true_class(w)).collect();
                let of = |row: &u32| classes.get(truth.codes[*row as usize] as usize).copied();
                self.given.rows.iter().map(of).collect()
            }
        };
        let (given, checked) = (self.given.rows.len(), self.trained(held));
        Ok(Site { features, labels, given, checked, truth })
    }

    /// Width, height and channels, where rows are images.
    pub fn image(&self) -> Option<(usize, usize, usize)> {
        self.given.samples.image
    }

    /// The user's name of a row that is judged.
    pub fn id(&self, place: usize) -> Cow<'_, str> {
        let row = self.given.rows[place] as usize;
        match &self.given.samples.ids {
            Ids::Numbers => (row + 1).to_string().into(),
            Ids::Own(ids) => ids[row].as_str().into(),
        }
    }

    /// What its file says of a judged row in a column: its text, its word or its number. None for what is no
    /// single value, such as an image.
    pub fn cell(&self, place: usize, column: &str) -> Option<String> {
        let (samples, row) = (&self.given.samples, self.row(place));
        match samples.features.iter().find(|f| f.name() == column)? {
            Feature::Category { words, .. } => Some(words.get(row).unwrap_or_default().to_string()),
            Feature::Numbers { width: 1, values, .. } if values[row].is_nan() => Some(String::new()),
            Feature::Numbers { width: 1, values, .. } => Some(values[row].to_string()),
            // The numbers that a language model makes of a text come last.
            Feature::Numbers { .. } => {
                let last = samples.features.last().is_some_and(|f| f.name() == column);
                samples.texts.as_ref().filter(|_| last).map(|texts| texts[row].clone())
            }
        }
    }

    /// The row of its file that a judged row is, from 0.
    pub fn row(&self, place: usize) -> usize {
        self.given.rows[place] as usize
    }

    /// The file that the judged rows come from.
    pub fn file(&self) -> &Path {
        &self.given.samples.file
    }
}

/// How many of so many checked rows are held out.
pub fn held_out(checked: usize, share: f64) -> usize {
    match checked {
        0 | 1 => 0,
        _ if share == 0.0 => 0,
        _ => ((checked as f64 * share).round() as usize).clamp(1, checked - 1),
    }
}

/// Classes in the order in which people list them: numbers by size, words by letter.
fn ordered(classes: BTreeSet<String>) -> Vec<String> {
    let mut list: Vec<String> = classes.into_iter().collect();
    let numbers: Option<Vec<f64>> = list.iter().map(|c| c.parse().ok()).collect();
    if numbers.is_some() {
        list.sort_by(|a, b| a.parse().unwrap_or(0.0f64).total_cmp(&b.parse().unwrap_or(0.0)));
    }
    list
}

/// A file as it is called in messages.
fn shown(part: &Part) -> String {
    let file = &part.samples.file;
    file.strip_prefix(".").unwrap_or(file).display().to_string()
}

/// What sites are called in messages: by their files where all are here, else by the numbers of their agents,
/// as no site tells others what it is called.
fn called(own: &[Own], agents: usize) -> Vec<String> {
    let name = |o: &Own| match &o.given.samples.owners {
        Some(_) => format!("'{}' in {}", o.owner, shown(&o.given)),
        None => shown(&o.given),
    };
    let number = |i: usize| format!("agent {i}");
    if own.len() == agents { own.iter().map(name).collect() } else { (0..agents).map(number).collect() }
}

/// The columns that all sites have, with the words of all.
fn common_columns(profiles: &[Profile], names: &[String], most_categories: usize) -> Result<Vec<Column>> {
    let (Some(profile), Some(first)) = (profiles.first(), names.first()) else { bail!("there are no sites") };
    let mut columns = profile.columns.clone();
    for (profile, other) in profiles.iter().zip(names) {
        for column in &mut columns {
            let name = &column.name;
            let Some(same) = profile.columns.iter().find(|c| c.name == *name) else {
                bail!("{first} has a column '{name}' and {other} has none; --features names those in use");
            };
            if same.is_missing {
                continue;
            }
            if column.is_missing {
                *column = same.clone();
                continue;
            }
            let of = profiles.iter().position(|p| p.columns.iter().any(|c| c.name == *name && !c.is_missing));
            same_kind(column, same, (names.get(of.unwrap_or(0)).unwrap_or(first), other))?;
            column.words.extend(same.words.iter().cloned());
        }
        if let Some(more) = profile.columns.iter().find(|c| columns.iter().all(|o| o.name != c.name)) {
            bail!("{other} has a column '{}' and {first} has none; --features names those in use", more.name);
        }
    }
    let most = if most_categories == 0 { 64 } else { most_categories };
    if let Some(column) = columns.iter().find(|c| c.words.len() > most) {
        bail!(
            "column '{}' has {} different words in all; at most {most} are allowed (most_categories)",
            column.name,
            column.words.len()
        );
    }
    ensure!(!columns.is_empty(), "there are no feature columns");
    Ok(columns)
}

/// Whether a column is the same at two sites, by what they are called.
fn same_kind(a: &Column, b: &Column, (first, second): (&str, &str)) -> Result<()> {
    let name = &a.name;
    if let (Some(one), Some(two)) = (a.image, b.image)
        && one != two
    {
        let (has, other) = (pixels(one), pixels(two));
        bail!("column '{name}': {has} in {first} and {other} in {second}; {}", as_pixels(two, one));
    }
    let hint = match (a.width, b.width) {
        (0, 1) | (1, 0) => {
            format!("--words '{name}' (words = [\"{name}\"]) reads it as words at all of them")
        }
        _ => "--features names those in use".into(),
    };
    ensure!(
        a.width == b.width,
        "column '{name}': {} in {first} and {} in {second}; {hint}",
        kind(a.width),
        kind(b.width)
    );
    Ok(())
}

fn kind(width: usize) -> String {
    match width {
        0 => "words".into(),
        1 => "a number".into(),
        _ => format!("{width} numbers"),
    }
}

/// Whether two words are the same number, or the same but for the case of letters.
fn alike(a: &str, b: &str) -> bool {
    // Beyond this, different whole numbers become the same.
    let number = |w: &str| w.parse::<f64>().ok().filter(|v| v.abs() < 9e15);
    number(a).is_some_and(|v| number(b) == Some(v)) || a.to_lowercase() == b.to_lowercase()
}

/// The labels that each file has, or each agent where not all files are here.
fn by_file<'a>(profiles: &'a [Profile], own: &[Own]) -> BTreeMap<String, BTreeSet<&'a str>> {
    let mut files: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for (i, profile) in profiles.iter().enumerate() {
        let here = own.get(i).filter(|_| own.len() == profiles.len());
        let given = here.map_or_else(|| format!("agent {i}"), |o| shown(&o.given));
        let checked = match here {
            Some(own) => shown(&own.checked),
            None if profile.apart => format!("agent {i}'s checked rows"),
            None => given.clone(),
        };
        files.entry(given).or_default().extend(profile.given.iter().map(String::as_str));
        files.entry(checked).or_default().extend(profile.checked.iter().map(String::as_str));
    }
    files
}

/// Classes that are spelled in two ways: files that disagree are refused; one that has both may mean two
/// classes by them, such as the codes 01 and 1.
fn spellings(classes: &[String], files: &BTreeMap<String, BTreeSet<&str>>) -> Result<Option<String>> {
    let mut pairs = Vec::new();
    for (i, b) in classes.iter().enumerate() {
        for a in classes[..i].iter().filter(|a| alike(a, b)) {
            let having = |word: &str| files.iter().find(|f| f.1.contains(word)).map_or("", |f| f.0);
            ensure!(
                files.values().any(|f| f.contains(a.as_str()) && f.contains(b.as_str())),
                "one class in two spellings: '{a}' in {} and '{b}' in {}; write it alike in all files",
                having(a),
                having(b)
            );
            pairs.push(format!("'{a}' and '{b}'"));
        }
    }
    let told = || format!("{} count as two classes; if they are one, write it alike", some(&pairs, ", "));
    Ok((!pairs.is_empty()).then(told))
}

/// Classes that rows were given and no checked row has, in words; nothing where no row is checked.
fn unchecked(profiles: &[Profile]) -> Option<String> {
    let known: BTreeSet<&String> = profiles.iter().flat_map(|p| &p.checked).collect();
    let given: BTreeSet<&String> = profiles.iter().flat_map(|p| &p.given).collect();
    let open: Vec<String> = given.difference(&known).map(|class| format!("'{class}'")).collect();
    (!known.is_empty() && !open.is_empty()).then(|| {
        format!(
            "no checked row has class {}: it cannot be judged by checked rows; ways that learn from these \
            call its rows wrong and do best on those held out; check some rows of every class",
            some(&open, " or ")
        )
    })
}

/// The first few of a list, in words.
fn some(list: &[String], between: &str) -> String {
    const SHOWN: usize = 5;
    let more = list.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    list[..list.len().min(SHOWN)].join(between) + &more
}

/// What all agents agree on, for each agent that is here. A mean of token numbers says nothing: those of the
/// column `tokens` stay as they are, and no sum of them leaves a site.
pub fn agree(
    own: &[Own],
    scale: Scale,
    tokens: Option<&str>,
    held: f64,
    most_categories: usize,
    agreement: &mut Agreement<'_>,
) -> Result<Vec<Agreed>> {
    let texts = own.iter().map(|o| serde_json::to_string(&o.profile())).collect::<Result<Vec<_>, _>>()?;
    let profiles = agreement.texts(&texts)?;
    let profiles: Vec<Profile> =
        profiles.iter().map(|t| serde_json::from_str(t)).collect::<Result<_, _>>().context("agreement")?;
    let columns = common_columns(&profiles, &called(own, profiles.len()), most_categories)?;
    let classes = ordered(profiles.iter().flat_map(|p| p.given.union(&p.checked)).cloned().collect());
    ensure!(
        (2..=256).contains(&classes.len()),
        "the labels have {} different values; between 2 and 256 classes can be learned",
        classes.len()
    );
    let spelled = spellings(&classes, &by_file(&profiles, own))?;
    let warnings: Vec<String> = unchecked(&profiles).into_iter().chain(spelled).collect();
    let is_scaled = |c: &&Column| c.width > 0 && tokens != Some(&c.name);
    let numbers: Vec<&Column> = columns.iter().filter(is_scaled).collect();
    // First how many values there are and their sums, then the squares around the means.
    let first = own.iter().map(|o| -> Result<Vec<f64>> {
        let mut sums = vec![o.given.rows.len() as f64, o.trained(held) as f64];
        for column in &numbers {
            let mut own = vec![0.0; 2 * column.width];
            o.numbers(&column.name, |row| {
                for (c, v) in row.iter().enumerate().filter(|(_, v)| !v.is_nan()) {
                    own[2 * c] += 1.0;
                    own[2 * c + 1] += f64::from(*v);
                }
            })?;
            sums.extend(own);
        }
        Ok(sums)
    });
    let sums = agreement.sums(&first.collect::<Result<Vec<_>>>()?)?;
    let means: Vec<Vec<Vec<f64>>> = sums.iter().map(|s| means(&numbers, scale, &s[2..])).collect();
    let second = own.iter().zip(&means).map(|(o, means)| -> Result<Vec<f64>> {
        let mut squares = Vec::new();
        for (column, mean) in numbers.iter().zip(means) {
            let mut own = vec![0.0; column.width];
            o.numbers(&column.name, |row| {
                for (c, v) in row.iter().enumerate().filter(|(_, v)| !v.is_nan()) {
                    own[c] += (f64::from(*v) - mean[c]).powi(2);
                }
            })?;
            squares.extend(own);
        }
        Ok(squares)
    });
    let squares = agreement.sums(&second.collect::<Result<Vec<_>>>()?)?;
    let agreed = sums.iter().zip(&squares).zip(means).map(|((sums, squares), means)| Agreed {
        classes: classes.clone(),
        encoding: encoding(&columns, scale, tokens, &sums[2..], squares, means),
        given: sums[0].round(),
        checked: sums[1].round(),
        warnings: warnings.clone(),
    });
    let mut agreed: Vec<Agreed> = agreed.collect();
    let unseen = agreed.first().map_or(Vec::new(), |agreed| unseen(own, &agreed.encoding));
    agreed.iter_mut().for_each(|agreed| agreed.warnings.extend(unseen.iter().cloned()));
    Ok(agreed)
}

/// A line for each column that differs from row to row and is scaled to nothing all the same.
fn unseen(own: &[Own], encoding: &Encoding) -> Vec<String> {
    let line = |column: &Encoded| match column {
        Encoded::Numbers { name, mean, factor } if factor[..] == [0.0] => {
            own.iter().any(|o| o.varies(name)).then(|| {
                format!(
                    "column '{name}': its numbers differ too little beside their size ({:.1e}) for \
                     the 32 bits that hold them, so no model sees it; subtract the same number from all",
                    mean[0]
                )
            })
        }
        _ => None,
    };
    encoding.columns.iter().filter_map(line).collect()
}

/// Whether a column has one mean and deviation for all its numbers.
fn is_common(column: &Column, scale: Scale) -> bool {
    scale == Scale::Common || scale == Scale::Auto && column.image.is_some()
}

/// The means of each column, from counts and sums.
fn means(columns: &[&Column], scale: Scale, mut sums: &[f64]) -> Vec<Vec<f64>> {
    let ratio = |count: f64, sum: f64| if count < 0.5 { 0.0 } else { sum / count };
    let of = |column: &&Column| {
        let (own, rest) = sums.split_at(2 * column.width);
        sums = rest;
        match (scale, is_common(column, scale)) {
            (Scale::None, _) => vec![0.0; column.width],
            (_, true) => {
                let (count, sum) = own.chunks(2).fold((0.0, 0.0), |(c, s), v| (c + v[0], s + v[1]));
                vec![ratio(count, sum); column.width]
            }
            _ => own.chunks(2).map(|v| ratio(v[0], v[1])).collect(),
        }
    };
    columns.iter().map(of).collect()
}

fn encoding(
    columns: &[Column],
    scale: Scale,
    tokens: Option<&str>,
    mut sums: &[f64],
    mut squares: &[f64],
    means: Vec<Vec<f64>>,
) -> Encoding {
    let mut means = means.into_iter();
    let mut encoded = Vec::new();
    for column in columns {
        let name = column.name.clone();
        if column.width == 0 {
            encoded.push(Encoded::OneHot { name, words: column.words.iter().cloned().collect() });
            continue;
        }
        if tokens == Some(&name) {
            let (mean, factor) = (vec![0.0; column.width], vec![1.0; column.width]);
            encoded.push(Encoded::Numbers { name, mean, factor });
            continue;
        }
        let (own, rest) = sums.split_at(2 * column.width);
        let (square, others) = squares.split_at(column.width);
        (sums, squares) = (rest, others);
        let mean = means.next().unwrap_or_default();
        let factor = |count: f64, square: f64, mean: f64| {
            let deviation = if count < 0.5 { 0.0 } else { (square / count).sqrt() };
            // What never changes says nothing, whatever rounding makes of it.
            if deviation <= 1e-7 * mean.abs().max(1e-30) { 0.0 } else { 1.0 / deviation }
        };
        let factor = match (scale, is_common(column, scale)) {
            (Scale::None, _) => vec![1.0; column.width],
            (_, true) => {
                let count = own.chunks(2).map(|v| v[0]).sum();
                vec![factor(count, square.iter().sum(), mean[0]); column.width]
            }
            _ => (0..column.width).map(|c| factor(own[2 * c], square[c], mean[c])).collect(),
        };
        encoded.push(Encoded::Numbers { name, mean, factor });
    }
    Encoding { columns: encoded, image: columns.iter().find_map(|c| c.image) }
}

/// Rows with true labels for all agents to try their models on.
pub fn test(file: &Path, roles: &Roles, bert: Option<&Bert>, agreed: &Agreed) -> Result<Site> {
    // The columns of the sites may stand there, too: only those that the model sees are read. Words that it
    // does not know are read all the same.
    let columns = &agreed.encoding.columns;
    let names = columns.iter().map(Encoded::name).filter(|c| roles.text.as_deref() != Some(c));
    let features = Choice::Some(names.map(String::from).collect());
    let words = agreed.encoding.words();
    let most_categories = 10_000 + agreed.encoding.width();
    let roles = Roles {
        clean: None,
        owner: None,
        truth: None,
        id: None,
        features,
        words,
        most_categories,
        ..roles.clone()
    };
    let samples = load(file, &roles, bert)?;
    let features = agreed.encoding.apply(&samples, 0..samples.rows)?;
    let class = |row: usize| {
        let word = samples.labels.get(row).unwrap_or_default();
        let what = || format!("{}, row {}: '{word}' is no known class", file.display(), row + 1);
        agreed.class(word).with_context(what)
    };
    let labels = (0..samples.rows).map(class).collect::<Result<_>>()?;
    Ok(Site { features, labels, ..Site::default() })
}
