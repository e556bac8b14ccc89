//! `report`: the plots and the page of a results folder made again, or several folders side by side.
use crate::run;
use anyhow::{Result, ensure};
use dibo_report::report::compare::{self, Part};
use dibo_report::results::{Curves, Manifest, verify, write_checksums};
use dibo_run::{Registry, say};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Which folders.
#[derive(clap::Args)]
pub struct Options {
    /// A folder that `run` made; several are compared on one page
    #[arg(required = true, value_name = "FOLDER")]
    folders: Vec<PathBuf>,
    /// Folder for the page that compares [default: results/compare-A-B]
    #[arg(long)]
    out: Option<PathBuf>,
}

/// Makes the page of one folder again, or one that compares several.
pub fn report(registry: &Registry, options: &Options) -> Result<ExitCode> {
    for folder in &options.folders {
        for damaged in verify(folder)? {
            // What is drawn from the rest is made anew; numbers are not.
            let drawn = ["report.html", "claims.csv", "plots/"].iter().any(|made| damaged.contains(made));
            ensure!(drawn, "{damaged}: the runs in it must be done again");
            if options.folders.len() == 1 {
                say!("{damaged}: made anew");
            }
        }
    }
    if let [folder] = &options.folders[..] {
        ensure!(options.out.is_none(), "--out is for the page that compares; a folder's own page lies in it");
        let manifest = Manifest::read(folder)?;
        let curves = Curves::read_csv(&folder.join("curves.csv"))?;
        run::finish(registry, folder, &manifest, &curves)?;
        write_checksums(folder)?;
        return Ok(ExitCode::SUCCESS);
    }
    let parts = Part::read(&options.folders)?;
    let names: Vec<String> = parts.iter().map(|part| part.name.replace(['/', ' ', '(', ')'], "-")).collect();
    let default = || Path::new("results").join(format!("compare-{}", names.join("-")));
    let out = options.out.clone().unwrap_or_else(default);
    let page = compare::write(&out, &parts)?;
    say!("{} folders side by side; report: {}", parts.len(), page.display());
    Ok(ExitCode::SUCCESS)
}
