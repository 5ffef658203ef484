//! [`Embedding`]: a learned row for each node, without layers.

use girih_compute::{Backend, ComputeError, Shape};

use super::spec::{InputSpec, Model, Propagation};
use crate::layers::{Dims, Inputs};
use crate::tape::{ParamId, ParamInit, Tape, Var};

/// A learned row for each node, without layers; the width is that of the logits. Decoders of triples score such rows.
pub struct Embedding {
    rows: ParamId,
}

impl Embedding {
    /// A model with newly initialised rows, of expected squared length one.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub fn new<B: Backend>(dims: &Dims, init: &mut ParamInit<'_, B>) -> Result<Self, ComputeError> {
        let (shape, deviation) = (Shape::new(dims.n_nodes, dims.n_classes), 1.0 / (dims.n_classes as f32).sqrt());
        Ok(Self { rows: init.embedding(0, "entities", shape, deviation)? })
    }
}

impl<B: Backend> Model<B> for Embedding {
    fn input_spec(&self) -> InputSpec {
        InputSpec {
            graph: None,
            hops: 0,
            raw_features: false,
            propagation: Propagation::Never,
            relations: None,
            edges: false,
        }
    }

    fn forward<'a>(&self, tape: &mut Tape<'a, B>, _inputs: &'a Inputs<B>) -> Result<Var, ComputeError> {
        Ok(tape.param(self.rows))
    }

    fn embedding(&self) -> Option<ParamId> {
        Some(self.rows)
    }
}
