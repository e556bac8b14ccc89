//! Constants of a graph sequence (appendix D): stochastic vectors α_k and β_k, smallest weights, diameter,
//! edge-utility, contraction coefficients.
use crate::graph::{DiGraph, GraphSequence};
use crate::mixing::{Mixing, Sequence};
use nalgebra::{DMatrix, DVector};
use std::sync::Arc;

/// α_k and β_k for `k = 0..=last`, one number per agent.
#[derive(Clone, Debug)]
pub struct Stochastic {
    /// α_k with α_{k+1}ᵀ A^k = α_kᵀ.
    pub alpha: Vec<Vec<f64>>,
    /// β_k with β_{k+1} = B^k β_k.
    pub beta: Vec<Vec<f64>>,
}

/// Iterations after the last one from which the backward recursion comes: by then its start is forgotten on
/// all but the slowest graphs. (Any stochastic vector at the end gives a sequence that satisfies the
/// recursion exactly.)
const TAIL: usize = 200;

/// The sequences of stochastic vectors of a sequence of matrices. α runs backwards from the end, β forwards
/// from 1/n.
///
/// The paper prints α_{k+1}ᵀ = α_kᵀ A^k; the averaged dynamics need α_{k+1}ᵀ A^k = α_kᵀ.
pub fn stochastic_vectors(sequence: &Sequence, last: usize) -> Stochastic {
    let n = sequence.agents();
    let mut mixing = Mixing::<f64>::default();
    let mut alpha = vec![vec![1.0 / n as f64; n]; last + 1];
    let mut now = alpha[last].clone();
    for k in (0..last + TAIL).rev() {
        sequence.fill(k, &mut mixing);
        now = pull_back(&mixing, &now);
        if k <= last {
            alpha[k].clone_from(&now);
        }
    }
    let mut beta = vec![vec![1.0 / n as f64; n]];
    for k in 0..last {
        sequence.fill(k, &mut mixing);
        beta.push(push_on(&mixing, &beta[k]));
    }
    Stochastic { alpha, beta }
}

/// α_k from α_{k+1}.
fn pull_back(m: &Mixing<f64>, next: &[f64]) -> Vec<f64> {
    let mut alpha = vec![0.0; next.len()];
    m.for_each_entry(|i, j, a, _| alpha[j] += next[i] * a);
    alpha
}

/// β_{k+1} from β_k.
fn push_on(m: &Mixing<f64>, beta: &[f64]) -> Vec<f64> {
    let mut next = vec![0.0; beta.len()];
    m.for_each_entry(|i, j, _, b| next[i] += b * beta[j]);
    next
}

/// The maximal edge-utility K(G): of the shortest paths between all ordered pairs, how many can run over one
/// link at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EdgeUtility {
    /// The number, or a bound on it.
    pub value: usize,
    /// Whether it is the number itself.
    pub exact: bool,
}

/// Counting is exact up to this many steps (links × pairs); beyond it the bound for any graph of the size is
/// given.
const COUNTED: usize = 20_000_000;

/// D(G) and K(G); `None` if the graph is not strongly connected.
///
/// The paths of different pairs can be chosen independently, so the largest load of a link (j, l) over all
/// coverings is the number of pairs (s, t) with a shortest path over it: d(s,j) + 1 + d(l,t) = d(s,t). No
/// search over coverings is needed.
pub fn diameter_and_utility(graph: &DiGraph) -> Option<(usize, EdgeUtility)> {
    let n = graph.agents();
    // distance[t][s] is the length from s to t.
    let distance: Vec<Vec<u32>> =
        (0..n).map(|t| graph.distances_to(t).into_iter().collect()).collect::<Option<_>>()?;
    let diameter = distance.iter().flatten().copied().max().unwrap_or(0) as usize;
    if graph.links().saturating_mul(n * n) > COUNTED {
        // A shortest path over (j, l) neither begins at l nor ends at j.
        return Some((diameter, EdgeUtility { value: (n - 1) * (n - 1) - (n - 2), exact: false }));
    }
    let mut largest = 0;
    for (j, l) in graph.edges() {
        let to_j = &distance[j];
        let load = |t: usize| (0..n).filter(|s| to_j[*s] + 1 + distance[t][l] == distance[t][*s]).count();
        largest = largest.max((0..n).map(load).sum());
    }
    Some((diameter, EdgeUtility { value: largest, exact: true }))
}

