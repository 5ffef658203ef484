//! [`NodePredictor`]: a trained classifier that answers for some nodes at a time, also for nodes that its graph does
//! not have.

use std::borrow::Cow;
use std::collections::BTreeMap;

use girih_compress::CompressedFeatures;
use girih_compute::{Backend, Dtype, Shape};
use girih_datasets::{Dataset, Features, NewNodes};
use girih_features::MiniBatchBackend;
use girih_graph_format::{Csr, FormatError, Matrix, NodeId, WeightSum};
use girih_sampling::{DrawKey, FanOut, MiniBatch as Sampled, NeighborOptions, NeighborSampler, Neighbors, Sampler};

use crate::TrainError;
use crate::config::{ModelBatches, NormKind, TrainConfig};
use crate::data::{NodeFeatures, as_read, upload_sparse_features};
use crate::engine::{Checkpoint, ModelSource, RunState};
use crate::layers::{FeatureInput, Inputs, LayerGraphs};
use crate::minibatch::{FeatureSource, Grown, HostBlock, Neighborhoods, no_neighbors, raw, rows_of, upload_block};
use crate::models::{Adjacency, InputSpec, Model};
use crate::tape::{Mode, Tape};
use crate::train::all_logits;

/// Trained classifier with a graph and its features, ready for questions about single nodes.
///
/// Without a fan-out, answers are exact: the logits of the graph's nodes are computed once, and new nodes read all
/// their neighbors. With one, every answer samples anew. The draws depend on the node alone, so that equal questions
/// get equal answers, in whatever company they are asked.
pub struct NodePredictor<'a, B: Backend> {
    state: RunState<'a, B>,
    model: Box<dyn Model<B>>,
    /// Logits of all nodes, if answers are exact.
    known: Option<Matrix>,
    /// `None` if the model cannot see blocks: it answers for the nodes of the graph alone.
    blocks: Option<Blocks<B>>,
    n_nodes: usize,
}

/// Graph and features for forward passes over sampled blocks.
struct Blocks<B: Backend> {
    features: FeatureInput<B>,
    /// Sparse features on the host.
    sparse: Option<Csr>,
    /// Compressed features, by whose codec new nodes are encoded.
    codes: Option<CompressedFeatures>,
    n_features: usize,
    precision: Dtype,
    neighborhoods: Neighborhoods,
    /// Sums of the weights of each column of the graph, where the normalisation divides by them.
    columns: Option<Vec<WeightSum>>,
    adjacency: Adjacency,
    sampler: NeighborSampler,
}

impl<'a, B: MiniBatchBackend> NodePredictor<'a, B> {
    /// Prepares the best parameters of a checkpoint for a data set. `fanout` counts sampled neighbors of a node, layer
    /// by layer from the seeds outward; −1 takes all.
    ///
    /// # Errors
    /// When data set and checkpoint do not fit, the model cannot see the blocks that `fanout` asks for, or the
    /// device's memory does not suffice.
    pub fn new(
        backend: &'a B,
        dataset: Dataset,
        checkpoint: &'a Checkpoint,
        fanout: Option<FanOut>,
    ) -> Result<Self, TrainError> {
        let config = &checkpoint.progress.config;
        let refused = why_no_blocks(config);
        if let (Some(_), Some(why)) = (&fanout, &refused) {
            return Err(TrainError::invalid(format!("--fanout is not possible: {why}; leave it out")));
        }
        let rows = dataset.target_ids();
        let n_nodes = rows.len();
        let known = match &fanout {
            None => Some(all_logits(backend, dataset.clone(), checkpoint)?.row_slice(rows)),
            Some(_) => None,
        };
        let dataset = as_read(dataset, config)?;
        let outline = dataset.outline();
        checkpoint.progress.check_data(&outline).map_err(|what| checkpoint.refused(what))?;
        let mut source = ModelSource::new(&config.model, config, &outline)?;
        source.dims.n_classes = checkpoint.progress.data.n_classes;
        let run = checkpoint.progress.run;
        let (model, params) = source.build(backend, run, None)?;
        let mut state = RunState::new(backend, config, &config.optimizer, params, run)?;
        state.restore(checkpoint)?;
        state.restore_best()?;
        let blocks = match refused {
            Some(_) => None,
            None => Some(Blocks::new(backend, dataset, (config, &model.input_spec()), fanout)?),
        };
        Ok(Self { state, model, known, blocks, n_nodes })
    }

    /// Number of nodes that have classes: those of the graph, or of its target type.
    #[must_use]
    pub fn n_nodes(&self) -> usize {
        self.n_nodes
    }

