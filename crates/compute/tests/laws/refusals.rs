//! Wrong operands of every operation, refused before a backend runs.

use girih_compute::prelude::*;
use girih_compute::{
    Activation, ActivationGrad, AdamStep, AdamUpdate, Attention, AttentionGrads, BasisOperands, ColumnMoments,
    ComputeError, Dropout, Dtype, Epilogue, EpilogueGrad, RelationRows, SgdUpdate, Shape, SparseOperand, Symbolic,
    SymbolicIds, SymbolicMatrix, SymbolicSparse, Transpose,
};
use girih_graph_format::{Csr, Scales};
use girih_random::Key;

const NO: Transpose = Transpose::No;
const YES: Transpose = Transpose::Yes;

fn device() -> Symbolic {
    Symbolic::cuda(Dtype::F32, None)
}

fn matrix(rows: usize, cols: usize) -> SymbolicMatrix {
    device().matrix(Shape::new(rows, cols), Dtype::F32)
}

/// Pattern with four rows, three columns and two entries.
fn two_entries() -> SymbolicSparse {
    device().sparse(Shape::new(4, 3), 2, false, false)
}

fn ids(ids: &[u32]) -> SymbolicIds {
    device().upload_ids(ids).expect("a list of ids")
}

fn dropout() -> Dropout {
    Dropout::new(0.5, Key::new(0, 0))
}

/// Checks that a call is refused with a message that begins with `expected`.
#[track_caller]
fn refused<T>(expected: &str, call: Result<T, ComputeError>) {
    let message = call.err().expect("the operands do not fit").to_string();
    assert!(message.starts_with(expected), "{message}, instead of {expected}…");
}

#[test]
fn memory() {
    let csr = Csr::empty(3, 2).expect("a sparse matrix");
    let upload =
        |scales, symmetric| device().upload_sparse(&SparseOperand { csr: &csr, scales, symmetric, names: None });
    let too_long = || Some(vec![1.0; 4]);
    let host = girih_graph_format::Matrix::new(3, 2, vec![0.0; 6]).expect("a matrix");
    refused("write: out is 2 × 3, expected 3 × 2", device().write(&host, &mut matrix(2, 3)));
    refused("upload_sparse: left scale", upload(Scales { left: too_long(), right: None }, false));
    refused("upload_sparse: right scale", upload(Scales { left: None, right: too_long() }, false));
    refused("upload_sparse: a 3 × 2 matrix cannot", upload(Scales::default(), true));
}

#[test]
fn relations() {
    let (d, x, weights) = (device(), matrix(4, 3), matrix(2, 6));
    let multiply = |runs: &[usize], cols| d.gemm_runs(runs, &x, (&weights, NO), &mut matrix(4, cols));
    refused("gemm_runs: runs have no end", multiply(&[], 2));
    for runs in [&[0, 2, 5][..], &[1, 2, 4], &[0, 3, 2, 4]] {
        refused("gemm_runs: runs go from row", multiply(runs, 2));
    }
    refused("gemm_runs: weights is 2 × 6, expected 2 × 9", multiply(&[0, 2, 4], 3));
    refused("gemm_runs: out is 5 × 2", d.gemm_runs(&[0, 2, 4], &x, (&weights, NO), &mut matrix(5, 2)));
    let backward = |grad: &SymbolicMatrix| d.gemm_runs_backward(&[0, 2, 4], &x, grad, false, &mut matrix(2, 6));
    refused("gemm_runs_backward: grad is 3 × 2", backward(&matrix(3, 2)));
    refused("relation rows: 2 rows and 1 relations", RelationRows::upload(&d, &[0, 1], &[0]));
    refused("relation rows: rows do not ascend", RelationRows::upload(&d, &[1, 0], &[0, 0]));
    let pairs = RelationRows::upload(&d, &[0, 3], &[1, 0]).expect("pairs");
    let bases = |coefficients, x, out| {
        d.basis_rows(&BasisOperands { pairs: &pairs, coefficients: &coefficients, x: &x }, &mut { out })
    };
    refused("basis_rows: out is 3 × 2", bases(matrix(2, 3), matrix(4, 6), matrix(3, 2)));
    refused("basis_rows: x is 4 × 5, expected 4 × 6", bases(matrix(2, 3), matrix(4, 5), matrix(2, 2)));
    refused("basis_rows", bases(matrix(2, 3), matrix(3, 6), matrix(2, 2)));
    refused("basis_rows", bases(matrix(1, 3), matrix(4, 6), matrix(2, 2)));
    let (coefficients, x) = (matrix(2, 3), matrix(4, 6));
    let (mut of_coefficients, mut of_x) = (matrix(3, 3), matrix(4, 6));
    let grads = ((&mut of_coefficients, false), (&mut of_x, false));
    let operands = BasisOperands { pairs: &pairs, coefficients: &coefficients, x: &x };
    let backward = d.basis_rows_backward(&operands, &matrix(2, 2), grads.0, grads.1);
    refused("basis_rows_backward: coefficients_grad is 3 × 3, expected 2 × 3", backward);
}

