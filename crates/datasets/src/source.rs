//! [`DataSource`]: source of node rows, for ranks that each take some.

use std::ops::Range;
use std::sync::Arc;

use girih_compress::CodecSpec;
use girih_graph_format::{Buffer, Csr, Notes};

use crate::{Dataset, DatasetError, EdgeSplit, FeaturesFrom, LoadOptions, NodeRows, Outline, StoredDataset, load};

/// Source of node rows, for ranks that each take some.
#[derive(Clone, Debug)]
pub enum DataSource {
    /// A data set in memory, or mapped and checked as a whole.
    Loaded(Box<Dataset>),
    /// A folder of girih's, whose rows are read on request.
    Stored(Box<StoredDataset>),
}

impl DataSource {
    /// Opens the data of a SPEC. For a folder of girih's whose arrays are used as they are, only their sizes are
    /// read.
    ///
    /// # Errors
    /// As [`load()`].
    pub fn open(spec: &str, options: &LoadOptions) -> Result<Self, DatasetError> {
        match StoredDataset::open(spec, options)? {
            Some(stored) => Ok(Self::Stored(Box::new(stored))),
            None => Ok(load(spec, options)?.into()),
        }
    }

    /// Whether rows are read on request.
    #[must_use]
    pub fn is_stored(&self) -> bool {
        matches!(self, Self::Stored(_))
    }

    /// Outline of the whole data set.
    #[must_use]
    pub fn outline(&self) -> Outline {
        match self {
            Self::Loaded(dataset) => dataset.outline(),
            Self::Stored(stored) => stored.outline().clone(),
        }
    }

    /// Notes of loading: data left out, made up or doubtful. For a folder whose rows are read later, also features
    /// that are still to be made.
    #[must_use]
    pub fn notes(&self) -> Notes {
        match self {
            Self::Loaded(dataset) => dataset.notes.clone(),
            Self::Stored(stored) => {
                let (mut notes, outline) = (stored.notes().clone(), stored.outline());
                if let Some(rule) = outline.features_from {
                    rule.note(&mut notes, outline.n_nodes, outline.n_edges);
                }
                notes
            }
        }
    }

    /// The data's own split of edges, which a folder of girih's has none of.
    #[must_use]
    pub fn edge_split(&self) -> Option<&Arc<EdgeSplit>> {
        match self {
            Self::Loaded(dataset) => dataset.edge_split.as_ref(),
            Self::Stored(_) => None,
        }
    }

    /// Hash that differs between different data: of all data in memory, or of the sizes and checksums that a folder
    /// states.
    #[must_use]
    pub fn fingerprint(&self) -> u32 {
        match self {
            Self::Loaded(dataset) => dataset.fingerprint(),
            Self::Stored(stored) => stored.fingerprint(),
        }
    }

    /// Offsets of all rows of the graph. Those of a folder are mapped, and not checked against each other.
    ///
    /// # Errors
    /// When the offsets cannot be read.
    pub fn offsets(&self) -> Result<Buffer<u64>, DatasetError> {
        match self {
            Self::Loaded(dataset) => Ok(dataset.graph.offsets().clone()),
            Self::Stored(stored) => stored.offsets(),
        }
    }

    /// Takes consecutive rows of the graph, with all columns.
    ///
    /// # Errors
    /// When rows that are read break an invariant.
    ///
    /// # Panics
    /// When `rows` ends beyond the rows of the graph.
    pub fn graph_rows(&self, rows: Range<usize>) -> Result<Csr, DatasetError> {
        match self {
            Self::Loaded(dataset) => Ok(dataset.graph.row_slice(rows)),
            Self::Stored(stored) => stored.graph_rows(rows),
        }
    }

    /// Features, labels and splits of some consecutive nodes.
    ///
    /// # Errors
    /// When rows that are read break an invariant of a data set.
    ///
    /// # Panics
    /// When `nodes` ends beyond the nodes.
    pub fn rows(&self, nodes: Range<usize>) -> Result<NodeRows, DatasetError> {
        match self {
            Self::Loaded(dataset) => Ok(dataset.rows(nodes)),
            Self::Stored(stored) => stored.rows(nodes),
        }
    }

    /// Encodes the features, if a codec is named, as [`Dataset::with_codec`]. Features that are still to be encoded
    /// are read whole.
    ///
    /// # Errors
    /// As [`Dataset::with_codec`] and [`load()`].
    pub fn with_codec(self, codec: Option<CodecSpec>, seed: u64) -> Result<Self, DatasetError> {
        match self {
            Self::Stored(stored) if codec.is_none_or(|codec| stored.has_codes_of(codec)) => Ok(Self::Stored(stored)),
            _ => Ok(self.into_dataset()?.with_codec(codec, seed)?.into()),
        }
    }

    /// Sets the rule by which features are made, as [`Dataset::with_features_from`]. If features are computed from
    /// the graph, the graph is read whole.
    ///
    /// # Errors
    /// As [`Dataset::with_features_from`] and [`load()`].
    pub fn with_features_from(self, rule: Option<FeaturesFrom>) -> Result<Self, DatasetError> {
        match self {
            Self::Stored(stored)
                if rule == stored.outline().features_from && rule.is_none_or(FeaturesFrom::is_learned) =>
            {
                Ok(Self::Stored(stored))
            }
            _ => Ok(self.into_dataset()?.with_features_from(rule)?.into()),
        }
    }

    /// Loads the whole data set.
    ///
    /// # Errors
    /// As [`load()`].
    pub fn into_dataset(self) -> Result<Dataset, DatasetError> {
        match self {
            Self::Loaded(dataset) => Ok(*dataset),
            Self::Stored(stored) => stored.load(),
        }
    }
}

impl From<Dataset> for DataSource {
    fn from(dataset: Dataset) -> Self {
        Self::Loaded(Box::new(dataset))
    }
}
