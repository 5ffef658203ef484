//! Common parts of all text formats: unpacking, chunks of whole lines, fields and numbers.
//!
//! Text is cut into chunks that end at line ends and are parsed in parallel. Neither the result nor the error depends
//! on the number of chunks: [`parse_lines`] reports the first wrong line, by its number in the file.
//!
//! A reader of a text format calls, in this order (`metis.rs` is one):
//! 1. [`Text::read`]: the file, mapped or unpacked. All else is a public `parse_…(text)`, whose error gets the path.
//! 2. `check_text` of `sniff.rs`, [`check_memory`], [`without_mark`], [`check_end`]: refusals before any parsing.
//! 3. [`Lines`]: the header, line by line. [`parse_lines`]: the rest in chunks, by [`Fields`] and `number.rs`.
//! 4. [`concat()`]: results of all chunks. [`line_error`]: a refusal by line. `Coo` or `Csr::new`: the checked graph.
//! 5. [`write_text`]: the writer, if there is one.

#[cfg(feature = "gz")]
use std::io::BufWriter;
use std::io::Write;
use std::ops::Deref;
use std::path::Path;

#[cfg(feature = "gz")]
use flate2::{read::MultiGzDecoder, write::GzEncoder};
use girih_machine::memory::Free;
use girih_machine::readable_bytes;
use memchr::{memchr, memchr3_iter};
use rayon::prelude::*;

use super::mapped::MappedFile;
use super::write_file;
#[cfg(feature = "gz")]
use super::{sniff::misnamed_gzip, unpack::Budget};
use crate::{FormatError, Notes};

/// Number of bytes that one task parses.
const CHUNK: usize = 1 << 20;
/// Bytes of memory per edge while a list becomes a graph: parsed, numbered, and sorted into rows.
pub(crate) const EDGE_BYTES: u64 = 40;
/// Number of bytes of a line that an error shows.
const EXCERPT: usize = 80;
/// Text of a file, mapped or unpacked.
pub(crate) enum Text {
    Mapped(MappedFile),
    Unpacked(Vec<u8>),
}

impl Text {
    /// Maps a file, or unpacks it when its name ends in `.gz`. Unpacking may take half of the free memory, as the
    /// data read from the text takes as much again.
    pub(crate) fn read(path: &Path) -> Result<Self, FormatError> {
        let map = MappedFile::open(path)?;
        if !is_gzip(path) {
            return Ok(Self::Mapped(map));
        }
        unpack(&map).map(Self::Unpacked).map_err(|error| error.at(path))
    }
}

#[cfg(feature = "gz")]
fn unpack(packed: &[u8]) -> Result<Vec<u8>, FormatError> {
    match misnamed_gzip(packed) {
        Some(error) => Err(error),
        None => unpacked(packed, Budget::of_free_memory()),
    }
}

#[cfg(not(feature = "gz"))]
fn unpack(_: &[u8]) -> Result<Vec<u8>, FormatError> {
    Err(without_gz())
}

#[cfg(not(feature = "gz"))]
pub(super) fn without_gz() -> FormatError {
    FormatError::invalid("this program has no gzip: build girih-graph-format with its feature `gz`, or take plain text")
}

/// Unpacks text within a budget.
#[cfg(feature = "gz")]
fn unpacked(packed: &[u8], mut budget: Budget) -> Result<Vec<u8>, FormatError> {
    let remedy = "unpack it with gunzip and read that file, which need not fit into memory";
    budget.read_all(MultiGzDecoder::new(packed), remedy)
}

impl Deref for Text {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Mapped(map) => map,
            Self::Unpacked(text) => text,
        }
    }
}

/// Writes text through `write`, packed when the name ends in `.gz`; the file appears whole or not at all.
pub(crate) fn write_text(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
) -> Result<(), FormatError> {
    write_file(path, |out| {
        if !is_gzip(path) {
            return Ok(write(out)?);
        }
        write_packed(out, write)
    })
}

#[cfg(feature = "gz")]
fn write_packed(
    out: &mut dyn Write,
    write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
) -> Result<(), FormatError> {
    let mut packed = BufWriter::new(GzEncoder::new(out, flate2::Compression::default()));
    write(&mut packed)?;
    packed.into_inner().map_err(|e| e.into_error())?.finish()?;
    Ok(())
}

#[cfg(not(feature = "gz"))]
fn write_packed(_: &mut dyn Write, _: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> Result<(), FormatError> {
    Err(without_gz())
}

pub(super) fn is_gzip(path: &Path) -> bool {
    path.extension().is_some_and(|e| e.eq_ignore_ascii_case("gz"))
}

/// Text without the byte-order mark that some editors write.
pub(crate) fn without_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text)
}

