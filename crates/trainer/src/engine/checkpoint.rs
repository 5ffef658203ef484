//! [`Checkpoint`]: state of a run between two steps, in one safetensors file.
//!
//! Tensors `param.NAME`, `moment1.NAME` and `moment2.NAME` hold the state after `epoch` epochs and the batches of
//! `partial`. Tensors `best.NAME` hold the parameters with the best validation score. Everything else is one JSON
//! object under the metadata key `girih`, preceded by a checksum of the whole content. Random numbers are a function
//! of seed, run, epoch and batch, so they need no stored state: a resumed run continues bit for bit.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};

use girih_compress::CodecSpec;
use girih_datasets::{Dataset, Outline, TypeWidth};
use girih_graph_format::{FormatError, Matrix, NodeType, Schema, file};
use girih_partition::counted;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde::{Deserialize, Serialize};

use super::report::{PartialEpoch, Scores};
use crate::TrainError;
use crate::config::{Arrangement, TrainConfig};

/// Version of the metadata. Readers refuse other versions.
pub const CHECKPOINT_VERSION: u32 = 3;
/// Only metadata key. Several keys would have an order that changes from file to file.
const METADATA_KEY: &str = "girih";

/// State of a run after some epochs. Equality ignores the file it was read from.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// All state besides the tensors.
    pub progress: Progress,
    /// Parameters, by name.
    pub params: BTreeMap<String, Matrix>,
    /// First and second moment of the optimiser, by name of the parameter.
    pub moments: BTreeMap<String, (Matrix, Matrix)>,
    /// Parameters at the best validation score, by name; empty before the first evaluation.
    pub best_params: BTreeMap<String, Matrix>,
    /// File that the checkpoint was read from, for messages.
    pub file: Option<PathBuf>,
}

impl PartialEq for Checkpoint {
    fn eq(&self, other: &Self) -> bool {
        (&self.progress, &self.params, &self.moments, &self.best_params)
            == (&other.progress, &other.params, &other.moments, &other.best_params)
    }
}

/// Progress of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// [`CHECKPOINT_VERSION`].
    pub version: u32,
    /// Configuration of the run.
    pub config: TrainConfig,
    /// Identity of the training data.
    pub data: DataShape,
    /// Number of the run, from 0.
    pub run: u64,
    /// Number of epochs done.
    pub epoch: u64,
    /// Progress within the next epoch.
    #[serde(default, skip_serializing_if = "PartialEpoch::is_start")]
    pub partial: PartialEpoch,
    /// Number of optimiser steps.
    pub n_steps: u64,
    /// Whether no epoch is left: the last one is done, or patience ran out.
    pub finished: bool,
    /// Epoch (from 1) and scores of the best evaluation.
    pub best: Option<(u64, Scores)>,
    /// Scores of the latest evaluation.
    pub last: Option<Scores>,
    /// Training loss of the latest epoch; zero before the first.
    pub train_loss: f32,
    /// Device and ranks of the session that wrote the checkpoint, if recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrangement: Option<Arrangement>,
}

impl Progress {
    /// Whether a node classifier can be applied to `other` data: any graph with as many features and classes. If
    /// features belong to the training nodes, the graph must have as many nodes.
    ///
    /// # Errors
    /// When it cannot; the message says why.
    pub fn check_data(&self, other: &Outline) -> Result<(), String> {
        self.check_known_nodes(other)?;
        self.data.check_widths(other)
    }

    /// Whether `other` data has as many nodes as the features, if these belong to the training nodes, and as many edges if
    /// the network learned rows for nodes and relations.
    ///
    /// # Errors
    /// When these numbers differ.
    pub(crate) fn check_known_nodes(&self, other: &Outline) -> Result<(), String> {
        self.check_types(other)?;
        let has_features = self.data.n_features > 0 || self.data.node_types.iter().any(|of| of.n_features.is_some());
        let learns_rows = self.config.model.kind.reads_relations() && !has_features;
        if learns_rows && (self.data.n_nodes, self.data.n_edges) != (other.n_nodes, other.n_edges) {
            let other = DataShape::of_outline(other, Vec::new());
            let what =
                format!("the model learned a row for each node and relation of {}, and none for others", self.data);
            return Err(format!("{what}: it cannot be applied to {other}; give the data that it was trained on"));
        }
        let Some(rule) = self.config.features_from.filter(|rule| rule.knows_nodes()) else { return Ok(()) };
        if self.data.n_nodes == other.n_nodes {
            return Ok(());
        }
        let other = DataShape::of_outline(other, Vec::new());
        Err(format!(
            "the model was trained on {} with features from {rule}, which has a row for each of these nodes and none for \
             others: it cannot be applied to {other}; train with --features-from degree or random-walk:16, which any graph has",
            self.data
        ))
    }
}

