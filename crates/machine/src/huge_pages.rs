//! Huge pages for large arrays with scattered reads.
//!
//! A CPU caches the address translations of a few thousand pages. A panel of 30 MB takes 7 000 pages of 4 KiB, but
//! only 15 pages of 2 MiB. With huge pages, sparse products take 6 to 10 % less time (Zen 5), and draws of neighbors
//! from 90 MB of edges 20 % less (Zen 4).

/// Minimum bytes of an array for which huge pages pay.
#[cfg(target_os = "linux")]
const BYTES_MIN: usize = 4 << 20;

/// Vector of `len` zeros (default values), on huge pages if it is large.
#[must_use]
pub fn zeros<T: Clone + Default>(len: usize) -> Vec<T> {
    let values = vec![T::default(); len];
    // Fresh zeros have no pages before the first write.
    advise_huge_pages(values.as_ptr(), len);
    values
}

/// Advises the system to use huge pages for `len` values from `start`. Best before the first write, which allocates
/// the pages. A hint: if the system ignores it, pages stay small.
pub fn advise_huge_pages<T>(start: *const T, len: usize) {
    #[cfg(target_os = "linux")]
    if len * size_of::<T>() >= BYTES_MIN {
        // SAFETY: only asks for the page size.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(1) as usize;
        let end = start.addr() + len * size_of::<T>();
        let start = start.addr().next_multiple_of(page);
        // SAFETY: this advice changes how pages are backed, never their contents; for unmapped memory the call fails.
        unsafe { libc::madvise(start as *mut libc::c_void, end - start, libc::MADV_HUGEPAGE) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (start, len);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_zeros_are_zeros() {
        for len in [0, 1, 3 << 20] {
            let mut values = zeros::<u32>(len);
            assert!(values.len() == len && values.iter().all(|&value| value == 0));
            values.iter_mut().for_each(|value| *value = 7);
            assert!(values.iter().all(|&value| value == 7));
        }
    }
}
