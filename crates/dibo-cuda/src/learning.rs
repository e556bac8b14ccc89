//! Cleaning and tuning on the device: the host's problem says which samples are whose and when; gradients and
//! metrics are computed on the GPU.
mod soba;
mod upper;

use crate::batches::{Batch, Gradients, Pass, Place, Samples};
use crate::bert::{DeviceBert, Sizes};
use crate::gpu::{Gpu, arguments};
use crate::kernels::LEARNING;
use crate::memory::DeviceMemory;
use crate::mlp::Mlp;
use crate::products::Kind;
use crate::rows::DeviceRows;
use cudarc::driver::CudaFunction;
use dibo::data::Dataset;
use dibo::problem::learning::bert::Bert;
use dibo::problem::learning::{Learning, Model, Net, TRIED, Task};
use dibo::problem::{At, Bilevel, Metric, Penalty, Products, SecondOrder, SingleLevel, Start, Values};
use dibo::rows::{Stack, Upper, View};
use dibo::{Error, Result as Done};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use upper::UpperRows;

/// How matrix products are computed; the state has 32 bits in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// 32-bit activations, products in TF32.
    #[default]
    Tf32,
    /// 16-bit activations.
    Bf16,
}

/// The kernels that are looked for by name.
pub(crate) const KERNELS: [&str; 2] = ["sample_weights", "psi_directions"];

/// A learning problem on a GPU.
pub struct DeviceLearning {
    host: Learning<f32>,
    gpu: Arc<Gpu>,
    /// Where each agent's ψ begins.
    starts: DeviceMemory,
    data: Samples,
    test: Samples,
    weigh: CudaFunction,
    psi: CudaFunction,
    precision: Precision,
    work: Mutex<Work>,
}

/// What a pass writes, for one at a time.
struct Work {
    model: DeviceModel,
    batch: Batch,
    places: Vec<Place>,
    /// For differences of gradients, since the first.
    away: Option<soba::Away>,
}

enum DeviceModel {
    Mlp(Box<Mlp>),
    Bert(Box<DeviceBert>),
}

impl DeviceModel {
    fn begin(&mut self) {
        if let DeviceModel::Mlp(mlp) = self {
            mlp.begin();
        }
    }

    /// Texts that there is a workspace for already: it is too large to grow for metrics alone.
    fn texts(&self) -> Option<usize> {
        match self {
            DeviceModel::Mlp(_) => None,
            DeviceModel::Bert(bert) => Some(bert.texts()),
        }
    }

    fn pass(&mut self, p: &Pass<'_>) {
        if p.used == 0 {
            return p.samples.bytes.gpu().fail("a pass over no samples");
        }
        match self {
            DeviceModel::Mlp(mlp) => mlp.pass(p),
            DeviceModel::Bert(bert) => bert.pass(p),
        }
    }
}

/// Bytes of activations at most.
pub(crate) const LIMIT: usize = 12 << 30;

/// Bytes that a run needs on the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    agents: usize,
    vectors: usize,
    width: usize,
    /// The algorithm's vectors of all agents.
    state: usize,
    /// What a pass remembers for the way back.
    activations: usize,
    /// Parameters as 16 bits.
    copies: usize,
    /// Samples, workspace and small things.
    data: usize,
}

impl Need {
    /// What a BERT needs that passes so many texts of each agent.
    pub(crate) fn of_texts(
        sizes: &Sizes,
        agents: usize,
        vectors: usize,
        width: usize,
        each: usize,
        data: usize,
    ) -> Need {
        let copies = if sizes.kind == Kind::Bf16 { 2 * agents * sizes.encoder().len() } else { 0 };
        Need {
            agents,
            vectors,
            width,
            state: 4 * vectors * agents * width.next_multiple_of(16),
            activations: agents * sizes.piece(LIMIT, agents, each) * sizes.text_bytes(),
            copies,
            data,
        }
    }

    /// All together.
    pub fn total(&self) -> usize {
        self.state + self.activations + self.copies + self.data
    }
}

impl std::fmt::Display for Need {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let gib = |bytes: usize| bytes as f64 / (1u64 << 30) as f64;
        let Need { agents, vectors, width, .. } = self;
        write!(
            f,
            "GPU memory {:.2} GiB = state {:.2} ({vectors} vectors × {agents} agents × {width} × 4 bytes)",
            gib(self.total()),
            gib(self.state)
        )?;
        write!(
            f,
            " + activations {:.2} + 16-bit copies {:.2} + data {:.2}",
            gib(self.activations),
            gib(self.copies),
            gib(self.data)
        )
    }
}

