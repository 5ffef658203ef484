//! [`Layerwise`]: logits without sampling, one layer of the network after the other, where graph and rows do not fit at
//! once.
//!
//! ```text
//! for each layer, for some nodes after the others:
//!     all their neighbours ─▶ rows of the layer before ─▶ the layer ─▶ their rows of this one
//! ```
//! A hidden layer is computed for all nodes, the last one for those that are asked for. Rows of hidden layers are a
//! matrix of the device; where features are kept in memory of the host, these are, too. This is the layer-wise
//! inference of Hamilton et al. (GraphSAGE, NeurIPS 2017) as Wang et al. (DGL, 2019) have it: each row is computed
//! once, instead of once for each path to it.

use std::borrow::Cow;
use std::sync::Arc;

use girih_compute::{Backend, Dtype, RowReader, RowStore, Shape};
use girih_datasets::{Labels, Split};
use girih_graph_format::NodeId;
use girih_sampling::{Columns, DrawKey, FanOut, NeighborOptions, NeighborSampler, Neighbors, Sampler};

use super::batch::{Whole, inputs_of_sampled, recycle_inputs, upload_block};
use super::batches::{Drawn, HostBlock, SeedLists};
use super::device::{DeviceBatch, DeviceBatches, Loader};
use super::session::Material;
use crate::TrainError;
use crate::batching::ScoreBy;
use crate::config::TrainConfig;
use crate::inputs::{FeatureInput, Inputs, LayerGraphs};
use crate::models::Model;
use crate::state::RunState;
use crate::tape::{Mode, Tape};
use crate::targets::Targets;

/// Nodes whose rows are computed at a time.
pub(crate) const NODES_AT_ONCE: usize = 1 << 15;

/// Logits of some nodes.
pub(crate) struct Layerwise<'a, B: Backend> {
    material: &'a Material<B>,
    nodes: Cow<'a, [NodeId]>,
}

/// The nodes of a split, ascending, and what is known of them; ids are positions among them.
pub(crate) struct SplitNodes<B: Backend> {
    pub(crate) nodes: Vec<NodeId>,
    pub(crate) labels: Labels,
    pub(crate) targets: Targets<B>,
    pub(crate) split: Split,
}

/// What a layer leaves, as far as it is computed.
enum Rows<B: Backend> {
    /// Dense.
    OnDevice(FeatureInput<B>),
    /// With so many columns, stored so.
    OnHost(Box<dyn RowStore<B>>, usize, Dtype),
}

/// Nodes that a layer is computed for, some after the others.
enum Chunks<'n> {
    All(usize),
    Some(&'n [NodeId]),
}

/// Whether scores of a run of `config` are taken layer by layer: if that is asked for, or if devices do not have all
/// and the model can.
///
/// # Errors
/// When it is asked for and the model cannot.
pub(crate) fn scores_by_layers<B: Backend>(config: &TrainConfig, model: &dyn Model<B>) -> Result<bool, TrainError> {
    let can = model.as_layers().is_some();
    match config.batch.score_by {
        Some(ScoreBy::Graph) => Ok(false),
        Some(ScoreBy::Layers) if !can => Err(TrainError::invalid(format!(
            "setting `batch.score_by`: a layer of this {} reads more than the rows of the layer before it (batch normalisation, jumping \
             knowledge, several hops); choose graph",
            config.model.kind.name()
        ))),
        Some(ScoreBy::Layers) => Ok(true),
        None => Ok(can && !config.tiers.is_default()),
    }
}

impl<B: Backend> SplitNodes<B> {
    /// Of a split of nodes with labels.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub(crate) fn new(backend: &B, labels: &Labels, split: &Split) -> Result<Self, TrainError> {
        let nodes = split.nodes();
        let labels = labels.of_nodes(&nodes);
        let place = |node: &NodeId| nodes.binary_search(node).expect("a node of the split") as NodeId;
        let [train, val, test] = split.parts().map(|(_, part)| part.iter().map(place).collect());
        let targets = Targets::upload(backend, &labels)?;
        Ok(Self { labels, targets, split: Split { train, val, test }, nodes })
    }
}

