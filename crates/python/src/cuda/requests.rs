//! `CudaRequests`: batches on a GPU whose seeds come one by one, such as the ends of links.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use girih_sampling::DrawKey;
use pyo3::prelude::*;

use super::batch::CudaBatch;
use super::feeder::{Batches, Planned, Source};
use crate::arrays::node_ids;
use crate::errors::value_error;

/// Batches that are requested one by one, and come in this order.
///
/// The thread that makes them asks for two batches behind the one that it hands over, and makes the next one ahead: a
/// batch comes at once if the three behind it are requested, or all were.
#[pyclass(frozen, module = "girih._girih")]
pub struct CudaRequests {
    requests: Mutex<Option<Requests>>,
    batches: Batches,
    source: Arc<Source>,
}

/// Way to the thread, until all batches are requested.
struct Requests {
    sender: Sender<Planned>,
    /// Number of the next batch.
    number: usize,
}

impl CudaRequests {
    pub fn start(py: Python<'_>, source: &Arc<Source>) -> PyResult<Self> {
        let (sender, plan) = channel();
        let batches = Batches::start(py, source, plan.into_iter())?;
        let requests = Mutex::new(Some(Requests { sender, number: 0 }));
        Ok(Self { requests, batches, source: Arc::clone(source) })
    }

    fn requests(&self) -> MutexGuard<'_, Option<Requests>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for CudaRequests {
    /// Lets the thread end, which waits for requests.
    fn drop(&mut self) {
        let requests = self.requests.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if self.batches.is_forked() {
            // A lock of the channel may be held for ever.
            std::mem::forget(requests);
        }
    }
}

#[pymethods]
impl CudaRequests {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// Requests a batch of distinct seeds, whose draws follow `seed`.
    fn request(&self, seeds: &Bound<'_, PyAny>, seed: u64) -> PyResult<()> {
        let seeds = node_ids("seed", seeds, self.source.core.n_nodes())?;
        let mut requests = self.requests();
        let Some(Requests { sender, number }) = requests.as_mut() else {
            return Err(value_error("all batches were requested already; begin anew"));
        };
        let planned = Planned { seeds, key: DrawKey::new(seed, 0, 0), number: *number };
        *number += 1;
        // A thread that has ended tells why in place of a batch.
        let _ = sender.send(planned);
        Ok(())
    }

    /// Tells that all batches were requested.
    fn finish(&self) {
        *self.requests() = None;
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<CudaBatch>> {
        self.batches.next(py)
    }

    /// Ends before the last batch; asking for another one is an error then.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.finish();
        self.batches.close(py)
    }
}
