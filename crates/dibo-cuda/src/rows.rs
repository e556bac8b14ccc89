//! Rows in the GPU's memory.
use crate::gpu::{Gpu, arguments};
use crate::memory::DeviceMemory;
use dibo::rows::{OnDevice, Rows};
use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

/// The kernels that are looked for by name.
#[cfg(test)]
pub(crate) const KERNELS: [&str; 15] = [
    "add_scaled",
    "scale_difference",
    "sub_steps",
    "divide",
    "mean_columns",
    "spread_rows",
    "gap_rows",
    "dot_rows",
    "mix_sparse",
    "blend",
    "scale_rows",
    "away",
    "difference",
    "sub_mean",
    "take_largest",
];

/// The numbers of some rows on a GPU.
#[derive(Debug)]
pub(crate) struct DeviceRows {
    memory: DeviceMemory,
    starts: Arc<Vec<usize>>,
    ends: Arc<Vec<usize>>,
}

/// Where rows lie on a GPU, for whoever computes there as well.
#[derive(Clone, Debug)]
pub struct Lent {
    /// The address of each row.
    pub rows: Vec<u64>,
    /// The GPU, in the order of whose stream they are written and read.
    pub gpu: Arc<Gpu>,
}

/// Where these rows lie; says why that cannot be told, such as a failure of the GPU's.
pub fn lent<T>(rows: &dyn OnDevice<T>) -> Result<Lent, String> {
    let rows: &DeviceRows = rows.any().downcast_ref().ok_or("the rows lie on no GPU")?;
    rows.gpu().health()?;
    let starts = &rows.starts[..rows.count()];
    let at = |start: &usize| rows.at() + 4 * *start as u64;
    Ok(Lent { rows: starts.iter().map(at).collect(), gpu: rows.gpu().clone() })
}

/// Where variables end and the step of each, as the kernels want it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Steps {
    end: [i64; 4],
    eta: [f32; 4],
}

impl Steps {
    /// No step at all, where nothing is pulled.
    pub const NONE: Steps = Steps { end: [i64::MAX; 4], eta: [0.0; 4] };

    /// One step for each variable, of which a kernel knows four at most.
    fn new(ends: &[usize], values: &[f32]) -> Option<Steps> {
        if values.len() > 4 || values.len() != ends.len() {
            return None;
        }
        let mut steps = Self::NONE;
        for (v, (end, value)) in ends.iter().zip(values).enumerate() {
            (steps.end[v], steps.eta[v]) = (*end as i64, *value);
        }
        Some(steps)
    }
}

impl DeviceRows {
    /// Moves rows to the GPU. `ends` says where the variables of a row end.
    pub fn place(gpu: &Arc<Gpu>, rows: &mut Rows<f32>, ends: &[usize]) {
        rows.place(|numbers, starts| {
            Box::new(DeviceRows {
                memory: DeviceMemory::of(gpu, numbers),
                starts: Arc::new(starts.to_vec()),
                ends: Arc::new(ends.to_vec()),
            })
        });
    }

    /// The rows as a GPU's; `None` if they lie on the host.
    pub fn of(rows: &Rows<f32>) -> Option<&DeviceRows> {
        rows.device().and_then(|r| r.any().downcast_ref())
    }