/// What one step (or one window of steps) of mixing does to the errors D and S.
#[derive(Clone, Copy, Debug)]
pub struct Contraction {
    /// c_k of Lemma consensus_error_bound: mixing leaves at most (1 − c_k)·D.
    pub c: f64,
    /// e_k of Lemma tracking_error_bound.
    pub e: f64,
    /// What mixing really takes off the worst D.
    pub measured_c: f64,
    /// What mixing really takes off the worst S.
    pub measured_e: f64,
}

/// c_k of the lemma. The caller gives min(α_{k+1}), max(α_k), the smallest weight, D(G) and K(G).
pub fn consensus_coefficient(
    alpha_next_min: f64,
    alpha_max: f64,
    a: f64,
    diameter: usize,
    utility: usize,
) -> f64 {
    alpha_next_min * a * a / (alpha_max * alpha_max * (diameter * utility).max(1) as f64)
}

/// e_k of the lemma, from min(β_k), max(β_k), max(β_{k+1}), the smallest weight, D(G) and K(G).
pub fn tracking_coefficient(
    beta_min: f64,
    beta_max: f64,
    beta_next_max: f64,
    b: f64,
    diameter: usize,
    utility: usize,
) -> f64 {
    beta_min * beta_min * b * b / (beta_max * beta_max * beta_next_max * (diameter * utility).max(1) as f64)
}

/// The constants of a sequence, over the iterations that were looked at.
#[derive(Clone, Debug)]
pub struct GraphConstants {
    /// Number of agents.
    pub agents: usize,
    /// Iterations looked at …
    pub looked_at: usize,
    /// … and whether they are all there are: one whole period.
    pub whole: bool,
    /// Mean number of links an iteration.
    pub links: f64,
    /// Smallest non-zero weight of A.
    pub a: f64,
    /// Smallest non-zero weight of B.
    pub b: f64,
    /// The smallest C such that every window of C iterations is strongly connected; 1 is the paper's
    /// assumption.
    pub window: Option<usize>,
    /// Whether some weights are lost: A's rows or B's columns do not sum to 1.
    pub lossy: bool,
    /// What follows where a window exists and nothing is lost.
    pub mixing: Option<MixingConstants>,
}

/// The part of the constants that needs connected windows.
#[derive(Clone, Debug)]
pub struct MixingConstants {
    /// Smallest and largest n·\[α_k\]_i: the paper's α̲ and ᾱ, measured (its own α̲ is aⁿ).
    pub alpha: (f64, f64),
    /// Smallest and largest n·\[β_k\]_i.
    pub beta: (f64, f64),
    /// Largest diameter.
    pub diameter: usize,
    /// Largest edge-utility.
    pub utility: EdgeUtility,
    /// The smallest of c_k and e_k, proved and measured; over windows of C iterations if C > 1.
    pub worst: Contraction,
    /// γ = max (n + 1/min β).
    pub gamma: f64,
    /// By what factor D and S really shrink an iteration, on average over a long stretch.
    pub rate: (f64, f64),
}

/// Matrices up to this size are made dense, to measure contraction.
const DENSE: usize = 128;

/// The constants of iterations `0..iterations` (one period, if that is shorter). Large graphs are looked at
/// for fewer iterations.
///
/// ```
/// use dibo::{graph::Cycle, mixing::Sequence, theory::graph::constants};
///
/// let known = constants(&Sequence::uniform(Cycle::new(6, 0.3, 0)), 60);
/// assert_eq!((known.agents, known.window), (6, Some(1))); // strongly connected at every iteration
/// assert!(known.a > 0.0 && known.a <= 0.5);
/// ```
pub fn constants(sequence: &Sequence, iterations: usize) -> GraphConstants {
    let n = sequence.agents();
    let most = iterations.min(match n {
        0..=DENSE => usize::MAX,
        129..=400 => 30,
        _ => 12,
    });
    let whole = sequence.period().is_some_and(|p| p <= most);
    let last = sequence.period().map_or(most, |p| most.min(p)).max(1);
    let all: Vec<Mixing<f64>> = (0..last).map(|k| sequence.at(k)).collect();
    let (mut a, mut b) = (f64::INFINITY, f64::INFINITY);
    all.iter().map(Mixing::smallest).for_each(|(ak, bk)| (a, b) = (a.min(ak), b.min(bk)));
    let lossy = all.iter().any(|m| !stochastic(m));
    // A window need not divide the period: look at as many periods as it takes to see every phase of a short
    // one.
    let window =
        smallest_window(&sequence.sides(), if whole { (12 * last).min(last.max(360)) } else { last });
    // Windows go on past the last iteration looked at where the sequence does.
    let mixing = window
        .filter(|_| !lossy && n > 1)
        .and_then(|window| mixing_constants(sequence, last.next_multiple_of(window), window));
    let links = all.iter().map(|m| m.graph.links()).sum::<usize>() as f64 / last as f64;
    GraphConstants { agents: n, looked_at: last, whole, links, a, b, window, lossy, mixing }
}

