//! BERT on the device: one matrix product for all agents at a time, texts of each agent in pieces that fit
//! the room for activations.
//!
//! Parameters and gradients have 32 bits. Activations have 32 (products in TF32) or 16 (bf16, with a copy of
//! the parameters for the products); what flows around the layers (residuals and their gradients) has 32 in
//! any case.
use crate::arguments;
use crate::batches::Pass;
use crate::gpu::{Gpu, Memory, OrFail};
use crate::products::{Kind, Matrix, Shape};
use cudarc::driver::CudaFunction;
use dibo::problem::learning::bert::{Bert, LinearAt, NormAt, Places, Pool};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

const SOURCE: &str = concat!(include_str!("kernels/common.cu"), include_str!("kernels/bert.cu"));

pub(crate) fn options(bert: &Bert, classes: usize, length: usize, kind: Kind) -> Vec<String> {
    let mean = i32::from(bert.pool == Pool::Mean);
    let mut options = vec![
        format!("-DH={}", bert.hidden),
        format!("-DI={}", bert.intermediate),
        format!("-DL={length}"),
        format!("-DHEADS={}", bert.heads),
        format!("-DCLASSES={classes}"),
        format!("-DMEAN={mean}"),
    ];
    if kind == Kind::Bf16 {
        options.push("-DBF16".into());
    }
    options
}

/// Every kernel for some sizes, to be compiled without a GPU.
pub(crate) fn sources() -> Vec<(&'static str, Vec<String>)> {
    let base = Bert {
        vocabulary: 30522,
        positions: 512,
        types: 2,
        hidden: 768,
        layers: 1,
        heads: 12,
        intermediate: 3072,
        epsilon: 1e-12,
        pool: Pool::First,
    };
    let tiny = Bert { hidden: 8, heads: 2, intermediate: 12, pool: Pool::Mean, ..base };
    [(base, 128), (tiny, 7)]
        .into_iter()
        .flat_map(|(b, l)| [Kind::F32, Kind::Bf16].map(|k| (SOURCE, options(&b, 2, l, k))))
        .collect()
}

/// Where a LayerNorm's results lie.
#[derive(Clone, Copy)]
struct Normed {
    hat: u64,
    rate: u64,
    out: u64,
}

/// Where one layer's activations lie, and the tables with the places of each text's and head's matrices.
struct Layer {
    qkv: u64,
    look: u64,
    context: u64,
    norm1: Normed,
    up: u64,
    active: u64,
    norm2: Normed,
    tables: Tables,
}

#[derive(Clone, Copy, Default)]
struct Tables {
    q: u64,
    k: u64,
    v: u64,
    look: u64,
    context: u64,
}

/// Room for the activations of so many texts.
struct Room {
    texts: usize,
    _memory: Memory,
    _tables: Memory,
    embedded: Normed,
    layers: Vec<Layer>,
    /// The gradient that flows back, with 32 bits, and as the products take it.
    back: u64,
    narrow_back: u64,
    /// What flows around a layer, and around the half of one that comes next, with 32 bits.
    residuals: [u64; 2],
    wide: u64,
    other: u64,
    scores: u64,
    look_back: u64,
    pooled: u64,
    slopes: u64,
    /// Tables of scores, gradient of attention, gradient of context, and gradients of queries, keys and
    /// values.
    shared: [u64; 6],
}

/// A BERT on a GPU.
pub(crate) struct DeviceBert {
    gpu: Arc<Gpu>,
    bert: Bert,
    places: Places,
    classes: usize,
    length: usize,
    kind: Kind,
    functions: HashMap<&'static str, CudaFunction>,
    room: Option<Room>,
    narrowed: Option<Memory>,
    limit: usize,
}

const KERNELS: [&str; 19] = [
    "embed",
    "layer_norm",
    "norm_back",
    "bias_columns",
    "back_columns",
    "norm_columns",
    "add_bias",
    "bias_gelu",
    "gelu_back",
    "softmax",
    "softmax_back",
    "pool",
    "head",
    "head_columns",
    "unpool",
    "begin_range",
    "word_columns",
    "position_columns",
    "narrow_range",
];

