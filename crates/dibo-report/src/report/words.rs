//! Words and units a reader expects: "relative error", "12.5 MB", "ν = 0.3".
use crate::results::{Manifest, MetricInfo, Series};

/// A column's or metric's name for an axis or a table head: a metric says its own.
pub fn label(manifest: &Manifest, name: &str) -> String {
    match (metric(manifest, name), name.split_once(':')) {
        (Some(metric), Some(("min", _))) => format!("smallest {}", metric.label),
        (Some(metric), Some(("mean", _))) => format!("mean {}", metric.label),
        (Some(metric), _) => metric.label.clone(),
        (None, _) => column(name),
    }
}

/// The same with the metric's unit, such as `test accuracy (%)`.
pub fn heading(manifest: &Manifest, name: &str) -> String {
    with_unit(label(manifest, name), metric(manifest, name).map_or("", |metric| &metric.unit))
}

/// Words with a unit in brackets, where there is one.
pub fn with_unit(label: String, unit: &str) -> String {
    if unit.is_empty() { label } else { format!("{label} ({unit})") }
}

/// What the manifest says of a metric, also where its smallest value (`min:`) or mean (`mean:`) is meant.
pub fn metric<'a>(manifest: &'a Manifest, name: &str) -> Option<&'a MetricInfo> {
    let found = |name: &str| manifest.metrics.iter().find(|metric| metric.name == name);
    found(name).or_else(|| match name.split_once(':') {
        Some(("min" | "mean", name)) => found(name),
        _ => None,
    })
}

/// A fixed column's name for an axis or a table head.
pub fn column(name: &str) -> String {
    match name {
        "iteration" => "iterations".into(),
        "seconds" => "time".into(),
        "bytes" => "bytes sent".into(),
        "gradients" => "gradients computed".into(),
        "products" => "second-order products".into(),
        "state_bytes" => "memory of the state".into(),
        "peak_bytes" => "peak memory".into(),
        "bytes_per_iteration" => "bytes sent per iteration".into(),
        other => other.replace('_', " "),
    }
}

/// What a word of a report means, for readers who point at it: a column's head, or how runs ended.
pub fn meaning(word: &str) -> Option<&'static str> {
    let outcome = word.split([' ', ',']).find_map(|word| match word {
        "reached" => Some("reached: came to the target that the experiment sets, and ended there"),
        "diverged" => Some("diverged: values grew beyond all bounds, so that the run was ended"),
        "stopped" => Some("stopped: ended early by its user; the same command goes on"),
        "broken" => Some("broken: an invariant that must hold did not, so that the run was ended"),
        "finished" => Some("finished: did all its iterations"),
        _ => None,
    });
    let digits = word.starts_with(|c: char| c.is_ascii_digit());
    match word {
        "outcome" => Some("how the runs ended, and how many of them"),
        "iterations" => Some("iterations done: mean over seeds [least, most]"),
        "time" => Some("seconds of iterations; the time for metrics is not counted"),
        "sent" => Some("bytes that all agents sent to each other, together"),
        "gradients" => Some("gradients computed, over all agents"),
        "products" => Some("products with second derivatives computed, over all agents"),
        "state" => Some("memory of the vectors that live from one iteration to the next, over all agents"),
        "reached" | "diverged" | "stopped" | "broken" | "finished" => outcome,
        _ if digits => outcome,
        _ => None,
    }
}

/// A setting's short sign, such as `ν` for `graph.nu`.
pub fn symbol(key: &str) -> String {
    let mut parts = key.rsplit('.');
    let last = match (parts.next(), parts.next()) {
        (Some("name" | "kind"), Some(parent)) => parent,
        (last, _) => last.unwrap_or(key),
    };
    let (head, tail) = last.split_once('_').unwrap_or((last, ""));
    let sign = match head {
        "lambda" => "λ",
        "tau" => "τ",
        "eta" => "η",
        "nu" => "ν",
        "omega" => "ω",
        "rho" => "ρ",
        "sigma" => "σ",
        "alpha" => "α",
        "beta" => "β",
        _ => return last.replace('_', " "),
    };
    format!("{sign}{tail}")
}

