//! Wrong labels of texts: every way's directions, what models say of rows, and the time of a pass.
use super::{Checked, Report, apart, bert, on_device, told, value};
use dibo::mixing::Sequence;
use dibo::problem::learning::bert::Pool;
use dibo::problem::learning::labels::{Choices, From, Totals};
use dibo::problem::learning::{Labels, Model, Net, Site, Way};
use dibo::problem::{At, Bilevel, Penalty, SingleLevel};
use dibo::rng::{Purpose, stream};
use dibo::rows::{Stack, Threads, Upper};
use dibo_cuda::{DeviceLabels, DeviceNetwork, DeviceTexts, Gpu, Precision};
use rand::RngExt;
use std::sync::Arc;

/// Sites with texts of random tokens, unlike numbers of them; the last has nothing checked.
fn sites(count: usize, each: usize, length: usize, words: u16, classes: u8) -> Vec<Arc<Site>> {
    let site = |i: usize| {
        let mut r = stream(5, Purpose::Instance, i as u64, 0);
        let (given, checked) = (each + i, if i + 1 == count { 0 } else { 2 + i });
        let rows = given + checked + 1;
        let mut features = Vec::new();
        for _ in 0..rows {
            let used = r.random_range(2..=length);
            let token = |p: usize| if p < used { f32::from(r.random_range(1..words)) } else { 0.0 };
            features.extend((0..length).map(token));
        }
        let labels = (0..rows).map(|_| r.random_range(0..classes)).collect();
        Arc::new(Site { features, labels, given, checked, truth: Vec::new() })
    };
    (0..count).map(site).collect()
}

fn problem(sites: &[Arc<Site>], net: Net, way: Way, choices: Choices) -> Checked<Labels<f32>> {
    let sum = |of: fn(&Site) -> usize| sites.iter().map(|s| of(s) as f64).sum();
    let totals = Totals { given: sum(|s| s.given), checked: sum(|s| s.checked) };
    let problem = Labels::new(sites.to_vec(), net, way, choices, totals, 5)?;
    Ok(problem.test(sites[0].clone()))
}

/// A problem's state near its start.
fn near_start<const N: usize>(host: &Labels<f32>, mut v: Stack<f32, N>) -> Stack<f32, N> {
    let (start, mut r) = (host.start(), stream(8, Purpose::Noise, 0, 0));
    for i in 0..v.count() {
        for (variable, numbers) in v.row_mut(i).into_iter().enumerate() {
            if N > 1 && variable == 0 {
                numbers.iter_mut().for_each(|x| *x = r.random_range(0.1..1.0));
                continue;
            }
            // Parameters that pad a row stay zero.
            numbers.iter_mut().zip(&start.y[0]).for_each(|(t, s)| {
                let more = if *s == 0.0 { 0.0 } else { r.random_range(-0.02..0.02) };
                *t = *s as f32 * r.random_range(0.5..1.5) + more;
            });
        }
    }
    v
}

