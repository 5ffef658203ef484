//! Metrics of an order: for caches, and for dense tiles.
//!
//! Each metric is of the graph as it is numbered; permute it first
//! ([`Csr::permuted`](girih_graph_format::Csr::permuted)).

mod gaps;
mod tiles;

use girih_graph_format::{Csr, ReuseCurve, TileHistogram};
use serde::{Deserialize, Serialize};

pub use gaps::{Gaps, window_reuse};
pub use tiles::{Block, coverage, coverage_of};

use crate::Community;

/// Number of rows of the windows whose reuse is reported.
pub const WINDOWS: [usize; 3] = [8, 32, 128];

/// Number of operand rows that the simulated cache holds unless told otherwise: 1 MiB of rows of 64 `f32`.
pub const ROWS_HELD: usize = 4096;

/// Maximum number of reads that hit rates are computed from.
pub const READS_LOOKED_AT: usize = 1 << 22;

/// All metrics of one numbering.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Quality {
    /// Distances between ids of neighbors.
    pub gaps: Gaps,
    /// Entries per distinct column in windows of [`WINDOWS`] rows ([`window_reuse`]).
    pub window_reuse: [f64; 3],
    /// Number of 32 × 32 tiles with a non-zero.
    pub tiles: u64,
    /// Share of non-zeros in 32 × 32 tiles that are at least 5 % full (the threshold of Miao et al., 2023).
    pub dense_tile_share: f64,
    /// Share of non-zeros in 128 × 64 blocks that are at least 2 % full.
    pub coverage_128: f64,
    /// Share of non-zeros in 256 × 64 blocks that are at least 2 % full: the entries that tensor cores can take.
    pub coverage_256: f64,
    /// Number of operand rows that the simulated cache holds.
    pub rows_held: usize,
    /// Simulated hit rate of that LRU cache ([`ReuseCurve`]; an estimate beyond [`READS_LOOKED_AT`] entries).
    pub lru_hit_rate: f64,
}

impl Quality {
    /// Measures a graph as it is numbered, with a simulated cache of [`ROWS_HELD`] rows of the operand.
    ///
    /// ```
    /// use girih_graph_format::{Coo, Duplicates};
    /// use girih_reorder::{Quality, Reorder, ReverseCuthillMckee};
    ///
    /// // A path whose ids are scattered, each edge in both directions.
    /// let id = |i: u32| i * 7 % 100;
    /// let (rows, cols) = (0..99).flat_map(|i| [(id(i), id(i + 1)), (id(i + 1), id(i))]).unzip();
    /// let graph = Coo::new(100, 100, rows, cols, None)?.to_csr(Duplicates::Refuse)?;
    /// let ordered = graph.permuted(&ReverseCuthillMckee.order(&graph)?);
    /// assert_eq!(Quality::of(&ordered).gaps.bandwidth, 1);
    /// assert!(Quality::of(&graph).gaps.bandwidth > 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn of(graph: &Csr) -> Self {
        Self::with_cache(graph, ROWS_HELD)
    }

    /// As [`of`](Self::of), with a simulated cache of `rows_held` rows of the operand.
    #[must_use]
    pub fn with_cache(graph: &Csr, rows_held: usize) -> Self {
        Self {
            gaps: Gaps::of(graph),
            window_reuse: WINDOWS.map(|rows| window_reuse(graph, rows)),
            tiles: TileHistogram::of(graph).n_tiles.iter().sum(),
            dense_tile_share: coverage(graph, Block::SMALL, 0.05),
            coverage_128: coverage(graph, Block::MEDIUM, Community::DENSE),
            coverage_256: coverage(graph, Block::LARGE, Community::DENSE),
            rows_held,
            lru_hit_rate: ReuseCurve::of(graph, READS_LOOKED_AT).hit_rate(rows_held),
        }
    }
}
