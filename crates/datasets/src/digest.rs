//! [`RowsDigest`]: hashes of the rows that a rank reads; together they give the hash of a whole data set.
//!
//! The CRCs of pieces combine to the CRC of the whole array. So ranks that each hash their own rows find the
//! fingerprint that one rank finds for all rows. They also verify the checksums of the manifest together.

use std::ops::Range;

use crc32fast::Hasher;
use girih_graph_format::file::Array;

use crate::stored::{SPARSE, StoredDataset};
use crate::{DatasetError, Labels};

/// Hashes of the rows of consecutive nodes, array by array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowsDigest {
    pieces: Vec<Piece>,
}

/// Hash of consecutive items of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    items: [u64; 2],
    stored: Hashed,
    /// Hash of the array as used in memory, whose type may differ from the file's.
    used: Hashed,
}

/// CRC-32 of some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hashed {
    crc32: u32,
    n_bytes: u64,
}

/// Number of 64-bit words of a piece in a message.
const WORDS: usize = 6;

impl Hashed {
    fn of(bytes: &[u8]) -> Self {
        Self { crc32: crc32fast::hash(bytes), n_bytes: bytes.len() as u64 }
    }

    fn follow(self, hash: &mut Hasher) {
        hash.combine(&Hasher::new_with_initial_len(self.crc32, self.n_bytes));
    }
}

impl Piece {
    fn new(items: Range<usize>, stored: &[u8], used: &[u8]) -> Self {
        let is_same = stored.as_ptr_range() == used.as_ptr_range();
        let hashed = Hashed::of(stored);
        let items = [items.start as u64, items.end as u64];
        Self { items, stored: hashed, used: if is_same { hashed } else { Hashed::of(used) } }
    }

    fn words(&self) -> [u64; WORDS] {
        let Self { items: [start, end], stored, used } = *self;
        [start, end, u64::from(stored.crc32), stored.n_bytes, u64::from(used.crc32), used.n_bytes]
    }

    fn of_words([start, end, stored, n_stored, used, n_used]: [u64; WORDS]) -> Self {
        let hashed = |crc32, n_bytes| Hashed { crc32: crc32 as u32, n_bytes };
        Self { items: [start, end], stored: hashed(stored, n_stored), used: hashed(used, n_used) }
    }
}

impl RowsDigest {
    /// Encodes the hashes as a message to other ranks.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.pieces.iter().flat_map(Piece::words).flat_map(u64::to_le_bytes).collect()
    }

    /// Decodes the hashes of a message; `None` if it does not hold whole pieces.
    #[must_use]
    pub fn from_bytes(message: &[u8]) -> Option<Self> {
        let (words, []) = message.as_chunks() else { return None };
        let words: Vec<u64> = words.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
        let (pieces, []) = words.as_chunks() else { return None };
        Some(Self { pieces: pieces.iter().map(|words| Piece::of_words(*words)).collect() })
    }
}

/// Use of an array's values.
#[derive(Clone, Copy)]
enum Kind {
    Offsets,
    Ids,
    Numbers,
}

impl StoredDataset {
    /// Hashes the rows of consecutive nodes, for [`fingerprints`](Self::fingerprints). Reads their bytes once.
    ///
    /// # Errors
    /// When a file cannot be read, or holds values of another kind.
    pub fn digest(&self, nodes: Range<usize>) -> Result<RowsDigest, DatasetError> {
        let mut pieces = Vec::new();
        let weights = self.graph.weighted.then_some("values");
        self.add_sparse(&mut pieces, ["indptr", "indices"], weights, &nodes)?;
        match *self.feature_arrays() {
            [] => {}
            [name] => pieces.push(self.piece(name, Kind::Numbers, nodes.clone())?),
            [indptr, indices, ..] => {
                let weights = self.folder.contains(SPARSE[2]).then_some(SPARSE[2]);
                self.add_sparse(&mut pieces, [indptr, indices], weights, &nodes)?;
            }
        }
        if let Some(store) = &self.store {
            let row_bytes = store.codec().row_bytes();
            let codes = &store.codes()[nodes.start * row_bytes..nodes.end * row_bytes];
            pieces.push(Piece::new(nodes.clone(), codes, codes));
        }
        pieces.extend(self.labels_piece(nodes.clone())?);
        for name in self.splits().flat_map(Self::split_arrays) {
            let (array, items) = self.part_of_split(&name, &nodes)?;
            pieces.push(piece_of(&array, Kind::Ids, items)?);
        }
        Ok(RowsDigest { pieces })
    }

    /// Appends the pieces of a sparse matrix with a row per node: offsets, columns and weights.
    fn add_sparse(
        &self,
        pieces: &mut Vec<Piece>,
        [indptr, indices]: [&str; 2],
        weights: Option<&str>,
        nodes: &Range<usize>,
    ) -> Result<(), DatasetError> {
        // The array has one more offset than nodes; the range of the last nodes includes it.
        let n_more = usize::from(nodes.end == self.graph.n_rows);
        pieces.push(self.piece(indptr, Kind::Offsets, nodes.start..nodes.end + n_more)?);
        let offsets = self.folder.array(indptr)?.slice(nodes.start..nodes.end + 1)?.into_offsets()?;
        let entries = offsets[0] as usize..offsets[nodes.len()] as usize;
        pieces.push(self.piece(indices, Kind::Ids, entries.clone())?);
        if let Some(weights) = weights {
            pieces.push(self.piece(weights, Kind::Numbers, entries)?);
        }
        Ok(())
    }

