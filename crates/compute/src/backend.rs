//! [`Backend`]: the operations that a device implements, in families.
//!
//! - [`Memory`]: matrices in the memory of a device. Every other family builds on it.
//! - [`DenseOps`], [`SparseOps`]: products, and passes over matrices.
//! - [`RelationOps`]: products of rows that have types.
//! - [`AttentionOps`], [`SegmentOps`], [`NormOps`], [`LossOps`], [`OptimOps`]: the other operations of a training step.
//!
//! Conventions of every operation:
//! - Matrices are dense and row-major. Results go into `out`, which already has the right shape. An operation
//!   overwrites `out`, unless the [`Epilogue`] accumulates.
//! - An operation refuses operands of wrong shape with [`ComputeError`] and then writes nothing.
//! - Operands are checked once, in front of every backend. An operation `x` checks them and calls `run_x`. Callers call
//!   `x`; a backend implements `run_x`, whose operands fit, as its argument [`Fits`] proves.
//! - Sums are `f32` or wider for every storage type. Their order does not depend on the number of threads: the same
//!   call gives the same bits.

/// Declares operations, each as two methods of a trait: `fn x, run_x(operands) -> result { check }`. The first runs the
/// check and then the second, which a backend implements; `else { default }` behind the check is what it does otherwise.
/// rustfmt leaves declarations as they are.
macro_rules! checked {
    (@run $name:ident $run:ident(&$self:ident, $($operand:ident: $type:ty),+) -> $result:ty;) => {
        #[doc = concat!("[`", stringify!($name), "`](Self::", stringify!($name), ") of operands that fit.")]
        fn $run(&$self, _: $crate::backend::Fits, $($operand: $type),+) -> $result;
    };
    (@run $name:ident $run:ident(&$self:ident, $($operand:ident: $type:ty),+) -> $result:ty; $default:block) => {
        #[doc = concat!("[`", stringify!($name), "`](Self::", stringify!($name), ") of operands that fit.")]
        fn $run(&$self, _: $crate::backend::Fits, $($operand: $type),+) -> $result $default
    };
    ($(
        $(#[$doc:meta])*
        fn $name:ident, $run:ident(&$self:ident, $($operand:ident: $type:ty),+ $(,)?) -> $result:ty $check:block
            $(else $default:block)?
    )+) => {$(
        $(#[$doc])*
        fn $name(&$self, $($operand: $type),+) -> $result {
            let () = $check?;
            $self.$run($crate::backend::Fits(()), $($operand),+)
        }

        checked! { @run $name $run(&$self, $($operand: $type),+) -> $result; $($default)? }
    )+};
}

mod attention;
mod dense;
mod loss;
mod memory;
mod norm;
mod optim;
mod relation;
mod segment;
mod sparse;
mod types;

use std::fmt;

use girih_random::Key;

pub use self::attention::{Attention, AttentionGrads, AttentionOps};
pub use self::dense::{DenseOps, EpilogueGrad};
pub use self::loss::{LossOps, NO_COLUMN};
pub use self::memory::{GlobalIds, HostMatrix, Memory, SparseOperand};
pub(crate) use self::memory::{fill_rows, filled_rows};
pub use self::norm::{ColumnMoments, NormOps};
pub use self::optim::{AdamStep, AdamUpdate, OptimOps, SgdUpdate};
#[cfg(feature = "testing")]
pub(crate) use self::relation::composed;
pub use self::relation::{BasisOperands, RelationOps, RelationRows, runs_of};
pub use self::segment::SegmentOps;
pub use self::sparse::SparseOps;
pub use self::types::{Activation, ActivationGrad, Dtype, Epilogue, Function, Shape, Transpose};
use crate::ComputeError;

/// Proof that the operands of an operation fit. Only the checked operations of this module make it, so that nobody
/// runs an operation on other operands, and unsafe code may rely on their shapes.
#[derive(Clone, Copy, Debug)]
pub struct Fits(());

/// Inputs of a training step that change from step to step. Everything else keeps its place and value between steps.
#[derive(Clone, Debug, PartialEq)]
pub struct StepInputs {
    /// Random keys of the step's dropouts.
    pub keys: Vec<Key>,
    /// Step of the optimiser. An optimiser without moments reads only its learning rate.
    pub optimizer: AdamStep,
}

/// Device that stores matrices and runs the operations of graph neural networks.
///
/// The families of operations are traits of their own, and a backend implements all of them.
pub trait Backend:
    DenseOps + SparseOps + RelationOps + AttentionOps + SegmentOps + NormOps + LossOps + OptimOps
{
    /// Recording of a repeated step, for example a captured CUDA graph. Its default holds no step yet. See
    /// [`repeat`](Self::repeat).
    type Recording: Default;

    /// Runs a step that differs from the one before only in `inputs`. The default calls `step`. A device that has
    /// captured the work of `step` may replay it without calling `step`. Effects of `step` on the host must therefore
    /// not matter to later steps. They find their results in the matrices to which the last call of `step` wrote
    /// them.
    ///
    /// From the first step on, the device memory that `step` uses must stay in place: its matrices live until
    /// `recording` is dropped. Other work may use the matrices that `step` overwrites, but only between steps and
    /// without keeping anything there. No other thread may use the backend during the call.
    ///
    /// # Errors
    /// When `step` fails, or the device does.
    fn repeat<E: From<ComputeError> + fmt::Display>(
        &self,
        _recording: &mut Self::Recording,
        _inputs: &StepInputs,
        step: &mut dyn FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        step()
    }
}
