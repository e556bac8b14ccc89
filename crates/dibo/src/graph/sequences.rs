//! The sequences: the paper's 30-iteration cycle, Erdős–Rényi at each iteration, fixed graphs, exponential
//! ones, explicit lists.
use super::random::SOME;
use super::{DiGraph, Gaps, GraphSequence};
use crate::rng::{Purpose, stream};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// When random edges are drawn anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Redraw {
    /// At each iteration.
    #[default]
    Iteration,
    /// Once, so that the whole sequence repeats.
    Never,
}

/// The paper's sequence: an augmented Erdős–Rényi phase (random edges over a fixed ring), a directed ring, a
/// reversed ring.
///
/// ```
/// use dibo::graph::{Cycle, GraphSequence};
///
/// let graphs = Cycle::new(5, 0.3, 0).phases([1, 1, 1]);
/// // The second phase is the directed ring: agent 0 sends to agent 1, and hears agent 4.
/// assert_eq!(graphs.at(1).links(), 5);
/// assert!(graphs.at(1).edges().any(|link| link == (4, 0)));
/// ```
#[derive(Clone, Debug)]
pub struct Cycle {
    n: usize,
    seed: u64,
    gaps: Gaps,
    phases: [usize; 3],
    redraw: Redraw,
}

impl Cycle {
    /// Phases of ten iterations, random edges with probability `nu` drawn anew at each iteration.
    pub fn new(n: usize, nu: f64, seed: u64) -> Self {
        Cycle { n, seed, gaps: Gaps::new(nu), phases: [10; 3], redraw: Redraw::Iteration }
    }

    /// Other phase lengths.
    pub fn phases(mut self, phases: [usize; 3]) -> Self {
        self.phases = phases;
        self
    }

    /// When random edges are drawn.
    pub fn redraw(mut self, redraw: Redraw) -> Self {
        self.redraw = redraw;
        self
    }

    fn length(&self) -> usize {
        self.phases.iter().sum::<usize>().max(1)
    }
}

impl GraphSequence for Cycle {
    fn agents(&self) -> usize {
        self.n
    }

    fn fill(&self, k: usize, graph: &mut DiGraph) {
        let (n, t) = (self.n, k % self.length());
        let next = |i: usize| (i + 1) % n;
        let previous = |i: usize| (i + n - 1) % n;
        if t < self.phases[0] {
            let draw = if self.redraw == Redraw::Never { t } else { k };
            random_graph(n, &self.gaps, self.seed, draw as u64, graph, |i| Some(previous(i)));
        } else if t < self.phases[0] + self.phases[1] {
            one_sender(n, graph, previous);
        } else {
            one_sender(n, graph, next);
        }
    }

    fn period(&self) -> Option<usize> {
        (self.redraw == Redraw::Never || self.phases[0] == 0).then(|| self.length())
    }

    fn connected_by_design(&self) -> bool {
        true
    }
}

/// Each agent hears one other.
fn one_sender(n: usize, graph: &mut DiGraph, sender: impl Fn(usize) -> usize) {
    graph.begin(n);
    for i in 0..n {
        let s = sender(i);
        graph.push(s.min(i) as u32);
        if s != i {
            graph.push(s.max(i) as u32);
        }
        graph.close_row();
    }
}

/// Each ordered pair linked with the probability behind `gaps`, plus the links to itself and from
/// `always(i)`.
fn random_graph(
    n: usize,
    gaps: &Gaps,
    seed: u64,
    draw: u64,
    graph: &mut DiGraph,
    always: impl Fn(usize) -> Option<usize>,
) {
    let mut rng = stream(seed, Purpose::Graph, 0, draw);
    // Trials run over receiver-major pairs, so senders come out in agent order. They are drawn some at a
    // time; a mark that no trial reaches stands behind the last one.
    let (mut hits, mut count, mut at, mut next) = ([0; SOME], 0, 0, 0);
    let trials = (n * n) as u64;
    graph.fill_rows(n, |i, row| {
        let first = (i * n) as u64;
        let other = always(i).unwrap_or(i);
        for (below, fixed) in [(i.min(other), true), (i.max(other), other != i), (n, false)] {
            let end = first + below as u64;
            loop {
                while at < count && hits[at] < end {
                    row.push((hits[at] - first) as u32);
                    at += 1;
                }
                if at < count || next >= trials {
                    break;
                }
                (count, at) = (gaps.some_hits(trials, &mut next, &mut rng, &mut hits), 0);
            }
            if fixed {
                row.push(below as u32);
                at += usize::from(at < count && hits[at] == end);
            }
        }
    });
}

