//! Attention over neighbors, and the primitives of other attention layers.

use std::borrow::Cow;

use girih_compute::{Attention, AttentionGrads, Backend, ComputeError, Dropout, Shape};

use super::{BackwardPass, Operation, Tape, Var};

/// Options of a [`Tape::attention`] besides its operands.
#[derive(Clone, Copy, Debug)]
pub struct AttentionOptions {
    /// Number of heads. Columns of heads are interleaved, see [`Attention`].
    pub heads: usize,
    /// Negative slope of the leaky ReLU.
    pub slope: f32,
    /// Dropout of attention weights after the softmax ([`Tape::next_dropout`]).
    pub dropout: Option<Dropout>,
}

/// Operands of a [`Tape::attention`], named as in [`Attention`].
#[derive(Clone, Copy, Debug)]
pub struct AttentionOperands {
    /// Scores of destinations, `n × heads`; with a vector, rows `n × width`.
    pub destination: Var,
    /// Scores of sources, `m × heads`; with a vector, rows `m × width`.
    pub source: Var,
    /// Attention vector of GATv2, `1 × width`.
    pub vector: Option<Var>,
    /// Values of sources, `m × width`.
    pub values: Var,
}

struct Attended<'a, B: Backend> {
    graph: &'a B::Sparse,
    options: AttentionOptions,
    operands: AttentionOperands,
    log_sums: Var,
}

impl<'a, B: Backend> Tape<'a, B> {
    /// Attention over the entries of an `n × m` pattern; the result is `n × width`. It keeps `n × heads` numbers for
    /// the backward pass, and nothing per entry.
    ///
    /// # Errors
    /// On shapes that do not fit, or when the backend fails.
    pub fn attention(
        &mut self,
        graph: &'a B::Sparse,
        operands: AttentionOperands,
        options: AttentionOptions,
    ) -> Result<Var, ComputeError> {
        let (rows, width) = (self.backend().sparse_shape(graph).rows, self.shape(operands.values).cols);
        let mut out = self.activations(Shape::new(rows, width))?;
        let mut log_sums = self.buffer(Shape::new(rows, options.heads))?;
        let attention = resolve::<B>(graph, options, operands, |var| self.value(var));
        self.backend().attention(&attention, &mut out, &mut log_sums)?;
        let log_sums = self.keep(log_sums);
        let AttentionOperands { destination, source, vector, values } = operands;
        let operations: Vec<Var> = [destination, source, values].into_iter().chain(vector).collect();
        Ok(self.record(out, &operations, Attended::<B> { graph, options, operands, log_sums }))
    }
}

/// Operands and options in the backend's form.
fn resolve<'v, B: Backend>(
    graph: &'v B::Sparse,
    options: AttentionOptions,
    operands: AttentionOperands,
    value: impl Fn(Var) -> &'v B::Matrix,
) -> Attention<'v, B> {
    Attention {
        graph,
        heads: options.heads,
        slope: options.slope,
        dropout: options.dropout,
        destination: value(operands.destination),
        source: value(operands.source),
        vector: operands.vector.map(&value),
        values: value(operands.values),
    }
}

impl<B: Backend> Operation<B> for Attended<'_, B> {
    fn backward(&self, pass: &mut BackwardPass<'_, '_, B>, out: Var, grad: B::Matrix) -> Result<(), ComputeError> {
        let AttentionOperands { destination, source, vector, values } = self.operands;
        let mut buffer = |var: Var| pass.grad_buffer(var);
        let (mut of_destination, mut of_source) = (buffer(destination)?, buffer(source)?);
        let (mut of_vector, mut of_values) = (vector.map(&mut buffer).transpose()?, buffer(values)?);
        let attention = resolve::<B>(self.graph, self.options, self.operands, |var| pass.value(var));
        let grads = AttentionGrads {
            destination: &mut of_destination,
            source: &mut of_source,
            vector: of_vector.as_mut(),
            values: &mut of_values,
        };
        let results = (pass.value(out), pass.value(self.log_sums));
        pass.backend().attention_backward(&attention, results, &grad, grads)?;
        pass.recycle(grad);
        pass.give(destination, of_destination)?;
        pass.give(source, of_source)?;
        pass.give(values, of_values)?;
        match vector.zip(of_vector) {
            Some((vector, of_vector)) => pass.give(vector, of_vector),
            None => Ok(()),
        }
    }
}

struct HeadDots<'a> {
    runs: Cow<'a, [usize]>,
    x: Var,
    vectors: Var,
}

impl<'a, B: Backend> Tape<'a, B> {
    /// Score of each row and head: `out[i, h] = Σ_k x[i, c]·vector[c]` with `c = k · heads + h`.
    ///
    /// # Errors
    /// On shapes that do not fit, or when the backend fails.
    pub fn head_dots(&mut self, x: Var, vector: Var, heads: usize) -> Result<Var, ComputeError> {
        let all = vec![0, self.shape(x).rows];
        self.head_dots_runs(all, x, vector, heads)
    }

