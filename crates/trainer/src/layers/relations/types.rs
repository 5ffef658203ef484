//! [`LayerTypes`]: types of nodes and edges that a layer reads and computes, and the [`RelationForm`] in which it reads them.

use girih_graph_format::{RelationSize, RelationSizes};

/// Types of nodes and edges that a layer reads and computes, each list in ascending order.
///
/// Rows of a layer are those of its node types, one type after the other. A layer computes only the types that later
/// layers read, so that the last one computes the target alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerTypes {
    /// Node types of the rows that it reads.
    pub sources: Vec<usize>,
    /// Node types of the rows that it computes; they are among the sources.
    pub destinations: Vec<usize>,
    /// Edge types that end in the destinations.
    pub relations: Vec<usize>,
    /// Edge types among them whose sources are transformed before they are averaged; all others are averaged first.
    pub transformed: Vec<usize>,
}

/// Form in which layers read relations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelationForm {
    /// Means over the neighbors of each relation.
    Means,
    /// Attention among the neighbors of each relation.
    AttentionByRelation,
    /// Attention among all neighbors of a destination.
    Attention,
}

/// Operations for an entry of a sparse product that take the time of one of a dense product.
const SPARSE_COST: usize = 8;

impl LayerTypes {
    /// Types of each of `n_layers` layers, from the inputs on, for the rows of the target's nodes; with `None`, of all.
    #[must_use]
    pub fn of(sizes: &RelationSizes, target: Option<usize>, n_layers: usize) -> Vec<Self> {
        let mut destinations = target.map_or_else(|| (0..sizes.node_types.len()).collect(), |target| vec![target]);
        let mut layers = Vec::with_capacity(n_layers);
        for _ in 0..n_layers {
            let ends = |relation: &usize| destinations.contains(&sizes.relations[*relation].destination);
            let relations: Vec<usize> = (0..sizes.relations.len()).filter(ends).collect();
            let of_relations = relations.iter().map(|&relation| sizes.relations[relation].source);
            let mut sources: Vec<usize> = destinations.iter().copied().chain(of_relations).collect();
            sources.sort_unstable();
            sources.dedup();
            layers.push(Self { sources: sources.clone(), destinations, relations, transformed: Vec::new() });
            destinations = sources;
        }
        layers.reverse();
        layers
    }

    /// These types with the cheaper order of average and product for each relation, for weights of `inputs × outputs`.
    #[must_use]
    pub fn in_cheaper_order(self, sizes: &RelationSizes, (inputs, outputs): (usize, usize)) -> Self {
        let cost =
            |n_rows: usize, n_edges: usize, width: usize| n_rows * inputs * outputs + SPARSE_COST * n_edges * width;
        let is_cheaper = |&of: &usize| {
            let RelationSize { n_edges, n_sources, n_destinations, .. } = sizes.relations[of];
            cost(n_sources, n_edges, outputs) < cost(n_destinations, n_edges, inputs)
        };
        let transformed = self.relations.iter().copied().filter(is_cheaper).collect();
        Self { transformed, ..self }
    }

    /// First row of each source type, then the number of rows.
    #[must_use]
    pub fn source_runs(&self, sizes: &RelationSizes) -> Vec<usize> {
        runs(self.sources.iter().map(|&of| sizes.node_types[of]))
    }

    /// First row of each destination type, then the number of rows.
    #[must_use]
    pub fn destination_runs(&self, sizes: &RelationSizes) -> Vec<usize> {
        runs(self.destinations.iter().map(|&of| sizes.node_types[of]))
    }

    /// First stacked row of each relation, then the number of stacked rows: pairs of a relation and a destination with
    /// neighbors by it. Relations that are transformed first have none.
    #[must_use]
    pub fn stacked_runs(&self, sizes: &RelationSizes) -> Vec<usize> {
        let n_rows = |of: &usize| if self.transformed.contains(of) { 0 } else { sizes.relations[*of].n_destinations };
        runs(self.relations.iter().map(n_rows))
    }

    /// As [`pair_runs`](Self::pair_runs), for relations that are transformed first; others have no pairs.
    #[must_use]
    pub fn transformed_runs(&self, sizes: &RelationSizes) -> Vec<usize> {
        let n_pairs = |of: &usize| if self.transformed.contains(of) { sizes.relations[*of].n_sources } else { 0 };
        runs(self.relations.iter().map(n_pairs))
    }

    /// First pair of each relation, then the number of pairs of a relation and a source of an edge of it.
    #[must_use]
    pub fn pair_runs(&self, sizes: &RelationSizes) -> Vec<usize> {
        runs(self.relations.iter().map(|&of| sizes.relations[of].n_sources))
    }

    /// Number of edges of all relations.
    #[must_use]
    pub fn n_edges(&self, sizes: &RelationSizes) -> usize {
        self.relations.iter().map(|&of| sizes.relations[of].n_edges).sum()
    }

    /// Number of edges of the relations that are transformed first.
    #[must_use]
    pub fn n_transformed_edges(&self, sizes: &RelationSizes) -> usize {
        self.transformed.iter().map(|&of| sizes.relations[of].n_edges).sum()
    }

    /// Whether all rows are computed, in the order in which they are read.
    #[must_use]
    pub fn keeps_rows(&self) -> bool {
        self.sources == self.destinations
    }
}

/// First element of each part, then the number of elements.
pub(super) fn runs(sizes: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut end = 0;
    let ends = sizes.map(|size| {
        end += size;
        end
    });
    std::iter::once(0).chain(ends).collect()
}

/// First row of a node type among the rows of several types in order.
///
/// # Panics
/// When the type is not among them.
pub(super) fn first_row(types: &[usize], runs: &[usize], node_type: usize) -> usize {
    let at = types.iter().position(|&of| of == node_type).expect("layers read the ends of their relations");
    runs[at]
}
