//! Wrong labels of texts with a BERT on the device: texts pass through all agents' models there, at once;
//! what flows back from their scores, a few numbers a text, is decided by the host's own code.
use crate::batches::{Batch, Decide, Gradients, Pass, Place, Samples};
use crate::bert::{DeviceBert, Sizes};
use crate::gpu::Gpu;
use crate::learning::{LIMIT, Need, Precision, kind};
use crate::memory::DeviceMemory;
use crate::rows::DeviceRows;
use dibo::algorithm::direction::{X, Y, Z};
use dibo::problem::learning::labels::{Passes, Teller};
use dibo::problem::learning::{Labels, Model};
use dibo::problem::{At, Bilevel, Metric, Penalty, SecondOrder, SingleLevel, Start, Values};
use dibo::rows::{Rows, Stack, Upper, View};
use dibo::{Error, Result as Done};
use std::cell::RefCell;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The texts of all sites and a BERT to pass them, on a GPU.
pub struct DeviceTexts {
    gpu: Arc<Gpu>,
    classes: usize,
    width: usize,
    samples: Samples,
    /// Where each site's texts begin; those on which models are tried come last.
    starts: Vec<usize>,
    work: Mutex<Work>,
}

struct Work {
    bert: DeviceBert,
    batch: Batch,
    places: Vec<Place>,
}

/// A model of texts whose labels may be wrong, on a GPU.
pub struct DeviceLabels {
    host: Arc<Labels<f32>>,
    texts: Arc<DeviceTexts>,
}

fn sizes(host: &Labels<f32>, precision: Precision) -> Result<Sizes, String> {
    let net = host.net();
    let Model::Bert(bert) = net.model else {
        return Err("wrong labels run on the GPU with model = \"bert\" only; leave --device away".into());
    };
    if host.learns_regulariser() {
        return Err("regularisers of a BERT are not learned on the GPU; leave --device away".into());
    }
    Ok(Sizes { bert, classes: net.classes, length: net.numbers(), kind: kind(precision) })
}

/// What such a problem needs on the GPU under an algorithm whose state holds so many vectors of the model's
/// width for each agent.
pub fn labels_need(host: &Labels<f32>, precision: Precision, vectors: usize) -> Result<Need, String> {
    let (sizes, agents) = (sizes(host, precision)?, Bilevel::agents(host));
    let rows: usize = host.all_sites().map(|s| s.rows()).sum();
    let data = rows * (2 * sizes.length + 4) + (256 << 20);
    Ok(Need::of_texts(&sizes, agents, vectors, host.net().width(), host.most_rows(), data))
}

impl DeviceTexts {
    /// Puts the texts and the model's workspace on the GPU; says what it does not support, or that its memory
    /// is full.
    pub fn new(gpu: &Arc<Gpu>, host: &Labels<f32>, precision: Precision) -> Result<Self, String> {
        let sizes = sizes(host, precision)?;
        let (mut bytes, mut lengths, mut starts) = (Vec::new(), Vec::new(), Vec::new());
        for site in host.all_sites() {
            starts.push(lengths.len());
            for text in site.features.chunks_exact(sizes.length) {
                let from = bytes.len();
                // A token that the model does not know is its last, as on the host.
                let known = |token: &f32| (*token as usize).min(sizes.bert.vocabulary - 1) as u16;
                bytes.extend(text.iter().flat_map(|token| known(token).to_le_bytes()));
                lengths.push(dibo::problem::learning::bert::tokens(&bytes[from..]).1 as i32);
            }
        }
        let samples =
            Samples { bytes: DeviceMemory::of(gpu, &bytes), lengths: DeviceMemory::of(gpu, &lengths) };
        let bert = DeviceBert::new(gpu, sizes, LIMIT)?;
        let work = Mutex::new(Work { bert, batch: Batch::new(gpu, 1024), places: Vec::new() });
        let (classes, width) = (sizes.classes, host.net().width());
        let texts = DeviceTexts { gpu: gpu.clone(), classes, width, samples, starts, work };
        gpu.health().map(|()| texts)
    }

    /// Passes these texts of each agent, filled up to one length, through models that lie so far apart.
    fn pass(
        &self,
        texts: &[Vec<usize>],
        (parameters, stride): (u64, usize),
        gradients: Option<Gradients>,
        decide: &Decide<'_>,
    ) {
        let Work { bert, batch, places } = &mut *self.work();
        // An agent without a text passes one that counts nothing.
        let used = texts.iter().map(Vec::len).max().unwrap_or(0).max(1);
        places.clear();
        for own in texts {
            places.extend(own.iter().map(|t| Place { sample: *t as i32, ..Place::EMPTY }));
            places.extend(std::iter::repeat_n(Place::EMPTY, used - own.len()));
        }
        batch.fill(places, texts.len(), 0);
        bert.pass(&Pass {
            samples: &self.samples,
            batch,
            losses: 0,
            used,
            parameters,
            stride,
            gradients,
            decide: Some(decide),
        });
    }

    fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn health(&self) -> Done<()> {
        self.gpu.health().map_err(Error::Device)
    }

    /// Scores of rows of an agent's site, or of the test rows, under the model at this address.
    fn scores_at(&self, site: Option<usize>, model: u64, rows: &[usize]) -> Vec<f32> {
        let first = self.starts[site.unwrap_or(self.starts.len() - 1)];
        let all = RefCell::new(Vec::new());
        // As many as there is a workspace for: it is too large to grow for this alone.
        let most = self.work().bert.texts();
        for some in rows.chunks(most.max(1)) {
            let texts = [some.iter().map(|r| first + r).collect()];
            self.pass(&texts, (model, self.width), None, &|_, _, scores| {
                all.borrow_mut().extend_from_slice(scores);
            });
        }
        let mut all = all.into_inner();
        // What a GPU that failed says is no number.
        if self.gpu.failed() {
            all = vec![f32::NAN; rows.len() * self.classes];
        }
        all
    }
}

impl Teller<f32> for DeviceTexts {
    fn scores(&self, site: Option<usize>, w: &[f32], rows: &[usize]) -> Vec<f32> {
        let model = DeviceMemory::of(&self.gpu, w);
        self.scores_at(site, model.at(), rows)
    }
}

/// Passes of one iteration: where models and their directions lie.
struct Moving<'a> {
    texts: &'a DeviceTexts,
    at: At<'a>,
    v: &'a DeviceRows,
    d: &'a DeviceRows,
    /// Where the only model or y, and z, begin in a row.
    columns: [usize; 2],
}

impl Passes for Moving<'_> {
    fn pass(
        &mut self,
        model: usize,
        rows: &[Vec<usize>],
        decay: f64,
        head: &mut dyn FnMut(usize, usize, &mut [f32]),
    ) -> Done<()> {
        let (texts, offset) = (self.texts, 4 * self.columns[model] as u64);
        let of = |(agent, rows): (&usize, &Vec<usize>)| {
            rows.iter().map(|r| texts.starts[*agent] + r).collect::<Vec<usize>>()
        };
        let places: Vec<Vec<usize>> = self.at.owned.iter().zip(rows).map(of).collect();
        let gradients = Gradients { at: self.d.at() + offset, weight_decay: decay as f32 };
        let head = RefCell::new(head);
        let decide = |from: usize, each: usize, scores: &mut [f32]| {
            for (i, scores) in scores.chunks_exact_mut(each * texts.classes).enumerate() {
                for (j, scores) in scores.chunks_exact_mut(texts.classes).enumerate() {
                    match from + j < rows[i].len() {
                        true => (*head.borrow_mut())(i, from + j, scores),
                        false => scores.fill(0.0),
                    }
                }
            }
        };
        texts.pass(&places, (self.v.at() + offset, self.v.stride()), Some(gradients), &decide);
        texts.health()
    }

    fn rest(&mut self, model: usize) -> Done<()> {
        let from = self.columns[model];
        self.d.scale_columns(from..from + self.texts.width, &vec![0.0; self.d.count()]);
        self.texts.health()
    }
}

impl DeviceLabels {
    /// A problem whose texts lie on the GPU already.
    pub fn new(host: Arc<Labels<f32>>, texts: Arc<DeviceTexts>) -> Self {
        DeviceLabels { host, texts }
    }

