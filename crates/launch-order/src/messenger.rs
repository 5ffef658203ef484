//! [`Messenger`] and [`Inbox`]: message transport between the coordinators of ranks.

use std::sync::{Arc, Weak};

use crate::Message;
use crate::coordinator::Shared;

/// Transport for the messages of one rank's coordinator to the [`Inbox`]es of all others.
///
/// Messages of one thread arrive once each and in order. Messages of different threads may arrive in any order. An
/// implementation that finds the connection broken calls [`Inbox::lost`].
pub trait Messenger: Send + Sync {
    /// Sends a message to all other ranks. It does not wait for them, and holds no lock while it delivers.
    fn send(&self, message: Message);

    /// Waits until all messages are sent, after the last one. Without it, a rank could end before the others learn of
    /// its close.
    fn flush(&self) {}
}

/// Receiver of messages from other ranks. It may outlive its coordinator, and ignores messages from then on.
#[derive(Clone)]
pub struct Inbox(Weak<Shared>);

impl Inbox {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        Self(Arc::downgrade(shared))
    }

    /// Delivers a message of rank `from`.
    pub fn deliver(&self, from: usize, message: Message) {
        if let Some(shared) = self.0.upgrade() {
            shared.hear(from, message.0);
        }
    }

    /// Reports that messages of other ranks do not arrive any more, or do not reach them.
    pub fn lost(&self, why: String) {
        if let Some(shared) = self.0.upgrade() {
            shared.lose(why);
        }
    }
}

/// Messenger to coordinators in the same process.
pub(crate) struct InProcess {
    pub rank: usize,
    pub inboxes: Arc<[Inbox]>,
}

impl Messenger for InProcess {
    fn send(&self, message: Message) {
        for (_, inbox) in self.inboxes.iter().enumerate().filter(|(rank, _)| *rank != self.rank) {
            inbox.deliver(self.rank, message.clone());
        }
    }
}
