//! Pictures, as SVG and PNG. The only module that knows the plotting crate (kuva).
use super::average::{self, Point};
use super::words;
use crate::results::{Curves, Figure, Manifest, write_file};
use anyhow::{Context, Result, anyhow, bail};
use kuva::backend::{raster::RasterBackend, svg::SvgBackend};
use kuva::plot::scatter::ScatterPlot;
use kuva::plot::{BarPlot, LinePlot, LineStyle};
use kuva::render::color::Color;
use kuva::render::layout::{Layout, TickFormat};
use kuva::render::plots::Plot;
use kuva::render::render::{PathData, Primitive, Scene, TextAnchor};
use std::path::Path;
use std::sync::Arc;

/// Okabe and Ito's colours, which colour-blind readers tell apart; their yellow is too pale for a line.
const COLOURS: [&str; 7] = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#4D4D4D"];
/// Kinds of dashes; dots are for the right axis.
const STYLES: usize = 4;
const MOST_POINTS: usize = 300;
/// Values of a diverging run beyond this are not drawn.
const CAP: f64 = 1e6;
/// A logarithmic axis shows this many decades at most; lower values lie on its edge.
const DECADES: f64 = 20.0;
const FONT: u32 = 13;
/// Mean width of a letter, in font sizes; kuva keeps its own text measure private.
const LETTER: f64 = 0.6;

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

/// Draws a figure of the experiment file; an error says why there is nothing to draw.
pub fn draw(figure: &Figure, manifest: &Manifest, curves: &Curves) -> Result<Picture> {
    let panels = panels(figure, manifest)?;
    match figure.kind.as_str() {
        // A run shortened to less than that is shown whole.
        "line" if curves.rows.iter().any(|row| figure.from > 0 && row.iteration > figure.from) => {
            let rows = curves.rows.iter().filter(|row| row.iteration >= figure.from).cloned().collect();
            lines(figure, manifest, &Curves { metrics: curves.metrics.clone(), rows }, &panels)
        }
        "line" => lines(figure, manifest, curves, &panels),
        "bar" => bars(figure, manifest, &panels),
        "points" => points(figure, manifest, &panels),
        "graphs" => bail!("the topology picture is drawn while the experiment runs"),
        other => bail!("unknown kind of figure `{other}`; allowed are line, bar, points, graphs"),
    }
}

/// The series of one panel, with its title.
struct Panel {
    title: Option<String>,
    series: Vec<Member>,
}

/// A series within a figure.
struct Member {
    /// Index of the series.
    index: usize,
    label: String,
    look: Look,
}

/// Colour and dashes; series with the same look share an entry of the legend.
#[derive(Clone, Copy, PartialEq)]
struct Look {
    colour: usize,
    dashes: usize,
}

impl Look {
    fn colour(self) -> &'static str {
        COLOURS[self.colour % COLOURS.len()]
    }

    fn style(self) -> LineStyle {
        match self.dashes % STYLES {
            0 => LineStyle::Solid,
            1 => LineStyle::Custom("9 4".into()),
            2 => LineStyle::Custom("9 3 2 3".into()),
            _ => LineStyle::Custom("5 3".into()),
        }
    }
}

