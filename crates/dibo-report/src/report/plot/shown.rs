//! What a figure shows, as values for the page's script; the curves themselves it finds by their series.
use super::bars::measured;
use super::look::{Look, panels};
use super::points::{Across, groups};
use super::{average, divergence, later, words};
use crate::results::{Curves, Figure, Manifest};
use anyhow::Result;
use serde::Serialize;

/// A figure with its panels.
#[derive(Serialize)]
pub struct Shown {
    name: String,
    kind: String,
    x: String,
    y: String,
    y2: Option<String>,
    log: String,
    from: usize,
    /// The vertical axis in words, without a unit that depends on the size.
    label: String,
    /// The setting along the axis, and the places' names where it is no number.
    across: Option<(String, Option<Vec<String>>)>,
    panels: Vec<Part>,
}

/// A panel.
#[derive(Serialize)]
struct Part {
    title: Option<String>,
    items: Vec<Item>,
}

/// A line along a run (`series`), points along a setting (`x`), or a bar.
#[derive(Serialize)]
struct Item {
    label: String,
    colour: usize,
    dashes: usize,
    offset: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    series: Option<usize>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    x: Vec<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    y: Vec<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    low: Vec<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    high: Vec<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    runs: Vec<f64>,
}

impl Item {
    fn new(label: String, look: Look) -> Self {
        let (x, y, low, high, runs) = Default::default();
        let (colour, dashes, offset) = (look.colour, look.dashes, look.offset());
        Item { label, colour, dashes, offset, series: None, x, y, low, high, runs }
    }
}

/// What a figure shows; an error says why it cannot.
pub fn shown(figure: &Figure, manifest: &Manifest, curves: &Curves) -> Result<Shown> {
    let panels = panels(figure, manifest)?;
    let across = match figure.kind.as_str() {
        "points" => Some(Across::new(figure, manifest, &panels)?),
        _ => None,
    };
    let mut bars = measured(figure, manifest, &panels).into_iter();
    let parts = panels.iter().map(|panel| {
        let label = |index: usize, label: &str| {
            let (lost, all) = average::diverged(manifest, index);
            format!("{label}{}", divergence(lost, all))
        };
        let bars = bars.next().unwrap_or_default();
        let items = match &across {
            Some(across) => {
                let at = |index| across.at(index);
                let groups = groups(figure, manifest, panel, &at, (false, false)).into_iter();
                let named = |(look, points): (Look, Vec<average::Point>)| {
                    let same: Vec<_> = panel.series.iter().filter(|member| member.look == look).collect();
                    let (lost, all) = same.iter().fold((0, 0), |(lost, all), member| {
                        let (more, of) = average::diverged(manifest, member.index);
                        (lost + more, all + of)
                    });
                    let name = same.first().map_or("", |member| &member.label);
                    let mut item = Item::new(format!("{name}{}", divergence(lost, all)), look);
                    item.x = points.iter().map(|point| point.x).collect();
                    item.y = points.iter().map(|point| point.y).collect();
                    item.low = points.iter().map(|point| point.low).collect();
                    item.high = points.iter().map(|point| point.high).collect();
                    item
                };
                groups.map(named).collect()
            }
            None if figure.kind == "bar" => bars
                .into_iter()
                .map(|bar| Item { y: vec![bar.middle.y], runs: bar.runs, ..Item::new(bar.name, bar.look) })
                .collect(),
            None => panel
                .series
                .iter()
                .map(|member| Item {
                    series: Some(member.index),
                    ..Item::new(label(member.index, &member.label), member.look)
                })
                .collect(),
        };
        Part { title: panel.title.clone(), items }
    });
    let panels = parts.collect();
    Ok(Shown {
        name: figure.name.clone(),
        kind: figure.kind.clone(),
        x: figure.x.clone(),
        y: figure.y.clone(),
        y2: figure.y2.clone(),
        log: figure.log.clone(),
        from: if later(figure, curves) { figure.from } else { 0 },
        label: words::label(manifest, &figure.y),
        across: across.map(|a| (words::symbol(a.key), (!a.numbers).then(|| a.names()))),
        panels,
    })
}
