//! Labels and parts of a split from tables that name nodes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use girih_graph_format::{NodeId, Notes};
use girih_random::{Key, purpose};

use crate::labels::MAX_CLASSES;
use crate::splits::drawn_by;
use crate::text_table::TextTable;
use crate::{Dataset, DatasetError, LabelColumns, Labels, LoadOptions, NameList, Names, Split, SplitRule, UNLABELLED};

/// Parts of a split, in the order of [`Split::parts`].
const PARTS: [&str; 3] = ["train", "val", "test"];
/// Start of the header of a column of labels.
const LABEL: &str = "label";

/// Tables of labels: of all nodes with a label, and of each part of the split.
#[derive(Default)]
pub(crate) struct LabelFiles {
    pub(crate) all: Option<PathBuf>,
    pub(crate) parts: [Option<PathBuf>; 3],
}

impl LabelFiles {
    /// Tables that the options name.
    pub(crate) fn of(options: &LoadOptions) -> Self {
        let LoadOptions { labels, train, val, test, .. } = options;
        Self { all: labels.clone(), parts: [train, val, test].map(Clone::clone) }
    }

    fn read(&self) -> Result<Vec<(Option<usize>, TextTable)>, DatasetError> {
        let parts = self.parts.iter().enumerate().map(|(part, path)| (Some(part), path));
        let named = parts.chain([(None, &self.all)]).filter_map(|(part, path)| Some((part, path.as_ref()?)));
        named
            .map(|(part, path)| Ok((part, TextTable::read(path, "a table of labels", "a node in each line")?)))
            .collect()
    }

    fn has_parts(&self) -> bool {
        self.parts.iter().any(Option::is_some)
    }
}

/// Reads labels, names of classes and the split of data whose nodes have names. Classes are numbered in the order of
/// their names, or of their values if all are integers.
///
/// # Errors
/// When a table has not the expected columns, names no node, gives a node two labels or two parts, or has no label.
pub(crate) fn attach(dataset: &mut Dataset, files: &LabelFiles, options: &LoadOptions) -> Result<(), DatasetError> {
    check_options(files, options)?;
    let names = dataset.names.take().map(Arc::unwrap_or_clone).unwrap_or_default();
    let tables = files.read()?;
    let ids = ids_of(&tables, &names.nodes);
    let mut given = BTreeMap::new();
    for (number, (part, table)) in tables.iter().enumerate() {
        let columns = Columns::of(table, options.label_columns.as_ref(), &ids)?;
        for row in 0..table.n_rows() {
            let place = Place { table: number, row, part: *part };
            add(&mut given, &tables, &ids, columns, place)?;
        }
    }
    let (labels, classes) = labels_of(&given, names.nodes.len())?;
    if files.has_parts() {
        let split = split_of(&given);
        dataset.splits = match options.val_share {
            None => vec![split],
            Some(share) => with_validation(&split, share, options, &mut dataset.notes)?,
        };
    } else {
        let drawn = LoadOptions { labels: None, ..options.clone() };
        dataset.splits = drawn_by(SplitRule::UNSPLIT, &labels, &drawn, &mut dataset.notes);
    }
    set_target(dataset, &given, &tables)?;
    dataset.labels = Some(labels);
    dataset.names = Some(Arc::new(Names { classes, ..names }));
    dataset.validate()
}

/// Makes the type of the labelled nodes the target.
///
/// # Errors
/// When they are of several types, naming a node of each of two.
fn set_target(
    dataset: &mut Dataset,
    given: &BTreeMap<NodeId, Given<'_>>,
    tables: &[(Option<usize>, TextTable)],
) -> Result<(), DatasetError> {
    let Some(typed) = dataset.typed.as_mut() else { return Ok(()) };
    let schema = typed.graph.schema();
    let firsts: Vec<usize> = (0..schema.node_types().len()).map(|of| schema.first(of)).collect();
    let type_of = |node: NodeId| firsts.partition_point(|&first| first <= node as usize) - 1;
    let Some((&first, _)) = given.first_key_value() else { return Ok(()) };
    let target = type_of(first);
    if let Some((&other, of_other)) = given.iter().find(|&(&node, _)| type_of(node) != target) {
        let name = |node: NodeId| &schema.node_types()[type_of(node)].name;
        let (table, row) = (&tables[of_other.first.table].1, of_other.first.row);
        return Err(DatasetError::invalid(format!(
            "labelled nodes are of the types {} and {} (the node of row {}, for one); only nodes of one type are classified: \
             leave --node-types out, or label one type",
            name(first),
            name(other),
            row + 1
        ))
        .at(table.path()));
    }
    if typed.target != target {
        Arc::make_mut(typed).target = target;
    }
    Ok(())
}

