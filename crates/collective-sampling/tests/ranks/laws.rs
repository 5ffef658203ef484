//! Properties of sampling by ranks: the draws do not depend on the patches or on the rank that draws.

use std::collections::BTreeSet;
use std::time::Duration;

use girih_collective_sampling::{CollectiveError, RankGraph, RankRows, Tally};
use girih_comm::{Collective, RankFailure, threads};
use girih_compute::Cpu;
use girih_graph_format::{Coo, Csr, Duplicates, NodeId};
use girih_partition::{Ownership, Patches};
use girih_sampling::relabel::{NewNodes, Relabel};
use girih_sampling::{
    Bias, Columns, DrawKey, Draws, Expand, FanOut, MiniBatch, NeighborOptions, NeighborSampler, Neighbors, Node2Vec,
    RandomWalks, Sampler, WalkOptions,
};
use proptest::prelude::*;

type World<'w> = &'w dyn Collective<Cpu>;

/// Runs `work` on `n` ranks that are threads.
fn on_ranks<T: Send>(
    n: usize,
    work: impl Fn(World<'_>) -> Result<T, CollectiveError> + Sync,
) -> Result<Vec<T>, RankFailure<CollectiveError>> {
    threads::run(n, Duration::from_secs(60), |rank| {
        let world: Box<dyn Collective<Cpu>> = Box::new(rank);
        work(&*world)
    })
}

/// Graphs of up to 60 nodes in up to four patches, of which some may be empty.
fn cut_graphs() -> impl Strategy<Value = (Csr, Patches)> {
    (1..60u32, 1..5usize).prop_flat_map(|(n, n_patches)| {
        let edges = prop::collection::vec((0..n, 0..n), 0..8 * n as usize);
        let cuts = prop::collection::vec(0..=n, n_patches - 1);
        (edges, cuts).prop_map(move |(edges, mut cuts)| {
            let (rows, cols) = edges.into_iter().unzip();
            let graph = Coo::new(n as usize, n as usize, rows, cols, None).unwrap().to_csr(Duplicates::Merge).unwrap();
            cuts.extend([0, n]);
            cuts.sort_unstable();
            (graph, Patches::new(cuts).unwrap())
        })
    })
}

fn fan_outs() -> impl Strategy<Value = FanOut> {
    let hop = prop_oneof![5 => (1..9u32).prop_map(Neighbors::Count), 1 => Just(Neighbors::All), 1 => Just(Neighbors::Count(70))];
    prop::collection::vec(hop, 1..4).prop_map(|hops| FanOut::new(hops).unwrap())
}

fn options() -> impl Strategy<Value = NeighborOptions> {
    let draws = prop_oneof![Just(Draws::PerNode), Just(Draws::PerLayer), Just(Draws::Labor)];
    let expand = prop_oneof![Just(Expand::PerLayer), Just(Expand::Once)];
    let relabel = prop::sample::select(Relabel::ALL.to_vec());
    (any::<bool>(), draws, expand, any::<bool>(), any::<bool>(), relabel, any::<bool>()).prop_map(
        |(replace, draws, expand, edge_ids, global, relabel, first_seen)| NeighborOptions {
            replace: replace && draws != Draws::Labor,
            draws,
            expand,
            edge_ids,
            inputs: if global { Columns::Global } else { Columns::Local },
            relabel,
            new_nodes: if first_seen && relabel != Relabel::Rank { NewNodes::FirstSeen } else { NewNodes::Ascending },
        },
    )
}

/// Seeds of rank `rank`. Every third rank has none.
fn seeds_of(rank: usize, n_nodes: usize) -> Vec<NodeId> {
    (0..n_nodes as NodeId).rev().filter(|v| (*v as usize + rank) % 3 < rank % 3).collect()
}

/// Edge weights, some of them zero.
fn weights(graph: &Csr) -> Vec<f32> {
    (0..graph.nnz()).map(|edge| [0.0, 1.0, 0.25, 7.0][edge * edge % 4]).collect()
}

/// Rows of a rank's patch, and their weights.
fn part(graph: &Csr, patches: &Patches, rank: usize) -> (Csr, Bias) {
    let range = patches.range(rank);
    let rows = graph.row_slice(range.start as usize..range.end as usize);
    let first = graph.indptr()[range.start as usize] as usize;
    let bias = Bias::new(&rows, &weights(graph)[first..first + rows.nnz()]).unwrap();
    (rows, bias)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn patches_give_the_blocks_of_the_whole_graph(
        (graph, patches) in cut_graphs(),
        fan_out in fan_outs(),
        options in options(),
        is_weighted: bool,
        seed: u64,
    ) {
        let is_weighted = is_weighted && options.draws != Draws::Labor;
        let sampler = NeighborSampler::new(fan_out.clone(), options).unwrap();
        let whole = NeighborSampler::new(fan_out, options).unwrap();
        let whole = if is_weighted { whole.weighted(Bias::new(&graph, &weights(&graph)).unwrap()) } else { whole };
        let tallies = on_ranks(patches.len(), |world| {
            let rank = world.rank();
            let (rows, bias) = part(&graph, &patches, rank);
            let mut shared = RankGraph::new(world, &patches, &rows, is_weighted.then_some(&bias))?;
            let mut batch = MiniBatch::default();
            for epoch in 0..2 {
                // Each rank is at a batch of its own.
                let (seeds, key) = (seeds_of(rank, graph.n_rows()), DrawKey::new(seed, epoch, rank as u32));
                sampler.sample_from(&mut shared, &seeds, key, &mut batch)?;
                assert_eq!(batch, whole.sample(&graph, &seeds, key).unwrap());
                assert_eq!(batch.digest(), whole.sample(&graph, &seeds, key).unwrap().digest());
            }
            Ok(shared.tally())
        }).unwrap();
        for (rank, tally) in tallies.iter().enumerate() {
            prop_assert!(tally.own_frontier_nodes <= tally.frontier_nodes);
            let n = tally.frontier_nodes;
            let alone = Tally { frontier_nodes: n, own_frontier_nodes: n, ..Tally::default() };
            prop_assert!(patches.len() > 1 || *tally == alone, "{:?}", tally);
            prop_assert!(tally.frontier_nodes > 0 || seeds_of(rank, graph.n_rows()).is_empty());
        }
    }

    #[test]
    fn values_come_from_the_ranks_that_have_the_edges((graph, patches) in cut_graphs()) {
        let values = weights(&graph);
        on_ranks(patches.len(), |world| {
            let (rank, range) = (world.rank(), patches.range(world.rank()));
            let weighted = graph.clone().with_values(Some(values.clone().into())).unwrap();
            let rows = weighted.row_slice(range.start as usize..range.end as usize);
            let mut shared = RankGraph::new(world, &patches, &rows, None)?;
            // Edges in arbitrary order, some of them twice. The first rank requests none.
            let edges: Vec<u64> = (0..rank * graph.nnz()).map(|i| (i * 7 + rank) as u64 % graph.nnz() as u64).collect();
            let expected: Vec<f32> = edges.iter().map(|&edge| values[edge as usize]).collect();
            assert_eq!(shared.values(&edges)?, expected);
            Ok(())
        }).unwrap();
    }

    #[test]
    fn walks_over_patches_are_those_of_the_whole_graph(
        (graph, patches) in cut_graphs(),
        is_end in prop::collection::vec(prop::bool::weighted(0.1), 60),
        (length, stop, restart) in (0..9u32, prop_oneof![Just(0.0), Just(0.1f32)], prop_oneof![Just(0.0), Just(0.3f32)]),
        is_weighted: bool,
        seed: u64,
    ) {
        let options = WalkOptions { stop, restart, ..WalkOptions::new(length) };
        let (walks, key) = (RandomWalks::new(options).unwrap(), DrawKey::new(seed, 1, 2));
        let whole = if is_weighted { walks.clone().weighted(Bias::new(&graph, &weights(&graph)).unwrap()) } else { walks.clone() };
        // Starts of the batch, of which every rank has a range.
        let starts: Vec<NodeId> = (0..2 * graph.n_rows()).map(|i| (i * 7 % graph.n_rows()) as NodeId).collect();
        let is_end = |v: NodeId| is_end[v as usize];
        let expected = whole.walk_until(&graph, &starts, key, is_end).unwrap();
        let found = on_ranks(patches.len(), |world| {
            let (rank, size) = (world.rank(), world.size());
            let (rows, bias) = part(&graph, &patches, rank);
            let mut shared = RankGraph::new(world, &patches, &rows, is_weighted.then_some(&bias))?;
            let mine = starts.len() * rank / size..starts.len() * (rank + 1) / size;
            shared.walk_until(&walks, (mine.start as u32, &starts[mine]), key, is_end)
        }).unwrap();
        let found: Vec<&[NodeId]> = found.iter().flat_map(|walks| (0..walks.len()).map(|i| walks.walk(i))).collect();
        let expected: Vec<&[NodeId]> = (0..expected.len()).map(|i| expected.walk(i)).collect();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn rows_come_from_where_they_lie((graph, patches) in cut_graphs(), row_bytes in 1..9usize) {
        let row = |node: NodeId| (0..row_bytes).map(move |at| (node as usize * 31 + at) as u8);
        on_ranks(patches.len(), |world| {
            let own: Vec<u8> = patches.range(world.rank()).flat_map(row).collect();
            let mut rows = RankRows::new(world, &patches, &own, row_bytes)?;
            let mut out = vec![1, 2, 3];
            // Nodes in arbitrary order, some of them twice.
            let mut nodes = seeds_of(world.rank(), graph.n_rows());
            nodes.extend(nodes.clone().iter().step_by(2));
            rows.gather(&nodes, &mut out)?;
            assert_eq!(out, nodes.iter().flat_map(|&node| row(node)).collect::<Vec<u8>>());
            let wanted: BTreeSet<NodeId> = nodes.into_iter().collect();
            let n_own = wanted.iter().filter(|node| patches.range(world.rank()).contains(node)).count();
            assert_eq!((rows.tally().wanted_rows, rows.tally().own_rows), (wanted.len() as u64, n_own as u64));
            assert_eq!(rows.tally().requests.bytes, 4 * (wanted.len() - n_own) as u64);
            Ok(())
        }).unwrap();
    }

    #[test]
    fn a_layout_of_metis_numbers_every_node_once((graph, _) in cut_graphs(), n_patches in 1..5usize) {
        let layout = Ownership::new(&girih_reorder::clusters(&graph, n_patches).unwrap(), n_patches).unwrap();
        let patches = layout.patches();
        let ids: BTreeSet<NodeId> = layout.permutation().new_of_old().iter().copied().collect();
        prop_assert_eq!(ids.len(), graph.n_rows());
        prop_assert_eq!((patches.len(), patches.n_nodes()), (n_patches, graph.n_rows()));
        // Every edge exists in the new numbering.
        let ordered = graph.permuted(layout.permutation());
        for v in 0..graph.n_rows() {
            let row = ordered.row(layout.permutation().map(v as NodeId) as usize);
            prop_assert!(graph.row(v).iter().all(|&u| row.binary_search(&layout.permutation().map(u)).is_ok()));
            prop_assert_eq!(row.len(), graph.degree(v));
        }
    }
}

/// Ring of 12 nodes with chords.
fn ring() -> Csr {
    let (rows, cols) = (0..12u32).flat_map(|v| [(v, (v + 1) % 12), (v, (v + 5) % 12)]).unzip();
    Coo::new(12, 12, rows, cols, None).unwrap().to_csr(Duplicates::Refuse).unwrap()
}

fn sampler() -> NeighborSampler {
    NeighborSampler::new("2,2".parse().unwrap(), NeighborOptions::default()).unwrap()
}

/// Rank and message of the failure of `work` on three ranks.
fn failure_of(work: impl Fn(World<'_>, &Csr) -> Result<(), CollectiveError> + Sync) -> (usize, String) {
    let graph = ring();
    let failure = on_ranks(3, |world| work(world, &graph)).unwrap_err();
    (failure.rank, failure.message)
}

#[test]
fn bytes_of_the_stages_are_those_of_the_messages() {
    let (graph, patches) = (ring(), Patches::equal(12, 2).unwrap());
    let tallies = on_ranks(2, |world| {
        let (rows, _) = part(&graph, &patches, world.rank());
        let mut shared = RankGraph::new(world, &patches, &rows, None)?;
        let sampler = NeighborSampler::new("2".parse().unwrap(), NeighborOptions::default()).unwrap();
        // Rank 0 requests three nodes of its own patch and two of rank 1's. Rank 1 requests none.
        let seeds: &[NodeId] = if world.rank() == 0 { &[0, 7, 3, 5, 11] } else { &[] };
        sampler.sample_from(&mut shared, seeds, DrawKey::new(1, 0, 0), &mut MiniBatch::default())?;
        Ok(shared.tally())
    });
    let [asker, owner] = tallies.unwrap().try_into().unwrap();
    assert_eq!((asker.frontier_nodes, asker.own_frontier_nodes), (5, 3));
    assert_eq!((asker.shuffle.messages, asker.shuffle.bytes), (1, 4 * (7 + 2)));
    assert_eq!((owner.reshuffle.messages, owner.reshuffle.bytes), (1, 4 * (2 + 2 * 2)));
    assert_eq!((owner.shuffle.messages, asker.reshuffle.messages, asker.weights.messages), (0, 0, 0));
}

#[test]
fn a_rank_that_fails_ends_all_by_name() {
    let patches = Patches::equal(12, 3).unwrap();
    let (rank, message) = failure_of(|world, graph| {
        let (rows, _) = part(graph, &patches, world.rank());
        let mut shared = RankGraph::new(world, &patches, &rows, None)?;
        let seeds: &[NodeId] = if world.rank() == 1 { &[99] } else { &[1] };
        sampler().sample_from(&mut shared, seeds, DrawKey::default(), &mut MiniBatch::default())
    });
    assert!(rank == 1 && message.contains("seed 0 is node 99"), "{rank}: {message}");
    let (rank, message) = failure_of(|world, _| {
        let own = vec![0; 4 * 8];
        let mut rows = RankRows::new(world, &patches, &own, 8)?;
        rows.gather(&[if world.rank() == 2 { 12 } else { 0 }], &mut Vec::new())
    });
    assert!(rank == 2 && message.contains("no row of node 12"), "{rank}: {message}");
}

#[test]
fn layouts_that_do_not_fit_are_refused() {
    let patches = Patches::equal(12, 3).unwrap();
    let refused = |told: &str, work: &(dyn Fn(World<'_>, &Csr) -> Result<(), CollectiveError> + Sync)| {
        let (_, message) = failure_of(work);
        assert!(message.contains(told), "{message}");
    };
    refused("2 patches for 3 ranks", &|world, graph| {
        RankGraph::new(world, &Patches::equal(12, 2).unwrap(), graph, None).map(drop)
    });
    refused("holds 12 rows of 12 columns, but its patch has 4 nodes of 12", &|world, graph| {
        RankGraph::new(world, &patches, graph, None).map(drop)
    });
    refused("cut in different places", &|world, graph| {
        let patches = if world.rank() == 2 { Patches::new(vec![0, 5, 8, 12]).unwrap() } else { patches.clone() };
        let (rows, _) = part(graph, &patches, world.rank());
        RankGraph::new(world, &patches, &rows, None).map(drop)
    });
    refused("alone; give weights to all ranks, or to none", &|world, graph| {
        let (rows, bias) = part(graph, &patches, world.rank());
        RankGraph::new(world, &patches, &rows, (world.rank() == 1).then_some(&bias)).map(drop)
    });
    refused("31 bytes of rows", &|world, _| RankRows::new(world, &patches, &[0; 31], 8).map(drop));
    refused("other sizes", &|world, _| RankRows::new(world, &patches, &[0; 32], 8 + world.rank()).map(drop));
}

#[test]
fn unsupported_operations_on_patches_are_refused() {
    let patches = Patches::equal(12, 3).unwrap();
    let node2vec = Some(Node2Vec { p: 2.0, q: 0.5 });
    let (_, message) = failure_of(|world, graph| {
        let (rows, _) = part(graph, &patches, world.rank());
        let walks = RandomWalks::new(WalkOptions { node2vec, ..WalkOptions::new(3) }).unwrap();
        let mut shared = RankGraph::new(world, &patches, &rows, None)?;
        shared.walk_until(&walks, (0, &[1]), DrawKey::default(), |_| false).map(drop)
    });
    assert!(message.contains("node2vec"), "{message}");
    let (_, message) = failure_of(|world, graph| {
        let (rows, bias) = part(graph, &patches, world.rank());
        let mut shared = RankGraph::new(world, &patches, &rows, Some(&bias))?;
        let options = NeighborOptions { draws: Draws::Labor, ..NeighborOptions::default() };
        let labor = NeighborSampler::new("2".parse().unwrap(), options).unwrap();
        labor.sample_from(&mut shared, &[1], DrawKey::default(), &mut MiniBatch::default())
    });
    assert!(message.contains("LABOR draws edges without weights"), "{message}");
    let (_, message) = failure_of(|world, graph| {
        let (rows, _) = part(graph, &patches, world.rank());
        let mut shared = RankGraph::new(world, &patches, &rows, None)?;
        let weighted = sampler().weighted(Bias::of(graph).unwrap());
        weighted.sample_from(&mut shared, &[1], DrawKey::default(), &mut MiniBatch::default())
    });
    assert!(message.contains("others make its draws"), "{message}");
}

#[test]
fn patches_of_metis_are_balanced_and_keep_neighbors_together() {
    // Grid of 40 × 40 nodes, which has partitions that cut few edges.
    let at = |x: u32, y: u32| (y % 40) * 40 + x % 40;
    let (rows, cols) = (0..1600)
        .map(|v| (v % 40, v / 40))
        .flat_map(|(x, y)| {
            [(at(x, y), at(x + 1, y)), (at(x + 1, y), at(x, y)), (at(x, y), at(x, y + 1)), (at(x, y + 1), at(x, y))]
        })
        .unzip();
    let graph = Coo::new(1600, 1600, rows, cols, None).unwrap().to_csr(Duplicates::Refuse).unwrap();
    for n_patches in [2, 4, 7] {
        let layout = Ownership::new(&girih_reorder::clusters(&graph, n_patches).unwrap(), n_patches).unwrap();
        let (patches, ordered) = (layout.patches(), graph.permuted(layout.permutation()));
        assert!(patches.node_imbalance() < 1.04, "{n_patches}: {}", patches.node_imbalance());
        let inner = patches.inner_edges(&ordered) as f64 / graph.nnz() as f64;
        assert!(inner > 0.85, "{n_patches}: {inner}");
    }
}
