//! Laws of lists of edges: they name the edges of the blocks, hop by hop, also for seeds that are listed repeatedly.

use girih_graph_format::NodeId;
use girih_sampling::testing::{fan_outs, graphs_and_seeds, hubs};
use girih_sampling::{
    Columns, DrawKey, EdgeList, Expand, FanOut, MiniBatch, NeighborOptions, NeighborSampler, Sampler, Subgraph,
};
use proptest::prelude::*;

fn sampled(graph: &girih_graph_format::Csr, seeds: &[NodeId], fan_out: FanOut, options: NeighborOptions) -> MiniBatch {
    let options = NeighborOptions { edge_ids: true, ..options };
    NeighborSampler::new(fan_out, options).unwrap().sample(graph, seeds, DrawKey::new(5, 1, 2)).unwrap()
}

const ONCE: NeighborOptions = NeighborOptions {
    expand: Expand::Once,
    replace: false,
    draws: girih_sampling::Draws::PerNode,
    edge_ids: true,
    inputs: Columns::Local,
    relabel: girih_sampling::relabel::Relabel::Fused,
    new_nodes: girih_sampling::relabel::NewNodes::Ascending,
};

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn a_list_has_the_edges_of_its_hops(
        (graph, seeds) in graphs_and_seeds(),
        fan_out in fan_outs(),
        replace: bool,
        repeats in prop::collection::vec(any::<prop::sample::Index>(), 0..5),
    ) {
        let batch = sampled(&graph, &seeds, fan_out.clone(), NeighborOptions { replace, ..ONCE });
        let mut plain = EdgeList::<i64>::default();
        plain.fill(&batch, Expand::Once, None).unwrap();
        let mut rows: Vec<u32> = (0..seeds.len() as u32).collect();
        rows.extend(repeats.iter().filter(|_| !seeds.is_empty()).map(|at| at.index(seeds.len()) as u32));
        let mut list = EdgeList::<i64>::default();
        list.fill(&batch, Expand::Once, Some(&rows)).unwrap();

        let block = &batch.blocks[0];
        let n_edges = list.edge_of.len();
        prop_assert_eq!(list.edge_index.len(), 2 * n_edges);
        prop_assert_eq!(list.nodes_by_hop.iter().sum::<usize>(), list.nodes.len());
        prop_assert_eq!(list.edges_by_hop.iter().sum::<usize>(), n_edges);
        prop_assert_eq!(list.nodes_by_hop.len(), fan_out.hops().len() + 1);
        let (sources, destinations) = list.edge_index.split_at(n_edges);
        prop_assert!(destinations.is_sorted());
        for e in 0..n_edges {
            let [source, destination] = [sources[e], destinations[e]].map(|at| list.nodes[at as usize] as NodeId);
            let position = block.edge_ids[list.edge_of[e] as usize] as usize;
            prop_assert!(graph.row_range(destination as usize).contains(&position));
            prop_assert_eq!(graph.indices()[position], source);
        }
        // Each copy of a seed has the neighbors of the first one, and every hop ends where the next begins.
        let of = |at: usize| {
            let edges = destinations.partition_point(|&to| to < at as i64)..destinations.partition_point(|&to| to <= at as i64);
            list.edge_of[edges].to_vec()
        };
        for (at, &row) in rows.iter().enumerate() {
            prop_assert_eq!(list.nodes[at], i64::from(seeds[row as usize]));
            prop_assert_eq!(of(at), of(row as usize));
        }
        let mut ends = (0, 0);
        for (hop, &n) in list.edges_by_hop.iter().enumerate() {
            let nodes = ends.0 as i64..(ends.0 + list.nodes_by_hop[hop]) as i64;
            prop_assert!(destinations[ends.1..ends.1 + n].iter().all(|to| nodes.contains(to)));
            ends = (nodes.end as usize, ends.1 + n);
        }
        // Without repeated seeds, it is the same list.
        if rows.len() == seeds.len() {
            prop_assert_eq!(&list.edge_index, &plain.edge_index);
            prop_assert_eq!(&list.nodes, &plain.nodes);
            prop_assert_eq!((&list.nodes_by_hop, &list.edges_by_hop), (&plain.nodes_by_hop, &plain.edges_by_hop));
        }
        // Memory of an earlier batch leaves nothing behind, and both types of ids say the same.
        list.fill(&batch, Expand::Once, None).unwrap();
        prop_assert_eq!(&list, &plain);
        let mut narrow = EdgeList::<i32>::default();
        narrow.fill(&batch, Expand::Once, None).unwrap();
        prop_assert!(narrow.edge_index.iter().map(|&id| i64::from(id)).eq(plain.edge_index.iter().copied()));
    }
}

#[test]
fn batches_that_are_no_list_are_refused() {
    let graph = hubs(300);
    let seeds: Vec<NodeId> = (0..20).collect();
    let fan_out = || "2,2".parse::<FanOut>().unwrap();
    let mut list = EdgeList::<i32>::default();
    let per_layer = sampled(&graph, &seeds, fan_out(), NeighborOptions { expand: Expand::PerLayer, ..ONCE });
    let message = list.fill(&per_layer, Expand::PerLayer, None).unwrap_err().to_string();
    assert!(message.contains("drew anew in every hop"), "{message}");
    let global = sampled(&graph, &seeds, fan_out(), NeighborOptions { inputs: Columns::Global, ..ONCE });
    assert!(list.fill(&global, Expand::Once, None).unwrap_err().to_string().contains("global columns"));
    let once = sampled(&graph, &seeds, fan_out(), ONCE);
    assert!(list.fill(&once, Expand::Once, Some(&[20])).unwrap_err().to_string().contains("seed 0 is destination 20"));
    assert!(list.fill(&once, Expand::Once, Some(&[0, 0])).unwrap_err().to_string().contains("destination 1 is none"));
}

#[test]
fn a_subgraph_is_one_hop() {
    let graph = hubs(50);
    let subgraph = Subgraph::induced(&graph, &[3, 7, 0]).unwrap();
    let mut list = EdgeList::<i32>::default();
    list.fill_subgraph(&subgraph);
    assert_eq!(list.nodes, [3, 7, 0]);
    assert_eq!((list.nodes_by_hop[0], list.edges_by_hop[0]), (3, subgraph.block.n_edges()));
    for e in 0..list.edges_by_hop[0] {
        let at = |side: usize| list.nodes[list.edge_index[side * list.edges_by_hop[0] + e] as usize];
        assert!(graph.row(at(1) as usize).contains(&(at(0) as NodeId)));
    }
}
