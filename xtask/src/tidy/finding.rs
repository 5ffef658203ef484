//! Outdated fact, with its place and a remedy.

use std::fmt;

/// Outdated fact, with its place and a remedy.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    pub(super) path: String,
    pub(super) line: usize,
    what: String,
    remedy: String,
}

impl Finding {
    /// Describes a fact at `line` of `path`, counted from 1, and what to do about it.
    pub(super) fn new(path: &str, line: usize, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, what: what.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, line, what, remedy } = self;
        write!(f, "{path}:{line}: {what}; {remedy}")
    }
}

/// Number, from 1, of the first line that contains `needle`; 1 if no line does.
pub fn line_of(text: &str, needle: &str) -> usize {
    text.lines().position(|line| line.contains(needle)).map_or(1, |at| at + 1)
}
