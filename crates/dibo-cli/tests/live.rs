//! `run --live` and `launch --live`: the page over HTTP and, where Chromium is there, in a browser.
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
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
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

/// Chromium's view of a page after three seconds of its own time, which stands still while an answer is under
/// way, as HTML; none where there is no Chromium.
fn seen(address: &str) -> Option<String> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let flags = ["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", "--virtual-time-budget=3000"];
    let run = |name: &&str| {
        let home = tempfile::tempdir().ok()?;
        let data = format!("--user-data-dir={}", home.path().display());
        let mut command = Command::new(name);
        command.args(flags).arg(data).arg("--enable-logging=stderr").arg(address);
        let done = command.stdin(Stdio::null()).output().ok()?;
        let errors = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(!errors.contains("CONSOLE") || !errors.contains("Uncaught"), "{errors}");
        Some(String::from_utf8_lossy(&done.stdout).into_owned()).filter(|page| page.contains("<html"))
    };
    names.iter().find_map(run)
}

#[test]
fn a_browser_draws_the_page_and_the_report() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let run = Watched::start(&out);
    run.news(|news| news["done"].as_u64() > Some(0));
    let page = seen(&run.address);
    run.ask("POST", "stop");
    let (code, _) = run.end();
    assert_eq!(code, 130);
    let Some(page) = page else {
        eprintln!("skipped: there is no Chromium here");
        return;
    };
    // The plot is drawn, and its news have come.
    assert!(
        page.contains("u-over") && page.contains("to go"),
        "{}",
        &page[page.len().saturating_sub(4000)..]
    );
    let report = seen(&format!("file://{}", out.join("report.html").display())).unwrap();
    assert!(report.contains("u-over") && report.contains("aria-pressed"));
}

#[cfg(feature = "net")]
mod launch {
    use super::*;

    /// Three processes with ten agents for a while, and a title that would like to be markup.
    fn command(folder: &Path, more: &[&str]) -> Command {
        let file = include_str!("small.toml")
            .replace("a small run", "<img src=x onerror=document.title=1>")
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

        match seen(&run.address) {
            Some(page) => {
                // Ten dots and arrows between them; the title is text.
                assert_eq!(page.matches("<circle").count(), 10, "{page}");
                assert!(page.contains("marker-end") && page.contains("agents 4, 5, 6"), "{page}");
                assert!(!page.contains("<img src=x"), "{page}");
            }
            None => eprintln!("the picture is not looked at: there is no Chromium here"),
        }

        assert_eq!(run.ask("POST", "stop").0, 200);
        let (code, said) = run.end();
        assert!(code == 130 && said.contains("stopped early"), "{code} {said}");
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
        let run = Watched::of(command(folder.path(), &["--live"]));
        run.news(|news| news["done"].as_u64() > Some(0));
        run.ask("POST", "stop");
        assert_eq!(run.end().0, 130);
        let other = ["--verify", "--seeds", "1", "--set", "run.iterations=60"];
        let other = command(folder.path(), &other).output().unwrap();
        let said = String::from_utf8_lossy(&other.stdout).into_owned();
        assert!(said.contains("every bit") && !said.contains("going on"), "{said}");
    }
}
