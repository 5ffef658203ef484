//! Laws of subgraphs: all edges among their nodes, and every node once per epoch.

use girih_graph_format::{Csr, NodeId};
use girih_sampling::testing::{graphs, graphs_and_seeds, hubs};
use girih_sampling::{
    Block, ClusterSampler, Columns, DrawKey, Expand, MiniBatch, NeighborOptions, NeighborSampler, SaintSampler,
    Sampler, Subgraph, SubgraphSampler,
};
use proptest::prelude::*;
use rayon::prelude::*;

/// Edges of a block as `(destination, source, edge)` in global ids, row after row.
fn edges(block: &Block) -> Vec<(NodeId, NodeId, u64)> {
    let row = |v: usize| block.indptr[v] as usize..block.indptr[v + 1] as usize;
    let of_row = |v| row(v).map(move |e| (block.nodes[v], block.nodes[block.indices[e] as usize], block.edge_ids[e]));
    (0..block.n_destinations).flat_map(of_row).collect()
}

/// Edges of `graph` among `nodes`, by a scan of all edges.
fn edges_among(graph: &Csr, nodes: &[NodeId]) -> Vec<(NodeId, NodeId, u64)> {
    let row = |v: NodeId| graph.row_range(v as usize).map(move |e| (v, graph.indices()[e], e as u64));
    nodes.iter().flat_map(|&v| row(v)).filter(|(_, u, _)| nodes.contains(u)).collect()
}

proptest! {
    #[test]
    fn an_induced_subgraph_has_all_edges_among_its_nodes((graph, nodes) in graphs_and_seeds()) {
        let subgraph = Subgraph::induced(&graph, &nodes).unwrap();
        prop_assert_eq!(subgraph.nodes(), &nodes[..]);
        prop_assert_eq!(subgraph.block.destinations(), &nodes[..]);
        prop_assert_eq!(edges(&subgraph.block), edges_among(&graph, &nodes));
        let matrix = subgraph.block.to_csr().unwrap();
        prop_assert!(matrix.is_square() && matrix.values().is_none());
    }

    #[test]
    fn a_directional_subgraph_has_the_sampled_edges((graph, seeds) in graphs_and_seeds()) {
        let options = NeighborOptions { expand: Expand::Once, edge_ids: true, ..NeighborOptions::default() };
        let sampler = NeighborSampler::new("3,2".parse().unwrap(), options).unwrap();
        let batch = sampler.sample(&graph, &seeds, DrawKey::new(1, 0, 0)).unwrap();
        let subgraph = Subgraph::directional(batch.clone()).unwrap();
        prop_assert_eq!(subgraph.nodes(), batch.inputs());
        prop_assert_eq!(edges(&subgraph.block), edges(&batch.blocks[0]));
        prop_assert_eq!(subgraph.block.n_destinations, subgraph.block.n_columns);
        prop_assert!(subgraph.block.to_csr().is_ok());
    }

    #[test]
    fn an_epoch_of_clusters_has_every_node_once(graph in graphs(), n_clusters in 1..9usize, per_batch in 1..5usize, epoch: u32) {
        let cluster_of: Vec<u32> = (0..graph.n_rows()).map(|v| (v * v % 11 % n_clusters) as u32).collect();
        let sampler = ClusterSampler::new(&cluster_of, n_clusters, per_batch).unwrap();
        prop_assert_eq!(sampler.n_batches(), n_clusters.div_ceil(per_batch));
        let (mut found, mut subgraph) = (Vec::new(), Subgraph::default());
        for batch in 0..sampler.n_batches() as u32 {
            let key = DrawKey::new(4, epoch, batch);
            sampler.sample_into(&graph, key, &mut subgraph).unwrap();
            let clusters = sampler.clusters(key).unwrap();
            prop_assert!(clusters.len() == per_batch || batch as usize + 1 == sampler.n_batches());
            let members = (0..graph.n_rows() as u32).filter(|&v| clusters.contains(&cluster_of[v as usize]));
            prop_assert_eq!(subgraph.nodes(), &members.collect::<Vec<_>>()[..]);
            prop_assert_eq!(subgraph.nodes(), &sampler.batch_nodes(&graph, key).unwrap()[..]);
            prop_assert_eq!(edges(&subgraph.block), edges_among(&graph, subgraph.nodes()));
            found.extend_from_slice(subgraph.nodes());
        }
        found.sort_unstable();
        prop_assert_eq!(found, (0..graph.n_rows() as u32).collect::<Vec<_>>());
    }
}

