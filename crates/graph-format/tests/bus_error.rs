//! A mapped file that is truncated while it is read ends the process with a message, not with a bare signal.

#![cfg(target_os = "linux")]

use std::fs::File;
use std::path::Path;
use std::process::Command;

use girih_graph_format::file::{map_bytes, mapped_file_at};

/// Environment variable of the child process: the file beyond whose end it reads.
const VARIABLE: &str = "GIRIH_TEST_CUT_OFF";

#[test]
fn reading_beyond_a_file_that_was_cut_off_names_it() {
    if let Some(path) = std::env::var_os(VARIABLE) {
        read_beyond_the_end(Path::new(&path));
    }
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("a \"b\".npy");
    std::fs::write(&path, vec![1u8; 1 << 20]).unwrap();
    let this = std::env::current_exe().unwrap();
    let ended = Command::new(this).arg("--nocapture").env(VARIABLE, &path).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert_eq!(ended.status.code(), Some(1), "{out}{err}");
    let message = format!("{}: cut off while it was in use", path.display());
    assert!(err.contains(&format!("error: {message}")), "{err}");
    let event = out.lines().find(|line| line.starts_with('{')).unwrap();
    assert!(event.contains(&message.replace('"', "\\\"")) && event.ends_with("\"status\":1}"), "{event}");
}

fn read_beyond_the_end(path: &Path) -> ! {
    println!();
    girih_machine::explain_bus_errors(mapped_file_at, true);
    let bytes = map_bytes(path).unwrap();
    File::options().write(true).open(path).unwrap().set_len(10).unwrap();
    let sum: u64 = bytes.iter().map(|&byte| u64::from(byte)).sum();
    unreachable!("read bytes that are not there: {sum}");
}
