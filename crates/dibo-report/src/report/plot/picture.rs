//! A picture as SVG and PNG, with panels side by side and one legend under them.
use super::look::Panel;
use super::{FONT, LETTER};
use crate::results::write_file;
use anyhow::{Context, Result, anyhow};
use kuva::backend::{raster::RasterBackend, svg::SvgBackend};
use kuva::plot::scatter::MarkerShape;
use kuva::render::color::Color;
use kuva::render::layout::Layout;
use kuva::render::plots::Plot;
use kuva::render::render::{PathData, Primitive, Scene, TextAnchor};
use std::path::Path;

/// A finished picture.
pub struct Picture {
    /// As text.
    pub svg: String,
    scene: Scene,
}

impl Picture {
    /// The bytes of a PNG file, in pixels twice the SVG's size.
    pub fn png(&self) -> Result<Vec<u8>> {
        let mut scene = Scene::new(self.scene.width, self.scene.height);
        scene.background_color = self.scene.background_color.clone();
        scene.text_color = self.scene.text_color.clone();
        scene.font_family = self.scene.font_family.clone();
        for element in &self.scene.elements {
            match element {
                Primitive::PolyLine { points, stroke, stroke_width, stroke_dasharray: Some(dashes) } => {
                    for points in dashed(points, dashes, *stroke_width) {
                        scene.add(Primitive::PolyLine {
                            points,
                            stroke: stroke.clone(),
                            stroke_width: *stroke_width,
                            stroke_dasharray: None,
                        });
                    }
                }
                other => scene.add(other.clone()),
            }
        }
        RasterBackend::new()
            .with_scale(2.0)
            .render_scene(&scene)
            .map_err(|error| anyhow!("cannot draw the PNG: {error}"))
    }

    /// Writes `plots/NAME.svg` and `plots/NAME.png` in the folder.
    pub fn save(&self, dir: &Path, name: &str) -> Result<()> {
        let plots = dir.join("plots");
        std::fs::create_dir_all(&plots).with_context(|| format!("cannot make {}", plots.display()))?;
        write_file(&plots.join(format!("{name}.svg")), self.svg.as_bytes())?;
        write_file(&plots.join(format!("{name}.png")), &self.png()?)
    }
}

/// Cuts a line into its dashes. Kuva's PNG begins the pattern anew at each point, so that a line of many
/// points has no gaps, and it rounds each end, which `width` makes up for.
fn dashed(points: &[(f64, f64)], pattern: &str, width: f64) -> Vec<Vec<(f64, f64)>> {
    let lengths: Vec<f64> = pattern
        .split_whitespace()
        .filter_map(|part| part.parse().ok())
        .filter(|length| *length > 0.0)
        .collect();
    if lengths.len() < 2 || !lengths.len().is_multiple_of(2) {
        return vec![points.to_vec()];
    }
    let length = |index: usize| {
        let length = lengths[index % lengths.len()];
        if index.is_multiple_of(2) { (length - width).max(0.1) } else { length + width }
    };
    let (mut pieces, mut piece) = (Vec::new(), points.first().map(|point| vec![*point]).unwrap_or_default());
    let (mut index, mut left) = (0_usize, length(0));
    for pair in points.windows(2) {
        let ((x0, y0), (x1, y1)) = (pair[0], pair[1]);
        let total = (x1 - x0).hypot(y1 - y0);
        let mut done = 0.0;
        while total - done > left {
            done += left;
            let at = (x0 + (x1 - x0) * done / total, y0 + (y1 - y0) * done / total);
            if index.is_multiple_of(2) {
                piece.push(at);
                pieces.push(std::mem::take(&mut piece));
            } else {
                piece = vec![at];
            }
            index += 1;
            left = length(index);
        }
        left -= total - done;
        if index.is_multiple_of(2) {
            piece.push((x1, y1));
        }
    }
    pieces.push(piece);
    pieces.retain(|piece| piece.len() > 1);
    pieces
}

