//! [`DataSource`]: where the rows of nodes come from, for ranks that each take some.

use std::ops::Range;

use girih_compress::CodecSpec;
use girih_graph_format::{Buffer, Csr, Notes};

use crate::{Dataset, DatasetError, FeaturesFrom, LoadOptions, NodeRows, Outline, StoredDataset, load};

/// Where the rows of nodes come from, for ranks that each take some.
#[derive(Clone, Debug)]
pub enum DataSource {
    /// A data set in memory, or mapped and checked as a whole.
    Loaded(Box<Dataset>),
    /// A folder of girih's, of which rows are read when they are asked for.
    Stored(Box<StoredDataset>),
}

impl DataSource {
    /// The data of a SPEC: where it is a folder of girih's whose arrays are used as they are, nothing but their sizes
    /// is read.
    ///
    /// # Errors
    /// As [`load()`].
    pub fn open(spec: &str, options: &LoadOptions) -> Result<Self, DatasetError> {
        match StoredDataset::open(spec, options)? {
            Some(stored) => Ok(Self::Stored(Box::new(stored))),
            None => Ok(load(spec, options)?.into()),
        }
    }

    /// Whether rows are read when they are asked for.
    #[must_use]
    pub fn is_stored(&self) -> bool {
        matches!(self, Self::Stored(_))
    }

    /// What is known of all rows.
    #[must_use]
    pub fn outline(&self) -> Outline {
        match self {
            Self::Loaded(dataset) => dataset.outline(),
            Self::Stored(stored) => stored.outline().clone(),
        }
    }

    /// What loading left out, made up or found doubtful; of a folder of which rows are read later, also features that
    /// are to be made.
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

    /// A hash that differs between different data: of all that is in memory, or of the sizes and checksums that a
    /// folder states.
    #[must_use]
    pub fn fingerprint(&self) -> u32 {
        match self {
            Self::Loaded(dataset) => dataset.fingerprint(),
            Self::Stored(stored) => stored.fingerprint(),
        }
    }

    /// The offsets of all rows of the graph; of a folder, mapped, and not compared with each other.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn offsets(&self) -> Result<Buffer<u64>, DatasetError> {
        match self {
            Self::Loaded(dataset) => Ok(dataset.graph.offsets().clone()),
            Self::Stored(stored) => stored.offsets(),
        }
    }

    /// Some consecutive rows of the graph, all columns.
    ///
    /// # Errors
    /// When rows that are read break an invariant.
    ///
    /// # Panics
    /// When there are not so many.
    pub fn graph_rows(&self, rows: Range<usize>) -> Result<Csr, DatasetError> {
        match self {
            Self::Loaded(dataset) => Ok(dataset.graph.row_slice(rows)),
            Self::Stored(stored) => stored.graph_rows(rows),
        }
    }

    /// What there is of some consecutive nodes beside the graph.
    ///
    /// # Errors
    /// When rows that are read break an invariant of a data set.
    ///
    /// # Panics
    /// When there are not so many nodes.
    pub fn rows(&self, nodes: Range<usize>) -> Result<NodeRows, DatasetError> {
        match self {
            Self::Loaded(dataset) => Ok(dataset.rows(nodes)),
            Self::Stored(stored) => stored.rows(nodes),
        }
    }

    /// The same with its features as codes, if a codec is named, as [`Dataset::with_codec`]; features that are to be
    /// encoded are read whole.
    ///
    /// # Errors
    /// As [`Dataset::with_codec`] and [`load()`].
    pub fn with_codec(self, codec: Option<CodecSpec>, seed: u64) -> Result<Self, DatasetError> {
        match self {
            Self::Stored(stored) if codec.is_none_or(|codec| stored.has_codes_of(codec)) => Ok(Self::Stored(stored)),
            _ => Ok(self.into_dataset()?.with_codec(codec, seed)?.into()),
        }
    }

    /// Source with features to be made by `rule`, as [`Dataset::with_features_from`]. Where features are computed from
    /// the graph, it is read whole.
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

    /// All of it.
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
