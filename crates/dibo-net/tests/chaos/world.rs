//! A world of processes: virtual time, links, disks and clocks. The threads of the processes hand a baton to
//! each other, so one runs at a time, and which one follows from the seed alone.
use bytes::Bytes;
use dibo::rng::{Purpose, stream};
use dibo_net::agents::{Shared, lock};
use dibo_net::disk::Disk;
use dibo_net::keys::{Identity, Named};
use dibo_net::life::Ended;
use dibo_net::transport::{To, Transport};
use rand::{Rng, RngExt};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::io::{Error, ErrorKind, Result as Io};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// What links do, as shares of packets; delays are in microseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Links {
    pub loss: f64,
    pub duplicate: f64,
    pub late: f64,
    pub delay: (u64, u64),
}

/// What befalls a place at a time.
#[derive(Clone, Copy, Debug)]
pub enum Blow {
    /// Killed, and started again after this time; or never.
    Kill(Option<Duration>),
    /// Stands still.
    Pause(Duration),
    /// Packets from this place to that one are lost.
    Cut(usize, Duration),
    /// Its disk is full for so long.
    Full(Duration),
    /// One of its files is gone, or damaged; or all its checkpoints are cut short.
    Lose(u64),
    Damage(u64),
    CutCheckpoints,
    /// It is started.
    Start,
}

/// How things are meant to go.
#[derive(Clone, Debug)]
pub struct Weather {
    pub links: Links,
    pub blows: Vec<(Duration, usize, Blow)>,
    /// The share of writes in which a process is killed, and whether the disk then shows torn files.
    pub killed_writing: f64,
    pub torn: bool,
    /// Speed and beginning of each place's clock.
    pub clocks: Vec<(f64, Duration)>,
    /// Share of iterations that take long, and how long.
    pub slow: (f64, Duration),
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Deliver(usize, Bytes),
    Wake(usize, u64),
    Blow(usize, usize),
    Start(usize),
}

#[derive(Default)]
struct Slot {
    process: u32,
    alive: bool,
    killed: bool,
    queue: VecDeque<Bytes>,
    /// Waits for a packet, since this number of waits.
    waiting: bool,
    waits: u64,
    paused: Duration,
    full: Duration,
    files: BTreeMap<String, Vec<u8>>,
    /// Hears what is meant for others.
    taps: bool,
    ends: Vec<Result<Ended, String>>,
}

struct Inside {
    now: Duration,
    events: BinaryHeap<Reverse<(Duration, u64, Event)>>,
    count: u64,
    dice: Box<dyn Rng + Send>,
    weather: Weather,
    slots: Vec<Slot>,
    cuts: Vec<(usize, usize, Duration)>,
    turn: Option<usize>,
    over: bool,
    /// When a run that has not ended hangs.
    bound: Duration,
    hangs: bool,
    log: Option<Vec<String>>,
    /// A digest of all that happened, to compare two runs of a seed.
    print: u64,
}

/// Where the processes live.
#[derive(Clone)]
pub struct World(Arc<(Mutex<Inside>, Vec<Condvar>)>);

/// The end of a process that was killed.
struct Killed;

/// How all ended.
pub struct Fate {
    pub ends: Vec<Vec<Result<Ended, String>>>,
    pub files: Vec<BTreeMap<String, Vec<u8>>>,
    pub hangs: bool,
    pub now: Duration,
    pub log: Vec<String>,
    pub print: u64,
}

