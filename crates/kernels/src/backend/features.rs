//! Feature stores on a CUDA device.

use girih_compress::CompressedFeatures;
use girih_compute::{ComputeError, Dtype, FeatureDevice, FeatureStore, HostFeatures, Shape, SplitRows, WritableStore};
use girih_graph_format::Matrix;
use girih_tiers::{HostReads, Placement};

use crate::Cuda;

impl FeatureDevice for Cuda {
    fn host_features(
        &self,
        rows: &Matrix,
        dtype: Dtype,
        placed: (&Placement, HostReads),
    ) -> Result<Option<HostFeatures<Self>>, ComputeError> {
        Self::host_features(self, rows, dtype, placed).map(Some)
    }

    fn code_rows(
        &self,
        codes: &CompressedFeatures,
        dtype: Dtype,
        placed: Option<(&Placement, HostReads)>,
    ) -> Result<Option<Box<dyn FeatureStore<Self>>>, ComputeError> {
        Self::code_rows(self, codes, dtype, placed)
    }

    fn split_rows(
        &self,
        rows: SplitRows<'_>,
        placement: &Placement,
    ) -> Result<Option<Box<dyn FeatureStore<Self>>>, ComputeError> {
        Self::split_rows(self, rows, placement)
    }

    fn row_store(
        &self,
        shape: Shape,
        dtype: Dtype,
        together: bool,
    ) -> Result<Option<Box<dyn WritableStore<Self>>>, ComputeError> {
        Self::row_store(self, shape, dtype, together).map(Some)
    }
}
