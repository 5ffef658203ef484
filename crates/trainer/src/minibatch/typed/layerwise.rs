//! [`TypedLayerwise`]: layer-wise inference on a typed graph, one layer after the other.
//!
//! ```text
//! nodes whose rows a layer computes   needed by the layer behind it, with all their neighbors
//! for each node type, for a chunk of its nodes:
//!     all neighbors by all relations ─▶ their rows of the previous layer ─▶ the layer ─▶ rows of the chunk
//! ```
//! Rows of a hidden layer are one matrix on the device, with a row for each needed node. The first layer makes rows of
//! features for each chunk anew.

use std::ops::Range;
use std::sync::OnceLock;

use girih_compute::{Backend, Dtype, Shape};
use girih_datasets::TypedData;
use girih_features::MiniBatchBackend;
use girih_graph_format::{NodeId, TypedGraph};
use girih_sampling::{DrawKey, FanOut, Neighbors, TypedBatch, TypedFanOut, TypedOptions, TypedSampler};

use super::seeds::{averaged_first, host_layer};
use crate::TrainError;
use crate::engine::RunState;
use crate::layers::{FeatureInput, HostLayer, Inputs, LayerGraphs, LayerTypes, RelationInput, RelationSpec};
use crate::minibatch::NODES_AT_ONCE;
use crate::minibatch::batch::{WholeGraph, recycle_inputs};
use crate::minibatch::scoring::{HiddenInference, NodeInference};
use crate::minibatch::train::{made_ahead, next_item};
use crate::models::Model;
use crate::tape::{Mode, Tape};

/// Logits of some nodes of the target type, by layer-wise inference.
pub(crate) struct TypedLayerwise<'a, B: Backend> {
    graph: &'a TypedGraph,
    /// Types of each layer. Relations are averaged before products.
    layers: Vec<LayerTypes>,
    spec: &'a RelationSpec,
    whole: WholeGraph<'a, B>,
    /// Global ids, ascending.
    nodes: Vec<NodeId>,
    /// Nodes whose rows each layer computes for the logits; they are the same in every evaluation.
    of_logits: OnceLock<Vec<Needed>>,
}

/// Nodes with rows, ascending by global ids: types one after the other.
struct Needed {
    nodes: Vec<NodeId>,
    /// Position of each node of the graph among them; other nodes have any.
    positions: Vec<NodeId>,
}

/// Nodes of one type whose rows are computed at a time.
struct Chunk {
    node_type: usize,
    /// First of them among the needed nodes.
    first: usize,
    /// Ids inside the type.
    nodes: Vec<NodeId>,
}

/// Relations of a chunk on the host, and the nodes of each type that it reads, by ids inside the type.
struct HostChunk {
    first: usize,
    layer: HostLayer,
    sources: Vec<Vec<NodeId>>,
}

impl<'a, B: MiniBatchBackend> TypedLayerwise<'a, B> {
    /// Inference for nodes of the target, given by ascending global ids. `whole` has the features.
    pub(crate) fn new(
        typed: &'a TypedData,
        spec: &'a RelationSpec,
        whole: WholeGraph<'a, B>,
        nodes: Vec<NodeId>,
    ) -> Self {
        let layers = spec.layers.iter().map(averaged_first).collect();
        Self { graph: &typed.graph, layers, spec, whole, nodes, of_logits: OnceLock::new() }
    }

    /// Nodes whose rows each of the first `n_layers` layers computes, at least one.
    fn needed(&self, n_layers: usize) -> Vec<Needed> {
        let mut needed = vec![Needed::new(self.nodes.clone(), self.graph)];
        for types in self.layers[1..n_layers].iter().rev() {
            needed.push(self.sources_of(&needed[needed.len() - 1], types));
        }
        needed.reverse();
        needed
    }

