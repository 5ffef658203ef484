//! Whether a data set fits into the memory that is free, before any of it is allocated.

use crate::DatasetError;

/// Bytes that a new process may take without swapping, as Linux estimates them; `None` where it does not say.
pub(super) fn available_bytes() -> Option<u64> {
    parse_available(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

fn parse_available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Refuses what needs more than is there, saying how much smaller it must be.
pub(super) fn check_fits(needed: u64, available: Option<u64>) -> Result<(), DatasetError> {
    let Some(available) = available.filter(|&available| needed > available) else { return Ok(()) };
    // Two digits, rounded down: a scale that is printed must fit.
    let share = available as f64 / needed as f64;
    let digits = 10f64.powf(1.0 - share.log10().floor());
    let share = (share * digits).floor() / digits;
    Err(DatasetError::too_large(format!(
        "the generated data set needs {needed} bytes of memory, {available} are available; multiply SCALE (NAME@SCALE, \
         1 unless given) by {share} or less"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_s_own_words_are_understood() {
        assert_eq!(parse_available("MemTotal:  10 kB\nMemAvailable:   24 kB\n"), Some(24 * 1024));
        assert_eq!(parse_available("MemTotal:  10 kB\n"), None);
    }

    #[test]
    fn a_refusal_says_what_fits() {
        assert!(check_fits(100, Some(100)).is_ok());
        assert!(check_fits(100, None).is_ok());
        let error = check_fits(1_000_000, Some(123_999)).unwrap_err();
        assert!(error.is_too_large() && error.to_string().contains("by 0.12 or less"), "{error}");
    }
}