impl DeviceBert {
    /// `limit`: bytes of activations at most, unless one text of each agent needs more.
    pub fn new(
        gpu: &Arc<Gpu>,
        bert: Bert,
        classes: usize,
        length: usize,
        kind: Kind,
        limit: usize,
    ) -> Result<Self, String> {
        let module = gpu.module(SOURCE, options(&bert, classes, length, kind))?;
        let mut functions = HashMap::new();
        for name in KERNELS {
            functions.insert(name, module.load_function(name).map_err(|e| format!("kernel {name}: {e}"))?);
        }
        let places = bert.places(classes);
        Ok(DeviceBert {
            gpu: gpu.clone(),
            bert,
            places,
            classes,
            length,
            kind,
            functions,
            room: None,
            narrowed: None,
            limit,
        })
    }

    /// Bytes of activations for one text.
    pub fn text_bytes(bert: &Bert, classes: usize, length: usize, kind: Kind) -> usize {
        let (h, i, looks, e) = (bert.hidden, bert.intermediate, bert.heads * length, kind.bytes());
        let layer = e * (6 * h + 2 * i + looks) + 4 * 2 * (h + 1);
        let shared = e * (h + i.max(3 * h) + looks)
            + 4 * (3 * h + 1 + looks)
            + if kind == Kind::Bf16 { (8 + e) * h } else { 0 };
        length * (bert.layers * layer + shared) + 4 * (h + classes)
    }

    /// Texts of each agent that are computed at once, of `used`, if one takes `text` bytes and all together
    /// `limit` at most.
    pub fn piece_of(text: usize, limit: usize, agents: usize, used: usize) -> usize {
        let most = limit / text / agents;
        let pieces = used.div_ceil(most.clamp(1, used));
        used.div_ceil(pieces)
    }

    fn piece(&self, agents: usize, used: usize) -> usize {
        Self::piece_of(
            Self::text_bytes(&self.bert, self.classes, self.length, self.kind),
            self.limit,
            agents,
            used,
        )
    }

    /// Texts that there is room for.
    pub fn texts(&self) -> usize {
        self.room.as_ref().map_or(32, |r| r.texts)
    }

    fn make_room(&mut self, texts: usize) {
        if self.room.as_ref().is_some_and(|r| r.texts >= texts) {
            return;
        }
        self.room = None;
        let (h, i, e, length, heads) =
            (self.bert.hidden, self.bert.intermediate, self.kind.bytes(), self.length, self.bert.heads);
        let tokens = texts * length;
        // First counted, then given out.
        let mut sizes = Vec::new();
        let mut next = 0u64;
        let mut take = |bytes: usize| {
            let at = next;
            next += bytes.next_multiple_of(256) as u64;
            sizes.push(bytes);
            at
        };
        let normed = |take: &mut dyn FnMut(usize) -> u64| Normed {
            hat: take(tokens * h * 4),
            rate: take(tokens * 4),
            out: take(tokens * h * e),
        };
        let embedded = normed(&mut take);
        let layers: Vec<Layer> = (0..self.bert.layers)
            .map(|_| Layer {
                qkv: take(tokens * 3 * h * e),
                look: take(tokens * heads * length * e),
                context: take(tokens * h * e),
                norm1: normed(&mut take),
                up: take(tokens * i * e),
                active: take(tokens * i * e),
                norm2: normed(&mut take),
                tables: Tables::default(),
            })
            .collect();
        let (back, other) = (take(tokens * h * 4), take(tokens * h * 4));
        let narrow = self.kind == Kind::Bf16;
        let mut beside = |bytes: usize| if narrow { take(tokens * h * bytes) } else { 0 };
        let (narrow_back, residuals) = (if narrow { beside(e) } else { back }, [beside(4), beside(4)]);
        let (wide, scores) = (take(tokens * i.max(3 * h) * e), take(tokens * heads * length * 4));
        let (look_back, pooled, slopes) =
            (take(tokens * heads * length * e), take(texts * h * 4), take(texts * self.classes * 4));
        let memory = Memory::unset(&self.gpu, next as usize);
        let base = memory.at();
        let shift = |n: Normed| Normed { hat: base + n.hat, rate: base + n.rate, out: base + n.out };
        let count = texts * heads;
        let tables = Memory::unset(&self.gpu, (layers.len() * 5 + 6) * count * 8);
        let mut at = 0;
        // The place of (text, head) in a matrix of `line` numbers a token, or in one of attention.
        let mut table = |start: u64, line: Option<usize>, bytes: usize| {
            let step = |q: usize, head: usize| match line {
                Some(line) => q * length * line + head * (h / heads),
                None => (q * heads + head) * length * length,
            };
            let list: Vec<u64> =
                (0..count).map(|c| start + (step(c / heads, c % heads) * bytes) as u64).collect();
            tables.write(at, &list);
            at += count * 8;
            tables.at() + (at - count * 8) as u64
        };
        let far = |n: usize| (n * h * e) as u64;
        let layers = layers.into_iter().map(|l| {
            let (qkv, look, context) = (base + l.qkv, base + l.look, base + l.context);
            let tables = Tables {
                q: table(qkv, Some(3 * h), e),
                k: table(qkv + far(1), Some(3 * h), e),
                v: table(qkv + far(2), Some(3 * h), e),
                look: table(look, None, e),
                context: table(context, Some(h), e),
            };
            let (up, active) = (base + l.up, base + l.active);
            Layer { qkv, look, context, norm1: shift(l.norm1), up, active, norm2: shift(l.norm2), tables }
        });
        let layers = layers.collect();
        let (back, other, wide, scores, look_back) =
            (base + back, base + other, base + wide, base + scores, base + look_back);
        let (narrow_back, residuals) = (base + narrow_back, residuals.map(|r| base + r));
        let shared = [
            table(scores, None, 4),
            table(look_back, None, e),
            table(other, Some(h), e),
            table(wide, Some(3 * h), e),
            table(wide + far(1), Some(3 * h), e),
            table(wide + far(2), Some(3 * h), e),
        ];
        self.room = Some(Room {
            texts,
            embedded: shift(embedded),
            layers,
            back,
            narrow_back,
            residuals,
            wide,
            other,
            scores,
            look_back,
            pooled: base + pooled,
            slopes: base + slopes,
            shared,
            _memory: memory,
            _tables: tables,
        });
    }

