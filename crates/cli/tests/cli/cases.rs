//! Files as users report them: each is read as NumPy, SciPy, networkx or the format's own loader reads it, or is
//! refused with a remedy.

mod folders;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use girih_datasets::{Labels, LoadOptions, Split, UNLABELLED, load};
use girih_graph_format::file::{NpzWriter, read_sparse_npz, write_npy, write_sparse_npz};
use girih_graph_format::{Coo, Duplicates};
use serde_json::Value;

use crate::girih::{Finished, Workspace, girih, says};

/// Edge weights by (source, target).
type Edges = BTreeMap<(u32, u32), f32>;

/// Edges of weight 1.
fn pairs(pairs: &[(u32, u32)]) -> Edges {
    pairs.iter().map(|&pair| (pair, 1.0)).collect()
}

/// Each edge in both directions, with weight 1.
fn both(edges: &[(u32, u32)]) -> Edges {
    edges.iter().flat_map(|&(u, v)| [((u, v), 1.0), ((v, u), 1.0)]).collect()
}

/// Converts a file to an edge list. Returns the edges, and the result as JSON.
fn converted(work: &Workspace, file: &str, flags: &[&str]) -> (Edges, Value) {
    let (data, out) = (work.arg(file), work.arg("out.csv"));
    let args = [&["convert", "--data", &data, "--out", &out, "--json"], flags].concat();
    let result = girih(&args).ok().result();
    let text = std::fs::read_to_string(out).unwrap();
    let edge = |line: &str| {
        let mut fields = line.split(',');
        let mut next = || fields.next().map(|field| field.parse::<f32>().unwrap());
        let (source, target) = (next().unwrap() as u32, next().unwrap() as u32);
        ((source, target), next().unwrap_or(1.0))
    };
    (text.lines().filter(|line| !line.starts_with('#')).map(edge).collect(), result)
}

/// Edges of a file with this text, and the result of the conversion.
fn edges_of(file: &str, text: &str, flags: &[&str]) -> (Edges, Value) {
    let work = Workspace::new();
    std::fs::write(work.path(file), text).unwrap();
    converted(&work, file, flags)
}

fn refusal_of(file: &str, text: impl AsRef<[u8]>) -> String {
    let work = Workspace::new();
    std::fs::write(work.path(file), text).unwrap();
    let message = girih(&["stats", "--data", &work.arg(file)]).refused(1);
    assert!(says(&message, file), "no file is named: {message}");
    message
}

/// Whether the name or reason of unused data contains this word.
fn names(result: &Value, word: &str) -> bool {
    result["not_used"].as_array().unwrap().iter().any(|entry| entry.to_string().contains(word))
}

/// Number under `key` in the made-up data of this kind.
fn made(result: &Value, kind: &str, key: &str) -> Option<u64> {
    result["made_up"].as_array().unwrap().iter().find(|made| made["kind"] == kind)?[key].as_u64()
}

#[test]
fn case_01_the_index_column_of_pandas_is_no_node() {
    let (edges, result) = edges_of("edges.csv", ",source,target\n0,5,1\n1,1,2\n2,2,3\n", &[]);
    assert_eq!(edges, both(&[(5, 1), (1, 2), (2, 3)]));
    assert_eq!((result["edges"].as_u64(), made(&result, "symmetrized_edges", "edges")), (Some(6), Some(3)));
    assert!(!result["not_used"].as_array().unwrap().is_empty(), "{result}");
}

#[test]
fn case_03_time_stamps_are_no_weights() {
    let text = "source,target,timestamp\n0,1,1082040961\n1,2,1082155839\n0,1,1082439619\n";
    let (edges, result) = edges_of("edges.csv", text, &[]);
    assert_eq!(edges, both(&[(0, 1), (1, 2)]));
    assert!(names(&result, "timestamp"), "{result}");
    assert_eq!(made(&result, "merged_edges", "edges"), Some(1));
}

#[test]
fn case_04_a_header_says_which_end_comes_first() {
    let (edges, _) = edges_of("edges.csv", "target,source\n0,1\n1,2\n", &["--symmetrize", "false"]);
    assert_eq!(edges, pairs(&[(1, 0), (2, 1)]));
    let (edges, _) = edges_of("edges.csv", "0,1\n1,2\n", &["--symmetrize", "false", "--columns", "target,source"]);
    assert_eq!(edges, pairs(&[(1, 0), (2, 1)]));
}

