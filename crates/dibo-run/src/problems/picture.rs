//! The picture of a cleaning: the images that look wrong the most, with the label they were given and what
//! they are.
use dibo::data::Dealt;
use dibo::rows::{Real, View};
use dibo_report::report::base64;
use std::fmt::Write;

const COLUMNS: usize = 12;
const ROWS: usize = 4;

/// The samples with the lowest weights as SVG; nothing if there are no sample weights or they have not moved.
pub fn lowest<T: Real>(dealt: &Dealt, views: &[View<'_, T>]) -> Option<String> {
    let x = views.iter().find(|v| v.name == "x")?;
    let hands = &dealt.hands;
    if views.iter().all(|v| v.name != "y")
        || x.columns.is_some()
        || (0..hands.len()).any(|i| x.row(i).len() != hands[i].train.len())
    {
        return None;
    }
    let mut samples: Vec<(f64, usize, usize)> = (0..hands.len())
        .flat_map(|i| x.row(i).iter().enumerate().map(move |(j, psi)| (psi.f64(), i, j)))
        .collect();
    samples.sort_by(|a, b| a.0.total_cmp(&b.0));
    if samples.first()?.0 == samples.last()?.0 {
        return None;
    }
    let side = (dealt.data.pixels() as f64).sqrt() as u32;
    let most = samples.iter().take(SHOWN).map(|(psi, agent, j)| {
        let hand = &hands[*agent];
        let truth = dealt.data.labels()[hand.train[*j] as usize];
        Shown {
            png: png(dealt.data.image(hand.train[*j] as usize), (side, side), 1),
            first: format!("given {}, is {truth}", hand.given[*j]),
            second: format!(
                "{}, σ {:.2}",
                if hand.wrong[*j] { "flipped" } else { "right" },
                1.0 / (1.0 + (-psi).exp())
            ),
            good: Some(hand.wrong[*j]),
        }
    });
    drawn(&format!("the {SHOWN} training images with the lowest weights"), most)
}

/// How many images are shown.
pub const SHOWN: usize = COLUMNS * ROWS;

/// An image with two lines below it.
pub struct Shown {
    /// The image.
    pub png: Option<Vec<u8>>,
    /// What it was given as.
    pub first: String,
    /// What is said of it.
    pub second: String,
    /// Whether that is true, where it is known.
    pub good: Option<bool>,
}

/// Inks of what stands below an image, on a light page and on a dark one.
const INKS: &str = ":root{color-scheme:light dark}\
    .given{fill:#666}.good{fill:#1a7f37}.bad{fill:#b35900}.said{fill:#333}\
    @media screen and (prefers-color-scheme:dark){\
    .given{fill:#a3adb7}.good{fill:#4ac26b}.bad{fill:#f0883e}.said{fill:#e4e7ea}}";

/// Images side by side as SVG, in cells that a page can wrap; nothing if there are none.
pub fn drawn(title: &str, images: impl Iterator<Item = Shown>) -> Option<String> {
    let images: Vec<Shown> = images.take(SHOWN).collect();
    let rows = images.len().div_ceil(COLUMNS);
    if rows == 0 {
        return None;
    }
    let cell = (84, 104);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" data-cell=\"{} {}\" \
        font-family=\"sans-serif\" font-size=\"11\"><title>{title}</title><style>{INKS}</style>",
        COLUMNS * cell.0,
        rows * cell.1,
        cell.0,
        cell.1
    );
    for (place, shown) in images.into_iter().enumerate() {
        let (left, top) = (4 + place % COLUMNS * cell.0, 8 + place / COLUMNS * cell.1);
        let ink = match shown.good {
            Some(true) => "good",
            Some(false) => "bad",
            None => "said",
        };
        write!(
            svg,
            "<image x=\"{left}\" y=\"{top}\" width=\"64\" height=\"64\" style=\"image-rendering:pixelated\" \
            href=\"data:image/png;base64,{}\"/>\
             <text x=\"{left}\" y=\"{}\" class=\"given\">{}</text><text x=\"{left}\" \
             y=\"{}\" class=\"{ink}\">{}</text>",
            base64(&shown.png?),
            top + 77,
            escaped(&shown.first),
            top + 90,
            escaped(&shown.second),
        )
        .ok()?;
    }
    Some(svg + "</svg>")
}

/// A text within SVG: classes may be called anything.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

/// Grey or colour pixels as PNG.
pub fn png(pixels: &[u8], (width, height): (u32, u32), channels: usize) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(if channels == 3 { png::ColorType::Rgb } else { png::ColorType::Grayscale });
    encoder.write_header().ok()?.write_image_data(pixels).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_are_as_high_as_their_rows_and_escape_the_names_of_classes() {
        let shown = |n: usize| {
            (0..n).map(|_| Shown {
                png: png(&[7], (1, 1), 1),
                first: "given <8 & more".into(),
                second: "→ >8".into(),
                good: None,
            })
        };
        let svg = drawn("title", shown(13)).unwrap();
        assert!(svg.contains("viewBox=\"0 0 1008 208\" data-cell=\"84 104\""), "{svg}");
        assert!(svg.contains("given &lt;8 &amp; more") && svg.matches("<image ").count() == 13, "{svg}");
        assert!(drawn("title", shown(0)).is_none());
    }
}
