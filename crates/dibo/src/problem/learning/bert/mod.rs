//! BERT with a linear head: embeddings, layers of attention and feed-forward with LayerNorm after each, GELU
//! by erf; forward and backward by hand. It is the reference for the GPU's and serves small models on the
//! host.
//!
//! A sample is a row of token numbers, two bytes each, ended by zeros (the padding token). Padded places are
//! computed like the others but no place looks at them.
use super::model::{Model, Net};
use crate::kernels::product;
use crate::rng::{Purpose, stream};
use crate::rows::Real;
use rand_distr::{Distribution, StandardNormal};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// The sizes of a BERT.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bert {
    /// Tokens known.
    pub vocabulary: usize,
    /// Places an input may have.
    pub positions: usize,
    /// Kinds of token; all tokens are of kind 0.
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
    /// What the head sees.
    pub pool: Pool,
}

/// What the head sees of the last layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Pool {
    /// The first token's vector.
    #[default]
    First,
    /// The mean over the tokens that are not padding.
    Mean,
}

/// Where a LayerNorm's factors and shifts lie among the parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NormAt {
    /// Factors.
    pub scale: Range<usize>,
    /// Shifts.
    pub shift: Range<usize>,
}

/// Where a linear map lies among the parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinearAt {
    /// Weights, output by output.
    pub weight: Range<usize>,
    /// Biases.
    pub bias: Range<usize>,
}

/// Where one layer's parameters lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerAt {
    /// Queries, keys and values below each other: 3 × hidden outputs.
    pub qkv: LinearAt,
    /// What mixes the heads.
    pub mixed: LinearAt,
    /// After attention.
    pub norm1: NormAt,
    /// To the intermediate units.
    pub up: LinearAt,
    /// Back to the hidden width.
    pub down: LinearAt,
    /// After the feed-forward part.
    pub norm2: NormAt,
}

/// Where all parameters lie in their row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// One vector per token.
    pub words: Range<usize>,
    /// One vector per place.
    pub positions: Range<usize>,
    /// One vector per kind of token.
    pub types: Range<usize>,
    /// After the embeddings.
    pub norm: NormAt,
    /// The layers.
    pub layers: Vec<LayerAt>,
    /// The head.
    pub head: LinearAt,
    /// Length of the row: the parameters, and zeros up to a multiple of 16 so that a twin beside it begins on
    /// a cache line.
    pub width: usize,
}

impl Bert {
    /// Says which size makes no sense.
    pub fn check(&self) -> Result<(), String> {
        let sizes = [
            ("vocab_size", self.vocabulary, 1 << 16),
            ("max_position_embeddings", self.positions, 1 << 16),
            ("type_vocab_size", self.types, 1 << 10),
            ("hidden_size", self.hidden, 1 << 14),
            ("num_hidden_layers", self.layers, 1 << 10),
            ("num_attention_heads", self.heads, 1 << 10),
            ("intermediate_size", self.intermediate, 1 << 16),
        ];
        if let Some((name, value, most)) =
            sizes.into_iter().find(|(_, value, most)| *value == 0 || value > most)
        {
            return Err(format!("{name} is {value}; it must be between 1 and {most}"));
        }
        if !self.hidden.is_multiple_of(self.heads)
            || !self.hidden.is_multiple_of(4)
            || !self.intermediate.is_multiple_of(4)
        {
            return Err(format!(
                "hidden_size {} must be a multiple of the {} heads and of 4, intermediate_size {} of 4",
                self.hidden, self.heads, self.intermediate
            ));
        }
        if !(self.epsilon >= 0.0 && self.epsilon < 1.0) {
            return Err(format!("layer_norm_eps is {}; it must be small and not negative", self.epsilon));
        }
        Ok(())
    }

