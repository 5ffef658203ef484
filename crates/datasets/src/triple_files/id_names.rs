//! [`IdNames`]: table of names by id, as `entity2id.txt`.

use std::path::{Path, PathBuf};

use girih_graph_format::NodeId;

use super::part::count_in;
use crate::inventory::Inventory;
use crate::text_lines::for_each_line;
use crate::{DatasetError, NameList};

/// Names in the order of their ids.
pub(super) struct IdNames {
    path: PathBuf,
    names: NameList,
}

impl IdNames {
    /// Reads the only file of a folder whose name starts with `stem` and ends in `.txt`; `None` if there is none, or
    /// several.
    ///
    /// # Errors
    /// When a line is not a name and an id, ids are not the numbers from 0, or the count of the first line is wrong.
    pub(super) fn find(folder: &Path, stem: &str, inventory: &mut Inventory) -> Result<Option<Self>, DatasetError> {
        let is_table = |name: &&str| name.starts_with(stem) && name.ends_with(".txt");
        let mut found = inventory.left().filter(is_table).map(str::to_owned);
        let (Some(name), None) = (found.next(), found.next()) else { return Ok(None) };
        drop(found);
        inventory.take(&name);
        Self::read(&folder.join(name)).map(Some)
    }

    fn read(path: &Path) -> Result<Self, DatasetError> {
        let (mut rows, mut count) = (Vec::new(), None);
        for_each_line(path, "names with their ids", |number, line| {
            if line.trim().is_empty() {
                return Ok(());
            }
            if rows.is_empty() && count.is_none() {
                count = count_in(line);
                if count.is_some() {
                    return Ok(());
                }
            }
            let pair = line.trim().rsplit_once(['\t', ' ']);
            let Some((name, id)) = pair.and_then(|(name, id)| Some((name.trim(), id.parse::<NodeId>().ok()?))) else {
                return Err(DatasetError::invalid(format!("line {number}: expected a name and its id")));
            };
            rows.push((id, name.to_owned()));
            Ok(())
        })?;
        rows.sort_unstable();
        let wrong = |what: String| DatasetError::invalid(what).at(path);
        if let Some((at, (id, _))) = rows.iter().enumerate().find(|(at, (id, _))| *at != *id as usize) {
            return Err(wrong(format!("the {at}th id is {id}; expected each number from 0 once")));
        }
        if count.is_some_and(|count| count != rows.len() as u64) {
            let counted = count.unwrap_or_default();
            return Err(wrong(format!("the first line counts {counted} names, and {} follow; correct it", rows.len())));
        }
        Ok(Self { path: path.to_owned(), names: rows.iter().map(|(_, name)| &name[..]).collect() })
    }

    /// Number of a field that is an id.
    ///
    /// # Errors
    /// When it is none of the table.
    pub(super) fn id_of(&self, field: &str) -> Result<NodeId, String> {
        let id = field.parse::<NodeId>().ok().filter(|&id| (id as usize) < self.names.len());
        id.ok_or_else(|| {
            let file = self.path.file_name().unwrap_or_default().to_string_lossy();
            format!(
                "{field:?} is none of the {} ids of {file}; leave that file out if fields are names",
                self.names.len()
            )
        })
    }

    pub(super) fn into_names(self) -> NameList {
        self.names
    }
}
