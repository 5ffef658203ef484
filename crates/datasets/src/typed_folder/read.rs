//! Reading typed data from a folder.

use girih_compress::CompressedFeatures;
use girih_graph_format::file::{Folder, MANIFEST};
use girih_graph_format::{Csr, NodeId, NodeType, Notes, TypedGraph};

use super::names::add_lines;
use super::section::{EDGE_TYPES, NODE_TYPES, NodeTypeEntry, SECTION, Sections, TypeFeatureKind};
use crate::folder_arrays::{is_split_array, note_unread, read_dense, read_sparse, read_splits};
use crate::folder_labels::{LabelKind, labels_of_kind};
use crate::inventory::Inventory;
use crate::typed_parts::{StatedType, TypedParts, check_stated, other_target, type_number};
use crate::{
    Dataset, DatasetError, Features, Labels, LoadOptions, NameList, Names, ReverseEdges, TypeFeatures, reverses,
};

/// Reads typed data. Relations stay as they are stored, unless the options ask for reverses.
///
/// # Errors
/// When an array is missing, or contradicts the manifest or another one.
pub(crate) fn read(folder: &Folder, options: &LoadOptions, notes: &mut Notes) -> Result<Dataset, DatasetError> {
    let sections = Sections::read(folder)?;
    let in_manifest = |error: DatasetError| error.at(&folder.path().join(MANIFEST));
    let schema = sections.schema().map_err(in_manifest)?;
    let adjacencies = (0..sections.edges.len()).map(|number| Adjacency::open(folder, &sections, number));
    let adjacencies = adjacencies.collect::<Result<Vec<_>, _>>()?;
    check_sizes(&sections, &adjacencies).map_err(in_manifest)?;

    let relations = adjacencies.into_iter().enumerate().map(|(number, adjacency)| {
        let name = schema.edge_name(number);
        adjacency.into_csr(schema.shape(number)).map_err(|e| named(&e, &name).at(&folder.path().join(MANIFEST)))
    });
    let graph = TypedGraph::new(schema.clone(), relations.collect::<Result<_, _>>()?)?;
    let graph = reverses::with_option(graph, options.reverse.or(Some(ReverseEdges::No)), notes)?;
    let target = type_number(schema.node_types(), &sections.typed.target, "the target").map_err(in_manifest)?;
    let features = sections.nodes.iter().enumerate().map(|(number, of)| {
        let features = read_features(folder, number, of, options);
        features.map_err(|error| if error.path().is_some() { error } else { named(&error, &of.name) })
    });
    let features = features.collect::<Result<_, _>>()?;
    let splits = read_splits(folder, &format!("n{target}_"), sections.typed.n_splits)?;
    let labels = read_labels(folder, target, &sections)?;
    let names = read_names(folder, &sections)?;
    let target = chosen_target((&sections, schema.node_types()), target, labels.is_some(), options)?;
    let parts = TypedParts { graph, features, target, labels, splits, names };
    let dataset = parts.into_dataset(sections.typed.name)?;
    Ok(Dataset { generated: sections.typed.generated, ..dataset })
}

/// Target that the options name; the labels of a folder belong to one type.
fn chosen_target(
    (sections, types): (&Sections, &[NodeType]),
    target: usize,
    has_labels: bool,
    options: &LoadOptions,
) -> Result<usize, DatasetError> {
    let Some(name) = &options.target else { return Ok(target) };
    let chosen = type_number(types, name, "--target")?;
    if chosen == target || !has_labels && sections.typed.n_splits == 0 {
        return Ok(chosen);
    }
    Err(other_target(name, &sections.typed.target))
}

fn named(error: &DatasetError, name: &str) -> DatasetError {
    DatasetError::invalid(format!("{name}: {error}"))
}

/// Arrays of a relation.
struct Adjacency {
    indptr: girih_graph_format::Buffer<u64>,
    indices: girih_graph_format::Buffer<NodeId>,
}

impl Adjacency {
    fn open(folder: &Folder, sections: &Sections, number: usize) -> Result<Self, DatasetError> {
        let indptr = folder.array(&format!("e{number}_indptr"))?.into_offsets()?;
        let name = format!("e{number}_indices");
        let indices = folder.array(&name)?.into_ids()?;
        let (stated, found) = (sections.edges[number].nnz, indices.len());
        if found != stated {
            let relation = sections.edges[number].name.join(".");
            let what = format!("{found} edges of {relation}, and the manifest states {stated}");
            return Err(DatasetError::corrupt(what).at(&folder.file_of(&name)));
        }
        Ok(Self { indptr, indices })
    }

    fn into_csr(self, (n_rows, n_cols): (usize, usize)) -> Result<Csr, DatasetError> {
        Ok(Csr::new(n_rows, n_cols, self.indptr, self.indices, None)?)
    }
}

