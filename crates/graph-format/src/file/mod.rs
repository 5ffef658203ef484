//! Reading and writing of files; `docs/formats.md` defines the formats to the byte.
//!
//! - [`Array`]: a NumPy array of any supported type; [`Array::read`], [`Array::map`], [`write_npy`].
//! - [`NpyRows`]: the rows of such an array, read in parts, for arrays larger than memory; [`map_bytes`] for any
//!   file.
//! - [`Npz`] and [`NpzWriter`]: archives of such arrays.
//! - [`Folder`] and [`FolderWriter`]: girih's own format, named arrays with checksums, mapped on reading.
//! - [`read_edge_list`], [`read_matrix_market`], [`read_metis`]: graphs as text; [`read_csv`]: rows of numbers.
//! - [`sniff()`]: detection of files of another kind than expected.
//! - [`read_sparse_npz`]: the sparse matrices of `SciPy`.
//! - [`Tensors`] and [`write_tensors`]: named arrays in one safetensors file.
//! - [`MappedFile`] and [`check_mapped_files`]: mapped files, and the check that they did not change.
//! - [`write_file`] and [`NewFolder`]: output that appears whole or not at all; every writer goes through them.
//!
//! Readers trust nothing: sizes are compared with the available bytes before anything is allocated. Every error names
//! the file, or the member of an archive as `file.npz/member`.

mod array;
mod atomic;
mod csv;
mod edge_list;
mod folder;
mod mapped;
mod matrix_market;
mod metis;
mod npy;
mod npy_rows;
mod npz;
mod number;
mod sniff;
mod sparse_npz;
mod tensors;
mod text;
mod unpack;

pub use array::{Array, Element, Values};
pub use atomic::{NewFolder, remove_unfinished, write_file};
pub use csv::{Missing, Table, count_table_rows, parse_csv, read_csv, read_integers, read_table};
pub use edge_list::{Columns, EdgeList, EdgeListOptions, Role, parse_edge_list, read_edge_list, write_edge_list};
pub use folder::{ArrayWriter, FOLDER_VERSION, Folder, FolderWriter, GraphSizes, MANIFEST, Verify};
pub use mapped::{MappedFile, check_files_at_end, check_mapped_files, mapped_file_at, replaced_files};
pub use matrix_market::{parse_matrix_market, read_matrix_market, write_matrix_market};
pub use metis::{parse_metis, read_metis, write_metis};
pub use npy::{map_bytes, write_npy, write_npy_rows};
pub use npy_rows::NpyRows;
pub use npz::{Npz, NpzWriter};
pub use sniff::{Sniffed, check_binary, sniff, sniff_file};
pub use sparse_npz::{read_sparse_npz, sparse_from_npz, sparse_npz_rows, write_sparse_npz};
pub use tensors::{Tensor, Tensors, write_tensors};

#[cfg(target_endian = "big")]
compile_error!("files are little-endian and are mapped as they are; big-endian machines are not supported");
