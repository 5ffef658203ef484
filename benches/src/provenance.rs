//! Where and when a number comes from: the commit and the date.

use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// The state of the source that was measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commit {
    /// Short hash.
    pub hash: String,
    /// Whether files differed from the commit.
    pub dirty: bool,
}

impl Commit {
    /// The commit checked out at `root`; `None` without git or without a commit.
    #[must_use]
    pub fn at(root: &Path) -> Option<Self> {
        let hash = git(root, &["rev-parse", "--short=12", "HEAD"])?;
        let dirty = !git(root, &["status", "--porcelain"])?.is_empty();
        Some(Self { hash, dirty })
    }
}

impl std::fmt::Display for Commit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.hash, if self.dirty { "-dirty" } else { "" })
    }
}

/// Standard output of a git command that succeeds, trimmed.
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

/// Year, month and day of a day since 1 January 1970, in the Gregorian calendar.
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
    fn a_folder_without_git_has_no_commit() {
        assert_eq!(Commit::at(Path::new("/")), None);
    }
}
