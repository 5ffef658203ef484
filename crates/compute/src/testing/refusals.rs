//! Tests of wrong operands: every backend refuses them with the same messages, before it writes anything.

use girih_graph_format::{Csr, Matrix, Scales};

use super::inputs::host;
use crate::prelude::*;
use crate::{
    Activation, ActivationGrad, AdamStep, AdamUpdate, Attention, AttentionGrads, ColumnMoments, ComputeError, Dtype,
    Epilogue, EpilogueGrad, Reference, SgdUpdate, Shape, SparseOperand, Transpose,
};

/// Outcome of a call that should be refused.
#[derive(Debug, PartialEq)]
struct Refusal {
    call: &'static str,
    /// Message of the error; `None` if the call succeeded.
    message: Option<String>,
    /// Whether the outputs of the call kept their contents.
    untouched: bool,
}

pub(super) fn check<B: Backend>(backend: &B) {
    for (found, expected) in refusals(backend).into_iter().zip(refusals(&Reference)) {
        assert!(expected.message.is_some() && expected.untouched, "the reference carried out {expected:?}");
        assert_eq!(found, expected);
    }
}

fn refusals<B: Backend>(backend: &B) -> Vec<Refusal> {
    let trial = Trial { backend };
    let mut refusals = trial.storage();
    refusals.extend(trial.products());
    refusals.extend(trial.passes());
    refusals.extend(trial.rows());
    refusals.extend(trial.losses());
    refusals.extend(trial.optimizers());
    refusals.extend(trial.ranking());
    refusals.extend(trial.segments());
    refusals.extend(trial.heads());
    refusals.extend(trial.attention());
    refusals.extend(trial.normalizations());
    refusals
}

struct Trial<'a, B> {
    backend: &'a B,
}

