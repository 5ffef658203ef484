//! [`Layerwise`]: layer-wise inference: logits without sampling, one layer after the other, where graph and
//! activations do not fit at once.
//!
//! ```text
//! for each layer, for one chunk of nodes after the other:
//!     all neighbors of the chunk ─▶ their rows of the previous layer ─▶ the layer ─▶ rows of the chunk
//! ```
//! A hidden layer is computed for all nodes, and the last one for the requested nodes. Rows of hidden layers are a
//! matrix on the device, or in host memory if features are kept there. This is the layer-wise inference of Hamilton
//! et al. (GraphSAGE, NeurIPS 2017), in the form of Wang et al. (DGL, 2019). It computes each row once, instead of
//! once for each path to it.
//!
//! Ranks with the whole graph each divide the work by rounds. In a round, each rank computes a chunk of nodes, and an
//! all-gather brings the rows of all before the next round. If the host keeps rows of hidden layers, the devices of
//! one process write them directly, and synchronise after each layer.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use girih_comm::Collective;
use girih_compute::{Backend, Dtype, Shape};
use girih_features::{FeatureStore, MiniBatchBackend, WritableStore};
use girih_graph_format::NodeId;
use girih_sampling::{Columns, DrawKey, FanOut, NeighborOptions, NeighborSampler, Neighbors, Sampler};

use super::batch::{FeatureSource, inputs_of_sampled, recycle_inputs, upload_block};
use super::batches::{Drawn, SeedLists};
use super::data::MiniBatchData;
use super::device::{DeviceBatch, DeviceBatches, FeatureLoader};
use super::host_batch::HostBlock;
use super::scoring::{HiddenInference, NodeInference};
use crate::TrainError;
use crate::engine::RunState;
use crate::layers::{FeatureInput, Inputs, LayerGraphs};
use crate::models::Model;
use crate::tape::ranks::broadcast_from_first;
use crate::tape::{Mode, Tape};

/// Number of nodes whose rows are computed at a time, by all ranks together.
pub(crate) const NODES_AT_ONCE: usize = 1 << 15;

/// Logits of some nodes, by layer-wise inference.
pub(crate) struct Layerwise<'a, B: Backend> {
    batch_data: &'a MiniBatchData<B>,
    nodes: Cow<'a, [NodeId]>,
    /// World of the ranks that share the work, if there are several.
    world: Option<&'a dyn Collective<B>>,
}

/// Rows of a layer, as far as it is computed.
enum Rows<B: Backend> {
    /// Dense matrix on the device.
    OnDevice(FeatureInput<B>),
    /// Rows on the host, with the number of columns and the type.
    OnHost(Box<dyn WritableStore<B>>, usize, Dtype),
}

/// Chunks of the nodes of a layer, in rounds with one chunk for each rank.
pub struct Chunks<'n> {
    nodes: Nodes<'n>,
    at_once: usize,
    rank: usize,
    size: usize,
}

/// Nodes that a layer is computed for.
pub enum Nodes<'n> {
    /// All nodes of a graph of this size.
    All(usize),
    /// Some nodes.
    Some(&'n [NodeId]),
}

/// Output of a layer, while it is computed.
struct Leaving<'l, 'a, B: Backend> {
    layers: &'l Layerwise<'a, B>,
    chunks: &'l Chunks<'l>,
    is_last: bool,
    /// `None` until the width of the rows is known.
    rows: Option<Rows<B>>,
}

impl<'a, B: MiniBatchBackend> Layerwise<'a, B> {
    /// Inference for `nodes` of a graph, for a model that has [layers](Model::as_layers).
    pub(crate) fn new(batch_data: &'a MiniBatchData<B>, nodes: impl Into<Cow<'a, [NodeId]>>) -> Self {
        Self { batch_data, nodes: nodes.into(), world: None }
    }

    /// Shares the work among the ranks of a world. Each has the whole graph and all parameters, and requests the same
    /// nodes.
    #[must_use]
    pub(crate) fn among(self, world: Option<&'a dyn Collective<B>>) -> Self {
        Self { world: world.filter(|world| world.size() > 1), ..self }
    }

