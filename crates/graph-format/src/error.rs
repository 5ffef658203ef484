//! [`FormatError`]: what was found, where, what was expected, and what to do.

use std::io;
use std::path::{Path, PathBuf};

/// Why a graph or a file of one was refused.
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
    /// An error about values that break a rule of a type or a format; `message` says what, where and what to do.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self { path: None, kind: Kind::Invalid(message.into()) }
    }

    /// An error about a file whose bytes are damaged or cut off.
    pub fn corrupt(what: impl Into<String>) -> Self {
        Self {
            path: None,
            kind: Kind::Corrupt {
                what: what.into(),
                remedy: "the file is damaged or incomplete; fetch or write it again",
            },
        }
    }

    /// An error of the operating system.
    #[must_use]
    pub fn io(error: io::Error) -> Self {
        Self { path: None, kind: Kind::Io(error) }
    }

    /// The same error, naming the file it is about (the innermost file named stays).
    #[must_use]
    pub fn at(mut self, path: &Path) -> Self {
        self.path.get_or_insert_with(|| path.to_owned());
        self
    }

    /// The file the error is about.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Readable but wrong: get the file again; do not retry.
    #[must_use]
    pub fn is_corrupt(&self) -> bool {
        matches!(self.kind, Kind::Corrupt { .. })
    }

    /// The file does not exist.
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
    /// The cause, where the message does not hold it already.
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
