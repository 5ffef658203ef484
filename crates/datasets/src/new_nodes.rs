//! [`NewNodes`]: nodes that a graph does not have, with their features and edges.
//!
//! ```text
//! x           n × width   features; or num_nodes, where the model makes features from the graph
//! edge_index  2 × m       source and destination of each edge
//! edge_weight m           weights, for a graph that has weights; else every edge counts one
//! ```
//! New nodes of a graph of `N` nodes have the ids `N`, `N + 1`, … in the order of their rows.

use std::collections::BTreeMap;
use std::path::Path;

use girih_compress::CompressedFeatures;
use girih_graph_format::file::{Npz, Tensors};
use girih_graph_format::{Buffer, Csr, FormatError, Matrix, NodeId};

use crate::named_arrays::{self, ArrayFolder, NamedArrays};
use crate::{Dataset, DatasetError, FeatureNorm, Features};

/// Nodes that a graph does not have, with the edges between them and the graph.
#[derive(Clone, Debug, PartialEq)]
pub struct NewNodes {
    /// Number of new nodes.
    n_nodes: usize,
    /// One row per new node; `None` where features are made from the graph.
    features: Option<Matrix>,
    /// Sources and destinations, as many of one as of the other.
    edges: [Vec<NodeId>; 2],
    /// One weight per edge; `None` where every edge counts one.
    weights: Option<Vec<f32>>,
}

/// In-neighbors that each node gets, with the weights of these edges: ascending nodes, ascending in-neighbors. All
/// new nodes are among them.
pub type NewRows = BTreeMap<NodeId, Vec<(NodeId, f32)>>;

impl NewNodes {
    /// New nodes with a row of features each, their edges from `sources[i]` to `destinations[i]`, and the weights of
    /// the edges.
    ///
    /// # Errors
    /// When the lists have different lengths, or a value is not finite.
    pub fn new(features: Matrix, edges: [Vec<NodeId>; 2], weights: Option<Vec<f32>>) -> Result<Self, DatasetError> {
        Self { n_nodes: features.n_rows(), features: Some(features), edges, weights }.checked()
    }

    /// These nodes with rows of features divided by `norm`, as [`Dataset::feature_norm`] says that those of the graph
    /// are.
    ///
    /// # Errors
    /// When a quotient is not finite.
    pub fn normalized(self, norm: FeatureNorm) -> Result<Self, DatasetError> {
        let features = match self.features.map(|rows| norm.apply(Features::Dense(rows))).transpose()? {
            Some(Features::Dense(rows)) => Some(rows),
            _ => None,
        };
        Ok(Self { features, ..self })
    }

    /// Reads new nodes from named arrays: an `.npz` archive, a `.safetensors` file, or a folder of `.npy` files.
    ///
    /// # Errors
    /// When an array is missing or damaged, or is not known.
    pub fn read(path: &Path) -> Result<Self, DatasetError> {
        let mut source: Box<dyn NamedArrays> = match path.extension().and_then(|e| e.to_str()) {
            _ if path.is_dir() => Box::new(ArrayFolder::open(path)?),
            Some("npz") => Box::new(Npz::open(path)?),
            Some("safetensors") => Box::new(Tensors::open(path)?),
            _ => {
                let what = "new nodes are an .npz archive, a .safetensors file or a folder of .npy files";
                return Err(DatasetError::invalid(what).at(path));
            }
        };
        let mut read = || {
            let (n_nodes, features, edges, weights) = named_arrays::read_new_nodes(&mut *source)?;
            Self { n_nodes, features, edges, weights }.checked()
        };
        read().map_err(|error| error.at(path))
    }

    fn checked(self) -> Result<Self, DatasetError> {
        let [sources, destinations] = &self.edges;
        if sources.len() != destinations.len() {
            let (s, d) = (sources.len(), destinations.len());
            return Err(DatasetError::invalid(format!(
                "{s} sources and {d} destinations of edges; give one of each an edge"
            )));
        }
        if let Some(weights) = self.weights.as_ref().filter(|weights| weights.len() != sources.len()) {
            let (w, m) = (weights.len(), sources.len());
            return Err(DatasetError::invalid(format!("{w} weights for {m} edges; give one an edge")));
        }
        if let Some(edge) = self.weights.iter().flatten().position(|weight| !weight.is_finite()) {
            return Err(DatasetError::invalid(format!("the weight of edge {edge} is not finite; give a number")));
        }
        self.features.as_ref().map_or(Ok(()), Matrix::check_finite)?;
        Ok(self)
    }

