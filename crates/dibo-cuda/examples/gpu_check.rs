//! Checks the GPU against the host and times it: `gpu_check [kernels] [rows] [gradients] [tuning] [runs]
//! [methods] [labels] [mlp] [bert]` (all but the first if none is named). Prints a table; ends with code 1 if
//! a number is not as near to the host's as it should be, or if the GPU fails.
#[path = "parts/labels.rs"]
mod labels;

use dibo::algorithm::Algorithm;
use dibo::algorithm::ab::PushPull;
use dibo::algorithm::c2dfb::C2dfb;
use dibo::algorithm::cell::Cell;
use dibo::algorithm::centralized_fab::CentralizedFab;
use dibo::algorithm::direction::{Call, Direction, NeumannLocal, Soba, SobaFd};
use dibo::algorithm::double_loop::DoubleLoop;
use dibo::algorithm::fab::Fab;
use dibo::algorithm::hgp::Hgp;
use dibo::algorithm::ma_dsbo::MaDsbo;
use dibo::algorithm::published::*;
use dibo::algorithm::push_asgd::PushAsgd;
use dibo::algorithm::push_pull_soba::PushPullSoba;
use dibo::algorithm::push_saga::PushSaga;
use dibo::algorithm::push_sgd::PushSgd;
use dibo::data::{Dataset, Noise, Partition, Recipe, Scaling, Split};
use dibo::graph::{Cycle, Static};
use dibo::mixing::Sequence;
use dibo::network::{Lane, Network, Simulator};
use dibo::problem::learning::bert::{Bert, Pool};
use dibo::problem::learning::{Learning, Model, Task, TauForm};
use dibo::problem::{At, Bilevel, Penalty, Products, SingleLevel};
use dibo::rng::{Purpose, stream};
use dibo::rows::{Rows, Stack, Threads, Upper};
use dibo_cuda::{DeviceLearning, DeviceNetwork, Gpu, Precision};
use rand::RngExt;
use serde::de::DeserializeOwned;
use std::fmt::Display;
use std::process::ExitCode;
use std::sync::Arc;

/// A failure ends the program with one line.
type Checked<T = ()> = Result<T, String>;

fn told(e: impl Display) -> String {
    e.to_string()
}

struct Report {
    wrong: bool,
}

impl Report {
    fn near(&mut self, what: &str, difference: f64, most: f64) {
        let ok = difference <= most;
        self.wrong |= !ok;
        println!("{what:<64} {difference:>10.2e}  (at most {most:.0e}) {}", if ok { "ok" } else { "WRONG" });
    }
}

fn value(what: &str, value: f64, unit: &str) {
    println!("{what:<64} {value:>10.3} {unit}");
}

fn random_rows(n: usize, width: usize, seed: u64) -> Rows<f32> {
    let mut r = stream(seed, Purpose::Instance, 0, 0);
    let mut rows = Rows::zeros(n, width);
    (0..n).for_each(|i| rows.row_mut(i).iter_mut().for_each(|v| *v = r.random_range(-1.0..1.0)));
    rows
}

/// ‖a − b‖ / ‖b‖, poisoned by anything not finite.
fn apart(a: &[f32], b: &[f32]) -> f64 {
    let (mut gap, mut size) = (0.0, 0.0);
    for (a, b) in a.iter().zip(b) {
        gap += (f64::from(*a) - f64::from(*b)).powi(2);
        size += f64::from(*b).powi(2);
    }
    if gap.is_finite() { (gap / size.max(1e-300)).sqrt() } else { f64::INFINITY }
}

