//! [`Thinned`]: evenly spaced values of a long sequence.

/// Maximum number of kept values. It is even, so that the value after a full buffer has an index that is kept.
const MAX: usize = 4096;

/// Every k-th value of a sequence, from the first. k is 1 for the first 4096 values, and doubles whenever the buffer
/// is full. Memory is bounded, however long training takes.
#[derive(Clone, Debug, PartialEq)]
pub struct Thinned<T> {
    kept: Vec<T>,
    /// Distance between kept values.
    step: usize,
    len: usize,
}

impl<T> Default for Thinned<T> {
    fn default() -> Self {
        Self { kept: Vec::new(), step: 1, len: 0 }
    }
}

impl<T> Thinned<T> {
    /// Adds a value at the end.
    pub fn push(&mut self, value: T) {
        if self.len.is_multiple_of(self.step) {
            if self.kept.len() == MAX {
                let mut at = 0..;
                self.kept.retain(|_| at.next().is_some_and(|at: usize| at.is_multiple_of(2)));
                self.step *= 2;
            }
            self.kept.push(value);
        }
        self.len += 1;
    }

    /// Number of values pushed, kept or not.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no value was pushed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Kept values, in order.
    pub fn iter(&self) -> std::slice::Iter<'_, T> {
        self.kept.iter()
    }
}

impl<'a, T> IntoIterator for &'a Thinned<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
