//! `run --live` and `launch --live`: the page over HTTP and, where Chromium is there, in a browser.
mod browser;

use browser::Browser;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// A run that would take hours, and the address of its page.
struct Watched {
    child: Child,
    address: String,
    output: BufReader<ChildStdout>,
}

impl Watched {
    fn start(out: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dibo"));
        command
            .args(["run", "policy", "--live", "--quiet", "--seeds", "1", "--threads", "1"])
            .args(["--set", "run.iterations=50000000", "--set", "run.every=1000", "--out"])
            .arg(out);
        Self::of(command)
    }

    fn of(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut said = String::new();
        let address = loop {
            let mut line = String::new();
            assert!(output.read_line(&mut line).unwrap() > 0, "no address was said: {said}");
            if let Some(at) = line.find("http://127.0.0.1:") {
                break line[at..].trim().to_string();
            }
            said += &line;
        };
        Watched { child, address, output }
    }

    /// Status and body of a request; `path` follows the token, or stands for the whole.
    fn ask(&self, method: &str, path: &str) -> (u16, String) {
        let (host, token) = self.address["http://".len()..].split_once('/').unwrap();
        let path = if path.starts_with('/') { path.to_string() } else { format!("/{token}{path}") };
        let mut stream = TcpStream::connect(host).unwrap();
        let head = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        // Pieces of a long answer may end within a letter.
        let reply = String::from_utf8_lossy(&bytes).into_owned();
        let (head, body) = reply.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.into())
    }

    /// The first news for which `good` holds.
    fn news(&self, good: impl Fn(&serde_json::Value) -> bool) -> serde_json::Value {
        let began = Instant::now();
        loop {
            let (status, body) = self.ask("GET", "data");
            // Long answers come in pieces, each after its length; the JSON is the longest line.
            let text = body.lines().max_by_key(|line| line.len()).unwrap_or("");
            let news: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
            if status == 200 && good(&news) {
                return news;
            }
            assert!(began.elapsed() < Duration::from_secs(60), "{status} {body}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn end(mut self) -> (i32, String) {
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        (self.child.wait().unwrap().code().unwrap_or(-1), rest)
    }
}

#[test]
fn a_run_can_be_watched_and_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let run = Watched::start(&out);
    let wrong = format!("/{}/", "0".repeat(32));
    for (method, path) in
        [("GET", "/"), ("GET", wrong.as_str()), ("POST", &format!("{wrong}stop")), ("GET", "/data")]
    {
        assert_eq!(run.ask(method, path).0, 403, "{method} {path}");
    }
    assert!(run.ask("GET", "").1.contains("<h1>"));
    let points =
        |news: &serde_json::Value| news["data"]["series"][0]["iteration"].as_array().map_or(0, Vec::len);
    let first = run.news(|news| news["done"].as_u64() > Some(0));
    let second = run.news(|news| news["done"].as_u64() > first["done"].as_u64());
    assert!(points(&second) >= points(&first) && second["state"] == "running");
    // The graph of the moment, which has links between different agents only.
    let network =
        &run.news(|news| news["network"]["links"].as_array().is_some_and(|l| !l.is_empty()))["network"];
    let links: Vec<(usize, usize)> = serde_json::from_value(network["links"].clone()).unwrap();
    assert!(
        links.iter().all(|(s, r)| s != r && *s < 10 && *r < 10)
            && network["processes"] == serde_json::json!([])
    );
    assert_eq!(run.ask("POST", "stop").0, 200);
    let (code, said) = run.end();
    assert!(code == 130 && said.contains("stopped early"), "{code} {said}");
    assert!(out.join("report.html").exists() && out.join("runs").exists());
}

/// A title that would like to be markup.
const MARKUP: &str = "<img src=x onerror=document.title=1>";

