//! [`Decoder`]: rows of queries, and scores of entities.

use girih_compute::{Activation, Backend, ComputeError, Shape};

use crate::config::{DecoderKind, TripleConfig};
use crate::tape::{Diagonal, ParamId, ParamInit, Tape, Var};

/// Score of an entity as the answer to a query: the inner product of its row with a query row, which the rows of the
/// query's entity and relation give.
#[derive(Clone, Copy, Debug)]
pub struct Decoder {
    kind: DecoderKind,
    relations: ParamId,
}

impl Decoder {
    /// A decoder with newly initialised rows of relations, of expected squared length one: those of `n_relations`, then
    /// their reciprocals.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub fn new<B: Backend>(
        config: &TripleConfig,
        n_relations: usize,
        init: &mut ParamInit<'_, B>,
    ) -> Result<Self, ComputeError> {
        let (shape, deviation) = (Shape::new(2 * n_relations, config.width), 1.0 / (config.width as f32).sqrt());
        Ok(Self { kind: config.decoder, relations: init.embedding(0, "relations", shape, deviation)? })
    }

    /// Parameter with the rows of relations.
    #[must_use]
    pub fn relations(&self) -> ParamId {
        self.relations
    }

    /// Query rows of `b` queries: `entities` and `relations` (`b × d`) are the rows that they name, and `diagonal` has
    /// `b` rows.
    ///
    /// # Errors
    /// On shapes that do not fit, or when the backend fails.
    pub fn query_rows<'a, B: Backend>(
        &self,
        tape: &mut Tape<'a, B>,
        (entities, relations): (Var, Var),
        diagonal: &'a Diagonal<B>,
    ) -> Result<Var, ComputeError> {
        match self.kind {
            DecoderKind::DistMult => tape.multiply(entities, relations, diagonal),
            DecoderKind::ComplEx => {
                let width = tape.shape(entities).cols / 2;
                let mut parts =
                    |x: Var| Ok::<_, ComputeError>([tape.columns(x, 0, width)?, tape.columns(x, width, width)?]);
                let ([a, b], [c, d]) = (parts(entities)?, parts(relations)?);
                // (a + bi)·(c + di)
                let [ac, bd] = [tape.multiply(a, c, diagonal)?, tape.multiply(b, d, diagonal)?];
                let [ad, bc] = [tape.multiply(a, d, diagonal)?, tape.multiply(b, c, diagonal)?];
                let real = tape.combine(&[(1.0, ac), (-1.0, bd)], None, Activation::Identity)?;
                let imaginary = tape.add(ad, bc)?;
                tape.concat(&[real, imaginary])
            }
        }
    }

    /// Scores of all entities (rows of `entities`, `n × d`) for `b` query rows, `b × n`.
    ///
    /// # Errors
    /// On shapes that do not fit, or when the backend fails.
    pub fn scores_of_all<B: Backend>(
        &self,
        tape: &mut Tape<'_, B>,
        query_rows: Var,
        entities: Var,
    ) -> Result<Var, ComputeError> {
        tape.all_products(query_rows, entities)
    }

    /// Scores of `k` candidates for each of `b` query rows, `b × k`. `candidates` (`b·k × d`) are their rows, query by query,
    /// and `blocks` pairs each query with its own.
    ///
    /// # Errors
    /// On shapes that do not fit, or when the backend fails.
    pub fn scores_of_some<'a, B: Backend>(
        &self,
        tape: &mut Tape<'a, B>,
        (query_rows, candidates): (Var, Var),
        blocks: &'a Diagonal<B>,
    ) -> Result<Var, ComputeError> {
        let n_queries = tape.shape(query_rows).rows;
        let n_candidates = tape.shape(candidates).rows / n_queries.max(1);
        let products = tape.sddmm(blocks.pattern(), query_rows, candidates, 1)?;
        tape.reshape(products, Shape::new(n_queries, n_candidates))
    }
}
