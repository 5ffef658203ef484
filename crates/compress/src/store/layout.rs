//! [`Layout`]: header of a store, and offsets of its parts, as `docs/formats.md` defines them.

use girih_graph_format::MAX_NODES;

use crate::{CodecSpec, CompressError, FeatureCodec, from_parameters};

/// First bytes of a complete store, and of one that is being written.
pub(super) const MAGIC: &[u8; 8] = b"girihfea";
pub(super) const UNFINISHED: &[u8; 8] = b"girihfe~";
/// Version of this layout.
pub(super) const VERSION: u32 = 1;

const VERSION_OFFSET: usize = 8;
const HEADER_BYTES_OFFSET: usize = 12;
const N_ROWS_OFFSET: usize = 16;
const FINGERPRINT_OFFSET: usize = 24;
const WIDTH_OFFSET: usize = 32;
const ROW_BYTES_OFFSET: usize = 36;
const CHUNK_ROWS_OFFSET: usize = 40;
const TABLE_CRC_OFFSET: usize = 44;
const SPEC_BYTES_OFFSET: usize = 48;
const PARAMETER_BYTES_OFFSET: usize = 52;
const SPEC_OFFSET: usize = 56;
const CRC_BYTES: usize = 4;
const _: () = assert!(SPEC_OFFSET == 56 && VERSION == 1, "docs/formats.md places the codec's name at byte 56");

/// Alignment in bytes of header, table and codes.
const ALIGNMENT: usize = 64;
/// Largest header in bytes; it holds a code book or components, which are far smaller.
const HEADER_BYTES_MAX: usize = 1 << 30;
/// Sizes and offsets of the parts of a store.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    /// Number of rows.
    pub n_rows: usize,
    /// Number of features of a row.
    pub width: usize,
    /// Number of bytes of a code.
    pub row_bytes: usize,
    /// Number of rows that share a checksum.
    pub chunk_rows: usize,
    spec: String,
    parameters: Vec<u8>,
}

impl Layout {
    /// Layout of `n_rows` codes; a chunk has the largest number of rows with at most `chunk_values` features, and at
    /// least one.
    ///
    /// # Errors
    /// For more rows than ids, or a codec whose parameters exceed a header.
    pub fn new(codec: &dyn FeatureCodec, n_rows: usize, chunk_values: usize) -> Result<Self, CompressError> {
        check_rows(n_rows)?;
        let chunk_rows = (chunk_values / codec.width()).max(1);
        let layout = Self {
            n_rows,
            width: codec.width(),
            row_bytes: codec.row_bytes(),
            chunk_rows,
            spec: codec.spec().to_string(),
            parameters: codec.parameters(),
        };
        if layout.header_bytes() > HEADER_BYTES_MAX {
            return Err(CompressError::invalid(format!(
                "codec {} has {} bytes of parameters for {} features; a store holds at most {HEADER_BYTES_MAX}",
                layout.spec,
                layout.parameters.len(),
                layout.width
            )));
        }
        Ok(layout)
    }

    /// Number of bytes before the table.
    pub fn header_bytes(&self) -> usize {
        (SPEC_OFFSET + self.spec.len() + self.parameters.len() + CRC_BYTES).next_multiple_of(ALIGNMENT)
    }

    /// Number of chunks.
    pub fn n_chunks(&self) -> usize {
        self.n_rows.div_ceil(self.chunk_rows)
    }

    /// Number of bytes of the checksums of chunks and the padding after them.
    pub fn table_bytes(&self) -> usize {
        (size_of::<u32>() * self.n_chunks()).next_multiple_of(ALIGNMENT)
    }

    /// Offset of the checksum of a chunk.
    pub fn table_offset(&self, chunk: usize) -> u64 {
        (self.header_bytes() + size_of::<u32>() * chunk) as u64
    }

    /// Offset of the code of a row.
    pub fn code_offset(&self, row: usize) -> u64 {
        (self.header_bytes() + self.table_bytes()) as u64 + row as u64 * self.row_bytes as u64
    }

    /// Size of the complete store in bytes.
    pub fn file_bytes(&self) -> u64 {
        self.code_offset(self.n_rows)
    }

    /// Rows of a chunk.
    pub fn rows_of(&self, chunk: usize) -> std::ops::Range<usize> {
        let first = chunk * self.chunk_rows;
        first..(first + self.chunk_rows).min(self.n_rows)
    }

    /// Header of a store that is being written from the source of this fingerprint.
    pub fn unfinished_header(&self, fingerprint: u64) -> Vec<u8> {
        self.header(UNFINISHED, fingerprint, 0)
    }

    /// Header of a complete store.
    pub fn finished_header(&self, table_crc: u32) -> Vec<u8> {
        self.header(MAGIC, 0, table_crc)
    }

    fn header(&self, magic: &[u8; 8], fingerprint: u64, table_crc: u32) -> Vec<u8> {
        let mut header = vec![0; self.header_bytes()];
        let mut put = |offset: usize, bytes: &[u8]| header[offset..offset + bytes.len()].copy_from_slice(bytes);
        let word = |n: usize| (n as u32).to_le_bytes();
        put(0, magic);
        put(VERSION_OFFSET, &VERSION.to_le_bytes());
        put(HEADER_BYTES_OFFSET, &word(self.header_bytes()));
        put(N_ROWS_OFFSET, &(self.n_rows as u64).to_le_bytes());
        put(FINGERPRINT_OFFSET, &fingerprint.to_le_bytes());
        put(WIDTH_OFFSET, &word(self.width));
        put(ROW_BYTES_OFFSET, &word(self.row_bytes));
        put(CHUNK_ROWS_OFFSET, &word(self.chunk_rows));
        put(TABLE_CRC_OFFSET, &table_crc.to_le_bytes());
        put(SPEC_BYTES_OFFSET, &word(self.spec.len()));
        put(PARAMETER_BYTES_OFFSET, &word(self.parameters.len()));
        put(SPEC_OFFSET, self.spec.as_bytes());
        put(SPEC_OFFSET + self.spec.len(), &self.parameters);
        let end = header.len() - CRC_BYTES;
        let crc = crc32fast::hash(&header[..end]);
        header[end..].copy_from_slice(&crc.to_le_bytes());
        header
    }

