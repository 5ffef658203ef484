//! [`ClusterSampler`]: whole clusters of a graph (Chiang et al., Cluster-GCN, KDD 2019).

use girih_graph_format::{Csr, Permutation};
use girih_partition::{Ownership, Patches};

use crate::loader::epoch_order;
use crate::sampler::check_nodes;
use crate::subgraph::InducerPool;
use crate::{DrawKey, NodeId, SampleError, Subgraph, SubgraphSampler};

/// Sampler of a few clusters at a time, with all edges among their nodes: stochastic multiple partitions (Chiang et
/// al., KDD 2019, section 3.2). Clusters have few edges to the outside, so a batch loses few edges. The clusters of a
/// batch change from epoch to epoch, so no edge is lost in every epoch.
///
/// An epoch contains each node once. The sampler does not normalise the edges of a batch.
///
/// ```
/// use girih_graph_format::Csr;
/// use girih_sampling::{ClusterSampler, DrawKey, SubgraphSampler};
///
/// let graph = Csr::empty(6, 6)?;
/// // Six nodes in three clusters, two clusters a batch.
/// let sampler = ClusterSampler::new(&[0, 1, 2, 0, 1, 2], 3, 2)?;
/// assert_eq!(sampler.n_batches(), 2);
/// let n_nodes = |batch| sampler.sample(&graph, DrawKey::new(7, 0, batch)).map(|subgraph| subgraph.nodes().len());
/// assert_eq!((n_nodes(0)?, n_nodes(1)?), (4, 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ClusterSampler {
    clusters: Patches,
    /// Nodes, cluster after cluster.
    members: Permutation,
    clusters_per_batch: usize,
    scratch: InducerPool,
}

impl ClusterSampler {
    /// Makes a sampler from the cluster of every node, as a partitioner or a community order gives it.
    ///
    /// # Errors
    /// When a cluster id is not below `n_clusters`, or `clusters_per_batch` is zero.
    pub fn new(cluster_of: &[u32], n_clusters: usize, clusters_per_batch: usize) -> Result<Self, SampleError> {
        if clusters_per_batch == 0 {
            return Err(SampleError::invalid("batches of 0 clusters; give at least 1 cluster a batch"));
        }
        let clusters = Ownership::new(cluster_of, n_clusters).map_err(|error| {
            SampleError::invalid(format!("{error}; the clusters of nodes are numbered from 0 to {n_clusters} - 1"))
        })?;
        let members = clusters.permutation().inverse();
        Ok(Self { clusters: clusters.patches().clone(), members, clusters_per_batch, scratch: InducerPool::default() })
    }

    /// Number of batches of an epoch; the last one may have fewer clusters.
    #[must_use]
    pub fn n_batches(&self) -> usize {
        self.clusters.len().div_ceil(self.clusters_per_batch)
    }

    /// Clusters of a batch, in the order drawn.
    ///
    /// # Errors
    /// When the batch number is not below the number of batches of an epoch.
    pub fn clusters(&self, key: DrawKey) -> Result<Vec<u32>, SampleError> {
        let mut order: Vec<u32> = (0..self.clusters.len() as u32).collect();
        epoch_order(&mut order, key.seed, key.epoch);
        let batch = order.chunks(self.clusters_per_batch).nth(key.batch as usize);
        batch.map(<[u32]>::to_vec).ok_or_else(|| {
            SampleError::invalid(format!(
                "there is no batch {}, counted from 0: {} clusters, {} to a batch, make {} batches an epoch",
                key.batch,
                order.len(),
                self.clusters_per_batch,
                self.n_batches()
            ))
        })
    }
}

impl SubgraphSampler for ClusterSampler {
    fn batch_nodes(&self, graph: &Csr, key: DrawKey) -> Result<Vec<NodeId>, SampleError> {
        check_nodes(graph, self.members.len())?;
        let members = |cluster: u32| self.clusters.range(cluster as usize).map(|place| self.members.map(place));
        let mut nodes: Vec<NodeId> = self.clusters(key)?.into_iter().flat_map(members).collect();
        nodes.sort_unstable();
        Ok(nodes)
    }

    fn sample_into(&self, graph: &Csr, key: DrawKey, subgraph: &mut Subgraph) -> Result<(), SampleError> {
        let nodes = self.batch_nodes(graph, key)?;
        self.scratch.with(Default::default, |inducer| inducer.induce(graph, &nodes, subgraph));
        Ok(())
    }
}
