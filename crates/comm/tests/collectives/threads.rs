//! Ranks that are threads.

use std::fmt::Display;
use std::time::Duration;

use girih_comm::{CommError, RankFailure, Transport, threads};

use crate::laws::Rank;

fn on_threads<T: Send, E: Send + Display>(
    n: usize,
    deadline: Duration,
    work: impl Fn(Rank) -> Result<T, E> + Sync,
) -> Result<Vec<T>, RankFailure<E>> {
    threads::run(n, deadline, |rank| work(Box::new(rank)))
}

mod suite {
    crate::laws::laws!(super::on_threads, 40);
}

#[test]
fn threads_share_addresses() {
    let outcome = threads::run(2, Duration::from_secs(9), |world| -> Result<bool, CommError> {
        Ok(world.transport().is_one_process() && world.into_transport().among(&[0, 1]).is_one_process())
    });
    assert_eq!(outcome.expect("no rank fails"), [true; 2]);
}
