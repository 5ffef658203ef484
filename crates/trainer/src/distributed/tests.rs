//! Compares products on ranks with those on one device, and their traffic with the plans. Ranks end with identical
//! bits.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use girih_comm::{Traffic, threads};
use girih_compute::{
    Activation, Backend, ComputeError, Cpu, Dtype, Epilogue, Rates, Shape, Slope, SparseOperand, Transpose,
};
use girih_datasets::{DataSource, Dataset, Interactions, LoadOptions, load};
use girih_graph_format::{Coo, Csr, Duplicates, Matrix, Norm};
use girih_partition::{BlockPlan, Cuts, Exchange, Halo, LinkRates, ProcessGrid, Schedule, Scheme, Stages};
use girih_random::Key;

use super::blocks::{BlockSource, Blocks, Chunks, PanelExchange, Panels};
use super::data::PartitionedData;
use super::session::{GraphPlacement, RankOptions};
use super::symbolic::SymbolicRank;
use super::{
    LazyGemm, Links, LocalOperand, Network, PartitionedAdjacency, PartitionedGraph, RankPlanner, Ranks, SymbolicGraph,
    Through,
};
use crate::batching::{BatchConfig, BatchKind};
use crate::checkpoint::Checkpoint;
use crate::config::{ModelConfig, ModelKind, NormKind, OptimizerConfig, TrainConfig};
use crate::graph::Graph;
use crate::inputs::Adjacency;
use crate::params::{Gradients, ParamInit};
use crate::tape::{AggregateOptions, LinearOptions, Mode, Pool, Tape};
use crate::targets::Targets;
use crate::{CacheConfig, Control, DataSizes, Event, Plan, PlanDevice, SessionOptions, TrainError, checkpoint_path};

const N: usize = 53;
/// Number of columns: several cache lines, so that operands are sent in feature chunks, and some columns more.
const COLS: usize = 272;

fn graph() -> Csr {
    let (rows, cols): (Vec<u32>, Vec<u32>) =
        (0..N as u32).flat_map(|v| [(v, (v * v + 1) % 53), (v, (7 * v + 3) % 53), (v % 9, v)]).unzip();
    Coo::new(N, N, rows, cols, None).unwrap().to_csr(Duplicates::Merge).unwrap()
}

fn operand() -> Matrix {
    Matrix::new(N, COLS, (0..N * COLS).map(|i| (i % 13) as f32 - 6.0).collect::<Vec<_>>()).unwrap()
}

/// Adjacencies that are symmetric or not, with weights or without.
fn adjacencies() -> [(Csr, Adjacency); 3] {
    let weights: Vec<f32> = (0..graph().nnz()).map(|e| 0.25 + (e % 7) as f32).collect();
    let weighted = graph().with_values(Some(weights.into())).unwrap();
    let looped = Adjacency::new(true, Norm::Symmetric);
    let rows = Adjacency::new(false, Norm::Row);
    [(graph(), rows), (weighted.symmetrized(), looped), (weighted, looped)]
}

/// `A`, with self loops if the adjacency has them.
fn looped(graph: &Csr, adjacency: Adjacency) -> Csr {
    if adjacency.self_loops { graph.with_self_loops() } else { graph.clone() }
}

/// `op(Â)·X` on one device.
fn whole(graph: &Csr, adjacency: Adjacency, transpose: Transpose) -> Matrix {
    let cpu = Cpu::new();
    let csr = looped(graph, adjacency);
    let scales = csr.scales(adjacency.norm);
    let csr = if transpose == Transpose::Yes { csr.transposed() } else { csr };
    let scales = if transpose == Transpose::Yes { scales.transposed() } else { scales };
    let operand_ = SparseOperand { csr: &csr, scales, symmetric: false, names: None };
    let (a, x) = (cpu.upload_sparse(&operand_).unwrap(), cpu.upload(&operand(), Dtype::F32).unwrap());
    let mut out = cpu.zeros(Shape::new(N, COLS), Dtype::F32).unwrap();
    cpu.spmm((&a, Transpose::No), None, &x, Epilogue::default(), &mut out).unwrap();
    cpu.download(&out).unwrap()
}

