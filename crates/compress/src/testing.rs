//! Internal items whose laws the tests of `tests/` check: a store in a file that fails. Tests in `src` would need no
//! such module, but the compiler would compile all codecs twice.

pub use crate::store::layout::Layout;
pub use crate::store::work_file::WorkFile;
pub use crate::store::write::encode_into;
