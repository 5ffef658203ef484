//! Laws of items that are taken with a limit of time.

use std::convert::Infallible;
use std::task::Poll;
use std::thread;
use std::time::Duration;

use girih_pipeline::{Items, Pipeline, StageError};

/// Items in the order of the source, taken with a limit of time; and the number of times that it was over.
fn taken_within(mut items: Items<'_, u64, Infallible>, limit: Duration) -> (Vec<u64>, usize) {
    let (mut taken, mut n_pending) = (Vec::new(), 0);
    loop {
        match items.next_within(limit) {
            Poll::Pending => n_pending += 1,
            Poll::Ready(Some(item)) => taken.push(item.expect("no stage fails")),
            Poll::Ready(None) => return (taken, n_pending),
        }
    }
}

#[test]
fn an_item_that_takes_longer_than_the_limit_comes_later() {
    let slow = Pipeline::<u64, Infallible>::new(0..4).stage("sleep", || {
        |i| {
            thread::sleep(Duration::from_millis(20));
            Ok(i)
        }
    });
    let (taken, n_pending) = taken_within(slow.start().unwrap(), Duration::from_millis(2));
    assert_eq!(taken, [0, 1, 2, 3]);
    assert!(n_pending >= 4, "{n_pending} times");

    // Without a stage, the caller's thread makes items: none is pending.
    let source = Pipeline::<u64, Infallible>::new(0..4).start().unwrap();
    assert_eq!(taken_within(source, Duration::ZERO), (vec![0, 1, 2, 3], 0));
}

#[test]
fn a_failure_ends_what_is_taken_with_a_limit() {
    let fails = Pipeline::<u64, &str>::new(0..9).stage("fail", || |i| if i < 2 { Ok(i) } else { Err("over") });
    let mut items = fails.start().unwrap();
    let long = Duration::from_secs(20);
    assert!(matches!(items.next_within(long), Poll::Ready(Some(Ok(0)))));
    assert!(matches!(items.next_within(long), Poll::Ready(Some(Ok(1)))));
    let Poll::Ready(Some(Err(StageError::Failed { item: 2, source: "over", .. }))) = items.next_within(long) else {
        panic!("item 2 fails")
    };
    assert!(matches!(items.next_within(long), Poll::Ready(None)));
}