#[test]
fn products_are_those_of_the_whole_and_move_the_bytes_of_the_plan() {
    for (scheme, p, r) in [
        (Scheme::OneD, 4, 1),
        (Scheme::OneAndHalfD, 4, 2),
        (Scheme::OneAndHalfD, 6, 3),
        (Scheme::TwoD, 9, 1),
        (Scheme::ThreeD, 8, 1),
    ] {
        for exchange in [Exchange::Dense, Exchange::Rows, Exchange::Auto] {
            for transpose in [Transpose::No, Transpose::Yes] {
                for (cuts, stages, chunks) in [
                    (Cuts::Equal, Stages::Steps, 1),
                    (Cuts::Equal, Stages::Turns, 1),
                    (Cuts::Weighted, Stages::Parts(2), 2),
                    (Cuts::Equal, Stages::Parts(1), 3),
                ] {
                    let plan = BlockPlan::of_graph(&ProcessGrid::new(scheme, p, r).unwrap(), graph().indptr(), cuts);
                    let plan = Arc::new(plan.unwrap().in_stages(stages).in_chunks(chunks));
                    for (graph, adjacency) in adjacencies() {
                        for wire in [Dtype::F32, Dtype::Bf16] {
                            check((&graph, adjacency), &plan, (exchange, wire), transpose);
                        }
                    }
                }
            }
        }
    }
}

fn check(
    (graph, adjacency): (&Csr, Adjacency),
    plan: &Arc<BlockPlan>,
    (exchange, wire): (Exchange, Dtype),
    transpose: Transpose,
) {
    let p = plan.ranks.len();
    let dataset = Dataset::new("small", graph.clone(), None, None, Vec::new()).unwrap();
    let source = Arc::new(DataSource::from(dataset));
    let results = threads::run(p, Duration::from_secs(30), |world| -> Result<_, TrainError> {
        let (cpu, mut pool) = (Cpu::new(), Pool::default());
        let ranks = Arc::new(Ranks::<Cpu>::new(Arc::clone(plan), Box::new(world))?);
        let own = ranks.own();
        let mine = Matrix::new(own.len(), COLS, operand().data()[own.start * COLS..own.end * COLS].to_vec())?;
        let (x, mut out) = (cpu.upload(&mine, Dtype::F32)?, cpu.zeros(Shape::new(own.len(), COLS), Dtype::F32)?);
        let cut = PartitionedAdjacency::new(Arc::clone(&source), adjacency, &ranks, (exchange, wire))?;
        let graph = PartitionedGraph::new(Arc::clone(&ranks), Arc::new(cut));
        let before = ranks.world().traffic();
        graph.multiply(&cpu, &mut pool, transpose, LocalOperand::Matrix(&x), &Epilogue::default(), &mut out)?;
        let after = ranks.world().traffic();
        let moved = Traffic { sent: after.sent - before.sent, received: after.received - before.received };
        Ok((cpu.download(&ranks.gather(&cpu, &mut pool, &out)?)?, moved))
    })
    .unwrap_or_else(|failure| panic!("{}", failure.message));

    let what = format!("{}, {exchange}, {transpose:?}", plan.grid);
    let expected = whole(graph, adjacency, transpose);
    let csr = looped(graph, adjacency);
    let csr = if transpose == Transpose::Yes { csr.transposed() } else { csr };
    let volumes = plan.volumes(Some(&Schedule::new(plan, &csr, exchange)), COLS, wire.n_bytes());
    // Sums are sent as f32, whatever the type of operands.
    let is_operand_alone = plan.grid.scheme() == Scheme::OneD;
    // Rounding to bf16 is off by up to 2^-9 of each operand; signs of operands differ.
    let error = if wire == Dtype::F32 { 1e-5 } else { 2e-2 };
    for ((found, moved), volume) in results.into_iter().zip(volumes) {
        if wire == Dtype::F32 || is_operand_alone {
            assert_eq!(moved, Traffic { sent: volume.sent, received: volume.received }, "{what}");
        }
        for (a, b) in expected.data().iter().zip(found.data()) {
            assert!((a - b).abs() <= error * a.abs().max(1.0), "{what}: {b} instead of {a}");
        }
    }
}

/// Small whole numbers, so that sums are exact in any order.
fn whole_numbers(rows: Range<usize>, cols: usize, period: usize) -> Matrix {
    let values = (rows.start * cols..rows.end * cols).map(|i| (i * i % period) as f32 - (period / 2) as f32);
    Matrix::new(rows.len(), cols, values.collect::<Vec<_>>()).unwrap()
}

