//! `kind = "labels"`: a model learned from rows some of whose labels are wrong, with few checked ones; on own
//! files, or on a data set that is dealt out and spoiled on purpose.
mod dealt;
mod export;

use super::{Ask, Built, Finale, Kind, Numbers, ProblemEntry, Size};
use crate::data;
use crate::section::{Section, did_you_mean};
use crate::sites::{self, Agreed, Bert, Files, Own, Scale};
use anyhow::{Context, Result, ensure};
use dibo::agreement::Agreement;
use dibo::algorithm::Needs;
use dibo::data::{Noise, Scaling};
use dibo::network::{Network, Simulated};
use dibo::problem::learning::bert::Pool;
use dibo::problem::learning::labels::{Choices, From, Totals};
use dibo::problem::learning::{Labels, Model, Net, Site, Way};
use dibo_learn::{Choice, Encoded, Encoding, Roles};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A model learned from rows some of whose labels are wrong, with few checked ones.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LabelsKeys {
    /// `files` for own ones; or `mnist-2500` (comes with dibo), `mnist` or `fashion-mnist`, dealt out.
    data: String,
    /// Number of agents; with own files, as many as there are files or owners.
    agents: usize,
    /// Own rows: one file an agent, or files with a column that says who owns a row.
    files: Vec<String>,
    /// Checked rows in files of their own, one an agent.
    checked_files: Vec<String>,
    /// Rows with true labels on which models are tried.
    test_file: String,
    /// Column of the given label.
    label: String,
    /// Column of a row's name; its number if there is none.
    id: String,
    /// Column of a row's owner.
    owner: String,
    /// Column that says whether a row's label has been checked.
    clean: String,
    /// Column of the true label, for experiments: no method sees it.
    truth: String,
    /// Column of texts, which a language model turns into numbers, or which `model = "bert"` reads.
    text: String,
    /// The folder of that BERT, beside the experiment or in the data folder.
    bert: String,
    /// After so many tokens texts are cut.
    tokens: usize,
    /// Columns that the model sees; all others if none is named.
    features: Vec<String>,
    /// Columns of words, though some agents have only numbers in them, such as wards 0, 1, 2 and ICU.
    words: Vec<String>,
    /// Width and height that images are scaled to.
    image_size: Vec<usize>,
    /// Different words that a column may have.
    most_categories: usize,
    /// How numbers are scaled.
    scale: Scale,
    /// Samples in use, drawn by the seed; 0 for all.
    samples: usize,
    /// Checked rows of each agent.
    checked: usize,
    /// The part of them that no training sees, at least one of each agent that has two or more.
    held: f64,
    /// Dirichlet label skew; 0 for equal agents.
    rho: f64,
    /// How a label goes wrong, where data is spoiled on purpose.
    noise: Noise,
    /// Probability that it does.
    cr: f64,
    /// So many agents have labels wrong by `cr`; 0 for all.
    bad_agents: usize,
    /// `linear`, `mlp`, or `bert`, which trains the BERT of the folder `bert` itself on `text`.
    model: String,
    /// What the head of a BERT that is trained sees.
    pool: Pool,
    /// Hidden units of `mlp`.
    hidden: usize,
    /// Regulariser.
    tau: f64,
    /// Given rows in an agent's batch; 0 for all.
    batch: usize,
    /// Checked rows in an agent's batch; 0 for all.
    checked_batch: usize,
    /// The part of a checked label that is spread over all classes.
    smoothing: f64,
    /// Iterations before given rows are learned from.
    warm: usize,
    /// Factor of the checked rows' loss in these: few rows alone bear only small steps.
    warm_weight: f64,
    /// Test samples in use, at even distances; 0 for all.
    test: usize,
    /// How a pixel becomes a number.
    scaling: Scaling,
}

