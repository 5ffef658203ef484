//! Losses, predictions and rankings on the reference backend.

use girih_graph_format::Csr;

use super::{RefIds, RefMatrix, Reference};
use crate::{ComputeError, DenseOps, Dtype, Fits, LossOps, NO_COLUMN, checks};

impl LossOps for Reference {
    fn check_classes(&self, classes: &RefIds, rows: &RefIds, n_columns: usize) -> Result<(), ComputeError> {
        checks::classes(&classes.ids, &rows.ids, n_columns)
    }

    fn run_softmax_cross_entropy(
        &self,
        _: Fits,
        logits: &RefMatrix,
        classes: &RefIds,
        rows: &RefIds,
        grad: Option<&mut RefMatrix>,
        loss: &mut RefMatrix,
    ) -> Result<(), ComputeError> {
        let (mut total, mut gradient) = (0.0, RefMatrix::zeros(logits.shape, Dtype::F32));
        let n = rows.ids.len() as f64;
        for &row in &rows.ids {
            let row = row as usize;
            let values: Vec<f64> = (0..logits.shape.cols).map(|c| logits.get(row, c)).collect();
            let (row_loss, row_grad) = softmax_row(&values, classes.ids[row] as usize);
            total += row_loss / n;
            for (c, g) in row_grad.into_iter().enumerate() {
                gradient.set(row, c, gradient.get(row, c) + g / n);
            }
        }
        loss.set(0, 0, total);
        if let Some(grad) = grad {
            grad.update(|r, c, _| gradient.get(r, c));
        }
        Ok(())
    }

    fn run_sigmoid_cross_entropy(
        &self,
        _: Fits,
        logits: &RefMatrix,
        targets: &RefMatrix,
        rows: &RefIds,
        grad: Option<&mut RefMatrix>,
        loss: &mut RefMatrix,
    ) -> Result<(), ComputeError> {
        let (mut total, mut gradient) = (0.0, RefMatrix::zeros(logits.shape, Dtype::F32));
        let n = (rows.ids.len() * logits.shape.cols) as f64;
        for &row in &rows.ids {
            let row = row as usize;
            for c in 0..logits.shape.cols {
                let (element_loss, g) = sigmoid_element(logits.get(row, c), targets.get(row, c));
                total += element_loss / n;
                gradient.set(row, c, gradient.get(row, c) + g / n);
            }
        }
        loss.set(0, 0, total);
        if let Some(grad) = grad {
            grad.update(|r, c, _| gradient.get(r, c));
        }
        Ok(())
    }

    fn run_argmax_rows(&self, _: Fits, x: &RefMatrix) -> Result<Vec<u32>, ComputeError> {
        Ok((0..x.shape.rows).map(|r| largest(x, r)).collect())
    }

    fn run_count_correct(&self, _: Fits, x: &RefMatrix, classes: &RefIds, rows: &RefIds) -> Result<u64, ComputeError> {
        let is_correct = |&&row: &&u32| largest(x, row as usize) == classes.ids[row as usize];
        Ok(rows.ids.iter().filter(is_correct).count() as u64)
    }

    fn run_bpr_loss(
        &self,
        _: Fits,
        triples: &RefMatrix,
        grad: Option<&mut RefMatrix>,
        loss: &mut RefMatrix,
    ) -> Result<(), ComputeError> {
        let n_triples = triples.shape.rows / 3;
        let (mut total, mut gradient) = (0.0, RefMatrix::zeros(triples.shape, Dtype::F32));
        for user in 0..n_triples {
            let (met, other) = (n_triples + user, 2 * n_triples + user);
            let ahead: f64 = (0..triples.shape.cols)
                .map(|c| triples.get(user, c) * (triples.get(met, c) - triples.get(other, c)))
                .sum();
            // log(1 + exp(-ahead)) is the cross-entropy of sigmoid(ahead) against one.
            let (triple_loss, g) = sigmoid_element(ahead, 1.0);
            total += triple_loss / n_triples as f64;
            let g = g / n_triples as f64;
            for c in 0..triples.shape.cols {
                gradient.set(user, c, g * (triples.get(met, c) - triples.get(other, c)));
                gradient.set(met, c, g * triples.get(user, c));
                gradient.set(other, c, -g * triples.get(user, c));
            }
        }
        loss.set(0, 0, total);
        if let Some(grad) = grad {
            grad.update(|r, c, _| gradient.get(r, c));
        }
        Ok(())
    }

    fn run_l2_penalty(
        &self,
        _: Fits,
        weight: f32,
        x: &RefMatrix,
        grad: Option<&mut RefMatrix>,
        loss: &mut RefMatrix,
    ) -> Result<(), ComputeError> {
        let squares: f64 = x.data.iter().map(|v| v * v).sum();
        loss.set(0, 0, loss.get(0, 0) + f64::from(weight) / 2.0 * squares);
        grad.map_or(Ok(()), |grad| self.scale(weight, x, grad))
    }

    fn run_top_k_rows(&self, _: Fits, x: &RefMatrix, k: usize, excluded: &Csr) -> Result<Vec<u32>, ComputeError> {
        let mut found = Vec::with_capacity(x.shape.rows * k);
        for r in 0..x.shape.rows {
            let may_be_named = |&c: &u32| !excluded.row(r).contains(&c) && x.get(r, c as usize) > f64::NEG_INFINITY;
            let mut columns: Vec<u32> = (0..x.shape.cols as u32).filter(may_be_named).collect();
            // The sort keeps equals in the order of their columns; zeros of both signs are equal.
            let descending = |&a: &u32, &b: &u32| x.get(r, b as usize).partial_cmp(&x.get(r, a as usize));
            columns.sort_by(|a, b| descending(a, b).expect("NaN is passed over"));
            columns.resize(columns.len().max(k), NO_COLUMN);
            found.extend(&columns[..k]);
        }
        Ok(found)
    }
}

/// Index of the largest element of a row, the first one of equals.
fn largest(x: &RefMatrix, row: usize) -> u32 {
    (1..x.shape.cols).fold(0, |best, c| if x.get(row, c) > x.get(row, best) { c } else { best }) as u32
}

/// Cross-entropy of one row of logits against `class`, and its gradient.
fn softmax_row(logits: &[f64], class: usize) -> (f64, Vec<f64>) {
    let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = logits.iter().map(|z| (z - max).exp()).sum();
    let loss = max + sum.ln() - logits[class];
    let grad = logits.iter().enumerate().map(|(c, z)| (z - max).exp() / sum - f64::from(u8::from(c == class)));
    (loss, grad.collect())
}

/// Cross-entropy of `sigmoid(z)` against `target`, and its gradient.
fn sigmoid_element(z: f64, target: f64) -> (f64, f64) {
    let loss = z.max(0.0) - z * target + (-z.abs()).exp().ln_1p();
    (loss, 1.0 / (1.0 + (-z).exp()) - target)
}
