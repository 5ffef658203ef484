//! [`Machine`]: what kernels need to know about the processor, and the buffers that they reuse.

use std::fs;

use super::scratch::Scratch;
use super::simd::Isa;
use crate::Dtype;

/// Assumed where the system does not tell.
const CACHE_BYTES_DEFAULT: usize = 32 << 20;

/// The processor at hand, with scratch memory.
#[derive(Debug)]
pub(crate) struct Machine {
    /// The instruction set of kernels.
    pub(crate) isa: Isa,
    /// Bytes of the last-level cache.
    pub(crate) cache_bytes: usize,
    /// The storage that `f32` operands of sparse products are rounded to while they are packed.
    pub(crate) gathered: Dtype,
    /// Buffers for panels, partial sums and converted blocks.
    pub(crate) scratch: Scratch,
}

impl Machine {
    /// This machine.
    pub(crate) fn detect() -> Self {
        Self::new(Isa::detect(), last_level_cache_bytes())
    }

    /// A machine with the given instruction set and cache.
    pub(crate) fn new(isa: Isa, cache_bytes: usize) -> Self {
        Self { isa, cache_bytes, gathered: Dtype::F32, scratch: Scratch::default() }
    }
}

/// Bytes of the last cache before main memory, as Linux reports it.
fn last_level_cache_bytes() -> usize {
    let read = |index: usize| {
        let size = fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size")).ok()?;
        parse_size(size.trim())
    };
    // Indices ascend with the level.
    (0..8).map_while(read).last().unwrap_or(CACHE_BYTES_DEFAULT)
}

/// `32768K` or `32M` in bytes.
fn parse_size(text: &str) -> Option<usize> {
    let (digits, unit) = match text.strip_suffix('K') {
        Some(digits) => (digits, 1 << 10),
        None => (text.strip_suffix('M')?, 1 << 20),
    };
    digits.parse::<usize>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_linux_writes_them() {
        assert_eq!(parse_size("32768K"), Some(32 << 20));
        assert_eq!(parse_size("16M"), Some(16 << 20));
        assert_eq!(parse_size("many"), None);
        assert!(last_level_cache_bytes() > 0);
    }
}
