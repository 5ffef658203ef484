//! Checks that a data set fits into the free memory, before any of it is allocated.

use girih_graph_format::check_proportion;
use girih_graph_format::file::Values;
use girih_machine::memory::Free;

use crate::DatasetError;

/// Refuses a need above the free memory; the error says how much smaller it must be.
pub(crate) fn check_fits(needed: u64, free: Option<Free>) -> Result<(), DatasetError> {
    let Some(Free { bytes: available, limit }) = free.filter(|free| needed > free.bytes) else { return Ok(()) };
    // Two digits, rounded down, so that the printed scale fits.
    let share = available as f64 / needed as f64;
    let digits = 10f64.powf(1.0 - share.log10().floor());
    let share = (share * digits).floor() / digits;
    Err(DatasetError::too_large(format!(
        "the generated data set needs {needed} bytes of memory, and {limit} has {available} free; multiply SCALE \
         (NAME@SCALE, 1 unless given) by {share} or less"
    )))
}

/// Bytes per node to sort edges into rows: counts, row starts, and offsets.
const NODE_BYTES: u64 = 3 * size_of::<u64>() as u64;

/// Refuses a number of nodes that a file declares, before the graph is made. Rows of features or labels, if there are
/// any, must agree with it. Without them, the number of edges must make it plausible. Memory must suffice.
pub(crate) fn check_declared_nodes(
    n_nodes: usize,
    (n_features, n_labels): (Option<usize>, Option<usize>),
    n_edges: usize,
    free: Option<Free>,
) -> Result<(), DatasetError> {
    let found = [(n_features, "rows of features"), (n_labels, "labels")];
    let other = found.into_iter().find_map(|(rows, what)| Some((rows.filter(|&rows| rows != n_nodes)?, what)));
    if let Some((rows, what)) = other {
        let message =
            format!("there are {rows} {what} for {n_nodes} nodes, as many as are declared; each node needs one");
        return Err(DatasetError::invalid(message));
    }
    if n_features.or(n_labels).is_none() {
        check_proportion(n_nodes, n_edges, &format!("{n_nodes} nodes are declared"))?;
    }
    let needed = n_nodes as u64 * NODE_BYTES;
    let Some(Free { bytes: available, limit }) = free.filter(|free| needed > free.bytes) else { return Ok(()) };
    Err(DatasetError::too_large(format!(
        "{n_nodes} nodes are declared, whose graph needs {needed} bytes of memory, and {limit} has {available} free; \
         correct the number, or load it where there is more"
    )))
}

/// Refuses to widen values to `float32` where memory does not suffice.
pub(crate) fn check_widened(values: &Values, free: Option<Free>) -> Result<(), DatasetError> {
    let needed = values.len() as u64 * size_of::<f32>() as u64;
    let free = free.filter(|free| !matches!(values, Values::F32(_)) && needed > free.bytes);
    let Some(Free { bytes: available, limit }) = free else { return Ok(()) };
    Err(DatasetError::too_large(format!(
        "features of {} need {needed} bytes of memory as float32, and {limit} has {available} free; give --codec, which \
         encodes them row by row, or load them where there is more",
        values.type_name()
    )))
}

#[cfg(test)]
mod tests {
    use girih_machine::memory::Limit;

    use super::*;
    use crate::Spec;

    fn free(bytes: u64) -> Option<Free> {
        Some(Free { bytes, limit: Limit::Machine })
    }

    #[test]
    fn declared_nodes_are_borne_out_and_fit() {
        assert!(check_declared_nodes(10, (None, None), 0, None).is_ok());
        assert!(check_declared_nodes(10, (Some(10), Some(10)), 0, free(240)).is_ok());
        let refused = |n, rows, available| check_declared_nodes(n, rows, 3, available).unwrap_err().to_string();
        assert!(refused(10, (Some(9), None), None).contains("there are 9 rows of features for 10 nodes"));
        assert!(refused(10, (Some(10), Some(0)), None).contains("0 labels"));
        assert!(refused(11, (None, None), free(263)).contains("264 bytes"));
        assert!(refused(1 << 30, (None, None), None).contains("only 3 edges"));
        assert!(check_declared_nodes(1 << 30, (Some(1 << 30), None), 3, None).is_ok(), "rows of features bear it out");
    }

    #[test]
    fn values_that_are_mapped_need_no_memory() {
        let halves = Values::I8(vec![0; 10].into());
        assert!(check_widened(&halves, free(40)).is_ok() && check_widened(&halves, None).is_ok());
        let error = check_widened(&halves, free(39)).unwrap_err();
        assert!(error.is_too_large() && error.to_string().contains("int8 need 40 bytes"), "{error}");
        assert!(check_widened(&Values::F32(vec![0.0; 10].into()), free(0)).is_ok());
    }

    #[test]
    fn a_refusal_says_what_fits() {
        assert!(check_fits(100, free(100)).is_ok());
        assert!(check_fits(100, None).is_ok());
        let error = check_fits(1_000_000, free(123_999)).unwrap_err();
        assert!(error.is_too_large() && error.to_string().contains("by 0.12 or less"), "{error}");
    }
    #[test]
    fn a_generator_that_does_not_fit_names_its_scale() {
        let Ok(Spec::Synth { recipe, .. }) = "synth:mag240m".parse() else { panic!("a generator") };
        let error = check_fits(recipe.peak_bytes(), free(64 << 30)).unwrap_err();
        assert!(error.is_too_large() && error.to_string().contains("SCALE"), "{error}");
    }
}
