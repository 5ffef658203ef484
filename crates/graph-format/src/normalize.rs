//! Normalisation as two vectors: `Â = L·A·R` with `L` and `R` diagonal, `A` stored once and unchanged.
//!
//! The right scale is folded into the operand and the left scale into the epilogue of a multiplication. So
//! normalisation costs no floats per entry, while stored weights would double the traffic of a binary adjacency.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::{Csr, NodeId};

/// Normalisation of an adjacency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Norm {
    /// `A` unchanged: sums over neighbors.
    #[default]
    None,
    /// `D^-½ A D^-½` (Kipf and Welling, ICLR 2017); symmetric when `A` is.
    Symmetric,
    /// `D⁻¹ A`: means over neighbors.
    Row,
}

impl Norm {
    /// Powers of the sums of rows, for `L`, and of columns, for `R`; `None` stands for the identity.
    #[must_use]
    pub fn powers(self) -> [Option<f64>; 2] {
        match self {
            Self::None => [None, None],
            Self::Row => [Some(-1.0), None],
            Self::Symmetric => [Some(-0.5), Some(-0.5)],
        }
    }
}

/// Weights whose sum is a degree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Degrees {
    /// Weights with their signs. Normalisation is not defined where they sum to zero or below.
    #[default]
    Default,
    /// Absolute values of weights, for graphs with negative ones: the degrees of the signed Laplacian (Kunegis et
    /// al., SDM 2010).
    Absolute,
}

/// Sum of the weights of a row or column, and of their absolute values.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WeightSum {
    /// Sum of the weights.
    pub signed: f64,
    /// Sum of their absolute values.
    pub absolute: f64,
}

impl WeightSum {
    /// Adds a weight.
    pub fn add(&mut self, weight: f32) {
        self.signed += f64::from(weight);
        self.absolute += f64::from(weight).abs();
    }

    /// Degree under the given definition.
    #[must_use]
    pub fn degree(self, degrees: Degrees) -> f64 {
        match degrees {
            Degrees::Default => self.signed,
            Degrees::Absolute => self.absolute,
        }
    }
}

/// Row or column whose degree has no finite positive inverse.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UndefinedDegree {
    /// Number of the row or column.
    pub node: usize,
    /// Whether it is a column, whose sum is over the edges that leave the node.
    pub is_column: bool,
    /// Sum of the weights, under the given [`Degrees`].
    pub degree: f64,
}

/// Raises degrees to a power below zero. A row or column whose weights are all zero gets the factor zero.
///
/// # Errors
/// At the first other degree without a factor: it is zero or below, or so small that the factor overflows `f32`.
pub fn degree_factors(sums: &[WeightSum], degrees: Degrees, power: f64) -> Result<Vec<f32>, UndefinedDegree> {
    let factor = |(node, sum): (usize, &WeightSum)| {
        let degree = sum.degree(degrees);
        let factor = degree.powf(power);
        match sum.absolute {
            0.0 => Ok(0.0),
            _ if degree > 0.0 && factor <= f64::from(f32::MAX) => Ok(factor as f32),
            _ => Err(UndefinedDegree { node, is_column: false, degree }),
        }
    };
    sums.iter().enumerate().map(factor).collect()
}

/// Raises degrees to a power below zero. Degrees of zero or below give zero; degrees so small that the factor
/// overflows give the largest `f32`.
#[must_use]
pub fn scale_factors(degrees: &[f64], power: f64) -> Vec<f32> {
    degrees.iter().map(|&d| if d > 0.0 { (d.powf(power) as f32).min(f32::MAX) } else { 0.0 }).collect()
}

/// Diagonals of `L` and `R`; `None` stands for the identity.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scales {
    /// One factor per row, applied to the result.
    pub left: Option<Vec<f32>>,
    /// One factor per column, applied to the operand.
    pub right: Option<Vec<f32>>,
}

