//! One rank of a dry run. [`SymbolicRank`] moves symbolic matrices and counts bytes and seconds. [`SymbolicGraph`]
//! has blocks of known size without entries. The training code itself runs on them, so that a plan for ranks
//! describes what they will do.

mod blocks;
mod rank;

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use girih_compute::Transpose;
use girih_graph_format::Csr;
use girih_partition::{BlockPlan, Cuts, Exchange, Halo, ProcessGrid, Schedule};

use super::sizes::DataSizes;
use crate::TrainError;
use crate::config::{RankOptions, TrainConfig};

pub(crate) use self::blocks::SymbolicBlocks;
pub use self::rank::SymbolicRank;

/// Graph of a dry run on ranks. Either a real graph, whose blocks and rows are counted, or one of known size whose
/// edges are taken to be spread evenly.
#[derive(Clone)]
pub struct SymbolicGraph {
    /// Whether the network adds self loops.
    self_loops: bool,
    /// Whether `Â` and its transpose have column factors.
    has_factors: [bool; 2],
    weighted: bool,
    entries: Entries,
}

/// Entries of the blocks of a [`SymbolicGraph`].
#[derive(Clone)]
enum Entries {
    /// Entries of a real graph.
    Counted(Arc<Counted>),
    /// Number of stored edges.
    Even(u64),
}

/// Real graph, whose blocks are counted.
struct Counted {
    /// Graph as it is stored; weighted cuts depend on it.
    stored: Csr,
    /// Graph with self loops, if the network adds them.
    looped: Csr,
    transposed: OnceLock<Csr>,
    symmetric: bool,
    /// Counts of the last cut. Partitions that differ only in stages and chunks have the same blocks, and are planned
    /// one after the other.
    last: Mutex<Option<(Cut, Arc<Counts>)>>,
}

/// Settings that decide which blocks ranks have, and which rows they send.
type Cut = (ProcessGrid, Cuts, Exchange);

/// Counts of a real graph for one cut.
#[derive(Default)]
struct Counts {
    /// For each direction: the entries of each rank's steps, and the exchanges of these steps.
    steps: [OnceLock<(Vec<Vec<u64>>, Schedule)>; 2],
    halo: OnceLock<Halo>,
}

impl Counted {
    /// Counts of a cut: those of the last cut if it is the same, else empty ones.
    fn counts(&self, cut: Cut) -> Arc<Counts> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((of, counts)) if *of == cut => Arc::clone(counts),
            _ => Arc::clone(&last.insert((cut, Arc::default())).1),
        }
    }

    /// Entries of `op(Â)`.
    fn directed(&self, transpose: Transpose) -> &Csr {
        match self.direction(transpose) {
            0 => &self.looped,
            _ => self.transposed.get_or_init(|| self.looped.transposed()),
        }
    }

    /// Index of a direction. A symmetric matrix has one set of counts for both directions.
    fn direction(&self, transpose: Transpose) -> usize {
        usize::from(transpose == Transpose::Yes && !self.symmetric)
    }
}

impl SymbolicGraph {
    /// Real graph, as the network of `config` reads it.
    ///
    /// # Errors
    /// When the configuration is refused.
    pub fn of(graph: &Csr, config: &TrainConfig, data: &DataSizes) -> Result<Self, TrainError> {
        let (self_loops, has_factors) = loops_and_factors(config, data)?;
        let looped = if self_loops { graph.with_self_loops() } else { graph.clone() };
        let (stored, transposed) = (graph.clone(), OnceLock::new());
        let counted = Counted { stored, looped, transposed, symmetric: data.symmetric, last: Mutex::default() };
        let weighted = graph.values().is_some();
        Ok(Self { self_loops, has_factors, weighted, entries: Entries::Counted(Arc::new(counted)) })
    }

    /// Graph of the size in `data`, with evenly spread edges.
    ///
    /// # Errors
    /// When the configuration is refused.
    pub fn even(config: &TrainConfig, data: &DataSizes) -> Result<Self, TrainError> {
        let (self_loops, has_factors) = loops_and_factors(config, data)?;
        let entries = Entries::Even(data.n_edges as u64);
        Ok(Self { self_loops, has_factors, weighted: data.weighted, entries })
    }

    /// Whether edges are spread evenly, so that all ranks do alike.
    pub(super) fn is_even(&self) -> bool {
        matches!(self.entries, Entries::Even(_))
    }

    /// Blocks of the ranks of a plan.
    ///
    /// # Errors
    /// When there are more ranks than nodes.
    pub(crate) fn cut(&self, n_nodes: usize, ranks: &RankOptions) -> Result<SymbolicBlocks, TrainError> {
        let RankOptions { grid, cuts, exchange, wire, .. } = *ranks;
        let (plan, counts) = match &self.entries {
            Entries::Counted(counted) => {
                let plan = ranks.plan(n_nodes, || Ok(counted.stored.offsets().clone()))?;
                (plan, counted.counts((grid, cuts, exchange)))
            }
            // With evenly spread edges, panels of equal work have equal size.
            Entries::Even(_) => {
                let plan = BlockPlan::new(&grid, n_nodes)?.in_stages(ranks.stages).in_chunks(ranks.chunks);
                (plan, Arc::default())
            }
        };
        Ok(SymbolicBlocks { graph: self.clone(), plan: Arc::new(plan), exchange, wire, counts })
    }
}

/// Whether the network adds self loops, and whether columns have factors in either direction. A network that reads no
/// adjacency needs no blocks.
fn loops_and_factors(config: &TrainConfig, data: &DataSizes) -> Result<(bool, [bool; 2]), TrainError> {
    let Some(adjacency) = data.input_spec(config)?.graph else { return Ok((false, [false; 2])) };
    let [left, right] = adjacency.norm.powers().map(|power| power.is_some());
    Ok((adjacency.self_loops, [right, left]))
}
