//! Cells whose rows lie on a device. The device here is a shelf in host memory, so that whatever a method
//! does there can be held against the host.
use dibo::Result;
use dibo::algorithm::ab::PushPull;
use dibo::algorithm::c2dfb::C2dfb;
use dibo::algorithm::cell::{Cell, Recipe};
use dibo::algorithm::centralized_fab::CentralizedFab;
use dibo::algorithm::direction::{Call, Direction, NeumannLocal, Soba, SobaFd};
use dibo::algorithm::double_loop::DoubleLoop;
use dibo::algorithm::free::Free;
use dibo::algorithm::hgp::Hgp;
use dibo::algorithm::ma_dsbo::MaDsbo;
use dibo::algorithm::published::*;
use dibo::algorithm::push_asgd::PushAsgd;
use dibo::algorithm::push_pull_soba::PushPullSoba;
use dibo::algorithm::push_saga::PushSaga;
use dibo::algorithm::push_sgd::PushSgd;
use dibo::algorithm::{Algorithm, Parameters, State};
use dibo::data::{Dataset, Noise, Partition, Recipe as Deal, Scaling, Split};
use dibo::graph::Static;
use dibo::mixing::{Mixing, Sequence};
use dibo::network::{Lane, Network, Simulator, Traffic, Wishes};
use dibo::problem::learning::{Learning, Model, Task};
use dibo::problem::{At, Bilevel, Penalty, Products, Quadratic, SecondOrder, Start};
use dibo::rows::{OnDevice, Rows, Stack, Threads, Upper};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

#[derive(Clone, Debug)]
struct Shelf {
    numbers: Vec<f64>,
    starts: Vec<usize>,
    ends: Vec<usize>,
}

fn shelf(rows: &dyn OnDevice<f64>) -> &Shelf {
    rows.any().downcast_ref().expect("a shelf")
}

/// ‖a − b‖².
fn squares(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum()
}

impl Shelf {
    fn stride(&self) -> usize {
        self.starts[1]
    }

    fn with(&mut self, other: &dyn OnDevice<f64>, job: impl Fn(&mut f64, f64)) {
        self.numbers.iter_mut().zip(&shelf(other).numbers).for_each(|(a, b)| job(a, *b));
    }

    /// Some columns of each row.
    fn rows(&self, columns: &Range<usize>) -> Vec<&[f64]> {
        self.numbers.chunks(self.stride()).map(|row| &row[columns.clone()]).collect()
    }

    /// One step for each column.
    fn steps(&self, values: &[f64]) -> Vec<f64> {
        assert_eq!(values.len(), self.ends.len(), "one step a variable");
        let of = |c: usize| self.ends.iter().position(|end| c < *end).map_or(0.0, |v| values[v]);
        (0..self.stride()).map(of).collect()
    }
}

impl OnDevice<f64> for Shelf {
    fn duplicate(&self) -> Box<dyn OnDevice<f64>> {
        Box::new(self.clone())
    }

    fn read(&self, from: usize, to: &mut [f64]) {
        to.copy_from_slice(&self.numbers[from..from + to.len()]);
    }

    fn write(&mut self, from: usize, numbers: &[f64]) {
        self.numbers[from..from + numbers.len()].copy_from_slice(numbers);
    }

    fn copy_from(&mut self, other: &dyn OnDevice<f64>) {
        self.with(other, |a, b| *a = b);
    }

    fn clear(&mut self) {
        self.numbers.fill(0.0);
    }

    fn add_scaled(&mut self, scale: f64, other: &dyn OnDevice<f64>) {
        self.with(other, |a, b| *a += scale * b);
    }

    fn scale_difference(&mut self, scale: f64, other: &dyn OnDevice<f64>) {
        self.with(other, |a, b| *a = scale * (b - *a));
    }

    fn sub_scaled_columns(&mut self, factors: &[f64], other: &dyn OnDevice<f64>) {
        let (steps, stride) = (self.steps(factors), self.stride());
        let all = self.numbers.iter_mut().zip(&shelf(other).numbers).enumerate();
        all.for_each(|(i, (a, b))| *a -= steps[i % stride] * b);
    }

