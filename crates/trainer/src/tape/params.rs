//! [`Params`]: trained matrices of a model, and [`Gradients`]: their gradients.

use std::ops::Range;
use std::sync::Arc;

use girih_comm::{Collective, CommError};
use girih_compute::{Backend, ComputeError, Dtype, Shape};
use girih_graph_format::Matrix;
use girih_random::{Key, purpose};

use super::ranks::Ranks;

/// Parameter of a model, as an index into its [`Params`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ParamId(usize);

impl ParamId {
    /// Place among the parameters of a model.
    pub(crate) fn index(self) -> usize {
        self.0
    }

    /// Learned features of nodes ([`FeaturesFrom::Embedding`](girih_datasets::FeaturesFrom)). They are created before
    /// all other parameters.
    pub(crate) const FEATURES: Self = Self(0);
}

/// A named trainable matrix.
pub struct Param<B: Backend> {
    /// Name in checkpoints, such as `layer0.weight`.
    pub name: String,
    /// Layer of the parameter, from 0.
    pub layer: usize,
    /// Whether each of several ranks holds only the rows of its own nodes, with their gradients and optimiser state.
    /// Other parameters are equal on all ranks.
    pub per_node: bool,
    /// Value on the device.
    pub value: B::Matrix,
}

/// All parameters of a model, in order of creation.
pub struct Params<B: Backend> {
    entries: Vec<Param<B>>,
}

impl<B: Backend> Params<B> {
    /// Value of a parameter.
    #[must_use]
    pub fn value(&self, id: ParamId) -> &B::Matrix {
        &self.entries[id.0].value
    }

    /// Layer of a parameter, from 0.
    pub(crate) fn layer(&self, id: ParamId) -> usize {
        self.entries[id.0].layer
    }

    /// Value of a parameter, mutable.
    pub fn value_mut(&mut self, id: ParamId) -> &mut B::Matrix {
        &mut self.entries[id.0].value
    }

    /// All parameters with their ids, mutable.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (ParamId, &mut Param<B>)> {
        self.entries.iter_mut().enumerate().map(|(i, param)| (ParamId(i), param))
    }

    /// All parameters with their ids.
    pub fn iter(&self) -> impl Iterator<Item = (ParamId, &Param<B>)> {
        self.entries.iter().enumerate().map(|(i, param)| (ParamId(i), param))
    }

    /// Number of parameters (matrices, not elements).
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the model has no parameters.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Values on the host, in order. Per-node parameters have the rows of the local nodes only.
    ///
    /// # Errors
    /// When the backend fails.
    pub fn download(&self, backend: &B) -> Result<Vec<Matrix>, ComputeError> {
        self.entries.iter().map(|param| backend.download(&param.value)).collect()
    }

    /// Overwrites all values, in order.
    ///
    /// # Errors
    /// When shapes differ or the backend fails.
    ///
    /// # Panics
    /// When the number of values is not the number of parameters.
    pub fn write(&mut self, backend: &B, values: &[Matrix]) -> Result<(), ComputeError> {
        assert_eq!(values.len(), self.entries.len(), "one value per parameter");
        self.entries.iter_mut().zip(values).try_for_each(|(param, value)| backend.write(value, &mut param.value))
    }
}

/// Creates and initialises the parameters of a model. Names must be unique within a layer, because checkpoints
/// identify parameters by them. A duplicate name is a bug of the model and panics.
pub struct ParamInit<'a, B: Backend> {
    backend: &'a B,
    key: Key,
    /// Range of local nodes; `None` for all.
    own: Option<Range<usize>>,
    params: Params<B>,
}

impl<'a, B: Backend> ParamInit<'a, B> {
    /// Initialiser with random draws below `seed` and the number of the run, so that runs start differently.
    pub fn new(backend: &'a B, seed: u64, run: u64) -> Self {
        Self {
            backend,
            key: Key::new(seed, purpose::INITIALISATION).child(run),
            own: None,
            params: Params { entries: Vec::new() },
        }
    }

    /// This initialiser on one of several ranks, each of which holds the rows of some nodes.
    #[must_use]
    pub fn among(mut self, ranks: Option<&Ranks<B>>) -> Self {
        self.own = ranks.map(Ranks::own);
        self
    }

