//! NumPy's `.npy`: one array per file. Format: NumPy enhancement proposal 1.
//!
//! ```text
//! \x93NUMPY 1 0 │ u16 length │ {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), } … \n │ values
//! ```
//! The header is parsed here rather than by a library, because the parser must withstand hostile bytes: no allocation
//! by a declared length, no recursion, no unchecked product of dimensions. The tests compare with `npyz`.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use bytemuck::Pod;
use half::f16;

use super::array::{Array, Element, Values};
use super::atomic::write_file;
use super::mapped::MappedFile;
use super::sniff::{Sniffed, check_binary};
use crate::{Buffer, FormatError};

const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// Values start at a multiple of this number of bytes, so that mapped values are aligned for any type and for vector
/// loads.
const ALIGNMENT: usize = 64;
/// Largest header in bytes; `NumPy` also refuses longer ones by default.
pub(super) const MAX_HEADER: usize = 10_000;
const _: () = assert!(ALIGNMENT == 64 && MAX_HEADER == 10_000, "docs/formats.md states both, in its section on arrays");

impl Array {
    /// Reads a file into memory.
    ///
    /// # Errors
    /// When the file cannot be read, is not `.npy`, is cut off, or holds a type that is not supported (objects,
    /// structures, big-endian numbers).
    pub fn read(path: &Path) -> Result<Self, FormatError> {
        // Mapping and copying costs one pass, as reading does, and never allocates by a declared size.
        let map = MappedFile::open(path)?;
        Self::from_bytes(path, &map)
    }

    /// Maps a file: values are read from disk on access, and copied only when they are unaligned, not in C order, or
    /// text. Readers see a change of the file during the lifetime of the array;
    /// [`check_mapped_files`](super::check_mapped_files) finds it.
    ///
    /// # Errors
    /// As [`Array::read`].
    pub fn map(path: &Path) -> Result<Self, FormatError> {
        let map = Arc::new(MappedFile::open(path)?);
        decode(path, &map, Some(&map)).map_err(|e| e.at(path))
    }

    /// Decodes the array in `bytes`; errors name `origin`.
    ///
    /// # Errors
    /// As [`Array::read`].
    pub fn from_bytes(origin: &Path, bytes: &[u8]) -> Result<Self, FormatError> {
        decode(origin, bytes, None).map_err(|e| e.at(origin))
    }
}

/// Maps the bytes of a whole file, as [`Array::map`] does.
///
/// # Errors
/// When the file cannot be read.
pub fn map_bytes(path: &Path) -> Result<Buffer<u8>, FormatError> {
    let map = Arc::new(MappedFile::open(path)?);
    let len = map.len();
    Ok(Buffer::mapped(map, 0, len).expect("bytes need no alignment, and these are all that there are"))
}

/// Writes an array in C order; the file appears whole or not at all.
///
/// # Errors
/// When the file cannot be written.
///
/// # Panics
/// When the product of `shape` is not the number of values.
pub fn write_npy<T: Element>(path: &Path, shape: &[usize], values: &[T]) -> Result<(), FormatError> {
    write_file(path, |out| Ok(write_array(out, shape, values)?))
}

/// Writes a matrix of `f32` whose rows `fill` makes, some at a time from a given row on. So the matrix need not fit
/// into memory. The file appears whole or not at all.
///
/// # Errors
/// When the file cannot be written.
pub fn write_npy_rows(
    path: &Path,
    (n_rows, width): (usize, usize),
    mut fill: impl FnMut(usize, &mut [f32]),
) -> Result<(), FormatError> {
    write_file(path, |out| {
        out.write_all(&header_bytes(f32::DESCR, &[n_rows, width]))?;
        let block = (WRITTEN / width.max(1)).max(1);
        let mut rows = vec![0.0; block.min(n_rows) * width];
        for first in (0..n_rows).step_by(block) {
            let rows = &mut rows[..block.min(n_rows - first) * width];
            fill(first, rows);
            out.write_all(bytemuck::cast_slice(rows))?;
        }
        Ok(())
    })
}

/// Number of values that are made and written at a time.
const WRITTEN: usize = 1 << 18;

/// Writes header and values to `out`.
pub(crate) fn write_array<T: Element>(mut out: impl Write, shape: &[usize], values: &[T]) -> std::io::Result<()> {
    assert_eq!(shape.iter().product::<usize>(), values.len(), "shape {shape:?} of an array");
    out.write_all(&header_bytes(T::DESCR, shape))?;
    out.write_all(bytemuck::cast_slice(values))
}

/// Writes header and values of one dimension to `out`, in parts.
#[cfg(feature = "npz")]
pub(crate) fn write_values<T: Element>(
    mut out: impl Write,
    mut values: impl ExactSizeIterator<Item = T>,
) -> std::io::Result<()> {
    out.write_all(&header_bytes(T::DESCR, &[values.len()]))?;
    let mut piece = Vec::with_capacity(values.len().min(WRITTEN));
    while values.len() > 0 {
        piece.clear();
        piece.extend(values.by_ref().take(WRITTEN));
        out.write_all(bytemuck::cast_slice(&piece))?;
    }
    Ok(())
}

