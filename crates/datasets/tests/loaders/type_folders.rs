//! Folders of types and relations, in the layouts of MAG240M and of IGB: small ones written here, and damage.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::by_hand::ByHand;
use crate::common::type_folders::{IGB, MAG, igb, mag, write_meta, write_split};
use crate::common::{load_default, refusal};
use crate::ogb::torch_file;
use girih_compress::CodecSpec;
use girih_datasets::{
    Dataset, Features, LoadOptions, OutputFormat, ReverseEdges, Split, TypeFeatures, UNLABELLED, load,
};
use girih_graph_format::file::write_npy;

fn default() -> LoadOptions {
    LoadOptions::default()
}

fn with(path: &Path, options: &LoadOptions) -> Dataset {
    load(path.to_str().unwrap(), options).unwrap_or_else(|error| panic!("{error}"))
}

fn not_used(data: &Dataset) -> Vec<&str> {
    data.notes.not_used.iter().map(|entry| entry.what.as_str()).collect()
}

#[test]
fn folders_are_the_data_by_hand() {
    let ((home, mag), (_igb, igb)) = (mag(), igb());
    for (path, by_hand) in [(mag, MAG), (igb, IGB)] {
        let data = load_default(&path);
        assert!(data == by_hand.dataset(), "{}", path.display());
        assert!(load_default(&path.join("processed")) == data);
        assert!(data.notes.warnings.is_empty(), "{:?}", data.notes);
        for name in ["folder", "data.safetensors", "data.npz"] {
            let copy = home.path().join(name);
            data.save_as(OutputFormat::of(&copy).unwrap(), &copy).unwrap();
            let read = Dataset { name: data.name.clone(), ..load_default(&copy) };
            assert!(read == data && read.fingerprints() == data.fingerprints(), "{name}");
            if copy.is_dir() { fs::remove_dir_all(copy).unwrap() } else { fs::remove_file(copy).unwrap() }
        }
        let without = with(&path, &LoadOptions { reverse: Some(ReverseEdges::No), ..default() });
        assert_eq!(without.typed.unwrap().graph.relations().len(), by_hand.relations.len());
    }
}

#[test]
fn the_folder_of_types_may_have_another_name() {
    let (_home, path) = mag();
    for entry in fs::read_dir(path.join("processed")).unwrap() {
        let entry = entry.unwrap();
        fs::rename(entry.path(), path.join(entry.file_name())).unwrap();
    }
    fs::remove_dir(path.join("processed")).unwrap();
    let data = load_default(&path);
    assert!(data == MAG.dataset());
    assert_eq!(not_used(&data), ["split_dict.pt: test-challenge", "RELEASE_v1.txt", "paper/node_year.npy"]);
}

#[test]
fn unread_files_are_named() {
    let (_home, path) = mag();
    let data = load_default(&path);
    let expected = ["split_dict.pt: test-challenge", "processed/paper/node_year.npy", "RELEASE_v1.txt"];
    assert_eq!(not_used(&data), expected);
    assert!(data.notes.not_used_line().unwrap().contains("node_year.npy: times of nodes"));
    let (_home, path) = igb();
    let data = load_default(&path);
    assert_eq!(not_used(&data), ["processed/paper/paper_id_index_mapping.npy"]);
    let kinds: Vec<&str> = data.notes.made_up.iter().map(|made| made.kind).collect();
    assert_eq!(kinds, ["counted_nodes", "reverse_relations", "label_set", "split_by_order"]);
    assert!(data.notes.made_up[0].text.contains("fos has 2 nodes, by the largest id of its edges"));
}

#[test]
fn without_files_of_pytorch_counts_come_from_arrays_and_the_split_from_years() {
    let (_home, path) = mag();
    fs::remove_file(path.join("meta.pt")).unwrap();
    fs::remove_file(path.join("split_dict.pt")).unwrap();
    let data = load_default(&path);
    let by_year = ByHand { split: [&[0, 2], &[3], &[5]], ..MAG };
    assert!(data == by_year.dataset());
    let counted: Vec<&str> = data.notes.made_up.iter().map(|made| made.kind).collect();
    assert_eq!(counted, ["counted_nodes", "counted_nodes", "counted_nodes", "reverse_relations", "split_by_year"]);
    assert_eq!(not_used(&data), ["RELEASE_v1.txt"]);
    fs::remove_file(path.join("processed/paper/node_year.npy")).unwrap();
    let drawn = load_default(&path);
    assert!(drawn.notes.made_up.iter().any(|made| made.kind == "drawn_split"));
    fs::remove_file(path.join("processed/paper/node_feat.npy")).unwrap();
    let bare = load_default(&path);
    assert_eq!(bare.typed.as_ref().unwrap().features, vec![TypeFeatures::None; 4]);
    assert_eq!(bare.n_nodes(), 11, "papers without features have labels");
}

