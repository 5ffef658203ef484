//! [`FileKind`]: file format by the name of a file, and the parts of such a name.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// File format that a name indicates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    /// `.npz`: an archive of arrays.
    Npz,
    /// `.zip` around one `.npz`.
    Zip,
    /// `.csv`, `.tsv`, `.txt`, `.edges`, `.edgelist`, `.el`, also packed as `.gz`; for reading, KONECT's `out.NAME`.
    EdgeList,
    /// `.mtx`, also packed as `.gz`.
    MatrixMarket,
    /// `.graph`, also packed as `.gz`.
    Metis,
    /// `.safetensors`.
    Tensors,
    /// `.nt`, also packed as `.gz`.
    NTriples,
}

impl FileKind {
    /// Format of a file with this name; `None` when the name indicates none.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?.to_ascii_lowercase();
        let unpacked = name.strip_suffix(".gz");
        match unpacked.unwrap_or(&name).rsplit_once('.')?.1 {
            "csv" | "tsv" | "txt" | "edges" | "edgelist" | "el" => Some(Self::EdgeList),
            "mtx" => Some(Self::MatrixMarket),
            "graph" => Some(Self::Metis),
            "nt" => Some(Self::NTriples),
            "npz" if unpacked.is_none() => Some(Self::Npz),
            "zip" if unpacked.is_none() => Some(Self::Zip),
            "safetensors" if unpacked.is_none() => Some(Self::Tensors),
            _ => None,
        }
    }

    /// Format of an existing file: by its name, or KONECT's `out.NAME` if its content starts as these files do.
    pub(crate) fn of_input(path: &Path) -> Option<Self> {
        Self::of(path).or_else(|| is_konect(path).then_some(Self::EdgeList))
    }
}

/// Whether a file is named `out.NAME` and starts with a comment of `%` or is packed.
fn is_konect(path: &Path) -> bool {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return false };
    let mut first = [0];
    let mut starts_as_one = || File::open(path)?.read_exact(&mut first);
    let expected = if name.ends_with(".gz") { 0x1f } else { b'%' };
    name.starts_with("out.") && starts_as_one().is_ok() && first[0] == expected
}

/// Extension of a file's name in lower case, without `.gz`.
pub(crate) fn ending(path: &Path) -> String {
    let name = path.file_name().map(|name| name.to_string_lossy().to_ascii_lowercase()).unwrap_or_default();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    name.rsplit_once('.').map_or(String::new(), |(_, ending)| ending.to_owned())
}

/// The file's name without its extensions.
pub(crate) fn stem(path: &Path) -> String {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    name.split('.').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_edge_lists() {
        let home = tempfile::tempdir().unwrap();
        for (name, content, expected) in [
            ("a.edgelist", "", Some(FileKind::EdgeList)),
            ("a.el.gz", "", Some(FileKind::EdgeList)),
            ("out.moreno", "% sym unweighted\n1 2\n", Some(FileKind::EdgeList)),
            ("out.log", "all is well\n", None),
            ("out.npz", "% sym unweighted\n", Some(FileKind::Npz)),
            ("in.moreno", "% sym unweighted\n", None),
        ] {
            let path = home.path().join(name);
            std::fs::write(&path, content).unwrap();
            assert_eq!(FileKind::of_input(&path), expected, "{name}");
        }
        assert_eq!(FileKind::of(Path::new("out.moreno")), None, "a name for output is no name of KONECT's");
    }
}