impl Progress {
    /// Whether `other` data has the types of the training data: equal names and features, and as many nodes where rows
    /// are learned.
    fn check_types(&self, other: &Outline) -> Result<(), String> {
        let found = DataShape::of_outline(other, Vec::new());
        let other_type = |(of, found): (&NodeTypeShape, &NodeTypeShape)| {
            let n_nodes = if of.n_features.is_some() { of.n_nodes } else { found.n_nodes };
            (NodeTypeShape { n_nodes, ..found.clone() } != *of).then(|| (of.clone(), found.clone()))
        };
        let told = |of: &NodeTypeShape| match of.n_features {
            Some(n) => format!("{} ({}, {})", of.name, counted(of.n_nodes, "node"), counted(n, "feature")),
            None => format!("{} ({}, learned rows)", of.name, counted(of.n_nodes, "node")),
        };
        let what = if self.data.node_types.len() != found.node_types.len() || self.data.edge_types != found.edge_types {
            let names = |shape: &DataShape| shape.edge_types.join(", ");
            format!("their types of edges differ: {}, and {}", names(&self.data), names(&found))
        } else {
            match self.data.node_types.iter().zip(&found.node_types).find_map(other_type) {
                None => return Ok(()),
                Some((of, found)) => format!("it has {} where the model has {}", told(&found), told(&of)),
            }
        };
        Err(format!("the model was trained on {} and cannot be applied to {found}: {what}", self.data))
    }
}

/// Field that every version of [`Progress`] has.
#[derive(Deserialize)]
struct Version {
    version: u32,
}

/// Identity of a data set, so that a checkpoint does not continue on another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataShape {
    /// Name of the data set.
    pub name: String,
    /// Number of nodes.
    pub n_nodes: usize,
    /// Number of stored edges.
    pub n_edges: usize,
    /// Number of features of a node.
    pub n_features: usize,
    /// Number of classes.
    pub n_classes: usize,
    /// Whether a node may have several classes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub multi_label: bool,
    /// Number of users among the nodes, for recommendation data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n_users: Option<usize>,
    /// Types of nodes, if there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub node_types: Vec<NodeTypeShape>,
    /// Full names of the types of edges, if there are several types of nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub edge_types: Vec<String>,
    /// Hash of the contents with each split, in node order ([`Dataset::fingerprints`]).
    pub fingerprints: Vec<u32>,
}

/// Identity of a type of nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeTypeShape {
    /// Name of the type.
    pub name: String,
    /// Number of nodes.
    pub n_nodes: usize,
    /// Width of the features; `None` for learned rows.
    pub n_features: Option<usize>,
}

impl NodeTypeShape {
    /// Types of data with several types of nodes.
    fn all(outline: &Outline) -> Vec<Self> {
        let types = outline.schema.iter().flat_map(|schema| schema.node_types());
        let shape = |(of, width): (&NodeType, &TypeWidth)| {
            let n_features = if let TypeWidth::Given(width) = width { Some(*width) } else { None };
            Self { name: of.name.clone(), n_nodes: of.n_nodes, n_features }
        };
        types.zip(&outline.type_widths).map(shape).collect()
    }
}

impl DataShape {
    /// Identity of a data set.
    #[must_use]
    pub fn of(dataset: &Dataset) -> Self {
        Self::of_outline(&dataset.outline(), dataset.fingerprints())
    }

