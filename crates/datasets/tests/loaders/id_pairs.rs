//! Id pairs, the layout of HeCo: small folders, damage, and the published ACM and DBLP.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{load_default, real, refusal, write_text};
use girih_datasets::{Dataset, FeatureNorm, Features, LoadOptions, OutputFormat, ReverseEdges, TypeFeatures, load};
use girih_graph_format::file::{write_npy, write_sparse_npz};
use girih_graph_format::{Csr, Matrix};
use tempfile::TempDir;

/// Three papers of which one has no author, two authors, one subject; two split sets.
fn written() -> (TempDir, PathBuf) {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("small");
    write_text(&path.join("pa.txt"), "0\t0\n0\t1\n\n2\t1\n");
    write_text(&path.join("ps.txt"), "0\t0\n1\t0\n2\t0\n");
    let words = Csr::of_nonzeros(&Matrix::new(3, 2, vec![1.0, 3.0, 0.0, 2.0, 1.0, 0.0]).unwrap()).unwrap();
    write_sparse_npz(&path.join("p_feat.npz"), &words).unwrap();
    write_npy(&path.join("a_feat.npz"), &[2, 1], &[4.0_f64, -1.0]).unwrap();
    write_npy(&path.join("labels.npy"), &[3], &[0.0_f64, 2.0, 1.0]).unwrap();
    for (number, ids) in [("5", [2_i64, 1, 0]), ("40", [0, 1, 2])] {
        for (part, id) in ["train", "val", "test"].into_iter().zip(ids) {
            write_npy(&path.join(format!("{part}_{number}.npy")), &[1], &[id]).unwrap();
        }
    }
    (home, path)
}

fn with(path: &Path, options: &LoadOptions) -> Dataset {
    load(path.to_str().unwrap(), options).unwrap_or_else(|error| panic!("{error}"))
}

fn default() -> LoadOptions {
    LoadOptions::default()
}

fn sizes(dataset: &Dataset) -> Vec<(String, usize)> {
    let schema = dataset.typed.as_ref().unwrap().graph.schema().clone();
    schema.node_types().iter().map(|of| (of.name.clone(), of.n_nodes)).collect()
}

#[test]
fn letters_are_types_and_files_are_relations() {
    let (_home, path) = written();
    let data = load_default(&path);
    let typed = data.typed.as_ref().unwrap();
    let schema = typed.graph.schema();
    assert_eq!(sizes(&data), [("a".to_owned(), 2), ("p".to_owned(), 3), ("s".to_owned(), 1)]);
    let names: Vec<String> = (0..4).map(|number| schema.edge_name(number)).collect();
    assert_eq!(names, ["p.pa.a", "a.rev_pa.p", "p.ps.s", "s.rev_ps.p"]);
    assert_eq!((typed.target, data.n_classes()), (1, 3));
    assert_eq!(typed.graph.relations()[0].row(1), [0, 2], "papers of the author 1");
    let widths: Vec<usize> = typed
        .features
        .iter()
        .filter_map(|of| if let TypeFeatures::Given(rows) = of { Some(rows.width()) } else { None })
        .collect();
    assert_eq!((widths, &typed.features[2]), (vec![1, 2], &TypeFeatures::None));
    let trained: Vec<_> = data.splits.iter().map(|split| split.train.clone()).collect();
    assert_eq!(trained, [vec![4], vec![2]], "global ids, and 5 before 40");
    let texts: Vec<&str> = data.notes.made_up.iter().map(|made| made.text.as_str()).collect();
    assert_eq!(texts[0], "a_feat.npz is in truth an .npy, and is read as one");
    assert_eq!(texts[2], "split sets are those of 5, 40 in this order (--split 40 takes one of them)");
    assert!(data.notes.not_used.is_empty() && data.notes.warnings.is_empty());
}

#[test]
fn split_sets_are_chosen_by_their_numbers() {
    let (_home, path) = written();
    for (split, train) in [(0, 4), (1, 2), (5, 4), (40, 2)] {
        let data = with(&path, &LoadOptions { split: Some(split), ..default() });
        assert_eq!((data.splits.len(), &data.splits[0].train[..]), (1, &[train][..]), "{split}");
    }
    let message = load(path.to_str().unwrap(), &LoadOptions { split: Some(20), ..default() }).unwrap_err();
    assert!(message.to_string().contains("split 20 does not exist; small has 2 splits"), "{message}");
}