/// What a problem needs on the GPU under an algorithm whose state holds so many vectors of the model's width
/// for each agent.
pub fn need(host: &Learning<f32>, precision: Precision, vectors: usize) -> Result<Need, String> {
    let (net, dealt) = (host.net(), host.dealt());
    let (agents, width) = (dealt.hands.len(), net.width());
    let each = (0..agents)
        .map(|a| host.bilevel_batch(a, 0).map(|part| part.len()))
        .fold([0, 0], |m, b| [m[0].max(b[0]), m[1].max(b[1])]);
    let each = (each[0] + each[1]).max((0..agents).map(|a| host.single_batch(a, 0).len()).max().unwrap_or(1));
    let data = dealt.data.bytes() + dealt.test.bytes() + (256 << 20);
    let inputs = match net.model {
        Model::Bert(bert) => {
            let sizes = bert_sizes(net, bert, precision);
            // Beside the number of tuning a model lies where it has to be copied from, and its gradient to.
            let vectors = vectors + if matches!(host.task(), Task::Tuning { .. }) { 2 } else { 0 };
            return Ok(Need::of_texts(&sizes, agents, vectors, width, each, data));
        }
        Model::Mlp(units) => net.inputs() + 3 * units,
        _ => net.inputs(),
    };
    Ok(Need {
        agents,
        vectors,
        width,
        state: 4 * vectors * agents * width.next_multiple_of(16),
        activations: 4 * agents * each * (inputs + 2 * net.classes + 16),
        copies: 0,
        data,
    })
}

fn bert_sizes(net: &Net, bert: Bert, precision: Precision) -> Sizes {
    // A token has two bytes.
    Sizes { bert, classes: net.classes, length: net.pixels / 2, kind: kind(precision) }
}

/// The kind of a BERT's activations.
pub(crate) fn kind(precision: Precision) -> Kind {
    match precision {
        Precision::Tf32 => Kind::F32,
        Precision::Bf16 => Kind::Bf16,
    }
}

fn device_model(gpu: &Arc<Gpu>, host: &Learning<f32>, precision: Precision) -> Result<DeviceModel, String> {
    let net = *host.net();
    Ok(match net.model {
        Model::Bert(bert) => {
            let sizes = bert_sizes(&net, bert, precision);
            DeviceModel::Bert(Box::new(DeviceBert::new(gpu, sizes, LIMIT)?))
        }
        model => {
            let units = if let Model::Mlp(units) = model { Some(units) } else { None };
            DeviceModel::Mlp(Box::new(Mlp::new(gpu, net, units, host.scaling(), 64)?))
        }
    })
}

/// Lays out the agents' places, each with the factor of its mean: first those of training, then those of
/// validation. Says how many of an agent's are for training.
fn lay(places: &mut Vec<Place>, lists: &[[Vec<Place>; 2]]) -> usize {
    let most = |part: usize| lists.iter().map(|l| l[part].len()).max().unwrap_or(0);
    let sizes = [most(0), most(1)];
    places.clear();
    for list in lists {
        for (part, size) in list.iter().zip(sizes) {
            let empty = std::iter::repeat_n(Place::EMPTY, size - part.len());
            places.extend(part.iter().copied().chain(empty));
        }
    }
    sizes[0]
}

impl DeviceLearning {
    /// Puts the data and the model's workspace on the GPU; says what the device does not support, or that its
    /// memory is full.
    pub fn new(gpu: &Arc<Gpu>, host: Learning<f32>, precision: Precision) -> Result<Self, String> {
        let dealt = host.dealt();
        let model = device_model(gpu, &host, precision)?;
        let [weigh, psi] = gpu.kernels(LEARNING, vec![], KERNELS)?;
        let text = matches!(host.net().model, Model::Bert(_));
        // As `Rows::ragged` lays them out.
        let (mut starts, mut end) = (vec![0], 0);
        for hand in &dealt.hands {
            end += hand.train.len().next_multiple_of(dibo::rows::GROUP) as i64;
            starts.push(end);
        }
        let problem = DeviceLearning {
            starts: DeviceMemory::of(gpu, &starts),
            data: Samples::new(gpu, &dealt.data, text),
            test: Samples::new(gpu, &dealt.test, text),
            weigh,
            psi,
            precision,
            work: Mutex::new(Work { model, batch: Batch::new(gpu, 1024), places: Vec::new(), away: None }),
            gpu: gpu.clone(),
            host,
        };
        gpu.health().map(|()| problem)
    }

