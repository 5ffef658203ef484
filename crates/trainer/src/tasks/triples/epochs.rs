//! [`TripleEpochs`]: the queries of each epoch's batches, with the entities that each answer is compared with.

use std::ops::Range;

use girih_datasets::Triple;
use girih_graph_format::NodeId;
use girih_random::Key;
use rayon::prelude::*;

use super::queries::Query;

/// Draws of an epoch, as children of its key.
#[derive(Clone, Copy)]
enum Draws {
    /// Order of the triples.
    Order = 0,
    /// Entities that are wrong.
    Negatives = 1,
}

/// Triples of an epoch, in the order drawn for it.
pub struct TripleEpochs<'a> {
    triples: &'a [Triple],
    n_entities: usize,
    n_relations: usize,
    /// Positions of triples.
    order: Vec<usize>,
    negatives: Key,
    batch_size: usize,
}

/// Queries of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryList {
    /// Queries about the tails of the batch's triples, then about their heads.
    pub queries: Vec<Query>,
    /// For each query its answer and then some wrong entities; empty where all entities are compared.
    pub candidates: Vec<NodeId>,
}

impl<'a> TripleEpochs<'a> {
    /// Draws the order of an epoch below `key`, in batches of `batch_size` triples; `None` puts all in one.
    pub fn new(
        triples: &'a [Triple],
        (n_entities, n_relations): (usize, usize),
        key: Key,
        batch_size: Option<usize>,
    ) -> Self {
        let mut order: Vec<usize> = (0..triples.len()).collect();
        key.child(Draws::Order as u64).stream(0, 0).shuffle(&mut order);
        let negatives = key.child(Draws::Negatives as u64);
        let batch_size = batch_size.unwrap_or(triples.len()).min(triples.len());
        Self { triples, n_entities, n_relations, order, negatives, batch_size }
    }

    /// Number of batches.
    #[must_use]
    pub fn n_batches(&self) -> usize {
        self.order.len().div_ceil(self.batch_size.max(1))
    }

    /// Number of triples of a batch.
    #[must_use]
    pub fn n_triples(&self, batch: usize) -> usize {
        self.range(batch).len()
    }

    /// Queries of a batch, each with `n_negatives` wrong entities. Draws depend on the position of a triple in the
    /// data, and not on its batch.
    #[must_use]
    pub fn batch(&self, batch: usize, n_negatives: usize) -> QueryList {
        let numbers = &self.order[self.range(batch)];
        let triples: Vec<Triple> = numbers.iter().map(|&number| self.triples[number]).collect();
        let queries = Query::all(&triples, self.n_relations);
        let mut candidates = Vec::new();
        if n_negatives > 0 {
            let places = (0..2u64).flat_map(|side| numbers.iter().map(move |&number| (number as u64, side)));
            let places: Vec<(u64, u64)> = places.collect();
            let draw = |(query, &(number, side)): (&Query, &(u64, u64))| {
                let mut stream = self.negatives.stream(number, side << 32);
                let others = std::iter::repeat_with(move || stream.below(self.n_entities as u64) as NodeId);
                let answer = query.answer;
                std::iter::once(answer).chain(others.filter(move |&other| other != answer).take(n_negatives))
            };
            candidates.par_extend(queries.par_iter().zip(&places).with_min_len(64).flat_map_iter(draw));
        }
        QueryList { queries, candidates }
    }

    fn range(&self, batch: usize) -> Range<usize> {
        let start = batch * self.batch_size;
        start..(start + self.batch_size).min(self.order.len())
    }
}
