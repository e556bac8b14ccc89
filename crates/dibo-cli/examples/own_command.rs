//! A command of your own: run, tune, check, report and launch, for a problem that dibo does not know.
//! `cargo run --release -p dibo-cli --example own_command -- run targets`
use dibo::problem::{Bilevel, Metric, Values};
use dibo::{Result, rows::Upper};
use dibo_run::problems::{Ask, Built, Kind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The keys of `[problem] kind = "targets"`.
#[derive(Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Keys {
    /// One an agent: they agree on the mean.
    targets: Vec<f64>,
}

impl Kind for Keys {
    fn agents(&self, _: &std::path::Path) -> anyhow::Result<usize> {
        Ok(self.targets.len())
    }
    fn build(&self, ask: &Ask<'_>) -> anyhow::Result<Built> {
        ask.on_host("targets")?;
        Ok(Built::new(Targets(self.targets.clone())))
    }
}

/// f_i = ½(y − target_i)², g_i = ½(y − x)².
struct Targets(Vec<f64>);

impl Bilevel<f64> for Targets {
    fn agents(&self) -> usize {
        self.0.len()
    }
    fn upper(&self) -> Upper {
        Upper::Shared(1)
    }
    fn lower(&self) -> usize {
        1
    }
    fn grad_f(&self, i: usize, _: usize, _: &[f64], y: &[f64], gx: &mut [f64], gy: &mut [f64]) -> Result {
        (gx[0], gy[0]) = (0.0, y[0] - self.0[i]);
        Ok(())
    }
    fn grad_g(&self, _: usize, _: usize, x: &[f64], y: &[f64], gx: &mut [f64], gy: &mut [f64]) -> Result {
        (gx[0], gy[0]) = (x[0] - y[0], y[0] - x[0]);
        Ok(())
    }
    fn measures(&self) -> Vec<Metric> {
        vec![Metric::lower("distance", "distance from the mean target")]
    }
    fn metrics(&self, x: &[f64], _: Option<&[f64]>) -> Result<Values> {
        let mean = self.0.iter().sum::<f64>() / self.0.len() as f64;
        Ok(vec![("distance", (x[0] - mean).abs())])
    }
}

fn main() -> std::process::ExitCode {
    let file = include_str!("targets.toml");
    let registry = dibo_run::Registry::new().experiments(&[("targets", file)]);
    dibo_cli::main(registry.list_valued_problem::<Keys>("targets", &["targets"]))
}
