//! `Rows`: one vector per owned agent, and the few fused kernels an iteration is made of.
//!
//! The state of a run is n × d and often larger than the caches, so an iteration's cost is memory traffic:
//! each kernel reads and writes every stack once. Sums over neighbours run in agent order with a plain
//! multiply and add, never a fused one, so that every machine, thread count and transport gives the same
//! bits. Where all weights of a pulled row are equal, the sum is taken first and weighted once.
mod device;

use crate::kernels::{self, Layout};
pub use crate::kernels::{GROUP, Real, Threads};
pub use crate::memory::Buffer;
use crate::memory::copied;
pub(crate) use crate::memory::zeros;
pub use device::OnDevice;

use device::Placed;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// The width of the CPU's registers that kernels use, in a word: last bits of gradients depend on it.
pub fn cpu() -> &'static str {
    kernels::cpu_name()
}

/// One vector per owned agent, in one allocation. Rows are rectangular (all of one width) unless made with
/// [`Rows::ragged`].
///
/// The numbers may lie on a device ([`Rows::place`]): then the kernels run there, and single rows can not be
/// borrowed.
#[derive(Debug, PartialEq)]
pub struct Rows<T> {
    data: Buffer<T>,
    layout: Layout,
    placed: Placed<T>,
}

impl<T: Clone> Clone for Rows<T> {
    fn clone(&self) -> Self {
        let data = copied([&self.data[..]], self.data.len());
        Rows { data, layout: self.layout.clone(), placed: self.placed.clone() }
    }
}

impl<T: Real> Rows<T> {
    /// `count` rows of `width` zeros.
    pub fn zeros(count: usize, width: usize) -> Self {
        Self::ragged(&vec![width; count])
    }

    /// Rows of zeros, each with a width of its own.
    pub fn ragged(widths: &[usize]) -> Self {
        let layout = Layout::new(widths.to_vec());
        Rows { data: zeros(layout.len()), layout, placed: Placed(None) }
    }

    /// Rows holding these vectors.
    pub fn from_vectors<V: AsRef<[f64]>>(vectors: &[V]) -> Self {
        let mut rows = Self::ragged(&vectors.iter().map(|v| v.as_ref().len()).collect::<Vec<_>>());
        for (i, v) in vectors.iter().enumerate() {
            rows.row_mut(i).iter_mut().zip(v.as_ref()).for_each(|(r, v)| *r = T::of(*v));
        }
        rows
    }

    /// How many rows.
    pub fn count(&self) -> usize {
        self.layout.count()
    }

    /// Width of row 0 (of every row unless ragged); 0 if there are no rows.
    pub fn width(&self) -> usize {
        self.layout.widths().first().copied().unwrap_or(0)
    }

    /// Width of each row.
    pub fn widths(&self) -> &[usize] {
        self.layout.widths()
    }

    /// Distance between the starts of two rows; only for rectangular rows.
    pub fn stride(&self) -> usize {
        self.layout.stride()
    }

    /// Row `i`.
    #[inline(always)]
    pub fn row(&self, i: usize) -> &[T] {
        &self.data[self.layout.row(i)]
    }

    /// Row `i`, to write.
    #[inline(always)]
    pub fn row_mut(&mut self, i: usize) -> &mut [T] {
        &mut self.data[self.layout.row(i)]
    }

    /// All rows with their padding, which stays zero.
    pub fn data(&self) -> &[T] {
        &self.data
    }

    /// All rows with their padding, to write; keep the padding zero.
    pub fn data_mut(&mut self) -> &mut Buffer<T> {
        &mut self.data
    }

    /// Bytes of memory, wherever it lies.
    pub fn bytes(&self) -> usize {
        self.len() * size_of::<T>()
    }

    /// How many numbers there are, with the padding.
    fn len(&self) -> usize {
        self.layout.len()
    }

    /// Moves the numbers to a device: `carry` gets them, and the start of each row with the end of the last.
    pub fn place(&mut self, carry: impl FnOnce(&[T], &[usize]) -> Box<dyn OnDevice<T>>) {
        let device = carry(&self.data, self.layout.starts());
        self.data = Buffer::new(64);
        self.placed = Placed(Some(device));
    }

    /// The numbers on the device, if they are on one.
    pub fn device(&self) -> Option<&dyn OnDevice<T>> {
        self.placed.0.as_deref()
    }

    /// The numbers on the device, to write.
    pub fn device_mut(&mut self) -> Option<&mut (dyn OnDevice<T> + 'static)> {
        self.placed.0.as_deref_mut()
    }

