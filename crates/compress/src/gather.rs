//! Decoding of single rows, for the nodes of a mini-batch.

use girih_graph_format::NodeId;
use girih_machine::prefetch;
use rayon::prelude::*;

use crate::{CompressError, CompressedFeatures};

/// Approximate number of features that one task decodes: enough to hide the task's overhead.
const TASK_FEATURES: usize = 1 << 15;
/// Prefetch distance of codes, in rows: about the number of loads that memory can have in flight.
const ROWS_AHEAD: usize = 8;
/// Number of bytes of a code that are prefetched; the CPU's own prefetcher brings the rest.
const BYTES_AHEAD: usize = 256;

impl CompressedFeatures {
    /// Decodes the rows of `ids` into `out`, one after the other: `ids.len() · width` features. All threads of
    /// rayon's pool take part.
    ///
    /// # Errors
    /// When an id is not below the number of rows; the content of `out` is then unspecified.
    ///
    /// # Panics
    /// When `out` has another length.
    pub fn gather(&self, ids: &[NodeId], out: &mut [f32]) -> Result<(), CompressError> {
        let width = self.width();
        assert_eq!(out.len(), ids.len() * width, "features of {} rows", ids.len());
        let task_rows = (TASK_FEATURES / width).max(1);
        ids.par_chunks(task_rows)
            .zip(out.par_chunks_mut(task_rows * width))
            .try_for_each(|(ids, out)| self.gather_rows(ids, out))
    }

    fn gather_rows(&self, ids: &[NodeId], out: &mut [f32]) -> Result<(), CompressError> {
        for (i, (&id, row)) in ids.iter().zip(out.chunks_exact_mut(self.width())).enumerate() {
            self.ask_for(ids.get(i + ROWS_AHEAD).copied());
            self.codec().decode_row(self.checked_code(id)?, row);
        }
        Ok(())
    }

    /// Code of a node.
    #[inline]
    pub(crate) fn checked_code(&self, id: NodeId) -> Result<&[u8], CompressError> {
        let row = id as usize;
        if row < self.n_rows() { Ok(self.code(row)) } else { Err(self.no_such_row(row)) }
    }

    #[cold]
    fn no_such_row(&self, row: usize) -> CompressError {
        CompressError::invalid(format!(
            "node {row} of compressed features of {} rows, counted from 0; encode the features of this graph",
            self.n_rows()
        ))
    }

    /// Prefetches the code of a node, if there is one.
    #[inline]
    pub(crate) fn ask_for(&self, id: Option<NodeId>) {
        let Some(id) = id else { return };
        let row_bytes = self.codec().row_bytes();
        let start = self.codes().as_ptr().wrapping_add(id as usize * row_bytes);
        for offset in (0..row_bytes.min(BYTES_AHEAD)).step_by(64) {
            prefetch(start.wrapping_add(offset));
        }
    }
}
