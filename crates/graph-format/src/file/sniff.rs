//! [`sniff`]: detects files of another kind than expected by their first bytes.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::FormatError;

/// Number of bytes that are inspected.
pub(super) const HEAD: usize = 4096;
const GZIP: &[u8] = b"\x1f\x8b";
/// First bytes of binary formats.
const MAGIC: [(&[u8], Sniffed); 9] = [
    (GZIP, Sniffed::Gzip),
    (b"PK\x03\x04", Sniffed::Zip),
    (b"PK\x05\x06", Sniffed::Zip),
    (b"\x93NUMPY", Sniffed::Npy),
    (b"\x89HDF\r\n\x1a\n", Sniffed::Hdf5),
    (b"PAR1", Sniffed::Parquet),
    (b"BZh", Sniffed::Packed),
    (b"\xfd7zXZ", Sniffed::Packed),
    (b"\x28\xb5\x2f\xfd", Sniffed::Packed),
];

/// Kind of file that users may mistake for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sniffed {
    /// UTF-16 text, with or without a byte-order mark.
    Utf16,
    /// UTF-32 text, with or without a byte-order mark.
    Utf32,
    /// An HTML or XML page.
    Html,
    /// Text of git-lfs that replaces a large file.
    LfsPointer,
    /// A gzip file.
    Gzip,
    /// A bzip2, xz or zstd file.
    Packed,
    /// A zip archive, such as `.npz` or a spreadsheet.
    Zip,
    /// A NumPy array.
    Npy,
    /// A Python pickle.
    Pickle,
    /// An HDF5 file.
    Hdf5,
    /// A Parquet file.
    Parquet,
    /// JSON text.
    Json,
    /// Matrix Market text.
    MatrixMarket,
    /// Other bytes that are not text.
    Binary,
}

/// Kind of a file that begins with `bytes`; `None` for text of no known kind, and for an empty file.
#[must_use]
pub fn sniff(bytes: &[u8]) -> Option<Sniffed> {
    let head = &bytes[..bytes.len().min(HEAD)];
    let magic = MAGIC.iter().find(|(magic, _)| head.starts_with(magic)).map(|&(_, kind)| kind);
    magic.or_else(|| pickle(head)).or_else(|| wide_text(head)).or_else(|| text(head)).or_else(|| {
        let is_binary = head.contains(&0);
        is_binary.then_some(Sniffed::Binary)
    })
}

/// Kind of the file at a path, by [`sniff`].
///
/// # Errors
/// When the file cannot be read.
pub fn sniff_file(path: &Path) -> Result<Option<Sniffed>, FormatError> {
    let read = || {
        let mut head = Vec::with_capacity(HEAD);
        File::open(path)?.take(HEAD as u64).read_to_end(&mut head)?;
        Ok(head)
    };
    let head = read().map_err(|error| FormatError::io(error).at(path))?;
    Ok(sniff(&head))
}

impl Sniffed {
    /// Noun phrase for messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Utf16 => "UTF-16 text",
            Self::Utf32 => "UTF-32 text",
            Self::Html => "an HTML or XML page",
            Self::LfsPointer => "a git-lfs pointer",
            Self::Gzip => "a gzip file",
            Self::Packed => "a bzip2, xz or zstd file",
            Self::Zip => "a zip archive",
            Self::Npy => "a NumPy array",
            Self::Pickle => "a Python pickle",
            Self::Hdf5 => "an HDF5 file",
            Self::Parquet => "a Parquet file",
            Self::Json => "a JSON text",
            Self::MatrixMarket => "a Matrix Market file",
            Self::Binary => "a binary file",
        }
    }

    /// Advice for the user.
    #[must_use]
    pub fn remedy(self) -> &'static str {
        match self {
            Self::Utf16 => "save it as UTF-8: iconv -f UTF-16 -t UTF-8 OLD > NEW",
            Self::Utf32 => "save it as UTF-8: iconv -f UTF-32 -t UTF-8 OLD > NEW",
            Self::Html => "the download brought a page in the place of the file; fetch the file that the page links to",
            Self::LfsPointer => "it stands for a larger file; fetch that by git lfs pull",
            Self::Gzip => "give it a name that ends in .gz, or unpack it by gunzip",
            Self::Packed => "unpack it first",
            Self::Zip => "unpack it, or name it .npz where NumPy wrote it",
            Self::Npy => "name it .npy",
            Self::Pickle | Self::Hdf5 | Self::Parquet | Self::Json => {
                "write its values as a format that docs/formats.md describes, such as an edge list or .npy"
            }
            Self::MatrixMarket => "its nodes count from 1; give it the ending .mtx",
            Self::Binary => "check that the name has the ending of its format",
        }
    }

    /// Error of a file that should be `expected`, a noun phrase.
    #[must_use]
    pub fn refusal(self, expected: &str) -> FormatError {
        FormatError::invalid(format!("it is {}, not {expected}; {}", self.name(), self.remedy()))
    }
}

