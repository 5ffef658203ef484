//! [`Transport`]: exchange of bytes between ranks. It has one implementation for threads, TCP and MPI each.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::{CommError, Payload};

/// Reference-counted bytes of a message, shared by its receivers. Conversion from a vector does not copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parcel(Arc<Vec<u8>>);

impl Parcel {
    /// The vector, unless the parcel is shared.
    #[must_use]
    pub fn into_vec(self) -> Option<Vec<u8>> {
        Arc::into_inner(self.0)
    }
}

impl Deref for Parcel {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl From<Vec<u8>> for Parcel {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Arc::new(bytes))
    }
}

impl From<&[u8]> for Parcel {
    fn from(bytes: &[u8]) -> Self {
        bytes.to_vec().into()
    }
}

impl<const N: usize> From<[u8; N]> for Parcel {
    fn from(bytes: [u8; N]) -> Self {
        bytes.to_vec().into()
    }
}

/// Description of a call. Ranks compare their calls and report a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Name of the operation.
    pub operation: &'static str,
    /// Values that must agree on all ranks, such as a root or a number of columns.
    pub detail: [usize; 2],
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}, {})", self.operation, self.detail[0], self.detail[1])
    }
}

/// Transport of bytes between the ranks of a group.
pub trait Transport: Send + Sync + Sized + 'static {
    /// Rank in this group, from 0.
    fn rank(&self) -> usize;

    /// Global ranks of the members of this group, in its order.
    fn members(&self) -> &[usize];

    /// Number of ranks in the group.
    fn size(&self) -> usize {
        self.members().len()
    }

    /// Global rank of the member `place`, which is below [`size`](Self::size). Errors name it.
    fn member(&self, place: usize) -> usize {
        self.members()[place]
    }

    /// Sends `parcels[i]` to rank `i`. Returns the parcels for this rank, in the order of the senders.
    ///
    /// # Errors
    /// When a rank has failed, is late, or makes another call.
    fn exchange(&self, call: Call, parcels: Vec<Parcel>) -> Result<Vec<Parcel>, CommError>;

    /// Transport for a subgroup: the ranks that `members` lists, including this one. All ranks call it after the same
    /// exchange. Their lists are equal or disjoint.
    fn among(&self, members: &[usize]) -> Self;

    /// Failure of any rank in the world that is known now, without waiting. Always `None` if the transport does not
    /// learn of failures.
    fn failure(&self) -> Option<CommError>;

    /// Whether all ranks are threads of one process, so that they can share addresses of memory.
    fn is_one_process(&self) -> bool {
        false
    }
}

/// Name of the exchange that splits a group.
const SPLIT: &str = "split";

/// Ranks with the same `colour`, ordered by key and then by rank. All ranks call it together.
///
/// # Errors
/// When a rank fails, is late, or calls something else.
pub fn members<T: Transport>(transport: &T, colour: usize, key: usize) -> Result<Vec<usize>, CommError> {
    let mine = [(colour as u64).to_le_bytes(), (key as u64).to_le_bytes()].concat();
    let mut members: Vec<(u64, usize)> = Vec::new();
    for (place, theirs) in all_gather(transport, SPLIT, &mine)?.iter().enumerate() {
        let theirs = Payload::new(theirs, transport.member(place), SPLIT).exactly::<u64>(2)?;
        if theirs[0] == colour as u64 {
            members.push((theirs[1], place));
        }
    }
    members.sort_unstable();
    Ok(members.into_iter().map(|(_, place)| place).collect())
}

/// All-gather of messages, in the order of ranks.
///
/// # Errors
/// When a rank fails, is late, or calls something else.
pub fn all_gather<T: Transport>(
    transport: &T,
    operation: &'static str,
    message: &[u8],
) -> Result<Vec<Parcel>, CommError> {
    transport.exchange(Call { operation, detail: [0, 0] }, vec![Parcel::from(message); transport.size()])
}

/// All-to-all of messages: sends the `i`-th message to rank `i`. Returns the messages for this rank, in the order of
/// the senders.
///
/// # Errors
/// When a rank fails, is late, or calls something else; when the number of messages is not that of ranks.
pub fn all_to_all<T: Transport>(
    transport: &T,
    operation: &'static str,
    messages: Vec<Parcel>,
) -> Result<Vec<Parcel>, CommError> {
    if messages.len() != transport.size() {
        let what = format!("{} messages for {} ranks", messages.len(), transport.size());
        return Err(CommError::Operand { operation, what });
    }
    transport.exchange(Call { operation, detail: [0, 0] }, messages)
}

/// Name of a group. For each split that led to it, it has the number of exchanges before the split and the first
/// member.
pub(crate) type Path = Arc<[u64]>;

/// Group and number of an exchange, from 0.
pub(crate) type ExchangeId = (Path, u64);

/// Membership of a rank in a group.
#[derive(Debug)]
pub(crate) struct Group {
    pub path: Path,
    /// Global ranks of the members, in the order of the group.
    pub members: Arc<[usize]>,
    /// Index of this rank in `members`.
    pub place: usize,
    n_exchanges: AtomicU64,
}

impl Group {
    /// Group of all ranks.
    pub fn of_all(rank: usize, size: usize) -> Self {
        Self::new(Arc::from([]), (0..size).collect(), rank)
    }

    fn new(path: Path, members: Arc<[usize]>, place: usize) -> Self {
        Self { path, members, place, n_exchanges: AtomicU64::new(0) }
    }

    /// Id of the next exchange.
    pub fn next(&self) -> ExchangeId {
        (Arc::clone(&self.path), self.n_exchanges.fetch_add(1, Ordering::Relaxed))
    }

    /// Subgroup of the members with the indices `members`, which include this rank.
    ///
    /// # Panics
    /// When they do not include this rank.
    pub fn among(&self, members: &[usize]) -> Self {
        let place = members.iter().position(|&member| member == self.place).expect("a rank is among its group");
        let split_at = self.n_exchanges.load(Ordering::Relaxed);
        // Groups that split at the same exchange differ in their first member.
        let path = self.path.iter().copied().chain([split_at, members[0] as u64]).collect();
        Self::new(path, members.iter().map(|&member| self.members[member]).collect(), place)
    }
}

/// Upper bound on a wait. It keeps the sum of the clock and a deadline from overflowing.
const LONGEST_WAIT: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Deadline of an operation that starts now, at most a hundred years from now.
#[must_use]
pub fn due(deadline: Duration) -> Instant {
    Instant::now() + deadline.min(LONGEST_WAIT)
}

/// Empty parcel, for ranks that get no bytes.
pub(crate) fn nothing() -> Parcel {
    Parcel::default()
}
