//! Laws of files: written data reads back; damaged data is refused or valid, and never panics.

mod archives;
mod arrays;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::common::{any_csr, any_graph, data_folder};
use girih_graph_format::file::{
    Array, EdgeListOptions, FOLDER_VERSION, Folder, FolderWriter, MANIFEST, Npz, NpzWriter, Values, Verify,
    parse_edge_list, read_edge_list, read_sparse_npz, write_edge_list, write_file, write_npy, write_npy_rows,
    write_sparse_npz,
};
use girih_graph_format::{Coo, Csr, Duplicates, FormatError};
use npyz::WriterBuilder;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

fn write_folder(path: &Path, csr: &Csr) -> Result<(), FormatError> {
    let mut folder = FolderWriter::create(path)?;
    folder.graph(csr)?;
    folder.finish()
}

fn read_folder(path: &Path) -> Result<Csr, FormatError> {
    Folder::open(path, Verify::Full)?.graph()
}

fn with_n_nodes(n: usize) -> EdgeListOptions {
    EdgeListOptions { n_nodes: Some(n), ..EdgeListOptions::default() }
}

fn edges(text: &str) -> Result<Coo, FormatError> {
    parse_edge_list(text.as_bytes(), &EdgeListOptions::default()).map(|list| list.edges)
}

/// Drops weights that are all one: files do not distinguish them from none.
fn plain(csr: Csr) -> Csr {
    let ones = csr.values().is_some_and(|v| v.iter().all(|&w| w == 1.0));
    if ones { csr.with_values(None).unwrap() } else { csr }
}

/// Way to damage a file.
#[derive(Clone, Debug)]
enum Damage {
    Truncate(Index),
    Flip(Vec<(Index, u8)>),
}

fn any_damage() -> impl Strategy<Value = Damage> {
    prop_oneof![any::<Index>().prop_map(Damage::Truncate), vec((any::<Index>(), 0..8u8), 1..4).prop_map(Damage::Flip),]
}

fn damage(path: &Path, damage: &Damage) {
    let mut bytes = fs::read(path).unwrap();
    match damage {
        Damage::Truncate(at) => bytes.truncate(at.index(bytes.len())),
        Damage::Flip(bits) => {
            for (at, bit) in bits {
                let at = at.index(bytes.len());
                bytes[at] ^= 1 << bit;
            }
        }
    }
    fs::write(path, bytes).unwrap();
}

