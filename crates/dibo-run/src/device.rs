//! `--device cuda`: runs on a GPU. Without the feature `cuda` this says so in one line.
use anyhow::Result;

/// Where a run computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Device {
    /// The processor's cores
    #[default]
    Cpu,
    /// An NVIDIA GPU
    Cuda,
}

/// How the GPU computes matrix products.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Precision {
    /// 32-bit activations
    #[default]
    Tf32,
    /// 16-bit activations; the state keeps 32
    Bf16,
}

#[cfg(feature = "cuda")]
pub use with::Engine;
#[cfg(not(feature = "cuda"))]
pub use without::Engine;

#[cfg(not(feature = "cuda"))]
mod without {
    /// No GPU engine is built in, so none can be made.
    pub enum Engine {}

    impl Engine {
        /// Says how to get one.
        pub fn new(_precision: super::Precision) -> super::Result<Self> {
            anyhow::bail!(
                "this dibo has no GPU engine: build it with `cargo build --release --features cuda`, or \
                leave --device away"
            )
        }

        /// Which device it is and how it computes.
        pub fn name(&self) -> String {
            match *self {}
        }
    }
}

#[cfg(feature = "cuda")]
mod with {
    use super::{Precision, Result};
    use anyhow::{anyhow, ensure};
    use dibo::mixing::Sequence;
    use dibo::problem::learning::Learning;
    use dibo::rows::Threads;
    use dibo_cuda::{DeviceLearning, DeviceNetwork, Gpu};
    use std::sync::Arc;

    /// A GPU ready to work.
    pub struct Engine {
        gpu: Arc<Gpu>,
        precision: Precision,
    }

    /// Algorithms that run on the GPU, with the stacks that their state holds; a variable of the model's
    /// width counts 1.
    const STACKS: [(&str, usize); 8] = [
        ("fab", 6),
        ("static-fab", 6),
        ("push-sum-fab", 8),
        ("push-pull", 3),
        ("subgradient-push", 3),
        ("push-sgd", 3),
        ("push-diging", 4),
        ("push-asgd", 6),
    ];

    impl Engine {
        /// The first GPU.
        pub fn new(precision: Precision) -> Result<Self> {
            Ok(Engine {
                gpu: Gpu::new(0).map_err(|e| anyhow!("{e}; leave --device away to run on the processor"))?,
                precision,
            })
        }

        /// Which device it is and how it computes.
        pub fn name(&self) -> String {
            format!("{} {:?}", self.gpu.name(), self.precision)
        }

        /// Puts a problem on the GPU, after a look at whether it fits; `say` hears how much memory is needed.
        pub fn problem(
            &self,
            host: Learning<f32>,
            algorithm: &str,
            blocks: usize,
            say: impl FnOnce(String),
        ) -> Result<DeviceLearning> {
            let precision = match self.precision {
                Precision::Tf32 => dibo_cuda::Precision::Tf32,
                Precision::Bf16 => dibo_cuda::Precision::Bf16,
            };
            let vectors = match STACKS.iter().find(|s| s.0 == algorithm) {
                Some((_, vectors)) => *vectors,
                // One gradient for each block of the data.
                None if algorithm == "push-saga" => 5 + blocks,
                None => {
                    let known = STACKS.map(|s| s.0).join(", ");
                    anyhow::bail!("{algorithm} does not run on the GPU; those that do are {known}, push-saga")
                }
            };
            let need = dibo_cuda::need(&host, precision, vectors).map_err(anyhow::Error::msg)?;
            let (free, _) = self.gpu.memory();
            say(need.to_string());
            let gib = |bytes: usize| bytes as f64 / (1u64 << 30) as f64;
            ensure!(
                need.total() <= free,
                "{:.1} GiB of GPU memory are needed and {:.1} are free: {need}",
                gib(need.total()),
                gib(free)
            );
            DeviceLearning::new(&self.gpu, host, precision).map_err(anyhow::Error::msg)
        }

        /// A network whose rows lie on the GPU.
        pub fn network(&self, graphs: Sequence, threads: Threads) -> DeviceNetwork {
            DeviceNetwork::new(&self.gpu, graphs, threads)
        }

        /// Runs a job; a failure deep inside it becomes an error.
        pub fn guard<R>(&self, job: impl FnOnce() -> Result<R>) -> Result<R> {
            let hook = std::panic::take_hook();
            std::panic::set_hook(Box::new(|_| {}));
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
            std::panic::set_hook(hook);
            match result {
                Ok(result) => result,
                Err(panic) => match dibo_cuda::kernel_failure(&*panic) {
                    Some(message) => Err(anyhow!("{message}")),
                    None => std::panic::resume_unwind(panic),
                },
            }
        }
    }
}
