//! [`Graph`]: normalised adjacency of a model: whole on one device, partitioned over ranks, or a mini-batch's block.

use girih_compute::{Backend, ComputeError, Epilogue, Transpose};

use super::pool::Pool;
use super::ranks::{LocalOperand, PartitionedGraph};

/// Normalised adjacency `Â` that a layer aggregates over. Models pass it to
/// [`Tape::aggregate`](crate::Tape::aggregate), [`Tape::neighbors`](crate::Tape::neighbors) and
/// [`Tape::destinations`](crate::Tape::destinations). They need not know which variant it is.
pub enum Graph<B: Backend> {
    /// Whole graph on this device, or a subgraph with all nodes of a step.
    Whole(B::Sparse),
    /// Blocks of one rank.
    Partitioned(Box<PartitionedGraph<B>>),
    /// Block from the sources of one layer of a mini-batch to its destinations.
    Block(BlockGraph<B>),
}

/// Rows of `Â`, or an unbiased estimate of them, for the destinations of one layer of a mini-batch.
pub struct BlockGraph<B: Backend> {
    /// Block of `Â`, `n_destinations × n_sources`.
    pub matrix: B::Sparse,
    /// Number of destinations.
    pub n_destinations: usize,
    /// Node ids of the destinations, if the block's columns are all nodes of the graph and rows are read in place.
    /// `None` if the destinations are the first sources.
    pub in_place: Option<B::Ids>,
    /// Edges of the block one by one, for layers that make a message of each.
    pub edges: Option<BlockEdges<B>>,
}

/// Edges of a block with their features, in the order of its rows.
pub struct BlockEdges<B: Backend> {
    /// Number of edges.
    pub n_edges: usize,
    /// Source of each edge, as a column of the block.
    pub sources: B::Ids,
    /// Features of the edges, `n_edges × width`.
    pub features: B::Matrix,
    /// Weights by which messages are summed, `n_destinations × n_edges`.
    pub sums: B::Sparse,
}

/// Cost of gathering one element of a neighbor's row, in multiply-adds of a dense product.
const GATHERED_ELEMENT: usize = 16;

impl<B: Backend> BlockGraph<B> {
    /// Whether it is cheaper to aggregate rows of `inputs` columns before transforming them to `outputs` columns.
    /// There are fewer destinations to transform than sources.
    fn aggregates_first(&self, backend: &B, (inputs, outputs): (usize, usize)) -> bool {
        let (shape, n_entries) = (backend.sparse_shape(&self.matrix), backend.nnz(&self.matrix));
        let cost = |n_transformed: usize, gathered: usize| {
            n_transformed * inputs * outputs + GATHERED_ELEMENT * n_entries * gathered
        };
        self.in_place.is_some() || cost(shape.rows, inputs) < cost(shape.cols, outputs)
    }
}

impl<B: Backend> Graph<B> {
    /// Whether a layer from `widths.0` to `widths.1` columns should aggregate before the product with its weight.
    pub(crate) fn aggregates_first(&self, backend: &B, widths: (usize, usize)) -> bool {
        match self {
            Self::Whole(_) | Self::Partitioned(_) => widths.0 < widths.1,
            Self::Block(block) => block.aggregates_first(backend, widths),
        }
    }

    /// Edges of a block one by one; `None` where they have no features.
    #[must_use]
    pub fn edges(&self) -> Option<&BlockEdges<B>> {
        match self {
            Self::Block(block) => block.edges.as_ref(),
            Self::Whole(_) | Self::Partitioned(_) => None,
        }
    }

    /// Whether `f32` operands are rounded before they are sent to other ranks and multiplied.
    pub(crate) fn rounds(&self) -> bool {
        matches!(self, Self::Partitioned(graph) if graph.rounds())
    }

    /// Runs `work` without rounding of operands. All ranks call it together.
    pub(crate) fn unrounded<T>(&self, work: impl FnOnce() -> T) -> T {
        match self {
            Self::Whole(_) | Self::Block(_) => work(),
            Self::Partitioned(graph) => graph.unrounded(work),
        }
    }

    /// `out = epilogue(op(Â)·X)`, with one row of `x` and of `out` per local node.
    pub(crate) fn multiply(
        &self,
        backend: &B,
        pool: &mut Pool<B>,
        transpose: Transpose,
        x: &B::Matrix,
        epilogue: Epilogue<'_, B::Matrix>,
        out: &mut B::Matrix,
    ) -> Result<(), ComputeError> {
        match self {
            Self::Whole(matrix) | Self::Block(BlockGraph { matrix, .. }) => {
                backend.spmm((matrix, transpose), None, x, epilogue, out)
            }
            Self::Partitioned(graph) => {
                graph.multiply(backend, pool, transpose, LocalOperand::Matrix(x), &epilogue, out)
            }
        }
    }

    /// `X = Â·X`, in place if the device supports it.
    pub(crate) fn multiply_in_place(
        &self,
        backend: &B,
        pool: &mut Pool<B>,
        x: &mut B::Matrix,
    ) -> Result<(), ComputeError> {
        match self {
            Self::Whole(matrix) | Self::Block(BlockGraph { matrix, .. }) => {
                backend.spmm_in_place((matrix, Transpose::No), x)
            }
            Self::Partitioned(graph) => {
                let mut out = backend.zeros(backend.shape(x), backend.dtype(x))?;
                graph.multiply(
                    backend,
                    pool,
                    Transpose::No,
                    LocalOperand::Matrix(x),
                    &Epilogue::default(),
                    &mut out,
                )?;
                *x = out;
                Ok(())
            }
        }
    }
}
