//! Products move exactly the bytes that plans predict, and are the products of the whole; ranks end with the same bits.

use std::sync::Arc;
use std::time::Duration;

use girih_comm::{Traffic, threads};
use girih_compute::{Backend, Cpu, Dtype, Epilogue, Rates, Shape, Transpose};
use girih_datasets::{Dataset, Interactions, LoadOptions, load};
use girih_graph_format::{Coo, Csr, Duplicates, Matrix, Norm};
use girih_partition::{BlockPlan, Exchange, LinkRates, ProcessGrid, Schedule, Scheme};

use super::blocks::HostAdjacency;
use super::session::{CutData, RankOptions};
use super::{CutAdjacency, CutGraph, Links, Network, PaperGraph, RankPlanner, Ranks};
use crate::checkpoint::Checkpoint;
use crate::config::{ModelConfig, ModelKind, NormKind, OptimizerConfig, TrainConfig};
use crate::inputs::Adjacency;
use crate::tape::Pool;
use crate::{Control, DataSizes, Event, PlanDevice, SessionOptions, TrainError, checkpoint_path};

const N: usize = 53;
const COLS: usize = 7;

fn graph() -> Csr {
    let (rows, cols): (Vec<u32>, Vec<u32>) =
        (0..N as u32).flat_map(|v| [(v, (v * v + 1) % 53), (v, (7 * v + 3) % 53), (v % 9, v)]).unzip();
    Coo::new(N, N, rows, cols, None).unwrap().to_csr(Duplicates::Merge).unwrap()
}

fn operand() -> Matrix {
    Matrix::new(N, COLS, (0..N * COLS).map(|i| (i % 13) as f32 - 6.0).collect::<Vec<_>>()).unwrap()
}

/// `op(Â)·X` on one device.
fn whole(adjacency: Adjacency, transpose: Transpose) -> Matrix {
    let cpu = Cpu::new();
    let csr = graph();
    let csr = if transpose == Transpose::Yes { csr.transposed() } else { csr };
    let scales = graph().scales(adjacency.norm);
    let scales = if transpose == Transpose::Yes { scales.transposed() } else { scales };
    let operand_ = girih_compute::SparseOperand { csr: &csr, scales, symmetric: false, names: None };
    let (a, x) = (cpu.upload_sparse(&operand_).unwrap(), cpu.upload(&operand(), Dtype::F32).unwrap());
    let mut out = cpu.zeros(Shape::new(N, COLS), Dtype::F32).unwrap();
    cpu.spmm((&a, Transpose::No), None, &x, Epilogue::default(), &mut out).unwrap();
    cpu.download(&out).unwrap()
}

#[test]
fn products_are_those_of_the_whole_and_move_the_bytes_of_the_plan() {
    let adjacency = Adjacency { self_loops: false, norm: Norm::Row };
    for (scheme, p, r) in [
        (Scheme::OneD, 4, 1),
        (Scheme::OneAndHalfD, 4, 2),
        (Scheme::OneAndHalfD, 6, 3),
        (Scheme::TwoD, 9, 1),
        (Scheme::ThreeD, 8, 1),
    ] {
        for exchange in [Exchange::Dense, Exchange::Rows, Exchange::Auto] {
            for transpose in [Transpose::No, Transpose::Yes] {
                check(adjacency, (scheme, p, r), exchange, transpose);
            }
        }
    }
}