/// Bytes before the values; their number is a multiple of [`ALIGNMENT`].
pub(crate) fn header_bytes(descr: &str, shape: &[usize]) -> Vec<u8> {
    let dimensions: String = shape.iter().map(|d| format!("{d}, ")).collect();
    // Python writes a tuple of one as `(5,)` and longer ones without a trailing comma; both parse.
    let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({}), }}", dimensions.trim_end());
    let prefix = MAGIC.len() + 2 + size_of::<u16>();
    let length = (prefix + text.len() + 1).next_multiple_of(ALIGNMENT) - prefix;
    let mut bytes = Vec::with_capacity(prefix + length);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&[1, 0]);
    bytes.extend_from_slice(&u16::try_from(length).expect("arrays have few dimensions").to_le_bytes());
    bytes.extend_from_slice(text.as_bytes());
    bytes.resize(prefix + length - 1, b' ');
    bytes.push(b'\n');
    bytes
}

/// Contents of the header.
#[derive(Debug, PartialEq)]
pub(super) struct Header {
    pub(super) descr: String,
    pub(super) fortran_order: bool,
    pub(super) shape: Vec<usize>,
    /// Byte offset of the values.
    pub(super) data_start: usize,
}

impl Header {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, FormatError> {
        if !bytes.starts_with(MAGIC) {
            check_binary(bytes, "a .npy array", Sniffed::Npy)?;
            let found = bytes[..bytes.len().min(MAGIC.len())].escape_ascii();
            return Err(FormatError::corrupt(format!("not a .npy array: it starts with \"{found}\"")));
        }
        let cut_off = || FormatError::corrupt("the .npy header is cut off");
        let version = *bytes.get(6).ok_or_else(cut_off)?;
        let (text_start, length) = match version {
            1 => (10, bytes.get(8..10).map(|b| usize::from(u16::from_le_bytes([b[0], b[1]])))),
            2 | 3 => (12, bytes.get(8..12).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]) as usize)),
            _ => return Err(FormatError::invalid(format!(".npy version {version}; versions 1 to 3 are supported"))),
        };
        let length = length.ok_or_else(cut_off)?;
        if length > MAX_HEADER {
            return Err(FormatError::corrupt(format!("a .npy header of {length} bytes (at most {MAX_HEADER})")));
        }
        let data_start = text_start + length;
        let text = bytes.get(text_start..data_start).ok_or_else(cut_off)?;
        let text = std::str::from_utf8(text).map_err(|_| FormatError::corrupt("the .npy header is not text"))?;
        Self::parse_text(text, data_start)
            .ok_or_else(|| FormatError::corrupt(format!("unreadable .npy header {:?}", excerpt(text))))?
    }

    /// Parses the three entries of the dictionary; `None` when it is malformed, an inner error when its type is not
    /// supported.
    fn parse_text(text: &str, data_start: usize) -> Option<Result<Self, FormatError>> {
        let descr = after_key(text, "descr")?;
        if descr.starts_with('[') {
            let message = "a structured array; save each field as an array of its own";
            return Some(Err(FormatError::invalid(message)));
        }
        let descr = descr.strip_prefix(['\'', '"'])?;
        let descr = &descr[..descr.find(['\'', '"'])?];
        let order = after_key(text, "fortran_order")?;
        let fortran_order = order.starts_with("True");
        if !fortran_order && !order.starts_with("False") {
            return None;
        }
        let shape = after_key(text, "shape")?.strip_prefix('(')?;
        let shape = shape[..shape.find(')')?].trim().trim_end_matches(',');
        let dimension = |d: &str| d.trim().trim_end_matches('L').parse::<usize>().ok();
        let shape = match shape {
            "" => Vec::new(),
            list => list.split(',').map(dimension).collect::<Option<Vec<usize>>>()?,
        };
        Some(Ok(Self { descr: descr.to_owned(), fortran_order, shape, data_start }))
    }

    /// Bytes of the values, after a check of their declared number.
    fn data<'a>(&self, bytes: &'a [u8], item_size: usize) -> Result<&'a [u8], FormatError> {
        let data = &bytes[self.data_start..];
        self.check_size(item_size, data.len() as u64)?;
        Ok(data)
    }

    /// Compares the declared number of bytes of the values with the actual one.
    pub(super) fn check_size(&self, item_size: usize, found: u64) -> Result<(), FormatError> {
        let declared = self.shape.iter().try_fold(item_size, |n, &d| n.checked_mul(d));
        if declared.map(|n| n as u64) == Some(found) {
            return Ok(());
        }
        let declared = declared.map_or("more than 2⁶⁴".to_owned(), |n| n.to_string());
        Err(FormatError::corrupt(format!(
            "shape {:?} of {} takes {declared} bytes, found {found}",
            self.shape, self.descr
        )))
    }
}

/// Text after `'key':`.
fn after_key<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let at = text.find(&format!("'{key}'")).or_else(|| text.find(&format!("\"{key}\"")))?;
    Some(text[at + key.len() + 2..].trim_start().strip_prefix(':')?.trim_start())
}

