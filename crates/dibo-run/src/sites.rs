//! Own files: every agent's rows, and what the agents agree on before they learn: classes, columns, scaling
//! and how many rows there are. Only that leaves a site.
use anyhow::{Context, Result, bail, ensure};
use dibo::agreement::Agreement;
use dibo::problem::learning::Site;
use dibo::problem::learning::labels::Totals;
use dibo::rng::{Purpose, stream};
use dibo_learn::{Encoded, Encoding, Feature, Ids, Image, Roles, Samples, Words, as_pixels, pixels};
use rand::seq::SliceRandom;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
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

/// A folder as the Hugging Face hub has it, and after how many tokens texts are cut.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bert {
    /// The folder.
    pub folder: PathBuf,
    /// Tokens.
    pub tokens: usize,
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
    classes: BTreeSet<String>,
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
}

/// Reads a file; texts become numbers.
pub fn samples(file: &Path, roles: &Roles, bert: Option<&Bert>) -> Result<Samples> {
    let mut samples = dibo_learn::read(file, roles)?;
    if let (Some(texts), Some(name)) = (samples.texts.take(), &roles.text) {
        let bert = bert.with_context(|| {
            format!("column '{name}' has texts: --bert FOLDER (bert = \"FOLDER\") names a language model")
        })?;
        let (width, values) = crate::data::embeddings(&bert.folder, &texts, bert.tokens)?;
        samples.features.push(Feature::Numbers { name: name.clone(), width, values });
    }
    Ok(samples)
}

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

