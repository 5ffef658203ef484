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
    /// Whether every node has an edge to itself, with the mean features of its others.
    has_loops: bool,
    /// Number of columns that are features; a further one may have labels.
    n_given: usize,
    /// Frequencies of the encoding.
    frequencies: Vec<f64>,
}

impl EdgeRows {
    /// Features of a data set's edges.
    pub(super) fn new(config: &EdgeConfig, given: Option<Arc<EdgeFeatures>>, has_loops: bool) -> Self {
        let n_given = config.n_given(given.as_ref().map_or(0, |given| given.width()));
        let n = config.time_encoding;
        let frequencies = (0..n).map(|i| 10_f64.powf(-10.0 * i as f64 / n as f64)).collect();
        Self { given, has_loops, n_given, frequencies }
    }

    fn width(&self) -> usize {
        self.n_given + 1 + self.frequencies.len()
    }

    /// Edges of a block of a batch. `weights` scale the messages into a destination, and its message to itself.
    ///
    /// # Errors
    /// When the block has more edges than a matrix has rows.
    pub(super) fn of_block(
        &self,
        rows: &TimedRows,
        block: &Block,
        sampled: &TimedBatch,
        weights: impl Fn(usize) -> [f32; 2],
    ) -> Result<HostEdges, FormatError> {
        let n_edges = block.n_edges() + if self.has_loops { block.n_destinations } else { 0 };
        let mut features = Vec::with_capacity(n_edges * self.width());
        let (mut sources, mut of_edges) = (Vec::with_capacity(n_edges), Vec::with_capacity(n_edges));
        let mut indptr = vec![0_u64];
        for v in 0..block.n_destinations {
            let first = features.len();
            for &at in &block.edge_ids[block.indptr[v] as usize..block.indptr[v + 1] as usize] {
                self.push(rows, (at as usize, sampled.bounds[v]), &mut features);
            }
            sources.extend(block.row(v));
            let [weight, own_weight] = weights(v);
            of_edges.resize(sources.len(), weight);
            if self.has_loops {
                push_mean(&mut features, first, self.width());
                sources.push(v as NodeId);
                of_edges.push(own_weight);
            }
            indptr.push(sources.len() as u64);
        }
        let columns: Vec<NodeId> = (0..n_edges as NodeId).collect();
        Ok(HostEdges {
            sources,
            features: Matrix::new(n_edges, self.width(), features)?,
            sums: Csr::new(block.n_destinations, n_edges, indptr, columns, Some(of_edges.into()))?,
        })
    }

    /// Appends the features of an entry, as a node with this bound sees it.
    fn push(&self, rows: &TimedRows, (at, bound): (usize, i64), features: &mut Vec<f32>) {
        let entry = rows.entry(at);
        features.extend(self.given.iter().flat_map(|given| &given.row(entry.edge as usize)[..self.n_given]));
        features.push(f32::from(u8::from(entry.is_reversed)));
        let age = (bound as f64 - entry.time as f64) / rows.tick().per_unit() as f64;
        features.extend(self.frequencies.iter().map(|frequency| (age * frequency).cos() as f32));
    }
}

/// Appends the mean of the rows from `first` on; zeros if there are none.
fn push_mean(features: &mut Vec<f32>, first: usize, width: usize) {
    let (end, n_rows) = (features.len(), (features.len() - first) / width);
    features.resize(end + width, 0.0);
    let (rows, mean) = features.split_at_mut(end);
    for row in rows[first..].chunks_exact(width) {
        mean.iter_mut().zip(row).for_each(|(mean, value)| *mean += value / n_rows as f32);
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
