//! Laws of graphs and rows of numbers as text, and of tensors. Written data reads back, wrong data is refused by
//! line, and a truncated file is never read partially.

use std::fs;
use std::path::Path;

use crate::common::{any_csr, any_graph};
use girih_graph_format::file::{
    Missing, Tensor, Tensors, parse_csv, parse_matrix_market, parse_metis, read_csv, read_integers, read_matrix_market,
    read_metis, write_matrix_market, write_metis, write_tensors,
};
use girih_graph_format::{Coo, Csr, Duplicates, FormatError, Notes};
use proptest::collection::vec;
use proptest::prelude::*;

/// Drops weights that are all one: these formats do not distinguish them from none.
fn plain(csr: Csr) -> Csr {
    let ones = csr.values().is_some_and(|v| v.iter().all(|&w| w == 1.0));
    if ones { csr.with_values(None).unwrap() } else { csr }
}

/// Undirected graph with positive integer weights, or none.
fn undirected() -> impl Strategy<Value = Csr> {
    any_graph().prop_map(|graph| {
        let graph = graph.symmetrized().without_self_loops();
        let weights = graph.values().map(|values| values.iter().map(|w| (w.abs() * 8.0).max(1.0)).collect::<Vec<_>>());
        // Opposite directions may differ before; the larger weight stays.
        graph.with_values(weights.map(Into::into)).unwrap().symmetrized()
    })
}

fn mtx(text: &str) -> Result<Csr, FormatError> {
    parse_matrix_market(text.as_bytes(), Duplicates::Sum).map(|(csr, _)| csr)
}

fn metis(text: &str) -> Result<Csr, FormatError> {
    parse_metis(text.as_bytes()).map(|(csr, _)| csr)
}

fn load_mtx(path: &Path) -> Result<Csr, FormatError> {
    read_matrix_market(path, Duplicates::Sum).map(|(csr, _)| csr)
}

fn load_metis(path: &Path) -> Result<Csr, FormatError> {
    read_metis(path).map(|(csr, _)| csr)
}

/// Message of the parser, which must name the line.
fn refusal(parsed: Result<Csr, FormatError>, text: &str) -> String {
    parsed.expect_err(text).to_string()
}

fn matrix(n_rows: usize, n_cols: usize, entries: &[(u32, u32, f32)]) -> Csr {
    let rows = entries.iter().map(|e| e.0).collect();
    let cols = entries.iter().map(|e| e.1).collect();
    let weights = entries.iter().map(|e| e.2).collect();
    Coo::new(n_rows, n_cols, rows, cols, Some(weights)).unwrap().to_csr(Duplicates::Refuse).unwrap()
}

