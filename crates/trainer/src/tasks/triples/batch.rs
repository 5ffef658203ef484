//! [`Batch`]: the queries of a step on the device.

use girih_compute::{Backend, ComputeError};
use girih_graph_format::NodeId;

use super::decoder::{CandidatePairs, Decoder};
use super::epochs::QueryList;
use super::queries::Query;
use crate::TrainError;
use crate::tape::{Diagonal, Loss, Tape, Targets, Var};

/// Ids of queries on the device.
pub(super) struct Asked<B: Backend> {
    n: usize,
    entities: B::Ids,
    relations: B::Ids,
    diagonal: Diagonal<B>,
}

impl<B: Backend> Asked<B> {
    /// Moves queries to the device.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub(super) fn upload(backend: &B, queries: &[Query]) -> Result<Self, ComputeError> {
        let ids = |of: fn(&Query) -> NodeId| backend.upload_ids(&queries.iter().map(of).collect::<Vec<_>>());
        let (entities, relations) = (ids(|asked| asked.entity)?, ids(|asked| asked.relation)?);
        let n = queries.len();
        Ok(Self { n, entities, relations, diagonal: Diagonal::upload(backend, n)? })
    }

    /// Rows that the queries name, of all `entities` and of the relations.
    fn rows<'a>(&'a self, tape: &mut Tape<'a, B>, decoder: &Decoder, entities: Var) -> Result<[Var; 2], ComputeError> {
        let of_entities = tape.gather_rows(entities, &self.entities, self.n)?;
        let relations = tape.param(decoder.relations());
        Ok([of_entities, tape.gather_rows(relations, &self.relations, self.n)?])
    }

    /// Query rows of the queries.
    ///
    /// # Errors
    /// When the backend fails.
    pub(super) fn query_rows<'a>(
        &'a self,
        tape: &mut Tape<'a, B>,
        decoder: &Decoder,
        entities: Var,
    ) -> Result<Var, ComputeError> {
        let [of_entities, of_relations] = self.rows(tape, decoder, entities)?;
        decoder.query_rows(tape, (of_entities, of_relations), &self.diagonal)
    }
}

/// Queries of a step, and what their answers are compared with.
pub(super) struct Batch<B: Backend> {
    asked: Asked<B>,
    compared: Compared<B>,
    /// Place of each answer among what it is compared with.
    answers: Targets<B>,
    /// Ids `0..n`, over which the loss is a mean.
    all: B::Ids,
}

/// Entities that an answer is compared with.
enum Compared<B: Backend> {
    /// All entities.
    All,
    /// Candidates of each query, the answer first.
    Some { ids: B::Ids, n_ids: usize, pairs: CandidatePairs<B> },
}

/// Settings of the loss.
#[derive(Clone, Copy)]
pub(super) struct LossOptions {
    /// Dropout rate of query rows.
    pub(super) dropout: f64,
    /// Weight of the penalty on the rows of a batch.
    pub(super) decay: f32,
}

impl<B: Backend> Batch<B> {
    /// Moves the queries of a step to the device.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub(super) fn upload(backend: &B, list: &QueryList) -> Result<Self, TrainError> {
        let (n, n_ids) = (list.queries.len(), list.candidates.len());
        let (compared, answers) = if n_ids == 0 {
            (Compared::All, list.queries.iter().map(|asked| asked.answer).collect())
        } else {
            let pairs = CandidatePairs::upload(backend, n, n_ids / n)?;
            (Compared::Some { ids: backend.upload_ids(&list.candidates)?, n_ids, pairs }, vec![0; n])
        };
        Ok(Self {
            asked: Asked::upload(backend, &list.queries)?,
            compared,
            answers: Targets::Single(backend.upload_ids(&answers)?),
            all: backend.upload_ids(&(0..n as NodeId).collect::<Vec<_>>())?,
        })
    }

    /// Mean over queries of the softmax cross-entropy of their answers, with a penalty on the rows that they name. `diagonal`
    /// has a row for each of `entities`.
    ///
    /// # Errors
    /// When the backend fails.
    pub(super) fn loss<'a>(
        &'a self,
        tape: &mut Tape<'a, B>,
        decoder: &Decoder,
        (entities, diagonal): (Var, &'a Diagonal<B>),
        options: LossOptions,
    ) -> Result<Loss<B>, ComputeError> {
        let [of_entities, of_relations] = self.asked.rows(tape, decoder, entities)?;
        let query_rows = decoder.query_rows(tape, (of_entities, of_relations), &self.asked.diagonal)?;
        let dropout = tape.next_dropout(options.dropout);
        let query_rows = tape.dropout(query_rows, dropout)?;
        let scores = match &self.compared {
            Compared::All => decoder.scores_of_all(tape, (query_rows, entities), diagonal)?,
            Compared::Some { ids, n_ids, pairs } => {
                let candidates = tape.gather_rows(entities, ids, *n_ids)?;
                decoder.scores_of_some(tape, (query_rows, candidates), pairs)?
            }
        };
        let mut loss = tape.loss(scores, &self.answers, &self.all)?;
        if options.decay > 0.0 {
            for rows in [of_entities, of_relations] {
                tape.penalize(&mut loss, rows, options.decay / self.asked.n as f32)?;
            }
        }
        Ok(loss)
    }
}
