//! Whole runs over the in-memory network: the same bits as the simulator, whatever happens to packets and
//! processes. Nothing here sleeps.
use bytes::Bytes;
use dibo::algorithm::Algorithm;
use dibo::engine::{self, Checkpoint, Plan, Record, Watch};
use dibo::graph::{Cycle, ErdosRenyi, Loss};
use dibo::mixing::{Rule, Sequence};
use dibo::network::{Lossy, Network, Simulator};
use dibo::problem::{Bilevel, PolicyEvaluation, Quadratic};
use dibo::rng::{Purpose, stream};
use dibo::rows::{Threads, View};
use dibo_net::agents::{Agents, Links, Shared, lock};
use dibo_net::gather;
use dibo_net::hub::{Hub, Line};
use dibo_net::node::{Counts, Node, Rejoined, Settings};
use dibo_net::transport::{Faults, Faulty, To, Transport};
use rand::RngExt;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn find(name: &str, parameters: Value) -> Box<dyn Algorithm<f64>> {
    dibo::trace::algorithm(name, parameters.as_object().unwrap().clone()).unwrap()
}

fn fab(name: &str) -> Box<dyn Algorithm<f64>> {
    find(name, json!({"lambda": 60.0, "eta_x": 0.1, "eta_y": 0.1, "penalty_form": "normalised"}))
}

/// What is run, and on which links.
struct Case {
    algorithm: Box<dyn Algorithm<f64>>,
    problem: Box<dyn Bilevel<f64>>,
    sequence: Sequence,
    loss: Option<(Loss, bool)>,
    plan: Plan,
}

impl Case {
    fn new(
        algorithm: Box<dyn Algorithm<f64>>,
        problem: impl Bilevel<f64> + 'static,
        sequence: Sequence,
        iterations: usize,
    ) -> Self {
        let plan = Plan { iterations, every: 10, target: None, diverged_above: 1e9, best: None };
        Case { algorithm, problem: Box::new(problem), sequence, loss: None, plan }
    }

    fn policy(iterations: usize) -> Self {
        Case::new(
            fab("fab"),
            PolicyEvaluation::random(10, 20, 5, 1),
            Sequence::uniform(Cycle::new(10, 0.3, 2)),
            iterations,
        )
    }

    /// Rows at the end by variable and agent, and the record.
    fn simulated(&self) -> (End, Record) {
        let mut network: Box<dyn Network<f64>> = match self.loss {
            Some((loss, _)) => Box::new(Lossy::new(self.sequence.clone(), loss, Threads::one())),
            None => Box::new(Simulator::new(self.sequence.clone(), Threads::one())),
        };
        let mut watch = Last(Vec::new());
        let record = engine::run(
            &*self.algorithm,
            &*self.problem,
            &mut *network,
            Some(&self.problem.start()),
            &self.plan,
            None,
            &mut watch,
        )
        .unwrap();
        (watch.0, record)
    }
}

/// (variable, agent, bits), sorted.
type End = Vec<(String, usize, Vec<u64>)>;

