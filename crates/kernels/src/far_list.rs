//! [`FarList`]: which rows a batch has to get from the host: those that neither a card nor the batch before has.
//!
//! Batches have rows in common, the more of them the more of the graph each reads, and the rows of a batch are still on
//! the card when those of the next are asked for. What both have is copied there, which takes little beside what a bus
//! takes for it, so that only the others travel.
//!
//! ```text
//! ids of the batch before ──▶ a place for each node ─┐
//! ids ───────────────────────────────────────────────┴─▶ far: ids and places;  kept: an address for each of the others
//! ```

use std::sync::Arc;

use cudarc::driver::{CudaFunction, CudaSlice, CudaStream, DeviceRepr, DriverError, PushKernelArg};
use girih_compute::{ComputeError, Dtype};

use crate::Cuda;
use crate::compile::Source;
use crate::device::threads_for;
use crate::row_launch::{Names, RowsArgument};
use crate::staged_rows::Wanted;

/// See the module.
pub(crate) struct FarList {
    list_far: CudaFunction,
    before: Option<Places>,
}

/// Where the batch before has its rows, while a list is made.
struct Places {
    note_places: CudaFunction,
    /// One for each row that there is, counted from one; zero: nowhere, as for all of them between lists.
    places: CudaSlice<u32>,
}

/// Rows of a batch, on the device.
#[derive(Clone, Copy)]
pub(crate) struct RowsOfBatch {
    /// The address of their ids, and how many they are.
    pub(crate) ids: (u64, usize),
    /// That of the rows, one after the other.
    pub(crate) first: u64,
    /// Bytes of each.
    pub(crate) row_bytes: usize,
}

/// What a [`FarList`] writes of a batch.
pub(crate) struct Lists {
    /// How many are far, and their ids.
    far: CudaSlice<u32>,
    /// For whose sake.
    places: CudaSlice<u32>,
    /// For each row where the batch before has it, or zero.
    kept: CudaSlice<u64>,
}

/// `RowsBefore` of `kernels/rows.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
struct BeforeArgument {
    places: u64,
    first: u64,
    row_bytes: u64,
}

// SAFETY: plain words in the order and layout of the kernels' struct.
unsafe impl DeviceRepr for BeforeArgument {}

impl FarList {
    /// Of `n_rows` rows, with regard to a batch before, if `has_before`.
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

    /// Whether lists leave out what the batch before has.
    pub(crate) fn has_before(&self) -> bool {
        self.before.is_some()
    }

    /// Puts on a stream what lists the rows of some ids, so many at an address; those are on cards that a list at
    /// another address says, or none if that is zero.
    ///
    /// # Safety
    /// Ids have to be rows, and lists to have room for as many. Lists of one `FarList` are put on one stream. The rows
    /// before stay until what is kept of them was copied, and their ids until the stream has come so far.
    pub(crate) unsafe fn put(
        &self,
        cuda: &Cuda,
        stream: &Arc<CudaStream>,
        (ids, n): (u64, usize),
        (on_cards, before): (u64, Option<RowsOfBatch>),
        lists: &mut Lists,
    ) -> Result<(), DriverError> {
        let before = self.before.as_ref().zip(before);
        let nothing = BeforeArgument { places: 0, first: 0, row_bytes: 0 };
        let argument = before.as_ref().map_or(nothing, |(places, rows)| BeforeArgument {
            places: cuda.pointer(Some(&places.places)),
            first: rows.first,
            row_bytes: rows.row_bytes as u64,
        });
        if let Some((places, rows)) = &before {
            // SAFETY: ids are rows, each of which has a place.
            unsafe { places.note(stream, rows.ids, argument.places, true) }?;
        }
        stream.memset_zeros(&mut lists.far.slice_mut(..1))?;
        let n_ids = n as u32;
        let mut launch = stream.launch_builder(&self.list_far);
        launch.arg(&on_cards).arg(&argument).arg(&ids).arg(&n_ids);
        launch.arg(&mut lists.far).arg(&mut lists.places).arg(&mut lists.kept);
        // SAFETY: ids are rows, each of which has an address if there is a list of them, and a place; there is room for
        // each of them, and for their number before them.
        unsafe { launch.launch(threads_for(n)) }?;
        if let Some((places, rows)) = &before {
            // SAFETY: as above.
            unsafe { places.note(stream, rows.ids, argument.places, false) }?;
        }
        Ok(())
    }
}

impl Places {
    /// Notes places, or forgets them.
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
        // SAFETY: the caller's.
        unsafe { launch.launch(threads_for(n)) }.map(|_| ())
    }
}

impl Lists {
    /// For so many rows at most.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub(crate) fn new(cuda: &Cuda, operation: &'static str, n: usize) -> Result<Self, ComputeError> {
        let list = |n| cuda.scratch(operation, n);
        Ok(Self { far: list(n + 1)?, places: list(n)?, kept: cuda.scratch(operation, n)? })
    }

    /// For how many rows there is room.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Those that are far, as the host asks for them: of `n` at most.
    pub(crate) fn wanted(&self, cuda: &Cuda, n: usize) -> Wanted {
        Wanted::Counted(cuda.pointer(Some(&self.far)), n)
    }

    /// Those that are far, as a kernel reads them.
    pub(crate) fn far(&self, cuda: &Cuda) -> Names {
        let counted = cuda.pointer(Some(&self.far));
        Names::of_at(counted + size_of::<u32>() as u64, cuda.pointer(Some(&self.places))).counted_at(counted)
    }

    /// Where those belong that are far, if they follow each other.
    pub(crate) fn places(&self, cuda: &Cuda) -> Names {
        Names::at(cuda.pointer(Some(&self.places)))
    }

    /// Those that the batch before has, of so many bytes each; the others are nowhere.
    pub(crate) fn kept(&self, cuda: &Cuda, row_bytes: usize) -> RowsArgument {
        RowsArgument::listed(cuda.pointer(Some(&self.kept)), row_bytes as u64)
    }
}
