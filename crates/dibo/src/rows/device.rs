//! Rows in a device's memory: the seam between this room and the device.
use std::any::Any;
use std::fmt::Debug;
use std::ops::Range;

/// The numbers of [`Rows`](super::Rows), padding included, in a device's memory, with the kernels of this
/// room. Each is called once for all rows; `other` always lies on the same device.
pub trait OnDevice<T>: Debug + Send + Sync {
    /// A copy on the same device.
    fn duplicate(&self) -> Box<dyn OnDevice<T>>;
    /// Brings the numbers from place `from` on to the host.
    fn read(&self, from: usize, to: &mut [T]);
    /// Writes numbers from place `from` on.
    fn write(&mut self, from: usize, numbers: &[T]);
    /// `self = other`.
    fn copy_from(&mut self, other: &dyn OnDevice<T>);
    /// `self = 0`.
    fn clear(&mut self);
    /// `self += scale · other`.
    fn add_scaled(&mut self, scale: T, other: &dyn OnDevice<T>);
    /// `self = scale · (other − self)`.
    fn scale_difference(&mut self, scale: T, other: &dyn OnDevice<T>);
    /// `self −= factors ∘ other`: one factor for all columns of a variable.
    fn sub_scaled_columns(&mut self, factors: &[T], other: &dyn OnDevice<T>);
    /// `self −= factors ∘ mean of other's rows`, in every row.
    fn sub_scaled_mean(&mut self, factors: &[T], other: &dyn OnDevice<T>);
    /// `self = other / weight`: one number per row.
    fn divide_into(&mut self, other: &dyn OnDevice<T>, weights: &[T]);
    /// `self = keep · self + scale · other`, in these columns from those that begin at a place of `other`,
    /// which may have another width; in all rows as they are where no columns are named. With `keep` 0 what
    /// was there counts for nothing, whatever it was.
    fn blend(&mut self, keep: T, scale: T, other: &dyn OnDevice<T>, columns: Option<(Range<usize>, usize)>);
    /// Each row takes over, in these columns, its `top` largest differences from `other`; the first of equals
    /// comes first.
    fn take_largest(&mut self, top: usize, columns: Range<usize>, other: &dyn OnDevice<T>);
    /// Shrinks what a row has in these columns to this norm where it is longer.
    fn keep_in_ball(&mut self, columns: Range<usize>, radius: f64);
    /// The mean of these columns over the rows.
    fn mean(&self, columns: Range<usize>) -> Vec<f64>;
    /// (1/n) Σ ‖row_i − mean‖² over these columns.
    fn consensus_error(&self, columns: Range<usize>) -> f64;
    /// ‖Σ self − Σ other‖ and Σ ‖other_i‖ over these columns.
    fn gap(&self, columns: Range<usize>, other: &dyn OnDevice<T>) -> (f64, f64);
    /// For the code of the same device.
    fn any(&self) -> &dyn Any;
    /// For the code of the same device.
    fn any_mut(&mut self) -> &mut dyn Any;
}

/// Where the numbers are, if not in host memory.
#[derive(Debug, Default)]
pub(super) struct Placed<T>(pub Option<Box<dyn OnDevice<T>>>);

impl<T> Clone for Placed<T> {
    fn clone(&self) -> Self {
        Placed(self.0.as_ref().map(|r| r.duplicate()))
    }
}

impl<T> PartialEq for Placed<T> {
    /// Only rows in host memory can be compared.
    fn eq(&self, other: &Self) -> bool {
        self.0.is_none() && other.0.is_none()
    }
}
