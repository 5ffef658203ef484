//! [`SampledProduct`]: some rows of a sparse product in `f64`, as a reference for any library.

use girih_graph_format::{Csr, Matrix};

/// Maximum number of sampled rows.
const ROWS: usize = 500;
/// Number of longest rows in the sample. Rows that several workers share have the largest errors.
const LONGEST: usize = 4;

/// Some rows of `A·X`, where all entries of `A` are one.
pub struct SampledProduct {
    rows: Vec<u32>,
    /// Sums, row by row.
    sums: Vec<f64>,
}

impl SampledProduct {
    /// Computes the rows by sequential summation.
    ///
    /// # Panics
    /// When `x` does not have one row per column of `a`.
    #[must_use]
    pub fn of(a: &Csr, x: &Matrix) -> Self {
        assert_eq!(a.n_cols(), x.n_rows(), "a row of the operand for each column");
        let rows = sample(a);
        let mut sums = Vec::with_capacity(rows.len() * x.n_cols());
        for &row in &rows {
            let start = sums.len();
            sums.resize(start + x.n_cols(), 0.0);
            for &column in a.row(row as usize) {
                for (sum, &value) in sums[start..].iter_mut().zip(x.row(column as usize)) {
                    *sum += f64::from(value);
                }
            }
        }
        Self { rows, sums }
    }

    /// Row numbers, ascending.
    #[must_use]
    pub fn rows(&self) -> &[u32] {
        &self.rows
    }

    /// Relative error `‖out − sums‖ / ‖sums‖` over all sampled rows; `out` holds their results in order.
    ///
    /// # Panics
    /// When `out` has another size.
    #[must_use]
    pub fn relative_error(&self, out: &[f32]) -> f64 {
        assert_eq!(out.len(), self.sums.len(), "a result for each sum");
        let squares: f64 = self.sums.iter().map(|sum| sum * sum).sum();
        let differences: f64 = self.sums.iter().zip(out).map(|(sum, &out)| (f64::from(out) - sum).powi(2)).sum();
        (differences / squares.max(f64::MIN_POSITIVE)).sqrt()
    }
}

/// The longest rows, and others at equal distances.
fn sample(a: &Csr) -> Vec<u32> {
    let n_rows = a.n_rows();
    let mut by_length: Vec<u32> = (0..n_rows as u32).collect();
    let n_longest = LONGEST.min(n_rows);
    if n_longest < n_rows {
        by_length.select_nth_unstable_by_key(n_longest, |&row| std::cmp::Reverse(a.degree(row as usize)));
    }
    let mut rows = by_length[..n_longest].to_vec();
    let n_others = (ROWS - LONGEST).min(n_rows);
    rows.extend((0..n_others).map(|i| (i * n_rows / n_others) as u32));
    rows.sort_unstable();
    rows.dedup();
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Graph whose row `v` has `v % 7` entries, and row 1234 a thousand.
    fn graph() -> Csr {
        let lengths: Vec<u64> = (0..2000).map(|v| if v == 1234 { 1000 } else { v % 7 }).collect();
        let indptr: Vec<u64> = std::iter::once(0)
            .chain(lengths.iter().scan(0, |end, length| {
                *end += length;
                Some(*end)
            }))
            .collect();
        let indices: Vec<u32> = lengths.iter().flat_map(|&length| 0..length as u32).collect();
        Csr::new(2000, 1000, indptr, indices, None).unwrap()
    }

    #[test]
    fn the_longest_row_is_looked_at_and_none_twice() {
        let rows = sample(&graph());
        assert!(rows.contains(&1234) && rows.len() <= ROWS && rows.len() > ROWS - LONGEST - 1);
        assert!(rows.is_sorted_by(|a, b| a < b));
        let small = Csr::new(2, 2, vec![0, 1, 2], vec![0, 1], None).unwrap();
        assert_eq!(sample(&small), [0, 1]);
    }

    #[test]
    fn sums_are_those_of_the_neighbors_and_errors_are_relative() {
        let x = Matrix::new(1000, 2, (0..2000).map(|i| i as f32).collect::<Vec<_>>()).unwrap();
        let graph = graph();
        let product = SampledProduct::of(&graph, &x);
        let exact: Vec<f32> = product
            .rows()
            .iter()
            .flat_map(|&row| {
                // Columns 0 to d - 1 of 0, 2, 4, … and 1, 3, 5, ….
                let d = graph.degree(row as usize) as f32;
                [d * (d - 1.0), d * d]
            })
            .collect();
        assert_eq!(product.relative_error(&exact), 0.0);
        let double: Vec<f32> = exact.iter().map(|value| 2.0 * value).collect();
        assert_eq!(product.relative_error(&double), 1.0);
    }
}
