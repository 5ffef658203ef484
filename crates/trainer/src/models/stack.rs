//! [`Stack`]: a sequence of convolutions with optional normalisation, residual connections and jumping knowledge.
//!
//! ```text
//! plain      X ─▶ conv ─▶ norm ─▶ act ─▶ … ─▶ conv ─▶ logits
//! residual   X ─▶ linear, act ─▶ H ─┬─▶ norm ─▶ conv, act ─┬─▶ + ─▶ … ─▶ norm ─▶ linear ─▶ logits
//!                                   └──────────────────────┘
//! jump       every layer's output goes to the last linear layer, side by side or as their maximum
//! ```
//! Residual blocks normalise their input, as pre-norm networks do (Xiong et al., ICML 2020). Jumping knowledge
//! follows Xu et al., ICML 2018.

use girih_compute::{Activation, Backend, ComputeError, Dropout, Shape};

use super::spec::{Adjacency, InputSpec, Layers, Model, Propagation};
use crate::config::{Jump, ModelConfig, NormKind};
use crate::layers::{Dims, Inputs, Linear, NormAxis, Normalization, Rows};
use crate::tape::{Graph, LinearOptions, Masks, ParamId, ParamInit, Tape, Var};

/// Position of a convolution in a stack.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Index of the layer, from 0.
    pub layer: usize,
    /// Number of columns of the operand.
    pub inputs: usize,
    /// Number of columns of the result.
    pub outputs: usize,
    /// Whether the result is the logits.
    pub is_output: bool,
    /// Number of columns of the features of edges; 0 without any.
    pub edge_width: usize,
}

/// Message passing layer: the part that differs between networks of this structure.
pub trait Convolution: Send + Sized {
    /// Activation of hidden layers.
    const ACTIVATION: Activation = Activation::Relu;

    /// Adjacency that the layer aggregates over.
    const ADJACENCY: Adjacency;

    /// Whether the first operand may be features that are aggregated before training.
    const AGGREGATES_FIRST: bool = false;

    /// Whether the layer reads features of edges where there are any.
    const READS_EDGES: bool = false;

    /// Width of a hidden layer.
    fn hidden_width(config: &ModelConfig) -> usize {
        config.hidden
    }

    /// A layer with newly initialised parameters.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    fn new<B: Backend>(init: &mut ParamInit<'_, B>, config: &ModelConfig, place: Place) -> Result<Self, ComputeError>;

    /// Applies the layer to `rows`. A masked result always has the activation [`ACTIVATION`](Self::ACTIVATION).
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

/// Network of convolutions `C`.
pub struct Stack<C> {
    config: ModelConfig,
    /// Linear layer from the features to the hidden width, for residual connections.
    entry: Option<Linear>,
    layers: Vec<(C, Option<Normalization>)>,
    readout: Readout,
    edge_width: usize,
}

/// Readout of the logits from hidden layers.
enum Readout {
    /// The last layer's output is the logits.
    Last,
    /// A linear layer on the last hidden layer, optionally normalised, or on the maximum of all.
    Linear(Option<Normalization>, Linear),
    /// A linear layer on the concatenation of all hidden layers, split into a row block for each.
    Concat(Vec<Linear>, ParamId),
}

impl<C: Convolution> Stack<C> {
    /// A network with newly initialised parameters.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub fn new<B: Backend>(
        config: &ModelConfig,
        dims: &Dims,
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
            let convolution =
                C::new(init, config, Place { layer, inputs, outputs, is_output, edge_width: dims.edge_width })?;
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
        Ok(Self { config: config.clone(), entry, layers, readout, edge_width: dims.edge_width })
    }

    /// Outputs of all layers. If the last layer is the output, its result is the logits.
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
            // A result that only the next layer reads is masked when it is computed.
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

    /// Whether the output of a layer is the logits.
    fn is_output(&self, layer: usize) -> bool {
        matches!(self.readout, Readout::Last) && layer + 1 == self.layers.len()
    }

    /// Applies a layer to `rows`, with its normalisation, activation and residual connection.
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

    /// Transforms the features to the hidden width.
    fn entered<'a, B: Backend>(
        tape: &mut Tape<'a, B>,
        entry: &Linear,
        rows: &Rows<'a, B>,
        dropout: Option<Dropout>,
    ) -> Result<Rows<'a, B>, ComputeError> {
        let options = LinearOptions { dropout, activation: C::ACTIVATION, ..LinearOptions::default() };
        Ok(Rows::Dense(entry.forward(tape, rows, options)?))
    }

    /// Logits from the rows of the last hidden layer, or of the maximum of all.
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

    /// Rows of a hidden layer for the nodes of the logits. In a mini-batch, the nodes of a layer begin with those of
    /// the next layer.
    fn at_outputs<'a, B: Backend>(
        &self,
        tape: &mut Tape<'a, B>,
        inputs: &'a Inputs<B>,
        hidden: Var,
    ) -> Result<Var, ComputeError> {
        tape.destinations(inputs.graph(self.layers.len() - 1), hidden)
    }
}

/// Computes `activation(norm(conv(rows)))`.
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

/// Computes `x + activation(conv(norm(x)))`.
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
    tape.add(change, own)
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
            relations: None,
            edges: C::READS_EDGES && self.edge_width > 0,
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

    /// `None` with batch normalisation, whose moments are over all nodes, and if the logits read all layers.
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
