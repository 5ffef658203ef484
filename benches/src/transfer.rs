//! [`Transfer`]: copies the rows of a batch to a device as common loaders do: gathers all rows, then copies them.

use cudarc::driver::{CudaContext, CudaSlice, CudaStream, PinnedHostSlice};
use girih_graph_format::{Matrix, NodeId};
use rayon::prelude::*;
use std::sync::Arc;

use crate::Error;

/// Host memory in which rows are gathered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gathered {
    /// Pageable memory, from which the driver copies in chunks of its own.
    Pageable,
    /// Pinned.
    Pinned,
}

/// Memory for batches of limited size, on the host and on the first device.
pub struct Transfer<'a> {
    rows: &'a Matrix,
    stream: Arc<CudaStream>,
    memory: Memory,
    on_device: CudaSlice<f32>,
}

enum Memory {
    Pageable(Vec<f32>),
    Pinned(PinnedHostSlice<f32>),
}

impl<'a> Transfer<'a> {
    /// Memory for batches of at most `n_rows` rows.
    ///
    /// # Errors
    /// When there is no device, or memory of either does not suffice.
    pub fn new(rows: &'a Matrix, gathered: Gathered, n_rows: usize) -> Result<Self, Error> {
        let context = CudaContext::new(0)?;
        let stream = context.new_stream()?;
        let n = n_rows * rows.n_cols();
        let memory = match gathered {
            Gathered::Pageable => Memory::Pageable(vec![0.0; n]),
            // SAFETY: values are written before they are read.
            Gathered::Pinned => Memory::Pinned(unsafe { context.alloc_pinned_with_flags(n, 0) }?),
        };
        Ok(Self { rows, on_device: stream.alloc_zeros(n.max(1))?, stream, memory })
    }

    /// Gathers the rows of some nodes on all cores, copies them, and waits for the copy.
    ///
    /// # Errors
    /// When the device fails.
    ///
    /// # Panics
    /// When there are more rows than memory was reserved for.
    pub fn bring(&mut self, nodes: &[NodeId]) -> Result<(), Error> {
        let n = nodes.len() * self.rows.n_cols();
        let memory = match &mut self.memory {
            Memory::Pageable(memory) => &mut memory[..n],
            Memory::Pinned(memory) => &mut memory.as_mut_slice()?[..n],
        };
        memory.par_chunks_exact_mut(self.rows.n_cols()).zip(nodes).for_each(|(to, &node)| {
            to.copy_from_slice(self.rows.row(node as usize));
        });
        self.stream.memcpy_htod(memory, &mut self.on_device.slice_mut(..n))?;
        Ok(self.stream.synchronize()?)
    }
}
