//! [`CacheShares`]: shares of nodes whose rows GPUs hold.

use std::fmt;
use std::str::FromStr;

use crate::TierError;

/// Shares of the nodes whose rows are on GPUs, hottest nodes first; the other rows are in host memory.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CacheShares {
    /// Share of the nodes on every GPU, in `0.0..=1.0`.
    pub every_card: f64,
    /// Share of the next nodes on one GPU each, from which the others read, in `0.0..=1.0`.
    pub one_card: f64,
}

impl CacheShares {
    /// Number of nodes on every GPU, and number of nodes on one GPU each, out of `n_nodes`.
    #[must_use]
    pub fn of_nodes(self, n_nodes: usize) -> (usize, usize) {
        let count = |share: f64| (share * n_nodes as f64).round() as usize;
        let on_every_card = count(self.every_card).min(n_nodes);
        (on_every_card, count(self.every_card + self.one_card).min(n_nodes) - on_every_card)
    }

    /// Shares for the given numbers of nodes on every GPU and on one GPU each. [`of_nodes`](Self::of_nodes) returns
    /// exactly these numbers for them.
    ///
    /// # Panics
    /// When the numbers exceed `n_nodes`.
    #[must_use]
    pub fn of_counts(on_every_card: usize, on_one_card: usize, n_nodes: usize) -> Self {
        assert!(on_every_card + on_one_card <= n_nodes, "no more rows than nodes");
        let share = |count: usize| if n_nodes == 0 { 0.0 } else { count as f64 / n_nodes as f64 };
        let every_card = share(on_every_card);
        // The sum of both shares is at most 1, to the last bit.
        let one_card = if on_every_card + on_one_card == n_nodes { 1.0 - every_card } else { share(on_one_card) };
        Self { every_card, one_card: if on_one_card == 0 { 0.0 } else { one_card } }
    }

    /// Whether GPUs hold all rows.
    #[must_use]
    pub fn are_all(self) -> bool {
        self.every_card + self.one_card >= 1.0
    }

    /// Whether both shares and their sum are in `0.0..=1.0`.
    #[must_use]
    pub fn are_shares(self) -> bool {
        let is_share = |share: f64| (0.0..=1.0).contains(&share);
        is_share(self.every_card) && is_share(self.one_card) && is_share(self.every_card + self.one_card)
    }
}

impl fmt::Display for CacheShares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.every_card)?;
        if self.one_card > 0.0 { write!(f, ",{}", self.one_card) } else { Ok(()) }
    }
}

impl FromStr for CacheShares {
    type Err = TierError;

    /// `EVERY`, or `EVERY,ONE`.
    fn from_str(text: &str) -> Result<Self, TierError> {
        let (every_card, one_card) = text.split_once(',').unwrap_or((text, "0"));
        let share = |text: &str| text.trim().parse().ok();
        let shares = share(every_card).zip(share(one_card));
        let shares = shares.map(|(every_card, one_card)| Self { every_card, one_card });
        shares.filter(|shares| shares.are_shares()).ok_or_else(|| {
            TierError::invalid(format!(
                "`{text}` is not a share of the nodes: give a number from 0 to 1 for rows that every GPU holds, such as 0.2, \
                 or two for rows on every GPU and rows on one GPU each, such as 0.2,0.5 (at most 1 together)"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_written_as_they_are_read() {
        for text in ["0.2", "0", "1", "0.25,0.5", "0,1"] {
            assert_eq!(text.parse::<CacheShares>().unwrap().to_string(), text);
        }
        for text in ["", "1.5", "-0.1", "0.6,0.6", "0.2,x", "nan", "0.1,0.2,0.3"] {
            assert!(text.parse::<CacheShares>().is_err(), "{text}");
        }
    }

    #[test]
    fn shares_of_nodes_are_no_more_than_there_are() {
        let shares = |every_card, one_card| CacheShares { every_card, one_card };
        assert_eq!(shares(0.5, 0.5).of_nodes(3), (2, 1));
        assert_eq!(shares(1.0, 0.0).of_nodes(7), (7, 0));
        assert_eq!(shares(0.1, 0.2).of_nodes(10), (1, 2));
    }

    #[test]
    fn shares_of_counts_find_the_counts_again() {
        for n in [1, 3, 7, 10, 49, 1000, 111_059_956, u32::MAX as usize] {
            for (a, b) in [(0, 1), (1, 3), (1, 2), (2, 3), (48, 49), (1, 1)] {
                let (on_every, k) = (n / b * a, n / 3);
                for on_one in [0, k.min(n - on_every), n - on_every] {
                    let shares = CacheShares::of_counts(on_every, on_one, n);
                    assert!(shares.are_shares(), "{on_every} and {on_one} of {n}: {shares}");
                    assert_eq!(shares.of_nodes(n), (on_every, on_one), "of {n}: {shares}");
                    assert_eq!(shares.to_string().parse(), Ok(shares));
                }
            }
        }
        assert_eq!(CacheShares::of_counts(0, 0, 0), CacheShares::default());
    }
}
