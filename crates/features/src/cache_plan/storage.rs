//! [`Storage`]: memory that rows take besides their own bytes.

/// Bytes of an offset. Each adjacency row stores one, and a read takes two.
pub(crate) const OFFSET_BYTES: u64 = 8;
/// Bytes of a position in a list.
const POSITION_BYTES: u64 = 4;
/// Bytes of a row's address.
const ADDRESS_BYTES: u64 = 8;

/// Storage of rows that are in several tiers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Storage {
    /// Each row in one tier only, with a list of positions; each adjacency row has its offset next to it. Feature
    /// rows that host memory does not hold are on disk.
    #[default]
    Once,
    /// As training stores them: all rows in host memory, and copies on GPUs, each of which has all offsets and a list
    /// of addresses. An adjacency that every GPU holds as a whole is on GPUs only, without a list. There is no disk.
    Copied,
}

impl Storage {
    /// Bytes of the list of locations for `n_rows` rows.
    pub(crate) fn list_bytes(self, n_rows: usize) -> u64 {
        let of_row = match self {
            Self::Once => POSITION_BYTES,
            Self::Copied => ADDRESS_BYTES,
        };
        of_row * n_rows as u64
    }
}
