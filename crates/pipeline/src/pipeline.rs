//! [`Pipeline`] and [`Stage`]: definition of a pipeline before it starts.

use std::io;
use std::sync::Arc;
use std::thread::Scope;
use std::time::Instant;

use crate::items::{Handle, Items};
use crate::queue::{Close, Queue};
use crate::report::StageName;
use crate::source::Source;
use crate::times::{Log, SharedLog};
use crate::worker::{Ended, Parcel, Parcels, Upstream, Worker};
use crate::{StartError, sync};

/// Name, number of workers, queue capacity and ordering of a stage.
#[derive(Clone, Debug)]
pub struct Stage {
    name: Arc<str>,
    n_workers: usize,
    capacity: usize,
    keeps_order: bool,
}

impl Stage {
    /// Stage of one worker that keeps the order of its input, with a queue of two items behind it.
    ///
    /// Two items are enough to hide a stage whose items take about equally long (Cai et al., DSP, PPoPP 2023, use as
    /// many). More items only help if their times differ, and cost memory.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { name: name.into(), n_workers: 1, capacity: 2, keeps_order: true }
    }

    /// Sets the number of threads, at least 1. Each thread works on whole items.
    #[must_use]
    pub fn workers(self, n_workers: usize) -> Self {
        Self { n_workers, ..self }
    }

    /// Sets the number of items that may wait behind the stage, at least 1. Each worker may hold one more finished
    /// item.
    ///
    /// An ordered stage needs at least the capacity of its number of workers, or a slow worker blocks the others.
    #[must_use]
    pub fn capacity(self, capacity: usize) -> Self {
        Self { capacity, ..self }
    }

    /// Passes on every item as soon as it is done. No item waits for a slow one, but the order depends on scheduling.
    #[must_use]
    pub fn in_any_order(self) -> Self {
        Self { keeps_order: false, ..self }
    }

    fn check(&self) -> Result<(), StartError> {
        let stage = || self.name.to_string();
        if self.n_workers == 0 {
            return Err(StartError::NoWorkers { stage: stage() });
        }
        if self.capacity == 0 {
            return Err(StartError::NoCapacity { stage: stage() });
        }
        Ok(())
    }
}

impl From<&str> for Stage {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}

/// Source of items and the stages behind it. Nothing runs before it is started.
///
/// `T` is the output of the last stage so far, and `E` the error that every stage may return. `'a` is the lifetime of
/// borrows in stages: `'static` for [`start`](Self::start), longer than a scope for [`start_in`](Self::start_in).
///
/// Start the pipeline on the consuming thread: [`Items`] is an iterator, and this thread acts as the last stage.
#[must_use = "a pipeline does nothing before it is started"]
pub struct Pipeline<'a, T, E> {
    /// Output of the last stage, or the source.
    output: Parcels<'a, T, E>,
    upstream: Upstream<'a>,
    stages: Vec<Stage>,
    workers: Vec<Task<'a>>,
    source_log: SharedLog,
    is_traced: bool,
}

/// Thread to be started.
struct Task<'a> {
    /// Index of the stage.
    stage: usize,
    body: Body<'a>,
}

type Body<'a> = Box<dyn FnOnce(Log) -> Ended + Send + 'a>;

