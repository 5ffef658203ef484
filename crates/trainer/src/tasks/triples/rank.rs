//! [`rank_entities`]: ranks of the answers to queries among all entities, in blocks of queries.

use girih_compute::{Backend, Dtype};
use rayon::prelude::*;

use super::batch::Asked;
use super::decoder::Decoder;
use super::queries::{Known, Query};
use crate::TrainError;
use crate::engine::{RunState, filtered_rank};
use crate::layers::Inputs;
use crate::models::Model;
use crate::tape::{Diagonal, Mode, Tape};

/// Bytes of the scores of a block of queries: about a last-level cache.
const BLOCK_BYTES: usize = 16 << 20;

/// Model that makes the rows of all entities, and what scores them.
pub(super) struct Network<'a, B: Backend> {
    pub(super) model: Box<dyn Model<B>>,
    pub(super) inputs: &'a Inputs<B>,
    pub(super) decoder: Decoder,
    /// Pattern with a row for each entity.
    pub(super) diagonal: &'a Diagonal<B>,
}

impl<'a, B: Backend> Network<'a, B> {
    /// Rows of all entities with the current parameters, on the device.
    ///
    /// # Errors
    /// When the backend fails.
    pub(super) fn entities(&self, state: &mut RunState<'a, B>) -> Result<B::Matrix, TrainError> {
        let mut tape = Tape::new(state.backend, &state.params, &mut state.pool, Mode::Evaluate);
        let entities = self.model.forward(&mut tape, self.inputs)?;
        let shape = tape.shape(entities);
        let mut rows = state.backend.zeros(shape, Dtype::F32)?;
        state.backend.copy_block(shape, tape.value(entities), (0, 0), &mut rows, (0, 0))?;
        Ok(rows)
    }
}

/// Ranks from 1 of the answers to `queries` among all entities, of which the other `known` answers do not count. Ties
/// count as the mean of the best and the worst rank.
///
/// # Errors
/// When the backend fails.
pub(super) fn rank_entities<'a, B: Backend>(
    state: &mut RunState<'a, B>,
    network: &Network<'a, B>,
    known: &Known,
    queries: &[Query],
) -> Result<Vec<f64>, TrainError> {
    let Network { inputs, decoder, diagonal, .. } = network;
    // They do not change from block to block.
    let entities = network.entities(state)?;
    let on_host = if decoder.is_product() { None } else { Some(state.backend.download(&entities)?) };
    let block_len = (BLOCK_BYTES / (inputs.n_nodes.max(1) * size_of::<f32>())).max(1);
    let mut ranks = Vec::with_capacity(queries.len());
    for block in queries.chunks(block_len) {
        let asked = Asked::upload(state.backend, block)?;
        let mut tape = Tape::new(state.backend, &state.params, &mut state.pool, Mode::Evaluate);
        let entities = tape.constant(&entities);
        let query_rows = asked.query_rows(&mut tape, decoder, entities)?;
        let scores = match &on_host {
            Some(entities) => decoder.scores_on_host(&state.backend.download(tape.value(query_rows))?, entities)?,
            None => {
                let scores = decoder.scores_of_all(&mut tape, (query_rows, entities), diagonal)?;
                state.backend.download(tape.value(scores))?
            }
        };
        let rank =
            |(at, &query): (usize, &Query)| filtered_rank(scores.row(at), query.answer as usize, known.answers(query));
        ranks.par_extend(block.par_iter().enumerate().map(rank));
    }
    Ok(ranks)
}