impl<'a, B: Backend> Layerwise<'a, B> {
    /// Of some nodes of a graph, for a model that has [layers](Model::as_layers).
    pub(crate) fn new(material: &'a Material<B>, nodes: impl Into<Cow<'a, [NodeId]>>) -> Self {
        Self { material, nodes: nodes.into() }
    }

    /// A row for each of the nodes, in their order, with the parameters as they are.
    ///
    /// # Errors
    /// When the device's memory does not suffice, or it fails.
    pub(crate) fn logits(&self, model: &dyn Model<B>, state: &mut RunState<'_, B>) -> Result<B::Matrix, TrainError> {
        let layers = model.as_layers().expect("runs that score by layers ask first");
        let in_place = model.needs().hops > 0;
        let n_layers = layers.n_layers();
        let mut before = None;
        for layer in 0..n_layers {
            let is_last = layer + 1 == n_layers;
            let chunks = if is_last { Chunks::Some(&self.nodes) } else { Chunks::All(self.n_nodes()) };
            let mut rows: Option<Rows<B>> = None;
            self.for_each_chunk(state, before.as_ref(), (&chunks, in_place), |state, first, inputs| {
                let mut tape = Tape::new(state.backend, &state.params, &mut state.pool, Mode::Evaluate);
                let computed = layers.layer(&mut tape, inputs, layer)?;
                let computed = tape.value(computed);
                if rows.is_none() {
                    rows = Some(self.room(state.backend, (chunks.len(), computed), is_last)?);
                }
                rows.as_mut().expect("made above").write(state.backend, first, computed)
            })?;
            before = rows;
        }
        match before {
            Some(Rows::OnDevice(FeatureInput::Dense(logits))) => {
                Ok(Arc::into_inner(logits).expect("nobody shares them"))
            }
            _ => unreachable!("a last layer leaves rows on the device, of one node at least"),
        }
    }

    fn n_nodes(&self) -> usize {
        self.material.inputs.n_nodes
    }

    /// Room for as many rows like those of `like`: where features are, but for the last layer's.
    fn room(&self, backend: &B, (n_rows, like): (usize, &B::Matrix), is_last: bool) -> Result<Rows<B>, TrainError> {
        let (shape, dtype) = (Shape::new(n_rows, backend.shape(like).cols), backend.dtype(like));
        let store = if self.material.keeps_on_host && !is_last { backend.row_store(shape, dtype)? } else { None };
        Ok(match store {
            Some(store) => Rows::OnHost(store, shape.cols, dtype),
            None => Rows::OnDevice(FeatureInput::dense(backend.zeros(shape, dtype)?)),
        })
    }

