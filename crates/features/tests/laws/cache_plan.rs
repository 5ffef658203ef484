//! Plans stay within the memory budget, and no other division is faster.

use girih_features::{Cut, Hotness, MemoryBudget, Planner, Rates, Reads, Storage, Tier, TierPlan, Visits};
use girih_graph_format::Csr;
use girih_partition::Patches;
use proptest::prelude::*;

use crate::skewed;

const TRAINING_BYTES: u64 = 1000;
const READS: Reads = Reads { rows: 40_000.0, draws: 300_000.0, features: 200_000.0 };

pub(crate) struct Case {
    graph: Csr,
    frequencies: girih_features::AccessFrequencies,
    cut: Cut,
    visits: Visits,
}

impl Case {
    pub(crate) fn new(n: u32, n_gpus: usize) -> Self {
        let graph = skewed(n);
        let counts: Vec<u32> = (0..n).map(|v| 1 + 5000 / (v + 1)).collect();
        let visits =
            Visits { n_batches: 1, rows: counts.iter().map(|count| count + 1).collect(), features: counts, n_draws: 9 };
        let frequencies = Hotness::Presampled.frequencies(&graph, &[0], &visits);
        let cut = Cut::new(&graph, Patches::weighted(graph.indptr(), n_gpus).unwrap()).unwrap();
        Self { frequencies, cut, visits, graph }
    }

    pub(crate) fn planner(&self, budget: MemoryBudget) -> Planner<'_> {
        Planner {
            indptr: self.graph.indptr(),
            weighted: false,
            feature_bytes: 100,
            frequencies: &self.frequencies,
            reads: READS,
            n_hops: 3,
            cut: Some(&self.cut),
            budget,
            training_bytes: TRAINING_BYTES,
            storage: Storage::Once,
            rates: Rates::h200(),
        }
    }
}

pub(crate) fn budget(n_gpus: usize, gpu_bytes: u64, host_bytes: Option<u64>) -> MemoryBudget {
    MemoryBudget { n_gpus, gpu_bytes, host_bytes }
}

fn shares(plan: &TierPlan) -> [f64; 2] {
    [&plan.topology, &plan.features].map(|part| part.tiers.iter().map(|used| used.expected).sum())
}