/// One size of rows: mixing, the other kernels and metrics, host against device.
fn rows(gpu: &Arc<Gpu>, report: &mut Report, n: usize, width: usize) -> Checked {
    let sequence = Sequence::uniform(Cycle::new(n, 0.4, 3));
    let (mut host, mut device) =
        (Simulator::new(sequence.clone(), Threads::one()), DeviceNetwork::new(gpu, sequence, Threads::one()));
    let cut = width / 3;
    let all: [Rows<f32>; 3] = [1, 2, 3].map(|s| random_rows(n, width, s));
    let [mut v, mut t, d] = all.clone();
    let [mut dv, mut dt, mut dd] = all;
    for rows in [&mut dv, &mut dt, &mut dd] {
        device.place(rows, &[cut, width]);
    }
    let mut eta = vec![0.0; v.stride()];
    eta[..cut].fill(0.1);
    eta[cut..width].fill(0.3);
    for k in 0..6 {
        host.round(k, &mut [Lane::push_pull(&mut v, &eta, &mut t, &d, k % 2 == 1)]).map_err(told)?;
        device
            .round(k, &mut [Lane::push_pull(&mut dv, &[0.1, 0.3], &mut dt, &dd, k % 2 == 1)])
            .map_err(told)?;
        host.round(k, &mut [Lane::push(&mut t)]).map_err(told)?;
        device.round(k, &mut [Lane::push(&mut dt)]).map_err(told)?;
    }
    let worst = apart(&dv.to_vec(), v.data()).max(apart(&dt.to_vec(), t.data()));
    report.near(&format!("mixing, {n} agents, {width} columns"), worst, 1e-6);
    let (one, w) = (Threads::one(), Rows::from_vectors(&vec![[1.7]; n]));
    v.add_scaled(0.3, &t, &one);
    v.scale_difference(0.7, &d, &one);
    v.sub_scaled_columns(&eta, &t, &one);
    t.divide_into(&v, &w, &one);
    dv.add_scaled(0.3, &dt, &one);
    dv.scale_difference(0.7, &dd, &one);
    dv.sub_scaled_columns(&[0.1, 0.3], &dt, &one);
    dt.divide_into(&dv, &w, &one);
    let worst = apart(&dt.to_vec(), t.data());
    report.near(&format!("other kernels, {n} agents, {width} columns"), worst, 1e-6);
    let view = |rows| dibo::algorithm::View { name: "t", rows, columns: Some(cut..width) };
    let (here, there) = (view(&t), view(&dt));
    let mean = here.mean().ok_or("rows of several widths")?;
    let gap = |a: f64, b: f64| (a - b).abs() / b.abs().max(1e-12);
    let (h, g) = (view(&v).gap(&here), view(&dv).gap(&there));
    let metrics =
        gap(there.consensus_error(&[]), here.consensus_error(&mean)).max(gap(g.0, h.0)).max(gap(g.1, h.1));
    let worst = if n == 1 { gap(g.1, h.1) } else { metrics };
    report.near(&format!("metrics, {n} agents, {width} columns"), worst, 1e-4);
    largest(gpu, report, &device, n, width)
}

/// The columns in which rows differ most, many of them by as much as others.
fn largest(gpu: &Arc<Gpu>, report: &mut Report, device: &DeviceNetwork, n: usize, width: usize) -> Checked {
    let coarse = |seed: u64| {
        let mut rows = random_rows(n, width, seed);
        rows.data_mut().iter_mut().for_each(|v| *v = (8.0 * *v).round() / 8.0);
        rows
    };
    let (from, mut worst) = (width / 3, 0.0f64);
    let columns = width - from;
    for top in [1, columns.div_ceil(10), columns.div_ceil(2), columns] {
        let [mut a, mut b] = [coarse(5), coarse(6)];
        let mut expected = a.clone();
        for i in 0..n {
            let (to, new) = (&mut expected.row_mut(i)[from..width], &b.row(i)[from..width]);
            let mut order: Vec<usize> = (0..columns).collect();
            order.sort_by(|p, q| (new[*q] - to[*q]).abs().total_cmp(&(new[*p] - to[*p]).abs()));
            order[..top].iter().for_each(|c| to[*c] = new[*c]);
        }
        [&mut a, &mut b].into_iter().for_each(|rows| device.place(rows, &[width]));
        if let (Some(a), Some(b)) = (a.device_mut(), b.device()) {
            a.take_largest(top, from..width, b);
        }
        worst = worst.max(apart(&a.to_vec(), expected.data()));
    }
    report.near(&format!("largest differences, {n} agents, {width} columns"), worst, 1e-12);
    gpu.health()
}

/// Speed of mixing three stacks of 10 × 100M numbers.
fn mixing_speed(gpu: &Arc<Gpu>) -> Checked {
    let (n, width) = (10, 100_000_000);
    let mut device = DeviceNetwork::new(gpu, Sequence::uniform(Cycle::new(n, 0.5, 3)), Threads::one());
    let make = |seed: u64| {
        let mut rows = Rows::<f32>::zeros(n, width);
        rows.row_mut(0)[..1000].fill(seed as f32);
        device.place(&mut rows, &[width / 2, width]);
        rows
    };
    let (mut v, mut t, d) = (make(1), make(2), make(3));
    let bytes = v.bytes() as f64;
    let best = |job: &mut dyn FnMut()| {
        job();
        let mut times: Vec<f64> = (0..9).map(|_| gpu.time(&mut *job)).collect();
        times.sort_by(f64::total_cmp);
        times[4]
    };
    let copy = best(&mut || t.copy_from(&d));
    let copied = 2.0 * bytes / copy / 1e9;
    let mut k = 0;
    let mix = best(&mut || {
        k += 1;
        // What fails is kept by the GPU and told below.
        let _ = device.round(k, &mut [Lane::push_pull(&mut v, &[0.1, 0.2], &mut t, &d, true)]);
    });
    let push = best(&mut || drop(device.round(0, &mut [Lane::track(&mut t, &d)])));
    gpu.health()?;
    value("copy on the device", copied, "TB/s");
    value("fused v = Av - eta t, t = B(t + d) - d, 10 x 100M", mix, "ms");
    value("  its bandwidth", 5.0 * bytes / mix / 1e9, "TB/s");
    value("  of the copy's", 100.0 * 5.0 * bytes / mix / 1e9 / copied, "%");
    value("  t = B t - d alone, of the copy's bandwidth", 100.0 * 3.0 * bytes / push / 1e9 / copied, "%");
    Ok(())
}

