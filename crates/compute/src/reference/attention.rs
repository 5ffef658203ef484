//! Attention directly from its definition: scores, coefficients and masks of every entry are stored.

use super::{Entry, RefMatrix, RefSparse, Reference};
use crate::{Attention, AttentionGrads, AttentionOps, ComputeError, Dtype, Fits, GlobalIds, Shape};

impl AttentionOps for Reference {
    fn run_segment_softmax(&self, _: Fits, a: &RefSparse, scores: &mut RefMatrix) -> Result<(), ComputeError> {
        let old = scores.clone();
        scores.update(|e, h, score| {
            let of_row = || a.row(a.entries[e].row).map(|e| old.get(e, h));
            let max = of_row().fold(f64::NEG_INFINITY, f64::max);
            (score - max).exp() / of_row().map(|score| (score - max).exp()).sum::<f64>()
        });
        Ok(())
    }

    fn run_segment_softmax_backward(
        &self,
        _: Fits,
        a: &RefSparse,
        shares: &RefMatrix,
        grad: &mut RefMatrix,
    ) -> Result<(), ComputeError> {
        let old = grad.clone();
        grad.update(|e, h, g| {
            let mean: f64 = a.row(a.entries[e].row).map(|e| shares.get(e, h) * old.get(e, h)).sum();
            shares.get(e, h) * (g - mean)
        });
        Ok(())
    }

    fn run_head_dots(
        &self,
        _: Fits,
        runs: &[usize],
        x: &RefMatrix,
        vectors: &RefMatrix,
        out: &mut RefMatrix,
    ) -> Result<(), ComputeError> {
        let (heads, width) = (out.shape.cols, x.shape.cols);
        out.update(|i, h, _| {
            let run = run_of(runs, i);
            (h..width).step_by(heads).map(|c| x.get(i, c) * vectors.get(run, c)).sum()
        });
        Ok(())
    }

    fn run_head_dots_backward(
        &self,
        _: Fits,
        runs: &[usize],
        (x, vectors): (&RefMatrix, &RefMatrix),
        grad: &RefMatrix,
        x_grad: Option<&mut RefMatrix>,
        vector_grads: &mut RefMatrix,
    ) -> Result<(), ComputeError> {
        let heads = grad.shape.cols;
        let product = |i, c| grad.get(i, c % heads) * x.get(i, c);
        vector_grads.update(|run, c, _| (runs[run]..runs[run + 1]).map(|i| product(i, c)).sum());
        if let Some(x_grad) = x_grad {
            x_grad.update(|i, c, old| old + grad.get(i, c % heads) * vectors.get(run_of(runs, i), c));
        }
        Ok(())
    }

    fn run_attention(
        &self,
        _: Fits,
        attention: &Attention<'_, Self>,
        out: &mut RefMatrix,
        log_sums: &mut RefMatrix,
    ) -> Result<(), ComputeError> {
        let shares = Shares::of(attention);
        let (graph, heads) = (attention.graph, attention.heads);
        out.update(|r, c, _| {
            let term = |e: usize| shares.masked(e, c % heads) * attention.values.get(graph.entries[e].col, c);
            graph.row(r).map(term).sum()
        });
        log_sums.update(|r, h, _| match graph.row(r) {
            entries if entries.is_empty() => 0.0,
            entries => entries.map(|e| shares.scores.get(e, h).exp()).sum::<f64>().ln(),
        });
        Ok(())
    }

    fn run_attention_backward(
        &self,
        _: Fits,
        attention: &Attention<'_, Self>,
        _: (&RefMatrix, &RefMatrix),
        grad: &RefMatrix,
        grads: AttentionGrads<'_, RefMatrix>,
    ) -> Result<(), ComputeError> {
        Shares::of(attention).backward(attention, grad, grads)
    }
}

/// Scores, coefficients and mask factors of the entries of an attention (`nnz × heads` each).
struct Shares {
    scores: RefMatrix,
    shares: RefMatrix,
    masks: RefMatrix,
}

