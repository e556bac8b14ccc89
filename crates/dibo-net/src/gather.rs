//! Metrics of all agents: every process shows its rows to the one that owns agent 0, which evaluates them and
//! tells the others the values. Where data must not leave its agent, each sends sums of its own instead of
//! being evaluated elsewhere.
use crate::agents::{Shared, lock};
use crate::node::Node;
use crate::packet::{EVERYBODY, Kind, Name};
use bytes::Bytes;
use dibo::metrics::{added, evaluate, with_general};
use dibo::problem::Bilevel;
use dibo::rows::{Real, Rows, View};
use dibo::{Error, Result};

/// Metrics by name.
pub type Values = Vec<(String, f64)>;

/// A variable that is private to its agent. Only the weight of push-sum, which everybody sends, also fills a
/// whole row.
fn is_private<T: Real>(view: &View<'_, T>) -> bool {
    view.columns.is_none() && view.name != "w"
}

/// The metrics at iteration `k`, the same in every process and the same as the simulator's. Private variables
/// are shown, and metrics made of them, only if `show_private`; all processes must say the same.
pub fn values<T: Real>(
    node: &Shared,
    k: usize,
    agents: usize,
    problem: &dyn Bilevel<T>,
    views: &[View<'_, T>],
    show_private: bool,
) -> Result<Values> {
    let shared = node;
    let mine: Vec<usize> = {
        let node = lock(shared);
        (0..agents).filter(|i| node.owner(*i) == node.me()).collect()
    };
    let own = problem.own_sums(&mine, views)?;
    let views: Vec<&View<'_, T>> = views.iter().filter(|v| show_private || !is_private(v)).collect();
    let mut node = lock(shared);
    let (me, gatherer, k) = (node.me(), node.gatherer(), k as u64);
    let name = |sender: u32, kind: Kind| Name { round: k, kind, sender, receiver: EVERYBODY };
    if node.values(k).is_none() && me != gatherer {
        let mut body = Vec::new();
        for view in &views {
            for row in 0..view.rows.count() {
                body.extend((view.row(row).len() as u64).to_le_bytes());
                T::to_bytes(view.row(row), &mut body);
            }
        }
        for sums in own.iter().flatten() {
            body.extend((sums.len() as u64).to_le_bytes());
            f64::to_bytes(sums, &mut body);
        }
        node.post(name(me, Kind::Views), Bytes::from(body), &[gatherer], true);
        node.wait(&[name(gatherer, Kind::Values)], None).map_err(Error::Network)?;
    }
    if node.values(k).is_none() {
        let others: Vec<(u32, Vec<usize>)> = node.others().map(|(p, owned)| (p, owned.to_vec())).collect();
        let names: Vec<Name> = others.iter().map(|(p, _)| name(*p, Kind::Views)).collect();
        node.wait(&names, None).map_err(Error::Network)?;
        // Somebody may have told the values instead: then they were known before this process started again.
        if node.values(k).is_none() {
            let (rows, all_sums) = match shown(&node, &names, &others, &views, &mine, own.as_deref()) {
                Ok(all) => all,
                Err(why) => return Err(Error::Network(node.give_up(format!("{why} at iteration {k}")))),
            };
            // The metrics may take long, and others may ask meanwhile.
            drop(node);
            let all: Vec<Rows<T>> = rows.iter().map(|r| stacked(r)).collect();
            let whole: Vec<View<'_, T>> = views
                .iter()
                .zip(&all)
                .map(|(v, rows)| View {
                    name: v.name,
                    rows,
                    columns: v.columns.as_ref().map(|_| 0..rows.width()),
                })
                .collect();
            let values = match own.is_some() {
                true => with_general(problem.metrics_of_sums(&added(all_sums)), &whole),
                false => evaluate(problem, &whole)?,
            };
            let values: Values = values.into_iter().map(|(n, v)| (n.to_string(), v)).collect();
            node = lock(shared);
            node.publish(k, Bytes::from(postcard::to_stdvec(&values).expect("numbers can be written")));
        }
    }
    let bytes = node.values(k).cloned().unwrap_or_default();
    let read = postcard::from_bytes(&bytes);
    read.map_err(|e| {
        Error::Network(node.give_up(format!("the metrics of iteration {k} cannot be read: {e}")))
    })
}

/// Rows by variable and agent, and sums by agent.
type Shown<T> = (Vec<Vec<Vec<T>>>, Vec<Vec<f64>>);

/// What all processes show of their agents; says who shows something of another shape.
fn shown<T: Real>(
    node: &Node,
    names: &[Name],
    others: &[(u32, Vec<usize>)],
    views: &[&View<'_, T>],
    mine: &[usize],
    own: Option<&[Vec<f64>]>,
) -> Result<Shown<T>, String> {
    let agents = mine.len() + others.iter().map(|(_, owned)| owned.len()).sum::<usize>();
    let mut rows: Vec<Vec<Vec<T>>> = views.iter().map(|_| vec![Vec::new(); agents]).collect();
    let mut sums: Vec<Vec<f64>> = vec![Vec::new(); agents];
    mine.iter().zip(own.into_iter().flatten()).for_each(|(agent, own)| sums[*agent].clone_from(own));
    for (view, rows) in views.iter().zip(&mut rows) {
        mine.iter().enumerate().for_each(|(row, agent)| rows[*agent] = view.row(row).to_vec());
    }
    for ((process, owned), name) in others.iter().zip(names) {
        let whole = node.message(name).map_or_else(Vec::new, |m| m.to_vec());
        let mut body = whole.as_slice();
        for (view, rows) in views.iter().zip(&mut rows) {
            for agent in owned {
                let row = take_row(&mut body).filter(|r| is_private(view) || r.len() == view.row(0).len());
                rows[*agent] = row.ok_or_else(|| {
                    format!("agent {process}'s rows do not have the shape of this process's")
                })?;
            }
        }
        for agent in owned.iter().filter(|_| own.is_some()) {
            sums[*agent] =
                take_row(&mut body).ok_or_else(|| format!("agent {process}'s sums are not there"))?;
        }
    }
    Ok((rows, sums))
}

fn stacked<T: Real>(vectors: &[Vec<T>]) -> Rows<T> {
    let mut rows = Rows::ragged(&vectors.iter().map(Vec::len).collect::<Vec<_>>());
    vectors.iter().enumerate().for_each(|(i, v)| rows.row_mut(i).copy_from_slice(v));
    rows
}

fn take_row<T: Real>(body: &mut &[u8]) -> Option<Vec<T>> {
    let length = body.split_off(..8)?;
    let length = usize::try_from(u64::from_le_bytes(length.try_into().ok()?)).ok()?;
    let bytes = body.split_off(..length.checked_mul(size_of::<T>())?)?;
    let mut row = vec![T::ZERO; length];
    T::from_bytes(bytes, &mut row);
    Some(row)
}
