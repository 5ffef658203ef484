//! Data sets in girih's own folder: a graph's folder with further arrays.
//!
//! ```text
//! girih.toml                    [dataset] name, generated, n_splits, features, labels, n_classes
//! indptr, indices, values       the graph
//! features                      float32, n × width, mapped on reading; or, sparse:
//! features_indptr, features_indices, features_values
//! features.codes                compressed features, in the place of the above
//! labels                        int32, n, -1 where unknown; or uint8, n × n_classes
//! split0_train, split0_val …    uint32 ids
//! edges_train, edges_val …      uint32, n × 2: a split of edges; negatives_val … or negative_destinations_val …
//! test_indptr, test_indices     test items of every user, for recommenders; training items are the graph
//! ```

use std::path::Path;
use std::sync::Arc;

use girih_compress::CompressedFeatures;
use girih_graph_format::file::{Array, Folder, FolderWriter, MANIFEST, Verify};
use girih_graph_format::{Csr, FormatError, Notes};
use serde::{Deserialize, Serialize};

use crate::edges::refuse_duplicates_option;
use crate::feature_file::open_store;
use crate::folder_arrays::{is_split_array, note_unread, read_dense, read_sparse, read_splits, split_array};
use crate::folder_labels::{LabelKind, label_array, labels_of_kind};
use crate::inventory::Inventory;
use crate::labels::MAX_CLASSES;
use crate::typed_folder::TypedSection;
use crate::{
    Dataset, DatasetError, FEATURE_STORE, Features, Interactions, Labels, LoadOptions, folder_edges, typed_folder,
};

/// Name of the data set's section in the manifest.
pub(crate) const SECTION: &str = "dataset";

/// Section of a data set in the manifest.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DatasetSection {
    pub(crate) name: String,
    pub(crate) generated: bool,
    pub(crate) n_splits: usize,
    pub(crate) features: FeatureKind,
    /// Width of the features; the arrays of sparse features do not give it.
    pub(crate) n_features: usize,
    pub(crate) labels: LabelKind,
    pub(crate) n_classes: usize,
    /// Number of users, which are the first nodes; only for recommenders.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) n_users: Option<usize>,
    /// Whether there is a split of edges.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) edge_split: bool,
}