proptest! {
    // Written data reads back.
    #[test]
    fn matrix_market_files_read_back(a in any_csr(), name in prop_oneof![Just("a.mtx"), Just("a.mtx.gz")]) {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join(name);
        write_matrix_market(&path, &a).unwrap();
        prop_assert_eq!(load_mtx(&path).unwrap(), plain(a));
    }

    #[test]
    fn metis_files_read_back(a in undirected(), name in prop_oneof![Just("a.graph"), Just("a.graph.gz")]) {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join(name);
        write_metis(&path, &a).unwrap();
        prop_assert_eq!(load_metis(&path).unwrap(), plain(a));
    }

    #[test]
    fn tensors_read_back(ids in vec(any::<i32>(), 0..40), floats in vec(-1e30f32..1e30, 0..40), bools in vec(0..2u8, 0..9)) {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("a.safetensors");
        let tensors = vec![
            ("ids".to_owned(), Tensor::new::<i32>(&[ids.len(), 1], &ids[..])),
            ("floats".to_owned(), Tensor::new::<f32>(&[floats.len()], &floats[..])),
            ("bools".to_owned(), Tensor::bools(&[bools.len()], bools.clone())),
        ];
        write_tensors(&path, tensors).unwrap();
        let file = Tensors::open(&path).unwrap();
        let array = |name: &str| file.try_array(name).unwrap().unwrap();
        prop_assert_eq!(array("ids").expect_2d().unwrap(), (ids.len(), 1));
        prop_assert!(array("ids").into_i64().unwrap().iter().zip(&ids).all(|(&a, &b)| a == i64::from(b)));
        prop_assert_eq!(&array("floats").into_f32().unwrap()[..], &floats[..]);
        prop_assert_eq!(array("bools").into_bools().unwrap(), bools.iter().map(|&b| b == 1).collect::<Vec<_>>());
        prop_assert!(file.try_array("other").unwrap().is_none());
    }

    #[test]
    fn rows_of_numbers_read_back(width in 1..5usize, values in vec(-1e30f32..1e30, 0..60)) {
        let values = &values[..values.len() / width * width];
        let text: String = values
            .chunks(width)
            .map(|row| row.iter().map(f32::to_string).collect::<Vec<_>>().join(",") + "\n")
            .collect();
        let matrix = parse_csv(text.as_bytes(), Missing::Refuse).unwrap();
        prop_assert_eq!(matrix.data(), values);
        prop_assert_eq!(matrix.n_rows(), values.len() / width);
    }

    // A file of counts is refused wherever it is cut, unless only its last number or line end is touched. A last
    // number that lost a digit is another number, perhaps an earlier one, so that an entry may be missing.
    #[test]
    fn cut_files_are_refused(a in undirected(), at in any::<proptest::sample::Index>()) {
        let home = tempfile::tempdir().unwrap();
        for (name, write, read) in [
            ("a.mtx", write_matrix_market as fn(&Path, &Csr) -> Result<(), FormatError>, load_mtx as fn(&Path) -> Result<Csr, FormatError>),
            ("a.graph", write_metis, load_metis),
            ("a.mtx.gz", write_matrix_market, load_mtx),
            ("a.graph.gz", write_metis, load_metis),
        ] {
            let path = home.path().join(name);
            write(&path, &a).unwrap();
            let bytes = fs::read(&path).unwrap();
            let at = at.index(bytes.len());
            fs::write(&path, &bytes[..at]).unwrap();
            match read(&path) {
                Ok(graph) => {
                    let lost = &bytes[at..];
                    let is_last_number = !name.ends_with("gz") && lost.iter().all(|b| b.is_ascii_digit() || *b == b'\n');
                    prop_assert!(is_last_number || a.nnz() == 0, "{} cut at byte {}", name, at);
                    let fewer = a.nnz() - graph.nnz();
                    prop_assert!(fewer <= usize::from(lost != b"\n"), "{} cut at byte {}", name, at);
                }
                Err(error) => prop_assert_eq!(error.path(), Some(&*path)),
            }
        }
    }

    #[test]
    fn any_text_is_no_panic(bytes in vec(any::<u8>(), 0..200), words in "[0-9 .\\-%\n]{0,80}") {
        let banner = b"%%MatrixMarket matrix coordinate real symmetric\n".to_vec();
        let dense = b"%%MatrixMarket matrix array integer skew-symmetric\n".to_vec();
        for text in [&bytes[..], words.as_bytes()] {
            let matrix = |text: &[u8]| parse_matrix_market(text, Duplicates::Sum);
            let parsed = [matrix(text), parse_metis(text), matrix(&[&banner, text].concat()), matrix(&[&dense, text].concat())];
            for (graph, _) in parsed.into_iter().flatten() {
                prop_assert!(graph.validate().is_ok());
            }
            let _ = (parse_csv(text, Missing::Nan), parse_csv(text, Missing::Refuse));
        }
    }

    // Neither a graph nor the line of an error depends on the number of chunks.
    #[test]
    fn long_files_are_read_in_chunks(n in 2..4000usize, comment_every in 2..50usize) {
        let padding = " ".repeat(1000);
        let comment = |v: usize| if v % comment_every == 1 { "% a comment\n" } else { "" };
        let ring: String = (0..n).map(|v| {
            let (left, right) = ((v + n - 1) % n + 1, (v + 1) % n + 1);
            if left == right { format!("{}{left}{padding}\n", comment(v)) } else { format!("{}{left}{padding}{right}\n", comment(v)) }
        }).collect();
        let text = format!("{n} {}\n{ring}", if n == 2 { 1 } else { n });
        let graph = metis(&text).unwrap();
        prop_assert!((0..n).all(|v| graph.row(v).contains(&(((v + 1) % n) as u32))));
        let broken = format!("{text}oops\n");
        let n_lines = broken.lines().count();
        let message = refusal(metis(&broken), "oops");
        let place = format!("line {n_lines}:");
        prop_assert!(message.contains(&place), "{}", message);
    }
}

