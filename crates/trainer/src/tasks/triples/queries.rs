//! [`Query`]: an entity and a relation, whose other entity is asked for; [`Known`]: the right answers.

use std::ops::Range;

use girih_datasets::{Triple, Triples};
use girih_graph_format::NodeId;

/// An entity and a relation, whose other entity is asked for. With `R` relations, number `r` asks for the tail of a
/// triple, and number `r + R` for its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Query {
    /// The entity that is given.
    pub entity: NodeId,
    /// Number of the relation, or of its reciprocal.
    pub relation: NodeId,
    /// The entity that is asked for.
    pub answer: NodeId,
}

impl Query {
    /// Queries about the tail and about the head of a triple, with `n_relations` relations.
    #[must_use]
    pub fn of_triple([head, relation, tail]: Triple, n_relations: usize) -> [Self; 2] {
        let reciprocal = relation + n_relations as NodeId;
        [Self { entity: head, relation, answer: tail }, Self { entity: tail, relation: reciprocal, answer: head }]
    }

    /// Queries about the tails of all triples, then about their heads.
    #[must_use]
    pub fn all(triples: &[Triple], n_relations: usize) -> Vec<Self> {
        let side = |side: usize| triples.iter().map(move |&triple| Self::of_triple(triple, n_relations)[side]);
        side(0).chain(side(1)).collect()
    }
}

/// All right answers of a knowledge graph: those of its training, validation and test triples.
#[derive(Clone, Debug)]
pub struct Known {
    /// All queries, ascending.
    queries: Vec<Query>,
}

impl Known {
    /// Answers of all parts.
    #[must_use]
    pub fn of(triples: &Triples) -> Self {
        let parts = triples.parts();
        let all = parts.iter().flat_map(|(_, part)| Query::all(part, triples.n_relations()));
        let mut queries: Vec<Query> = all.collect();
        queries.sort_unstable();
        queries.dedup();
        Self { queries }
    }

    /// Answers to a query, its own among them, each once.
    pub fn answers(&self, query: Query) -> impl Iterator<Item = NodeId> {
        self.queries[self.range(query)].iter().map(|known| known.answer)
    }

    fn range(&self, Query { entity, relation, .. }: Query) -> Range<usize> {
        let asked = (entity, relation);
        let start = self.queries.partition_point(|known| (known.entity, known.relation) < asked);
        let n = self.queries[start..].partition_point(|known| (known.entity, known.relation) == asked);
        start..start + n
    }
}
