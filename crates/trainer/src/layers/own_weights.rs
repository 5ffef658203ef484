//! [`OwnWeights`]: weights for the row of the node itself, in networks of relations.

use girih_compute::{Activation, Backend, ComputeError, Shape};

use super::{Dims, LayerRelations, LayerTypes};
use crate::config::SelfWeight;
use crate::tape::{LinearOptions, ParamId, ParamInit, Tape, Var};

/// Weights for the row of the node itself, as [`SelfWeight`] says.
pub struct OwnWeights {
    kind: Kind,
    outputs: usize,
}

enum Kind {
    None,
    /// One weight for all nodes.
    Shared(ParamId),
    /// Row `t` has the weight of the destination type `t`.
    ByType(ParamId),
    /// Row `r` has the weight of relation `r`. A node has the sum of those of the relations that end in its type: the list
    /// has those of each destination type.
    ByRelation(ParamId, Vec<Vec<bool>>),
    /// A row for each destination, instead of a product.
    Rows(ParamId),
}

impl OwnWeights {
    /// Weights from `inputs` to `outputs` columns.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub fn new<B: Backend>(
        init: &mut ParamInit<'_, B>,
        self_weight: SelfWeight,
        (layer, dims, types): (usize, &Dims, &LayerTypes),
        (inputs, outputs): (usize, usize),
    ) -> Result<Self, ComputeError> {
        let mut weights = |shape: Shape| init.glorot_of(layer, "self", shape, (inputs, outputs));
        let kind = match self_weight {
            SelfWeight::None => Kind::None,
            SelfWeight::Shared => Kind::Shared(weights(Shape::new(inputs, outputs))?),
            SelfWeight::Type => Kind::ByType(weights(Shape::new(types.destinations.len(), inputs * outputs))?),
            SelfWeight::Relation => {
                let of_relation = |&relation: &usize| dims.relations.relations[relation].destination;
                let ends = |&of: &usize| types.relations.iter().map(|relation| of_relation(relation) == of).collect();
                let weights = weights(Shape::new(types.relations.len(), inputs * outputs))?;
                Kind::ByRelation(weights, types.destinations.iter().map(ends).collect())
            }
        };
        Ok(Self { kind, outputs })
    }

    /// Rows of `outputs` columns that the destinations learn instead of a product, unless nodes have no weight. Their
    /// initial values have the bound of a weight of `inputs` rows.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub fn of_nodes<B: Backend>(
        init: &mut ParamInit<'_, B>,
        self_weight: SelfWeight,
        (layer, dims, types): (usize, &Dims, &LayerTypes),
        (inputs, outputs): (usize, usize),
    ) -> Result<Self, ComputeError> {
        let n = types.destinations.iter().map(|&of| dims.relations.node_types[of]).sum();
        let kind = match self_weight {
            SelfWeight::None => Kind::None,
            // A row for each node belongs to one type and its relations already.
            _ => Kind::Rows(init.glorot_of(layer, "self", Shape::new(n, outputs), (inputs, outputs))?),
        };
        Ok(Self { kind, outputs })
    }

    /// Products of the rows of destinations, `own`, or learned rows instead; `None` if nodes have no weight. No other
    /// operation reads the result.
    ///
    /// # Errors
    /// When the backend fails.
    pub fn product<'a, B: Backend>(
        &self,
        tape: &mut Tape<'a, B>,
        relations: &'a LayerRelations<B>,
        own: Var,
    ) -> Result<Option<Var>, ComputeError> {
        let runs = &relations.destination_runs;
        match &self.kind {
            Kind::None | Kind::Rows(_) => self.rows(tape),
            Kind::Shared(weight) => {
                let weight = tape.param(*weight);
                tape.linear(own, weight, LinearOptions::default()).map(Some)
            }
            Kind::ByType(weights) => {
                let weights = tape.param(*weights);
                tape.linear_runs(runs, own, weights, self.outputs).map(Some)
            }
            Kind::ByRelation(weights, ends) => {
                let shape = Shape::new(ends.len(), ends.first().map_or(0, Vec::len));
                let weights = tape.param(*weights);
                let ends = tape.made(shape, |of, relation| f32::from(u8::from(ends[of][relation])))?;
                let of_types = tape.linear(ends, weights, LinearOptions::default())?;
                tape.linear_runs(runs, own, of_types, self.outputs).map(Some)
            }
        }
    }

    /// Learned rows, as a copy that a sum can be written to.
    ///
    /// # Errors
    /// When the backend fails.
    pub fn rows<B: Backend>(&self, tape: &mut Tape<'_, B>) -> Result<Option<Var>, ComputeError> {
        let Kind::Rows(rows) = self.kind else { return Ok(None) };
        let rows = tape.param(rows);
        tape.combine(&[(1.0, rows)], None, Activation::Identity).map(Some)
    }
}