/// Refuses options that tables of names give no meaning.
fn check_options(files: &LabelFiles, options: &LoadOptions) -> Result<(), DatasetError> {
    let refused = if options.labels_from.is_some() {
        "--labels-from is for classes that are numbers of an array; a table names its classes, so leave it out"
    } else if options.multi_label.is_some() {
        "--multi-label is for rows of 0 and 1; a table has one label a node, so leave it out"
    } else if options.val_share.is_some() && files.parts[0].is_none() {
        "--val-share takes a share of the training nodes, and none are given; name a table of them by --train"
    } else if options.val_share.is_some() && files.parts[1].is_some() {
        "--val-share and --val both choose nodes for validation; leave one out"
    } else {
        return Ok(());
    };
    Err(DatasetError::invalid(refused))
}

/// Ids of all nodes whose names are fields of the tables.
fn ids_of<'a>(tables: &'a [(Option<usize>, TextTable)], nodes: &NameList) -> HashMap<&'a str, NodeId> {
    let cells = tables.iter().flat_map(|(_, table)| table.cells());
    let mut found: HashMap<&str, Option<NodeId>> = cells.map(|cell| (cell, None)).collect();
    for (id, name) in nodes.iter().enumerate() {
        if let Some(of) = found.get_mut(name) {
            *of = Some(id as NodeId);
        }
    }
    found.into_iter().filter_map(|(name, id)| Some((name, id?))).collect()
}

/// Columns of nodes and of labels.
#[derive(Clone, Copy)]
struct Columns {
    node: usize,
    label: usize,
}

impl Columns {
    /// Columns by the headers that the options name; otherwise the column that begins with `label`, and the first other
    /// one whose fields all name nodes.
    fn of(table: &TextTable, named: Option<&LabelColumns>, ids: &HashMap<&str, NodeId>) -> Result<Self, DatasetError> {
        let header = table.header();
        let refused = |what: String| {
            let headers = header.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
            let message = format!("{what}; the columns are {headers}, of which --label-columns NODE,LABEL chooses two");
            Err(DatasetError::invalid(message).at(table.path()))
        };
        if let Some(LabelColumns { node, label }) = named {
            let [node_at, label_at] = [node, label].map(|name| header.iter().position(|of| of == name));
            return match (node_at, label_at) {
                (Some(node), Some(label)) => Ok(Self { node, label }),
                (None, _) => refused(format!("there is no column `{node}`")),
                (_, None) => refused(format!("there is no column `{label}`")),
            };
        }
        let is_label = |name: &str| name.get(..LABEL.len()).is_some_and(|start| start.eq_ignore_ascii_case(LABEL));
        let labels: Vec<usize> = (0..header.len()).filter(|&at| is_label(&header[at])).collect();
        let &[label] = &labels[..] else {
            return refused(format!("{} columns begin with `{LABEL}`, where one is expected", labels.len()));
        };
        let n_known = |at: usize| (0..table.n_rows()).filter(|&row| ids.contains_key(table.cell(row, at))).count();
        let counts = (0..header.len()).filter(|&at| at != label).map(|at| (at, n_known(at)));
        // The first column with the most names; if it has others too, the error is about its first wrong field.
        let best = counts.filter(|&(_, n)| n > 0).max_by_key(|&(at, n)| (n, header.len() - at));
        match best {
            Some((node, _)) => Ok(Self { node, label }),
            None => refused("no column has names of nodes".to_owned()),
        }
    }
}

/// Row of a table, and the part of the split that the table is for.
#[derive(Clone, Copy)]
struct Place {
    table: usize,
    row: usize,
    part: Option<usize>,
}

/// Label of a node.
struct Given<'a> {
    label: &'a str,
    /// First place that gives the label.
    first: Place,
    /// Place that gives the part, in the parts of a split.
    part: Option<Place>,
}

