//! Typed data on the command line: `stats` and `convert` of id pairs, folders and named arrays.

use std::fs;

use serde_json::{Value, json};

use crate::girih::{Workspace, girih, says};

/// Writes a small `.npy` array.
fn npy(descr: &str, shape: &str, values: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    let padded = format!("{header:<117}\n");
    [b"\x93NUMPY\x01\x00", &(padded.len() as u16).to_le_bytes()[..], padded.as_bytes(), values].concat()
}

pub fn floats(shape: &str, values: &[f32]) -> Vec<u8> {
    npy("<f4", shape, &values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>())
}

pub fn ids(values: &[i64]) -> Vec<u8> {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    npy("<i8", &format!("({},)", values.len()), &bytes)
}

/// Folder of id pairs: eight papers with features, three authors, and two split sets.
fn pairs(work: &Workspace) -> String {
    let folder = work.path("pairs");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("pa.txt"), (0..8).map(|paper| format!("{paper}\t{}\n", paper % 3)).collect::<String>())
        .unwrap();
    let rows: Vec<f32> = (0..16).map(|value| (value % 5) as f32).collect();
    fs::write(folder.join("p_feat.npy"), floats("(8, 2)", &rows)).unwrap();
    fs::write(folder.join("labels.npy"), ids(&[0, 1, 0, 1, 0, 1, 0, 1])).unwrap();
    for (number, train) in [(20, &[0_i64, 1][..]), (40, &[0, 1, 2, 3])] {
        for (part, nodes) in [("train", train), ("val", &[4, 5]), ("test", &[6, 7])] {
            fs::write(folder.join(format!("{part}_{number}.npy")), ids(nodes)).unwrap();
        }
    }
    work.arg("pairs")
}

fn stats(args: &[&str]) -> Value {
    girih(&[&["stats"], args, &["--json"]].concat()).ok().result()
}

#[test]
fn stats_describe_types_their_features_and_the_target() {
    let work = Workspace::new();
    let data = pairs(&work);
    let result = stats(&[&data, "--type-names", "p=paper,a=author"]);
    let node_types = json!([
        { "name": "author", "nodes": 3, "labelled": 0, "features": "none", "n_features": 0,
          "train": 0, "val": 0, "test": 0, "target": false },
        { "name": "paper", "nodes": 8, "labelled": 8, "features": "dense", "n_features": 2,
          "train": 2, "val": 2, "test": 2, "target": true },
    ]);
    assert_eq!(result["node_types"], node_types);
    let relation =
        |edges: &Value| ["source", "relation", "destination", "reverse_of", "edges"].map(|key| edges[key].clone());
    let edge_types: Vec<_> = result["edge_types"].as_array().unwrap().iter().map(relation).collect();
    assert_eq!(edge_types[0], [json!("paper"), json!("pa"), json!("author"), json!(null), json!(8)]);
    assert_eq!(edge_types[1], [json!("author"), json!("rev_pa"), json!("paper"), json!(0), json!(8)]);
    let table = girih(&["stats", &data]).ok().out;
    assert!(table.contains("p (target): 8 nodes, 2 dense features, 8 labelled, 2 train, 2 val, 2 test"), "{table}");
    assert!(table.contains("a: 3 nodes, no features"), "{table}");
    let chosen = stats(&[&data, "--split", "40"]);
    assert_eq!(chosen["splits"], json!([{ "train": 4, "val": 2, "test": 2 }]));
    assert_eq!(stats(&[&data, "--reverse", "no"])["edge_types"].as_array().unwrap().len(), 1);
}

#[test]
fn typed_data_is_converted_to_every_form_and_back() {
    let work = Workspace::new();
    let data = pairs(&work);
    let types = |path: &str| {
        let result = stats(&[path]);
        (result["node_types"].clone(), result["edge_types"].clone(), result["splits"].clone())
    };
    let expected = types(&data);
    let (mut from, forms) = (data, ["folder", "graph.safetensors", "graph.npz", "back"]);
    for form in forms {
        let out = work.arg(form);
        let written = girih(&["convert", &from, "--out", &out, "--json"]).ok().result();
        let format = [("graph.npz", "named arrays .npz"), ("graph.safetensors", "safetensors")];
        let format = format.iter().find(|(name, _)| *name == form).map_or("folder", |(_, format)| format);
        assert_eq!(written["format"], format);
        assert_eq!(types(&out), expected, "{form}");
        from = out;
    }
    girih(&["verify", &work.arg("folder")]).ok();
    let refused = girih(&["convert", &work.arg("folder"), "--reverse", "add", "--out", &work.arg("x")]).refused(1);
    assert!(says(&refused, "a.rev_pa.p has the edges of p.pa.a in the other direction"), "{refused}");
}

#[test]
fn types_are_left_out_on_request() {
    let work = Workspace::new();
    let (data, out) = (pairs(&work), work.arg("plain"));
    let refused = girih(&["convert", &data, "--homogeneous", "--out", &out]).refused(1);
    assert!(says(&refused, "type a has no features, and another type has features of 2 columns"), "{refused}");
    fs::remove_file(work.path("pairs/p_feat.npy")).unwrap();
    girih(&["convert", &data, "--homogeneous", "--out", &out]).ok();
    let plain = stats(&[&out]);
    assert_eq!((&plain["nodes"], &plain["node_types"]), (&json!(11), &json!(null)));
    girih(&["convert", &data, "--homogeneous", "--out", &work.arg("plain.mtx")]).ok();
    let again = girih(&["convert", &out, "--homogeneous", "--out", &work.arg("again")]).refused(1);
    assert!(says(&again, "--homogeneous leaves types out, and pairs has none"), "{again}");
}

#[test]
fn unknown_types_are_refused_with_the_known_ones() {
    let work = Workspace::new();
    let data = pairs(&work);
    for (flags, expected) in [
        (["--target", "venue"], "--target venue: there is no such node type; known are a, p"),
        (["--type-names", "x=other"], "--type-names x=…: there is no such node type; known are a, p"),
    ] {
        let message = girih(&[&["stats", data.as_str()], &flags[..]].concat()).refused(1);
        assert!(says(&message, expected), "{message}");
    }
    let wrong = girih(&["stats", &data, "--type-names", "paper"]).refused(2);
    assert!(says(&wrong, "expected LETTER=NAME, such as p=paper,a=author"), "{wrong}");
}

#[test]
fn codes_of_types_are_verified_with_their_folder() {
    let work = Workspace::new();
    let (data, folder) = (pairs(&work), work.arg("folder"));
    girih(&["convert", &data, "--out", &folder]).ok();
    let refused = girih(&["compress", "--data", &folder, "--out", &work.arg("codes")]).refused(1);
    assert!(says(&refused, "pairs has features by node type, and a store holds those of one"), "{refused}");
    let (rows, codes) = (work.arg("pairs/p_feat.npy"), work.path("folder/n1_features.codes"));
    girih(&["compress", "--data", &rows, "--codec", "int8", "--out", &work.arg("codes")]).ok();
    fs::copy(work.path("codes/features.codes"), &codes).unwrap();
    let verified = girih(&["verify", &folder, "--json"]).ok().result();
    assert_eq!(verified["verified"], json!(["arrays of girih.toml", "n1_features.codes"]));
    let mut bytes = fs::read(&codes).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&codes, bytes).unwrap();
    let refused = girih(&["verify", &folder]).refused(1);
    assert!(says(&refused, "n1_features.codes"), "{refused}");
}