#[test]
fn options_name_types_and_divide_their_features() {
    let (_home, path) = written();
    let names = Some("p=paper,a=author of it".parse().unwrap());
    let options = LoadOptions { type_names: names, target: Some("paper".to_owned()), ..default() };
    let data = with(&path, &LoadOptions { reverse: Some(ReverseEdges::No), ..options });
    assert_eq!(sizes(&data).iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["author of it", "paper", "s"]);
    assert_eq!(data.typed.unwrap().graph.relations().len(), 2);
    let divided = with(&path, &LoadOptions { feature_norm: Some(FeatureNorm::Sum), ..default() });
    let typed = divided.typed.unwrap();
    let TypeFeatures::Given(Features::Sparse(words)) = &typed.features[1] else { panic!("sparse rows") };
    assert_eq!(words.values().unwrap(), [0.25, 0.75, 1.0, 1.0]);
    let TypeFeatures::Given(Features::Dense(rows)) = &typed.features[0] else { panic!("dense rows") };
    assert_eq!(rows.data(), [1.0, 1.0]);
    let refused = |options: LoadOptions| refusal(&path, &options);
    let unknown = refused(LoadOptions { type_names: Some("x=other".parse().unwrap()), ..default() });
    assert!(unknown.contains("--type-names x=…: there is no such node type; known are a, p, s"), "{unknown}");
    let unknown = refused(LoadOptions { target: Some("paper".to_owned()), ..default() });
    assert!(unknown.contains("--target paper: there is no such node type; known are a, p, s"), "{unknown}");
    for wrong in ["", "p", "p=", "pp=paper", "p=a,p=b"] {
        assert!(wrong.parse::<girih_datasets::TypeNames>().is_err(), "{wrong}");
    }
}

#[test]
fn contradictions_name_file_line_and_types() {
    let (_home, path) = written();
    let refused = |file: &str, change: &dyn Fn(&Path), expected: &str| {
        let file = path.join(file);
        let before = fs::read(&file).ok();
        change(&file);
        let message = refusal(&path, &default());
        assert!(message.contains(expected), "{expected}: {message}");
        match before {
            Some(bytes) => fs::write(&file, bytes).unwrap(),
            None => fs::remove_file(&file).unwrap(),
        }
    };
    let text = |text: &'static str| move |file: &Path| write_text(file, text);
    let line =
        "pa.txt: line 3: pa goes from p (3 nodes) to a (2 nodes), and the destination is node 2, which is beyond a";
    refused("pa.txt", &text("0\t0\n\n0\t2\n"), line);
    refused(
        "pa.txt",
        &text("3\t0\n"),
        "pa.txt: line 1: pa goes from p (3 nodes) to a (2 nodes), and the source is node 3",
    );
    refused("pa.txt", &text("0\t0\n1\n"), "pa.txt: line 2: 1 fields; expected two ids");
    refused("pa.txt", &text("0\t0\n1 x\n"), "pa.txt: line 2: \"x\" is no id");
    refused("pa.txt", &text("0 -1\n"), "pa.txt: line 1: \"-1\" is no id");
    let floats = |values: &'static [f64]| move |file: &Path| write_npy(file, &[values.len()], values).unwrap();
    refused("labels.npy", &floats(&[0.0, 1.5, 1.0]), "labels.npy: node 1 has class 1.5; classes are whole numbers");
    let several = "labels.npy has 4 labels, and no type has as many nodes";
    refused("labels.npy", &floats(&[0.0, 1.0, 2.0, 0.0]), several);
    let one = |file: &Path| write_npy(file, &[1, 1], &[1.0_f32]).unwrap();
    refused("s_feat.npy", &|file| write_npy(file, &[3, 1], &[1.0_f32; 3]).unwrap(), "several types have as many nodes");
    assert_eq!(load_default(&path).n_classes(), 3, "every change is undone");
    refused("a_feat.npz", &one, "pa.txt: line 2: pa goes from p (3 nodes) to a (1 nodes)");
    refused("a_feat.npz", &|file| write_npy(file, &[2, 1], &[1.0, f32::NAN]).unwrap(), "a_feat.npz: ");
    let ids = |values: &'static [i64]| move |file: &Path| write_npy(file, &[values.len()], values).unwrap();
    refused("val_40.npy", &ids(&[3]), "val_40.npy: value 0 is node 3, and the target p has 3 nodes");
    refused("val_40.npy", &ids(&[1, 1]), "val_40.npy: node 1 is listed twice");
    refused("val_40.npy", &ids(&[0]), "train_40.npy, val_40.npy and test_40.npy: node 0 is in both train and val");
}

