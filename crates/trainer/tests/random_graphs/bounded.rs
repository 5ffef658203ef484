//! [`Bounded`]: numbers in `f64` with a bound on the error of their computation in `f32`.
//!
//! Running error analysis (Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 3.3): every
//! operation adds its own rounding error to those of its operands. Tolerances then follow from magnitudes: the
//! difference of large sums has a large tolerance, other logits have a small one.

/// Unit roundoff of `f32`.
const UNIT: f64 = 5.960_464_477_539_063e-8;
/// Rounding error of a sum of products in any order, scaled on both sides. Sums here have at most 64 terms.
const SUM: f64 = 72.0 * UNIT;
/// Rounding error of an elementary function.
const FUNCTION: f64 = 32.0 * UNIT;
/// Smallest normal `f32`. Smaller results may be flushed to zero.
const TINY: f64 = 1.2e-38;

/// Value, and bound of the error of its `f32` result.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bounded {
    pub x: f64,
    pub error: f64,
}

impl From<f64> for Bounded {
    fn from(x: f64) -> Self {
        Self { x, error: 0.0 }
    }
}

impl Bounded {
    /// Sum of products.
    pub fn dot(terms: impl Iterator<Item = (Self, Self)>) -> Self {
        let (mut x, mut error, mut magnitude) = (0.0, 0.0, 0.0);
        for (a, b) in terms {
            x += a.x * b.x;
            magnitude += (a.x * b.x).abs();
            error += a.x.abs() * b.error + b.x.abs() * a.error + a.error * b.error;
        }
        // Infinity times zero is NaN, which means no bound.
        let error = if error.is_nan() { f64::INFINITY } else { error };
        Self { x, error: error + SUM * magnitude + TINY }
    }

    /// Sum.
    pub fn sum(terms: impl Iterator<Item = Self>) -> Self {
        Self::dot(terms.map(|term| (term, Self::from(1.0))))
    }

    pub fn plus(self, other: Self) -> Self {
        Self::sum([self, other].into_iter())
    }

    pub fn times(self, other: Self) -> Self {
        Self::dot([(self, other)].into_iter())
    }

    pub fn minus(self, other: Self) -> Self {
        self.plus(Self { x: -other.x, error: other.error })
    }

    pub fn over(self, other: Self) -> Self {
        let x = self.x / other.x;
        let least = other.x.abs() - other.error;
        let error = if least > 0.0 { (self.error + x.abs() * other.error) / least } else { f64::INFINITY };
        Self { x, error: error + SUM * x.abs() }
    }

    pub fn root(self) -> Self {
        let x = self.x.sqrt();
        let (low, high) = ((self.x - self.error).max(0.0).sqrt(), (self.x + self.error).sqrt());
        Self { x, error: (x - low).max(high - x) + FUNCTION * x }
    }

    pub fn max(self, other: Self) -> Self {
        Self { x: self.x.max(other.x), error: self.error.max(other.error) }
    }

    pub fn relu(self) -> Self {
        self.max(Self::from(0.0))
    }

    pub fn leaky(self, slope: f64) -> Self {
        let x = if self.x > 0.0 { self.x } else { slope * self.x };
        Self { x, error: self.error * slope.abs().max(1.0) + FUNCTION * x.abs() }
    }

    pub fn elu(self) -> Self {
        let x = if self.x > 0.0 { self.x } else { self.x.exp_m1() };
        Self { x, error: self.error + FUNCTION * x.abs().min(1.0) }
    }

    pub fn exp(self) -> Self {
        let x = self.x.exp();
        Self { x, error: x * self.error.exp_m1() + FUNCTION * x * (1.0 + self.x.abs()) }
    }

    pub fn sigmoid(self) -> Self {
        Self { x: 1.0 / (1.0 + (-self.x).exp()), error: 0.25 * self.error + FUNCTION }
    }

    pub fn tanh(self) -> Self {
        Self { x: self.x.tanh(), error: self.error + FUNCTION }
    }

    /// Whether `found` may be the `f32` result. After a possible overflow, any value is accepted.
    pub fn may_be(self, found: f32) -> bool {
        let most = self.x.abs() + self.error;
        most.is_nan() || most >= 1e37 || (f64::from(found) - self.x).abs() <= self.error
    }

    /// Whether the error bound is narrow enough to reveal a wrong formula.
    pub fn is_narrow(self) -> bool {
        self.error <= 1e-2 * self.x.abs().max(1e-3)
    }
}

/// Matrix of bounded numbers, as rows.
pub type Rows = Vec<Vec<Bounded>>;

/// Product of two matrices with `width` columns in the result. The inner dimension may be zero.
pub fn product(a: &Rows, b: &Rows, width: usize) -> Rows {
    let entry = |row: &Vec<Bounded>, j: usize| Bounded::dot(row.iter().enumerate().map(|(k, &x)| (x, b[k][j])));
    a.iter().map(|row| (0..width).map(|j| entry(row, j)).collect()).collect()
}

/// Applies `f` to every entry.
pub fn map(rows: Rows, f: impl Fn(Bounded) -> Bounded) -> Rows {
    rows.into_iter().map(|row| row.into_iter().map(&f).collect()).collect()
}

/// Applies `f` to corresponding entries of two matrices.
pub fn zip(a: &Rows, b: &Rows, f: impl Fn(Bounded, Bounded) -> Bounded) -> Rows {
    a.iter().zip(b).map(|(a, b)| a.iter().zip(b).map(|(&a, &b)| f(a, b)).collect()).collect()
}

/// Adds a row to every row.
pub fn plus_row(rows: Rows, bias: &Rows) -> Rows {
    rows.into_iter().map(|row| row.into_iter().zip(&bias[0]).map(|(x, &b)| x.plus(b)).collect()).collect()
}
