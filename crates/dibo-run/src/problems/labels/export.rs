//! What one takes home of a run on labels: the list of suspicious rows, the model, the noise matrix, and how
//! each owner's labels stand.
use super::super::picture::{SHOWN, Shown, drawn, png};
use super::super::{Export, Picture, Pool};
use super::Sites;
use crate::saved;
use crate::sites::TOKENIZER;
use anyhow::{Context, Result};
use dibo::problem::learning::labels::Verdict;
use dibo::problem::learning::{Labels, Model, Site};
use dibo_learn::{Encoded, SavedModel, Shape};
use dibo_report::results::{Column, write_table};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

/// Writes everything of the agents that are here.
pub(super) fn export(problem: Arc<Labels<f32>>, parts: Sites) -> Export<f32> {
    Box::new(move |views, agents, folder| {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let mut judged = Vec::new();
        for (row, agent) in agents.iter().enumerate() {
            let Some((w, noise)) = problem.result(views, row) else { return Ok(()) };
            // A diverged run has nothing to say.
            if w.iter().any(|v| !v.is_finite()) {
                return Ok(());
            }
            if row == 0 {
                save_model(&problem, &parts, w.clone(), folder)?;
            }
            let upper = views.iter().find(|v| v.name == "x").filter(|_| problem.way().is_bilevel());
            let weights = upper.and_then(|v| problem.weights(*agent, &v.fetched(row)));
            let decided = upper.map(|v| problem.decided(&v.fetched(row))).unwrap_or_default();
            let verdicts = problem.verdicts(*agent, &w, noise.as_ref());
            let matrix = noise.map(|noise| noise.t);
            judged.push(Judged { agent: *agent, verdicts, weights, decided, matrix });
        }
        let list = listed(&problem, &parts, &judged);
        write(&folder.join("labels.csv"), |file| labels(&list, file))?;
        labels_parquet(&list, &folder.join("labels.parquet"))?;
        write(&folder.join("suspicious.csv"), |file| suspicious(&list, &parts, file))?;
        write(&folder.join("cleaned.csv"), |file| cleaned(&problem, &parts, &judged, file))?;
        cleaned_tables(&parts, &judged, folder)?;
        write(&folder.join("owners.csv"), |file| owners(&problem, &parts, &judged, file))?;
        write(&folder.join("learned.csv"), |file| decided(&parts, &judged, file))?;
        write(&folder.join("noise.csv"), |file| matrices(&parts, &judged, file))
    })
}

/// Writes all sites' rows as NumPy arrays: rows to be judged, checked ones (held-out ones among them), test
/// rows.
pub(super) fn pool(sites: Vec<Arc<Site>>, test: Option<Arc<Site>>, width: usize) -> Pool {
    Box::new(move |folder| {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let numbers = |name: &str, parts: &[&[f32]]| {
            let rows = parts.iter().map(|p| p.len()).sum::<usize>() / width;
            let head = format!("'<f4', 'fortran_order': False, 'shape': ({rows}, {width})");
            npy(&folder.join(name), &head, parts.iter().flat_map(|p| p.iter().flat_map(|v| v.to_le_bytes())))
        };
        let words = |name: &str, parts: &[&[u8]]| {
            let rows: usize = parts.iter().map(|p| p.len()).sum();
            let head = format!("'|u1', 'fortran_order': False, 'shape': ({rows},)");
            npy(&folder.join(name), &head, parts.iter().flat_map(|p| p.iter().copied()))
        };
        let of = |part: fn(&Site) -> std::ops::Range<usize>| -> (Vec<&[f32]>, Vec<&[u8]>) {
            let cut = |s: &'_ Arc<Site>| part(s);
            let features = sites.iter().map(|s| &s.features[cut(s).start * width..cut(s).end * width]);
            (features.collect(), sites.iter().map(|s| &s.labels[cut(s)]).collect())
        };
        let (features, given) = of(|s| 0..s.given);
        numbers("features.npy", &features)?;
        words("given.npy", &given)?;
        let (features, labels) = of(|s| s.given..s.rows());
        numbers("checked_features.npy", &features)?;
        words("checked_labels.npy", &labels)?;
        if let Some(test) = &test {
            numbers("test_features.npy", &[&test.features])?;
            words("test_labels.npy", &[&test.labels])?;
        }
        let truth = |s: &Site, row: usize| s.truth.get(row).copied().flatten();
        let wrong = |s: &Site, row: usize| truth(s, row).map(|t| t != u16::from(s.labels[row]));
        Ok(sites.iter().flat_map(|s| (0..s.given).map(|row| wrong(s, row))).collect())
    })
}