impl Scales {
    /// Computes the scales from the sums of rows and of columns; only the sums that `norm` needs are computed.
    fn of(norm: Norm, rows: impl FnOnce() -> Vec<f64>, columns: impl FnOnce() -> Vec<f64>) -> Self {
        let [left, right] = norm.powers();
        Self {
            left: left.map(|power| scale_factors(&rows(), power)),
            right: right.map(|power| scale_factors(&columns(), power)),
        }
    }

    /// Scales of the transposed matrix: left and right exchanged.
    #[must_use]
    pub fn transposed(&self) -> Self {
        Self { left: self.right.clone(), right: self.left.clone() }
    }
}

impl Csr {
    /// Computes the two scale vectors of `norm` for this matrix. Degrees are sums of weights. A node of degree zero
    /// or below gets the factor zero, so isolated nodes yield zeros, never NaN.
    #[must_use]
    pub fn scales(&self, norm: Norm) -> Scales {
        Scales::of(norm, || self.row_sums(), || self.column_sums())
    }

    /// Scales of [`with_self_loops`](Self::with_self_loops), up to the rounding of sums of weights, without that
    /// matrix.
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

    /// Computes the two scale vectors of `norm` for this matrix, from degrees as defined by `degrees`.
    ///
    /// # Errors
    /// At the first row or column whose degree has no inverse, as [`degree_factors`].
    pub fn checked_scales(&self, norm: Norm, degrees: Degrees) -> Result<Scales, UndefinedDegree> {
        if self.values().is_none() {
            return Ok(self.scales(norm));
        }
        self.weighted_scales(norm, degrees, false)
    }

    /// As [`checked_scales`](Self::checked_scales), but for [`with_self_loops`](Self::with_self_loops), without that
    /// matrix.
    ///
    /// # Errors
    /// As [`checked_scales`](Self::checked_scales).
    ///
    /// # Panics
    /// When the matrix is not square.
    pub fn checked_scales_with_self_loops(&self, norm: Norm, degrees: Degrees) -> Result<Scales, UndefinedDegree> {
        if self.values().is_none() {
            return Ok(self.scales_with_self_loops(norm));
        }
        assert!(self.is_square(), "only a square matrix has self loops");
        self.weighted_scales(norm, degrees, true)
    }

    /// Computes scales from sums of weights, with a weight of one for each missing self loop if `adds_loops`.
    fn weighted_scales(&self, norm: Norm, degrees: Degrees, adds_loops: bool) -> Result<Scales, UndefinedDegree> {
        let loops = |mut sums: Vec<WeightSum>| {
            let missing = |node: &usize| adds_loops && !self.has_self_loop(*node);
            (0..sums.len()).filter(missing).for_each(|node| sums[node].add(1.0));
            sums
        };
        let [left, right] = norm.powers();
        let of_rows = |power| degree_factors(&loops(self.row_weight_sums()), degrees, power);
        let of_columns = |power| {
            let factors = degree_factors(&loops(self.column_weight_sums()), degrees, power);
            factors.map_err(|undefined| UndefinedDegree { is_column: true, ..undefined })
        };
        Ok(Scales { left: left.map(of_rows).transpose()?, right: right.map(of_columns).transpose()? })
    }

    /// Sums of the weights of each row; entries without weights count one.
    fn row_weight_sums(&self) -> Vec<WeightSum> {
        let of_row = |r: usize| {
            let mut sum = WeightSum::default();
            self.row_entries(r).for_each(|(_, weight)| sum.add(weight));
            sum
        };
        (0..self.n_rows()).into_par_iter().map(of_row).collect()
    }

    /// Sums of the weights of each column; entries without weights count one.
    #[must_use]
    pub fn column_weight_sums(&self) -> Vec<WeightSum> {
        let mut sums = vec![WeightSum::default(); self.n_cols()];
        for (e, &c) in self.indices().iter().enumerate() {
            sums[c as usize].add(self.values().map_or(1.0, |v| v[e]));
        }
        sums
    }

    /// Whether `node` has a self loop.
    #[must_use]
    pub fn has_self_loop(&self, node: usize) -> bool {
        self.row(node).binary_search(&(node as NodeId)).is_ok()
    }

    /// Sum of the weights of each row; the number of entries in a matrix without weights.
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
