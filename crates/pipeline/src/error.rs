//! [`StageError`] and [`StartError`]: why no more items come, or none at all.

use std::any::Any;
use std::io;

/// Why a pipeline ended early. All items before the one that failed have come out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StageError<E> {
    /// A stage returned an error.
    #[error("{stage}, item {item}: {source}")]
    Failed {
        /// The name of the stage.
        stage: String,
        /// The place of the item in the source, from zero.
        item: u64,
        /// What the stage returned.
        source: E,
    },
    /// A stage or the source panicked.
    #[error("{stage}{} panicked: {message}; this is a defect of the stage, not of its input", at_item(*.item))]
    Panicked {
        /// The name of the stage, or `source`.
        stage: String,
        /// The place of the item in the source, from zero; `None` when a worker panicked while it made its state or
        /// dropped it.
        item: Option<u64>,
        /// What the panic said.
        message: String,
    },
}

fn at_item(item: Option<u64>) -> String {
    item.map_or_else(String::new, |item| format!(", item {item},"))
}

/// Why a pipeline could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A stage with no thread to run on.
    #[error("stage {stage} has no workers, so no item would ever leave it: give it at least one")]
    NoWorkers {
        /// The name of the stage.
        stage: String,
    },
    /// A stage that may not hand on anything.
    #[error("the queue behind stage {stage} has no capacity, so no item would ever leave it: give it at least one")]
    NoCapacity {
        /// The name of the stage.
        stage: String,
    },
    /// The system refused a thread; those that had been started were stopped.
    #[error("stage {stage}: a thread cannot be started: {source}; use fewer workers")]
    Thread {
        /// The name of the stage.
        stage: String,
        /// What the system says.
        source: io::Error,
    },
}

/// What a panic said.
pub fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without a message".to_owned())
}
