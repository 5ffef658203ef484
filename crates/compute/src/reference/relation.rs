//! Products of rows that have types, on the reference backend.

use super::{RefMatrix, Reference};
use crate::backend::runs_of;
use crate::{BasisOperands, ComputeError, Fits, RelationOps, RelationRows, Transpose};

impl RelationOps for Reference {
    fn run_gemm_runs(
        &self,
        _: Fits,
        runs: &[usize],
        x: &RefMatrix,
        (weights, transpose): (&RefMatrix, Transpose),
        out: &mut RefMatrix,
    ) -> Result<(), ComputeError> {
        let (of_x, of_out) = (x.shape.cols, out.shape.cols);
        let weight = |run: usize, k: usize, c: usize| match transpose {
            Transpose::No => weights.get(run, k * of_out + c),
            Transpose::Yes => weights.get(run, c * of_x + k),
        };
        for (run, n, first) in runs_of(runs) {
            for row in first..first + n {
                for c in 0..of_out {
                    out.set(row, c, (0..of_x).map(|k| x.get(row, k) * weight(run, k, c)).sum());
                }
            }
        }
        Ok(())
    }

    fn run_gemm_runs_backward(
        &self,
        _: Fits,
        runs: &[usize],
        x: &RefMatrix,
        grad: &RefMatrix,
        accumulate: bool,
        out: &mut RefMatrix,
    ) -> Result<(), ComputeError> {
        let d = grad.shape.cols;
        out.update(|run, element, old| {
            let (k, c) = (element / d, element % d);
            let sum: f64 = (runs[run]..runs[run + 1]).map(|row| x.get(row, k) * grad.get(row, c)).sum();
            if accumulate { old + sum } else { sum }
        });
        Ok(())
    }

    fn run_basis_rows(
        &self,
        _: Fits,
        &BasisOperands { pairs, coefficients, x }: &BasisOperands<'_, Self>,
        out: &mut RefMatrix,
    ) -> Result<(), ComputeError> {
        let (n_bases, width) = (coefficients.shape.cols, out.shape.cols);
        out.update(|pair, c, _| {
            let (row, relation) = pair_of(pairs, pair);
            (0..n_bases).map(|basis| coefficients.get(relation, basis) * x.get(row, basis * width + c)).sum()
        });
        Ok(())
    }

    fn run_basis_rows_backward(
        &self,
        _: Fits,
        &BasisOperands { pairs, coefficients, x }: &BasisOperands<'_, Self>,
        grad: &RefMatrix,
        (coefficients_grad, adds): (&mut RefMatrix, bool),
        (x_grad, x_adds): (&mut RefMatrix, bool),
    ) -> Result<(), ComputeError> {
        let (n_pairs, width) = (grad.shape.rows, grad.shape.cols);
        let of = |pair: usize| pair_of(pairs, pair);
        coefficients_grad.update(|relation, basis, old| {
            let dot = |pair: usize| -> f64 {
                (0..width).map(|c| x.get(of(pair).0, basis * width + c) * grad.get(pair, c)).sum()
            };
            let sum: f64 = (0..n_pairs).filter(|&pair| of(pair).1 == relation).map(dot).sum();
            if adds { old + sum } else { sum }
        });
        x_grad.update(|row, column, old| {
            let (basis, c) = (column / width, column % width);
            let term = |pair: usize| coefficients.get(of(pair).1, basis) * grad.get(pair, c);
            let sum: f64 = (0..n_pairs).filter(|&pair| of(pair).0 == row).map(term).sum();
            if x_adds { old + sum } else { sum }
        });
        Ok(())
    }
}

/// Row and relation of a pair.
fn pair_of(pairs: &RelationRows<Reference>, pair: usize) -> (usize, usize) {
    (pairs.rows.ids[pair] as usize, pairs.relations.ids[pair] as usize)
}