    /// Where the parameters lie, with a head of so many classes.
    pub fn places(&self, classes: usize) -> Places {
        let mut end = 0;
        let mut take = |len: usize| {
            end += len;
            end - len..end
        };
        let (h, i) = (self.hidden, self.intermediate);
        let (words, positions, types) =
            (take(self.vocabulary * h), take(self.positions * h), take(self.types * h));
        let norm = NormAt { scale: take(h), shift: take(h) };
        let layers = (0..self.layers).map(|_| LayerAt {
            qkv: LinearAt { weight: take(3 * h * h), bias: take(3 * h) },
            mixed: LinearAt { weight: take(h * h), bias: take(h) },
            norm1: NormAt { scale: take(h), shift: take(h) },
            up: LinearAt { weight: take(i * h), bias: take(i) },
            down: LinearAt { weight: take(h * i), bias: take(h) },
            norm2: NormAt { scale: take(h), shift: take(h) },
        });
        let layers = layers.collect();
        let head = LinearAt { weight: take(classes * h), bias: take(classes) };
        let width = head.bias.end.next_multiple_of(16);
        Places { words, positions, types, norm, layers, head, width }
    }

    /// Random starting parameters: normal with deviation 0.02, LayerNorm the identity, biases 0; as BERT
    /// starts.
    pub fn start(&self, classes: usize, seed: u64) -> Vec<f64> {
        let places = self.places(classes);
        let mut w = vec![0.0; places.width];
        let mut r = stream(seed, Purpose::Start, 0, 0);
        let mut normal = |w: &mut [f64]| {
            w.iter_mut().for_each(|v| *v = 0.02 * Distribution::<f64>::sample(&StandardNormal, &mut r))
        };
        for part in [&places.words, &places.positions, &places.types] {
            normal(&mut w[part.clone()]);
        }
        w[places.norm.scale.clone()].fill(1.0);
        for layer in &places.layers {
            for part in [&layer.qkv, &layer.mixed, &layer.up, &layer.down] {
                normal(&mut w[part.weight.clone()]);
            }
            w[layer.norm1.scale.clone()].fill(1.0);
            w[layer.norm2.scale.clone()].fill(1.0);
        }
        normal(&mut w[places.head.weight.clone()]);
        w
    }

    /// Floating-point operations of the matrix products of one forward and backward pass over one sample of
    /// so many tokens.
    pub fn flops(&self, length: usize) -> usize {
        let linear = self.layers * (4 * self.hidden * self.hidden + 2 * self.hidden * self.intermediate);
        6 * length * (linear + self.layers * 2 * length * self.hidden)
    }
}

/// The token numbers of a sample and how many of them are not padding (1 at least).
pub fn tokens(sample: &[u8]) -> (impl Iterator<Item = usize> + '_, usize) {
    let numbers = sample.chunks_exact(2).map(|b| usize::from(u16::from_le_bytes([b[0], b[1]])));
    let used = sample.chunks_exact(2).rposition(|b| b != [0, 0]).map_or(1, |last| last + 1);
    (numbers, used)
}

/// What a LayerNorm remembers for the way back.
struct Normed<T> {
    /// Normalised values.
    hat: Vec<T>,
    /// 1/deviation of each token.
    rate: Vec<T>,
    /// What comes out.
    out: Vec<T>,
}

struct Layer<T> {
    qkv: Vec<T>,
    /// Attention of each sample, head and token on the tokens.
    look: Vec<T>,
    context: Vec<T>,
    norm1: Normed<T>,
    up: Vec<T>,
    active: Vec<T>,
    norm2: Normed<T>,
}

/// Scores of texts, `classes` numbers each. Texts are token numbers, `length` each.
pub fn scores<T: Real>(bert: Bert, w: &[T], classes: usize, length: usize, texts: &[f32]) -> Vec<T> {
    let net = Net { pixels: 2 * length, classes, model: Model::Bert(bert) };
    let texts: Vec<&[f32]> = texts.chunks_exact(length.max(1)).collect();
    let mut scratch = net.scratch(texts.len().max(1));
    let mut scores = Vec::with_capacity(texts.len() * classes);
    for piece in texts.chunks(scratch.rows()) {
        piece.iter().enumerate().for_each(|(row, text)| net.load_numbers(&mut scratch, row, text));
        net.forward(&mut scratch, piece.len(), w);
        let rows = scratch.out.chunks_exact(net.strides().2).take(piece.len());
        rows.for_each(|row| scores.extend_from_slice(&row[..classes]));
    }
    scores
}

