//! `TypedGraph`: edges by type, with the names that the caller gave to them.

use std::sync::Arc;

use girih_graph_format::{Coo, Csr, Duplicates, EdgeType, NodeType, Schema, TypedGraph as Typed};
use numpy::IntoPyArray;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::arrays::{edges_between, frozen_view};
use crate::errors::{of_format, type_error, value_error};
use crate::graph::{EdgeNames, EdgePositions, listed, named_rows};
use crate::threads::on_pool;

/// Graph whose nodes and edges have types. Edges are named, inside their type, by their columns in the caller's lists.
#[pyclass(frozen, module = "girih")]
pub struct TypedGraph {
    pub held: Arc<HeldGraph>,
}

/// Graph with the names of its edges.
pub struct HeldGraph {
    pub graph: Typed,
    /// Names of the edges of each type.
    pub names: Vec<EdgeNames>,
    positions: Vec<EdgePositions>,
}

impl HeldGraph {
    fn new(graph: Typed, names: Vec<EdgeNames>) -> Self {
        let positions = names.iter().map(|_| EdgePositions::default()).collect();
        Self { graph, names, positions }
    }

    /// Position of a named edge of a type, if there is one.
    pub fn position_of(&self, number: usize, name: u64) -> Option<u64> {
        self.positions[number].of(name, &self.names[number], self.graph.relations()[number].nnz())
    }

    /// Name of an edge type as Python has it: source type, relation, destination type.
    pub fn edge_type<'py>(&self, py: Python<'py>, number: usize) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.graph.schema().edge_parts(number))
    }

    /// Number of a node type.
    pub fn node_type(&self, name: &str) -> PyResult<usize> {
        let schema = self.graph.schema();
        schema.node_type(name).ok_or_else(|| {
            let known: Vec<&str> = schema.node_types().iter().map(|of| &*of.name).collect();
            value_error(format!("the graph has no node type {name:?}; it has {}", known.join(", ")))
        })
    }

    /// Number of an edge type, by its three names.
    pub fn edge_number(&self, key: &Bound<'_, PyAny>) -> PyResult<usize> {
        let schema = self.graph.schema();
        let parts = parts(key)?;
        let is_one = |number: &usize| schema.edge_parts(*number) == parts.each_ref().map(|part| &**part);
        (0..schema.edge_types().len()).find(is_one).ok_or_else(|| {
            let known: Vec<String> = (0..schema.edge_types().len()).map(|r| schema.edge_name(r)).collect();
            value_error(format!("the graph has no edge type {}; it has {}", parts.join("."), known.join(", ")))
        })
    }
}

/// Source type, relation and destination type of a key.
fn parts(key: &Bound<'_, PyAny>) -> PyResult<[String; 3]> {
    key.extract::<(String, String, String)>().map(Into::into).map_err(|_| {
        type_error(format!("{key} is no edge type; give three names, such as (\"author\", \"writes\", \"paper\")"))
    })
}