#[test]
fn a_split_of_numpy_arrays_is_read() {
    let (_home, path) = mag();
    fs::copy(torch_file("dict_numpy.pt"), path.join("split_dict.pt")).unwrap();
    let data = load_default(&path);
    assert_eq!(data.splits, [Split { train: vec![5, 5 + 2], val: vec![5 + 1], test: vec![5 + 3] }]);
    assert!(!not_used(&data).contains(&"split_dict.pt: test"));
}

#[test]
fn three_of_five_test_papers_are_scored() {
    let (_home, path) = mag();
    write_split(&path, &[("train", &[2]), ("valid", &[]), ("test", &[0, 1, 5, 3, 4])]);
    let data = load_default(&path);
    assert_eq!(data.splits, [Split { train: vec![5 + 2], val: vec![], test: vec![5, 5 + 1, 5 + 5] }]);
    assert!(
        data.notes.not_used_line().unwrap().contains("test: 2 test nodes of test-challenge; the other 3 are test-dev")
    );
}

#[test]
fn halves_are_encoded_row_by_row() {
    let (_home, path) = mag();
    let codec: CodecSpec = "f16".parse().unwrap();
    let data = with(&path, &LoadOptions { codec: Some(codec), ..default() });
    let TypeFeatures::Given(Features::Compressed(rows)) = &data.typed.as_ref().unwrap().features[3] else {
        panic!("codes")
    };
    let mut row = [0.0; 2];
    Features::Compressed(rows.clone()).rows().read_rows(3, &mut row).unwrap();
    assert_eq!(row, [-2.0, 3.0]);
}

#[test]
fn labels_of_igb_are_chosen_by_name() {
    let (home, path) = igb();
    let labels = |given: &str| LoadOptions { labels: Some(PathBuf::from(given)), ..default() };
    assert!(with(&path, &labels("19")) == IGB.dataset());
    let many = with(&path, &labels("2K"));
    let by_hand = ByHand { classes: (&[2982, 0, 5, -1, -1, 7], 2983), split: [&[0, 1], &[], &[2, 5]], ..IGB };
    assert!(many == by_hand.dataset());
    let file = home.path().join("own.npy");
    write_npy(&file, &[6], &[0_i64, 1, 0, 1, 0, 1]).unwrap();
    let own = with(&path, &labels(file.to_str().unwrap()));
    assert_eq!(own.n_classes(), 2);
    assert!(own.notes.made_up.iter().any(|made| made.kind == "replaced_labels"));
    fs::remove_file(path.join("processed/paper/node_label_2K.npy")).unwrap();
    let missing = refusal(&path, &labels("2K"));
    assert!(missing.contains("--labels 2K: there is no paper/node_label_2K.npy; fetch it"), "{missing}");
    let only = load_default(&path);
    assert!(only == IGB.dataset() && only.notes.made_up.iter().all(|made| made.kind != "label_set"));
    fs::remove_file(path.join("processed/paper/node_label_19.npy")).unwrap();
    fs::copy(torch_file("tensor_i64.pt"), path.join("processed/train_idx.pt")).unwrap();
    let bare = load_default(&path);
    assert!(bare.labels.is_none() && bare.splits[0].train == [5, 5 + 2], "ids are those of papers");
}

#[test]
fn saved_splits_of_igb_are_read() {
    let (_home, path) = igb();
    fs::copy(torch_file("tensor_i64.pt"), path.join("processed/train_idx.pt")).unwrap();
    let data = load_default(&path);
    assert_eq!(data.splits, [Split { train: vec![5, 5 + 2], ..Split::default() }]);
    assert_eq!(data.notes.made_up.iter().filter(|made| made.kind == "empty_part").count(), 2);
    fs::copy(torch_file("tensor_i32.pt"), path.join("processed/val_idx.pt")).unwrap();
    let message = refusal(&path, &default());
    assert!(message.contains("train_idx.pt, val_idx.pt: node 0 is in both train and val"), "{message}");
    fs::copy(torch_file("hostile.pt"), path.join("processed/val_idx.pt")).unwrap();
    let message = refusal(&path, &default());
    assert!(message.contains("val_idx.pt") && message.contains("not on the list of allowed names"), "{message}");
}

