//! `girih launch`: starts the local processes of a training job, which may span several hosts.

#[cfg(unix)]
mod process_group;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use girih_comm::{Secret, tcp};

use crate::args::{Cli, Command, LaunchArgs, RankArgs};
use crate::error::CliError;
use crate::messages;

/// Starts the processes and waits for them. The exit status is that of the rank that failed, if one did.
pub fn run(args: &LaunchArgs) -> Result<ExitCode, CliError> {
    let ranks = check(args)?;
    start(&Orders::of(args, &ranks)?)
}

#[cfg(unix)]
fn start(orders: &Orders) -> Result<ExitCode, CliError> {
    process_group::ProcessGroup::start(orders)?.watch()
}

#[cfg(not(unix))]
fn start(_: &Orders) -> Result<ExitCode, CliError> {
    Err(CliError::Usage(
        "girih launch needs the signals of Unix; start the processes by hand, with GIRIH_RANK, GIRIH_SIZE and \
         GIRIH_RENDEZVOUS set"
            .to_owned(),
    ))
}

/// Processes that a launcher starts.
struct Orders {
    command: Vec<OsString>,
    /// Number of processes on this host.
    nproc: usize,
    /// Rank of the first local process.
    first: usize,
    /// Number of ranks on all hosts.
    size: usize,
    rendezvous: String,
    job: String,
    secret: Secret,
}

impl Orders {
    fn of(args: &LaunchArgs, ranks: &RankArgs) -> Result<Self, CliError> {
        let (nproc, is_alone) = (usize::from(args.nproc), args.nodes == 1);
        let rendezvous = match &args.rendezvous {
            Some(place) => place.clone(),
            None if is_alone => {
                tcp::local_rendezvous().map_err(|error| CliError::Other(format!("no port can be had: {error}")))?
            }
            None => {
                return Err(CliError::Usage(
                    "ranks of several hosts have to meet: give --rendezvous HOST:PORT, with the first host and a free port there"
                        .to_owned(),
                ));
            }
        };
        // Launchers on several hosts have no common job name unless the environment gives one.
        let told = std::env::var("GIRIH_JOB").ok();
        let job = told.unwrap_or_else(|| if is_alone { unique() } else { String::new() });
        let secret = secret(args.secret_file.as_ref().or(ranks.secret_file.as_ref()), is_alone)?;
        tcp::require_secret(&rendezvous, &secret).map_err(|error| CliError::Usage(error.to_string()))?;
        let (first, size) = (nproc * usize::from(args.node), nproc * usize::from(args.nodes));
        Ok(Self { command: args.command.clone(), nproc, first, size, rendezvous, job, secret })
    }
}

/// Secret from the user; on a single host, otherwise a new one.
fn secret(file: Option<&PathBuf>, is_alone: bool) -> Result<Secret, CliError> {
    let given = Secret::from_env(file.map(PathBuf::as_path))?;
    if !is_alone || !given.is_none() {
        return Ok(given);
    }
    Secret::random().map_err(|error| CliError::Other(format!("no random bytes for a secret: {error}")))
}

/// Job name that is unique on this host.
fn unique() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{:x}-{:x}", std::process::id(), now.as_nanos())
}

/// Checks the command line before any process starts, so that an error appears once. Returns the rank flags of the
/// command.
fn check(args: &LaunchArgs) -> Result<RankArgs, CliError> {
    let usage = |what: String| Err(CliError::Usage(what));
    if args.node >= args.nodes {
        return usage(format!("--node {} of --nodes {}: hosts are counted from 0", args.node, args.nodes));
    }
    let program = OsString::from("girih");
    let parsed = Cli::parse_line(std::iter::once(&program).chain(&args.command));
    // Help and version arrive here, too, and are not errors.
    let is_json = args.command.iter().any(|word| word == "--json");
    let parsed = parsed.unwrap_or_else(|error| std::process::exit(messages::of_clap(&error, is_json).into()));
    let ranks = match parsed.command {
        Command::Train(train) if train.plan => {
            return usage("--plan trains nothing: call it alone, without girih launch".to_owned());
        }
        Command::Train(train) => train.ranks,
        Command::Evaluate(evaluate) => evaluate.ranks,
        Command::Predict(predict) => predict.ranks,
        _ => {
            let name = args.command[0].display();
            return usage(format!(
                "girih launch starts `train`, `evaluate` or `predict`; {name} is done by one process: call it alone"
            ));
        }
    };
    let size = u32::from(args.nproc) * u32::from(args.nodes);
    match ranks.ranks {
        Some(ranks) if u32::from(ranks) != size => {
            usage(format!("--ranks {ranks} with {size} processes: each is a rank; leave --ranks out, or start as many"))
        }
        _ => Ok(ranks),
    }
}
