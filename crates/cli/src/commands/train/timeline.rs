//! `--timeline`: GPU activity during training, as a file.

use std::path::{Path, PathBuf};

use girih_graph_format::file;
use girih_trainer::Event;

use crate::context::device::Chosen;
use crate::error::CliError;
use crate::paths;

/// Recording in progress, with the path of its file.
pub struct Timeline {
    path: PathBuf,
    recording: girih_kernels::Timeline,
}

impl Timeline {
    /// Starts to record, if there is a path. With several processes each writes a file: rank 0 writes `path`, the
    /// others add their rank before the extension.
    ///
    /// # Errors
    /// When training runs on the CPU, recording is impossible, or the path cannot be written.
    pub fn begin(path: Option<&Path>, device: &Chosen, rank: usize) -> Result<Option<Self>, CliError> {
        let Some(path) = path else { return Ok(None) };
        if let Chosen::Cpu(_) = device {
            return Err(CliError::Usage(
                "--timeline records CUDA devices, and the CPU trains: leave it out, or give --device cuda".to_owned(),
            ));
        }
        let path = of_rank(path, rank);
        paths::check(&path)?;
        let recording = girih_kernels::Timeline::begin().map_err(|error| failed(&error))?;
        Ok(Some(Self { path, recording }))
    }

    /// Marks the end of epochs.
    ///
    /// # Errors
    /// When the recording fails.
    pub fn mark(&self, event: &Event<'_>) -> Result<(), CliError> {
        let name = match event {
            Event::Prepared => "preparation".to_owned(),
            Event::Epoch { run, report } if *run > 0 => format!("epoch {} of run {run}", report.epoch),
            Event::Epoch { report, .. } => format!("epoch {}", report.epoch),
            Event::RunStarted { .. } | Event::Batch { .. } | Event::RunFinished(_) => return Ok(()),
        };
        self.recording.mark(&name).map_err(|error| failed(&error))
    }

    /// Writes the file.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn finish(self) -> Result<(), CliError> {
        let trace = self.recording.finish().map_err(|error| failed(&error))?;
        paths::make_parents(&self.path)?;
        Ok(file::write_file(&self.path, |out| Ok(trace.write_json(out)?))?)
    }
}

fn failed(error: &girih_kernels::KernelError) -> CliError {
    CliError::Other(error.to_string())
}

/// Path of a rank's file: `a.json` for rank 0, `a.2.json` for rank 2.
pub fn of_rank(path: &Path, rank: usize) -> PathBuf {
    let extension = path.extension().unwrap_or_default().to_string_lossy();
    if rank == 0 { path.to_owned() } else { path.with_extension(format!("{rank}.{extension}")) }
}