impl<'a, T: Send + 'a, E: Send + 'a> Pipeline<'a, T, E> {
    /// Pipeline without stages: its items are those of `source`.
    ///
    /// The threads of the first stage call the iterator, one at a time. It should be fast: a list of seeds, not a
    /// file.
    pub fn new<I>(source: I) -> Self
    where
        I: IntoIterator<Item = T>,
        I::IntoIter: Send + 'a,
    {
        let source_log = SharedLog::default();
        let source = Arc::new(Source::new(source.into_iter(), source_log.clone()));
        let upstream: Upstream<'a> = vec![Arc::clone(&source) as Arc<dyn Close + 'a>];
        Self { output: source, upstream, stages: Vec::new(), workers: Vec::new(), source_log, is_traced: false }
    }

    /// Adds a stage, given by a name or a [`Stage`].
    ///
    /// `make` runs once on each thread of the stage. It returns the function that the thread applies to its items.
    /// The state of this function (a sampler's maps, a stream of a device) belongs to the thread and need not be
    /// `Send`.
    pub fn stage<U, W>(self, stage: impl Into<Stage>, make: impl Fn() -> W + Send + Sync + 'a) -> Pipeline<'a, U, E>
    where
        U: Send + 'a,
        W: FnMut(T) -> Result<U, E>,
    {
        let Self { output: input, mut upstream, mut stages, mut workers, source_log, is_traced } = self;
        let (stage, place, make): (Stage, _, _) = (stage.into(), stages.len(), Arc::new(make));
        let output = Arc::new(Queue::<Parcel<U, E>>::new(stage.capacity, stage.n_workers));
        for _ in 0..stage.n_workers {
            let worker = Worker {
                stage: Arc::clone(&stage.name),
                input: Arc::clone(&input),
                upstream: upstream.clone(),
                output: Arc::clone(&output),
                keeps_order: stage.keeps_order,
            };
            let make = Arc::clone(&make);
            workers.push(Task { stage: place, body: Box::new(move |log| worker.run(&*make, log)) });
        }
        upstream.push(Arc::clone(&output) as Arc<dyn Close + 'a>);
        stages.push(stage);
        Pipeline { output, upstream, stages, workers, source_log, is_traced }
    }

    /// Records the times of each wait and each work on an item for [`Report::trace`](crate::Report::trace), at 56
    /// bytes per record.
    pub fn traced(self) -> Self {
        Self { is_traced: true, ..self }
    }

    /// Starts all threads in a scope, so that stages may borrow data that outlives the scope.
    ///
    /// # Errors
    /// When a stage has no workers or no capacity, or the system refuses a thread. No thread runs then.
    pub fn start_in<'scope>(self, scope: &'scope Scope<'scope, '_>) -> Result<Items<'scope, T, E>, StartError>
    where
        'a: 'scope,
    {
        self.launch(|name, body| {
            let handle = std::thread::Builder::new().name(name).spawn_scoped(scope, body)?;
            Ok(Box::new(move || handle.join()))
        })
    }

    /// Starts all threads by `spawn(name, body)`, in the order of stages.
    ///
    /// The order matters when the system refuses a thread. A thread that waits for items waits until all workers of
    /// the stage before it have ended, so these must have been started.
    pub(crate) fn launch<'s>(
        self,
        spawn: impl Fn(String, Box<dyn FnOnce() -> Ended + Send + 'a>) -> io::Result<Handle<'s>>,
    ) -> Result<Items<'s, T, E>, StartError>
    where
        'a: 's,
    {
        self.stages.iter().try_for_each(Stage::check)?;
        let log = Log::new(Instant::now(), self.is_traced);
        self.source_log.with(|source| *source = Some(log.clone()));
        let names =
            self.stages.iter().map(|stage| StageName { name: stage.name.to_string(), n_workers: stage.n_workers });
        let mut items = Items::new(self.output, self.upstream, names.collect(), self.source_log, log.clone());
        for Task { stage, body } in self.workers {
            let (name, log) = (self.stages[stage].name.to_string(), log.clone());
            // On an error, dropping `items` stops the running threads.
            let handle = spawn(name.clone(), Box::new(move || body(log)))
                .map_err(|source| StartError::Thread { stage: name, source })?;
            items.add_worker(stage, handle);
        }
        Ok(items)
    }
}

impl<T: Send + 'static, E: Send + 'static> Pipeline<'static, T, E> {
    /// Starts all threads. Stages own or share their data.
    ///
    /// # Errors
    /// When a stage has no workers or no capacity, or the system refuses a thread. No thread runs then.
    pub fn start(self) -> Result<Items<'static, T, E>, StartError> {
        self.launch(|name, body| {
            let handle = sync::thread::Builder::new().name(name).spawn(body)?;
            Ok(Box::new(move || handle.join()))
        })
    }
}