    /// Rows of the nodes after as many layers as there are lists of needed nodes.
    fn rows(
        &self,
        needed: &[Needed],
        model: &dyn Model<B>,
        state: &mut RunState<'_, B>,
    ) -> Result<B::Matrix, TrainError> {
        let mut before: Option<(B::Matrix, &Needed)> = None;
        for (layer, needed) in needed.iter().enumerate() {
            let rows_before = before.as_ref().map(|(rows, needed)| (rows, *needed));
            let rows = self.layer(layer, needed, rows_before, (model, &mut *state))?;
            before = Some((rows, needed));
        }
        Ok(before.expect("a model has layers").0)
    }

    /// Nodes that a layer of these types reads for some destinations.
    fn sources_of(&self, needed: &Needed, types: &LayerTypes) -> Needed {
        let (schema, mut is_read) = (self.graph.schema(), vec![false; self.graph.n_nodes()]);
        needed.nodes.iter().for_each(|&v| is_read[v as usize] = true);
        for &number in &types.relations {
            let ends = &schema.edge_types()[number];
            let (relation, first) = (&self.graph.relations()[number], schema.first(ends.source));
            for &v in needed.of_type(self.graph, ends.destination) {
                let row = relation.row(v as usize - schema.first(ends.destination));
                row.iter().for_each(|&u| is_read[first + u as usize] = true);
            }
        }
        let nodes = is_read.into_iter().enumerate().filter_map(|(v, is_read)| is_read.then_some(v as NodeId));
        Needed::new(nodes.collect(), self.graph)
    }

    /// Rows of the needed nodes by one layer.
    fn layer(
        &self,
        layer: usize,
        needed: &Needed,
        before: Option<(&B::Matrix, &Needed)>,
        (model, state): (&dyn Model<B>, &mut RunState<'_, B>),
    ) -> Result<B::Matrix, TrainError> {
        let network = model.as_layers().expect("runs that score by layers ask first");
        let fan_out = TypedFanOut::uniform(&FanOut::new(vec![Neighbors::All])?, self.graph.relations().len());
        let sampler = TypedSampler::new(fan_out, TypedOptions::default());
        let (chunks, backend) = (needed.chunks(self.graph), state.backend);
        let n_ahead = state.config.batch.prefetch.max(1);
        let mut rows: Option<B::Matrix> = None;
        let make = |at: usize| self.on_host(layer, &chunks[at], &sampler);
        std::thread::scope(|scope| {
            let mut made = made_ahead(scope, "neighbors", (0..chunks.len(), n_ahead), &make)?;
            while let Some(chunk) = next_item(&mut made)? {
                let inputs = self.inputs(layer, &chunk, before, state)?;
                let mut tape = Tape::new(backend, &state.params, &mut state.pool, Mode::Evaluate);
                let computed = network.layer(&mut tape, &inputs, layer)?;
                let computed = tape.value(computed);
                let shape = backend.shape(computed);
                if rows.is_none() {
                    rows = Some(backend.zeros(Shape::new(needed.nodes.len(), shape.cols), backend.dtype(computed))?);
                }
                let all = rows.as_mut().expect("made above");
                backend.copy_block(shape, computed, (0, 0), all, (chunk.first, 0))?;
                drop(tape);
                recycle_inputs(inputs, backend, &mut state.pool);
                state.pool.drop_unused();
            }
            Ok(())
        })
        .and_then(|()| rows.map_or_else(|| Ok(backend.zeros(Shape::new(0, 0), Dtype::F32)?), Ok))
    }

    /// Relations of a chunk, with all neighbors.
    fn on_host(&self, layer: usize, chunk: &Chunk, sampler: &TypedSampler) -> Result<HostChunk, TrainError> {
        let seeds = [(chunk.node_type, &chunk.nodes[..])];
        let TypedBatch { mut nodes, blocks } = sampler.sample(self.graph, &seeds, DrawKey::default())?;
        let types = &self.layers[layer];
        let host = host_layer(self.graph, &blocks[0], types, self.spec.form)?;
        let sources = types.sources.iter().map(|&of| std::mem::take(&mut nodes[of])).collect();
        Ok(HostChunk { first: chunk.first, layer: host, sources })
    }

    /// Inputs of a layer for a chunk: features, or rows of the previous layer.
    fn inputs<'c>(
        &self,
        layer: usize,
        chunk: &'c HostChunk,
        before: Option<(&B::Matrix, &'c Needed)>,
        state: &mut RunState<'_, B>,
    ) -> Result<Inputs<B>, TrainError> {
        let (backend, layers) = (state.backend, std::slice::from_ref(&chunk.layer));
        let Some((rows, of)) = before else {
            return self.whole.typed_inputs(backend, &mut state.pool, layers, &chunk.sources);
        };
        let schema = self.graph.schema();
        let of_type = |(&node_type, nodes): (&usize, &'c Vec<NodeId>)| {
            let first = schema.first(node_type);
            nodes.iter().map(move |&v| of.positions[first + v as usize])
        };
        let positions: Vec<NodeId> = self.layers[layer].sources.iter().zip(&chunk.sources).flat_map(of_type).collect();
        let shape = Shape::new(positions.len(), backend.shape(rows).cols);
        let mut gathered = state.pool.take(backend, shape, backend.dtype(rows))?;
        backend.gather_rows(rows, &backend.upload_ids(&positions)?, &mut gathered)?;
        Ok(Inputs {
            graphs: LayerGraphs::None,
            features: Some(FeatureInput::dense(gathered)),
            propagated: None,
            n_nodes: positions.len(),
            relations: Some(RelationInput::of_batch(backend, layers, Vec::new())?),
            ranks: None,
        })
    }
}

impl<B: MiniBatchBackend> NodeInference<B> for TypedLayerwise<'_, B> {
    fn logits(&self, model: &dyn Model<B>, state: &mut RunState<'_, B>) -> Result<B::Matrix, TrainError> {
        let needed = self.of_logits.get_or_init(|| self.needed(self.layers.len()));
        self.rows(needed, model, state)
    }
}

