//! Leaves the commit that is built in `DIBO_COMMIT`; nothing where it is not known.
use std::path::Path;
use std::process::Command;

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_string())
}

/// The commit that a package was made of, which cargo writes into it.
fn packaged() -> Option<String> {
    let text = std::fs::read_to_string(".cargo_vcs_info.json").ok()?;
    let after = text.split_once("\"sha1\"")?.1;
    Some(after.split('"').nth(1)?.chars().take(9).collect())
}

/// The commit of this repository's checkout, if this crate is a file of it.
fn checked_out() -> Option<String> {
    git(&["ls-files", "--error-unmatch", "Cargo.toml"])?;
    let commit = git(&["rev-parse", "--short=9", "HEAD"])?;
    let changed = !git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty();
    // Changes with every commit and checkout.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]).filter(|log| Path::new(log).exists()) {
        println!("cargo:rerun-if-changed={log}");
    }
    Some(if changed { format!("{commit} with changes") } else { commit })
}

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if let Some(commit) = packaged().or_else(checked_out) {
        println!("cargo:rustc-env=DIBO_COMMIT={commit}");
    }
}
