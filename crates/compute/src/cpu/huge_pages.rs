//! Huge pages for large buffers.
//!
//! Rows gathered from a panel of 30 MB lie on 7 000 pages of 4 KiB, more than a processor keeps translations for; on
//! pages of 2 MiB they lie on 15. Measured on Zen 5: sparse products take 6 to 10 % less time.

/// Bytes from which a buffer asks for huge pages.
#[cfg(target_os = "linux")]
const BYTES_MIN: usize = 4 << 20;

/// Asks the system to back `n_bytes` from `address` on with huge pages. A hint: where it is not taken, pages stay small.
pub(crate) fn advise(address: usize, n_bytes: usize) {
    #[cfg(target_os = "linux")]
    if n_bytes >= BYTES_MIN {
        // SAFETY: asks for a number.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(1) as usize;
        let start = address.next_multiple_of(page);
        // SAFETY: the pages from `start` on lie in the caller's buffer, but for the rest of the last one; this advice
        // changes how pages are backed, never what they hold.
        unsafe { libc::madvise(start as *mut libc::c_void, address + n_bytes - start, libc::MADV_HUGEPAGE) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (address, n_bytes);
}