#[test]
fn matrix_market_in_every_dialect() {
    let lower = matrix(3, 3, &[(1, 0, 2.0), (2, 2, 0.5)]);
    for text in [
        "%%MatrixMarket matrix coordinate real general\n3 3 2\n2 1 2\n3 3 .5\n",
        "%%matrixmarket MATRIX Coordinate Double General\r\n% c\r\n\r\n3 3 2\r\n%d\r\n3 3 5e-1\r\n2\t1 2.0",
        "%%MatrixMarket matrix array real general\n3 3\n0\n2\n0\n0\n0\n0\n0\n0\n0.5\n",
    ] {
        assert_eq!(mtx(text).unwrap(), lower, "{text}");
    }
    let nist = "%%MatrixMarket  MATRIX    Coordinate    Real General\n% c\n\n   5  5         2\n\n1 1  1.0\n   4 2   -2.8E2\n\n";
    assert_eq!(mtx(nist).unwrap(), matrix(5, 5, &[(0, 0, 1.0), (3, 1, -280.0)]));
    let both = matrix(3, 3, &[(0, 1, 2.0), (1, 0, 2.0), (2, 2, 0.5)]);
    assert_eq!(mtx("%%MatrixMarket matrix coordinate real symmetric\n3 3 2\n2 1 2\n3 3 .5\n").unwrap(), both);
    for upper in ["1 2 2\n3 3 .5", "3 3 .5\n1 2 .5\n1 2 1.5"] {
        let n = upper.lines().count();
        let text = format!("%MatrixMarket matrix coordinate real symmetric\n3 3 {n}\n{upper}\n");
        assert_eq!(mtx(&text).unwrap(), both, "SciPy mirrors the upper triangle, too: {text}");
    }
    let counts = "%%MatrixMarket matrix coordinate unsigned-integer symmetric\n%\n3 3 2\n2 1 4\n3 2 5\n";
    assert_eq!(mtx(counts).unwrap(), matrix(3, 3, &[(0, 1, 4.0), (1, 0, 4.0), (1, 2, 5.0), (2, 1, 5.0)]));
    assert_eq!(mtx("%%MatrixMarket matrix array real symmetric\n3 3\n0 2 0\n0 0\n.5\n").unwrap(), both);
    let skew = matrix(2, 2, &[(0, 1, -2.0), (1, 0, 2.0)]);
    assert_eq!(mtx("%%MatrixMarket matrix coordinate integer skew-symmetric\n2 2 1\n2 1 2\n").unwrap(), skew);
    assert_eq!(mtx("%%MatrixMarket matrix array integer skew-symmetric\n2 2\n2\n").unwrap(), skew);
    let pattern = mtx("%%MatrixMarket matrix coordinate pattern general\n2 3 3\n1 3\n1 3\n2 1\n");
    assert_eq!(pattern.unwrap().values(), Some(&[2.0, 1.0][..]), "repeated entries of a pattern add up, as in SciPy");
    let summed = mtx("%%MatrixMarket matrix coordinate real general\n1 1 2\n1 1 1\n1 1 3\n").unwrap();
    assert_eq!(summed.values(), Some(&[4.0][..]), "repeated entries add up");
}

