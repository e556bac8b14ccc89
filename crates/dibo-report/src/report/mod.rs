//! The report of an experiment, made from its results folder alone: plots and one page that needs nothing
//! else.
pub mod average;
pub mod claims;
pub mod memory;
pub mod plot;
mod table;
pub mod words;

use crate::results::{Curves, Figure, Manifest, check_name, write_file};
use anyhow::{Context, Result};
use claims::{Claim, Verdict};
use minijinja::{Environment, HtmlEscape, Value, context};
use std::path::{Path, PathBuf};
pub use table::terminal_table;

/// A part that a task adds to its report, such as a grid of images.
#[derive(Clone, Debug)]
pub struct Extra {
    /// Heading.
    pub title: String,
    /// Content.
    pub body: Body,
}

/// Content of an extra part; all text is escaped.
#[derive(Clone, Debug)]
pub enum Body {
    /// Rows of cells; the first row is the head.
    Table(Vec<Vec<String>>),
    /// A picture as SVG text.
    Svg(String),
}

/// Draws the plots and writes `report.html` into the folder; returns its path.
pub fn write(
    dir: &Path,
    manifest: &Manifest,
    curves: &Curves,
    claims: &[Claim],
    extras: &[Extra],
) -> Result<PathBuf> {
    let path = dir.join("report.html");
    let figures: Vec<Value> =
        manifest.figures.iter().map(|figure| shown(figure, dir, manifest, curves)).collect::<Result<_>>()?;
    let wrong = "the report's template is wrong";
    let mut environment = Environment::new();
    environment.add_template("report.html", include_str!("template.html")).context(wrong)?;
    let template = environment.get_template("report.html").context(wrong)?;
    let (seeds, outcome, machine) = (manifest.seeds.len(), table::outcome(manifest), &manifest.machine);
    let page = template.render(context! {
        title => if manifest.title.is_empty() { manifest.name.as_str() } else { manifest.title.as_str() },
        name => manifest.name.as_str(),
        about => paragraphs(&manifest.about),
        seeds => format!("{seeds} seed{}", if seeds == 1 { "" } else { "s" }),
        head => outcome.head, right => outcome.right, rows => outcome.rows,
        figures,
        claims => claims.iter().map(judged).collect::<Vec<_>>(),
        extras => extras.iter().map(added).collect::<Vec<_>>(),
        warnings => warnings(manifest),
        file => manifest.file.as_str(),
        overrides => manifest.overrides.clone(),
        seed_list => manifest.seeds.iter().map(u64::to_string).collect::<Vec<_>>().join(", "),
        cpu => machine.cpu.as_str(), threads => machine.threads, system => machine.system.as_str(),
        memory => words::quantity("bytes", machine.memory as f64),
        peak => manifest.peak_memory.map(|peak| words::quantity("bytes", peak as f64)),
        seconds => words::quantity("seconds", manifest.seconds),
        started => date(manifest.started),
        version => manifest.version.as_str(),
    });
    write_file(&path, page.context(wrong)?.as_bytes())?;
    Ok(path)
}

/// A figure for the page, drawn and saved; or why it is not drawn.
fn shown(figure: &Figure, dir: &Path, manifest: &Manifest, curves: &Curves) -> Result<Value> {
    check_name("a figure's name", &figure.name)?;
    let (mut picture, mut note) = (None, None);
    if figure.kind == "graphs" {
        // Drawn during the run, since the graphs are not in the results; an image cannot run what a foreign
        // file may hold.
        match std::fs::read(dir.join("plots").join(format!("{}.svg", figure.name))) {
            Ok(svg) => picture = Some(image("svg+xml", &svg)),
            Err(_) => note = Some(format!("Not drawn: plots/{}.svg is missing.", figure.name)),
        }
    } else {
        match plot::draw(figure, manifest, curves) {
            Ok(drawn) => {
                drawn.save(dir, &figure.name)?;
                picture = Some(Value::from_safe_string(drawn.svg));
            }
            Err(error) => note = Some(format!("Not drawn: {error:#}.")),
        }
    }
    let (name, caption) = (figure.name.as_str(), caption(figure, manifest));
    Ok(context! { name, caption, picture, note })
}

/// Each warning with the labels of the series that have it.
fn warnings(manifest: &Manifest) -> Vec<(String, Vec<String>)> {
    let mut warnings: Vec<(String, Vec<String>)> = Vec::new();
    for series in &manifest.series {
        for warning in &series.warnings {
            match warnings.iter_mut().find(|(text, _)| text == warning) {
                Some((_, labels)) => labels.push(series.label.clone()),
                None => warnings.push((warning.clone(), vec![series.label.clone()])),
            }
        }
    }
    warnings
}

/// A claim for the page.
fn judged(claim: &Claim) -> Value {
    let (class, mark) = match &claim.verdict {
        Verdict::Holds => ("yes", "✓"),
        Verdict::DoesNotHold => ("no", "✗"),
        Verdict::HoldsOnlyUnder(_) => ("partly", "◐"),
        Verdict::TooClose => ("unknown", "≈"),
        Verdict::ByConstruction => ("unknown", "="),
        Verdict::OneSeed(_) => ("unknown", "1"),
        Verdict::NotMeasured => ("unknown", "–"),
    };
    let (id, statement, word) = (claim.id.as_str(), claim.statement.as_str(), claim.verdict.words());
    let (number, reading) = (claim.number.as_str(), claim.reading.as_str());
    context! { id, statement, number, reading, class, mark, word }
}

/// An extra part for the page.
fn added(extra: &Extra) -> Value {
    let title = extra.title.as_str();
    match &extra.body {
        Body::Table(rows) => {
            let (head, rows) = (rows.first().cloned(), rows.iter().skip(1).cloned().collect::<Vec<_>>());
            context! { title, head, rows }
        }
        Body::Svg(svg) => context! { title, picture => image("svg+xml", svg.as_bytes()) },
    }
}

fn caption(figure: &Figure, manifest: &Manifest) -> String {
    let mut caption = figure.title.trim().to_string();
    if caption.is_empty() {
        caption = words::label(manifest, &figure.y);
    }
    if !caption.ends_with(['.', '?', '!']) {
        caption.push('.');
    }
    if manifest.seeds.len() > 1 {
        caption += match figure.kind.as_str() {
            "line" => " Lines are means over seeds, bands one standard deviation.",
            "bar" | "points" => " Means over seeds; whiskers are one standard deviation.",
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

/// Paragraphs as HTML; what stands between backticks is code.
fn paragraphs(text: &str) -> Vec<Value> {
    let html = |part: &str| {
        let pieces = part.split('`').enumerate().map(|(i, piece)| match i % 2 {
            0 => HtmlEscape(piece).to_string(),
            _ => format!("<code>{}</code>", HtmlEscape(piece)),
        });
        Value::from_safe_string(pieces.collect())
    };
    text.replace("\r\n", "\n")
        .split("\n\n")
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .map(html)
        .collect()
}

/// An image that lies inside the page.
fn image(kind: &str, bytes: &[u8]) -> Value {
    Value::from_safe_string(format!("<img alt=\"\" src=\"data:image/{kind};base64,{}\">", base64(bytes)))
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