/// A series' label without those swept settings that the reader sees elsewhere (a panel's title, the axis).
pub fn labelled(series: &Series, hidden: impl Fn(&str) -> bool) -> String {
    let parts = series.swept.iter().filter(|key| !hidden(key)).map(|key| {
        let (sign, value) = (symbol(key).replace(' ', "-"), series.words(key).replace(' ', ""));
        format!("{sign}={value}")
    });
    std::iter::once(series.name.clone()).chain(parts).collect::<Vec<_>>().join(" ")
}

/// A number with four digits at most, in powers of ten where that is shorter.
pub fn number(value: f64) -> String {
    if value.is_nan() {
        return "–".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "∞".into() } else { "−∞".into() };
    }
    let size = value.abs();
    if size == 0.0 {
        "0".into()
    } else if !(1e-3..1e6).contains(&size) {
        format!("{value:.2e}")
    } else if size >= 1000.0 || value.fract() == 0.0 {
        format!("{value:.0}")
    } else {
        let decimals = (3 - size.log10().floor() as i32).clamp(0, 6) as usize;
        let text = format!("{value:.decimals$}");
        text.trim_end_matches('0').trim_end_matches('.').into()
    }
}

/// A mean and its deviation, such as `0.500 ± 0.012`: two digits of the deviation, and the mean to the same
/// place.
pub fn mean_and_deviation(mean: f64, deviation: f64) -> String {
    if !mean.is_finite() || !deviation.is_finite() || deviation <= 0.0 {
        return number(mean);
    }
    let largest = mean.abs().max(deviation);
    let exponent = if (1e-2..1e6).contains(&largest) { 0 } else { largest.log10().floor() as i32 };
    let size = 10f64.powi(exponent);
    let place = 1 - (deviation / size).log10().floor() as i32;
    if place > 6 {
        return format!("{} ± {deviation:.1e}", number(mean));
    }
    let decimals = place.max(0) as usize;
    let text = format!("{:.decimals$} ± {:.decimals$}", mean / size, deviation / size);
    if exponent == 0 { text } else { format!("({text})e{exponent}") }
}

/// Lines of at most `width` characters, broken at spaces where that can be, and from the second on indented.
pub fn folded(text: &str, width: usize, indent: usize) -> Vec<String> {
    let (mut lines, mut line, mut length) = (Vec::new(), String::new(), 0);
    for word in text.split_whitespace() {
        let mut word: &str = word;
        loop {
            let letters = word.chars().count();
            let space = usize::from(length > indent * usize::from(!lines.is_empty()));
            if length + space + letters <= width {
                line.extend(std::iter::repeat_n(' ', space));
                line += word;
                length += space + letters;
                break;
            }
            if space > 0 {
                lines.push(std::mem::replace(&mut line, " ".repeat(indent)));
                length = indent;
                continue;
            }
            // A word longer than a line is cut.
            let room = width.saturating_sub(length).max(1);
            let cut = word.char_indices().nth(room).map_or(word.len(), |(at, _)| at);
            line += &word[..cut];
            word = &word[cut..];
            lines.push(std::mem::replace(&mut line, " ".repeat(indent)));
            length = indent;
        }
    }
    lines.push(line);
    lines
}

