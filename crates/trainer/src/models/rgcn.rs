//! [`Rgcn`]: the relational graph convolutional network (Schlichtkrull et al., ESWC 2018), and `GraphSAGE` over relations.

use girih_compute::{Activation, Backend, ComputeError, Dropout, Shape};
use girih_datasets::TypeWidth;

use super::spec::{InputSpec, Layers, Model, Propagation};
use crate::config::{ModelConfig, ModelKind};
use crate::layers::{
    Dims, Entry, Inputs, LayerRelations, LayerTypes, LearnedRows, OwnWeights, RelationForm, RelationGraph,
    RelationSpec, Rows, TransformedRelations,
};
use crate::tape::{LinearOptions, ParamId, ParamInit, SpmmOptions, Tape, Var};

/// Layers `h'_v = relu(W_self·h_v + Σ_r mean_{u ∈ N_r(v)} W_r·h_u + b)`. The last layer has no ReLU.
///
/// An [`Entry`] makes the first rows of several types of nodes, and always those of `GraphSAGE` over relations. Without
/// any features, the first layer of R-GCN learns a row for each node and relation instead of `W_r·h_u`: only those rows
/// that edges read. With bases, `W_r = Σ_b a[r, b]·V_b`. With blocks, `W_r` is zero but for blocks along its diagonal.
pub struct Rgcn {
    entry: Option<Entry>,
    layers: Vec<Layer>,
    spec: RelationSpec,
    config: ModelConfig,
}

struct Layer {
    weights: Weights,
    own: OwnWeights,
    bias: ParamId,
    outputs: usize,
}

/// Weights of the relations. `Each` has the elements of `W_r` in row `r`; in a first layer without features, it has the
/// learned rows. Row `r` of `Blocks` has the `n` blocks of `W_r`, one after the other.
enum Weights {
    Each(ParamId),
    Bases { coefficients: ParamId, bases: ParamId },
    Blocks { weights: ParamId, n: usize },
}

/// Widths of a layer. A first layer that learns rows has as many inputs as there are nodes.
#[derive(Clone, Copy)]
struct Widths {
    inputs: usize,
    outputs: usize,
    learns_rows: bool,
}

/// First rows of a network of relations.
#[derive(Clone, Copy, PartialEq)]
enum FirstRows {
    /// Features of all nodes, as they are.
    Features,
    /// A learned row for each pair of a node and a relation.
    Pairs,
    /// Rows of an [`Entry`].
    Entry,
}

impl FirstRows {
    fn of(kind: ModelKind, dims: &Dims) -> Self {
        let has_some = dims.type_widths.iter().any(|width| *width != TypeWidth::None);
        match (kind, dims.n_features) {
            (ModelKind::Rgcn, 0) if !has_some => Self::Pairs,
            (ModelKind::Rgcn, _) if !has_some => Self::Features,
            _ => Self::Entry,
        }
    }
}

impl Rgcn {
    /// A network with newly initialised parameters.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub fn new<B: Backend>(
        config: &ModelConfig,
        dims: &Dims,
        init: &mut ParamInit<'_, B>,
    ) -> Result<Self, ComputeError> {
        let mut types = LayerTypes::of(&dims.relations, dims.target, config.layers);
        let first = FirstRows::of(config.kind, dims);
        let entry = match first {
            FirstRows::Entry => Some(Entry::new(init, dims, &types[0].sources, config.hidden)?),
            FirstRows::Features | FirstRows::Pairs => None,
        };
        let layers = dims.stack(config, |i, inputs, outputs| {
            let learns_rows = i == 0 && first == FirstRows::Pairs;
            let inputs = match (i, first) {
                (0, FirstRows::Pairs) => dims.n_nodes,
                (0, FirstRows::Entry) => config.hidden,
                _ => inputs,
            };
            if !learns_rows {
                types[i] = types[i].clone().in_cheaper_order(&dims.relations, (inputs, outputs));
            }
            let layer = i + usize::from(entry.is_some());
            Layer::new(init, config, (layer, dims, &types[i]), Widths { inputs, outputs, learns_rows })
        })?;
        if config.blocks > 1 && layers.iter().all(|layer| !matches!(layer.weights, Weights::Blocks { .. })) {
            return Err(ComputeError::argument(config.kind.name(), no_blocks(config, dims)));
        }
        let masks_features = config.input_dropout() > 0.0;
        let spec = RelationSpec {
            layers: types,
            form: RelationForm::Means,
            learns_pairs: first == FirstRows::Pairs,
            masks_features,
        };
        Ok(Self { entry, layers, spec, config: config.clone() })
    }

    /// First rows that are not learned for pairs: those of the entry, or the features.
    fn first_rows<'a, B: Backend>(
        &self,
        tape: &mut Tape<'a, B>,
        inputs: &'a Inputs<B>,
        rates: (f64, f64),
    ) -> Result<Option<Var>, ComputeError> {
        match &self.entry {
            Some(entry) => entry.forward(tape, inputs, rates).map(Some),
            None if inputs.features.is_some() => {
                let dropout = tape.next_dropout(rates.0);
                Ok(Some(Rows::raw_input(tape, inputs)?.masked(tape, dropout)?.into_dense()))
            }
            None => Ok(None),
        }
    }

    /// Activation of a layer; the last one has none.
    fn activation(&self, layer: usize) -> Activation {
        if layer + 1 == self.layers.len() { Activation::Identity } else { Activation::Relu }
    }
}