/// The browser shows the curves as they come, passes the wishes on, and ends with the report of the folder.
#[test]
fn a_browser_watches_a_run_has_it_keep_its_state_and_stops_it() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let file = include_str!("small.toml")
        .replace("a small run", MARKUP)
        .replace("iterations = 60", "iterations = 50000000")
        .replace("every = 20", "every = 1000");
    std::fs::write(folder.path().join("long.toml"), file).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_dibo"));
    command.current_dir(folder.path()).args(["run", "long.toml", "--live", "--quiet", "--seeds", "1"]);
    command.args(["--threads", "1", "--out"]).arg(&out);
    let run = Watched::of(command);
    run.news(|news| news["done"].as_u64() > Some(0));
    let page = Browser::open(&run.address, 400);
    if let Some(mut page) = page {
        page.wait("document.getElementById('state').innerText.includes('to go')");
        page.wait("!!document.querySelector('canvas')");
        page.run("window.seen = document.querySelector('canvas').toDataURL()");
        page.wait("document.querySelector('canvas').toDataURL() !== window.seen");
        assert_eq!(page.run("document.querySelector('h1').innerText"), MARKUP);
        assert_eq!(page.run("document.images.length"), 0);
        assert_eq!(
            page.run("document.documentElement.scrollWidth <= document.documentElement.clientWidth"),
            true
        );
        page.run("document.getElementById('keep').click()");
        page.wait("document.getElementById('kept').innerText.startsWith('state kept')");
        let kept = std::fs::read_dir(out.join("runs")).unwrap();
        let kept: Vec<_> = kept.map(|file| file.unwrap().path()).collect();
        assert!(kept.iter().any(|file| file.extension().is_some_and(|e| e == "checkpoint")), "{kept:?}");
        assert_eq!(page.run("document.getElementById('stop').disabled"), false);
        page.run("document.getElementById('stop').click()");
        page.wait("location.href.endsWith('report.html') && !!document.querySelector('.u-over')");
        assert_eq!(page.run("document.querySelector('h1').innerText"), MARKUP);
        assert_ne!(page.run("document.title"), "1");
        assert_eq!(page.errors, [""; 0]);
    } else {
        run.ask("POST", "stop");
    }
    let (code, said) = run.end();
    assert!(code == 130 && said.contains("stopped early"), "{code} {said}");
}

/// Reports from a folder: drawn, and pictures of networks left as they are.
#[test]
fn a_browser_draws_reports() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_dibo"));
    command.current_dir(folder.path()).args(["run", "topology", "--quiet", "--out", "out"]);
    assert!(command.output().unwrap().status.success());
    let page = std::fs::read_to_string(folder.path().join("out/report.html")).unwrap();
    assert!(page.contains("dibo run topology --quiet --out out"));
    let address = format!("file://{}", folder.path().join("out/report.html").display());
    let Some(mut page) = Browser::open(&address, 1280) else { return };
    page.wait("document.querySelectorAll('.u-over').length === 1");
    let shown = "document.querySelector('#graphs .static').getBoundingClientRect().height > 100";
    assert_eq!(page.run(shown), true);
    assert_eq!(page.run("!!document.querySelector('#graphs canvas')"), false);
    page.run("document.querySelector('.plot .tools input').click()");
    assert_eq!(page.errors, [""; 0]);
}

/// Images that look wrong stand in as many columns as there is room for, the most suspicious first.
#[test]
fn a_browser_wraps_pictures_on_narrow_screens() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_dibo"));
    command.current_dir(folder.path()).args(["run", "quickstart", "--seeds", "1", "--quiet", "--out", "out"]);
    assert!(command.args(["--set", "run.iterations=40"]).output().unwrap().status.success());
    let address = format!("file://{}", folder.path().join("out/report.html").display());
    for (width, columns) in [(400, 4), (1280, 12)] {
        let Some(mut page) = Browser::open(&address, width) else { return };
        let picture = "document.querySelector('.cells')";
        let fits = |what: &str| format!("{what}.scrollWidth <= {what}.clientWidth");
        assert_eq!(page.run(&fits(picture)), true, "{width}");
        assert_eq!(page.run(&fits("document.documentElement")), true, "{width}");
        let tops = "[...document.querySelectorAll('.cells use')]
            .map(cell => cell.parentNode.getBoundingClientRect().top)";
        let first = format!("(tops => tops.filter(top => top === tops[0]).length)({tops})");
        assert_eq!(page.run(&first), columns, "{width}");
        assert_eq!(page.errors, [""; 0]);
    }
}

#[cfg(feature = "net")]
mod launch {
    use super::*;

    /// Three processes with ten agents for a while, and a title that would like to be markup.
    fn command(folder: &Path, more: &[&str]) -> Command {
        let file = include_str!("small.toml")
            .replace("a small run", MARKUP)
            .replace("agents = 5", "agents = 10")
            .replace("iterations = 60", "iterations = 20000")
            .replace("every = 20", "every = 50");
        std::fs::write(folder.join("ten.toml"), file).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_dibo"));
        command.current_dir(folder).args(["launch", "ten.toml", "--processes", "3", "--quiet", "--tcp"]);
        command.args(["--out", "o", "--checkpoint", "0.2"]).args(more);
        command
    }

    /// The rounds that the processes are in.
    fn rounds(news: &serde_json::Value) -> Vec<u64> {
        let processes = news["network"]["processes"].as_array().cloned().unwrap_or_default();
        processes.iter().filter_map(|p| p["round"].as_u64()).collect()
    }