fn stochastic(m: &Mixing<f64>) -> bool {
    let n = m.graph.agents();
    let (mut rows, mut columns) = (vec![0.0; n], vec![0.0; n]);
    m.for_each_entry(|i, j, a, b| {
        rows[i] += a;
        columns[j] += b;
    });
    rows.iter().chain(&columns).all(|s: &f64| (s - 1.0).abs() < 1e-9)
}

fn mixing_constants(sequence: &Sequence, last: usize, window: usize) -> Option<MixingConstants> {
    let n = sequence.agents();
    let Stochastic { alpha, beta } = stochastic_vectors(sequence, last);
    let spread = |all: &[Vec<f64>]| {
        let values = || all.iter().flatten().map(|v| v * n as f64);
        (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max))
    };
    let mut worst = Contraction { c: 1.0, e: 1.0, measured_c: 1.0, measured_e: 1.0 };
    let (mut diameter, mut utility) = (0, EdgeUtility { value: 0, exact: true });
    for k in (0..last).step_by(window) {
        let step = Step::new(sequence, k, window);
        let (d, u) = diameter_and_utility(&step.graph)?;
        let one = step.contraction([&alpha[k], &alpha[k + window]], [&beta[k], &beta[k + window]], d, u);
        worst = Contraction {
            c: worst.c.min(one.c),
            e: worst.e.min(one.e),
            measured_c: worst.measured_c.min(one.measured_c),
            measured_e: worst.measured_e.min(one.measured_e),
        };
        diameter = diameter.max(d);
        utility = EdgeUtility { value: utility.value.max(u.value), exact: utility.exact && u.exact };
    }
    let (alpha, beta) = (spread(&alpha), spread(&beta));
    Some(MixingConstants {
        gamma: n as f64 * (1.0 + 1.0 / beta.0),
        rate: rates(sequence),
        alpha,
        beta,
        diameter,
        utility,
        worst,
    })
}

/// One step of mixing, or a window of steps multiplied out.
pub struct Step {
    /// Who hears whom.
    pub graph: DiGraph,
    a: f64,
    b: f64,
    /// A and B, dense, where they are small.
    dense: Option<[DMatrix<f64>; 2]>,
}

impl Step {
    /// Iterations `k..k + window`.
    pub fn new(sequence: &Sequence, k: usize, window: usize) -> Self {
        let n = sequence.agents();
        let m: Mixing<f64> = sequence.at(k);
        let (a, b) = m.smallest();
        let dense = |m: &Mixing<f64>| {
            let mut both = [DMatrix::zeros(n, n), DMatrix::zeros(n, n)];
            m.for_each_entry(|i, j, a, b| (both[0][(i, j)], both[1][(i, j)]) = (a, b));
            both
        };
        if window == 1 {
            return Step { dense: (n <= DENSE).then(|| dense(&m)), graph: m.graph, a, b };
        }
        let mut product = dense(&m);
        for later in k + 1..k + window {
            let [a, b] = dense(&sequence.at(later));
            product = [a * &product[0], b * &product[1]];
        }
        let smallest =
            |m: &DMatrix<f64>| m.iter().copied().filter(|v| *v > 0.0).fold(f64::INFINITY, f64::min);
        let linked = |i: usize, j: usize| product[0][(i, j)] > 0.0 || product[1][(i, j)] > 0.0;
        let graph = DiGraph::from_edges(
            n,
            (0..n).flat_map(|i| (0..n).map(move |j| (j, i))).filter(|(j, i)| linked(*i, *j)),
        );
        Step {
            graph,
            a: smallest(&product[0]),
            b: smallest(&product[1]),
            dense: (n <= DENSE).then_some(product),
        }
    }

