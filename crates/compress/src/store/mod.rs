//! Compressed features in a file: written in any order by any number of threads, and read in place.
//!
//! ```text
//! │ header: sizes, codec, its parameters │ a CRC-32 for each chunk of rows │ codes, row after row │
//! ```
//! The table of checksums is also the journal. An unfinished store has the name `.girih-NAME.part` and another magic
//! number. In it, a chunk is done when its bytes match its checksum. After a kill, the next run with an equal source
//! and codec keeps exactly the matching chunks, even if others are torn. The magic number, the checksum of the table
//! and the name are written last, in this order, each after all earlier data is on disk.
//!
//! An alternative is a log of finished chunks in a separate file. It needs another format, name and order of writes,
//! and a chunk would still have to be compared with its checksum after a crash of the machine.
//!
//! Bytes are in `docs/formats.md`.

pub(crate) mod layout;
mod read;
pub(crate) mod work_file;
pub(crate) mod write;

pub use read::CompressedFeatures;
pub use write::{Encoded, Progress, encode_to_file};
