//! [`TypeFolders`]: arrays in a folder for each type of nodes and each relation, the layout of MAG240M and of IGB.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use girih_graph_format::file::Array;
use girih_graph_format::{EdgeType, NodeId, NodeType, Notes, TypedGraph};

use crate::inventory::Inventory;
use crate::named_arrays::unambiguous_pairs;
use crate::typed_parts::{Relations, StatedType, check_stated, n_named, note_counted};
use crate::{Dataset, DatasetError, Features, LoadOptions, TypeFeatures};

/// Folder of the folders of types and relations.
pub(crate) const PROCESSED: &str = "processed";
/// File of features in the folder of a type.
pub(crate) const FEATURES: &str = "node_feat.npy";
/// Start of the names of files of labels in the folder of a type.
const LABELS: &str = "node_label";
/// Type that both sets classify.
const PAPERS: &str = "paper";
/// File of the pairs of a relation in its folder.
const EDGES: &str = "edge_index.npy";

/// Open folder of the folders of types and relations.
pub(crate) struct TypeFolders {
    path: PathBuf,
    /// Separator of the parts of a relation's full name.
    joint: &'static str,
    /// Names of types, ascending.
    names: Vec<String>,
    /// Source type, relation and destination type of each relation, ascending.
    relations: Vec<[String; 3]>,
    /// Files that are not read so far, by their paths below the folder.
    files: Inventory,
}

/// Folder of the folders of types and relations, given itself or the folder above as `path`. There has to be a relation
/// with this separator in its name.
pub(crate) fn find(path: &Path, joint: &str) -> Option<PathBuf> {
    let has_relation = |folder: &PathBuf| {
        let entries = Inventory::of_folder(folder).unwrap_or_default();
        let mut relations = entries.left().filter(|name| relation_of(name.trim_end_matches('/'), joint).is_some());
        relations.any(|name| folder.join(name).join(EDGES).is_file())
    };
    [path.join(PROCESSED), path.to_owned()].into_iter().find(has_relation)
}

/// Data of a folder that [`find`] has found, as `read` makes it of the open folder and its [root](TypeFolders::root).
///
/// # Errors
/// When the folder cannot be opened, or as `read`; each error names its file or the root.
pub(crate) fn load(
    path: &Path,
    joint: &'static str,
    read: impl FnOnce(&mut TypeFolders, &Path) -> Result<Dataset, DatasetError>,
) -> Result<Dataset, DatasetError> {
    let mut folders = TypeFolders::open(path, joint)?;
    let root = folders.root().to_owned();
    read(&mut folders, &root).map_err(|error| error.at(&root))
}

/// Source type, relation and destination type in the name of a folder.
fn relation_of(folder: &str, joint: &str) -> Option<[String; 3]> {
    let parts: Vec<&str> = folder.split(joint).collect();
    let [source, relation, destination] = parts[..] else { return None };
    let parts = [source, relation, destination];
    let is_name = |part: &&str| !part.is_empty() && !part.starts_with('_') && !part.ends_with('_');
    parts.iter().all(is_name).then(|| parts.map(str::to_owned))
}

impl TypeFolders {
    /// Opens a folder that [`find`] has found.
    ///
    /// # Errors
    /// When it cannot be read, or a relation has no edges, naming its folder.
    fn open(path: &Path, joint: &'static str) -> Result<Self, DatasetError> {
        let path = std::path::absolute(path).map_err(|e| DatasetError::from(e).at(path))?;
        let mut files = Inventory::of_tree(&path, 1)?;
        let (mut names, mut relations) = (BTreeSet::new(), BTreeSet::new());
        for (folder, file) in files.left().filter_map(|file| file.split_once('/')) {
            if let Some(parts) = relation_of(folder, joint) {
                relations.insert(parts);
            } else if file == FEATURES || file.starts_with(LABELS) {
                names.insert(folder.to_owned());
            }
        }
        for parts in &relations {
            let folder = parts.join(joint);
            if !files.has(&format!("{folder}/{EDGES}")) {
                let what = "there is no such file, and its folder has the name of a relation; fetch it again";
                return Err(DatasetError::invalid(what).at(&path.join(folder).join(EDGES)));
            }
            files.take(&format!("{folder}/{EDGES}"));
            names.extend([parts[0].clone(), parts[2].clone()]);
        }
        let (names, relations) = (names.into_iter().collect(), relations.into_iter().collect());
        Ok(Self { path, joint, names, relations, files })
    }

    /// Folder above the folders of types, which is that of the data if it has the usual name.
    fn root(&self) -> &Path {
        let above = self.path.parent().filter(|_| self.path.ends_with(PROCESSED));
        above.unwrap_or(&self.path)
    }

    /// Names of types, ascending.
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    /// Path of a file below the folder, marked as read; `None` if there is no such file.
    pub(crate) fn take(&mut self, file: &str) -> Option<PathBuf> {
        let path = self.path.join(file);
        self.files.take(file);
        path.is_file().then_some(path)
    }

    /// Types with a file of labels, by their numbers; papers, if no type has one.
    pub(crate) fn labelled(&self) -> Vec<usize> {
        let has_labels = |name: &String| {
            let start = format!("{name}/{LABELS}");
            self.files.left().any(|file| file.starts_with(&start) && file.ends_with(".npy"))
        };
        let labelled: Vec<usize> = (0..self.names.len()).filter(|&number| has_labels(&self.names[number])).collect();
        if labelled.is_empty() {
            self.names.iter().position(|name| name == PAPERS).into_iter().collect()
        } else {
            labelled
        }
    }