fn images(samples: usize, pixels: usize, classes: usize, seed: u64) -> Checked<Arc<Dataset>> {
    let mut r = stream(seed, Purpose::Instance, 0, 0);
    let labels: Vec<u8> = (0..samples).map(|_| r.random_range(0..classes as u8)).collect();
    let images = labels.iter().flat_map(|l| {
        (0..pixels).map(|p| if p == *l as usize { 255 } else { r.random_range(0..120) }).collect::<Vec<u8>>()
    });
    let images = images.collect();
    Dataset::new(images, labels, pixels, classes).map(Arc::new).map_err(told)
}

/// Random texts, one in three of them short; words 5 and 6 give the class away.
fn texts(samples: usize, length: usize, words: usize, seed: u64) -> Checked<Arc<Dataset>> {
    let mut r = stream(seed, Purpose::Instance, 0, 0);
    let (mut bytes, mut labels) = (Vec::new(), Vec::new());
    for _ in 0..samples {
        let (label, used) = (
            r.random_range(0..2u8),
            if r.random_range(0..3) == 0 { r.random_range(2..length) } else { length },
        );
        for t in 0..length {
            let word = if t == 1 { 5 + u16::from(label) } else { r.random_range(7..words as u16) };
            bytes.extend((if t < used { word } else { 0 }).to_le_bytes());
        }
        labels.push(label);
    }
    Dataset::new(bytes, labels, 2 * length, 2).map(Arc::new).map_err(told)
}

fn recipe(agents: usize) -> Recipe {
    Recipe {
        agents,
        partition: Partition::Dirichlet(0.7),
        split: Split::Share(0.7),
        noise: Noise::Uniform,
        cr: 0.4,
        seed: 5,
    }
}

fn bert(hidden: usize, layers: usize, heads: usize, words: usize, pool: Pool) -> Bert {
    Bert {
        vocabulary: words,
        positions: 512,
        types: 2,
        hidden,
        layers,
        heads,
        intermediate: 4 * hidden,
        epsilon: 1e-12,
        pool,
    }
}

fn problem(
    [data, test]: [Checked<Arc<Dataset>>; 2],
    agents: usize,
    model: Model,
    batch: usize,
) -> Checked<Learning<f32>> {
    of_task([data, test], agents, model, batch, Task::Cleaning { tau: 0.01, psi: 0.2 })
}

fn of_task(
    [data, test]: [Checked<Arc<Dataset>>; 2],
    agents: usize,
    model: Model,
    batch: usize,
    task: Task,
) -> Checked<Learning<f32>> {
    let dealt = Arc::new(recipe(agents).deal(data?, test?).map_err(told)?);
    let p = Learning::new(dealt, model, task, Scaling::Standardised, 3).map_err(told)?;
    Ok(if batch > 0 { p.batch(batch) } else { p })
}

fn on_device<const N: usize>(device: &DeviceNetwork, mut stack: Stack<f32, N>) -> Stack<f32, N> {
    let ends: Vec<usize> = (0..N).map(|v| stack.cut(v).end).collect();
    device.place(&mut stack.shared, &ends);
    if let Some(private) = &mut stack.private {
        device.place(private, &[]);
    }
    stack
}

/// SOBA's directions on the host, agent by agent.
fn soba_on_host(
    host: &Learning<f32>,
    at: At<'_>,
    by: Products,
    v: &Stack<f32, 3>,
    d: &mut Stack<f32, 3>,
) -> dibo::Result<()> {
    let rule: Box<dyn Direction<f32>> = match by {
        Products::Exact => Box::new(Soba),
        Products::Differences { delta, relative } => Box::new(SobaFd { delta, relative }),
        Products::Series { curvature, terms } => Box::new(NeumannLocal { curvature, terms }),
    };
    for agent in at.owned {
        let (v, call) = (v.row(*agent), Call { agent: *agent, k: at.k, only: None });
        let mut workspace = vec![0.0; rule.workspace(v[0].len(), v[1].len())];
        rule.of_agent(host, call, v, d.row_mut(*agent), &mut workspace)?;
    }
    Ok(())
}

/// SOBA's directions, host against device.
fn soba(
    report: &mut Report,
    name: &str,
    (host, device): (&Learning<f32>, &DeviceLearning),
    network: &DeviceNetwork,
    v: &Stack<f32, 3>,
) -> Checked {
    let (owned, threads) = ((0..v.count()).collect::<Vec<_>>(), Threads::new(8));
    let (width, points) = (host.lower(), on_device(network, v.clone()));
    let differences = Products::Differences { delta: 1e-3, relative: true };
    for (by, word, most) in [(Products::Exact, "exact", 5e-3), (differences, "differences", 2e-2)] {
        let mut d = Stack::<f32, 3>::zeros(v.count(), &host.upper(), &[width, width]);
        let mut there = on_device(network, d.clone());
        let at = At { k: 1, owned: &owned, threads: &threads };
        soba_on_host(host, at, by, v, &mut d).map_err(told)?;
        device.soba_directions(at, by, None, &points, &mut there).map_err(told)?;
        let (a, b) = (there.shared.to_vec(), d.shared.data());
        let part = |numbers: &[f32], variable: usize| -> Vec<f32> {
            let rows = numbers.chunks(d.shared.stride());
            rows.flat_map(|row| row[d.cut(variable)].to_vec()).collect()
        };
        let shared_x = d.private.is_none().then_some((0, "x"));
        for (variable, letter) in [(1, "y"), (2, "z")].into_iter().chain(shared_x) {
            let worst = apart(&part(&a, variable), &part(b, variable));
            report.near(&format!("{name}: SOBA's d of {letter}, {word}"), worst, most);
        }
        let private = |s: &Stack<f32, 3>| s.private.as_ref().map_or_else(Vec::new, Rows::to_vec);
        report.near(&format!("{name}: SOBA's d of psi, {word}"), apart(&private(&there), &private(&d)), most);
    }
    Ok(())
}

