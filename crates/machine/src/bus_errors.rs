//! [`explain_bus_errors`]: an error message for mapped files that are truncated while they are read.

use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// State of the signal handler.
struct Handler {
    name_of: fn(usize) -> Option<&'static str>,
    json: bool,
}

static HANDLER: OnceLock<Handler> = OnceLock::new();

/// Exit status of a failed command.
const FAILURE: libc::c_int = 1;

/// Installs a handler for reads beyond the end of a mapped file (SIGBUS). The process then ends with a message and
/// status 1, instead of a signal without a message. `name_of` returns the name of the file that is mapped at an
/// address. The signal handler calls it, so it must neither allocate nor lock. With `json`, the error is also an
/// event on standard output.
///
/// Other bus errors end the process as without this handler. Only the first call of a process has an effect.
pub fn explain_bus_errors(name_of: fn(usize) -> Option<&'static str>, json: bool) {
    if HANDLER.set(Handler { name_of, json }).is_err() {
        return;
    }
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = explain;
    // SAFETY: all fields are numbers or a mask, so zeros are valid. The handler calls async-signal-safe functions
    // only.
    unsafe {
        let action = &mut *action.as_mut_ptr();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGBUS, action, std::ptr::null_mut());
    }
}

extern "C" fn explain(signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel passes information on the signal, and that of a bus error has an address.
    let address = unsafe { (*info).si_addr() }.addr();
    let Some((handler, name)) = HANDLER.get().and_then(|handler| Some((handler, (handler.name_of)(address)?))) else {
        // SAFETY: the default action ends the process when this handler returns and the access fails again.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
        return;
    };
    // Several threads may read beyond the end at once: one prints the message and ends the process.
    static IS_TOLD: AtomicBool = AtomicBool::new(false);
    while IS_TOLD.swap(true, Ordering::Relaxed) {
        // SAFETY: only waits for a signal.
        unsafe { libc::pause() };
    }
    const WHAT: &str = ": cut off while it was in use; run again, and let nothing write to this file meanwhile";
    print(libc::STDERR_FILENO, &["error: ", name, WHAT, "\n"]);
    if handler.json {
        print(libc::STDOUT_FILENO, &["{\"event\":\"error\",\"message\":\""]);
        print_escaped(libc::STDOUT_FILENO, name);
        print(libc::STDOUT_FILENO, &[WHAT, "\",\"status\":1}\n"]);
    }
    // SAFETY: ends the process without running any more of its code.
    unsafe { libc::_exit(FAILURE) };
}

/// Writes text to a file descriptor; failures are ignored, since there is nowhere to report them.
fn print(file: libc::c_int, all: &[&str]) {
    for text in all {
        // SAFETY: the pointer and the length are those of a valid string.
        unsafe { libc::write(file, text.as_ptr().cast(), text.len()) };
    }
}

/// Writes text as part of a JSON string.
fn print_escaped(file: libc::c_int, text: &str) {
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c == '"' || c == '\\' || c.is_ascii_control()) {
        let escaped = if rest.as_bytes()[at].is_ascii_control() { "?" } else { "\\" };
        print(file, &[&rest[..at], escaped]);
        let kept = if escaped == "?" { "" } else { &rest[at..=at] };
        print(file, &[kept]);
        rest = &rest[at + 1..];
    }
    print(file, &[rest]);
}
