//! Progress of long work: bars and spinners on a terminal, occasional lines elsewhere.

use std::io::IsTerminal;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar};

use crate::args::OutputArgs;
use crate::messages;
use crate::output::escaped;

/// Time between two progress lines if standard error is no terminal.
pub const INTERVAL: Duration = Duration::from_secs(10);

/// All bars that are drawn; lines are printed above them.
static BARS: LazyLock<MultiProgress> = LazyLock::new(MultiProgress::new);

/// Whether progress is drawn as bars, not printed line by line.
pub fn is_drawn() -> bool {
    std::io::stderr().is_terminal()
}

/// Bar of `len` steps; hidden if no progress is wanted.
pub fn bar(len: u64, output: OutputArgs) -> ProgressBar {
    if messages::are_shown(output) { BARS.add(ProgressBar::new(len)) } else { ProgressBar::hidden() }
}

/// Spinner with the text `what` on a terminal; elsewhere the text is printed as a line.
pub fn spinner(what: String, output: OutputArgs) -> ProgressBar {
    if !messages::are_shown(output) {
        return ProgressBar::hidden();
    }
    if !is_drawn() {
        print_line(&what);
        return ProgressBar::hidden();
    }
    let bar = BARS.add(ProgressBar::new_spinner());
    bar.set_message(what);
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

/// Prints a line on standard error, above the bars.
pub fn print_line(line: &str) {
    let line = escaped(line);
    BARS.suspend(|| eprintln!("{line}"));
}

/// Pace of progress lines.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    interval: Duration,
    told: Instant,
}

impl Pace {
    /// Pace whose first line is due one `interval` after `now`.
    pub fn new(interval: Duration, now: Instant) -> Self {
        Self { interval, told: now }
    }

    /// Whether a line is due. If so, the next one is due an interval later.
    pub fn is_due(&mut self, now: Instant) -> bool {
        let is_due = now.duration_since(self.told) >= self.interval;
        if is_due {
            self.told = now;
        }
        is_due
    }
}

/// A duration for people: `45 s`, `12 min`, `3 h 20 min`.
pub fn readable(time: Duration) -> String {
    let seconds = time.as_secs_f64().round() as u64;
    match seconds {
        0..100 => format!("{seconds} s"),
        100..6000 => format!("{} min", (seconds + 30) / 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}
