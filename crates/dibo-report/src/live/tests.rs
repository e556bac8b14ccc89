//! The page over HTTP: who may see it, what it tells, and that the wish to stop arrives.
use super::*;
use crate::results::{FORMAT, Machine, Series};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

fn manifest() -> Manifest {
    let bad = "</script><script>alert(1)</script>";
    let machine = Machine { system: String::new(), cpu: String::new(), threads: 1, memory: 0, device: None };
    let series = Series {
        name: bad.into(),
        label: bad.into(),
        algorithm: "fab".into(),
        settings: BTreeMap::new(),
        swept: vec![],
        warnings: vec![bad.into()],
    };
    Manifest {
        format: FORMAT,
        version: "0".into(),
        commit: None,
        command: None,
        name: "small".into(),
        title: bad.into(),
        about: String::new(),
        file: String::new(),
        overrides: vec![],
        seeds: vec![0],
        machine,
        started: 0,
        seconds: 0.0,
        peak_memory: None,
        metrics: vec![],
        series: vec![series],
        runs: vec![],
        figures: vec![Figure::line("error", "y")],
        claims: vec![],
    }
}

fn wishes(stop: impl Fn() + Send + Sync + 'static, keep: impl Fn() + Send + Sync + 'static) -> Wishes {
    Wishes { stop: Box::new(stop), keep: Box::new(keep) }
}

