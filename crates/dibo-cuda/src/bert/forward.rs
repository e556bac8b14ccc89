//! A piece of a pass, forward.
use super::workspace::{Buffers, Normed, Workspace};
use super::{DeviceBert, encoder};
use crate::batches::Pass;
use crate::gpu::arguments;
use crate::memory::DeviceMemory;
use crate::products::{Kind, Matrix, Shape};
use dibo::problem::learning::bert::{LayerAt, LinearAt, NormAt};
use std::ffi::c_void;
use std::ops::Range;

/// One piece of a pass: `texts` texts of each agent, from place `from` on.
pub(super) struct Piece<'a> {
    pub of: &'a DeviceBert,
    pub workspace: &'a Workspace,
    pub p: &'a Pass<'a>,
    pub from: usize,
    pub texts: usize,
    pub agents: usize,
}

impl Piece<'_> {
    pub fn buffers(&self) -> &Buffers {
        &self.workspace.buffers
    }

    /// Tokens of an agent.
    pub fn each(&self) -> usize {
        self.texts * self.of.sizes.length
    }

    pub fn tokens(&self) -> usize {
        self.agents * self.each()
    }

    /// Rows of attention.
    pub fn lines(&self) -> usize {
        self.tokens() * self.of.sizes.bert.heads
    }

    /// Width of a head.
    pub fn head_width(&self) -> usize {
        self.of.sizes.bert.hidden / self.of.sizes.bert.heads
    }

    /// The factor of attention's scores.
    pub fn scale(&self) -> f32 {
        1.0 / (self.head_width() as f32).sqrt()
    }

    /// Texts of each agent, the first of them, and places of each agent in the batch.
    pub fn window(&self) -> (i32, i32, i32) {
        (self.texts as i32, self.from as i32, self.p.batch.each as i32)
    }

    pub fn stride(&self) -> i64 {
        self.p.stride as i64
    }

    pub fn kernel(
        &self,
        name: &'static str,
        grid: (usize, usize),
        block: (u32, u32),
        arguments: &mut [*mut c_void],
    ) {
        self.of.kernel(name, grid, block, arguments);
    }

    /// Address of a parameter of the first agent.
    pub fn parameter(&self, range: &Range<usize>) -> u64 {
        self.p.parameters + 4 * range.start as u64
    }

    /// A weight matrix for the products.
    pub fn weight(&self, at: &Range<usize>, line: usize) -> Matrix {
        match self.of.sizes.kind {
            Kind::F32 => Matrix::new(self.parameter(at), Kind::F32, line, self.p.stride),
            Kind::Bf16 => {
                let (all, copy) =
                    (encoder(&self.of.places), self.of.narrowed.as_ref().map_or(0, DeviceMemory::at));
                Matrix::new(copy + 2 * (at.start - all.start) as u64, Kind::Bf16, line, all.len())
            }
        }
    }

    /// One row a token, agent by agent.
    pub fn rows(&self, at: u64, line: usize) -> Matrix {
        Matrix::new(at, self.of.sizes.kind, line, self.each() * line)
    }

    /// A text's and head's part of queries, keys or values, by a table.
    pub fn part(&self, table: u64) -> Matrix {
        Matrix::new(table, self.of.sizes.kind, 3 * self.of.sizes.bert.hidden, 0)
    }

    /// A text's and head's square of attention, by a table.
    pub fn look(&self, table: u64) -> Matrix {
        Matrix::new(table, self.of.sizes.kind, self.of.sizes.length, 0)
    }

    pub fn product(&self, shape: Shape, d: Matrix, a: Matrix, b: Matrix, beta: f32, c: Matrix) {
        self.of.gpu.product(shape, d, a, b, beta, c);
    }

    /// A product for each text and head.
    pub fn many(&self, shape: (usize, usize, usize), alpha: f32, d: Matrix, a: Matrix, b: Matrix) {
        let count = self.agents * self.texts * self.of.sizes.bert.heads;
        self.of.gpu.products_at(shape, alpha, d, a, b, count);
    }

    /// Computes the losses of the piece's texts.
    pub fn run(&self) {
        let mut x = self.embed();
        for (layer, at) in self.of.places.layers.iter().enumerate() {
            x = self.layer(layer, at, x);
        }
        self.head(x);
    }

    fn embed(&self) -> u64 {
        let (places, buffers) = (&self.of.places, self.buffers());
        let Normed { hat, rate, out } = buffers.embedded;
        let (beside, data, batch) = (buffers.residuals[0], self.p.samples.bytes.at(), self.p.batch.table());
        let (words, positions, types) =
            (self.parameter(&places.words), self.parameter(&places.positions), self.parameter(&places.types));
        let (scale, shift) = (self.parameter(&places.norm.scale), self.parameter(&places.norm.shift));
        let (stride, eps, (c, s0, s), total) =
            (self.stride(), self.of.sizes.bert.epsilon as f32, self.window(), self.tokens() as i32);
        self.kernel(
            "embed",
            (self.tokens().div_ceil(4), 1),
            (128, 1),
            arguments![
                out, beside, hat, rate, data, batch, words, positions, types, scale, shift, stride, eps, c,
                s0, s, total
            ],
        );
        out
    }

    /// One layer; `x` and what it gives are addresses of its inputs and outputs.
    fn layer(&self, layer: usize, at: &LayerAt, x: u64) -> u64 {
        let (buffers, kind) = (self.buffers(), self.of.sizes.kind);
        let (h, i) = (self.of.sizes.bert.hidden, self.of.sizes.bert.intermediate);
        let [first, second] = buffers.residuals;
        // What flows around a half of the layer: its inputs, with 32 bits.
        let around = |x: u64, wide: u64| if kind == Kind::Bf16 { wide } else { x };
        self.attention(layer, at, x);
        let (layer, other) = (&buffers.layers[layer], buffers.other);
        self.linear(other, Kind::F32, layer.context, (h, h), &at.mixed);
        self.norm((layer.norm1, second), other, &at.mixed.bias, around(x, first), &at.norm1);
        self.linear(layer.up, kind, layer.norm1.out, (h, i), &at.up);
        let (up, active, bias) = (layer.up, layer.active, self.parameter(&at.up.bias));
        let (stride, each) = (self.stride(), self.each() as i32);
        self.kernel("bias_gelu", (self.tokens(), 1), (256, 1), arguments![up, active, bias, stride, each]);
        self.linear(other, Kind::F32, layer.active, (i, h), &at.down);
        self.norm((layer.norm2, first), other, &at.down.bias, around(layer.norm1.out, second), &at.norm2);
        layer.norm2.out
    }

    fn attention(&self, layer: usize, at: &LayerAt, x: u64) {
        let (workspace, kind, length) = (self.workspace, self.of.sizes.kind, self.of.sizes.length);
        let (h, width) = (self.of.sizes.bert.hidden, self.head_width());
        let (layer, t) = (&workspace.buffers.layers[layer], &workspace.layers[layer]);
        let (qkv, bias, columns) = (layer.qkv, self.parameter(&at.qkv.bias), 3 * h as i32);
        let (stride, each) = (self.stride(), self.each() as i32);
        self.linear(qkv, kind, x, (h, 3 * h), &at.qkv);
        self.kernel("add_bias", (self.tokens(), 1), (128, 1), arguments![qkv, bias, stride, columns, each]);
        let scores = Matrix::new(workspace.shared.scores, Kind::F32, length, 0);
        self.many((length, length, width), self.scale(), scores, self.part(t.q), self.part(t.k).transposed());
        let (shares, from, batch) = (layer.look, workspace.buffers.scores, self.p.batch.table());
        let (lengths, (c, s0, s), lines) = (self.p.samples.lengths.at(), self.window(), self.lines() as i32);
        self.kernel(
            "softmax",
            (self.lines().div_ceil(4), 1),
            (128, 1),
            arguments![shares, from, batch, lengths, c, s0, s, lines],
        );
        let context = Matrix::new(t.context, kind, h, 0);
        self.many((length, width, length), 1.0, context, self.look(t.look), self.part(t.v));
    }

    /// Scores and losses from the last layer's outputs.
    fn head(&self, x: u64) {
        let (buffers, head, texts) = (self.buffers(), &self.of.places.head, self.agents * self.texts);
        let (pooled, slopes, weights) = (buffers.pooled, buffers.slopes, self.p.batch.weights());
        let (losses, right) = (self.p.batch.losses(self.p.losses), self.p.batch.right());
        let (batch, lengths) = (self.p.batch.table(), self.p.samples.lengths.at());
        let (w, bias, count) = (self.parameter(&head.weight), self.parameter(&head.bias), texts as i32);
        let ((c, s0, s), stride) = (self.window(), self.stride());
        self.kernel("pool", (texts, 1), (128, 1), arguments![pooled, x, batch, lengths, c, s0, s]);
        if let Some(decide) = self.p.decide {
            let grid = (texts.div_ceil(4), 1);
            self.kernel("score", grid, (128, 1), arguments![slopes, pooled, w, bias, stride, c, count]);
            return self.workspace.on_host(slopes, texts * self.of.sizes.classes, |scores| {
                decide(self.from, self.texts, scores);
            });
        }
        self.kernel(
            "head",
            (texts.div_ceil(4), 1),
            (128, 1),
            arguments![slopes, losses, right, pooled, w, bias, stride, batch, weights, c, s0, s, count],
        );
    }

    /// to = x Wᵀ, with numbers of this kind
    fn linear(&self, to: u64, kind: Kind, x: u64, (from, wide): (usize, usize), at: &LinearAt) {
        let d = Matrix { kind, ..self.rows(to, wide) };
        let weight = self.weight(&at.weight, from).transposed();
        self.product((self.each(), wide, from, self.agents), d, self.rows(x, from), weight, 0.0, d);
    }

    fn norm(&self, (to, beside): (Normed, u64), x: u64, bias: &Range<usize>, residual: u64, at: &NormAt) {
        let (out, hat, rate, bias) = (to.out, to.hat, to.rate, self.parameter(bias));
        let (scale, shift, stride) = (self.parameter(&at.scale), self.parameter(&at.shift), self.stride());
        let (eps, each, total) =
            (self.of.sizes.bert.epsilon as f32, self.each() as i32, self.tokens() as i32);
        self.kernel(
            "layer_norm",
            (self.tokens().div_ceil(4), 1),
            (128, 1),
            arguments![out, beside, hat, rate, x, bias, residual, scale, shift, stride, eps, each, total],
        );
    }
}
