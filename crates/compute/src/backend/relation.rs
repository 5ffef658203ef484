//! [`RelationOps`]: products of rows that have types, each type with a weight of its own.

pub(crate) mod composed;

use girih_graph_format::{Csr, Scales};

use super::{DenseOps, Memory, SparseOperand, SparseOps};
use crate::checks::{self, Checked};
use crate::{ComputeError, Shape, Transpose};

/// List of pairs of a row and a relation, on a device. Rows ascend.
pub struct RelationRows<B: Memory + ?Sized> {
    /// Row of each pair.
    pub(crate) rows: B::Ids,
    /// Relation of each pair.
    pub(crate) relations: B::Ids,
    /// Identity matrix with a row for each pair, for dot products of rows.
    diagonal: B::Sparse,
}

impl<B: Memory> RelationRows<B> {
    /// Uploads a list of pairs.
    ///
    /// # Errors
    /// When rows do not ascend, there is not one relation for each row, or the device's memory does not suffice.
    pub fn upload(backend: &B, rows: &[u32], relations: &[u32]) -> Result<Self, ComputeError> {
        const OPERATION: &str = "relation rows";
        if rows.len() != relations.len() {
            let what = format!("{} rows and {} relations; a pair has one of each", rows.len(), relations.len());
            return Err(ComputeError::argument(OPERATION, what));
        }
        if !rows.is_sorted() {
            return Err(ComputeError::argument(OPERATION, "rows do not ascend; sort the pairs by rows"));
        }
        let n = rows.len();
        let identity = Csr::new(n, n, (0..=n as u64).collect::<Vec<_>>(), (0..n as u32).collect::<Vec<_>>(), None);
        let identity = identity.map_err(|error| ComputeError::argument(OPERATION, error.to_string()))?;
        let scales = Scales { left: None, right: None };
        let diagonal = SparseOperand { csr: &identity, scales, symmetric: true, names: None };
        Ok(Self {
            rows: backend.upload_ids(rows)?,
            relations: backend.upload_ids(relations)?,
            diagonal: backend.upload_sparse(&diagonal)?,
        })
    }
}

/// Operands of sums of bases, see [`RelationOps::basis_rows`].
pub struct BasisOperands<'a, B: Memory + ?Sized> {
    /// Pairs of a row and a relation.
    pub pairs: &'a RelationRows<B>,
    /// Coefficients of relations for bases, `R × B`.
    pub coefficients: &'a B::Matrix,
    /// Rows of all bases side by side, `n × B·d`.
    pub x: &'a B::Matrix,
}

