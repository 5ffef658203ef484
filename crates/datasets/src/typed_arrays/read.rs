//! Reading typed data from named arrays.

use std::path::PathBuf;

use girih_graph_format::{EdgeType, NodeId, NodeType, Notes, TypedGraph};

use super::scheme::{EDGES, Scheme, full_name, parts};
use crate::inventory::{looks_like_split, reason};
use crate::named_arrays::{
    Arrays, FEATURES, LABELS, NamedArrays, drawn_unless_there, pairs, read_features, read_labels, read_splits, scalar,
};
use crate::typed_parts::{
    self, Relations, StatedType, TypedParts, check_edge_options, check_stated, n_named, note_counted,
};
use crate::{Dataset, DatasetError, Features, LoadOptions, NameList, Names, ReverseEdges, TypeFeatures, reverses};

/// Loads typed data. Relations get reverses, unless they are there or girih has written the arrays.
///
/// # Errors
/// When arrays are damaged or contradict each other, or several types have labels and none is chosen.
pub(crate) fn load(source: &mut dyn NamedArrays, name: &str, options: &LoadOptions) -> Result<Dataset, DatasetError> {
    let origin = source.origin().to_owned();
    read(source, name, options).map_err(|error| error.at(&origin))
}

fn read(source: &mut dyn NamedArrays, name: &str, options: &LoadOptions) -> Result<Dataset, DatasetError> {
    check_edge_options(options)?;
    let (scheme, mut notes) = (Scheme::of(source)?, Notes::default());
    let mut arrays = Arrays::new(source);
    let (nodes, _) = in_order(&mut arrays, scheme.nodes, Clone::clone)?;
    let (edges, is_numbered) = in_order(&mut arrays, scheme.edges, full_name)?;
    let features = nodes.iter().map(|of| features_of(&mut arrays, of, options)).collect::<Result<Vec<_>, _>>()?;
    let lists = edges.iter().map(|of| Pairs::read(&mut arrays, of, &mut notes)).collect::<Result<Vec<_>, _>>()?;
    let node_types = node_types(&mut arrays, &nodes, &features, &lists, &mut notes)?;
    let target = target_of(&mut arrays, &node_types, options)?;

    let graph = graph(&mut arrays, &node_types, lists, is_numbered, options, &mut notes)?;
    let reverse = options.reverse.or(is_numbered.then_some(ReverseEdges::No));
    let graph = reverses::with_option(graph, reverse, &mut notes)?;

    arrays.set_prefix(&nodes[target]);
    let labels = read_labels(&mut arrays, options, &mut notes)?;
    let n_nodes = node_types[target].n_nodes;
    let mut splits = read_splits(&mut arrays, n_nodes, &mut notes)?;
    let unsplit = labels.as_ref().filter(|labels| splits.is_empty() && labels.n_nodes() == n_nodes);
    if let Some(labels) = unsplit {
        splits = drawn_unless_there(&mut arrays, labels, options, &mut notes)?;
    }
    let names = names_of(&mut arrays, &node_types, target)?;
    note_rest(&arrays, &nodes, &nodes[target], &mut notes);
    let parts = TypedParts { graph, features, target, labels, splits, names };
    parts.into_loaded(name.to_owned(), notes, options)
}

/// Types in the order of their `number`, and whether they all have one; otherwise as they are.
fn in_order<T>(
    arrays: &mut Arrays<'_>,
    types: Vec<T>,
    name: impl Fn(&T) -> String,
) -> Result<(Vec<T>, bool), DatasetError> {
    let is_numbered = types.iter().all(|of| arrays.has_under(&name(of), "number"));
    if !is_numbered {
        return Ok((types, false));
    }
    let mut numbered = Vec::with_capacity(types.len());
    for of in types {
        arrays.set_prefix(&name(&of));
        numbered.push((scalar(arrays, "number")?.unwrap_or_default(), of));
    }
    numbered.sort_by_key(|(number, _)| *number);
    let wrong = numbered.iter().enumerate().find(|(place, (number, _))| place != number);
    if let Some((place, (number, of))) = wrong {
        let name = name(of);
        return Err(DatasetError::invalid(format!(
            "{name}.number is {number}, and {place} is expected: numbers of types count from 0 without gaps"
        )));
    }
    Ok((numbered.into_iter().map(|(_, of)| of).collect(), true))
}