/// One entry of the legend.
pub(super) struct Entry {
    pub(super) label: String,
    pub(super) colour: String,
    pub(super) dashes: Option<String>,
    pub(super) mark: Option<MarkerShape>,
}

pub(super) fn layout(panel: &Panel, x: (f64, f64), y: (f64, f64)) -> Layout {
    let mut layout =
        Layout::new(x, y).with_label_size(FONT + 1).with_tick_size(FONT - 1).with_title_size(FONT + 2);
    layout.theme.grid_color = "#e6e6e6".into();
    layout.theme.axis_color = "#333".into();
    layout.theme.tick_color = "#333".into();
    layout.theme.text_color = "#111".into();
    match &panel.title {
        Some(title) => layout.with_title(title),
        None => layout,
    }
}

/// Panels side by side (three in a row), with one legend under them.
pub(super) fn arrange(
    panels: &[Panel],
    cells: Vec<(Vec<Plot>, Vec<Plot>)>,
    mut layout: impl FnMut(&Panel, bool, bool) -> Layout,
    entries: &[Entry],
    height: f64,
) -> Result<Picture> {
    let columns = panels.len().clamp(1, 3);
    let rows = panels.len().div_ceil(columns);
    let width = [640.0, 470.0, 400.0][columns - 1];
    let layouts = panels
        .iter()
        .enumerate()
        .map(|(at, panel)| layout(panel, at % columns == 0, at % columns + 1 == columns))
        .collect();
    let mut figure = kuva::render::figure::Figure::new(rows, columns)
        .with_cell_size(width, height)
        .with_spacing(6.0)
        .with_padding(6.0);
    let mut plain = Vec::new();
    for (index, (primary, secondary)) in cells.into_iter().enumerate() {
        if secondary.is_empty() {
            plain.push(primary);
        } else {
            plain.push(Vec::new());
            figure = figure.with_twin_y_plots(index, primary, secondary);
        }
    }
    figure = figure.with_structure((0..rows * columns).take(panels.len()).map(|cell| vec![cell]).collect());
    let mut scene = figure.with_plots(plain).with_layouts(layouts).render();
    add_legend(&mut scene, entries);
    Ok(finish(scene))
}

/// Kuva puts a figure's legend in one tall column; here it runs in rows under the panels.
pub(super) fn add_legend(scene: &mut Scene, entries: &[Entry]) {
    const SWATCH: f64 = 34.0;
    const GAP: f64 = 20.0;
    let size = f64::from(FONT);
    let width = |entry: &Entry| SWATCH + 6.0 + entry.label.chars().count() as f64 * size * LETTER + GAP;
    let widths = |columns: usize| -> Vec<f64> {
        (0..columns)
            .map(|column| entries.iter().skip(column).step_by(columns).map(width).fold(0.0, f64::max))
            .collect()
    };
    // As many columns as fit, but no more than rows of nearly the same length need.
    let fits = |columns: &usize| *columns == 1 || widths(*columns).iter().sum::<f64>() <= scene.width - 16.0;
    let columns = (1..=entries.len().min(6)).rev().find(fits).unwrap_or(1);
    let rows = entries.len().div_ceil(columns);
    let columns = entries.len().div_ceil(rows.max(1)).max(1);
    let widths = widths(columns);
    let left = ((scene.width - widths.iter().sum::<f64>() + GAP) / 2.0).max(8.0);
    let top = scene.height + 4.0;
    for (index, entry) in entries.iter().enumerate() {
        let x = left + widths[..index % columns].iter().sum::<f64>();
        let y = top + (index / columns) as f64 * size * 1.6 + size * 0.5;
        let (stroke, stroke_dasharray) = (Color::from(&entry.colour), entry.dashes.clone());
        scene.add(Primitive::PolyLine {
            points: vec![(x, y), (x + SWATCH, y)],
            stroke,
            stroke_width: 2.0,
            stroke_dasharray,
        });
        if let Some(shape) = entry.mark {
            scene.add(mark(shape, (x + SWATCH / 2.0, y), 4.0, &entry.colour));
        }
        scene.add(text(x + SWATCH + 6.0, y + size * 0.36, &entry.label, TextAnchor::Start));
    }
    if rows > 0 {
        scene.height = top + rows as f64 * size * 1.6 + 8.0;
    }
}