    /// Identity of a data set with the given hashes of its contents.
    #[must_use]
    pub fn of_outline(outline: &Outline, fingerprints: Vec<u32>) -> Self {
        let &Outline { n_nodes, n_edges, n_features, n_classes, multi_label, n_users, .. } = outline;
        let (name, node_types) = (outline.name.clone(), NodeTypeShape::all(outline));
        let schema = outline.schema.as_ref().filter(|_| !node_types.is_empty());
        let names = |schema: &Schema| (0..schema.edge_types().len()).map(|number| schema.edge_name(number)).collect();
        let edge_types = schema.map_or_else(Vec::new, names);
        Self {
            name,
            n_nodes,
            n_edges,
            n_features,
            n_classes,
            multi_label,
            n_users,
            node_types,
            edge_types,
            fingerprints,
        }
    }

    /// Whether a run that trained on this data can continue on `other`: equal contents in the same node order,
    /// because random draws are keyed by the position of a node. Splits of other runs may differ.
    ///
    /// # Errors
    /// When it cannot; the message says why.
    pub fn check_same(&self, other: &Self, run: u64) -> Result<(), String> {
        if self.sizes() != other.sizes() {
            return Err(format!("it was trained on {self}, not on {other}; choose another --out"));
        }
        if self.of_run(run) != other.of_run(run) {
            return Err(format!(
                "it was trained on {self} with other contents, another split or another order of nodes; resume with the same \
                 --data, --split, --reorder and --reorder-blocks (by default as many as --ranks and --partition have row \
                 blocks), or choose another --out"
            ));
        }
        Ok(())
    }

    /// A copy without the hashes of contents.
    fn sizes(&self) -> Self {
        Self { fingerprints: Vec::new(), ..self.clone() }
    }

    /// Hash of the contents with the split of a run.
    fn of_run(&self, run: u64) -> Option<u32> {
        self.fingerprints.get(run as usize % self.fingerprints.len().max(1)).copied()
    }

    /// Whether a recommender trained on this data can be applied to `other`: equal users and items.
    ///
    /// # Errors
    /// When it cannot; the message says why.
    pub fn check_nodes(&self, other: &Outline) -> Result<(), String> {
        let is_same = (self.n_nodes, self.n_users) == (other.n_nodes, other.n_users);
        self.fits(other, is_same, "users and items")
    }

    /// Whether a link predictor trained on this data can be applied to `other`: any graph with as many features.
    ///
    /// # Errors
    /// When it cannot; the message says why.
    pub fn check_features(&self, other: &Outline) -> Result<(), String> {
        self.fits(other, self.n_features == other.n_features, "features")
    }

    /// Whether a classifier trained on this data can be applied to `other`: any graph with as many features. Labels,
    /// if any, must be of the same kind and have no more classes.
    ///
    /// # Errors
    /// When it cannot; the message says why.
    pub fn check_widths(&self, other: &Outline) -> Result<(), String> {
        let as_many =
            if self.multi_label { other.n_classes == self.n_classes } else { other.n_classes <= self.n_classes };
        let fits = other.n_classes == 0 || (other.multi_label == self.multi_label && as_many);
        match (self.n_features == other.n_features, fits) {
            (false, false) => self.fits(other, false, "features and classes"),
            (false, true) => self.fits(other, false, "features"),
            (true, fits) => self.fits(other, fits, "classes"),
        }
    }

    fn fits(&self, other: &Outline, fits: bool, what: &str) -> Result<(), String> {
        if fits {
            return Ok(());
        }
        let other = Self::of_outline(other, Vec::new());
        Err(format!("the model was trained on {self} and cannot be applied to {other}: their {what} differ"))
    }
}

impl fmt::Display for DataShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, n_nodes, n_edges, n_features, n_classes, n_users, .. } = self;
        let (nodes, edges) = (counted(*n_nodes, "node"), counted(*n_edges, "edge"));
        if let Some(n_users) = *n_users {
            let (users, items) = (counted(n_users, "user"), counted(n_nodes - n_users, "item"));
            return write!(f, "{name} ({users}, {items}, {})", counted(n_edges / 2, "interaction"));
        }
        let features = counted(*n_features, "feature");
        write!(f, "{name} ({nodes}, {edges}, {features}, {})", counted(*n_classes, "class"))
    }
}

/// Groups of tensors, in the order of the checksum.
const GROUPS: [&str; 4] = ["param", "moment1", "moment2", "best"];

