//! [`CompressError`]: failure to compress features or read them back.

use std::io;
use std::path::{Path, PathBuf};

use girih_graph_format::FormatError;

/// Failure of a codec, a feature, a source or a store; the message says what was found, where, what was expected and
/// how to correct it.
#[derive(Debug)]
pub struct CompressError {
    path: Option<PathBuf>,
    kind: Kind,
}

#[derive(Debug, thiserror::Error)]
enum Kind {
    #[error("{0}")]
    Invalid(String),
    #[error("{0}: the store is damaged or incomplete; copy it again or encode the features anew")]
    Corrupt(String),
    #[error("{0}")]
    Io(io::Error),
    #[error("{0}")]
    Format(FormatError),
    #[error("stopped before the last row; what is encoded is kept, and the same call goes on from there")]
    Stopped,
}

impl CompressError {
    /// Error about a setting, a feature or a request.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self { path: None, kind: Kind::Invalid(message.into()) }
    }

    /// Error about a store whose bytes are damaged or cut off.
    pub(crate) fn corrupt(what: impl Into<String>) -> Self {
        Self { path: None, kind: Kind::Corrupt(what.into()) }
    }

    /// Error of the operating system.
    pub(crate) fn io(error: io::Error) -> Self {
        Self { path: None, kind: Kind::Io(error) }
    }

    /// Error of a call that its caller stopped.
    pub(crate) fn stopped() -> Self {
        Self { path: None, kind: Kind::Stopped }
    }

    /// Adds the path of the file in error; the innermost path stays.
    #[must_use]
    pub fn at(mut self, path: &Path) -> Self {
        self.path.get_or_insert_with(|| path.to_owned());
        self
    }

    /// Whether the store is readable but wrong: it has to be fetched again, and a retry is useless.
    #[must_use]
    pub fn is_corrupt(&self) -> bool {
        matches!(&self.kind, Kind::Corrupt(_)) || matches!(&self.kind, Kind::Format(error) if error.is_corrupt())
    }

    /// Whether the file does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        match &self.kind {
            Kind::Io(error) => error.kind() == io::ErrorKind::NotFound,
            Kind::Format(error) => error.is_not_found(),
            Kind::Invalid(_) | Kind::Corrupt(_) | Kind::Stopped => false,
        }
    }

    /// Whether the disk is full: after freeing space, the call can be repeated.
    #[must_use]
    pub fn is_storage_full(&self) -> bool {
        matches!(&self.kind, Kind::Io(error) if error.kind() == io::ErrorKind::StorageFull)
    }

    /// Whether the caller's own request to stop ended the call.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        matches!(self.kind, Kind::Stopped)
    }
}

impl std::fmt::Display for CompressError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.path, &self.kind) {
            // A format error names its file itself.
            (Some(path), kind) if !matches!(kind, Kind::Format(_)) => write!(f, "{}: {kind}", path.display()),
            (_, kind) => kind.fmt(f),
        }?;
        if self.is_storage_full() {
            write!(f, "; free some room and run again: it goes on where it stopped")?;
        }
        Ok(())
    }
}

impl std::error::Error for CompressError {
    /// Cause of the error, where the message does not contain it already.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            Kind::Io(error) => std::error::Error::source(error),
            Kind::Format(error) => std::error::Error::source(error),
            Kind::Invalid(_) | Kind::Corrupt(_) | Kind::Stopped => None,
        }
    }
}

impl From<FormatError> for CompressError {
    fn from(error: FormatError) -> Self {
        Self { path: None, kind: Kind::Format(error) }
    }
}
