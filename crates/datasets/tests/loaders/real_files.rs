//! Every loader on a real file, with the counts that the literature reports.

use std::path::Path;

use crate::common::real;
use girih_datasets::{Dataset, FeatureNorm, Features, Labels, LoadOptions, UNLABELLED, load};

fn load_default(path: &Path) -> Dataset {
    load(path.to_str().unwrap(), &LoadOptions::default()).unwrap()
}

/// Numbers of nodes, stored edges, features and classes.
fn counts(dataset: &Dataset) -> (usize, usize, usize, usize) {
    (dataset.n_nodes(), dataset.n_edges(), dataset.n_features(), dataset.n_classes())
}

/// Numbers of nodes of the first split's parts.
fn part_sizes(dataset: &Dataset) -> [usize; 3] {
    dataset.splits[0].parts().map(|(_, ids)| ids.len())
}

fn assert_rows_sum_to_one(dataset: &Dataset) {
    let Some(Features::Sparse(features)) = &dataset.features else { panic!("sparse features") };
    for (row, sum) in features.row_sums().into_iter().enumerate() {
        assert!((sum - 1.0).abs() < 1e-5 || features.degree(row) == 0, "row {row} sums to {sum}");
    }
}

/// Checks bags of words: each row has equal values, the inverse root of the row's length.
fn assert_rows_have_root_length(dataset: &Dataset) {
    let Some(Features::Sparse(features)) = &dataset.features else { panic!("sparse features") };
    for row in 0..features.n_rows() {
        let expected = (features.degree(row) as f64).powf(-0.25) as f32;
        assert!(features.row_entries(row).all(|(_, value)| (value - expected).abs() < 1e-6), "row {row}");
    }
}

#[test]
fn cora() {
    let Some(path) = real("cora") else { return };
    let cora = load_default(&path);
    assert_eq!(counts(&cora), (2708, 10_556, 1433, 7));
    assert_eq!(part_sizes(&cora), [140, 500, 1000]);
    assert!(cora.graph.is_symmetric() && !cora.generated && cora.name == "cora");
    assert_rows_sum_to_one(&cora);
    let Some(Labels::Single { classes, .. }) = &cora.labels else { panic!("single labels") };
    for class in 0..7 {
        assert_eq!(cora.splits[0].train.iter().filter(|&&v| classes[v as usize] == class).count(), 20);
    }
    // Number of nodes of each class, as published.
    let sizes: Vec<usize> = (0..7).map(|class| classes.iter().filter(|&&c| c == class).count()).collect();
    assert_eq!(sizes, [351, 217, 418, 818, 426, 298, 180]);
    assert_eq!(load_default(&path.join("ind.cora")), cora);
}

#[test]
fn citeseer_and_the_ids_that_its_test_index_skips() {
    let Some(path) = real("citeseer") else { return };
    let citeseer = load_default(&path);
    assert_eq!(counts(&citeseer), (3327, 9104, 3703, 6));
    assert_eq!(part_sizes(&citeseer), [120, 500, 1000]);
    assert_rows_sum_to_one(&citeseer);
    let Some(Labels::Single { classes, .. }) = &citeseer.labels else { panic!("single labels") };
    assert_eq!(classes.iter().filter(|&&c| c == UNLABELLED).count(), 15);
    assert!(citeseer.splits[0].test.iter().all(|&v| classes[v as usize] != UNLABELLED));
    let isolated = (0..citeseer.n_nodes()).filter(|&v| citeseer.graph.degree(v) == 0).count();
    assert_eq!(isolated, 48);
}

#[test]
fn features_stay_as_they_are_when_asked() {
    let Some(path) = real("cora") else { return };
    let options = LoadOptions { feature_norm: Some(FeatureNorm::None), ..LoadOptions::default() };
    let cora = load(path.to_str().unwrap(), &options).unwrap();
    let Some(Features::Sparse(features)) = &cora.features else { panic!("sparse features") };
    assert_eq!(features.nnz(), 49_216);
    assert!(features.row_entries(0).all(|(_, value)| value == 1.0));
}

#[test]
fn amazon_computers_in_a_zip() {
    let Some(path) = real("amazon-computers") else { return };
    let amazon = load_default(&path);
    assert_eq!(counts(&amazon), (13_752, 491_722, 767, 10));
    assert_eq!(part_sizes(&amazon), [200, 300, 12_881], "of the 13 381 nodes of the largest component");
    assert!(amazon.graph.is_symmetric() && amazon.graph.values().is_none());
    assert_rows_have_root_length(&amazon);
}

#[test]
fn amazon_computers_as_shipped() {
    let Some(path) = real("amazon-computers") else { return };
    let options = LoadOptions { symmetrize: Some(false), n_splits: 3, seed: 9, ..LoadOptions::default() };
    let amazon = load(path.to_str().unwrap(), &options).unwrap();
    let n_loops = 287_209 - amazon.n_edges();
    assert!(n_loops < 100, "only self loops are dropped, not {n_loops} edges");
    assert_eq!(amazon.splits.len(), 3);
    assert_ne!(amazon.splits[0], amazon.splits[1]);
}

#[test]
fn coauthor_physics_with_its_pickled_member() {
    let Some(path) = real("coauthor-physics") else { return };
    let physics = load_default(&path);
    assert_eq!(counts(&physics), (34_493, 495_924, 8415, 5));
    assert_eq!(part_sizes(&physics), [100, 150, 34_243]);
    assert_rows_have_root_length(&physics);
}

#[test]
fn tolokers_with_ten_splits() {
    let Some(path) = real("tolokers") else { return };
    let tolokers = load_default(&path);
    assert_eq!(counts(&tolokers), (11_758, 1_038_000, 10, 2));
    assert_eq!(tolokers.splits.len(), 10);
    assert_eq!(part_sizes(&tolokers).iter().sum::<usize>(), 11_758);
    assert!(tolokers.graph.is_symmetric());
}

#[test]
fn bare_and_scipy_topologies() {
    let Some(path) = real("topology") else { return };
    let twitter = load_default(&path.join("ego-twitter.npz"));
    assert_eq!(counts(&twitter), (81_306, 2_684_606, 0, 0));
    assert!(twitter.graph.is_symmetric());
    let cnr = load_default(&path.join("cnr-2000.npz"));
    assert_eq!(counts(&cnr), (325_557, 3_216_152, 0, 0));
    let message = load(path.to_str().unwrap(), &LoadOptions::default()).unwrap_err().to_string();
    assert!(message.contains("cnr-2000.npz, ego-twitter.npz"), "{message}");

    let Some(path) = real("gowalla/s_adj_mat.npz") else { return };
    assert_eq!(load_default(&path).n_nodes(), 70_839);
}

#[test]
fn a_saved_data_set_is_the_same_again() {
    for name in ["cora", "tolokers"] {
        let Some(path) = real(name) else { return };
        let original = load_default(&path);
        let dir = tempfile::tempdir().unwrap();
        let saved = dir.path().join("saved");
        original.save(&saved).unwrap();
        assert_eq!(load_default(&saved), original);
    }
}
