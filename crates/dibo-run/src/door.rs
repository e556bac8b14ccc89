//! The one door: whoever runs something opens it here. The problem is built from its own keys, needs and
//! values are checked, the start is the problem's, the place is chosen: simulator, links that lose messages,
//! device; processes bring a network of their own.
use crate::device::Accelerator;
use crate::problems::{Ask, Built, Finale, Local, Meeting, Numbers};
use crate::setting::Setting;
use anyhow::{Context, Result, bail, ensure};
use dibo::algorithm::Algorithm;
use dibo::engine::{self, Checkpoint, Plan, Record, Watch};
use dibo::graph::{Loss, Static};
use dibo::metrics::ALWAYS;
use dibo::mixing::Sequence;
use dibo::network::{Network, Simulated};
use dibo::problem::{Better, Bilevel, Metric};
use dibo::rows::{Real, Threads};
use std::path::Path;

/// Where a run takes place.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    /// Where relative files begin.
    pub folder: &'a Path,
    /// Threads that it may use.
    pub threads: &'a Threads,
    /// The device, if it goes there.
    pub device: Option<&'a Accelerator>,
    /// The agents and files of this process, where others have the rest.
    pub local: Option<&'a Local>,
    /// How its agents meet the others before a run; all are here if nobody says.
    pub meeting: Option<&'a dyn Meeting>,
}

impl<'a> Place<'a> {
    /// All agents here, on the host.
    pub fn new(folder: &'a Path, threads: &'a Threads) -> Self {
        Place { folder, threads, device: None, local: None, meeting: None }
    }
}

/// A setting with a seed, opened: everything has been built and checked.
pub struct Opened<'a> {
    /// The setting.
    pub setting: &'a Setting,
    /// The seed.
    pub seed: u64,
    /// Graphs and weights.
    pub graphs: Sequence,
    /// Messages that are lost.
    pub loss: Option<Loss>,
    /// The problem.
    pub built: Built,
    place: Place<'a>,
}

/// Something to do with an opened run, whatever its numbers are.
pub trait Visit {
    /// What comes out.
    type Out;
    /// Does it.
    fn visit<T: Real>(self, ready: Ready<'_, T>) -> Result<Self::Out>;
}

/// An opened run on numbers of one type.
pub struct Ready<'a, T: Real> {
    /// The algorithm.
    pub algorithm: &'a dyn Algorithm<T>,
    /// The problem.
    pub problem: &'a dyn Bilevel<T>,
    /// How to go.
    pub plan: Plan,
    /// What is made of the state at the end.
    pub finale: &'a Finale<T>,
    opened: &'a Opened<'a>,
    simulated: fn(Sequence, Option<Loss>, Threads) -> Box<dyn Network<T>>,
}

/// Opens a setting with a seed.
pub fn open<'a>(setting: &'a Setting, seed: u64, place: Place<'a>) -> Result<Opened<'a>> {
    let (graphs, loss) = (setting.graphs(seed, place.folder)?, setting.loss(seed)?);
    if let Err(e) = graphs.check(setting.parameters().graph_needs()) {
        bail!("{}: [graph]: {} {e}", setting.place, setting.series.label);
    }
    if place.device.is_some() {
        let label = &setting.series.label;
        ensure!(
            loss.is_none(),
            "{label}: links that lose messages are not simulated on the GPU; leave --device away"
        );
    }
    let Place { folder, threads, device, local, meeting } = place;
    // Sites that work alone agree once on classes and scaling all the same: else nothing could be compared.
    let ring = setting.graph.apart().then(|| Sequence::uniform(Static::ring(graphs.agents())));
    let (algorithm, links) = (&*setting.algorithm, ring.as_ref().unwrap_or(&graphs));
    let ask = Ask { seed, folder, threads, algorithm, device, links, local, meeting };
    let built = setting.problem.build(&ask).with_context(|| format!("{}: [problem]", setting.place))?;
    let opened = Opened { setting, seed, graphs, loss, built, place };
    opened.visit(Check)?;
    Ok(opened)
}

/// What the engine would refuse, said with the setting's name before anything runs.
struct Check;

impl Visit for Check {
    type Out = ();

