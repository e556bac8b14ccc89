//! BERT on the device: one matrix product for all agents at a time, texts of each agent in pieces whose
//! activations fit the workspace.
//!
//! Parameters and gradients have 32 bits. Activations have 32 (products in TF32) or 16 (bf16, with a copy of
//! the parameters for the products); what flows around the layers (residuals and their gradients) has 32 in
//! any case.
mod back;
mod forward;
mod workspace;

use crate::batches::{Gradients, Pass};
use crate::gpu::{Gpu, arguments};
use crate::kernels::BERT;
use crate::memory::DeviceMemory;
use crate::products::Kind;
use back::Back;
use cudarc::driver::CudaFunction;
use dibo::problem::learning::bert::{Bert, Places, Pool};
use forward::Piece;
use std::collections::HashMap;
use std::ffi::c_void;
use std::ops::Range;
use std::sync::Arc;
use workspace::Workspace;

/// The kernels that are looked for by name.
pub(crate) const KERNELS: [&str; 20] = [
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
    "score",
    "head_columns",
    "unpool",
    "begin_range",
    "word_columns",
    "position_columns",
    "narrow_range",
];

/// A model, its classes, the tokens of a text, and the kind of its activations.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    pub bert: Bert,
    pub classes: usize,
    pub length: usize,
    pub kind: Kind,
}

impl Sizes {
    /// What the kernels are compiled with.
    fn options(&self) -> Vec<String> {
        let Sizes { bert, classes, length, kind } = self;
        let mean = i32::from(bert.pool == Pool::Mean);
        let mut options = vec![
            format!("-DH={}", bert.hidden),
            format!("-DI={}", bert.intermediate),
            format!("-DL={length}"),
            format!("-DHEADS={}", bert.heads),
            format!("-DCLASSES={classes}"),
            format!("-DMEAN={mean}"),
        ];
        if *kind == Kind::Bf16 {
            options.push("-DBF16".into());
        }
        options
    }

    /// Bytes of activations for one text.
    pub fn text_bytes(&self) -> usize {
        let (bert, e) = (&self.bert, self.kind.bytes());
        let (h, i, looks) = (bert.hidden, bert.intermediate, bert.heads * self.length);
        let layer = e * (6 * h + 2 * i + looks) + 4 * 2 * (h + 1);
        let shared = e * (h + i.max(3 * h) + looks)
            + 4 * (3 * h + 1 + looks)
            + if self.kind == Kind::Bf16 { (8 + e) * h } else { 0 };
        self.length * (bert.layers * layer + shared) + 4 * (h + self.classes)
    }

    /// Texts of each agent that are computed at once, of `used`, where all together may take `limit` bytes,
    /// unless one text of each agent needs more.
    pub fn piece(&self, limit: usize, agents: usize, used: usize) -> usize {
        let most = (limit / self.text_bytes() / agents.max(1)).max(1);
        // Pieces of one size rather than a small one at the end.
        used.div_ceil(used.div_ceil(most).max(1)).max(1)
    }

    /// The range of parameters that the products use.
    pub fn encoder(&self) -> Range<usize> {
        encoder(&self.bert.places(self.classes))
    }
}

fn encoder(places: &Places) -> Range<usize> {
    places.norm.shift.end..places.head.weight.start
}

/// The options of some sizes, to compile the kernels without a GPU.
pub(crate) fn some_options() -> Vec<Vec<String>> {
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
    let all = [(base, 128), (tiny, 7)].into_iter().flat_map(|(bert, length)| {
        [Kind::F32, Kind::Bf16].map(|kind| Sizes { bert, classes: 2, length, kind }.options())
    });
    all.collect()
}

/// A BERT on a GPU.
pub(crate) struct DeviceBert {
    gpu: Arc<Gpu>,
    sizes: Sizes,
    places: Places,
    functions: HashMap<&'static str, CudaFunction>,
    workspace: Option<Workspace>,
    /// The encoder's parameters as 16 bits.
    narrowed: Option<DeviceMemory>,
    /// Parameters and gradients of agents whose own lie where kernels that take four numbers cannot begin.
    aside: Option<[DeviceMemory; 2]>,
    limit: usize,
}

impl DeviceBert {
    /// `limit`: bytes of activations at most, unless one text of each agent needs more.
    pub fn new(gpu: &Arc<Gpu>, sizes: Sizes, limit: usize) -> Result<Self, String> {
        let functions = gpu.kernels(BERT, sizes.options(), KERNELS)?;
        Ok(DeviceBert {
            gpu: gpu.clone(),
            sizes,
            places: sizes.bert.places(sizes.classes),
            functions: KERNELS.into_iter().zip(functions).collect(),
            workspace: None,
            narrowed: None,
            aside: None,
            limit,
        })
    }

