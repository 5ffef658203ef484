//! [`ProcessGroup`]: the processes that a launcher started.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::num::NonZero;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use girih_comm::Secret;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::Orders;
use crate::context::launched::{LAUNCHER, LOCAL_RANK, RANK};
use crate::error::CliError;
use crate::interrupt::ENDED_BY_SIGNAL;
use crate::{progress, shell};

/// Interval between two polls of the processes.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Time for ranks to notice a failure and report it, before they are sent SIGTERM.
const FAILURE_GRACE: Duration = Duration::from_secs(2);

/// Time for ranks to end after SIGTERM, before they are killed.
const TERMINATION_GRACE: Duration = Duration::from_secs(3);

/// Exit status of a rank that Ctrl-C or SIGTERM stopped after a checkpoint.
const STOPPED: [i32; 2] = [ENDED_BY_SIGNAL + SIGINT, ENDED_BY_SIGNAL + SIGTERM];

/// The processes that a launcher started on this host.
pub struct ProcessGroup {
    members: Vec<Member>,
    signals: Signals,
    shutdown: Shutdown,
    /// Ranks that failed by themselves, in the order of failure, with their exit statuses.
    failed: Vec<(usize, ExitStatus)>,
    /// Exit status of the first rank that a signal stopped after a checkpoint.
    stopped: Option<i32>,
}

struct Member {
    rank: usize,
    child: Child,
    has_ended: bool,
    /// Thread that copies the output of the rank, line by line.
    output_thread: Option<JoinHandle<()>>,
}

/// Phase of the shutdown.
enum Shutdown {
    /// All ranks run.
    Running,
    /// A rank failed; the others have until this time to notice it and end.
    FailureGrace(Instant),
    /// SIGTERM was sent; ranks have until this time to end.
    Terminating(Instant),
    /// SIGKILL was sent.
    Killed,
}

impl ProcessGroup {
    /// Starts all processes. If one cannot be started, none is left running.
    pub fn start(orders: &Orders) -> Result<Self, CliError> {
        let other = |what: &str, error: io::Error| CliError::Other(format!("{what}: {error}"));
        let signals = Signals::new([SIGINT, SIGTERM]).map_err(|error| other("cannot catch Ctrl-C", error))?;
        let (members, failed) = (Vec::new(), Vec::new());
        let mut group = Self { members, signals, shutdown: Shutdown::Running, failed, stopped: None };
        for local in 0..orders.nproc {
            match Member::start(orders, local) {
                Ok(member) => group.members.push(member),
                Err(error) => {
                    group.kill();
                    return Err(other(&format!("rank {} cannot be started", orders.first + local), error));
                }
            }
        }
        Ok(group)
    }

    /// Waits until all processes have ended, and ends all when one fails.
    pub fn watch(mut self) -> Result<ExitCode, CliError> {
        while self.members.iter().any(|member| !member.has_ended) {
            self.pass_signals_on();
            self.look()?;
            self.hurry();
            thread::sleep(POLL_INTERVAL);
        }
        for output_thread in self.members.iter_mut().filter_map(|member| member.output_thread.take()) {
            // A failed copy cannot be recovered here.
            let _ = output_thread.join();
        }
        Ok(self.verdict())
    }

    fn pass_signals_on(&mut self) {
        let signals: Vec<i32> = self.signals.pending().collect();
        for signal in signals {
            // The first signal asks ranks to stop with a checkpoint, which may take an epoch.
            self.send(if signal == SIGINT { Signal::SIGINT } else { Signal::SIGTERM });
        }
    }

    /// Records the processes that have ended.
    fn look(&mut self) -> Result<(), CliError> {
        for member in self.members.iter_mut().filter(|member| !member.has_ended) {
            let ended = member.child.try_wait();
            let ended = ended.map_err(|error| CliError::Other(format!("cannot wait for ranks: {error}")))?;
            let Some(status) = ended else { continue };
            member.has_ended = true;
            if let Some(code) = status.code().filter(|code| STOPPED.contains(code)) {
                self.stopped.get_or_insert(code);
                continue;
            }
            // A rank that ended on our signal did not fail.
            let by_itself =
                !matches!((&self.shutdown, status.signal()), (Shutdown::Terminating(_) | Shutdown::Killed, Some(_)));
            if !status.success() && (by_itself || self.failed.is_empty()) {
                self.failed.push((member.rank, status));
            }
        }
        if !self.failed.is_empty() && matches!(self.shutdown, Shutdown::Running) {
            self.shutdown = Shutdown::FailureGrace(Instant::now() + FAILURE_GRACE);
        }
        Ok(())
    }

