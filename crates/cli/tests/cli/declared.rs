//! Numbers that files declare: they must match the bytes of the file, or stay below a limit, before memory is
//! allocated.

use std::fs;

use girih_graph_format::file::write_npy;

use crate::girih::{Workspace, girih, says};

fn folder() -> Workspace {
    let work = Workspace::new();
    girih(&["generate", "planted,nodes=60,degree=4,features=3,classes=3", "--out", &work.arg("data")]).ok();
    work
}

#[test]
fn classes_and_splits_of_a_manifest() {
    for (key, huge, told) in [
        ("n_classes = 3", "n_classes = 4294967295", "4294967295 classes; at most 65536"),
        ("n_splits = 1", "n_splits = 4294967295", "4294967295 splits, and the folder has"),
    ] {
        let work = folder();
        let manifest = work.path("data/girih.toml");
        let text = fs::read_to_string(&manifest).unwrap();
        assert!(text.contains(key), "{text}");
        fs::write(&manifest, text.replace(key, huge)).unwrap();
        let data = work.arg("data");
        for args in [&["stats"][..], &["train", "--epochs", "1"], &["train", "--epochs", "1", "--ranks", "2"]] {
            let message = girih(&[args, &[&data]].concat()).refused(1);
            assert!(says(&message, told) && says(&message, "girih.toml"), "{message}");
        }
    }
}

#[test]
fn classes_of_an_array() {
    let work = Workspace::new();
    fs::create_dir(work.path("data")).unwrap();
    let save = |name: &str, shape: &[usize], values: &[i64]| {
        write_npy(&work.path(&format!("data/{name}.npy")), shape, values).unwrap();
    };
    save("edge_index", &[2, 3], &[0, 1, 2, 1, 2, 0]);
    save("y", &[3], &[0, 1, 0]);
    save("num_classes", &[1], &[i64::from(i32::MAX) - 1]);
    let message = girih(&["stats", &work.arg("data")]).refused(1);
    assert!(says(&message, "num_classes is 2147483646; at most 65536 are supported"), "{message}");
}

/// A model is built from a checkpoint's settings, which must be as valid as those of a user.
#[test]
fn settings_of_a_checkpoint() {
    let work = folder();
    let (data, out) = (work.arg("data"), work.arg("out"));
    girih(&["train", &data, "--epochs", "1", "--out", &out]).ok();
    let path = work.path("out/run-000.safetensors");
    let bytes = fs::read(&path).unwrap();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let mut header: serde_json::Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    let stated = header["__metadata__"]["girih"].as_str().unwrap().to_owned();
    let (checksum, progress) = stated.split_once(' ').unwrap();
    let huge = progress.replace("\"hidden\":16", "\"hidden\":4294967296");
    assert_ne!(huge, progress);
    header["__metadata__"]["girih"] = format!("{checksum} {huge}").into();
    let mut text = serde_json::to_string(&header).unwrap();
    text.push_str(&" ".repeat(text.len().next_multiple_of(8) - text.len()));
    let hostile = [&(text.len() as u64).to_le_bytes()[..], text.as_bytes(), &bytes[8 + length..]].concat();
    fs::write(&path, hostile).unwrap();
    let message = girih(&["evaluate", &data, "--checkpoint", &out]).refused(1);
    assert!(says(&message, "run-000.safetensors") && says(&message, "hidden"), "{message}");
}

/// The address space limit of a process counts as a memory limit.
#[cfg(target_os = "linux")]
#[test]
fn training_beyond_a_limit_of_the_process_is_refused() {
    let program = crate::girih::command(&[""]).get_program().to_string_lossy().into_owned();
    let data = "synth:planted,nodes=20000,degree=4,features=32";
    let line = format!("ulimit -v 3000000; {program} train {data} --device cpu --threads 2 --layers 3 --hidden 20000");
    let ended = std::process::Command::new("sh").args(["-c", &line]).output().unwrap();
    let message = String::from_utf8_lossy(&ended.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(ended.status.code(), Some(1), "{message}");
    assert!(message.contains("training needs ") && message.contains("ulimit -v"), "{message}");
}
