//! [`Rgcn`]: the relational graph convolutional network (Schlichtkrull et al., ESWC 2018).

use girih_compute::{Activation, Backend, ComputeError, Dropout, Shape};

use super::spec::{Dims, InputSpec, Model, Propagation};
use crate::config::{ModelConfig, SelfWeight};
use crate::layers::{Inputs, LearnedRows, RelationInput, Rows};
use crate::tape::{LinearOptions, ParamId, ParamInit, SpmmOptions, Tape, Var};

/// Layers `h'_v = relu(W_self·h_v + Σ_r mean_{u ∈ N_r(v)} W_r·h_u + b)`. The last layer has no ReLU.
///
/// Without features, the first layer learns a row for each node and relation instead of `W_r·h_u`: only those rows that
/// edges read. With bases, `W_r = Σ_b a[r, b]·V_b`.
pub struct Rgcn {
    layers: Vec<Layer>,
    config: ModelConfig,
}

struct Layer {
    weights: Weights,
    /// Weights of the node itself, and whether each node type has its own.
    own: Option<(ParamId, bool)>,
    bias: ParamId,
    outputs: usize,
}

/// Weights of the relations. `Each` has the elements of `W_r` in row `r`; in a first layer without features, it has the
/// learned rows.
enum Weights {
    Each(ParamId),
    Bases { coefficients: ParamId, bases: ParamId },
}

/// Widths of a layer. A first layer without features has as many inputs as there are nodes.
#[derive(Clone, Copy)]
struct Widths {
    inputs: usize,
    outputs: usize,
    learns_rows: bool,
}

impl Rgcn {
    /// A network with newly initialised parameters.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub fn new<B: Backend>(
        config: &ModelConfig,
        dims: Dims,
        init: &mut ParamInit<'_, B>,
    ) -> Result<Self, ComputeError> {
        let layers = dims.stack(config, |i, inputs, outputs| {
            let learns_rows = i == 0 && dims.n_features == 0;
            let inputs = if learns_rows { dims.n_nodes } else { inputs };
            Layer::new(init, config, (i, dims), Widths { inputs, outputs, learns_rows })
        })?;
        Ok(Self { layers, config: config.clone() })
    }
}

impl<B: Backend> Model<B> for Rgcn {
    fn input_spec(&self) -> InputSpec {
        // Sparse features are stored densely: their means over neighbors are dense.
        let propagation = Propagation::Always;
        InputSpec { graph: None, hops: 0, raw_features: true, propagation, relations: true }
    }

    fn forward<'a>(&self, tape: &mut Tape<'a, B>, inputs: &'a Inputs<B>) -> Result<Var, ComputeError> {
        let relations = inputs.relations();
        let mut rows = None;
        if inputs.features.is_some() {
            let dropout = tape.next_dropout(self.config.input_dropout());
            rows = Some(Rows::raw_input(tape, inputs)?.masked(tape, dropout)?.into_dense());
        }
        for (i, layer) in self.layers.iter().enumerate() {
            let is_last = i + 1 == self.layers.len();
            let activation = if is_last { Activation::Identity } else { Activation::Relu };
            let mask = if is_last { None } else { tape.next_dropout(self.config.dropout) };
            let hidden = match (rows, &relations.learned) {
                (Some(rows), _) => layer.forward(tape, relations, rows, (activation, mask))?,
                (None, Some(learned)) => layer.forward_learned(tape, learned, (activation, mask))?,
                (None, None) => unreachable!("inputs have features or pairs for learned rows"),
            };
            tape.mark_layer(hidden);
            rows = Some(hidden);
        }
        Ok(rows.expect("a configuration has at least one layer"))
    }
}

impl Layer {
    fn new<B: Backend>(
        init: &mut ParamInit<'_, B>,
        config: &ModelConfig,
        (layer, dims): (usize, Dims),
        widths: Widths,
    ) -> Result<Self, ComputeError> {
        let weights = Weights::new(init, config.bases, (layer, dims), widths)?;
        let Widths { inputs, outputs, learns_rows } = widths;
        let fans = (inputs, outputs);
        // A row for each node belongs to one type already.
        let by_type = config.self_weight == SelfWeight::Type && !learns_rows;
        let shape = match by_type {
            true => Shape::new(dims.relations.n_node_types, inputs * outputs),
            false => Shape::new(inputs, outputs),
        };
        let own = match config.self_weight {
            SelfWeight::None => None,
            SelfWeight::Shared | SelfWeight::Type => Some((init.glorot_of(layer, "self", shape, fans)?, by_type)),
        };
        Ok(Self { weights, own, bias: init.zeros(layer, "bias", Shape::new(1, outputs))?, outputs })
    }

