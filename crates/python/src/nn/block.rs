//! [`BlockOperands`]: a block of a batch on a GPU, and the operands that were made of it.

use std::sync::{Arc, OnceLock};

use girih_compute::ComputeError;
use girih_kernels::{Cuda, CudaSparse, SampledBatch};

use super::adjacency::sorted_rows;
use super::kind::Kind;
use super::operand::{Operands as OnHost, Whole};
use super::uploaded::{Uploaded, refused};
use crate::cuda::batch::CudaBlock;
use crate::cuda::graph::Held;
use crate::cuda::guest::At;
use crate::cuda::prepared::{Prepared, scaling};
use crate::cuda::release::Release;

/// Block of a batch on a GPU, and the operands that were made of it.
pub struct BlockOperands {
    batch: Release<Arc<SampledBatch>>,
    graph: Arc<Held>,
    hop: usize,
    /// Whether an edge may be drawn repeatedly.
    has_repeats: bool,
    /// Operands in the order of the stream of the graph.
    prepared: Release<Arc<Prepared>>,
    /// Operands in the order of other streams, or made by the host.
    made: Uploaded,
    /// Edges on the host, for operands that the GPU does not make.
    on_host: OnceLock<Arc<OnHost>>,
}

impl BlockOperands {
    pub fn of(block: &CudaBlock) -> Self {
        let batch = block.batch.get();
        Self {
            batch: Release::new(Arc::clone(&batch.batch), &batch.graph.cuda),
            graph: Arc::clone(&batch.graph),
            hop: block.hop,
            has_repeats: batch.form.has_repeats,
            prepared: Release::new(Arc::clone(&batch.prepared), &batch.graph.cuda),
            made: Uploaded::default(),
            on_host: OnceLock::new(),
        }
    }

    /// Numbers of sources, of destinations and of edges.
    pub fn sizes(&self) -> (usize, usize, usize) {
        self.batch.block_sizes(self.hop)
    }

    /// Operand of a kind for a device.
    pub fn operand(&self, cuda: &Arc<Cuda>, at: At, kind: Kind) -> Result<Arc<CudaSparse>, ComputeError> {
        if self.graph.at.0 != at.0 {
            return Err(refused(format!("the block is on cuda:{}, and x on cuda:{}", self.graph.at.0, at.0)));
        }
        let on_device = scaling(kind, &self.graph, self.has_repeats);
        let make = |cuda: &Cuda, (scaling, loops)| self.batch.operand(cuda, self.hop, scaling, loops);
        match on_device {
            Some(how) if at == self.graph.at => self.prepared.get((self.hop, kind), || make(&self.graph.cuda, how)),
            Some(how) => self.made.get((kind, at), cuda, || {
                // SAFETY: both streams are of this process and live as long; PyTorch has one context a GPU.
                unsafe { self.graph.cuda.let_wait(at.1) }?;
                make(cuda, how)
            }),
            None => self.made.get((kind, at), cuda, || self.on_host()?.upload(&**cuda, kind).map_err(refused)),
        }
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
        if scaling(Kind::Pattern { loops }, &self.graph, self.has_repeats).is_none() {
            return self.graph.cuda.with_context(|| self.on_host().map_err(text)?.edges(loops));
        }
        let (_, n_rows, n_edges) = self.sizes();
        if !loops {
            return Ok((0..n_edges as i64).collect());
        }
        let batch = self.graph.cuda.with_context(|| self.batch.to_host(&self.graph.cuda)).map_err(text)?;
        let block = &batch.blocks[batch.blocks.len() - 1 - self.hop];
        let of_row = |row: usize| {
            let edges = block.indptr[row].cast_signed()..block.indptr[row + 1].cast_signed();
            edges.chain(std::iter::once((n_edges + row) as i64))
        };
        Ok((0..n_rows).flat_map(of_row).collect())
    }

    /// As [`OnHost::ends`], of the pattern that the GPU makes.
    pub fn ends(&self, loops: bool) -> Result<(Vec<i64>, Vec<i64>), String> {
        let text = |error: ComputeError| error.to_string();
        self.graph.cuda.with_context(|| {
            if scaling(Kind::Pattern { loops }, &self.graph, self.has_repeats).is_none() {
                return self.on_host().map_err(text)?.ends(loops);
            }
            let batch = self.batch.to_host(&self.graph.cuda).map_err(text)?;
            let block = &batch.blocks[batch.blocks.len() - 1 - self.hop];
            let (mut sources, mut destinations) = (Vec::new(), Vec::new());
            for row in 0..block.n_destinations {
                let edges = block.indptr[row] as usize..block.indptr[row + 1] as usize;
                sources.extend(block.indices[edges].iter().map(|&source| i64::from(source)));
                sources.extend(loops.then_some(row as i64));
                destinations.resize(sources.len(), row as i64);
            }
            Ok((sources, destinations))
        })
    }
}