fn files_in(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// A matrix written in parts equals, byte for byte, the one written whole; wide rows are written one at a time.
#[test]
fn rows_written_piece_by_piece_are_the_whole_array() {
    let folder = tempfile::tempdir().unwrap();
    for (n_rows, width) in [(0, 3), (5, 0), (7, 3), (70_000, 9), (2, 300_000)] {
        let values: Vec<f32> = (0..n_rows * width).map(|i| i as f32).collect();
        let (whole, pieces) = (folder.path().join("whole.npy"), folder.path().join("pieces.npy"));
        write_npy(&whole, &[n_rows, width], &values).unwrap();
        write_npy_rows(&pieces, (n_rows, width), |first, rows| {
            rows.copy_from_slice(&values[first * width..first * width + rows.len()]);
        })
        .unwrap();
        assert!(fs::read(whole).unwrap() == fs::read(pieces).unwrap(), "{n_rows} × {width}");
    }
}

proptest! {
    // Written data reads back.
    #[test]
    fn folders_read_back(a in any_csr()) {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("graph");
        write_folder(&path, &a).unwrap();
        prop_assert_eq!(&read_folder(&path).unwrap(), &a);
        // A second write over the first leaves nothing temporary behind.
        write_folder(&path, &a).unwrap();
        prop_assert_eq!(files_in(home.path()), vec![path]);
    }

    #[test]
    fn sparse_archives_read_back(a in any_csr()) {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("graph.npz");
        write_sparse_npz(&path, &a).unwrap();
        prop_assert_eq!(read_sparse_npz(&path).unwrap(), plain(a));
    }

    #[test]
    fn edge_lists_read_back(a in any_csr(), name in prop_oneof![Just("e.csv"), Just("e.tsv"), Just("e.txt.gz")], scale in prop_oneof![Just(1.0f32), Just(1e10)]) {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join(name);
        // Large weights look like times; girih must still read its own files.
        let scaled: Option<Vec<f32>> = a.values().map(|values| values.iter().map(|w| w.abs() * scale + scale).collect());
        let a = a.with_values(scaled.map(Into::into)).unwrap();
        write_edge_list(&path, &a).unwrap();
        let list = read_edge_list(&path, &EdgeListOptions::default()).unwrap();
        let back = list.edges.to_csr(Duplicates::Refuse).unwrap();
        prop_assert!(list.notes.not_used.is_empty() && list.notes.made_up.is_empty());
        // A file without lines cannot tell whether its edges are weighted.
        let expected = if a.nnz() == 0 { a.with_values(None).unwrap() } else { a };
        prop_assert_eq!(back, expected);
    }

    #[test]
    fn arrays_agree_with_npyz(values in vec(any::<i32>(), 24), fortran in any::<bool>()) {
        let mut theirs = Vec::new();
        let order = if fortran { npyz::Order::Fortran } else { npyz::Order::C };
        let mut writer = npyz::WriteOptions::new().default_dtype().shape(&[4, 6]).order(order).writer(&mut theirs).begin_nd().unwrap();
        writer.extend(&values).unwrap();
        writer.finish().unwrap();
        let array = Array::from_bytes(Path::new("theirs.npy"), &theirs).unwrap();
        prop_assert_eq!(array.expect_2d().unwrap(), (4, 6));
        let expected: Vec<i64> = (0..24)
            .map(|i| i64::from(if fortran { values[i % 6 * 4 + i / 6] } else { values[i] }))
            .collect();
        prop_assert_eq!(&array.into_i64().unwrap()[..], &expected[..]);

        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("ours.npy");
        write_npy(&path, &[4, 6], &values).unwrap();
        let ours = npyz::NpyFile::new(fs::File::open(&path).unwrap()).unwrap();
        prop_assert_eq!(ours.shape(), &[4, 6]);
        prop_assert_eq!(ours.into_vec::<i32>().unwrap(), values);
    }

    // Damaged data is refused, or is a valid value; nothing panics or allocates by a claim of the header.
    #[test]
    fn damaged_folders(a in any_csr(), which in any::<Index>(), how in any_damage()) {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("graph");
        write_folder(&path, &a).unwrap();
        let files = files_in(&path);
        let victim = which.get(&files);
        let before = fs::read(victim).unwrap();
        damage(victim, &how);
        let read = read_folder(&path);
        if victim.ends_with(MANIFEST) {
            prop_assert!(read.map_or(true, |csr| csr.validate().is_ok()));
        } else {
            // Checksums detect every change of an array.
            prop_assert_eq!(read.is_ok(), fs::read(victim).unwrap() == before);
        }
        if let Ok(csr) = Folder::open(&path, Verify::Structure).and_then(|f| f.graph()) {
            prop_assert!(csr.validate().is_ok());
        }
    }

    #[test]
    fn damaged_archives(a in any_csr(), how in any_damage()) {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("graph.npz");
        write_sparse_npz(&path, &a).unwrap();
        damage(&path, &how);
        if let Ok(csr) = read_sparse_npz(&path) {
            prop_assert!(csr.validate().is_ok());
        }
    }

    #[test]
    fn damaged_arrays(values in vec(any::<f32>(), 0..50), how in any_damage()) {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("x.npy");
        write_npy(&path, &[values.len()], &values).unwrap();
        damage(&path, &how);
        match how {
            Damage::Truncate(_) => prop_assert!(Array::map(&path).is_err()),
            Damage::Flip(_) => {
                if let Ok(array) = Array::map(&path) {
                    prop_assert_eq!(array.shape().iter().product::<usize>(), array.values().len());
                    let _ = (array.clone().into_ids(), array.clone().into_offsets(), array.into_bools());
                }
            }
        }
    }

    #[test]
    fn damaged_edge_lists(a in any_graph(), name in prop_oneof![Just("e.csv"), Just("e.tsv.gz")], how in any_damage()) {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join(name);
        write_edge_list(&path, &a).unwrap();
        if fs::metadata(&path).unwrap().len() > 0 {
            damage(&path, &how);
        }
        if let Ok(list) = read_edge_list(&path, &with_n_nodes(a.n_rows())) {
            prop_assert!(list.edges.to_csr(Duplicates::Merge).is_ok_and(|csr| csr.validate().is_ok()));
        }
    }

    #[test]
    fn any_bytes_are_no_panic(bytes in vec(any::<u8>(), 0..200)) {
        let origin = Path::new("noise");
        prop_assert!(Array::from_bytes(origin, &bytes).is_err());
        prop_assert!(Npz::from_bytes(origin, bytes.clone()).is_err());
        let _ = parse_edge_list(&bytes, &EdgeListOptions::default());
        let mut header = b"\x93NUMPY\x01\x00\xb4\x00".to_vec();
        header.extend_from_slice(&bytes);
        prop_assert!(Array::from_bytes(origin, &header).is_err());
    }

    // Edge lists.
    #[test]
    fn edge_lists_do_not_depend_on_chunks(n_lines in 0..3000usize, comment_every in 2..50usize) {
        // Long lines, so that several chunks are needed.
        let padding = " ".repeat(1000);
        let text: String = (0..n_lines)
            .map(|i| if i % comment_every == 1 { "# comment\n".to_owned() } else { format!("{i}{padding}{}\n", i * 7) })
            .collect();
        let coo = match edges(&text) {
            Ok(coo) => coo,
            Err(error) => {
                prop_assert!(n_lines == 0, "{}", error);
                return Ok(());
            }
        };
        let expected: Vec<u32> = (0..n_lines as u32).filter(|i| *i as usize % comment_every != 1).collect();
        prop_assert_eq!(coo.cols(), &expected[..]);
        let broken = format!("{text}1 oops\n");
        let message = edges(&broken).unwrap_err().to_string();
        if n_lines > 0 {
            let place = format!("line {}:", n_lines + 1);
            prop_assert!(message.contains(&place) && message.contains("oops"), "{}", message);
        }
    }
}

#[test]
fn edge_lists_in_every_dialect() {
    for text in [
        "0 1\n2 0\n",
        "0\t1\r\n2\t0\r\n",
        "# c\n\n0, 1\n% d\n2 ,0",
        "source,target\n0,1\n//x\n2,0\n",
        "\u{feff}0  1\n2\t 0",
        "\"source\",\"target\"\r\n\"0\",\"1\"\r\n\"2\", \"0\"\r\n",
        "\"0\" \"1\"\n2 0\n",
    ] {
        let coo = edges(text).unwrap_or_else(|e| panic!("{text:?}: {e}"));
        assert_eq!((coo.n_rows(), coo.cols(), coo.rows()), (3, &[0, 2][..], &[1, 0][..]), "{text:?}");
        assert!(coo.values().is_none());
    }
    assert_eq!(edges("u v w\n0 1 2.5\n1 0 -1e-3\n").unwrap().values(), Some(&[2.5, -1e-3][..]));
}

#[test]
fn edge_lists_say_which_line_is_wrong() {
    let cases = [
        ("0 1\n1 x\n", "line 2: \"x\" is not a node id"),
        ("0 1\n-1 0\n", "line 2: \"-1\" is not a node id"),
        ("0 1\n1.0 0\n", "line 2: \"1.0\" is not a node id"),
        ("0 1\n3\n", "line 2: one field"),
        ("0,1\n,3\n", "line 2: \"\" is not a node id"),
        ("0,1\n3,\n", "line 2: \"\" is not a node id"),
        ("0 1\n3 4 5\n", "line 2: a third field"),
        ("0 1 1\n3 4\n", "line 2: no weight"),
        ("0 1 1\n3 4 nan\n", "line 2: \"nan\" is not a weight"),
        ("h\nh2\n0 1\n", "line 1: the header (h) names 0 columns as sources and 0 as targets"),
        ("0 1 2 3\n", "line 1: 4 fields without a header; say which is which by --columns source,target,weight,time"),
        ("0 99999999999999999999\n", "line 1: node id 99999999999999999999 is too large"),
        (
            "0 4294967296\n",
            "line 1: node id 4294967296 is too large; ids are below 2147483647: number the nodes from 0",
        ),
        ("0 1\n0 2000000000\n", "the largest id is 2000000000, but there are only 2 edges"),
        ("%%MatrixMarket matrix\n", "give it the ending .mtx"),
    ];
    for (text, expected) in cases {
        let message = edges(text).expect_err(text).to_string();
        assert!(message.contains(expected), "{text:?}: {message}");
    }
    let message = parse_edge_list(b"0 1\n1 5\n", &with_n_nodes(5)).unwrap_err().to_string();
    assert!(message.contains("line 2: node 5 does not exist; there are at most 5 nodes"), "{message}");
}

#[test]
fn mapped_arrays_are_not_copied() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("x.npy");
    write_npy::<i64>(&path, &[3], &[1, 2, 3]).unwrap();
    let bytes = fs::read(&path).unwrap();
    assert_eq!((bytes.len() - 24) % 64, 0, "docs/formats.md: values start at a multiple of 64 bytes");
    let offsets = Array::map(&path).unwrap().into_offsets().unwrap();
    assert!(offsets.is_mapped());
    assert_eq!(&offsets[..], &[1, 2, 3]);
    assert!(matches!(Array::read(&path).unwrap().into_values(), Values::I64(v) if !v.is_mapped()));

    let graph = home.path().join("graph");
    let csr = Csr::new(2, 2, vec![0, 1, 2], vec![1, 0], Some(vec![0.5, 2.0].into())).unwrap();
    write_folder(&graph, &csr).unwrap();
    let folder = Folder::open(&graph, Verify::Structure).unwrap();
    assert!(folder.array("indices").unwrap().into_ids().unwrap().is_mapped());
    assert!(folder.array("indptr").unwrap().into_offsets().unwrap().is_mapped());
}

