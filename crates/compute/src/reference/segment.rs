//! Maximum and LSTM over neighbors on the reference backend.

use girih_random::Key;

use super::{RefIds, RefMatrix, RefSparse, Reference, lstm};
use crate::{ComputeError, Dtype, Fits, Memory, SegmentOps};

impl SegmentOps for Reference {
    fn run_segment_max(
        &self,
        _: Fits,
        a: &RefSparse,
        x: &RefMatrix,
        out: &mut RefMatrix,
        winners: Option<&mut RefIds>,
    ) -> Result<(), ComputeError> {
        let larger = |old: f64, new: f64| !old.is_nan() && (new > old || new.is_nan());
        let mut found: Vec<Option<usize>> = vec![None; out.shape.len()];
        for entry in &a.entries {
            for c in 0..x.shape.cols {
                let winner = &mut found[entry.row * x.shape.cols + c];
                if winner.is_none_or(|winner| larger(x.get(winner, c), x.get(entry.col, c))) {
                    *winner = Some(entry.col);
                }
            }
        }
        out.update(|r, c, _| found[r * x.shape.cols + c].map_or(0.0, |winner| x.get(winner, c)));
        if let Some(winners) = winners {
            let ids: Vec<u32> = found.into_iter().map(|winner| winner.unwrap_or(0) as u32).collect();
            *winners = self.upload_ids(&ids)?;
        }
        Ok(())
    }

    fn run_segment_max_backward(
        &self,
        _: Fits,
        a: &RefSparse,
        winners: &RefIds,
        grad: &RefMatrix,
        x_grad: &mut RefMatrix,
    ) -> Result<(), ComputeError> {
        let mut sums = RefMatrix::zeros(x_grad.shape, Dtype::F32);
        for entry in &a.entries {
            for c in 0..grad.shape.cols {
                if winners.ids[grad.position(entry.row, c)] as usize == entry.col {
                    sums.set(entry.col, c, sums.get(entry.col, c) + grad.get(entry.row, c));
                }
            }
        }
        x_grad.update(|r, c, _| sums.get(r, c));
        Ok(())
    }

    fn run_segment_lstm(
        &self,
        _: Fits,
        (a, order): (&RefSparse, Option<Key>),
        inputs: &RefMatrix,
        weight: &RefMatrix,
        out: &mut RefMatrix,
    ) -> Result<(), ComputeError> {
        let states: Vec<Vec<f64>> =
            lstm::sequences(a, order).map(|sequence| lstm::last_state(&sequence, inputs, weight)).collect();
        out.update(|r, c, _| states[r][c]);
        Ok(())
    }

    fn run_segment_lstm_backward(
        &self,
        _: Fits,
        (a, order): (&RefSparse, Option<Key>),
        (inputs, weight): (&RefMatrix, &RefMatrix),
        grad: &RefMatrix,
        (inputs_grad, weight_grad): (&mut RefMatrix, &mut RefMatrix),
    ) -> Result<(), ComputeError> {
        let mut sums = (RefMatrix::zeros(inputs.shape, Dtype::F32), RefMatrix::zeros(weight.shape, Dtype::F32));
        for (row, sequence) in lstm::sequences(a, order).enumerate() {
            let row_grad = (0..grad.shape.cols).map(|c| grad.get(row, c)).collect();
            lstm::add_gradients(&sequence, (inputs, weight), row_grad, &mut sums);
        }
        inputs_grad.update(|r, c, _| sums.0.get(r, c));
        weight_grad.update(|r, c, _| sums.1.get(r, c));
        Ok(())
    }
}
