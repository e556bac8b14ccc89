//! Directed graphs and sequences of them. `G^k` is a pure function of (seed, k): nothing remembers where it
//! was.
mod loss;
mod random;
mod sequences;

pub use loss::Loss;
pub use random::Gaps;
pub use sequences::{Cycle, ErdosRenyi, List, OnePeerExponential, Redraw, Static, Turns, Undirected};

/// A directed graph on agents `0..n`. Every agent has a link to itself, which is always up.
///
/// ```
/// use dibo::graph::DiGraph;
///
/// let star = DiGraph::from_edges(3, [(0, 1), (0, 2)]);
/// assert_eq!(star.senders(2), [0, 2]); // itself, always
/// assert_eq!(star.out_degree(0), 3);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiGraph {
    /// Where each agent's senders begin in `from`; one longer than the number of agents.
    start: Vec<u32>,
    /// Senders of agent 0, then of agent 1, …; in agent order, itself included.
    from: Vec<u32>,
    /// How many agents each one sends to, itself included.
    out: Vec<u32>,
}

/// One agent's senders while they are written.
pub(crate) struct Row<'a> {
    senders: &'a mut [u32],
    out: &'a mut [u32],
    count: usize,
}

impl Row<'_> {
    #[inline(always)]
    pub(crate) fn push(&mut self, sender: u32) {
        self.senders[self.count] = sender;
        self.out[sender as usize] += 1;
        self.count += 1;
    }
}

impl DiGraph {
    /// The graph with these links (sender, receiver).
    pub fn from_edges(n: usize, edges: impl IntoIterator<Item = (usize, usize)>) -> Self {
        let mut pairs: Vec<(u32, u32)> = edges.into_iter().map(|(s, r)| (r as u32, s as u32)).collect();
        pairs.extend((0..n as u32).map(|i| (i, i)));
        pairs.sort_unstable();
        pairs.dedup();
        let mut graph = DiGraph::default();
        graph.begin(n);
        let mut pairs = pairs.into_iter().peekable();
        for i in 0..n as u32 {
            while let Some((_, s)) = pairs.next_if(|p| p.0 == i) {
                graph.push(s);
            }
            graph.close_row();
        }
        graph
    }

    /// Clears the graph to be filled row by row, keeping its memory.
    pub(crate) fn begin(&mut self, n: usize) {
        self.start.clear();
        self.from.clear();
        self.out.clear();
        self.start.push(0);
        self.out.resize(n, 0);
    }

    /// Makes the graph anew from the senders that `write` pushes for each agent, in order and at most `n`;
    /// keeps the memory.
    #[inline]
    pub(crate) fn fill_rows(&mut self, n: usize, mut write: impl FnMut(usize, &mut Row<'_>)) {
        let DiGraph { start, from, out } = self;
        start.clear();
        start.push(0);
        out.clear();
        out.resize(n, 0);
        let mut filled = 0;
        for i in 0..n {
            if from.len() < filled + n {
                from.resize((filled + n).max(from.capacity()), 0);
            }
            let mut row = Row { senders: &mut from[filled..filled + n], out, count: 0 };
            write(i, &mut row);
            filled += row.count;
            start.push(filled as u32);
        }
        from.truncate(filled);
    }

    #[inline]
    pub(crate) fn push(&mut self, sender: u32) {
        self.from.push(sender);
        self.out[sender as usize] += 1;
    }

    pub(crate) fn close_row(&mut self) {
        self.start.push(self.from.len() as u32);
    }

    /// Takes away the links (sender, receiver) for which `stays` is false; those to oneself stay.
    pub(crate) fn retain(&mut self, stays: impl Fn(u32, usize) -> bool) {
        let DiGraph { start, from, out } = self;
        let (mut kept, mut begin) = (0, 0);
        for i in 0..out.len() {
            let end = start[i + 1] as usize;
            for at in begin..end {
                let sender = from[at];
                if sender as usize == i || stays(sender, i) {
                    from[kept] = sender;
                    kept += 1;
                } else {
                    out[sender as usize] -= 1;
                }
            }
            (begin, start[i + 1]) = (end, kept as u32);
        }
        from.truncate(kept);
    }

    /// Makes this graph the same as `other`, keeping its memory.
    pub(crate) fn copy_from(&mut self, other: &DiGraph) {
        self.start.clone_from(&other.start);
        self.from.clone_from(&other.from);
        self.out.clone_from(&other.out);
    }

    /// Number of agents.
    pub fn agents(&self) -> usize {
        self.out.len()
    }

    /// Agents that send to `i`, in order, `i` among them.
    pub fn senders(&self, i: usize) -> &[u32] {
        &self.from[self.start[i] as usize..self.start[i + 1] as usize]
    }

    /// How many agents `j` sends to, itself included.
    pub fn out_degree(&self, j: usize) -> usize {
        self.out[j] as usize
    }

    /// How many agents each one hears, itself included.
    pub(crate) fn in_degrees(&self) -> impl Iterator<Item = u32> + '_ {
        self.start.windows(2).map(|ends| ends[1] - ends[0])
    }

