//! Small folders in the layouts of MAG240M and of IGB.

use std::fs;
use std::path::{Path, PathBuf};

use super::by_hand::{ByHand, rows_of};
use super::{torch_dict, write_text};
use girih_graph_format::file::write_npy;
use half::f16;
use tempfile::TempDir;

/// The data of the folders in the layout of MAG240M.
pub const MAG: ByHand<'_> = ByHand {
    name: "mag",
    types: &[("author", 3, None), ("field", 0, None), ("institution", 2, None), ("paper", 6, Some((2, &FEATURES)))],
    relations: &[
        (["author", "affiliated_with", "institution"], &[(0, 0), (2, 1), (2, 0)]),
        (["author", "writes", "paper"], &[(0, 0), (0, 1), (1, 1), (2, 5)]),
        (["paper", "cites", "paper"], &[(1, 0), (2, 0), (3, 1)]),
        (["paper", "has_topic", "field"], &[]),
    ],
    target: 3,
    classes: (&[1, -1, 0, 2, -1, 1], 3),
    split: [&[0, 2], &[3], &[1, 4, 5]],
};

/// Numbers that `float16` has.
pub const FEATURES: [f32; 12] = [1.0, 0.5, 0.0, -0.25, 0.0, 0.0, -2.0, 3.0, 8.0, 1.5, 0.125, -7.0];

/// The data of the folders in the layout of IGBH.
pub const IGB: ByHand<'_> = ByHand {
    name: "tiny",
    types: &[("author", 3, Some((1, &[0.5, -1.0, 2.0]))), ("fos", 2, None), ("paper", 6, Some((2, &FEATURES)))],
    relations: &[
        (["paper", "cites", "paper"], &[(1, 0), (2, 0), (3, 1)]),
        (["paper", "topic", "fos"], &[(0, 0), (3, 1), (5, 1), (4, 0)]),
        (["paper", "written_by", "author"], &[(0, 0), (1, 2), (5, 1)]),
    ],
    target: 2,
    classes: (&[1, 18, 0, 2, -1, 1], 19),
    split: [&[0, 1, 2], &[3], &[5]],
};

fn write_relations(path: &Path, data: &ByHand<'_>, joint: &str, by_rows: bool) {
    for (of, pairs) in data.relations {
        let folder = path.join("processed").join(of.join(joint));
        fs::create_dir_all(&folder).unwrap();
        let (rows, n) = (rows_of(pairs), pairs.len());
        let listed: Vec<i64> = (0..n).flat_map(|i| [rows[i], rows[n + i]]).collect();
        let (shape, values) = if by_rows { ([2, n], &rows) } else { ([n, 2], &listed) };
        write_npy(&folder.join("edge_index.npy"), &shape, values).unwrap();
    }
}

/// Folder of [`MAG`] in a folder of its own.
pub fn mag() -> (TempDir, PathBuf) {
    let home = tempfile::tempdir().unwrap();
    let path = mag_in(home.path());
    (home, path)
}

/// Writes the folder of [`MAG`], with `meta.pt` and `split_dict.pt`.
pub fn mag_in(home: &Path) -> PathBuf {
    let path = home.join("mag");
    write_relations(&path, &MAG, "___", true);
    let paper = path.join("processed/paper");
    fs::create_dir_all(&paper).unwrap();
    write_npy(&paper.join("node_feat.npy"), &[6, 2], &FEATURES.map(f16::from_f32)).unwrap();
    write_npy(&paper.join("node_label.npy"), &[6], &[1.0, f32::NAN, 0.0, 2.0, f32::NAN, 1.0]).unwrap();
    write_npy(&paper.join("node_year.npy"), &[6], &[2016_i16, 2011, 2018, 2019, 2020, 2020]).unwrap();
    write_meta(&path, &[("paper", 6), ("author", 3), ("institution", 2), ("field", 0), ("num_classes", 3)]);
    write_split(&path, &[("train", &[2, 0]), ("valid", &[3]), ("test-dev", &[4, 1, 5]), ("test-challenge", &[])]);
    write_text(&path.join("RELEASE_v1.txt"), "");
    path
}

/// Writes `meta.pt`, a dictionary of integers.
pub fn write_meta(path: &Path, numbers: &[(&str, i32)]) {
    let pair = |&(name, number): &(&str, i32)| {
        [&b"X"[..], &(name.len() as u32).to_le_bytes(), name.as_bytes(), b"J", &number.to_le_bytes()].concat()
    };
    let pairs: Vec<u8> = numbers.iter().flat_map(pair).collect();
    let whole = torch_dict(&[]);
    let at = whole.windows(4).rposition(|bytes| bytes == b"}(u.").unwrap();
    fs::write(path.join("meta.pt"), [&whole[..at + 2], &pairs, &whole[at + 2..]].concat()).unwrap();
}

pub fn write_split(path: &Path, parts: &[(&str, &[i64])]) {
    let shapes: Vec<[usize; 1]> = parts.iter().map(|(_, ids)| [ids.len()]).collect();
    let tensors: Vec<_> =
        parts.iter().zip(&shapes).map(|((name, ids), shape)| (*name, "LongStorage", &shape[..], *ids)).collect();
    fs::write(path.join("split_dict.pt"), torch_dict(&tensors)).unwrap();
}

/// Folder of [`IGB`] in a folder of its own.
pub fn igb() -> (TempDir, PathBuf) {
    let home = tempfile::tempdir().unwrap();
    let path = igb_in(home.path());
    (home, path)
}

/// Writes the folder of [`IGB`], with labels of both kinds.
pub fn igb_in(home: &Path) -> PathBuf {
    let path = home.join("tiny");
    write_relations(&path, &IGB, "__", false);
    let processed = path.join("processed");
    for name in ["paper", "author"] {
        fs::create_dir_all(processed.join(name)).unwrap();
    }
    write_npy(&processed.join("paper/node_feat.npy"), &[6, 2], &FEATURES).unwrap();
    write_npy(&processed.join("author/node_feat.npy"), &[3, 1], &[0.5_f32, -1.0, 2.0]).unwrap();
    write_npy(&processed.join("paper/node_label_19.npy"), &[6, 1], &[1.0_f32, 18.0, 0.0, 2.0, f32::NAN, 1.0]).unwrap();
    write_npy(&processed.join("paper/node_label_2K.npy"), &[6], &[2982_i64, 0, 5, -1, -1, 7]).unwrap();
    write_npy(&processed.join("paper/paper_id_index_mapping.npy"), &[1], &[0_i64]).unwrap();
    path
}
