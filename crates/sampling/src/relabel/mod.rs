//! Relabelling: from the global ids of sampled edges to the local ids of a block.
//!
//! All operators keep one contract. A block's sources are its destinations in order and then its new nodes, in one of
//! the orders of [`NewNodes`]; edges of a destination stay in the order in which they came. So all of them give the
//! same block.
//!
//! - [`to_block`]: two hash maps, anew for each hop: the classic.
//! - [`ToBlockFast`]: two bitmaps and one hash map, kept over the hops of a batch.
//! - [`Fused`]: the same while edges are drawn, with no list of edges between.
//! - [`Rank`]: no hash map; the rank of a bit is the place of a node among the new ones, which are sorted for nothing.

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
pub(crate) use hash::NodeSet;
pub(crate) use rank::{Rank, RankTable};

/// How global ids become local ones. The result is the same; time and memory differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Relabel {
    /// Two hash maps for each hop ([`to_block`]), from a list of edges.
    ToBlock,
    /// Two bitmaps and one hash map for each batch ([`ToBlockFast`]), from a list of edges.
    ToBlockFast,
    /// As `ToBlockFast`, while edges are drawn.
    Fused,
    /// Ranks in a bitmap.
    #[default]
    Rank,
}

impl Relabel {
    /// All of them, the classic first.
    pub const ALL: [Self; 4] = [Self::ToBlock, Self::ToBlockFast, Self::Fused, Self::Rank];

    /// As the command line and results spell it.
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

/// In which order the new nodes of a block follow its destinations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum NewNodes {
    /// By id: what is gathered for them lies in order, and rows of the next hop are read in order.
    #[default]
    Ascending,
    /// As edges first name them.
    FirstSeen,
}

/// The draws of one hop, not yet made or not yet listed.
pub(crate) struct HopPlan<'a> {
    pub(crate) source: HopSource<'a>,
    /// The nodes that draw: the last rows of the block.
    pub(crate) frontier: &'a [NodeId],
    pub(crate) rule: Rule<'a>,
    pub(crate) draws: HopDraws,
    pub(crate) scratch: &'a mut DrawScratch,
    pub(crate) keeps_edge_ids: bool,
}

impl HopPlan<'_> {
    /// Draws; rows and edge ids go to the block, sources to `sink`.
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

/// An operator as a sampler drives it.
pub(crate) trait Relabeller {
    /// A batch begins: `seeds`, each of them once and below `n_nodes`, are the nodes found so far.
    fn begin(&mut self, n_nodes: usize, seeds: &[NodeId]);

    /// Draws a hop into the block, behind the rows that it has; columns become local, and new nodes follow `nodes`.
    fn hop(&mut self, plan: HopPlan<'_>, nodes: &mut Vec<NodeId>, block: &mut Block);
}
