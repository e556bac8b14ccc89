//! Every direction against central differences of the losses, written here row by row; what stands still is
//! what it should be; sums of agents are metrics of all.
use super::super::bert::{Bert, Pool, scores};
use super::*;
use rand::RngExt;

const WIDTH: usize = 3;
const CLASSES: usize = 3;

/// Rows of agents with unlike numbers of given and checked rows; one has none checked.
fn sites(seed: u64) -> Vec<Arc<Site>> {
    let site = |(i, (given, checked, held)): (usize, (usize, usize, usize))| {
        let mut r = stream(seed, Purpose::Instance, i as u64, 0);
        let rows = given + checked + held;
        let truth: Vec<u8> = (0..rows).map(|_| r.random_range(0..CLASSES as u8)).collect();
        let features = truth.iter().flat_map(|t| {
            let centre: Vec<f64> = (0..WIDTH).map(|c| if c == *t as usize { 1.5 } else { 0.0 }).collect();
            centre.into_iter().map(|c| (c + r.random_range(-0.7..0.7)) as f32).collect::<Vec<_>>()
        });
        let features = features.collect();
        let flip = |t: u8, r: &mut rand_xoshiro::Xoshiro256PlusPlus| {
            if r.random::<f64>() < 0.3 { (t + 1) % CLASSES as u8 } else { t }
        };
        let labels = (0..rows).map(|j| if j < given { flip(truth[j], &mut r) } else { truth[j] }).collect();
        Arc::new(Site {
            features,
            labels,
            given,
            checked,
            truth: truth[..given].iter().map(|t| Some((*t).into())).collect(),
        })
    };
    [(7, 2, 1), (4, 0, 0), (9, 3, 2)].into_iter().enumerate().map(site).collect()
}

fn totals(sites: &[Arc<Site>]) -> Totals {
    let sum = |of: fn(&Site) -> usize| sites.iter().map(|s| of(s) as f64).sum();
    Totals { given: sum(|s| s.given), checked: sum(|s| s.checked) }
}

fn net(model: Model) -> Net {
    let bytes = if matches!(model, Model::Bert(_)) { 2 } else { 1 };
    Net { pixels: bytes * WIDTH, classes: CLASSES, model }
}

/// A BERT for texts of three tokens.
const BERT: Model = Model::Bert(Bert {
    vocabulary: 7,
    positions: WIDTH,
    types: 1,
    hidden: 4,
    layers: 1,
    heads: 2,
    intermediate: 4,
    epsilon: 0.01,
    pool: Pool::Mean,
});

/// Sites with texts, every other one shorter by a token.
fn texts(seed: u64) -> Vec<Arc<Site>> {
    let text = |(j, row): (usize, &[f32])| {
        let token = |v: &f32| (1.0 + 2.0 * v.abs()).floor().min(6.0);
        [token(&row[0]), token(&row[1]), if j % 2 == 0 { 0.0 } else { token(&row[2]) }]
    };
    let tokens = |s: &Arc<Site>| {
        let features = s.features.chunks(WIDTH).enumerate().flat_map(text).collect();
        Arc::new(Site { features, ..(**s).clone() })
    };
    sites(seed).iter().map(tokens).collect()
}

fn problem(model: Model, way: Way, learn_tau: bool) -> Labels<f64> {
    let sites = if model == BERT { texts(3) } else { sites(3) };
    let choices = Choices {
        tau: 0.05,
        batch: 0,
        checked_batch: 0,
        warm: 0,
        matrix_rate: 0.7,
        learn_tau,
        ..Choices::default()
    };
    Labels::new(sites.clone(), net(model), way, choices, totals(&sites), 5).unwrap()
}

/// A model's probabilities for a row, by the definition.
fn probabilities(model: Model, w: &[f64], row: &[f32]) -> Vec<f64> {
    let x: Vec<f64> = row.iter().map(|v| f64::from(*v)).chain([1.0]).collect();
    let scores: Vec<f64> = match model {
        Model::Bert(bert) => scores(bert, w, CLASSES, WIDTH, row),
        Model::Mlp(h) => {
            let hidden = |u: usize| (0..x.len()).map(|i| x[i] * w[i * h + u]).sum::<f64>().max(0.0);
            let hidden: Vec<f64> = (0..h).map(hidden).chain([1.0]).collect();
            let second = &w[x.len() * h..];
            let score = |c: usize| (0..=h).map(|u| hidden[u] * second[c * (h + 1) + u]).sum();
            (0..CLASSES).map(score).collect()
        }
        _ => (0..CLASSES).map(|c| (0..x.len()).map(|i| x[i] * w[c * x.len() + i]).sum()).collect(),
    };
    let sum: f64 = scores.iter().map(|s| s.exp()).sum();
    scores.iter().map(|s| s.exp() / sum).collect()
}

fn softmax_rows(logits: &[f64]) -> Vec<f64> {
    logits
        .chunks(CLASSES)
        .flat_map(|row| {
            let sum: f64 = row.iter().map(|v| v.exp()).sum();
            row.iter().map(move |v| v.exp() / sum)
        })
        .collect()
}

fn row(site: &Site, j: usize) -> &[f32] {
    &site.features[j * WIDTH..(j + 1) * WIDTH]
}

/// An agent's part of the checked loss: its mean over agents is the mean over all rows.
fn checked_loss(p: &Labels<f64>, i: usize, w: &[f64]) -> f64 {
    let s = &p.sites[i];
    let rows = s.given..s.given + s.checked;
    let loss = |j: usize| {
        let q = probabilities(p.net.model, w, row(s, j));
        let even = -q.iter().map(|q| q.ln()).sum::<f64>() / CLASSES as f64;
        let e = p.choices.smoothing;
        -(1.0 - e) * q[s.labels[j] as usize].ln() + e * even
    };
    let sum: f64 = rows.map(loss).sum();
    3.0 * sum / p.totals.checked
}

/// The same of the given loss, by T or by weights.
fn given_loss(p: &Labels<f64>, i: usize, w: &[f64], t: Option<&[f64]>, weights: Option<&[f64]>) -> f64 {
    let s = &p.sites[i];
    let loss = |j: usize| {
        let (q, g) = (probabilities(p.net.model, w, row(s, j)), s.labels[j] as usize);
        let probability = match t {
            Some(t) => (0..CLASSES).map(|c| q[c] * t[c * CLASSES + g]).sum(),
            None => q[g],
        };
        -probability.ln() * weights.map_or(1.0, |x| sigmoid(x[j]))
    };
    3.0 * (0..s.given).map(loss).sum::<f64>() / p.totals.given
}

fn square(w: &[f64]) -> f64 {
    w.iter().map(|v| v * v).sum()
}

