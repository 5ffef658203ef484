//! Planetoid's `ind.NAME.*` files (Yang et al., "Revisiting Semi-Supervised Learning with Graph Embeddings", ICML
//! 2016).
//!
//! ```text
//! node    0 … |x|                 … |allx|            … n
//!         └ x, y: train ┘ 500: val       test.index, in shuffled order: row i of tx, ty is node test.index[i]
//!         └────── allx, ally ──────────┘ └─────────── ids that test.index skips: zero features, no label ──┘
//! ```
//! `graph` is a dictionary of lists of neighbors, with one key per node. As `PyG` does, repeated edges are merged and
//! self loops dropped, and test nodes that have neither features nor label stay as nodes.

use std::path::{Path, PathBuf};

use girih_graph_format::{Coo, Csr, Duplicates, NodeId, Notes};

use crate::edges::{directed_as, to_graph, without_loops};
use crate::inventory::Inventory;
use crate::pickle::Pickle;
use crate::pickle::arrays::PickledArray;
use crate::{Dataset, DatasetError, FeatureNorm, Features, Labels, LoadOptions, Split, UNLABELLED};

/// Files of a data set, by the last part of their names.
const PARTS: [&str; 8] = ["x", "y", "tx", "ty", "allx", "ally", "graph", "test.index"];
/// Number of validation nodes, which follow the training nodes.
const N_VAL: usize = 500;

/// Loads the data set of the files `DIR/ind.NAME.*`. `path` is the folder, or the folder and `ind.NAME` when it holds
/// several data sets. Rows of features are divided by their sums unless `options` say otherwise.
///
/// # Errors
/// When files are missing, damaged or contradict each other; each error names its file.
pub fn load(path: &Path, options: &LoadOptions) -> Result<Dataset, DatasetError> {
    let files = Files::find(path)?;
    let mut notes = Notes::default();
    let graph = files.graph(options, &mut notes)?;
    if path.is_dir() {
        files.note_others(&mut notes)?;
    }
    let n_nodes = graph.n_rows();
    let test_ids = files.test_ids(n_nodes)?;

    let feature_norm = options.feature_norm.unwrap_or(FeatureNorm::Sum);
    let features = place_rows(n_nodes, &files.csr("allx")?, &files.csr("tx")?, &test_ids)
        .and_then(|all| feature_norm.apply(Features::Sparse(all)))
        .map_err(|e| e.at(&files.path("allx")))?;

    let (ally, ty) = (files.classes("ally")?, files.classes("ty")?);
    let labels = place_labels(n_nodes, &ally, &ty, &test_ids).map_err(|e| e.at(&files.path("ally")))?;

    let n_train = files.csr("x")?.n_rows();
    if n_train > ally.classes.len() || files.classes("y")?.classes.len() != n_train {
        return Err(DatasetError::invalid(format!(
            "{n_train} training nodes do not agree with the rows of y and ally; x, y and ally belong together"
        ))
        .at(&files.path("x")));
    }
    let n_val_end = (n_train + N_VAL).min(ally.classes.len());
    let mut test = test_ids;
    test.sort_unstable();
    let split = Split {
        train: (0..n_train as NodeId).collect(),
        val: (n_train as NodeId..n_val_end as NodeId).collect(),
        test,
    };
    let dataset = Dataset::new(&files.name, graph, Some(features), Some(labels), vec![split]);
    Ok(Dataset { notes, feature_norm, ..dataset.map_err(|e| e.at(&files.path("graph")))? })
}

/// Names of the data sets with an `ind.NAME.graph` in a folder, ascending.
pub(crate) fn names_in(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| Some(entry.file_name().to_str()?.strip_prefix("ind.")?.strip_suffix(".graph")?.to_owned()))
        .collect();
    names.sort();
    names
}

struct Files {
    dir: PathBuf,
    name: String,
}

