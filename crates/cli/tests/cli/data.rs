//! Commands for data (`stats`, `generate`, `convert`), and `doctor`.

use girih_datasets::{LoadOptions, load};

use crate::girih::{SMALL, Workspace, assert_keys, girih, names_in, says};

#[test]
fn stats_describe_a_graph() {
    let result = girih(&["stats", "--data", SMALL, "--json"]).ok().result();
    assert_keys(
        &result,
        &[
            "nodes",
            "edges",
            "symmetric",
            "degree",
            "isolated",
            "components",
            "largest_component",
            "bandwidth",
            "mean_gap",
            "tiles",
            "features",
            "classes",
            "splits",
        ],
    );
    assert_eq!(
        (&result["nodes"], &result["generated"], &result["symmetric"]),
        (&600.into(), &true.into(), &true.into())
    );
    let classes: u64 = result["classes"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).sum();
    assert_eq!(classes, 600, "every node has a class");
    let shown = girih(&["stats", "--data", SMALL]).ok().out;
    assert!(shown.contains("(generated)") && shown.contains("Components"), "{shown}");
}

#[test]
fn stats_of_graphs_without_edges_or_nodes() {
    let work = Workspace::new();
    for (name, text, nodes) in [("none.csv", "# girih: nodes 0\n", 0), ("loop.csv", "0,0\n", 1)] {
        std::fs::write(work.path(name), text).unwrap();
        let result = girih(&["stats", "--data", &work.arg(name), "--json"]).ok().result();
        assert_eq!((result["nodes"].as_u64(), result["components"].as_u64()), (Some(nodes), Some(nodes)));
    }
}

/// A node without in-edges is not isolated if another node lists it.
#[test]
fn stats_of_directed_graphs_tell_both_directions() {
    let work = Workspace::new();
    let matrix = "%%MatrixMarket matrix coordinate pattern general\n4 4 3\n2 1\n3 1\n3 2\n";
    std::fs::write(work.path("one-way.mtx"), matrix).unwrap();
    let data = work.arg("one-way.mtx");
    let result = girih(&["stats", "--data", &data, "--json"]).ok().result();
    assert_eq!((result["isolated"].as_u64(), result["symmetric"].as_bool()), (Some(1), Some(false)));
    for degree in ["degree", "out_degree"] {
        assert_eq!((result[degree]["max"].as_u64(), result[degree]["zero"].as_u64()), (Some(2), Some(2)), "{degree}");
    }
    let shown = girih(&["stats", "--data", &data]).ok().out;
    assert!(shown.contains("Out-degree") && shown.contains("99 % at most 2, max 2"), "{shown}");
}

/// Folder of triples with tables of labels: three persons, two of whom like a literal.
fn people(work: &Workspace) -> String {
    std::fs::create_dir(work.path("people")).unwrap();
    for (name, text) in [
        (
            "graph.nt",
            "<p:a> <knows:> <p:b> .\n<p:a> <knows:> <p:c> .\n<p:b> <likes:> \"tea\"@en .\n<p:c> <likes:> \"tea\"@EN .\n",
        ),
        ("trainingSet.tsv", "person\tlabel_group\np:a\tred\np:b\tblue\n"),
        ("testSet.tsv", "person\tlabel_group\np:c\tred\n"),
    ] {
        std::fs::write(work.path(&format!("people/{name}")), text).unwrap();
    }
    work.arg("people")
}