fn numeric(at: &[f64], value: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    (0..at.len())
        .map(|c| {
            let shifted = |by: f64| {
                let mut v = at.to_vec();
                v[c] += by;
                value(&v)
            };
            (shifted(1e-6) - shifted(-1e-6)) / 2e-6
        })
        .collect()
}

fn near(a: &[f64], b: &[f64]) {
    assert_eq!(a.len(), b.len());
    for (a, b) in a.iter().zip(b) {
        assert!((a - b).abs() < 2e-8 + 1e-6 * b.abs(), "{a} {b}");
    }
}

fn random(len: usize, seed: u64) -> Vec<f64> {
    let mut r = stream(seed, Purpose::Start, 9, 0);
    (0..len).map(|_| r.random_range(-0.8..0.8)).collect()
}

const MODELS: [Model; 3] = [Model::Linear, Model::Mlp(4), BERT];

#[test]
fn single_level_directions_are_gradients() {
    for model in MODELS {
        for way in [Way::CleanOnly, Way::Noisy, Way::Joint] {
            let p = problem(model, way, false);
            let v = random(SingleLevel::width(&p), 4);
            let n = p.net.width();
            for i in 0..3 {
                let mut d = vec![f64::NAN; v.len()];
                p.single(i, 0, &v, &mut d);
                let value = |v: &[f64]| {
                    let t = (way == Way::Joint).then(|| softmax_rows(&v[n..]));
                    let given = if way == Way::CleanOnly { 0.0 } else { 1.0 };
                    checked_loss(&p, i, &v[..n])
                        + given * given_loss(&p, i, &v[..n], t.as_deref(), None)
                        + 0.025 * square(&v[..n])
                };
                let mut expected = numeric(&v, value);
                expected[n..].iter_mut().for_each(|g| *g *= 0.7);
                near(&d, &expected);
            }
        }
    }
}

/// EM moves the model as the joint way does at the same T, and its counts stand still where they are the
/// posteriors' own.
/// What it asks for in iterations that wait, and later.
#[test]
fn a_way_asks_for_its_own_loss() {
    let t = vec![1.0 / 3.0; CLASSES * CLASSES];
    let (beside, warm_weight) = (0.2, 0.3);
    for way in Way::ALL {
        let mut p = problem(Model::Linear, way, false);
        (p.choices.warm, p.choices.warm_weight, p.choices.checked_weight) = (5, warm_weight, beside);
        for (k, from) in [(4, From::Given), (4, From::Checked), (5, From::Given)] {
            p.choices.from = from;
            let asked = p.asked_single(2, k, &t);
            let name = match asked.loss {
                Loss::Label => "label",
                Loss::Agreed => "agreed",
                Loss::Matrix(_) => "matrix",
                Loss::Nothing => "nothing",
                Loss::Gold => "gold",
            };
            let expected = match (way, k == 4) {
                (Way::CleanOnly, _) => ("label", (1.0, 0.0)),
                (Way::Noisy, _) | (Way::NoisyRounds, true) => ("label", (beside, 1.0)),
                (Way::Rounds, true) => ("label", (warm_weight, 0.0)),
                (Way::Rounds | Way::NoisyRounds, false) => ("agreed", (beside, 1.0)),
                (_, true) if from == From::Given => ("gold", (0.0, 1.0)),
                (_, true) => ("nothing", (warm_weight, 0.0)),
                (_, false) => ("matrix", (beside, 1.0)),
            };
            assert_eq!((name, asked.factors), expected, "{way:?} at {k}");
            assert_eq!((asked.agent, asked.k, asked.weights.len()), (2, k, 0));
        }
        assert!(Bilevel::second_order(&p).is_some());
        assert_eq!(SingleLevel::agents(&p), 3);
        assert_eq!(way.waits(), !matches!(way, Way::CleanOnly | Way::Noisy), "{way:?}");
    }
}

#[test]
fn em_is_the_m_step() {
    [Model::Mlp(4), BERT].into_iter().for_each(em_with);
}

fn em_with(model: Model) {
    let (em, joint) = (problem(model, Way::Em, false), problem(model, Way::Joint, false));
    let n = em.net.width();
    let w = random(n, 4);
    let counts: Vec<f64> = random(9, 6).iter().map(|v| v + 1.0).collect();
    let t = em.matrix(&counts);
    for c in 0..3 {
        let sum: f64 = counts[c * 3..][..3].iter().map(|v| v + 1e-6).sum();
        (0..3).for_each(|g| assert!((t[c * 3 + g] - (counts[c * 3 + g] + 1e-6) / sum).abs() < 1e-12));
    }
    let logits: Vec<f64> = t.iter().map(|t| t.ln()).collect();
    let mut mean = vec![0.0; 9];
    for i in 0..3 {
        let (mut a, mut b) = (vec![0.0; n + 9], vec![0.0; n + 9]);
        em.single(i, 0, &[w.clone(), counts.clone()].concat(), &mut a);
        joint.single(i, 0, &[w.clone(), logits.clone()].concat(), &mut b);
        near(&a[..n], &b[..n]);
        mean.iter_mut().zip(&a[n..]).for_each(|(m, d)| *m += d / 3.0);
    }
    let mut posterior = vec![0.0; 9];
    for s in &em.sites {
        for j in 0..s.given {
            let (q, g) = (probabilities(model, &w, row(s, j)), s.labels[j] as usize);
            let sum: f64 = (0..3).map(|c| q[c] * t[c * 3 + g]).sum();
            (0..3).for_each(|c| posterior[c * 3 + g] += q[c] * t[c * 3 + g] / sum / em.totals.given);
        }
    }
    let expected: Vec<f64> = counts.iter().zip(&posterior).map(|(c, p)| 0.7 * (c - p)).collect();
    near(&mean, &expected);
    assert!((posterior.iter().sum::<f64>() - 1.0).abs() < 1e-12);
}

/// Started from given rows, T's row of a class is the mean of what the model says of its checked rows, and
/// the model learns the labels as they are.
#[test]
fn a_start_from_given_rows_counts_checked_ones() {
    let sites = sites(3);
    let choices = Choices { batch: 0, checked_batch: 0, warm: 9, from: From::Given, ..Choices::default() };
    let totals = totals(&sites);
    let make = |way| Labels::new(sites.clone(), net(Model::Linear), way, choices, totals, 5).unwrap();
    let (gold, noisy): (Labels<f64>, Labels<f64>) =
        (make(Way::Gold), problem(Model::Linear, Way::Noisy, false));
    let n = gold.net.width();
    let (w, counts) = (random(n, 4), vec![0.2; 9]);
    let (mut expected, mut mean) = (vec![0.0; 9], vec![0.0; 9]);
    for (i, s) in sites.iter().enumerate() {
        let mut d = vec![0.0; n + 9];
        gold.single(i, 3, &[w.clone(), counts.clone()].concat(), &mut d);
        near(&d[..n], &numeric(&w, |w| given_loss(&noisy, i, w, None, None) + 0.5e-4 * square(w)));
        mean.iter_mut().zip(&d[n..]).for_each(|(m, d)| *m += d / 3.0);
        for j in s.given..s.given + s.checked {
            let q = probabilities(Model::Linear, &w, row(s, j));
            (0..3).for_each(|g| expected[s.labels[j] as usize * 3 + g] += q[g] / totals.checked);
        }
        // Afterwards T stays.
        gold.single(i, 9, &[w.clone(), counts.clone()].concat(), &mut d);
        assert!(d[n..].iter().all(|v| *v == 0.0));
    }
    let expected: Vec<f64> = expected.iter().map(|e| 0.2 - e).collect();
    near(&mean, &expected);
}

