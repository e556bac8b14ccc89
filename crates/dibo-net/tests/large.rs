//! Large messages between machines, directly and through a router, on this one.
#![cfg(feature = "zenoh")]
use bytes::Bytes;
use dibo_net::node::{Node, Settings};
use dibo_net::packet::{EVERYBODY, Kind, Name};
use dibo_net::wire::{Endpoints, Role, Wire};
use std::net::TcpListener;
use std::sync::Arc;

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn endpoints(listen: Vec<String>, connect: Vec<String>) -> Endpoints {
    Endpoints { listen, connect, network: "test".into(), ..Endpoints::default() }
}

#[test]
fn large_messages_arrive_whole_directly_and_through_a_router() {
    // The router lives in the same program as the others here, and needs threads of its own.
    // SAFETY: this is the only test of its program, and no other thread has begun.
    unsafe { std::env::set_var("ZENOH_RUNTIME", "(rx: (worker_threads: 2), tx: (worker_threads: 2))") };
    for routed in [false, true] {
        let ports: Vec<String> = (0..2).map(|_| format!("tcp/127.0.0.1:{}", free_port())).collect();
        let router = Endpoints { role: Role::Router, ..endpoints(vec![ports[0].clone()], vec![]) };
        let (_router, sides) = if routed {
            let client = || Endpoints { role: Role::Client, ..endpoints(vec![], vec![ports[0].clone()]) };
            (Some(router.open().unwrap()), [client(), client()])
        } else {
            (
                None,
                [
                    endpoints(vec![ports[0].clone()], vec![]),
                    endpoints(vec![ports[1].clone()], vec![ports[0].clone()]),
                ],
            )
        };
        let message = |p: u32| {
            Bytes::from(
                (0..40_000_000u32)
                    .map(|i| (i.wrapping_mul(2_654_435_761 + p) >> 24) as u8)
                    .collect::<Vec<u8>>(),
            )
        };
        std::thread::scope(|scope| {
            for (p, side) in (0u32..).zip(sides) {
                scope.spawn(move || {
                    let session = side.open().unwrap();
                    let wire = Wire::new(&session, "test", side.role, p).unwrap();
                    let mut node = Node::new(
                        Box::new(wire),
                        Settings::new(2, vec![p as usize], [1; 32], 0, 0),
                        Arc::default(),
                        |_| {},
                    );
                    node.meet().unwrap();
                    let name = |sender| Name { round: 0, kind: Kind::Round, sender, receiver: EVERYBODY };
                    // One after the other: all sessions of a program share the thread that receives, and a
                    // router's waits while it passes on.
                    if p == 0 {
                        node.post(name(0), message(0), &[1], true);
                    }
                    node.wait(&[name(1 - p)], None).unwrap();
                    assert!(node.message(&name(1 - p)).unwrap().to_vec() == message(1 - p));
                    if p == 1 {
                        node.post(name(1), message(1), &[0], true);
                    }
                    node.finish().unwrap();
                });
            }
        });
    }
}
