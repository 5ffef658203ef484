//! [`SessionOptions`], [`Event`] and [`Outcome`]: what a training session is asked for, reports and results in.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use super::report::{BatchDone, CacheReport, EpochReport, EpochTimes, RunSummary, TestReport};
use super::thinned::Thinned;
use crate::config::Arrangement;

/// Options of a session besides the training itself.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// Folder for checkpoints, one file per run ([`checkpoint_path`]); `None` for no checkpoints.
    pub checkpoints: Option<PathBuf>,
    /// Number of epochs between two checkpoints of a run. The end of a run is always written.
    pub checkpoint_every: Option<u64>,
    /// If true, runs continue from existing checkpoints.
    pub resume: bool,
    /// Whether this rank writes checkpoints: exactly one of several ranks does. All ranks may read them.
    pub writes: bool,
    /// Cancellation flag with the effect of [`Control::Stop`]. Each rank reads its own flag. Setting it on any rank
    /// stops all ranks.
    pub stop: Option<&'static AtomicBool>,
    /// Device and ranks, for the checkpoints. A resumed run warns if they changed. `None`: not recorded.
    pub arrangement: Option<Arrangement>,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self { checkpoints: None, checkpoint_every: None, resume: false, writes: true, stop: None, arrangement: None }
    }
}

impl SessionOptions {
    /// Combines an observer's answer with the cancellation flag.
    pub(crate) fn control(&self, observed: Control) -> Control {
        let is_asked = self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed));
        if is_asked { Control::Stop } else { observed }
    }
}

/// Event of a training session.
#[derive(Clone, Debug)]
pub enum Event<'e> {
    /// Graph and features are on the device.
    Prepared,
    /// A run starts, or continues after `epochs_done`.
    RunStarted {
        /// Number of the run, from 0.
        run: u64,
        /// Epochs that the checkpoint had already done.
        epochs_done: u64,
        /// Hash of the whole checkpoint, if the run continues from one.
        checkpoint: Option<u32>,
    },
    /// A mini-batch is done that is not the last one of its epoch.
    Batch {
        /// Number of the run, from 0.
        run: u64,
        /// Progress of the epoch.
        done: BatchDone,
    },
    /// An epoch is done.
    Epoch {
        /// Number of the run, from 0.
        run: u64,
        /// Report of the epoch.
        report: &'e EpochReport,
    },
    /// A run is done.
    RunFinished(&'e RunSummary),
}

/// Answer of the observer of [`train`](crate::train()).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// Go on.
    Continue,
    /// Write a checkpoint and stop.
    Stop,
}

/// Callback for events of training. Its answer tells whether to continue.
pub type Observer<'o> = dyn FnMut(Event<'_>) -> Control + Send + 'o;

/// Result of a training session.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Summaries of all runs that evaluated at least once, in order.
    pub runs: Vec<RunSummary>,
    /// Test report for the best parameters of the last run.
    pub test: Option<TestReport>,
    /// Times of the epochs of this session; every k-th of very many.
    pub times: Thinned<EpochTimes>,
    /// Relative error of the logits for these parameters, from rounding operands before they are sent
    /// ([`Run::wire_error`](crate::Run::wire_error)).
    pub wire_error: Option<f64>,
    /// Cache reports of features and graph; empty if devices held all of both.
    pub tiers: Vec<CacheReport>,
    /// Whether the observer stopped training before its end.
    pub stopped: bool,
}

impl Outcome {
    /// Mean and deviation over runs of a number at the best epoch; `None` if no run has it.
    #[must_use]
    pub fn over_runs(&self, what: impl Fn(&RunSummary) -> Option<f64>) -> Option<MeanStd> {
        MeanStd::of(&self.runs.iter().filter_map(what).collect::<Vec<_>>())
    }
}

/// Mean and sample standard deviation (n − 1) over runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeanStd {
    /// The mean.
    pub mean: f64,
    /// The standard deviation; zero for a single run.
    pub std: f64,
}

impl MeanStd {
    /// Mean and deviation of `values`; `None` if there are none.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        let n = values.len() as f64;
        let mean = (!values.is_empty()).then(|| values.iter().sum::<f64>() / n)?;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0).max(1.0);
        Some(Self { mean, std: variance.sqrt() })
    }
}

/// Checkpoint file of a run below an output folder.
#[must_use]
pub fn checkpoint_path(folder: &Path, run: u64) -> PathBuf {
    folder.join(format!("run-{run:03}.safetensors"))
}