/// What a pretrained model makes of texts: `hidden` numbers each, pooled over its last layer. Texts are token
/// numbers as [`tokens`] reads them, `length` each.
pub fn embed<T: Real>(bert: Bert, w: &[T], length: usize, texts: &[u8]) -> Vec<T> {
    const PIECE: usize = 8;
    let mut workspace = Workspace::new(bert, 1, length, PIECE);
    let mut scores = [T::ZERO; PIECE];
    let texts: Vec<&[u8]> = texts.chunks_exact(2 * length).collect();
    let mut numbers = Vec::with_capacity(texts.len() * bert.hidden);
    for piece in texts.chunks(PIECE) {
        piece.iter().enumerate().for_each(|(row, text)| workspace.load(row, text));
        workspace.forward(piece.len(), w, &mut scores, 1);
        numbers.extend_from_slice(&workspace.pooled[..piece.len() * bert.hidden]);
    }
    numbers
}

/// Workspace for one batch piece.
pub(super) struct Workspace<T> {
    bert: Bert,
    places: Places,
    classes: usize,
    length: usize,
    ids: Vec<usize>,
    used: Vec<usize>,
    embedded: Normed<T>,
    layers: Vec<Layer<T>>,
    pooled: Vec<T>,
    back: Vec<T>,
    wide: Vec<T>,
    other: Vec<T>,
    look_back: Vec<T>,
}

impl<T: Real> Workspace<T> {
    pub fn new(bert: Bert, classes: usize, length: usize, rows: usize) -> Self {
        let tokens = rows * length;
        let (h, i) = (bert.hidden, bert.intermediate);
        let zeros = |len: usize| vec![T::ZERO; len];
        let norm = || Normed { hat: zeros(tokens * h), rate: zeros(tokens), out: zeros(tokens * h) };
        let layer = |_| Layer {
            qkv: zeros(tokens * 3 * h),
            look: zeros(tokens * bert.heads * length),
            context: zeros(tokens * h),
            norm1: norm(),
            up: zeros(tokens * i),
            active: zeros(tokens * i),
            norm2: norm(),
        };
        Workspace {
            places: bert.places(classes),
            classes,
            length,
            ids: vec![0; tokens],
            used: vec![1; rows],
            embedded: norm(),
            layers: (0..bert.layers).map(layer).collect(),
            pooled: zeros(rows * h),
            back: zeros(tokens * h),
            wide: zeros(tokens * i.max(3 * h)),
            other: zeros(tokens * h),
            look_back: zeros(length * length),
            bert,
        }
    }

    pub fn load(&mut self, row: usize, sample: &[u8]) {
        self.load_tokens(row, tokens(sample).0);
    }

    /// The same from token numbers; zeros at the end are padding.
    pub fn load_tokens(&mut self, row: usize, numbers: impl Iterator<Item = usize>) {
        let (ids, mut used) = (&mut self.ids[row * self.length..(row + 1) * self.length], 1);
        for (t, (id, number)) in ids.iter_mut().zip(numbers).enumerate() {
            *id = number.min(self.bert.vocabulary - 1);
            used = if number > 0 { t + 1 } else { used };
        }
        self.used[row] = used;
    }

    /// How much of the last layer's token `t` of a sample the head sees.
    fn share(&self, row: usize, t: usize) -> T {
        match self.bert.pool {
            Pool::First => T::of(f64::from(t == 0)),
            Pool::Mean => T::of(if t < self.used[row] { 1.0 / self.used[row] as f64 } else { 0.0 }),
        }
    }

