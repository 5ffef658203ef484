//! CUDA graph capture and replay of a training step: [`Backend::repeat`].
//!
//! ```text
//! first step          runs: makes transposes, compiles kernels, fills the buffer pool of its caller
//! second step         runs and is watched: does it wait, upload or allocate memory that outlives it?
//! third step          if it does none of these, is captured and launched for the first time
//! all later steps     are replays; changing values go to a page on the device before each
//! ```
//! A step that cannot be captured runs eagerly each time.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode, cuDeviceGraphMemTrim};
use cudarc::driver::{CudaGraph, CudaStream, DriverError};
use girih_compute::{Backend, ComputeError, StepInputs};

use crate::buffer::Buffer;
use crate::cuda::Cuda;
use crate::error::explain;
use crate::recorder::{Now, OPERATION, Seen, n_words, words};

/// Most steps that are watched. A step that misses a buffer the first time may find it the next time.
const WATCHED_MAX: u32 = 3;
/// Reason noted by a rank whose own step could be captured, but not that of another rank.
const OTHERS: &str = "cannot be captured on another rank";
/// Bytes of free memory that a graph leaves to others.
const SPARE_BYTES: usize = 256 << 20;

/// Capture state of a step that repeats on a [`Cuda`] device.
#[derive(Default)]
pub struct Recording(Stage);

#[derive(Default)]
enum Stage {
    /// The step has not run yet.
    #[default]
    New,
    /// The step has run. It was watched `n_watched` times and did something that cannot be captured.
    Known {
        n_watched: u32,
    },
    /// The step can be captured; it allocates `n_bytes` in all.
    Fit {
        n_bytes: usize,
    },
    Captured(Box<Graph>),
    /// The step cannot be captured.
    Unfit,
}

/// Captured step as a CUDA graph.
struct Graph {
    graph: CudaGraph,
    stream: Arc<CudaStream>,
    /// Words on the device that the graph reads and that change from step to step: rates, then keys.
    page: Buffer<u32>,
}

impl Graph {
    fn launch(&mut self, inputs: &StepInputs) -> Result<(), DriverError> {
        // The driver stages the words before the call returns, and writes them to the page in stream order.
        self.stream.memcpy_htod(&words(inputs), &mut self.page)?;
        self.graph.launch()
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let Stage::Captured(graph) = std::mem::take(&mut self.0) else { return };
        let stream = Arc::clone(&graph.stream);
        drop(graph);
        // After a failure of the device neither call can succeed, and nothing is lost.
        let _ = stream.context().bind_to_thread();
        // SAFETY: the device is that of a context; memory that graphs still use is not returned.
        let _ = unsafe { cuDeviceGraphMemTrim(stream.context().cu_device()) };
    }
}

impl Backend for Cuda {
    type Recording = Recording;

    fn repeat<E: From<ComputeError> + fmt::Display>(
        &self,
        recording: &mut Recording,
        inputs: &StepInputs,
        step: &mut dyn FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        if !self.recorder.enabled {
            return step();
        }
        match &mut recording.0 {
            Stage::New => {
                step()?;
                recording.0 = Stage::Known { n_watched: 0 };
            }
            Stage::Known { n_watched } => {
                let n_watched = *n_watched + 1;
                let Seen { obstacle: mine, n_bytes } = self.watched(inputs, step)?;
                let obstacle = if self.all_agree(mine.is_none())? { None } else { mine.or(Some(OTHERS)) };
                recording.0 = stage_after(n_watched, Seen { obstacle, n_bytes });
            }
            Stage::Fit { n_bytes } => {
                recording.0 = self.first_launch(inputs, *n_bytes, step)?;
            }
            Stage::Captured(graph) if graph.page.len() == n_words(inputs) => {
                if let Some(peers) = self.peers() {
                    peers.meet().map_err(|error| ComputeError::device(OPERATION, error.to_string()))?;
                }
                graph.launch(inputs).map_err(Self::failed(OPERATION))?;
                self.recorder.n_repeated.fetch_add(1, Ordering::Relaxed);
            }
            // The number of keys has changed: this is another step.
            Stage::Captured(_) => {
                *recording = Recording::default();
                return self.repeat(recording, inputs, step);
            }
            Stage::Unfit => step()?,
        }
        Ok(())
    }
}

impl Cuda {
    /// Enables or disables CUDA graphs for training steps; they are enabled by default. With graphs the host launches
    /// a whole step at once. Without them, profilers and checkers report single operations.
    #[must_use]
    pub fn recording(mut self, enabled: bool) -> Self {
        self.recorder.enabled = enabled;
        self
    }

    /// Number of training steps replayed as graphs since the backend was created.
    #[must_use]
    pub fn n_repeated(&self) -> u64 {
        self.recorder.n_repeated.load(Ordering::Relaxed)
    }

    /// Runs a step and returns the observations about it.
    fn watched<E>(&self, inputs: &StepInputs, step: &mut dyn FnMut() -> Result<(), E>) -> Result<Seen, E> {
        *self.recorder.now() = Now::Watched { inputs: inputs.clone(), seen: Seen::default() };
        let done = step();
        let seen = std::mem::take(&mut *self.recorder.now());
        done.map(|()| match seen {
            Now::Watched { seen, .. } => seen,
            Now::Neither | Now::Captured { .. } => Seen::default(),
        })
    }

