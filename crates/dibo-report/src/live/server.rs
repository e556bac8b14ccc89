//! The server of the page: loopback only, and nothing without the token in the address.
use super::{End, LONGEST, Live, PAUSE, SHARE};
use crate::report::page::{SCRIPT, STYLE};
use crate::report::{caption, words};
use anyhow::{Context, Result, anyhow};
use minijinja::{Environment, Value, context};
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tiny_http::{Header, Method, Request, Response};

/// A page that asked not longer ago than this is waited for at the end, so that it can show the report.
const RECENT: Duration = Duration::from_secs(4);
/// So long an answer that is on its way is waited for at the end: whoever reads slower or not at all is left.
const GRACE: Duration = Duration::from_secs(2);

/// Serves the page until it is dropped.
pub struct Server {
    http: Arc<tiny_http::Server>,
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
    /// Closed when no answer is on its way any more.
    answers: Mutex<Receiver<()>>,
    address: String,
}

struct State {
    live: Arc<Live>,
    token: String,
    hosts: [String; 2],
    page: String,
    policy: String,
    /// The last news, when they were made, and how long they hold.
    kept: Mutex<Option<(Instant, Duration, String)>>,
    ending: Mutex<Ending>,
    fetched: Condvar,
}

#[derive(Default)]
struct Ending {
    asked: Option<Instant>,
    end: End,
    report: Vec<u8>,
    /// Whether a page knows of the end.
    fetched: bool,
}

impl Server {
    /// Begins to serve a run whose results go to `folder`, at a free port of this machine.
    pub fn start(live: Arc<Live>, folder: &Path) -> Result<Server> {
        let http = tiny_http::Server::http("127.0.0.1:0")
            .map_err(|error| anyhow!("cannot serve the live page on this machine: {error}"))?;
        let port = http.server_addr().to_ip().context("the live page has no port")?.port();
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).map_err(|error| anyhow!("no random numbers for a token: {error}"))?;
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let (token, nonce) = (hex(&secret[..16]), hex(&secret[16..]));
        let address = format!("http://127.0.0.1:{port}/{token}/");
        let policy = format!(
            "default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; connect-src 'self'; \
            script-src 'nonce-{nonce}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        );
        let state = Arc::new(State {
            page: page(&live, folder, &nonce)?,
            live,
            token,
            hosts: [format!("127.0.0.1:{port}"), format!("localhost:{port}")],
            policy,
            kept: Mutex::new(None),
            ending: Mutex::default(),
            fetched: Condvar::new(),
        });
        let (http, own) = (Arc::new(http), state.clone());
        let (serving, (on_its_way, answers)) = (http.clone(), channel::<()>());
        let builder = || std::thread::Builder::new().name("live page".into());
        let thread = builder().spawn(move || {
            for request in serving.incoming_requests() {
                // Each by a thread of its own: one who does not read keeps nobody else waiting.
                let (own, on_its_way) = (own.clone(), on_its_way.clone());
                let answer = builder().spawn(move || {
                    own.answer(request);
                    drop(on_its_way);
                });
                // Without a thread there is no answer; the page asks again.
                drop(answer);
            }
        });
        let thread = Some(thread.context("cannot begin the live page's thread")?);
        Ok(Server { http, state, thread, answers: Mutex::new(answers), address })
    }

    /// Where the page is, with its token.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The run has ended and left this report: pages that are open go on to it. Waits for them a short while.
    pub fn finish(&self, report: &Path) -> Result<()> {
        let bytes = std::fs::read(report).with_context(|| format!("cannot read {}", report.display()))?;
        self.end(End::Report, bytes);
        Ok(())
    }

    /// The run was stopped and leaves no report: pages that are open say so and ask no more. Waits for them a
    /// short while.
    pub fn stopped(&self) {
        self.end(End::Stopped, Vec::new());
    }

    fn end(&self, end: End, report: Vec<u8>) {
        let mut ending = self.state.ending.lock().unwrap_or_else(PoisonError::into_inner);
        (ending.end, ending.report) = (end, report);
        let kept = self.state.kept.lock().unwrap_or_else(PoisonError::into_inner).take();
        // As long as a page was told to wait, and a second more.
        let wait = RECENT.max(kept.map_or(PAUSE, |(_, hold, _)| hold) + PAUSE);
        let until = ending.asked.map(|asked| asked + wait).unwrap_or_else(Instant::now);
        while !ending.fetched {
            let Some(left) = until.checked_duration_since(Instant::now()) else { break };
            let waited = self.state.fetched.wait_timeout(ending, left);
            ending = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.http.unblock();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        // Nothing is ever sent: this ends when the last answer does, or after a while.
        let answers = self.answers.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ = answers.recv_timeout(GRACE);
    }
}

impl State {
    fn answer(&self, request: Request) {
        let (status, kind, body) = self.find(&request);
        let mut response = Response::from_data(body).with_status_code(status);
        let headers = [
            ("Content-Type", kind),
            ("Content-Security-Policy", if kind == PAGE { self.policy.as_str() } else { "" }),
            ("Cache-Control", "no-store"),
            ("Referrer-Policy", "no-referrer"),
            ("X-Content-Type-Options", "nosniff"),
        ];
        for (name, value) in headers.into_iter().filter(|(_, value)| !value.is_empty()) {
            if let Ok(header) = Header::from_bytes(name, value) {
                response.add_header(header);
            }
        }
        // Whoever has gone needs no answer.
        let sent = request.respond(response).is_ok();
        if status == 200 && (kind == REPORT || kind == LAST) && sent {
            self.ending.lock().unwrap_or_else(PoisonError::into_inner).fetched = true;
            self.fetched.notify_all();
        }
    }