/// An array in NumPy's format.
fn npy(file: &Path, head: &str, bytes: impl Iterator<Item = u8>) -> Result<()> {
    let head = format!("{{'descr': {head}, }}");
    // The head ends at a multiple of 64 with a new line.
    let padded = (head.len() + 11).next_multiple_of(64) - 10;
    let mut all = b"\x93NUMPY\x01\x00".to_vec();
    all.extend((padded as u16).to_le_bytes());
    all.extend(format!("{head:<width$}\n", width = padded - 1).bytes());
    all.extend(bytes);
    std::fs::write(file, all).with_context(|| format!("cannot write {}", file.display()))
}

/// Draws the most suspicious images, where rows are images.
pub(super) fn picture(problem: Arc<Labels<f32>>, parts: &Sites) -> Option<Picture<f32>> {
    let (width, height, channels) = parts.image?;
    let classes = parts.agreed[0].classes.clone();
    let Encoded::Numbers { mean, factor, .. } = parts.agreed[0].encoding.columns.first()?.clone() else {
        return None;
    };
    if mean.len() != width * height * channels || problem.net().pixels != mean.len() {
        return None;
    }
    Some(Box::new(move |views| {
        let mut worst = Vec::new();
        for agent in 0..views.first()?.rows.count() {
            let (w, noise) = problem.result(views, agent)?;
            let verdicts = problem.verdicts(agent, &w, noise.as_ref());
            worst.extend(verdicts.into_iter().enumerate().map(|(row, v)| (agent, row, v)));
        }
        worst.retain(|(agent, row, v)| v.suggested != problem.site(*agent).labels[*row]);
        worst.sort_by(|a, b| a.2.log_odds.total_cmp(&b.2.log_odds));
        let shown = worst.iter().take(SHOWN).map(|(agent, row, v)| {
            let site = problem.site(*agent);
            let numbers = &site.features[row * mean.len()..(row + 1) * mean.len()];
            let pixel = |(c, v): (usize, &f32)| {
                let factor = if factor[c] == 0.0 { 1.0 } else { factor[c] };
                (f64::from(*v) / factor + mean[c]).round().clamp(0.0, 255.0) as u8
            };
            let pixels: Vec<u8> = numbers.iter().enumerate().map(pixel).collect();
            let word = |class: u8| classes[class as usize].chars().take(8).collect::<String>();
            Shown {
                png: png(&pixels, (width as u32, height as u32), channels),
                first: format!("given {}", word(site.labels[*row])),
                second: format!("→ {}", word(v.suggested)),
                good: site.truth.get(*row).copied().flatten().map(|truth| truth == u16::from(v.suggested)),
            }
        });
        drawn("the images whose labels look wrong the most", shown)
    }))
}

/// What one agent's model says.
struct Judged {
    agent: usize,
    verdicts: Vec<Verdict>,
    weights: Option<Vec<f64>>,
    decided: Vec<(String, f64)>,
    matrix: Option<Vec<f64>>,
}

/// Writes a file under another name first.
fn write(file: &Path, content: impl FnOnce(&mut Csv) -> Result<()>) -> Result<()> {
    write_as(b',', file, content)
}

fn write_as(delimiter: u8, file: &Path, content: impl FnOnce(&mut Csv) -> Result<()>) -> Result<()> {
    let half = file.with_extension("part");
    let what = || format!("cannot write {}", file.display());
    let out = std::io::BufWriter::with_capacity(1 << 16, std::fs::File::create(&half).with_context(what)?);
    let mut out = csv::WriterBuilder::new().delimiter(delimiter).from_writer(out);
    content(&mut out)?;
    let mut out = out.into_inner().map_err(|e| anyhow::anyhow!("{e}")).with_context(what)?;
    out.flush().with_context(what)?;
    out.into_inner().map_err(|e| e.into_error()).and_then(|f| f.sync_all()).with_context(what)?;
    std::fs::rename(&half, file).with_context(what)
}

