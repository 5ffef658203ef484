//! Laws of the restriction of a batch to some of its seeds.

use std::collections::{BTreeMap, BTreeSet};

use girih_graph_format::{Csr, NodeId};
use girih_sampling::testing::graphs_and_seeds;
use girih_sampling::{
    Block, Columns, DrawKey, Expand, LayerSampler, MiniBatch, NeighborOptions, NeighborSampler, Sampler,
};
use proptest::prelude::*;

/// Edges of each destination of a block, in order: source, place in the graph, weight.
type Rows = BTreeMap<NodeId, Vec<(NodeId, Option<u64>, Option<u32>)>>;

fn rows(block: &Block) -> Rows {
    let edge = |e: usize| {
        let weight = block.weights.get(e).map(|weight| weight.to_bits());
        (block.node_of_column(block.indices[e]), block.edge_ids.get(e).copied(), weight)
    };
    let row = |v: usize| (block.indptr[v] as usize..block.indptr[v + 1] as usize).map(edge).collect();
    block.destinations().iter().enumerate().map(|(v, &node)| (node, row(v))).collect()
}

/// Samplers of every kind of blocks.
fn samplers(graph: &Csr) -> Vec<Box<dyn Sampler>> {
    let neighbors = |fan_out: &str, options| {
        Box::new(NeighborSampler::new(fan_out.parse().unwrap(), options).unwrap()) as Box<dyn Sampler>
    };
    let options = NeighborOptions { edge_ids: true, ..NeighborOptions::default() };
    vec![
        Box::new(LayerSampler::ladies("6,9".parse().unwrap(), true)),
        Box::new(LayerSampler::ladies("4,-1".parse().unwrap(), false)),
        Box::new(LayerSampler::fast_gcn(graph, "5,7".parse().unwrap(), false).unwrap()),
        neighbors("3,2,2", options),
        neighbors("2,3", NeighborOptions { expand: Expand::Once, replace: true, ..options }),
        neighbors("2,-1", NeighborOptions { inputs: Columns::Global, ..options }),
    ]
}

/// Checks that a part of a batch has the rows that some seeds need, and nothing else.
fn check_part(whole: &MiniBatch, part: &MiniBatch, seeds: &[NodeId]) {
    assert_eq!(part.seeds(), seeds);
    assert_eq!(part.blocks.len(), whole.blocks.len());
    let mut needed: Vec<NodeId> = seeds.to_vec();
    for (part, whole) in part.blocks.iter().zip(&whole.blocks).rev() {
        assert_eq!(part.destinations(), needed, "rows are the nodes that the next layer reads");
        let (found, all) = (rows(part), rows(whole));
        assert_eq!(found.len(), part.n_destinations, "no node is listed twice");
        assert!(found.iter().all(|(node, row)| all[node] == *row), "rows are those of the whole");
        assert_eq!((part.columns, part.indptr.len()), (whole.columns, part.n_destinations + 1));
        if part.columns == Columns::Global {
            assert_eq!((part.nodes.len(), part.n_columns), (part.n_destinations, whole.n_columns));
            return;
        }
        let listed: BTreeSet<NodeId> = found.values().flatten().map(|(source, ..)| *source).collect();
        let (own, new) = part.nodes.split_at(part.n_destinations);
        let wanted = listed.iter().filter(|source| !own.contains(source)).count();
        assert!(new.iter().all(|node| listed.contains(node)) && new.len() == wanted, "no other nodes");
        assert_eq!(part.n_columns, part.nodes.len());
        needed.clone_from(&part.nodes);
    }
}

proptest! {
    #[test]
    fn some_seeds_need_their_rows_and_no_other(
        (graph, seeds) in graphs_and_seeds(), cuts in any::<[prop::sample::Index; 2]>(), batch in any::<u32>(),
    ) {
        let [a, b] = cuts.map(|cut| cut.index(seeds.len() + 1));
        let range = a.min(b)..a.max(b);
        for sampler in samplers(&graph) {
            let whole = sampler.sample(&graph, &seeds, DrawKey::new(3, 1, batch)).unwrap();
            check_part(&whole, &whole.of_seeds(range.clone()), &seeds[range.clone()]);
            prop_assert_eq!(&whole.of_seeds(0..seeds.len()), &whole);
        }
    }
}

#[test]
#[should_panic(expected = "seeds 1..4 of 2")]
fn seeds_that_are_not_there_are_nobodys() {
    let graph = girih_sampling::testing::graph_of(3, [(0, 1), (1, 2)]);
    let sampler = LayerSampler::ladies("2".parse().unwrap(), true);
    let _ = sampler.sample(&graph, &[0, 1], DrawKey::default()).unwrap().of_seeds(1..4);
}
