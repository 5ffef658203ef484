//! [`Operand`]: a rank's own rows of the operand of a product, which are computed and sent by columns.
//!
//! ```text
//! columns   0 ─────────── 128 ───── 192 ───── 256
//! bands     │      1       │         2         │     computed at once, and multiplied by the rank's own block
//! parts     │      1       │    2    │    3    │     feature chunks, sent as soon as their band is computed
//! ```

use std::ops::Range;
use std::slice;

use girih_compute::checks::read;
use girih_compute::{ActivationGrad, Backend, ComputeError, Dtype, Epilogue, EpilogueGrad, Shape, Transpose};

use crate::tape::Pool;

/// Minimal number of columns of a band. With fewer, tensor cores compute padding, and each pass of a sparse product
/// over its entries does little work.
const BAND_COLUMNS: usize = 128;

/// A rank's own rows of an operand.
pub enum LocalOperand<'x, B: Backend> {
    /// Stored matrix.
    Matrix(&'x B::Matrix),
    /// Dense product that is computed by column bands: the first columns are sent while later ones are computed.
    LazyGemm(LazyGemm<'x, B>),
}

/// Dense product `X·op(W)`, or a gradient of this form with the backward pass of an epilogue fused into it.
pub struct LazyGemm<'x, B: Backend> {
    /// `X`, with the rank's own rows.
    pub x: &'x B::Matrix,
    /// `W` and `op`.
    pub weight: (&'x B::Matrix, Transpose),
    /// Epilogue whose backward pass is fused into the product, if there is one.
    pub through: Option<EpilogueBackward<'x, B>>,
}

/// Epilogue that a gradient is taken back through.
pub struct EpilogueBackward<'x, B: Backend> {
    /// Derivative of the epilogue.
    pub slope: ActivationGrad,
    /// Result of the epilogue in the forward pass.
    pub y: &'x B::Matrix,
    /// Output for the gradient of the bias, if it is wanted.
    pub bias_grad: Option<&'x mut B::Matrix>,
}

impl<B: Backend> LocalOperand<'_, B> {
    /// Shape of the rows.
    pub(super) fn shape(&self, backend: &B) -> Shape {
        match self {
            Self::Matrix(x) => backend.shape(x),
            Self::LazyGemm(LazyGemm { x, weight: (weight, transpose), .. }) => {
                Shape::new(backend.shape(x).rows, read(backend.shape(weight), *transpose).cols)
            }
        }
    }

    /// Type of the rows. A gradient has the type of the value that it belongs to.
    pub(super) fn dtype(&self, backend: &B) -> Dtype {
        match self {
            Self::Matrix(x) => backend.dtype(x),
            Self::LazyGemm(LazyGemm { through: Some(through), .. }) => backend.dtype(through.y),
            Self::LazyGemm(_) => backend.activations(),
        }
    }
}

impl<B: Backend> LazyGemm<'_, B> {
    /// Computes some columns, times a factor for each row, in a buffer of the pool.
    fn columns(
        &mut self,
        (backend, pool): (&B, &mut Pool<B>),
        factors: Option<&B::Matrix>,
        (columns, dtype): (&Range<usize>, Dtype),
    ) -> Result<B::Matrix, ComputeError> {
        let mut out = pool.take(backend, Shape::new(backend.shape(self.x).rows, columns.len()), dtype)?;
        let (weight, transpose) = self.weight;
        let some = some_columns((backend, pool), self.weight, columns)?;
        let (x, w) = ((self.x, Transpose::No), (some.as_ref().unwrap_or(weight), transpose));
        match (&mut self.through, factors) {
            (Some(through), _) => {
                through.multiply((backend, pool), ColumnProduct { a: x, b: w, factors, columns }, &mut out)?;
            }
            (None, Some(factors)) => backend.gemm_scaled(factors, x, w, &mut out)?,
            (None, None) => backend.gemm(x, None, w, Epilogue::default(), &mut out)?,
        }
        if let Some(some) = some {
            pool.give(backend, some);
        }
        Ok(out)
    }
}

