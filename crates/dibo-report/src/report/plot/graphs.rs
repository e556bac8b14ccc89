//! Pictures that are not plots of runs: directed graphs, and tables with shades.
use super::FONT;
use super::look::COLOURS;
use super::picture::{Picture, finish, text};
use anyhow::{Result, bail};
use kuva::render::color::Color;
use kuva::render::render::{PathData, Primitive, Scene, TextAnchor};

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