    /// The range of parameters that the products use.
    fn encoder(&self) -> Range<usize> {
        self.places.norm.shift.end..self.places.head.weight.start
    }

    pub fn pass(&mut self, p: &Pass<'_>) {
        let agents = p.batch.agents;
        let piece = self.piece(agents, p.used);
        self.make_room(agents * piece);
        if self.kind == Kind::Bf16 {
            self.narrow(p, agents);
        }
        for from in (0..p.used).step_by(piece) {
            Work {
                of: self,
                room: self.room.as_ref().expect("made above"),
                p,
                from,
                texts: piece.min(p.used - from),
                agents,
            }
            .run();
        }
    }

    /// Copies the encoder's parameters as 16 bits.
    fn narrow(&mut self, p: &Pass<'_>, agents: usize) {
        let range = self.encoder();
        let bytes = 2 * agents * range.len();
        if self.narrowed.as_ref().is_none_or(|m| m.bytes() < bytes) {
            self.narrowed = None;
            self.narrowed = Some(Memory::unset(&self.gpu, bytes));
        }
        let to = self.narrowed.as_ref().map_or(0, Memory::at);
        let (w, stride, count) = (p.parameters + 4 * range.start as u64, p.stride as i64, range.len() as i64);
        let grid = (self.gpu.blocks(range.len() / 4, 256), agents as u32, 1);
        self.gpu.launch(
            &self.functions["narrow_range"],
            grid,
            (256, 1),
            arguments![to, w, stride, count],
            "narrow_range",
        );
    }
}

/// One piece of a pass: `texts` texts of each agent, from place `from` on.
struct Work<'a> {
    of: &'a DeviceBert,
    room: &'a Room,
    p: &'a Pass<'a>,
    from: usize,
    texts: usize,
    agents: usize,
}

