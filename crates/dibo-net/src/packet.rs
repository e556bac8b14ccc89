//! What goes over the wire: a fixed header, then a body. Reading is total: any bytes give a packet or the
//! reason why they are none.
//!
//! | bytes | field |
//! |---|---|
//! | 0..4 | `dibo` |
//! | 4 | version of this format |
//! | 5 | kind |
//! | 6 | how it is secured: see [`Secured`] |
//! | 7 | zero |
//! | 8..24 | run: the first half of the experiment's digest |
//! | 24..28 | job: which setting and seed of the experiment |
//! | 28..32 | sender: an agent |
//! | 32..36 | receiver: an agent, or all ones where the message is the same for all |
//! | 36..44 | round, or iteration of an evaluation |
//! | 44..52 | length of the whole message |
//! | 52..56 | where this part begins, in units of [`PART`] |
//! | 56..60 | length of this part |
//! | 60..68 | incarnation: which life of the sending process this is |
//! | 68..76 | counter of packets to this receiver; 0 where it goes to everybody |
//! | 76..92 | seal of all the rest: a checksum, or a tag that only the two processes can make |
//!
//! Numbers are little-endian. Rows of private variables have no place in any kind of message but
//! [`Kind::Views`], and there only if every agent was asked to show them.
use xxhash_rust::xxh3::Xxh3;

/// Version of this format.
pub const VERSION: u8 = 3;
/// Bytes of a header before its seal.
pub const HEAD: usize = 76;
/// Bytes of a seal.
pub const SEAL: usize = 16;
/// Bytes of a header.
pub const HEADER: usize = HEAD + SEAL;
/// Longest part: messages that are longer travel in several packets. Short enough that a message on a slow
/// link is seen to arrive.
pub const PART: usize = 1 << 20;
/// Stands for "all receivers".
pub const EVERYBODY: u32 = u32::MAX;

const MAGIC: &[u8; 4] = b"dibo";

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub enum Kind {
    /// Who is there, what it runs and how far it is.
    Hello = 1,
    /// Decision variables, trackers and weights of one agent in one round.
    Round = 2,
    /// What a process's agents look like at an evaluation.
    Views = 3,
    /// The metrics of an evaluation.
    Values = 4,
    /// Names of messages that have not come.
    Need = 5,
    /// A process stops, and why.
    Stop = 6,
    /// Names of messages that were asked for and will never come.
    Lack = 7,
    /// Another process already runs these agents.
    Taken = 8,
    /// A stop was heard.
    Heard = 9,
    /// Greetings that the process of agent 0 passes on, each a packet of its own.
    Letters = 10,
}

/// How a packet is secured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Secured {
    /// By a checksum: against accidents only.
    Open = 0,
    /// By a signature within its body: greetings before a key is agreed on.
    Signed = 1,
    /// Encrypted, with a tag, by the key of sender and receiver.
    Sealed = 2,
}

/// Every kind, in the order of their numbers.
pub const KINDS: [Kind; 10] = [
    Kind::Hello,
    Kind::Round,
    Kind::Views,
    Kind::Values,
    Kind::Need,
    Kind::Stop,
    Kind::Lack,
    Kind::Taken,
    Kind::Heard,
    Kind::Letters,
];

/// What tells one message of a job from all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct Name {
    /// Round, or iteration of an evaluation.
    pub round: u64,
    /// What it is.
    pub kind: Kind,
    /// The agent it comes from.
    pub sender: u32,
    /// The agent it goes to, or [`EVERYBODY`].
    pub receiver: u32,
}

/// The experiment and the part of it that a packet belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Half of the experiment's digest.
    pub digest: [u8; 16],
    /// Which setting and seed.
    pub job: u32,
}

/// Which life of a process a packet comes from, and its number among those to the same receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct From {
    /// Differs between any two lives of a process.
    pub incarnation: u64,
    /// Grows with every packet; 0 in one that goes to everybody.
    pub counter: u64,
}

/// A packet that was read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Packet<'a> {
    /// Where it belongs.
    pub run: Run,
    /// Who sent it.
    pub from: From,
    /// Its message.
    pub name: Name,
    /// How it is secured.
    pub secured: Secured,
    /// Length of the whole message.
    pub total: usize,
    /// Number of this part.
    pub part: u32,
    /// The header without its seal.
    pub head: &'a [u8],
    /// The seal.
    pub seal: [u8; SEAL],
    /// The bytes of this part.
    pub body: &'a [u8],
}

