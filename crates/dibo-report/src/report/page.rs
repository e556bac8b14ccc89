//! One page that needs nothing else: results and pictures first, with the script that makes its plots lively.
//!
//! Whatever comes from a file is escaped where it stands. Should some of it get past that, the browser would
//! still run no script of it: the page allows the one script that bears its nonce, and a text cannot know the
//! nonce of a page that holds it.
use super::claims::{Claim, Verdict};
use super::data::{Data, ROOM};
use super::{Body, Extra, Place, caption, plot, table, words};
use crate::results::{Curves, Figure, Manifest, check_name};
use anyhow::{Context, Result};
use minijinja::{Environment, HtmlEscape, Value, context};
use std::path::Path;

const TEMPLATE: &str = include_str!("page/report.html");
/// The page's own looks after those of the plots.
pub const STYLE: &str = concat!(include_str!("page/uplot/uPlot.min.css"), include_str!("page/style.css"));
/// The plotting library with its licence, then the page's own script.
pub const SCRIPT: &str = concat!(
    "/*! ",
    include_str!("page/uplot/LICENSE"),
    "*/\n",
    include_str!("page/uplot/uPlot.iife.min.js"),
    "\n(() => {\n\"use strict\";\n",
    include_str!("page/words.js"),
    include_str!("page/chart.js"),
    include_str!("page/figure.js"),
    include_str!("page/page.js"),
    include_str!("page/network.js"),
    include_str!("page/live.js"),
    "})();\n"
);

/// The page of results in the folder `dir`, where its plots are saved. `sources` names the folders that are
/// compared; none for a page about one.
pub fn page(
    dir: &Path,
    manifest: &Manifest,
    curves: &Curves,
    claims: &[Claim],
    extras: &[Extra],
    sources: &[String],
) -> Result<String> {
    let figures: Vec<Value> =
        manifest.figures.iter().map(|figure| shown(figure, dir, manifest, curves)).collect::<Result<_>>()?;
    let wrong = "the report's template is wrong";
    let mut environment = Environment::new();
    environment.add_filter("explained", explained);
    environment.add_template("report.html", TEMPLATE).context(wrong)?;
    let template = environment.get_template("report.html").context(wrong)?;
    let (seeds, machine) = (manifest.seeds.len(), &manifest.machine);
    let mut outcome = table::outcome(manifest);
    // Where a result leads, what the ways to it cost is for the end.
    let leads = extras.iter().any(|extra| extra.place == Place::First);
    let cost = if leads { outcome.cut("time") } else { None };
    let data = Data::new(manifest, curves, ROOM).text();
    let alone = sources.is_empty();
    let page = template.render(context! {
        title => if manifest.title.is_empty() { manifest.name.as_str() } else { manifest.title.as_str() },
        name => manifest.name.as_str(),
        about => paragraphs(&manifest.about),
        seeds => format!("{seeds} seed{}", if seeds == 1 { "" } else { "s" }),
        head => outcome.head, right => outcome.right, rows => outcome.rows,
        cost => cost.map(|cost| context! { head => cost.head, right => cost.right, rows => cost.rows }),
        leads,
        best => manifest.runs.iter().any(|run| run.best.is_some()),
        figures,
        claims => claims.iter().map(judged).collect::<Vec<_>>(),
        extras => extras.iter().map(added).collect::<Vec<_>>(),
        warnings => warnings(manifest),
        file => manifest.file.as_str(),
        overrides => manifest.overrides.clone(),
        seed_list => manifest.seeds.iter().map(u64::to_string).collect::<Vec<_>>().join(", "),
        cpu => machine.device.iter().chain([&machine.cpu]).cloned().collect::<Vec<_>>().join(", "),
        threads => machine.threads, system => machine.system.as_str(),
        memory => words::quantity("bytes", machine.memory as f64),
        peak => manifest.peak_memory.map(|peak| words::quantity("bytes", peak as f64)),
        seconds => words::quantity("seconds", manifest.seconds),
        started => super::date(manifest.started),
        version => manifest.version.as_str(),
        commit => manifest.commit.as_deref(),
        files => if alone { files(manifest) } else { Vec::new() },
        command => if alone { command(manifest) } else { String::new() },
        sources => sources.to_vec(),
        nonce => nonce(&data, manifest),
        style => Value::from_safe_string(STYLE.into()),
        script => Value::from_safe_string(SCRIPT.into()),
        data => Value::from_safe_string(data),
    });
    page.context(wrong)
}

/// What no text inside the page can have known.
fn nonce(data: &str, manifest: &Manifest) -> String {
    let mut hash = blake3::Hasher::new();
    hash.update(data.as_bytes()).update(manifest.file.as_bytes()).update(manifest.about.as_bytes());
    hash.update(manifest.title.as_bytes()).update(&manifest.started.to_le_bytes());
    hash.finalize().to_hex()[..32].into()
}

/// What lies beside the page.
fn files(manifest: &Manifest) -> Vec<String> {
    let plots = manifest
        .figures
        .iter()
        .flat_map(|figure| ["svg", "png"].map(|ending| format!("plots/{}.{ending}", figure.name)));
    ["curves.csv", "curves.parquet", "manifest.json"].map(String::from).into_iter().chain(plots).collect()
}

