//! [`Planner`]: every partition of the given number of ranks, and the fastest that fits.

use std::ops::RangeInclusive;

use girih_partition::{Exchange, ProcessGrid, Scheme, Stages};
use girih_trainer::distributed::{RankOptions, RankPlanner, RankPlans};
use girih_trainer::{Plan, PlanDevice, TrainError};
use serde::Serialize;

use crate::PlannerError;

/// Upper bound of the bytes that NCCL takes on a GPU for the buffers of its channels.
pub const EXCHANGE_BYTES: u64 = 1 << 30;

/// Number of chunks that is planned where there may be several. The last quarter of the reduction has nothing to
/// overlap with. More chunks would gain less than their launches and exchanges cost.
const CHUNKS: usize = 4;

/// Numbers of parts that are planned for rows whose exchange overlaps with products. Each part costs an exchange of
/// its own and shorter rows, which are gathered more slowly.
const PARTS: RangeInclusive<usize> = 1..=4;

/// Planner of a session, with the memory of each rank.
pub struct Planner<'a> {
    /// Dry run of one partition after the other.
    pub ranks: RankPlanner<'a>,
    /// Free bytes of each rank; `None` if unknown.
    pub free_bytes: Option<u64>,
}

/// Estimate of one partition. Each number is the maximum over ranks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// Arrangement of the ranks.
    #[serde(serialize_with = "as_text")]
    pub grid: ProcessGrid,
    /// Exchange of a step: whole panels or lists of rows.
    #[serde(serialize_with = "as_text")]
    pub exchange: Exchange,
    /// Stages in which the rows of other ranks arrive.
    #[serde(serialize_with = "as_text")]
    pub stages: Stages,
    /// Number of chunks in which products are computed.
    pub chunks: usize,
    /// Memory that a rank needs, in bytes.
    pub needed_bytes: u64,
    /// Whether `needed_bytes` fit into free memory; true if that is unknown.
    pub fits: bool,
    /// Time of an epoch, in milliseconds.
    pub epoch_ms: f64,
    /// Lower bound of the epoch's time with perfect overlap, in milliseconds: the larger of the times of its
    /// operations and its exchanges.
    pub bound_ms: f64,
    /// Time of an epoch's products with the adjacency, in milliseconds.
    pub product_ms: f64,
    /// Time of an epoch's exchanges, in milliseconds; some of them overlap with products.
    pub exchange_ms: f64,
    /// Time before the first epoch, in milliseconds.
    pub prepare_ms: f64,
    /// Bytes that a rank sends in an epoch.
    pub sent_bytes: u64,
}

fn as_text<T: std::fmt::Display, S: serde::Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

impl Estimate {
    /// Whether this estimate equals one with fewer parts, because no row is wide enough for more.
    fn repeats(&self, fewer: &Self) -> bool {
        let in_parts = |plan: &Self| matches!(plan.stages, Stages::Parts(_));
        in_parts(self) && in_parts(fewer) && Self { stages: fewer.stages, ..self.clone() } == *fewer
    }

    /// Rank options of this estimate; all other options are taken from `like`.
    #[must_use]
    pub fn options(&self, like: &RankOptions) -> RankOptions {
        RankOptions { grid: self.grid, exchange: self.exchange, stages: self.stages, chunks: self.chunks, ..*like }
    }
}

/// Estimates of all partitions.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Estimates in the order of [`grids`]. For each grid, whole panels come first, and among these the ones that
    /// arrive in one stage. Estimates with more parts than rows are wide enough for are left out.
    pub estimates: Vec<Estimate>,
}

impl Table {
    /// Fastest estimate that fits; `None` if none fits.
    #[must_use]
    pub fn choice(&self) -> Option<&Estimate> {
        self.choice_of(|_| true)
    }

    /// Fastest estimate that fits and that `may` accepts; the first of those with equal times to a nanosecond.
    #[must_use]
    pub fn choice_of(&self, may: impl Fn(&Estimate) -> bool) -> Option<&Estimate> {
        let nanoseconds = |plan: &Estimate| (1e6 * plan.epoch_ms).round();
        let fitting = self.estimates.iter().filter(|plan| plan.fits && may(plan));
        fitting.min_by(|a, b| nanoseconds(a).total_cmp(&nanoseconds(b)))
    }

    /// Estimate that needs the least memory.
    ///
    /// # Panics
    /// When there are no estimates; any number of ranks allows one.
    #[must_use]
    pub fn smallest(&self) -> &Estimate {
        self.estimates.iter().min_by_key(|plan| plan.needed_bytes).expect("1d takes any number of ranks")
    }
}

/// All grids of `ranks` ranks: 1d, 1.5d with every number of replicas that divides `ranks`, 2d if they form a square,
/// 3d if they form a cube.
#[must_use]
pub fn grids(ranks: usize) -> Vec<ProcessGrid> {
    let grid = |scheme, replication| ProcessGrid::new(scheme, ranks, replication).ok();
    let replicas = (2..=ranks).filter_map(|replicas| grid(Scheme::OneAndHalfD, replicas));
    let square = grid(Scheme::TwoD, 1).filter(|_| ranks > 1);
    let cube = grid(Scheme::ThreeD, 1).filter(|_| ranks > 1);
    grid(Scheme::OneD, 1).into_iter().chain(replicas).chain(square).chain(cube).collect()
}

