//! Mixing matrices: row-stochastic `A` for pulling and column-stochastic `B` for pushing, as two types that
//! cannot be swapped.
use crate::graph::{DiGraph, Disconnected, GraphSequence, check_connected};
use crate::kernels::Weights;
use crate::rows::Real;
use std::sync::Arc;

/// The weights of a sparse matrix, in the cheapest form that holds them.
#[derive(Clone, Debug, PartialEq)]
enum Values<T> {
    Receiver(Vec<T>),
    Sender(Vec<T>),
    Entry(Vec<T>),
}

impl<T: Real> Values<T> {
    fn weights(&self) -> Weights<'_, T> {
        match self {
            Values::Receiver(w) => Weights::Receiver(w),
            Values::Sender(w) => Weights::Sender(w),
            Values::Entry(w) => Weights::Entry(w),
        }
    }

    fn get(&self, receiver: usize, sender: usize, entry: usize) -> T {
        match self {
            Values::Receiver(w) => w[receiver],
            Values::Sender(w) => w[sender],
            Values::Entry(w) => w[entry],
        }
    }

    /// The vector to fill with one number per entry, reusing memory.
    fn entries(&mut self) -> &mut Vec<T> {
        if !matches!(self, Values::Entry(_)) {
            *self = Values::Entry(Vec::new());
        }
        let (Values::Receiver(w) | Values::Sender(w) | Values::Entry(w)) = self;
        w.clear();
        w
    }
}

/// `A`: what agent i receives is weighed so that the weights of each **row** sum to 1. Used to pull decision
/// variables.
#[derive(Clone, Debug, PartialEq)]
pub struct RowStochastic<T>(Values<T>);

/// `B`: what agent j sends is weighed so that the weights of each **column** sum to 1. Used to push trackers.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnStochastic<T>(Values<T>);

impl<T: Real> RowStochastic<T> {
    /// For the kernels.
    pub(crate) fn weights(&self) -> Weights<'_, T> {
        self.0.weights()
    }
}

impl<T: Real> ColumnStochastic<T> {
    /// For the kernels.
    pub(crate) fn weights(&self) -> Weights<'_, T> {
        self.0.weights()
    }
}

/// The graph of one iteration with its two matrices.
#[derive(Clone, Debug, PartialEq)]
pub struct Mixing<T> {
    /// Who sends to whom.
    pub graph: DiGraph,
    /// Weights of the pull.
    pub a: RowStochastic<T>,
    /// Weights of the push.
    pub b: ColumnStochastic<T>,
}

impl<T: Real> Default for Mixing<T> {
    fn default() -> Self {
        Mixing {
            graph: DiGraph::default(),
            a: RowStochastic(Values::Receiver(Vec::new())),
            b: ColumnStochastic(Values::Sender(Vec::new())),
        }
    }
}

impl<T: Real> Mixing<T> {
    /// Entry (receiver, sender) of `A`; 0 where there is no link.
    pub fn a(&self, receiver: usize, sender: usize) -> f64 {
        self.entry(&self.a.0, receiver, sender)
    }

    /// Entry (receiver, sender) of `B`; 0 where there is no link.
    pub fn b(&self, receiver: usize, sender: usize) -> f64 {
        self.entry(&self.b.0, receiver, sender)
    }

    fn entry(&self, values: &Values<T>, receiver: usize, sender: usize) -> f64 {
        match self.graph.senders(receiver).binary_search(&(sender as u32)) {
            Ok(at) => values.get(receiver, sender, self.graph.entry_range(receiver).start + at).f64(),
            Err(_) => 0.0,
        }
    }

    /// Calls `with(receiver, sender, A's entry, B's entry)` for every link, those to oneself included.
    pub fn for_each_entry(&self, mut with: impl FnMut(usize, usize, f64, f64)) {
        for i in 0..self.graph.agents() {
            for (e, j) in self.graph.entry_range(i).zip(self.graph.senders(i)) {
                let j = *j as usize;
                with(i, j, self.a.0.get(i, j, e).f64(), self.b.0.get(i, j, e).f64());
            }
        }
    }

