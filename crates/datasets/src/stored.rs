//! [`StoredDataset`]: a folder of girih's whose rows are read on request.

use std::ops::Range;
use std::path::Path;

use girih_compress::{CodecSpec, CompressedFeatures};
use girih_graph_format::file::{Array, Folder, GraphSizes, MANIFEST, Values, Verify};
use girih_graph_format::{Buffer, Csr, NodeId, Notes, RelationSizes, places_of};

use crate::folder::{DatasetSection, FeatureKind, labels_of, notes_of, read_store};
use crate::folder_arrays::{PARTS, split_array};
use crate::folder_labels::LabelKind;
use crate::load::check_strict;
use crate::{Dataset, DatasetError, FeatureNorm, Features, Labels, LoadOptions, NodeRows, Outline, Spec, Split, load};

/// Arrays of sparse features.
pub(crate) const SPARSE: [&str; 3] = ["features_indptr", "features_indices", "features_values"];

/// Data set in a folder of girih's, whose rows are read on request and then checked as those of a [`Dataset`].
/// Opening it reads the manifest and the headers of the arrays.
#[derive(Clone, Debug)]
pub struct StoredDataset {
    spec: String,
    options: LoadOptions,
    pub(crate) folder: std::sync::Arc<Folder>,
    section: DatasetSection,
    pub(crate) graph: GraphSizes,
    pub(crate) store: Option<CompressedFeatures>,
    outline: Outline,
    notes: Notes,
}

impl StoredDataset {
    /// Opens the folder that a SPEC names. `None` when it names other data, or data that have to be read as a whole.
    /// That is the case if loading changes them (other features or labels, edges in both directions, features to be
    /// divided or encoded). It is also the case for users and items, and for arrays of types that girih does not
    /// write.
    ///
    /// # Errors
    /// When the SPEC is wrong, or the folder is damaged as far as it is read.
    pub fn open(spec: &str, options: &LoadOptions) -> Result<Option<Self>, DatasetError> {
        let Spec::Path(path) = spec.parse()? else { return Ok(None) };
        let is_changed = options.features.is_some()
            || options.labels.is_some()
            || options.symmetrize == Some(true)
            || options.random_split
            || options.duplicates.is_some()
            || options.typed_flag(&[]).is_some()
            || options.feature_norm.is_some_and(|norm| norm != FeatureNorm::None);
        if !path.join(MANIFEST).is_file() || is_changed {
            return Ok(None);
        }
        Self::of_folder(spec, &path, options).map_err(|e| e.at(&path))
    }

    fn of_folder(spec: &str, path: &Path, options: &LoadOptions) -> Result<Option<Self>, DatasetError> {
        let folder = Folder::open(path, Verify::Structure)?;
        let Some(section) = DatasetSection::of(&folder)? else { return Ok(None) };
        let graph = folder.graph_sizes()?;
        let is_other = section.n_users.is_some() || section.edge_split || graph.n_rows != graph.n_cols;
        if is_other || options.split.is_some_and(|split| split >= section.n_splits) {
            return Ok(None);
        }
        let store = read_store(&folder, &section, graph.n_rows, Verify::Structure)?;
        let notes = notes_of(&folder)?;
        check_strict(&notes, options)?;
        let splits = split_sizes(&folder, options.split.map_or(0..section.n_splits, |split| split..split + 1))?;
        let outline = outline(&section, &graph, store.as_ref(), splits);
        let (spec, options, folder) = (spec.to_owned(), options.clone(), folder.into());
        let outline = outline.with_features_from(options.features_from)?;
        let stored = Self { spec, options, folder, section, graph, store, outline, notes };
        let is_encoded = stored.options.codec.is_none_or(|codec| stored.has_codes_of(codec));
        Ok((is_encoded && stored.lies_as_it_is_used()?).then_some(stored))
    }

    /// Whether the features are codes of this codec.
    pub(crate) fn has_codes_of(&self, codec: CodecSpec) -> bool {
        self.store.as_ref().is_some_and(|store| codec.accepts(store.codec().spec(), store.codec().row_bytes()))
    }

