//! One part of an experiment in one process, from what its disk holds to its end: the same for machines and
//! for the simulated ones of the tests.
use crate::agents::{Agents, Shared, lock};
use crate::disk::{Found, Store};
use crate::node::Rejoined;
use dibo::engine::{Checkpoint, Outcome, Record};
use dibo::rows::{Real, View};
use std::time::Duration;

/// Rows at the end of a run: variable, agent, bytes.
pub type EndRows = Vec<(String, usize, Vec<u8>)>;

/// The rows of the owned agents.
pub fn end_rows<T: Real>(owned: &[usize], views: &[View<'_, T>]) -> EndRows {
    let bytes = |v: &View<'_, T>, row: usize| {
        let mut bytes = Vec::new();
        T::to_bytes(v.row(row), &mut bytes);
        bytes
    };
    let rows = |v| owned.iter().enumerate().map(move |(row, agent)| (v, row, agent));
    views.iter().flat_map(rows).map(|(v, row, agent)| (v.name.to_string(), *agent, bytes(v, row))).collect()
}

/// Checkpoints of a run: when they are due, and in which of two files each goes.
pub struct Keeper<'a> {
    node: Shared,
    store: &'a Store<'a>,
    every: Duration,
    bytes: usize,
    last: Option<Duration>,
    /// Rounds of the checkpoints that lie on the disk, the newest first.
    rounds: Vec<u64>,
    /// The file that comes next.
    next: usize,
}

impl Keeper<'_> {
    /// Whether it is time: so long after the last, or when so many bytes are kept here for others or there
    /// for this process.
    pub fn due(&self) -> bool {
        let node = lock(&self.node);
        let now = node.now();
        // The first at once, so that there always is one.
        self.last.is_none_or(|l| now.saturating_sub(l) >= self.every)
            || node.taken_bytes() > self.bytes
            || node.kept_bytes() > self.bytes && self.last.is_none_or(|l| now > l + self.every / 8)
    }

    /// Writes a checkpoint. One that cannot be written ends the run, since the others would forget what this
    /// process needs; they are told, and keep it.
    pub fn keep<T: Real>(&mut self, checkpoint: &Checkpoint<'_, T>) -> dibo::Result<()> {
        let round = checkpoint.traffic.rounds;
        let written = self.store.write_checkpoint(self.next, round, &checkpoint.to_bytes());
        if let Err(why) = written {
            return Err(dibo::Error::Watcher(lock(&self.node).give_up(why).into()));
        }
        self.next = 1 - self.next;
        self.rounds.insert(0, round);
        self.rounds.truncate(2);
        let mut node = lock(&self.node);
        self.last = Some(node.now());
        // The newer one may be found damaged: the others keep what the older one needs.
        let safe = if self.rounds.len() == 2 { self.rounds[1] } else { 0 };
        node.checkpointed(safe);
        Ok(())
    }

    /// What to go on from, for messages.
    pub fn word(&self) -> String {
        match self.rounds.first() {
            Some(round) => format!(
                "a checkpoint of round {round} is kept in {}: the same command goes on from there",
                self.store.place()
            ),
            None => "no checkpoint had been made: the same command begins anew".into(),
        }
    }
}

/// How a process's part of a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Its results are on the disk and nobody needs it any more.
    Left,
    /// Its results are on the disk; not all others were heard, so all that they may need is kept too.
    Kept,
    /// It was asked to stop.
    Stopped,
}

/// How often checkpoints are made.
#[derive(Clone, Copy, Debug)]
pub struct Often {
    /// After this time.
    pub every: Duration,
    /// When so many bytes are kept for others, or by others for this process.
    pub bytes: usize,
}

/// Runs one part of an experiment: takes up the newest checkpoint that is whole, meets the others, runs,
/// writes the results, and stays until all others have theirs. `run` is given the network, the checkpoint and
/// the keeper of further ones.
pub fn live<T: Real>(
    node: &Shared,
    store: &Store<'_>,
    often: Often,
    mut network: Agents<T>,
    run: impl FnOnce(
        &mut Agents<T>,
        Option<Checkpoint<'static, T>>,
        &mut Keeper<'_>,
    ) -> dibo::Result<(Record, EndRows)>,
) -> Result<Ended, String> {
    if let Found::Whole(_) = store.read("left") {
        return Ok(Ended::Left);
    }
    let mut keeper = Keeper {
        node: node.clone(),
        store,
        every: often.every,
        bytes: often.bytes,
        last: None,
        rounds: Vec::new(),
        next: 0,
    };
    let resume = take_up(node, store, &mut network, &mut keeper)?;
    let finished =
        matches!(store.read("done"), Found::Whole(_)) && matches!(store.read("rows"), Found::Whole(_));
    // A process that was killed after it had finished runs again only if somebody still needs it.
    let rejoined = if finished { lock(node).rejoin() } else { Rejoined::Needed };
    match rejoined {
        Rejoined::Alone => return Ok(Ended::Kept),
        Rejoined::AllDone => {}
        Rejoined::Needed => {
            let met = lock(node).meet().map_err(dibo::Error::Network);
            let (record, rows) = match met.and_then(|()| run(&mut network, resume, &mut keeper)) {
                Ok((record, _)) if matches!(record.outcome, Outcome::Stopped(_)) => {
                    lock(node).give_up("asked to stop".into());
                    return Ok(Ended::Stopped);
                }
                Ok(ended) => ended,
                Err(e) => {
                    // The others need to know, also when it is not the network that failed.
                    let why = lock(node).give_up(e.to_string());
                    return Err(format!("{why}; {}", keeper.word()));
                }
            };
            let written = store.write_value("rows", &rows).and_then(|()| store.write_value("done", &record));
            if let Err(why) = written {
                return Err(format!("{}; {}", lock(node).give_up(why), keeper.word()));
            }
            let finished = lock(node).finish();
            finished.map_err(|why| {
                format!(
                    "{why}; this process has its results, and what the others need is kept in {}: the same \
                    command goes on",
                    store.place()
                )
            })?;
        }
    }
    let counts = lock(node).counts().clone();
    store.write_value("left", &counts)?;
    store.remove_checkpoints();
    Ok(Ended::Left)
}

/// Goes on from the newest checkpoint that can be used; one that cannot falls back to the older one.
fn take_up<T: Real>(
    node: &Shared,
    store: &Store<'_>,
    network: &mut Agents<T>,
    keeper: &mut Keeper<'_>,
) -> Result<Option<Checkpoint<'static, T>>, String> {
    let (whole, mut wrong) = store.checkpoints();
    let mut resume = None;
    for (round, at, bytes) in whole {
        if resume.is_none() {
            let read = Checkpoint::<T>::from_bytes(&bytes).map_err(|e| e.to_string());
            match read.and_then(|c| network.take_up(&c).map(|()| c.into_owned())) {
                Ok(checkpoint) => resume = Some(checkpoint),
                Err(why) => {
                    wrong.push(why);
                    continue;
                }
            }
            // The next one must not overwrite this one.
            keeper.next = 1 - at;
        }
        keeper.rounds.push(round);
    }
    let mut node = lock(node);
    if !wrong.is_empty() {
        let from = resume.as_ref().map_or(0, |c| c.traffic.rounds);
        node.begins(format!("{}; begins in round {from}", wrong.join("; ")));
        eprintln!("{}; going on from round {from}", wrong.join("; "));
    }
    if keeper.rounds.len() == 2 {
        node.checkpointed(keeper.rounds[1]);
    }
    Ok(resume)
}