    /// Rows of the requested nodes after the first `n_layers` layers, at least one.
    fn rows_after(
        &self,
        n_layers: usize,
        model: &dyn Model<B>,
        state: &mut RunState<'_, B>,
    ) -> Result<B::Matrix, TrainError> {
        let layers = model.as_layers().expect("runs that score by layers ask first");
        let in_place = model.input_spec().hops > 0;
        let mut before = None;
        for layer in 0..n_layers {
            let is_last = layer + 1 == n_layers;
            let nodes = if is_last { Nodes::Some(&self.nodes) } else { Nodes::All(self.n_nodes()) };
            let chunks = Chunks::new(nodes, self.world.map_or((0, 1), |world| (world.rank(), world.size())));
            let mut leaving = Leaving { layers: self, chunks: &chunks, is_last, rows: None };
            self.for_each_round(state, before.as_ref(), (&chunks, in_place), |state, round, inputs| {
                let mut tape = Tape::new(state.backend, &state.params, &mut state.pool, Mode::Evaluate);
                let computed = inputs.map(|inputs| layers.layer(&mut tape, inputs, layer)).transpose()?;
                leaving.take(state.backend, round, computed.map(|computed| tape.value(computed)))
            })?;
            before = leaving.whole()?;
        }
        match before {
            Some(Rows::OnDevice(FeatureInput::Dense(logits))) => {
                Ok(Arc::into_inner(logits).expect("nobody shares them"))
            }
            _ => unreachable!("a last layer leaves rows on the device, of one node at least"),
        }
    }

    fn n_nodes(&self) -> usize {
        self.batch_data.inputs.n_nodes
    }

    /// Calls `work` for each round, with the inputs of a layer for this rank's nodes, if it has any in the round. The
    /// inputs are all neighbors of the nodes, and their rows of the previous layer.
    fn for_each_round<'b>(
        &self,
        state: &mut RunState<'b, B>,
        before: Option<&Rows<B>>,
        (chunks, in_place): (&Chunks<'_>, bool),
        mut work: impl FnMut(&mut RunState<'b, B>, usize, Option<&Inputs<B>>) -> Result<(), TrainError>,
    ) -> Result<(), TrainError> {
        let (backend, batch_data) = (state.backend, self.batch_data);
        let read = Read::new(batch_data, before);
        let in_place = in_place && read.is_matrix();
        let options = NeighborOptions {
            edge_ids: batch_data.scored_from().needs_edge_ids(),
            inputs: if in_place { Columns::Global } else { Columns::Local },
            ..NeighborOptions::default()
        };
        let sampler = NeighborSampler::new(FanOut::new(vec![Neighbors::All])?, options)?;
        let on_device = batch_data.on_device.as_ref().filter(|_| read.is_by_device());
        let source = on_device.map(|graph| graph.source(backend, &sampler, chunks.at_once)).transpose()?.flatten();
        let is_ahead = state.config.batch.prefetch > 0;
        let mut batches = source.map(|source| DeviceBatches::new(source, read.loader(backend), is_ahead));
        if let Some(batches) = batches.as_mut().filter(|_| chunks.n_batches() > 0) {
            batches.begin(chunks, 0, &mut state.pool)?;
        }
        for at in 0..chunks.n_rounds() {
            if at >= chunks.n_batches() {
                work(state, at, None)?;
                continue;
            }
            let inputs = match &mut batches {
                Some(batches) => {
                    let DeviceBatch { sampled, rows, .. } = batches.next(chunks, at, &mut state.pool)?;
                    inputs_of_sampled(backend, &mut state.pool, (sampled, rows), read.whole.features)?
                }
                None => self.sampled_by_host(state, &read, &sampler, &chunks.seeds(at))?,
            };
            work(state, at, Some(&inputs))?;
            recycle_inputs(inputs, backend, &mut state.pool);
            state.pool.drop_unused();
        }
        Ok(())
    }

    /// Inputs of a layer for some nodes, if the host samples them.
    fn sampled_by_host(
        &self,
        state: &mut RunState<'_, B>,
        read: &Read<'_, B>,
        sampler: &NeighborSampler,
        nodes: &Drawn<'_>,
    ) -> Result<Inputs<B>, TrainError> {
        let (backend, neighborhoods) = (state.backend, self.batch_data.scored_from());
        let sampled = sampler.sample(neighborhoods.graph(), &nodes.mine, nodes.key)?;
        let in_place = sampler.options().inputs == Columns::Global;
        let nodes = if in_place { &[][..] } else { sampled.inputs() };
        let rows = read.whole.rows(backend, &mut state.pool, nodes, in_place)?;
        let block = HostBlock::new(neighborhoods, &sampled.blocks[0], None)?;
        let graphs = LayerGraphs::Blocks(vec![upload_block(backend, &block)?]);
        Ok(Inputs {
            graphs,
            features: Some(rows),
            propagated: None,
            n_nodes: nodes.len(),
            relations: None,
            ranks: None,
        })
    }
}

impl<B: MiniBatchBackend> NodeInference<B> for Layerwise<'_, B> {
    fn logits(&self, model: &dyn Model<B>, state: &mut RunState<'_, B>) -> Result<B::Matrix, TrainError> {
        let layers = model.as_layers().expect("runs that score by layers ask first");
        self.rows_after(layers.n_layers(), model, state)
    }

