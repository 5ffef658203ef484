//! [`FormatError`]: error with the value found, its place, the expected value, and a remedy.

use std::io;
use std::path::{Path, PathBuf};

/// Failure to make, read or write a graph.
///
/// The message names the file where there is one, the place in it, the value found and the remedy.
#[derive(Debug)]
pub struct FormatError {
    path: Option<PathBuf>,
    kind: Kind,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Kind {
    #[error("{0}")]
    Io(io::Error),
    #[error("{0}")]
    Invalid(String),
    #[error("{what}: {remedy}")]
    Corrupt { what: String, remedy: &'static str },
}

impl FormatError {
    /// Error about values that break a rule of a type or a format; `message` says what, where and how to correct it.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self { path: None, kind: Kind::Invalid(message.into()) }
    }

    /// Error about a file whose bytes are damaged or cut off.
    pub fn corrupt(what: impl Into<String>) -> Self {
        Self {
            path: None,
            kind: Kind::Corrupt {
                what: what.into(),
                remedy: "the file is damaged or incomplete; fetch or write it again",
            },
        }
    }

    /// Error of the operating system.
    #[must_use]
    pub fn io(error: io::Error) -> Self {
        Self { path: None, kind: Kind::Io(error) }
    }

    /// Adds the path of the file in error; the innermost path stays.
    #[must_use]
    pub fn at(mut self, path: &Path) -> Self {
        self.path.get_or_insert_with(|| path.to_owned());
        self
    }

    /// Path of the file in error.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Whether the file is readable but wrong: it has to be fetched again, and a retry is useless.
    #[must_use]
    pub fn is_corrupt(&self) -> bool {
        matches!(self.kind, Kind::Corrupt { .. })
    }

    /// Whether the file does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(&self.kind, Kind::Io(error) if error.kind() == io::ErrorKind::NotFound)
    }
}

impl std::fmt::Display for FormatError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.path {
            Some(path) => write!(f, "{}: {}", path.display(), self.kind),
            None => write!(f, "{}", self.kind),
        }
    }
}

impl std::error::Error for FormatError {
    /// Cause of the error, where the message does not contain it already.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            Kind::Io(error) => std::error::Error::source(error),
            Kind::Invalid(_) | Kind::Corrupt { .. } => None,
        }
    }
}

impl From<io::Error> for FormatError {
    fn from(error: io::Error) -> Self {
        Self::io(error)
    }
}
