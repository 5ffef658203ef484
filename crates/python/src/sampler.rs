//! `Sampler`: mini-batches of a graph, by any of girih's samplers.

use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use girih_datasets::Features;
use girih_graph_format::{Csr, NodeId};
use girih_sampling::{
    Bias, Block, ClusterSampler, DrawKey, Draws, EdgeList, ExcludedEdges, Expand, FanOut, LayerSampler, MiniBatch,
    NeighborOptions, NeighborSampler, Neighbors, SaintSampler, SampleError, Sampler as _, Subgraph, SubgraphSampler,
};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::arrays::{floats, node_ids, offsets};
use crate::batch::Batch;
use crate::errors::{index_error, of_sampling, type_error, value_error};
use crate::graph::Graph;
use crate::options::Options;
use crate::threads::{interruptible, on_pool, without_gil};

/// Graph, sampler and memory of batches that Python has released. Any number of threads may sample at once.
pub struct Core {
    pub csr: Csr,
    /// Name of the edge at each position, if edges have names.
    names: Option<Arc<Vec<i64>>>,
    method: Method,
    form: Form,
    free: Mutex<Vec<Arrays>>,
}

enum Method {
    Neighbors(NeighborSampler),
    Layers(LayerSampler),
    Subgraphs(Box<dyn SubgraphSampler>),
}

/// Form of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    /// Ids are `int64`, else `int32`.
    pub wide: bool,
    /// Names of edges are kept.
    pub edge_ids: bool,
    /// A batch is one list of edges, and not blocks alone.
    pub is_list: bool,
    /// Whether an edge may be drawn repeatedly.
    pub has_repeats: bool,
}

/// Memory of one batch.
#[derive(Default)]
pub struct Arrays {
    pub batch: MiniBatch,
    pub subgraph: Subgraph,
    pub wide: EdgeList<i64>,
    pub narrow: EdgeList<i32>,
    pub edge_ids: Vec<i64>,
    /// Arrays of the blocks, of batches that are no list.
    pub blocks: Vec<BlockArrays>,
    /// Weight of each listed edge; empty where all count alike.
    pub weights: Vec<f32>,
    /// Feature rows of the nodes.
    pub x: Vec<f32>,
    pub n_seeds: usize,
    pub number: usize,
}

/// Arrays of a block that are not as the block has them, of the type that the sampler was made for.
#[derive(Default)]
pub struct BlockArrays {
    /// Offsets, of narrow ids.
    pub indptr: Vec<i32>,
    /// Sources of edges by local id, of wide ids.
    pub indices: Vec<i64>,
    /// Names of edges, where the sampler keeps them.
    pub edge_ids: Vec<i64>,
}

impl Core {
    fn new(graph: &Graph, method: Method, form: Form) -> Self {
        Self { csr: graph.csr.clone(), names: graph.names.clone(), method, form, free: Mutex::default() }
    }

    pub fn has_names(&self) -> bool {
        self.names.is_some()
    }

    pub fn form(&self) -> Form {
        self.form
    }

    /// Sampler of neighbors.
    #[cfg(feature = "cuda")]
    pub fn neighbors(&self) -> Result<&NeighborSampler, girih_compute::ComputeError> {
        match &self.method {
            Method::Neighbors(sampler) => Ok(sampler),
            _ => Err(girih_compute::ComputeError::argument(
                "sampling on the device",
                "GPUs sample neighbors alone; take layer-wise samplers and subgraphs on the CPU",
            )),
        }
    }

    pub fn has_seeds(&self) -> bool {
        !matches!(self.method, Method::Subgraphs(_))
    }

