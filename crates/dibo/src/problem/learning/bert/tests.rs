use super::*;
use rand::RngExt;

fn small(pool: Pool, layers: usize) -> Bert {
    Bert {
        vocabulary: 11,
        positions: 9,
        types: 2,
        hidden: 8,
        layers,
        heads: 2,
        intermediate: 12,
        epsilon: 1e-12,
        pool,
    }
}

/// Texts of 7 places with 7, 3 and 1 tokens.
fn texts() -> Vec<Vec<u8>> {
    let mut r = stream(4, Purpose::Instance, 0, 0);
    let mut text = |used: usize| {
        (0..7).flat_map(|t| (if t < used { r.random_range(1..11u16) } else { 0 }).to_le_bytes()).collect()
    };
    vec![text(7), text(3), text(1)]
}

fn parameters(bert: &Bert) -> Vec<f64> {
    let mut r = stream(9, Purpose::Noise, 0, 0);
    // Far larger than BERT's start, so that no part of the network is nearly linear.
    bert.start(2, 1).iter().map(|v| v + r.random_range(-0.5..0.5)).collect()
}

/// Σ c ∘ scores.
fn value(bert: &Bert, w: &[f64], c: &[f64]) -> f64 {
    let mut workspace = Workspace::new(*bert, 2, 7, 3);
    texts().iter().enumerate().for_each(|(r, text)| workspace.load(r, text));
    let mut out = vec![0.0; 3 * 4];
    workspace.forward(3, w, &mut out, 4);
    (0..3).flat_map(|r| (0..2).map(move |k| (r, k))).map(|(r, k)| c[r * 4 + k] * out[r * 4 + k]).sum()
}

/// Embeddings are what the head sees: with it they give the scores.
#[test]
fn embeddings_are_what_the_head_sees() {
    let bert = small(Pool::Mean, 2);
    let (w, texts) = (bert.start(1, 3), texts());
    let numbers = embed(bert, &w, 7, &texts.concat());
    assert_eq!(numbers.len(), 3 * bert.hidden);
    let places = bert.places(1);
    for (row, text) in texts.iter().enumerate() {
        let own = &numbers[row * bert.hidden..(row + 1) * bert.hidden];
        assert_eq!(own, &embed(bert, &w, 7, text)[..], "a text's numbers do not depend on others");
        let mut workspace = Workspace::new(bert, 1, 7, 1);
        workspace.load(0, text);
        let mut score = [0.0];
        workspace.forward(1, &w, &mut score, 1);
        let head = &w[places.head.weight.clone()];
        let sum = own.iter().zip(head).map(|(n, h)| n * h).sum::<f64>() + w[places.head.bias.start];
        assert!((score[0] - sum).abs() < 1e-12);
    }
}

#[test]
fn every_gradient_is_that_of_finite_differences() {
    for bert in [small(Pool::First, 2), small(Pool::Mean, 1)] {
        let (w, c) = (parameters(&bert), [0.7, -0.3, 0.0, 0.0, 0.2, 0.9, 0.0, 0.0, -1.1, 0.4, 0.0, 0.0]);
        let mut workspace = Workspace::new(bert, 2, 7, 3);
        texts().iter().enumerate().for_each(|(r, text)| workspace.load(r, text));
        workspace.forward(3, &w, &mut [0.0; 12], 4);
        let mut g = vec![f64::NAN; w.len()];
        workspace.backward(3, &w, &c, 4, &mut g, false);
        let (mut wrong, mut size) = (0.0f64, 0.0f64);
        let step = 1e-5;
        for i in 0..w.len() {
            let at = |by: f64| {
                let mut moved = w.clone();
                moved[i] += by;
                value(&bert, &moved, &c)
            };
            // Fourth order: what is left is rounding.
            let slope = (8.0 * (at(step) - at(-step)) - (at(2.0 * step) - at(-2.0 * step))) / (12.0 * step);
            wrong += (slope - g[i]).powi(2);
            size += slope * slope;
            assert!((slope - g[i]).abs() < 1e-6, "parameter {i}: {slope} and {}", g[i]);
        }
        assert!(wrong.sqrt() <= 1e-7 * size.sqrt(), "{} of {}", wrong.sqrt(), size.sqrt());
    }
}