fn excerpt(text: &str) -> String {
    text.chars().take(120).collect()
}

/// Bytes of an array, with their map if values may stay in it.
struct Source<'a> {
    header: Header,
    bytes: &'a [u8],
    map: Option<&'a Arc<MappedFile>>,
}

fn decode(origin: &Path, bytes: &[u8], map: Option<&Arc<MappedFile>>) -> Result<Array, FormatError> {
    let source = Source { header: Header::parse(bytes)?, bytes, map };
    let values = match source.header.descr.as_str() {
        "|b1" => Values::Bool(source.truth_values()?),
        "|i1" => source.values::<i8>()?,
        "|u1" => source.values::<u8>()?,
        "<i2" => source.values::<i16>()?,
        "<u2" => source.values::<u16>()?,
        "<i4" => source.values::<i32>()?,
        "<u4" => source.values::<u32>()?,
        "<i8" => source.values::<i64>()?,
        "<u8" => source.values::<u64>()?,
        "<f2" => source.values::<f16>()?,
        "<f4" => source.values::<f32>()?,
        "<f8" => source.values::<f64>()?,
        other => source.text(other)?,
    };
    Array::new(origin, source.header.shape, values)
}

impl Source<'_> {
    fn values<T: Element>(&self) -> Result<Values, FormatError> {
        Ok(T::wrap(self.buffer::<T>()?))
    }

    fn buffer<T: Pod>(&self) -> Result<Buffer<T>, FormatError> {
        let data = self.header.data(self.bytes, size_of::<T>())?;
        let len = data.len() / size_of::<T>();
        match self.fortran_shape()? {
            Some((rows, columns)) => {
                let stored: Vec<T> = bytemuck::pod_collect_to_vec(data);
                Ok((0..len).map(|i| stored[i % columns * rows + i / columns]).collect::<Vec<T>>().into())
            }
            None => {
                let mapped = self.map.and_then(|map| Buffer::mapped(map.clone(), self.header.data_start, len));
                Ok(mapped.unwrap_or_else(|| bytemuck::pod_collect_to_vec::<u8, T>(data).into()))
            }
        }
    }

    /// Numbers of rows and columns, if the values must be transposed into C order.
    fn fortran_shape(&self) -> Result<Option<(usize, usize)>, FormatError> {
        match self.header.shape[..] {
            _ if !self.header.fortran_order => Ok(None),
            [] | [_] => Ok(None),
            [rows, columns] => Ok(Some((rows, columns))),
            _ => Err(FormatError::invalid(format!(
                "shape {:?} in Fortran order; write it again with numpy.ascontiguousarray",
                self.header.shape
            ))),
        }
    }

    fn truth_values(&self) -> Result<Buffer<u8>, FormatError> {
        let values = self.buffer::<u8>()?;
        match values.iter().position(|&v| v > 1) {
            None => Ok(values),
            Some(at) => Err(FormatError::corrupt(format!("value {at} of a bool array is {}", values[at]))),
        }
    }

    /// Decodes strings of a fixed number of characters, padded with zeros: `|S3` (bytes) or `<U3` (32-bit code
    /// points).
    fn text(&self, descr: &str) -> Result<Values, FormatError> {
        let width = |prefix: &str| descr.strip_prefix(prefix).and_then(|w| w.parse::<usize>().ok());
        let unsupported = || unsupported(descr);
        let (width, unit) = match (width("|S"), width("<U")) {
            (Some(width), _) => (width, 1),
            (_, Some(width)) => (width, size_of::<u32>()),
            _ => return Err(unsupported()),
        };
        let item = width.checked_mul(unit).filter(|&item| item > 0).ok_or_else(unsupported)?;
        let data = self.header.data(self.bytes, item)?;
        if self.fortran_shape()?.is_some() {
            return Err(FormatError::invalid("text in Fortran order; write it again with numpy.ascontiguousarray"));
        }
        let decode = |item: &[u8]| match unit {
            1 => String::from_utf8(item.to_vec()).ok(),
            _ => {
                item.chunks_exact(unit).map(|c| char::from_u32(u32::from_le_bytes([c[0], c[1], c[2], c[3]]))).collect()
            }
        };
        let strings = data.chunks_exact(item).enumerate().map(|(at, item)| {
            let text = decode(item).ok_or_else(|| FormatError::corrupt(format!("string {at} is not Unicode")))?;
            Ok(text.trim_end_matches('\0').to_owned())
        });
        Ok(Values::Text(strings.collect::<Result<_, FormatError>>()?))
    }
}

pub(super) fn unsupported(descr: &str) -> FormatError {
    FormatError::invalid(match descr.as_bytes() {
        [b'>', ..] => format!("big-endian values ({descr}); write them little-endian, as numpy does on every PC"),
        [b'|', b'O', ..] => "an array of Python objects; reading it would mean running pickle, so save numbers or \
                             strings instead"
            .to_owned(),
        _ => format!("type {descr:?} is not supported; expected bool, integers, floats or strings"),
    })
}
