//! Reading and writing of files; `docs/formats.md` defines the formats to the byte.
//!
//! - [`Array`]: a NumPy array of any supported type; [`Array::read`], [`Array::map`], [`write_npy`].
//! - [`NpyRows`]: the rows of such an array, read in parts, for arrays larger than memory; [`map_bytes`] for any
//!   file.
//! - [`Npz`] and [`NpzWriter`]: archives of such arrays.
//! - [`Folder`] and [`FolderWriter`]: girih's own format, named arrays with checksums, mapped on reading.
//! - [`read_edge_list`], [`read_matrix_market`], [`read_metis`]: graphs as text; [`read_csv`]: rows of numbers.
//! - [`LineBlocks`]: text that is read block by block, for formats of other crates.
//! - [`sniff()`]: detection of files of another kind than expected.
//! - [`read_sparse_npz`]: the sparse matrices of `SciPy`.
//! - [`Tensors`] and [`write_tensors`]: named arrays in one safetensors file.
//! - [`MappedFile`] and [`check_mapped_files`]: mapped files, and the check that they did not change.
//! - [`write_file`] and [`NewFolder`]: output that appears whole or not at all; every writer goes through them.
//!
//! Each group of formats is a feature, and all are there by default: `npy`, `folder`, `npz`, `safetensors`, `text` and
//! `gz`. Without them, files can only be mapped.
//!
//! Readers trust nothing: sizes are compared with the available bytes before anything is allocated. Every error names
//! the file, or the member of an archive as `file.npz/member`.

#[cfg(feature = "npy")]
mod array;
#[cfg(feature = "npy")]
mod atomic;
#[cfg(feature = "text")]
mod csv;
#[cfg(feature = "text")]
mod edge_list;
#[cfg(feature = "folder")]
mod folder;
#[cfg(feature = "text")]
mod line_blocks;
mod mapped;
#[cfg(feature = "text")]
mod matrix_market;
#[cfg(feature = "text")]
mod metis;
#[cfg(feature = "npy")]
mod npy;
#[cfg(feature = "npy")]
mod npy_rows;
#[cfg(feature = "npz")]
mod npz;
#[cfg(feature = "text")]
mod number;
#[cfg(feature = "npy")]
mod sniff;
#[cfg(feature = "npz")]
mod sparse_npz;
#[cfg(feature = "safetensors")]
mod tensors;
#[cfg(feature = "text")]
mod text;
#[cfg(any(feature = "npz", feature = "gz"))]
#[cfg_attr(not(all(feature = "npz", feature = "gz")), allow(dead_code))]
mod unpack;

#[cfg(feature = "npy")]
pub use array::{Array, Element, Values};
#[cfg(feature = "npy")]
pub use atomic::{NewFolder, remove_unfinished, write_file};
#[cfg(feature = "text")]
pub use csv::{Missing, Table, count_table_rows, parse_csv, read_csv, read_integers, read_table};
#[cfg(feature = "text")]
pub use edge_list::{
    Columns, EdgeList, EdgeListOptions, ReadTimes, Role, parse_edge_list, read_edge_list, write_edge_list,
};
#[cfg(feature = "folder")]
pub use folder::{ArrayWriter, FOLDER_VERSION, Folder, FolderWriter, GraphSizes, MANIFEST, Verify};
#[cfg(feature = "text")]
pub use line_blocks::LineBlocks;
pub use mapped::{MappedFile, check_files_at_end, check_mapped_files, mapped_file_at, replaced_files};
#[cfg(feature = "text")]
pub use matrix_market::{parse_matrix_market, read_matrix_market, write_matrix_market};
#[cfg(feature = "text")]
pub use metis::{parse_metis, read_metis, write_metis};
#[cfg(feature = "npy")]
pub use npy::{map_bytes, write_npy, write_npy_rows};
#[cfg(feature = "npy")]
pub use npy_rows::NpyRows;
#[cfg(feature = "npz")]
pub use npz::{Npz, NpzWriter};
#[cfg(feature = "npy")]
pub use sniff::{Sniffed, check_binary, sniff, sniff_file};
#[cfg(feature = "npz")]
pub use sparse_npz::{read_sparse_npz, sparse_from_npz, sparse_npz_rows, write_sparse_npz};
#[cfg(feature = "safetensors")]
pub use tensors::{Tensor, Tensors, write_tensors};

#[cfg(target_endian = "big")]
compile_error!("files are little-endian and are mapped as they are; big-endian machines are not supported");
