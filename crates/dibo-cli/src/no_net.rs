//! The commands of the network in a `dibo` that was built without it: they say how to build it.
use anyhow::{Result, bail};
use std::process::ExitCode;

/// Whatever was given.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct Anything {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    _given: Vec<String>,
}

pub type AgentOptions = Anything;
pub type GatherOptions = Anything;
pub type LaunchOptions = Anything;
pub type CertificateOptions = Anything;
pub type RouterOptions = Anything;

pub fn absent(_: Anything) -> Result<ExitCode> {
    bail!(
        "this dibo was built without the network; build one with it: cargo build --release -p dibo-cli \
        --features net (some minutes)"
    )
}

pub use absent as agent;
pub use absent as gather;
pub use absent as launch;
pub use absent as certificates;
pub use absent as router;
