//! [`BlockOperands`]: a block of a batch on a GPU, and the operands that were made of it.

use std::sync::{Arc, OnceLock};

use girih_compute::ComputeError;
use girih_kernels::{Cuda, CudaSparse, SampledBatch, Scaling};

use super::adjacency::sorted_rows;
use super::kind::Kind;
use super::operand::{Operands as OnHost, Whole};
use super::uploaded::{Uploaded, refused};
use crate::cuda::batch::CudaBlock;
use crate::cuda::graph::Held;
use crate::cuda::guest::{At, OnGpu};

/// Block of a batch on a GPU, and the operands that were made of it.
pub struct BlockOperands {
    batch: OnGpu<Arc<SampledBatch>>,
    graph: Arc<Held>,
    hop: usize,
    /// Whether an edge may be drawn repeatedly.
    has_repeats: bool,
    made: Uploaded,
    /// Edges on the host, for operands that the GPU does not make.
    on_host: OnceLock<Arc<OnHost>>,
}

impl BlockOperands {
    pub fn of(block: &CudaBlock) -> Self {
        let batch = block.batch.get();
        Self {
            batch: batch.batch.clone(),
            graph: Arc::clone(&batch.graph),
            hop: block.hop,
            has_repeats: batch.form.has_repeats,
            made: Uploaded::default(),
            on_host: OnceLock::new(),
        }
    }

    /// Numbers of sources, of destinations and of edges.
    pub fn sizes(&self) -> (usize, usize, usize) {
        self.batch.block_sizes(self.hop)
    }

    /// Scaling and loops by which the GPU makes a kind; `None` if the host makes it.
    fn on_device(&self, kind: Kind) -> Option<(Scaling, bool)> {
        let of_kind = match kind {
            Kind::Sum | Kind::Weights => (Scaling::Ones, false),
            Kind::Mean => (Scaling::Mean, false),
            Kind::Pattern { loops } => (Scaling::Ones, loops),
            Kind::Gcn { loops, estimated: false, .. } => (Scaling::Sampled, loops),
            Kind::Gcn { loops, .. } if self.graph.csr.values().is_none() => (Scaling::Estimated, loops),
            Kind::Gcn { .. } => return None,
        };
        // A loop that the graph stores may be drawn, and counts as the node's own.
        let is_merged = self.has_repeats || of_kind.1 && self.graph.has_loops();
        (!is_merged).then_some(of_kind)
    }

    /// Operand of a kind for a device.
    pub fn operand(&self, cuda: &Cuda, at: At, kind: Kind) -> Result<Arc<CudaSparse>, ComputeError> {
        if self.graph.at.0 != at.0 {
            return Err(refused(format!("the block is on cuda:{}, and x on cuda:{}", self.graph.at.0, at.0)));
        }
        self.made.get((kind, at), || match self.on_device(kind) {
            Some((scaling, loops)) => {
                if at != self.graph.at {
                    // SAFETY: both streams are of this process and live as long; PyTorch has one context a GPU.
                    unsafe { self.graph.cuda.let_wait(at.1) }?;
                }
                self.batch.operand(cuda, self.hop, scaling, loops)
            }
            None => self.on_host()?.upload(cuda, kind).map_err(refused),
        })
    }

    fn on_host(&self) -> Result<&Arc<OnHost>, ComputeError> {
        if let Some(operands) = self.on_host.get() {
            return Ok(operands);
        }
        let batch = self.batch.to_host(&self.graph.cuda)?;
        let block = &batch.blocks[batch.blocks.len() - 1 - self.hop];
        let operands = sorted_rows(block).map_err(|error| refused(error.to_string()))?;
        let graph = &self.graph.csr;
        let whole = graph.values().is_none().then(|| Whole { graph: graph.clone(), nodes: block.nodes.clone() });
        Ok(self.on_host.get_or_init(|| Arc::new(operands.of_block(whole))))
    }

    /// As [`OnHost::edges`], of the pattern that the GPU makes.
    pub fn edges(&self, loops: bool) -> Result<Vec<i64>, String> {
        let text = |error: ComputeError| error.to_string();
        if self.on_device(Kind::Pattern { loops }).is_none() {
            return girih_kernels::keeping_context(|| self.on_host().map_err(text)?.edges(loops));
        }
        let (_, n_rows, n_edges) = self.sizes();
        if !loops {
            return Ok((0..n_edges as i64).collect());
        }
        let batch = girih_kernels::keeping_context(|| self.batch.to_host(&self.graph.cuda)).map_err(text)?;
        let block = &batch.blocks[batch.blocks.len() - 1 - self.hop];
        let of_row = |row: usize| {
            let edges = block.indptr[row].cast_signed()..block.indptr[row + 1].cast_signed();
            edges.chain(std::iter::once((n_edges + row) as i64))
        };
        Ok((0..n_rows).flat_map(of_row).collect())
    }
}
