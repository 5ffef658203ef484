//! [`exchange`]: a message to each rank and one from each, counted.

use girih_comm::{Collective, CommError, Parcel};
use girih_compute::Backend;

use crate::Sent;

/// Sends the `i`-th message to rank `i`; what came from each rank, in the order of ranks. What a rank has for itself is
/// a message like others, but not counted.
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

/// No message for any of the ranks yet.
pub(crate) fn messages<B: Backend>(world: &dyn Collective<B>) -> Vec<Vec<u8>> {
    vec![Vec::new(); world.size()]
}
