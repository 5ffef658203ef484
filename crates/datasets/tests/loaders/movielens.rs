//! `MovieLens` 100K: ratings as edges between users and items, on a miniature written here.

use std::path::Path;

use crate::common::{refusal, write_text};
use girih_datasets::{Dataset, LoadOptions, load};
use girih_graph_format::file::ReadTimes;
use tempfile::TempDir;

const RATINGS: &str = "2\t3\t5\t881250949\n1\t1\t3\t881250100\n4\t3\t1\t881250950\n";

fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    files.iter().for_each(|(name, text)| write_text(&folder.path().join(name), text));
    folder
}

fn loaded(path: &Path, options: &LoadOptions) -> Dataset {
    load(path.to_str().unwrap(), options).unwrap_or_else(|error| panic!("{error}"))
}

fn in_time(features: &[&str]) -> LoadOptions {
    let edge_features = features.iter().map(|&name| name.to_owned()).collect();
    LoadOptions { times: ReadTimes::Required, edge_features, ..LoadOptions::default() }
}

#[test]
fn users_come_first_and_items_follow() {
    let folder = folder(&[
        ("u.data", RATINGS),
        ("u.info", "5 users\n4 items\n3 ratings\n"),
        ("u.item", "1|Film|01-Jan-1995\n"),
        ("u1.base", RATINGS),
        ("README", "words"),
    ]);
    let dataset = loaded(folder.path(), &in_time(&["rating"]));
    dataset.validate().unwrap();
    assert_eq!((dataset.n_nodes(), dataset.n_edges()), (9, 6));
    assert_eq!(dataset.name, folder.path().file_name().unwrap().to_str().unwrap());
    let edges: Vec<_> = dataset.timed.as_ref().unwrap().edges_in_time();
    let ends: Vec<_> = edges.iter().map(|edge| (edge.source, edge.destination, edge.time)).collect();
    assert_eq!(ends, [(0, 5, 881_250_100), (1, 7, 881_250_949), (3, 7, 881_250_950)]);
    let features = dataset.edge_features.as_ref().unwrap();
    assert_eq!((features.names(), features.values()), (&["rating".to_owned()][..], &[5.0, 3.0, 1.0][..]));
    assert_eq!(dataset.graph.row_entries(7).collect::<Vec<_>>(), [(1, 5.0), (3, 1.0)], "ratings are weights");
    assert_eq!(dataset.notes.not_used_line().unwrap(), "not used: README: description; u.item; u1.base");
    let made_up: Vec<&str> = dataset.notes.made_up.iter().map(|made| made.kind).collect();
    assert_eq!(made_up, ["shifted_ids", "sides", "symmetrized_edges"]);

    let of_file = loaded(&folder.path().join("u.data"), &in_time(&["all"]));
    assert_eq!(of_file, dataset);
    assert!(of_file.notes.not_used.is_empty());
    // Without times, they are left out by name.
    let plain = loaded(&folder.path().join("u.data"), &LoadOptions::default());
    assert_eq!(plain.notes.not_used_line().unwrap(), "not used: column 4 (timestamp): times of edges");
}

#[test]
fn without_counts_the_largest_ids_give_them() {
    let folder = folder(&[("u.data", RATINGS)]);
    assert_eq!(loaded(folder.path(), &in_time(&[])).n_nodes(), 4 + 3);
}

#[test]
fn ratings_and_counts_that_do_not_fit_are_refused() {
    let told = |ratings: &str, counts: &str, options: &LoadOptions| {
        let folder = folder(&[("u.data", ratings), ("u.info", counts)]);
        refusal(folder.path(), options)
    };
    let (few_users, few_items) = ("3 users\n4 items\n", "4 users\n2 items\n");
    let default = LoadOptions::default();
    let message = told(RATINGS, few_users, &default);
    assert!(message.contains("u.data: line 3: node 4 does not exist"), "{message}");
    assert!(message.contains("u.info states 3 users and 4 items: fetch both files again"), "{message}");
    assert!(told(RATINGS, few_items, &default).contains("line 1: node 3 does not exist"));
    assert!(told(RATINGS, "4 users\n", &default).contains("no line states the number of items, as `943 items`"));
    assert!(told(RATINGS, "900000000 users\n4 items\n", &default).contains("but there are only 3 edges"));
    let message = told("0\t1\t5\t881250949\n", "4 users\n4 items\n", &default);
    assert!(message.contains("node 0 does not exist") && message.contains("ids from 1"), "{message}");
    let message = told("1\t1\t5\n", "4 users\n4 items\n", &default);
    assert!(message.contains("3 fields") && message.contains("user, item, rating and timestamp"), "{message}");
    let message = told(RATINGS, "4 users\n4 items\n", &in_time(&["user"]));
    assert!(message.contains("column 1 (user) has the sources") && message.contains("3 (rating)"), "{message}");
    let columns = LoadOptions { columns: Some("source,target,-,time".parse().unwrap()), ..default };
    assert!(told(RATINGS, "4 users\n4 items\n", &columns).contains("--columns is for edge lists"));
    let from_one = LoadOptions { ids_from: Some(1), ..LoadOptions::default() };
    let message = told(RATINGS, "4 users\n4 items\n", &from_one);
    assert!(message.contains("ids of MovieLens always count from 1, on each side; leave it out"), "{message}");
}
