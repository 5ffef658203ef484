//! [`StageError`] and [`StartError`]: reasons why a pipeline ends early or does not start.

use std::any::Any;
use std::io;

/// Reason why a pipeline ended early. All items before the one that failed have come out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StageError<E> {
    /// A stage returned an error.
    #[error("{stage}, item {item}: {source}")]
    Failed {
        /// Name of the stage.
        stage: String,
        /// Position of the item in the source, from 0.
        item: u64,
        /// Error that the stage returned.
        source: E,
    },
    /// A stage or the source panicked.
    #[error("{stage}{} panicked: {message}; this is a defect of the stage, not of its input", at_item(*.item))]
    Panicked {
        /// Name of the stage, or `source`.
        stage: String,
        /// Position of the item in the source, from 0. `None` when a worker panicked while it created or dropped its
        /// state.
        item: Option<u64>,
        /// Message of the panic.
        message: String,
    },
}

fn at_item(item: Option<u64>) -> String {
    item.map_or_else(String::new, |item| format!(", item {item},"))
}

/// Reason why a pipeline could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A stage with no thread to run on.
    #[error("stage {stage} has no workers, so no item would ever leave it: give it at least one")]
    NoWorkers {
        /// Name of the stage.
        stage: String,
    },
    /// A stage whose output queue holds no items.
    #[error("the queue behind stage {stage} has no capacity, so no item would ever leave it: give it at least one")]
    NoCapacity {
        /// Name of the stage.
        stage: String,
    },
    /// The system refused to start a thread. The threads that ran already were stopped.
    #[error("stage {stage}: a thread cannot be started: {source}; use fewer workers")]
    Thread {
        /// Name of the stage.
        stage: String,
        /// Error of the operating system.
        source: io::Error,
    },
}

/// Message of a panic, or `without a message` when its payload is not text.
pub fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without a message".to_owned())
}