    /// All numbers with their padding, from wherever they lie.
    pub fn to_vec(&self) -> Vec<T> {
        let mut numbers = Vec::new();
        self.copy_to(&mut numbers);
        numbers
    }

    /// Copies all numbers with their padding, from wherever they lie.
    pub fn copy_to(&self, to: &mut Vec<T>) {
        to.resize(self.len(), T::ZERO);
        match self.device() {
            Some(device) => device.read(0, to),
            None => to.copy_from_slice(&self.data),
        }
    }

    /// All numbers with their padding: borrowed where they lie on the host.
    pub fn numbers(&self) -> Cow<'_, [T]> {
        match self.device() {
            Some(_) => Cow::Owned(self.to_vec()),
            None => Cow::Borrowed(&self.data),
        }
    }

    /// Takes over what [`to_vec`](Self::to_vec) gave; says if the size is another.
    pub fn restore(&mut self, numbers: &[T]) -> Result<(), String> {
        if numbers.len() != self.len() {
            return Err(format!("{} numbers for rows of {}", numbers.len(), self.len()));
        }
        match self.device_mut() {
            Some(device) => device.write(0, numbers),
            None => self.data.copy_from_slice(numbers),
        }
        Ok(())
    }

    /// `self = 0`.
    pub fn clear(&mut self) {
        match self.device_mut() {
            Some(device) => device.clear(),
            None => self.data.fill(T::ZERO),
        }
    }

    /// The two sets of rows where both lie on a device. One here and one there is a mistake of the caller's.
    fn devices<'a>(
        &'a mut self,
        other: &'a Rows<T>,
    ) -> Option<(&'a mut (dyn OnDevice<T> + 'static), &'a dyn OnDevice<T>)> {
        debug_assert_eq!(self.layout, other.layout, "rows of different shapes");
        match (self.placed.0.as_deref_mut(), other.device()) {
            (Some(a), Some(b)) => Some((a, b)),
            (None, None) => None,
            _ => panic!("rows on the host and on a device in one kernel"),
        }
    }

    /// The mean row, in `f64`; only for rectangular rows.
    pub fn mean(&self) -> Vec<f64> {
        if let Some(device) = self.device() {
            return device.mean(0..self.width());
        }
        let mut mean = vec![0.0; self.width()];
        for i in 0..self.count() {
            mean.iter_mut().zip(self.row(i)).for_each(|(m, r)| *m += r.f64());
        }
        mean.iter_mut().for_each(|m| *m /= self.count() as f64);
        mean
    }

    /// `self += scale · other`.
    pub fn add_scaled(&mut self, scale: T, other: &Rows<T>, threads: &Threads) {
        match self.devices(other) {
            Some((a, b)) => a.add_scaled(scale, b),
            None => self.update(other, threads, |a, b| kernels::add_scaled(a, scale, b)),
        }
    }

    /// `self += other`.
    pub fn add(&mut self, other: &Rows<T>, threads: &Threads) {
        match self.devices(other) {
            Some((a, b)) => a.add_scaled(T::ONE, b),
            None => self.update(other, threads, kernels::add),
        }
    }

    /// `self = scale · (other − self)`.
    pub fn scale_difference(&mut self, scale: T, other: &Rows<T>, threads: &Threads) {
        match self.devices(other) {
            Some((a, b)) => a.scale_difference(scale, b),
            None => self.update(other, threads, |a, b| kernels::scale_difference(a, scale, b)),
        }
    }

    /// `self = other`, keeping the memory.
    pub fn copy_from(&mut self, other: &Rows<T>) {
        assert_eq!(self.layout, other.layout, "rows of different shapes");
        match self.devices(other) {
            Some((a, b)) => a.copy_from(b),
            None => self.data.copy_from_slice(&other.data),
        }
    }

    /// `self −= columns ∘ other`: one factor per column.
    pub fn sub_scaled_columns(&mut self, columns: &[T], other: &Rows<T>, threads: &Threads) {
        match self.devices(other) {
            Some((a, b)) => a.sub_scaled_columns(columns, b),
            None => self.update_rows(threads, |i, row| kernels::sub_scaled(row, columns, other.row(i))),
        }
    }

    /// `self −= columns ∘ mean of other's rows`, in every row.
    pub(crate) fn sub_scaled_mean_on_device(&mut self, columns: &[T], other: &Rows<T>) {
        if let Some((a, b)) = self.devices(other) {
            a.sub_scaled_mean(columns, b);
        }
    }

    /// `ψ⁺ = self − columns ∘ m`, `self += ψ⁺ − ψ`, in one pass. On the host.
    pub fn diffuse(&mut self, psi: &mut Rows<T>, columns: &[T], m: &Rows<T>, threads: &Threads) {
        self.update_together(psi, threads, |i, row, psi| kernels::diffuse(row, psi, columns, m.row(i)));
    }

    /// `self += self − old`, `old` is what it was, in one pass. On the host.
    pub fn extrapolate(&mut self, old: &mut Rows<T>, threads: &Threads) {
        self.update_together(old, threads, |_, row, old| kernels::extrapolate(row, old));
    }

    /// `self −= columns ∘ (m − old)`, then `old = m`.
    pub fn sub_scaled_change(&mut self, old: &mut Rows<T>, columns: &[T], m: &Rows<T>, threads: &Threads) {
        if self.device().is_some() {
            old.scale_difference(T::ONE, m, threads);
            self.sub_scaled_columns(columns, old, threads);
            return old.copy_from(m);
        }
        self.update_together(old, threads, |i, row, old| {
            kernels::sub_scaled_change(row, old, columns, m.row(i));
        });
    }

    /// `self = other / weight`, where each row of `weight` is one number; they are few, so they always lie on
    /// the host.
    pub fn divide_into(&mut self, other: &Rows<T>, weight: &Rows<T>, threads: &Threads) {
        match self.devices(other) {
            Some((a, b)) => {
                a.divide_into(b, &(0..weight.count()).map(|i| weight.row(i)[0]).collect::<Vec<_>>())
            }
            None => self.update_rows(threads, |i, row| kernels::divide(row, other.row(i), weight.row(i)[0])),
        }
    }

    /// `self = other`, in these columns from those that begin at `from` in `other`, which may be wider.
    pub fn copy_columns(&mut self, columns: Range<usize>, other: &Rows<T>, from: usize) {
        match (self.placed.0.as_deref_mut(), other.device()) {
            (Some(a), Some(b)) => a.blend(T::ZERO, T::ONE, b, Some((columns, from))),
            _ => (0..self.count()).for_each(|i| {
                let from = &other.row(i)[from..from + columns.len()];
                self.row_mut(i)[columns.clone()].copy_from_slice(from);
            }),
        }
    }

    /// Calls `job(rows, numbers)` once on each thread with its rows, padding included; a thread gets at least
    /// `least`. Only for rectangular rows.
    pub fn for_each_part(
        &mut self,
        threads: &Threads,
        least: usize,
        job: impl Fn(Range<usize>, &mut [T]) + Sync,
    ) {
        kernels::for_each_part(threads, (self.count(), self.stride()), &mut self.data, least, job);
    }

    fn update_rows(&mut self, threads: &Threads, job: impl Fn(usize, &mut [T]) + Sync) {
        kernels::for_each_row(threads, &self.layout, &mut self.data, job);
    }

    fn update_together(
        &mut self,
        other: &mut Rows<T>,
        threads: &Threads,
        job: impl Fn(usize, &mut [T], &mut [T]) + Sync,
    ) {
        assert_eq!(self.layout, other.layout, "rows of different shapes");
        let both = [&mut self.data[..], &mut other.data[..]];
        kernels::for_each_together(threads, &self.layout, both, |i, [row, other]| job(i, row, other));
    }

    fn update(&mut self, other: &Rows<T>, threads: &Threads, job: impl Fn(&mut [T], &[T]) + Sync) {
        debug_assert_eq!(self.layout, other.layout, "rows of different shapes");
        kernels::update(threads, &mut self.data, &other.data, job);
    }
}