#[test]
fn case_06_dictionaries_of_networkx() {
    let (edges, _) = edges_of("karate.txt", "0 1 {}\n1 2 {}\n", &[]);
    assert_eq!(edges, both(&[(0, 1), (1, 2)]));
    let (edges, _) = edges_of("karate.txt", "0 1 {'weight': 3.0}\n1 2 {'weight': 0.5}\n", &["--symmetrize", "false"]);
    assert_eq!(edges, Edges::from([((0, 1), 3.0), ((1, 2), 0.5)]));
}

#[test]
fn case_07_files_of_konect() {
    let (edges, result) = edges_of("out.moreno", "% sym unweighted\n1 2 \n2 3 \n", &[]);
    assert_eq!(edges, both(&[(0, 1), (1, 2)]), "ids count from 1 there: {result}");
    let (edges, _) = edges_of("out.directed", "% asym positive\n1 2 3\n2 1 1\n1 2 1\n", &[]);
    assert_eq!(edges, Edges::from([((0, 1), 4.0), ((1, 0), 1.0)]));
    let (edges, result) = edges_of("out.films", "% bip unweighted\n1 1\n2 1\n2 2\n", &["--symmetrize", "false"]);
    assert_eq!(edges, pairs(&[(0, 2), (1, 2), (1, 3)]), "items follow users: {result}");
}

#[test]
fn case_08_four_columns_are_asked_about() {
    let text = "1,2,1,1082040961\n2,3,1,1082155839\n";
    let message = refusal_of("nr.edges", text);
    assert!(says(&message, "--columns"), "{message}");
    let (edges, result) =
        edges_of("nr.edges", text, &["--columns", "source,target,weight,time", "--symmetrize", "false"]);
    assert_eq!(edges, pairs(&[(1, 2), (2, 3)]));
    assert!(names(&result, "time"), "{result}");
}

#[test]
fn case_10_hashes_are_no_ids() {
    let message = refusal_of("ids.csv", "src,dst\n18446744073709551615,1\n");
    assert!(says(&message, "18446744073709551615"), "{message}");
}

#[test]
fn case_11_a_byte_order_mark_and_line_ends_of_windows() {
    let (edges, _) = edges_of("edges.csv", "\u{feff}Source,Target\r\n0,1\r\n1,2\r\n", &[]);
    assert_eq!(edges, both(&[(0, 1), (1, 2)]));
}

#[test]
fn case_12_packed_lists_of_snap() {
    let work = Workspace::new();
    let file = std::fs::File::create(work.path("web.txt.gz")).unwrap();
    let mut packed = flate2::write::GzEncoder::new(file, flate2::Compression::default());
    packed.write_all(b"# Directed graph\n# FromNodeId\tToNodeId\n1\t2\n3\t4\n").unwrap();
    packed.finish().unwrap();
    assert_eq!(converted(&work, "web.txt.gz", &["--symmetrize", "false"]).0, pairs(&[(1, 2), (3, 4)]));
}

#[test]
fn case_14_a_file_without_an_edge_says_so() {
    assert!(says(&refusal_of("edges.txt", ""), "no edge"));
    assert!(says(&refusal_of("edges.txt", "# nothing yet\n"), "no edge"));
}

/// One edge with an id of sixteen million: statistics are linear in nodes, and the bound allows for a busy machine.
#[test]
fn case_15_statistics_of_sparse_ids_take_seconds() {
    let work = Workspace::new();
    std::fs::write(work.path("edges.txt"), "0 16000000\n").unwrap();
    let started = Instant::now();
    let result = girih(&["stats", "--data", &work.arg("edges.txt"), "--json"]).ok().result();
    assert_eq!((result["nodes"].as_u64(), result["isolated"].as_u64()), (Some(16_000_001), Some(15_999_999)));
    assert!(!result["warnings"].as_array().unwrap().is_empty(), "most ids never occur");
    assert!(started.elapsed() < Duration::from_secs(60), "{:?}", started.elapsed());
}

/// Ring of 30 nodes with signs, features and labels; returns the flags.
fn signed(work: &Workspace) -> [String; 6] {
    let sign = |v: usize| if v.is_multiple_of(3) { 1 } else { -1 };
    let lines: String = (0..30).map(|v| format!("{v} {} {}\n", (v + 1) % 30, sign(v))).collect();
    std::fs::write(work.path("sign.txt"), format!("# FromNodeId ToNodeId Sign\n{lines}")).unwrap();
    write_npy(&work.path("x.npy"), &[30, 2], &(0..60).map(|i| (i % 7) as f32).collect::<Vec<_>>()).unwrap();
    write_npy(&work.path("y.npy"), &[30], &(0..30).map(|v| v % 3).collect::<Vec<i64>>()).unwrap();
    let flags = ["--features", "--labels"].map(str::to_owned);
    let [features, labels] = flags;
    ["--data".to_owned(), work.arg("sign.txt"), features, work.arg("x.npy"), labels, work.arg("y.npy")]
}

