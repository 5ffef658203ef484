//! [`TypedParts`]: parts of typed data, by ids inside the types, that make up a data set.

use std::sync::Arc;

use girih_graph_format::{Coo, Csr, Duplicates, NodeId, NodeType, TypedGraph};
use girih_machine::memory::Free;

use crate::memory::check_declared_nodes;
use crate::{Dataset, DatasetError, Labels, LoadOptions, Names, Split, TypeFeatures, TypedData, UNLABELLED};

/// Parts of typed data; labels and splits are those of the target, by ids inside it.
pub(crate) struct TypedParts {
    pub(crate) graph: TypedGraph,
    /// Features of each node type, also of a single one.
    pub(crate) features: Vec<TypeFeatures>,
    /// Number of the target among the node types.
    pub(crate) target: usize,
    pub(crate) labels: Option<Labels>,
    pub(crate) splits: Vec<Split>,
    pub(crate) names: Option<Names>,
}

impl TypedParts {
    /// Makes the data set, and checks it.
    ///
    /// # Errors
    /// When a part contradicts the number of nodes of its type, naming the type.
    pub(crate) fn into_dataset(self, name: String) -> Result<Dataset, DatasetError> {
        let Self { graph, mut features, target, labels, splits, names } = self;
        let (schema, n_nodes) = (graph.schema(), graph.n_nodes());
        let (of, first) = (&schema.node_types()[target], schema.first(target));
        let told = |what: String| DatasetError::invalid(format!("type {}: {what}", of.name));
        if let Some(labels) = &labels {
            labels.validate(of.n_nodes).map_err(|error| told(error.to_string()))?;
        }
        for (i, split) in splits.iter().enumerate() {
            split.validate(of.n_nodes).map_err(|what| told(format!("split {i}: {what}")))?;
        }
        let labels = labels.map(|labels| among_all(labels, first, n_nodes));
        let splits = splits.into_iter().map(|split| shifted(split, first)).collect();
        // Features of a single type are those of the data set.
        let only = if features.len() == 1 { features.pop() } else { None };
        let plain = only.and_then(|only| if let TypeFeatures::Given(rows) = only { Some(rows) } else { None });
        let dataset = Dataset::of_typed(name, TypedData { graph, features, target })?;
        let dataset = Dataset { features: plain, labels, splits, names: names.map(Arc::new), ..dataset };
        dataset.validate()?;
        Ok(dataset)
    }
}

/// Labels of all nodes, from those of the nodes from `first` on.
pub(crate) fn among_all(labels: Labels, first: usize, n_nodes: usize) -> Labels {
    match labels {
        Labels::Single { n_classes, classes } => {
            let mut all = vec![UNLABELLED; n_nodes];
            all[first..first + classes.len()].copy_from_slice(&classes);
            Labels::Single { n_classes, classes: all }
        }
        Labels::Multi { n_classes, targets } => {
            let mut all = vec![0.0; n_nodes * n_classes];
            all[first * n_classes..][..targets.data().len()].copy_from_slice(targets.data());
            let targets = girih_graph_format::Matrix::new(n_nodes, n_classes, all).expect("a row for each node");
            Labels::Multi { n_classes, targets }
        }
    }
}

/// Split whose nodes have ids that are greater by `first`.
pub(crate) fn shifted(split: Split, first: usize) -> Split {
    let part = |nodes: Vec<NodeId>| nodes.into_iter().map(|node| node + first as NodeId).collect();
    Split { train: part(split.train), val: part(split.val), test: part(split.test) }
}

/// Edges of a relation, by ids inside the types.
pub(crate) struct Edges<'a> {
    /// Name of the relation.
    pub(crate) relation: &'a str,
    /// Types of sources and of destinations.
    pub(crate) ends: [&'a NodeType; 2],
    /// Ids of sources and of destinations.
    pub(crate) ids: [Vec<NodeId>; 2],
}