    /// Rows that must lie on the GPU where others of their stack do.
    fn rows<'a>(&self, rows: &'a Rows<f32>) -> Done<&'a DeviceRows> {
        let found = DeviceRows::required(&self.texts.gpu, rows);
        self.texts.health()?;
        found.ok_or_else(|| Error::Device("rows of a stack lie partly on the host".into()))
    }

    /// The rows that hold a bilevel problem's x, and where.
    fn upper<'a>(&self, stack: &'a Stack<f32, 3>) -> Done<(&'a DeviceRows, Option<Range<usize>>)> {
        match &stack.private {
            Some(private) => Ok((self.rows(private)?, None)),
            None => Ok((self.rows(&stack.shared)?, Some(stack.cut(X)))),
        }
    }

    /// Sums of models that stay where they are; nothing if they lie on the host.
    fn device_sums(&self, agents: &[usize], views: &[View<'_, f32>]) -> Option<Vec<Vec<f64>>> {
        let (find, width) = (|name: &str| views.iter().find(|v| v.name == name), self.texts.width);
        let bilevel = self.host.way().is_bilevel();
        let model = find(if bilevel { "y" } else { "x" })?;
        let (rows, from) = (DeviceRows::of(model.rows)?, model.columns.as_ref().map_or(0, |c| c.start));
        let numbers = |row: usize| match (bilevel, find("x")) {
            (true, Some(x)) => x.fetched(row).into_owned(),
            _ => rows.part(row, from + width, self.host.matrix_numbers()),
        };
        let numbers: Vec<Vec<f32>> = (0..agents.len()).map(numbers).collect();
        let at = |row: usize| rows.at() + 4 * (row * rows.stride() + from) as u64;
        let scores = |row: usize, site, some: &[usize]| self.texts.scores_at(site, at(row), some);
        Some(self.host.own_sums_by(agents, &numbers, &scores))
    }

    fn device_directions(
        &self,
        at: At<'_>,
        penalty: Penalty,
        v: &Stack<f32, 3>,
        d: &Stack<f32, 3>,
    ) -> Done<()> {
        let (upper, columns) = self.upper(v)?;
        let widths = match self.host.upper() {
            Upper::Shared(width) => vec![width; Bilevel::agents(&*self.host)],
            Upper::Private(widths) => widths,
        };
        let from = columns.map_or(0, |c| c.start);
        let x: Vec<Vec<f32>> =
            at.owned.iter().enumerate().map(|(row, a)| upper.part(row, from, widths[*a])).collect();
        let (points, to) = (self.rows(&v.shared)?, self.rows(&d.shared)?);
        let columns = [v.cut(Y).start, v.cut(Z).start];
        let mut moving = Moving { texts: &self.texts, at, v: points, d: to, columns };
        let dx = self.host.directions_by(at, penalty, &x, &mut moving)?;
        let (upper, _) = self.upper(d)?;
        dx.iter().enumerate().for_each(|(row, dx)| upper.set_part(row, from, dx));
        self.texts.health()
    }
}

impl Bilevel<f32> for DeviceLabels {
    fn agents(&self) -> usize {
        Bilevel::agents(&*self.host)
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
        match v.on_device() {
            true => self.device_directions(at, penalty, v, d),
            false => self.host.penalty_directions(at, penalty, v, d),
        }
    }

    fn second_order(&self) -> Option<&dyn SecondOrder<f32>> {
        self.host.second_order()
    }

    fn single_level(&self) -> Option<&dyn SingleLevel<f32>> {
        self.host.single_level().map(|_| self as &dyn SingleLevel<f32>)
    }

    fn start(&self) -> Start {
        self.host.start()
    }

    fn measures(&self) -> Vec<Metric> {
        self.host.measures()
    }

    fn own_sums(&self, agents: &[usize], views: &[View<'_, f32>]) -> Done<Option<Vec<Vec<f64>>>> {
        self.texts.health()?;
        let sums = match self.device_sums(agents, views) {
            None => self.host.own_sums(agents, views)?,
            sums => sums,
        };
        self.texts.health().map(|()| sums)
    }

    fn metrics_of_sums(&self, sums: &[f64]) -> Values {
        self.host.metrics_of_sums(sums)
    }
}

impl SingleLevel<f32> for DeviceLabels {
    fn agents(&self) -> usize {
        Bilevel::agents(&*self.host)
    }

    fn width(&self) -> usize {
        SingleLevel::width(&*self.host)
    }

    fn start_from<'a>(&self, start: &'a Start) -> &'a Vec<Vec<f64>> {
        self.host.start_from(start)
    }

    fn gradients(&self, at: At<'_>, x: &Stack<f32, 1>, d: &mut Stack<f32, 1>) -> Done<()> {
        if !x.on_device() {
            return self.host.gradients(at, x, d);
        }
        let (v, to, width) = (self.rows(&x.shared)?, self.rows(&d.shared)?, self.texts.width);
        let count = self.host.matrix_numbers();
        let numbers: Vec<Vec<f32>> = (0..at.owned.len()).map(|row| v.part(row, width, count)).collect();
        let mut moving = Moving { texts: &self.texts, at, v, d: to, columns: [0, 0] };
        let dt = self.host.gradients_by(at, &numbers, &mut moving)?;
        dt.iter().enumerate().for_each(|(row, dt)| to.set_part(row, width, dt));
        self.texts.health()
    }
}
