//! [`MissKernels`]: the rows of a batch that the host has to send, because neither a GPU nor the previous batch has them.
//!
//! Consecutive batches share rows, and share more of them the more of the graph each batch reads. The rows of a batch
//! are still on the GPU when the next batch asks for its own. Shared rows are copied there, which is cheap compared
//! with the bus, so that only the others travel.
//!
//! ```text
//! ids of the previous batch ──▶ a position for each node ─┐
//! ids ────────────────────────────────────────────────────┴─▶ far: ids and positions;  kept: addresses of the others
//! ```

use std::sync::Arc;

use cudarc::driver::{CudaFunction, CudaStream, DriverError, PushKernelArg};
use girih_compute::{ComputeError, Dtype};

use super::request::{RowsOfBatch, Wanted, address};
use crate::Cuda;
use crate::abi::{BeforeArgument, RowSource};
use crate::buffer::Buffer;
use crate::compile::Source;
use crate::device::threads_for;

/// Kernels that list the missing rows of a batch; see the module.
pub(crate) struct MissKernels {
    list_far: CudaFunction,
    before: Option<Places>,
}

/// Positions of rows in the previous batch, while a list is made.
struct Places {
    note_places: CudaFunction,
    /// Position in the previous batch for each row of the table, counted from one; zero for none. All words are zero
    /// between lists.
    places: Buffer<u32>,
}

/// Output of a [`MissKernels`] for one batch, on the device.
pub(crate) struct MissList {
    /// Number of missing rows, then their ids.
    far: Buffer<u32>,
    /// Output row of each missing id.
    places: Buffer<u32>,
    /// Address of each row in the previous batch; zero if that batch does not have it.
    kept: Buffer<u64>,
}

impl MissKernels {
    /// Creates the kernels for a table of `n_rows` rows; with `has_before`, rows of the previous batch are reused.
    ///
    /// # Errors
    /// When the device's memory does not suffice, or kernels do not compile.
    pub(crate) fn new(
        cuda: &Cuda,
        operation: &'static str,
        (n_rows, has_before): (usize, bool),
    ) -> Result<Self, ComputeError> {
        let types = [("X", Dtype::F32), ("Y", Dtype::F32)];
        let kernel = |name| cuda.kernel(operation, Source::ROWS, name, &types);
        let places = || {
            let mut places = cuda.scratch(operation, n_rows)?;
            cuda.device.stream.memset_zeros(&mut places).map_err(Cuda::failed(operation))?;
            Ok::<_, ComputeError>(Places { note_places: kernel("note_places")?, places })
        };
        Ok(Self { list_far: kernel("list_far")?, before: has_before.then(places).transpose()? })
    }

    /// Whether lists leave out rows that the previous batch has.
    pub(crate) fn has_before(&self) -> bool {
        self.before.is_some()
    }

    /// Launches the listing of missing rows for `n` ids at an address. `on_gpus` is the address of the list of rows
    /// on GPUs; zero means that no row is on a GPU.
    ///
    /// # Safety
    /// Ids have to be rows, and lists to have space for `n` of them. All lists of one `MissKernels` are put on one
    /// stream. The previous rows stay until the shared ones were copied, and their ids until the stream has done this
    /// work.
    pub(crate) unsafe fn put(
        &self,
        cuda: &Cuda,
        stream: &Arc<CudaStream>,
        (ids, n): (u64, usize),
        (on_gpus, before): (u64, Option<RowsOfBatch>),
        lists: &mut MissList,
    ) -> Result<(), DriverError> {
        let before = self.before.as_ref().zip(before);
        let nothing = BeforeArgument { places: 0, first: 0, row_bytes: 0 };
        let argument = before.as_ref().map_or(nothing, |(places, rows)| BeforeArgument {
            places: cuda.pointer(Some(&places.places)),
            first: rows.first,
            row_bytes: rows.row_bytes as u64,
        });
        if let Some((places, rows)) = &before {
            // SAFETY: ids are rows, each of which has a position.
            unsafe { places.note(stream, rows.ids, argument.places, true) }?;
        }
        stream.memset_zeros(&mut lists.far.slice_mut(..1))?;
        let n_ids = n as u32;
        let mut launch = stream.launch_builder(&self.list_far);
        launch.arg(&on_gpus).arg(&argument).arg(&ids).arg(&n_ids);
        launch.arg(&mut lists.far).arg(&mut lists.places).arg(&mut lists.kept);
        // SAFETY: ids are rows. Each has a position, and an address if there is a list of them. The lists have space
        // for each id, and for the count before them.
        unsafe { launch.launch(threads_for(n)) }?;
        if let Some((places, rows)) = &before {
            // SAFETY: as above.
            unsafe { places.note(stream, rows.ids, argument.places, false) }?;
        }
        Ok(())
    }
}

impl Places {
    /// Notes positions, or clears them.
    ///
    /// # Safety
    /// Ids have to be rows, and `places` the address of as many words as there are rows.
    unsafe fn note(
        &self,
        stream: &CudaStream,
        (ids, n): (u64, usize),
        places: u64,
        are_noted: bool,
    ) -> Result<(), DriverError> {
        let (n_ids, are_noted) = (n as u32, u32::from(are_noted));
        let mut launch = stream.launch_builder(&self.note_places);
        launch.arg(&ids).arg(&n_ids).arg(&are_noted).arg(&places);
        // SAFETY: the caller vouches.
        unsafe { launch.launch(threads_for(n)) }.map(drop)
    }
}

impl MissList {
    /// Allocates lists for at most `n` rows.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub(crate) fn new(cuda: &Cuda, operation: &'static str, n: usize) -> Result<Self, ComputeError> {
        let list = |n| cuda.scratch(operation, n);
        Ok(Self { far: list(n + 1)?, places: list(n)?, kept: cuda.scratch(operation, n)? })
    }

    /// Capacity of the lists, in rows.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Missing rows as a request: at most `n`, counted on the device.
    pub(super) fn wanted(&self, n: usize) -> Wanted {
        Wanted::Counted(address(&self.far), address(&self.places), n)
    }

    /// Source addresses of the rows that the previous batch has; the others have none.
    pub(super) fn kept(&self, row_bytes: usize) -> RowSource {
        RowSource::listed(address(&self.kept), row_bytes as u64)
    }
}
