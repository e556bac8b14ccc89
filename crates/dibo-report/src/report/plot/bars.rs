//! What each series ends with: bars from zero, or dots where the axis is logarithmic and has no zero.
use super::average::{self, Point};
use super::axis::Axis;
use super::look::{Look, Panel};
use super::picture::{Picture, finish, rule, text};
use super::{FONT, LETTER, divergence, words};
use crate::results::{Figure, Manifest};
use anyhow::{Result, anyhow};
use kuva::render::color::Color;
use kuva::render::render::{Primitive, Scene, TextAnchor};

/// Height of a bar's place; its names may take two lines.
const ROW: f64 = 32.0;
/// Letters in a line of a name.
const NAME: usize = 30;
/// Least width of a panel, and the width of the whole picture where panels are wide enough.
const LEAST: f64 = 150.0;
const WHOLE: f64 = 640.0;
const INK: &str = "#333333";

/// One bar: its name, look, the median over seeds with the middle 80 % of them, and the seeds themselves.
pub(super) struct Bar {
    pub(super) name: String,
    pub(super) look: Look,
    pub(super) middle: Point,
    pub(super) runs: Vec<f64>,
}

/// The bars of each panel.
pub(super) fn measured(figure: &Figure, manifest: &Manifest, panels: &[Panel]) -> Vec<Vec<Bar>> {
    let bar = |member: &super::Member| {
        let runs = manifest.runs.iter().filter(|run| run.series == member.index);
        let runs: Vec<f64> =
            runs.map(|run| average::ending(run, &figure.y)).filter(|value| value.is_finite()).collect();
        let (lost, all) = average::diverged(manifest, member.index);
        let name = format!("{}{}", member.label, divergence(lost, all));
        Bar { name, look: member.look, middle: average::spread(0.0, &mut runs.clone()), runs }
    };
    panels.iter().map(|panel| panel.series.iter().map(bar).collect()).collect()
}

pub(super) fn bars(figure: &Figure, manifest: &Manifest, panels: &[Panel]) -> Result<Picture> {
    let panelled = measured(figure, manifest, panels);
    let values = || panelled.iter().flatten().flat_map(|bar| bar.runs.iter().copied());
    let log = figure.log.contains('y');
    let zero = if log { None } else { Some(0.0) };
    let axis = Axis::over(values().chain(zero).collect::<Vec<_>>().into_iter(), manifest, &figure.y, log)
        .filter(|_| values().next().is_some())
        .ok_or_else(|| anyhow!("`{}` has no value to draw", figure.y))?;
    let mut names: Vec<&str> = Vec::new();
    for bar in panelled.iter().flatten() {
        if !names.contains(&bar.name.as_str()) {
            names.push(&bar.name);
        }
    }
    let folded: Vec<Vec<String>> = names.iter().map(|name| words::folded(name, NAME, 0)).collect();
    let letters = folded.iter().flatten().map(|line| line.chars().count()).max().unwrap_or(0);
    let left = letters as f64 * f64::from(FONT) * LETTER + 16.0;
    let width = ((WHOLE - left) / panels.len() as f64 - 24.0).max(LEAST);
    let top = if panels.iter().any(|panel| panel.title.is_some()) { 40.0 } else { 12.0 };
    let lines = folded.iter().map(Vec::len).max().unwrap_or(1).max(2) as f64;
    let row = ROW.max(lines * f64::from(FONT) * 1.25);
    let bottom = top + row * names.len() as f64;
    let mut scene = Scene::new(left + panels.len() as f64 * (width + 24.0), bottom + 52.0);
    scene.font_family = Some("DejaVu Sans, Verdana, Liberation Sans, Arial, sans-serif".into());
    scene.text_color = Some("#111".into());
    scene.background_color = Some("white".into());
    for (nth, lines) in folded.iter().enumerate() {
        let middle = top + row * (nth as f64 + 0.5);
        for (at, line) in lines.iter().enumerate() {
            let y = middle + f64::from(FONT) * (1.25 * (at as f64 - (lines.len() - 1) as f64 / 2.0) + 0.36);
            scene.add(text(left - 8.0, y, line, TextAnchor::End));
        }
    }
    for (nth, (panel, bars)) in panels.iter().zip(&panelled).enumerate() {
        let frame = Frame { x: left + nth as f64 * (width + 24.0), width, top, bottom, axis: &axis };
        frame.draw(&mut scene, panel.title.as_deref());
        for bar in bars {
            let place = names.iter().position(|name| *name == bar.name).unwrap_or(0);
            frame.bar(&mut scene, bar, top + row * (place as f64 + 0.5), row * 0.5);
        }
    }
    Ok(finish(scene))
}

/// Where a panel lies in the picture.
struct Frame<'a> {
    x: f64,
    width: f64,
    top: f64,
    bottom: f64,
    axis: &'a Axis,
}

impl Frame<'_> {
    fn place(&self, value: f64) -> f64 {
        let at = |value: f64| if self.axis.log { value.ln() } else { value };
        let (low, high) = (at(self.axis.range.0), at(self.axis.range.1));
        let part = (at(self.axis.place(value)) - low) / (high - low);
        self.x + self.width * part.clamp(0.0, 1.0)
    }

    /// The frame with its ticks and words.
    fn draw(&self, scene: &mut Scene, title: Option<&str>) {
        let middle = self.x + self.width / 2.0;
        if let Some(title) = title {
            scene.add(text(middle, self.top - 14.0, title, TextAnchor::Middle));
        }
        for (value, words) in self.axis.marks((self.width / 44.0) as usize) {
            let x = self.place(value);
            scene.add(rule((x, self.top), (x, self.bottom), "#e6e6e6"));
            scene.add(text(x, self.bottom + 17.0, &words, TextAnchor::Middle));
        }
        scene.add(rule((self.x, self.bottom), (self.x + self.width, self.bottom), INK));
        scene.add(text(middle, self.bottom + 40.0, &self.axis.label, TextAnchor::Middle));
    }

    /// One bar or dot around `y`, with the seeds as small dots where there are several.
    fn bar(&self, scene: &mut Scene, bar: &Bar, y: f64, height: f64) {
        if !bar.middle.y.is_finite() {
            return;
        }
        let (colour, at) = (Color::from(bar.look.colour()), self.place(bar.middle.y));
        let dot = |x, r, colour: &Color, edge: Option<Color>| Primitive::Circle {
            cx: x,
            cy: y,
            r,
            fill: colour.clone(),
            fill_opacity: None,
            stroke_width: edge.is_some().then_some(1.0),
            stroke: edge,
        };
        if self.axis.log {
            scene.add(rule((self.place(bar.middle.low), y), (self.place(bar.middle.high), y), INK));
            scene.add(dot(at, 5.0, &colour, None));
        } else {
            let from = self.place(0.0);
            scene.add(Primitive::Rect {
                x: from.min(at),
                y: y - height / 2.0,
                width: (at - from).abs(),
                height,
                fill: colour,
                stroke: None,
                stroke_width: None,
                opacity: None,
            });
        }
        // Seeds that agree to the pixel need no dots.
        let places: Vec<f64> = bar.runs.iter().map(|value| self.place(*value)).collect();
        if places.iter().any(|place| (place - at).abs() > 1.0) {
            for place in places {
                scene.add(dot(place, 2.0, &Color::from("#ffffff"), Some(Color::from(INK))));
            }
        }
    }
}
