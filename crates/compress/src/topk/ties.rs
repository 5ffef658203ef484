//! Check whether features suit a code book: where values are equal, the rule for ties selects the kept positions, and
//! they carry little information about a row.

use girih_graph_format::Matrix;

use crate::CodecSpec;
use crate::groups::GROUP;
use crate::pca::Pca;

/// Number of rows in the check; it gives the fraction to a few hundredths.
const ROWS: usize = 1024;
/// Fraction of tied groups from which features do not suit a code book.
const MANY: f64 = 0.5;

/// One-line warning for users that ties decide most of a code book's positions, as in bags of words, with a better
/// codec of equal size. The check uses the values as they are. Subtracting their mean makes them differ from column
/// to column, and does not distinguish rows any better.
pub(crate) fn warning(spec: CodecSpec, sample: &Matrix) -> Option<String> {
    let (CodecSpec::Topk(k) | CodecSpec::TopkResidual(k)) = spec else { return None };
    let share = tied_share(k as usize, sample);
    let n_components = (spec.row_bytes(sample.n_cols()) / size_of::<u16>()).min(sample.n_cols());
    if share < MANY || n_components == 0 {
        return None;
    }
    let better = CodecSpec::Pca(n_components as u32);
    debug_assert!(Pca::check(n_components, sample.n_cols()).is_ok());
    Some(format!(
        "codec {spec}: in {:.0} % of groups, which {k} values are largest and which are smallest is left to ties, as in bags of \
         words; {better} takes no more bytes and keeps more of such features",
        100.0 * share
    ))
}

/// Fraction of groups whose `k` largest and `k` smallest values are both selected by ties, over rows spread over the
/// sample.
fn tied_share(k: usize, sample: &Matrix) -> f64 {
    let every = sample.n_rows().div_ceil(ROWS).max(1);
    let rows = sample.data().chunks_exact(sample.n_cols()).step_by(every);
    let (n, n_tied) = rows
        .flat_map(|row| row.chunks(GROUP))
        .fold((0u32, 0u32), |(n, n_tied), group| (n + 1, n_tied + u32::from(is_tied(k, group))));
    f64::from(n_tied) / f64::from(n.max(1))
}

/// Whether ties select at both ends: the last kept value equals the first dropped one among the largest and among the
/// smallest.
fn is_tied(k: usize, group: &[f32]) -> bool {
    let n = group.len();
    let (high, low) = (k.min(n.div_ceil(2)), k.min(n / 2));
    if high + low == n {
        return false;
    }
    // Zero and minus zero are equal.
    let mut values: Vec<f32> = group.iter().map(|value| value + 0.0).collect();
    values.sort_unstable_by(|a, b| b.total_cmp(a));
    values[high - 1] == values[high] && values[n - low] == values[n - low - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of `width` values that `value` makes of row and column.
    fn rows(width: usize, value: impl Fn(usize, usize) -> f32) -> Matrix {
        let values: Vec<f32> = (0..40 * width).map(|i| value(i / width, i % width)).collect();
        Matrix::new(40, width, values).unwrap()
    }

    fn warned(spec: &str, sample: &Matrix) -> Option<String> {
        warning(spec.parse().unwrap(), sample)
    }

    #[test]
    fn bags_of_words_are_left_to_ties_and_a_codec_of_as_many_bytes_is_named() {
        let words = rows(767, |row, column| f32::from((row * 7 + column * 13) % 3 == 0));
        assert_eq!(tied_share(8, &words), 1.0);
        for spec in ["topk:8", "topk-residual:8"] {
            let warning = warned(spec, &words).unwrap();
            assert!(warning.contains(spec) && warning.contains("100 %") && warning.contains("pca:24"), "{warning}");
            assert!(!warning.contains('\n'));
        }
        assert_eq!(warned("int8", &words), None);
        // One word per group: zeros fill all other positions.
        let rare = rows(512, |row, column| f32::from(column % 256 == row));
        assert_eq!(tied_share(8, &rare), 1.0);
    }

    #[test]
    fn features_that_differ_are_not() {
        let dense = rows(602, |row, column| ((row * 602 + column) as f32 * 0.37).sin());
        assert_eq!(warned("topk:8", &dense), None);
        // Half of the outputs of a rectifier are zero, but the largest values still differ.
        let rectified = rows(602, |row, column| ((row * 602 + column) as f32 * 0.37).sin().max(-0.0));
        assert_eq!(warned("topk:8", &rectified), None);
    }

    #[test]
    fn groups_that_are_kept_whole_have_no_ties_to_decide() {
        let short = rows(16, |_, _| 1.0);
        assert_eq!(tied_share(8, &short), 0.0);
        assert_eq!(tied_share(7, &short), 1.0);
        assert_eq!(tied_share(8, &rows(1, |_, _| 0.0)), 0.0);
    }

    #[test]
    fn no_more_components_are_named_than_there_are_features() {
        let narrow = rows(3, |_, _| 1.0);
        let warning = warned("topk:1", &narrow).unwrap();
        assert!(warning.contains("pca:1 "), "{warning}");
    }
}