    /// Features of each type, divided as the options say. `open` opens the file of a type.
    ///
    /// # Errors
    /// When a file is damaged, or has values that are not finite.
    pub(crate) fn features(
        &mut self,
        options: &LoadOptions,
        open: impl Fn(&str, &Path, &LoadOptions) -> Result<Features, DatasetError>,
    ) -> Result<Vec<TypeFeatures>, DatasetError> {
        let (norm, options) = (options.feature_norm.unwrap_or_default(), options.until_divided());
        let mut all = Vec::new();
        for name in self.names.clone() {
            let Some(path) = self.take(&format!("{name}/{FEATURES}")) else {
                all.push(TypeFeatures::None);
                continue;
            };
            let features = open(&name, &path, &options).and_then(|features| {
                features.validate(features.n_rows())?;
                norm.apply(features)
            });
            all.push(TypeFeatures::Given(features.map_err(|error| error.at(&path))?));
        }
        Ok(all)
    }

    /// Types with their numbers of nodes: as `stated`, or as many as rows of features or labels, or as the ids ask for.
    ///
    /// # Errors
    /// When arrays of edges are damaged, or the files do not bear out a number.
    pub(crate) fn node_types(
        &self,
        features: &[TypeFeatures],
        stated: impl Fn(&str) -> Option<usize>,
        notes: &mut Notes,
    ) -> Result<Vec<NodeType>, DatasetError> {
        let mut types = Vec::new();
        for (name, features) in self.names.iter().zip(features) {
            let known = stated(name).or(features.given().map(Features::n_rows));
            let n_nodes = match known.or_else(|| self.n_labels(name)) {
                Some(n_nodes) => n_nodes,
                None => {
                    let n_nodes = self.n_named(name)?;
                    note_counted(name, n_nodes, &format!("{name}/{FEATURES}"), notes);
                    n_nodes
                }
            };
            types.push(NodeType { name: name.clone(), n_nodes });
        }
        let mut n_edges = vec![0; types.len()];
        for of in &self.relations {
            let n_pairs = Array::map(&self.edges(of))?.values().len() / 2;
            [&of[0], &of[2]].into_iter().for_each(|end| n_edges[self.number(end)] += n_pairs);
        }
        let rows = features.iter().map(|features| features.given().map(Features::n_rows));
        let stated = types.iter().zip(rows).zip(n_edges).map(|((of, n_rows), n_edges)| StatedType {
            name: &of.name,
            n_nodes: of.n_nodes,
            n_rows,
            n_edges,
        });
        check_stated(&stated.collect::<Vec<_>>())?;
        Ok(types)
    }

    /// Length of an array of labels of a type, if there is one with a header.
    fn n_labels(&self, name: &str) -> Option<usize> {
        let start = format!("{name}/{LABELS}");
        let file = self.files.left().find(|file| file.starts_with(&start))?;
        Array::map(&self.path.join(file)).ok()?.shape().first().copied()
    }

    /// Number of nodes that the edges of a type ask for.
    fn n_named(&self, name: &str) -> Result<usize, DatasetError> {
        let mut n_nodes = 0;
        for of in self.relations.iter().filter(|of| of[0] == name || of[2] == name) {
            let ids = self.pairs(of)?;
            let ends = [&of[0], &of[2]].into_iter().zip(&ids).filter(|(end, _)| *end == name);
            n_nodes = ends.map(|(_, ids)| n_named(ids)).fold(n_nodes, usize::max);
        }
        Ok(n_nodes)
    }

    fn number(&self, name: &str) -> usize {
        self.names.iter().position(|known| known == name).expect("ends are types")
    }

    fn edges(&self, of: &[String; 3]) -> PathBuf {
        self.path.join(of.join(self.joint)).join(EDGES)
    }

    fn pairs(&self, of: &[String; 3]) -> Result<[Vec<NodeId>; 2], DatasetError> {
        unambiguous_pairs(Array::map(&self.edges(of))?)
    }

    /// Graph of all relations, which are read one after the other.
    ///
    /// # Errors
    /// When an array is damaged, or an id is beyond its type.
    pub(crate) fn graph(
        &self,
        types: &[NodeType],
        options: &LoadOptions,
        notes: &mut Notes,
    ) -> Result<TypedGraph, DatasetError> {
        let mut relations = Relations::new(types, options);
        for of in &self.relations {
            let [source, destination] = [&of[0], &of[2]].map(|end| self.number(end));
            let edges = EdgeType { relation: of[1].clone(), source, destination, reverse_of: None };
            let added = relations.add(edges, self.pairs(of)?, |edge| format!("edge {edge}"));
            added.map_err(|error| error.at(&self.edges(of)))?;
        }
        relations.into_graph(notes)
    }

    /// Notes the files that are not read, of the folder and of the one above, where `used` are read.
    ///
    /// # Errors
    /// When the folder above cannot be read.
    pub(crate) fn note_rest(&mut self, used: &[&str], notes: &mut Notes) -> Result<(), DatasetError> {
        if self.root() == self.path {
            self.files.take_all(|name| used.contains(&name));
            self.files.note(notes);
            return Ok(());
        }
        self.files.note_below(PROCESSED, notes);
        let mut above = Inventory::of_folder(self.root())?;
        above.take_all(|name| used.contains(&name) || name.strip_suffix('/') == Some(PROCESSED));
        above.note(notes);
        Ok(())
    }
}
