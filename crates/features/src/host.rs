//! [`HostRows`] and [`HostFeatures`]: feature rows in memory of the host, for its threads and for a device.

use std::sync::Arc;

use girih_compress::CompressedFeatures;
use girih_compute::{Memory, Shape};
use girih_graph_format::{Matrix, NodeId};

use crate::FeatureStore;

/// Feature rows in memory of the host, plain or encoded. Any thread may read any row.
pub trait HostRows: Send + Sync {
    /// Shape: number of rows and width of a row.
    fn shape(&self) -> Shape;

    /// Reads consecutive rows into `out`, from row `first` on. The length of `out` determines their number.
    ///
    /// # Panics
    /// When there are too few rows.
    fn read(&self, first: usize, out: &mut [f32]);

    /// Reads the rows of `nodes` into `out`, one after the other.
    ///
    /// # Panics
    /// When a node has no row.
    fn gather(&self, nodes: &[NodeId], out: &mut [f32]) {
        let cols = self.shape().cols.max(1);
        nodes.iter().zip(out.chunks_exact_mut(cols)).for_each(|(&node, row)| self.read(node as usize, row));
    }
}

impl HostRows for CompressedFeatures {
    fn shape(&self) -> Shape {
        Shape::new(self.n_rows(), self.width())
    }

    fn read(&self, first: usize, out: &mut [f32]) {
        self.decode(first, out);
    }

    fn gather(&self, nodes: &[NodeId], out: &mut [f32]) {
        self.gather(nodes, out).expect("nodes of the graph that these are the features of");
    }
}

impl HostRows for Matrix {
    fn shape(&self) -> Shape {
        Shape::new(self.n_rows(), self.n_cols())
    }

    fn read(&self, first: usize, out: &mut [f32]) {
        out.copy_from_slice(&self.data()[first * self.n_cols()..][..out.len()]);
    }
}

/// Feature rows in memory of the host that a device can read. Some of them also lie on devices.
pub struct HostFeatures<B: Memory> {
    /// Reader for the device.
    pub reader: Box<dyn FeatureStore<B>>,
    /// Reader of the same rows for the host.
    pub on_host: Arc<dyn HostRows>,
}
