//! Signals: what they end without a word elsewhere is an error here.

/// Lets writes beyond the limit of a file's size (`ulimit -f`) fail with an error, instead of ending the process by
/// SIGXFSZ. To be called once, at the start.
pub fn ignore_file_size_signal() {
    // SAFETY: the default action of a signal is changed to none.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}
