//! [`OutputFolder`]: the files below `--out`.

use std::fs::{File, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};

use girih_graph_format::file;
use girih_trainer::{TrainConfig, checkpoint_path, differences};

use crate::args::{DataArgs, OutputArgs};
use crate::context::settings::{self, CONFIG_FILE};
use crate::error::CliError;
use crate::history::{History, METRICS_FILE};
use crate::messages;
use crate::page::report::Report;
use crate::paths;

/// Folder of a training session, with the contents that are known before training.
#[derive(Clone, Debug)]
pub struct OutputFolder {
    path: PathBuf,
    /// Contents of `config.toml`.
    config: String,
    settings: TrainConfig,
    resume: bool,
    /// Whether event files for TensorBoard are wanted.
    tensorboard: bool,
    output: OutputArgs,
}

/// Folder of event files below that of the session.
const EVENTS: &str = "tensorboard";

impl OutputFolder {
    /// Folder at `path`, which is not created yet. With `tensorboard` it has event files.
    ///
    /// # Errors
    /// When files are there already and training does not resume, or none can be written.
    pub fn new(
        path: &Path,
        (data, config): (&DataArgs, &TrainConfig),
        (resume, tensorboard): (bool, bool),
        output: OutputArgs,
    ) -> Result<Self, CliError> {
        let (text, settings) = (settings::to_toml(Some(data), config)?, config.clone());
        let folder = Self { path: path.to_owned(), config: text, settings, resume, tensorboard, output };
        paths::check(path)?;
        if path.is_file() {
            let message = "is a file, and training writes a folder; choose another path";
            return Err(CliError::Other(format!("{}: {message}", path.display())));
        }
        folder.refuse_used()?;
        Ok(folder)
    }

    /// Refuses a folder that contains files, unless training resumes there.
    fn refuse_used(&self) -> Result<(), CliError> {
        let used = std::fs::read_dir(&self.path).is_ok_and(|mut entries| entries.next().is_some());
        if !used || self.resume {
            return Ok(());
        }
        let ours = self.config_file().exists();
        let remedy = if ours { "continue it with --resume, or choose another" } else { "choose another" };
        Err(CliError::Other(format!("{}: the folder is not empty; {remedy} folder", self.path.display())))
    }

    /// Replaces the configuration by the final one of training.
    ///
    /// # Errors
    /// Never in practice: every setting has a TOML form.
    pub fn with(self, data: &DataArgs, config: &TrainConfig) -> Result<Self, CliError> {
        Ok(Self { config: settings::to_toml(Some(data), config)?, settings: config.clone(), ..self })
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn config_file(&self) -> PathBuf {
        self.path.join(CONFIG_FILE)
    }

    /// Creates the folder with its configuration, locks it for this process, and opens its history.
    ///
    /// # Errors
    /// When it cannot be written, or another process trains into it.
    pub fn begin(&self) -> Result<History, CliError> {
        std::fs::create_dir_all(&self.path).map_err(|e| CliError::io(&self.path, e))?;
        let lock = locked(&self.path)?;
        // Another training session may have written here since the first check.
        self.refuse_used()?;
        if self.resume && !checkpoint_path(&self.path, 0).exists() {
            tracing::warn!("{}: no checkpoint to resume; training starts from epoch 1", self.path.display());
        }
        self.tell_changes()?;
        file::write_file(&self.config_file(), |out| Ok(out.write_all(self.config.as_bytes())?))?;
        let events = self.path.join(EVENTS);
        let events = (self.tensorboard || (self.resume && events.is_dir())).then_some(&*events);
        Ok(History::open(&self.path.join(METRICS_FILE), self.resume, events)?.holding(lock))
    }

    /// Notes the settings that a resumed session changes.
    fn tell_changes(&self) -> Result<(), CliError> {
        let file = self.config_file();
        if !self.resume || !file.exists() {
            return Ok(());
        }
        let changed = differences(&settings::read_train(&file)?, &self.settings);
        if !changed.is_empty() {
            messages::note(self.output, format!("resumed with {}", changed.join(", ")));
        }
        Ok(())
    }

    /// Writes the result and the page.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn finish(&self, report: &Report<'_>) -> Result<(), CliError> {
        let result = report.results.to_json();
        file::write_file(&self.path.join("result.json"), |out| Ok(writeln!(out, "{result}")?))?;
        report.write(&self.path.join("report.html"))
    }
}

/// Opens and locks a folder for this process. `None` on systems where folders cannot be locked.
fn locked(folder: &Path) -> Result<Option<File>, CliError> {
    if !cfg!(unix) {
        return Ok(None);
    }
    let opened = File::open(folder).map_err(|e| CliError::io(folder, e))?;
    match opened.try_lock() {
        Ok(()) => Ok(Some(opened)),
        Err(TryLockError::WouldBlock) => Err(CliError::Other(format!(
            "{}: another process trains into this folder; wait for it, or choose another folder",
            folder.display()
        ))),
        Err(TryLockError::Error(error)) => {
            tracing::debug!("{} is not locked: {error}", folder.display());
            Ok(None)
        }
    }
}
