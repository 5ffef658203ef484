//! Results for people (aligned tables) or for programs (one JSON object a line).

use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::OnceLock;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::args::OutputArgs;
use crate::error::CliError;
use crate::progress;

/// Runs `work` under a spinner with the text `what`; without a terminal, prints the text as a line.
pub fn under_spinner<T>(what: impl Into<String>, output: OutputArgs, work: impl FnOnce() -> T) -> T {
    let bar = progress::spinner(what.into(), output);
    let result = work();
    bar.finish_and_clear();
    result
}

/// First error of printing results.
static LOST: OnceLock<io::Error> = OnceLock::new();

/// Prints a JSON object on a line of its own.
pub fn print_json(value: &Value) {
    print_line(&value.to_string());
}

/// Prints text on standard output, as it is.
pub fn print_text(text: &[u8]) {
    let mut out = io::stdout().lock();
    note(out.write_all(text));
}

/// Prints a line on standard output.
pub fn print_line(line: &str) {
    let mut out = io::stdout().lock();
    note(writeln!(out, "{}", escaped(line)));
}

/// Text without control characters, which names of files and columns may contain: they are escaped as in Rust. Line
/// ends, tabs and colours stay.
pub fn escaped(text: &str) -> Cow<'_, str> {
    let is_harmful = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    if !text.contains(is_harmful) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len());
    for (at, c) in text.char_indices() {
        if is_harmful(c) && !(c == '\x1b' && is_colour(&text[at + 1..])) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown.into()
}

/// Whether text starts with the rest of an escape sequence that sets colours.
fn is_colour(text: &str) -> bool {
    let Some(codes) = text.strip_prefix('[') else { return false };
    codes.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';').starts_with('m')
}

/// Records an error of printing. A closed pipe is ignored: it has no reader left.
fn note(printed: io::Result<()>) {
    if let Err(error) = printed
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        LOST.get_or_init(|| error);
    }
}

/// Checks that all output was written.
///
/// # Errors
/// When it was not, for instance on a full disk.
pub fn check_printed() -> Result<(), CliError> {
    note(io::stdout().flush());
    LOST.get().map_or(Ok(()), |error| Err(CliError::Other(format!("results could not be printed: {error}"))))
}

/// Median of times in milliseconds, the larger of two middle ones; `None` without times.
pub fn median_ms(times: impl Iterator<Item = Duration>) -> Option<f64> {
    let mut times: Vec<Duration> = times.collect();
    times.sort_unstable();
    times.get(times.len() / 2).copied().map(ms)
}

/// Time in milliseconds, rounded to the microsecond; every output shows these digits.
pub fn ms(time: Duration) -> f64 {
    (1e6 * time.as_secs_f64()).round() / 1e3
}

/// The `f64` with the decimal digits of an `f32`: 0.1, where widening gives 0.10000000149.
pub fn as_written(value: f32) -> f64 {
    value.to_string().parse().expect("a number is written as one")
}

/// Share of one as a percentage.
pub fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}

/// Result: named values in order, shown as a table or as `{"event":"result", …}`.
#[derive(Debug, Default)]
pub struct Results {
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    key: &'static str,
    value: Value,
    /// Text for people; empty for values that only programs read.
    shown: String,
    label: &'static str,
}

impl Results {
    /// Adds a value under `key`; people see `shown` beside `label`.
    pub fn add(
        &mut self,
        key: &'static str,
        value: impl Into<Value>,
        label: &'static str,
        shown: impl Into<String>,
    ) -> &mut Self {
        self.rows.push(Row { key, value: value.into(), shown: shown.into(), label });
        self
    }

    /// Adds a value that only programs read.
    pub fn add_hidden(&mut self, key: &'static str, value: impl Into<Value>) -> &mut Self {
        self.add(key, value, "", "")
    }

    /// Result as one JSON object, `event` first.
    pub fn to_json(&self) -> Value {
        let event = ("event".to_owned(), "result".into());
        Value::Object(std::iter::once(event).chain(self.values()).collect())
    }

    /// Values as a JSON object inside a larger result.
    pub fn to_part(&self) -> Value {
        Value::Object(self.values().collect::<Map<_, _>>())
    }

    fn values(&self) -> impl Iterator<Item = (String, Value)> {
        self.rows.iter().map(|row| (row.key.to_owned(), row.value.clone()))
    }

    /// Rows that people see: label and value.
    pub fn shown(&self) -> impl Iterator<Item = (&str, &str)> {
        self.rows.iter().filter(|row| !row.shown.is_empty()).map(|row| (row.label, row.shown.as_str()))
    }

    /// Prints the result.
    pub fn print(&self, json: bool) {
        if json {
            return print_json(&self.to_json());
        }
        let width = self.shown().map(|(label, _)| label.chars().count()).max().unwrap_or(0);
        let mut out = io::stdout().lock();
        for (label, shown) in self.shown() {
            for (i, line) in shown.lines().enumerate() {
                let label = if i == 0 { label } else { "" };
                note(writeln!(out, "{label:<width$}  {line}"));
            }
        }
    }
}
