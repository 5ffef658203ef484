//! `girih verify` detects every changed byte; also the file size limit of a process.

use std::fs;

use crate::girih::{Finished, Workspace, command, girih, says};

/// Small folder with data, a store of codes and a training session.
fn files() -> Workspace {
    let work = Workspace::new();
    girih(&["generate", "planted,nodes=40,degree=4,features=3,classes=2", "--out", &work.arg("data")]).ok();
    girih(&["compress", &work.arg("data"), "--codec", "int8", "--out", &work.arg("codes")]).ok();
    girih(&["train", &work.arg("data"), "--epochs", "2", "--out", &work.arg("out")]).ok();
    work
}

#[test]
fn every_flipped_byte_is_found() {
    let work = files();
    for name in ["data", "codes", "out"] {
        let result = girih(&["verify", &work.arg(name), "--json"]).ok().result();
        assert!(
            result["bytes"].as_u64().unwrap() > 0 && !result["verified"].as_array().unwrap().is_empty(),
            "{result}"
        );
    }
    for file in ["data/features.npy", "data/indptr.npy", "codes/features.codes", "out/run-000.safetensors"] {
        let (path, folder) = (work.path(file), work.arg(file.split('/').next().unwrap()));
        let bytes = fs::read(&path).unwrap();
        for at in (0..bytes.len()).step_by(1 + bytes.len() / 30) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            fs::write(&path, &damaged).unwrap();
            let finished = girih(&["verify", &folder]);
            assert_eq!(finished.code, Some(1), "byte {at} of {file}: {}{}", finished.out, finished.err);
            assert!(!finished.err.contains("panicked"), "{}", finished.err);
        }
        fs::write(&path, &bytes).unwrap();
    }
    girih(&["verify", &work.arg("out/run-000.safetensors")]).ok();
    assert!(says(&girih(&["verify", &work.arg("data/girih.toml")]).refused(1), "nothing here has checksums"));
    assert!(says(&girih(&["verify", &work.arg("none")]).refused(1), "none"));
}

/// Loading compares checksums, too, except with `--no-verify`; commands that write new checksums refuse that flag.
#[test]
fn damaged_data_load_only_where_that_is_asked_for() {
    let work = files();
    let path = work.path("data/features.npy");
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&path, &bytes).unwrap();
    assert!(says(&girih(&["stats", &work.arg("data")]).refused(1), "checksum"));
    girih(&["stats", &work.arg("data"), "--no-verify"]).ok();
    for args in [&["convert"][..], &["reorder", "--order", "degree"]] {
        let (data, copy) = (work.arg("data"), work.arg("copy"));
        let to = [&data, "--out", &copy];
        let written = girih(&[args, &to, &["--no-verify"]].concat()).refused(2);
        assert!(says(&written, "leave it out"), "{written}");
        girih(&[args, &to].concat()).refused(1);
        assert!(!work.path("copy").exists());
    }
}

/// Threads that cannot be started are one message, whichever command needs them.
#[cfg(target_os = "linux")]
#[test]
fn threads_that_cannot_start_are_one_message() {
    let work = files();
    let (girih, data) = (command(&[""]).get_program().to_owned(), work.arg("data"));
    let girih = girih.to_string_lossy().into_owned();
    let out = work.arg("copy");
    for words in [format!("verify {data}"), format!("convert {data} --out {out}"), format!("train {data} --device cpu")]
    {
        // The stack of one thread fits below the limit, that of signals; the next one does not, and the heap does.
        let line = format!("ulimit -v 1200000; RUST_MIN_STACK=600000000 RAYON_NUM_THREADS=2 {girih} {words}");
        let finished = Finished::new(std::process::Command::new("sh").args(["-c", &line]).output().unwrap());
        let message = finished.refused(1);
        assert!(says(&message, "cannot start one thread per core") && !work.path("copy").exists(), "{message}");
    }
}

/// The limit causes an error, not a silent end by a signal.
#[cfg(target_os = "linux")]
#[test]
fn a_limit_of_a_files_size_is_an_error() {
    let work = Workspace::new();
    let (girih, out) = (command(&[""]).get_program().to_owned(), work.arg("data"));
    let line = format!("ulimit -f 8; {} generate planted,nodes=20000,degree=4 --out {out}", girih.to_string_lossy());
    let finished = Finished::new(std::process::Command::new("sh").args(["-c", &line]).output().unwrap());
    assert_eq!(finished.code, Some(1), "{}{}", finished.out, finished.err);
    assert!(finished.err.contains("data"), "{}", finished.err);
    assert!(
        !work.path("data").exists() && fs::read_dir(work.folder()).unwrap().next().is_none(),
        "nothing half-written"
    );
}