/// Refuses a binary file that is not `expected` and is certainly of another kind than `own`. Damaged bytes are not
/// refused here.
///
/// # Errors
/// When the file starts as a web page, a pointer, text in wide characters, or another binary format.
pub fn check_binary(bytes: &[u8], expected: &str, own: Sniffed) -> Result<(), FormatError> {
    match sniff(bytes) {
        None | Some(Sniffed::Binary) => Ok(()),
        // Pickles and headers of tensors may start like these.
        Some(Sniffed::Json | Sniffed::Utf16 | Sniffed::Utf32) if own == Sniffed::Pickle || own == Sniffed::Binary => {
            Ok(())
        }
        Some(kind) if kind == own => Ok(()),
        Some(kind) => Err(kind.refusal(expected)),
    }
}

/// Refuses text that is not `expected`: any detected kind but `own`.
#[cfg(feature = "text")]
pub(super) fn check_text(bytes: &[u8], expected: &str, own: Option<Sniffed>) -> Result<(), FormatError> {
    match sniff(bytes) {
        kind if kind == own => Ok(()),
        None => Ok(()),
        Some(kind) => Err(kind.refusal(expected)),
    }
}

/// Error of a file whose name ends in `.gz` and whose bytes are not gzip; `None` if they are.
#[cfg(feature = "gz")]
pub(super) fn misnamed_gzip(bytes: &[u8]) -> Option<FormatError> {
    if bytes.starts_with(GZIP) {
        return None;
    }
    Some(match sniff(bytes) {
        Some(kind) => kind.refusal("a gzip file as its name says"),
        None if bytes.is_empty() => FormatError::invalid("the file is empty (0 bytes); expected a gzip file"),
        None => FormatError::invalid("the name ends in .gz, but its bytes are plain text; take .gz off the name"),
    })
}

fn pickle(head: &[u8]) -> Option<Sniffed> {
    matches!(head, [0x80, 2..=5, ..]).then_some(Sniffed::Pickle)
}

/// Detects UTF-16 and UTF-32 by their marks, or by the zeros in each of the first characters.
fn wide_text(head: &[u8]) -> Option<Sniffed> {
    if head.starts_with(b"\xff\xfe\0\0") || head.starts_with(b"\0\0\xfe\xff") {
        return Some(Sniffed::Utf32);
    }
    if head.starts_with(b"\xff\xfe") || head.starts_with(b"\xfe\xff") {
        return Some(Sniffed::Utf16);
    }
    let head = &head[..head.len().min(64)];
    let are_wide = |width: usize, at: usize| {
        let mut characters = head.chunks_exact(width).peekable();
        characters.peek().is_some()
            && characters.all(|c| c.iter().enumerate().all(|(i, &byte)| (i == at) == (byte != 0)))
    };
    if are_wide(4, 0) || are_wide(4, 3) {
        return Some(Sniffed::Utf32);
    }
    (are_wide(2, 0) || are_wide(2, 1)).then_some(Sniffed::Utf16)
}

/// Detects kinds of UTF-8 text.
fn text(head: &[u8]) -> Option<Sniffed> {
    let head = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
    let begins = |start: &str| head.get(..start.len()).is_some_and(|h| h.eq_ignore_ascii_case(start.as_bytes()));
    if ["<!doctype", "<html", "<head", "<body", "<?xml", "<!--"].into_iter().any(begins) {
        return Some(Sniffed::Html);
    }
    if begins("%%MatrixMarket") || begins("%MatrixMarket") {
        return Some(Sniffed::MatrixMarket);
    }
    let holds = |part: &[u8]| head.windows(part.len()).any(|window| window == part);
    if begins("version ") && holds(b"\noid sha256:") {
        return Some(Sniffed::LfsPointer);
    }
    matches!(head, [b'{' | b'[', ..]).then_some(Sniffed::Json)
}