    /// The smallest non-zero weights of `A` and `B`: the paper's a and b.
    pub fn smallest(&self) -> (f64, f64) {
        let (mut a, mut b) = (f64::INFINITY, f64::INFINITY);
        self.for_each_entry(|_, _, wa, wb| {
            a = if wa > 0.0 { a.min(wa) } else { a };
            b = if wb > 0.0 { b.min(wb) } else { b };
        });
        (a, b)
    }
}

/// What a method asks of graphs and weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GraphNeeds {
    /// Weights whose rows and columns sum to 1, so undirected graphs or balanced ones.
    pub doubly_stochastic: bool,
    /// One graph for ever.
    pub one_graph: bool,
}

/// How weights are found.
#[derive(Clone, Debug, PartialEq)]
pub enum Rule {
    /// 1/(in + 1) for each that an agent hears, 1/(out + 1) for each that it sends to.
    Uniform,
    /// Every link from agent j weighs `weights[j mod weights.len()]` in both matrices; the rest stays with
    /// the agent itself.
    BySender(Vec<f64>),
    /// One symmetric matrix for both, on undirected graphs: 1/(1 + max(deg_i, deg_j)) between neighbours, the
    /// rest stays with the agent itself; where `lazy`, half of that between neighbours.
    Metropolis {
        /// (I + W)/2 instead of W.
        lazy: bool,
    },
    /// The same with 1/(1 + the largest degree) between all neighbours.
    MaximumDegree,
    /// Explicit matrices `(A, B)`, row by row; iteration k uses number k mod the length.
    Given(Vec<(Matrix, Matrix)>),
}

/// A dense matrix, row by row.
pub type Matrix = Vec<Vec<f64>>;

/// Graphs with weights: everything the network needs to know about iteration `k`.
#[derive(Clone)]
pub struct Sequence {
    graphs: Arc<dyn GraphSequence>,
    rule: Rule,
    frozen: Option<Arc<Mixing<f64>>>,
}

impl Sequence {
    /// Uniform weights on these graphs.
    ///
    /// ```
    /// use dibo::{graph::Static, mixing::{Mixing, Sequence}};
    ///
    /// let mixing: Mixing<f64> = Sequence::uniform(Static::ring(4)).at(0);
    /// assert_eq!((mixing.a(1, 0), mixing.a(1, 1), mixing.a(1, 2)), (0.5, 0.5, 0.0));
    /// ```
    pub fn uniform(graphs: impl GraphSequence + 'static) -> Self {
        Sequence { graphs: Arc::new(graphs), rule: Rule::Uniform, frozen: None }
    }

    /// Other weights on these graphs. Says what is wrong if they cannot be stochastic.
    pub fn new(graphs: Arc<dyn GraphSequence>, rule: Rule) -> Result<Self, String> {
        if matches!(rule, Rule::Metropolis { .. } | Rule::MaximumDegree) {
            check_undirected(&*graphs)?;
        }
        if let Rule::BySender(weights) = &rule {
            if weights.is_empty() || weights.iter().any(|w| !(*w > 0.0 && *w < 1.0)) {
                return Err(format!("weights are {weights:?}; each must be above 0 and below 1"));
            }
            for k in 0..graphs.period().unwrap_or(30) {
                let g = graphs.at(k);
                for i in 0..g.agents() {
                    let weight = |j: usize| weights[j % weights.len()];
                    let heard: f64 =
                        g.senders(i).iter().filter(|j| **j as usize != i).map(|j| weight(*j as usize)).sum();
                    let sent = weight(i) * (g.out_degree(i) - 1) as f64;
                    if heard >= 1.0 || sent >= 1.0 {
                        return Err(format!(
                            "the weights of agent {i} at k = {k} sum to {:.4} without its own; they must \
                            stay below 1",
                            heard.max(sent)
                        ));
                    }
                }
            }
        }
        Ok(Sequence { graphs, rule, frozen: None })
    }

