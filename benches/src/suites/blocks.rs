//! `blocks` and `gpu-blocks`: products of the blocks that a partition assigns to its ranks, sequentially on one
//! device, by node order. They reproduce figures 5 (blocks) and 9 (products) of paper A. Communication between ranks
//! is not included; `gpu-ranks` measures full epochs with it.
//!
//! An order covers the whole graph, divided into equal numbers of nodes (`whole`) or equal shares of nodes and edges
//! (`weighted`), or stays inside the row blocks of the partition (`inside`). The time of a rank is the sum over its
//! blocks; that of a product is the time of the slowest rank.
//!
//! `edges_m` is millions of edges.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Instant;

use girih_compute::prelude::*;
use girih_compute::{ComputeError, Cpu, Dtype, Epilogue, Shape, SparseOperand, Transpose};
use girih_graph_format::{Csr, Norm};
use girih_partition::{BlockPlan, Cuts, ProcessGrid, RankPlan, Scheme};
use girih_reorder::OrderKind;

use super::gpu::{self, Order};
use super::setup::{Setup, random_matrix};
use crate::timing::{Contestant, Protocol, Summary, compete};
use crate::{Case, Error, Report, graphs};

/// Columns of the operand, as in the paper.
const WIDTH: usize = 128;
/// Default orders to compare.
const ORDERS: [OrderKind; 6] =
    [OrderKind::None, OrderKind::Degree, OrderKind::Slashburn, OrderKind::Rcm, OrderKind::Metis, OrderKind::Community];
/// Partitions of the paper, and the square one: scheme, ranks, replication. Partitions with the same number of ranges
/// are adjacent, so that an order inside them is computed once.
const PLANS: [(Scheme, usize, usize); 6] = [
    (Scheme::OneD, 2, 1),
    (Scheme::OneAndHalfD, 4, 2),
    (Scheme::TwoD, 4, 1),
    (Scheme::OneD, 4, 1),
    (Scheme::OneAndHalfD, 8, 2),
    (Scheme::OneD, 8, 1),
];
/// Partition whose blocks are reported one by one.
const TOLD: (Scheme, usize, usize) = (Scheme::OneAndHalfD, 4, 2);
/// Graph for devices; features are not needed.
const GRAPH: &str = "synth:reddit,features=0";

/// Adds the cases of the CPU.
pub(super) fn on_cpu(setup: &Setup, report: &mut Report) -> Result<(), Error> {
    run(&Cpu::default(), graphs::DEFAULT, &by_the_wall, setup, report)
}

/// Adds the cases of the first CUDA device.
pub(super) fn on_device(setup: &Setup, report: &mut Report) -> Result<(), Error> {
    let cuda = gpu::open_device(report)?;
    run(&cuda, GRAPH, &|work| cuda.elapsed(|| Ok(work()?)), setup, report)
}

/// Measures the seconds of a product.
type Clock<'c> = dyn Fn(&mut dyn FnMut() -> Result<(), ComputeError>) -> Result<f64, Error> + 'c;

fn by_the_wall(work: &mut dyn FnMut() -> Result<(), ComputeError>) -> Result<f64, Error> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_secs_f64())
}

/// Scopes of an order, with the way in which panels are divided.
const PLACES: [(&str, Cuts); 3] = [("whole", Cuts::Equal), ("weighted", Cuts::Weighted), ("inside", Cuts::Equal)];

fn run<B: Backend>(
    backend: &B,
    default: &str,
    clock: &Clock<'_>,
    setup: &Setup,
    report: &mut Report,
) -> Result<(), Error> {
    let dataset = graphs::load(setup.graph_or(default))?;
    report.graph = Some(graphs::describe(&dataset));
    let graph = dataset.graph.with_values(None)?;
    let mut bench = Bench { backend, clock, protocol: setup.protocol, first: BTreeMap::new() };
    for &kind in setup.orders_or(&ORDERS) {
        let places = if kind == OrderKind::None { &PLACES[..1] } else { &PLACES[..] };
        let mut ordered: Option<(usize, Csr)> = None;
        for &(place, cuts) in places {
            let name = if kind == OrderKind::None { "none".to_owned() } else { format!("{kind}-{place}") };
            for plan @ (scheme, p, r) in PLANS {
                let grid = ProcessGrid::new(scheme, p, r)?;
                let n_blocks = if place == "inside" { grid.side() } else { 1 };
                if ordered.as_ref().is_none_or(|(n, _)| *n != n_blocks) {
                    let order = Order::inside(kind, n_blocks, &graph)?;
                    let permuted = order.permutation.map_or_else(|| graph.clone(), |order| graph.permuted(&order));
                    ordered = Some((n_blocks, permuted));
                }
                let (_, graph) = ordered.as_ref().expect("made above");
                let blocks = Blocks { graph, plan: BlockPlan::of_graph(&grid, graph.indptr(), cuts)? };
                report.cases.extend(bench.cases(&name, plan, &blocks)?);
            }
        }
    }
    Ok(())
}

