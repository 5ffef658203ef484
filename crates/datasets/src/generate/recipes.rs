//! [`Planted`], [`Typed`] and [`Rmat`]: recipes of generated graphs.

use crate::ReverseEdges;

/// Recipe of a degree-corrected block model (Karrer and Newman, "Stochastic blockmodels and community structure in
/// networks", 2011) with features and labels.
#[derive(Clone, Debug, PartialEq)]
pub struct Planted {
    /// Number of nodes.
    pub nodes: usize,
    /// Number of stored edges; an odd number is rounded down, because every edge is stored in both directions.
    pub edges: u64,
    /// Width of the features; 0 for none.
    pub features: usize,
    /// Communities, and what depends on them.
    pub settings: PlantedSettings,
}

/// Recipe of a graph with types: a degree-corrected block model for each relation, over communities that have nodes of
/// all types.
///
/// Draws have the number of their node type or relation in their key, so types and relations that are added at the end
/// change no other.
#[derive(Clone, Debug, PartialEq)]
pub struct Typed {
    /// Types of nodes.
    pub node_types: Vec<TypeSize>,
    /// Relations, without their reverses.
    pub relations: Vec<RelationDraws>,
    /// Number of the node type with labels and splits.
    pub target: usize,
    /// Nodes of the target that have a label. Parts are fractions of these.
    pub labelled: Labelled,
    /// Reverses of relations.
    pub reverse: ReverseEdges,
    /// Communities, and what depends on them; one class per node.
    pub settings: PlantedSettings,
}

/// Nodes that have a label.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Labelled {
    /// An expected fraction, drawn at random.
    Share(f64),
    /// The fraction with the highest expected degrees.
    Hubs(f64),
}

/// Type of nodes in a recipe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeSize {
    /// Unique name.
    pub name: String,
    /// Number of nodes.
    pub nodes: usize,
    /// Width of the features; 0 for none.
    pub features: usize,
}

/// Relation in a recipe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelationDraws {
    /// Name, unique among relations with the same ends.
    pub name: String,
    /// Number of the type of sources.
    pub source: usize,
    /// Number of the type of destinations.
    pub destination: usize,
    /// Number of edges, all distinct; none joins a node to itself.
    pub edges: u64,
}

/// Communities of a planted graph, and the classes, edges, features and parts that depend on them.
#[derive(Clone, Debug, PartialEq)]
pub struct PlantedSettings {
    /// Number of classes.
    pub classes: usize,
    /// Whether a node has any number of classes instead of one.
    pub multi_label: bool,
    /// Number of communities, of log-normal sizes; each belongs to one class.
    pub communities: usize,
    /// Fraction of edges whose ends are drawn from the whole graph instead of one community.
    pub mix: f64,
    /// Exponent of the power law of degrees.
    pub gamma: f64,
    /// Norm of a class's centre in the features; the noise has variance one in each dimension.
    pub signal: f64,
    /// Number of latent factors that account for half of the variance, of noise and centres alike, so that features
    /// are correlated as embeddings are; 0 for none.
    pub factors: usize,
    /// Fraction of nodes whose features lie around a centre drawn at random. It bounds the accuracy that features
    /// allow without neighbors, however strong the signal.
    pub stray: f64,
    /// Fraction of labels that are drawn at random.
    pub noise: f64,
    /// Expected fraction of training nodes.
    pub train: f64,
    /// Expected fraction of validation nodes.
    pub val: f64,
    /// Expected fraction of test nodes; `None` for the rest. Labels of nodes in no part are never used.
    pub test: Option<f64>,
    /// Random seed of all draws.
    pub seed: u64,
}

/// Recipe of a recursive-matrix graph (Chakrabarti et al., "R-MAT: A Recursive Model for Graph Mining", SDM 2004).
#[derive(Clone, Debug, PartialEq)]
pub struct Rmat {
    /// Number of nodes; need not be a power of two.
    pub nodes: usize,
    /// Number of stored edges; an odd number is rounded down.
    pub edges: u64,
    /// Random seed of all draws.
    pub seed: u64,
}