fn save_model(problem: &Labels<f32>, parts: &Sites, weights: Vec<f32>, folder: &Path) -> Result<()> {
    let shape = match problem.net().model {
        Model::Mlp(hidden) => Shape::Mlp { hidden },
        Model::Bert(bert) => Shape::Bert(saved::sizes(&bert)),
        Model::LinearNoBias => Shape::Linear { bias: false },
        _ => Shape::Linear { bias: true },
    };
    let mut about = BTreeMap::from([
        ("way".to_string(), word(problem.way())?),
        ("dibo".to_string(), env!("CARGO_PKG_VERSION").to_string()),
    ]);
    if let Some(tokenizer) = &parts.tokenizer {
        about.insert(TOKENIZER.to_string(), tokenizer.clone());
    }
    let agreed = &parts.agreed[0];
    let (encoding, classes) = (agreed.encoding.clone(), agreed.classes.clone());
    saved::save(&SavedModel { shape, encoding, classes, weights, about }, folder)
}

/// The word of a way in files.
fn word(way: dibo::problem::learning::Way) -> Result<String> {
    Ok(serde_json::to_string(&way)?.trim_matches('"').to_string())
}

type Csv = csv::Writer<std::io::BufWriter<std::fs::File>>;

impl Sites {
    /// What an agent is called, by its place among those that are here.
    fn owner(&self, place: usize, agent: usize) -> Cow<'_, str> {
        self.own.get(place).map_or_else(|| agent.to_string().into(), |o| o.owner.as_str().into())
    }

    /// What its owner calls a row that is judged.
    fn id(&self, place: usize, row: usize) -> Cow<'_, str> {
        self.own.get(place).map_or_else(|| row.to_string().into(), |o| o.id(row))
    }
}

/// One line of the list. There are as many as rows: what is known elsewhere is not copied.
struct Listed<'a> {
    /// Whose it is among those that are here, and which of its rows.
    at: (usize, usize),
    id: Cow<'a, str>,
    owner: Cow<'a, str>,
    given: &'a str,
    suggested: &'a str,
    score: f64,
    weight: f64,
}

/// The rows, the most suspicious first.
fn listed<'a>(problem: &Labels<f32>, parts: &'a Sites, judged: &[Judged]) -> Vec<Listed<'a>> {
    let mut order: Vec<(usize, usize)> = Vec::new();
    for (place, j) in judged.iter().enumerate() {
        order.extend((0..j.verdicts.len()).map(|row| (place, row)));
    }
    let odds = |at: &(usize, usize)| judged[at.0].verdicts[at.1].log_odds;
    order.sort_by(|a, b| odds(a).total_cmp(&odds(b)).then(a.cmp(b)));
    let classes = &parts.agreed[0].classes;
    let line = |(place, row): (usize, usize)| {
        let j = &judged[place];
        let (verdict, given) = (&j.verdicts[row], problem.site(j.agent).labels[row]);
        Listed {
            at: (place, row),
            id: parts.id(place, row),
            owner: parts.owner(place, j.agent),
            given: &classes[given as usize],
            suggested: &classes[verdict.suggested as usize],
            score: verdict.score,
            weight: j.weights.as_ref().and_then(|w| w.get(row)).copied().unwrap_or(verdict.score),
        }
    };
    order.into_iter().map(line).collect()
}

/// The columns of the list, by the names that cleanlab's users know.
const LISTED: [&str; 7] =
    ["id", "owner", "given_label", "predicted_label", "label_score", "is_label_issue", "weight"];

impl Listed<'_> {
    fn cells(&self) -> [Cow<'_, str>; 7] {
        [
            (*self.id).into(),
            (*self.owner).into(),
            self.given.into(),
            self.suggested.into(),
            format!("{:.6e}", self.score).into(),
            if self.suggested == self.given { "False" } else { "True" }.into(),
            format!("{:.6e}", self.weight).into(),
        ]
    }
}