    /// Whether all arrays are mapped, in the types that girih writes, with one row per node where required.
    fn lies_as_it_is_used(&self) -> Result<bool, DatasetError> {
        let (n, section) = (self.graph.n_rows, &self.section);
        for name in self.arrays() {
            let array = self.folder.array(&name)?;
            let fits = match (name.as_str(), section.labels) {
                ("features", _) => array.shape() == [n, section.n_features],
                ("labels", LabelKind::Multi) => array.shape() == [n, section.n_classes],
                ("labels", _) => array.shape() == [n],
                _ if name.starts_with("split") => matches!(array.values(), Values::U32(_)) && array.shape().len() == 1,
                _ => true,
            };
            if !fits || array.mapped_bytes().is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Names of the arrays that are read.
    pub(crate) fn arrays(&self) -> Vec<String> {
        let mut names = self.graph_arrays();
        names.extend(self.feature_arrays().iter().map(ToString::to_string));
        if self.section.labels != LabelKind::None {
            names.push("labels".to_owned());
        }
        names.extend(self.splits().flat_map(|i| PARTS.map(|part| split_array(i, part))));
        names
    }

    fn graph_arrays(&self) -> Vec<String> {
        let names = ["indptr", "indices", "values"];
        names[..if self.graph.weighted { 3 } else { 2 }].iter().map(ToString::to_string).collect()
    }

    /// Arrays of the features; none for compressed ones.
    pub(crate) fn feature_arrays(&self) -> &'static [&'static str] {
        match self.section.features {
            _ if self.store.is_some() => &[],
            FeatureKind::None | FeatureKind::Compressed => &[],
            FeatureKind::Dense => &["features"],
            FeatureKind::Sparse if self.folder.contains(SPARSE[2]) => &SPARSE,
            FeatureKind::Sparse => &SPARSE[..2],
        }
    }

    pub(crate) fn has_labels(&self) -> bool {
        self.section.labels != LabelKind::None
    }

    /// Numbers of the split sets in use.
    pub(crate) fn splits(&self) -> impl Iterator<Item = usize> + use<> {
        match self.options.split {
            Some(split) => split..split + 1,
            None => 0..self.section.n_splits,
        }
    }

    /// Outline of the whole data set.
    #[must_use]
    pub fn outline(&self) -> &Outline {
        &self.outline
    }

    /// Notes of the entries that are not used.
    #[must_use]
    pub fn notes(&self) -> &Notes {
        &self.notes
    }

    /// Hash of the sizes and checksums that the folder states, and of the choice of split.
    #[must_use]
    pub fn fingerprint(&self) -> u32 {
        let mut hash = crc32fast::Hasher::new();
        hash.update(&self.folder.fingerprint().to_le_bytes());
        hash.update(format!("{:?}", self.options.split).as_bytes());
        hash.update(&self.store.as_ref().map_or(0, CompressedFeatures::stated_checksum).to_le_bytes());
        hash.finalize()
    }

    /// Offsets of all rows of the graph, which are not checked against each other.
    ///
    /// # Errors
    /// When their number does not match the rows, or they cannot be read.
    pub fn offsets(&self) -> Result<Buffer<u64>, DatasetError> {
        let array = self.folder.array("indptr")?;
        let offsets = array.clone().into_offsets()?;
        if offsets.len() != self.graph.n_rows + 1 {
            let message = format!("{} offsets for {} rows", offsets.len(), self.graph.n_rows);
            return Err(DatasetError::corrupt(message).at(array.origin()));
        }
        Ok(offsets)
    }

    /// Reads consecutive rows of the graph, with all columns.
    ///
    /// # Errors
    /// When the rows break an invariant of a [`Csr`], or the file cannot be read.
    pub fn graph_rows(&self, rows: Range<usize>) -> Result<Csr, DatasetError> {
        Ok(self.folder.graph_rows(rows)?)
    }

    /// Reads features, labels and splits of some consecutive nodes.
    ///
    /// # Errors
    /// When a row breaks a rule of a [`Dataset`], or a file cannot be read.
    pub fn rows(&self, nodes: Range<usize>) -> Result<NodeRows, DatasetError> {
        let counted = |e: DatasetError| {
            let message = format!("nodes counted from {}: {e}", nodes.start);
            DatasetError::invalid(message).at(self.folder.path())
        };
        let features = self.features_of(nodes.clone())?;
        if let Some(features) = &features {
            features.validate(nodes.len()).map_err(counted)?;
        }
        let labels = self.labels_of(nodes.clone())?;
        if let Some(labels) = &labels {
            labels.validate(nodes.len()).map_err(counted)?;
        }
        let splits = self.splits().map(|i| {
            let split = self.split_of(i, &nodes)?;
            split.validate(nodes.len()).map_err(|what| counted(DatasetError::invalid(format!("split {i}: {what}"))))?;
            Ok(split)
        });
        let splits = splits.collect::<Result<Vec<_>, DatasetError>>()?;
        Ok(NodeRows { first_value: self.first_value(nodes.start)?, features, labels, splits })
    }

    fn features_of(&self, nodes: Range<usize>) -> Result<Option<Features>, DatasetError> {
        if let Some(store) = &self.store {
            return Ok(Some(Features::Compressed(store.rows(nodes))));
        }
        Ok(match self.section.features {
            FeatureKind::None | FeatureKind::Compressed => None,
            FeatureKind::Dense => Some(Features::Dense(self.folder.array("features")?.slice(nodes)?.into_matrix()?)),
            FeatureKind::Sparse => {
                let sizes = (nodes, self.graph.n_rows, self.section.n_features);
                let weighted = self.folder.contains(SPARSE[2]);
                Some(Features::Sparse(self.folder.csr_rows(SPARSE, sizes, weighted)?))
            }
        })
    }

    /// Number of stored values of sparse features of all nodes before `node`.
    fn first_value(&self, node: usize) -> Result<usize, DatasetError> {
        if self.feature_arrays().first() != Some(&SPARSE[0]) {
            return Ok(0);
        }
        let offset = self.folder.array(SPARSE[0])?.slice(node..node + 1)?.into_offsets()?;
        Ok(offset[0] as usize)
    }

    pub(crate) fn labels_of(&self, nodes: Range<usize>) -> Result<Option<Labels>, DatasetError> {
        if !self.has_labels() {
            return Ok(None);
        }
        labels_of(self.folder.array("labels")?.slice(nodes)?, &self.section).map(Some)
    }

    fn split_of(&self, i: usize, nodes: &Range<usize>) -> Result<Split, DatasetError> {
        let part = |name: &str| -> Result<Vec<NodeId>, DatasetError> {
            let ids = self.part_of_split(&split_array(i, name), nodes)?.0.into_ids()?;
            ids.iter()
                .map(|&id| {
                    let inside = nodes.contains(&(id as usize)).then(|| id - nodes.start as NodeId);
                    inside.ok_or_else(|| {
                        DatasetError::invalid(format!("{name}: node {id} is not in its place; ids must ascend"))
                    })
                })
                .collect()
        };
        Ok(Split { train: part(PARTS[0])?, val: part(PARTS[1])?, test: part(PARTS[2])? })
    }

    /// Ids of a split array that lie in a range, and their positions in the array, by a search in the ascending ids.
    pub(crate) fn part_of_split(
        &self,
        name: &str,
        nodes: &Range<usize>,
    ) -> Result<(Array, Range<usize>), DatasetError> {
        let array = self.folder.array(name)?;
        let places = match array.values() {
            Values::U32(ids) => places_of(ids, nodes),
            _ => 0..0,
        };
        Ok((array.slice(places.clone())?, places))
    }

    /// Names of the arrays of a split set.
    pub(crate) fn split_arrays(i: usize) -> [String; 3] {
        PARTS.map(|part| split_array(i, part))
    }

    /// Loads the whole data set, as [`load()`] does.
    ///
    /// # Errors
    /// As [`load()`].
    pub fn load(self) -> Result<Dataset, DatasetError> {
        load(&self.spec, &self.options)
    }
}

/// Sizes of the parts of some split sets, from the headers of their arrays.
fn split_sizes(folder: &Folder, sets: Range<usize>) -> Result<Vec<[usize; 3]>, DatasetError> {
    let size = |i: usize, part: &str| Ok::<_, DatasetError>(folder.array(&split_array(i, part))?.values().len());
    sets.map(|i| Ok([size(i, PARTS[0])?, size(i, PARTS[1])?, size(i, PARTS[2])?])).collect()
}

fn outline(
    section: &DatasetSection,
    graph: &GraphSizes,
    store: Option<&CompressedFeatures>,
    splits: Vec<[usize; 3]>,
) -> Outline {
    Outline {
        name: section.name.clone(),
        generated: section.generated,
        n_nodes: graph.n_rows,
        n_edges: graph.nnz,
        n_features: store.map_or(section.n_features, CompressedFeatures::width),
        features_from: None,
        weighted: graph.weighted,
        edge_features: None,
        codes: store.map(|store| (store.codec().spec().to_string(), store.codec().row_bytes())),
        n_classes: if section.labels == LabelKind::None { 0 } else { section.n_classes },
        multi_label: section.labels == LabelKind::Multi,
        splits,
        n_users: None,
        triples: None,
        schema: None,
        relations: RelationSizes::of_plain(graph.n_rows, graph.nnz),
        type_widths: Vec::new(),
        target: 0,
    }
}