#[test]
fn dense_products() {
    let (d, a, b, wide, factors) = (device(), matrix(4, 3), matrix(3, 2), matrix(1, 3), matrix(3, 1));
    let gemm = |a, b, cols| d.gemm(a, None, b, Epilogue::default(), &mut matrix(4, cols));
    let with = |epilogue| d.gemm((&a, NO), None, (&b, NO), epilogue, &mut matrix(4, 2));
    let pair = |y, v| d.gemm_pair((&a, &b), (y, v), Epilogue::default(), &mut matrix(4, 2));
    refused("gemm: op(b)", gemm((&a, NO), (&a, NO), 3));
    refused("gemm: out", gemm((&a, NO), (&b, NO), 3));
    refused("gemm: both operands are transposed", gemm((&a, YES), (&b, YES), 4));
    refused("gemm: bias", with(Epilogue { bias: Some(&wide), ..Epilogue::default() }));
    refused("gemm: an epilogue masks", with(Epilogue { dropout: Some(dropout()), ..Epilogue::default() }));
    refused("gemm: op(b)", pair(&a, &a));
    refused("gemm: out", pair(&b, &matrix(2, 2)));
    refused("gemm_scaled: factors", d.gemm_scaled(&factors, (&a, NO), (&b, NO), &mut matrix(4, 2)));
    refused("gemm: out", d.gemm_scaled(&matrix(5, 1), (&a, NO), (&b, NO), &mut matrix(5, 2)));
    let (relu, y) = (ActivationGrad::of(Activation::Relu, None), matrix(4, 18));
    let back = |first, factors, out: &mut SymbolicMatrix, bias_grad| {
        let epilogue_grad = EpilogueGrad { slope: relu, y: &y, first, factors };
        d.gemm_backward((&a, NO), (&b, NO), epilogue_grad, out, bias_grad)
    };
    refused("gemm_backward: columns 8 to 10 of 18", back(8, None, &mut matrix(4, 2), None));
    refused("gemm_backward: out", back(16, None, &mut matrix(3, 2), None));
    refused("gemm_backward: factors", back(16, Some(&factors), &mut matrix(4, 2), None));
    refused("epilogue_backward: bias_grad", back(16, None, &mut matrix(4, 2), Some(&mut matrix(1, 3))));
    refused("epilogue_backward: grad", d.epilogue_backward(relu, &a, &mut matrix(3, 4), None));
    refused("epilogue_backward: bias_grad", d.epilogue_backward(relu, &a, &mut matrix(4, 3), Some(&mut matrix(1, 2))));
}

