use super::*;
use crate::data::{Dataset, Noise, Partition, Recipe, Split};
use crate::problem::penalty_directions_by_agent;
use rand::{Rng, RngExt};

fn images(samples: usize, pixels: usize, classes: usize, seed: u64) -> Arc<Dataset> {
    let mut r = stream(seed, Purpose::Instance, 0, 0);
    let labels: Vec<u8> = (0..samples).map(|_| r.random_range(0..classes as u8)).collect();
    // A bright pixel at the label among random ones, so that there is something to learn.
    let image = |l: u8, r: &mut dyn Rng| {
        (0..pixels).map(|p| if p == l as usize { 255 } else { r.random_range(0..120) }).collect::<Vec<u8>>()
    };
    let images = labels.iter().flat_map(|l| image(*l, &mut r)).collect();
    Arc::new(Dataset::new(images, labels, pixels, classes).unwrap())
}

/// Ragged agents, three classes.
fn dealt(samples: usize) -> Arc<Dealt> {
    let recipe = Recipe {
        agents: 3,
        partition: Partition::Dirichlet(0.7),
        split: Split::Share(0.7),
        noise: Noise::Uniform,
        cr: 0.4,
        seed: 5,
    };
    Arc::new(recipe.deal(images(samples, 6, 3, 1), images(50, 6, 3, 2)).unwrap())
}

fn random(len: usize, seed: u64) -> Vec<f64> {
    let mut r = stream(seed, Purpose::Noise, 0, 0);
    (0..len).map(|_| r.random_range(-0.8..0.8)).collect()
}

fn problems<T: Real>() -> Vec<Learning<T>> {
    let mut all = Vec::new();
    for model in [Model::Linear, Model::LinearNoBias, Model::Mlp(5)] {
        let mut tasks = vec![Task::Cleaning { tau: 0.3, psi: 0.0 }];
        tasks.extend(
            [TauForm::Plain, TauForm::Projected, TauForm::Exp, TauForm::Softplus]
                .map(|form| Task::Tuning { form, tau: 0.2 }),
        );
        for task in tasks {
            for batch in [None, Some(7)] {
                let problem = Learning::new(dealt(60), model, task, Scaling::Standardised, 3).unwrap();
                all.push(if let Some(b) = batch { problem.batch(b) } else { problem });
            }
        }
    }
    all
}

/// f_i and g_i from their definitions, sample by sample, with no matrix product.
fn objectives(p: &Learning<f64>, agent: usize, k: usize, x: &[f64], w: &[f64]) -> (f64, f64) {
    let (hand, net) = (&p.dealt.hands[agent], &p.net);
    let entropy = |place: usize| {
        let n = hand.train.len();
        let (sample, label) = if place < n {
            (hand.train[place], hand.given[place])
        } else {
            (hand.validation[place - n], p.dealt.data.labels()[hand.validation[place - n] as usize])
        };
        let mut input: Vec<f64> = p
            .dealt
            .data
            .image(sample as usize)
            .iter()
            .zip(p.scale.iter().zip(&p.shift))
            .map(|(v, (a, b))| f64::from(*v) * a + b)
            .collect();
        if net.model != Model::LinearNoBias {
            input.push(1.0);
        }
        let mut last = 0;
        if let Model::Mlp(h) = net.model {
            let unit =
                |j: usize| input.iter().enumerate().map(|(i, v)| v * w[i * h + j]).sum::<f64>().max(0.0);
            let hidden: Vec<f64> = (0..h).map(unit).chain([1.0]).collect();
            last = input.len() * h;
            input = hidden;
        }
        let score =
            |c: usize| input.iter().enumerate().map(|(i, v)| v * w[last + c * input.len() + i]).sum::<f64>();
        let scores: Vec<f64> = (0..net.classes).map(score).collect();
        scores.iter().map(|s| s.exp()).sum::<f64>().ln() - scores[label as usize]
    };
    let places = |order: &[u32]| -> Vec<usize> {
        let b = p.batch.map_or(order.len(), |b| b.min(order.len()));
        (0..b).map(|j| order[if b < order.len() { (k * b + j) % order.len() } else { j }] as usize).collect()
    };
    let (train, validation) = (places(&p.orders[agent].train), places(&p.orders[agent].validation));
    let f = validation.iter().map(|j| entropy(*j)).sum::<f64>() / validation.len() as f64;
    let norm = w.iter().map(|v| v * v).sum::<f64>();
    let g = match p.task {
        Task::Cleaning { tau, .. } => {
            train.iter().map(|j| entropy(*j) / (1.0 + (-x[*j]).exp())).sum::<f64>() / train.len() as f64
                + tau / 2.0 * norm
        }
        Task::Tuning { form, .. } => {
            let tau = match form {
                TauForm::Plain | TauForm::Projected => x[0],
                TauForm::Exp => x[0].exp(),
                TauForm::Softplus => (1.0 + x[0].exp()).ln(),
            };
            train.iter().map(|j| entropy(*j)).sum::<f64>() / train.len() as f64 + tau * norm
        }
    };
    (f, g)
}

fn upper_width<T: Real>(p: &Learning<T>, agent: usize) -> usize {
    match p.upper() {
        Upper::Private(widths) => widths[agent],
        Upper::Shared(width) => width,
    }
}

