//! Waves of an LSTM: rows by falling degree, cut into parts of bounded size, and the layout of each step.

use std::cmp::Reverse;

/// Number of entries of a row.
fn degree(indptr: &[u64], row: u32) -> usize {
    (indptr[row as usize + 1] - indptr[row as usize]) as usize
}

/// Rows with entries, by falling degree.
pub(super) fn by_degree(indptr: &[u64]) -> Vec<u32> {
    let mut rows: Vec<u32> = (0..indptr.len() as u32 - 1).filter(|&row| degree(indptr, row) > 0).collect();
    rows.sort_by_key(|&row| Reverse(degree(indptr, row)));
    rows
}

/// Cuts rows into waves of at most `entries_max` entries, or of one row.
pub(super) fn waves<'a>(indptr: &[u64], rows: &'a [u32], entries_max: usize) -> Vec<&'a [u32]> {
    let (mut waves, mut start, mut entries) = (Vec::new(), 0, 0);
    for (at, &row) in rows.iter().enumerate() {
        let degree = degree(indptr, row);
        if at > start && entries + degree > entries_max {
            waves.push(&rows[start..at]);
            (start, entries) = (at, 0);
        }
        entries += degree;
    }
    waves.extend(Some(&rows[start..]).filter(|wave| !wave.is_empty()));
    waves
}

/// Number of rows that still read at each step; `rows` are sorted by falling degree.
pub(super) fn readers(indptr: &[u64], rows: &[u32]) -> Vec<usize> {
    let mut n = rows.len();
    let degree = |row: u32| degree(indptr, row);
    let n_steps = rows.first().map_or(0, |&row| degree(row));
    let at_step = |step| {
        while degree(rows[n - 1]) <= step {
            n -= 1;
        }
        n
    };
    (0..n_steps).map(at_step).collect()
}

/// Offset of each step, with the end of the last.
pub(super) fn offsets(readers: &[usize]) -> Vec<u64> {
    let mut end = 0;
    let ends = readers.iter().map(|&n| {
        end += n as u64;
        end
    });
    std::iter::once(0).chain(ends).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Indptr of rows with the given degrees.
    fn degrees(degrees: &[u64]) -> Vec<u64> {
        let ends = degrees.iter().scan(0, |end, degree| {
            *end += degree;
            Some(*end)
        });
        std::iter::once(0).chain(ends).collect()
    }

    #[test]
    fn rows_read_in_step_and_drop_off_at_the_end() {
        let indptr = degrees(&[2, 0, 5, 2, 1]);
        let rows = by_degree(&indptr);
        assert_eq!(rows, [2, 0, 3, 4]);
        assert_eq!(readers(&indptr, &rows), [4, 3, 1, 1, 1]);
        assert_eq!(offsets(&readers(&indptr, &rows)), [0, 4, 7, 8, 9, 10]);
        assert!(readers(&indptr, &[]).is_empty());
    }

    #[test]
    fn waves_are_bounded_unless_a_row_is_not() {
        let indptr = degrees(&[5, 2, 2, 1]);
        assert_eq!(waves(&indptr, &[0, 1, 2, 3], 4), [&[0][..], &[1, 2], &[3]]);
        assert!(waves(&indptr, &[], 4).is_empty());
    }
}