#[test]
fn stats_of_typed_data_have_a_line_for_each_type() {
    let work = Workspace::new();
    let data = people(&work);
    let result = girih(&["stats", &data, "--json"]).ok().result();
    let node_types = serde_json::json!([{
        "name": "entity", "nodes": 4, "labelled": 3, "features": "none", "n_features": 0,
        "train": 2, "val": 0, "test": 1, "target": true,
    }]);
    assert_eq!(result["node_types"], node_types);
    let edge_types = result["edge_types"].as_array().unwrap();
    let of = |number: usize, key: &str| edge_types[number][key].clone();
    assert_eq!((edge_types.len(), of(1, "relation"), of(1, "reverse_of")), (4, "rev_knows:".into(), 0.into()));
    assert_eq!((of(2, "relation"), of(2, "edges"), of(2, "reverse_of")), ("likes:".into(), 2.into(), ().into()));
    assert_eq!((&of(2, "degree")["max"], &of(2, "out_degree")["max"]), (&2.into(), &1.into()));
    assert_eq!((&result["classes"], &result["class_names"][0]), (&serde_json::json!([1, 2]), &"blue".into()));
    let shown = girih(&["stats", &data]).ok().out;
    for line in [
        "entity: 4 nodes, no features, 3 labelled, 2 train, 0 val, 1 test",
        "knows:: 2 edges from 1 source (mean 2.0, max 2) to 2 destinations (mean 1.0, max 1)",
        "and 2 reverse relations with as many edges",
        "2 train, 0 val, 1 test",
    ] {
        assert!(shown.contains(line), "{line:?} is not in: {shown}");
    }
    assert!(!shown.contains("rev_knows"), "{shown}");
    let forward = girih(&["stats", &data, "--reverse", "NO", "--literals", "drop", "--json"]).ok().result();
    assert_eq!((forward["edge_types"].as_array().unwrap().len(), forward["nodes"].as_u64()), (1, Some(3)));
}

#[test]
fn typed_data_is_not_written_without_its_types() {
    let work = Workspace::new();
    let data = people(&work);
    for out in ["graph.mtx", "graph.csv"] {
        let message = girih(&["convert", &data, "--out", &work.arg(out)]).refused(1);
        assert!(says(&message, "which a file of this kind") && says(&message, "does not keep"), "{message}");
        assert!(!work.path(out).exists());
    }
    let ordered = work.arg("ordered");
    girih(&["reorder", &data, "--order", "degree", "--out", &ordered]).ok();
    let [before, after] = [&data, &ordered].map(|data| girih(&["stats", data, "--json"]).ok().result());
    assert_eq!(before["edge_types"], after["edge_types"]);
}

#[test]
fn tables_of_labels_are_named_by_flags() {
    let work = Workspace::new();
    people(&work);
    let (graph, table) = (work.arg("people/graph.nt"), work.arg("people/trainingSet.tsv"));
    let flags = ["--train", &table, "--label-columns", "person,label_group", "--val-share", "0.5", "--json"];
    let result = girih(&[&["stats", graph.as_str()], &flags[..]].concat()).ok().result();
    assert_eq!(result["splits"], serde_json::json!([{ "train": 1, "val": 1, "test": 0 }]));
    let message = girih(&["stats", "--data", SMALL, "--reverse", "add"]).refused(1);
    assert!(says(&message, "--reverse is for data with types"), "{message}");
}

#[test]
fn text_that_is_no_list_of_edges_is_refused() {
    let work = Workspace::new();
    std::fs::write(work.path("note.txt"), "hello world\n").unwrap();
    let message = girih(&["stats", "--data", &work.arg("note.txt")]).refused(1);
    assert!(says(&message, "note.txt") && says(&message, "is this a list of edges"), "{message}");
}

#[test]
fn a_generated_folder_trains_like_its_recipe() {
    let work = Workspace::new();
    let folder = work.arg("graph");
    let generated = girih(&["generate", SMALL, "--out", &folder, "--json"]).ok().result();
    assert_keys(&generated, &["nodes", "edges", "features", "classes", "seconds", "out"]);
    assert_eq!(names_in(work.folder()), ["graph"]);
    let train = |data: &str| girih(&["train", "--data", data, "--epochs", "5", "--json"]).ok().result();
    let (from_folder, from_recipe) = (train(&folder), train(SMALL));
    for key in ["nodes", "edges", "generated", "train_loss", "test_accuracy"] {
        assert_eq!(from_folder[key], from_recipe[key], "{key}");
    }
    girih(&["generate", "planted,nodes=50", "--out", &folder]).ok();
    assert_eq!(girih(&["stats", "--data", &folder, "--json"]).ok().result()["nodes"], 50, "our own folder is replaced");
}

