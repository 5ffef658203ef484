//! [`Metrics`]: counts of a server, in the text format of Prometheus.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Statuses that responses have.
const STATUSES: [u16; 8] = [200, 400, 404, 405, 408, 413, 500, 503];
/// Upper bounds of the classes of response times, in microseconds.
const BOUNDS: [u64; 12] =
    [500, 1_000, 2_500, 5_000, 10_000, 20_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 5_000_000];

/// Counts since the start.
#[derive(Debug, Default)]
pub struct Metrics {
    by_status: [AtomicU64; STATUSES.len()],
    /// Answers of each class of times; slower ones are in the last.
    by_time: [AtomicU64; BOUNDS.len() + 1],
    microseconds: AtomicU64,
    waiting: AtomicU64,
    passes: AtomicU64,
    nodes: AtomicU64,
}

impl Metrics {
    /// Counts a response.
    pub fn responded(&self, status: u16) {
        if let Some(at) = STATUSES.iter().position(|&known| known == status) {
            self.by_status[at].fetch_add(1, Relaxed);
        }
    }

    /// Counts the time of an answer, from the whole request to the response.
    pub fn answered_in(&self, time: Duration) {
        let time = time.as_micros() as u64;
        let at = BOUNDS.iter().position(|&bound| time <= bound).unwrap_or(BOUNDS.len());
        self.by_time[at].fetch_add(1, Relaxed);
        self.microseconds.fetch_add(time, Relaxed);
    }

    /// Counts a question that waits.
    pub fn queued(&self) {
        self.waiting.fetch_add(1, Relaxed);
    }

    /// Counts questions that do not wait any more.
    pub fn took(&self, n_questions: usize) {
        self.waiting.fetch_sub(n_questions as u64, Relaxed);
    }

    /// Counts one pass of the model for some nodes.
    pub fn computed(&self, n_nodes: usize) {
        self.passes.fetch_add(1, Relaxed);
        self.nodes.fetch_add(n_nodes as u64, Relaxed);
    }

    /// All counts.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        let head =
            |name: &str, kind: &str, help: &str| format!("# HELP girih_{name} {help}\n# TYPE girih_{name} {kind}\n");
        text += &head("responses_total", "counter", "Responses by status.");
        for (status, count) in STATUSES.iter().zip(&self.by_status) {
            let _ = writeln!(text, "girih_responses_total{{status=\"{status}\"}} {}", count.load(Relaxed));
        }
        text += &head("answer_seconds", "histogram", "Time from a whole request to its response.");
        let mut n_answers = 0;
        for (at, count) in self.by_time.iter().enumerate() {
            n_answers += count.load(Relaxed);
            let bound = BOUNDS.get(at).map_or("+Inf".to_owned(), |&bound| (bound as f64 / 1e6).to_string());
            let _ = writeln!(text, "girih_answer_seconds_bucket{{le=\"{bound}\"}} {n_answers}");
        }
        let seconds = self.microseconds.load(Relaxed) as f64 / 1e6;
        let _ = writeln!(text, "girih_answer_seconds_sum {seconds}\ngirih_answer_seconds_count {n_answers}");
        let counts = [
            ("waiting_questions", "gauge", "Questions that wait for the model.", &self.waiting),
            ("passes_total", "counter", "Passes of the model.", &self.passes),
            ("nodes_total", "counter", "Nodes with an answer.", &self.nodes),
        ];
        for (name, kind, help, count) in counts {
            text += &head(name, kind, help);
            let _ = writeln!(text, "girih_{name} {}", count.load(Relaxed));
        }
        text
    }
}