fn features_of(arrays: &mut Arrays<'_>, of: &str, options: &LoadOptions) -> Result<TypeFeatures, DatasetError> {
    arrays.set_prefix(of);
    let norm = options.feature_norm.unwrap_or_default();
    let named = |error: DatasetError| DatasetError::invalid(format!("type {of}: {error}"));
    Ok(match (read_features(arrays)?, scalar(arrays, "learned_width")?) {
        (Some(features), _) => TypeFeatures::Given(norm.apply(features).map_err(named)?),
        (None, Some(width)) => TypeFeatures::Learned(Some(width).filter(|&width| width > 0)),
        (None, None) => TypeFeatures::None,
    })
}

/// Pairs of ids of a relation.
struct Pairs {
    of: [String; 3],
    origin: PathBuf,
    ids: [Vec<NodeId>; 2],
}

impl Pairs {
    fn read(arrays: &mut Arrays<'_>, of: &[String; 3], notes: &mut Notes) -> Result<Self, DatasetError> {
        arrays.set_prefix(&full_name(of));
        let array = arrays.required(EDGES)?;
        let origin = array.origin().to_owned();
        if array.shape() == [2, 2] {
            let name = full_name(of);
            let text = format!("{name}.{EDGES} of 2 × 2 is read as two rows, sources and destinations");
            notes.make_up("two_by_two", text, &[]);
        }
        Ok(Self { of: of.clone(), origin, ids: pairs(array)? })
    }
}

/// Node types with their sizes: as stated, or else as many as rows of features or labels, or as the ids ask for.
fn node_types(
    arrays: &mut Arrays<'_>,
    nodes: &[String],
    features: &[TypeFeatures],
    lists: &[Pairs],
    notes: &mut Notes,
) -> Result<Vec<NodeType>, DatasetError> {
    let (mut types, mut stated) = (Vec::new(), Vec::new());
    for (of, features) in nodes.iter().zip(features) {
        arrays.set_prefix(of);
        let rows = features.given().map(Features::n_rows);
        let labelled = LABELS.into_iter().find_map(|name| arrays.look_at(name)?.shape().first().copied());
        let ends = || lists.iter().flat_map(|list| [(&list.of[0], list, 0), (&list.of[2], list, 1)]);
        let ends = || ends().filter(|(name, ..)| *name == of);
        let n_nodes = match scalar(arrays, "num_nodes")?.or(rows).or(labelled) {
            Some(n_nodes) => n_nodes,
            None => {
                let n_nodes = ends().map(|(_, list, end)| n_named(&list.ids[end])).max().unwrap_or(0);
                note_counted(of, n_nodes, &format!("{of}.num_nodes"), notes);
                n_nodes
            }
        };
        types.push(NodeType { name: of.clone(), n_nodes });
        stated.push((rows, labelled, ends().map(|(_, list, _)| list.ids[0].len()).sum()));
    }
    let stated: Vec<StatedType<'_>> = types
        .iter()
        .zip(stated)
        .map(|(of, (rows, labelled, n_edges))| {
            let (name, n_nodes) = (of.name.as_str(), of.n_nodes);
            // Labels of another number are refused as such, if they are read.
            let n_rows = rows.or(labelled.filter(|&labelled| labelled == n_nodes));
            StatedType { name, n_nodes, n_rows, n_edges }
        })
        .collect();
    check_stated(&stated)?;
    Ok(types)
}

/// Target: the type that the options name, or that girih has marked, or the only one with labels.
fn target_of(arrays: &mut Arrays<'_>, types: &[NodeType], options: &LoadOptions) -> Result<usize, DatasetError> {
    let marked = types.iter().position(|of| arrays.has_under(&of.name, "target"));
    if let Some(of) = marked {
        arrays.set_prefix(&types[of].name);
        arrays.mark_used("target");
    }
    let has_labels = |of: &NodeType| LABELS.iter().any(|label| arrays.has_under(&of.name, label));
    let labelled: Vec<usize> = (0..types.len()).filter(|&number| has_labels(&types[number])).collect();
    match marked.filter(|_| options.target.is_none()) {
        Some(marked) => Ok(marked),
        None => typed_parts::target_of(types, &labelled, options),
    }
}

