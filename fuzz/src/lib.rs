//! libFuzzer programs, one for each target of `girih-fuzz-targets`. Their bytes are an input, and mutations know
//! formats.

use std::path::Path;
use std::sync::OnceLock;

pub use girih_fuzz_targets::Target;
use girih_fuzz_targets::{Counting, Input, find, mutate, repair};
use girih_random::Key;

#[doc(hidden)]
pub use libfuzzer_sys;

// Targets check their memory bound here as well.
#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Purpose of the mutations' random draws.
const PURPOSE: u32 = 1001;

/// Reads the bytes of an input as a target does.
///
/// # Panics
/// When a law is broken.
pub fn read(target: &Target, bytes: &[u8]) {
    static SCRATCH: OnceLock<std::path::PathBuf> = OnceLock::new();
    let scratch = SCRATCH.get_or_init(|| std::env::temp_dir().join(format!("girih-fuzz-{}", std::process::id())));
    let _ = target.run(&Input::decode(bytes, target.form), Path::new(scratch));
}

/// Mutates the first `size` bytes of `data` in place. Returns the new size.
pub fn damage(target: &Target, data: &mut [u8], size: usize, max_size: usize, seed: u32) -> usize {
    let mut stream = Key::new(u64::from(seed), PURPOSE).stream(0, 0);
    let size = size.min(data.len());
    // A third of the mutations are libFuzzer's own, which uses failed comparisons.
    if stream.below(3) == 0 {
        let size = libfuzzer_sys::fuzzer_mutate(data, size, max_size);
        let mut input = Input::decode(&data[..size], target.form);
        if stream.below(2) == 0 {
            repair(&mut input);
            return place(&input.encode(target.form), data, max_size).unwrap_or(size);
        }
        return size;
    }
    let input = Input::decode(&data[..size], target.form);
    let damaged = mutate(&input, target.words, &mut stream).encode(target.form);
    match place(&damaged, data, max_size) {
        Some(size) => size,
        None => libfuzzer_sys::fuzzer_mutate(data, size, max_size),
    }
}

/// Copies bytes to the start of `data` if they fit. Returns their number.
fn place(bytes: &[u8], data: &mut [u8], max_size: usize) -> Option<usize> {
    let fits = !bytes.is_empty() && bytes.len() <= max_size.min(data.len());
    fits.then(|| {
        data[..bytes.len()].copy_from_slice(bytes);
        bytes.len()
    })
}

/// Target of a program.
///
/// # Panics
/// When there is none.
#[must_use]
pub fn target(name: &str) -> Target {
    find(name).unwrap_or_else(|| panic!("no target {name}"))
}

/// Defines the program of a target.
#[macro_export]
macro_rules! program {
    ($name:literal) => {
        static TARGET: std::sync::LazyLock<girih_fuzz::Target> = std::sync::LazyLock::new(|| girih_fuzz::target($name));
        $crate::libfuzzer_sys::fuzz_target!(|bytes: &[u8]| girih_fuzz::read(&TARGET, bytes));
        $crate::libfuzzer_sys::fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
            girih_fuzz::damage(&TARGET, data, size, max_size, seed)
        });
    };
}
