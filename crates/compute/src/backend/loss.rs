//! [`LossOps`]: losses, predictions and rankings.

use girih_graph_format::Csr;

use crate::{ComputeError, Memory};

/// Padding of [`LossOps::top_k_rows`] for rows with fewer than `k` eligible columns.
pub const NO_COLUMN: u32 = u32::MAX;

/// Losses with their gradients, and the largest columns of rows.
pub trait LossOps: Memory {
    /// Mean softmax cross-entropy over `rows` of `logits` (`n × c`), into `loss` (`1 × 1`). `classes` has `n` class
    /// ids, one per row of `logits`. `grad` (`n × c`), if given, is overwritten with the gradient with respect to the
    /// logits, zero outside `rows`. A row listed twice counts twice. Classes outside `rows` are not read, so
    /// unlabelled nodes may have any.
    ///
    /// # Errors
    /// On shapes that do not fit, an empty `rows`, a row out of range, or a class of a row that is not a column.
    fn softmax_cross_entropy(
        &self,
        logits: &Self::Matrix,
        classes: &Self::Ids,
        rows: &Self::Ids,
        grad: Option<&mut Self::Matrix>,
        loss: &mut Self::Matrix,
    ) -> Result<(), ComputeError>;

    /// Mean binary cross-entropy of sigmoids over all columns of `rows` of `logits` (`n × c`), into `loss` (`1 × 1`).
    /// `targets` (`n × c`) holds 0 or 1. `grad` (`n × c`) is as in
    /// [`softmax_cross_entropy`](Self::softmax_cross_entropy).
    ///
    /// # Errors
    /// On shapes that do not fit, an empty `rows`, or a row out of range.
    fn sigmoid_cross_entropy(
        &self,
        logits: &Self::Matrix,
        targets: &Self::Matrix,
        rows: &Self::Ids,
        grad: Option<&mut Self::Matrix>,
        loss: &mut Self::Matrix,
    ) -> Result<(), ComputeError>;

    /// Index of the largest element in each row of `x` (`n × d`), the first one of equals. Returns `n` indices on the
    /// host.
    ///
    /// # Errors
    /// When the device fails, or there are no columns.
    fn argmax_rows(&self, x: &Self::Matrix) -> Result<Vec<u32>, ComputeError>;

    /// Number of `rows` whose largest element (the first one of equals) lies in the column of their class. `x` is
    /// `n × d`, and `classes` has `n` class ids. A row listed twice counts twice. A class of `d` or more never counts
    /// as correct.
    ///
    /// # Errors
    /// When the device fails, there are no columns, no class for each row of `x`, or a row is out of range.
    fn count_correct(&self, x: &Self::Matrix, classes: &Self::Ids, rows: &Self::Ids) -> Result<u64, ComputeError>;

    /// Mean Bayesian personalised ranking loss (Rendle et al., UAI 2009, section 4) of `b` triples, into `loss`
    /// (`1 × 1`): `mean log(1 + exp(⟨u, n⟩ - ⟨u, p⟩))`. Of `triples` (`3b × d`), row `t` is the user `u` of triple
    /// `t`, row `b + t` its positive item `p`, and row `2b + t` its negative item `n`. `grad` (`3b × d`), if given,
    /// is overwritten with the gradient with respect to `triples`.
    ///
    /// # Errors
    /// On shapes that do not fit, no triples, or a number of rows that is no multiple of three.
    fn bpr_loss(
        &self,
        triples: &Self::Matrix,
        grad: Option<&mut Self::Matrix>,
        loss: &mut Self::Matrix,
    ) -> Result<(), ComputeError>;

    /// L2 penalty: `loss += weight/2 · Σ x²`, with `loss` `1 × 1` and `x` `n × d`. `grad` (`n × d`), if given, is
    /// overwritten with `weight · x`.
    ///
    /// # Errors
    /// On shapes that do not fit.
    fn l2_penalty(
        &self,
        weight: f32,
        x: &Self::Matrix,
        grad: Option<&mut Self::Matrix>,
        loss: &mut Self::Matrix,
    ) -> Result<(), ComputeError>;

    /// Column indices of the `k` largest elements in each row of `x` (`n × d`), largest first and the first one of
    /// equals first. Returns `n · k` indices on the host, row by row. Columns listed in the same row of `excluded`
    /// (`n × d`) are skipped, as are NaN and -∞. Rows with fewer than `k` remaining columns are padded with
    /// [`NO_COLUMN`].
    ///
    /// # Errors
    /// On shapes that do not fit, or when the device fails.
    fn top_k_rows(&self, x: &Self::Matrix, k: usize, excluded: &Csr) -> Result<Vec<u32>, ComputeError>;
}