#[test]
fn gradients_are_finite_differences() {
    for p in problems::<f64>() {
        for (agent, k) in [(0, 0), (1, 4), (2, 11)] {
            let (x, y) = (
                random(upper_width(&p, agent), 7).iter().map(|v| v.abs() + 0.1).collect::<Vec<_>>(),
                random(p.net.width(), 8),
            );
            let empty = || (vec![f64::NAN; x.len()], vec![f64::NAN; y.len()]);
            let ((mut fx, mut fy), (mut gx, mut gy)) = (empty(), empty());
            p.grad_f(agent, k, &x, &y, &mut fx, &mut fy).unwrap();
            p.grad_g(agent, k, &x, &y, &mut gx, &mut gy).unwrap();
            let h = 1e-5;
            let check = |analytic: [f64; 2], at: &dyn Fn(f64) -> (f64, f64), what: &str| {
                let (plus, minus) = (at(h), at(-h));
                for (a, n) in [
                    (analytic[0], (plus.0 - minus.0) / (2.0 * h)),
                    (analytic[1], (plus.1 - minus.1) / (2.0 * h)),
                ] {
                    assert!(
                        (a - n).abs() < 1e-7 * (1.0 + n.abs()),
                        "{:?} {:?} {what}: {a} {n}",
                        p.net.model,
                        p.task
                    );
                }
            };
            for j in 0..x.len() {
                let at = |e: f64| {
                    let mut x = x.clone();
                    x[j] += e;
                    objectives(&p, agent, k, &x, &y)
                };
                check([fx[j], gx[j]], &at, "x");
            }
            for j in 0..y.len() {
                let at = |e: f64| {
                    let mut y = y.clone();
                    y[j] += e;
                    objectives(&p, agent, k, &x, &y)
                };
                check([fy[j], gy[j]], &at, "y");
            }
        }
    }
}

/// For shapes that end in the middle of a tile, that fit it, and that leave the work to the crate; what lies
/// between the rows stays.
#[test]
fn products_in_place_are_the_definition() {
    fn check<T: Real>(tolerance: f64) {
        for (m, n, k) in [
            (1, 16, 1),
            (7, 48, 5),
            (13, 80, 401),
            (197, 64, 3),
            (6, 128, 200),
            (5, 10, 30),
            (0, 16, 3),
            (3, 16, 0),
        ] {
            let numbers =
                |len: usize, seed: u64| random(len, seed).into_iter().map(T::of).collect::<Vec<T>>();
            let (ds, bs) = (n + 3, n + 1);
            let (old, b) = (numbers(m * ds, 1), numbers(k * bs, 2));
            for (add, transposed) in [(false, false), (true, false), (false, true), (true, true)] {
                let (rs, cs) = if transposed { (1, m + 2) } else { (k + 2, 1) };
                let (a, mut dst) = (numbers((m + 2) * (k + 2), 3), old.clone());
                crate::kernels::product_in_place((m, n, k), (&mut dst, ds), add, (&a, rs, cs), (&b, bs));
                for (at, (new, old)) in dst.iter().zip(&old).enumerate() {
                    let (i, j) = (at / ds, at % ds);
                    let sum = (0..k)
                        .map(|l| a[i * rs + l * cs].f64() * if j < n { b[l * bs + j].f64() } else { 0.0 })
                        .sum::<f64>();
                    let right =
                        if j >= n || k == 0 { old.f64() } else { sum + if add { old.f64() } else { 0.0 } };
                    assert!(
                        (new.f64() - right).abs() < tolerance,
                        "{m} {n} {k} {add} {transposed} at {i}, {j}: {new:?} {right}"
                    );
                }
            }
        }
    }
    check::<f32>(1e-4);
    check::<f64>(1e-12);
}

/// With as many hidden units as the tiles are made for, and with fewer.
/// Pearlmutter's products against differences of gradients, and ∇²ᵧᵧg as a symmetric matrix.
#[test]
fn products_are_differences_of_gradients() {
    for p in problems::<f64>() {
        for (agent, k) in [(0, 0), (1, 4), (2, 11)] {
            let x: Vec<f64> = random(upper_width(&p, agent), 7).iter().map(|v| v.abs() + 0.1).collect();
            let [y, v, u] = [8, 9, 10].map(|seed| random(p.net.width(), seed));
            let place = format!("{:?} {:?}", p.net.model, p.task);
            for mixed in [false, true] {
                let width = if mixed { x.len() } else { y.len() };
                let (mut got, mut expected) = (vec![f64::NAN; width], vec![f64::NAN; width]);
                match mixed {
                    true => p.xy(agent, k, &x, &y, &v, &mut got).unwrap(),
                    false => p.yy(agent, k, &x, &y, &v, &mut got).unwrap(),
                }
                crate::problem::difference_product(&p, agent, k, [&x, &y, &v], &mut expected, mixed).unwrap();
                for (g, e) in got.iter().zip(&expected) {
                    assert!((g - e).abs() < 1e-7 * (1.0 + e.abs()), "{place} mixed {mixed}: {g} {e}");
                }
            }
            let product = |v: &[f64]| {
                let mut out = vec![f64::NAN; y.len()];
                p.yy(agent, k, &x, &y, v, &mut out).unwrap();
                out
            };
            let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
            let (left, right) = (dot(&product(&v), &u), dot(&product(&u), &v));
            assert!((left - right).abs() < 1e-10 * (1.0 + left.abs()), "{place}: {left} {right}");
        }
    }
}

