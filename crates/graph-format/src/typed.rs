//! [`TypedGraph`]: an adjacency for each type of edges.

use std::ops::Range;

use rayon::prelude::*;

use crate::{Csr, EdgeType, FormatError, NodeId, NodeType, Schema};

/// Sizes of a [`TypedGraph`], on which those of networks depend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelationSizes {
    /// Number of nodes of each type.
    pub node_types: Vec<usize>,
    /// Sizes of each type of edges.
    pub relations: Vec<RelationSize>,
}

/// Sizes of a type of edges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelationSize {
    /// Number of the type of sources.
    pub source: usize,
    /// Number of the type of destinations.
    pub destination: usize,
    /// Number of edges.
    pub n_edges: usize,
    /// Number of nodes that are the source of an edge.
    pub n_sources: usize,
    /// Number of nodes that are the destination of an edge.
    pub n_destinations: usize,
}

impl RelationSizes {
    /// Upper bounds for a graph without types.
    #[must_use]
    pub fn of_plain(n_nodes: usize, n_edges: usize) -> Self {
        let relation = RelationSize { source: 0, destination: 0, n_edges, n_sources: n_nodes, n_destinations: n_nodes };
        Self { node_types: vec![n_nodes], relations: vec![relation] }
    }
}

/// Graph whose nodes and edges have types.
///
/// A relation has a row for each node of its destination type, and lists in-neighbors by their ids inside the source
/// type. A graph without types is the case of one node type and one edge type.
#[derive(Clone, Debug, PartialEq)]
pub struct TypedGraph {
    schema: Schema,
    relations: Vec<Csr>,
    sizes: RelationSizes,
}

/// Relation of a [`TypedGraph`] among the nodes of all types.
#[derive(Clone, Copy, Debug)]
pub struct PlacedRelation<'a> {
    /// Number of the edge type.
    pub number: usize,
    /// Number of the type of destinations.
    pub destination: usize,
    /// Adjacency by ids inside the types: `destinations × sources`.
    pub adjacency: &'a Csr,
    /// Global id of the first source.
    pub first_source: usize,
    /// Global id of the first destination.
    pub first_destination: usize,
}

impl TypedGraph {
    /// Makes a graph from a schema and the adjacency of each edge type, in the schema's order.
    ///
    /// # Errors
    /// When the number of relations or the shape of one does not agree with the schema.
    pub fn new(schema: Schema, relations: Vec<Csr>) -> Result<Self, FormatError> {
        let n_types = schema.edge_types().len();
        if relations.len() != n_types {
            let found = relations.len();
            return Err(FormatError::invalid(format!(
                "{found} adjacencies for {n_types} edge types; give one for each"
            )));
        }
        for (number, relation) in relations.iter().enumerate() {
            let (found, expected) = ((relation.n_rows(), relation.n_cols()), schema.shape(number));
            if found != expected {
                let name = schema.edge_name(number);
                return Err(FormatError::invalid(format!(
                    "the adjacency of {name} is {} × {}, but its types have {} destinations and {} sources",
                    found.0, found.1, expected.0, expected.1
                )));
            }
        }
        let of_relation = |(edges, of): (&EdgeType, &Csr)| RelationSize {
            source: edges.source,
            destination: edges.destination,
            n_edges: of.nnz(),
            n_sources: of.used_columns().count(),
            n_destinations: (0..of.n_rows()).filter(|&v| of.degree(v) > 0).count(),
        };
        let sizes = RelationSizes {
            node_types: schema.node_types().iter().map(|of| of.n_nodes).collect(),
            relations: schema.edge_types().par_iter().zip(&relations).map(of_relation).collect(),
        };
        Ok(Self { schema, relations, sizes })
    }

    /// Makes a graph of one type of nodes, `node`, and one of edges, `edge`.
    ///
    /// # Errors
    /// When the matrix is not square.
    pub fn of_plain(graph: Csr) -> Result<Self, FormatError> {
        let node = NodeType { name: "node".to_owned(), n_nodes: graph.n_rows() };
        let edge = EdgeType { relation: "edge".to_owned(), source: 0, destination: 0, reverse_of: None };
        Self::new(Schema::new(vec![node], vec![edge])?, vec![graph])
    }

