//! Trained classifiers: their predictions, and the files in which users take them home.
mod bert;
mod onnx;
mod store;
#[cfg(test)]
mod tests;

use crate::samples::{Encoded, Encoding, ReadError, Samples};
use std::collections::{BTreeMap, BTreeSet};

pub use bert::{Bert, Pooling};
pub(crate) use store::{Tensor, bytes};

/// Rows that are encoded at a time.
const ROWS: usize = 1024;

/// Numbers that are encoded at a time: fewer rows where they are wide.
const NUMBERS: usize = 1 << 22;

/// What a classifier computes from its inputs; the softmax of it are the probabilities.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// A linear map.
    Linear {
        /// Whether a class has a bias.
        bias: bool,
    },
    /// One hidden layer of ReLU units, with biases.
    Mlp {
        /// Hidden units.
        hidden: usize,
    },
    /// A BERT with a linear head; its inputs are numbers of tokens, with zeros behind the last one.
    Bert(Bert),
}

impl Shape {
    /// Numbers that it has for so many inputs and classes; none if no memory could hold them.
    pub fn weights(&self, inputs: usize, classes: usize) -> Option<usize> {
        match self {
            Shape::Linear { bias } => inputs.checked_add(usize::from(*bias))?.checked_mul(classes),
            Shape::Mlp { hidden } => {
                let first = inputs.checked_add(1)?.checked_mul(*hidden)?;
                first.checked_add(hidden.checked_add(1)?.checked_mul(classes)?)
            }
            Shape::Bert(bert) => bert.weights(classes),
        }
    }
}

/// A trained classifier with everything that is needed to use it.
///
/// With d inputs (the [`width`](Encoding::width) of the encoding) and C classes, the weights lie in one row:
///
/// - linear: class by class the weights of the inputs, then the bias, if there is one;
/// - MLP: input by input the weights to the hidden units, then the hidden biases ((d + 1) × hidden); then
///   class by class the weights of the hidden units and the bias (C × (hidden + 1));
/// - BERT: its [tensors](Bert::tensors) one after the other, then class by class the head's weights, then its
///   biases, and zeros up to a multiple of 16.
#[derive(Clone, Debug, PartialEq)]
pub struct SavedModel {
    /// The classifier.
    pub shape: Shape,
    /// How features become its inputs.
    pub encoding: Encoding,
    /// Names of the classes.
    pub classes: Vec<String>,
    /// Its numbers.
    pub weights: Vec<f32>,
    /// Where it comes from, in free words: method, seed, date.
    pub about: BTreeMap<String, String>,
}

/// What a model says of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// The most probable class, by its place among the model's classes; the first of equals.
    pub class: usize,
    /// Its probability.
    pub probability: f32,
}

impl SavedModel {
    /// Whether the parts fit together and all numbers are finite; if not, what is wrong in one line. The
    /// other methods rely on it.
    pub fn check(&self) -> Result<(), String> {
        self.check_names()?;
        let (inputs, classes) = (self.encoding.width(), self.classes.len());
        match self.shape.weights(inputs, classes) {
            Some(needed) if needed == self.weights.len() => {}
            needed => {
                let needed = needed.map_or("more than memory can hold".into(), |n| n.to_string());
                let own = self.weights.len();
                return Err(format!(
                    "{own} weights; {inputs} inputs and {classes} classes need {needed} with {:?}",
                    self.shape
                ));
            }
        }
        match self.weights.iter().position(|w| !w.is_finite()) {
            Some(i) => Err(format!("weight {i} is {}; a model has finite numbers only", self.weights[i])),
            None => Ok(()),
        }
    }

    /// All but the weights.
    fn check_names(&self) -> Result<(), String> {
        if self.classes.is_empty() {
            return Err("no classes; a classifier needs at least one".into());
        }
        let mut seen = BTreeSet::new();
        if let Some(twice) = self.classes.iter().find(|c| !seen.insert(*c)) {
            return Err(format!("class {twice:?} is there twice; each class needs a name of its own"));
        }
        if self.shape == (Shape::Mlp { hidden: 0 }) {
            return Err("a hidden layer of 0 units; at least one is needed".into());
        }
        if let Shape::Bert(bert) = &self.shape {
            bert.check()?;
            let (tokens, most) = (self.encoding.width(), bert.positions);
            if tokens > most {
                return Err(format!("texts of {tokens} tokens; the BERT takes {most} at most"));
            }
        }
        for column in &self.encoding.columns {
            let Encoded::Numbers { name, mean, factor } = column else { continue };
            if mean.len() != factor.len() {
                let (m, f) = (mean.len(), factor.len());
                return Err(format!(
                    "column {name:?} has {m} means and {f} factors; it needs as many of both"
                ));
            }
            if let Some(bad) = mean.iter().chain(factor).find(|v| !v.is_finite()) {
                return Err(format!("column {name:?} is scaled by {bad}; means and factors must be finite"));
            }
        }
        if self.encoding.width() == 0 {
            return Err("no inputs; a classifier needs at least one column of features".into());
        }
        Ok(())
    }