    /// Logits of nodes of the graph, one row per id in the given order. Ids may repeat.
    ///
    /// # Errors
    /// When an id is not below the number of nodes, or the backend fails.
    pub fn logits(&mut self, nodes: &[NodeId]) -> Result<Matrix, TrainError> {
        if let Some(node) = nodes.iter().find(|&&node| node as usize >= self.n_nodes) {
            let last = self.n_nodes.saturating_sub(1);
            return Err(TrainError::invalid(format!("there is no node {node}; the graph has the nodes 0 to {last}")));
        }
        if let Some(known) = &self.known {
            return Ok(selected(known, nodes.iter().map(|&node| node as usize))?);
        }
        let places: BTreeMap<NodeId, usize> = nodes.iter().map(|&node| (node, 0)).collect();
        let seeds: Vec<NodeId> = places.keys().copied().collect();
        let blocks = self.blocks.as_ref().expect("a fan-out was allowed");
        let key = DrawKey::new(self.state.config.seed, 0, 0);
        let sampled = blocks.sampler.sample(blocks.neighborhoods.graph(), &seeds, key)?;
        let hosts = sampled.blocks.iter().map(|block| HostBlock::new(&blocks.neighborhoods, block, None));
        let hosts = hosts.collect::<Result<Vec<_>, _>>()?;
        let whole = blocks.whole();
        let features = whole.rows(self.state.backend, &mut self.state.pool, sampled.inputs(), false)?;
        let logits = forward(&mut self.state, &*self.model, &hosts, features)?;
        let place = |node: &NodeId| seeds.binary_search(node).expect("each node is a seed");
        Ok(selected(&logits, nodes.iter().map(place))?)
    }

    /// Logits of nodes that the graph does not have, one row each, as if the graph had them and their edges.
    ///
    /// # Errors
    /// When the model cannot see blocks; when features or edges do not fit the graph; when the backend fails, of which
    /// [`TrainError::is_of_backend`] tells.
    pub fn logits_of_new(&mut self, new: &NewNodes) -> Result<Matrix, TrainError> {
        let first = self.n_nodes as NodeId;
        let blocks = seen_by(self.blocks.as_ref(), self.state.config)?;
        let new = &*blocks.as_trained(new)?;
        let mut grown = blocks.grown(new)?;
        let seeds: Vec<NodeId> = (first..first + new.n_nodes() as NodeId).collect();
        let key = DrawKey::new(self.state.config.seed, 0, 0);
        let mut sampled = Sampled::default();
        blocks.sampler.sample_from(&mut grown, &seeds, key, &mut sampled)?;
        let hosts = sampled.blocks.iter().map(|block| grown.host_block(block)).collect::<Result<Vec<_>, _>>()?;
        let features = blocks.with_new(&mut self.state, &sampled.inputs()[seeds.len()..], new)?;
        forward(&mut self.state, &*self.model, &hosts, features)
    }
}

impl<B: MiniBatchBackend> Blocks<B> {
    fn new(
        backend: &B,
        mut dataset: Dataset,
        (config, spec): (&TrainConfig, &InputSpec),
        fanout: Option<FanOut>,
    ) -> Result<Self, TrainError> {
        let adjacency = spec.graph.ok_or_else(|| no_neighbors(config))?;
        let neighborhoods = Neighborhoods::new(&dataset.graph, adjacency)?;
        let NodeFeatures::Given(features) = NodeFeatures::take(&mut dataset, None, config.seed)? else {
            unreachable!("learned features see no blocks of new nodes")
        };
        let n_layers = config.model.layers;
        let fan_out = match fanout {
            None => FanOut::new(vec![Neighbors::All; n_layers])?,
            Some(fan_out) => fan_out,
        };
        fan_out.check_layers(n_layers)?;
        let options = NeighborOptions { edge_ids: neighborhoods.needs_edge_ids(), ..NeighborOptions::default() };
        let (sparse, codes) = match &features {
            Features::Sparse(csr) => (Some(csr.clone()), None),
            Features::Compressed(codes) => (None, Some(codes.clone())),
            Features::Dense(_) => (None, None),
        };
        let n_features = features.width();
        let spec = InputSpec { graph: None, ..raw(spec) };
        let inputs = Inputs::prepare(backend, dataset.graph, features, &spec, config.precision)?;
        let divides_columns = adjacency.norm.powers()[1].is_some();
        Ok(Self {
            features: inputs.features.expect("raw features were asked for"),
            sparse,
            codes,
            n_features,
            precision: config.precision,
            columns: divides_columns.then(|| neighborhoods.graph().column_weight_sums()),
            neighborhoods,
            adjacency,
            sampler: NeighborSampler::new(fan_out, options)?,
        })
    }