#[test]
fn other_versions_and_foreign_folders_are_refused() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("graph");
    write_folder(&path, &Csr::empty(2, 2).unwrap()).unwrap();
    let manifest = path.join(MANIFEST);
    let text = fs::read_to_string(&manifest).unwrap();
    let newer = text.replace("version = 1", "version = 7");
    assert_ne!(text, newer);
    fs::write(&manifest, newer).unwrap();
    let message = read_folder(&path).unwrap_err().to_string();
    assert!(message.contains("version 7") && message.contains(&format!("version {FOLDER_VERSION}")), "{message}");

    let outside = text.replace("[arrays.indptr]", "[arrays.\"../indptr\"]");
    fs::write(&manifest, outside).unwrap();
    assert!(read_folder(&path).unwrap_err().is_corrupt());

    // A folder with other files in it is not replaced.
    fs::write(path.join("notes.txt"), "keep me").unwrap();
    assert!(FolderWriter::create(&path).is_err());
    fs::remove_file(path.join("notes.txt")).unwrap();

    fs::remove_file(&manifest).unwrap();
    assert!(read_folder(&path).unwrap_err().is_not_found());
    // A folder without a manifest belongs to another program.
    assert!(FolderWriter::create(&path).is_err());
    assert!(files_in(&path).len() > 1);
}

