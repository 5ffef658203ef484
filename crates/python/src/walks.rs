//! `random_walks`: walks from node to node.

use girih_sampling::{Bias, DrawKey, Node2Vec, RandomWalks, WalkOptions};
use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;

use crate::arrays::{floats, ids_array, node_ids};
use crate::errors::{of_sampling, value_error};
use crate::graph::Graph;
use crate::threads::on_pool;

/// Offsets of walks, and their nodes: walk `i` is `nodes[indptr[i]:indptr[i + 1]]`.
#[pyfunction]
#[pyo3(signature = (graph, starts, length, *, p = None, q = None, restart = 0.0, stop = 0.0, weights = None, seed = 0))]
pub fn random_walks<'py>(
    graph: &Bound<'py, Graph>,
    starts: &Bound<'py, PyAny>,
    length: u32,
    p: Option<f32>,
    q: Option<f32>,
    restart: f32,
    stop: f32,
    weights: Option<&Bound<'py, PyAny>>,
    seed: u64,
) -> PyResult<(Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<i64>>)> {
    let (py, graph) = (graph.py(), graph.get());
    let starts = node_ids("start", starts, graph.csr.n_rows())?;
    let node2vec = (p.is_some() || q.is_some()).then(|| Node2Vec { p: p.unwrap_or(1.0), q: q.unwrap_or(1.0) });
    let options = WalkOptions { stop, restart, node2vec, ..WalkOptions::new(length) };
    let mut walks = RandomWalks::new(options).map_err(of_sampling)?;
    if let Some(weights) = weights {
        let by_position = graph.by_position(&floats("weights", weights)?)?;
        walks = walks.weighted(on_pool(py, || Bias::new(&graph.csr, &by_position))?.map_err(of_sampling)?);
    }
    let walked = on_pool(py, || walks.walk(&graph.csr, &starts, DrawKey::new(seed, 0, 0)))?.map_err(of_sampling)?;
    let indptr = walked.indptr.iter().map(|&offset| offset as i64).collect::<Vec<_>>();
    if i64::try_from(walked.nodes.len()).is_err() {
        return Err(value_error("the walks are too many for one array"));
    }
    Ok((indptr.into_pyarray(py), ids_array(py, &walked.nodes)))
}
