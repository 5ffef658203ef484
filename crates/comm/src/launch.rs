//! What a launcher (`mpirun`, `srun`) tells the processes that it starts, whether or not this build can talk to the others.

/// Environment variables by which launchers tell a process how many there are.
const SIZE_VARIABLES: [&str; 2] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE"];

/// Environment variables by which launchers tell a process its number.
const RANK_VARIABLES: [&str; 2] = ["OMPI_COMM_WORLD_RANK", "PMI_RANK"];

/// How many processes the launcher started, if one did.
#[must_use]
pub fn launched_ranks() -> Option<usize> {
    number(SIZE_VARIABLES)
}

/// The number of this process among those that the launcher started, if one did.
#[must_use]
pub fn launched_rank() -> Option<usize> {
    number(RANK_VARIABLES)
}

fn number(variables: [&str; 2]) -> Option<usize> {
    variables.iter().find_map(|name| std::env::var(name).ok()?.parse().ok())
}