    /// Number of new nodes.
    #[must_use]
    pub fn n_nodes(&self) -> usize {
        self.n_nodes
    }

    /// One row per new node; `None` where features are made from the graph.
    #[must_use]
    pub fn features(&self) -> Option<&Matrix> {
        self.features.as_ref()
    }

    /// In-neighbors that the nodes of `graph`, and the new ones, get by the new edges.
    ///
    /// # Errors
    /// When an edge names a node that does not exist, joins two nodes of the graph, or comes twice. When edges have
    /// weights and the graph has none.
    pub fn rows_of(&self, graph: &Csr) -> Result<NewRows, DatasetError> {
        let n_known = graph.n_rows();
        let n_all = self.n_nodes_with(graph)?;
        if self.weights.is_some() && graph.values().is_none() {
            return Err(DatasetError::invalid(
                "the new edges have weights, and the graph has none; leave edge_weight out",
            ));
        }
        let mut rows: NewRows = (n_known..n_all).map(|node| (node as NodeId, Vec::new())).collect();
        let [sources, destinations] = &self.edges;
        for (edge, (&source, &destination)) in sources.iter().zip(destinations).enumerate() {
            let invalid = |what| Err(DatasetError::invalid(format!("edge {edge} of the new nodes {what}")));
            if let Some(node) = [source, destination].into_iter().find(|&node| node as usize >= n_all) {
                return invalid(format!(
                    "names node {node}; the graph has the nodes 0 to {}, and new ones follow up to {}",
                    n_known.saturating_sub(1),
                    n_all - 1
                ));
            }
            if (source as usize) < n_known && (destination as usize) < n_known {
                return invalid(format!(
                    "joins {source} and {destination}, which the graph has both; give edges with a new node at one end"
                ));
            }
            let weight = self.weights.as_ref().map_or(1.0, |weights| weights[edge]);
            rows.entry(destination).or_default().push((source, weight));
        }
        for (destination, row) in &mut rows {
            row.sort_unstable_by_key(|&(source, _)| source);
            if let Some(pair) = row.windows(2).find(|pair| pair[0].0 == pair[1].0) {
                let source = pair[0].0;
                return Err(DatasetError::invalid(format!(
                    "two new edges go from {source} to {destination}; give each once"
                )));
            }
        }
        Ok(rows)
    }

    /// Whether each edge also comes in the other direction.
    #[must_use]
    pub fn is_symmetric(&self) -> bool {
        let [sources, destinations] = &self.edges;
        let sorted = |pairs: &mut dyn Iterator<Item = (NodeId, NodeId)>| {
            let mut pairs: Vec<_> = pairs.collect();
            pairs.sort_unstable();
            pairs
        };
        let edges = || sources.iter().copied().zip(destinations.iter().copied());
        sorted(&mut edges()) == sorted(&mut edges().map(|(source, destination)| (destination, source)))
    }

    /// Number of nodes of a graph with these.
    fn n_nodes_with(&self, graph: &Csr) -> Result<usize, DatasetError> {
        let n_all = graph.n_rows() + self.n_nodes;
        if n_all > NodeId::MAX as usize / 2 {
            return Err(DatasetError::invalid(format!("{n_all} nodes; ids have 31 bits")));
        }
        Ok(n_all)
    }
}