    /// Weights of a batch's losses under this ψ, or without one.
    fn weigh(&self, batch: &Batch, psi: u64) {
        batch.weigh(&self.weigh, psi, self.starts.at());
    }

    fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The place of one of an agent's samples in a batch.
    fn place(&self, agent: usize, place: usize, factor: f64) -> Place {
        let (sample, label) = self.host.sample(agent, place);
        let own = if place < self.host.dealt().hands[agent].train.len() { place as i32 } else { -1 };
        Place { sample: sample as i32, own, label: i32::from(label), factor: factor as f32 }
    }

    /// The agents' training and validation samples of an iteration, each with its factor in the penalty.
    fn lists(&self, at: At<'_>, penalty: Penalty) -> Vec<[Vec<Place>; 2]> {
        let of = |agent: &usize| {
            let [train, validation] = self.host.bilevel_batch(*agent, at.k);
            let (g, f) = (penalty.g / train.len() as f64, penalty.f / validation.len() as f64);
            [(train, g), (validation, f)]
                .map(|(list, factor)| list.into_iter().map(|p| self.place(*agent, p, factor)).collect())
        };
        at.owned.iter().map(of).collect()
    }

    /// How many of some samples, each with a label, models guess right, and the loss of each: model by model,
    /// `models` of them `stride` numbers apart, so that with more than one the losses lie piece by piece.
    fn told(
        &self,
        samples: &Samples,
        parameters: u64,
        stride: usize,
        models: usize,
        which: &[(usize, u8)],
    ) -> (i64, Vec<f64>) {
        let Work { model, batch, places, .. } = &mut *self.work();
        let each = (model.texts().unwrap_or(4096) / models.max(1)).max(1);
        let (mut hits, mut all) = (0i64, Vec::with_capacity(which.len() * models));
        for piece in which.chunks(each) {
            places.clear();
            let of = |(i, label): &(usize, u8)| Place {
                sample: *i as i32,
                own: -1,
                label: i32::from(*label),
                factor: 0.0,
            };
            (0..models).for_each(|_| places.extend(piece.iter().map(of)));
            batch.fill(places, models, 0);
            self.weigh(batch, 0);
            model.begin();
            model.pass(&Pass {
                samples,
                batch,
                losses: 0,
                used: piece.len(),
                parameters,
                stride,
                gradients: None,
                decide: None,
            });
            let (losses, right) = batch.results(0);
            hits += right.iter().map(|r| i64::from(*r)).sum::<i64>();
            all.extend(losses.iter().map(|l| f64::from(*l)));
        }
        (hits, all)
    }

    /// Accuracy in percent and mean loss of models on samples with true labels.
    fn score(
        &self,
        samples: &Samples,
        data: &Dataset,
        parameters: u64,
        stride: usize,
        models: usize,
        which: &[usize],
    ) -> (f64, f64) {
        let labelled: Vec<(usize, u8)> = which.iter().map(|i| (*i, data.labels()[*i])).collect();
        let (hits, losses) = self.told(samples, parameters, stride, models, &labelled);
        let count = (which.len() * models) as f64;
        (100.0 * hits as f64 / count, losses.iter().sum::<f64>() / count)
    }

