//! The simulator with its rows on a GPU: graphs, weights and byte counts are the host simulator's, the mixing
//! is one kernel.
use crate::gpu::{Gpu, arguments};
use crate::kernels::mix_columns;
use crate::memory::Memory;
use crate::rows::{DeviceRows, Steps};
use dibo::mixing::{Mixing, Sequence};
use dibo::network::{Lane, Network, Simulator, Traffic};
use dibo::rows::{Rows, Threads, Weights};
use std::sync::Arc;

/// Most agents whose columns one thread can hold.
const REGISTERED: usize = 32;

/// All agents in this process, their rows on one GPU. Rows that were not placed there (a push-sum weight) are
/// mixed on the host.
pub struct DeviceNetwork {
    gpu: Arc<Gpu>,
    host: Simulator<f32>,
    scratch: Scratch,
}

/// Copies of old rows and the links, where there are too many agents for one thread's registers.
#[derive(Default)]
struct Scratch {
    v: Option<Memory>,
    t: Option<Memory>,
    links: Option<Memory>,
}

impl DeviceNetwork {
    /// A network that follows this sequence.
    pub fn new(gpu: &Arc<Gpu>, sequence: Sequence, threads: Threads) -> Self {
        DeviceNetwork {
            gpu: gpu.clone(),
            host: Simulator::new(sequence, threads),
            scratch: Scratch::default(),
        }
    }

    fn try_round(&mut self, k: usize, lanes: &mut [Lane<'_, f32>]) -> Result<(), String> {
        let Self { gpu, host, scratch } = self;
        gpu.health()?;
        host.round_with(k, lanes, |mixing, lane| {
            // Nothing to mix is a failure that the GPU keeps.
            if let Some(lane) = DeviceLane::new(gpu, lane) {
                lane.mix(mixing, scratch);
            }
        });
        gpu.health()
    }

    fn try_wait(&self) -> Result<(), String> {
        self.gpu.synchronize();
        self.gpu.health()
    }
}

impl Network<f32> for DeviceNetwork {
    fn agents(&self) -> usize {
        self.host.agents()
    }

    fn owned(&self) -> &[usize] {
        self.host.owned()
    }

    fn threads(&self) -> &Threads {
        self.host.threads()
    }

    fn place(&self, rows: &mut Rows<f32>, ends: &[usize]) {
        DeviceRows::place(&self.gpu, rows, ends);
    }

    fn round(&mut self, k: usize, lanes: &mut [Lane<'_, f32>]) {
        // The GPU keeps the failure.
        let _ = self.try_round(k, lanes);
    }

    fn wait(&self) {
        // The GPU keeps the failure.
        let _ = self.try_wait();
    }

    fn traffic(&self) -> Traffic {
        self.host.traffic()
    }

    fn set_traffic(&mut self, traffic: Traffic) {
        self.host.set_traffic(traffic);
    }
}

fn weight(weights: Weights<'_, f32>, receiver: usize, sender: usize, entry: usize) -> f32 {
    match weights {
        Weights::Receiver(w) => w[receiver],
        Weights::Sender(w) => w[sender],
        Weights::Entry(w) => w[entry],
        // Rows that already carry their weights exist inside a round of the host only.
        Weights::Applied => 1.0,
    }
}

/// The matrices A and B in full, one after the other, as the kernel's last argument holds them.
fn dense(mixing: &Mixing<f32>, n: usize) -> Vec<f32> {
    let (csr, mut all) = (mixing.graph.csr(), vec![0.0; 2 * n * n]);
    for i in 0..n {
        for e in csr.start[i] as usize..csr.start[i + 1] as usize {
            let j = csr.from[e] as usize;
            all[i * n + j] = weight(mixing.a.weights(), i, j, e);
            all[n * n + i * n + j] = weight(mixing.b.weights(), i, j, e);
        }
    }
    all
}

/// Compressed rows: where each receiver's links start, their senders, and the weights of A and of B.
fn links(mixing: &Mixing<f32>, n: usize) -> Vec<u32> {
    let csr = mixing.graph.csr();
    let mut links: Vec<u32> = csr.start.iter().chain(csr.from).copied().collect();
    for weights in [mixing.a.weights(), mixing.b.weights()] {
        for i in 0..n {
            let row = csr.start[i] as usize..csr.start[i + 1] as usize;
            links.extend(row.map(|e| weight(weights, i, csr.from[e] as usize, e).to_bits()));
        }
    }
    links
}

/// Leaves a copy of some rows in `slot`, and tells where.
fn keep(gpu: &Arc<Gpu>, rows: &DeviceRows, slot: &mut Option<Memory>) -> u64 {
    let bytes = rows.memory().bytes();
    let copy = match slot.take().filter(|m| m.bytes() == bytes) {
        Some(copy) => copy,
        None => Memory::unset(gpu, bytes),
    };
    copy.copy_from(rows.memory());
    slot.insert(copy).at()
}

/// What a lane mixes, on the device: `v ← A v − η t` and `t ← B t − d`, in place.
struct DeviceLane<'a> {
    gpu: &'a Arc<Gpu>,
    t: &'a DeviceRows,
    v: Option<&'a DeviceRows>,
    /// Address of d, 0 if there is none.
    d: u64,
    steps: Steps,
    /// Whether t is t + d to begin with.
    pending: bool,
}

impl<'a> DeviceLane<'a> {
    fn new(gpu: &'a Arc<Gpu>, lane: &'a Lane<'_, f32>) -> Option<Self> {
        let t = DeviceRows::required(gpu, lane.push)?;
        let d = match lane.d {
            Some(d) => DeviceRows::required(gpu, d)?.at(),
            None => 0,
        };
        let (v, steps) = match &lane.pull {
            Some((v, eta)) => {
                let v = DeviceRows::required(gpu, v)?;
                (Some(v), v.steps(eta)?)
            }
            None => (None, Steps::NONE),
        };
        Some(DeviceLane { gpu, t, v, d, steps, pending: lane.pending && d != 0 })
    }

