//! [`Link`]: a process's place in a group.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::frame::{ExchangeId, Frame, LONGEST, LONGEST_GREETING};
use super::world::{Letter, World};
use crate::CommError;
use crate::transport::{Call, Parcel, Transport};

/// A process's place in a group, and the way to the others.
pub struct Link {
    world: Arc<World>,
    /// Names the group.
    path: Vec<u64>,
    /// The ranks of the whole world that belong to the group.
    members: Vec<usize>,
    place: usize,
    n_exchanges: AtomicU64,
}

impl Link {
    /// The group of all ranks.
    pub(super) fn new(world: &Arc<World>) -> Self {
        let (members, place) = ((0..world.size).collect(), world.rank);
        Self { world: Arc::clone(world), path: Vec::new(), members, place, n_exchanges: AtomicU64::new(0) }
    }

    fn send(&self, id: &ExchangeId, call: Call, parcels: &[Parcel]) -> Result<(), CommError> {
        let room = LONGEST - LONGEST_GREETING;
        if let Some(long) = parcels.iter().find(|parcel| parcel.len() as u64 > room) {
            let what = format!("a parcel of {} bytes; at most {room} are sent at once: use more ranks", long.len());
            return Err(CommError::Operand { operation: call.operation, what });
        }
        for (&member, parcel) in self.members.iter().zip(parcels).filter(|(member, _)| **member != self.world.rank) {
            let frame = Frame::Parcel { id: id.clone(), call: call.to_string(), parcel: parcel.clone() };
            self.world.send(member, frame);
        }
        Ok(())
    }

    /// The parcel of a letter, when its sender made the same call.
    fn open(&self, place: usize, call: Call, (theirs, parcel): Letter) -> Result<Parcel, CommError> {
        if theirs == call.to_string() {
            return Ok(parcel);
        }
        let (here, expected) = (self.world.rank, call.to_string());
        Err(CommError::Mismatch { here, expected, rank: self.members[place], found: theirs })
    }
}

impl Transport for Link {
    fn rank(&self) -> usize {
        self.place
    }

    fn size(&self) -> usize {
        self.members.len()
    }

    fn exchange(&self, call: Call, parcels: Vec<Parcel>) -> Result<Vec<Parcel>, CommError> {
        let id = (self.path.clone(), self.n_exchanges.fetch_add(1, Ordering::Relaxed));
        self.send(&id, call, &parcels)?;
        let letters = self.world.collect(&id, &self.members, call)?;
        let opened = letters.into_iter().zip(parcels).enumerate().map(|(place, (letter, own))| match letter {
            Some(letter) => self.open(place, call, letter),
            None => Ok(own),
        });
        opened.collect()
    }

    fn among(&self, members: &[usize]) -> Self {
        let place = members.iter().position(|&member| member == self.place).expect("a rank is among its group");
        let split_at = self.n_exchanges.load(Ordering::Relaxed);
        // Groups that part at the same exchange differ in their first member.
        let path = self.path.iter().copied().chain([split_at, members[0] as u64]).collect();
        let members = members.iter().map(|&member| self.members[member]).collect();
        Self { world: Arc::clone(&self.world), path, members, place, n_exchanges: AtomicU64::new(0) }
    }

    fn failure(&self) -> Option<CommError> {
        self.world.failure()
    }
}