/// Before given rows are learned from, every way that starts from checked ones descends on their loss alone,
/// times its factor.
#[test]
fn a_start_from_checked_rows_counts_them_by_its_weight() {
    let sites = sites(3);
    let choices =
        Choices { tau: 0.0, batch: 0, checked_batch: 0, warm: 9, warm_weight: 0.3, ..Choices::default() };
    let make =
        |way| Labels::<f64>::new(sites.clone(), net(Model::Linear), way, choices, totals(&sites), 5).unwrap();
    let (n, clean) = (net(Model::Linear).width(), make(Way::CleanOnly));
    let w = random(n, 4);
    for (i, site) in sites.iter().enumerate() {
        let mut expected = vec![0.0; n];
        clean.single(i, 3, &w, &mut expected);
        expected.iter_mut().for_each(|v| *v *= 0.3);
        for way in [Way::Rounds, Way::Em, Way::Joint] {
            let numbers = if way.has_matrix() { vec![0.2; 9] } else { Vec::new() };
            let mut d = vec![0.0; n + numbers.len()];
            make(way).single(i, 3, &[w.clone(), numbers].concat(), &mut d);
            near(&d[..n], &expected);
        }
        for way in [Way::Bilevel, Way::Weights] {
            let p = make(way);
            let width = if way == Way::Weights { site.given } else { 9 };
            let (x, mut dx, mut dy, mut dz) =
                (vec![0.2; width], vec![0.0; width], vec![0.0; n], vec![0.0; n]);
            p.directions(i, 3, Penalty { f: 1.0, g: 1.0 }, [&x, &w, &w], [&mut dx, &mut dy, &mut dz]);
            near(&dy, &expected);
            near(&dz, &expected);
        }
    }
}

/// With counts of its own an agent moves as all do in EM if all have the same, and its counts go to those of
/// its own rows.
#[test]
fn own_counts_are_those_of_own_rows() {
    let (own, em) = (problem(Model::Linear, Way::EmOwn, false), problem(Model::Linear, Way::Em, false));
    let n = own.net.width();
    let (w, counts) = (random(n, 4), random(9, 6).iter().map(|v| v + 1.0).collect::<Vec<f64>>());
    for i in 0..3 {
        let (mut dx, mut dy, mut dz) = (vec![0.0; 9], vec![0.0; n], vec![1.0; n]);
        own.directions(i, 0, Penalty { f: 1.0, g: 1.0 }, [&counts, &w, &w], [&mut dx, &mut dy, &mut dz]);
        let mut d = vec![0.0; n + 9];
        em.single(i, 0, &[w.clone(), counts.clone()].concat(), &mut d);
        near(&dy, &d[..n]);
        assert!(dz.iter().all(|v| *v == 0.0));
        let share = 3.0 * own.sites[i].given as f64 / own.totals.given;
        for c in 0..9 {
            let theirs = counts[c] - d[n + c] / 0.7;
            assert!((dx[c] - (counts[c] - theirs / share)).abs() < 1e-12);
        }
    }
}

#[test]
fn bilevel_gradients_and_directions() {
    for model in MODELS {
        // A BERT has many numbers to try, and the ways differ at its scores alone.
        let some = |way: &Way| {
            model != BERT || matches!(way, Way::Bilevel | Way::Weights | Way::Trust | Way::TauClasses)
        };
        for way in Way::ALL.into_iter().filter(|w| w.is_bilevel() && *w != Way::EmOwn && some(w)) {
            let several = matches!(way, Way::TauColumns | Way::TauClasses);
            for learn_tau in [false, true].into_iter().take(if several || model == BERT { 1 } else { 2 }) {
                let p = problem(model, way, learn_tau).columns(&[2, WIDTH - 2]);
                let n = p.net.width();
                for i in 0..3 {
                    let upper = match p.upper() {
                        Upper::Shared(width) => width,
                        Upper::Private(widths) => widths[i],
                    };
                    let (x, y, z) = (random(upper, 1), random(n, 2), random(n, 3));
                    let g = |x: &[f64], y: &[f64]| {
                        if several {
                            let of = p.regularisers.as_ref().unwrap();
                            let each = y.iter().zip(of).map(|(y, g)| x[*g as usize].exp() / 2.0 * y * y);
                            return given_loss(&p, i, y, None, None) + each.sum::<f64>();
                        }
                        let learned = learn_tau || way == Way::Tau;
                        let tau = if learned { x[x.len() - 1].exp() } else { 0.05 };
                        let t = way.has_matrix().then(|| softmax_rows(&x[..9]));
                        let s = &p.sites[i];
                        let weights: Option<Vec<f64>> = match way {
                            Way::Weights => Some(x[..s.given].to_vec()),
                            Way::ClassWeights => {
                                Some(s.labels[..s.given].iter().map(|l| x[*l as usize]).collect())
                            }
                            Way::Trust => Some(vec![x[0]; s.given]),
                            _ => None,
                        };
                        given_loss(&p, i, y, t.as_deref(), weights.as_deref()) + tau / 2.0 * square(y)
                    };
                    let (mut gx, mut gy) = (vec![f64::NAN; upper], vec![f64::NAN; n]);
                    p.grad_g(i, 0, &x, &y, &mut gx, &mut gy).unwrap();
                    near(&gx, &numeric(&x, |x| g(x, &y)));
                    near(&gy, &numeric(&y, |y| g(&x, y)));
                    let (mut fx, mut fy) = (vec![f64::NAN; upper], vec![f64::NAN; n]);
                    p.grad_f(i, 0, &x, &y, &mut fx, &mut fy).unwrap();
                    near(&fx, &vec![0.0; upper]);
                    near(&fy, &numeric(&y, |y| checked_loss(&p, i, y)));
                    let (mut dx, mut dy, mut dz) = (vec![0.0; upper], vec![0.0; n], vec![0.0; n]);
                    p.directions(i, 0, Penalty { f: 0.3, g: 2.0 }, [&x, &y, &z], [&mut dx, &mut dy, &mut dz]);
                    near(&dx, &numeric(&x, |x| 2.0 * (g(x, &y) - g(x, &z))));
                    near(&dy, &numeric(&y, |y| 0.3 * checked_loss(&p, i, y) + 2.0 * g(&x, y)));
                    near(&dz, &numeric(&z, |z| 2.0 * g(&x, z)));
                }
            }
        }
    }
}

