//! Which series a figure shows, in which panel, under which name and with which look.
use super::words;
use crate::report::compare::FOLDER;
use crate::results::{Figure, Manifest, Series, Value};
use anyhow::{Result, bail};
use kuva::plot::LineStyle;
use kuva::plot::scatter::MarkerShape;

/// Okabe and Ito's colours, which colour-blind readers tell apart; their yellow is too pale for a line.
pub(super) const COLOURS: [&str; 7] =
    ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#4D4D4D"];
/// Kinds of dashes; dots are for the right axis.
const STYLES: usize = 4;

/// The series of one panel, with its title.
pub(super) struct Panel {
    pub(super) title: Option<String>,
    pub(super) series: Vec<Member>,
}

/// A series within a figure.
pub(super) struct Member {
    /// Index of the series.
    pub(super) index: usize,
    pub(super) label: String,
    pub(super) look: Look,
}

/// Colour and dashes; series with the same look share an entry of the legend.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Look {
    pub(super) colour: usize,
    pub(super) dashes: usize,
}

impl Look {
    pub(super) fn colour(self) -> &'static str {
        COLOURS[self.colour % COLOURS.len()]
    }

    /// The shape of its marks goes with the colour, for readers who cannot tell the colours apart.
    pub(super) fn marker(self) -> MarkerShape {
        use MarkerShape::*;
        [Circle, Square, Triangle, Diamond, Cross, Plus, TriangleDown][self.colour % COLOURS.len()]
    }

    /// Where its first mark lies, in parts of the distance between two.
    pub(super) fn offset(self) -> f64 {
        let nth = (self.colour + COLOURS.len() * self.dashes) as f64;
        (0.25 + nth * 0.382) % 1.0
    }

    pub(super) fn style(self) -> LineStyle {
        match self.dashes % STYLES {
            0 => LineStyle::Solid,
            1 => LineStyle::Custom("9 4".into()),
            2 => LineStyle::Custom("9 3 2 3".into()),
            _ => LineStyle::Custom("5 3".into()),
        }
    }
}

pub(super) fn panels(figure: &Figure, manifest: &Manifest) -> Result<Vec<Panel>> {
    let setting = |index: usize, key: &str| manifest.series[index].settings.get(key);
    let chosen = |index: &usize| {
        let is = |key: &str, words: &str| setting(*index, key).map_or(words.is_empty(), |v| v.is(words));
        figure.only.iter().all(|(key, values)| values.split('|').any(|words| is(key, words)))
    };
    let chosen: Vec<usize> = (0..manifest.series.len()).filter(chosen).collect();
    if chosen.is_empty() {
        bail!("no series has the settings the figure asks for");
    }
    let across = figure.x.strip_prefix("setting:");
    let algorithm = |index: usize| manifest.series[index].algorithm.as_str();
    // With the algorithms along the axis, a label must not begin with one.
    let by_algorithm =
        across.is_some_and(|key| chosen.iter().all(|&i| manifest.series[i].words(key) == algorithm(i)));
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
                rest.map(|key| format!("{}={}", words::symbol(key), series.words(key))).collect();
            return if rest.is_empty() { "all".into() } else { rest.join(" ") };
        }
        words::labelled(series, |key| shown.contains(&key) || key == FOLDER || follows(key, index))
    };
    let labels: Vec<(usize, String)> = chosen.iter().map(|&index| (index, label(index))).collect();
    let families: Vec<String> = labels.iter().map(|(i, _)| family(&manifest.series[*i])).collect();
    let looks = looks(
        &labels
            .iter()
            .zip(&families)
            .map(|((_, label), family)| (label.as_str(), if by_algorithm { "" } else { family.as_str() }))
            .collect::<Vec<_>>(),
    );
    let mut panels: Vec<(Option<&Value>, Panel)> = Vec::new();
    for ((index, label), look) in labels.into_iter().zip(looks) {
        let value = figure.panels.as_deref().and_then(|key| setting(index, key));
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
pub(super) fn panel_title(
    key: &str,
    index: usize,
    chosen: &[usize],
    across: Option<&str>,
    manifest: &Manifest,
) -> String {
    let setting = |i: usize, key: &str| manifest.series[i].settings.get(key);
    let same = |i: &&usize| setting(**i, key) == setting(index, key);
    let with = |other: &&str| {
        *other != key
            && !other.starts_with("algorithm.")
            && Some(*other) != across
            && chosen.iter().filter(same).all(|i| setting(*i, other) == setting(index, other))
            && chosen.iter().any(|i| setting(*i, other) != setting(index, other))
    };
    let part = |key: &str| format!("{} = {}", words::symbol(key), manifest.series[index].words(key));
    let swept = manifest.series[index].swept.iter().map(String::as_str).filter(with).map(part);
    std::iter::once(part(key)).chain(swept).collect::<Vec<_>>().join(", ")
}

/// What series have in common that share a colour: the name that somebody gave them, or the algorithm. Where
/// folders are compared, it is the algorithm in any case, which stands for the series there.
fn family(series: &Series) -> String {
    let own = series.settings.get("algorithm.label").filter(|_| !series.settings.contains_key(FOLDER));
    own.map_or_else(|| series.algorithm.clone(), Value::to_string)
}

/// One look per label: colour by family and dashes by variant where that is clear, else both by order.
pub(super) fn looks(labels: &[(&str, &str)]) -> Vec<Look> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_its_own_is_a_family_of_its_own() {
        let series = |settings: &[(&str, &str)]| Series {
            name: "AB/Push-Pull".into(),
            label: "AB/Push-Pull cr=0.4".into(),
            algorithm: "push-pull".into(),
            settings: settings.iter().map(|(key, value)| (key.to_string(), (*value).into())).collect(),
            swept: Vec::new(),
            warnings: Vec::new(),
        };
        let label = ("algorithm.label", "validation only");
        assert_eq!(family(&series(&[])), "push-pull");
        assert_eq!(family(&series(&[label])), "validation only");
        assert_eq!(family(&series(&[label, (FOLDER, "a")])), "push-pull", "folders are told apart by dashes");
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
}