pub(super) fn text(x: f64, y: f64, content: &str, anchor: TextAnchor) -> Primitive {
    Primitive::Text {
        x,
        y,
        content: content.into(),
        size: FONT,
        anchor,
        rotate: None,
        bold: false,
        color: None,
    }
}

/// One mark.
fn mark(shape: MarkerShape, (x, y): (f64, f64), r: f64, colour: &str) -> Primitive {
    let corners = |corners: &[(f64, f64)]| {
        let at = corners.iter().map(|(dx, dy)| format!("{:.2} {:.2}", x + dx * r, y + dy * r));
        format!("M {} Z", at.collect::<Vec<_>>().join(" L "))
    };
    let stroke = |a: f64, b: f64, c: f64, d: f64| {
        let at = |dx: f64, dy: f64| format!("{:.2} {:.2}", x + dx * r, y + dy * r);
        format!("M {} L {} M {} L {}", at(-a, -b), at(a, b), at(-c, -d), at(c, d))
    };
    let d = match shape {
        MarkerShape::Circle => {
            return Primitive::Circle {
                cx: x,
                cy: y,
                r,
                fill: Color::from(colour),
                fill_opacity: None,
                stroke: None,
                stroke_width: None,
            };
        }
        MarkerShape::Square => corners(&[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)]),
        MarkerShape::Diamond => corners(&[(0.0, -1.2), (1.2, 0.0), (0.0, 1.2), (-1.2, 0.0)]),
        MarkerShape::Triangle => corners(&[(0.0, -1.1), (1.1, 0.9), (-1.1, 0.9)]),
        MarkerShape::TriangleDown => corners(&[(0.0, 1.1), (1.1, -0.9), (-1.1, -0.9)]),
        MarkerShape::Cross => stroke(0.9, 0.9, 0.9, -0.9),
        _ => stroke(1.1, 0.0, 0.0, 1.1),
    };
    let line = matches!(shape, MarkerShape::Cross | MarkerShape::Plus);
    Primitive::Path(Box::new(PathData {
        d,
        fill: (!line).then(|| Color::from(colour)),
        stroke: if line { Color::from(colour) } else { Color::None },
        stroke_width: if line { 2.0 } else { 0.0 },
        opacity: None,
        stroke_dasharray: None,
    }))
}

/// A straight thin line.
pub(super) fn rule(from: (f64, f64), to: (f64, f64), colour: &str) -> Primitive {
    Primitive::PolyLine {
        points: vec![from, to],
        stroke: Color::from(colour),
        stroke_width: 1.0,
        stroke_dasharray: None,
    }
}

pub(super) fn finish(scene: Scene) -> Picture {
    let svg = SvgBackend::new().render_scene(&scene);
    // Kuva leaves the view box out, and without it a page cannot scale the picture.
    let svg = svg.replacen(
        "<svg ",
        &format!("<svg viewBox=\"0 0 {} {}\" ", scene.width.ceil(), scene.height.ceil()),
        1,
    );
    Picture { svg, scene }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dashes_run_on_over_many_points() {
        let points: Vec<(f64, f64)> = (0..=100).map(|x| (f64::from(x), 0.0)).collect();
        let pieces = dashed(&points, "8 2", 1.0);
        assert_eq!(pieces.len(), 10);
        assert_eq!((pieces[1][0].0, pieces[1][pieces[1].len() - 1].0), (10.0, 17.0));
        assert_eq!(dashed(&points[..2], "", 1.0).len(), 1);
        assert!(dashed(&[], "8 2", 1.0).is_empty());
    }
}