    /// Explicit matrices `A` and `B`, used in turn; refused if one is not stochastic or has a 0 on its
    /// diagonal.
    ///
    /// ```
    /// use dibo::mixing::Sequence;
    ///
    /// let half = vec![vec![0.5, 0.5], vec![0.5, 0.5]];
    /// let wrong = vec![vec![0.5, 0.6], vec![0.5, 0.5]];
    /// assert!(Sequence::given(vec![(half.clone(), half.clone())]).is_ok());
    /// assert!(Sequence::given(vec![(wrong, half)]).err().unwrap().contains("row 0 sums to 1.1"));
    /// ```
    pub fn given(matrices: Vec<(Matrix, Matrix)>) -> Result<Self, String> {
        let n = matrices.first().map_or(0, |(a, _)| a.len());
        if n == 0 {
            return Err("no matrices given; at least one pair A, B is needed".into());
        }
        let mut graphs = Vec::new();
        for (number, (a, b)) in matrices.iter().enumerate() {
            for (name, m) in [("A", a), ("B", b)] {
                if m.len() != n || m.iter().any(|row| row.len() != n) {
                    return Err(format!("{name} of graph {number} is not {n}×{n}"));
                }
                if let Some(bad) = m.iter().flatten().find(|w| !(**w >= 0.0 && w.is_finite())) {
                    return Err(format!("{name} of graph {number} holds {bad}; weights must be 0 or more"));
                }
                if let Some(i) = (0..n).find(|i| m[*i][*i] == 0.0) {
                    return Err(format!(
                        "{name} of graph {number} has 0 on its diagonal, in row {i}: agent {i} would keep \
                        nothing of its own; every agent needs a weight above 0 there"
                    ));
                }
                let sum = |i: usize| {
                    if name == "A" { m[i].iter().sum::<f64>() } else { m.iter().map(|row| row[i]).sum() }
                };
                if let Some((i, s)) = (0..n).map(|i| (i, sum(i))).find(|(_, s)| (s - 1.0).abs() > 1e-9) {
                    let (kind, line) =
                        if name == "A" { ("row", "row-stochastic") } else { ("column", "column-stochastic") };
                    return Err(format!(
                        "{name} of graph {number} is not {line}: {kind} {i} sums to {s}, not 1"
                    ));
                }
            }
            graphs.push(linked(n, |i, j| a[i][j] > 0.0 || b[i][j] > 0.0));
        }
        Ok(Sequence {
            graphs: Arc::new(crate::graph::List::new(graphs)),
            rule: Rule::Given(matrices),
            frozen: None,
        })
    }

    /// Keeps the weights of iteration 0 for ever, while links really come and go: a message over a missing
    /// link is lost, and so is the weight it carried. This is what a method that ignores changes of topology
    /// does.
    pub fn frozen(mut self) -> Self {
        let mut first = Mixing::default();
        self.graphs.fill(0, &mut first.graph);
        self.weigh(0, &mut first);
        self.frozen = Some(Arc::new(first));
        self
    }

    /// Links over which numbers are pulled, and over which they are pushed, where given matrices A and B have
    /// links of their own; one sequence for both elsewhere.
    pub fn sides(&self) -> Vec<Arc<dyn GraphSequence>> {
        let Rule::Given(matrices) = &self.rule else { return vec![self.graphs.clone()] };
        let of = |side: fn(&(Matrix, Matrix)) -> &Matrix| -> Arc<dyn GraphSequence> {
            let graphs = matrices.iter().map(|pair| linked(side(pair).len(), |i, j| side(pair)[i][j] > 0.0));
            Arc::new(crate::graph::List::new(graphs.collect()))
        };
        vec![of(|(a, _)| a), of(|(_, b)| b)]
    }

    /// Checks that everybody reaches everybody over windows of iterations, by what is pulled and by what is
    /// pushed.
    pub fn check_connected(&self, window: usize, iterations: usize) -> Result<(), Disconnected> {
        self.sides().iter().try_for_each(|side| check_connected(&**side, window, iterations))
    }

    /// The graphs alone.
    pub fn graphs(&self) -> &dyn GraphSequence {
        &*self.graphs
    }

    /// Number of agents.
    pub fn agents(&self) -> usize {
        self.graphs.agents()
    }

