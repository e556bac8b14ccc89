//! One GPU: its stream, memory, kernels and matrix products.
use crate::products::Products;
use cudarc::driver::{CudaContext, CudaFunction, CudaModule, CudaStream, result, sys};
use cudarc::nvrtc::{CompileOptions, compile_ptx_with_opts};
use std::collections::HashMap;
use std::ffi::c_void;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};

/// A GPU and what is needed to work on it.
pub struct Gpu {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    name: String,
    arch: &'static str,
    processors: u32,
    rows: Arc<CudaModule>,
    mixers: Mutex<HashMap<usize, CudaFunction>>,
    functions: Mutex<HashMap<&'static str, CudaFunction>>,
    products: Mutex<Products>,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    now: usize,
    most: usize,
}

impl Debug for Gpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

/// What a failure deep inside an iteration is thrown with: the seams of the library carry no errors, so it
/// unwinds to whoever started the run (see [`kernel_failure`]).
#[derive(Debug)]
pub struct Failure(pub String);

/// The message, if a caught panic is a failure of the device.
pub fn kernel_failure(panic: &(dyn std::any::Any + Send)) -> Option<&str> {
    panic.downcast_ref::<Failure>().map(|f| f.0.as_str())
}

/// Unwinds with what went wrong on the device.
pub(crate) fn fail(what: &str, error: impl Debug) -> ! {
    std::panic::panic_any(Failure(format!("the GPU failed at {what}: {error:?}")))
}

pub(crate) trait OrFail<T> {
    fn or_fail(self, what: &str) -> T;
}

impl<T, E: Debug> OrFail<T> for Result<T, E> {
    fn or_fail(self, what: &str) -> T {
        self.unwrap_or_else(|e| fail(what, e))
    }
}

const ROWS: &str = concat!(include_str!("kernels/common.cu"), include_str!("kernels/rows.cu"));
const MIX: &str = concat!(include_str!("kernels/common.cu"), include_str!("kernels/mix.cu"));

/// Most agents whose columns one thread can hold.
pub(crate) const REGISTERED: usize = 32;

fn arch(major: i32, minor: i32) -> &'static str {
    // NVRTC takes a virtual architecture; the driver makes machine code of it, also for newer cards.
    match (major, minor) {
        (7, _) => "compute_75",
        (8, 0) => "compute_80",
        (8, 6) => "compute_86",
        (8, 9) => "compute_89",
        (8, _) => "compute_80",
        (9, _) => "compute_90",
        (10.., _) => "compute_100",
        _ => "compute_75",
    }
}

fn mix_options(agents: usize) -> Vec<String> {
    // As many columns a thread as registers allow.
    let columns = if agents <= 10 {
        4
    } else if agents <= 20 {
        2
    } else {
        1
    };
    vec![format!("-DN={agents}"), format!("-DW={columns}")]
}

fn compile(source: &str, arch: &'static str, mut options: Vec<String>) -> Result<cudarc::nvrtc::Ptx, String> {
    options.push("--std=c++17".into());
    let options = CompileOptions { arch: Some(arch), options, ..CompileOptions::default() };
    compile_ptx_with_opts(source, options).map_err(|e| match e {
        cudarc::nvrtc::CompileError::CompileError { log, .. } => {
            format!("a kernel does not compile: {}", log.to_string_lossy())
        }
        e => format!("NVRTC: {e:?}"),
    })
}

/// Compiles every kernel, which needs NVRTC but no GPU.
pub fn check_kernels() -> Result<usize, String> {
    // SAFETY: it only looks for the library.
    if !unsafe { cudarc::nvrtc::sys::is_culib_present() } {
        return Err("libnvrtc is not found".into());
    }
    let mut count = 1;
    compile(ROWS, "compute_90", vec![])?;
    for agents in [1, 3, 10, 16, 32] {
        compile(MIX, "compute_90", mix_options(agents))?;
        count += 1;
    }
    for (source, options) in crate::learning::sources() {
        compile(source, "compute_90", options)?;
        count += 1;
    }
    Ok(count)
}

