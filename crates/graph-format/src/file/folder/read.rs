//! Reading a folder: first the manifest, then the listed files.

use std::ops::Range;
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use serde::de::DeserializeOwned;

use super::{GRAPH_SECTION, GraphSection, INDICES, INDPTR, MANIFEST, Manifest, VALUES, array_path, parse_manifest};
use crate::file::array::Array;
use crate::file::mapped::MappedFile;
use crate::{Csr, FormatError};

/// Extent of the comparison of a folder with its manifest. Sizes, types and the invariants of a graph are always
/// checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verify {
    /// Checksums of all arrays, by all threads: reads every byte once.
    #[default]
    Full,
    /// No checksums.
    Structure,
}

/// Folder opened for reading.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    manifest: Manifest,
    /// CRC-32 of the manifest's text.
    crc32: u32,
}

/// Sizes of the graph of a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraphSizes {
    /// Number of rows.
    pub n_rows: usize,
    /// Number of columns.
    pub n_cols: usize,
    /// Number of stored entries.
    pub nnz: usize,
    /// Whether entries carry weights.
    pub weighted: bool,
}

impl Folder {
    /// Opens a folder: reads the manifest and compares the files with it, to the extent of `verify`.
    ///
    /// # Errors
    /// When there is no manifest, its version is not supported, or a file differs from it.
    pub fn open(path: &Path, verify: Verify) -> Result<Self, FormatError> {
        let manifest_path = path.join(MANIFEST);
        let text = std::fs::read_to_string(&manifest_path).map_err(|e| FormatError::io(e).at(&manifest_path))?;
        let manifest = parse_manifest(&text).map_err(|e| e.at(&manifest_path))?;
        let folder = Self { path: path.to_owned(), manifest, crc32: crc32fast::hash(text.as_bytes()) };
        folder.check_sizes()?;
        if verify == Verify::Full {
            folder.check_checksums()?;
        }
        Ok(folder)
    }

    /// Path of the folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Hash of the manifest, which has the size and the checksum of every array. So folders with different contents
    /// have different hashes.
    #[must_use]
    pub fn fingerprint(&self) -> u32 {
        self.crc32
    }

    /// Number of bytes of all arrays.
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

    /// Maps the array `name`.
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

    /// Path of the `.npy` file of the array `name`; it need not exist.
    #[must_use]
    pub fn file_of(&self, name: &str) -> PathBuf {
        array_path(&self.path, name)
    }

    /// Maps the array `name`, if the folder holds it.
    ///
    /// # Errors
    /// As [`Array::map`].
    pub fn try_array(&self, name: &str) -> Result<Option<Array>, FormatError> {
        if self.contains(name) { self.array(name).map(Some) } else { Ok(None) }
    }

    /// Names of all sections of the manifest.
    pub fn section_names(&self) -> impl Iterator<Item = &str> {
        self.manifest.sections.keys().map(String::as_str)
    }

    /// Reads a section of the manifest, if it exists.
    ///
    /// # Errors
    /// When the section is not of type `S`.
    pub fn section<S: DeserializeOwned>(&self, name: &str) -> Result<Option<S>, FormatError> {
        let Some(value) = self.manifest.sections.get(name) else { return Ok(None) };
        value.clone().try_into().map(Some).map_err(|e| {
            FormatError::invalid(format!("section [{name}]: {}", e.message())).at(&self.path.join(MANIFEST))
        })
    }

    /// Maps the graph, and checks every invariant of [`Csr`].
    ///
    /// # Errors
    /// When the folder holds no graph, or the graph breaks an invariant.
    pub fn graph(&self) -> Result<Csr, FormatError> {
        let sizes = self.graph_sizes()?;
        let indptr = self.array(INDPTR)?.into_offsets()?;
        let indices = self.array(INDICES)?.into_ids()?;
        let values = if sizes.weighted { Some(self.array(VALUES)?.into_f32()?) } else { None };
        if indices.len() != sizes.nnz {
            let message = format!("the manifest declares {} entries, found {}", sizes.nnz, indices.len());
            return Err(FormatError::corrupt(message).at(&self.path));
        }
        Csr::new(sizes.n_rows, sizes.n_cols, indptr, indices, values).map_err(|e| e.at(&self.path))
    }

    /// Sizes of the graph, from the manifest; no array is read.
    ///
    /// # Errors
    /// When the folder holds no graph.
    pub fn graph_sizes(&self) -> Result<GraphSizes, FormatError> {
        let section: GraphSection = self
            .section(GRAPH_SECTION)?
            .ok_or_else(|| FormatError::invalid("the folder holds no graph").at(&self.path))?;
        let GraphSection { n_rows, n_cols, nnz, weighted } = section;
        Ok(GraphSizes { n_rows, n_cols, nnz, weighted })
    }