    fn mix(&self, mixing: &Mixing<f32>, scratch: &mut Scratch) {
        if self.t.count() <= REGISTERED {
            self.mix_dense(mixing);
        } else {
            self.mix_sparse(mixing, scratch);
        }
    }

    /// Each thread holds the columns of all agents, so that every number is read and written once.
    fn mix_dense(&self, mixing: &Mixing<f32>) {
        let (n, stride) = (self.t.count(), self.t.stride());
        let Some(function) = self.gpu.mixer(n) else { return };
        let weights = dense(mixing, n);
        let Some(first) = weights.first() else { return };
        let (v, t, d, steps) = (self.v.map_or(0, DeviceRows::at), self.t.at(), self.d, self.steps);
        let (plus, width) = (i32::from(self.pending), stride as i64);
        let blocks = (stride / mix_columns(n)).div_ceil(128).max(1) as u32;
        self.gpu.launch(
            &function,
            (blocks, 1, 1),
            (128, 1),
            arguments![v, t, d, plus, steps, width, *first],
            "mixing",
        );
    }

    /// Old rows are read from copies, links from compressed rows.
    fn mix_sparse(&self, mixing: &Mixing<f32>, scratch: &mut Scratch) {
        let (gpu, n, stride) = (self.gpu, self.t.count(), self.t.stride());
        let (to_t, d, steps, width) = (self.t.at(), self.d, self.steps, stride as i64);
        if self.pending {
            let (scale, count) = (1.0f32, (n * stride) as i64);
            let grid = (gpu.blocks(n * stride / 4, 256), 1);
            gpu.rows_kernel("add_scaled", grid, 256, arguments![to_t, scale, d, count]);
        }
        let old_t = keep(gpu, self.t, &mut scratch.t);
        let (to_v, old_v) = self.v.map_or((0, 0), |v| (v.at(), keep(gpu, v, &mut scratch.v)));
        let links = links(mixing, n);
        // With some capacity to spare, for the next graph has other links.
        let memory = match scratch.links.take().filter(|m| m.bytes() >= 4 * links.len()) {
            Some(memory) => memory,
            None => Memory::unset(gpu, 8 * links.len()),
        };
        memory.write(0, &links);
        let (edges, start) = (mixing.graph.csr().from.len() as u64, memory.at());
        let from = start + 4 * (n as u64 + 1);
        let (a, b) = (from + 4 * edges, from + 8 * edges);
        scratch.links = Some(memory);
        gpu.rows_kernel(
            "mix_sparse",
            (gpu.blocks(stride / 4, 256), n as u32),
            256,
            arguments![to_v, old_v, to_t, old_t, d, start, from, a, b, steps, width],
        );
    }
}
