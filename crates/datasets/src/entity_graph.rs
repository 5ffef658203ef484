//! [`entity_graph`]: typed graph of entities of one type, with a relation for each kind of statement.

use girih_graph_format::{Coo, Csr, Duplicates, EdgeType, NodeId, NodeType, Notes, Schema, TypedGraph};

use crate::{DatasetError, LoadOptions, NameList, ReverseEdges, reverses};

/// Name of the only type of nodes.
pub(crate) const NODE_TYPE: &str = "entity";

/// Edges of one relation.
#[derive(Default)]
pub(crate) struct Edges {
    pub(crate) sources: Vec<NodeId>,
    pub(crate) destinations: Vec<NodeId>,
}

impl Edges {
    /// Adds an edge. Messages go from its source to its destination, whose row has the source.
    pub(crate) fn push(&mut self, source: NodeId, destination: NodeId) {
        self.sources.push(source);
        self.destinations.push(destination);
    }
}

/// Typed graph of `n_nodes` entities, with a relation under each name, and with reverse relations unless the options
/// leave them out. An edge that is stated again is stored once, with a note.
///
/// # Errors
/// When two relations have one name, an edge is stated again and the options refuse that, or memory does not suffice.
pub(crate) fn entity_graph(
    names: &NameList,
    edges: Vec<Edges>,
    n_nodes: usize,
    options: &LoadOptions,
    notes: &mut Notes,
) -> Result<TypedGraph, DatasetError> {
    let n_stated: usize = edges.iter().map(|edges| edges.sources.len()).sum();
    let relations = relations(edges, n_nodes, options)?;
    let node_type = NodeType { name: NODE_TYPE.to_owned(), n_nodes };
    let edge_type = |name: &str| EdgeType { relation: name.to_owned(), source: 0, destination: 0, reverse_of: None };
    let schema = Schema::new(vec![node_type], names.iter().map(edge_type).collect())?;
    let typed = TypedGraph::new(schema, relations)?;
    Duplicates::Merge.note(n_stated - typed.n_edges(), false, notes);
    reverses::of_all(typed, options.reverse, notes)
}

/// Whether edges get their other direction.
pub(crate) fn adds_reverse(options: &LoadOptions) -> bool {
    options.reverse != Some(ReverseEdges::No)
}

/// Adjacency of each relation.
fn relations(edges: Vec<Edges>, n_nodes: usize, options: &LoadOptions) -> Result<Vec<Csr>, DatasetError> {
    edges.into_iter().map(|edges| relation(edges, (n_nodes, n_nodes), options)).collect()
}

/// Adjacency of one relation, `destinations × sources`.
///
/// # Errors
/// When an edge is stated again and the options refuse that.
pub(crate) fn relation(
    Edges { sources, destinations }: Edges,
    (n_rows, n_cols): (usize, usize),
    options: &LoadOptions,
) -> Result<Csr, DatasetError> {
    let n_stated = sources.len();
    let relation = Coo::new(n_rows, n_cols, destinations, sources, None)?.to_csr(Duplicates::Merge)?;
    let n_repeated = n_stated - relation.nnz();
    if n_repeated > 0 && options.duplicates == Some(Duplicates::Refuse) {
        let what = format!("triples are stated again, {n_repeated} of one predicate");
        return Err(DatasetError::invalid(format!("{what}; --duplicates merge stores each once")));
    }
    Ok(relation)
}
