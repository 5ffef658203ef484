//! Work and messages of the first rank for all ranks.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::Builder;
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
pub fn run_on_first<B: Backend>(
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
        let beat = move || {
            loop {
                match stopped.recv_timeout(BEAT) {
                    Err(RecvTimeoutError::Timeout) => drop(world.all_gather_bytes(&[AT_WORK])?),
                    Ok(()) | Err(RecvTimeoutError::Disconnected) => return Ok::<(), CommError>(()),
                }
            }
        };
        let beats = Builder::new().spawn_scoped(scope, beat).map_err(|error| {
            TrainError::rank(0, format!("it cannot start a thread: {error}; raise ulimit -u or -v"))
        })?;
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
