//! Laws of operations that pass over matrices: storage, elementwise, rows, columns, losses.

use girih_random::Key;
use proptest::prelude::*;

use super::inputs::{Draws, activation, dtype, host, middle, n_rows, n_rows_some, slope, width};
use super::law::{Law, Output, Results};
use crate::{Activation, ActivationGrad, Backend, ColumnMoments, Dropout, Dtype, Shape};

/// Case of most of these operations: a shape, storage types of up to four operands, and a seed for the values.
#[derive(Debug)]
pub(super) struct PassCase {
    pub(super) shape: Shape,
    pub(super) dtypes: [Dtype; 4],
    seed: u64,
}

pub(super) fn passes(n_rows: impl Strategy<Value = usize>) -> impl Strategy<Value = PassCase> {
    (n_rows, width(), [dtype(), dtype(), dtype(), dtype()], any::<u64>())
        .prop_map(|(rows, cols, dtypes, seed)| PassCase { shape: Shape::new(rows, cols), dtypes, seed })
}

impl PassCase {
    pub(super) fn draws(&self) -> Draws {
        Draws::new(self.seed)
    }
}

/// Uploads and downloads: values are rounded once, for every way of upload.
pub(super) struct Storage;

impl Law for Storage {
    const NAME: &'static str = "zeros, upload, write, write_rows, convert, download";
    const TOLERANCE: f64 = 0.0;
    type Case = PassCase;

    fn cases(rows_max: usize) -> impl Strategy<Value = PassCase> {
        passes(n_rows(rows_max))
    }

    fn run<B: Backend>(backend: &B, case: &PassCase) -> Results {
        let mut draws = case.draws();
        let zeros = backend.zeros(case.shape, case.dtypes[0]).expect("zeros");
        let uploaded = draws.matrix(backend, case.shape, case.dtypes[1]);
        let mut written = backend.zeros(case.shape, case.dtypes[2]).expect("zeros");
        backend.write(&draws.host(case.shape), &mut written).expect("write");
        let mut converted = backend.zeros(case.shape, case.dtypes[3]).expect("zeros");
        backend.convert(&uploaded, &mut converted).expect("convert");
        let (rows, mut filled) = (draws.host(case.shape), backend.zeros(case.shape, case.dtypes[2]).expect("zeros"));
        let fill = |first: usize, out: &mut [f32]| {
            let start = first * case.shape.cols;
            out.copy_from_slice(&rows.data()[start..start + out.len()]);
        };
        backend.write_rows(&fill, &mut filled).expect("write_rows");
        let all = [zeros, uploaded, written, converted, filled];
        let dtypes = case.dtypes.iter().chain([&case.dtypes[2]]);
        for (matrix, &dtype) in all.iter().zip(dtypes) {
            assert_eq!((backend.shape(matrix), backend.dtype(matrix)), (case.shape, dtype));
        }
        // Rounding is exact: no result may differ by a step of bf16.
        all.iter().map(|matrix| Output { rounded: false, ..Output::of(backend, matrix) }).collect()
    }
}

/// Backward pass of an epilogue, with and without the gradient of the bias.
pub(super) struct EpilogueBackward;

impl Law for EpilogueBackward {
    const NAME: &'static str = "epilogue_backward";
    const TOLERANCE: f64 = 2e-5;
    type Case = (PassCase, ActivationGrad);

    fn cases(rows_max: usize) -> impl Strategy<Value = Self::Case> {
        (passes(n_rows(rows_max)), slope())
    }

    fn run<B: Backend>(backend: &B, (case, slope): &Self::Case) -> Results {
        let mut draws = case.draws();
        let y = draws.matrix(backend, case.shape, case.dtypes[0]);
        let mut grad = draws.matrix(backend, case.shape, case.dtypes[1]);
        let mut other_grad = draws.matrix(backend, case.shape, case.dtypes[1]);
        let mut bias_grad = draws.matrix(backend, Shape::new(1, case.shape.cols), case.dtypes[2]);
        backend.epilogue_backward(*slope, &y, &mut grad, Some(&mut bias_grad)).expect("epilogue_backward");
        backend.epilogue_backward(*slope, &y, &mut other_grad, None).expect("epilogue_backward");
        [grad, other_grad, bias_grad].iter().map(|matrix| Output::of(backend, matrix)).collect()
    }
}

