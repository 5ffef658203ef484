//! Origin of a number: commit and date.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// File beside a program that contains its commit.
const NOTE: &str = "commit";
const DIRTY: &str = "-dirty";

/// State of the measured source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commit {
    /// Short hash.
    pub hash: String,
    /// Whether files differed from the commit.
    pub dirty: bool,
}

impl Commit {
    /// Commit that this program was built from: the one that `cargo xtask dist` noted beside it, otherwise the one
    /// checked out at `root`. `None` without a note and without git.
    #[must_use]
    pub fn of_program(root: &Path) -> Option<Self> {
        let noted =
            std::env::current_exe().ok().and_then(|program| fs::read_to_string(program.with_file_name(NOTE)).ok());
        noted.map_or_else(|| Self::at(root), |note| Some(Self::noted(note.trim())))
    }

    fn noted(note: &str) -> Self {
        let hash = note.strip_suffix(DIRTY);
        Self { hash: hash.unwrap_or(note).to_owned(), dirty: hash.is_some() }
    }

    /// Commit checked out at `root`; `None` without git or without a commit.
    fn at(root: &Path) -> Option<Self> {
        let hash = git(root, &["rev-parse", "--short=12", "HEAD"])?;
        let dirty = !git(root, &["status", "--porcelain"])?.is_empty();
        Some(Self { hash, dirty })
    }
}

impl std::fmt::Display for Commit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.hash, if self.dirty { DIRTY } else { "" })
    }
}

/// Trimmed standard output of a successful git command.
fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).current_dir(root).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Today in UTC, as `2026-11-20`.
#[must_use]
pub fn today() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let (year, month, day) = civil_date(seconds / 86_400);
    format!("{year:04}-{month:02}-{day:02}")
}

/// Year, month and day in the Gregorian calendar, from days since 1 January 1970.
fn civil_date(mut days: u64) -> (u64, u64, u64) {
    let is_leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let mut month = 1;
    for length in [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_become_dates() {
        assert_eq!(civil_date(0), (1970, 1, 1));
        assert_eq!(civil_date(11_016), (2000, 2, 29));
        assert_eq!(civil_date(19_722), (2023, 12, 31));
        assert_eq!(civil_date(20_777), (2026, 11, 20));
    }

    #[test]
    fn notes_are_read_as_they_are_written() {
        for dirty in [false, true] {
            let commit = Commit { hash: "0123456789ab".to_owned(), dirty };
            assert_eq!(Commit::noted(&commit.to_string()), commit);
        }
    }

    #[test]
    fn a_folder_without_git_has_no_commit() {
        assert_eq!(Commit::at(Path::new("/")), None);
    }
}
