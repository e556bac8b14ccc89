//! Lines along a run with their bands.
use super::average::{self, Point};
use super::axis::Axis;
use super::legend;
use super::look::{Look, Member, Panel};
use super::picture::{Entry, Picture, arrange, layout};
use crate::results::{Curves, Figure, Manifest};
use anyhow::{Result, anyhow, bail};
use kuva::plot::scatter::ScatterPlot;
use kuva::plot::{LinePlot, LineStyle};
use kuva::render::plots::Plot;

const MOST_POINTS: usize = 300;
/// Marks along a line that spans the picture.
const MARKS: usize = 6;
/// Values of a diverging run beyond this are not drawn.
const CAP: f64 = 1e6;

/// A line ready to draw, and whether all its runs diverged.
pub(super) struct Drawn {
    line: Vec<Point>,
    look: Look,
    lost: bool,
}

/// The median lines of one metric, panel by panel, fit for their axes.
pub(super) fn load(
    figure: &Figure,
    manifest: &Manifest,
    curves: &Curves,
    panels: &[Panel],
    name: &str,
    log_y: bool,
) -> Vec<Vec<Drawn>> {
    let log_x = figure.log.contains('x');
    let one = |member: &Member| {
        let mut line = average::median_line(manifest, curves, member.index, &figure.x, name);
        if log_y {
            line = average::positive(line);
        }
        line.retain(|point| !log_x || point.x > 0.0);
        let x: Vec<f64> = line.iter().map(|point| point.x).collect();
        let line: Vec<Point> =
            average::thin(&x, MOST_POINTS, log_x).into_iter().map(|index| line[index]).collect();
        let (lost, all) = average::diverged(manifest, member.index);
        Drawn { line, look: member.look, lost: all > 0 && lost == all }
    };
    let mut loaded: Vec<Vec<_>> = panels.iter().map(|panel| panel.series.iter().map(one).collect()).collect();
    trim(&mut loaded, log_y);
    loaded
}

/// One line with its band and a few marks, whose shape tells it apart where colours do not; or one mark where
/// it has one point.
pub(super) fn one_line(drawn: &Drawn, x_axis: &Axis, axis: &Axis, dotted: bool) -> Vec<Plot> {
    let (line, colour) = (&drawn.line, drawn.look.colour());
    let at: Vec<(f64, f64)> = line.iter().map(|point| (x_axis.place(point.x), axis.place(point.y))).collect();
    let marks = |at: Vec<(f64, f64)>| {
        let dots = ScatterPlot::new().with_data(at).with_color(colour).with_size(4.0);
        Plot::Scatter(dots.with_marker(drawn.look.marker()))
    };
    if let [only] = at[..] {
        return vec![marks(vec![only])];
    }
    let mut plot = LinePlot::new().with_data(at.clone()).with_color(colour).with_stroke_width(2.0);
    if dotted {
        return vec![Plot::Line(plot.with_line_style(LineStyle::Custom("2 3".into())))];
    }
    plot = plot.with_line_style(drawn.look.style());
    if line.iter().any(|point| point.high > point.low) {
        let (low, high) = (line.iter().map(|p| axis.place(p.low)), line.iter().map(|p| axis.place(p.high)));
        plot = plot.with_band(low, high);
        plot.band = plot.band.map(|band| band.with_opacity(0.18));
    }
    vec![Plot::Line(plot), marks(spaced(&at, x_axis, drawn.look.offset()))]
}

/// A few points of a line, evenly along the axis; the first a part of a step away from its beginning, so that
/// marks of several lines do not cover each other.
fn spaced(at: &[(f64, f64)], axis: &Axis, offset: f64) -> Vec<(f64, f64)> {
    let along = |x: f64| if axis.log { x.ln() } else { x };
    let (low, high) = (along(axis.range.0), along(axis.range.1));
    let wanted = (0..MARKS).map(|nth| low + (high - low) * (nth as f64 + offset) / MARKS as f64);
    let mut kept: Vec<usize> = Vec::new();
    for wanted in wanted {
        let near = at.partition_point(|(x, _)| along(*x) < wanted);
        // A line that ends before has no mark there.
        if near < at.len() && !kept.contains(&near) {
            kept.push(near);
        }
    }
    kept.into_iter().map(|index| at[index]).collect()
}

