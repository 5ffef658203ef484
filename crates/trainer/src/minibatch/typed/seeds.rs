//! [`TypedSeeds`]: batches of a typed graph on the host.

use girih_datasets::TypedData;
use girih_graph_format::{Csr, EdgeType, FormatError, NodeId, TypedGraph};
use girih_sampling::{
    DrawKey, EpochPlan, LoaderOptions, RelationRows, TypedBatch, TypedBlock, TypedOptions, TypedSampler,
};

use crate::TrainError;
use crate::config::{DEFAULT_BATCH_SIZE, TrainConfig};
use crate::layers::{HostLayer, LayerEdges, LayerTypes, RelationEdges, RelationForm, RelationSpec};
use crate::minibatch::host_batch::{HostBatch, HostGraphs, HostLoss};

/// Seeds of a typed graph in an order drawn for each epoch, and the sampler of their blocks.
pub(crate) struct TypedSeeds<'a> {
    graph: &'a TypedGraph,
    sampler: TypedSampler,
    /// Type of the seeds.
    target: usize,
    /// Global id of the first node of that type.
    first: NodeId,
    /// Nodes of that type by their global ids.
    seeds: Vec<NodeId>,
    options: LoaderOptions,
    /// Types of each layer of a block.
    layers: Vec<LayerTypes>,
    form: RelationForm,
}

impl<'a> TypedSeeds<'a> {
    /// Batches of the nodes `seeds`, given by global ids, for a model that reads `spec`.
    ///
    /// # Errors
    /// When the fan-out does not fit the graph or the layers.
    pub(crate) fn new(
        typed: &'a TypedData,
        spec: &RelationSpec,
        seeds: Vec<NodeId>,
        (config, seed): (&TrainConfig, u64),
    ) -> Result<Self, TrainError> {
        let schema = typed.graph.schema();
        let fan_out = config.batch.typed_fan_out(schema, spec.layers.len())?;
        let options = TypedOptions { replace: config.batch.replace, ..TypedOptions::default() };
        let batch_size = config.batch_size.unwrap_or(DEFAULT_BATCH_SIZE);
        Ok(Self {
            graph: &typed.graph,
            sampler: TypedSampler::new(fan_out, options),
            target: typed.target,
            first: schema.first(typed.target) as NodeId,
            seeds,
            options: LoaderOptions { batch_size, seed, ..LoaderOptions::default() },
            layers: spec.layers.iter().map(averaged_first).collect(),
            form: spec.form,
        })
    }

    /// Seed of orders and draws.
    pub(crate) fn seed(&self) -> u64 {
        self.options.seed
    }

    /// Seeds of each batch of an epoch.
    pub(crate) fn plan(&self, epoch: u32) -> EpochPlan {
        EpochPlan::new(self.seeds.clone(), self.options, epoch)
    }

    /// Seeds of batches that take them in their order.
    pub(crate) fn plan_in_order(&self) -> EpochPlan {
        EpochPlan::new(self.seeds.clone(), LoaderOptions { shuffle: false, ..self.options }, 0)
    }

    /// Number of seeds of an epoch.
    pub(crate) fn n_seeds(&self) -> usize {
        self.seeds.len()
    }

    /// Batch of some seeds, one of `n_loss` seeds on all ranks together.
    ///
    /// # Errors
    /// When the sampler fails, or a block has more rows than a matrix may have.
    pub(crate) fn batch(&self, seeds: &[NodeId], key: DrawKey, n_loss: usize) -> Result<HostBatch, TrainError> {
        let of_type: Vec<NodeId> = seeds.iter().map(|seed| seed - self.first).collect();
        let TypedBatch { nodes, blocks } = self.sampler.sample(self.graph, &[(self.target, &of_type)], key)?;
        let blocks = blocks.iter().zip(&self.layers);
        let layers = blocks.map(|(block, types)| host_layer(self.graph, block, types, self.form));
        let layers = layers.collect::<Result<_, TrainError>>()?;
        Ok(HostBatch {
            graphs: HostGraphs::Relations { layers, nodes: self.of_first_layer(nodes) },
            inputs: Vec::new(),
            rows: None,
            outputs: seeds.to_vec(),
            loss: HostLoss::Rows { rows: (0..seeds.len() as u32).collect(), weights: None },
            n_loss,
        })
    }

    /// Nodes of each type that the first layer reads, in the order of its types.
    fn of_first_layer(&self, mut nodes: Vec<Vec<NodeId>>) -> Vec<Vec<NodeId>> {
        self.layers[0].sources.iter().map(|&of| std::mem::take(&mut nodes[of])).collect()
    }
}

/// Types of a layer of a block: relations are averaged before products, since a block has fewer destinations than sources.
pub(super) fn averaged_first(types: &LayerTypes) -> LayerTypes {
    LayerTypes { transformed: Vec::new(), ..types.clone() }
}

/// Relations of a block in the form that a layer reads.
///
/// # Errors
/// When the block has more rows than a matrix may have.
pub(super) fn host_layer(
    graph: &TypedGraph,
    block: &TypedBlock,
    types: &LayerTypes,
    form: RelationForm,
) -> Result<HostLayer, TrainError> {
    let ends = graph.schema().edge_types();
    let adjacency = |&number: &usize| matrix_of(&block.relations[number], block.n_sources[ends[number].source]);
    let adjacencies: Vec<Csr> = types.relations.iter().map(adjacency).collect::<Result<_, FormatError>>()?;
    let relations = types.relations.iter().zip(&adjacencies).map(|(&number, adjacency)| {
        let EdgeType { source, destination, .. } = ends[number];
        RelationEdges { source, destination, adjacency }
    });
    let relations = relations.collect();
    let edges = LayerEdges { n_sources: &block.n_sources, n_destinations: &block.n_destinations, relations };
    Ok(HostLayer::new(&edges, types, form)?)
}

/// Neighbors of each destination in a relation, `destinations × n_columns`, with ascending columns.
fn matrix_of(rows: &RelationRows, n_columns: usize) -> Result<Csr, FormatError> {
    let mut indices = rows.indices.clone();
    for ends in rows.indptr.windows(2) {
        indices[ends[0] as usize..ends[1] as usize].sort_unstable();
    }
    Csr::new(rows.indptr.len() - 1, n_columns, rows.indptr.clone(), indices, None)
}
