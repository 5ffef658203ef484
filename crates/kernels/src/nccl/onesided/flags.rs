//! [`Flags`]: words that streams of ranks set and wait for, and [`FlagWork`], the operations that do so.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use cudarc::driver::result::{free_host, malloc_host};
use cudarc::driver::sys::{self, CUdeviceptr, CUstreamBatchMemOpParams, CUstreamBatchMemOpType};
use cudarc::driver::{CudaContext, CudaStream, DriverError};
use girih_comm::{CommError, Parcel, Payload, Transport, all_to_all};

use crate::nccl::schedule::Flag;

/// Value of a flag that is set.
const UP: u32 = 1;
/// Value of a flag that is cleared.
const DOWN: u32 = 0;

/// Consecutive flag operations of a stream.
pub(super) struct FlagWork<'g> {
    flags: &'g Flags,
    /// Number of this rank among all.
    rank: usize,
    /// Numbers of the group's ranks among all.
    members: &'g [usize],
    work: Vec<CUstreamBatchMemOpParams>,
}

impl<'g> FlagWork<'g> {
    /// No operations yet.
    pub(super) fn new(flags: &'g Flags, rank: usize, members: &'g [usize]) -> Self {
        Self { flags, rank, members, work: Vec::new() }
    }

    /// Sets a flag that another rank waits for.
    pub(super) fn set(&mut self, other: usize, flag: Flag) {
        self.work.push(write(self.flags.address(self.members[other], self.rank, flag), UP));
    }

    /// Waits for a flag, and clears it, so that it can be set again.
    pub(super) fn take_down(&mut self, other: usize, flag: Flag) {
        let address = self.flags.address(self.rank, self.members[other], flag);
        self.work.extend([wait(address, UP), write(address, DOWN)]);
    }

    /// Puts the collected operations, in this order, on a stream whose context is bound.
    pub(super) fn put_on(&mut self, stream: &CudaStream) -> Result<(), DriverError> {
        /// Most operations of a call that the driver accepts.
        const MOST: usize = 256;
        for some in self.work.chunks_mut(MOST) {
            // SAFETY: the stream is alive; the flags are words that live until the streams of all ranks are idle
            // (`Drop` of `OneSided`). The parameters are copied.
            let put =
                unsafe { sys::cuStreamBatchMemOp_v2(stream.cu_stream(), some.len() as u32, some.as_mut_ptr(), 0) };
            put.result()?;
        }
        self.work.clear();
        Ok(())
    }
}

/// Stream operation that writes a word, after all earlier reads and writes of the stream.
fn write(address: CUdeviceptr, value: u32) -> CUstreamBatchMemOpParams {
    let mut params = CUstreamBatchMemOpParams { pad: [0; 6] };
    params.writeValue = sys::CUstreamBatchMemOpParams_union_CUstreamMemOpWriteValueParams_st {
        operation: CUstreamBatchMemOpType::CU_STREAM_MEM_OP_WRITE_VALUE_32,
        address,
        __bindgen_anon_1: sys::CUstreamBatchMemOpParams_union_CUstreamMemOpWriteValueParams_st__bindgen_ty_1 { value },
        flags: sys::CUstreamWriteValue_flags_enum::CU_STREAM_WRITE_VALUE_DEFAULT as u32,
        alias: 0,
    };
    params
}

/// Stream operation that waits until a word has a value.
fn wait(address: CUdeviceptr, value: u32) -> CUstreamBatchMemOpParams {
    let mut params = CUstreamBatchMemOpParams { pad: [0; 6] };
    params.waitValue = sys::CUstreamBatchMemOpParams_union_CUstreamMemOpWaitValueParams_st {
        operation: CUstreamBatchMemOpType::CU_STREAM_MEM_OP_WAIT_VALUE_32,
        address,
        __bindgen_anon_1: sys::CUstreamBatchMemOpParams_union_CUstreamMemOpWaitValueParams_st__bindgen_ty_1 { value },
        flags: sys::CUstreamWaitValue_flags_enum::CU_STREAM_WAIT_VALUE_EQ as u32,
        alias: 0,
    };
    params
}

/// Flags from all ranks to all ranks, in host memory that GPUs reach.
pub(super) struct Flags {
    words: *mut AtomicU32,
    n_ranks: usize,
    context: Arc<CudaContext>,
}

// SAFETY: the words are atomic, and freed by their last owner.
unsafe impl Send for Flags {}
// SAFETY: as above.
unsafe impl Sync for Flags {}

impl Flags {
    /// Flags per pair of ranks.
    const EACH: usize = 2;