fn panels(figure: &Figure, manifest: &Manifest) -> Result<Vec<Panel>> {
    let setting =
        |index: usize, key: &str| manifest.series[index].settings.get(key).map_or("", String::as_str);
    let chosen = |index: &usize| {
        figure.only.iter().all(|(key, values)| values.split('|').any(|value| setting(*index, key) == value))
    };
    let chosen: Vec<usize> = (0..manifest.series.len()).filter(chosen).collect();
    if chosen.is_empty() {
        bail!("no series has the settings the figure asks for");
    }
    let across = figure.x.strip_prefix("setting:");
    let algorithm = |index: usize| manifest.series[index].algorithm.as_str();
    // With the algorithms along the axis, a label must not begin with one.
    let by_algorithm =
        across.is_some_and(|key| chosen.iter().all(|&index| setting(index, key) == algorithm(index)));
    // A setting that goes with what the panel and the axis show (a step that belongs to a length K) needs no
    // place in the legend, nor one that is the same everywhere.
    let place = |index: usize| {
        let seen = figure
            .panels
            .as_deref()
            .into_iter()
            .chain(across)
            .map(|key| setting(index, key))
            .collect::<Vec<_>>();
        (seen, algorithm(index), setting(index, "algorithm.label"))
    };
    let follows = |key: &str, index: usize| {
        let mut twins = chosen.iter().filter(|other| place(**other) == place(index));
        twins.all(|other| setting(*other, key) == setting(index, key))
    };
    let label = |index: usize| {
        let series = &manifest.series[index];
        let fixed =
            figure.only.iter().filter(|(_, values)| !values.contains('|')).map(|(key, _)| key.as_str());
        let shown: Vec<&str> = fixed.chain(figure.panels.as_deref()).chain(across).collect();
        if by_algorithm {
            let rest = series.swept.iter().filter(|key| !shown.contains(&key.as_str()));
            let rest: Vec<String> =
                rest.map(|key| format!("{}={}", words::symbol(key), setting(index, key))).collect();
            return if rest.is_empty() { "all".into() } else { rest.join(" ") };
        }
        let hidden = shown
            .into_iter()
            .chain(series.swept.iter().map(String::as_str).filter(|key| follows(key, index)));
        words::without(&series.label, &hidden.map(|key| (key, setting(index, key))).collect::<Vec<_>>())
    };
    let labels: Vec<(usize, String)> = chosen.iter().map(|&index| (index, label(index))).collect();
    let looks = looks(
        &labels
            .iter()
            .map(|(index, label)| (label.as_str(), if by_algorithm { "" } else { algorithm(*index) }))
            .collect::<Vec<_>>(),
    );
    let mut panels: Vec<(&str, Panel)> = Vec::new();
    for ((index, label), look) in labels.into_iter().zip(looks) {
        let value = figure.panels.as_deref().map_or("", |key| setting(index, key));
        let member = Member { index, label, look };
        match panels.iter_mut().find(|(known, _)| *known == value) {
            Some((_, panel)) => panel.series.push(member),
            None => {
                let key = figure.panels.as_deref();
                let title = key.map(|key| panel_title(key, index, &chosen, across, manifest));
                panels.push((value, Panel { title, series: vec![member] }));
            }
        }
    }
    Ok(panels.into_iter().map(|(_, panel)| panel).collect())
}

/// A panel's title: its setting, and other settings of the network or problem that go with it.
fn panel_title(
    key: &str,
    index: usize,
    chosen: &[usize],
    across: Option<&str>,
    manifest: &Manifest,
) -> String {
    let setting = |i: usize, key: &str| manifest.series[i].settings.get(key).map_or("", String::as_str);
    let same = |i: &&usize| setting(**i, key) == setting(index, key);
    let with = |other: &&str| {
        *other != key
            && !other.starts_with("algorithm.")
            && Some(*other) != across
            && chosen.iter().filter(same).all(|i| setting(*i, other) == setting(index, other))
            && chosen.iter().any(|i| setting(*i, other) != setting(index, other))
    };
    let part = |key: &str| format!("{} = {}", words::symbol(key), setting(index, key));
    let swept = manifest.series[index].swept.iter().map(String::as_str).filter(with).map(part);
    std::iter::once(part(key)).chain(swept).collect::<Vec<_>>().join(", ")
}

