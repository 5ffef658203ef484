//! Laws of attention and of the operations from which it can be composed.

use girih_random::Key;
use proptest::prelude::*;

use super::inputs::{Draws, dtype, host, n_rows};
use super::law::{Law, Output, Results};
use crate::{Attention, AttentionGrads, Backend, Dropout, Dtype, Epilogue, Shape, SparseOperand, Transpose};

/// Pattern with the shape and storage of its operands.
#[derive(Debug)]
pub(super) struct HeadCase {
    shape: Shape,
    heads: usize,
    /// Number of columns of a head.
    depth: usize,
    /// Storage type of the operands that are read by rows and by columns.
    dtype: Dtype,
    dynamic: bool,
    /// If true, the pattern is a submatrix of a larger one, with global ids.
    named: bool,
    dropout: Option<f32>,
    /// Magnitude of the scores, which makes the coefficients uneven.
    scale: f32,
    seed: u64,
}

fn head_cases(rows_max: usize) -> impl Strategy<Value = HeadCase> {
    let heads = || prop_oneof![4 => 1..9usize, 1 => 9..20usize];
    // Short rows; rows wider than any vector block; rows with more entries than one worker gets.
    let sizes = prop_oneof![
        6 => (n_rows(rows_max), 1..40usize, heads(), 1..12usize),
        2 => (1..8usize, 1..40usize, heads(), 12..140usize),
        1 => (1..4usize, 1025..2500usize, heads(), 1..12usize),
    ];
    let dropout = prop::option::of(0.0f32..0.9);
    let fields = (sizes, dtype(), any::<[bool; 2]>(), dropout, 0.1f32..20.0, any::<u64>());
    fields.prop_map(|((rows, cols, heads, depth), dtype, [dynamic, named], dropout, scale, seed)| HeadCase {
        shape: Shape::new(rows, cols),
        heads,
        depth,
        dtype,
        dynamic,
        named,
        dropout,
        scale,
        seed,
    })
}

impl HeadCase {
    fn width(&self) -> usize {
        self.heads * self.depth
    }

    fn graph<B: Backend>(&self, backend: &B, draws: &mut Draws) -> B::Sparse {
        let csr = draws.csr(self.shape, false);
        let scales = csr.scales(girih_graph_format::Norm::Row);
        let names = self.named.then(|| draws.names(self.shape));
        backend.upload_sparse(&SparseOperand { csr: &csr, scales, symmetric: false, names }).expect("upload")
    }
}

/// Attention of both kinds (GAT, GATv2), with its gradients.
pub(super) struct AttentionLaw;

impl Law for AttentionLaw {
    const NAME: &'static str = "attention, attention_backward";
    const TOLERANCE: f64 = 5e-5;
    type Case = HeadCase;

    fn cases(rows_max: usize) -> impl Strategy<Value = HeadCase> {
        head_cases(rows_max)
    }

    /// Scores sum the columns of a head, and the gradient of the vector sums all entries.
    fn tolerance(case: &HeadCase) -> f64 {
        Self::TOLERANCE * (1.0 + case.depth as f64 / 20.0 + case.shape.len() as f64 / 1000.0)
    }

    fn run<B: Backend>(backend: &B, case: &HeadCase) -> Results {
        let (mut draws, Shape { rows, cols }) = (Draws::new(case.seed), case.shape);
        let graph = case.graph(backend, &mut draws);
        let score_width = if case.dynamic { case.width() } else { case.heads };
        let mut stored = |rows, cols, scale: f32, dtype| {
            let shape = Shape::new(rows, cols);
            let values = draws.values(shape.len()).into_iter().map(|value| scale * value).collect();
            backend.upload(&host(shape, values), dtype).expect("upload")
        };
        let destination = stored(rows, score_width, case.scale, case.dtype);
        let source = stored(cols, score_width, 1.0, case.dtype);
        let vector = stored(1, case.width(), 1.0, Dtype::F32);
        let values = stored(cols, case.width(), 1.0, case.dtype);
        let grad = stored(rows, case.width(), 1.0, case.dtype);
        let mut scaled = |rows, cols, scale| stored(rows, cols, scale, Dtype::F32);
        let attention = Attention::<B> {
            graph: &graph,
            heads: case.heads,
            slope: 0.2,
            dropout: case.dropout.map(|p| Dropout::new(p, Key::new(case.seed, 0))),
            destination: &destination,
            source: &source,
            vector: case.dynamic.then_some(&vector),
            values: &values,
        };
        // Old contents of the outputs must not matter.
        let mut out = scaled(rows, case.width(), 1.0);
        let mut log_sums = scaled(rows, case.heads, 1.0);
        backend.attention(&attention, &mut out, &mut log_sums).expect("attention");
        let mut grads = [scaled(rows, score_width, 1.0), scaled(cols, score_width, 1.0), scaled(1, case.width(), 1.0)];
        let mut value_grad = scaled(cols, case.width(), 1.0);
        let [of_destination, of_source, of_vector] = &mut grads;
        let all = AttentionGrads {
            destination: of_destination,
            source: of_source,
            vector: case.dynamic.then_some(of_vector),
            values: &mut value_grad,
        };
        backend.attention_backward(&attention, (&out, &log_sums), &grad, all).expect("attention_backward");
        let [of_destination, of_source, of_vector] = &grads;
        let mut results = vec![&out, &log_sums, of_destination, of_source, &value_grad];
        if case.dynamic {
            results.push(of_vector);
        }
        results.into_iter().map(|matrix| Output::of(backend, matrix)).collect()
    }
}

