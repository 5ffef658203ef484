//! Stream-ordered memory pools: the default one of a device, and [`MemoryPool`], one of a guest's own. Devices without
//! pools allocate and free synchronously.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::result::{self, mem_pool};
use cudarc::driver::sys::{
    CUdevice, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationHandleType, CUmemAllocationType, CUmemLocation,
    CUmemLocationType, CUmemPool_attribute as Attribute, CUmemPoolProps, CUmemoryPool, cuMemAllocFromPoolAsync,
    cuMemPoolSetAccess,
};
use cudarc::driver::{CudaContext, CudaStream, DeviceRepr, DriverError};

use crate::buffer::{Buffer, Home, TakesBack};
use crate::device;
use crate::driver::Driver;
use crate::error::KernelError;

/// Memory pool of a GPU for work beside another library, such as PyTorch, whose memory it leaves alone. Memory of the
/// pool that nobody uses is kept until [`trim`](Self::trim).
///
/// Pieces that were dropped serve the same stream again, without the driver: it takes microseconds for each, and a step has
/// a hundred of them.
pub struct MemoryPool {
    pool: CUmemoryPool,
    kept: Mutex<Kept>,
    /// Keeps the driver's state of the GPU.
    _context: Arc<CudaContext>,
}

/// Dropped pieces of memory.
#[derive(Default)]
struct Kept {
    /// Pieces, by handle of the stream and bytes.
    pieces: HashMap<(usize, usize), Pieces>,
    /// Streams of pieces, by handle.
    streams: HashMap<usize, Arc<CudaStream>>,
    /// Bytes of all pieces.
    n_bytes: usize,
    /// Number of pieces that were taken back so far.
    clock: u64,
}

/// Dropped pieces of one stream and size.
#[derive(Default)]
struct Pieces {
    addresses: Vec<u64>,
    /// Clock when the last of them was taken back.
    last: u64,
}

impl Kept {
    /// Removes the pieces of the size that was not dropped for the longest time.
    fn remove_oldest(&mut self) -> Option<(Arc<CudaStream>, Vec<u64>)> {
        let used = self.pieces.iter().filter(|(_, pieces)| !pieces.addresses.is_empty());
        let (&key, _) = used.min_by_key(|(_, pieces)| pieces.last)?;
        let Pieces { addresses, .. } = self.pieces.remove(&key)?;
        self.n_bytes -= key.1 * addresses.len();
        Some((Arc::clone(&self.streams[&key.0]), addresses))
    }
}

/// Largest piece that is kept for its stream.
const PIECE_MAX: usize = 256 << 20;
/// Most bytes that are kept for streams.
const KEPT_MAX: usize = 1 << 30;
/// Smallest piece.
const PIECE_MIN: usize = 512;

/// Bytes of the piece for so many bytes: at most an eighth more, so that few sizes serve all batches.
fn piece(n_bytes: usize) -> usize {
    let n_bytes = n_bytes.max(PIECE_MIN);
    n_bytes.next_multiple_of(n_bytes.next_power_of_two() / 16)
}

// SAFETY: the driver allows a pool to be used by any thread.
unsafe impl Send for MemoryPool {}
// SAFETY: as above.
unsafe impl Sync for MemoryPool {}

impl MemoryPool {
    /// Creates a pool on a GPU by its ordinal, of at most `limit` bytes.
    ///
    /// # Errors
    /// When the driver is missing, there is no such GPU, or it has no pools.
    pub fn new(ordinal: usize, limit: Option<usize>) -> Result<Self, KernelError> {
        Driver::load()?;
        let context = device::open_context(ordinal)?;
        let pool =
            Self::create(&context, limit).map_err(KernelError::driver("cannot make a memory pool on the GPU"))?;
        Ok(Self { pool, kept: Mutex::default(), _context: context })
    }

    fn create(context: &CudaContext, limit: Option<usize>) -> Result<CUmemoryPool, DriverError> {
        context.bind_to_thread()?;
        let type_ = CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
        let of = CUmemPoolProps {
            allocType: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            handleTypes: CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
            location: CUmemLocation { type_, id: context.cu_device() },
            win32SecurityAttributes: std::ptr::null_mut(),
            maxSize: limit.unwrap_or(0),
            usage: 0,
            reserved: [0; 54],
        };
        // SAFETY: the description is read before the call returns.
        let pool = unsafe { mem_pool::create(&raw const of) }?;
        // SAFETY: the pool was just made.
        unsafe { set(pool, Attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, u64::MAX) }?;
        Ok(pool)
    }