#[test]
fn passes() {
    let (d, x, out) = (device(), matrix(4, 3), || matrix(4, 2));
    refused("dropout: out", d.dropout(&x, dropout(), &mut out()));
    refused("convert: out", d.convert(&x, &mut out()));
    refused("add_scaled: out", d.add_scaled(1.0, &x, &mut out()));
    refused("add_scaled: out", d.add_scaled(1.0, &x, &mut matrix(3, 3)));
    refused("column_sums: out", d.column_sums(&x, &mut matrix(2, 3)));
    refused("scale: out", d.scale(2.0, &x, &mut out()));
    refused("unit_circle: out", d.unit_circle(&x, &mut matrix(4, 5)));
    refused("activate: bias", d.activate(Activation::Relu, Some(&matrix(1, 2)), &mut matrix(4, 3)));
    refused("scale_rows: factors", d.scale_rows(&matrix(1, 2), (&x, 0), &mut matrix(4, 3)));
    refused("scale_rows: columns 0 to 2 of 3", d.scale_rows(&matrix(4, 1), (&x, 0), &mut out()));
    refused("scale_rows: columns 8 to 11 of 3", d.scale_rows(&matrix(4, 1), (&x, 8), &mut matrix(4, 3)));
    let halves = d.matrix(Shape::new(4, 1), Dtype::Bf16);
    refused("scale_rows: factors are stored as bf16", d.scale_rows(&halves, (&x, 0), &mut matrix(4, 3)));
    refused("scale_rows_in_place: factors", d.scale_rows_in_place(&matrix(1, 2), &mut matrix(4, 3)));
    let copy = |from, rows, to| d.copy_block(Shape::new(4, 2), &x, from, &mut matrix(rows, 3), to);
    refused("copy_block: a block of 4 × 2 at (0, 0) does not lie inside out", copy((0, 0), 3, (0, 0)));
    refused("copy_block: a block of 4 × 2 at (0, 2) does not lie inside x", copy((0, 2), 4, (0, 0)));
    refused("copy_block: a block of 4 × 2 at (0, 2) does not lie inside out", copy((0, 0), 4, (0, 2)));
    let (inside, outside) = (ids(&[0, 3, 3, 1]), ids(&[0, 1, 4, 2]));
    refused("gather_rows: out", d.gather_rows(&x, &inside, &mut matrix(3, 3)));
    refused("gather_rows: id 4 is out of range", d.gather_rows(&x, &outside, &mut matrix(4, 3)));
    refused("scatter_add_rows: x", d.scatter_add_rows(&x, &inside, &mut out()));
    refused("scatter_add_rows: id 4 is out of range", d.scatter_add_rows(&x, &outside, &mut matrix(4, 3)));
}

#[test]
fn sparse_products() {
    let (d, a, four, three, wide) = (device(), two_entries(), matrix(4, 2), matrix(3, 2), matrix(1, 3));
    let with = |epilogue| d.spmm((&a, NO), None, &three, epilogue, &mut matrix(4, 2));
    let spmm = |ta, weights, x, rows| d.spmm((&a, ta), weights, x, Epilogue::default(), &mut matrix(rows, 2));
    refused("spmm: x", spmm(NO, None, &four, 4));
    refused("spmm: x", spmm(YES, None, &three, 3));
    refused("spmm: out", spmm(NO, None, &three, 3));
    refused("spmm: weights", spmm(NO, Some(&wide), &three, 4));
    refused("spmm: bias", with(Epilogue { bias: Some(&wide), ..Epilogue::default() }));
    refused("spmm: an epilogue masks", with(Epilogue { dropout: Some(dropout()), ..Epilogue::default() }));
    refused("spmm: out", d.spmm_in_place((&a, NO), &mut matrix(3, 2)));
    let columns =
        |rows, cols, first| d.spmm_columns((&a, NO), &three, Epilogue::default(), (&mut matrix(rows, cols), first));
    refused("spmm_columns: out", columns(3, 2, 0));
    refused("spmm_columns: columns 8 to 10 of 20", columns(4, 20, 8));
    refused("spmm_columns: columns 16 to 18 of 17", columns(4, 17, 16));
    refused("spmm_columns: columns 4 to 6 of 6", columns(4, 6, 4));
    let (x, y) = (matrix(4, 6), matrix(3, 6));
    refused("sddmm: x", d.sddmm(&a, &y, &y, &mut matrix(2, 2)));
    refused("sddmm: y", d.sddmm(&a, &x, &x, &mut matrix(2, 2)));
    refused("sddmm: out", d.sddmm(&a, &x, &y, &mut matrix(3, 2)));
    refused("sddmm: 6 columns cannot be shared", d.sddmm(&a, &x, &y, &mut matrix(2, 4)));
}