/// Devices and settings of the measurements, with the times of each partition in the first order.
struct Bench<'a, B> {
    backend: &'a B,
    clock: &'a Clock<'a>,
    protocol: Protocol,
    first: BTreeMap<String, f64>,
}

impl<B: Backend> Bench<'_, B> {
    /// Case of the product of a plan in a node order; for one plan, also the cases of its blocks.
    fn cases(&mut self, order: &str, plan: (Scheme, usize, usize), blocks: &Blocks<'_>) -> Result<Vec<Case>, Error> {
        let of_plan = format!("{}/{}", plan.0, plan.1);
        let times = blocks.time(self.backend, self.clock, self.protocol)?;
        let case = blocks.slowest(format!("{order}/{of_plan}"), &times);
        let first = *self.first.entry(of_plan).or_insert(case.time.median_s);
        let gain = first / case.time.median_s;
        let mut cases = vec![case.with("x_first", gain)];
        if plan == TOLD {
            cases.extend(blocks.each(order, &times));
        }
        Ok(cases)
    }
}

/// First node of a panel, and the node after its last.
type Ends = (usize, usize);

/// Block of the adjacency, multiplied with some columns.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Block {
    rows: Ends,
    cols: Ends,
    width: usize,
}

/// Blocks of a plan.
struct Blocks<'g> {
    graph: &'g Csr,
    plan: BlockPlan,
}

impl Blocks<'_> {
    /// Blocks that a rank multiplies, in order.
    fn of_rank(&self, rank: &RankPlan) -> Vec<Block> {
        let width = rank.slice.as_ref().map_or(WIDTH, |slicing| slicing.width(WIDTH));
        let ends = |range: &Range<usize>| (range.start, range.end);
        let rows = |&panel: &usize| ends(&self.plan.panels[panel]);
        let of_step = |step: &girih_partition::Step| {
            let cols = ends(&self.plan.panels[step.panel]);
            rank.rows.iter().map(rows).map(move |rows| Block { rows, cols, width }).collect::<Vec<_>>()
        };
        rank.steps.iter().flat_map(of_step).collect()
    }

    /// Times of all blocks that some rank multiplies.
    fn time<B: Backend>(
        &self,
        backend: &B,
        clock: &Clock<'_>,
        protocol: Protocol,
    ) -> Result<BTreeMap<Block, Summary>, Error> {
        let mut blocks: Vec<Block> = self.plan.ranks.iter().flat_map(|rank| self.of_rank(rank)).collect();
        blocks.sort();
        blocks.dedup();
        let operand = |(cols, width): (Ends, usize)| -> Result<_, Error> {
            let host = random_matrix(cols.1 - cols.0, width)?;
            Ok(((cols, width), backend.upload(&host, Dtype::F32)?))
        };
        let sum = |(rows, width): (Ends, usize)| -> Result<_, Error> {
            Ok(((rows, width), RefCell::new(backend.zeros(Shape::new(rows.1 - rows.0, width), Dtype::F32)?)))
        };
        let distinct = |ends: fn(&Block) -> Ends| -> BTreeSet<(Ends, usize)> {
            blocks.iter().map(|block| (ends(block), block.width)).collect()
        };
        let operands = distinct(|block| block.cols).into_iter().map(operand).collect::<Result<BTreeMap<_, _>, _>>()?;
        let sums = distinct(|block| block.rows).into_iter().map(sum).collect::<Result<BTreeMap<_, _>, _>>()?;
        let adjacency = |block: &Block| -> Result<B::Sparse, Error> {
            let csr = self.graph.block(block.rows.0..block.rows.1, block.cols.0..block.cols.1)?;
            let scales = csr.scales(Norm::None);
            Ok(backend.upload_sparse(&SparseOperand { csr: &csr, scales, symmetric: false, names: None })?)
        };
        let adjacencies = blocks.iter().map(adjacency).collect::<Result<Vec<_>, _>>()?;
        let contestants = blocks.iter().zip(&adjacencies).map(|(block, adjacency)| {
            let (x, out) = (&operands[&(block.cols, block.width)], &sums[&(block.rows, block.width)]);
            Contestant::timed("", move || {
                let a = (adjacency, Transpose::No);
                clock(&mut || backend.spmm(a, None, x, Epilogue::default(), &mut out.borrow_mut()))
            })
        });
        let times = compete(protocol, contestants.collect())?;
        Ok(blocks.into_iter().zip(times.into_iter().map(|(_, time)| time)).collect())
    }

    fn edges(&self, block: &Block) -> usize {
        let cols = block.cols.0..block.cols.1;
        (block.rows.0..block.rows.1).map(|row| self.graph.row_range_within(row, &cols).len()).sum()
    }

    /// Case of the slowest rank, with the load imbalance.
    fn slowest(&self, name: String, times: &BTreeMap<Block, Summary>) -> Case {
        let ranks: Vec<(Summary, usize)> = self
            .plan
            .ranks
            .iter()
            .map(|rank| {
                let blocks = self.of_rank(rank);
                (in_turn(blocks.iter().map(|block| times[block])), blocks.iter().map(|block| self.edges(block)).sum())
            })
            .collect();
        let by_time = |a: &&(Summary, usize), b: &&(Summary, usize)| a.0.median_s.total_cmp(&b.0.median_s);
        let (slowest, fastest) = (ranks.iter().max_by(by_time), ranks.iter().min_by(by_time));
        let (slowest, fastest) = (slowest.expect("a rank").0, fastest.expect("a rank").0);
        let edges = |all: Option<&(Summary, usize)>| all.expect("a rank").1 as f64 / 1e6;
        Case::new(name, slowest)
            .with("fastest_rank_ms", 1e3 * fastest.median_s)
            .with("least_edges_m", edges(ranks.iter().min_by_key(|rank| rank.1)))
            .with("most_edges_m", edges(ranks.iter().max_by_key(|rank| rank.1)))
    }

    /// Cases of single blocks, named by their panels.
    fn each(&self, name: &str, times: &BTreeMap<Block, Summary>) -> Vec<Case> {
        let panel = |ends: Ends| self.plan.panels.iter().position(|panel| (panel.start, panel.end) == ends);
        let case = |(block, time): (&Block, &Summary)| {
            let [row, col] = [block.rows, block.cols].map(|ends| panel(ends).expect("blocks are panels"));
            Case::new(format!("{name}/block/{row}-{col}"), *time).with("edges_m", self.edges(block) as f64 / 1e6)
        };
        times.iter().map(case).collect()
    }
}

