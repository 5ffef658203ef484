//! Laws of plans for ranks. With one rank they equal the plan of one device. They grow with the work, and the choice
//! is the fastest that fits.

use std::time::Duration;

use girih_compute::{ByDtype, Dtype, EntrySeconds, GpuRates};
use girih_graph_format::Csr;
use girih_partition::{Cuts, Exchange, LinkRates, ProcessGrid, Scheme, Stages};
use girih_planner::{Estimate, HardwareProfile, Planner, Table, grids};
use girih_trainer::distributed::{Links, Network, RankOptions, RankPlanner, SymbolicGraph};
use girih_trainer::{DataSizes, ModelConfig, ModelKind, Plan, PlanDevice, TrainConfig};

fn sizes() -> DataSizes {
    DataSizes { n_train: 500_000, ..DataSizes::undirected(1_000_000, 50_000_000, 100, 40) }
}

fn gcn() -> TrainConfig {
    TrainConfig { model: ModelConfig { hidden: 128, dropout: 0.0, ..ModelConfig::default() }, ..TrainConfig::default() }
}

fn h200() -> [PlanDevice; 1] {
    [PlanDevice::Gpu(Some(HardwareProfile::h200().gpu))]
}

fn planner<'a>(
    devices: &'a [PlanDevice],
    config: &'a TrainConfig,
    data: &'a DataSizes,
    graph: &'a SymbolicGraph,
) -> Planner<'a> {
    let network = HardwareProfile::h200().hosts();
    Planner { ranks: RankPlanner { config, data, graph, devices, network }, free_bytes: None }
}

fn table(config: &TrainConfig, sizes: &DataSizes, ranks: usize, free_bytes: Option<u64>) -> Table {
    let graph = SymbolicGraph::even(config, sizes).unwrap();
    Planner { free_bytes, ..planner(&h200(), config, sizes, &graph) }.table(&by_rows(ranks)).unwrap()
}

fn by_rows(ranks: usize) -> RankOptions {
    RankOptions::new(ProcessGrid::new(Scheme::OneD, ranks, 1).unwrap(), Exchange::Dense, Duration::ZERO)
}

fn alone(config: &TrainConfig) -> Plan {
    Plan::on_device(config, &sizes(), h200()[0]).unwrap()
}

fn of(table: &Table, scheme: Scheme, replication: usize, exchange: Exchange) -> &Estimate {
    let is_it = |plan: &&Estimate| {
        (plan.grid.scheme(), plan.grid.replication(), plan.exchange) == (scheme, replication, exchange)
    };
    table.estimates.iter().find(is_it).unwrap()
}

#[test]
fn one_rank_takes_what_one_device_takes() {
    let table = table(&gcn(), &sizes(), 1, None);
    let [only] = &table.estimates[..] else { panic!("one rank has one partition: {table:?}") };
    let alone = alone(&gcn());
    let ratio = only.epoch_ms / (1e3 * alone.epoch_seconds);
    // A rank weighs its share of the loss, which takes a pass over the gradients of logits.
    assert!((0.99..1.15).contains(&ratio), "{ratio}");
    assert_eq!((only.exchange_ms, only.sent_bytes), (0.0, 0));
    // A rank stores its blocks of the transpose too; one device knows that its adjacency is symmetric.
    let ratio = only.needed_bytes as f64 / alone.device_bytes() as f64;
    assert!((0.95..1.5).contains(&ratio), "{ratio}");
}

#[test]
fn every_partition_is_tried() {
    let schemes = |ranks| grids(ranks).iter().map(|grid| (grid.scheme(), grid.replication())).collect::<Vec<_>>();
    assert_eq!(schemes(1), [(Scheme::OneD, 1)]);
    assert_eq!(schemes(2), [(Scheme::OneD, 1), (Scheme::OneAndHalfD, 2)]);
    let of_4 = [(Scheme::OneD, 1), (Scheme::OneAndHalfD, 2), (Scheme::OneAndHalfD, 4), (Scheme::TwoD, 1)];
    assert_eq!(schemes(4), of_4);
    let of_64 = [(Scheme::OneD, 1), (Scheme::OneAndHalfD, 2), (Scheme::OneAndHalfD, 4), (Scheme::OneAndHalfD, 8)];
    assert_eq!(schemes(64)[..4], of_64);
    assert_eq!(schemes(64)[7..], [(Scheme::TwoD, 1), (Scheme::ThreeD, 1)]);
}

