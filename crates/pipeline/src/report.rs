//! [`Report`]: how long each stage worked and waited, and which one holds up the others.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::order::{Coordinator, OrderLog};
use crate::source;
use crate::times::Log;
use crate::trace::{Trace, Track};

/// The column of times waited for turns, among the numbers of a printed report, which has it where there are any.
const WAIT_TURN: usize = 3;

/// The name of the thread that takes the items, in reports.
const CONSUMER: &str = "consumer";

/// Where the time of a pipeline went; printed, it is a table.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// From the start until the last thread had ended, in seconds.
    pub wall_s: f64,
    /// The source, each stage, the consumer.
    pub stages: Vec<StageReport>,
    /// When each item was waited for and worked on, if the pipeline was [`traced`](crate::Pipeline::traced).
    #[serde(skip)]
    pub trace: Option<Trace>,
}

/// Where the time of one stage went; seconds are summed over its workers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StageReport {
    /// As it was given; `source` for the iterator, `consumer` for the thread that takes the items.
    pub name: String,
    /// Its threads.
    pub n_workers: usize,
    /// Items that it gave to the next.
    pub n_items: u64,
    /// Seconds in which it had nothing to work on: a stage before it is slower.
    pub wait_input_s: f64,
    /// Seconds in which it waited for its turn to launch, if the pipeline was
    /// [`coordinated`](crate::Pipeline::coordinated).
    pub wait_turn_s: f64,
    /// Seconds of other work, by the clock: also those in which the system ran something else on its core.
    pub work_s: f64,
    /// Seconds in which it could not hand on what was done: a stage behind it is slower.
    pub wait_output_s: f64,
    /// The share of the time of its workers, from the start of the pipeline to its end, that was work.
    pub busy: f64,
}

/// What a report has to know of a stage.
pub struct StageName {
    pub name: String,
    pub n_workers: usize,
}

impl Report {
    pub(crate) fn new(
        source: Log,
        stages: &[StageName],
        workers: Vec<(usize, Log)>,
        consumer: Log,
        coordinator: Option<&Coordinator>,
    ) -> Self {
        let wall = consumer.until();
        let of_stage =
            |at| -> Vec<&Log> { workers.iter().filter(|(stage, _)| *stage == at).map(|(_, log)| log).collect() };
        let mut rows = vec![StageReport::new(source::NAME, 1, &[&source], wall)];
        for (at, stage) in stages.iter().enumerate() {
            rows.push(StageReport::new(&stage.name, stage.n_workers, &of_stage(at), wall));
        }
        rows.push(StageReport::new(CONSUMER, 1, &[&consumer], wall));
        let order = coordinator.map(|coordinator| (coordinator.log(), coordinator.started()));
        if let Some((order, _)) = &order {
            part_turns(&mut rows, order);
        }
        let started = consumer.started();
        let named = workers.into_iter().map(|(stage, log)| (stages[stage].name.clone(), log));
        let named =
            [(source::NAME.to_owned(), source)].into_iter().chain(named).chain([(CONSUMER.to_owned(), consumer)]);
        let mut tracks: Option<Vec<Track>> = named.map(|(name, log)| Track::of_thread(name, log)).collect();
        if let (Some(tracks), Some((order, began))) = (&mut tracks, &order) {
            tracks.extend(Track::of_launches(order, *began, started));
        }
        Self { wall_s: wall.as_secs_f64(), stages: rows, trace: tracks.map(Trace::new) }
    }

    /// The stage whose workers are busy for the largest share of the time: the one that more workers, or a quicker way
    /// to do its work, would speed up. When it is the consumer, the pipeline hides all other stages.
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
            wait_turn_s: 0.0,
            work_s,
            wait_output_s: sum(|log| log.wait_output),
            busy: work_s / (n_workers as f64 * wall.as_secs_f64()).max(f64::MIN_POSITIVE),
        }
    }

    /// What looked like work was, for so many seconds, waiting for a turn.
    fn take_from_work(&mut self, wait_turn_s: f64) {
        let left = (self.work_s - wait_turn_s).max(0.0);
        self.busy *= left / self.work_s.max(f64::MIN_POSITIVE);
        self.work_s = left;
        self.wait_turn_s += wait_turn_s;
    }

    fn cells(&self) -> [String; 8] {
        let seconds = |seconds: f64| format!("{seconds:.3} s");
        [
            self.name.clone(),
            self.n_workers.to_string(),
            self.n_items.to_string(),
            seconds(self.wait_input_s),
            seconds(self.wait_turn_s),
            seconds(self.work_s),
            seconds(self.wait_output_s),
            format!("{:.0} %", self.busy * 100.0),
        ]
    }
}

/// Puts times waited for turns into the row of the stage with the worker's name, or of the consumer.
fn part_turns(rows: &mut [StageReport], order: &OrderLog) {
    let consumer = rows.len() - 1;
    for (worker, name) in order.workers.iter().enumerate() {
        let row = rows.iter().position(|row| row.name == *name).unwrap_or(consumer);
        let entries = order.entries.iter().filter(|entry| entry.launch.worker == worker);
        rows[row].take_from_work(entries.map(|entry| entry.turn_s - entry.registered_s).sum());
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header =
            ["stage", "workers", "items", "wait for input", "wait for turn", "work", "wait for output", "busy"];
        let header = header.map(str::to_owned);
        let rows: Vec<_> = [header].into_iter().chain(self.stages.iter().map(StageReport::cells)).collect();
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let has_turns = self.stages.iter().any(|stage| stage.wait_turn_s > 0.0);
        let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
        for [name, numbers @ ..] in &rows {
            write!(f, "{name:<width$}", width = widths[0])?;
            let columns = numbers.iter().zip(&widths[1..]).enumerate().filter(|(at, _)| has_turns || *at != WAIT_TURN);
            for (_, (number, width)) in columns {
                write!(f, "  {number:>width$}")?;
            }
            writeln!(f)?;
        }
        let slowest = self.bottleneck();
        write!(f, "bottleneck: {}, busy {:.0} % of {:.3} s", slowest.name, slowest.busy * 100.0, self.wall_s)
    }
}