impl Files {
    fn find(path: &Path) -> Result<Self, DatasetError> {
        if !path.is_dir() {
            let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_prefix("ind."));
            let dir = path.parent().unwrap_or(Path::new("."));
            return match name {
                Some(name) => Ok(Self { dir: dir.to_owned(), name: name.trim_end_matches('.').to_owned() }),
                None => Err(DatasetError::invalid("neither a folder nor a path that ends in ind.NAME").at(path)),
            };
        }
        match &names_in(path)[..] {
            [name] => Ok(Self { dir: path.to_owned(), name: name.clone() }),
            [] => Err(DatasetError::invalid("the folder holds no Planetoid file ind.NAME.graph").at(path)),
            several => Err(DatasetError::invalid(format!(
                "the folder holds several data sets ({}); add ind.NAME to the path",
                several.join(", ")
            ))
            .at(path)),
        }
    }

    fn path(&self, part: &str) -> PathBuf {
        self.dir.join(format!("ind.{}.{part}", self.name))
    }

    fn csr(&self, part: &str) -> Result<Csr, DatasetError> {
        let path = self.path(part);
        Pickle::open(&path)?.root_csr().map_err(|e| e.at(&path))
    }

    /// Converts one-hot rows to classes; a row of zeros is unlabelled.
    fn classes(&self, part: &str) -> Result<OneHot, DatasetError> {
        let path = self.path(part);
        Pickle::open(&path)?.root_array().and_then(|array| OneHot::from_array(&array)).map_err(|e| e.at(&path))
    }

    fn graph(&self, options: &LoadOptions, notes: &mut Notes) -> Result<Csr, DatasetError> {
        let path = self.path("graph");
        let pickle = Pickle::open(&path)?;
        let graph = adjacency(&pickle)
            .and_then(|edges| Ok(to_graph(&edges, options, Duplicates::Merge, notes)?))
            .map_err(|e| e.at(&path))?;
        let graph = without_loops(&graph, notes);
        Ok(directed_as(graph, options, true, notes))
    }

    /// Notes the files of the folder that do not belong to this data set.
    fn note_others(&self, notes: &mut Notes) -> Result<(), DatasetError> {
        let mut others = Inventory::of_folder(&self.dir)?;
        let own = PARTS.map(|part| format!("ind.{}.{part}", self.name));
        others.take_all(|name| own.iter().any(|own| own == name));
        others.note(notes);
        Ok(())
    }

    /// Node of every row of `tx` and `ty`.
    fn test_ids(&self, n_nodes: usize) -> Result<Vec<NodeId>, DatasetError> {
        let path = self.path("test.index");
        let bytes = std::fs::read(&path).map_err(|e| DatasetError::from(e).at(&path))?;
        let text = String::from_utf8_lossy(&bytes);
        let mut seen = vec![false; n_nodes];
        let parse = |(line, text): (usize, &str)| {
            let id = text.trim().parse::<usize>().ok().filter(|&id| id < n_nodes);
            let id = id.ok_or_else(|| {
                DatasetError::invalid(format!(
                    "line {}: {text:?} is not one of the {n_nodes} nodes of the graph",
                    line + 1
                ))
            })?;
            if std::mem::replace(&mut seen[id], true) {
                return Err(DatasetError::invalid(format!("line {}: node {id} is listed twice", line + 1)));
            }
            Ok(id as NodeId)
        };
        text.lines().enumerate().map(parse).collect::<Result<_, _>>().map_err(|e: DatasetError| e.at(&path))
    }
}

/// Edges of a dictionary of lists; it has one key per node.
fn adjacency(pickle: &Pickle) -> Result<Coo, DatasetError> {
    let nodes = pickle.dict(pickle.root())?;
    let n_nodes = nodes.len();
    let mut seen = vec![false; n_nodes];
    let id = |value| {
        let id = pickle.int(value)?;
        usize::try_from(id).ok().filter(|&id| id < n_nodes).ok_or_else(|| {
            DatasetError::invalid(format!(
                "node {id} does not exist; the dictionary has {n_nodes} keys, numbered from 0"
            ))
        })
    };
    let (mut rows, mut cols) = (Vec::new(), Vec::new());
    for (key, neighbors) in nodes {
        let v = id(key)?;
        if std::mem::replace(&mut seen[v], true) {
            return Err(DatasetError::invalid(format!("node {v} is a key of the dictionary twice")));
        }
        for neighbor in pickle.sequence(neighbors)? {
            rows.push(v as NodeId);
            cols.push(id(neighbor)? as NodeId);
        }
    }
    Ok(Coo::new(n_nodes, n_nodes, rows, cols, None)?)
}