/// Erdős–Rényi at each iteration.
#[derive(Clone, Debug)]
pub struct ErdosRenyi {
    n: usize,
    seed: u64,
    gaps: Gaps,
    connected: bool,
    redraw: Redraw,
}

impl ErdosRenyi {
    /// Every ordered pair is linked with probability `nu`; with `connected`, graphs are drawn until one is
    /// strongly connected.
    pub fn new(n: usize, nu: f64, seed: u64, connected: bool) -> Self {
        ErdosRenyi { n, seed, gaps: Gaps::new(nu), connected, redraw: Redraw::Iteration }
    }

    /// When random edges are drawn.
    pub fn redraw(mut self, redraw: Redraw) -> Self {
        self.redraw = redraw;
        self
    }

    /// How often a graph is drawn before the search for a strongly connected one is given up.
    pub const TRIES: u64 = 1000;
}

impl GraphSequence for ErdosRenyi {
    fn agents(&self) -> usize {
        self.n
    }

    fn fill(&self, k: usize, graph: &mut DiGraph) {
        let k = if self.redraw == Redraw::Never { 0 } else { k as u64 };
        for attempt in 0..Self::TRIES {
            random_graph(self.n, &self.gaps, self.seed.wrapping_add(attempt << 40), k, graph, |_| None);
            if !self.connected || graph.unreachable_pair().is_none() {
                return;
            }
        }
    }

    fn period(&self) -> Option<usize> {
        (self.redraw == Redraw::Never).then_some(1)
    }
}

/// One graph for ever.
#[derive(Clone, Debug)]
pub struct Static(DiGraph);

impl Static {
    /// This graph.
    pub fn new(graph: DiGraph) -> Self {
        Static(graph)
    }

    /// Agent i sends to i+1.
    pub fn ring(n: usize) -> Self {
        Static(DiGraph::from_edges(n, (0..n).map(|i| (i, (i + 1) % n))))
    }

    /// Everyone sends to everyone.
    pub fn complete(n: usize) -> Self {
        Static(DiGraph::from_edges(n, (0..n).flat_map(|i| (0..n).map(move |j| (i, j)))))
    }

    /// Agent i sends to i + 1, i + 2, i + 4, ….
    pub fn exponential(n: usize) -> Self {
        let hops = || std::iter::successors(Some(1usize), |h| Some(h * 2)).take_while(|h| *h < n);
        Static(DiGraph::from_edges(n, (0..n).flat_map(|i| hops().map(move |h| (i, (i + h) % n)))))
    }
}

impl GraphSequence for Static {
    fn agents(&self) -> usize {
        self.0.agents()
    }

    fn fill(&self, _: usize, graph: &mut DiGraph) {
        graph.copy_from(&self.0);
    }

    fn period(&self) -> Option<usize> {
        Some(1)
    }
}

/// At iteration k agent i sends to i + 2^(k mod L) alone, L = ⌈log₂ n⌉: connected over windows of L
/// iterations.
#[derive(Clone, Debug)]
pub struct OnePeerExponential {
    n: usize,
}

impl OnePeerExponential {
    /// For `n` agents.
    pub fn new(n: usize) -> Self {
        OnePeerExponential { n }
    }
}

impl GraphSequence for OnePeerExponential {
    fn agents(&self) -> usize {
        self.n
    }

