//! Laws of GraphSAINT's subgraphs: weights correct for unequal chances of nodes and edges.

use girih_graph_format::{Csr, NodeId};
use girih_sampling::testing::{assert_unbiased, graph_of, graphs, hubs};
use girih_sampling::{DrawKey, SaintSampler, SampleError, Subgraph, SubgraphSampler};
use proptest::prelude::*;
use rayon::prelude::*;

/// Graph of twelve nodes with a hub, a leaf, a loop, an edge in one direction only and an isolated node.
fn small() -> Csr {
    let both = [(0, 1), (0, 2), (0, 3), (0, 4), (0, 5), (1, 2), (3, 4), (5, 6), (6, 7), (7, 8), (8, 9), (9, 5)];
    graph_of(12, both.into_iter().flat_map(|(u, v)| [(u, v), (v, u)]).chain([(3, 3), (2, 10)]))
}

/// Nodes taken by each possible draw and its chance: draws of nodes.
fn single_nodes(graph: &Csr) -> Vec<(Vec<NodeId>, f64)> {
    let mut weights = vec![0.0; graph.n_rows()];
    for v in 0..graph.n_rows() {
        graph.row(v).iter().for_each(|&u| weights[u as usize] += (graph.degree(v) as f64).powi(-2));
    }
    let total: f64 = weights.iter().sum();
    weights.into_iter().enumerate().map(|(u, weight)| (vec![u as NodeId], weight / total)).collect()
}

/// Nodes taken by each possible draw and its chance: draws of edges.
fn single_edges(graph: &Csr) -> Vec<(Vec<NodeId>, f64)> {
    let rows: Vec<usize> = (0..graph.n_rows()).filter(|&v| graph.degree(v) > 0).collect();
    let of_row = |&v: &usize| {
        let chance = 1.0 / (rows.len() * graph.degree(v)) as f64;
        graph.row(v).iter().map(move |&u| (vec![v as NodeId, u], chance))
    };
    rows.iter().flat_map(of_row).collect()
}

/// Chance that all of `nodes` are in a subgraph of two draws, by enumeration of all pairs of draws.
fn chance(draws: &[(Vec<NodeId>, f64)], nodes: &[NodeId]) -> f64 {
    let pairs = draws.iter().flat_map(|first| draws.iter().map(move |second| (first, second)));
    pairs
        .filter(|(first, second)| nodes.iter().all(|node| first.0.contains(node) || second.0.contains(node)))
        .map(|(first, second)| first.1 * second.1)
        .sum()
}

fn assert_near(found: f32, expected: f64) {
    assert!((f64::from(found) / expected - 1.0).abs() < 1e-5, "{found} {expected}");
}

#[test]
fn exact_weights_are_those_of_all_draws() {
    let graph = small();
    for (sampler, draws) in [
        (SaintSampler::nodes(&graph, 2).unwrap(), single_nodes(&graph)),
        (SaintSampler::edges(&graph, 2).unwrap(), single_edges(&graph)),
    ] {
        let mut n_edges = 0;
        for number in 0..300 {
            let subgraph = sampler.sample(&graph, DrawKey::new(1, 0, number)).unwrap();
            for (row, &v) in subgraph.nodes().iter().enumerate() {
                let of_node = chance(&draws, &[v]);
                assert_near(subgraph.loss_weights[row], 1.0 / (12.0 * of_node));
                for e in subgraph.block.indptr[row] as usize..subgraph.block.indptr[row + 1] as usize {
                    let u = subgraph.nodes()[subgraph.block.indices[e] as usize];
                    assert_near(subgraph.block.weights[e], of_node / chance(&draws, &[u, v]));
                    n_edges += 1;
                }
            }
        }
        assert!(n_edges > 100);
    }
}

