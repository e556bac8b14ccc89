//! A batch on the device: which samples each agent uses, with what factors, and what their losses are.
use crate::gpu::{Gpu, arguments};
use crate::memory::DeviceMemory;
use cudarc::driver::CudaFunction;
use dibo::data::Dataset;
use std::sync::Arc;

/// One place of a batch, as the kernels read it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Place {
    /// Number of the sample in the data.
    pub sample: i32,
    /// Its number among the agent's training samples, −1 if it has none.
    pub own: i32,
    pub label: i32,
    /// Factor of its loss; 0 where an agent has fewer samples than places.
    pub factor: f32,
}

impl Place {
    /// A place that counts nothing.
    pub const EMPTY: Place = Place { sample: 0, own: -1, label: 0, factor: 0.0 };
}

/// Memory for a batch: `each` places for every agent, the first `train` of them for training samples.
pub(crate) struct Batch {
    table: DeviceMemory,
    weights: DeviceMemory,
    losses: [DeviceMemory; 2],
    right: DeviceMemory,
    capacity: usize,
    pub agents: usize,
    pub each: usize,
    pub train: usize,
}

impl Batch {
    pub fn new(gpu: &Arc<Gpu>, capacity: usize) -> Self {
        let numbers = |each: usize| DeviceMemory::zeros(gpu, capacity * each);
        Batch {
            table: numbers(size_of::<Place>()),
            weights: numbers(4),
            losses: [numbers(4), numbers(4)],
            right: numbers(4),
            capacity,
            agents: 0,
            each: 0,
            train: 0,
        }
    }

    pub fn total(&self) -> usize {
        self.agents * self.each
    }

    /// Takes over the places of every agent: those of training first, all of one length.
    pub fn fill(&mut self, places: &[Place], agents: usize, train: usize) {
        if places.is_empty() || agents == 0 {
            self.table.gpu().fail("a batch without samples");
            return;
        }
        (self.agents, self.each, self.train) = (agents, places.len() / agents, train);
        if places.len() > self.capacity {
            *self = Batch { agents, each: self.each, train, ..Batch::new(self.table.gpu(), places.len()) };
        }
        self.table.write(0, places);
    }

    /// Weights of the losses, with σ(ψ) in those of the training samples if there is a ψ.
    pub fn weigh(&self, kernel: &CudaFunction, psi: u64, starts: u64) {
        let (to, table, each, train, total) =
            (self.weights.at(), self.table(), self.each as i32, self.train as i32, self.total() as i32);
        let grid = (self.total().div_ceil(128) as u32, 1, 1);
        self.table.gpu().launch(
            kernel,
            grid,
            (128, 1),
            arguments![to, table, psi, starts, each, train, total],
            "sample weights",
        );
    }

    pub fn table(&self) -> u64 {
        self.table.at()
    }

    pub fn weights(&self) -> u64 {
        self.weights.at()
    }

    pub fn losses(&self, which: usize) -> u64 {
        self.losses[which].at()
    }

    pub fn right(&self) -> u64 {
        self.right.at()
    }

    /// Losses of the last pass, and whether guesses were right, brought to the host.
    pub fn results(&self, which: usize) -> (Vec<f32>, Vec<i32>) {
        let (mut losses, mut right) = (vec![0.0; self.total()], vec![0; self.total()]);
        self.losses[which].read(0, &mut losses);
        self.right.read(0, &mut right);
        (losses, right)
    }
}

/// Samples on the device.
pub(crate) struct Samples {
    pub bytes: DeviceMemory,
    /// Tokens of each text.
    pub lengths: DeviceMemory,
}

impl Samples {
    pub fn new(gpu: &Arc<Gpu>, data: &Dataset, text: bool) -> Self {
        let all: Vec<u8> = (0..data.len()).flat_map(|i| data.image(i)).copied().collect();
        let length = |i: usize| dibo::problem::learning::bert::tokens(data.image(i)).1 as i32;
        let lengths: Vec<i32> = if text { (0..data.len()).map(length).collect() } else { vec![0] };
        Samples { bytes: DeviceMemory::of(gpu, &all), lengths: DeviceMemory::of(gpu, &lengths) }
    }
}

/// What a model is asked to do: the losses of some places of a batch under each agent's parameters, and
/// gradients if wanted.
pub(crate) struct Pass<'a> {
    pub samples: &'a Samples,
    pub batch: &'a Batch,
    /// Which of the batch's two arrays of losses is written.
    pub losses: usize,
    /// Places of each agent that are used: the first so many.
    pub used: usize,
    /// Parameters of the first agent, and numbers from one agent's to the next's.
    pub parameters: u64,
    pub stride: usize,
    pub gradients: Option<Gradients>,
    /// Decides on the host what flows back, instead of the losses of labels; texts only.
    pub decide: Option<&'a Decide<'a>>,
}

/// Gets the first place of a piece and its places of each agent, and their scores, class by class, place by
/// place, agent by agent; leaves what flows back.
pub(crate) type Decide<'a> = dyn Fn(usize, usize, &mut [f32]) + 'a;

/// Where a pass leaves gradients.
#[derive(Clone, Copy)]
pub(crate) struct Gradients {
    /// Those of the first agent; the others lie at the parameters' distances.
    pub at: u64,
    /// The factor of the parameters that is added to their gradients.
    pub weight_decay: f32,
}
