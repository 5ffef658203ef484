//! [`Batch`]: a mini-batch on a device.

use std::sync::Arc;

use girih_compute::{Backend, ComputeError, Dtype, Shape, SparseOperand};
use girih_datasets::Labels;
use girih_features::{FeatureStore, NeighborBatch, NeighborBlock};
use girih_graph_format::{Csr, NodeId, Scales};

use super::device::{DeviceBatch, ReadRows};
use super::host_batch::{BatchRows, HostBatch, HostBlock, HostEdges, HostGraphs, HostLoss, rows_of};
use crate::TrainError;
use crate::data::{upload_adjacency, upload_sparse_features};
use crate::layers::{FeatureInput, HostLayer, Inputs, LayerGraphs, RelationInput, TypeRows};
use crate::models::Model;
use crate::tape::{BlockEdges, BlockGraph, Graph, Loss, LossRows, Pool, RowIds, Tape, Targets, Var};
use crate::tasks::links::Pairs;

/// Graph, features and loss targets of a batch on the device.
pub(crate) struct Batch<B: Backend> {
    pub(crate) inputs: Inputs<B>,
    loss: BatchLoss<B>,
}

/// Targets of the loss of a batch.
enum BatchLoss<B: Backend> {
    /// Classes of nodes.
    Rows(Targets<B>, LossRows<B>),
    /// Links and non-links.
    Pairs(Pairs<B>),
}

/// Features and labels of a whole graph, from which batches take their rows.
pub(crate) struct WholeGraph<'a, B: Backend> {
    /// Features of all nodes, unless node types have their own.
    pub(crate) features: Option<FeatureSource<'a, B>>,
    /// Features of each node type that the first layer reads, if there are several; `None` for learned rows.
    pub(crate) types: Vec<Option<FeatureSource<'a, B>>>,
    /// Labels of all nodes, for node classification.
    pub(crate) labels: Option<&'a Labels>,
}

/// Features of nodes, from which batches take their rows.
#[derive(Clone, Copy)]
pub(crate) struct FeatureSource<'a, B: Backend> {
    /// Features of all nodes, as the device has them.
    pub(crate) features: &'a FeatureInput<B>,
    /// Sparse features on the host; `None` for other features.
    pub(crate) sparse: Option<&'a Csr>,
    /// Reader by which the device gathers features that are not a matrix of its own.
    pub(crate) reader: Option<&'a dyn FeatureStore<B>>,
}

impl<B: Backend> Batch<B> {
    /// Moves a batch to the device.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub(crate) fn upload(
        backend: &B,
        pool: &mut Pool<B>,
        host: &HostBatch,
        whole: &WholeGraph<'_, B>,
    ) -> Result<Self, TrainError> {
        let loss = BatchLoss::upload(backend, host, whole.labels)?;
        if let HostGraphs::Relations { layers, nodes } = &host.graphs {
            return Ok(Self { inputs: whole.typed_inputs(backend, pool, layers, nodes)?, loss });
        }
        let source = whole.features.as_ref().expect("a graph without types has features");
        let features = match &host.rows {
            Some(rows) => source.uploaded(backend, pool, rows)?,
            None => source.rows(backend, pool, &host.inputs, reads_in_place(&host.graphs))?,
        };
        let inputs = Inputs {
            graphs: upload_graphs(backend, &host.graphs)?,
            features: Some(features),
            propagated: None,
            n_nodes: host.inputs.len(),
            relations: None,
            ranks: None,
        };
        Ok(Self { inputs, loss })
    }

    /// Batch that the device has sampled, with features and labels.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub(crate) fn of_sampled(
        backend: &B,
        pool: &mut Pool<B>,
        DeviceBatch { sampled, rows, outputs, n_loss }: DeviceBatch<B>,
        whole: &WholeGraph<'_, B>,
    ) -> Result<Self, TrainError> {
        let features = whole.features.as_ref().expect("a graph without types has features").features;
        let positions: Vec<u32> = (0..outputs.len() as u32).collect();
        Ok(Self {
            inputs: inputs_of_sampled(backend, pool, (sampled, rows), features)?,
            loss: BatchLoss::of_rows(backend, (&positions, None), &outputs, n_loss, whole.labels)?,
        })
    }

    /// Forward pass and loss: this rank's share of the mean over the batch.
    ///
    /// # Errors
    /// When the backend fails.
    pub(crate) fn loss<'a>(&'a self, tape: &mut Tape<'a, B>, model: &dyn Model<B>) -> Result<Loss<B>, ComputeError> {
        let outputs = model.forward(tape, &self.inputs)?;
        match &self.loss {
            BatchLoss::Rows(targets, rows) => tape.loss_of_rows(outputs, targets, rows),
            BatchLoss::Pairs(pairs) => {
                let scores = pairs.scores(tape, outputs)?;
                pairs.loss(tape, scores)
            }
        }
    }

    /// Scores of the pairs of the batch, and their loss.
    ///
    /// # Errors
    /// When the backend fails.
    ///
    /// # Panics
    /// For a batch of nodes.
    pub(crate) fn scores<'a>(
        &'a self,
        tape: &mut Tape<'a, B>,
        model: &dyn Model<B>,
    ) -> Result<(Var, Loss<B>), ComputeError> {
        let BatchLoss::Pairs(pairs) = &self.loss else { panic!("a batch of pairs") };
        let outputs = model.forward(tape, &self.inputs)?;
        let scores = pairs.scores(tape, outputs)?;
        Ok((scores, pairs.loss(tape, scores)?))
    }

    /// Returns the buffers of the batch to the pool.
    pub(crate) fn recycle(self, backend: &B, pool: &mut Pool<B>) {
        recycle_inputs(self.inputs, backend, pool);
    }
}