#[test]
fn gradients_in_32_bits_are_those_in_64() {
    for units in [80, 64, 7] {
        fn directions<T: Real>(units: usize) -> Stack<T, 3> {
            let task = Task::Cleaning { tau: 0.3, psi: 0.0 };
            let p =
                Learning::new(dealt(60), Model::Mlp(units), task, Scaling::Standardised, 3).unwrap().batch(7);
            let (v, mut d) = stack(&p);
            p.penalty_directions(
                At { k: 5, owned: &[0, 1, 2], threads: &Threads::one() },
                Penalty { f: 0.7, g: 2.5 },
                &v,
                &mut d,
            )
            .unwrap();
            d
        }
        let (short, long) = (directions::<f32>(units), directions::<f64>(units));
        for i in 0..3 {
            for (a, b) in short.row(i).into_iter().flatten().zip(long.row(i).into_iter().flatten()) {
                assert!((a.f64() - b.f64()).abs() < 1e-4 * (1.0 + b.f64().abs()), "{units}: {a} {b}");
            }
        }
    }
}

fn stack<T: Real>(p: &Learning<T>) -> (Stack<T, 3>, Stack<T, 3>) {
    let mut v = Stack::zeros(3, &p.upper(), &[p.lower(), p.lower()]);
    for i in 0..3 {
        for (n, to) in v.row_mut(i).into_iter().enumerate() {
            to.iter_mut()
                .zip(random(10_000, 10 * i as u64 + n as u64))
                .for_each(|(t, r)| *t = T::of(if n == 0 { r.abs() } else { r }));
        }
    }
    let mut d = v.clone();
    d.shared.data_mut().fill(T::of(f64::NAN));
    d.private.iter_mut().for_each(|p| p.data_mut().fill(T::of(f64::NAN)));
    (v, d)
}

fn fused<T: Real>(tolerance: f64) {
    for p in problems::<T>() {
        for threads in [1, 2] {
            let threads = Threads::new(threads);
            let (v, mut d) = stack(&p);
            let mut slow = d.clone();
            let (at, penalty) =
                (At { k: 5, owned: &[0, 1, 2], threads: &threads }, Penalty { f: 0.7, g: 2.5 });
            p.penalty_directions(at, penalty, &v, &mut d).unwrap();
            penalty_directions_by_agent(&p, at, penalty, &v, &mut slow).unwrap();
            for i in 0..3 {
                for (a, b) in d.row(i).into_iter().flatten().zip(slow.row(i).into_iter().flatten()) {
                    assert!(
                        (a.f64() - b.f64()).abs() < tolerance * (1.0 + b.f64().abs()),
                        "{:?} {:?} {a:?} {b:?}",
                        p.net.model,
                        p.task
                    );
                }
            }
        }
    }
}

#[test]
fn fused_directions_are_those_of_the_gradients() {
    fused::<f64>(1e-12);
    fused::<f32>(2e-5);
}

/// Words 5 and 6 give the class away.
fn texts(samples: usize, seed: u64) -> Arc<Dataset> {
    let mut r = stream(seed, Purpose::Instance, 0, 0);
    let labels: Vec<u8> = (0..samples).map(|_| r.random_range(0..2)).collect();
    let mut text = |l: &u8| {
        (0..6)
            .flat_map(|t| (if t == 1 { 5 + u16::from(*l) } else { r.random_range(0..12u16) }).to_le_bytes())
            .collect::<Vec<u8>>()
    };
    let bytes = labels.iter().flat_map(&mut text).collect();
    Arc::new(Dataset::new(bytes, labels, 12, 2).unwrap())
}

#[test]
fn a_bert_is_a_model_like_any_other() {
    let bert = Bert {
        vocabulary: 12,
        positions: 8,
        types: 2,
        hidden: 8,
        layers: 1,
        heads: 2,
        intermediate: 16,
        epsilon: 1e-12,
        pool: bert::Pool::Mean,
    };
    let recipe = Recipe {
        agents: 3,
        partition: Partition::Uniform,
        split: Split::Share(0.7),
        noise: Noise::Uniform,
        cr: 0.4,
        seed: 5,
    };
    let dealt = Arc::new(recipe.deal(texts(90, 1), texts(50, 2)).unwrap());
    let make = || {
        Learning::<f64>::new(
            dealt.clone(),
            Model::Bert(bert),
            Task::Cleaning { tau: 0.1, psi: 0.0 },
            Scaling::Unit,
            3,
        )
        .unwrap()
    };
    // Batches of more texts than there is room for at once, and of fewer.
    for p in [make(), make().batch(5)] {
        let (v, mut fused) = stack(&p);
        let (mut single, owned) = (fused.clone(), [0, 1, 2]);
        let at = At { k: 4, owned: &owned, threads: &Threads::one() };
        p.penalty_directions(at, Penalty { f: 0.7, g: 1.3 }, &v, &mut fused).unwrap();
        penalty_directions_by_agent(&p, at, Penalty { f: 0.7, g: 1.3 }, &v, &mut single).unwrap();
        for i in 0..3 {
            for (a, b) in fused.row(i).into_iter().flatten().zip(single.row(i).into_iter().flatten()) {
                assert!((a - b).abs() < 1e-10, "{a} and {b}");
            }
        }
    }
    let p = make();
    let begin = p.net.start(1);
    assert!(p.test_accuracy(&begin) > 20.0);
    assert!(make().begin_at(begin.clone()).is_ok_and(|p| p.start().y == [begin.clone()]));
    assert!(make().begin_at(vec![0.0]).is_err());
    let long = Learning::<f64>::new(
        dealt,
        Model::Bert(Bert { positions: 5, ..bert }),
        Task::Cleaning { tau: 0.1, psi: 0.0 },
        Scaling::Unit,
        3,
    );
    assert!(long.err().is_some_and(|e| e.contains("5 at most")));
}

