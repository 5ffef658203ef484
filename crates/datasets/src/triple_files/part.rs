//! [`Part`]: the triples of a file, with their lines.

use std::collections::HashSet;
use std::io::Read;
use std::path::{Path, PathBuf};

use girih_graph_format::{MAX_NODES, NodeId, Notes};

use crate::name_table::NameTable;
use crate::text_lines::for_each_line;
use crate::{DatasetError, NameList};

/// Bytes at the start of a file by which formats are told apart.
const START_BYTES: u64 = 64 << 10;

/// Triples of a file.
pub(super) struct Part {
    pub(super) path: PathBuf,
    /// Numbers of the three fields of each triple.
    pub(super) rows: Vec<[NodeId; 3]>,
    /// Line of each triple, from 1.
    pub(super) lines: Vec<usize>,
}

impl Part {
    /// Reads a file, and numbers its fields by `names`.
    ///
    /// # Errors
    /// When a line has not three fields, or a field is empty, naming the line; when a first line with one number is not
    /// the number of the others.
    pub(super) fn read(path: &Path, names: &mut NameTable) -> Result<Self, DatasetError> {
        let mut part = Self { path: path.to_owned(), rows: Vec::new(), lines: Vec::new() };
        let mut count = None;
        for_each_line(path, "triples of head, relation and tail", |number, line| {
            let line = if number == 1 { line.trim_start_matches('\u{feff}') } else { line };
            if line.trim().is_empty() {
                return Ok(());
            }
            if part.rows.is_empty() && count.is_none() {
                count = count_in(line).map(|count| (number, count));
                if count.is_some() {
                    return Ok(());
                }
            }
            let fields = triple_in(line).map_err(|what| DatasetError::invalid(format!("line {number}: {what}")))?;
            part.rows.push(fields.map(|field| names.number_of(field)));
            part.lines.push(number);
            if names.len() > MAX_NODES {
                return Err(DatasetError::invalid(format!("more than {MAX_NODES} names; read smaller files")));
            }
            Ok(())
        })?;
        let n_found = part.rows.len();
        match count {
            Some((line, count)) if count != n_found as u64 => {
                let what = format!("line {line} counts {count} triples, and {n_found} follow");
                Err(DatasetError::invalid(format!("{what}; correct or remove the count, or fetch the file again"))
                    .at(path))
            }
            _ => Ok(part),
        }
    }

    /// Keeps one of equal triples, with a note; or refuses them.
    ///
    /// # Errors
    /// When `refuses` and a triple is there again, naming its line.
    pub(super) fn merge_repeated(
        &mut self,
        names: &NameList,
        refuses: bool,
        notes: &mut Notes,
    ) -> Result<(), DatasetError> {
        let mut seen = HashSet::with_capacity(self.rows.len());
        let is_new: Vec<bool> = self.rows.iter().map(|row| seen.insert(*row)).collect();
        let n_repeated = self.rows.len() - seen.len();
        let Some(first) = is_new.iter().position(|&is_new| !is_new) else { return Ok(()) };
        let told = self.rows[first].map(|field| names.get(field as usize)).join(", ");
        if refuses {
            let what = format!("line {}: the triple {told} is there again", self.lines[first]);
            return Err(DatasetError::invalid(format!("{what}; --duplicates merge keeps one")).at(&self.path));
        }
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let text = format!("{n_repeated} repeated triples of {name} are left out, such as {told}");
        notes.make_up("merged_triples", text, &[("triples", n_repeated as u64)]);
        let keep = |at: &usize| is_new[*at];
        self.rows = (0..is_new.len()).filter(keep).map(|at| self.rows[at]).collect();
        self.lines = (0..is_new.len()).filter(keep).map(|at| self.lines[at]).collect();
        Ok(())
    }
}

/// Number of a line that has one field, a number.
pub(super) fn count_in(line: &str) -> Option<u64> {
    line.trim().parse().ok()
}

/// The three fields of a line.
fn triple_in(line: &str) -> Result<[&str; 3], String> {
    let (mut triple, mut n_fields) = ([""; 3], 0);
    for field in fields_of(line) {
        if let Some(place) = triple.get_mut(n_fields) {
            *place = field;
        }
        n_fields += 1;
    }
    if n_fields != 3 {
        let found = if n_fields == 1 { "1 field".to_owned() } else { format!("{n_fields} fields") };
        return Err(format!(
            "{found}; expected a head, a relation and a tail, separated by tabs where names have blanks (lists of items, as \
             LightGCN's, are in a folder without valid.txt)"
        ));
    }
    match triple.iter().position(|field| field.is_empty()) {
        None => Ok(triple),
        Some(at) => Err(format!("field {} is empty; head, relation and tail need a name each", at + 1)),
    }
}

/// Fields of a line: between tabs if there are any, or else between blanks.
fn fields_of(line: &str) -> impl Iterator<Item = &str> {
    let is_tabbed = line.contains('\t');
    let by_tabs = line.split('\t').map(str::trim).filter(move |_| is_tabbed);
    by_tabs.chain(line.split_whitespace().filter(move |_| !is_tabbed))
}

/// Whether a file starts as LightGCN's lists of items do: its first line with several fields has another number of fields
/// than three, all of them integers.
pub(super) fn lists_items(path: &Path) -> bool {
    let mut bytes = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(START_BYTES).read_to_end(&mut bytes));
    let text = String::from_utf8_lossy(&bytes);
    let mut lines = text.lines().map(|line| fields_of(line).collect::<Vec<_>>());
    let first = lines.find(|fields| fields.len() > 1);
    read.is_ok()
        && first.is_some_and(|fields| fields.len() != 3 && fields.iter().all(|field| field.parse::<u64>().is_ok()))
}