/// As long as T follows y, x has y's part alone and a regulariser waits; then all is as ever.
#[test]
fn the_upper_level_can_wait_until_t_has_followed_y() {
    let (sites, penalty) = (sites(3), Penalty { f: 0.3, g: 2.0 });
    for way in [Way::Bilevel, Way::BilevelOwn] {
        let make = |jointly| -> Labels<f64> {
            let choices =
                Choices { tau: 0.05, batch: 3, warm: 1, jointly, learn_tau: true, ..Choices::default() };
            Labels::new(sites.clone(), net(Model::Linear), way, choices, totals(&sites), 5).unwrap()
        };
        let (waits, plain) = (make(3), make(0));
        let n = plain.net.width();
        let (x, y, z) = (random(10, 1), random(n, 2), random(n, 3));
        for (i, k) in [0, 1, 2].into_iter().flat_map(|i| [0, 1, 2, 3].map(|k| (i, k))) {
            let of = |p: &Labels<f64>| {
                let mut d = [vec![7.0; 10], vec![7.0; n], vec![7.0; n]];
                let [dx, dy, dz] = &mut d;
                p.directions(i, k, penalty, [&x, &y, &z], [dx, dy, dz]);
                d
            };
            let mut expected = of(&plain);
            if k == 1 || k == 2 {
                let mut gy = vec![0.0; n];
                plain.grad_g(i, k, &x, &y, &mut expected[0], &mut gy).unwrap();
                expected[0].iter_mut().for_each(|d| *d *= penalty.g);
                expected[0][9] = 0.0;
            }
            of(&waits).iter().zip(&expected).for_each(|(d, e)| near(d, e));
        }
    }
}

/// Every weight has the regulariser of its column, or of its class.
#[test]
fn regularisers_by_column_and_class() {
    let net = |model| Net { pixels: 3, classes: 2, model };
    assert_eq!(by_column(&net(Model::Linear), &[1, 2]), [0, 1, 1, 2, 0, 1, 1, 2]);
    assert_eq!(by_class(&net(Model::Linear)), [0, 0, 0, 0, 1, 1, 1, 1]);
    let mlp = net(Model::Mlp(2));
    assert_eq!(by_column(&mlp, &[1, 2]), [0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2]);
    assert_eq!(by_class(&mlp), [2, 2, 2, 2, 2, 2, 2, 2, 0, 0, 0, 1, 1, 1]);
    let Model::Bert(bert) = BERT else { return };
    let (text, places) = (by_class(&net(BERT)), bert.places(2));
    assert_eq!(text.len(), places.width);
    assert_eq!(text[places.head.weight], [0, 0, 0, 0, 1, 1, 1, 1]);
    assert_eq!(text[places.head.bias], [0, 1]);
    assert_eq!(text.iter().filter(|of| **of < 2).count(), 10);
}

/// Models start where they are told to, a BERT else at random; what a BERT cannot have is refused.
#[test]
fn a_bert_starts_where_it_is_told_to() {
    let p = problem(BERT, Way::Em, false);
    let n = p.net.width();
    assert_eq!(p.start().y[0][..n], p.net.start(5));
    assert_eq!(p.start().y[0].len(), n + CLASSES * CLASSES);
    let begin = random(n, 4);
    let p = p.begin_at(begin.clone()).unwrap();
    assert_eq!(p.start().y[0][..n], begin);
    assert!(p.begin_at(vec![0.0; n + 1]).is_err());
    let (sites, choices) = (texts(3), Choices::default());
    let make = |net: Net, way: Way| {
        Labels::<f64>::new(sites.clone(), net, way, choices, totals(&sites), 5).err().unwrap()
    };
    assert!(make(net(BERT), Way::TauColumns).contains("each column"));
    assert!(make(Net { pixels: 8, ..net(BERT) }, Way::Em).contains("4 tokens; the model takes 3"));
}

fn asked(agent: usize, k: usize) -> Asked<'static, f64> {
    Asked { agent, k, factors: (1.0, 1.0), loss: Loss::Label, weights: &[] }
}

/// Batches go through all rows of an agent, and their mean is the whole.
#[test]
fn batches_see_every_row_alike() {
    let sites = sites(3);
    let choices = Choices { batch: 3, checked_batch: 1, warm: 0, ..Choices::default() };
    let p: Labels<f64> =
        Labels::new(sites.clone(), net(Model::Linear), Way::Noisy, choices, totals(&sites), 5).unwrap();
    let whole = problem(Model::Linear, Way::Noisy, false);
    let w = random(p.net.width(), 8);
    for i in 0..3 {
        let (mut mean, mut all) = (vec![0.0; w.len()], vec![0.0; w.len()]);
        let rounds = 4 * 7 * 9 * 3 * 2;
        for k in 0..rounds {
            let mut d = vec![0.0; w.len()];
            p.gradient(&asked(i, k), &w, &mut d);
            mean.iter_mut().zip(&d).for_each(|(m, d)| *m += d / rounds as f64);
        }
        whole.gradient(&asked(i, 0), &w, &mut all);
        near(&mean, &all);
    }
}

#[test]
fn agreed_rows_alone_count() {
    let p = problem(Model::Linear, Way::Rounds, false);
    let w = random(p.net.width(), 8);
    for i in 0..3 {
        let s = &p.sites[i];
        let agreed: Vec<usize> = (0..s.given)
            .filter(|j| {
                let q = probabilities(Model::Linear, &w, row(s, *j));
                q.iter().all(|other| *other <= q[s.labels[*j] as usize])
            })
            .collect();
        let value = |w: &[f64]| {
            let loss = |j: &usize| -probabilities(Model::Linear, w, row(s, *j))[s.labels[*j] as usize].ln();
            checked_loss(&p, i, w)
                + 3.0 * agreed.iter().map(loss).sum::<f64>() / p.totals.given
                + 0.025 * square(w)
        };
        let mut d = vec![0.0; w.len()];
        p.single(i, 0, &w, &mut d);
        near(&d, &numeric(&w, value));
    }
}

