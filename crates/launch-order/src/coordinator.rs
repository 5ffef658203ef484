//! [`Coordinator`]: the launch order of one rank, shared by its workers.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use girih_comm::due;

use crate::diagnosis::Diagnosis;
use crate::log::{Entry, OrderLog};
use crate::message::{Content, Message, Status};
use crate::messenger::InProcess;
use crate::schedule::LaunchSchedule;
use crate::sync::{Condvar, Mutex, MutexGuard, lock, wait_until};
use crate::{Inbox, Launch, Messenger, OrderError, Participant, Rules};

/// Time that other ranks have to answer with their status after a deadline has passed.
const ANSWER: Duration = Duration::from_secs(1);
/// Number of recent launches per worker that a rank sends to others for the diagnosis of a hang.
const REMEMBERED: usize = 16;

/// Launch order of one rank for one epoch. Clones share one state.
///
/// Dropping the last clone or [`Participant`] of a rank before all of its workers have closed stops all ranks.
#[derive(Clone)]
pub struct Coordinator(Arc<Shared>);

/// State that the workers of a rank share with the threads that deliver messages.
pub(crate) struct Shared {
    rank: usize,
    rules: Rules,
    started: Instant,
    state: Mutex<State>,
    /// Condition variable of each worker: it may launch now, or the rank has failed.
    turns: Vec<Condvar>,
    /// Condition variable for the whole rank: an answer or a close has arrived, or the rank has failed.
    changed: Condvar,
    /// Set once, right after the other fields exist.
    messenger: OnceLock<Box<dyn Messenger>>,
}

pub(crate) struct State {
    pub schedule: LaunchSchedule,
    pub failure: Option<OrderError>,
    log: Vec<Entry>,
    /// Workers whose participants were handed out.
    taken: Vec<bool>,
    /// Status of each rank, as answered since the last question; `None` where no answer has come.
    answers: Vec<Option<Status>>,
}

impl Coordinator {
    /// Creates the coordinator of one rank. `connect` gets the inbox for messages of other ranks, and returns the
    /// messenger that carries this rank's.
    ///
    /// # Errors
    /// When nothing could be launched by the rules, or the messenger does not start.
    pub fn new<M: Messenger + 'static, E: From<OrderError>>(
        rank: usize,
        n_ranks: usize,
        rules: &Rules,
        connect: impl FnOnce(Inbox) -> Result<M, E>,
    ) -> Result<Self, E> {
        rules.check(n_ranks)?;
        let shared = Arc::new(Shared::new(rank, n_ranks, rules));
        let messenger = connect(Inbox::new(&shared))?;
        // The cell is empty: no other code has a reference to it yet.
        let _ = shared.messenger.set(Box::new(messenger));
        Ok(Self(shared))
    }

    /// Coordinators of ranks that are threads of this process, in the order of ranks.
    ///
    /// # Errors
    /// When nothing could be launched by the rules.
    pub fn in_process(n_ranks: usize, rules: &Rules) -> Result<Vec<Self>, OrderError> {
        rules.check(n_ranks)?;
        let ranks: Vec<_> = (0..n_ranks).map(|rank| Arc::new(Shared::new(rank, n_ranks, rules))).collect();
        let inboxes: Arc<[Inbox]> = ranks.iter().map(Inbox::new).collect();
        let connect = |(rank, shared): (usize, Arc<Shared>)| {
            let _ = shared.messenger.set(Box::new(InProcess { rank, inboxes: Arc::clone(&inboxes) }));
            Self(shared)
        };
        Ok(ranks.into_iter().enumerate().map(connect).collect())
    }

    /// Rank of this coordinator.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.0.rank
    }

    /// Rules that all ranks agree on.
    #[must_use]
    pub fn rules(&self) -> &Rules {
        &self.0.rules
    }

    /// Participant of a worker, for its thread to keep. Dropping it closes the worker.
    ///
    /// # Panics
    /// When there is no such worker, or its participant was taken before: a worker launches from one thread.
    #[must_use = "dropping it signs the worker off"]
    pub fn participant(&self, worker: usize) -> Participant {
        let name = &self.0.rules.workers[worker];
        let was_taken = std::mem::replace(&mut lock(&self.0.state).taken[worker], true);
        assert!(!was_taken, "worker {name} takes part from one thread: a stage that launches has one worker");
        Participant::new(Arc::clone(&self.0), worker)
    }

    /// Stops all ranks: their next calls return an error with this reason. Has no effect once all workers of this
    /// rank have closed.
    pub fn stop(&self, why: impl Into<String>) {
        self.0.stop(why.into());
    }

    /// First failure, after which nothing more is launched; `None` if nothing has failed.
    #[must_use]
    pub fn failure(&self) -> Option<OrderError> {
        lock(&self.0.state).failure.clone()
    }

    /// Launches of this rank so far.
    #[must_use]
    pub fn log(&self) -> OrderLog {
        let entries = lock(&self.0.state).log.clone();
        OrderLog { rank: self.0.rank, workers: self.0.rules.workers.clone(), entries }
    }

    /// Waits until all workers of all ranks have closed, and returns the log.
    ///
    /// # Errors
    /// When a worker launched more often on one rank than on another, or when a rank fails or does not end in time.
    pub fn finish(&self) -> Result<OrderLog, OrderError> {
        self.0.wait_for_end()?;
        self.0.messenger.get().into_iter().for_each(|messenger| messenger.flush());
        Ok(self.log())
    }
}