impl Default for LabelsKeys {
    fn default() -> Self {
        let Choices { tau, batch, checked_batch, smoothing, warm, warm_weight, .. } = Choices::default();
        LabelsKeys {
            data: "mnist-2500".into(),
            agents: 10,
            files: Vec::new(),
            checked_files: Vec::new(),
            test_file: String::new(),
            label: "label".into(),
            id: String::new(),
            owner: String::new(),
            clean: String::new(),
            truth: String::new(),
            text: String::new(),
            bert: String::new(),
            tokens: 128,
            features: Vec::new(),
            words: Vec::new(),
            image_size: Vec::new(),
            most_categories: 64,
            scale: Scale::Auto,
            samples: 0,
            checked: 10,
            held: 0.2,
            rho: 0.0,
            noise: Noise::Uniform,
            cr: 0.4,
            bad_agents: 0,
            model: "linear".into(),
            pool: Pool::Mean,
            hidden: 256,
            tau,
            batch,
            checked_batch,
            smoothing,
            warm,
            warm_weight,
            test: 0,
            scaling: Scaling::Standardised,
        }
    }
}

/// What an `[[algorithm]]` says of the problem.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct OfWay {
    /// How the model learns; `em` for methods with one level and `bilevel` for those with two, if not given.
    way: Option<Way>,
    /// Regulariser, instead of the problem's.
    tau: Option<f64>,
    /// Iterations before given rows are learned from, instead of the problem's.
    warm: Option<usize>,
    /// How fast the noise matrix follows; 30 for `joint`, 0.5 for others, if not given.
    matrix_rate: Option<f64>,
    /// Factor of the checked rows' loss beside the given rows'; 1 if not given.
    checked_weight: Option<f64>,
    /// From which rows models learn before they know the noise matrix.
    from: Option<From>,
    /// With `bilevel` and `bilevel-own`: iterations before which the noise matrix follows y, as in `joint`,
    /// and the upper level does not move it yet; none if not given.
    jointly: Option<usize>,
    /// The upper level also learns the regulariser.
    learn_tau: Option<bool>,
    /// The part of the checked rows that no training sees, instead of the problem's.
    held: Option<f64>,
    /// With `em`: rows are judged by how common each class is at their own site, too, which each site finds
    /// out from its rows alone.
    site_classes: Option<bool>,
}

const LISTS: &[&str] = &["files", "checked_files", "features", "words", "image_size"];

const OF_WAY: &[&str] = &[
    "way",
    "tau",
    "warm",
    "matrix_rate",
    "checked_weight",
    "from",
    "jointly",
    "learn_tau",
    "held",
    "site_classes",
];

/// The keys with the way of one algorithm.
pub struct LabelsProblem {
    keys: LabelsKeys,
    way: Way,
    choices: Choices,
}

impl LabelsProblem {
    /// Its line of the registry.
    pub fn entry(name: &'static str) -> ProblemEntry {
        let read = |p: &Section<'_>, a: &Section<'_>, needs: Needs| -> Result<Box<dyn Kind>> {
            Ok(Box::new(LabelsProblem::read(p, a, needs)?))
        };
        let (keys, of_algorithm) = (LabelsKeys::json_schema, OfWay::json_schema);
        ProblemEntry { name, algorithm_keys: OF_WAY, lists: LISTS, read, keys, of_algorithm }
    }

