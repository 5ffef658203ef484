//! Products of rows: element by element, of all pairs of two matrices, and blocks of their columns.

use girih_compute::{Backend, ComputeError, Epilogue, Shape, SparseOperand, Transpose};
use girih_graph_format::{Csr, FormatError, NodeId, Scales};

use super::{BackwardPass, Operation, Tape, Var};

/// Pattern of an identity matrix, of one number of rows. A sampled product over it pairs row `i` of one operand with row
/// `i` of the other.
pub struct Diagonal<B: Backend>(B::Sparse);

impl<B: Backend> Diagonal<B> {
    /// Pattern of `n` rows.
    ///
    /// # Errors
    /// When there are more rows than a graph has, or the device's memory does not suffice.
    pub fn upload(backend: &B, n: usize) -> Result<Self, ComputeError> {
        Self::of_blocks(backend, n, 1)
    }

    /// Pattern that pairs row `i` of `n` with the rows from `i · width` to `(i + 1) · width` of the other operand.
    ///
    /// # Errors
    /// As [`upload`](Self::upload).
    pub fn of_blocks(backend: &B, n: usize, width: usize) -> Result<Self, ComputeError> {
        let n_columns = n * width;
        let offsets: Vec<u64> = (0..=n).map(|row| (row * width) as u64).collect();
        let csr = Csr::new(n, n_columns, offsets, (0..n_columns as NodeId).collect::<Vec<_>>(), None);
        let csr = csr.map_err(|error: FormatError| ComputeError::argument("upload_sparse", error.to_string()))?;
        let symmetric = width == 1;
        let operand = SparseOperand { csr: &csr, scales: Scales::default(), symmetric, names: None };
        Ok(Self(backend.upload_sparse(&operand)?))
    }

    /// The pattern on the device.
    #[must_use]
    pub fn pattern(&self) -> &B::Sparse {
        &self.0
    }
}

struct Multiplied<'a, B: Backend> {
    x: Var,
    y: Var,
    diagonal: &'a Diagonal<B>,
}

struct AllPairs {
    x: Var,
    y: Var,
}

struct UnitCircle<'a, B: Backend> {
    angles: Var,
    diagonal: &'a Diagonal<B>,
}

struct ColumnBlock {
    x: Var,
    first: usize,
}

impl<'a, B: Backend> Tape<'a, B> {
    /// Product of two `n × d` matrices, element by element. `diagonal` has `n` rows.
    ///
    /// # Errors
    /// On shapes that do not fit, or when the backend fails.
    pub fn multiply(&mut self, x: Var, y: Var, diagonal: &'a Diagonal<B>) -> Result<Var, ComputeError> {
        let mut out = self.buffer(self.shape(x))?;
        self.backend().sddmm(&diagonal.0, self.value(x), self.value(y), &mut out)?;
        Ok(self.record(out, &[x, y], Multiplied { x, y, diagonal }))
    }

    /// Inner products of all pairs of a row of `x` (`n × d`) and one of `y` (`m × d`): `X·Yᵀ`, `n × m`.
    ///
    /// # Errors
    /// On shapes that do not fit, or when the backend fails.
    pub fn all_products(&mut self, x: Var, y: Var) -> Result<Var, ComputeError> {
        let mut out = self.buffer(Shape::new(self.shape(x).rows, self.shape(y).rows))?;
        let operands = ((self.value(x), Transpose::No), (self.value(y), Transpose::Yes));
        self.backend().gemm(operands.0, None, operands.1, Epilogue::default(), &mut out)?;
        Ok(self.record(out, &[x, y], AllPairs { x, y }))
    }

    /// Unit complex numbers of angles in radians (`n × d`): their cosines, then their sines, `n × 2d`. `diagonal` has `n`
    /// rows.
    ///
    /// # Errors
    /// When the backend fails.
    pub fn unit_circle(&mut self, angles: Var, diagonal: &'a Diagonal<B>) -> Result<Var, ComputeError> {
        let Shape { rows, cols } = self.shape(angles);
        let mut out = self.buffer(Shape::new(rows, 2 * cols))?;
        self.backend().unit_circle(self.value(angles), &mut out)?;
        Ok(self.record(out, &[angles], UnitCircle { angles, diagonal }))
    }

