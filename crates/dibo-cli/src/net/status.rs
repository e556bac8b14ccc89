//! `dibo status`: what the processes of a run show of themselves; the same figures for Prometheus.
use super::Common;
use anyhow::{Context, Result, ensure};
use dibo_net::node::{Board, agents};
use dibo_report::live::Member;
use dibo_run::{Registry, say};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// What a user can choose about a status.
#[derive(clap::Args)]
pub struct StatusOptions {
    #[command(flatten)]
    common: Common,
}

/// The name of the file in the folder of a process.
pub const FILE: &str = "status.json";

/// What a process shows, and when it did.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Status {
    /// Seconds since 1970.
    pub at: u64,
    /// Rounds a second, lately.
    pub rate: f64,
    /// Parts of the experiment.
    pub jobs: usize,
    /// How the process ended, in words, where it did so by itself.
    #[serde(default)]
    pub ended: Option<String>,
    #[serde(flatten)]
    pub board: Board,
}

fn seconds_now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

/// A status, and the board of the part that the process is in.
type Latest = (Status, Option<Arc<Mutex<Board>>>);

/// The latest that a process shows; of the part it is in.
#[derive(Clone)]
pub struct Shown(Arc<Mutex<Latest>>);

impl Shown {
    /// Of a process with these agents that is in no part yet.
    pub fn new(agents: Vec<usize>, jobs: usize) -> Self {
        let board = Board { agents, ..Board::default() };
        Shown(Arc::new(Mutex::new((Status { at: seconds_now(), jobs, board, ..Status::default() }, None))))
    }

    /// Looks at another board from now on.
    pub fn follow(&self, board: Arc<Mutex<Board>>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).1 = Some(board);
    }

    /// Takes a new look; `since` is the time since the last.
    fn look(&self, since: Duration) -> Status {
        let mut inside = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let board = inside.1.as_ref().map(|b| b.lock().unwrap_or_else(PoisonError::into_inner).clone());
        // A part that has not begun has shown nothing.
        let board = board.filter(|b| !b.agents.is_empty()).unwrap_or_else(|| inside.0.board.clone());
        let before = if inside.0.board.job == board.job { inside.0.board.round } else { 0 };
        let rate = board.round.saturating_sub(before) as f64 / since.as_secs_f64().max(1e-3);
        let (jobs, ended) = (inside.0.jobs, inside.0.ended.take());
        inside.0 = Status { at: seconds_now(), rate, jobs, ended, board };
        inside.0.clone()
    }

    /// The process ends, in these words: they are the last that it shows.
    pub fn end(&self, folder: &Path, words: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0.ended = Some(words);
        self.look(Duration::from_secs(1));
        self.write(folder);
    }

    /// Writes what was seen last into a folder, one writer at a time.
    fn write(&self, folder: &Path) {
        let inside = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (file, new) = (folder.join(FILE), folder.join("status.json.tmp"));
        // A status that cannot be written is none: the run's own files are looked after elsewhere.
        if let Ok(text) = serde_json::to_vec(&inside.0) {
            let _ = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, &file));
        }
    }

    fn last(&self) -> Status {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    /// Writes the status into a folder every second, and says now and then how far this process is.
    pub fn tell(&self, folder: &Path, speak: bool) {
        let (shown, folder) = (self.clone(), folder.to_path_buf());
        // What an earlier life showed is old.
        let _ = std::fs::remove_file(folder.join(FILE));
        std::thread::spawn(move || {
            let (mut spoken, mut waited) = (0u64, 1);
            loop {
                std::thread::sleep(Duration::from_secs(1));
                let status = shown.look(Duration::from_secs(1));
                shown.write(&folder);
                spoken += 1;
                if speak && spoken >= waited && status.rate > 0.0 && !status.board.done {
                    tracing::info!("round {}, {:.0} rounds a second", status.board.round, status.rate);
                    (spoken, waited) = (0, (2 * waited).min(60));
                }
            }
        });
    }

    /// Serves the figures at an address.
    pub fn serve(&self, address: SocketAddr) -> Result<()> {
        let listener =
            TcpListener::bind(address).with_context(|| format!("--metrics: cannot listen on {address}"))?;
        let shown = self.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // One reader after the other, each with little time: whoever stalls is cut off.
                let _ = stream.set_read_timeout(Some(Duration::from_secs(2)));
                let _ = stream.set_write_timeout(Some(Duration::from_secs(2)));
                let mut line = String::new();
                let mut reader = BufReader::new(std::io::Read::take(&stream, 8192));
                let asked = reader.read_line(&mut line).is_ok() && line.starts_with("GET /metrics");
                while reader.read_line(&mut line).is_ok_and(|n| n > 2) {}
                let (head, body) = match asked {
                    true => ("200 OK", prometheus(&shown.last())),
                    false => ("404 Not Found", "the figures are at /metrics\n".into()),
                };
                let length = body.len();
                let _ = write!(
                    &stream,
                    "HTTP/1.1 {head}\r\nContent-Type: text/plain; version=0.0.4\r\n\
                    Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
                );
            }
        });
        Ok(())
    }
}