    /// The rows as this GPU's, where others of their stack are; a failure if they are not.
    pub fn required<'a>(gpu: &Gpu, rows: &'a Rows<f32>) -> Option<&'a DeviceRows> {
        gpu.require(Self::of(rows), "rows of a stack lie partly on the host")
    }

    /// The other rows of an operation, which must lie on the same GPU in the same shape.
    fn peer<'a>(&self, other: &'a dyn OnDevice<f32>) -> Option<&'a DeviceRows> {
        let other = other.any().downcast_ref::<DeviceRows>();
        let like = other.filter(|o| Arc::ptr_eq(o.gpu(), self.gpu()) && o.len() == self.len());
        self.gpu().require(like, "rows of two devices or shapes in one operation")
    }

    fn gpu(&self) -> &Arc<Gpu> {
        self.memory.gpu()
    }

    /// Where the first row begins in the GPU's memory.
    pub fn at(&self) -> u64 {
        self.memory.at()
    }

    pub fn memory(&self) -> &DeviceMemory {
        &self.memory
    }

    /// Numbers from one row to the next.
    pub fn stride(&self) -> usize {
        self.starts.get(1).copied().unwrap_or(0)
    }

    pub fn count(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    fn len(&self) -> usize {
        self.starts.last().copied().unwrap_or(0)
    }

    /// The steps of the variables, for a kernel.
    pub fn steps(&self, values: &[f32]) -> Option<Steps> {
        self.gpu().require(Steps::new(&self.ends, values), "not one step for each variable")
    }

    /// Blocks of a kernel in which each row has its own, four numbers a thread.
    fn row_grid(&self) -> (u32, u32) {
        (self.gpu().blocks(self.stride() / 4, 256), self.count() as u32)
    }

    /// Starts a kernel that takes all numbers of two sets of rows, and one factor.
    fn with_scale(&self, kernel: &'static str, scale: f32, other: &dyn OnDevice<f32>) {
        let Some(other) = self.peer(other) else { return };
        let (a, b, n) = (self.at(), other.at(), self.len() as i64);
        let grid = (self.gpu().blocks(self.len() / 4, 256), 1);
        self.gpu().rows_kernel(kernel, grid, 256, arguments![a, scale, b, n]);
    }

    /// The mean of some columns over the rows, left on the device.
    pub fn mean_on_device(&self, columns: &Range<usize>) -> DeviceMemory {
        let out = DeviceMemory::unset(self.gpu(), 4 * columns.len());
        let (to, a, from, width) = (out.at(), self.at(), columns.start as i64, columns.len() as i64);
        let (stride, count) = (self.stride() as i64, self.count() as i32);
        let grid = (self.gpu().blocks(columns.len(), 256), 1);
        self.gpu().rows_kernel("mean_columns", grid, 256, arguments![to, a, from, width, stride, count]);
        out
    }

    /// `rows` sums over these columns, which `kernel` leaves in parts, one for each block of its grid, at the
    /// address it gets.
    fn sums(&self, columns: &Range<usize>, rows: usize, kernel: impl FnOnce((u32, u32), u64)) -> Vec<f64> {
        let blocks = self.gpu().blocks(columns.len(), 256).min(1024);
        let mut parts = vec![0.0f64; rows * blocks as usize];
        let out = DeviceMemory::unset(self.gpu(), size_of_val(&parts[..]));
        kernel((blocks, rows as u32), out.at());
        out.read(0, &mut parts);
        parts.chunks(blocks as usize).map(|p| p.iter().sum()).collect()
    }

    /// The square of each row's norm over these columns.
    pub fn square_sums(&self, columns: &Range<usize>) -> Vec<f64> {
        self.dots(columns, columns.start)
    }

    /// Of each row the product of these columns with as many from `other` on.
    pub fn dots(&self, columns: &Range<usize>, other: usize) -> Vec<f64> {
        let (b, from, width, stride, count) = self.columns(columns);
        let other = other as i64;
        self.sums(columns, count as usize, |grid, to| {
            self.gpu().rows_kernel("dot_rows", grid, 256, arguments![to, b, from, other, width, stride]);
        })
    }

    /// One column, row by row.
    pub fn column(&self, column: usize) -> Vec<f32> {
        let (numbers, from, count) =
            (DeviceMemory::unset(self.gpu(), 4 * self.count()), column, self.count());
        self.copy_column(numbers.at(), 1, 0, self.at(), self.stride(), from);
        let mut values = vec![0.0; count];
        numbers.read(0, &mut values);
        values
    }

    /// Some numbers of one row, from this one on.
    pub fn part(&self, row: usize, from: usize, count: usize) -> Vec<f32> {
        let mut numbers = vec![0.0; count];
        if count > 0 {
            self.memory.read(4 * (self.starts[row] + from), &mut numbers);
        }
        numbers
    }

    /// Writes some numbers of one row.
    pub fn set_part(&self, row: usize, from: usize, numbers: &[f32]) {
        self.memory.write(4 * (self.starts[row] + from), numbers);
    }

    /// Multiplies these columns by a factor of each row.
    pub fn scale_columns(&self, columns: Range<usize>, factors: &[f32]) {
        let factors = DeviceMemory::of(self.gpu(), factors);
        let (a, from, width, stride, count) = self.columns(&columns);
        let (by, grid) = (factors.at(), (self.gpu().blocks(columns.len(), 256), count as u32));
        self.gpu().rows_kernel("scale_rows", grid, 256, arguments![a, by, from, width, stride]);
    }

    /// Writes one column.
    pub fn set_column(&self, column: usize, values: &[f32]) {
        let numbers = DeviceMemory::of(self.gpu(), values);
        self.copy_column(self.at(), self.stride(), column, numbers.at(), 1, 0);
    }

    fn copy_column(&self, a: u64, stride_a: usize, to: usize, b: u64, stride_b: usize, from: usize) {
        let (keep, scale, width) = (0.0f32, 1.0f32, 1i64);
        let [stride_a, stride_b, to, from] = [stride_a, stride_b, to, from].map(|n| n as i64);
        self.gpu().rows_kernel(
            "blend",
            (1, self.count() as u32),
            32,
            arguments![a, b, keep, scale, to, from, width, stride_a, stride_b],
        );
    }

    /// What kernels over columns take: address, first column, columns, stride and rows.
    fn columns(&self, columns: &Range<usize>) -> (u64, i64, i64, i64, i32) {
        let (from, width) = (columns.start as i64, columns.len() as i64);
        (self.at(), from, width, self.stride() as i64, self.count() as i32)
    }
}

