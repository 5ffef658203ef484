//! Simulated ranks: their threads, and the links by which these exchange parcels.

use super::*;

/// Event that a thread of a rank waits for.
pub(super) enum Waits {
    Exchange {
        id: ExchangeId,
        group: Arc<Group>,
        call: Call,
        own: Vec<Parcel>,
        until: Time,
    },
    /// Another thread of the rank, until it has completed this many steps.
    Steps(usize, u64),
}

/// Thread of a rank, with the results of its calls so far.
#[derive(Default)]
pub(super) struct Thread {
    pub(super) results: Vec<Result<Vec<Parcel>, CommError>>,
    /// Number of groups that it has joined or left so far.
    pub(super) n_changes: usize,
    pub(super) n_steps: u64,
    pub(super) waits: Option<Waits>,
    pub(super) is_done: bool,
    /// Position in `results` and among the changes since the thread was run again.
    pub(super) at: usize,
    pub(super) at_change: usize,
}

/// State of a rank: its connections and its threads.
pub(super) struct Node {
    pub(super) rank: usize,
    pub(super) now: Time,
    pub(super) state: State,
    pub(super) threads: [Thread; 2],
}

impl Node {
    /// Completes the wait of a thread if it can go on, and returns whether it can.
    pub(super) fn resolve(&mut self, thread: usize) -> bool {
        let Some(waits) = self.threads[thread].waits.take() else { return false };
        match &waits {
            Waits::Steps(other, n) => {
                let goes_on = self.threads[*other].n_steps >= *n || self.state.failure().is_some();
                self.threads[thread].waits = (!goes_on).then_some(waits);
                return goes_on;
            }
            Waits::Exchange { id, group, call, own, until } => {
                let result = match self.state.look(id, &group.members, *call) {
                    Ok(Err(_)) if self.now < *until => {
                        self.threads[thread].waits = Some(waits);
                        return false;
                    }
                    Ok(Err(missing)) => Err(late(missing, *call, DEADLINE)),
                    Ok(Ok(letters)) => open(group, *call, letters, own.clone()),
                    Err(failure) => Err(failure),
                };
                self.state.end(&group.members);
                self.threads[thread].results.push(result);
            }
        }
        true
    }
}

/// Membership of a rank's thread in a group.
pub(super) struct SimLink {
    pub(super) node: Arc<Mutex<Node>>,
    pub(super) thread: usize,
    pub(super) group: Arc<Group>,
}

/// Locks a rank, also after a panic of one of its threads.
pub(super) fn lock(node: &Mutex<Node>) -> MutexGuard<'_, Node> {
    node.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SimLink {
    /// Group of all ranks, a different one for each thread.
    pub(super) fn new(node: &Arc<Mutex<Node>>, thread: usize, size: usize) -> Self {
        let all: Vec<usize> = (0..size).collect();
        let group = Group::of_all(lock(node).rank, size);
        let group = if thread == TRAINER { group } else { group.among(&all) };
        Self::join(node, thread, group)
    }

    /// Membership of a thread in a group that it joins now.
    fn join(node: &Arc<Mutex<Node>>, thread: usize, group: Group) -> Self {
        Self::change(node, thread, |state| state.join(&group.path));
        Self { node: Arc::clone(node), thread, group: Arc::new(group) }
    }

    /// Makes a change of the state, unless the thread made it before it was run again.
    fn change(node: &Mutex<Node>, thread: usize, change: impl FnOnce(&mut State)) {
        let node = &mut *lock(node);
        let own = &mut node.threads[thread];
        if own.waits.is_some() {
            return;
        }
        if own.at_change == own.n_changes {
            own.n_changes += 1;
            change(&mut node.state);
        }
        own.at_change += 1;
    }

    /// Result of the next call. `begin` starts the call, unless it was started before.
    fn call(&self, begin: impl FnOnce(&mut Node) -> Waits) -> Result<Vec<Parcel>, CommError> {
        let node = &mut *lock(&self.node);
        let at = node.threads[self.thread].at;
        node.threads[self.thread].at += 1;
        if at == node.threads[self.thread].results.len() {
            node.threads[self.thread].waits = Some(begin(node));
            node.resolve(self.thread);
        }
        node.threads[self.thread].results.get(at).cloned().unwrap_or_else(|| Err(waits()))
    }
}

/// Step counters by which the threads of a rank wait for each other.
pub(super) struct Steps {
    pub(super) node: Arc<Mutex<Node>>,
    pub(super) thread: usize,
}

impl Steps {
    /// Records that this thread has completed `n` steps.
    pub(super) fn done(&self, n: u64) {
        let own = &mut lock(&self.node).threads[self.thread];
        own.n_steps = own.n_steps.max(n);
    }

    /// Waits until the other thread of the rank has completed `n` steps.
    pub(super) fn wait_for(&self, other: usize, n: u64) -> Result<(), CommError> {
        let node = &mut *lock(&self.node);
        if node.threads[other].n_steps >= n {
            return Ok(());
        }
        if let Some(failure) = node.state.failure() {
            return Err(failure);
        }
        node.threads[self.thread].waits = Some(Waits::Steps(other, n));
        Err(waits())
    }
}

/// Error that stops a waiting thread.
fn waits() -> CommError {
    CommError::Library { operation: "simulation", message: "it waits".to_owned() }
}

impl Drop for SimLink {
    fn drop(&mut self) {
        Self::change(&self.node, self.thread, |state| state.leave(&self.group.path));
    }
}

impl Transport for SimLink {
    fn rank(&self) -> usize {
        self.group.place
    }

    fn members(&self) -> &[usize] {
        &self.group.members
    }

    fn exchange(&self, call: Call, own: Vec<Parcel>) -> Result<Vec<Parcel>, CommError> {
        let id = self.group.next();
        self.call(|node| {
            node.state.begin(&id, &self.group.members, call, &own);
            let until = node.now + DEADLINE.as_micros() as Time;
            Waits::Exchange { id, group: Arc::clone(&self.group), call, own, until }
        })
    }

    fn among(&self, members: &[usize]) -> Self {
        Self::join(&self.node, self.thread, self.group.among(members))
    }

    fn failure(&self) -> Option<CommError> {
        lock(&self.node).state.failure()
    }
}