/// The variables of one kind (all decisions, all trackers or all directions) side by side in one row per
/// agent, so that mixing them is one pass. If the first variable is private it lies apart: it is neither
/// mixed nor sent, and may be ragged.
#[derive(Clone, Debug, PartialEq)]
pub struct Stack<T, const N: usize> {
    /// What is mixed and sent.
    pub shared: Rows<T>,
    /// The first variable, where it is private to its agent.
    pub private: Option<Rows<T>>,
    cuts: [Range<usize>; N],
}

/// The error of the lowest agent whose job failed, whichever thread it was on.
struct Lowest<E>(Mutex<Option<(usize, E)>>);

impl<E> Default for Lowest<E> {
    fn default() -> Self {
        Lowest(Mutex::new(None))
    }
}

impl<E> Lowest<E> {
    fn note(&self, agent: usize, done: Result<(), E>) {
        if let Err(error) = done {
            let mut lowest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if lowest.as_ref().is_none_or(|(known, _)| agent < *known) {
                *lowest = Some((agent, error));
            }
        }
    }

    fn into_result(self) -> Result<(), E> {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), |(_, error)| Err(error))
    }
}

impl<T: Real> Stack<T, 1> {
    /// The rows of its variable, private or shared.
    fn rows_mut(&mut self) -> &mut Rows<T> {
        self.private.as_mut().unwrap_or(&mut self.shared)
    }

