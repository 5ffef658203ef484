//! [`Stack`]: one convolution after the other, with what networks put around them.
//!
//! ```text
//! plain      X ─▶ conv ─▶ norm ─▶ act ─▶ … ─▶ conv ─▶ logits
//! residual   X ─▶ linear, act ─▶ H ─┬─▶ norm ─▶ conv, act ─┬─▶ + ─▶ … ─▶ norm ─▶ linear ─▶ logits
//!                                   └──────────────────────┘
//! jump       every layer's output goes to the last linear layer, side by side or as their maximum
//! ```
//! Residual connections with the normalisation inside are those of pre-norm networks (Xiong et al., ICML 2020); jumping
//! knowledge is Xu et al., ICML 2018.

use girih_compute::{Activation, Backend, ComputeError, Dropout, Shape};

use super::{Dims, Layers, Model};
use crate::config::{Jump, ModelConfig, NormKind};
use crate::graph::Graph;
use crate::inputs::{Adjacency, InputSpec, Inputs, Propagation};
use crate::layers::{Linear, NormAxis, Normalization, Rows};
use crate::params::{ParamId, ParamInit};
use crate::tape::{LinearOptions, Masks, Tape, Var};

/// Where a convolution stands in a stack.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Number of the layer, from 0.
    pub layer: usize,
    /// Columns of the operand.
    pub inputs: usize,
    /// Columns of the result.
    pub outputs: usize,
    /// Whether the result is the logits.
    pub is_output: bool,
}

/// A layer of message passing: all that differs between networks of one shape.
pub trait Convolution: Send + Sized {
    /// What follows hidden layers.
    const ACTIVATION: Activation = Activation::Relu;

    /// The adjacency that it aggregates over.
    const ADJACENCY: Adjacency;

    /// Whether its first operand may be the features aggregated before training.
    const AGGREGATES_FIRST: bool = false;

    /// Columns of a hidden layer.
    fn hidden_width(config: &ModelConfig) -> usize {
        config.hidden
    }

    /// A layer with fresh parameters.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    fn new<B: Backend>(init: &mut ParamInit<'_, B>, config: &ModelConfig, place: Place) -> Result<Self, ComputeError>;

    /// The layer applied to `rows`. A result that is masked went through [`ACTIVATION`](Self::ACTIVATION).
    ///
    /// # Errors
    /// When the backend fails.
    fn forward<'a, B: Backend>(
        &self,
        tape: &mut Tape<'a, B>,
        graph: &'a Graph<B>,
        rows: &Rows<'a, B>,
        masks: Masks,
        activation: Activation,
    ) -> Result<Var, ComputeError>;
}

/// A network of convolutions `C`.
pub struct Stack<C> {
    config: ModelConfig,
    /// Brings the features to the hidden width, where connections are residual.
    entry: Option<Linear>,
    layers: Vec<(C, Option<Normalization>)>,
    readout: Readout,
}

/// How logits come from hidden layers.
enum Readout {
    /// They are the last layer.
    Last,
    /// A linear layer on the last hidden one, normalised, or on the maximum of all.
    Linear(Option<Normalization>, Linear),
    /// A linear layer on all of them side by side, cut into the rows that meet each.
    Concat(Vec<Linear>, ParamId),
}

