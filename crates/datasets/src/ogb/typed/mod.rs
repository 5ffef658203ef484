//! Raw folders of OGB for one graph with types of nodes and edges, such as ogbn-mag.
//!
//! ```text
//! raw/num-node-dict.csv.gz                names of types, and a line with their numbers of nodes
//! raw/triplet-type-list.csv.gz            source type, relation, destination type; else the folders tell
//! raw/relations/A___r___B/edge.csv.gz     ids of sources and destinations, inside their types
//! raw/relations/A___r___B/num-edge-list.csv.gz
//! raw/node-feat/T/node-feat.csv.gz        a row of numbers a node of the type; may be missing
//! raw/node-label/T/node-label.csv.gz      labels of the type, as without types
//! raw/nodetype-has-feat.csv.gz  nodetype-has-label.csv.gz   True and False under names of types; may be missing
//! split/NAME/T/{train,valid,test}.csv.gz  ids inside the type, one a line; one split set a NAME
//! split/NAME/nodetype-has-split.csv.gz    as of features and labels
//! ```
//! Or archives with an array for each type or relation: `num_nodes_dict.npz`, `edge_index_dict.npz`,
//! `num_edges_dict.npz`, `node_feat_dict.npz` and `node-label.npz`. Every other file is named in the notes.

mod binary;
mod form;
mod splits;
mod text;

use std::path::{Path, PathBuf};

use girih_graph_format::file::Npz;
use girih_graph_format::{EdgeType, NodeType, Notes};

use self::binary::Archives;
use self::form::{Form, JOINT, Pairs, place};
use self::text::Tables;
use super::{Home, table};
use crate::inventory::Inventory;
use crate::splits::drawn_by;
use crate::typed_parts::{Relations, StatedType, TypedParts, check_edge_options, check_stated, target_of};
use crate::{Dataset, DatasetError, Features, Labels, LoadOptions, Split, SplitRule, TypeFeatures, reverses};

/// Folder of the raw files of a typed data set, given its root or the raw folder as `path`.
pub(crate) fn find_raw(path: &Path) -> Option<PathBuf> {
    let is_text = |dir: &Path| table(dir, text::COUNTS).is_some() && dir.join(text::RELATIONS).is_dir();
    let is_listed = |dir: &Path| table(dir, text::TRIPLETS).is_some();
    let is_binary = |dir: &Path| dir.join(binary::EDGES).is_file() && Npz::open(&dir.join(binary::COUNTS)).is_ok();
    let is_raw = |dir: &PathBuf| is_text(dir) || is_listed(dir) || is_binary(dir);
    [path.to_owned(), path.join("raw")].into_iter().find(is_raw)
}

/// Loads a data set from its raw folder and the folder of splits. Each relation gets its reverse, unless the options say
/// otherwise.
///
/// # Errors
/// When files are missing, damaged or contradict each other, or several types have labels and none is chosen. Each error
/// names its file.
pub(crate) fn load(raw: &Path, options: &LoadOptions) -> Result<Dataset, DatasetError> {
    let home = Home::of(raw)?;
    read(&home, options).map_err(|error| error.at(&home.root))
}

fn read(home: &Home, options: &LoadOptions) -> Result<Dataset, DatasetError> {
    check_edge_options(options)?;
    let mut notes = Notes::default();
    let is_text = !home.raw.join(binary::EDGES).is_file();
    let mut form: Box<dyn Form> =
        if is_text { Box::new(Tables::open(&home.raw)?) } else { Box::new(Archives::open(&home.raw)?) };
    let types = form.node_types()?;
    let pairs = form.pairs(&mut notes)?;
    let features = features_of(&mut *form, &types, options, &mut notes)?;
    check_sizes(&types, &pairs, &features).map_err(|error| error.at(&form.counts()))?;
    let graph = relations(&types, pairs, options)?.into_graph(&mut notes)?;
    let graph = reverses::with_option(graph, options.reverse, &mut notes)?;

    let mut labelled = Vec::new();
    for (number, of) in types.iter().enumerate() {
        if form.has_labels(&of.name)? {
            labelled.push(number);
        }
    }
    let target = target_of(&types, &labelled, options)?;
    let mut labels = None;
    if labelled.contains(&target) {
        let (found, path) = form.labels(&types[target].name, options, &mut notes)?;
        found.validate(types[target].n_nodes).map_err(|error| error.at(&path))?;
        labels = Some(found);
    }
    form.note_rest(&mut notes);
    let splits = splits_of(home, (&types, target), labels.as_ref(), options, &mut notes)?;
    let parts = TypedParts { graph, features, target, labels, splits, names: None };
    parts.into_loaded(home.name.clone(), notes, options)
}

