//! Folders of triples: `train.txt`, `valid.txt` and `test.txt`, each line a head, a relation and a tail.
//!
//! Fields are names or ids, separated by tabs or else by blanks. A first line with one number counts the lines below it.
//! In the folders of OpenKE, the files are `train2id.txt` and so on, and `entity2id*.txt` and `relation2id*.txt` list
//! `name id` below a count.

mod id_names;
mod part;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use girih_graph_format::file::{Columns, Role};
use girih_graph_format::{Duplicates, NodeId, Notes};

use self::id_names::IdNames;
use self::part::Part;
use crate::entity_graph::{Edges, entity_graph};
use crate::inventory::Inventory;
use crate::name_table::NameTable;
use crate::typed_parts::check_edge_options;
use crate::{Dataset, DatasetError, LoadOptions, NameList, Names, Triple, Triples, TypedData};

/// Names of the parts, before an ending.
const PARTS: [&str; 3] = ["train", "valid", "test"];
/// Endings of the files of parts.
const ENDINGS: [&str; 3] = [".txt", ".tsv", "2id.txt"];

/// Whether a folder has the three files, and `train.txt` is none of LightGCN's lists of items.
pub(crate) fn recognizes(folder: &Path) -> bool {
    files_in(folder).is_some_and(|[train, ..]| !part::lists_items(&train))
}

/// Files of the parts, if the folder has all three under one ending.
fn files_in(folder: &Path) -> Option<[PathBuf; 3]> {
    let files = ENDINGS.map(|ending| PARTS.map(|part| folder.join(format!("{part}{ending}"))));
    files.into_iter().find(|files| files.iter().all(|file| file.is_file()))
}

/// Loads a folder: a typed graph of the training triples, the triples of all parts, and the names of entities and
/// relations.
///
/// # Errors
/// When a line has not three fields, a count is wrong, there is no training triple, or it is not clear which column has the
/// relations. Each names its file.
pub(crate) fn load(folder: &Path, options: &LoadOptions) -> Result<Dataset, DatasetError> {
    check_edge_options(options).map_err(|e| e.at(folder))?;
    let Some(files) = files_in(folder) else {
        return Err(DatasetError::invalid("train.txt, valid.txt or test.txt is missing").at(folder));
    };
    let mut fields = NameTable::default();
    let [train, val, test] = files.each_ref().map(|file| Part::read(file, &mut fields));
    let mut parts = [train?, val?, test?];
    if parts[0].rows.is_empty() {
        return Err(
            DatasetError::invalid("no triple to train on; expected lines of head, relation and tail").at(&files[0])
        );
    }
    let fields = fields.into_names();
    let roles = places(options.columns.as_ref(), &parts[0], fields.len())?;
    let (mut notes, mut inventory) = (Notes::default(), Inventory::of_folder(folder)?);
    files.iter().for_each(|file| inventory.take(&file.file_name().unwrap_or_default().to_string_lossy()));
    for part in &mut parts {
        part.rows.iter_mut().for_each(|row| *row = roles.map(|place| row[place]));
        part.merge_repeated(&fields, options.duplicates == Some(Duplicates::Refuse), &mut notes)?;
    }
    let [entities, relations] = [("entity", &[0, 2][..]), ("relation", &[1])].map(|(what, places)| {
        let table = IdNames::find(folder, &format!("{what}2id"), &mut inventory)?;
        numbered(&mut parts, places, &fields, table)
    });
    let [entities, relations] = [entities?, relations?];
    inventory.note(&mut notes);
    warn_of_leaks(&parts, &mut notes);
    let name = folder.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    into_dataset(name, parts, (entities, relations), options, notes).map_err(|e| e.at(folder))
}

