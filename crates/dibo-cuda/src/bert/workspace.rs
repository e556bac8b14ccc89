//! The memory of a BERT's activations.
use super::Sizes;
use crate::gpu::Gpu;
use crate::memory::DeviceMemory;
use crate::products::Kind;
use std::sync::Arc;

/// Where a LayerNorm's results lie.
#[derive(Clone, Copy)]
pub(super) struct Normed {
    pub hat: u64,
    pub rate: u64,
    pub out: u64,
}

/// Where one layer's activations lie.
pub(super) struct Layer {
    pub qkv: u64,
    pub look: u64,
    pub context: u64,
    pub norm1: Normed,
    pub up: u64,
    pub active: u64,
    pub norm2: Normed,
}

/// Where everything lies in the workspace.
pub(super) struct Buffers {
    pub embedded: Normed,
    pub layers: Vec<Layer>,
    /// The gradient that flows back, with 32 bits, and as the products take it.
    pub back: u64,
    pub narrow_back: u64,
    /// What flows around a layer, and around the half of one that comes next, with 32 bits; none of its own
    /// where the activations have as many.
    pub residuals: [u64; 2],
    pub wide: u64,
    pub other: u64,
    pub scores: u64,
    pub look_back: u64,
    pub pooled: u64,
    pub slopes: u64,
}

impl Buffers {
    /// Lays the buffers of so many texts out one after the other from `base` on; tells also where they end.
    fn lay(sizes: &Sizes, texts: usize, base: u64) -> (Buffers, u64) {
        let (h, i, heads) = (sizes.bert.hidden, sizes.bert.intermediate, sizes.bert.heads);
        let (e, length, tokens) = (sizes.kind.bytes(), sizes.length, texts * sizes.length);
        let mut end = base;
        let mut take = |bytes: usize| {
            let at = end;
            end += bytes.next_multiple_of(256) as u64;
            at
        };
        let normed = |take: &mut dyn FnMut(usize) -> u64| Normed {
            hat: take(tokens * h * 4),
            rate: take(tokens * 4),
            out: take(tokens * h * e),
        };
        let embedded = normed(&mut take);
        let layers: Vec<Layer> = (0..sizes.bert.layers)
            .map(|_| Layer {
                qkv: take(tokens * 3 * h * e),
                look: take(tokens * heads * length * e),
                context: take(tokens * h * e),
                norm1: normed(&mut take),
                up: take(tokens * i * e),
                active: take(tokens * i * e),
                norm2: normed(&mut take),
            })
            .collect();
        let (back, other) = (take(tokens * h * 4), take(tokens * h * 4));
        let (narrow_back, residuals) = match sizes.kind {
            Kind::F32 => (back, [0, 0]),
            Kind::Bf16 => (take(tokens * h * e), [take(tokens * h * 4), take(tokens * h * 4)]),
        };
        let buffers = Buffers {
            embedded,
            layers,
            back,
            narrow_back,
            residuals,
            wide: take(tokens * i.max(3 * h) * e),
            other,
            scores: take(tokens * heads * length * 4),
            look_back: take(tokens * heads * length * e),
            pooled: take(texts * h * 4),
            slopes: take(texts * sizes.classes * 4),
        };
        (buffers, end)
    }
}

/// Tables of where each text's and head's matrices of a layer lie.
#[derive(Clone, Copy)]
pub(super) struct LayerTables {
    pub q: u64,
    pub k: u64,
    pub v: u64,
    pub look: u64,
    pub context: u64,
}

/// The same of what all layers share: scores, and the gradients of attention, context, queries, keys and
/// values.
#[derive(Clone, Copy)]
pub(super) struct SharedTables {
    pub scores: u64,
    pub look_back: u64,
    pub context_back: u64,
    pub q_back: u64,
    pub k_back: u64,
    pub v_back: u64,
}

/// Writes tables one after the other.
struct TableWriter<'a> {
    memory: &'a DeviceMemory,
    written: usize,
    sizes: &'a Sizes,
    texts: usize,
}

