//! Labels from the arrays and tables of files.
//!
//! Some numbers have two readings: classes from 0 or from 1; one class per node or several. Then an option has to
//! decide, or the notes state the reading.

use girih_graph_format::file::{Array, Table, Values};
use girih_graph_format::{Matrix, NodeId, Notes};

use crate::{DatasetError, Labels, LoadOptions, UNLABELLED, edge_list};

/// Largest number of classes; larger values are not classes.
pub(crate) const MAX_CLASSES: i64 = 1 << 16;

/// Names of a column of node ids in a table of labels.
const NODE_COLUMNS: [&str; 7] = ["node", "node_id", "nodeid", "id", "index", "idx", "node_idx"];

/// Labels of a published format, whose classes count from 0. They are integers, or floats with integer values, one
/// per node (`n`, or `n × 1`), negative or NaN where unknown. For several labels per node they are a row of 0 and 1
/// per node.
///
/// # Errors
/// When the array has another shape, a value is not a class, or a class is beyond 2¹⁶.
pub(crate) fn as_published(array: Array) -> Result<Labels, DatasetError> {
    let origin = array.origin().to_owned();
    if is_table(&array)? {
        return targets(array.into_matrix()?).map_err(|e| e.at(&origin));
    }
    classes(array).map_err(|e| e.at(&origin)).map(Labels::single)
}

/// Labels of an array that a user has saved, read as the options say. `declared` is the number of classes that the
/// data state elsewhere.
///
/// # Errors
/// As [`as_published`], and when classes may count from 0 or from 1 and neither data nor options decide.
pub(crate) fn of_array(
    array: Array,
    declared: Option<usize>,
    options: &LoadOptions,
    notes: &mut Notes,
) -> Result<Labels, DatasetError> {
    let origin = array.origin().to_owned();
    // A single column of 0 and 1 is a multi-label row only if the data or the user say so.
    let labels = if is_table(&array)? || (options.multi_label == Some(true) && array.shape().len() == 2) {
        of_columns(array.into_matrix()?, options, notes)
    } else {
        classes(array).and_then(|classes| of_classes(classes, declared, options))
    };
    labels.map_err(|e| e.at(&origin))
}

/// Labels of an array, as [`of_array`]. With one class a node, the classes are as many as `declared`,
/// whether or not a node has the last one.
///
/// # Errors
/// As [`of_array`], and when there are more than 2¹⁶ classes.
pub(crate) fn of_declared(
    array: Array,
    declared: Option<usize>,
    options: &LoadOptions,
    notes: &mut Notes,
) -> Result<Labels, DatasetError> {
    if let Some(n_classes) = declared.filter(|n| *n > MAX_CLASSES as usize) {
        let message = format!("num_classes is {n_classes}; at most {MAX_CLASSES} are supported");
        return Err(DatasetError::invalid(message));
    }
    Ok(match (of_array(array, declared, options, notes)?, declared) {
        (Labels::Single { classes, .. }, Some(n_classes)) => Labels::Single { n_classes, classes },
        (labels, _) => labels,
    })
}

/// Labels of a table in a text file for `n_nodes` nodes. It has a class per line; or a node and its class, under a
/// header that names both; or several columns of 0 and 1. Nodes have the ids of an edge list that `notes` tell of.
///
/// # Errors
/// As [`of_array`], and when a table of two columns has no header that names them.
pub(crate) fn of_table(
    table: Table,
    n_nodes: usize,
    options: &LoadOptions,
    notes: &mut Notes,
) -> Result<Labels, DatasetError> {
    let Table { header, rows } = table;
    let names: Vec<String> = header.unwrap_or_default().iter().map(|name| name.to_ascii_lowercase()).collect();
    let first_is_node = names.first().is_some_and(|name| name.is_empty() || NODE_COLUMNS.contains(&name.as_str()));
    match rows.n_cols() {
        0 | 1 => of_classes(whole_numbers(rows.data())?, None, options),
        2 if first_is_node => of_classes(by_node(&rows, n_nodes, edge_list::first_id(notes))?, None, options),
        2 if names.is_empty() && rows.data().iter().any(|&value| value != 0.0 && value != 1.0) => {
            Err(DatasetError::invalid(
                "two columns without a header: a node and its class, or two labels a node? write `node,label` as the \
                 first line, or keep the column of classes alone",
            ))
        }
        _ if first_is_node => {
            notes.leave_out("the first column of the labels", "row numbers");
            of_columns(without_first_column(&rows)?, options, notes)
        }
        _ => of_columns(rows, options, notes),
    }
}

