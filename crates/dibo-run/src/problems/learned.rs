//! What one takes home of the tasks on built-in data: the model, the weights of the samples, the regulariser.
use super::Export;
use anyhow::{Context, Result};
use dibo::problem::learning::{Learning, Model, Task};
use dibo::rows::{Real, View};
use dibo_learn::{Encoded, Encoding, SavedModel, Shape};
use std::collections::BTreeMap;
use std::path::Path;

/// Writes the model of the first agent that is here, and what the upper level decided.
pub(super) fn export<T: Real>(problem: &Learning<T>) -> Option<Export<T>> {
    let (net, task, dealt) = (*problem.net(), problem.task(), problem.shared_dealt());
    let shape = match net.model {
        Model::Mlp(hidden) => Shape::Mlp { hidden },
        Model::Linear => Shape::Linear { bias: true },
        Model::LinearNoBias => Shape::Linear { bias: false },
        Model::Bert(_) => return None,
    };
    let (scale, shift) = problem.scaling();
    // a·byte + b is (byte + b/a)·a; where a is 0 the number is b, which no mean can say, and b is 0 there.
    let mean = |(a, b): (&T, &T)| if a.f64() == 0.0 { 0.0 } else { -b.f64() / a.f64() };
    let mean: Vec<f64> = scale.iter().zip(shift).map(mean).collect();
    let factor = scale.iter().map(|a| a.f64()).collect();
    let image = Encoded::Numbers { name: "image".into(), mean, factor };
    let encoding = Encoding { columns: vec![image], image: None };
    let classes: Vec<String> = (0..net.classes).map(|c| c.to_string()).collect();
    Some(Box::new(move |views, agents, folder| {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let find = |name: &str| views.iter().find(|v| v.name == name);
        let (model, upper) = match find("y") {
            Some(y) => (y, find("x")),
            None => match find("x") {
                Some(x) => (x, None),
                None => return Ok(()),
            },
        };
        let weights: Vec<f32> = model.row(0).iter().map(|w| w.f64() as f32).collect();
        if weights.len() != net.width() || weights.iter().any(|w| !w.is_finite()) {
            return Ok(());
        }
        let about = BTreeMap::from([("dibo".to_string(), env!("CARGO_PKG_VERSION").to_string())]);
        let (encoding, classes) = (encoding.clone(), classes.clone());
        crate::saved::save(&SavedModel { shape, encoding, classes, weights, about }, folder)?;
        let Some(upper) = upper else { return Ok(()) };
        match task {
            Task::Cleaning { .. } => {
                let given = |agent: usize| dealt.hands[agent].train.iter().zip(&dealt.hands[agent].given);
                let lines = agents.iter().enumerate().flat_map(|(row, agent)| {
                    given(*agent).zip(upper.row(row)).map(move |((sample, given), psi)| {
                        let weight = 1.0 / (1.0 + (-psi.f64()).exp());
                        [sample.to_string(), agent.to_string(), given.to_string(), format!("{weight:.6e}")]
                    })
                });
                write(&folder.join("weights.csv"), &["id", "owner", "given_label", "weight"], lines)
            }
            Task::Tuning { form, .. } => tau(upper, form, &folder.join("learned.csv")),
        }
    }))
}

fn tau<T: Real>(upper: &View<'_, T>, form: dibo::problem::learning::TauForm, file: &Path) -> Result<()> {
    let line = |(at, x): (usize, &T)| [format!("tau {at}"), format!("{:.6e}", form.tau(x.f64()).0)];
    write(file, &["what", "value"], upper.row(0).iter().enumerate().map(line))
}

fn write<const N: usize>(
    file: &Path,
    head: &[&str; N],
    lines: impl Iterator<Item = [String; N]>,
) -> Result<()> {
    let what = || format!("cannot write {}", file.display());
    let mut out = csv::Writer::from_writer(Vec::new());
    out.write_record(head).with_context(what)?;
    for line in lines {
        out.write_record(&line).with_context(what)?;
    }
    let bytes = out.into_inner().map_err(|e| anyhow::anyhow!("{e}")).with_context(what)?;
    dibo_report::results::write_file(file, &bytes)
}