/// Adds the label of a row.
fn add<'a>(
    given: &mut BTreeMap<NodeId, Given<'a>>,
    tables: &'a [(Option<usize>, TextTable)],
    ids: &HashMap<&str, NodeId>,
    columns: Columns,
    place: Place,
) -> Result<(), DatasetError> {
    let table = &tables[place.table].1;
    let (name, label) = (table.cell(place.row, columns.node), table.cell(place.row, columns.label));
    let refused = |what: String| Err(table.error(place.row, &what));
    let Some(&id) = ids.get(name) else {
        let column = &table.header()[columns.node];
        let remedy = format!("column `{column}` has names of nodes as in the graph, IRIs without brackets");
        return refused(format!("`{name}` is no node; {remedy} (--label-columns NODE,LABEL chooses another)"));
    };
    if label.is_empty() {
        return refused(format!("`{name}` has no label; leave the row out"));
    }
    let (label, part) = (integer_of(label), place.part.map(|_| place));
    let Some(known) = given.get_mut(&id) else {
        given.insert(id, Given { label, first: place, part });
        return Ok(());
    };
    let told = |of: Place| format!("{}, line {}", tables[of.table].1.path().display(), tables[of.table].1.line(of.row));
    if known.label != label {
        let before = told(known.first);
        return refused(format!("`{name}` has the label `{label}`, but `{}` in {before}; keep one", known.label));
    }
    if known.first.table == place.table {
        return refused(format!("`{name}` has a row already, line {}; keep one", table.line(known.first.row)));
    }
    match (known.part, part) {
        (Some(other), Some(_)) => {
            let [before, now] = [other, place].map(|of| PARTS[of.part.unwrap_or_default()]);
            refused(format!("`{name}` is in {now}, but also in {before} by {}; keep it in one part", told(other)))
        }
        (None, Some(_)) => {
            known.part = part;
            Ok(())
        }
        (_, None) => Ok(()),
    }
}

/// Integer of a label that is one with zeros behind a point, as `1` of `1.0`; otherwise the label.
fn integer_of(label: &str) -> &str {
    match label.split_once('.') {
        Some((integer, zeros)) if integer.parse::<i64>().is_ok() && zeros.bytes().all(|b| b == b'0') => integer,
        _ => label,
    }
}

/// Labels of all nodes, and the names of classes.
fn labels_of(given: &BTreeMap<NodeId, Given<'_>>, n_nodes: usize) -> Result<(Labels, Vec<String>), DatasetError> {
    let distinct: BTreeSet<&str> = given.values().map(|of| of.label).collect();
    let mut classes: Vec<&str> = distinct.into_iter().collect();
    let values: Option<Vec<i64>> = classes.iter().map(|class| class.parse().ok()).collect();
    if values.is_some() {
        classes.sort_by_key(|class| class.parse().unwrap_or(i64::MAX));
    }
    if classes.len() as i64 > MAX_CLASSES {
        let what = format!("{} different labels; at most {MAX_CLASSES} classes are supported", classes.len());
        return Err(DatasetError::invalid(format!("{what}; --label-columns NODE,LABEL chooses another column")));
    }
    let numbers: HashMap<&str, u32> = classes.iter().zip(0..).map(|(&class, number)| (class, number)).collect();
    let mut of_nodes = vec![UNLABELLED; n_nodes];
    given.iter().for_each(|(&id, of)| of_nodes[id as usize] = numbers[of.label]);
    let labels = Labels::Single { n_classes: classes.len(), classes: of_nodes };
    Ok((labels, classes.into_iter().map(str::to_owned).collect()))
}

/// Split of the nodes whose tables are parts.
fn split_of(given: &BTreeMap<NodeId, Given<'_>>) -> Split {
    let nodes_of = |part: usize| {
        let is_in = |of: &Given<'_>| of.part.and_then(|place| place.part) == Some(part);
        given.iter().filter(|(_, of)| is_in(of)).map(|(&id, _)| id).collect()
    };
    Split { train: nodes_of(0), val: nodes_of(1), test: nodes_of(2) }
}

/// Splits in which a share of the training nodes is drawn for validation, one per run.
fn with_validation(
    split: &Split,
    share: f64,
    options: &LoadOptions,
    notes: &mut Notes,
) -> Result<Vec<Split>, DatasetError> {
    let n_train = split.train.len();
    let n_val = (share * n_train as f64).round();
    if !(n_val >= 1.0 && n_val < n_train as f64) {
        let what = format!("--val-share {share} of {n_train} training nodes leaves a part empty");
        return Err(DatasetError::invalid(format!("{what}; give a share between 0 and 1, such as 0.2")));
    }
    let n_val = n_val as usize;
    let drawn = |run: u64| {
        let mut train = split.train.clone();
        Key::new(options.seed, purpose::SPLIT).child(run).stream(0, 0).shuffle(&mut train);
        let mut val = train.split_off(n_train - n_val);
        train.sort_unstable();
        val.sort_unstable();
        Split { train, val, test: split.test.clone() }
    };
    let seed = options.seed;
    let text = format!("{n_val} of {n_train} training nodes are drawn for validation (--val-share), seed {seed}");
    notes.make_up(
        "drawn_validation",
        text,
        &[("val", n_val as u64), ("train", (n_train - n_val) as u64), ("seed", seed)],
    );
    Ok((0..options.n_drawn() as u64).map(drawn).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_equal_however_they_are_written() {
        for (label, expected) in
            [("1.0", "1"), ("0.00", "0"), ("-2.0", "-2"), ("1.5", "1.5"), ("a.0", "a.0"), ("1", "1")]
        {
            assert_eq!(integer_of(label), expected);
        }
    }
}