#[test]
fn pieces_add_up() {
    // More rows than a scratch holds, with training and validation rows in one piece.
    let p: Learning<f64> =
        Learning::new(dealt(2000), Model::Mlp(4), Task::Cleaning { tau: 0.1, psi: 0.0 }, Scaling::Unit, 0)
            .unwrap();
    assert!(
        p.dealt
            .hands
            .iter()
            .any(|h| h.train.len() > 2 * model::ROWS && !h.train.len().is_multiple_of(model::ROWS))
    );
    let (v, mut d) = stack(&p);
    let threads = Threads::new(2);
    p.penalty_directions(
        At { k: 0, owned: &[0, 1, 2], threads: &threads },
        Penalty { f: 1.0, g: 1.0 },
        &v,
        &mut d,
    )
    .unwrap();
    for i in 0..3 {
        let ([x, y, _], e) = (v.row(i), 1e-5);
        let directional = random(y.len(), 77);
        let at = |e: f64| {
            let moved: Vec<f64> = y.iter().zip(&directional).map(|(y, r)| y + e * r).collect();
            let (f, g) = objectives(&p, i, 0, x, &moved);
            f + g
        };
        let analytic: f64 = d.row(i)[1].iter().zip(&directional).map(|(d, r)| d * r).sum();
        assert!((analytic - (at(e) - at(-e)) / (2.0 * e)).abs() < 1e-7);
    }
}

#[test]
fn batches_cover_everything_and_leave_the_rest_of_psi_alone() {
    let p: Learning<f64> =
        Learning::new(dealt(60), Model::Linear, Task::Cleaning { tau: 0.1, psi: 0.0 }, Scaling::Unit, 0)
            .unwrap()
            .batch(4);
    let (v, mut d) = stack(&p);
    let threads = Threads::one();
    let mut hits: Vec<Vec<usize>> = p.dealt.hands.iter().map(|h| vec![0; h.train.len()]).collect();
    let rounds = hits.iter().map(Vec::len).product::<usize>();
    for k in 0..rounds {
        p.penalty_directions(
            At { k, owned: &[0, 1, 2], threads: &threads },
            Penalty { f: 1.0, g: 1.0 },
            &v,
            &mut d,
        )
        .unwrap();
        for (i, hits) in hits.iter_mut().enumerate() {
            assert_eq!(d.row(i)[0].iter().filter(|v| **v != 0.0).count(), 4.min(hits.len()));
            hits.iter_mut().zip(d.row(i)[0]).for_each(|(h, v)| *h += usize::from(*v != 0.0));
        }
    }
    assert!(hits.iter().all(|h| h.iter().all(|c| *c == h[0])), "{hits:?}");
}

#[test]
fn single_level_is_the_mean_over_both_or_over_validation() {
    for (model, task, factor) in [
        (Model::Mlp(3), Task::Cleaning { tau: 0.1, psi: 0.0 }, 1.0),
        (Model::Linear, Task::Tuning { form: TauForm::Plain, tau: 0.0 }, 2.0),
    ] {
        let make = || Learning::<f64>::new(dealt(60), model, task, Scaling::Unit, 0).unwrap();
        for on in [TrainOn::Both, TrainOn::Validation] {
            let threads = Threads::one();
            let full = make().baseline(on, 0.4);
            let mut x: Stack<f64, 1> = Stack::zeros(3, &Upper::Shared(full.net.width()), &[]);
            (0..3).for_each(|i| x.row_mut(i)[0].copy_from_slice(&random(full.net.width(), i as u64)));
            let (mut d, mut sum, mut part) = (x.clone(), x.clone(), x.clone());
            let at = |k| At { k, owned: &[0, 1, 2], threads: &threads };
            full.gradients(at(0), &x, &mut d).unwrap();
            assert_eq!(full.blocks(), 1);
            for i in 0..3 {
                // Against grad_f and a full-weight grad_g, which the finite differences have checked.
                let (w, hand) = (x.row(i)[0], &full.dealt.hands[i]);
                let (n, m) = (hand.train.len() as f64, hand.validation.len() as f64);
                let (mut gf, mut gg, mut none) = (w.to_vec(), w.to_vec(), vec![0.0; hand.train.len()]);
                full.grad_f(i, 0, &[], w, &mut [], &mut gf).unwrap();
                let tuning = Learning::<f64>::new(
                    full.dealt.clone(),
                    model,
                    Task::Tuning { form: TauForm::Plain, tau: 0.0 },
                    Scaling::Unit,
                    0,
                );
                tuning.unwrap().grad_g(i, 0, &[0.0], w, &mut none[..1], &mut gg).unwrap();
                for j in 0..w.len() {
                    let loss = if on == TrainOn::Both { (n * gg[j] + m * gf[j]) / (n + m) } else { gf[j] };
                    assert!((d.row(i)[0][j] - loss - factor * 0.4 * w[j]).abs() < 1e-12);
                }
            }
            // Blocks of one sample: their mean is the full gradient for the agent with the most samples.
            let single = make().baseline(on, 0.4).batch(1);
            sum.shared.data_mut().fill(0.0);
            for k in 0..single.blocks() {
                single.gradients(at(k), &x, &mut part).unwrap();
                sum.shared.add_scaled(1.0 / single.blocks() as f64, &part.shared, &threads);
            }
            let largest = (0..3).max_by_key(|i| single.places(&single.orders[*i]).len()).unwrap();
            assert!(sum.row(largest)[0].iter().zip(d.row(largest)[0]).all(|(a, b)| (a - b).abs() < 1e-12));
        }
    }
}

