//! Keys: how a process shows that it may speak for its agents, and how two processes seal what they send each
//! other so that nobody between them, a router included, can read, change or play it again.
use crate::packet::{From, HEAD, HEADER, Refusal, SEAL};
use bytes::{Bytes, BytesMut};
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Salt};
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;
use x25519_dalek::{PublicKey, StaticSecret};

/// Agents that a certificate names.
pub type Named = Vec<RangeInclusive<usize>>;

/// Signs for this process, and tells whom somebody else's signature speaks for.
pub trait Identity: Send + Sync {
    /// A signature of this process, with all that others need to check it.
    fn sign(&self, message: &[u8]) -> Vec<u8>;
    /// The agents that the signer may speak for; or why the proof is none.
    fn verify(&self, proof: &[u8], message: &[u8]) -> Result<Named, String>;
}

/// What is said before a key is agreed on, with the signer's key for the agreement.
#[derive(Serialize, Deserialize)]
pub(crate) struct Card {
    pub said: Vec<u8>,
    pub key: [u8; 32],
    pub proof: Vec<u8>,
}

/// What a signature is made of: the header but for the counter, the words and the key.
fn signed(head: &[u8], said: &[u8], key: &[u8; 32]) -> Vec<u8> {
    [b"dibo greeting", &head[..HEAD - 8], said, key].concat()
}

/// This process's side of all agreements: the secret lives as long as the process.
pub(crate) struct Secret {
    secret: StaticSecret,
    public: [u8; 32],
}

impl Secret {
    /// A new one, from the system's random numbers.
    pub fn new() -> Result<Self, String> {
        let mut bytes = [0; 32];
        ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut bytes)
            .map_err(|_| "the system gives no random numbers for a key".to_string())?;
        let secret = StaticSecret::from(bytes);
        let public = PublicKey::from(&secret).to_bytes();
        Ok(Secret { secret, public })
    }

    /// Words that this process signs.
    pub fn card(&self, identity: &dyn Identity, head: &[u8], said: Vec<u8>) -> Card {
        let proof = identity.sign(&signed(head, &said, &self.public));
        Card { said, key: self.public, proof }
    }

    /// The keys for packets to and from the owner of another secret.
    pub fn pair(&self, theirs: [u8; 32], run: &[u8]) -> Option<Pair> {
        let shared = self.secret.diffie_hellman(&PublicKey::from(theirs));
        // A key that is no real one makes an agreement that everybody knows.
        if !shared.was_contributory() {
            return None;
        }
        let pseudo = Salt::new(HKDF_SHA256, b"dibo packets 3").extract(shared.as_bytes());
        let key = |from: &[u8; 32], to: &[u8; 32]| {
            let info = [run, &from[..], &to[..]];
            let key = pseudo.expand(&info, &AES_128_GCM).ok()?;
            Some(LessSafeKey::new(UnboundKey::from(key)))
        };
        Some(Pair { send: key(&self.public, &theirs)?, receive: key(&theirs, &self.public)? })
    }
}

/// Whether a card is signed by somebody who may speak for these agents.
pub(crate) fn check(
    identity: &dyn Identity,
    card: &Card,
    head: &[u8],
    owned: &[usize],
) -> Result<(), Refusal> {
    let message = signed(head, &card.said, &card.key);
    let named = identity.verify(&card.proof, &message).map_err(|_| Refusal::Forged)?;
    let all = owned.iter().all(|i| named.iter().any(|range| range.contains(i)));
    if all { Ok(()) } else { Err(Refusal::NotNamed) }
}

/// The keys of two processes, one for each direction.
pub(crate) struct Pair {
    send: LessSafeKey,
    receive: LessSafeKey,
}

/// Every packet of a direction has a number of its own, so no nonce is used twice with a key.
fn nonce(from: From) -> Nonce {
    let mut bytes = [0; 12];
    bytes[4..].copy_from_slice(&from.counter.to_le_bytes());
    Nonce::assume_unique_for_key(bytes)
}

