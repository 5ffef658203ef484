//! [`Counting`]: the system's allocator with a count of live bytes, and the peak during a call.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

/// Allocator that counts live bytes and calls the system's allocator. A program installs it as its global allocator.
pub struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static INSTALLED: AtomicBool = AtomicBool::new(false);

fn taken(bytes: usize) {
    INSTALLED.store(true, Relaxed);
    let live = LIVE.fetch_add(bytes, Relaxed).wrapping_add(bytes);
    PEAK.fetch_max(live, Relaxed);
}

fn given_back(bytes: usize) {
    LIVE.fetch_sub(bytes, Relaxed);
}

// SAFETY: every call is passed on to the system's allocator unchanged, and counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        taken(layout.size());
        // SAFETY: the caller upholds the contract of `System`, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        taken(layout.size());
        // SAFETY: the caller upholds the contract of `System`, which is the same.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // Only small blocks exist twice while they move: large ones are remapped.
        if new_size > layout.size() {
            taken(new_size - layout.size());
        } else {
            given_back(layout.size() - new_size);
        }
        // SAFETY: the caller upholds the contract of `System`, which is the same.
        unsafe { System.realloc(block, layout, new_size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        given_back(layout.size());
        // SAFETY: the caller upholds the contract of `System`, which is the same.
        unsafe { System.dealloc(block, layout) }
    }
}

/// Result of a call, and the peak of live bytes during it beyond those before. `None` if [`Counting`] is not the
/// global allocator. Other threads count as well, so calls must run one at a time.
pub fn peak_during<T>(call: impl FnOnce() -> T) -> (T, Option<usize>) {
    let before = LIVE.load(Relaxed);
    PEAK.store(before, Relaxed);
    let result = call();
    let peak = PEAK.load(Relaxed).saturating_sub(before);
    (result, INSTALLED.load(Relaxed).then_some(peak))
}
