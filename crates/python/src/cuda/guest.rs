//! Devices of GPUs that are shared with another library, one for each stream.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use girih_compute::{ComputeError, Dtype};
use girih_kernels::{Cuda, Device, MemoryPool, keeping_context};
use pyo3::exceptions::{PyMemoryError, PyRuntimeError};
use pyo3::prelude::*;

use super::release;
use crate::errors::value_error;
use crate::threads::without_gil;

/// GPU by its ordinal, and a stream of the other library by its handle.
pub type At = (usize, u64);

/// Holder of memory of a GPU. It is dropped with the context of the GPU current, whichever thread drops it; the current
/// context of the thread stays as it is.
#[derive(Clone)]
pub struct OnGpu<T> {
    held: ManuallyDrop<T>,
    cuda: Arc<Cuda>,
}

impl<T> OnGpu<T> {
    pub fn new(held: T, cuda: &Arc<Cuda>) -> Self {
        Self { held: ManuallyDrop::new(held), cuda: Arc::clone(cuda) }
    }
}

impl<T> Deref for OnGpu<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.held
    }
}

impl<T> Drop for OnGpu<T> {
    fn drop(&mut self) {
        let Self { held, cuda } = self;
        // SAFETY: it is dropped once, and not used again.
        cuda.with_context(|| unsafe { ManuallyDrop::drop(held) });
    }
}

/// Devices that were made, and the pools of their GPUs. They stay until the process ends: memory that other libraries
/// took over refers to them.
#[derive(Default)]
struct Guests {
    process: u32,
    limits: HashMap<usize, usize>,
    pools: HashMap<usize, Arc<MemoryPool>>,
    devices: HashMap<(At, bool), Arc<Cuda>>,
}

static GUESTS: Mutex<Option<Guests>> = Mutex::new(None);

fn guests() -> MutexGuard<'static, Option<Guests>> {
    GUESTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Fails in a child of a process that used CUDA, where CUDA does not work.
fn check_process(guests: &Guests) -> PyResult<()> {
    if guests.process == std::process::id() {
        return Ok(());
    }
    Err(PyRuntimeError::new_err(
        "CUDA does not survive a fork; begin worker processes by multiprocessing.set_start_method(\"spawn\")",
    ))
}

/// Runs work on a GPU, without the GIL. The current context of the thread stays as it is.
pub fn on_gpu<T: Send>(
    py: Python<'_>,
    cuda: &Cuda,
    work: impl FnOnce() -> Result<T, ComputeError> + Send,
) -> PyResult<T> {
    without_gil(py, || cuda.with_context(work))?.map_err(of_compute)
}

/// Exception of a failure on a device.
pub fn of_compute(error: ComputeError) -> PyErr {
    if error.is_out_of_memory() {
        PyMemoryError::new_err(error.to_string())
    } else if error.is_device_failure() {
        PyRuntimeError::new_err(error.to_string())
    } else {
        value_error(error)
    }
}

impl Guests {
    fn pool(&mut self, ordinal: usize) -> Result<Arc<MemoryPool>, String> {
        if let Some(pool) = self.pools.get(&ordinal) {
            return Ok(Arc::clone(pool));
        }
        let limit = self.limits.get(&ordinal).copied();
        let pool = Arc::new(MemoryPool::new(ordinal, limit).map_err(|error| error.to_string())?);
        self.pools.insert(ordinal, Arc::clone(&pool));
        Ok(pool)
    }

    fn device(&mut self, at: At, dtype: Dtype) -> Result<Arc<Cuda>, String> {
        let pool = self.pool(at.0)?;
        match self.devices.entry((at, dtype == Dtype::Bf16)) {
            Entry::Occupied(device) => Ok(Arc::clone(device.get())),
            Entry::Vacant(place) => {
                // SAFETY: the streams of PyTorch live as long as the process, as those do that callers name.
                let device = unsafe { Device::guest(at.0, at.1, &pool) }.map_err(|error| error.to_string())?;
                Ok(Arc::clone(place.insert(Arc::new(Cuda::new(device).storing(dtype)))))
            }
        }
    }
}

/// Runs `work` on the guests of this process.
fn with_guests<T: Send>(py: Python<'_>, work: impl FnOnce(&mut Guests) -> Result<T, String> + Send) -> PyResult<T> {
    let made = || Guests { process: std::process::id(), ..Guests::default() };
    check_process(guests().get_or_insert_with(made))?;
    let run = || keeping_context(|| work(guests().get_or_insert_with(made)));
    without_gil(py, run)?.map_err(value_error)
}

/// Device of a GPU and a stream, made at the first call.
pub fn guest(py: Python<'_>, at: At) -> PyResult<Arc<Cuda>> {
    guest_storing(py, at, Dtype::F32)
}

/// As [`guest`], for products with operands of two types, which are then rounded to `dtype`.
pub fn guest_storing(py: Python<'_>, at: At, dtype: Dtype) -> PyResult<Arc<Cuda>> {
    let found = guests()
        .as_ref()
        .filter(|guests| guests.process == std::process::id())
        .and_then(|guests| guests.devices.get(&(at, dtype == Dtype::Bf16)).cloned());
    found.map_or_else(|| with_guests(py, |guests| guests.device(at, dtype)), Ok)
}

/// Bytes in use by this package on a GPU, and bytes that its pool has of the GPU.
#[pyfunction]
pub fn cuda_memory(py: Python<'_>, ordinal: usize) -> PyResult<(u64, u64)> {
    without_gil(py, release::wait)?;
    with_guests(py, |guests| match guests.pools.get(&ordinal) {
        Some(pool) => pool.bytes().map_err(|error| error.to_string()),
        None => Ok((0, 0)),
    })
}

/// Returns memory to a GPU that this package does not use.
#[pyfunction]
pub fn cuda_empty_cache(py: Python<'_>, ordinal: usize) -> PyResult<()> {
    without_gil(py, release::wait)?;
    with_guests(py, |guests| match guests.pools.get(&ordinal) {
        Some(pool) => pool.trim().map_err(|error| error.to_string()),
        None => Ok(()),
    })
}

/// Limits the bytes that this package takes of a GPU, before it takes any.
#[pyfunction]
pub fn cuda_set_memory_limit(py: Python<'_>, ordinal: usize, bytes: usize) -> PyResult<()> {
    with_guests(py, |guests| {
        if guests.pools.contains_key(&ordinal) {
            return Err(format!("memory of cuda:{ordinal} is in use already; set the limit before anything else"));
        }
        if bytes == 0 {
            return Err("a limit of 0 bytes leaves no memory; give a number of bytes".to_owned());
        }
        guests.limits.insert(ordinal, bytes);
        Ok(())
    })
}