#[test]
fn projected_tau_is_not_lowered_below_zero() {
    let task = Task::Tuning { form: TauForm::Projected, tau: 0.0 };
    let p: Learning<f64> = Learning::new(dealt(60), Model::Linear, task, Scaling::Unit, 0).unwrap();
    let threads = Threads::one();
    let (mut v, mut d) = stack(&p);
    for (x, y_larger) in [(-0.1, true), (-0.1, false), (0.1, true), (0.1, false)] {
        let [vx, vy, vz] = v.row_mut(0);
        vx[0] = x;
        vy.fill(if y_larger { 2.0 } else { 1.0 });
        vz.fill(if y_larger { 1.0 } else { 2.0 });
        p.penalty_directions(
            At { k: 0, owned: &[0, 1, 2], threads: &threads },
            Penalty { f: 1.0, g: 1.0 },
            &v,
            &mut d,
        )
        .unwrap();
        let dx = d.row(0)[0][0];
        assert!(if y_larger && x > 0.0 {
            dx > 0.0
        } else if y_larger {
            dx == 0.0
        } else {
            dx < 0.0
        });
    }
}

#[test]
fn tau_forms_start_where_they_are_told() {
    for form in [TauForm::Plain, TauForm::Projected, TauForm::Exp, TauForm::Softplus] {
        for tau in [1e-6, 0.15, 30.0] {
            assert!((form.tau(form.inverse(tau)).0 / tau - 1.0).abs() < 1e-9, "{form:?} {tau}");
        }
    }
    assert!(
        Learning::<f64>::new(
            dealt(60),
            Model::Linear,
            Task::Tuning { form: TauForm::Exp, tau: 0.0 },
            Scaling::Unit,
            0
        )
        .is_err()
    );
    assert!(
        Learning::<f64>::new(
            dealt(60),
            Model::Mlp(0),
            Task::Cleaning { tau: 0.0, psi: 0.0 },
            Scaling::Unit,
            0
        )
        .is_err()
    );
}

#[test]
fn weights_are_compared_with_the_truth() {
    use metrics::Cleaning;
    let c =
        Cleaning::of(vec![(0.1, true), (0.2, true), (0.3, false), (0.7, true), (0.8, false), (0.9, false)]);
    assert!((c.auc - 8.0 / 9.0).abs() < 1e-12 && (c.precision - 2.0 / 3.0).abs() < 1e-12);
    assert!((c.recall - 2.0 / 3.0).abs() < 1e-12 && (c.f1 - 2.0 / 3.0).abs() < 1e-12);
    assert!((c.weight_clean - 2.0 / 3.0).abs() < 1e-12 && (c.weight_wrong - 1.0 / 3.0).abs() < 1e-12);
    let tie = Cleaning::of(vec![(0.5, true), (0.5, false), (0.5, false)]);
    assert_eq!((tie.auc, tie.precision, tie.recall, tie.f1), (0.5, 0.0, 0.0, 0.0));
}

#[test]
fn a_model_is_asked_for_given_labels_of_a_thousand_samples_an_agent() {
    let recipe = Recipe {
        agents: 2,
        partition: Partition::Uniform,
        split: Split::Share(0.9),
        noise: Noise::Uniform,
        cr: 0.4,
        seed: 5,
    };
    let dealt = Arc::new(recipe.deal(images(3000, 4, 3, 1), images(30, 4, 3, 2)).unwrap());
    let task = Task::Cleaning { tau: 0.01, psi: 0.0 };
    let problem = Learning::<f32>::new(dealt.clone(), Model::Linear, task, Scaling::Unit, 0).unwrap();
    let is_wrong = |(sample, given): &(usize, u8)| dealt.data.labels()[*sample] != *given;
    let found = |loss: fn(bool) -> f64| {
        let of = |which: &[(usize, u8)]| {
            assert_eq!(which.len(), 2 * metrics::TRIED);
            for (hand, some) in dealt.hands.iter().zip(which.chunks(metrics::TRIED)) {
                assert_eq!(hand.train.len(), 1350);
                for (j, asked) in some.iter().enumerate() {
                    let at = j * 1350 / metrics::TRIED;
                    assert_eq!(*asked, (hand.train[at] as usize, hand.given[at]));
                }
            }
            which.iter().map(|asked| loss(is_wrong(asked))).collect()
        };
        problem.found_by_model(of).unwrap()
    };
    // A label that the model finds unlikely has the larger loss.
    assert_eq!(found(|wrong| f64::from(u8::from(wrong))), ("auc_model", 1.0));
    assert_eq!(found(|wrong| f64::from(u8::from(!wrong))), ("auc_model", 0.0));
    assert_eq!(found(|_| 0.3), ("auc_model", 0.5));
}