#[test]
fn papers_alone_are_data_of_one_type() {
    let (_home, path) = igb();
    for folder in ["paper__topic__fos", "paper__written_by__author", "author"] {
        fs::remove_dir_all(path.join("processed").join(folder)).unwrap();
    }
    let data = load_default(&path);
    assert!(data == ByHand { types: &IGB.types[2..], relations: &IGB.relations[..1], target: 0, ..IGB }.dataset());
    let Some(girih_datasets::Labels::Single { classes, .. }) = &data.labels else { panic!("classes") };
    assert_eq!(classes[4], UNLABELLED);
}

#[test]
fn damage_of_mag240m_is_refused_by_file_and_place() {
    type Change = fn(&Path);
    let cases: &[(&str, Change, &str)] = &[
        (
            "author___writes___paper/edge_index.npy",
            |file| write_npy(file, &[2, 3], &[0_i64, 3, 1, 0, 1, 2]).unwrap(),
            "edge 1: writes goes from author (3 nodes) to paper (6 nodes), and the source is node 3, which is beyond author",
        ),
        (
            "author___writes___paper/edge_index.npy",
            |file| write_npy(file, &[2, 3], &[0_i64, 1, 1, 0, 1, 6]).unwrap(),
            "edge 2: writes goes from author (3 nodes) to paper (6 nodes), and the destination is node 6",
        ),
        (
            "author___writes___paper/edge_index.npy",
            |file| write_npy(file, &[2, 2], &[0_i64, 1, 0, 1]).unwrap(),
            "edges of shape 2 × 2 may be rows of sources and destinations, or pairs; save them among arrays with types",
        ),
        (
            "author___writes___paper/edge_index.npy",
            |file| write_npy(file, &[3, 3], &[0_i64; 9]).unwrap(),
            "shape 3 × 3",
        ),
        ("author___writes___paper/edge_index.npy", |file| write_npy(file, &[2, 3], &[0.0_f32; 6]).unwrap(), "float32"),
        (
            "author___writes___paper/edge_index.npy",
            |file| write_npy(file, &[2, 3], &[0_i64, 1, -1, 0, 1, 2]).unwrap(),
            "-1",
        ),
        (
            "author___writes___paper/edge_index.npy",
            |file| fs::remove_file(file).unwrap(),
            "edge_index.npy: there is no such file",
        ),
        ("author___writes___paper/edge_index.npy", cut, "edge_index.npy"),
        ("paper/node_feat.npy", cut, "node_feat.npy"),
        ("paper/node_feat.npy", |file| write_npy(file, &[6], &[0.0_f32; 6]).unwrap(), "expected two dimensions"),
        ("paper/node_feat.npy", |file| write_npy(file, &[6, 1], &[f32::NAN; 6]).unwrap(), "node_feat.npy: "),
        (
            "paper/node_feat.npy",
            |file| write_npy(file, &[5, 1], &[0.0_f32; 5]).unwrap(),
            "meta.pt: type paper: there are 5 rows of features for 6 nodes",
        ),
        ("paper/node_label.npy", |file| write_npy(file, &[5], &[0_i64; 5]).unwrap(), "5 labels for 6 nodes"),
        (
            "paper/node_label.npy",
            |file| write_npy(file, &[6], &[0.0, 1.0, 1.5, 0.0, 0.0, 0.0]).unwrap(),
            "node_label.npy: node 2 has class 1.5; classes are whole numbers",
        ),
        (
            "paper/node_label.npy",
            |file| write_npy(file, &[6], &[0_i64, 1, 2, 3, 0, 0]).unwrap(),
            "node_label.npy: node 3",
        ),
    ];
    for (file, change, expected) in cases {
        let (_home, path) = mag();
        change(&path.join("processed").join(file));
        let message = refusal(&path, &default());
        assert!(message.contains(expected), "{expected}: {message}");
    }
}

fn cut(file: &Path) {
    let whole = fs::read(file).unwrap();
    fs::write(file, &whole[..whole.len() - 3]).unwrap();
}

