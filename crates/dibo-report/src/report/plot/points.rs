//! What each series ends with, against a setting.
use super::average::{self, Point};
use super::axis::Axis;
use super::look::{Look, Member, Panel};
use super::picture::{Picture, arrange, layout};
use super::{FONT, LETTER, legend, words};
use crate::results::{Figure, Manifest};
use anyhow::{Context, Result, anyhow};
use kuva::plot::LinePlot;
use kuva::plot::scatter::ScatterPlot;
use kuva::render::plots::Plot;

/// Points with one look.
pub(super) type Group = (Look, Vec<Point>);

/// The points of a panel, one per series, by their looks.
pub(super) fn groups(
    figure: &Figure,
    manifest: &Manifest,
    panel: &Panel,
    across: &dyn Fn(usize) -> f64,
    (log_x, log_y): (bool, bool),
) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for &Member { index, look, .. } in &panel.series {
        let runs = manifest.runs.iter().filter(|run| run.series == index && run.outcome != "diverged");
        let values = runs.map(|run| average::ending(run, &figure.y)).filter(|value| value.is_finite());
        let point = average::spread(across(index), &mut values.collect::<Vec<_>>());
        match groups.iter_mut().find(|(known, _)| *known == look) {
            Some((_, points)) => points.push(point),
            None => groups.push((look, vec![point])),
        }
    }
    for (_, points) in &mut groups {
        points.retain(|point| point.y.is_finite() && (!log_x || point.x > 0.0));
        if log_y {
            *points = average::positive(std::mem::take(points));
        }
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
    }
    groups
}

/// Dots with whiskers, and lines through them where the horizontal axis has an order.
pub(super) fn dots(groups: &[Group], x_axis: &Axis, y_axis: &Axis, ordered: bool) -> Vec<Plot> {
    let mut plots = Vec::new();
    for (nth, (look, points)) in groups.iter().enumerate().filter(|(_, (_, points))| !points.is_empty()) {
        let colour = look.colour();
        // Names have no order, so no line joins them, and dots of one name stand side by side.
        let aside = if ordered {
            0.0
        } else {
            (nth as f64 - (groups.len() - 1) as f64 / 2.0) * 0.5 / groups.len() as f64
        };
        let at: Vec<(f64, f64)> =
            points.iter().map(|point| (x_axis.place(point.x) + aside, y_axis.place(point.y))).collect();
        let errors = points
            .iter()
            .map(|p| (y_axis.place(p.y) - y_axis.place(p.low), y_axis.place(p.high) - y_axis.place(p.y)));
        let mut dots = ScatterPlot::new().with_data(at.clone()).with_color(colour).with_size(4.0);
        dots = dots.with_marker(look.marker());
        if points.iter().any(|point| point.high > point.low) {
            dots = dots.with_y_err_asymmetric(errors);
        }
        if ordered {
            let line = LinePlot::new().with_data(at).with_color(colour).with_line_style(look.style());
            plots.push(Plot::Line(line));
        }
        plots.push(Plot::Scatter(dots));
    }
    plots
}

/// Where series lie along a setting: at its number, or at the place of its name among all.
pub(super) struct Across<'a> {
    manifest: &'a Manifest,
    pub(super) key: &'a str,
    names: Vec<String>,
    pub(super) numbers: bool,
}

impl<'a> Across<'a> {
    pub(super) fn new(figure: &'a Figure, manifest: &'a Manifest, panels: &[Panel]) -> Result<Self> {
        let key = figure
            .x
            .strip_prefix("setting:")
            .with_context(|| format!("kind points needs x = \"setting:KEY\", not `{}`", figure.x))?;
        let mut across = Across { manifest, key, names: Vec::new(), numbers: true };
        for member in panels.iter().flat_map(|panel| &panel.series) {
            across.numbers &= across.number(member.index).is_some();
            let name = manifest.series[member.index].words(key);
            if !across.names.contains(&name) {
                across.names.push(name);
            }
        }
        Ok(across)
    }

    fn number(&self, index: usize) -> Option<f64> {
        self.manifest.series[index].settings.get(self.key)?.number()
    }

    pub(super) fn at(&self, index: usize) -> f64 {
        if self.numbers {
            return self.number(index).unwrap_or(f64::NAN);
        }
        let value = self.manifest.series[index].words(self.key);
        self.names.iter().position(|name| *name == value).map_or(f64::NAN, |place| place as f64 + 1.0)
    }

    /// The names as readers know them.
    pub(super) fn names(&self) -> Vec<String> {
        self.names.iter().map(|name| full_name(self.manifest, name)).collect()
    }
}

pub(super) fn points(figure: &Figure, manifest: &Manifest, panels: &[Panel]) -> Result<Picture> {
    let across = Across::new(figure, manifest, panels)?;
    let log_x = figure.log.contains('x') && across.numbers;
    let log_y = figure.log.contains('y');
    // Panel → legend entry → points.
    let groups: Vec<Vec<Group>> = panels
        .iter()
        .map(|panel| groups(figure, manifest, panel, &|index| across.at(index), (log_x, log_y)))
        .collect();
    let all: Vec<Point> = groups.iter().flatten().flat_map(|(_, points)| points.iter().copied()).collect();
    let none = || anyhow!("`{}` has no value to draw", figure.y);
    let mut x_axis = Axis::over(all.iter().map(|point| point.x), manifest, "", log_x).ok_or_else(none)?;
    x_axis.label = words::symbol(across.key);
    if !x_axis.log {
        let spare = 0.04 * (x_axis.range.1 - x_axis.range.0);
        x_axis.range = if across.numbers {
            (x_axis.range.0 - spare, x_axis.range.1 + spare)
        } else {
            (0.5, across.names.len() as f64 + 0.5)
        };
    }
    // A dot on the edge of a logarithmic axis would be cut.
    let spare = if log_y { 1.3 } else { 1.0 };
    let y_axis = Axis::over(
        all.iter().flat_map(|point| [point.low / spare, point.high * spare]),
        manifest,
        &figure.y,
        log_y,
    )
    .ok_or_else(none)?;
    let cells = groups.iter().map(|groups| (dots(groups, &x_axis, &y_axis, across.numbers), Vec::new()));
    let base = |panel: &Panel, first: bool, _: bool| {
        let mut layout = y_axis.on_y(x_axis.on_x(layout(panel, x_axis.range, y_axis.range)));
        if !across.numbers {
            let names = across.names();
            let letters = names.iter().map(|name| name.chars().count()).max().unwrap_or(0) * names.len();
            if letters as f64 * f64::from(FONT) * LETTER > 480.0 / panels.len().min(3) as f64 {
                layout = layout.with_x_tick_rotate(-25.0);
            }
            layout = layout.with_x_categories(names);
        } else if !x_axis.log {
            layout = layout.with_x_axis_min(x_axis.range.0).with_x_axis_max(x_axis.range.1);
        }
        if !first {
            layout.y_label = None;
        }
        layout
    };
    arrange(panels, cells.collect(), base, &legend(manifest, panels), 330.0)
}

/// An algorithm's name as the labels write it; other names as they are.
pub(super) fn full_name(manifest: &Manifest, name: &str) -> String {
    let series = manifest.series.iter().find(|series| series.algorithm == name);
    series.map_or(name, |series| &series.name).into()
}
