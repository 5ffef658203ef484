//! Rows read alone from a folder equal those of the whole data set, and their hashes combine to its hash.

use std::fs;
use std::path::Path;

use girih_datasets::{DataSource, Dataset, Labels, LoadOptions, RowsDigest, StoredDataset, load};
use girih_graph_format::{Coo, Csr, Duplicates, Matrix};

const NODES: usize = 53;

/// Data sets of every kind: weights, sparse features, several labels, several splits, codes.
fn sets() -> Vec<Dataset> {
    let options = |n_splits| LoadOptions { n_splits, ..LoadOptions::default() };
    let planted = load("synth:planted,nodes=53,degree=6,features=5,classes=3", &options(2)).unwrap();
    let weights: Vec<f32> = (0..planted.n_edges()).map(|e| e as f32 - 7.5).collect();
    let graph = planted.graph.with_values(Some(weights.into())).unwrap();
    let (rows, cols): (Vec<u32>, Vec<u32>) = (0..NODES as u32).filter(|v| v % 3 > 0).map(|v| (v, v * v % 11)).unzip();
    let bags: Csr = Coo::new(NODES, 11, rows, cols, None).unwrap().to_csr(Duplicates::Merge).unwrap();
    let targets = Matrix::new(NODES, 4, (0..4 * NODES).map(|i| f32::from(i % 3 == 0)).collect::<Vec<_>>()).unwrap();
    let labels = Labels::Multi { n_classes: 4, targets };
    let features = Some(girih_datasets::Features::Sparse(bags));
    let many = Dataset { graph, features, labels: Some(labels), ..planted.clone() };
    let codes = planted.clone().with_codec(Some("int8".parse().unwrap()), 0).unwrap();
    vec![planted, many, codes]
}

fn stored(path: &Path, options: &LoadOptions) -> StoredDataset {
    StoredDataset::open(path.to_str().unwrap(), options).unwrap().expect("a folder that is read in parts")
}

/// Consecutive ranges of nodes.
fn ranges(n: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    (0..n).map(move |i| NODES * i / n..NODES * (i + 1) / n)
}

fn fingerprints(stored: &StoredDataset, n: usize) -> Result<Vec<u32>, String> {
    let digest = |nodes| stored.digest(nodes).map(|digest| RowsDigest::from_bytes(&digest.to_bytes()).unwrap());
    let digests = ranges(n).map(digest).collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())?;
    stored.fingerprints(&digests).map_err(|error| error.to_string())
}

#[test]
fn rows_are_those_of_the_whole_and_so_are_their_hashes() {
    for (i, dataset) in sets().into_iter().enumerate() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        dataset.save(&path).unwrap();
        let stored = stored(&path, &LoadOptions::default());
        assert_eq!(*stored.outline(), dataset.outline(), "set {i}");
        for n in [1, 2, 5] {
            assert_eq!(fingerprints(&stored, n), Ok(dataset.fingerprints()), "set {i} in {n}");
            for nodes in ranges(n) {
                assert_eq!(stored.rows(nodes.clone()).unwrap(), dataset.rows(nodes.clone()), "set {i}, {nodes:?}");
                assert_eq!(stored.graph_rows(nodes.clone()).unwrap(), dataset.graph.row_slice(nodes), "set {i}");
            }
        }
        let one = LoadOptions { split: Some(1), ..LoadOptions::default() };
        let chosen = DataSource::open(path.to_str().unwrap(), &one).unwrap();
        assert_eq!(chosen.rows(3..40).unwrap(), load(path.to_str().unwrap(), &one).unwrap().rows(3..40));
        assert_ne!(chosen.fingerprint(), stored.fingerprint());
    }
}

