//! The suites of `cargo xtask bench SUITE`; a new one is a module here and a line in [`Suite::run`].

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

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Suite {
    /// Sparse times dense, the aggregation of neighbours, over widths and storage types.
    Spmm,
    /// Dense products of the shapes of a layer: forward, backward to the input, backward to the weights.
    Gemm,
    /// Whole training epochs of every model, with phases and peak memory.
    Fullbatch,
    /// Whole training epochs of attention networks.
    Attention,
    /// Epoch, batch and evaluation of a recommender.
    Lightgcn,
    /// Orders of nodes: the time that they take, their quality, and the sparse product before and after.
    Reorder,
    /// The products of the blocks of partitions, one by one, by order of nodes.
    Blocks,
    /// Mini-batches of sampled neighbours, by how they are relabelled.
    Sampling,
    /// Training steps on sampled neighbours.
    Minibatch,
    /// The accuracy that mini-batches reach beside that of the full graph.
    Batches,
    /// The accuracy that compressed features leave, and the rates and errors of codecs.
    Codecs,
    /// What a cache of the hottest nodes serves of what batches read, by what tells which nodes are hot.
    Tiers,
    /// Sparse times dense on a CUDA device, beside cuSPARSE.
    GpuSpmm,
    /// Whole training epochs of a GCN on a CUDA device, beside PyTorch.
    GpuFullbatch,
    /// Epochs and products on a CUDA device, by order of nodes and by which blocks tensor cores multiply.
    GpuAblation,
    /// One product on a CUDA device for each order of nodes, with what NVIDIA's profiler counts in it.
    GpuProfile,
    /// The products of the blocks of partitions, one by one on a CUDA device, by order of nodes.
    GpuBlocks,
    /// Whole training epochs of a GCN on several CUDA devices, beside one.
    GpuRanks,
    /// Mini-batches of sampled neighbours on a CUDA device, beside the processor's sampler.
    GpuSampling,
    /// Sampling a mini-batch and bringing its rows to a CUDA device, step by step, as loaders have done it and as girih
    /// does.
    GpuSteps,
    /// Epochs on sampled neighbours on a CUDA device, beside `PyG`'s loader.
    GpuMinibatch,
    /// `gpu-steps` and `gpu-minibatch`, one after the other: what each part of sampled training brings, in one record.
    GpuSampled,
    /// Epochs on sampled neighbours of a large graph on CUDA devices, by where its features lie.
    GpuLarge,
    /// Loss curves of a CUDA device beside the processor's, and the accuracy of bf16 beside that of f32.
    GpuAccuracy,
    /// Epochs on 1 to 1024 CUDA devices, planned from what was recorded on few; nothing runs.
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
    /// When data cannot be had, an operation fails or a peer ends early; on several graphs for a suite that takes one.
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

/// What the caller chose.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// SPEC of the graph, or of several; none for the one that fits `small`.
    pub graphs: Vec<String>,
    /// A quick run on small operands.
    pub small: bool,
    /// How often each case runs.
    pub protocol: Protocol,
    /// Orders of nodes, for suites that run in several; none for those that the suite would take.
    pub orders: Vec<OrderKind>,
    /// Python interpreter with the other library, to run it beside girih.
    pub peer: Option<PathBuf>,
    /// Width of hidden layers, for suites where runs on different graphs have had different ones.
    pub hidden: Option<usize>,
    /// Layers of the network, for the suite that trains deeper ones.
    pub layers: Option<usize>,
    /// Which blocks of adjacencies a device multiplies with tensor cores, for suites that compare that; none for those
    /// that the suite would take.
    pub tilings: Vec<Tiling>,
    /// Trainings with seeds of their own, for suites that ask how well a model learns.
    pub runs: u64,
    /// NVIDIA's profiler of kernels, for the suite that asks it.
    pub ncu: Option<PathBuf>,
    /// Folder of documents whose made parts are made anew, for the suite that has some.
    pub docs: Option<PathBuf>,
    /// Folder for timelines of devices, for the suite that records them.
    pub timelines: Option<PathBuf>,
    /// What carries rows between devices, for the suite that compares that; none for what it would take.
    pub transports: Vec<CardTransport>,
    /// Names of ways to train, for suites that compare many; none for all.
    pub ways: Vec<String>,
    /// What multiplies these blocks, for suites that compare that; none for what is fastest on the device.
    pub kernels: Vec<BlockKernel>,
}

impl Setup {
    /// SPEC of the graph.
    #[must_use]
    pub fn graph(&self) -> &str {
        self.graph_or(graphs::DEFAULT)
    }

    /// SPEC of the graph, for a suite with a `default` of its own.
    fn graph_or<'a>(&'a self, default: &'a str) -> &'a str {
        let default = if self.small { graphs::SMALL } else { default };
        self.graphs.first().map_or(default, String::as_str)
    }

    /// Orders of nodes, for a suite with a `default` of its own.
    fn orders_or<'a>(&'a self, default: &'a [OrderKind]) -> &'a [OrderKind] {
        if self.orders.is_empty() { default } else { &self.orders }
    }

    /// What carries rows between devices, for a suite with a `default` of its own.
    fn transports_or<'a>(&'a self, default: &'a [CardTransport]) -> &'a [CardTransport] {
        if self.transports.is_empty() { default } else { &self.transports }
    }

    /// Those of all ways to train that were asked for.
    ///
    /// # Errors
    /// When one that was asked for is none of them.
    fn ways_of<W>(&self, all: Vec<W>, name: impl Fn(&W) -> &str) -> Result<Vec<W>, Error> {
        if let Some(unknown) = self.ways.iter().find(|asked| !all.iter().any(|way| name(way) == *asked)) {
            let names: Vec<_> = all.iter().map(|way| format!("\n  {}", name(way))).collect();
            return Err(format!("no way to train is called {unknown:?}; these are:{}", names.concat()).into());
        }
        let is_asked_for = |way: &W| self.ways.is_empty() || self.ways.iter().any(|asked| asked == name(way));
        Ok(all.into_iter().filter(is_asked_for).collect())
    }

    /// Blocks for tensor cores, for a suite with a `default` of its own.
    fn tilings_or<'a>(&'a self, default: &'a [Tiling]) -> &'a [Tiling] {
        if self.tilings.is_empty() { default } else { &self.tilings }
    }
}

/// The storage types that suites compare.
const DTYPES: [Dtype; 2] = [Dtype::F32, Dtype::Bf16];

/// A matrix of draws in -1..1: speeds do not depend on them, but zeros and denormals would be no fair operand.
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