#[test]
fn heads() {
    let (d, a, x, vector, shares) = (device(), two_entries(), matrix(4, 6), matrix(1, 6), matrix(2, 2));
    refused("segment_softmax: scores", d.segment_softmax(&a, &mut matrix(3, 2)));
    refused("segment_softmax: grad", d.segment_softmax_backward(&a, &shares, &mut matrix(2, 3)));
    let all = &[0, 4];
    refused("head_dots: vectors", d.head_dots(all, &x, &shares, &mut matrix(4, 2)));
    refused("head_dots: runs go from row 0 to 3 of 4", d.head_dots(&[0, 3], &x, &vector, &mut matrix(4, 2)));
    refused("head_dots: out", d.head_dots(all, &x, &vector, &mut matrix(3, 2)));
    refused("head_dots: 6 columns cannot be shared", d.head_dots(all, &x, &vector, &mut matrix(4, 4)));
    let back = |x_grad, cols| d.head_dots_backward(all, (&x, &vector), &matrix(4, 2), x_grad, &mut matrix(1, cols));
    refused("head_dots: vector_grads", back(None, 4));
    refused("head_dots: x_grad", back(Some(&mut matrix(3, 6)), 6));
}

#[test]
fn attention() {
    let (d, graph, destination, source) = (device(), two_entries(), matrix(4, 2), matrix(3, 2));
    let (values, narrow, vector, out, log_sums) =
        (matrix(3, 6), matrix(3, 5), matrix(1, 6), matrix(4, 6), matrix(4, 2));
    let mut vector_grad = matrix(1, 6);
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
    let run =
        |attention, out_rows, n_log_sums| d.attention(&attention, &mut matrix(out_rows, 6), &mut matrix(n_log_sums, 2));
    refused("attention: destination", run(Attention { destination: &source, ..good() }, 4, 4));
    refused("attention: source", run(Attention { source: &destination, ..good() }, 4, 4));
    refused("attention: values", run(Attention { values: &out, ..good() }, 4, 4));
    refused("attention: 5 columns cannot be shared", run(Attention { values: &narrow, ..good() }, 4, 4));
    refused("attention: 6 columns cannot be shared", run(Attention { heads: 0, ..good() }, 4, 4));
    refused("attention: destination", run(Attention { vector: Some(&vector), ..good() }, 4, 4));
    refused("attention: out", run(good(), 3, 4));
    refused("attention: log_sums", run(good(), 4, 3));
    let back = |grad, vector, rows: [usize; 3]| {
        let [mut destination, mut source, mut values] =
            [(rows[0], 2), (rows[1], 2), (rows[2], 6)].map(|(r, c)| matrix(r, c));
        let grads = AttentionGrads { destination: &mut destination, source: &mut source, vector, values: &mut values };
        d.attention_backward(&good(), (&out, &log_sums), grad, grads)
    };
    refused("attention: grad", back(&values, None, [4, 3, 3]));
    refused("attention: gradient of the destination", back(&out, None, [3, 3, 3]));
    refused("attention: gradient of the source", back(&out, None, [4, 4, 3]));
    refused("attention: a vector and its gradient", back(&out, Some(&mut vector_grad), [4, 3, 3]));
    refused("attention: gradient of the values", back(&out, None, [4, 3, 4]));
}

