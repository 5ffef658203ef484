//! Raw folders of OGB with types, in the layout of ogbn-mag: small folders in both forms, and damage.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::by_hand::{ByHand, rows_of};
use crate::common::{load_default, refusal, write_mag_text, write_text};
use girih_datasets::{Dataset, Features, LoadOptions, OutputFormat, ReverseEdges, TypeFeatures, load};
use girih_graph_format::NodeId;
use girih_graph_format::file::NpzWriter;
use tempfile::TempDir;

/// The data of the folders.
pub const SMALL: ByHand<'_> = ByHand {
    name: "small",
    types: &[
        ("author", 3, None),
        ("field", 0, None),
        ("institution", 2, None),
        ("paper", 4, Some((2, &[1.0, 0.5, 0.0, 0.1, 0.0, 0.0, -2.0, 3.0]))),
    ],
    relations: &[
        (["author", "affiliated_with", "institution"], &[(0, 0), (2, 1)]),
        (["author", "writes", "paper"], &[(0, 0), (0, 1), (1, 1), (2, 3)]),
        (["paper", "cites", "paper"], &[(1, 0), (2, 0), (3, 1)]),
        (["paper", "has_topic", "field"], &[]),
    ],
    target: 3,
    classes: (&[1, -1, 0, 2], 3),
    split: [&[0, 2], &[3], &[1]],
};

fn written() -> (TempDir, PathBuf) {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("small");
    write_mag_text(&path);
    (home, path)
}

/// Raw folder of archives with the same data; the split is text.
fn binary() -> (TempDir, PathBuf) {
    let (home, path) = written();
    fs::rename(path.join("split"), home.path().join("split")).unwrap();
    fs::remove_dir_all(&path).unwrap();
    let raw = path.join("raw");
    fs::create_dir_all(&raw).unwrap();
    fs::rename(home.path().join("split"), path.join("split")).unwrap();
    NpzWriter::write_file(&raw.join("num_nodes_dict.npz"), |npz| {
        SMALL.types.iter().try_for_each(|&(name, n_nodes, _)| npz.array(name, &[1], &[n_nodes as i64]))
    })
    .unwrap();
    write_edges(&raw);
    NpzWriter::write_file(&raw.join("node_feat_dict.npz"), |npz| {
        npz.array("paper", &[4, 2], &[1.0_f32, 0.5, 0.0, 0.1, 0.0, 0.0, -2.0, 3.0])?;
        npz.array("other", &[1, 1], &[1.0_f32])
    })
    .unwrap();
    NpzWriter::write_file(&raw.join("node_year_dict.npz"), |npz| npz.array("paper", &[4, 1], &[2019_i64; 4])).unwrap();
    NpzWriter::write_file(&raw.join("node-label.npz"), |npz| {
        npz.array("paper", &[4, 1], &[1.0_f32, f32::NAN, 0.0, 2.0])
    })
    .unwrap();
    (home, path)
}

fn write_edges(raw: &Path) {
    NpzWriter::write_file(&raw.join("edge_index_dict.npz"), |npz| {
        for (of, pairs) in SMALL.relations {
            // Two edges would be two rows of two.
            let pairs: Vec<(NodeId, NodeId)> =
                if pairs.len() == 2 { [*pairs, &pairs[..1]].concat() } else { pairs.to_vec() };
            npz.array(&of.join("___"), &[2, pairs.len()], &rows_of(&pairs))?;
        }
        Ok(())
    })
    .unwrap();
    NpzWriter::write_file(&raw.join("num_edges_dict.npz"), |npz| {
        SMALL.relations.iter().try_for_each(|(of, pairs)| {
            let n_edges = if pairs.len() == 2 { 3 } else { pairs.len() as i64 };
            npz.array(&of.join("___"), &[1], &[n_edges])
        })
    })
    .unwrap();
}

fn not_used(data: &Dataset) -> Vec<&str> {
    data.notes.not_used.iter().map(|entry| entry.what.as_str()).collect()
}