/// Matrices of a checkpoint, by group and name.
type Tensors = BTreeMap<&'static str, BTreeMap<String, Matrix>>;

impl Checkpoint {
    /// Hash of the parameters that [`apply`](crate::apply) uses: the best ones or, before the first evaluation, the
    /// current ones.
    #[must_use]
    pub(crate) fn fingerprint(&self) -> u32 {
        let applied = if self.best_params.is_empty() { &self.params } else { &self.best_params };
        let mut hash = crc32fast::Hasher::new();
        for (name, values) in applied {
            hash.update(name.as_bytes());
            hash.update(bytemuck::cast_slice(values.data()));
        }
        hash.finalize()
    }

    /// This checkpoint for features with another codec, or with none. Contents are then not compared with the
    /// training data, whose hash covers its codes.
    ///
    /// # Errors
    /// When the configuration does not allow a codec.
    pub fn with_codec(mut self, codec: Option<CodecSpec>) -> Result<Self, TrainError> {
        let Progress { config, data, .. } = &mut self.progress;
        if config.codec != codec {
            config.codec = codec;
            data.fingerprints.clear();
        }
        config.validate()?;
        Ok(self)
    }

    /// Warns if the data have the size of the training data but other contents: training nodes may then be test
    /// nodes.
    pub(crate) fn note_other_contents(&self, found: &DataShape) {
        let Progress { data, run, .. } = &self.progress;
        // Other codecs have other hashes of contents.
        let Some(trained) = data.of_run(*run) else { return };
        if data.sizes() == found.sizes() && Some(trained) != found.of_run(*run) {
            let file = self.file.as_deref().map_or("the checkpoint".to_owned(), |file| file.display().to_string());
            tracing::warn!(
                "{file}: trained on data of the same size with other contents, another split or another order of nodes: training nodes may be \
                 among the test nodes; give --split, --features, --symmetrize and --normalize-features as in training"
            );
        }
    }

    /// Hash of the whole checkpoint.
    #[must_use]
    pub(crate) fn identity(&self) -> u32 {
        self.checksum(&serde_json::to_string(&self.progress).expect("progress is numbers and names"))
    }

    /// Writes the checkpoint atomically: the file holds either the whole old state or the whole new one.
    ///
    /// # Errors
    /// When a value is not finite, so that training could not continue, or the file cannot be written. The old file
    /// is untouched then.
    pub fn save(&self, path: &Path) -> Result<(), TrainError> {
        let failed = |what: String| TrainError::checkpoint(path, what);
        if let Some((group, name, _)) = self.matrices().find(|(.., matrix)| matrix.check_finite().is_err()) {
            return Err(failed(format!(
                "not written: `{group}.{name}` has become infinite or NaN; an earlier checkpoint is kept as it is; train with a lower --lr"
            )));
        }
        let tensors = self.matrices().map(|(group, name, matrix)| {
            let view = TensorView::new(Dtype::F32, vec![matrix.n_rows(), matrix.n_cols()], bytes_of(matrix));
            view.map(|view| (format!("{group}.{name}"), view)).map_err(|e| failed(e.to_string()))
        });
        let tensors = tensors.collect::<Result<Vec<_>, TrainError>>()?;
        let progress = serde_json::to_string(&self.progress).map_err(|e| failed(e.to_string()))?;
        let metadata = format!("{:08x} {progress}", self.checksum(&progress));
        let metadata = HashMap::from([(METADATA_KEY.to_owned(), metadata)]);
        let bytes = safetensors::serialize(tensors, Some(metadata)).map_err(|e| failed(e.to_string()))?;
        Ok(file::write_file(path, |out| Ok(out.write_all(&bytes)?))?)
    }

    /// Reads a checkpoint.
    ///
    /// # Errors
    /// When the file cannot be read, is damaged, or has another version.
    pub fn load(path: &Path) -> Result<Self, TrainError> {
        let bytes = std::fs::read(path).map_err(|e| FormatError::io(e).at(path))?;
        let checkpoint = Self::parse(&bytes).map_err(|what| {
            TrainError::checkpoint(path, format!("not a usable checkpoint: {what}; train again or use another file"))
        })?;
        Ok(Self { file: Some(path.to_owned()), ..checkpoint })
    }