/// One look per label: colour by algorithm and dashes by variant where that is clear, else both by order.
fn looks(labels: &[(&str, &str)]) -> Vec<Look> {
    let mut algorithms: Vec<(&str, Vec<&str>)> = Vec::new();
    let mut order: Vec<&str> = Vec::new();
    for &(label, algorithm) in labels {
        if !order.contains(&label) {
            order.push(label);
        }
        match algorithms.iter_mut().find(|(known, _)| *known == algorithm) {
            Some((_, variants)) if variants.contains(&label) => {}
            Some((_, variants)) => variants.push(label),
            None => algorithms.push((algorithm, vec![label])),
        }
    }
    let most = algorithms.iter().map(|(_, variants)| variants.len()).max().unwrap_or(0);
    let clear = (2..=COLOURS.len()).contains(&algorithms.len()) && (2..=STYLES).contains(&most);
    let look = |&(label, algorithm): &(&str, &str)| {
        let place = order.iter().position(|known| *known == label).unwrap_or(0);
        let colour = algorithms.iter().position(|(known, _)| *known == algorithm).unwrap_or(0);
        let dashes = algorithms[colour].1.iter().position(|known| *known == label).unwrap_or(0);
        if clear { Look { colour, dashes } } else { Look { colour: place, dashes: place } }
    };
    labels.iter().map(look).collect()
}

/// One axis: its range, whether it is logarithmic, its unit and its words.
#[derive(Clone)]
struct Axis {
    range: (f64, f64),
    log: bool,
    /// Drawn value = value × scale. On a logarithmic axis a power of ten brings the lowest value to 1e-10:
    /// kuva sets no tick below that, and leaves room for `1000000` above.
    scale: f64,
    /// What a tick says = drawn value × this.
    tick: f64,
    label: String,
}

impl Axis {
    /// An axis that holds all values; None if none is finite.
    fn over(
        values: impl Iterator<Item = f64> + Clone,
        manifest: &Manifest,
        column: &str,
        log: bool,
    ) -> Option<Axis> {
        let usable = values.filter(|value| value.is_finite() && (!log || *value > 0.0));
        let low = usable.clone().fold(f64::INFINITY, f64::min);
        let high = usable.fold(f64::NEG_INFINITY, f64::max);
        if low > high {
            return None;
        }
        let (size, unit) = words::unit(column, high.abs().max(low.abs()));
        let label = match unit {
            "" => words::heading(manifest, column),
            unit => words::with_unit(words::label(manifest, column), unit),
        };
        // Under a factor of three a logarithmic axis has hardly a tick.
        if !log || high / low < 3.0 {
            let (low, high) = (low / size, high / size);
            let spare = if high > low { 0.0 } else { 0.1 * high.abs().max(1e-12) };
            return Some(Axis {
                range: (low - spare, high + spare),
                log: false,
                scale: 1.0 / size,
                tick: 1.0,
                label,
            });
        }
        let (low, high) = (low.max(high / 10f64.powf(DECADES)) / size, high / size);
        let (low, high) = if high / low < 100.0 {
            (low / 1.1, high * 1.1)
        } else {
            (10f64.powf((low.log10() + 1e-9).floor()), 10f64.powf((high.log10() - 1e-9).ceil()))
        };
        let shift = if plain(low, high) { 1.0 } else { 10f64.powf((-10.0 - low.log10()).ceil()) };
        Some(Axis {
            range: (low * shift, high * shift),
            log: true,
            scale: shift / size,
            tick: 1.0 / shift,
            label,
        })
    }

    fn place(&self, value: f64) -> f64 {
        let value = value * self.scale;
        if self.log { value.clamp(self.range.0, self.range.1) } else { value }
    }

    fn ticks(&self) -> TickFormat {
        let (log, tick, range) = (self.log, self.tick, self.range);
        // Many decades: a label for every second one.
        let step = if log && range.1 / range.0 > 1e10 { 2 } else { 1 };
        let skip = move |value: f64| step > 1 && (value * tick).log10().round() as i64 % step != 0;
        TickFormat::Custom(Arc::new(move |value| match log && !plain(range.0 * tick, range.1 * tick) {
            true if skip(value) => String::new(),
            true => power(value * tick),
            false => tick_words(value * tick),
        }))
    }

    fn on_x(&self, layout: Layout) -> Layout {
        let mut layout = layout.with_x_label(&self.label).with_x_tick_format(self.ticks());
        if self.log {
            layout = layout.with_log_x().with_x_axis_min(self.range.0).with_x_axis_max(self.range.1);
        }
        layout
    }