/// Lazy products `X·W`, with and without the backward pass of an epilogue, give the same results as stored matrices.
#[test]
fn dense_products_are_multiplied_while_they_are_made() {
    const INNER: usize = 5;
    for (scheme, p, r, stages) in [
        (Scheme::OneD, 3, 1, Stages::Steps),
        (Scheme::OneD, 3, 1, Stages::Turns),
        (Scheme::OneD, 3, 1, Stages::Parts(3)),
        (Scheme::OneAndHalfD, 4, 2, Stages::Parts(2)),
        (Scheme::TwoD, 4, 1, Stages::Parts(3)),
    ] {
        let plan = Arc::new(BlockPlan::new(&ProcessGrid::new(scheme, p, r).unwrap(), N).unwrap().in_stages(stages));
        for (graph, adjacency) in adjacencies() {
            for wire in [Dtype::F32, Dtype::Bf16] {
                let dataset = Dataset::new("small", graph.clone(), None, None, Vec::new()).unwrap();
                let source = Arc::new(DataSource::from(dataset));
                let checked = threads::run(p, Duration::from_secs(30), |world| -> Result<_, TrainError> {
                    let (cpu, mut pool) = (Cpu::new(), Pool::default());
                    let ranks = Arc::new(Ranks::<Cpu>::new(Arc::clone(&plan), Box::new(world))?);
                    let cut =
                        PartitionedAdjacency::new(Arc::clone(&source), adjacency, &ranks, (Exchange::Auto, wire))?;
                    let (graph, own) = (PartitionedGraph::new(Arc::clone(&ranks), Arc::new(cut)), ranks.own());
                    let shape = Shape::new(own.len(), COLS);
                    let zeros = |shape| cpu.zeros(shape, Dtype::F32);
                    let mut multiplied = |rows: LocalOperand<'_, Cpu>| -> Result<Matrix, ComputeError> {
                        let mut out = zeros(shape)?;
                        graph.multiply(&cpu, &mut pool, Transpose::Yes, rows, &Epilogue::default(), &mut out)?;
                        cpu.download(&out)
                    };
                    let upload = |matrix: Matrix| cpu.upload(&matrix, Dtype::F32);
                    let (x, y) = (upload(whole_numbers(own.clone(), INNER, 7))?, upload(whole_numbers(own, COLS, 5))?);
                    let slope = Slope { activation: Activation::Relu, kept: 2.0 };
                    for (transpose, (rows, cols)) in [(Transpose::No, (INNER, COLS)), (Transpose::Yes, (COLS, INNER))] {
                        let weight = upload(whole_numbers(0..rows, cols, 11))?;
                        let weight = (&weight, transpose);
                        let mut made = zeros(shape)?;
                        cpu.gemm((&x, Transpose::No), None, weight, Epilogue::default(), &mut made)?;
                        let product = LazyGemm { x: &x, weight, through: None };
                        assert_eq!(
                            multiplied(LocalOperand::LazyGemm(product))?,
                            multiplied(LocalOperand::Matrix(&made))?
                        );

                        let (mut sums, mut expected) = (zeros(Shape::new(1, COLS))?, zeros(Shape::new(1, COLS))?);
                        cpu.epilogue_backward(slope, &y, &mut made, Some(&mut expected))?;
                        let through = Some(Through { slope, y: &y, bias_grad: Some(&mut sums) });
                        let product = LazyGemm { x: &x, weight, through };
                        assert_eq!(
                            multiplied(LocalOperand::LazyGemm(product))?,
                            multiplied(LocalOperand::Matrix(&made))?
                        );
                        assert_eq!(cpu.download(&sums)?, cpu.download(&expected)?);
                    }
                    Ok(())
                });
                checked.unwrap_or_else(|failure| panic!("{stages}, {wire:?}: {}", failure.message));
            }
        }
    }
}

