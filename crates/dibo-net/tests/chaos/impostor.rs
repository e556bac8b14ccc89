//! Somebody who is let into the network by a valid certificate, but for another agent: it hears all packets,
//! plays them again, changes them and invents new ones.
use crate::world::Place;
use bytes::Bytes;
use dibo::rng::{Purpose, stream};
use dibo_net::keys::Identity;
use dibo_net::packet::{
    EVERYBODY, From, HEAD, KINDS, Kind, Name, Run, Secured, checksum, head, header, read,
};
use dibo_net::transport::{To, Transport};
use rand::{Rng, RngExt};
use serde::Serialize;
use std::time::Duration;

/// As the protocol writes it.
#[derive(Serialize)]
struct Card {
    said: Vec<u8>,
    key: [u8; 32],
    proof: Vec<u8>,
}

/// A packet with any header, any body and a checksum that fits.
fn invented(d: &mut dyn Rng, run: Run, agents: u32, heard: Option<From>, identity: &dyn Identity) -> Vec<u8> {
    let kind = KINDS[d.random_range(0..KINDS.len())];
    let round = if d.random_bool(0.5) { d.random_range(0..40) } else { 1 << d.random_range(0..60u32) };
    let receiver = if d.random_bool(0.5) { EVERYBODY } else { d.random_range(0..agents) };
    let name = Name { round, kind, sender: d.random_range(0..agents), receiver };
    let from = From {
        incarnation: heard.map_or_else(|| d.random(), |f| f.incarnation),
        counter: if d.random_bool(0.3) { 0 } else { d.random_range(1..500) },
    };
    let body: Vec<u8> = (0..d.random_range(0..200usize)).map(|_| d.random()).collect();
    match d.random_range(0..3u8) {
        0 => [&header(run, from, name, body.len(), 0, &body)[..], &body].concat(),
        1 => {
            let head = head(run, from, name, Secured::Sealed, body.len(), 0, body.len());
            [&head[..], &checksum(&head, &body), &body].concat()
        }
        _ => {
            // Signed with its own certificate, which does not name the agent.
            let (from, key) = (From { counter: 0, ..from }, [7; 32]);
            let bare = head(run, from, name, Secured::Signed, 0, 0, 0);
            let message = [b"dibo greeting", &bare[..HEAD - 8], &body, &key].concat();
            let card = Card { proof: identity.sign(&message), said: body, key };
            let body = postcard::to_stdvec(&card).unwrap();
            let head = head(run, from, name, Secured::Signed, body.len(), 0, body.len());
            [&head[..], &checksum(&head, &body), &body].concat()
        }
    }
}

/// Attacks for a few seconds.
pub fn attack(mut place: Place, agents: usize, digest: [u8; 32]) {
    let mut dice = stream(place.random().into(), Purpose::Start, 0xbad, 0);
    let d: &mut dyn Rng = &mut dice;
    let identity = place.identity().expect("it has a certificate");
    let run = Run { digest: digest[..16].try_into().unwrap(), job: 0 };
    let until = place.now() + Duration::from_secs(3);
    let mut heard: Vec<Bytes> = Vec::new();
    while place.now() < until {
        if let Some(packet) = place.receive(Duration::from_millis(d.random_range(1..20))) {
            heard.push(packet);
        }
        let pick = (!heard.is_empty()).then(|| heard[d.random_range(0..heard.len())].clone());
        let from = pick.as_ref().and_then(|p| read(p, 1 << 30).ok()).map(|p| p.from);
        let packet = match (pick, d.random_range(0..4u8)) {
            // Again, as it was.
            (Some(packet), 0) => packet.to_vec(),
            // With a bit turned.
            (Some(packet), 1) => {
                let mut packet = packet.to_vec();
                let at = d.random_range(0..packet.len());
                packet[at] ^= 1 << d.random_range(0..8u8);
                packet
            }
            // As another kind of message.
            (Some(packet), 2) => {
                let mut packet = packet.to_vec();
                packet[5] = if d.random_bool(0.5) { Kind::Stop as u8 } else { d.random_range(0..12) };
                packet
            }
            _ => invented(d, run, agents as u32, from, &*identity),
        };
        let to = if d.random_bool(0.3) { To::All } else { To::Process(d.random_range(0..agents as u32)) };
        place.send(to, &packet, &Bytes::new());
    }
}