struct OneHot {
    n_classes: usize,
    classes: Vec<u32>,
}

impl OneHot {
    fn from_array(array: &PickledArray) -> Result<Self, DatasetError> {
        let &[_, n_classes] = array.shape() else {
            return Err(DatasetError::invalid(format!(
                "labels of shape {:?}; one row per node is expected",
                array.shape()
            )));
        };
        let values = array.to_i64()?;
        let class = |(row, values): (usize, &[i64])| match values.iter().filter(|&&v| v != 0).count() {
            0 => Ok(UNLABELLED),
            1 => Ok(values.iter().position(|&v| v != 0).unwrap_or_default() as u32),
            n => Err(DatasetError::invalid(format!("row {row} has {n} classes; these labels are one-hot"))),
        };
        let classes = values.chunks_exact(n_classes.max(1)).enumerate().map(class).collect::<Result<_, _>>()?;
        Ok(Self { n_classes, classes })
    }
}

/// Arranges the rows: those of `all` first, then row `i` of `test` at `test_ids[i]`, and empty rows between.
fn place_rows(n_nodes: usize, all: &Csr, test: &Csr, test_ids: &[NodeId]) -> Result<Csr, DatasetError> {
    if all.n_cols() != test.n_cols() {
        return Err(DatasetError::invalid(format!("allx is {} wide, tx {}", all.n_cols(), test.n_cols())));
    }
    let source = place(n_nodes, all.n_rows(), test.n_rows(), test_ids)?;
    let (mut indptr, mut indices, mut values) = (vec![0u64], Vec::new(), Vec::new());
    for source in source {
        let row = match source {
            Source::All(row) => Some((all, row)),
            Source::Test(row) => Some((test, row)),
            Source::Nothing => None,
        };
        for (column, value) in row.into_iter().flat_map(|(csr, row)| csr.row_entries(row)) {
            indices.push(column);
            values.push(value);
        }
        indptr.push(indices.len() as u64);
    }
    Ok(Csr::new(n_nodes, all.n_cols(), indptr, indices, Some(values.into()))?)
}

fn place_labels(n_nodes: usize, all: &OneHot, test: &OneHot, test_ids: &[NodeId]) -> Result<Labels, DatasetError> {
    if all.n_classes != test.n_classes {
        return Err(DatasetError::invalid(format!("ally has {} classes, ty {}", all.n_classes, test.n_classes)));
    }
    let source = place(n_nodes, all.classes.len(), test.classes.len(), test_ids)?;
    let class = |source| match source {
        Source::All(row) => all.classes[row],
        Source::Test(row) => test.classes[row],
        Source::Nothing => UNLABELLED,
    };
    Ok(Labels::Single { n_classes: all.n_classes, classes: source.into_iter().map(class).collect() })
}

/// File and row that describe a node.
#[derive(Clone, Copy)]
enum Source {
    All(usize),
    Test(usize),
    Nothing,
}

fn place(n_nodes: usize, n_all: usize, n_test: usize, test_ids: &[NodeId]) -> Result<Vec<Source>, DatasetError> {
    if n_all > n_nodes || n_test != test_ids.len() {
        return Err(DatasetError::invalid(format!(
            "{n_all} rows and {n_test} test rows for {n_nodes} nodes and {} test ids; the files do not belong together",
            test_ids.len()
        )));
    }
    let mut source: Vec<Source> = (0..n_all).map(Source::All).collect();
    source.resize(n_nodes, Source::Nothing);
    for (row, &id) in test_ids.iter().enumerate() {
        if (id as usize) < n_all {
            return Err(DatasetError::invalid(format!("test node {id} is one of the first {n_all} nodes already")));
        }
        source[id as usize] = Source::Test(row);
    }
    Ok(source)
}
