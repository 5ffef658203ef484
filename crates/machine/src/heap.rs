//! Bounds of the C library's heap, at which it returns memory to the system.

/// Size in bytes from which blocks are mapped from the system, and returned to it when they are freed.
const MAPPED_BYTES: libc::c_int = 4 << 20;

/// Bytes of free memory that are kept at the end of the heap.
const KEPT_BYTES: libc::c_int = 16 << 20;

/// Fixes both bounds of glibc's heap. By default, freed blocks raise the bounds up to 32 and 64 MiB, so that a
/// process that samples for hours keeps more and more memory. To be called once, at the start.
pub fn fix_heap_bounds() {
    // SAFETY: the calls set parameters of the allocator, before other threads exist.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_BYTES);
    }
}
