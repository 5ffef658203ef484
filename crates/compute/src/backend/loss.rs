//! [`LossOps`]: losses, predictions and rankings.

use girih_graph_format::Csr;

use crate::checks::{self, Checked};
use crate::{ComputeError, Memory, Shape};

/// Padding of [`LossOps::top_k_rows`] for rows with fewer than `k` eligible columns.
pub const NO_COLUMN: u32 = u32::MAX;

/// Losses with their gradients, and the largest columns of rows.
pub trait LossOps: Memory {
    /// Checks that the class of each of `rows` is below `n_columns`, as [`checks::classes`] does. There is a class for
    /// each row. A device may remember lists that passed.
    ///
    /// # Errors
    /// When a class is `n_columns` or more, or the device fails.
    fn check_classes(&self, classes: &Self::Ids, rows: &Self::Ids, n_columns: usize) -> Result<(), ComputeError>;

    checked! {
        /// Mean softmax cross-entropy over `rows` of `logits` (`n × c`), into `loss` (`1 × 1`). `classes` has `n` class
        /// ids, one per row of `logits`. `grad` (`n × c`), if given, is overwritten with the gradient with respect to
        /// the logits, zero outside `rows`. A row listed twice counts twice. Classes outside `rows` are not read, so
        /// unlabelled nodes may have any.
        ///
        /// # Errors
        /// On shapes that do not fit, an empty `rows`, a row out of range, or a class of a row that is not a column.
        fn softmax_cross_entropy, run_softmax_cross_entropy(
            &self,
            logits: &Self::Matrix,
            classes: &Self::Ids,
            rows: &Self::Ids,
            grad: Option<&mut Self::Matrix>,
            loss: &mut Self::Matrix,
        ) -> Result<(), ComputeError> {
            const OPERATION: &str = "softmax_cross_entropy";
            check_n_classes(self, OPERATION, logits, classes)?;
            check_mean(self, OPERATION, logits, rows, (grad.as_deref(), loss))?;
            self.check_classes(classes, rows, self.shape(logits).cols)
        }

        /// Mean binary cross-entropy of sigmoids over all columns of `rows` of `logits` (`n × c`), into `loss` (`1 ×
        /// 1`). `targets` (`n × c`) holds 0 or 1. `grad` (`n × c`) is as in
        /// [`softmax_cross_entropy`](Self::softmax_cross_entropy).
        ///
        /// # Errors
        /// On shapes that do not fit, an empty `rows`, or a row out of range.
        fn sigmoid_cross_entropy, run_sigmoid_cross_entropy(
            &self,
            logits: &Self::Matrix,
            targets: &Self::Matrix,
            rows: &Self::Ids,
            grad: Option<&mut Self::Matrix>,
            loss: &mut Self::Matrix,
        ) -> Result<(), ComputeError> {
            const OPERATION: &str = "sigmoid_cross_entropy";
            checks::expect(OPERATION, "targets", self.shape(targets), self.shape(logits))?;
            check_mean(self, OPERATION, logits, rows, (grad.as_deref(), loss))
        }

        /// Index of the largest element in each row of `x` (`n × d`), the first one of equals. Returns `n` indices on
        /// the host.
        ///
        /// # Errors
        /// When the device fails, or there are no columns.
        fn argmax_rows, run_argmax_rows(&self, x: &Self::Matrix) -> Result<Vec<u32>, ComputeError> {
            check_has_columns("argmax_rows", self.shape(x))
        }

        /// Number of `rows` whose largest element (the first one of equals) lies in the column of their class. `x` is
        /// `n × d`, and `classes` has `n` class ids. A row listed twice counts twice. A class of `d` or more never
        /// counts as correct.
        ///
        /// # Errors
        /// When the device fails, there are no columns, no class for each row of `x`, or a row is out of range.
        fn count_correct, run_count_correct(
            &self,
            x: &Self::Matrix,
            classes: &Self::Ids,
            rows: &Self::Ids,
        ) -> Result<u64, ComputeError> {
            const OPERATION: &str = "count_correct";
            check_has_columns(OPERATION, self.shape(x))?;
            check_n_classes(self, OPERATION, x, classes)?;
            self.id_range(rows).within(OPERATION, self.shape(x).rows)
        }

        /// Mean Bayesian personalised ranking loss (Rendle et al., UAI 2009, section 4) of `b` triples, into `loss`
        /// (`1 × 1`): `mean log(1 + exp(⟨u, n⟩ - ⟨u, p⟩))`. Of `triples` (`3b × d`), row `t` is the user `u` of triple
        /// `t`, row `b + t` its positive item `p`, and row `2b + t` its negative item `n`. `grad` (`3b × d`), if given,
        /// is overwritten with the gradient with respect to `triples`.
        ///
        /// # Errors
        /// On shapes that do not fit, no triples, or a number of rows that is no multiple of three.
        fn bpr_loss, run_bpr_loss(
            &self,
            triples: &Self::Matrix,
            grad: Option<&mut Self::Matrix>,
            loss: &mut Self::Matrix,
        ) -> Result<(), ComputeError> {
            const OPERATION: &str = "bpr_loss";
            let n_rows = self.shape(triples).rows;
            if n_rows == 0 || !n_rows.is_multiple_of(3) {
                let what = format!("{n_rows} rows are no triples of user, item met and item not met");
                return Err(ComputeError::argument(OPERATION, what));
            }
            check_loss(self, OPERATION, triples, (grad.as_deref(), loss))
        }

        /// L2 penalty: `loss += weight/2 · Σ x²`, with `loss` `1 × 1` and `x` `n × d`. `grad` (`n × d`), if given, is
        /// overwritten with `weight · x`.
        ///
        /// # Errors
        /// On shapes that do not fit.
        fn l2_penalty, run_l2_penalty(
            &self,
            weight: f32,
            x: &Self::Matrix,
            grad: Option<&mut Self::Matrix>,
            loss: &mut Self::Matrix,
        ) -> Result<(), ComputeError> {
            check_loss(self, "l2_penalty", x, (grad.as_deref(), loss))
        }

        /// Column indices of the `k` largest elements in each row of `x` (`n × d`), largest first and the first one of
        /// equals first. Returns `n · k` indices on the host, row by row. Columns listed in the same row of `excluded`
        /// (`n × d`) are skipped, as are NaN and -∞. Rows with fewer than `k` remaining columns are padded with
        /// [`NO_COLUMN`].
        ///
        /// # Errors
        /// On shapes that do not fit, or when the device fails.
        fn top_k_rows, run_top_k_rows(
            &self,
            x: &Self::Matrix,
            k: usize,
            excluded: &Csr,
        ) -> Result<Vec<u32>, ComputeError> {
            let of_excluded = Shape::new(excluded.n_rows(), excluded.n_cols());
            checks::expect("top_k_rows", "excluded", of_excluded, self.shape(x))
        }
    }
}