impl OnDevice<f32> for DeviceRows {
    fn duplicate(&self) -> Box<dyn OnDevice<f32>> {
        let memory = DeviceMemory::unset(self.gpu(), self.memory.bytes());
        memory.copy_from(&self.memory);
        Box::new(DeviceRows { memory, starts: self.starts.clone(), ends: self.ends.clone() })
    }

    fn read(&self, from: usize, to: &mut [f32]) {
        self.memory.read(4 * from, to);
    }

    fn write(&mut self, from: usize, numbers: &[f32]) {
        self.memory.write(4 * from, numbers);
    }

    fn copy_from(&mut self, other: &dyn OnDevice<f32>) {
        if let Some(other) = self.peer(other) {
            self.memory.copy_from(&other.memory);
        }
    }

    fn clear(&mut self) {
        self.memory.clear();
    }

    fn add_scaled(&mut self, scale: f32, other: &dyn OnDevice<f32>) {
        self.with_scale("add_scaled", scale, other);
    }

    fn scale_difference(&mut self, scale: f32, other: &dyn OnDevice<f32>) {
        self.with_scale("scale_difference", scale, other);
    }

    fn sub_scaled_columns(&mut self, factors: &[f32], other: &dyn OnDevice<f32>) {
        let Some((other, steps)) = self.peer(other).zip(self.steps(factors)) else { return };
        let (a, b, stride) = (self.at(), other.at(), self.stride() as i64);
        self.gpu().rows_kernel("sub_steps", self.row_grid(), 256, arguments![a, b, steps, stride]);
    }

    fn sub_scaled_mean(&mut self, factors: &[f32], other: &dyn OnDevice<f32>) {
        let Some((other, steps)) = self.peer(other).zip(self.steps(factors)) else { return };
        let (a, b, stride, count) = (self.at(), other.at(), self.stride() as i64, self.count() as i32);
        let grid = (self.gpu().blocks(self.stride(), 256), 1);
        self.gpu().rows_kernel("sub_mean", grid, 256, arguments![a, b, steps, stride, count]);
    }

    fn take_largest(&mut self, top: usize, columns: Range<usize>, other: &dyn OnDevice<f32>) {
        let Some(other) = self.peer(other) else { return };
        let (a, from, width, stride, count) = self.columns(&columns);
        let (b, top) = (other.at(), top as i64);
        let arguments = arguments![a, b, from, width, stride, top];
        self.gpu().rows_kernel("take_largest", (count as u32, 1), 1024, arguments);
    }