#[test]
fn sums_of_agents_are_the_metrics_of_all() {
    let p = problem(Model::Linear, Way::Joint, false);
    let v = random(SingleLevel::width(&p), 4);
    let mut test = Site { given: 0, checked: 0, truth: Vec::new(), ..(*p.sites[2]).clone() };
    // The model is right about two rows of three.
    for j in 0..test.rows() {
        let q = probabilities(Model::Linear, &v, row(&test, j));
        let most = (0..CLASSES).fold(0, |best, c| if q[c] > q[best] { c } else { best });
        test.labels[j] = ((most + usize::from(j % 3 == 0)) % CLASSES) as u8;
    }
    let test = Arc::new(test);
    let p = p.test(test.clone());
    let t = softmax_rows(&v[p.net.width()..]);
    let noise = NoiseMatrix { t: t.clone(), shares: None };
    let sums = crate::metrics::added((0..3).map(|i| p.sums(i, (&v, &[]))));
    let values = measure::values(&sums);
    let get = |name: &str| values.iter().find(|v| v.0 == name).map(|v| v.1).unwrap();
    let (mut samples, mut suspicious, mut right, mut rows) = (Vec::new(), 0.0, 0.0, 0.0);
    for (i, s) in p.sites.iter().enumerate() {
        let verdicts = p.judge(i, measure::Speaker::Here(&v[..p.net.width()]), Some(&noise));
        for (j, verdict) in verdicts.iter().enumerate() {
            let (q, g) = (probabilities(Model::Linear, &v, row(s, j)), s.labels[j] as usize);
            let pair: Vec<f64> = (0..3).map(|c| q[c] * t[c * 3 + g]).collect();
            assert!((verdict.score - pair[g] / pair.iter().sum::<f64>()).abs() < 1e-12);
            assert!(q.iter().all(|v| *v <= q[verdict.suggested as usize]));
            samples.push((verdict.score, s.truth[j] != Some(s.labels[j].into())));
            suspicious += f64::from(u8::from(verdict.suggested != s.labels[j]));
            right += f64::from(u8::from(s.truth[j] == Some(verdict.suggested.into())));
            rows += 1.0;
        }
    }
    let exact = crate::problem::learning::Cleaning::of(samples);
    assert!((get("auc") - exact.auc).abs() < 0.01, "{} {}", get("auc"), exact.auc);
    assert_eq!(get("suspicious"), 100.0 * suspicious / rows);
    assert_eq!(get("right_after"), 100.0 * right / rows);
    let hits = (0..test.rows()).filter(|j| {
        let q = probabilities(Model::Linear, &v, row(&test, *j));
        q.iter().all(|other| *other <= q[test.labels[*j] as usize])
    });
    assert!((get("test_accuracy") - 100.0 * hits.count() as f64 / test.rows() as f64).abs() < 1e-9);
    let held: f64 = [0, 2]
        .iter()
        .flat_map(|i| {
            let s = &p.sites[*i];
            let p = &p;
            let v = &v;
            let loss = move |j: usize| {
                let own = probabilities(p.net.model, v, row(s, j))[s.labels[j] as usize];
                -(0.95 * own + 0.05 / 3.0).ln()
            };
            (s.given + s.checked..s.rows()).map(loss)
        })
        .sum();
    assert!((get("held_loss") - held / 3.0).abs() < 1e-9);
}

#[test]
fn wrong_values_are_refused() {
    let sites = sites(3);
    let make = |choices: Choices, classes: usize, totals: Totals| {
        Labels::<f64>::new(sites.clone(), Net { classes, ..net(Model::Linear) }, Way::Em, choices, totals, 5)
            .err()
            .unwrap()
    };
    let right = totals(&sites);
    assert!(make(Choices { tau: -1.0, ..Choices::default() }, 3, right).starts_with("tau"));
    assert!(make(Choices { tau: 0.0, learn_tau: true, ..Choices::default() }, 3, right).starts_with("tau"));
    assert!(make(Choices { matrix_rate: 0.0, ..Choices::default() }, 3, right).starts_with("matrix_rate"));
    assert!(make(Choices { warm_weight: 0.0, ..Choices::default() }, 3, right).starts_with("warm_weight"));
    assert!(make(Choices::default(), 1, right).contains("between 2 and 256"));
    assert!(make(Choices::default(), 2, right).contains("agent 0"));
    assert!(make(Choices::default(), 3, Totals::default()).contains("nobody has a checked row"));
}

#[test]
fn upper_variables_have_a_number_for_each_thing_that_is_decided() {
    for (learn_tau, more) in [(false, 0), (true, 1)] {
        for (way, upper) in [
            (Way::Bilevel, Upper::Shared(9 + more)),
            (Way::BilevelOwn, Upper::Private(vec![9 + more; 3])),
            (Way::Weights, Upper::Private(vec![7 + more, 4 + more, 9 + more])),
            (Way::ClassWeights, Upper::Shared(CLASSES + more)),
            (Way::Trust, Upper::Private(vec![1 + more; 3])),
            (Way::Tau, Upper::Shared(1)),
        ] {
            let p = problem(Model::Linear, way, learn_tau);
            assert_eq!((Bilevel::agents(&p), Bilevel::upper(&p)), (3, upper.clone()), "{way:?}");
            let start = p.start();
            for i in 0..start.x.len().min(1) * 3 {
                let x = Start::row(&start.x, i).unwrap();
                let width = match &upper {
                    Upper::Shared(width) => *width,
                    Upper::Private(widths) => widths[i],
                };
                assert_eq!(x.len(), width, "{way:?}");
                let tau = (learn_tau || way == Way::Tau).then_some(p.choices.tau.ln());
                assert!(tau.is_none_or(|tau| x[width - 1] == tau), "{way:?}");
            }
        }
    }
}

#[test]
fn several_regularisers_begin_at_tau() {
    for (way, count) in [(Way::TauColumns, 2), (Way::TauClasses, CLASSES)] {
        let p = problem(Model::Linear, way, false);
        assert_eq!(p.start().x, [vec![0.05f64.ln(); count]], "{way:?}");
        assert_eq!(Bilevel::upper(&p), Upper::Shared(count), "{way:?}");
    }
}

#[test]
fn counts_become_shares() {
    let p = problem(Model::Linear, Way::CleanOnly, false);
    let mut sums = vec![0.0; p.sums(0, (&random(p.net.width(), 1), &[])).len()];
    sums[..11].copy_from_slice(&[6.0, 3.0, 4.0, 1.0, 2.0, 10.0, 4.0, 3.0, 5.0, 8.0, 6.0]);
    let values = measure::values(&sums);
    for (name, value) in [
        ("held_loss", 1.5),
        ("held_accuracy", 75.0),
        ("test_accuracy", 50.0),
        ("suspicious", 40.0),
        ("precision", 0.75),
        ("recall", 0.6),
        ("right_after", 75.0),
    ] {
        assert_eq!(values.iter().find(|v| v.0 == name).map(|v| v.1), Some(value), "{name}");
    }
}