#[test]
fn disjoint_subgraphs_keep_their_nodes_edges_and_weights() {
    let graph = hubs(300);
    let sampler = SaintSampler::walks(&graph, 10, 2, 50, 3).unwrap();
    let sampled = |batch| sampler.sample(&graph, DrawKey::new(9, 0, batch)).unwrap();
    for n in 0..4 {
        let parts: Vec<Subgraph> = (0..n).map(sampled).collect();
        let joined = Subgraph::disjoint(parts.iter().cloned());
        let nodes: Vec<NodeId> = parts.iter().flat_map(|part| part.nodes().to_vec()).collect();
        assert_eq!(joined.nodes(), nodes);
        assert_eq!((joined.block.n_destinations, joined.block.n_columns), (nodes.len(), nodes.len()));
        assert_eq!(edges(&joined.block), parts.iter().flat_map(|part| edges(&part.block)).collect::<Vec<_>>());
        assert_eq!(joined.block.weights, parts.iter().flat_map(|part| part.block.weights.clone()).collect::<Vec<_>>());
        assert_eq!(joined.loss_weights, parts.iter().flat_map(|part| part.loss_weights.clone()).collect::<Vec<_>>());
        // Nodes that occur in several parts are not merged.
        let part_of = |node: usize| {
            let mut first = 0;
            parts.iter().position(|part| {
                first += part.nodes().len();
                node < first
            })
        };
        let matrix = joined.block.to_csr().unwrap();
        for row in 0..nodes.len() {
            assert!(matrix.row(row).iter().all(|&column| part_of(column as usize) == part_of(row)));
        }
    }
}

#[test]
fn clusters_meet_others_from_epoch_to_epoch() {
    let sampler = ClusterSampler::new(&(0..50).collect::<Vec<_>>(), 50, 5).unwrap();
    let clusters = |seed, epoch, batch| sampler.clusters(DrawKey::new(seed, epoch, batch)).unwrap();
    let first = clusters(0, 0, 0);
    assert!(first != clusters(1, 0, 0) && first != clusters(0, 1, 0) && first != clusters(0, 0, 1));
    assert_eq!(first, clusters(0, 0, 0));
}

#[test]
fn subgraphs_do_not_depend_on_threads_or_order() {
    let graph = hubs(2000);
    let cluster_of: Vec<u32> = (0..2000).map(|v| v * 7 % 40).collect();
    let sampler = ClusterSampler::new(&cluster_of, 40, 3).unwrap();
    let digest = |batch: u32| sampler.sample(&graph, DrawKey::new(9, 2, batch)).unwrap().digest();
    let expected: Vec<u64> = (0..14).map(digest).collect();
    for threads in [1, 3] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let found: Vec<u64> = pool.install(|| (0..14u32).into_par_iter().rev().map(digest).collect());
        assert!(found.iter().rev().eq(&expected));
    }
}

#[test]
fn bad_input_is_refused() {
    let graph = hubs(10);
    let refused = |nodes: &[NodeId]| Subgraph::induced(&graph, nodes).unwrap_err().to_string();
    assert!(refused(&[1, 10]).contains("member 1 is node 10"));
    assert!(refused(&[4, 2, 4]).contains("node 4 is a member twice, at 0 and 2"));
    assert!(Subgraph::induced(&Csr::empty(2, 3).unwrap(), &[0]).unwrap_err().to_string().contains("2 × 3"));

    let options = NeighborOptions { inputs: Columns::Global, ..NeighborOptions::default() };
    let lazy = NeighborSampler::new("2".parse().unwrap(), options).unwrap();
    let batch = lazy.sample(&graph, &[1], DrawKey::default()).unwrap();
    assert!(Subgraph::directional(batch).unwrap_err().to_string().contains("global"));
    assert!(Subgraph::directional(MiniBatch::default()).unwrap_err().to_string().contains("without blocks"));

    let refused =
        |cluster_of: &[u32], per_batch| ClusterSampler::new(cluster_of, 2, per_batch).err().unwrap().to_string();
    assert!(refused(&[0, 2], 1).contains("node 1 is in part 2"));
    assert!(refused(&[0, 1], 0).contains("0 clusters"));
    let sampler = ClusterSampler::new(&[0, 1, 1], 2, 1).unwrap();
    assert!(sampler.sample(&graph, DrawKey::default()).unwrap_err().to_string().contains("made for 3 nodes"));
    let graph = hubs(3);
    assert!(sampler.sample(&graph, DrawKey::new(0, 0, 2)).unwrap_err().to_string().contains("no batch 2"));
}
