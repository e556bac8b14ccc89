//! The MLP and the linear model on the device: one matrix product for all agents at a time.
use crate::batches::{Batch, Gradients, Pass, Samples};
use crate::gpu::{Gpu, arguments};
use crate::kernels::LEARNING;
use crate::memory::DeviceMemory;
use crate::products::{Kind, Matrix};
use cudarc::driver::CudaFunction;
use dibo::problem::learning::Net;
use std::sync::Arc;

/// The kernels that are looked for by name.
pub(crate) const KERNELS: [&str; 6] =
    ["load_images", "relu_rows", "mask_rows", "entropy", "mask_tangents", "tangent_entropy"];

/// What SOBA's directions are made of: the points y and z of the first agent, where their directions go, and
/// numbers from one agent's to the next's.
pub(crate) struct Tangent<'a> {
    pub samples: &'a Samples,
    pub batch: &'a Batch,
    pub points: [u64; 2],
    pub directions: [u64; 2],
    pub stride: usize,
    pub weight_decay: f32,
}

/// The layer that gives the scores: on the hidden units, or on the inputs of a linear model.
#[derive(Clone, Copy)]
struct Top {
    /// Where its parameters begin, in numbers behind the first.
    from: usize,
    /// Its inputs, the 1 of the bias among them.
    inputs: usize,
    /// Where they lie, and numbers from one row to the next.
    at: u64,
    line: usize,
}

/// An MLP, or a linear model if it has no hidden units, with memory for the rows of a batch.
pub(crate) struct Mlp {
    gpu: Arc<Gpu>,
    net: Net,
    /// Hidden units.
    units: Option<usize>,
    scale: DeviceMemory,
    shift: DeviceMemory,
    load: CudaFunction,
    relu: CudaFunction,
    mask: CudaFunction,
    entropy: CudaFunction,
    mask_tangents: CudaFunction,
    tangent_entropy: CudaFunction,
    capacity: usize,
    x: DeviceMemory,
    hidden: DeviceMemory,
    scores: DeviceMemory,
    back: DeviceMemory,
    /// Tangents of hidden units and scores, once they are asked for.
    tangents: Option<[DeviceMemory; 2]>,
    /// Batch whose images are loaded: y and z use the same.
    loaded: bool,
}

impl Mlp {
    pub fn new(
        gpu: &Arc<Gpu>,
        net: Net,
        units: Option<usize>,
        (scale, shift): (&[f32], &[f32]),
        capacity: usize,
    ) -> Result<Self, String> {
        let [load, relu, mask, entropy, mask_tangents, tangent_entropy] =
            gpu.kernels(LEARNING, vec![], KERNELS)?;
        let mut mlp = Mlp {
            net,
            units,
            scale: DeviceMemory::of(gpu, scale),
            shift: DeviceMemory::of(gpu, shift),
            load,
            relu,
            mask,
            entropy,
            mask_tangents,
            tangent_entropy,
            capacity: 0,
            x: DeviceMemory::unset(gpu, 0),
            hidden: DeviceMemory::unset(gpu, 0),
            scores: DeviceMemory::unset(gpu, 0),
            back: DeviceMemory::unset(gpu, 0),
            tangents: None,
            loaded: false,
            gpu: gpu.clone(),
        };
        mlp.reserve(capacity);
        Ok(mlp)
    }

    /// Numbers from one row to the next of inputs, hidden units and scores.
    fn lines(&self) -> (usize, usize, usize) {
        (
            self.net.inputs().next_multiple_of(4),
            (self.units.unwrap_or(0) + 1).next_multiple_of(4),
            self.net.classes.next_multiple_of(4),
        )
    }

    /// Makes memory for so many rows, if there is not as much already.
    fn reserve(&mut self, rows: usize) {
        if rows <= self.capacity {
            return;
        }
        let ((lx, lh, ls), gpu) = (self.lines(), self.gpu.clone());
        let numbers = |each: usize| DeviceMemory::zeros(&gpu, 4 * rows * each);
        (self.x, self.hidden, self.scores, self.back, self.capacity) =
            (numbers(lx), numbers(lh), numbers(ls), numbers(self.units.unwrap_or(0)), rows);
        self.tangents = None;
    }