/// Dropout into another matrix, and in place.
pub(super) struct Masked;

impl Law for Masked {
    const NAME: &'static str = "dropout";
    const TOLERANCE: f64 = 1e-6;
    type Case = (PassCase, f32);

    fn cases(rows_max: usize) -> impl Strategy<Value = Self::Case> {
        (passes(n_rows(rows_max)), prop_oneof![1 => Just(0.0f32), 3 => 0.0f32..0.99])
    }

    fn run<B: Backend>(backend: &B, (case, p): &Self::Case) -> Results {
        let mut draws = case.draws();
        let dropout = Dropout::new(*p, Key::new(case.seed, 0)).from_row(case.seed as usize % 3);
        let mut x = draws.matrix(backend, case.shape, case.dtypes[0]);
        let mut out = draws.matrix(backend, case.shape, case.dtypes[1]);
        backend.dropout(&x, dropout, &mut out).expect("dropout");
        backend.dropout_in_place(dropout, &mut x).expect("dropout_in_place");
        vec![Output::of(backend, &out), Output::of(backend, &x)]
    }
}

/// Scaled addition `out += factor · x`, also on the first rows only.
pub(super) struct AddScaled;

impl Law for AddScaled {
    const NAME: &'static str = "add_scaled";
    const TOLERANCE: f64 = 1e-6;
    type Case = (PassCase, f32);

    fn cases(rows_max: usize) -> impl Strategy<Value = Self::Case> {
        (passes(n_rows(rows_max)), -2.0f32..2.0)
    }

    fn run<B: Backend>(backend: &B, (case, factor): &Self::Case) -> Results {
        let mut draws = case.draws();
        let x = draws.matrix(backend, case.shape, case.dtypes[0]);
        let more = Shape::new(case.shape.rows + case.seed as usize % 3, case.shape.cols);
        let mut out = draws.matrix(backend, more, case.dtypes[1]);
        backend.add_scaled(*factor, &x, &mut out).expect("add_scaled");
        vec![Output::of(backend, &out)]
    }
}

/// Scaled rows `out = diag(factors)·x`: all columns, columns from a multiple of eight on, and in place.
pub(super) struct ScaleRows;

impl Law for ScaleRows {
    const NAME: &'static str = "scale_rows";
    const TOLERANCE: f64 = 1e-6;
    type Case = PassCase;

    fn cases(rows_max: usize) -> impl Strategy<Value = PassCase> {
        passes(n_rows(rows_max))
    }

    fn run<B: Backend>(backend: &B, case: &PassCase) -> Results {
        let mut draws = case.draws();
        let factors = draws.matrix(backend, Shape::new(case.shape.rows, 1), Dtype::F32);
        let x = draws.matrix(backend, case.shape, case.dtypes[0]);
        let Shape { rows, cols } = case.shape;
        let scaled = |first: usize, draws: &mut Draws| {
            let mut out = draws.matrix(backend, Shape::new(rows, cols - first), case.dtypes[1]);
            backend.scale_rows(&factors, (&x, first), &mut out).expect("scale_rows");
            Output::of(backend, &out)
        };
        let mut results = Vec::from([0, middle(cols)].map(|first| scaled(first, &mut draws)));
        let mut in_place = draws.matrix(backend, case.shape, case.dtypes[0]);
        backend.scale_rows_in_place(&factors, &mut in_place).expect("scale_rows_in_place");
        results.push(Output::of(backend, &in_place));
        results
    }
}

/// Gather of rows by repeated ids, its backward pass, the largest element of each row, and the count of correct
/// classes.
pub(super) struct Rows;

impl Law for Rows {
    const NAME: &'static str = "gather_rows, scatter_add_rows, argmax_rows, count_correct";
    const TOLERANCE: f64 = 2e-5;
    type Case = (PassCase, usize);

    fn cases(rows_max: usize) -> impl Strategy<Value = Self::Case> {
        (passes(n_rows_some(rows_max)), n_rows(rows_max))
    }