/// For each node: the loss-weighted sum over its edges of an operand, and its expectation.
fn estimates(graph: &Csr, subgraph: &Subgraph) -> Vec<f64> {
    let mut found = vec![0.0; graph.n_rows()];
    let block = &subgraph.block;
    for (row, &v) in block.nodes.iter().enumerate() {
        let edges = block.indptr[row] as usize..block.indptr[row + 1] as usize;
        let sum: f64 =
            edges.map(|e| f64::from(block.weights[e]) * operand(block.nodes[block.indices[e] as usize])).sum();
        // The one stands for the node itself, so that the test covers nodes as well.
        found[v as usize] = f64::from(subgraph.loss_weights[row]) * graph.n_rows() as f64 * (1.0 + sum);
    }
    found
}

fn operand(node: NodeId) -> f64 {
    1.0 + f64::from(node % 5)
}

fn full_sums(graph: &Csr) -> Vec<f64> {
    (0..graph.n_rows()).map(|v| 1.0 + graph.row(v).iter().map(|&u| operand(u)).sum::<f64>()).collect()
}

#[test]
fn estimates_have_the_full_sum_as_their_expectation() {
    let graph = graph_of(11, small_without_isolated());
    for sampler in [SaintSampler::nodes(&graph, 6).unwrap(), SaintSampler::edges(&graph, 4).unwrap()] {
        let sample = |number| sampler.sample(&graph, DrawKey::new(2, 0, number)).unwrap();
        assert_unbiased((0..20_000).map(|number| estimates(&graph, &sample(number))), &full_sums(&graph), 0.0);
    }
}

fn small_without_isolated() -> Vec<(NodeId, NodeId)> {
    let graph = small();
    let row = |v: usize| graph.row(v).iter().map(move |&u| (v as NodeId, u)).collect::<Vec<_>>();
    // Node 10 has no row, and is drawn only as a neighbor.
    (0..11).flat_map(row).collect()
}

#[test]
fn estimated_weights_come_near_the_exact_ones() {
    let graph = small();
    for make in [SaintSampler::nodes, SaintSampler::edges] {
        let exact = make(&graph, 5).unwrap();
        let estimated = make(&graph, 5).unwrap().presampled(&graph, 60_000, 3).unwrap();
        for number in 0..50 {
            let key = DrawKey::new(4, 0, number);
            let (exact, estimated) = (exact.sample(&graph, key).unwrap(), estimated.sample(&graph, key).unwrap());
            assert_eq!(exact.block.edge_ids, estimated.block.edge_ids);
            let pairs = exact.loss_weights.iter().chain(&exact.block.weights);
            for (exact, estimated) in pairs.zip(estimated.loss_weights.iter().chain(&estimated.block.weights)) {
                assert!((exact / estimated - 1.0).abs() < 0.1, "{exact} {estimated}");
            }
        }
    }
}

#[test]
fn walks_with_estimated_weights_are_nearly_unbiased() {
    let graph = graph_of(11, small_without_isolated());
    let sampler = SaintSampler::walks(&graph, 3, 2, 40_000, 5).unwrap();
    let sample = |number| sampler.sample(&graph, DrawKey::new(6, 0, number)).unwrap();
    assert_unbiased((0..20_000).map(|number| estimates(&graph, &sample(number))), &full_sums(&graph), 0.02);
}

#[test]
fn a_node_of_every_draw_is_certain() {
    // Every subgraph has both ends of the only edge.
    let graph = graph_of(3, [(0, 1), (1, 0)]);
    let subgraph = SaintSampler::edges(&graph, 1).unwrap().sample(&graph, DrawKey::default()).unwrap();
    assert_eq!((subgraph.nodes(), &subgraph.block.weights[..]), (&[0, 1][..], &[1.0, 1.0][..]));
    assert_eq!(subgraph.loss_weights, [1.0 / 3.0, 1.0 / 3.0]);
    // Every subgraph has the source of all edges.
    let graph = graph_of(3, [(0, 1), (2, 1)]);
    let subgraph = SaintSampler::nodes(&graph, 1).unwrap().sample(&graph, DrawKey::default()).unwrap();
    assert_eq!((subgraph.nodes(), &subgraph.loss_weights[..]), (&[1][..], &[1.0 / 3.0][..]));
}