#[test]
fn text_and_archives_are_the_data_by_hand() {
    let ((_text, text), (_binary, binary)) = (written(), binary());
    for path in [text.clone(), text.join("raw"), binary.clone(), binary.join("raw")] {
        let data = load_default(&path);
        assert!(data == SMALL.dataset(), "{}", path.display());
        assert!(data.notes.warnings.is_empty(), "{:?}", data.notes);
        assert!(data.notes.made_up.iter().any(|made| made.kind == "reverse_relations"));
    }
    let times = "raw/node-feat/paper/node_year.csv.gz";
    let types = "raw/relations/author___writes___paper/edge_reltype.csv.gz";
    let text = load_default(&text);
    assert_eq!(not_used(&text), [times, types, "RELEASE_v2.txt"]);
    assert!(text.notes.not_used_line().unwrap().contains("edge_reltype.csv.gz: edge types"), "{:?}", text.notes);
    assert_eq!(not_used(&load_default(&binary)), ["raw/node_year_dict.npz", "raw/node_feat_dict.npz/other.npy"]);
}

#[test]
fn the_layout_of_pyg_has_splits_in_raw_and_no_list_of_relations() {
    let (_home, path) = written();
    fs::rename(path.join("split"), path.join("raw/split")).unwrap();
    for name in ["triplet-type-list", "nodetype-has-label", "nodetype-has-feat"] {
        fs::remove_file(path.join(format!("raw/{name}.csv.gz"))).unwrap();
    }
    fs::remove_file(path.join("raw/split/time/nodetype-has-split.csv.gz")).unwrap();
    assert!(load_default(&path) == SMALL.dataset());
}

#[test]
fn every_format_of_typed_data_keeps_it() {
    let (home, path) = written();
    let data = load_default(&path);
    for name in ["folder", "data.safetensors", "data.npz"] {
        let copy = home.path().join(name);
        data.save_as(OutputFormat::of(&copy).unwrap(), &copy).unwrap();
        let read = Dataset { name: data.name.clone(), ..load_default(&copy) };
        assert!(read == data && read.fingerprints() == data.fingerprints(), "{name}");
    }
}

#[test]
fn options_choose_target_reverses_and_division() {
    let (_home, path) = written();
    let with = |options: LoadOptions| load(path.to_str().unwrap(), &options);
    let data = with(LoadOptions { reverse: Some(ReverseEdges::No), ..LoadOptions::default() }).unwrap();
    assert_eq!(data.typed.unwrap().graph.relations().len(), 4);
    let norm = Some(girih_datasets::FeatureNorm::Length);
    let divided = with(LoadOptions { feature_norm: norm, ..LoadOptions::default() }).unwrap();
    let TypeFeatures::Given(Features::Dense(rows)) = &divided.typed.as_ref().unwrap().features[3] else { panic!() };
    assert_eq!(rows.row(1), [0.0, 1.0]);
    let author = LoadOptions { target: Some("author".to_owned()), ..LoadOptions::default() };
    let message = with(author.clone()).unwrap_err().to_string();
    assert!(message.contains("the split is one of paper, and the target is author; give --target paper"), "{message}");
    let message = with(LoadOptions { random_split: true, ..author }).unwrap_err().to_string();
    assert!(message.contains("there are no labels"), "{message}");
    let other = with(LoadOptions { target: Some("venue".to_owned()), ..LoadOptions::default() }).unwrap_err();
    assert!(other.to_string().contains("known are author, field, institution, paper"), "{other}");
    write_text(&path.join("raw/node-label/author/node-label.csv.gz"), "0\n1\n0\n");
    fs::remove_file(path.join("raw/nodetype-has-label.csv.gz")).unwrap();
    assert!(refusal(&path, &LoadOptions::default()).contains("author, paper have labels; choose the one"));
    let paper = LoadOptions { target: Some("paper".to_owned()), ..LoadOptions::default() };
    let data = with(paper).unwrap();
    assert!(data == SMALL.dataset() && not_used(&data).contains(&"raw/node-label/author/node-label.csv.gz"));
}

