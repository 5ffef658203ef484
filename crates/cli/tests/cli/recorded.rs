//! Points of epochs in `metrics.csv` and in event files of TensorBoard: as in `metrics.jsonl`, also after a kill.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::girih::{SMALL, Workspace, command, girih, losses, names_in, rows};

/// Event of TensorBoard: its time, and a version or the scalars of a step.
#[derive(Debug, PartialEq)]
enum Event {
    Version(String),
    Scalars(u64, Vec<(String, f32)>),
}

/// CRC-32C by its definition, a division of polynomials.
fn crc32c(data: &[u8]) -> u32 {
    let mut crc = !0u32;
    for &byte in data {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
        }
    }
    !crc
}

fn masked(data: &[u8]) -> u32 {
    crc32c(data).rotate_right(15).wrapping_add(0xa282_ead8)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// Data of the records of a file, whose checksums are compared.
fn records(path: &Path) -> Vec<Vec<u8>> {
    let bytes = fs::read(path).unwrap();
    let (mut at, mut found) = (0, Vec::new());
    while at < bytes.len() {
        let length = u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
        assert_eq!(u32_at(&bytes, at + 8), masked(&bytes[at..at + 8]), "checksum of the length at {at}");
        let data = bytes[at + 12..at + 12 + length].to_vec();
        assert_eq!(u32_at(&bytes, at + 12 + length), masked(&data), "checksum of the data at {at}");
        at += 16 + length;
        found.push(data);
    }
    found
}

/// Fields of a message: number, and content.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let byte = bytes[0];
            *bytes = &bytes[1..];
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        value
    }
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let length = match key & 7 {
            0 => {
                found.push((key >> 3, varint(&mut bytes).to_le_bytes().to_vec()));
                continue;
            }
            1 => 8,
            2 => varint(&mut bytes) as usize,
            5 => 4,
            wire => panic!("wire type {wire}"),
        };
        found.push((key >> 3, bytes[..length].to_vec()));
        bytes = &bytes[length..];
    }
    found
}

fn scalar(value: &[u8]) -> (String, f32) {
    let fields = fields(value);
    assert_eq!(fields.iter().map(|field| field.0).collect::<Vec<_>>(), [1, 2]);
    (String::from_utf8(fields[0].1.clone()).unwrap(), f32::from_le_bytes(fields[1].1[..].try_into().unwrap()))
}

/// Events of the one file in a folder.
fn events(folder: &Path) -> Vec<Event> {
    let names = names_in(folder);
    assert_eq!(names.len(), 1, "{names:?}");
    assert!(names[0].starts_with("events.out.tfevents."), "{names:?}");
    let event = |data: Vec<u8>| {
        let fields = fields(&data);
        let time = f64::from_le_bytes(fields[0].1[..].try_into().unwrap());
        assert!(fields[0].0 == 1 && time > 1.6e9, "wall time {time}");
        match &fields[1..] {
            [(3, version)] => Event::Version(String::from_utf8(version.clone()).unwrap()),
            [(2, step), (5, summary)] => {
                let scalars = self::fields(summary).iter().map(|(_, value)| scalar(value)).collect();
                Event::Scalars(u64::from_le_bytes(step[..].try_into().unwrap()), scalars)
            }
            other => panic!("{other:?}"),
        }
    };
    records(&folder.join(&names[0])).into_iter().map(event).collect()
}

/// Steps and training losses of a run's events.
fn steps(out: &Path, run: u64) -> Vec<(u64, f32)> {
    let mut events = events(&out.join(format!("tensorboard/run-{run:03}"))).into_iter();
    assert_eq!(events.next(), Some(Event::Version("brain.Event:2".to_owned())));
    let loss = |event| match event {
        Event::Scalars(step, scalars) => (step, scalars.iter().find(|(tag, _)| tag == "loss/train").unwrap().1),
        other @ Event::Version(_) => panic!("{other:?}"),
    };
    events.map(loss).collect()
}