/// Labels from one column of numbers (OGB's `node-label`): classes, NaN or negative where unknown; or several
/// columns.
///
/// # Errors
/// When a class is not an integer or beyond 2¹⁶, or a row of several columns has a NaN, naming the row.
pub(crate) fn of_matrix(table: Matrix, options: &LoadOptions, notes: &mut Notes) -> Result<Labels, DatasetError> {
    match table.n_cols() {
        1 => of_classes(whole_numbers(table.data())?, None, options),
        _ => of_columns(table, options, notes),
    }
}

/// Class of every node from rows of node and class; nodes without a row are unlabelled. Nodes count from `first` in the
/// rows.
fn by_node(rows: &Matrix, n_nodes: usize, first: usize) -> Result<Vec<u32>, DatasetError> {
    let mut classes = vec![UNLABELLED; n_nodes];
    let mut seen = vec![false; n_nodes];
    let found = whole_numbers(&rows.data().iter().skip(1).step_by(2).copied().collect::<Vec<_>>())?;
    for (row, class) in found.into_iter().enumerate() {
        let id = rows.row(row)[0];
        let node = (id >= 0.0 && id.fract() == 0.0).then_some(id as usize).and_then(|id| id.checked_sub(first));
        let node = node.filter(|&node| node < n_nodes).ok_or_else(|| {
            let what = format!("node {id} does not exist; there are {n_nodes}, numbered from {first}");
            DatasetError::invalid(format!("row {row}: {what}"))
        })?;
        if std::mem::replace(&mut seen[node], true) {
            return Err(DatasetError::invalid(format!("row {row}: node {id} has a label already")));
        }
        classes[node] = class;
    }
    Ok(classes)
}

fn without_first_column(rows: &Matrix) -> Result<Matrix, DatasetError> {
    let values: Vec<f32> = (0..rows.n_rows()).flat_map(|row| &rows.row(row)[1..]).copied().collect();
    Ok(Matrix::new(rows.n_rows(), rows.n_cols() - 1, values)?)
}

/// Classes of an array of one column; negative and NaN are [`UNLABELLED`].
fn classes(array: Array) -> Result<Vec<u32>, DatasetError> {
    if matches!(array.values(), Values::F16(_) | Values::F32(_) | Values::F64(_)) {
        return whole_numbers(&array.into_f32()?);
    }
    let class = |(v, &class): (usize, &i64)| match class {
        ..0 => Ok(UNLABELLED),
        0..MAX_CLASSES => Ok(class as u32),
        _ => Err(not_a_class(v, class)),
    };
    array.into_i64()?.iter().enumerate().map(class).collect()
}

fn whole_numbers(values: &[f32]) -> Result<Vec<u32>, DatasetError> {
    let class = |(v, &class): (usize, &f32)| {
        if class.is_nan() || class < 0.0 {
            Ok(UNLABELLED)
        } else if class.fract() == 0.0 && class < MAX_CLASSES as f32 {
            Ok(class as u32)
        } else {
            Err(not_a_class(v, class))
        }
    };
    values.iter().enumerate().map(class).collect()
}

fn not_a_class(v: usize, class: impl std::fmt::Display) -> DatasetError {
    DatasetError::invalid(format!("node {v} has class {class}; classes are whole numbers below {MAX_CLASSES}"))
}