    /// Flags that the first rank allocates for all. All ranks call this together and are threads of one process.
    pub(super) fn common<T: Transport>(
        transport: &T,
        operation: &'static str,
        context: &Arc<CudaContext>,
    ) -> Result<Arc<Self>, CommError> {
        let (rank, n_ranks) = (transport.rank(), transport.size());
        let mine = match rank {
            0 => {
                let made = Self::new(context, n_ranks);
                Some(Arc::new(made.map_err(|error| CommError::Library { operation, message: error.to_string() })?))
            }
            _ => None,
        };
        // If a rank fails now and does not take its pointer, the flags leak: a page.
        let for_rank = |to: usize| match &mine {
            Some(flags) if to != rank => (Arc::into_raw(Arc::clone(flags)) as usize).to_le_bytes().as_slice().into(),
            _ => Parcel::from([]),
        };
        let found = all_to_all(transport, operation, (0..n_ranks).map(for_rank).collect())?;
        if let Some(flags) = mine {
            return Ok(flags);
        }
        let address = Payload::new(&found[0], 0, operation).exactly::<u64>(1)?[0] as usize;
        // SAFETY: ranks are threads of one process, and the first made this pointer of an `Arc<Self>` for this rank,
        // which fetches it once.
        Ok(unsafe { Arc::from_raw(address as *const Self) })
    }

    /// Allocates flags, all cleared.
    fn new(context: &Arc<CudaContext>, n_ranks: usize) -> Result<Self, DriverError> {
        context.bind_to_thread()?;
        let n_bytes = Self::EACH * n_ranks * n_ranks * size_of::<AtomicU32>();
        // SAFETY: the memory is freed by `Drop`, and set before anybody reads it.
        let words = unsafe { malloc_host(n_bytes, sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP) }?;
        // SAFETY: as many bytes were allocated.
        unsafe { words.cast::<u8>().write_bytes(0, n_bytes) };
        Ok(Self { words: words.cast(), n_ranks, context: Arc::clone(context) })
    }

    /// Address of the flag that `setter` sets for `waiter`. Host memory has one address for the host and all GPUs.
    fn address(&self, waiter: usize, setter: usize, flag: Flag) -> CUdeviceptr {
        let at = Self::place(self.n_ranks, waiter, setter, flag);
        (self.words as usize + at * size_of::<AtomicU32>()) as CUdeviceptr
    }

    /// Index of a flag; the flags that a rank waits for are contiguous.
    fn place(n_ranks: usize, waiter: usize, setter: usize, flag: Flag) -> usize {
        Self::EACH * (waiter * n_ranks + setter) + usize::from(flag == Flag::Done)
    }

    /// Sets all flags that a rank waits for.
    pub(super) fn set_all(&self, waiter: usize) {
        let first = Self::place(self.n_ranks, waiter, 0, Flag::Ready);
        for at in first..first + Self::EACH * self.n_ranks {
            // SAFETY: the word was allocated, and lives.
            unsafe { &*self.words.add(at) }.store(UP, Ordering::Release);
        }
    }
}

impl Drop for Flags {
    fn drop(&mut self) {
        // After a failure of the device neither call can succeed, and a page is lost.
        let _ = self.context.bind_to_thread();
        // SAFETY: the memory is that of `new`, and the streams of all ranks are idle, or have kept the flags.
        let _ = unsafe { free_host(self.words.cast()) };
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_flag_has_a_word_of_its_own() {
        let n = 5;
        let mut places = HashSet::new();
        for (waiter, setter) in (0..n).flat_map(|waiter| (0..n).map(move |setter| (waiter, setter))) {
            let first = Flags::place(n, waiter, 0, Flag::Ready);
            for flag in [Flag::Ready, Flag::Done] {
                let place = Flags::place(n, waiter, setter, flag);
                assert!(places.insert(place));
                assert!((first..first + Flags::EACH * n).contains(&place), "a rank's own flags lie together");
            }
        }
        assert_eq!(places.len(), Flags::EACH * n * n);
        assert!(places.iter().all(|&place| place < Flags::EACH * n * n));
    }

    #[test]
    fn waits_and_writes_are_what_the_driver_expects() {
        // SAFETY: both were just written as the variant that is read.
        let (waits, writes) = unsafe { (wait(4096, UP).waitValue, write(8192, DOWN).writeValue) };
        assert_eq!(waits.operation, CUstreamBatchMemOpType::CU_STREAM_MEM_OP_WAIT_VALUE_32);
        assert_eq!(writes.operation, CUstreamBatchMemOpType::CU_STREAM_MEM_OP_WRITE_VALUE_32);
        assert_eq!((waits.address, waits.flags, waits.alias), (4096, 1, 0));
        assert_eq!((writes.address, writes.flags, writes.alias), (8192, 0, 0));
        // SAFETY: as above.
        assert_eq!(unsafe { (waits.__bindgen_anon_1.value, writes.__bindgen_anon_1.value) }, (UP, DOWN));
    }
}
