//! Messages on standard error, and their events on standard output under `--json`.

use std::fmt::{self, Write as _};
use std::sync::OnceLock;

use clap::error::ErrorKind;
use miette::{Diagnostic, MietteHandlerOpts};
use serde_json::{Value, json};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::{EnvFilter, Layer};

use crate::args::{MessageArgs, OutputArgs};
use crate::error::CliError;
use crate::output::print_json;
use crate::progress;

/// Environment variable of the log filter, which overrides `-q` and `-v`.
const LOG_VARIABLE: &str = "GIRIH_LOG";

static QUIET: OnceLock<u8> = OnceLock::new();

/// Sets up errors, warnings and logs from the flags and `GIRIH_LOG`. Must be called once in a process.
pub fn start(args: MessageArgs, json: bool) {
    // Paths in messages are not wrapped, so that they can be copied.
    let handler = |_: &_| Box::new(MietteHandlerOpts::new().wrap_lines(false).break_words(false).build()) as Box<_>;
    miette::set_hook(Box::new(handler)).expect("the first hook");
    let _ = QUIET.set(args.quiet);
    let filter = EnvFilter::try_from_env(LOG_VARIABLE).unwrap_or_else(|_| EnvFilter::new(directive(args)));
    let subscriber = tracing_subscriber::registry().with(filter).with(Lines { json });
    tracing::subscriber::set_global_default(subscriber).expect("the first subscriber");
}

/// Log filter that the flags select.
pub fn directive(args: MessageArgs) -> &'static str {
    match (args.quiet, args.verbose) {
        (2.., _) => "error",
        (_, 0) => "warn",
        (_, 1) => "warn,girih=info",
        _ => "warn,girih=debug",
    }
}

/// Whether progress and notes are shown to people.
pub fn are_shown(output: OutputArgs) -> bool {
    !output.json && QUIET.get().is_none_or(|quiet| *quiet == 0)
}

/// Prints a note for people, unless `-q` or `--json` is given.
pub fn note(output: OutputArgs, text: impl fmt::Display) {
    if are_shown(output) {
        progress::print_line(&text.to_string());
    }
}

/// Prints an error: for people if `is_told`, and under `--json` as the last event.
pub fn error(error: CliError, (json, is_told): (bool, bool), status: u8) {
    let (message, help) = (error.to_string(), error.help().map(|help| help.to_string()));
    if is_told {
        progress::print_line(&format!("{:?}", miette::Report::new(error)));
    }
    if json {
        print_json(&error_event(&message, help.as_deref(), status));
    }
}

/// Prints clap's output: help, the version, or an error; under `--json` also as an event. Returns the exit status.
pub fn of_clap(error: &clap::Error, json: bool) -> u8 {
    // A failed print means a closed pipe: there is no reader left.
    let _ = error.print();
    let status = error.exit_code() as u8;
    let shows_help = error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    if json && (error.use_stderr() || shows_help) {
        let (message, help) = in_parts(&error.render().to_string());
        print_json(&error_event(&message, help.as_deref(), status));
    }
    status
}

/// Splits an error of clap into a message and a tip.
fn in_parts(text: &str) -> (String, Option<String>) {
    let joined = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut paragraphs = text.split("\n\n");
    let message = joined(paragraphs.next().unwrap_or(text).trim_start_matches("error:"));
    let tip = paragraphs.find_map(|paragraph| paragraph.trim_start().strip_prefix("tip:"));
    (message, tip.map(joined))
}

fn error_event(message: &str, help: Option<&str>, status: u8) -> Value {
    json!({"event": "error", "message": message, "help": help, "status": status})
}

/// Log lines: `warning: …` without a module, details with their module.
struct Lines {
    json: bool,
}

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut text = Text::default();
        event.record(&mut text);
        let level = *event.metadata().level();
        progress::print_line(&line(level, event.metadata().target(), &text.0));
        if self.json && level == Level::WARN {
            print_json(&json!({"event": "warning", "message": text.0}));
        }
    }
}

/// Log line for people.
pub fn line(level: Level, module: &str, text: &str) -> String {
    match level {
        Level::ERROR => format!("error: {text}"),
        Level::WARN => format!("warning: {text}"),
        Level::INFO => format!("info: {text}"),
        _ => format!("debug: {module}: {text}"),
    }
}

/// Message of an event, followed by its other fields.
#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let written = match field.name() {
            "message" => write!(self.0, "{value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
        written.expect("text grows");
    }
}
