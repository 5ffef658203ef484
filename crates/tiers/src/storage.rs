//! [`Storage`]: what rows take beside their own bytes, where they lie.

/// Bytes of an offset, of which a row of the adjacency has one and reading it takes two.
pub(crate) const OFFSET_BYTES: u64 = 8;
/// Bytes of a position in a list.
const POSITION_BYTES: u64 = 4;
/// Bytes of the address of a row.
const ADDRESS_BYTES: u64 = 8;

/// How rows are stored that do not all lie in one place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Storage {
    /// Each where it lies and nowhere else, beside a list of positions; an offset goes with each row of the adjacency.
    /// What host memory does not hold of the features is on disk.
    #[default]
    Once,
    /// As training has them: all in host memory, and copies on cards, each of which has all offsets and a list of
    /// addresses. Rows of the adjacency that every card has are on cards alone, without a list; there is no disk.
    Copied,
}

impl Storage {
    /// Bytes of the list that says where so many rows lie.
    pub(crate) fn list_bytes(self, n_rows: usize) -> u64 {
        let of_row = match self {
            Self::Once => POSITION_BYTES,
            Self::Copied => ADDRESS_BYTES,
        };
        of_row * n_rows as u64
    }
}
