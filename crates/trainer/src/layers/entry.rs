//! [`Entry`]: rows of equal width for the nodes of all types.

use girih_compute::{Activation, Backend, ComputeError, Dropout, Shape};
use girih_datasets::TypeWidth;

use super::{Dims, Inputs, Linear, Rows};
use crate::tape::{LinearOptions, ParamId, ParamInit, Tape, Var};

/// Rows of equal width for the nodes of all types: `relu(X_t·W_t + b_t)` of the features of a type, or learned rows.
///
/// Learned rows of another width than the layers' pass through a weight as features do.
pub struct Entry {
    types: Vec<EntryOfType>,
}

/// First rows of the nodes of one type.
struct EntryOfType {
    /// Learned rows; without them the type has features.
    learned: Option<ParamId>,
    /// Weight and bias of features, and of learned rows of another width.
    linear: Option<Linear>,
}

impl Entry {
    /// First rows of the nodes of `types`, each `width` wide.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub fn new<B: Backend>(
        init: &mut ParamInit<'_, B>,
        dims: &Dims,
        types: &[usize],
        width: usize,
    ) -> Result<Self, ComputeError> {
        let of_type = |&node_type: &usize| {
            let (learned, inputs) = match dims.type_width(node_type) {
                TypeWidth::Given(inputs) => (None, inputs),
                TypeWidth::None | TypeWidth::Learned(None) => (Some(width), width),
                TypeWidth::Learned(Some(inputs)) => (Some(inputs), inputs),
            };
            let rows = |width: usize| {
                let (name, n_nodes) = (format!("rows_{node_type}"), dims.relations.node_types[node_type]);
                init.embedding(0, &name, Shape::new(n_nodes, width), 1.0 / (width as f32).sqrt())
            };
            let learned = learned.map(rows).transpose()?;
            let has_weight = learned.is_none() || inputs != width;
            let weight = || Linear::named(init, 0, &format!("entry_{node_type}"), (inputs, width));
            Ok(EntryOfType { learned, linear: has_weight.then(weight).transpose()? })
        };
        Ok(Self { types: types.iter().map(of_type).collect::<Result<_, ComputeError>>()? })
    }

    /// Computes the rows, one type after the other. The dropout rates are those of features and of the rows.
    ///
    /// # Errors
    /// When the backend fails.
    pub fn forward<'a, B: Backend>(
        &self,
        tape: &mut Tape<'a, B>,
        inputs: &'a Inputs<B>,
        (input_rate, rate): (f64, f64),
    ) -> Result<Var, ComputeError> {
        let mut parts = Vec::with_capacity(self.types.len());
        for (place, of) in self.types.iter().enumerate() {
            let rows = match of.learned {
                Some(learned) => Rows::Dense(inputs.learned_of_type(tape, place, learned)?),
                None => inputs.rows_of_type(tape, place)?,
            };
            let mask = tape.next_dropout(rate);
            parts.push(match &of.linear {
                None => tape.dropout(rows.into_dense(), mask)?,
                Some(linear) => {
                    let dropout: Option<Dropout> = tape.next_dropout(input_rate);
                    let options =
                        LinearOptions { dropout, activation: Activation::Relu, mask, ..LinearOptions::default() };
                    linear.forward(tape, &rows, options)?
                }
            });
        }
        tape.concat_rows(&parts)
    }
}
