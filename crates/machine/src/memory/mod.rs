//! Memory of this process and of the machine, as Linux reports it.

mod free;

use std::fs;

use crate::machine::field_kibibytes;

pub use free::{Free, Limit};

/// Maximum of resident bytes since the start or the last [`reset_peak`]; `None` if the system does not report it.
#[must_use]
pub fn peak_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    field_kibibytes(&status, "VmHWM:").map(|kibibytes| kibibytes << 10)
}

/// Bytes of main memory that this process may still take, as in [`Free::now`]; `None` if the system does not report
/// them.
#[must_use]
pub fn free_bytes() -> Option<u64> {
    Free::now().map(|free| free.bytes)
}

/// Resets [`peak_bytes`] to the bytes that are resident now; returns whether the system supports it.
pub fn reset_peak() -> bool {
    fs::write("/proc/self/clear_refs", "5").is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_is_free_than_there_is() {
        let here = crate::Machine::here();
        assert!(free_bytes().zip(here.memory_bytes).is_none_or(|(free, all)| 0 < free && free < all));
    }

    #[test]
    fn the_peak_covers_what_was_touched() {
        let block = std::hint::black_box(vec![1u8; 64 << 20]);
        if let Some(peak) = peak_bytes() {
            assert!(peak >= block.len() as u64, "{peak}");
        }
    }
}
