//! [`Decoder`]: rows of queries, and scores of entities.

use std::f32::consts::PI;

use girih_compute::{Activation, Backend, ComputeError, Shape};
use girih_graph_format::{FormatError, Matrix};
use rayon::prelude::*;

use crate::config::{DecoderKind, Distance, TripleConfig};
use crate::tape::{Diagonal, ParamId, ParamInit, RowIds, Tape, Var};

/// Score of an entity as the answer to a query. It compares the entity's row with a query row, which the rows of the
/// query's entity and relation give: by their inner product, or by their distance, negated.
#[derive(Clone, Copy, Debug)]
pub struct Decoder {
    kind: DecoderKind,
    distance: Option<Distance>,
    relations: ParamId,
}

/// Patterns that pair queries with candidates of their own.
pub struct CandidatePairs<B: Backend> {
    /// Pairs of each query with its candidates.
    pub blocks: Diagonal<B>,
    /// Pairs of each candidate with itself.
    pub diagonal: Diagonal<B>,
    /// Number of each candidate's query.
    pub queries: RowIds<B>,
}

impl<B: Backend> CandidatePairs<B> {
    /// Patterns for `n_queries` with `n_candidates` each.
    ///
    /// # Errors
    /// When there are more candidates than a graph has nodes, or the device's memory does not suffice.
    pub fn upload(backend: &B, n_queries: usize, n_candidates: usize) -> Result<Self, ComputeError> {
        let n = n_queries * n_candidates;
        let queries: Vec<u32> = (0..n).map(|at| (at / n_candidates) as u32).collect();
        Ok(Self {
            blocks: Diagonal::of_blocks(backend, n_queries, n_candidates)?,
            diagonal: Diagonal::upload(backend, n)?,
            queries: RowIds::upload(backend, &queries)?,
        })
    }
}

impl Decoder {
    /// A decoder with newly initialised rows of relations: those of `n_relations`, then their reciprocals. They have an
    /// expected squared length of one, or are angles.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub fn new<B: Backend>(
        config: &TripleConfig,
        n_relations: usize,
        init: &mut ParamInit<'_, B>,
    ) -> Result<Self, ComputeError> {
        let (kind, width) = (config.decoder, config.width);
        let (width, deviation, distance) = match kind {
            DecoderKind::DistMult | DecoderKind::ComplEx => (width, 1.0 / (width as f32).sqrt(), None),
            DecoderKind::TransE => (width, 1.0 / (width as f32).sqrt(), Some(config.distance)),
            // The deviation of angles that are uniform.
            DecoderKind::RotatE => (width / 2, PI / 3.0f32.sqrt(), Some(Distance::L2)),
        };
        let shape = Shape::new(2 * n_relations, width);
        Ok(Self { kind, distance, relations: init.embedding(0, "relations", shape, deviation)? })
    }

    /// Parameter with the rows of relations.
    #[must_use]
    pub fn relations(&self) -> ParamId {
        self.relations
    }

    /// Query rows of `b` queries: `entities` and `relations` (`b × d`; angles `b × d/2`) are the rows that they name, and
    /// `diagonal` has `b` rows.
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
            DecoderKind::TransE => tape.add(entities, relations),
            DecoderKind::ComplEx => {
                let turned = halves(tape, relations)?;
                complex_product(tape, entities, turned, diagonal)
            }
            DecoderKind::RotatE => {
                let turned = tape.unit_circle(relations, diagonal)?;
                let turned = halves(tape, turned)?;
                complex_product(tape, entities, turned, diagonal)
            }
        }
    }

    /// Scores of all entities (rows of `entities`, `n × d`) for `b` query rows, `b × n`, up to a number that all scores of
    /// a query share. `diagonal` has `n` rows.
    ///
    /// # Errors
    /// On shapes that do not fit, when the distance is no product, or when the backend fails.
    pub fn scores_of_all<'a, B: Backend>(
        &self,
        tape: &mut Tape<'a, B>,
        (query_rows, entities): (Var, Var),
        diagonal: &'a Diagonal<B>,
    ) -> Result<Var, ComputeError> {
        let products = tape.all_products(query_rows, entities)?;
        match self.distance {
            None => Ok(products),
            Some(Distance::L1) => {
                Err(ComputeError::argument("scores_of_all", "sums of absolute differences are no products".to_owned()))
            }
            // -|q - t|² = 2 q·t - |t|² - |q|²
            Some(Distance::L2) => {
                let squares = tape.sddmm(diagonal.pattern(), entities, entities, 1)?;
                let squares = tape.combine(&[(-1.0, squares)], None, Activation::Identity)?;
                let n_entities = tape.shape(entities).rows;
                let squares = tape.reshape(squares, Shape::new(1, n_entities))?;
                tape.combine(&[(2.0, products)], Some(squares), Activation::Identity)
            }
        }
    }

    /// Scores of `k` candidates for each of `b` query rows, `b × k`, up to a number that all scores of a query share.
    /// `candidates` (`b·k × d`) are their rows, query by query.
    ///
    /// # Errors
    /// On shapes that do not fit, or when the backend fails.
    pub fn scores_of_some<'a, B: Backend>(
        &self,
        tape: &mut Tape<'a, B>,
        (query_rows, candidates): (Var, Var),
        pairs: &'a CandidatePairs<B>,
    ) -> Result<Var, ComputeError> {
        let (n_queries, n_pairs) = (tape.shape(query_rows).rows, pairs.queries.n);
        let scores = match self.distance {
            None => tape.sddmm(pairs.blocks.pattern(), query_rows, candidates, 1)?,
            Some(Distance::L2) => {
                let products = tape.sddmm(pairs.blocks.pattern(), query_rows, candidates, 1)?;
                let squares = tape.sddmm(pairs.diagonal.pattern(), candidates, candidates, 1)?;
                tape.combine(&[(2.0, products), (-1.0, squares)], None, Activation::Identity)?
            }
            Some(Distance::L1) => {
                let repeated = tape.gather_rows(query_rows, &pairs.queries.ids, n_pairs)?;
                let above = tape.combine(&[(1.0, repeated), (-1.0, candidates)], None, Activation::Relu)?;
                let below = tape.combine(&[(-1.0, repeated), (1.0, candidates)], None, Activation::Relu)?;
                let distances = tape.add(above, below)?;
                let minus_one = tape.made(Shape::new(1, tape.shape(distances).cols), |_, _| -1.0)?;
                tape.all_products(distances, minus_one)?
            }
        };
        tape.reshape(scores, Shape::new(n_queries, n_pairs / n_queries.max(1)))
    }

    /// Whether products give the scores of all entities.
    pub(super) fn is_product(&self) -> bool {
        self.distance != Some(Distance::L1)
    }

    /// Scores of all entities where no product gives them, `b × n`.
    ///
    /// # Errors
    /// When there are more scores than a matrix has elements.
    pub(super) fn scores_on_host(&self, query_rows: &Matrix, entities: &Matrix) -> Result<Matrix, FormatError> {
        debug_assert!(!self.is_product(), "products are faster");
        let (n_queries, n_entities) = (query_rows.n_rows(), entities.n_rows());
        let mut scores = vec![0.0; n_queries * n_entities];
        scores.par_chunks_mut(n_entities.max(1)).enumerate().for_each(|(at, scores)| {
            let query = query_rows.row(at);
            scores.iter_mut().enumerate().for_each(|(v, score)| *score = -absolute_differences(query, entities.row(v)));
        });
        Matrix::new(n_queries, n_entities, scores)
    }
}