    /// Error that this checkpoint cannot be used, with its file.
    pub(crate) fn refused(&self, what: impl Into<String>) -> TrainError {
        match &self.file {
            Some(path) => TrainError::checkpoint(path, what),
            None => TrainError::invalid(what),
        }
    }

    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let (_, header) = SafeTensors::read_metadata(bytes).map_err(|e| e.to_string())?;
        let metadata = header.metadata().as_ref().and_then(|m| m.get(METADATA_KEY));
        let (stated, text) = metadata.and_then(|m| m.split_once(' ')).ok_or("it has no `girih` metadata")?;
        let Version { version } = serde_json::from_str(text).map_err(|e| e.to_string())?;
        if version != CHECKPOINT_VERSION {
            return Err(format!("it has version {version}, this program reads {CHECKPOINT_VERSION}"));
        }
        let progress: Progress = serde_json::from_str(text).map_err(|e| e.to_string())?;
        // Settings are validated here, because models are built from them before tensor sizes are compared.
        progress.config.validate().map_err(|error| error.to_string())?;
        let mut tensors = read_tensors(bytes)?;
        let mut group = |name| tensors.remove(name).unwrap_or_default();
        let (params, first, mut second, best_params) =
            (group("param"), group("moment1"), group("moment2"), group("best"));
        let moments = first.into_iter().map(|(name, a)| second.remove(&name).map(|b| (name, (a, b))));
        let moments = moments.collect::<Option<_>>().ok_or("the optimiser's state is incomplete")?;
        let checkpoint = Self { progress, params, moments, best_params, file: None };
        let checksum = format!("{:08x}", checkpoint.checksum(text));
        if stated != checksum {
            return Err(format!("its contents have the checksum {checksum}, but it states {stated}"));
        }
        Ok(checkpoint)
    }

    /// All matrices with group and name, groups in the order of [`GROUPS`] and names ascending.
    fn matrices(&self) -> impl Iterator<Item = (&'static str, &String, &Matrix)> {
        let params = self.params.iter().map(|(name, matrix)| (GROUPS[0], name, matrix));
        let first = self.moments.iter().map(|(name, (matrix, _))| (GROUPS[1], name, matrix));
        let second = self.moments.iter().map(|(name, (_, matrix))| (GROUPS[2], name, matrix));
        let best = self.best_params.iter().map(|(name, matrix)| (GROUPS[3], name, matrix));
        params.chain(first).chain(second).chain(best)
    }

    /// CRC-32 of the progress as JSON, then of each matrix's group, name and bytes.
    fn checksum(&self, progress: &str) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(progress.as_bytes());
        for (group, name, matrix) in self.matrices() {
            hasher.update(group.as_bytes());
            hasher.update(name.as_bytes());
            hasher.update(bytes_of(matrix));
        }
        hasher.finalize()
    }
}

fn read_tensors(bytes: &[u8]) -> Result<Tensors, String> {
    let mut tensors = Tensors::new();
    for (full_name, view) in SafeTensors::deserialize(bytes).map_err(|e| e.to_string())?.iter() {
        let group = full_name
            .split_once('.')
            .and_then(|(group, name)| GROUPS.into_iter().find(|known| *known == group).map(|group| (group, name)));
        let (group, name) = group.ok_or_else(|| format!("unknown tensor `{full_name}`"))?;
        let matrix = matrix_of(&view).ok_or_else(|| format!("tensor `{full_name}` is not a finite f32 matrix"))?;
        tensors.entry(group).or_default().insert(name.to_owned(), matrix);
    }
    Ok(tensors)
}

fn bytes_of(matrix: &Matrix) -> &[u8] {
    bytemuck::cast_slice(matrix.data())
}

fn matrix_of(view: &TensorView<'_>) -> Option<Matrix> {
    let &[n_rows, n_cols] = view.shape() else { return None };
    if view.dtype() != Dtype::F32 {
        return None;
    }
    let values = view.data().chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect::<Vec<_>>();
    let matrix = Matrix::new(n_rows, n_cols, values).ok()?;
    matrix.check_finite().ok().map(|()| matrix)
}
