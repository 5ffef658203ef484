//! Generated graphs, for sizes that are not available as files: planted communities and R-MAT.
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
mod planted;
mod preset;
mod recipes;
mod rmat;

use std::time::Instant;

use girih_graph_format::MAX_NODES;
use girih_machine::memory::Free;
use tracing::info;

use girih_compress::{CodecSpec, CompressedFeatures};

use crate::{Dataset, DatasetError, Features, SplitRule, memory};

pub(crate) use preset::communities as preset_communities;
pub use preset::{Preset, preset_names};
pub use recipes::{Planted, Rmat};

/// Recipe of a generated data set.
#[derive(Clone, Debug, PartialEq)]
pub enum Recipe {
    /// Communities, power-law degrees, features and labels that depend on the community.
    Planted(Planted),
    /// A Kronecker graph without features and labels.
    Rmat(Rmat),
}

impl Recipe {
    /// Number of nodes.
    #[must_use]
    pub fn nodes(&self) -> usize {
        match self {
            Self::Planted(planted) => planted.nodes,
            Self::Rmat(rmat) => rmat.nodes,
        }
    }

    /// Number of stored edges.
    #[must_use]
    pub fn edges(&self) -> u64 {
        match self {
            Self::Planted(planted) => planted.edges,
            Self::Rmat(rmat) => rmat.edges,
        }
    }

    /// Peak memory of [`Recipe::generate`] in bytes: about two copies of the graph while it is sorted, or one copy
    /// and the features.
    #[must_use]
    pub fn peak_bytes(&self) -> u64 {
        self.peak_bytes_with(None)
    }

    /// As [`peak_bytes`](Self::peak_bytes), but with features as codes.
    fn peak_bytes_with(&self, codec: Option<CodecSpec>) -> u64 {
        let (nodes, edges) = (self.nodes() as u64, self.edges());
        let while_sorting = edges.saturating_mul(8).saturating_add(nodes.saturating_mul(60));
        let (width, classes) = match self {
            Self::Planted(planted) if planted.multi_label => (planted.features, planted.classes),
            Self::Planted(planted) => (planted.features, 1),
            Self::Rmat(_) => (0, 0),
        };
        let features = codec.map_or(4 * width as u64, |codec| codec.row_bytes(width) as u64);
        let row = features.saturating_add(classes as u64 * 4).saturating_add(32);
        let rows_of_all = match self {
            Self::Planted(planted) if planted.multi_label => planted.communities + planted.factors,
            Self::Planted(planted) => planted.classes + planted.factors,
            Self::Rmat(_) => 0,
        };
        let of_all = (rows_of_all as u64).saturating_mul(4 * width as u64);
        let with_features = edges.saturating_mul(4).saturating_add(nodes.saturating_mul(row)).saturating_add(of_all);
        while_sorting.max(with_features)
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
            Self::Planted(planted) => generate_planted(planted, name, n_splits, codec)?,
            Self::Rmat(rmat) => {
                let graph = assemble::assemble(&rmat::Pairs::new(rmat), rmat.edges / 2, rmat.seed)?;
                Dataset::new(name, graph, None, None, Vec::new())?
            }
        };
        Ok(Dataset { generated: true, ..dataset })
    }

    /// Refuses a graph with more than half of all possible pairs: drawing the rest would take too long.
    fn check_density(&self) -> Result<(), DatasetError> {
        let (nodes, edges) = (self.nodes() as u64, self.edges());
        if nodes > MAX_NODES as u64 {
            return Err(DatasetError::too_large(format!("{nodes} nodes exceed the limit of {MAX_NODES}")));
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

fn generate_planted(
    recipe: &Planted,
    name: &str,
    n_splits: usize,
    codec: Option<(CodecSpec, u64)>,
) -> Result<Dataset, DatasetError> {
    let start = Instant::now();
    let (graph, community) = {
        let pairs = planted::Pairs::new(recipe);
        (assemble::assemble(&pairs, recipe.edges / 2, recipe.seed)?, pairs.community_by_node())
    };
    info!(seconds = start.elapsed().as_secs_f64(), edges = graph.nnz(), "generated the topology");
    let start = Instant::now();
    let labels = features::labels(recipe, &community)?;
    let rows = (recipe.features > 0).then(|| features::Rows::new(recipe, &community));
    let features = match (rows, codec) {
        (None, _) => None,
        (Some(rows), None) => Some(rows.dense()?),
        (Some(rows), Some((spec, seed))) => Some(Features::Compressed(CompressedFeatures::fitted(spec, &rows, seed)?)),
    };
    info!(seconds = start.elapsed().as_secs_f64(), width = recipe.features, "generated labels and features");
    let rule = SplitRule::Fractions { train: recipe.train, val: recipe.val, test: recipe.test };
    let splits = rule.draw_many(&labels, recipe.seed, n_splits)?;
    Dataset::new(name, graph, features, Some(labels), splits)
}
