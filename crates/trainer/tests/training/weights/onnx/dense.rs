//! [`Dense`]: arrays in `f64`, and ONNX's operations on them as its specification reads.

/// Array in C order. Integers and truth values are numbers, too.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Dense {
    pub(crate) shape: Vec<usize>,
    pub(crate) values: Vec<f64>,
}

impl Dense {
    pub(crate) fn new(shape: &[usize], values: Vec<f64>) -> Self {
        assert_eq!(shape.iter().product::<usize>(), values.len(), "{shape:?}");
        Self { shape: shape.to_vec(), values }
    }

    /// List of numbers.
    pub(super) fn list(values: Vec<f64>) -> Self {
        Self { shape: vec![values.len()], values }
    }

    /// Numbers as lengths.
    pub(super) fn lengths(&self) -> Vec<usize> {
        self.values.iter().map(|&value| value as usize).collect()
    }

    /// The only number.
    fn one(&self) -> f64 {
        assert_eq!(self.values.len(), 1, "{:?}", self.shape);
        self.values[0]
    }

    pub(super) fn map(&self, change: impl Fn(f64) -> f64) -> Self {
        Self { shape: self.shape.clone(), values: self.values.iter().map(|&value| change(value)).collect() }
    }

    /// Number of values of a row.
    fn width(&self) -> usize {
        self.shape[1..].iter().product()
    }

    fn row(&self, at: usize) -> &[f64] {
        &self.values[at * self.width()..][..self.width()]
    }

    /// Rows in the given order.
    fn rows(&self, order: impl Iterator<Item = usize>) -> Self {
        let rows: Vec<&[f64]> = order.map(|at| self.row(at)).collect();
        let shape = [&[rows.len()], &self.shape[1..]].concat();
        Self::new(&shape, rows.concat())
    }

    pub(super) fn gather(&self, at: &Self) -> Self {
        let rows = self.rows(at.lengths().into_iter());
        Self::new(&[&at.shape, &self.shape[1..]].concat(), rows.values)
    }

    pub(super) fn compress(&self, keep: &Self) -> Self {
        self.rows((0..self.shape[0]).filter(|&at| keep.values[at] != 0.0))
    }

    pub(super) fn concat(&self, other: &Self) -> Self {
        assert_eq!(self.shape[1..], other.shape[1..]);
        let shape = [&[self.shape[0] + other.shape[0]], &self.shape[1..]].concat();
        Self::new(&shape, [&*self.values, &*other.values].concat())
    }

    pub(super) fn range(start: &Self, end: &Self, step: &Self) -> Self {
        assert_eq!((start.one(), step.one()), (0.0, 1.0));
        Self::list((0..end.one() as usize).map(|i| i as f64).collect())
    }

    pub(super) fn unsqueeze(&self, axis: &Self) -> Self {
        let mut shape = self.shape.clone();
        shape.insert(axis.one() as usize, 1);
        Self::new(&shape, self.values.clone())
    }

    pub(super) fn squeeze(&self, axis: &Self) -> Self {
        let mut shape = self.shape.clone();
        assert_eq!(shape.remove(axis.one() as usize), 1);
        Self::new(&shape, self.values.clone())
    }

    pub(super) fn reshape(&self, to: &Self) -> Self {
        let kept = |(axis, &len): (usize, &f64)| if len == 0.0 { self.shape[axis] as f64 } else { len };
        let lengths: Vec<f64> = to.values.iter().enumerate().map(kept).collect();
        let known: usize = lengths.iter().filter(|&&len| len > 0.0).map(|&len| len as usize).product();
        let length = |&len: &f64| if len < 0.0 { self.values.len() / known } else { len as usize };
        Self::new(&lengths.iter().map(length).collect::<Vec<_>>(), self.values.clone())
    }

    /// Combination of two arrays whose missing or single dimensions are repeated.
    pub(super) fn with(&self, other: &Self, combine: impl Fn(f64, f64) -> f64) -> Self {
        let rank = self.shape.len().max(other.shape.len());
        let [a, b] = [self, other].map(|array| [&vec![1; rank - array.shape.len()], &*array.shape].concat());
        let length = |(&a, &b): (&usize, &usize)| {
            assert!(a == b || a == 1 || b == 1, "{:?} and {:?}", self.shape, other.shape);
            if a == 1 { b } else { a }
        };
        let shape: Vec<usize> = a.iter().zip(&b).map(length).collect();
        let at = |from: &[usize], mut index: usize| {
            let (mut position, mut step) = (0, 1);
            for (len, own) in shape.iter().zip(from).rev() {
                position += if *own == 1 { 0 } else { index % len * step };
                index /= len;
                step *= own;
            }
            position
        };
        let n: usize = shape.iter().product();
        let values = (0..n).map(|i| combine(self.values[at(&a, i)], other.values[at(&b, i)])).collect();
        Self::new(&shape, values)
    }

    pub(super) fn expand(&self, to: &Self) -> Self {
        let shape = to.lengths();
        self.with(&Self::new(&shape, vec![0.0; shape.iter().product()]), |a, _| a)
    }

    /// Rows of `self`, to which `updates` are reduced at the rows that `at` names.
    pub(super) fn scatter(&self, at: &Self, updates: &Self, reduce: impl Fn(f64, f64) -> f64) -> Self {
        assert_eq!(at.shape, updates.shape);
        assert_eq!(self.shape[1..], updates.shape[1..]);
        let (width, mut result) = (self.width(), self.clone());
        for (i, (&row, &update)) in at.values.iter().zip(&updates.values).enumerate() {
            let slot = &mut result.values[row as usize * width + i % width];
            *slot = reduce(*slot, update);
        }
        result
    }

    /// `self · weightᵀ + bias`.
    pub(super) fn gemm(&self, weight: &Self, bias: Option<&Self>) -> Self {
        let [n, inputs] = *self.shape else { panic!("{:?}", self.shape) };
        assert_eq!(inputs, weight.shape[1]);
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let value = |row, col| dot(self.row(row), weight.row(col)) + bias.map_or(0.0, |bias| bias.values[col]);
        let outputs = weight.shape[0];
        Self::new(&[n, outputs], (0..n * outputs).map(|i| value(i / outputs, i % outputs)).collect())
    }

    /// Sum along one axis, which disappears.
    pub(super) fn sum(&self, axis: &Self) -> Self {
        let axis = if axis.one() < 0.0 { self.shape.len() - 1 } else { axis.one() as usize };
        let (outer, len): (usize, usize) = (self.shape[..axis].iter().product(), self.shape[axis]);
        let inner: usize = self.shape[axis + 1..].iter().product();
        let sum = |o: usize, i: usize| (0..len).map(|k| self.values[(o * len + k) * inner + i]).sum::<f64>();
        let shape = [&self.shape[..axis], &self.shape[axis + 1..]].concat();
        Self::new(&shape, (0..outer * inner).map(|at| sum(at / inner, at % inner)).collect())
    }
}
