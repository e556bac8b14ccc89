//! `--device cuda`: runs on a GPU. Without the feature `cuda` this says so in one line.
use anyhow::Result;
use dibo::problem::Bilevel;
use dibo::problem::learning::Labels;
use std::sync::Arc;

/// Where a run computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Device {
    /// The processor's cores
    #[default]
    Cpu,
    /// An NVIDIA GPU
    Cuda,
}

/// How the GPU computes matrix products.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// 32-bit activations
    #[default]
    Tf32,
    /// 16-bit activations; the state keeps 32
    Bf16,
}

/// A problem that the host and a device share, as each has it, and the memory that it takes there.
pub(crate) type Placed = (Arc<Labels<f32>>, Arc<dyn Bilevel<f32>>, String);

#[cfg(feature = "cuda")]
pub use with::Accelerator;
#[cfg(not(feature = "cuda"))]
pub use without::Accelerator;

#[cfg(not(feature = "cuda"))]
mod without {
    use dibo::algorithm::AnyAlgorithm;
    use dibo::mixing::Sequence;
    use dibo::network::Network;
    use dibo::problem::Bilevel;
    use dibo::problem::learning::{Labels, Learning};
    use dibo::rows::{Real, Threads};

    /// No GPU engine is built in, so none can be made.
    pub enum Accelerator {}

    impl Accelerator {
        /// Says how to get one.
        pub fn new(_precision: super::Precision) -> super::Result<Self> {
            anyhow::bail!(
                "this dibo has no GPU engine: build it with `cargo build --release --features cuda`, or \
                leave \
                --device away"
            )
        }

        /// Which device it is and how it computes.
        pub fn name(&self) -> String {
            match *self {}
        }

        pub(crate) fn problem(
            &self,
            _host: Learning<f32>,
            _algorithm: &dyn AnyAlgorithm,
            _blocks: usize,
        ) -> super::Result<(Box<dyn Bilevel<f32>>, String)> {
            match *self {}
        }

        pub(crate) fn labels(
            &self,
            _host: Labels<f32>,
            _algorithm: &dyn AnyAlgorithm,
        ) -> super::Result<super::Placed> {
            match *self {}
        }

        pub(crate) fn network<T: Real>(
            &self,
            _graphs: Sequence,
            _threads: Threads,
        ) -> super::Result<Box<dyn Network<T>>> {
            match *self {}
        }
    }
}

#[cfg(feature = "cuda")]
mod with {
    use super::{Placed, Precision, Result};
    use anyhow::{anyhow, ensure};
    use dibo::algorithm::{Algorithm, AnyAlgorithm};
    use dibo::mixing::Sequence;
    use dibo::network::Network;
    use dibo::problem::Bilevel;
    use dibo::problem::learning::{Labels, Learning};
    use dibo::rows::{Real, Threads};
    use dibo_cuda::{DeviceLabels, DeviceLearning, DeviceNetwork, DeviceTexts, Gpu};
    use std::any::Any;
    use std::sync::Arc;

    /// A GPU ready to work.
    pub struct Accelerator {
        gpu: Arc<Gpu>,
        precision: Precision,
    }

    impl Accelerator {
        /// The first GPU.
        pub fn new(precision: Precision) -> Result<Self> {
            let gpu = Gpu::new(0).map_err(|e| anyhow!("{e}; leave --device away to run on the processor"))?;
            Ok(Accelerator { gpu, precision })
        }

        /// Which device it is and how it computes.
        pub fn name(&self) -> String {
            format!("{} {:?}", self.gpu.name(), self.precision)
        }

        /// Puts a problem on the GPU, after a look at whether it fits; says how much memory is needed.
        pub(crate) fn problem(
            &self,
            host: Learning<f32>,
            algorithm: &dyn AnyAlgorithm,
            blocks: usize,
        ) -> Result<(Box<dyn Bilevel<f32>>, String)> {
            let need = dibo_cuda::need(&host, self.precision(), self.vectors(algorithm, blocks))
                .map_err(anyhow::Error::msg)?;
            self.fits(&need)?;
            let problem =
                DeviceLearning::new(&self.gpu, host, self.precision()).map_err(anyhow::Error::msg)?;
            Ok((Box::new(problem), need.to_string()))
        }

        /// Puts a model of texts with wrong labels on the GPU, which then tells what models say of rows, too.
        pub(crate) fn labels(&self, host: Labels<f32>, algorithm: &dyn AnyAlgorithm) -> Result<Placed> {
            let need = dibo_cuda::labels_need(&host, self.precision(), self.vectors(algorithm, 1))
                .map_err(anyhow::Error::msg)?;
            self.fits(&need)?;
            let texts = DeviceTexts::new(&self.gpu, &host, self.precision()).map_err(anyhow::Error::msg)?;
            let texts = Arc::new(texts);
            let host = Arc::new(host.told_by(texts.clone()));
            Ok((host.clone(), Arc::new(DeviceLabels::new(host, texts)), need.to_string()))
        }

        fn precision(&self) -> dibo_cuda::Precision {
            match self.precision {
                Precision::Tf32 => dibo_cuda::Precision::Tf32,
                Precision::Bf16 => dibo_cuda::Precision::Bf16,
            }
        }

        /// Vectors of the model's width that an algorithm keeps for each agent.
        fn vectors(&self, algorithm: &dyn AnyAlgorithm, blocks: usize) -> usize {
            let algorithm: &dyn Algorithm<f32> = algorithm;
            let vectors = algorithm.vectors(blocks);
            // Two more for what has two levels and no penalty: SOBA's differences of gradients.
            let away = if vectors.lower > 0 && algorithm.penalty_steps(0).is_none() { 2 } else { 0 };
            vectors.lower + vectors.single + away + algorithm.more_on_device()
        }

        fn fits(&self, need: &dibo_cuda::Need) -> Result<()> {
            self.gpu.health().map_err(anyhow::Error::msg)?;
            let (free, _) = self.gpu.memory();
            let gib = |bytes: usize| bytes as f64 / (1u64 << 30) as f64;
            ensure!(
                need.total() <= free,
                "{:.1} GiB of GPU memory are needed and {:.1} are free: {need}",
                gib(need.total()),
                gib(free)
            );
            Ok(())
        }

        /// A network whose rows lie on the GPU.
        pub(crate) fn network<T: Real>(
            &self,
            graphs: Sequence,
            threads: Threads,
        ) -> Result<Box<dyn Network<T>>> {
            let network: Box<dyn Network<f32>> = Box::new(DeviceNetwork::new(&self.gpu, graphs, threads));
            let any: Box<dyn Any> = Box::new(network);
            let same = any.downcast::<Box<dyn Network<T>>>();
            same.map(|network| *network).map_err(|_| anyhow!("only 32-bit numbers run on the GPU"))
        }
    }
}
