//! [`exchange`]: all-to-all of messages with counts of the bytes sent.

use girih_comm::{Collective, CommError, Parcel};
use girih_compute::Backend;

use crate::Sent;

/// Sends the `i`-th message to rank `i`. Returns the messages for this rank, in the order of the senders. A rank's
/// message to itself is not counted in `sent`.
pub(crate) fn exchange<B: Backend>(
    world: &dyn Collective<B>,
    sent: &mut Sent,
    messages: Vec<Vec<u8>>,
) -> Result<Vec<Parcel>, CommError> {
    for (rank, message) in messages.iter().enumerate() {
        if rank != world.rank() && !message.is_empty() {
            *sent += Sent { bytes: message.len() as u64, messages: 1 };
        }
    }
    world.all_to_all_bytes(messages.into_iter().map(Parcel::from).collect())
}

/// One empty message for each rank.
pub(crate) fn messages<B: Backend>(world: &dyn Collective<B>) -> Vec<Vec<u8>> {
    vec![Vec::new(); world.size()]
}
