//! The simulator with its rows on a GPU: graphs, weights and byte counts are the host simulator's, the mixing
//! is one kernel.
use crate::arguments;
use crate::gpu::{Gpu, Memory, REGISTERED};
use crate::rows::DeviceRows;
use dibo::mixing::{Mixing, Sequence};
use dibo::network::{Lane, Network, Simulator, Traffic};
use dibo::rows::{Rows, Threads};
use std::sync::Arc;

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
        let Self { gpu, host, scratch } = self;
        gpu.bind();
        host.round_with(k, lanes, |mixing, lane| mix(gpu, mixing, lane, scratch));
    }

    fn wait(&self) {
        self.gpu.synchronize();
    }

    fn traffic(&self) -> Traffic {
        self.host.traffic()
    }

    fn set_traffic(&mut self, traffic: Traffic) {
        self.host.set_traffic(traffic);
    }
}

const PLACED: &str = "all rows of a lane lie on the device";

/// `v ← A v − η t` and `t ← B t − d`, in place.
fn mix(gpu: &Arc<Gpu>, mixing: &Mixing<f32>, lane: &mut Lane<'_, f32>, scratch: &mut Scratch) {
    let (pull, push) = (lane.pull.as_ref(), lane.push.as_deref());
    // What is only pulled goes where the kernels push, with the pull's weights.
    let only = if push.is_none() { pull } else { None };
    let Some(t) = push.or(only.map(|(v, _)| &**v)) else { return };
    let t = DeviceRows::of(t).expect(PLACED);
    let v = pull.filter(|_| only.is_none()).map(|(v, eta)| (DeviceRows::of(v).expect(PLACED), *eta));
    let pushed = |a: f64, b: f64| if only.is_some() { a } else { b };
    let (n, stride) = (t.count(), t.stride());
    let steps = v.map_or_else(|| t.steps(&[0.0; 4][..t.ends()]), |(v, eta)| v.steps(eta));
    let d = lane.d.map_or(0, |d| DeviceRows::of(d).expect(PLACED).at());
    if lane.pending && n > REGISTERED {
        let (a, scale, count) = (t.at(), 1.0f32, (n * stride) as i64);
        gpu.rows_kernel(
            "add_scaled",
            (gpu.blocks(n * stride / 4, 256), 1),
            256,
            arguments![a, scale, d, count],
        );
    }
    let (to_v, to_t, width) = (v.map_or(0, |(v, _)| v.at()), t.at(), stride as i64);
    if n <= REGISTERED {
        let mut dense = vec![0.0f32; 2 * n * n];
        mixing.for_each_entry(|i, j, a, b| {
            dense[i * n + j] = a as f32;
            dense[n * n + i * n + j] = pushed(a, b) as f32;
        });
        let (function, columns) = gpu.mixer(n);
        let plus = i32::from(lane.pending);
        let blocks = (stride / columns).div_ceil(128).max(1) as u32;
        gpu.launch(
            &function,
            (blocks, 1, 1),
            (128, 1),
            arguments![to_v, to_t, d, plus, steps, width, dense[0]],
            "mixing",
        );
        return;
    }
    let copy = |of: &DeviceRows, slot: &mut Option<Memory>| {
        let bytes = of.memory().bytes();
        let copy = match slot.take().filter(|m| m.bytes() == bytes) {
            Some(copy) => copy,
            None => Memory::unset(gpu, bytes),
        };
        copy.copy_from(of.memory());
        slot.insert(copy).at()
    };
    let old_t = copy(t, &mut scratch.t);
    let old_v = v.map_or(0, |(v, _)| copy(v, &mut scratch.v));
    let (links, edges) = sparse(mixing, pushed);
    let memory = match scratch.links.take().filter(|m| m.bytes() >= 4 * links.len()) {
        Some(memory) => memory,
        None => Memory::unset(gpu, 8 * links.len()),
    };
    memory.write(0, &links);
    let start = memory.at();
    let from = start + 4 * (n as u64 + 1);
    let a = from + 4 * edges as u64;
    let b = a + 4 * edges as u64;
    scratch.links = Some(memory);
    let grid = (gpu.blocks(stride / 4, 256), n as u32);
    gpu.rows_kernel(
        "mix_sparse",
        grid,
        256,
        arguments![to_v, old_v, to_t, old_t, d, start, from, a, b, steps, width],
    );
}

/// Where each row's senders begin, the senders, and their weights in the pull and in the push; and how many
/// senders there are.
fn sparse(mixing: &Mixing<f32>, pushed: impl Fn(f64, f64) -> f64) -> (Vec<u32>, usize) {
    let n = mixing.graph.agents();
    let (mut links, mut pull, mut push) = (vec![0], Vec::new(), Vec::new());
    for i in 0..n {
        links.push(links[i] + mixing.graph.senders(i).len() as u32);
    }
    (0..n).for_each(|i| links.extend_from_slice(mixing.graph.senders(i)));
    mixing.for_each_entry(|_, _, a, b| {
        pull.push((a as f32).to_bits());
        push.push((pushed(a, b) as f32).to_bits());
    });
    let edges = pull.len();
    links.extend(pull.into_iter().chain(push));
    (links, edges)
}