impl Shared {
    fn new(rank: usize, n_ranks: usize, rules: &Rules) -> Self {
        let n_workers = rules.workers.len();
        let state = State {
            schedule: LaunchSchedule::new(rank, n_ranks, rules),
            failure: None,
            log: Vec::new(),
            taken: vec![false; n_workers],
            answers: vec![None; n_ranks],
        };
        Self {
            rank,
            rules: rules.clone(),
            started: Instant::now(),
            state: Mutex::new(state),
            turns: (0..n_workers).map(|_| Condvar::new()).collect(),
            changed: Condvar::new(),
            messenger: OnceLock::new(),
        }
    }

    pub fn name(&self, worker: usize) -> &str {
        &self.rules.workers[worker]
    }

    /// Deadline of a wait that begins now.
    pub fn due(&self) -> Instant {
        due(self.rules.deadline)
    }

    /// Sends a message to all other ranks. Must not be called with the state locked: they may answer before this
    /// returns.
    fn tell(&self, content: Content) {
        if let Some(messenger) = self.messenger.get() {
            messenger.send(Message(content));
        }
    }

    /// Unlocks the state and then wakes the worker that may launch. A worker woken earlier would only wait for the
    /// lock.
    fn pass_on(&self, state: MutexGuard<'_, State>) {
        let ready = state.schedule.ready();
        drop(state);
        if let Some(worker) = ready {
            self.turns[worker].notify_one();
        }
    }

    /// Changes the schedule, wakes the waiting threads, and sends the resulting message or failure to the other
    /// ranks.
    fn change(
        &self,
        change: impl FnOnce(&mut LaunchSchedule) -> Result<Option<Content>, OrderError>,
    ) -> Result<(), OrderError> {
        let mut state = lock(&self.state);
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        let outcome = change(&mut state.schedule);
        self.pass_on(state);
        self.changed.notify_all();
        match outcome {
            Ok(content) => content.into_iter().for_each(|content| self.tell(content)),
            Err(error) => return Err(self.fail(error)),
        }
        Ok(())
    }

    /// Keeps the first failure and wakes all threads. Returns whether this failure is the first.
    fn note(&self, error: OrderError) -> bool {
        let mut state = lock(&self.state);
        let is_first = state.failure.is_none();
        state.failure.get_or_insert(error);
        self.turns.iter().for_each(Condvar::notify_all);
        self.changed.notify_all();
        is_first
    }

    /// Fails all ranks. Returns the first failure, which may come from another rank.
    pub fn fail(&self, error: OrderError) -> OrderError {
        if self.note(error.clone()) {
            self.tell(Content::Failed(error.clone()));
        }
        lock(&self.state).failure.clone().unwrap_or(error)
    }

    pub fn stop(&self, why: String) {
        if !lock(&self.state).schedule.has_ended() {
            self.fail(OrderError::Stopped { rank: self.rank, why });
        }
    }

