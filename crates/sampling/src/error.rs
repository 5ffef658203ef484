//! [`SampleError`]: failure to sample a mini-batch.

/// Failure to sample a mini-batch; the message says what was found, where, and how to correct it.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct SampleError {
    message: String,
    kind: Kind,
}

/// Kind of failure that callers in other languages tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Invalid,
    NoSuchNode,
    RepeatedSeed,
}

impl SampleError {
    /// Error about a graph, seeds or a setting; `message` says what was found, what was expected and how to correct
    /// it.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self { message: message.into(), kind: Kind::Invalid }
    }

    /// Error about a node id that the graph does not have.
    pub(crate) fn no_such_node(message: impl Into<String>) -> Self {
        Self { message: message.into(), kind: Kind::NoSuchNode }
    }

    /// Error about a node that is listed twice.
    pub(crate) fn repeated_seed(message: impl Into<String>) -> Self {
        Self { message: message.into(), kind: Kind::RepeatedSeed }
    }

    /// This error, with the place that it is about before its message.
    pub(crate) fn inside(self, place: &str) -> Self {
        Self { message: format!("{place}: {}", self.message), ..self }
    }

    /// Whether a seed, or another node that must be listed once, is listed repeatedly.
    #[must_use]
    pub fn is_repeated_seed(&self) -> bool {
        self.kind == Kind::RepeatedSeed
    }

    /// Whether a seed, or another listed node, is not a node of the graph.
    #[must_use]
    pub fn is_no_such_node(&self) -> bool {
        self.kind == Kind::NoSuchNode
    }
}
