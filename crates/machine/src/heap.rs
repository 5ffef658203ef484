//! The C library's heap: when it gives memory back to the system.

/// Blocks of this size and more come from the system, and go back to it when they are freed.
const MAPPED_BYTES: libc::c_int = 4 << 20;

/// Free memory at the end of the heap that is kept.
const KEPT_BYTES: libc::c_int = 16 << 20;

/// Fixes both bounds of glibc's heap. Left alone, it raises them with the blocks that are freed, up to 32 and 64 MiB, so
/// that a process that samples for hours keeps more and more. To be called once, at the start.
pub fn fix_heap_bounds() {
    // SAFETY: the calls set parameters of the allocator, before other threads exist.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_BYTES);
    }
}
