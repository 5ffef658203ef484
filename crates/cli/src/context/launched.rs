//! Processes that `girih launch` started: how they know it, and which of them reports a failure.

use crate::error::CliError;

/// Environment variable with the process id of the launcher, for the processes that it starts.
#[cfg(unix)]
pub const LAUNCHER: &str = "GIRIH_LAUNCHER";

/// Environment variables with the rank of a process, in the job and on its host.
pub const RANK: &str = "GIRIH_RANK";
pub const LOCAL_RANK: &str = "GIRIH_LOCAL_RANK";

/// Whether the launcher started this process directly. A launcher between them would belong to another job.
#[cfg(unix)]
pub fn is_launched() -> bool {
    number(LAUNCHER) == Some(std::os::unix::process::parent_id())
}

#[cfg(not(unix))]
pub fn is_launched() -> bool {
    false
}

fn number(variable: &str) -> Option<u32> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Whether this process has to report why it failed. Processes of one launcher would mostly print the same error. A
/// usage error, common to all, is reported by the first process of the host. If a rank failed, that rank reports it
/// if it still can, and so does the first of the others.
pub fn has_to_say(error: &CliError) -> bool {
    let (true, Some(rank), Some(local)) = (is_launched(), number(RANK), number(LOCAL_RANK)) else { return true };
    match error.failed_rank() {
        None => local == 0 || !error.is_usage(),
        Some(failed) => {
            let (rank, first) = (rank as usize, (rank - local) as usize);
            rank == failed || rank == first + usize::from(failed == first)
        }
    }
}

/// Asks the kernel to terminate this process when its launcher ends, even if the launcher is killed.
pub fn end_with_the_launcher() {
    #[cfg(target_os = "linux")]
    {
        use nix::sys::prctl::set_pdeathsig;
        use nix::sys::signal::Signal;
        if is_launched() {
            // A failure is harmless: training continues without it.
            let _ = set_pdeathsig(Signal::SIGTERM);
        }
    }
}