impl Pair {
    /// Encrypts a body and gives the seal of it and of its header.
    pub fn seal(&self, from: From, head: &[u8; HEAD], body: &[u8]) -> Option<(Bytes, [u8; SEAL])> {
        let mut sealed = body.to_vec();
        let tag = self.send.seal_in_place_separate_tag(nonce(from), Aad::from(head), &mut sealed).ok()?;
        Some((Bytes::from(sealed), tag.as_ref().try_into().ok()?))
    }

    /// The body of a packet that the other one sealed: where it lies, if nobody else looks at it.
    pub fn open(&self, from: From, packet: Bytes) -> Option<Bytes> {
        let mut opened = packet.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
        if opened.len() < HEADER {
            return None;
        }
        let mut body = opened.split_off(HEADER);
        let (head, seal) = opened.split_at(HEAD);
        let (aad, seal) = (Aad::from(head), seal.try_into().ok()?);
        self.receive.open_in_place_separate_tag(nonce(from), aad, seal, &mut body, 0..).ok()?;
        Some(body.freeze())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    /// What a packet goes through.
    fn there_and_back(one: &Pair, other: &Pair, counter: u64, body: &[u8]) -> Bytes {
        let (from, head) = (From { incarnation: 1, counter }, [3; HEAD]);
        let (sealed, seal) = one.seal(from, &head, body).unwrap();
        other.open(from, packet(&head, &seal, &sealed)).unwrap()
    }

    fn packet(head: &[u8], seal: &[u8], body: &[u8]) -> Bytes {
        Bytes::from([head, seal, body].concat())
    }

    fn pairs() -> (Pair, Pair) {
        let (a, b) = (Secret::new().unwrap(), Secret::new().unwrap());
        (a.pair(b.public, b"run").unwrap(), b.pair(a.public, b"run").unwrap())
    }

    #[test]
    fn only_the_other_one_opens_a_packet() {
        let ((a, b), (c, _)) = (pairs(), pairs());
        let (from, head) = (From { incarnation: 1, counter: 9 }, [3; HEAD]);
        let (sealed, seal) = a.seal(from, &head, b"numbers").unwrap();
        assert!(!sealed.windows(7).any(|w| w == b"numbers"));
        let whole = packet(&head, &seal, &sealed);
        assert_eq!(b.open(from, whole.clone()).unwrap(), &b"numbers"[..]);
        // Whoever else looks at the packet sees it as it came.
        assert_eq!(b.open(from, whole.clone()).unwrap(), &b"numbers"[..]);
        // Not the sender itself, nor somebody else; not with another number, header, seal or body.
        assert!(a.open(from, whole.clone()).is_none() && c.open(from, whole.clone()).is_none());
        assert!(b.open(From { counter: 8, ..from }, whole.clone()).is_none());
        assert!(b.open(from, packet(&[4; HEAD], &seal, &sealed)).is_none());
        assert!(b.open(from, packet(&head, &[0; SEAL], &sealed)).is_none());
        assert!(b.open(from, packet(&head, &seal, &sealed[1..])).is_none());
        assert!(b.open(from, whole.slice(..HEADER - 1)).is_none());
        // A key that makes every agreement the same is none.
        assert!(Secret::new().unwrap().pair([0; 32], b"run").is_none());
    }

    /// What sealing costs: `cargo test --release -p dibo-net --lib cost -- --ignored --nocapture`.
    #[test]
    #[ignore = "a measurement"]
    fn cost_of_sealing() {
        let (a, b) = pairs();
        for (length, times) in [(200, 200_000u64), (1000, 100_000), (1 << 20, 300)] {
            let body = vec![7; length];
            let (began, mut counter) = (Instant::now(), 0);
            while counter < times {
                counter += 1;
                std::hint::black_box(there_and_back(&a, &b, counter, &body));
            }
            let each = began.elapsed().as_secs_f64() / times as f64;
            let gigabytes = length as f64 / each / 1e9;
            println!("{length} bytes: {:.2} µs to seal and open, {gigabytes:.2} GB/s", 1e6 * each);
        }
    }
}