impl<B: Backend> Layers<B> for Rgcn {
    fn n_layers(&self) -> usize {
        self.layers.len()
    }

    fn layer<'a>(&self, tape: &mut Tape<'a, B>, inputs: &'a Inputs<B>, layer: usize) -> Result<Var, ComputeError> {
        let relations = &inputs.relations().layers[0];
        let rows = match layer {
            0 => self.first_rows(tape, inputs, (0.0, 0.0))?.expect("layers are of nodes that have rows"),
            _ => Rows::raw_input(tape, inputs)?.into_dense(),
        };
        let own = relations.own_rows(tape, rows)?;
        self.layers[layer].forward(tape, relations, (rows, own), (self.activation(layer), None))
    }
}

impl<B: Backend> Model<B> for Rgcn {
    /// `None` if the first layer learns a row for each pair of a node and a relation.
    fn as_layers(&self) -> Option<&dyn Layers<B>> {
        (!self.spec.learns_pairs).then_some(self)
    }

    fn input_spec(&self) -> InputSpec {
        // Sparse features that are averaged as they are, are stored densely: their means over neighbors are dense.
        let propagation = if self.entry.is_some() { Propagation::Never } else { Propagation::Always };
        InputSpec {
            graph: None,
            hops: 0,
            raw_features: true,
            propagation,
            relations: Some(self.spec.clone()),
            edges: false,
        }
    }

    fn forward<'a>(&self, tape: &mut Tape<'a, B>, inputs: &'a Inputs<B>) -> Result<Var, ComputeError> {
        let relations = inputs.relations();
        let rates = (self.config.input_dropout(), self.config.dropout);
        let mut rows = self.first_rows(tape, inputs, rates)?;
        for (i, (layer, of)) in self.layers.iter().zip(&relations.layers).enumerate() {
            let (is_last, activation) = (i + 1 == self.layers.len(), self.activation(i));
            let mask = if is_last { None } else { tape.next_dropout(self.config.dropout) };
            rows = Some(match (rows, &relations.learned) {
                (Some(rows), _) => {
                    let own = of.own_rows(tape, rows)?;
                    if i > 0 {
                        tape.mark_layer(own);
                    }
                    layer.forward(tape, of, (rows, own), (activation, mask))?
                }
                (None, Some(learned)) => layer.forward_learned(tape, learned, (activation, mask))?,
                (None, None) => unreachable!("inputs have features or pairs for learned rows"),
            });
        }
        let logits = relations.place(tape, rows.expect("a configuration has at least one layer"))?;
        tape.mark_layer(logits);
        Ok(logits)
    }
}

/// Complaint that no layer has weights of blocks.
fn no_blocks(config: &ModelConfig, dims: &Dims) -> String {
    let ModelConfig { blocks, hidden, layers, .. } = config;
    let n_classes = dims.n_classes;
    format!(
        "{blocks} blocks divide the weights of no layer: {layers} layers go from the first rows through a width of {hidden} \
         to {n_classes} classes, and both widths of a layer must be multiples; give more layers, another width, or learned \
         first rows (--features-from embedding:WIDTH)"
    )
}

impl Layer {
    fn new<B: Backend>(
        init: &mut ParamInit<'_, B>,
        config: &ModelConfig,
        (layer, dims, types): (usize, &Dims, &LayerTypes),
        widths: Widths,
    ) -> Result<Self, ComputeError> {
        let weights = Weights::new(init, config, (layer, dims, types), widths)?;
        let own = match widths.learns_rows {
            true => {
                OwnWeights::of_nodes(init, config.self_weight, (layer, dims, types), (dims.n_nodes, widths.outputs))?
            }
            false => OwnWeights::new(init, config.self_weight, (layer, dims, types), (widths.inputs, widths.outputs))?,
        };
        let outputs = widths.outputs;
        Ok(Self { weights, own, bias: init.zeros(layer, "bias", Shape::new(1, outputs))?, outputs })
    }