fn features_of(
    form: &mut dyn Form,
    types: &[NodeType],
    options: &LoadOptions,
    notes: &mut Notes,
) -> Result<Vec<TypeFeatures>, DatasetError> {
    let norm = options.feature_norm.unwrap_or_default();
    let of_type = |of: &NodeType| {
        let Some((rows, path)) = form.features(&of.name, notes)? else { return Ok(TypeFeatures::None) };
        let divided = rows.check_finite().map_err(DatasetError::from).and_then(|()| norm.apply(Features::Dense(rows)));
        divided.map(TypeFeatures::Given).map_err(|error| error.at(&path))
    };
    types.iter().map(of_type).collect()
}

/// Refuses numbers of nodes that the files do not bear out, and relations of unknown types.
fn check_sizes(types: &[NodeType], pairs: &[Pairs], features: &[TypeFeatures]) -> Result<(), DatasetError> {
    let known = |name: &String| types.iter().any(|of| of.name == *name);
    let unknown =
        |pairs: &Pairs| [0, 2].into_iter().find(|&end| !known(&pairs.of[end])).map(|end| pairs.of[end].clone());
    if let Some((pairs, name)) = pairs.iter().find_map(|pairs| Some((pairs, unknown(pairs)?))) {
        let known = types.iter().map(|of| of.name.as_str()).collect::<Vec<_>>().join(", ");
        let what = format!("the relation {} names the type {name}, which has no number of nodes", pairs.of.join(JOINT));
        return Err(DatasetError::invalid(format!("{what}; known are {known}; add it, or take the relation out")));
    }
    let stated = types.iter().zip(features).map(|(of, features)| {
        let ends = |pairs: &&Pairs| pairs.of[0] == of.name || pairs.of[2] == of.name;
        let n_edges = pairs.iter().filter(ends).map(|pairs| pairs.ids[0].len()).sum();
        StatedType { name: &of.name, n_nodes: of.n_nodes, n_rows: features.given().map(Features::n_rows), n_edges }
    });
    check_stated(&stated.collect::<Vec<_>>())
}

fn relations<'a>(
    types: &'a [NodeType],
    pairs: Vec<Pairs>,
    options: &'a LoadOptions,
) -> Result<Relations<'a>, DatasetError> {
    let number = |name: &str| types.iter().position(|of| of.name == name).expect("checked");
    let mut relations = Relations::new(types, options);
    for Pairs { of: [source, relation, destination], origin, ids, lines } in pairs {
        let [source, destination] = [source, destination].map(|name| number(&name));
        let of = EdgeType { relation, source, destination, reverse_of: None };
        let added = relations.add(of, ids, |edge| place(lines.as_ref(), edge));
        added.map_err(|error| error.at(&origin))?;
    }
    Ok(relations)
}

/// Split sets of the target; drawn where labels come without any.
fn splits_of(
    home: &Home,
    (types, target): (&[NodeType], usize),
    labels: Option<&Labels>,
    options: &LoadOptions,
    notes: &mut Notes,
) -> Result<Vec<Split>, DatasetError> {
    let Home { raw, root, .. } = home;
    // PyG keeps the folder of splits in the raw folder.
    let split = [root, raw].map(|folder| folder.join("split")).into_iter().find(|folder| folder.is_dir());
    if root != raw {
        let mut files = Inventory::of_folder(root)?;
        files.take("raw/");
        files.take("split/");
        files.note(notes);
    }
    let found = match split {
        Some(split) => splits::read(&split, (types, target), options, notes)?,
        None => splits::Found::default(),
    };
    Ok(match labels {
        Some(labels) if found.splits.is_empty() && !found.is_there => {
            drawn_by(SplitRule::UNSPLIT, labels, options, notes)
        }
        _ => found.splits,
    })
}
