//! Normalisation of the rows of features by a [`FeatureNorm`].

use girih_graph_format::{Csr, Matrix};
use rayon::prelude::*;

use crate::{DatasetError, FeatureNorm, Features};

impl FeatureNorm {
    /// Divides the rows of `features`.
    ///
    /// # Errors
    /// When a quotient is not finite, as in a row whose values cancel out. When features are compressed, as codes
    /// cannot be divided.
    pub fn apply(self, features: Features) -> Result<Features, DatasetError> {
        if self == Self::None {
            return Ok(features);
        }
        match features {
            Features::Dense(matrix) => self.apply_dense(&matrix).map(Features::Dense),
            Features::Sparse(csr) => self.apply_sparse(&csr).map(Features::Sparse),
            Features::Compressed(_) => Err(DatasetError::invalid(
                "compressed features stay as they were encoded; divide their rows before, or leave the division out",
            )),
        }
    }

    fn apply_dense(self, matrix: &Matrix) -> Result<Matrix, DatasetError> {
        let mut data = matrix.data().to_vec();
        data.par_chunks_mut(matrix.n_cols().max(1)).for_each(|row| self.divide(row));
        let divided = Matrix::new(matrix.n_rows(), matrix.n_cols(), data)?;
        divided.check_finite()?;
        Ok(divided)
    }

    fn apply_sparse(self, csr: &Csr) -> Result<Csr, DatasetError> {
        let mut values = csr.values().map_or_else(|| vec![1.0; csr.nnz()], <[f32]>::to_vec);
        for row in 0..csr.n_rows() {
            self.divide(&mut values[csr.row_range(row)]);
        }
        Ok(csr.with_values(Some(values.into()))?)
    }
}
