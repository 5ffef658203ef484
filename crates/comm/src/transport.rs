//! [`Transport`]: parcels of bytes between ranks, the one thing that differs from machine to machine.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::{CommError, Payload};

/// Bytes on their way; a parcel for several ranks is shared. One that is made of a vector is that vector, without a
/// copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parcel(Arc<Vec<u8>>);

impl Parcel {
    /// The vector, unless another rank has the parcel, too.
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

/// What a rank calls; ranks whose calls differ are told so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The name of the operation.
    pub operation: &'static str,
    /// What has to agree: a root, a number of columns, …
    pub detail: [usize; 2],
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}, {})", self.operation, self.detail[0], self.detail[1])
    }
}

/// A rank that can send bytes to others.
pub trait Transport: Send + Sync + Sized + 'static {
    /// The number of this rank.
    fn rank(&self) -> usize;

    /// Numbers in the whole world of all ranks here, in their order.
    fn members(&self) -> &[usize];

    /// Number of ranks.
    fn size(&self) -> usize {
        self.members().len()
    }

    /// Number in the whole world of the rank at `place`, which is below [`size`](Self::size): errors name it.
    fn member(&self, place: usize) -> usize {
        self.members()[place]
    }

    /// Sends `parcels[i]` to rank `i` and returns what each rank sent here, in the order of ranks.
    ///
    /// # Errors
    /// When a rank has failed, is late, or makes another call.
    fn exchange(&self, call: Call, parcels: Vec<Parcel>) -> Result<Vec<Parcel>, CommError>;

    /// The ranks that `members` lists, of which this is one, as a transport of their own. All ranks call it after the
    /// same exchange; their lists are equal or share no rank.
    fn among(&self, members: &[usize]) -> Self;

    /// What is known now, without waiting, of a rank of the whole world that has failed; `None` also where a transport
    /// does not learn of it.
    fn failure(&self) -> Option<CommError>;

    /// Whether all ranks are threads of one process, so that an address means the same to each.
    fn is_one_process(&self) -> bool {
        false
    }
}

/// Name of the exchange in which a group is split.
const SPLIT: &str = "split";

/// The ranks that give the same `colour`, in the order of their keys (then of their ranks); all ranks call it together.
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

/// Every rank's message, in the order of ranks.
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

/// The `i`-th message to rank `i`; what each rank sent here, in the order of ranks.
///
/// # Errors
/// When a rank fails, is late, or calls something else; when there is not a message for each rank.
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

/// Name of a group: for each split on the way to it, the exchange after which it was split off, and its first member.
pub(crate) type Path = Arc<[u64]>;

/// Exchange of a group, counted from 0.
pub(crate) type ExchangeId = (Path, u64);

/// Rank's place in a group.
#[derive(Debug)]
pub(crate) struct Group {
    pub path: Path,
    /// Ranks of the whole world that belong to the group, in its order.
    pub members: Arc<[usize]>,
    /// Place of this rank among them.
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

    /// Name of the exchange that begins now.
    pub fn next(&self) -> ExchangeId {
        (Arc::clone(&self.path), self.n_exchanges.fetch_add(1, Ordering::Relaxed))
    }

    /// Group of those whose places `members` lists, of which this rank is one.
    ///
    /// # Panics
    /// When it is not.
    pub fn among(&self, members: &[usize]) -> Self {
        let place = members.iter().position(|&member| member == self.place).expect("a rank is among its group");
        let split_at = self.n_exchanges.load(Ordering::Relaxed);
        // Groups that part at the same exchange differ in their first member.
        let path = self.path.iter().copied().chain([split_at, members[0] as u64]).collect();
        Self::new(path, members.iter().map(|&member| self.members[member]).collect(), place)
    }
}

/// The longest that an operation waits: clocks end some centuries from now.
const LONGEST_WAIT: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// When an operation that starts now gives up.
pub(crate) fn due(deadline: Duration) -> Instant {
    Instant::now() + deadline.min(LONGEST_WAIT)
}

/// Nothing, for ranks that get no bytes.
pub(crate) fn nothing() -> Parcel {
    Parcel::default()
}
