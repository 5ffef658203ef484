//! Graphs without features, and graphs with negative weights, from flags to results.

use std::fs;

use girih_graph_format::file::{Array, write_npy};

use crate::girih::{SMALL, Workspace, girih, says};

/// Writes an edge list of two cliques of eight nodes, joined by an edge, and a label file with one class per clique.
fn cliques(work: &Workspace) -> [String; 2] {
    let mut edges = String::from("0,8\n");
    for first in [0, 8] {
        for u in first..first + 8 {
            (u + 1..first + 8).for_each(|v| edges += &format!("{u},{v}\n"));
        }
    }
    fs::write(work.path("edges.csv"), edges).unwrap();
    write_npy(&work.path("y.npy"), &[16], &(0..16).map(|v| v / 8).collect::<Vec<i64>>()).unwrap();
    [work.arg("edges.csv"), work.arg("y.npy")]
}

const RULES: [&str; 4] = ["degree", "onehot", "embedding:8", "random-walk:4"];

#[test]
fn a_graph_without_features_trains_evaluates_and_predicts_by_every_rule() {
    for rule in RULES {
        let work = Workspace::new();
        let [data, labels] = cliques(&work);
        let out = work.arg("out");
        let given = ["--data", &data, "--labels", &labels, "--epochs", "5", "--features-from", rule, "--out", &out];
        let finished = girih(&[&["train"], &given[..]].concat()).ok();
        assert!(finished.err.contains(&format!("features made by {rule}")), "{}", finished.err);
        let trained = girih(&["train", "--out", &out, "--resume", "--json"]).ok().result();
        let made_up = trained["made_up"].as_array().unwrap();
        assert!(made_up.iter().any(|made| made["kind"] == "invented_features"), "{trained}");
        let evaluated = girih(&["evaluate", "--checkpoint", &out, "--json"]).ok().result();
        assert_eq!(evaluated["test_accuracy"], trained["test_accuracy"], "{rule}");
        let classes = work.arg("classes.npy");
        girih(&["predict", "--checkpoint", &out, "--out", &classes]).ok();
        assert_eq!(Array::read(&work.path("classes.npy")).unwrap().shape(), [16]);
        girih(&[&["train", "--plan", "--json"], &given[..8]].concat()).ok();
        let on_ranks = ["train", "--data", &data, "--labels", &labels, "--epochs", "5", "--features-from", rule];
        let two = girih(&[&on_ranks[..], &["--ranks", "2", "--json"]].concat()).ok().result();
        let (a, b) = (two["train_loss"].as_f64().unwrap(), trained["train_loss"].as_f64().unwrap());
        assert!((a - b).abs() < 1e-4, "{rule}: {a} on ranks, {b} on one");
    }
}

#[test]
fn features_are_neither_missing_nor_replaced_in_silence() {
    let work = Workspace::new();
    let [data, labels] = cliques(&work);
    let missing = girih(&["train", "--data", &data, "--labels", &labels]).refused(1);
    for told in ["--features-from", "degree", "onehot", "embedding:64", "random-walk:16"] {
        assert!(says(&missing, told), "{missing}");
    }
    let replaced = girih(&["train", "--data", SMALL, "--features-from", "degree"]).refused(1);
    assert!(says(&replaced, "24 columns") && says(&replaced, "--features-from degree"), "{replaced}");
    let recommender = girih(&["train", "--data", &data, "--model", "lightgcn", "--features-from", "degree"]).refused(2);
    assert!(says(&recommender, "lightgcn"), "{recommender}");
    let unknown = girih(&["train", "--data", &data, "--features-from", "pagerank"]).refused(2);
    assert!(says(&unknown, "random-walk:16"), "{unknown}");
    let order = ["train", "--data", &data, "--labels", &labels, "--features-from", "onehot", "--reorder", "degree"];
    let order = girih(&order).refused(1);
    assert!(says(&order, "girih reorder --out DIR"), "{order}");
}

#[test]
fn a_configuration_names_the_rule() {
    let work = Workspace::new();
    let [data, labels] = cliques(&work);
    fs::write(work.path("c.toml"), "epochs = 2\nfeatures_from = \"random-walk:3\"\n").unwrap();
    let config = work.arg("c.toml");
    let finished = girih(&["train", "--config", &config, "--data", &data, "--labels", &labels]).ok();
    assert!(finished.err.contains("random-walk:3") && finished.err.contains("exact"), "{}", finished.err);
    fs::write(work.path("c.toml"), "features_from = \"walks\"\n").unwrap();
    let wrong = girih(&["train", "--config", &config, "--data", &data, "--labels", &labels]).refused(1);
    assert!(says(&wrong, "degree, onehot, embedding:64 or random-walk:16"), "{wrong}");
}

#[test]
fn signed_graphs_are_refused_with_a_remedy_that_works() {
    let work = Workspace::new();
    let [_, labels] = cliques(&work);
    let mut edges = String::new();
    for u in 0..16 {
        edges += &format!("{u},{},-1.5\n{u},{},1\n", (u + 1) % 16, (u + 5) % 16);
    }
    fs::write(work.path("signed.txt"), edges.replace(',', " ")).unwrap();
    let data = work.arg("signed.txt");
    let train = ["train", "--data", &data, "--labels", &labels, "--features-from", "onehot", "--epochs", "5"];
    let refused = girih(&train).refused(1);
    assert!(says(&refused, "sum to") && says(&refused, "--normalization absolute"), "{refused}");
    let out = work.arg("out");
    let remedy = ["--normalization", "absolute", "--out", &out];
    girih(&[&train[..], &remedy[..]].concat()).ok();
    assert!(fs::read_to_string(work.path("out/config.toml")).unwrap().contains("normalization = \"absolute\""));
    let logits = work.arg("logits.npy");
    girih(&["predict", "--checkpoint", &out, "--logits", "--out", &logits]).ok();
    let logits = Array::read(&work.path("logits.npy")).unwrap().into_matrix().unwrap();
    let differs = (1..16).any(|v| (logits.row(v)[0] - logits.row(0)[0]).abs() > 1e-3);
    assert!(differs, "all nodes have the logits {:?}", logits.row(0));

    let gat = girih(&[&train[..], &["--model", "gat"]].concat()).ok();
    assert!(gat.err.contains("not used: edge weights"), "{}", gat.err);
    let gin = girih(&[&train[..], &["--model", "gin"]].concat()).ok();
    assert!(!gin.err.contains("edge weights"), "{}", gin.err);
}