impl Shares {
    fn of(attention: &Attention<'_, Reference>) -> Self {
        let Attention { graph, heads, dropout, .. } = *attention;
        let mut scores = RefMatrix::zeros(Shape::new(graph.entries.len(), heads), Dtype::F32);
        let mut masks = scores.clone();
        scores.update(|e, h, _| {
            let leaky = |sum: f64| if sum > 0.0 { sum } else { f64::from(attention.slope) * sum };
            score_columns(attention, h).map(|c| attention.vector_at(c) * leaky(attention.sum(e, c))).sum()
        });
        masks.update(|e, h, _| {
            let Entry { row, col, .. } = graph.entries[e];
            let names = graph.names.as_ref();
            let (row, col) = (GlobalIds::row(names, row as u32), GlobalIds::col(names, col as u32));
            dropout.map_or(1.0, |dropout| f64::from(dropout.entry_factor(row, col, h)))
        });
        let mut shares = scores.clone();
        Reference.segment_softmax(graph, &mut shares).expect("scores have a row for each entry");
        Self { scores, shares, masks }
    }

    fn masked(&self, e: usize, h: usize) -> f64 {
        self.shares.get(e, h) * self.masks.get(e, h)
    }

    /// Gradients by the chain rule, entry by entry.
    fn backward(
        &self,
        attention: &Attention<'_, Reference>,
        grad: &RefMatrix,
        grads: AttentionGrads<'_, RefMatrix>,
    ) -> Result<(), ComputeError> {
        let Attention { graph, heads, values, .. } = *attention;
        let mut score_grads = RefMatrix::zeros(self.shares.shape, Dtype::F32);
        score_grads.update(|e, h, _| {
            let Entry { row, col, .. } = graph.entries[e];
            let columns = (h..values.shape.cols).step_by(heads);
            self.masks.get(e, h) * columns.map(|c| grad.get(row, c) * values.get(col, c)).sum::<f64>()
        });
        Reference.segment_softmax_backward(graph, &self.shares, &mut score_grads)?;
        let slope = |e, c| if attention.sum(e, c) > 0.0 { 1.0 } else { f64::from(attention.slope) };
        let sum_grad = |e: usize, c: usize| score_grads.get(e, c % heads) * attention.vector_at(c) * slope(e, c);
        let AttentionGrads { destination, source, mut vector, values: value_grads } = grads;
        for matrix in [&mut *destination, &mut *source, &mut *value_grads].into_iter().chain(vector.as_deref_mut()) {
            matrix.update(|_, _, _| 0.0);
        }
        for (e, &Entry { row, col, .. }) in graph.entries.iter().enumerate() {
            for c in 0..destination.shape.cols {
                add(destination, row, c, sum_grad(e, c));
                add(source, col, c, sum_grad(e, c));
                if let Some(vector) = vector.as_deref_mut() {
                    let leaky = slope(e, c) * attention.sum(e, c);
                    add(vector, 0, c, score_grads.get(e, c % heads) * leaky);
                }
            }
            for c in 0..values.shape.cols {
                add(value_grads, col, c, self.masked(e, c % heads) * grad.get(row, c));
            }
        }
        Ok(())
    }
}

fn add(matrix: &mut RefMatrix, r: usize, c: usize, value: f64) {
    matrix.set(r, c, matrix.get(r, c) + value);
}

/// Columns of destination and source that the score of head `h` reads.
fn score_columns(attention: &Attention<'_, Reference>, h: usize) -> impl Iterator<Item = usize> {
    (h..attention.destination.shape.cols).step_by(attention.heads)
}

impl Attention<'_, Reference> {
    /// `destination[i, c] + source[j, c]` of entry `e`.
    fn sum(&self, e: usize, c: usize) -> f64 {
        let Entry { row, col, .. } = self.graph.entries[e];
        self.destination.get(row, c) + self.source.get(col, c)
    }

    fn vector_at(&self, c: usize) -> f64 {
        self.vector.map_or(1.0, |vector| vector.get(0, c))
    }
}

/// Run of a row.
fn run_of(runs: &[usize], row: usize) -> usize {
    runs.partition_point(|&first| first <= row) - 1
}