/// Sum of the times of several products.
fn in_turn(times: impl Iterator<Item = Summary>) -> Summary {
    let none = Summary { median_s: 0.0, min_s: 0.0, iqr_s: 0.0, repeats: usize::MAX };
    times.fold(none, |sum, time| Summary {
        median_s: sum.median_s + time.median_s,
        min_s: sum.min_s + time.min_s,
        iqr_s: sum.iqr_s + time.iqr_s,
        repeats: sum.repeats.min(time.repeats),
    })
}

#[cfg(test)]
mod tests {
    use girih_graph_format::{Coo, Duplicates};

    use super::*;

    /// Graph of sixteen nodes in which the first four have all edges.
    fn lopsided() -> Csr {
        let (rows, cols) = (0..4u32).flat_map(|v| (0..16).map(move |u| (v, u))).unzip();
        Coo::new(16, 16, rows, cols, None).unwrap().to_csr(Duplicates::Refuse).unwrap()
    }

    fn blocks(graph: &Csr, (scheme, p, r): (Scheme, usize, usize), cuts: Cuts) -> Blocks<'_> {
        let grid = ProcessGrid::new(scheme, p, r).unwrap();
        Blocks { graph, plan: BlockPlan::of_graph(&grid, graph.indptr(), cuts).unwrap() }
    }

    #[test]
    fn ranks_multiply_every_edge_once_in_columns_of_their_own() {
        let graph = lopsided();
        for plan in PLANS {
            let blocks = blocks(&graph, plan, Cuts::Equal);
            let of_rank =
                |rank| blocks.of_rank(rank).iter().map(|block| blocks.edges(block) * block.width).sum::<usize>();
            let all: usize = blocks.plan.ranks.iter().map(of_rank).sum();
            assert_eq!(all, 64 * WIDTH, "{plan:?}");
        }
    }

    #[test]
    fn the_slowest_rank_counts_and_its_load_is_told() {
        let graph = lopsided();
        let blocks = blocks(&graph, (Scheme::OneD, 4, 1), Cuts::Equal);
        let protocol = Protocol { warm_up: 0, repeats: 1 };
        let times = blocks.time(&Cpu::default(), &by_the_wall, protocol).unwrap();
        assert_eq!(times.len(), 16);
        let of_edges = |block: &Block| Summary::of(&[blocks.edges(block) as f64]);
        let case =
            blocks.slowest("a".to_owned(), &times.keys().map(|block| (block.clone(), of_edges(block))).collect());
        assert_eq!((case.time.median_s, case.metrics["fastest_rank_ms"]), (64.0, 0.0));
        assert_eq!((case.metrics["least_edges_m"], case.metrics["most_edges_m"]), (0.0, 64e-6));
    }
}
