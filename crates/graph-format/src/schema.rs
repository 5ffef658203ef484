//! [`Schema`]: names and sizes of the types of nodes and edges.

use std::collections::HashSet;
use std::fmt;

use crate::{FormatError, MAX_NODES};

/// Prefix of the names of reverse relations.
const REVERSE: &str = "rev_";

/// Type of nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeType {
    /// Unique name, such as `paper`.
    pub name: String,
    /// Number of nodes, which may be 0.
    pub n_nodes: usize,
}

/// Type of edges: a relation from nodes of one type to nodes of another or the same type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EdgeType {
    /// Name of the relation, such as `writes`; unique among those with the same ends.
    pub relation: String,
    /// Number of the type of sources.
    pub source: usize,
    /// Number of the type of destinations.
    pub destination: usize,
    /// Number of the edge type whose edges this one has in the other direction, if it was made from that one.
    pub reverse_of: Option<usize>,
}

impl EdgeType {
    /// Name of the relation's reverse, where one is added: `rev_` and the name of the relation.
    #[must_use]
    pub fn reverse_name(&self) -> String {
        format!("{REVERSE}{}", self.relation)
    }
}

/// Types of nodes and of edges, in a fixed order; their numbers are positions in it.
///
/// Nodes of all types together have global ids: those of the first type, then those of the second, and so on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    node_types: Vec<NodeType>,
    edge_types: Vec<EdgeType>,
}

impl Schema {
    /// Makes a schema, and checks it.
    ///
    /// # Errors
    /// When there is no node type, a name is empty or not unique, an end is no node type, a reverse is not one, or the
    /// nodes of all types together are more than [`MAX_NODES`].
    pub fn new(node_types: Vec<NodeType>, edge_types: Vec<EdgeType>) -> Result<Self, FormatError> {
        let schema = Self { node_types, edge_types };
        schema.check_nodes()?;
        schema.check_edges()?;
        Ok(schema)
    }

    fn check_nodes(&self) -> Result<(), FormatError> {
        if self.node_types.is_empty() {
            return Err(FormatError::invalid("a typed graph without a node type; name at least one"));
        }
        let mut names = HashSet::new();
        for NodeType { name, .. } in &self.node_types {
            if name.is_empty() || !names.insert(name) {
                return Err(FormatError::invalid(format!("the node type {name:?} has no name of its own; rename it")));
            }
        }
        let n_nodes = self.node_types.iter().try_fold(0_usize, |sum, of| sum.checked_add(of.n_nodes));
        match n_nodes.filter(|&n_nodes| n_nodes <= MAX_NODES) {
            Some(_) => Ok(()),
            None => Err(FormatError::invalid(format!(
                "the {} node types together have more than {MAX_NODES} nodes; use fewer",
                self.node_types.len()
            ))),
        }
    }

    fn check_edges(&self) -> Result<(), FormatError> {
        let (n_types, mut names) = (self.node_types.len(), HashSet::new());
        for (number, edges) in self.edge_types.iter().enumerate() {
            let &EdgeType { ref relation, source, destination, reverse_of } = edges;
            if let Some(end) = [source, destination].into_iter().find(|&end| end >= n_types) {
                let of = format!("the relation {relation:?} has an end of node type {end}");
                return Err(FormatError::invalid(format!("{of}, but there are {n_types} node types")));
            }
            if relation.is_empty() || !names.insert((relation, source, destination)) {
                let name = self.name_of(edges);
                return Err(FormatError::invalid(format!("there are two relations {name}; rename one of them")));
            }
            let fits = |of: usize| {
                let forward = self.edge_types.get(of)?;
                Some(of != number && (forward.source, forward.destination) == (destination, source))
            };
            if reverse_of.is_some_and(|of| fits(of) != Some(true)) {
                let name = self.name_of(edges);
                return Err(FormatError::invalid(format!("{name} is no reverse: its ends are not exchanged")));
            }
        }
        Ok(())
    }

    /// Types of nodes.
    #[must_use]
    pub fn node_types(&self) -> &[NodeType] {
        &self.node_types
    }

    /// Types of edges.
    #[must_use]
    pub fn edge_types(&self) -> &[EdgeType] {
        &self.edge_types
    }