/// Warns if a text does not end with a line end; `name` is its subject in the warning.
pub(crate) fn check_end(text: &[u8], name: &str, notes: &mut Notes) {
    if text.last().is_some_and(|&b| b != b'\n') {
        notes.warn(format!("{name} does not end with a line end; if it was cut off, its last number may be too"));
    }
}

/// Refuses text whose values would exceed the free memory. Values end at one of `ends` and take `bytes_each` at the
/// peak. They are counted only if an upper bound exceeds the free memory.
pub(crate) fn check_memory(text: &[u8], ends: [u8; 3], bytes_each: u64) -> Result<(), FormatError> {
    let Some(free) = Free::now() else { return Ok(()) };
    check_within(text, ends, bytes_each, &free)
}

fn check_within(text: &[u8], ends: [u8; 3], bytes_each: u64, free: &Free) -> Result<(), FormatError> {
    /// Smallest number of bytes of a value: one digit and its end.
    const BYTES_MIN: u64 = 2;
    let needed_at_most = (text.len() as u64 / BYTES_MIN).saturating_mul(bytes_each);
    if needed_at_most <= free.bytes {
        return Ok(());
    }
    let count = |chunk: &[u8]| memchr3_iter(ends[0], ends[1], ends[2], chunk).count() as u64;
    let n_values: u64 = text.par_chunks(CHUNK).map(count).sum();
    let needed = n_values.saturating_mul(bytes_each);
    if needed <= free.bytes {
        return Ok(());
    }
    Err(FormatError::invalid(format!(
        "its {n_values} values take about {} of memory, and {} has {} free; read it where there is more",
        readable_bytes(needed),
        free.limit,
        readable_bytes(free.bytes)
    )))
}

/// Iterator over the lines of a text, without their ends (`\n` or `\r\n`).
pub(crate) struct Lines<'a> {
    rest: &'a [u8],
    n_read: usize,
}

impl<'a> Lines<'a> {
    pub(crate) fn new(text: &'a [u8]) -> Self {
        Self { rest: text, n_read: 0 }
    }

    /// Number of lines returned so far: the number of the last one, counted from 1.
    pub(crate) fn n_read(&self) -> usize {
        self.n_read
    }

    /// Text after the last line returned.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for Lines<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        if self.rest.is_empty() {
            return None;
        }
        self.n_read += 1;
        let (line, rest) = match memchr(b'\n', self.rest) {
            Some(at) => (&self.rest[..at], &self.rest[at + 1..]),
            None => (self.rest, &[][..]),
        };
        self.rest = rest;
        Some(line.strip_suffix(b"\r").unwrap_or(line))
    }
}

/// Result of a chunk of lines; it ends at the first wrong line.
struct Chunk<T> {
    parsed: T,
    n_lines: usize,
    error: Option<(Vec<u8>, String)>,
}

/// Parses every line into the value of its chunk, in parallel; returns the values in the order of the chunks.
///
/// # Errors
/// The error of `parse` for the first line that it refuses, with the number of the line; `n_lines_before` lines
/// precede `text`.
pub(crate) fn parse_lines<T: Default + Send>(
    text: &[u8],
    n_lines_before: usize,
    parse: impl Fn(&[u8], &mut T) -> Result<(), String> + Sync,
) -> Result<Vec<T>, FormatError> {
    let parse_chunk = |text: &[u8]| {
        let mut lines = Lines::new(text);
        let mut parsed = T::default();
        while let Some(line) = lines.next() {
            if let Err(problem) = parse(line, &mut parsed) {
                let excerpt = line[..line.len().min(EXCERPT)].to_vec();
                return Chunk { parsed, n_lines: lines.n_read() - 1, error: Some((excerpt, problem)) };
            }
        }
        Chunk { parsed, n_lines: lines.n_read(), error: None }
    };
    let chunks: Vec<Chunk<T>> = split_lines(text).into_par_iter().map(parse_chunk).collect();
    let mut n_lines = n_lines_before;
    let finish = |chunk: Chunk<T>| {
        n_lines += chunk.n_lines;
        match chunk.error {
            None => Ok(chunk.parsed),
            Some((line, problem)) => Err(line_error(n_lines + 1, &line, &problem)),
        }
    };
    chunks.into_iter().map(finish).collect()
}

