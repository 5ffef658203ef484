//! Every node has one place, slots are filled, and no hot node is in a slower tier than a cold one.

use std::collections::{BTreeMap, BTreeSet};

use girih_features::{AccessFrequency, Cut, Place, Placement, Tier};
use girih_graph_format::{Csr, NodeId};
use girih_partition::Patches;
use proptest::prelude::*;

use crate::graphs;

fn places(placement: &Placement, n_nodes: usize) -> Vec<Place> {
    (0..n_nodes as NodeId).map(|node| placement.place(node)).collect()
}

/// Checks that no two nodes share a slot, and that slots begin at 0, on each GPU (after its replicated rows) and in
/// host memory.
fn assert_compact(placement: &Placement, n_nodes: usize, n_gpus: u32) {
    let mut slots: BTreeMap<(Tier, Option<u32>), BTreeSet<u32>> = BTreeMap::new();
    for place in places(placement, n_nodes) {
        assert_eq!(place.gpu.is_some(), place.tier == Tier::OneGpu);
        assert!(slots.entry((place.tier, place.gpu)).or_default().insert(place.slot), "{place:?} is taken twice");
    }
    let of = |key| slots.get(&key).cloned().unwrap_or_default();
    let on_all = of((Tier::EveryGpu, None));
    for gpu in 0..n_gpus {
        let all: Vec<u32> = on_all.union(&of((Tier::OneGpu, Some(gpu)))).copied().collect();
        assert!(all.iter().copied().eq(0..all.len() as u32), "GPU {gpu}: {all:?}");
        assert!(on_all.is_disjoint(&of((Tier::OneGpu, Some(gpu)))));
    }
    let host = of((Tier::Host, None));
    assert!(host.iter().copied().eq(0..host.len() as u32), "{host:?}");
    for node in 0..n_nodes as NodeId {
        assert_eq!(placement.node(placement.position(node)), node);
    }
}

fn heat_of(graph: &Csr) -> AccessFrequency {
    let degrees: Vec<u32> = (0..graph.n_rows()).map(|v| graph.degree(v) as u32).collect();
    AccessFrequency::new(degrees.iter().map(|&degree| f64::from(degree)).collect(), &degrees)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn features_have_one_place_each(graph in graphs(40), cuts in [0usize..41, 0..41, 0..41], n_gpus in 1u32..5) {
        let n = graph.n_rows();
        let mut cuts = cuts.map(|cut| cut.min(n));
        cuts.sort_unstable();
        let sizes = (cuts[0], cuts[1] - cuts[0], cuts[2] - cuts[1]);
        let heat = heat_of(&graph);
        let placement = Placement::of_features(heat.order(), sizes, n_gpus as usize);
        assert_compact(&placement, n, n_gpus);
        let count = |tier| places(&placement, n).iter().filter(|place| place.tier == tier).count();
        prop_assert_eq!((count(Tier::EveryGpu), count(Tier::OneGpu), count(Tier::Host)), sizes);
        let tier = |v: NodeId| placement.place(v).tier;
        for pair in heat.order().windows(2) {
            prop_assert!(tier(pair[0]) <= tier(pair[1]) || placement.spans().len() == 1);
        }
        // The numbers of own rows of GPUs differ by at most one.
        let of_gpu = |gpu| places(&placement, n).iter().filter(|place| place.gpu == Some(gpu)).count();
        let of_gpus: Vec<usize> = (0..n_gpus).map(of_gpu).collect();
        prop_assert!(of_gpus.iter().max().unwrap() - of_gpus.iter().min().unwrap() <= 1);
    }

    #[test]
    fn rows_lie_on_the_gpu_of_their_patch_or_on_the_host(graph in graphs(40), n_gpus in 1usize..5, hot in 0usize..41) {
        let (n, patches) = (graph.n_rows(), Patches::weighted(graph.indptr(), n_gpus).unwrap());
        let sizes: Vec<usize> = (0..n_gpus).map(|patch| patches.range(patch).len()).collect();
        prop_assert_eq!(sizes.iter().sum::<usize>(), n);
        let n_hot: Vec<usize> = sizes.iter().map(|&size| size.min(hot)).collect();
        let heat = heat_of(&graph);
        let placement = Placement::of_patches(heat.order(), &patches, &n_hot);
        assert_compact(&placement, n, n_gpus as u32);
        for v in 0..n as NodeId {
            let place = placement.place(v);
            prop_assert!(place.tier == Tier::Host || place.gpu == Some(patches.owner(v) as u32));
            for u in patches.range(patches.owner(v)) {
                let is_hotter = heat.frequency()[u as usize] > heat.frequency()[v as usize];
                prop_assert!(!is_hotter || placement.place(u).tier <= place.tier);
            }
        }
        for (patch, &n_hot) in n_hot.iter().enumerate() {
            let on_gpu = patches.range(patch).filter(|&v| placement.place(v).gpu.is_some()).count();
            prop_assert_eq!(on_gpu, n_hot);
        }
    }

    #[test]
    fn shares_are_those_of_the_weights(weights in proptest::collection::vec(0u32..9, 1..30), hot in 0usize..30) {
        let (n, hot) = (weights.len(), hot.min(weights.len()));
        let order: Vec<NodeId> = (0..n as NodeId).rev().collect();
        let placement = Placement::of_rows(&order, hot, 2);
        let shares = placement.shares(|v| f64::from(weights[v as usize]));
        prop_assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        let total: u32 = weights.iter().sum();
        if hot > 0 && total > 0 {
            let on_gpu: u32 = order[..hot].iter().map(|&v| weights[v as usize]).sum();
            prop_assert!((shares[0] - f64::from(on_gpu) / f64::from(total)).abs() < 1e-9);
        }
    }
}

#[test]
fn cuts_count_what_crosses() {
    // Graph 0 ─ 1   2 ─ 3, and an edge 1 ─ 2 between the patches.
    let graph = crate::graph(4, &[(0, 1), (1, 0), (2, 3), (3, 2), (1, 2), (2, 1)].into());
    let patches = |bounds: &[NodeId]| Patches::new(bounds.to_vec()).unwrap();
    assert_eq!(Cut::new(&graph, patches(&[0, 2, 4])).unwrap().crossing(), 1.0 / 3.0);
    assert_eq!(Cut::new(&graph, patches(&[0, 4])).unwrap().crossing(), 0.0);
    let refused = Cut::new(&graph, patches(&[0, 2, 5])).unwrap_err().to_string();
    assert!(refused.contains("5 nodes") && refused.contains("the graph has 4"), "{refused}");
}