    /// Sizes of all types.
    #[must_use]
    pub fn sizes(&self) -> &RelationSizes {
        &self.sizes
    }

    /// Types of nodes and edges.
    #[must_use]
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Adjacency of each edge type: `destinations × sources`.
    #[must_use]
    pub fn relations(&self) -> &[Csr] {
        &self.relations
    }

    /// Relations in the order of their edge types, with their places among the nodes of all types.
    pub fn placed_relations(&self) -> impl Iterator<Item = PlacedRelation<'_>> {
        self.schema.edge_types().iter().zip(&self.relations).enumerate().map(|(number, (edges, adjacency))| {
            let [first_source, first_destination] = [edges.source, edges.destination].map(|end| self.schema.first(end));
            PlacedRelation { number, destination: edges.destination, adjacency, first_source, first_destination }
        })
    }

    /// Number of nodes of all types.
    #[must_use]
    pub fn n_nodes(&self) -> usize {
        self.schema.n_nodes()
    }

    /// Number of edges of all types.
    #[must_use]
    pub fn n_edges(&self) -> usize {
        self.relations.iter().map(Csr::nnz).sum()
    }

    /// Adds the reverse of each relation that has none, right behind it. Its name is that of the relation after `rev_`.
    ///
    /// # Errors
    /// When a relation has the name of a reverse that is to be added.
    pub fn with_reverses(&self) -> Result<Self, FormatError> {
        self.with_reverses_of(|_| true)
    }

    /// As [`with_reverses`](Self::with_reverses), but only for the relations that `needs` accepts by their numbers.
    ///
    /// # Errors
    /// As [`with_reverses`](Self::with_reverses).
    pub fn with_reverses_of(&self, needs: impl Fn(usize) -> bool) -> Result<Self, FormatError> {
        let (schema, from) = self.schema.with_reverses(needs)?;
        let made = |&(of, is_reverse): &(usize, bool)| {
            let relation = &self.relations[of];
            if is_reverse { relation.transposed() } else { relation.clone() }
        };
        let relations = from.par_iter().map(made).collect();
        Self::new(schema, relations)
    }

    /// Adjacency over global ids that has an entry for each pair with an edge of any type, without weights.
    ///
    /// # Errors
    /// When memory does not suffice.
    pub fn union(&self) -> Result<Csr, FormatError> {
        let (mut indptr, mut indices) = (vec![0_u64], Vec::new());
        for (number, of) in self.schema.node_types().iter().enumerate() {
            let into: Vec<PlacedRelation<'_>> =
                self.placed_relations().filter(|relation| relation.destination == number).collect();
            let pieces = of.n_nodes.div_ceil(UNION_ROWS);
            let rows = |piece: usize| piece * UNION_ROWS..((piece + 1) * UNION_ROWS).min(of.n_nodes);
            // Few pieces at a time, so that no second copy of all entries is in memory.
            let at_once = 4 * rayon::current_num_threads();
            for first in (0..pieces).step_by(at_once) {
                let made: Vec<_> = (first..(first + at_once).min(pieces))
                    .into_par_iter()
                    .map(|piece| union_of_rows(&into, rows(piece)))
                    .collect();
                for (degrees, columns) in made {
                    indices.extend_from_slice(&columns);
                    let mut end = indptr.last().copied().unwrap_or(0);
                    indptr.extend(degrees.into_iter().map(|degree| {
                        end += degree;
                        end
                    }));
                }
            }
        }
        Csr::new(self.n_nodes(), self.n_nodes(), indptr, indices, None)
    }
}

/// Rows of a type whose union is made as one piece.
const UNION_ROWS: usize = 1 << 14;