impl Packet<'_> {
    /// What the header says, for longer than the bytes are there.
    pub fn without_bytes(&self) -> Packet<'static> {
        Packet { head: &[], body: &[], ..*self }
    }
}

/// Why bytes are not a packet that we take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    /// Not the beginning of a packet, or cut off.
    NotAPacket,
    /// Another version of the format.
    Version,
    /// A kind that is unknown, or lengths that do not fit together.
    Malformed,
    /// A message longer than allowed.
    Oversized,
    /// The checksum is wrong.
    Damaged,
    /// Of another experiment.
    WrongRun,
    /// From an agent that is not in the experiment, or not where it should be.
    UnknownAgent,
    /// A body that says nothing sensible.
    Nonsense,
    /// So far ahead, or so much, that it is not kept; it is asked for again when its time comes.
    TooEarly,
    /// Not secured as this run wants it, or by a key that is not the sender's.
    Forged,
    /// A packet that had already come: somebody plays it again.
    Replayed,
    /// Of a life of the process that is over, or of one that was refused.
    Former,
    /// From somebody whose certificate does not name the agents it speaks for.
    NotNamed,
}

/// How many parts a message of this length has: one at least.
pub fn parts(total: usize) -> u32 {
    total.div_ceil(PART).max(1) as u32
}

/// The header of one part of a message, but for its seal.
pub fn head(
    run: Run,
    from: From,
    name: Name,
    secured: Secured,
    total: usize,
    part: u32,
    length: usize,
) -> [u8; HEAD] {
    let mut h = [0; HEAD];
    h[..4].copy_from_slice(MAGIC);
    h[4] = VERSION;
    h[5] = name.kind as u8;
    h[6] = secured as u8;
    h[8..24].copy_from_slice(&run.digest);
    h[24..28].copy_from_slice(&run.job.to_le_bytes());
    h[28..32].copy_from_slice(&name.sender.to_le_bytes());
    h[32..36].copy_from_slice(&name.receiver.to_le_bytes());
    h[36..44].copy_from_slice(&name.round.to_le_bytes());
    h[44..52].copy_from_slice(&(total as u64).to_le_bytes());
    h[52..56].copy_from_slice(&part.to_le_bytes());
    h[56..60].copy_from_slice(&(length as u32).to_le_bytes());
    h[60..68].copy_from_slice(&from.incarnation.to_le_bytes());
    h[68..76].copy_from_slice(&from.counter.to_le_bytes());
    h
}

/// The seal of a packet without keys: it finds accidents, not forgeries.
pub fn checksum(head: &[u8], body: &[u8]) -> [u8; SEAL] {
    // The run's digest is among the first bytes, so it seeds all that follows.
    let mut hash = Xxh3::with_seed(u64::from_le_bytes(head[8..16].try_into().expect("eight bytes")));
    hash.update(head);
    hash.update(body);
    hash.digest128().to_le_bytes()
}

/// The header of one part of a message that only a checksum secures.
pub fn header(run: Run, from: From, name: Name, total: usize, part: u32, body: &[u8]) -> [u8; HEADER] {
    let head = head(run, from, name, Secured::Open, total, part, body.len());
    let mut h = [0; HEADER];
    h[..HEAD].copy_from_slice(&head);
    h[HEAD..].copy_from_slice(&checksum(&head, body));
    h
}

