//! Times of dry runs: exchanges overlap with products as the stages and chunks of a plan say.

use std::time::Duration;

use girih_compute::Rates;
use girih_partition::{Exchange, LinkRates, ProcessGrid, Scheme, Stages};
use girih_trainer::distributed::{Links, Network, RankOptions, RankPlanner, SymbolicGraph};
use girih_trainer::{DataSizes, ModelConfig, Plan, PlanDevice, TrainConfig};

use super::small::{few, network};

/// Plan of an epoch on ranks of a large graph with evenly spread edges, in a 1D partition.
fn planned(stages: Stages, overlaps: bool) -> Plan {
    planned_on(stages, network(overlaps))
}

/// As [`planned`], on a given network.
fn planned_on(stages: Stages, network: Network) -> Plan {
    let grid = ProcessGrid::new(Scheme::OneD, 4, 1).unwrap();
    let options = RankOptions::new(grid, Exchange::Dense, Duration::from_secs(30));
    planned_as(&RankOptions { stages, ..options }, network, 20)
}

/// Plan of an epoch with given options, on a graph with `degree` edges for each node.
fn planned_as(options: &RankOptions, network: Network, degree: usize) -> Plan {
    planned_by((Rates { stream_bytes: 1e10, gather_bytes: 1e10, flops: 1e12 }, network), options, 3, degree)
}

/// Plan of the slowest rank, with given rates and number of layers.
fn planned_by((rates, network): (Rates, Network), options: &RankOptions, layers: usize, degree: usize) -> Plan {
    let data = DataSizes { n_nodes: 100_000, n_edges: degree * 100_000, ..DataSizes::of(&few()) };
    // Between hidden layers, rows are wide enough to be sent in feature chunks.
    let usual = TrainConfig::default();
    let config = TrainConfig { model: ModelConfig { hidden: 256, layers, ..usual.model.clone() }, ..usual };
    let graph = SymbolicGraph::even(&config, &data).unwrap();
    let devices = &[PlanDevice::Cpu(rates)];
    let planner = RankPlanner { config: &config, data: &data, graph: &graph, devices, network };
    let plans = planner.plan(options).unwrap();
    let slowest = plans.ranks.iter().max_by(|a, b| a.epoch_seconds.total_cmp(&b.epoch_seconds));
    *slowest.unwrap()
}

#[test]
fn work_after_a_chunk_overlaps_the_products_of_the_next() {
    for (scheme, p, r) in [(Scheme::OneAndHalfD, 4, 2), (Scheme::TwoD, 4, 1), (Scheme::ThreeD, 8, 1)] {
        let options =
            RankOptions::new(ProcessGrid::new(scheme, p, r).unwrap(), Exchange::Dense, Duration::from_secs(30));
        // Rows have many entries, so that the extra pass of each chunk over the operand is cheap, and links are slow.
        let with = |chunks, overlaps| {
            let links = Links::alike(LinkRates { latency: 1e-6, bytes_per_second: 1e8 });
            planned_as(
                &RankOptions { stages: Stages::Parts(1), chunks, ..options },
                Network::one_host(links, overlaps),
                400,
            )
        };
        let (whole, chunked) = (with(1, true), with(4, true));
        assert!(chunked.epoch_seconds < whole.epoch_seconds, "{scheme}: {chunked:?}, {whole:?}");
        assert_eq!(chunked.exchanged.sent, whole.exchanged.sent, "{scheme}");
        assert!(chunked.exchange_seconds >= whole.exchange_seconds, "{scheme}: as many bytes, in more exchanges");
        // Without overlap, chunks gain nothing.
        assert!(with(4, false).epoch_seconds >= with(1, false).epoch_seconds, "{scheme}");
    }
}

