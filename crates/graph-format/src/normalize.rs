//! Normalisation as two vectors: `Â = L·A·R` with `L` and `R` diagonal, `A` stored once and unchanged.
//!
//! Folding the right scale into the operand and the left scale into the epilogue of a multiplication costs no
//! floats per entry, where stored weights would double the traffic of a binary adjacency.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::{Csr, NodeId};

/// How an adjacency is normalised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Norm {
    /// `A` as it is: sums over neighbours.
    #[default]
    None,
    /// `D^-½ A D^-½` (Kipf and Welling, ICLR 2017); symmetric when `A` is.
    Symmetric,
    /// `D⁻¹ A`: means over neighbours.
    Row,
}

impl Norm {
    /// To which powers it takes the sums of rows, for `L`, and of columns, for `R`; `None` stands for the identity.
    #[must_use]
    pub fn powers(self) -> [Option<f64>; 2] {
        match self {
            Self::None => [None, None],
            Self::Row => [Some(-1.0), None],
            Self::Symmetric => [Some(-0.5), Some(-0.5)],
        }
    }
}

/// Degrees to a power below zero; zero for those of zero or below, and the largest number for those so small that there
/// is none for them.
#[must_use]
pub fn scale_factors(degrees: &[f64], power: f64) -> Vec<f32> {
    degrees.iter().map(|&d| if d > 0.0 { (d.powf(power) as f32).min(f32::MAX) } else { 0.0 }).collect()
}

/// The diagonals of `L` and `R`; `None` stands for the identity.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scales {
    /// One factor per row, applied to the result.
    pub left: Option<Vec<f32>>,
    /// One factor per column, applied to the operand.
    pub right: Option<Vec<f32>>,
}

impl Scales {
    /// From the sums of rows and of columns, of which those are asked for that `norm` wants.
    fn of(norm: Norm, rows: impl FnOnce() -> Vec<f64>, columns: impl FnOnce() -> Vec<f64>) -> Self {
        let [left, right] = norm.powers();
        Self {
            left: left.map(|power| scale_factors(&rows(), power)),
            right: right.map(|power| scale_factors(&columns(), power)),
        }
    }

    /// The scales of the transposed matrix: left and right exchanged.
    #[must_use]
    pub fn transposed(&self) -> Self {
        Self { left: self.right.clone(), right: self.left.clone() }
    }
}

impl Csr {
    /// The two scale vectors of `norm` for this matrix. Degrees are sums of weights; a node of degree zero or below
    /// gets the factor zero, so isolated nodes yield zeros, never NaN.
    #[must_use]
    pub fn scales(&self, norm: Norm) -> Scales {
        Scales::of(norm, || self.row_sums(), || self.column_sums())
    }

    /// Those of [`with_self_loops`](Self::with_self_loops), up to the rounding of sums of weights, without that matrix.
    ///
    /// # Panics
    /// When the matrix is not square.
    #[must_use]
    pub fn scales_with_self_loops(&self, norm: Norm) -> Scales {
        assert!(self.is_square(), "only a square matrix has self loops");
        let with_loops = |mut sums: Vec<f64>| {
            sums.par_iter_mut().enumerate().for_each(|(v, sum)| *sum += f64::from(u8::from(!self.has_self_loop(v))));
            sums
        };
        Scales::of(norm, || with_loops(self.row_sums()), || with_loops(self.column_sums()))
    }

    /// Whether a node is its own neighbour.
    #[must_use]
    pub fn has_self_loop(&self, node: usize) -> bool {
        self.row(node).binary_search(&(node as NodeId)).is_ok()
    }

    /// Sum of the weights of each row; the degree where there are none.
    #[must_use]
    pub fn row_sums(&self) -> Vec<f64> {
        (0..self.n_rows())
            .map(|r| match self.values() {
                None => self.degree(r) as f64,
                Some(values) => values[self.row_range(r)].iter().map(|&v| f64::from(v)).sum(),
            })
            .collect()
    }

    /// Sum of the weights of each column.
    #[must_use]
    pub fn column_sums(&self) -> Vec<f64> {
        let mut sums = vec![0.0; self.n_cols()];
        for (e, &c) in self.indices().iter().enumerate() {
            sums[c as usize] += self.values().map_or(1.0, |v| f64::from(v[e]));
        }
        sums
    }
}