    /// Reads and checks the header of a complete store, the table and the size of the file; the codes are not read.
    ///
    /// # Errors
    /// On anything but a complete store of this version.
    pub fn parse(file: &[u8]) -> Result<(Self, Box<dyn FeatureCodec>), CompressError> {
        let header = header_of(file)?;
        let number = |offset: usize| u32_at(header, offset) as usize;
        let (spec_bytes, parameter_bytes) = (number(SPEC_BYTES_OFFSET), number(PARAMETER_BYTES_OFFSET));
        let spec_end = SPEC_OFFSET.saturating_add(spec_bytes);
        let parameters_end = spec_end.saturating_add(parameter_bytes);
        let (spec, parameters) = match (header.get(SPEC_OFFSET..spec_end), header.get(spec_end..parameters_end)) {
            (Some(spec), Some(parameters)) => (spec, parameters),
            _ => return Err(CompressError::corrupt("the codec's parameters do not fit the header")),
        };
        let spec = std::str::from_utf8(spec).map_err(|_| CompressError::corrupt("the codec's name is no text"))?;
        let codec = from_parameters(spec.parse::<CodecSpec>()?, number(WIDTH_OFFSET), parameters)?;

        let n_rows = u64_at(header, N_ROWS_OFFSET);
        let layout = Self {
            n_rows: usize::try_from(n_rows).unwrap_or(usize::MAX),
            width: number(WIDTH_OFFSET),
            row_bytes: number(ROW_BYTES_OFFSET),
            chunk_rows: number(CHUNK_ROWS_OFFSET),
            spec: spec.to_owned(),
            parameters: parameters.to_vec(),
        };
        check_rows(layout.n_rows)?;
        if layout.row_bytes != codec.row_bytes() || layout.chunk_rows == 0 || layout.header_bytes() != header.len() {
            return Err(CompressError::corrupt("the header's sizes do not agree with each other"));
        }
        layout.check_file(file, u32_at(header, TABLE_CRC_OFFSET))?;
        Ok((layout, codec))
    }

    /// Checks the size of the file and the checksum of the table.
    fn check_file(&self, file: &[u8], table_crc: u32) -> Result<(), CompressError> {
        if file.len() as u64 != self.file_bytes() {
            return Err(CompressError::corrupt(format!(
                "{} rows of {} bytes make a file of {} bytes, found {}",
                self.n_rows,
                self.row_bytes,
                self.file_bytes(),
                file.len()
            )));
        }
        let table = &file[self.header_bytes()..self.header_bytes() + self.table_bytes()];
        if crc32fast::hash(table) != table_crc {
            return Err(CompressError::corrupt("the table of checksums does not have its own checksum"));
        }
        Ok(())
    }
}

/// Header of a complete store, after a check of its checksum.
fn header_of(file: &[u8]) -> Result<&[u8], CompressError> {
    if file.starts_with(UNFINISHED) {
        let message = "a store that is not complete: the run that wrote it was interrupted; run it again to go on";
        return Err(CompressError::invalid(message));
    }
    if !file.starts_with(MAGIC) {
        let start = file[..file.len().min(MAGIC.len())].escape_ascii();
        return Err(CompressError::corrupt(format!("not a store of compressed features: it starts with \"{start}\"")));
    }
    if file.len() < SPEC_OFFSET {
        return Err(CompressError::corrupt(format!("{} bytes; a header alone has more", file.len())));
    }
    let version = u32_at(file, VERSION_OFFSET);
    if version != VERSION {
        return Err(CompressError::invalid(format!(
            "version {version} of the format; this girih reads version {VERSION}: encode the features again with it"
        )));
    }
    let header_bytes = u32_at(file, HEADER_BYTES_OFFSET) as usize;
    let header = file.get(..header_bytes).filter(|_| header_bytes >= SPEC_OFFSET + CRC_BYTES);
    let header = header.ok_or_else(|| {
        CompressError::corrupt(format!("a header of {header_bytes} bytes in a file of {}", file.len()))
    })?;
    let end = header.len() - CRC_BYTES;
    if crc32fast::hash(&header[..end]) != u32_at(header, end) {
        return Err(CompressError::corrupt("the header does not have its checksum"));
    }
    Ok(header)
}

fn check_rows(n_rows: usize) -> Result<(), CompressError> {
    if n_rows > MAX_NODES {
        return Err(CompressError::invalid(format!("{n_rows} rows; there are at most {MAX_NODES} nodes")));
    }
    Ok(())
}

/// Little-endian number at `offset`, which is inside `bytes`.
pub(super) fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    let b = &bytes[offset..offset + 4];
    u32::from_le_bytes([b[0], b[1], b[2], b[3]])
}

fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    u64::from(u32_at(bytes, offset)) | u64::from(u32_at(bytes, offset + 4)) << 32
}