/// Asserts that all three records of a session have the same epochs and losses.
fn assert_agree(out: &Path) {
    let points: Vec<(u64, u64, f32)> = losses(&out.join("metrics.jsonl"))
        .into_iter()
        .map(|(run, epoch, loss)| (run, epoch, loss.parse().unwrap()))
        .collect();
    assert_eq!(rows(&out.join("metrics.csv")), points);
    let runs: std::collections::BTreeSet<u64> = points.iter().map(|point| point.0).collect();
    for run in runs {
        let of_run = points.iter().filter(|point| point.0 == run).map(|&(_, epoch, loss)| (epoch, loss));
        assert_eq!(steps(out, run), of_run.collect::<Vec<_>>(), "run {run}");
    }
}

#[test]
fn the_checksum_of_records_is_that_of_others() {
    assert_eq!(crc32c(b"123456789"), 0xe306_9283, "the check value of catalogues of CRCs");
    assert_eq!(
        masked(&24u64.to_le_bytes()),
        u32::from_le_bytes([0xa3, 0x7f, 0x4b, 0x22]),
        "first bytes of TensorFlow's files"
    );
}

#[test]
fn a_table_and_event_files_have_every_epoch_and_run() {
    let work = Workspace::new();
    let out = work.arg("out");
    girih(&[
        "train",
        "--data",
        SMALL,
        "--epochs",
        "4",
        "--eval-every",
        "2",
        "--runs",
        "2",
        "--out",
        &out,
        "--tensorboard",
    ])
    .ok();
    assert_agree(&work.path("out"));
    let table = fs::read_to_string(work.path("out/metrics.csv")).unwrap();
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(
        lines[0],
        "run,epoch,train_loss,val_loss,test_loss,train_accuracy,val_accuracy,test_accuracy,val_roc_auc,test_roc_auc,\
         recall_at_20,ndcg_at_20,val_mrr,test_mrr,lr,seconds,time"
    );
    assert!(lines.iter().all(|line| line.split(',').count() == 17), "{table}");
    assert!(lines[1].contains(",,"), "the first epoch is not evaluated: {table}");
    assert!(!lines[2].split(',').nth(6).unwrap().is_empty(), "the second one is: {table}");
    let Event::Scalars(2, scalars) = &events(&work.path("out/tensorboard/run-001"))[2] else { panic!("no step 2") };
    let tags: Vec<&str> = scalars.iter().map(|(tag, _)| tag.as_str()).collect();
    let expected = ["loss/train", "loss/val", "loss/test", "accuracy/train", "accuracy/val", "accuracy/test"];
    assert_eq!(tags, [&expected[..], &["epoch_ms", "learning_rate"]].concat());
}

#[test]
fn a_killed_session_keeps_its_rows_and_resumes_without_double_ones() {
    let work = Workspace::new();
    let (out, table) = (work.arg("out"), work.path("out/metrics.csv"));
    let args = ["train", "--data", SMALL, "--checkpoint-every", "3", "--out", &out, "--tensorboard"];
    let mut child = command(&[&args[..], &["--epochs", "1000000", "-qq"]].concat()).spawn().unwrap();
    let begun = Instant::now();
    let n_lines = || fs::read_to_string(&table).map_or(0, |text| text.matches('\n').count());
    while n_lines() < 8 {
        assert!(begun.elapsed() < Duration::from_secs(120), "no epochs within two minutes");
        sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let kept = fs::read_to_string(&table).unwrap().matches('\n').count() as u64 - 1;
    assert!(kept >= 7, "{kept} rows");

    let epochs = kept + 5;
    girih(&["train", "--out", &out, "--resume", "--epochs", &epochs.to_string()]).ok();
    let found: Vec<(u64, u64)> = rows(&table).into_iter().map(|(run, epoch, _)| (run, epoch)).collect();
    assert_eq!(found, (1..=epochs).map(|epoch| (0, epoch)).collect::<Vec<_>>());
    assert_agree(&work.path("out"));
}

#[test]
fn event_files_need_a_folder() {
    let message = girih(&["train", "--data", SMALL, "--tensorboard"]).refused(2);
    assert!(message.contains("--out"), "{message}");
}
