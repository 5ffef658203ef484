//! [`Planner`]: every partition that so many ranks allow, and the quickest that fits.

use std::ops::RangeInclusive;

use girih_partition::{Exchange, ProcessGrid, Scheme, Stages};
use girih_trainer::distributed::{RankOptions, RankPlanner, RankPlans};
use girih_trainer::{Plan, PlanDevice, TrainError};
use serde::Serialize;

use crate::PlannerError;

/// Bytes of a card that NCCL takes for the buffers of its channels, at most.
pub const EXCHANGE_BYTES: u64 = 1 << 30;

/// Chunks that are planned where there may be several: a quarter of what follows is left with nothing to go on beside
/// it, and another split of it in two would gain less than the launches and exchanges that it takes.
const CHUNKS: usize = 4;

/// Parts in which rows are planned to come where products go on meanwhile: each costs an exchange of its own, and shorter
/// rows, which are gathered more slowly.
const PARTS: RangeInclusive<usize> = 1..=4;

/// A session, and how much memory each rank has.
pub struct Planner<'a> {
    /// What is planned for one partition after the other.
    pub ranks: RankPlanner<'a>,
    /// Bytes that are free for each rank; `None` where nobody knows.
    pub free_bytes: Option<u64>,
}

/// What one partition takes: of each figure, that of the rank which has most of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// How ranks are arranged.
    #[serde(serialize_with = "as_text")]
    pub grid: ProcessGrid,
    /// What a step sends.
    #[serde(serialize_with = "as_text")]
    pub exchange: Exchange,
    /// In which stages rows of other ranks come.
    #[serde(serialize_with = "as_text")]
    pub stages: Stages,
    /// In how many chunks products are taken.
    pub chunks: usize,
    /// Bytes that have to be free.
    pub needed_bytes: u64,
    /// Whether they are.
    pub fits: bool,
    /// Milliseconds of an epoch.
    pub epoch_ms: f64,
    /// Milliseconds that it takes at least, however much goes on at once: those of its operations or of its exchanges,
    /// whichever are more.
    pub bound_ms: f64,
    /// Milliseconds of it in products with the adjacency.
    pub product_ms: f64,
    /// Milliseconds of its exchanges, of which some go on beside products.
    pub exchange_ms: f64,
    /// Milliseconds before the first epoch.
    pub prepare_ms: f64,
    /// Bytes that are sent in an epoch.
    pub sent_bytes: u64,
}

fn as_text<T: std::fmt::Display, S: serde::Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

impl Estimate {
    /// Whether this plan comes to another one of fewer parts: no row is wide enough for more.
    fn repeats(&self, fewer: &Self) -> bool {
        let in_parts = |plan: &Self| matches!(plan.stages, Stages::Parts(_));
        in_parts(self) && in_parts(fewer) && Self { stages: fewer.stages, ..self.clone() } == *fewer
    }

    /// How ranks share the work by this plan, all else as in `like`.
    #[must_use]
    pub fn options(&self, like: &RankOptions) -> RankOptions {
        RankOptions { grid: self.grid, exchange: self.exchange, stages: self.stages, chunks: self.chunks, ..*like }
    }
}

/// What all partitions take.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// In the order of [`grids`]; of each, whole panels first, and of these those that come all at once. Where rows are
    /// too narrow for more parts, fewer stand for both.
    pub estimates: Vec<Estimate>,
}

impl Table {
    /// The quickest that fits.
    #[must_use]
    pub fn choice(&self) -> Option<&Estimate> {
        self.choice_of(|_| true)
    }

    /// The quickest that fits, of those that `may` be chosen; of those that take the same to a nanosecond the first.
    #[must_use]
    pub fn choice_of(&self, may: impl Fn(&Estimate) -> bool) -> Option<&Estimate> {
        let nanoseconds = |plan: &Estimate| (1e6 * plan.epoch_ms).round();
        let fitting = self.estimates.iter().filter(|plan| plan.fits && may(plan));
        fitting.min_by(|a, b| nanoseconds(a).total_cmp(&nanoseconds(b)))
    }

    /// The one that needs least memory.
    ///
    /// # Panics
    /// When there are none; any number of ranks allows one.
    #[must_use]
    pub fn smallest(&self) -> &Estimate {
        self.estimates.iter().min_by_key(|plan| plan.needed_bytes).expect("1d takes any number of ranks")
    }
}

/// All arrangements of so many ranks: 1d, 1.5d with every number of replicas that divides them, 2d where they form a
/// square, 3d where they form a cube.
#[must_use]
pub fn grids(ranks: usize) -> Vec<ProcessGrid> {
    let grid = |scheme, replication| ProcessGrid::new(scheme, ranks, replication).ok();
    let replicas = (2..=ranks).filter_map(|replicas| grid(Scheme::OneAndHalfD, replicas));
    let square = grid(Scheme::TwoD, 1).filter(|_| ranks > 1);
    let cube = grid(Scheme::ThreeD, 1).filter(|_| ranks > 1);
    grid(Scheme::OneD, 1).into_iter().chain(replicas).chain(square).chain(cube).collect()
}

impl Planner<'_> {
    /// What every partition of as many ranks as `like` has takes, with whole panels and with lists of rows, which come
    /// all at once, in parts, in turns or step by step, and where sums or slices follow, with these in one piece or under
    /// the products. Nodes are cut and rows travel as in `like`.
    ///
    /// # Errors
    /// When the session is refused, or there are fewer nodes than ranks.
    pub fn table(&self, like: &RankOptions) -> Result<Table, PlannerError> {
        Ok(Self::tables(std::slice::from_ref(self), like)?.remove(0))
    }

    /// The [`table`](Self::table) of each of some planners of one session, which differ in devices and links: what ranks
    /// hold and send is counted once for all of them.
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

    /// In which stages rows come, and in how many chunks products are taken: in parts, in turns and in chunks where
    /// products go on beside what comes for them and what follows them.
    fn ways(&self, grid: &ProcessGrid) -> Vec<(Stages, usize)> {
        let overlaps = self.ranks.network.overlaps;
        let parts = if overlaps && grid.side() > 1 { PARTS } else { 1..=1 };
        let in_parts = parts.map(|n| (Stages::Parts(n), 1));
        let stepwise = (grid.steps() > 1).then_some((Stages::Steps, 1));
        // Of two members each gets the panel of the other, at once.
        let in_turns = (overlaps && grid.side() > 2).then_some((Stages::Turns, 1));
        let chunked = (overlaps && grid.scheme() != Scheme::OneD).then_some((Stages::Parts(1), CHUNKS));
        in_parts.chain(in_turns).chain(stepwise).chain(chunked).collect()
    }

    /// What ranks take that share the work so.
    ///
    /// # Errors
    /// When the session is refused, or there are fewer nodes than ranks.
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

    /// Bytes that have to be free for the rank that needs most, where ranks train on mini-batches and each hold a
    /// patch.
    ///
    /// # Errors
    /// As [`RankPlanner::plan_patches`].
    pub fn bytes_of_patches(&self, ranks: &RankOptions) -> Result<u64, TrainError> {
        Ok(self.needed_bytes(&self.ranks.plan_patches(ranks)?, &ranks.grid))
    }

    fn needed_bytes(&self, plans: &RankPlans, grid: &ProcessGrid) -> u64 {
        let is_card = matches!(self.ranks.devices, [PlanDevice::Card(_), ..]);
        let for_exchanges = if grid.ranks() > 1 { EXCHANGE_BYTES } else { 0 };
        plans.most(|plan| if is_card { plan.device_bytes() + for_exchanges } else { plan.peak_bytes })
    }
}
