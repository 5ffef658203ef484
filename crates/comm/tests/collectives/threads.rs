//! Ranks that are threads.

use std::fmt::Display;
use std::time::Duration;

use girih_comm::{RankFailure, threads};

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