    /// Scores of the rows into `out`, whose rows are `stride` apart.
    pub fn forward(&mut self, rows: usize, w: &[T], out: &mut [T], stride: usize) {
        let (h, i, length, eps) = (self.bert.hidden, self.bert.intermediate, self.length, self.bert.epsilon);
        let tokens = rows * length;
        let p = &self.places;
        let (words, positions, kind) =
            (&w[p.words.clone()], &w[p.positions.clone()], &w[p.types.clone()][..h]);
        for (t, to) in self.back.chunks_exact_mut(h).take(tokens).enumerate() {
            let (word, place) = (&words[self.ids[t] * h..][..h], &positions[t % length * h..][..h]);
            to.iter_mut().enumerate().for_each(|(c, v)| *v = word[c] + place[c] + kind[c]);
        }
        norm(&mut self.embedded, &self.back, tokens, w, &p.norm, eps);
        for l in 0..self.layers.len() {
            let (before, rest) = self.layers.split_at_mut(l);
            let layer = &mut rest[0];
            let x = &before.last().map_or(&self.embedded, |b| &b.norm2).out;
            let at = &p.layers[l];
            linear(&mut layer.qkv, x, tokens, (h, 3 * h), w, &at.qkv);
            attend(layer, &self.bert, rows, length, &self.used);
            linear(&mut self.other, &layer.context, tokens, (h, h), w, &at.mixed);
            self.other.iter_mut().zip(x).take(tokens * h).for_each(|(o, x)| *o += *x);
            norm(&mut layer.norm1, &self.other, tokens, w, &at.norm1, eps);
            linear(&mut layer.up, &layer.norm1.out, tokens, (h, i), w, &at.up);
            layer
                .active
                .iter_mut()
                .zip(&layer.up)
                .take(tokens * i)
                .for_each(|(a, u)| *a = T::of(gelu(u.f64()).0));
            linear(&mut self.other, &layer.active, tokens, (i, h), w, &at.down);
            self.other.iter_mut().zip(&layer.norm1.out).take(tokens * h).for_each(|(o, x)| *o += *x);
            norm(&mut layer.norm2, &self.other, tokens, w, &at.norm2, eps);
        }
        let last = &self.layers.last().map_or(&self.embedded, |l| &l.norm2).out;
        let mut pooled = std::mem::take(&mut self.pooled);
        for (row, to) in pooled.chunks_exact_mut(h).take(rows).enumerate() {
            to.fill(T::ZERO);
            for t in 0..length {
                let share = self.share(row, t);
                if share > T::ZERO {
                    to.iter_mut().zip(&last[(row * length + t) * h..]).for_each(|(o, x)| *o += share * *x);
                }
            }
        }
        self.pooled = pooled;
        product(
            (rows, self.classes, h),
            (out, stride, 1),
            false,
            (&self.pooled, h, 1),
            (&w[p.head.weight.clone()], 1, h),
        );
        let bias = &w[p.head.bias.clone()];
        out.chunks_mut(stride)
            .take(rows)
            .for_each(|row| row.iter_mut().zip(bias).for_each(|(o, b)| *o += *b));
    }

    /// The gradient of Σ (scores ∘ out) by the parameters, added to `g` or written over it.
    pub fn backward(&mut self, rows: usize, w: &[T], out: &[T], stride: usize, g: &mut [T], add: bool) {
        if !add {
            g.fill(T::ZERO);
        }
        let (h, i, length) = (self.bert.hidden, self.bert.intermediate, self.length);
        let tokens = rows * length;
        let p = self.places.clone();
        product(
            (self.classes, h, rows),
            (&mut g[p.head.weight.clone()], h, 1),
            true,
            (out, 1, stride),
            (&self.pooled, h, 1),
        );
        for row in out.chunks(stride).take(rows) {
            g[p.head.bias.clone()].iter_mut().zip(row).for_each(|(g, o)| *g += *o);
        }
        product(
            (rows, h, self.classes),
            (&mut self.pooled, h, 1),
            false,
            (out, stride, 1),
            (&w[p.head.weight.clone()], h, 1),
        );
        for row in 0..rows {
            for t in 0..length {
                let share = self.share(row, t);
                let to = &mut self.back[(row * length + t) * h..][..h];
                to.iter_mut().zip(&self.pooled[row * h..]).for_each(|(b, d)| *b = share * *d);
            }
        }
        for l in (0..self.layers.len()).rev() {
            let (before, rest) = self.layers.split_at_mut(l);
            let layer = &mut rest[0];
            let x = &before.last().map_or(&self.embedded, |b| &b.norm2).out;
            let at = &p.layers[l];
            // Through the second norm; what flows past the feed-forward part stays in `back`.
            norm_back(&mut self.back, &layer.norm2, tokens, w, &at.norm2, g);
            linear_back(&mut self.wide, false, &self.back, &layer.active, tokens, (i, h), w, &at.down, g);
            self.wide
                .iter_mut()
                .zip(&layer.up)
                .take(tokens * i)
                .for_each(|(d, u)| *d = *d * T::of(gelu(u.f64()).1));
            linear_back(&mut self.back, true, &self.wide, &layer.norm1.out, tokens, (h, i), w, &at.up, g);
            norm_back(&mut self.back, &layer.norm1, tokens, w, &at.norm1, g);
            linear_back(&mut self.other, false, &self.back, &layer.context, tokens, (h, h), w, &at.mixed, g);
            attend_back(layer, &self.bert, rows, length, &self.other, &mut self.wide, &mut self.look_back);
            linear_back(&mut self.back, true, &self.wide, x, tokens, (h, 3 * h), w, &at.qkv, g);
        }
        norm_back(&mut self.back, &self.embedded, tokens, w, &p.norm, g);
        for (t, d) in self.back.chunks_exact(h).take(tokens).enumerate() {
            for at in [p.words.start + self.ids[t] * h, p.positions.start + t % length * h, p.types.start] {
                g[at..at + h].iter_mut().zip(d).for_each(|(g, d)| *g += *d);
            }
        }
    }
}

