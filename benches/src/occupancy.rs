//! [`Occupancy`]: seconds in which a GPU computed, exchanged, or did both in an epoch, from a timeline.

use std::time::Duration;

use girih_kernels::Timeline;
use girih_pipeline::{Event, Trace};

/// Activity of a GPU in an epoch, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Occupancy {
    /// Duration of the epoch, from the end of the previous one.
    pub epoch: f64,
    /// Time with a kernel or copy in flight that belongs to no exchange.
    pub kernels: f64,
    /// Time with an exchange in flight. Its kernels start when their own GPU is ready, and then wait for the others.
    pub exchanges: f64,
    /// Time with both in flight.
    pub both: f64,
}

/// Activity of each GPU, by its number, in the last epoch but one. The last epoch is followed by an evaluation.
#[must_use]
pub fn of_epoch(trace: &Trace) -> Vec<Occupancy> {
    let marks = trace.tracks().iter().flat_map(|track| &track.events).filter(|event| event.category == Timeline::MARK);
    let epochs: Vec<&Event> = marks.filter(|event| event.name.starts_with("epoch")).collect();
    let Some(epoch) = epochs.len().checked_sub(2).map(|last_but_one| epochs[last_but_one]) else { return Vec::new() };
    let gpus = trace.tracks().chunk_by(|a, b| a.group == b.group).filter(|gpu| gpu[0].group.starts_with("cuda:"));
    let of_gpu = |gpu: &[girih_pipeline::Track]| {
        let covered = |is_meant: &dyn Fn(&str) -> bool| {
            let events = gpu.iter().flat_map(|track| &track.events).filter(|event| is_meant(event.category));
            covered(events.map(|event| (event.from.max(epoch.from), event.to.min(epoch.to))).collect())
        };
        let is_exchange = |category: &str| category == Timeline::EXCHANGE;
        let (exchanges, kernels) = (covered(&is_exchange), covered(&|category| !is_exchange(category)));
        let both = exchanges + kernels - covered(&|_| true);
        Occupancy { epoch: (epoch.to - epoch.from).as_secs_f64(), kernels, exchanges, both }
    };
    gpus.map(of_gpu).collect()
}

/// Length of the union of intervals, in seconds.
fn covered(mut stretches: Vec<(Duration, Duration)>) -> f64 {
    stretches.sort_unstable();
    let (mut sum, mut until) = (Duration::ZERO, Duration::ZERO);
    for (from, to) in stretches {
        sum += to.saturating_sub(from.max(until));
        until = until.max(to);
    }
    sum.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use girih_pipeline::Track;

    use super::*;

    fn event(name: &str, category: &'static str, (from, to): (u64, u64)) -> Event {
        let [from, to] = [from, to].map(Duration::from_secs);
        Event { name: name.to_owned(), category, from, to, item: None }
    }

    fn track(group: &str, events: Vec<Event>) -> Track {
        Track { group: group.to_owned(), name: "a row".to_owned(), events }
    }

    #[test]
    fn overlapping_intervals_are_counted_once() {
        let marks = [("before", 0, 10), ("epoch 1", 10, 30), ("epoch 2", 30, 60)];
        let marks = marks.map(|(name, from, to)| event(name, Timeline::MARK, (from, to))).to_vec();
        let kernels = vec![event("a", Timeline::KERNEL, (5, 12)), event("b", Timeline::KERNEL, (11, 15))];
        let others = vec![event("c", Timeline::EXCHANGE, (14, 20)), event("d", Timeline::COPY, (29, 40))];
        let trace = Trace::new(vec![track("girih", marks), track("cuda:0", kernels), track("cuda:0", others)]);
        let expected = Occupancy { epoch: 20.0, kernels: 6.0, exchanges: 6.0, both: 1.0 };
        assert_eq!(of_epoch(&trace), [expected]);
        assert!(of_epoch(&Trace::default()).is_empty());
    }
}
