//! [`OrderKind`]: orders by name.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{
    Auto, Blockwise, Community, Degree, Identity, MetisClusters, Parts, Random, Reorder, ReorderError,
    ReverseCuthillMckee, SlashBurn,
};

/// Kind of an order, as the command line names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OrderKind {
    /// Original order.
    #[default]
    None,
    /// Random order.
    Random,
    /// By falling degree.
    Degree,
    /// SlashBurn: hubs first.
    Slashburn,
    /// Reverse Cuthill-McKee.
    Rcm,
    /// Clusters of METIS.
    Metis,
    /// Parts of METIS with few edges between them, one per block.
    Parts,
    /// Nested communities.
    Community,
    /// Order that is predicted to pay on this machine's CPU, if any.
    Auto,
}

impl OrderKind {
    /// All variants.
    pub const ALL: [Self; 9] = [
        Self::None,
        Self::Random,
        Self::Degree,
        Self::Slashburn,
        Self::Rcm,
        Self::Metis,
        Self::Parts,
        Self::Community,
        Self::Auto,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Random => "random",
            Self::Degree => "degree",
            Self::Slashburn => "slashburn",
            Self::Rcm => "rcm",
            Self::Metis => "metis",
            Self::Parts => "parts",
            Self::Community => "community",
            Self::Auto => "auto",
        }
    }

    /// Order with its default settings; `seed` is for the random order. With more than one block, nodes are ordered
    /// inside equal ranges of ids ([`Blockwise`]); [`Self::Parts`] first chooses new ranges.
    #[must_use]
    pub fn order(self, blocks: usize, seed: u64) -> Box<dyn Reorder> {
        fn cut<R: Reorder + 'static>(blocks: usize, inner: R) -> Box<dyn Reorder> {
            if blocks > 1 { Box::new(Blockwise { blocks, inner }) } else { Box::new(inner) }
        }
        match self {
            Self::None => Box::new(Identity),
            Self::Random => cut(blocks, Random { seed }),
            Self::Degree => cut(blocks, Degree),
            Self::Slashburn => cut(blocks, SlashBurn::default()),
            Self::Rcm => cut(blocks, ReverseCuthillMckee),
            Self::Metis => cut(blocks, MetisClusters::default()),
            Self::Parts => Box::new(Parts { n_parts: blocks, inner: Community::default() }),
            Self::Community => cut(blocks, Community::default()),
            Self::Auto => Box::new(Auto::here(blocks)),
        }
    }
}

impl fmt::Display for OrderKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for OrderKind {
    type Err = ReorderError;

    fn from_str(text: &str) -> Result<Self, ReorderError> {
        Self::ALL.into_iter().find(|kind| kind.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            ReorderError::invalid(format!("{text:?} is no order; choose one of {names}"))
        })
    }
}