    fn is_shared(&self) -> bool {
        self.world.is_some()
    }
}

impl<B: MiniBatchBackend> HiddenInference<B> for Layerwise<'_, B> {
    fn hidden(&self, model: &dyn Model<B>, state: &mut RunState<'_, B>) -> Result<Option<B::Matrix>, TrainError> {
        let layers = model.as_layers().expect("runs that score by layers ask first");
        let n_hidden = layers.n_layers() - 1;
        if n_hidden == 0 { Ok(None) } else { self.rows_after(n_hidden, model, state).map(Some) }
    }
}

/// Rows that a layer reads.
struct Read<'h, B: Backend> {
    whole: FeatureSource<'h, B>,
    /// Reader of rows that are no matrix of the device, with the number of columns and the type.
    reader: Option<(&'h dyn FeatureStore<B>, usize, Dtype)>,
}

impl<'h, B: MiniBatchBackend> Read<'h, B> {
    /// Rows of the previous layer, or the features.
    fn new(batch_data: &'h MiniBatchData<B>, before: Option<&'h Rows<B>>) -> Self {
        let features = batch_data.features();
        match before {
            None => Self { reader: features.read_by(), whole: features },
            Some(Rows::OnDevice(rows)) => {
                Self { reader: None, whole: FeatureSource { features: rows, sparse: None, reader: None } }
            }
            Some(Rows::OnHost(store, n_columns, dtype)) => {
                Self { reader: Some((&**store, *n_columns, *dtype)), whole: features }
            }
        }
    }

    fn is_matrix(&self) -> bool {
        self.reader.is_none() && matches!(self.whole.features, FeatureInput::Dense(_))
    }

    /// Whether the device gathers rows by itself.
    fn is_by_device(&self) -> bool {
        self.reader.is_some() || self.is_matrix()
    }

