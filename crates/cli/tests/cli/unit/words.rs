//! Paths and words for a shell.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use girih_cli::internals::words::{check, make_parents, quoted, resuming};

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
    assert_eq!(resumed(&["girih", "train", "my graph", "it's", ""]), r"girih train --resume 'my graph' 'it'\''s' ''");
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

#[test]
fn paths_are_checked_without_a_trace_and_then_made() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a/b/c.png");
    check(&path).unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    make_parents(&path).unwrap();
    assert!(folder.path().join("a/b").is_dir());
    std::fs::write(&path, "").unwrap();
    let message = check(&path.join("d.png")).unwrap_err().to_string();
    assert!(message.contains("c.png is a file"), "{message}");
    check(Path::new("in-this-folder.png")).unwrap();
}