    fn sub_scaled_mean(&mut self, factors: &[f64], other: &dyn OnDevice<f64>) {
        let (steps, stride) = (self.steps(factors), self.stride());
        let mean = shelf(other).mean(0..stride);
        self.numbers.iter_mut().enumerate().for_each(|(i, a)| *a -= steps[i % stride] * mean[i % stride]);
    }

    fn divide_into(&mut self, other: &dyn OnDevice<f64>, weights: &[f64]) {
        let stride = self.stride();
        let all = self.numbers.iter_mut().zip(&shelf(other).numbers).enumerate();
        all.for_each(|(i, (a, b))| *a = b / weights[i / stride]);
    }

    fn blend(
        &mut self,
        keep: f64,
        scale: f64,
        other: &dyn OnDevice<f64>,
        columns: Option<(Range<usize>, usize)>,
    ) {
        let other = shelf(other);
        let Some((columns, from)) = columns else {
            return self.with(other, |a, b| *a = if keep == 0.0 { 0.0 } else { keep * *a } + scale * b);
        };
        let strides = (self.stride(), other.stride());
        for row in 0..self.starts.len() - 1 {
            for (c, to) in columns.clone().enumerate() {
                let a = &mut self.numbers[row * strides.0 + to];
                let kept = if keep == 0.0 { 0.0 } else { keep * *a };
                *a = kept + scale * other.numbers[row * strides.1 + from + c];
            }
        }
    }

    fn take_largest(&mut self, top: usize, columns: Range<usize>, other: &dyn OnDevice<f64>) {
        let stride = self.stride();
        for (row, other) in self.numbers.chunks_mut(stride).zip(shelf(other).numbers.chunks(stride)) {
            let mut order: Vec<usize> = columns.clone().collect();
            // Stable, so that the first of equals stays first.
            order.sort_by(|a, b| (other[*b] - row[*b]).abs().total_cmp(&(other[*a] - row[*a]).abs()));
            order[..top].iter().for_each(|c| row[*c] = other[*c]);
        }
    }

    fn keep_in_ball(&mut self, columns: Range<usize>, radius: f64) {
        let stride = self.stride();
        for row in self.numbers.chunks_mut(stride) {
            let norm = row[columns.clone()].iter().map(|v| v * v).sum::<f64>().sqrt();
            let scale = if norm > radius { radius / norm } else { 1.0 };
            row[columns.clone()].iter_mut().for_each(|v| *v *= scale);
        }
    }

    fn mean(&self, columns: Range<usize>) -> Vec<f64> {
        let rows = self.rows(&columns);
        columns.enumerate().map(|(c, _)| rows.iter().map(|r| r[c]).sum::<f64>() / rows.len() as f64).collect()
    }

    fn consensus_error(&self, columns: Range<usize>) -> f64 {
        let (mean, rows) = (self.mean(columns.clone()), self.rows(&columns));
        rows.iter().map(|row| squares(row, &mean)).sum::<f64>() / rows.len() as f64
    }

    fn gap(&self, columns: Range<usize>, other: &dyn OnDevice<f64>) -> (f64, f64) {
        let (other, count) = (shelf(other), self.rows(&columns).len() as f64);
        let [own, others] = [self.mean(columns.clone()), other.mean(columns.clone())];
        let zero = vec![0.0; columns.len()];
        let sizes = other.rows(&columns).iter().map(|row| squares(row, &zero).sqrt()).sum();
        (count * squares(&own, &others).sqrt(), sizes)
    }

    fn any(&self) -> &dyn Any {
        self
    }

    fn any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// The simulator with its rows on shelves.
struct Shelves(Simulator<f64>);

impl Network<f64> for Shelves {
    fn agents(&self) -> usize {
        self.0.agents()
    }

    fn owned(&self) -> &[usize] {
        self.0.owned()
    }

    fn threads(&self) -> &Threads {
        self.0.threads()
    }