    /// Reads consecutive rows of the graph, with all columns. Only the parts of its arrays for these rows are read
    /// and checked for every invariant of [`Csr`]. The offsets of all rows are valid if those of ranges that cover
    /// them are.
    ///
    /// # Errors
    /// When the folder holds no graph or too few rows, or these rows break an invariant.
    pub fn graph_rows(&self, rows: Range<usize>) -> Result<Csr, FormatError> {
        let sizes = self.graph_sizes()?;
        self.csr_rows([INDPTR, INDICES, VALUES], (rows, sizes.n_rows, sizes.n_cols), sizes.weighted)
    }

    /// As [`graph_rows`](Self::graph_rows), but for the sparse matrix of `n_rows × n_cols` whose offsets, columns and
    /// weights are the arrays of these names.
    ///
    /// # Errors
    /// As [`graph_rows`](Self::graph_rows).
    pub fn csr_rows(
        &self,
        [indptr, indices, values]: [&str; 3],
        (rows, n_rows, n_cols): (Range<usize>, usize, usize),
        weighted: bool,
    ) -> Result<Csr, FormatError> {
        let (offsets, columns) = (self.array(indptr)?, self.array(indices)?);
        let nnz = columns.expect_1d()?;
        if offsets.expect_1d()? != n_rows + 1 {
            let message = format!("offsets of another number of rows than {n_rows}");
            return Err(FormatError::corrupt(message).at(offsets.origin()));
        }
        let origin = offsets.origin().to_owned();
        let offsets = offsets.slice(rows.start..rows.end + 1)?.into_offsets()?;
        let (first, last) = (offsets[0], offsets[rows.len()]);
        let starts = rows.start > 0 || first == 0;
        let ends = rows.end < n_rows || last == nnz as u64;
        if !starts || !ends || first > last || last > nnz as u64 {
            let message = format!("rows {rows:?} are the entries {first}..{last} of {nnz}");
            return Err(FormatError::corrupt(message).at(&origin));
        }
        let entries = first as usize..last as usize;
        let columns = columns.slice(entries.clone())?.into_ids()?;
        let values = if weighted { Some(self.array(values)?.slice(entries)?.into_f32()?) } else { None };
        // An offset below the first one wraps, and is refused as a decreasing one.
        let indptr: Vec<u64> = offsets.iter().map(|offset| offset.wrapping_sub(first)).collect();
        let named =
            |e: FormatError| FormatError::invalid(format!("rows counted from {}: {e}", rows.start)).at(&self.path);
        Csr::new(rows.len(), n_cols, indptr, columns, values).map_err(named)
    }

    /// Compares a checksum of an array's values, computed piece by piece, with the manifest. Reads only the part of
    /// the file before the values.
    ///
    /// # Errors
    /// When the checksum differs, or the file cannot be read.
    pub fn check_values(&self, name: &str, crc32: u32, n_bytes: u64) -> Result<(), FormatError> {
        let path = array_path(&self.path, name);
        let Some(entry) = self.manifest.arrays.get(name) else { return Ok(()) };
        let file = MappedFile::open(&path)?;
        let n_before = file.len().saturating_sub(usize::try_from(n_bytes).unwrap_or(usize::MAX));
        let mut whole = crc32fast::Hasher::new();
        whole.update(&file[..n_before]);
        whole.combine(&crc32fast::Hasher::new_with_initial_len(crc32, n_bytes));
        compare(&path, whole.finalize(), entry.crc32)
    }

    /// Compares the checksum of every array with the manifest, on all threads; reads every byte once.
    ///
    /// # Errors
    /// At the first array that differs.
    pub fn check_checksums(&self) -> Result<(), FormatError> {
        self.manifest.arrays.iter().try_for_each(|(name, entry)| {
            let path = array_path(&self.path, name);
            compare(&path, crc32_of(&MappedFile::open(&path)?), entry.crc32)
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

/// CRC-32 of bytes, computed on all threads.
fn crc32_of(bytes: &[u8]) -> u32 {
    /// Number of bytes that one task hashes: several milliseconds from disk, less than one from memory.
    const HASHED: usize = 4 << 20;
    let hashed = |bytes: &[u8]| {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(bytes);
        hasher
    };
    let parts: Vec<crc32fast::Hasher> = bytes.par_chunks(HASHED).map(hashed).collect();
    let mut whole = crc32fast::Hasher::new();
    parts.iter().for_each(|part| whole.combine(part));
    whole.finalize()
}

fn compare(path: &Path, found: u32, expected: u32) -> Result<(), FormatError> {
    if found == expected {
        return Ok(());
    }
    Err(FormatError::corrupt(format!("checksum {found:08x}, the manifest has {expected:08x}")).at(path))
}