    /// How many agents each one sends to, itself included.
    pub(crate) fn out_degrees(&self) -> &[u32] {
        &self.out
    }

    /// Links between different agents.
    pub fn links(&self) -> usize {
        self.from.len() - self.agents()
    }

    /// All links (sender, receiver) between different agents.
    pub fn edges(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        (0..self.agents())
            .flat_map(move |i| self.senders(i).iter().map(move |s| (*s as usize, i)).filter(|(s, r)| s != r))
    }

    /// The pattern for the mixing kernels.
    pub(crate) fn csr(&self) -> crate::kernels::Csr<'_> {
        crate::kernels::Csr { start: &self.start, from: &self.from }
    }

    pub(crate) fn entry_range(&self, i: usize) -> std::ops::Range<usize> {
        self.start[i] as usize..self.start[i + 1] as usize
    }

    /// All links reversed.
    pub fn reversed(&self) -> DiGraph {
        DiGraph::from_edges(self.agents(), self.edges().map(|(s, r)| (r, s)))
    }

    /// The links of both graphs.
    pub fn union(&self, other: &DiGraph) -> DiGraph {
        DiGraph::from_edges(self.agents(), self.edges().chain(other.edges()))
    }

    /// A pair (from, to) such that no path leads from the first to the second; `None` if the graph is
    /// strongly connected.
    pub fn unreachable_pair(&self) -> Option<(usize, usize)> {
        if self.agents() == 0 {
            return None;
        }
        // Who reaches agent 0 (walking links backwards), and whom agent 0 reaches (the same on the reversed
        // graph).
        if let Some(i) = self.distances_to(0).iter().position(Option::is_none) {
            return Some((i, 0));
        }
        self.reversed().distances_to(0).iter().position(Option::is_none).map(|i| (0, i))
    }

    /// Fewest links from each agent to `target`.
    pub(crate) fn distances_to(&self, target: usize) -> Vec<Option<u32>> {
        let mut distance = vec![None; self.agents()];
        distance[target] = Some(0);
        let mut queue = std::collections::VecDeque::from([(target, 0)]);
        while let Some((i, d)) = queue.pop_front() {
            for &j in self.senders(i) {
                if distance[j as usize].is_none() {
                    distance[j as usize] = Some(d + 1);
                    queue.push_back((j as usize, d + 1));
                }
            }
        }
        distance
    }

    /// The longest of all shortest paths; `None` if some agent cannot reach another.
    pub fn diameter(&self) -> Option<usize> {
        let mut longest = 0;
        for i in 0..self.agents() {
            for d in self.distances_to(i) {
                longest = longest.max(d? as usize);
            }
        }
        Some(longest)
    }
}

/// A graph for each iteration.
pub trait GraphSequence: Send + Sync {
    /// Number of agents.
    fn agents(&self) -> usize;
    /// Writes `G^k` into `graph`, reusing its memory.
    fn fill(&self, k: usize, graph: &mut DiGraph);
    /// After how many iterations the sequence repeats, if it does.
    fn period(&self) -> Option<usize>;
    /// True if every graph is strongly connected by its making, so that no check is needed.
    fn connected_by_design(&self) -> bool {
        false
    }
    /// `G^k`.
    fn at(&self, k: usize) -> DiGraph {
        let mut graph = DiGraph::default();
        self.fill(k, &mut graph);
        graph
    }
}

/// Where a sequence breaks the assumption on its links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disconnected {
    /// First iteration of the window.
    pub k: usize,
    /// Length of the window.
    pub window: usize,
    /// No path from here …
    pub from: usize,
    /// … to here.
    pub to: usize,
}

impl std::fmt::Display for Disconnected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Disconnected { k, window, from, to } = self;
        if *window == 1 {
            write!(f, "the graph at k = {k} is not strongly connected: agent {from} cannot reach agent {to}")
        } else {
            let last = k + window - 1;
            write!(
                f,
                "the links of k = {k} to {last} together are not strongly connected: agent {from} cannot \
                reach agent {to}"
            )
        }
    }
}

/// Iterations of a window that are looked at beyond the end of a run.
const LONGEST: usize = 100_000;