/// Directions and gradients at random points near the start, host against device.
fn compare(
    gpu: &Arc<Gpu>,
    report: &mut Report,
    name: &str,
    make: &dyn Fn() -> Checked<Learning<f32>>,
    precision: Precision,
    most: f64,
) -> Checked {
    let (host, device) = (make()?, DeviceLearning::new(gpu, make()?, precision)?);
    let n = Bilevel::agents(&host);
    let network = DeviceNetwork::new(gpu, Sequence::uniform(Cycle::new(n, 0.4, 3)), Threads::one());
    let width = host.lower();
    let start = host.start();
    let mut r = stream(8, Purpose::Noise, 0, 0);
    let mut v = Stack::<f32, 3>::zeros(n, &host.upper(), &[width, width]);
    for i in 0..n {
        let [x, y, z] = v.row_mut(i);
        x.iter_mut().for_each(|x| *x = r.random_range(-1.0..1.0));
        for to in [y, z] {
            // Parameters that pad the row stay zero.
            let Some(start) = start.y.first() else {
                to.iter_mut().for_each(|t| *t = r.random_range(-0.3..0.3));
                continue;
            };
            to.iter_mut().zip(start).for_each(|(t, s)| {
                *t = *s as f32 * r.random_range(0.5..1.5)
                    + if *s == 0.0 { 0.0 } else { r.random_range(-0.02..0.02) }
            });
        }
    }
    let (owned, threads) = ((0..n).collect::<Vec<_>>(), Threads::new(8));
    let mut d = Stack::<f32, 3>::zeros(n, &host.upper(), &[width, width]);
    let mut there = d.clone();
    // Poison, but for the last few of each variable, which may be padding that nobody writes.
    for i in 0..n {
        let [_, y, z] = there.row_mut(i);
        [y, z].into_iter().for_each(|d| d[..width - 16].fill(f32::NAN));
    }
    let (points, mut there) = (on_device(&network, v.clone()), on_device(&network, there));
    for k in [0, 3] {
        let (at, penalty) = (At { k, owned: &owned, threads: &threads }, Penalty { f: 0.7, g: 1.3 });
        host.penalty_directions(at, penalty, &v, &mut d).map_err(told)?;
        device.penalty_directions(at, penalty, &points, &mut there).map_err(told)?;
        let (a, b) = (there.shared.to_vec(), d.shared.data());
        report.near(&format!("{name}: d of y and z, k = {k}"), apart(&a, b), most);
        let private = |s: &Stack<f32, 3>| s.private.as_ref().map_or_else(Vec::new, Rows::to_vec);
        report.near(&format!("{name}: d of psi, k = {k}"), apart(&private(&there), &private(&d)), 3.0 * most);
    }
    if precision == Precision::Tf32 {
        soba(report, name, (&host, &device), &network, &v)?;
    }
    let mut x = Stack::<f32, 1>::zeros(n, &Upper::Shared(width), &[]);
    (0..n).for_each(|i| x.row_mut(i)[0].copy_from_slice(v.row(i)[1]));
    let mut g = Stack::<f32, 1>::zeros(n, &Upper::Shared(width), &[]);
    let (points, mut there) = (on_device(&network, x.clone()), on_device(&network, g.clone()));
    let at = At { k: 2, owned: &owned, threads: &threads };
    SingleLevel::gradients(&host, at, &x, &mut g).map_err(told)?;
    SingleLevel::gradients(&device, at, &points, &mut there).map_err(told)?;
    let worst = apart(&there.shared.to_vec(), g.shared.data());
    report.near(&format!("{name}: a single-level gradient"), worst, most);
    gpu.health()
}

/// Linear models, and tuning.
fn tuning(gpu: &Arc<Gpu>, report: &mut Report) -> Checked {
    for (model, word) in
        [(Model::Linear, "linear"), (Model::LinearNoBias, "linear without bias"), (Model::Mlp(16), "MLP")]
    {
        let cleaning = || problem([images(400, 64, 5, 1), images(50, 64, 5, 2)], 4, model, 16);
        compare(gpu, report, &format!("{word} 64-5"), &cleaning, Precision::Tf32, 1e-3)?;
        for form in [TauForm::Plain, TauForm::Projected, TauForm::Exp, TauForm::Softplus] {
            let task = Task::Tuning { form, tau: 0.2 };
            let tuning = || of_task([images(400, 64, 5, 1), images(50, 64, 5, 2)], 4, model, 16, task);
            compare(gpu, report, &format!("{word} 64-5, tuning {form:?}"), &tuning, Precision::Tf32, 1e-3)?;
        }
    }
    Ok(())
}