/// Degrees and columns of some destinations of a type in the union of the relations `into` it.
fn union_of_rows(into: &[PlacedRelation<'_>], rows: Range<usize>) -> (Vec<u64>, Vec<NodeId>) {
    let (mut degrees, mut columns) = (Vec::with_capacity(rows.len()), Vec::new());
    for v in rows {
        let start = columns.len();
        for of in into {
            columns.extend(of.adjacency.row(v).iter().map(|u| of.first_source as NodeId + u));
        }
        columns[start..].sort_unstable();
        let mut end = start;
        for at in start..columns.len() {
            if at == start || columns[at] != columns[end - 1] {
                columns[end] = columns[at];
                end += 1;
            }
        }
        columns.truncate(end);
        degrees.push((end - start) as u64);
    }
    (degrees, columns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Coo, Duplicates};

    fn edges(relation: &str, source: usize, destination: usize) -> EdgeType {
        EdgeType { relation: relation.to_owned(), source, destination, reverse_of: None }
    }

    fn schema(edge_types: Vec<EdgeType>) -> Result<Schema, FormatError> {
        let of = |name: &str, n_nodes| NodeType { name: name.to_owned(), n_nodes };
        Schema::new(vec![of("paper", 3), of("author", 2)], edge_types)
    }

    /// Two authors, of whom the first writes papers 0 and 2; paper 0 cites paper 1.
    fn papers() -> TypedGraph {
        let writes = Coo::new(3, 2, vec![0, 2], vec![0, 0], None).unwrap();
        let cites = Coo::new(3, 3, vec![1], vec![0], None).unwrap();
        let relations = [writes, cites].map(|list| list.to_csr(Duplicates::Refuse).unwrap());
        TypedGraph::new(schema(vec![edges("writes", 1, 0), edges("cites", 0, 0)]).unwrap(), relations.into()).unwrap()
    }

    #[test]
    fn reverses_stand_behind_their_relations_and_are_added_once() {
        let with = papers().with_reverses().unwrap();
        let schema = with.schema();
        let names: Vec<String> = (0..4).map(|number| schema.edge_name(number)).collect();
        let expected = ["author.writes.paper", "paper.rev_writes.author", "paper.cites.paper", "paper.rev_cites.paper"];
        assert_eq!(names, expected);
        let reverse_of: Vec<Option<usize>> = schema.edge_types().iter().map(|edges| edges.reverse_of).collect();
        assert_eq!(reverse_of, [None, Some(0), None, Some(2)]);
        for number in [0, 2] {
            assert_eq!(with.relations()[number].transposed(), with.relations()[number + 1]);
        }
        assert_eq!(with.with_reverses().unwrap(), with);
        assert_eq!((with.n_edges(), papers().n_edges()), (6, 3));
    }

    #[test]
    fn the_union_has_global_ids() {
        let union = papers().union().unwrap();
        assert_eq!(
            (0..5).map(|v| union.row(v).to_vec()).collect::<Vec<_>>(),
            [vec![3], vec![0], vec![3], vec![], vec![]]
        );
        let writes = RelationSize { source: 1, destination: 0, n_edges: 2, n_sources: 1, n_destinations: 2 };
        let cites = RelationSize { source: 0, destination: 0, n_edges: 1, n_sources: 1, n_destinations: 1 };
        assert_eq!(papers().sizes(), &RelationSizes { node_types: vec![3, 2], relations: vec![writes, cites] });
        assert_eq!((papers().schema().first(1), papers().schema().node_type("author")), (3, Some(1)));
    }

    #[test]
    fn schemas_and_adjacencies_that_contradict_each_other_are_refused() {
        let told = |edge_types| schema(edge_types).unwrap_err().to_string();
        let twice = told(vec![edges("cites", 0, 0), edges("cites", 0, 0)]);
        assert_eq!(twice, "there are two relations paper.cites.paper; rename one of them");
        assert_eq!(
            told(vec![edges("x", 2, 0)]),
            "the relation \"x\" has an end of node type 2, but there are 2 node types"
        );
        let wrong = EdgeType { reverse_of: Some(0), ..edges("y", 1, 0) };
        let told_reverse = told(vec![edges("x", 1, 0), wrong]);
        assert_eq!(told_reverse, "author.y.paper is no reverse: its ends are not exchanged");
        let cites = schema(vec![edges("cites", 0, 0)]).unwrap();
        let error = TypedGraph::new(cites, vec![Csr::empty(3, 2).unwrap()]).unwrap_err();
        let expected = "the adjacency of paper.cites.paper is 3 × 2, but its types have 3 destinations and 3 sources";
        assert_eq!(error.to_string(), expected);
    }
}
