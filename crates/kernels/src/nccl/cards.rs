//! Which ranks may be on which cards: one on each, unless NCCL lets several share one.
//!
//! Ranks that share a card show what as many cards would come to, not how fast: they wait for each other's kernels, and hold its memory
//! together. That is for who has fewer cards than a run wants, so it is never done unasked.

use girih_comm::{CommError, Transport, all_gather};

use crate::backend::Cuda;
use crate::libraries::nccl_version;
use crate::pool;

/// The variable by which NCCL is asked to let ranks share cards.
const SHARING_VARIABLE: &str = "NCCL_MULTI_RANK_GPU_ENABLE";
/// The first version that reads it.
const FIRST_TO_SHARE: (u32, u32) = (2, 30);

/// Refuses ranks that share a card unless NCCL lets them, and ranks with different libraries, which would wait for each other for ever.
pub(super) fn check_cards<T: Transport>(cuda: &Cuda, transport: &T) -> Result<(), CommError> {
    const OPERATION: &str = "comparing the cards";
    let failed = |message: String| CommError::Library { operation: OPERATION, message };
    let uuid = cuda.device.uuid().map_err(|error| failed(error.to_string()))?;
    let version = nccl_version().unwrap_or_default();
    let all = all_gather(transport, OPERATION, &[&uuid[..], version.as_bytes()].concat())?;
    let all: Vec<(&[u8], &[u8])> = all.iter().map(|of_rank| of_rank.split_at(uuid.len())).collect();
    let asked = std::env::var(SHARING_VARIABLE).is_ok_and(|value| value == "1");
    let shares = check(&all, asked).map_err(|what| CommError::Operand { operation: OPERATION, what })?;
    if shares {
        // No rank's allocation may wait for what another one has on their card: that one may wait for it in turn.
        pool::reuse_only_what_is_free(cuda.device.stream.context()).map_err(|error| failed(error.to_string()))?;
    }
    Ok(())
}

/// Whether some of the ranks, each with its card and its version of NCCL, share a card. `asked` is whether NCCL was asked to let them.
fn check(all: &[(&[u8], &[u8])], asked: bool) -> Result<bool, String> {
    let version = String::from_utf8_lossy(all[0].1);
    let mut shares = false;
    for (rank, &(card, theirs)) in all.iter().enumerate() {
        if theirs != all[0].1 {
            let theirs = String::from_utf8_lossy(theirs);
            return Err(format!("rank {rank} has NCCL {theirs}, rank 0 has {version}; install one version everywhere"));
        }
        let Some(other) = all[..rank].iter().position(|&(other, _)| other == card) else { continue };
        shares = true;
        if !(asked && can_share(&version)) {
            let (major, minor) = FIRST_TO_SHARE;
            return Err(format!(
                "ranks {other} and {rank} are on the same card; give each a card of its own, or, to try what more cards would come to, let \
                 them share with NCCL {major}.{minor} or later (here is {version}) and {SHARING_VARIABLE}=1 in the environment"
            ));
        }
    }
    Ok(shares)
}

/// Whether a version of NCCL can let ranks share a card.
fn can_share(version: &str) -> bool {
    let mut numbers = version.split('.').map_while(|number| number.parse().ok());
    numbers.next().zip(numbers.next()).is_some_and(|version| version >= FIRST_TO_SHARE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_share_cards_where_nccl_was_asked_to_let_them() {
        let of = |cards: [u8; 3], version: &'static str| cards.map(|card| (vec![card; 16], version.as_bytes()));
        let checked = |cards, version, asked| {
            let all = of(cards, version);
            check(&all.each_ref().map(|(card, version)| (&card[..], *version)), asked)
        };
        for asked in [false, true] {
            assert_eq!(checked([1, 2, 3], "2.28.9", asked), Ok(false));
        }
        assert_eq!(checked([1, 2, 1], "2.30.7", true), Ok(true));
        assert_eq!(checked([1, 1, 1], "3.0.0", true), Ok(true));
        for (version, asked) in [("2.30.7", false), ("2.29.7", true), ("", true)] {
            let refused = checked([1, 2, 1], version, asked).unwrap_err();
            for part in ["ranks 0 and 2", "NCCL 2.30", SHARING_VARIABLE, version] {
                assert!(refused.contains(part), "no {part}: {refused}");
            }
        }
    }

    #[test]
    fn ranks_have_one_version() {
        let refused = check(&[(&[1], b"2.30.7"), (&[2], b"2.28.9")], true).unwrap_err();
        assert!(refused.contains("rank 1 has NCCL 2.28.9, rank 0 has 2.30.7"), "{refused}");
    }
}
