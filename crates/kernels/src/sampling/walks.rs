//! [`DeviceWalks`]: random walks on a device, `cuda/walks.cu`.

use std::sync::Arc;

use cudarc::driver::PushKernelArg;
use girih_compute::ComputeError;
use girih_graph_format::{Csr, NodeId};
use girih_sampling::{DrawKey, RandomWalks, Walks};

use super::bias::DeviceBias;
use super::{DeviceTopology, OPERATION};
use crate::Cuda;
use crate::abi::sampling as arguments;
use crate::compile::{Defines, Source};
use crate::device::threads_for;

/// [`RandomWalks`] on a device: it yields the same walks, to the bit.
pub struct DeviceWalks {
    topology: Arc<DeviceTopology>,
    walks: RandomWalks,
    bias: Option<DeviceBias>,
}

impl DeviceWalks {
    /// Creates walks on the graph `topology`; `graph`, the same on the host, is used for weighted walks.
    ///
    /// # Errors
    /// When walks have weights of another graph, the memory of the device does not suffice, or it fails.
    pub fn new(
        cuda: &Cuda,
        topology: Arc<DeviceTopology>,
        graph: &Csr,
        walks: &RandomWalks,
    ) -> Result<Self, ComputeError> {
        let upload = |bias| DeviceBias::upload(cuda, &topology, graph, bias);
        let bias = walks.bias().map(upload).transpose()?;
        Ok(Self { topology, walks: walks.clone(), bias })
    }

    /// Takes a walk from each of `starts`, as [`RandomWalks::walk`] does.
    ///
    /// # Errors
    /// When a start is no node of the graph, the memory of the device does not suffice, or it fails.
    pub fn walk(&self, cuda: &Cuda, starts: &[NodeId], key: DrawKey) -> Result<Walks, ComputeError> {
        self.walk_until(cuda, starts, key, &[])
    }

    /// As [`walk`](Self::walk), but walks end at `ends`, as with [`RandomWalks::walk_until`].
    ///
    /// # Errors
    /// As [`walk`](Self::walk), and when an end is no node of the graph.
    pub fn walk_until(
        &self,
        cuda: &Cuda,
        starts: &[NodeId],
        key: DrawKey,
        ends: &[NodeId],
    ) -> Result<Walks, ComputeError> {
        self.topology.check_nodes("start", starts)?;
        self.topology.check_nodes("end", ends)?;
        if starts.is_empty() {
            return Ok(Walks { indptr: vec![0], nodes: Vec::new() });
        }
        let options = self.walks.options();
        let (n_walks, most_nodes) = (starts.len(), options.length as usize + 1);
        let on_device = cuda.upload_list(OPERATION, starts)?;
        let ends = (!ends.is_empty())
            .then(|| cuda.upload_list(OPERATION, &set_of(ends, self.topology.n_nodes())))
            .transpose()?;
        let nodes = cuda.scratch::<NodeId>(OPERATION, n_walks.saturating_mul(most_nodes))?;
        let n_nodes = cuda.scratch::<u32>(OPERATION, n_walks)?;
        let second_order = self.walks.second_order();
        let argument = arguments::Walks {
            key: key.of_walks().words(),
            batch: key.batch,
            hop: 0,
            starts: cuda.pointer(Some(&on_device)),
            ends: cuda.pointer(ends.as_ref()),
            nodes: cuda.pointer(Some(&nodes)),
            n_nodes: cuda.pointer(Some(&n_nodes)),
            stop: f64::from(options.stop) * ONE,
            restart: f64::from(options.restart) * ONE,
            second_order: second_order.unwrap_or_default(),
            n_walks: n_walks as u64,
            length: options.length,
            is_second_order: u32::from(second_order.is_some()),
        };
        let graph = self.topology.argument(cuda);
        let weights = self.bias.as_ref().map_or_else(arguments::Weights::default, |bias| bias.argument(cuda));
        let kernel = cuda.variant(OPERATION, Source::WALKS, "walk", &Defines::new())?;
        let mut launch = cuda.device.stream.launch_builder(&kernel);
        launch.arg(&graph).arg(&weights).arg(&argument);
        // SAFETY: the graph is a `Csr`, weights are of its edges, starts are its nodes, the set has a bit for each
        // node, and there is space for all nodes of each walk; all of it lives until it is read below.
        unsafe { launch.launch(threads_for(n_walks)) }.map_err(Cuda::failed(OPERATION))?;
        let n_nodes = cuda.read(OPERATION, &n_nodes.slice(..n_walks))?;
        let nodes = cuda.read(OPERATION, &nodes.slice(..n_walks * most_nodes))?;
        Ok(listed(&n_nodes, &nodes))
    }
}

/// Probability one in units of a draw, 2³².
const ONE: f64 = 4_294_967_296.0;

/// Set of nodes as a bitmap.
fn set_of(nodes: &[NodeId], n_nodes: usize) -> Vec<u32> {
    let mut set = vec![0; n_nodes.div_ceil(32)];
    nodes.iter().for_each(|node| set[*node as usize / 32] |= 1 << (node % 32));
    set
}

/// Transposes the nodes of all walks from step-major to walk-major order.
fn listed(n_nodes: &[u32], nodes: &[NodeId]) -> Walks {
    let mut walks = Walks { indptr: vec![0], nodes: Vec::new() };
    for (walk, &n) in n_nodes.iter().enumerate() {
        walks.nodes.extend((0..n as usize).map(|step| nodes[step * n_nodes.len() + walk]));
        walks.indptr.push(walks.nodes.len() as u64);
    }
    walks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walks_are_listed_one_after_the_other() {
        let walks = listed(&[3, 1, 2], &[7, 8, 9, 4, 0, 5, 6, 0, 0]);
        assert_eq!(walks.indptr, [0, 3, 4, 6]);
        assert_eq!(walks.nodes, [7, 4, 6, 8, 9, 5]);
    }

    #[test]
    fn sets_have_a_bit_for_each_node() {
        assert_eq!(set_of(&[0, 33, 33], 40), [1, 2]);
    }
}
