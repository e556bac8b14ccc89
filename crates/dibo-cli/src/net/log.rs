//! What a process of a network says on standard error: lines for people or JSON for programs, its own and
//! Zenoh's.
use std::io::{Result, Write};
use std::sync::Once;
use tracing_subscriber::EnvFilter;

/// How lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Form {
    Lines,
    Json,
}

/// Zenoh's own lines: what it warns of, but for what is meant so (there is no gossip) or said better here.
const USUAL: &str = "info,zenoh=warn,zenoh_link_tls=warn,zenoh_transport=error,zenoh::net::routing=error";

/// Begins to log; `RUST_LOG` chooses levels.
pub fn begin(form: Form) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(USUAL));
        let base = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_target(false);
        let base = base.with_writer(|| Better(Vec::new()));
        // Another that was begun before, by a program that uses this as a library, is as good.
        let _ = match form {
            Form::Json => base.json().try_init(),
            Form::Lines => base.with_timer(tracing_subscriber::fmt::time::uptime()).try_init(),
        };
    });
}

/// Puts right what Zenoh gets wrong: it takes every connection that fails for a lack of open files.
struct Better(Vec<u8>);

impl Write for Better {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

impl Drop for Better {
    fn drop(&mut self) {
        let text = String::from_utf8_lossy(&self.0);
        // Somebody looked whether this process is there.
        if text.contains("handshake eof") {
            return;
        }
        let said = text.replace(
            "Hint: increase the system open file limit.",
            "A connection was refused: the other side has no certificate of this authority, or one that has \
            expired or is for another host.",
        );
        // Whoever does not listen misses it.
        let _ = std::io::stderr().write_all(said.as_bytes());
    }
}