/// Looks for the first window `[mC, (m+1)C)` before `iterations` whose links together are not strongly
/// connected.
///
/// ```
/// use dibo::graph::{OnePeerExponential, check_connected};
///
/// let graphs = OnePeerExponential::new(8);
/// assert!(check_connected(&graphs, 1, 100).is_err()); // one link at a time connects nobody
/// assert!(check_connected(&graphs, 3, 100).is_ok()); // three iterations together do
/// ```
pub fn check_connected(
    sequence: &dyn GraphSequence,
    window: usize,
    iterations: usize,
) -> Result<(), Disconnected> {
    if sequence.connected_by_design() {
        return Ok(());
    }
    // Longer than a run or a period, a window shows nothing more; nobody waits for one that never ends.
    let period = sequence.period();
    let window = window.clamp(1, iterations.max(period.unwrap_or(1).min(LONGEST)).max(1));
    // A periodic sequence shows all its windows within one common multiple of period and window.
    let last = period.map_or(iterations, |p| iterations.min(p.saturating_mul(window))).max(1);
    let mut graph = DiGraph::default();
    for k in (0..last).step_by(window) {
        sequence.fill(k, &mut graph);
        let mut all = graph.clone();
        let mut apart = all.unreachable_pair();
        for later in k + 1..k + window {
            if apart.is_none() {
                break;
            }
            sequence.fill(later, &mut graph);
            let links = all.links();
            all = all.union(&graph);
            if all.links() > links {
                apart = all.unreachable_pair();
            }
        }
        if let Some((from, to)) = apart {
            return Err(Disconnected { k, window, from, to });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Purpose, stream};
    use petgraph::algo::kosaraju_scc;
    use rand::RngExt;

    #[test]
    fn edges_come_back() {
        let g = DiGraph::from_edges(4, [(0, 1), (2, 1), (3, 0), (0, 1)]);
        assert_eq!(g.edges().collect::<Vec<_>>(), [(3, 0), (0, 1), (2, 1)]);
        assert_eq!(g.senders(1), [0, 1, 2]);
        assert_eq!((g.out_degree(0), g.out_degree(1), g.links()), (2, 1, 3));
        assert_eq!(g.reversed().reversed(), g);
        assert_eq!(g.diameter(), None);
    }

    #[test]
    fn connectivity_and_diameter_agree_with_petgraph() {
        for seed in 0..300 {
            let mut r = stream(seed, Purpose::Graph, 0, 0);
            let n = r.random_range(1..9usize);
            let p = r.random_range(0.0..0.6);
            let edges: Vec<(usize, usize)> = (0..n)
                .flat_map(|i| (0..n).map(move |j| (i, j)))
                .filter(|(i, j)| i != j)
                .filter(|_| r.random_bool(p))
                .collect();
            let g = DiGraph::from_edges(n, edges.iter().copied());
            let mut oracle = petgraph::graph::DiGraph::<(), ()>::new();
            let nodes: Vec<_> = (0..n).map(|_| oracle.add_node(())).collect();
            edges.iter().for_each(|(i, j)| {
                oracle.add_edge(nodes[*i], nodes[*j], ());
            });
            assert_eq!(g.unreachable_pair().is_none(), kosaraju_scc(&oracle).len() == 1);
            let reach = |from: usize, to: usize| {
                petgraph::algo::has_path_connecting(&oracle, nodes[from], nodes[to], None)
            };
            if let Some((from, to)) = g.unreachable_pair() {
                assert!(!reach(from, to));
            }
            let far = (0..n).map(|i| petgraph::algo::dijkstra(&oracle, nodes[i], None, |_| 1usize));
            let far =
                far.map(|d| (d.len() == n).then(|| *d.values().max().unwrap())).collect::<Option<Vec<_>>>();
            assert_eq!(g.diameter(), far.map(|d| d.into_iter().max().unwrap()));
        }
    }

    /// A path 0 → 1 → 2 in one graph and back in the other: only together are they connected.
    #[test]
    fn windows_are_looked_at_in_turn_until_one_is_not_connected() {
        let there = DiGraph::from_edges(3, [(0, 1), (1, 2)]);
        let list = |graphs: &[&DiGraph]| List::new(graphs.iter().map(|g| (*g).clone()).collect());
        let (back, whole) = (there.reversed(), there.union(&there.reversed()));
        let found = |graphs: &[&DiGraph], window, iterations| {
            check_connected(&list(graphs), window, iterations).err().map(|d| (d.k, d.window, d.from, d.to))
        };
        assert_eq!(found(&[&there, &back], 2, 100), None);
        assert_eq!(found(&[&there, &back], 1, 100), Some((0, 1, 1, 0)));
        assert_eq!(found(&[&back, &there], 1, 100), Some((0, 1, 0, 1)));
        assert_eq!(found(&[&whole, &whole, &whole, &there], 1, 100), Some((3, 1, 1, 0)));
        assert_eq!(found(&[&whole, &whole, &whole, &there], 1, 3), None, "it is over by then");
        assert_eq!(found(&[&whole, &whole, &whole, &there], 0, 100), Some((3, 1, 1, 0)), "one at least");
        // Windows of two over three graphs: the third of them has the last two.
        assert_eq!(found(&[&whole, &there, &there], 2, 100), Some((4, 2, 1, 0)));
        let wrong = check_connected(&list(&[&whole, &there, &there]), 2, 100).unwrap_err().to_string();
        assert!(
            wrong.starts_with("the links of k = 4 to 5 together are not strongly connected: agent 1 cannot")
        );
        let wrong = check_connected(&list(&[&there]), 1, 100).unwrap_err().to_string();
        assert!(
            wrong.starts_with("the graph at k = 0 is not strongly connected: agent 1 cannot reach agent 0")
        );
        assert_eq!((whole.diameter(), Static::ring(5).at(0).diameter()), (Some(2), Some(4)));
        assert_eq!(DiGraph::default().unreachable_pair(), None);
    }
}
