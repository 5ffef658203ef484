//! Pipelined stages on threads with bounded queues: sampling → gathering features → training.
//!
//! - [`Pipeline`]: a source, followed by one [`Stage`] after the other. Start here.
//! - [`Items`]: the output, an iterator. Dropping it stops every stage.
//! - [`StageError`]: a stage failed or panicked, and at which item. [`StartError`]: nothing was started.
//! - [`Report`]: times that each stage worked and waited, and the bottleneck. [`Trace`]: a timeline of them for
//!   Perfetto.
//!
//! ```text
//!              take           put │ capacity │ take        put │ capacity │ take
//! source ◀───────── sample ───────▶  queue   ◀────── gather ───▶  queue   ◀────── Items (the caller's thread)
//! an iterator       2 workers                        1 worker
//! ```
//! ```
//! use std::convert::Infallible;
//! use girih_pipeline::{Pipeline, Stage};
//!
//! let squares: Vec<u64> = (0..100).map(|i| i * i).collect();
//! let (sum, report) = std::thread::scope(|scope| {
//!     let mut items = Pipeline::<u64, Infallible>::new(0..100)
//!         // Each worker makes its own state, here a buffer, on its own thread.
//!         .stage(Stage::new("look up").workers(2).capacity(4), || {
//!             let mut seen = Vec::new();
//!             let squares = &squares;
//!             move |i| {
//!                 seen.push(i);
//!                 Ok(squares[i as usize])
//!             }
//!         })
//!         .stage("halve", || |square| Ok(square / 2))
//!         .start_in(scope)?;
//!     let mut sum = 0;
//!     for half in &mut items {
//!         sum += half?;
//!     }
//!     Ok::<_, Box<dyn std::error::Error>>((sum, items.finish()))
//! })?;
//! assert_eq!(sum, (0..100).map(|i| i * i / 2).sum::<u64>());
//! println!("{report}"); // a table that ends with a line like: bottleneck: look up, busy 83 % of 0.002 s
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! # Guarantees
//! 1. **Order.** Items come out in the order of the source, however many workers a stage has. A stage with
//!    [`Stage::in_any_order`] instead passes on each item as soon as it is done.
//! 2. **Bounds.** At most `capacity` items wait behind a stage, and each of its workers holds one more. A stage whose
//!    queue is full waits, and so do all stages before it.
//! 3. **Failures have a position.** All items before the first failure come out, followed by its error and the end.
//!    Where order is kept, these items do not depend on how threads are scheduled. A panic is such an error. A panic
//!    outside of an item, while a worker creates or drops its state, also ends the pipeline.
//! 4. **A stop is complete.** It happens when [`Items`] is dropped or finished, or has returned an error or its end.
//!    Every queue is then closed, no worker begins another item, and all threads have ended when the call returns.
//!    Work on an item is not interrupted: stopping takes as long as the longest item in progress.
//! 5. **Nothing is lost.** Every item of the source comes out once, or is dropped after a failure or a stop.
//!
//! Loom checks these in every interleaving of small pipelines (`model.rs`). `sync.rs` selects its
//! primitives.
//!
//! # Why a monitor for each queue
//! Library channels between stages would need a reorder buffer behind each stage. That buffer needs its own bound, a
//! count of missing items, and a second way to stop waiting threads. A [window of slots](queue) under one mutex is
//! queue, order and bound at once. The worker with the oldest item has a reserved slot and never waits, so the window
//! always advances.
//!
//! A stage without work costs 0.5 to 2 µs per item with long queues. It costs 3 to 12 µs with queues of two items,
//! because every item then wakes a thread. The standard library's channels, which keep no order among workers, take
//! 0.1 to 7 µs (`examples/overhead.rs`, medians of 7 runs of 50 000 items on two shared cores). An item should take
//! about a millisecond: a batch, not a node.
//!
//! Not here: the work of stages, and random numbers. An item should carry the number that keys its random draws.

#![forbid(unsafe_code)]

mod error;
mod items;
mod pipeline;
mod queue;
mod report;
mod source;
mod sync;
mod times;
mod trace;
mod worker;

#[cfg(test)]
mod model;

pub use error::{StageError, StartError};
pub use items::Items;
pub use pipeline::{Pipeline, Stage};
pub use report::{Report, StageReport};
pub use trace::{Event, Trace, Track};

/// Program of the README, which is tested.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
