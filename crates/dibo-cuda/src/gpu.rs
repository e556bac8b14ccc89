//! One GPU: its stream, kernels, matrix products and its first failure.
use crate::kernels::{MIX, ROWS, architecture, compile, mix_options};
use crate::products::{Matrix, Products, Shape};
use crate::sticky::Sticky;
use cudarc::driver::{CudaContext, CudaFunction, CudaModule, CudaStream, result, sys};
use std::collections::HashMap;
use std::ffi::c_void;
use std::fmt::{Debug, Display};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes that this program holds on a GPU.
#[derive(Default)]
pub(crate) struct Held {
    pub now: usize,
    pub most: usize,
}

impl Held {
    pub fn take(&mut self, bytes: usize) {
        self.now += bytes;
        self.most = self.most.max(self.now);
    }
}

/// A GPU and what is needed to work on it.
///
/// Its first failure stays: after it everything asked of the GPU is skipped, memory is empty and what is read
/// is zero. [`health`](Self::health) tells the failure.
pub struct Gpu {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    name: String,
    architecture: &'static str,
    processors: u32,
    rows: Arc<CudaModule>,
    mixers: Mutex<HashMap<usize, CudaFunction>>,
    functions: Mutex<HashMap<&'static str, CudaFunction>>,
    products: Mutex<Products>,
    held: Mutex<Held>,
    failure: Sticky,
}

impl Debug for Gpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

/// Says which of CUDA's libraries is missing.
fn look_for_libraries() -> Result<(), String> {
    // SAFETY: these only look for the libraries.
    let found = unsafe {
        [
            ("libcuda (the NVIDIA driver)", sys::is_culib_present()),
            ("libnvrtc", cudarc::nvrtc::sys::is_culib_present()),
            ("libcublas", cudarc::cublas::sys::is_culib_present()),
            ("libcublasLt", cudarc::cublaslt::sys::is_culib_present()),
        ]
    };
    found.iter().find(|f| !f.1).map_or(Ok(()), |(name, _)| {
        Err(format!(
            "no GPU can be used: {name} is not found; CUDA 12 or 13's libraries must be on LD_LIBRARY_PATH"
        ))
    })
}

fn load(context: &Arc<CudaContext>, ptx: cudarc::nvrtc::Ptx) -> Result<Arc<CudaModule>, String> {
    context.load_module(ptx).map_err(|e| format!("the driver refuses the kernels: {e}"))
}