    fn loader(&self, backend: &'h B) -> Option<FeatureLoader<'h, B>> {
        self.reader.map(|read| FeatureLoader::new(backend, read))
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

impl<B: MiniBatchBackend> Leaving<'_, '_, B> {
    /// Stores the rows that this rank has computed in a round, if any. If ranks share the work, all of them call it.
    fn take(&mut self, backend: &B, round: usize, own: Option<&B::Matrix>) -> Result<(), TrainError> {
        let Self { chunks, .. } = *self;
        if self.rows.is_none() {
            let (cols, dtype) = self.width(backend, own)?;
            self.rows = Some(self.room(backend, Shape::new(chunks.len(), cols), dtype)?);
        }
        let rows = self.rows.as_mut().expect("made above");
        let Some(world) = self.layers.world.filter(|_| !rows.are_shared()) else {
            return own.map_or(Ok(()), |own| rows.write(backend, chunks.range(round, chunks.rank).start, own));
        };
        let (cols, dtype) = rows.width(backend);
        let of_ranks: Vec<usize> = (0..chunks.size).map(|rank| chunks.range(round, rank).len()).collect();
        let mut all = backend.zeros(Shape::new(of_ranks.iter().sum(), cols), dtype)?;
        match own {
            Some(own) => world.all_gather(&of_ranks, own, &mut all)?,
            None => world.all_gather(&of_ranks, &backend.zeros(Shape::new(0, cols), dtype)?, &mut all)?,
        }
        rows.write(backend, chunks.range(round, 0).start, &all)
    }

    /// Number of columns and type of the rows. The first rank always has rows, and broadcasts both.
    fn width(&self, backend: &B, own: Option<&B::Matrix>) -> Result<(usize, Dtype), TrainError> {
        let mine = own.map(|own| (backend.shape(own).cols, backend.dtype(own)));
        let Some(world) = self.layers.world else { return Ok(mine.expect("one rank has all nodes")) };
        broadcast_from_first(world, "how wide rows are", mine.as_ref())
    }

    /// Buffer for rows. It is where features are, except for the last layer.
    fn room(&self, backend: &B, shape: Shape, dtype: Dtype) -> Result<Rows<B>, TrainError> {
        let Layerwise { batch_data, world, .. } = self.layers;
        let keeps_on_host = batch_data.keeps_on_host && !self.is_last;
        let store = if keeps_on_host { backend.row_store(shape, dtype, world.is_some())? } else { None };
        Ok(match store {
            Some(store) => Rows::OnHost(store, shape.cols, dtype),
            None => Rows::OnDevice(FeatureInput::dense(backend.zeros(shape, dtype)?)),
        })
    }

    /// All rows, after all ranks have written theirs.
    fn whole(self) -> Result<Option<Rows<B>>, TrainError> {
        if let Some(world) = self.layers.world.filter(|_| self.rows.as_ref().is_some_and(Rows::are_shared)) {
            world.barrier()?;
        }
        Ok(self.rows)
    }
}

impl<B: Backend> Rows<B> {
    /// Whether the devices of all ranks write into one buffer.
    fn are_shared(&self) -> bool {
        matches!(self, Self::OnHost(store, ..) if store.is_shared())
    }

    /// Number of columns, and type.
    fn width(&self, backend: &B) -> (usize, Dtype) {
        match self {
            Self::OnDevice(FeatureInput::Dense(all)) => (backend.shape(all).cols, backend.dtype(all)),
            Self::OnDevice(_) => unreachable!("layers leave dense rows"),
            Self::OnHost(_, cols, dtype) => (*cols, *dtype),
        }
    }
}

impl<'n> Chunks<'n> {
    /// Chunks of a rank, given its number and the number of ranks.
    #[must_use]
    pub fn new(nodes: Nodes<'n>, (rank, size): (usize, usize)) -> Self {
        let chunks = Self { nodes, at_once: 0, rank, size };
        // If there are few nodes, they are divided over all ranks.
        let at_once = chunks.len().min(NODES_AT_ONCE).div_ceil(size).max(1);
        Self { at_once, ..chunks }
    }

    fn len(&self) -> usize {
        match self.nodes {
            Nodes::All(n_nodes) => n_nodes,
            Nodes::Some(nodes) => nodes.len(),
        }
    }

    /// Number of rounds.
    #[must_use]
    pub fn n_rounds(&self) -> usize {
        self.len().div_ceil(self.at_once * self.size)
    }

    /// Positions of the nodes of a rank in a round.
    #[must_use]
    pub fn range(&self, round: usize, rank: usize) -> Range<usize> {
        let first = ((round * self.size + rank) * self.at_once).min(self.len());
        first..self.len().min(first + self.at_once)
    }
}

impl SeedLists for Chunks<'_> {
    /// Number of rounds in which this rank has nodes: all, or all but the last.
    fn n_batches(&self) -> usize {
        let n_chunks = self.len().div_ceil(self.at_once);
        n_chunks.saturating_sub(self.rank).div_ceil(self.size)
    }

    /// Nothing is drawn, since all neighbors are taken.
    fn seeds(&self, at: usize) -> Drawn<'_> {
        let range = self.range(at, self.rank);
        let n_all = range.len();
        let mine = match self.nodes {
            Nodes::All(_) => Cow::Owned((range.start as NodeId..range.end as NodeId).collect()),
            Nodes::Some(nodes) => Cow::Borrowed(&nodes[range]),
        };
        Drawn { mine, first: 0, n_all, key: DrawKey::default() }
    }
}
