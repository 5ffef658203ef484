//! Reading a folder: the manifest first, then what it lists.

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use super::{GRAPH_SECTION, GraphSection, INDICES, INDPTR, MANIFEST, Manifest, VALUES, array_path, parse_manifest};
use crate::file::array::Array;
use crate::file::npy::map_file;
use crate::{Csr, FormatError};

/// What opening a folder compares with its manifest. Sizes, types and the invariants of a graph are always checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verify {
    /// Checksums of all arrays: reads every byte once.
    Full,
    /// Checksums when the arrays take at most this many bytes in all.
    UpTo(u64),
    /// No checksums.
    Structure,
}

/// A folder opened for reading.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    manifest: Manifest,
}

impl Folder {
    /// Opens a folder: reads the manifest and compares the files with it, as far as `verify` says.
    ///
    /// # Errors
    /// When there is no manifest, its version is another one, or a file differs from it.
    pub fn open(path: &Path, verify: Verify) -> Result<Self, FormatError> {
        let manifest_path = path.join(MANIFEST);
        let text = std::fs::read_to_string(&manifest_path).map_err(|e| FormatError::io(e).at(&manifest_path))?;
        let manifest = parse_manifest(&text).map_err(|e| e.at(&manifest_path))?;
        let folder = Self { path: path.to_owned(), manifest };
        folder.check_sizes()?;
        let checksums = match verify {
            Verify::Full => true,
            Verify::UpTo(limit) => folder.n_bytes() <= limit,
            Verify::Structure => false,
        };
        if checksums {
            folder.check_checksums()?;
        }
        Ok(folder)
    }

    /// Where the folder is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of all arrays.
    #[must_use]
    pub fn n_bytes(&self) -> u64 {
        self.manifest.arrays.values().fold(0, |sum, entry| sum.saturating_add(entry.bytes))
    }

    /// Names of all arrays.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.manifest.arrays.keys().map(String::as_str)
    }

    /// Whether the folder holds an array of this name.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.manifest.arrays.contains_key(name)
    }

    /// The array `name`, mapped.
    ///
    /// # Errors
    /// When the manifest does not list it, or as [`Array::map`].
    pub fn array(&self, name: &str) -> Result<Array, FormatError> {
        if !self.contains(name) {
            let names: Vec<&str> = self.names().collect();
            let message = format!("no array {name:?}; the folder holds {}", names.join(", "));
            return Err(FormatError::invalid(message).at(&self.path));
        }
        Array::map(&array_path(&self.path, name))
    }

    /// The `.npy` file of the array `name`, which need not be there.
    #[must_use]
    pub fn file_of(&self, name: &str) -> PathBuf {
        array_path(&self.path, name)
    }

    /// The array `name`, mapped, if the folder holds it.
    ///
    /// # Errors
    /// As [`Array::map`].
    pub fn try_array(&self, name: &str) -> Result<Option<Array>, FormatError> {
        if self.contains(name) { self.array(name).map(Some) } else { Ok(None) }
    }

    /// A section of the manifest, if there is one.
    ///
    /// # Errors
    /// When the section is not of type `S`.
    pub fn section<S: DeserializeOwned>(&self, name: &str) -> Result<Option<S>, FormatError> {
        let Some(value) = self.manifest.sections.get(name) else { return Ok(None) };
        value.clone().try_into().map(Some).map_err(|e| {
            FormatError::corrupt(format!("section [{name}]: {}", e.message())).at(&self.path.join(MANIFEST))
        })
    }

    /// The graph, mapped, with every invariant of [`Csr`] checked.
    ///
    /// # Errors
    /// When the folder holds none, or it breaks an invariant.
    pub fn graph(&self) -> Result<Csr, FormatError> {
        let section: GraphSection = self
            .section(GRAPH_SECTION)?
            .ok_or_else(|| FormatError::invalid("the folder holds no graph").at(&self.path))?;
        let indptr = self.array(INDPTR)?.into_offsets()?;
        let indices = self.array(INDICES)?.into_ids()?;
        let values = if section.weighted { Some(self.array(VALUES)?.into_f32()?) } else { None };
        if indices.len() != section.nnz {
            let message = format!("the manifest declares {} entries, found {}", section.nnz, indices.len());
            return Err(FormatError::corrupt(message).at(&self.path));
        }
        Csr::new(section.n_rows, section.n_cols, indptr, indices, values).map_err(|e| e.at(&self.path))
    }

    /// Compares the checksum of every array with the manifest: reads every byte once.
    ///
    /// # Errors
    /// At the first array that differs.
    pub fn check_checksums(&self) -> Result<(), FormatError> {
        self.manifest.arrays.iter().try_for_each(|(name, entry)| {
            let path = array_path(&self.path, name);
            let found = crc32fast::hash(&map_file(&path)?);
            if found == entry.crc32 {
                return Ok(());
            }
            let message = format!("checksum {found:08x}, the manifest has {:08x}", entry.crc32);
            Err(FormatError::corrupt(message).at(&path))
        })
    }

    fn check_sizes(&self) -> Result<(), FormatError> {
        self.manifest.arrays.iter().try_for_each(|(name, entry)| {
            let path = array_path(&self.path, name);
            let found = std::fs::metadata(&path).map_err(|e| FormatError::io(e).at(&path))?.len();
            if found == entry.bytes {
                return Ok(());
            }
            let message = format!("the file has {found} bytes, the manifest {}", entry.bytes);
            Err(FormatError::corrupt(message).at(&path))
        })
    }
}
