//! The classifiers: forward and backward pass by hand on matrix products, for rows of a batch that lie in one
//! scratch.
use super::bert::{Bert, Workspace};
use crate::kernels::{mask, product, product_in_place, relu, scale_pixels};
use crate::rng::{Purpose, stream};
use crate::rows::{Buffer, Real, zeros};
use rand::RngExt;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Kinds of classifier.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Model {
    /// Softmax of a linear map with bias.
    Linear,
    /// Softmax of a linear map without bias.
    LinearNoBias,
    /// One hidden layer of so many ReLU units, with biases.
    Mlp(usize),
    /// BERT on token numbers of two bytes each, so an input of n tokens has 2n "pixels".
    Bert(Bert),
}

/// A classifier's shape. Its parameters lie in one row:
///
/// - linear: class by class, the weights of the pixels, then the bias (classes × inputs; inputs = pixels + 1,
///   or pixels without bias);
/// - MLP: pixel by pixel the weights to the hidden units, then the hidden biases ((pixels + 1) × hidden);
///   then class by class the
///   weights of the hidden units and the bias (classes × (hidden + 1)).
///
/// - BERT: as [`Bert::places`] says.
///
/// A bias is the weight of an input that is always 1, so it costs no code. These orders are the fastest for
/// the matrix products.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Net {
    /// Numbers in an image.
    pub pixels: usize,
    /// Number of classes.
    pub classes: usize,
    /// The classifier.
    pub model: Model,
}

/// Workspace for the rows of one batch piece: inputs, hidden values, probabilities, what flows back; made
/// once and used again.
pub(super) struct Scratch<T> {
    pub x: Buffer<T>,
    pub hidden: Buffer<T>,
    pub back: Buffer<T>,
    transposed: Buffer<T>,
    pub out: Buffer<T>,
    /// Derivatives of hidden values and scores along a direction; empty until one is asked for.
    pub r_hidden: Buffer<T>,
    pub r_out: Buffer<T>,
    bert: Option<Box<Workspace<T>>>,
    /// Label of each row.
    pub labels: Vec<u8>,
    /// Factor of each row's loss in the gradient.
    pub weights: Vec<f64>,
    /// Cross-entropy of each row.
    pub losses: Vec<f64>,
    /// Cross-entropies of another model on the same rows.
    pub others: Vec<f64>,
}

/// Rows a workspace holds: enough to fill the product's kernels, few enough to stay in cache.
pub(super) const ROWS: usize = 256;

/// The same for texts.
const TEXTS: usize = 8;

impl Net {
    /// Length of an input row: pixels, and the 1 of the bias.
    pub fn inputs(&self) -> usize {
        self.pixels + usize::from(self.model != Model::LinearNoBias)
    }

    pub(super) fn hidden(&self) -> Option<usize> {
        match self.model {
            Model::Mlp(hidden) => Some(hidden),
            _ => None,
        }
    }

    /// Numbers that a row of features has: a BERT's are its tokens, each of two "pixels".
    pub fn numbers(&self) -> usize {
        if matches!(self.model, Model::Bert(_)) { self.pixels / 2 } else { self.pixels }
    }

    /// Number of parameters.
    pub fn width(&self) -> usize {
        if let Model::Bert(bert) = &self.model {
            return bert.places(self.classes).width;
        }
        match self.hidden() {
            None => self.classes * self.inputs(),
            Some(h) => self.inputs() * h + self.classes * (h + 1),
        }
    }

    /// Starting parameters: 0 for a linear model; for an MLP uniform on ±1/√fan-in, as PyTorch's layers
    /// start; for BERT normal.
    pub fn start(&self, seed: u64) -> Vec<f64> {
        if let Model::Bert(bert) = &self.model {
            return bert.start(self.classes, seed);
        }
        let Some(h) = self.hidden() else { return vec![0.0; self.width()] };
        let mut r = stream(seed, Purpose::Start, 0, 0);
        let first = self.inputs() * h;
        let (a, b) = (1.0 / (self.pixels as f64).sqrt(), 1.0 / (h as f64).sqrt());
        (0..self.width()).map(|i| r.random_range(-1.0..1.0) * if i < first { a } else { b }).collect()
    }

    /// Floating-point operations of one forward and backward pass over one sample, without the gradient by
    /// the input.
    pub fn flops(&self) -> usize {
        if let Model::Bert(bert) = &self.model {
            return bert.flops(self.pixels / 2);
        }
        match self.hidden() {
            None => 4 * self.width(),
            Some(h) => 4 * self.inputs() * h + 6 * self.classes * (h + 1),
        }
    }

