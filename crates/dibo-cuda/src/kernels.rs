//! The kernels' texts, and how NVRTC compiles them.
use cudarc::nvrtc::{CompileError, CompileOptions, Ptx, compile_ptx_with_opts};

pub(crate) const ROWS: &str = concat!(include_str!("kernels/common.cu"), include_str!("kernels/rows.cu"));
pub(crate) const MIX: &str = concat!(include_str!("kernels/common.cu"), include_str!("kernels/mix.cu"));
pub(crate) const LEARNING: &str =
    concat!(include_str!("kernels/common.cu"), include_str!("kernels/learning.cu"));
pub(crate) const BERT: &str = concat!(include_str!("kernels/common.cu"), include_str!("kernels/bert.cu"));

/// Columns that a thread of the mixing kernel takes for so many agents: as many as registers allow.
pub(crate) fn mix_columns(agents: usize) -> usize {
    match agents {
        0..=10 => 4,
        11..=20 => 2,
        _ => 1,
    }
}

pub(crate) fn mix_options(agents: usize) -> Vec<String> {
    vec![format!("-DN={agents}"), format!("-DW={}", mix_columns(agents))]
}

/// The virtual architecture for a compute capability; the driver makes machine code of it, also for cards
/// that are newer.
pub(crate) fn architecture(major: i32, minor: i32) -> &'static str {
    match (major, minor) {
        (8, 6) => "compute_86",
        (8, 9) => "compute_89",
        (8, _) => "compute_80",
        (9, _) => "compute_90",
        (10.., _) => "compute_100",
        _ => "compute_75",
    }
}

pub(crate) fn compile(
    source: &str,
    architecture: &'static str,
    mut options: Vec<String>,
) -> Result<Ptx, String> {
    options.push("--std=c++17".into());
    let options = CompileOptions { arch: Some(architecture), options, ..CompileOptions::default() };
    compile_ptx_with_opts(source, options).map_err(|e| match e {
        CompileError::CompileError { log, .. } => {
            format!("a kernel does not compile: {}", log.to_string_lossy())
        }
        e => format!("NVRTC: {e:?}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_take_what_their_vectors_hold() {
        // The text knows float4, float2 and float.
        assert_eq!([1, 10, 11, 20, 21, 32].map(mix_columns), [4, 4, 2, 2, 1, 1]);
        assert_eq!(mix_options(16), ["-DN=16", "-DW=2"]);
    }

    #[test]
    fn every_kernel_that_is_asked_for_is_there() {
        let names = [
            (ROWS, &crate::rows::KERNELS[..]),
            (MIX, &["mix"][..]),
            (LEARNING, &crate::mlp::KERNELS[..]),
            (LEARNING, &crate::learning::KERNELS[..]),
            (BERT, &crate::bert::KERNELS[..]),
        ];
        for (source, names) in names {
            for name in names {
                assert!(source.contains(&format!(" {name}(")), "{name}");
            }
        }
    }
}