impl<C: Convolution> Stack<C> {
    /// A network with fresh parameters.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub fn new<B: Backend>(
        config: &ModelConfig,
        dims: Dims,
        init: &mut ParamInit<'_, B>,
    ) -> Result<Self, ComputeError> {
        let (width, n) = (C::hidden_width(config), config.layers);
        let ends_in_logits = !config.residual && config.jump == Jump::None;
        let entry = config.residual.then(|| Linear::named(init, 0, "entry", (dims.n_features, width))).transpose()?;
        let mut layers = Vec::with_capacity(n);
        for layer in 0..n {
            let is_output = ends_in_logits && layer + 1 == n;
            let inputs = if layer == 0 && entry.is_none() { dims.n_features } else { width };
            let outputs = if is_output { dims.n_classes } else { width };
            let convolution = C::new(init, config, Place { layer, inputs, outputs, is_output })?;
            layers.push((convolution, if is_output { None } else { normalization(init, config, layer, width)? }));
        }
        let readout = match config.jump {
            _ if ends_in_logits => Readout::Last,
            Jump::Concat => {
                let part = |i: usize, init: &mut ParamInit<'_, B>| {
                    Linear::part(init, n, &format!("weight_{i}"), (width, dims.n_classes), n)
                };
                let parts: Result<_, _> = (0..n).map(|i| part(i, init)).collect();
                Readout::Concat(parts?, init.zeros(n, "bias", Shape::new(1, dims.n_classes))?)
            }
            Jump::None | Jump::Max => {
                let norm = if config.residual { normalization(init, config, n, width)? } else { None };
                Readout::Linear(norm, Linear::new(init, n, width, dims.n_classes)?)
            }
        };
        Ok(Self { config: config.clone(), entry, layers, readout })
    }

    /// The results of all hidden layers, and the dropout that the next layer would apply; with a last layer that is
    /// the output, its logits alone.
    fn layers<'a, B: Backend>(&self, tape: &mut Tape<'a, B>, inputs: &'a Inputs<B>) -> Result<Vec<Var>, ComputeError> {
        let mut dropout = tape.next_dropout(self.config.input_dropout());
        let mut rows = if C::AGGREGATES_FIRST && self.entry.is_none() {
            Rows::aggregated_input(tape, inputs)?
        } else {
            Rows::raw_input(tape, inputs)?
        };
        if let Some(entry) = &self.entry {
            rows = Self::entered(tape, entry, &rows, dropout)?;
            dropout = tape.next_dropout(self.config.dropout);
        }
        let mut results = Vec::with_capacity(self.layers.len());
        for (i, (_, norm)) in self.layers.iter().enumerate() {
            let is_output = self.is_output(i);
            // Where a result is read as the operand of the next layer alone, it is masked as it is made.
            let masks_result = !is_output
                && matches!(self.readout, Readout::Last)
                && norm.is_none()
                && C::ACTIVATION == Activation::Relu;
            let result = if masks_result { tape.next_dropout(self.config.dropout) } else { None };
            let masks = Masks { operand: dropout, result };
            let x = self.convolved(tape, inputs.graph(i), i, &rows, masks)?;
            tape.mark_layer(x);
            results.push(x);
            rows = Rows::Dense(x);
            dropout = if is_output || masks_result { None } else { tape.next_dropout(self.config.dropout) };
        }
        Ok(results)
    }

    /// Whether what a layer leaves are the logits.
    fn is_output(&self, layer: usize) -> bool {
        matches!(self.readout, Readout::Last) && layer + 1 == self.layers.len()
    }

    /// What a layer makes of `rows`, with what stands around its convolution.
    fn convolved<'a, B: Backend>(
        &self,
        tape: &mut Tape<'a, B>,
        graph: &'a Graph<B>,
        layer: usize,
        rows: &Rows<'a, B>,
        masks: Masks,
    ) -> Result<Var, ComputeError> {
        let (convolution, norm) = &self.layers[layer];
        match (rows, self.entry.is_some()) {
            (Rows::Dense(x), true) => residual(tape, graph, *x, (convolution, norm.as_ref()), masks),
            _ if self.is_output(layer) => convolution.forward(tape, graph, rows, masks, Activation::Identity),
            _ => normalized(tape, graph, rows, (convolution, norm.as_ref()), masks),
        }
    }

    /// The features brought to the hidden width.
    fn entered<'a, B: Backend>(
        tape: &mut Tape<'a, B>,
        entry: &Linear,
        rows: &Rows<'a, B>,
        dropout: Option<Dropout>,
    ) -> Result<Rows<'a, B>, ComputeError> {
        let options = LinearOptions { dropout, activation: C::ACTIVATION, ..LinearOptions::default() };
        Ok(Rows::Dense(entry.forward(tape, rows, options)?))
    }

    /// The logits of the rows of the last hidden layer, or of the maximum of all.
    fn read_out<B: Backend>(
        &self,
        tape: &mut Tape<'_, B>,
        (norm, linear): (Option<&Normalization>, &Linear),
        rows: Var,
    ) -> Result<Var, ComputeError> {
        let rows = match norm {
            Some(norm) => norm.forward(tape, rows)?,
            None => rows,
        };
        let dropout = tape.next_dropout(self.config.dropout);
        linear.forward(tape, &Rows::Dense(rows), LinearOptions { dropout, ..LinearOptions::default() })
    }

    /// The rows of a hidden layer for the nodes that logits are of. In a mini-batch the nodes of every layer begin with
    /// those of the next.
    fn at_outputs<'a, B: Backend>(
        &self,
        tape: &mut Tape<'a, B>,
        inputs: &'a Inputs<B>,
        hidden: Var,
    ) -> Result<Var, ComputeError> {
        tape.destinations(inputs.graph(self.layers.len() - 1), hidden)
    }
}