    fn fill(&self, k: usize, graph: &mut DiGraph) {
        let hop = 1usize << (k % self.period().unwrap_or(1));
        one_sender(self.n, graph, |i| (i + self.n - hop % self.n) % self.n);
    }

    fn period(&self) -> Option<usize> {
        Some((self.n.max(2).next_power_of_two().trailing_zeros() as usize).max(1))
    }
}

/// Graphs used in turn.
#[derive(Clone, Debug)]
pub struct List(Vec<DiGraph>);

impl List {
    /// Iteration k uses `graphs[k mod graphs.len()]`; there must be at least one, all of one size.
    pub fn new(graphs: Vec<DiGraph>) -> Self {
        assert!(!graphs.is_empty() && graphs.iter().all(|g| g.agents() == graphs[0].agents()));
        List(graphs)
    }
}

impl GraphSequence for List {
    fn agents(&self) -> usize {
        self.0[0].agents()
    }

    fn fill(&self, k: usize, graph: &mut DiGraph) {
        graph.copy_from(&self.0[k % self.0.len()]);
    }

    fn period(&self) -> Option<usize> {
        Some(self.0.len())
    }
}

/// Every link of another sequence, and the link back.
#[derive(Clone)]
pub struct Undirected(Arc<dyn GraphSequence>);

impl Undirected {
    /// These graphs without directions.
    pub fn new(graphs: Arc<dyn GraphSequence>) -> Self {
        Undirected(graphs)
    }
}

impl GraphSequence for Undirected {
    fn agents(&self) -> usize {
        self.0.agents()
    }

    fn fill(&self, k: usize, graph: &mut DiGraph) {
        self.0.fill(k, graph);
        *graph = graph.union(&graph.reversed());
    }

    fn period(&self) -> Option<usize> {
        self.0.period()
    }

    fn connected_by_design(&self) -> bool {
        self.0.connected_by_design()
    }
}

/// Of another sequence the links of those whose turn it is to send: agent i at iterations k ≡ i modulo the
/// number of turns. What connects everybody at once then does so over windows of that length.
#[derive(Clone)]
pub struct Turns(Arc<dyn GraphSequence>, usize);

impl Turns {
    /// So many turns; 1 leaves the graphs as they are.
    pub fn new(graphs: Arc<dyn GraphSequence>, turns: usize) -> Self {
        Turns(graphs, turns.max(1))
    }
}

impl GraphSequence for Turns {
    fn agents(&self) -> usize {
        self.0.agents()
    }

    fn fill(&self, k: usize, graph: &mut DiGraph) {
        self.0.fill(k, graph);
        graph.retain(|sender, _| sender as usize % self.1 == k % self.1);
    }

    fn period(&self) -> Option<usize> {
        let own = self.0.period()?;
        // The least common multiple; one that no number holds is never seen.
        let (mut gcd, mut rest) = (own, self.1);
        while rest > 0 {
            (gcd, rest) = (rest, gcd % rest);
        }
        (own / gcd.max(1)).checked_mul(self.1)
    }
}

#[cfg(test)]
mod tests {
    use super::super::check_connected;
    use super::*;

    #[test]
    fn cycle_has_three_phases() {
        let cycle = Cycle::new(7, 0.3, 5);
        let ring = Static::ring(7).at(0);
        for k in [0, 9, 30, 95] {
            let g = cycle.at(k);
            assert!(ring.edges().all(|e| g.edges().any(|f| e == f)), "phase one holds the ring");
            assert_eq!(g, cycle.at(k), "a pure function of k");
        }
        assert_ne!(cycle.at(0), cycle.at(30));
        assert_eq!(cycle.clone().redraw(Redraw::Never).at(4), cycle.clone().redraw(Redraw::Never).at(34));
        assert_eq!(cycle.at(13), ring);
        assert_eq!(cycle.at(29), ring.reversed());
        assert!((0..60).all(|k| cycle.at(k).unreachable_pair().is_none()));
        assert_eq!(Cycle::new(4, 0.0, 0).at(0), Static::ring(4).at(0));
        assert_eq!(Cycle::new(4, 1.0, 0).at(0), Static::complete(4).at(0));
        for n in [1, 2] {
            assert!((0..30).all(|k| Cycle::new(n, 0.5, 1).at(k).unreachable_pair().is_none()));
        }
    }