    /// Calls `job(thread, agent, row, row of other)` for every agent, on all threads; jobs are long and can
    /// fail as those of [`try_for_each_row`](Self::try_for_each_row).
    pub fn try_for_each_pair<E: Send>(
        &mut self,
        other: &mut Stack<T, 1>,
        threads: &Threads,
        job: impl Fn(usize, usize, &mut [T], &mut [T]) -> Result<(), E> + Sync,
    ) -> Result<(), E> {
        assert_eq!(self.count(), other.count(), "stacks of as many agents");
        let (own, other, first) = (self.rows_mut(), other.rows_mut(), Lowest::default());
        let (own, other) = ((&own.layout, &mut own.data[..]), (&other.layout, &mut other.data[..]));
        kernels::for_each_rows(threads, 1, own, Some(other), |thread, i, own, other| {
            first.note(i, job(thread, i, own, other.unwrap_or_default()));
        });
        first.into_result()
    }
}

/// The widths of a problem's upper variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Upper {
    /// One x that the agents must agree on, of this length.
    Shared(usize),
    /// Each agent has entries of its own, this many, which no other agent sees.
    Private(Vec<usize>),
}

impl<T: Real, const N: usize> Stack<T, N> {
    /// Zeros: for each of `count` agents a first variable as `upper` says, then variables of these widths.
    pub fn zeros(count: usize, upper: &Upper, others: &[usize]) -> Self {
        let (first, private) = match upper {
            Upper::Shared(width) => (*width, None),
            Upper::Private(widths) => (0, Some(Rows::ragged(widths))),
        };
        let mut end = 0;
        let mut widths = std::iter::once(first).chain(others.iter().copied());
        let cuts = std::array::from_fn(|_| {
            let start = end;
            end += widths.next().expect("one width per variable");
            start..end
        });
        Stack { shared: Rows::zeros(count, end), private, cuts }
    }

    /// How many agents.
    pub fn count(&self) -> usize {
        self.shared.count()
    }

    /// Whether its numbers lie on a device.
    pub fn on_device(&self) -> bool {
        self.shared.device().is_some()
    }

    /// `self = keep · self + scale · other`, for one variable of stacks that lie on a device.
    pub fn blend_on_device<const M: usize>(
        &mut self,
        variable: usize,
        keep: f64,
        scale: f64,
        (other, from): (&Stack<T, M>, usize),
    ) {
        let (keep, scale) = (T::of(keep), T::of(scale));
        match (&mut self.private, &other.private) {
            (Some(own), Some(other)) if variable == 0 && from == 0 => {
                if let Some((own, other)) = own.devices(other) {
                    own.blend(keep, scale, other, None);
                }
            }
            _ => {
                let columns = (self.cut(variable), other.cut(from).start);
                // Rows of one width or of another.
                if let (Some(own), Some(other)) = (self.shared.device_mut(), other.shared.device()) {
                    own.blend(keep, scale, other, Some(columns));
                }
            }
        }
    }

    /// Shrinks one variable of each agent to this norm where it is longer.
    pub fn keep_in_ball(&mut self, variable: usize, radius: f64, threads: &Threads) {
        let columns = self.cut(variable);
        if let Some(device) = self.shared.device_mut() {
            return device.keep_in_ball(columns, radius);
        }
        self.for_each_row(threads, 16, |_, _, row| {
            let norm = row[variable].iter().map(|z| z.f64() * z.f64()).sum::<f64>().sqrt();
            if norm > radius {
                let scale = T::of(radius / norm);
                row[variable].iter_mut().for_each(|z| *z = *z * scale);
            }
        });
    }

    /// Where variable `v` lies in a shared row.
    pub fn cut(&self, v: usize) -> Range<usize> {
        self.cuts[v].clone()
    }

