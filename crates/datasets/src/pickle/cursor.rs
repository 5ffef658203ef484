//! [`Cursor`]: the instructions of a pickle and their arguments, byte by byte.

use crate::DatasetError;

/// Position in the bytes of a pickle.
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Cursor<'a> {
    /// Cursor at byte `position`, at most the number of bytes.
    pub(super) fn new(bytes: &'a [u8], position: usize) -> Self {
        Self { bytes, position }
    }

    /// Offset of the next byte.
    pub(super) fn position(&self) -> usize {
        self.position
    }

    /// The next `len` bytes.
    pub(super) fn take(&mut self, len: usize) -> Result<&'a [u8], DatasetError> {
        let rest = &self.bytes[self.position..];
        if len > rest.len() {
            return Err(DatasetError::corrupt(format!(
                "byte {}: the pickle needs {len} more bytes here, but the file ends after {}",
                self.position,
                rest.len()
            )));
        }
        self.position += len;
        Ok(&rest[..len])
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DatasetError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub(super) fn u8(&mut self) -> Result<u8, DatasetError> {
        Ok(self.array::<1>()?[0])
    }

    pub(super) fn u16(&mut self) -> Result<u16, DatasetError> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, DatasetError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn i32(&mut self) -> Result<i32, DatasetError> {
        self.array().map(i32::from_le_bytes)
    }

    /// Length of eight bytes; [`Cursor::take`] refuses one beyond the end of the file.
    pub(super) fn length64(&mut self) -> Result<usize, DatasetError> {
        let length = self.array().map(u64::from_le_bytes)?;
        Ok(usize::try_from(length).unwrap_or(usize::MAX))
    }

    /// The bytes up to the next line feed, which is skipped.
    pub(super) fn line(&mut self) -> Result<&'a [u8], DatasetError> {
        let rest = &self.bytes[self.position..];
        let Some(len) = rest.iter().position(|&b| b == b'\n') else {
            return Err(DatasetError::corrupt(format!("byte {}: a line of the pickle does not end", self.position)));
        };
        self.position += len + 1;
        Ok(&rest[..len])
    }

    /// Line of text that is a name or a number.
    pub(super) fn text_line(&mut self) -> Result<&'a str, DatasetError> {
        let start = self.position;
        std::str::from_utf8(self.line()?)
            .map_err(|_| DatasetError::corrupt(format!("byte {start}: a name in the pickle is not text")))
    }
}
