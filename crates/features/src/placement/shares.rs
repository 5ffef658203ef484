//! [`CacheShares`]: shares of nodes whose rows GPUs hold.

use std::fmt;
use std::str::FromStr;

use crate::TierError;

/// Shares of the nodes whose rows are on GPUs, hottest nodes first; the other rows are in host memory.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CacheShares {
    /// Share of the nodes on every GPU, in `0.0..=1.0`.
    pub every_gpu: f64,
    /// Share of the next nodes on one GPU each, from which the others read, in `0.0..=1.0`.
    pub one_gpu: f64,
}

impl CacheShares {
    /// Number of nodes on every GPU, and number of nodes on one GPU each, out of `n_nodes`.
    #[must_use]
    pub fn of_nodes(self, n_nodes: usize) -> (usize, usize) {
        let count = |share: f64| (share * n_nodes as f64).round() as usize;
        let on_every_gpu = count(self.every_gpu).min(n_nodes);
        (on_every_gpu, count(self.every_gpu + self.one_gpu).min(n_nodes) - on_every_gpu)
    }

    /// Shares for the given numbers of nodes on every GPU and on one GPU each. [`of_nodes`](Self::of_nodes) returns
    /// exactly these numbers for them.
    ///
    /// # Panics
    /// When the numbers exceed `n_nodes`.
    #[must_use]
    pub fn of_counts(on_every_gpu: usize, on_one_gpu: usize, n_nodes: usize) -> Self {
        assert!(on_every_gpu + on_one_gpu <= n_nodes, "no more rows than nodes");
        let share = |count: usize| if n_nodes == 0 { 0.0 } else { count as f64 / n_nodes as f64 };
        let every_gpu = share(on_every_gpu);
        // The sum of both shares is at most 1, to the last bit.
        let one_gpu = if on_every_gpu + on_one_gpu == n_nodes { 1.0 - every_gpu } else { share(on_one_gpu) };
        Self { every_gpu, one_gpu: if on_one_gpu == 0 { 0.0 } else { one_gpu } }
    }

    /// Whether GPUs hold all rows.
    #[must_use]
    pub fn are_all(self) -> bool {
        self.every_gpu + self.one_gpu >= 1.0
    }

    /// Whether both shares and their sum are in `0.0..=1.0`.
    #[must_use]
    pub fn are_shares(self) -> bool {
        let is_share = |share: f64| (0.0..=1.0).contains(&share);
        is_share(self.every_gpu) && is_share(self.one_gpu) && is_share(self.every_gpu + self.one_gpu)
    }
}

impl fmt::Display for CacheShares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.every_gpu)?;
        if self.one_gpu > 0.0 { write!(f, ",{}", self.one_gpu) } else { Ok(()) }
    }
}

impl FromStr for CacheShares {
    type Err = TierError;

    /// `EVERY`, or `EVERY,ONE`.
    fn from_str(text: &str) -> Result<Self, TierError> {
        let (every_gpu, one_gpu) = text.split_once(',').unwrap_or((text, "0"));
        let share = |text: &str| text.trim().parse().ok();
        let shares = share(every_gpu).zip(share(one_gpu));
        let shares = shares.map(|(every_gpu, one_gpu)| Self { every_gpu, one_gpu });
        shares.filter(|shares| shares.are_shares()).ok_or_else(|| {
            TierError::invalid(format!(
                "`{text}` is not a share of the nodes: give a number from 0 to 1 for rows that every GPU holds, such as 0.2, \
                 or two for rows on every GPU and rows on one GPU each, such as 0.2,0.5 (at most 1 together)"
            ))
        })
    }
}
