//! The report of an experiment, made from its results folder alone: plots and one page that needs nothing
//! else.
pub mod average;
pub mod claims;
pub mod compare;
pub mod data;
pub mod memory;
pub(crate) mod page;
pub mod plot;
mod table;
pub mod words;

use crate::results::{Curves, Figure, Manifest, write_file};
use anyhow::Result;
use claims::Claim;
pub use page::quoted;
use std::path::{Path, PathBuf};
pub use table::terminal_table;

/// A part that a task adds to its report, such as a grid of images.
#[derive(Clone, Debug)]
pub struct Extra {
    /// Heading.
    pub title: String,
    /// Content.
    pub body: Body,
    /// Where it stands.
    pub place: Place,
}

/// Where a part stands on the page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// It is the result: before anything else. What the runs cost then stands at the end.
    First,
    /// Pictures above the outcome, tables below the figures.
    #[default]
    Usual,
    /// After everything else.
    Last,
}

impl Extra {
    /// A part at its usual place.
    pub fn new(title: impl Into<String>, body: Body) -> Self {
        Extra { title: title.into(), body, place: Place::Usual }
    }

    /// The same part elsewhere.
    pub fn at(self, place: Place) -> Self {
        Extra { place, ..self }
    }
}

/// Content of an extra part; all text is escaped.
#[derive(Clone, Debug)]
pub enum Body {
    /// Rows of cells; the first row is the head.
    Table(Vec<Vec<String>>),
    /// A picture as SVG text. With `data-cell="WIDTH HEIGHT"` it consists of cells of that size, and the page
    /// sets as many of them side by side as there is room for.
    Svg(String),
    /// Paragraphs, in which words between backticks are code, and names of files beside the page.
    Text(String, Vec<String>),
}

/// Draws the plots and writes `report.html` into the folder, and `claims.csv` where there are claims; returns
/// the page's path.
pub fn write(
    dir: &Path,
    manifest: &Manifest,
    curves: &Curves,
    claims: &[Claim],
    extras: &[Extra],
) -> Result<PathBuf> {
    let path = dir.join("report.html");
    if !claims.is_empty() {
        claims::write_csv(&dir.join("claims.csv"), claims)?;
    }
    write_file(&path, page::page(dir, manifest, curves, claims, extras, &[])?.as_bytes())?;
    Ok(path)
}

/// What stands below a figure: its title, how to read its lines, and which way is better.
pub(crate) fn caption(figure: &Figure, manifest: &Manifest) -> String {
    let mut caption = figure.title.trim().to_string();
    if caption.is_empty() {
        caption = words::label(manifest, &figure.y);
    }
    if !caption.ends_with(['.', '?', '!']) {
        caption.push('.');
    }
    if manifest.seeds.len() > 1 {
        caption += match figure.kind.as_str() {
            "line" => " Lines are medians over seeds, bands hold the middle 80 % of them.",
            "bar" => " Medians over seeds; small dots are the seeds.",
            "points" => " Medians over seeds; whiskers hold the middle 80 % of them.",
            _ => "",
        };
    }
    // What a picture of graphs shows is not its metric.
    let metric = words::metric(manifest, &figure.y).filter(|_| figure.kind != "graphs");
    caption += match metric.map_or("", |metric| metric.better.as_str()) {
        "lower" => " Lower is better.",
        "higher" => " Higher is better.",
        _ => "",
    };
    caption
}

/// Bytes as text, for pictures inside a page.
pub fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for part in bytes.chunks(3) {
        let block =
            part.iter().fold(0u32, |block, byte| (block << 8) | u32::from(*byte)) << (8 * (3 - part.len()));
        for index in 0..4 {
            let letter = LETTERS[(block >> (18 - 6 * index)) as usize & 63] as char;
            text.push(if index <= part.len() { letter } else { '=' });
        }
    }
    text
}

/// A day and time in UTC from seconds since 1970 (the civil calendar in 400-year eras of 146097 days).
pub fn date(seconds: u64) -> String {
    let days = (seconds / 86400) as i64 + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02} UTC", seconds / 3600 % 24, seconds / 60 % 60)
}

#[cfg(test)]
mod tests;