    pub fn hear(&self, from: usize, content: Content) {
        match content {
            Content::Question => {
                let status = self.status(&lock(&self.state));
                self.tell(Content::Answer(status));
            }
            Content::Answer(status) => {
                let content = Content::Answer(status);
                if let Err(what) = content.check(self.rules.workers.len()) {
                    self.note(OrderError::Malformed { rank: from, what });
                    return;
                }
                let Content::Answer(status) = content else { return };
                lock(&self.state).answers[from] = Some(status);
                self.changed.notify_all();
            }
            Content::Failed(error) => {
                // A failure does not matter once the epoch has ended on all ranks.
                if lock(&self.state).schedule.missing_sign_off().is_some() {
                    self.note(error);
                }
            }
            Content::Decided(..) | Content::SignedOff(..) => {
                // `change` keeps a failure and sends it to all ranks; the sender needs no other answer.
                let _ = self.change(|schedule| schedule.hear(from, &content).map(|()| None));
            }
        }
    }

    pub fn lose(&self, why: String) {
        if lock(&self.state).schedule.missing_sign_off().is_some() {
            self.note(OrderError::Lost { why });
        }
    }

    pub fn register(&self, launch: Launch) -> Result<(), OrderError> {
        self.change(|schedule| schedule.register(launch.worker, launch.batch))
    }

    /// Waits until a registered worker may launch, and marks it as launching.
    pub fn wait_for_turn(&self, launch: Launch) -> Result<(), OrderError> {
        let due = self.due();
        let mut state = lock(&self.state);
        loop {
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            if state.schedule.is_turn(launch.worker) {
                state.schedule.begin(launch.worker);
                return Ok(());
            }
            if Instant::now() >= due {
                drop(state);
                return Err(self.late(|diagnosis| Some(diagnosis.turn(launch))));
            }
            state = wait_until(&self.turns[launch.worker], state, due);
        }
    }

    /// Records that a worker has launched, and passes the permit on.
    pub fn launched(&self, worker: usize, [registered, turn]: [Instant; 2]) {
        let since = |time: Instant| time.duration_since(self.started).as_secs_f64();
        let mut state = lock(&self.state);
        let launch = state.schedule.end(worker);
        let launched_s = since(Instant::now());
        state.log.push(Entry { launch, registered_s: since(registered), turn_s: since(turn), launched_s });
        self.pass_on(state);
    }

    pub fn close(&self, worker: usize) -> Result<(), OrderError> {
        self.change(|schedule| schedule.close(worker).map(Some))
    }

    /// Waits for a change, at most until `until`. Returns the failure of the rank, if there is one.
    pub fn pause(&self, worker: usize, until: Instant) -> Result<(), OrderError> {
        let failure = |state: &State| state.failure.clone().map_or(Ok(()), Err);
        let state = lock(&self.state);
        failure(&state)?;
        failure(&wait_until(&self.turns[worker], state, until))
    }

    fn wait_for_end(&self) -> Result<(), OrderError> {
        let due = self.due();
        let mut state = lock(&self.state);
        while state.schedule.missing_sign_off().is_some() {
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            if Instant::now() >= due {
                drop(state);
                return Err(self.late(|diagnosis| diagnosis.end()));
            }
            state = wait_until(&self.changed, state, due);
        }
        state.failure.clone().map_or(Ok(()), Err)
    }

    /// Handles a deadline that has passed: asks all ranks for their status, and fails them with the diagnosis.
    pub fn late(&self, judge: impl FnOnce(&Diagnosis<'_>) -> Option<OrderError>) -> OrderError {
        lock(&self.state).answers.fill(None);
        self.tell(Content::Question);
        let state = self.answers();
        let (statuses, schedule) = (&state.answers, &state.schedule);
        let error = judge(&Diagnosis { rank: self.rank, rules: &self.rules, statuses, schedule });
        drop(state);
        self.fail(error.unwrap_or_else(|| OrderError::Lost { why: "what was late came after all".to_owned() }))
    }

    /// Waits up to [`ANSWER`] for the status of all ranks.
    fn answers(&self) -> MutexGuard<'_, State> {
        let due = due(ANSWER);
        let mut state = lock(&self.state);
        state.answers[self.rank] = Some(self.status(&state));
        while state.answers.iter().any(Option::is_none) && state.failure.is_none() && Instant::now() < due {
            state = wait_until(&self.changed, state, due);
        }
        state
    }

    fn status(&self, state: &State) -> Status {
        let first = state.log.len().saturating_sub(REMEMBERED * self.rules.workers.len());
        let recent = state.log[first..].iter().map(|entry| entry.launch).collect();
        Status { workers: state.schedule.workers().to_vec(), absent: state.schedule.absent(), recent }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.stop("its coordinator was dropped before all workers had signed off".to_owned());
    }
}