#[test]
fn matrix_market_files_say_which_line_is_wrong() {
    let head = "%%MatrixMarket matrix coordinate";
    let cases = [
        ("<!DOCTYPE html>\n".to_owned(), "it is an HTML or XML page, not a Matrix Market file"),
        ("".to_owned(), "line 1: a Matrix Market file starts with"),
        ("1 2\n".to_owned(), "line 1: a Matrix Market file starts with"),
        ("%%MatrixMarket vector coordinate real general\n".to_owned(), "the object is vector"),
        ("%%MatrixMarket matrix sparse real general\n".to_owned(), "the layout is sparse"),
        (format!("{head} complex general\n"), "the values are complex"),
        ("%%MatrixMarket matrix array pattern general\n".to_owned(), "the values are pattern"),
        (format!("{head} real hermitian\n"), "hermitian"),
        (format!("{head} pattern skew-symmetric\n"), "the symmetry is skew-symmetric"),
        (format!("{head} real\n"), "the symmetry is nothing"),
        (format!("{head} real general\n% c\n"), "ends after line 2"),
        (format!("{head} real general\n3 3\n"), "line 2: expected three sizes"),
        (format!("{head} real symmetric\n3 4 1\n"), "line 2: a symmetric matrix of 3 rows and 4 columns"),
        (format!("{head} real general\n3000000000 1 0\n"), "exceeds the limit"),
        (format!("{head} real general\n2000000000 2 0\n"), "2000000000 rows or columns, but there are only 0 edges"),
        (
            format!("{head} real general\n3 3 1\n\n%\n0 1 1\n"),
            "line 5: row 0 does not exist; there are 3, numbered from 1",
        ),
        (format!("{head} real general\n3 3 1\n1 4 1\n"), "line 3: column 4 does not exist"),
        (format!("{head} real general\n3 3 1\n1 x 1\n"), "line 3: \"x\" is not a column"),
        (format!("{head} real general\n3 3 1\n1 2\n"), "line 3: no value"),
        (format!("{head} real general\n3 3 1\n1 2 nan\n"), "line 3: \"nan\" is not a value"),
        (format!("{head} real general\n3 3 1\n1 2 1e99\n"), "line 3: \"1e99\" is not a value"),
        (format!("{head} real general\n3 3 1\n1 2 3 4\n"), "line 3: more than three fields"),
        (format!("{head} pattern general\n3 3 1\n1 2 3\n"), "line 3: more than two fields"),
        (
            format!("{head} real symmetric\n3 3 2\n1 2 3\n2 1 3\n"),
            "line 2: a symmetric file lists row 1, column 2 as well as row 2, column 1; if it lists all entries, write general",
        ),
        (format!("{head} real skew-symmetric\n3 3 1\n2 2 3\n"), "line 3: an entry on the diagonal"),
        (format!("{head} real general\n3 3 2\n1 2 3\n"), "line 2: the sizes ask for 2 entries, but the file lists 1"),
        (format!("{head} real general\n3 3 1\n1 2 3\n1 1 1\n"), "ask for 1 entries"),
    ];
    for (text, expected) in cases {
        let message = refusal(mtx(&text), &text);
        assert!(message.contains(expected), "{text:?}: {message}");
    }
}

