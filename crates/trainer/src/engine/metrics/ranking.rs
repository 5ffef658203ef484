//! [`Ranking`]: quality of the items ranked first, against the test items of users.

use serde::{Deserialize, Serialize};

/// Number of items at the top of a ranking that are scored.
pub const TOP_K: usize = 20;

/// Scores of the first [`TOP_K`] items, as means over the users with test items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ranking {
    /// Fraction of a user's test items that are among the first 20.
    pub recall_at_20: f64,
    /// Normalised discounted cumulative gain: the gain, discounted by the logarithm of the rank, over that of the
    /// best ranking (Järvelin and Kekäläinen, TOIS 2002).
    pub ndcg_at_20: f64,
    /// Fraction of the first 20 that are test items.
    pub precision_at_20: f64,
    /// One if any of the first 20 is a test item. As a mean, the fraction of users with a hit.
    pub hits_at_20: f64,
}

/// Gain of a test item at `rank`, from 0.
fn discount(rank: usize) -> f64 {
    1.0 / (rank as f64 + 2.0).log2()
}

impl Ranking {
    /// Scores of one user: `ranked` items, best first, of which [`TOP_K`] count, against the ascending `wanted`
    /// items. `None` for a user without test items.
    #[must_use]
    pub fn of_user(ranked: &[u32], wanted: &[u32]) -> Option<Self> {
        if wanted.is_empty() {
            return None;
        }
        let hits = ranked.iter().take(TOP_K).enumerate().filter(|(_, item)| wanted.binary_search(item).is_ok());
        let (mut n_hits, mut gain) = (0.0, 0.0);
        for (rank, _) in hits {
            n_hits += 1.0;
            gain += discount(rank);
        }
        let best_gain: f64 = (0..wanted.len().min(TOP_K)).map(discount).sum();
        Some(Self {
            recall_at_20: n_hits / wanted.len() as f64,
            ndcg_at_20: gain / best_gain,
            precision_at_20: n_hits / TOP_K as f64,
            hits_at_20: f64::from(u8::from(n_hits > 0.0)),
        })
    }

    /// Mean over users, added in order; `None` without users.
    #[must_use]
    pub fn mean(users: impl Iterator<Item = Self>) -> Option<Self> {
        let (mut sum, mut n_users) = (Self::default(), 0.0);
        for user in users {
            sum.recall_at_20 += user.recall_at_20;
            sum.ndcg_at_20 += user.ndcg_at_20;
            sum.precision_at_20 += user.precision_at_20;
            sum.hits_at_20 += user.hits_at_20;
            n_users += 1.0;
        }
        (n_users > 0.0).then(|| Self {
            recall_at_20: sum.recall_at_20 / n_users,
            ndcg_at_20: sum.ndcg_at_20 / n_users,
            precision_at_20: sum.precision_at_20 / n_users,
            hits_at_20: sum.hits_at_20 / n_users,
        })
    }
}
