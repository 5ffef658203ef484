//! [`BlockOperands`]: a block of a batch on a GPU, and the operands that were made of it.

use std::sync::{Arc, OnceLock};

use girih_compute::ComputeError;
use girih_kernels::{Cuda, CudaSparse, SampledBatch};
use girih_sampling::Block;

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
        let block = self.downloaded()?;
        let operands = sorted_rows(&block).map_err(|error| refused(error.to_string()))?;
        let graph = &self.graph.csr;
        let whole = graph.values().is_none().then(|| Whole { graph: graph.clone(), nodes: block.nodes });
        Ok(self.on_host.get_or_init(|| Arc::new(operands.of_block(whole))))
    }

    fn downloaded(&self) -> Result<Block, ComputeError> {
        let mut batch = self.batch.to_host(&self.graph.cuda)?;
        let at = batch.blocks.len() - 1 - self.hop;
        Ok(batch.blocks.swap_remove(at))
    }

    /// Whether the GPU makes the pattern, with or without self loops.
    fn has_pattern(&self, loops: bool) -> bool {
        scaling(Kind::Pattern { loops }, &self.graph, self.has_repeats).is_some()
    }

    /// Result of `of_block` if the GPU makes the pattern, else of `of_host`.
    fn of_pattern<T>(
        &self,
        loops: bool,
        of_host: impl FnOnce(&OnHost) -> Result<T, String>,
        of_block: impl FnOnce(&Block) -> T,
    ) -> Result<T, String> {
        let text = |error: ComputeError| error.to_string();
        self.graph.cuda.with_context(|| {
            if self.has_pattern(loops) {
                self.downloaded().map(|block| of_block(&block)).map_err(text)
            } else {
                of_host(self.on_host().map_err(text)?)
            }
        })
    }

    /// As [`OnHost::edges`], of the pattern that the GPU makes.
    pub fn edges(&self, loops: bool) -> Result<Vec<i64>, String> {
        let (_, _, n_edges) = self.sizes();
        if !loops && self.has_pattern(loops) {
            // Entries are the edges, in order: nothing is downloaded.
            return Ok((0..n_edges as i64).collect());
        }
        let of_block =
            |block: &Block| entries(block, loops).map(|(row, edge)| edge.unwrap_or(n_edges + row) as i64).collect();
        self.of_pattern(loops, |operands| operands.edges(loops), of_block)
    }

    /// As [`OnHost::ends`], of the pattern that the GPU makes.
    pub fn ends(&self, loops: bool) -> Result<(Vec<i64>, Vec<i64>), String> {
        let of_block = |block: &Block| {
            let source = |row: usize, edge: Option<usize>| edge.map_or(row as i64, |at| i64::from(block.indices[at]));
            entries(block, loops).map(|(row, edge)| (source(row, edge), row as i64)).unzip()
        };
        self.of_pattern(loops, |operands| operands.ends(loops), of_block)
    }
}

/// Row of each entry of the pattern that the GPU makes of a block, and its edge; a self loop, which has none, comes last
/// in its row.
fn entries(block: &Block, loops: bool) -> impl Iterator<Item = (usize, Option<usize>)> + '_ {
    (0..block.n_destinations).flat_map(move |row| {
        let edges = block.indptr[row] as usize..block.indptr[row + 1] as usize;
        edges.map(move |edge| (row, Some(edge))).chain(loops.then_some((row, None)))
    })
}
