//! Pictures, as SVG and PNG. The only room that knows the plotting crate (kuva).
mod axis;
mod bars;
mod graphs;
mod lines;
mod look;
mod picture;
mod points;
mod shown;

use super::{average, words};
use crate::results::{Curves, Figure, Manifest};
use anyhow::{Result, bail};
pub use graphs::{Edges, graphs, heat_map};
use look::{Member, Panel, panels};
use picture::Entry;
pub use picture::Picture;
pub use shown::{Shown, shown};

const FONT: u32 = 13;
/// Mean width of a letter, in font sizes; kuva keeps its own text measure private.
const LETTER: f64 = 0.6;

/// Draws a figure of the experiment file; an error says why there is nothing to draw.
pub fn draw(figure: &Figure, manifest: &Manifest, curves: &Curves) -> Result<Picture> {
    let panels = panels(figure, manifest)?;
    match figure.kind.as_str() {
        // A run shortened to less than that is shown whole.
        "line" if later(figure, curves) => {
            let rows = curves.rows.iter().filter(|row| row.iteration >= figure.from).cloned().collect();
            lines::lines(figure, manifest, &Curves { metrics: curves.metrics.clone(), rows }, &panels)
        }
        "line" => lines::lines(figure, manifest, curves, &panels),
        "bar" => bars::bars(figure, manifest, &panels),
        "points" => points::points(figure, manifest, &panels),
        "graphs" => bail!("the topology picture is drawn while the experiment runs"),
        other => bail!("unknown kind of figure `{other}`; allowed are line, bar, points, graphs"),
    }
}

/// Whether the figure leaves out a beginning.
fn later(figure: &Figure, curves: &Curves) -> bool {
    figure.from > 0 && curves.rows.iter().any(|row| row.iteration > figure.from)
}

fn divergence(lost: usize, all: usize) -> String {
    match lost {
        0 => String::new(),
        lost if lost == all => " (diverges)".into(),
        lost => format!(" ({lost}/{all} diverge)"),
    }
}

fn legend(manifest: &Manifest, panels: &[Panel]) -> Vec<Entry> {
    let mut found: Vec<(&Member, usize, usize)> = Vec::new();
    for member in panels.iter().flat_map(|panel| &panel.series) {
        let (lost, all) = average::diverged(manifest, member.index);
        match found.iter_mut().find(|(known, ..)| known.label == member.label) {
            Some((_, losts, alls)) => (*losts, *alls) = (*losts + lost, *alls + all),
            None => found.push((member, lost, all)),
        }
    }
    let entry = |(member, lost, all): (&Member, usize, usize)| Entry {
        label: format!("{}{}", member.label, divergence(lost, all)),
        colour: member.look.colour().into(),
        dashes: member.look.style().dasharray(),
        mark: Some(member.look.marker()),
    };
    found.into_iter().map(entry).collect()
}
