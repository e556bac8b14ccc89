//! The picture of a cleaning: the training images that got the lowest weights, with the label they were given
//! and the true one.
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
    let (cell, side) = ((78, 104), (dealt.data.pixels() as f64).sqrt() as u32);
    let size = (COLUMNS * cell.0 + 8, ROWS * cell.1 + 8);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" \
        font-size=\"11\">\
        <title>the {} training images with the lowest weights</title>",
        size.0,
        size.1,
        COLUMNS * ROWS
    );
    for (place, (psi, agent, j)) in samples.iter().take(COLUMNS * ROWS).enumerate() {
        let (left, top) = (8 + place % COLUMNS * cell.0, 8 + place / COLUMNS * cell.1);
        let hand = &hands[*agent];
        let image = png(dealt.data.image(hand.train[*j] as usize), side)?;
        let (colour, mark) = if hand.wrong[*j] { ("#1a7f37", "flipped") } else { ("#b35900", "was right") };
        let truth = dealt.data.labels()[hand.train[*j] as usize];
        write!(
            svg,
            "<image x=\"{left}\" y=\"{top}\" width=\"64\" height=\"64\" style=\"image-rendering:pixelated\" \
            href=\"data:image/png;base64,{}\"/>\
             <text x=\"{left}\" y=\"{}\" fill=\"#777\">given {}, is {truth}</text><text x=\"{left}\" \
             y=\"{}\" fill=\"{colour}\">{mark}, σ {:.2}</text>",
            base64(&image),
            top + 77,
            hand.given[*j],
            top + 90,
            1.0 / (1.0 + (-psi).exp())
        )
        .ok()?;
    }
    Some(svg + "</svg>")
}

fn png(pixels: &[u8], side: u32) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, side, side);
    encoder.set_color(png::ColorType::Grayscale);
    encoder.write_header().ok()?.write_image_data(pixels).ok()?;
    Some(bytes)
}
