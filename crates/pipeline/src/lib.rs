//! Bounded stages of threads between a source of items and its consumer: sampling → gathering features → training.
//!
//! - [`Pipeline`]: a source, then one [`Stage`] after the other. Start here.
//! - [`Items`]: what comes out, an iterator; dropping it stops every stage.
//! - [`StageError`]: a stage failed or panicked, and at which item; [`StartError`]: nothing was started.
//! - [`Report`]: how long each stage worked and waited, and which one holds up the others; [`Trace`]: the same as a
//!   picture, for Perfetto.
//! - [`order`]: where stages of several ranks launch collectives: one order on all ranks.
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
//! # What is promised
//! 1. **Order.** Items come out in the order of the source, however many workers a stage has. A stage that says so
//!    ([`Stage::in_any_order`]) hands on each item as soon as it is done instead.
//! 2. **Bounds.** Behind a stage at most `capacity` items wait, and each of its workers holds one more; a stage whose
//!    queue is full waits, and so do all before it.
//! 3. **Failures have a place.** All items before the first that fails come out; then its error; then nothing. Where
//!    order is kept, which items those are does not depend on how threads are scheduled. A panic is such an error; one
//!    that no item is to blame for, because a worker was making its state or dropping it, ends the pipeline, too.
//! 4. **A stop is complete.** When [`Items`] is dropped, finished, or has returned an error or its end, every queue is
//!    closed, no worker begins another item, and no thread of the pipeline is left when the call returns. Work on an
//!    item is not interrupted: stopping takes as long as the longest item under way.
//! 5. **Nothing is lost.** Every item that the source gave comes out once, or is dropped after a failure or a stop.
//!
//! Every interleaving of small pipelines is checked against these by loom (`model.rs`, `order/model.rs`); `sync.rs` is
//! how.
//!
//! # Why a monitor for each queue
//! Channels of a library between stages would need a buffer behind each stage to restore the order, with a bound of its
//! own, a count of what is missing, and a second way to stop whoever waits on it. A [window](queue) of places under one
//! mutex is queue, order and bound at once: the worker that holds the oldest item has a place reserved and never waits,
//! so that the window always moves on.
//!
//! A stage without work costs an item 0.5 to 2 µs where queues are long and 3 to 12 µs where they hold two, because a
//! thread is then woken for every item; the standard library's channels, which keep no order among workers, take 0.1 to
//! 7 µs (`examples/overhead.rs`, medians of 7 runs of 50 000 items on two shared cores). Items should take a
//! millisecond: a batch, not a node.
//!
//! Not here: what stages do, and who draws random numbers; an item should carry the number that its draws are keyed by.

#![forbid(unsafe_code)]

mod error;
mod items;
pub mod order;
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