/// How to show a column on an axis: divide by the first, and name the second, such as `(1e6, "MB")`.
pub fn unit(name: &str, largest: f64) -> (f64, &'static str) {
    let pick = |units: &[(f64, &'static str)]| {
        units.iter().copied().rfind(|(size, _)| largest >= *size).unwrap_or(units[0])
    };
    match name {
        "bytes" | "state_bytes" | "peak_bytes" | "bytes_per_iteration" => {
            pick(&[(1.0, "B"), (1e3, "kB"), (1e6, "MB"), (1e9, "GB"), (1e12, "TB"), (1e15, "PB")])
        }
        "seconds" if largest >= 7200.0 => (3600.0, "h"),
        "seconds" if largest >= 300.0 => (60.0, "min"),
        "seconds" => pick(&[(1e-6, "µs"), (1e-3, "ms"), (1.0, "s")]),
        "gradients" | "products" => pick(&[(1.0, ""), (1e6, "millions"), (1e9, "billions")]),
        _ => (1.0, ""),
    }
}

/// A quantity with its unit, such as `12.5 MB`; counts in millions read `3.2 M`.
pub fn quantity(name: &str, value: f64) -> String {
    let (size, unit) = unit(name, value.abs());
    let short = match unit {
        "millions" => "M",
        "billions" => "G",
        unit => unit,
    };
    let value = value / size;
    let decimals = if value.abs() >= 100.0 || value == 0.0 {
        0
    } else {
        (2 - value.abs().log10().floor() as i32).clamp(0, 6) as usize
    };
    let text = match (value.is_finite() && value.abs() < 1e6, decimals) {
        (false, _) => number(value),
        (true, 0) => format!("{value:.0}"),
        (true, _) => format!("{value:.decimals$}").trim_end_matches('0').trim_end_matches('.').into(),
    };
    if short.is_empty() { text } else { format!("{text} {short}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Value;

    #[test]
    fn words_are_human() {
        assert_eq!(column("bytes_per_iteration"), "bytes sent per iteration");
        assert_eq!(symbol("algorithm.eta_x"), "ηx");
        assert_eq!(symbol("graph.kind"), "graph");
        let weights = Value::List(vec![Value::Whole(1), Value::Whole(2)]);
        let settings =
            [("problem.noise_on", "state".into()), ("graph.nu", 0.3.into()), ("graph.weights", weights)];
        let series = Series {
            name: "FAB".into(),
            label: String::new(),
            algorithm: "fab".into(),
            swept: settings.iter().map(|(key, _)| key.to_string()).collect(),
            settings: settings.map(|(key, value)| (key.to_string(), value)).into(),
            warnings: Vec::new(),
        };
        assert_eq!(labelled(&series, |_| false), "FAB noise-on=state ν=0.3 weights=[1,2]");
        assert_eq!(labelled(&series, |key| key != "graph.nu"), "FAB ν=0.3");
        let table = |entries: &[(&str, f64)]| {
            Value::Table(entries.iter().map(|(key, x)| (key.to_string(), (*x).into())).collect())
        };
        assert_eq!(table(&[("start", 3.0), ("power", 0.4)]).words(), "3(k+1)^0.4");
        assert_eq!(table(&[("start", 0.1), ("decay", 0.01)]).words(), "0.1/(1+0.01k)");
        assert_eq!(table(&[("start", 0.1), ("end", 0.01), ("over", 50.0)]).words(), "0.1 to 0.01 by 50");
        assert_eq!(table(&[("start", 0.1)]).words(), "{ start = 0.1 }");
        assert_eq!(quantity("bytes", 12_500_000.0), "12.5 MB");
        assert_eq!(quantity("seconds", 0.00213), "2.13 ms");
        assert_eq!(quantity("seconds", 0.0), "0 µs");
        assert_eq!(quantity("seconds", 11.283), "11.3 s");
        assert_eq!(quantity("gradients", 3_210_000.0), "3.21 M");
        assert_eq!(mean_and_deviation(0.5, 0.0123), "0.500 ± 0.012");
        assert_eq!(mean_and_deviation(2.01e-10, 2.2e-11), "(2.01 ± 0.22)e-10");
        assert_eq!(mean_and_deviation(5000.4, 120.0), "5000 ± 120");
        assert_eq!(number(1.5e-7), "1.50e-7");
        assert_eq!(number(f64::NAN), "–");
    }

    #[test]
    fn lines_are_folded_at_spaces() {
        assert_eq!(folded("one two three", 8, 2), ["one two", "  three"]);
        assert_eq!(folded("one", 8, 2), ["one"]);
        assert_eq!(folded("", 8, 2), [""]);
        assert_eq!(folded("a ηηηηηηηηηηηη b", 6, 1), ["a", " ηηηηη", " ηηηηη", " ηη b"]);
        assert_eq!(folded("ηηηηηηηηηη", 5, 0), ["ηηηηη", "ηηηηη"]);
    }
}
