//! Native half of the Python package `girih`: graphs, samplers, features and training for NumPy arrays.
//!
//! - [`graph`]: `Graph`, from arrays in memory or from files; [`dataset`]: `load` and `Dataset`.
//! - [`sampler`]: `Sampler` and the other samplers, over a [`core`]; [`batch`]: what they return; [`loader`]: batches made
//!   ahead; [`spares`]: memory of batches that is used again.
//! - [`typed`]: graphs with types, and their batches; [`timed`]: graphs whose edges have times.
//! - [`features`]: `FeatureStore`, dense or compressed.
//! - [`train`]: whole trainings; [`checkpoint`]: what they leave, and its predictions; [`device`]: where both compute.
//! - `cuda`: batches and features on a GPU, beside the work of `PyTorch`.
//! - [`nn`]: operators of `girih.nn`, layers for PyTorch.
//! - [`arrays`], [`options`]: conversion of arguments and of results; [`errors`]: which error is which exception; [`threads`]: work
//!   without the GIL, Ctrl-C and fork.
//!
//! `python/girih` holds the public half, which names things and adapts them to PyTorch, PyG and DGL.
//!
//! Not here: anything that the crates below do. A function of this crate converts, calls, and converts back.

// Arguments from Python are owned by the call, and getters take what they return.
#![allow(clippy::needless_pass_by_value)]

mod arrays;
mod batch;
mod checkpoint;
mod core;
#[cfg(feature = "cuda")]
mod cuda;
mod dataset;
mod device;
mod errors;
mod features;
mod graph;
mod loader;
mod nn;
mod options;
mod sampler;
mod spares;
mod threads;
mod timed;
mod train;
mod typed;
mod walks;

use pyo3::prelude::*;

/// Module `girih._girih`.
#[pymodule(gil_used = false)]
mod _girih {
    #[pymodule_export]
    use super::batch::{Batch, Block};
    #[pymodule_export]
    use super::checkpoint::Checkpoint;
    #[cfg(feature = "cuda")]
    #[pymodule_export]
    use super::cuda::{
        array::DeviceArray,
        batch::{CudaBatch, CudaBlock},
        features::CudaFeatures,
        graph::CudaGraph,
        guest::{cuda_empty_cache, cuda_memory, cuda_set_memory_limit},
        loader::{CudaEpoch, CudaLoader},
        requests::CudaRequests,
    };
    #[pymodule_export]
    use super::dataset::{Dataset, load};
    #[pymodule_export]
    use super::features::FeatureStore;
    #[pymodule_export]
    use super::graph::{Graph, spy_png};
    #[pymodule_export]
    use super::loader::{BatchLoader, Epoch};
    #[pymodule_export]
    use super::nn::adjacency::Adjacency;
    #[cfg(feature = "cuda")]
    #[pymodule_export]
    use super::nn::cuda::{cuda_nn_attention, cuda_nn_attention_backward, cuda_nn_sddmm, cuda_nn_spmm};
    #[pymodule_export]
    use super::nn::network::{ForwardPass, nn_backward, nn_forward};
    #[pymodule_export]
    use super::nn::operators::{nn_attention, nn_attention_backward, nn_sddmm, nn_spmm};
    #[pymodule_export]
    use super::sampler::Sampler;
    #[pymodule_export]
    use super::threads::{num_threads, set_num_threads};
    #[pymodule_export]
    use super::timed::TimedGraph;
    #[pymodule_export]
    use super::train::{default_config, train};
    #[pymodule_export]
    use super::typed::{TypedBatch, TypedBlock, TypedGraph, TypedSampler};
    #[pymodule_export]
    use super::walks::random_walks;

    use pyo3::prelude::*;
    use pyo3::types::PyModule;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