/// Gradients of two branches that aggregate the same rows and are added up.
fn gradients_of_branches(cpu: &Cpu, graph: &Graph<Cpu>) -> Result<Vec<Matrix>, ComputeError> {
    const INNER: usize = 5;
    let mut init = ParamInit::new(cpu, 3, 0);
    let mut branch = |layer| -> Result<_, ComputeError> {
        let weight = init.glorot(layer, "weight", Shape::new(INNER, COLS), INNER)?;
        let bias = init.zeros(layer, "bias", Shape::new(1, COLS))?;
        Ok((weight, bias, init.glorot(layer, "head", Shape::new(COLS, 3), COLS)?))
    };
    let branches = [branch(0)?, branch(1)?];
    let params = init.finish();
    let x = cpu.upload(&whole_numbers(0..N, INNER, 7), Dtype::F32)?;
    let targets = Targets::Single(cpu.upload_ids(&(0..N as u32).map(|node| node % 3).collect::<Vec<_>>())?);
    let (rows, mut pool) = (cpu.upload_ids(&(0..N as u32).collect::<Vec<_>>())?, Pool::default());
    let mut tape = Tape::new(cpu, &params, &mut pool, Mode::Train(Key::new(5, 1)));
    let x = tape.constant(&x);
    let hidden = branches.map(|(weight, bias, _)| {
        let (weight, bias) = (tape.param(weight), Some(tape.param(bias)));
        let options = AggregateOptions { bias, activation: Activation::Relu, ..AggregateOptions::default() };
        tape.aggregate_product(graph, (x, weight), options)
    });
    let [first, second] = hidden;
    let head = tape.param(branches[0].2);
    let sum = tape.linear(first?, head, LinearOptions::default())?;
    let head = tape.param(branches[1].2);
    let logits = tape.linear(second?, head, LinearOptions { add: Some(sum), ..LinearOptions::default() })?;
    let loss = tape.loss(logits, &targets, &rows)?;
    let mut gradients = Gradients::new(cpu, &params)?;
    tape.backward(loss, &mut gradients)?;
    params.iter().map(|(id, _)| cpu.download(gradients.get(id).expect("a share for each"))).collect()
}

/// In the backward pass, the second branch's aggregation starts while the first branch's input gradient is deferred.
#[test]
fn a_gradient_that_is_left_is_made_before_another_product_waits() {
    let (graph, adjacency) = adjacencies().into_iter().nth(1).unwrap();
    let (cpu, csr) = (Cpu::new(), looped(&graph, adjacency));
    let operand = SparseOperand { csr: &csr, scales: csr.scales(adjacency.norm), symmetric: false, names: None };
    let whole = gradients_of_branches(&cpu, &Graph::Whole(cpu.upload_sparse(&operand).unwrap())).unwrap();
    let plan = Arc::new(BlockPlan::new(&ProcessGrid::new(Scheme::OneD, 1, 1).unwrap(), N).unwrap());
    let source = Arc::new(DataSource::from(Dataset::new("small", graph, None, None, Vec::new()).unwrap()));
    let cut = threads::run(1, Duration::from_secs(30), |world| -> Result<_, TrainError> {
        let ranks = Arc::new(Ranks::<Cpu>::new(Arc::clone(&plan), Box::new(world))?);
        let cut = PartitionedAdjacency::new(Arc::clone(&source), adjacency, &ranks, (Exchange::Auto, Dtype::F32))?;
        Ok(gradients_of_branches(&cpu, &Graph::Partitioned(Box::new(PartitionedGraph::new(ranks, Arc::new(cut)))))?)
    });
    let cut = cut.unwrap_or_else(|failure| panic!("{}", failure.message)).pop().unwrap();
    for (param, (whole, cut)) in whole.iter().zip(&cut).enumerate() {
        assert!(whole.data().iter().any(|x| *x != 0.0), "parameter {param}");
        for (a, b) in whole.data().iter().zip(cut.data()) {
            assert!((a - b).abs() <= 1e-5 * a.abs().max(1e-2), "parameter {param}: {b} instead of {a}");
        }
    }
}

#[test]
fn neighbours_of_own_rows_are_fetched_from_who_holds_them() {
    for (scheme, p, r) in
        [(Scheme::OneD, 3, 1), (Scheme::OneAndHalfD, 4, 2), (Scheme::TwoD, 4, 1), (Scheme::ThreeD, 8, 1)]
    {
        let plan = Arc::new(BlockPlan::new(&ProcessGrid::new(scheme, p, r).unwrap(), N).unwrap());
        let adjacency = Adjacency::new(true, Norm::None);
        let halo = Halo::new(&plan, &looped(&graph(), adjacency));
        let source = Arc::new(DataSource::from(Dataset::new("small", graph(), None, None, Vec::new()).unwrap()));
        let fetched = threads::run(p, Duration::from_secs(30), |world| -> Result<_, TrainError> {
            let (cpu, mut pool) = (Cpu::new(), Pool::default());
            let ranks = Arc::new(Ranks::<Cpu>::new(Arc::clone(&plan), Box::new(world))?);
            let cut = PartitionedAdjacency::new(Arc::clone(&source), adjacency, &ranks, (Exchange::Auto, Dtype::F32))?;
            let pattern = cut.pattern(&cpu, &ranks)?;
            let ids: Vec<f32> = ranks.own().map(|node| node as f32).collect();
            let ids = cpu.upload(&Matrix::new(ids.len(), 1, ids)?, Dtype::F32)?;
            let fetched = cpu.download(&pattern.rows.fetch(&cpu, &mut pool, &ids, Dtype::F32)?)?;
            Ok((fetched.data().to_vec(), cpu.nnz(&pattern.matrix)))
        });
        let fetched = fetched.unwrap_or_else(|failure| panic!("{}", failure.message));
        for (rank, (fetched, nnz)) in fetched.into_iter().enumerate() {
            let wanted: Vec<f32> = halo.of(rank).rows.iter().map(|&node| node as f32).collect();
            let rows = looped(&graph(), adjacency).row_slice(plan.ranks[rank].own.clone());
            assert_eq!((fetched, nnz), (wanted, rows.nnz()), "{scheme:?}, rank {rank}");
        }
    }
}