    fn run<B: Backend>(backend: &B, (case, n_ids): &Self::Case) -> Results {
        let mut draws = case.draws();
        let ids = draws.ids(*n_ids, case.shape.rows);
        let ids = backend.upload_ids(&ids).expect("upload");
        let listed = Shape::new(*n_ids, case.shape.cols);
        let x = draws.matrix(backend, case.shape, case.dtypes[0]);
        let mut gathered = draws.matrix(backend, listed, case.dtypes[1]);
        backend.gather_rows(&x, &ids, &mut gathered).expect("gather_rows");
        let grad = draws.matrix(backend, listed, case.dtypes[2]);
        let mut scattered = draws.matrix(backend, case.shape, case.dtypes[3]);
        // Run twice, because a backend may cache data about a list.
        for _ in 0..2 {
            backend.scatter_add_rows(&grad, &ids, &mut scattered).expect("scatter_add_rows");
        }
        let largest = backend.argmax_rows(&x).expect("argmax_rows");
        // Most rows are correct; one class is not a column.
        let mut classes = largest.clone();
        classes.iter_mut().step_by(3).for_each(|class| *class = (*class + 1) % case.shape.cols as u32);
        classes[0] = u32::MAX;
        let classes = backend.upload_ids(&classes).expect("upload");
        let n_correct = backend.count_correct(&x, &classes, &ids).expect("count_correct");
        let whole = |values: Vec<f32>| Output { values: host(Shape::new(values.len(), 1), values), rounded: false };
        let largest = whole(largest.into_iter().map(|column| column as f32).collect());
        vec![Output::of(backend, &gathered), Output::of(backend, &scattered), largest, whole(vec![n_correct as f32])]
    }
}

/// Column sums.
pub(super) struct Columns;

impl Law for Columns {
    const NAME: &'static str = "column_sums";
    const TOLERANCE: f64 = 2e-5;
    type Case = PassCase;

    fn cases(rows_max: usize) -> impl Strategy<Value = PassCase> {
        passes(n_rows(rows_max))
    }

    fn run<B: Backend>(backend: &B, case: &PassCase) -> Results {
        let mut draws = case.draws();
        let x = draws.matrix(backend, case.shape, case.dtypes[0]);
        let mut out = draws.matrix(backend, Shape::new(1, case.shape.cols), case.dtypes[1]);
        backend.column_sums(&x, &mut out).expect("column_sums");
        vec![Output::of(backend, &out)]
    }
}

/// Normalisation of rows, with its gradients.
pub(super) struct NormalizeRows;

impl Law for NormalizeRows {
    const NAME: &'static str = "normalize_rows, normalize_rows_backward";
    const TOLERANCE: f64 = 2e-4;
    type Case = PassCase;

    fn cases(rows_max: usize) -> impl Strategy<Value = PassCase> {
        passes(n_rows(rows_max))
    }

    fn run<B: Backend>(backend: &B, case: &PassCase) -> Results {
        let mut draws = case.draws();
        let mut matrix = |shape| draws.matrix(backend, shape, Dtype::F32);
        let row = Shape::new(1, case.shape.cols);
        let (x, gain, bias) = (matrix(case.shape), matrix(row), matrix(row));
        let (mut out, mut moments) = (matrix(case.shape), matrix(Shape::new(case.shape.rows, 2)));
        backend.normalize_rows(0.01, &x, (&gain, &bias), &mut out, &mut moments).expect("normalize_rows");
        let (mut grad, mut of_gain, mut of_bias) = (matrix(case.shape), matrix(row), matrix(row));
        let grads = (&mut of_gain, &mut of_bias);
        backend.normalize_rows_backward(&x, &gain, &moments, &mut grad, grads).expect("normalize_rows_backward");
        [out, moments, grad, of_gain, of_bias].iter().map(|matrix| Output::of(backend, matrix)).collect()
    }
}

/// Normalisation of columns by arbitrary moments, the sums for moments, and the backward pass.
pub(super) struct NormalizeColumns;

impl Law for NormalizeColumns {
    const NAME: &'static str = "column_squares, normalize_columns, normalized_products, normalize_columns_backward";
    const TOLERANCE: f64 = 2e-4;
    type Case = PassCase;

    fn cases(rows_max: usize) -> impl Strategy<Value = PassCase> {
        passes(n_rows(rows_max))
    }