/// `activation(norm(conv(rows)))`
fn normalized<'a, B: Backend, C: Convolution>(
    tape: &mut Tape<'a, B>,
    graph: &'a Graph<B>,
    rows: &Rows<'a, B>,
    (convolution, norm): (&C, Option<&Normalization>),
    masks: Masks,
) -> Result<Var, ComputeError> {
    let Some(norm) = norm else { return convolution.forward(tape, graph, rows, masks, C::ACTIVATION) };
    let x = convolution.forward(tape, graph, rows, masks, Activation::Identity)?;
    let x = norm.forward(tape, x)?;
    tape.combine(&[(1.0, x)], None, C::ACTIVATION)
}

/// `x + activation(conv(norm(x)))`
fn residual<'a, B: Backend, C: Convolution>(
    tape: &mut Tape<'a, B>,
    graph: &'a Graph<B>,
    x: Var,
    (convolution, norm): (&C, Option<&Normalization>),
    masks: Masks,
) -> Result<Var, ComputeError> {
    let inner = match norm {
        Some(norm) => norm.forward(tape, x)?,
        None => x,
    };
    let change = convolution.forward(tape, graph, &Rows::Dense(inner), masks, C::ACTIVATION)?;
    let own = tape.destinations(graph, x)?;
    tape.combine(&[(1.0, change), (1.0, own)], None, Activation::Identity)
}

fn normalization<B: Backend>(
    init: &mut ParamInit<'_, B>,
    config: &ModelConfig,
    layer: usize,
    width: usize,
) -> Result<Option<Normalization>, ComputeError> {
    let axis = match config.norm {
        NormKind::None => return Ok(None),
        NormKind::Layer => NormAxis::Rows,
        NormKind::Batch => NormAxis::Columns,
    };
    Normalization::new(init, layer, axis, width).map(Some)
}

impl<B: Backend, C: Convolution> Model<B> for Stack<C> {
    fn input_spec(&self) -> InputSpec {
        let aggregates_first = C::AGGREGATES_FIRST && self.entry.is_none();
        InputSpec {
            graph: Some(C::ADJACENCY.with_degrees(self.config.normalization)),
            hops: usize::from(aggregates_first),
            raw_features: !aggregates_first,
            propagation: if aggregates_first { Propagation::of(&self.config) } else { Propagation::Never },
        }
    }

    fn forward<'a>(&self, tape: &mut Tape<'a, B>, inputs: &'a Inputs<B>) -> Result<Var, ComputeError> {
        let mut results = self.layers(tape, inputs)?;
        let mut last = results.pop().expect("at least one layer");
        match &self.readout {
            Readout::Last => Ok(last),
            Readout::Linear(norm, linear) => {
                if self.config.jump == Jump::Max {
                    for &result in results.iter().rev() {
                        let result = self.at_outputs(tape, inputs, result)?;
                        last = tape.maximum(last, result)?;
                    }
                }
                self.read_out(tape, (norm.as_ref(), linear), last)
            }
            Readout::Concat(parts, bias) => {
                for result in &mut results {
                    *result = self.at_outputs(tape, inputs, *result)?;
                }
                results.push(last);
                let (mut sum, bias) = (None, tape.param(*bias));
                for (i, (part, &result)) in parts.iter().zip(&results).enumerate() {
                    let dropout = tape.next_dropout(self.config.dropout);
                    let bias = Some(bias).filter(|_| i + 1 == parts.len());
                    let options = LinearOptions { dropout, bias, add: sum, ..LinearOptions::default() };
                    sum = Some(part.forward(tape, &Rows::Dense(result), options)?);
                }
                Ok(sum.expect("at least one layer"))
            }
        }
    }

    /// Not with batch normalisation, whose moments are those of all nodes, nor where logits read all layers.
    fn as_layers(&self) -> Option<&dyn Layers<B>> {
        (self.config.norm != NormKind::Batch && self.config.jump == Jump::None).then_some(self)
    }
}

impl<B: Backend, C: Convolution> Layers<B> for Stack<C> {
    fn n_layers(&self) -> usize {
        self.layers.len()
    }

    fn layer<'a>(&self, tape: &mut Tape<'a, B>, inputs: &'a Inputs<B>, layer: usize) -> Result<Var, ComputeError> {
        let mut rows = Rows::raw_input(tape, inputs)?;
        if let Some(entry) = self.entry.as_ref().filter(|_| layer == 0) {
            rows = Self::entered(tape, entry, &rows, None)?;
        }
        let x = self.convolved(tape, inputs.graph(0), layer, &rows, Masks::default())?;
        match &self.readout {
            Readout::Linear(norm, linear) if layer + 1 == self.layers.len() => {
                self.read_out(tape, (norm.as_ref(), linear), x)
            }
            _ => Ok(x),
        }
    }
}
