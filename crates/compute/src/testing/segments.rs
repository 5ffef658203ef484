//! Laws of aggregations other than sums.

use girih_random::Key;
use proptest::prelude::*;

use super::inputs::{Draws, dtype, host, n_rows, width};
use super::law::{Law, Output, Results};
use crate::{Backend, Dtype, Shape, SparseOperand};

/// Case of an aggregation: a pattern, the columns of the result, storage types, and a seed for everything else.
#[derive(Debug)]
pub(super) struct SegmentCase {
    shape: Shape,
    width: usize,
    symmetric: bool,
    dtypes: [Dtype; 4],
    seed: u64,
}

fn segments(rows_max: usize, width: impl Strategy<Value = usize>) -> impl Strategy<Value = SegmentCase> {
    let dtypes = [dtype(), dtype(), dtype(), dtype()];
    (n_rows(rows_max), 1..60usize, width, any::<bool>(), dtypes, any::<u64>()).prop_map(
        |(rows, cols, width, symmetric, dtypes, seed)| {
            let shape = Shape::new(if symmetric { cols } else { rows }, cols);
            SegmentCase { shape, width, symmetric, dtypes, seed }
        },
    )
}

impl SegmentCase {
    fn pattern<B: Backend>(&self, backend: &B, draws: &mut Draws) -> B::Sparse {
        let csr = if self.symmetric { draws.symmetric_csr(self.shape.rows) } else { draws.csr(self.shape, true) };
        // Values and scales must not affect the result.
        let scales = girih_graph_format::Scales { left: Some(draws.values(self.shape.rows)), right: None };
        let names = self.seed.is_multiple_of(2).then(|| draws.names(self.shape));
        let operand = SparseOperand { csr: &csr, scales, symmetric: self.symmetric, names };
        backend.upload_sparse(&operand).expect("upload")
    }
}

/// Maxima, many of which several rows share, and their gradients.
pub(super) struct SegmentMax;

impl Law for SegmentMax {
    const NAME: &'static str = "segment_max, segment_max_backward";
    const TOLERANCE: f64 = 2e-5;
    type Case = SegmentCase;

    fn cases(rows_max: usize) -> impl Strategy<Value = SegmentCase> {
        // Past 64 columns a backend may cut rows.
        segments(rows_max, prop_oneof![4 => width(), 1 => 70..200usize])
    }

    fn run<B: Backend>(backend: &B, case: &SegmentCase) -> Results {
        let mut draws = Draws::new(case.seed);
        let a = case.pattern(backend, &mut draws);
        let (x_shape, out_shape) = (Shape::new(case.shape.cols, case.width), Shape::new(case.shape.rows, case.width));
        let levels = draws.ids(x_shape.len(), 5).into_iter().map(|level| level as f32 - 2.0).collect();
        let x = backend.upload(&host(x_shape, levels), case.dtypes[0]).expect("upload");
        let [mut out, mut out_alone] = [(); 2].map(|()| draws.matrix(backend, out_shape, case.dtypes[1]));
        let mut winners = backend.zero_ids(out_shape.len()).expect("zero_ids");
        backend.segment_max(&a, &x, &mut out, Some(&mut winners)).expect("segment_max");
        backend.segment_max(&a, &x, &mut out_alone, None).expect("segment_max");
        let grad = draws.matrix(backend, out_shape, case.dtypes[2]);
        let mut x_grad = draws.matrix(backend, x_shape, case.dtypes[3]);
        backend.segment_max_backward(&a, &winners, &grad, &mut x_grad).expect("segment_max_backward");
        [out, out_alone, x_grad].iter().map(|matrix| Output::of(backend, matrix)).collect()
    }
}

/// LSTM states over sequences in stored and in random order, and their gradients.
pub(super) struct SegmentLstm;

impl Law for SegmentLstm {
    const NAME: &'static str = "segment_lstm, segment_lstm_backward";
    // States pass through up to 59 steps, and the weight's gradient sums over all of them.
    const TOLERANCE: f64 = 2e-4;
    type Case = (SegmentCase, bool);

    fn cases(rows_max: usize) -> impl Strategy<Value = Self::Case> {
        // The reference is slow: few rows, and a few columns more than a vector has.
        (segments(rows_max / 4, 1..20usize), any::<bool>())
    }

    fn run<B: Backend>(backend: &B, (case, shuffled): &Self::Case) -> Results {
        let (mut draws, h) = (Draws::new(case.seed), case.width);
        let a = case.pattern(backend, &mut draws);
        let sequences = (&a, shuffled.then(|| Key::new(case.seed, 0)));
        let inputs = draws.matrix(backend, Shape::new(case.shape.cols, 4 * h), case.dtypes[0]);
        let weight = draws.matrix(backend, Shape::new(h, 4 * h), Dtype::F32);
        let mut out = draws.matrix(backend, Shape::new(case.shape.rows, h), case.dtypes[1]);
        backend.segment_lstm(sequences, &inputs, &weight, &mut out).expect("segment_lstm");
        let grad = draws.matrix(backend, Shape::new(case.shape.rows, h), case.dtypes[2]);
        let mut inputs_grad = draws.matrix(backend, Shape::new(case.shape.cols, 4 * h), case.dtypes[3]);
        let mut weight_grad = draws.matrix(backend, Shape::new(h, 4 * h), Dtype::F32);
        let grads = (&mut inputs_grad, &mut weight_grad);
        backend.segment_lstm_backward(sequences, (&inputs, &weight), &grad, grads).expect("segment_lstm_backward");
        [out, inputs_grad, weight_grad].iter().map(|matrix| Output::of(backend, matrix)).collect()
    }
}