    /// A new batch is about to be passed.
    pub fn begin(&mut self) {
        self.loaded = false;
    }

    /// The layer that gives the scores.
    fn top(&self) -> Top {
        let ((lx, lh, _), inputs) = (self.lines(), self.net.inputs());
        match self.units {
            Some(h) => Top { from: inputs * h, inputs: h + 1, at: self.hidden.at(), line: lh },
            None => Top { from: 0, inputs, at: self.x.at(), line: lx },
        }
    }

    pub fn pass(&mut self, p: &Pass<'_>) {
        let (batch, gpu) = (p.batch, self.gpu.clone());
        let (agents, each, used) = (batch.agents, batch.each, p.used);
        self.reserve(batch.total());
        let ((lx, lh, ls), inputs, classes) = (self.lines(), self.net.inputs(), self.net.classes);
        let (x, hidden, scores, back) = (self.x.at(), self.hidden.at(), self.scores.at(), self.back.at());
        let (table, places, many) = (batch.table(), each as i32, used as i32);
        self.load(p.samples, batch);
        let rows = |at: u64, line: usize| Matrix::new(at, Kind::F32, line, each * line);
        let parameters = |at: u64, line: usize| Matrix::new(at, Kind::F32, line, p.stride);
        let (top, grid) = (self.top(), ((agents * used) as u32, 1, 1));
        let behind = 4 * top.from as u64;
        let w2 = parameters(p.parameters + behind, top.inputs);
        let (mx, mh, ms, mt) = (rows(x, lx), rows(hidden, lh), rows(scores, ls), rows(top.at, top.line));
        if let Some(h) = self.units {
            gpu.product((used, h, inputs, agents), mh, mx, parameters(p.parameters, h), 0.0, mh);
            let (units, line) = (h as i32, lh as i32);
            gpu.launch(&self.relu, grid, (128, 1), arguments![hidden, units, line, many, places], "relu");
        }
        gpu.product((used, classes, top.inputs, agents), ms, mt, w2.transposed(), 0.0, ms);
        let (losses, right, weights) = (batch.losses(p.losses), batch.right(), batch.weights());
        let (count, score_line, total) = (classes as i32, ls as i32, (agents * used) as i32);
        let few = ((agents * used).div_ceil(128) as u32, 1, 1);
        gpu.launch(
            &self.entropy,
            few,
            (128, 1),
            arguments![scores, table, weights, losses, right, count, score_line, many, places, total],
            "entropy",
        );
        let Some(Gradients { at: g, weight_decay }) = p.gradients else { return };
        let g2 = parameters(g + behind, top.inputs);
        gpu.product((classes, top.inputs, used, agents), g2, ms.transposed(), mt, weight_decay, w2);
        if let Some(h) = self.units {
            let (w1, g1, mb) = (parameters(p.parameters, h), parameters(g, h), rows(back, h));
            let (units, line) = (h as i32, lh as i32);
            gpu.product((used, h, classes, agents), mb, ms, w2, 0.0, mb);
            let arguments = arguments![back, hidden, units, line, many, places];
            gpu.launch(&self.mask, grid, (128, 1), arguments, "mask");
            gpu.product((inputs, h, used, agents), g1, mx.transposed(), mb, weight_decay, w1);
        }
    }

    /// The images of a batch, unless they are there.
    fn load(&mut self, samples: &Samples, batch: &Batch) {
        if self.loaded {
            return;
        }
        let (x, images, table) = (self.x.at(), samples.bytes.at(), batch.table());
        let (scale, shift) = (self.scale.at(), self.shift.at());
        let (pixels, line) = (self.net.pixels as i32, self.lines().0 as i32);
        self.gpu.launch(
            &self.load,
            (batch.total() as u32, 1, 1),
            (256, 1),
            arguments![x, images, table, scale, shift, pixels, line],
            "images",
        );
        self.loaded = true;
    }