/// Reads a packet whose message is at most `limit` bytes long. The seal of one with keys is yet to be
/// checked.
pub fn read(bytes: &[u8], limit: usize) -> Result<Packet<'_>, Refusal> {
    let (h, body) = bytes.split_at_checked(HEADER).ok_or(Refusal::NotAPacket)?;
    if &h[..4] != MAGIC {
        return Err(Refusal::NotAPacket);
    }
    if h[4] != VERSION {
        return Err(Refusal::Version);
    }
    let four = |at: usize| u32::from_le_bytes([h[at], h[at + 1], h[at + 2], h[at + 3]]);
    let eight = |at: usize| u64::from(four(at)) | u64::from(four(at + 4)) << 32;
    let kind = KINDS.into_iter().find(|k| *k as u8 == h[5] && h[7] == 0).ok_or(Refusal::Malformed)?;
    let secured = [Secured::Open, Secured::Signed, Secured::Sealed].into_iter().find(|s| *s as u8 == h[6]);
    let secured = secured.ok_or(Refusal::Malformed)?;
    let total = usize::try_from(eight(44)).ok().filter(|t| *t <= limit).ok_or(Refusal::Oversized)?;
    let part = four(52);
    let begin =
        (part as usize).checked_mul(PART).filter(|_| part < parts(total)).ok_or(Refusal::Malformed)?;
    if body.len() != four(56) as usize || body.len() != (total - begin).min(PART) {
        return Err(Refusal::Malformed);
    }
    let seal: [u8; SEAL] = h[HEAD..].try_into().expect("sixteen bytes");
    // Signatures stand in bodies: there too the checksum finds accidents.
    if secured != Secured::Sealed && checksum(&h[..HEAD], body) != seal {
        return Err(Refusal::Damaged);
    }
    Ok(Packet {
        run: Run { digest: h[8..24].try_into().expect("sixteen bytes"), job: four(24) },
        from: From { incarnation: eight(60), counter: eight(68) },
        name: Name { round: eight(36), kind, sender: four(28), receiver: four(32) },
        secured,
        total,
        part,
        head: &h[..HEAD],
        seal,
        body,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use dibo::rng::{Purpose, stream};
    use rand::{Rng, RngExt};

    const RUN: Run = Run { digest: [7; 16], job: 3 };
    const FROM: From = From { incarnation: 5, counter: 6 };

    fn packet(name: Name, message: &[u8], part: u32) -> Vec<u8> {
        let begin = part as usize * PART;
        let body = &message[begin..(begin + PART).min(message.len())];
        [&header(RUN, FROM, name, message.len(), part, body)[..], body].concat()
    }

    #[test]
    fn packets_come_back() {
        let name = Name { round: 1 << 40, kind: Kind::Round, sender: 9, receiver: EVERYBODY };
        let bytes = packet(name, b"hello", 0);
        let packet_read = read(&bytes, 5).unwrap();
        let Packet { run, from, secured, total, part, body, .. } = packet_read;
        assert_eq!((run, from, packet_read.name, secured), (RUN, FROM, name, Secured::Open));
        assert_eq!((total, part, body), (5, 0, &b"hello"[..]));
        assert_eq!(read(&bytes, 4), Err(Refusal::Oversized));
        let long = vec![3; 2 * PART + 5];
        for (part, length) in [(0, PART), (1, PART), (2, 5)] {
            let bytes = packet(name, &long, part);
            assert_eq!(read(&bytes, long.len()).unwrap().body.len(), length);
        }
        assert_eq!(read(&packet(name, b"", 0), 0).unwrap().body, b"");
    }

    /// Damaged, cut, lengthened and random bytes: never a panic, never taken. `DIBO_FUZZ` says how many.
    #[test]
    fn fuzz_no_forgery_is_taken() {
        let rounds: u64 = std::env::var("DIBO_FUZZ").ok().and_then(|n| n.parse().ok()).unwrap_or(20_000);
        let mut refused = std::collections::BTreeMap::new();
        for n in 0..rounds {
            let mut r = stream(11, Purpose::Start, 0, n);
            let kind = KINDS[r.random_range(0..KINDS.len())];
            let name = Name {
                round: r.random_range(0..1000),
                kind,
                sender: r.random_range(0..10),
                receiver: r.random_range(0..10),
            };
            let mut message = vec![0; r.random_range(0..300usize)];
            r.fill_bytes(&mut message);
            let good = packet(name, &message, 0);
            let mut bad = good.clone();
            match r.random_range(0..6u8) {
                0 => bad.truncate(r.random_range(0..bad.len())),
                1 => bad.extend((0..r.random_range(1..9usize)).map(|_| 0)),
                2 => r.fill_bytes(&mut bad[..]),
                // Bytes of the header, where they do most harm.
                3 => (0..r.random_range(1..4usize)).for_each(|_| bad[r.random_range(0..HEADER)] = r.random()),
                4 => {
                    let (from, to) = (r.random_range(0..bad.len()), r.random_range(0..bad.len()));
                    bad.swap(from, to);
                }
                _ => {
                    let at = r.random_range(0..bad.len());
                    bad[at] ^= 1 << r.random_range(0..8u8);
                }
            }
            match read(&bad, 1 << 20) {
                Err(why) => *refused.entry(why).or_insert(0) += 1,
                // What claims to be sealed is looked at with the key.
                Ok(p) if p.secured == Secured::Sealed => *refused.entry(Refusal::Forged).or_insert(0) += 1,
                Ok(_) => assert_eq!(bad, good, "a forgery was taken"),
            }
        }
        assert!(refused.len() >= 5, "{refused:?}");
    }
}