    fn place(&self, rows: &mut Rows<f64>, ends: &[usize]) {
        rows.place(|numbers, starts| {
            let (numbers, starts, ends) = (numbers.to_vec(), starts.to_vec(), ends.to_vec());
            Box::new(Shelf { numbers, starts, ends })
        });
    }

    fn prepare(&mut self, wishes: Wishes) -> Result<()> {
        self.0.prepare(wishes)
    }

    fn round(&mut self, k: usize, lanes: &mut [Lane<'_, f64>]) -> Result<()> {
        self.0.round_with(k, lanes, |mixing, lane| {
            mix(mixing, lane);
            Ok(())
        })
    }

    fn traffic(&self) -> Traffic {
        self.0.traffic()
    }

    fn set_traffic(&mut self, traffic: Traffic) {
        self.0.set_traffic(traffic);
    }
}

/// v ← A v − η∘t and t ← B t − d, number by number.
fn mix(mixing: &Mixing<f64>, lane: &mut Lane<'_, f64>) {
    lane.settle(&Threads::one());
    let mixed = |old: &Shelf, weight: &dyn Fn(f64, f64) -> f64| {
        let (mut new, stride) = (vec![0.0; old.numbers.len()], old.stride());
        mixing.for_each_entry(|i, j, a, b| {
            (0..stride).for_each(|c| new[i * stride + c] += weight(a, b) * old.numbers[j * stride + c]);
        });
        new
    };
    let t = lane.push.as_deref().map(Rows::to_vec);
    if let Some((v, eta)) = &mut lane.pull {
        let old = shelf(v.device().expect("on the shelf"));
        let mut new = mixed(old, &|a, _| a);
        let own = old.numbers.iter().map(|own| (1.0 - lane.share) * own);
        new.iter_mut().zip(own).for_each(|(v, own)| *v = own + lane.share * *v);
        if let Some(t) = &t {
            let (steps, stride) = (old.steps(eta), old.stride());
            new.iter_mut().zip(t).enumerate().for_each(|(i, (v, t))| *v -= steps[i % stride] * t);
        }
        v.restore(&new).expect("as many");
    }
    if let Some(push) = &mut lane.push {
        let mut new = mixed(shelf(push.device().expect("on the shelf")), &|_, b| b);
        let d = lane.d.map(Rows::to_vec).unwrap_or_default();
        new.iter_mut().zip(&d).for_each(|(t, d)| *t -= d);
        push.restore(&new).expect("as many");
    }
}

/// A problem that computes where the rows lie: the penalty's directions, and SOBA's if it has them.
struct There<P> {
    problem: P,
    soba: bool,
}

impl<P: Bilevel<f64>> There<P> {
    fn home(&self, away: &Stack<f64, 3>) -> Stack<f64, 3> {
        let mut stack =
            Stack::zeros(away.count(), &self.problem.upper(), &[self.problem.lower(), self.problem.lower()]);
        stack.shared.restore(&away.shared.to_vec()).expect("as many");
        if let (Some(to), Some(from)) = (&mut stack.private, &away.private) {
            to.restore(&from.to_vec()).expect("as many");
        }
        stack
    }
}

fn bring(to: &mut Stack<f64, 3>, from: &Stack<f64, 3>) {
    to.shared.restore(from.shared.data()).expect("as many");
    if let (Some(to), Some(from)) = (&mut to.private, &from.private) {
        to.restore(from.data()).expect("as many");
    }
}

impl<P: Bilevel<f64>> Bilevel<f64> for There<P> {
    fn agents(&self) -> usize {
        self.problem.agents()
    }

    fn upper(&self) -> Upper {
        self.problem.upper()
    }

    fn lower(&self) -> usize {
        self.problem.lower()
    }

    fn grad_f(&self, _: usize, _: usize, _: &[f64], _: &[f64], _: &mut [f64], _: &mut [f64]) -> Result<()> {
        unreachable!("the rows are away")
    }

