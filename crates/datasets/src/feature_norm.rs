//! [`FeatureNorm`]: normalisation of the rows of features.

/// Divisor of each row of features; rows of zeros are unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FeatureNorm {
    /// No division.
    #[default]
    None,
    /// Sum of the row, so that a bag of words becomes fractions (Kipf and Welling, ICLR 2017).
    Sum,
    /// Euclidean length of the row.
    Length,
    /// Square root of the row's Euclidean length. Bags of hundreds of words then have a size that suits the usual
    /// learning rate and weight decay: fractions are too small for them, counts too large.
    RootLength,
}

impl FeatureNorm {
    /// Divides a row in place.
    pub(crate) fn divide(self, row: &mut [f32]) {
        let wide = || row.iter().map(|&v| f64::from(v));
        let divisor = match self {
            Self::None => 1.0,
            Self::Sum => wide().sum(),
            Self::Length => wide().map(|v| v * v).sum::<f64>().sqrt(),
            Self::RootLength => wide().map(|v| v * v).sum::<f64>().powf(0.25),
        };
        if divisor != 0.0 {
            row.iter_mut().for_each(|v| *v = (f64::from(*v) / divisor) as f32);
        }
    }
}
