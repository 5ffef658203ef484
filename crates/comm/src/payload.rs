//! [`Payload`]: bytes of a message from another rank, read from the front.

use std::ops::Range;

use crate::CommError;

/// Bytes of a message from another rank, read from the front. A read never panics: it returns a value or an error
/// that names the rank. Memory is allocated for bytes that are present, never for a length read from them.
#[derive(Clone, Debug)]
pub struct Payload<'m> {
    rest: &'m [u8],
    rank: usize,
    operation: &'static str,
}

/// Number in a payload: little-endian, unaligned.
pub trait Number: Copy + 'static {
    /// Size in bytes.
    const BYTES: usize;

    /// Number with these bytes; zero unless there are [`BYTES`](Self::BYTES) of them.
    fn from_bytes(bytes: &[u8]) -> Self;
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Number for $number {
            const BYTES: usize = size_of::<Self>();

            fn from_bytes(bytes: &[u8]) -> Self {
                bytes.try_into().map_or(Self::default(), Self::from_le_bytes)
            }
        }
    )*};
}
numbers!(u8, u32, u64, i32, f32, f64);

impl<'m> Payload<'m> {
    /// Payload from global rank `rank` for `operation`.
    #[must_use]
    pub fn new(bytes: &'m [u8], rank: usize, operation: &'static str) -> Self {
        Self { rest: bytes, rank, operation }
    }

    /// Error that names the rank and the operation.
    #[must_use]
    pub fn malformed(&self, what: impl Into<String>) -> CommError {
        CommError::Malformed { rank: self.rank, operation: self.operation, what: what.into() }
    }

    /// Bytes that have not been read.
    #[must_use]
    pub fn remaining(&self) -> &'m [u8] {
        self.rest
    }

    /// Whether all bytes have been read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Reads the next `n` bytes.
    ///
    /// # Errors
    /// When there are fewer.
    pub fn bytes(&mut self, n: usize) -> Result<&'m [u8], CommError> {
        let (bytes, rest) = self.rest.split_at_checked(n).ok_or_else(|| self.short(n as u64))?;
        self.rest = rest;
        Ok(bytes)
    }

    /// Reads the next number.
    ///
    /// # Errors
    /// When there is none.
    pub fn number<T: Number>(&mut self) -> Result<T, CommError> {
        self.bytes(T::BYTES).map(T::from_bytes)
    }

    /// Reads the next number (u64) as an index into `n` items.
    ///
    /// # Errors
    /// When there is none, or it is `n` or more.
    pub fn index(&mut self, n: usize) -> Result<usize, CommError> {
        let index: u64 = self.number()?;
        let in_range = usize::try_from(index).ok().filter(|&index| index < n);
        in_range.ok_or_else(|| self.malformed(format!("{index} where there are {n}")))
    }

    /// Reads the next `n` numbers.
    ///
    /// # Errors
    /// When there are fewer.
    pub fn numbers<T: Number>(
        &mut self,
        n: usize,
    ) -> Result<impl ExactSizeIterator<Item = T> + Clone + use<'m, T>, CommError> {
        let n_bytes = n.checked_mul(T::BYTES).ok_or_else(|| self.short(u64::MAX))?;
        Ok(self.bytes(n_bytes)?.chunks_exact(T::BYTES).map(T::from_bytes))
    }

    /// Reads all remaining numbers.
    ///
    /// # Errors
    /// When the length is not a multiple of the size of a number.
    pub fn rest<T: Number>(mut self) -> Result<Vec<T>, CommError> {
        let (n, more) = (self.rest.len() / T::BYTES, self.rest.len() % T::BYTES);
        if more > 0 {
            let (found, size) = (self.rest.len(), T::BYTES);
            return Err(self.malformed(format!("{found} bytes are no whole numbers of {size}")));
        }
        Ok(self.numbers(n)?.collect())
    }

    /// Reads exactly `n` remaining numbers.
    ///
    /// # Errors
    /// When there is another number of bytes.
    pub fn exactly<T: Number>(mut self, n: usize) -> Result<Vec<T>, CommError> {
        let numbers = self.numbers(n)?.collect();
        self.end()?;
        Ok(numbers)
    }

    /// Reads exactly `n` remaining bytes.
    ///
    /// # Errors
    /// When there is another number of bytes.
    pub fn exactly_bytes(mut self, n: usize) -> Result<&'m [u8], CommError> {
        let bytes = self.bytes(n)?;
        self.end()?;
        Ok(bytes)
    }

    /// Reads all remaining ids, each of which must be in `range`.
    ///
    /// # Errors
    /// When the length is not a multiple of the size of an id; at the first id out of range.
    pub fn ids(self, range: &Range<u32>) -> Result<Vec<u32>, CommError> {
        let ids = self.clone().rest::<u32>()?;
        match ids.iter().find(|id| !range.contains(id)) {
            None => Ok(ids),
            Some(id) => Err(self.malformed(format!("id {id} is out of range, {} to {}", range.start, range.end))),
        }
    }

    /// Checks that no bytes remain.
    ///
    /// # Errors
    /// When there are more bytes.
    pub fn end(&self) -> Result<(), CommError> {
        match self.rest.len() {
            0 => Ok(()),
            n => Err(self.malformed(format!("{n} bytes too many"))),
        }
    }

    fn short(&self, wanted: u64) -> CommError {
        self.malformed(format!("{} bytes are left where {wanted} are expected", self.rest.len()))
    }
}