/// Data set of parts whose rows are triples.
fn into_dataset(
    name: String,
    parts: [Part; 3],
    (entities, relations): (NameList, NameList),
    options: &LoadOptions,
    mut notes: Notes,
) -> Result<Dataset, DatasetError> {
    let [train, val, test] = parts.map(|part| part.rows);
    let mut edges: Vec<Edges> = (0..relations.len()).map(|_| Edges::default()).collect();
    train.iter().for_each(|&[head, relation, tail]| edges[relation as usize].push(head, tail));
    let typed = entity_graph(&relations, edges, entities.len(), options, &mut notes)?;
    let dataset = Dataset {
        names: Some(Arc::new(Names { nodes: entities, classes: Vec::new() })),
        triples: Some(Arc::new(Triples { relations, train, val, test })),
        notes,
        ..Dataset::of_typed(name, TypedData::of_graph(typed))?
    };
    dataset.validate()?;
    Ok(dataset)
}

/// Columns of head, relation and tail: those that the options name, or else the first, second and third.
///
/// # Errors
/// When the options name others, or another column than the second has the fewest different names.
fn places(named: Option<&Columns>, train: &Part, n_fields: usize) -> Result<[usize; 3], DatasetError> {
    if let Some(columns) = named {
        let place = |role: Role| columns.roles().iter().position(|&of| of == role);
        return match [Role::Source, Role::Relation, Role::Target].map(place) {
            [Some(head), Some(relation), Some(tail)] if columns.roles().len() == 3 => Ok([head, relation, tail]),
            _ => {
                let what = format!("--columns {columns}: a triple has a head, a relation and a tail");
                Err(DatasetError::invalid(format!("{what}, in an order such as head,relation,tail")).at(&train.path))
            }
        };
    }
    let n_different = [0, 1, 2].map(|column| {
        let mut is_found = vec![false; n_fields];
        train.rows.iter().filter(|row| !std::mem::replace(&mut is_found[row[column] as usize], true)).count()
    });
    let fewest = n_different.into_iter().min().unwrap_or_default();
    if n_different[1] == fewest {
        return Ok([0, 1, 2]);
    }
    let order = if n_different[0] == fewest { "relation,head,tail" } else { "head,tail,relation" };
    let [first, second, third] = n_different;
    Err(DatasetError::invalid(format!(
        "the columns have {first}, {second} and {third} different names, and relations are few, so that they may not be in \
         the second; say which columns are which, by --columns {order} or head,relation,tail"
    ))
    .at(&train.path))
}

/// Numbers the fields at some places of all triples: by their ids in a table, or else in the order in which they appear.
/// Returns the names by number.
///
/// # Errors
/// When a field is no id of the table.
fn numbered(
    parts: &mut [Part; 3],
    places: &[usize],
    fields: &NameList,
    table: Option<IdNames>,
) -> Result<NameList, DatasetError> {
    const NONE: NodeId = NodeId::MAX;
    let (mut numbers, mut names) = (vec![NONE; fields.len()], NameList::default());
    for part in parts {
        let lines = &part.lines;
        for (row, &line) in part.rows.iter_mut().zip(lines) {
            for &place in places {
                let field = row[place] as usize;
                if numbers[field] == NONE {
                    numbers[field] = match &table {
                        Some(table) => table
                            .id_of(fields.get(field))
                            .map_err(|what| DatasetError::invalid(format!("line {line}: {what}")).at(&part.path))?,
                        None => {
                            names.push(fields.get(field));
                            names.len() as NodeId - 1
                        }
                    };
                }
                row[place] = numbers[field];
            }
        }
    }
    Ok(table.map_or(names, IdNames::into_names))
}

/// Warns of held-out triples that are in training, too.
fn warn_of_leaks([train, val, test]: &[Part; 3], notes: &mut Notes) {
    let mut known: Vec<Triple> = train.rows.clone();
    known.sort_unstable();
    for part in [val, test] {
        let n_known = part.rows.iter().filter(|&triple| known.binary_search(triple).is_ok()).count();
        if n_known > 0 {
            let name = part.path.file_name().unwrap_or_default().to_string_lossy();
            notes.warn(format!("triples of {name} that are in training, too: {n_known} of {}", part.rows.len()));
        }
    }
}
