//! What the processes of a run left behind, as one report; and the comparison with the simulator.
use super::agent::{job_digest, job_name};
use super::{Common, folder_of};
use anyhow::{Context, Result, bail, ensure};
use dibo::engine::{Record, Sample, Watch};
use dibo::rows::{Real, Threads, View};
use dibo_net::disk::{ReadFolder, Store};
use dibo_net::life::{EndRows, end_rows};
use dibo_net::node::{Counts, agents};
use dibo_report::live::Live;
use dibo_report::results::{Folder, MemoryUse};
use dibo_run::door::{Place, Ready, Visit, open};
use dibo_run::{Experiment, Registry, fold, runner, say};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

/// What a user can choose about gathering.
#[derive(clap::Args)]
pub struct GatherOptions {
    #[command(flatten)]
    common: Common,
    /// Run in the simulator too and compare every bit
    #[arg(long)]
    verify: bool,
}

/// Makes the report of a run whose processes' folders lie under OUT/agents.
pub fn gather(registry: &Registry, options: GatherOptions) -> Result<ExitCode> {
    let (began, started) = (Instant::now(), SystemTime::now());
    let experiment = options.common.load(registry, false)?;
    let out = options.common.out(&experiment)?;
    let root = out.join("agents");
    let entries = std::fs::read_dir(&root).with_context(|| {
        format!("cannot read {}; copy the folders of all processes there", root.display())
    })?;
    let mut processes: Vec<usize> =
        entries.filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok()).collect();
    processes.sort_unstable();
    ensure!(
        processes.first() == Some(&0),
        "{} holds no folder 0, of the process that computes the metrics",
        root.display()
    );
    let agents = experiment.settings[0].agents(&experiment.folder)?;
    let all = Gathered { registry, experiment: &experiment, out: &out, processes, agents };
    let missing = all.report(began, started, None)?;
    if options.verify {
        all.verify()?;
    }
    if missing > 0 {
        say!("{missing} of {} runs are not done", runner::jobs(&experiment).len());
        return Ok(ExitCode::from(2));
    }
    Ok(ExitCode::SUCCESS)
}

/// The folders of all processes of a run.
pub struct Gathered<'a> {
    pub registry: &'a Registry,
    pub experiment: &'a Experiment,
    pub out: &'a Path,
    /// Lowest agents.
    pub processes: Vec<usize>,
    pub agents: usize,
}

