//! LightGCN's folders: both forms of the training data, the real Gowalla, and folders that break one rule.

use std::fs;
use std::path::Path;

use crate::common::real;
use girih_datasets::{Dataset, Interactions, LoadOptions, load};
use girih_graph_format::file::write_sparse_npz;
use girih_graph_format::{Coo, Csr, Duplicates};
use proptest::prelude::*;
use tempfile::TempDir;

fn load_default(path: &Path) -> Dataset {
    load(path.to_str().unwrap(), &LoadOptions::default()).unwrap()
}

fn refusal(folder: &TempDir) -> String {
    let path = folder.path().to_str().unwrap();
    let message = load(path, &LoadOptions::default()).expect_err("this folder must be refused").to_string();
    assert!(message.contains(path), "no file is named: {message}");
    message
}

/// A folder of text files.
fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

/// Three users and four items; user 2 has no test items, item 3 no users in training.
const TRAIN: &str = "0 0 2\n1 1\n2 0 1 2 \n";
const TEST: &str = "0 3\n1 0 3\n2\n";

#[test]
fn text_is_a_line_a_user() {
    let folder = folder(&[("train.txt", TRAIN), ("test.txt", TEST)]);
    let dataset = load_default(folder.path());
    let interactions = dataset.interactions.as_ref().unwrap();
    assert_eq!((interactions.n_users(), interactions.n_items()), (3, 4));
    assert_eq!((0..3).map(|u| interactions.train().row(u)).collect::<Vec<_>>(), [&[0, 2][..], &[1], &[0, 1, 2]]);
    assert_eq!((0..3).map(|u| interactions.test().row(u)).collect::<Vec<_>>(), [&[3][..], &[0, 3], &[]]);
    // The graph is that of training alone; the fingerprint also covers the test items.
    let untested = Interactions::new(interactions.train().clone(), Csr::empty(3, 4).unwrap()).unwrap();
    let untested = Dataset::of_interactions(dataset.name.clone(), untested).unwrap();
    assert_eq!(untested.graph, dataset.graph);
    assert_ne!(untested.fingerprint(), dataset.fingerprint());
    assert_eq!((dataset.n_nodes(), dataset.n_edges()), (7, 12));
    assert_eq!(dataset.graph.row(0), [3, 5], "items follow users");
    assert_eq!(dataset.graph.row(3), [0, 2]);
    assert!(dataset.graph.is_symmetric() && dataset.validate().is_ok());
}

#[test]
fn the_adjacency_says_the_same_with_lists_and_without() {
    let text = folder(&[("train.txt", TRAIN), ("test.txt", TEST)]);
    let graph = load_default(text.path()).graph;
    let users = ("user_list.txt", "org_id remap_id\n70 0\n71 1\n72 2\n");
    let items = ("item_list.txt", "org_id remap_id\n90 0\n91 1\n92 2\n93 3\n");
    for lists in [&[users, items][..], &[users], &[items], &[]] {
        let npz = folder(&[("test.txt", TEST)]);
        lists.iter().for_each(|(name, text)| fs::write(npz.path().join(name), text).unwrap());
        write_sparse_npz(&npz.path().join("s_adj_mat.npz"), &graph).unwrap();
        let (found, wanted) = (load_default(npz.path()), load_default(text.path()));
        assert_eq!((found.interactions, found.graph), (wanted.interactions, wanted.graph), "{lists:?}");
    }
}

#[test]
fn lists_add_users_and_items_that_nobody_met() {
    let files =
        [("train.txt", TRAIN), ("test.txt", TEST), ("item_list.txt", "org_id remap_id\na 0\nb 1\nc 2\nd 3\ne 4\n")];
    assert_eq!(load_default(folder(&files).path()).interactions.unwrap().n_items(), 5);
    let too_many_users = ("user_list.txt", "org_id remap_id\na 0\nb 1\nc 2\nd 3\n");
    let message = refusal(&folder(&[files[0], files[1], too_many_users]));
    assert!(message.contains("user 3 has no training items"), "{message}");
}