#[pymethods]
impl TypedGraph {
    #[new]
    #[pyo3(signature = (num_nodes, edge_index, *, reverse_types = None, duplicates = "refuse"))]
    fn new(
        num_nodes: &Bound<'_, PyDict>,
        edge_index: &Bound<'_, PyDict>,
        reverse_types: Option<&Bound<'_, PyDict>>,
        duplicates: &str,
    ) -> PyResult<Self> {
        let py = num_nodes.py();
        let rule: Duplicates = duplicates.parse().map_err(value_error)?;
        let node_type = |(name, n): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
            Ok(NodeType { name: name.extract()?, n_nodes: n.extract()? })
        };
        let node_types: Vec<NodeType> = num_nodes.iter().map(node_type).collect::<PyResult<_>>()?;
        let keys: Vec<[String; 3]> = edge_index.keys().iter().map(|key| parts(&key)).collect::<PyResult<_>>()?;
        let reverses = reverses(&keys, reverse_types)?;
        let (mut edge_types, mut lists) = (Vec::new(), Vec::new());
        for (([source, relation, destination], list), reverse_of) in keys.iter().zip(edge_index.values()).zip(reverses)
        {
            let number = |name: &String| {
                node_types.iter().position(|of| of.name == *name).ok_or_else(|| {
                    value_error(format!(
                        "edges of {source}.{relation}.{destination}, but num_nodes has no type {name:?}; add it there"
                    ))
                })
            };
            let (source_type, destination_type) = (number(source)?, number(destination)?);
            let of = format!("edge_index of {source}.{relation}.{destination}");
            let shape = (node_types[destination_type].n_nodes, node_types[source_type].n_nodes);
            lists.push((edges_between(&of, &list, (shape.1, shape.0))?, shape, of));
            edge_types.push(EdgeType {
                relation: relation.clone(),
                source: source_type,
                destination: destination_type,
                reverse_of,
            });
        }
        let schema = Schema::new(node_types, edge_types).map_err(of_format)?;
        on_pool(py, || {
            let (mut relations, mut names) = (Vec::new(), Vec::new());
            for ([sources, destinations], (n_rows, n_cols), of) in lists {
                let list = Coo::new(n_rows, n_cols, destinations, sources, None).map_err(value_error)?;
                let rows = named_rows(&list, rule).map_err(|message| value_error(format!("{of}: {message}")));
                let (relation, of_edges) = rows?;
                names.push(of_edges);
                relations.push(relation);
            }
            let graph = Typed::new(schema, relations).map_err(of_format)?;
            Ok(Self { held: Arc::new(HeldGraph::new(graph, names)) })
        })?
    }

    /// Number of nodes of each type.
    #[getter]
    fn num_nodes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counts = PyDict::new(py);
        self.held.graph.schema().node_types().iter().try_for_each(|of| counts.set_item(&of.name, of.n_nodes))?;
        Ok(counts)
    }

    /// Number of edges of each type.
    #[getter]
    fn num_edges<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.by_type(py, |_, relation| Ok(relation.nnz()))
    }

    #[getter]
    fn node_types(&self) -> Vec<String> {
        self.held.graph.schema().node_types().iter().map(|of| of.name.clone()).collect()
    }

    #[getter]
    fn edge_types<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        (0..self.held.names.len()).map(|number| self.held.edge_type(py, number)).collect()
    }

    /// Offsets and sources of each edge type, as they lie: read only, no copy.
    #[getter]
    fn csr<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        slf.get().by_type(slf.py(), |_, relation| {
            // SAFETY: both arrays belong to the graph, which is frozen.
            unsafe {
                let indptr = frozen_view::<i64, _>(slf, bytemuck::cast_slice(relation.indptr()))?;
                Ok((indptr, frozen_view::<i32, _>(slf, bytemuck::cast_slice(relation.indices()))?))
            }
        })
    }

    /// Names of the edges of each type, in the order of rows.
    #[getter]
    fn edge_ids<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        let names = &slf.get().held.names;
        slf.get().by_type(slf.py(), |number, _| {
            // SAFETY: as for `csr`.
            names[number].as_ref().map(|names| unsafe { frozen_view::<i64, _>(slf, &names[..]) }).transpose()
        })
    }

    /// Sources and destinations of each edge type, in the order of rows.
    fn edge_index<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.by_type(py, |_, relation| {
            let flat = on_pool(py, || listed(relation))?;
            flat.into_pyarray(py).call_method1("reshape", (2, relation.nnz()))
        })
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let (py, held) = (slf.py(), &slf.get().held);
        let reverses = PyDict::new(py);
        for (number, of) in held.graph.schema().edge_types().iter().enumerate() {
            if let Some(forward) = of.reverse_of {
                reverses.set_item(held.edge_type(py, number)?, held.edge_type(py, forward)?)?;
            }
        }
        let state = (slf.get().num_nodes(py)?, slf.get().edge_index(py)?, reverses, Self::edge_ids(slf)?);
        let class = py.get_type::<Self>();
        Ok((class.getattr("_from_state")?, state.into_pyobject(py)?.into_any()))
    }

    #[staticmethod]
    fn _from_state(
        num_nodes: &Bound<'_, PyDict>,
        edge_index: &Bound<'_, PyDict>,
        reverse_types: &Bound<'_, PyDict>,
        edge_ids: &Bound<'_, PyDict>,
    ) -> PyResult<Self> {
        let made = Self::new(num_nodes, edge_index, Some(reverse_types), "refuse")?;
        let HeldGraph { graph, .. } = &*made.held;
        let mut names: Vec<EdgeNames> = vec![None; graph.relations().len()];
        for (key, of_type) in edge_ids {
            let number = made.held.edge_number(&key)?;
            let given = of_type.extract::<Option<Vec<i64>>>()?;
            let n_edges = graph.relations()[number].nnz();
            if given.as_ref().is_some_and(|given| given.len() != n_edges || given.iter().any(|&name| name < 0)) {
                return Err(value_error("the pickled names of edges are not those of its edges"));
            }
            names[number] = given.map(Arc::new);
        }
        Ok(Self { held: Arc::new(HeldGraph::new(graph.clone(), names)) })
    }

    fn __repr__(&self) -> String {
        let graph = &self.held.graph;
        let schema = graph.schema();
        let nodes: Vec<String> = schema.node_types().iter().map(|of| format!("{}: {}", of.name, of.n_nodes)).collect();
        let edges = graph.relations().iter().enumerate();
        let edges: Vec<String> = edges.map(|(r, of)| format!("{}: {}", schema.edge_name(r), of.nnz())).collect();
        format!("girih.TypedGraph(nodes {{{}}}, edges {{{}}})", nodes.join(", "), edges.join(", "))
    }
}

impl TypedGraph {
    /// Graph whose edges are named by their positions.
    pub fn of(graph: Typed) -> Self {
        let names = vec![None; graph.relations().len()];
        Self { held: Arc::new(HeldGraph::new(graph, names)) }
    }

    /// Dictionary of a value for each edge type.
    fn by_type<'py, V: IntoPyObject<'py>>(
        &self,
        py: Python<'py>,
        value: impl Fn(usize, &Csr) -> PyResult<V>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let made = PyDict::new(py);
        for (number, relation) in self.held.graph.relations().iter().enumerate() {
            made.set_item(self.held.edge_type(py, number)?, value(number, relation)?)?;
        }
        Ok(made)
    }
}

/// For each edge type, the number of the one that it is the reverse of.
fn reverses(keys: &[[String; 3]], given: Option<&Bound<'_, PyDict>>) -> PyResult<Vec<Option<usize>>> {
    let mut reverses = vec![None; keys.len()];
    let number = |key: &Bound<'_, PyAny>| {
        let wanted = parts(key)?;
        keys.iter().position(|key| *key == wanted).ok_or_else(|| {
            value_error(format!(
                "reverse_types names the edge type {}, which edge_index does not have",
                wanted.join(".")
            ))
        })
    };
    for (reverse, forward) in given.into_iter().flatten() {
        reverses[number(&reverse)?] = Some(number(&forward)?);
    }
    Ok(reverses)
}
