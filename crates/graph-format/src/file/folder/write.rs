//! Writing a folder: array after array, then the manifest, then the move to the final path.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::{
    Entry, FOLDER_VERSION, FORMAT, GRAPH_SECTION, GraphSection, INDICES, INDPTR, MANIFEST, Manifest, VALUES,
    array_path, is_name,
};
use crate::file::array::Element;
use crate::file::atomic::{NewFolder, write_file};
use crate::file::npy::header_bytes;
use crate::{Csr, FormatError};

/// Writer of a folder, which appears when [`FolderWriter::finish`] succeeds.
#[derive(Debug)]
pub struct FolderWriter {
    folder: NewFolder,
    arrays: BTreeMap<String, Entry>,
    sections: toml::Table,
}

impl FolderWriter {
    /// Starts a folder at `path`, which may replace an older one of girih's, or an empty folder.
    ///
    /// # Errors
    /// When `path` is anything else, or the parent folder cannot be written.
    pub fn create(path: &Path) -> Result<Self, FormatError> {
        let folder = NewFolder::create(path, holds_only_arrays)?;
        Ok(Self { folder, arrays: BTreeMap::new(), sections: toml::Table::new() })
    }

    /// Adds an array.
    ///
    /// # Errors
    /// When writing fails.
    ///
    /// # Panics
    /// When `name` is taken or not made of `a-z`, `0-9`, `_` and `-`, or `shape` does not hold the values.
    pub fn array<T: Element>(&mut self, name: &str, shape: &[usize], values: &[T]) -> Result<(), FormatError> {
        let mut writer = self.stream(name, shape)?;
        writer.write(values)?;
        writer.finish()
    }

    /// Starts an array whose values are written piece by piece.
    ///
    /// # Errors
    /// When the file cannot be written.
    ///
    /// # Panics
    /// As [`FolderWriter::array`].
    pub fn stream<T: Element>(&mut self, name: &str, shape: &[usize]) -> Result<ArrayWriter<'_, T>, FormatError> {
        assert!(is_name(name) && !self.arrays.contains_key(name), "array {name:?} of a folder");
        let path = array_path(self.folder.path(), name);
        let file = File::create(&path).map_err(|e| FormatError::io(e).at(&self.folder.target().join(name)))?;
        let out = BufWriter::with_capacity(1 << 18, file);
        let mut writer = ArrayWriter {
            name: name.to_owned(),
            missing: shape.iter().product(),
            out,
            entry: Entry { bytes: 0, crc32: 0 },
            hasher: crc32fast::Hasher::new(),
            folder: self,
            element: PhantomData,
        };
        writer.write_bytes(&header_bytes(T::DESCR, shape))?;
        Ok(writer)
    }

    /// Path for a file that is not an array and has its own checksums. It appears with the folder, and the manifest
    /// does not list it.
    #[must_use]
    pub fn path_of(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file of text, which appears with the folder. The manifest does not list it.
    ///
    /// # Errors
    /// When writing fails.
    pub fn text(&self, name: &str, text: &str) -> Result<(), FormatError> {
        write_file(&self.path_of(name), |out| Ok(out.write_all(text.as_bytes())?))
    }

    /// Adds a section to the manifest.
    ///
    /// # Errors
    /// When TOML cannot represent the section, for example an integer beyond `i64`.
    pub fn section(&mut self, name: &str, section: &impl Serialize) -> Result<(), FormatError> {
        let value = toml::Value::try_from(section)
            .map_err(|e| FormatError::invalid(format!("section {name} of the manifest: {e}")))?;
        self.sections.insert(name.to_owned(), value);
        Ok(())
    }

    /// Adds the arrays and the section of a graph.
    ///
    /// # Errors
    /// When writing fails.
    pub fn graph(&mut self, csr: &Csr) -> Result<(), FormatError> {
        // Signed types, because NumPy and SciPy index with them; offsets and ids fit by the invariants of `Csr`.
        self.array::<i64>(INDPTR, &[csr.n_rows() + 1], bytemuck::cast_slice(csr.indptr()))?;
        self.array::<i32>(INDICES, &[csr.nnz()], bytemuck::cast_slice(csr.indices()))?;
        if let Some(values) = csr.values() {
            self.array(VALUES, &[csr.nnz()], values)?;
        }
        let weighted = csr.values().is_some();
        let section = GraphSection { n_rows: csr.n_rows(), n_cols: csr.n_cols(), nnz: csr.nnz(), weighted };
        self.section(GRAPH_SECTION, &section)
    }

    /// Writes the manifest and moves the folder to its final path.
    ///
    /// # Errors
    /// When writing fails; an older folder then stays.
    pub fn finish(self) -> Result<(), FormatError> {
        let manifest = Manifest {
            format: FORMAT.to_owned(),
            version: FOLDER_VERSION,
            arrays: self.arrays,
            sections: self.sections,
        };
        let text = toml::to_string(&manifest).map_err(|e| FormatError::invalid(format!("manifest: {e}")))?;
        write_file(&self.folder.path().join(MANIFEST), |out| Ok(out.write_all(text.as_bytes())?))?;
        self.folder.commit()
    }
}

