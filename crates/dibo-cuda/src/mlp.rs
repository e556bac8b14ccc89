//! The MLP on the device: one matrix product for all agents at a time.
use crate::arguments;
use crate::batches::Pass;
use crate::gpu::{Gpu, Memory, OrFail};
use crate::products::{Kind, Matrix};
use cudarc::driver::CudaFunction;
use dibo::problem::learning::Net;
use std::sync::Arc;

/// An MLP with room for the rows of a batch.
pub(crate) struct Mlp {
    gpu: Arc<Gpu>,
    net: Net,
    units: usize,
    scale: Memory,
    shift: Memory,
    load: CudaFunction,
    relu: CudaFunction,
    mask: CudaFunction,
    entropy: CudaFunction,
    room: usize,
    x: Memory,
    hidden: Memory,
    scores: Memory,
    back: Memory,
    /// Batch whose images are loaded: y and z use the same.
    loaded: bool,
}

impl Mlp {
    pub fn new(
        gpu: &Arc<Gpu>,
        net: Net,
        units: usize,
        (scale, shift): (&[f32], &[f32]),
        room: usize,
    ) -> Result<Self, String> {
        let module = gpu.module(
            concat!(include_str!("kernels/common.cu"), include_str!("kernels/learning.cu")),
            vec![],
        )?;
        let kernel = |name: &str| module.load_function(name).map_err(|e| format!("kernel {name}: {e}"));
        let mut mlp = Mlp {
            net,
            units,
            scale: Memory::of(gpu, scale),
            shift: Memory::of(gpu, shift),
            load: kernel("load_images")?,
            relu: kernel("relu_rows")?,
            mask: kernel("mask_rows")?,
            entropy: kernel("entropy")?,
            room: 0,
            x: Memory::unset(gpu, 0),
            hidden: Memory::unset(gpu, 0),
            scores: Memory::unset(gpu, 0),
            back: Memory::unset(gpu, 0),
            loaded: false,
            gpu: gpu.clone(),
        };
        mlp.make_room(room);
        Ok(mlp)
    }

    fn lines(&self) -> (usize, usize, usize) {
        (
            self.net.inputs().next_multiple_of(4),
            (self.units + 1).next_multiple_of(4),
            self.net.classes.next_multiple_of(4),
        )
    }

    fn make_room(&mut self, rows: usize) {
        if rows <= self.room {
            return;
        }
        let ((lx, lh, ls), gpu) = (self.lines(), self.gpu.clone());
        let numbers = |each: usize| Memory::zeros(&gpu, 4 * rows * each);
        (self.x, self.hidden, self.scores, self.back, self.room) =
            (numbers(lx), numbers(lh), numbers(ls), numbers(self.units), rows);
    }

    /// A new batch is about to be passed.
    pub fn begin(&mut self) {
        self.loaded = false;
    }

    pub fn pass(&mut self, p: &Pass<'_>) {
        let (batch, gpu) = (p.batch, self.gpu.clone());
        let (agents, each, used) = (batch.agents, batch.each, p.used);
        self.make_room(batch.total());
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
        let product = |shape, d, a, b, beta: f32, c| {
            gpu.products().product(shape, d, a, b, beta, c).or_fail("a product")
        };
        product((used, h, inputs, agents), mh, mx, w1, 0.0, mh);
        let (units, line) = (h as i32, lh as i32);
        let grid = ((agents * used) as u32, 1, 1);
        gpu.launch(&self.relu, grid, (128, 1), arguments![hidden, units, line, many, places], "relu");
        product((used, classes, h + 1, agents), ms, mh, w2.turned(), 0.0, ms);
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
        let Some((g, shrink)) = p.gradients else { return };
        let (g1, g2) = (parameters(g, h), parameters(g + second, h + 1));
        product((classes, h + 1, used, agents), g2, ms.turned(), mh, shrink, w2);
        product((used, h, classes, agents), mb, ms, w2, 0.0, mb);
        gpu.launch(&self.mask, grid, (128, 1), arguments![back, hidden, units, line, many, places], "mask");
        product((inputs, h, used, agents), g1, mx.turned(), mb, shrink, w1);
    }
}
