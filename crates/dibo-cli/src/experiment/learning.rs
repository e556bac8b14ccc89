//! `[problem] kind = "cleaning"` and `kind = "tuning"`: learning on image data.
use crate::data;
use anyhow::{Result, anyhow};
use dibo::data::{Noise, Partition, Recipe, Scaling, Split};
use dibo::problem::learning::bert::Pool;
use dibo::problem::learning::{Learning, Model, Task, TauForm, TrainOn};
use dibo::rng::{Purpose, stream};
use dibo::rows::{Real, Threads};
use rand::seq::SliceRandom;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What both kinds may hold.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LearningSpec {
    /// `mnist-2500` (comes with dibo), `mnist`, `fashion-mnist` or `imdb`.
    data: String,
    pub agents: usize,
    /// Samples in use, drawn by the seed; 0 for all.
    samples: usize,
    /// Training and validation samples of each agent; 0 for nine tenths and one tenth.
    train: usize,
    validation: usize,
    /// Dirichlet label skew; 0 for equal agents.
    rho: f64,
    noise: Noise,
    cr: f64,
    /// `linear`, `linear-no-bias`, `mlp`, or `bert` (on texts).
    model: String,
    hidden: usize,
    /// Regulariser; in tuning, where it starts.
    tau: f64,
    /// Where the sample weights' ψ starts.
    psi: f64,
    tau_form: TauForm,
    /// Folder of a BERT inside the data folder; its sizes and weights are read there.
    pretrained: String,
    /// Tokens of a text.
    length: usize,
    pool: Pool,
    /// Test samples in use, at even distances; 0 for all.
    test: usize,
    /// Samples in a batch; 0 for all.
    batch: usize,
    scaling: Scaling,
    /// 32 or 64.
    pub bits: usize,
}

/// So few samples may be copied in any case.
const COPIED: usize = 5_000;

impl Default for LearningSpec {
    fn default() -> Self {
        LearningSpec {
            data: "mnist-2500".into(),
            agents: 10,
            samples: 0,
            train: 0,
            validation: 0,
            rho: 0.0,
            noise: Noise::Uniform,
            cr: 0.4,
            model: "linear".into(),
            hidden: 256,
            tau: 0.002,
            psi: 0.0,
            tau_form: TauForm::Plain,
            pretrained: "minilm".into(),
            length: 128,
            pool: Pool::First,
            test: 0,
            batch: 0,
            scaling: Scaling::Standardised,
            bits: 32,
        }
    }
}

/// What an `[[algorithm]]` changes of the problem: its keys `train_on`, `tau` and `tau_form`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Changes {
    /// Which samples a single-level method trains on.
    pub train_on: TrainOn,
    /// The regulariser of a single-level method, if other than the problem's.
    pub tau: Option<f64>,
    /// Where τ starts for a method that learns it, if elsewhere.
    pub tau_start: Option<f64>,
    /// How τ comes from x for a method that learns it, if otherwise.
    pub tau_form: Option<TauForm>,
}

impl LearningSpec {
    /// Says which value is out of range; the message begins with its name.
    pub fn check(&self) -> Result<(), String> {
        if !data::NAMES.contains(&self.data.as_str()) {
            return Err(format!("data is '{}'; known are {}", self.data, data::NAMES.join(", ")));
        }
        if self.agents == 0 || self.agents > 100_000 {
            return Err(format!("agents is {}; it must be between 1 and 100,000", self.agents));
        }
        if !(0.0..=1.0).contains(&self.cr) {
            return Err(format!("cr is {}; it must lie between 0 and 1", self.cr));
        }
        if !(self.rho >= 0.0 && self.rho.is_finite()) {
            return Err(format!("rho is {}; it must be 0 (equal agents) or more", self.rho));
        }
        if !["linear", "linear-no-bias", "mlp", "bert"].contains(&self.model.as_str()) {
            return Err(format!("model is '{}'; known are linear, linear-no-bias, mlp, bert", self.model));
        }
        if (self.model == "bert") != (self.data == "imdb") {
            return Err(format!(
                "model is '{}' on {}; a bert reads texts (imdb), the other models images",
                self.model, self.data
            ));
        }
        if self.length < 4 || self.length > 512 {
            return Err(format!("length is {}; it must be between 4 and 512", self.length));
        }
        if self.bits != 32 && self.bits != 64 {
            return Err(format!("bits is {}; it must be 32 or 64", self.bits));
        }
        if (self.train == 0) != (self.validation == 0) {
            return Err(
                "train and validation must both be given, or neither (then nine tenths and one tenth)".into(),
            );
        }
        if self.hidden == 0 || self.hidden > 1 << 20 {
            return Err(format!("hidden is {}; it must be between 1 and {}", self.hidden, 1 << 20));
        }
        Ok(())
    }