/// Copy of some columns of `op(W)` in a buffer of the pool; `None` for all of them.
fn some_columns<B: Backend>(
    (backend, pool): (&B, &mut Pool<B>),
    (weight, transpose): (&B::Matrix, Transpose),
    columns: &Range<usize>,
) -> Result<Option<B::Matrix>, ComputeError> {
    let Shape { rows, cols } = backend.shape(weight);
    let (shape, from) = match transpose {
        Transpose::No => (Shape::new(rows, columns.len()), (0, columns.start)),
        Transpose::Yes => (Shape::new(columns.len(), cols), (columns.start, 0)),
    };
    if shape == backend.shape(weight) {
        return Ok(None);
    }
    let mut some = pool.take(backend, shape, backend.dtype(weight))?;
    backend.copy_block(shape, weight, from, &mut some, (0, 0))?;
    Ok(Some(some))
}

/// Dense product `op(A)·op(B)`, of which some columns are computed.
struct ColumnProduct<'p, B: Backend> {
    /// `A` and its `op`.
    a: (&'p B::Matrix, Transpose),
    /// Requested columns of `B`, and its `op`.
    b: (&'p B::Matrix, Transpose),
    /// Factor for each row of the result.
    factors: Option<&'p B::Matrix>,
    /// Position of these columns in the whole product.
    columns: &'p Range<usize>,
}

impl<B: Backend> EpilogueBackward<'_, B> {
    /// Computes some columns of a gradient with the epilogue's backward pass. Their column sums are written to the
    /// gradient of the bias.
    fn multiply(
        &mut self,
        (backend, pool): (&B, &mut Pool<B>),
        ColumnProduct { a, b, factors, columns }: ColumnProduct<'_, B>,
        out: &mut B::Matrix,
    ) -> Result<(), ComputeError> {
        let epilogue_grad = EpilogueGrad { slope: self.slope, y: self.y, first: columns.start, factors };
        let Some(bias_grad) = &mut self.bias_grad else { return backend.gemm_backward(a, b, epilogue_grad, out, None) };
        let shape = Shape::new(1, columns.len());
        if shape == backend.shape(bias_grad) {
            return backend.gemm_backward(a, b, epilogue_grad, out, Some(bias_grad));
        }
        let mut sums = pool.take(backend, shape, backend.dtype(bias_grad))?;
        backend.gemm_backward(a, b, epilogue_grad, out, Some(&mut sums))?;
        backend.copy_block(shape, &sums, (0, 0), bias_grad, (0, columns.start))?;
        pool.give(backend, sums);
        Ok(())
    }
}

/// A rank's own rows of the operand, in the form in which they are sent.
pub(super) struct Operand<'x, B: Backend> {
    pub(super) rows: LocalOperand<'x, B>,
    /// Factor for each row, applied before the rows are sent.
    pub(super) factors: Option<&'x B::Matrix>,
    /// Type in which they are sent.
    pub(super) dtype: Dtype,
}

impl<'x, B: Backend> Operand<'x, B> {
    /// Stored matrix that can be sent without a copy, if there is one.
    fn as_it_is(&self, backend: &B) -> Option<&'x B::Matrix> {
        match self.rows {
            LocalOperand::Matrix(x) if self.factors.is_none() && backend.dtype(x) == self.dtype => Some(x),
            _ => None,
        }
    }

    /// Copy of some columns, in the form in which they are sent.
    fn columns(&mut self, backend: &B, pool: &mut Pool<B>, columns: &Range<usize>) -> Result<B::Matrix, ComputeError> {
        let stored = self.rows.dtype(backend);
        let x = match &mut self.rows {
            LocalOperand::Matrix(x) => *x,
            LocalOperand::LazyGemm(product) => {
                let made = product.columns((backend, pool), self.factors, (columns, stored))?;
                if stored == self.dtype {
                    return Ok(made);
                }
                let rounded = pool.converted(backend, &made, self.dtype)?;
                pool.give(backend, made);
                return Ok(rounded);
            }
        };
        match self.factors {
            None => copied((backend, pool), x, columns, self.dtype),
            Some(factors) => {
                let shape = Shape::new(backend.shape(x).rows, columns.len());
                let mut some = pool.take(backend, shape, self.dtype)?;
                backend.scale_rows(factors, (x, columns.start), &mut some)?;
                Ok(some)
            }
        }
    }
}

/// Copy of some columns of a matrix in a buffer of the pool.
fn copied<B: Backend>(
    (backend, pool): (&B, &mut Pool<B>),
    x: &B::Matrix,
    columns: &Range<usize>,
    dtype: Dtype,
) -> Result<B::Matrix, ComputeError> {
    let Shape { rows, cols } = backend.shape(x);
    if columns.len() == cols {
        return pool.converted(backend, x, dtype);
    }
    let shape = Shape::new(rows, columns.len());
    let mut some = pool.take(backend, shape, dtype)?;
    backend.copy_block(shape, x, (0, columns.start), &mut some, (0, 0))?;
    Ok(some)
}

