//! Without a GPU: every kernel compiles (where NVRTC is installed), and a missing GPU is one clear line.
use dibo_cuda::{Gpu, check_kernels};

#[test]
fn every_kernel_compiles() {
    match check_kernels() {
        Ok(count) => assert!(count > 8),
        // Nothing to compile with here; a kernel that does not compile says so in other words.
        Err(e) => assert_eq!(e, "libnvrtc is not found"),
    }
}

#[test]
fn no_gpu_is_one_clear_line() {
    if let Err(e) = Gpu::new(0) {
        assert!(e.starts_with("no GPU can be used") && !e.contains('\n'), "{e}");
    }
}
