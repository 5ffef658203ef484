//! Signals that would end the process without a message, turned into errors.

/// Ignores SIGXFSZ, so that writes beyond the limit of a file's size (`ulimit -f`) return an error. To be called
/// once, at the start.
pub fn ignore_file_size_signal() {
    // SAFETY: only changes the action of a signal to ignoring it.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}