#[test]
fn numbers_and_splits_of_mag240m_that_lie_are_refused() {
    let refused = |change: &dyn Fn(&Path), expected: &str| {
        let (_home, path) = mag();
        change(&path);
        let message = refusal(&path, &default());
        assert!(message.contains(expected), "{expected}: {message}");
    };
    refused(&|path| write_meta(path, &[("paper", 5)]), "meta.pt: type paper: there are 6 rows of features for 5 nodes");
    refused(&|path| write_meta(path, &[("author", 2)]), "edge 1: affiliated_with goes from author (2 nodes)");
    refused(
        &|path| write_meta(path, &[("author", 2_000_000_000)]),
        "meta.pt: type author: 2000000000 nodes are declared",
    );
    refused(&|path| write_meta(path, &[("author", -1)]), "meta.pt: author is no number from 0");
    refused(&|path| write_meta(path, &[("num_classes", 2)]), "node_label.npy: ");
    refused(&|path| fs::write(path.join("meta.pt"), "numbers").unwrap(), "meta.pt");
    refused(
        &|path| write_split(path, &[("train", &[6])]),
        "split_dict.pt: train: value 0 is node 6, and the target paper",
    );
    refused(&|path| write_split(path, &[("train", &[1, 1])]), "split_dict.pt: train: node 1 is listed twice");
    refused(
        &|path| write_split(path, &[("train", &[1]), ("valid", &[1])]),
        "split_dict.pt: node 1 is in both train and val",
    );
    let several = |path: &Path| write_split(path, &[("test", &[1]), ("test-dev", &[1])]);
    refused(&several, "split_dict.pt: test-dev: there are such nodes already; keep one of test and test-dev");
    refused(&|path| assert!(fs::copy(torch_file("hostile.pt"), path.join("split_dict.pt")).is_ok()), "split_dict.pt");
    let years = |path: &Path| {
        fs::remove_file(path.join("split_dict.pt")).unwrap();
        write_npy(&path.join("processed/paper/node_year.npy"), &[5], &[2018_i64; 5]).unwrap();
    };
    refused(&years, "node_year.npy: 5 years for 6 nodes of paper");
    let other = |path: &Path| {
        fs::rename(path.join("processed/paper/node_label.npy"), path.join("processed/author_label.npy")).unwrap();
        fs::create_dir(path.join("processed/author")).unwrap();
        fs::rename(path.join("processed/author_label.npy"), path.join("processed/author/node_label.npy")).unwrap();
    };
    refused(&other, "node_label.npy: there are 6 labels for 3 nodes");
    let (_home, path) = mag();
    let author = LoadOptions { target: Some("author".to_owned()), ..default() };
    let message = refusal(&path, &author);
    assert!(message.contains("split_dict.pt") && message.contains("the target author has 3 nodes"), "{message}");
    write_meta(&path, &[("venue", 3)]);
    assert!(not_used(&load_default(&path)).contains(&"meta.pt: venue"));
}

#[test]
fn files_of_igb_of_another_size_are_refused() {
    let refused = |file: &str, change: &dyn Fn(&Path), expected: &str| {
        let (_home, path) = igb();
        change(&path.join("processed").join(file));
        let message = refusal(&path, &default());
        let folder = file.split_once('/').unwrap().0;
        assert!(message.contains(expected) && message.contains(folder), "{expected}: {message}");
    };
    let raw = |file: &Path| fs::write(file, [0; 24]).unwrap();
    let sizes =
        "24 bytes that do not begin as an .npy; without a header, large and full have 409600000000 (100000000 rows)";
    refused("paper/node_feat.npy", &raw, sizes);
    refused("author/node_feat.npy", &raw, "479067734016 (116959896 rows)");
    refused("paper/node_label_19.npy", &raw, "large and full have 400000000 (100000000 rows) or 1077384696");
    let large = |file: &Path| write_npy(file, &[6], &[0_i64, 1, 2, 3, 19, 0]).unwrap();
    refused("paper/node_label_19.npy", &large, "node 4");
    refused("paper/node_label_19.npy", &|file| write_npy(file, &[5], &[0_i64; 5]).unwrap(), "5 labels for 6 nodes");
    let halves = |file: &Path| write_npy(file, &[6], &[0.0, 1.0, 0.5, 0.0, 0.0, 0.0]).unwrap();
    refused("paper/node_label_19.npy", &halves, "node 2 has class 0.5");
    let either = |file: &Path| write_npy(file, &[2, 2], &[0_i64, 1, 0, 1]).unwrap();
    refused("paper__cites__paper/edge_index.npy", &either, "edges of shape 2 × 2 may be rows");
    let beyond = |file: &Path| write_npy(file, &[3, 2], &[0_i64, 0, 1, 0, 6, 1]).unwrap();
    refused("paper__cites__paper/edge_index.npy", &beyond, "edge 2: cites goes from paper (6 nodes)");
    refused(
        "paper__cites__paper/edge_index.npy",
        &|file| fs::remove_file(file).unwrap(),
        "edge_index.npy: there is no such file",
    );
}
