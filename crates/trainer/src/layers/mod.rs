//! Layers: parameters and their products with operands.

mod attention;
mod dims;
mod entry;
mod inputs;
mod normalization;
mod own_weights;
mod relations;

use girih_compute::{Activation, Backend, ComputeError, Dropout, Shape};

use crate::tape::{
    AggregateOptions, EncodedInput, Graph, LinearOptions, Masks, ParamId, ParamInit, SpmmOptions, Tape, Var,
};

pub use attention::{AttentionKind, AttentionSizes, GraphAttention};
pub use dims::Dims;
pub use entry::Entry;
pub use inputs::{FeatureInput, Inputs, LayerGraphs};
pub use normalization::{NormAxis, Normalization};
pub use own_weights::OwnWeights;
pub use relations::{
    HostLayer, LayerEdges, LayerRelations, LayerTypes, LearnedRows, RelationEdges, RelationForm, RelationGraph,
    RelationInput, RelationPairs, RelationSpec, TransformedRelations, TypeRows,
};

/// Operand rows of a layer, one per node.
pub enum Rows<'a, B: Backend> {
    /// Dense rows on the tape.
    Dense(Var),
    /// Sparse input features: matrix, values that dropout masks, and number of values of the nodes before this rank's
    /// first node.
    Sparse(&'a B::Sparse, Option<Var>, usize),
    /// Encoded input features, decoded where they are read, with an optional dropout mask.
    Encoded(&'a EncodedInput, Option<Dropout>),
    /// Dense rows that are already aggregated: a constant of the inputs.
    Propagated(Var),
}

impl<'a, B: Backend> Rows<'a, B> {
    /// First operand of a model that aggregates first: the propagated features, or else the raw ones.
    ///
    /// # Errors
    /// When the backend fails.
    ///
    /// # Panics
    /// When the inputs hold neither.
    pub fn aggregated_input(tape: &mut Tape<'a, B>, inputs: &'a Inputs<B>) -> Result<Self, ComputeError> {
        match &inputs.propagated {
            Some(propagated) => Ok(Self::Propagated(tape.constant(propagated))),
            None => Self::raw_input(tape, inputs),
        }
    }

    /// Raw features.
    ///
    /// # Errors
    /// When the backend fails.
    ///
    /// # Panics
    /// When the inputs lack raw features: the model must ask for them in its [`InputSpec`](crate::InputSpec).
    pub fn raw_input(tape: &mut Tape<'a, B>, inputs: &'a Inputs<B>) -> Result<Self, ComputeError> {
        Self::of_features(tape, inputs.features.as_ref().expect("the model asked for raw features"))
    }

    /// Rows of features.
    ///
    /// # Errors
    /// When the backend fails.
    pub fn of_features(tape: &mut Tape<'a, B>, features: &'a FeatureInput<B>) -> Result<Self, ComputeError> {
        Ok(match features {
            FeatureInput::Dense(matrix) => Self::Dense(tape.constant(matrix)),
            FeatureInput::Sparse { matrix, values, first_value } => {
                Self::Sparse(matrix, values.as_ref().map(|values| tape.constant(values)), *first_value)
            }
            FeatureInput::Encoded(encoded) => Self::Encoded(encoded, None),
            FeatureInput::Learned(param) => Self::Dense(tape.param(*param)),
            FeatureInput::LearnedRows { param, ids, n_ids } => {
                let all = tape.param(*param);
                Self::Dense(tape.gather_rows(all, ids, *n_ids)?)
            }
        })
    }

    /// Variable of dense rows.
    ///
    /// # Panics
    /// When rows are sparse or encoded: a model that needs dense ones asks for
    /// [`Propagation::Always`](crate::Propagation::Always).
    #[must_use]
    pub fn into_dense(self) -> Var {
        match self {
            Self::Dense(x) | Self::Propagated(x) => x,
            Self::Sparse(..) | Self::Encoded(..) => panic!("the model asked for dense features"),
        }
    }

    /// Rows masked by `dropout`, as a stored matrix, for rows that several products read. Encoded rows are masked
    /// when they are decoded.
    ///
    /// # Errors
    /// When the backend fails.
    pub fn masked(self, tape: &mut Tape<'a, B>, dropout: Option<Dropout>) -> Result<Self, ComputeError> {
        Ok(match self {
            Self::Dense(x) => Self::Dense(tape.dropout(x, dropout)?),
            Self::Sparse(matrix, values, first) => Self::Sparse(
                matrix,
                masked_values(tape, values, dropout.map(|dropout| dropout.from_row(first)))?,
                first,
            ),
            Self::Encoded(encoded, None) => Self::Encoded(encoded, dropout),
            Self::Encoded(_, Some(_)) => panic!("rows are masked once"),
            Self::Propagated(x) => Self::Propagated(tape.dropout(x, dropout)?),
        })
    }
}

/// Values of sparse features, masked by dropout; `None` if they belong to the matrix.
fn masked_values<B: Backend>(
    tape: &mut Tape<'_, B>,
    values: Option<Var>,
    dropout: Option<Dropout>,
) -> Result<Option<Var>, ComputeError> {
    assert!(values.is_some() || dropout.is_none(), "only separate values of sparse features can be masked");
    values.map(|values| tape.dropout(values, dropout)).transpose()
}

/// Dense layer with weight and bias: `mask ⊙ activation(X·W + add + b)`.
pub struct Linear {
    weight: ParamId,
    bias: Option<ParamId>,
    widths: (usize, usize),
}

impl Linear {
    /// A layer from `inputs` to `outputs` columns.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub fn new<B: Backend>(
        init: &mut ParamInit<'_, B>,
        layer: usize,
        inputs: usize,
        outputs: usize,
    ) -> Result<Self, ComputeError> {
        Self::named(init, layer, "", (inputs, outputs))
    }

    /// As [`new`](Self::new), but for a layer with several weights: parameter names end in `name`.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub fn named<B: Backend>(
        init: &mut ParamInit<'_, B>,
        layer: usize,
        name: &str,
        widths: (usize, usize),
    ) -> Result<Self, ComputeError> {
        let named = |what: &str| if name.is_empty() { what.to_owned() } else { format!("{what}_{name}") };
        let weight = init.glorot(layer, &named("weight"), Shape::new(widths.0, widths.1), widths.0)?;
        let bias = Some(init.zeros(layer, &named("bias"), Shape::new(1, widths.1))?);
        Ok(Self { weight, bias, widths })
    }

    /// As [`new`](Self::new), but with a zero weight, for a model that is linear in its weights. Its loss is convex,
    /// so that it needs no random initialisation.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub fn zeroed<B: Backend>(
        init: &mut ParamInit<'_, B>,
        layer: usize,
        inputs: usize,
        outputs: usize,
    ) -> Result<Self, ComputeError> {
        let weight = init.zeros(layer, "weight", Shape::new(inputs, outputs))?;
        let bias = Some(init.zeros(layer, "bias", Shape::new(1, outputs))?);
        Ok(Self { weight, bias, widths: (inputs, outputs) })
    }

    /// A weight without bias that is one of `parts` equal row blocks of a larger weight: the factor of one operand of
    /// a concatenation.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub fn part<B: Backend>(
        init: &mut ParamInit<'_, B>,
        layer: usize,
        name: &str,
        widths: (usize, usize),
        parts: usize,
    ) -> Result<Self, ComputeError> {
        let weight = init.glorot(layer, name, Shape::new(widths.0, widths.1), widths.0 * parts)?;
        Ok(Self { weight, bias: None, widths })
    }

    /// Computes `mask ⊙ activation(dropout(X)·W + add + b)`.
    ///
    /// # Errors
    /// When the backend fails.
    pub fn forward<'a, B: Backend>(
        &self,
        tape: &mut Tape<'a, B>,
        rows: &Rows<'a, B>,
        options: LinearOptions,
    ) -> Result<Var, ComputeError> {
        let bias = options.bias.or_else(|| self.bias(tape));
        self.forward_without_bias(tape, rows, LinearOptions { bias, ..options })
    }

    /// Bias on the tape, if the layer has one.
    pub fn bias<B: Backend>(&self, tape: &mut Tape<'_, B>) -> Option<Var> {
        self.bias.map(|b| tape.param(b))
    }

    /// As [`forward_without_bias`](Self::forward_without_bias), but only for the destinations of `graph`: the term of
    /// a node's own row.
    ///
    /// # Errors
    /// When the backend fails.
    pub fn forward_own<'a, B: Backend>(
        &self,
        tape: &mut Tape<'a, B>,
        graph: &'a Graph<B>,
        rows: &Rows<'a, B>,
        options: LinearOptions,
    ) -> Result<Var, ComputeError> {
        match *rows {
            Rows::Dense(x) => {
                let own = Rows::Dense(tape.destinations(graph, x)?);
                self.forward_without_bias(tape, &own, options)
            }
            // Sparse rows are cheaper to transform than to select. Encoded rows are decoded only within a product.
            Rows::Sparse(..) | Rows::Encoded(..) | Rows::Propagated(_) => {
                let all = self.forward_without_bias(tape, rows, options)?;
                tape.destinations(graph, all)
            }
        }
    }

    /// Sum of two layers' products with dense rows, `mask ⊙ activation(X·W + Y·V + b)`, with only the bias of
    /// `options`.
    ///
    /// # Errors
    /// When the backend fails.
    pub fn forward_pair<B: Backend>(
        tape: &mut Tape<'_, B>,
        terms: [(&Self, Var); 2],
        options: LinearOptions,
    ) -> Result<Var, ComputeError> {
        let terms = terms.map(|(layer, rows)| (rows, tape.param(layer.weight)));
        tape.linear_pair(terms, options)
    }

    /// As [`forward`](Self::forward), but with only the bias of `options`. The layer's own bias is added later, after
    /// an aggregation.
    ///
    /// # Errors
    /// When the backend fails.
    pub fn forward_without_bias<'a, B: Backend>(
        &self,
        tape: &mut Tape<'a, B>,
        rows: &Rows<'a, B>,
        options: LinearOptions,
    ) -> Result<Var, ComputeError> {
        let weight = tape.param(self.weight);
        match *rows {
            Rows::Dense(x) | Rows::Propagated(x) => tape.linear(x, weight, options),
            Rows::Sparse(matrix, values, first) => {
                let dropout = options.dropout.map(|dropout| dropout.from_row(first));
                let weights = masked_values(tape, values, dropout)?;
                let LinearOptions { bias, activation, mask, add, .. } = options;
                tape.spmm(matrix, weight, SpmmOptions { weights, bias, activation, mask, add })
            }
            Rows::Encoded(encoded, dropout) => {
                assert!(options.dropout.is_none() || dropout.is_none(), "rows are masked once");
                tape.linear_encoded(encoded, weight, LinearOptions { dropout: options.dropout.or(dropout), ..options })
            }
        }
    }
}

