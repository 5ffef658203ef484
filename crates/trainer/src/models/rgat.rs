//! [`Rgat`]: graph attention within each relation, as in the R-GAT of MLPerf's benchmark.

use girih_compute::{Activation, Backend, ComputeError, Shape};

use super::relation_stack::{RelationLayer, RelationStack};
use crate::config::ModelConfig;
use crate::layers::{Dims, LayerRelations, LayerTypes, OwnWeights, RelationForm, RelationGraph};
use crate::tape::{AttentionOperands, AttentionOptions, ParamId, ParamInit, SpmmOptions, Tape, Var};

/// Layers `h'_v = relu(W_self·h_v + Σ_r Σ_{u ∈ N_r(v)} α_ruv·W_r·h_u + b)`.
///
/// `α_r` is the softmax over `N_r(v)` of `leaky(a_r·W_r·h_u + c_r·h_v)`, for each head. `c_r` is the product of a vector and
/// a weight for destinations, which no other term reads.
pub type Rgat = RelationStack<RgatLayer>;

/// One layer of [`Rgat`].
pub struct RgatLayer {
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

impl RelationLayer for RgatLayer {
    const FORM: RelationForm = RelationForm::AttentionByRelation;

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
        config: &ModelConfig,
    ) -> Result<Var, ComputeError> {
        let RelationGraph::AttentionByRelation { pairs, stacked, runs, pattern, sums } = &relations.graph else {
            unreachable!("the model asked for attention by relation");
        };
        let &Self { heads, outputs, .. } = self;
        let (mask, share_mask) = (tape.next_dropout(config.dropout), tape.next_dropout(config.attention_dropout()));
        let slope = config.slope as f32;
        let own = relations.own_rows(tape, rows)?;
        let add = self.own.product(tape, relations, own)?;
        let (of_pairs, weights) = (tape.gather_rows(rows, &pairs.rows.ids, pairs.rows.n)?, tape.param(self.weights));
        let values = tape.linear_runs(&pairs.runs, of_pairs, weights, outputs)?;
        let vectors = tape.param(self.source);
        let source = tape.head_dots_runs(&pairs.runs[..], values, vectors, heads)?;
        let (own, weights) = (tape.gather_rows(rows, &stacked.ids, stacked.n)?, tape.param(self.destination));
        let destination = tape.linear_runs(runs, own, weights, heads)?;
        let operands = AttentionOperands { destination, source, vector: None, values };
        let attended = tape.attention(pattern, operands, AttentionOptions { heads, slope, dropout: share_mask })?;
        let (bias, activation) = (Some(tape.param(self.bias)), Activation::Relu);
        tape.spmm(sums, attended, SpmmOptions { weights: None, bias, activation, mask, add })
    }
}