    #[test]
    fn a_launch_can_be_watched_stopped_and_taken_up() {
        let folder = tempfile::tempdir().unwrap();
        let run = Watched::of(command(folder.path(), &["--live"]));
        let news = run.news(|news| {
            rounds(news).len() == 3
                && rounds(news).iter().all(|round| *round > 0)
                && news["done"].as_u64() > Some(0)
                && news["network"]["links"].as_array().is_some_and(|links| !links.is_empty())
        });
        let network = &news["network"];
        assert_eq!((&network["agents"], &news["total"]), (&10.into(), &40_000.into()));
        let agents: Vec<Vec<usize>> = (0..3)
            .map(|p| serde_json::from_value(network["processes"][p]["agents"].clone()).unwrap())
            .collect();
        assert_eq!(agents, [vec![0, 1, 2, 3], vec![4, 5, 6], vec![7, 8, 9]]);
        let links: Vec<(usize, usize)> = serde_json::from_value(network["links"].clone()).unwrap();
        assert!(links.iter().all(|(s, r)| s != r && *s < 10 && *r < 10), "{links:?}");
        assert!(network["processes"][1]["sent"].as_u64() > Some(0), "{network}");
        assert!(network["processes"][2]["heard"].as_f64() < Some(60.0), "{network}");

        // Curves come while the first run goes on.
        let points =
            |news: &serde_json::Value| news["data"]["series"][0]["iteration"].as_array().map_or(0, Vec::len);
        let curve = run.news(|news| points(news) > 2);
        assert!(curve["done"].as_u64() < Some(20_000) || points(&curve) > 100, "{curve}");
        let mut page = Browser::open(&run.address, 1280);
        if let Some(page) = &mut page {
            // Ten dots and arrows between them, and curves; the title is text.
            page.wait(
                "document.querySelectorAll('circle').length === 10 && !!document.querySelector('canvas')",
            );
            assert_eq!(page.run("!!document.querySelector('[marker-end]')"), true);
            page.wait("document.body.innerText.includes('agents 4, 5, 6')");
            assert_eq!(page.run("document.images.length"), 0);
            assert_eq!(page.errors, [""; 0]);
        }
        // A checkpoint when it is asked for.
        assert_eq!(run.ask("POST", "keep").0, 200);

        match &mut page {
            Some(page) => drop(page.run("document.getElementById('stop').click()")),
            None => assert_eq!(run.ask("POST", "stop").0, 200),
        }
        let (code, said) = run.end();
        assert!(code == 130 && said.contains("stopped early"), "{code} {said}");
        if let Some(mut page) = page {
            page.wait("document.getElementById('state').innerText.startsWith('stopped, the same command')");
            // Longer than a page waits between two questions: it has none left.
            std::thread::sleep(Duration::from_secs(4));
            assert_eq!(page.run("document.getElementById('stop').disabled"), true);
            assert_eq!(page.errors, [""; 0]);
        }
        for process in ["0", "4", "7"] {
            let log = folder.path().join(format!("o/agents/{process}.log"));
            let said = std::fs::read_to_string(log).unwrap();
            assert!(!said.contains("is gone"), "{process} was not let end: {said}");
        }

        let again = command(folder.path(), &["--verify"]).output().unwrap();
        let said = String::from_utf8_lossy(&again.stdout).into_owned();
        assert!(again.status.success() && said.contains("every bit"), "{said}");
        assert!(said.contains("going on where it was stopped"), "{said}");
        let log = std::fs::read_to_string(folder.path().join("o/agents/0.log")).unwrap();
        let again = log.split_once("stopped early").unwrap().1;
        let from = again.split_once("beginning in round ").unwrap().1;
        assert!(!from.starts_with("0\n"), "{log}");
    }

    #[test]
    fn another_launch_begins_anew_in_a_folder_where_one_was_stopped() {
        let folder = tempfile::tempdir().unwrap();
        // What is found done is not counted as done by the second one.
        for goes_on in [false, true] {
            let run = Watched::of(command(folder.path(), &["--live"]));
            let news = run.news(|news| news["done"].as_u64() > news["found"].as_u64());
            assert_eq!(news["found"].as_u64() > Some(0), goes_on, "{news}");
            run.ask("POST", "stop");
            assert_eq!(run.end().0, 130);
        }
        let other = ["--verify", "--seeds", "1", "--set", "run.iterations=60"];
        let other = command(folder.path(), &other).output().unwrap();
        let said = String::from_utf8_lossy(&other.stdout).into_owned();
        assert!(said.contains("every bit") && !said.contains("going on"), "{said}");
    }
}
