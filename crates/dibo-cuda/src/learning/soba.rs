//! SOBA's directions on the device: dy = ∇ᵧg, dz = ∇²ᵧᵧg z − ∇ᵧf, dx = −∇²ₓᵧg z. An MLP has the products by
//! themselves, in one pass; any model has them as differences of gradients.
use super::{DeviceLearning, DeviceModel, Precision, Work, lay};
use crate::batches::{Batch, Gradients, Pass, Place};
use crate::gpu::{Gpu, arguments};
use crate::memory::DeviceMemory;
use crate::mlp::Tangent;
use crate::rows::DeviceRows;
use dibo::algorithm::direction::Y;
use dibo::problem::{At, Penalty, Products};
use dibo::rows::Stack;
use dibo::{Error, Result as Done};
use std::sync::Arc;

/// What a stack's variables and directions have in common: where y and z begin in a row of each.
pub(super) struct Addresses {
    pub y: u64,
    pub z: u64,
    pub dy: u64,
    pub dz: u64,
    pub stride: usize,
    pub width: usize,
}

/// What differences need beside the state: a point in the place of y and gradients in the place of z, and
/// three numbers of each agent.
pub(super) struct Away {
    room: DeviceMemory,
    numbers: DeviceMemory,
}

impl Away {
    fn new(gpu: &Arc<Gpu>, agents: usize, stride: usize) -> Self {
        Away {
            room: DeviceMemory::unset(gpu, 4 * agents * stride),
            numbers: DeviceMemory::unset(gpu, 4 * 3 * agents),
        }
    }

    /// δ, −δ and ½/δ of each agent: where each of the three begins.
    fn take(&self, deltas: &[f64]) -> [u64; 3] {
        let of = |f: &dyn Fn(f64) -> f64| -> Vec<f32> { deltas.iter().map(|d| f(*d) as f32).collect() };
        self.numbers.write(0, &[of(&|d| d), of(&|d| -d), of(&|d| 0.5 / d)].concat());
        std::array::from_fn(|i| self.numbers.at() + 4 * (i * deltas.len()) as u64)
    }
}

/// The third root of 32 bits' rounding, for products that a model has not by themselves: as on the host.
const STEP: f64 = 4.93e-3;

/// f and g as they are.
const PLAIN: Penalty = Penalty { f: 1.0, g: 1.0 };

/// These lists without one of their parts: training samples alone (0) or validation samples alone (1).
fn only(lists: &[[Vec<Place>; 2]], part: usize) -> Vec<[Vec<Place>; 2]> {
    let of = |list: &[Vec<Place>; 2]| {
        std::array::from_fn(|p| if p == part { list[p].clone() } else { Vec::new() })
    };
    lists.iter().map(of).collect()
}

impl DeviceLearning {
    pub(super) fn device_soba(
        &self,
        at: At<'_>,
        by: Products,
        only: Option<usize>,
        v: &Stack<f32, 3>,
        d: &Stack<f32, 3>,
    ) -> Done<Option<()>> {
        if only == Some(Y) {
            return Ok(self.lower_gradients(at, v, d));
        }
        let own = matches!(self.work().model, DeviceModel::Mlp(_));
        let (delta, relative) = match by {
            Products::Exact if own => return Ok(self.soba_by_tangents(at, v, d)),
            Products::Exact => (STEP, true),
            Products::Differences { delta, relative } => (delta, relative),
            // A series is taken step by step, by SOBA's direction of z.
            Products::Series { .. } => return Err(Error::Unsupported("a series of products at once")),
        };
        if !own && self.precision == Precision::Bf16 {
            return Err(Error::Unsupported(
                "differences of gradients that have more than 16 bits (take --precision tf32)",
            ));
        }
        Ok(self.soba_by_differences(at, (delta, relative), v, d))
    }

    pub(super) fn addresses(&self, v: &Stack<f32, 3>, d: &Stack<f32, 3>) -> Option<Addresses> {
        let (v_rows, d_rows) =
            (DeviceRows::required(&self.gpu, &v.shared)?, DeviceRows::required(&self.gpu, &d.shared)?);
        let of = |rows: &DeviceRows, variable: usize| rows.at() + 4 * v.cut(variable).start as u64;
        Some(Addresses {
            y: of(v_rows, 1),
            z: of(v_rows, 2),
            dy: of(d_rows, 1),
            dz: of(d_rows, 2),
            stride: v_rows.stride(),
            width: v.cut(1).len(),
        })
    }

    /// dy = ∇ᵧg alone.
    fn lower_gradients(&self, at: At<'_>, v: &Stack<f32, 3>, d: &Stack<f32, 3>) -> Option<()> {
        let (a, upper) = (self.addresses(v, d)?, self.upper_rows(v, d)?);
        let Work { model, batch, places, .. } = &mut *self.work();
        let train = lay(places, &only(&self.lists(at, PLAIN), 0));
        batch.fill(places, at.owned.len(), train);
        self.weigh(batch, upper.psi());
        model.begin();
        model.pass(&Pass {
            samples: &self.data,
            batch,
            losses: 0,
            used: batch.each,
            parameters: a.y,
            stride: a.stride,
            gradients: Some(Gradients { at: a.dy, weight_decay: upper.weight_decay() as f32 }),
            decide: None,
        });
        self.lower_of_tau(&upper, &a);
        Some(())
    }

