//! Invalid input to the whole program: exit status 1, one message that names the file, and no files left behind.
//!
//! Truncated and bit-flipped copies of every format are covered by the loaders' own tests.

use std::fs::{self, File};
use std::io::BufWriter;

use girih_graph_format::FormatError;
use girih_graph_format::file::{NpzWriter, write_npy};

use crate::girih::{Workspace, girih, names_in, says};

/// Writer of an archive in a file.
type Archive<'a> = NpzWriter<&'a mut BufWriter<File>>;

/// Folder with a valid edge list of six nodes, features and labels; tests replace one of them.
struct Case {
    work: Workspace,
}

impl Case {
    fn new() -> Self {
        let case = Self { work: Workspace::new() };
        case.text("edges.csv", "0,1\n1,2\n2,3\n3,4\n4,5\n5,0\n");
        write_npy(&case.work.path("x.npy"), &[6, 2], &(0..12).map(|i| i as f32).collect::<Vec<_>>()).unwrap();
        write_npy(&case.work.path("y.npy"), &[6], &[0i64, 1, 0, 1, 0, 1]).unwrap();
        case
    }

    fn text(&self, name: &str, text: &str) {
        fs::write(self.work.path(name), text).unwrap();
    }

    /// Writes a `.npy` file with an arbitrary header.
    fn npy(&self, name: &str, descr: &str, fortran: bool, shape: &str, data: &[u8]) {
        let order = if fortran { "True" } else { "False" };
        let header = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}");
        let mut bytes = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
        bytes.extend(header.bytes());
        bytes.resize(127, b' ');
        bytes.push(b'\n');
        bytes.extend(data);
        fs::write(self.work.path(name), bytes).unwrap();
    }

    /// Message of training on `data`, with the features and labels beside it if the format needs them.
    fn refusal(&self, data: &str, culprit: &str) -> String {
        let before = names_in(self.work.folder());
        let message = girih(&self.train(data)).refused(1);
        assert!(says(&message, &self.work.arg(culprit)), "{culprit} is not named: {message}");
        assert_eq!(names_in(self.work.folder()), before, "something is left behind");
        message
    }

    fn train(&self, data: &str) -> Vec<String> {
        let mut args = ["train", "--epochs", "3", "--json", "--data"].map(str::to_owned).to_vec();
        args.push(self.work.arg(data));
        if data.ends_with(".csv") {
            args.extend(["--features".to_owned(), self.work.arg("x.npy")]);
            args.extend(["--labels".to_owned(), self.work.arg("y.npy")]);
        }
        args
    }
}

#[test]
fn the_unchanged_case_trains() {
    let case = Case::new();
    assert_eq!(girih(&case.train("edges.csv")).ok().result()["nodes"], 6);
}

/// Labels must be one known integer for each node.
#[test]
fn labels() {
    let case = Case::new();
    let floats: Vec<u8> = [0.5f32; 6].iter().flat_map(|v| v.to_le_bytes()).collect();
    let integers = |values: [i64; 6]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    let good = integers([0, 1, 0, 1, 0, 1]);
    let table: [(&str, &str, &str, &[u8]); 7] = [
        ("<f4", "(6,)", "node 0 has class 0.5", &floats),
        ("<c8", "(6,)", "", &good),
        ("|O", "(6,)", "Python objects", &good),
        ("<i8", "(2, 3)", "", &good),
        ("<i8", "(5,)", "", &good[..40]),
        ("<i8", "(6,)", "node 2 has class 70000", &integers([0, 1, 70_000, 1, 0, 1])),
        ("<i8", "(6,)", "", &[]),
    ];
    for (descr, shape, reason, data) in table {
        case.npy("y.npy", descr, false, shape, data);
        let message = case.refusal("edges.csv", "y.npy");
        assert!(says(&message, reason), "{descr} {shape}: {message}");
    }
    case.npy("y.npy", "<i8", false, "(6,)", &integers([-1; 6]));
    let message = girih(&case.train("edges.csv")).refused(1);
    assert!(says(&message, "no labels") || says(&message, "no training nodes"), "{message}");
}

/// Features must be one finite row of numbers for each node.
#[test]
fn features() {
    let case = Case::new();
    let floats = |values: [f32; 12]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    let good = floats([1.0; 12]);
    let mut with_nan = [1.0f32; 12];
    with_nan[7] = f32::NAN;
    let mut with_infinity = [1.0f32; 12];
    with_infinity[0] = f32::NEG_INFINITY;
    let table: [(&str, &str, &str, &[u8]); 6] = [
        ("<f4", "(6, 2)", "row 3, column 1", &floats(with_nan)),
        ("<f4", "(6, 2)", "row 0, column 0", &floats(with_infinity)),
        ("<f4", "(12,)", "", &good),
        ("<f4", "(6, 2)", "", &good[..40]),
        ("|O", "(6, 2)", "Python objects", &good),
        ("<U1", "(6, 2)", "", &good),
    ];
    for (descr, shape, reason, data) in table {
        case.npy("x.npy", descr, false, shape, data);
        let message = case.refusal("edges.csv", "x.npy");
        assert!(says(&message, reason), "{descr} {shape}: {message}");
    }
    case.npy("x.npy", "<f4", false, "(6, 0)", &[]);
    assert!(says(&girih(&case.train("edges.csv")).refused(1), "edges has no features"));
    fs::write(case.work.path("x.npy"), "").unwrap();
    case.refusal("edges.csv", "x.npy");
    fs::remove_file(case.work.path("x.npy")).unwrap();
    case.refusal("edges.csv", "x.npy");
}