/// Checked rows in files of their own: by owner where a column says, else by the file's place.
fn checked_apart(files: &Files, roles: &Roles) -> Result<BTreeMap<String, Part>> {
    let roles = Roles { clean: None, truth: None, ..roles.clone() };
    let mut apart = BTreeMap::new();
    for (i, file) in files.checked.iter().enumerate() {
        let samples = load(file, &roles, files.bert.as_ref())?;
        match &samples.owners {
            Some(owners) => apart.extend(by_owner(&samples, owners)?),
            None => {
                let rows = (0..samples.rows as u32).collect();
                apart.insert(i.to_string(), Part { samples, rows });
            }
        }
    }
    Ok(apart)
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
    let mut names = BTreeSet::new();
    if let Some((twice, _)) = parts.iter().find(|(name, _)| !names.insert(name.clone())) {
        bail!("two sites are called '{twice}'; owners and file names must differ");
    }
    let mut apart = checked_apart(files, &Roles { words: with_words(roles, &parts), ..roles.clone() })?;
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
        let mut classes = BTreeSet::new();
        for part in [&self.given, &self.checked] {
            let Samples { labels, truth, .. } = &*part.samples;
            for words in std::iter::once(labels).chain(truth) {
                classes.extend(part.rows.iter().filter_map(|r| words.get(*r as usize)).map(String::from));
            }
        }
        let image = self.given.samples.image;
        let column = |feature: &Feature| {
            let (width, words) = match feature {
                Feature::Numbers { width, .. } => (*width, BTreeSet::new()),
                Feature::Category { words, .. } => (0, words.words.iter().cloned().collect()),
            };
            let (name, is_missing) = (feature.name().to_string(), feature.is_missing());
            Column { name, width, words, image: image.filter(|_| width > 1), is_missing }
        };
        Profile { classes, columns: self.given.samples.features.iter().map(column).collect() }
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
                let of = |row: &u32| class(&self.given, truth, *row);
                self.given.rows.iter().map(of).collect::<Result<_>>()?
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
    pub fn id(&self, place: usize) -> String {
        let row = self.given.rows[place] as usize;
        match &self.given.samples.ids {
            Ids::Numbers => (row + 1).to_string(),
            Ids::Own(ids) => ids[row].clone(),
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

/// The columns that all sites have, with the words of all.
fn common_columns(profiles: &[Profile], most_categories: usize) -> Result<Vec<Column>> {
    let Some(first) = profiles.first() else { bail!("there are no sites") };
    let mut columns = first.columns.clone();
    for (agent, profile) in profiles.iter().enumerate() {
        for column in &mut columns {
            let name = &column.name;
            let Some(other) = profile.columns.iter().find(|c| c.name == *name) else {
                bail!(
                    "agent 0 has a column '{name}' and agent {agent} has none; --features names those in use"
                );
            };
            if other.is_missing {
                continue;
            }
            if column.is_missing {
                *column = other.clone();
                continue;
            }
            let of = profiles.iter().position(|p| p.columns.iter().any(|c| c.name == *name && !c.is_missing));
            same_kind(column, other, (of.unwrap_or(0), agent))?;
            column.words.extend(other.words.iter().cloned());
        }
        if let Some(more) = profile.columns.iter().find(|c| columns.iter().all(|o| o.name != c.name)) {
            bail!(
                "agent {agent} has a column '{}' and agent 0 has none; --features names those in use",
                more.name
            );
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

/// Whether a column is the same at two agents.
fn same_kind(a: &Column, b: &Column, (first, second): (usize, usize)) -> Result<()> {
    let name = &a.name;
    if let (Some(one), Some(two)) = (a.image, b.image)
        && one != two
    {
        let (has, other) = (pixels(one), pixels(two));
        bail!(
            "column '{name}': {has} at agent {first} and {other} at agent {second}; {}",
            as_pixels(two, one)
        );
    }
    let hint = match (a.width, b.width) {
        (0, 1) | (1, 0) => {
            format!("--words '{name}' (words = [\"{name}\"]) reads it as words at all of them")
        }
        _ => "--features names those in use".into(),
    };
    ensure!(
        a.width == b.width,
        "column '{name}': {} at agent {first} and {} at agent {second}; {hint}",
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

/// What all agents agree on, for each agent that is here.
pub fn agree(
    own: &[Own],
    scale: Scale,
    held: f64,
    most_categories: usize,
    agreement: &mut Agreement<'_>,
) -> Result<Vec<Agreed>> {
    let texts = own.iter().map(|o| serde_json::to_string(&o.profile())).collect::<Result<Vec<_>, _>>()?;
    let profiles = agreement.texts(&texts)?;
    let profiles: Vec<Profile> =
        profiles.iter().map(|t| serde_json::from_str(t)).collect::<Result<_, _>>().context("agreement")?;
    let columns = common_columns(&profiles, most_categories)?;
    let classes = ordered(profiles.into_iter().flat_map(|p| p.classes).collect());
    ensure!(
        (2..=256).contains(&classes.len()),
        "the labels have {} different values; between 2 and 256 classes can be learned",
        classes.len()
    );
    let numbers: Vec<&Column> = columns.iter().filter(|c| c.width > 0).collect();
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
        encoding: encoding(&columns, scale, &sums[2..], squares, means),
        given: sums[0].round(),
        checked: sums[1].round(),
    });
    let agreed: Vec<Agreed> = agreed.collect();
    if let Some(agreed) = agreed.first() {
        unseen(own, &agreed.encoding).iter().for_each(|line| say_once(line));
    }
    Ok(agreed)
}

/// A line for each column that differs from row to row and is scaled to nothing all the same.
fn unseen(own: &[Own], encoding: &Encoding) -> Vec<String> {
    let line = |column: &Encoded| match column {
        Encoded::Numbers { name, mean, factor } if factor[..] == [0.0] => {
            own.iter().any(|o| o.varies(name)).then(|| {
                format!(
                    "warning: column '{name}': its numbers differ too little beside their size ({:.1e}) for \
                     the 32 bits that hold them, so no model sees it; subtract the same number from all",
                    mean[0]
                )
            })
        }
        _ => None,
    };
    encoding.columns.iter().filter_map(line).collect()
}

/// Says what is said already no second time: every way of an experiment agrees anew.
fn say_once(line: &str) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    if SAID.lock().unwrap_or_else(std::sync::PoisonError::into_inner).insert(line.into()) {
        crate::say!("{}", crate::fold(line));
    }
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
    let words = agreed.encoding.words();
    let roles = Roles { clean: None, owner: None, truth: None, id: None, words, ..roles.clone() };
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