    /// New nodes with features as the model reads them: if it reads codes, encoded and decoded.
    ///
    /// # Errors
    /// When the features do not fit.
    fn as_trained<'n>(&self, new: &'n NewNodes) -> Result<Cow<'n, NewNodes>, TrainError> {
        self.check_features(new)?;
        Ok(match &self.codes {
            None => Cow::Borrowed(new),
            Some(codes) => Cow::Owned(new.as_decoded(codes)?),
        })
    }

    /// The graph with new nodes.
    fn grown(&self, new: &NewNodes) -> Result<Grown<'_>, TrainError> {
        Grown::new(&self.neighborhoods, self.columns.as_deref(), self.adjacency, new)
    }

    fn whole(&self) -> FeatureSource<'_, B> {
        FeatureSource { features: &self.features, sparse: self.sparse.as_ref(), reader: None }
    }

    /// Refuses new nodes without features, or with another number of them.
    fn check_features(&self, new: &NewNodes) -> Result<(), TrainError> {
        let (width, found) = (self.n_features, new.features().map(Matrix::n_cols));
        match found {
            Some(found) if found == width => Ok(()),
            Some(found) => {
                Err(TrainError::invalid(format!("new nodes with {found} features; the model reads {width}")))
            }
            None => Err(TrainError::invalid(format!("new nodes without features; the model reads {width} of each"))),
        }
    }

    /// Features of new nodes, followed by those of some nodes of the graph.
    fn with_new(
        &self,
        state: &mut RunState<'_, B>,
        known: &[NodeId],
        new: &NewNodes,
    ) -> Result<FeatureInput<B>, TrainError> {
        let (backend, rows) = (state.backend, new.features().expect("checked"));
        if let Some(sparse) = &self.sparse {
            let all = Csr::of_nonzeros(rows)?.stacked(&rows_of(sparse, known)?)?;
            return Ok(upload_sparse_features(backend, &all)?);
        }
        let uploaded = backend.upload(rows, self.precision)?;
        if known.is_empty() {
            return Ok(FeatureInput::dense(uploaded));
        }
        let FeatureInput::Dense(gathered) = self.whole().rows(backend, &mut state.pool, known, false)? else {
            unreachable!("rows of features that are not sparse are dense")
        };
        let mut all =
            backend.zeros(Shape::new(rows.n_rows() + known.len(), self.n_features), backend.dtype(&gathered))?;
        backend.copy_block(backend.shape(&uploaded), &uploaded, (0, 0), &mut all, (0, 0))?;
        backend.copy_block(backend.shape(&gathered), &gathered, (0, 0), &mut all, (rows.n_rows(), 0))?;
        Ok(FeatureInput::dense(all))
    }
}

/// Blocks of a model that can see them.
///
/// # Errors
/// When it cannot see blocks.
fn seen_by<'b, B: Backend>(blocks: Option<&'b Blocks<B>>, config: &TrainConfig) -> Result<&'b Blocks<B>, TrainError> {
    blocks.ok_or_else(|| {
        let why = why_no_blocks(config).expect("a model without blocks");
        TrainError::invalid(format!("new nodes have no answer here: {why}; use girih predict --nodes"))
    })
}

/// Reason why the model of a configuration cannot see blocks; `None` if it can.
fn why_no_blocks(config: &TrainConfig) -> Option<String> {
    let name = config.model.name();
    if let Some(rule) = config.features_from {
        return Some(format!("features from {rule} belong to the whole graph"));
    }
    if config.model.kind.properties().batches != ModelBatches::All {
        return Some(format!("{name} reads more hops than blocks contain, or no graph"));
    }
    (config.model.norm == NormKind::Batch).then(|| format!("{name} normalises over all nodes (--norm batch)"))
}

/// Logits of the last block's destinations.
fn forward<B: MiniBatchBackend>(
    state: &mut RunState<'_, B>,
    model: &dyn Model<B>,
    blocks: &[HostBlock],
    features: FeatureInput<B>,
) -> Result<Matrix, TrainError> {
    let backend = state.backend;
    let graphs = blocks.iter().map(|block| upload_block(backend, block)).collect::<Result<Vec<_>, _>>()?;
    let n_nodes = blocks.first().map_or(0, |block| block.rows.n_cols());
    let graphs = LayerGraphs::Blocks(graphs);
    let inputs = Inputs { graphs, features: Some(features), propagated: None, n_nodes, relations: None, ranks: None };
    let logits = {
        let mut tape = Tape::new(backend, &state.params, &mut state.pool, Mode::Evaluate);
        let logits = model.forward(&mut tape, &inputs)?;
        backend.download(tape.value(logits))?
    };
    // Every question has sizes of its own, whose buffers would add up.
    state.pool.clear();
    Ok(logits)
}

/// Rows of a matrix, in the given order.
fn selected(all: &Matrix, rows: impl ExactSizeIterator<Item = usize>) -> Result<Matrix, FormatError> {
    let n_rows = rows.len();
    let mut data = Vec::with_capacity(n_rows * all.n_cols());
    rows.for_each(|row| data.extend_from_slice(all.row(row)));
    Matrix::new(n_rows, all.n_cols(), data)
}