/// Relations, with the reverses that girih has stated.
fn graph(
    arrays: &mut Arrays<'_>,
    node_types: &[NodeType],
    lists: Vec<Pairs>,
    is_numbered: bool,
    options: &LoadOptions,
    notes: &mut Notes,
) -> Result<TypedGraph, DatasetError> {
    let number = |name: &str| node_types.iter().position(|of| of.name == name).expect("ends are types of nodes");
    let mut relations = Relations::new(node_types, options);
    for list in lists {
        let full = full_name(&list.of);
        arrays.set_prefix(&full);
        let reverse_of = if is_numbered { scalar(arrays, "reverse_of")? } else { None };
        let [source, destination] = [&list.of[0], &list.of[2]].map(|name| number(name));
        let of = EdgeType { relation: list.of[1].clone(), source, destination, reverse_of };
        let added = relations.add(of, list.ids, |edge| format!("{full}.{EDGES}: edge {edge}"));
        added.map_err(|error| error.at(&list.origin))?;
    }
    relations.into_graph(notes)
}

/// Names of nodes and classes, if girih has written them.
fn names_of(arrays: &mut Arrays<'_>, types: &[NodeType], target: usize) -> Result<Option<Names>, DatasetError> {
    if !types.iter().all(|of| arrays.has_under(&of.name, "name_ends")) {
        return Ok(None);
    }
    let mut nodes = NameList::default();
    for of in types {
        arrays.set_prefix(&of.name);
        let names = name_list(arrays, "name")?;
        if names.len() != of.n_nodes {
            let (found, name, n_nodes) = (names.len(), &of.name, of.n_nodes);
            return Err(DatasetError::invalid(format!("{found} names for the {n_nodes} nodes of type {name}")));
        }
        names.iter().for_each(|name| nodes.push(name));
    }
    arrays.set_prefix(&types[target].name);
    let classes = if arrays.has("class_name_ends") { name_list(arrays, "class_name")? } else { NameList::default() };
    Ok(Some(Names { nodes, classes: classes.iter().map(str::to_owned).collect() }))
}

/// Names from the bytes of all, and the end of each.
fn name_list(arrays: &mut Arrays<'_>, key: &str) -> Result<NameList, DatasetError> {
    let bytes = arrays.required(&format!("{key}_bytes"))?;
    let origin = bytes.origin().to_owned();
    let bytes: Vec<u8> = bytes.into_i64()?.iter().map(|&byte| byte as u8).collect();
    let ends = arrays.required(&format!("{key}_ends"))?.into_offsets()?;
    let (mut names, mut start) = (NameList::default(), 0);
    for &end in ends.iter() {
        let piece = usize::try_from(end).ok().and_then(|end| bytes.get(start..end));
        let name = piece.and_then(|piece| std::str::from_utf8(piece).ok()).ok_or_else(|| {
            let number = names.len();
            DatasetError::corrupt(format!("name {number} is no UTF-8 text within {} bytes", bytes.len())).at(&origin)
        })?;
        names.push(name);
        start = end as usize;
    }
    Ok(names)
}

/// Notes the arrays that are not used.
fn note_rest(arrays: &Arrays<'_>, nodes: &[String], target: &str, notes: &mut Notes) {
    let is_type = |of: &str| nodes.iter().any(|name| name == of) || arrays.has_under(of, EDGES);
    for entry in arrays.unused() {
        let why = match parts(entry).filter(|(of, _)| is_type(of)) {
            None => reason(entry).to_owned(),
            Some((_, "edge_weight" | "weight")) => "weights, which edges with types do not have".to_owned(),
            Some((of, key)) if of != target && nodes.iter().any(|name| name == of) => {
                let is_of_target = LABELS.contains(&key) || looks_like_split(key) || key == "num_classes";
                if is_of_target { format!("of another type than {target}") } else { reason(key).to_owned() }
            }
            Some((_, key)) if FEATURES.contains(&key) => "features of edges".to_owned(),
            Some((_, key)) => reason(key).to_owned(),
        };
        notes.leave_out(entry, why);
    }
}