impl TableWriter<'_> {
    fn write(&mut self, place: impl Fn(usize, usize) -> u64) -> u64 {
        let heads = self.sizes.bert.heads;
        let list: Vec<u64> = (0..self.texts * heads).map(|c| place(c / heads, c % heads)).collect();
        let from = self.written;
        self.memory.write(from, &list);
        self.written += size_of_val(&list[..]);
        self.memory.at() + from as u64
    }

    /// Parts of a matrix of `line` numbers a token.
    fn parts(&mut self, start: u64, line: usize) -> u64 {
        let Sizes { bert, length, kind, .. } = *self.sizes;
        self.write(|text, head| {
            let numbers = text * length * line + head * (bert.hidden / bert.heads);
            start + (numbers * kind.bytes()) as u64
        })
    }

    /// Squares of attention, whose numbers have so many bytes.
    fn squares(&mut self, start: u64, bytes: usize) -> u64 {
        let Sizes { bert, length, .. } = *self.sizes;
        self.write(|text, head| start + ((text * bert.heads + head) * length * length * bytes) as u64)
    }
}

/// The activations of so many texts.
pub(super) struct Workspace {
    pub texts: usize,
    pub buffers: Buffers,
    pub layers: Vec<LayerTables>,
    pub shared: SharedTables,
    activations: DeviceMemory,
    _tables: DeviceMemory,
}

impl Workspace {
    pub fn new(gpu: &Arc<Gpu>, sizes: &Sizes, texts: usize) -> Self {
        // First counted, then given out.
        let (_, bytes) = Buffers::lay(sizes, texts, 0);
        let activations = DeviceMemory::unset(gpu, bytes as usize);
        let (b, _) = Buffers::lay(sizes, texts, activations.at());
        let count = b.layers.len() * 5 + 6;
        let tables = DeviceMemory::unset(gpu, count * texts * sizes.bert.heads * size_of::<u64>());
        let mut table = TableWriter { memory: &tables, written: 0, sizes, texts };
        let (h, e) = (sizes.bert.hidden, sizes.kind.bytes());
        // Queries, keys and values of a token lie side by side.
        let part = |n: usize| (n * h * e) as u64;
        let layers = b
            .layers
            .iter()
            .map(|l| LayerTables {
                q: table.parts(l.qkv, 3 * h),
                k: table.parts(l.qkv + part(1), 3 * h),
                v: table.parts(l.qkv + part(2), 3 * h),
                look: table.squares(l.look, e),
                context: table.parts(l.context, h),
            })
            .collect();
        let shared = SharedTables {
            scores: table.squares(b.scores, 4),
            look_back: table.squares(b.look_back, e),
            context_back: table.parts(b.other, h),
            q_back: table.parts(b.wide, 3 * h),
            k_back: table.parts(b.wide + part(1), 3 * h),
            v_back: table.parts(b.wide + part(2), 3 * h),
        };
        Workspace { texts, buffers: b, layers, shared, activations, _tables: tables }
    }

    /// Lets the host change some numbers that lie here from this address on.
    pub fn on_host(&self, at: u64, count: usize, change: impl FnOnce(&mut [f32])) {
        let (mut numbers, from) = (vec![0.0f32; count], (at - self.activations.at()) as usize);
        self.activations.read(from, &mut numbers);
        change(&mut numbers);
        self.activations.write(from, &numbers);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dibo::problem::learning::bert::{Bert, Pool};

    #[test]
    fn buffers_lie_the_same_from_any_base() {
        let bert = Bert {
            vocabulary: 50,
            positions: 16,
            types: 2,
            hidden: 64,
            layers: 2,
            heads: 4,
            intermediate: 256,
            epsilon: 1e-12,
            pool: Pool::First,
        };
        for kind in [Kind::F32, Kind::Bf16] {
            let sizes = Sizes { bert, classes: 2, length: 24, kind };
            let (low, bytes) = Buffers::lay(&sizes, 5, 0);
            let (high, end) = Buffers::lay(&sizes, 5, 4096);
            assert_eq!(
                (end - bytes, high.slopes - low.slopes, high.layers[1].up - low.layers[1].up),
                (4096, 4096, 4096)
            );
            assert_eq!(low.back == low.narrow_back, kind == Kind::F32);
            // What a run is told to need is what it takes, but for the alignment.
            let (told, buffers) = (5 * sizes.text_bytes() as u64, 60);
            assert!(bytes.abs_diff(told) < 256 * buffers, "{bytes} {told}");
        }
    }
}
