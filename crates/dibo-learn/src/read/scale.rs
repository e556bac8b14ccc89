//! Images of another size.

/// For each new place the old ones that it is made of, with weights that add up to 1: a triangle as wide as
/// the step between new places, so that nothing is left out where images become smaller.
fn weights(from: usize, to: usize) -> Vec<(usize, Vec<f32>)> {
    let step = from as f64 / to as f64;
    let reach = step.max(1.0);
    let one = |place: usize| {
        let middle = (place as f64 + 0.5) * step - 0.5;
        let first = (middle - reach).ceil().max(0.0) as usize;
        let last = ((middle + reach).floor().max(0.0) as usize).min(from - 1);
        let all: Vec<f64> =
            (first..=last).map(|p| (1.0 - (p as f64 - middle).abs() / reach).max(0.0)).collect();
        let sum: f64 = all.iter().sum();
        (first, all.iter().map(|w| (w / sum) as f32).collect())
    };
    (0..to).map(one).collect()
}

/// An image of width, height and channels, row by row, in another width and height.
pub(super) fn scale(image: &[f32], from: (usize, usize, usize), to: (usize, usize)) -> Vec<f32> {
    let (width, height, channels) = from;
    let mut narrow = vec![0.0; to.0 * height * channels];
    let across = weights(width, to.0);
    for row in 0..height {
        for (x, (first, weights)) in across.iter().enumerate() {
            for (w, weight) in weights.iter().enumerate() {
                for c in 0..channels {
                    narrow[(row * to.0 + x) * channels + c] +=
                        weight * image[(row * width + first + w) * channels + c];
                }
            }
        }
    }
    let line = to.0 * channels;
    let mut out = vec![0.0; line * to.1];
    for (y, (first, weights)) in weights(height, to.1).iter().enumerate() {
        for (w, weight) in weights.iter().enumerate() {
            let from = &narrow[(first + w) * line..][..line];
            out[y * line..][..line].iter_mut().zip(from).for_each(|(o, v)| *o += weight * v);
        }
    }
    out
}
