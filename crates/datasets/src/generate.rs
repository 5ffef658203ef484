//! Generated graphs, for sizes that are not available as files: planted communities, also with types, and R-MAT.
//!
//! ```text
//! Recipe ──pairs (one Philox block each)──▶ assemble ──▶ Csr ──▶ features, labels, splits ──▶ Dataset
//! ```
//! A recipe is a plain value. Every draw is keyed by its purpose and its edge or node, so a recipe gives equal data
//! on any number of threads. Sizes are compared with the free memory before anything is allocated.

mod alias;
mod assemble;
mod decision;
mod features;
mod outline;
mod planted;
mod population;
mod preset;
mod recipes;
mod rmat;
mod typed;
mod typed_preset;

use std::time::Instant;

use girih_compress::CodecSpec;
use girih_graph_format::MAX_NODES;
use girih_machine::memory::Free;
use tracing::info;

use crate::edges::refuse_duplicates_option;
use crate::options_for::refuse_for_generated;
use crate::typed_parts::{other_target, type_number};
use crate::{Dataset, DatasetError, LoadOptions, ReverseEdges, SplitRule, memory};

use assemble::{Entries, assemble};
use decision::Keys;
pub use outline::large_outline;
use population::Population;
pub(crate) use preset::communities as preset_communities;
pub use preset::{Preset, preset_names};
pub use recipes::{Labelled, Planted, PlantedSettings, RelationDraws, Rmat, TypeSize, Typed};

/// Recipe of a generated data set.
#[derive(Clone, Debug, PartialEq)]
pub enum Recipe {
    /// Communities, power-law degrees, features and labels that depend on the community.
    Planted(Planted),
    /// Planted communities with types of nodes and edges.
    Typed(Typed),
    /// A Kronecker graph without features and labels.
    Rmat(Rmat),
}

impl Recipe {
    /// Number of nodes.
    #[must_use]
    pub fn nodes(&self) -> usize {
        match self {
            Self::Planted(planted) => planted.nodes,
            Self::Typed(typed) => typed.nodes(),
            Self::Rmat(rmat) => rmat.nodes,
        }
    }

    /// Number of stored edges; those of relations without their reverses.
    #[must_use]
    pub fn edges(&self) -> u64 {
        match self {
            Self::Planted(planted) => planted.edges,
            Self::Typed(typed) => typed.edges(),
            Self::Rmat(rmat) => rmat.edges,
        }
    }

    /// Peak memory of [`Recipe::generate`] in bytes: about two copies of the graph while it is sorted, or one copy
    /// and the features. With types, the features and all relations while their union is made.
    #[must_use]
    pub fn peak_bytes(&self) -> u64 {
        self.peak_bytes_with(None)
    }

    /// As [`peak_bytes`](Self::peak_bytes), but with features as codes.
    fn peak_bytes_with(&self, codec: Option<CodecSpec>) -> u64 {
        let (nodes, edges) = (self.nodes() as u64, self.edges());
        let while_sorting = edges.saturating_mul(8).saturating_add(nodes.saturating_mul(60));
        match self {
            Self::Planted(planted) => while_sorting.max(planted.bytes(codec)),
            Self::Typed(typed) => typed.peak_bytes(codec),
            Self::Rmat(_) => while_sorting,
        }
    }

    /// Recipe with the options of typed data.
    ///
    /// # Errors
    /// When an option has no meaning for generated data or for the recipe, or names another target.
    pub(crate) fn with_options(self, options: &LoadOptions) -> Result<Self, DatasetError> {
        refuse_duplicates_option(options, "generated edges are distinct")?;
        refuse_for_generated(options)?;
        let Self::Typed(typed) = self else {
            options.check_typed_flags(&[])?;
            return Ok(self);
        };
        options.check_typed_flags(&["--reverse", "--target"])?;
        if let Some(name) = &options.target {
            let schema = typed.schema()?;
            if type_number(schema.node_types(), name, "--target")? != typed.target {
                return Err(other_target(name, &typed.node_types[typed.target].name));
            }
        }
        let reverse = options.reverse.unwrap_or(ReverseEdges::Add);
        Ok(Self::Typed(Typed { reverse, ..typed }))
    }

    /// Generates the data set, named `name`, with `n_splits` split sets.
    ///
    /// # Errors
    /// When the data does not fit into the free memory, or there are too few nodes for the edges.
    pub fn generate(&self, name: &str, n_splits: usize) -> Result<Dataset, DatasetError> {
        self.generate_encoded(name, n_splits, None)
    }

