//! [`RelationInput`]: a typed graph on the device, as networks with a weight for each relation read it.

use girih_compute::{Backend, ComputeError, RelationRows, Shape, SparseOperand, Symbolic};
use girih_graph_format::{Csr, FormatError, NodeId, Norm, PlacedRelation, RelationSizes, TypedGraph};

/// Typed graph on the device. Nodes of all types have global ids.
///
/// A *stacked row* stands for a pair of an edge type and a destination that has neighbors by it. Stacked rows of an edge
/// type are consecutive, those of a destination are not.
pub struct RelationInput<B: Backend> {
    /// Means over the neighbors of each stacked row, `stacked rows × nodes`.
    pub means: B::Sparse,
    /// First stacked row of each edge type, then the number of stacked rows.
    pub runs: Vec<usize>,
    /// Sums over the stacked rows of each node, `nodes × stacked rows`.
    pub sums: B::Sparse,
    /// First node of each node type, then the number of nodes.
    pub node_runs: Vec<usize>,
    /// Learned rows, for networks without features.
    pub learned: Option<LearnedRows<B>>,
}

/// Rows that a network learns for pairs of an edge type and a node that is the source of an edge of it. No other rows are
/// read, so that there are no others.
pub struct LearnedRows<B: Backend> {
    /// Sums, over the edge types of each node, of means over neighbors: `nodes × pairs`.
    pub means: B::Sparse,
    /// Pairs, by ascending nodes and edge types.
    pub pairs: RelationRows<B>,
    /// Number of pairs.
    pub n_pairs: usize,
}

/// Error of a graph or of a device.
type Uploaded<T> = Result<T, ComputeError>;

fn of_format(error: &FormatError) -> ComputeError {
    ComputeError::argument("relations", error.to_string())
}

impl<B: Backend> RelationInput<B> {
    /// Moves a typed graph to the device, with pairs for learned rows if there are no features.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub fn upload(backend: &B, typed: &TypedGraph, has_features: bool) -> Uploaded<Self> {
        let stacked = Stacked::of(typed);
        let schema = typed.schema();
        let node_runs = (0..=schema.node_types().len()).map(|node_type| schema.first(node_type)).collect();
        let learned = if has_features { None } else { Some(LearnedRows::upload(backend, typed)?) };
        let (n_rows, n_nodes) = (stacked.nodes.len(), typed.n_nodes());
        let sums = stacked.sums(n_nodes)?;
        let means =
            Csr::new(n_rows, n_nodes, stacked.indptr, stacked.indices, None).map_err(|error| of_format(&error))?;
        Ok(Self {
            means: upload(backend, &means, Norm::Row)?,
            runs: stacked.runs,
            sums: upload(backend, &sums, Norm::None)?,
            node_runs,
            learned,
        })
    }
}

impl RelationInput<Symbolic> {
    /// Symbolic typed graph of known sizes; nodes are taken to be of equally many types.
    pub(crate) fn symbolic(
        symbolic: &Symbolic,
        n_nodes: usize,
        sizes: RelationSizes,
        has_features: bool,
    ) -> Uploaded<Self> {
        let RelationSizes { n_node_types, n_edge_types, n_edges, n_sources, n_destinations } = sizes;
        let evenly = |n: usize, parts: usize| (0..=parts).map(|part| n * part / parts.max(1)).collect();
        let sparse = |rows, cols, nnz| symbolic.sparse(Shape::new(rows, cols), nnz, false, false);
        let learned = || {
            let pairs = vec![0; n_sources];
            Ok(LearnedRows {
                means: symbolic.sparse(Shape::new(n_nodes, n_sources), n_edges, true, false),
                pairs: RelationRows::upload(symbolic, &pairs, &pairs)?,
                n_pairs: n_sources,
            })
        };
        Ok(Self {
            means: sparse(n_destinations, n_nodes, n_edges),
            runs: evenly(n_destinations, n_edge_types),
            sums: sparse(n_nodes, n_destinations, n_destinations),
            node_runs: evenly(n_nodes, n_node_types),
            learned: if has_features { None } else { Some(learned()?) },
        })
    }
}

fn upload<B: Backend>(backend: &B, csr: &Csr, norm: Norm) -> Uploaded<B::Sparse> {
    backend.upload_sparse(&SparseOperand { csr, scales: csr.scales(norm), symmetric: false, names: None })
}

