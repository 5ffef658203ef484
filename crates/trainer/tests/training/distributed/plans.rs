//! Dry runs against training: sizes of blocks, traffic of an epoch, and bytes of patches.

use std::sync::Arc;
use std::time::Duration;

use girih_comm::{Traffic, threads};
use girih_compute::prelude::*;
use girih_compute::{Cpu, Dtype, Shape, Symbolic, Transpose};
use girih_datasets::{DataSource, Dataset};
use girih_partition::{Exchange, ProcessGrid, Scheme, Stages};
use girih_trainer::distributed::{GraphPlacement, RankOptions, RankPlanner, Ranks, SymbolicGraph};
use girih_trainer::testing::{
    BlockSource, Blocks, PanelExchange, Panels, PartitionedAdjacency, PartitionedData, SymbolicRank, symbolic_blocks,
};
use girih_trainer::{
    BatchConfig, BatchKind, CacheConfig, Control, DataSizes, Dims, Event, ModelConfig, ModelKind, NormKind, Plan,
    PlanDevice, SessionOptions, TrainConfig, TrainError,
};

use super::small::{few, graph, network, sharings};
use crate::build;

/// Shapes of the chunks of each of a rank's blocks; the entries of its own block and of all others; the rows
/// received.
type Sizes = (Vec<Vec<Shape>>, [usize; 2], Vec<Vec<usize>>);

/// Sizes of the blocks of a rank.
fn sizes<B: Backend>(backend: &B, blocks: &Blocks<B>) -> Sizes {
    let own = || blocks.own.iter();
    let others = || blocks.together.iter().filter_map(|some| some.matrix.as_ref());
    let shapes = |chunks: &Vec<B::Sparse>| chunks.iter().map(|matrix| backend.sparse_shape(matrix)).collect();
    let nnz = |chunks: &Vec<B::Sparse>| -> usize { chunks.iter().map(|matrix| backend.nnz(matrix)).sum() };
    let received = blocks.together.iter().map(|some| match &some.exchange {
        PanelExchange::Panels(Panels::ToAll(counts)) => counts.clone(),
        PanelExchange::Panels(Panels::ToOne { sent, received }) => [sent.clone(), received.clone()].concat(),
        PanelExchange::Rows(rows) => [rows.sent(), rows.received()].concat(),
    });
    (own().chain(others()).map(shapes).collect(), [own().map(nnz).sum(), others().map(nnz).sum()], received.collect())
}

#[test]
fn blocks_symbolic_blocks_have_the_sizes_of_those_that_are_multiplied() {
    let config = TrainConfig::default();
    for directed in [few().graph, graph()] {
        let dataset = Dataset::new("some", directed.clone(), None, None, Vec::new()).unwrap();
        let data = DataSizes { n_features: 12, n_classes: 3, ..DataSizes::of(&dataset) };
        let (source, n) = (Arc::new(DataSource::from(dataset)), data.n_nodes);
        let paper = SymbolicGraph::of(&directed, &config, &data).unwrap();
        let dims = Dims {
            n_nodes: n,
            n_features: 12,
            edge_width: 0,
            n_classes: 3,
            relations: girih_graph_format::RelationSizes::of_plain(n, 0),
            type_widths: Vec::new(),
            target: None,
        };
        let adjacency = build(&Cpu::new(), &config, dims).0.input_spec().graph.unwrap();
        for options in sharings() {
            let symbolic_blocks = symbolic_blocks(&paper, n, &options).unwrap();
            for transpose in [Transpose::No, Transpose::Yes] {
                let found = threads::run(options.grid.ranks(), options.deadline, |world| -> Result<_, TrainError> {
                    let (cpu, wire) = (Cpu::new(), (options.exchange, options.wire));
                    let ranks = Ranks::<Cpu>::new(Arc::clone(&symbolic_blocks.plan), Box::new(world))?;
                    let cut = PartitionedAdjacency::new(Arc::clone(&source), adjacency, &ranks, wire)?;
                    Ok(sizes(&cpu, &cut.blocks(&cpu, &ranks, transpose)?))
                });
                let found = found.unwrap_or_else(|failure| panic!("{}", failure.message));
                let planned = |rank: usize| {
                    let symbolic = Symbolic::cuda(config.precision, None);
                    let ranks = SymbolicRank::ranks(&symbolic_blocks.plan, rank, network(true), &symbolic);
                    sizes(&symbolic, &symbolic_blocks.blocks(&symbolic, &ranks, transpose).unwrap())
                };
                let planned: Vec<Sizes> = (0..found.len()).map(planned).collect();
                assert_eq!(planned, found, "{options:?}, {transpose:?}");
            }
        }
    }
}

/// Traffic of each rank in an epoch that trains, without scores.
fn epoch_traffic(dataset: &Dataset, config: &TrainConfig, options: &RankOptions) -> Vec<Traffic> {
    let shared = PartitionedData::new(&Cpu::new(), dataset.clone(), &config.model, config, options).unwrap();
    let of_rank = |world: Box<dyn girih_comm::Collective<Cpu>>| -> Result<_, TrainError> {
        let (ranks, mut seen) = (shared.ranks(world)?, Vec::new());
        shared.train_all_runs(
            &Cpu::new(),
            &ranks,
            (config, &config.model),
            &SessionOptions::default(),
            &mut |event| {
                if let Event::Epoch { .. } = event {
                    seen.push(ranks.world().traffic());
                }
                Control::Continue
            },
        )?;
        Ok(Traffic { sent: seen[1].sent - seen[0].sent, received: seen[1].received - seen[0].received })
    };
    threads::run(options.grid.ranks(), options.deadline, |world| of_rank(Box::new(world)))
        .unwrap_or_else(|failure| panic!("{}", failure.message))
}

