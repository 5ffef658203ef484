//! Layers: parameters and how they meet their operands.

mod attention;
mod normalization;

use girih_compute::{Activation, Backend, ComputeError, Dropout, Shape};

pub use self::attention::{AttentionKind, AttentionSizes, GraphAttention};
pub use self::normalization::{NormAxis, Normalization};
use crate::encoded::EncodedInput;
use crate::graph::Graph;
use crate::inputs::{FeatureInput, Inputs};
use crate::params::{ParamId, ParamInit};
use crate::tape::{AggregateOptions, LinearOptions, Masks, SpmmOptions, Tape, Var};

/// The rows that a layer reads: one per node.
pub enum Rows<'a, B: Backend> {
    /// Dense rows on the tape.
    Dense(Var),
    /// Sparse input features: their pattern, their values, and how many values nodes before the first at hand have.
    Sparse(&'a B::Sparse, Var, usize),
    /// Input features that are decoded where they are read, and what masks them.
    Encoded(&'a EncodedInput, Option<Dropout>),
    /// Dense rows that have been aggregated already: a constant of the inputs.
    Propagated(Var),
}

impl<'a, B: Backend> Rows<'a, B> {
    /// The first operand of a model that aggregates first: the propagated features if there are any, else the raw ones.
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

    /// The raw features.
    ///
    /// # Errors
    /// When the backend fails.
    ///
    /// # Panics
    /// When the inputs do not hold them: the model must ask for them in its [`InputSpec`](crate::InputSpec).
    pub fn raw_input(tape: &mut Tape<'a, B>, inputs: &'a Inputs<B>) -> Result<Self, ComputeError> {
        Ok(match inputs.features.as_ref().expect("the model asked for raw features") {
            FeatureInput::Dense(matrix) => Self::Dense(tape.constant(matrix)),
            FeatureInput::Sparse { matrix, values, first_value } => {
                Self::Sparse(matrix, tape.constant(values), *first_value)
            }
            FeatureInput::Encoded(encoded) => Self::Encoded(encoded, None),
            FeatureInput::Learned(param) => Self::Dense(tape.param(*param)),
            FeatureInput::LearnedRows { param, ids, n_ids } => {
                let all = tape.param(*param);
                Self::Dense(tape.gather_rows(all, ids, *n_ids)?)
            }
        })
    }

    /// The rows masked by `dropout`, stored: for rows that several products read in an order that cannot fuse it.
    /// Encoded rows are masked wherever they are decoded.
    ///
    /// # Errors
    /// When the backend fails.
    pub fn masked(self, tape: &mut Tape<'a, B>, dropout: Option<Dropout>) -> Result<Self, ComputeError> {
        Ok(match self {
            Self::Dense(x) => Self::Dense(tape.dropout(x, dropout)?),
            Self::Sparse(matrix, values, first) => {
                Self::Sparse(matrix, tape.dropout(values, dropout.map(|dropout| dropout.from_row(first)))?, first)
            }
            Self::Encoded(encoded, None) => Self::Encoded(encoded, dropout),
            Self::Encoded(_, Some(_)) => panic!("rows are masked once"),
            Self::Propagated(x) => Self::Propagated(tape.dropout(x, dropout)?),
        })
    }
}

/// A weight and a bias: `mask ⊙ activation(X·W + add + b)`.
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

    /// As [`new`](Self::new), for a layer that has several: their parameters' names end in `name`.
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

    /// As [`new`](Self::new), with a weight of zeros: for a model that is linear in its weights, whose loss is convex,
    /// so that no symmetry needs breaking and nothing random is left over in the result.
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

    /// A weight without bias that is one of `parts` equal parts of a larger weight, cut into rows: the factor of one
    /// operand of a concatenation.
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

    /// `mask ⊙ activation(dropout(X)·W + add + b)`.
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

    /// The bias on the tape, if the layer has one.
    pub fn bias<B: Backend>(&self, tape: &mut Tape<'_, B>) -> Option<Var> {
        self.bias.map(|b| tape.param(b))
    }

    /// As [`forward_without_bias`](Self::forward_without_bias), of the rows of the destinations of `graph` alone: what
    /// a node makes of its own row.
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
            // Rows of few non-zeros are quicker transformed than picked, and rows that need decoding have no other
            // place.
            Rows::Sparse(..) | Rows::Encoded(..) | Rows::Propagated(_) => {
                let all = self.forward_without_bias(tape, rows, options)?;
                tape.destinations(graph, all)
            }
        }
    }

    /// The sum of two layers' products of dense rows, with the bias of the options only: `mask ⊙ activation(X·W + Y·V +
    /// b)`.
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

    /// As [`forward`](Self::forward), with the bias of the options only: the layer's own comes later, after an
    /// aggregation.
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
                let weights = Some(tape.dropout(values, dropout)?);
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

/// A graph convolution: `activation(Â·X·W + b)` (Kipf and Welling, ICLR 2017, equation 2), in the cheaper order.
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

    /// `mask ⊙ activation(Â·dropout(X)·W + b)`: aggregates on the narrower side of the weight, or not at all when the
    /// rows are aggregated already.
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

    /// `mask ⊙ activation(Â·(dropout(X)·W) + b)`
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