/// Checks that a folder with one file replaced is refused.
fn refused(cases: &[(&str, &str, &str)]) {
    for (file, text, expected) in cases {
        let (_home, path) = written();
        write_text(&path.join(file), text);
        let message = refusal(&path, &LoadOptions::default());
        assert!(message.contains(expected), "{file} {text:?}: {message}");
    }
}

const WRITES: &str = "raw/relations/author___writes___paper/edge.csv.gz";

#[test]
fn edges_and_numbers_that_contradict_each_other_are_refused_by_line() {
    const COUNTS: &str = "raw/num-node-dict.csv.gz";
    const TRIPLETS: &str = "raw/triplet-type-list.csv.gz";
    let source = "edge.csv.gz: line 2: writes goes from author (3 nodes) to paper (4 nodes), and the source is node 3";
    let destination = "line 2: writes goes from author (3 nodes) to paper (4 nodes), and the destination is node 4";
    let many = "num-node-dict.csv.gz: type author: 2000000000 nodes are declared";
    refused(&[
        (WRITES, "0,0\n3,0\n1,1\n2,3\n", source),
        (WRITES, "0,0\n0,4\n1,1\n2,3\n", destination),
        (WRITES, "0,0\n0,1\n1,1\n", "edge.csv.gz: 4 edges are declared, but the file holds 3"),
        (WRITES, "0,0\n0\n1,1\n2,3\n", "edge.csv.gz: line 2: 1 fields; expected two ids"),
        (WRITES, "0,0\n0,1,5\n1,1\n2,3\n", "edge.csv.gz: line 2: 3 fields; expected two ids"),
        (WRITES, "0,0\n0,-1\n1,1\n2,3\n", "edge.csv.gz: line 2: \"-1\" is no id"),
        (WRITES, "0,0\n0,1.5\n1,1\n2,3\n", "edge.csv.gz: line 2: \"1.5\" is no id"),
        (TRIPLETS, "author,writes\n", "line 1: \"author,writes\" is no source type, relation"),
        (TRIPLETS, "author,reads,paper\n", "author___reads___paper/edge.csv.gz: there is no such file"),
        (COUNTS, "author,paper\n3,x\n", "num-node-dict.csv.gz: line 2: \"x\" is no number of nodes"),
        (COUNTS, "author,paper\n3,4\n3,4\n", "num-node-dict.csv.gz: 2 lines of numbers"),
        (COUNTS, "author,paper\n", "num-node-dict.csv.gz: a header without a row"),
        (COUNTS, "author,field,paper\n3,0,4\n", "names the type institution, which has no number"),
        (COUNTS, "author,field,institution,paper\n3,0,2,5\n", "there are 4 rows of features for 5 nodes"),
        (COUNTS, "author,field,institution,paper\n2000000000,0,2,4\n", many),
    ]);
}

#[test]
fn features_labels_and_splits_that_do_not_fit_are_refused_by_line() {
    const FEATURES: &str = "raw/node-feat/paper/node-feat.csv.gz";
    const LABELS: &str = "raw/node-label/paper/node-label.csv.gz";
    const HAS_LABEL: &str = "raw/nodetype-has-label.csv.gz";
    const TRAIN: &str = "split/time/paper/train.csv.gz";
    const HAS_SPLIT: &str = "split/time/nodetype-has-split.csv.gz";
    refused(&[
        (FEATURES, "1,2\n1\n3,4\n5,6\n", "node-feat.csv.gz: line 2: 1 fields"),
        (FEATURES, "1\nnan\n1\n1\n", "node-feat.csv.gz: line 2: \"nan\""),
        (LABELS, "1\n0.5\n1\n0\n", "node-label.csv.gz: node 1 has class 0.5"),
        (LABELS, "1\n0\n", "node-label.csv.gz: there are 2 labels for 4 nodes"),
        ("raw/nodetype-has-feat.csv.gz", "author\nTrue\n", "True under author, but there is no node-feat/author"),
        (HAS_LABEL, "author,paper\nFalse,False\n", "False under paper, but there is node-label/paper"),
        (HAS_LABEL, "author,paper\nFalse,maybe\n", "\"maybe\" under paper is neither True nor False"),
        (TRAIN, "4\n", "paper: train: value 0 is node 4, and the target paper has 4 nodes"),
        (TRAIN, "0\n0\n", "paper: train: node 0 is listed twice"),
        (TRAIN, "3\n", "paper: node 3 is in both train and val"),
        (TRAIN, "x\n", "train.csv.gz: line 1"),
        (HAS_SPLIT, "author,paper\nFalse,False\n", "False under paper, but there is folder paper"),
    ]);
}