    #[test]
    fn turns_that_never_come_take_no_time() {
        let ring = |turns| Turns::new(Arc::new(Static::ring(4)), turns);
        assert_eq!(ring(usize::MAX).period(), Some(usize::MAX));
        let two: Arc<dyn GraphSequence> = Arc::new(OnePeerExponential::new(4));
        assert_eq!(Turns::new(two.clone(), usize::MAX).period(), None);
        assert_eq!((Turns::new(two.clone(), 6).period(), Turns::new(two, 3).period()), (Some(6), Some(6)));
        assert!(check_connected(&ring(usize::MAX), usize::MAX, 1).is_ok(), "four iterations are enough");
        assert!(check_connected(&Static::new(DiGraph::from_edges(4, [])), usize::MAX, 1).is_err());
        assert!(check_connected(&Static::ring(4), usize::MAX, 30).is_ok());
    }

    /// Each link is there once in so many iterations, and only together do they connect.
    #[test]
    fn agents_send_in_turn() {
        for (graphs, whole) in [(Static::ring(7), 7), (Static::complete(7), 42)] {
            let graphs: Arc<dyn GraphSequence> = Arc::new(graphs);
            let turns = Turns::new(graphs.clone(), 3);
            assert_eq!((0..3).map(|k| turns.at(k).links()).sum::<usize>(), whole);
            assert_eq!(turns.at(0).union(&turns.at(1)).union(&turns.at(2)), graphs.at(0));
            assert!(turns.at(1).edges().all(|(sender, receiver)| sender == receiver || sender % 3 == 1));
            assert!(check_connected(&turns, 3, 30).is_ok() && check_connected(&turns, 1, 30).is_err());
            assert_eq!(turns.period(), Some(3));
        }
        let cycle = Cycle::new(4, 0.5, 1).redraw(Redraw::Never);
        assert_eq!(Turns::new(Arc::new(cycle), 4).period(), Some(60));
        assert_eq!(Turns::new(Arc::new(Cycle::new(4, 0.5, 1)), 4).period(), None);
    }

    #[test]
    fn edge_frequency_is_nu() {
        let (n, nu, draws) = (6, 0.3, 20_000);
        let er = ErdosRenyi::new(n, nu, 1, false);
        let mut count = vec![0.0; n * n];
        for k in 0..draws {
            er.at(k).edges().for_each(|(s, r)| count[s * n + r] += 1.0 / draws as f64);
        }
        for s in 0..n {
            for r in 0..n {
                let expected = if s == r { 0.0 } else { nu };
                assert!((count[s * n + r] - expected).abs() < 0.017, "{s}->{r}: {}", count[s * n + r]);
            }
        }
    }

    #[test]
    fn connectivity_is_found_out() {
        assert!(check_connected(&ErdosRenyi::new(10, 0.3, 0, true), 1, 500).is_ok());
        let plain = check_connected(&ErdosRenyi::new(10, 0.1, 0, false), 1, 500).unwrap_err();
        assert!(plain.to_string().contains("is not strongly connected: agent"), "{plain}");
        for n in [2, 5, 8, 13] {
            let one = OnePeerExponential::new(n);
            assert!(check_connected(&one, one.period().unwrap(), 100).is_ok());
            assert!(check_connected(&Static::exponential(n), 1, 1).is_ok());
        }
        assert!(check_connected(&OnePeerExponential::new(8), 1, 100).is_err());
    }

    #[test]
    fn without_directions_links_go_both_ways_as_often() {
        let cycle = Cycle::new(5, 0.4, 1).redraw(Redraw::Never);
        let both = Undirected::new(Arc::new(cycle.clone()));
        assert!(both.at(3).edges().all(|(s, r)| both.at(3).edges().any(|e| e == (r, s))));
        assert_eq!((both.agents(), both.period()), (5, cycle.period()));
        assert_eq!(both.connected_by_design(), cycle.connected_by_design());
        assert_eq!(Undirected::new(Arc::new(Cycle::new(5, 0.4, 1))).period(), None);
    }