/// Operations with a number per entry: sampled products, softmax over rows, and sums weighted per head.
pub(super) struct Entries;

impl Law for Entries {
    const NAME: &'static str = "sddmm, segment_softmax, spmm with a weight for each head";
    const TOLERANCE: f64 = 2e-5;
    type Case = HeadCase;

    fn cases(rows_max: usize) -> impl Strategy<Value = HeadCase> {
        head_cases(rows_max)
    }

    fn run<B: Backend>(backend: &B, case: &HeadCase) -> Results {
        let (mut draws, Shape { rows, cols }) = (Draws::new(case.seed), case.shape);
        let graph = case.graph(backend, &mut draws);
        let (x, y) = (Shape::new(rows, case.width()), Shape::new(cols, case.width()));
        let (x, y) = (draws.matrix(backend, x, case.dtype), draws.matrix(backend, y, case.dtype));
        let mut matrix = |rows, cols| draws.matrix(backend, Shape::new(rows, cols), Dtype::F32);
        let entries = backend.nnz(&graph);
        let mut products = matrix(entries, case.heads);
        backend.sddmm(&graph, &x, &y, &mut products).expect("sddmm");
        let mut shares = matrix(entries, case.heads);
        backend.segment_softmax(&graph, &mut shares).expect("segment_softmax");
        let mut grad = matrix(entries, case.heads);
        backend.segment_softmax_backward(&graph, &shares, &mut grad).expect("segment_softmax_backward");
        let (mut sums, mut back) = (matrix(rows, case.width()), matrix(cols, case.width()));
        let plain = Epilogue::default;
        backend.spmm((&graph, Transpose::No), Some(&shares), &y, plain(), &mut sums).expect("spmm");
        backend.spmm((&graph, Transpose::Yes), Some(&shares), &x, Epilogue::accumulate(), &mut back).expect("spmm");
        [products, shares, grad, sums, back].iter().map(|matrix| Output::of(backend, matrix)).collect()
    }
}

/// Dot products of rows with the vector of their run, per head.
pub(super) struct HeadDots;

impl Law for HeadDots {
    const NAME: &'static str = "head_dots, head_dots_backward";
    const TOLERANCE: f64 = 5e-5;
    type Case = HeadCase;

    fn cases(rows_max: usize) -> impl Strategy<Value = HeadCase> {
        head_cases(rows_max)
    }

    fn run<B: Backend>(backend: &B, case: &HeadCase) -> Results {
        let (mut draws, rows) = (Draws::new(case.seed), case.shape.rows);
        // One run, and three of which one may be empty.
        let mut several: Vec<usize> = draws.ids(2, rows + 1).into_iter().map(|end| end as usize).collect();
        several.extend([0, rows]);
        several.sort_unstable();
        let mut matrix = |rows, cols| draws.matrix(backend, Shape::new(rows, cols), Dtype::F32);
        let mut results = Vec::new();
        for runs in [&[0, rows][..], &several] {
            let n_runs = runs.len() - 1;
            let (x, vectors) = (matrix(rows, case.width()), matrix(n_runs, case.width()));
            let mut dots = matrix(rows, case.heads);
            backend.head_dots(runs, &x, &vectors, &mut dots).expect("head_dots");
            let (grad, operands) = (matrix(rows, case.heads), (&x, &vectors));
            let (mut x_grad, mut vector_grads) = (matrix(rows, case.width()), matrix(n_runs, case.width()));
            let mut alone = matrix(n_runs, case.width());
            backend.head_dots_backward(runs, operands, &grad, Some(&mut x_grad), &mut vector_grads).expect("backward");
            backend.head_dots_backward(runs, operands, &grad, None, &mut alone).expect("backward");
            results.extend([dots, x_grad, vector_grads, alone]);
        }
        results.iter().map(|matrix| Output::of(backend, matrix)).collect()
    }
}