#[test]
fn metis_in_every_dialect() {
    let path = matrix(4, 4, &[(0, 1, 1.0), (1, 0, 1.0), (1, 2, 1.0), (2, 1, 1.0)]);
    let path = plain(path);
    for text in [
        "4 2\n2\n3 1\n2\n\n",
        "% c\n4 2 0\r\n2\r\n%d\r\n1  3\r\n2\r\n\r\n\r\n\r\n",
        "4 2 011\n5 2 1\n5 1 1 3 1\n5 2 1\n5\n",
        "4 2 110 2\n9 5 5 2\n9 5 6 1 3\n9 7 7 2\n\n",
        "4 2 1\n2 1\n1 1 3 1\n2 1\n\n",
        "4 2\n2\n3 1\n2\n",
    ] {
        assert_eq!(metis(text).unwrap_or_else(|e| panic!("{text:?}: {e}")), path, "{text:?}");
    }
    let triangle: Vec<(u32, u32, f32)> =
        (0..3).flat_map(|u| (0..3).filter(move |&v| v != u).map(move |v| (u, v, 1.0))).collect();
    let with_vertex_weights = "% c\n%\n3 3 10 3\n%\n1 2 0 2 3\n0 2 2 1 3\n4 1 1 1 2\n";
    assert_eq!(metis(with_vertex_weights).unwrap(), plain(matrix(3, 3, &triangle)));
    let weighted = matrix(2, 2, &[(0, 1, 2.5), (1, 0, 2.5)]);
    assert_eq!(metis("2 1 001\n2 2.5\n1 2.5\n").unwrap(), weighted);
    assert_eq!(metis("0 0\n").unwrap(), Csr::empty(0, 0).unwrap());
}

#[test]
fn metis_files_say_which_line_is_wrong() {
    let cases = [
        ("", "no line says"),
        ("% c\nx y\n", "line 2: expected the numbers of nodes and edges"),
        ("3\n", "line 1: expected the numbers"),
        ("{\"nodes\": 3}\n", "it is a JSON text, not a METIS graph"),
        ("1000000000 1\n2\n1\n", "line 1: 1000000000 nodes are declared, but there are only 2 edges"),
        ("3 2 002\n", "line 1: \"002\" does not say which weights follow"),
        ("3 2 001 1\n", "line 1: the fourth number"),
        ("9999999999 2\n", "line 1: 9999999999 nodes exceed"),
        ("3 2\n2\n1 3\n", "line 1: 3 nodes are declared, but the file lists 2"),
        ("2 1\n2\n1\n1\n", "line 1: 2 nodes are declared, but the file lists 3"),
        ("3 3\n2\n1 3\n2\n", "line 1: 3 edges are declared, but the file lists 2"),
        ("3 2\n2\n%c\n1 3\n\n", "line 4: the line of node 3 does not list node 2"),
        ("2 1 1\n2 1\n1 2\n", "line 2: the line of node 2 does not list node 1 with the same weight"),
        ("3 2\n2 4\n1\n\n", "line 2: neighbor 4 does not exist; there are 3 nodes"),
        ("3 2\n0\n1\n\n", "line 2: neighbor 0 does not exist"),
        ("3 2\n2\n1 x\n\n", "line 3: \"x\" is not a neighbor"),
        ("3 2\n2 2\n1 1\n\n", "line 2: neighbor 2 is listed twice"),
        ("2 1\n1 2\n1\n", "line 2: an edge from the node to itself"),
        ("2 1 1\n2\n1\n", "line 2: the last neighbor has no weight"),
        ("2 1 1\n2 0\n1 0\n", "line 2: \"0\" is not the weight of an edge"),
        ("2 1 010 3\n1 1\n1\n", "line 2: the line starts with \"1\"; expected 3 sizes and weights"),
    ];
    for (text, expected) in cases {
        let message = refusal(metis(text), text);
        assert!(message.contains(expected), "{text:?}: {message}");
    }
}