impl<B: MiniBatchBackend> HiddenInference<B> for TypedLayerwise<'_, B> {
    fn hidden(&self, model: &dyn Model<B>, state: &mut RunState<'_, B>) -> Result<Option<B::Matrix>, TrainError> {
        let n_hidden = self.layers.len() - 1;
        if n_hidden == 0 { Ok(None) } else { self.rows(&self.needed(n_hidden), model, state).map(Some) }
    }
}

impl Needed {
    fn new(nodes: Vec<NodeId>, graph: &TypedGraph) -> Self {
        let mut positions = vec![0; graph.n_nodes()];
        for (position, &v) in nodes.iter().enumerate() {
            positions[v as usize] = position as NodeId;
        }
        Self { nodes, positions }
    }

    /// Positions of the nodes of a type.
    fn range(&self, graph: &TypedGraph, node_type: usize) -> Range<usize> {
        let first = graph.schema().first(node_type);
        let place = |from: usize| self.nodes.partition_point(|&v| (v as usize) < from);
        place(first)..place(first + graph.sizes().node_types[node_type])
    }

    /// Nodes of a type, by global ids.
    fn of_type(&self, graph: &TypedGraph, node_type: usize) -> &[NodeId] {
        &self.nodes[self.range(graph, node_type)]
    }

    fn chunks(&self, graph: &TypedGraph) -> Vec<Chunk> {
        let of_type = |node_type: usize| {
            let (range, first) = (self.range(graph, node_type), graph.schema().first(node_type) as NodeId);
            let chunk = move |at: usize, nodes: &[NodeId]| Chunk {
                node_type,
                first: range.start + at * NODES_AT_ONCE,
                nodes: nodes.iter().map(|v| v - first).collect(),
            };
            let nodes = self.of_type(graph, node_type).chunks(NODES_AT_ONCE).enumerate();
            nodes.map(move |(at, nodes)| chunk(at, nodes))
        };
        (0..graph.sizes().node_types.len()).flat_map(of_type).collect()
    }
}