impl Gathered<'_> {
    fn kept<P: serde::de::DeserializeOwned>(
        &self,
        process: usize,
        s: usize,
        seed: u64,
        ending: &str,
    ) -> Option<P> {
        let disk = ReadFolder(folder_of(self.out, process));
        Store::new(&disk, job_digest(self.experiment, s, seed).ok()?, job_name(s, seed)).read_value(ending)
    }

    /// The record of the process with agent 0, which has everybody's metrics; gradients and memory are summed
    /// over all whose folders are here.
    fn record(&self, s: usize, seed: u64) -> Option<Record> {
        let mut record: Record = self.kept(0, s, seed, "done")?;
        for other in self
            .processes
            .iter()
            .filter(|p| **p != 0)
            .filter_map(|p| self.kept::<Record>(*p, s, seed, "done"))
        {
            record.state_bytes += other.state_bytes;
            for (sample, more) in record.samples.iter_mut().zip(&other.samples) {
                sample.oracle.gradients += more.oracle.gradients;
                sample.oracle.products += more.oracle.products;
            }
        }
        Some(record)
    }

    /// Tells a page that watches of the runs that have ended, one after the other; `told` counts those it
    /// knows.
    pub fn tell(&self, live: &Arc<Live>, told: &mut usize) {
        for (s, seed) in runner::jobs(self.experiment).into_iter().skip(*told) {
            // The process of agent 0 leaves a run when all others have its results, too.
            let left = folder_of(self.out, 0).join(format!("{}.left", job_name(s, seed)));
            let Some(record) = left.exists().then(|| self.record(s, seed)).flatten() else { return };
            runner::show_whole(&live.begin(s, seed, self.experiment.settings[s].run.iterations), &record);
            *told += 1;
        }
    }

    /// Seconds since the last of all results was written, of the processes whose folders are here.
    pub fn since_last_result(&self) -> Option<f64> {
        let (s, seed) = runner::jobs(self.experiment).pop()?;
        let file = format!("{}.done", job_name(s, seed));
        let written = |p: &usize| folder_of(self.out, *p).join(&file).metadata().ok()?.modified().ok();
        let last = self.processes.iter().filter_map(written).max()?;
        Some(SystemTime::now().duration_since(last).ok()?.as_secs_f64())
    }

    /// Agents whose folders are not here, by the rows that a run left.
    fn elsewhere(&self, s: usize, seed: u64) -> Vec<usize> {
        let rows = self.processes.iter().filter_map(|p| self.kept::<EndRows>(*p, s, seed, "rows"));
        let here: BTreeSet<usize> = rows.flatten().map(|row| row.1).collect();
        (0..self.agents).filter(|agent| !here.is_empty() && !here.contains(agent)).collect()
    }

    /// The report of `dibo run`, with real seconds, and what went over the wire. Gives how many runs are not
    /// done. `held` is the results folder where it is locked already.
    pub fn report(&self, began: Instant, started: SystemTime, held: Option<Folder>) -> Result<usize> {
        let jobs = runner::jobs(self.experiment);
        let records: Vec<Option<Record>> = jobs.iter().map(|(s, seed)| self.record(*s, *seed)).collect();
        ensure!(
            records.iter().any(Option::is_some),
            "no run of {} is done in {}",
            self.experiment.name,
            self.out.display()
        );
        let missing = records.iter().filter(|record| record.is_none()).count();
        let sum = |of: &dyn Fn(&Sample) -> f64| {
            records.iter().flatten().filter_map(|r| r.samples.last()).map(of).sum::<f64>()
        };
        let (bytes, messages) = (sum(&|s| s.traffic.bytes as f64), sum(&|s| s.traffic.messages as f64));
        let (rounds, seconds) = (sum(&|s| s.traffic.rounds as f64), sum(&|s| s.seconds));
        let options = runner::Options {
            out: self.out.to_path_buf(),
            threads: 1,
            device: None,
            quiet: true,
            live: None,
        };
        let records = records.into_iter().map(|r| r.map(|record| (record, MemoryUse::default()))).collect();
        let (manifest, curves) = runner::results(self.experiment, &options, &jobs, records, began, started)?;
        let identity = runner::identity(self.experiment)?;
        let open = || Folder::open(self.out, &self.experiment.name, &identity, false);
        let folder = held.map_or_else(open, Ok)?;
        crate::run::keep(self.registry, self.experiment, self.out, &manifest, &curves)?;
        folder.finish()?;
        let mut counts = Counts::default();
        for (s, seed) in &jobs {
            self.processes
                .iter()
                .filter_map(|p| self.kept::<Counts>(*p, *s, *seed, "left"))
                .for_each(|c| counts.add(&c));
        }
        let Counts { payload, messages: sent, overhead, again, asked, duplicates, refused, resent } = &counts;
        say!(
            "\naccount: {bytes} bytes in {messages} messages over {rounds} rounds; {:.0} rounds a second",
            rounds / seconds.max(1e-9)
        );
        say!(
            "wire:    {payload} bytes in {sent} messages, {overhead} bytes of overhead ({:.1} %)",
            100.0 * *overhead as f64 / (*payload).max(1) as f64
        );
        say!(
            "         {asked} messages asked for again, {resent} sent again with {again} bytes ({:.1} % of \
            all numbers), {duplicates} duplicates",
            100.0 * *again as f64 / (*payload).max(1) as f64
        );
        if self.processes.len() < self.agents {
            say!("         (one message serves all agents of a process, and those of one process need none)");
        }
        refused.iter().for_each(|(why, count)| say!("         {count} packets refused: {why}"));
        let memory = jobs.iter().flat_map(|(s, seed)| {
            self.processes.iter().filter_map(|p| self.kept::<Option<u64>>(*p, *s, *seed, "memory").flatten())
        });
        if let Some(most) = memory.max() {
            say!("memory:  {:.1} MB at most in one of {} processes", most as f64 / 1e6, self.processes.len());
        }
        let elsewhere = jobs.first().map(|(s, seed)| self.elsewhere(*s, *seed)).unwrap_or_default();
        if !elsewhere.is_empty() {
            let who = agents(elsewhere);
            say!(
                "{}",
                fold(&format!(
                    "the folders of {who} are not here: gradients, memory and wire are the others'"
                ))
            );
        }
        Ok(missing)
    }

    /// Compares rows and metrics of every process whose folder is here with the simulator's.
    pub fn verify(&self) -> Result<()> {
        let (mut here, mut hidden) = (self.agents, BTreeSet::new());
        for (s, seed) in runner::jobs(self.experiment) {
            here = here.min(self.verify_job(s, seed, &mut hidden)?);
        }
        if here < self.agents {
            say!("compared: the rows of {here} of {} agents, whose folders are here", self.agents);
        }
        if !hidden.is_empty() {
            let names: Vec<&str> = hidden.iter().map(String::as_str).collect();
            say!("not compared, since made of private variables (--show-private): {}", names.join(", "));
        }
        say!(
            "every bit of every row and metric{} is the simulator's",
            if here < self.agents { " here" } else { "" }
        );
        Ok(())
    }

    /// Gives how many agents' rows were there, and adds the metrics that were not.
    fn verify_job(&self, s: usize, seed: u64, hidden: &mut BTreeSet<String>) -> Result<usize> {
        let (setting, threads) = (&self.experiment.settings[s], Threads::one());
        let place = Place::new(&self.experiment.folder, &threads);
        let (record, mut expected) = open(setting, seed, place)?.visit(Simulate)?;
        let place = format!("{}, seed {seed}", setting.series.label);
        let mut rows = EndRows::new();
        for &p in &self.processes {
            rows.extend(
                self.kept::<EndRows>(p, s, seed, "rows")
                    .with_context(|| format!("{place}: rows are missing"))?,
            );
            let theirs: Record =
                self.kept(p, s, seed, "done").with_context(|| format!("{place}: a record is missing"))?;
            // Metrics that are made of private variables are not told unless all showed them.
            let told: BTreeSet<&String> =
                theirs.samples.iter().flat_map(|s| s.values.iter().map(|v| &v.0)).collect();
            let all = record.samples.iter().flat_map(|s| s.values.iter().map(|v| &v.0));
            hidden.extend(all.filter(|name| !told.contains(name)).cloned());
            let said = |r: &Record| -> Vec<_> {
                r.samples
                    .iter()
                    .flat_map(|s| s.values.iter().map(|v| (s.k, s.traffic.bytes, v.0.clone(), v.1.to_bits())))
                    .filter(|v| told.contains(&v.2))
                    .collect()
            };
            ensure!(
                record.outcome == theirs.outcome && said(&record) == said(&theirs),
                "{place}: process {p}'s metrics are not the simulator's"
            );
        }
        let here: BTreeSet<usize> = rows.iter().map(|r| r.1).collect();
        expected.retain(|r| here.contains(&r.1));
        rows.sort();
        expected.sort();
        ensure!(rows.len() == expected.len(), "{place}: {} rows instead of {}", rows.len(), expected.len());
        if let Some((r, _)) = rows.iter().zip(&expected).find(|(r, e)| r != e) {
            bail!("{place}: {} of agent {} has other bits than in the simulator", r.0, r.1);
        }
        Ok(here.len())
    }
}

/// The same run with all agents in this process.
struct Simulate;

struct Last(EndRows);

impl<T: Real> Watch<T> for Last {
    fn finished(&mut self, views: &[View<'_, T>]) {
        self.0 = end_rows(&(0..views.first().map_or(0, |v| v.rows.count())).collect::<Vec<_>>(), views);
    }
}

impl Visit for Simulate {
    type Out = (Record, EndRows);

    fn visit<T: Real>(self, ready: Ready<'_, T>) -> Result<Self::Out> {
        let (mut network, mut last) = (ready.network()?, Last(EndRows::new()));
        let record = ready.run(&mut *network, None, &mut last)?;
        Ok((record, last.0))
    }
}
