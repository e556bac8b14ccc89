//! One axis of a plot: its range, its unit and its ticks.
use super::words;
use crate::results::Manifest;
use kuva::render::layout::{Layout, TickFormat};
use std::sync::Arc;

/// A logarithmic axis shows this many decades at most; lower values lie on its edge.
const DECADES: f64 = 20.0;

/// One axis: its range, whether it is logarithmic, its unit and its words.
#[derive(Clone)]
pub(super) struct Axis {
    pub(super) range: (f64, f64),
    pub(super) log: bool,
    /// Drawn value = value × scale. On a logarithmic axis a power of ten brings the lowest value to 1e-10:
    /// kuva sets no tick below that, and leaves room for `1000000` above.
    pub(super) scale: f64,
    /// What a tick says = drawn value × this.
    pub(super) tick: f64,
    pub(super) label: String,
}

impl Axis {
    /// An axis that holds all values; None if none is finite.
    pub(super) fn over(
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

    pub(super) fn place(&self, value: f64) -> f64 {
        let value = value * self.scale;
        if self.log { value.clamp(self.range.0, self.range.1) } else { value }
    }

    /// About so many round values within the range, as they are and in words.
    pub(super) fn marks(&self, about: usize) -> Vec<(f64, String)> {
        let (low, high) = (self.range.0 / self.scale, self.range.1 / self.scale);
        let about = about.max(2) as f64;
        let TickFormat::Custom(words) = self.ticks() else { return Vec::new() };
        let marked = |value: f64| (value, words(value * self.scale));
        if self.log {
            let (first, last) = ((low.log10() - 1e-9).ceil() as i32, (high.log10() + 1e-9).floor() as i32);
            if last > first {
                let step = (f64::from(last - first) / about).ceil().max(1.0) as usize;
                return (first..=last).step_by(step).map(|power| marked(10f64.powi(power))).collect();
            }
        }
        // 1, 2 or 5 times a power of ten.
        let rough = (high - low) / about;
        let power = 10f64.powf(rough.log10().floor());
        let step = power * [1.0, 2.0, 5.0, 10.0].into_iter().find(|s| s * power >= rough).unwrap_or(10.0);
        let first = (low / step - 1e-9).ceil();
        let count = ((high / step + 1e-9).floor() - first).clamp(0.0, 100.0) as usize;
        (0..=count).map(|nth| marked((first + nth as f64) * step)).collect()
    }

    pub(super) fn ticks(&self) -> TickFormat {
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

    pub(super) fn on_x(&self, layout: Layout) -> Layout {
        let mut layout = layout.with_x_label(&self.label).with_x_tick_format(self.ticks());
        if self.log {
            layout = layout.with_log_x().with_x_axis_min(self.range.0).with_x_axis_max(self.range.1);
        }
        layout
    }

    pub(super) fn on_y(&self, layout: Layout) -> Layout {
        let mut layout = layout.with_y_label(&self.label).with_y_tick_format(self.ticks());
        if self.log {
            layout = layout.with_log_y().with_y_axis_min(self.range.0).with_y_axis_max(self.range.1);
        }
        layout
    }
}

/// Whether ticks of a logarithmic axis read better as `0.01` than as `10⁻²`.
pub(super) fn plain(low: f64, high: f64) -> bool {
    low >= 0.99e-3 && high <= 1.01e4
}

/// `10⁻³`, `2·10⁻⁵`.
pub(super) fn power(value: f64) -> String {
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
pub(super) fn tick_words(value: f64) -> String {
    let (value, letter) = match value.abs() {
        size if size >= 1e9 || (size > 0.0 && size < 1e-4) => return power_or_zero(value),
        size if size >= 1e6 => (value / 1e6, "M"),
        size if size >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let text = format!("{value:.5}");
    format!("{}{letter}", text.trim_end_matches('0').trim_end_matches('.'))
}

pub(super) fn power_or_zero(value: f64) -> String {
    // A tick that should be zero may carry a rounding error.
    if value.abs() < 1e-15 { "0".into() } else { format!("{value:.0e}") }
}

#[cfg(test)]
mod tests {
    use super::*;

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