/// Checkpoint of each rank of a partition after a few epochs; only some ranks have one.
fn checkpoints(
    dataset: &Dataset,
    config: &TrainConfig,
    (scheme, p, r): (Scheme, usize, usize),
) -> Vec<Option<Checkpoint>> {
    let grid = ProcessGrid::new(scheme, p, r).unwrap();
    let options = RankOptions::new(grid, Exchange::Auto, Duration::from_secs(30));
    let shared = PartitionedData::new(&Cpu::new(), dataset.clone(), config, &options).unwrap();
    let of_rank = |world: Box<dyn girih_comm::Collective<Cpu>>| -> Result<_, TrainError> {
        let folder = tempfile::tempdir().unwrap();
        let session = SessionOptions { checkpoints: Some(folder.path().to_owned()), ..SessionOptions::default() };
        let ranks = Arc::new(Ranks::new(Arc::clone(&shared.plan), world)?);
        shared.train_all_runs(&Cpu::new(), &ranks, config, &session, &mut |_| Control::Continue)?;
        let path = checkpoint_path(folder.path(), 0);
        path.exists().then(|| Checkpoint::load(&path)).transpose()
    };
    threads::run(p, options.deadline, |world| of_rank(Box::new(world)))
        .unwrap_or_else(|failure| panic!("{}", failure.message))
}

#[test]
fn parameters_and_the_optimisers_state_are_the_same_on_all_ranks() {
    let nodes = few();
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
            let (first, others) = found.split_first().unwrap();
            let what = format!("{partition:?}: {:?}", config.model.kind);
            if let Some(embedding) = first.as_ref().unwrap().params.get("layer0.embedding") {
                assert_eq!(embedding.n_rows(), dataset.n_nodes(), "the rows of all ranks");
                assert!(others.iter().all(Option::is_none), "{what}: the first has them alone");
            } else {
                assert!(others.iter().all(|checkpoint| checkpoint == first), "{what}");
            }
        }
    }
}

fn few() -> Dataset {
    load("synth:planted,nodes=83,degree=6,features=12,classes=3", &LoadOptions::default()).unwrap()
}

fn network(overlaps: bool) -> Network {
    Network::one_host(Links::alike(LinkRates { latency: 1e-6, bytes_per_second: 1e10 }), overlaps)
}

/// Partitions with every kind of cut and exchange.
fn sharings() -> Vec<RankOptions> {
    let partitions = [(Scheme::OneD, 3, 1), (Scheme::OneAndHalfD, 4, 2), (Scheme::TwoD, 4, 1), (Scheme::ThreeD, 8, 1)];
    let mut sharings = Vec::new();
    for (scheme, p, r) in partitions {
        for exchange in [Exchange::Dense, Exchange::Rows, Exchange::Auto] {
            for (cuts, stages, chunks, wire) in [
                (Cuts::Equal, Stages::Steps, 1, Dtype::F32),
                (Cuts::Weighted, Stages::Turns, 1, Dtype::F32),
                (Cuts::Weighted, Stages::Parts(1), 2, Dtype::F32),
                (Cuts::Equal, Stages::Parts(2), 3, Dtype::Bf16),
                (Cuts::Equal, Stages::Parts(3), 1, Dtype::F32),
            ] {
                let grid = ProcessGrid::new(scheme, p, r).unwrap();
                let options = RankOptions::new(grid, exchange, Duration::from_secs(30));
                sharings.push(RankOptions { cuts, stages, chunks, wire, ..options });
            }
        }
    }
    sharings
}