/// A process has the sums of its own agents, in their order, from whatever rows it is shown.
#[test]
fn sums_are_those_of_the_agents_that_are_here() {
    use crate::rows::Rows;
    let single = problem(Model::Linear, Way::Noisy, false);
    let private = problem(Model::Linear, Way::BilevelOwn, false);
    let n = single.net.width();
    let (w, x) = (
        Rows::from_vectors(&[random(n, 1), random(n, 2)]),
        Rows::from_vectors(&[random(9, 3), random(9, 4)]),
    );
    let noisy = single.own_sums(&[2, 0], &[View::whole("x", &w)]).unwrap().expect("x is the model");
    let both = [View::whole("x", &x), View::whole("y", &w)];
    let bilevel = private.own_sums(&[2, 0], &both).unwrap().expect("y is the model");
    for sums in [&noisy, &bilevel] {
        // Agent 2 has two held-out and nine given rows, agent 0 one and seven; all their truth is known.
        let counts: Vec<[f64; 3]> = sums.iter().map(|s| [s[2], s[5], s[9]]).collect();
        assert_eq!(counts, [[2.0, 9.0, 9.0], [1.0, 7.0, 7.0]]);
    }
    for (row, agent) in [2, 0].into_iter().enumerate() {
        assert_eq!(noisy[row], single.sums(agent, (w.row(row), &[])));
        assert_eq!(bilevel[row], private.sums(agent, (w.row(row), x.row(row))));
    }
    assert_ne!(noisy, bilevel, "a noise matrix has its say in the scores");
    let y = [View::whole("y", &w)];
    assert_eq!(single.own_sums(&[2, 0], &y).unwrap(), None, "there is no model called x");
    assert_eq!(private.own_sums(&[2, 0], &[View::whole("x", &x)]).unwrap(), None, "nor one called y");
    // The model and the matrix to take home are those of a row.
    let (model, t) = private.result(&both, 1).unwrap();
    assert_eq!(model, w.row(1));
    near(&t.expect("the way has a matrix").t, &softmax_rows(x.row(1)));
    assert_eq!(single.result(&[View::whole("x", &w)], 0), Some((w.row(0).to_vec(), None)));
}

/// σ(ln 3) is ¾, σ(−ln 3) is ¼, and regularisers are powers of e.
#[test]
fn what_was_decided_is_told_by_name() {
    let ln = f64::ln;
    let x = [0.0, ln(3.0), -ln(3.0), ln(0.2)];
    let told = |way, learn_tau, x: &[f64]| {
        let p = problem(Model::Linear, way, learn_tau).columns(&[1, 2]);
        let rounded = |(name, value): (String, f64)| format!("{name} = {value:.4}");
        p.decided(x).into_iter().map(rounded).collect::<Vec<_>>().join(", ")
    };
    let classes = "class 0 = 0.5000, class 1 = 0.7500, class 2 = 0.2500";
    assert_eq!(told(Way::ClassWeights, false, &x[..3]), classes);
    assert_eq!(told(Way::ClassWeights, true, &x), format!("{classes}, tau = 0.2000"));
    assert_eq!(told(Way::Trust, false, &x[1..2]), "trust = 0.7500");
    assert_eq!(told(Way::Trust, true, &x[2..]), "trust = 0.2500, tau = 0.2000");
    assert_eq!(told(Way::Tau, false, &x[3..]), "tau = 0.2000");
    let three = "0 = 1.0000, tau of KIND 1 = 3.0000, tau of KIND 2 = 0.3333";
    for (way, kind) in [(Way::TauColumns, "column"), (Way::TauClasses, "class")] {
        assert_eq!(told(way, false, &x[..3]), format!("tau of KIND {three}").replace("KIND", kind));
    }
    // Weights of single rows and matrices are told elsewhere.
    assert_eq!(told(Way::Weights, false, &x), "");
    assert_eq!(told(Way::Weights, true, &x), "tau = 0.2000");
    assert_eq!(told(Way::Bilevel, false, &x), "");
    assert_eq!(told(Way::Noisy, true, &x), "", "it has no upper level");
    assert_eq!(told(Way::Bilevel, true, &[]), "", "nor has it one before it runs");
    let weights = |way, x: &[f64]| problem(Model::Linear, way, false).weights(1, x);
    let p = problem(Model::Linear, Way::ClassWeights, false);
    let by_label = p.site(1).labels[..4].iter().map(|l| [0.5, 0.75, 0.25][*l as usize]).collect::<Vec<_>>();
    near(&weights(Way::ClassWeights, &x[..3]).unwrap(), &by_label);
    near(&weights(Way::Weights, &x).unwrap(), &[0.5, 0.75, 0.25, 1.0 / 6.0]);
    near(&weights(Way::Trust, &x[1..2]).unwrap(), &[0.75; 4]);
    assert_eq!(weights(Way::Tau, &x[3..]), Some(Vec::new()), "all rows count alike");
    assert_eq!(weights(Way::Bilevel, &x), None);
}

/// A model starts where y starts, and behind it a noise matrix in which all is equally likely.
#[test]
fn single_level_ways_start_at_y() {
    for (way, behind) in [
        (Way::CleanOnly, vec![]),
        (Way::Joint, vec![0.0; 9]),
        (Way::Em, vec![1.0 / 9.0; 9]),
        (Way::Gold, vec![1.0 / 9.0; 9]),
    ] {
        for model in MODELS {
            let p = problem(model, way, false);
            let start = p.start();
            let [y] = &SingleLevel::start_from(&p, &start)[..] else { panic!("one row for all") };
            let (w, rest) = y.split_at(p.net.width());
            assert_eq!((w, rest), (&p.net.start(5)[..], &behind[..]), "{way:?}");
            assert_eq!((start.x.len(), SingleLevel::width(&p)), (0, y.len()), "{way:?}");
            let given = Start { x: vec![vec![7.0]], y: vec![vec![8.0]], ..Start::default() };
            assert_eq!(SingleLevel::start_from(&p, &given), &[[8.0]], "{way:?}");
        }
    }
    let own = problem(Model::Linear, Way::EmOwn, false).start();
    assert_eq!((own.x, own.y), (vec![vec![1.0 / 9.0; 9]], vec![vec![0.0; 12]]));
}

/// Ten, four and fourteen rows of three numbers of four bytes and a label; the last once more as a test set.
#[test]
fn rows_are_counted() {
    let p = problem(Model::Linear, Way::Noisy, false);
    let rows: Vec<[usize; 2]> = p.sites.iter().map(|s| [s.rows(), s.held()]).collect();
    assert_eq!(rows, [[10, 1], [4, 0], [14, 2]]);
    assert_eq!(p.bytes(), 28 * 13);
    let test = p.sites[2].clone();
    assert_eq!(p.test(test).bytes(), 42 * 13);
}