impl Edges<'_> {
    /// Adjacency of the relation; a repeated pair is stored once, unless the options refuse it. Also returns the number
    /// of entries that were merged into others. `place` names the place of an edge in its file.
    ///
    /// # Errors
    /// When an id is beyond its type, naming both types; at a repeated pair, if the options refuse it.
    pub(crate) fn adjacency(
        self,
        options: &LoadOptions,
        place: impl Fn(usize) -> String,
    ) -> Result<(Csr, usize), DatasetError> {
        self.check_ids(place)?;
        let Self { ends: [source, destination], ids: [sources, destinations], .. } = self;
        let (n_rows, n_cols) = (destination.n_nodes, source.n_nodes);
        let edges = Coo::new(n_rows, n_cols, destinations, sources, None)?;
        let adjacency = edges.to_csr(options.duplicates.unwrap_or(Duplicates::Merge))?;
        let n_merged = edges.len() - adjacency.nnz();
        Ok((adjacency, n_merged))
    }

    fn check_ids(&self, place: impl Fn(usize) -> String) -> Result<(), DatasetError> {
        let Self { relation, ends, ids } = self;
        let beyond = |end: usize| ids[end].iter().position(|&id| id as usize >= ends[end].n_nodes);
        let [source, destination] = [beyond(0), beyond(1)];
        let Some(edge) = source.into_iter().chain(destination).min() else { return Ok(()) };
        let end = usize::from(source != Some(edge));
        let (what, of, id) = (["source", "destination"][end], ends[end], ids[end][edge]);
        let counted = |of: &NodeType| format!("{} ({} nodes)", of.name, of.n_nodes);
        Err(DatasetError::invalid(format!(
            "{}: {relation} goes from {} to {}, and the {what} is node {id}, which is beyond {}; ids count from 0 inside \
             each type",
            place(edge),
            counted(ends[0]),
            counted(ends[1]),
            of.name
        )))
    }
}

/// Number of nodes that ids ask for: the largest one, and one more.
pub(crate) fn n_named(ids: &[NodeId]) -> usize {
    ids.iter().max().map_or(0, |&id| id as usize + 1)
}

/// Error of options that would add edges in the other direction to the same relation.
pub(crate) fn refused_symmetrize() -> DatasetError {
    DatasetError::invalid(
        "--symmetrize mixes the directions of a relation; --reverse add has both, as relations of their own",
    )
}

/// Refuses options that have no meaning for edges with types.
pub(crate) fn check_edge_options(options: &LoadOptions) -> Result<(), DatasetError> {
    if options.symmetrize.is_some() {
        return Err(refused_symmetrize());
    }
    match options.duplicates {
        None | Some(Duplicates::Merge | Duplicates::Refuse) => Ok(()),
        Some(rule) => Err(DatasetError::invalid(format!(
            "--duplicates {rule} gives weights, and edges with types have none; take merge or refuse"
        ))),
    }
}

/// Number of the node type with a name.
///
/// # Errors
/// When there is none; the message names `flag` and lists the known types.
pub(crate) fn type_number(types: &[NodeType], name: &str, flag: &str) -> Result<usize, DatasetError> {
    types.iter().position(|of| of.name == name).ok_or_else(|| {
        let known = types.iter().map(|of| of.name.as_str()).collect::<Vec<_>>().join(", ");
        DatasetError::invalid(format!("{flag} {name}: there is no such node type; known are {known}"))
    })
}

/// Error of a target that the user names, where labels and splits are those of the node type `of`.
pub(crate) fn other_target(name: &str, of: &str) -> DatasetError {
    DatasetError::invalid(format!("--target {name}: labels and splits are those of {of}; leave --target out"))
}

/// Stated size of a node type, and what its files have of it.
pub(crate) struct StatedType<'a> {
    pub(crate) name: &'a str,
    pub(crate) n_nodes: usize,
    /// Rows of features, or of another array with a row for each node.
    pub(crate) n_rows: Option<usize>,
    /// Edges that end or begin in the type.
    pub(crate) n_edges: usize,
}

/// Refuses numbers of nodes that the files do not bear out, before memory is allocated for them.
pub(crate) fn check_stated(types: &[StatedType<'_>]) -> Result<(), DatasetError> {
    for StatedType { name, n_nodes, n_rows, n_edges } in types {
        check_declared_nodes(*n_nodes, (*n_rows, None), *n_edges, None)
            .map_err(|error| DatasetError::invalid(format!("type {name}: {error}")))?;
    }
    let n_nodes = types.iter().fold(0_usize, |sum, of| sum.saturating_add(of.n_nodes));
    check_declared_nodes(n_nodes, (Some(n_nodes), None), 0, Free::now())
}
