//! [`LoadOptions`]: what a user may change about how files become a [`Dataset`](crate::Dataset).

use std::path::PathBuf;

use girih_compress::CodecSpec;
use girih_graph_format::Duplicates;
use girih_graph_format::file::{Columns, Verify};

use crate::{FeatureNorm, FeaturesFrom};

/// How files become a data set; every default is the convention of the format's published loader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadOptions {
    /// What rows of features are divided by; `None`: the sum for Planetoid, as its users do, the root of the length for
    /// the bags of words of gnn-benchmark, nothing elsewhere.
    pub feature_norm: Option<FeatureNorm>,
    /// Store every edge in both directions; `None`: as the format's convention is (yes for Planetoid, gnn-benchmark,
    /// the heterophilous graphs, OGB and edge lists; no for girih's own folder, named arrays and matrices, which stay
    /// as they are).
    pub symmetrize: Option<bool>,
    /// Seed of everything that is drawn: splits of data that ships none.
    pub seed: u64,
    /// Number of split sets to draw for data that ships none, one per run.
    pub n_splits: usize,
    /// Which split set to keep, counted from 0, of those that the data ships or that are drawn; `None`: all.
    pub split: Option<usize>,
    /// Dense features (`.npy`) or compressed ones (`.codes`), one row per node, for formats that hold none, such as
    /// edge lists.
    pub features: Option<PathBuf>,
    /// Rule that makes features for data that has none; `None` for as the data is. Data with features is refused then.
    pub features_from: Option<FeaturesFrom>,
    /// How features are compressed as they are read, by a codec fitted with `seed`; `None`: as the data has them.
    pub codec: Option<CodecSpec>,
    /// Labels for formats that hold none: `.npy` or a text table (`.csv`, `.tsv`, `.txt`), one class per node, negative
    /// or NaN when unknown; or a row of 0 and 1 per node.
    pub labels: Option<PathBuf>,
    /// Draw splits of 60 % train, 20 % val and 20 % test, whatever splits the data ships.
    pub random_split: bool,
    /// The class that labels count from, 0 or 1; `None`: 0, and refuse labels among which there is no 0.
    pub labels_from: Option<u32>,
    /// Whether a row of 0 and 1 holds several labels or one class; `None`: one class where every row has exactly one 1.
    pub multi_label: Option<bool>,
    /// What becomes of parallel edges; `None`: what the format's own loader makes of them.
    pub duplicates: Option<Duplicates>,
    /// What the columns of an edge list hold; `None`: what its header says, or else source, target and weight.
    pub columns: Option<Columns>,
    /// Whether the two ends of an edge list's edges have ids of their own; `None`: as its header says.
    pub bipartite: Option<bool>,
    /// The id of the first node in an edge list, 0 or 1; `None`: 0.
    pub ids_from: Option<u32>,
    /// Refuse data of which something is not used or doubtful.
    pub strict: bool,
    /// Comparison of folders and stores with their checksums.
    pub verify: Verify,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self {
            feature_norm: None,
            symmetrize: None,
            seed: 0,
            n_splits: 1,
            split: None,
            features: None,
            features_from: None,
            codec: None,
            labels: None,
            random_split: false,
            labels_from: None,
            multi_label: None,
            duplicates: None,
            columns: None,
            bipartite: None,
            ids_from: None,
            strict: false,
            verify: Verify::Full,
        }
    }
}

impl LoadOptions {
    /// Split sets to draw where there are none, so that the one to keep is among them.
    pub(crate) fn n_drawn(&self) -> usize {
        self.split.map_or(self.n_splits, |split| self.n_splits.max(split.saturating_add(1)))
    }
}