    fn read(problem: &Section<'_>, algorithm: &Section<'_>, needs: Needs) -> Result<Self> {
        let mut keys: LabelsKeys = problem.read(&["kind"])?;
        let others: Vec<&str> = algorithm.keys().filter(|k| !OF_WAY.contains(k)).collect();
        let of_way: OfWay = algorithm.read(&others)?;
        keys.held = of_way.held.unwrap_or(keys.held);
        let single = needs == Needs::SingleLevel;
        let way = of_way.way.unwrap_or(if single { Way::Em } else { Way::Bilevel });
        if way.is_bilevel() == single {
            let (is, wants) = match single {
                true => ("has two levels", "an algorithm such as fab"),
                false => ("has one level", "an algorithm such as push-pull"),
            };
            return Err(algorithm.error("way", format!("this way {is}; it needs {wants}")));
        }
        let idle = [
            ("matrix_rate", of_way.matrix_rate.is_some() && (!way.has_matrix() || way.is_bilevel())),
            ("from", of_way.from.is_some() && !way.has_matrix()),
            ("checked_weight", of_way.checked_weight.is_some() && way.is_bilevel() && way != Way::EmOwn),
            ("jointly", of_way.jointly.is_some() && !matches!(way, Way::Bilevel | Way::BilevelOwn)),
            ("learn_tau", of_way.learn_tau.is_some() && !way.is_bilevel()),
            ("site_classes", of_way.site_classes.is_some() && way != Way::Em),
        ];
        if let Some((key, _)) = idle.into_iter().find(|i| i.1) {
            return Err(algorithm.error(key, format!("{key} has no effect in this way")));
        }
        // Counts move at their own pace; gradients of logits are small, a row of T seeing one class of rows.
        let rate = if way == Way::Joint { 30.0 } else { 0.5 };
        let choices = Choices {
            tau: of_way.tau.unwrap_or(keys.tau),
            batch: keys.batch,
            checked_batch: keys.checked_batch,
            smoothing: keys.smoothing,
            checked_weight: of_way.checked_weight.unwrap_or(1.0),
            warm: of_way.warm.unwrap_or(keys.warm),
            warm_weight: keys.warm_weight,
            from: of_way.from.unwrap_or_default(),
            matrix_rate: of_way.matrix_rate.unwrap_or(rate),
            jointly: of_way.jointly.unwrap_or(0),
            learn_tau: of_way.learn_tau.unwrap_or(false),
            site_classes: of_way.site_classes.unwrap_or(false),
        };
        Ok(LabelsProblem { keys, way, choices })
    }

    /// The kind of classifier, but for a BERT, whose sizes its folder has.
    fn model(&self) -> Model {
        match self.keys.model.as_str() {
            "mlp" => Model::Mlp(self.keys.hidden),
            _ => Model::Linear,
        }
    }

    /// The classifier for rows of so many numbers, and where it starts if it is a pretrained one.
    fn net(&self, ask: &Ask<'_>, width: usize, classes: usize) -> Result<(Net, Option<Vec<f64>>)> {
        if !self.keys.trains_bert() {
            return Ok((Net { pixels: width, classes, model: self.model() }, None));
        }
        let folder = found(ask.folder, &self.keys.bert);
        let bert = data::bert(&folder, self.keys.pool)?;
        let net = Net { pixels: 2 * width, classes, model: Model::Bert(bert) };
        let mut begin = net.start(ask.seed);
        data::pretrained(&folder, &bert, &mut begin)?;
        Ok((net, Some(begin)))
    }
}

/// The sites of one seed, what all agreed on as each agent here knows it, and the rows' names.
struct Sites {
    sites: Vec<Arc<Site>>,
    test: Option<Arc<Site>>,
    agreed: Vec<Agreed>,
    totals: Totals,
    own: Vec<Own>,
    /// The column of the given label.
    label: String,
    /// Width, height and channels, where rows are images.
    image: Option<(usize, usize, usize)>,
    /// What tells the tokenizer of a BERT that is trained from others.
    tokenizer: Option<String>,
}

/// A file beside the experiment, else in the data folder.
fn found(folder: &Path, name: &str) -> PathBuf {
    let (beside, kept) = (folder.join(name), data::folder().join(name));
    if !beside.exists() && kept.exists() { kept } else { beside }
}

impl LabelsKeys {
    fn has_files(&self) -> bool {
        self.data == "files"
    }

    fn trains_bert(&self) -> bool {
        self.model == "bert"
    }

    fn roles(&self) -> Roles {
        let some = |word: &String| (!word.is_empty()).then(|| word.clone());
        Roles {
            label: some(&self.label),
            id: some(&self.id),
            owner: some(&self.owner),
            clean: some(&self.clean),
            truth: some(&self.truth),
            text: some(&self.text),
            features: Choice::named(&self.features, Some(&self.text)),
            words: self.words.clone(),
            image_size: self.image_size.first_chunk().map(|[w, h]| (*w, *h)),
            most_categories: self.most_categories,
        }
    }