impl World {
    pub fn new(seed: u64, processes: &[(u32, bool)], weather: Weather, log: bool) -> Self {
        let slot = |(process, taps): &(u32, bool)| Slot { process: *process, taps: *taps, ..Slot::default() };
        let mut inside = Inside {
            now: Duration::ZERO,
            events: BinaryHeap::new(),
            count: 0,
            dice: Box::new(stream(seed, Purpose::Loss, 0xc4a05, 0)),
            slots: processes.iter().map(slot).collect(),
            cuts: Vec::new(),
            turn: None,
            over: false,
            bound: Duration::from_secs(3600),
            hangs: false,
            log: log.then(Vec::new),
            print: 0,
            weather,
        };
        for at in 0..inside.weather.blows.len() {
            let (time, place, _) = inside.weather.blows[at];
            inside.push(time, Event::Blow(place, at));
        }
        World(Arc::new((Mutex::new(inside), processes.iter().map(|_| Condvar::new()).collect())))
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets all happen until nothing happens any more: each place is lived by `live`.
    pub fn run(&self, live: impl Fn(usize) -> Result<Ended, String> + Sync) {
        let places = self.0.1.len();
        self.inside().over = false;
        std::thread::scope(|scope| {
            for place in 0..places {
                let live = &live;
                scope.spawn(move || {
                    while self.begins(place) {
                        let lived = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| live(place)));
                        match lived {
                            Ok(end) => self.ends(place, Some(end)),
                            Err(e) if e.is::<Killed>() => self.ends(place, None),
                            Err(e) => {
                                // A failed check in the protocol itself: the others must not wait for it.
                                let text = e.downcast_ref::<String>().cloned().unwrap_or_default();
                                let mut inside = self.inside();
                                inside.hangs = true;
                                drop(inside);
                                self.ends(place, Some(Err(format!("PANIC {text}"))));
                            }
                        }
                    }
                });
            }
            self.advance(&mut self.inside());
        });
    }

    /// Waits until a place is to be lived; false when all is over.
    fn begins(&self, place: usize) -> bool {
        let mut inside = self.inside();
        loop {
            if inside.over {
                return false;
            }
            if inside.turn == Some(place) && inside.slots[place].alive {
                return true;
            }
            inside = self.0.1[place].wait(inside).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn ends(&self, place: usize, end: Option<Result<Ended, String>>) {
        let mut inside = self.inside();
        if let Some(end) = end {
            inside.say(|| format!("place {place} ends: {end:?}"));
            inside.slots[place].ends.push(end);
        }
        let slot = &mut inside.slots[place];
        (slot.alive, slot.killed, slot.waiting) = (false, false, false);
        self.advance(&mut inside);
    }

    /// Goes on to the next thing that makes somebody run, and hands over the baton.
    fn advance(&self, inside: &mut Inside) {
        inside.turn = None;
        while inside.turn.is_none() {
            let Some(Reverse((time, _, event))) = inside.events.pop() else { break };
            inside.now = inside.now.max(time);
            if inside.now > inside.bound {
                inside.hangs = true;
            }
            inside.happen(event);
            if inside.hangs {
                // Ends all who are still there.
                inside.turn = inside.slots.iter().position(|s| s.alive);
                if inside.turn.is_none() {
                    break;
                }
            }
        }
        match inside.turn {
            Some(place) => self.0.1[place].notify_all(),
            None => {
                inside.over = true;
                self.0.1.iter().for_each(Condvar::notify_all);
            }
        }
    }

    /// What has become of all.
    pub fn fate(&self) -> Fate {
        let mut inside = self.inside();
        Fate {
            ends: inside.slots.iter_mut().map(|s| std::mem::take(&mut s.ends)).collect(),
            files: inside.slots.iter().map(|s| s.files.clone()).collect(),
            hangs: inside.hangs,
            now: inside.now,
            log: inside.log.as_mut().map(std::mem::take).unwrap_or_default(),
            print: inside.print,
        }
    }

    /// Mends everything and starts these places again.
    pub fn mend(&self, places: &[usize]) {
        let mut inside = self.inside();
        inside.weather.links = Links { delay: (100, 1000), ..Links::default() };
        (inside.weather.killed_writing, inside.weather.torn) = (0.0, false);
        inside.weather.slow.0 = 0.0;
        inside.cuts.clear();
        inside.bound = inside.now + Duration::from_secs(3600);
        let now = inside.now;
        for slot in &mut inside.slots {
            (slot.paused, slot.full) = (Duration::ZERO, Duration::ZERO);
            slot.queue.clear();
        }
        inside.say(|| "all is mended".into());
        for (nth, place) in places.iter().enumerate() {
            inside.push(now + ms(10 + 7 * nth as u64), Event::Start(*place));
        }
    }
}

impl Inside {
    fn say(&mut self, what: impl FnOnce() -> String) {
        if let Some(log) = &mut self.log {
            log.push(format!("{:10.4} {}", self.now.as_secs_f64(), what()));
        }
    }

    fn push(&mut self, time: Duration, event: Event) {
        self.count += 1;
        self.events.push(Reverse((time, self.count, event)));
    }

    fn happen(&mut self, event: Event) {
        self.print = self.print.wrapping_mul(0x100_0000_01b3) ^ self.now.as_nanos() as u64;
        match event {
            Event::Deliver(place, packet) => {
                self.print ^= packet.len() as u64;
                let slot = &mut self.slots[place];
                if slot.alive {
                    slot.queue.push_back(packet);
                    self.awake(place);
                }
            }
            Event::Wake(place, waits) => {
                if self.slots[place].waits == waits {
                    self.awake(place);
                }
            }
            Event::Start(place) => self.start(place),
            Event::Blow(place, at) => {
                let blow = self.weather.blows[at].2;
                self.say(|| format!("place {place}: {blow:?}"));
                self.strike(place, blow);
            }
        }
    }

    fn start(&mut self, place: usize) {
        let slot = &mut self.slots[place];
        if !slot.alive {
            slot.alive = true;
            (slot.killed, slot.waiting, slot.paused) = (false, false, Duration::ZERO);
            slot.queue.clear();
            self.turn = Some(place);
            self.say(|| format!("place {place} starts"));
        }
    }

    /// Lets a place that waits run, unless it stands still: then later.
    fn awake(&mut self, place: usize) {
        let (now, slot) = (self.now, &mut self.slots[place]);
        if !slot.alive || !slot.waiting {
            return;
        }
        if slot.paused > now {
            let (until, waits) = (slot.paused, slot.waits);
            return self.push(until, Event::Wake(place, waits));
        }
        slot.waiting = false;
        self.turn = Some(place);
    }

    fn strike(&mut self, place: usize, blow: Blow) {
        let now = self.now;
        match blow {
            Blow::Kill(again) => {
                let slot = &mut self.slots[place];
                if slot.alive {
                    (slot.killed, slot.waiting, slot.paused) = (true, false, Duration::ZERO);
                    self.turn = Some(place);
                    if let Some(again) = again {
                        self.push(now + again, Event::Start(place));
                    }
                }
            }
            Blow::Pause(time) => self.slots[place].paused = now + time,
            Blow::Cut(to, time) => self.cuts.push((place, to, now + time)),
            Blow::Full(time) => self.slots[place].full = now + time,
            Blow::Start => self.start(place),
            Blow::CutCheckpoints => {
                let files = self.slots[place].files.iter_mut();
                files.filter(|f| f.0.ends_with("checkpoint")).for_each(|f| f.1.truncate(f.1.len() / 2));
            }
            Blow::Lose(pick) | Blow::Damage(pick) => {
                let files = &mut self.slots[place].files;
                let Some(name) = files.keys().nth(pick as usize % files.len().max(1)).cloned() else {
                    return;
                };
                if let Blow::Lose(_) = blow {
                    files.remove(&name);
                } else if let Some(bytes) = files.get_mut(&name)
                    && !bytes.is_empty()
                {
                    let at = pick as usize % bytes.len();
                    if pick % 2 == 0 { bytes.truncate(at) } else { bytes[at] ^= 16 }
                }
                self.say(|| format!("place {place}: the file is {name}"));
            }
        }
    }

    /// Puts a packet on its way, or not.
    fn carry(&mut self, from: usize, to: usize, packet: &Bytes) {
        let (now, links) = (self.now, self.weather.links);
        self.cuts.retain(|c| c.2 > now);
        if self.cuts.iter().any(|c| (c.0, c.1) == (from, to)) || self.dice.random_bool(links.loss) {
            return;
        }
        let copies = if self.dice.random_bool(links.duplicate) { 2 } else { 1 };
        for _ in 0..copies {
            let mut delay = self.dice.random_range(links.delay.0..=links.delay.1);
            if self.dice.random_bool(links.late) {
                delay += self.dice.random_range(0..50_000);
            }
            self.push(now + Duration::from_micros(delay), Event::Deliver(to, packet.clone()));
        }
    }
}

/// A place where a process lives.
#[derive(Clone)]
pub struct Place {
    pub world: World,
    pub place: usize,
    pub owned: Vec<usize>,
    pub patience: Duration,
    /// Agents that its certificate names, where there are certificates.
    pub named: Option<Named>,
}

impl Place {
    pub fn random(&self) -> u32 {
        self.world.inside().dice.random()
    }

    pub fn log(&self, line: &str) {
        let place = self.place;
        self.world.inside().say(|| format!("place {place}: {line}"));
    }

    pub fn identity(&self) -> Option<Arc<dyn Identity>> {
        self.named.clone().map(|named| Arc::new(Stamp(named)) as Arc<dyn Identity>)
    }

    /// An iteration's work; others are answered meanwhile, as by the thread that serves them.
    pub fn compute(&self, node: &Shared) {
        let mut inside = self.world.inside();
        let (share, time) = inside.weather.slow;
        if share == 0.0 || !inside.dice.random_bool(share) {
            return;
        }
        drop(inside);
        let mut node = lock(node);
        let until = node.now() + time;
        while node.now() < until {
            let left = until.saturating_sub(node.now());
            node.pump(left);
        }
    }

    /// Dies, if it was killed.
    fn lives<'a>(&self, inside: MutexGuard<'a, Inside>) -> MutexGuard<'a, Inside> {
        if inside.slots[self.place].killed || inside.hangs {
            drop(inside);
            std::panic::resume_unwind(Box::new(Killed));
        }
        inside
    }
}