    fn on_y(&self, layout: Layout) -> Layout {
        let mut layout = layout.with_y_label(&self.label).with_y_tick_format(self.ticks());
        if self.log {
            layout = layout.with_log_y().with_y_axis_min(self.range.0).with_y_axis_max(self.range.1);
        }
        layout
    }
}

/// Whether ticks of a logarithmic axis read better as `0.01` than as `10⁻²`.
fn plain(low: f64, high: f64) -> bool {
    low >= 0.99e-3 && high <= 1.01e4
}

/// `10⁻³`, `2·10⁻⁵`.
fn power(value: f64) -> String {
    if value <= 0.0 || !value.is_finite() {
        return words::number(value);
    }
    let exponent = (value.log10() + 1e-9).floor();
    let digit = (value / 10f64.powf(exponent)).round();
    let raised: String = format!("{exponent}")
        .chars()
        .map(|c| match c {
            '-' => '⁻',
            '1' => '¹',
            '2' => '²',
            '3' => '³',
            c => c.to_digit(10).and_then(|d| char::from_u32(0x2070 + d)).unwrap_or(c),
        })
        .collect();
    if digit == 1.0 { format!("10{raised}") } else { format!("{digit}·10{raised}") }
}

/// A tick of a linear axis: `0.25`, `20k`, `3M`.
fn tick_words(value: f64) -> String {
    let (value, letter) = match value.abs() {
        size if size >= 1e9 || (size > 0.0 && size < 1e-4) => return power_or_zero(value),
        size if size >= 1e6 => (value / 1e6, "M"),
        size if size >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let text = format!("{value:.5}");
    format!("{}{letter}", text.trim_end_matches('0').trim_end_matches('.'))
}

fn power_or_zero(value: f64) -> String {
    // A tick that should be zero may carry a rounding error.
    if value.abs() < 1e-15 { "0".into() } else { format!("{value:.0e}") }
}

/// One entry of the legend.
struct Entry {
    label: String,
    colour: String,
    dashes: Option<String>,
}

/// A line ready to draw, and whether all its runs diverged.
struct Drawn {
    line: Vec<Point>,
    look: Look,
    lost: bool,
}

/// The mean lines of one metric, panel by panel, fit for their axes.
fn load(
    figure: &Figure,
    manifest: &Manifest,
    curves: &Curves,
    panels: &[Panel],
    name: &str,
    log_y: bool,
) -> Vec<Vec<Drawn>> {
    let log_x = figure.log.contains('x');
    let one = |member: &Member| {
        let mut line = average::mean_line(manifest, curves, member.index, &figure.x, name);
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

/// One line with its band, or a dot where it has one point.
fn one_line(drawn: &Drawn, x_axis: &Axis, axis: &Axis, dotted: bool) -> Plot {
    let (line, colour) = (&drawn.line, drawn.look.colour());
    let at: Vec<(f64, f64)> = line.iter().map(|point| (x_axis.place(point.x), axis.place(point.y))).collect();
    if let [only] = at[..] {
        return Plot::Scatter(ScatterPlot::new().with_data([only]).with_color(colour).with_size(4.0));
    }
    let mut plot = LinePlot::new().with_data(at).with_color(colour).with_stroke_width(2.0);
    if dotted {
        plot = plot.with_line_style(LineStyle::Custom("2 3".into()));
    } else {
        plot = plot.with_line_style(drawn.look.style());
        if line.iter().any(|point| point.high > point.low) {
            let (low, high) =
                (line.iter().map(|p| axis.place(p.low)), line.iter().map(|p| axis.place(p.high)));
            plot = plot.with_band(low, high);
            plot.band = plot.band.map(|band| band.with_opacity(0.18));
        }
    }
    Plot::Line(plot)
}

fn lines(figure: &Figure, manifest: &Manifest, curves: &Curves, panels: &[Panel]) -> Result<Picture> {
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
        let primary = lines.iter().map(|drawn| one_line(drawn, &x_axis, &y_axis, false)).collect();
        let secondary = match (&right, &y2_axis) {
            (Some(right), Some(axis)) => {
                right[index].iter().map(|drawn| one_line(drawn, &x_axis, axis, true)).collect()
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
fn trim(panels: &mut [Vec<Drawn>], log: bool) {
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

fn bars(figure: &Figure, manifest: &Manifest, panels: &[Panel]) -> Result<Picture> {
    let measure = |index: usize| {
        let runs = manifest.runs.iter().filter(|run| run.series == index);
        average::mean_sd(
            &runs
                .map(|run| average::ending(run, &figure.y))
                .filter(|value| value.is_finite())
                .collect::<Vec<_>>(),
        )
    };
    let rows: Vec<Vec<_>> = panels
        .iter()
        .map(|panel| panel.series.iter().map(|member| measure(member.index)).collect())
        .collect();
    let tops = rows.iter().flatten().map(|(mean, sd)| mean + if sd.is_finite() { *sd } else { 0.0 });
    let axis = Axis::over(tops.chain([0.0]), manifest, &figure.y, false)
        .filter(|_| rows.iter().flatten().any(|(mean, _)| mean.is_finite()));
    let axis = axis.ok_or_else(|| anyhow!("`{}` has no value to draw", figure.y))?;
    let most = panels.iter().map(|panel| panel.series.len()).max().unwrap_or(1);
    let cells = panels.iter().zip(&rows).map(|(panel, rows)| {
        let mut plot = BarPlot::new().with_horizontal(true).with_width(0.65).with_error_cap_width(0.4);
        let mut errors = Vec::new();
        // The lowest category comes first, and a reader begins at the top.
        for (member, &(mean, sd)) in panel.series.iter().zip(rows).rev() {
            let (lost, all) = average::diverged(manifest, member.index);
            let label = format!("{}{}", member.label, divergence(lost, all));
            plot = plot.with_colored_bar(
                label,
                if mean.is_finite() { axis.place(mean) } else { 0.0 },
                member.look.colour(),
            );
            errors.push(if sd.is_finite() { axis.place(sd) } else { 0.0 });
        }
        if errors.iter().any(|error| *error > 0.0) {
            plot = plot.with_error(errors);
        }
        (vec![Plot::Bar(plot)], Vec::new())
    });
    let cells: Vec<(Vec<Plot>, Vec<Plot>)> = cells.collect();
    let categories: Vec<Layout> = cells.iter().map(|(plots, _)| Layout::auto_from_plots(plots)).collect();
    let mut categories = categories.into_iter();
    let base = |panel: &Panel, _: bool, _: bool| {
        let mut layout =
            layout(panel, axis.range, (0.0, 1.0)).with_x_label(&axis.label).with_x_tick_format(axis.ticks());
        if panels.len() > 1 {
            layout = layout.with_ticks(3);
        }
        if let Some(known) = categories.next() {
            layout.y_range = known.y_range;
            layout.y_categories = known.y_categories;
        }
        layout
    };
    arrange(panels, cells, base, &[], 70.0 + 34.0 * most as f64)
}

/// Points with one look.
type Group = (Look, Vec<Point>);

/// The points of a panel, one per series, by their looks.
fn groups(
    figure: &Figure,
    manifest: &Manifest,
    panel: &Panel,
    across: &dyn Fn(usize) -> f64,
    (log_x, log_y): (bool, bool),
) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for &Member { index, look, .. } in &panel.series {
        let runs = manifest.runs.iter().filter(|run| run.series == index && run.outcome != "diverged");
        let values: Vec<f64> =
            runs.map(|run| average::ending(run, &figure.y)).filter(|value| value.is_finite()).collect();
        let (y, sd) = average::mean_sd(&values);
        let sd = if sd.is_finite() { sd } else { 0.0 };
        // No whisker below 0 for what is never below 0, such as a count.
        let floor = if values.iter().all(|value| *value >= 0.0) { 0.0 } else { f64::NEG_INFINITY };
        let point = Point { x: across(index), y, low: (y - sd).max(floor), high: y + sd };
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
fn dots(groups: &[Group], x_axis: &Axis, y_axis: &Axis, ordered: bool) -> Vec<Plot> {
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

fn points(figure: &Figure, manifest: &Manifest, panels: &[Panel]) -> Result<Picture> {
    let key = figure
        .x
        .strip_prefix("setting:")
        .with_context(|| format!("kind points needs x = \"setting:KEY\", not `{}`", figure.x))?;
    let value = |index: usize| manifest.series[index].settings.get(key).cloned().unwrap_or_default();
    let mut names: Vec<String> = Vec::new();
    for member in panels.iter().flat_map(|panel| &panel.series) {
        if !names.contains(&value(member.index)) {
            names.push(value(member.index));
        }
    }
    let numbers: Option<Vec<f64>> =
        names.iter().map(|name| name.parse().ok().filter(|x: &f64| x.is_finite())).collect();
    let across = |index: usize| match &numbers {
        Some(_) => value(index).parse().unwrap_or(f64::NAN),
        None => {
            names.iter().position(|name| *name == value(index)).map_or(f64::NAN, |place| place as f64 + 1.0)
        }
    };
    let log_x = figure.log.contains('x') && numbers.is_some();
    let log_y = figure.log.contains('y');
    // Panel → legend entry → points.
    let groups: Vec<Vec<Group>> =
        panels.iter().map(|panel| groups(figure, manifest, panel, &across, (log_x, log_y))).collect();
    let all: Vec<Point> = groups.iter().flatten().flat_map(|(_, points)| points.iter().copied()).collect();
    let none = || anyhow!("`{}` has no value to draw", figure.y);
    let mut x_axis = Axis::over(all.iter().map(|point| point.x), manifest, "", log_x).ok_or_else(none)?;
    x_axis.label = words::symbol(key);
    if !x_axis.log {
        let spare = 0.04 * (x_axis.range.1 - x_axis.range.0);
        x_axis.range = if numbers.is_some() {
            (x_axis.range.0 - spare, x_axis.range.1 + spare)
        } else {
            (0.5, names.len() as f64 + 0.5)
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
    let cells = groups.iter().map(|groups| (dots(groups, &x_axis, &y_axis, numbers.is_some()), Vec::new()));
    let base = |panel: &Panel, first: bool, _: bool| {
        let mut layout = y_axis.on_y(x_axis.on_x(layout(panel, x_axis.range, y_axis.range)));
        if numbers.is_none() {
            let names: Vec<String> = names.iter().map(|name| full_name(manifest, name)).collect();
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
fn full_name(manifest: &Manifest, name: &str) -> String {
    let Some(series) = manifest.series.iter().find(|series| series.algorithm == name) else {
        return name.into();
    };
    let swept =
        series.swept.iter().filter_map(|key| Some((key.as_str(), series.settings.get(key)?.as_str())));
    words::without(&series.label, &swept.collect::<Vec<_>>())
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
    };
    found.into_iter().map(entry).collect()
}

fn layout(panel: &Panel, x: (f64, f64), y: (f64, f64)) -> Layout {
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
fn arrange(
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
fn add_legend(scene: &mut Scene, entries: &[Entry]) {
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
        scene.add(text(x + SWATCH + 6.0, y + size * 0.36, &entry.label, TextAnchor::Start));
    }
    if rows > 0 {
        scene.height = top + rows as f64 * size * 1.6 + 8.0;
    }
}

fn text(x: f64, y: f64, content: &str, anchor: TextAnchor) -> Primitive {
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

fn finish(scene: Scene) -> Picture {
    let svg = SvgBackend::new().render_scene(&scene);
    // Kuva leaves the view box out, and without it a page cannot scale the picture.
    let svg = svg.replacen(
        "<svg ",
        &format!("<svg viewBox=\"0 0 {} {}\" ", scene.width.ceil(), scene.height.ceil()),
        1,
    );
    Picture { svg, scene }
}

/// Edges of a graph: sender, receiver, and whether it is drawn dashed orange instead of solid blue.
pub type Edges = Vec<(usize, usize, bool)>;

/// Draws directed graphs side by side, each with its title and with `agents` on a circle.
pub fn graphs(agents: usize, graphs: &[(String, Edges)]) -> Result<Picture> {
    const SIDE: f64 = 230.0;
    if agents == 0 || graphs.is_empty() {
        bail!("there is no graph to draw");
    }
    let columns = graphs.len().min(4);
    let rows = graphs.len().div_ceil(columns);
    let mut scene = Scene::new(columns as f64 * SIDE, rows as f64 * (SIDE + 24.0));
    scene.font_family = Some("DejaVu Sans, Liberation Sans, Arial, sans-serif".into());
    scene.text_color = Some("#111".into());
    let radius = if agents == 1 { 0.0 } else { SIDE * 0.36 };
    let dot = (radius * 2.4 / agents as f64).clamp(3.0, 13.0);
    for (index, (title, edges)) in graphs.iter().enumerate() {
        let (cx, cy) = (
            (index % columns) as f64 * SIDE + SIDE / 2.0,
            (index / columns) as f64 * (SIDE + 24.0) + 24.0 + SIDE / 2.0,
        );
        scene.add(text(cx, cy - SIDE / 2.0 - 6.0, title, TextAnchor::Middle));
        let place = |agent: usize| {
            let angle =
                std::f64::consts::TAU * (agent % agents) as f64 / agents as f64 - std::f64::consts::FRAC_PI_2;
            (cx + radius * angle.cos(), cy + radius * angle.sin())
        };
        for &(from, to, dashed) in
            edges.iter().filter(|(from, to, _)| from != to && *from < agents && *to < agents)
        {
            arrow(&mut scene, place(from), place(to), dot, dashed);
        }
        for agent in 0..agents {
            let (x, y) = place(agent);
            let (fill, stroke) = (Color::from("#ffffff"), Some(Color::from("#333333")));
            scene.add(Primitive::Circle {
                cx: x,
                cy: y,
                r: dot,
                fill,
                fill_opacity: None,
                stroke,
                stroke_width: Some(1.3),
            });
            if dot >= 8.0 {
                scene.add(text(x, y + f64::from(FONT) * 0.36, &(agent + 1).to_string(), TextAnchor::Middle));
            }
        }
    }
    Ok(finish(scene))
}

/// Draws a table of cells, each with its text and a shade from 0 (pale) to 1 (dark); without a shade it is
/// grey.
pub fn heat_map(
    title: &str,
    rows: (&str, &[String]),
    columns: (&str, &[String]),
    cells: &[Vec<(String, Option<f64>)>],
) -> Result<Picture> {
    const WIDTH: f64 = 108.0;
    const HEIGHT: f64 = 34.0;
    let (left, top) = (96.0, 64.0);
    let mut scene = Scene::new(
        (left + columns.1.len() as f64 * WIDTH + 16.0).max(420.0),
        top + rows.1.len() as f64 * HEIGHT + 16.0,
    );
    scene.font_family = Some("DejaVu Sans, Liberation Sans, Arial, sans-serif".into());
    scene.text_color = Some("#111".into());
    scene.background_color = Some("#ffffff".into());
    scene.add(text(12.0, 20.0, title, TextAnchor::Start));
    scene.add(text(left - 10.0, top - 8.0, &format!("{} \\ {}", rows.0, columns.0), TextAnchor::End));
    for (c, name) in columns.1.iter().enumerate() {
        scene.add(text(left + (c as f64 + 0.5) * WIDTH, top - 8.0, name, TextAnchor::Middle));
    }
    for (r, line) in cells.iter().enumerate() {
        let y = top + r as f64 * HEIGHT;
        scene.add(text(
            left - 10.0,
            y + HEIGHT * 0.62,
            rows.1.get(r).map_or("", String::as_str),
            TextAnchor::End,
        ));
        for (c, (label, shade)) in line.iter().enumerate() {
            let x = left + c as f64 * WIDTH;
            // From white to the first of the colours.
            let mix = |from: f64, to: f64| {
                (from + (to - from) * shade.unwrap_or(0.0).clamp(0.0, 1.0)).round() as u8
            };
            let fill = match shade {
                Some(_) => {
                    format!("#{:02x}{:02x}{:02x}", mix(240.0, 0.0), mix(246.0, 114.0), mix(250.0, 178.0))
                }
                None => "#dddddd".into(),
            };
            let (fill, stroke) = (Color::from(fill.as_str()), Some(Color::from("#ffffff")));
            scene.add(Primitive::Rect {
                x,
                y,
                width: WIDTH,
                height: HEIGHT,
                fill,
                stroke,
                stroke_width: Some(1.0),
                opacity: None,
            });
            let color = shade.filter(|s| *s > 0.6).map(|_| Color::from("#ffffff"));
            let (x, y) = (x + WIDTH / 2.0, y + HEIGHT * 0.62);
            scene.add(Primitive::Text {
                x,
                y,
                content: label.clone(),
                size: FONT - 2,
                anchor: TextAnchor::Middle,
                rotate: None,
                bold: false,
                color,
            });
        }
    }
    Ok(finish(scene))
}

/// A slightly bent arrow, so that both directions of a pair are seen.
fn arrow(scene: &mut Scene, from: (f64, f64), to: (f64, f64), dot: f64, dashed: bool) {
    let colour = if dashed { COLOURS[1] } else { COLOURS[0] };
    let (dx, dy) = (to.0 - from.0, to.1 - from.1);
    let length = dx.hypot(dy).max(1e-9);
    let bend = 0.08 * length;
    let middle =
        ((from.0 + to.0) / 2.0 - dy / length * bend * 2.0, (from.1 + to.1) / 2.0 + dx / length * bend * 2.0);
    let at = |t: f64| {
        let (a, b, c) = ((1.0 - t).powi(2), 2.0 * t * (1.0 - t), t * t);
        (a * from.0 + b * middle.0 + c * to.0, a * from.1 + b * middle.1 + c * to.1)
    };
    let head = (dot * 0.8).clamp(5.0, 9.0);
    let (start, tip, neck) = (dot / length, 1.0 - (dot + 1.0) / length, 1.0 - (dot + 1.0 + head) / length);
    if neck <= start {
        return;
    }
    let points: Vec<(f64, f64)> =
        (0..=16).map(|step| at(start + (neck - start) * f64::from(step) / 16.0)).collect();
    let stroke_dasharray = dashed.then(|| "5 3".to_string());
    scene.add(Primitive::PolyLine {
        points,
        stroke: Color::from(colour),
        stroke_width: 1.5,
        stroke_dasharray,
    });
    let ((tx, ty), (nx, ny)) = (at(tip), at(neck));
    let (ux, uy) = ((tx - nx) / head * 0.45 * head, (ty - ny) / head * 0.45 * head);
    let d = format!("M {tx:.2} {ty:.2} L {:.2} {:.2} L {:.2} {:.2} Z", nx - uy, ny + ux, nx + uy, ny - ux);
    let fill = Some(Color::from(colour));
    scene.add(Primitive::Path(Box::new(PathData {
        d,
        fill,
        stroke: Color::None,
        stroke_width: 0.0,
        opacity: None,
        stroke_dasharray: None,
    })));
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

    #[test]
    fn looks_follow_algorithms_where_they_can() {
        let pair = |look: &Look| (look.colour, look.dashes);
        let mixed =
            looks(&[("FAB λ=1", "fab"), ("FAB λ=2", "fab"), ("SOBA λ=1", "soba"), ("FAB λ=1", "fab")]);
        assert_eq!(mixed.iter().map(pair).collect::<Vec<_>>(), [(0, 0), (0, 1), (1, 0), (0, 0)]);
        let one_each = looks(&[("FAB", "fab"), ("SOBA", "soba")]);
        assert_eq!(one_each.iter().map(pair).collect::<Vec<_>>(), [(0, 0), (1, 1)]);
    }

    #[test]
    fn ticks_read_well() {
        assert_eq!(power(1e-3), "10⁻³");
        assert_eq!(power(2e-10), "2·10⁻¹⁰");
        assert_eq!(power(1e45), "10⁴⁵");
        assert_eq!(tick_words(20_000.0), "20k");
        assert_eq!(tick_words(0.25), "0.25");
        assert_eq!(tick_words(3e-17), "0");
    }
}