/// The whole answer to one request.
fn reply(server: &Server, request: &str, host: &str) -> String {
    let address = server.address().strip_prefix("http://").unwrap().split('/').next().unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    let host = if host.is_empty() { address } else { host };
    let head =
        format!("{request} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    // Pieces of a long answer may end within a letter.
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Status and body of the answer to one request.
fn ask(server: &Server, request: &str, host: &str) -> (u16, String) {
    let reply = reply(server, request, host);
    let (head, body) = reply.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.into())
}

#[test]
fn only_who_knows_the_token_sees_the_run_and_can_stop_it() {
    let stopped = Arc::new(AtomicBool::new(false));
    let told = stopped.clone();
    let kept = Arc::new(AtomicBool::new(false));
    let count = kept.clone();
    let live = Arc::new(Live::new(
        manifest(),
        wishes(move || told.store(true, Relaxed), move || count.store(true, Relaxed)),
    ));
    live.set_total(100);
    let server = Server::start(live.clone(), Path::new("results/<small>")).unwrap();
    let base = format!("/{}", server.address().split('/').nth(3).unwrap());
    let wrong = format!("/{}", "0".repeat(32));
    for path in ["/".to_string(), format!("{wrong}/"), format!("{wrong}/data"), base.clone()] {
        assert_eq!(ask(&server, &format!("GET {path}"), "").0, 403, "{path}");
    }
    assert_eq!(ask(&server, &format!("POST {wrong}/stop"), "").0, 403);
    // A foreign name that means this machine, and a foreign way.
    assert_eq!(ask(&server, &format!("GET {base}/"), "evil.example").0, 403);
    assert_eq!(ask(&server, &format!("GET {base}/stop"), "").0, 405);
    assert_eq!(ask(&server, &format!("GET {base}/other"), "").0, 404);
    assert_eq!(ask(&server, &format!("POST {wrong}/keep"), "").0, 403);
    assert!(!stopped.load(Relaxed) && !kept.load(Relaxed));

    let (status, page) = ask(&server, &format!("GET {base}/"), "");
    assert!(status == 200 && page.matches("<script").count() == 1 && !page.contains("alert(1)</script>"));

    let feed = live.begin(0, 0, 100);
    for iteration in (0..50).step_by(10) {
        assert!(feed.wants(iteration));
        let row = CurveRow {
            series: 0,
            seed: 0,
            iteration,
            seconds: 0.1,
            bytes: 1,
            gradients: 1,
            products: 0,
            values: vec![],
        };
        feed.show(row, &[("error".into(), 1.0 / (1 + iteration) as f64)]);
        live.advance(10);
    }
    live.found(20);
    live.say("careful");
    let (_, news) = ask(&server, &format!("GET {base}/data"), "");
    let news: serde_json::Value = serde_json::from_str(&news).unwrap();
    assert_eq!((&news["state"], &news["done"], &news["total"]), (&"running".into(), &50.into(), &100.into()));
    assert_eq!(news["found"], 20);
    assert_eq!(news["data"]["series"][0]["values"]["error"]["middle"].as_array().unwrap().len(), 5);
    assert_eq!((&news["said"][0], &news["runs"][0][2]), (&"careful".into(), &"40".into()));

    assert_eq!(ask(&server, &format!("POST {base}/keep"), "").0, 200);
    assert!(kept.load(Relaxed) && !stopped.load(Relaxed) && news["kept"].is_null());
    feed.kept();

    assert_eq!(ask(&server, &format!("POST {base}/stop"), "").0, 200);
    assert!(stopped.load(Relaxed));
    feed.end("stopped");
    let (_, news) = ask(&server, &format!("GET {base}/data"), "");
    assert!(news.contains("\"kept\":0."), "{news}");
    assert!(news.contains("\"state\":\"stopping\"") && news.contains("\"runs\":[]"), "{news}");
}

#[test]
fn the_network_is_looked_at_when_a_page_asks_and_thinned_out_where_it_is_large() {
    let live = Arc::new(Live::new(manifest(), wishes(|| {}, || {})));
    let server = Server::start(live.clone(), Path::new("results")).unwrap();
    let looks = Arc::new(AtomicUsize::new(0));
    let counted = looks.clone();
    let all = |n: usize| (0..n).flat_map(|s| (0..n).map(move |r| (s, r))).filter(|(s, r)| s != r).collect();
    live.set_network(move |going| {
        counted.fetch_add(1, Relaxed);
        assert_eq!(going, None);
        Some(Network::new(3, "now".into(), all(3)))
    });
    assert_eq!(looks.load(Relaxed), 0);
    let base = format!("/{}", server.address().split('/').nth(3).unwrap());
    let (_, news) = ask(&server, &format!("GET {base}/data"), "");
    let news: serde_json::Value = serde_json::from_str(&news).unwrap();
    assert_eq!((looks.load(Relaxed), news["network"]["links"].as_array().unwrap().len()), (1, 6));
    // A ring of a hundred keeps the links of every third, a complete graph those of few.
    let ring = Network::new(100, String::new(), (0..100).map(|i| (i, (i + 1) % 100)).collect());
    assert_eq!((ring.all, ring.every, ring.links.len()), (100, 3, 34));
    let complete = Network::new(100, String::new(), all(100));
    assert!(complete.links.len() <= 250 && complete.all == 9900, "{}", complete.links.len());
    assert_eq!(Network::new(40, String::new(), all(40)).links.len(), 1560);
    assert_eq!(Network::new(0, String::new(), vec![]).links, []);
}

#[test]
fn a_page_is_told_that_a_run_was_stopped_before_nobody_answers() {
    let live = Arc::new(Live::new(manifest(), wishes(|| {}, || {})));
    let server = Server::start(live, Path::new("results")).unwrap();
    let base = format!("/{}", server.address().split('/').nth(3).unwrap());
    let state = || {
        let (_, news) = ask(&server, &format!("GET {base}/data"), "");
        serde_json::from_str::<serde_json::Value>(&news).unwrap()["state"].clone()
    };
    assert_eq!(state(), "running");
    // A page that has asked just now is waited for, and old news do not stand in for the last.
    std::thread::scope(|scope| {
        let ends = scope.spawn(|| server.stopped());
        let began = Instant::now();
        while state() != "stopped" {
            assert!(began.elapsed() < Duration::from_secs(10));
        }
        ends.join().unwrap();
    });
    assert_eq!(ask(&server, &format!("GET {base}/report.html"), "").0, 404);
}

#[test]
fn the_page_goes_on_to_the_report() {
    let live = Arc::new(Live::new(manifest(), wishes(|| {}, || {})));
    let server = Server::start(live, Path::new("results")).unwrap();
    let base = format!("/{}", server.address().split('/').nth(3).unwrap());
    assert_eq!(ask(&server, &format!("GET {base}/report.html"), "").0, 404);
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("report.html"), "the report").unwrap();
    // Nobody looks, so that nobody is waited for.
    let began = Instant::now();
    server.finish(&folder.path().join("report.html")).unwrap();
    assert!(began.elapsed() < Duration::from_secs(2));
    let (_, news) = ask(&server, &format!("GET {base}/data"), "");
    assert!(news.contains("\"report\":true"));
    assert_eq!(ask(&server, &format!("GET {base}/report.html"), ""), (200, "the report".into()));
    // The page may run its own script only; the report says itself which one is its own.
    let policy = |path: &str| reply(&server, &format!("GET {base}/{path}"), "").contains("script-src");
    assert!(policy("") && !policy("report.html"));
}

#[test]
fn one_who_does_not_read_keeps_neither_others_nor_the_end_waiting() {
    let live = Arc::new(Live::new(manifest(), wishes(|| {}, || {})));
    let server = Server::start(live, Path::new("results")).unwrap();
    let base = format!("/{}", server.address().split('/').nth(3).unwrap());
    let host = server.address().strip_prefix("http://").unwrap().split('/').next().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report.html");
    // More than the buffers between two programs of one machine hold.
    std::fs::write(&report, vec![b'x'; 64 << 20]).unwrap();
    server.finish(&report).unwrap();
    let send = |request: String| {
        let mut stream = TcpStream::connect(host).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        stream
    };
    let head = format!("HTTP/1.1\r\nHost: {host}\r\n");
    let mut deaf = send(format!("GET {base}/report.html {head}\r\n"));
    deaf.read_exact(&mut [0; 12]).unwrap();
    let half = send(format!("POST {base}/stop {head}Content-Length: 100000\r\n\r\nhalf"));
    assert_eq!(ask(&server, &format!("GET {base}/"), "").0, 200);
    let silent = [send(format!("GET {base}/data {head}")), send(String::new())];
    let began = Instant::now();
    drop(server);
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    drop((deaf, half, silent));
}