    pub(super) fn strides(&self) -> (usize, usize, usize) {
        let line = |n: usize| n.next_multiple_of(16);
        if let Model::Bert(_) = self.model {
            return (0, 0, line(self.classes));
        }
        (line(self.inputs()), line(self.hidden().map_or(0, |h| h + 1)), line(self.classes))
    }

    /// Rows a workspace holds at most: a text takes far more memory than an image.
    pub(super) fn rows(&self) -> usize {
        if matches!(self.model, Model::Bert(_)) { TEXTS } else { ROWS }
    }

    /// Workspace for [`rows`](Self::rows) rows, or for `most` if that is less.
    pub(super) fn scratch<T: Real>(&self, most: usize) -> Scratch<T> {
        let text = matches!(self.model, Model::Bert(_));
        let (rows, (sx, sh, so)) = (most.min(self.rows()), self.strides());
        let (mut x, mut hidden) = (zeros(rows * sx), zeros(rows * sh));
        // The inputs of the biases: written once, no pass touches them.
        for r in 0..if text { 0 } else { rows } {
            if self.inputs() > self.pixels {
                x[r * sx + self.pixels] = T::ONE;
            }
            if let Some(h) = self.hidden() {
                hidden[r * sh + h] = T::ONE;
            }
        }
        let back = zeros(rows * sh);
        Scratch {
            x,
            hidden,
            back,
            transposed: zeros(self.hidden().map_or(0, |h| (h + 1) * so)),
            out: zeros(rows * so),
            r_hidden: zeros(0),
            r_out: zeros(0),
            bert: match self.model {
                Model::Bert(bert) => {
                    Some(Box::new(Workspace::new(bert, self.classes, self.pixels / 2, rows)))
                }
                _ => None,
            },
            labels: vec![0; rows],
            weights: vec![0.0; rows],
            losses: vec![0.0; rows],
            others: vec![0.0; rows],
        }
    }

    /// Puts an image into row `r`.
    pub(super) fn load<T: Real>(&self, s: &mut Scratch<T>, r: usize, image: &[u8], scale: &[T], shift: &[T]) {
        if let Some(bert) = &mut s.bert {
            return bert.load(r, image);
        }
        let at = r * self.strides().0;
        scale_pixels(&mut s.x[at..at + self.pixels], image, scale, shift);
    }

    /// Scores of the rows, one number a class.
    pub(super) fn forward<T: Real>(&self, s: &mut Scratch<T>, rows: usize, w: &[T]) {
        let (sx, sh, so) = self.strides();
        if let Some(bert) = &mut s.bert {
            return bert.forward(rows, w, &mut s.out, so);
        }
        let Some(h) = self.hidden() else {
            let n = self.inputs();
            return product((rows, self.classes, n), (&mut s.out, so, 1), false, (&s.x, sx, 1), (w, 1, n));
        };
        let (first, second) = w.split_at(self.inputs() * h);
        product_in_place((rows, h, self.inputs()), (&mut s.hidden, sh), false, (&s.x, sx, 1), (first, h));
        s.hidden.chunks_exact_mut(sh).take(rows).for_each(|row| relu(&mut row[..h]));
        // Transposed, with the classes side by side, these few weights can be used in place; what lies behind
        // the classes stays zero.
        for (c, weights) in second.chunks_exact(h + 1).enumerate() {
            s.transposed[c..].iter_mut().step_by(so).zip(weights).for_each(|(to, w)| *to = *w);
        }
        product_in_place((rows, so, h + 1), (&mut s.out, so), false, (&s.hidden, sh, 1), (&s.transposed, so));
    }

    /// From scores to cross-entropies, and to weight · (probability − 1 at the label) in place of the scores.
    pub(super) fn entropy<T: Real>(&self, s: &mut Scratch<T>, rows: usize) {
        let so = self.strides().2;
        let mut powers = [0.0; 256];
        for (r, row) in s.out.chunks_exact_mut(so).take(rows).enumerate() {
            let (row, label, weight) = (&mut row[..self.classes], s.labels[r] as usize, s.weights[r]);
            let top = row.iter().fold(row[0], |a, b| if *b > a { *b } else { a }).f64();
            let own = row[label].f64() - top;
            let mut sum = 0.0;
            // In f64 whatever T is: ten exponentials a row cost little beside the products.
            for (p, v) in powers.iter_mut().zip(row.iter()) {
                *p = (v.f64() - top).exp();
                sum += *p;
            }
            s.losses[r] = sum.ln() - own;
            let factor = weight / sum;
            row.iter_mut().zip(&powers).for_each(|(v, p)| *v = T::of(factor * p));
            row[label] = T::of(factor * powers[label] - weight);
        }
    }