    /// `n` columns of `x`, from column `first` on.
    ///
    /// # Errors
    /// When there are not as many, or the backend fails.
    pub fn columns(&mut self, x: Var, first: usize, n: usize) -> Result<Var, ComputeError> {
        let shape = Shape::new(self.shape(x).rows, n);
        let dtype = self.backend().dtype(self.value(x));
        let mut out = self.pool.take(self.backend, shape, dtype)?;
        self.backend().copy_block(shape, self.value(x), (0, first), &mut out, (0, 0))?;
        Ok(self.record(out, &[x], ColumnBlock { x, first }))
    }
}

impl<B: Backend> Operation<B> for Multiplied<'_, B> {
    fn backward(&self, pass: &mut BackwardPass<'_, '_, B>, _out: Var, grad: B::Matrix) -> Result<(), ComputeError> {
        for (var, other) in [(self.x, self.y), (self.y, self.x)] {
            if pass.needs_grad(var) {
                let mut share = pass.grad_buffer(var)?;
                pass.backend().sddmm(&self.diagonal.0, &grad, pass.value(other), &mut share)?;
                pass.give(var, share)?;
            }
        }
        pass.recycle(grad);
        Ok(())
    }
}

impl<B: Backend> Operation<B> for AllPairs {
    fn backward(&self, pass: &mut BackwardPass<'_, '_, B>, _out: Var, grad: B::Matrix) -> Result<(), ComputeError> {
        for (var, other, transpose) in [(self.x, self.y, Transpose::No), (self.y, self.x, Transpose::Yes)] {
            pass.with_grad(var, |pass, share, accumulate| {
                let epilogue = Epilogue { accumulate, ..Epilogue::default() };
                pass.backend().gemm((&grad, transpose), None, (pass.value(other), Transpose::No), epilogue, share)
            })?;
        }
        pass.recycle(grad);
        Ok(())
    }
}

impl<B: Backend> Operation<B> for UnitCircle<'_, B> {
    /// The gradient of an angle is that of its sine times the cosine, less that of its cosine times the sine.
    fn backward(&self, pass: &mut BackwardPass<'_, '_, B>, out: Var, grad: B::Matrix) -> Result<(), ComputeError> {
        let (backend, shape) = (pass.backend(), pass.backend().shape(pass.value(self.angles)));
        let [mut of_part, mut value, mut product] = [pass.buffer(shape)?, pass.buffer(shape)?, pass.buffer(shape)?];
        let mut share = pass.zero_grad(self.angles)?;
        for (of, at, factor) in [(shape.cols, 0, 1.0), (0, shape.cols, -1.0)] {
            backend.copy_block(shape, &grad, (0, of), &mut of_part, (0, 0))?;
            backend.copy_block(shape, pass.value(out), (0, at), &mut value, (0, 0))?;
            backend.sddmm(&self.diagonal.0, &of_part, &value, &mut product)?;
            backend.add_scaled(factor, &product, &mut share)?;
        }
        pass.give(self.angles, share)?;
        [grad, of_part, value, product].into_iter().for_each(|matrix| pass.recycle(matrix));
        Ok(())
    }
}

impl<B: Backend> Operation<B> for ColumnBlock {
    fn backward(&self, pass: &mut BackwardPass<'_, '_, B>, _out: Var, grad: B::Matrix) -> Result<(), ComputeError> {
        if pass.needs_grad(self.x) {
            let shape = pass.backend().shape(&grad);
            let mut share = pass.zero_grad(self.x)?;
            pass.backend().copy_block(shape, &grad, (0, 0), &mut share, (0, self.first))?;
            pass.give(self.x, share)?;
        }
        pass.recycle(grad);
        Ok(())
    }
}
