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
mod predicted;
mod reorder;
mod sage;
mod sampled;
mod sampling;
mod scaling;
mod several;
mod spmm;
mod tiers;
mod trainings;

use std::path::PathBuf;

use clap::ValueEnum;
use girih_comm::CardTransport;
use girih_compute::Dtype;
use girih_graph_format::Matrix;
use girih_kernels::{BlockKernel, Tiling};
use girih_random::Key;
use girih_reorder::OrderKind;
use rayon::prelude::*;

use crate::graphs;
use crate::timing::Protocol;
use crate::{Error, Report};

/// Suite of measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Suite {
    /// Sparse times dense products, which aggregate neighbours, over widths and storage types.
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
    /// Mini-batches of sampled neighbours, by relabelling.
    Sampling,
    /// Training steps on sampled neighbours.
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
    /// Mini-batches of sampled neighbours on a CUDA device, compared with the CPU's sampler.
    GpuSampling,
    /// Sampling a mini-batch and copying its rows to a CUDA device, step by step, as common loaders and as girih do
    /// it.
    GpuSteps,
    /// Epochs on sampled neighbours on a CUDA device, compared with `PyG`'s loader.
    GpuMinibatch,
    /// `gpu-steps` and `gpu-minibatch`, one after the other: the effect of each part of sampled training, in one
    /// record.
    GpuSampled,
    /// Epochs on sampled neighbours of a large graph on CUDA devices, by placement of the features.
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
            Self::Blocks => blocks::on_processor(setup, report),
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

/// Settings of the caller.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// SPECs of the graphs; if empty, the suite's default, which depends on `small`.
    pub graphs: Vec<String>,
    /// Whether to run quickly, on small operands.
    pub small: bool,
    /// Number of runs of each case.
    pub protocol: Protocol,
    /// Node orders, for suites that compare them; if empty, the suite's default.
    pub orders: Vec<OrderKind>,
    /// Python interpreter with the other library, to compare with.
    pub peer: Option<PathBuf>,
    /// Width of hidden layers, for suites whose published runs differ in width.
    pub hidden: Option<usize>,
    /// Number of layers, for the suite that trains deeper networks.
    pub layers: Option<usize>,
    /// Adjacency blocks that a device multiplies with tensor cores, for suites that compare them; if empty, the
    /// suite's default.
    pub tilings: Vec<Tiling>,
    /// Training runs with different seeds, for suites that measure accuracy.
    pub runs: u64,
    /// NVIDIA's kernel profiler, for the suite that uses it.
    pub ncu: Option<PathBuf>,
    /// Folder of the documents whose generated parts are updated, for the suite that has some.
    pub docs: Option<PathBuf>,
    /// Folder for timelines of devices, for the suite that records them.
    pub timelines: Option<PathBuf>,
    /// Transports between devices, for the suite that compares them; if empty, its default.
    pub transports: Vec<CardTransport>,
    /// Names of training variants, for suites that compare many; if empty, all.
    pub ways: Vec<String>,
    /// Kernels that multiply these blocks, for suites that compare them; if empty, the fastest one of the device.
    pub kernels: Vec<BlockKernel>,
}

impl Setup {
    /// SPEC of the graph.
    #[must_use]
    pub fn graph(&self) -> &str {
        self.graph_or(graphs::DEFAULT)
    }

    /// SPEC of the graph, for a suite with its own `default`.
    fn graph_or<'a>(&'a self, default: &'a str) -> &'a str {
        let default = if self.small { graphs::SMALL } else { default };
        self.graphs.first().map_or(default, String::as_str)
    }

    /// Node orders, for a suite with its own `default`.
    fn orders_or<'a>(&'a self, default: &'a [OrderKind]) -> &'a [OrderKind] {
        if self.orders.is_empty() { default } else { &self.orders }
    }

    /// Transports between devices, for a suite with its own `default`.
    fn transports_or<'a>(&'a self, default: &'a [CardTransport]) -> &'a [CardTransport] {
        if self.transports.is_empty() { default } else { &self.transports }
    }

    /// Requested ones of all training variants.
    ///
    /// # Errors
    /// When a requested variant does not exist.
    fn ways_of<W>(&self, all: Vec<W>, name: impl Fn(&W) -> &str) -> Result<Vec<W>, Error> {
        if let Some(unknown) = self.ways.iter().find(|asked| !all.iter().any(|way| name(way) == *asked)) {
            let names: Vec<_> = all.iter().map(|way| format!("\n  {}", name(way))).collect();
            return Err(format!("no way to train is called {unknown:?}; these are:{}", names.concat()).into());
        }
        let is_asked_for = |way: &W| self.ways.is_empty() || self.ways.iter().any(|asked| asked == name(way));
        Ok(all.into_iter().filter(is_asked_for).collect())
    }

    /// Blocks for tensor cores, for a suite with its own `default`.
    fn tilings_or<'a>(&'a self, default: &'a [Tiling]) -> &'a [Tiling] {
        if self.tilings.is_empty() { default } else { &self.tilings }
    }
}

/// Storage types that suites compare.
const DTYPES: [Dtype; 2] = [Dtype::F32, Dtype::Bf16];

/// Random matrix with values in -1..1. Speeds do not depend on the values, except for zeros and denormals.
fn random_matrix(rows: usize, cols: usize) -> Result<Matrix, Error> {
    let key = Key::new(rows as u64, cols as u32);
    let mut data = vec![0.0; rows * cols];
    data.par_chunks_mut(4096).enumerate().for_each(|(chunk, values)| {
        let mut stream = key.stream(0, (chunk as u64) << 32);
        values.fill_with(|| 2.0 * stream.unit_f32() - 1.0);
    });
    Ok(Matrix::new(rows, cols, data)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_are_chosen_by_name() {
        let asking =
            |ways: &[&str]| Setup { ways: ways.iter().map(|&way| way.to_owned()).collect(), ..Setup::default() };
        let of = |ways: &[&str]| asking(ways).ways_of(vec!["near", "far", "farther"], |way| way);
        assert_eq!(of(&[]).unwrap(), ["near", "far", "farther"]);
        assert_eq!(of(&["far", "near"]).unwrap(), ["near", "far"]);
        let refused = of(&["near", "fa"]).unwrap_err().to_string();
        assert!(refused.contains("\"fa\"") && refused.contains("farther"), "{refused}");
    }
}