fn check(adjacency: Adjacency, (scheme, p, r): (Scheme, usize, usize), exchange: Exchange, transpose: Transpose) {
    let plan = Arc::new(BlockPlan::new(&ProcessGrid::new(scheme, p, r).unwrap(), N).unwrap());
    let host = Arc::new(HostAdjacency::new(&graph(), adjacency));
    let cut = Arc::new(CutAdjacency::new(host, Arc::clone(&plan), exchange));
    let results = threads::run(p, Duration::from_secs(30), |world| -> Result<_, TrainError> {
        let (cpu, mut pool) = (Cpu::new(), Pool::default());
        let ranks = Arc::new(Ranks::<Cpu>::new(Arc::clone(&plan), Box::new(world))?);
        let own = ranks.own();
        let mine = Matrix::new(own.len(), COLS, operand().data()[own.start * COLS..own.end * COLS].to_vec())?;
        let (x, mut out) = (cpu.upload(&mine, Dtype::F32)?, cpu.zeros(Shape::new(own.len(), COLS), Dtype::F32)?);
        let graph = CutGraph::new(Arc::clone(&ranks), Arc::<CutAdjacency>::clone(&cut));
        let before = ranks.world().traffic();
        graph.multiply(&cpu, &mut pool, transpose, &x, &Epilogue::default(), &mut out)?;
        let after = ranks.world().traffic();
        let moved = Traffic { sent: after.sent - before.sent, received: after.received - before.received };
        Ok((cpu.download(&ranks.gather(&cpu, &mut pool, &out)?)?, moved))
    })
    .unwrap_or_else(|failure| panic!("{}", failure.message));

    let what = format!("{}, {exchange}, {transpose:?}", plan.grid);
    let expected = whole(adjacency, transpose);
    let csr = if transpose == Transpose::Yes { graph().transposed() } else { graph() };
    let volumes = plan.volumes(Some(&Schedule::new(&plan, &csr, exchange)), COLS, 4);
    for ((found, moved), volume) in results.into_iter().zip(volumes) {
        assert_eq!(moved, Traffic { sent: volume.sent, received: volume.received }, "{what}");
        for (a, b) in expected.data().iter().zip(found.data()) {
            assert!((a - b).abs() <= 1e-5 * a.abs().max(1.0), "{what}: {b} instead of {a}");
        }
    }
}

/// What each rank of a partition would write after a few epochs.
fn checkpoints(dataset: &Dataset, config: &TrainConfig, (scheme, p, r): (Scheme, usize, usize)) -> Vec<Checkpoint> {
    let grid = ProcessGrid::new(scheme, p, r).unwrap();
    let options = RankOptions { grid, exchange: Exchange::Auto, deadline: Duration::from_secs(30) };
    let shared = CutData::new(&Cpu::new(), dataset.clone(), config, &options).unwrap();
    let of_rank = |world: Box<dyn girih_comm::Collective<Cpu>>| -> Result<_, TrainError> {
        let folder = tempfile::tempdir().unwrap();
        let session = SessionOptions { checkpoints: Some(folder.path().to_owned()), ..SessionOptions::default() };
        let ranks = Arc::new(Ranks::new(Arc::clone(&shared.plan), world)?);
        shared.train_all_runs(&Cpu::new(), &ranks, config, &session, &mut |_| Control::Continue)?;
        Checkpoint::load(&checkpoint_path(folder.path(), 0))
    };
    threads::run(p, options.deadline, |world| of_rank(Box::new(world)))
        .unwrap_or_else(|failure| panic!("{}", failure.message))
}

#[test]
fn parameters_and_the_optimisers_state_are_the_same_on_all_ranks() {
    let nodes = load("synth:planted,nodes=83,degree=6,features=12,classes=3", &LoadOptions::default()).unwrap();
    let normalised = TrainConfig {
        model: ModelConfig { hidden: 9, norm: NormKind::Batch, ..ModelConfig::default() },
        epochs: 4,
        ..TrainConfig::default()
    };
    let pairs = (0..20u32).flat_map(|user| [(user, user), (user, user + 13), (user, user * user % 30)]);
    let (users, items): (Vec<u32>, Vec<u32>) = pairs.unzip();
    let train = Coo::new(20, 33, users, items, None).unwrap().to_csr(Duplicates::Merge).unwrap();
    let test = Coo::new(20, 33, (0..10).collect(), vec![31; 10], None).unwrap().to_csr(Duplicates::Merge).unwrap();
    let interactions = Interactions::new(train, test).unwrap();
    let users_and_items = Dataset::of_interactions("few", interactions).unwrap();
    let published = TrainConfig::for_model(ModelKind::LightGcn);
    let recommender = TrainConfig {
        model: ModelConfig { hidden: 6, ..published.model },
        optimizer: OptimizerConfig { lr: 0.01, ..published.optimizer },
        epochs: 4,
        batch_size: Some(25),
        ..published
    };
    for partition in [(Scheme::OneD, 3, 1), (Scheme::OneAndHalfD, 6, 3), (Scheme::TwoD, 4, 1), (Scheme::ThreeD, 8, 1)] {
        for (dataset, config) in [(&nodes, &normalised), (&users_and_items, &recommender)] {
            let found = checkpoints(dataset, config, partition);
            if let Some(embedding) = found[0].params.get("layer0.embedding") {
                assert_eq!(embedding.n_rows(), dataset.n_nodes(), "the rows of all ranks");
            }
            assert!(found.iter().all(|checkpoint| *checkpoint == found[0]), "{partition:?}: {:?}", config.model.kind);
        }
    }
}

