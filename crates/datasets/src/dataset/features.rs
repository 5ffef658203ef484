//! [`Features`]: features of nodes, dense, sparse or compressed.

use girih_compress::{CodecSpec, CompressedFeatures, RowSource};
use girih_graph_format::{Csr, Matrix, Permutation};

use crate::DatasetError;

/// Node features, `n_nodes × width`.
#[derive(Clone, Debug, PartialEq)]
pub enum Features {
    /// Every value stored.
    Dense(Matrix),
    /// Only the non-zero values stored (bags of words).
    Sparse(Csr),
    /// One code per row, in memory or mapped; rows are decoded on use.
    Compressed(CompressedFeatures),
}

impl Features {
    /// Number of rows, which is the number of nodes.
    #[must_use]
    pub fn n_rows(&self) -> usize {
        match self {
            Self::Dense(matrix) => matrix.n_rows(),
            Self::Sparse(csr) => csr.n_rows(),
            Self::Compressed(features) => features.n_rows(),
        }
    }

    /// Number of values per node.
    #[must_use]
    pub fn width(&self) -> usize {
        match self {
            Self::Dense(matrix) => matrix.n_cols(),
            Self::Sparse(csr) => csr.n_cols(),
            Self::Compressed(features) => features.width(),
        }
    }

    /// Sparse rows, if they are sparse.
    #[must_use]
    pub fn as_sparse(&self) -> Option<&Csr> {
        if let Self::Sparse(csr) = self { Some(csr) } else { None }
    }

    /// Rows as a source, dense or decoded, in memory or mapped.
    #[must_use]
    pub fn rows(&self) -> &dyn RowSource {
        match self {
            Self::Dense(matrix) => matrix,
            Self::Sparse(csr) => csr,
            Self::Compressed(features) => features,
        }
    }

    /// Encodes the rows by a codec that is fitted to a sample of them, drawn with `seed`. Features that are
    /// compressed already are returned unchanged if they agree with `spec`.
    ///
    /// # Errors
    /// When the codec does not suit the features, or they are compressed by another one.
    pub fn encoded(self, spec: CodecSpec, seed: u64) -> Result<Self, DatasetError> {
        if let Self::Compressed(features) = &self {
            let (stored, row_bytes) = (features.codec().spec(), features.codec().row_bytes());
            if spec.accepts(stored, row_bytes) {
                return Ok(self);
            }
            return Err(DatasetError::invalid(format!(
                "the features are compressed by {stored} already, in {row_bytes} bytes a row, and {spec} is asked for; \
                 leave the codec out, or give the features as they were"
            )));
        }
        Ok(Self::Compressed(CompressedFeatures::fitted(spec, self.rows(), seed)?))
    }

    /// Moves row `v` to row `order.map(v)`.
    pub(super) fn permuted(self, order: &Permutation) -> Result<Self, DatasetError> {
        Ok(match self {
            Self::Dense(matrix) => Self::Dense(order.apply_rows(&matrix)),
            Self::Sparse(csr) => Self::Sparse(csr.with_rows_permuted(order)),
            Self::Compressed(features) => Self::Compressed(features.select(order.inverse().new_of_old())?),
        })
    }

    pub(crate) fn validate(&self, n_nodes: usize) -> Result<(), DatasetError> {
        if self.n_rows() != n_nodes {
            return Err(DatasetError::invalid(format!(
                "there are {} rows of features for {n_nodes} nodes; each node needs one",
                self.n_rows()
            )));
        }
        match self {
            Self::Dense(matrix) => matrix.check_finite()?,
            Self::Sparse(csr) => csr.validate()?,
            // Codes decode to finite values: the encoder checked its input.
            Self::Compressed(_) => {}
        }
        Ok(())
    }
}

/// Adds a sparse matrix to a hash.
pub(super) fn add_csr(csr: &Csr, hash: &mut crc32fast::Hasher) {
    hash.update(bytemuck::cast_slice(csr.indptr()));
    hash.update(bytemuck::cast_slice(csr.indices()));
    hash.update(bytemuck::cast_slice(csr.values().unwrap_or_default()));
}

/// Adds features to a hash.
pub(super) fn add_features(features: &Features, hash: &mut crc32fast::Hasher) {
    match features {
        Features::Dense(matrix) => hash.update(bytemuck::cast_slice(matrix.data())),
        Features::Sparse(csr) => add_csr(csr, hash),
        Features::Compressed(features) => {
            hash.update(features.codec().spec().to_string().as_bytes());
            hash.update(&features.codec().parameters());
            hash.update(features.codes());
        }
    }
}
