//! [`Repeated`]: CUDA graph capture and replay of the launches of a batch. Most of these launches take the host
//! longer than they take the device.
//!
//! All values that change from batch to batch lie on the batch's page. So the launches of a sampler into the same
//! memory never change. The first batch launches them one by one, which loads their code; the second captures them.

use std::sync::Arc;

use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaGraph, CudaStream};
use girih_compute::ComputeError;

use super::OPERATION;
use crate::Cuda;
use crate::error::explain;

/// Identity of a sampler, unique as long as anybody holds it.
pub(super) type Identity = Arc<()>;

/// Capture state of the launches into the memory of a batch.
#[derive(Default)]
pub(super) enum Repeated {
    /// Nothing has been launched.
    #[default]
    New,
    /// A sampler has launched them once.
    Known(Identity),
    Captured(Identity, BatchGraph),
    /// The launches cannot be captured.
    Unfit(Identity),
}

/// Captured launches of a sampler into the memory of a batch.
pub(super) struct BatchGraph(CudaGraph);

// SAFETY: the driver lets any thread use a graph, one at a time; it is used through `&mut` alone.
unsafe impl Send for BatchGraph {}
// SAFETY: as above; a shared reference offers nothing.
unsafe impl Sync for BatchGraph {}

impl BatchGraph {
    fn capture(stream: &Arc<CudaStream>, launch: impl FnOnce() -> Result<(), ComputeError>) -> Result<Self, String> {
        let failed = |error: cudarc::driver::DriverError| explain(error.0);
        stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).map_err(failed)?;
        let done = launch();
        let captured = stream.end_capture(CUgraphInstantiate_flags(0));
        done.map_err(|error| error.to_string())?;
        Ok(Self(captured.map_err(failed)?.ok_or("nothing was captured")?))
    }

    fn launch(&mut self) -> Result<(), ComputeError> {
        self.0.launch().map_err(Cuda::failed(OPERATION))
    }
}

impl Repeated {
    /// Runs the launches of a sampler, captured if possible; returns the new state.
    pub(super) fn run(
        self,
        cuda: &Cuda,
        sampler: &Identity,
        launch: impl Fn() -> Result<(), ComputeError>,
    ) -> Result<Self, ComputeError> {
        match self {
            Self::Captured(of, mut graph) if Arc::ptr_eq(&of, sampler) => {
                graph.launch()?;
                Ok(Self::Captured(of, graph))
            }
            Self::Known(of) if Arc::ptr_eq(&of, sampler) && cuda.recorder.is_enabled() => {
                match BatchGraph::capture(&cuda.device.stream, &launch) {
                    Ok(mut graph) => {
                        graph.launch()?;
                        Ok(Self::Captured(of, graph))
                    }
                    Err(why) => {
                        tracing::debug!("batches are sampled without a graph: {why}");
                        launch()?;
                        Ok(Self::Unfit(of))
                    }
                }
            }
            Self::Unfit(of) if Arc::ptr_eq(&of, sampler) => {
                launch()?;
                Ok(Self::Unfit(of))
            }
            _ => {
                launch()?;
                Ok(Self::Known(Arc::clone(sampler)))
            }
        }
    }
}
