//! `dibo keys`: what experiment files may hold.
use anyhow::{Result, ensure};
use dibo_run::keys::Reference;
use dibo_run::{Registry, fold, say};
use std::process::ExitCode;

/// What is to be explained, and how.
#[derive(clap::Args)]
pub struct Options {
    /// A section (graph), a kind (cycle), an algorithm (fab) or a key (eta_x); all, as a page in Markdown, if
    /// none is given
    word: Option<String>,
    /// Print the JSON schema that editors take, instead of words
    #[arg(long)]
    schema: bool,
}

/// Prints the reference or a part of it.
pub fn keys(registry: &Registry, options: &Options) -> Result<ExitCode> {
    let reference = Reference::of(registry);
    ensure!(!options.schema || options.word.is_none(), "--schema is of the whole file; leave the word away");
    match &options.word {
        Some(word) => say!("{}", fold(reference.find(word)?.trim_end())),
        None if options.schema => say!("{:#}", reference.schema()),
        None => say!("{}", reference.page().trim_end()),
    }
    Ok(ExitCode::SUCCESS)
}