    /// Metrics of a state on the device; `None` if it lies on the host.
    fn measure(&self, views: &[View<'_, f32>]) -> Option<Values> {
        let find = |name: &str| views.iter().find(|v| v.name == name);
        let bilevel = find("y").is_some();
        let view = find(if bilevel { "y" } else { "x" })?;
        let (rows, columns) = (DeviceRows::of(view.rows)?, view.columns.clone()?);
        if columns.len() != self.host.net().width() {
            return Some(Vec::new());
        }
        let (dealt, mut values) = (self.host.dealt(), Vec::new());
        let all: Vec<usize> = (0..dealt.test.len()).collect();
        let accuracy = |rows: &DeviceRows, columns: &Range<usize>| {
            let mean = rows.mean_on_device(columns);
            (self.score(&self.test, &dealt.test, mean.at(), 0, 1, &all).0, mean)
        };
        let (own, mean) = accuracy(rows, &columns);
        values.push(("test_accuracy", own));
        let validation = dealt.hands.iter().map(|h| {
            let which: Vec<usize> = h.validation.iter().map(|i| *i as usize).collect();
            self.score(&self.data, &dealt.data, mean.at(), 0, 1, &which).1
        });
        values.push(("loss", validation.sum::<f64>() / dealt.hands.len() as f64));
        let tried = all.len().min(TRIED);
        let some: Vec<usize> = (0..tried).map(|j| j * all.len() / tried).collect();
        let at = rows.at() + 4 * columns.start as u64;
        values.push((
            "agents_accuracy",
            self.score(&self.test, &dealt.test, at, rows.stride(), rows.count(), &some).0,
        ));
        let found = |which: &[(usize, u8)]| self.told(&self.data, mean.at(), 0, 1, which).1;
        values.extend(self.host.found_by_model(found));
        if let Some((rows, columns)) =
            find("z").and_then(|z| Some((DeviceRows::of(z.rows)?, z.columns.clone()?)))
        {
            values.push(("test_accuracy_z", accuracy(rows, &columns).0));
        }
        if let Some(x) = find("x").filter(|_| bilevel) {
            values.extend(self.host.cleaning(&x.to_vecs()).into_iter().flatten());
            values.extend(self.tuned(x, &mean, find("z")));
        }
        Some(values)
    }

    fn device_directions(
        &self,
        at: At<'_>,
        penalty: Penalty,
        rows: &DeviceRows,
        v: &Stack<f32, 3>,
        d: &Stack<f32, 3>,
    ) -> Option<()> {
        let (to, upper) = (DeviceRows::required(&self.gpu, &d.shared)?, self.upper_rows(v, d)?);
        let weight_decay = (penalty.g * upper.weight_decay()) as f32;
        let Work { model, batch, places, .. } = &mut *self.work();
        let train = lay(places, &self.lists(at, penalty));
        batch.fill(places, at.owned.len(), train);
        self.weigh(batch, upper.psi());
        model.begin();
        // z has no part in the upper level's loss, so only training samples are passed under it.
        for (variable, used) in [(1, batch.each), (2, train)] {
            let offset = 4 * v.cut(variable).start as u64;
            model.pass(&Pass {
                samples: &self.data,
                batch,
                losses: variable - 1,
                used,
                parameters: rows.at() + offset,
                stride: rows.stride(),
                gradients: Some(Gradients { at: to.at() + offset, weight_decay }),
                decide: None,
            });
        }
        self.psi_directions(&upper, batch, [batch.losses(0), batch.losses(1)], 0);
        self.penalty_of_tau(&upper, penalty.g, v, d)
    }

    /// ψ's directions, from the difference of two losses, times a scale of each agent if there are any.
    fn psi_directions(&self, upper: &UpperRows<'_>, batch: &Batch, losses: [u64; 2], scales: u64) {
        let UpperRows::Psi { psi, dx, .. } = upper else { return };
        dx.memory().clear();
        let (psi, dx) = (psi.at(), dx.at());
        let (table, starts, [of_y, of_z]) = (batch.table(), self.starts.at(), losses);
        let (each, train, total) = (batch.each as i32, batch.train as i32, batch.total() as i32);
        self.gpu.launch(
            &self.psi,
            (batch.total().div_ceil(128) as u32, 1, 1),
            (128, 1),
            arguments![dx, table, psi, starts, of_y, of_z, scales, each, train, total],
            "ψ's directions",
        );
    }

    fn device_gradients(&self, at: At<'_>, rows: &DeviceRows, to: &DeviceRows) {
        let Work { model, batch, places, .. } = &mut *self.work();
        let lists: Vec<[Vec<Place>; 2]> = at
            .owned
            .iter()
            .map(|agent| {
                let list = self.host.single_batch(*agent, at.k);
                let each = 1.0 / list.len() as f64;
                [Vec::new(), list.into_iter().map(|p| self.place(*agent, p, each)).collect()]
            })
            .collect();
        lay(places, &lists);
        batch.fill(places, at.owned.len(), 0);
        self.weigh(batch, 0);
        model.begin();
        let weight_decay = self.host.baseline_weight_decay() as f32;
        model.pass(&Pass {
            samples: &self.data,
            batch,
            losses: 0,
            used: batch.each,
            parameters: rows.at(),
            stride: rows.stride(),
            gradients: Some(Gradients { at: to.at(), weight_decay }),
            decide: None,
        });
    }

    /// The failure that the GPU keeps, if there is one.
    fn health(&self) -> Done<()> {
        self.gpu.health().map_err(Error::Device)
    }
}

impl Bilevel<f32> for DeviceLearning {
    fn agents(&self) -> usize {
        Bilevel::agents(&self.host)
    }