    /// ∇ᵧg, and ∇²ᵧᵧg z − ∇ᵧf by Pearlmutter's product; the tangents of the training losses go to the batch's
    /// first losses.
    pub fn soba(&mut self, p: &Tangent<'_>) {
        let (batch, gpu) = (p.batch, self.gpu.clone());
        let (agents, each) = (batch.agents, batch.each);
        self.reserve(batch.total());
        self.load(p.samples, batch);
        let ((lx, lh, ls), inputs, classes) = (self.lines(), self.net.inputs(), self.net.classes);
        let room = |line: usize| DeviceMemory::zeros(&gpu, 4 * self.capacity * line);
        let [tangents, score_tangents] = self.tangents.take().unwrap_or_else(|| [room(lh), room(ls)]);
        let rows = |at: u64, line: usize| Matrix::new(at, Kind::F32, line, each * line);
        let (top, h) = (self.top(), self.units.unwrap_or(0));
        let layers = |at: u64| {
            let layer = |at: u64, line: usize| Matrix::new(at, Kind::F32, line, p.stride);
            (layer(at, h), layer(at + 4 * top.from as u64, top.inputs))
        };
        let [(w1, w2), (z1, z2)] = p.points.map(layers);
        let [(dy1, dy2), (dz1, dz2)] = p.directions.map(layers);
        let (mx, mh, ms) = (rows(self.x.at(), lx), rows(self.hidden.at(), lh), rows(self.scores.at(), ls));
        let (th, ts, mb) = (rows(tangents.at(), lh), rows(score_tangents.at(), ls), rows(self.back.at(), h));
        let mt = rows(top.at, top.line);
        let (hidden, back, units, line) = (self.hidden.at(), self.back.at(), h as i32, lh as i32);
        let (places, grid) = (each as i32, (batch.total() as u32, 1, 1));
        if self.units.is_some() {
            let in_front = (each, h, inputs, agents);
            gpu.product(in_front, mh, mx, w1, 0.0, mh);
            gpu.product(in_front, th, mx, z1, 0.0, th);
            gpu.launch(&self.relu, grid, (128, 1), arguments![hidden, units, line, places, places], "relu");
            let to = tangents.at();
            gpu.launch(&self.mask_tangents, grid, (128, 1), arguments![to, hidden, units, line], "tangents");
        }
        let behind = (each, classes, top.inputs, agents);
        gpu.product(behind, ms, mt, w2.transposed(), 0.0, ms);
        gpu.product(behind, ts, mt, z2.transposed(), 0.0, ts);
        if self.units.is_some() {
            gpu.product(behind, ts, th, w2.transposed(), 1.0, ts);
        }
        let (scores, of_scores, table) = (self.scores.at(), score_tangents.at(), batch.table());
        let (weights, losses, count, score_line) =
            (batch.weights(), batch.losses(0), classes as i32, ls as i32);
        let (train, total) = (batch.train as i32, batch.total() as i32);
        gpu.launch(
            &self.tangent_entropy,
            (batch.total().div_ceil(128) as u32, 1, 1),
            (128, 1),
            arguments![scores, of_scores, table, weights, losses, count, score_line, places, train, total],
            "tangents of the entropy",
        );
        let last = (classes, top.inputs, each, agents);
        gpu.product(last, dy2, ms.transposed(), mt, p.weight_decay, w2);
        gpu.product(last, dz2, ts.transposed(), mt, p.weight_decay, z2);
        if self.units.is_some() {
            let mask = || {
                let arguments = arguments![back, hidden, units, line, places, places];
                gpu.launch(&self.mask, grid, (128, 1), arguments, "mask");
            };
            let (through, first) = ((each, h, classes, agents), (inputs, h, each, agents));
            gpu.product(through, mb, ms, w2, 0.0, mb);
            mask();
            gpu.product(first, dy1, mx.transposed(), mb, p.weight_decay, w1);
            gpu.product(last, dz2, ms.transposed(), th, 1.0, dz2);
            gpu.product(through, mb, ts, w2, 0.0, mb);
            gpu.product(through, mb, ms, z2, 1.0, mb);
            mask();
            gpu.product(first, dz1, mx.transposed(), mb, p.weight_decay, z1);
        }
        self.tangents = Some([tangents, score_tangents]);
    }
}