#[test]
fn fab_cleans_and_the_metrics_see_it() {
    use crate::algorithm::{Algorithm, fab::Fab};
    use crate::{graph, mixing, network::Simulator};
    let recipe = Recipe {
        agents: 3,
        partition: Partition::Uniform,
        split: Split::Share(0.7),
        noise: Noise::Uniform,
        cr: 0.4,
        seed: 5,
    };
    let dealt = Arc::new(recipe.deal(images(300, 6, 3, 1), images(200, 6, 3, 2)).unwrap());
    for model in [Model::Linear, Model::Mlp(8)] {
        let problem = Learning::<f32>::new(
            dealt.clone(),
            model,
            Task::Cleaning { tau: 0.01, psi: 0.0 },
            Scaling::Standardised,
            0,
        )
        .unwrap();
        let mut network = Simulator::new(mixing::Sequence::uniform(graph::Static::ring(3)), Threads::one());
        let fab = Fab {
            lambda: 1.0.into(),
            eta_x: 50.0.into(),
            eta_y: 0.1.into(),
            eta_z: None,
            penalty_form: Default::default(),
        };
        let mut state = fab.start(&problem, &mut network, Some(&problem.start())).unwrap();
        let get = |values: &[(&str, f64)], name: &str| values.iter().find(|v| v.0 == name).unwrap().1;
        let before = problem.state_metrics(&state.views()).unwrap();
        assert_eq!((get(&before, "auc"), get(&before, "psi_moved")), (0.5, 0.0));
        (0..300).for_each(|k| state.step(k, &problem, &mut network).unwrap());
        let after = problem.state_metrics(&state.views()).unwrap();
        assert!(get(&after, "auc") > 0.95 && get(&after, "test_accuracy") > 95.0, "{after:?}");
        // The model alone finds them as well, and found few at its random start.
        assert!(get(&after, "auc_model") > 0.95 && get(&before, "auc_model") < 0.8, "{before:?} {after:?}");
        assert!(
            get(&after, "f1") > 0.8
                && get(&after, "test_accuracy_z") > 90.0
                && get(&after, "agents_accuracy") > 90.0,
            "{after:?}"
        );
        assert!(
            get(&after, "weight_clean") > get(&after, "weight_wrong")
                && get(&after, "loss") < get(&before, "loss")
        );
    }
}

/// Uniform on ±1/√pixels for the hidden layer and on ±1/√hidden behind it, biases included; linear models
/// start at 0.
#[test]
fn an_mlp_starts_as_wide_as_its_layers_say() {
    let net = |model| Net { pixels: 100, classes: 5, model };
    let (mlp, h) = (net(Model::Mlp(4)), 4);
    let largest = |w: &[f64]| w.iter().fold(0.0f64, |most, v| most.max(v.abs()));
    for seed in 0..5 {
        let start = mlp.start(seed);
        assert_eq!(start.len(), 101 * h + 5 * (h + 1));
        let (first, second) = start.split_at(101 * h);
        assert!((0.099..0.1).contains(&largest(first)), "{}", largest(first));
        assert!((0.4..0.5).contains(&largest(second)), "{}", largest(second));
        let mean = first.iter().sum::<f64>() / first.len() as f64;
        assert!(mean.abs() < 0.01, "{mean}");
        assert_ne!(start, mlp.start(seed + 1));
    }
    // The first weight behind the hidden layer belongs to it no more.
    assert!((0..20).any(|seed| mlp.start(seed)[101 * h].abs() > 0.1));
    assert!((0..20).any(|seed| mlp.start(seed)[101 * h - 1].abs() > 0.05));
    for model in [Model::Linear, Model::LinearNoBias] {
        assert_eq!(net(model).start(3), vec![0.0; net(model).width()]);
    }
    assert_eq!((net(Model::Linear).width(), net(Model::LinearNoBias).width()), (505, 500));
}

/// Three pixels and a bias to two units, these and a bias to two classes. A product of a row with m × n
/// weights is 2mn operations: forward and by the weights in both layers, and back to the hidden values.
#[test]
fn operations_of_small_models_are_counted() {
    let net = |model| Net { pixels: 3, classes: 2, model };
    assert_eq!(net(Model::Mlp(2)).flops(), 2 * (4 * 2) * 2 + 3 * (2 * 3) * 2);
    assert_eq!(net(Model::Linear).flops(), 2 * (4 * 2) * 2);
    assert_eq!(net(Model::LinearNoBias).flops(), 2 * (3 * 2) * 2);
    // A BERT's pixels are the bytes of its tokens, two each.
    let bert = Bert {
        vocabulary: 9,
        positions: 16,
        types: 1,
        hidden: 4,
        layers: 2,
        heads: 2,
        intermediate: 6,
        epsilon: 1e-12,
        pool: bert::Pool::Mean,
    };
    let texts = Net { pixels: 2 * 16, classes: 2, model: Model::Bert(bert) };
    assert_eq!(texts.flops(), bert.flops(16));
}

