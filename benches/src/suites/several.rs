//! [`Times`]: times on several devices, compared with one.

use girih_compute::Dtype;

use crate::{Case, Goal};

/// Milliseconds of training variants, each with its number of devices.
pub(super) struct Times {
    precision: Dtype,
    ways: Vec<(usize, f64)>,
}

impl Times {
    /// No times yet; all variants have this storage type.
    pub(super) fn of(precision: Dtype) -> Self {
        Self { precision, ways: Vec::new() }
    }

    /// Records a variant. With several devices, adds its speedup over the fastest variant on one device so far.
    pub(super) fn note(&mut self, n_devices: usize, case: Case) -> Case {
        let ms = 1e3 * case.time.median_s;
        self.ways.push((n_devices, ms));
        match self.fastest_ms(1) {
            Some(one_ms) if n_devices > 1 => case.with("x_one", one_ms / ms),
            _ => case,
        }
    }

    /// Milliseconds of the fastest variant on this number of devices.
    pub(super) fn fastest_ms(&self, n_devices: usize) -> Option<f64> {
        let of_n = self.ways.iter().filter(|(n, _)| *n == n_devices);
        of_n.map(|&(_, ms)| ms).min_by(f64::total_cmp)
    }

    /// Goal that the fastest variant on `n_devices` is `times` as fast as one device, if both were measured.
    pub(super) fn goal(&self, n_devices: usize, times: f64) -> Option<Goal> {
        let name = self.precision.name();
        let what = format!("the fastest of {n_devices} devices, {name}: ms, {times} times as fast as one");
        Some(Goal::at_most(what, self.fastest_ms(n_devices)?, self.fastest_ms(1)? / times))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timing::Summary;

    #[test]
    fn several_devices_are_held_against_the_fastest_way_of_one() {
        let mut times = Times::of(Dtype::F32);
        assert!(times.goal(2, 1.7).is_none());
        let mut x_one = |n, ms: f64| {
            let case = times.note(n, Case::new("a way", Summary::of(&[ms / 1e3])));
            case.metrics.get("x_one").map(|x| x.round())
        };
        assert_eq!(
            [x_one(1, 100.0), x_one(1, 90.0), x_one(2, 45.0), x_one(2, 60.0)],
            [None, None, Some(2.0), Some(2.0)]
        );
        let goal = times.goal(2, 1.8).unwrap();
        assert_eq!((goal.found.round(), goal.at_most.round()), (45.0, 50.0));
        assert!(goal.is_met && times.goal(4, 3.0).is_none());
    }
}