/// Shapes of the chunks of each of a rank's blocks; the entries of its own block and of all others; the rows
/// received.
type Sizes = (Vec<Vec<Shape>>, [usize; 2], Vec<Vec<usize>>);

fn sizes<B: Backend>(backend: &B, blocks: &Blocks<B>) -> Sizes {
    let own = || blocks.own.iter();
    let others = || blocks.together.iter().filter_map(|some| some.matrix.as_ref());
    let shapes = |chunks: &Chunks<B>| chunks.iter().map(|matrix| backend.sparse_shape(matrix)).collect();
    let nnz = |chunks: &Chunks<B>| -> usize { chunks.iter().map(|matrix| backend.nnz(matrix)).sum() };
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
        let adjacency = data.input_spec(&config).unwrap().graph.unwrap();
        for options in sharings() {
            let symbolic_blocks = paper.cut(n, &options).unwrap();
            for transpose in [Transpose::No, Transpose::Yes] {
                let found = threads::run(options.grid.ranks(), options.deadline, |world| -> Result<_, TrainError> {
                    let (cpu, wire) = (Cpu::new(), (options.exchange, options.wire));
                    let ranks = Ranks::<Cpu>::new(Arc::clone(&symbolic_blocks.plan), Box::new(world))?;
                    let cut = PartitionedAdjacency::new(Arc::clone(&source), adjacency, &ranks, wire)?;
                    Ok(sizes(&cpu, &cut.blocks(&cpu, &ranks, transpose)?))
                });
                let found = found.unwrap_or_else(|failure| panic!("{}", failure.message));
                let planned = |rank: usize| {
                    let symbolic = PlanDevice::Gpu(None).symbolic(&config);
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
    let shared = PartitionedData::new(&Cpu::new(), dataset.clone(), config, options).unwrap();
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
fn patches_take_less_of_each_card_the_more_there_are() {
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
    assert!(bytes_of_patches(4, &more_seeds, &data) > four, "a card may own all seeds of a batch");
    let codes = DataSizes { code_bytes: Some(16), has_code_book: true, ..data };
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

/// Plan of an epoch on ranks of a large graph with evenly spread edges, in a 1D partition.
fn planned(stages: Stages, overlaps: bool) -> Plan {
    planned_on(stages, network(overlaps))
}

fn planned_on(stages: Stages, network: Network) -> Plan {
    let grid = ProcessGrid::new(Scheme::OneD, 4, 1).unwrap();
    let options = RankOptions::new(grid, Exchange::Dense, Duration::from_secs(30));
    planned_as(&RankOptions { stages, ..options }, network, 20)
}

fn planned_as(options: &RankOptions, network: Network, degree: usize) -> Plan {
    planned_by((Rates { stream_bytes: 1e10, gather_bytes: 1e10, flops: 1e12 }, network), options, 3, degree)
}

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
fn what_follows_a_chunk_goes_on_under_the_products_of_the_next() {
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

#[test]
fn rows_are_handed_over_in_order_and_in_pieces() {
    for (scheme, p, r) in [(Scheme::OneD, 5, 1), (Scheme::OneAndHalfD, 6, 3), (Scheme::TwoD, 4, 1)] {
        let plan = Arc::new(BlockPlan::new(&ProcessGrid::new(scheme, p, r).unwrap(), N).unwrap());
        let handed = threads::run(p, Duration::from_secs(30), |world| -> Result<_, TrainError> {
            let ranks: Ranks<Cpu> = Ranks::new(Arc::clone(&plan), Box::new(world))?;
            let mut pieces: Vec<Matrix> = Vec::new();
            let own = operand().row_slice(ranks.own());
            ranks.hand_rows(&own, 4 * own.n_cols(), &mut |rows| pieces.push(rows.clone()))?;
            Ok((pieces, ranks.gather_on_first(&own)?))
        });
        let (mut handed, gathered): (Vec<_>, Vec<_>) = handed.unwrap().into_iter().unzip();
        let first = handed.remove(0);
        assert!(gathered[0].as_ref() == Some(&operand()) && gathered[1..].iter().all(Option::is_none), "{scheme}");
        assert!(first.iter().all(|rows| (1..=4).contains(&rows.n_rows())), "{scheme}");
        assert_eq!(
            first.iter().flat_map(|rows| rows.data().to_vec()).collect::<Vec<_>>(),
            operand().data(),
            "{scheme}"
        );
        assert!(handed.iter().all(Vec::is_empty), "the first rank takes all");
    }
}