    /// Who knows when a sequence repeats looks no further than that, so it must really repeat then.
    #[test]
    fn sequences_repeat_when_they_say_so() {
        let cycle = |phases| Cycle::new(5, 0.4, 1).phases(phases);
        let list =
            || List::new(vec![Static::ring(5).at(0), Static::complete(5).at(0), Static::ring(5).at(0)]);
        let all: [(Box<dyn GraphSequence>, Option<usize>); 12] = [
            (Box::new(cycle([2, 3, 1])), None),
            (Box::new(cycle([2, 3, 1]).redraw(Redraw::Never)), Some(6)),
            (Box::new(cycle([0, 3, 1])), Some(4)),
            (Box::new(cycle([0, 0, 0])), Some(1)),
            (Box::new(ErdosRenyi::new(5, 0.4, 1, false)), None),
            (Box::new(ErdosRenyi::new(5, 0.4, 1, false).redraw(Redraw::Never)), Some(1)),
            (Box::new(Static::ring(5)), Some(1)),
            (Box::new(OnePeerExponential::new(5)), Some(3)),
            (Box::new(list()), Some(3)),
            (Box::new(Undirected::new(Arc::new(list()))), Some(3)),
            (Box::new(Turns::new(Arc::new(list()), 2)), Some(6)),
            (Box::new(Turns::new(Arc::new(list()), 0)), Some(3)),
        ];
        for (number, (sequence, period)) in all.iter().enumerate() {
            assert_eq!((sequence.agents(), sequence.period()), (5, *period), "sequence {number}");
            assert_eq!(sequence.at(7).agents(), 5, "sequence {number}");
            match period {
                Some(period) => (0..9).for_each(|k| assert_eq!(sequence.at(k), sequence.at(k + period))),
                None => assert_ne!(sequence.at(1), sequence.at(31), "sequence {number}"),
            }
        }
        assert!(all[0].0.connected_by_design() && !all[4].0.connected_by_design());
        assert!(!all[6].0.connected_by_design() && !all[10].0.connected_by_design());
        assert_eq!(
            [1, 2, 4, 5, 8, 9].map(|n| OnePeerExponential::new(n).period()),
            [1, 1, 2, 3, 3, 4].map(Some)
        );
    }

    #[test]
    fn exponential_graphs_send_to_powers_of_two() {
        let receivers = |g: &DiGraph, from: usize| {
            g.edges().filter(|(s, _)| *s == from).map(|(_, r)| r).collect::<Vec<_>>()
        };
        let whole = Static::exponential(6).at(0);
        assert_eq!((receivers(&whole, 0), receivers(&whole, 4)), (vec![1, 2, 4], vec![0, 2, 5]));
        let one = OnePeerExponential::new(6);
        let in_turn: Vec<_> = (0..4).map(|k| receivers(&one.at(k), 3)).collect();
        assert_eq!(in_turn, [[4], [5], [1], [4]]);
        assert_eq!(Static::complete(4).at(0).links(), 12);
        assert_eq!(Static::ring(4).at(9).edges().collect::<Vec<_>>(), [(3, 0), (0, 1), (1, 2), (2, 3)]);
    }

    /// No links at all connect nobody, however often they are drawn.
    #[test]
    fn a_search_for_connected_graphs_ends() {
        assert_eq!(ErdosRenyi::new(3, 0.0, 1, true).at(5).links(), 0);
        let (any, connected) = (ErdosRenyi::new(6, 0.25, 1, false), ErdosRenyi::new(6, 0.25, 1, true));
        for k in 0..50 {
            assert_eq!(connected.at(k).unreachable_pair(), None);
            // A graph that is connected at once is not drawn again.
            assert!(any.at(k).unreachable_pair().is_some() || any.at(k) == connected.at(k), "{k}");
        }
    }
}
