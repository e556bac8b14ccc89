//! `paper`: the page about the paper, made of kept results.
use crate::peer;
use anyhow::{Context, Result, ensure};
use dibo_paper::kept::{Kept, read_all};
use dibo_paper::zoo::ZooKept;
use dibo_report::report::{Body, Extra};
use dibo_report::results::{Curves, Manifest, verify};
use dibo_run::say;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What to keep and where the page goes.
#[derive(clap::Args)]
pub struct Options {
    /// Keep the results of this folder, which `run` made, in small (may be repeated)
    #[arg(long, value_name = "DIR")]
    keep: Vec<PathBuf>,
    /// The device that the runs of these folders were made on, where their manifests do not say it
    #[arg(long, value_name = "NAME", requires = "keep")]
    device: Option<String>,
    /// Where results are kept
    #[arg(long, default_value = "crates/dibo-paper/kept")]
    kept: PathBuf,
    /// Where the page goes
    #[arg(long, default_value = "docs/paper.md")]
    out: PathBuf,
    /// Where the page of the zoo goes
    #[arg(long, default_value = "docs/zoo.md")]
    zoo: PathBuf,
}

/// Keeps results, then makes the page.
pub fn paper(options: &Options) -> Result<ExitCode> {
    for folder in &options.keep {
        keep(folder, options.device.as_deref(), &options.kept)?;
    }
    let kept = Kept::read_all(&options.kept)
        .map_err(anyhow::Error::msg)
        .context("kept results lie in dibo's repository: run this in its root, or say where with --kept")?;
    let zoo: Vec<ZooKept> = read_all(&options.kept.join("zoo")).map_err(anyhow::Error::msg)?;
    for (path, page, count) in [
        (&options.out, dibo_paper::page::page(&kept), kept.len()),
        (&options.zoo, dibo_paper::zoo::page(&zoo, &kept), zoo.len()),
    ] {
        std::fs::write(path, page).with_context(|| format!("cannot write {}", path.display()))?;
        say!("{} of {count} kept experiments", path.display());
    }
    Ok(ExitCode::SUCCESS)
}

fn keep(folder: &Path, device: Option<&str>, into: &Path) -> Result<()> {
    let damaged = verify(folder)?;
    let numbers = damaged.iter().find(|what| !what.contains("report.html") && !what.contains("plots/"));
    ensure!(numbers.is_none(), "{}: the runs in it must be done again", numbers.cloned().unwrap_or_default());
    let manifest = Manifest::read(folder)?;
    let curves = Curves::read_csv(&folder.join("curves.csv"))?;
    let (path, text) = match ZooKept::of(&manifest, &curves) {
        Some(zoo) => (into.join(format!("zoo/{}.json", manifest.name)), zoo.text()),
        None => {
            let mut kept = Kept::of(&manifest, &curves, device);
            if let Some(Extra { title, body: Body::Table(rows), .. }) = peer::extra(folder)? {
                kept.tables.push((title, rows));
            }
            (into.join(format!("{}.json", manifest.name)), kept.text())
        }
    };
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    say!("kept {}", path.display());
    Ok(())
}