impl Planner<'_> {
    /// Estimates every partition over the number of ranks of `like`. It tries whole panels and lists of rows, which
    /// arrive in one stage, in parts, in turns or step by step. Where a reduction or slices follow the products, it
    /// tries them after the products and overlapped with them, in chunks. The cuts of nodes and the wire format are
    /// those of `like`.
    ///
    /// # Errors
    /// When the trainer refuses the session, or there are fewer nodes than ranks.
    pub fn table(&self, like: &RankOptions) -> Result<Table, PlannerError> {
        Ok(Self::tables(std::slice::from_ref(self), like)?.remove(0))
    }

    /// Returns the [`table`](Self::table) of each planner. The planners have one session, and differ in devices and
    /// links; memory and traffic of ranks are counted once for all of them.
    ///
    /// # Errors
    /// As [`table`](Self::table).
    pub fn tables(planners: &[Self], like: &RankOptions) -> Result<Vec<Table>, PlannerError> {
        let ranks = like.grid.ranks();
        let exchanges = if ranks > 1 { &[Exchange::Dense, Exchange::Rows][..] } else { &[Exchange::Dense] };
        let mut tables = vec![Table { estimates: Vec::new() }; planners.len()];
        for grid in grids(ranks) {
            for &exchange in exchanges {
                for (planner, table) in planners.iter().zip(&mut tables) {
                    for (stages, chunks) in planner.ways(&grid) {
                        let ranks = RankOptions { grid, exchange, stages, chunks, ..*like };
                        let estimate = planner.estimate(&ranks)?;
                        if !table.estimates.last().is_some_and(|last| estimate.repeats(last)) {
                            table.estimates.push(estimate);
                        }
                    }
                }
            }
        }
        Ok(tables)
    }

    /// Stages of rows and numbers of chunks to try. Parts, turns and chunks are tried only where exchanges overlap
    /// with products.
    fn ways(&self, grid: &ProcessGrid) -> Vec<(Stages, usize)> {
        let overlaps = self.ranks.network.overlaps;
        let parts = if overlaps && grid.side() > 1 { PARTS } else { 1..=1 };
        let in_parts = parts.map(|n| (Stages::Parts(n), 1));
        let stepwise = (grid.steps() > 1).then_some((Stages::Steps, 1));
        // In a group of two, each member gets the panel of the other in one exchange.
        let in_turns = (overlaps && grid.side() > 2).then_some((Stages::Turns, 1));
        let chunked = (overlaps && grid.scheme() != Scheme::OneD).then_some((Stages::Parts(1), CHUNKS));
        in_parts.chain(in_turns).chain(stepwise).chain(chunked).collect()
    }

    /// Estimates one partition by a dry run.
    ///
    /// # Errors
    /// When the trainer refuses the session, or there are fewer nodes than ranks.
    pub fn estimate(&self, ranks: &RankOptions) -> Result<Estimate, TrainError> {
        let plans = self.ranks.plan(ranks)?;
        let RankOptions { grid, exchange, stages, chunks, .. } = *ranks;
        let needed_bytes = self.needed_bytes(&plans, &grid);
        let ms = |seconds: fn(&Plan) -> f64| 1e3 * plans.longest(seconds);
        let exchange_ms = ms(|plan| plan.exchange_seconds);
        Ok(Estimate {
            grid,
            exchange,
            stages,
            chunks,
            needed_bytes,
            fits: self.free_bytes.is_none_or(|free| needed_bytes <= free),
            epoch_ms: ms(|plan| plan.epoch_seconds),
            bound_ms: ms(|plan| plan.computed_seconds).max(exchange_ms),
            product_ms: ms(|plan| plan.product_seconds),
            exchange_ms,
            prepare_ms: ms(|plan| plan.prepare_seconds),
            sent_bytes: plans.most(|plan| plan.exchanged.sent),
        })
    }

    /// Bytes that the rank with the largest need must have free, where ranks train on mini-batches and each holds a
    /// patch.
    ///
    /// # Errors
    /// As [`RankPlanner::plan_patches`].
    pub fn bytes_of_patches(&self, ranks: &RankOptions) -> Result<u64, TrainError> {
        Ok(self.needed_bytes(&self.ranks.plan_patches(ranks)?, &ranks.grid))
    }

    fn needed_bytes(&self, plans: &RankPlans, grid: &ProcessGrid) -> u64 {
        let is_gpu = matches!(self.ranks.devices, [PlanDevice::Gpu(_), ..]);
        let for_exchanges = if grid.ranks() > 1 { EXCHANGE_BYTES } else { 0 };
        plans.most(|plan| if is_gpu { plan.device_bytes() + for_exchanges } else { plan.peak_bytes })
    }
}