impl Work<'_> {
    /// Tokens of an agent.
    fn each(&self) -> usize {
        self.texts * self.of.length
    }

    fn tokens(&self) -> usize {
        self.agents * self.each()
    }

    fn kernel(
        &self,
        name: &'static str,
        grid: (usize, usize),
        block: (u32, u32),
        arguments: &mut [*mut std::ffi::c_void],
    ) {
        self.of.gpu.launch(
            &self.of.functions[name],
            (grid.0 as u32, grid.1 as u32, 1),
            block,
            arguments,
            name,
        );
    }

    /// Address of a parameter of the first agent.
    fn parameter(&self, range: &Range<usize>) -> u64 {
        self.p.parameters + 4 * range.start as u64
    }

    fn gradient(&self, range: &Range<usize>) -> (u64, f32) {
        let (g, shrink) = self.p.gradients.expect("only on the way back");
        (g + 4 * range.start as u64, shrink)
    }

    /// A weight matrix for the products.
    fn weight(&self, at: &Range<usize>, line: usize) -> Matrix {
        match self.of.kind {
            Kind::F32 => Matrix::new(self.parameter(at), Kind::F32, line, self.p.stride),
            Kind::Bf16 => {
                let (all, copy) = (self.of.encoder(), self.of.narrowed.as_ref().expect("made before").at());
                Matrix::new(copy + 2 * (at.start - all.start) as u64, Kind::Bf16, line, all.len())
            }
        }
    }

    fn rows(&self, at: u64, line: usize) -> Matrix {
        Matrix::new(at, self.of.kind, line, self.each() * line)
    }

    fn product(&self, shape: Shape, d: Matrix, a: Matrix, b: Matrix, beta: f32, c: Matrix) {
        self.of.gpu.products().product(shape, d, a, b, beta, c).or_fail("a product");
    }

    /// to = x Wᵀ, with numbers of this kind
    fn linear(&self, to: u64, kind: Kind, x: u64, (from, wide): (usize, usize), at: &LinearAt) {
        let d = Matrix { kind, ..self.rows(to, wide) };
        self.product(
            (self.each(), wide, from, self.agents),
            d,
            self.rows(x, from),
            self.weight(&at.weight, from).turned(),
            0.0,
            d,
        );
    }

    /// Gradients of a linear map from those of its outputs `d`; of its inputs into `dx`, added or written.
    /// Inputs that the residual goes around get theirs added, with 32 bits.
    fn linear_back(&self, dx: u64, add: bool, d: u64, x: u64, (from, wide): (usize, usize), at: &LinearAt) {
        let ((g, shrink), agents) = (self.gradient(&at.weight), self.agents);
        let (again, stride) = (self.from > 0, self.p.stride);
        let to = Matrix::new(g, Kind::F32, from, stride);
        let (beta, c) = if again {
            (1.0, to)
        } else {
            (shrink, Matrix::new(self.parameter(&at.weight), Kind::F32, from, stride))
        };
        // With beta = 0 nothing is read.
        let c = if beta == 0.0 { to } else { c };
        self.product(
            (wide, from, self.each(), agents),
            to,
            self.rows(d, wide).turned(),
            self.rows(x, from),
            beta,
            c,
        );
        match d == self.room.narrow_back {
            true => self.bias_back("back_columns", self.room.back, wide, &at.bias),
            false => self.bias_back("bias_columns", d, wide, &at.bias),
        }
        let back = if add { Matrix { kind: Kind::F32, ..self.rows(dx, from) } } else { self.rows(dx, from) };
        self.product(
            (self.each(), from, wide, agents),
            back,
            self.rows(d, wide),
            self.weight(&at.weight, from),
            f32::from(u8::from(add)),
            back,
        );
    }

    fn bias_back(&self, kernel: &'static str, d: u64, wide: usize, at: &Range<usize>) {
        let (g, shrink) = self.gradient(at);
        let (w, stride, add, columns, each) = (
            self.parameter(at),
            self.p.stride as i64,
            i32::from(self.from > 0),
            wide as i32,
            self.each() as i32,
        );
        self.kernel(
            kernel,
            (wide.div_ceil(32), self.agents),
            (32, 32),
            arguments![g, w, d, stride, shrink, add, columns, each],
        );
    }

    fn norm(&self, (to, beside): (Normed, u64), x: u64, bias: &Range<usize>, residual: u64, at: &NormAt) {
        let (out, hat, rate, bias) = (to.out, to.hat, to.rate, self.parameter(bias));
        let (scale, shift, stride, eps) = (
            self.parameter(&at.scale),
            self.parameter(&at.shift),
            self.p.stride as i64,
            self.of.bert.epsilon as f32,
        );
        let (each, total) = (self.each() as i32, self.tokens() as i32);
        let grid = (self.tokens().div_ceil(4), 1);
        self.kernel(
            "layer_norm",
            grid,
            (128, 1),
            arguments![out, beside, hat, rate, x, bias, residual, scale, shift, stride, eps, each, total],
        );
    }

    fn norm_back(&self, of: Normed, at: &NormAt) {
        let (back, copy, hat, rate) = (self.room.back, self.room.narrow_back, of.hat, of.rate);
        let (stride, each) = (self.p.stride as i64, self.each() as i32);
        let (scale, shift, add) =
            (self.parameter(&at.scale), self.parameter(&at.shift), i32::from(self.from > 0));
        let ((g_scale, shrink), (g_shift, _)) = (self.gradient(&at.scale), self.gradient(&at.shift));
        let grid = (self.of.bert.hidden.div_ceil(32), self.agents);
        self.kernel(
            "norm_columns",
            grid,
            (32, 32),
            arguments![g_scale, g_shift, scale, shift, back, hat, stride, shrink, add, each],
        );
        let total = self.tokens() as i32;
        self.kernel(
            "norm_back",
            (self.tokens().div_ceil(4), 1),
            (128, 1),
            arguments![back, copy, hat, rate, scale, stride, each, total],
        );
    }

    fn many(&self, shape: (usize, usize, usize), alpha: f32, d: Matrix, a: Matrix, b: Matrix) {
        let count = self.agents * self.texts * self.of.bert.heads;
        self.of.gpu.products().many(shape, alpha, d, a, b, count).or_fail("attention's products");
    }

    fn run(&self) {
        let (of, room, bert, places) = (self.of, self.room, &self.of.bert, &self.of.places);
        let (h, i, length, kind) = (bert.hidden, bert.intermediate, of.length, of.kind);
        let wide = h / bert.heads;
        let scaled = 1.0 / (wide as f32).sqrt();
        let (texts, tokens) = (self.agents * self.texts, self.tokens());
        let (c, s0, s) = (self.texts as i32, self.from as i32, self.p.batch.each as i32);
        let (data, lengths, batch, stride) = (
            self.p.samples.bytes.at(),
            self.p.samples.lengths.at(),
            self.p.batch.table(),
            self.p.stride as i64,
        );
        let (each, total, eps) = (self.each() as i32, tokens as i32, bert.epsilon as f32);
        let lines = (texts * bert.heads * length) as i32;
        let look = |at: u64| Matrix::new(at, kind, length, 0);
        let part = |at: u64| Matrix::new(at, kind, 3 * h, 0);
        let Normed { hat, rate, out } = room.embedded;
        let (words, positions, types) =
            (self.parameter(&places.words), self.parameter(&places.positions), self.parameter(&places.types));
        let (scale, shift) = (self.parameter(&places.norm.scale), self.parameter(&places.norm.shift));
        let four = (tokens.div_ceil(4), 1);
        // What flows around a layer, by its inputs and by what its first norm gives.
        let around = |x: u64, which: usize| if kind == Kind::Bf16 { room.residuals[which] } else { x };
        let beside = room.residuals[0];
        self.kernel(
            "embed",
            four,
            (128, 1),
            arguments![
                out, beside, hat, rate, data, batch, words, positions, types, scale, shift, stride, eps, c,
                s0, s, total
            ],
        );
        let mut x = out;
        for (layer, at) in room.layers.iter().zip(&places.layers) {
            let t = &layer.tables;
            let (qkv, bias, columns) = (layer.qkv, self.parameter(&at.qkv.bias), 3 * h as i32);
            self.linear(qkv, kind, x, (h, 3 * h), &at.qkv);
            self.kernel("add_bias", (tokens, 1), (128, 1), arguments![qkv, bias, stride, columns, each]);
            let scores = Matrix::new(room.shared[0], Kind::F32, length, 0);
            self.many((length, length, wide), scaled, scores, part(t.q), part(t.k).turned());
            let (shares, from) = (layer.look, room.scores);
            let grid = ((lines as usize).div_ceil(4), 1);
            self.kernel("softmax", grid, (128, 1), arguments![shares, from, batch, lengths, c, s0, s, lines]);
            self.many(
                (length, wide, length),
                1.0,
                Matrix::new(t.context, kind, h, 0),
                look(t.look),
                part(t.v),
            );
            self.linear(room.other, Kind::F32, layer.context, (h, h), &at.mixed);
            self.norm((layer.norm1, room.residuals[1]), room.other, &at.mixed.bias, around(x, 0), &at.norm1);
            self.linear(layer.up, kind, layer.norm1.out, (h, i), &at.up);
            let (up, active, bias) = (layer.up, layer.active, self.parameter(&at.up.bias));
            self.kernel("bias_gelu", (tokens, 1), (256, 1), arguments![up, active, bias, stride, each]);
            self.linear(room.other, Kind::F32, layer.active, (i, h), &at.down);
            self.norm(
                (layer.norm2, room.residuals[0]),
                room.other,
                &at.down.bias,
                around(layer.norm1.out, 1),
                &at.norm2,
            );
            x = layer.norm2.out;
        }
        let (pooled, slopes, weights) = (room.pooled, room.slopes, self.p.batch.weights());
        let (losses, right) = (self.p.batch.losses(self.p.losses), self.p.batch.right());
        let (w, bias, count) =
            (self.parameter(&places.head.weight), self.parameter(&places.head.bias), texts as i32);
        self.kernel("pool", (texts, 1), (128, 1), arguments![pooled, x, batch, lengths, c, s0, s]);
        self.kernel(
            "head",
            (texts.div_ceil(4), 1),
            (128, 1),
            arguments![slopes, losses, right, pooled, w, bias, stride, batch, weights, c, s0, s, count],
        );
        if self.p.gradients.is_none() {
            return;
        }
        let again = self.from > 0;
        let ((g, shrink), (g_bias, _), add) =
            (self.gradient(&places.head.weight), self.gradient(&places.head.bias), i32::from(again));
        let grid = (h.div_ceil(128), self.agents);
        self.kernel(
            "head_columns",
            grid,
            (128, 1),
            arguments![g, g_bias, w, bias, slopes, pooled, stride, shrink, add, c],
        );
        let back = room.back;
        self.kernel(
            "unpool",
            (tokens, 1),
            (128, 1),
            arguments![back, slopes, w, stride, batch, lengths, c, s0, s],
        );
        for (l, (layer, at)) in room.layers.iter().zip(&places.layers).enumerate().rev() {
            let t = &layer.tables;
            let x = if l == 0 { room.embedded.out } else { room.layers[l - 1].norm2.out };
            self.norm_back(layer.norm2, &at.norm2);
            self.linear_back(room.wide, false, room.narrow_back, layer.active, (i, h), &at.down);
            let (to, up, numbers) = (room.wide, layer.up, (tokens * i) as i64);
            self.kernel(
                "gelu_back",
                (of.gpu.blocks(tokens * i / 4, 256) as usize, 1),
                (256, 1),
                arguments![to, up, numbers],
            );
            self.linear_back(back, true, room.wide, layer.norm1.out, (h, i), &at.up);
            self.norm_back(layer.norm1, &at.norm1);
            self.linear_back(room.other, false, room.narrow_back, layer.context, (h, h), &at.mixed);
            let [scores, look_back, context_back, dq, dk, dv] = room.shared;
            let context_back = Matrix::new(context_back, kind, h, 0);
            self.many((length, wide, length), 1.0, part(dv), look(t.look).turned(), context_back);
            self.many(
                (length, length, wide),
                1.0,
                Matrix::new(scores, Kind::F32, length, 0),
                context_back,
                part(t.v).turned(),
            );
            let (to, from, shares) = (room.look_back, room.scores, layer.look);
            self.kernel(
                "softmax_back",
                ((lines as usize).div_ceil(4), 1),
                (128, 1),
                arguments![to, from, shares, scaled, lines],
            );
            self.many((length, wide, length), 1.0, part(dq), look(look_back), part(t.k));
            self.many((length, wide, length), 1.0, part(dk), look(look_back).turned(), part(t.q));
            self.linear_back(back, true, room.wide, x, (h, 3 * h), &at.qkv);
        }
        self.norm_back(room.embedded, &places.norm);
        let range = 0..places.types.end;
        let (g, shrink) = self.gradient(&range);
        if !again {
            let (w, count) = (self.parameter(&range), range.len() as i64);
            let grid = (of.gpu.blocks(range.len() / 4, 256) as usize, self.agents);
            self.kernel("begin_range", grid, (256, 1), arguments![g, w, stride, count, shrink]);
        }
        self.kernel(
            "word_columns",
            (self.each(), self.agents),
            (128, 1),
            arguments![g, back, data, batch, stride, c, s0, s],
        );
        let (g_positions, _) = self.gradient(&places.positions);
        self.kernel(
            "position_columns",
            (length, self.agents),
            (128, 1),
            arguments![g_positions, back, stride, c],
        );
        let ((g, _), w, add, columns) = (self.gradient(&places.types), types, 1i32, h as i32);
        self.kernel(
            "back_columns",
            (h.div_ceil(32), self.agents),
            (32, 32),
            arguments![g, w, back, stride, shrink, add, columns, each],
        );
    }
}