#[test]
fn rows_come_at_once_in_parts_in_turns_or_step_by_step_and_products_in_chunks_where_something_follows() {
    let ways = |table: &Table, scheme, replication| -> Vec<(String, usize)> {
        let plans = table.estimates.iter().filter(|plan| plan.exchange == Exchange::Dense);
        let plans = plans.filter(|plan| (plan.grid.scheme(), plan.grid.replication()) == (scheme, replication));
        plans.map(|plan| (plan.stages.to_string(), plan.chunks)).collect()
    };
    let of_8 = table(&gcn(), &sizes(), 8, None);
    let of = |ways: &[(&str, usize)]| -> Vec<(String, usize)> {
        ways.iter().map(|&(stages, chunks)| (stages.to_owned(), chunks)).collect()
    };
    // Rows of 40 columns arrive in at most two parts, since parts are whole cache lines.
    assert_eq!(ways(&of_8, Scheme::OneD, 1), of(&[("1", 1), ("2", 1), ("turns", 1), ("steps", 1)]));
    let all = of(&[("1", 1), ("2", 1), ("turns", 1), ("steps", 1), ("1", 4)]);
    assert_eq!(ways(&of_8, Scheme::OneAndHalfD, 2), all);
    let wide = TrainConfig { model: ModelConfig { hidden: 256, layers: 3, ..gcn().model }, ..gcn() };
    let in_parts = of(&[("1", 1), ("2", 1), ("3", 1), ("4", 1), ("turns", 1), ("steps", 1)]);
    assert_eq!(ways(&table(&wide, &sizes(), 8, None), Scheme::OneD, 1), in_parts);
    // In a group of two, each member gets the panel of the other in one exchange.
    assert_eq!(ways(&of_8, Scheme::ThreeD, 1), of(&[("1", 1), ("2", 1), ("steps", 1), ("1", 4)]));
    // With four replicas, each has a single step.
    assert_eq!(ways(&of_8, Scheme::OneAndHalfD, 4), of(&[("1", 1), ("2", 1), ("1", 4)]));
    assert_eq!(ways(&table(&gcn(), &sizes(), 1, None), Scheme::OneD, 1), of(&[("1", 1)]));
    let chosen = of_8.choice().unwrap();
    let options = chosen.options(&RankOptions { wire: Dtype::Bf16, ..by_rows(8) });
    assert_eq!((options.grid, options.exchange), (chosen.grid, chosen.exchange));
    assert_eq!((options.stages, options.chunks), (chosen.stages, chosen.chunks));
    assert_eq!(options.wire, Dtype::Bf16, "what is not chosen stays");
}

#[test]
fn planners_that_share_counts_plan_what_each_does() {
    let (csr, config) = (skewed(600), gcn());
    let sizes = DataSizes { n_nodes: 600, n_edges: csr.nnz(), ..sizes() };
    let graph = || SymbolicGraph::of(&csr, &config, &sizes).unwrap();
    let slower = |planner: Planner<'_>| -> Network { Network { slowdown: 0.5, ..planner.ranks.network } };
    let (shared, like) = (graph(), by_rows(4));
    let h200 = h200();
    let usual = || planner(&h200, &config, &sizes, &shared);
    let network = slower(usual());
    let planners = [usual(), Planner { ranks: RankPlanner { network, ..usual().ranks }, free_bytes: Some(1) }];
    let together = Planner::tables(&planners, &like).unwrap();
    assert_ne!(together[0], together[1]);
    for (planner, table) in planners.into_iter().zip(&together) {
        let fresh = graph();
        let alone = Planner { ranks: RankPlanner { graph: &fresh, ..planner.ranks }, ..planner };
        assert_eq!(&alone.table(&like).unwrap(), table);
    }
}