    /// A weight of shape `rows × cols`, uniform in ±√(6 / (fan_in + cols)) (Glorot and Bengio, AISTATS 2010).
    /// `fan_in` is `rows`, unless the weight is a block of rows of a larger one.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub fn glorot(&mut self, layer: usize, name: &str, shape: Shape, fan_in: usize) -> Result<ParamId, ComputeError> {
        self.glorot_of(layer, name, shape, (fan_in, shape.cols))
    }

    /// As [`glorot`](Self::glorot), for elements of weights with the numbers `fans` of inputs and outputs, in any shape.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub fn glorot_of(
        &mut self,
        layer: usize,
        name: &str,
        shape: Shape,
        (fan_in, fan_out): (usize, usize),
    ) -> Result<ParamId, ComputeError> {
        let bound = (6.0 / (fan_in + fan_out) as f32).sqrt();
        let mut stream = self.key.child(self.params.len() as u64).stream(0, 0);
        self.push(layer, name, shape, || (0..shape.len()).map(|_| (2.0 * stream.unit_f32() - 1.0) * bound).collect())
    }

    /// An embedding: a row of zero-mean normal values for each of `shape.rows` nodes. One of several ranks holds the
    /// rows of its own nodes, with the values that a single rank would draw.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub fn embedding(
        &mut self,
        layer: usize,
        name: &str,
        shape: Shape,
        deviation: f32,
    ) -> Result<ParamId, ComputeError> {
        let own = self.own.clone().unwrap_or(0..shape.rows);
        let mut stream = self.key.child(self.params.len() as u64).stream(0, 0);
        let values = || {
            let drawn = (0..own.end * shape.cols).map(|_| deviation * stream.normal());
            drawn.skip(own.start * shape.cols).collect()
        };
        let id = self.push(layer, name, Shape::new(own.len(), shape.cols), values)?;
        self.params.entries[id.0].per_node = self.own.is_some();
        Ok(id)
    }

    /// A parameter of zeros, such as a bias.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub fn zeros(&mut self, layer: usize, name: &str, shape: Shape) -> Result<ParamId, ComputeError> {
        self.push(layer, name, shape, || vec![0.0; shape.len()])
    }

    /// A parameter of ones, such as a gain.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub fn ones(&mut self, layer: usize, name: &str, shape: Shape) -> Result<ParamId, ComputeError> {
        self.push(layer, name, shape, || vec![1.0; shape.len()])
    }

    /// A weight of shape `n × n`: `factor` times the identity.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub fn diagonal(&mut self, layer: usize, name: &str, n: usize, factor: f32) -> Result<ParamId, ComputeError> {
        let value = |i: usize| if i.is_multiple_of(n + 1) { factor } else { 0.0 };
        self.push(layer, name, Shape::new(n, n), || (0..n * n).map(value).collect())
    }

    /// Adds a parameter with the values of `make`. A symbolic backend never calls `make`.
    fn push(
        &mut self,
        layer: usize,
        name: &str,
        shape: Shape,
        mut make: impl FnMut() -> Vec<f32>,
    ) -> Result<ParamId, ComputeError> {
        let value = self.backend.upload_made(shape, Dtype::F32, &mut make)?;
        let name = format!("layer{layer}.{name}");
        assert!(self.params.entries.iter().all(|param| param.name != name), "two parameters are called {name}");
        self.params.entries.push(Param { name, layer, per_node: false, value });
        Ok(ParamId(self.params.len() - 1))
    }

    /// Parameters created so far.
    #[must_use]
    pub fn finish(self) -> Params<B> {
        self.params
    }
}

/// List of rows on the device.
pub struct RowIds<B: Backend> {
    /// Numbers of rows.
    pub ids: B::Ids,
    /// Length of the list.
    pub n: usize,
}

impl<B: Backend> RowIds<B> {
    /// Moves a list to the device.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub fn upload(backend: &B, ids: &[u32]) -> Result<Self, ComputeError> {
        Ok(Self { ids: backend.upload_ids(ids)?, n: ids.len() })
    }
}