/// Graph and features of a batch that the device has sampled. `rows` are features that a reader gathered.
pub(crate) fn inputs_of_sampled<B: Backend>(
    backend: &B,
    pool: &mut Pool<B>,
    (sampled, rows): (NeighborBatch<B>, Option<ReadRows<B::Matrix>>),
    features: &FeatureInput<B>,
) -> Result<Inputs<B>, ComputeError> {
    let (features, propagated) = match (rows, features, &sampled.inputs) {
        (Some(ReadRows::All(rows)), ..) => (Some(FeatureInput::Dense(rows)), None),
        (Some(ReadRows::Summed { own, sums }), ..) => (own.map(FeatureInput::dense), Some(sums)),
        (None, FeatureInput::Dense(all), None) => (Some(FeatureInput::Dense(Arc::clone(all))), None),
        (None, FeatureInput::Dense(all), Some(ids)) => {
            (Some(FeatureInput::dense(gathered(backend, pool, all, (ids, sampled.n_inputs))?)), None)
        }
        _ => unreachable!("devices sample for rows that they read themselves"),
    };
    let graph = |block: NeighborBlock<B>| {
        let NeighborBlock { rows, n_destinations, destinations } = block;
        Graph::Block(BlockGraph { matrix: rows, n_destinations, in_place: destinations, edges: None })
    };
    let graphs = LayerGraphs::Blocks(sampled.blocks.into_iter().map(graph).collect());
    Ok(Inputs { graphs, features, propagated, n_nodes: sampled.n_inputs, relations: None, ranks: None })
}

/// Returns the rows of a batch's inputs to the pool, unless they are still shared.
pub(crate) fn recycle_inputs<B: Backend>(inputs: Inputs<B>, backend: &B, pool: &mut Pool<B>) {
    let of_types = inputs.relations.into_iter().flat_map(|relations| relations.first_rows);
    let of_types = of_types.filter_map(|rows| match rows {
        TypeRows::Features(features) => Some(features),
        TypeRows::Learned(_) => None,
    });
    let own = inputs.features.into_iter().chain(of_types).filter_map(|features| match features {
        FeatureInput::Dense(features) => Arc::into_inner(features),
        _ => None,
    });
    own.chain(inputs.propagated).for_each(|own| pool.give(backend, own));
}

impl<B: Backend> BatchLoss<B> {
    fn upload(backend: &B, host: &HostBatch, labels: Option<&Labels>) -> Result<Self, TrainError> {
        let (rows, weights) = match &host.loss {
            HostLoss::Rows { rows, weights } => (rows, weights),
            HostLoss::Pairs(pairs) => return Ok(Self::Pairs(Pairs::upload(backend, &pairs.ends, pairs.n_links)?)),
        };
        Self::of_rows(backend, (rows, weights.as_deref()), &host.outputs, host.n_loss, labels)
    }