/// Widths that are not those of all features change nothing, nor do they in another way.
#[test]
fn columns_must_be_all_features() {
    let groups =
        |way, widths: &[usize]| problem(Model::Linear, way, false).columns(widths).regulariser_count();
    assert_eq!(groups(Way::TauColumns, &[1, 1, 1]), 4, "and one for the biases");
    assert_eq!(groups(Way::TauColumns, &[1, 1]), 2);
    assert_eq!(groups(Way::TauClasses, &[1, 1, 1]), 3);
    assert_eq!(groups(Way::Weights, &[1, 1, 1]), 0);
}

/// A part of every checked label is spread over all classes.
#[test]
fn smoothed_labels_are_spread() {
    let sites = sites(3);
    let choices = Choices { smoothing: 0.3, tau: 0.0, batch: 0, checked_batch: 0, ..Choices::default() };
    let p: Labels<f64> =
        Labels::new(sites.clone(), net(Model::Mlp(4)), Way::CleanOnly, choices, totals(&sites), 5).unwrap();
    let w = random(p.net.width(), 4);
    for i in 0..3 {
        let mut d = vec![f64::NAN; w.len()];
        p.single(i, 0, &w, &mut d);
        near(&d, &numeric(&w, |w| checked_loss(&p, i, w)));
    }
}

/// Passes by the host's own models, as if they lay elsewhere.
struct Here<'a> {
    p: &'a Labels<f32>,
    models: Vec<[Vec<f32>; 2]>,
    directions: Vec<[Vec<f32>; 2]>,
}

impl Passes for Here<'_> {
    fn pass(
        &mut self,
        model: usize,
        rows: &[Vec<usize>],
        decay: f64,
        head: &mut dyn FnMut(usize, usize, &mut [f32]),
    ) -> Result<()> {
        let net = &self.p.net;
        for (i, rows) in rows.iter().enumerate() {
            let (w, d) = (&self.models[i][model], &mut self.directions[i][model]);
            d.fill(0.0);
            let mut s = net.scratch(rows.len().max(1));
            rows.iter().enumerate().for_each(|(r, j)| net.load_numbers(&mut s, r, row(&self.p.sites[i], *j)));
            net.forward(&mut s, rows.len(), w);
            let line = s.out.len() / s.rows();
            for r in 0..rows.len() {
                head(i, r, &mut s.out[r * line..r * line + CLASSES]);
            }
            if !rows.is_empty() {
                net.backward(&mut s, rows.len(), w, d, false);
            }
            add_scaled(d, decay as f32, w);
        }
        Ok(())
    }

    fn rest(&mut self, model: usize) -> Result<()> {
        self.directions.iter_mut().for_each(|d| d[model].fill(0.0));
        Ok(())
    }
}

/// Where models lie elsewhere, every way's directions are the same bits as here, at its start and after.
#[test]
fn models_that_lie_elsewhere_move_alike() {
    let sites = sites(3);
    for (way, from) in Way::ALL.into_iter().flat_map(|w| [From::Checked, From::Given].map(|f| (w, f))) {
        let choices = Choices {
            tau: 0.05,
            batch: 3,
            warm: 2,
            warm_weight: 0.5,
            jointly: 4,
            from,
            ..Choices::default()
        };
        let p: Labels<f32> =
            Labels::new(sites.clone(), net(Model::Mlp(4)), way, choices, totals(&sites), 5).unwrap();
        if p.learns_regulariser() {
            continue;
        }
        let numbers = |len: usize, seed: u64| -> Vec<f32> {
            random(len, seed).into_iter().map(|v| v.abs() as f32 + 0.1).collect()
        };
        let width = p.net.width();
        for k in [0, 1, 2, 5] {
            let owned = [0, 1, 2];
            let threads = Threads::one();
            let at = At { k, owned: &owned, threads: &threads };
            let models: Vec<_> = (0..3).map(|i| [numbers(width, i), numbers(width, 10 + i)]).collect();
            let directions = vec![[vec![9.0; width], vec![9.0; width]]; 3];
            let mut here = Here { p: &p, models: models.clone(), directions };
            if way.is_bilevel() {
                let upper = |i: usize| match p.upper() {
                    Upper::Shared(n) => numbers(n, 20 + i as u64),
                    Upper::Private(all) => numbers(all[i], 20 + i as u64),
                };
                let x: Vec<Vec<f32>> = (0..3).map(upper).collect();
                let dx = p.directions_by(at, Penalty { f: 0.5, g: 1.5 }, &x, &mut here).unwrap();
                for i in 0..3 {
                    let mut d = [vec![7.0; x[i].len()], vec![7.0; width], vec![7.0; width]];
                    let [a, b, c] = &mut d;
                    let [y, z] = &models[i];
                    p.directions(i, k, Penalty { f: 0.5, g: 1.5 }, [&x[i], y, z], [a, b, c]);
                    assert_eq!(
                        (&d[0], &d[1], &d[2]),
                        (&dx[i], &here.directions[i][0], &here.directions[i][1])
                    );
                }
                continue;
            }
            let t: Vec<Vec<f32>> = (0..3).map(|i| numbers(p.matrix_numbers(), 30 + i)).collect();
            let dt = p.gradients_by(at, &t, &mut here).unwrap();
            for i in 0..3 {
                let mut d = vec![7.0; width + t[i].len()];
                p.single(i, k, &[models[i][0].clone(), t[i].clone()].concat(), &mut d);
                assert_eq!(d, [here.directions[i][0].clone(), dt[i].clone()].concat(), "{way:?} {k}");
            }
        }
    }
}

/// A teller is believed in metrics and verdicts.
#[test]
fn a_teller_says_what_the_host_would() {
    struct Same(Labels<f32>);
    impl Teller<f32> for Same {
        fn scores(&self, site: Option<usize>, w: &[f32], rows: &[usize]) -> Vec<f32> {
            let site = site.map_or(self.0.test.as_ref().unwrap(), |i| &self.0.sites[i]);
            let of = |j: &usize| probabilities(self.0.net.model, &doubles(w), row(site, *j));
            rows.iter().flat_map(of).map(|p| p.ln() as f32).collect()
        }
    }
    fn doubles(w: &[f32]) -> Vec<f64> {
        w.iter().map(|v| f64::from(*v)).collect()
    }
    let sites = sites(3);
    let make = || -> Labels<f32> {
        let choices = Choices::default();
        Labels::new(sites.clone(), net(Model::Linear), Way::Noisy, choices, totals(&sites), 5)
            .unwrap()
            .test(sites[2].clone())
    };
    let (own, told) = (make(), make().told_by(Arc::new(Same(make()))));
    let by = |w: &[f32]| {
        let scores = |_: usize, site: Option<usize>, rows: &[usize]| Same(make()).scores(site, w, rows);
        own.own_sums_by(&[0, 1, 2], &vec![Vec::new(); 3], &scores)
    };
    let w: Vec<f32> = random(own.net.width(), 8).into_iter().map(|v| v as f32).collect();
    for i in 0..3 {
        let (a, b) = (own.sums(i, (&w, &[])), told.sums(i, (&w, &[])));
        for b in [b, by(&w)[i].clone()] {
            assert_eq!(a[1..11], b[1..11]);
            near(&a[..1], &b[..1]);
        }
        assert_eq!(own.verdicts(i, &w, None).len(), told.verdicts(i, &w, None).len());
    }
}