    /// As [`generate`](Self::generate), but with features as codes, if a codec and its seed are given. Then only a
    /// few rows of features are in memory at a time.
    ///
    /// # Errors
    /// As [`generate`](Self::generate), and when the codec does not suit the features.
    pub fn generate_encoded(
        &self,
        name: &str,
        n_splits: usize,
        codec: Option<(CodecSpec, u64)>,
    ) -> Result<Dataset, DatasetError> {
        self.check_density()?;
        memory::check_fits(self.peak_bytes_with(codec.map(|(spec, _)| spec)), Free::now())?;
        let dataset = match self {
            Self::Planted(planted) => planted.generate(name, n_splits, codec)?,
            Self::Typed(typed) => typed.generate(name, n_splits, codec)?,
            Self::Rmat(rmat) => {
                let keys = Keys::of_all(rmat.seed);
                let graph = assemble(&rmat::Pairs::new(rmat), Entries::Both, rmat.edges / 2, keys)?;
                Dataset::new(name, graph, None, None, Vec::new())?
            }
        };
        Ok(Dataset { generated: true, ..dataset })
    }

    /// Refuses a graph or relation with more than half of all possible pairs: drawing the rest would take too long.
    fn check_density(&self) -> Result<(), DatasetError> {
        let (nodes, edges) = (self.nodes() as u64, self.edges());
        if nodes > MAX_NODES as u64 {
            let what = format!("{nodes} nodes exceed the limit of {MAX_NODES}");
            return Err(DatasetError::too_large(format!("{what}; lower SCALE or nodes=")));
        }
        if let Self::Typed(typed) = self {
            return typed.check_density();
        }
        let most = nodes * nodes.saturating_sub(1) / 2;
        if edges > most {
            return Err(DatasetError::spec(format!(
                "{nodes} nodes hold at most {most} generated edges (half of all pairs), {edges} are asked for; lower \
                 degree= to {} or less, or take more nodes",
                nodes.saturating_sub(1) / 2
            )));
        }
        Ok(())
    }
}

impl Planted {
    /// Memory in bytes of the graph with features, labels and the rows that all nodes share.
    fn bytes(&self, codec: Option<CodecSpec>) -> u64 {
        let (settings, width) = (&self.settings, self.features);
        let n_targets = if settings.multi_label { settings.classes } else { 1 };
        let features = codec.map_or(4 * width as u64, |codec| codec.row_bytes(width) as u64);
        let row = features.saturating_add(n_targets as u64 * 4).saturating_add(32);
        let n_centres = if settings.multi_label { settings.communities } else { settings.classes };
        let of_all = ((n_centres + settings.factors) as u64).saturating_mul(4 * width as u64);
        let rows = (self.nodes as u64).saturating_mul(row);
        self.edges.saturating_mul(4).saturating_add(rows).saturating_add(of_all)
    }

    fn generate(&self, name: &str, n_splits: usize, codec: Option<(CodecSpec, u64)>) -> Result<Dataset, DatasetError> {
        let (start, keys) = (Instant::now(), Keys::of_all(self.settings.seed));
        let (graph, community) = {
            let nodes = Population::new(self.nodes, &self.settings, keys);
            let pairs = planted::Pairs::of_graph(self, &nodes);
            (assemble(&pairs, Entries::Both, self.edges / 2, keys)?, nodes.community_by_node())
        };
        info!(seconds = start.elapsed().as_secs_f64(), edges = graph.nnz(), "generated the topology");
        let start = Instant::now();
        let labels = features::labels(&self.settings, keys, &community)?;
        let rows = (self.features > 0).then(|| features::Rows::new(&self.settings, self.features, keys, &community));
        let features = rows.map(|rows| rows.stored(codec)).transpose()?;
        info!(seconds = start.elapsed().as_secs_f64(), width = self.features, "generated labels and features");
        let splits = SplitRule::of(&self.settings).draw_many(&labels, self.settings.seed, n_splits)?;
        Dataset::new(name, graph, features, Some(labels), splits)
    }
}

impl SplitRule {
    /// Rule of a recipe's parts.
    fn of(settings: &PlantedSettings) -> Self {
        Self::Fractions { train: settings.train, val: settings.val, test: settings.test }
    }
}