/// Products of rows that have types, such as those of R-GCN (Schlichtkrull et al., ESWC 2018).
///
/// Rows of one type are consecutive: a *run*. `runs` lists the first row of each run, and behind them the number of rows.
/// Every default is composed of operations of other families, one run or basis after the other: a few launches each.
pub trait RelationOps: DenseOps + SparseOps + Sized {
    checked! {
        /// Products of runs: rows of run `r` become `out = x·W_r`, or `x·W_rᵀ` with a transposed weight. `weights` has a row
        /// for each run: the elements of `W_r` (`k × d`), row by row. `x` is `n × k` and `out` is `n × d`, or the other way
        /// round.
        ///
        /// # Errors
        /// On shapes or runs that do not fit.
        fn gemm_runs, run_gemm_runs(
            &self,
            runs: &[usize],
            x: &Self::Matrix,
            weights: (&Self::Matrix, Transpose),
            out: &mut Self::Matrix,
        ) -> Result<(), ComputeError> {
            let (of_x, of_out) = (self.shape(x), self.shape(out));
            checks::expect("gemm_runs", "out", of_out, Shape::new(of_x.rows, of_out.cols))?;
            check_runs("gemm_runs", (runs, of_x.rows), ("weights", self.shape(weights.0)), of_x.cols * of_out.cols)
        } else {
            composed::gemm_runs(self, runs, x, weights, out)
        }

        /// Gradients of the weights of [`gemm_runs`](Self::gemm_runs): row `r` of `out` becomes `x_rᵀ·grad_r` of the rows of
        /// run `r`, or has it added with `accumulate`. `x` is `n × k`, `grad` is `n × d`.
        ///
        /// # Errors
        /// On shapes or runs that do not fit.
        fn gemm_runs_backward, run_gemm_runs_backward(
            &self,
            runs: &[usize],
            x: &Self::Matrix,
            grad: &Self::Matrix,
            accumulate: bool,
            out: &mut Self::Matrix,
        ) -> Result<(), ComputeError> {
            const OPERATION: &str = "gemm_runs_backward";
            let (of_x, of_grad) = (self.shape(x), self.shape(grad));
            checks::expect(OPERATION, "grad", of_grad, Shape::new(of_x.rows, of_grad.cols))?;
            check_runs(OPERATION, (runs, of_x.rows), ("weights", self.shape(out)), of_x.cols * of_grad.cols)
        } else {
            composed::gemm_runs_backward(self, runs, x, grad, accumulate, out)
        }

        /// Sums of bases: row `i` of `out` becomes `Σ_b a[r, b]·V_b[v]` for the pair `i` of row `v` and relation `r`. `x`
        /// (`n × B·d`) has the rows of all bases side by side, `[V_1 … V_B]`. The coefficients `a` are `R × B`, and `out` has a
        /// row of `d` columns for each pair.
        ///
        /// # Errors
        /// On shapes that do not fit, or a row or relation that does not exist.
        fn basis_rows, run_basis_rows(
            &self,
            operands: &BasisOperands<'_, Self>,
            out: &mut Self::Matrix,
        ) -> Result<(), ComputeError> {
            check_bases(self, "basis_rows", operands, ("out", self.shape(out)))
        } else {
            composed::basis_rows(self, operands, out)
        }

        /// Backward pass of [`basis_rows`](Self::basis_rows): the gradients of the coefficients and of `x`, each with whether
        /// it is added to what is there.
        ///
        /// # Errors
        /// As [`basis_rows`](Self::basis_rows).
        fn basis_rows_backward, run_basis_rows_backward(
            &self,
            operands: &BasisOperands<'_, Self>,
            grad: &Self::Matrix,
            coefficients_grad: (&mut Self::Matrix, bool),
            x_grad: (&mut Self::Matrix, bool),
        ) -> Result<(), ComputeError> {
            const OPERATION: &str = "basis_rows_backward";
            check_bases(self, OPERATION, operands, ("grad", self.shape(grad)))?;
            let of_coefficients = self.shape(operands.coefficients);
            checks::expect(OPERATION, "coefficients_grad", self.shape(coefficients_grad.0), of_coefficients)?;
            checks::expect(OPERATION, "x_grad", self.shape(x_grad.0), self.shape(operands.x))
        } else {
            composed::basis_rows_backward(self, operands, grad, coefficients_grad, x_grad)
        }
    }
}

/// Runs that have rows: number, number of rows, and first row.
pub fn runs_of(runs: &[usize]) -> impl Iterator<Item = (usize, usize, usize)> {
    let all = runs.windows(2).enumerate().map(|(run, ends)| (run, ends[1] - ends[0], ends[0]));
    all.filter(|&(_, n, _)| n > 0)
}

/// Checks that runs cover `n` rows in order, and that the named operand has a row of so many elements for each.
pub(super) fn check_runs(
    operation: &'static str,
    (runs, n): (&[usize], usize),
    (name, of_operand): (&'static str, Shape),
    n_elements: usize,
) -> Checked {
    let (Some(&first), Some(&end)) = (runs.first(), runs.last()) else {
        return Err(ComputeError::argument(operation, "runs have no end; list the number of rows behind them"));
    };
    if first != 0 || end != n || !runs.is_sorted() {
        let what = format!("runs go from row {first} to {end} of {n}; they have to ascend from 0 to all rows");
        return Err(ComputeError::argument(operation, what));
    }
    checks::expect(operation, name, of_operand, Shape::new(runs.len() - 1, n_elements))
}

/// Checks bases and coefficients, and the matrix that has a row for each pair.
fn check_bases<B: Memory + ?Sized>(
    backend: &B,
    operation: &'static str,
    &BasisOperands { pairs, coefficients, x }: &BasisOperands<'_, B>,
    (name, of_pairs): (&'static str, Shape),
) -> Checked {
    let ids = [&pairs.rows, &pairs.relations].map(|ids| backend.id_range(ids));
    let (coefficients, x) = (backend.shape(coefficients), backend.shape(x));
    checks::expect(operation, name, of_pairs, Shape::new(ids[0].len, of_pairs.cols))?;
    checks::expect(operation, "x", x, Shape::new(x.rows, coefficients.cols * of_pairs.cols))?;
    ids[0].within(operation, x.rows)?;
    ids[1].within(operation, coefficients.rows)
}