    /// Sends SIGTERM, then SIGKILL, to ranks that do not end in time.
    fn hurry(&mut self) {
        let now = Instant::now();
        match self.shutdown {
            Shutdown::FailureGrace(until) if now >= until => {
                self.send(Signal::SIGTERM);
                self.shutdown = Shutdown::Terminating(now + TERMINATION_GRACE);
            }
            Shutdown::Terminating(until) if now >= until => {
                self.kill();
                self.shutdown = Shutdown::Killed;
            }
            _ => {}
        }
    }

    fn living(&mut self) -> impl Iterator<Item = &mut Member> {
        self.members.iter_mut().filter(|member| !member.has_ended)
    }

    fn send(&mut self, signal: Signal) {
        for member in self.living() {
            // The process may have ended in between. Its id is not reused before it is waited for.
            let _ = kill(Pid::from_raw(member.child.id() as i32), signal);
        }
    }

    fn kill(&mut self) {
        for member in self.living() {
            // The process may have ended in between; see above.
            let _ = member.child.kill();
        }
    }

    /// Reports the failed rank. A rank that a signal ended is the cause; the others end with an error because of it.
    fn verdict(&self) -> ExitCode {
        let by_signal = self.failed.iter().find(|(_, status)| status.signal().is_some());
        let Some((rank, status)) = by_signal.or(self.failed.first()) else { return self.stopped() };
        let code = match (status.signal(), status.code()) {
            (Some(signal), _) => {
                let name = Signal::try_from(signal).map_or_else(|_| signal.to_string(), |signal| signal.to_string());
                eprintln!("girih launch: rank {rank} was ended by {name}");
                ENDED_BY_SIGNAL + signal
            }
            (None, code) => {
                let code = code.unwrap_or(1);
                eprintln!("girih launch: rank {rank} failed, with status {code}");
                code
            }
        };
        ExitCode::from(u8::try_from(code).unwrap_or(1))
    }
}

impl ProcessGroup {
    /// Exit status when no rank failed. If a signal stopped them, prints the command that resumes.
    fn stopped(&self) -> ExitCode {
        let Some(code) = self.stopped else { return ExitCode::SUCCESS };
        let words: Vec<OsString> = std::env::args_os().collect();
        if words.iter().any(|word| word == "--out" || word.to_string_lossy().starts_with("--out=")) {
            progress::print_line(&format!("continue with\n  {}", shell::resuming(&words)));
        }
        ExitCode::from(u8::try_from(code).unwrap_or(1))
    }
}

impl Member {
    fn start(orders: &Orders, local: usize) -> io::Result<Self> {
        let rank = orders.first + local;
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(&orders.command)
            .env(RANK, rank.to_string())
            .env("GIRIH_SIZE", orders.size.to_string())
            .env(LOCAL_RANK, local.to_string())
            .env("GIRIH_RENDEZVOUS", &orders.rendezvous)
            .env("GIRIH_JOB", &orders.job)
            .env(Secret::VARIABLE, orders.secret.to_hex())
            .env_remove(Secret::FILE_VARIABLE)
            .env(LAUNCHER, std::process::id().to_string())
            .stdin(Stdio::null())
            // The terminal sends Ctrl-C to the process group of the launcher, which passes it on once.
            .process_group(0);
        if std::env::var_os("RAYON_NUM_THREADS").is_none() {
            let cores = thread::available_parallelism().map_or(1, NonZero::get);
            command.env("RAYON_NUM_THREADS", (cores / orders.nproc).max(1).to_string());
        }
        if rank > 0 {
            command.stdout(Stdio::null()).stderr(Stdio::piped());
        }
        let mut child = command.spawn()?;
        let output_thread = child.stderr.take().map(|said| thread::Builder::new().spawn(move || pass_on(rank, said)));
        match output_thread.transpose() {
            Ok(output_thread) => Ok(Self { rank, child, has_ended: false, output_thread }),
            Err(error) => {
                child.kill()?;
                Err(error)
            }
        }
    }
}

/// Copies the output of a rank, line by line, with its number in front.
fn pass_on(rank: usize, said: impl Read) {
    let mut said = BufReader::new(said);
    let mut line = format!("[rank {rank}] ").into_bytes();
    let prefix = line.len();
    // A broken pipe ends the output, as its end does.
    while said.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
        if !line.ends_with(b"\n") {
            line.push(b'\n');
        }
        let _ = io::stderr().write_all(&line);
        line.truncate(prefix);
    }
}
