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
    words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

/// Word quoted for a POSIX shell.
fn quoted(word: &OsStr) -> String {
    let text = word.to_string_lossy();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:,=@%+".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.into_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resumed(words: &[&str]) -> String {
        resuming(&words.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn a_training_goes_on_by_the_same_words() {
        assert_eq!(resumed(&["girih", "train", "--out", "a"]), "girih train --resume --out a");
        assert_eq!(resumed(&["girih", "train", "--resume", "--out", "a"]), "girih train --resume --out a");
        let launched = ["girih", "launch", "--nproc", "2", "--", "train", "--out", "a"];
        assert_eq!(resumed(&launched), "girih launch --nproc 2 -- train --resume --out a");
    }

    #[test]
    fn words_are_quoted_where_a_shell_would_split_them() {
        assert_eq!(
            resumed(&["girih", "train", "my graph", "it's", ""]),
            r"girih train --resume 'my graph' 'it'\''s' ''"
        );
        assert_eq!(resumed(&["girih", "train", "$HOME", "*"]), "girih train --resume '$HOME' '*'");
    }

    #[cfg(unix)]
    #[test]
    fn a_shell_reads_the_words_that_were_given() {
        let words = ["train", "a b", "$x", "it's \"so\"", "*", "~", "a\nb", "#c", "!", "synth:planted,nodes=9"];
        let line = words.map(|word| quoted(OsStr::new(word))).join(" ");
        let shell = std::process::Command::new("sh").arg("-c").arg(format!("printf '%s\\0' {line}")).output().unwrap();
        let read: Vec<&str> = std::str::from_utf8(&shell.stdout).unwrap().split_terminator('\0').collect();
        assert_eq!(read, words);
    }
}
