//! Work and messages of the first rank for all ranks.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use girih_comm::{Collective, CommError};
use girih_compute::Backend;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::TrainError;

/// Interval of the first rank's signs of life.
const BEAT: Duration = Duration::from_secs(1);
/// First byte of a sign of life, and of the message with the result.
const AT_WORK: u8 = 0;
const DONE: u8 = 1;

/// Runs `work` on the first rank, and returns its message on all ranks; all ranks call it together. The other ranks
/// wait without a limit: the deadline applies to the signs of life, which a thread beside the work sends.
///
/// # Errors
/// As `work`; when a rank fails, or the first rank is silent.
pub(crate) fn run_on_first<B: Backend>(
    world: &dyn Collective<B>,
    work: impl FnOnce() -> Result<Vec<u8>, TrainError>,
) -> Result<Vec<u8>, TrainError> {
    if world.rank() > 0 {
        loop {
            let mut all = world.all_gather_bytes(&[])?;
            match all[0].split_first() {
                Some((&DONE, _)) => return Ok(all.swap_remove(0).split_off(1)),
                Some((&AT_WORK, [])) => {}
                _ => return Err(TrainError::rank(0, "it sent neither a sign of life nor its result")),
            }
        }
    }
    let (stop, stopped) = channel::<()>();
    let done = std::thread::scope(|scope| {
        let beats = scope.spawn(move || {
            loop {
                match stopped.recv_timeout(BEAT) {
                    Err(RecvTimeoutError::Timeout) => drop(world.all_gather_bytes(&[AT_WORK])?),
                    Ok(()) | Err(RecvTimeoutError::Disconnected) => return Ok::<(), CommError>(()),
                }
            }
        });
        let done = {
            // Dropped with the work, also when that panics.
            let _stop = stop;
            work()
        };
        beats.join().expect("beats do not panic")?;
        done
    })?;
    world.all_gather_bytes(&[&[DONE], &done[..]].concat())?;
    Ok(done)
}

/// Broadcast of a value that the first rank has. The other ranks may pass `None`.
///
/// # Errors
/// When a rank fails, or the message of the first is unreadable: `what` names it.
pub(crate) fn broadcast_from_first<B: Backend, T: Serialize + DeserializeOwned>(
    world: &dyn Collective<B>,
    what: &str,
    mine: Option<&T>,
) -> Result<T, TrainError> {
    let mine = mine.map_or_else(Vec::new, encode_message);
    decode_message(what, &world.all_gather_bytes(&mine)?[0])
}

/// Message of a value, which [`decode_message`] reads.
pub(crate) fn encode_message<T: Serialize>(mine: &T) -> Vec<u8> {
    serde_json::to_vec(mine).expect("numbers and names")
}

/// Value in a message of the first rank.
///
/// # Errors
/// When it cannot be read: `what` names it.
pub(crate) fn decode_message<T: DeserializeOwned>(what: &str, message: &[u8]) -> Result<T, TrainError> {
    serde_json::from_slice(message)
        .map_err(|error| TrainError::rank(0, format!("what it says of {what} is unreadable: {error}")))
}

#[cfg(test)]
mod tests {
    use girih_comm::threads;
    use girih_compute::Cpu;

    use super::*;

    /// Results of three ranks, of which the first works for `seconds`, with a deadline of 1.5 s.
    fn on_three(seconds: f64, work: fn() -> Result<Vec<u8>, TrainError>) -> Result<Vec<Vec<u8>>, String> {
        let done = threads::run(3, Duration::from_millis(1500), |world| {
            let world: Box<dyn Collective<Cpu>> = Box::new(world);
            run_on_first(&*world, || {
                std::thread::sleep(Duration::from_secs_f64(seconds));
                work()
            })
        });
        done.map_err(|failure| failure.message)
    }

    #[test]
    fn all_have_what_the_first_came_to_however_long_it_took() {
        for seconds in [0.0, 3.2] {
            assert_eq!(on_three(seconds, || Ok(vec![7, 8])), Ok(vec![vec![7, 8]; 3]));
        }
        assert_eq!(on_three(0.0, || Ok(Vec::new())), Ok(vec![Vec::new(); 3]));
    }

    #[test]
    fn its_error_ends_all() {
        let message = on_three(1.2, || Err(TrainError::invalid("no scores today"))).unwrap_err();
        assert!(message.contains("no scores today"), "{message}");
    }
}
