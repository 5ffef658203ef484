//! Data that change while a command reads them: an error names the file; there is no signal and no wrong result.

#![cfg(unix)]

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};

use crate::girih::{Finished, Workspace, command, girih};

/// Folder with data that are mapped into memory.
fn data() -> Workspace {
    let work = Workspace::new();
    let spec = "planted,nodes=2000,degree=8,features=64,classes=4";
    girih(&["generate", spec, "--out", &work.arg("data")]).ok();
    work
}

/// Training session on the data that has printed some epochs, and runs until its pipe is full.
fn training(work: &Workspace, flags: &[&str]) -> (Child, BufReader<ChildStdout>) {
    let (data, out) = (work.arg("data"), work.arg("out"));
    let args = ["train", "--data", &data, "--device", "cpu", "--epochs", "300", "--out", &out, "--json"];
    let args = [&args[..], flags].concat();
    let mut child = command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    for _ in 0..3 {
        assert!(out.read_line(&mut String::new()).unwrap() > 0, "the session ended early");
    }
    (child, out)
}

fn end_of((child, mut out): (Child, BufReader<ChildStdout>)) -> Finished {
    let mut text = String::new();
    out.read_to_string(&mut text).unwrap();
    Finished { out: text, ..Finished::new(child.wait_with_output().unwrap()) }
}

/// Overwrites the last values of a file in place.
fn overwrite(path: &Path) {
    let mut file = File::options().write(true).open(path).unwrap();
    file.seek(SeekFrom::End(-4000)).unwrap();
    file.write_all(&[0xff; 4000]).unwrap();
}

fn assert_names(finished: &Finished, file: &str) {
    assert_eq!(finished.code, Some(1), "{}{}", finished.out, finished.err);
    assert!(finished.err.contains(file) && finished.err.contains("while it was in use"), "{}", finished.err);
    let event = finished.events().pop().unwrap();
    assert!(event["event"] == "error" && event["message"].as_str().unwrap().contains(file), "{event}");
}

/// Mini-batches read the mapped file; full batches copy it before they start, and no longer need it.
#[test]
fn a_graph_that_is_overwritten_while_it_trains_is_an_error_or_makes_no_difference() {
    for flags in [&[][..], &["--model", "sage", "--batch", "neighbor"], &["--ranks", "2"]] {
        let work = data();
        let undisturbed = end_of(training(&work, flags)).ok().result();
        fs::remove_dir_all(work.path("out")).unwrap();
        let session = training(&work, flags);
        overwrite(&work.path("data/indices.npy"));
        let finished = end_of(session);
        if flags.contains(&"neighbor") || finished.code != Some(0) {
            assert_names(&finished, "indices.npy");
        } else {
            assert_eq!(finished.result()["train_loss"], undisturbed["train_loss"], "{flags:?}");
        }
    }
}

#[test]
fn features_that_are_cut_off_while_they_train_are_an_error() {
    for flags in [&["--model", "mlp"][..], &["--model", "sage", "--batch", "neighbor"]] {
        let work = data();
        let session = training(&work, flags);
        File::options().write(true).open(work.path("data/features.npy")).unwrap().set_len(5000).unwrap();
        assert_names(&end_of(session), "features.npy");
        assert!(!work.path("out/result.json").exists(), "no result of data that are gone");
    }
}

/// The open files keep their contents.
#[test]
fn data_that_are_replaced_while_they_train_are_a_warning() {
    let work = data();
    let session = training(&work, &[]);
    fs::rename(work.path("data"), work.path("before")).unwrap();
    let spec = "planted,nodes=2000,degree=8,features=64,classes=4,seed=9";
    girih(&["generate", spec, "--out", &work.arg("data")]).ok();
    let finished = end_of(session).ok();
    // The name first belongs to no file, then to another one.
    let told = "while it was in use; its old contents are used until the end";
    assert!(finished.err.contains(told), "{}", finished.err);
    assert_eq!(finished.result()["epochs"], 300);
}