    /// Captures a step that allocates `n_bytes` and launches it; runs it eagerly if capture fails.
    fn first_launch<E: From<ComputeError> + fmt::Display>(
        &self,
        inputs: &StepInputs,
        n_bytes: usize,
        step: &mut dyn FnMut() -> Result<(), E>,
    ) -> Result<Stage, E> {
        // Ranks capture together, because they tell each other the addresses of rows in some exchanges.
        let room = self.check_memory(n_bytes);
        let captured = match self.all_agree(room.is_ok())? {
            true => self.capture(inputs, step),
            false => room.and(Err(OTHERS.to_owned())),
        };
        // Either all ranks launch graphs, which contain their exchanges, or none does.
        let captured = if self.all_agree(captured.is_ok())? { captured } else { captured.and(Err(OTHERS.to_owned())) };
        match captured {
            Ok(mut graph) => {
                graph.launch(inputs).map_err(Self::failed(OPERATION))?;
                self.recorder.n_repeated.fetch_add(1, Ordering::Relaxed);
                Ok(Stage::Captured(Box::new(graph)))
            }
            Err(why) => {
                tracing::debug!("a step runs without a graph: {why}");
                // Frees during capture are noted as an error of the context, which the next operation would report as
                // its own. A failure of the device itself would be reported again.
                let _ = self.device.stream.context().check_err();
                step()?;
                Ok(Stage::Unfit)
            }
        }
    }

    /// Whether all ranks of the device agree; `mine` if the device works alone.
    fn all_agree(&self, mine: bool) -> Result<bool, ComputeError> {
        let Some(peers) = self.peers() else { return Ok(mine) };
        peers.agree(mine).map_err(|error| ComputeError::device(OPERATION, error.to_string()))
    }

    /// Captures a step with all memory that it takes, and runs nothing. The error says why capture failed.
    fn capture<E: fmt::Display>(
        &self,
        inputs: &StepInputs,
        step: &mut dyn FnMut() -> Result<(), E>,
    ) -> Result<Graph, String> {
        let stream = &self.device.stream;
        let failed = |error: DriverError| explain(error.0);
        let page = stream.alloc_zeros::<u32>(n_words(inputs)).map(Buffer::from).map_err(failed)?;
        let address = self.pointer(Some(&page));
        stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).map_err(failed)?;
        *self.recorder.now() = Now::Captured { inputs: inputs.clone(), page: address };
        let done = step();
        *self.recorder.now() = Now::Neither;
        // Exchanges by NCCL keep the priority of the stream on which they were begun.
        let keeps_priorities = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
        let captured = stream.end_capture(keeps_priorities);
        done.map_err(|error| error.to_string())?;
        let graph = captured.map_err(failed)?.ok_or("nothing was captured")?;
        // The upload takes the memory of the graph now, so that no launch can fail for lack of it.
        graph.upload().map_err(failed)?;
        Ok(Graph { graph, stream: Arc::clone(stream), page })
    }

    /// Checks that a graph may take `n_bytes` of intermediates a second time, besides the memory that the pool keeps.
    /// A graph must not take memory that others will ask for: a run that fits without graphs fits with them.
    fn check_memory(&self, n_bytes: usize) -> Result<(), String> {
        if !self.device.stream.context().has_async_alloc() {
            return Err(NoGraph::NoPool.to_string());
        }
        let kept = self.device.kept_bytes().map_err(|error| error.to_string())?;
        let free = self.device.unused_bytes().map_err(|error| error.to_string())?;
        // The allocations are not all live at once, and they came from the memory that the pool keeps now.
        let wanted = n_bytes.min(kept);
        if free < wanted + SPARE_BYTES {
            return Err(NoGraph::LittleMemory { wanted, free }.to_string());
        }
        Ok(())
    }
}

/// Next stage of a step that was watched for the `n_watched`th time.
fn stage_after(n_watched: u32, Seen { obstacle, n_bytes }: Seen) -> Stage {
    match obstacle {
        None => Stage::Fit { n_bytes },
        Some(_) if n_watched < WATCHED_MAX => Stage::Known { n_watched },
        Some(what) => {
            tracing::debug!("steps run without a graph: each {what}");
            Stage::Unfit
        }
    }
}

/// Reason not to try to capture a step.
#[derive(Debug, thiserror::Error)]
enum NoGraph {
    #[error("the GPU does not support stream-ordered allocation")]
    NoPool,
    #[error("it would take up to {wanted} bytes, and {free} are free")]
    LittleMemory { wanted: usize, free: usize },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_is_not_captured_says_why() {
        assert_eq!(NoGraph::NoPool.to_string(), "the GPU does not support stream-ordered allocation");
        let little = NoGraph::LittleMemory { wanted: 300, free: 200 };
        assert_eq!(little.to_string(), "it would take up to 300 bytes, and 200 are free");
    }

    #[test]
    fn a_step_is_watched_until_it_is_fit_or_patience_ends() {
        let seen = |obstacle| Seen { obstacle, n_bytes: 7 };
        assert!(matches!(stage_after(1, seen(None)), Stage::Fit { n_bytes: 7 }));
        assert!(matches!(stage_after(1, seen(Some("waits"))), Stage::Known { n_watched: 1 }));
        assert!(matches!(stage_after(WATCHED_MAX, seen(Some("waits"))), Stage::Unfit));
    }
}