/// Graph convolution `activation(Â·X·W + b)` (Kipf and Welling, ICLR 2017, equation 2), in the cheaper order.
pub struct GraphConv {
    linear: Linear,
}

impl GraphConv {
    /// A layer from `inputs` to `outputs` columns.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub fn new<B: Backend>(
        init: &mut ParamInit<'_, B>,
        layer: usize,
        inputs: usize,
        outputs: usize,
    ) -> Result<Self, ComputeError> {
        Ok(Self { linear: Linear::new(init, layer, inputs, outputs)? })
    }

    /// Computes `mask ⊙ activation(Â·dropout(X)·W + b)`. Aggregates on the narrower side of the weight, or not at all
    /// if the rows are already aggregated.
    ///
    /// # Errors
    /// When the backend fails.
    pub fn forward<'a, B: Backend>(
        &self,
        tape: &mut Tape<'a, B>,
        graph: &'a Graph<B>,
        rows: &Rows<'a, B>,
        masks: Masks,
        activation: Activation,
    ) -> Result<Var, ComputeError> {
        let widths = self.linear.widths;
        let options = LinearOptions { activation, mask: masks.result, ..LinearOptions::default() };
        match rows {
            Rows::Dense(x) if graph.aggregates_first(tape.backend(), widths) => {
                let x = tape.dropout(*x, masks.operand)?;
                let aggregated = Rows::Dense(tape.aggregate(graph, x, AggregateOptions::default())?);
                self.linear.forward(tape, &aggregated, options)
            }
            Rows::Propagated(_) => self.linear.forward(tape, rows, LinearOptions { dropout: masks.operand, ..options }),
            Rows::Dense(_) | Rows::Sparse(..) | Rows::Encoded(..) => {
                self.transform_first(tape, graph, rows, masks, activation)
            }
        }
    }

    /// Computes `mask ⊙ activation(Â·(dropout(X)·W) + b)`.
    fn transform_first<'a, B: Backend>(
        &self,
        tape: &mut Tape<'a, B>,
        graph: &'a Graph<B>,
        rows: &Rows<'a, B>,
        masks: Masks,
        activation: Activation,
    ) -> Result<Var, ComputeError> {
        let aggregated = |bias: Option<Var>| AggregateOptions {
            bias,
            activation,
            mask: masks.result,
            ..AggregateOptions::default()
        };
        if let (Rows::Dense(x), None) = (rows, masks.operand) {
            let weight = tape.param(self.linear.weight);
            let options = aggregated(self.linear.bias(tape));
            return tape.aggregate_product(graph, (*x, weight), options);
        }
        let options = LinearOptions { dropout: masks.operand, ..LinearOptions::default() };
        let transformed = self.linear.forward_without_bias(tape, rows, options)?;
        let options = aggregated(self.linear.bias(tape));
        tape.aggregate(graph, transformed, options)
    }
}
