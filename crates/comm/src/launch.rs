//! [`Launch`]: settings that a launcher (`girih launch`, torchrun, `mpirun`, `srun`) gives to its processes.

use crate::CommError;

/// Launcher of this process and of the others of its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launcher {
    /// `girih launch`, or a script with the same variables.
    Girih,
    /// PyTorch's torchrun, or a script with the same variables.
    Torchrun,
    /// Open MPI's `mpirun`.
    OpenMpi,
    /// Hydra, the `mpiexec` of MPICH and Intel MPI.
    Hydra,
    /// Slurm's `srun`.
    Slurm,
}

/// Rank of a process in its job, and how to reach the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Launcher of the process.
    pub launcher: Launcher,
    /// Rank of the process, from 0.
    pub rank: usize,
    /// Number of ranks.
    pub size: usize,
    /// Rank among the processes of the same host, if the launcher sets it.
    pub local_rank: Option<usize>,
    /// Address `HOST:PORT` where ranks meet, if it is known.
    pub rendezvous: Option<String>,
    /// Name of the job, equal on all its processes. May be empty.
    pub job: String,
}

/// Environment variables of a launcher.
struct Variables {
    launcher: Launcher,
    rank: &'static str,
    size: &'static str,
    local_rank: &'static str,
    /// Variables for the name of the job. The first that is set counts.
    job: &'static [&'static str],
}

/// Launchers in the order of detection. A launcher comes before those that start it: torchrun runs under `srun`, and
/// Hydra starts its own helpers with it.
const LAUNCHERS: [Variables; 5] = [
    Variables {
        launcher: Launcher::Girih,
        rank: "GIRIH_RANK",
        size: "GIRIH_SIZE",
        local_rank: "GIRIH_LOCAL_RANK",
        job: &[],
    },
    Variables {
        launcher: Launcher::Torchrun,
        rank: "RANK",
        size: "WORLD_SIZE",
        local_rank: "LOCAL_RANK",
        job: &["TORCHELASTIC_RUN_ID"],
    },
    Variables {
        launcher: Launcher::OpenMpi,
        rank: "OMPI_COMM_WORLD_RANK",
        size: "OMPI_COMM_WORLD_SIZE",
        local_rank: "OMPI_COMM_WORLD_LOCAL_RANK",
        job: &["PMIX_NAMESPACE"],
    },
    Variables {
        launcher: Launcher::Hydra,
        rank: "PMI_RANK",
        size: "PMI_SIZE",
        local_rank: "MPI_LOCALRANKID",
        job: &[],
    },
    Variables {
        launcher: Launcher::Slurm,
        rank: "SLURM_PROCID",
        size: "SLURM_NTASKS",
        local_rank: "SLURM_LOCALID",
        job: &["SLURM_JOB_ID"],
    },
];

/// Variable for the name of the job, under any launcher.
const JOB: &str = "GIRIH_JOB";

impl Launch {
    /// Reads the environment; `None` for a process without a launcher. `rendezvous` is the address from the user,
    /// which takes precedence over variables.
    ///
    /// # Errors
    /// When variables are missing, are no numbers, or contradict each other.
    pub fn from_env(rendezvous: Option<&str>) -> Result<Option<Self>, CommError> {
        Self::detect(rendezvous, |name| std::env::var(name).ok())
    }

    /// As [`from_env`](Self::from_env), but reads variables by `lookup`. An empty variable counts as unset.
    ///
    /// # Errors
    /// As [`from_env`](Self::from_env).
    pub fn detect(
        rendezvous: Option<&str>,
        lookup: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, CommError> {
        let environment = Environment(|name: &str| lookup(name).filter(|value| !value.is_empty()));
        for variables in &LAUNCHERS {
            if let Some(mut launch) = environment.started_by(variables)? {
                launch.rendezvous = match rendezvous {
                    Some(place) => Some(place.to_owned()),
                    None => environment.rendezvous()?,
                };
                return Ok(Some(launch));
            }
        }
        Ok(None)
    }
}

/// Environment without empty variables.
struct Environment<F>(F);

impl<F: Fn(&str) -> Option<String>> Environment<F> {
    fn text(&self, name: &str) -> Option<String> {
        (self.0)(name)
    }

    fn number(&self, name: &'static str) -> Result<Option<usize>, CommError> {
        let Some(text) = self.text(name) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| wrong(name, format!("is {text:?}, and should be a number from 0")))
    }

    fn started_by(&self, of: &Variables) -> Result<Option<Launch>, CommError> {
        if of.launcher == Launcher::Slurm && !self.is_step_of_several()? {
            return Ok(None);
        }
        let (rank, size) = match (self.number(of.rank)?, self.number(of.size)?) {
            (None, None) => return Ok(None),
            (Some(rank), Some(size)) => (rank, size),
            (Some(_), None) => return Err(wrong(of.size, format!("is not set, but {} is; set both or none", of.rank))),
            (None, Some(_)) => return Err(wrong(of.rank, format!("is not set, but {} is; set both or none", of.size))),
        };
        if rank >= size {
            let what = format!("is {rank}, and {} is {size}: ranks are counted from 0", of.size);
            return Err(wrong(of.rank, what));
        }
        let local_rank = self.number(of.local_rank)?;
        if let Some(local) = local_rank.filter(|&local| local >= size) {
            let what = format!("is {local}, and {} is {size}: no host has more ranks than there are", of.size);
            return Err(wrong(of.local_rank, what));
        }
        let job = [JOB].iter().chain(of.job).find_map(|name| self.text(name)).unwrap_or_default();
        Ok(Some(Launch { launcher: of.launcher, rank, size, local_rank, rendezvous: None, job }))
    }

    /// Whether `srun` started this process together with others. In a batch script, which runs once, Slurm also sets
    /// the number of tasks, but no variables of a step.
    fn is_step_of_several(&self) -> Result<bool, CommError> {
        let tasks = match self.number("SLURM_STEP_NUM_TASKS")? {
            Some(tasks) => Some(tasks),
            None if self.text("SLURM_STEP_ID").is_some() => self.number("SLURM_NTASKS")?,
            None => None,
        };
        Ok(tasks.is_some_and(|tasks| tasks > 1))
    }

    /// Address of the rendezvous, as variables give it.
    fn rendezvous(&self) -> Result<Option<String>, CommError> {
        if let Some(place) = ["GIRIH_RENDEZVOUS", "NCCL_COMM_ID"].iter().find_map(|name| self.text(name)) {
            return Ok(Some(place));
        }
        const HOST: &str = "MASTER_ADDR";
        const PORT: &str = "MASTER_PORT";
        let (host, port) = match (self.text(HOST), self.number(PORT)?) {
            (None, None) => return Ok(None),
            (Some(host), Some(port)) => (host, port),
            (Some(_), None) => return Err(wrong(PORT, format!("is not set, but {HOST} is; set both or none"))),
            (None, Some(_)) => return Err(wrong(HOST, format!("is not set, but {PORT} is; set both or none"))),
        };
        let host = if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host };
        // In this case, torchrun itself listens at the port of `MASTER_PORT`.
        let is_taken = self.text("TORCHELASTIC_USE_AGENT_STORE").is_some_and(|value| value == "True");
        Ok(Some(format!("{host}:{}", port + usize::from(is_taken))))
    }
}

fn wrong(variable: &'static str, what: String) -> CommError {
    CommError::Environment { variable, what }
}