    /// List of released memory; `None` while another thread has it, or, after a fork, had it.
    fn free(&self) -> Option<MutexGuard<'_, Vec<Arrays>>> {
        (0..1000).find_map(|_| match self.free.try_lock() {
            Ok(free) => Some(free),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => {
                std::hint::spin_loop();
                None
            }
        })
    }

    pub fn give_back(&self, arrays: Arrays) {
        if let Some(mut free) = self.free() {
            free.push(arrays);
        }
    }

    /// Samples the batch of these seeds, of which samplers of subgraphs have none.
    pub fn sample(&self, seeds: &[NodeId], key: DrawKey, excluded: &ExcludedEdges) -> Result<Arrays, SampleError> {
        let mut arrays = self.free().and_then(|mut free| free.pop()).unwrap_or_default();
        let done = self.sample_into(seeds, key, excluded, &mut arrays);
        match done {
            Ok(()) => Ok(arrays),
            Err(error) => {
                self.give_back(arrays);
                Err(error)
            }
        }
    }

    fn sample_into(
        &self,
        seeds: &[NodeId],
        key: DrawKey,
        excluded: &ExcludedEdges,
        arrays: &mut Arrays,
    ) -> Result<(), SampleError> {
        let mut rows = None;
        let Arrays { batch, subgraph, .. } = arrays;
        match &self.method {
            Method::Neighbors(sampler) => {
                let mut sampled = sampler.sample_excluding(&self.csr, seeds, key, excluded, batch);
                if self.form.is_list && sampled.as_ref().is_err_and(SampleError::is_repeated_seed) {
                    let (distinct, row_of) = distinct(seeds);
                    sampled = sampler.sample_excluding(&self.csr, &distinct, key, excluded, batch);
                    rows = Some(row_of);
                }
                sampled?;
            }
            Method::Layers(sampler) => sampler.sample_into(&self.csr, seeds, key, batch)?,
            Method::Subgraphs(sampler) => sampler.sample_into(&self.csr, key, subgraph)?,
        }
        arrays.n_seeds = seeds.len();
        self.list(rows.as_deref(), arrays)
    }

    /// Makes what Python reads of a sampled batch.
    fn list(&self, rows: Option<&[u32]>, arrays: &mut Arrays) -> Result<(), SampleError> {
        let Arrays { batch, subgraph, wide, narrow, edge_ids, blocks, weights, n_seeds, .. } = arrays;
        edge_ids.clear();
        weights.clear();
        if !self.form.is_list {
            blocks.resize_with(batch.blocks.len(), BlockArrays::default);
            blocks.iter_mut().zip(&batch.blocks).for_each(|(arrays, block)| self.fill(arrays, block));
            return Ok(());
        }
        let block = match &self.method {
            Method::Subgraphs(_) => {
                *n_seeds = subgraph.nodes().len();
                if self.form.wide {
                    wide.fill_subgraph(subgraph);
                } else {
                    narrow.fill_subgraph(subgraph);
                }
                &subgraph.block
            }
            _ => {
                if self.form.wide {
                    wide.fill(batch, Expand::Once, rows)?;
                } else {
                    narrow.fill(batch, Expand::Once, rows)?;
                }
                &batch.blocks[0]
            }
        };
        let edge_of = if self.form.wide { &wide.edge_of } else { &narrow.edge_of };
        let name = |position: u64| self.names.as_ref().map_or(position.cast_signed(), |names| names[position as usize]);
        if rows.is_none() {
            weights.extend_from_slice(&block.weights);
            // Positions without names are read where they are.
            edge_ids.extend(self.names.iter().flat_map(|_| &block.edge_ids).map(|&position| name(position)));
        } else {
            weights.extend(edge_of.iter().filter_map(|&edge| block.weights.get(edge as usize)));
            edge_ids.extend(edge_of.iter().filter_map(|&edge| block.edge_ids.get(edge as usize)).map(|&at| name(at)));
        }
        Ok(())
    }

    /// Writes the arrays of a block.
    pub fn fill(&self, arrays: &mut BlockArrays, block: &Block) {
        let BlockArrays { indptr, indices, edge_ids } = arrays;
        indptr.clear();
        indices.clear();
        edge_ids.clear();
        if self.form.wide {
            indices.extend(block.indices.iter().map(|&id| i64::from(id)));
        } else {
            indptr.extend(block.indptr.iter().map(|&offset| offset as i32));
        }
        match &self.names {
            Some(names) => edge_ids.extend(block.edge_ids.iter().map(|&position| names[position as usize])),
            None => edge_ids.extend(block.edge_ids.iter().map(|&position| position.cast_signed())),
        }
    }

    /// Brings the feature rows of the nodes of a batch, in the order of `n_id`.
    pub fn gather(&self, features: &Features, arrays: &mut Arrays) -> Result<(), SampleError> {
        let Arrays { batch, subgraph, wide, narrow, x, .. } = arrays;
        let sampled = if batch.blocks.is_empty() { subgraph.nodes() } else { batch.inputs() };
        let n_listed = if self.form.wide { wide.nodes.len() } else { narrow.nodes.len() };
        let listed: Vec<NodeId>;
        let nodes = if self.form.is_list && n_listed != sampled.len() {
            // Seeds are listed repeatedly.
            listed = match self.form.wide {
                true => wide.nodes.iter().map(|&id| id as NodeId).collect(),
                false => narrow.nodes.iter().map(|&id| id.cast_unsigned()).collect(),
            };
            &listed
        } else {
            sampled
        };
        x.resize(nodes.len() * features.width(), 0.0);
        features.gather(nodes, x).map_err(|error| SampleError::invalid(error.to_string()))
    }
}