/// Readers note data made up, left out or doubtful.
#[test]
fn readers_of_matrices_and_metis_note_what_they_did() {
    let (_, notes) = parse_metis(b"6 2\n2\n3 1\n2\n").unwrap();
    assert!(notes.made_up[0].text.starts_with("the last 3 of 6 nodes have no line"), "{notes:?}");
    let (_, notes) = parse_metis(b"2 1 110 2\n9 5 5 2\n9 5 6 1").unwrap();
    assert_eq!(notes.not_used_line().unwrap(), "not used: vertex sizes: one a node; vertex weights: 2 a node");
    assert!(notes.warnings[0].contains("does not end with a line end"));
    let repeated = b"%%MatrixMarket matrix coordinate pattern general\n3 3 3\n1 2\n1 2\n1 2\n";
    for (rule, weight, text) in [(Duplicates::Sum, Some(3.0), "of weight k"), (Duplicates::Merge, None, "stored once")]
    {
        let (csr, notes) = parse_matrix_market(repeated, rule).unwrap();
        assert_eq!((csr.nnz(), csr.values().map(|values| values[0])), (1, weight));
        assert!(notes.made_up[0].text.contains(text) && notes.made_up[0].counts == [("edges", 2)], "{notes:?}");
    }
    assert!(parse_matrix_market(repeated, Duplicates::Refuse).unwrap_err().to_string().contains("edges 0 and 1"));
}

#[test]
fn only_undirected_graphs_are_written_for_metis() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("a.graph");
    for (graph, expected) in [
        (matrix(2, 2, &[(0, 1, 1.0)]), "symmetrise it first"),
        (matrix(2, 2, &[(1, 1, 1.0)]), "node 1 has one"),
        (matrix(2, 2, &[(0, 1, 0.5), (1, 0, 0.5)]), "one is 0.5"),
    ] {
        let message = write_metis(&path, &graph).unwrap_err().to_string();
        assert!(message.contains(expected) && message.contains("a.graph"), "{message}");
        assert!(!path.exists());
    }
}

#[test]
fn rows_of_numbers_say_which_line_is_wrong() {
    let csv = |text: &str, missing| parse_csv(text.as_bytes(), missing);
    for (text, expected) in [
        ("1,2\n3\n", "line 2: 1 fields; the first line has 2"),
        ("1,2\n3,x\n", "line 2: \"x\" is not a finite number"),
        ("1,2\n3,inf\n", "line 2: \"inf\""),
        ("1,2\n\n", "line 2: \"\" is not a finite number"),
        ("1\nnan\n", "line 2: \"nan\""),
    ] {
        let message = csv(text, Missing::Refuse).unwrap_err().to_string();
        assert!(message.contains(expected), "{text:?}: {message}");
    }
    let unknown = csv("1\n\nnan\n\"\"\n2.0\n", Missing::Nan).unwrap();
    assert_eq!(unknown.n_rows(), 5);
    assert!(unknown.data()[1..4].iter().all(|v| v.is_nan()));
    assert_eq!(csv("", Missing::Refuse).unwrap().n_rows(), 0);

    let home = tempfile::tempdir().unwrap();
    let (path, mut notes) = (home.path().join("ids.csv"), Notes::default());
    fs::write(&path, "3\r\n0\r\n").unwrap();
    assert_eq!(read_integers(&path, &mut notes).unwrap(), [3, 0]);
    fs::write(&path, "3\n-1\n").unwrap();
    assert!(
        read_integers(&path, &mut notes).unwrap_err().to_string().contains("ids.csv: line 2: expected one integer")
    );
    assert!(read_csv(&home.path().join("none.csv"), Missing::Nan, &mut notes).unwrap_err().is_not_found());
}

#[test]
fn tensors_that_cannot_be_read_say_why() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("a.safetensors");
    write_tensors(&path, vec![("x".to_owned(), Tensor::bools(&[2], vec![0, 1]))]).unwrap();
    let bytes = fs::read(&path).unwrap();
    for length in 0..bytes.len() {
        fs::write(&path, &bytes[..length]).unwrap();
        let error = Tensors::open(&path).expect_err("a file that is cut off");
        assert!(error.is_corrupt() && error.to_string().contains("a.safetensors"), "{length} bytes: {error}");
    }
    let mut wrong = bytes.clone();
    *wrong.last_mut().unwrap() = 7;
    fs::write(&path, &wrong).unwrap();
    let message = Tensors::open(&path).unwrap().try_array("x").unwrap_err().to_string();
    assert!(message.contains("a.safetensors/x: value 1 of a BOOL tensor is 7"), "{message}");
}