/// Bytes of version 1 in full: a change here is a change of the format.
#[test]
fn the_folder_is_the_documented_one() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("graph");
    write_folder(&path, &Csr::new(2, 3, vec![0, 0, 2], vec![0, 2], None).unwrap()).unwrap();
    let text = fs::read_to_string(path.join(MANIFEST)).unwrap();
    let expected = "format = \"girih-folder\"\nversion = 1\n\n\
                    [arrays.indices]\nbytes = 136\ncrc32 = 3774937493\n\n\
                    [arrays.indptr]\nbytes = 152\ncrc32 = 1148899686\n\n\
                    [graph]\nn_cols = 3\nn_rows = 2\nnnz = 2\nweighted = false\n";
    assert_eq!(text, expected);

    let indices = fs::read(path.join("indices.npy")).unwrap();
    assert!(indices.starts_with(b"\x93NUMPY\x01\x00\x76\x00{'descr': '<i4', 'fortran_order': False, 'shape': (2,), }"));
    assert_eq!(indices[128..], [0, 0, 0, 0, 2, 0, 0, 0]);

    let page = include_str!("../../../../docs/formats.md");
    let example = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let (documented, written): (toml::Table, toml::Table) = (example.parse().unwrap(), text.parse().unwrap());
    let keys =
        |table: &toml::Table, name: &str| -> Vec<String> { table[name].as_table().unwrap().keys().cloned().collect() };
    assert!(documented.keys().eq(written.keys()));
    for section in ["arrays", "graph"] {
        assert_eq!(keys(&documented, section), keys(&written, section));
    }
    assert_eq!(documented["arrays"]["indptr"].as_table().unwrap().len(), 2);
}