/// Seeds without repeats, in the order of first sight, and the place among them of each listed one.
fn distinct(seeds: &[NodeId]) -> (Vec<NodeId>, Vec<u32>) {
    let (mut distinct, mut place_of) = (Vec::new(), std::collections::HashMap::new());
    let place = |&seed: &NodeId| {
        *place_of.entry(seed).or_insert_with(|| {
            distinct.push(seed);
            distinct.len() as u32 - 1
        })
    };
    let rows = seeds.iter().map(place).collect();
    (distinct, rows)
}

/// Sampler of mini-batches. Equal arguments give equal batches, on any thread of any process.
#[pyclass(frozen, module = "girih")]
pub struct Sampler {
    pub core: Arc<Core>,
    graph: Py<Graph>,
    /// Constructor and arguments, for a pickle.
    made_by: (&'static str, Py<PyDict>),
}

fn fan_out(num_neighbors: &[i64]) -> PyResult<FanOut> {
    let hop = |(at, &n): (usize, &i64)| match n {
        -1 => Ok(Neighbors::All),
        1..=0x7fff_ffff => Ok(Neighbors::Count(n as u32)),
        _ => Err(value_error(format!("hop {at} of num_neighbors is {n}; give a number from 1 on, or -1 for all"))),
    };
    FanOut::new(num_neighbors.iter().enumerate().map(hop).collect::<PyResult<Vec<_>>>()?).map_err(of_sampling)
}

fn is_wide(index_dtype: &str) -> PyResult<bool> {
    match index_dtype {
        "int64" => Ok(true),
        "int32" => Ok(false),
        other => Err(value_error(format!("no index_dtype {other:?}; there are \"int64\" and \"int32\""))),
    }
}

fn draws_of(name: &str) -> PyResult<Draws> {
    match name {
        "node" => Ok(Draws::PerNode),
        "layer" => Ok(Draws::PerLayer),
        "labor" => Ok(Draws::Labor),
        other => Err(value_error(format!("no draws {other:?}; there are \"node\", \"layer\" and \"labor\""))),
    }
}

fn expand_of(name: &str) -> PyResult<Expand> {
    match name {
        "once" => Ok(Expand::Once),
        "per-layer" => Ok(Expand::PerLayer),
        other => Err(value_error(format!("no expand {other:?}; there are \"once\" (PyG) and \"per-layer\" (DGL)"))),
    }
}

/// Dictionary of constructor arguments.
macro_rules! arguments {
    ($py:expr, $($name:ident),*) => {{
        let arguments = PyDict::new($py);
        $(arguments.set_item(stringify!($name), &$name)?;)*
        arguments.unbind()
    }};
}

#[pymethods]
impl Sampler {
    #[new]
    #[pyo3(signature = (graph, num_neighbors, **options))]
    fn new(graph: &Bound<'_, Graph>, num_neighbors: Vec<i64>, options: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let py = graph.py();
        let made_by = options.map_or_else(|| Ok(PyDict::new(py)), |options| options.copy())?;
        made_by.set_item("num_neighbors", &num_neighbors)?;
        let mut options = Options::new("Sampler", options)?;
        let (replace, edge_ids) = (options.or("replace", false)?, options.or("edge_ids", true)?);
        let weights = options.take::<Bound<'_, PyAny>>("weights")?;
        let expand = expand_of(&options.or("expand", "once".to_owned())?)?;
        let draws = draws_of(&options.or("draws", "node".to_owned())?)?;
        let wide = is_wide(&options.or("index_dtype", "int64".to_owned())?)?;
        options.finish()?;
        let options = NeighborOptions { replace, expand, draws, edge_ids, ..Default::default() };
        let is_list = expand == Expand::Once || num_neighbors.len() == 1;
        let mut sampler = NeighborSampler::new(fan_out(&num_neighbors)?, options).map_err(of_sampling)?;
        if let Some(weights) = weights {
            if options.draws == Draws::Labor {
                return Err(value_error("draws=\"labor\" has no weights of edges; leave weights out, or draw by node"));
            }
            let by_position = graph.get().by_position(&floats("weights", &weights)?)?;
            let csr = &graph.get().csr;
            sampler = sampler.weighted(on_pool(py, || Bias::new(csr, &by_position))?.map_err(of_sampling)?);
        }
        let form = Form { wide, edge_ids, is_list, has_repeats: options.replace };
        Ok(Self::of(graph, Method::Neighbors(sampler), form, ("Sampler", made_by.unbind())))
    }