    /// Loss of some outputs, given by their positions, with an optional weight for each.
    fn of_rows(
        backend: &B,
        (rows, weights): (&[u32], Option<&[f32]>),
        outputs: &[NodeId],
        n_loss: usize,
        labels: Option<&Labels>,
    ) -> Result<Self, TrainError> {
        let of_output = |weights: &[f32]| diagonal(backend, outputs.len(), (rows, weights));
        let loss_rows = LossRows {
            ids: backend.upload_ids(rows)?,
            n_ids: rows.len(),
            share: rows.len() as f32 / n_loss.max(1) as f32,
            weights: weights.map(of_output).transpose()?,
        };
        let labels = labels.expect("batches of nodes that are to be classified have labels");
        Ok(Self::Rows(Targets::upload(backend, &labels.of_nodes(outputs))?, loss_rows))
    }
}

impl<B: Backend> WholeGraph<'_, B> {
    /// Inputs of a batch of a typed graph. `nodes` are those of each type that the first layer reads.
    pub(crate) fn typed_inputs(
        &self,
        backend: &B,
        pool: &mut Pool<B>,
        layers: &[HostLayer],
        nodes: &[Vec<NodeId>],
    ) -> Result<Inputs<B>, TrainError> {
        let mut first_rows = Vec::with_capacity(self.types.len());
        for (source, nodes) in self.types.iter().zip(nodes) {
            first_rows.push(match source {
                Some(source) => TypeRows::Features(source.rows(backend, pool, nodes, false)?),
                None => TypeRows::Learned(Some(Arc::new(RowIds::upload(backend, nodes)?))),
            });
        }
        // Ids inside the only type are those of all nodes.
        let features = self.features.as_ref().map(|source| source.rows(backend, pool, &nodes[0], false)).transpose()?;
        let relations = RelationInput::of_batch(backend, layers, first_rows)?;
        Ok(Inputs {
            graphs: LayerGraphs::None,
            features,
            propagated: None,
            n_nodes: nodes.iter().map(Vec::len).sum(),
            relations: Some(relations),
            ranks: None,
        })
    }
}

impl<'a, B: Backend> FeatureSource<'a, B> {
    /// Reader of features that are not a matrix of the device, with the number of columns and the type of its rows.
    pub(crate) fn read_by(&self) -> Option<(&'a dyn FeatureStore<B>, usize, Dtype)> {
        match (self.reader, self.features) {
            (Some(reader), FeatureInput::Encoded(rows)) => Some((reader, rows.shape().cols, rows.precision())),
            _ => None,
        }
    }

    /// Features of nodes that were gathered from their owners, in the type of the rank's own features.
    fn uploaded(&self, backend: &B, pool: &mut Pool<B>, rows: &BatchRows) -> Result<FeatureInput<B>, TrainError> {
        Ok(FeatureInput::dense(match (rows, self.features) {
            (BatchRows::Dense(rows), FeatureInput::Dense(own)) => backend.upload(rows, backend.dtype(own))?,
            (BatchRows::Dense(rows), FeatureInput::Encoded(own)) => backend.upload(rows, own.precision())?,
            (BatchRows::Encoded(rows), _) => {
                let all: Vec<NodeId> = (0..rows.shape().rows as NodeId).collect();
                rows.gathered(backend, pool, &all)?
            }
            (BatchRows::Dense(_), FeatureInput::Sparse { .. }) => unreachable!("sparse features are not cut"),
            (BatchRows::Dense(_), FeatureInput::Learned(_) | FeatureInput::LearnedRows { .. }) => {
                unreachable!("learned features are not cut")
            }
        }))
    }

