//! Samples as read from one file, what their columns mean, and how they become numbers.
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// What is wrong with a file, and where.
#[derive(Debug, thiserror::Error)]
#[error("{}{}: {what}", file.display(), place(.row, .column))]
pub struct ReadError {
    /// The file.
    pub file: PathBuf,
    /// Row, as a person counts: the first row of data is 1.
    pub row: Option<usize>,
    /// Column by name.
    pub column: Option<String>,
    /// What is wrong, and what would be right.
    pub what: String,
}

fn place(row: &Option<usize>, column: &Option<String>) -> String {
    let row = row.map(|r| format!(", row {r}")).unwrap_or_default();
    row + &column.as_ref().map(|c| format!(", column '{}'", short(c))).unwrap_or_default()
}

/// Enough of a text to find it, in one line: a message stays one whatever a file has for names.
pub(crate) fn short(text: &str) -> String {
    const SHOWN: usize = 60;
    let mut short: String = text.chars().take(SHOWN).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(SHOWN).is_some() {
        short.push('…');
    }
    short
}

impl ReadError {
    /// About a whole file.
    pub fn new(file: &Path, what: impl Into<String>) -> Self {
        ReadError { file: file.into(), row: None, column: None, what: what.into() }
    }

    /// In this row.
    pub fn row(mut self, row: usize) -> Self {
        self.row = Some(row);
        self
    }

    /// In this column.
    pub fn column(mut self, column: impl Into<String>) -> Self {
        self.column = Some(column.into());
        self
    }
}

/// Which columns are features.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Choice {
    /// All columns that have no other role.
    #[default]
    All,
    /// These.
    Some(Vec<String>),
}

impl Choice {
    /// Those that are named, or all if none is. The column of texts is one already, so it alone is no other.
    pub fn named(names: &[String], text: Option<&str>) -> Self {
        let others = names.iter().filter(|name| Some(name.as_str()) != text);
        if names.is_empty() { Choice::All } else { Choice::Some(others.cloned().collect()) }
    }
}

/// What the columns of a file mean.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Roles {
    /// The given label; none for files that are only predicted.
    pub label: Option<String>,
    /// The user's own name of a row; without it, its number.
    pub id: Option<String>,
    /// Who owns a row, where one file holds the rows of several.
    pub owner: Option<String>,
    /// Whether a row's label has been checked (1, true, yes, checked / 0, false, no, empty).
    pub clean: Option<String>,
    /// The true label, where it is known: for experiments; no method sees it.
    pub truth: Option<String>,
    /// Text that a language model turns into numbers.
    pub text: Option<String>,
    /// Features.
    pub features: Choice,
    /// Features that are words whatever they look like: in a file with wards 2 and 3 alone they would be
    /// numbers.
    pub words: Vec<String>,
    /// Images are scaled to this width and height; none keeps their own, which must then be alike.
    pub image_size: Option<(usize, usize)>,
    /// So many different words a categorical column may have.
    pub most_categories: usize,
}

/// Words by number: one number a row, `u32::MAX` where the value is missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Words {
    /// The different words in the order in which they came.
    pub words: Vec<String>,
    /// For each row the place of its word.
    pub codes: Vec<u32>,
}

impl Words {
    /// The code of a missing value.
    pub const MISSING: u32 = u32::MAX;

    /// The word of a row, if it has one.
    pub fn get(&self, row: usize) -> Option<&str> {
        self.words.get(self.codes[row] as usize).map(String::as_str)
    }
}

/// One feature column.
#[derive(Clone, Debug, PartialEq)]
pub enum Feature {
    /// `width` numbers a row (more than one for an image, an embedding, an array), NaN where missing.
    Numbers {
        /// Its name.
        name: String,
        /// Numbers a row.
        width: usize,
        /// Row by row.
        values: Vec<f32>,
    },
    /// A categorical column.
    Category {
        /// Its name.
        name: String,
        /// One word a row.
        words: Words,
    },
}

/// Names of rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ids {
    /// The number of the row in its file, from 1.
    Numbers,
    /// The user's own.
    Own(Vec<String>),
}

/// The rows of one file.
#[derive(Clone, Debug, PartialEq)]
pub struct Samples {
    /// Where they come from.
    pub file: PathBuf,
    /// How many.
    pub rows: usize,
    /// What they are called.
    pub ids: Ids,
    /// Given labels; empty `codes` where the file has none.
    pub labels: Words,
    /// Owners, where the file says.
    pub owners: Option<Words>,
    /// Which labels have been checked, where the file says.
    pub clean: Option<Vec<bool>>,
    /// True labels, where the file says.
    pub truth: Option<Words>,
    /// Texts, which a language model turns into numbers, where a column has that role; empty where missing.
    pub texts: Option<Vec<String>>,
    /// Features in the order of the file.
    pub features: Vec<Feature>,
    /// Width, height and channels of an image, where a feature is one.
    pub image: Option<Image>,
    /// Columns whose numbers differ in the file and are one and the same in 32 bits.
    pub merged: Vec<String>,
}

/// Width, height and channels.
pub type Image = (usize, usize, usize);

/// An image's shape in words.
pub fn pixels((width, height, channels): Image) -> String {
    let colours = match channels {
        1 => "in grey".into(),
        3 => "in colour".into(),
        _ => format!("with {channels} channels"),
    };
    format!("images of {width}x{height} pixels {colours}")
}

