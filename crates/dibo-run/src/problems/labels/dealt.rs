//! A built-in data set dealt out to sites, with labels made wrong on purpose.
use super::LabelsKeys;
use crate::data;
use crate::sites::held_out;
use anyhow::{Result, anyhow, bail};
use dibo::data::{Dataset, Noise, Partition};
use dibo::problem::learning::Site;
use dibo::problem::learning::labels::Totals;
use dibo::rng::{Purpose, stream};
use rand::seq::SliceRandom;
use std::sync::Arc;

/// What the sites have together.
pub fn totals(sites: &[Arc<Site>]) -> Totals {
    let sum = |of: fn(&Site) -> usize| sites.iter().map(|s| of(s) as f64).sum();
    Totals { given: sum(|s| s.given), checked: sum(|s| s.checked) }
}

/// Sites, test rows, and how pixels are scaled.
pub type Dealt = (Vec<Arc<Site>>, Arc<Site>, Vec<(f32, f32)>);

/// A built-in data set dealt out to sites, with the test set and the scaling of pixels.
pub fn dealt(k: &LabelsKeys, seed: u64) -> Result<Dealt> {
    let (mut train, test) = data::load(&k.data)?;
    if k.samples > 0 && k.samples < train.len() {
        let mut some: Vec<u32> = (0..train.len() as u32).collect();
        some.shuffle(&mut stream(seed, Purpose::Instance, 0, 0));
        train = Arc::new(train.subset(&some[..k.samples]));
    }
    let partition = if k.rho == 0.0 { Partition::Uniform } else { Partition::Dirichlet(k.rho) };
    let parts = partition
        .deal(train.labels(), train.classes(), k.agents, seed)
        .map_err(|e| anyhow!("{}: {e}", k.data))?;
    if k.noise == Noise::Asymmetric && train.classes() != 10 {
        bail!("asymmetric noise is a map of ten labels; the data has {}", train.classes());
    }
    let scale: Vec<(f32, f32)> = k
        .scaling
        .fit(&train, parts.iter().flatten().copied())
        .iter()
        .map(|(a, b)| (*a as f32, *b as f32))
        .collect();
    let mut bad: Vec<usize> = (0..k.agents).collect();
    bad.shuffle(&mut stream(seed, Purpose::Labels, u64::MAX, 0));
    let bad = if k.bad_agents == 0 { &bad[..] } else { &bad[..k.bad_agents.min(k.agents)] };
    let mut sites = Vec::with_capacity(k.agents);
    for (agent, mut rows) in parts.into_iter().enumerate() {
        rows.shuffle(&mut stream(seed, Purpose::Split, agent as u64, 0));
        if rows.len() <= k.checked {
            bail!("agent {agent} has {} samples; {} checked ones are asked for", rows.len(), k.checked);
        }
        let given = rows.len() - k.checked;
        let mut r = stream(seed, Purpose::Labels, agent as u64, 0);
        let cr = if bad.contains(&agent) { k.cr } else { 0.0 };
        let truth: Vec<u8> = rows[..given].iter().map(|i| train.labels()[*i as usize]).collect();
        let mut labels: Vec<u8> =
            truth.iter().map(|l| k.noise.label(*l, train.classes(), cr, &mut r)).collect();
        labels.extend(rows[given..].iter().map(|i| train.labels()[*i as usize]));
        let known = truth.iter().map(|t| Some((*t).into()));
        let checked = k.checked - held_out(k.checked, k.held);
        let features = features(&train, &rows, &scale);
        sites.push(Arc::new(Site { features, labels, given, checked, truth: known.collect() }));
    }
    let count = if k.test > 0 { k.test.min(test.len()) } else { test.len() };
    let some: Vec<u32> = (0..count).map(|i| (i * test.len() / count) as u32).collect();
    let labels = some.iter().map(|i| test.labels()[*i as usize]).collect();
    let test = Site { features: features(&test, &some, &scale), labels, ..Site::default() };
    Ok((sites, Arc::new(test), scale))
}

/// Images as the numbers that a model sees.
fn features(data: &Dataset, rows: &[u32], scale: &[(f32, f32)]) -> Vec<f32> {
    let row = |i: &u32| data.image(*i as usize).iter().zip(scale).map(|(v, (a, b))| f32::from(*v) * a + b);
    rows.iter().flat_map(row).collect()
}