fn gradients(gpu: &Arc<Gpu>, report: &mut Report) -> Checked {
    let large = || problem([images(400, 784, 10, 1), images(50, 784, 10, 2)], 4, Model::Mlp(64), 16);
    compare(gpu, report, "MLP 784-64-10", &large, Precision::Tf32, 1e-3)?;
    let small = || problem([images(60, 9, 3, 1), images(50, 9, 3, 2)], 3, Model::Mlp(5), 0);
    compare(gpu, report, "MLP 9-5-3 full batch", &small, Precision::Tf32, 1e-3)?;
    for (precision, word, most) in [(Precision::Tf32, "TF32", 1e-3), (Precision::Bf16, "bf16", 1e-2)] {
        for (pool, name) in [(Pool::First, "first token"), (Pool::Mean, "mean")] {
            let model = Model::Bert(bert(64, 2, 4, 50, pool));
            let small = || problem([texts(60, 24, 50, 1), texts(30, 24, 50, 2)], 3, model, 5);
            compare(gpu, report, &format!("BERT 2x64, {name}, {word}"), &small, precision, most)?;
            let task = Task::Tuning { form: TauForm::Exp, tau: 0.01 };
            let tuning = || of_task([texts(60, 24, 50, 1), texts(30, 24, 50, 2)], 3, model, 5, task);
            compare(gpu, report, &format!("BERT 2x64, tuning, {name}, {word}"), &tuning, precision, most)?;
        }
        let model = Model::Bert(bert(384, 6, 12, 900, Pool::First));
        let mini = || problem([texts(60, 40, 900, 1), texts(30, 40, 900, 2)], 2, model, 2);
        compare(gpu, report, &format!("BERT 6x384, {word}"), &mini, precision, most)?;
    }
    Ok(())
}

/// The same gradient of many 16-bit BERTs with a regulariser again and again: once some were not numbers.
fn repeated(gpu: &Arc<Gpu>, report: &mut Report) -> Checked {
    let model = Model::Bert(bert(384, 6, 12, 900, Pool::Mean));
    let host = problem([texts(400, 128, 900, 1), texts(30, 128, 900, 2)], 10, model, 4)?;
    let (n, width, start) = (Bilevel::agents(&host), Bilevel::lower(&host), host.start());
    let device = DeviceLearning::new(gpu, host, Precision::Bf16)?;
    let network = DeviceNetwork::new(gpu, Sequence::uniform(Cycle::new(n, 0.4, 3)), Threads::one());
    let mut x = Stack::<f32, 1>::zeros(n, &Upper::Shared(width), &[]);
    for i in 0..n {
        x.row_mut(i)[0].iter_mut().zip(&start.y[0]).for_each(|(x, s)| *x = *s as f32);
    }
    let g = Stack::<f32, 1>::zeros(n, &Upper::Shared(width), &[]);
    let (points, mut there) = (on_device(&network, x), on_device(&network, g));
    let (owned, threads) = ((0..n).collect::<Vec<_>>(), Threads::one());
    let at = At { k: 0, owned: &owned, threads: &threads };
    let (mut first, mut worst) = (Vec::new(), 0.0f64);
    for time in 0..200 {
        SingleLevel::gradients(&device, at, &points, &mut there).map_err(told)?;
        let now = there.shared.to_vec();
        if time == 0 {
            first = now;
        } else {
            worst = worst.max(apart(&now, &first));
        }
    }
    report.near("BERT 6x384 of ten agents, bf16: 200 gradients alike", worst, 1e-3);
    gpu.health()
}

fn fab(eta_y: f64) -> Fab {
    Fab {
        lambda: 1.0.into(),
        eta_x: 1.0.into(),
        eta_y: eta_y.into(),
        eta_z: None,
        penalty_form: Default::default(),
    }
}