/// Cuts text into chunks of about [`CHUNK`] bytes that end at line ends.
fn split_lines(mut text: &[u8]) -> Vec<&[u8]> {
    let mut chunks = Vec::with_capacity(text.len() / CHUNK + 1);
    while text.len() > CHUNK {
        let end = memchr(b'\n', &text[CHUNK..]).map_or(text.len(), |at| CHUNK + at + 1);
        let (chunk, rest) = text.split_at(end);
        chunks.push(chunk);
        text = rest;
    }
    chunks.push(text);
    chunks
}

/// Concatenates a part of every chunk, in the order of the chunks.
pub(crate) fn concat<C, T: Copy>(chunks: &[C], part: impl Fn(&C) -> &[T]) -> Vec<T> {
    let mut all = Vec::with_capacity(chunks.iter().map(|chunk| part(chunk).len()).sum());
    chunks.iter().for_each(|chunk| all.extend_from_slice(part(chunk)));
    all
}

/// Error about line `number`, counted from 1, that shows the start of the line.
pub(crate) fn line_error(number: usize, line: &[u8], problem: &str) -> FormatError {
    let line = shown(&line[..line.len().min(EXCERPT)]);
    FormatError::invalid(format!("line {number}: {problem}; the line is {line:?}"))
}

/// Bytes as text for an error.
pub(crate) fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Separator between the fields of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Separator {
    /// A comma; blanks around fields are ignored, and a field may be empty.
    Comma,
    /// A semicolon, with the rules of a comma.
    Semicolon,
    /// A tab, with the rules of a comma.
    Tab,
    /// Any number of blanks and tabs; no field is empty.
    Blank,
}

/// Iterator over the fields of a line, without surrounding blanks and the quotes of spreadsheets.
#[derive(Clone)]
pub(crate) struct Fields<'a> {
    rest: Option<&'a [u8]>,
    separator: Separator,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(line: &'a [u8], separator: Separator) -> Self {
        Self { rest: Some(line), separator }
    }

    fn next_after_blanks(&mut self, rest: &'a [u8]) -> Option<&'a [u8]> {
        let Some(start) = rest.iter().position(|&b| !is_blank(b)) else {
            self.rest = None;
            return None;
        };
        let rest = &rest[start..];
        let end = rest.iter().position(|&b| is_blank(b)).unwrap_or(rest.len());
        self.rest = Some(&rest[end..]);
        Some(&rest[..end])
    }

    fn next_before(&mut self, separator: u8, rest: &'a [u8]) -> &'a [u8] {
        let end = rest.iter().position(|&b| b == separator);
        self.rest = end.map(|end| &rest[end + 1..]);
        rest[..end.unwrap_or(rest.len())].trim_ascii()
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = &'a [u8];

    // For a constant separator, the compiler keeps one of the four ways to find the end.
    #[inline(always)]
    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest?;
        let field = match self.separator {
            Separator::Comma => self.next_before(b',', rest),
            Separator::Semicolon => self.next_before(b';', rest),
            Separator::Tab => self.next_before(b'\t', rest),
            Separator::Blank => self.next_after_blanks(rest)?,
        };
        match field {
            [b'"', inner @ .., b'"'] => Some(inner),
            _ => Some(field),
        }
    }
}

fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(line: &str, separator: Separator) -> Vec<String> {
        Fields::new(line.as_bytes(), separator).map(shown).collect()
    }

    #[test]
    fn fields_of_both_kinds() {
        assert_eq!(fields(" 1,\"2\" , x,,", Separator::Comma), ["1", "2", "x", "", ""]);
        assert_eq!(fields("\t1  \"2\" x ", Separator::Blank), ["1", "2", "x"]);
        assert!(fields("  ", Separator::Blank).is_empty());
    }

    #[test]
    fn values_that_exceed_free_memory_are_refused_before_they_are_parsed() {
        let within = |bytes| {
            let free = Free { bytes, limit: girih_machine::memory::Limit::Machine };
            check_within(b"0,1\n2,3\n", [b',', b'\n', b'\n'], 10, &free)
        };
        assert!(within(40).is_ok());
        let refused = within(39).unwrap_err().to_string();
        assert!(refused.contains("4 values") && refused.contains("39 B free"), "{refused}");
    }

    #[cfg(feature = "gz")]
    #[test]
    fn text_that_unpacks_to_more_than_may_be_is_refused() {
        let mut packed = GzEncoder::new(Vec::new(), flate2::Compression::default());
        packed.write_all(&[b'1'; 1000]).unwrap();
        let packed = packed.finish().unwrap();
        assert_eq!(unpacked(&packed, Budget::new(1000)).unwrap().len(), 1000);
        let refused = unpacked(&packed, Budget::new(999)).unwrap_err().to_string();
        assert!(refused.contains("more than 999 bytes") && refused.contains("gunzip"), "{refused}");
    }
}