impl Gpu {
    /// The GPU with this number; says in one line what is missing if there is none.
    pub fn new(ordinal: usize) -> Result<Arc<Gpu>, String> {
        // SAFETY: these only look for the libraries.
        let found = unsafe {
            [
                ("libcuda (the NVIDIA driver)", sys::is_culib_present()),
                ("libnvrtc", cudarc::nvrtc::sys::is_culib_present()),
                ("libcublas", cudarc::cublas::sys::is_culib_present()),
                ("libcublasLt", cudarc::cublaslt::sys::is_culib_present()),
            ]
        };
        if let Some((name, _)) = found.iter().find(|f| !f.1) {
            return Err(format!(
                "no GPU can be used: {name} is not found; CUDA 12 or 13's libraries must be on \
                LD_LIBRARY_PATH"
            ));
        }
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
        let arch = arch(major, minor);
        let rows = context
            .load_module(compile(ROWS, arch, vec![])?)
            .map_err(|e| format!("the driver refuses the kernels: {e}"))?;
        let processors = context
            .attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
            .map_err(|e| e.to_string())? as u32;
        let name = context.name().map_err(|e| e.to_string())?;
        let products = Products::new(stream.cu_stream())?;
        Ok(Arc::new(Gpu {
            context,
            stream,
            name,
            arch,
            processors,
            rows,
            mixers: Mutex::default(),
            functions: Mutex::default(),
            products: Mutex::new(products),
            held: Mutex::default(),
        }))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Free and total bytes of its memory.
    pub fn memory(&self) -> (usize, usize) {
        self.bind();
        result::mem_get_info().or_fail("asking for its memory")
    }

    /// Bytes taken now and at most so far, by this program's arrays.
    pub fn held(&self) -> (usize, usize) {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        (held.now, held.most)
    }

    /// Waits until all work is done.
    pub fn synchronize(&self) {
        self.stream.synchronize().or_fail("the work before this");
    }

    /// A thread must do this before it talks to the GPU.
    pub(crate) fn bind(&self) {
        self.context.bind_to_thread().or_fail("binding a thread");
    }

    pub(crate) fn stream(&self) -> sys::CUstream {
        self.stream.cu_stream()
    }

    /// Milliseconds that the device needs for `job`, which must only give it work.
    pub fn time(&self, job: impl FnOnce()) -> f64 {
        let flags = Some(sys::CUevent_flags::CU_EVENT_DEFAULT);
        let from = self.stream.record_event(flags).or_fail("an event");
        job();
        let to = self.stream.record_event(flags).or_fail("an event");
        f64::from(from.elapsed_ms(&to).or_fail("the work that was timed"))
    }

    pub(crate) fn products(&self) -> std::sync::MutexGuard<'_, Products> {
        self.products.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Compiles a module of kernels.
    pub(crate) fn module(&self, source: &str, options: Vec<String>) -> Result<Arc<CudaModule>, String> {
        self.context
            .load_module(compile(source, self.arch, options)?)
            .map_err(|e| format!("the driver refuses the kernels: {e}"))
    }

    /// The mixing kernel for so many agents, compiled at its first use; with the columns a thread takes.
    pub(crate) fn mixer(&self, agents: usize) -> (CudaFunction, usize) {
        let mut mixers = self.mixers.lock().unwrap_or_else(PoisonError::into_inner);
        let function = mixers.entry(agents).or_insert_with(|| {
            let module = self.module(MIX, mix_options(agents)).or_fail("compiling the mixing kernel");
            module.load_function("mix").or_fail("the mixing kernel")
        });
        (
            function.clone(),
            if agents <= 10 {
                4
            } else if agents <= 20 {
                2
            } else {
                1
            },
        )
    }

    /// Starts a kernel of the rows' module.
    pub(crate) fn rows_kernel(
        &self,
        name: &'static str,
        grid: (u32, u32),
        threads: u32,
        arguments: &mut [*mut c_void],
    ) {
        let function = {
            let mut functions = self.functions.lock().unwrap_or_else(PoisonError::into_inner);
            functions.entry(name).or_insert_with(|| self.rows.load_function(name).or_fail(name)).clone()
        };
        self.launch(&function, (grid.0, grid.1, 1), (threads, 1), arguments, name);
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
        // SAFETY: the callers pass what the kernel's text asks for, and memory that lives until the stream
        // has done it: buffers are freed by a call that waits for the device.
        unsafe {
            result::launch_kernel(
                function.cu_function(),
                grid,
                (block.0, block.1, 1),
                0,
                self.stream(),
                arguments,
            )
        }
        .or_fail(name);
    }

    /// Blocks for a pass over so many numbers: enough to fill the card, few enough to loop.
    pub(crate) fn blocks(&self, work: usize, threads: usize) -> u32 {
        (work.div_ceil(threads).max(1)).min(self.processors as usize * 32) as u32
    }
}

/// Pointers to kernel arguments.
#[macro_export]
#[doc(hidden)]
macro_rules! arguments {
    ($($value:expr),* $(,)?) => { &mut [$((&raw const $value).cast_mut().cast::<std::ffi::c_void>()),*] };
}

/// Memory of the GPU, freed with its owner.
pub(crate) struct Memory {
    gpu: Arc<Gpu>,
    pointer: u64,
    bytes: usize,
}

impl Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes on {}", self.bytes, self.gpu.name)
    }
}