/// x Φ(x) and its derivative.
fn gelu(x: f64) -> (f64, f64) {
    let phi = 0.5 * (1.0 + libm::erf(x * std::f64::consts::FRAC_1_SQRT_2));
    let density = (-0.5 * x * x).exp() * 0.398_942_280_401_432_7;
    (x * phi, phi + x * density)
}

fn linear<T: Real>(
    out: &mut [T],
    x: &[T],
    tokens: usize,
    (from, to): (usize, usize),
    w: &[T],
    at: &LinearAt,
) {
    product((tokens, to, from), (out, to, 1), false, (x, from, 1), (&w[at.weight.clone()], 1, from));
    let bias = &w[at.bias.clone()];
    out.chunks_exact_mut(to)
        .take(tokens)
        .for_each(|row| row.iter_mut().zip(bias).for_each(|(o, b)| *o += *b));
}

/// Gradients of a linear map's parameters from those of its outputs `d`, and of its inputs into `dx` (added
/// or written).
#[allow(clippy::too_many_arguments)]
fn linear_back<T: Real>(
    dx: &mut [T],
    add: bool,
    d: &[T],
    x: &[T],
    tokens: usize,
    (from, to): (usize, usize),
    w: &[T],
    at: &LinearAt,
    g: &mut [T],
) {
    product((to, from, tokens), (&mut g[at.weight.clone()], from, 1), true, (d, 1, to), (x, from, 1));
    let bias = &mut g[at.bias.clone()];
    d.chunks_exact(to).take(tokens).for_each(|row| bias.iter_mut().zip(row).for_each(|(b, d)| *b += *d));
    product((tokens, from, to), (dx, from, 1), add, (d, to, 1), (&w[at.weight.clone()], from, 1));
}

fn norm<T: Real>(to: &mut Normed<T>, from: &[T], tokens: usize, w: &[T], at: &NormAt, eps: f64) {
    let (scale, shift) = (&w[at.scale.clone()], &w[at.shift.clone()]);
    let h = scale.len();
    for t in 0..tokens {
        let x = &from[t * h..(t + 1) * h];
        let mean = x.iter().map(|v| v.f64()).sum::<f64>() / h as f64;
        let variance = x.iter().map(|v| (v.f64() - mean) * (v.f64() - mean)).sum::<f64>() / h as f64;
        let rate = 1.0 / (variance + eps).sqrt();
        to.rate[t] = T::of(rate);
        for c in 0..h {
            let hat = T::of((x[c].f64() - mean) * rate);
            to.hat[t * h + c] = hat;
            to.out[t * h + c] = hat * scale[c] + shift[c];
        }
    }
}