fn samplers(graph: &Csr) -> [SaintSampler; 3] {
    [
        SaintSampler::nodes(graph, 20).unwrap(),
        SaintSampler::edges(graph, 10).unwrap(),
        SaintSampler::walks(graph, 5, 3, 50, 1).unwrap(),
    ]
}

proptest! {
    #[test]
    fn subgraphs_are_induced_and_weights_finite(graph in graphs(), number: u32) {
        prop_assume!(graph.nnz() > 0);
        for sampler in samplers(&graph) {
            let key = DrawKey::new(1, 2, number);
            let subgraph = sampler.sample(&graph, key).unwrap();
            prop_assert!(subgraph.nodes().is_sorted_by(|a, b| a < b));
            prop_assert_eq!(subgraph.nodes(), &sampler.batch_nodes(&graph, key).unwrap()[..]);
            let induced = Subgraph::induced(&graph, subgraph.nodes()).unwrap();
            prop_assert_eq!(&subgraph.block.indices, &induced.block.indices);
            prop_assert_eq!(&subgraph.block.edge_ids, &induced.block.edge_ids);
            prop_assert_eq!(subgraph.block.weights.len(), subgraph.block.n_edges());
            prop_assert_eq!(subgraph.loss_weights.len(), subgraph.nodes().len());
            let mut weights = subgraph.block.weights.iter().chain(&subgraph.loss_weights);
            prop_assert!(weights.all(|weight| weight.is_finite() && *weight > 0.0));
        }
    }
}

#[test]
fn subgraphs_do_not_depend_on_threads_or_order() {
    let graph = hubs(1000);
    let digests = || -> Vec<u64> {
        let samplers = samplers(&graph);
        let digest = |i: u32| samplers[i as usize % 3].sample(&graph, DrawKey::new(3, 0, i / 3)).unwrap().digest();
        (0..18u32).into_par_iter().rev().map(digest).collect()
    };
    let expected = digests();
    for threads in [1, 3] {
        assert_eq!(rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(digests), expected);
    }
    let mut distinct = expected;
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), 18);
}

#[test]
fn bad_input_is_refused() {
    let graph = small();
    let told = |sampler: Result<SaintSampler, SampleError>| sampler.map(|_| ()).unwrap_err().to_string();
    for refused in
        [SaintSampler::nodes(&graph, 0), SaintSampler::edges(&graph, 0), SaintSampler::walks(&graph, 0, 2, 9, 1)]
    {
        assert!(told(refused).contains("0 draws"));
    }
    let empty = Csr::empty(5, 5).unwrap();
    for refused in
        [SaintSampler::nodes(&empty, 2), SaintSampler::edges(&empty, 2), SaintSampler::walks(&empty, 2, 2, 9, 1)]
    {
        assert!(told(refused).contains("without edges"));
    }
    let weightless = graph.with_values(Some(vec![0.0; graph.nnz()].into())).unwrap();
    assert!(told(SaintSampler::nodes(&weightless, 2)).contains("weight zero"));
    assert!(told(SaintSampler::nodes(&Csr::empty(2, 3).unwrap(), 2)).contains("2 × 3"));
    assert!(told(SaintSampler::walks(&graph, 2, 2, 0, 1)).contains("0 subgraphs"));
    let sampler = SaintSampler::nodes(&graph, 3).unwrap();
    let error = sampler.sample(&hubs(12), DrawKey::default()).unwrap_err().to_string();
    assert!(error.contains("made for 12 nodes and 26 edges"), "{error}");
    assert!(told(sampler.presampled(&empty, 5, 1)).contains("made for 12 nodes"));
}