/// Besides the topology, the budget fits a few feature rows, but not their list of positions.
#[test]
fn where_host_memory_does_not_hold_the_list_of_positions_rows_stay_on_disk() {
    let plan = Case::new(1500, 1).planner(budget(1, 1000, Some(60_000))).plan(None).unwrap();
    assert!(plan.topology.host_bytes <= 60_000 && plan.features.host_bytes == 0, "{plan:?}");
    assert_eq!(plan.features.tiers.iter().map(|used| used.tier).collect::<Vec<_>>(), [Tier::Disk]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn capacities_are_kept_and_every_node_is_counted(
        n_gpus in 1usize..5,
        gpu_bytes in 1000u64..200_000,
        host_bytes in proptest::option::of(60_000u64..400_000),
        share in proptest::option::of(0.0..=1.0),
    ) {
        let case = Case::new(1500, n_gpus);
        let planner = case.planner(budget(n_gpus, gpu_bytes, host_bytes));
        let Ok(plan) = planner.plan(share) else {
            // The topology takes 60 KB, plus its offsets in host memory: a plan is refused only with less host
            // memory.
            prop_assert!(host_bytes.is_some_and(|bytes| bytes < 70_000));
            return Ok(());
        };
        prop_assert!(plan.topology.gpu_bytes + plan.features.gpu_bytes <= plan.shared_bytes);
        prop_assert!(plan.topology.host_bytes + plan.features.host_bytes <= host_bytes.unwrap_or(u64::MAX));
        for part in [&plan.topology, &plan.features] {
            prop_assert_eq!(part.tiers.iter().map(|used| used.n_nodes).sum::<usize>(), 1500);
            prop_assert!(part.tiers.is_sorted_by(|a, b| a.tier < b.tier));
            let of = |tier| part.tiers.iter().find(|used| used.tier == tier).map_or(0, |used| used.bytes);
            prop_assert!(of(Tier::EveryGpu) + of(Tier::OneGpu) / n_gpus as u64 <= part.gpu_bytes);
            prop_assert!(of(Tier::Host) <= part.host_bytes);
        }
        prop_assert!(plan.topology.tiers.iter().all(|used| used.tier != Tier::Disk));
        prop_assert!(shares(&plan).iter().all(|sum| (sum - 1.0).abs() < 1e-9));
        // A tier serves the reads of the nodes that are placed in it.
        for (part, counts) in [(&plan.topology, &case.visits.rows), (&plan.features, &case.visits.features)] {
            let reads = |nodes: &mut dyn Iterator<Item = u32>| nodes.map(|node| f64::from(counts[node as usize])).sum::<f64>();
            let all = reads(&mut (0..1500));
            for (used, measured) in part.tiers.iter().zip(part.measured(counts)) {
                let there = reads(&mut (0..1500).filter(|&node| part.placement.place(node).tier == used.tier)) / all;
                prop_assert!((used.expected - there).abs() < 1e-9 && (measured - there).abs() < 1e-9, "{used:?}, {there}");
            }
        }
        let parts = [&plan.topology, &plan.features];
        let sum: f64 = parts.iter().flat_map(|part| &part.tiers).map(|used| used.seconds).sum::<f64>()
            + parts.iter().map(|part| part.exchange_seconds).sum::<f64>();
        prop_assert!((sum - plan.seconds).abs() < 1e-12);
    }

    /// With copies of host data, each GPU stores a list of all addresses for topology and for features, except for a
    /// topology that it holds as a whole.
    #[test]
    fn copies_take_what_lists_offsets_and_rows_take(
        n_gpus in 1usize..5,
        gpu_bytes in 1000u64..300_000,
        host_bytes in proptest::option::of(100_000u64..300_000),
    ) {
        let case = Case::new(1500, n_gpus);
        let budget = budget(n_gpus, gpu_bytes, host_bytes);
        let planner = Planner { storage: Storage::Copied, cut: None, ..case.planner(budget) };
        let (offsets, list, ids) = (8 * 1501, 8 * 1500, 4 * case.graph.nnz() as u64);
        let Ok(plan) = planner.plan(None) else {
            let lists = offsets + list + (ids.min(list));
            prop_assert!(gpu_bytes < TRAINING_BYTES + lists || host_bytes.is_some_and(|bytes| bytes < 150_000 + ids));
            return Ok(());
        };
        let on_gpu = |part: &girih_features::RowPlacement| -> u64 {
            part.tiers.iter().map(|used| match used.tier {
                Tier::EveryGpu => used.bytes,
                Tier::OneGpu => (used.n_nodes.div_ceil(n_gpus) * 100) as u64,
                Tier::Host | Tier::Disk => 0,
            }).sum()
        };
        let is_whole = plan.topology.tiers[0].n_nodes == 1500 && plan.topology.tiers[0].tier == Tier::EveryGpu;
        let tables = offsets + if is_whole { 0 } else { list };
        prop_assert_eq!(plan.topology.gpu_bytes, tables + on_gpu(&plan.topology));
        prop_assert_eq!(plan.features.gpu_bytes, list + on_gpu(&plan.features));
        prop_assert_eq!(plan.topology.host_bytes, if is_whole { 0 } else { ids });
        prop_assert_eq!(plan.features.host_bytes, 150_000);
        prop_assert!(plan.topology.gpu_bytes + plan.features.gpu_bytes <= plan.shared_bytes);
        prop_assert!(plan.topology.host_bytes + plan.features.host_bytes <= host_bytes.unwrap_or(u64::MAX));
        prop_assert!(plan.features.tiers.iter().all(|used| used.tier != Tier::Disk));
    }

    #[test]
    fn no_fixed_share_is_much_quicker(n_gpus in 1usize..5, gpu_bytes in 2000u64..250_000, share in 0.0..=1.0) {
        let case = Case::new(1500, n_gpus);
        let planner = case.planner(budget(n_gpus, gpu_bytes, None));
        let (free, fixed) = (planner.plan(None).unwrap(), planner.plan(Some(share)).unwrap());
        // Shares are tried in steps of half a percent.
        prop_assert!(free.seconds <= 1.02 * fixed.seconds, "{} and {}", free.seconds, fixed.seconds);
    }

    #[test]
    fn more_memory_never_takes_longer(n_gpus in 1usize..5, gpu_bytes in 2000u64..250_000, more in 0u64..100_000) {
        let case = Case::new(1500, n_gpus);
        let seconds = |bytes| case.planner(budget(n_gpus, bytes, None)).plan(None).unwrap().seconds;
        prop_assert!(seconds(gpu_bytes + more) <= 1.02 * seconds(gpu_bytes));
    }
}

#[test]
fn rows_that_fit_lie_on_every_gpu() {
    let case = Case::new(1500, 4);
    let plan = case.planner(budget(4, 1 << 20, None)).plan(None).unwrap();
    for part in [&plan.topology, &plan.features] {
        assert_eq!((part.tiers.len(), part.tiers[0].tier, part.tiers[0].expected), (1, Tier::EveryGpu, 1.0));
        assert!((0..1500).all(|node| part.placement.position(node) == node), "in one place for all, ids are positions");
    }
    assert!(!plan.in_patches);
}

#[test]
fn gpus_share_what_one_does_not_hold() {
    // Features take 150 KB; a quarter of them and the topology fit on each of four GPUs.
    let case = Case::new(1500, 4);
    let plan = case.planner(budget(4, 130_000, None)).plan(None).unwrap();
    assert!(plan.features.tiers.iter().all(|used| used.tier <= Tier::OneGpu), "{:?}", plan.features.tiers);
    let alone = Case::new(1500, 1);
    let alone = alone.planner(budget(1, 130_000, None)).plan(None).unwrap();
    assert!(alone.features.tiers.iter().any(|used| used.tier == Tier::Host), "{:?}", alone.features.tiers);
}

#[test]
fn rows_beyond_host_memory_lie_on_disk() {
    let case = Case::new(1500, 1);
    let plan = case.planner(budget(1, 100_000, Some(50_000))).plan(None).unwrap();
    assert_eq!(plan.features.tiers.last().unwrap().tier, Tier::Disk);
}

/// Number of bytes in the last parentheses of `message` before `end`.
fn named_bytes(message: &str, end: &str) -> u64 {
    let before = message.split_once(end).unwrap_or_else(|| panic!("no `{end}` in: {message}")).0;
    let number = before.rsplit('(').next().and_then(|text| text.split(' ').next());
    number.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("no bytes before `{end}` in: {message}"))
}

