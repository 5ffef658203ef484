//! [`Tables`]: the form as text.

use std::path::{Path, PathBuf};

use girih_graph_format::file::{Missing, read_csv, read_integers};
use girih_graph_format::{Matrix, NodeType, Notes};

use super::form::{DEPTH, Form, JOINT, Pairs, parts_of};
use crate::inventory::Inventory;
use crate::ogb::{check_edges, only_graph, table};
use crate::pair_file::{PairFile, Separator};
use crate::text_lines::for_each_line;
use crate::text_table::{TextTable, fields};
use crate::{DatasetError, Labels, LoadOptions, labels};

/// Table of the numbers of nodes.
pub(super) const COUNTS: &str = "num-node-dict";
/// Table of the relations.
pub(super) const TRIPLETS: &str = "triplet-type-list";
/// Folder of the folders of relations.
pub(super) const RELATIONS: &str = "relations";
/// Folders of types, the table in each, and the table that says which types have one.
const FEATURES: [&str; 3] = ["node-feat", "node-feat", "nodetype-has-feat"];
const LABELS: [&str; 3] = ["node-label", "node-label", "nodetype-has-label"];

/// Raw folder of tables.
pub(super) struct Tables {
    raw: PathBuf,
    files: Inventory,
}

impl Tables {
    /// Opens a folder.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(super) fn open(raw: &Path) -> Result<Self, DatasetError> {
        let mut files = Inventory::of_tree(raw, DEPTH)?;
        // The reader of splits names those that it does not read.
        files.take_all(|name| name.starts_with("split/"));
        Ok(Self { raw: raw.to_owned(), files })
    }

    /// Table of a folder below the raw one, marked as read.
    ///
    /// # Errors
    /// When it does not exist.
    fn required(&mut self, folder: &str, name: &str) -> Result<PathBuf, DatasetError> {
        self.take(folder, name).ok_or_else(|| {
            let what = "there is no such file, and OGB's raw folders have it; fetch it again";
            DatasetError::invalid(what).at(&self.raw.join(folder).join(format!("{name}.csv.gz")))
        })
    }

    fn take(&mut self, folder: &str, name: &str) -> Option<PathBuf> {
        let path = table(&self.raw.join(folder), name)?;
        let below = path.strip_prefix(&self.raw).unwrap_or(&path);
        self.files.take(&below.to_string_lossy());
        Some(path)
    }

    /// Parts of the names of all relations, ascending.
    fn triplets(&mut self) -> Result<Vec<[String; 3]>, DatasetError> {
        let mut found = match self.take("", TRIPLETS) {
            Some(path) => read_triplets(&path)?,
            None => {
                let folders = Inventory::of_folder(&self.raw.join(RELATIONS))?;
                folders.left().filter_map(|name| parts_of(name.strip_suffix('/')?)).collect()
            }
        };
        found.sort();
        Ok(found)
    }

    /// Table of a type, if it has one as stated.
    ///
    /// # Errors
    /// When the table of a statement and the files contradict each other.
    fn of_type(&self, [folder, name, stated]: [&str; 3], of: &str) -> Result<Option<PathBuf>, DatasetError> {
        let below = self.raw.join(folder).join(of);
        let path = table(&below, name);
        check_flag(&self.raw, stated, of, (path.is_some(), &format!("{folder}/{of}/{name}.csv.gz")))?;
        Ok(path)
    }
}

impl Form for Tables {
    fn node_types(&mut self) -> Result<Vec<NodeType>, DatasetError> {
        let path = self.required("", COUNTS)?;
        let counts = TextTable::read(&path, "a table of numbers of nodes", "a line with the number of each type")?;
        if counts.n_rows() != 1 {
            let what = format!("{} lines of numbers; a data set of one graph has one", counts.n_rows());
            return Err(DatasetError::invalid(what).at(&path));
        }
        let node_type = |(column, name): (usize, &String)| {
            let cell = counts.cell(0, column);
            let n_nodes = cell.parse().map_err(|_| counts.error(0, &format!("{cell:?} is no number of nodes")))?;
            Ok(NodeType { name: name.clone(), n_nodes })
        };
        let mut types = counts.header().iter().enumerate().map(node_type).collect::<Result<Vec<_>, DatasetError>>()?;
        types.sort_by(|one, other| one.name.cmp(&other.name));
        self.take("", FEATURES[2]);
        self.take("", LABELS[2]);
        Ok(types)
    }

