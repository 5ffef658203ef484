//! Whether a data set fits into the memory that is free, before any of it is allocated.

use crate::DatasetError;

/// Bytes that a new process may take without swapping, as Linux estimates them; `None` where it does not say.
pub(crate) fn available_bytes() -> Option<u64> {
    parse_available(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

fn parse_available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Refuses what needs more than is there, saying how much smaller it must be.
pub(crate) fn check_fits(needed: u64, available: Option<u64>) -> Result<(), DatasetError> {
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

/// Bytes for each node that it takes to sort edges into rows: counts, where rows begin, and offsets.
const NODE_BYTES: u64 = 3 * size_of::<u64>() as u64;

/// Refuses a number of nodes that a file declares and that a graph is about to be made of, if there are other numbers of
/// rows of features or of labels, where there are any, or if memory does not suffice.
pub(crate) fn check_declared_nodes(
    n_nodes: usize,
    (n_features, n_labels): (Option<usize>, Option<usize>),
    available: Option<u64>,
) -> Result<(), DatasetError> {
    let found = [(n_features, "rows of features"), (n_labels, "labels")];
    let other = found.into_iter().find_map(|(rows, what)| Some((rows.filter(|&rows| rows != n_nodes)?, what)));
    if let Some((rows, what)) = other {
        let message =
            format!("there are {rows} {what} for {n_nodes} nodes, as many as are declared; each node needs one");
        return Err(DatasetError::invalid(message));
    }
    let needed = n_nodes as u64 * NODE_BYTES;
    let Some(available) = available.filter(|&available| needed > available) else { return Ok(()) };
    Err(DatasetError::too_large(format!(
        "{n_nodes} nodes are declared, whose graph needs {needed} bytes of memory, and {available} are available; correct \
         the number, or load it where there is more"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declared_nodes_are_borne_out_and_fit() {
        assert!(check_declared_nodes(10, (None, None), None).is_ok());
        assert!(check_declared_nodes(10, (Some(10), Some(10)), Some(240)).is_ok());
        let refused = |n, rows, available| check_declared_nodes(n, rows, available).unwrap_err().to_string();
        assert!(refused(10, (Some(9), None), None).contains("there are 9 rows of features for 10 nodes"));
        assert!(refused(10, (Some(10), Some(0)), None).contains("0 labels"));
        assert!(refused(11, (None, None), Some(263)).contains("264 bytes"));
    }

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