    /// Layer over rows of nodes.
    fn forward<'a, B: Backend>(
        &self,
        tape: &mut Tape<'a, B>,
        relations: &'a RelationInput<B>,
        rows: Var,
        (activation, mask): (Activation, Option<Dropout>),
    ) -> Result<Var, ComputeError> {
        let add = match self.own {
            None => None,
            Some((own, by_type)) => {
                let weight = tape.param(own);
                Some(match by_type {
                    false => tape.linear(rows, weight, LinearOptions::default())?,
                    true => tape.linear_runs(&relations.node_runs, rows, weight, self.outputs)?,
                })
            }
        };
        let means = tape.spmm(&relations.means, rows, SpmmOptions::default())?;
        let weights = self.weights.of_relations(tape)?;
        let products = tape.linear_runs(&relations.runs, means, weights, self.outputs)?;
        let bias = Some(tape.param(self.bias));
        tape.spmm(&relations.sums, products, SpmmOptions { weights: None, bias, activation, mask, add })
    }

    /// First layer over learned rows.
    fn forward_learned<'a, B: Backend>(
        &self,
        tape: &mut Tape<'a, B>,
        learned: &'a LearnedRows<B>,
        (activation, mask): (Activation, Option<Dropout>),
    ) -> Result<Var, ComputeError> {
        let rows = self.weights.of_pairs(tape, learned)?;
        let bias = Some(tape.param(self.bias));
        let own = self.own.map(|(own, _)| tape.param(own));
        // A copy of the rows of nodes, which the sum is written to.
        let add = own.map(|own| tape.combine(&[(1.0, own)], None, Activation::Identity)).transpose()?;
        tape.spmm(&learned.means, rows, SpmmOptions { weights: None, bias, activation, mask, add })
    }
}

impl Weights {
    fn new<B: Backend>(
        init: &mut ParamInit<'_, B>,
        n_bases: usize,
        (layer, dims): (usize, Dims),
        Widths { inputs, outputs, learns_rows }: Widths,
    ) -> Result<Self, ComputeError> {
        let (relations, fans) = (dims.relations, (inputs, outputs));
        if n_bases == 0 {
            let each = Shape::new(relations.n_edge_types, inputs * outputs);
            let shape = if learns_rows { Shape::new(relations.n_sources, outputs) } else { each };
            return Ok(Self::Each(init.glorot_of(layer, "weight", shape, fans)?));
        }
        let of_coefficients = Shape::new(relations.n_edge_types, n_bases);
        let side_by_side = Shape::new(inputs, n_bases * outputs);
        let shape = if learns_rows { side_by_side } else { Shape::new(n_bases, inputs * outputs) };
        Ok(Self::Bases {
            coefficients: init.glorot(layer, "coefficients", of_coefficients, of_coefficients.rows)?,
            bases: init.glorot_of(layer, "bases", shape, fans)?,
        })
    }

    /// Weights of the relations, a row for each.
    fn of_relations<B: Backend>(&self, tape: &mut Tape<'_, B>) -> Result<Var, ComputeError> {
        match *self {
            Self::Each(weights) => Ok(tape.param(weights)),
            Self::Bases { coefficients, bases } => {
                let (coefficients, bases) = (tape.param(coefficients), tape.param(bases));
                tape.linear(coefficients, bases, LinearOptions::default())
            }
        }
    }

    /// Learned rows of pairs of a node and a relation.
    fn of_pairs<'a, B: Backend>(
        &self,
        tape: &mut Tape<'a, B>,
        learned: &'a LearnedRows<B>,
    ) -> Result<Var, ComputeError> {
        match *self {
            Self::Each(weights) => Ok(tape.param(weights)),
            Self::Bases { coefficients, bases } => {
                let (coefficients, bases) = (tape.param(coefficients), tape.param(bases));
                tape.basis_rows((&learned.pairs, learned.n_pairs), coefficients, bases)
            }
        }
    }
}