#[test]
fn segments() {
    let (d, a, x, four, seven) = (device(), two_entries(), matrix(3, 2), matrix(4, 2), || ids(&[0; 7]));
    refused("segment_max: x", d.segment_max(&a, &four, &mut matrix(4, 2), None));
    refused("segment_max: out", d.segment_max(&a, &x, &mut matrix(3, 2), None));
    refused("segment_max: winners", d.segment_max(&a, &x, &mut matrix(4, 2), Some(&mut seven())));
    refused("segment_max_backward: winners", d.segment_max_backward(&a, &seven(), &four, &mut matrix(3, 2)));
    refused("segment_max_backward: x", d.segment_max_backward(&a, &ids(&[0; 8]), &four, &mut matrix(4, 2)));
    let (inputs, weight) = (matrix(3, 8), matrix(2, 8));
    let lstm = |inputs, weight, cols| d.segment_lstm((&a, None), inputs, weight, &mut matrix(4, cols));
    refused("segment_lstm: weight", lstm(&inputs, &x, 2));
    refused("segment_lstm: inputs", lstm(&x, &weight, 2));
    refused("segment_lstm: out", lstm(&inputs, &weight, 3));
    refused("segment_lstm: states without columns", lstm(&inputs, &matrix(0, 0), 0));
    let back = |grad, [inputs_rows, weight_rows]: [usize; 2]| {
        let grads = (&mut matrix(inputs_rows, 8), &mut matrix(weight_rows, 8));
        d.segment_lstm_backward((&a, None), (&inputs, &weight), grad, grads)
    };
    refused("segment_lstm_backward: out", back(&x, [3, 2]));
    refused("segment_lstm_backward: inputs_grad", back(&four, [4, 2]));
    refused("segment_lstm_backward: weight_grad", back(&four, [3, 3]));
}

#[test]
fn normalizations() {
    let (d, x, row, narrow, moments) = (device(), matrix(4, 3), matrix(1, 3), matrix(1, 2), matrix(4, 2));
    let rows = |gain, out_rows, n_moments| {
        d.normalize_rows(1e-5, &x, (gain, &row), &mut matrix(out_rows, 3), &mut matrix(n_moments, 2))
    };
    refused("normalize_rows: gain", rows(&narrow, 4, 4));
    refused("normalize_rows: out", rows(&row, 3, 4));
    refused("normalize_rows: moments", rows(&row, 4, 3));
    let back = |grad_rows, gain_cols| {
        let grads = (&mut matrix(1, gain_cols), &mut matrix(1, 3));
        d.normalize_rows_backward(&x, &row, &moments, &mut matrix(grad_rows, 3), grads)
    };
    refused("normalize_rows: out", back(3, 3));
    refused("normalize_rows_backward: gain_grad", back(4, 2));
    refused("column_squares: means", d.column_squares(&x, &narrow, &mut matrix(1, 3)));
    refused("column_squares: out", d.column_squares(&x, &row, &mut matrix(1, 2)));
    let of = |means| ColumnMoments { means, variances: &row, eps: 1e-5 };
    let columns = |means, gain, rows| d.normalize_columns(of(means), &x, (gain, &row), &mut matrix(rows, 3));
    refused("normalize_columns: means", columns(&narrow, &row, 4));
    refused("normalize_columns: gain", columns(&row, &narrow, 4));
    refused("normalize_columns: out", columns(&row, &row, 3));
    refused("normalized_products: out", d.normalized_products(of(&row), &x, &row, &mut matrix(1, 3)));
    refused("normalized_products: out", d.normalized_products(of(&row), &x, &x, &mut matrix(1, 2)));
    let back = |mean, rows| d.normalize_columns_backward(of(&row), &x, &row, (&row, mean), &mut matrix(rows, 3));
    refused("normalize_columns_backward: mean of products", back(&narrow, 4));
    refused("normalize_columns_backward: out", back(&row, 3));
}

