//! Compressed features in data sets: made while loading, read from folders, renumbered, refused.

use std::fs;
use std::path::Path;

use girih_compress::{CodecSpec, CompressedFeatures, RowSource};
use girih_datasets::{Dataset, FEATURE_STORE, FeatureNorm, Features, LoadOptions, OutputFormat, load};
use girih_graph_format::file::write_npy;
use girih_graph_format::{Matrix, Permutation};

const SPEC: &str = "synth:planted,nodes=300,degree=6,features=40,classes=3";
const CODEC: CodecSpec = CodecSpec::Topk(4);

fn dataset() -> Dataset {
    load(SPEC, &LoadOptions::default()).unwrap()
}

fn dense(dataset: &Dataset) -> &Matrix {
    let Some(Features::Dense(matrix)) = &dataset.features else { panic!("dense features") };
    matrix
}

fn codes(dataset: &Dataset) -> &CompressedFeatures {
    let Some(Features::Compressed(features)) = &dataset.features else { panic!("compressed features") };
    features
}

fn with_codec() -> LoadOptions {
    LoadOptions { codec: Some(CODEC), seed: 5, ..LoadOptions::default() }
}

fn load_from(path: &Path, options: &LoadOptions) -> Result<Dataset, String> {
    load(path.to_str().unwrap(), options).map_err(|e| e.to_string())
}

fn expected() -> CompressedFeatures {
    CompressedFeatures::fitted(CODEC, dense(&dataset()), 5).unwrap()
}

/// Codes are equal for all sources of features: generated, from a folder, from one array, or from memory.
#[test]
fn a_codec_while_loading_gives_what_encoding_afterwards_gives() {
    let folder = tempfile::tempdir().unwrap();
    let (saved, rows) = (folder.path().join("saved"), folder.path().join("x.npy"));
    dataset().save(&saved).unwrap();
    write_npy(&rows, &[300, 40], dense(&dataset()).data()).unwrap();
    let edges = folder.path().join("graph.npz");
    dataset().save_as(OutputFormat::SparseNpz, &edges).unwrap();

    assert_eq!(codes(&load(SPEC, &with_codec()).unwrap()), &expected());
    assert_eq!(codes(&load_from(&saved, &with_codec()).unwrap()), &expected());
    let beside = LoadOptions { features: Some(rows), ..with_codec() };
    assert_eq!(codes(&load_from(&edges, &beside).unwrap()), &expected());
    let normed = LoadOptions { feature_norm: Some(FeatureNorm::Length), ..beside.clone() };
    assert_ne!(codes(&load_from(&edges, &normed).unwrap()), &expected());
    let features = dataset().features.unwrap().encoded(CODEC, 5).unwrap();
    assert_eq!(features, Features::Compressed(expected()));
    assert_eq!(features.clone().encoded(CODEC, 6).unwrap(), features, "what is encoded stays");
}

#[test]
fn a_folder_holds_compressed_features_beside_or_instead_of_others() {
    let folder = tempfile::tempdir().unwrap();
    let saved = folder.path().join("saved");
    dataset().save(&saved).unwrap();
    expected().save(&saved.join(FEATURE_STORE)).unwrap();
    let beside = load_from(&saved, &LoadOptions::default()).unwrap();
    assert_eq!(codes(&beside), &expected());
    assert_eq!((beside.labels.as_ref(), beside.n_features()), (dataset().labels.as_ref(), 40));

    let alone = folder.path().join("alone");
    beside.save(&alone).unwrap();
    assert!(!alone.join("features.npy").exists());
    assert_eq!(load_from(&alone, &LoadOptions::default()).unwrap(), beside);
    assert_eq!(load_from(&alone, &with_codec()).unwrap(), beside, "the codec asked for is the store's");
    beside.save(&alone).unwrap();
    fs::remove_file(alone.join(FEATURE_STORE)).unwrap();
    let missing = load_from(&alone, &LoadOptions::default()).unwrap_err();
    assert!(missing.contains(FEATURE_STORE), "{missing}");
}