    /// Allocates uninitialised memory, in the order of a stream. If `reuses`, it may be a dropped piece, and is one for
    /// later when it is dropped.
    pub(crate) fn allocate<T: DeviceRepr>(
        self: &Arc<Self>,
        stream: &Arc<CudaStream>,
        len: usize,
        reuses: bool,
    ) -> Result<Buffer<T>, DriverError> {
        let wanted = len * size_of::<T>();
        let reuses = reuses && wanted <= PIECE_MAX;
        let n_bytes = if reuses { piece(wanted) } else { wanted };
        let found = if reuses { self.take(stream, n_bytes) } else { None };
        let address = found.map_or_else(|| self.new_piece(stream, n_bytes), Ok)?;
        // SAFETY: the memory is that of so many elements, and nobody else knows of it; it is freed as any of a pool.
        let slice = unsafe { stream.upgrade_device_ptr(address, len) };
        Ok(if reuses { Buffer::of(slice, Home { owner: Arc::clone(self) as _, n_bytes }) } else { slice.into() })
    }

    fn new_piece(&self, stream: &CudaStream, n_bytes: usize) -> Result<u64, DriverError> {
        stream.context().bind_to_thread()?;
        let mut address = 0;
        // SAFETY: the pool is that of the stream's GPU, and lives.
        unsafe { cuMemAllocFromPoolAsync(&raw mut address, n_bytes, self.pool, stream.cu_stream()) }.result()?;
        Ok(address)
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, stream: &CudaStream, n_bytes: usize) -> Option<u64> {
        let mut kept = self.kept();
        let found = kept.pieces.get_mut(&(stream.cu_stream() as usize, n_bytes))?.addresses.pop()?;
        kept.n_bytes -= n_bytes;
        Some(found)
    }

    /// Returns memory to the GPU that was dropped, after the work that used it.
    ///
    /// # Errors
    /// When the driver fails.
    pub fn trim(&self) -> Result<(), KernelError> {
        let Kept { pieces, streams, .. } = std::mem::take(&mut *self.kept());
        for ((handle, _), pieces) in pieces {
            pieces.addresses.into_iter().for_each(|address| free(&streams[&handle], address));
        }
        for stream in streams.into_values() {
            stream.synchronize().map_err(KernelError::driver("cannot wait for the GPU"))?;
        }
        // SAFETY: the pool lives.
        unsafe { mem_pool::trim_to(self.pool, 0) }.map_err(KernelError::driver("cannot trim the memory pool"))
    }

