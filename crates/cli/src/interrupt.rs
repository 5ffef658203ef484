//! Ctrl-C: the first asks for an end after what is under way, the second does not wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::CliError;

/// Catches Ctrl-C from now on; the flag is set by the first one. To be called once in a process.
///
/// # Errors
/// When the system lets no handler be set.
pub fn watch() -> Result<Arc<AtomicBool>, CliError> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&interrupted);
    let handler = move || {
        if flag.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    };
    ctrlc::set_handler(handler).map_err(|e| CliError::Other(format!("cannot catch Ctrl-C: {e}")))?;
    Ok(interrupted)
}
