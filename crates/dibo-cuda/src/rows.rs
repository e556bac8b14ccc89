//! Rows in the GPU's memory.
use crate::arguments;
use crate::gpu::{Gpu, Memory};
use dibo::rows::{OnDevice, Rows};
use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

/// The numbers of some rows on a GPU.
#[derive(Debug)]
pub struct DeviceRows {
    memory: Memory,
    starts: Arc<Vec<usize>>,
    ends: Arc<Vec<usize>>,
}

/// Where variables end and the step of each, as the kernels want it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Steps {
    end: [i64; 4],
    eta: [f32; 4],
}

impl DeviceRows {
    /// Moves rows to the GPU. `ends` says where the variables of a row end.
    pub fn place(gpu: &Arc<Gpu>, rows: &mut Rows<f32>, ends: &[usize]) {
        rows.place(|numbers, starts| {
            Box::new(DeviceRows {
                memory: Memory::of(gpu, numbers),
                starts: Arc::new(starts.to_vec()),
                ends: Arc::new(ends.to_vec()),
            })
        });
    }

    /// The rows as this GPU's; `None` if they lie on the host.
    pub(crate) fn of(rows: &Rows<f32>) -> Option<&DeviceRows> {
        rows.device().and_then(|r| r.any().downcast_ref())
    }

    fn peer(other: &dyn OnDevice<f32>) -> &DeviceRows {
        other.any().downcast_ref().expect("rows of one device")
    }

    pub(crate) fn gpu(&self) -> &Arc<Gpu> {
        self.memory.gpu()
    }

    /// Where the first row begins in the GPU's memory.
    pub(crate) fn at(&self) -> u64 {
        self.memory.at()
    }

    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Numbers from one row to the next.
    pub(crate) fn stride(&self) -> usize {
        self.starts.get(1).copied().unwrap_or(0)
    }

    pub(crate) fn count(&self) -> usize {
        self.starts.len() - 1
    }

    /// How many variables a row holds.
    pub(crate) fn ends(&self) -> usize {
        self.ends.len()
    }

    fn len(&self) -> usize {
        self.starts[self.count()]
    }

    /// The steps of the variables, for a kernel.
    pub(crate) fn steps(&self, values: &[f32]) -> Steps {
        let mut steps = Steps { end: [i64::MAX; 4], eta: [0.0; 4] };
        assert!(values.len() <= 4 && values.len() == self.ends.len(), "one step for each variable");
        for (v, value) in values.iter().enumerate() {
            (steps.end[v], steps.eta[v]) = (self.ends[v] as i64, *value);
        }
        steps
    }

    fn sums(
        &self,
        kernel: &'static str,
        other: Option<u64>,
        columns: &Range<usize>,
        rows: usize,
    ) -> Vec<f64> {
        let blocks = self.gpu().blocks(columns.len(), 256).min(1024);
        let out = Memory::unset(self.gpu(), rows * blocks as usize * 8);
        let (to, a, from, width, stride) =
            (out.at(), self.at(), columns.start as i64, columns.len() as i64, self.stride() as i64);
        let (b, count) = (other.unwrap_or(0), self.count() as i32);
        let grid = (blocks, rows as u32);
        match kernel {
            "gap_rows" => {
                self.gpu().rows_kernel(kernel, grid, 256, arguments![to, a, b, from, width, stride, count])
            }
            "square_rows" => {
                self.gpu().rows_kernel(kernel, grid, 256, arguments![to, a, from, width, stride])
            }
            _ => self.gpu().rows_kernel(kernel, grid, 256, arguments![to, a, from, width, stride, count]),
        }
        let mut parts = vec![0.0f64; rows * blocks as usize];
        out.read(0, &mut parts);
        parts.chunks(blocks as usize).map(|p| p.iter().sum()).collect()
    }
}

impl OnDevice<f32> for DeviceRows {
    fn duplicate(&self) -> Box<dyn OnDevice<f32>> {
        let memory = Memory::unset(self.gpu(), self.memory.bytes());
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
        self.memory.copy_from(&Self::peer(other).memory);
    }

    fn clear(&mut self) {
        self.memory.clear();
    }

    fn add_scaled(&mut self, scale: f32, other: &dyn OnDevice<f32>) {
        let (a, b, n) = (self.at(), Self::peer(other).at(), self.len() as i64);
        self.gpu().rows_kernel(
            "add_scaled",
            (self.gpu().blocks(self.len() / 4, 256), 1),
            256,
            arguments![a, scale, b, n],
        );
    }

    fn scale_difference(&mut self, scale: f32, other: &dyn OnDevice<f32>) {
        let (a, b, n) = (self.at(), Self::peer(other).at(), self.len() as i64);
        self.gpu().rows_kernel(
            "scale_difference",
            (self.gpu().blocks(self.len() / 4, 256), 1),
            256,
            arguments![a, scale, b, n],
        );
    }

    fn sub_scaled_columns(&mut self, factors: &[f32], other: &dyn OnDevice<f32>) {
        let (a, b, steps, stride) =
            (self.at(), Self::peer(other).at(), self.steps(factors), self.stride() as i64);
        let grid = (self.gpu().blocks(self.stride() / 4, 256), self.count() as u32);
        self.gpu().rows_kernel("sub_steps", grid, 256, arguments![a, b, steps, stride]);
    }

    fn divide_into(&mut self, other: &dyn OnDevice<f32>, weights: &[f32]) {
        let few = Memory::of(self.gpu(), weights);
        let (a, b, w, stride) = (self.at(), Self::peer(other).at(), few.at(), self.stride() as i64);
        let grid = (self.gpu().blocks(self.stride() / 4, 256), self.count() as u32);
        self.gpu().rows_kernel("divide", grid, 256, arguments![a, b, w, stride]);
    }

    fn mean(&self, columns: Range<usize>) -> Vec<f64> {
        let out = self.mean_on_device(&columns);
        let mut mean = vec![0.0f32; columns.len()];
        out.read(0, &mut mean);
        mean.into_iter().map(f64::from).collect()
    }

    fn spread(&self, columns: Range<usize>) -> f64 {
        self.sums("spread_rows", None, &columns, 1)[0] / self.count() as f64
    }

    fn gap(&self, columns: Range<usize>, other: &dyn OnDevice<f32>) -> (f64, f64) {
        let other = Self::peer(other);
        let gap = self.sums("gap_rows", Some(other.at()), &columns, 1)[0].sqrt();
        (gap, other.sums("square_rows", None, &columns, other.count()).iter().map(|s| s.sqrt()).sum())
    }

    fn any(&self) -> &dyn Any {
        self
    }

    fn any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

impl DeviceRows {
    /// The mean of some columns over the rows, left on the device.
    pub(crate) fn mean_on_device(&self, columns: &Range<usize>) -> Memory {
        let out = Memory::unset(self.gpu(), 4 * columns.len());
        let (to, a, from, width) = (out.at(), self.at(), columns.start as i64, columns.len() as i64);
        let (stride, count) = (self.stride() as i64, self.count() as i32);
        self.gpu().rows_kernel(
            "mean_columns",
            (self.gpu().blocks(columns.len(), 256), 1),
            256,
            arguments![to, a, from, width, stride, count],
        );
        out
    }
}
