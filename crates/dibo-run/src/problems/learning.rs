//! `kind = "cleaning"` and `kind = "tuning"`: learning on images and texts.
use super::picture::lowest;
use super::{Ask, Built, Finale, Kind, Numbers, Picture, ProblemEntry, Size, learned};
use crate::data;
use crate::section::{Section, did_you_mean};
use anyhow::{Result, anyhow};
use dibo::algorithm::{AnyAlgorithm, Axis, Needs, Parameters};
use dibo::data::{Noise, Partition, Recipe, Scaling, Split};
use dibo::problem::SingleLevel;
use dibo::problem::learning::bert::Pool;
use dibo::problem::learning::{Learning, Model, Task, TauForm, TrainOn};
use dibo::rng::{Purpose, stream};
use dibo::rows::Real;
use rand::seq::SliceRandom;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Learning from images or texts that are dealt out to the agents.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LearningKeys {
    /// `mnist-2500` (comes with dibo), `mnist`, `fashion-mnist` or `imdb`.
    data: String,
    /// Number of agents.
    agents: usize,
    /// Samples in use, drawn by the seed; 0 for all.
    samples: usize,
    /// Training samples of each agent; 0 for nine tenths.
    train: usize,
    /// Validation samples of each agent; 0 for one tenth.
    validation: usize,
    /// Dirichlet label skew; 0 for equal agents.
    rho: f64,
    /// How a training label goes wrong.
    noise: Noise,
    /// Probability that it does.
    cr: f64,
    /// `linear`, `linear-no-bias`, `mlp`, or `bert` (on texts).
    model: String,
    /// Hidden units of `mlp`.
    hidden: usize,
    /// Regulariser; in tuning, where it starts.
    tau: f64,
    /// Where the sample weights' ψ starts.
    psi: f64,
    /// How τ comes from x in tuning.
    tau_form: TauForm,
    /// Folder of a BERT inside the data folder; its sizes and weights are read there.
    pretrained: String,
    /// Tokens of a text.
    length: usize,
    /// What the head of a BERT sees.
    pool: Pool,
    /// Test samples in use, at even distances; 0 for all.
    test: usize,
    /// Samples in a batch; 0 for all.
    batch: usize,
    /// How a pixel becomes a number.
    scaling: Scaling,
    /// Bits of a number: 32 or 64.
    bits: usize,
}

/// So few samples may be copied in any case.
const COPIED: usize = 5_000;

