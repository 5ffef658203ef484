//! [`EdgeRows`]: features of the edges of blocks, and the labels of edges that are asked for.

use std::sync::Arc;

use girih_datasets::Dataset;
use girih_graph_format::{Csr, EdgeFeatures, FormatError, Matrix, NodeId, TimedEdge, TimedRows};
use girih_sampling::{Block, TimedBatch};

use crate::TrainError;
use crate::config::EdgeConfig;
use crate::minibatch::host_batch::HostEdges;

/// Features of edges for the blocks of batches: given columns, the direction in which an edge is read, and an encoding of
/// its age.
pub(super) struct EdgeRows {
    given: Option<Arc<EdgeFeatures>>,
    /// Number of columns that are features; a further one may have labels.
    n_given: usize,
    /// Frequencies of the encoding.
    frequencies: Vec<f64>,
}

impl EdgeRows {
    /// Features of a data set's edges.
    pub(super) fn new(config: &EdgeConfig, given: Option<Arc<EdgeFeatures>>) -> Self {
        let n_given = config.n_given(given.as_ref().map_or(0, |given| given.width()));
        let n = config.time_encoding;
        let frequencies = (0..n).map(|i| 10_f64.powf(-10.0 * i as f64 / n as f64)).collect();
        Self { given, n_given, frequencies }
    }

    /// Edges of a block of a batch. `weight` scales the messages into each destination.
    ///
    /// # Errors
    /// When the block has more edges than a matrix has rows.
    pub(super) fn of_block(
        &self,
        rows: &TimedRows,
        block: &Block,
        sampled: &TimedBatch,
        weight: impl Fn(usize) -> f32,
    ) -> Result<HostEdges, FormatError> {
        let n_edges = block.n_edges();
        let width = self.n_given + 1 + self.frequencies.len();
        let mut features = Vec::with_capacity(n_edges * width);
        let mut weights = Vec::with_capacity(n_edges);
        let per_unit = rows.tick().per_unit() as f64;
        for v in 0..block.n_destinations {
            let bound = sampled.bounds[v];
            for &at in &block.edge_ids[block.indptr[v] as usize..block.indptr[v + 1] as usize] {
                let entry = rows.entry(at as usize);
                let given = self.given.iter().flat_map(|given| &given.row(entry.edge as usize)[..self.n_given]);
                features.extend(given);
                features.push(f32::from(u8::from(entry.is_reversed)));
                let age = (bound as f64 - entry.time as f64) / per_unit;
                features.extend(self.frequencies.iter().map(|frequency| (age * frequency).cos() as f32));
                weights.push(weight(v));
            }
        }
        let columns: Vec<NodeId> = (0..n_edges as NodeId).collect();
        Ok(HostEdges {
            sources: block.indices.clone(),
            features: Matrix::new(n_edges, width, features)?,
            sums: Csr::new(block.n_destinations, n_edges, block.indptr.clone(), columns, Some(weights.into()))?,
        })
    }
}

/// Whether the label of each edge is positive, by the number of the edge in its list; `None` where links are asked for.
///
/// # Errors
/// When the data does not have the columns of the configuration, in their order.
pub(super) fn labels_of(config: &EdgeConfig, dataset: &Dataset) -> Result<Option<Vec<bool>>, TrainError> {
    let (columns, name) = (config.columns(), &dataset.name);
    if columns.is_empty() {
        return Ok(None);
    }
    let given = dataset.edge_features.as_ref().ok_or_else(|| {
        TrainError::invalid(format!(
            "{name} was loaded without the features of its edges, which edges.features and edges.label read: load it with \
             LoadOptions::edge_features"
        ))
    })?;
    if !config.reads_all() && given.width() != columns.len() {
        return Err(TrainError::invalid(format!(
            "{name} was loaded with {} columns of its edges ({}), and the settings read {}: load it with \
             EdgeConfig::columns",
            given.width(),
            given.names().join(", "),
            columns.join(", ")
        )));
    }
    let Some(label) = &config.label else { return Ok(None) };
    let column = config.label_column(given.names()).ok_or_else(|| {
        let names = given.names().join(", ");
        TrainError::invalid(format!("{name} has no column {label} of labels; there are {names}"))
    })?;
    Ok(Some((0..given.n_edges()).map(|edge| given.row(edge)[column] > 0.0).collect()))
}

/// Refuses a part of edges whose labels are all alike.
///
/// # Errors
/// When a part that is not empty has one kind of label.
pub(super) fn check_labels(name: &str, part: &str, edges: &[TimedEdge], labels: &[bool]) -> Result<(), TrainError> {
    let n_positive = edges.iter().filter(|edge| labels[edge.edge as usize]).count();
    if edges.is_empty() || (0 < n_positive && n_positive < edges.len()) {
        return Ok(());
    }
    let kind = if n_positive == 0 { "none" } else { "all" };
    Err(TrainError::invalid(format!(
        "{kind} of the {} {part} edges of {name} have a label above zero; scores need both kinds: give another --edge-label, or \
         other shares by --val-links and --test-links",
        edges.len()
    )))
}