fn cleaning(psi: f64) -> Learning<f64> {
    Learning::new(dealt(60), Model::Linear, Task::Cleaning { tau: 0.3, psi }, Scaling::Unit, 0).unwrap()
}

fn tuning(form: TauForm) -> Learning<f64> {
    Learning::new(dealt(60), Model::Linear, Task::Tuning { form, tau: 0.2 }, Scaling::Unit, 0).unwrap()
}

/// Training samples come first and have the labels they were given, validation samples their true ones.
#[test]
fn batches_name_samples_and_labels() {
    let (full, some) = (cleaning(0.0), cleaning(0.0).batch(4));
    for (agent, hand) in full.dealt().hands.iter().enumerate() {
        let (n, m) = (hand.train.len(), hand.validation.len());
        assert_eq!(full.bilevel_batch(agent, 3), [(0..n).collect::<Vec<_>>(), (n..n + m).collect()]);
        assert_eq!(full.single_batch(agent, 3), (0..n + m).collect::<Vec<_>>());
        for place in 0..n {
            assert_eq!(full.sample(agent, place), (hand.train[place] as usize, hand.given[place]));
        }
        for (place, sample) in hand.validation.iter().enumerate() {
            let truth = full.dealt().data.labels()[*sample as usize];
            assert_eq!(full.sample(agent, n + place), (*sample as usize, truth));
        }
        let [train, validation] = some.bilevel_batch(agent, 2);
        assert!(train.len() == n.min(4) && train.iter().all(|p| *p < n));
        assert!(validation.len() == m.min(4) && validation.iter().all(|p| (n..n + m).contains(p)));
        // Single-level methods begin anew after so many blocks as the largest agent needs.
        let blocks = SingleLevel::blocks(&some);
        assert_eq!(some.single_batch(agent, 1), some.single_batch(agent, 1 + blocks));
        assert_ne!(some.single_batch(agent, 0), some.single_batch(agent, 1));
        let alone = cleaning(0.0).baseline(TrainOn::Validation, 0.0);
        assert_eq!(alone.single_batch(agent, 3), (n..n + m).collect::<Vec<_>>());
    }
    let most = full.dealt().hands.iter().map(|h| h.train.len() + h.validation.len()).max().unwrap();
    assert_eq!((SingleLevel::blocks(&full), SingleLevel::blocks(&some)), (1, most.div_ceil(4)));
    // 42 training samples of three agents, 14 of an average one.
    let mean = full.dealt().hands.iter().map(|h| h.train.len()).sum::<usize>() / 3;
    let epochs = [4, mean, 1000].map(|b| cleaning(0.0).batch(b).epoch());
    assert_eq!((full.epoch(), epochs), (1, [mean / 4, 1, 1]));
    assert_eq!((SingleLevel::agents(&full), SingleLevel::width(&full)), (3, Bilevel::lower(&full)));
    let starts =
        |p: &Learning<f64>| SingleLevel::start_from(p, &Start { y: vec![vec![8.0]], ..p.start() }).clone();
    assert_eq!((starts(&full), starts(&tuning(TauForm::Exp))), (vec![vec![8.0]], vec![vec![8.0]]));
}

/// τ/2 ‖w‖² falls by τw in cleaning, τ‖w‖² by 2τw in tuning.
#[test]
fn the_baseline_decays_by_its_regulariser() {
    let at = |p: Learning<f64>| p.baseline(TrainOn::Both, 0.7).baseline_weight_decay();
    assert_eq!((at(cleaning(0.0)), at(tuning(TauForm::Plain))), (0.7, 1.4));
    assert_eq!(
        (cleaning(0.0).baseline_weight_decay(), tuning(TauForm::Exp).baseline_weight_decay()),
        (0.3, 0.4)
    );
}

/// ψ that went from ½ to 3/2 moved by 1; what is not the ψ of all agents is not compared.
#[test]
fn moved_weights_are_counted_from_where_they_start() {
    let p = cleaning(0.5);
    assert!(p.start().x.iter().flatten().all(|psi| *psi == 0.5));
    let widths: Vec<usize> = p.dealt().hands.iter().map(|h| h.train.len()).collect();
    assert_eq!(p.start().x.iter().map(Vec::len).collect::<Vec<_>>(), widths);
    let all = |psi: f64| widths.iter().map(|w| vec![psi; *w]).collect::<Vec<_>>();
    let found = p.cleaning(&all(1.5)).unwrap();
    assert_eq!(found[0], ("psi_moved", 1.0));
    assert!((found[5].1 - sigmoid(1.5)).abs() < 1e-12 && found[1] == ("auc", 0.5));
    let mut right = all(0.5);
    for (psi, hand) in right.iter_mut().zip(&p.dealt().hands) {
        psi.iter_mut().zip(&hand.wrong).filter(|w| *w.1).for_each(|(psi, _)| *psi = -0.5);
    }
    let found = p.cleaning(&right).unwrap();
    assert_eq!(found[1..5], [("auc", 1.0), ("precision", 1.0), ("recall", 1.0), ("f1", 1.0)]);
    assert_eq!(p.cleaning(&all(1.5)[1..]), None, "an agent is missing");
    right[1].pop();
    assert_eq!(p.cleaning(&right), None, "a sample is missing");
    assert_eq!(tuning(TauForm::Plain).cleaning(&all(1.5)), None);
}