#[test]
fn conversions_keep_the_graph() {
    let work = Workspace::new();
    let original = load(SMALL, &LoadOptions::default()).unwrap();
    let mut source = SMALL.to_owned();
    for name in [
        "folder",
        "graph.npz",
        "edges.csv",
        "edges.tsv.gz",
        "a.mtx",
        "a.mtx.gz",
        "a.graph",
        "a.graph.gz",
        "edges.txt",
        "back",
    ] {
        let target = work.arg(name);
        let result = girih(&["convert", "--data", &source, "--out", &target, "--json"]).ok().result();
        assert_eq!(result["edges"], original.n_edges(), "{name}");
        assert_eq!(load(&target, &LoadOptions::default()).unwrap().graph, original.graph, "{name}");
        source = target;
    }
    let whole = load(&work.arg("folder"), &LoadOptions::default()).unwrap();
    assert_eq!(whole, original, "a folder keeps features, labels and splits");

    let (folder, tensors) = (work.arg("folder"), work.arg("all.safetensors"));
    girih(&["convert", "--data", &folder, "--out", &tensors]).ok();
    girih(&["convert", "--data", &tensors, "--out", &work.arg("again")]).ok();
    let again = load(&work.arg("again"), &LoadOptions::default()).unwrap();
    assert_eq!((again.graph, again.features, again.labels), (whole.graph, whole.features, whole.labels));
    assert_eq!(again.splits, whole.splits, "so does a file of tensors");
}

#[test]
fn converting_says_what_a_format_cannot_hold() {
    let work = Workspace::new();
    let finished = girih(&["convert", "--data", SMALL, "--out", &work.arg("graph.npz")]).ok();
    assert!(finished.err.contains("features, labels and splits were left out"), "{}", finished.err);

    std::fs::write(work.path("one-way.mtx"), "%%MatrixMarket matrix coordinate pattern general\n2 2 1\n2 1\n").unwrap();
    let message = girih(&["convert", "--data", &work.arg("one-way.mtx"), "--out", &work.arg("a.graph")]).refused(1);
    assert!(says(&message, "a.graph") && says(&message, "symmetrise it first"), "{message}");
}

#[test]
fn one_of_several_splits() {
    let work = Workspace::new();
    let tensors = work.arg("all.safetensors");
    let generated = format!("{SMALL},seed=3");
    girih(&["generate", &generated, "--out", &work.arg("folder")]).ok();
    girih(&["convert", "--data", &work.arg("folder"), "--split", "0", "--out", &tensors]).ok();
    let n_splits = |split: &str| {
        let shown = girih(&["stats", "--data", &tensors, "--split", split, "--json"]).ok().result();
        shown["splits"].as_array().unwrap().len()
    };
    assert_eq!((n_splits("all"), n_splits("0")), (1, 1));
    let message = girih(&["train", "--data", &tensors, "--split", "7", "--epochs", "1"]).refused(1);
    assert!(says(&message, "split 7 does not exist") && says(&message, "has 1 split"), "{message}");
    let message = girih(&["stats", "--data", &tensors, "--split", "first"]).refused(2);
    assert!(says(&message, "a number from 0, all, or random"), "{message}");
}

#[test]
fn a_conversion_does_not_replace_what_is_not_ours() {
    let work = Workspace::new();
    std::fs::create_dir(work.path("thesis")).unwrap();
    std::fs::write(work.path("thesis/chapter1"), "years of work").unwrap();
    let message = girih(&["convert", "--data", SMALL, "--out", &work.arg("thesis")]).refused(1);
    assert!(says(&message, &work.arg("thesis")), "{message}");
    assert_eq!(names_in(&work.path("thesis")), ["chapter1"]);
    for below in ["thesis/chapter1/a", "thesis/chapter1/a/b.npz"] {
        let message = girih(&["convert", "--data", SMALL, "--out", &work.arg(below)]).refused(1);
        assert!(says(&message, "chapter1 is a file"), "{message}");
    }
    assert_eq!(names_in(work.folder()), ["thesis"]);
}

#[test]
fn folders_above_the_output_are_made() {
    let work = Workspace::new();
    girih(&["generate", SMALL, "--out", &work.arg("a/b/graph")]).ok();
    girih(&["convert", "--data", &work.arg("a/b/graph"), "--out", &work.arg("c/d/graph.npz")]).ok();
    assert_eq!([names_in(&work.path("a/b")), names_in(&work.path("c/d"))], [["graph"], ["graph.npz"]]);
}

#[test]
fn doctor_says_what_the_machine_offers() {
    let result = girih(&["doctor", "--json"]).ok().result();
    assert_keys(&result, &["version", "machine", "instruction_set", "ceilings", "devices", "cuda", "advice"]);
    assert_eq!(result["devices"][0], "cpu");
}