    fn run<B: Backend>(backend: &B, case: &PassCase) -> Results {
        let (mut draws, row) = (case.draws(), Shape::new(1, case.shape.cols));
        let mut matrix = |shape, dtype| draws.matrix(backend, shape, dtype);
        let [x, mut grad] = [case.dtypes[0], case.dtypes[1]].map(|dtype| matrix(case.shape, dtype));
        let mut out = matrix(case.shape, case.dtypes[2]);
        let [means, gain, bias, shift, slope, mut squares, mut products] =
            [Dtype::F32; 7].map(|dtype| matrix(row, dtype));
        let mut variances = matrix(row, Dtype::F32);
        // Variances are at least zero: they are the squares of one row.
        backend.column_squares(&gain, &means, &mut variances).expect("column_squares");
        let moments = || ColumnMoments { means: &means, variances: &variances, eps: 0.01 };
        backend.column_squares(&x, &means, &mut squares).expect("column_squares");
        backend.normalize_columns(moments(), &x, (&gain, &bias), &mut out).expect("normalize_columns");
        backend.normalized_products(moments(), &x, &grad, &mut products).expect("normalized_products");
        let back = backend.normalize_columns_backward(moments(), &x, &gain, (&shift, &slope), &mut grad);
        back.expect("normalize_columns_backward");
        [squares, out, products, grad].iter().map(|matrix| Output::of(backend, matrix)).collect()
    }
}

/// Copy of a block of one matrix into another.
pub(super) struct CopyBlock;

impl Law for CopyBlock {
    const NAME: &'static str = "copy_block";
    const TOLERANCE: f64 = 0.0;
    type Case = (PassCase, [usize; 4]);

    fn cases(rows_max: usize) -> impl Strategy<Value = Self::Case> {
        (passes(n_rows(rows_max)), [0..20usize, 0..20usize, 0..20usize, 0..20usize])
    }

    fn run<B: Backend>(backend: &B, (case, [from_row, from_col, to_row, to_col]): &Self::Case) -> Results {
        let (mut draws, Shape { rows, cols }) = (case.draws(), case.shape);
        let x = draws.matrix(backend, Shape::new(from_row + rows + 1, from_col + cols + 3), case.dtypes[0]);
        let mut out = draws.matrix(backend, Shape::new(to_row + rows + 2, to_col + cols), case.dtypes[1]);
        let (from, to) = ((*from_row, *from_col), (*to_row, *to_col));
        backend.copy_block(case.shape, &x, from, &mut out, to).expect("copy_block");
        vec![Output { rounded: false, ..Output::of(backend, &out) }]
    }
}

/// Activations, with and without a bias.
pub(super) struct Activate;

impl Law for Activate {
    const NAME: &'static str = "activate";
    const TOLERANCE: f64 = 1e-6;
    type Case = (PassCase, Activation);

    fn cases(rows_max: usize) -> impl Strategy<Value = Self::Case> {
        (passes(n_rows(rows_max)), activation())
    }

    fn run<B: Backend>(backend: &B, (case, activation): &Self::Case) -> Results {
        let mut draws = case.draws();
        let bias = draws.matrix(backend, Shape::new(1, case.shape.cols), case.dtypes[0]);
        let mut with_bias = draws.matrix(backend, case.shape, case.dtypes[1]);
        let mut without = draws.matrix(backend, case.shape, case.dtypes[2]);
        backend.activate(*activation, Some(&bias), &mut with_bias).expect("activate");
        backend.activate(*activation, None, &mut without).expect("activate");
        vec![Output::of(backend, &with_bias), Output::of(backend, &without)]
    }
}

/// Case of a loss: rows, some of them listed twice, and logits of magnitude `scale`.
#[derive(Debug)]
pub(super) struct LossCase {
    pass: PassCase,
    n_listed: usize,
    scale: f32,
}

fn losses(rows_max: usize) -> impl Strategy<Value = LossCase> {
    let scale = prop_oneof![4 => 1.0f32..10.0, 1 => 10.0f32..1000.0];
    (passes(n_rows_some(rows_max)), n_rows_some(rows_max), scale).prop_map(|(pass, n_listed, scale)| LossCase {
        pass,
        n_listed,
        scale,
    })
}