    /// After how many iterations graphs and weights repeat, if they do.
    pub fn period(&self) -> Option<usize> {
        self.graphs.period()
    }

    /// Writes iteration `k` into `mixing`, reusing its memory.
    pub fn fill<T: Real>(&self, k: usize, mixing: &mut Mixing<T>) {
        self.graphs.fill(k, &mut mixing.graph);
        if let Some(first) = &self.frozen {
            mixing
                .graph
                .retain(|sender, receiver| first.graph.senders(receiver).binary_search(&sender).is_ok());
            set_entries(mixing, |i, j| first.a(i, j), |i, j| first.b(i, j));
        } else {
            self.weigh(k, mixing);
        }
    }

    fn weigh<T: Real>(&self, k: usize, mixing: &mut Mixing<T>) {
        let n = mixing.graph.agents();
        match &self.rule {
            Rule::Uniform => {
                let Mixing { graph, a, b } = mixing;
                if let (Values::Receiver(a), Values::Sender(b)) = (&mut a.0, &mut b.0) {
                    a.clear();
                    b.clear();
                    a.extend(graph.in_degrees().map(|d| T::of(1.0 / f64::from(d))));
                    b.extend(graph.out_degrees().iter().map(|d| T::of(1.0 / f64::from(*d))));
                } else {
                    unreachable!("a uniform sequence never stores other weights")
                }
            }
            Rule::BySender(weights) => {
                let weight = |j: usize| weights[j % weights.len()];
                let heard: Vec<f64> = (0..n)
                    .map(|i| {
                        mixing
                            .graph
                            .senders(i)
                            .iter()
                            .map(|j| if *j as usize == i { 0.0 } else { weight(*j as usize) })
                            .sum()
                    })
                    .collect();
                let sent: Vec<f64> =
                    (0..n).map(|j| weight(j) * (mixing.graph.out_degree(j) - 1) as f64).collect();
                let pick = |i: usize, j: usize, used: f64| if i == j { 1.0 - used } else { weight(j) };
                set_entries(mixing, |i, j| pick(i, j, heard[i]), |i, j| pick(i, j, sent[j]));
            }
            Rule::Metropolis { lazy } => {
                let factor = if *lazy { 0.5 } else { 1.0 };
                set_symmetric(mixing, |own, other| factor / f64::from(own.max(other)));
            }
            Rule::MaximumDegree => {
                let most = mixing.graph.in_degrees().max().unwrap_or(1);
                set_symmetric(mixing, |_, _| 1.0 / f64::from(most));
            }
            Rule::Given(matrices) => {
                let (a, b) = &matrices[k % matrices.len()];
                set_entries(mixing, |i, j| a[i][j], |i, j| b[i][j]);
            }
        }
    }

    /// Iteration `k`.
    pub fn at<T: Real>(&self, k: usize) -> Mixing<T> {
        let mut mixing = Mixing::default();
        self.fill(k, &mut mixing);
        mixing
    }
}

fn set_entries<T: Real>(
    mixing: &mut Mixing<T>,
    a: impl Fn(usize, usize) -> f64,
    b: impl Fn(usize, usize) -> f64,
) {
    let (to_a, to_b) = (mixing.a.0.entries(), mixing.b.0.entries());
    for i in 0..mixing.graph.agents() {
        for j in mixing.graph.senders(i) {
            to_a.push(T::of(a(i, *j as usize)));
            to_b.push(T::of(b(i, *j as usize)));
        }
    }
}

/// Writes one symmetric matrix into both: `weight(in-degree, the other's in-degree)` between neighbours, each
/// counting the agent itself, and the rest to the agent itself.
fn set_symmetric<T: Real>(mixing: &mut Mixing<T>, weight: impl Fn(u32, u32) -> f64) {
    let Mixing { graph, a, b } = mixing;
    let (to_a, to_b) = (a.0.entries(), b.0.entries());
    let degree = |i: usize| graph.entry_range(i).len() as u32;
    for i in 0..graph.agents() {
        let (mut own, mut rest) = (0, 1.0);
        for j in graph.senders(i).iter().map(|j| *j as usize) {
            let w = if i == j { 0.0 } else { weight(degree(i), degree(j)) };
            own = if i == j { to_a.len() } else { own };
            rest -= w;
            to_a.push(T::of(w));
        }
        to_a[own] = T::of(rest);
    }
    to_b.extend_from_slice(to_a);
}