impl<B: Backend> Trial<'_, B> {
    /// Matrix whose values are their positions.
    fn matrix(&self, rows: usize, cols: usize) -> B::Matrix {
        self.stored(rows, cols, Dtype::F32)
    }

    fn stored(&self, rows: usize, cols: usize, dtype: Dtype) -> B::Matrix {
        self.backend.upload(&counting(rows, cols), dtype).expect("upload")
    }

    /// Pattern with four rows, three columns and two entries.
    fn two_entries(&self) -> B::Sparse {
        let csr = Csr::new(4, 3, vec![0, 1, 1, 2, 2], vec![2, 0], None).expect("a sparse matrix");
        let operand = SparseOperand { csr: &csr, scales: Scales::default(), symmetric: false, names: None };
        self.backend.upload_sparse(&operand).expect("upload")
    }

    fn ids(&self, ids: &[u32]) -> B::Ids {
        self.backend.upload_ids(ids).expect("upload")
    }

    /// Runs `call` on an output matrix of the given shape.
    fn refuses(
        &self,
        call: &'static str,
        (rows, cols): (usize, usize),
        attempt: impl FnOnce(&mut B::Matrix) -> Result<(), ComputeError>,
    ) -> Refusal {
        let mut out = self.matrix(rows, cols);
        let message = attempt(&mut out).err().map(|error| error.to_string());
        let untouched = self.backend.download(&out).expect("download") == counting(rows, cols);
        Refusal { call, message, untouched }
    }

    fn storage(&self) -> Vec<Refusal> {
        let csr = Csr::empty(3, 2).expect("a sparse matrix");
        let upload = |scales: Scales, symmetric: bool| {
            self.backend.upload_sparse(&SparseOperand { csr: &csr, scales, symmetric, names: None }).map(drop)
        };
        let too_long = || Some(vec![1.0; 4]);
        vec![
            self.refuses("write", (2, 3), |out| self.backend.write(&counting(3, 2), out)),
            self.refuses("zeros", (1, 1), |_| self.backend.zeros(Shape::new(1 << 62, 1 << 62), Dtype::F32).map(drop)),
            self.refuses("left scale", (1, 1), |_| upload(Scales { left: too_long(), right: None }, false)),
            self.refuses("right scale", (1, 1), |_| upload(Scales { left: None, right: too_long() }, false)),
            self.refuses("symmetric", (1, 1), |_| upload(Scales::default(), true)),
        ]
    }

    fn products(&self) -> Vec<Refusal> {
        let (a, b) = (self.matrix(4, 3), self.matrix(3, 2));
        let (yes, no) = (Transpose::Yes, Transpose::No);
        let gemm = |a, b, out: &mut B::Matrix| self.backend.gemm(a, None, b, Epilogue::default(), out);
        let wide = self.matrix(1, 3);
        let biased = || Epilogue { bias: Some(&wide), ..Epilogue::default() };
        let dropout = Some(crate::Dropout::new(0.5, girih_random::Key::new(0, 0)));
        let masked = || Epilogue { activation: Activation::Elu, dropout, ..Epilogue::default() };
        let sparse = self.two_entries();
        let spmm = |transpose, weights, x, out: &mut B::Matrix| {
            self.backend.spmm((&sparse, transpose), weights, x, Epilogue::default(), out)
        };
        let columns =
            |out: (&mut B::Matrix, usize)| self.backend.spmm_columns((&sparse, no), &b, Epilogue::default(), out);
        let (y, factors) = (self.matrix(4, 18), self.matrix(3, 1));
        let back = |first, factors, out: &mut B::Matrix| {
            let slope = ActivationGrad::of(Activation::Relu, None);
            self.backend.gemm_backward((&a, no), (&b, no), EpilogueGrad { slope, y: &y, first, factors }, out, None)
        };
        vec![
            self.refuses("gemm_scaled: factors", (4, 2), |out| {
                self.backend.gemm_scaled(&factors, (&a, no), (&b, no), out)
            }),
            self.refuses("gemm_backward: columns", (4, 2), |out| back(8, None, out)),
            self.refuses("gemm_backward: out", (3, 2), |out| back(16, None, out)),
            self.refuses("gemm_backward: factors", (4, 2), |out| back(16, Some(&factors), out)),
            self.refuses("gemm: inner", (4, 4), |out| gemm((&a, no), (&a, no), out)),
            self.refuses("gemm: out", (4, 3), |out| gemm((&a, no), (&b, no), out)),
            self.refuses("gemm: TT", (3, 3), |out| gemm((&a, yes), (&b, yes), out)),
            self.refuses("gemm: bias", (4, 2), |out| self.backend.gemm((&a, no), None, (&b, no), biased(), out)),
            self.refuses("gemm: mask", (4, 2), |out| self.backend.gemm((&a, no), None, (&b, no), masked(), out)),
            self.refuses("spmm: x", (4, 3), |out| spmm(no, None, &a, out)),
            self.refuses("spmm: transposed x", (3, 2), |out| spmm(yes, None, &b, out)),
            self.refuses("spmm: out", (3, 2), |out| spmm(no, None, &b, out)),
            self.refuses("spmm: weights", (4, 2), |out| spmm(no, Some(&wide), &b, out)),
            self.refuses("spmm: mask", (4, 2), |out| self.backend.spmm((&sparse, no), None, &b, masked(), out)),
            self.refuses("spmm: bias", (4, 2), |out| self.backend.spmm((&sparse, no), None, &b, biased(), out)),
            self.refuses("spmm_columns: out", (3, 2), |out| columns((out, 0))),
            self.refuses("spmm_columns: last column", (4, 20), |out| columns((out, 8))),
            self.refuses("spmm_columns: beyond", (4, 17), |out| columns((out, 16))),
            self.refuses("spmm_columns: first column", (4, 6), |out| columns((out, 4))),
        ]
    }

    fn passes(&self) -> Vec<Refusal> {
        let (x, backend) = (self.matrix(4, 3), self.backend);
        let dropout = crate::Dropout::new(0.5, girih_random::Key::new(0, 0));
        let [mut narrow, bias] = [(); 2].map(|()| self.matrix(1, 2));
        let factors = self.matrix(4, 1);
        let block = Shape::new(4, 2);
        let relu = ActivationGrad::of(Activation::Relu, Some(dropout));
        vec![
            self.refuses("epilogue_backward: grad", (3, 4), |out| backend.epilogue_backward(relu, &x, out, None)),
            self.refuses("epilogue_backward: bias", (4, 3), |out| {
                backend.epilogue_backward(relu, &x, out, Some(&mut narrow))
            }),
            self.refuses("dropout", (4, 2), |out| backend.dropout(&x, dropout, out)),
            self.refuses("convert", (4, 2), |out| backend.convert(&x, out)),
            self.refuses("add_scaled: columns", (4, 2), |out| backend.add_scaled(1.0, &x, out)),
            self.refuses("add_scaled: rows", (3, 3), |out| backend.add_scaled(1.0, &x, out)),
            self.refuses("column_sums", (2, 3), |out| backend.column_sums(&x, out)),
            self.refuses("scale", (4, 2), |out| backend.scale(2.0, &x, out)),
            self.refuses("scale_rows: factors", (4, 3), |out| backend.scale_rows(&bias, (&x, 0), out)),
            self.refuses("scale_rows: columns", (4, 2), |out| backend.scale_rows(&factors, (&x, 0), out)),
            self.refuses("scale_rows: beyond", (4, 3), |out| backend.scale_rows(&factors, (&x, 8), out)),
            self.refuses("scale_rows_in_place", (4, 3), |out| backend.scale_rows_in_place(&bias, out)),
            self.refuses("activate: bias", (4, 3), |out| backend.activate(Activation::Relu, Some(&bias), out)),
            self.refuses("copy_block: rows", (3, 3), |out| backend.copy_block(block, &x, (0, 0), out, (0, 0))),
            self.refuses("copy_block: from", (4, 3), |out| backend.copy_block(block, &x, (0, 2), out, (0, 0))),
            self.refuses("copy_block: to", (4, 3), |out| backend.copy_block(block, &x, (0, 0), out, (0, 2))),
        ]
    }

    fn rows(&self) -> Vec<Refusal> {
        let (x, backend) = (self.matrix(4, 3), self.backend);
        let (inside, outside) = (self.ids(&[0, 3, 3, 1]), self.ids(&[0, 1, 4, 2]));
        let no_columns = self.matrix(4, 0);
        vec![
            self.refuses("gather_rows: out", (3, 3), |out| backend.gather_rows(&x, &inside, out)),
            self.refuses("gather_rows: id", (4, 3), |out| backend.gather_rows(&x, &outside, out)),
            self.refuses("scatter_add_rows: out", (4, 2), |out| backend.scatter_add_rows(&x, &inside, out)),
            self.refuses("scatter_add_rows: id", (4, 3), |out| backend.scatter_add_rows(&x, &outside, out)),
            self.refuses("argmax_rows", (1, 1), |_| backend.argmax_rows(&no_columns).map(drop)),
            self.refuses("count_correct", (1, 1), |_| backend.count_correct(&no_columns, &inside, &inside).map(drop)),
            self.refuses("count_correct: classes", (1, 1), |_| {
                backend.count_correct(&x, &self.ids(&[0, 1, 2]), &inside).map(drop)
            }),
            self.refuses("count_correct: id", (1, 1), |_| backend.count_correct(&x, &inside, &outside).map(drop)),
        ]
    }

    fn losses(&self) -> Vec<Refusal> {
        let (logits, backend) = (self.matrix(4, 3), self.backend);
        let targets = self.matrix(3, 4);
        let softmax = |call, classes: &[u32], rows: &[u32], loss: (usize, usize)| {
            let (classes, rows) = (self.ids(classes), self.ids(rows));
            let mut grad = self.matrix(4, 3);
            let refusal = self.refuses(call, loss, |loss| {
                backend.softmax_cross_entropy(&logits, &classes, &rows, Some(&mut grad), loss)
            });
            let untouched = backend.download(&grad).expect("download") == counting(4, 3);
            Refusal { untouched: refusal.untouched && untouched, ..refusal }
        };
        // Rows whose earlier classes were columns, with other classes.
        let softmax_again = |call, classes: &[u32]| {
            let [good, other, rows] = [&[0, 1, 2, u32::MAX], classes, &[0, 2]].map(|ids| self.ids(ids));
            let mut loss = self.matrix(1, 1);
            backend.softmax_cross_entropy(&logits, &good, &rows, None, &mut loss).expect("classes among the columns");
            self.refuses(call, (1, 1), |loss| backend.softmax_cross_entropy(&logits, &other, &rows, None, loss))
        };
        let sigmoid = |call, targets: &B::Matrix, rows: &[u32]| {
            let rows = self.ids(rows);
            self.refuses(call, (1, 1), |loss| backend.sigmoid_cross_entropy(&logits, targets, &rows, None, loss))
        };
        vec![
            softmax("softmax: classes", &[0, 1, 2], &[0], (1, 1)),
            softmax("softmax: class", &[0, 1, 3, 0], &[0, 2], (1, 1)),
            softmax_again("softmax: class of rows that had another", &[0, 1, 3, u32::MAX]),
            softmax("softmax: no rows", &[0, 1, 2, 0], &[], (1, 1)),
            softmax("softmax: row", &[0, 1, 2, 0], &[4], (1, 1)),
            softmax("softmax: loss", &[0, 1, 2, 0], &[0], (2, 1)),
            sigmoid("sigmoid: targets", &targets, &[0]),
            sigmoid("sigmoid: no rows", &logits, &[]),
            sigmoid("sigmoid: row", &logits, &[9]),
        ]
    }

    fn ranking(&self) -> Vec<Refusal> {
        let (two_triples, incomplete, backend) = (self.matrix(6, 2), self.matrix(4, 2), self.backend);
        let [mut grad, mut penalty_grad] = [(); 2].map(|()| self.matrix(6, 3));
        let excluded = Csr::empty(6, 3).expect("a sparse matrix");
        vec![
            self.refuses("bpr_loss: rows", (1, 1), |loss| backend.bpr_loss(&incomplete, None, loss)),
            self.refuses("bpr_loss: none", (1, 1), |loss| backend.bpr_loss(&self.matrix(0, 2), None, loss)),
            self.refuses("bpr_loss: grad", (1, 1), |loss| backend.bpr_loss(&two_triples, Some(&mut grad), loss)),
            self.refuses("bpr_loss: loss", (1, 2), |loss| backend.bpr_loss(&two_triples, None, loss)),
            self.refuses("l2_penalty: grad", (1, 1), |loss| {
                backend.l2_penalty(0.1, &two_triples, Some(&mut penalty_grad), loss)
            }),
            self.refuses("l2_penalty: loss", (2, 1), |loss| backend.l2_penalty(0.1, &two_triples, None, loss)),
            self.refuses("top_k_rows", (1, 1), |_| backend.top_k_rows(&two_triples, 1, &excluded).map(drop)),
        ]
    }

    fn optimizers(&self) -> Vec<Refusal> {
        let (good, tall, backend) = (self.matrix(2, 3), self.matrix(3, 2), self.backend);
        let step = |step| AdamStep { lr: 0.1, beta1: 0.9, beta2: 0.999, eps: 1e-8, decoupled: false, step };
        // The operand that does not fit comes last, so that the parameter before it shows any write.
        let adam = |call, step, grad: &B::Matrix, first_dtype| {
            let [mut first, mut second, mut other, mut other_second] = [(); 4].map(|()| self.matrix(2, 3));
            let mut other_first = self.stored(2, 3, first_dtype);
            self.refuses(call, (2, 3), |param| {
                let fits = AdamUpdate { param, grad: &good, first: &mut first, second: &mut second, weight_decay: 0.0 };
                let (first, second) = (&mut other_first, &mut other_second);
                backend
                    .adam(step, &mut [fits, AdamUpdate { param: &mut other, grad, first, second, weight_decay: 0.0 }])
            })
        };
        let [mut velocity, mut other] = [(); 2].map(|()| self.matrix(2, 3));
        let mut tall_velocity = self.matrix(3, 2);
        vec![
            adam("adam: grad", step(1), &tall, Dtype::F32),
            adam("adam: step", step(0), &good, Dtype::F32),
            adam("adam: storage", step(1), &good, Dtype::Bf16),
            self.refuses("sgd", (2, 3), |param| {
                let fits = SgdUpdate { param, grad: &good, velocity: &mut velocity, weight_decay: 0.0 };
                let (param, velocity) = (&mut other, &mut tall_velocity);
                backend.sgd(0.1, 0.9, &mut [fits, SgdUpdate { param, grad: &good, velocity, weight_decay: 0.0 }])
            }),
        ]
    }

    fn segments(&self) -> Vec<Refusal> {
        let a = self.two_entries();
        let (x, wide, backend) = (self.matrix(3, 2), self.matrix(4, 2), self.backend);
        let mut few = self.ids(&[0; 7]);
        let (inputs, weight, grad) = (self.matrix(3, 8), self.matrix(2, 8), self.matrix(4, 2));
        let lstm = |inputs, weight, out: &mut B::Matrix| backend.segment_lstm((&a, None), inputs, weight, out);
        let (mut tall, empty) = (self.matrix(4, 8), self.matrix(0, 0));
        vec![
            self.refuses("segment_max: x", (4, 2), |out| backend.segment_max(&a, &wide, out, None)),
            self.refuses("segment_max: out", (3, 2), |out| backend.segment_max(&a, &x, out, None)),
            self.refuses("segment_max: winners", (4, 2), |out| backend.segment_max(&a, &x, out, Some(&mut few))),
            self.refuses("segment_max_backward: winners", (3, 2), |x_grad| {
                backend.segment_max_backward(&a, &self.ids(&[0; 7]), &wide, x_grad)
            }),
            self.refuses("segment_max_backward: x_grad", (4, 2), |x_grad| {
                backend.segment_max_backward(&a, &self.ids(&[0; 8]), &wide, x_grad)
            }),
            self.refuses("segment_lstm: weight", (4, 2), |out| lstm(&inputs, &x, out)),
            self.refuses("segment_lstm: inputs", (4, 2), |out| lstm(&x, &weight, out)),
            self.refuses("segment_lstm: out", (4, 3), |out| lstm(&inputs, &weight, out)),
            self.refuses("segment_lstm: no columns", (4, 0), |out| lstm(&inputs, &empty, out)),
            self.refuses("segment_lstm_backward: inputs_grad", (2, 8), |weight_grad| {
                let grads = (&mut tall, weight_grad);
                backend.segment_lstm_backward((&a, None), (&inputs, &weight), &grad, grads)
            }),
            self.refuses("segment_lstm_backward: grad", (3, 8), |inputs_grad| {
                let grads = (inputs_grad, &mut self.matrix(2, 8));
                backend.segment_lstm_backward((&a, None), (&inputs, &weight), &x, grads)
            }),
        ]
    }

    fn heads(&self) -> Vec<Refusal> {
        let (a, backend) = (self.two_entries(), self.backend);
        let (x, y, vector) = (self.matrix(4, 6), self.matrix(3, 6), self.matrix(1, 6));
        let (shares, grad) = (self.matrix(2, 2), self.matrix(4, 2));
        vec![
            self.refuses("sddmm: x", (2, 2), |out| backend.sddmm(&a, &y, &y, out)),
            self.refuses("sddmm: y", (2, 2), |out| backend.sddmm(&a, &x, &x, out)),
            self.refuses("sddmm: out", (3, 2), |out| backend.sddmm(&a, &x, &y, out)),
            self.refuses("sddmm: heads", (2, 4), |out| backend.sddmm(&a, &x, &y, out)),
            self.refuses("segment_softmax", (3, 2), |scores| backend.segment_softmax(&a, scores)),
            self.refuses("segment_softmax_backward: grad", (2, 3), |grad| {
                backend.segment_softmax_backward(&a, &shares, grad)
            }),
            self.refuses("head_dots: vector", (4, 2), |out| backend.head_dots(&x, &shares, out)),
            self.refuses("head_dots: out", (3, 2), |out| backend.head_dots(&x, &vector, out)),
            self.refuses("head_dots: heads", (4, 4), |out| backend.head_dots(&x, &vector, out)),
            self.refuses("head_dots_backward: vector_grad", (1, 4), |vector_grad| {
                backend.head_dots_backward(&x, &vector, &grad, None, vector_grad)
            }),
            self.refuses("head_dots_backward: x_grad", (3, 6), |x_grad| {
                backend.head_dots_backward(&x, &vector, &grad, Some(x_grad), &mut self.matrix(1, 6))
            }),
        ]
    }

    fn attention(&self) -> Vec<Refusal> {
        let (graph, backend) = (self.two_entries(), self.backend);
        let (destination, source, values) = (self.matrix(4, 2), self.matrix(3, 2), self.matrix(3, 6));
        let (narrow, vector) = (self.matrix(3, 5), self.matrix(1, 6));
        let good = || Attention {
            graph: &graph,
            heads: 2,
            slope: 0.2,
            dropout: None,
            destination: &destination,
            source: &source,
            vector: None,
            values: &values,
        };
        let forward = |call, attention: &Attention<'_, B>, out: (usize, usize), log_sums: (usize, usize)| {
            let mut log_sums = self.matrix(log_sums.0, log_sums.1);
            self.refuses(call, out, |out| backend.attention(attention, out, &mut log_sums))
        };
        let (out, log_sums) = (self.matrix(4, 6), self.matrix(4, 2));
        let backward = |call, grad: &B::Matrix, values_grad: (usize, usize)| {
            let [mut destination, mut source] = [self.matrix(4, 2), self.matrix(3, 2)];
            self.refuses(call, values_grad, |values| {
                let grads = AttentionGrads { destination: &mut destination, source: &mut source, vector: None, values };
                backend.attention_backward(&good(), (&out, &log_sums), grad, grads)
            })
        };
        vec![
            forward("attention: destination", &Attention { destination: &source, ..good() }, (4, 6), (4, 2)),
            forward("attention: source", &Attention { source: &destination, ..good() }, (4, 6), (4, 2)),
            forward("attention: values", &Attention { values: &out, ..good() }, (4, 6), (4, 2)),
            forward("attention: heads", &Attention { values: &narrow, ..good() }, (4, 5), (4, 2)),
            forward("attention: no heads", &Attention { heads: 0, ..good() }, (4, 6), (4, 2)),
            forward("attention: vector", &Attention { vector: Some(&vector), ..good() }, (4, 6), (4, 2)),
            forward("attention: out", &good(), (3, 6), (4, 2)),
            forward("attention: log_sums", &good(), (4, 6), (3, 2)),
            backward("attention_backward: grad", &values, (3, 6)),
            backward("attention_backward: values", &out, (4, 6)),
        ]
    }

    fn normalizations(&self) -> Vec<Refusal> {
        let (x, row, backend) = (self.matrix(4, 3), self.matrix(1, 3), self.backend);
        let narrow = self.matrix(1, 2);
        let normalize = |call, gain: &B::Matrix, out: (usize, usize), moments: (usize, usize)| {
            let mut moments = self.matrix(moments.0, moments.1);
            self.refuses(call, out, |out| backend.normalize_rows(1e-5, &x, (gain, &row), out, &mut moments))
        };
        let moments = self.matrix(4, 2);
        let columns = |means| ColumnMoments { means, variances: &row, eps: 1e-5 };
        vec![
            normalize("normalize_rows: gain", &narrow, (4, 3), (4, 2)),
            normalize("normalize_rows: out", &row, (3, 3), (4, 2)),
            normalize("normalize_rows: moments", &row, (4, 3), (3, 2)),
            self.refuses("normalize_rows_backward: grad", (3, 3), |grad| {
                let (mut gain_grad, mut bias_grad) = (self.matrix(1, 3), self.matrix(1, 3));
                backend.normalize_rows_backward(&x, &row, &moments, grad, (&mut gain_grad, &mut bias_grad))
            }),
            self.refuses("column_squares: means", (1, 3), |out| backend.column_squares(&x, &narrow, out)),
            self.refuses("column_squares: out", (1, 2), |out| backend.column_squares(&x, &row, out)),
            self.refuses("normalize_columns: means", (4, 3), |out| {
                backend.normalize_columns(columns(&narrow), &x, (&row, &row), out)
            }),
            self.refuses("normalize_columns: gain", (4, 3), |out| {
                backend.normalize_columns(columns(&row), &x, (&narrow, &row), out)
            }),
            self.refuses("normalize_columns: out", (3, 3), |out| {
                backend.normalize_columns(columns(&row), &x, (&row, &row), out)
            }),
            self.refuses("normalized_products: grad", (1, 3), |out| {
                backend.normalized_products(columns(&row), &x, &row, out)
            }),
            self.refuses("normalized_products: out", (1, 2), |out| {
                backend.normalized_products(columns(&row), &x, &x, out)
            }),
            self.refuses("normalize_columns_backward: means", (4, 3), |grad| {
                backend.normalize_columns_backward(columns(&row), &x, &row, (&row, &narrow), grad)
            }),
            self.refuses("normalize_columns_backward: grad", (3, 3), |grad| {
                backend.normalize_columns_backward(columns(&row), &x, &row, (&row, &row), grad)
            }),
        ]
    }
}

fn counting(rows: usize, cols: usize) -> Matrix {
    host(Shape::new(rows, cols), (0..rows * cols).map(|position| position as f32).collect())
}
