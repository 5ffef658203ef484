//! Checks of the assignment of ranks to GPUs: one rank on each, unless NCCL allows several to share one.
//!
//! Ranks that share a GPU show the results of as many GPUs, not their speed: they wait for each other's kernels and
//! share its memory. This serves users with fewer GPUs than a run wants, so it has to be requested.
//!
//! Ranks that are threads also share the driver's context of their GPU. Many requests of a rank, such as loading a
//! kernel, then wait for all work on the GPU, also for an exchange that waits for this very rank. So ranks meet
//! before each exchange ([`Peers::meet`](super::Peers::meet)): all of them launch their part of it at once. This
//! suffices for exchanges and draws, but not always for training. Its kernels may find no free SM beside those that
//! wait for them. So ranks that train on one GPU should be processes.

use girih_comm::{CommError, Payload, Transport, all_gather};

use crate::cuda::Cuda;
use crate::libraries::nccl_version;
use crate::pool;

/// Variable that asks NCCL to let ranks share GPUs.
const SHARING_VARIABLE: &str = "NCCL_MULTI_RANK_GPU_ENABLE";
/// First version of NCCL that reads it.
const FIRST_TO_SHARE: (u32, u32) = (2, 30);
/// Variable with the number of hardware queues of a context, and its maximum. Work in a queue waits for earlier work
/// of that queue.
const QUEUES_VARIABLE: &str = "CUDA_DEVICE_MAX_CONNECTIONS";
const MOST_QUEUES: &str = "32";

/// Name of these exchanges in errors.
const OPERATION: &str = "comparing the GPUs";

/// Fails if ranks share a GPU without NCCL's permission, or have different versions of NCCL, which would deadlock.
/// Returns whether some ranks share the context of a GPU.
pub(super) fn check_gpus<T: Transport>(cuda: &Cuda, transport: &T) -> Result<bool, CommError> {
    let failed = |message: String| CommError::Library { operation: OPERATION, message };
    let uuid = cuda.device.uuid().map_err(|error| failed(error.to_string()))?;
    let version = nccl_version().unwrap_or_default();
    let all = all_gather(transport, OPERATION, &[&uuid[..], version.as_bytes()].concat())?;
    let gpus = all.iter().enumerate().map(|(rank, of_rank)| gpu_and_version(of_rank, rank, uuid.len()));
    let all = gpus.collect::<Result<Vec<_>, _>>()?;
    let is_set = |variable, wanted| std::env::var(variable).is_ok_and(|value| value == wanted);
    let refused = |what| CommError::Operand { operation: OPERATION, what };
    let shares = check(&all, is_set(SHARING_VARIABLE, "1")).map_err(refused)?;
    if !(shares && transport.is_one_process()) {
        return Ok(false);
    }
    check_queues(is_set(QUEUES_VARIABLE, MOST_QUEUES)).map_err(refused)?;
    // No rank's allocation may wait for work of another rank on the same GPU, which may wait for it in turn.
    pool::reuse_only_what_is_free(cuda.device.stream.context()).map_err(|error| failed(error.to_string()))?;
    Ok(true)
}

/// UUID of a rank's GPU, `n_bytes` long, and its version of NCCL, from its message.
fn gpu_and_version(message: &[u8], rank: usize, n_bytes: usize) -> Result<(&[u8], &[u8]), CommError> {
    let mut message = Payload::new(message, rank, OPERATION);
    Ok((message.bytes(n_bytes)?, message.remaining()))
}

/// Fails if ranks of one process share a GPU without the greatest number of queues.
fn check_queues(are_most: bool) -> Result<(), String> {
    if are_most {
        return Ok(());
    }
    Err(format!(
        "ranks of one process that share a GPU need {QUEUES_VARIABLE}={MOST_QUEUES} in the environment; otherwise one may \
         wait for work that is queued behind it"
    ))
}

/// Whether some of the ranks, each with its GPU and its version of NCCL, share a GPU. `asked`: whether NCCL was asked
/// to allow it.
fn check(all: &[(&[u8], &[u8])], asked: bool) -> Result<bool, String> {
    let version = String::from_utf8_lossy(all[0].1);
    let mut shares = false;
    for (rank, &(gpu, theirs)) in all.iter().enumerate() {
        if theirs != all[0].1 {
            let theirs = String::from_utf8_lossy(theirs);
            return Err(format!("rank {rank} has NCCL {theirs}, rank 0 has {version}; install one version everywhere"));
        }
        let Some(other) = all[..rank].iter().position(|&(other, _)| other == gpu) else { continue };
        shares = true;
        if !(asked && can_share(&version)) {
            let (major, minor) = FIRST_TO_SHARE;
            return Err(format!(
                "ranks {other} and {rank} are on the same GPU: give each a GPU of its own, or, to test more ranks than GPUs, \
                 let them share it with NCCL {major}.{minor} or later (this one is {version}) and {SHARING_VARIABLE}=1 in the environment"
            ));
        }
    }
    Ok(shares)
}

/// Whether a version of NCCL can let ranks share a GPU.
fn can_share(version: &str) -> bool {
    let mut numbers = version.split('.').map_while(|number| number.parse().ok());
    numbers.next().zip(numbers.next()).is_some_and(|version| version >= FIRST_TO_SHARE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_share_gpus_where_nccl_was_asked_to_let_them() {
        let of = |gpus: [u8; 3], version: &'static str| gpus.map(|gpu| (vec![gpu; 16], version.as_bytes()));
        let checked = |gpus, version, asked| {
            let all = of(gpus, version);
            check(&all.each_ref().map(|(gpu, version)| (&gpu[..], *version)), asked)
        };
        for asked in [false, true] {
            assert_eq!(checked([1, 2, 3], "2.28.9", asked), Ok(false));
        }
        assert_eq!(checked([1, 2, 1], "2.30.7", true), Ok(true));
        assert_eq!(checked([1, 1, 1], "3.0.0", true), Ok(true));
        for (version, asked) in [("2.30.7", false), ("2.29.7", true), ("", true)] {
            let refused = checked([1, 2, 1], version, asked).unwrap_err();
            let expected = format!(
                "ranks 0 and 2 are on the same GPU: give each a GPU of its own, or, to test more ranks than GPUs, let them share it with \
                 NCCL 2.30 or later (this one is {version}) and NCCL_MULTI_RANK_GPU_ENABLE=1 in the environment"
            );
            assert_eq!(refused, expected);
        }
        let refused = check_queues(false).unwrap_err();
        assert_eq!(
            refused,
            "ranks of one process that share a GPU need CUDA_DEVICE_MAX_CONNECTIONS=32 in the environment; otherwise one may \
             wait for work that is queued behind it"
        );
    }

    #[test]
    fn a_message_without_a_gpu_names_its_rank() {
        assert_eq!(gpu_and_version(b"uuid2.30", 1, 4).unwrap(), (&b"uuid"[..], &b"2.30"[..]));
        let refused = gpu_and_version(b"car", 1, 4).unwrap_err().to_string();
        assert_eq!(
            refused,
            "rank 1 sent a malformed message (comparing the GPUs): 3 bytes are left where 4 are expected; give all ranks the \
             same program, data and settings"
        );
    }

    #[test]
    fn ranks_have_one_version() {
        let refused = check(&[(&[1], b"2.30.7"), (&[2], b"2.28.9")], true).unwrap_err();
        assert_eq!(refused, "rank 1 has NCCL 2.28.9, rank 0 has 2.30.7; install one version everywhere");
    }
}