    #[staticmethod]
    #[pyo3(signature = (graph, sizes, *, method = "ladies", replace = false, index_dtype = "int64"))]
    fn layerwise(
        graph: &Bound<'_, Graph>,
        sizes: Vec<i64>,
        method: &str,
        replace: bool,
        index_dtype: &str,
    ) -> PyResult<Self> {
        let made_by = arguments!(graph.py(), sizes, method, replace, index_dtype);
        let sizes = fan_out(&sizes)?;
        let sampler = match method {
            "ladies" => LayerSampler::ladies(sizes, replace),
            "fastgcn" => LayerSampler::fast_gcn(&graph.get().csr, sizes, replace).map_err(of_sampling)?,
            other => return Err(value_error(format!("no method {other:?}; there are \"ladies\" and \"fastgcn\""))),
        };
        let form = Form { wide: is_wide(index_dtype)?, edge_ids: true, is_list: false, has_repeats: false };
        Ok(Self::of(graph, Method::Layers(sampler), form, ("layerwise", made_by)))
    }

    #[staticmethod]
    #[pyo3(signature = (graph, cluster_of, *, clusters_per_batch = 1, index_dtype = "int64"))]
    fn clusters(
        graph: &Bound<'_, Graph>,
        cluster_of: &Bound<'_, PyAny>,
        clusters_per_batch: usize,
        index_dtype: &str,
    ) -> PyResult<Self> {
        let made_by = arguments!(graph.py(), cluster_of, clusters_per_batch, index_dtype);
        let cluster_of = offsets("cluster_of", cluster_of)?;
        let n_clusters = cluster_of.iter().max().map_or(0, |&largest| largest as usize + 1);
        let of_node: Vec<u32> = cluster_of.iter().map(|&cluster| cluster as u32).collect();
        if n_clusters > of_node.len() || of_node.len() != graph.get().csr.n_rows() {
            return Err(value_error(format!(
                "cluster_of has {} entries up to cluster {}, for {} nodes; give each node a cluster, counted from 0",
                of_node.len(),
                n_clusters.saturating_sub(1),
                graph.get().csr.n_rows()
            )));
        }
        let sampler = ClusterSampler::new(&of_node, n_clusters, clusters_per_batch).map_err(of_sampling)?;
        let form = Form { wide: is_wide(index_dtype)?, edge_ids: true, is_list: true, has_repeats: false };
        Ok(Self::of(graph, Method::Subgraphs(Box::new(sampler)), form, ("clusters", made_by)))
    }