/// What each rank exchanges in an epoch that trains and evaluates nothing.
fn epoch_traffic(dataset: &Dataset, config: &TrainConfig, options: &RankOptions) -> Vec<Traffic> {
    let shared = CutData::new(&Cpu::new(), dataset.clone(), config, options).unwrap();
    let of_rank = |world: Box<dyn girih_comm::Collective<Cpu>>| -> Result<_, TrainError> {
        let (ranks, mut seen) = (Arc::new(Ranks::new(Arc::clone(&shared.plan), world)?), Vec::new());
        shared.train_all_runs(&Cpu::new(), &ranks, config, &SessionOptions::default(), &mut |event| {
            if let Event::Epoch { .. } = event {
                seen.push(ranks.world().traffic());
            }
            Control::Continue
        })?;
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
        let graph = PaperGraph::of(&dataset.graph, &config, &data).unwrap();
        for (scheme, p, r) in
            [(Scheme::OneD, 3, 1), (Scheme::OneAndHalfD, 4, 2), (Scheme::TwoD, 4, 1), (Scheme::ThreeD, 8, 1)]
        {
            for exchange in [Exchange::Dense, Exchange::Rows] {
                let grid = ProcessGrid::new(scheme, p, r).unwrap();
                let found = epoch_traffic(
                    &dataset,
                    &config,
                    &RankOptions { grid, exchange, deadline: Duration::from_secs(30) },
                );
                let link = LinkRates { latency: 0.0, bytes_per_second: 1e9 };
                let network = Network::one_host(Links::alike(link), true);
                let device = PlanDevice::Card(None);
                let planner = RankPlanner { config: &config, data: &data, graph: &graph, device, network };
                let plans = planner.plan(&grid, exchange).unwrap();
                let planned: Vec<Traffic> = plans.ranks.iter().map(|plan| plan.exchanged).collect();
                assert_eq!(planned, found, "{:?}, {grid}, {exchange}", config.model.kind);
            }
        }
    }
}

#[test]
fn exchanges_that_are_begun_take_their_time_beside_products() {
    let data = DataSizes { n_nodes: 100_000, n_edges: 2_000_000, ..DataSizes::of(&few()) };
    let config = TrainConfig::default();
    let graph = PaperGraph::even(&config, &data).unwrap();
    let rates = Rates { stream_bytes: 1e10, gather_bytes: 1e10, flops: 1e12 };
    let link = LinkRates { latency: 1e-6, bytes_per_second: 1e10 };
    let epoch = |overlaps| {
        let network = Network::one_host(Links::alike(link), overlaps);
        let device = PlanDevice::Processor(rates);
        let planner = RankPlanner { config: &config, data: &data, graph: &graph, device, network };
        planner.plan(&ProcessGrid::new(Scheme::OneD, 4, 1).unwrap(), Exchange::Dense).unwrap().slowest().clone()
    };
    let (beside, after) = (epoch(true), epoch(false));
    assert_eq!(beside.exchange_seconds, after.exchange_seconds);
    assert!(beside.epoch_seconds < after.epoch_seconds, "{beside:?}, {after:?}");
    assert!(beside.epoch_seconds >= beside.product_seconds.max(beside.exchange_seconds));
}

fn few() -> Dataset {
    load("synth:planted,nodes=83,degree=6,features=12,classes=3", &LoadOptions::default()).unwrap()
}
