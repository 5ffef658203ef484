//! [`Trace`]: timeline in the Trace Event Format that Perfetto and Chrome open.

use std::io::{self, Write};
use std::time::Duration;

use serde::Serialize;
use serde::ser::{SerializeSeq, Serializer};
use serde_json::json;

use crate::times::{Activity, Log};

/// Timeline of the threads of a pipeline and the streams of a device.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    tracks: Vec<Track>,
}

/// One row of the timeline.
#[derive(Clone, Debug, PartialEq)]
pub struct Track {
    /// Group under which rows are shown, such as a device.
    pub group: String,
    /// Name of the row: a thread or a stream.
    pub name: String,
    /// Events of the row, in any order.
    pub events: Vec<Event>,
}

/// Time interval of one activity.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Name of the activity. Events with the same name have the same colour.
    pub name: String,
    /// Category of the event, such as `work` or `wait`.
    pub category: &'static str,
    /// Start, relative to the start of the trace.
    pub from: Duration,
    /// End, relative to the start of the trace.
    pub to: Duration,
    /// Position in the source of the item that the event belongs to, if any.
    pub item: Option<u64>,
}

impl Trace {
    /// Trace with these rows from top to bottom. Rows of a group must be adjacent.
    #[must_use]
    pub fn new(tracks: Vec<Track>) -> Self {
        Self { tracks }
    }

    /// Rows of the trace.
    #[must_use]
    pub fn tracks(&self) -> &[Track] {
        &self.tracks
    }

    /// Writes one JSON object in Chromium's Trace Event Format. Groups become processes, rows become threads, and
    /// times are in microseconds from the start. Open it in ui.perfetto.dev or chrome://tracing.
    ///
    /// # Errors
    /// When writing to `out` fails.
    pub fn write_json(&self, mut out: impl Write) -> io::Result<()> {
        serde_json::to_writer(&mut out, self)?;
        out.write_all(b"\n")
    }
}

impl Serialize for Trace {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map([("traceEvents", Events(&self.tracks))])
    }
}

struct Events<'a>(&'a [Track]);

impl Serialize for Events<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut events = serializer.serialize_seq(None)?;
        for (pid, group) in self.0.chunk_by(|a, b| a.group == b.group).enumerate() {
            events.serialize_element(&named("process_name", (pid, 0), &group[0].group))?;
            for (tid, track) in group.iter().enumerate() {
                events.serialize_element(&named("thread_name", (pid, tid), &track.name))?;
                for event in &track.events {
                    events.serialize_element(&complete((pid, tid), event))?;
                }
            }
        }
        events.end()
    }
}

/// Metadata event with the name of a process or thread.
fn named(what: &str, (pid, tid): (usize, usize), name: &str) -> serde_json::Value {
    json!({ "ph": "M", "name": what, "pid": pid, "tid": tid, "args": { "name": name } })
}

/// Time interval as a complete event (`"ph": "X"`).
fn complete((pid, tid): (usize, usize), event: &Event) -> serde_json::Value {
    let Event { name, category, .. } = event;
    let (ts, dur) = (micros(event.from), micros(event.to.saturating_sub(event.from)));
    let args = event.item.map_or_else(|| json!({}), |item| json!({ "item": item }));
    json!({ "ph": "X", "name": name, "cat": category, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args })
}

fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}

impl Track {
    /// Row of a pipeline thread, if it was traced. Work has the name of its stage, so each stage has its own colour.
    pub(crate) fn of_thread(name: String, log: Log) -> Option<Self> {
        let stage = name.clone();
        let named = move |activity| match activity {
            Activity::WaitInput => ("wait for input".to_owned(), "wait"),
            Activity::Work => (stage.clone(), "work"),
            Activity::WaitOutput => ("wait for output".to_owned(), "wait"),
        };
        let spans = log.spans?.into_iter();
        let events = spans.map(|span| {
            let (name, category) = named(span.activity);
            Event { name, category, from: span.from, to: span.to, item: span.item }
        });
        Some(Self { group: "pipeline".to_owned(), name, events: events.collect() })
    }
}
