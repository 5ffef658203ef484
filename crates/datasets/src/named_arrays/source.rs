//! [`NamedArrays`]: arrays by name, wherever they lie; [`Arrays`]: which of them are used.

use std::path::{Path, PathBuf};

use girih_graph_format::file::{Array, Npz, Tensors};
use girih_graph_format::{FormatError, Notes};

use crate::inventory::{Inventory, looks_like_split, reason};
use crate::{DatasetError, FEATURE_STORE};

/// Arrays by name, wherever they lie.
pub(crate) trait NamedArrays {
    /// The file or folder that errors name.
    fn origin(&self) -> &Path;
    /// Whether there is an array of this name.
    fn has(&self, name: &str) -> bool;
    /// The array of this name, if there is one.
    fn find(&mut self, name: &str) -> Result<Option<Array>, FormatError>;
    /// All entries, under the names that users know.
    fn entries(&self) -> Vec<String>;
    /// The entry that holds the array of this name.
    fn entry_of(&self, name: &str) -> String {
        name.to_owned()
    }
}

/// A folder of `.npy` files.
pub(crate) struct ArrayFolder {
    path: PathBuf,
    entries: Vec<String>,
}

impl ArrayFolder {
    /// The folder at a path.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn open(path: &Path) -> Result<Self, DatasetError> {
        let entries = Inventory::of_folder(path)?.left().map(str::to_owned).collect();
        Ok(Self { path: path.to_owned(), entries })
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}.npy"))
    }
}

impl NamedArrays for ArrayFolder {
    fn origin(&self) -> &Path {
        &self.path
    }

    fn has(&self, name: &str) -> bool {
        self.file(name).is_file()
    }

    fn find(&mut self, name: &str) -> Result<Option<Array>, FormatError> {
        if self.has(name) { Array::map(&self.file(name)).map(Some) } else { Ok(None) }
    }

    fn entries(&self) -> Vec<String> {
        // Compressed features take the place of others when the folder is loaded.
        self.entries.iter().filter(|name| *name != FEATURE_STORE).cloned().collect()
    }

    fn entry_of(&self, name: &str) -> String {
        format!("{name}.npy")
    }
}

impl NamedArrays for Tensors {
    fn origin(&self) -> &Path {
        self.origin()
    }

    fn has(&self, name: &str) -> bool {
        self.names().iter().any(|known| known == name)
    }

    fn find(&mut self, name: &str) -> Result<Option<Array>, FormatError> {
        self.try_array(name)
    }

    fn entries(&self) -> Vec<String> {
        self.names()
    }
}

impl NamedArrays for Npz {
    fn origin(&self) -> &Path {
        self.origin()
    }

    fn has(&self, name: &str) -> bool {
        self.contains(name)
    }

    fn find(&mut self, name: &str) -> Result<Option<Array>, FormatError> {
        self.try_array(name)
    }

    fn entries(&self) -> Vec<String> {
        self.members().iter().map(|member| member.strip_suffix(".npy").unwrap_or(member).to_owned()).collect()
    }
}

/// Named arrays of which it is known which have been used.
pub(crate) struct Arrays<'a> {
    source: &'a mut dyn NamedArrays,
    unused: Inventory,
    /// Reasons that are told better than by a name.
    reasons: Vec<(String, String)>,
}

impl<'a> Arrays<'a> {
    pub(crate) fn new(source: &'a mut dyn NamedArrays) -> Self {
        let unused = Inventory::of_names(source.entries());
        Self { source, unused, reasons: Vec::new() }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.source.has(name)
    }

    /// The array of this name, if there is one; it counts as used.
    pub(crate) fn take(&mut self, name: &str) -> Result<Option<Array>, DatasetError> {
        let found = self.source.find(name)?;
        if found.is_some() {
            self.mark_used(name);
        }
        Ok(found)
    }

    /// Counts an array as used that [`Self::look_at`] has read.
    pub(crate) fn mark_used(&mut self, name: &str) {
        self.unused.take(&self.source.entry_of(name));
    }

    /// The array of this name, which does not count as used; `None` where it is not there or cannot be read.
    pub(crate) fn look_at(&mut self, name: &str) -> Option<Array> {
        self.source.find(name).ok().flatten()
    }

    pub(crate) fn required(&mut self, name: &str) -> Result<Array, DatasetError> {
        self.take(name)?.ok_or_else(|| DatasetError::invalid(format!("no array {name}, which the others need")))
    }

    /// Says why an array is not going to be used.
    pub(crate) fn leave(&mut self, name: &str, why: impl Into<String>) {
        self.reasons.push((self.source.entry_of(name), why.into()));
    }

    /// Names of arrays that are not used so far.
    pub(crate) fn unused(&self) -> impl Iterator<Item = &str> {
        self.unused.left()
    }

    /// Notes all entries that have not been used.
    pub(crate) fn note_rest(&self, notes: &mut Notes) {
        for entry in self.unused.left() {
            let told = self.reasons.iter().find(|(name, _)| name == entry).map(|(_, why)| why.as_str());
            notes.leave_out(entry, told.unwrap_or_else(|| reason(entry)));
        }
    }

    /// An entry that is not used and may be a split of `n_nodes` nodes: by its name, or as a mask of all nodes.
    pub(crate) fn find_split(&mut self, n_nodes: usize) -> Result<Option<String>, DatasetError> {
        let unused: Vec<String> = self.unused().map(str::to_owned).collect();
        for entry in unused {
            let name = entry.strip_suffix(".npy").unwrap_or(&entry).to_owned();
            if looks_like_split(&entry) {
                return Ok(Some(entry));
            }
            let is_mask = self
                .look_at(&name)
                .is_some_and(|array| array.values().type_name() == "bool" && array.shape().first() == Some(&n_nodes));
            if is_mask {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }
}

/// Which of several names for the same thing there is an array of.
pub(crate) fn only_one<'n>(arrays: &Arrays<'_>, names: &[&'n str]) -> Result<Option<&'n str>, DatasetError> {
    let mut there = names.iter().copied().filter(|name| arrays.has(name));
    match (there.next(), there.next()) {
        (Some(one), Some(other)) => Err(DatasetError::invalid(format!(
            "arrays {one} and {other} say the same thing, perhaps not alike; remove or rename the one that is not meant"
        ))),
        (found, _) => Ok(found),
    }
}
