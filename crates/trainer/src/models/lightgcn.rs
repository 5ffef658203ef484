//! [`LightGcn`]: graph convolution without weights, for recommendation (He et al., SIGIR 2020).

use girih_compute::{Backend, ComputeError, Shape};
use girih_graph_format::{Degrees, Norm};

use super::spec::{Adjacency, InputSpec, Model, Propagation};
use crate::config::ModelConfig;
use crate::layers::Inputs;
use crate::tape::{ParamId, ParamInit, Tape, Var};

/// Standard deviation of initial embeddings, as in the authors' code.
const INITIAL_DEVIATION: f32 = 0.1;

/// Embeddings of users and items, averaged over hops: the mean of `E, Â·E, …, Âᵏ·E` with `Â = D^-½ A D^-½` (equations
/// 3 and 8). `config.layers` is `k`, `config.hidden` the width.
pub struct LightGcn {
    embedding: ParamId,
    hops: usize,
    degrees: Degrees,
}

impl LightGcn {
    /// A model with newly initialised embeddings.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub fn new<B: Backend>(
        config: &ModelConfig,
        n_nodes: usize,
        init: &mut ParamInit<'_, B>,
    ) -> Result<Self, ComputeError> {
        let embedding = init.embedding(0, "embedding", Shape::new(n_nodes, config.hidden), INITIAL_DEVIATION)?;
        Ok(Self { embedding, hops: config.layers, degrees: config.normalization })
    }
}

impl<B: Backend> Model<B> for LightGcn {
    fn input_spec(&self) -> InputSpec {
        let graph = Some(Adjacency::new(false, Norm::Symmetric).with_degrees(self.degrees));
        InputSpec {
            graph,
            hops: 0,
            raw_features: false,
            propagation: Propagation::Never,
            relations: None,
            edges: false,
        }
    }

    fn forward<'a>(&self, tape: &mut Tape<'a, B>, inputs: &'a Inputs<B>) -> Result<Var, ComputeError> {
        let embedding = tape.param(self.embedding);
        tape.hop_mean(inputs.graph(0), embedding, self.hops)
    }

    fn embedding(&self) -> Option<ParamId> {
        Some(self.embedding)
    }
}