/// Shares of classes at a site by the definition, in as many rounds.
fn shares_by_hand(rows: &[Vec<f64>], all: &[f64]) -> Vec<f64> {
    let mut shares = all.to_vec();
    for _ in 0..20 {
        let mut next = vec![0.0; all.len()];
        for p in rows {
            let total: f64 = (0..all.len()).map(|c| p[c] * shares[c] / all[c]).sum();
            (0..all.len()).for_each(|c| next[c] += p[c] * shares[c] / all[c] / total);
        }
        shares = (0..all.len()).map(|c| (next[c] + 10.0 * all[c]) / (rows.len() as f64 + 10.0)).collect();
    }
    shares
}

/// Where a site's own classes count, its rows are judged by probabilities times what is more common there, in
/// the list and in the loss on held-out rows; test rows are nobody's.
#[test]
fn rows_are_judged_by_the_classes_of_their_site() {
    let sites = sites(3);
    let make = |site_classes: bool| {
        let choices = Choices { site_classes, ..Choices::default() };
        let p = Labels::new(sites.clone(), net(Model::Linear), Way::Em, choices, totals(&sites), 5);
        let test = Arc::new(Site { given: 0, checked: 0, truth: Vec::new(), ..(*sites[2]).clone() });
        p.unwrap().test(test)
    };
    let (plain, p): (Labels<f64>, Labels<f64>) = (make(false), make(true));
    let mut v = random(SingleLevel::width(&p), 4);
    let counts = &mut v[p.net.width()..];
    counts.iter_mut().for_each(|count| *count = count.abs() + 0.01);
    let all: Vec<f64> = counts.chunks(CLASSES).map(|row| row.iter().sum::<f64>()).collect();
    let total: f64 = all.iter().sum();
    let all: Vec<f64> = all.iter().map(|share| share / total).collect();
    let noise = p.noise(&v[p.net.width()..]).expect("EM has a matrix");
    let own = noise.shares.as_ref().expect("and knows the classes");
    assert!(own.iter().zip(&all).all(|(a, b)| (a - b).abs() < 1e-5));
    assert_eq!(plain.noise(&v[p.net.width()..]).expect("EM has a matrix").shares, None);
    for (i, s) in p.sites.iter().enumerate() {
        let q = |j: usize| probabilities(Model::Linear, &v, row(s, j));
        let shares = shares_by_hand(&(0..s.given).map(q).collect::<Vec<_>>(), own);
        let mended = |j: usize| {
            let product: Vec<f64> =
                q(j).iter().zip(shares.iter().zip(own)).map(|(q, (s, a))| q * s / a).collect();
            let sum: f64 = product.iter().sum();
            product.into_iter().map(|v| v / sum).collect::<Vec<f64>>()
        };
        for (j, verdict) in
            p.judge(i, measure::Speaker::Here(&v[..p.net.width()]), Some(&noise)).iter().enumerate()
        {
            let (q, g) = (mended(j), s.labels[j] as usize);
            let pair: Vec<f64> = (0..3).map(|c| q[c] * noise.t[c * 3 + g]).collect();
            assert!((verdict.score - pair[g] / pair.iter().sum::<f64>()).abs() < 1e-12);
            assert!(q.iter().all(|v| *v <= q[verdict.suggested as usize]));
        }
        let (sums, without) = (p.sums(i, (&v, &[])), plain.sums(i, (&v, &[])));
        let held = s.given + s.checked..s.rows();
        let loss: f64 = held.map(|j| -(0.95 * mended(j)[s.labels[j] as usize] + 0.05 / 3.0).ln()).sum();
        assert!((sums[0] - loss).abs() < 1e-12, "{} {loss}", sums[0]);
        assert!(s.held() == 0 || (sums[0] - without[0]).abs() > 1e-6);
        assert_eq!(sums[3..5], without[3..5], "test rows");
    }
}

/// A row of which the model says nothing counts for no class.
#[test]
fn rows_without_probabilities_count_for_no_class() {
    let all = [0.5, 0.5];
    let (with, without) = ([0.9, 0.1, 0.0, 0.0], [0.9, 0.1]);
    let [with, without] = [&with[..], &without].map(|p| site_classes::factors(p, &all));
    // Its share of the prior is all that is missing: 12 and 11 stand below.
    for (a, b) in with.iter().zip(&without) {
        assert!((a * 12.0 - b * 11.0).abs() < 0.2 && *a > 0.5, "{with:?} {without:?}");
    }
}

/// A site whose rows are mostly of one class is found to be so, and one like all others is left alone.
#[test]
fn a_site_finds_out_its_classes() {
    let all = [0.5, 0.3, 0.2];
    let mut r = stream(9, Purpose::Instance, 0, 0);
    // Rows about which a model is rather sure, of classes with these shares.
    let mut rows = |shares: [f64; 3], count: usize| -> Vec<f64> {
        let mut row = || {
            let at: f64 = r.random();
            let class = if at < shares[0] { 0 } else { 1 + usize::from(at >= shares[0] + shares[1]) };
            let seen = if r.random::<f64>() < 0.7 { class } else { r.random_range(0..3) };
            // By Bayes' rule among all rows.
            let like = |c: usize| if c == seen { 0.8 } else { 0.1 };
            let sum: f64 = (0..3).map(|c| all[c] * like(c)).sum();
            (0..3).map(|c| all[c] * like(c) / sum).collect::<Vec<f64>>()
        };
        (0..count).flat_map(|_| row()).collect()
    };
    let shares = |p: &[f64]| -> Vec<f64> {
        site_classes::factors(p, &all).iter().zip(all).map(|(r, all)| r * all).collect()
    };
    let near = |a: &[f64], b: [f64; 3], off: f64| a.iter().zip(b).all(|(a, b)| (a - b).abs() < off);
    let (mostly, alike) = (shares(&rows([0.05, 0.05, 0.9], 20_000)), shares(&rows(all, 20_000)));
    assert!(near(&mostly, [0.05, 0.05, 0.9], 0.02), "{mostly:?}");
    assert!(near(&alike, all, 0.02), "{alike:?}");
    // Nobody is judged by a handful of rows.
    assert!(near(&shares(&rows([0.0, 0.0, 1.0], 2)), all, 0.15));
    assert_eq!(site_classes::factors(&[], &all), [1.0; 3]);
}
