//! Ctrl-C and SIGTERM. A command that watches for them stops cleanly after the first signal. The second one, and the
//! first one of any other command, ends the process. It leaves no unfinished file behind.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::{Duration, Instant};

use girih_graph_format::file;

use crate::error::CliError;

/// Signals within this time of the first one count as the same request. Launchers pass on signals that the terminal
/// has also sent, and the system signals the end of each thread of the parent.
const ONE_REQUEST: Duration = Duration::from_millis(500);

/// Whether the first signal requests a clean stop, instead of ending the process.
static WATCHED: AtomicBool = AtomicBool::new(false);

/// Whether a stop was requested.
static ASKED: AtomicBool = AtomicBool::new(false);

/// Signal that requested it; 0 before.
static SIGNAL: AtomicI32 = AtomicI32::new(0);

/// Base of the exit status of a process that a signal ended, as in shells: status minus signal.
pub const ENDED_BY_SIGNAL: i32 = 128;

/// Installs the signal handlers. Must be called once in a process.
///
/// # Errors
/// When the system refuses the handler.
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

/// From now on the first signal requests a stop, by setting the returned flag.
pub fn watch() -> &'static AtomicBool {
    WATCHED.store(true, Ordering::Relaxed);
    &ASKED
}

/// Exit status of a command that a signal stopped: 130 after Ctrl-C, 143 after SIGTERM. `None` without a signal.
pub fn status() -> Option<u8> {
    match SIGNAL.load(Ordering::Relaxed) {
        0 => None,
        signal => u8::try_from(ENDED_BY_SIGNAL + signal).ok(),
    }
}

/// Calls `heard` with every signal, on a separate thread.
#[cfg(unix)]
fn listen(heard: impl FnMut(i32) + Send + 'static) -> io::Result<()> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    use signal_hook::iterator::Signals;

    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let listener = std::thread::Builder::new().name("signals".to_owned());
    listener.spawn(move || signals.forever().for_each(heard)).map(drop)
}

/// Ends the process by the signal's default action, so that the parent sees the cause.
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

/// Calls `heard` with every Ctrl-C, on a separate thread.
#[cfg(not(unix))]
fn listen(mut heard: impl FnMut(i32) + Send + 'static) -> io::Result<()> {
    const INTERRUPT: i32 = 2;
    ctrlc::set_handler(move || heard(INTERRUPT)).map_err(io::Error::other)
}
