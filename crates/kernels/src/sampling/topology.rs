//! [`DeviceTopology`]: a graph that a device samples from.

use std::fmt::Display;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use girih_compute::ComputeError;
use girih_features::{PatchOperand, Placement};
use girih_graph_format::{Csr, NodeId};

use super::OPERATION;
use crate::Cuda;
use crate::abi::sampling as arguments;
use crate::buffer::Buffer;
use crate::features::{Rows, Shared, UvaTable};
use crate::nccl::Peers;

/// Pattern of an adjacency: row offsets in device memory, and neighbors there or as a placement says.
pub struct DeviceTopology {
    n_nodes: usize,
    n_edges: usize,
    indptr: Arc<Buffer<u64>>,
    neighbors: Neighbors,
    is_on_host: bool,
}

/// Neighbors of all rows.
enum Neighbors {
    /// Contiguous rows on the device.
    OnDevice(Buffer<NodeId>),
    Placed(UvaTable),
    /// Rows of a patch, and the index of its first edge in the graph.
    OfPatch(Arc<Buffer<NodeId>>, u64),
    /// Rows of the patches of all ranks, by their addresses.
    OfPatches {
        addresses: Buffer<u64>,
        _patches: Vec<Arc<Shared>>,
    },
}

impl DeviceTopology {
    /// Copies a graph to the memory of a device.
    ///
    /// # Errors
    /// When the graph is no adjacency, its memory does not suffice, or the device fails.
    pub fn on_device(cuda: &Cuda, graph: &Csr) -> Result<Self, ComputeError> {
        check_square(graph)?;
        // Kernels index by neighbors without checks.
        let graph = &graph.in_memory().map_err(|error| changed(&error))?;
        let neighbors = Neighbors::OnDevice(cuda.upload_list(OPERATION, graph.indices())?);
        Self::new(cuda, graph, neighbors, false)
    }

    /// Copies the rows of a graph as a placement says; all ranks of the process call this together. It serves graphs
    /// that are larger than the memory of a device. Draws for a node whose row is on the host read over the bus; for
    /// a row on another GPU they read its memory.
    ///
    /// # Errors
    /// When the graph is no adjacency, the system pins no memory, that of a GPU does not suffice, GPUs cannot read
    /// each other's, or one fails.
    pub fn placed(cuda: &Cuda, graph: &Csr, placement: &Placement) -> Result<Self, ComputeError> {
        const OF_ID: u64 = size_of::<NodeId>() as u64;
        check_square(graph)?;
        let indptr = graph.indptr_in_memory().map_err(|error| changed(&error))?;
        let offset = |row: usize| OF_ID * indptr[row];
        // Columns may be mapped from a file that has changed; kernels index by them without checks.
        let are_nodes = AtomicBool::new(true);
        let write = |rows: Range<usize>, memory: &mut [u8]| {
            let ids = &graph.indices()[indptr[rows.start] as usize..indptr[rows.end] as usize];
            memory.copy_from_slice(bytemuck::cast_slice(ids));
            let is_node = |id: [u8; 4]| (NodeId::from_le_bytes(id) as usize) < graph.n_rows();
            if !memory.as_chunks().0.iter().copied().all(is_node) {
                are_nodes.store(false, Ordering::Relaxed);
            }
        };
        let rows = Rows { operation: OPERATION, n_rows: graph.n_rows(), offset: &offset, mark: 0 };
        let neighbors = Neighbors::Placed(UvaTable::new(cuda, &rows, &write, placement)?);
        if !are_nodes.load(Ordering::Relaxed) {
            return Err(changed(&NO_NEIGHBOR));
        }
        Self::new(cuda, graph, neighbors, placement.is_on_host())
    }

    /// Copies the rows of a patch to the memory of its rank's device, with the row offsets of all nodes.
    ///
    /// # Errors
    /// When rows, patches and degrees do not fit each other, the memory does not suffice, or the device fails.
    pub(crate) fn of_patch(cuda: &Cuda, patch: &PatchOperand<'_>, rank: usize) -> Result<Self, ComputeError> {
        let indptr = offsets(patch.degrees);
        let rows = patch.rows.in_memory().map_err(|error| changed(&error))?;
        let n_nodes = patch.degrees.len();
        let bounds = patch.bounds.get(rank..rank + 2).map(|bounds| [bounds[0] as usize, bounds[1] as usize]);
        let own = bounds.filter(|[first, end]| first <= end && *end <= n_nodes && end - first == patch.rows.n_rows());
        let fits = |[first, end]: &[usize; 2]| indptr[*end] - indptr[*first] == patch.rows.nnz() as u64;
        let Some([first, _]) = own.filter(fits).filter(|_| patch.rows.n_cols() == n_nodes) else {
            return Err(other_part(patch.rows, rank, n_nodes));
        };
        Ok(Self {
            n_nodes,
            n_edges: indptr[n_nodes] as usize,
            neighbors: Neighbors::OfPatch(Arc::new(cuda.upload_list(OPERATION, rows.indices())?), indptr[first]),
            indptr: Arc::new(cuda.upload_list(OPERATION, &indptr)?),
            is_on_host: false,
        })
    }

