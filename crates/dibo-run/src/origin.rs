//! Where results come from: the command line and the commit, for their manifest.
use std::cell::RefCell;
use std::sync::OnceLock;

thread_local! {
    static COMMAND: RefCell<Option<String>> = const { RefCell::new(None) };
}
static COMMIT: OnceLock<String> = OnceLock::new();

/// The command line that this thread follows from now on.
pub fn set_command(words: impl IntoIterator<Item = String>) {
    let line: Vec<String> = words.into_iter().map(|word| dibo_report::report::quoted(&word)).collect();
    COMMAND.with(|command| *command.borrow_mut() = Some(line.join(" ")));
}

/// The command line, where there is one.
pub fn command() -> Option<String> {
    COMMAND.with(|command| command.borrow().clone())
}

/// The commit that this program was built of.
pub fn set_commit(commit: &str) {
    let _ = COMMIT.set(commit.into());
}

/// The commit, where it is known.
pub fn commit() -> Option<String> {
    COMMIT.get().cloned()
}
