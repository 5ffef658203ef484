//! Splits of edges of the Open Graph Benchmark: miniatures that `benches/peers/golden_ogb.py` wrote, and small ones
//! written here.

use std::path::{Path, PathBuf};

use girih_datasets::{Benchmark, BenchmarkMetric, DataSource, Dataset, LoadOptions, Negatives, load};
use girih_graph_format::Permutation;

use crate::common::{load_default, refusal, torch_dict, write_text};
use crate::ogb::torch_file;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/ogb").join(name)
}

#[test]
fn splits_of_edges_and_shared_negative_pairs_are_read() {
    let ddi = load_default(&golden("ogbl_ddi"));
    let split = ddi.edge_split.clone().expect("a split of edges");
    assert_eq!((split.train.len(), split.val.edges.len(), split.test.edges.len()), (200, 30, 40));
    assert_eq!((split.val.n_negatives(), split.test.n_negatives()), (70, 80));
    assert_eq!((ddi.n_nodes(), ddi.n_edges()), (40, 400), "the graph has the training edges alone");
    let is_edge = |&[u, v]: &[u32; 2]| ddi.graph.row(u as usize).contains(&v);
    assert!(split.train.iter().all(is_edge) && !split.test.edges.iter().any(is_edge));
    assert!(ddi.notes.not_used.is_empty() && ddi.notes.warnings.is_empty(), "{:?}", ddi.notes);
    assert_eq!(load_default(&golden("ogbl_ddi/raw")), ddi);
}

#[test]
fn negative_pairs_of_each_edge_are_read() {
    let citation = load_default(&golden("ogbl_citation2"));
    let split = citation.edge_split.clone().unwrap();
    let Negatives::PerEdge { n: 9, destinations } = &split.test.negatives else { panic!("{:?}", split.test) };
    assert_eq!((split.test.edges.len(), destinations.len()), (40, 360));
    let ddi = load_default(&golden("ogbl_ddi"));
    assert_eq!(split.train, ddi.edge_split.as_ref().unwrap().train, "both miniatures have the same edges");
    assert_ne!(citation.fingerprint(), ddi.fingerprint(), "negative pairs belong to the data");
}

#[test]
fn an_order_renames_the_nodes_of_a_split() {
    let ddi = load_default(&golden("ogbl_ddi"));
    let order = Permutation::from_new_of_old((0..40).rev().collect()).unwrap();
    let renamed = ddi.clone().permuted(&order).unwrap();
    renamed.validate().unwrap();
    let (before, after) = (ddi.edge_split.clone().unwrap(), renamed.edge_split.clone().unwrap());
    assert_eq!(after.test.edges[3], before.test.edges[3].map(|v| 39 - v));
    assert_eq!(renamed.permuted(&order.inverse()).unwrap(), ddi);
}

#[test]
fn a_girih_folder_keeps_the_split() {
    for name in ["ogbl_ddi", "ogbl_citation2"] {
        let (data, dir) = (load_default(&golden(name)), tempfile::tempdir().unwrap());
        let folder = dir.path().join("saved");
        data.save(&folder).unwrap();
        let saved = load_default(&folder);
        assert_eq!(saved, data);
        assert!(saved.notes.is_empty(), "{:?}", saved.notes);
        assert_eq!(benchmark(saved).unwrap(), benchmark(data).unwrap());
    }
}

const LONG: &str = "LongStorage";

/// Folder of four nodes with the edges 0–1 and 2–1, and a split of edges.
fn small(valid: &[u8], test: &[u8]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in [("edge", "0,1\n2,1\n"), ("num-node-list", "4\n"), ("num-edge-list", "2\n")] {
        write_text(&dir.path().join(format!("raw/{name}.csv.gz")), text);
    }
    let split = dir.path().join("split/target");
    std::fs::create_dir_all(&split).unwrap();
    std::fs::write(split.join("train.pt"), torch_dict(&[("edge", LONG, &[2, 2], &[0, 1, 1, 2])])).unwrap();
    std::fs::write(split.join("valid.pt"), valid).unwrap();
    std::fs::write(split.join("test.pt"), test).unwrap();
    dir
}

fn good() -> Vec<u8> {
    torch_dict(&[("edge", LONG, &[1, 2], &[3, 1]), ("edge_neg", LONG, &[2, 2], &[0, 3, 0, 2])])
}

#[test]
fn tensors_of_either_form_are_read_and_other_entries_named() {
    let dir = small(&good(), &good());
    let read = load_default(dir.path());
    let split = read.edge_split.clone().unwrap();
    assert_eq!((&split.train[..], &split.val.edges[..]), (&[[0, 1], [1, 2]][..], &[[3, 1]][..]));
    assert_eq!(split.test.negatives, Negatives::Shared(vec![[0, 3], [0, 2]]));

    // PyTorch 2.11 wrote this file, with the same edges, and weights.
    std::fs::copy(torch_file("links.pt"), dir.path().join("split/target/train.pt")).unwrap();
    let named: Vec<String> = load_default(dir.path()).notes.not_used.into_iter().map(|entry| entry.what).collect();
    assert_eq!(named, ["split/target/train.pt/weight"]);

    // ogbl-vessel has negative pairs for training, which draws its own.
    let train = [("edge", LONG, &[2usize, 2][..], &[0i64, 1, 1, 2][..]), ("edge_neg", LONG, &[1, 2], &[0, 3])];
    std::fs::write(dir.path().join("split/target/train.pt"), torch_dict(&train)).unwrap();
    let named: Vec<String> = load_default(dir.path()).notes.not_used.into_iter().map(|entry| entry.what).collect();
    assert_eq!(named, ["split/target/train.pt/edge_neg"]);
}

