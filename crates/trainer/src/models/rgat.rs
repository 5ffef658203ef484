//! [`Rgat`]: graph attention within each relation, as in the R-GAT of MLPerf's benchmark.

use girih_compute::{Activation, Backend, ComputeError, Dropout, Shape};

use super::spec::{InputSpec, Model};
use crate::config::ModelConfig;
use crate::layers::{
    Dims, Entry, Inputs, LayerRelations, LayerTypes, Linear, OwnWeights, RelationForm, RelationGraph, RelationSpec,
    Rows,
};
use crate::tape::{AttentionOperands, AttentionOptions, LinearOptions, ParamId, ParamInit, SpmmOptions, Tape, Var};

/// Layers `h'_v = relu(W_self·h_v + Σ_r Σ_{u ∈ N_r(v)} α_ruv·W_r·h_u + b)` over the rows of an [`Entry`], and a linear
/// layer.
///
/// `α_r` is the softmax over `N_r(v)` of `leaky(a_r·W_r·h_u + c_r·h_v)`, for each head. `c_r` is the product of a vector and
/// a weight for destinations, which no other term reads.
pub struct Rgat {
    entry: Entry,
    layers: Vec<Layer>,
    classes: Linear,
    spec: RelationSpec,
    config: ModelConfig,
}

struct Layer {
    /// Row `r` has the elements of `W_r`, `inputs × (heads · width)`.
    weights: ParamId,
    /// Row `r` has the vector `a_r` of all heads.
    source: ParamId,
    /// Row `r` has the elements of `c_r`, `inputs × heads`.
    destination: ParamId,
    own: OwnWeights,
    bias: ParamId,
    heads: usize,
    /// Number of columns of all heads.
    outputs: usize,
}

impl Rgat {
    /// A network with newly initialised parameters.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub fn new<B: Backend>(
        config: &ModelConfig,
        dims: &Dims,
        init: &mut ParamInit<'_, B>,
    ) -> Result<Self, ComputeError> {
        let types = LayerTypes::of(&dims.relations, dims.target, config.layers);
        let width = config.hidden * config.heads;
        let entry = Entry::new(init, dims, &types[0].sources, width)?;
        let layers = types.iter().enumerate().map(|(i, types)| Layer::new(init, config, (i + 1, dims, types)));
        let layers = layers.collect::<Result<_, _>>()?;
        let classes = Linear::new(init, config.layers + 1, width, dims.n_classes)?;
        let masks_features = config.input_dropout() > 0.0;
        let spec = RelationSpec {
            layers: types,
            form: RelationForm::AttentionByRelation,
            learns_pairs: false,
            masks_features,
        };
        Ok(Self { entry, layers, classes, spec, config: config.clone() })
    }
}

impl<B: Backend> Model<B> for Rgat {
    fn input_spec(&self) -> InputSpec {
        InputSpec { relations: Some(self.spec.clone()), ..InputSpec::of_raw_features(None) }
    }

    fn forward<'a>(&self, tape: &mut Tape<'a, B>, inputs: &'a Inputs<B>) -> Result<Var, ComputeError> {
        let (config, relations) = (&self.config, inputs.relations());
        let mut rows = self.entry.forward(tape, inputs, (config.input_dropout(), config.dropout))?;
        for (layer, of) in self.layers.iter().zip(&relations.layers) {
            let masks = (tape.next_dropout(config.dropout), tape.next_dropout(config.attention_dropout()));
            rows = layer.forward(tape, of, rows, masks, config.slope as f32)?;
            tape.mark_layer(rows);
        }
        let logits = self.classes.forward(tape, &Rows::Dense(rows), LinearOptions::default())?;
        relations.place(tape, logits)
    }
}

impl Layer {
    fn new<B: Backend>(
        init: &mut ParamInit<'_, B>,
        config: &ModelConfig,
        (layer, dims, types): (usize, &Dims, &LayerTypes),
    ) -> Result<Self, ComputeError> {
        let &ModelConfig { hidden, heads, self_weight, .. } = config;
        let (n, width) = (types.relations.len(), hidden * heads);
        let of_weights = Shape::new(n, width * width);
        Ok(Self {
            weights: init.glorot_of(layer, "weight", of_weights, (width, width))?,
            source: init.glorot_of(layer, "attention_source", Shape::new(n, width), (1, hidden))?,
            destination: init.glorot_of(
                layer,
                "attention_destination",
                Shape::new(n, width * heads),
                (width, heads),
            )?,
            own: OwnWeights::new(init, self_weight, (layer, dims, types), (width, width))?,
            bias: init.zeros(layer, "bias", Shape::new(1, width))?,
            heads,
            outputs: width,
        })
    }

    fn forward<'a, B: Backend>(
        &self,
        tape: &mut Tape<'a, B>,
        relations: &'a LayerRelations<B>,
        rows: Var,
        (mask, share_mask): (Option<Dropout>, Option<Dropout>),
        slope: f32,
    ) -> Result<Var, ComputeError> {
        let RelationGraph::AttentionByRelation { pairs, stacked, runs, pattern, sums } = &relations.graph else {
            unreachable!("the model asked for attention by relation");
        };
        let &Self { heads, outputs, .. } = self;
        let own = relations.own_rows(tape, rows)?;
        let add = self.own.product(tape, relations, own)?;
        let (of_pairs, weights) = (tape.gather_rows(rows, &pairs.rows.ids, pairs.rows.n)?, tape.param(self.weights));
        let values = tape.linear_runs(&pairs.runs, of_pairs, weights, outputs)?;
        let vectors = self.source_vectors(tape)?;
        let source = tape.linear_runs(&pairs.runs, values, vectors, heads)?;
        let (own, weights) = (tape.gather_rows(rows, &stacked.ids, stacked.n)?, tape.param(self.destination));
        let destination = tape.linear_runs(runs, own, weights, heads)?;
        let operands = AttentionOperands { destination, source, vector: None, values };
        let attended = tape.attention(pattern, operands, AttentionOptions { heads, slope, dropout: share_mask })?;
        let (bias, activation) = (Some(tape.param(self.bias)), Activation::Relu);
        tape.spmm(sums, attended, SpmmOptions { weights: None, bias, activation, mask, add })
    }

    /// Weights whose products are those of each head with its vector: row `r` has the elements of a matrix of
    /// `outputs × heads`, with `a_r[c]` in row `c` and the column of its head.
    fn source_vectors<B: Backend>(&self, tape: &mut Tape<'_, B>) -> Result<Var, ComputeError> {
        let &Self { heads, outputs, .. } = self;
        let is_place = |c: usize, at: usize| at == c * heads + c % heads;
        let row = |c: usize| (0..outputs * heads).map(move |at| f32::from(u8::from(is_place(c, at))));
        let mut values = || (0..outputs).flat_map(row).collect();
        let mut spread = tape.buffer(Shape::new(outputs, outputs * heads))?;
        tape.backend().write_made(&mut values, &mut spread)?;
        let (vectors, spread) = (tape.param(self.source), tape.keep(spread));
        tape.linear(vectors, spread, LinearOptions::default())
    }
}