    /// Texts that the workspace holds.
    pub fn texts(&self) -> usize {
        self.workspace.as_ref().map_or(32, |w| w.texts)
    }

    pub fn pass(&mut self, p: &Pass<'_>) {
        let begins = |at: u64| at.is_multiple_of(16);
        if begins(p.parameters) && p.gradients.is_none_or(|g| begins(g.at)) {
            return self.pass_in_place(p);
        }
        let (gpu, agents, width) = (self.gpu.clone(), p.batch.agents, self.places.width);
        let bytes = 4 * agents * width;
        if self.aside.as_ref().is_none_or(|[room, _]| room.bytes() < bytes) {
            self.aside = None;
            // Zeros, for what pads the gradients is never written.
            self.aside = Some([(); 2].map(|()| DeviceMemory::zeros(&gpu, bytes)));
        }
        let Some([parameters, gradients]) = self.aside.as_ref().map(|rooms| rooms.each_ref().map(|r| r.at()))
        else {
            return;
        };
        let copy = |to: u64, from: u64, strides: [usize; 2]| {
            let (keep, scale, none, count) = (0.0f32, 1.0f32, 0i64, width as i64);
            let [own, others] = strides.map(|stride| stride as i64);
            let grid = (gpu.blocks(width, 256), agents as u32);
            gpu.rows_kernel(
                "blend",
                grid,
                256,
                arguments![to, from, keep, scale, none, none, count, own, others],
            );
        };
        copy(parameters, p.parameters, [width, p.stride]);
        self.pass_in_place(&Pass {
            parameters,
            stride: width,
            gradients: p.gradients.map(|g| Gradients { at: gradients, ..g }),
            ..*p
        });
        if let Some(own) = p.gradients {
            copy(own.at, gradients, [p.stride, width]);
        }
    }

    fn pass_in_place(&mut self, p: &Pass<'_>) {
        let agents = p.batch.agents;
        let piece = self.sizes.piece(self.limit, agents, p.used);
        if self.workspace.as_ref().is_none_or(|w| w.texts < agents * piece) {
            // Given back before the larger one is taken.
            self.workspace = None;
            self.workspace = Some(Workspace::new(&self.gpu, &self.sizes, agents * piece));
        }
        if self.sizes.kind == Kind::Bf16 {
            self.narrow(p, agents);
        }
        let Some(workspace) = self.workspace.as_ref().filter(|_| !self.gpu.failed()) else { return };
        for from in (0..p.used).step_by(piece) {
            let texts = piece.min(p.used - from);
            let piece = Piece { of: self, workspace, p, from, texts, agents };
            piece.run();
            if let Some(gradients) = p.gradients {
                Back { piece: &piece, gradients }.run();
            }
        }
    }

    /// Copies the encoder's parameters as 16 bits.
    fn narrow(&mut self, p: &Pass<'_>, agents: usize) {
        let range = encoder(&self.places);
        let bytes = 2 * agents * range.len();
        if self.narrowed.as_ref().is_none_or(|m| m.bytes() < bytes) {
            self.narrowed = None;
            self.narrowed = Some(DeviceMemory::unset(&self.gpu, bytes));
        }
        let to = self.narrowed.as_ref().map_or(0, DeviceMemory::at);
        let (w, stride, count) = (p.parameters + 4 * range.start as u64, p.stride as i64, range.len() as i64);
        let grid = (self.gpu.blocks(range.len() / 4, 256) as usize, agents);
        self.kernel("narrow_range", grid, (256, 1), arguments![to, w, stride, count]);
    }

    /// Starts one of [`KERNELS`].
    fn kernel(
        &self,
        name: &'static str,
        grid: (usize, usize),
        block: (u32, u32),
        arguments: &mut [*mut c_void],
    ) {
        if let Some(function) = self.gpu.require(self.functions.get(name), "a kernel of BERT is missing") {
            self.gpu.launch(function, (grid.0 as u32, grid.1 as u32, 1), block, arguments, name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_even_and_fit() {
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
        let sizes = Sizes { bert, classes: 2, length: 24, kind: Kind::F32 };
        let text = sizes.text_bytes();
        assert_eq!(sizes.piece(100 * text, 10, 8), 8);
        assert_eq!(sizes.piece(100 * text, 10, 12), 6);
        assert_eq!(sizes.piece(100 * text, 10, 21), 7);
        // One text of each agent is computed however little is allowed.
        assert_eq!(sizes.piece(text, 10, 8), 1);
        assert_eq!(sizes.piece(text, 10, 0), 1);
        assert!(Sizes { kind: Kind::Bf16, ..sizes }.text_bytes() < text);
    }
}
