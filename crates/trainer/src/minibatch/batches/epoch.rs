//! [`EpochBatches`]: the batches of one epoch, and the seeds of each.

use std::borrow::Cow;

use girih_graph_format::NodeId;
use girih_sampling::{DrawKey, EpochPlan, LoaderOptions, MiniBatch, Sampler};

use super::{Batches, Source};
use crate::TrainError;
use crate::minibatch::host_batch::{HostBatch, HostLoss};
use crate::minibatch::timed::TimedEpoch;
use crate::tasks::links::EpochLinks;

/// Draws of an epoch that precede its batches.
enum Plan {
    /// Seeds of each batch.
    Seeds(EpochPlan),
    /// Nothing: each step draws its subgraphs.
    Subgraphs,
    /// Links of each batch.
    Links(EpochLinks),
    /// Edges of each batch.
    Timed(TimedEpoch),
}

/// Batches of one epoch.
pub struct EpochBatches<'b> {
    batches: &'b Batches<'b>,
    epoch: u32,
    plan: Plan,
}

impl Batches<'_> {
    /// Batches of an epoch.
    #[must_use]
    pub fn epoch(&self, epoch: u64) -> EpochBatches<'_> {
        let plan = match &self.source {
            Source::Seeds(loader, _) => Plan::Seeds(loader.plan(epoch as u32)),
            Source::Patches(source, seeds) => {
                let options = LoaderOptions { seed: self.seed, ..source.options() };
                Plan::Seeds(EpochPlan::new(seeds.clone(), options, epoch as u32))
            }
            Source::Typed(seeds) => Plan::Seeds(seeds.plan(epoch as u32)),
            Source::Subgraphs(..) => Plan::Subgraphs,
            Source::Links(links, batch_size, _) => Plan::Links(links.epoch(epoch, *batch_size)),
            Source::Timed(links, run) => Plan::Timed(links.epoch(epoch, *run)),
        };
        EpochBatches { batches: self, epoch: epoch as u32, plan }
    }
}

/// Seeds, batch by batch.
pub trait SeedLists {
    /// Number of batches.
    fn n_batches(&self) -> usize;

    /// Seeds of batch number `at`.
    fn seeds(&self, at: usize) -> Drawn<'_>;
}

/// Seeds of a batch on this rank, with the key of their draws.
pub struct Drawn<'e> {
    /// Seeds of this rank.
    pub mine: Cow<'e, [NodeId]>,
    /// Node id that labels begin with: where ranks hold patches, the first of the rank's own nodes, else zero.
    pub first: NodeId,
    /// Number of seeds on all ranks.
    pub n_all: usize,
    /// Key of the draws.
    pub key: DrawKey,
}

impl SeedLists for EpochBatches<'_> {
    /// # Panics
    /// When batches are not made of seeds that every rank knows.
    fn seeds(&self, at: usize) -> Drawn<'_> {
        let Plan::Seeds(plan) = &self.plan else { panic!("batches of seeds") };
        let seeds = plan.seeds(at);
        let (mine, first) = match &self.batches.source {
            Source::Patches(source, _) => {
                let own = source.own();
                (seeds.iter().copied().filter(|seed| own.contains(seed)).collect(), own.start)
            }
            _ => (Cow::Borrowed(&seeds[self.batches.share(seeds.len())]), 0),
        };
        Drawn { mine, first, n_all: seeds.len(), key: plan.key(at) }
    }

    fn n_batches(&self) -> usize {
        match (&self.plan, &self.batches.source) {
            (Plan::Seeds(plan), _) => plan.n_batches(),
            (Plan::Links(plan), _) => plan.n_batches(),
            (Plan::Timed(plan), _) => plan.n_batches(),
            (Plan::Subgraphs, Source::Subgraphs(subgraphs)) => subgraphs.n_steps(),
            (Plan::Subgraphs, _) => unreachable!("subgraphs come from a sampler of subgraphs"),
        }
    }
}