#[test]
fn exchanges_that_are_begun_take_their_time_beside_products() {
    for stages in [Stages::Parts(1), Stages::Parts(4), Stages::Steps, Stages::Turns] {
        let (beside, after) = (planned(stages, true), planned(stages, false));
        assert_eq!(beside.exchange_seconds, after.exchange_seconds);
        assert!(beside.epoch_seconds < after.epoch_seconds, "{beside:?}, {after:?}");
        assert!(beside.epoch_seconds >= beside.product_seconds.max(beside.exchange_seconds));
    }
}

#[test]
fn gradients_of_weights_are_computed_while_rows_of_others_travel() {
    let grid = ProcessGrid::new(Scheme::OneD, 4, 1).unwrap();
    let options = RankOptions::new(grid, Exchange::Dense, Duration::from_secs(30));
    let options = RankOptions { stages: Stages::Parts(1), ..options };
    let links = Links::alike(LinkRates { latency: 1e-6, bytes_per_second: 1e8 });
    let beside = |flops: f64| {
        let rates = Rates { stream_bytes: 1e12, gather_bytes: 1e12, flops };
        let plan = planned_by((rates, Network::one_host(links, true)), &options, 4, 1);
        plan.computed_seconds + plan.exchange_seconds - plan.epoch_seconds
    };
    // GEMM of the third layer, for a rank's quarter of the nodes. The second layer has none before it whose rows are
    // sent.
    let flops = 1e11;
    let one = 2.0 * 25_000.0 * 256.0 * 256.0 / flops;
    let hidden = beside(flops) - beside(1e15);
    assert!((one..1.2 * one).contains(&hidden), "{hidden} s beside exchanges, the product takes {one} s");
}

#[test]
fn products_take_longer_beside_exchanges_where_these_slow_them() {
    for stages in [Stages::Parts(1), Stages::Parts(4), Stages::Steps, Stages::Turns] {
        let (free, slowed) = (planned(stages, true), planned_on(stages, Network { slowdown: 0.3, ..network(true) }));
        let lost = slowed.epoch_seconds - free.epoch_seconds;
        assert!(lost > 0.0 && lost <= 0.3 * free.exchange_seconds, "{free:?}, {slowed:?}");
        assert_eq!(slowed.exchange_seconds, free.exchange_seconds);
    }
}

#[test]
fn one_stage_uses_links_of_all_ranks_and_more_take_less_memory() {
    // With this many ranks, panels are most of the memory that they need.
    let grid = ProcessGrid::new(Scheme::OneD, 8, 1).unwrap();
    let options = RankOptions::new(grid, Exchange::Dense, Duration::from_secs(30));
    let of = |stages| planned_as(&RankOptions { stages, ..options }, network(true), 20);
    let (once, step_by_step) = (of(Stages::Parts(1)), of(Stages::Steps));
    assert_eq!(once.exchanged, step_by_step.exchanged);
    assert!(once.exchange_seconds < step_by_step.exchange_seconds);
    assert!(once.peak_bytes > step_by_step.peak_bytes, "{once:?}, {step_by_step:?}");
}

#[test]
fn parts_use_links_of_all_ranks_and_travel_under_products() {
    let links = Links::alike(LinkRates { latency: 1e-6, bytes_per_second: 1e8 });
    let grid = ProcessGrid::new(Scheme::OneD, 4, 1).unwrap();
    let options = RankOptions::new(grid, Exchange::Dense, Duration::from_secs(30));
    let in_parts = |n, overlaps| {
        planned_as(&RankOptions { stages: Stages::Parts(n), ..options }, Network::one_host(links, overlaps), 400)
    };
    let (once, often) = (in_parts(1, true), in_parts(4, true));
    assert_eq!(once.exchanged, often.exchanged);
    assert!(often.epoch_seconds < 0.9 * once.epoch_seconds, "{often:?}, {once:?}");
    assert!(often.exchange_seconds < 1.1 * once.exchange_seconds, "{often:?}, {once:?}");
    assert!(in_parts(4, false).epoch_seconds >= in_parts(1, false).epoch_seconds, "there is nothing to gain");
}
