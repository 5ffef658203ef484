//! [`Report`]: times that each stage worked and waited, and the bottleneck.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::source;
use crate::times::Log;
use crate::trace::{Trace, Track};

/// Name of the consuming thread in reports.
const CONSUMER: &str = "consumer";

/// Times of a pipeline. `Display` prints them as a table.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Seconds from the start until the last thread has ended.
    pub wall_s: f64,
    /// The source, each stage in order, and the consumer.
    pub stages: Vec<StageReport>,
    /// Times of each wait and each work on an item, if the pipeline was [`traced`](crate::Pipeline::traced).
    #[serde(skip)]
    pub trace: Option<Trace>,
}

/// Times of one stage, in seconds, summed over its workers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StageReport {
    /// Name of the stage; `source` for the iterator, `consumer` for the thread that takes the items.
    pub name: String,
    /// Number of threads.
    pub n_workers: usize,
    /// Number of items passed on.
    pub n_items: u64,
    /// Seconds of waiting for input: a stage before this one is slower.
    pub wait_input_s: f64,
    /// Seconds of work in wall-clock time, including time in which the system ran other threads on the core.
    pub work_s: f64,
    /// Seconds of waiting to pass on an item: a stage after this one is slower.
    pub wait_output_s: f64,
    /// Fraction of the workers' time spent on work, `work_s / (n_workers · wall_s)`.
    pub busy: f64,
}

/// Name and size of a stage, for the report.
pub struct StageName {
    pub name: String,
    pub n_workers: usize,
}

impl Report {
    pub(crate) fn new(source: Log, stages: &[StageName], workers: Vec<(usize, Log)>, consumer: Log) -> Self {
        let wall = consumer.until();
        let of_stage =
            |at| -> Vec<&Log> { workers.iter().filter(|(stage, _)| *stage == at).map(|(_, log)| log).collect() };
        let mut rows = vec![StageReport::new(source::NAME, 1, &[&source], wall)];
        for (at, stage) in stages.iter().enumerate() {
            rows.push(StageReport::new(&stage.name, stage.n_workers, &of_stage(at), wall));
        }
        rows.push(StageReport::new(CONSUMER, 1, &[&consumer], wall));
        let named = workers.into_iter().map(|(stage, log)| (stages[stage].name.clone(), log));
        let named =
            [(source::NAME.to_owned(), source)].into_iter().chain(named).chain([(CONSUMER.to_owned(), consumer)]);
        let tracks: Option<Vec<Track>> = named.map(|(name, log)| Track::of_thread(name, log)).collect();
        Self { wall_s: wall.as_secs_f64(), stages: rows, trace: tracks.map(Trace::new) }
    }

    /// Stage with the largest `busy` fraction. More workers or faster work in it would speed up the pipeline. If it
    /// is the consumer, the pipeline hides all other stages.
    #[must_use]
    pub fn bottleneck(&self) -> &StageReport {
        self.stages.iter().max_by(|a, b| a.busy.total_cmp(&b.busy)).expect("a source and a consumer are always there")
    }
}

impl StageReport {
    fn new(name: &str, n_workers: usize, logs: &[&Log], wall: Duration) -> Self {
        let sum = |time: fn(&Log) -> Duration| logs.iter().map(|log| time(log)).sum::<Duration>().as_secs_f64();
        let work_s = sum(|log| log.work);
        Self {
            name: name.to_owned(),
            n_workers,
            n_items: logs.iter().map(|log| log.n_items).sum(),
            wait_input_s: sum(|log| log.wait_input),
            work_s,
            wait_output_s: sum(|log| log.wait_output),
            busy: work_s / (n_workers as f64 * wall.as_secs_f64()).max(f64::MIN_POSITIVE),
        }
    }

    fn cells(&self) -> [String; 7] {
        let seconds = |seconds: f64| format!("{seconds:.3} s");
        [
            self.name.clone(),
            self.n_workers.to_string(),
            self.n_items.to_string(),
            seconds(self.wait_input_s),
            seconds(self.work_s),
            seconds(self.wait_output_s),
            format!("{:.0} %", self.busy * 100.0),
        ]
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = ["stage", "workers", "items", "wait for input", "work", "wait for output", "busy"];
        let header = header.map(str::to_owned);
        let rows: Vec<_> = [header].into_iter().chain(self.stages.iter().map(StageReport::cells)).collect();
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
        for [name, numbers @ ..] in &rows {
            write!(f, "{name:<width$}", width = widths[0])?;
            for (number, width) in numbers.iter().zip(&widths[1..]) {
                write!(f, "  {number:>width$}")?;
            }
            writeln!(f)?;
        }
        let slowest = self.bottleneck();
        write!(f, "bottleneck: {}, busy {:.0} % of {:.3} s", slowest.name, slowest.busy * 100.0, self.wall_s)
    }
}
