//! Shapes, storage types, activations and epilogues that several families of operations share.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Dropout;

/// Rows and columns of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Number of rows.
    pub rows: usize,
    /// Number of columns.
    pub cols: usize,
}

impl Shape {
    /// Shape with `rows` rows and `cols` columns.
    #[must_use]
    pub fn new(rows: usize, cols: usize) -> Self {
        Self { rows, cols }
    }

    /// Number of elements.
    #[must_use]
    pub fn len(self) -> usize {
        self.rows * self.cols
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Shape of the transpose.
    #[must_use]
    pub fn transposed(self) -> Self {
        Self { rows: self.cols, cols: self.rows }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} × {}", self.rows, self.cols)
    }
}

/// Storage type of the elements of a matrix. Sums are `f32` for every storage type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// 32-bit floats.
    #[default]
    F32,
    /// bfloat16: the upper half of a 32-bit float, rounded to nearest even.
    Bf16,
}

impl Dtype {
    /// Bytes of one element.
    #[must_use]
    pub fn n_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
        }
    }

    /// Name of the type for users: `f32` or `bf16`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
        }
    }
}

/// Activation function of an epilogue, applied element by element after the bias.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activation {
    /// No activation: `x`.
    #[default]
    Identity,
    /// `max(x, 0)`.
    Relu,
    /// `x` if positive, else `exp(x) - 1` (Clevert et al., ICLR 2016).
    Elu,
}

/// Element-wise function whose derivative reads its operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// Gaussian error linear unit (Hendrycks and Gimpel, 2016) in its sigmoid form: `x·σ(2u)` with
    /// `u = √(2/π)·(x + 0.044715·x³)`, within 0.001 of `x·Φ(x)`.
    Gelu,
    /// Sigmoid `σ(x) = 1 / (1 + e⁻ˣ)`.
    Sigmoid,
}

impl Function {
    /// Factor `√(2/π)` of [`Function::Gelu`].
    pub const GELU_SCALE: f32 = 0.797_884_6;
    /// Factor of the cube in [`Function::Gelu`].
    pub const GELU_CUBE: f32 = 0.044_715;
}

/// Epilogue of a product: `out = mask ⊙ activation(result + (accumulate ? out : 0) + bias)`.
#[derive(Debug)]
pub struct Epilogue<'a, M> {
    /// Adds the result to the contents of `out` instead of overwriting them.
    pub accumulate: bool,
    /// Bias (1 × columns of the result), added to every row.
    pub bias: Option<&'a M>,
    /// Activation of the biased sum.
    pub activation: Activation,
    /// Dropout of the activated result, allowed after [`Activation::Relu`] only. The derivative is zero wherever the
    /// mask or ReLU made the result zero, so the backward pass needs the result alone.
    pub dropout: Option<Dropout>,
}

impl<M> Default for Epilogue<'_, M> {
    fn default() -> Self {
        Self { accumulate: false, bias: None, activation: Activation::Identity, dropout: None }
    }
}

/// Derivative of an [`Epilogue`], as a function of its result `y`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ActivationGrad {
    /// Activation of the epilogue.
    pub activation: Activation,
    /// Dropout scale of the kept elements, `1 / (1 - p)`; 1 without dropout.
    pub kept: f32,
}

impl ActivationGrad {
    /// Derivative of an epilogue with this activation and dropout.
    #[must_use]
    pub fn of(activation: Activation, dropout: Option<Dropout>) -> Self {
        Self { activation, kept: dropout.map_or(1.0, Dropout::scale) }
    }
}

impl<M> Epilogue<'_, M> {
    /// Epilogue that adds the result to `out`, without bias, activation or dropout.
    #[must_use]
    pub fn accumulate() -> Self {
        Self { accumulate: true, ..Self::default() }
    }
}

/// Orientation in which an operation reads an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transpose {
    /// The stored matrix.
    No,
    /// The transpose of the stored matrix.
    Yes,
}