/// What makes images of one shape like those of another that is wanted.
pub fn as_pixels(own: Image, wanted: Image) -> String {
    let size = format!("--image-size {}x{} scales folders and IDX files", wanted.0, wanted.1);
    let grey = "save all of them in colour (RGB), or all in grey".to_string();
    match ((own.0, own.1) == (wanted.0, wanted.1), own.2 == wanted.2) {
        (true, _) => grey,
        (false, true) => size,
        (false, false) => format!("{size}; {grey}"),
    }
}

/// How features become the numbers that a model sees; all owners have the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Encoded {
    /// Numbers: minus the mean, times the factor; 0 where missing.
    Numbers {
        /// Column.
        name: String,
        /// One mean a number of the column.
        mean: Vec<f64>,
        /// One factor a number.
        factor: Vec<f64>,
    },
    /// One number for each word: 1 for the row's own, else 0; all 0 where missing or unknown.
    OneHot {
        /// Column.
        name: String,
        /// Known words.
        words: Vec<String>,
    },
}

/// The encoding of all features, in the order in which the model sees them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Encoding {
    /// Column by column.
    pub columns: Vec<Encoded>,
    /// Width, height and channels, where a column is an image; files of models of before do not say.
    #[serde(default)]
    pub image: Option<Image>,
}

impl Encoded {
    /// Its column's name.
    pub fn name(&self) -> &str {
        match self {
            Encoded::Numbers { name, .. } | Encoded::OneHot { name, .. } => name,
        }
    }

    /// Numbers that the model sees of it.
    pub fn width(&self) -> usize {
        match self {
            Encoded::Numbers { mean, .. } => mean.len(),
            Encoded::OneHot { words, .. } => words.len(),
        }
    }
}

impl Encoding {
    /// Numbers that the model sees of a row.
    pub fn width(&self) -> usize {
        self.columns.iter().map(Encoded::width).sum()
    }

    /// Names of the columns that are words, however a file with a few rows looks.
    pub fn words(&self) -> Vec<String> {
        let words = self.columns.iter().filter(|c| matches!(c, Encoded::OneHot { .. }));
        words.map(|c| c.name().to_string()).collect()
    }

    /// The rows with these numbers, encoded, row by row. Columns are found by name; a file may have more.
    pub fn apply(
        &self,
        samples: &Samples,
        rows: impl ExactSizeIterator<Item = usize> + Clone,
    ) -> Result<Vec<f32>, ReadError> {
        let (width, count) = (self.width(), rows.len());
        // As many pixels in another shape would be other places of the image.
        if let (Some(wanted), Some(own)) = (self.image, samples.image)
            && wanted != own
        {
            let (has, needs) = (pixels(own), pixels(wanted));
            let what = format!("{has}; the model needs {needs}: {}", as_pixels(own, wanted));
            return Err(ReadError::new(&samples.file, what));
        }
        let mut out = vec![0.0f32; width * count];
        let mut at = 0;
        for column in &self.columns {
            let wrong = |what: String| ReadError::new(&samples.file, what).column(column.name());
            let feature = samples.features.iter().find(|f| f.name() == column.name());
            let feature =
                feature.ok_or_else(|| wrong("there is no such column, but the model needs it".into()))?;
            let rows_out = || rows.clone().enumerate();
            match (column, feature) {
                (Encoded::Numbers { mean, factor, .. }, Feature::Numbers { width: own, values, .. })
                    if *own == mean.len() =>
                {
                    for (r, row) in rows_out() {
                        let to = &mut out[r * width + at..][..*own];
                        for (c, to) in to.iter_mut().enumerate() {
                            let value = f64::from(values[row * own + c]);
                            *to = if value.is_nan() { 0.0 } else { ((value - mean[c]) * factor[c]) as f32 };
                        }
                    }
                }
                (Encoded::OneHot { words: known, .. }, Feature::Category { words, .. }) => {
                    let place: Vec<Option<usize>> = words.words.iter().map(|w| place_of(w, known)).collect();
                    for (r, row) in rows_out() {
                        if let Some(Some(p)) = place.get(words.codes[row] as usize) {
                            out[r * width + at + p] = 1.0;
                        }
                    }
                }
                // A column without values has no kind of its own: 0 as where a value is missing.
                _ if feature.is_missing() => {}
                (Encoded::Numbers { mean, .. }, Feature::Numbers { width: own, .. }) => {
                    return Err(wrong(format!("{own} numbers a row; the model needs {}", mean.len())));
                }
                (Encoded::Numbers { .. }, _) => {
                    return Err(wrong("words, but the model needs numbers".into()));
                }
                (Encoded::OneHot { .. }, _) => {
                    let what = "numbers, but the model needs words: --words with its name reads it so";
                    return Err(wrong(what.into()));
                }
            }
            at += column.width();
        }
        Ok(out)
    }
}

/// The place of a word among those that are known; yes and no are spelled in the way of each format.
fn place_of(word: &str, known: &[String]) -> Option<usize> {
    let same = known.iter().position(|k| k == word);
    let is_flag = || ["true", "false"].iter().any(|f| word.eq_ignore_ascii_case(f));
    same.or_else(|| known.iter().position(|k| k.eq_ignore_ascii_case(word)).filter(|_| is_flag()))
}

impl Feature {
    /// Whether no row has a value.
    pub fn is_missing(&self) -> bool {
        match self {
            Feature::Numbers { values, .. } => values.iter().all(|v| v.is_nan()),
            Feature::Category { words, .. } => words.words.is_empty(),
        }
    }

    /// Its column's name.
    pub fn name(&self) -> &str {
        match self {
            Feature::Numbers { name, .. } | Feature::Category { name, .. } => name,
        }
    }
}