    /// Status, kind and body of the answer.
    fn find(&self, request: &Request) -> (u16, &'static str, Vec<u8>) {
        let text = |status, words: &str| (status, "text/plain; charset=utf-8", words.into());
        // A name that a foreign page has made to mean this machine is not one of its own.
        let host = request.headers().iter().find(|header| header.field.equiv("Host"));
        if !host.is_some_and(|host| self.hosts.iter().any(|own| host.value.as_str() == own)) {
            return text(403, "refused: this page is at 127.0.0.1\n");
        }
        let path = request.url().split('?').next().unwrap_or("");
        let Some((token, rest)) = path.strip_prefix('/').and_then(|path| path.split_once('/')) else {
            return text(403, "refused: the address lacks its token\n");
        };
        if !same(token, &self.token) {
            return text(403, "refused: the address has a wrong token\n");
        }
        match (request.method(), rest) {
            (Method::Get, "") => (200, PAGE, self.page.clone().into()),
            (Method::Get, "data") => {
                let (end, news) = self.news();
                (200, if end == End::Stopped { LAST } else { "application/json" }, news.into())
            }
            (Method::Post, "stop") => {
                self.live.wish_to_stop();
                *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = None;
                text(200, "stopping\n")
            }
            (Method::Post, "keep") => {
                self.live.wish_to_keep();
                text(200, "every run keeps a checkpoint at its next evaluation\n")
            }
            (Method::Get, "report.html") => {
                let ending = self.ending.lock().unwrap_or_else(PoisonError::into_inner);
                match ending.end {
                    // It has a policy of its own.
                    End::Report => (200, REPORT, ending.report.clone()),
                    _ => text(404, "the run goes on; its report comes at the end\n"),
                }
            }
            (_, "" | "data" | "stop" | "keep" | "report.html") => text(405, "not this way\n"),
            _ => text(404, "there is no such page\n"),
        }
    }

    /// The news, made anew where the last ones are old or those of the end come, and how the run has ended.
    fn news(&self) -> (End, String) {
        let end = {
            let mut ending = self.ending.lock().unwrap_or_else(PoisonError::into_inner);
            ending.asked = Some(Instant::now());
            ending.end
        };
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let news = match &*kept {
            Some((made, hold, news)) if end == End::Open && made.elapsed() < *hold => news.clone(),
            last => {
                let pause = last.as_ref().map_or(PAUSE, |(_, hold, _)| *hold);
                let began = Instant::now();
                let news = self.live.news(end, pause);
                let hold = (began.elapsed() * SHARE).clamp(PAUSE, LONGEST);
                *kept = Some((began, hold, news.clone()));
                news
            }
        };
        (end, news)
    }
}

/// The kinds of the page and of the report, the same for a browser.
const PAGE: &str = "text/html; charset=utf-8";
const REPORT: &str = "text/html;charset=utf-8";
/// The kind of news after which a page asks no more.
const LAST: &str = "application/json;charset=utf-8";

/// Whether two texts are the same, in a time that does not tell where they differ.
fn same(one: &str, other: &str) -> bool {
    one.len() == other.len() && one.bytes().zip(other.bytes()).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

fn page(live: &Live, folder: &Path, nonce: &str) -> Result<String> {
    let wrong = "the live page's template is wrong";
    let mut environment = Environment::new();
    environment.add_template("page.html", include_str!("page.html")).context(wrong)?;
    let template = environment.get_template("page.html").context(wrong)?;
    let known = live.known();
    let manifest = &known.manifest;
    let figures = manifest.figures.iter().map(|figure| {
        context! { name => figure.name.as_str(), caption => caption(figure, manifest) }
    });
    let warnings = manifest
        .series
        .iter()
        .flat_map(|series| series.warnings.iter().map(|warning| format!("{}: {warning}", series.label)));
    let count = manifest.seeds.len();
    let page = template.render(context! {
        title => if manifest.title.is_empty() { manifest.name.as_str() } else { manifest.title.as_str() },
        name => manifest.name.as_str(),
        seeds => format!("{count} seed{}", if count == 1 { "" } else { "s" }),
        folder => folder.display().to_string(),
        metric => manifest.figures.first().map_or_else(String::new, |figure| words::column(&figure.y)),
        figures => figures.collect::<Vec<_>>(),
        warnings => warnings.collect::<Vec<_>>(),
        nonce,
        style => Value::from_safe_string(STYLE.into()),
        script => Value::from_safe_string(SCRIPT.into()),
    });
    page.context(wrong)
}
