//! [`Link`]: transport of a process in a group.

use std::sync::Arc;

use super::frame::{LONGEST, LONGEST_GREETING};
use super::state::Letter;
use super::world::World;
use crate::CommError;
use crate::transport::{Call, Group, Parcel, Transport};

/// Membership of a process in a group, with the connections to the others.
pub struct Link {
    world: Arc<World>,
    group: Group,
}

impl Link {
    /// Link of the group of all ranks.
    pub(super) fn new(world: &Arc<World>) -> Self {
        Self::join(world, Group::of_all(world.rank, world.size))
    }

    fn join(world: &Arc<World>, group: Group) -> Self {
        world.join(&group.path);
        Self { world: Arc::clone(world), group }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.world.leave(&self.group.path);
    }
}

/// Refuses parcels that are too long for a frame.
///
/// # Errors
/// At the first one.
pub(super) fn check_lengths(call: Call, parcels: &[Parcel]) -> Result<(), CommError> {
    let room = LONGEST - LONGEST_GREETING;
    match parcels.iter().find(|parcel| parcel.len() as u64 > room) {
        None => Ok(()),
        Some(long) => {
            let what = format!("a parcel of {} bytes; at most {room} are sent at once: use more ranks", long.len());
            Err(CommError::Operand { operation: call.operation, what })
        }
    }
}

/// Parcels of an exchange, if all senders made the same call. `own[i]` is this rank's parcel for member `i`; the one
/// for itself is returned at its index.
///
/// # Errors
/// At the first rank that made another call.
pub(super) fn open(
    group: &Group,
    call: Call,
    letters: Vec<Option<Letter>>,
    own: Vec<Parcel>,
) -> Result<Vec<Parcel>, CommError> {
    let (here, expected) = (group.members[group.place], call.to_string());
    let opened = letters.into_iter().zip(own).zip(&group.members[..]).map(|((letter, own), &rank)| match letter {
        None => Ok(own),
        Some((theirs, parcel)) if theirs == expected => Ok(parcel),
        Some((found, _)) => Err(CommError::Mismatch { here, expected: expected.clone(), rank, found }),
    });
    opened.collect()
}

impl Transport for Link {
    fn rank(&self) -> usize {
        self.group.place
    }

    fn members(&self) -> &[usize] {
        &self.group.members
    }

    fn exchange(&self, call: Call, parcels: Vec<Parcel>) -> Result<Vec<Parcel>, CommError> {
        check_lengths(call, &parcels)?;
        let letters = self.world.exchange(&self.group.next(), &self.group.members, call, &parcels)?;
        open(&self.group, call, letters, parcels)
    }

    fn among(&self, members: &[usize]) -> Self {
        Self::join(&self.world, self.group.among(members))
    }

    fn failure(&self) -> Option<CommError> {
        self.world.failure()
    }
}
