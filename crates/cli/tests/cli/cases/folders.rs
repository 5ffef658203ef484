//! Folders of arrays, as users of PyG and DGL save them.

use super::*;

/// Forty nodes as PyG users save them: two rings over thirty nodes, ten more nodes, three classes.
fn forty(folder: &Path) {
    std::fs::create_dir_all(folder).unwrap();
    let mut edges: Vec<(i64, i64)> = (0..30).flat_map(|v| [(v, (v + 1) % 30), (v, (v + 7) % 30)]).collect();
    edges.extend([(35, 0), (36, 1)]);
    let (sources, targets): (Vec<i64>, Vec<i64>) = edges.into_iter().unzip();
    let file = |name: &str| folder.join(format!("{name}.npy"));
    write_npy(&file("edge_index"), &[2, 62], &[sources, targets].concat()).unwrap();
    write_npy(&file("x"), &[40, 6], &(0..240).map(|i| (i * i % 11) as f32 / 11.0).collect::<Vec<_>>()).unwrap();
    write_npy(&file("y"), &[40], &(0..40).map(|v| v % 3).collect::<Vec<i64>>()).unwrap();
    for (part, from) in [("train", 0), ("val", 1), ("test", 2)] {
        let mask: Vec<u8> = (0..40).map(|v| u8::from(v % 3 == from)).collect();
        write_npy(&file(&format!("{part}_mask")), &[40], &mask).unwrap();
    }
}

/// Workspace with the folder `data` of [`forty`], after a change.
fn of_forty(change: impl FnOnce(&Path)) -> Workspace {
    let work = Workspace::new();
    let folder = work.path("data");
    forty(&folder);
    change(&folder);
    work
}

/// Removes an array from a folder.
fn remove(folder: &Path, name: &str) {
    std::fs::remove_file(folder.join(format!("{name}.npy"))).unwrap();
}

#[test]
fn case_21_one_hot_labels_are_said_to_be_classes() {
    let work = of_forty(|folder| {
        let one_hot: Vec<f32> = (0..120).map(|i| f32::from(u8::from(i % 3 == (i / 3) % 3))).collect();
        write_npy(&folder.join("y.npy"), &[40, 3], &one_hot).unwrap();
    });
    let run = girih(&["train", "--data", &work.arg("data"), "--epochs", "2"]).ok();
    assert!(run.err.contains("one class a node") && run.err.contains("--multi-label true"), "{}", run.err);
    assert!(run.out.contains("accuracy"), "{}", run.out);
    let several = girih(&["train", "--data", &work.arg("data"), "--epochs", "2", "--multi-label", "true"]).ok();
    assert!(several.out.contains("micro-F1"), "{}", several.out);
}

#[test]
fn case_22_the_names_of_dgl() {
    let work = of_forty(|folder| {
        for (part, from) in [("train", 0), ("val", 1), ("test", 2)] {
            remove(folder, &format!("{part}_mask"));
            let ids: Vec<i64> = (0..40).filter(|v| v % 3 == from).collect();
            write_npy(&folder.join(format!("{part}_nid.npy")), &[ids.len()], &ids).unwrap();
        }
    });
    let result = girih(&["stats", "--data", &work.arg("data"), "--json"]).ok().result();
    assert_eq!(result["splits"], serde_json::json!([{ "train": 14, "val": 13, "test": 13 }]));
    assert!(result["made_up"].as_array().unwrap().is_empty() && result["not_used"].as_array().unwrap().is_empty());
    let run = girih(&["train", "--data", &work.arg("data"), "--epochs", "2"]).ok();
    assert!(run.err.contains("14 train, 13 val, 13 test"), "{}", run.err);
}

#[test]
fn case_23_edge_attr_of_one_column_is_weights() {
    let work = of_forty(|folder| {
        write_npy(&folder.join("edge_attr.npy"), &[62], &(1..63).map(|w| w as f32).collect::<Vec<_>>()).unwrap();
    });
    let (edges, result) = converted(&work, "data", &[]);
    assert_eq!((edges.len(), edges[&(0, 1)], edges[&(0, 7)], edges[&(35, 0)]), (62, 1.0, 2.0, 61.0));
    assert_eq!(made(&result, "weights", "edges"), None);
    assert!(result["made_up"].to_string().contains("edge_attr"), "{result}");
}

