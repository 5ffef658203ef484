//! [`Graph`]: the normalised adjacency as models see it: whole on one device, cut over ranks, or the block of a
//! mini-batch.

use girih_compute::{Backend, ComputeError, Epilogue, Transpose};

use crate::distributed::{LocalOperand, PartitionedGraph};
use crate::tape::Pool;

/// The normalised adjacency `Â` that a layer aggregates over. Models hand it to
/// [`Tape::aggregate`](crate::Tape::aggregate), [`Tape::neighbors`](crate::Tape::neighbors) and
/// [`Tape::destinations`](crate::Tape::destinations), and so need not know which of these it is.
pub enum Graph<B: Backend> {
    /// All of it on this device; or a subgraph, whose nodes are all that there are for a step.
    Whole(B::Sparse),
    /// The blocks of one rank.
    Cut(Box<PartitionedGraph<B>>),
    /// From the sources of one layer of a mini-batch to its destinations.
    Block(BlockGraph<B>),
}

/// Rows of `Â`, or an unbiased estimate of them, for the destinations of one layer of a mini-batch.
pub struct BlockGraph<B: Backend> {
    /// `n_destinations × n_sources`.
    pub matrix: B::Sparse,
    /// How many destinations there are.
    pub n_destinations: usize,
    /// Which nodes of the graph the destinations are, where sources are all of them, of which the block names a few:
    /// rows are then read where they lie. Else destinations are the first of the sources.
    pub in_place: Option<B::Ids>,
}

/// What gathering an element of a neighbour's row costs, in multiply-adds of a dense product: memory against registers.
const GATHERED_ELEMENT: usize = 16;

impl<B: Backend> BlockGraph<B> {
    /// Whether it is quicker to aggregate rows of `inputs` columns and then transform them to `outputs` columns than
    /// the other way round: there are fewer destinations than sources to be transformed.
    fn aggregates_first(&self, backend: &B, (inputs, outputs): (usize, usize)) -> bool {
        let (shape, n_entries) = (backend.sparse_shape(&self.matrix), backend.nnz(&self.matrix));
        let cost = |n_transformed: usize, gathered: usize| {
            n_transformed * inputs * outputs + GATHERED_ELEMENT * n_entries * gathered
        };
        self.in_place.is_some() || cost(shape.rows, inputs) < cost(shape.cols, outputs)
    }
}

impl<B: Backend> Graph<B> {
    /// Whether a layer that takes rows of `widths.0` columns to `widths.1` had better aggregate before its weight than
    /// behind it.
    pub(crate) fn aggregates_first(&self, backend: &B, widths: (usize, usize)) -> bool {
        match self {
            Self::Whole(_) | Self::Cut(_) => widths.0 < widths.1,
            Self::Block(block) => block.aggregates_first(backend, widths),
        }
    }

    /// Whether operands of `f32` are rounded before they travel to other ranks and are multiplied.
    pub(crate) fn rounds(&self) -> bool {
        matches!(self, Self::Cut(graph) if graph.rounds())
    }

    /// Does some work for which no operand is rounded; all ranks call it together.
    pub(crate) fn unrounded<T>(&self, work: impl FnOnce() -> T) -> T {
        match self {
            Self::Whole(_) | Self::Block(_) => work(),
            Self::Cut(graph) => graph.unrounded(work),
        }
    }

    /// `out = epilogue(op(Â)·X)`, with a row of `x` and of `out` for each node at hand.
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
            Self::Cut(graph) => graph.multiply(backend, pool, transpose, LocalOperand::Matrix(x), &epilogue, out),
        }
    }

    /// `X = Â·X`, in place where the device can.
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
            Self::Cut(graph) => {
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