/// How far ahead sequences that do not repeat are looked at.
const AHEAD: usize = 60;

/// Says which link goes one way only.
fn check_undirected(graphs: &dyn GraphSequence) -> Result<(), String> {
    for k in 0..graphs.period().unwrap_or(AHEAD).min(1000) {
        let graph = graphs.at(k);
        let back = |(s, r): &(usize, usize)| graph.senders(*s).binary_search(&(*r as u32)).is_err();
        if let Some((s, r)) = graph.edges().find(back) {
            return Err(format!(
                "weights: the link from agent {s} to agent {r} at k = {k} goes one way; these weights need \
                undirected = true"
            ));
        }
    }
    Ok(())
}

impl Sequence {
    /// Says why a method cannot run over this: it needs what these graphs or weights do not have.
    pub fn check(&self, needs: GraphNeeds) -> Result<(), String> {
        let GraphNeeds { doubly_stochastic, one_graph } = needs;
        if !doubly_stochastic && !one_graph {
            return Ok(());
        }
        let first: Mixing<f64> = self.at(0);
        for k in 0..self.period().unwrap_or(AHEAD).min(1000) {
            let m: Mixing<f64> = self.at(k);
            if one_graph && m != first {
                return Err(format!("needs one graph for ever; links or weights change at k = {k}"));
            }
            if doubly_stochastic && let Some((what, i, sum)) = unbalanced(&m) {
                return Err(format!(
                    "needs doubly stochastic weights; {what} of agent {i} at k = {k} sum to {sum:.4} \
                    (undirected = true with weights = \"metropolis\" in [graph] gives them)"
                ));
            }
        }
        Ok(())
    }
}

/// A row of B or a column of A that does not sum to 1.
fn unbalanced(m: &Mixing<f64>) -> Option<(&'static str, usize, f64)> {
    let n = m.graph.agents();
    let (mut columns, mut rows) = (vec![0.0; n], vec![0.0; n]);
    m.for_each_entry(|i, j, a, b| {
        columns[j] += a;
        rows[i] += b;
    });
    let find = |sums: Vec<f64>| sums.into_iter().enumerate().find(|(_, s)| (s - 1.0).abs() > 1e-9);
    let column = find(columns).map(|(i, s)| ("what others take", i, s));
    column.or_else(|| find(rows).map(|(i, s)| ("what others give", i, s)))
}