    /// As [`head_dots`](Self::head_dots), but with row `r` of `vectors` for the rows of run `r`. `runs` lists the first row
    /// of each run, then the number of rows.
    ///
    /// # Errors
    /// On shapes or runs that do not fit, or when the backend fails.
    pub fn head_dots_runs(
        &mut self,
        runs: impl Into<Cow<'a, [usize]>>,
        x: Var,
        vectors: Var,
        heads: usize,
    ) -> Result<Var, ComputeError> {
        let runs = runs.into();
        let mut out = self.buffer(Shape::new(self.shape(x).rows, heads))?;
        self.backend().head_dots(&runs, self.value(x), self.value(vectors), &mut out)?;
        Ok(self.record(out, &[x, vectors], HeadDots { runs, x, vectors }))
    }
}

impl<B: Backend> Operation<B> for HeadDots<'_> {
    fn backward(&self, pass: &mut BackwardPass<'_, '_, B>, _out: Var, grad: B::Matrix) -> Result<(), ComputeError> {
        let Self { runs, x, vectors } = self;
        let (x, vectors) = (*x, *vectors);
        let mut of_vectors = pass.grad_buffer(vectors)?;
        if pass.needs_grad(x) {
            pass.with_grad(x, |pass, of_x, accumulate| {
                if !accumulate {
                    pass.backend().set_zero(of_x)?;
                }
                let operands = (pass.value(x), pass.value(vectors));
                pass.backend().head_dots_backward(runs, operands, &grad, Some(of_x), &mut of_vectors)
            })?;
        } else {
            let operands = (pass.value(x), pass.value(vectors));
            pass.backend().head_dots_backward(runs, operands, &grad, None, &mut of_vectors)?;
        }
        pass.recycle(grad);
        pass.give(vectors, of_vectors)
    }
}

struct Sddmm<'a, B: Backend> {
    graph: &'a B::Sparse,
    x: Var,
    y: Var,
}

impl<'a, B: Backend> Tape<'a, B> {
    /// Sampled dense-dense product: for every entry `(i, j)` and head, the product of row `i` of `x` and row `j` of
    /// `y`, `nnz × heads`. See [`SparseOps::sddmm`](girih_compute::SparseOps::sddmm).
    ///
    /// # Errors
    /// On shapes that do not fit, or when the backend fails.
    pub fn sddmm(&mut self, graph: &'a B::Sparse, x: Var, y: Var, heads: usize) -> Result<Var, ComputeError> {
        let mut out = self.buffer(Shape::new(self.backend().nnz(graph), heads))?;
        self.backend().sddmm(graph, self.value(x), self.value(y), &mut out)?;
        Ok(self.record(out, &[x, y], Sddmm::<B> { graph, x, y }))
    }
}

impl<B: Backend> Operation<B> for Sddmm<'_, B> {
    fn backward(&self, pass: &mut BackwardPass<'_, '_, B>, _out: Var, grad: B::Matrix) -> Result<(), ComputeError> {
        use girih_compute::{Epilogue, Transpose};
        for (var, other, transpose) in [(self.x, self.y, Transpose::No), (self.y, self.x, Transpose::Yes)] {
            pass.with_grad(var, |pass, out, accumulate| {
                let epilogue = Epilogue { accumulate, ..Epilogue::default() };
                pass.backend().spmm((self.graph, transpose), Some(&grad), pass.value(other), epilogue, out)
            })?;
        }
        pass.recycle(grad);
        Ok(())
    }
}

struct SegmentSoftmax<'a, B: Backend> {
    graph: &'a B::Sparse,
    scores: Var,
}

impl<'a, B: Backend> Tape<'a, B> {
    /// Softmax over the entries of each row, for each column of `scores` (`nnz × heads`). Works in place: nothing may
    /// read `scores` afterwards.
    ///
    /// # Errors
    /// On shapes that do not fit, or when the backend fails.
    pub fn segment_softmax(&mut self, graph: &'a B::Sparse, scores: Var) -> Result<Var, ComputeError> {
        let mut shares = self.consume(scores);
        self.backend().segment_softmax(graph, &mut shares)?;
        Ok(self.record(shares, &[scores], SegmentSoftmax::<B> { graph, scores }))
    }
}

impl<B: Backend> Operation<B> for SegmentSoftmax<'_, B> {
    fn backward(&self, pass: &mut BackwardPass<'_, '_, B>, out: Var, mut grad: B::Matrix) -> Result<(), ComputeError> {
        pass.backend().segment_softmax_backward(self.graph, pass.value(out), &mut grad)?;
        pass.give(self.scores, grad)
    }
}