    fn piece(&self, name: &str, kind: Kind, items: Range<usize>) -> Result<Piece, DatasetError> {
        piece_of(&self.folder.array(name)?.slice(items.clone())?, kind, items)
    }

    fn labels_piece(&self, nodes: Range<usize>) -> Result<Option<Piece>, DatasetError> {
        let Some(labels) = self.labels_of(nodes.clone())? else { return Ok(None) };
        let array = self.folder.array("labels")?.slice(nodes.clone())?;
        let used: &[u8] = match &labels {
            Labels::Single { classes, .. } => bytemuck::cast_slice(classes),
            Labels::Multi { targets, .. } => bytemuck::cast_slice(targets.data()),
        };
        Ok(Some(Piece::new(nodes, array.mapped_bytes().unwrap_or_default(), used)))
    }

    /// [`Dataset::fingerprints`](crate::Dataset::fingerprints), from the hashes of consecutive ranges of nodes that
    /// cover all of them. The checksum of every array in use is compared with the manifest. Codes of compressed
    /// features have their own checksums, which are not compared.
    ///
    /// # Errors
    /// At the first array whose pieces do not fit each other or the manifest.
    pub fn fingerprints(&self, digests: &[RowsDigest]) -> Result<Vec<u32>, DatasetError> {
        let names = self.streams();
        let mut contents = Hasher::new();
        for (i, name) in names.iter().enumerate() {
            if let (None, Some(store)) = (name, &self.store) {
                contents.update(store.codec().spec().to_string().as_bytes());
                contents.update(&store.codec().parameters());
            }
            self.join(i, name.as_deref(), digests)?.0.follow(&mut contents);
        }
        let mut splits = Vec::new();
        for (place, i) in self.splits().enumerate() {
            let mut hash = contents.clone();
            for (part, name) in Self::split_arrays(i).iter().enumerate() {
                let (ids, n_ids) = self.join(names.len() + 3 * place + part, Some(name), digests)?;
                hash.update(&n_ids.to_le_bytes());
                ids.follow(&mut hash);
            }
            splits.push(hash.finalize());
        }
        Ok(if splits.is_empty() { vec![contents.finalize()] } else { splits })
    }

    /// Arrays of the pieces before those of splits, in order: names of arrays, `None` for codes.
    fn streams(&self) -> Vec<Option<String>> {
        let mut names: Vec<Option<String>> = self.arrays().into_iter().map(Some).collect();
        names.truncate(names.len() - 3 * self.splits().count());
        if self.store.is_some() {
            let place = names.len() - usize::from(self.has_labels());
            names.insert(place, None);
        }
        names
    }

    /// Hash of an array as used in memory, and its number of items, from the `i`-th pieces.
    fn join(&self, i: usize, name: Option<&str>, digests: &[RowsDigest]) -> Result<(Hashed, u64), DatasetError> {
        let corrupt = |what: String| DatasetError::corrupt(what).at(&self.folder.file_of(name.unwrap_or("features")));
        let (mut stored, mut used, mut n_stored, mut n_used, mut n_items) = (Hasher::new(), Hasher::new(), 0, 0, 0);
        for digest in digests {
            let piece = digest.pieces.get(i).ok_or_else(|| corrupt("a rank has not read it".to_owned()))?;
            if piece.items[0] != n_items {
                let [start, end] = piece.items;
                return Err(corrupt(format!(
                    "the items {start}..{end} follow those before {n_items}; ids ascend, and offsets never decrease"
                )));
            }
            n_items = piece.items[1];
            piece.stored.follow(&mut stored);
            piece.used.follow(&mut used);
            n_stored = piece.stored.n_bytes.saturating_add(n_stored);
            n_used = piece.used.n_bytes.saturating_add(n_used);
        }
        if let Some(name) = name {
            self.folder.check_values(name, stored.finalize(), n_stored)?;
        }
        Ok((Hashed { crc32: used.finalize(), n_bytes: n_used }, n_items))
    }
}

fn piece_of(array: &Array, kind: Kind, items: Range<usize>) -> Result<Piece, DatasetError> {
    let stored = array.mapped_bytes().unwrap_or_default();
    Ok(match kind {
        Kind::Offsets => Piece::new(items, stored, bytemuck::cast_slice(&array.clone().into_offsets()?)),
        Kind::Ids => Piece::new(items, stored, bytemuck::cast_slice(&array.clone().into_ids()?)),
        Kind::Numbers => Piece::new(items, stored, bytemuck::cast_slice(&array.clone().into_f32()?)),
    })
}