fn rows(owned: &[usize], views: &[View<'_, f64>]) -> End {
    let bits = |v: &View<'_, f64>, row: usize| v.row(row).iter().map(|x| x.to_bits()).collect();
    views
        .iter()
        .flat_map(|v| owned.iter().enumerate().map(|(row, agent)| (v.name.to_string(), *agent, bits(v, row))))
        .collect()
}

struct Last(End);

impl Watch<f64> for Last {
    fn finished(&mut self, views: &[View<'_, f64>]) {
        self.0 = rows(&(0..views[0].rows.count()).collect::<Vec<_>>(), views);
    }
}

/// A line that is cut when its time has come: the process dies at that moment.
struct Mortal {
    line: Line,
    /// Packets sent or received until death; negative once dead.
    left: Arc<AtomicI64>,
    stop: Arc<AtomicBool>,
}

impl Mortal {
    fn lives(&self) -> bool {
        let lives = self.left.fetch_sub(1, Relaxed) > 0;
        self.stop.fetch_or(!lives, Relaxed);
        lives
    }
}

impl Transport for Mortal {
    fn send(&mut self, to: To, head: &[u8], body: &Bytes) {
        if self.lives() {
            self.line.send(to, head, body);
        }
    }
    fn receive(&mut self, wait: Duration) -> Option<Bytes> {
        let packet = self.line.receive(wait);
        if self.lives() { packet } else { None }
    }
    fn now(&self) -> Duration {
        self.line.now()
    }
}

struct Watcher {
    node: Shared,
    owned: Vec<usize>,
    agents: usize,
    /// Where a checkpoint survives the process.
    disk: Arc<Mutex<Option<Vec<u8>>>>,
    often: usize,
    calls: usize,
    dead: Arc<AtomicI64>,
    end: End,
}

impl Watch<f64> for Watcher {
    fn values(
        &mut self,
        k: usize,
        problem: &dyn Bilevel<f64>,
        views: &[View<'_, f64>],
    ) -> Result<gather::Values, dibo::Error> {
        gather::values(&self.node, k, self.agents, problem, views, false)
    }
    fn checkpoint_due(&mut self) -> bool {
        self.calls += 1;
        self.often > 0 && self.calls % self.often == 1 % self.often
    }
    fn checkpoint(&mut self, checkpoint: Checkpoint<f64>) -> Result<(), dibo::Error> {
        if self.dead.load(Relaxed) > 0 {
            *self.disk.lock().unwrap() = Some(checkpoint.to_bytes());
            lock(&self.node).checkpointed(checkpoint.traffic.rounds);
        }
        Ok(())
    }
    fn finished(&mut self, views: &[View<'_, f64>]) {
        self.end = rows(&self.owned, views);
    }
}

/// What happens to a run.
#[derive(Clone, Default)]
struct Weather {
    faults: Faults,
    /// Deaths of each process, and packets between them.
    deaths: usize,
    every: i64,
    /// Calls between checkpoints.
    often: usize,
    patience: Option<Duration>,
    /// This process never comes back after its first death.
    lost: Option<u32>,
}

/// Runs a case in processes that own these agents; gives rows, records and counts, or what each process said.
fn run(
    case: &Case,
    owners: &[Vec<usize>],
    weather: &Weather,
) -> Result<(End, Vec<Record>, Counts), Vec<String>> {
    let hub = Hub::default();
    let first: Vec<Line> = owners.iter().map(|o| hub.line(o[0] as u32)).collect();
    let results: Vec<Result<(End, Record, Counts), String>> = std::thread::scope(|scope| {
        let threads: Vec<_> = owners
            .iter()
            .zip(first)
            .map(|(o, line)| scope.spawn(|| process(case, o, line, &hub, weather)))
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    let errors: Vec<String> = results.iter().filter_map(|r| r.as_ref().err().cloned()).collect();
    if !errors.is_empty() {
        return Err(errors);
    }
    let (mut end, mut records, mut counts) = (End::new(), Vec::new(), Counts::default());
    for (rows, record, some) in results.into_iter().flatten() {
        end.extend(rows);
        records.push(record);
        counts.add(&some);
    }
    Ok((end, records, counts))
}

fn process(
    case: &Case,
    owned: &[usize],
    line: Line,
    hub: &Hub,
    weather: &Weather,
) -> Result<(End, Record, Counts), String> {
    let (me, agents) = (owned[0] as u32, case.sequence.agents());
    let disk: Arc<Mutex<Option<Vec<u8>>>> = Arc::default();
    let (mut line, mut kept): (_, Option<(End, Record)>) = (Some(line), None);
    for life in 0.. {
        let mut r = stream(weather.faults.seed, Purpose::Start, me.into(), life);
        let left = if life < weather.deaths as u64 { r.random_range(1..weather.every) } else { i64::MAX };
        let left = Arc::new(AtomicI64::new(left));
        let dead = || left.load(Relaxed) <= 0;
        let stop = Arc::new(AtomicBool::new(false));
        let mortal = Mortal { line: line.take().unwrap(), left: left.clone(), stop: stop.clone() };
        let mut settings = Settings::new(agents, owned.to_vec(), [9; 32], 0, life);
        settings.after = (0..life).collect();
        settings.patience = weather.patience.unwrap_or(Duration::from_secs(3600));
        let faults = Faults { seed: weather.faults.seed + life, ..weather.faults };
        let node: Shared = Arc::new(Mutex::new(Node::new(
            Box::new(Faulty::new(mortal, faults, me)),
            settings,
            stop,
            |_| {},
        )));
        let links = Links { loss: case.loss.map(|l| l.0), wait: None };
        let mut network =
            Agents::new(node.clone(), case.sequence.clone(), owned.to_vec(), links, Threads::one());
        let resume = disk.lock().unwrap().as_ref().map(|b| Checkpoint::from_bytes(b).unwrap());
        if let Some(checkpoint) = &resume {
            network.take_up(checkpoint).unwrap();
        }
        let mut watch = Watcher {
            node: node.clone(),
            owned: owned.to_vec(),
            agents,
            disk: disk.clone(),
            often: weather.often,
            calls: 0,
            dead: left.clone(),
            end: End::new(),
        };
        // What is done lies on the disk; only somebody who still needs this process makes it run again.
        let needed = kept.is_none() || lock(&node).rejoin() == Rejoined::Needed;
        let mut outcome = Ok(());
        if needed && !dead() {
            let met = lock(&node).meet();
            let start = case.problem.start();
            match met.and_then(|()| {
                engine::run(
                    &*case.algorithm,
                    &*case.problem,
                    &mut network,
                    Some(&start),
                    &case.plan,
                    resume,
                    &mut watch,
                )
                .map_err(|e| e.to_string())
            }) {
                Ok(record) if !dead() => kept = Some((watch.end, record)),
                Ok(_) => {}
                Err(why) => outcome = Err(why),
            }
            if outcome.is_ok() && !dead() {
                outcome = lock(&node).finish();
            }
        }
        if dead() {
            if weather.lost == Some(me) {
                return Err("lost".into());
            }
            // The new line is there before the old one goes, so that the clock does not jump in between.
            line = Some(hub.line(me));
            continue;
        }
        outcome?;
        let counts = lock(&node).counts().clone();
        let (end, record) = kept.expect("it ran");
        return Ok((end, record, counts));
    }
    unreachable!("the last life has no end")
}

fn each(n: usize) -> Vec<Vec<usize>> {
    (0..n).map(|i| vec![i]).collect()
}

/// Everything a run shows is the simulator's.
fn check(case: &Case, owners: &[Vec<usize>], weather: &Weather) -> Counts {
    let (mut expected, simulated) = case.simulated();
    let (mut end, records, counts) = run(case, owners, weather).unwrap();
    expected.sort();
    end.sort();
    assert!(end == expected, "other bits than the simulator's");
    for record in &records {
        assert_eq!(record.outcome, simulated.outcome);
        let said = |r: &Record| {
            r.samples
                .iter()
                .map(|s| (s.k, s.traffic, s.values.iter().map(|v| (v.0.clone(), v.1.to_bits())).collect()))
                .collect::<Vec<(_, _, Vec<_>)>>()
        };
        assert_eq!(said(record), said(&simulated));
    }
    counts
}

#[test]
fn ten_processes_and_three_give_the_simulators_bits() {
    let case = Case::policy(200);
    let counts = check(&case, &each(10), &Weather::default());
    // With an agent a process, the wire carries what the simulator counts, and headers.
    let account = case.simulated().1.samples.last().unwrap().traffic;
    assert_eq!((counts.messages, counts.payload, counts.again), (account.messages, account.bytes, 0));
    check(&case, &[(0..4).collect(), (4..7).collect(), (7..10).collect()], &Weather::default());
    check(&case, &[vec![0, 9], vec![1, 3, 5, 7], vec![2, 4, 6, 8]], &Weather::default());
}

#[test]
fn every_algorithm_that_can_gives_the_simulators_bits() {
    let (three, eta) = ([vec![0, 3], vec![1], vec![2, 4]], |more: Value| {
        let mut all = json!({"eta": 0.02});
        more.as_object().unwrap().iter().for_each(|(key, value)| all[key] = value.clone());
        all
    });
    let steps = || json!({"lambda": 3.0, "eta_x": 0.02, "eta_y": 0.015});
    for (name, parameters) in [
        ("static-fab", steps()),
        ("push-sum-fab", steps()),
        ("push-pull-soba", json!({"eta_x": 0.02, "eta_y": 0.05, "eta_v": 0.04})),
        ("push-pull", eta(json!({}))),
        ("subgradient-push", eta(json!({}))),
        ("push-diging", eta(json!({}))),
        ("push-saga", eta(json!({}))),
        ("push-asgd", eta(json!({"beta": 0.4}))),
        ("dl-push-pull", eta(json!({"inner": 3}))),
        ("dl-push-sgd", eta(json!({"inner": 3}))),
    ] {
        let algorithm = find(name, parameters);
        let sequence = Sequence::uniform(ErdosRenyi::new(5, 0.35, 4, true));
        let sequence = if algorithm.wishes().frozen_weights { sequence.frozen() } else { sequence };
        let case = Case::new(algorithm, Quadratic::random(5, 3, 4, 2, false), sequence, 40);
        check(&case, &three, &Weather::default());
        check(&case, &three, &Weather { deaths: 2, every: 300, often: 1, ..Weather::default() });
    }
    let ring = Sequence::new(Arc::new(dibo::graph::Static::ring(5)), Rule::BySender(vec![0.3, 0.5])).unwrap();
    check(
        &Case::new(fab("fab"), Quadratic::random(5, 3, 4, 2, false), ring, 40),
        &three,
        &Weather::default(),
    );
}

#[test]
fn lost_doubled_late_and_reordered_packets_change_nothing() {
    let case = Case::policy(100);
    let faults = Faults { drop: 0.2, duplicate: 0.2, delay: 0.2, seed: 3 };
    let counts = check(&case, &each(10), &Weather { faults, ..Weather::default() });
    assert!(counts.asked > 100 && counts.again > 0 && counts.duplicates > 100, "{counts:?}");
}

#[test]
fn killed_processes_change_nothing() {
    for (seed, drop) in [(0, 0.0), (1, 0.0), (2, 0.1)] {
        let weather = Weather {
            faults: Faults { drop, seed, ..Faults::default() },
            deaths: 6,
            every: 400,
            often: 2,
            ..Weather::default()
        };
        check(&Case::policy(150), &[vec![0, 5], vec![1, 2, 3], vec![4], vec![6, 7], vec![8, 9]], &weather);
    }
    // Without any checkpoint every life begins at round 0.
    check(&Case::policy(40), &each(10), &Weather { deaths: 2, every: 300, ..Weather::default() });
}

#[test]
fn modelled_loss_gives_the_simulators_bits() {
    for (name, burst) in [("running-sum-fab", None), ("running-sum-fab", Some(5.0)), ("fab", None)] {
        let mut case = Case::policy(120);
        case.algorithm = fab(name);
        case.loss = Some((Loss::new(0.3, burst, 5).unwrap(), name != "fab"));
        check(&case, &[(0..4).collect(), (4..7).collect(), (7..10).collect()], &Weather::default());
        let faults = Faults { drop: 0.1, seed: 4, ..Faults::default() };
        check(&case, &each(10), &Weather { faults, deaths: 1, every: 500, often: 2, ..Weather::default() });
    }
}

#[test]
fn a_process_that_stays_away_is_named() {
    let weather = Weather {
        deaths: 1,
        every: 200,
        often: 1,
        lost: Some(4),
        patience: Some(Duration::from_secs(30)),
        ..Weather::default()
    };
    let errors =
        run(&Case::policy(500), &[(0..4).collect(), vec![4, 5], (6..10).collect()], &weather).unwrap_err();
    assert_eq!(errors.len(), 3);
    // Whoever runs out of patience first waits for it, or for somebody who does: it is named in both cases.
    let named = ["no sign of agents 4, 5 for 30.", "agents 4, 5 (no sign of it for 30."];
    assert!(errors.iter().any(|e| named.iter().any(|n| e.contains(n))), "{errors:?}");
}

#[test]
fn another_experiment_is_refused() {
    let hub = Hub::default();
    let lines = [hub.line(0), hub.line(1)];
    let results: Vec<Result<(), String>> = std::thread::scope(|scope| {
        let meet = |(i, line): (usize, Line)| {
            let stop = Arc::new(AtomicBool::new(false));
            Node::new(Box::new(line), Settings::new(2, vec![i], [i as u8; 32], 0, 0), stop, |_| {}).meet()
        };
        let threads: Vec<_> = lines.into_iter().enumerate().map(|l| scope.spawn(move || meet(l))).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    for (other, result) in [1, 0].into_iter().zip(results) {
        assert!(
            result
                .unwrap_err()
                .starts_with(&format!("another experiment at agent {other}: it differs: digest "))
        );
    }
}

#[test]
fn two_owners_of_one_agent_are_refused() {
    let hub = Hub::default();
    let (a, b) = (hub.line(0), hub.line(1));
    let meet = |line, owned| {
        Node::new(Box::new(line), Settings::new(3, owned, [0; 32], 0, 0), Arc::default(), |_| {}).meet()
    };
    let (a, b) = std::thread::scope(|s| {
        let (a, b) = (s.spawn(move || meet(a, vec![0, 2])), s.spawn(move || meet(b, vec![1, 2])));
        (a.join().unwrap(), b.join().unwrap())
    });
    assert!(a.unwrap_err().starts_with("agent 2 is owned by two processes") && b.is_err());
}

/// A message of several parts: those that are lost are asked for alone, and numbers are read across parts.
#[test]
fn lost_parts_are_asked_for_again() {
    use dibo_net::packet::{EVERYBODY, Kind, Name, PART};
    let hub = Hub::default();
    let numbers: Vec<f64> = (0..(3 * PART + 4096) / 8).map(|i| i as f64).collect();
    let lines = [hub.line(0), hub.line(1)];
    std::thread::scope(|scope| {
        for (p, line) in lines.into_iter().enumerate() {
            let numbers = &numbers;
            scope.spawn(move || {
                let line = Faulty::new(line, Faults { drop: 0.4, seed: 8, ..Faults::default() }, p as u32);
                let mut node = Node::new(
                    Box::new(line),
                    Settings::new(2, vec![p], [0; 32], 0, 0),
                    Arc::default(),
                    |_| {},
                );
                node.meet().unwrap();
                let name = |sender: usize| Name {
                    round: 0,
                    kind: Kind::Round,
                    sender: sender as u32,
                    receiver: EVERYBODY,
                };
                let mut body = Vec::new();
                <f64 as dibo::rows::Real>::to_bytes(numbers, &mut body);
                node.post(name(p), Bytes::from(body), &[1 - p as u32], true);
                node.wait(&[name(1 - p)], None).unwrap();
                let message = node.message(&name(1 - p)).unwrap();
                let (at, mut got) = (PART / 8 - 3, vec![0.0; PART / 8 + 10]);
                message.read(8 * at, &mut got);
                assert!(message.len() == 8 * numbers.len() && got == numbers[at..at + got.len()]);
                node.finish().unwrap();
            });
        }
    });
}

/// A line on which packets take their time and come one after the other; it counts what is sent.
struct Slow {
    line: Line,
    takes: Duration,
    bytes_a_second: f64,
    /// When the last one has left the cable.
    free: Duration,
    under_way: std::collections::VecDeque<(Duration, Bytes)>,
    sent: Arc<AtomicI64>,
}

impl Slow {
    fn new(line: Line, takes: Duration, bytes_a_second: f64) -> Self {
        let (free, under_way) = (Duration::ZERO, Default::default());
        Slow { line, takes, bytes_a_second, free, under_way, sent: Arc::default() }
    }
}

impl Transport for Slow {
    fn send(&mut self, to: To, head: &[u8], body: &Bytes) {
        self.sent.fetch_add(1, Relaxed);
        self.line.send(to, head, body);
    }
    fn receive(&mut self, wait: Duration) -> Option<Bytes> {
        let until = self.now() + wait;
        loop {
            let now = self.now();
            if self.under_way.front().is_some_and(|(then, _)| *then <= now) {
                return self.under_way.pop_front().map(|p| p.1);
            }
            if now >= until {
                return None;
            }
            let next = self.under_way.front().map_or(until, |(then, _)| until.min(*then));
            if let Some(packet) = self.line.receive(next.saturating_sub(now)) {
                let long = Duration::from_secs_f64(packet.len() as f64 / self.bytes_a_second);
                self.free = self.free.max(self.line.now()) + long;
                self.under_way.push_back((self.free + self.takes, packet));
            }
        }
    }
    fn now(&self) -> Duration {
        self.line.now()
    }
}

/// Two that have met greet each other once a second. Where answers take long they do not go on introducing
/// themselves, each because the other did: with many processes that would be all they do.
#[test]
fn introductions_come_to_an_end() {
    let hub = Hub::default();
    let lines = [0, 1].map(|p| Slow::new(hub.line(p), Duration::from_millis(150), 1e9));
    let sent = lines.each_ref().map(|line| line.sent.clone());
    std::thread::scope(|scope| {
        for (p, line) in lines.into_iter().enumerate() {
            scope.spawn(move || {
                let settings = Settings::new(2, vec![p], [9; 32], 0, 7);
                let mut node = Node::new(Box::new(line), settings, Arc::default(), |_| {});
                node.meet().unwrap();
                (0..100).for_each(|_| node.pump(Duration::from_millis(200)));
            });
        }
    });
    let sent: i64 = sent.iter().map(|s| s.load(Relaxed)).sum();
    assert!(sent < 150, "{sent} packets in 20 seconds");
}

/// Large messages on a slow link, 126 kB over 1 Mbit/s with 50 ms: what is still under way is not sent again.
#[test]
fn what_is_under_way_is_not_sent_again() {
    use dibo_net::packet::{EVERYBODY, Kind, Name};
    const ROUNDS: u64 = 40;
    let hub = Hub::default();
    let lines = [0, 1].map(|p| Slow::new(hub.line(p), Duration::from_millis(50), 125_000.0));
    std::thread::scope(|scope| {
        for (p, line) in lines.into_iter().enumerate() {
            scope.spawn(move || {
                let settings = Settings::new(2, vec![p], [9; 32], 0, 7);
                let mut node = Node::new(Box::new(line), settings, Arc::default(), |_| {});
                node.meet().unwrap();
                let name = |round: u64, sender: usize| Name {
                    round,
                    kind: Kind::Round,
                    sender: sender as u32,
                    receiver: EVERYBODY,
                };
                for round in 0..ROUNDS {
                    node.begin(round);
                    node.post(name(round, p), Bytes::from(vec![p as u8; 126_000]), &[1 - p as u32], true);
                    node.said(round);
                    node.wait(&[name(round, 1 - p)], None).unwrap();
                }
                let counts = node.counts().clone();
                node.finish().unwrap();
                assert!(
                    20 * counts.again < counts.payload,
                    "{} of {} bytes were sent again",
                    counts.again,
                    counts.payload
                );
            });
        }
    });
}

/// Links that lose messages and are not asked again: Σt and what is in flight make up Σd.
#[test]
fn mass_is_conserved_over_links_that_are_not_asked_again() {
    type Sums = BTreeMap<(u32, u32), Vec<f64>>;
    let (mut case, hub) = (Case::policy(200), Hub::default());
    case.algorithm = fab("running-sum-fab");
    let owners: [Vec<usize>; 3] = [(0..4).collect(), (4..7).collect(), (7..10).collect()];
    let lines: Vec<Line> = owners.iter().map(|o| hub.line(o[0] as u32)).collect();
    let run = |owned: &[usize], line: Line| {
        let faulty = Faulty::new(line, Faults { drop: 0.3, seed: 6, ..Faults::default() }, owned[0] as u32);
        let node = Node::new(
            Box::new(faulty),
            Settings::new(10, owned.to_vec(), [9; 32], 0, 0),
            Arc::default(),
            |_| {},
        );
        let node: Shared = Arc::new(Mutex::new(node));
        let links = Links { loss: None, wait: Some(Duration::from_millis(5)) };
        let mut network =
            Agents::new(node.clone(), case.sequence.clone(), owned.to_vec(), links, Threads::one());
        let (disk, dead) = (Arc::default(), Arc::new(AtomicI64::new(i64::MAX)));
        let mut watch = Watcher {
            node,
            owned: owned.to_vec(),
            agents: 10,
            disk,
            often: 0,
            calls: 0,
            dead,
            end: End::new(),
        };
        lock(&watch.node).meet().unwrap();
        engine::run(
            &*case.algorithm,
            &*case.problem,
            &mut network,
            Some(&case.problem.start()),
            &case.plan,
            None,
            &mut watch,
        )
        .unwrap();
        lock(&watch.node).finish().unwrap();
        let (_, ends): (Vec<u8>, Option<(bool, Sums, Sums)>) =
            postcard::from_bytes(&network.memory()).unwrap();
        (watch.end, ends.unwrap())
    };
    let results: Vec<(End, (bool, Sums, Sums))> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            owners.iter().zip(lines).map(|(o, line)| scope.spawn(|| run(o, line))).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    let (mut sums, mut flying, mut size) = ([const { Vec::new() }; 3], Vec::new(), 0.0);
    let add = |to: &mut Vec<f64>, numbers: &[f64], sign: f64| {
        to.resize(numbers.len(), 0.0);
        to.iter_mut().zip(numbers).for_each(|(sum, x)| *sum += sign * x);
    };
    for (rows, (_, sent, arrived)) in &results {
        for (name, _, bits) in rows {
            let numbers: Vec<f64> = bits.iter().map(|b| f64::from_bits(*b)).collect();
            for (v, (t, d)) in [("tx", "dx"), ("ty", "dy"), ("tz", "dz")]
                .into_iter()
                .enumerate()
                .filter(|(_, p)| p.0 == name || p.1 == name)
            {
                add(&mut sums[v], &numbers, if name == t { 1.0 } else { -1.0 });
                size += if name == d { numbers.iter().map(|x| x.abs()).sum() } else { 0.0 };
            }
        }
        sent.values().for_each(|s| add(&mut flying, s, 1.0));
        arrived.values().for_each(|s| add(&mut flying, s, -1.0));
    }
    let worst =
        |gaps: &[f64]| gaps.iter().fold(0.0f64, |worst, gap| worst.max(gap.abs())) / f64::max(size, 1.0);
    let mut gaps = sums.concat();
    assert!(worst(&gaps) > 1e-6, "nothing was in flight: this tests nothing");
    add(&mut gaps, &flying, 1.0);
    assert!(worst(&gaps) < 1e-10, "{gaps:?}");
}

/// Random packets, also with right checksums, at a node that waits: nothing is trusted that is not
/// understood.
#[test]
fn fuzz_strangers_at_a_node() {
    use dibo_net::packet::{EVERYBODY, From, KINDS, Name, Run, header};
    let rounds: u64 = std::env::var("DIBO_FUZZ").ok().and_then(|n| n.parse().ok()).unwrap_or(20_000);
    let hub = Hub::default();
    let (line, mut stranger) = (hub.line(0), hub.line(77));
    // Without keys whoever guesses the number of this life can stop it; random bytes do not guess this one.
    let settings = Settings::new(2, vec![0, 1], [9; 32], 0, 0x5eed_0000_0001);
    let mut node = Node::new(Box::new(line), settings, Arc::default(), |_| {});
    node.meet().unwrap();
    for n in 0..rounds {
        let mut r = stream(5, Purpose::Start, 1, n);
        let run = Run { digest: [if r.random_bool(0.5) { 9 } else { 8 }; 16], job: r.random_range(0..2u32) };
        let receiver = if r.random_bool(0.5) { EVERYBODY } else { r.random_range(0..5u32) };
        let name = Name {
            round: r.random_range(0..5),
            kind: KINDS[r.random_range(0..KINDS.len())],
            sender: r.random_range(0..6u32),
            receiver,
        };
        let body: Vec<u8> = (0..r.random_range(0..80usize))
            .map(|_| if r.random_bool(0.6) { r.random_range(0..4u8) } else { r.random() })
            .collect();
        let from = From { incarnation: r.random_range(0..3), counter: r.random_range(0..3) };
        let head = header(run, from, name, body.len(), 0, &body);
        stranger.send(To::Process(0), &head, &Bytes::from(body.clone()));
        node.pump(Duration::ZERO);
    }
    let refused: u64 = node.counts().refused.values().sum();
    // A greeting made of random bytes that has the digest, a version and agents that fit together does not
    // occur; "somebody else runs your agents" does, now and then, but not of this life of the process.
    assert!(refused > rounds * 9 / 10, "{:?}", node.counts());
    assert_eq!((node.others().count(), node.failure()), (0, None), "{:?}", node.counts());
}