    fn own_files(&self, folder: &Path) -> Files {
        let paths = |names: &[String]| names.iter().map(|f| found(folder, f)).collect();
        Files {
            rows: paths(&self.files),
            checked: paths(&self.checked_files),
            bert: self.model_of_texts(folder),
        }
    }

    fn model_of_texts(&self, folder: &Path) -> Option<Bert> {
        let trained = self.trains_bert();
        let bert = || Bert { folder: found(folder, &self.bert), tokens: self.tokens, trained };
        (!self.bert.is_empty()).then(bert)
    }

    /// The sites of own files: read, agreed on, encoded.
    fn own_sites(&self, ask: &Ask<'_>, agents: usize) -> Result<Sites> {
        let owned: Vec<usize> = ask.local.map_or((0..agents).collect(), |l| l.owned.clone());
        let files = match ask.local {
            Some(local) if !local.files.rows.is_empty() => {
                Files { bert: self.model_of_texts(ask.folder), ..local.files.clone() }
            }
            // One file an agent: nobody opens another's.
            Some(_) if self.owner.is_empty() && self.files.len() == agents => {
                let all = self.own_files(ask.folder);
                let of = |list: &[PathBuf]| owned.iter().filter_map(|i| list.get(*i).cloned()).collect();
                Files { rows: of(&all.rows), checked: of(&all.checked), bert: all.bert }
            }
            _ => self.own_files(ask.folder),
        };
        let mut own = sites::read(&files, &self.roles())?;
        // A process that has all files takes those of its agents.
        if own.len() == agents && owned.len() < agents {
            own = owned.iter().map(|i| own[*i].clone()).collect();
        }
        ensure!(
            own.len() == owned.len(),
            "the files here hold the rows of {} sites, but this process has {} agents",
            own.len(),
            owned.len()
        );
        let mut talk = |network: &mut dyn Network<f64>| -> Result<Vec<u8>> {
            let mut agreement = Agreement::new(ask.links, network)?;
            let tokens = self.trains_bert().then_some(self.text.as_str());
            let most = self.most_categories;
            let agreed = sites::agree(&own, self.scale, tokens, self.held, most, &mut agreement)?;
            postcard::to_stdvec(&agreed).context("what was agreed on cannot be kept")
        };
        let kept = match ask.meeting {
            Some(meeting) => meeting.meet(ask.links, &mut talk)?,
            None => talk(&mut *f64::simulated(ask.links.clone(), None, ask.threads.clone()))?,
        };
        let agreed: Vec<Agreed> = postcard::from_bytes(&kept).context("what was agreed on cannot be read")?;
        let nobody = Arc::new(Site::default());
        let mut sites = vec![nobody; agents];
        for ((agent, own), agreed) in owned.iter().zip(&own).zip(&agreed) {
            sites[*agent] = Arc::new(own.site(agreed, self.held, *agent, ask.seed)?);
        }
        let test_file = found(ask.folder, &self.test_file);
        let test = match self.test_file.is_empty() || (ask.local.is_some() && !test_file.exists()) {
            true => None,
            false => {
                let bert = self.model_of_texts(ask.folder);
                Some(Arc::new(sites::test(&test_file, &self.roles(), bert.as_ref(), &agreed[0])?))
            }
        };
        let image = own.first().and_then(Own::image);
        let (label, totals) = (self.label.clone(), agreed[0].totals());
        let tokenizer = match self.model_of_texts(ask.folder).filter(|bert| bert.trained) {
            Some(bert) => Some(data::tokenizer(&bert.folder)?),
            None => None,
        };
        Ok(Sites { sites, test, totals, agreed, own, label, image, tokenizer })
    }