    fn visit<T: Real>(self, ready: Ready<'_, T>) -> Result<()> {
        let setting = ready.opened.setting;
        let needs = setting.parameters().needs();
        if !needs.met_by(ready.problem) {
            let (place, label) = (&setting.place, &setting.series.label);
            bail!("{place}: {label} needs {}, which this problem does not have", needs.words());
        }
        let known = ready.problem.measures();
        let asked = setting.run.metric(None).filter(|_| !known.is_empty());
        if let Some(name) = asked.filter(|name| known.iter().chain(&ALWAYS).all(|m| m.name != *name)) {
            let names: Vec<&str> = known.iter().chain(&ALWAYS).map(|m| m.name).collect();
            let close = crate::section::did_you_mean(name, names.iter().copied());
            bail!(
                "{}: [run]: metric is '{name}'; this problem reports {}{close}",
                setting.place,
                names.join(", ")
            );
        }
        Ok(())
    }
}

impl<'a> Opened<'a> {
    /// Goes on with the numbers that the problem has: the one place where their type is chosen.
    pub fn visit<V: Visit>(&self, visitor: V) -> Result<V::Out> {
        match &self.built.problem {
            Numbers::F32(p, finale) => {
                visitor.visit(self.ready::<f32>(&*self.setting.algorithm, &**p, finale))
            }
            Numbers::F64(p, finale) => {
                visitor.visit(self.ready::<f64>(&*self.setting.algorithm, &**p, finale))
            }
        }
    }

    fn ready<'b, T: Simulated>(
        &'b self,
        algorithm: &'b dyn Algorithm<T>,
        problem: &'b dyn Bilevel<T>,
        finale: &'b Finale<T>,
    ) -> Ready<'b, T> {
        let plan = self.setting.run.plan(problem.measures().first().map(|m| m.name));
        Ready { algorithm, problem, plan, finale, opened: self, simulated: T::simulated }
    }

    /// The metrics that its problem reports; the first is the one to look at.
    pub fn measures(&self) -> Vec<Metric> {
        match &self.built.problem {
            Numbers::F32(p, _) => p.measures(),
            Numbers::F64(p, _) => p.measures(),
        }
    }

    /// What `tune` looks at by default and which way is better: the file's metric, else the problem's first.
    pub fn watched(&self, asked: Option<&str>) -> Result<(String, Better)> {
        let known = self.measures();
        let first = known.first().map(|m| m.name);
        let Some(name) = asked.or_else(|| self.setting.run.metric(first)) else {
            bail!("this problem names no metric; give one with --metric");
        };
        match known.iter().chain(&ALWAYS).find(|m| m.name == name) {
            Some(metric) => Ok((name.into(), metric.better)),
            None if known.is_empty() => Ok((name.into(), Better::Lower)),
            None => {
                let names: Vec<&str> = known.iter().chain(&ALWAYS).map(|m| m.name).collect();
                let close = crate::section::did_you_mean(name, names.iter().copied());
                bail!("there is no metric '{name}'; this problem reports {}{close}", names.join(", "))
            }
        }
    }
}

impl<T: Real> Ready<'_, T> {
    /// The setting.
    pub fn setting(&self) -> &Setting {
        self.opened.setting
    }

    /// Graphs and weights.
    pub fn graphs(&self) -> &Sequence {
        &self.opened.graphs
    }

    /// Messages that are lost.
    pub fn loss(&self) -> Option<Loss> {
        self.opened.loss
    }

    /// All agents in this process: the simulator, with lost messages where the file says so, or the device.
    pub fn network(&self) -> Result<Box<dyn Network<T>>> {
        let Opened { graphs, loss, place, .. } = self.opened;
        match place.device {
            Some(device) => device.network(graphs.clone(), place.threads.clone()),
            None => Ok((self.simulated)(graphs.clone(), *loss, place.threads.clone())),
        }
    }

    /// Runs over a network, from the beginning or from a checkpoint.
    pub fn run(
        &self,
        network: &mut dyn Network<T>,
        resume: Option<Checkpoint<'_, T>>,
        watch: &mut dyn Watch<T>,
    ) -> dibo::Result<Record> {
        engine::run(self.algorithm, self.problem, network, None, &self.plan, resume, watch)
    }
}