    fn soba_by_tangents(&self, at: At<'_>, v: &Stack<f32, 3>, d: &Stack<f32, 3>) -> Option<()> {
        let (a, upper) = (self.addresses(v, d)?, self.upper_rows(v, d)?);
        let Work { model, batch, places, .. } = &mut *self.work();
        let DeviceModel::Mlp(mlp) = model else { return None };
        let train = lay(places, &self.lists(at, PLAIN));
        batch.fill(places, at.owned.len(), train);
        self.weigh(batch, upper.psi());
        mlp.begin();
        // TF32 would turn units near zero on and off, and with them whole parts of the products.
        self.gpu.full_precision(true);
        mlp.soba(&Tangent {
            samples: &self.data,
            batch,
            points: [a.y, a.z],
            directions: [a.dy, a.dz],
            stride: a.stride,
            weight_decay: upper.weight_decay() as f32,
        });
        self.gpu.full_precision(false);
        self.psi_directions(&upper, batch, [0, batch.losses(0)], 0);
        self.soba_of_tau(&upper, v, d)
    }

    fn soba_by_differences(
        &self,
        at: At<'_>,
        (delta, relative): (f64, bool),
        v: &Stack<f32, 3>,
        d: &Stack<f32, 3>,
    ) -> Option<()> {
        let (a, upper) = (self.addresses(v, d)?, self.upper_rows(v, d)?);
        let (gpu, agents, decay) = (&self.gpu, at.owned.len(), upper.weight_decay() as f32);
        let deltas = self.deltas((delta, relative), v)?;
        let (width, stride) = (a.width as i64, a.stride as i64);
        let grid = (gpu.blocks(a.width, 256), agents as u32);
        let Work { model, batch, places, away } = &mut *self.work();
        let away = match away {
            Some(away) if away.room.bytes() >= 4 * agents * a.stride => away,
            none => none.insert(Away::new(gpu, agents, a.stride)),
        };
        let ([ahead, back, scales], room) = (away.take(&deltas), away.room.at());
        let gradients = room + 4 * a.width as u64;
        let lists = self.lists(at, PLAIN);
        // Differences need every bit, so the products do without TF32.
        gpu.full_precision(true);
        let train = lay(places, &only(&lists, 0));
        batch.fill(places, agents, train);
        self.weigh(batch, upper.psi());
        let mut pass = |batch: &Batch, losses: usize, parameters: u64, to: u64, weight_decay: f32| {
            model.begin();
            model.pass(&Pass {
                samples: &self.data,
                batch,
                losses,
                used: batch.each,
                parameters,
                stride: a.stride,
                gradients: Some(Gradients { at: to, weight_decay }),
                decide: None,
            });
        };
        let point = |steps: u64| {
            let (y, z) = (a.y, a.z);
            gpu.rows_kernel("away", grid, 256, arguments![room, y, z, steps, width, stride]);
        };
        point(ahead);
        pass(batch, 0, room, a.dz, decay);
        point(back);
        pass(batch, 1, room, gradients, decay);
        let to = a.dz;
        gpu.rows_kernel("difference", grid, 256, arguments![to, gradients, scales, width, stride]);
        self.psi_directions(&upper, batch, [batch.losses(1), batch.losses(0)], scales);
        pass(batch, 0, a.y, a.dy, decay);
        lay(places, &only(&lists, 1));
        batch.fill(places, agents, 0);
        self.weigh(batch, 0);
        pass(batch, 0, a.y, gradients, 0.0);
        gpu.full_precision(false);
        let (keep, scale, none) = (1.0f32, -1.0f32, 0i64);
        gpu.rows_kernel(
            "blend",
            grid,
            256,
            arguments![to, gradients, keep, scale, none, none, width, stride, stride],
        );
        self.soba_of_tau(&upper, v, d)
    }

    /// δ of each agent.
    fn deltas(&self, (delta, relative): (f64, bool), v: &Stack<f32, 3>) -> Option<Vec<f64>> {
        let rows = DeviceRows::required(&self.gpu, &v.shared)?;
        if !relative {
            return Some(vec![delta; rows.count()]);
        }
        let [y, z] = [1, 2].map(|variable| rows.square_sums(&v.cut(variable)));
        let of = |(y, z): (&f64, &f64)| match z.sqrt() {
            size if size > 0.0 && size.is_finite() => delta * (1.0 + y.sqrt()) / size,
            _ => delta,
        };
        Some(y.iter().zip(&z).map(of).collect())
    }
}
