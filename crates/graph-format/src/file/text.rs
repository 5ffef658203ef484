//! What all text formats share: unpacking, chunks of whole lines, fields and numbers.
//!
//! Text is cut into chunks that end at line ends and parsed in parallel. Neither the result nor the error depends on
//! how many chunks there are: [`parse_lines`] reports the first line that is wrong, by its number in the file.

use std::io::{BufWriter, Read, Write};
use std::ops::Deref;
use std::path::Path;

use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use memchr::memchr;
use memmap2::Mmap;
use rayon::prelude::*;

use super::npy::map_file;
use super::write_file;
use crate::FormatError;

/// Bytes that one task parses.
const CHUNK: usize = 1 << 20;
/// Bytes of a line that an error shows.
const EXCERPT: usize = 80;
/// Graphs up to here are taken as they are, whatever their number of edges: they are small.
const MAX_SMALL_GRAPH: usize = 1 << 24;
/// Nodes per edge above which a larger graph is rather one whose number of nodes is wrong.
const MAX_NODES_PER_EDGE: usize = 100;
/// Most decimal digits that always fit into 64 bits.
const MAX_DIGITS: usize = 19;

/// The text of a file, mapped or unpacked.
pub(crate) enum Text {
    Mapped(Mmap),
    Unpacked(Vec<u8>),
}

impl Text {
    /// Maps a file, or unpacks it when its name ends in `.gz`.
    pub(crate) fn read(path: &Path) -> Result<Self, FormatError> {
        let map = map_file(path)?;
        if !is_gzip(path) {
            return Ok(Self::Mapped(map));
        }
        let mut text = Vec::new();
        match MultiGzDecoder::new(&map[..]).read_to_end(&mut text) {
            Ok(_) => Ok(Self::Unpacked(text)),
            Err(error) => Err(FormatError::corrupt(format!("not a readable gzip file: {error}")).at(path)),
        }
    }
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
        let mut packed = BufWriter::new(GzEncoder::new(out, flate2::Compression::default()));
        write(&mut packed)?;
        packed.into_inner().map_err(|e| e.into_error())?.finish()?;
        Ok(())
    })
}

fn is_gzip(path: &Path) -> bool {
    path.extension().is_some_and(|e| e.eq_ignore_ascii_case("gz"))
}

/// The text without the byte-order mark that some editors put first.
pub(crate) fn without_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text)
}

/// The lines of a text one by one, without their ends (`\n` or `\r\n`).
pub(crate) struct Lines<'a> {
    rest: &'a [u8],
    n_read: usize,
}

impl<'a> Lines<'a> {
    pub(crate) fn new(text: &'a [u8]) -> Self {
        Self { rest: text, n_read: 0 }
    }

    /// Number of lines returned so far, which is the number of the last one, counted from 1.
    pub(crate) fn n_read(&self) -> usize {
        self.n_read
    }

    /// What follows the last line returned.
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

/// What became of a chunk of lines; it ends early at the first line that is wrong.
struct Chunk<T> {
    parsed: T,
    n_lines: usize,
    error: Option<(Vec<u8>, String)>,
}

/// Parses every line into the value of its chunk, in parallel; returns the values in the order of the chunks.
///
/// # Errors
/// What `parse` says of the first line that it refuses, with the number of the line; `n_lines_before` stand above `text`.
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

/// One array of what every chunk holds, in the order of the chunks.
pub(crate) fn concat<C, T: Copy>(chunks: &[C], part: impl Fn(&C) -> &[T]) -> Vec<T> {
    let mut all = Vec::with_capacity(chunks.iter().map(|chunk| part(chunk).len()).sum());
    chunks.iter().for_each(|chunk| all.extend_from_slice(part(chunk)));
    all
}

/// An error about line `number`, counted from 1, that shows how the line begins.
pub(crate) fn line_error(number: usize, line: &[u8], problem: &str) -> FormatError {
    let line = shown(&line[..line.len().min(EXCERPT)]);
    FormatError::invalid(format!("line {number}: {problem}; the line is {line:?}"))
}

/// Bytes as an error shows them.
pub(crate) fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What stands between the fields of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Separator {
    /// A comma; blanks around fields do not count, and a field may be empty.
    Comma,
    /// Any number of blanks and tabs; no field is empty.
    Blank,
}

/// The fields of a line, without blanks around them and without the quotes that spreadsheets put there.
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

