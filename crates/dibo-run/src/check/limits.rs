//! Which steps are known to diverge, from the closed forms of a problem and the network's own condition.
use crate::door::{Ready, Visit};
use crate::setting::Setting;
use anyhow::Result;
use dibo::algorithm::PenaltySteps;
use dibo::problem::{At, Bilevel, Constants, Penalty};
use dibo::rows::{Real, Stack, Threads, Upper};
use dibo::theory::steps;
use dibo_report::report::words::number;
use std::collections::BTreeMap;

/// What has been found out already: settings share problems and networks.
#[derive(Default)]
pub struct Cache {
    growth: BTreeMap<String, f64>,
}

/// What is known to go wrong, and what may.
#[derive(Debug, Default)]
pub struct Findings {
    /// It will.
    pub warnings: Vec<String>,
    /// It may.
    pub caution: Option<String>,
}

/// Looks at the steps of a penalty method on a problem whose constants have closed forms.
pub(super) struct Steps<'a> {
    pub seed: u64,
    pub cache: &'a mut Cache,
    /// Also look for what may go wrong, which takes longer.
    pub thorough: bool,
}

impl Visit for Steps<'_> {
    type Out = Findings;

    fn visit<T: Real>(self, ready: Ready<'_, T>) -> Result<Findings> {
        let setting = ready.setting();
        let mut findings = Findings::default();
        let Some(steps) = setting.parameters().penalty_steps(0).filter(|_| setting.problem.closed_forms())
        else {
            return Ok(findings);
        };
        let Some(c) = ready.problem.constants() else { return Ok(findings) };
        let Constants { sigma_max, g_curvature, kinds, .. } = &c;
        findings.warnings = steps::step_warnings(steps.eta, steps.g, sigma_max.unwrap_or(0.0), *g_curvature);
        if !findings.warnings.is_empty() || !setting.mixes_by_pulling() {
            return Ok(findings);
        }
        let largest = steps.eta[1].max(steps.eta[2]);
        let mut limit = Limit { ready: &ready, setting, seed: self.seed, kinds, cache: self.cache };
        let found = limit.at(largest * steps.g * g_curvature);
        findings.warnings.extend(found.map(|(rate, share)| {
            let eta = number(largest * share);
            format!(
                "will diverge: on this network differences between agents grow by {rate:.4} an iteration; \
                eta_y \
                and eta_z must be below {eta} here"
            )
        }));
        if self.thorough && findings.warnings.is_empty() {
            let found = limit.at(joint_curvature(ready.problem, steps, kinds)?);
            findings.caution = found.map(|(_, share)| {
                format!(
                    "may diverge: close to what this network bears; {share:.2} times these steps are safer"
                )
            });
        }
        Ok(findings)
    }
}

/// Whether the network itself makes a step times curvature unstable (the ring's cubic condition, on any
/// network).
struct Limit<'a, T: Real> {
    ready: &'a Ready<'a, T>,
    setting: &'a Setting,
    seed: u64,
    kinds: &'a [usize],
    cache: &'a mut Cache,
}

impl<T: Real> Limit<'_, T> {
    /// By what factor differences grow an iteration, and what share of the steps the network bears. A growth
    /// that the run is too short to show does not count.
    fn at(&mut self, h: f64) -> Option<(f64, f64)> {
        let (place, seed) = (self.setting.place_key(), self.seed);
        let mut growth = |h: f64| {
            let key = format!("{seed} {place} {h}");
            let known = self.cache.growth.entry(key);
            *known.or_insert_with(|| steps::growth(self.ready.graphs(), self.kinds, h))
        };
        let rate = growth(h);
        if self.setting.run.iterations as f64 * rate.ln() <= 14.0 {
            return None;
        }
        let (mut low, mut high) = (0.0, h);
        for _ in 0..8 {
            let middle = 0.5 * (low + high);
            if growth(middle) > 1.0 { high = middle } else { low = middle }
        }
        Some((rate, low / h))
    }
}

/// The largest step times curvature of an agent's x, y and z together: the spectral radius of diag(η)J, where
/// J is the derivative of FAB's directions. They are affine here, so differences give J exactly.
fn joint_curvature<T: Real>(problem: &dyn Bilevel<T>, steps: PenaltySteps, kinds: &[usize]) -> Result<f64> {
    let (upper, m) = (problem.upper(), problem.lower());
    let Upper::Shared(d) = upper else { return Ok(0.0) };
    let (size, penalty) = (d + 2 * m, Penalty { f: steps.g / steps.lambda, g: steps.g });
    let eta = |r: usize| steps.eta[if r < d { 0 } else { 1 + usize::from(r >= d + m) }];
    let directions = |agent: usize, unit: Option<usize>| -> Result<Vec<f64>> {
        let mut v: Stack<T, 3> = Stack::zeros(1, &upper, &[m, m]);
        unit.into_iter().for_each(|c| v.shared.row_mut(0)[c] = T::ONE);
        let mut out = v.clone();
        let at = At { k: 0, owned: &[agent], threads: &Threads::one() };
        problem.penalty_directions(at, penalty, &v, &mut out)?;
        Ok(out.shared.row(0)[..size].iter().map(|d| d.f64()).collect())
    };
    let of_agent = |agent: usize| -> Result<f64> {
        let rest = directions(agent, None)?;
        let column = |c: usize| -> Result<Vec<f64>> {
            Ok(directions(agent, Some(c))?.iter().zip(&rest).map(|(a, b)| a - b).collect())
        };
        let columns = (0..size).map(column).collect::<Result<Vec<_>>>()?;
        let (mut v, mut radius) = ((0..size).map(|i| 1.0 + (i as f64).sin()).collect::<Vec<f64>>(), 0.0);
        for _ in 0..300 {
            let mut next = vec![0.0; size];
            for (column, x) in columns.iter().zip(&v) {
                next.iter_mut().zip(column).for_each(|(n, c)| *n += c * x);
            }
            next.iter_mut().enumerate().for_each(|(r, n)| *n *= eta(r));
            radius = next.iter().map(|n| n * n).sum::<f64>().sqrt();
            v = next.iter().map(|n| n / radius.max(f64::MIN_POSITIVE)).collect();
        }
        Ok(radius)
    };
    // Agents of one kind are alike; a few kinds tell enough.
    let mut first: Vec<usize> = kinds.to_vec();
    first.sort_unstable();
    first.dedup();
    let radii = first.into_iter().take(8).map(of_agent).collect::<Result<Vec<_>>>()?;
    Ok(radii.into_iter().fold(0.0, f64::max))
}
