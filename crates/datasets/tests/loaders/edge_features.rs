//! Features of edges in data sets: rows that belong to timed edges, rules, hashes and refusals.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::common::{real, refusal, write_text};
use girih_datasets::{Dataset, LoadOptions, load};
use girih_graph_format::file::ReadTimes;
use girih_graph_format::{Duplicates, EdgeFeatures, Permutation};
use proptest::prelude::*;
use tempfile::TempDir;

fn asking(features: &[&str]) -> LoadOptions {
    LoadOptions {
        times: ReadTimes::Required,
        edge_features: features.iter().map(|&name| name.to_owned()).collect(),
        ..LoadOptions::default()
    }
}

fn list(text: &str) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("edges.csv");
    write_text(&path, text);
    (dir, path)
}

fn loaded(path: &Path, options: &LoadOptions) -> Dataset {
    load(path.to_str().unwrap(), options).unwrap_or_else(|error| panic!("{error}"))
}

/// Loops, repeated edges, and times in no order.
const LIST: &str = "from,to,score,time\n2,0,0.5,9\n1,1,1.5,3\n2,0,2.5,4\n0,2,3.5,4\n1,2,4.5,0\n";

#[test]
fn rows_belong_to_the_edges_with_their_times() {
    let (_dir, path) = list(LIST);
    for symmetrize in [None, Some(false)] {
        let dataset = loaded(&path, &LoadOptions { symmetrize, ..asking(&["score"]) });
        dataset.validate().unwrap();
        let (timed, features) = (dataset.timed.clone().unwrap(), dataset.edge_features.clone().unwrap());
        let in_time = |dataset: &Dataset| -> Vec<_> {
            let all = dataset.timed.as_ref().unwrap().edges_in_time();
            let value = |edge: u32| dataset.edge_features.as_ref().unwrap().row(edge as usize)[0];
            all.iter().map(|edge| (edge.source, edge.destination, edge.time, value(edge.edge))).collect()
        };
        let expected = [(1, 2, 0, 4.5), (1, 1, 3, 1.5), (2, 0, 4, 2.5), (0, 2, 4, 3.5), (2, 0, 9, 0.5)];
        assert_eq!(in_time(&dataset), expected);
        assert_eq!((timed.n_edges(), features.n_edges(), dataset.outline().edge_features), (5, 5, Some(1)));
        let order = Permutation::from_new_of_old(vec![1, 2, 0]).unwrap();
        let renamed = dataset.permuted(&order).unwrap();
        renamed.validate().unwrap();
        let expected = expected.map(|(u, v, time, value)| (order.map(u), order.map(v), time, value));
        assert_eq!(in_time(&renamed), expected);
    }
    // Ids from 1, and two sides, leave the order as it is.
    let text = LIST.replace("2,0", "2,3").replace("0,2", "3,2");
    let (_dir, path) = list(&text);
    for options in [
        LoadOptions { ids_from: Some(1), ..asking(&["score"]) },
        LoadOptions { bipartite: Some(true), ..asking(&["score"]) },
    ] {
        assert_eq!(loaded(&path, &options).edge_features.unwrap().values(), [0.5, 1.5, 2.5, 3.5, 4.5]);
    }
}

#[test]
fn data_differs_by_features_of_edges() {
    let (_dir, path) = list(LIST);
    let with = loaded(&path, &asking(&["score"]));
    let without = loaded(&path, &asking(&[]));
    assert!(without.edge_features.is_none() && without.outline().edge_features.is_none());
    assert_ne!(with, without);
    assert_ne!(with.fingerprint(), without.fingerprint());
    let changed = |names: &[&str], values: &[f32]| {
        let names = names.iter().map(|&name| name.to_owned()).collect();
        let features = EdgeFeatures::new(names, values.to_vec()).unwrap();
        Dataset { edge_features: Some(Arc::new(features)), ..with.clone() }
    };
    let values = [0.5, 1.5, 2.5, 3.5, 4.5];
    assert_eq!(changed(&["score"], &values).fingerprint(), with.fingerprint());
    assert_ne!(changed(&["rating"], &values).fingerprint(), with.fingerprint());
    assert_ne!(changed(&["score"], &[0.5, 1.5, 2.5, 3.5, 4.0]).fingerprint(), with.fingerprint());

    let message = changed(&["score"], &values[..4]).validate().unwrap_err().to_string();
    assert!(message.contains("4 rows of features for 5 edges with times"), "{message}");
    let message = Dataset { timed: None, ..with }.validate().unwrap_err().to_string();
    assert!(message.contains("this data has none"), "{message}");
}

#[test]
fn features_of_edges_are_refused_where_they_cannot_be_read() {
    let (dir, path) = list(LIST);
    let without_times = |times| LoadOptions { times, ..asking(&["score"]) };
    for times in [ReadTimes::No, ReadTimes::IfThere] {
        let message = load(path.to_str().unwrap(), &without_times(times)).unwrap_err().to_string();
        assert_eq!(message, "features of edges are read with their times alone: give --before");
    }
    let message = refusal(&path, &asking(&["rating"]));
    assert!(message.contains("line 1: --edge-features rating: no column has this name"), "{message}");
    let folder = dir.path().join("saved");
    loaded(&path, &LoadOptions::default()).save(&folder).unwrap();
    assert!(refusal(&folder, &asking(&["score"])).contains("--edge-features is for edge lists, and this is none"));
    let message = load("synth:rmat,scale=4,degree=3", &asking(&["all"])).unwrap_err().to_string();
    assert!(message.contains("has no times of edges"), "{message}");
}

#[test]
fn ratings_of_bitcoin_otc_are_features() {
    let Some(path) = real("hetero/bitcoin-otc/soc-sign-bitcoinotc.csv") else { return };
    let dataset = loaded(&path, &asking(&["feature"]));
    let features = dataset.edge_features.unwrap();
    let (least, most) = features.values().iter().fold((0.0_f32, 0.0_f32), |(a, b), &v| (a.min(v), b.max(v)));
    assert_eq!((features.n_edges(), features.row(0)[0], least, most), (35_592, 4.0, -10.0, 10.0));
    let notes = dataset.notes.not_used_line();
    assert_eq!(notes, None);
}

proptest! {
    /// A value that names its edge is at the edge with this source, destination and time.
    #[test]
    fn every_row_stays_beside_its_edge(
        edges in prop::collection::vec((0..6u32, 0..6u32, 0..9i64), 1..60),
        bipartite: bool, symmetrize: bool, duplicates in prop::sample::select(vec![Duplicates::Merge, Duplicates::Keep]),
    ) {
        let lines: String =
            edges.iter().enumerate().map(|(number, (u, v, time))| format!("{u},{time},{number},{v}\n")).collect();
        let (_dir, path) = list(&format!("source,time,number,target\n{lines}"));
        let options = LoadOptions {
            bipartite: Some(bipartite),
            symmetrize: Some(symmetrize),
            duplicates: Some(duplicates),
            ..asking(&["number"])
        };
        let dataset = loaded(&path, &options);
        let left = if bipartite { edges.iter().map(|edge| edge.0 + 1).max().unwrap() } else { 0 };
        let features = dataset.edge_features.unwrap();
        let in_time = dataset.timed.unwrap().edges_in_time();
        prop_assert_eq!(in_time.len(), edges.len());
        for edge in in_time {
            let (u, v, time) = edges[features.row(edge.edge as usize)[0] as usize];
            prop_assert_eq!((edge.source, edge.destination, edge.time), (u, left + v, time));
        }
    }
}
