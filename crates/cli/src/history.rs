//! Curve of a training session: one point per epoch, kept in `metrics.jsonl`. `metrics.csv` and the event files of
//! TensorBoard have the same points, and are written anew from it when a session resumes.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use girih_graph_format::{FormatError, file};

use crate::curves::Curves;
use crate::error::CliError;
use crate::point::Point;
use crate::table::Table;
use crate::tensorboard::EventFiles;

/// Name of the file of all points in the folder of a session.
pub const METRICS_FILE: &str = "metrics.jsonl";

/// Points so far: all in `metrics.jsonl`, if there is an output folder, and their curves in memory.
#[derive(Default)]
pub struct History {
    curves: Curves,
    /// Last epoch of each run in the file.
    last_epochs: BTreeMap<u64, u64>,
    files: Option<Files>,
    /// Lock that keeps other processes out of the folder.
    _lock: Option<File>,
}

/// Files of the points.
struct Files {
    path: PathBuf,
    writer: BufWriter<File>,
    table: Table,
    events: Option<EventFiles>,
}

impl History {
    /// Opens a history at `path`, `metrics.jsonl`, with `metrics.csv` beside it, and event files in the folder
    /// `events`, if given. With `resume` it keeps the points of the file; a last line that a crash truncated is
    /// dropped.
    pub fn open(path: &Path, resume: bool, events: Option<&Path>) -> Result<Self, CliError> {
        let mut history = Self::default();
        history.rewrite((path, events), resume.then_some(&|_: &Point| true))?;
        Ok(history)
    }

    /// Adds the lock that keeps other processes out of the folder.
    pub fn holding(self, lock: Option<File>) -> Self {
        Self { _lock: lock, ..self }
    }

    /// Drops the points of `run` after `epoch`, which a resumed run trains again. Later runs have their own
    /// checkpoints.
    pub fn truncate(&mut self, run: u64, epoch: u64) -> Result<(), CliError> {
        if self.last_epochs.get(&run).is_none_or(|&last| last <= epoch) {
            return Ok(());
        }
        let Some(Files { path, events, .. }) = self.files.take() else { return Ok(()) };
        let events = events.as_ref().map(EventFiles::folder);
        self.rewrite((&path, events), Some(&|point: &Point| point.run != run || point.epoch <= epoch))
    }

    /// Adds a point. Its line is in all files when this returns.
    pub fn push(&mut self, point: &Point) -> Result<(), CliError> {
        if let Some(Files { path, writer, table, events }) = &mut self.files {
            let line = point.to_line()?;
            writeln!(writer, "{line}").and_then(|()| writer.flush()).map_err(|e| CliError::io(path, e))?;
            table.push(point)?;
            events.as_mut().map_or(Ok(()), |events| events.push(point))?;
        }
        self.take(point);
        Ok(())
    }

    /// Curves of all points.
    pub fn curves(&self) -> &Curves {
        &self.curves
    }

    fn take(&mut self, point: &Point) {
        self.curves.add(point);
        let last = self.last_epochs.entry(point.run).or_default();
        *last = point.epoch.max(*last);
    }

    /// Keeps the points of the file that `keep` accepts, none without `keep`, writes the other files anew, and opens
    /// all for more.
    fn rewrite(
        &mut self,
        (path, events): (&Path, Option<&Path>),
        keep: Option<&impl Fn(&Point) -> bool>,
    ) -> Result<(), CliError> {
        (self.curves, self.last_epochs) = Default::default();
        file::write_file(path, |out| {
            let Some(keep) = keep else { return Ok(()) };
            for_each_point(path, |point| {
                if keep(&point) {
                    writeln!(out, "{}", serde_json::to_string(&point).map_err(std::io::Error::from)?)?;
                    self.take(&point);
                }
                Ok(())
            })
        })?;
        let table = Table::begin(&path.with_extension("csv"), |each| for_each_point(path, each))?;
        let mut events = events.map(EventFiles::begin).transpose()?;
        if let Some(events) = &mut events {
            for_each_point(path, |point| events.push(&point).map_err(|error| FormatError::invalid(error.to_string())))?;
        }
        let file = File::options().append(true).open(path).map_err(|e| CliError::io(path, e))?;
        self.files = Some(Files { path: path.to_owned(), writer: BufWriter::new(file), table, events });
        Ok(())
    }
}

/// Calls `each` for the points of a file, one by one; for none if the file does not exist. A last line without its end,
/// which a killed process left, is no point.
///
/// # Errors
/// When the file cannot be read, or a line is not a point.
pub fn for_each_point(path: &Path, mut each: impl FnMut(Point) -> Result<(), FormatError>) -> Result<(), FormatError> {
    let mut file = match File::open(path) {
        Ok(file) => BufReader::new(file),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        if file.read_until(b'\n', &mut line)? == 0 {
            break;
        }
        match serde_json::from_slice(&line) {
            Ok(point) => each(point)?,
            Err(_) if !line.ends_with(b"\n") => break,
            Err(error) => {
                let remedy = "correct the line, or take another folder";
                return Err(FormatError::invalid(format!("line {number} is not an epoch ({error}); {remedy}")));
            }
        }
    }
    Ok(())
}
