//! Products on ranks against those on one device, and their traffic against the plan.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use girih_comm::{Traffic, threads};
use girih_compute::prelude::*;
use girih_compute::{Activation, ActivationGrad, ComputeError, Cpu, Dtype, Epilogue, Shape, SparseOperand, Transpose};
use girih_datasets::{DataSource, Dataset};
use girih_graph_format::{Csr, Matrix};
use girih_partition::{BlockPlan, Cuts, Exchange, ProcessGrid, Schedule, Scheme, Stages};
use girih_random::Key;
use girih_trainer::distributed::Ranks;
use girih_trainer::testing::{
    EpilogueBackward, LazyGemm, LocalOperand, PartitionedAdjacency, multiply, partitioned_graph,
};
use girih_trainer::{
    Adjacency, AggregateOptions, Gradients, Graph, LinearOptions, Mode, ParamInit, Pool, Tape, Targets, TrainError,
};

use super::small::{COLS, N, adjacencies, graph, looped, operand};

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

/// Compares products on ranks with the product on one device, and their traffic with the plan.
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
        let graph = partitioned_graph(Arc::clone(&ranks), Arc::new(cut));
        let before = ranks.world().traffic();
        multiply(&cpu, &mut pool, (&graph, transpose), LocalOperand::Matrix(&x), &mut out)?;
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
                    let (graph, own) = (partitioned_graph(Arc::clone(&ranks), Arc::new(cut)), ranks.own());
                    let shape = Shape::new(own.len(), COLS);
                    let zeros = |shape| cpu.zeros(shape, Dtype::F32);
                    let mut multiplied = |rows: LocalOperand<'_, Cpu>| -> Result<Matrix, ComputeError> {
                        let mut out = zeros(shape)?;
                        multiply(&cpu, &mut pool, (&graph, Transpose::Yes), rows, &mut out)?;
                        cpu.download(&out)
                    };
                    let upload = |matrix: Matrix| cpu.upload(&matrix, Dtype::F32);
                    let (x, y) = (upload(whole_numbers(own.clone(), INNER, 7))?, upload(whole_numbers(own, COLS, 5))?);
                    let slope = ActivationGrad { activation: Activation::Relu, kept: 2.0 };
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
                        let through = Some(EpilogueBackward { slope, y: &y, bias_grad: Some(&mut sums) });
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
        Ok(gradients_of_branches(&cpu, &Graph::Partitioned(Box::new(partitioned_graph(ranks, Arc::new(cut)))))?)
    });
    let cut = cut.unwrap_or_else(|failure| panic!("{}", failure.message)).pop().unwrap();
    for (param, (whole, cut)) in whole.iter().zip(&cut).enumerate() {
        assert!(whole.data().iter().any(|x| *x != 0.0), "parameter {param}");
        for (a, b) in whole.data().iter().zip(cut.data()) {
            assert!((a - b).abs() <= 1e-5 * a.abs().max(1e-2), "parameter {param}: {b} instead of {a}");
        }
    }
}
