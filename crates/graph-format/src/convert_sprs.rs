//! Conversion to and from [`sprs::CsMatI`]: rows, columns and weights are kept; a binary matrix becomes one of ones.

use sprs::CsMatI;

use crate::{Buffer, Csr, FormatError};

/// Type of `sprs` whose arrays have the types of [`Csr`].
type SprsMatrix = CsMatI<f32, u32, u64>;

impl From<&Csr> for SprsMatrix {
    fn from(csr: &Csr) -> Self {
        let values = csr.values().map_or_else(|| vec![1.0; csr.nnz()], <[f32]>::to_vec);
        let shape = (csr.n_rows(), csr.n_cols());
        Self::try_new(shape, csr.indptr().to_vec(), csr.indices().to_vec(), values)
            .map_err(|(_, _, _, error)| error)
            .expect("the invariants of Csr are those of sprs")
    }
}

impl TryFrom<&SprsMatrix> for Csr {
    type Error = FormatError;

    /// Either storage order of `sprs` gives the same matrix. Weights that are all one are left out.
    ///
    /// # Errors
    /// When a dimension exceeds [`MAX_NODES`](crate::MAX_NODES) or a weight is not finite.
    fn try_from(matrix: &SprsMatrix) -> Result<Self, FormatError> {
        let indptr = matrix.indptr().as_slice().map_or_else(|| matrix.proper_indptr().to_vec(), <[u64]>::to_vec);
        let weights = Buffer::from(matrix.data().to_vec());
        let csr =
            Self::new(matrix.outer_dims(), matrix.inner_dims(), indptr, matrix.indices().to_vec(), Some(weights))?
                .without_unit_weights();
        Ok(if matrix.is_csr() { csr } else { csr.transposed() })
    }
}