    /// The sites of a data set that is dealt out.
    fn dealt_sites(&self, seed: u64) -> Result<Sites> {
        let (sites, test, scale) = dealt::dealt(self, seed)?;
        let (mean, factor) =
            scale.iter().map(|(a, b)| (-f64::from(*b) / f64::from(*a), f64::from(*a))).unzip();
        let (columns, image) =
            (vec![Encoded::Numbers { name: "image".into(), mean, factor }], Some((28, 28, 1)));
        let encoding = Encoding { columns, image };
        let totals = dealt::totals(&sites);
        let classes = (0..10).map(|c| c.to_string()).collect();
        let agreed =
            Agreed { classes, encoding, given: totals.given, checked: totals.checked, warnings: Vec::new() };
        Ok(Sites {
            test: Some(test),
            agreed: vec![agreed; sites.len()],
            totals,
            own: Vec::new(),
            label: String::new(),
            sites,
            image,
            tokenizer: None,
        })
    }
}

impl Kind for LabelsProblem {
    fn check(&self) -> Result<(), String> {
        let k = &self.keys;
        const DATA: [&str; 5] = ["files", "mnist-2500", "mnist", "fashion-mnist", "random"];
        if !DATA.contains(&k.data.as_str()) {
            let close = did_you_mean(&k.data, DATA);
            return Err(format!("data is '{}'; known are {}{close}", k.data, DATA.join(", ")));
        }
        let names = k.files.iter().chain(&k.checked_files).chain([&k.test_file]);
        if !k.has_files() && names.into_iter().any(|f| !f.is_empty()) {
            return Err(format!("files are given, but data is '{}'; write data = \"files\"", k.data));
        }
        if ![0, 2].contains(&k.image_size.len()) || k.image_size.contains(&0) {
            return Err("image_size must be width and height, such as [32, 32]".into());
        }
        if k.agents == 0 || k.agents > 100_000 {
            return Err(format!("agents is {}; it must be between 1 and 100,000", k.agents));
        }
        if !(0.0..=1.0).contains(&k.cr) {
            return Err(format!("cr is {}; it must lie between 0 and 1", k.cr));
        }
        if !(0.0..=0.9).contains(&k.held) {
            return Err(format!("held is {}; it must lie between 0 and 0.9", k.held));
        }
        if !(k.rho >= 0.0 && k.rho.is_finite()) {
            return Err(format!("rho is {}; it must be 0 (equal agents) or more", k.rho));
        }
        if !["linear", "mlp", "bert"].contains(&k.model.as_str()) {
            return Err(format!("model is '{}'; known are linear, mlp, bert", k.model));
        }
        if k.trains_bert() && (!k.has_files() || k.text.is_empty() || k.bert.is_empty()) {
            let how = "text = \"COLUMN\" and bert = \"FOLDER\" (config.json, model.safetensors, \
                       tokenizer.json)";
            return Err(format!("model is 'bert', which reads texts of own files: data = \"files\", {how}"));
        }
        if k.hidden == 0 || k.hidden > 1 << 20 {
            return Err(format!("hidden is {}; it must be between 1 and {}", k.hidden, 1 << 20));
        }
        Ok(())
    }

    fn agents(&self, folder: &Path) -> Result<usize> {
        let k = &self.keys;
        match (k.has_files(), k.owner.is_empty(), k.files.len()) {
            (true, true, files) if files > 0 => Ok(files),
            // Who owns what is known only when it is read.
            (true, false, files) if files > 0 => Ok(sites::read(&k.own_files(folder), &k.roles())?.len()),
            _ => Ok(k.agents),
        }
    }

    fn too_short(&self, iterations: usize) -> Option<String> {
        let Choices { warm, jointly, .. } = self.choices;
        let key = if self.way.waits() && warm >= iterations {
            format!("warm = {warm}")
        } else if jointly >= iterations {
            format!("jointly = {jointly}")
        } else {
            return None;
        };
        Some(format!("ends before its way begins: {key}, and the run has {iterations} iterations"))
    }