#[test]
fn missing_files_are_named() {
    const N_EDGES: &str = "raw/relations/author___writes___paper/num-edge-list.csv.gz";
    for (file, expected) in [
        (WRITES, "author___writes___paper/edge.csv.gz: there is no such file"),
        (N_EDGES, "author___writes___paper/num-edge-list.csv.gz: there is no such file"),
        ("raw/num-node-dict.csv.gz", "raw/num-node-dict.csv.gz: there is no such file"),
        ("raw/node-label/paper/node-label.csv.gz", "True under paper, but there is no node-label/paper"),
    ] {
        let (_home, path) = written();
        fs::remove_file(path.join(file)).unwrap();
        let message = refusal(&path, &LoadOptions::default());
        assert!(message.contains(expected), "{file}: {message}");
    }
}

#[test]
fn archives_that_contradict_themselves_are_refused() {
    type Array<'a> = (&'a str, &'a [usize], &'a [i64]);
    let replaced = |file: &str, arrays: &[Array<'_>]| {
        let (_home, path) = binary();
        NpzWriter::write_file(&path.join("raw").join(file), |npz| {
            arrays.iter().try_for_each(|(name, shape, values)| npz.array(name, shape, values))
        })
        .unwrap();
        refusal(&path, &LoadOptions::default())
    };
    let edges: &[(&[Array<'_>], &str)] = &[
        (&[("author___writes___paper", &[2, 2], &[0, 0, 1, 1])], "shape 2 × 2 may be rows of sources and destinations"),
        (&[("author___writes___paper", &[3, 3], &[0; 9])], "edges of shape 3 × 3"),
        (&[("author___writes___paper", &[2, 1], &[0, 0])], "4 edges are declared, but the file holds 1"),
        (&[("author___reads___paper", &[2, 1], &[0, 0])], "num_edges_dict.npz: "),
        (&[("writes", &[2, 1], &[0, 0])], "expected SOURCE___RELATION___DESTINATION"),
        (&[("author___writes___paper", &[2, 4], &[0, 0, 1, 9, 0, 1, 1, 3])], "edge 3: writes goes from author"),
        (&[("author___writes___paper", &[2, 4], &[0, 0, 1, -1, 0, 1, 1, 3])], "-1"),
    ];
    for (arrays, expected) in edges {
        let message = replaced("edge_index_dict.npz", arrays);
        assert!(message.contains(expected) && message.contains("edge"), "{expected}: {message}");
    }
    let message = replaced("num_nodes_dict.npz", &[("author", &[2], &[1, 2])]);
    assert!(message.contains("2 graphs"), "{message}");
    let message = replaced("node-label.npz", &[("paper", &[3], &[0, 1, 0])]);
    assert!(message.contains("node-label.npz") && message.contains("3 labels for 4 nodes"), "{message}");
    let (_home, path) = binary();
    let whole = fs::read(path.join("raw/edge_index_dict.npz")).unwrap();
    fs::write(path.join("raw/edge_index_dict.npz"), &whole[..whole.len() / 2]).unwrap();
    assert!(refusal(&path, &LoadOptions::default()).contains("edge_index_dict.npz"));
    fs::remove_file(path.join("raw/num_edges_dict.npz")).unwrap();
    fs::write(path.join("raw/edge_index_dict.npz"), whole).unwrap();
    assert!(refusal(&path, &LoadOptions::default()).contains("num_edges_dict.npz"));
}