#[test]
fn gpus_without_room_for_lists_are_refused() {
    let case = Case::new(1500, 1);
    let planner = |bytes| Planner { storage: Storage::Copied, ..case.planner(budget(1, bytes, None)) };
    let message = planner(2000).plan(None).unwrap_err().to_string();
    let named = TRAINING_BYTES + named_bytes(&message, ": give a smaller --batch-size");
    assert!(planner(named - 1).plan(None).is_err() && planner(named).plan(None).is_ok(), "{message}");
}

#[test]
fn the_host_memory_that_a_refusal_names_does() {
    let case = Case::new(1500, 2);
    let message = case.planner(budget(2, 5000, Some(10))).plan(None).unwrap_err().to_string();
    let named = named_bytes(&message, ", or partition it over");
    assert!(case.planner(budget(2, 5000, Some(named))).plan(None).is_ok());
    assert!(case.planner(budget(2, 5000, Some(named - 1))).plan(None).is_err());
}

#[test]
fn a_graph_without_nodes_or_edges_has_a_plan() {
    for n in [0, 5] {
        let graph = Csr::empty(n, n).unwrap();
        let visits = Visits { n_batches: 0, rows: vec![0; n], features: vec![0; n], n_draws: 0 };
        let frequencies = Hotness::InDegree.frequencies(&graph, &[], &visits);
        let budget = budget(1, 1100, None);
        let planner = Planner {
            indptr: graph.indptr(),
            weighted: true,
            feature_bytes: 64,
            frequencies: &frequencies,
            reads: visits.per_batch(),
            n_hops: 1,
            cut: None,
            budget,
            training_bytes: TRAINING_BYTES,
            storage: Storage::Once,
            rates: Rates::h200(),
        };
        let plan = planner.plan(None).unwrap();
        assert_eq!(plan.features.tiers.iter().map(|used| used.n_nodes).sum::<usize>(), n);
    }
}
