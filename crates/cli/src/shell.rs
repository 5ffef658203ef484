//! Command lines in the syntax of a shell.

use std::ffi::{OsStr, OsString};

/// Command line that resumes an interrupted training: the given words with `--resume`, quoted for a POSIX shell.
pub fn resuming(words: &[OsString]) -> String {
    // With a launcher, the command of its processes follows `--`.
    let begin = words.iter().position(|word| word == "--").filter(|_| words.iter().any(|word| word == "launch"));
    let begin = begin.unwrap_or(0);
    let train = words[begin..].iter().position(|word| word == "train").map_or(words.len(), |at| begin + at + 1);
    let mut words = words.to_vec();
    if !words.iter().any(|word| word == "--resume") {
        words.insert(train, "--resume".into());
    }
    line(&words)
}

/// Command line of words, quoted for a POSIX shell.
pub fn line(words: &[OsString]) -> String {
    words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

/// Word quoted for a POSIX shell.
pub fn quoted(word: &OsStr) -> String {
    let text = word.to_string_lossy();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:,=@%+".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.into_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}
