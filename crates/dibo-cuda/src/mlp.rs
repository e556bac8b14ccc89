//! The MLP on the device: one matrix product for all agents at a time.
use crate::batches::{Gradients, Pass};
use crate::gpu::{Gpu, arguments};
use crate::kernels::LEARNING;
use crate::memory::DeviceMemory;
use crate::products::{Kind, Matrix};
use cudarc::driver::CudaFunction;
use dibo::problem::learning::Net;
use std::sync::Arc;

/// The kernels that are looked for by name.
pub(crate) const KERNELS: [&str; 4] = ["load_images", "relu_rows", "mask_rows", "entropy"];

/// An MLP with memory for the rows of a batch.
pub(crate) struct Mlp {
    gpu: Arc<Gpu>,
    net: Net,
    units: usize,
    scale: DeviceMemory,
    shift: DeviceMemory,
    load: CudaFunction,
    relu: CudaFunction,
    mask: CudaFunction,
    entropy: CudaFunction,
    capacity: usize,
    x: DeviceMemory,
    hidden: DeviceMemory,
    scores: DeviceMemory,
    back: DeviceMemory,
    /// Batch whose images are loaded: y and z use the same.
    loaded: bool,
}

impl Mlp {
    pub fn new(
        gpu: &Arc<Gpu>,
        net: Net,
        units: usize,
        (scale, shift): (&[f32], &[f32]),
        capacity: usize,
    ) -> Result<Self, String> {
        let [load, relu, mask, entropy] = gpu.kernels(LEARNING, vec![], KERNELS)?;
        let mut mlp = Mlp {
            net,
            units,
            scale: DeviceMemory::of(gpu, scale),
            shift: DeviceMemory::of(gpu, shift),
            load,
            relu,
            mask,
            entropy,
            capacity: 0,
            x: DeviceMemory::unset(gpu, 0),
            hidden: DeviceMemory::unset(gpu, 0),
            scores: DeviceMemory::unset(gpu, 0),
            back: DeviceMemory::unset(gpu, 0),
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
            (self.units + 1).next_multiple_of(4),
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
            (numbers(lx), numbers(lh), numbers(ls), numbers(self.units), rows);
    }

    /// A new batch is about to be passed.
    pub fn begin(&mut self) {
        self.loaded = false;
    }

    pub fn pass(&mut self, p: &Pass<'_>) {
        let (batch, gpu) = (p.batch, self.gpu.clone());
        let (agents, each, used) = (batch.agents, batch.each, p.used);
        self.reserve(batch.total());
        let ((lx, lh, ls), h, inputs, classes) =
            (self.lines(), self.units, self.net.inputs(), self.net.classes);
        let (x, hidden, scores, back) = (self.x.at(), self.hidden.at(), self.scores.at(), self.back.at());
        let (table, places, many) = (batch.table(), each as i32, used as i32);
        if !self.loaded {
            let (images, scale, shift) = (p.samples.bytes.at(), self.scale.at(), self.shift.at());
            let (pixels, line) = (self.net.pixels as i32, lx as i32);
            gpu.launch(
                &self.load,
                (batch.total() as u32, 1, 1),
                (256, 1),
                arguments![x, images, table, scale, shift, pixels, line],
                "images",
            );
            self.loaded = true;
        }
        let rows = |at: u64, line: usize| Matrix::new(at, Kind::F32, line, each * line);
        let parameters = |at: u64, line: usize| Matrix::new(at, Kind::F32, line, p.stride);
        let second = 4 * (inputs * h) as u64;
        let (w1, w2) = (parameters(p.parameters, h), parameters(p.parameters + second, h + 1));
        let (mx, mh, ms, mb) = (rows(x, lx), rows(hidden, lh), rows(scores, ls), rows(back, h));
        gpu.product((used, h, inputs, agents), mh, mx, w1, 0.0, mh);
        let (units, line) = (h as i32, lh as i32);
        let grid = ((agents * used) as u32, 1, 1);
        gpu.launch(&self.relu, grid, (128, 1), arguments![hidden, units, line, many, places], "relu");
        gpu.product((used, classes, h + 1, agents), ms, mh, w2.transposed(), 0.0, ms);
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
        let (g1, g2) = (parameters(g, h), parameters(g + second, h + 1));
        gpu.product((classes, h + 1, used, agents), g2, ms.transposed(), mh, weight_decay, w2);
        gpu.product((used, h, classes, agents), mb, ms, w2, 0.0, mb);
        gpu.launch(&self.mask, grid, (128, 1), arguments![back, hidden, units, line, many, places], "mask");
        gpu.product((inputs, h, used, agents), g1, mx.transposed(), mb, weight_decay, w1);
    }
}