fn labels(list: &[Listed<'_>], out: &mut Csv) -> Result<()> {
    out.write_record(LISTED)?;
    list.iter().try_for_each(|row| Ok(out.write_record(row.cells().iter().map(|c| c.as_bytes()))?))
}

/// So many rows stand in the list that shows what its reader judges by.
const MOST: usize = 20;

/// The first rows of the list with the texts, words and numbers that their files have for them.
fn suspicious(list: &[Listed<'_>], parts: &Sites, out: &mut Csv) -> Result<()> {
    let columns = &parts.agreed[0].encoding.columns;
    let single = |name: &str| parts.own.iter().all(|own| own.cell(0, name).is_some());
    let names =
        Vec::from_iter(columns.iter().map(Encoded::name).filter(|n| !parts.own.is_empty() && single(n)));
    out.write_record(LISTED.iter().copied().chain(names.iter().copied()))?;
    for row in list.iter().take(MOST) {
        let (place, at) = row.at;
        let seen = names.iter().map(|name| parts.own[place].cell(at, name).unwrap_or_default());
        out.write_record(row.cells().into_iter().map(Cow::into_owned).chain(seen))?;
    }
    Ok(())
}

fn labels_parquet(list: &[Listed<'_>], file: &Path) -> Result<()> {
    let columns = [
        Column::Texts(list.iter().map(|row| &*row.id).collect()),
        Column::Texts(list.iter().map(|row| &*row.owner).collect()),
        Column::Texts(list.iter().map(|row| row.given).collect()),
        Column::Texts(list.iter().map(|row| row.suggested).collect()),
        Column::Numbers(list.iter().map(|row| row.score).collect()),
        Column::Flags(list.iter().map(|row| row.suggested != row.given).collect()),
        Column::Numbers(list.iter().map(|row| row.weight).collect()),
    ];
    write_table(file, &LISTED.into_iter().zip(columns).collect::<Vec<_>>())
}

/// Each own table with all its columns and the labels that its rows should have, as `cleaned_NAME`. Arrays,
/// images and packed files have `cleaned.csv` alone.
fn cleaned_tables(parts: &Sites, judged: &[Judged], folder: &Path) -> Result<()> {
    let mut files: BTreeMap<&Path, BTreeMap<usize, u8>> = BTreeMap::new();
    for (own, j) in parts.own.iter().zip(judged) {
        let labels = files.entry(own.file()).or_default();
        labels.extend(j.verdicts.iter().enumerate().map(|(place, v)| (own.row(place), v.suggested)));
    }
    let names = names(&files.keys().copied().collect::<Vec<_>>());
    for ((file, labels), name) in files.into_iter().zip(names) {
        // Endings in capitals are read, too.
        let ending = file.extension().map(|e| e.to_string_lossy().to_lowercase());
        let delimiter = match ending.as_deref() {
            Some("csv") => b',',
            Some("tsv" | "tab") => b'\t',
            _ => continue,
        };
        let what = || format!("cannot read {}", file.display());
        let mut rows = csv::ReaderBuilder::new().delimiter(delimiter).from_path(file).with_context(what)?;
        let head = rows.byte_headers().with_context(what)?.clone();
        // As it was read: spaces beyond ASCII are spaces.
        let is_label = |cell: &[u8]| std::str::from_utf8(cell).is_ok_and(|c| c.trim() == parts.label);
        let label = head.iter().position(is_label);
        let label = label.with_context(|| format!("{}: the column is gone", file.display()))?;
        write_as(delimiter, &folder.join(format!("cleaned_{name}")), |out| {
            out.write_byte_record(&head)?;
            for (at, row) in rows.byte_records().enumerate() {
                let row = row.with_context(what)?;
                let better = labels.get(&at).map(|c| parts.agreed[0].classes[*c as usize].as_bytes());
                let cell = |(i, old)| if i == label { better.unwrap_or(old) } else { old };
                out.write_record(row.iter().enumerate().map(cell))?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// What tables are called: by their names, where two are the same by their folders' names, too, and where
/// that does not tell them apart by numbers.
fn names(files: &[&Path]) -> Vec<String> {
    let word = |name: Option<&OsStr>| name.unwrap_or_default().to_string_lossy().into_owned();
    let plain = Vec::from_iter(files.iter().map(|file| word(file.file_name())));
    // Some systems take capitals and small letters for the same.
    let same = |a: &str, b: &str| a.to_lowercase() == b.to_lowercase();
    let twice = |name: &String| plain.iter().filter(|other| same(other, name)).count() > 1;
    let mut used: BTreeSet<String> = plain.iter().filter(|n| !twice(n)).map(|n| n.to_lowercase()).collect();
    let name = |(file, name): (&&Path, &String)| {
        if !twice(name) {
            return name.clone();
        }
        let whole = std::path::absolute(file).unwrap_or_else(|_| file.to_path_buf());
        let parent = word(whole.parent().and_then(Path::file_name));
        let mut ways =
            std::iter::once(format!("{parent}_{name}")).chain((1..).map(|n| format!("{n}_{name}")));
        ways.find(|way| used.insert(way.to_lowercase())).unwrap_or_default()
    };
    files.iter().zip(&plain).map(name).collect()
}

/// Every judged row in the order of its file with the label that it should have.
fn cleaned(problem: &Labels<f32>, parts: &Sites, judged: &[Judged], out: &mut Csv) -> Result<()> {
    out.write_record(["id", "owner", "label", "given_label"])?;
    let classes = &parts.agreed[0].classes;
    for (place, j) in judged.iter().enumerate() {
        let (owner, labels) = (parts.owner(place, j.agent), &problem.site(j.agent).labels);
        for (row, (verdict, given)) in j.verdicts.iter().zip(labels).enumerate() {
            let (id, label) = (parts.id(place, row), &classes[verdict.suggested as usize]);
            out.write_record([&*id, &owner, label, &classes[*given as usize]])?;
        }
    }
    Ok(())
}

/// How many labels of each owner are called wrong, and how well its labels agree with the model.
fn owners(problem: &Labels<f32>, parts: &Sites, judged: &[Judged], out: &mut Csv) -> Result<()> {
    out.write_record(["owner", "rows", "checked", "suspicious", "suspicious_share", "mean_score"])?;
    for (place, j) in judged.iter().enumerate() {
        let site = problem.site(j.agent);
        let suspicious = j.verdicts.iter().zip(&site.labels).filter(|(v, l)| v.suggested != **l).count();
        let rows = j.verdicts.len().max(1) as f64;
        out.write_record([
            parts.owner(place, j.agent).into_owned(),
            site.given.to_string(),
            (site.rows() - site.given).to_string(),
            suspicious.to_string(),
            format!("{:.4}", suspicious as f64 / rows),
            format!("{:.4}", j.verdicts.iter().map(|v| v.score).sum::<f64>() / rows),
        ])?;
    }
    Ok(())
}

/// Class weights, trust and regularisers, where the upper level decides them, as each owner has them.
fn decided(parts: &Sites, judged: &[Judged], out: &mut Csv) -> Result<()> {
    out.write_record(["owner", "what", "value"])?;
    let classes = &parts.agreed[0].classes;
    for (place, j) in judged.iter().enumerate() {
        for (name, value) in &j.decided {
            let number = |prefix: &str| name.strip_prefix(prefix)?.parse::<usize>().ok();
            let columns = &parts.agreed[0].encoding.columns;
            let others = || "tau of all other weights".to_string();
            let name = if let Some(c) = number("class ") {
                format!("weight of {}", classes[c])
            } else if let Some(c) = number("tau of column ") {
                columns.get(c).map_or_else(others, |c| format!("tau of {}", c.name()))
            } else if let Some(c) = number("tau of class ") {
                classes.get(c).map_or_else(others, |c| format!("tau of class {c}"))
            } else {
                name.clone()
            };
            out.write_record([&*parts.owner(place, j.agent), &name, &format!("{value:.6e}")])?;
        }
    }
    Ok(())
}

/// How often each class is given as each label: what the method learned (`learned`), and what the suggested
/// labels say, owner by owner.
fn matrices(parts: &Sites, judged: &[Judged], out: &mut Csv) -> Result<()> {
    let classes = &parts.agreed[0].classes;
    let mut head = vec!["owner".to_string(), "from".into(), "class".into()];
    head.extend(classes.iter().map(|c| format!("given_{c}")));
    out.write_record(&head)?;
    for (place, j) in judged.iter().enumerate() {
        let owner = parts.owner(place, j.agent);
        if let Some(t) = &j.matrix {
            for (c, row) in t.chunks_exact(classes.len()).enumerate() {
                let line = [owner.to_string(), "learned".into(), classes[c].clone()];
                let numbers = row.iter().map(|v| format!("{v:.6}"));
                out.write_record(line.into_iter().chain(numbers))?;
            }
        }
        let mut counts = vec![0usize; classes.len() * classes.len()];
        for (v, given) in j.verdicts.iter().zip(&parts.sites[j.agent].labels) {
            counts[v.suggested as usize * classes.len() + *given as usize] += 1;
        }
        for (c, row) in counts.chunks_exact(classes.len()).enumerate() {
            let line = [owner.to_string(), "suggested".into(), classes[c].clone()];
            out.write_record(line.into_iter().chain(row.iter().map(|n| n.to_string())))?;
        }
    }
    Ok(())
}