    /// Makes the problem of one seed.
    pub fn build<T: Real>(
        &self,
        tuning: bool,
        changes: Changes,
        seed: u64,
        threads: &Threads,
    ) -> Result<Learning<T>> {
        let (mut train, mut test) = match self.model.as_str() {
            "bert" => data::texts(&self.data, &self.pretrained, self.length)?,
            _ => data::load(&self.data)?,
        };
        if self.test > 0 && self.test < test.len() {
            let some: Vec<u32> = (0..self.test).map(|i| (i * test.len() / self.test) as u32).collect();
            test = Arc::new(test.subset(&some));
        }
        if self.samples > 0 && self.samples < train.len() {
            let mut some: Vec<u32> = (0..train.len() as u32).collect();
            some.shuffle(&mut stream(seed, Purpose::Instance, 0, 0));
            train = Arc::new(train.subset(&some[..self.samples]));
        }
        let recipe = Recipe {
            agents: self.agents,
            partition: if self.rho == 0.0 { Partition::Uniform } else { Partition::Dirichlet(self.rho) },
            split: match self.train {
                0 => Split::Share(0.9),
                train => Split::Counts { train, validation: self.validation },
            },
            noise: self.noise,
            cr: self.cr,
            seed,
        };
        let dealt = recipe.deal(train, test).map_err(|e| anyhow!("{}: {e}", self.data))?;
        // Images in the agents' order are faster to read, but where most of a large set is in use that would
        // be a second copy of the data.
        let used: usize = dealt.hands.iter().map(|h| h.train.len() + h.validation.len()).sum();
        let dealt = Arc::new(if used < COPIED.max(dealt.data.len() / 4) { dealt.compact() } else { dealt });
        let model = match self.model.as_str() {
            "mlp" => Model::Mlp(self.hidden),
            "bert" => Model::Bert(data::bert(&self.pretrained, self.pool)?),
            "linear-no-bias" => Model::LinearNoBias,
            _ => Model::Linear,
        };
        let problem = Learning::new(dealt, model, self.task(tuning, &changes), self.scaling, seed)
            .map_err(anyhow::Error::msg)?;
        let problem = match model {
            Model::Bert(bert) => {
                let mut begin = problem.net().start(seed);
                data::pretrained(&self.pretrained, &bert, problem.net().classes, &mut begin)?;
                problem.begin_at(begin).map_err(anyhow::Error::msg)?
            }
            _ => problem,
        };
        let problem =
            problem.baseline(changes.train_on, changes.tau.unwrap_or(self.tau)).threads(threads.clone());
        Ok(if self.batch > 0 { problem.batch(self.batch) } else { problem })
    }

    /// What the upper level decides.
    pub fn task(&self, tuning: bool, changes: &Changes) -> Task {
        match tuning {
            true => Task::Tuning {
                form: changes.tau_form.unwrap_or(self.tau_form),
                tau: changes.tau_start.unwrap_or(self.tau),
            },
            false => Task::Cleaning { tau: self.tau, psi: self.psi },
        }
    }
}