#[test]
fn a_failed_or_abandoned_write_leaves_no_trace() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("x.bin");
    write_file(&path, |out| Ok(out.write_all(b"first")?)).unwrap();
    let failed = write_file(&path, |out| {
        out.write_all(b"second")?;
        Err(FormatError::invalid("stop"))
    });
    assert!(failed.is_err());
    assert_eq!(fs::read(&path).unwrap(), b"first");

    let mut folder = FolderWriter::create(&home.path().join("graph")).unwrap();
    folder.graph(&Csr::empty(3, 3).unwrap()).unwrap();
    drop(folder);
    assert_eq!(files_in(home.path()), vec![path]);
}

/// A process on its way out removes unfinished output, while another thread is about to finish it.
#[test]
fn a_folder_that_was_removed_unfinished_replaces_nothing() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("graph");
    let write = |n: usize| {
        let mut folder = FolderWriter::create(&path).unwrap();
        folder.graph(&Csr::empty(n, n).unwrap()).unwrap();
        folder
    };
    write(3).finish().unwrap();
    let other = write(4);
    let unfinished = files_in(home.path()).into_iter().find(|file| *file != path).unwrap();
    fs::remove_dir_all(unfinished).unwrap();
    assert!(other.finish().is_err());
    let kept = Folder::open(&path, Verify::Full).unwrap();
    assert_eq!(kept.graph().unwrap().n_rows(), 3);
    assert_eq!(files_in(home.path()), vec![path]);
}

#[test]
fn folders_carry_other_arrays_and_sections() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("data");
    let mut writer = FolderWriter::create(&path).unwrap();
    let mut stream = writer.stream::<f32>("features", &[2, 3]).unwrap();
    stream.write(&[1.0, 2.0]).unwrap();
    stream.write(&[3.0, 4.0, 5.0, 6.0]).unwrap();
    stream.finish().unwrap();
    writer.section("dataset", &std::collections::BTreeMap::from([("name", "two rows")])).unwrap();
    writer.finish().unwrap();

    let folder = Folder::open(&path, Verify::Full).unwrap();
    let features = folder.array("features").unwrap().into_matrix().unwrap();
    assert_eq!(features.row(1), [4.0, 5.0, 6.0]);
    let section: std::collections::BTreeMap<String, String> = folder.section("dataset").unwrap().unwrap();
    assert_eq!(section["name"], "two rows");
    assert!(folder.section::<toml::Table>("graph").unwrap().is_none());
    assert!(folder.graph().is_err());
    assert!(folder.array("labels").unwrap_err().to_string().contains("holds features"));
}