/// Stacked rows on the host.
struct Stacked {
    indptr: Vec<u64>,
    /// Global ids of neighbors.
    indices: Vec<NodeId>,
    /// Global id of the node of each row.
    nodes: Vec<NodeId>,
    runs: Vec<usize>,
}

impl Stacked {
    fn of(typed: &TypedGraph) -> Self {
        let sizes = typed.sizes();
        let mut stacked = Self {
            indptr: vec![0],
            indices: Vec::with_capacity(sizes.n_edges),
            nodes: Vec::with_capacity(sizes.n_destinations),
            runs: vec![0],
        };
        for PlacedRelation { adjacency, first_source, first_destination, .. } in typed.placed_relations() {
            for v in (0..adjacency.n_rows()).filter(|&v| adjacency.degree(v) > 0) {
                stacked.indices.extend(adjacency.row(v).iter().map(|u| first_source as NodeId + u));
                stacked.indptr.push(stacked.indices.len() as u64);
                stacked.nodes.push((first_destination + v) as NodeId);
            }
            stacked.runs.push(stacked.nodes.len());
        }
        stacked
    }

    /// Matrix that sums the stacked rows of each node.
    fn sums(&self, n_nodes: usize) -> Uploaded<Csr> {
        let (n_rows, nodes) = (self.nodes.len(), self.nodes.clone());
        let node_of_row = Csr::new(n_rows, n_nodes, (0..=n_rows as u64).collect::<Vec<_>>(), nodes, None);
        Ok(node_of_row.map_err(|error| of_format(&error))?.transposed())
    }
}

impl<B: Backend> LearnedRows<B> {
    fn upload(backend: &B, typed: &TypedGraph) -> Uploaded<Self> {
        let pairs = SourcePairs::of(typed);
        let means = upload(backend, &pairs.means(typed)?, Norm::None)?;
        let n_pairs = pairs.relations.len();
        Ok(Self { means, pairs: RelationRows::upload(backend, &pairs.nodes, &pairs.relations)?, n_pairs })
    }
}

/// Pairs of a node and an edge type that it is a source of, by ascending nodes and edge types.
struct SourcePairs {
    nodes: Vec<NodeId>,
    relations: Vec<u32>,
    /// First pair of each node.
    first: Vec<usize>,
}

impl SourcePairs {
    fn of(typed: &TypedGraph) -> Self {
        let mut pairs = Vec::with_capacity(typed.sizes().n_sources);
        for relation in typed.placed_relations() {
            let pair = |u: usize| ((relation.first_source + u) as NodeId, relation.number as u32);
            pairs.extend(relation.sources().map(pair));
        }
        pairs.sort_unstable();
        let (nodes, relations): (Vec<NodeId>, Vec<u32>) = pairs.into_iter().unzip();
        let first = (0..=typed.n_nodes()).map(|node| nodes.partition_point(|&of| (of as usize) < node)).collect();
        Self { nodes, relations, first }
    }

    /// Position of a pair.
    fn position(&self, node: usize, relation: usize) -> NodeId {
        let of_node = &self.relations[self.first[node]..self.first[node + 1]];
        (self.first[node] + of_node.partition_point(|&of| (of as usize) < relation)) as NodeId
    }

    /// Matrix whose row `v` has `1 / n` at the pairs of each edge type that ends in `v`, with `n` neighbors by it.
    fn means(&self, typed: &TypedGraph) -> Uploaded<Csr> {
        let (mut indptr, mut entries) = (vec![0_u64], Vec::with_capacity(typed.n_edges()));
        for (node_type, of) in typed.schema().node_types().iter().enumerate() {
            let into: Vec<PlacedRelation<'_>> =
                typed.placed_relations().filter(|of| of.destination == node_type).collect();
            for v in 0..of.n_nodes {
                let start = entries.len();
                for &PlacedRelation { number, adjacency, first_source, .. } in &into {
                    let share = 1.0 / adjacency.degree(v) as f32;
                    let pair = |&u: &NodeId| (self.position(first_source + u as usize, number), share);
                    entries.extend(adjacency.row(v).iter().map(pair));
                }
                entries[start..].sort_unstable_by_key(|&(pair, _)| pair);
                indptr.push(entries.len() as u64);
            }
        }
        let (indices, values): (Vec<NodeId>, Vec<f32>) = entries.into_iter().unzip();
        Csr::new(typed.n_nodes(), self.relations.len(), indptr, indices, Some(values.into()))
            .map_err(|error| of_format(&error))
    }
}