/// Gradient of some rows of a parameter, each listed once.
pub(crate) struct RowGradient<B: Backend> {
    pub(crate) rows: Arc<RowIds<B>>,
    /// Gradient of each row, in the order of the list.
    pub(crate) grad: B::Matrix,
}

/// Gradient of every parameter. Buffers stay in place from step to step.
pub struct Gradients<B: Backend> {
    /// `None` only while an operation writes to the buffer.
    slots: Vec<Option<B::Matrix>>,
    written: Vec<bool>,
    per_node: Vec<bool>,
    /// Gradients of parameters of which the last pass read some rows.
    of_rows: Vec<(ParamId, RowGradient<B>)>,
}

impl<B: Backend> Gradients<B> {
    /// Zero buffers shaped like `params`.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub fn new(backend: &B, params: &Params<B>) -> Result<Self, ComputeError> {
        let slots: Result<Vec<_>, _> =
            params.iter().map(|(_, p)| backend.zeros(backend.shape(&p.value), Dtype::F32).map(Some)).collect();
        let per_node = params.iter().map(|(_, p)| p.per_node).collect();
        Ok(Self { slots: slots?, written: vec![false; params.len()], per_node, of_rows: Vec::new() })
    }

    /// Forgets the gradients of the previous step. Replaces buffers that a failed step took out.
    pub(crate) fn begin(&mut self, backend: &B, params: &Params<B>) -> Result<(), ComputeError> {
        self.written.fill(false);
        self.of_rows.clear();
        for (slot, (_, param)) in self.slots.iter_mut().zip(params.iter()).filter(|(slot, _)| slot.is_none()) {
            *slot = Some(backend.zeros(backend.shape(&param.value), Dtype::F32)?);
        }
        Ok(())
    }

    /// Takes out the buffer of a gradient. The flag tells whether it already holds a partial sum.
    pub(crate) fn take(&mut self, id: ParamId) -> (B::Matrix, bool) {
        (self.slots[id.0].take().expect("a gradient is written by one operation at a time"), self.written[id.0])
    }

    /// Whether the buffer of a gradient already holds a partial sum.
    pub(crate) fn has_share(&self, id: ParamId) -> bool {
        self.written[id.0]
    }

    /// Whether the buffer of a gradient is taken out.
    pub(crate) fn is_out(&self, id: ParamId) -> bool {
        self.slots[id.0].is_none()
    }

    /// Returns the buffer of a gradient after an operation has written to it.
    pub(crate) fn put(&mut self, id: ParamId, grad: B::Matrix) {
        self.slots[id.0] = Some(grad);
        self.written[id.0] = true;
    }

    /// Keeps the gradient of some rows of a parameter.
    ///
    /// # Panics
    /// When the pass read rows of the parameter before, as one list, or all of them.
    pub(super) fn put_rows(&mut self, id: ParamId, gradient: RowGradient<B>) {
        let is_read = self.written[id.0] || self.of_rows.iter().any(|(other, _)| *other == id);
        assert!(!is_read, "a pass reads one list of rows of a parameter");
        self.of_rows.push((id, gradient));
    }

    /// Takes out the gradients of rows, with their parameters.
    pub(crate) fn take_rows(&mut self) -> Vec<(ParamId, RowGradient<B>)> {
        std::mem::take(&mut self.of_rows)
    }

    /// Sums the gradients of the last pass over all ranks, except for per-node parameters, whose gradients are
    /// complete on their rank.
    ///
    /// # Errors
    /// When a rank fails.
    pub(crate) fn sum_over(&mut self, ranks: &dyn Collective<B>) -> Result<(), CommError> {
        let slots = self.slots.iter_mut().zip(&self.written).zip(&self.per_node);
        let shared = slots.filter(|((_, written), per_node)| **written && !**per_node);
        let mut shared: Vec<&mut B::Matrix> = shared.filter_map(|((slot, _), _)| slot.as_mut()).collect();
        ranks.all_reduce_each(&mut shared)
    }

    /// Gradient of a parameter; `None` if the last pass did not use it.
    #[must_use]
    pub fn get(&self, id: ParamId) -> Option<&B::Matrix> {
        self.slots[id.0].as_ref().filter(|_| self.written[id.0])
    }
}