#[test]
fn sizes_come_from_ids_where_nothing_else_has_them() {
    let (_home, path) = written();
    fs::remove_file(path.join("p_feat.npz")).unwrap();
    fs::remove_file(path.join("a_feat.npz")).unwrap();
    let data = load_default(&path);
    assert_eq!(sizes(&data).iter().map(|(_, n)| *n).collect::<Vec<_>>(), [2, 3, 1]);
    write_npy(&path.join("labels.npy"), &[5], &[0_i64, 1, 0, 1, 0]).unwrap();
    assert!(refusal(&path, &default()).contains("labels.npy has 5 labels, and no type has as many nodes"));
    let data = with(&path, &LoadOptions { target: Some("p".to_owned()), ..default() });
    assert_eq!(sizes(&data)[1].1, 5, "papers without an edge have a label");
    for name in ["train_5.npy", "val_5.npy", "test_5.npy", "train_40.npy", "val_40.npy", "test_40.npy"] {
        fs::remove_file(path.join(name)).unwrap();
    }
    let data = with(&path, &LoadOptions { target: Some("p".to_owned()), ..default() });
    assert_eq!(data.splits.len(), 1, "labels without a split get one");
    data.validate().unwrap();
}

#[test]
fn one_edge_list_beside_labels_stays_one() {
    let home = tempfile::tempdir().unwrap();
    write_text(&home.path().join("el.txt"), "0 1\n1 2\n");
    write_npy(&home.path().join("labels.npy"), &[3], &[0_i64, 1, 0]).unwrap();
    assert!(load_default(home.path()).typed.is_none());
    write_text(&home.path().join("ex.txt"), "");
    let data = load_default(home.path());
    assert_eq!(sizes(&data), [("e".to_owned(), 2), ("l".to_owned(), 3), ("x".to_owned(), 0)], "an empty list is valid");
}

/// Real folder with the sizes of its types, its target, its relations, and the training nodes of its split sets.
struct Published {
    name: &'static str,
    sizes: &'static [(&'static str, usize, Option<usize>)],
    target: &'static str,
    edges: &'static [(&'static str, usize)],
    trained: [usize; 3],
    n_classes: usize,
}

const PUBLISHED: [Published; 2] = [
    Published {
        name: "hetero/acm",
        sizes: &[("a", 7167, Some(1902)), ("p", 4019, Some(1902)), ("s", 60, None)],
        target: "p",
        edges: &[("p.pa.a", 13407), ("a.rev_pa.p", 13407), ("p.ps.s", 4019), ("s.rev_ps.p", 4019)],
        trained: [60, 120, 180],
        n_classes: 3,
    },
    Published {
        name: "hetero/dblp",
        sizes: &[("a", 4057, Some(334)), ("c", 20, None), ("p", 14328, Some(4231)), ("t", 7723, Some(50))],
        target: "a",
        edges: &[
            ("p.pa.a", 19645),
            ("a.rev_pa.p", 19645),
            ("p.pc.c", 14328),
            ("c.rev_pc.p", 14328),
            ("p.pt.t", 85810),
            ("t.rev_pt.p", 85810),
        ],
        trained: [80, 160, 240],
        n_classes: 4,
    },
];

#[test]
fn published_data_has_its_sizes_and_survives_every_format() {
    for published in PUBLISHED {
        let Some(path) = real(published.name) else { return };
        let data = load_default(&path);
        let typed = data.typed.as_ref().unwrap();
        let schema = typed.graph.schema();
        let width = |of: &TypeFeatures| if let TypeFeatures::Given(rows) = of { Some(rows.width()) } else { None };
        let types = schema.node_types().iter().zip(&typed.features);
        let sizes: Vec<_> = types.map(|(of, features)| (of.name.as_str(), of.n_nodes, width(features))).collect();
        assert_eq!(sizes, published.sizes);
        assert_eq!(schema.node_types()[typed.target].name, published.target);
        let relations = typed.graph.relations().iter().enumerate();
        let edges: Vec<_> = relations.map(|(number, of)| (schema.edge_name(number), of.nnz())).collect();
        let expected: Vec<_> = published.edges.iter().map(|(name, nnz)| ((*name).to_owned(), *nnz)).collect();
        assert_eq!(edges, expected);
        let parts: Vec<_> = data.splits.iter().map(|split| split.parts().map(|(_, nodes)| nodes.len())).collect();
        assert_eq!(parts, published.trained.map(|train| [train, 1000, 1000]));
        assert_eq!((data.n_classes(), data.notes.warnings.len()), (published.n_classes, 0));
        assert_eq!(data.notes.not_used_line().as_deref(), Some("not used: README.md: description"));

        let home = tempfile::tempdir().unwrap();
        for name in ["folder", "data.safetensors", "data.npz"] {
            let copy = home.path().join(name);
            data.save_as(OutputFormat::of(&copy).unwrap(), &copy).unwrap();
            let read = Dataset { name: data.name.clone(), ..load_default(&copy) };
            assert_eq!(read.fingerprints(), data.fingerprints(), "{name}");
            assert!(read == data, "{name}");
        }
    }
}
