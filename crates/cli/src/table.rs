//! `metrics.csv`: one row an epoch and run, for spreadsheets and data frames.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use girih_graph_format::{FormatError, file};

use crate::curves::Measure;
use crate::error::CliError;
use crate::point::Point;

/// Table of points that grows with training. A row is in the file when [`push`](Self::push) returns.
pub struct Table {
    path: PathBuf,
    file: File,
}

impl Table {
    /// Writes the table of all points that `points` hands to its callback, and opens it for more.
    ///
    /// # Errors
    /// When the points cannot be read, or the file cannot be written.
    pub fn begin(
        path: &Path,
        points: impl FnOnce(&mut dyn FnMut(Point) -> Result<(), FormatError>) -> Result<(), FormatError>,
    ) -> Result<Self, CliError> {
        file::write_file(path, |out| {
            writeln!(out, "{}", header())?;
            points(&mut |point| Ok(writeln!(out, "{}", row(&point))?))
        })?;
        let file = File::options().append(true).open(path).map_err(|e| CliError::io(path, e))?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// Adds the row of a point.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn push(&mut self, point: &Point) -> Result<(), CliError> {
        // One write a row: a killed process leaves whole rows.
        self.file.write_all(format!("{}\n", row(point)).as_bytes()).map_err(|e| CliError::io(&self.path, e))
    }
}

/// Measures with a column of their name. Times have columns in seconds.
fn measures() -> impl Iterator<Item = Measure> {
    Measure::ALL.into_iter().filter(|measure| !matches!(measure, Measure::StepsMs))
}

fn header() -> String {
    let names: Vec<&str> = measures().map(Measure::key).collect();
    format!("run,epoch,{},lr,seconds,time", names.join(","))
}

/// Cells of a point; one without a value is empty.
fn row(point: &Point) -> String {
    let mut row = format!("{},{}", point.run, point.epoch);
    for measure in measures() {
        let cell = measure.of(point).map_or(String::new(), |value| value.to_string());
        let _ = write!(row, ",{cell}");
    }
    let _ = write!(row, ",{},{},{}", point.lr, point.ms / 1e3, point.time);
    row
}
