//! Compressed features in a file: written in any order by any number of threads, read where they lie.
//!
//! ```text
//! │ header: sizes, codec, its parameters │ a CRC-32 for each chunk of rows │ codes, row after row │
//! ```
//! The table of checksums is also the journal: while a store is written, under the name `.girih-NAME.part` and with
//! another magic number, a chunk is done when its bytes match its checksum. A run that is killed leaves a file of which
//! the next run with the same source and codec keeps exactly the chunks that match, whatever was torn. The magic
//! number, the checksum of the table and the name come last, in this order, each after what is before it is on disk.
//!
//! Another design was a log of finished chunks in a file of its own. It needs a format, a name and an order of writes
//! more, and a chunk would still have to be compared with its checksum when the machine itself stopped.
//!
//! Bytes are in `docs/formats.md`.

mod layout;
mod read;
#[cfg(test)]
mod tests;
mod work_file;
mod write;

pub use read::CompressedFeatures;
pub use write::{Encoded, Progress, encode_to_file};
