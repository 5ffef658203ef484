//! [`CompressError`]: why features were not compressed or read back.

use std::io;
use std::path::{Path, PathBuf};

use girih_graph_format::FormatError;

/// Why a codec, a feature, a source or a store was refused; the message says what was found, where, what was expected
/// and what to do.
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
    /// An error about a setting, a feature or a request.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self { path: None, kind: Kind::Invalid(message.into()) }
    }

    /// An error about a store whose bytes are damaged or cut off.
    pub(crate) fn corrupt(what: impl Into<String>) -> Self {
        Self { path: None, kind: Kind::Corrupt(what.into()) }
    }

    /// An error of the operating system.
    pub(crate) fn io(error: io::Error) -> Self {
        Self { path: None, kind: Kind::Io(error) }
    }

    /// The caller asked for a stop.
    pub(crate) fn stopped() -> Self {
        Self { path: None, kind: Kind::Stopped }
    }

    /// The same error, naming the file it is about (the innermost file named stays).
    #[must_use]
    pub fn at(mut self, path: &Path) -> Self {
        self.path.get_or_insert_with(|| path.to_owned());
        self
    }

    /// Readable but wrong: get the store again; do not retry.
    #[must_use]
    pub fn is_corrupt(&self) -> bool {
        matches!(&self.kind, Kind::Corrupt(_)) || matches!(&self.kind, Kind::Format(error) if error.is_corrupt())
    }

    /// There is no room left on the disk: free some and call again.
    #[must_use]
    pub fn is_storage_full(&self) -> bool {
        matches!(&self.kind, Kind::Io(error) if error.kind() == io::ErrorKind::StorageFull)
    }

    /// The caller's own request to stop ended the call.
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
    /// The cause, where the message does not hold it already.
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