    /// c and e, proved and measured, from (α, α⁺), (β, β⁺), D(G) and K(G).
    pub fn contraction(
        &self,
        alpha: [&[f64]; 2],
        beta: [&[f64]; 2],
        diameter: usize,
        utility: EdgeUtility,
    ) -> Contraction {
        let (low, high) = (
            |v: &[f64]| v.iter().copied().fold(f64::INFINITY, f64::min),
            |v: &[f64]| v.iter().copied().fold(0.0f64, f64::max),
        );
        let c = consensus_coefficient(low(alpha[1]), high(alpha[0]), self.a, diameter, utility.value);
        let e =
            tracking_coefficient(low(beta[0]), high(beta[0]), high(beta[1]), self.b, diameter, utility.value);
        let [measured_c, measured_e] = match &self.dense {
            None => [f64::NAN; 2],
            Some([a, b]) => {
                let root = |v: &[f64]| DVector::from_iterator(v.len(), v.iter().map(|v| v.sqrt()));
                // D: u = √α ∘ (x − x̂) goes to √α⁺ ∘ A(x − x̂); S: u = √β ∘ (t/β − Σt) goes to √β⁺ ∘ (Bt/β⁺ −
                // Σt).
                let (a0, a1, b0, b1) = (root(alpha[0]), root(alpha[1]), root(beta[0]), root(beta[1]));
                let pull =
                    DMatrix::from_fn(a.nrows(), a.ncols(), |i, j| a1[i] * a[(i, j)] / a0[j] - a1[i] * a0[j]);
                let push =
                    DMatrix::from_fn(b.nrows(), b.ncols(), |i, j| b[(i, j)] * b0[j] / b1[i] - b1[i] * b0[j]);
                [1.0 - largest_square(&pull), 1.0 - largest_square(&push)]
            }
        };
        Contraction { c, e, measured_c, measured_e }
    }
}

/// The square of the largest singular value.
fn largest_square(m: &DMatrix<f64>) -> f64 {
    let square = m.transpose() * m;
    if m.nrows() <= 32 {
        return square.symmetric_eigenvalues().max();
    }
    let mut v = DVector::from_fn(m.nrows(), |i, _| 1.0 + (i as f64 * 0.7).sin());
    let mut size = 0.0;
    for _ in 0..100 {
        let next = &square * &v.normalize();
        (size, v) = (next.norm(), next);
        if size == 0.0 {
            break;
        }
    }
    size
}

/// Factors by which D and S shrink an iteration, on average over `LONG` iterations after the start is
/// forgotten.
fn rates(sequence: &Sequence) -> (f64, f64) {
    const LONG: usize = 300;
    let n = sequence.agents();
    let Stochastic { alpha, beta } = stochastic_vectors(sequence, LONG);
    let mut mixing = Mixing::<f64>::default();
    let mut v: Vec<f64> = (0..n).map(|i| (i as f64 * 1.3).sin() + if i == 0 { 2.0 } else { 0.0 }).collect();
    let mut t = v.clone();
    let (mut sum, mut counted) = ([0.0f64; 2], 0usize);
    for k in 0..LONG {
        sequence.fill(k, &mut mixing);
        let clean = |v: &mut [f64], t: &mut [f64], k: usize| {
            let mean: f64 = v.iter().zip(&alpha[k]).map(|(v, a)| v * a).sum();
            let total: f64 = t.iter().sum();
            v.iter_mut().for_each(|v| *v -= mean);
            t.iter_mut().zip(&beta[k]).for_each(|(t, b)| *t -= total * b);
            let d: f64 = v.iter().zip(&alpha[k]).map(|(v, a)| a * v * v).sum();
            let s: f64 = t.iter().zip(&beta[k]).map(|(t, b)| t * t / b).sum();
            (d, s)
        };
        let (d0, s0) = clean(&mut v, &mut t, k);
        if d0 < 1e-24 || s0 < 1e-24 {
            // All agree after finitely many iterations.
            return (0.0, 0.0);
        }
        v.iter_mut().for_each(|v| *v /= d0.sqrt());
        t.iter_mut().for_each(|t| *t /= s0.sqrt());
        let (mut next_v, mut next_t) = (vec![0.0; n], vec![0.0; n]);
        mixing.for_each_entry(|i, j, a, b| {
            next_v[i] += a * v[j];
            next_t[i] += b * t[j];
        });
        (v, t) = (next_v, next_t);
        let (d1, s1) = clean(&mut v, &mut t, k + 1);
        if k >= LONG / 3 {
            sum = [sum[0] + d1.max(1e-300).ln(), sum[1] + s1.max(1e-300).ln()];
            counted += 1;
        }
    }
    let mean = sum.map(|s| (s / counted as f64).exp());
    (mean[0], mean[1])
}