impl DatasetSection {
    /// Reads the section of a folder, if it has one. Its numbers agree with arrays, or are below a limit.
    ///
    /// # Errors
    /// When a number disagrees, or a key is missing or unknown.
    pub(crate) fn of(folder: &Folder) -> Result<Option<Self>, DatasetError> {
        let Some(section) = folder.section::<Self>(SECTION)? else { return Ok(None) };
        let n_arrays = folder.names().count();
        let refused = if section.n_splits > n_arrays {
            format!("{} splits, and the folder has {n_arrays} arrays", section.n_splits)
        } else if section.labels == LabelKind::Single && section.n_classes > MAX_CLASSES as usize {
            format!("{} classes; at most {MAX_CLASSES} are supported", section.n_classes)
        } else {
            return Ok(Some(section));
        };
        Err(DatasetError::corrupt(format!("[{SECTION}] states {refused}")).at(&folder.path().join(MANIFEST)))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum FeatureKind {
    None,
    Dense,
    Sparse,
    Compressed,
}

impl Dataset {
    /// Writes the data set as a folder at `path`, which appears whole or not at all.
    ///
    /// # Errors
    /// When a typed graph has a split of edges or users and items, writing fails, or `path` exists and is not such a folder.
    pub fn save(&self, path: &Path) -> Result<(), DatasetError> {
        self.save_with(path, |_| Ok(()))
    }

    /// As [`save`](Self::save), and `more` adds to the folder before it appears.
    ///
    /// # Errors
    /// As [`save`](Self::save), and those of `more`.
    pub fn save_with(
        &self,
        path: &Path,
        more: impl FnOnce(&FolderWriter) -> Result<(), FormatError>,
    ) -> Result<(), DatasetError> {
        self.write(path, more).map_err(|e| e.at(path))
    }

    fn write(
        &self,
        path: &Path,
        more: impl FnOnce(&FolderWriter) -> Result<(), FormatError>,
    ) -> Result<(), DatasetError> {
        self.check_writable()?;
        let mut folder = FolderWriter::create(path)?;
        more(&folder)?;
        if let Some(typed) = &self.typed {
            typed_folder::write(&mut folder, self, typed)?;
            return Ok(folder.finish()?);
        }
        folder.graph(&self.graph)?;
        if let Some(features) = &self.features {
            write_features(&mut folder, features)?;
        }
        if let Some(labels) = &self.labels {
            label_array(&mut folder, "labels", labels)?;
        }
        for (i, split) in self.splits.iter().enumerate() {
            for (part, ids) in split.parts() {
                folder.array(&split_array(i, part), &[ids.len()], ids)?;
            }
        }
        if let Some(split) = &self.edge_split {
            folder_edges::write(&mut folder, split)?;
        }
        if let Some(interactions) = &self.interactions {
            let test = interactions.test();
            folder.array("test_indptr", &[test.indptr().len()], test.indptr())?;
            folder.array("test_indices", &[test.nnz()], test.indices())?;
        }
        folder.section(SECTION, &self.section())?;
        Ok(folder.finish()?)
    }

    fn section(&self) -> DatasetSection {
        DatasetSection {
            name: self.name.clone(),
            generated: self.generated,
            n_splits: self.splits.len(),
            features: match self.features {
                None => FeatureKind::None,
                Some(Features::Dense(_)) => FeatureKind::Dense,
                Some(Features::Sparse(_)) => FeatureKind::Sparse,
                Some(Features::Compressed(_)) => FeatureKind::Compressed,
            },
            n_features: self.n_features(),
            labels: LabelKind::of(self.labels.as_ref()),
            n_classes: self.n_classes(),
            n_users: self.interactions.as_ref().map(Interactions::n_users),
            edge_split: self.edge_split.is_some(),
        }
    }
}

fn write_features(folder: &mut FolderWriter, features: &Features) -> Result<(), DatasetError> {
    match features {
        Features::Dense(matrix) => folder.array("features", &[matrix.n_rows(), matrix.n_cols()], matrix.data())?,
        // A store has its own checksums, and is not an array.
        Features::Compressed(features) => features.save(&folder.path_of(FEATURE_STORE))?,
        Features::Sparse(csr) => {
            folder.array("features_indptr", &[csr.indptr().len()], csr.indptr())?;
            folder.array("features_indices", &[csr.nnz()], csr.indices())?;
            if let Some(values) = csr.values() {
                folder.array("features_values", &[csr.nnz()], values)?;
            }
        }
    }
    Ok(())
}

/// Name of the data set that [`Dataset::save`] wrote to a folder; `None` when there is no such folder. Arrays are not
/// read.
#[must_use]
pub fn saved_name(path: &Path) -> Option<String> {
    let folder = Folder::open(path, Verify::Structure).ok()?;
    let plain = || folder.section::<DatasetSection>(SECTION).ok().flatten().map(|section| section.name);
    let typed = || folder.section::<TypedSection>(typed_folder::SECTION).ok().flatten().map(|section| section.name);
    plain().or_else(typed)
}

/// Loads a folder that [`Dataset::save`] wrote, or one that holds a graph alone; arrays are mapped.
///
/// # Errors
/// When a file is missing, differs from the manifest, or breaks a rule of [`Dataset`].
pub(crate) fn load(path: &Path, options: &LoadOptions) -> Result<Dataset, DatasetError> {
    refuse_duplicates_option(options, "a girih folder stores each pair of nodes once").map_err(|e| e.at(path))?;
    let folder = Folder::open(path, options.verify)?;
    if typed_folder::is_typed(&folder) {
        options.check_typed_flags(&["--reverse", "--target"]).map_err(|e| e.at(path))?;
        let mut notes = typed_folder::notes_of(&folder).map_err(|e| e.at(path))?;
        let dataset = typed_folder::read(&folder, options, &mut notes).map_err(|e| e.at(path))?;
        return Ok(Dataset { notes, ..dataset });
    }
    options.check_typed_flags(&[]).map_err(|e| e.at(path))?;
    let notes = notes_of(&folder).map_err(|e| e.at(path))?;
    let dataset = read(&folder, options).map_err(|e| e.at(path))?;
    Ok(Dataset { notes, ..dataset })
}

/// Array of the node order that `girih reorder` writes for the user; loading ignores it.
const ORDER: &str = "new_of_old";
/// Sections of the manifest that loading reads.
const SECTIONS: [&str; 2] = ["graph", SECTION];

/// Notes the files, arrays and sections of a folder that loading does not use.
pub(crate) fn notes_of(folder: &Folder) -> Result<Notes, DatasetError> {
    let section = DatasetSection::of(folder)?;
    let mut notes = Notes::default();
    let mut files = Inventory::of_folder(folder.path())?;
    files.take(MANIFEST);
    files.take(FEATURE_STORE);
    folder.names().filter(|name| is_read(name, section.as_ref())).for_each(|name| files.take(&format!("{name}.npy")));
    note_unread(folder, &files, &SECTIONS, &mut notes);
    let replaced = section.is_some_and(|section| matches!(section.features, FeatureKind::Dense | FeatureKind::Sparse));
    if replaced && folder.path().join(FEATURE_STORE).is_file() {
        let text = format!("features are the codes of {FEATURE_STORE}, in the place of the arrays of features");
        notes.make_up("compressed_features", text, &[]);
    }
    Ok(notes)
}

/// Whether loading reads an array of the manifest.
fn is_read(name: &str, section: Option<&DatasetSection>) -> bool {
    let Some(section) = section else { return matches!(name, "indptr" | "indices" | "values" | ORDER) };
    match name {
        "indptr" | "indices" | "values" | ORDER => true,
        "features" => section.features == FeatureKind::Dense,
        "features_indptr" | "features_indices" | "features_values" => section.features == FeatureKind::Sparse,
        "labels" => section.labels != LabelKind::None,
        "test_indptr" | "test_indices" => section.n_users.is_some(),
        _ if folder_edges::is_edge_array(name) => section.edge_split,
        _ => is_split_array(name, section.n_splits),
    }
}

/// Refuses a folder that girih has written and that has lost its manifest. Without the manifest, its splits and
/// labels would be misread.
///
/// # Errors
/// When the folder has arrays whose names only girih uses.
pub(crate) fn refuse_without_manifest(path: &Path) -> Result<(), DatasetError> {
    let has = |name: &str| path.join(format!("{name}.npy")).is_file();
    let tell_tale = ["split0_train", "split0_val", "split0_test", "test_indptr", "features_indptr"];
    let is_named_sparse = has("features_shape");
    let Some(name) = tell_tale.into_iter().find(|name| has(name) && !(is_named_sparse && *name == "features_indptr"))
    else {
        return Ok(());
    };
    if !has("indptr") || !has("indices") {
        return Ok(());
    }
    Err(DatasetError::invalid(format!(
        "{name}.npy is an array of a girih folder, and the folder's {MANIFEST} is missing, which says what its arrays \
         mean; copy {MANIFEST} from where the folder comes from, or rename {name}.npy and its like to be read as loose \
         arrays (train_idx, val_idx, test_idx)"
    ))
    .at(path))
}

fn read(folder: &Folder, options: &LoadOptions) -> Result<Dataset, DatasetError> {
    let graph = folder.graph()?;
    let Some(section) = DatasetSection::of(folder)? else {
        let name = folder.path().file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let store = folder.path().join(FEATURE_STORE);
        let features = store.is_file().then(|| open_store(&store, graph.n_rows(), options.verify)).transpose()?;
        return Dataset::new(name, graph, features, None, Vec::new());
    };
    let features = read_features(folder, &section, graph.n_rows(), options)?;
    let labels = read_labels(folder, &section)?;
    let splits = read_splits(folder, "", section.n_splits)?;
    let interactions = section.n_users.map(|n_users| read_interactions(folder, n_users, &graph)).transpose()?;
    let dataset = Dataset::new(section.name, graph, features, labels, splits)?;
    let edge_split = section.edge_split.then(|| folder_edges::read(folder).map(Arc::new)).transpose()?;
    let dataset = Dataset { generated: section.generated, interactions, edge_split, ..dataset };
    dataset.validate()?;
    Ok(dataset)
}

fn read_interactions(folder: &Folder, n_users: usize, graph: &Csr) -> Result<Interactions, DatasetError> {
    let n_nodes = graph.n_rows();
    let train = graph.block(0..n_users, n_users..n_nodes)?;
    let indptr = folder.array("test_indptr")?.into_offsets()?;
    let indices = folder.array("test_indices")?.into_ids()?;
    let test = Csr::new(n_users, train.n_cols(), indptr, indices, None)?;
    Interactions::new(train, test)
}

/// Reads the compressed features of a folder, if it has them.
pub(crate) fn read_store(
    folder: &Folder,
    section: &DatasetSection,
    n_nodes: usize,
    verify: Verify,
) -> Result<Option<CompressedFeatures>, DatasetError> {
    let store = folder.path().join(FEATURE_STORE);
    if !store.is_file() && section.features != FeatureKind::Compressed {
        return Ok(None);
    }
    let features = CompressedFeatures::open(&store, verify)?;
    features.check_nodes(n_nodes).map_err(|e| e.at(&store))?;
    let (width, stated) = (features.width(), section.n_features);
    if width != stated && section.features != FeatureKind::None {
        let message = format!(
            "compressed features of {width} columns in a folder of data with {stated}; encode the features of this data"
        );
        return Err(DatasetError::invalid(message).at(&store));
    }
    Ok(Some(features))
}

/// Reads the features of a folder; compressed ones replace the features that the manifest names.
fn read_features(
    folder: &Folder,
    section: &DatasetSection,
    n: usize,
    options: &LoadOptions,
) -> Result<Option<Features>, DatasetError> {
    if let Some(features) = read_store(folder, section, n, options.verify)? {
        return Ok(Some(Features::Compressed(features)));
    }
    Ok(match section.features {
        FeatureKind::None | FeatureKind::Compressed => None,
        FeatureKind::Dense => Some(read_dense(folder, "features", options)?),
        FeatureKind::Sparse => Some(read_sparse(folder, "features", (n, section.n_features))?),
    })
}

fn read_labels(folder: &Folder, section: &DatasetSection) -> Result<Option<Labels>, DatasetError> {
    if section.labels == LabelKind::None {
        return Ok(None);
    }
    labels_of(folder.array("labels")?, section).map(Some)
}

/// Converts an array to the labels of all nodes.
pub(crate) fn labels_of(array: Array, section: &DatasetSection) -> Result<Labels, DatasetError> {
    labels_of_kind(array, section.labels, section.n_classes)
}
