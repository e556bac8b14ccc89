//! A real browser for tests: headless Chromium, told what to do over two pipes.
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// One page in a browser of its own.
pub struct Browser {
    child: Child,
    input: ChildStdin,
    answers: Receiver<Value>,
    asked: u64,
    session: Option<String>,
    /// What the page's console was told of errors and warnings.
    pub errors: Vec<String>,
    _home: tempfile::TempDir,
}

impl Browser {
    /// A page of this size at this address; none where there is no Chromium, which is said.
    pub fn open(address: &str, width: u32) -> Option<Browser> {
        let names = ["chromium", "chromium-browser", "google-chrome"];
        let there = |name: &&&str| Command::new(name).arg("--version").output().is_ok();
        let Some(name) = names.iter().find(there) else {
            eprintln!("not looked at in a browser: there is no Chromium here");
            return None;
        };
        let home = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        // It listens at the third and answers at the fourth descriptor.
        command.args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1", name]);
        command.args(["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"]);
        command.args(["--disable-background-networking", "--disable-component-update", "--no-first-run"]);
        command.arg(format!("--user-data-dir={}", home.path().display()));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (tell, answers) = channel();
        std::thread::spawn(move || {
            for text in BufReader::new(output).split(0).map_while(Result::ok) {
                let told = serde_json::from_slice(&text).map(|value| tell.send(value));
                if !matches!(told, Ok(Ok(()))) {
                    break;
                }
            }
        });
        let errors = Vec::new();
        let mut page = Browser { child, input, answers, asked: 0, session: None, errors, _home: home };
        let target = page.ask("Target.createTarget", json!({ "url": "about:blank" }))["targetId"].clone();
        let session = page.ask("Target.attachToTarget", json!({ "targetId": target, "flatten": true }));
        page.session = Some(session["sessionId"].as_str().unwrap().into());
        for part in ["Runtime.enable", "Log.enable", "Page.enable"] {
            page.ask(part, json!({}));
        }
        let size = json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
        page.ask("Emulation.setDeviceMetricsOverride", size);
        page.ask("Page.navigate", json!({ "url": address }));
        page.wait("document.readyState === 'complete' && location.href !== 'about:blank'");
        Some(page)
    }

    /// What a script comes to.
    pub fn run(&mut self, script: &str) -> Value {
        let wish = json!({ "expression": script, "returnByValue": true, "awaitPromise": true });
        let answer = self.ask("Runtime.evaluate", wish);
        assert!(answer["exceptionDetails"].is_null(), "{script}: {answer}");
        answer["result"]["value"].clone()
    }

    /// Waits until a script comes to true; pages may change meanwhile.
    pub fn wait(&mut self, script: &str) {
        let began = Instant::now();
        loop {
            let wish = json!({ "expression": script, "returnByValue": true });
            if self.ask("Runtime.evaluate", wish)["result"]["value"] == Value::Bool(true) {
                return;
            }
            let page = |page: &mut Self| page.run("document.body.innerText");
            assert!(began.elapsed() < PATIENCE, "{script} does not come true: {}", page(self));
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn ask(&mut self, method: &str, wish: Value) -> Value {
        self.asked += 1;
        let mut text = json!({ "id": self.asked, "method": method, "params": wish });
        if let Some(session) = &self.session {
            text["sessionId"] = session.as_str().into();
        }
        self.input.write_all(format!("{text}\0").as_bytes()).unwrap();
        loop {
            let answer = self.answers.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{method}: silence"));
            if answer["id"] == self.asked {
                return answer["result"].clone();
            }
            self.note(&answer);
        }
    }

    /// Keeps what a reader of the console would see in red or yellow.
    fn note(&mut self, event: &Value) {
        let what = &event["params"];
        let bad = |level: &Value| level == "error" || level == "warning";
        let worth = match event["method"].as_str().unwrap_or_default() {
            "Runtime.exceptionThrown" => true,
            "Runtime.consoleAPICalled" => bad(&what["type"]),
            "Log.entryAdded" => bad(&what["entry"]["level"]),
            _ => false,
        };
        if worth {
            self.errors.push(what.to_string());
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.input.write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(5) && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
