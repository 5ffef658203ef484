//! [`TypedLayers`]: sizes of a large batch of a typed graph, in which every draw finds another node.

use std::sync::Arc;

use girih_compute::{Dtype, Shape, Symbolic, SymbolicSparse};
use girih_datasets::TypeWidth;
use girih_graph_format::{RelationSize, RelationSizes};
use girih_sampling::{Neighbors, TypedFanOut};

use crate::config::TrainConfig;
use crate::estimate::sizes::{DataSizes, TypeFeatureSizes};
use crate::layers::{
    FeatureInput, Inputs, LayerGraphs, LayerRelations, LayerTypes, RelationForm, RelationInput, RelationSpec, TypeRows,
};
use crate::tape::RowIds;

/// Sizes of the layers of a batch, in which every draw finds another node until all are there. Nodes have
/// [`FOUND_DEGREE`] times as many neighbors as the mean.
pub(super) struct TypedLayers {
    /// Layers from the inputs on.
    layers: Vec<TypedLayer>,
    form: RelationForm,
}

/// Sizes of a layer.
struct TypedLayer {
    types: LayerTypes,
    /// Number of sources of each node type.
    n_sources: Vec<usize>,
    /// Destinations of each node type, and edges of each relation.
    sizes: RelationSizes,
}

impl TypedLayers {
    /// Layers of a batch of `n_seeds` nodes of the target; `None` where the fan-out is invalid.
    pub(super) fn new(config: &TrainConfig, data: &DataSizes, spec: &RelationSpec, n_seeds: usize) -> Option<Self> {
        let whole = &data.relations;
        let n_layers = spec.layers.len();
        let fan_out = match &data.schema {
            Some(schema) => config.batch.typed_fan_out(schema, n_layers).ok()?,
            None => TypedFanOut::uniform(&config.batch.fan_out(n_layers).ok()?, whole.relations.len()),
        };
        let mut found = vec![0; whole.node_types.len()];
        found[data.target] = n_seeds;
        let mut layers = Vec::with_capacity(n_layers);
        for (types, neighbors) in spec.layers.iter().rev().zip(fan_out.hops()) {
            let relations = whole.relations.iter().zip(neighbors);
            let relations = relations.map(|(of, &neighbors)| drawn(of, neighbors, found[of.destination])).collect();
            let sizes = RelationSizes { node_types: found.clone(), relations };
            for of in &sizes.relations {
                found[of.source] = (found[of.source] + of.n_sources).min(whole.node_types[of.source]);
            }
            let types = LayerTypes { transformed: Vec::new(), ..types.clone() };
            layers.push(TypedLayer { types, n_sources: found.clone(), sizes });
        }
        layers.reverse();
        Some(Self { layers, form: spec.form })
    }

    /// Number of nodes that the first layer reads.
    pub(super) fn n_inputs(&self) -> usize {
        let first = &self.layers[0];
        first.types.sources.iter().map(|&of| first.n_sources[of]).sum()
    }

    /// Edges of each layer as a matrix: what a batch holds in main memory.
    pub(super) fn matrices(&self, symbolic: &Symbolic) -> Vec<SymbolicSparse> {
        let matrix = |layer: &TypedLayer| {
            let TypedLayer { types, n_sources, sizes } = layer;
            let rows = types.relations.iter().map(|&of| sizes.relations[of].n_destinations).sum();
            let cols = types.sources.iter().map(|&of| n_sources[of]).sum();
            symbolic.sparse(Shape::new(rows, cols), types.n_edges(sizes), true, false)
        };
        self.layers.iter().map(matrix).collect()
    }

