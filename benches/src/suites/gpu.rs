//! Shared parts of the GPU suites: the device with its ceiling, and node orders.

use std::time::Instant;

use girih_compute::prelude::*;
use girih_compute::{Dtype, Epilogue, Shape, SparseOperand, Transpose};
use girih_graph_format::{Csr, Norm, Permutation};
use girih_kernels::{Cuda, CudaMatrix, CudaSparse, Device};
use girih_reorder::OrderKind;

use super::setup::random_matrix;
use crate::{Accelerator, Error, Report};

/// Default orders of suites: the one that pays off.
pub(super) const ORDERS: [OrderKind; 1] = [OrderKind::Community];

/// Opens the first device, measures its memory bandwidth, and records both.
pub(super) fn open_device(report: &mut Report) -> Result<Cuda, Error> {
    let cuda = Cuda::new(Device::open(0)?);
    report.device = Some(Accelerator { name: cuda.device().name(), copy_gb_s: cuda.copy_gb_s()? });
    Ok(cuda)
}

/// Plain adjacency on the device, whose product sums neighbors.
pub(super) fn upload(cuda: &Cuda, graph: &Csr) -> Result<CudaSparse, Error> {
    let scales = graph.scales(Norm::None);
    // Only the product itself is measured, not that with the transpose.
    Ok(cuda.upload_sparse(&SparseOperand { csr: graph, scales, symmetric: false, names: None })?)
}

/// Product with the plain adjacency, and its operands.
pub(super) struct Product<'a> {
    cuda: &'a Cuda,
    pub(super) sparse: CudaSparse,
    x: CudaMatrix,
    out: CudaMatrix,
}

impl<'a> Product<'a> {
    pub(super) fn new(cuda: &'a Cuda, graph: &Csr, width: usize, dtype: Dtype) -> Result<Self, Error> {
        let x = cuda.upload(&random_matrix(graph.n_cols(), width)?, dtype)?;
        let out = cuda.zeros(Shape::new(graph.n_rows(), width), dtype)?;
        Ok(Self { cuda, sparse: upload(cuda, graph)?, x, out })
    }

    /// Seconds of one product by the device's clock.
    pub(super) fn seconds(&mut self) -> Result<f64, Error> {
        let a = (&self.sparse, Transpose::No);
        self.cuda.elapsed(|| Ok(self.cuda.spmm(a, None, &self.x, Epilogue::default(), &mut self.out)?))
    }
}

/// Node order that was computed.
pub(super) struct Order {
    pub(super) kind: OrderKind,
    /// Seconds of its computation, on the CPU.
    pub(super) seconds: f64,
    /// `None` for the existing order.
    pub(super) permutation: Option<Permutation>,
}

impl Order {
    /// Computes the order of a graph. Ids of generated graphs are shuffled, so their original order is of no benefit.
    pub(super) fn find(kind: OrderKind, graph: &Csr) -> Result<Self, Error> {
        Self::inside(kind, 1, graph)
    }

    /// As [`find`](Self::find), inside `n_blocks` equal ranges of ids.
    pub(super) fn inside(kind: OrderKind, n_blocks: usize, graph: &Csr) -> Result<Self, Error> {
        if kind == OrderKind::None {
            return Ok(Self { kind, seconds: 0.0, permutation: None });
        }
        let start = Instant::now();
        let permutation = Some(kind.order(n_blocks, 1).order(graph)?);
        let seconds = start.elapsed().as_secs_f64();
        eprintln!("order {kind} in {seconds:.1} s");
        Ok(Self { kind, seconds, permutation })
    }
}
