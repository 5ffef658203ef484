//! [`Scratch`]: buffers that are reused across calls.

use std::sync::{Mutex, PoisonError};

use super::matrix::{Aligned, zeroed};

/// Pool of buffers of 32-bit words. Fresh memory costs a page fault every 4 KiB, about as much time as the work on a
/// panel. The pool therefore keeps buffers for later calls.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    free: Mutex<Vec<Aligned<u32>>>,
}

impl Scratch {
    /// Lends `n_words` words to `work`; their contents are unspecified.
    pub(crate) fn with<T>(&self, n_words: usize, work: impl FnOnce(&mut [u32]) -> T) -> T {
        let mut buffer = self.take(n_words);
        if buffer.len() < n_words {
            buffer = zeroed(n_words);
        }
        let result = work(&mut buffer[..n_words]);
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push(buffer);
        result
    }

    /// Takes the smallest free buffer that suffices. Otherwise it takes the largest one, to be replaced, or an empty
    /// one if none is free.
    fn take(&self, n_words: usize) -> Aligned<u32> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let fit = |i: &usize| {
            let len = free[*i].len();
            if len >= n_words { (0, len) } else { (1, usize::MAX - len) }
        };
        let best = (0..free.len()).min_by_key(fit);
        best.map_or_else(|| Aligned::new(0), |i| free.swap_remove(i))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_come_back() {
        let scratch = Scratch::default();
        let first = scratch.with(100, |words| words.as_ptr());
        scratch.with(1000, |words| assert_eq!(words.len(), 1000));
        assert_eq!(scratch.free.lock().unwrap().len(), 1, "the small buffer was replaced");
        let again = scratch.with(500, |words| (words.len(), words.as_ptr()));
        let inner = scratch.with(10, |_| scratch.with(10, |words| words.as_ptr()));
        assert_eq!(again.0, 500);
        assert!(first != inner || again.1 != inner, "borrowed buffers are distinct");
    }
}