#[test]
fn case_16_a_signed_graph_has_no_degrees_to_normalise_by() {
    let work = Workspace::new();
    let data = signed(&work);
    let data: Vec<&str> = data.iter().map(String::as_str).collect();
    let message = girih(&[&["train"], &data[..], &["--epochs", "3"]].concat()).refused(1);
    assert!(says(&message, "--normalization absolute"), "{message}");
    let out = work.arg("out");
    let absolute = ["--epochs", "20", "--normalization", "absolute", "--out", &out];
    girih(&[&["train"], &data[..], &absolute].concat()).ok();
    let logits = work.arg("logits.npy");
    girih(&["predict", "--checkpoint", &out, "--logits", "--out", &logits]).ok();
    let rows = girih_graph_format::file::Array::read(Path::new(&logits)).unwrap().into_matrix().unwrap();
    let column: Vec<f32> = (0..30).map(|v| rows.row(v)[0]).collect();
    let spread = column.iter().copied().fold(f32::MIN, f32::max) - column.iter().copied().fold(f32::MAX, f32::min);
    assert!(spread > 1e-3, "a constant output: {column:?}");
}

/// Ring of four nodes, converted to the folder `out` with these flags.
fn ring_with(work: &Workspace, flags: &[&str]) -> Finished {
    std::fs::write(work.path("e.txt"), "0 1\n1 2\n2 3\n3 0\n").unwrap();
    girih(&[&["convert", "--data", &work.arg("e.txt"), "--out", &work.arg("out"), "--json"], flags].concat())
}

#[test]
fn case_17_labels_as_floats() {
    let work = Workspace::new();
    write_npy(&work.path("y.npy"), &[4], &[0f64, 1.0, 0.0, 1.0]).unwrap();
    ring_with(&work, &["--labels", &work.arg("y.npy")]).ok();
    let labels = load(&work.arg("out"), &LoadOptions::default()).unwrap().labels;
    assert_eq!(labels, Some(Labels::Single { n_classes: 2, classes: vec![0, 1, 0, 1] }));
}

#[test]
fn case_18_sparse_features_of_scipy() {
    let work = Workspace::new();
    let eye = Coo::new(4, 4, vec![0, 1, 2, 3], vec![0, 1, 2, 3], None).unwrap().to_csr(Duplicates::Refuse).unwrap();
    write_sparse_npz(&work.path("x.npz"), &eye).unwrap();
    let result = ring_with(&work, &["--features", &work.arg("x.npz")]).ok().result();
    assert_eq!(result["features"], 4);
}

#[test]
fn case_20_ids_that_count_from_one_are_told() {
    let work = Workspace::new();
    std::fs::write(work.path("e.txt"), "1 2\n2 3\n3 4\n4 1\n").unwrap();
    write_npy(&work.path("y.npy"), &[4], &[0i64, 1, 0, 1]).unwrap();
    let (data, labels, out) = (work.arg("e.txt"), work.arg("y.npy"), work.arg("out"));
    let args = ["convert", "--data", &data, "--labels", &labels, "--out", &out];
    let message = girih(&args).refused(1);
    assert!(says(&message, "4 labels for 5 nodes") && says(&message, "--ids-from 1"), "{message}");
    girih(&[&args[..], &["--ids-from", "1"]].concat()).ok();
    assert_eq!(load(&out, &LoadOptions::default()).unwrap().n_nodes(), 4);
}

#[test]
fn case_32_unsigned_integers_of_scipy() {
    let text = "%%MatrixMarket matrix coordinate unsigned-integer symmetric\n%\n3 3 2\n2 1 4\n3 2 5\n";
    let (edges, _) = edges_of("a.mtx", text, &[]);
    assert_eq!(edges, Edges::from([((0, 1), 4.0), ((1, 0), 4.0), ((1, 2), 5.0), ((2, 1), 5.0)]));
}

