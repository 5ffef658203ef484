//! [`Prepared`]: operands of the blocks of a batch, and its list of edges, made with it for those who will ask for them.
//!
//! A training asks for the same of every batch. A loader makes what was asked for of the batches before.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use girih_compute::ComputeError;
use girih_kernels::{CudaSparse, DeviceEdgeList, IndexWidth, SampledBatch, Scaling};
use pyo3::PyResult;

use super::graph::Held;
use crate::core::Form;
use crate::nn::Kind;

/// Hop of a block, and kind of an operand of it.
type Key = (usize, Kind);

/// Requests of a training for what its batches are to have.
#[derive(Default)]
pub struct Wanted {
    /// Operands, and whether layers multiplied by the transposes.
    operands: Mutex<HashMap<Key, bool>>,
    /// Whether the list of edges was.
    list: AtomicBool,
}

impl Wanted {
    fn operands(&self) -> MutexGuard<'_, HashMap<Key, bool>> {
        self.operands.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Operands and list of one batch.
pub struct Prepared {
    wanted: Arc<Wanted>,
    made: Mutex<HashMap<Key, Operand>>,
    list: OnceLock<Arc<DeviceEdgeList>>,
    uses_list: AtomicBool,
}

/// Operand, and whether a layer asked for it.
struct Operand {
    matrix: Arc<CudaSparse>,
    is_used: bool,
}

/// The list of edges of a batch.
pub fn list_of(batch: &SampledBatch, graph: &Held, form: Form) -> Result<DeviceEdgeList, ComputeError> {
    let width = if form.wide { IndexWidth::Wide } else { IndexWidth::Narrow };
    batch.edge_list(&graph.cuda, graph.names(), width)
}

/// Scaling and loops by which the GPU makes an operand; `None` if the host makes it.
pub fn scaling(kind: Kind, graph: &Held, has_repeats: bool) -> Option<(Scaling, bool)> {
    let of_kind = match kind {
        Kind::Sum | Kind::Weights => (Scaling::Ones, false),
        Kind::Mean => (Scaling::Mean, false),
        Kind::Pattern { loops } => (Scaling::Ones, loops),
        Kind::Gcn { loops, estimated: false, .. } => (Scaling::Sampled, loops),
        Kind::Gcn { loops, .. } if graph.csr.values().is_none() => (Scaling::Estimated, loops),
        Kind::Gcn { .. } => return None,
    };
    // A loop that the graph stores may be drawn, and counts as the node's own.
    let is_merged = has_repeats || of_kind.1 && graph.has_loops();
    (!is_merged).then_some(of_kind)
}

impl Prepared {
    /// Makes what is wanted of a batch.
    pub fn of(wanted: &Arc<Wanted>, batch: &SampledBatch, graph: &Held, form: Form) -> Result<Self, ComputeError> {
        let keys: Vec<(Key, bool)> =
            wanted.operands().iter().map(|(key, is_transposed)| (*key, *is_transposed)).collect();
        let mut made = HashMap::new();
        for ((hop, kind), is_transposed) in keys {
            let Some((scaling, loops)) = scaling(kind, graph, form.has_repeats) else { continue };
            let operand = batch.operand(&graph.cuda, hop, scaling, loops)?;
            if is_transposed {
                graph.cuda.prepare_transpose(&operand)?;
            }
            made.insert((hop, kind), Operand { matrix: Arc::new(operand), is_used: false });
        }
        let list = OnceLock::new();
        if wanted.list.load(Ordering::Relaxed) && batch.is_list() {
            let _ = list.set(Arc::new(list_of(batch, graph, form)?));
        }
        let (wanted, uses_list) = (Arc::clone(wanted), AtomicBool::new(false));
        Ok(Self { wanted, made: Mutex::new(made), list, uses_list })
    }

    /// Whether the list of edges has been made.
    pub fn has_list(&self) -> bool {
        self.list.get().is_some()
    }

    /// The list of edges, which `make` makes if it is missing.
    pub fn list(&self, make: impl FnOnce() -> PyResult<DeviceEdgeList>) -> PyResult<&Arc<DeviceEdgeList>> {
        self.uses_list.store(true, Ordering::Relaxed);
        if let Some(list) = self.list.get() {
            return Ok(list);
        }
        let made = make()?;
        Ok(self.list.get_or_init(|| Arc::new(made)))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Operand>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Operand of a block, which `make` makes if it is missing.
    pub fn get(
        &self,
        key: Key,
        make: impl FnOnce() -> Result<CudaSparse, ComputeError>,
    ) -> Result<Arc<CudaSparse>, ComputeError> {
        if let Some(found) = self.lock().get_mut(&key) {
            found.is_used = true;
            return Ok(Arc::clone(&found.matrix));
        }
        self.wanted.operands().entry(key).or_default();
        let made = Operand { matrix: Arc::new(make()?), is_used: true };
        Ok(Arc::clone(&self.lock().entry(key).or_insert(made).matrix))
    }
}

impl Drop for Prepared {
    /// Tells what the next batches are to have.
    fn drop(&mut self) {
        self.wanted.list.store(*self.uses_list.get_mut(), Ordering::Relaxed);
        let mut wanted = self.wanted.operands();
        for (key, operand) in self.lock().iter() {
            if !operand.is_used {
                wanted.remove(key);
            } else if operand.matrix.has_transpose() {
                wanted.insert(*key, true);
            }
        }
    }
}
