//! [`Law`]: test of one operation on any backend, and the results that are compared.

use girih_graph_format::Matrix;
use proptest::strategy::Strategy;

use crate::Dtype;
use crate::prelude::*;

/// Test of one operation, or of a few related ones.
pub(super) trait Law {
    /// Name of the law in reports of failures.
    const NAME: &'static str;
    /// Maximum error of a result `y`, in units of `1 + |y|`. Results stored as bf16 may also differ by one rounding
    /// step.
    const TOLERANCE: f64;
    /// Operands of a case.
    type Case: std::fmt::Debug + Sync;

    /// Strategy for cases with at most `rows_max` rows.
    fn cases(rows_max: usize) -> impl Strategy<Value = Self::Case>;

    /// Tolerance of one case, for laws in which some cases round more than others.
    fn tolerance(_case: &Self::Case) -> f64 {
        Self::TOLERANCE
    }

    /// Tolerance for a backend that adds up partial results, each stored like the result.
    fn tolerance_of_parts(case: &Self::Case) -> f64 {
        Self::tolerance(case)
    }

    /// Runs the operation on `backend` and returns its results.
    fn run<B: Backend>(backend: &B, case: &Self::Case) -> Results;
}

/// Results of a law.
pub(super) type Results = Vec<Output>;

/// Matrix that an operation wrote; `rounded` if it was rounded to bf16.
pub(super) struct Output {
    pub(super) values: Matrix,
    pub(super) rounded: bool,
}

impl Output {
    /// Downloads a matrix.
    pub(super) fn of<B: Backend>(backend: &B, matrix: &B::Matrix) -> Self {
        let values = backend.download(matrix).expect("download");
        Self { values, rounded: backend.dtype(matrix) == Dtype::Bf16 }
    }
}
