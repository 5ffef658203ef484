//! [`Trace`]: what every thread of a pipeline did when, in the Trace Event Format that Perfetto and Chrome open.

use std::io::{self, Write};
use std::time::Duration;

use serde::Serialize;
use serde::ser::{SerializeSeq, Serializer};
use serde_json::json;

use crate::times::{Activity, Span};

/// What every thread of a pipeline did when.
#[derive(Clone, Debug)]
pub struct Trace {
    threads: Vec<Thread>,
}

/// One row of the picture.
#[derive(Clone, Debug)]
pub struct Thread {
    pub name: String,
    pub spans: Vec<Span>,
}

impl Trace {
    pub(crate) fn new(threads: Vec<Thread>) -> Self {
        Self { threads }
    }

    /// Writes one JSON object in Chromium's Trace Event Format: a row a thread, an event for each stretch of work or
    /// waiting, in microseconds from the start. Open it in ui.perfetto.dev or chrome://tracing.
    ///
    /// # Errors
    /// When `out` fails.
    pub fn write_json(&self, mut out: impl Write) -> io::Result<()> {
        serde_json::to_writer(&mut out, self)?;
        out.write_all(b"\n")
    }
}

impl Serialize for Trace {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map([("traceEvents", Events(&self.threads))])
    }
}

struct Events<'a>(&'a [Thread]);

impl Serialize for Events<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut events = serializer.serialize_seq(None)?;
        for (row, thread) in self.0.iter().enumerate() {
            let name = json!({ "name": thread.name });
            events
                .serialize_element(&json!({ "ph": "M", "name": "thread_name", "pid": 0, "tid": row, "args": name }))?;
            for span in &thread.spans {
                events.serialize_element(&event(row, &thread.name, span))?;
            }
        }
        events.end()
    }
}

/// A stretch as a complete event: work under the stage's name, so that stages have colours of their own.
fn event(row: usize, thread: &str, span: &Span) -> serde_json::Value {
    let (name, category) = match span.activity {
        Activity::WaitInput => ("wait for input", "wait"),
        Activity::Work => (thread, "work"),
        Activity::WaitOutput => ("wait for output", "wait"),
    };
    let (ts, dur) = (micros(span.from), micros(span.to - span.from));
    let args = span.item.map_or_else(|| json!({}), |item| json!({ "item": item }));
    json!({ "ph": "X", "name": name, "cat": category, "pid": 0, "tid": row, "ts": ts, "dur": dur, "args": args })
}

fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}
