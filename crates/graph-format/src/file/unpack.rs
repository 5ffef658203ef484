//! Unpacking of packed files within one memory budget, which is charged as bytes arrive.

use std::io::Read;

use crate::FormatError;

/// Number of bytes that a reader allocates on the strength of a stated size alone. Beyond it, memory doubles as bytes
/// arrive.
const TRUSTED: usize = 1 << 20;

/// Number of bytes to which a packed file may still unpack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    left: u64,
    total: u64,
}

impl Budget {
    /// Half of the free memory: the data read from the bytes takes as much again.
    pub(crate) fn of_free_memory() -> Self {
        Self::new(girih_machine::memory::free_bytes().map_or(u64::MAX, |free| free / 2))
    }

    pub(crate) fn new(total: u64) -> Self {
        Self { left: total, total }
    }

    /// Charges bytes that are going to be unpacked; `remedy` tells the user how to avoid it.
    ///
    /// # Errors
    /// When the remaining budget is smaller.
    pub(crate) fn take(&mut self, bytes: u64, remedy: &str) -> Result<(), FormatError> {
        self.left = self.left.checked_sub(bytes).ok_or_else(|| {
            FormatError::invalid(format!(
                "it unpacks to more than {} bytes, half of the memory that is free; {remedy}",
                self.total
            ))
        })?;
        Ok(())
    }

    /// Reads all bytes of a stream of unknown length.
    ///
    /// # Errors
    /// When the stream exceeds the remaining budget, or is damaged.
    pub(crate) fn read_all(&mut self, packed: impl Read, remedy: &str) -> Result<Vec<u8>, FormatError> {
        let mut bytes = Vec::new();
        // One byte above the budget, so that an excess is detected.
        let most = usize::try_from(self.left.saturating_add(1)).unwrap_or(usize::MAX);
        fill(packed, &mut bytes, most)?;
        self.take(bytes.len() as u64, remedy)?;
        Ok(bytes)
    }
}

/// Appends bytes of a stream until there are `most`, or it ends. Allocates at most twice the bytes that have arrived,
/// or [`TRUSTED`].
pub(crate) fn fill(mut packed: impl Read, bytes: &mut Vec<u8>, most: usize) -> Result<(), FormatError> {
    while bytes.len() < most {
        let some = bytes.len().max(TRUSTED).min(most - bytes.len());
        bytes.try_reserve_exact(some).map_err(|_| {
            FormatError::invalid(format!("it unpacks to more than {} bytes, more memory than there is", bytes.len()))
        })?;
        let read = packed.by_ref().take(some as u64).read_to_end(bytes);
        if read.map_err(|error| FormatError::corrupt(format!("it does not unpack: {error}")))? < some {
            return Ok(());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn streams_within_the_budget_are_read_whole_and_others_refused() {
        for (len, total, fits) in [(0, 0, true), (10, 10, true), (11, 10, false), (5 << 20, 5 << 20, true)] {
            let read = Budget::new(total).read_all(io::repeat(7).take(len), "do something");
            assert_eq!(read.as_ref().map_or(0, |bytes| bytes.len() as u64), if fits { len } else { 0 });
            if let Err(error) = read {
                let text = error.to_string();
                assert!(text.contains(&format!("more than {total} bytes")) && text.contains("do something"), "{text}");
            }
        }
    }

    #[test]
    fn one_budget_holds_for_all_that_is_taken() {
        let mut budget = Budget::new(10);
        assert!(budget.take(6, "").is_ok() && budget.take(4, "").is_ok() && budget.take(1, "").is_err());
    }

    #[test]
    fn memory_is_taken_as_bytes_come() {
        for come in [0, 10, TRUSTED, TRUSTED + 1, 5 * TRUSTED] {
            let mut bytes = Vec::new();
            fill(io::repeat(7).take(come as u64), &mut bytes, 1 << 40).unwrap();
            assert_eq!(bytes.len(), come);
            assert!(bytes.capacity() <= come + come.max(TRUSTED) + 64, "{} bytes for {come}", bytes.capacity());
        }
    }
}
