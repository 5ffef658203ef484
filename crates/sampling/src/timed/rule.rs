//! [`TimeRule`]: the edges that a node may draw from.

use std::fmt;
use std::str::FromStr;

use girih_graph_format::TimeWindow;

use crate::SampleError;

/// Time that bounds the edges of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Bound {
    /// The time of the seed, in all hops, as in `PyG`. Each seed has a tree of its own.
    #[default]
    Seed,
    /// In the first hop the time of the seed, in later ones the time of the edge just taken. Each seed has a tree of its
    /// own.
    Path,
    /// The earliest time of the batch's seeds, in all hops. Seeds share their nodes, which costs least; seeds see neighbors
    /// that are somewhat older than they might.
    Batch,
}

/// Whether an edge at the bound itself is admitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Admits {
    /// Edges up to the bound, as in `PyG`.
    #[default]
    Until,
    /// Edges before the bound, as in DGL. For seeds that are ends of edges: these would otherwise see themselves.
    Before,
}

/// Choice among the admitted edges of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// All with equal chances.
    #[default]
    Uniform,
    /// The latest ones, oldest first; nothing is drawn.
    Last,
}

/// Edges that a node may draw from, and the choice among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TimeRule {
    /// Time that bounds the edges of a node.
    pub bound: Bound,
    /// Whether an edge at the bound itself is admitted.
    pub admits: Admits,
    /// Largest distance of an edge's time from the bound, in ticks; `None`: any.
    pub window: Option<u64>,
    /// Choice among the admitted edges.
    pub strategy: Strategy,
}

impl TimeRule {
    /// Times of the edges that a node with this bound may draw from.
    #[must_use]
    pub fn window_of(&self, bound: i64) -> TimeWindow {
        let last = match self.admits {
            Admits::Until => bound,
            Admits::Before => bound.saturating_sub(1),
        };
        TimeWindow { first: self.window.map_or(i64::MIN, |window| bound.saturating_sub_unsigned(window)), last }
    }
}

/// Names of the variants of an option, which its text has.
macro_rules! named {
    ($of:ident, $n:literal, $what:literal, $($variant:ident => $name:literal),+) => {
        impl $of {
            /// All variants.
            pub const ALL: [Self; $n] = [$(Self::$variant),+];

            /// Name, as the command line and results spell it.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name),+
                }
            }
        }

        impl fmt::Display for $of {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }

        impl FromStr for $of {
            type Err = SampleError;

            fn from_str(text: &str) -> Result<Self, SampleError> {
                Self::ALL.into_iter().find(|of| of.name() == text).ok_or_else(|| {
                    let names = Self::ALL.map(Self::name).join(", ");
                    SampleError::invalid(format!("{text:?} is no {}; choose one of {names}", $what))
                })
            }
        }
    };
}

named!(Bound, 3, "bound in time", Seed => "seed", Path => "path", Batch => "batch");
named!(Strategy, 2, "choice among edges in time", Uniform => "uniform", Last => "last");
