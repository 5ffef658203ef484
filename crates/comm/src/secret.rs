//! [`Secret`]: key by which the ranks of a job authenticate each other.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::CommError;

/// Length of a secret in bytes.
const LEN: usize = 32;

/// Largest number of bytes read from a file. It exceeds a secret with line ends, so longer files are noticed.
const LONGEST_FILE: u64 = 4 * LEN as u64;

/// 32 random bytes that all ranks of a job share, or none. `Debug` does not print them.
#[derive(Clone, Default)]
pub struct Secret(Option<[u8; LEN]>);

impl Secret {
    /// Environment variable that holds the secret, as hexadecimal.
    pub const VARIABLE: &'static str = "GIRIH_SECRET";

    /// Environment variable that names the file of the secret.
    pub const FILE_VARIABLE: &'static str = "GIRIH_SECRET_FILE";

    /// Secret from the random number generator of the system.
    ///
    /// # Errors
    /// When the system has none.
    pub fn random() -> io::Result<Self> {
        random().map(|bytes| Self(Some(bytes)))
    }

    /// Secret from the given file, or else from the environment; without either, there is none.
    ///
    /// # Errors
    /// When it is not 64 hexadecimal digits, or the file cannot be read or is accessible to other users.
    pub fn from_env(file: Option<&Path>) -> Result<Self, CommError> {
        Self::detect(file, |name| std::env::var(name).ok())
    }

    /// As [`from_env`](Self::from_env), but reads variables by `lookup`. An empty variable counts as unset.
    ///
    /// # Errors
    /// As [`from_env`](Self::from_env).
    pub fn detect(file: Option<&Path>, lookup: impl Fn(&str) -> Option<String>) -> Result<Self, CommError> {
        let variable = |name: &str| lookup(name).filter(|value| !value.is_empty());
        if let Some(path) = file {
            return Self::from_file(path);
        }
        if let Some(text) = variable(Self::VARIABLE) {
            let what = || format!("is not {} hexadecimal digits, as `openssl rand -hex {LEN}` prints them", 2 * LEN);
            let wrong = || CommError::Environment { variable: Self::VARIABLE, what: what() };
            return Self::from_hex(&text).ok_or_else(wrong);
        }
        variable(Self::FILE_VARIABLE).map_or(Ok(Self(None)), |path| Self::from_file(&PathBuf::from(path)))
    }

    /// Secret from a file that only its owner can access.
    ///
    /// # Errors
    /// When the file cannot be read, is accessible to other users, or has other contents.
    pub fn from_file(path: &Path) -> Result<Self, CommError> {
        let wrong = |what: String| CommError::Secret { path: path.to_owned(), what };
        let unreadable = |error: io::Error| wrong(format!("cannot be read: {error}"));
        let file = File::open(path).map_err(unreadable)?;
        refuse_other_users(&file, path).map_err(wrong)?;
        let mut text = String::new();
        file.take(LONGEST_FILE).read_to_string(&mut text).map_err(unreadable)?;
        Self::from_hex(&text).ok_or_else(|| {
            wrong(format!("is not {} hexadecimal digits: make it with `openssl rand -hex {LEN} > FILE`", 2 * LEN))
        })
    }

    /// Secret from 64 hexadecimal digits, with optional white space around them.
    fn from_hex(text: &str) -> Option<Self> {
        let text = text.trim();
        if text.len() != 2 * LEN {
            return None;
        }
        let mut bytes = [0; LEN];
        for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            let digit = |at: usize| char::from(pair[at]).to_digit(16);
            *byte = u8::try_from(digit(0)? << 4 | digit(1)?).ok()?;
        }
        Some(Self(Some(bytes)))
    }

    /// Hexadecimal digits, for the environment of processes of the same job; empty without a secret.
    #[must_use]
    pub fn to_hex(&self) -> String {
        self.bytes().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// True if no secret is set.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// Key of the HMAC proofs; empty without a secret.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], |bytes| bytes)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_none() { "Secret(none)" } else { "Secret(hidden)" })
    }
}

/// Random bytes of the system.
pub(crate) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes)
}

/// Refuses a file that its group or others can access.
#[cfg(unix)]
fn refuse_other_users(file: &File, path: &Path) -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt;
    let mode = file.metadata().map_err(|error| format!("cannot be read: {error}"))?.permissions().mode();
    if mode & 0o077 == 0 {
        return Ok(());
    }
    Err(format!("is open to other users (mode {:03o}): chmod 600 {}", mode & 0o777, path.display()))
}

#[cfg(not(unix))]
fn refuse_other_users(_: &File, _: &Path) -> Result<(), String> {
    Ok(())
}