    fn grad_g(&self, _: usize, _: usize, _: &[f64], _: &[f64], _: &mut [f64], _: &mut [f64]) -> Result<()> {
        unreachable!("the rows are away")
    }

    fn penalty_directions(
        &self,
        at: At<'_>,
        penalty: Penalty,
        v: &Stack<f64, 3>,
        d: &mut Stack<f64, 3>,
    ) -> Result<()> {
        let mut home = self.home(d);
        self.problem.penalty_directions(at, penalty, &self.home(v), &mut home)?;
        bring(d, &home);
        Ok(())
    }

    fn soba_directions(
        &self,
        at: At<'_>,
        by: Products,
        only: Option<usize>,
        v: &Stack<f64, 3>,
        d: &mut Stack<f64, 3>,
    ) -> Result<bool> {
        if !self.soba {
            return Ok(false);
        }
        let rule: Box<dyn Direction<f64>> = match by {
            Products::Exact => Box::new(Soba),
            Products::Differences { delta, relative } => Box::new(SobaFd { delta, relative }),
            Products::Series { curvature, terms } => Box::new(NeumannLocal { curvature, terms }),
        };
        let (v, mut home) = (self.home(v), self.home(d));
        for (row, agent) in at.owned.iter().enumerate() {
            let (v, call) = (v.row(row), Call { agent: *agent, k: at.k, only });
            let mut workspace = vec![0.0; rule.workspace(v[0].len(), v[1].len())];
            rule.of_agent(&self.problem, call, v, home.row_mut(row), &mut workspace)?;
        }
        bring(d, &home);
        Ok(true)
    }

    fn second_order(&self) -> Option<&dyn SecondOrder<f64>> {
        self.problem.second_order()
    }

    fn start(&self) -> Start {
        self.problem.start()
    }
}

/// The variables after 12 iterations, and what is measured of them.
fn run(
    algorithm: &dyn Algorithm<f64>,
    problem: &dyn Bilevel<f64>,
    network: &mut dyn Network<f64>,
) -> Vec<Vec<f64>> {
    let mut state: Box<dyn State<f64>> = algorithm.start(problem, network, None).expect("it starts");
    (0..12).for_each(|k| state.step(k, problem, network).expect("it goes on"));
    let views = state.views();
    let wanted = ["x", "y", "z", "v", "tx", "ty"];
    let of = |name: &&str| views.iter().find(|v| v.name == *name);
    let mut all: Vec<_> = wanted.iter().filter_map(of).map(|v| v.to_vecs().concat()).collect();
    let y = of(&"y").expect("a y");
    let mean = y.mean().expect("rows of one width");
    all.push(vec![y.consensus_error(&mean)]);
    if let (Some(t), Some(d)) = (of(&"ty"), of(&"dy")) {
        let (gap, sizes) = t.gap(d);
        all.push(vec![gap, sizes]);
    }
    all.push(mean);
    all
}

fn network(agents: usize) -> Simulator<f64> {
    Simulator::new(Sequence::uniform(Static::ring(agents)), Threads::one())
}

fn alike(name: &str, algorithm: &dyn Algorithm<f64>, make: &dyn Fn() -> Box<dyn Pair>) {
    let pair = make();
    let here = run(algorithm, pair.here(), &mut network(3));
    let there = run(algorithm, pair.there(), &mut Shelves(network(3)));
    assert_eq!(here.len(), there.len(), "{name}");
    for (a, b) in here.iter().flatten().zip(there.iter().flatten()) {
        assert!((a - b).abs() <= 1e-9 * (1.0 + a.abs()), "{name}: {a} on the host, {b} on the device");
    }
}

/// A problem twice: here and there.
trait Pair {
    fn here(&self) -> &dyn Bilevel<f64>;
    fn there(&self) -> &dyn Bilevel<f64>;
}

impl<P: Bilevel<f64>> Pair for There<P> {
    fn here(&self) -> &dyn Bilevel<f64> {
        &self.problem
    }

