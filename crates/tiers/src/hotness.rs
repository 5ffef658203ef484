//! [`Hotness`]: which nodes sampling reads most.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use girih_graph_format::{Csr, NodeId};
use rayon::prelude::*;

use crate::{PageRank, TierError, Visits, page_rank, reverse_page_rank};

/// What tells how often a node is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Hotness {
    /// In how many lists of neighbours a node is: its in-degree in the direction in which sampling goes.
    InDegree,
    /// [`page_rank`], along edges.
    PageRank,
    /// [`reverse_page_rank`], from the training nodes outward.
    ReversePageRank,
    /// How often batches of an epoch that is not trained read it.
    #[default]
    Presampled,
}

impl Hotness {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::InDegree, Self::PageRank, Self::ReversePageRank, Self::Presampled];

    /// As it is spelt on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::InDegree => "degree",
            Self::PageRank => "pagerank",
            Self::ReversePageRank => "reverse-pagerank",
            Self::Presampled => "presampled",
        }
    }

    /// How often nodes of `graph` are read by batches for `seeds`; `presampled` is what batches of
    /// [an epoch that is not trained](crate::PRESAMPLED_EPOCH) read.
    ///
    /// # Panics
    /// When the graph is not square, a seed is none of its nodes, or `presampled` is of another graph.
    #[must_use]
    pub fn heats(self, graph: &Csr, seeds: &[NodeId], presampled: &Visits) -> AccessFrequencies {
        let in_degrees = n_lists(graph);
        let counted = |counts: &[u32]| counts.iter().map(|&count| f64::from(count)).collect();
        let frequency = match self {
            Self::InDegree => counted(&in_degrees),
            Self::PageRank => page_rank(graph, PageRank::default()),
            Self::ReversePageRank => reverse_page_rank(graph, seeds, PageRank::default()),
            Self::Presampled => counted(&presampled.features),
        };
        let features = AccessFrequency::new(frequency, &in_degrees);
        let rows = (self == Self::Presampled).then(|| AccessFrequency::new(counted(&presampled.rows), &in_degrees));
        AccessFrequencies { features, rows }
    }
}

impl fmt::Display for Hotness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Hotness {
    type Err = TierError;

    fn from_str(text: &str) -> Result<Self, TierError> {
        Self::ALL.into_iter().find(|hotness| hotness.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            TierError::invalid(format!("`{text}` is not a measure of hotness: give one of {names}"))
        })
    }
}

/// How often each node is read, in any unit, and the nodes from the hottest to the coldest.
#[derive(Clone, Debug, PartialEq)]
pub struct AccessFrequency {
    frequency: Vec<f64>,
    order: Vec<NodeId>,
}

impl AccessFrequency {
    /// Of nodes that are read as often the one with more in-degree comes first, then the one with the smaller id.
    ///
    /// # Panics
    /// When there are not as many degrees as frequencies.
    #[must_use]
    pub fn new(frequency: Vec<f64>, in_degrees: &[u32]) -> Self {
        assert_eq!(frequency.len(), in_degrees.len(), "a frequency and a degree for each node");
        let mut order: Vec<NodeId> = (0..frequency.len() as NodeId).collect();
        order.par_sort_unstable_by(|&a, &b| {
            let (i, j) = (a as usize, b as usize);
            frequency[j].total_cmp(&frequency[i]).then(in_degrees[j].cmp(&in_degrees[i])).then(a.cmp(&b))
        });
        Self { frequency, order }
    }

    /// How often each node is read.
    #[must_use]
    pub fn frequency(&self) -> &[f64] {
        &self.frequency
    }

    /// The nodes, hottest first.
    #[must_use]
    pub fn order(&self) -> &[NodeId] {
        &self.order
    }
}

/// How often features and rows of the adjacency are read.
#[derive(Clone, Debug, PartialEq)]
pub struct AccessFrequencies {
    /// Of features.
    pub features: AccessFrequency,
    /// Of rows, where that is known to differ.
    rows: Option<AccessFrequency>,
}

impl AccessFrequencies {
    /// Of rows of the adjacency.
    #[must_use]
    pub fn rows(&self) -> &AccessFrequency {
        self.rows.as_ref().unwrap_or(&self.features)
    }
}

/// In how many rows of a square matrix each node is.
pub(crate) fn n_lists(graph: &Csr) -> Vec<u32> {
    let counts: Vec<AtomicU32> = (0..graph.n_cols()).map(|_| AtomicU32::new(0)).collect();
    // Sums of integers are the same in any order.
    graph.indices().par_iter().for_each(|&u| {
        counts[u as usize].fetch_add(1, Relaxed);
    });
    counts.into_iter().map(AtomicU32::into_inner).collect()
}
