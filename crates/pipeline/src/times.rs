//! [`Log`]: where the time of one thread of a pipeline goes.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// What a thread of a pipeline does; it always does one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    WaitInput,
    Work,
    WaitOutput,
}

/// A stretch of one activity, since the pipeline started.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub activity: Activity,
    /// The place of the item in the source; `None` when no item came of it.
    pub item: Option<u64>,
    pub from: Duration,
    pub to: Duration,
}

/// How long one thread did what, and, when traced, when.
#[derive(Clone, Debug)]
pub struct Log {
    started: Instant,
    /// Until when time is accounted for.
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

    /// Accounts for the time since the last call, or since the start of the pipeline: it went into `activity`.
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

    /// When the pipeline started.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// The end of the last stretch, since the pipeline started.
    pub fn until(&self) -> Duration {
        self.until
    }
}

/// The log of threads that take turns; empty until the pipeline starts, and again once its report is made.
///
/// The mutex is the standard library's in model checks, too: what is measured decides nothing, and need not be
/// explored.
#[derive(Clone, Default)]
pub struct SharedLog(Arc<std::sync::Mutex<Option<Log>>>);

impl SharedLog {
    /// The log, to be changed or taken away.
    pub fn with<R>(&self, change: impl FnOnce(&mut Option<Log>) -> R) -> R {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// [`Log::lap`], and whether it made an item.
    pub fn lap(&self, activity: Activity, item: Option<u64>, has_made: bool) {
        self.with(|log| {
            if let Some(log) = log {
                log.lap(activity, item);
                log.n_items += u64::from(has_made);
            }
        });
    }
}