/// Checks that there is a class for each row of `x`.
fn check_n_classes<B: Memory + ?Sized>(
    device: &B,
    operation: &'static str,
    x: &B::Matrix,
    classes: &B::Ids,
) -> Checked {
    let (found, expected) = (device.id_range(classes).len, device.shape(x).rows);
    checks::expect(operation, "classes", Shape::new(found, 1), Shape::new(expected, 1))
}

/// Checks the results of a mean over `rows` of `logits`, and that `rows` is not empty and in range.
fn check_mean<B: Memory + ?Sized>(
    device: &B,
    operation: &'static str,
    logits: &B::Matrix,
    rows: &B::Ids,
    results: (Option<&B::Matrix>, &B::Matrix),
) -> Checked {
    check_loss(device, operation, logits, results)?;
    let (Shape { rows: n_rows, cols }, range) = (device.shape(logits), device.id_range(rows));
    if range.len == 0 || cols == 0 {
        let what = format!("a mean over {} rows of {cols} columns is not defined; name at least one row", range.len);
        return Err(ComputeError::argument(operation, what));
    }
    range.within(operation, n_rows)
}

/// Checks that the gradient is shaped like `x`, and that the loss is one element.
fn check_loss<B: Memory + ?Sized>(
    device: &B,
    operation: &'static str,
    x: &B::Matrix,
    (grad, loss): (Option<&B::Matrix>, &B::Matrix),
) -> Checked {
    checks::expect_given(operation, "grad", grad.map(|grad| device.shape(grad)), device.shape(x))?;
    checks::expect(operation, "loss", device.shape(loss), Shape::new(1, 1))
}

/// Checks that there are columns, and so a largest element in each row.
fn check_has_columns(operation: &'static str, shape: Shape) -> Checked {
    if shape.cols == 0 {
        return Err(ComputeError::argument(operation, "rows without columns have no largest element"));
    }
    Ok(())
}