/// Column-major features hold the same numbers, so training gives the same loss.
#[test]
fn features_in_fortran_order_are_read_right() {
    let case = Case::new();
    let loss = || girih(&case.train("edges.csv")).ok().result()["train_loss"].clone();
    let by_rows = loss();
    let by_columns: Vec<u8> =
        (0..2).flat_map(|column| (0..6).map(move |row| (2 * row + column) as f32)).flat_map(f32::to_le_bytes).collect();
    case.npy("x.npy", "<f4", true, "(6, 2)", &by_columns);
    assert_eq!(loss(), by_rows);
}

#[test]
fn edge_lists() {
    let case = Case::new();
    for (text, reason) in [
        ("0,1\n1,6\n", "6"),
        ("0,1\n1,-2\n", "line 2"),
        ("0,1\n1\n", "line 2"),
        ("0,1\n1,2,0.5\n", "line 2"),
        ("0,1,0.5\n1,2,nan\n", "line 2"),
        ("0,1\n1,two\n", "line 2"),
        ("0,99999999999999999999\n", "line 1"),
    ] {
        case.text("edges.csv", text);
        let message = case.refusal("edges.csv", "edges.csv");
        assert!(says(&message, reason), "{text:?}: {message}");
    }
}

#[test]
fn graphs_of_no_node_are_refused_and_of_one_node_train() {
    let case = Case::new();
    case.text("edges.csv", "# girih: nodes 0\n");
    write_npy::<f32>(&case.work.path("x.npy"), &[0, 2], &[]).unwrap();
    write_npy::<i64>(&case.work.path("y.npy"), &[0], &[]).unwrap();
    assert!(says(&girih(&case.train("edges.csv")).refused(1), "no nodes"));

    write_heterophilous(&case, "one.npz", 1, &[], 1);
    assert_eq!(girih(&case.train("one.npz")).ok().result()["nodes"], 1);
}

#[test]
fn isolated_nodes_train() {
    let case = Case::new();
    case.text("edges.csv", "0,1\n");
    let result = girih(&case.train("edges.csv")).ok().result();
    assert_eq!(result["nodes"], 6);
    assert!(result["train_loss"].as_f64().unwrap().is_finite(), "{result}");
}

/// Writes an archive of the heterophilous graphs: `n` nodes, and masks of width `mask_width` whose first node trains.
fn write_heterophilous(case: &Case, name: &str, n: usize, edges: &[i64], mask_width: usize) {
    let fill = |npz: &mut Archive<'_>| {
        npz.array("node_features", &[n, 1], &vec![1.0f32; n])?;
        npz.array("node_labels", &[n], &(0..n as i64).map(|v| v % 2).collect::<Vec<_>>())?;
        npz.array("edges", &[edges.len() / 2, 2], edges)?;
        for part in 0..3 {
            let mask: Vec<u8> = (0..mask_width).map(|v| u8::from(v == part)).collect();
            npz.array(&format!("{}_masks", ["train", "val", "test"][part]), &[1, mask_width], &mask)?;
        }
        Ok::<_, FormatError>(())
    };
    NpzWriter::write_file(&case.work.path(name), fill).unwrap();
}

#[test]
fn archives() {
    let case = Case::new();
    write_heterophilous(&case, "good.npz", 4, &[0, 1, 2, 3], 4);
    girih(&case.train("good.npz")).ok();
    for (name, edges, mask_width, reason) in [
        ("mask.npz", [0, 1, 2, 3], 5, "split masks of 5 nodes; the graph has 4"),
        ("edge.npz", [0, 1, 2, 4], 4, "4"),
        ("negative.npz", [0, 1, 2, -1], 4, "-1"),
    ] {
        write_heterophilous(&case, name, 4, &edges, mask_width);
        let message = case.refusal(name, name);
        assert!(says(&message, reason), "{name}: {message}");
    }
}

#[test]
fn files_that_are_no_data() {
    let case = Case::new();
    for (name, text) in
        [("empty.npz", ""), ("text.npz", "hello"), ("empty.zip", ""), ("notes.md", "hello"), ("x.gz", "")]
    {
        case.text(name, text);
        case.refusal(name, name);
    }
    fs::create_dir(case.work.path("folder")).unwrap();
    case.refusal("folder", "folder");
    fs::write(case.work.path("folder/girih.toml"), "").unwrap();
    case.refusal("folder", "folder/girih.toml");
}

#[test]
fn a_damaged_folder_is_not_converted() {
    let case = Case::new();
    let data = "synth:planted,nodes=60,degree=4,features=3";
    girih(&["generate", data, "--out", &case.work.arg("graph")]).ok();
    let features = case.work.path("graph/features.npy");
    let mut bytes = fs::read(&features).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&features, bytes).unwrap();
    case.refusal("graph", "graph/features.npy");
    let before = names_in(case.work.folder());
    let args = ["convert", "--data", &case.work.arg("graph"), "--out", &case.work.arg("copy.npz")];
    assert!(says(&girih(&args).refused(1), &case.work.arg("graph/features.npy")));
    assert_eq!(names_in(case.work.folder()), before);
}
