//! [`EncodedInput`]: features that stay on the host, as codes or as plain rows. They are read in blocks of rows when
//! needed.
//!
//! ```text
//! full batch    codes ──decode──▶ a block of rows ──▶ block·W ──▶ rows of X·W         and again for dW = Σ blockᵀ·dZ
//! mini-batch    codes ──gather──▶ the rows of the batch, dense from there on
//! ```
//! The full feature matrix never exists: layers transform before they aggregate, as with sparse features. SGC alone
//! trains on aggregated features, which are dense; it decodes all features once.

use std::sync::Arc;

use girih_compute::{Backend, ComputeError, Dtype, Shape};
use girih_features::HostRows;
use girih_graph_format::NodeId;

use super::pool::Pool;

/// Number of values in a block of decoded rows: large enough for an efficient product, small enough to stay
/// in cache.
const BLOCK_VALUES: usize = 1 << 20;

/// Encoded features, as a step reads them.
#[derive(Clone)]
pub struct EncodedInput {
    rows: Arc<dyn HostRows>,
    precision: Dtype,
}

impl EncodedInput {
    /// Features whose decoded rows are rounded to `precision`, as dense features are.
    #[must_use]
    pub fn new(rows: Arc<dyn HostRows>, precision: Dtype) -> Self {
        Self { rows, precision }
    }

    /// Shape of the decoded features: nodes × features.
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.rows.shape()
    }

    /// Type of decoded rows.
    pub(crate) fn precision(&self) -> Dtype {
        self.precision
    }

    /// Decodes all rows, for a model that reads them all at once.
    pub(crate) fn decoded<B: Backend>(&self, backend: &B) -> Result<B::Matrix, ComputeError> {
        let mut matrix = backend.zeros(self.shape(), self.precision)?;
        backend.write_rows(&|first, out| self.rows.read(first, out), &mut matrix)?;
        Ok(matrix)
    }

    /// Decodes the rows of the given nodes into a buffer of the pool.
    pub(crate) fn gathered<B: Backend>(
        &self,
        backend: &B,
        pool: &mut Pool<B>,
        nodes: &[NodeId],
    ) -> Result<B::Matrix, ComputeError> {
        let cols = self.shape().cols;
        let mut matrix = pool.take(backend, Shape::new(nodes.len(), cols), self.precision)?;
        let fill = |first: usize, out: &mut [f32]| self.rows.gather(&nodes[first..first + out.len() / cols], out);
        backend.write_rows(&fill, &mut matrix)?;
        Ok(matrix)
    }

    /// Decodes block after block of rows and calls `work` with the index of its first row and the block.
    pub(crate) fn for_each_block<B: Backend>(
        &self,
        backend: &B,
        pool: &mut Pool<B>,
        mut work: impl FnMut(&mut Pool<B>, usize, &B::Matrix) -> Result<(), ComputeError>,
    ) -> Result<(), ComputeError> {
        let Shape { rows, cols } = self.shape();
        // Blocks have nearly equal sizes, so that most share their buffers.
        let n_blocks = rows.div_ceil((BLOCK_VALUES / cols.max(1)).max(1)).max(1);
        let block_rows = rows.div_ceil(n_blocks).max(1);
        for first in (0..rows).step_by(block_rows) {
            let shape = Shape::new(block_rows.min(rows - first), cols);
            let mut block = pool.take(backend, shape, self.precision)?;
            backend.write_rows(&|at, out| self.rows.read(first + at, out), &mut block)?;
            work(pool, first, &block)?;
            pool.give(backend, block);
        }
        Ok(())
    }
}