#[test]
fn a_split_that_does_not_fit_is_refused_by_file_and_place() {
    let edge = ("edge", LONG, &[1usize, 2][..], &[3i64, 1][..]);
    let ends = [("source_node", LONG, &[2usize][..], &[3i64, 0][..]), ("target_node", LONG, &[2][..], &[1, 2][..])];
    let cases = [
        (torch_dict(&[edge]), "no negative pairs"),
        (torch_dict(&[edge, ("edge_neg", LONG, &[1, 2], &[0, 4])]), "negative pair 0: node 4 does not exist"),
        (torch_dict(&[edge, ("edge_neg", LONG, &[0, 2], &[])]), "no negative pair for 1 edges"),
        (torch_dict(&[("edge", LONG, &[1, 2], &[9, 1])]), "no negative pairs"),
        (
            torch_dict(&[("edge", LONG, &[2, 2], &[0, 1, 9, 1]), ("edge_neg", LONG, &[1, 2], &[0, 1])]),
            "edge 1: node 9 does not exist",
        ),
        (torch_dict(&[("edge", LONG, &[1, 3], &[0, 1, 2])]), "edge: an array of 1 × 3"),
        (torch_dict(&[("edge", LONG, &[2], &[0, 1])]), "edge: a tensor of 1 dimensions, where 2 are expected"),
        (torch_dict(&[("edge", LONG, &[1, 2], &[-1, 1])]), "edge: -1 is no node id"),
        (torch_dict(&[("edge", "FloatStorage", &[1, 2], &[0, 1])]), "edge: a tensor of floats"),
        (torch_dict(&[ends[0]]), "no edges"),
        (torch_dict(&[ends[0], ("target_node", LONG, &[1], &[1])]), "2 values of source_node and 1 of target_node"),
        (torch_dict(&ends), "no negative pairs"),
        (
            torch_dict(&[ends[0], ends[1], ("target_node_neg", LONG, &[1, 3], &[0, 1, 2])]),
            "3 negative destinations for 2 edges",
        ),
        (
            torch_dict(&[ends[0], ends[1], ("target_node_neg", LONG, &[2, 2], &[0, 1, 2, 7])]),
            "negative destination 1 of edge 1: node 7 does not exist",
        ),
    ];
    for (file, expected) in cases {
        for (dir, name) in [(small(&file, &good()), "valid.pt"), (small(&good(), &file), "test.pt")] {
            let message = refusal(dir.path(), &LoadOptions::default());
            assert!(message.contains(name) && message.contains(expected), "{expected}: {message}");
        }
    }
}

#[test]
fn damaged_and_missing_files_are_refused() {
    let whole = good();
    for cut in (20..whole.len()).step_by(7) {
        let dir = small(&whole[..cut], &whole);
        assert!(refusal(dir.path(), &LoadOptions::default()).contains("valid.pt"), "cut after {cut} bytes");
    }
    for part in ["train", "valid", "test"] {
        let dir = small(&whole, &whole);
        std::fs::remove_file(dir.path().join(format!("split/target/{part}.pt"))).unwrap();
        let message = refusal(dir.path(), &LoadOptions::default());
        assert!(message.contains(&format!("{part}.pt: no such file")), "{message}");
    }
    let dir = small(&whole, &whole);
    let train = torch_dict(&[("edge", LONG, &[2, 2], &[0, 1, 1, 3])]);
    std::fs::write(dir.path().join("split/target/train.pt"), train).unwrap();
    let message = refusal(dir.path(), &LoadOptions::default());
    assert!(message.contains("train.pt: edge 1, from 1 to 3, is not in the graph"), "{message}");

    let dir = small(&whole, &whole);
    let again = dir.path().join("split/again");
    std::fs::create_dir(&again).unwrap();
    for part in ["train.pt", "valid.pt", "test.pt"] {
        std::fs::copy(dir.path().join("split/target").join(part), again.join(part)).unwrap();
    }
    assert!(refusal(dir.path(), &LoadOptions::default()).contains("two folders with a split of edges"));
}

fn benchmark(dataset: Dataset) -> Result<Benchmark, String> {
    Benchmark::of(&DataSource::from(dataset)).map_err(|error| error.to_string())
}

#[test]
fn benchmarks_are_known_by_name_and_need_their_own_split() {
    let ddi = load_default(&golden("ogbl_ddi"));
    let citation = load_default(&golden("ogbl_citation2"));
    assert_eq!(benchmark(ddi.clone()).unwrap(), Benchmark { name: "ogbl-ddi", metric: BenchmarkMetric::Hits(20) });
    assert_eq!(benchmark(citation.clone()).unwrap().metric, BenchmarkMetric::ReciprocalRank);
    let named = |dataset: Dataset, name: &str| benchmark(Dataset { name: name.to_owned(), ..dataset });
    assert_eq!(named(ddi.clone(), "ogbl-collab").unwrap().metric, BenchmarkMetric::Hits(50));
    assert!(named(ddi.clone(), "ddi").unwrap_err().contains("no data set of the Open Graph Benchmark"));
    assert!(named(citation, "ogbl-ppa").unwrap_err().contains("negative pairs of each edge's own"));
    assert!(named(ddi.clone(), "ogbl-citation2").unwrap_err().contains("negative pairs that all edges share"));
    assert!(named(ddi.clone(), "ogbn-arxiv").unwrap_err().contains("0 splits of nodes"));
    assert!(benchmark(Dataset { edge_split: None, ..ddi }).unwrap_err().contains("no split of edges"));
    let planted = load("synth:planted,nodes=100,degree=4", &LoadOptions::default()).unwrap();
    assert!(benchmark(planted.clone()).is_err() && named(planted, "ogbn-products").is_err(), "a generator made them");
}
