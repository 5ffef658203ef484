//! Arguments of kernels on rows of features, field by field as in `cuda/`.

use cudarc::driver::DeviceRepr;

/// Source of rows: `RowSource` of `cuda/rows.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct RowSource {
    pub(crate) first: u64,
    pub(crate) rows: u64,
    pub(crate) row_bytes: u64,
    pub(crate) only_on_gpus: u64,
}

// SAFETY: plain words in the order and layout of the kernels' struct.
unsafe impl DeviceRepr for RowSource {}

impl RowSource {
    /// Contiguous rows of `row_bytes` bytes from an address.
    pub(crate) fn at(first: u64, row_bytes: u64) -> Self {
        Self { first, rows: 0, row_bytes, only_on_gpus: 0 }
    }

    /// Rows of `row_bytes` bytes whose addresses are listed at address `rows`.
    pub(crate) fn listed(rows: u64, row_bytes: u64) -> Self {
        Self { first: 0, rows, row_bytes, only_on_gpus: 0 }
    }

    /// Restricts the source to rows that the list does not mark as [on the host](super::ON_HOST).
    pub(crate) fn only_on_gpus(self) -> Self {
        Self { only_on_gpus: 1, ..self }
    }
}

/// Selection of source and output rows: `GatherIndex` of `cuda/rows.cu`. All fields are device addresses; zero for
/// none.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct GatherIndex {
    pub(crate) ids: u64,
    pub(crate) places: u64,
    pub(crate) counted: u64,
}

// SAFETY: as above.
unsafe impl DeviceRepr for GatherIndex {}

impl GatherIndex {
    /// Selects the rows with the given ids; output rows are consecutive. Zero selects all rows.
    pub(crate) fn of(ids: u64) -> Self {
        Self { ids, places: 0, counted: 0 }
    }

    /// Selects all rows, with the given output positions; zero makes output rows consecutive.
    pub(crate) fn at(places: u64) -> Self {
        Self { ids: 0, places, counted: 0 }
    }

    /// Selects the rows with the given ids, with the given output positions.
    pub(crate) fn of_at(ids: u64, places: u64) -> Self {
        Self { ids, places, counted: 0 }
    }

    /// Limits the selection to the count in the word at an address.
    pub(crate) fn counted_at(self, counted: u64) -> Self {
        Self { counted, ..self }
    }

    /// Selects all rows, with consecutive output rows.
    pub(crate) fn all() -> Self {
        Self::of(0)
    }
}

/// `CodeBook` of `cuda/rows.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct BookArgument {
    pub(crate) values: u64,
    pub(crate) background: u64,
    pub(crate) width: u64,
    pub(crate) of_group: u32,
    pub(crate) padding: u32,
}

// SAFETY: plain words in the order and layout of the kernels' struct, including its trailing padding.
unsafe impl DeviceRepr for BookArgument {}

/// `RowsBefore` of `cuda/rows.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct BeforeArgument {
    pub(crate) places: u64,
    pub(crate) first: u64,
    pub(crate) row_bytes: u64,
}

// SAFETY: plain words in the order and layout of the kernels' struct.
unsafe impl DeviceRepr for BeforeArgument {}