#[test]
fn data_that_loading_changes_is_read_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    sets()[0].save(&path).unwrap();
    let spec = path.to_str().unwrap();
    let refused = |options: LoadOptions| StoredDataset::open(spec, &options).unwrap().is_none();
    assert!(refused(LoadOptions { codec: Some("int8".parse().unwrap()), ..LoadOptions::default() }));
    assert!(refused(LoadOptions { features: Some("other.npy".into()), ..LoadOptions::default() }));
    assert!(refused(LoadOptions { split: Some(7), ..LoadOptions::default() }));
    assert!(StoredDataset::open("synth:planted,nodes=9", &LoadOptions::default()).unwrap().is_none());
}

/// Explicit options also apply to data that is stored in its final form.
#[test]
fn stored_data_are_symmetrised_and_divided_when_that_is_asked_for() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("one-way");
    let graph = Coo::new(3, 3, vec![0, 1], vec![1, 2], None).unwrap().to_csr(Duplicates::Merge).unwrap();
    let rows = Matrix::new(3, 2, vec![1.0, 3.0, 0.0, 2.0, 5.0, 5.0]).unwrap();
    let features = Some(girih_datasets::Features::Dense(rows));
    Dataset::new("one-way", graph, features, None, Vec::new()).unwrap().save(&path).unwrap();
    let spec = path.to_str().unwrap();
    let as_it_is = load(spec, &LoadOptions { symmetrize: Some(false), ..LoadOptions::default() }).unwrap();
    assert_eq!(as_it_is.n_edges(), 2);
    let codec = Some("half".parse().unwrap());
    for codec in [None, codec] {
        let feature_norm = Some(girih_datasets::FeatureNorm::Sum);
        let options = LoadOptions { symmetrize: Some(true), feature_norm, codec, ..LoadOptions::default() };
        assert!(StoredDataset::open(spec, &options).unwrap().is_none(), "read whole");
        let told = load(spec, &options).unwrap();
        assert_eq!(told.n_edges(), 4);
        let mut divided = vec![0.0; 6];
        match told.features.unwrap() {
            girih_datasets::Features::Dense(rows) => divided.copy_from_slice(rows.data()),
            girih_datasets::Features::Compressed(codes) => codes.gather(&[0, 1, 2], &mut divided).unwrap(),
            girih_datasets::Features::Sparse(_) => panic!("dense features"),
        }
        assert_eq!(divided, [0.25, 0.75, 0.0, 1.0, 0.5, 0.5]);
    }
    let divided = LoadOptions { feature_norm: Some(girih_datasets::FeatureNorm::Length), ..LoadOptions::default() };
    let generated = "synth:planted,nodes=53,degree=6,features=5,classes=3";
    assert_ne!(load(generated, &divided).unwrap().features, load(generated, &LoadOptions::default()).unwrap().features);
}

#[test]
fn damage_is_found_by_whoever_reads_it_or_by_all_together() {
    let dataset = &sets()[1];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    dataset.save(&path).unwrap();
    for name in ["indptr", "indices", "values", "features_indptr", "features_indices", "labels", "split1_val"] {
        let file = path.join(format!("{name}.npy"));
        let whole = fs::read(&file).unwrap();
        for (bit, place) in [(0, whole.len() - 3), (6, whole.len() - 1), (2, whole.len() - 9), (1, 9)] {
            let mut damaged = whole.clone();
            damaged[place] ^= 1 << bit;
            fs::write(&file, &damaged).unwrap();
            let found = match StoredDataset::open(path.to_str().unwrap(), &LoadOptions::default()) {
                Ok(Some(stored)) => fingerprints(&stored, 3),
                Ok(None) => {
                    load(path.to_str().unwrap(), &LoadOptions::default()).map(|_| vec![]).map_err(|e| e.to_string())
                }
                Err(error) => Err(error.to_string()),
            };
            let message = found.expect_err("a checksum differs");
            // Wrong offsets point to entries that do not exist.
            let other = name.replace("indptr", "indices");
            assert!(message.contains(name) || message.contains(&other), "{name}, byte {place}: {message}");
        }
        fs::write(&file, &whole).unwrap();
    }
}
