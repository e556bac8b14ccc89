//! The commands of the network in a `dibo` that was built without it: they say how to build it.
use anyhow::{Result, bail};
use dibo_run::Registry;
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
pub type StatusOptions = Anything;

fn absent() -> Result<ExitCode> {
    bail!(
        "this dibo was built without the network; build one with it: cargo build --release -p dibo-cli \
        --features net (some minutes)"
    )
}

pub fn agent(_: &Registry, _: Anything) -> Result<ExitCode> {
    absent()
}

pub fn launch(_: &Registry, _: Anything) -> Result<ExitCode> {
    absent()
}

pub fn gather(_: &Registry, _: Anything) -> Result<ExitCode> {
    absent()
}

pub fn status(_: &Registry, _: Anything) -> Result<ExitCode> {
    absent()
}

pub fn certificates(_: Anything) -> Result<ExitCode> {
    absent()
}

pub fn router(_: Anything) -> Result<ExitCode> {
    absent()
}