impl Dataset {
    /// This data set with new nodes after its own. Labels and splits are left out: new nodes have none. Features that are
    /// compressed get the new ones as codes of the same codec, so that a codec belongs before this call.
    ///
    /// # Errors
    /// When edges or features of the new nodes do not fit, the codec of the features refuses those of new nodes, or the
    /// data are users and items.
    pub fn with_new_nodes(self, new: &NewNodes) -> Result<Self, DatasetError> {
        if self.interactions.is_some() {
            return Err(DatasetError::invalid(
                "users and items cannot get new nodes; train again with their interactions",
            ));
        }
        let graph = with_rows(&self.graph, &new.rows_of(&self.graph)?)?;
        let features = self.features.map(|features| features.with_new(new)).transpose()?;
        if features.is_none() && new.features.is_some() {
            return Err(DatasetError::invalid(
                "the new nodes have features, and those of the graph have none; leave x out",
            ));
        }
        let dataset = Self { graph, features, labels: None, splits: Vec::new(), ..self };
        dataset.validate()?;
        Ok(dataset)
    }
}

/// A graph with `rows` added to its own.
fn with_rows(graph: &Csr, rows: &NewRows) -> Result<Csr, FormatError> {
    let n_known = graph.n_rows();
    let n_all = n_known + rows.range(n_known as NodeId..).count();
    let n_edges = graph.nnz() + rows.values().map(Vec::len).sum::<usize>();
    let (mut indptr, mut indices) = (Vec::with_capacity(n_all + 1), Vec::with_capacity(n_edges));
    let mut values = graph.values().map(|_| Vec::with_capacity(n_edges));
    indptr.push(0);
    for node in 0..n_all {
        if node < n_known {
            indices.extend_from_slice(graph.row(node));
            if let (Some(values), Some(known)) = (&mut values, graph.values()) {
                values.extend_from_slice(&known[graph.row_range(node)]);
            }
        }
        // Ids of new nodes come after those of the graph, so that columns stay ascending.
        let added = rows.get(&(node as NodeId)).map_or(&[][..], Vec::as_slice);
        indices.extend(added.iter().map(|&(source, _)| source));
        if let Some(values) = &mut values {
            values.extend(added.iter().map(|&(_, weight)| weight));
        }
        indptr.push(indices.len() as u64);
    }
    Csr::new(n_all, n_all, indptr, indices, values.map(Buffer::from))
}

impl Features {
    /// These rows, followed by those of new nodes.
    fn with_new(self, new: &NewNodes) -> Result<Self, DatasetError> {
        let width = self.width();
        let Some(rows) = &new.features else {
            return Err(DatasetError::invalid(format!("the new nodes have no features; give x with {width} columns")));
        };
        if rows.n_cols() != width {
            let found = rows.n_cols();
            return Err(DatasetError::invalid(format!(
                "the new nodes have {found} features, and those of the graph {width}; give x with {width} columns"
            )));
        }
        match self {
            Self::Dense(all) => {
                let data = [all.data(), rows.data()].concat();
                Ok(Self::Dense(Matrix::new(all.n_rows() + rows.n_rows(), width, data)?))
            }
            Self::Sparse(all) => Ok(Self::Sparse(all.stacked(&Csr::of_nonzeros(rows)?)?)),
            Self::Compressed(all) => {
                let added = encoded_alike(&all, rows)?;
                Ok(Self::Compressed(all.of_codes([all.codes(), added.codes()].concat())?))
            }
        }
    }
}

impl NewNodes {
    /// These nodes with features that have lost what the codec of `known` loses: encoded by it, and decoded.
    ///
    /// # Errors
    /// When the codec refuses them.
    pub fn as_decoded(&self, known: &CompressedFeatures) -> Result<Self, DatasetError> {
        let Some(rows) = &self.features else { return Ok(self.clone()) };
        let mut decoded = vec![0.0; rows.data().len()];
        encoded_alike(known, rows)?.decode(0, &mut decoded);
        Ok(Self { features: Some(Matrix::new(rows.n_rows(), rows.n_cols(), decoded)?), ..self.clone() })
    }
}

/// Codes of the features of new nodes.
fn encoded_alike(known: &CompressedFeatures, rows: &Matrix) -> Result<CompressedFeatures, DatasetError> {
    known.encode_alike(rows).map_err(|error| {
        let codec = known.codec().spec();
        DatasetError::invalid(format!(
            "the codec {codec} of the graph's features refuses those of the new nodes: {error}"
        ))
    })
}
