//! [`FileKind`]: what the name of a file says about its format.

use std::path::Path;

/// A format that a file's name announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    /// `.npz`: an archive of arrays.
    Npz,
    /// `.zip` around one `.npz`.
    Zip,
    /// `.csv`, `.tsv`, `.txt`, `.edges`, also packed as `.gz`.
    EdgeList,
    /// `.mtx`, also packed as `.gz`.
    MatrixMarket,
    /// `.graph`, also packed as `.gz`.
    Metis,
    /// `.safetensors`.
    Tensors,
}

impl FileKind {
    /// The format of a file with this name; `None` when the name says nothing.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?.to_ascii_lowercase();
        let unpacked = name.strip_suffix(".gz");
        match unpacked.unwrap_or(&name).rsplit_once('.')?.1 {
            "csv" | "tsv" | "txt" | "edges" => Some(Self::EdgeList),
            "mtx" => Some(Self::MatrixMarket),
            "graph" => Some(Self::Metis),
            "npz" if unpacked.is_none() => Some(Self::Npz),
            "zip" if unpacked.is_none() => Some(Self::Zip),
            "safetensors" if unpacked.is_none() => Some(Self::Tensors),
            _ => None,
        }
    }
}
