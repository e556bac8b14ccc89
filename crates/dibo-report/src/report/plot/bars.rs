//! What each series ends with, as bars.
use super::average;
use super::axis::Axis;
use super::divergence;
use super::look::Panel;
use super::picture::{Picture, arrange, layout};
use crate::results::{Figure, Manifest};
use anyhow::{Result, anyhow};
use kuva::plot::BarPlot;
use kuva::render::layout::Layout;
use kuva::render::plots::Plot;

pub(super) fn bars(figure: &Figure, manifest: &Manifest, panels: &[Panel]) -> Result<Picture> {
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