    /// Layer over rows of nodes, and those of its destinations among them.
    fn forward<'a, B: Backend>(
        &self,
        tape: &mut Tape<'a, B>,
        relations: &'a LayerRelations<B>,
        (rows, own): (Var, Var),
        (activation, mask): (Activation, Option<Dropout>),
    ) -> Result<Var, ComputeError> {
        let RelationGraph::Means { means, runs, sums, transformed } = &relations.graph else {
            unreachable!("the model asked for means");
        };
        let mut add = self.own.product(tape, relations, own)?;
        let weights = self.weights.of_relations(tape, self.outputs)?;
        if let Some(TransformedRelations { pairs, means }) = transformed {
            let of_pairs = tape.gather_rows(rows, &pairs.rows.ids, pairs.rows.n)?;
            let products = weights.products(tape, &pairs.runs, of_pairs)?;
            add = Some(tape.spmm(means, products, SpmmOptions { add, ..SpmmOptions::default() })?);
        }
        let means = tape.spmm(means, rows, SpmmOptions::default())?;
        let products = weights.products(tape, runs, means)?;
        let bias = Some(tape.param(self.bias));
        tape.spmm(sums, products, SpmmOptions { weights: None, bias, activation, mask, add })
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
        let add = self.own.rows(tape)?;
        tape.spmm(&learned.means, rows, SpmmOptions { weights: None, bias, activation, mask, add })
    }
}

impl Weights {
    fn new<B: Backend>(
        init: &mut ParamInit<'_, B>,
        config: &ModelConfig,
        (layer, dims, types): (usize, &Dims, &LayerTypes),
        Widths { inputs, outputs, learns_rows }: Widths,
    ) -> Result<Self, ComputeError> {
        let (n_bases, n_blocks, fans) = (config.bases, config.blocks, (inputs, outputs));
        let (n_relations, n_pairs) =
            (types.relations.len(), types.pair_runs(&dims.relations).last().copied().unwrap_or(0));
        if n_blocks > 1 && !learns_rows && [inputs, outputs].iter().all(|width| width.is_multiple_of(n_blocks)) {
            let fans = (inputs / n_blocks, outputs / n_blocks);
            let weights = init.glorot_of(layer, "blocks", Shape::new(n_relations, inputs * fans.1), fans)?;
            return Ok(Self::Blocks { weights, n: n_blocks });
        }
        if n_bases == 0 {
            let each = Shape::new(n_relations, inputs * outputs);
            let shape = if learns_rows { Shape::new(n_pairs, outputs) } else { each };
            return Ok(Self::Each(init.glorot_of(layer, "weight", shape, fans)?));
        }
        let of_coefficients = Shape::new(n_relations, n_bases);
        let n_rows = types.source_runs(&dims.relations).last().copied().unwrap_or(0);
        let side_by_side = Shape::new(n_rows, n_bases * outputs);
        let shape = if learns_rows { side_by_side } else { Shape::new(n_bases, inputs * outputs) };
        Ok(Self::Bases {
            coefficients: init.glorot(layer, "coefficients", of_coefficients, of_coefficients.rows)?,
            bases: init.glorot_of(layer, "bases", shape, fans)?,
        })
    }

    /// Weights of the relations, with `outputs` columns each.
    fn of_relations<B: Backend>(&self, tape: &mut Tape<'_, B>, outputs: usize) -> Result<WeightsOnTape, ComputeError> {
        let blocks = match *self {
            Self::Each(weights) => vec![tape.param(weights)],
            Self::Bases { coefficients, bases } => {
                let (coefficients, bases) = (tape.param(coefficients), tape.param(bases));
                vec![tape.linear(coefficients, bases, LinearOptions::default())?]
            }
            Self::Blocks { weights, n } => {
                let weights = tape.param(weights);
                let Shape { rows: n_relations, cols } = tape.shape(weights);
                let (len, inputs) = (cols / n, cols * n / outputs);
                // A GPU launches a product for each relation, so that small blocks are slower than zeros.
                if tape.backend().has_own_memory() && n_relations * (n - 1) > inputs {
                    let blocks = vec![tape.block_diagonal(weights, n, outputs)?];
                    return Ok(WeightsOnTape { blocks, outputs });
                }
                (0..n).map(|at| tape.columns(weights, at * len, len)).collect::<Result<_, _>>()?
            }
        };
        Ok(WeightsOnTape { blocks, outputs })
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
            Self::Blocks { .. } => unreachable!("learned rows are no products"),
        }
    }
}

/// Weights of the relations of a layer. Row `r` of the `i`-th variable has the elements of the `i`-th block on the
/// diagonal of `W_r`; a whole `W_r` is its only block.
struct WeightsOnTape {
    blocks: Vec<Var>,
    outputs: usize,
}

impl WeightsOnTape {
    /// Products `X·W_r` of the rows of each run `r`, see [`Tape::linear_runs`].
    fn products<'a, B: Backend>(&self, tape: &mut Tape<'a, B>, runs: &'a [usize], x: Var) -> Result<Var, ComputeError> {
        if let [whole] = self.blocks[..] {
            return tape.linear_runs(runs, x, whole, self.outputs);
        }
        let (n, inputs) = (self.blocks.len(), tape.shape(x).cols);
        let product = |(at, &weights): (usize, &Var)| {
            let columns = tape.columns(x, at * inputs / n, inputs / n)?;
            tape.linear_runs(runs, columns, weights, self.outputs / n)
        };
        let parts = self.blocks.iter().enumerate().map(product).collect::<Result<Vec<_>, _>>()?;
        tape.concat(&parts)
    }
}
