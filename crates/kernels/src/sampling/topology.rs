//! [`DeviceTopology`]: a graph that a device samples from.

use std::sync::Arc;

use cudarc::driver::sys::CU_MEMHOSTALLOC_DEVICEMAP;
use cudarc::driver::{CudaSlice, CudaStream, PinnedHostSlice};
use girih_compute::ComputeError;
use girih_graph_format::{Csr, NodeId};

use super::{OPERATION, arguments};
use crate::Cuda;
use crate::driver::explain;

/// The pattern of an adjacency: offsets of rows in the memory of a device, and columns there or in memory of the host.
pub struct DeviceTopology {
    n_nodes: usize,
    n_edges: usize,
    indptr: CudaSlice<u64>,
    indices: Indices,
    stream: Arc<CudaStream>,
}

/// Columns of a graph.
enum Indices {
    OnDevice(CudaSlice<NodeId>),
    /// Pinned, so that the device reads it in place.
    OnHost(PinnedHostSlice<NodeId>),
}

impl DeviceTopology {
    /// Copies a graph to the memory of a device.
    ///
    /// # Errors
    /// When the graph is no adjacency, its memory does not suffice, or the device fails.
    pub fn on_device(cuda: &Cuda, graph: &Csr) -> Result<Self, ComputeError> {
        let indices = Indices::OnDevice(cuda.upload_list(OPERATION, graph.indices())?);
        Self::new(cuda, graph, indices)
    }

    /// Copies the columns of a graph to pinned memory of the host, for a graph that is larger than the memory of the device: each
    /// draw then is a read over the bus.
    ///
    /// # Errors
    /// When the graph is no adjacency, the system pins no such memory, or the device fails.
    pub fn on_host(cuda: &Cuda, graph: &Csr) -> Result<Self, ComputeError> {
        let context = cuda.device.stream.context();
        let n_edges = graph.nnz();
        let refused = |error: cudarc::driver::DriverError| {
            let bytes = n_edges * size_of::<NodeId>();
            let why = explain(error.0);
            ComputeError::device(
                OPERATION,
                format!("the host pins no {bytes} bytes for a graph ({why}); free memory, or raise `ulimit -l`"),
            )
        };
        // SAFETY: all of it is written before it is read.
        let pinned = unsafe { context.alloc_pinned_with_flags(n_edges.max(1), CU_MEMHOSTALLOC_DEVICEMAP) };
        let mut pinned: PinnedHostSlice<NodeId> = pinned.map_err(refused)?;
        let memory = pinned.as_mut_slice().map_err(Cuda::failed(OPERATION))?;
        memory.fill(0);
        memory[..n_edges].copy_from_slice(graph.indices());
        Self::new(cuda, graph, Indices::OnHost(pinned))
    }

    fn new(cuda: &Cuda, graph: &Csr, indices: Indices) -> Result<Self, ComputeError> {
        if !graph.is_square() {
            let shape = format!("{} × {}", graph.n_rows(), graph.n_cols());
            return Err(ComputeError::argument(
                OPERATION,
                format!("a matrix of {shape} has no neighbours to sample; rows and columns have to be the same nodes"),
            ));
        }
        Ok(Self {
            n_nodes: graph.n_rows(),
            n_edges: graph.nnz(),
            indptr: cuda.upload_list(OPERATION, graph.indptr())?,
            indices,
            stream: Arc::clone(&cuda.device.stream),
        })
    }

    /// Number of nodes.
    #[must_use]
    pub fn n_nodes(&self) -> usize {
        self.n_nodes
    }

    /// Number of edges.
    #[must_use]
    pub fn n_edges(&self) -> usize {
        self.n_edges
    }

    /// Whether columns are read over the bus.
    #[must_use]
    pub fn is_on_host(&self) -> bool {
        matches!(self.indices, Indices::OnHost(_))
    }

    /// What kernels are handed: as valid as this.
    pub(super) fn argument(&self, cuda: &Cuda) -> Result<arguments::Topology, ComputeError> {
        let indices = match &self.indices {
            Indices::OnDevice(indices) => cuda.pointer(Some(indices)),
            // The device knows pinned memory by the host's own addresses.
            Indices::OnHost(indices) => indices.as_ptr().map_err(Cuda::failed(OPERATION))? as u64,
        };
        Ok(arguments::Topology { indptr: cuda.pointer(Some(&self.indptr)), indices })
    }

    /// The address of the offsets of rows.
    pub(super) fn indptr_address(&self, cuda: &Cuda) -> u64 {
        cuda.pointer(Some(&self.indptr))
    }

    /// Checks that seeds, or whatever `what` calls them, are nodes.
    pub(super) fn check_nodes(&self, what: &str, nodes: &[NodeId]) -> Result<(), ComputeError> {
        match nodes.iter().position(|&node| node as usize >= self.n_nodes) {
            None => Ok(()),
            Some(at) => Err(ComputeError::argument(
                OPERATION,
                format!("{what} {at} is node {}, but the graph has {} nodes, counted from 0", nodes[at], self.n_nodes),
            )),
        }
    }
}

impl Drop for DeviceTopology {
    /// Pinned memory is not freed while the device reads it.
    fn drop(&mut self) {
        if self.is_on_host() {
            let _ = self.stream.synchronize();
        }
    }
}