    #[staticmethod]
    #[pyo3(signature = (graph, size, *, method = "walks", walk_length = 2, num_presampled = 50, seed = 0,
        index_dtype = "int64"))]
    fn saint(
        graph: &Bound<'_, Graph>,
        size: u32,
        method: &str,
        walk_length: u32,
        num_presampled: u32,
        seed: u64,
        index_dtype: &str,
    ) -> PyResult<Self> {
        let py = graph.py();
        let made_by = arguments!(py, size, method, walk_length, num_presampled, seed, index_dtype);
        let csr = graph.get().csr.clone();
        let sampler = match method {
            "nodes" => interruptible(py, move || SaintSampler::nodes(&csr, size))?,
            "edges" => interruptible(py, move || SaintSampler::edges(&csr, size))?,
            "walks" => interruptible(py, move || SaintSampler::walks(&csr, size, walk_length, num_presampled, seed))?,
            other => {
                return Err(value_error(format!("no method {other:?}; there are \"nodes\", \"edges\" and \"walks\"")));
            }
        };
        let form = Form { wide: is_wide(index_dtype)?, edge_ids: true, is_list: true, has_repeats: false };
        let method = Method::Subgraphs(Box::new(sampler.map_err(of_sampling)?));
        Ok(Self::of(graph, method, form, ("saint", made_by)))
    }

    #[getter]
    fn graph(&self, py: Python<'_>) -> Py<Graph> {
        self.graph.clone_ref(py)
    }

    #[getter]
    fn has_seeds(&self) -> bool {
        self.core.has_seeds()
    }

    #[pyo3(signature = (seeds = None, *, seed = 0, epoch = 0, batch = 0, exclude = None))]
    fn sample(
        &self,
        py: Python<'_>,
        seeds: Option<&Bound<'_, PyAny>>,
        seed: u64,
        epoch: u32,
        batch: u32,
        exclude: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Batch> {
        let seeds = self.seeds("seed", seeds)?;
        let excluded = exclude.map(|exclude| self.excluded(exclude)).transpose()?.unwrap_or_default();
        let (core, key) = (&self.core, DrawKey::new(seed, epoch, batch));
        let mut arrays = without_gil(py, || core.sample(&seeds, key, &excluded))?.map_err(of_sampling)?;
        arrays.number = batch as usize;
        Ok(Batch::new(arrays, Arc::clone(core), 0))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let (py, sampler) = (slf.py(), slf.get());
        let (by, arguments) = &sampler.made_by;
        let rebuild = py.get_type::<Self>().getattr("_rebuild")?;
        let state = (by, sampler.graph.clone_ref(py), arguments.clone_ref(py)).into_pyobject(py)?;
        Ok((rebuild, state.into_any()))
    }

    #[staticmethod]
    fn _rebuild<'py>(
        by: &str,
        graph: Bound<'py, Graph>,
        arguments: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let class = graph.py().get_type::<Self>();
        let make = if by == "Sampler" { class.into_any() } else { class.getattr(by)? };
        make.call((graph,), Some(arguments))
    }
}

impl Sampler {
    fn of(graph: &Bound<'_, Graph>, method: Method, form: Form, made_by: (&'static str, Py<PyDict>)) -> Self {
        Self { core: Arc::new(Core::new(graph.get(), method, form)), graph: graph.clone().unbind(), made_by }
    }

    /// Seeds of the argument, where the sampler has seeds.
    pub fn seeds(&self, what: &str, seeds: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<NodeId>> {
        match (seeds, self.core.has_seeds()) {
            (Some(seeds), true) => node_ids(what, seeds, self.core.csr.n_rows()),
            (None, false) => Ok(Vec::new()),
            (None, true) => Err(type_error("the sampler needs seeds: ids of nodes, or a mask of all nodes")),
            (Some(_), false) => Err(type_error("the sampler draws subgraphs, and takes no seeds")),
        }
    }

    /// Edges by name as edges by position.
    fn excluded(&self, names: &Bound<'_, PyAny>) -> PyResult<ExcludedEdges> {
        if !matches!(self.core.method, Method::Neighbors(_)) {
            return Err(value_error("exclude is for samplers of neighbors"));
        }
        let graph = self.graph.get();
        let names = offsets("exclude", names)?;
        let positions = graph.positions();
        let position = |&name: &u64| match &positions {
            None if name < graph.csr.nnz() as u64 => Ok(name),
            Some(positions) if positions.get(name as usize).is_some_and(|&at| at != u64::MAX) => {
                Ok(positions[name as usize])
            }
            _ => Err(index_error(format!("exclude names edge {name}, which the graph does not have"))),
        };
        Ok(ExcludedEdges::new(names.iter().map(position).collect::<PyResult<_>>()?))
    }
}
