//! [`TypedParts`]: parts of typed data, by ids inside the types, that make up a data set.

use std::sync::Arc;

use girih_graph_format::{Coo, Csr, Duplicates, EdgeType, NodeId, NodeType, Notes, Schema, TypedGraph};
use girih_machine::memory::Free;

use crate::memory::check_declared_nodes;
use crate::{Dataset, DatasetError, Labels, LoadOptions, Names, Split, TypeFeatures, TypedData, UNLABELLED};

/// Parts of typed data; labels and splits are those of the target, by ids inside it.
pub struct TypedParts {
    /// Types, and the relation of each edge type.
    pub graph: TypedGraph,
    /// Features of each node type, also of a single one.
    pub features: Vec<TypeFeatures>,
    /// Number of the target among the node types.
    pub target: usize,
    /// Labels of the target's nodes.
    pub labels: Option<Labels>,
    /// Splits of the target's nodes.
    pub splits: Vec<Split>,
    /// Names of all nodes by global ids, and of classes.
    pub names: Option<Names>,
}

impl TypedParts {
    /// Makes the data set, and checks it.
    ///
    /// # Errors
    /// When a part contradicts the number of nodes of its type, naming the type.
    pub fn into_dataset(self, name: String) -> Result<Dataset, DatasetError> {
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

    /// As [`into_dataset`](Self::into_dataset), for the content of files: with what was noted of them, and the norm that
    /// their features were divided by.
    ///
    /// # Errors
    /// As [`into_dataset`](Self::into_dataset).
    pub(crate) fn into_loaded(
        self,
        name: String,
        notes: Notes,
        options: &LoadOptions,
    ) -> Result<Dataset, DatasetError> {
        let dataset = self.into_dataset(name)?;
        Ok(Dataset { notes, feature_norm: options.feature_norm.unwrap_or_default(), ..dataset })
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

/// Relations of a graph, made one by one from lists of pairs.
pub(crate) struct Relations<'a> {
    node_types: &'a [NodeType],
    options: &'a LoadOptions,
    edge_types: Vec<EdgeType>,
    adjacencies: Vec<Csr>,
    n_merged: usize,
}

impl<'a> Relations<'a> {
    pub(crate) fn new(node_types: &'a [NodeType], options: &'a LoadOptions) -> Self {
        Self { node_types, options, edge_types: Vec::new(), adjacencies: Vec::new(), n_merged: 0 }
    }

    /// Adds a relation, from the ids of sources and of destinations inside their types. A repeated pair is stored once,
    /// unless the options refuse it. `place` names the place of an edge in its file.
    ///
    /// # Errors
    /// When an id is beyond its type, naming both types; at a repeated pair, if the options refuse it.
    pub(crate) fn add(
        &mut self,
        of: EdgeType,
        ids: [Vec<NodeId>; 2],
        place: impl Fn(usize) -> String,
    ) -> Result<(), DatasetError> {
        self.check_ids(&of, &ids, place)?;
        let [source, destination] = self.ends(&of);
        let [sources, destinations] = ids;
        let edges = Coo::new(destination.n_nodes, source.n_nodes, destinations, sources, None)?;
        let adjacency = edges.to_csr(self.options.duplicates.unwrap_or(Duplicates::Merge))?;
        self.n_merged += edges.len() - adjacency.nnz();
        self.adjacencies.push(adjacency);
        self.edge_types.push(of);
        Ok(())
    }

    /// Types of sources and of destinations.
    fn ends(&self, of: &EdgeType) -> [&'a NodeType; 2] {
        [of.source, of.destination].map(|end| &self.node_types[end])
    }

    fn check_ids(
        &self,
        of: &EdgeType,
        ids: &[Vec<NodeId>; 2],
        place: impl Fn(usize) -> String,
    ) -> Result<(), DatasetError> {
        let ends = self.ends(of);
        let beyond = |end: usize| ids[end].iter().position(|&id| id as usize >= ends[end].n_nodes);
        let [source, destination] = [beyond(0), beyond(1)];
        let Some(edge) = source.into_iter().chain(destination).min() else { return Ok(()) };
        let end = usize::from(source != Some(edge));
        let (what, beyond, id) = (["source", "destination"][end], ends[end], ids[end][edge]);
        let counted = |of: &NodeType| format!("{} ({} nodes)", of.name, of.n_nodes);
        Err(DatasetError::invalid(format!(
            "{}: {} goes from {} to {}, and the {what} is node {id}, which is beyond {}; ids count from 0 inside each type",
            place(edge),
            of.relation,
            counted(ends[0]),
            counted(ends[1]),
            beyond.name
        )))
    }

    /// Graph of all relations. The number of merged pairs goes into the notes.
    ///
    /// # Errors
    /// When names of types or relations are not unique, or there are too many nodes.
    pub(crate) fn into_graph(self, notes: &mut Notes) -> Result<TypedGraph, DatasetError> {
        Duplicates::Merge.note(self.n_merged, false, notes);
        Ok(TypedGraph::new(Schema::new(self.node_types.to_vec(), self.edge_types)?, self.adjacencies)?)
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

/// Target: the type that the options name, or the only one with labels, or the first one where none has any.
///
/// # Errors
/// When there is no type, or none of the name; when several of `labelled` have labels and the options choose none.
pub(crate) fn target_of(types: &[NodeType], labelled: &[usize], options: &LoadOptions) -> Result<usize, DatasetError> {
    match (&options.target, labelled) {
        (Some(name), _) => type_number(types, name, "--target"),
        (None, [only]) => Ok(*only),
        (None, []) if types.is_empty() => Err(DatasetError::invalid("no type of nodes")),
        (None, []) => Ok(0),
        (None, several) => {
            let names = several.iter().map(|&number| types[number].name.as_str()).collect::<Vec<_>>().join(", ");
            Err(DatasetError::invalid(format!("{names} have labels; choose the one to be classified by --target")))
        }
    }
}

/// Notes that a type has as many nodes as its edges name. `stated_by` names what would state the number.
pub(crate) fn note_counted(name: &str, n_nodes: usize, stated_by: &str, notes: &mut Notes) {
    let text = format!("{name} has {n_nodes} nodes, by the largest id of its edges ({stated_by} states it)");
    notes.make_up("counted_nodes", text, &[("nodes", n_nodes as u64)]);
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