    /// The variables of agent `i`.
    #[inline(always)]
    pub fn row(&self, i: usize) -> [&[T]; N] {
        let row = self.shared.row(i);
        let mut out = std::array::from_fn(|v| &row[self.cuts[v].clone()]);
        if let Some(private) = &self.private {
            out[0] = private.row(i);
        }
        out
    }

    /// The variables of agent `i`, to write.
    #[inline(always)]
    pub fn row_mut(&mut self, i: usize) -> [&mut [T]; N] {
        let mut out = split(self.shared.row_mut(i), &self.cuts);
        if let Some(private) = &mut self.private {
            out[0] = private.row_mut(i);
        }
        out
    }

    /// Calls `job(thread, agent, variables)` for every agent, on all threads. A thread gets at least `least`
    /// agents; where that is 1, their jobs are long, and a thread that is done with one takes the next.
    pub fn for_each_row(
        &mut self,
        threads: &Threads,
        least: usize,
        job: impl Fn(usize, usize, [&mut [T]; N]) + Sync,
    ) {
        let (shared, cuts) = ((&self.shared.layout, &mut self.shared.data[..]), &self.cuts);
        let private = self.private.as_mut().map(|p| (&p.layout, &mut p.data[..]));
        kernels::for_each_rows(threads, least, shared, private, |thread, i, row, private| {
            let mut out = split(row, cuts);
            if let Some(private) = private {
                out[0] = private;
            }
            job(thread, i, out);
        });
    }

    /// The same for jobs that can fail; the error is that of the lowest agent whose job failed.
    pub fn try_for_each_row<E: Send>(
        &mut self,
        threads: &Threads,
        least: usize,
        job: impl Fn(usize, usize, [&mut [T]; N]) -> Result<(), E> + Sync,
    ) -> Result<(), E> {
        let first = Lowest::default();
        self.for_each_row(threads, least, |thread, i, variables| first.note(i, job(thread, i, variables)));
        first.into_result()
    }

    /// Of one variable: `self⁺ = (1 − theta) self + theta · d`, and d is the new self; the old one if `late`.
    pub fn momentum(
        &mut self,
        variable: usize,
        d: &mut Stack<T, N>,
        (theta, late): (f64, bool),
        threads: &Threads,
    ) {
        if !self.on_device() {
            let (stay, go) = (T::of(1.0 - theta), T::of(theta));
            return self.update_variable(variable, d, threads, |_, m, d| {
                kernels::momentum(m, d, stay, go, late);
            });
        }
        if late {
            // m − d serves for both: the new m is m − θ (m − d), the old one is that and what was taken off.
            d.blend_on_device(variable, -1.0, 1.0, (self, variable));
            self.blend_on_device(variable, 1.0, -theta, (d, variable));
            return d.blend_on_device(variable, theta, 1.0, (self, variable));
        }
        self.blend_on_device(variable, 1.0 - theta, theta, (d, variable));
        d.blend_on_device(variable, 0.0, 1.0, (self, variable));
    }

    /// Of one variable: `self⁺ = stay · (self − back) + d`, and d is the new self.
    pub fn storm(
        &mut self,
        variable: usize,
        d: &mut Stack<T, N>,
        (stay, back): (f64, &Stack<T, N>),
        threads: &Threads,
    ) {
        if !self.on_device() {
            let stay = T::of(stay);
            return self.update_variable(variable, d, threads, |i, m, d| {
                kernels::storm(m, d, stay, back.row(i)[variable]);
            });
        }
        self.blend_on_device(variable, 1.0, -1.0, (back, variable));
        self.blend_on_device(variable, stay, 1.0, (d, variable));
        d.blend_on_device(variable, 0.0, 1.0, (self, variable));
    }

    /// Calls `job(agent, row, row of other)`, short work, for one variable of every agent.
    fn update_variable(
        &mut self,
        variable: usize,
        other: &mut Stack<T, N>,
        threads: &Threads,
        job: impl Fn(usize, &mut [T], &mut [T]) + Sync,
    ) {
        if let (0, Some(own), Some(other)) = (variable, &mut self.private, &mut other.private) {
            return own.update_together(other, threads, job);
        }
        let cut = self.cut(variable);
        self.shared.update_together(&mut other.shared, threads, |i, row, other| {
            job(i, &mut row[cut.clone()], &mut other[cut.clone()]);
        });
    }