/// Sum of absolute differences, in an order of sums that only the width decides.
fn absolute_differences(x: &[f32], y: &[f32]) -> f32 {
    const LANES: usize = 16;
    let ((x, x_rest), (y, y_rest)) = (x.as_chunks::<LANES>(), y.as_chunks::<LANES>());
    let mut sums = [0.0f32; LANES];
    for (x, y) in x.iter().zip(y) {
        for lane in 0..LANES {
            sums[lane] += (x[lane] - y[lane]).abs();
        }
    }
    let rest: f32 = x_rest.iter().zip(y_rest).map(|(x, y)| (x - y).abs()).sum();
    sums.iter().sum::<f32>() + rest
}

/// Real and imaginary parts of rows of complex numbers.
fn halves<B: Backend>(tape: &mut Tape<'_, B>, x: Var) -> Result<[Var; 2], ComputeError> {
    let width = tape.shape(x).cols / 2;
    Ok([tape.columns(x, 0, width)?, tape.columns(x, width, width)?])
}

/// Product of rows of complex numbers with others, of which the real and the imaginary parts are given.
fn complex_product<'a, B: Backend>(
    tape: &mut Tape<'a, B>,
    x: Var,
    [c, d]: [Var; 2],
    diagonal: &'a Diagonal<B>,
) -> Result<Var, ComputeError> {
    let [a, b] = halves(tape, x)?;
    // (a + bi)·(c + di)
    let [ac, bd] = [tape.multiply(a, c, diagonal)?, tape.multiply(b, d, diagonal)?];
    let [ad, bc] = [tape.multiply(a, d, diagonal)?, tape.multiply(b, c, diagonal)?];
    let real = tape.combine(&[(1.0, ac), (-1.0, bd)], None, Activation::Identity)?;
    let imaginary = tape.add(ad, bc)?;
    tape.concat(&[real, imaginary])
}
