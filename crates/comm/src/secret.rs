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

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const HEX: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1eFf";

    #[test]
    fn a_secret_is_never_shown() {
        let secret = Secret::from_hex(HEX).unwrap();
        assert_eq!((secret.bytes()[1], secret.bytes()[31]), (1, 255));
        assert_eq!(secret.to_hex(), HEX.to_lowercase());
        assert_eq!(format!("{secret:?} {:?}", Secret::default()), "Secret(hidden) Secret(none)");
        let (one, other) = (Secret::random().unwrap(), Secret::random().unwrap());
        assert_ne!(one.to_hex(), other.to_hex());
    }

    #[test]
    fn what_is_no_secret_is_named_and_not_shown() {
        for text in ["abc", &HEX[1..], &HEX.replace('0', "g"), &format!("{HEX}00"), &"é".repeat(32)] {
            let error = Secret::detect(None, |name| (name == Secret::VARIABLE).then(|| text.to_owned())).unwrap_err();
            let said = error.to_string();
            assert!(said.contains("GIRIH_SECRET is not 64 hexadecimal digits") && !said.contains(text), "{said}");
        }
        assert!(Secret::detect(None, |_| Some(String::new())).unwrap().is_none());
        assert!(Secret::detect(None, |_| None).unwrap().is_none());
    }

    #[cfg(unix)]
    #[test]
    fn files_of_secrets_belong_to_their_user_alone() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        fs::write(&path, format!("{HEX}\n")).unwrap();
        let with_mode = |mode: u32| {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            Secret::from_file(&path).map_err(|error| error.to_string())
        };
        for mode in [0o644, 0o640, 0o604, 0o610, 0o602] {
            let said = with_mode(mode).unwrap_err();
            assert!(said.contains("secret is open to other users") && said.contains("chmod 600 "), "{said}");
        }
        assert_eq!(with_mode(0o600).unwrap().to_hex(), HEX.to_lowercase());
        assert_eq!(with_mode(0o400).unwrap().to_hex(), HEX.to_lowercase());
        // The flag takes precedence over the variables, and the secret over its file.
        let other = "11".repeat(32);
        let both = |name: &str| Some(if name == Secret::VARIABLE { other.clone() } else { path.display().to_string() });
        assert_eq!(Secret::detect(Some(&path), both).unwrap().to_hex(), HEX.to_lowercase());
        assert_eq!(Secret::detect(None, both).unwrap().to_hex(), other);
        let file_alone = |name: &str| (name == Secret::FILE_VARIABLE).then(|| path.display().to_string());
        assert_eq!(Secret::detect(None, file_alone).unwrap().to_hex(), HEX.to_lowercase());
        with_mode(0o600).unwrap();
        fs::write(&path, "x".repeat(10_000)).unwrap();
        let said = Secret::from_file(&path).unwrap_err().to_string();
        assert!(said.contains("is not 64 hexadecimal digits: make it with `openssl rand -hex 32"), "{said}");
        assert!(Secret::from_file(&folder.path().join("none")).unwrap_err().to_string().contains("cannot be read"));
    }
}