/// The figures as Prometheus reads them.
fn prometheus(status: &Status) -> String {
    let (board, mut text) = (&status.board, String::new());
    let mut one = |name: &str, help: &str, kind: &str, values: Vec<(String, f64)>| {
        let _ = writeln!(text, "# HELP dibo_{name} {help}\n# TYPE dibo_{name} {kind}");
        for (labels, value) in values {
            let _ = writeln!(text, "dibo_{name}{labels} {value}");
        }
    };
    let plain = |value: f64| vec![(String::new(), value)];
    let of = |c: &dibo_net::node::Contact| format!("{{process=\"{}\"}}", c.agents.first().unwrap_or(&0));
    let counts = &board.counts;
    one("round", "The round this process is in.", "gauge", plain(board.round as f64));
    one("rounds_per_second", "Rounds in the last second.", "gauge", plain(status.rate));
    one("waited_seconds", "How long it has been waiting.", "gauge", plain(board.waited));
    one("kept_bytes", "Bytes kept for others who may ask again.", "gauge", plain(board.kept as f64));
    one("sent_bytes_total", "Numbers sent for the first time.", "counter", plain(counts.payload as f64));
    one("resent_bytes_total", "Numbers sent again.", "counter", plain(counts.again as f64));
    one("overhead_bytes_total", "All other bytes sent.", "counter", plain(counts.overhead as f64));
    one("asked_total", "Messages asked for again.", "counter", plain(counts.asked as f64));
    let refused =
        counts.refused.iter().map(|(why, n)| (format!("{{reason=\"{why}\"}}"), *n as f64)).collect();
    one("refused_total", "Packets refused.", "counter", refused);
    let contacts = |value: &dyn Fn(&dibo_net::node::Contact) -> f64| {
        board.contacts.iter().map(|c| (of(c), value(c))).collect::<Vec<_>>()
    };
    one("peer_round", "The round another process is in.", "gauge", contacts(&|c| c.round as f64));
    one("peer_heard_seconds", "Time since another process was heard.", "gauge", contacts(&|c| c.heard));
    text
}

/// What the processes whose folders lie in `root` show, in the order of their agents.
pub fn read_all(root: &Path) -> std::io::Result<Vec<Status>> {
    let mut all: Vec<Status> = std::fs::read_dir(root)?
        .filter_map(|e| serde_json::from_slice(&std::fs::read(e.ok()?.path().join(FILE)).ok()?).ok())
        .collect();
    all.sort_by(|a, b| a.board.agents.cmp(&b.board.agents));
    Ok(all)
}

/// Shows what the processes whose folders lie under OUT/agents say of themselves and of the others.
pub fn status(registry: &Registry, options: StatusOptions) -> Result<ExitCode> {
    let experiment = registry.load(&options.common.experiment.request())?;
    let root = options.common.out(&experiment)?.join("agents");
    let all = read_all(&root).with_context(|| format!("no process has run in {}", root.display()))?;
    ensure!(!all.is_empty(), "no process in {} shows a status", root.display());
    let now = seconds_now();
    for status in &all {
        say!("{}", line(status, now));
        for c in status.board.contacts.iter().filter(|c| all.iter().all(|s| s.board.agents != c.agents)) {
            let waits = waits(&c.waits, c.done);
            let who = agents(c.agents.iter().copied());
            let heard = c.heard + now.saturating_sub(status.at) as f64;
            say!("  {who}, elsewhere: round {}, heard {heard:.1} s ago, {waits}", c.round);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn waits(whom: &[u32], done: bool) -> String {
    match (done, whom) {
        (true, _) => "done".into(),
        (false, []) => "computing".into(),
        _ => format!("waiting for the process of {}", agents(whom.iter().map(|p| *p as usize))),
    }
}

fn doing(status: &Status) -> String {
    let Status { board, ended, .. } = status;
    match (ended, &board.missing[..]) {
        (Some(ended), _) => ended.clone(),
        (None, []) => waits(&board.waits, board.done),
        (None, missing) => format!("waiting for {} to appear", agents(missing.iter().copied())),
    }
}

/// Rounds behind the first of those that a process hears: its own view of one moment, since the statuses of
/// several are of several.
fn behind(board: &Board) -> u64 {
    board.contacts.iter().map(|c| c.round).max().unwrap_or(0).saturating_sub(board.round)
}

/// Remarks on a status that is too old for a process that runs.
fn old(status: &Status, now: u64) -> String {
    let ago = now.saturating_sub(status.at);
    let lives = status.ended.is_none();
    if lives && ago > 5 { format!(" [said {ago} s ago: not running?]") } else { String::new() }
}

/// The same processes for a page that watches.
pub fn members(all: &[Status]) -> Vec<Member> {
    let now = seconds_now();
    let job = all.iter().map(|s| s.board.job).max().unwrap_or(0);
    let heard = |board: &Board| {
        let by = all.iter().flat_map(|s| s.board.contacts.iter().map(move |c| (s.at, c)));
        let ago = by.filter(|(_, c)| c.agents == board.agents);
        ago.map(|(at, c)| now.saturating_sub(at) as f64 + c.heard).min_by(f64::total_cmp)
    };
    let member = |status: &Status| {
        let Status { board, ended, .. } = status;
        let waits = ended.is_none() && !board.done;
        Member {
            agents: board.agents.clone(),
            name: agents(board.agents.iter().copied()),
            round: board.round,
            behind: (board.job == job).then(|| behind(board)),
            sent: board.counts.payload + board.counts.overhead + board.counts.again,
            lost: board.counts.asked,
            resent: board.counts.resent,
            heard: heard(board),
            waits: waits && (!board.waits.is_empty() || !board.missing.is_empty()),
            doing: doing(status) + &old(status, now),
        }
    };
    all.iter().map(member).collect()
}

fn line(status: &Status, now: u64) -> String {
    let Status { rate, jobs, board, .. } = status;
    let (doing, old) = (doing(status), old(status, now));
    format!(
        "{}: part {} of {jobs}, round {} ({} behind), {rate:.0} rounds a second, {doing}, {} bytes sent, {} \
        sent again, {} kept{old}",
        agents(board.agents.iter().copied()),
        (board.job as usize / 2 + 1).min(*jobs),
        board.round,
        behind(board),
        board.counts.payload + board.counts.overhead,
        board.counts.again,
        board.kept,
    )
}
