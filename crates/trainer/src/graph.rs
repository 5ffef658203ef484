//! [`Graph`]: the normalised adjacency as models see it, whole on one device or cut over ranks.

use girih_compute::{Backend, ComputeError, Epilogue, Transpose};

use crate::distributed::CutGraph;
use crate::tape::Pool;

/// The normalised adjacency `Â`. Models hand it to [`Tape::aggregate`](crate::Tape::aggregate) and
/// [`Tape::neighbors`](crate::Tape::neighbors), and so need not know whether it is cut.
pub enum Graph<B: Backend> {
    /// All of it on this device.
    Whole(B::Sparse),
    /// The blocks of one rank.
    Cut(CutGraph<B>),
}

impl<B: Backend> Graph<B> {
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
            Self::Whole(matrix) => backend.spmm((matrix, transpose), None, x, epilogue, out),
            Self::Cut(graph) => graph.multiply(backend, pool, transpose, x, &epilogue, out),
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
            Self::Whole(matrix) => backend.spmm_in_place((matrix, Transpose::No), x),
            Self::Cut(graph) => {
                let mut out = backend.zeros(backend.shape(x), backend.dtype(x))?;
                graph.multiply(backend, pool, Transpose::No, x, &Epilogue::default(), &mut out)?;
                *x = out;
                Ok(())
            }
        }
    }
}
