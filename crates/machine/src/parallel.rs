//! Parallel loops whose machine code is made once.
//!
//! Each call of a parallel iterator compiles rayon's splitting, stealing and joining anew, for every type of value.
//! These loops compile it once for the whole program, and call the body through a pointer: once for a piece of work,
//! which should take a microsecond or more. They run on rayon's current pool.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;

/// Values of a piece of [`convert`] and [`position`].
const PIECE: usize = 1 << 14;

/// Calls `body` once with each number below `n`.
fn for_each_below(n: usize, body: &(dyn Fn(usize) + Sync)) {
    (0..n).into_par_iter().for_each(body);
}

/// Calls `body` once with each item. Items are usually disjoint parts of slices, from `chunks_mut` and `zip`.
pub fn for_each<T: Send>(items: impl IntoIterator<Item = T>, body: impl Fn(T) + Sync) {
    let items: Vec<Mutex<Option<T>>> = items.into_iter().map(|item| Mutex::new(Some(item))).collect();
    for_each_below(items.len(), &|i| {
        let item = items[i].lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(item) = item {
            body(item);
        }
    });
}

/// Returns `body(item)` of each item, in order.
pub fn map<T: Send, R: Send>(items: impl ExactSizeIterator<Item = T>, body: impl Fn(T) -> R + Sync) -> Vec<R> {
    let mut results: Vec<Option<R>> = (0..items.len()).map(|_| None).collect();
    for_each(items.zip(&mut results), |(item, result)| *result = Some(body(item)));
    results.into_iter().flatten().collect()
}

/// Returns `of(value)` of each value, in order.
pub fn convert<S: Copy + Sync, T: Copy + Default + Send>(values: &[S], of: impl Fn(S) -> T + Sync) -> Vec<T> {
    let mut converted = vec![T::default(); values.len()];
    for_each(converted.chunks_mut(PIECE).zip(values.chunks(PIECE)), |(to, from)| {
        for (to, &from) in to.iter_mut().zip(from) {
            *to = of(from);
        }
    });
    converted
}

/// Returns the first position whose value is `wanted`.
pub fn position<T: Sync>(values: &[T], wanted: impl Fn(&T) -> bool + Sync) -> Option<usize> {
    first_below(values.len(), &|range| values[range.clone()].iter().position(&wanted).map(|at| range.start + at))
}

/// Least number below `n` that `within` finds in a range of numbers.
fn first_below(n: usize, within: &(dyn Fn(Range<usize>) -> Option<usize> + Sync)) -> Option<usize> {
    let first = AtomicUsize::new(n);
    for_each_below(n.div_ceil(PIECE), &|piece| {
        let start = piece * PIECE;
        if start < first.load(Ordering::Relaxed)
            && let Some(at) = within(start..n.min(start + PIECE))
        {
            first.fetch_min(at, Ordering::Relaxed);
        }
    });
    Some(first.into_inner()).filter(|&first| first < n)
}

#[cfg(test)]
mod tests {
    use super::*;

    const N: usize = 3 * PIECE + 17;

    #[test]
    fn each_item_is_passed_once_and_results_are_in_order() {
        let mut values = vec![0usize; N];
        for_each(values.chunks_mut(100).enumerate(), |(chunk, values)| values.iter_mut().for_each(|v| *v += chunk + 1));
        assert!(values.iter().enumerate().all(|(i, &value)| value == i / 100 + 1));
        assert_eq!(map(0..N, |i| 2 * i), (0..N).map(|i| 2 * i).collect::<Vec<_>>());
        assert_eq!(convert(&values, |v| v as f32), values.iter().map(|&v| v as f32).collect::<Vec<_>>());
        for_each(std::iter::empty::<usize>(), |_| panic!("there are no items"));
    }

    #[test]
    fn a_position_is_the_first_one() {
        for wanted in [vec![], vec![0], vec![N - 1], vec![PIECE, PIECE - 1, N - 1], vec![2 * PIECE + 5, 2 * PIECE + 6]]
        {
            let mut values = vec![false; N];
            wanted.iter().for_each(|&at| values[at] = true);
            assert_eq!(position(&values, |&value| value), wanted.iter().min().copied(), "{wanted:?}");
        }
        assert_eq!(position(&[], |_: &u8| true), None);
    }

    #[test]
    fn a_panic_of_the_body_ends_the_loop() {
        let ended = std::panic::catch_unwind(|| for_each(0..N, |i| assert_ne!(i, 40, "of the body")));
        assert!(ended.is_err());
    }
}