impl Memory {
    /// Bytes that are zero.
    pub fn zeros(gpu: &Arc<Gpu>, bytes: usize) -> Memory {
        let memory = Self::unset(gpu, bytes);
        memory.clear();
        memory
    }

    /// Bytes that hold anything.
    pub fn unset(gpu: &Arc<Gpu>, bytes: usize) -> Memory {
        gpu.bind();
        let bytes = bytes.max(16).next_multiple_of(16);
        // SAFETY: a plain allocation.
        let pointer = unsafe { result::malloc_sync(bytes) }.unwrap_or_else(|_| {
            let (free, total) = gpu.memory();
            let gib = |b: usize| b as f64 / (1u64 << 30) as f64;
            let (have, _) = gpu.held();
            std::panic::panic_any(Failure(format!(
                "the GPU's memory is full: {:.2} GiB more are needed beside the {:.2} in use; {:.2} of \
                {:.2} GiB are free",
                gib(bytes),
                gib(have),
                gib(free),
                gib(total)
            )))
        });
        let mut held = gpu.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.now += bytes;
        held.most = held.most.max(held.now);
        drop(held);
        Memory { gpu: gpu.clone(), pointer, bytes }
    }

    /// A copy of host numbers.
    pub fn of<T: Copy>(gpu: &Arc<Gpu>, numbers: &[T]) -> Memory {
        let memory = Self::unset(gpu, size_of_val(numbers));
        memory.write(0, numbers);
        memory
    }

    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    pub fn at(&self) -> u64 {
        self.pointer
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn clear(&self) {
        self.gpu.bind();
        // SAFETY: inside the allocation.
        unsafe { result::memset_d8_async(self.pointer, 0, self.bytes, self.gpu.stream()) }
            .or_fail("clearing memory");
    }

    /// Writes host numbers from this byte on; the host's copy may be changed afterwards.
    pub fn write<T: Copy>(&self, from: usize, numbers: &[T]) {
        assert!(from + size_of_val(numbers) <= self.bytes, "inside the memory");
        if numbers.is_empty() {
            return;
        }
        self.gpu.bind();
        // SAFETY: inside the allocation; from pageable memory, the call returns when the numbers have been
        // taken.
        unsafe { result::memcpy_htod_async(self.pointer + from as u64, numbers, self.gpu.stream()) }
            .or_fail("a copy to the device");
    }

    /// Reads into host numbers from this byte on.
    pub fn read<T: Copy>(&self, from: usize, numbers: &mut [T]) {
        assert!(from + size_of_val(numbers) <= self.bytes, "inside the memory");
        self.gpu.bind();
        // SAFETY: inside the allocation, and waited for.
        unsafe { result::memcpy_dtoh_async(numbers, self.pointer + from as u64, self.gpu.stream()) }
            .or_fail("a copy from the device");
        self.gpu.synchronize();
    }

    pub fn copy_from(&self, other: &Memory) {
        assert_eq!(self.bytes, other.bytes, "memories of one size");
        self.gpu.bind();
        // SAFETY: both allocations have this size.
        unsafe { result::memcpy_dtod_async(self.pointer, other.pointer, self.bytes, self.gpu.stream()) }
            .or_fail("a copy on the device");
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // A failing device fails here too; the first message is the one that counts.
        if self.gpu.context.bind_to_thread().is_ok() {
            let _ = self.gpu.stream.synchronize();
            // SAFETY: allocated in `unset` and freed once.
            let _ = unsafe { result::free_sync(self.pointer) };
        }
        self.gpu.held.lock().unwrap_or_else(PoisonError::into_inner).now -= self.bytes;
    }
}