    /// Graph of the patches of all ranks, read from the memory of their GPUs. These have to be [allowed to read
    /// it](Peers::lets_read) before. `self` is the rank's own patch, from [`of_patch`](Self::of_patch). All ranks
    /// call this together.
    ///
    /// # Errors
    /// When the memory does not suffice, or the device or a rank fails.
    ///
    /// # Panics
    /// When this is no patch.
    pub(crate) fn with_others(
        &self,
        cuda: &Cuda,
        patch: &PatchOperand<'_>,
        peers: &Peers,
    ) -> Result<Self, ComputeError> {
        const OF_ID: u64 = size_of::<NodeId>() as u64;
        let Neighbors::OfPatch(own, _) = &self.neighbors else { panic!("a patch") };
        let memory = (cuda.pointer(Some(&**own)), Arc::clone(own) as _);
        let patches = Shared::of_all(cuda, OPERATION, peers, memory)?;
        let (offsets, mut addresses) = (offsets(patch.degrees), Vec::with_capacity(self.n_nodes));
        for (shared, bounds) in patches.iter().zip(patch.bounds.windows(2)) {
            let nodes = bounds[0] as usize..bounds[1] as usize;
            let first = offsets[nodes.start];
            addresses.extend(offsets[nodes].iter().map(|offset| shared.address + (offset - first) * OF_ID));
        }
        Ok(Self {
            n_nodes: self.n_nodes,
            n_edges: self.n_edges,
            indptr: Arc::clone(&self.indptr),
            neighbors: Neighbors::OfPatches { addresses: cuda.upload_list(OPERATION, &addresses)?, _patches: patches },
            is_on_host: false,
        })
    }

    fn new(cuda: &Cuda, graph: &Csr, neighbors: Neighbors, is_on_host: bool) -> Result<Self, ComputeError> {
        Ok(Self {
            n_nodes: graph.n_rows(),
            n_edges: graph.nnz(),
            indptr: Arc::new(cuda.upload_list(OPERATION, &graph.indptr_in_memory().map_err(|error| changed(&error))?)?),
            neighbors,
            is_on_host,
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

    /// Whether all rows are read over the bus.
    #[must_use]
    pub fn is_on_host(&self) -> bool {
        self.is_on_host
    }

    /// Kernel argument; valid as long as this.
    pub(super) fn argument(&self, cuda: &Cuda) -> arguments::Topology {
        let (indices, rows) = match &self.neighbors {
            Neighbors::OnDevice(indices) => (cuda.pointer(Some(indices)), 0),
            Neighbors::Placed(placed) => placed.addresses(),
            Neighbors::OfPatches { addresses, .. } => (0, cuda.pointer(Some(addresses))),
            // Virtual start of the whole graph: rows of other patches are not read.
            Neighbors::OfPatch(indices, first_edge) => {
                (cuda.pointer(Some(indices)).wrapping_sub(first_edge * size_of::<NodeId>() as u64), 0)
            }
        };
        arguments::Topology { indptr: self.indptr_address(cuda), indices, rows }
    }

    /// Device address of the row offsets.
    pub(super) fn indptr_address(&self, cuda: &Cuda) -> u64 {
        cuda.pointer(Some(&*self.indptr))
    }

    /// Checks that ids are nodes; `what` names them in the error, such as "seed".
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

/// Message for a graph that names a node which it does not have.
const NO_NEIGHBOR: &str = "a neighbor does not exist; the file of the graph has changed while it was read";

/// Error of a graph whose file has changed since it was checked.
fn changed(error: &dyn Display) -> ComputeError {
    ComputeError::device(OPERATION, error.to_string())
}

/// Row offsets from degrees, with the end of the last row.
fn offsets(degrees: &[u32]) -> Vec<u64> {
    let mut offsets = Vec::with_capacity(degrees.len() + 1);
    offsets.push(0);
    offsets.extend(degrees.iter().scan(0, |end, &degree| {
        *end += u64::from(degree);
        Some(*end)
    }));
    offsets
}

/// Fails unless rows and columns are the same nodes.
fn check_square(graph: &Csr) -> Result<(), ComputeError> {
    if graph.is_square() {
        return Ok(());
    }
    let shape = format!("{} × {}", graph.n_rows(), graph.n_cols());
    Err(ComputeError::argument(
        OPERATION,
        format!("a {shape} matrix cannot be sampled: rows and columns must be the same nodes"),
    ))
}

/// Error of rows that do not match a rank's patch in a graph of `n_nodes` nodes.
fn other_part(rows: &Csr, rank: usize, n_nodes: usize) -> ComputeError {
    let (n_rows, n_cols, nnz) = (rows.n_rows(), rows.n_cols(), rows.nnz());
    let what = format!(
        "rank {rank} has {n_rows} rows of {n_cols} columns with {nnz} entries, which do not match its part of {n_nodes} nodes"
    );
    ComputeError::argument(OPERATION, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(n_rows: usize, n_cols: usize) -> Csr {
        Csr::new(n_rows, n_cols, vec![0; n_rows + 1], Vec::new(), None).unwrap()
    }

    #[test]
    fn graphs_that_are_not_sampled_are_refused() {
        assert!(check_square(&rows(3, 3)).is_ok());
        assert_eq!(
            check_square(&rows(2, 3)).unwrap_err().to_string(),
            "sampling on the device: a 2 × 3 matrix cannot be sampled: rows and columns must be the same nodes"
        );
        assert_eq!(
            other_part(&rows(2, 3), 1, 9).to_string(),
            "sampling on the device: rank 1 has 2 rows of 3 columns with 0 entries, which do not match its part of 9 nodes"
        );
        assert_eq!(
            changed(&NO_NEIGHBOR).to_string(),
            "sampling on the device failed on the device: a neighbor does not exist; the file of the graph has changed while \
             it was read"
        );
    }
}
