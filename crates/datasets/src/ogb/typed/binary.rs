//! [`Archives`]: the form as archives of arrays.

use std::path::{Path, PathBuf};

use girih_graph_format::file::{Array, Npz};
use girih_graph_format::{Matrix, NodeType, Notes};

use super::form::{DEPTH, Form, Pairs, parts_of};
use crate::inventory::Inventory;
use crate::named_arrays::unambiguous_pairs;
use crate::ogb::{check_edges, only_graph};
use crate::{DatasetError, Labels, LoadOptions, labels};

/// Archive of the numbers of nodes, by type.
pub(super) const COUNTS: &str = "num_nodes_dict.npz";
/// Archive of the edges, by relation.
pub(super) const EDGES: &str = "edge_index_dict.npz";
/// Archive of the numbers of edges, by relation.
const EDGE_COUNTS: &str = "num_edges_dict.npz";
/// Archives of features and of labels, by type; may be missing.
const FEATURES: &str = "node_feat_dict.npz";
const LABELS: &str = "node-label.npz";

/// Raw folder of archives.
pub(super) struct Archives {
    raw: PathBuf,
    files: Inventory,
    features: Option<Archive>,
    labels: Option<Archive>,
}

/// Archive, and its members that are not read so far.
struct Archive {
    npz: Npz,
    left: Inventory,
}

impl Archive {
    fn open(path: &Path) -> Result<Self, DatasetError> {
        let npz = Npz::open(path)?;
        let left = Inventory::of_names(npz.members().iter().cloned());
        Ok(Self { npz, left })
    }

    fn take(&mut self, name: &str) -> Result<Option<Array>, DatasetError> {
        self.left.take(&format!("{name}.npy"));
        Ok(self.npz.try_array(name)?)
    }
}

impl Archives {
    /// Opens a folder.
    ///
    /// # Errors
    /// When it or an archive in it cannot be read.
    pub(super) fn open(raw: &Path) -> Result<Self, DatasetError> {
        let mut files = Inventory::of_tree(raw, DEPTH)?;
        let mut optional = |name: &str| {
            let is_there = files.has(name);
            files.take(name);
            is_there.then(|| Archive::open(&raw.join(name))).transpose()
        };
        let (features, labels) = (optional(FEATURES)?, optional(LABELS)?);
        let used = [COUNTS, EDGES, EDGE_COUNTS];
        // The reader of splits names those that it does not read.
        files.take_all(|name| used.contains(&name) || name.starts_with("split/"));
        Ok(Self { raw: raw.to_owned(), files, features, labels })
    }
}

impl Form for Archives {
    fn node_types(&mut self) -> Result<Vec<NodeType>, DatasetError> {
        let mut counts = Npz::open(&self.counts())?;
        let mut names: Vec<String> = counts.names().map(str::to_owned).collect();
        names.sort();
        let mut types = Vec::new();
        for name in names {
            let array = counts.array(&name)?;
            let origin = array.origin().to_owned();
            let n_nodes = only_graph(&array.into_offsets()?).map_err(|e| e.at(&origin))?;
            types.push(NodeType { name, n_nodes: n_nodes as usize });
        }
        Ok(types)
    }

    fn counts(&self) -> PathBuf {
        self.raw.join(COUNTS)
    }

    fn pairs(&mut self, _: &mut Notes) -> Result<Vec<Pairs>, DatasetError> {
        let (mut edges, mut counts) = (Npz::open(&self.raw.join(EDGES))?, Npz::open(&self.raw.join(EDGE_COUNTS))?);
        let names: Vec<String> = edges.names().map(str::to_owned).collect();
        let mut all = Vec::new();
        for full in names {
            let array = edges.array(&full)?;
            let origin = array.origin().to_owned();
            let of = parts_of(&full).ok_or_else(|| {
                let what = "expected SOURCE___RELATION___DESTINATION as its name, such as author___writes___paper";
                DatasetError::invalid(what).at(&origin)
            })?;
            let ids = unambiguous_pairs(array)?;
            let stated = counts.array(&full)?.into_offsets()?;
            only_graph(&stated).and_then(|n| check_edges(ids[0].len(), n)).map_err(|e| e.at(&origin))?;
            all.push(Pairs { of, origin, ids, lines: None });
        }
        all.sort_by(|one, other| one.of.cmp(&other.of));
        Ok(all)
    }

    fn features(&mut self, of: &str, _: &mut Notes) -> Result<Option<(Matrix, PathBuf)>, DatasetError> {
        let Some(array) = self.features.as_mut().map(|archive| archive.take(of)).transpose()?.flatten() else {
            return Ok(None);
        };
        let origin = array.origin().to_owned();
        Ok(Some((array.into_matrix()?, origin)))
    }

    fn has_labels(&self, of: &str) -> Result<bool, DatasetError> {
        Ok(self.labels.as_ref().is_some_and(|archive| archive.npz.contains(of)))
    }

    fn labels(
        &mut self,
        of: &str,
        options: &LoadOptions,
        notes: &mut Notes,
    ) -> Result<(Labels, PathBuf), DatasetError> {
        let found = self.labels.as_mut().map(|archive| archive.take(of)).transpose()?.flatten();
        let array = found.ok_or_else(|| DatasetError::invalid(format!("no array {of}")).at(&self.raw.join(LABELS)))?;
        let origin = array.origin().to_owned();
        Ok((labels::of_array(array, None, options, notes)?, origin))
    }

    fn note_rest(&self, notes: &mut Notes) {
        self.files.note_below("raw", notes);
        for (archive, name) in [(&self.features, FEATURES), (&self.labels, LABELS)] {
            archive.iter().for_each(|archive| archive.left.note_below(&format!("raw/{name}"), notes));
        }
    }
}