#[test]
fn case_25_a_split_without_validation() {
    let work = of_forty(|folder| remove(folder, "val_mask"));
    let out = work.arg("out");
    let result = girih(&["convert", "--data", &work.arg("data"), "--out", &out, "--json"]).ok().result();
    assert_eq!(result["splits"], serde_json::json!([{ "train": 14, "val": 0, "test": 13 }]));
    assert!(result["made_up"].to_string().contains("no val nodes"), "{result}");
    let run = girih(&["train", "--data", &work.arg("data"), "--epochs", "2"]).ok();
    assert!(run.err.contains("0 val") && run.err.contains("no val nodes"), "{}", run.err);
}

#[test]
fn case_26_the_twenty_masks_of_wikics() {
    let work = of_forty(|folder| {
        for (part, from) in [("train", 0), ("val", 1)] {
            let masks: Vec<u8> = (0..800).map(|i| u8::from((i / 20 + i % 20) % 5 == from && i / 20 % 3 != 2)).collect();
            write_npy(&folder.join(format!("{part}_mask.npy")), &[40, 20], &masks).unwrap();
        }
    });
    let splits = load(&work.arg("data"), &LoadOptions::default()).unwrap().splits;
    assert_eq!(splits.len(), 20);
    assert!(splits.iter().all(|split| split.test == splits[0].test) && splits[0].train != splits[1].train);
}

#[test]
fn case_28_roc_auc_of_one_class_is_undefined() {
    let work = of_forty(|folder| {
        let y: Vec<i64> = (0..40).map(|v| i64::from(v % 3 == 0 && v % 2 == 0 || v % 3 == 2 && v % 4 == 0)).collect();
        write_npy(&folder.join("y.npy"), &[40], &y).unwrap();
    });
    let data = work.arg("data");
    let args = ["train", "--data", &data, "--metric", "roc-auc", "--epochs", "2"];
    let run = girih(&args).ok();
    assert!(run.out.contains("undefined"), "{}", run.out);
    let result = girih(&[&args[..], &["--json"]].concat()).ok().result();
    assert!(result["val_roc_auc"].is_null(), "{result}");
    assert!(result["test_roc_auc"].is_number(), "{result}");
}

#[test]
fn case_29_nodes_without_in_edges_have_finite_outputs() {
    let work = of_forty(|_| ());
    for model in ["gat", "gatv2", "gcn", "sage", "gin"] {
        let args = ["train", "--data", &work.arg("data"), "--model", model, "--epochs", "3", "--json"];
        let result = girih(&args).ok().result();
        assert!(result["train_loss"].as_f64().is_some_and(f64::is_finite), "{model}: {result}");
    }
}

#[test]
fn case_30_a_last_batch_of_one_row() {
    let work = of_forty(|_| ());
    let data = work.arg("data");
    let batches = ["--norm", "batch", "--batch", "neighbor", "--fanout", "2,2", "--batch-size", "13", "--epochs", "3"];
    girih(&[&["train", "--data", &data], &batches[..]].concat()).ok();
}

#[test]
fn case_49_a_checkpoint_and_data_of_fewer_classes() {
    let work = of_forty(|_| ());
    let other = work.path("other");
    forty(&other);
    write_npy(&other.join("y.npy"), &[40], &(0..40).map(|v| v % 2).collect::<Vec<i64>>()).unwrap();
    write_npy(&other.join("x.npy"), &[40, 4], &[1f32; 160]).unwrap();
    let out = work.arg("out");
    girih(&["train", "--data", &work.arg("data"), "--epochs", "2", "--out", &out]).ok();
    let message = girih(&["evaluate", "--checkpoint", &out, "--data", &work.arg("other")]).refused(1);
    assert!(says(&message, "2 classes") && !says(&message, "other has 3 classes"), "{message}");
}