#[test]
fn losses() {
    let (d, logits, targets, loss) = (device(), matrix(4, 3), matrix(3, 4), || matrix(1, 1));
    let mut narrow = matrix(4, 2);
    let softmax = |classes, rows: &[u32], grad, n| {
        d.softmax_cross_entropy(&logits, &ids(classes), &ids(rows), grad, &mut matrix(n, 1))
    };
    refused("softmax_cross_entropy: classes", softmax(&[0, 1, 2], &[0], None, 1));
    refused("softmax_cross_entropy: a mean over 0 rows", softmax(&[0, 1, 2, 0], &[], None, 1));
    refused("softmax_cross_entropy: id 4 is out of range", softmax(&[0, 1, 2, 0], &[4], None, 1));
    refused("softmax_cross_entropy: grad", softmax(&[0, 1, 2, 0], &[0], Some(&mut narrow), 1));
    refused("softmax_cross_entropy: loss", softmax(&[0, 1, 2, 0], &[0], None, 2));
    let sigmoid = |targets, rows| d.sigmoid_cross_entropy(&logits, targets, &ids(rows), None, &mut loss());
    refused("sigmoid_cross_entropy: targets", sigmoid(&targets, &[0]));
    refused("sigmoid_cross_entropy: a mean over 0 rows", sigmoid(&logits, &[]));
    refused("sigmoid_cross_entropy: id 9 is out of range", sigmoid(&logits, &[9]));
    let (triples, no_columns, four) = (matrix(6, 2), matrix(4, 0), ids(&[0, 3, 3, 1]));
    refused("bpr_loss: 4 rows are no triples", d.bpr_loss(&matrix(4, 2), None, &mut loss()));
    refused("bpr_loss: 0 rows are no triples", d.bpr_loss(&matrix(0, 2), None, &mut loss()));
    refused("bpr_loss: grad", d.bpr_loss(&triples, Some(&mut matrix(6, 3)), &mut loss()));
    refused("bpr_loss: loss", d.bpr_loss(&triples, None, &mut matrix(1, 2)));
    refused("l2_penalty: grad", d.l2_penalty(0.1, &triples, Some(&mut matrix(6, 3)), &mut loss()));
    refused("l2_penalty: loss", d.l2_penalty(0.1, &triples, None, &mut matrix(2, 1)));
    refused("argmax_rows: rows without columns", d.argmax_rows(&no_columns));
    refused("count_correct: rows without columns", d.count_correct(&no_columns, &four, &four));
    refused("count_correct: classes", d.count_correct(&logits, &ids(&[0, 1, 2]), &four));
    refused("count_correct: id 4 is out of range", d.count_correct(&logits, &four, &ids(&[4])));
    refused("top_k_rows: excluded", d.top_k_rows(&triples, 1, &Csr::empty(6, 3).expect("a sparse matrix")));
}

#[test]
fn optimizers() {
    let (d, good, tall) = (device(), || matrix(2, 3), matrix(3, 2));
    let adam = |step, grad: &SymbolicMatrix, dtype| {
        let step = AdamStep { lr: 0.1, beta1: 0.9, beta2: 0.999, eps: 1e-8, decoupled: false, step };
        let (param, first, second) = (&mut good(), &mut d.matrix(Shape::new(2, 3), dtype), &mut good());
        d.adam(step, &mut [AdamUpdate { param, grad, first, second, weight_decay: 0.0 }])
    };
    refused("adam: grad", adam(1, &tall, Dtype::F32));
    refused("adam: step 0", adam(0, &good(), Dtype::F32));
    refused("adam: first moment is stored as Bf16", adam(1, &good(), Dtype::Bf16));
    let (param, grad, velocity) = (&mut good(), &good(), &mut matrix(3, 2));
    refused("sgd: velocity", d.sgd(0.1, 0.9, &mut [SgdUpdate { param, grad, velocity, weight_decay: 0.0 }]));
}
