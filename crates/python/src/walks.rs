//! `random_walks`: walks from node to node.

use girih_sampling::{Bias, DrawKey, Node2Vec, RandomWalks, WalkOptions};
use numpy::IntoPyArray;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::arrays::{Ids, floats, ids_array, node_ids};
use crate::errors::{of_sampling, value_error};
use crate::graph::Graph;
use crate::options::Options;
use crate::threads::on_pool;

/// Offsets of walks, and their nodes: walk `i` is `nodes[indptr[i]:indptr[i + 1]]`.
#[pyfunction]
#[pyo3(signature = (graph, starts, length, **options))]
pub fn random_walks<'py>(
    graph: &Bound<'py, Graph>,
    starts: &Bound<'py, PyAny>,
    length: u32,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<(Ids<'py>, Ids<'py>)> {
    let (py, graph) = (graph.py(), graph.get());
    let starts = node_ids("start", starts, graph.csr.n_rows())?;
    let mut options = Options::new("random_walks", options)?;
    let (p, q) = (options.take::<f32>("p")?, options.take::<f32>("q")?);
    let (restart, stop) = (options.or("restart", 0.0)?, options.or("stop", 0.0)?);
    let (weights, seed) = (options.take::<Bound<'_, PyAny>>("weights")?, options.or("seed", 0)?);
    options.finish()?;
    let node2vec = (p.is_some() || q.is_some()).then(|| Node2Vec { p: p.unwrap_or(1.0), q: q.unwrap_or(1.0) });
    let options = WalkOptions { stop, restart, node2vec, ..WalkOptions::new(length) };
    let mut walks = RandomWalks::new(options).map_err(of_sampling)?;
    if let Some(weights) = weights {
        let by_position = graph.by_position(&floats("weights", &weights)?)?;
        walks = walks.weighted(on_pool(py, || Bias::new(&graph.csr, &by_position))?.map_err(of_sampling)?);
    }
    let walked = on_pool(py, || walks.walk(&graph.csr, &starts, DrawKey::new(seed, 0, 0)))?.map_err(of_sampling)?;
    let indptr = walked.indptr.iter().map(|&offset| offset as i64).collect::<Vec<_>>();
    if i64::try_from(walked.nodes.len()).is_err() {
        return Err(value_error("the walks are too many for one array"));
    }
    Ok((indptr.into_pyarray(py), ids_array(py, &walked.nodes)))
}
