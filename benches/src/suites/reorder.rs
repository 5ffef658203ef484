//! `reorder`: cost and benefit of node orders. Ids are shuffled first, so that the order of the files has no
//! influence.
//!
//! `predicted_ms` is the product's time as `auto` predicts it, `lru_6_mib` the hit rate of rows in a cache of 6 MiB.
//! `break_even_products` is the number of products that pay for the search.

use std::time::Instant;

use girih_compute::prelude::*;
use girih_compute::{Cpu, Dtype, Epilogue, Shape, SparseOperand, Transpose};
use girih_graph_format::{Csr, Norm, ReuseCurve};
use girih_reorder::quality::{Block, READS_LOOKED_AT, coverage};
use girih_reorder::{Auto, Community, OrderKind};

use super::setup::{Setup, random_matrix};
use crate::timing::{Contestant, compete};
use crate::{Case, Error, Report, graphs};

/// Columns of the operand, as in the papers.
const WIDTH: usize = 128;
/// Simulated caches in MiB: of a core, of this machine, and of a large GPU.
const CACHES_MIB: [usize; 3] = [1, 6, 50];

/// Adds a case for each order.
pub(super) fn run(setup: &Setup, report: &mut Report) -> Result<(), Error> {
    let dataset = graphs::load(setup.graph())?;
    report.graph = Some(graphs::describe(&dataset));
    let graph = if dataset.graph.is_symmetric() { dataset.graph } else { dataset.graph.symmetrized() };
    let shuffled = graph.permuted(&OrderKind::Random.order(1, 1).order(&graph)?);
    drop(graph);
    let mut ordered = Vec::new();
    let is_measured = |kind: &OrderKind| !matches!(kind, OrderKind::Random | OrderKind::Auto);
    for kind in OrderKind::ALL.into_iter().filter(is_measured) {
        let start = Instant::now();
        let order = kind.order(1, 1).order(&shuffled)?;
        let seconds = start.elapsed().as_secs_f64();
        ordered.push((kind, seconds, shuffled.permuted(&order)));
    }
    let backend = Cpu::default();
    let contestants: Result<Vec<_>, Error> =
        ordered.iter().map(|(kind, _, graph)| product(&backend, *kind, graph)).collect();
    let times = compete(setup.protocol, contestants?)?;
    let auto = Auto::here(1);
    // The first order is the existing one, which is shuffled.
    let before = times[0].1.median_s;
    for ((kind, seconds, graph), (name, time)) in ordered.iter().zip(times) {
        let mut case = Case::new(name, time)
            .with("x_shuffled", before / time.median_s)
            .with("predicted_ms", 1e3 * auto.product_seconds(graph))
            .with("coverage", coverage(graph, Block::LARGE, Community::DENSE));
        let reuse = ReuseCurve::of(graph, READS_LOOKED_AT);
        for mib in CACHES_MIB {
            let rows = (mib << 20) / (WIDTH * size_of::<f32>());
            case = case.with(&format!("lru_{mib}_mib"), reuse.hit_rate(rows));
        }
        if *kind != OrderKind::None {
            let saved = before - time.median_s;
            case = case.with("order_s", *seconds).with("million_edges_s", graph.nnz() as f64 / seconds / 1e6);
            if saved > 0.0 {
                case = case.with("break_even_products", seconds / saved);
            }
        }
        report.cases.push(case);
    }
    Ok(())
}

/// Contestant for `Â·X` in one order.
fn product<'a>(backend: &'a Cpu, kind: OrderKind, graph: &Csr) -> Result<Contestant<'a>, Error> {
    let (n, scales) = (graph.n_rows(), graph.scales(Norm::Symmetric));
    let sparse = backend.upload_sparse(&SparseOperand { csr: graph, scales, symmetric: true, names: None })?;
    let x = backend.upload(&random_matrix(n, WIDTH)?, Dtype::F32)?;
    let mut out = backend.zeros(Shape::new(n, WIDTH), Dtype::F32)?;
    let name = if kind == OrderKind::None { "shuffled".to_owned() } else { kind.to_string() };
    Ok(Contestant::new(name, move || backend.spmm((&sparse, Transpose::No), None, &x, Epilogue::default(), &mut out)))
}