/// The graph with a link from j to i wherever `link(i, j)`.
fn linked(n: usize, link: impl Fn(usize, usize) -> bool) -> DiGraph {
    let all = (0..n).flat_map(|i| (0..n).map(move |j| (j, i)));
    DiGraph::from_edges(n, all.filter(|(j, i)| link(*i, *j)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Cycle, ErdosRenyi, Static};

    fn sums(m: &Mixing<f64>) -> (Vec<f64>, Vec<f64>) {
        let n = m.graph.agents();
        let row = (0..n).map(|i| (0..n).map(|j| m.a(i, j)).sum()).collect();
        let column = (0..n).map(|j| (0..n).map(|i| m.b(i, j)).sum()).collect();
        (row, column)
    }

    #[test]
    fn matrices_are_stochastic() {
        let ring = Sequence::new(Arc::new(Static::ring(6)), Rule::BySender(vec![0.05, 0.5])).unwrap();
        // Agent 0 is heard by three, agent 1 by two.
        let edges = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 0), (2, 3), (3, 0)];
        let fan = Arc::new(Static::new(DiGraph::from_edges(4, edges)));
        for sequence in [
            Sequence::uniform(Cycle::new(6, 0.4, 1)),
            Sequence::uniform(ErdosRenyi::new(6, 0.3, 2, false)),
            ring,
            Sequence::new(fan, Rule::BySender(vec![0.2, 0.3, 0.25, 0.4])).unwrap(),
        ] {
            for k in 0..60 {
                let (rows, columns) = sums(&sequence.at(k));
                assert!(rows.iter().chain(&columns).all(|s| (s - 1.0).abs() < 1e-15));
            }
        }
    }

    #[test]
    fn weights_are_as_the_rule_says() {
        let m: Mixing<f64> =
            Sequence::uniform(Static::new(DiGraph::from_edges(3, [(0, 1), (0, 2), (1, 2), (2, 0)]))).at(0);
        assert_eq!((m.a(2, 0), m.a(2, 1), m.a(2, 2), m.a(0, 1)), (1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0, 0.0));
        assert_eq!((m.b(0, 0), m.b(1, 0), m.b(2, 0), m.b(2, 1)), (1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0, 0.5));
        let m: Mixing<f64> =
            Sequence::new(Arc::new(Static::ring(4)), Rule::BySender(vec![0.1, 0.5])).unwrap().at(0);
        assert_eq!((m.a(1, 0), m.a(1, 1), m.b(1, 0), m.b(0, 0), m.a(2, 1)), (0.1, 0.9, 0.1, 0.9, 0.5));
        assert_eq!(m.smallest(), (0.1, 0.1));
        let good = vec![vec![0.5, 0.5], vec![0.25, 0.75]];
        assert!(
            Sequence::given(vec![(good.clone(), good.clone())])
                .err()
                .unwrap()
                .contains("not column-stochastic: column 0 sums to 0.75")
        );
    }

    #[test]
    fn frozen_weights_lose_what_missing_links_carry() {
        let sequence = Sequence::uniform(Cycle::new(5, 0.5, 3)).frozen();
        let (rows, columns) = sums(&sequence.at(0));
        assert!(rows.iter().chain(&columns).all(|s| (s - 1.0).abs() < 1e-15));
        let (rows, columns) = sums(&sequence.at(25));
        assert!(rows.iter().chain(&columns).any(|s| *s < 0.99));
    }

    #[test]
    fn what_a_method_needs_is_checked() {
        let needs = |doubly_stochastic, one_graph| GraphNeeds { doubly_stochastic, one_graph };
        let star = DiGraph::from_edges(3, [(0, 1), (1, 0), (0, 2), (2, 0)]);
        let uniform = Sequence::uniform(Static::new(star.clone()));
        let wrong = uniform.check(needs(true, false)).unwrap_err();
        assert!(wrong.contains("what others take of agent 0 at k = 0 sum to 1.3333"), "{wrong}");
        let metropolis = Rule::Metropolis { lazy: false };
        let balanced = Sequence::new(Arc::new(Static::new(star)), metropolis).unwrap();
        assert_eq!(balanced.check(needs(true, true)), Ok(()));
        let changing = Sequence::uniform(Cycle::new(6, 0.4, 1));
        assert!(changing.check(needs(false, true)).unwrap_err().contains("one graph for ever"));
        assert_eq!(changing.check(needs(false, false)), Ok(()));
    }

    /// A star of three: its centre has two neighbours, the others one.
    fn star() -> Arc<Static> {
        Arc::new(Static::new(DiGraph::from_edges(4, [(0, 1), (1, 0), (0, 2), (2, 0)])))
    }

    /// Between the centre and an end 1/(1 + 2); agent 3 hears nobody and keeps all.
    #[test]
    fn symmetric_weights_go_by_degrees() {
        let at = |rule| -> Mixing<f64> { Sequence::new(star(), rule).unwrap().at(0) };
        let row = |m: &Mixing<f64>, i: usize| [0, 1, 2, 3].map(|j| (12.0 * m.a(i, j)).round() / 12.0);
        let third = 4.0 / 12.0;
        for rule in [Rule::Metropolis { lazy: false }, Rule::MaximumDegree] {
            let m = at(rule);
            assert_eq!(row(&m, 0), [third; 3].into_iter().chain([0.0]).collect::<Vec<_>>()[..]);
            assert_eq!(row(&m, 1), [third, 8.0 / 12.0, 0.0, 0.0]);
            assert_eq!(row(&m, 3), [0.0, 0.0, 0.0, 1.0]);
        }
        let lazy = at(Rule::Metropolis { lazy: true });
        assert_eq!(row(&lazy, 0), [8.0 / 12.0, 2.0 / 12.0, 2.0 / 12.0, 0.0]);
        assert_eq!(row(&lazy, 1), [2.0 / 12.0, 10.0 / 12.0, 0.0, 0.0]);
        // On a line 0 – 1 – 2 – 3 with one more at 1 the rules differ.
        let links = [(0, 1), (1, 2), (2, 3), (1, 4)];
        let both_ways = links.into_iter().flat_map(|(a, b)| [(a, b), (b, a)]);
        let line = Arc::new(Static::new(DiGraph::from_edges(5, both_ways)));
        let at = |rule| -> Mixing<f64> { Sequence::new(line.clone(), rule).unwrap().at(0) };
        let weights =
            |m: Mixing<f64>| [m.a(0, 1), m.a(1, 2), m.a(2, 3), m.b(3, 2)].map(|w| (12.0 * w).round());
        assert_eq!(weights(at(Rule::Metropolis { lazy: false })), [3.0, 3.0, 4.0, 4.0]);
        assert_eq!(weights(at(Rule::MaximumDegree)), [3.0; 4]);
    }

    #[test]
    fn weights_that_cannot_be_are_refused() {
        let says =
            |graphs: Arc<dyn GraphSequence>, rule| Sequence::new(graphs, rule).err().unwrap_or_default();
        let ring = || Arc::new(Static::ring(3));
        for rule in [Rule::Metropolis { lazy: false }, Rule::MaximumDegree] {
            let found = says(ring(), rule.clone());
            assert!(
                found.starts_with("weights: the link from agent 2 to agent 0 at k = 0 goes one way"),
                "{found}"
            );
            let late =
                crate::graph::List::new(vec![star().at(0), star().at(0), DiGraph::from_edges(4, [(3, 1)])]);
            let found = says(Arc::new(late), rule);
            assert!(found.contains("from agent 3 to agent 1 at k = 2"), "{found}");
        }
        for wrong in [vec![], vec![0.0], vec![1.0], vec![0.5, -0.1], vec![f64::NAN]] {
            assert!(says(ring(), Rule::BySender(wrong)).ends_with("each must be above 0 and below 1"));
        }
        // The centre sends to two and hears two: 0.5 each leaves it nothing.
        let found = says(star(), Rule::BySender(vec![0.5, 0.2, 0.3]));
        assert!(
            found.starts_with("the weights of agent 0 at k = 0 sum to 1.0000 without its own"),
            "{found}"
        );
        let found = says(star(), Rule::BySender(vec![0.1, 0.6, 0.7]));
        assert!(
            found.starts_with("the weights of agent 0 at k = 0 sum to 1.3000 without its own"),
            "{found}"
        );
        assert_eq!(says(star(), Rule::BySender(vec![0.4, 0.2, 0.3])), "");
        let half = || vec![vec![0.5, 0.5], vec![0.5, 0.5]];
        let given = |a: Matrix, b: Matrix| Sequence::given(vec![(half(), half()), (a, b)]).err().unwrap();
        assert_eq!(given(vec![vec![1.0]], half()), "A of graph 1 is not 2×2");
        assert_eq!(given(half(), vec![vec![1.0, 0.0], vec![0.0]]), "B of graph 1 is not 2×2");
        let below = vec![vec![1.5, -0.5], vec![0.5, 0.5]];
        assert_eq!(given(below.clone(), half()), "A of graph 1 holds -0.5; weights must be 0 or more");
        // The theory needs links of every agent to itself in both.
        let swap = || vec![vec![0.5, 0.5, 0.0], vec![0.5, 0.5, 0.0], vec![0.0, 0.0, 1.0]];
        let idle = || vec![vec![0.5, 0.5, 0.0], vec![0.5, 0.0, 0.5], vec![0.0, 0.5, 0.5]];
        for (name, pair) in [("A", (idle(), swap())), ("B", (swap(), idle()))] {
            let found = Sequence::given(vec![(swap(), swap()), pair]).err().unwrap();
            assert!(found.starts_with(&format!("{name} of graph 1 has 0 on its diagonal, in row 1: ")));
        }
        let rows = vec![vec![0.5, 0.5], vec![0.25, 0.75]];
        assert!(given(half(), rows.clone()).contains("B of graph 1 is not column-stochastic: column 0"));
        assert!(Sequence::given(vec![(rows, half())]).is_ok());
        assert!(Sequence::given(vec![]).err().unwrap().starts_with("no matrices given"));
    }

    /// Matrices are used in turn, also where only one of the two has a link.
    #[test]
    fn given_matrices_are_used_in_turn() {
        let (one, both) = (vec![vec![1.0, 0.0], vec![0.0, 1.0]], vec![vec![0.25, 0.75], vec![0.75, 0.25]]);
        let sequence = Sequence::given(vec![(one.clone(), both.clone()), (both, one)]).unwrap();
        assert_eq!((sequence.agents(), sequence.period()), (2, Some(2)));
        for k in 0..4 {
            let m: Mixing<f64> = sequence.at(k);
            let pair = (m.a(0, 1), m.b(0, 1));
            assert_eq!(pair, if k % 2 == 0 { (0.0, 0.75) } else { (0.75, 0.0) });
            assert_eq!(m.graph.links(), 2);
            assert_eq!(m.smallest(), if k % 2 == 0 { (1.0, 0.25) } else { (0.25, 1.0) });
        }
        let needs = GraphNeeds { doubly_stochastic: false, one_graph: true };
        assert!(sequence.check(needs).unwrap_err().ends_with("change at k = 1"));
        assert_eq!(Sequence::uniform(Cycle::new(5, 0.4, 1)).period(), None);
    }

    /// Together the two connect everybody, each alone does not.
    #[test]
    fn what_is_pulled_and_what_is_pushed_connect_each_alone() {
        let pairs = vec![
            vec![0.5, 0.5, 0.0, 0.0],
            vec![0.5, 0.5, 0.0, 0.0],
            vec![0.0, 0.0, 0.5, 0.5],
            vec![0.0, 0.0, 0.5, 0.5],
        ];
        let across = vec![
            vec![0.5, 0.0, 0.5, 0.0],
            vec![0.0, 0.5, 0.0, 0.5],
            vec![0.5, 0.0, 0.5, 0.0],
            vec![0.0, 0.5, 0.0, 0.5],
        ];
        let all = vec![vec![0.25; 4]; 4];
        let check = |list: Vec<(Matrix, Matrix)>, window| {
            Sequence::given(list).unwrap().check_connected(window, 100).map_err(|e| e.to_string())
        };
        assert!(
            check(vec![(pairs.clone(), across.clone())], 1).unwrap_err().contains("not strongly connected")
        );
        assert!(check(vec![(pairs.clone(), all.clone())], 1).is_err());
        assert!(check(vec![(all.clone(), across.clone())], 1).is_err());
        assert!(check(vec![(all.clone(), all)], 1).is_ok());
        let turns = vec![(pairs.clone(), across.clone()), (across, pairs)];
        assert!(check(turns.clone(), 1).is_err() && check(turns, 2).is_ok());
        let graphs = Sequence::uniform(crate::graph::OnePeerExponential::new(8));
        assert!(graphs.check_connected(1, 100).is_err() && graphs.check_connected(3, 100).is_ok());
    }

    /// Columns of A may sum to 1 where rows of B do not.
    #[test]
    fn what_others_give_is_looked_at_too() {
        let half = vec![vec![0.5, 0.5], vec![0.5, 0.5]];
        let b = vec![vec![0.5, 0.75], vec![0.5, 0.25]];
        let needs = GraphNeeds { doubly_stochastic: true, one_graph: false };
        let late = Sequence::given(vec![(half.clone(), half.clone()), (half.clone(), b)]).unwrap();
        let wrong = late.check(needs).unwrap_err();
        assert!(wrong.contains("what others give of agent 0 at k = 1 sum to 1.2500"), "{wrong}");
        assert_eq!(Sequence::given(vec![(half.clone(), half)]).unwrap().check(needs), Ok(()));
    }
}