    /// Bytes in use, and bytes that the pool has of the GPU.
    ///
    /// # Errors
    /// When the driver fails.
    pub fn bytes(&self) -> Result<(u64, u64), KernelError> {
        let kept = self.kept().n_bytes as u64;
        // SAFETY: the pool lives, and both attributes are 64-bit numbers.
        let get = |attribute| unsafe { get(self.pool, attribute) };
        let used = get(Attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
        used.and_then(|used| Ok((used.saturating_sub(kept), get(Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)?)))
            .map_err(KernelError::driver("cannot ask the memory pool"))
    }
}

impl TakesBack for MemoryPool {
    fn take_back(&self, stream: &Arc<CudaStream>, address: u64, n_bytes: usize) {
        let handle = stream.cu_stream() as usize;
        let mut kept = self.kept();
        kept.clock += 1;
        let now = kept.clock;
        kept.streams.entry(handle).or_insert_with(|| Arc::clone(stream));
        let pieces = kept.pieces.entry((handle, n_bytes)).or_default();
        pieces.addresses.push(address);
        pieces.last = now;
        kept.n_bytes += n_bytes;
        while kept.n_bytes > KEPT_MAX
            && let Some((stream, addresses)) = kept.remove_oldest()
        {
            addresses.into_iter().for_each(|address| free(&stream, address));
        }
    }
}

/// Frees memory in the order of a stream.
fn free(stream: &CudaStream, address: u64) {
    // A failed device has nothing to free.
    let _ = stream.context().bind_to_thread();
    // SAFETY: the memory came from a pool, and nobody knows of it any more.
    let _ = unsafe { result::free_async(address, stream.cu_stream()) };
}

impl Drop for MemoryPool {
    fn drop(&mut self) {
        let _ = self.trim();
        // SAFETY: the pool lives; the driver destroys it when all its memory is freed.
        let _ = unsafe { mem_pool::destroy(self.pool) };
    }
}

/// Lets the default pool keep freed memory. By default it returns that memory whenever the host synchronises, so that
/// every step would ask the system again.
pub(crate) fn keep_freed_memory(context: &CudaContext) -> Result<(), DriverError> {
    set_default(context, Attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, u64::MAX)
}

/// Forbids allocations that wait for another stream to release freed memory. Such a wait may be a deadlock: the other
/// stream may wait for this one.
pub(crate) fn reuse_only_what_is_free(context: &CudaContext) -> Result<(), DriverError> {
    let Some(pool) = pool(context)? else { return Ok(()) };
    let (attribute, mut value) = (Attribute::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, 0_i32);
    // SAFETY: the pool lives as long as its device; the attribute is a 32-bit number, which is read before the call
    // returns.
    unsafe { mem_pool::set_attribute(pool, attribute, (&raw mut value).cast()) }
}

/// Bytes that the pool keeps and nobody uses.
pub(crate) fn kept_bytes(context: &CudaContext) -> Result<usize, DriverError> {
    let reserved = get_default(context, Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)?;
    let used = get_default(context, Attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT)?;
    Ok(reserved.saturating_sub(used) as usize)
}

/// Peak bytes in use since the last [`reset_peak`].
pub(crate) fn peak_bytes(context: &CudaContext) -> Result<u64, DriverError> {
    get_default(context, Attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH)
}

/// Resets [`peak_bytes`] to the bytes in use now.
pub(crate) fn reset_peak(context: &CudaContext) -> Result<(), DriverError> {
    set_default(context, Attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0)
}

/// Lets other devices, which can reach this one, access all allocations here, including earlier ones and those of
/// graphs captured later. Returns whether there is a pool for that.
pub(crate) fn share(context: &CudaContext, devices: &[CUdevice]) -> Result<bool, DriverError> {
    let Some(pool) = pool(context)? else { return Ok(false) };
    let of_device = |&id: &CUdevice| CUmemAccessDesc {
        location: CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id },
        flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    // Ranks may share a GPU.
    let others: BTreeSet<&CUdevice> = devices.iter().filter(|&&device| device != context.cu_device()).collect();
    let others: Vec<CUmemAccessDesc> = others.into_iter().map(of_device).collect();
    if others.is_empty() {
        return Ok(true);
    }
    // SAFETY: the pool lives as long as its device, and as many descriptions are read before the call returns.
    unsafe { cuMemPoolSetAccess(pool, others.as_ptr(), others.len()) }.result().map(|()| true)
}

/// Default memory pool of a context's device, if it has one.
fn pool(context: &CudaContext) -> Result<Option<CUmemoryPool>, DriverError> {
    if !context.has_async_alloc() {
        return Ok(None);
    }
    // SAFETY: the device is that of a context.
    unsafe { result::device::get_default_mem_pool(context.cu_device()) }.map(Some)
}

/// Reads an attribute of the default pool; zero without a pool.
fn get_default(context: &CudaContext, attribute: Attribute) -> Result<u64, DriverError> {
    // SAFETY: the pool lives as long as its device, and the attributes asked for are 64-bit numbers.
    pool(context)?.map_or(Ok(0), |pool| unsafe { get(pool, attribute) })
}

/// Sets an attribute of the default pool, if there is one.
fn set_default(context: &CudaContext, attribute: Attribute, value: u64) -> Result<(), DriverError> {
    // SAFETY: as in `get_default`.
    pool(context)?.map_or(Ok(()), |pool| unsafe { set(pool, attribute, value) })
}

/// Reads an attribute.
///
/// # Safety
/// The pool lives, and the attribute is a 64-bit number.
unsafe fn get(pool: CUmemoryPool, attribute: Attribute) -> Result<u64, DriverError> {
    let mut value = 0_u64;
    // SAFETY: the caller vouches.
    unsafe { mem_pool::get_attribute(pool, attribute, (&raw mut value).cast()) }?;
    Ok(value)
}

/// Sets an attribute.
///
/// # Safety
/// As for [`get`].
unsafe fn set(pool: CUmemoryPool, attribute: Attribute, mut value: u64) -> Result<(), DriverError> {
    // SAFETY: the caller vouches; the number is read before the call returns.
    unsafe { mem_pool::set_attribute(pool, attribute, (&raw mut value).cast()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_few_sizes_and_little_larger() {
        let sizes: BTreeSet<usize> = (1..1 << 20).step_by(37).map(piece).collect();
        assert!(sizes.len() <= 12 * 16, "{}", sizes.len());
        for n_bytes in (1..1 << 20).step_by(37) {
            let of = piece(n_bytes);
            assert!(of >= n_bytes && (n_bytes <= PIECE_MIN || of <= n_bytes + n_bytes / 8 + 1), "{n_bytes}: {of}");
        }
    }
}
