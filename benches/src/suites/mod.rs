//! Suites of `cargo xtask bench SUITE`. A new one is a module here and a line in [`Suite::run`].

mod attention;
mod batches;
mod blocks;
mod codecs;
mod epochs;
mod fullbatch;
mod gemm;
mod gpu;
mod gpu_ablation;
mod gpu_accuracy;
mod gpu_fullbatch;
mod gpu_large;
mod gpu_minibatch;
mod gpu_profile;
mod gpu_ranks;
mod gpu_sampling;
mod gpu_spmm;
mod gpu_steps;
mod io;
mod lightgcn;
mod minibatch;
mod needs;
mod predicted;
mod reorder;
mod sage;
mod sampled;
mod sampling;
mod scaling;
mod setup;
mod several;
mod spmm;
mod tiers;
mod trainings;

pub use self::needs::DeviceKind;
pub use self::setup::Setup;

use clap::ValueEnum;

use crate::{Error, Report};

/// Suite of measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Suite {
    /// Sparse times dense products, which aggregate neighbors, over widths and storage types.
    Spmm,
    /// Dense products with the shapes of a layer: forward, backward to the input, backward to the weights.
    Gemm,
    /// Full training epochs of every model, with phases and peak memory.
    Fullbatch,
    /// Full training epochs of attention networks.
    Attention,
    /// Epoch, batch and evaluation of a recommender.
    Lightgcn,
    /// Node orders: their cost, their quality, and the sparse product before and after.
    Reorder,
    /// Products of the blocks of partitions, one by one, by node order.
    Blocks,
    /// Mini-batches of sampled neighbors, by relabelling.
    Sampling,
    /// Training steps on sampled neighbors.
    Minibatch,
    /// Accuracy of training on mini-batches, compared with the full graph.
    Batches,
    /// Accuracy with compressed features, and rates and errors of codecs.
    Codecs,
    /// Share of reads that a cache of the hottest nodes serves, by prediction of hotness.
    Tiers,
    /// Sparse times dense products on a CUDA device, compared with cuSPARSE.
    GpuSpmm,
    /// Full training epochs of a GCN on a CUDA device, compared with PyTorch.
    GpuFullbatch,
    /// Epochs and products on a CUDA device, by node order and by the blocks that tensor cores multiply.
    GpuAblation,
    /// One product on a CUDA device for each node order, with counts of NVIDIA's profiler.
    GpuProfile,
    /// Products of the blocks of partitions, one by one on a CUDA device, by node order.
    GpuBlocks,
    /// Full training epochs of a GCN on several CUDA devices, compared with one.
    GpuRanks,
    /// Mini-batches of sampled neighbors on a CUDA device, compared with the CPU's sampler.
    GpuSampling,
    /// Sampling a mini-batch and copying its rows to a CUDA device, step by step, as common loaders and as girih do
    /// it.
    GpuSteps,
    /// Epochs on sampled neighbors on a CUDA device, compared with `PyG`'s loader.
    GpuMinibatch,
    /// `gpu-steps` and `gpu-minibatch`, one after the other: the effect of each part of sampled training, in one
    /// record.
    GpuSampled,
    /// Epochs on sampled neighbors of a large graph on CUDA devices, by placement of the features.
    GpuLarge,
    /// Loss curves of a CUDA device compared with the CPU's, and accuracy of bf16 compared with f32.
    GpuAccuracy,
    /// Planned epochs on 1 to 1024 CUDA devices, from records of few devices; nothing runs.
    Scaling,
    /// Generating, writing and reading graphs in every format.
    Io,
}

impl Suite {
    /// Name on the command line and in records.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Spmm => "spmm",
            Self::Gemm => "gemm",
            Self::Fullbatch => "fullbatch",
            Self::Attention => "attention",
            Self::Lightgcn => "lightgcn",
            Self::Reorder => "reorder",
            Self::Blocks => "blocks",
            Self::Sampling => "sampling",
            Self::Minibatch => "minibatch",
            Self::Batches => "batches",
            Self::Codecs => "codecs",
            Self::Tiers => "tiers",
            Self::GpuSpmm => "gpu-spmm",
            Self::GpuFullbatch => "gpu-fullbatch",
            Self::GpuAblation => "gpu-ablation",
            Self::GpuProfile => "gpu-profile",
            Self::GpuBlocks => "gpu-blocks",
            Self::GpuRanks => "gpu-ranks",
            Self::GpuSampling => "gpu-sampling",
            Self::GpuSteps => "gpu-steps",
            Self::GpuMinibatch => "gpu-minibatch",
            Self::GpuSampled => "gpu-sampled",
            Self::GpuLarge => "gpu-large",
            Self::GpuAccuracy => "gpu-accuracy",
            Self::Scaling => "scaling",
            Self::Io => "io",
        }
    }

    /// Adds the suite's cases to `report`.
    ///
    /// # Errors
    /// When data are missing, an operation fails or a peer ends early; also on several graphs for a suite that takes
    /// one.
    pub fn run(self, setup: &Setup, report: &mut Report) -> Result<(), Error> {
        if setup.graphs.len() > 1 && !matches!(self, Self::GpuAccuracy | Self::Batches | Self::Codecs | Self::Tiers) {
            return Err(format!("{} runs on one graph, but several are given: run it for each", self.name()).into());
        }
        match self {
            Self::Spmm => spmm::run(setup, report),
            Self::Gemm => gemm::run(setup, report),
            Self::Fullbatch => fullbatch::run(setup, report),
            Self::Attention => attention::run(setup, report),
            Self::Lightgcn => lightgcn::run(setup, report),
            Self::Reorder => reorder::run(setup, report),
            Self::Blocks => blocks::on_cpu(setup, report),
            Self::Sampling => sampling::run(setup, report),
            Self::Minibatch => minibatch::run(setup, report),
            Self::Batches => batches::run(setup, report),
            Self::Codecs => codecs::run(setup, report),
            Self::Tiers => tiers::run(setup, report),
            Self::GpuSpmm => gpu_spmm::run(setup, report),
            Self::GpuFullbatch => gpu_fullbatch::run(setup, report),
            Self::GpuAblation => gpu_ablation::run(setup, report),
            Self::GpuProfile => gpu_profile::run(setup, report),
            Self::GpuBlocks => blocks::on_device(setup, report),
            Self::GpuRanks => gpu_ranks::run(setup, report),
            Self::GpuSampling => gpu_sampling::run(setup, report),
            Self::GpuSteps => gpu_steps::run(setup, report),
            Self::GpuMinibatch => gpu_minibatch::run(setup, report),
            Self::GpuSampled => {
                gpu_steps::run(setup, report)?;
                gpu_minibatch::run(setup, report)
            }
            Self::GpuLarge => gpu_large::run(setup, report),
            Self::GpuAccuracy => gpu_accuracy::run(setup, report),
            Self::Scaling => scaling::run(setup, report),
            Self::Io => io::run(setup, report),
        }
    }
}