    /// Number of nodes of all types.
    #[must_use]
    pub fn n_nodes(&self) -> usize {
        self.node_types.iter().map(|of| of.n_nodes).sum()
    }

    /// First global id of a node type.
    ///
    /// # Panics
    /// When there is no such type.
    #[must_use]
    pub fn first(&self, node_type: usize) -> usize {
        self.node_types[..node_type].iter().map(|of| of.n_nodes).sum()
    }

    /// Number of the node type of this name.
    #[must_use]
    pub fn node_type(&self, name: &str) -> Option<usize> {
        self.node_types.iter().position(|of| of.name == name)
    }

    /// Number of rows and of columns of an edge type's adjacency: destinations, and sources.
    ///
    /// # Panics
    /// When there is no such type.
    #[must_use]
    pub fn shape(&self, edge_type: usize) -> (usize, usize) {
        let EdgeType { source, destination, .. } = self.edge_types[edge_type];
        (self.node_types[destination].n_nodes, self.node_types[source].n_nodes)
    }

    /// Full name of an edge type: `SOURCE.RELATION.DESTINATION`.
    ///
    /// # Panics
    /// When there is no such type.
    #[must_use]
    pub fn edge_name(&self, edge_type: usize) -> String {
        self.name_of(&self.edge_types[edge_type])
    }

    /// Source type, relation and destination type of an edge type, by their names.
    ///
    /// # Panics
    /// When there is no such type.
    #[must_use]
    pub fn edge_parts(&self, edge_type: usize) -> [&str; 3] {
        self.parts_of(&self.edge_types[edge_type])
    }

    fn parts_of<'a>(&'a self, edges: &'a EdgeType) -> [&'a str; 3] {
        [&self.node_types[edges.source].name, &edges.relation, &self.node_types[edges.destination].name]
    }

    fn name_of(&self, edges: &EdgeType) -> String {
        self.parts_of(edges).join(".")
    }

    /// Edge type that has the edges of another in the other direction: the one that it is the reverse of, or its reverse.
    ///
    /// # Panics
    /// When there is no such type.
    #[must_use]
    pub fn reverse_of(&self, edge_type: usize) -> Option<usize> {
        let is_one = |of: &EdgeType| of.reverse_of == Some(edge_type);
        self.edge_types[edge_type].reverse_of.or_else(|| self.edge_types.iter().position(is_one))
    }

    /// Whether an edge type is the reverse of another, or has one.
    ///
    /// # Panics
    /// When there is no such type.
    #[must_use]
    pub fn has_reverse(&self, edge_type: usize) -> bool {
        self.reverse_of(edge_type).is_some()
    }

    /// Schema in which each relation that `needs` its reverse is followed by it. For each edge type, it returns the old
    /// number of its relation, and whether it is an added reverse.
    ///
    /// # Errors
    /// When a relation has the name of a reverse that is to be added.
    pub fn with_reverses(&self, needs: impl Fn(usize) -> bool) -> Result<(Self, Vec<(usize, bool)>), FormatError> {
        let (mut edge_types, mut from): (Vec<EdgeType>, Vec<(usize, bool)>) = (Vec::new(), Vec::new());
        let mut numbers = Vec::with_capacity(self.edge_types.len());
        for (number, edges) in self.edge_types.iter().enumerate() {
            numbers.push(edge_types.len());
            edge_types.push(edges.clone());
            from.push((number, false));
            if !self.has_reverse(number) && needs(number) {
                edge_types.push(EdgeType {
                    relation: edges.reverse_name(),
                    source: edges.destination,
                    destination: edges.source,
                    reverse_of: Some(number),
                });
                from.push((number, true));
            }
        }
        for edges in &mut edge_types {
            edges.reverse_of = edges.reverse_of.map(|of| numbers[of]);
        }
        Ok((Self::new(self.node_types.clone(), edge_types)?, from))
    }
}

impl fmt::Display for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (n_nodes, n_edges) = (self.node_types.len(), self.edge_types.len());
        let [s, t] = [n_nodes, n_edges].map(|n| if n == 1 { "" } else { "s" });
        write!(f, "{n_nodes} node type{s}, {n_edges} edge type{t}")
    }
}