/// A word as a shell takes it.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.=/:,".contains(c);
    let safe = !word.is_empty() && word.chars().all(plain);
    if safe { word.to_string() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

/// The command that made it, or one that would.
fn command(manifest: &Manifest) -> String {
    if let Some(command) = &manifest.command {
        return command.clone();
    }
    let mut command = format!("dibo run {}", quoted(&manifest.name));
    for change in &manifest.overrides {
        command += &format!(" --set {}", quoted(change));
    }
    if manifest.seeds.iter().copied().eq(0..manifest.seeds.len() as u64) {
        command += &format!(" --seeds {}", manifest.seeds.len());
    }
    command
}

/// A figure for the page, drawn and saved; or why it is not drawn.
fn shown(figure: &Figure, dir: &Path, manifest: &Manifest, curves: &Curves) -> Result<Value> {
    check_name("a figure's name", &figure.name)?;
    let (mut picture, mut note) = (None, None);
    if figure.kind == "graphs" {
        // Drawn during the run, since the graphs are not in the results; an image cannot run what a foreign
        // file may hold.
        match std::fs::read(dir.join("plots").join(format!("{}.svg", figure.name))) {
            Ok(svg) => picture = Some(image("svg+xml", &svg, &figure.title)),
            Err(_) => note = Some(format!("Not drawn: plots/{}.svg is missing.", figure.name)),
        }
    } else {
        match plot::draw(figure, manifest, curves) {
            Ok(drawn) => {
                drawn.save(dir, &figure.name)?;
                // Names inside one picture must not mean parts of another.
                let svg = drawn.svg.replace("kuva-clip-", &format!("{}-clip-", figure.name));
                let label = HtmlEscape(&caption(figure, manifest)).to_string();
                let svg = svg.replacen("<svg ", &format!("<svg role=\"img\" aria-label=\"{label}\" "), 1);
                picture = Some(Value::from_safe_string(svg));
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
    let place = match extra.place {
        Place::First => "first",
        Place::Usual => "usual",
        Place::Last => "last",
    };
    match &extra.body {
        Body::Table(rows) => {
            let (head, rows) = (rows.first().cloned(), rows.iter().skip(1).cloned().collect::<Vec<_>>());
            let columns = head.as_ref().map_or(0, Vec::len);
            let right: Vec<bool> = (0..columns).map(|column| column > 0 && numbers(&rows, column)).collect();
            context! { title, place, head, rows, right }
        }
        Body::Svg(svg) => match cells(svg) {
            Some(cells) => context! { title, place, picture => cells, wraps => true },
            None => context! { title, place, picture => image("svg+xml", svg.as_bytes(), title) },
        },
        Body::Text(text, files) => context! { title, place, text => paragraphs(text), files },
    }
}

/// Whether a column holds numbers, with or without units.
fn numbers(rows: &[Vec<String>], column: usize) -> bool {
    let first = |cell: &str| cell.split(' ').next().is_some_and(|word| word.parse::<f64>().is_ok());
    let number = |cell: &String| cell == "–" || cell.chars().count() < 16 && first(cell);
    let cells = || rows.iter().filter_map(|row| row.get(column)).filter(|cell| !cell.is_empty());
    cells().next().is_some() && cells().all(number)
}

/// A cell whose word says on hover what it means.
fn explained(cell: &str) -> Value {
    let meaning = words::meaning(cell);
    let (cell, meaning) = (HtmlEscape(cell), meaning.map(|text| HtmlEscape(text).to_string()));
    Value::from_safe_string(match meaning {
        Some(meaning) => format!("<abbr title=\"{meaning}\">{cell}</abbr>"),
        None => cell.to_string(),
    })
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

/// A picture that says the size of its cells, as cells that a page can wrap: each is a window on one image,
/// in which nothing runs.
fn cells(svg: &str) -> Option<Value> {
    let numbers = |name: &str| -> Option<Vec<usize>> {
        let words = svg.split('>').next()?.split(name).nth(1)?.split('"').next()?;
        words.split(' ').map(|word| word.parse().ok()).collect()
    };
    let ([0, 0, width, height], [w, h]) = (&numbers("viewBox=\"")?[..], &numbers("data-cell=\"")?[..]) else {
        return None;
    };
    let (columns, rows) = (width.checked_div(*w)?, height.checked_div(*h)?);
    if !(1..=MOST_CELLS).contains(&columns.checked_mul(rows)?) {
        return None;
    }
    let (text, name) = (super::base64(svg.as_bytes()), &blake3::hash(svg.as_bytes()).to_hex()[..8]);
    let mut cells = format!(
        "<svg width=\"0\" height=\"0\" class=\"whole\"><image id=\"i{name}\" width=\"{width}\" \
        height=\"{height}\" href=\"data:image/svg+xml;base64,{text}\"/></svg>"
    );
    for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))) {
        cells += &format!(
            "<svg viewBox=\"{} {} {w} {h}\" aria-hidden=\"true\"><use href=\"#i{name}\"/></svg>",
            column * w,
            row * h
        );
    }
    Some(Value::from_safe_string(cells))
}

/// Cells of a picture that wraps.
const MOST_CELLS: usize = 400;

/// An image that lies inside the page.
fn image(kind: &str, bytes: &[u8], shows: &str) -> Value {
    let (shows, text) = (HtmlEscape(shows), super::base64(bytes));
    Value::from_safe_string(format!("<img alt=\"{shows}\" src=\"data:image/{kind};base64,{text}\">"))
}