    fn divide_into(&mut self, other: &dyn OnDevice<f32>, weights: &[f32]) {
        let Some(other) = self.peer(other) else { return };
        let weights = DeviceMemory::of(self.gpu(), weights);
        let (a, b, w, stride) = (self.at(), other.at(), weights.at(), self.stride() as i64);
        self.gpu().rows_kernel("divide", self.row_grid(), 256, arguments![a, b, w, stride]);
    }

    fn blend(
        &mut self,
        keep: f32,
        scale: f32,
        other: &dyn OnDevice<f32>,
        columns: Option<(Range<usize>, usize)>,
    ) {
        let other = other.any().downcast_ref::<DeviceRows>();
        let fits = |o: &&DeviceRows| match &columns {
            Some((to, from)) => {
                o.count() == self.count() && to.end <= self.stride() && from + to.len() <= o.stride()
            }
            None => o.len() == self.len(),
        };
        let other = other.filter(|o| Arc::ptr_eq(o.gpu(), self.gpu())).filter(fits);
        let Some(other) = self.gpu().require(other, "rows of two devices or shapes in one operation") else {
            return;
        };
        // All numbers are as one long row.
        let (to, from, width, rows) = match &columns {
            Some((to, from)) => (to.start as i64, *from as i64, to.len() as i64, self.count() as u32),
            None => (0, 0, self.len() as i64, 1),
        };
        let (a, b, own, others) = (self.at(), other.at(), self.stride() as i64, other.stride() as i64);
        let grid = (self.gpu().blocks(width as usize, 256), rows);
        let arguments = arguments![a, b, keep, scale, to, from, width, own, others];
        self.gpu().rows_kernel("blend", grid, 256, arguments);
    }

    fn keep_in_ball(&mut self, columns: Range<usize>, radius: f64) {
        let factor = |square: f64| if square.sqrt() > radius { radius / square.sqrt() } else { 1.0 };
        let factors: Vec<f32> = self.square_sums(&columns).into_iter().map(|s| factor(s) as f32).collect();
        self.scale_columns(columns, &factors);
    }

    fn mean(&self, columns: Range<usize>) -> Vec<f64> {
        let out = self.mean_on_device(&columns);
        let mut mean = vec![0.0f32; columns.len()];
        out.read(0, &mut mean);
        mean.into_iter().map(f64::from).collect()
    }

    fn consensus_error(&self, columns: Range<usize>) -> f64 {
        let (a, from, width, stride, count) = self.columns(&columns);
        let sums = self.sums(&columns, 1, |grid, to| {
            self.gpu().rows_kernel("spread_rows", grid, 256, arguments![to, a, from, width, stride, count]);
        });
        sums.iter().sum::<f64>() / self.count() as f64
    }

    fn gap(&self, columns: Range<usize>, other: &dyn OnDevice<f32>) -> (f64, f64) {
        let Some(other) = self.peer(other) else { return (0.0, 0.0) };
        let (a, from, width, stride, count) = self.columns(&columns);
        let b = other.at();
        let gap = self.sums(&columns, 1, |grid, to| {
            self.gpu().rows_kernel("gap_rows", grid, 256, arguments![to, a, b, from, width, stride, count]);
        });
        let sizes = other.square_sums(&columns);
        (gap.iter().sum::<f64>().sqrt(), sizes.iter().map(|s| s.sqrt()).sum())
    }

    fn any(&self) -> &dyn Any {
        self
    }

    fn any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::Steps;

    #[test]
    fn each_variable_has_its_step() {
        let steps = Steps::new(&[3, 9], &[0.1, 0.3]);
        let (end, eta) = ([3, 9, i64::MAX, i64::MAX], [0.1, 0.3, 0.0, 0.0]);
        assert_eq!(steps, Some(Steps { end, eta }));
        assert_eq!(Steps::new(&[], &[]), Some(Steps::NONE));
        assert_eq!(Steps::new(&[3, 9], &[0.1]), None);
        assert_eq!(Steps::new(&[1; 5], &[0.1; 5]), None);
    }
}
