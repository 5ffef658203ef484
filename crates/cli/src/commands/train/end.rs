//! [`End`]: how a training session ended, its exit status, and the command that resumes it.

use std::ffi::OsString;
use std::process::ExitCode;

use girih_trainer::{Outcome, RunSummary, Schedule, TrainConfig};

use crate::args::TrainArgs;
use crate::context::launched::is_launched;
use crate::{interrupt, shell};

/// How a training session ended.
pub enum End {
    /// All epochs are done, or patience ran out.
    Done,
    /// A resumed session had nothing left to train.
    WasDone,
    /// A signal stopped it; `has_begun` is false if the first epoch had not started.
    Stopped {
        /// Exit status, 130 or 143.
        status: u8,
        has_begun: bool,
        /// Command that resumes, if a checkpoint is kept. A launcher prints that of all its processes.
        command: Option<String>,
    },
}

impl End {
    /// End of a session with this outcome.
    pub fn of(args: &TrainArgs, outcome: &Outcome, has_begun: bool) -> Self {
        match interrupt::status().filter(|_| outcome.stopped) {
            Some(status) => {
                let words: Vec<OsString> = std::env::args_os().collect();
                let is_kept = has_begun && args.out.is_some() && !is_launched();
                Self::Stopped { status, has_begun, command: is_kept.then(|| shell::resuming(&words)) }
            }
            None if args.resume && outcome.times.is_empty() => Self::WasDone,
            None => Self::Done,
        }
    }

    /// Exit status of the session.
    pub fn code(&self) -> ExitCode {
        match self {
            Self::Done | Self::WasDone => ExitCode::SUCCESS,
            Self::Stopped { status, .. } => ExitCode::from(*status),
        }
    }

    /// Command that resumes the session.
    pub fn command(&self) -> Option<&str> {
        match self {
            Self::Stopped { command, .. } => command.as_deref(),
            _ => None,
        }
    }

    /// Line for people; `None` after all epochs.
    pub fn line(&self, args: &TrainArgs, config: &TrainConfig, runs: &[RunSummary]) -> Option<String> {
        let Self::Stopped { has_begun, command, .. } = self else {
            return matches!(self, Self::WasDone).then(|| nothing_left(args, config, runs));
        };
        let step = if config.batch.is_sampled() { "batch" } else { "epoch" };
        Some(match (&args.out, command) {
            (Some(out), _) if !has_begun => {
                format!("stopped before training began; nothing was written to {}", out.display())
            }
            (None, _) if !has_begun => "stopped before training began".to_owned(),
            (None, _) => format!("stopped after the {step}; nothing is kept without --out DIR"),
            (Some(_), None) => format!("stopped after the {step}; the checkpoint is written"),
            (Some(_), Some(command)) => {
                format!("stopped after the {step}; the checkpoint is written; continue with\n  {command}")
            }
        })
    }
}

/// Line for a session that resumed a finished one, with the flag that trains further.
fn nothing_left(args: &TrainArgs, config: &TrainConfig, runs: &[RunSummary]) -> String {
    let folder = args.out.as_deref().map_or(String::new(), |out| format!(" in {}", out.display()));
    let is_impatient = runs.iter().any(|run| run.epochs < config.epochs);
    let remedy = match config.patience.filter(|_| is_impatient) {
        Some(patience) => format!("patience ended a run; train on with --patience above {patience}"),
        None if config.optimizer.schedule == (Schedule::Cosine {}) => {
            "the cosine schedule ends with the last epoch; to train longer, choose another --out".to_owned()
        }
        None => {
            let done = runs.iter().map(|run| run.epochs).max().unwrap_or(config.epochs);
            format!("train on with --epochs above {done}, or add runs with --runs")
        }
    };
    format!("nothing is left to do: all epochs{folder} are done; {remedy}")
}
