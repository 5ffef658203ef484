//! Event files of TensorBoard: scalars of each epoch, a folder a run.
//!
//! A file is a sequence of records: length (`u64`), masked CRC-32C of the length, data, masked CRC-32C of the data, all
//! little-endian. The data of a record are a message `Event` in protobuf's wire format (`event.proto` and
//! `summary.proto` of TensorBoard), of which girih writes five fields.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::curves::Measure;
use crate::dates;
use crate::error::CliError;
use crate::point::Point;

/// Beginning of the names of event files, by which TensorBoard finds them.
const PREFIX: &str = "events.out.tfevents.";
/// End of the names of girih's event files.
const SUFFIX: &str = ".girih";
/// Contents of the first event of a file.
const VERSION: &str = "brain.Event:2";

/// Event files that grow with training, one in the folder `run-NNN` of each run.
pub struct EventFiles {
    folder: PathBuf,
    /// Seconds since 1970, in the names of files: TensorBoard reads those of one folder in the order of names.
    begun: u64,
    /// Run whose file is open.
    open: Option<(u64, PathBuf, File)>,
}

impl EventFiles {
    /// Removes the event files of earlier sessions below a folder, whose points are written again. The folder need not
    /// exist.
    ///
    /// # Errors
    /// When a file cannot be removed.
    pub fn begin(folder: &Path) -> Result<Self, CliError> {
        for run in entries(folder)?.into_iter().filter(|path| path.is_dir()) {
            for file in entries(&run)?.into_iter().filter(|path| is_ours(path)) {
                std::fs::remove_file(&file).map_err(|e| CliError::io(&file, e))?;
            }
        }
        Ok(Self { folder: folder.to_owned(), begun: dates::now() as u64, open: None })
    }

    /// Folder of all runs, which TensorBoard takes as `--logdir`.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Adds the scalars of a point. They are in the file when this returns.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn push(&mut self, point: &Point) -> Result<(), CliError> {
        let scalars: Vec<(&str, f64)> = Measure::ALL
            .into_iter()
            .filter_map(|measure| Some((tag(measure), measure.of(point)?)))
            .chain([("learning_rate", point.lr)])
            .collect();
        let (path, file) = self.file_of(point.run)?;
        let record = record(&scalar_event(point.time, point.epoch, &scalars));
        file.write_all(&record).map_err(|e| CliError::io(path, e))
    }

    /// File of a run; a new one begins with the version of the format.
    fn file_of(&mut self, run: u64) -> Result<(&Path, &mut File), CliError> {
        if self.open.as_ref().is_none_or(|(open, ..)| *open != run) {
            let folder = self.folder.join(format!("run-{run:03}"));
            std::fs::create_dir_all(&folder).map_err(|e| CliError::io(&folder, e))?;
            let path = folder.join(format!("{PREFIX}{:010}{SUFFIX}", self.begun));
            let is_new = !path.exists();
            let mut file = File::options().append(true).create(true).open(&path).map_err(|e| CliError::io(&path, e))?;
            if is_new {
                file.write_all(&record(&version_event(self.begun as f64))).map_err(|e| CliError::io(&path, e))?;
            }
            self.open = Some((run, path, file));
        }
        let (_, path, file) = self.open.as_mut().expect("the file of the run was just opened");
        Ok((path, file))
    }
}

/// Entries of a folder; none if it does not exist.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, CliError> {
    match std::fs::read_dir(folder) {
        Ok(entries) => Ok(entries.flatten().map(|entry| entry.path()).collect()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(CliError::io(folder, error)),
    }
}

fn is_ours(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with(PREFIX) && name.ends_with(SUFFIX)
}

/// Tag of a measure: its group and its part, by which TensorBoard arranges charts.
fn tag(measure: Measure) -> &'static str {
    match measure {
        Measure::TrainLoss => "loss/train",
        Measure::ValLoss => "loss/val",
        Measure::TestLoss => "loss/test",
        Measure::TrainAccuracy => "accuracy/train",
        Measure::ValAccuracy => "accuracy/val",
        Measure::TestAccuracy => "accuracy/test",
        Measure::ValRocAuc => "roc_auc/val",
        Measure::TestRocAuc => "roc_auc/test",
        Measure::RecallAt20 => "ranking/recall_at_20",
        Measure::NdcgAt20 => "ranking/ndcg_at_20",
        Measure::ValMrr => "mrr/val",
        Measure::TestMrr => "mrr/test",
        Measure::StepsMs => "epoch_ms",
    }
}

/// `Event` with `wall_time` (1) and `file_version` (3).
fn version_event(time: f64) -> Vec<u8> {
    let mut event = field_f64(1, time);
    event.extend(field_bytes(3, VERSION.as_bytes()));
    event
}

/// `Event` with `wall_time` (1), `step` (2) and `summary` (5), whose values (1) have a `tag` (1) and a `simple_value`
/// (2).
fn scalar_event(time: f64, step: u64, scalars: &[(&str, f64)]) -> Vec<u8> {
    let summary: Vec<u8> = scalars
        .iter()
        .flat_map(|&(tag, value)| {
            let fields = [field_bytes(1, tag.as_bytes()), field_f32(2, value as f32)].concat();
            field_bytes(1, &fields)
        })
        .collect();
    [field_f64(1, time), field_varint(2, step), field_bytes(5, &summary)].concat()
}

/// Protobuf's wire types: varint, eight bytes, length and bytes, four bytes.
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const BYTES: u64 = 2;
const FIXED32: u64 = 5;

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

fn field(number: u64, wire: u64, content: &[u8]) -> Vec<u8> {
    let mut bytes = varint(number << 3 | wire);
    bytes.extend_from_slice(content);
    bytes
}

fn field_varint(number: u64, value: u64) -> Vec<u8> {
    field(number, VARINT, &varint(value))
}

fn field_f64(number: u64, value: f64) -> Vec<u8> {
    field(number, FIXED64, &value.to_le_bytes())
}

fn field_f32(number: u64, value: f32) -> Vec<u8> {
    field(number, FIXED32, &value.to_le_bytes())
}

fn field_bytes(number: u64, bytes: &[u8]) -> Vec<u8> {
    let length = varint(bytes.len() as u64);
    field(number, BYTES, &[&length, bytes].concat())
}

/// Data with their length and checksums.
fn record(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    [&length[..], &masked_crc(&length).to_le_bytes(), data, &masked_crc(data).to_le_bytes()].concat()
}

/// CRC-32C, rotated and offset so that checksums of data with checksums stay strong.
fn masked_crc(data: &[u8]) -> u32 {
    crc32c(data).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// CRC-32C (Castagnoli), bit by bit: an epoch has a few hundred bytes.
fn crc32c(data: &[u8]) -> u32 {
    /// The polynomial, lowest power first.
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let step = |crc: u32, _| (crc >> 1) ^ (POLYNOMIAL & (crc & 1).wrapping_neg());
    !data.iter().fold(!0, |crc, &byte| (0..8).fold(crc ^ u32::from(byte), step))
}