    fn next_before_comma(&mut self, rest: &'a [u8]) -> &'a [u8] {
        let end = rest.iter().position(|&b| b == b',');
        self.rest = end.map(|end| &rest[end + 1..]);
        rest[..end.unwrap_or(rest.len())].trim_ascii()
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest?;
        let field = match self.separator {
            Separator::Comma => self.next_before_comma(rest),
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

/// A decimal integer from 0; `None` for anything else, and for more than [`MAX_DIGITS`] digits.
#[inline]
pub(crate) fn integer(field: &[u8]) -> Option<u64> {
    if field.is_empty() || field.len() > MAX_DIGITS {
        return None;
    }
    field.iter().try_fold(0u64, |n, &b| {
        let digit = b.wrapping_sub(b'0');
        (digit < 10).then(|| n * 10 + u64::from(digit))
    })
}

/// The `f32` nearest to a decimal number; `None` for other text. `nan` and `inf` are numbers here.
#[inline]
pub(crate) fn float(field: &[u8]) -> Option<f32> {
    short_decimal(field).or_else(|| std::str::from_utf8(field).ok()?.parse().ok())
}

/// Powers of ten that `f64` holds exactly.
const POWERS_OF_TEN: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20,
    1e21, 1e22,
];

/// [`float`] of the numbers that one exact operation gives; `None` leaves the number to the general way.
///
/// Digits below 2⁵³ and a power of ten up to 10²² are exact in `f64`, so their product or quotient is rounded once
/// (Clinger, "How to Read Floating Point Numbers Accurately", 1990). Rounding it again to `f32` can only go wrong where
/// it lies exactly between two of them.
#[inline]
fn short_decimal(field: &[u8]) -> Option<f32> {
    const HALFWAY_BITS: u64 = (1 << 29) - 1;
    let (negative, text) = match field {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, field),
    };
    let (digits, exponent) = digits_and_exponent(text)?;
    let power = POWERS_OF_TEN.get(exponent.unsigned_abs() as usize)?;
    if digits > 1 << 53 {
        return None;
    }
    let value = if exponent < 0 { digits as f64 / power } else { digits as f64 * power };
    if value.to_bits() & HALFWAY_BITS == 1 << 28 {
        return None;
    }
    Some(if negative { -value as f32 } else { value as f32 })
}

/// `12.5e3` as 125 and 2; `None` when it is longer than [`MAX_DIGITS`] or not of this form.
#[inline]
fn digits_and_exponent(text: &[u8]) -> Option<(u64, i32)> {
    let (mut digits, mut n_digits, mut point) = (0u64, 0, None);
    for (at, &byte) in text.iter().enumerate() {
        let digit = byte.wrapping_sub(b'0');
        if digit < 10 {
            digits = digits.wrapping_mul(10).wrapping_add(u64::from(digit));
            n_digits += 1;
        } else if byte == b'.' && point.is_none() {
            point = Some(n_digits);
        } else if matches!(byte, b'e' | b'E') && n_digits > 0 {
            let exponent = small_exponent(&text[at + 1..])?;
            return (n_digits <= MAX_DIGITS).then(|| (digits, exponent - decimals(n_digits, point)));
        } else {
            return None;
        }
    }
    (1..=MAX_DIGITS).contains(&n_digits).then(|| (digits, -decimals(n_digits, point)))
}

fn decimals(n_digits: usize, point: Option<usize>) -> i32 {
    point.map_or(0, |point| n_digits - point) as i32
}

/// An exponent of at most two digits.
fn small_exponent(text: &[u8]) -> Option<i32> {
    let (sign, digits) = match text {
        [b'-', rest @ ..] => (-1, rest),
        [b'+', rest @ ..] => (1, rest),
        _ => (1, text),
    };
    if digits.len() > 2 {
        return None;
    }
    Some(sign * integer(digits)? as i32)
}

/// Refuses numbers of nodes that are out of all proportion to the edges, before memory is taken for them; `found` says
/// where the number comes from.
pub(crate) fn check_proportion(n_nodes: usize, n_edges: usize, found: &str) -> Result<(), FormatError> {
    if n_nodes <= MAX_SMALL_GRAPH || n_nodes / MAX_NODES_PER_EDGE <= n_edges {
        return Ok(());
    }
    Err(FormatError::invalid(format!("{found}, but there are only {n_edges} edges; number the nodes without gaps")))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fields(line: &str, separator: Separator) -> Vec<String> {
        Fields::new(line.as_bytes(), separator).map(shown).collect()
    }

    proptest! {
        #[test]
        fn floats_are_those_of_the_standard_library(bits in any::<u32>(), digits in 0..20usize) {
            let value = f32::from_bits(bits);
            prop_assume!(value.is_finite());
            for text in [format!("{value}"), format!("{value:e}"), format!("{value:.digits$}"), format!("{:.digits$}", f64::from(value) * 1.000_000_1)] {
                let expected: f32 = text.parse().unwrap();
                prop_assert_eq!(float(text.as_bytes()).map(f32::to_bits), Some(expected.to_bits()), "{}", text);
            }
        }

        #[test]
        fn decimals_near_the_middle_of_two_floats_round_as_the_standard_library_does(digits in 1u64..1 << 55, exponent in -25i32..25) {
            let middle = f64::from(digits as f32) + f64::from(f32::EPSILON) * digits as f64 / 2.0;
            for text in [format!("{digits}e{exponent}"), format!("{middle}")] {
                let expected: f32 = text.parse().unwrap();
                prop_assert_eq!(float(text.as_bytes()).map(f32::to_bits), Some(expected.to_bits()), "{}", text);
            }
        }

        #[test]
        fn text_is_a_number_where_the_standard_library_says_so(text in "[-+0-9.eEx ]{0,12}") {
            prop_assert_eq!(float(text.as_bytes()), text.parse().ok());
            let is_integer = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            prop_assert_eq!(integer(text.as_bytes()).is_some(), is_integer);
        }
    }

    #[test]
    fn fields_of_both_kinds() {
        assert_eq!(fields(" 1,\"2\" , x,,", Separator::Comma), ["1", "2", "x", "", ""]);
        assert_eq!(fields("\t1  \"2\" x ", Separator::Blank), ["1", "2", "x"]);
        assert!(fields("  ", Separator::Blank).is_empty());
    }

    #[test]
    fn integers_beyond_64_bits_are_none() {
        assert_eq!(integer(b"9999999999999999999"), Some(9_999_999_999_999_999_999));
        assert_eq!(integer(b"10000000000000000000"), None);
        assert_eq!(integer(b"0x10"), None);
    }
}