/// Sampled share of this rank in a batch that ranks make together.
pub(in crate::minibatch) struct DrawnPatch {
    batch: MiniBatch,
    /// Weights of the edges of its blocks, if the graph has weights and the rows of other ranks were read.
    weights: Option<Vec<f32>>,
    /// Seeds in the rank's patch.
    seeds: Vec<NodeId>,
    /// Number of seeds of all ranks.
    n_all: usize,
}

impl EpochBatches<'_> {
    /// Whether ranks make each batch together.
    pub(in crate::minibatch) fn are_made_together(&self) -> bool {
        self.batches.are_made_together()
    }

    /// Samples this rank's share of batch number `at`; all ranks call it together.
    ///
    /// # Errors
    /// When a rank fails.
    ///
    /// # Panics
    /// When ranks hold the whole graph.
    pub(in crate::minibatch) fn draw(&self, at: usize) -> Result<DrawnPatch, TrainError> {
        let Source::Patches(source, _) = &self.batches.source else { panic!("batches of patches") };
        let Drawn { mine, n_all, key, .. } = self.seeds(at);
        let (batch, weights) = source.sample(&mine, key)?;
        Ok(DrawnPatch { batch, weights, seeds: mine.into_owned(), n_all })
    }

    /// Loads the features of a sampled share; all ranks call it together.
    ///
    /// # Errors
    /// When a rank fails.
    ///
    /// # Panics
    /// When ranks hold the whole graph.
    pub(in crate::minibatch) fn load(
        &self,
        DrawnPatch { batch, weights, seeds, n_all }: DrawnPatch,
    ) -> Result<HostBatch, TrainError> {
        let Source::Patches(source, _) = &self.batches.source else { panic!("batches of patches") };
        let rows = source.load(&batch)?;
        let loss = HostLoss::Rows { rows: (0..seeds.len() as u32).collect(), weights: None };
        let host = self.batches.of_blocks_weighted((&batch, weights.as_deref()), (loss, n_all))?;
        let outputs = seeds.into_iter().map(|seed| seed - source.own().start).collect();
        Ok(HostBatch { rows: Some(rows), outputs, ..host })
    }

    /// Makes batch number `at`, or this rank's share of it.
    ///
    /// # Errors
    /// When the sampler fails.
    pub fn make(&self, at: usize) -> Result<HostBatch, TrainError> {
        let batches = self.batches;
        let graph = || batches.rows().0.graph();
        let key = DrawKey::new(batches.seed, self.epoch, at as u32);
        match (&batches.source, &self.plan) {
            (Source::Seeds(loader, draws_together), Plan::Seeds(plan)) => {
                let Drawn { mine, n_all, key, .. } = self.seeds(at);
                let loss = HostLoss::Rows { rows: (0..mine.len() as u32).collect(), weights: None };
                let batch = if *draws_together && mine.len() < n_all {
                    // Each rank samples the whole batch, and takes its part.
                    loader.sampler().sample(graph(), plan.seeds(at), key)?.of_seeds(batches.share(n_all))
                } else {
                    loader.sampler().sample(graph(), &mine, key)?
                };
                Ok(batches.of_blocks(&batch, (loss, n_all))?)
            }
            (Source::Typed(typed), _) => {
                let Drawn { mine, n_all, key, .. } = self.seeds(at);
                typed.batch(&mine, key, n_all)
            }
            (Source::Patches(..), _) => self.load(self.draw(at)?),
            (Source::Subgraphs(subgraphs), _) => {
                let of_epoch = (batches.seed, self.epoch);
                Ok(batches.of_subgraphs(subgraphs.of_step(graph(), of_epoch, at, batches.rank)?)?)
            }
            (Source::Links(links, _, sampler), Plan::Links(plan)) => {
                batches.of_pairs(&links.batch(plan, at), sampler, key)
            }
            (Source::Timed(links, _), Plan::Timed(plan)) => links.batch(plan, at, key),
            _ => unreachable!("a plan is made by the source of its batches"),
        }
    }
}
