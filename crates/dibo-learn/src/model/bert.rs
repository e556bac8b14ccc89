//! What is to be known of a BERT whose head was trained with it: its sizes, and what its tensors are called.
use serde::{Deserialize, Serialize};

/// The sizes of a BERT.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bert {
    /// Tokens known.
    pub vocabulary: usize,
    /// Places a text may have.
    pub positions: usize,
    /// Kinds of token.
    pub types: usize,
    /// Width of a token's vector.
    pub hidden: usize,
    /// Layers.
    pub layers: usize,
    /// Heads of attention in a layer.
    pub heads: usize,
    /// Units of the feed-forward part.
    pub intermediate: usize,
    /// Added to the variance in LayerNorm.
    pub epsilon: f64,
    /// What the head sees of the last layer.
    pub pooling: Pooling,
}

/// What a head sees of the last layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pooling {
    /// The first token's vector.
    First,
    /// The mean over the tokens that are not padding.
    Mean,
}

/// Sizes beyond are of no BERT, and their products fit no 64 bits.
const MOST: usize = 1 << 16;

/// The same for layers: each has names of its own.
const MOST_LAYERS: usize = 1 << 10;

impl Bert {
    /// Says which size makes no sense.
    pub(super) fn check(&self) -> Result<(), String> {
        let sizes = [
            ("vocabulary", self.vocabulary, MOST),
            ("positions", self.positions, MOST),
            ("types", self.types, MOST),
            ("hidden", self.hidden, MOST),
            ("layers", self.layers, MOST_LAYERS),
            ("heads", self.heads, MOST),
            ("intermediate", self.intermediate, MOST),
        ];
        if let Some((name, size, most)) =
            sizes.into_iter().find(|(_, size, most)| !(1..=*most).contains(size))
        {
            return Err(format!("{name} of the BERT is {size}; it must be between 1 and {most}"));
        }
        if !self.hidden.is_multiple_of(self.heads) {
            let (hidden, heads) = (self.hidden, self.heads);
            return Err(format!(
                "hidden of the BERT is {hidden}; it must be a multiple of its {heads} heads"
            ));
        }
        Ok(())
    }

    /// Names, by which the Hugging Face hub knows them, and shapes of all tensors before the head, in the
    /// order of dibo's row of weights.
    pub fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        let (h, i) = (self.hidden, self.intermediate);
        let mut all: Vec<(String, Vec<usize>)> = [
            ("word_embeddings.weight", vec![self.vocabulary, h]),
            ("position_embeddings.weight", vec![self.positions, h]),
            ("token_type_embeddings.weight", vec![self.types, h]),
            ("LayerNorm.weight", vec![h]),
            ("LayerNorm.bias", vec![h]),
        ]
        .map(|(name, shape)| (format!("embeddings.{name}"), shape))
        .into();
        for layer in 0..self.layers {
            let parts = [
                ("attention.self.query.weight", vec![h, h]),
                ("attention.self.key.weight", vec![h, h]),
                ("attention.self.value.weight", vec![h, h]),
                ("attention.self.query.bias", vec![h]),
                ("attention.self.key.bias", vec![h]),
                ("attention.self.value.bias", vec![h]),
                ("attention.output.dense.weight", vec![h, h]),
                ("attention.output.dense.bias", vec![h]),
                ("attention.output.LayerNorm.weight", vec![h]),
                ("attention.output.LayerNorm.bias", vec![h]),
                ("intermediate.dense.weight", vec![i, h]),
                ("intermediate.dense.bias", vec![i]),
                ("output.dense.weight", vec![h, i]),
                ("output.dense.bias", vec![h]),
                ("output.LayerNorm.weight", vec![h]),
                ("output.LayerNorm.bias", vec![h]),
            ];
            all.extend(parts.map(|(name, shape)| (format!("encoder.layer.{layer}.{name}"), shape)));
        }
        all
    }

    /// Those of the head, too.
    pub(super) fn with_head(&self, classes: usize) -> Vec<(String, Vec<usize>)> {
        let mut all = self.tensors();
        all.push(("classifier.weight".into(), vec![classes, self.hidden]));
        all.push(("classifier.bias".into(), vec![classes]));
        all
    }

    /// Numbers of a row of weights: all tensors one after the other, and zeros up to a multiple of 16.
    pub(super) fn weights(&self, classes: usize) -> Option<usize> {
        let numbers = |shape: Vec<usize>| shape.into_iter().try_fold(1usize, usize::checked_mul);
        let sum = |sum: usize, (_, shape): (String, Vec<usize>)| sum.checked_add(numbers(shape)?);
        self.with_head(classes).into_iter().try_fold(0, sum)?.checked_next_multiple_of(16)
    }
}
