//! Ctrl-C and SIGTERM. A command that watches for them is asked by the first for an end after what is under way; the
//! second, and the first of any other command, ends the process, which leaves no unfinished file behind.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::{Duration, Instant};

use girih_graph_format::file;

use crate::error::CliError;

/// Signals that come so soon after the first are the same request: launchers pass on what the terminal has sent, and
/// the system tells a process of the end of each thread of the one that started it.
const ONE_REQUEST: Duration = Duration::from_millis(500);

/// Whether the first signal asks for an end, instead of ending the process.
static WATCHED: AtomicBool = AtomicBool::new(false);

/// Whether an end was asked for.
static ASKED: AtomicBool = AtomicBool::new(false);

/// Signal that asked for it; 0 before.
static SIGNAL: AtomicI32 = AtomicI32::new(0);

/// Exit status of a process that a signal ended, as shells have it, less the signal.
pub const ENDED_BY_SIGNAL: i32 = 128;

/// Catches the signals from now on. To be called once in a process.
///
/// # Errors
/// When the system lets no handler be set.
pub fn catch() -> Result<(), CliError> {
    let mut asked_at = None;
    listen(move |signal| {
        let watched = WATCHED.load(Ordering::Relaxed);
        if watched && asked_at.get_or_insert_with(Instant::now).elapsed() < ONE_REQUEST {
            let _ = SIGNAL.compare_exchange(0, signal, Ordering::Relaxed, Ordering::Relaxed);
            ASKED.store(true, Ordering::Release);
        } else {
            file::remove_unfinished(|| end(signal));
        }
    })
    .map_err(|error| CliError::Other(format!("cannot catch Ctrl-C: {error}")))
}

/// From now on the first signal asks for an end, and whoever looks at this sees it.
pub fn watch() -> &'static AtomicBool {
    WATCHED.store(true, Ordering::Relaxed);
    &ASKED
}

/// Exit status of a command that a signal asked for an end, 130 after Ctrl-C and 143 after SIGTERM; `None` where none
/// has asked.
pub fn status() -> Option<u8> {
    match SIGNAL.load(Ordering::Relaxed) {
        0 => None,
        signal => u8::try_from(ENDED_BY_SIGNAL + signal).ok(),
    }
}

/// Calls `heard` with every signal, on a thread of its own.
#[cfg(unix)]
fn listen(heard: impl FnMut(i32) + Send + 'static) -> io::Result<()> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    use signal_hook::iterator::Signals;

    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let listener = std::thread::Builder::new().name("signals".to_owned());
    listener.spawn(move || signals.forever().for_each(heard)).map(drop)
}

/// Ends the process as the signal does that nobody catches, so that whoever started it sees why.
#[cfg(unix)]
fn end(signal: i32) {
    if signal_hook::low_level::emulate_default_handler(signal).is_err() {
        std::process::exit(1);
    }
}

/// Ends the process.
#[cfg(not(unix))]
fn end(_: i32) {
    std::process::exit(1);
}

/// Calls `heard` with every Ctrl-C, on a thread of its own.
#[cfg(not(unix))]
fn listen(mut heard: impl FnMut(i32) + Send + 'static) -> io::Result<()> {
    const INTERRUPT: i32 = 2;
    ctrlc::set_handler(move || heard(INTERRUPT)).map_err(io::Error::other)
}