/// Array of a [`FolderWriter`] that is written piece by piece.
#[derive(Debug)]
pub struct ArrayWriter<'a, T> {
    name: String,
    missing: usize,
    out: BufWriter<File>,
    entry: Entry,
    hasher: crc32fast::Hasher,
    folder: &'a mut FolderWriter,
    element: PhantomData<T>,
}

impl<T: Element> ArrayWriter<'_, T> {
    /// Appends values, in C order.
    ///
    /// # Errors
    /// When writing fails.
    ///
    /// # Panics
    /// When more values come than the shape holds.
    pub fn write(&mut self, values: &[T]) -> Result<(), FormatError> {
        assert!(values.len() <= self.missing, "array {}: more values than its shape holds", self.name);
        self.missing -= values.len();
        self.write_bytes(bytemuck::cast_slice(values))
    }

    /// Completes the array.
    ///
    /// # Errors
    /// When writing fails.
    ///
    /// # Panics
    /// When fewer values came than the shape holds.
    pub fn finish(mut self) -> Result<(), FormatError> {
        assert_eq!(self.missing, 0, "array {}: fewer values than its shape holds", self.name);
        let flushed = self.out.flush().and_then(|()| self.out.get_ref().sync_all());
        flushed.map_err(|e| FormatError::io(e).at(self.folder.folder.target()))?;
        self.entry.crc32 = self.hasher.finalize();
        self.folder.arrays.insert(self.name, self.entry);
        Ok(())
    }

    fn write_bytes(&mut self, bytes: &[u8]) -> Result<(), FormatError> {
        self.hasher.update(bytes);
        self.entry.bytes += bytes.len() as u64;
        self.out.write_all(bytes).map_err(|e| FormatError::io(e).at(self.folder.folder.target()))
    }
}

/// Whether a folder is one of girih's and holds nothing but arrays, feature stores and names of nodes, so that replacing
/// it destroys no other files.
fn holds_only_arrays(folder: &Path) -> bool {
    let is_data = |path: &Path| path.extension().is_some_and(|e| e == "npy" || e == "codes");
    let is_ours = |path: PathBuf| path.ends_with(MANIFEST) || is_data(&path) || is_list_of_names(&path);
    let only_ours = std::fs::read_dir(folder).map(|mut entries| entries.all(|e| e.is_ok_and(|e| is_ours(e.path()))));
    folder.join(MANIFEST).is_file() && only_ours.unwrap_or(false)
}

/// Whether a file has the names of the nodes of a type: `n0_names.txt` and so on.
fn is_list_of_names(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let number = name.strip_prefix('n').and_then(|name| name.strip_suffix("_names.txt"));
    number.is_some_and(|number| number.parse::<u32>().is_ok())
}
