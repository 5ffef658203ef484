//! [`NamedArrays`]: arrays by name, in a file or folder; [`Arrays`]: record of the used ones.

use std::path::{Path, PathBuf};

use girih_graph_format::file::{Array, Npz, Tensors};
use girih_graph_format::{FormatError, Notes};

use crate::inventory::{Inventory, looks_like_split, reason};
use crate::{DatasetError, FEATURE_STORE};

/// Arrays by name, in a file or folder.
pub(crate) trait NamedArrays {
    /// File or folder that errors name.
    fn origin(&self) -> &Path;
    /// Whether an array of this name exists.
    fn has(&self, name: &str) -> bool;
    /// Array of this name, if it exists.
    fn find(&mut self, name: &str) -> Result<Option<Array>, FormatError>;
    /// All entries, under the names that users see.
    fn entries(&self) -> Vec<String>;
    /// Entry that holds the array of this name.
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
    /// Opens the folder at a path.
    ///
    /// # Errors
    /// When the folder cannot be read.
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
        // Compressed features are read when the folder is loaded, so they are not listed here.
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

/// Named arrays with a record of the used ones.
pub(crate) struct Arrays<'a> {
    source: &'a mut dyn NamedArrays,
    unused: Inventory,
    /// Reasons that replace those suggested by names, by entry.
    reasons: Vec<(String, String)>,
    /// Start of the names of all arrays, with its dot; empty without types.
    prefix: String,
}

impl<'a> Arrays<'a> {
    pub(crate) fn new(source: &'a mut dyn NamedArrays) -> Self {
        let unused = Inventory::of_names(source.entries());
        Self { source, unused, reasons: Vec::new(), prefix: String::new() }
    }

    /// Sets the type whose arrays names stand for from now on: `x` is then `TYPE.x`.
    pub(crate) fn set_prefix(&mut self, of: &str) {
        self.prefix = format!("{of}.");
    }

    /// Whole name of an array.
    fn whole(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.source.has(&self.whole(name))
    }

    /// Whether a type has an array of this name.
    pub(crate) fn has_under(&self, of: &str, name: &str) -> bool {
        self.source.has(&format!("{of}.{name}"))
    }

    /// Returns the array of this name, if it exists, and marks it as used.
    pub(crate) fn take(&mut self, name: &str) -> Result<Option<Array>, DatasetError> {
        let found = self.source.find(&self.whole(name))?;
        if found.is_some() {
            self.mark_used(name);
        }
        Ok(found)
    }

    /// Marks an array as used that [`Self::look_at`] has read.
    pub(crate) fn mark_used(&mut self, name: &str) {
        self.unused.take(&self.source.entry_of(&self.whole(name)));
    }

    /// Reads the array of this name without marking it as used; `None` if it does not exist or cannot be read.
    pub(crate) fn look_at(&mut self, name: &str) -> Option<Array> {
        self.source.find(&self.whole(name)).ok().flatten()
    }

    pub(crate) fn required(&mut self, name: &str) -> Result<Array, DatasetError> {
        let found = self.take(name)?;
        found.ok_or_else(|| DatasetError::invalid(format!("no array {}, which the others need", self.whole(name))))
    }

    /// Sets the reason why an array is not used.
    pub(crate) fn leave(&mut self, name: &str, why: impl Into<String>) {
        self.reasons.push((self.source.entry_of(&self.whole(name)), why.into()));
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

    /// Entry that is not used and may be a split of `n_nodes` nodes: by its name, or as a mask of all nodes.
    pub(crate) fn find_split(&mut self, n_nodes: usize) -> Result<Option<String>, DatasetError> {
        let unused: Vec<String> = self.unused().map(str::to_owned).collect();
        for entry in unused {
            let Some(own) = entry.strip_prefix(&self.prefix) else { continue };
            let name = own.strip_suffix(".npy").unwrap_or(own).to_owned();
            if looks_like_split(own) {
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

/// The one of several equivalent names that has an array.
pub(crate) fn only_one<'n>(arrays: &Arrays<'_>, names: &[&'n str]) -> Result<Option<&'n str>, DatasetError> {
    let mut there = names.iter().copied().filter(|name| arrays.has(name));
    match (there.next(), there.next()) {
        (Some(one), Some(other)) => Err(DatasetError::invalid(format!(
            "arrays {} and {} say the same thing, perhaps not alike; remove or rename the one that is not meant",
            arrays.whole(one),
            arrays.whole(other)
        ))),
        (found, _) => Ok(found),
    }
}