/// Skewed graph: most edges lead to few nodes, and the first ranks own more of these than the last.
fn skewed(n: usize) -> Csr {
    let ids = |row: usize| (0..n).filter(move |&column| (row * 31 + column * 17).is_multiple_of(3 + column / 8));
    let mut indptr = vec![0];
    let indices: Vec<u32> = (0..n)
        .flat_map(|row| {
            indptr.push(indptr[row] + ids(row).count() as u64);
            ids(row).map(|column| column as u32)
        })
        .collect();
    Csr::new(n, n, indptr, indices, None).unwrap()
}

#[test]
fn counts_for_one_partition_change_no_other() {
    let csr = skewed(600);
    for symmetric in [true, false] {
        let sizes = DataSizes { n_nodes: 600, n_edges: csr.nnz(), symmetric, ..sizes() };
        for (ranks, cuts) in [(4, Cuts::Equal), (4, Cuts::Weighted), (8, Cuts::Equal)] {
            let (like, config) = (RankOptions { cuts, ..by_rows(ranks) }, gcn());
            let graph = || SymbolicGraph::of(&csr, &config, &sizes).unwrap();
            let of_one_graph = graph();
            let together = planner(&h200(), &config, &sizes, &of_one_graph).table(&like).unwrap();
            for estimate in &together.estimates {
                let fresh = graph();
                assert_eq!(
                    &planner(&h200(), &config, &sizes, &fresh).estimate(&estimate.options(&like)).unwrap(),
                    estimate
                );
            }
        }
    }
}

#[test]
fn bytes_are_those_of_block_plans() {
    // Two products each way of 40 columns, for which one rank of four sends its quarter to three others; and sums of
    // gradients.
    let plan = table(&gcn(), &sizes(), 4, None);
    let sent = of(&plan, Scheme::OneD, 1, Exchange::Dense).sent_bytes as f64;
    let products = 2.0 * 250_000.0 * 3.0 * 40.0 * 4.0;
    assert!((1.0..1.01).contains(&(sent / products)), "{sent}, of which products {products}");
    let rows = of(&plan, Scheme::OneD, 1, Exchange::Rows).sent_bytes as f64;
    assert!(rows <= sent, "rows that are touched are no more than all");
}

#[test]
fn more_work_takes_longer_and_more_room_and_more_ranks_take_less_room() {
    let (small, ranks_4) = (sizes(), table(&gcn(), &sizes(), 4, None));
    let wide = TrainConfig { model: ModelConfig { hidden: 256, ..gcn().model }, ..gcn() };
    let bf16 = TrainConfig { precision: Dtype::Bf16, ..gcn() };
    let edges = DataSizes { n_edges: 2 * small.n_edges, ..small.clone() };
    for (what, more, less) in [
        ("columns", table(&wide, &small, 4, None), &ranks_4),
        ("edges", table(&gcn(), &edges, 4, None), &ranks_4),
        ("bytes", ranks_4.clone(), &table(&bf16, &small, 4, None)),
    ] {
        for (more, less) in more.estimates.iter().zip(&less.estimates) {
            let (grid, exchange, stages) = (more.grid, more.exchange, more.stages);
            assert!(more.epoch_ms > less.epoch_ms, "{what}, {grid}, {exchange}, {stages}");
            assert!(more.needed_bytes > less.needed_bytes, "{what}, {grid}, {exchange}, {stages}");
        }
    }
    let room = |ranks| of(&table(&gcn(), &sizes(), ranks, None), Scheme::OneD, 1, Exchange::Dense).needed_bytes;
    assert!(room(2) > room(4) && room(4) > room(16));
}

