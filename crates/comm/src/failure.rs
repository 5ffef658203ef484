//! [`RankFailure`]: the rank that failed first.

use std::any::Any;

/// The rank that failed first, and how.
#[derive(Debug)]
pub struct RankFailure<E> {
    /// The rank.
    pub rank: usize,
    /// Its error; `None` when it panicked, or is another process.
    pub error: Option<E>,
    /// What the error or the panic says.
    pub message: String,
}

/// What a panic says, in words for other ranks.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    format!("it panicked: {}", text.unwrap_or_else(|| "without a message".to_owned()))
}
