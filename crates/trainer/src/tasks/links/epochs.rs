//! [`LinkEpochs`]: the links of each epoch, with the non-links that they are compared with.

use girih_random::Key;
use rayon::prelude::*;

use super::split::Draws;
use super::{Link, NonLinks, PairList};
use crate::config::TrainConfig;

/// Source of the links and non-links of a run's epochs.
#[derive(Clone, Copy)]
pub struct LinkEpochs<'a> {
    links: &'a [Link],
    non_links: &'a NonLinks,
    n_negatives: usize,
    seed: u64,
    run: u64,
}

/// Training links of an epoch, in the order drawn for it.
pub struct EpochLinks {
    /// Positions of links.
    order: Vec<usize>,
    batch_size: usize,
    negatives: Key,
}

impl EpochLinks {
    /// Number of batches.
    pub fn n_batches(&self) -> usize {
        self.order.len().div_ceil(self.batch_size)
    }
}

impl<'a> LinkEpochs<'a> {
    /// Source for run `run` of a session.
    pub fn new(links: &'a [Link], non_links: &'a NonLinks, config: &TrainConfig, run: u64) -> Self {
        Self { links, non_links, n_negatives: config.links.negatives, seed: config.seed, run }
    }

    /// Draws the order of an epoch, in batches of `batch_size` links.
    pub fn epoch(&self, epoch: u64, batch_size: usize) -> EpochLinks {
        let mut order: Vec<usize> = (0..self.links.len()).collect();
        self.key(Draws::Orders, epoch).stream(0, 0).shuffle(&mut order);
        EpochLinks { order, batch_size, negatives: self.key(Draws::Training, epoch) }
    }

    /// All links at once, in their own order, with their non-links.
    pub fn all(&self, epoch: u64) -> PairList {
        let numbers: Vec<usize> = (0..self.links.len()).collect();
        self.pairs(self.key(Draws::Training, epoch), &numbers)
    }

    /// Links of a batch, with their non-links.
    pub fn batch(&self, epoch: &EpochLinks, at: usize) -> PairList {
        let start = at * epoch.batch_size;
        let numbers = &epoch.order[start..(start + epoch.batch_size).min(epoch.order.len())];
        self.pairs(epoch.negatives, numbers)
    }

    /// Links by position, with their non-links. Draws depend on the position of a link, and not on its batch.
    fn pairs(&self, negatives: Key, numbers: &[usize]) -> PairList {
        let draw = |&link: &usize| {
            (0..self.n_negatives as u64).map(move |i| self.non_links.draw(negatives.stream(link as u64, i << 32)))
        };
        let mut ends: Vec<Link> = numbers.iter().map(|&link| self.links[link]).collect();
        ends.par_extend(numbers.par_iter().with_min_len(256).flat_map_iter(draw));
        PairList { ends, n_links: numbers.len() }
    }

    fn key(&self, draws: Draws, epoch: u64) -> Key {
        draws.key(self.seed).child(self.run).child(epoch)
    }
}