#[test]
fn plans_exchange_what_ranks_do() {
    let dataset = few();
    let data = DataSizes::of(&dataset);
    let model = |kind, norm| ModelConfig { kind, norm, hidden: 9, ..TrainConfig::for_model(kind).model };
    for model in [
        model(ModelKind::Gcn, NormKind::Batch),
        model(ModelKind::Sage, NormKind::None),
        model(ModelKind::Gat, NormKind::None),
        ModelConfig { dropout: 0.0, ..model(ModelKind::Gcn, NormKind::None) },
    ] {
        let config = TrainConfig { model, epochs: 3, eval_every: 3, ..TrainConfig::default() };
        let graph = SymbolicGraph::of(&dataset.graph, &config, &data).unwrap();
        for options in sharings() {
            let found = epoch_traffic(&dataset, &config, &options);
            let (devices, network) = (&[PlanDevice::Gpu(None)], network(true));
            let planner = RankPlanner { config: &config, data: &data, graph: &graph, devices, network };
            let plans = planner.plan(&options).unwrap();
            let planned: Vec<Traffic> = plans.ranks.iter().map(|plan| plan.exchanged).collect();
            assert_eq!(planned, found, "{:?}, {options:?}", config.model.kind);
        }
    }
}

/// Maximum bytes of a GPU among `n_ranks` that each hold a patch of a large graph.
fn bytes_of_patches(n_ranks: usize, config: &TrainConfig, data: &DataSizes) -> u64 {
    bytes_of_layout(GraphPlacement::Patches, n_ranks, config, data)
}

/// Maximum bytes of a GPU among `n_ranks` that divide a large graph by a layout.
fn bytes_of_layout(layout: GraphPlacement, n_ranks: usize, config: &TrainConfig, data: &DataSizes) -> u64 {
    let grid = ProcessGrid::new(Scheme::OneD, n_ranks, 1).unwrap();
    let options = RankOptions::new(grid, Exchange::Rows, Duration::from_secs(30));
    let options = RankOptions { layout, stages: Stages::Parts(1), ..options };
    let (graph, devices) = (SymbolicGraph::even(config, data).unwrap(), &[PlanDevice::Gpu(None)]);
    let planner = RankPlanner { config, data, graph: &graph, devices, network: network(true) };
    assert!(planner.plan_patches(&RankOptions { layout: GraphPlacement::Replicated, ..options }).is_err());
    assert!(planner.plan(&options).is_err(), "batches have no times");
    planner.plan_patches(&options).unwrap().most(|plan| plan.peak_bytes)
}

#[test]
fn patches_take_less_of_each_gpu_the_more_there_are() {
    let data = DataSizes {
        n_nodes: 3_000_000,
        n_edges: 60_000_000,
        n_train: 300_000,
        n_features: 200,
        ..DataSizes::of(&few())
    };
    let batch = BatchConfig { kind: BatchKind::Neighbor, fanout: vec![5, 4], ..BatchConfig::default() };
    let config = TrainConfig { batch, batch_size: Some(512), ..TrainConfig::for_model(ModelKind::Sage) };
    let whole = Plan::on_cuda(&config, &data).unwrap().peak_bytes;
    let [two, four] = [2, 4].map(|n_ranks| bytes_of_patches(n_ranks, &config, &data));
    assert!(four < two && two < whole, "{four}, {two}, {whole}");
    // Each rank has its rows of features, its rows of the adjacency to sample from and to score with, and offsets of
    // all nodes.
    let least = |n_ranks: u64| (3_000_000 * 200 * 4 + 60_000_000 * 4 * 2) / n_ranks + 3_000_000 * 8;
    assert!(two > least(2) && four > least(4), "{two}, {four}");
    let more_seeds = TrainConfig { batch_size: Some(4096), ..config.clone() };
    assert!(bytes_of_patches(4, &more_seeds, &data) > four, "a GPU may own all seeds of a batch");
    let codes = DataSizes { code_bytes: Some(16), has_code_book: true, ..data.clone() };
    assert!(bytes_of_patches(4, &config, &codes) < four, "codes stay codes");
    let halves = TrainConfig { precision: Dtype::Bf16, ..config.clone() };
    assert!(bytes_of_patches(4, &halves, &data) < four);
    // With the whole graph, a GPU samples from all of it. With a tenth of the features on each GPU, hosts hold their
    // own rows.
    let split = |config: &TrainConfig| bytes_of_layout(GraphPlacement::SplitFeatures, 4, config, &data);
    assert!(split(&config) > four, "{} instead of more than {four}", split(&config));
    let hot =
        TrainConfig { tiers: CacheConfig { features: "0.1".parse().ok(), ..CacheConfig::default() }, ..config.clone() };
    let most = split(&config) - 3_000_000 * 200 * 4 * 3 / 20;
    // Addresses of all rows, positions of the rows of features and of the scores' inputs and outputs, and the
    // previous batch.
    let beside = 3_000_000 * (8 + 3 * 4) + 16_000 * 900;
    assert!(split(&hot) < most + beside, "{} instead of at most {most} and {beside}", split(&hot));
}
