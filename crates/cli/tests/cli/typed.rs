//! Typed graphs: R-GCN from N-Triples to predictions by name, and what does not read types.

use std::fs;

use crate::girih::{Workspace, girih, says};

/// Folder of N-Triples: 40 people, whose class is that of their relation to one of two others.
fn people(work: &Workspace) -> String {
    let (folder, person) = (work.path("people"), |i: usize| format!("http://example.org/person{i}"));
    fs::create_dir_all(&folder).unwrap();
    let triple = |i: usize| {
        let (relation, hub) = [("knows", 40), ("cites", 41)][i % 2];
        format!("<{}> <http://example.org/{relation}> <{}> .\n", person(i), person(hub))
    };
    fs::write(folder.join("people.nt"), (0..40).map(triple).collect::<String>()).unwrap();
    for (name, part) in [("trainingSet.tsv", 0..20), ("testSet.tsv", 20..40)] {
        let lines =
            part.map(|i| format!("{}\t{}\n", person(i), ["red", "blue, or \"sky\""][i % 2].replace('"', "\"\"")));
        let lines = lines.map(|line| line.replacen("\tblue", "\t\"blue", 1).replace("sky\"\"", "sky\"\"\""));
        fs::write(folder.join(name), format!("person\tlabel\n{}", lines.collect::<String>())).unwrap();
    }
    work.arg("people")
}

#[test]
fn rgcn_learns_from_relations_and_predicts_by_name() {
    let work = Workspace::new();
    let data = people(&work);
    let cases: [&[&str]; 4] = [
        &["--bases", "2"],
        &["--blocks", "2"],
        &["--self-weight", "type"],
        &["--self-weight", "none", "--layers", "1"],
    ];
    for (number, more) in cases.iter().enumerate() {
        let run = work.arg(&format!("run{number}"));
        let command = [&["train", "--data", &data, "--model", "rgcn", "--out", &run, "--json"], *more].concat();
        let trained = girih(&command).ok().result();
        assert_eq!(trained["test_accuracy"], 1.0, "{more:?}: {trained}");
        let evaluated = girih(&["evaluate", "--checkpoint", &run, "--json"]).ok().result();
        assert_eq!(evaluated["test_accuracy"], trained["test_accuracy"]);
    }
    for (flags, expected) in [
        (&["--blocks", "5"][..], "`blocks` must be a divisor of hidden"),
        (&["--blocks", "8"], "8 blocks divide the weights of no layer"),
        (&["--blocks", "2", "--bases", "2"], "--bases"),
    ] {
        let finished = girih(&[&["train", "--data", &data, "--model", "rgcn"], flags].concat());
        let code = finished.code.unwrap_or_default();
        assert_ne!(code, 0, "{flags:?}");
        let message = finished.refused(code);
        assert!(says(&message, expected), "{flags:?}: {message}");
    }
    let run = work.arg("run0");
    let table = work.path("classes.csv");
    girih(&["predict", "--checkpoint", &run, "--out", table.to_str().unwrap()]).ok();
    let lines = fs::read_to_string(&table).unwrap();
    let mut lines = lines.lines();
    assert_eq!(lines.next(), Some("node,class"));
    assert_eq!(lines.next(), Some("http://example.org/person0,red"));
    assert!(lines.clone().any(|line| line == "http://example.org/person5,\"blue, or \"\"sky\"\"\""), "{lines:?}");
    assert_eq!(lines.count(), 41);
    let logits = work.path("logits.tsv");
    girih(&["predict", "--checkpoint", &run, "--logits", "--out", logits.to_str().unwrap()]).ok();
    let logits = fs::read_to_string(&logits).unwrap();
    assert_eq!(logits.lines().map(|line| line.split('\t').count()).max(), Some(3));
    assert!(logits.starts_with("node\t\"blue, or \"\"sky\"\"\"\tred\n"), "{logits}");
}

#[test]
fn a_graph_without_types_has_one_of_each() {
    let work = Workspace::new();
    let (run, small) = (work.arg("run"), "synth:planted,nodes=300,degree=8,features=24,classes=4");
    let trained = girih(&["train", "--data", small, "--model", "rgcn", "--out", &run, "--json"]).ok().result();
    assert!(trained["test_accuracy"].as_f64().unwrap() > 0.6, "{trained}");
    let evaluated = girih(&["evaluate", "--checkpoint", &run, "--json"]).ok().result();
    assert_eq!(evaluated["test_accuracy"], trained["test_accuracy"]);
    girih(&["predict", "--checkpoint", &run, "--out", &work.arg("classes.tsv")]).ok();
    assert!(fs::read_to_string(work.path("classes.tsv")).unwrap().starts_with("node\tclass\n0\t"));
    girih(&["train", "--data", small, "--model", "rgcn", "--plan"]).ok();
}

#[test]
fn plans_of_typed_data_are_those_of_its_relations() {
    let work = Workspace::new();
    let data = people(&work);
    let plan = girih(&["train", "--data", &data, "--model", "rgcn", "--bases", "3", "--plan", "--json"]).ok().result();
    assert!(plan["predicted_peak_bytes"].as_u64().unwrap() > 0, "{plan}");
}

#[test]
fn what_does_not_read_types_says_so() {
    let work = Workspace::new();
    let (data, run) = (people(&work), work.arg("run"));
    let refused = |args: &[&str]| girih(args).refused(1);
    let gcn = refused(&["train", "--data", &data, "--features-from", "degree"]);
    assert!(
        says(
            &gcn,
            "has 4 types of edges, which gcn does not read; give --model rgcn, hsage, rgat or hgt, and --task nodes"
        ),
        "{gcn}"
    );
    let links = refused(&["train", "--data", &data, "--task", "links", "--features-from", "degree"]);
    assert!(says(&links, "types of edges, which --task links does not read"), "{links}");
    for (more, expected) in [
        (&["--ranks", "2"][..], "--model rgcn on ranks is not supported"),
        (&["--batch", "neighbor"], "rgcn without features learns a row for each pair of a node and a relation"),
        (&["--features-from", "onehot"], "--features-from onehot with --model rgcn is not supported"),
    ] {
        let command = [&["train", "--data", &data, "--model", "rgcn"], more].concat();
        let message = refused(&command);
        assert!(says(&message, expected), "{message}");
    }
    girih(&["train", "--data", &data, "--model", "rgcn", "--epochs", "2", "--out", &run]).ok();
    let other = work.path("other");
    fs::create_dir_all(&other).unwrap();
    fs::write(other.join("one.nt"), "<http://a.b/c> <http://a.b/d> <http://a.b/e> .\n").unwrap();
    let other = refused(&["predict", "--checkpoint", &run, "--data", &work.arg("other"), "--out", &work.arg("x.npy")]);
    assert!(says(&other, "the model learned a row for each node and relation of people"), "{other}");
    let new = refused(&["predict", "--checkpoint", &run, "--nodes", "new.npz", "--out", &work.arg("new.npy")]);
    assert!(says(&new, "edges of new nodes have no types"), "{new}");
}