    /// Calls `work` for some nodes after the others, with the position of the first and what a layer reads for them:
    /// all their neighbours, and the rows of these in the layer before.
    fn for_each_chunk<'b>(
        &self,
        state: &mut RunState<'b, B>,
        before: Option<&Rows<B>>,
        (chunks, in_place): (&Chunks<'_>, bool),
        mut work: impl FnMut(&mut RunState<'b, B>, usize, &Inputs<B>) -> Result<(), TrainError>,
    ) -> Result<(), TrainError> {
        let (backend, material) = (state.backend, self.material);
        let read = Read::new(material, before);
        let in_place = in_place && read.is_matrix();
        let options = NeighborOptions {
            edge_ids: material.scored_from().needs_edge_ids(),
            inputs: if in_place { Columns::Global } else { Columns::Local },
            ..NeighborOptions::default()
        };
        let sampler = NeighborSampler::new(FanOut::new(vec![Neighbors::All])?, options)?;
        let on_device = material.on_device.as_ref().filter(|_| read.is_by_device());
        let source = on_device.map(|graph| graph.source(backend, &sampler, NODES_AT_ONCE)).transpose()?.flatten();
        let is_ahead = state.config.batch.prefetch > 0;
        let mut batches = source.map(|source| DeviceBatches::new(source, read.loader(backend), is_ahead));
        if let Some(batches) = &mut batches {
            batches.begin(chunks, 0, &mut state.pool)?;
        }
        for at in 0..chunks.n_batches() {
            let inputs = match &mut batches {
                Some(batches) => {
                    let DeviceBatch { sampled, rows, .. } = batches.next(chunks, at, &mut state.pool)?;
                    inputs_of_sampled(backend, &mut state.pool, (sampled, rows), read.whole.features)?
                }
                None => self.sampled_by_host(state, &read, &sampler, &chunks.seeds(at))?,
            };
            work(state, at * NODES_AT_ONCE, &inputs)?;
            recycle_inputs(inputs, backend, &mut state.pool);
            state.pool.drop_unused();
        }
        Ok(())
    }

    /// What a layer reads for some nodes, where the host makes it.
    fn sampled_by_host(
        &self,
        state: &mut RunState<'_, B>,
        read: &Read<'_, B>,
        sampler: &NeighborSampler,
        nodes: &Drawn<'_>,
    ) -> Result<Inputs<B>, TrainError> {
        let (backend, neighborhoods) = (state.backend, self.material.scored_from());
        let sampled = sampler.sample(neighborhoods.graph(), &nodes.mine, nodes.key)?;
        let in_place = sampler.options().inputs == Columns::Global;
        let nodes = if in_place { &[][..] } else { sampled.inputs() };
        let rows = read.whole.rows(backend, &mut state.pool, nodes, in_place)?;
        let block = HostBlock::new(neighborhoods, &sampled.blocks[0], None)?;
        let graphs = LayerGraphs::Blocks(vec![upload_block(backend, &block)?]);
        Ok(Inputs { graphs, features: Some(rows), propagated: None, n_nodes: nodes.len(), ranks: None })
    }
}

/// What a layer reads rows of.
struct Read<'h, B: Backend> {
    whole: Whole<'h, B>,
    /// By which the device reads them, where they are no matrix of its own: with so many columns, stored so.
    reader: Option<(&'h dyn RowReader<B>, usize, Dtype)>,
}

impl<'h, B: Backend> Read<'h, B> {
    /// What the layer before has left, or the features.
    fn new(material: &'h Material<B>, before: Option<&'h Rows<B>>) -> Self {
        let features = material.whole(None);
        match before {
            None => Self { reader: features.read_by(), whole: features },
            Some(Rows::OnDevice(rows)) => {
                Self { reader: None, whole: Whole { features: rows, sparse: None, reader: None, labels: None } }
            }
            Some(Rows::OnHost(store, n_columns, dtype)) => {
                Self { reader: Some((&**store, *n_columns, *dtype)), whole: features }
            }
        }
    }

    fn is_matrix(&self) -> bool {
        self.reader.is_none() && matches!(self.whole.features, FeatureInput::Dense(_))
    }

    /// Whether the device picks rows by itself.
    fn is_by_device(&self) -> bool {
        self.reader.is_some() || self.is_matrix()
    }

    fn loader(&self, backend: &'h B) -> Option<Loader<'h, B>> {
        self.reader.map(|read| Loader::new(backend, read))
    }
}

impl<B: Backend> Rows<B> {
    /// Overwrites the rows from `first` on.
    fn write(&mut self, backend: &B, first: usize, rows: &B::Matrix) -> Result<(), TrainError> {
        match self {
            Self::OnDevice(FeatureInput::Dense(all)) => {
                let all = Arc::get_mut(all).expect("nobody reads them yet");
                backend.copy_block(backend.shape(rows), rows, (0, 0), all, (first, 0))?;
            }
            Self::OnDevice(_) => unreachable!("layers leave dense rows"),
            Self::OnHost(store, ..) => store.write(backend, first, rows)?,
        }
        Ok(())
    }
}

impl Chunks<'_> {
    fn len(&self) -> usize {
        match self {
            Self::All(n_nodes) => *n_nodes,
            Self::Some(nodes) => nodes.len(),
        }
    }
}

impl SeedLists for Chunks<'_> {
    fn n_batches(&self) -> usize {
        self.len().div_ceil(NODES_AT_ONCE)
    }

    /// Nothing is drawn: they have all their neighbours.
    fn seeds(&self, at: usize) -> Drawn<'_> {
        let first = at * NODES_AT_ONCE;
        let range = first..self.len().min(first + NODES_AT_ONCE);
        let n_all = range.len();
        let mine = match self {
            Self::All(_) => Cow::Owned((range.start as NodeId..range.end as NodeId).collect()),
            Self::Some(nodes) => Cow::Borrowed(&nodes[range]),
        };
        Drawn { mine, first: 0, n_all, key: DrawKey::default() }
    }
}
