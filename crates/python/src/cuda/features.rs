//! `CudaFeatures`: rows of features that a GPU gathers, from its own memory or from that of the host.

use std::sync::Arc;

use girih_compute::prelude::*;
use girih_compute::{ComputeError, Dtype, Shape};
use girih_datasets::Features;
use girih_features::{
    CacheShares, FeatureDevice, FeatureStore as Store, HostReads, HostRows, Hotness, Pending, Placement, Visits,
};
use girih_graph_format::{Csr, NodeId};
use girih_kernels::{Cuda, CudaIds, CudaMatrix};
use pyo3::prelude::*;

use super::array::DeviceArray;
use super::guest::{At, OnGpu, guest, of_compute, on_gpu};
use crate::arrays::node_ids;
use crate::errors::{of_features, value_error};
use crate::features::FeatureStore;
use crate::graph::Graph;
use crate::threads::on_pool;

/// Rows for a GPU, for any number of loaders.
#[pyclass(frozen, module = "girih._girih")]
pub struct CudaFeatures {
    pub held: Arc<Held>,
}

/// Rows with their device.
pub struct Held {
    pub cuda: Arc<Cuda>,
    pub at: At,
    rows: OnGpu<Rows>,
    pub n_rows: usize,
    pub width: usize,
    pub dtype: Dtype,
}

/// Rows in one kind of memory.
enum Rows {
    /// A matrix of the device.
    Resident(CudaMatrix),
    /// Codes, rows that the host decodes, or rows of the host.
    Stored(Box<dyn Store<Cuda>>),
}

/// Gather under way: rows of its result may be read after [`finish`](Self::finish).
pub struct Gather {
    /// Before the memory that it writes.
    pending: Option<Pending<'static>>,
    out: CudaMatrix,
    /// Rows that are read, which `pending` borrows.
    _held: Arc<Held>,
}

impl Gather {
    /// Result, in the order of the device.
    pub fn finish(mut self) -> Result<CudaMatrix, ComputeError> {
        self.pending.take().map_or(Ok(()), |pending| pending.wait())?;
        Ok(self.out)
    }
}

impl Held {
    /// Whether a gather overlaps other work of the device, so that it pays to start it early.
    pub fn overlaps(&self) -> bool {
        matches!(*self.rows, Rows::Stored(_))
    }

    /// Starts to gather rows. `ids` has to stay until the gather is finished or dropped.
    pub fn begin(self: &Arc<Self>, ids: &CudaIds, n: usize) -> Result<Gather, ComputeError> {
        let mut out = self.cuda.uninitialized(Shape::new(n, self.width), self.dtype)?;
        let pending = match &*self.rows {
            Rows::Resident(rows) => {
                self.cuda.gather_rows(rows, ids, &mut out)?;
                None
            }
            Rows::Stored(store) => {
                let pending = store.gather_async(&self.cuda, ids, None, &mut out)?;
                // SAFETY: the gather borrows the store, which stands in the `Arc` that is kept with it and dropped
                // after it.
                Some(unsafe { std::mem::transmute::<Pending<'_>, Pending<'static>>(pending) })
            }
        };
        Ok(Gather { pending, out, _held: Arc::clone(self) })
    }
}

/// Place of rows: all on the GPU, or all on the host but for a share of hot ones.
#[derive(Clone, Copy)]
enum Place {
    Device,
    Host(f64),
}

impl Place {
    fn parse(placement: &str, cache: f64) -> PyResult<Self> {
        if !(0.0..=1.0).contains(&cache) {
            return Err(value_error(format!("cache is {cache}; give a share of the rows, from 0 to 1")));
        }
        match placement {
            "device" if cache == 0.0 => Ok(Self::Device),
            "device" => {
                Err(value_error("rows on the device need no cache; leave cache out, or give placement=\"host\""))
            }
            "host" => Ok(Self::Host(cache)),
            "sharded" => Err(pyo3::exceptions::PyNotImplementedError::new_err(
                "rows sharded over several GPUs are for girih.train(device=\"cuda\", world=…); here there are \"device\" and \"host\"",
            )),
            other => Err(value_error(format!("no placement {other:?}; there are \"device\" and \"host\""))),
        }
    }

    /// Placement of the rows of the host; hot are the nodes that most nodes of the graph read.
    fn placement(self, n_rows: usize, graph: Option<&Csr>) -> Option<Placement> {
        let Self::Host(share) = self else { return None };
        let shares = CacheShares { every_gpu: share, one_gpu: 0.0 };
        let order: Vec<NodeId> = match graph {
            Some(graph) => Hotness::InDegree.frequencies(graph, &[], &Visits::default()).features.order().to_vec(),
            None => (0..n_rows as NodeId).collect(),
        };
        Some(Placement::of_shares(&order, shares, 1))
    }
}