impl LossCase {
    fn logits<B: Backend>(&self, backend: &B, draws: &mut Draws) -> B::Matrix {
        let values = draws.values(self.pass.shape.len()).into_iter().map(|value| self.scale * value).collect();
        backend.upload(&host(self.pass.shape, values), self.pass.dtypes[0]).expect("upload")
    }
}

/// Softmax cross-entropy with and without its gradient; rows outside the loss have no class.
pub(super) struct SoftmaxLoss;

impl Law for SoftmaxLoss {
    const NAME: &'static str = "softmax_cross_entropy";
    const TOLERANCE: f64 = 2e-6;
    type Case = LossCase;

    /// Strategy for losses, some with more classes than fit registers.
    fn cases(rows_max: usize) -> impl Strategy<Value = LossCase> {
        let times = prop_oneof![9 => Just(1), 1 => 2_usize..30];
        (losses(rows_max), times).prop_map(|(mut case, times)| {
            case.pass.shape = Shape::new(case.pass.shape.rows.div_ceil(times), case.pass.shape.cols * times);
            case
        })
    }

    fn run<B: Backend>(backend: &B, case: &LossCase) -> Results {
        let (mut draws, shape) = (case.pass.draws(), case.pass.shape);
        let logits = case.logits(backend, &mut draws);
        let rows = draws.ids(case.n_listed, shape.rows);
        let mut classes = vec![u32::MAX; shape.rows];
        for &row in &rows {
            classes[row as usize] = draws.ids(1, shape.cols)[0];
        }
        let more_classes: Vec<u32> = classes.iter().copied().chain([0]).collect();
        let ids = |ids: &[u32]| backend.upload_ids(ids).expect("upload");
        let (rows, classes, more_classes) = (ids(&rows), ids(&classes), ids(&more_classes));
        let mut grad = draws.matrix(backend, shape, case.pass.dtypes[1]);
        let [mut loss, mut loss_alone] = [(); 2].map(|()| draws.matrix(backend, Shape::new(1, 1), Dtype::F32));
        backend.softmax_cross_entropy(&logits, &classes, &rows, Some(&mut grad), &mut loss).expect("loss");
        backend.softmax_cross_entropy(&logits, &classes, &rows, None, &mut loss_alone).expect("loss");
        // Repeated with other logits, because a backend may cache data about the list of rows.
        let more = draws.matrix(backend, Shape::new(shape.rows + 1, shape.cols), case.pass.dtypes[0]);
        let mut loss_of_more = draws.matrix(backend, Shape::new(1, 1), Dtype::F32);
        backend.softmax_cross_entropy(&more, &more_classes, &rows, None, &mut loss_of_more).expect("loss");
        [loss, loss_alone, loss_of_more, grad].iter().map(|matrix| Output::of(backend, matrix)).collect()
    }
}

/// Sigmoid cross-entropy with and without its gradient.
pub(super) struct SigmoidLoss;

impl Law for SigmoidLoss {
    const NAME: &'static str = "sigmoid_cross_entropy";
    const TOLERANCE: f64 = 2e-6;
    type Case = LossCase;

    fn cases(rows_max: usize) -> impl Strategy<Value = LossCase> {
        losses(rows_max)
    }

    fn run<B: Backend>(backend: &B, case: &LossCase) -> Results {
        let (mut draws, shape) = (case.pass.draws(), case.pass.shape);
        let logits = case.logits(backend, &mut draws);
        let rows = backend.upload_ids(&draws.ids(case.n_listed, shape.rows)).expect("upload");
        let targets = draws.values(shape.len()).into_iter().map(|value| f32::from(value > 0.0)).collect();
        let targets = backend.upload(&host(shape, targets), case.pass.dtypes[2]).expect("upload");
        let mut grad = draws.matrix(backend, shape, case.pass.dtypes[1]);
        let [mut loss, mut loss_alone] = [(); 2].map(|()| draws.matrix(backend, Shape::new(1, 1), Dtype::F32));
        backend.sigmoid_cross_entropy(&logits, &targets, &rows, Some(&mut grad), &mut loss).expect("loss");
        backend.sigmoid_cross_entropy(&logits, &targets, &rows, None, &mut loss_alone).expect("loss");
        [loss, loss_alone, grad].iter().map(|matrix| Output::of(backend, matrix)).collect()
    }
}