    fn build(&self, ask: &Ask<'_>) -> Result<Built> {
        if !self.keys.trains_bert() {
            ask.on_host("labels without model = \"bert\"")?;
        }
        let parts = match self.keys.has_files() {
            true => self.keys.own_sites(ask, self.agents(ask.folder)?)?,
            false => self.keys.dealt_sites(ask.seed)?,
        };
        let agreed = &parts.agreed[0];
        let width = agreed.encoding.width();
        let (net, begin) = self.net(ask, width, agreed.classes.len())?;
        let sites = parts.sites.clone();
        let problem: Labels<f32> = Labels::new(sites, net, self.way, self.choices, parts.totals, ask.seed)
            .map_err(anyhow::Error::msg)?
            .columns(&agreed.encoding.columns.iter().map(Encoded::width).collect::<Vec<_>>())
            .threads(ask.threads.clone());
        let problem = match begin {
            Some(begin) => problem.begin_at(begin).map_err(anyhow::Error::msg)?,
            None => problem,
        };
        let problem = match &parts.test {
            Some(test) => problem.test(test.clone()),
            None => problem,
        };
        let data_bytes = problem.bytes() as u64;
        let (problem, there, note) = match ask.device {
            Some(device) => {
                let (host, there, note) = device.labels(problem, ask.algorithm)?;
                (host, there, Some(note))
            }
            None => {
                let host = Arc::new(problem);
                (host.clone(), host.shared(), None)
            }
        };
        let picture = export::picture(problem.clone(), &parts);
        // Token numbers would mean nothing to other programs.
        let pool =
            (!self.keys.trains_bert()).then(|| export::pool(parts.sites.clone(), parts.test.clone(), width));
        let warnings = agreed.warnings.clone();
        let export = export::export(problem.clone(), parts);
        let finale = Finale { picture, export: Some(export), pool };
        Ok(Built { problem: Numbers::F32(there, finale), data_bytes, note, warnings })
    }

    fn is_own(&self) -> bool {
        self.keys.has_files()
    }

    fn exports(&self) -> bool {
        true
    }

    fn exports_from_device(&self) -> bool {
        true
    }

    fn data(&self) -> Result<Option<String>> {
        match self.keys.has_files() {
            true => Ok(Some(format!("{} files", self.keys.files.len()))),
            false => data::available(&self.keys.data, "", "").map(Some),
        }
    }

    fn size(&self, folder: &Path) -> Option<Size> {
        let k = &self.keys;
        if let Some(bert) = k.model_of_texts(folder).filter(|bert| bert.trained) {
            // Classes and rows are known when files have been read; beside a BERT they are small.
            let lower = data::bert(&bert.folder, k.pool).ok()?.places(2).width;
            let (upper, single) = (16, lower + 16);
            return Some(Size { upper, lower, single, blocks: 1, number: 4, bytes: 0.0 });
        }
        if k.has_files() {
            return None;
        }
        let (pixels, classes, samples) = (784, 10, if k.data == "mnist-2500" { 2_500 } else { 60_000 });
        let width = match self.model() {
            Model::Mlp(h) => (pixels + 1) * h + (h + 1) * classes,
            _ => (pixels + 1) * classes,
        };
        let upper = match self.way {
            Way::Weights => samples / k.agents,
            _ => classes * classes,
        };
        let bytes = ((samples + 10_000) * pixels * 5) as f64;
        Some(Size { upper, lower: width, single: width + classes * classes, blocks: 1, number: 4, bytes })
    }

    fn files(&self, folder: &Path) -> Vec<PathBuf> {
        let mut files = match self.keys.test_file.as_str() {
            "" => Vec::new(),
            file => vec![found(folder, file)],
        };
        if let Some(bert) = self.keys.model_of_texts(folder) {
            files.extend(data::model_files(&bert.folder));
        }
        files
    }

    fn private_files(&self, folder: &Path) -> Vec<PathBuf> {
        let Files { rows, checked, .. } = self.keys.own_files(folder);
        rows.into_iter().chain(checked).collect()
    }
}