/// One class per node, counted from 0 or from 1 as the options say; refuses ambiguous classes.
fn of_classes(mut classes: Vec<u32>, declared: Option<usize>, options: &LoadOptions) -> Result<Labels, DatasetError> {
    let known = || classes.iter().copied().filter(|&class| class != UNLABELLED);
    let (Some(least), Some(largest)) = (known().min(), known().max()) else { return Ok(Labels::single(classes)) };
    match options.labels_from {
        Some(first) if least < first => {
            let v = classes.iter().position(|&class| class == least).unwrap_or_default();
            return Err(DatasetError::invalid(format!(
                "node {v} has class {least}, and classes count from {first} by --labels-from; leave that out"
            )));
        }
        Some(first) => {
            classes.iter_mut().filter(|class| **class != UNLABELLED).for_each(|class| *class -= first);
        }
        None if least == 1 && declared.is_none_or(|n_classes| n_classes <= largest as usize) => {
            return Err(DatasetError::invalid(format!(
                "classes run from 1 to {largest}, and none is 0: --labels-from 1 reads them as {largest} classes, \
                 --labels-from 0 as {} of which the first is empty",
                largest + 1
            )));
        }
        None => {}
    }
    Ok(Labels::single(classes))
}

/// A row of 0 and 1 per node: several labels per node, or one class per node if every row has exactly one 1, unless
/// the options decide.
fn of_columns(table: Matrix, options: &LoadOptions, notes: &mut Notes) -> Result<Labels, DatasetError> {
    let n_classes = table.n_cols();
    let ones = |v: usize| table.row(v).iter().filter(|&&value| value == 1.0).count();
    let is_binary = table.data().iter().all(|&value| value == 0.0 || value == 1.0);
    let (mut n_without, mut n_several) = (0, 0);
    for v in 0..table.n_rows() {
        match ones(v) {
            0 => n_without += 1,
            1 => {}
            _ => n_several += 1,
        }
    }
    let is_one_hot = is_binary && n_several == 0 && n_without < table.n_rows();
    match options.multi_label {
        Some(true) => return targets(table),
        Some(false) if !is_one_hot => {
            let v = (0..table.n_rows()).find(|&v| ones(v) > 1).unwrap_or_default();
            return Err(DatasetError::invalid(format!(
                "node {v} has {} labels, and --multi-label false reads one a node; leave that out",
                ones(v)
            )));
        }
        None if !is_one_hot => return targets(table),
        None if n_without > 0 => {
            notes.warn(format!(
                "labels have at most one 1 a row, and none in {n_without} rows: read as several labels a node; \
                 --multi-label false reads one class a node, unknown where there is no 1, --multi-label true as now \
                 without this warning"
            ));
            return targets(table);
        }
        None => {
            let text = format!(
                "labels of {n_classes} columns have exactly one 1 a row: read as one class a node (--multi-label true \
                 reads several labels a node)"
            );
            notes.make_up("one_hot_labels", text, &[("classes", n_classes as u64)]);
        }
        Some(false) => {}
    }
    let class = |v: usize| table.row(v).iter().position(|&value| value == 1.0).map_or(UNLABELLED, |at| at as u32);
    let classes = (0..table.n_rows() as NodeId).map(|v| class(v as usize)).collect();
    Ok(Labels::Single { n_classes, classes })
}

/// Labels of several classes per node.
fn targets(table: Matrix) -> Result<Labels, DatasetError> {
    let n_classes = table.n_cols();
    match table.data().iter().position(|value| value.is_nan()) {
        None => Ok(Labels::Multi { n_classes, targets: table }),
        Some(at) => Err(DatasetError::invalid(format!(
            "row {}, column {}: no target; with several columns each must be 0 or 1",
            at / n_classes,
            at % n_classes
        ))),
    }
}

/// Whether an array has a row of several values per node.
fn is_table(array: &Array) -> Result<bool, DatasetError> {
    match array.shape() {
        [_] | [_, 1] => Ok(false),
        [_, _] => Ok(true),
        shape => Err(DatasetError::invalid(format!(
            "labels of shape {shape:?}; expected one class a node, or a row of 0 and 1 a node"
        ))
        .at(array.origin())),
    }
}