/// Each folder breaks one rule; the message names the file, the place and the value.
#[test]
fn broken_folders_are_refused() {
    let lists = ("item_list.txt", "org_id remap_id\na 0\nb 1\nc 2\n");
    for (train, test, says) in [
        ("0 0\n1 x\n", "0 1\n", &["train.txt", "line 2", "\"x\" is no id"][..]),
        ("0 0\n1 -1\n", "0 1\n", &["train.txt", "line 2", "\"-1\" is no id"]),
        ("0 0\n1 2147483647\n", "0 1\n", &["train.txt", "line 2", "is no id"]),
        ("0 0\n1 16777216\n", "0 1\n", &["train.txt", "line 2", "out of all proportion to 2 pairs"]),
        ("0 0\n\n1 1 3\n", "0 1\n", &["train.txt", "line 3", "item 3 does not exist", "there are 3"]),
        ("0 0\n1 1\n", "0 1\n1 7\n", &["test.txt", "line 2", "item 7 does not exist"]),
        ("0 0 1 0\n1 1\n", "0 2\n", &["train.txt", "line 1", "user 0 lists item 0 twice"]),
        ("0 0\n1 1\n", "0 2\n0 1 2\n", &["test.txt", "line 2", "user 0 lists item 2 twice"]),
        ("0 0\n1 1\n", "0 2\n1 0 1\n", &["test.txt", "line 2", "user 1 met item 1 in training already"]),
        ("0 0\n2 1\n", "0 2\n", &["train.txt", "user 1 has no training items"]),
        ("0 0 2 1\n1 1\n", "1 2\n", &["train.txt", "user 0 has met all 3 items"]),
    ] {
        let message = refusal(&folder(&[("train.txt", train), ("test.txt", test), lists]));
        assert!(says.iter().all(|part| message.contains(part)), "{says:?}: {message}");
    }
}

#[test]
fn adjacencies_that_join_no_users_with_items_are_refused() {
    let users = ("user_list.txt", "org_id remap_id\na 0\nb 1\n");
    let items = ("item_list.txt", "org_id remap_id\na 0\nb 1\nc 2\n");
    let graph = |n: usize, edges: &[(u32, u32)], weights: Option<Vec<f32>>| {
        let (rows, cols) = edges.iter().copied().unzip();
        Coo::new(n, n, rows, cols, weights).unwrap().to_csr(Duplicates::Refuse).unwrap()
    };
    let both = [(0, 2), (2, 0), (1, 3), (3, 1)];
    for (graph, says) in [
        (graph(6, &both, None), "6 nodes, but user_list.txt and item_list.txt list 2 users and 3 items"),
        (graph(5, &both[..3], None), "not symmetric"),
        (graph(5, &both, Some(vec![0.5; 4])), "weighted"),
        (graph(5, &[(0, 1), (1, 0), (2, 3), (3, 2)], None), "the first 2 nodes must be the users"),
    ] {
        let folder = folder(&[("test.txt", "0 1\n"), users, items]);
        write_sparse_npz(&folder.path().join("s_adj_mat.npz"), &graph).unwrap();
        let message = refusal(&folder);
        assert!(message.contains("s_adj_mat.npz") && message.contains(says), "{message}");
    }
}

#[test]
fn gowalla() {
    let Some(path) = real("gowalla") else { return };
    let dataset = load_default(&path);
    let interactions = dataset.interactions.as_ref().unwrap();
    assert_eq!((interactions.n_users(), interactions.n_items()), (29_858, 40_981));
    assert_eq!((interactions.train().nnz(), interactions.test().nnz()), (810_128, 217_242));
    assert_eq!((dataset.n_nodes(), dataset.n_edges(), dataset.name.as_str()), (70_839, 1_620_256, "gowalla"));
}

proptest! {
    /// Interactions survive girih's own folder.
    #[test]
    fn folders_keep_interactions(
        (n_users, pairs) in (1..8usize).prop_flat_map(|n| {
            (Just(n), prop::collection::btree_map((0..n as u32, 0..9u32), any::<bool>(), 0..40))
        }),
    ) {
        // Item 9 ensures that every user lacks an item; item 10 gives every user one.
        let part = |test: bool| {
            let everybody = (0..n_users as u32).filter(|_| !test).map(|user| (user, 10));
            let (users, items) = pairs.iter().filter(|(_, is)| **is == test).map(|(pair, _)| *pair).chain(everybody).unzip();
            Coo::new(n_users, 11, users, items, None).unwrap().to_csr(Duplicates::Refuse).unwrap()
        };
        let interactions = Interactions::new(part(false), part(true)).unwrap();
        let dataset = Dataset::of_interactions("pairs", interactions).unwrap();
        let folder = tempfile::tempdir().unwrap();
        dataset.save(&folder.path().join("saved")).unwrap();
        prop_assert_eq!(load_default(&folder.path().join("saved")), dataset);
    }
}

#[test]
fn interactions_of_other_shapes_are_refused() {
    let train = Csr::new(1, 2, vec![0, 1], vec![0], None).unwrap();
    let message = Interactions::new(train.clone(), Csr::empty(1, 3).unwrap()).unwrap_err().to_string();
    assert!(message.contains("1 × 2") && message.contains("1 × 3"), "{message}");
    let message = Interactions::new(train.clone(), train.clone()).unwrap_err().to_string();
    assert!(message.contains("user 0: item 0 is in training and in test"), "{message}");
    let dataset =
        Dataset::of_interactions("pairs", Interactions::new(train, Csr::empty(1, 2).unwrap()).unwrap()).unwrap();
    let other = Dataset { graph: Csr::empty(4, 4).unwrap(), ..dataset };
    assert!(other.validate().unwrap_err().to_string().contains("a graph of 4 nodes"));
}
