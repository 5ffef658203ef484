//! [`DatasetError`]: failure to load, make or write a data set.

use std::io;
use std::path::{Path, PathBuf};

use girih_compress::CompressError;
use girih_graph_format::FormatError;

/// Failure of a data set: what was found, where, what was expected and how to correct it.
#[derive(Debug)]
pub struct DatasetError {
    path: Option<PathBuf>,
    kind: Kind,
}

#[derive(Debug, thiserror::Error)]
enum Kind {
    #[error("{0}")]
    Format(#[source] FormatError),
    #[error("{0}")]
    Compress(#[source] CompressError),
    #[error("{0}")]
    Spec(String),
    #[error("{0}")]
    TooLarge(String),
}

impl DatasetError {
    /// Error about values that break a rule; `message` says what, where and how to correct it.
    pub fn invalid(message: impl Into<String>) -> Self {
        FormatError::invalid(message).into()
    }

    /// Error about bytes that are damaged or cut off.
    pub fn corrupt(what: impl Into<String>) -> Self {
        FormatError::corrupt(what).into()
    }

    /// Error in a data SPEC that the user wrote.
    pub(crate) fn spec(message: impl Into<String>) -> Self {
        Self { path: None, kind: Kind::Spec(message.into()) }
    }

    /// Refusal of work that does not fit into memory.
    pub(crate) fn too_large(message: impl Into<String>) -> Self {
        Self { path: None, kind: Kind::TooLarge(message.into()) }
    }

    /// Adds the path of the file in error; the innermost path stays.
    #[must_use]
    pub fn at(mut self, path: &Path) -> Self {
        if self.path().is_none() {
            self.path = Some(path.to_owned());
        }
        self
    }

    /// Path of the file in error.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match &self.kind {
            Kind::Format(error) => error.path().or(self.path.as_deref()),
            _ => self.path.as_deref(),
        }
    }

    /// Whether the data is readable but wrong: the file has to be fetched again, and a retry is useless.
    #[must_use]
    pub fn is_corrupt(&self) -> bool {
        match &self.kind {
            Kind::Format(error) => error.is_corrupt(),
            Kind::Compress(error) => error.is_corrupt(),
            Kind::Spec(_) | Kind::TooLarge(_) => false,
        }
    }

    /// Whether the file does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        match &self.kind {
            Kind::Format(error) => error.is_not_found(),
            Kind::Compress(error) => error.is_not_found(),
            Kind::Spec(_) | Kind::TooLarge(_) => false,
        }
    }

    /// Whether the data SPEC itself is wrong: a usage error, before any file was touched.
    #[must_use]
    pub fn is_spec(&self) -> bool {
        matches!(self.kind, Kind::Spec(_))
    }

    /// Whether the data set would not fit into memory; nothing was allocated.
    #[must_use]
    pub fn is_too_large(&self) -> bool {
        matches!(self.kind, Kind::TooLarge(_))
    }
}

impl std::fmt::Display for DatasetError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.path {
            Some(path) => write!(f, "{}: {}", path.display(), self.kind),
            None => write!(f, "{}", self.kind),
        }
    }
}

impl std::error::Error for DatasetError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        // The message of a `FormatError` is already the message of this error: continue with its cause.
        match &self.kind {
            Kind::Format(error) => error.source(),
            Kind::Compress(error) => error.source(),
            _ => None,
        }
    }
}

impl From<FormatError> for DatasetError {
    fn from(error: FormatError) -> Self {
        Self { path: None, kind: Kind::Format(error) }
    }
}

impl From<CompressError> for DatasetError {
    fn from(error: CompressError) -> Self {
        Self { path: None, kind: Kind::Compress(error) }
    }
}

impl From<io::Error> for DatasetError {
    fn from(error: io::Error) -> Self {
        FormatError::io(error).into()
    }
}