#[test]
fn the_choice_is_the_quickest_that_fits() {
    let all = table(&gcn(), &sizes(), 16, None);
    let mut by_time: Vec<&Estimate> = all.estimates.iter().collect();
    by_time.sort_by(|a, b| a.epoch_ms.total_cmp(&b.epoch_ms));
    let how = |plan: &Estimate| (plan.grid, plan.exchange, plan.stages, plan.chunks);
    assert_eq!(all.choice().map(how), Some(how(by_time[0])));
    // With one byte less than the fastest needs, the choice is the next one that fits into the rest.
    let free = by_time[0].needed_bytes - 1;
    let next = by_time.iter().find(|plan| plan.needed_bytes <= free).expect("another one is smaller");
    assert_eq!(table(&gcn(), &sizes(), 16, Some(free)).choice().map(how), Some(how(next)));
    let tight = table(&gcn(), &sizes(), 16, Some(all.smallest().needed_bytes));
    assert_eq!(tight.choice().unwrap().needed_bytes, all.smallest().needed_bytes);
    assert!(tight.estimates.iter().any(|plan| !plan.fits), "the smallest is not the only one");
    assert!(table(&gcn(), &sizes(), 16, Some(all.smallest().needed_bytes - 1)).choice().is_none());
}

#[test]
fn every_network_of_features_can_be_planned() {
    let small = DataSizes { n_nodes: 10_000, n_edges: 200_000, ..sizes() };
    use ModelKind::{Appnp, Gat, Gatv2, Gcn, Gin, Mlp, Ngcn, Sage, Sgc};
    for kind in [Gcn, Sgc, Sage, Gat, Gatv2, Gin, Ngcn, Appnp, Mlp] {
        let config = TrainConfig::for_model(kind);
        let table = table(&config, &small, 8, None);
        assert!(table.estimates.iter().all(|plan| plan.epoch_ms > 0.0 && plan.needed_bytes > 0), "{kind:?}");
    }
}

#[test]
fn each_rank_computes_with_what_is_its_own() {
    let (config, usual) = (gcn(), HardwareProfile::h200());
    let graph = SymbolicGraph::even(&config, &sizes()).unwrap();
    let slower = GpuRates { stream_bytes: usual.gpu.stream_bytes / 4.0, ..usual.gpu };
    // All panels arrive in one stage, so that ranks do the same work.
    let at_once = RankOptions { stages: Stages::Parts(1), ..by_rows(2) };
    let epoch_ms = |gpus: &[GpuRates]| {
        let devices: Vec<PlanDevice> = gpus.iter().map(|&gpu| PlanDevice::Gpu(Some(gpu))).collect();
        planner(&devices, &config, &sizes(), &graph).estimate(&at_once).unwrap().epoch_ms
    };
    let [fast, slow] = [usual.gpu, slower].map(|gpu| epoch_ms(&[gpu]));
    assert!(slow > 1.1 * fast, "{slow} ms, {fast} ms");
    assert_eq!([epoch_ms(&[usual.gpu, slower]), epoch_ms(&[slower, usual.gpu])], [slow, slow], "the slowest decides");
}

/// Products in `f32` take several times as long on GPUs. Ranks compute none of them on operands stored as bf16.
#[test]
fn ranks_multiply_in_the_precision_they_store() {
    use ModelKind::{Appnp, Gat, Gatv2, Gcn, Gin, Ngcn, Sage, Sgc};
    let usual = HardwareProfile::h200().gpu;
    let flops = ByDtype { f32: usual.flops.f32 / 1e3, ..usual.flops };
    let deep = ModelConfig { layers: 4, hidden: 256, dropout: 0.0, ..TrainConfig::for_model(Gcn).model };
    let usual_models = [Gcn, Sgc, Sage, Gat, Gatv2, Gin, Ngcn, Appnp].map(|kind| TrainConfig::for_model(kind).model);
    for model in usual_models.into_iter().chain([deep]) {
        let kind = model.kind;
        let config = TrainConfig { model, precision: Dtype::Bf16, ..TrainConfig::for_model(kind) };
        let graph = SymbolicGraph::even(&config, &sizes()).unwrap();
        for exchange in [Exchange::Dense, Exchange::Rows] {
            let ranks = RankOptions { stages: Stages::Parts(1), exchange, ..by_rows(2) };
            let computed = |gpu: GpuRates| {
                let devices = [PlanDevice::Gpu(Some(gpu))];
                let plans = planner(&devices, &config, &sizes(), &graph).ranks.plan(&ranks).unwrap();
                plans.longest(|plan| plan.computed_seconds)
            };
            assert_eq!(computed(GpuRates { flops, ..usual }), computed(usual), "{kind:?}, {exchange}");
        }
    }
}

