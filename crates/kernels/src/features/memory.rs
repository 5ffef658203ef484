//! Memory and format of the rows of a feature store.

use cudarc::driver::CudaSlice;
use girih_compute::Dtype;

use super::cache::DeviceCache;
use super::code_book::CodeBook;
use super::group::SharedPinned;
use super::pinned::Pinned;
use super::row_sources::Dense;
use super::staged::StagedGather;
use super::uva::UvaTable;

/// Memory of the rows.
pub(crate) enum Memory {
    /// On GPUs, and in pinned host memory.
    Placed(UvaTable),
    /// Gathered by the host, and on GPUs, if any are there.
    Staged(StagedGather, Option<DeviceCache>),
    /// Gathered by the hosts of all ranks, which take part together, and on GPUs ([`split_rows`](super::split_rows)).
    Split(StagedGather, Option<DeviceCache>),
    /// All in host memory, written by this device.
    Written(Pinned),
    /// All in host memory, written by the devices of all ranks of the process.
    WrittenTogether(SharedPinned),
    /// All on the device, contiguous.
    Device(CudaSlice<u8>),
}

/// Format of the rows.
pub(crate) enum Form {
    /// Rows in the format of device matrices.
    Dense(Dense),
    /// Codes of a code book.
    Codes(CodeBook),
}

impl Memory {
    /// Whether no row is on a host.
    pub(super) fn is_on_devices(&self) -> bool {
        match self {
            Self::Placed(placed) => placed.are_on_gpus(),
            Self::Staged(..) | Self::Split(..) => self.brought().is_none(),
            Self::Written(_) | Self::WrittenTogether(_) => false,
            Self::Device(_) => true,
        }
    }

    /// Gatherer of rows; `None` if GPUs hold all of them.
    pub(super) fn brought(&self) -> Option<&StagedGather> {
        match self {
            Self::Staged(staged, on_gpus) | Self::Split(staged, on_gpus)
                if on_gpus.as_ref().is_none_or(|on_gpus| !on_gpus.are_all()) =>
            {
                Some(staged)
            }
            _ => None,
        }
    }

    /// Whether rows are read in place on the host.
    pub(super) fn is_read_on_host(&self) -> bool {
        match self {
            Self::Placed(placed) => !placed.are_on_gpus(),
            Self::Written(_) | Self::WrittenTogether(_) => true,
            Self::Staged(..) | Self::Split(..) | Self::Device(_) => false,
        }
    }

    /// Whether rows are read on GPUs.
    pub(super) fn is_read_on_gpus(&self) -> bool {
        self.on_gpus().is_some() || matches!(self, Self::Device(_))
    }

    /// Rows on GPUs, if hosts have other rows.
    pub(super) fn gpus_beside_host(&self) -> Option<&DeviceCache> {
        self.on_gpus().filter(|on_gpus| !on_gpus.are_all())
    }

    /// Rows on GPUs, if GPUs hold any.
    fn on_gpus(&self) -> Option<&DeviceCache> {
        match self {
            Self::Placed(placed) => placed.on_gpus(),
            Self::Staged(_, on_gpus) | Self::Split(_, on_gpus) => on_gpus.as_ref(),
            Self::Written(_) | Self::WrittenTogether(_) | Self::Device(_) => None,
        }
    }
}

impl Form {
    /// Columns of the result, and its element type.
    pub(super) fn result(&self) -> (usize, Dtype) {
        match self {
            Self::Dense(form) => (form.cols, form.dtype),
            Self::Codes(book) => (book.width, book.dtype),
        }
    }
}