#[test]
fn named_arrays_and_bare_graphs_take_compressed_features_too() {
    let folder = tempfile::tempdir().unwrap();
    let graph = dataset().graph;
    let arrays = folder.path().join("arrays");
    fs::create_dir(&arrays).unwrap();
    write_npy(&arrays.join("indptr.npy"), &[301], &graph.indptr().iter().map(|&p| p as i64).collect::<Vec<_>>())
        .unwrap();
    write_npy(
        &arrays.join("indices.npy"),
        &[graph.nnz()],
        &graph.indices().iter().map(|&c| c as i32).collect::<Vec<_>>(),
    )
    .unwrap();
    expected().save(&arrays.join(FEATURE_STORE)).unwrap();
    assert_eq!(codes(&load_from(&arrays, &LoadOptions::default()).unwrap()), &expected());

    // Only the store knows how many nodes an edge list has.
    let (list, store) = (folder.path().join("edges.csv"), folder.path().join("rows.codes"));
    fs::write(&list, "0,1\n1,2\n").unwrap();
    expected().save(&store).unwrap();
    let options = LoadOptions { features: Some(store), ..LoadOptions::default() };
    let loaded = load_from(&list, &options).unwrap();
    assert_eq!((loaded.n_nodes(), codes(&loaded)), (300, &expected()));
}

#[test]
fn an_order_of_nodes_moves_codes_and_decodes_nothing() {
    let order = Permutation::from_new_of_old((0..300).map(|v| (v * 7 + 3) % 300).collect()).unwrap();
    let plain = dataset();
    let moved = Dataset { features: Some(Features::Compressed(expected())), ..plain }.permuted(&order).unwrap();
    for v in [0u32, 1, 77, 299] {
        assert_eq!(codes(&moved).code(order.map(v) as usize), expected().code(v as usize));
    }
    moved.validate().unwrap();
    assert_ne!(moved.fingerprint(), dataset().fingerprint());
}

#[test]
fn stores_that_do_not_fit_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let saved = folder.path().join("saved");
    dataset().save(&saved).unwrap();
    let store = saved.join(FEATURE_STORE);
    let refused = |wanted: &[&str], options: &LoadOptions| {
        let error = load_from(&saved, options).unwrap_err();
        wanted.iter().for_each(|part| assert!(error.contains(part), "no {part:?}: {error}"));
    };
    expected().rows(0..299).save(&store).unwrap();
    refused(&[FEATURE_STORE, "299 rows", "300 nodes"], &LoadOptions::default());
    let narrow = Matrix::new(300, 39, vec![1.0; 300 * 39]).unwrap();
    CompressedFeatures::fitted(CODEC, &narrow, 0).unwrap().save(&store).unwrap();
    refused(&[FEATURE_STORE, "39 columns", "40"], &LoadOptions::default());

    expected().save(&store).unwrap();
    let other = LoadOptions { codec: Some(CodecSpec::Int8), ..LoadOptions::default() };
    refused(&["topk:4", "int8", "already"], &other);
    assert!(load_from(&saved, &LoadOptions { codec: Some(CodecSpec::Auto(8)), ..other.clone() }).is_ok());
    refused(&["8 bytes", "auto:7"], &LoadOptions { codec: Some(CodecSpec::Auto(7)), ..other });
    let bytes = fs::read(&store).unwrap();
    for len in [0, 10, bytes.len() / 2, bytes.len() - 1] {
        fs::write(&store, &bytes[..len]).unwrap();
        refused(&[FEATURE_STORE], &LoadOptions::default());
        assert!(load(saved.to_str().unwrap(), &LoadOptions::default()).unwrap_err().is_corrupt(), "{len} bytes");
    }
    let mut flipped = bytes.clone();
    *flipped.last_mut().unwrap() ^= 1;
    fs::write(&store, flipped).unwrap();
    refused(&[FEATURE_STORE, "checksum"], &LoadOptions::default());
}

#[test]
fn unsupported_operations_on_codes_are_refused() {
    let compressed = Dataset { features: Some(Features::Compressed(expected())), ..dataset() };
    let error = FeatureNorm::Sum.apply(compressed.features.clone().unwrap()).unwrap_err().to_string();
    assert!(error.contains("divide"), "{error}");
    let folder = tempfile::tempdir().unwrap();
    let error =
        compressed.save_as(OutputFormat::Tensors, &folder.path().join("x.safetensors")).unwrap_err().to_string();
    assert!(error.contains("folder"), "{error}");
    let nan = Matrix::new(2, 2, vec![1.0, 2.0, f32::NAN, 4.0]).unwrap();
    assert_eq!(RowSource::n_rows(&nan), 2);
    let error = Features::Dense(nan).encoded(CodecSpec::Int8, 0).unwrap_err().to_string();
    assert!(error.contains("row 1, column 0"), "{error}");
}