/// Whole runs of FAB, host against device: the first iterates agree, and the loss falls.
fn runs(gpu: &Arc<Gpu>, report: &mut Report) -> Checked {
    let sequence = Sequence::uniform(Cycle::new(4, 0.4, 3));
    let fab = fab(0.05);
    let model = Model::Bert(bert(32, 1, 2, 30, Pool::Mean));
    let make = || problem([texts(200, 16, 30, 1), texts(100, 16, 30, 2)], 4, model, 4);
    let (host, device) = (make()?, DeviceLearning::new(gpu, make()?, Precision::Tf32)?);
    let (mut here, mut there) =
        (Simulator::new(sequence.clone(), Threads::one()), DeviceNetwork::new(gpu, sequence, Threads::one()));
    let mut a = Algorithm::<f32>::start(&fab, &host, &mut here, None).map_err(told)?;
    let mut b = Algorithm::<f32>::start(&fab, &device, &mut there, None).map_err(told)?;
    for k in 0..20 {
        a.step(k, &host, &mut here).map_err(told)?;
        b.step(k, &device, &mut there).map_err(told)?;
    }
    for (x, y) in a.views().iter().zip(b.views()) {
        let (x, y) = (x.to_vecs().concat(), y.to_vecs().concat());
        report.near(
            &format!("FAB, 20 iterations, {}", if x.len() == y.len() { "a view" } else { "SIZES DIFFER" }),
            apart(&y, &x),
            2e-2,
        );
    }
    let (here, there) =
        (dibo::metrics::evaluate(&host, &a.views()), dibo::metrics::evaluate(&device, &b.views()));
    let (here, there) = (here.map_err(told)?, there.map_err(told)?);
    for ((name, x), (_, y)) in here.iter().zip(&there) {
        println!("  {name:<20} host {x:>12.6}  device {y:>12.6}");
    }
    gpu.health()
}

/// A published method of the zoo by its parameters.
fn zoo<R: DeserializeOwned>(parameters: serde_json::Value) -> Checked<Box<dyn Algorithm<f32>>>
where
    Cell<R>: Algorithm<f32> + 'static,
{
    Ok(Box::new(Cell(serde_json::from_value::<R>(with(parameters)).map_err(told)?)))
}

/// These parameters and two steps.
fn with(parameters: serde_json::Value) -> serde_json::Value {
    let mut all = serde_json::json!({"eta_x": 1.0, "eta_y": 0.05});
    if let (Some(all), Some(more)) = (all.as_object_mut(), parameters.as_object()) {
        all.extend(more.clone());
    }
    all
}

/// A method by all its parameters.
fn method<A>(parameters: serde_json::Value) -> Checked<Box<dyn Algorithm<f32>>>
where
    A: Algorithm<f32> + DeserializeOwned + 'static,
{
    Ok(Box::new(serde_json::from_value::<A>(parameters).map_err(told)?))
}

/// Methods of the zoo, host against device: 20 iterations with an MLP.
fn methods(gpu: &Arc<Gpu>, report: &mut Report) -> Checked {
    use serde_json::json;
    let soba = PushPullSoba { eta_x: 1.0.into(), eta_y: 0.05.into(), eta_v: None };
    let neumann = json!({"eta": 0.3, "alpha_1": 1.0, "alpha_2": 1.0, "beta_1": 1.0, "beta_2": 0.2,
        "curvature": 9.0, "terms": 4});
    let all: Vec<(&str, Box<dyn Algorithm<f32>>)> = vec![
        ("D-SOBA", zoo::<DSoba>(json!({"theta": 0.3}))?),
        ("D-SOBA-FO", zoo::<DSobaFo>(json!({"theta": 0.3, "delta": 0.01}))?),
        ("SPARKLE-GT", zoo::<SparkleGt>(json!({"theta": 0.3}))?),
        ("SPARKLE-ED", zoo::<SparkleEd>(json!({"theta": 0.3}))?),
        ("SPARKLE-EXTRA", zoo::<SparkleExtra>(json!({"theta": 0.3}))?),
        ("SPARKLE-ED-GT", zoo::<SparkleEdGt>(json!({"theta": 0.3}))?),
        ("SLDBO", zoo::<Sldbo>(json!({"radius_z": 0.05}))?),
        ("DSGDA-GT", zoo::<DsgdaGt>(json!({"lambda": 2.0}))?),
        ("penalty and STORM", zoo::<PenaltyStorm>(json!({"lambda": 2.0, "a": 0.3}))?),
        ("SUN-DSBO-GT", zoo::<SunDsboGt>(json!({"mu": 0.5, "gamma": 2.0}))?),
        ("SUN-DSBO-SE", zoo::<SunDsboSe>(json!({"mu": 0.5, "gamma": 2.0}))?),
        ("Push-SOBA", zoo::<PushSoba>(json!({}))?),
        ("Push-SOBA and STORM", zoo::<PushSoba>(json!({"a": 0.3}))?),
        ("PushPull_SOBA", Box::new(soba)),
        ("MDBO", method::<Cell<Mdbo>>(neumann.clone())?),
        ("VRDBO", method::<Cell<Vrdbo>>(neumann)?),
        ("MA-DSBO", method::<MaDsbo>(with(json!({"theta": 0.3, "inner": 2, "inner_z": 3})))?),
        ("HGP", method::<Hgp>(with(json!({"alpha": 0.1, "inner": 2, "terms": 3, "pushes": 2})))?),
        (
            "C2DFB",
            method::<C2dfb>(with(json!({"lambda": 2.0, "inner": 2, "gossip_in": 0.5, "gossip_out": 0.6})))?,
        ),
        (
            "C2DFB with top = 7",
            method::<C2dfb>(with(
                json!({"lambda": 2.0, "inner": 2, "gossip_in": 0.5, "gossip_out": 0.6, "top": 7}),
            ))?,
        ),
        ("DL-Push-Pull", method::<DoubleLoop<PushPull>>(json!({"eta": 0.05, "inner": 3}))?),
        (
            "DL-Push-SGD",
            method::<DoubleLoop<PushSgd>>(json!({"eta": 0.05, "inner": 3, "inner_start": "kept"}))?,
        ),
        ("DL-Push-ASGD", method::<DoubleLoop<PushAsgd>>(json!({"eta": 0.05, "inner": 3, "beta": 0.5}))?),
        ("DL-Push-SAGA", method::<DoubleLoop<PushSaga>>(json!({"eta": 0.05, "inner": 3}))?),
        ("Centralized_FAB", Box::new(CentralizedFab(fab(0.05)))),
        ("FAB", Box::new(fab(0.05))),
    ];
    let sequence = Sequence::uniform(Static::ring(4));
    let tuning = Task::Tuning { form: TauForm::Exp, tau: 0.02 };
    let cleaning = Task::Cleaning { tau: 0.01, psi: 0.2 };
    let models = [(Model::Mlp(16), cleaning, "an MLP"), (Model::Linear, tuning, "tuning of a linear model")];
    for ((name, method), (model, task, word)) in all.iter().flat_map(|m| models.map(|p| (m, p))) {
        let make = || of_task([images(400, 64, 5, 1), images(50, 64, 5, 2)], 4, model, 16, task);
        let (host, device) = (make()?, DeviceLearning::new(gpu, make()?, Precision::Tf32)?);
        let mut here = Simulator::new(sequence.clone(), Threads::one());
        let mut there = DeviceNetwork::new(gpu, sequence.clone(), Threads::one());
        let mut a = method.start(&host, &mut here, None).map_err(told)?;
        let mut b = method.start(&device, &mut there, None).map_err(told)?;
        for k in 0..20 {
            a.step(k, &host, &mut here).map_err(told)?;
            b.step(k, &device, &mut there).map_err(told)?;
        }
        let (a, b) = (a.views(), b.views());
        let mut worst = 0.0f64;
        for (x, y) in a.iter().zip(&b).filter(|(x, _)| ["x", "y", "z", "v"].contains(&x.name)) {
            worst = worst.max(apart(&y.to_vecs().concat(), &x.to_vecs().concat()));
        }
        report.near(&format!("{name}, 20 iterations with {word}"), worst, 2e-2);
    }
    gpu.health()
}