    fn counts(&self) -> PathBuf {
        table(&self.raw, COUNTS).unwrap_or_default()
    }

    fn pairs(&mut self, notes: &mut Notes) -> Result<Vec<Pairs>, DatasetError> {
        let mut all = Vec::new();
        for of in self.triplets()? {
            let folder = format!("{RELATIONS}/{}", of.join(JOINT));
            let path = self.required(&folder, "edge")?;
            let stated = self.required(&folder, "num-edge-list")?;
            let n_edges = only_graph(&read_integers(&stated, notes)?).map_err(|e| e.at(&stated))?;
            let PairFile { path: origin, ids, lines } = PairFile::read(path, Separator::Comma)?;
            check_edges(ids[0].len(), n_edges).map_err(|e| e.at(&origin))?;
            all.push(Pairs { of, origin, ids, lines: Some(lines) });
        }
        Ok(all)
    }

    fn features(&mut self, of: &str, notes: &mut Notes) -> Result<Option<(Matrix, PathBuf)>, DatasetError> {
        let Some(path) = self.of_type(FEATURES, of)? else { return Ok(None) };
        self.take(&format!("{}/{of}", FEATURES[0]), FEATURES[1]);
        Ok(Some((read_csv(&path, Missing::Refuse, notes)?, path)))
    }

    fn has_labels(&self, of: &str) -> Result<bool, DatasetError> {
        Ok(self.of_type(LABELS, of)?.is_some())
    }

    fn labels(
        &mut self,
        of: &str,
        options: &LoadOptions,
        notes: &mut Notes,
    ) -> Result<(Labels, PathBuf), DatasetError> {
        let path = self.required(&format!("{}/{of}", LABELS[0]), LABELS[1])?;
        let matrix = read_csv(&path, Missing::Nan, notes)?;
        Ok((labels::of_matrix(matrix, options, notes).map_err(|e| e.at(&path))?, path))
    }

    fn note_rest(&self, notes: &mut Notes) {
        self.files.note_below("raw", notes);
    }
}

/// Reads the list of relations: source type, relation and destination type in each line.
fn read_triplets(path: &Path) -> Result<Vec<[String; 3]>, DatasetError> {
    let mut all = Vec::new();
    for_each_line(path, "a list of relations", |number, line| {
        let wrong = |what: String| DatasetError::invalid(format!("line {number}: {what}"));
        if line.trim().is_empty() {
            return Ok(());
        }
        let parts = <[String; 3]>::try_from(fields(line, ',').map_err(wrong)?).ok();
        let parts = parts.filter(|parts| parts.iter().all(|part| !part.is_empty()));
        all.push(parts.ok_or_else(|| wrong(format!("{line:?} is no source type, relation and destination type")))?);
        Ok(())
    })?;
    Ok(all)
}

/// Compares a table of `True` and `False` under names of types, if there is one, with what is there of a type, and `what`
/// that is.
///
/// # Errors
/// When they contradict each other, or the table has other words.
pub(super) fn check_flag(
    folder: &Path,
    name: &str,
    of: &str,
    (is_there, what): (bool, &str),
) -> Result<(), DatasetError> {
    let Some(path) = table(folder, name) else { return Ok(()) };
    let flags = TextTable::read(&path, "a table of True and False", "a line with True or False for each type")?;
    let Some(column) = flags.header().iter().position(|known| known == of) else { return Ok(()) };
    let cell = flags.cell(0, column);
    let says = match cell.to_ascii_lowercase().as_str() {
        "true" | "1" => true,
        "false" | "0" => false,
        _ => return Err(flags.error(0, &format!("{cell:?} under {of} is neither True nor False"))),
    };
    if says == is_there {
        return Ok(());
    }
    let found = if is_there { "there is" } else { "there is no" };
    Err(flags.error(0, &format!("{cell} under {of}, but {found} {what}; correct the one that is wrong")))
}