#[test]
fn a_state_is_measured_by_its_mean_model() {
    use crate::rows::Rows;
    let p = tuning(TauForm::Exp);
    let rows = |seed: u64| (0..3).map(|i| random(p.net.width(), seed + i)).collect::<Vec<_>>();
    let (y, z) = (rows(20), rows(30));
    let mean = |all: &[Vec<f64>]| {
        (0..all[0].len()).map(|c| all.iter().map(|row| row[c]).sum::<f64>() / 3.0).collect::<Vec<f64>>()
    };
    let norm = |w: &[f64]| w.iter().map(|v| v * v).sum::<f64>();
    let [x, ys, zs] =
        [vec![vec![-1.0], vec![-2.0], vec![-3.0]], y.clone(), z.clone()].map(|v| Rows::from_vectors(&v));
    let views = [View::whole("x", &x), View::whole("y", &ys), View::whole("z", &zs)];
    let values = p.state_metrics(&views).unwrap();
    let get = |name: &str| values.iter().find(|v| v.0 == name).unwrap_or_else(|| panic!("{name}")).1;
    assert!((get("tau") - (-2.0f64).exp()).abs() < 1e-12);
    assert!((get("norm_gap") - (norm(&mean(&y)) - norm(&mean(&z)))).abs() < 1e-12);
    // f does not depend on x.
    let loss = (0..3).map(|i| objectives(&p, i, 0, &[0.0], &mean(&y)).0).sum::<f64>() / 3.0;
    assert!((get("loss") - loss).abs() < 1e-12, "{} {loss}", get("loss"));
    let own = y.iter().map(|w| p.test_accuracy(w)).sum::<f64>() / 3.0;
    assert!((get("agents_accuracy") - own).abs() < 1e-12);
    let test = &p.dealt.test;
    let hits = |w: &[f64]| {
        let hit = |j: &usize| {
            let inputs = test.image(*j).iter().zip(p.scaling().0.iter().zip(p.scaling().1));
            let inputs: Vec<f64> =
                inputs.map(|(byte, (a, b))| a * f64::from(*byte) + b).chain([1.0]).collect();
            let scores: Vec<f64> = w
                .chunks_exact(inputs.len())
                .map(|w| w.iter().zip(&inputs).map(|(w, v)| w * v).sum())
                .collect();
            scores.iter().all(|s| *s <= scores[test.labels()[*j] as usize])
        };
        (0..test.len()).filter(hit).count() as f64
    };
    assert!((get("test_accuracy") - 100.0 * hits(&mean(&y)) / test.len() as f64).abs() < 1e-9);
    assert_eq!(get("test_accuracy"), p.test_accuracy(&mean(&y)));
    assert_eq!(get("test_accuracy_z"), p.test_accuracy(&mean(&z)));
    let two = tuning(TauForm::Exp).threads(Threads::new(2));
    assert_eq!(two.state_metrics(&views).unwrap(), values);
    // A single-level method's x is the model; x alone of a bilevel one says nothing.
    let single = p.state_metrics(&[View::whole("x", &ys)]).unwrap();
    assert_eq!(single.iter().map(|v| v.0).collect::<Vec<_>>(), ["test_accuracy", "loss", "agents_accuracy"]);
    assert_eq!(single[1].1, get("loss"));
    assert_eq!(p.state_metrics(&views[..1]).unwrap(), vec![]);
    // Every metric is announced.
    let announced: Vec<_> = p.measures().iter().map(|m| m.name).collect();
    assert!(values.iter().all(|v| announced.contains(&v.0)), "{announced:?}");
}

#[test]
fn what_no_model_can_learn_from_is_refused() {
    let says = |task, model| Learning::<f64>::new(dealt(60), model, task, Scaling::Unit, 0).err().unwrap();
    let linear = |tau, psi| says(Task::Cleaning { tau, psi }, Model::Linear);
    assert!(linear(-0.1, 0.0).starts_with("tau is -0.1 and psi is 0;"));
    assert!(linear(f64::INFINITY, 0.0).starts_with("tau is inf"));
    assert!(linear(0.1, f64::NAN).contains("psi is NaN"));
    let tuned = |form, tau| says(Task::Tuning { form, tau }, Model::Linear);
    assert!(tuned(TauForm::Plain, f64::NAN).starts_with("tau starts at NaN"));
    assert!(tuned(TauForm::Softplus, 0.0).starts_with("tau starts at 0;"));
    assert!(says(Task::Cleaning { tau: 0.1, psi: 0.0 }, Model::Mlp(0)).contains("1 hidden unit or more"));
    let says = cleaning(0.0).begin_at(vec![0.0; 3]).err().unwrap();
    assert_eq!(says, "3 parameters for a model of 21");
    let mut poor = Dealt::clone(&dealt(60));
    poor.hands[1].validation.clear();
    let task = Task::Cleaning { tau: 0.1, psi: 0.0 };
    let says = Learning::<f64>::new(Arc::new(poor), Model::Linear, task, Scaling::Unit, 0).err().unwrap();
    assert_eq!(says, "every agent needs a training and a validation sample");
}