impl Default for LearningKeys {
    fn default() -> Self {
        LearningKeys {
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

/// What an `[[algorithm]]` may change of the problem.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Changes {
    /// Which samples a single-level method trains on.
    train_on: Option<TrainOn>,
    /// The regulariser of a single-level method; in tuning, where τ starts for a method that learns it.
    tau: Option<f64>,
    /// How τ comes from x for a method that learns it.
    tau_form: Option<TauForm>,
}

const CHANGES: &[&str] = &["train_on", "tau", "tau_form"];

/// Reads what an `[[algorithm]]` changes, and refuses what would have no effect.
fn changes(section: &Section<'_>, needs: Needs, tuning: bool) -> Result<Changes> {
    let others: Vec<&str> = section.keys().filter(|k| !CHANGES.contains(k)).collect();
    let changes: Changes = section.read(&others)?;
    let single = needs == Needs::SingleLevel;
    if let Some(tau) = changes.tau.filter(|t| !(*t >= 0.0 && t.is_finite())) {
        return Err(section.error("tau", format!("tau is {tau}; it must be a number, 0 or more")));
    }
    let idle = [
        ("train_on", changes.train_on.is_some() && !single, "only single-level methods choose their samples"),
        ("tau", changes.tau.is_some() && !single && !tuning, "the problem's tau holds for this method"),
        ("tau_form", changes.tau_form.is_some() && (single || !tuning), "this method does not learn τ"),
    ];
    match idle.into_iter().find(|i| i.1) {
        Some((key, _, why)) => Err(section.error(key, format!("{key} has no effect here: {why}"))),
        None => Ok(changes),
    }
}

/// `kind = "cleaning"`: a weight for every training sample.
pub struct CleaningKeys(Problem);

/// `kind = "tuning"`: a regulariser.
pub struct TuningKeys(Problem);

struct Problem {
    keys: LearningKeys,
    changes: Changes,
    tuning: bool,
    needs: Needs,
}

impl Problem {
    fn read(section: &Section<'_>, algorithm: &Section<'_>, needs: Needs, tuning: bool) -> Result<Self> {
        let keys = section.read(&["kind"])?;
        Ok(Problem { keys, changes: changes(algorithm, needs, tuning)?, tuning, needs })
    }
}

impl CleaningKeys {
    /// Its line of the registry.
    pub fn entry(name: &'static str) -> ProblemEntry {
        ProblemEntry {
            name,
            algorithm_keys: CHANGES,
            lists: &[],
            read: |p, a, needs| Ok(Box::new(CleaningKeys(Problem::read(p, a, needs, false)?))),
            keys: LearningKeys::json_schema,
            of_algorithm: Changes::json_schema,
        }
    }
}

impl TuningKeys {
    /// Its line of the registry.
    pub fn entry(name: &'static str) -> ProblemEntry {
        ProblemEntry {
            name,
            algorithm_keys: CHANGES,
            lists: &[],
            read: |p, a, needs| Ok(Box::new(TuningKeys(Problem::read(p, a, needs, true)?))),
            keys: LearningKeys::json_schema,
            of_algorithm: Changes::json_schema,
        }
    }
}

macro_rules! as_problem {
    ($($name:ident),*) => {$(
        impl Kind for $name {
            fn check(&self) -> Result<(), String> {
                self.0.keys.check()
            }
            fn agents(&self, _folder: &Path) -> Result<usize> {
                Ok(self.0.keys.agents)
            }
            fn build(&self, ask: &Ask<'_>) -> Result<Built> {
                self.0.built(ask)
            }
            fn exports(&self) -> bool {
                self.0.keys.model != "bert"
            }
            fn files(&self, _folder: &Path) -> Vec<PathBuf> {
                self.0.keys.files()
            }
            fn data(&self) -> Result<Option<String>> {
                data::available(&self.0.keys.data, &self.0.keys.model, &self.0.keys.pretrained).map(Some)
            }
            fn size(&self, _folder: &Path) -> Option<Size> {
                self.0.size()
            }
            fn axes(&self, needs: Needs) -> Vec<Axis> {
                match needs {
                    Needs::SingleLevel => vec![Axis::values("tau", &TAUS)],
                    _ => Vec::new(),
                }
            }
            fn caution(&self, algorithm: &dyn AnyAlgorithm) -> Option<String> {
                self.0.caution(algorithm)
            }
        }
    )*};
}

as_problem!(CleaningKeys, TuningKeys);

/// The paper's grid of regularisers for the baselines.
const TAUS: [f64; 6] = [0.0, 0.001, 0.01, 0.1, 0.2, 0.3];

impl LearningKeys {
    /// Says which value is out of range; the message begins with its name.
    fn check(&self) -> Result<(), String> {
        if !data::NAMES.contains(&self.data.as_str()) {
            let close = did_you_mean(&self.data, data::NAMES);
            return Err(format!("data is '{}'; known are {}{close}", self.data, data::NAMES.join(", ")));
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

    /// Files of a model, whose contents decide the result. (The data sets of IDX files are checked by
    /// digest.)
    fn files(&self) -> Vec<PathBuf> {
        match self.model.as_str() {
            "bert" => data::model_files(&data::folder().join(&self.pretrained)),
            _ => Vec::new(),
        }
    }
}

impl Problem {
    /// What the upper level decides.
    fn task(&self) -> Task {
        let LearningKeys { tau, psi, tau_form, .. } = self.keys;
        // A single-level method's τ is that of its own objective.
        let start = self.changes.tau.filter(|_| self.needs != Needs::SingleLevel).unwrap_or(tau);
        match self.tuning {
            true => Task::Tuning { form: self.changes.tau_form.unwrap_or(tau_form), tau: start },
            false => Task::Cleaning { tau, psi },
        }
    }

    fn caution(&self, algorithm: &dyn AnyAlgorithm) -> Option<String> {
        let algorithm: &dyn dibo::algorithm::Algorithm<f64> = algorithm;
        let moves = Parameters::penalty_steps(algorithm, 0).is_some_and(|s| s.eta[0] > 0.0);
        let plain = moves && matches!(self.task(), Task::Tuning { form: TauForm::Plain, .. });
        plain.then(|| {
            "may diverge: τ = x can fall below 0, where the lower level has no minimum; \
            tau_form = \"exp\" keeps it above"
                .into()
        })
    }

    fn size(&self) -> Option<Size> {
        let k = &self.keys;
        // The image sets have 784 pixels and 10 classes; a review's tokens have two bytes each.
        let (pixels, classes, samples, tested) = match k.data.as_str() {
            "imdb" => (2 * k.length, 2, 25_000, 25_000),
            "mnist-2500" => (784, 10, 2_500, 10_000),
            _ => (784, 10, 60_000, 10_000),
        };
        let width = match k.model.as_str() {
            "linear" => (pixels + 1) * classes,
            "linear-no-bias" => pixels * classes,
            "mlp" => (pixels + 1) * k.hidden + (k.hidden + 1) * classes,
            _ => data::bert(&data::folder().join(&k.pretrained), k.pool).ok()?.places(classes).width,
        };
        let train = if k.train > 0 { k.train } else { samples / k.agents };
        let blocks = if k.batch > 0 { (train + k.validation).div_ceil(k.batch) } else { 1 };
        let upper = if self.tuning { 1 } else { train };
        let bytes = ((samples + tested) * pixels) as f64;
        Some(Size { upper, lower: width, single: width, blocks, number: k.bits / 8, bytes })
    }

    fn built(&self, ask: &Ask<'_>) -> Result<Built> {
        if self.keys.bits == 64 {
            ask.on_host("learning with 64-bit numbers")?;
            let problem: Learning<f64> = self.learning(ask)?;
            let (data_bytes, finale) = (problem.dealt().bytes() as u64, finale(&problem));
            return Ok(Built {
                problem: Numbers::F64(problem.shared(), finale),
                data_bytes,
                note: None,
                warnings: Vec::new(),
            });
        }
        let problem: Learning<f32> = self.learning(ask)?;
        let data_bytes = problem.dealt().bytes() as u64;
        if let Some(device) = ask.device {
            let blocks = SingleLevel::blocks(&problem);
            let (problem, note) = device.problem(problem, ask.algorithm, blocks)?;
            return Ok(Built {
                problem: Numbers::F32(problem.into(), Finale::default()),
                data_bytes,
                note: Some(note),
                warnings: Vec::new(),
            });
        }
        let finale = finale(&problem);
        Ok(Built {
            problem: Numbers::F32(problem.shared(), finale),
            data_bytes,
            note: None,
            warnings: Vec::new(),
        })
    }

    /// The problem on the host.
    fn learning<T: Real>(&self, ask: &Ask<'_>) -> Result<Learning<T>> {
        let (k, seed) = (&self.keys, ask.seed);
        let (mut train, mut test) = match k.model.as_str() {
            "bert" => data::texts(&k.data, &k.pretrained, k.length)?,
            _ => data::load(&k.data)?,
        };
        if k.test > 0 && k.test < test.len() {
            let some: Vec<u32> = (0..k.test).map(|i| (i * test.len() / k.test) as u32).collect();
            test = Arc::new(test.subset(&some));
        }
        if k.samples > 0 && k.samples < train.len() {
            let mut some: Vec<u32> = (0..train.len() as u32).collect();
            some.shuffle(&mut stream(seed, Purpose::Instance, 0, 0));
            train = Arc::new(train.subset(&some[..k.samples]));
        }
        let recipe = Recipe {
            agents: k.agents,
            partition: if k.rho == 0.0 { Partition::Uniform } else { Partition::Dirichlet(k.rho) },
            split: match k.train {
                0 => Split::Share(0.9),
                train => Split::Counts { train, validation: k.validation },
            },
            noise: k.noise,
            cr: k.cr,
            seed,
        };
        let dealt = recipe.deal(train, test).map_err(|e| anyhow!("{}: {e}", k.data))?;
        // Images in the agents' order are faster to read, but where most of a large set is in use that would
        // be a second copy of the data.
        let used: usize = dealt.hands.iter().map(|h| h.train.len() + h.validation.len()).sum();
        let dealt = Arc::new(if used < COPIED.max(dealt.data.len() / 4) { dealt.compact() } else { dealt });
        let model = match k.model.as_str() {
            "mlp" => Model::Mlp(k.hidden),
            "bert" => Model::Bert(data::bert(&data::folder().join(&k.pretrained), k.pool)?),
            "linear-no-bias" => Model::LinearNoBias,
            _ => Model::Linear,
        };
        let problem =
            Learning::new(dealt, model, self.task(), k.scaling, seed).map_err(anyhow::Error::msg)?;
        let problem = match model {
            Model::Bert(bert) => {
                let mut begin = problem.net().start(seed);
                data::pretrained(&data::folder().join(&k.pretrained), &bert, &mut begin)?;
                problem.begin_at(begin).map_err(anyhow::Error::msg)?
            }
            _ => problem,
        };
        let tau = self.changes.tau.filter(|_| self.needs == Needs::SingleLevel).unwrap_or(k.tau);
        let problem = problem.baseline(self.changes.train_on.unwrap_or_default(), tau);
        let problem = problem.threads(ask.threads.clone());
        Ok(if k.batch > 0 { problem.batch(k.batch) } else { problem })
    }
}

/// Draws the samples with the lowest weights, where there are images.
fn finale<T: Real>(problem: &Learning<T>) -> Finale<T> {
    let Some(export) = learned::export(problem) else { return Finale::default() };
    let dealt = problem.shared_dealt();
    let picture: Picture<T> = Box::new(move |views| lowest(&dealt, views));
    Finale { picture: Some(picture), export: Some(export), ..Finale::default() }
}