    /// Features of `nodes`. With `reads_in_place`, dense features of all nodes are shared instead.
    pub(crate) fn rows(
        &self,
        backend: &B,
        pool: &mut Pool<B>,
        nodes: &[NodeId],
        reads_in_place: bool,
    ) -> Result<FeatureInput<B>, TrainError> {
        match (self.features, self.sparse) {
            (FeatureInput::Dense(all), _) if reads_in_place => Ok(FeatureInput::Dense(Arc::clone(all))),
            (FeatureInput::Dense(all), _) => {
                let ids = backend.upload_ids(nodes)?;
                Ok(FeatureInput::dense(gathered(backend, pool, all, (&ids, nodes.len()))?))
            }
            (FeatureInput::Encoded(encoded), _) => {
                let Some(reader) = self.reader else {
                    return Ok(FeatureInput::dense(encoded.gathered(backend, pool, nodes)?));
                };
                let (ids, shape) = (backend.upload_ids(nodes)?, Shape::new(nodes.len(), encoded.shape().cols));
                let mut rows = pool.take(backend, shape, encoded.precision())?;
                reader.gather(backend, &ids, &mut rows)?;
                Ok(FeatureInput::dense(rows))
            }
            (FeatureInput::Sparse { .. }, Some(sparse)) => {
                Ok(upload_sparse_features(backend, &rows_of(sparse, nodes)?)?)
            }
            (FeatureInput::Sparse { .. }, None) => unreachable!("sparse features are kept on the host, too"),
            (&FeatureInput::Learned(param), _) => {
                Ok(FeatureInput::LearnedRows { param, ids: backend.upload_ids(nodes)?, n_ids: nodes.len() })
            }
            (FeatureInput::LearnedRows { .. }, _) => unreachable!("a batch takes rows of all nodes"),
        }
    }
}

/// Gathers the rows of `n_ids` ids.
fn gathered<B: Backend>(
    backend: &B,
    pool: &mut Pool<B>,
    all: &B::Matrix,
    (ids, n_ids): (&B::Ids, usize),
) -> Result<B::Matrix, ComputeError> {
    let mut rows = pool.take(backend, Shape::new(n_ids, backend.shape(all).cols), backend.dtype(all))?;
    backend.gather_rows(all, ids, &mut rows)?;
    Ok(rows)
}

fn reads_in_place(graphs: &HostGraphs) -> bool {
    matches!(graphs, HostGraphs::Blocks(blocks) if blocks.first().is_some_and(|block| block.in_place.is_some()))
}

fn upload_graphs<B: Backend>(backend: &B, graphs: &HostGraphs) -> Result<LayerGraphs<B>, TrainError> {
    Ok(match graphs {
        HostGraphs::Blocks(blocks) => {
            LayerGraphs::Blocks(blocks.iter().map(|block| upload_block(backend, block)).collect::<Result<_, _>>()?)
        }
        HostGraphs::Weighted(rows) => LayerGraphs::Shared(Graph::Whole(backend.upload_sparse(&operand(rows))?)),
        HostGraphs::Relations { .. } => LayerGraphs::None,
        HostGraphs::Plain(graph, adjacency) => {
            let uploaded = upload_adjacency(backend, graph.clone(), *adjacency);
            LayerGraphs::Shared(
                uploaded.map_err(|error| error.inside("a cluster batch, whose nodes are counted from 0"))?,
            )
        }
    })
}

pub(crate) fn upload_block<B: Backend>(backend: &B, block: &HostBlock) -> Result<Graph<B>, ComputeError> {
    Ok(Graph::Block(BlockGraph {
        matrix: backend.upload_sparse(&operand(&block.rows))?,
        n_destinations: block.rows.n_rows(),
        in_place: block.in_place.as_ref().map(|nodes| backend.upload_ids(nodes)).transpose()?,
        edges: block.edges.as_ref().map(|edges| upload_edges(backend, edges)).transpose()?,
    }))
}

fn upload_edges<B: Backend>(backend: &B, edges: &HostEdges) -> Result<BlockEdges<B>, ComputeError> {
    Ok(BlockEdges {
        n_edges: edges.sources.len(),
        sources: backend.upload_ids(&edges.sources)?,
        features: backend.upload(&edges.features, backend.activations())?,
        sums: backend.upload_sparse(&operand(&edges.sums))?,
    })
}

/// Operand of rows that are normalised already.
fn operand(rows: &Csr) -> SparseOperand<'_> {
    SparseOperand { csr: rows, scales: Scales::default(), symmetric: false, names: None }
}

/// Diagonal matrix (n × n) with the loss weight of each output; zero for outputs that are not in the loss.
fn diagonal<B: Backend>(backend: &B, n: usize, (rows, weights): (&[u32], &[f32])) -> Result<B::Sparse, TrainError> {
    let mut of_output = vec![0.0; n];
    rows.iter().zip(weights).for_each(|(&row, &weight)| of_output[row as usize] = weight);
    let indptr: Vec<u64> = (0..=n as u64).collect();
    let diagonal = Csr::new(n, n, indptr, (0..n as NodeId).collect::<Vec<_>>(), Some(of_output.into()))?;
    Ok(backend.upload_sparse(&SparseOperand { symmetric: true, ..operand(&diagonal) })?)
}