/// Checks the stated numbers of nodes against arrays, before anything is allocated for them.
fn check_sizes(sections: &Sections, adjacencies: &[Adjacency]) -> Result<(), DatasetError> {
    let stated: Vec<StatedType<'_>> = sections
        .nodes
        .iter()
        .map(|of| {
            let edges = || sections.edges.iter().zip(adjacencies);
            let is_end = |name: &[String; 3]| name[0] == of.name || name[2] == of.name;
            let is_borne_out = edges().any(|(entry, arrays)| {
                entry.name[2] == of.name && arrays.indptr.len().checked_sub(1) == Some(of.n_nodes)
            });
            let n_edges = edges().filter(|(entry, _)| is_end(&entry.name)).map(|(entry, _)| entry.nnz).sum();
            StatedType { name: &of.name, n_nodes: of.n_nodes, n_rows: is_borne_out.then_some(of.n_nodes), n_edges }
        })
        .collect();
    check_stated(&stated)
}

fn read_features(
    folder: &Folder,
    number: usize,
    of: &NodeTypeEntry,
    options: &LoadOptions,
) -> Result<TypeFeatures, DatasetError> {
    let name = format!("n{number}_features");
    let width = || {
        let kind = "features without n_features in the manifest";
        of.n_features.ok_or_else(|| DatasetError::corrupt(kind).at(&folder.path().join(MANIFEST)))
    };
    let features = match of.features {
        TypeFeatureKind::None => return Ok(TypeFeatures::None),
        TypeFeatureKind::Learned => return Ok(TypeFeatures::Learned(of.n_features)),
        TypeFeatureKind::Dense => read_dense(folder, &name, options)?,
        TypeFeatureKind::Compressed => Features::Compressed(CompressedFeatures::open(
            &folder.path().join(format!("{name}.codes")),
            options.verify,
        )?),
        TypeFeatureKind::Sparse => read_sparse(folder, &name, (of.n_nodes, width()?))?,
    };
    if features.width() != width()? || features.n_rows() != of.n_nodes {
        return Err(DatasetError::corrupt(format!(
            "features of {} rows and {} columns; the manifest states {} nodes and {} columns",
            features.n_rows(),
            features.width(),
            of.n_nodes,
            width()?
        )));
    }
    Ok(TypeFeatures::Given(features))
}

fn read_labels(folder: &Folder, target: usize, sections: &Sections) -> Result<Option<Labels>, DatasetError> {
    if sections.typed.labels == LabelKind::None {
        return Ok(None);
    }
    let array = folder.array(&format!("n{target}_labels"))?;
    labels_of_kind(array, sections.typed.labels, sections.typed.n_classes).map(Some)
}

fn read_names(folder: &Folder, sections: &Sections) -> Result<Option<Names>, DatasetError> {
    let with = sections.nodes.iter().filter(|of| of.names_crc32.is_some()).count();
    if with == 0 {
        return Ok(None);
    }
    let mut nodes = NameList::default();
    for (number, of) in sections.nodes.iter().enumerate() {
        let path = folder.path().join(format!("n{number}_names.txt"));
        let expected = of.names_crc32.ok_or_else(|| {
            let what = format!("names of other types, and none of {}", of.name);
            DatasetError::corrupt(what).at(&folder.path().join(MANIFEST))
        })?;
        let bytes = std::fs::read(&path).map_err(|error| DatasetError::from(error).at(&path))?;
        let found = crc32fast::hash(&bytes);
        let text = std::str::from_utf8(&bytes).ok().filter(|_| found == expected).ok_or_else(|| {
            DatasetError::corrupt(format!("checksum {found:08x}, the manifest has {expected:08x}")).at(&path)
        })?;
        add_lines(text, of.n_nodes, &mut nodes).map_err(|what| DatasetError::corrupt(what).at(&path))?;
    }
    Ok(Some(Names { nodes, classes: sections.typed.class_names.clone() }))
}

/// Notes the files, arrays and sections of a folder that loading does not use.
///
/// # Errors
/// When the manifest or the folder cannot be read.
pub(crate) fn notes_of(folder: &Folder) -> Result<Notes, DatasetError> {
    let sections = Sections::read(folder)?;
    let (mut notes, mut files) = (Notes::default(), Inventory::of_folder(folder.path())?);
    let is_used = |file: &str| file == MANIFEST || is_read(file, &sections).unwrap_or(false);
    files.take_all(is_used);
    note_unread(folder, &files, &[SECTION, NODE_TYPES, EDGE_TYPES], &mut notes);
    Ok(notes)
}

/// Whether loading reads a file of this name.
fn is_read(file: &str, sections: &Sections) -> Option<bool> {
    let (number, what) = file.split_once('_')?;
    if let Some(number) = number.strip_prefix('e') {
        let number: usize = number.parse().ok()?;
        return Some(number < sections.edges.len() && matches!(what, "indptr.npy" | "indices.npy"));
    }
    let of = sections.nodes.get(number.strip_prefix('n')?.parse::<usize>().ok()?)?;
    let is_target = of.name == sections.typed.target;
    Some(match what {
        "features.npy" => of.features == TypeFeatureKind::Dense,
        "features.codes" => of.features == TypeFeatureKind::Compressed,
        "features_indptr.npy" | "features_indices.npy" | "features_values.npy" => {
            of.features == TypeFeatureKind::Sparse
        }
        "names.txt" => of.names_crc32.is_some(),
        "labels.npy" => is_target && sections.typed.labels != LabelKind::None,
        _ => is_target && is_split_array(what.strip_suffix(".npy")?, sections.typed.n_splits),
    })
}
