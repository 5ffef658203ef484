//! [`Ranks`]: who holds which rows, and the groups in which ranks talk.

use std::ops::Range;
use std::sync::Arc;

use girih_comm::{Collective, CommError};
use girih_compute::{Backend, ComputeError, Dtype, Shape};
use girih_partition::{BlockPlan, RankPlan, place_in};

use crate::params::Gradients;
use crate::tape::Pool;

/// One rank among those that train together: its part of the plan, and the groups that it belongs to.
pub struct Ranks<B: Backend> {
    plan: Arc<BlockPlan>,
    rank: usize,
    world: Box<dyn Collective<B>>,
    /// The ranks of the same replica number: together they hold every node once.
    pub(super) peers: Box<dyn Collective<B>>,
    /// The ranks that share the steps of a product.
    pub(super) steps: Box<dyn Collective<B>>,
    /// The ranks that exchange rows for slices of columns.
    pub(super) slices: Option<Box<dyn Collective<B>>>,
    /// The ranks whose products are parts of one sum.
    pub(super) sums: Option<Box<dyn Collective<B>>>,
}

impl<B: Backend> Ranks<B> {
    /// Forms the groups; every rank of `world` calls this with the same plan.
    ///
    /// # Errors
    /// When a rank does not take part.
    ///
    /// # Panics
    /// When the plan is for another number of ranks.
    pub fn new(plan: Arc<BlockPlan>, world: Box<dyn Collective<B>>) -> Result<Self, CommError> {
        assert_eq!(plan.ranks.len(), world.size(), "a plan for these ranks");
        let rank = world.rank();
        let mine = &plan.ranks[rank];
        // Ranks of a group name it by its first member, and stand in it in the order in which it lists them.
        let group = |members: &[usize]| world.split(members[0], place_in(members, rank));
        let steps = group(&mine.group)?;
        let slices = mine.slice.as_ref().map(|slicing| group(&slicing.group)).transpose()?;
        let sums = match mine.reduce.group() {
            [] => None,
            members => Some(group(members)?),
        };
        let peers = world.split(mine.replica, rank)?;
        Ok(Self { rank, world, peers, steps, slices, sums, plan })
    }

    /// What the plan has for this rank.
    pub(super) fn mine(&self) -> &RankPlan {
        &self.plan.ranks[self.rank]
    }

    /// The plan of all ranks.
    #[must_use]
    pub fn plan(&self) -> &BlockPlan {
        &self.plan
    }

    /// The number of this rank.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// All ranks together.
    #[must_use]
    pub fn world(&self) -> &dyn Collective<B> {
        &*self.world
    }

    /// The nodes whose rows this rank holds.
    #[must_use]
    pub fn own(&self) -> Range<usize> {
        self.mine().own.clone()
    }

    /// Makes `matrix` the sum of those of all ranks, each share of the nodes counted once.
    ///
    /// # Errors
    /// When a rank fails.
    pub fn sum(&self, matrix: &mut B::Matrix) -> Result<(), ComputeError> {
        self.peers.all_reduce(matrix).map_err(|error| failed(&error))
    }

    /// Makes every gradient the sum of those of all ranks.
    ///
    /// # Errors
    /// When a rank fails.
    pub(crate) fn sum_gradients(&self, gradients: &mut Gradients<B>) -> Result<(), ComputeError> {
        gradients.written_mut().try_for_each(|gradient| self.sum(gradient))
    }

    /// The rows of all nodes, from those that each rank holds.
    ///
    /// # Errors
    /// When a rank fails, or the device's memory does not suffice.
    pub fn gather(&self, backend: &B, pool: &mut Pool<B>, rows: &B::Matrix) -> Result<B::Matrix, ComputeError> {
        let peers = self.plan.peers(self.mine().replica);
        let counts: Vec<usize> = peers.map(|peer| self.plan.ranks[peer].own.len()).collect();
        let mut all = pool.take(backend, Shape::new(self.plan.n_nodes, backend.shape(rows).cols), Dtype::F32)?;
        self.peers.all_gather(&counts, rows, &mut all).map_err(|error| failed(&error))?;
        Ok(all)
    }
}

/// A failure among ranks, as operations report it.
pub(super) fn failed(error: &CommError) -> ComputeError {
    ComputeError::device("an exchange between ranks", error.to_string())
}
