//! What one rank does or says for all.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use girih_comm::{Collective, CommError};
use girih_compute::Backend;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::TrainError;

/// How often the first rank says that it is at work.
const BEAT: Duration = Duration::from_secs(1);
/// What it says then, and before its result.
const AT_WORK: u8 = 0;
const DONE: u8 = 1;

/// The message that the first rank comes to; all ranks call it together. The others wait as long as it takes: what has
/// to come within the deadline is a sign that it goes on, which a thread beside the work gives.
///
/// # Errors
/// As `work`; when a rank fails, or the first is silent.
pub(crate) fn first_does<B: Backend>(
    world: &dyn Collective<B>,
    work: impl FnOnce() -> Result<Vec<u8>, TrainError>,
) -> Result<Vec<u8>, TrainError> {
    if world.rank() > 0 {
        loop {
            let mut all = world.all_gather_bytes(&[])?;
            match all[0].split_first() {
                Some((&DONE, _)) => return Ok(all.swap_remove(0).split_off(1)),
                Some((&AT_WORK, [])) => {}
                _ => return Err(TrainError::rank(0, "it says neither that it is at work nor what came of it")),
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

/// What the first rank says of what all ask for together; the others may have nothing to say.
///
/// # Errors
/// When a rank fails, or the first says nothing that can be read: `what` names it.
pub(crate) fn first_tells<B: Backend, T: Serialize + DeserializeOwned>(
    world: &dyn Collective<B>,
    what: &str,
    mine: Option<&T>,
) -> Result<T, TrainError> {
    let mine = mine.map_or_else(Vec::new, told);
    read_told(what, &world.all_gather_bytes(&mine)?[0])
}

/// What a rank says, as the others [read](read_told) it.
pub(crate) fn told<T: Serialize>(mine: &T) -> Vec<u8> {
    serde_json::to_vec(mine).expect("numbers and names")
}

/// What the first rank has said.
///
/// # Errors
/// When it cannot be read: `what` names it.
pub(crate) fn read_told<T: DeserializeOwned>(what: &str, told: &[u8]) -> Result<T, TrainError> {
    serde_json::from_slice(told)
        .map_err(|error| TrainError::rank(0, format!("what it says of {what} is unreadable: {error}")))
}

#[cfg(test)]
mod tests {
    use girih_comm::threads;
    use girih_compute::Cpu;

    use super::*;

    /// What three ranks come to of which the first works so long, longer than the deadline.
    fn on_three(seconds: f64, work: fn() -> Result<Vec<u8>, TrainError>) -> Result<Vec<Vec<u8>>, String> {
        let done = threads::run(3, Duration::from_millis(1500), |world| {
            let world: Box<dyn Collective<Cpu>> = Box::new(world);
            first_does(&*world, || {
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
