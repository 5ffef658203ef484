//! Splits of edges: files of `torch.save` whose dictionaries hold edges and negative pairs.
//!
//! ```text
//! train.pt            edge (n × 2)              or source_node, target_node (n)
//! valid.pt, test.pt   edge, edge_neg (m × 2)    or source_node, target_node, target_node_neg (n × k)
//! ```
//! Other entries, such as weights and years, are not read.

use std::path::Path;

use girih_graph_format::{Csr, Notes};

use crate::DatasetError;
use crate::dataset::{Edge, EdgeSplit, HeldOutEdges, Negatives, check_train};
use crate::pickle::Value;
use crate::pickle::torch::{IdArray, TorchFile};

/// Names under which a file has its edges.
const EDGES: [&str; 2] = ["edge", "source_node"];
/// Names of entries that are read.
const READ: [&str; 5] = ["edge", "edge_neg", "source_node", "target_node", "target_node_neg"];

/// Whether a file holds edges.
pub(super) fn holds_edges(file: &TorchFile) -> bool {
    file.entries().is_some_and(|entries| entries.iter().any(|(key, _)| EDGES.contains(&&key[..])))
}

/// Reads the split of edges in `folder`, whose name is `name`.
///
/// # Errors
/// When a part is missing or damaged, or does not fit the graph; each error names its file.
pub(super) fn read(folder: &Path, name: &str, graph: &Csr, notes: &mut Notes) -> Result<EdgeSplit, DatasetError> {
    let part = |part: &'static str, notes: &mut Notes| {
        let path = folder.join(format!("{part}.pt"));
        let read = || {
            if !path.is_file() {
                let message = "no such file; a split of edges is train.pt, valid.pt and test.pt";
                return Err(DatasetError::invalid(message));
            }
            let mut part = Part { file: TorchFile::open(&path)?, entries: Vec::new() };
            part.entries = part.file.entries().unwrap_or_default();
            Ok((part.held_out(graph, path.ends_with("train.pt"))?, part.entries))
        };
        let (held_out, entries) = read().map_err(|error: DatasetError| error.at(&path))?;
        // Training draws its negative pairs.
        let is_read = |key: &str| READ.contains(&key) && !(part == "train" && key.ends_with("_neg"));
        for (key, _) in entries.iter().filter(|(key, _)| !is_read(key)) {
            let why = "only edges are read, and negative pairs of held-out ones";
            notes.leave_out(format!("split/{name}/{part}.pt/{key}"), why);
        }
        Ok::<_, DatasetError>(held_out)
    };
    let train = part("train", notes)?.edges;
    Ok(EdgeSplit { train, val: part("valid", notes)?, test: part("test", notes)? })
}

/// File of one part.
struct Part {
    file: TorchFile,
    entries: Vec<(String, Value)>,
}

impl Part {
    /// Edges and negative pairs of the file, checked. Training edges have no negative pairs.
    fn held_out(&mut self, graph: &Csr, trains: bool) -> Result<HeldOutEdges, DatasetError> {
        let edges = self.edges()?;
        if trains {
            check_train(&edges, graph)?;
            return Ok(HeldOutEdges { edges, negatives: Negatives::Shared(Vec::new()) });
        }
        let negatives = self.negatives()?.ok_or_else(|| {
            DatasetError::invalid(
                "no negative pairs; expected edge_neg beside edge, or target_node_neg beside source_node",
            )
        })?;
        let part = HeldOutEdges { edges, negatives };
        part.validate(graph.n_rows())?;
        Ok(part)
    }

    /// Ids of an entry; `None` without the entry.
    fn ids(&mut self, key: &str, n_dims: usize) -> Result<Option<IdArray>, DatasetError> {
        let Some((_, value)) = self.entries.iter().find(|(found, _)| found == key) else { return Ok(None) };
        let array = self.file.ids(value, n_dims).map_err(|error| DatasetError::invalid(format!("{key}: {error}")))?;
        Ok(Some(array))
    }

    /// Pairs of an entry of two columns.
    fn pairs(&mut self, key: &str) -> Result<Option<Vec<Edge>>, DatasetError> {
        let Some(IdArray { shape, ids }) = self.ids(key, 2)? else { return Ok(None) };
        if shape[1] != 2 {
            let (rows, columns) = (shape[0], shape[1]);
            return Err(DatasetError::invalid(format!(
                "{key}: an array of {rows} × {columns}; expected two nodes a row"
            )));
        }
        Ok(Some(ids.as_chunks().0.to_vec()))
    }

    fn edges(&mut self) -> Result<Vec<Edge>, DatasetError> {
        if let Some(edges) = self.pairs("edge")? {
            return Ok(edges);
        }
        let (Some(sources), Some(targets)) = (self.ids("source_node", 1)?, self.ids("target_node", 1)?) else {
            return Err(DatasetError::invalid("no edges; expected edge, or source_node and target_node"));
        };
        let (sources, targets) = (sources.ids, targets.ids);
        if sources.len() != targets.len() {
            let (s, t) = (sources.len(), targets.len());
            return Err(DatasetError::invalid(format!("{s} values of source_node and {t} of target_node")));
        }
        Ok(sources.into_iter().zip(targets).map(|(source, target)| [source, target]).collect())
    }

    fn negatives(&mut self) -> Result<Option<Negatives>, DatasetError> {
        if let Some(pairs) = self.pairs("edge_neg")? {
            return Ok(Some(Negatives::Shared(pairs)));
        }
        let found = self.ids("target_node_neg", 2)?;
        Ok(found.map(|IdArray { shape, ids }| Negatives::PerEdge { n: shape[1], destinations: ids }))
    }
}