/// Certificates for tests: what they name cannot be forged because nobody here tries to.
struct Stamp(Named);

impl Identity for Stamp {
    fn sign(&self, message: &[u8]) -> Vec<u8> {
        let named: Vec<(usize, usize)> = self.0.iter().map(|r| (*r.start(), *r.end())).collect();
        // Always as many bytes, whatever the key: a seed must repeat exactly.
        postcard::to_stdvec(&(named, xxhash_rust::xxh3::xxh3_64(message).to_le_bytes())).unwrap()
    }

    fn verify(&self, proof: &[u8], message: &[u8]) -> Result<Named, String> {
        let (named, hash): (Vec<(usize, usize)>, [u8; 8]) =
            postcard::from_bytes(proof).map_err(|e| e.to_string())?;
        let right = hash == xxhash_rust::xxh3::xxh3_64(message).to_le_bytes();
        right.then(|| named.into_iter().map(|(a, b)| a..=b).collect()).ok_or("wrong".into())
    }
}

impl Transport for Place {
    fn send(&mut self, to: To, head: &[u8], body: &Bytes) {
        let packet = Bytes::from([head, body].concat());
        let mut inside = self.lives(self.world.inside());
        for place in 0..inside.slots.len() {
            let slot = &inside.slots[place];
            let meant = slot.taps || matches!(to, To::All) || to == To::Process(slot.process);
            if place != self.place && slot.alive && meant {
                inside.carry(self.place, place, &packet);
            }
        }
    }