/// Turns the gradient by a norm's outputs into that by its inputs, in place.
fn norm_back<T: Real>(back: &mut [T], of: &Normed<T>, tokens: usize, w: &[T], at: &NormAt, g: &mut [T]) {
    let scale = &w[at.scale.clone()];
    let h = scale.len();
    for t in 0..tokens {
        let (d, hat) = (&mut back[t * h..(t + 1) * h], &of.hat[t * h..(t + 1) * h]);
        g[at.scale.clone()].iter_mut().zip(d.iter().zip(hat)).for_each(|(g, (d, hat))| *g += *d * *hat);
        g[at.shift.clone()].iter_mut().zip(d.iter()).for_each(|(g, d)| *g += *d);
        let (mut sum, mut along) = (0.0, 0.0);
        for c in 0..h {
            d[c] = d[c] * scale[c];
            sum += d[c].f64();
            along += d[c].f64() * hat[c].f64();
        }
        let (sum, along) = (T::of(sum / h as f64), T::of(along / h as f64));
        d.iter_mut().zip(hat).for_each(|(d, hat)| *d = of.rate[t] * (*d - sum - *hat * along));
    }
}

fn attend<T: Real>(layer: &mut Layer<T>, bert: &Bert, rows: usize, length: usize, used: &[usize]) {
    let (h, wide) = (bert.hidden, bert.hidden / bert.heads);
    let scale = 1.0 / (wide as f64).sqrt();
    for (row, used) in used.iter().enumerate().take(rows) {
        for head in 0..bert.heads {
            let at = row * length * 3 * h + head * wide;
            let look = &mut layer.look[(row * bert.heads + head) * length * length..][..length * length];
            let (q, k, v) = (&layer.qkv[at..], &layer.qkv[at + h..], &layer.qkv[at + 2 * h..]);
            product((length, length, wide), (look, length, 1), false, (q, 3 * h, 1), (k, 1, 3 * h));
            for line in look.chunks_exact_mut(length) {
                let (seen, hidden) = line.split_at_mut(*used);
                let top = seen.iter().fold(f64::MIN, |a, b| a.max(b.f64()));
                let sum = seen.iter().map(|v| (scale * (v.f64() - top)).exp()).sum::<f64>();
                seen.iter_mut().for_each(|v| *v = T::of((scale * (v.f64() - top)).exp() / sum));
                hidden.fill(T::ZERO);
            }
            let context = &mut layer.context[row * length * h + head * wide..];
            product((length, wide, length), (context, h, 1), false, (look, length, 1), (v, 3 * h, 1));
        }
    }
}

/// From the gradient by the context to that by queries, keys and values.
fn attend_back<T: Real>(
    layer: &Layer<T>,
    bert: &Bert,
    rows: usize,
    length: usize,
    d: &[T],
    out: &mut [T],
    look_back: &mut [T],
) {
    let (h, wide) = (bert.hidden, bert.hidden / bert.heads);
    let scale = T::of(1.0 / (wide as f64).sqrt());
    for row in 0..rows {
        for head in 0..bert.heads {
            let at = row * length * 3 * h + head * wide;
            let look = &layer.look[(row * bert.heads + head) * length * length..][..length * length];
            let d = &d[row * length * h + head * wide..];
            product(
                (length, wide, length),
                (&mut out[at + 2 * h..], 3 * h, 1),
                false,
                (look, 1, length),
                (d, h, 1),
            );
            product(
                (length, length, wide),
                (look_back, length, 1),
                false,
                (d, h, 1),
                (&layer.qkv[at + 2 * h..], 1, 3 * h),
            );
            for (d, p) in look_back.chunks_exact_mut(length).zip(look.chunks_exact(length)) {
                let along = T::of(d.iter().zip(p).map(|(d, p)| d.f64() * p.f64()).sum::<f64>());
                d.iter_mut().zip(p).for_each(|(d, p)| *d = scale * *p * (*d - along));
            }
            product(
                (length, wide, length),
                (&mut out[at..], 3 * h, 1),
                false,
                (look_back, length, 1),
                (&layer.qkv[at + h..], 3 * h, 1),
            );
            product(
                (length, wide, length),
                (&mut out[at + h..], 3 * h, 1),
                false,
                (look_back, 1, length),
                (&layer.qkv[at..], 3 * h, 1),
            );
        }
    }
}

#[cfg(test)]
mod tests;
