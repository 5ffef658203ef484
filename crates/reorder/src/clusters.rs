//! [`MetisClusters`]: order by the clusters of a graph partitioner, and [`clusters`] themselves.

use std::sync::{Mutex, PoisonError};

use girih_graph_format::{Coo, Csr, Duplicates, NodeId, Permutation};
use metis::{Graph as MetisGraph, Idx, option};

use crate::rcm::ReverseCuthillMckee;
use crate::simple::{by_falling_degree, visited};
use crate::streaming::streaming_clusters;
use crate::{Progress, Reorder, ReorderError, square, undirected};

static ALONE: Mutex<()> = Mutex::new(());

/// Order by clusters of about `size` nodes; the nodes of a cluster are consecutive (Miao et al., Journal of Software
/// 34(9), 2023, use 200). Clusters are ordered by reverse Cuthill-McKee on the graph of clusters, so that
/// neighboring clusters are near. Inside a cluster, nodes are in falling order of degree.
///
/// An edge counts in both directions; self-loops do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetisClusters {
    /// Approximate number of nodes of a cluster.
    pub size: usize,
}

impl Default for MetisClusters {
    fn default() -> Self {
        Self { size: 200 }
    }
}

impl Reorder for MetisClusters {
    fn name(&self) -> String {
        "metis".to_owned()
    }

    fn order_with(&self, graph: &Csr, _: &Progress<'_>) -> Result<Permutation, ReorderError> {
        square(graph)?;
        if self.size == 0 {
            return Err(ReorderError::invalid("clusters of no nodes; a cluster has at least one"));
        }
        let n_clusters = graph.n_rows().div_ceil(self.size).max(1);
        let cluster_of = clusters(graph, n_clusters)?;
        let places = ReverseCuthillMckee.order(&quotient(graph, &cluster_of, n_clusters))?;
        let mut members: Vec<Vec<NodeId>> = vec![Vec::new(); n_clusters];
        for (v, &cluster) in cluster_of.iter().enumerate() {
            members[places.map(cluster) as usize].push(v as NodeId);
        }
        members.iter_mut().for_each(|nodes| by_falling_degree(graph, nodes));
        Ok(visited(members.concat()))
    }
}

/// Cluster of every node, in `0..n_clusters`. Clusters have nearly equal sizes and few edges between them: METIS's
/// k-way partition (Karypis and Kumar, SIAM J. Sci. Comput. 1998). METIS counts edges in 32 bits. A larger graph is
/// clustered by [`streaming_clusters`] instead, and a warning is logged.
///
/// An edge counts in both directions; self-loops do not count.
///
/// # Errors
/// When the graph is not square, there are no clusters, or METIS runs out of memory.
pub fn clusters(graph: &Csr, n_clusters: usize) -> Result<Vec<u32>, ReorderError> {
    clusters_counted(graph, n_clusters, Alike::Nodes, Idx::MAX as usize)
}

/// Minimum mean number of nodes per part for which edges are balanced too. With fewer nodes there is little choice,
/// and METIS leaves parts empty and reports that on standard output.
const NODES_WITH_EVEN_EDGES: usize = 16;

/// As [`clusters`], but parts have nearly equal numbers of nodes and, as far as METIS succeeds, of edges. Only nodes
/// are balanced if the graph is too large for METIS, or if parts have few nodes.
pub(crate) fn even_parts(graph: &Csr, n_parts: usize) -> Result<Vec<u32>, ReorderError> {
    let is_fine = graph.n_rows() / NODES_WITH_EVEN_EDGES < n_parts;
    let alike = if is_fine { Alike::Nodes } else { Alike::NodesAndEdges };
    clusters_counted(graph, n_parts, alike, Idx::MAX as usize)
}

/// Quantity that is balanced over clusters.
#[derive(Clone, Copy)]
enum Alike {
    Nodes,
    NodesAndEdges,
}

/// As [`clusters`], with a partitioner that counts at most `ends_max` ends of edges.
fn clusters_counted(graph: &Csr, n_clusters: usize, alike: Alike, ends_max: usize) -> Result<Vec<u32>, ReorderError> {
    square(graph)?;
    if n_clusters == 0 {
        return Err(ReorderError::invalid("no clusters; a graph is cut into at least one"));
    }
    let n = graph.n_rows();
    if n_clusters == 1 || n <= n_clusters {
        return Ok((0..n as u32).map(|v| v % n_clusters as u32).collect());
    }
    let graph = undirected(graph).without_self_loops();
    let Some(n_parts) = Idx::try_from(n_clusters).ok().filter(|_| graph.nnz() <= ends_max) else {
        tracing::warn!(
            edges = graph.nnz(),
            "METIS counts edges in 32 bits; the streaming partitioner clusters instead"
        );
        return Ok(streaming_clusters(&graph, n_clusters));
    };
    let offsets: Vec<Idx> = graph.indptr().iter().map(|&offset| offset as Idx).collect();
    let targets: Vec<Idx> = graph.indices().iter().map(|&v| v as Idx).collect();
    let failed = |what: &dyn std::fmt::Display| {
        ReorderError::invalid(format!("METIS could not cluster {n} nodes and {} edges: {what}", graph.nnz()))
    };
    // METIS draws from one generator per process, so concurrent calls would affect each other.
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (n_weights, weights) = match alike {
        Alike::Nodes => (1, vec![1; n]),
        Alike::NodesAndEdges => (2, offsets.windows(2).flat_map(|ends| [1, ends[1] - ends[0]]).collect()),
    };
    let metis = MetisGraph::new(n_weights, n_parts, &offsets, &targets).map_err(|error| failed(&error))?;
    let mut parts = vec![0; n];
    metis.set_vwgt(&weights).set_option(option::Seed(0)).part_kway(&mut parts).map_err(|error| failed(&error))?;
    Ok(parts.into_iter().map(|part| part as u32).collect())
}

/// Graph of clusters: two clusters are neighbors if an edge connects them.
fn quotient(graph: &Csr, cluster_of: &[u32], n_clusters: usize) -> Csr {
    let (mut pairs, mut of_node) = (Vec::new(), Vec::new());
    for v in 0..graph.n_rows() {
        of_node.extend(graph.row(v).iter().map(|&u| (cluster_of[v], cluster_of[u as usize])));
        of_node.sort_unstable();
        of_node.dedup();
        pairs.extend(of_node.drain(..).filter(|(a, b)| a != b));
    }
    let (rows, cols) = pairs.into_iter().unzip();
    let list = Coo::new(n_clusters, n_clusters, rows, cols, None).expect("clusters are below their number");
    list.to_csr(Duplicates::Merge).expect("as many clusters as an id can name")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn graphs_too_large_for_metis_are_streamed() {
        let ring = |v: u32| [((v + 99) % 100, v), ((v + 1) % 100, v)];
        let (rows, cols) = (0..100).flat_map(ring).unzip();
        let graph = Coo::new(100, 100, rows, cols, None).unwrap().to_csr(Duplicates::Refuse).unwrap();
        let streamed = streaming_clusters(&graph, 4);
        assert_eq!(clusters_counted(&graph, 4, Alike::Nodes, 199).unwrap(), streamed);
        assert_ne!(clusters_counted(&graph, 4, Alike::Nodes, 200).unwrap(), streamed);
    }
}
