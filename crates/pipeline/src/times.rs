//! [`Log`]: times of one thread of a pipeline.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// Activity of a thread of a pipeline. It always has exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    WaitInput,
    Work,
    WaitOutput,
}

/// Time interval of one activity, relative to the start of the pipeline.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub activity: Activity,
    /// Position of the item in the source; `None` if the interval ended without an item.
    pub item: Option<u64>,
    pub from: Duration,
    pub to: Duration,
}

/// Times of one thread by activity and, if traced, its intervals.
#[derive(Clone, Debug)]
pub struct Log {
    started: Instant,
    /// End of the recorded time, relative to the start of the pipeline.
    until: Duration,
    pub n_items: u64,
    pub wait_input: Duration,
    pub work: Duration,
    pub wait_output: Duration,
    pub spans: Option<Vec<Span>>,
}

impl Log {
    pub fn new(started: Instant, is_traced: bool) -> Self {
        let zero = Duration::ZERO;
        let spans = is_traced.then(Vec::new);
        Self { started, until: zero, n_items: 0, wait_input: zero, work: zero, wait_output: zero, spans }
    }

    /// Adds the time since the last call, or since the start of the pipeline, to `activity`.
    pub fn lap(&mut self, activity: Activity, item: Option<u64>) {
        let (from, to) = (self.until, self.started.elapsed());
        self.until = to;
        let sum = match activity {
            Activity::WaitInput => &mut self.wait_input,
            Activity::Work => &mut self.work,
            Activity::WaitOutput => &mut self.wait_output,
        };
        *sum += to - from;
        if let Some(spans) = &mut self.spans {
            spans.push(Span { activity, item, from, to });
        }
    }

    /// End of the recorded time, relative to the start of the pipeline.
    pub fn until(&self) -> Duration {
        self.until
    }
}

/// Log shared by several threads. `None` before the pipeline starts and after its report.
///
/// The mutex is the standard library's in model checks too: measured times affect no decision and need no
/// exploration.
#[derive(Clone, Default)]
pub struct SharedLog(Arc<std::sync::Mutex<Option<Log>>>);

impl SharedLog {
    /// Calls `change` on the log, which may modify or take it.
    pub fn with<R>(&self, change: impl FnOnce(&mut Option<Log>) -> R) -> R {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// As [`Log::lap`]; also counts an item if `has_made` is true.
    pub fn lap(&self, activity: Activity, item: Option<u64>, has_made: bool) {
        self.with(|log| {
            if let Some(log) = log {
                log.lap(activity, item);
                log.n_items += u64::from(has_made);
            }
        });
    }
}
