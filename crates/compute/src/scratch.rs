//! Sizes by which a CUDA device allocates memory, for its operations and for plans of their memory.

/// Entries of a segment of a hub. A row with more entries is a hub.
pub const SEGMENT: usize = 1024;
/// Columns from which rows are padded, and the multiple to which they are.
pub const WIDE: usize = 8;
/// Fewest entries that are worth the search for blocks for tensor cores.
pub const TILED_ENTRIES_MIN: usize = 1 << 20;
/// Most bytes of counts of entries during that search.
pub const COUNTS_BYTES_MAX: usize = 1 << 30;
/// Elements that are laid out or rounded on the device at a time, so that an upload does not hold a matrix twice.
pub const UPLOAD_PIECE: usize = 1 << 26;
/// Elements that are ranked at a time, unless a single row has more; a key takes four bytes.
pub const RANKED: usize = 1 << 26;
/// Elements of the gates of a wave of an LSTM: 512 MiB, unless the inputs are larger or a single row has more.
pub const GATES: usize = 1 << 27;

/// Elements from row to row of a matrix of `cols` columns. Rows are aligned for the widest loads and for tensor
/// cores, except in the narrowest matrices.
#[must_use]
pub fn pitch(cols: usize) -> usize {
    if cols < WIDE { cols } else { cols.next_multiple_of(WIDE) }
}