/// Own rows, as far as they are computed.
pub(super) struct LocalColumns<'x, B: Backend> {
    operand: Operand<'x, B>,
    /// Stored matrix that can be sent without a copy, if there is one.
    as_it_is: Option<&'x B::Matrix>,
    bands: Vec<Band<B>>,
    /// Band of each part, and the copy of its columns; `None` where the part is the whole band.
    parts: Vec<(usize, Option<B::Matrix>)>,
}

/// Columns of the operand that are computed at once.
struct Band<B: Backend> {
    columns: Range<usize>,
    /// `None` for the stored matrix itself.
    rows: Option<B::Matrix>,
}

impl<'x, B: Backend> LocalColumns<'x, B> {
    /// No columns yet.
    pub(super) fn new(operand: Operand<'x, B>, backend: &B) -> Self {
        Self { as_it_is: operand.as_it_is(backend), operand, bands: Vec::new(), parts: Vec::new() }
    }

    /// Number of parts that are cut.
    pub(super) fn n_parts(&self) -> usize {
        self.parts.len()
    }

    /// Computes the next band of an operand whose columns are sent in `parts`. Returns the indices of its parts,
    /// which are yet to be [cut](Self::cut).
    pub(super) fn make_band(
        &mut self,
        (backend, pool): (&B, &mut Pool<B>),
        parts: &[Range<usize>],
    ) -> Result<Range<usize>, ComputeError> {
        let first = self.n_parts();
        let n = self.n_in_band(&parts[first..]);
        let columns = parts[first].start..parts[first + n - 1].end;
        let rows = self.as_it_is.is_none().then(|| self.operand.columns(backend, pool, &columns)).transpose()?;
        self.bands.push(Band { columns, rows });
        Ok(first..first + n)
    }

    /// Number of the next parts that form a band.
    fn n_in_band(&self, parts: &[Range<usize>]) -> usize {
        let fills = |part: &Range<usize>| self.as_it_is.is_none() && part.end - parts[0].start >= BAND_COLUMNS;
        parts.iter().position(fills).map_or(parts.len(), |last| last + 1)
    }

    /// Computes all columns, as one part.
    pub(super) fn make_all(&mut self, (backend, pool): (&B, &mut Pool<B>)) -> Result<(), ComputeError> {
        let all = 0..self.operand.rows.shape(backend).cols;
        self.make_band((backend, pool), slice::from_ref(&all))?;
        self.cut((backend, pool), &all).map(drop)
    }

    /// Cuts the next part out of the last band.
    pub(super) fn cut(
        &mut self,
        (backend, pool): (&B, &mut Pool<B>),
        columns: &Range<usize>,
    ) -> Result<&B::Matrix, ComputeError> {
        let last = self.bands.len() - 1;
        let of_band = self.bands[last].columns.clone();
        let band = self.band(last).1;
        let is_whole = *columns == of_band;
        let within = columns.start - of_band.start..columns.end - of_band.start;
        let dtype = backend.dtype(band);
        let part = (!is_whole).then(|| copied((backend, pool), band, &within, dtype)).transpose()?;
        self.parts.push((last, part));
        Ok(self.part(self.parts.len() - 1))
    }

    /// Columns and rows of a band.
    fn band(&self, i: usize) -> (&Range<usize>, &B::Matrix) {
        let Band { columns, rows } = &self.bands[i];
        (columns, rows.as_ref().or(self.as_it_is).expect("a band that is not made is the matrix as it is"))
    }

    /// Columns and rows of all bands.
    pub(super) fn bands(&self) -> impl Iterator<Item = (&Range<usize>, &B::Matrix)> {
        (0..self.bands.len()).map(|i| self.band(i))
    }

    /// Part in the form in which it is sent.
    pub(super) fn part(&self, i: usize) -> &B::Matrix {
        let (band, part) = &self.parts[i];
        part.as_ref().unwrap_or_else(|| self.band(*band).1)
    }

    /// Returns buffers to the pool.
    pub(super) fn give_back(self, backend: &B, pool: &mut Pool<B>) {
        let (bands, parts) = (self.bands.into_iter(), self.parts.into_iter());
        let made = bands.filter_map(|band| band.rows).chain(parts.filter_map(|(_, part)| part));
        made.for_each(|matrix| pool.give(backend, matrix));
    }
}
