//! Compares products of random small graphs over ranks with the dense product, for every partition.

use std::sync::Arc;
use std::time::Duration;

use girih_comm::threads;
use girih_compute::prelude::*;
use girih_compute::{Cpu, Dtype, Shape, Transpose};
use girih_datasets::{DataSource, Dataset};
use girih_graph_format::{Degrees, Matrix, Norm};
use girih_partition::{BlockPlan, Cuts, Exchange, ProcessGrid, Scheme, Stages};
use girih_trainer::distributed::Ranks;
use girih_trainer::testing::{LocalOperand, PartitionedAdjacency, multiply, partitioned_graph};
use girih_trainer::{Adjacency, Pool, TrainError};

use crate::campaign::for_each_seed;
use crate::graphs::{Draws, SmallGraph};

/// Id of these random draws, which keeps them apart from those of other modules.
const SUBJECT: u64 = 20;
/// Rounding error of a sum of a few terms with factors on both sides, relative to the sum of magnitudes.
const ROUNDING: f64 = 4e-6;

#[test]
fn products_over_ranks_are_the_dense_product() {
    for_each_seed("products over ranks", 60, check);
}

/// Random process grid with at most as many ranks as nodes.
fn grid(draws: &mut Draws, n: usize) -> ProcessGrid {
    let mut grids = vec![(Scheme::OneD, draws.between(1, n.min(6)), 1)];
    let replication = draws.between(1, 3);
    if n >= replication {
        let groups = draws.between(1, (n / replication).min(3));
        grids.push((Scheme::OneAndHalfD, groups * replication, replication));
    }
    grids.extend([1, 4, 9].into_iter().filter(|&p| p <= n).map(|p| (Scheme::TwoD, p, 1)));
    grids.extend([1, 8].into_iter().filter(|&p| p <= n).map(|p| (Scheme::ThreeD, p, 1)));
    let (scheme, p, r) = draws.one_of(&grids);
    ProcessGrid::new(scheme, p, r).unwrap()
}

fn check(seed: u64) {
    let draws = &mut Draws::new(seed, SUBJECT);
    let graph = SmallGraph::new(draws);
    let stages = draws.between(1, 3);
    let stages = draws.one_of(&[Stages::Steps, Stages::Turns, Stages::Parts(stages)]);
    let cuts = draws.one_of(&[Cuts::Equal, Cuts::Weighted]);
    let plan = BlockPlan::of_graph(&grid(draws, graph.n), graph.csr.indptr(), cuts).unwrap();
    let plan = Arc::new(plan.in_stages(stages).in_chunks(draws.between(1, 3)));
    let norm = draws.one_of(&[Norm::None, Norm::Row, Norm::Symmetric]);
    let degrees = if graph.has_negative() { Degrees::Absolute } else { Degrees::Default };
    let adjacency = Adjacency::new(draws.one_in(2), norm).with_degrees(degrees);
    let transpose = draws.one_of(&[Transpose::No, Transpose::Yes]);
    let exchange = draws.one_of(&[Exchange::Dense, Exchange::Rows, Exchange::Auto]);
    // Wide operands are sent in several feature chunks, each of some cache lines.
    let width = if draws.one_in(4) { draws.between(65, 200) } else { draws.between(1, 12) };
    let values = (0..graph.n * width).map(|_| draws.normal()).collect::<Vec<_>>();
    let x = Matrix::new(graph.n, width, values).unwrap();
    let what = format!("{}, {cuts}, {stages}, {exchange}, {adjacency:?}, {transpose:?}", plan.grid);
    let found = products(&graph, &plan, adjacency, (exchange, transpose), &x);
    let expected = dense_product(&graph, adjacency, transpose, &x);
    for found in found.unwrap_or_else(|error| panic!("{what}: {error}")) {
        for v in 0..graph.n {
            for k in 0..width {
                let (sum, magnitude) = expected(v, k);
                let found = f64::from(found.row(v)[k]);
                assert!((found - sum).abs() <= ROUNDING * magnitude + 1e-36, "{what}: {found} instead of {sum}");
            }
        }
    }
}

/// Gathered product on every rank.
fn products(
    graph: &SmallGraph,
    plan: &Arc<BlockPlan>,
    adjacency: Adjacency,
    (exchange, transpose): (Exchange, Transpose),
    x: &Matrix,
) -> Result<Vec<Matrix>, String> {
    let dataset = Dataset::new("small", graph.csr.clone(), None, None, Vec::new()).unwrap();
    let source = Arc::new(DataSource::from(dataset));
    let of_rank = |world| -> Result<Matrix, TrainError> {
        let (cpu, mut pool) = (Cpu::new(), Pool::default());
        let ranks = Arc::new(Ranks::<Cpu>::new(Arc::clone(plan), Box::<threads::ThreadRank>::new(world))?);
        let (own, width) = (ranks.own(), x.n_cols());
        let mine = x.row_slice(own.clone());
        let (mine, mut out) = (cpu.upload(&mine, Dtype::F32)?, cpu.zeros(Shape::new(own.len(), width), Dtype::F32)?);
        let cut = PartitionedAdjacency::new(Arc::clone(&source), adjacency, &ranks, (exchange, Dtype::F32))?;
        let graph = partitioned_graph(Arc::clone(&ranks), Arc::new(cut));
        multiply(&cpu, &mut pool, (&graph, transpose), LocalOperand::Matrix(&mine), &mut out)?;
        Ok(cpu.download(&ranks.gather(&cpu, &mut pool, &out)?)?)
    };
    threads::run(plan.ranks.len(), Duration::from_secs(30), of_rank).map_err(|failure| failure.message)
}

/// Entry of `op(L·A·R)·X`, with the sum of the magnitudes of its terms.
fn dense_product<'x>(
    graph: &SmallGraph,
    adjacency: Adjacency,
    transpose: Transpose,
    x: &'x Matrix,
) -> impl Fn(usize, usize) -> (f64, f64) + 'x {
    let (mut a, n) = (graph.dense(), graph.n);
    if adjacency.self_loops {
        (0..n).for_each(|v| _ = a[v][v].get_or_insert(1.0));
    }
    let a: Vec<Vec<f64>> = a.into_iter().map(|row| row.into_iter().map(|w| w.unwrap_or(0.0)).collect()).collect();
    let weigh = |w: f64| if adjacency.degrees == Degrees::Absolute { w.abs() } else { w };
    let factor = |degree: f64, power: Option<f64>| match power {
        None => 1.0,
        Some(_) if degree == 0.0 => 0.0,
        Some(power) => degree.powf(power),
    };
    let [left, right] = adjacency.norm.powers();
    let row = |v: usize| factor((0..n).map(|u| weigh(a[v][u])).sum(), left);
    let column = |u: usize| factor((0..n).map(|v| weigh(a[v][u])).sum(), right);
    let (rows, columns): (Vec<f64>, Vec<f64>) = (0..n).map(|v| (row(v), column(v))).unzip();
    let entry = move |v: usize, u: usize| match transpose {
        Transpose::No => rows[v] * a[v][u] * columns[u],
        Transpose::Yes => rows[u] * a[u][v] * columns[v],
    };
    move |v, k| {
        let terms = (0..n).map(|u| entry(v, u) * f64::from(x.row(u)[k]));
        terms.fold((0.0, 0.0), |(sum, all), term| (sum + term, all + term.abs()))
    }
}