/// The smallest C such that all whole windows `[mC, (m+1)C)` inside `0..last` are strongly connected, of all
/// these sequences.
pub fn smallest_window(sides: &[Arc<dyn GraphSequence>], last: usize) -> Option<usize> {
    let all: Vec<Vec<DiGraph>> =
        sides.iter().map(|graphs| (0..last).map(|k| graphs.at(k)).collect()).collect();
    let connected =
        |w: &[DiGraph]| w.iter().skip(1).fold(w[0].clone(), |u, g| u.union(g)).unreachable_pair().is_none();
    (1..=last).find(|c| all.iter().all(|graphs| graphs.chunks_exact(*c).all(connected)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Cycle, ErdosRenyi, OnePeerExponential, Static};

    #[test]
    fn known_graphs() {
        // A ring's shortest paths are its only ones: over each link run those with 1, 2, …, n − 1 links,
        // n(n−1)/2 in all.
        let (diameter, utility) = diameter_and_utility(&Static::ring(7).at(0)).unwrap();
        assert_eq!((diameter, utility), (6, EdgeUtility { value: 21, exact: true }));
        assert_eq!(
            diameter_and_utility(&Static::complete(5).at(0)).unwrap(),
            (1, EdgeUtility { value: 1, exact: true })
        );
        assert!(diameter_and_utility(&DiGraph::from_edges(3, [(0, 1), (1, 2)])).is_none());
        assert!(!diameter_and_utility(&Static::complete(400).at(0)).unwrap().1.exact);
        assert_eq!(smallest_window(&[Arc::new(OnePeerExponential::new(8))], 12), Some(3));
    }

    #[test]
    fn the_edge_utility_is_the_best_over_all_coverings() {
        // Against a search over all choices of one shortest path for each pair.
        for seed in 0..20 {
            let graph = ErdosRenyi::new(4, 0.5, seed, true).at(0);
            let edges: Vec<(usize, usize)> = graph.edges().collect();
            let n = graph.agents();
            let mut choices: Vec<Vec<Vec<(usize, usize)>>> = Vec::new();
            for (s, t) in (0..n).flat_map(|s| (0..n).map(move |t| (s, t))).filter(|(s, t)| s != t) {
                let mut paths = vec![(s, Vec::new())];
                while paths.iter().all(|(at, _)| *at != t) {
                    paths = paths
                        .into_iter()
                        .flat_map(|(at, path)| {
                            edges
                                .iter()
                                .filter(move |e| e.0 == at)
                                .map(move |e| (e.1, [path.clone(), vec![*e]].concat()))
                                .collect::<Vec<_>>()
                        })
                        .collect();
                }
                choices.push(paths.into_iter().filter(|(at, _)| *at == t).map(|(_, p)| p).collect());
            }
            let mut best = 0;
            let total: usize = choices.iter().map(Vec::len).product();
            for mut pick in 0..total.min(50_000) {
                let mut load = std::collections::BTreeMap::new();
                for paths in &choices {
                    for e in &paths[pick % paths.len()] {
                        *load.entry(*e).or_insert(0) += 1;
                    }
                    pick /= paths.len();
                }
                best = best.max(load.into_values().max().unwrap());
            }
            assert_eq!(diameter_and_utility(&graph).unwrap().1.value, best, "{edges:?}");
        }
    }

    #[test]
    fn facts_about_sequences() {
        let ring = constants(&Sequence::uniform(Cycle::new(6, 0.0, 0)), 60);
        let m = ring.mixing.unwrap();
        assert_eq!(
            (ring.links, ring.a, ring.b, ring.window, m.diameter, m.utility.value),
            (6.0, 0.5, 0.5, Some(1), 5, 15)
        );
        // A ring is balanced: α and β are uniform; its contraction is the circulant's, 1 − cos²(π/6).
        assert!((m.alpha.0 - 1.0).abs() < 1e-12 && (m.beta.1 - 1.0).abs() < 1e-12);
        assert!((m.worst.measured_c - (1.0 - (std::f64::consts::PI / 6.0).cos().powi(2))).abs() < 1e-9);
        assert!(m.worst.c > 0.0 && m.worst.c < m.worst.measured_c && m.worst.e < m.worst.measured_e);
        // Windows: no single graph is connected, three of them agree at once.
        let one = constants(&Sequence::uniform(OnePeerExponential::new(8)), 60);
        let m = one.mixing.unwrap();
        assert_eq!((one.window, m.rate), (Some(3), (0.0, 0.0)));
        assert!((m.worst.measured_c - 1.0).abs() < 1e-9 && m.worst.c > 0.0);
        let lossy = constants(&Sequence::uniform(Cycle::new(5, 0.5, 3)).frozen(), 30);
        assert!(lossy.lossy && lossy.mixing.is_none());
    }

    #[test]
    fn vectors_are_stochastic_and_no_smaller_than_the_lemma_says() {
        for seed in 0..20 {
            let sequence = Sequence::uniform(ErdosRenyi::new(5, 0.4, seed, true));
            let facts = constants(&sequence, 30);
            let vectors = stochastic_vectors(&sequence, 30);
            for k in 0..30 {
                let m: Mixing<f64> = sequence.at(k);
                let back: Vec<f64> =
                    (0..5).map(|j| (0..5).map(|i| vectors.alpha[k + 1][i] * m.a(i, j)).sum()).collect();
                assert!(back.iter().zip(&vectors.alpha[k]).all(|(a, b)| (a - b).abs() < 1e-16));
                assert!(
                    (vectors.alpha[k].iter().sum::<f64>() - 1.0).abs() < 1e-13
                        && (vectors.beta[k].iter().sum::<f64>() - 1.0).abs() < 1e-13
                );
                assert!(
                    vectors.alpha[k].iter().all(|v| *v >= facts.a.powi(5) / 5.0)
                        && vectors.beta[k].iter().all(|v| *v >= facts.b.powi(5) / 5.0)
                );
            }
        }
    }

    /// The proof's constants hold (ab)⁻ⁿ. A ring needs none of it: its vectors are uniform, and both what is
    /// proved and what is seen fall like powers of n. On a digraph where agent i hears i + 1 and agent 0
    /// alone, α really halves with every agent, and the proved contraction with it; the contraction itself
    /// does not.
    #[test]
    fn constants_can_fall_exponentially_where_contraction_does_not() {
        let facts = |sequence: Sequence| constants(&sequence, 30).mixing.unwrap();
        let ring = |n: usize| facts(Sequence::uniform(Static::ring(n)));
        let fan = |n: usize| {
            let edges = (1..n).flat_map(|i| [(i, i - 1), (0, i)]);
            DiGraph::from_edges(n, edges.collect::<std::collections::BTreeSet<_>>())
        };
        let (few, many) = (ring(6), ring(12));
        assert!((few.alpha.0 - 1.0).abs() < 1e-12 && (many.alpha.0 - 1.0).abs() < 1e-12);
        // c = a²/(α D K) = n/4 / ((n−1) · n(n−1)/2), and 1 − cos²(π/n) of a circulant.
        assert!((few.worst.c / many.worst.c - 121.0 / 25.0).abs() < 1e-9);
        let squared = few.worst.measured_c / many.worst.measured_c;
        assert!((3.5..4.0).contains(&squared), "{squared}");
        let (few, many) =
            (facts(Sequence::uniform(Static::new(fan(8)))), facts(Sequence::uniform(Static::new(fan(16)))));
        // α of an agent is α̲/n: eight more agents, eight halves.
        let halved = (few.alpha.0 / 8.0) / (many.alpha.0 / 16.0);
        assert!((halved / 256.0 - 1.0).abs() < 0.05, "{halved}");
        assert!(few.worst.c / many.worst.c > 200.0, "{} {}", few.worst.c, many.worst.c);
        // Everybody hears agent 0 with a weight of a third at least.
        assert!(few.rate.0 < 2.0 / 3.0 && many.rate.0 < 2.0 / 3.0, "{:?} {:?}", few.rate, many.rate);
        // Turned around, the same happens to β.
        let least = |n: usize| {
            let turned = Sequence::uniform(Static::new(fan(n).reversed()));
            stochastic_vectors(&turned, 400).beta[400].iter().copied().fold(f64::INFINITY, f64::min)
        };
        let halved = least(8) / least(16);
        assert!((halved / 256.0 - 1.0).abs() < 0.05, "{halved}");
    }
}