    fn upper(&self) -> Upper {
        self.host.upper()
    }

    fn lower(&self) -> usize {
        self.host.lower()
    }

    fn grad_f(
        &self,
        agent: usize,
        k: usize,
        x: &[f32],
        y: &[f32],
        gx: &mut [f32],
        gy: &mut [f32],
    ) -> Done<()> {
        self.host.grad_f(agent, k, x, y, gx, gy)
    }

    fn grad_g(
        &self,
        agent: usize,
        k: usize,
        x: &[f32],
        y: &[f32],
        gx: &mut [f32],
        gy: &mut [f32],
    ) -> Done<()> {
        self.host.grad_g(agent, k, x, y, gx, gy)
    }

    fn penalty_directions(
        &self,
        at: At<'_>,
        penalty: Penalty,
        v: &Stack<f32, 3>,
        d: &mut Stack<f32, 3>,
    ) -> Done<()> {
        self.health()?;
        match DeviceRows::of(&v.shared) {
            // Rows that are missing on the device are a failure that the GPU keeps.
            Some(rows) => _ = self.device_directions(at, penalty, rows, v, d),
            None => self.host.penalty_directions(at, penalty, v, d)?,
        }
        self.health()
    }

    fn soba_directions(
        &self,
        at: At<'_>,
        by: Products,
        only: Option<usize>,
        v: &Stack<f32, 3>,
        d: &mut Stack<f32, 3>,
    ) -> Done<bool> {
        if !v.on_device() {
            return self.host.soba_directions(at, by, only, v, d);
        }
        self.health()?;
        // Rows that are missing on the device are a failure that the GPU keeps.
        self.device_soba(at, by, only, v, d)?;
        self.health().map(|()| true)
    }

    fn second_order(&self) -> Option<&dyn SecondOrder<f32>> {
        self.host.second_order()
    }

    fn single_level(&self) -> Option<&dyn SingleLevel<f32>> {
        Some(self)
    }

    fn start(&self) -> Start {
        self.host.start()
    }

    fn measures(&self) -> Vec<Metric> {
        self.host.measures()
    }

    fn state_metrics(&self, views: &[View<'_, f32>]) -> Done<Values> {
        self.health()?;
        let values = match self.measure(views) {
            Some(values) => values,
            None => self.host.state_metrics(views)?,
        };
        self.health().map(|()| values)
    }
}

impl SingleLevel<f32> for DeviceLearning {
    fn agents(&self) -> usize {
        Bilevel::agents(&self.host)
    }

    fn width(&self) -> usize {
        self.host.width()
    }

    fn blocks(&self) -> usize {
        self.host.blocks()
    }

    fn start_from<'a>(&self, start: &'a Start) -> &'a Vec<Vec<f64>> {
        self.host.start_from(start)
    }

    fn gradients(&self, at: At<'_>, x: &Stack<f32, 1>, d: &mut Stack<f32, 1>) -> Done<()> {
        self.health()?;
        match DeviceRows::of(&x.shared) {
            Some(rows) => {
                if let Some(to) = DeviceRows::required(&self.gpu, &d.shared) {
                    self.device_gradients(at, rows, to);
                }
            }
            None => self.host.gradients(at, x, d)?,
        }
        self.health()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_with_fewer_samples_get_places_that_count_nothing() {
        let place = |sample: i32| Place { sample, own: 0, label: 1, factor: 0.5 };
        let lists = [[vec![place(1), place(2)], vec![]], [vec![place(3)], vec![place(4)]]];
        let mut places = vec![place(9)];
        assert_eq!(lay(&mut places, &lists), 2);
        let empty = Place::EMPTY;
        assert_eq!(places, [place(1), place(2), empty, place(3), empty, place(4)]);
    }
}