    fn there(&self) -> &dyn Bilevel<f64> {
        self
    }
}

/// With an x that is shared.
fn quadratic() -> Box<dyn Pair> {
    Box::new(There { problem: Quadratic::random(3, 2, 5, 7, false), soba: true })
}

/// With an x of each agent's own.
fn cleaning() -> Box<dyn Pair> {
    let images: Vec<u8> = (0..60 * 4).map(|i| (i * 37 % 251) as u8).collect();
    let labels: Vec<u8> = (0..60).map(|i| i % 3).collect();
    let data = Arc::new(Dataset::new(images, labels, 4, 3).expect("a data set"));
    let (partition, split) = (Partition::Dirichlet(0.7), Split::Share(0.7));
    let deal = Deal { agents: 3, partition, split, noise: Noise::Uniform, cr: 0.4, seed: 5 };
    let dealt = Arc::new(deal.deal(data.clone(), data).expect("it is dealt"));
    let task = Task::Cleaning { tau: 0.01, psi: 0.2 };
    let problem = Learning::<f64>::new(dealt, Model::Mlp(5), task, Scaling::Standardised, 3);
    Box::new(There { problem: problem.expect("a problem").batch(4), soba: true })
}

/// One object and another.
fn and(mut one: Value, other: &Value) -> Value {
    let all = one.as_object_mut().expect("an object");
    all.extend(other.as_object().expect("an object").clone());
    one
}

/// With steps of x and y.
fn stepped(parameters: Value) -> Value {
    and(json!({"eta_x": 0.02, "eta_y": 0.05}), &parameters)
}

fn cell<R: Recipe + DeserializeOwned>(parameters: Value) -> Cell<R>
where
    Cell<R>: Parameters,
{
    let cell = Cell(serde_json::from_value::<R>(stepped(parameters)).expect("a method"));
    cell.check().expect("in range");
    cell
}

/// A method with all its parameters.
fn looped<A: Algorithm<f64> + DeserializeOwned + 'static>(parameters: Value) -> Box<dyn Algorithm<f64>> {
    let method = serde_json::from_value::<A>(parameters).expect("a method");
    method.check().expect("in range");
    Box::new(method)
}

#[test]
fn methods_on_a_device_go_where_they_go_on_the_host() {
    let free = |mixing: &str, estimator: Value, sweep: &str, direction: Value| {
        let all = and(json!({"mixing": mixing, "sweep": sweep}), &estimator);
        Box::new(cell::<Free>(and(all, &direction))) as Box<dyn Algorithm<f64>>
    };
    let (plain, penalty) = (json!({}), json!({"direction": "penalty", "lambda": 2.0}));
    let storm = json!({"estimator": "storm", "a": 0.3});
    let series = json!({"direction": "neumann-local", "curvature": 9.0, "terms": 4});
    let neumann = json!({"eta": 0.3, "alpha_1": 1.0, "alpha_2": 1.0, "beta_1": 0.1, "beta_2": 0.2,
        "curvature": 9.0, "terms": 4});
    let ma_dsbo =
        |tracked: bool| stepped(json!({"theta": 0.3, "inner": 2, "inner_z": 3, "tracked": tracked}));
    let hgp = |more: Value| {
        let plain = json!({"alpha": 0.1, "inner": 2, "terms": 3, "pushes": 2});
        stepped(and(plain, &more))
    };
    let c2dfb = json!({"lambda": 2.0, "inner": 2, "gossip_in": 0.5, "gossip_out": 0.6});
    let double = |more: Value| and(json!({"eta": 0.05, "inner": 3}), &more);
    let momentum = json!({"estimator": "momentum", "theta": 0.4});
    let methods: Vec<(&str, Box<dyn Algorithm<f64>>)> = vec![
        ("d-soba", Box::new(cell::<DSoba>(json!({"theta": 0.3})))),
        ("d-soba-fo", Box::new(cell::<DSobaFo>(json!({"theta": 0.3, "delta": 0.01})))),
        ("sparkle-gt", Box::new(cell::<SparkleGt>(json!({"theta": 0.3})))),
        ("sparkle-ed", Box::new(cell::<SparkleEd>(json!({"theta": 0.3})))),
        ("sparkle-extra", Box::new(cell::<SparkleExtra>(json!({"theta": 0.3})))),
        ("sparkle-ed-gt", Box::new(cell::<SparkleEdGt>(json!({"theta": 0.3})))),
        ("sldbo", Box::new(cell::<Sldbo>(json!({"radius_z": 0.05})))),
        ("dsgda-gt", Box::new(cell::<DsgdaGt>(json!({"lambda": 2.0})))),
        ("penalty-storm", Box::new(cell::<PenaltyStorm>(json!({"lambda": 2.0, "a": 0.3})))),
        ("sun-dsbo-gt", Box::new(cell::<SunDsboGt>(json!({"mu": 0.5, "gamma": 2.0})))),
        ("sun-dsbo-se", Box::new(cell::<SunDsboSe>(json!({"mu": 0.5, "gamma": 2.0})))),
        ("push-soba", Box::new(cell::<PushSoba>(json!({})))),
        ("push-soba with STORM", Box::new(cell::<PushSoba>(json!({"a": 0.3})))),
        ("penalty one by one", free("gt-xatc", plain.clone(), "sequential", penalty.clone())),
        ("penalty, sgp, storm", free("sgp", storm, "sequential", penalty.clone())),
        ("penalty, ab, momentum", free("ab", momentum, "simultaneous", penalty)),
        ("soba, gt-atc-raw", free("gt-atc-raw", plain, "sequential", json!({"direction": "soba"}))),
        ("push-pull-soba", Box::new(PushPullSoba { eta_x: 0.02.into(), eta_y: 0.05.into(), eta_v: None })),
        ("mdbo", looped::<Cell<Mdbo>>(neumann.clone())),
        ("vrdbo", looped::<Cell<Vrdbo>>(neumann)),
        ("neumann-local one by one", free("ab", json!({}), "sequential", series)),
        ("ma-dsbo", looped::<MaDsbo>(ma_dsbo(false))),
        ("ma-dsbo, tracked", looped::<MaDsbo>(ma_dsbo(true))),
        ("hgp", looped::<Hgp>(hgp(json!({})))),
        ("hgp, warm", looped::<Hgp>(hgp(json!({"warm": true, "keep_weight": true, "adapt": "after"})))),
        ("c2dfb", looped::<C2dfb>(stepped(c2dfb.clone()))),
        ("c2dfb, top", looped::<C2dfb>(stepped(and(c2dfb, &json!({"top": 2}))))),
        ("centralized-fab", looped::<CentralizedFab>(stepped(json!({"lambda": 2.0})))),
        ("dl-push-pull", looped::<DoubleLoop<PushPull>>(double(json!({})))),
        ("dl-push-sgd", looped::<DoubleLoop<PushSgd>>(double(json!({"inner_start": "kept"})))),
        ("dl-push-asgd", looped::<DoubleLoop<PushAsgd>>(double(json!({"beta": 0.5})))),
        ("dl-push-saga", looped::<DoubleLoop<PushSaga>>(double(json!({})))),
    ];
    for (name, method) in &methods {
        alike(&format!("{name}, shared x"), method.as_ref(), &quadratic);
        alike(&format!("{name}, private x"), method.as_ref(), &cleaning);
    }
}

/// What a problem does not have on the device is an error, not a panic.
#[test]
fn directions_that_are_not_there_are_refused() {
    let problem = There { problem: Quadratic::random(3, 2, 5, 7, false), soba: false };
    let soba = PushPullSoba { eta_x: 0.02.into(), eta_y: 0.05.into(), eta_v: None };
    let methods: [Box<dyn Algorithm<f64>>; 2] =
        [Box::new(cell::<DSoba>(json!({"theta": 0.3}))), Box::new(soba)];
    for method in methods {
        let refused = method.start(&problem, &mut Shelves(network(3)), None).err().map(|e| e.to_string());
        assert_eq!(
            refused.as_deref(),
            Some("needs these directions on a GPU, which this problem does not have")
        );
    }
}
