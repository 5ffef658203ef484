//! Aggregation over a node's neighbors in a GraphSAGE layer.

use girih_compute::{Activation, Backend, ComputeError, Shape};

use crate::config::Aggregator;
use crate::layers::{Linear, Rows};
use crate::tape::{AggregateOptions, Graph, LinearOptions, ParamId, ParamInit, Tape};

/// An [`Aggregator`] with its parameters in a layer (Hamilton et al., NeurIPS 2017, section 3.3).
pub(super) enum Aggregate {
    /// Mean, `mean(H)`.
    Mean {
        /// Widths of the layer's operand and result. The mean is taken on the narrower side.
        widths: (usize, usize),
    },
    /// Element-wise maximum, `max(relu(H·W + b))`.
    Pool(Linear),
    /// Last state of an LSTM over the rows in a random order.
    Lstm {
        /// Weight from a row to the gates, with bias.
        inputs: Linear,
        /// Recurrent weight, from a state to the gates.
        recurrent: ParamId,
    },
}

impl Aggregate {
    /// Aggregator from rows of `inputs` columns to aggregates of `width` columns. `outputs` is the width of the
    /// layer's result.
    pub(super) fn new<B: Backend>(
        init: &mut ParamInit<'_, B>,
        aggregator: Aggregator,
        layer: usize,
        (inputs, width): (usize, usize),
        outputs: usize,
    ) -> Result<Self, ComputeError> {
        Ok(match aggregator {
            Aggregator::Mean => Self::Mean { widths: (inputs, outputs) },
            Aggregator::Pool => Self::Pool(Linear::named(init, layer, "pool", (inputs, width))?),
            Aggregator::Lstm => Self::Lstm {
                inputs: Linear::named(init, layer, "inputs", (inputs, 4 * width))?,
                recurrent: init.glorot(layer, "weight_recurrent", Shape::new(width, 4 * width), width)?,
            },
        })
    }

    /// Aggregates; `None` if it is cheaper to take the mean after the product with the layer's weight.
    pub(super) fn forward<'a, B: Backend>(
        &self,
        tape: &mut Tape<'a, B>,
        graph: &'a Graph<B>,
        rows: &Rows<'a, B>,
    ) -> Result<Option<Rows<'a, B>>, ComputeError> {
        let aggregated = match (self, rows) {
            (Self::Mean { widths }, Rows::Dense(x)) if graph.aggregates_first(tape.backend(), *widths) => {
                tape.aggregate(graph, *x, AggregateOptions::default())?
            }
            (Self::Mean { .. }, _) => return Ok(None),
            (Self::Pool(linear), _) => {
                let options = LinearOptions { activation: Activation::Relu, ..LinearOptions::default() };
                let transformed = linear.forward(tape, rows, options)?;
                let (pattern, transformed) = tape.neighbors(graph, transformed)?;
                tape.segment_max(pattern, transformed)?
            }
            (Self::Lstm { inputs, recurrent }, _) => {
                let inputs = inputs.forward(tape, rows, LinearOptions::default())?;
                let recurrent = tape.param(*recurrent);
                let (pattern, inputs) = tape.neighbors(graph, inputs)?;
                tape.segment_lstm(pattern, inputs, recurrent)?
            }
        };
        Ok(Some(Rows::Dense(aggregated)))
    }
}