    /// Batch on the device, next to the whole graph.
    ///
    /// # Panics
    /// When the whole graph has no relations.
    pub(super) fn inputs(
        &self,
        symbolic: &Symbolic,
        data: &DataSizes,
        whole: &Inputs<Symbolic>,
        precision: Dtype,
    ) -> Inputs<Symbolic> {
        let first = &self.layers[0];
        let whole_rows = &whole.relations().first_rows;
        let of_type = |(place, rows): (usize, &TypeRows<Symbolic>)| {
            let of = first.types.sources[place];
            let n = first.n_sources[of];
            match rows {
                TypeRows::Learned(_) => TypeRows::Learned(Some(Arc::new(RowIds { ids: symbolic.ids(n), n }))),
                TypeRows::Features(features) => {
                    let TypeFeatureSizes { width, nnz, .. } = data.type_features[of];
                    let TypeWidth::Given(width) = width else { unreachable!("features have a width") };
                    TypeRows::Features(rows_of(symbolic, features, (Shape::new(n, width), nnz), precision))
                }
            }
        };
        let first_rows = whole_rows.iter().enumerate().map(of_type).collect();
        let one = whole.features.as_ref().map(|features| {
            let shape = Shape::new(self.n_inputs(), data.n_features);
            rows_of(symbolic, features, (shape, data.feature_nnz), precision)
        });
        let layers = self.layers.iter().map(|layer| {
            let sources = (&layer.n_sources[..], &layer.sizes);
            let relations = LayerRelations::symbolic(symbolic, sources, &layer.types, self.form);
            Arc::new(relations.expect("a symbolic device has memory"))
        });
        let last = &self.layers[self.layers.len() - 1];
        let n_outputs = last.types.destinations.iter().map(|&of| last.sizes.node_types[of]).sum();
        let relations = RelationInput { layers: layers.collect(), first_rows, learned: None, placed: (0, n_outputs) };
        Inputs {
            graphs: LayerGraphs::None,
            features: one,
            propagated: None,
            n_nodes: self.n_inputs(),
            relations: Some(relations),
            ranks: None,
        }
    }
}

/// Share of the mean number of neighbors that a destination of a batch has: an edge leads to a node as often as the node
/// has edges, so that found nodes have more than the mean, and twice as many where numbers fall exponentially.
const FOUND_DEGREE: usize = 2;

/// Edges that `n` destinations draw by a relation. They draw fewer than the fan-out where they have fewer neighbors.
fn drawn(of: &RelationSize, neighbors: Option<Neighbors>, n: usize) -> RelationSize {
    let n_edges = match neighbors {
        None => 0,
        Some(Neighbors::All) => {
            if n == 0 {
                0
            } else {
                of.n_edges
            }
        }
        Some(Neighbors::Count(count)) => {
            let mean = of.n_edges.div_ceil(of.n_destinations.max(1));
            n.saturating_mul((count as usize).min(FOUND_DEGREE * mean)).min(of.n_edges)
        }
    };
    let n_destinations = if n_edges == 0 { 0 } else { n.min(of.n_destinations) };
    RelationSize { n_edges, n_sources: n_edges.min(of.n_sources), n_destinations, ..*of }
}

/// Rows of a batch, of this shape, of features that have `nnz` stored values in all if they are sparse: as many are a bound
/// for those of the batch.
pub(super) fn rows_of(
    symbolic: &Symbolic,
    features: &FeatureInput<Symbolic>,
    (shape, nnz): (Shape, Option<usize>),
    precision: Dtype,
) -> FeatureInput<Symbolic> {
    match features {
        FeatureInput::Sparse { .. } => {
            let nnz = nnz.expect("sparse features have stored values");
            FeatureInput::Sparse {
                matrix: symbolic.sparse(shape, nnz, false, false),
                values: Some(symbolic.matrix(Shape::new(nnz, 1), Dtype::F32)),
                first_value: 0,
            }
        }
        &FeatureInput::Learned(param) | &FeatureInput::LearnedRows { param, .. } => {
            FeatureInput::LearnedRows { param, ids: symbolic.ids(shape.rows), n_ids: shape.rows }
        }
        FeatureInput::Dense(_) | FeatureInput::Encoded(_) => FeatureInput::dense(symbolic.matrix(shape, precision)),
    }
}