    /// Puts numbers that need no scaling into row `r`; a BERT's are whole, those of its tokens.
    pub(super) fn load_numbers<T: Real>(&self, s: &mut Scratch<T>, r: usize, numbers: &[f32]) {
        if let Some(bert) = &mut s.bert {
            return bert.load_tokens(r, numbers.iter().map(|v| *v as usize));
        }
        let at = r * self.strides().0;
        s.x[at..at + self.pixels].iter_mut().zip(numbers).for_each(|(to, v)| *to = T::of(f64::from(*v)));
    }

    /// The probabilities of row `r`'s classes, from its scores.
    pub(super) fn probabilities<T: Real>(&self, s: &Scratch<T>, r: usize, p: &mut [f64]) {
        softmax(&s.out[r * self.strides().2..][..self.classes], p);
    }

    /// Writes what flows back into row `r` in place of its scores.
    pub(super) fn set_back<T: Real>(&self, s: &mut Scratch<T>, r: usize, back: impl Iterator<Item = f64>) {
        let at = r * self.strides().2;
        s.out[at..at + self.classes].iter_mut().zip(back).for_each(|(to, v)| *to = T::of(v));
    }

    /// The class with the highest score of each row.
    pub(super) fn guesses<T: Real>(&self, s: &Scratch<T>, rows: usize) -> impl Iterator<Item = usize> {
        s.out.chunks_exact(self.strides().2).take(rows).map(|row| {
            let row = &row[..self.classes];
            (1..row.len()).fold(0, |best, c| if row[c] > row[best] { c } else { best })
        })
    }

    /// The gradient of Σ weight · cross-entropy by the parameters, after [`forward`](Self::forward) and
    /// [`entropy`](Self::entropy) with the same rows and parameters; added to `g`, or written over it.
    pub(super) fn backward<T: Real>(&self, s: &mut Scratch<T>, rows: usize, w: &[T], g: &mut [T], add: bool) {
        let (sx, sh, so) = self.strides();
        if let Some(bert) = &mut s.bert {
            return bert.backward(rows, w, &s.out, so, g, add);
        }
        let Some(h) = self.hidden() else {
            let n = self.inputs();
            return product((n, self.classes, rows), (g, 1, n), add, (&s.x, 1, sx), (&s.out, so, 1));
        };
        let (second, (g1, g2)) = (&w[self.inputs() * h..], g.split_at_mut(self.inputs() * h));
        product_in_place((self.classes, h, rows), (g2, h + 1), add, (&s.out, 1, so), (&s.hidden, sh));
        product(
            (self.classes, 1, rows),
            (&mut g2[h..], h + 1, 1),
            add,
            (&s.out, 1, so),
            (&s.hidden[h..], sh, 1),
        );
        // As far apart as the hidden values: rows a power of two apart would share few places of the
        // first-level cache.
        product((rows, h, self.classes), (&mut s.back, sh, 1), false, (&s.out, so, 1), (second, h + 1, 1));
        let masks = s.hidden.chunks_exact(sh).take(rows);
        s.back.chunks_exact_mut(sh).zip(masks).for_each(|(back, hidden)| mask(&mut back[..h], &hidden[..h]));
        product_in_place((self.inputs(), h, rows), (g1, h), add, (&s.x, 1, sx), (&s.back, sh));
    }
}

/// Probabilities from scores.
pub(super) fn softmax<T: Real>(row: &[T], p: &mut [f64]) {
    let top = row.iter().fold(row[0], |a, b| if *b > a { *b } else { a }).f64();
    let mut sum = 0.0;
    for (p, v) in p.iter_mut().zip(row) {
        *p = (v.f64() - top).exp();
        sum += *p;
    }
    p.iter_mut().for_each(|p| *p /= sum);
}

impl<T> Scratch<T> {
    /// How many rows it holds.
    pub fn rows(&self) -> usize {
        self.labels.len()
    }
}

/// The rows `0..total` in pieces of at most `most`.
pub(super) fn pieces(total: usize, most: usize) -> impl Iterator<Item = Range<usize>> {
    (0..total).step_by(most.max(1)).map(move |from| from..(from + most).min(total))
}