#[test]
fn gradients_of_pieces_add_up_and_padding_is_not_seen() {
    let bert = small(Pool::Mean, 2);
    let w = parameters(&bert);
    let c = [0.7, -0.3, 0.2, 0.9, -1.1, 0.4];
    let run = |rows: &[usize], add: &mut Vec<f64>, first: bool| {
        let mut workspace = Workspace::new(bert, 2, 7, rows.len());
        rows.iter().enumerate().for_each(|(r, text)| workspace.load(r, &texts()[*text]));
        let mut out = vec![0.0; rows.len() * 2];
        workspace.forward(rows.len(), &w, &mut out, 2);
        let c: Vec<f64> = rows.iter().flat_map(|r| c[2 * r..2 * r + 2].iter().copied()).collect();
        workspace.backward(rows.len(), &w, &c, 2, add, !first);
        out
    };
    let (mut whole, mut parts) = (vec![0.0; w.len()], vec![0.0; w.len()]);
    let all = run(&[0, 1, 2], &mut whole, true);
    let each: Vec<f64> = (0..3).flat_map(|r| run(&[r], &mut parts, r == 0)).collect();
    assert!(all.iter().zip(&each).all(|(a, b)| (a - b).abs() < 1e-12));
    assert!(whole.iter().zip(&parts).all(|(a, b)| (a - b).abs() < 1e-11));
    // The padding token's own vector and the places behind the last one get no gradient.
    let p = bert.places(2);
    assert!(whole[p.words.start..p.words.start + 8].iter().all(|g| *g == 0.0));
    assert!(whole[p.positions.start + 7 * 8..p.positions.end].iter().all(|g| *g == 0.0));
    assert!(whole[p.positions.start + 6 * 8..p.positions.start + 7 * 8].iter().any(|g| *g != 0.0));
}

#[test]
fn single_precision_is_near() {
    let bert = small(Pool::First, 2);
    let w = parameters(&bert);
    let narrow: Vec<f32> = w.iter().map(|v| *v as f32).collect();
    let (mut wide, mut single) = (Workspace::<f64>::new(bert, 2, 7, 3), Workspace::<f32>::new(bert, 2, 7, 3));
    for (r, text) in texts().iter().enumerate() {
        wide.load(r, text);
        single.load(r, text);
    }
    let (mut a, mut b) = (vec![0.0f64; 6], vec![0.0f32; 6]);
    wide.forward(3, &w, &mut a, 2);
    single.forward(3, &narrow, &mut b, 2);
    assert!(a.iter().zip(&b).all(|(a, b)| (a - f64::from(*b)).abs() < 1e-4));
}

#[test]
fn known_sizes() {
    let base = Bert {
        vocabulary: 30522,
        positions: 512,
        types: 2,
        hidden: 768,
        layers: 12,
        heads: 12,
        intermediate: 3072,
        epsilon: 1e-12,
        pool: Pool::First,
    };
    // bert-base-uncased has 109,482,240 parameters, of which the pooler's 590,592 are not used here.
    assert_eq!(base.places(2).head.weight.start, 109_482_240 - 590_592);
    assert!(base.check().is_ok());
    assert!(Bert { heads: 5, ..base }.check().unwrap_err().contains("heads"));
    assert_eq!(tokens(&[5, 0, 0, 1, 0, 0]).1, 2);
    assert_eq!(tokens(&[0, 0, 0, 0]).1, 1);
}

/// By hand: 3 layers of 4·8·8 + 2·8·12 products for a token, and 2·7·8 with the others.
#[test]
fn operations_are_counted() {
    assert_eq!(small(Pool::Mean, 3).flops(7), 6 * 7 * 3 * (256 + 192 + 112));
}

/// None of a size, one too many, and sizes that do not divide each other: each alone is refused.
#[test]
fn sizes_that_make_no_sense_are_named() {
    let right = small(Pool::Mean, 3);
    let says = |bert: Bert| bert.check().err().unwrap_or_default();
    assert_eq!(says(right), "");
    for (key, most, set) in [
        ("vocab_size", 1 << 16, (|b, to| b.vocabulary = to) as fn(&mut Bert, usize)),
        ("max_position_embeddings", 1 << 16, |b, to| b.positions = to),
        ("type_vocab_size", 1 << 10, |b, to| b.types = to),
        ("hidden_size", 1 << 14, |b, to| b.hidden = to),
        ("num_hidden_layers", 1 << 10, |b, to| b.layers = to),
        ("num_attention_heads", 1 << 10, |b, to| b.heads = to),
        ("intermediate_size", 1 << 16, |b, to| b.intermediate = to),
    ] {
        let with = |to: usize| {
            let mut bert = right;
            set(&mut bert, to);
            says(bert)
        };
        for wrong in [0, most + 1] {
            assert_eq!(with(wrong), format!("{key} is {wrong}; it must be between 1 and {most}"));
        }
        assert!(!with(most).contains("between"), "{key}");
    }
    for bert in [Bert { heads: 3, ..right }, Bert { hidden: 6, ..right }, Bert { intermediate: 10, ..right }]
    {
        assert!(says(bert).contains("must be a multiple of the"), "{bert:?}");
    }
    for epsilon in [-1e-12, 1.0, f64::NAN] {
        assert!(says(Bert { epsilon, ..right }).starts_with("layer_norm_eps is"), "{epsilon}");
    }
    assert_eq!(says(Bert { epsilon: 0.0, ..right }), "");
}