#[test]
fn case_35_repeated_entries_add_up_as_in_scipy() {
    let text = "%%MatrixMarket matrix coordinate pattern general\n3 3 2\n1 2\n1 2\n";
    let (edges, result) = edges_of("a.mtx", text, &[]);
    assert_eq!(edges, Edges::from([((1, 0), 2.0)]));
    assert!(result["made_up"].to_string().contains("merged_edges"), "{result}");
    assert_eq!(edges_of("a.mtx", text, &["--duplicates", "merge"]).0, pairs(&[(1, 0)]));
    let work = Workspace::new();
    std::fs::write(work.path("a.mtx"), text).unwrap();
    let refused = girih(&["stats", "--data", &work.arg("a.mtx"), "--duplicates", "refuse"]).refused(1);
    assert!(says(&refused, "a.mtx"), "{refused}");
}

#[test]
fn case_36_the_example_of_nist() {
    let text = "%%MatrixMarket  MATRIX    Coordinate    Real General\n% c\n\n   5  5         2\n\n1 1  1.0\n   4 2   -2.8E2\n\n";
    assert_eq!(edges_of("a.mtx", text, &[]).0, Edges::from([((0, 0), 1.0), ((1, 3), -280.0)]));
}

#[test]
fn case_37_weights_of_nodes_in_metis_files() {
    let text = "% c\n%\n3 3 10 3\n%\n1 2 0 2 3\n0 2 2 1 3\n4 1 1 1 2\n";
    let (edges, result) = edges_of("a.graph", text, &[]);
    assert_eq!(edges, both(&[(0, 1), (0, 2), (1, 2)]));
    assert!(names(&result, "weight"), "weights of nodes are not used: {result}");
}

#[test]
fn case_39_isolated_nodes_at_the_end_of_a_metis_file() {
    let (edges, result) = edges_of("a.graph", "4 2\n2 3\n1\n1\n", &[]);
    assert_eq!((edges, result["nodes"].as_u64()), (both(&[(0, 1), (0, 2)]), Some(4)));
}

/// All of SciPy's sparse formats are read as SciPy reads them, converted to another format and back.
#[test]
fn case_40_the_variants_of_scipy() {
    let work = Workspace::new();
    let dense = [[0f32, 0.5, 0.0], [0.0, 0.0, -2.0], [4.0, 0.0, 0.0]];
    NpzWriter::write_file(&work.path("csc.npz"), |npz| {
        npz.ascii("format", "csc")?;
        npz.array("shape", &[2], &[3i64, 3])?;
        npz.array("indptr", &[4], &[0i32, 1, 2, 3])?;
        npz.array("indices", &[3], &[2i32, 0, 1])?;
        npz.array("data", &[3], &[4f64, 0.5, -2.0])
    })
    .unwrap();
    NpzWriter::write_file(&work.path("coo_array.npz"), |npz| {
        npz.ascii("format", "coo")?;
        npz.array("_is_array", &[1], &[1u8])?;
        npz.array("shape", &[2], &[3i64, 3])?;
        npz.array("row", &[3], &[2i32, 0, 1])?;
        npz.array("col", &[3], &[0i32, 1, 2])?;
        npz.array("data", &[3], &[4f32, 0.5, -2.0])
    })
    .unwrap();
    NpzWriter::write_file(&work.path("dup.npz"), |npz| {
        npz.ascii("format", "coo")?;
        npz.array("shape", &[2], &[3i64, 3])?;
        npz.array("row", &[4], &[2i32, 0, 0, 1])?;
        npz.array("col", &[4], &[0i32, 1, 1, 2])?;
        npz.array("data", &[4], &[4i64, 1, -1, -2])
    })
    .unwrap();
    for name in ["csc", "coo_array", "dup"] {
        let out = work.arg(&format!("out_{name}.npz"));
        let data = work.arg(&format!("{name}.npz"));
        let result = girih(&["convert", "--data", &data, "--out", &out, "--json"]).ok().result();
        assert!(result["not_used"].as_array().unwrap().is_empty(), "{result}");
        let matrix = read_sparse_npz(Path::new(&out)).unwrap();
        for (row, expected) in dense.iter().enumerate() {
            let mut found = [0f32; 3];
            matrix.row_entries(row).for_each(|(column, value)| found[column as usize] = value);
            let expected = if name == "dup" && row == 0 { [0.0; 3] } else { *expected };
            assert_eq!(found, expected, "{name}, row {row}");
        }
    }
}