impl Gpu {
    /// The GPU with this number; says in one line what is missing if there is none.
    pub fn new(ordinal: usize) -> Result<Arc<Gpu>, String> {
        look_for_libraries()?;
        let context = CudaContext::new(ordinal).map_err(|e| format!("no GPU can be used: {e}"))?;
        let (major, minor) = context.compute_capability().map_err(|e| e.to_string())?;
        if major < 8 {
            return Err(format!(
                "the GPU has compute capability {major}.{minor}; 8.0 (Ampere) or more is needed"
            ));
        }
        // SAFETY: all work goes through one stream, so there is nothing to track between streams.
        unsafe { context.disable_event_tracking() };
        let stream = context.new_stream().map_err(|e| e.to_string())?;
        let architecture = architecture(major, minor);
        let rows = load(&context, compile(ROWS, architecture, vec![])?)?;
        let processors = context
            .attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
            .map_err(|e| e.to_string())? as u32;
        let name = context.name().map_err(|e| e.to_string())?;
        let products = Products::new(stream.cu_stream())?;
        Ok(Arc::new(Gpu {
            context,
            stream,
            name,
            architecture,
            processors,
            rows,
            mixers: Mutex::default(),
            functions: Mutex::default(),
            products: Mutex::new(products),
            held: Mutex::default(),
            failure: Sticky::default(),
        }))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The first failure of anything that was asked of this GPU. Work that is still under way may yet fail;
    /// [`synchronize`](Self::synchronize) waits for it.
    pub fn health(&self) -> Result<(), String> {
        self.failure.health()
    }

    /// Free and total bytes of its memory; none after a failure.
    pub fn memory(&self) -> (usize, usize) {
        self.attempt("asking for its memory", result::mem_get_info).unwrap_or_default()
    }

    /// Bytes taken now and at most so far, by this program's arrays.
    pub fn held(&self) -> (usize, usize) {
        let held = self.holding();
        (held.now, held.most)
    }

    /// Waits until all work is done.
    pub fn synchronize(&self) {
        self.attempt("the work before this", || self.stream.synchronize());
    }

    /// Milliseconds that the device needs for `job`, which must only give it work; not a number after a
    /// failure.
    pub fn time(&self, job: impl FnOnce()) -> f64 {
        let event = || self.stream.record_event(Some(sys::CUevent_flags::CU_EVENT_DEFAULT));
        let from = self.attempt("an event", event);
        job();
        let to = self.attempt("an event", event);
        let took = from.zip(to).and_then(|(from, to)| {
            self.attempt("the work that was timed", || from.elapsed_ms(&to)).map(f64::from)
        });
        took.unwrap_or(f64::NAN)
    }

    pub(crate) fn holding(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn failed(&self) -> bool {
        self.failure.failed()
    }

    /// Keeps a failure, if it is the first.
    pub(crate) fn fail(&self, failure: impl Into<String>) {
        self.failure.keep(failure.into());
    }

    /// Passes a value on; that there is none is a failure.
    pub(crate) fn require<R>(&self, value: Option<R>, failure: &str) -> Option<R> {
        self.failure.require(value, failure)
    }

    /// Does one thing on the device, from whichever thread, unless something failed before; keeps what it
    /// fails with.
    pub(crate) fn attempt<R, E: Display>(
        &self,
        what: &str,
        step: impl FnOnce() -> Result<R, E>,
    ) -> Option<R> {
        self.failure.attempt("binding a thread", || self.context.bind_to_thread())?;
        self.failure.attempt(what, step)
    }

    /// Its stream as CUDA knows it. Others may work on it, too; they must not destroy it.
    pub fn stream_address(&self) -> u64 {
        self.stream.cu_stream() as u64
    }

    /// The number by which CUDA knows it.
    pub fn ordinal(&self) -> usize {
        self.context.ordinal()
    }

    /// Copies so many bytes from one address in its memory to another, in the order of its stream.
    ///
    /// # Safety
    /// Both addresses are this GPU's memory, of so many bytes, and stay so until the stream has done it.
    pub unsafe fn copy(&self, to: u64, from: u64, bytes: usize) {
        let stream = self.stream.cu_stream();
        // SAFETY: as the caller says.
        self.attempt("a copy on the device", || unsafe {
            result::memcpy_dtod_async(to, from, bytes, stream)
        });
    }

    pub(crate) fn stream(&self) -> &CudaStream {
        &self.stream
    }

    /// Compiles a module of kernels and finds these in it.
    pub(crate) fn kernels<const N: usize>(
        &self,
        source: &str,
        options: Vec<String>,
        names: [&'static str; N],
    ) -> Result<[CudaFunction; N], String> {
        self.health()?;
        let module = load(&self.context, compile(source, self.architecture, options)?)?;
        let found: Result<Vec<_>, String> = names
            .iter()
            .map(|name| module.load_function(name).map_err(|e| format!("kernel {name}: {e}")))
            .collect();
        found?.try_into().map_err(|_| "a kernel is missing".into())
    }

    /// The mixing kernel for so many agents, compiled at its first use.
    pub(crate) fn mixer(&self, agents: usize) -> Option<CudaFunction> {
        let mut mixers = self.mixers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mixer) = mixers.get(&agents) {
            return Some(mixer.clone());
        }
        let kernels = || self.kernels(MIX, mix_options(agents), ["mix"]);
        let [mixer] = self.attempt("making the mixing kernel", kernels)?;
        mixers.insert(agents, mixer.clone());
        Some(mixer)
    }

    /// A kernel of the rows' module.
    fn rows_function(&self, name: &'static str) -> Option<CudaFunction> {
        let mut functions = self.functions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(function) = functions.get(name) {
            return Some(function.clone());
        }
        let function = self.attempt(name, || self.rows.load_function(name))?;
        functions.insert(name, function.clone());
        Some(function)
    }

    /// Starts a kernel of the rows' module.
    pub(crate) fn rows_kernel(
        &self,
        name: &'static str,
        grid: (u32, u32),
        threads: u32,
        arguments: &mut [*mut c_void],
    ) {
        if let Some(function) = self.rows_function(name) {
            self.launch(&function, (grid.0, grid.1, 1), (threads, 1), arguments, name);
        }
    }

    /// Starts a kernel.
    pub(crate) fn launch(
        &self,
        function: &CudaFunction,
        grid: (u32, u32, u32),
        block: (u32, u32),
        arguments: &mut [*mut c_void],
        name: &str,
    ) {
        let (kernel, stream, block) =
            (function.cu_function(), self.stream.cu_stream(), (block.0, block.1, 1));
        // SAFETY: the callers pass what the kernel's text asks for, and memory that lives until the stream
        // has done it: buffers are freed by a call that waits for the device. Memory that could not be had is
        // never passed on: after that failure nothing is started.
        self.attempt(name, || unsafe { result::launch_kernel(kernel, grid, block, 0, stream, arguments) });
    }

    /// `d = a · b + beta · c` for every agent; `c` may be `d`, and is where numbers have 16 bits
    /// (`bert::back` says why).
    pub(crate) fn product(&self, shape: Shape, d: Matrix, a: Matrix, b: Matrix, beta: f32, c: Matrix) {
        self.attempt("a product", || self.products().product(shape, d, a, b, beta, c));
    }

    /// `d = alpha · a · b` for `count` products, whose matrices begin where the tables on the device say.
    pub(crate) fn products_at(
        &self,
        shape: (usize, usize, usize),
        alpha: f32,
        d: Matrix,
        a: Matrix,
        b: Matrix,
        count: usize,
    ) {
        self.attempt("attention's products", || self.products().many(shape, alpha, d, a, b, count));
    }

    /// From here on products of 32-bit numbers use all their bits, or TF32 again.
    pub(crate) fn full_precision(&self, full: bool) {
        self.products().full = full;
    }

    fn products(&self) -> MutexGuard<'_, Products> {
        self.products.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Blocks for a pass over so many numbers: enough to fill the card, few enough to loop.
    pub(crate) fn blocks(&self, work: usize, threads: usize) -> u32 {
        (work.div_ceil(threads).max(1)).min(self.processors as usize * 32) as u32
    }
}

/// Pointers to kernel arguments.
macro_rules! arguments {
    ($($value:expr),* $(,)?) => { &mut [$((&raw const $value).cast_mut().cast::<std::ffi::c_void>()),*] };
}
pub(crate) use arguments;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_that_was_held_is_remembered() {
        let mut held = Held::default();
        held.take(30);
        held.now -= 20;
        held.take(5);
        assert_eq!((held.now, held.most), (15, 30));
    }
}