    /// Writes `values[v]` to every column of variable `v`: one number per column, as the fused update wants
    /// the steps. A device finds the columns itself and gets the `N` values.
    pub fn step_columns(&self, values: [f64; N], columns: &mut Vec<T>) {
        if self.shared.device().is_some() {
            columns.clear();
            return columns.extend(values.map(T::of));
        }
        columns.resize(self.shared.stride(), T::ZERO);
        for (cut, value) in self.cuts.iter().zip(values) {
            columns[cut.clone()].fill(T::of(value));
        }
    }
}

#[inline(always)]
fn split<'a, T, const N: usize>(mut row: &'a mut [T], cuts: &[Range<usize>; N]) -> [&'a mut [T]; N] {
    std::array::from_fn(|v| row.split_off_mut(..cuts[v].len()).expect("cuts lie inside the row"))
}

/// A named variable of a state.
#[derive(Clone, Debug)]
pub struct View<'a, T> {
    /// Its name in the paper.
    pub name: &'static str,
    /// The rows it lies in …
    pub rows: &'a Rows<T>,
    /// … and where; `None` if it is the whole row (which may be ragged).
    pub columns: Option<Range<usize>>,
}

impl<'a, T: Real> View<'a, T> {
    /// A view of whole rows.
    pub fn whole(name: &'static str, rows: &'a Rows<T>) -> Self {
        View { name, rows, columns: None }
    }

    /// The mean over agents, in `f64`; `None` if agents have different widths.
    pub fn mean(&self) -> Option<Vec<f64>> {
        let count = self.rows.count();
        if let Some(device) = self.rows.device() {
            return (self.columns.is_some()
                || self.rows.layout.widths().iter().all(|w| *w == self.rows.width()))
            .then(|| device.mean(self.span()));
        }
        let mut mean = vec![0.0; if count == 0 { 0 } else { self.row(0).len() }];
        for i in 0..count {
            if self.row(i).len() != mean.len() {
                return None;
            }
            mean.iter_mut().zip(self.row(i)).for_each(|(m, v)| *m += v.f64());
        }
        mean.iter_mut().for_each(|m| *m /= count as f64);
        Some(mean)
    }

    /// (1/n) Σ ‖v_i − mean‖², with the mean of [`mean`](Self::mean).
    pub fn consensus_error(&self, mean: &[f64]) -> f64 {
        if let Some(device) = self.rows.device() {
            return device.consensus_error(self.span());
        }
        let square =
            |i: usize| self.row(i).iter().zip(mean).map(|(v, m)| (v.f64() - m) * (v.f64() - m)).sum::<f64>();
        (0..self.rows.count()).map(square).sum::<f64>() / self.rows.count() as f64
    }

    /// ‖Σ self − Σ other‖ and Σ ‖other_i‖.
    pub fn gap(&self, other: &View<'_, T>) -> (f64, f64) {
        if let (Some(a), Some(b)) = (self.rows.device(), other.rows.device()) {
            return a.gap(self.span(), b);
        }
        let (mut gap, mut size) = (vec![0.0; self.span().len()], 0.0);
        for i in 0..self.rows.count() {
            gap.iter_mut().zip(self.row(i)).zip(other.row(i)).for_each(|((g, t), d)| *g += t.f64() - d.f64());
            size += other.row(i).iter().map(|d| d.f64() * d.f64()).sum::<f64>().sqrt();
        }
        (gap.iter().map(|g| g * g).sum::<f64>().sqrt(), size)
    }

    fn span(&self) -> Range<usize> {
        self.columns.clone().unwrap_or(0..self.rows.width())
    }

    /// The vectors of all owned rows, from wherever they lie.
    pub fn to_vecs(&self) -> Vec<Vec<T>> {
        (0..self.rows.count()).map(|i| self.fetched(i).into_owned()).collect()
    }

    /// The vector of owned row `i`, copied where it lies on a device.
    pub fn fetched(&self, i: usize) -> Cow<'a, [T]> {
        let Some(device) = self.rows.device() else { return Cow::Borrowed(self.row(i)) };
        let span = self.columns.clone().unwrap_or(0..self.rows.layout.widths()[i]);
        let mut row = vec![T::ZERO; span.len()];
        device.read(self.rows.layout.row(i).start + span.start, &mut row);
        Cow::Owned(row)
    }

    /// The vector of owned row `i`, in host memory.
    pub fn row(&self, i: usize) -> &'a [T] {
        match &self.columns {
            Some(columns) => &self.rows.row(i)[columns.clone()],
            None => self.rows.row(i),
        }
    }
}