    /// Scores of encoded rows, one number a class, row by row. Those of a BERT are no numbers: whoever has
    /// one makes them, see [`predict_by`](Self::predict_by).
    ///
    /// # Panics
    ///
    /// If `rows` is not a multiple of the encoding's width, or [`check`](Self::check) fails.
    pub fn scores(&self, rows: &[f32]) -> Vec<f32> {
        let (d, classes) = (self.encoding.width(), self.classes.len());
        assert!(rows.len().is_multiple_of(d), "{} numbers are no whole rows of {d}", rows.len());
        let mut out = Vec::with_capacity(rows.len() / d * classes);
        match self.shape {
            Shape::Linear { bias } => affine(rows, d, &self.weights, bias, &mut out),
            Shape::Mlp { hidden } => {
                let (first, second) = self.weights.split_at((d + 1) * hidden);
                for rows in rows.chunks(d * HIDDEN_ROWS) {
                    affine(&relu_layer(rows, d, first, hidden), hidden, second, true, &mut out);
                }
            }
            Shape::Bert(_) => out.resize(rows.len() / d * classes, f32::NAN),
        }
        out
    }

    /// Probabilities of the classes for encoded rows, row by row.
    ///
    /// # Panics
    ///
    /// As [`scores`](Self::scores).
    pub fn probabilities(&self, rows: &[f32]) -> Vec<f32> {
        let mut out = self.scores(rows);
        out.chunks_exact_mut(self.classes.len()).for_each(softmax);
        out
    }

    /// The most probable class of each row. Columns are found by name; a file may have more than the model
    /// needs.
    pub fn predict(&self, samples: &Samples) -> Result<Vec<Prediction>, ReadError> {
        if matches!(self.shape, Shape::Bert(_)) {
            let what = "the model is a BERT, which needs a program that computes one: `dibo predict` is one";
            return Err(ReadError::new(&samples.file, what));
        }
        self.predict_by(samples, |rows| self.scores(rows))
    }

    /// The same with scores of encoded rows from elsewhere, such as those of a BERT.
    pub fn predict_by(
        &self,
        samples: &Samples,
        mut scores: impl FnMut(&[f32]) -> Vec<f32>,
    ) -> Result<Vec<Prediction>, ReadError> {
        let unusable = |what| ReadError::new(&samples.file, format!("the model cannot be used: {what}"));
        self.check().map_err(unusable)?;
        let piece = (NUMBERS / self.encoding.width()).clamp(1, ROWS);
        let mut out = Vec::with_capacity(samples.rows);
        for start in (0..samples.rows).step_by(piece) {
            let encoded = self.encoding.apply(samples, start..samples.rows.min(start + piece))?;
            for row in scores(&encoded).chunks_exact_mut(self.classes.len()) {
                if row.iter().any(|score| !score.is_finite()) {
                    let what =
                        "numbers too large for the model; finite ones near its training data are right";
                    return Err(ReadError::new(&samples.file, what).row(out.len() + 1));
                }
                // By score: probabilities of two classes may both round to 1.
                let class = (1..row.len()).fold(0, |best, c| if row[c] > row[best] { c } else { best });
                softmax(row);
                out.push(Prediction { class, probability: row[class] });
            }
        }
        Ok(out)
    }
}

/// Rows whose hidden values are kept at a time.
const HIDDEN_ROWS: usize = 64;

/// Inputs whose products are summed before they join the others: rounding errors grow with the length of a
/// sum, and so many weights stay in cache for all rows.
const INPUTS: usize = 64;

/// The hidden layer: `weights` lie input by input, with the biases last.
fn relu_layer(rows: &[f32], d: usize, weights: &[f32], hidden: usize) -> Vec<f32> {
    let (weights, biases) = weights.split_at(d * hidden);
    let mut out = biases.repeat(rows.len() / d);
    let mut part = vec![0.0f32; hidden];
    for (block, weights) in weights.chunks(INPUTS * hidden).enumerate() {
        for (row, sums) in rows.chunks_exact(d).zip(out.chunks_exact_mut(hidden)) {
            part.fill(0.0);
            let inputs = &row[block * INPUTS..];
            for (x, weights) in inputs.iter().zip(weights.chunks_exact(hidden)) {
                // One-hot columns are mostly zeros.
                if *x != 0.0 {
                    part.iter_mut().zip(weights).for_each(|(p, w)| *p += x * w);
                }
            }
            sums.iter_mut().zip(&part).for_each(|(s, p)| *s += p);
        }
    }
    // Unlike `max`, this keeps NaN, by which a caller sees that an input was too large.
    out.iter_mut().for_each(|v| *v = if *v < 0.0 { 0.0 } else { *v });
    out
}

/// Adds the outputs of a linear map to `out`: `weights` lie output by output, the bias last if there is one.
fn affine(rows: &[f32], d: usize, weights: &[f32], bias: bool, out: &mut Vec<f32>) {
    for row in rows.chunks_exact(d) {
        out.extend(weights.chunks_exact(d + usize::from(bias)).map(|weights| {
            let bias = if bias { f64::from(weights[d]) } else { 0.0 };
            (dot(row, &weights[..d]) + bias) as f32
        }));
    }
}

/// In lanes, which the compiler turns into vectors and which round less than one long sum.
fn dot(a: &[f32], b: &[f32]) -> f64 {
    let mut lanes = [0.0f32; 16];
    let (a, b) = (a.chunks_exact(16), b.chunks_exact(16));
    let rest = a.remainder().iter().zip(b.remainder());
    let rest: f64 = rest.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
    for (a, b) in a.zip(b) {
        lanes.iter_mut().zip(a.iter().zip(b)).for_each(|(lane, (a, b))| *lane += a * b);
    }
    lanes.iter().map(|lane| f64::from(*lane)).sum::<f64>() + rest
}

/// From scores to probabilities.
fn softmax(row: &mut [f32]) {
    let top = f64::from(row.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    let sum: f64 = row.iter().map(|v| (f64::from(*v) - top).exp()).sum();
    row.iter_mut().for_each(|v| *v = ((f64::from(*v) - top).exp() / sum) as f32);
}
