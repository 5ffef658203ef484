//! Sections of typed data in the manifest.

use girih_graph_format::file::{Folder, MANIFEST};
use girih_graph_format::{EdgeType, NodeType, Schema};
use serde::{Deserialize, Serialize};

use crate::folder_labels::LabelKind;
use crate::labels::MAX_CLASSES;
use crate::{Dataset, DatasetError, Features, TypeFeatures, TypedData};

/// Name of the section of typed data.
pub(crate) const SECTION: &str = "typed";
/// Name of the list of node types.
pub(super) const NODE_TYPES: &str = "node_types";
/// Name of the list of edge types.
pub(super) const EDGE_TYPES: &str = "edge_types";

/// Whether a folder has typed data.
pub(crate) fn is_typed(folder: &Folder) -> bool {
    folder.section_names().any(|name| name == SECTION)
}

/// Section of typed data.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TypedSection {
    pub(crate) name: String,
    pub(super) generated: bool,
    /// Name of the node type with labels and splits.
    pub(super) target: String,
    pub(super) n_splits: usize,
    pub(super) labels: LabelKind,
    pub(super) n_classes: usize,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) class_names: Vec<String>,
}

/// Features of a node type in the manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum TypeFeatureKind {
    None,
    Dense,
    Sparse,
    Compressed,
    Learned,
}

/// Node type in the manifest.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NodeTypeEntry {
    pub(super) name: String,
    pub(super) n_nodes: usize,
    pub(super) features: TypeFeatureKind,
    /// Width of the features; none where models choose it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) n_features: Option<usize>,
    /// CRC-32 (IEEE) of the file of names, if nodes have names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) names_crc32: Option<u32>,
}

/// Edge type in the manifest.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EdgeTypeEntry {
    /// Source type, relation, destination type.
    pub(super) name: [String; 3],
    pub(super) nnz: usize,
    /// Whether pairs may repeat.
    pub(super) repeats: bool,
    /// Number of the edge type whose edges this one has in the other direction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) reverse_of: Option<usize>,
}

/// All sections of typed data.
pub(super) struct Sections {
    pub(super) typed: TypedSection,
    pub(super) nodes: Vec<NodeTypeEntry>,
    pub(super) edges: Vec<EdgeTypeEntry>,
}

impl Sections {
    /// Sections of a data set; `names` are the checksums of the files of names.
    pub(super) fn of(dataset: &Dataset, typed: &TypedData, names: &[Option<u32>]) -> Self {
        let schema = typed.graph.schema();
        let types = schema.node_types();
        let nodes = types.iter().enumerate().map(|(number, of)| {
            let (features, n_features) = stored(dataset, typed, number);
            NodeTypeEntry {
                name: of.name.clone(),
                n_nodes: of.n_nodes,
                features,
                n_features,
                names_crc32: names[number],
            }
        });
        let edges = typed.graph.relations().iter().enumerate().map(|(number, relation)| EdgeTypeEntry {
            name: schema.edge_parts(number).map(str::to_owned),
            nnz: relation.nnz(),
            repeats: false,
            reverse_of: schema.edge_types()[number].reverse_of,
        });
        let class_names = dataset.names.as_ref().map_or_else(Vec::new, |names| names.classes.clone());
        let section = TypedSection {
            name: dataset.name.clone(),
            generated: dataset.generated,
            target: types[typed.target].name.clone(),
            n_splits: dataset.splits.len(),
            labels: LabelKind::of(dataset.labels.as_ref()),
            n_classes: dataset.n_classes(),
            class_names,
        };
        Self { typed: section, nodes: nodes.collect(), edges: edges.collect() }
    }

    /// Reads the sections of a folder.
    ///
    /// # Errors
    /// When a section is missing or has unknown keys, or a number is beyond a limit.
    pub(super) fn read(folder: &Folder) -> Result<Self, DatasetError> {
        Self::of_manifest(folder).map_err(|error| error.at(&folder.path().join(MANIFEST)))
    }

    fn of_manifest(folder: &Folder) -> Result<Self, DatasetError> {
        let missing = |name: &str| DatasetError::corrupt(format!("typed data without {name}"));
        let typed: TypedSection = folder.section(SECTION)?.ok_or_else(|| missing("[typed]"))?;
        let nodes = folder.section(NODE_TYPES)?.ok_or_else(|| missing("[[node_types]]"))?;
        let edges: Vec<EdgeTypeEntry> = folder.section(EDGE_TYPES)?.unwrap_or_default();
        let n_arrays = folder.names().count();
        let refused = if folder.section_names().any(|name| name == "graph") {
            "both [typed] and [graph]; typed data has its relations alone".to_owned()
        } else if typed.n_splits > n_arrays {
            format!("[{SECTION}] states {} splits, and the folder has {n_arrays} arrays", typed.n_splits)
        } else if typed.labels == LabelKind::Single && typed.n_classes > MAX_CLASSES as usize {
            format!("[{SECTION}] states {} classes; at most {MAX_CLASSES} are supported", typed.n_classes)
        } else if let Some(edges) = edges.iter().find(|edges| edges.repeats) {
            format!("{} has repeated pairs, which this program does not read", edges.name.join("."))
        } else {
            return Ok(Self { typed, nodes, edges });
        };
        Err(DatasetError::corrupt(refused))
    }

    /// Types of nodes and edges, checked.
    pub(super) fn schema(&self) -> Result<Schema, DatasetError> {
        let node_types: Vec<NodeType> =
            self.nodes.iter().map(|of| NodeType { name: of.name.clone(), n_nodes: of.n_nodes }).collect();
        let end = |edges: &EdgeTypeEntry, name: &str| {
            node_types.iter().position(|of| of.name == *name).ok_or_else(|| {
                let known = node_types.iter().map(|of| of.name.as_str()).collect::<Vec<_>>().join(", ");
                let relation = edges.name.join(".");
                DatasetError::corrupt(format!("{relation} has an end of type {name}, and the types are {known}"))
            })
        };
        let edge_types = self.edges.iter().map(|edges| {
            let [source, relation, destination] = &edges.name;
            Ok::<_, DatasetError>(EdgeType {
                relation: relation.clone(),
                source: end(edges, source)?,
                destination: end(edges, destination)?,
                reverse_of: edges.reverse_of,
            })
        });
        let edge_types = edge_types.collect::<Result<_, _>>()?;
        Ok(Schema::new(node_types, edge_types)?)
    }
}

/// Kind and width of the features of a node type.
fn stored(dataset: &Dataset, typed: &TypedData, number: usize) -> (TypeFeatureKind, Option<usize>) {
    match (dataset.features_of_type(number), typed.features.get(number)) {
        (Some(features), _) => {
            let kind = match features {
                Features::Dense(_) => TypeFeatureKind::Dense,
                Features::Sparse(_) => TypeFeatureKind::Sparse,
                Features::Compressed(_) => TypeFeatureKind::Compressed,
            };
            (kind, Some(features.width()))
        }
        (None, Some(TypeFeatures::Learned(width))) => (TypeFeatureKind::Learned, *width),
        (None, _) => (TypeFeatureKind::None, None),
    }
}
