//! Stream-ordered memory pool of a device. Devices without one allocate and free synchronously.

use std::collections::BTreeSet;

use cudarc::driver::result::{device, mem_pool};
use cudarc::driver::sys::{
    CUdevice, CUmemAccess_flags, CUmemAccessDesc, CUmemLocation, CUmemLocationType, CUmemPool_attribute as Attribute,
    CUmemoryPool, cuMemPoolSetAccess,
};
use cudarc::driver::{CudaContext, DriverError};

/// Lets the pool keep freed memory. By default it returns that memory whenever the host synchronises, so that every
/// step would ask the system again.
pub(crate) fn keep_freed_memory(context: &CudaContext) -> Result<(), DriverError> {
    set(context, Attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, u64::MAX)
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
    let reserved = get(context, Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)?;
    let used = get(context, Attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT)?;
    Ok(reserved.saturating_sub(used) as usize)
}

/// Peak bytes in use since the last [`reset_peak`].
pub(crate) fn peak_bytes(context: &CudaContext) -> Result<u64, DriverError> {
    get(context, Attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH)
}

/// Resets [`peak_bytes`] to the bytes in use now.
pub(crate) fn reset_peak(context: &CudaContext) -> Result<(), DriverError> {
    set(context, Attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0)
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

/// Memory pool of a context's device, if it has one.
fn pool(context: &CudaContext) -> Result<Option<CUmemoryPool>, DriverError> {
    if !context.has_async_alloc() {
        return Ok(None);
    }
    // SAFETY: the device is that of a context.
    unsafe { device::get_default_mem_pool(context.cu_device()) }.map(Some)
}

/// Reads an attribute that is a 64-bit number; zero without a pool.
fn get(context: &CudaContext, attribute: Attribute) -> Result<u64, DriverError> {
    let mut value = 0_u64;
    if let Some(pool) = pool(context)? {
        // SAFETY: the pool lives as long as its device, and the attributes asked for are 64-bit numbers.
        unsafe { mem_pool::get_attribute(pool, attribute, (&raw mut value).cast()) }?;
    }
    Ok(value)
}

/// Sets an attribute that is a 64-bit number, if there is a pool.
fn set(context: &CudaContext, attribute: Attribute, mut value: u64) -> Result<(), DriverError> {
    match pool(context)? {
        // SAFETY: as in `get`; the number is read before the call returns.
        Some(pool) => unsafe { mem_pool::set_attribute(pool, attribute, (&raw mut value).cast()) },
        None => Ok(()),
    }
}
