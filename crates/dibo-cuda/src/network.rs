//! The simulator with its rows on a GPU: graphs, weights and byte counts are the host simulator's, the mixing
//! is one kernel.
use crate::gpu::{Gpu, arguments};
use crate::kernels::mix_columns;
use crate::memory::DeviceMemory;
use crate::rows::{DeviceRows, Steps};
use dibo::mixing::{Mixing, Sequence};
use dibo::network::{Lane, Network, Simulator, Traffic, Wishes};
use dibo::rows::{Rows, Threads};
use dibo::{Error, Result};
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
    v: Option<DeviceMemory>,
    t: Option<DeviceMemory>,
    links: Option<DeviceMemory>,
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

    fn prepare(&mut self, wishes: Wishes) -> Result<()> {
        self.host.prepare(wishes)
    }

    fn round(&mut self, k: usize, lanes: &mut [Lane<'_, f32>]) -> Result<()> {
        let Self { gpu, host, scratch } = self;
        gpu.health().map_err(Error::Device)?;
        host.round_with(k, lanes, |mixing, lane| {
            // Nothing to mix is a failure that the GPU keeps.
            if let Some(lane) = DeviceLane::new(gpu, lane) {
                lane.mix(mixing, scratch);
            }
            gpu.health().map_err(Error::Device)
        })
    }

    fn wait(&self) -> Result<()> {
        self.gpu.synchronize();
        self.gpu.health().map_err(Error::Device)
    }

    fn traffic(&self) -> Traffic {
        self.host.traffic()
    }

    fn set_traffic(&mut self, traffic: Traffic) {
        self.host.set_traffic(traffic);
    }
}

/// How a lane weighs what agents hear.
#[derive(Clone, Copy)]
struct Weighing {
    /// What is only pulled lies where the kernels push, with the pull's weights.
    only_pull: bool,
    /// c of (1 − c) I + c A.
    share: f64,
}

impl Weighing {
    /// The weights of the pull and of the push.
    fn of(self, (i, j): (usize, usize), a: f64, b: f64) -> [f32; 2] {
        let own = if i == j { 1.0 - self.share } else { 0.0 };
        let a = own + self.share * a;
        [a as f32, if self.only_pull { a } else { b } as f32]
    }
}

/// The matrices A and B in full, one after the other, as the kernel's last argument holds them.
fn dense(mixing: &Mixing<f32>, n: usize, weighing: Weighing) -> Vec<f32> {
    let mut all = vec![0.0; 2 * n * n];
    mixing.for_each_entry(|i, j, a, b| {
        [all[i * n + j], all[n * n + i * n + j]] = weighing.of((i, j), a, b);
    });
    all
}

/// Compressed rows: where each receiver's links start, their senders, and the weights of A and of B; and how
/// many links there are.
fn links(mixing: &Mixing<f32>, weighing: Weighing) -> (Vec<u32>, usize) {
    let n = mixing.graph.agents();
    let (mut links, mut pull, mut push) = (vec![0], Vec::new(), Vec::new());
    for i in 0..n {
        links.push(links[i] + mixing.graph.senders(i).len() as u32);
    }
    (0..n).for_each(|i| links.extend_from_slice(mixing.graph.senders(i)));
    mixing.for_each_entry(|i, j, a, b| {
        let [a, b] = weighing.of((i, j), a, b).map(f32::to_bits);
        pull.push(a);
        push.push(b);
    });
    let edges = pull.len();
    links.extend(pull.into_iter().chain(push));
    (links, edges)
}

/// Leaves a copy of some rows in `slot`, and tells where.
fn keep(gpu: &Arc<Gpu>, rows: &DeviceRows, slot: &mut Option<DeviceMemory>) -> u64 {
    let bytes = rows.memory().bytes();
    let copy = match slot.take().filter(|m| m.bytes() == bytes) {
        Some(copy) => copy,
        None => DeviceMemory::unset(gpu, bytes),
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
    weighing: Weighing,
}

impl<'a> DeviceLane<'a> {
    fn new(gpu: &'a Arc<Gpu>, lane: &'a Lane<'_, f32>) -> Option<Self> {
        let d = match lane.d {
            Some(d) => DeviceRows::required(gpu, d)?.at(),
            None => 0,
        };
        // What is only pulled goes where the kernels push.
        let only_pull = lane.push.is_none();
        let rows = lane.push.as_deref().or(lane.pull.as_ref().map(|(v, _)| &**v))?;
        let t = DeviceRows::required(gpu, rows)?;
        let (v, steps) = match &lane.pull {
            Some((v, eta)) if !only_pull => {
                let v = DeviceRows::required(gpu, v)?;
                (Some(v), v.steps(eta)?)
            }
            _ => (None, Steps::NONE),
        };
        let weighing = Weighing { only_pull, share: lane.share };
        Some(DeviceLane { gpu, t, v, d, steps, pending: lane.pending && d != 0, weighing })
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
        let weights = dense(mixing, n, self.weighing);
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
        let (links, edges) = links(mixing, self.weighing);
        // With some capacity to spare, for the next graph has other links.
        let memory = match scratch.links.take().filter(|m| m.bytes() >= 4 * links.len()) {
            Some(memory) => memory,
            None => DeviceMemory::unset(gpu, 8 * links.len()),
        };
        memory.write(0, &links);
        let (edges, start) = (edges as u64, memory.at());
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
