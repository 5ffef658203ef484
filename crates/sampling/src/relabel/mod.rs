//! Relabelling: from the global ids of sampled edges to the local ids of a block.
//!
//! All operators obey one contract. A block's sources are its destinations in order, followed by its new nodes in one
//! of the orders of [`NewNodes`]. Edges of a destination keep the order in which they came. So all operators give
//! equal blocks.
//!
//! - [`to_block`]: two hash maps, rebuilt for each hop; the baseline.
//! - [`ToBlockFast`]: two bitmaps and one hash map, kept over the hops of a batch.
//! - [`Fused`]: as `ToBlockFast`, but while edges are drawn, without a list of edges.
//! - [`Rank`]: no hash map. The rank of a bit is the position of a node among the new ones, which come out sorted.

mod classic;
mod edges;
mod fast;
mod fused;
mod hash;
mod rank;
mod sources;

use std::fmt;
use std::str::FromStr;

use crate::draw::{self, DrawScratch, Drawn, Rule, Sink};
use crate::key::HopDraws;
use crate::{Block, HopSource, NodeId, SampleError};

pub use classic::to_block;
pub use edges::SampledEdges;
pub use fast::ToBlockFast;

pub(crate) use classic::Classic;
pub(crate) use fast::Fast;
pub(crate) use fused::Fused;
pub(crate) use hash::{NodeHasher, NodeSet};
pub(crate) use rank::{Rank, RankTable};

/// Relabelling operator, from global ids to local ids. Results are equal; time and memory differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Relabel {
    /// Two hash maps for each hop ([`to_block`]), from a list of edges.
    ToBlock,
    /// Two bitmaps and one hash map for each batch ([`ToBlockFast`]), from a list of edges.
    ToBlockFast,
    /// As `ToBlockFast`, but while edges are drawn.
    Fused,
    /// Ranks in a bitmap.
    #[default]
    Rank,
}

impl Relabel {
    /// All operators, the baseline first.
    pub const ALL: [Self; 4] = [Self::ToBlock, Self::ToBlockFast, Self::Fused, Self::Rank];

    /// Name, as the command line and results spell it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ToBlock => "to-block",
            Self::ToBlockFast => "to-block-fast",
            Self::Fused => "fused",
            Self::Rank => "rank",
        }
    }
}

impl fmt::Display for Relabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Relabel {
    type Err = SampleError;

    fn from_str(text: &str) -> Result<Self, SampleError> {
        Self::ALL.into_iter().find(|relabel| relabel.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            SampleError::invalid(format!("{text:?} is no way to relabel; choose one of {names}"))
        })
    }
}

/// Order in which the new nodes of a block follow its destinations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum NewNodes {
    /// By id: their rows are gathered in order, and rows of the next hop are read in order.
    #[default]
    Ascending,
    /// As edges first name them.
    FirstSeen,
}

/// Draws of one hop, either still to be made or made elsewhere and still to be copied.
pub(crate) struct HopPlan<'a> {
    pub(crate) source: HopSource<'a>,
    /// Nodes that draw: the last rows of the block.
    pub(crate) frontier: &'a [NodeId],
    pub(crate) rule: Rule<'a>,
    pub(crate) draws: HopDraws,
    pub(crate) scratch: &'a mut DrawScratch,
    pub(crate) keeps_edge_ids: bool,
}

impl HopPlan<'_> {
    /// Runs the draws; rows and edge ids go to the block, sources to `sink`.
    pub(crate) fn run<S: Sink>(self, indptr: &mut Vec<u64>, edge_ids: &mut Vec<u64>, sink: &mut S) {
        match self.source {
            HopSource::Rows(patch) => {
                let drawn = Drawn { indptr, edge_ids: self.keeps_edge_ids.then_some(edge_ids) };
                draw::hop(patch, self.frontier, self.rule, self.draws, self.scratch, drawn, sink);
            }
            HopSource::Drawn(drawn) => {
                let before = indptr.last().copied().unwrap_or(0);
                indptr.extend(drawn.indptr[1..].iter().map(|end| before + end));
                edge_ids.extend_from_slice(&drawn.edge_ids);
                sink.take(&drawn.sources);
            }
        }
    }
}

/// Interface between a sampler and a relabelling operator.
pub(crate) trait Relabeller {
    /// Begins a batch: the nodes found so far are `seeds`, each listed once and below `n_nodes`.
    fn begin(&mut self, n_nodes: usize, seeds: &[NodeId]);

    /// Draws a hop into the block, after its present rows. Columns become local, and new nodes are appended to
    /// `nodes`.
    fn hop(&mut self, plan: HopPlan<'_>, nodes: &mut Vec<NodeId>, block: &mut Block);
}
