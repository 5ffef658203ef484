//! What a layer of GraphSAGE makes of the rows of a node's neighbours.

use girih_compute::{Activation, Backend, ComputeError, Shape};

use crate::config::Aggregator;
use crate::graph::Graph;
use crate::layers::{Linear, Rows};
use crate::params::{ParamId, ParamInit};
use crate::tape::{AggregateOptions, LinearOptions, Tape};

/// An [`Aggregator`] with its parameters in a layer (Hamilton et al., NeurIPS 2017, section 3.3).
pub(super) enum Aggregate {
    /// `mean(H)`.
    Mean {
        /// From the columns of a row to those of the layer's result: the mean is taken where rows are narrow.
        widths: (usize, usize),
    },
    /// `max(relu(H·W + b))`, element by element.
    Pool(Linear),
    /// The last state of an LSTM over the rows in a random order.
    Lstm {
        /// From a row to the gates.
        inputs: Linear,
        /// From a state to the gates.
        recurrent: ParamId,
    },
}

impl Aggregate {
    /// From rows of `widths.0` to aggregates of `widths.1` columns, which the layer takes to `outputs`.
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

    /// The aggregates; `None` where it is cheaper to take their mean after the layer's weight.
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
