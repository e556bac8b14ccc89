//! A piece of a pass, on the way back.
use super::forward::Piece;
use super::workspace::Normed;
use crate::batches::Gradients;
use crate::gpu::arguments;
use crate::products::{Kind, Matrix};
use dibo::problem::learning::bert::{LayerAt, LinearAt, NormAt};
use std::ops::Range;

/// The gradients of a piece. The first piece of a pass writes them, the others add theirs.
pub(super) struct Back<'a> {
    pub piece: &'a Piece<'a>,
    pub gradients: Gradients,
}

impl Back<'_> {
    pub fn run(&self) {
        self.begin();
        self.head();
        for (layer, at) in self.piece.of.places.layers.iter().enumerate().rev() {
            self.layer(layer, at);
        }
        self.embed();
    }

    /// Address of a parameter's gradient of the first agent.
    fn gradient(&self, range: &Range<usize>) -> u64 {
        self.gradients.at + 4 * range.start as u64
    }

    /// Whether something is there already that gradients are added to.
    fn again(&self) -> bool {
        self.piece.from > 0 || self.gradients.weight_decay != 0.0
    }

    /// What gradients are added to: the regulariser's, or zeros for the embeddings, most of which get none.
    ///
    /// It is not left to the products, which could add a multiple of the parameters: with 16 bits, cuBLASLt's
    /// then are not numbers any more after some hundred iterations (CUDA 13.0 on an H200).
    fn begin(&self) {
        let (piece, places) = (self.piece, &self.piece.of.places);
        if piece.from > 0 {
            return;
        }
        let (stride, weight_decay) = (piece.stride(), self.gradients.weight_decay);
        let range = 0..if self.again() { places.width } else { places.types.end };
        let (g, w, count) = (self.gradient(&range), piece.parameter(&range), range.len() as i64);
        let grid = (piece.of.gpu.blocks(range.len() / 4, 256) as usize, piece.agents);
        piece.kernel("begin_range", grid, (256, 1), arguments![g, w, stride, count, weight_decay]);
    }

    /// Gradients of the head, and of the last layer's outputs.
    fn head(&self) {
        let (piece, head, buffers) = (self.piece, &self.piece.of.places.head, self.piece.buffers());
        let (pooled, slopes, back, stride) = (buffers.pooled, buffers.slopes, buffers.back, piece.stride());
        let w = piece.parameter(&head.weight);
        let (g, g_bias) = (self.gradient(&head.weight), self.gradient(&head.bias));
        let (add, (c, s0, s)) = (i32::from(self.again()), piece.window());
        piece.kernel(
            "head_columns",
            (piece.of.sizes.bert.hidden.div_ceil(128), piece.agents),
            (128, 1),
            arguments![g, g_bias, slopes, pooled, stride, add, c],
        );
        let (batch, lengths) = (piece.p.batch.table(), piece.p.samples.lengths.at());
        piece.kernel(
            "unpool",
            (piece.tokens(), 1),
            (128, 1),
            arguments![back, slopes, w, stride, batch, lengths, c, s0, s],
        );
    }

    /// Gradients of a layer's parameters and inputs from those of its outputs.
    fn layer(&self, layer: usize, at: &LayerAt) {
        let (piece, buffers) = (self.piece, self.piece.buffers());
        let (h, i) = (piece.of.sizes.bert.hidden, piece.of.sizes.bert.intermediate);
        let (of, back, narrow) = (&buffers.layers[layer], buffers.back, buffers.narrow_back);
        let x = layer.checked_sub(1).map_or(buffers.embedded.out, |l| buffers.layers[l].norm2.out);
        self.norm(of.norm2, &at.norm2);
        self.linear(buffers.wide, false, narrow, of.active, (i, h), &at.down);
        let (to, up, numbers) = (buffers.wide, of.up, piece.tokens() * i);
        let (blocks, numbers) = (piece.of.gpu.blocks(numbers / 4, 256) as usize, numbers as i64);
        piece.kernel("gelu_back", (blocks, 1), (256, 1), arguments![to, up, numbers]);
        self.linear(back, true, buffers.wide, of.norm1.out, (h, i), &at.up);
        self.norm(of.norm1, &at.norm1);
        self.linear(buffers.other, false, narrow, of.context, (h, h), &at.mixed);
        self.attention(layer);
        self.linear(back, true, buffers.wide, x, (h, 3 * h), &at.qkv);
    }

    /// Gradients of queries, keys and values from those of the context.
    fn attention(&self, layer: usize) {
        let (piece, workspace) = (self.piece, self.piece.workspace);
        let (length, width, kind) = (piece.of.sizes.length, piece.head_width(), piece.of.sizes.kind);
        let (t, all) = (&workspace.layers[layer], &workspace.shared);
        let context_back = Matrix::new(all.context_back, kind, piece.of.sizes.bert.hidden, 0);
        let scores = Matrix::new(all.scores, Kind::F32, length, 0);
        let (by_token, by_pair) = ((length, width, length), (length, length, width));
        let (look, look_back) = (piece.look(t.look), piece.look(all.look_back));
        piece.many(by_token, 1.0, piece.part(all.v_back), look.transposed(), context_back);
        piece.many(by_pair, 1.0, scores, context_back, piece.part(t.v).transposed());
        let buffers = &workspace.buffers;
        let (to, from, shares) = (buffers.look_back, buffers.scores, buffers.layers[layer].look);
        let (scale, lines) = (piece.scale(), piece.lines() as i32);
        piece.kernel(
            "softmax_back",
            (piece.lines().div_ceil(4), 1),
            (128, 1),
            arguments![to, from, shares, scale, lines],
        );
        piece.many(by_token, 1.0, piece.part(all.q_back), look_back, piece.part(t.k));
        piece.many(by_token, 1.0, piece.part(all.k_back), look_back.transposed(), piece.part(t.q));
    }

    /// Gradients of words, positions and types.
    fn embed(&self) {
        let (piece, places, back) = (self.piece, &self.piece.of.places, self.piece.buffers().back);
        let (stride, h, agents) = (piece.stride(), piece.of.sizes.bert.hidden, piece.agents);
        self.norm(piece.buffers().embedded, &places.norm);
        let g = self.gradient(&places.words);
        let (data, batch, (c, s0, s)) = (piece.p.samples.bytes.at(), piece.p.batch.table(), piece.window());
        piece.kernel(
            "word_columns",
            (piece.each(), agents),
            (128, 1),
            arguments![g, back, data, batch, stride, c, s0, s],
        );
        let g_positions = self.gradient(&places.positions);
        let grid = (piece.of.sizes.length, agents);
        piece.kernel("position_columns", grid, (128, 1), arguments![g_positions, back, stride, c]);
        // Always added: something is there in any case.
        self.columns("back_columns", back, h, &places.types, true);
    }

    /// Gradients of a linear map from those of its outputs `d`; of its inputs into `dx`, added or written.
    /// Inputs that the residual goes around get theirs added, with 32 bits.
    fn linear(&self, dx: u64, add: bool, d: u64, x: u64, (from, wide): (usize, usize), at: &LinearAt) {
        let (piece, stride, agents) = (self.piece, self.piece.p.stride, self.piece.agents);
        let to = Matrix::new(self.gradient(&at.weight), Kind::F32, from, stride);
        let (dy, inputs) = (piece.rows(d, wide), piece.rows(x, from));
        let beta = f32::from(u8::from(self.again()));
        piece.product((wide, from, piece.each(), agents), to, dy.transposed(), inputs, beta, to);
        if d == piece.buffers().narrow_back {
            self.columns("back_columns", piece.buffers().back, wide, &at.bias, self.again());
        } else {
            self.columns("bias_columns", d, wide, &at.bias, self.again());
        }
        let kind = if add { Kind::F32 } else { piece.of.sizes.kind };
        let back = Matrix { kind, ..piece.rows(dx, from) };
        let weight = piece.weight(&at.weight, from);
        piece.product((piece.each(), from, wide, agents), back, dy, weight, f32::from(u8::from(add)), back);
    }

    /// The gradient of a parameter that every token has added: the sum over an agent's tokens.
    fn columns(&self, kernel: &'static str, d: u64, wide: usize, at: &Range<usize>, add: bool) {
        let (piece, g, add) = (self.piece, self.gradient(at), i32::from(add));
        let (stride, columns, each) = (piece.stride(), wide as i32, piece.each() as i32);
        let grid = (wide.div_ceil(32), piece.agents);
        piece.kernel(kernel, grid, (32, 32), arguments![g, d, stride, add, columns, each]);
    }

    fn norm(&self, of: Normed, at: &NormAt) {
        let (piece, buffers) = (self.piece, self.piece.buffers());
        let (back, copy, hat, rate) = (buffers.back, buffers.narrow_back, of.hat, of.rate);
        let (stride, each, total) = (piece.stride(), piece.each() as i32, piece.tokens() as i32);
        let scale = piece.parameter(&at.scale);
        let (g_scale, g_shift) = (self.gradient(&at.scale), self.gradient(&at.shift));
        let add = i32::from(self.again());
        piece.kernel(
            "norm_columns",
            (piece.of.sizes.bert.hidden.div_ceil(32), piece.agents),
            (32, 32),
            arguments![g_scale, g_shift, back, hat, stride, add, each],
        );
        piece.kernel(
            "norm_back",
            (piece.tokens().div_ceil(4), 1),
            (128, 1),
            arguments![back, copy, hat, rate, scale, stride, each, total],
        );
    }
}
