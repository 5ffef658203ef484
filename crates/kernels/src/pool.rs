//! Stream-ordered memory pools: the default one of a device, and [`MemoryPool`], one of a guest's own. Devices without
//! pools allocate and free synchronously.

use std::collections::BTreeSet;
use std::sync::Arc;

use cudarc::driver::result::{self, mem_pool};
use cudarc::driver::sys::{
    CUdevice, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationHandleType, CUmemAllocationType, CUmemLocation,
    CUmemLocationType, CUmemPool_attribute as Attribute, CUmemPoolProps, CUmemoryPool, cuMemAllocFromPoolAsync,
    cuMemPoolSetAccess,
};
use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DeviceRepr, DriverError};

use crate::device;
use crate::driver::Driver;
use crate::error::KernelError;

/// Memory pool of a GPU for work beside another library, such as PyTorch, whose memory it leaves alone. Memory of the
/// pool that nobody uses is kept until [`trim`](Self::trim).
pub struct MemoryPool {
    pool: CUmemoryPool,
    /// Keeps the driver's state of the GPU.
    _context: Arc<CudaContext>,
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
        Ok(Self { pool, _context: context })
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

    /// Allocates uninitialised memory, in the order of a stream.
    pub(crate) fn allocate<T: DeviceRepr>(
        &self,
        stream: &Arc<CudaStream>,
        len: usize,
    ) -> Result<CudaSlice<T>, DriverError> {
        stream.context().bind_to_thread()?;
        let mut address = 0;
        // SAFETY: the pool is that of the stream's GPU, and lives.
        unsafe { cuMemAllocFromPoolAsync(&raw mut address, len * size_of::<T>(), self.pool, stream.cu_stream()) }
            .result()?;
        // SAFETY: the memory is that of so many elements, and nobody else knows of it; it is freed as any of a pool.
        Ok(unsafe { stream.upgrade_device_ptr(address, len) })
    }

    /// Returns memory to the GPU that was freed and that no stream uses any more.
    ///
    /// # Errors
    /// When the driver fails.
    pub fn trim(&self) -> Result<(), KernelError> {
        // SAFETY: the pool lives.
        unsafe { mem_pool::trim_to(self.pool, 0) }.map_err(KernelError::driver("cannot trim the memory pool"))
    }

    /// Bytes in use, and bytes that the pool has of the GPU.
    ///
    /// # Errors
    /// When the driver fails.
    pub fn bytes(&self) -> Result<(u64, u64), KernelError> {
        // SAFETY: the pool lives, and both attributes are 64-bit numbers.
        let get = |attribute| unsafe { get(self.pool, attribute) };
        let used = get(Attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
        used.and_then(|used| Ok((used, get(Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)?)))
            .map_err(KernelError::driver("cannot ask the memory pool"))
    }
}

impl Drop for MemoryPool {
    fn drop(&mut self) {
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
