//! [`RankFailure`]: the rank that failed first.

use std::any::Any;

/// First failure among all ranks.
#[derive(Debug)]
pub struct RankFailure<E> {
    /// Rank that failed first.
    pub rank: usize,
    /// Error of the rank; `None` if it panicked or is another process.
    pub error: Option<E>,
    /// Message of the error or panic.
    pub message: String,
}

/// Message of a panic, for other ranks.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    format!("it panicked: {}", text.unwrap_or_else(|| "without a message".to_owned()))
}