fn iteration(gpu: &Arc<Gpu>, name: &str, device: &DeviceLearning, iterations: usize) -> Checked {
    let n = Bilevel::agents(device);
    let mut network = DeviceNetwork::new(gpu, Sequence::uniform(Cycle::new(n, 0.5, 3)), Threads::one());
    let mut state = Algorithm::<f32>::start(&fab(1e-4), device, &mut network, None).map_err(told)?;
    (0..5).try_for_each(|k| state.step(k, device, &mut network)).map_err(told)?;
    gpu.synchronize();
    let mut times = Vec::new();
    for k in 5..5 + iterations {
        let from = std::time::Instant::now();
        let _ = state.step(k, device, &mut network);
        gpu.synchronize();
        times.push(from.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    let many = std::time::Instant::now();
    (0..iterations).try_for_each(|k| state.step(100 + k, device, &mut network)).map_err(told)?;
    gpu.synchronize();
    let each = many.elapsed().as_secs_f64() * 1e3 / iterations as f64;
    gpu.health()?;
    value(&format!("{name}: median iteration, waited for"), times[iterations / 2], "ms");
    value(&format!("{name}: mean of {iterations} iterations in a row"), each, "ms");
    value(&format!("{name}: GPU memory at most"), gpu.held().1 as f64 / (1u64 << 30) as f64, "GiB");
    Ok(())
}

/// One model against another program's: `folder` holds sizes (text), weights and gradients (32 bits, in this
/// library's order), tokens and labels.
fn against(gpu: &Arc<Gpu>, report: &mut Report, folder: &str) -> Checked {
    let read =
        |name: &str| std::fs::read(format!("{folder}/{name}")).map_err(|e| format!("{folder}/{name}: {e}"));
    let floats = |name: &str| -> Checked<Vec<f32>> {
        Ok(read(name)?.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
    };
    let sizes: Result<Vec<usize>, _> =
        String::from_utf8_lossy(&read("sizes")?).split_whitespace().map(str::parse).collect();
    let [vocabulary, positions, hidden, layers, heads, intermediate, length] =
        sizes.map_err(|e| format!("{folder}/sizes: {e}"))?[..]
    else {
        return Err(format!("{folder}/sizes: seven numbers are needed"));
    };
    let model = Model::Bert(Bert {
        vocabulary,
        positions,
        types: 2,
        hidden,
        layers,
        heads,
        intermediate,
        epsilon: 1e-12,
        pool: Pool::First,
    });
    let data = Arc::new(Dataset::new(read("tokens")?, read("labels")?, 2 * length, 2).map_err(told)?);
    let make = || {
        let clean = Recipe { partition: Partition::Uniform, split: Split::Share(0.5), cr: 0.0, ..recipe(1) };
        let dealt = Arc::new(clean.deal(data.clone(), data.clone()).map_err(told)?);
        let task = Task::Cleaning { tau: 0.0, psi: 0.0 };
        Learning::<f32>::new(dealt, model, task, Scaling::Unit, 3).map_err(told)
    };
    let (weights, expected, owned, threads) =
        (floats("weights")?, floats("gradients")?, [0usize], Threads::new(8));
    let (host, mut x) = (make()?, Stack::<f32, 1>::zeros(1, &Upper::Shared(weights.len()), &[]));
    if weights.len() != Bilevel::lower(&host) || expected.len() > weights.len() {
        return Err(format!("{folder}: {} parameters are needed", Bilevel::lower(&host)));
    }
    x.row_mut(0)[0].copy_from_slice(&weights);
    let network = DeviceNetwork::new(gpu, Sequence::uniform(Cycle::new(1, 0.4, 3)), Threads::one());
    let at = At { k: 0, owned: &owned, threads: &threads };
    let mut g = Stack::<f32, 1>::zeros(1, &Upper::Shared(weights.len()), &[]);
    let (points, mut there) = (on_device(&network, x.clone()), on_device(&network, g.clone()));
    SingleLevel::gradients(&host, at, &x, &mut g).map_err(told)?;
    let worst = apart(g.row(0)[0], &expected);
    report.near(&format!("host against PyTorch in double, {layers} layers"), worst, 1e-4);
    for (precision, most) in [(Precision::Tf32, 1e-3), (Precision::Bf16, 1e-2)] {
        let device = DeviceLearning::new(gpu, make()?, precision)?;
        SingleLevel::gradients(&device, at, &points, &mut there).map_err(told)?;
        let worst = apart(&there.shared.to_vec()[..expected.len()], &expected);
        let what = format!("device in {precision:?} against PyTorch in double, {layers} layers");
        report.near(&what, worst, most);
    }
    gpu.health()
}

/// Does what is asked for on a GPU.
fn check(gpu: &Arc<Gpu>, report: &mut Report, asked: &[String]) -> Checked {
    let wanted = |name: &str| asked.is_empty() || asked.iter().any(|a| a == name);
    println!("{}, {:.1} GiB free", gpu.name(), gpu.memory().0 as f64 / (1u64 << 30) as f64);
    if let Some(folder) = asked.iter().position(|a| a == "against").and_then(|i| asked.get(i + 1)) {
        against(gpu, report, folder)?;
    }
    if wanted("rows") {
        for (n, width) in [(1, 5), (3, 45), (10, 30_001), (16, 1000), (32, 777), (40, 500)] {
            rows(gpu, report, n, width)?;
        }
        mixing_speed(gpu)?;
    }
    if wanted("gradients") {
        gradients(gpu, report)?;
        repeated(gpu, report)?;
    }
    if wanted("tuning") {
        tuning(gpu, report)?;
    }
    if wanted("runs") {
        runs(gpu, report)?;
    }
    if wanted("methods") {
        methods(gpu, report)?;
    }
    if wanted("labels") {
        labels::labels(gpu, report)?;
        labels::labels_speed(gpu)?;
    }
    if wanted("mlp") {
        let host = problem([images(6000, 784, 10, 1), images(100, 784, 10, 2)], 10, Model::Mlp(256), 64)?;
        let device = DeviceLearning::new(gpu, host, Precision::Tf32)?;
        iteration(gpu, "MLP n=10 h=256 batch 64", &device, 200)?;
    }
    for (which, precision) in [("bert-tf32", Precision::Tf32), ("bert-bf16", Precision::Bf16)] {
        if !wanted("bert") && !wanted(which) {
            continue;
        }
        for (name, hidden, layers) in [("MiniLM size", 384, 6), ("BERT-base size", 768, 12)] {
            let model = Model::Bert(bert(hidden, layers, 12, 30522, Pool::First));
            let data = [texts(2000, 128, 30000, 1), texts(100, 128, 30000, 2)];
            let device = DeviceLearning::new(gpu, problem(data, 10, model, 4)?, precision)?;
            iteration(gpu, &format!("{name} n=10 batch 4, {which}"), &device, 20)?;
        }
    }
    // What is still under way may fail too.
    gpu.synchronize();
    gpu.health()
}

fn main() -> ExitCode {
    let asked: Vec<String> = std::env::args().skip(1).collect();
    if asked.iter().any(|a| a == "kernels") {
        // Needs NVRTC alone.
        let checked = dibo_cuda::check_kernels();
        println!("{checked:?}");
        return ExitCode::from(u8::from(checked.is_err()));
    }
    let gpu = match Gpu::new(0) {
        Ok(gpu) => gpu,
        Err(e) => {
            eprintln!("{e}");
            return ExitCode::from(2);
        }
    };
    let mut report = Report { wrong: false };
    if let Err(e) = check(&gpu, &mut report, &asked) {
        eprintln!("{e}");
        return ExitCode::FAILURE;
    }
    println!("{}", if report.wrong { "SOMETHING IS WRONG" } else { "all near" });
    ExitCode::from(u8::from(report.wrong))
}
