//! Launchers by their variables.

use girih_comm::{CommError, Launch, Launcher};

fn detect(variables: &[(&str, &str)]) -> Result<Option<Launch>, CommError> {
    Launch::detect(None, |name| {
        variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
    })
}

fn launch(launcher: Launcher, local_rank: Option<usize>, rendezvous: Option<&str>, job: &str) -> Option<Launch> {
    let (rendezvous, job) = (rendezvous.map(ToOwned::to_owned), job.to_owned());
    Some(Launch { launcher, rank: 3, size: 8, local_rank, rendezvous, job })
}

#[test]
fn every_launcher_is_understood() {
    let own = [("GIRIH_RANK", "3"), ("GIRIH_SIZE", "8"), ("GIRIH_LOCAL_RANK", "1"), ("GIRIH_JOB", "j")];
    assert_eq!(detect(&own), Ok(launch(Launcher::Girih, Some(1), None, "j")));
    let torchrun = [
        ("RANK", "3"),
        ("WORLD_SIZE", "8"),
        ("LOCAL_RANK", "3"),
        ("MASTER_ADDR", "node0"),
        ("MASTER_PORT", "29500"),
        ("TORCHELASTIC_RUN_ID", "run"),
    ];
    assert_eq!(detect(&torchrun), Ok(launch(Launcher::Torchrun, Some(3), Some("node0:29500"), "run")));
    let store = [&torchrun[..], &[("TORCHELASTIC_USE_AGENT_STORE", "True")]].concat();
    assert_eq!(detect(&store).unwrap().unwrap().rendezvous.as_deref(), Some("node0:29501"));
    let openmpi = [
        ("OMPI_COMM_WORLD_RANK", "3"),
        ("OMPI_COMM_WORLD_SIZE", "8"),
        ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
        ("PMIX_NAMESPACE", "n"),
        ("NCCL_COMM_ID", "node0:4000"),
    ];
    assert_eq!(detect(&openmpi), Ok(launch(Launcher::OpenMpi, Some(1), Some("node0:4000"), "n")));
    let hydra = [("PMI_RANK", "3"), ("PMI_SIZE", "8"), ("MPI_LOCALRANKID", "0"), ("MASTER_ADDR", "")];
    assert_eq!(detect(&hydra), Ok(launch(Launcher::Hydra, Some(0), None, "")));
    assert_eq!(detect(&[("HOME", "/"), ("RANK", "")]), Ok(None));
    // With several launchers, the first one counts.
    let nested = [&own[..], &torchrun, &openmpi].concat();
    assert_eq!(detect(&nested), Ok(launch(Launcher::Girih, Some(1), Some("node0:4000"), "j")));
}

#[test]
fn slurm_counts_in_steps_of_several_tasks_only() {
    let batch = [("SLURM_JOB_ID", "77"), ("SLURM_PROCID", "3"), ("SLURM_NTASKS", "8"), ("SLURM_LOCALID", "3")];
    assert_eq!(detect(&batch), Ok(None), "the script of a batch job");
    let step = [&batch[..], &[("SLURM_STEP_ID", "0")]].concat();
    assert_eq!(detect(&step), Ok(launch(Launcher::Slurm, Some(3), None, "77")));
    let one = [&step[..], &[("SLURM_STEP_NUM_TASKS", "1")]].concat();
    assert_eq!(detect(&one), Ok(None), "srun -n 1");
}

#[test]
fn flags_take_precedence_over_variables() {
    let place = |given: Option<&str>, variables: &[(&str, &str)]| {
        let all = [&[("RANK", "0"), ("WORLD_SIZE", "2")], variables].concat();
        let lookup = |name: &str| all.iter().find(|(known, _)| *known == name).map(|(_, v)| (*v).to_owned());
        Launch::detect(given, lookup).unwrap().unwrap().rendezvous
    };
    let all = [("GIRIH_RENDEZVOUS", "a:1"), ("NCCL_COMM_ID", "b:2"), ("MASTER_ADDR", "fe80::1"), ("MASTER_PORT", "3")];
    assert_eq!(place(Some("z:9"), &all).as_deref(), Some("z:9"));
    assert_eq!(place(None, &all).as_deref(), Some("a:1"));
    assert_eq!(place(None, &all[1..]).as_deref(), Some("b:2"));
    assert_eq!(place(None, &all[2..]).as_deref(), Some("[fe80::1]:3"));
    assert_eq!(place(None, &[]), None);
}

#[test]
fn variables_that_make_no_sense_are_named() {
    for (variables, variable) in [
        (&[("GIRIH_RANK", "0")][..], "GIRIH_SIZE"),
        (&[("WORLD_SIZE", "2")], "RANK"),
        (&[("PMI_RANK", "1")], "PMI_SIZE"),
        (&[("RANK", "two"), ("WORLD_SIZE", "4")], "RANK"),
        (&[("RANK", "-1"), ("WORLD_SIZE", "4")], "RANK"),
        (&[("RANK", "4"), ("WORLD_SIZE", "4")], "RANK"),
        (&[("RANK", "0"), ("WORLD_SIZE", "0")], "RANK"),
        (&[("RANK", "1"), ("WORLD_SIZE", "4"), ("LOCAL_RANK", "4")], "LOCAL_RANK"),
        (&[("RANK", "1"), ("WORLD_SIZE", "4"), ("MASTER_ADDR", "a")], "MASTER_PORT"),
        (&[("RANK", "1"), ("WORLD_SIZE", "4"), ("MASTER_PORT", "1")], "MASTER_ADDR"),
        (&[("RANK", "1"), ("WORLD_SIZE", "4"), ("MASTER_PORT", "x")], "MASTER_PORT"),
        (&[("SLURM_STEP_NUM_TASKS", "4"), ("SLURM_NTASKS", "4")], "SLURM_PROCID"),
    ] {
        let Err(CommError::Environment { variable: named, .. }) = detect(variables) else {
            panic!("{variables:?} make sense")
        };
        assert_eq!(named, variable, "{variables:?}");
    }
}