/// Every way, host against device.
pub fn labels(gpu: &Arc<Gpu>, report: &mut Report) -> Checked {
    let net = Net { pixels: 48, classes: 3, model: Model::Bert(bert(64, 2, 4, 50, Pool::Mean)) };
    let (sites, n) = (sites(3, 7, 24, 50, 3), 3);
    let network =
        DeviceNetwork::new(gpu, Sequence::uniform(dibo::graph::Cycle::new(n, 0.4, 3)), Threads::one());
    let (owned, threads) = ([0, 1, 2], Threads::new(8));
    for (way, from) in Way::ALL.into_iter().flat_map(|w| [From::Checked, From::Given].map(|f| (w, f))) {
        let choices = Choices { tau: 0.01, batch: 4, checked_batch: 2, warm: 2, from, ..Choices::default() };
        let Ok(host) = problem(&sites, net, way, choices) else { continue };
        if host.learns_regulariser() || from == From::Given && !way.has_matrix() {
            continue;
        }
        let texts = Arc::new(DeviceTexts::new(gpu, &host, Precision::Tf32)?);
        let told_here = problem(&sites, net, way, choices)?;
        let host = Arc::new(host);
        let device = DeviceLabels::new(host.clone(), texts.clone());
        let (width, mut worst) = (host.lower(), 0.0f64);
        for k in [0, 5] {
            let at = At { k, owned: &owned, threads: &threads };
            let (a, b) = if way.is_bilevel() {
                let zeros = || Stack::<f32, 3>::zeros(n, &host.upper(), &[width, width]);
                let (v, mut d) = (near_start(&host, zeros()), zeros());
                let (points, mut there) = (on_device(&network, v.clone()), on_device(&network, d.clone()));
                let penalty = Penalty { f: 0.7, g: 1.3 };
                host.penalty_directions(at, penalty, &v, &mut d).map_err(told)?;
                device.penalty_directions(at, penalty, &points, &mut there).map_err(told)?;
                let all = |s: &Stack<f32, 3>| {
                    [s.shared.to_vec(), s.private.as_ref().map_or_else(Vec::new, |p| p.to_vec())].concat()
                };
                (all(&there), all(&d))
            } else {
                let zeros = || Stack::<f32, 1>::zeros(n, &Upper::Shared(SingleLevel::width(&*host)), &[]);
                let (v, mut d) = (near_start(&host, zeros()), zeros());
                let (points, mut there) = (on_device(&network, v.clone()), on_device(&network, d.clone()));
                SingleLevel::gradients(&*host, at, &v, &mut d).map_err(told)?;
                SingleLevel::gradients(&device, at, &points, &mut there).map_err(told)?;
                (there.shared.to_vec(), d.shared.to_vec())
            };
            worst = worst.max(apart(&a, &b));
        }
        report.near(&format!("labels, {way:?} from {from:?}: directions"), worst, 1e-3);
        let w: Vec<f32> = host.start().y[0][..width].iter().map(|v| *v as f32).collect();
        let there = told_here.told_by(texts);
        let scores = |p: &Labels<f32>| -> Vec<f32> {
            p.verdicts(1, &w, None).iter().map(|v| v.log_odds as f32).collect()
        };
        report.near(&format!("labels, {way:?}: verdicts"), apart(&scores(&there), &scores(&host)), 2e-3);
    }
    gpu.health()
}

/// What an iteration's directions take at MiniLM's size, EM and FAB with a noise matrix, five sites.
pub fn labels_speed(gpu: &Arc<Gpu>) -> Checked {
    let net = Net { pixels: 256, classes: 2, model: Model::Bert(bert(384, 6, 12, 30522, Pool::Mean)) };
    let (sites, n) = (sites(5, 200, 128, 30000, 2), 5);
    let network =
        DeviceNetwork::new(gpu, Sequence::uniform(dibo::graph::Cycle::new(n, 0.4, 3)), Threads::one());
    let (owned, threads) = ([0, 1, 2, 3, 4], Threads::new(8));
    let choices = Choices { batch: 8, checked_batch: 8, warm: 0, ..Choices::default() };
    for precision in [Precision::Tf32, Precision::Bf16] {
        let host = Arc::new(problem(&sites, net, Way::Em, choices)?);
        let texts = Arc::new(DeviceTexts::new(gpu, &host, precision)?);
        let device = DeviceLabels::new(host.clone(), texts);
        let zeros = Stack::<f32, 1>::zeros(n, &Upper::Shared(SingleLevel::width(&*host)), &[]);
        let v = on_device(&network, near_start(&host, zeros.clone()));
        let mut d = on_device(&network, zeros);
        let mut ms = Vec::new();
        for k in 0..23 {
            let began = std::time::Instant::now();
            let at = At { k, owned: &owned, threads: &threads };
            SingleLevel::gradients(&device, at, &v, &mut d).map_err(told)?;
            gpu.synchronize();
            ms.push(1e3 * began.elapsed().as_secs_f64());
        }
        ms.drain(..3);
        ms.sort_by(f64::total_cmp);
        value(
            &format!("labels, MiniLM size, n=5, 8 + 8 texts, EM's directions, {precision:?}"),
            ms[10],
            "ms",
        );
    }
    gpu.health()
}