    fn receive(&mut self, wait: Duration) -> Option<Bytes> {
        let mut inside = self.lives(self.world.inside());
        let (speed, _) = inside.weather.clocks[self.place];
        let now = inside.now;
        let slot = &mut inside.slots[self.place];
        if let Some(packet) = slot.queue.pop_front() {
            return Some(packet);
        }
        if wait.is_zero() {
            return None;
        }
        slot.waiting = true;
        slot.waits += 1;
        let waits = slot.waits;
        inside.push(now + wait.div_f64(speed) + Duration::from_nanos(1), Event::Wake(self.place, waits));
        self.world.advance(&mut inside);
        while inside.turn != Some(self.place) {
            inside = self.world.0.1[self.place].wait(inside).unwrap_or_else(PoisonError::into_inner);
        }
        let mut inside = self.lives(inside);
        inside.slots[self.place].queue.pop_front()
    }

    fn now(&self) -> Duration {
        let inside = self.world.inside();
        let (speed, begin) = inside.weather.clocks[self.place];
        begin + inside.now.mul_f64(speed)
    }
}

/// A disk that fills up, tears and loses.
impl Disk for Place {
    fn read(&self, file: &str) -> Io<Option<Vec<u8>>> {
        Ok(self.lives(self.world.inside()).slots[self.place].files.get(file).cloned())
    }

    fn write(&self, file: &str, bytes: &[u8]) -> Io<()> {
        let mut inside = self.lives(self.world.inside());
        let (now, share, torn) = (inside.now, inside.weather.killed_writing, inside.weather.torn);
        if inside.slots[self.place].full > now {
            return Err(Error::from(ErrorKind::StorageFull));
        }
        if share > 0.0 && inside.dice.random_bool(share) {
            let (fate, at) = (inside.dice.random_range(0..3u8), inside.dice.random_range(0..=bytes.len()));
            inside.say(|| format!("place {}: killed while it writes {file} ({fate})", self.place));
            let files = &mut inside.slots[self.place].files;
            match fate {
                0 => {}
                1 if torn => drop(files.insert(file.into(), bytes[..at].to_vec())),
                _ => drop(files.insert(file.into(), bytes.to_vec())),
            }
            let again = Duration::from_millis(inside.dice.random_range(1..400));
            inside.push(now + again, Event::Start(self.place));
            drop(inside);
            std::panic::resume_unwind(Box::new(Killed));
        }
        inside.slots[self.place].files.insert(file.into(), bytes.to_vec());
        Ok(())
    }

    fn remove(&self, file: &str) -> Io<()> {
        self.lives(self.world.inside()).slots[self.place].files.remove(file);
        Ok(())
    }

    fn place(&self) -> String {
        format!("place {}", self.place)
    }
}