pub(super) fn lines(
    figure: &Figure,
    manifest: &Manifest,
    curves: &Curves,
    panels: &[Panel],
) -> Result<Picture> {
    for name in [Some(&figure.y), figure.y2.as_ref()].into_iter().flatten() {
        if !curves.metrics.contains(name) {
            bail!("there is no metric `{name}`; the run has {}", curves.metrics.join(", "));
        }
    }
    let (log_x, log_y) = (figure.log.contains('x'), figure.log.contains('y'));
    let load = |name: &str, log_y: bool| load(figure, manifest, curves, panels, name, log_y);
    let left = load(&figure.y, log_y);
    let right = figure.y2.as_ref().map(|name| load(name, false));
    let all =
        || left.iter().flatten().chain(right.iter().flatten().flatten()).flat_map(|drawn| drawn.line.iter());
    let edges = |lines: &[Vec<Drawn>]| -> Vec<f64> {
        lines
            .iter()
            .flatten()
            .flat_map(|drawn| drawn.line.iter().flat_map(|point| [point.low, point.high]))
            .collect()
    };
    let none = || anyhow!("`{}` has no value to draw", figure.y);
    let x_axis = Axis::over(all().map(|point| point.x), manifest, &figure.x, log_x).ok_or_else(none)?;
    let y_axis = Axis::over(edges(&left).into_iter(), manifest, &figure.y, log_y).ok_or_else(none)?;
    let y2_axis = match (&right, &figure.y2) {
        (Some(right), Some(name)) => Axis::over(edges(right).into_iter(), manifest, name, false),
        _ => None,
    };
    let cells = left.iter().enumerate().map(|(index, lines)| {
        let primary = lines.iter().flat_map(|drawn| one_line(drawn, &x_axis, &y_axis, false)).collect();
        let secondary = match (&right, &y2_axis) {
            (Some(right), Some(axis)) => {
                right[index].iter().flat_map(|drawn| one_line(drawn, &x_axis, axis, true)).collect()
            }
            _ => Vec::new(),
        };
        (primary, secondary)
    });
    let mut entries = legend(manifest, panels);
    if let Some(axis) = &y2_axis {
        entries.push(Entry {
            label: format!("dotted: {} (right axis)", axis.label),
            colour: "#4D4D4D".into(),
            dashes: Some("2 3".into()),
            mark: None,
        });
    }
    let base = |panel: &Panel, first: bool, last: bool| {
        let mut layout = y_axis.on_y(x_axis.on_x(layout(panel, x_axis.range, y_axis.range)));
        if !x_axis.log {
            // Lines should begin and end at the frame, not at the next round number.
            layout = layout.with_x_axis_min(x_axis.range.0).with_x_axis_max(x_axis.range.1);
        }
        if !first {
            layout.y_label = None;
        }
        if let Some(axis) = &y2_axis {
            layout = layout.with_y2_range(axis.range.0, axis.range.1).with_y2_tick_format(axis.ticks());
            if last {
                layout = layout.with_y2_label(&axis.label);
            }
        }
        layout
    };
    arrange(panels, cells.collect(), base, &entries, 330.0)
}

/// Ends diverging lines a little outside the others, so that they leave the picture and do not squash it.
pub(super) fn trim(panels: &mut [Vec<Drawn>], log: bool) {
    let sound = || panels.iter().flatten().filter(|drawn| !drawn.lost).flat_map(|drawn| drawn.line.iter());
    let finite =
        |values: Vec<f64>| values.into_iter().filter(|value| value.abs() <= CAP).collect::<Vec<f64>>();
    let mut known = finite(sound().flat_map(|point| [point.low, point.high]).collect());
    if known.is_empty() {
        // All diverge: show where they come from, and the way up.
        known = finite(
            panels.iter().flatten().filter_map(|drawn| drawn.line.first().map(|point| point.y)).collect(),
        );
        known.extend(
            known.clone().iter().map(|value| if log { value * 1e3 } else { value + 9.0 * value.abs() }),
        );
    }
    let low = known.iter().copied().fold(f64::INFINITY, f64::min);
    let high = known.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let (low, high) = match (low <= high, log) {
        (false, _) => (-CAP, CAP),
        (true, true) => (0.0, (high * 10.0).min(CAP.max(high))),
        (true, false) => (low - 0.25 * (high - low), high + 0.25 * (high - low)),
    };
    for drawn in panels.iter_mut().flatten() {
        let points = std::mem::take(&mut drawn.line);
        drawn.line = if drawn.lost {
            average::cut(points, low, high)
        } else {
            points.into_iter().filter(|point| point.y.is_finite()).collect()
        };
    }
}
