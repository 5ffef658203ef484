//! Repeated timings: alternating contestants, and summaries of their times.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::Error;

/// Number of runs of each contestant.
#[derive(Clone, Copy, Debug, Default)]
pub struct Protocol {
    /// Untimed runs before the first timed one.
    pub warm_up: usize,
    /// Timed runs.
    pub repeats: usize,
}

/// Contestant: a name, and a function that runs once and returns seconds.
pub struct Contestant<'a> {
    name: String,
    run: Box<dyn FnMut() -> Result<f64, Error> + 'a>,
}

impl<'a> Contestant<'a> {
    /// Contestant that measures its own time: `run` returns seconds.
    pub fn timed(name: impl Into<String>, run: impl FnMut() -> Result<f64, Error> + 'a) -> Self {
        Self { name: name.into(), run: Box::new(run) }
    }

    /// Contestant whose whole call is timed.
    pub fn new<E: Into<Error>>(name: impl Into<String>, mut work: impl FnMut() -> Result<(), E> + 'a) -> Self {
        Self::timed(name, move || {
            let start = Instant::now();
            work().map_err(Into::into)?;
            Ok(start.elapsed().as_secs_f64())
        })
    }
}

/// Summary of repeated timings, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Median.
    pub median_s: f64,
    /// Minimum.
    pub min_s: f64,
    /// Interquartile range, a measure of how unsteady the machine was.
    pub iqr_s: f64,
    /// Number of timed runs.
    pub repeats: usize,
}

impl Summary {
    /// Summary of timings in seconds.
    ///
    /// # Panics
    /// Without any timing.
    #[must_use]
    pub fn of(seconds: &[f64]) -> Self {
        assert!(!seconds.is_empty(), "a summary needs at least one timing");
        let mut sorted = seconds.to_vec();
        sorted.sort_by(f64::total_cmp);
        Self {
            median_s: quantile(&sorted, 0.5),
            min_s: sorted[0],
            iqr_s: quantile(&sorted, 0.75) - quantile(&sorted, 0.25),
            repeats: sorted.len(),
        }
    }

    /// All times multiplied by `factor`.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Self {
        let Self { median_s, min_s, iqr_s, repeats } = self;
        Self { median_s: factor * median_s, min_s: factor * min_s, iqr_s: factor * iqr_s, repeats }
    }
}

/// Runs all contestants alternately, `repeats` rounds after the warm-up. Returns the name and summary of each.
///
/// # Errors
/// When a contestant fails; there are no summaries then.
pub fn compete(protocol: Protocol, mut contestants: Vec<Contestant<'_>>) -> Result<Vec<(String, Summary)>, Error> {
    let mut seconds = vec![Vec::with_capacity(protocol.repeats); contestants.len()];
    for round in 0..protocol.warm_up + protocol.repeats {
        for (contestant, seconds) in contestants.iter_mut().zip(&mut seconds) {
            let taken = (contestant.run)().map_err(|e| format!("{}: {e}", contestant.name))?;
            if round >= protocol.warm_up {
                seconds.push(taken);
            }
        }
    }
    Ok(contestants.into_iter().zip(seconds).map(|(c, seconds)| (c.name, Summary::of(&seconds))).collect())
}

/// Quantile of a sorted, non-empty slice, by linear interpolation between two adjacent values.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let position = share * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[position.floor() as usize], sorted[position.ceil() as usize]);
    below + (above - below) * position.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_does_not_depend_on_the_order() {
        let summary = Summary::of(&[4.0, 1.0, 3.0, 2.0, 5.0]);
        assert_eq!(summary, Summary { median_s: 3.0, min_s: 1.0, iqr_s: 2.0, repeats: 5 });
        assert_eq!(summary, Summary::of(&[1.0, 2.0, 3.0, 4.0, 5.0]));
    }

    #[test]
    fn quantiles_lie_between_their_neighbors() {
        assert_eq!(quantile(&[1.0, 2.0], 0.5), 1.5);
        assert_eq!(quantile(&[7.0], 0.75), 7.0);
    }

    #[test]
    fn contestants_take_turns_and_warm_up_runs_are_not_counted() {
        let order = std::cell::RefCell::new(Vec::new());
        let contestant = |name: &'static str| {
            let order = &order;
            Contestant::timed(name, move || {
                order.borrow_mut().push(name);
                Ok(order.borrow().len() as f64)
            })
        };
        let protocol = Protocol { warm_up: 1, repeats: 2 };
        let results = compete(protocol, vec![contestant("a"), contestant("b")]).unwrap();
        assert_eq!(*order.borrow(), ["a", "b", "a", "b", "a", "b"]);
        assert_eq!(results[0], ("a".to_owned(), Summary::of(&[3.0, 5.0])));
    }

    #[test]
    fn a_failing_contestant_is_named() {
        let failing = Contestant::new("slow", || Err::<(), _>("out of patience"));
        let error = compete(Protocol { warm_up: 0, repeats: 1 }, vec![failing]).unwrap_err();
        assert_eq!(error.to_string(), "slow: out of patience");
    }
}
