//! `dibo completions` and `dibo man`: the command as shells and `man` want to know it.
use anyhow::{Context, Result};
use clap::CommandFactory;
use dibo_run::say;
use std::path::PathBuf;

/// Prints what a shell needs to complete words.
pub fn completions(name: &str, shell: clap_complete::Shell) -> Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut crate::Cli::command(), name, &mut text);
    say!("{}", String::from_utf8_lossy(&text).trim_end());
    Ok(())
}

/// Prints the manual page, or writes it with one page a subcommand into a folder.
pub fn man(folder: Option<PathBuf>) -> Result<()> {
    let command = crate::Cli::command().name("dibo");
    let Some(folder) = folder else {
        let mut text = Vec::new();
        clap_mangen::Man::new(command).render(&mut text)?;
        say!("{}", String::from_utf8_lossy(&text).trim_end());
        return Ok(());
    };
    let fail = || format!("cannot write {}", folder.display());
    std::fs::create_dir_all(&folder).with_context(fail)?;
    clap_mangen::generate_to(command, &folder).with_context(fail)?;
    say!("{}: `man -M` wants them in a folder man1", folder.display());
    Ok(())
}
