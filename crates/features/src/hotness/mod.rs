//! [`Hotness`]: estimates of how often sampling reads each node.
//!
//! - `pagerank`: estimates from the graph alone.
//! - `visits`: counted reads of batches of the actual sampler.

mod pagerank;
mod visits;

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use girih_graph_format::{Csr, NodeId};
use rayon::prelude::*;

pub use self::pagerank::{PageRank, page_rank, reverse_page_rank};
pub use self::visits::{PRESAMPLED_EPOCH, Reads, Visits};
use crate::TierError;

/// Source of the access frequency of nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Hotness {
    /// Number of neighbor lists that contain a node: its in-degree in the direction of sampling.
    InDegree,
    /// [`page_rank`], along edges.
    PageRank,
    /// [`reverse_page_rank`], from the training nodes along the direction of sampling.
    ReversePageRank,
    /// Number of reads by the batches of an epoch that is not trained.
    #[default]
    Presampled,
}

impl Hotness {
    /// All variants.
    pub const ALL: [Self; 4] = [Self::InDegree, Self::PageRank, Self::ReversePageRank, Self::Presampled];

    /// Name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::InDegree => "degree",
            Self::PageRank => "pagerank",
            Self::ReversePageRank => "reverse-pagerank",
            Self::Presampled => "presampled",
        }
    }

    /// Access frequencies of the nodes of `graph` for batches of `seeds`. `presampled` has the reads of [an epoch
    /// that is not trained](crate::PRESAMPLED_EPOCH).
    ///
    /// # Panics
    /// When the graph is not square, a seed is not one of its nodes, or `presampled` is of another graph.
    #[must_use]
    pub fn frequencies(self, graph: &Csr, seeds: &[NodeId], presampled: &Visits) -> AccessFrequencies {
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

/// Access frequency of each node, in any unit, and the nodes from hottest to coldest.
#[derive(Clone, Debug, PartialEq)]
pub struct AccessFrequency {
    frequency: Vec<f64>,
    order: Vec<NodeId>,
}

impl AccessFrequency {
    /// Sorts nodes by falling frequency; ties are broken by falling in-degree, then by rising id.
    ///
    /// # Panics
    /// When the numbers of degrees and frequencies differ.
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

    /// Access frequency of each node, by id.
    #[must_use]
    pub fn frequency(&self) -> &[f64] {
        &self.frequency
    }

    /// Node ids, hottest first.
    #[must_use]
    pub fn order(&self) -> &[NodeId] {
        &self.order
    }
}

/// Access frequencies of features and of adjacency rows.
#[derive(Clone, Debug, PartialEq)]
pub struct AccessFrequencies {
    /// Access frequency of features.
    pub features: AccessFrequency,
    /// Access frequency of adjacency rows; `None` if that of features stands for it.
    rows: Option<AccessFrequency>,
}

impl AccessFrequencies {
    /// Access frequency of adjacency rows.
    #[must_use]
    pub fn rows(&self) -> &AccessFrequency {
        self.rows.as_ref().unwrap_or(&self.features)
    }
}

/// Number of rows of a square matrix that contain each node as a column.
pub(crate) fn n_lists(graph: &Csr) -> Vec<u32> {
    let counts: Vec<AtomicU32> = (0..graph.n_cols()).map(|_| AtomicU32::new(0)).collect();
    // Sums of integers do not depend on their order.
    graph.indices().par_iter().for_each(|&u| {
        counts[u as usize].fetch_add(1, Relaxed);
    });
    counts.into_iter().map(AtomicU32::into_inner).collect()
}