/// With more than two ranks, turns multiply one block of others at a time and bring its rows over the link of a pair.
#[test]
fn turns_take_what_single_others_and_pairs_of_ranks_do() {
    let (config, usual) = (gcn(), HardwareProfile::h200());
    let graph = SymbolicGraph::even(&config, &sizes()).unwrap();
    let mut of_single = usual.gpu;
    for entries in [&mut of_single.entries.f32, &mut of_single.entries.bf16] {
        let slower = EntrySeconds::WIDTHS.map(|cols| (cols, 2.0 * entries.others.at(cols)));
        entries.single = EntrySeconds::at_widths(slower);
    }
    let slow = LinkRates { bytes_per_second: usual.links.all_to_all.bytes_per_second / 4.0, ..usual.links.all_to_all };
    let links = |one_to_one| Links { one_to_one, ..usual.links };
    for (ranks, stages, are_slower) in [
        (4, Stages::Turns, true),
        (4, Stages::Parts(2), false),
        (2, Stages::Turns, false),
        (2, Stages::Parts(1), false),
    ] {
        for exchange in [Exchange::Dense, Exchange::Rows] {
            let options = RankOptions { stages, exchange, ..by_rows(ranks) };
            let planned = |gpu: GpuRates, links: Links| {
                let devices = [PlanDevice::Gpu(Some(gpu))];
                let network = Network::one_host(links, true);
                let planner =
                    RankPlanner { config: &config, data: &sizes(), graph: &graph, devices: &devices, network };
                let plans = planner.plan(&options).unwrap();
                (plans.longest(|plan| plan.product_seconds), plans.longest(|plan| plan.exchange_seconds))
            };
            let (products, exchanges) = planned(usual.gpu, links(usual.links.all_to_all));
            assert_eq!(planned(of_single, usual.links).0 > products, are_slower, "{ranks} ranks, {stages}, {exchange}");
            assert_eq!(
                planned(usual.gpu, links(slow)).1 > exchanges,
                are_slower,
                "{ranks} ranks, {stages}, {exchange}"
            );
        }
    }
}

#[test]
fn tasks_that_ranks_do_not_share_are_refused() {
    let recommender = TrainConfig::for_model(ModelKind::LightGcn);
    let graph = SymbolicGraph::even(&gcn(), &sizes()).unwrap();
    let network = HardwareProfile::h200().host();
    let plan = |config: &TrainConfig, ranks| {
        let ranks_on = RankPlanner { config, data: &sizes(), graph: &graph, devices: &h200(), network };
        ranks_on.plan(&by_rows(ranks)).unwrap_err().to_string()
    };
    assert!(plan(&recommender, 2).contains("is for full-batch training of node classifiers"));
    assert!(plan(&gcn(), 2_000_000).contains("at most one rank a node"));
}

#[test]
fn every_partition_multiplies_somewhere() {
    // With four replicas (1.5d), one rank multiplies all and the others nothing; times are maxima over ranks.
    let table = table(&gcn(), &sizes(), 4, None);
    for plan in &table.estimates {
        assert!(plan.product_ms > 0.0 && plan.product_ms <= plan.bound_ms, "{plan:?}");
        assert!(plan.bound_ms <= plan.epoch_ms * (1.0 + 1e-9), "{plan:?}");
    }
}