/// Rows that the host decodes one by one.
struct Decoded(Arc<Features>);

impl HostRows for Decoded {
    fn shape(&self) -> Shape {
        Shape::new(self.0.n_rows(), self.0.width())
    }

    fn read(&self, first: usize, out: &mut [f32]) {
        self.0.rows().read_rows(first, out).expect("rows in memory, or mapped");
    }
}

/// Rows of features as a device has them.
fn upload(
    cuda: &Cuda,
    features: &Arc<Features>,
    dtype: Dtype,
    placement: Option<&Placement>,
) -> Result<Rows, ComputeError> {
    let placed = placement.map(|placement| (placement, HostReads::Auto));
    let as_stored = match (&**features, placed) {
        (Features::Dense(rows), None) => return cuda.upload(rows, dtype).map(Rows::Resident),
        (Features::Dense(rows), Some(placed)) => cuda.host_features(rows, dtype, placed)?.map(|made| made.reader),
        (Features::Compressed(codes), placed) => cuda.code_rows(codes, dtype, placed)?,
        (Features::Sparse(_), _) => None,
    };
    let decoded = || {
        let rows: Arc<dyn HostRows> = Arc::new(Decoded(Arc::clone(features)));
        cuda.decoded_rows(&rows, dtype, placement)
    };
    as_stored.map_or_else(decoded, Ok).map(Rows::Stored)
}

fn dtype_of(name: &str) -> PyResult<Dtype> {
    match name {
        "float32" => Ok(Dtype::F32),
        "bfloat16" => Ok(Dtype::Bf16),
        other => Err(value_error(format!("no dtype {other:?}; there are \"float32\" and \"bfloat16\""))),
    }
}

#[pymethods]
impl CudaFeatures {
    /// Rows for a GPU and a stream. `placed` is "device" or "host", and a share of hot rows that are on the device,
    /// too; hot by the in-degrees of `graph`, else the first rows.
    #[new]
    fn new(
        py: Python<'_>,
        store: &Bound<'_, FeatureStore>,
        at: At,
        placed: (String, f64),
        dtype: &str,
        graph: Option<&Bound<'_, Graph>>,
    ) -> PyResult<Self> {
        let (features, place, dtype) = (&store.get().features, Place::parse(&placed.0, placed.1)?, dtype_of(dtype)?);
        let (cuda, n_rows) = (guest(py, at)?, features.n_rows());
        let graph = graph.map(|graph| graph.get().csr.clone());
        if let Some(graph) = &graph
            && graph.n_rows() != n_rows
        {
            return Err(value_error(format!("features of {n_rows} rows for a graph of {} nodes", graph.n_rows())));
        }
        if let Features::Compressed(codes) = &**features {
            on_pool(py, || codes.check_codes())?.map_err(of_features)?;
        }
        let work = || upload(&cuda, features, dtype, place.placement(n_rows, graph.as_ref()).as_ref());
        let rows = on_pool(py, || cuda.with_context(work))?.map_err(of_compute)?;
        let (rows, width) = (OnGpu::new(rows, &cuda), features.width());
        Ok(Self { held: Arc::new(Held { cuda, at, rows, n_rows, width, dtype }) })
    }

    /// Rows of `ids`, which lie on the host. Behind its columns the array has a gap.
    fn gather(&self, py: Python<'_>, ids: &Bound<'_, PyAny>) -> PyResult<DeviceArray> {
        let held = &self.held;
        let ids = node_ids("id", ids, held.n_rows)?;
        let out = on_gpu(py, &held.cuda, || {
            let on_device = held.cuda.upload_ids(&ids)?;
            let rows = held.begin(&on_device, ids.len())?.finish()?;
            Ok(Arc::new(rows))
        })?;
        Ok(DeviceArray::of_matrix(&out, ids.len(), held.dtype, (&held.cuda, held.at)))
    }

    #[getter]
    fn shape(&self) -> (usize, usize) {
        (self.held.n_rows, self.held.width)
    }

    #[getter]
    fn dtype(&self) -> &'static str {
        if self.held.dtype == Dtype::F32 { "float32" } else { "bfloat16" }
    }

    /// Ordinal of the GPU.
    #[getter]
    fn device(&self) -> usize {
        self.held.at.0
    }

    fn __len__(&self) -> usize {
        self.held.n_rows
    }

    fn __repr__(&self) -> String {
        let Held { n_rows, width, at, .. } = &*self.held;
        format!("girih.cuda.FeatureStore(shape=({n_rows}, {width}), dtype={}, device=cuda:{})", self.dtype(), at.0)
    }
}
