//! [`Messenger`] and [`Inbox`]: how coordinators of different ranks talk.

use std::sync::{Arc, Weak};

use super::Message;
use super::coordinator::Shared;

/// Carries the messages of one rank's coordinator to the [`Inbox`]es of all others.
///
/// Those that one thread sends arrive once each and in order; between threads any order will do. Whoever learns that
/// messages do not arrive any more says so by [`Inbox::lost`].
pub trait Messenger: Send + Sync {
    /// Sends a message to all other ranks. It does not wait for them, and holds no lock while it delivers.
    fn send(&self, message: Message);

    /// Waits until all that was sent has been told, after the last message: a rank that ends before would be missed.
    fn flush(&self) {}
}

/// Where a coordinator gets the messages of others. It outlives its coordinator, and then forgets what it gets.
#[derive(Clone)]
pub struct Inbox(Weak<Shared>);

impl Inbox {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        Self(Arc::downgrade(shared))
    }

    /// Takes a message of rank `from`.
    pub fn deliver(&self, from: usize, message: Message) {
        if let Some(shared) = self.0.upgrade() {
            shared.hear(from, message.0);
        }
    }

    /// No more messages arrive from others, or reach them.
    pub fn lost(&self, why: String) {
        if let Some(shared) = self.0.upgrade() {
            shared.lose(why);
        }
    }
}

/// Delivers to coordinators in the same process.
pub(super) struct InProcess {
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
