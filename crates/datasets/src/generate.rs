//! Generated graphs, for sizes that cannot be had as files: planted communities and R-MAT.
//!
//! ```text
//! Recipe ──pairs (one Philox block each)──▶ assemble ──▶ Csr ──▶ features, labels, splits ──▶ Dataset
//! ```
//! A recipe is a plain value; every draw is keyed by what it decides (an edge, a node), so that a recipe gives the same
//! data set on any number of threads. Sizes are compared with the memory at hand before anything is allocated.

mod alias;
mod assemble;
mod features;
mod planted;
mod preset;
mod rmat;

use std::time::Instant;

use girih_graph_format::MAX_NODES;
use girih_machine::memory::Free;
use girih_random::{Key, purpose};
use tracing::info;

use girih_compress::{CodecSpec, CompressedFeatures};

use crate::{Dataset, DatasetError, Features, SplitRule, memory};

pub(crate) use preset::communities as preset_communities;
pub use preset::{Preset, preset_names};

/// The decision that a draw is for: no two decisions share draws. Numbers are part of every generated graph, see
/// `docs/formats.md`.
#[derive(Clone, Copy, Debug)]
enum Decision {
    /// New ids of nodes.
    Permutation = 1,
    /// Sizes of communities.
    CommunitySize = 2,
    /// Degrees that nodes tend to.
    Weight = 3,
    /// Ends of edges.
    Pair = 4,
    /// Ends of edges that fill up what repeats took away.
    UniformPair = 5,
    /// Class centres in feature space.
    Centre = 6,
    /// Noise of features.
    Feature = 7,
    /// Labels that are wrong on purpose.
    Label = 8,
    /// Which classes a community likes, for several labels a node.
    Taste = 9,
    /// How much each feature has of each latent factor.
    Loading = 10,
    /// The latent factors of a node.
    Latent = 11,
    /// Those of a class's centre.
    CentreLatent = 12,
    /// Features that tell of another class than the node's.
    Stray = 13,
}

impl Decision {
    /// The key of this decision's draws.
    fn key(self, seed: u64) -> Key {
        Key::new(seed, purpose::GENERATOR).child(self as u64)
    }
}

/// What to generate.
#[derive(Clone, Debug, PartialEq)]
pub enum Recipe {
    /// Communities, power-law degrees, features and labels that depend on the community.
    Planted(Planted),
    /// A Kronecker graph without features and labels.
    Rmat(Rmat),
}

/// A degree-corrected block model (Karrer and Newman, "Stochastic blockmodels and community structure in networks",
/// 2011) with features and labels on it.
#[derive(Clone, Debug, PartialEq)]
pub struct Planted {
    /// Number of nodes.
    pub nodes: usize,
    /// Number of stored edges; an odd number is rounded down, because every edge is stored in both directions.
    pub edges: u64,
    /// Width of the features; 0 for none.
    pub features: usize,
    /// Number of classes.
    pub classes: usize,
    /// Whether a node has any number of classes instead of one.
    pub multi_label: bool,
    /// Number of communities, of log-normal sizes; each belongs to one class.
    pub communities: usize,
    /// Share of edges whose ends are drawn from the whole graph instead of one community.
    pub mix: f64,
    /// Exponent of the power law of degrees.
    pub gamma: f64,
    /// Norm of a class's centre in the features, where the noise has variance one in each dimension.
    pub signal: f64,
    /// Latent factors that half of the variance comes from, of noise and centres alike, so that features are correlated
    /// as embeddings are; 0 for none.
    pub factors: usize,
    /// Share of nodes whose features are around a centre drawn at random. It bounds what features tell without
    /// neighbours, however strong the signal.
    pub stray: f64,
    /// Share of labels that are drawn at random.
    pub noise: f64,
    /// Expected share of training nodes.
    pub train: f64,
    /// Expected share of validation nodes.
    pub val: f64,
    /// Expected share of test nodes; `None` for the rest. Nodes in no part have labels that nobody looks at.
    pub test: Option<f64>,
    /// Seed of everything that is drawn.
    pub seed: u64,
}

/// A recursive-matrix graph (Chakrabarti et al., "R-MAT: A Recursive Model for Graph Mining", SDM 2004).
#[derive(Clone, Debug, PartialEq)]
pub struct Rmat {
    /// Number of nodes; need not be a power of two.
    pub nodes: usize,
    /// Number of stored edges; an odd number is rounded down.
    pub edges: u64,
    /// Seed of everything that is drawn.
    pub seed: u64,
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

    /// Most bytes that [`Recipe::generate`] holds at a time: the graph about twice while it is sorted, or once beside
    /// the features.
    #[must_use]
    pub fn peak_bytes(&self) -> u64 {
        self.peak_bytes_with(None)
    }

    /// As [`peak_bytes`](Self::peak_bytes), with features as codes.
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
    /// When it cannot fit into the memory that is free now, or nodes are too few for the edges.
    pub fn generate(&self, name: &str, n_splits: usize) -> Result<Dataset, DatasetError> {
        self.generate_encoded(name, n_splits, None)
    }

    /// As [`generate`](Self::generate), with features as codes, if a codec and the seed that it is fitted with are
    /// given: there are then never more than a few rows of features at a time.
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

    /// At most half of all possible pairs may be edges: drawing the rest of a denser graph would take for ever.
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

#[cfg(test)]
mod tests;