fn write_archive(path: &Path, with_features: bool) {
    NpzWriter::write_file(path, |npz| {
        npz.array("adj_data", &[2], &[1f32, 1.0])?;
        npz.array("adj_indices", &[2], &[1i32, 0])?;
        npz.array("adj_indptr", &[3], &[0i32, 1, 2])?;
        npz.array("adj_shape", &[2], &[2i64, 2])?;
        if with_features {
            npz.array("attr_matrix", &[2, 3], &[1f32; 6])?;
        }
        npz.array("labels", &[2], &[0i64, 1])
    })
    .unwrap();
}

#[test]
fn case_41_archives_without_features() {
    let work = Workspace::new();
    write_archive(&work.path("polblogs.npz"), false);
    let result = girih(&["stats", "--data", &work.arg("polblogs.npz"), "--json"]).ok().result();
    assert_eq!((result["nodes"].as_u64(), result.get("features")), (Some(2), None));
    let message = girih(&["train", "--data", &work.arg("polblogs.npz"), "--epochs", "2"]).refused(1);
    assert!(says(&message, "--features-from"), "{message}");
}

#[test]
fn case_42_classes_too_small_for_the_standard_split() {
    let work = Workspace::new();
    write_archive(&work.path("a.npz"), true);
    let data = work.arg("a.npz");
    let result = girih(&["stats", "--data", &data, "--json"]).ok().result();
    assert_eq!(result["splits"], serde_json::json!([]));
    assert!(result["warnings"].to_string().contains("class 0 has 1 labelled nodes"), "{result}");
    girih(&["convert", "--data", &data, "--out", &work.arg("out")]).ok();
    let message = girih(&["train", "--data", &data, "--epochs", "2"]).refused(1);
    assert!(says(&message, "--split random"), "{message}");
}

#[test]
fn case_43_the_layout_of_ogbn_arxiv() {
    let work = Workspace::new();
    let write = |name: &str, text: String| {
        let path = work.path("og").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("raw/edge.csv", (0..12).map(|v| format!("{v},{}\n", (v + 1) % 12)).collect());
    write("raw/num-node-list.csv", "12\n".to_owned());
    write("raw/num-edge-list.csv", "12\n".to_owned());
    write("raw/node-feat.csv", "0.5,-1e-2\n".repeat(12));
    write("raw/node-label.csv", "0.0\n1.0\n2.0\n0.0\n1.0\n2.0\n0.0\n1.0\n2.0\nnan\n1.0\n2.0\n".to_owned());
    write("raw/node_year.csv", "2010\n".repeat(12));
    write("split/time/train.csv", "3\n0\n".to_owned());
    write("split/time/valid.csv", "4\n".to_owned());
    write("split/time/test.csv", "5\n".to_owned());
    write("mapping/README.md", "names".to_owned());
    write("RELEASE_v1.txt", String::new());
    let result = girih(&["convert", "--data", &work.arg("og"), "--out", &work.arg("out"), "--json"]).ok().result();
    for name in ["mapping/", "RELEASE_v1.txt", "raw/node_year.csv"] {
        assert!(names(&result, name), "{name}: {result}");
    }
    let read = load(&work.arg("out"), &LoadOptions::default()).unwrap();
    let mut classes: Vec<u32> = (0..12).map(|v| v % 3).collect();
    classes[9] = UNLABELLED;
    assert_eq!(read.labels, Some(Labels::Single { n_classes: 3, classes }));
    assert_eq!(read.splits, [Split { train: vec![0, 3], val: vec![4], test: vec![5] }]);
}

#[test]
fn case_46_users_without_test_items() {
    let work = Workspace::new();
    std::fs::create_dir(work.path("lg")).unwrap();
    std::fs::write(work.path("lg").join("train.txt"), "0 0 1 2\n1 1 3\n2 0 4\n3 2 5\n").unwrap();
    std::fs::write(work.path("lg").join("test.txt"), "0 3\n1 \n2 5\n3\n").unwrap();
    let args = ["train", "--data", &work.arg("lg"), "--model", "lightgcn", "--epochs", "2", "--batch-size", "4"];
    let result = girih(&[&args[..], &["--dim", "4", "--json"]].concat()).ok().result();
    assert!(result["recall_at_20"].as_f64().is_some_and(|recall| recall > 0.0), "{result}");
    let learned = girih(&[&args[..], &["--features-from", "embedding:4", "--json"]].concat()).ok().result();
    assert_eq!(learned["train_loss"], result["train_loss"], "the width of what lightgcn learns");
    let both = girih(&[&args[..], &["--features-from", "embedding:8", "--dim", "4"]].concat()).refused(2);
    assert!(says(&both, "leave one out"), "{both}");
}
