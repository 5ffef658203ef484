//! [`Uploaded`]: operands of layers on GPUs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use girih_compute::ComputeError;
use girih_kernels::{Cuda, CudaSparse};

use super::kind::Kind;
use crate::cuda::guest::{At, OnGpu};

type Operand = OnGpu<Arc<CudaSparse>>;

/// Operands on GPUs, made when they are first asked for, by kind, GPU and stream.
#[derive(Default)]
pub struct Uploaded(Mutex<HashMap<(Kind, At), Operand>>);

impl Uploaded {
    /// Operand of a key, which `make` makes if it is missing.
    pub fn get(
        &self,
        key: (Kind, At),
        cuda: &Arc<Cuda>,
        make: impl FnOnce() -> Result<CudaSparse, ComputeError>,
    ) -> Result<Arc<CudaSparse>, ComputeError> {
        let uploaded = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = uploaded().get(&key) {
            return Ok(Arc::clone(found));
        }
        // Made outside the lock: it may run on all threads.
        let made = OnGpu::new(Arc::new(make()?), cuda);
        Ok(Arc::clone(uploaded().entry(key).or_insert(made)))
    }
}

/// Error of an operand that cannot be made.
pub fn refused(what: String) -> ComputeError {
    ComputeError::argument("girih.nn", what)
}
