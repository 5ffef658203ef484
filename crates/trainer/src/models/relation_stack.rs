//! [`RelationStack`]: networks of one kind of layers over relations, between an [`Entry`] and a linear layer.

use girih_compute::{Backend, ComputeError};

use super::spec::{InputSpec, Layers, Model};
use crate::config::ModelConfig;
use crate::layers::{Dims, Entry, Inputs, LayerRelations, LayerTypes, Linear, RelationForm, RelationSpec, Rows};
use crate::tape::{LinearOptions, ParamInit, Tape, Var};

/// Layer of a [`RelationStack`], from rows of all heads to rows as wide.
pub trait RelationLayer: Sized + Send {
    /// Form in which the layer reads relations.
    const FORM: RelationForm;

    /// A layer with newly initialised parameters, for these types.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    fn new<B: Backend>(
        init: &mut ParamInit<'_, B>,
        config: &ModelConfig,
        place: (usize, &Dims, &LayerTypes),
    ) -> Result<Self, ComputeError>;

    /// Rows of the destinations, from those of the sources.
    ///
    /// # Errors
    /// When the backend fails.
    fn forward<'a, B: Backend>(
        &self,
        tape: &mut Tape<'a, B>,
        relations: &'a LayerRelations<B>,
        rows: Var,
        config: &ModelConfig,
    ) -> Result<Var, ComputeError>;
}

/// Network of layers `L` over the rows of an [`Entry`], and a linear layer that gives the classes.
pub struct RelationStack<L> {
    entry: Entry,
    layers: Vec<L>,
    classes: Linear,
    spec: RelationSpec,
    config: ModelConfig,
}

impl<L: RelationLayer> RelationStack<L> {
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
        let layers = types.iter().enumerate().map(|(i, types)| L::new(init, config, (i + 1, dims, types)));
        let layers = layers.collect::<Result<_, _>>()?;
        let classes = Linear::new(init, config.layers + 1, width, dims.n_classes)?;
        let masks_features = config.input_dropout() > 0.0;
        let spec = RelationSpec { layers: types, form: L::FORM, learns_pairs: false, masks_features };
        Ok(Self { entry, layers, classes, spec, config: config.clone() })
    }
}

impl<B: Backend, L: RelationLayer> Layers<B> for RelationStack<L> {
    fn n_layers(&self) -> usize {
        self.layers.len()
    }

    /// The entry belongs to the first layer, and the classes to the last.
    fn layer<'a>(&self, tape: &mut Tape<'a, B>, inputs: &'a Inputs<B>, layer: usize) -> Result<Var, ComputeError> {
        let rows = match layer {
            0 => self.entry.forward(tape, inputs, (0.0, 0.0))?,
            _ => Rows::raw_input(tape, inputs)?.into_dense(),
        };
        let rows = self.layers[layer].forward(tape, &inputs.relations().layers[0], rows, &self.config)?;
        if layer + 1 < self.layers.len() {
            return Ok(rows);
        }
        self.classes.forward(tape, &Rows::Dense(rows), LinearOptions::default())
    }
}

impl<B: Backend, L: RelationLayer> Model<B> for RelationStack<L> {
    fn input_spec(&self) -> InputSpec {
        InputSpec { relations: Some(self.spec.clone()), ..InputSpec::of_raw_features(None) }
    }

    fn as_layers(&self) -> Option<&dyn Layers<B>> {
        Some(self)
    }

    fn forward<'a>(&self, tape: &mut Tape<'a, B>, inputs: &'a Inputs<B>) -> Result<Var, ComputeError> {
        let (config, relations) = (&self.config, inputs.relations());
        let mut rows = self.entry.forward(tape, inputs, (config.input_dropout(), config.dropout))?;
        for (layer, of) in self.layers.iter().zip(&relations.layers) {
            rows = layer.forward(tape, of, rows, config)?;
            tape.mark_layer(rows);
        }
        let logits = self.classes.forward(tape, &Rows::Dense(rows), LinearOptions::default())?;
        relations.place(tape, logits)
    }
}
