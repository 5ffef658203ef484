//! Networks of several types of nodes on the command line.

use std::fs;
use std::path::Path;

use crate::girih::{Workspace, girih, says};
use crate::typed_data::{floats, ids};

const N_PAPERS: usize = 120;

/// Folder of id pairs: papers (p) of two classes with weak features, their authors (a), and venues (v) of authors, both
/// without features. Authors write papers of one class, and topics (t) have no edge to the papers.
pub fn write_papers(folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    let author = |paper: usize, i: usize| 2 * ((paper / 2 + 7 * i) % 20) + paper % 2;
    let write = |name: &str, pairs: Vec<(usize, usize)>| {
        fs::write(folder.join(name), pairs.iter().map(|(x, y)| format!("{x}\t{y}\n")).collect::<String>()).unwrap();
    };
    write("pa.txt", (0..N_PAPERS).flat_map(|paper| (0..3).map(move |i| (paper, author(paper, i)))).collect());
    write("av.txt", (0..40).map(|author| (author, author % 4)).collect());
    write("vt.txt", (0..4).map(|venue| (venue, 0)).collect());
    let noise = |value: usize| ((value * 7919) % 101) as f32 / 50.0 - 1.0;
    let rows: Vec<f32> =
        (0..4 * N_PAPERS).map(|at| noise(at) + if at % 4 == 0 { (at / 4 % 2) as f32 } else { 0.0 }).collect();
    fs::write(folder.join("p_feat.npy"), floats(&format!("({N_PAPERS}, 4)"), &rows)).unwrap();
    fs::write(folder.join("labels.npy"), ids(&(0..N_PAPERS as i64).map(|paper| paper % 2).collect::<Vec<_>>()))
        .unwrap();
    for (part, nodes) in [("train", 0..30), ("val", 30..60), ("test", 60..N_PAPERS as i64)] {
        fs::write(folder.join(format!("{part}_60.npy")), ids(&nodes.collect::<Vec<_>>())).unwrap();
    }
}

fn papers(work: &Workspace) -> String {
    write_papers(&work.path("papers"));
    work.arg("papers")
}

const NAMES: [&str; 2] = ["--type-names", "p=paper,a=author,v=venue,t=topic"];

#[test]
fn networks_learn_from_several_types_of_nodes() {
    let work = Workspace::new();
    let data = papers(&work);
    let cases: [(&str, &[&str]); 8] = [
        ("rgcn", &["--hidden", "8", "--bases", "2"]),
        ("hsage", &["--self-weight", "none"]),
        ("hsage", &["--codec", "int8", "--node-features", "author=constant"]),
        ("rgat", &["--heads", "2"]),
        ("rgat", &["--self-weight", "shared", "--layers", "1", "--node-features", "author=mean:pa"]),
        ("hgt", &["--heads", "2", "--dropout", "0.2"]),
        ("hgt", &["--hidden", "4", "--node-features", "author=learned:3", "--node-features", "venue=learned"]),
        ("hsage", &["--layers", "3"]),
    ];
    for (number, (model, more)) in cases.iter().enumerate() {
        let run = work.arg(&format!("run{number}"));
        let command = [&["train", "--data", &data, "--model", model, "--epochs", "60"], &NAMES[..], more].concat();
        let trained = girih(&[&command[..], &["--out", &run, "--json"]].concat()).ok().result();
        let score = trained["test_accuracy"].as_f64().unwrap();
        assert!(score > 0.9, "{model} {more:?}: {score}");
        let evaluated = girih(&["evaluate", "--checkpoint", &run, "--json"]).ok().result();
        assert_eq!(evaluated["test_accuracy"], trained["test_accuracy"], "{model} {more:?}");
        let plan = girih(&[&command[..], &["--plan", "--json"]].concat()).ok().result();
        assert!(plan["predicted_peak_bytes"].as_u64().unwrap() > 0, "{plan}");
    }
}

#[test]
fn networks_learn_from_batches_of_several_types() {
    let work = Workspace::new();
    let data = papers(&work);
    let cases: [(&str, &str, &[&str]); 5] = [
        ("rgcn", "5,3", &["--hidden", "8"]),
        ("hsage", "rev_pa=4,2; paper.pa.author=0,0; *=3,3", &["--codec", "int8"]),
        ("hsage", "-1,2", &["--node-features", "author=learned:3"]),
        ("rgat", "5,3", &["--heads", "2"]),
        ("hgt", "5,3", &["--heads", "2", "--node-features", "author=constant"]),
    ];
    for (number, (model, fanout, more)) in cases.iter().enumerate() {
        let run = work.arg(&format!("run{number}"));
        let batches = ["--batch", "neighbor", "--fanout", fanout, "--batch-size", "8"];
        let command =
            [&["train", "--data", &data, "--model", model, "--epochs", "30"], &NAMES[..], &batches, more].concat();
        let trained = girih(&[&command[..], &["--out", &run, "--json"]].concat()).ok().result();
        let score = trained["test_accuracy"].as_f64().unwrap();
        assert!(score > 0.85, "{model} {more:?}: {score}");
        let evaluated = girih(&["evaluate", "--checkpoint", &run, "--json"]).ok().result();
        assert_eq!(evaluated["test_accuracy"], trained["test_accuracy"], "{model} {more:?}");
        let plan = girih(&[&command[..], &["--plan", "--json"]].concat()).ok().result();
        assert!(plan["predicted_peak_bytes"].as_u64().unwrap() > 0, "{plan}");
        let predicted = girih(&["predict", "--checkpoint", &run, "--out", &work.arg("p.tsv"), "--json"]).ok().result();
        assert_eq!(predicted["nodes"], N_PAPERS);
    }
    let closed = ["--batch", "neighbor", "--fanout", "rev_pa=0,0; *=2,2", "--epochs", "1"];
    let told = girih(&[&["train", "--data", &data, "--model", "hsage"], &NAMES[..], &closed].concat()).ok();
    assert!(told.err.contains("--fanout follows no edge type into paper"), "{}", told.err);
}

#[test]
fn batches_are_counted_by_type() {
    let work = Workspace::new();
    let data = papers(&work);
    let sampled = |more: &[&str]| {
        let command = [&["sample", "--data", &data, "--batch-size", "10"], &NAMES[..], more].concat();
        girih(&[&command[..], &["--json"]].concat()).ok().result()
    };
    let result = sampled(&["--fanout", "2,2"]);
    assert_eq!((&result["seeds"], &result["batches"]), (&30.into(), &3.into()));
    // Two authors of each paper, then authors of these papers and papers and venues of these authors.
    assert_eq!(result["nodes_per_type"]["topic"], 0.0);
    assert!(result["nodes_per_type"]["venue"].as_f64().unwrap() > 0.0, "{result}");
    let edges = result["edges_per_type"].as_object().unwrap();
    let total: f64 = edges.values().map(|n| n.as_f64().unwrap()).sum();
    assert_eq!((edges.len(), total), (6, result["edges_per_batch"].as_f64().unwrap()));
    for threads in ["1", "3"] {
        assert_eq!(sampled(&["--fanout", "2,2", "--threads", threads])["digest"], result["digest"]);
    }
    for other in
        [&["--fanout", "*=2,2; pa=1,1"][..], &["--fanout", "2,2", "--replace"], &["--fanout", "2,2", "--seed", "1"]]
    {
        assert_ne!(sampled(other)["digest"], result["digest"], "{other:?}");
    }
    let shown = girih(&[&["sample", "--data", &data, "--fanout", "2,2"], &NAMES[..]].concat()).ok().out;
    assert!(shown.contains("author.rev_pa.paper") && shown.contains("Inputs by type"), "{shown}");
    let refused = |more: &[&str]| girih(&[&["sample", "--data", &data], &NAMES[..], more].concat()).refused(2);
    for (more, expected) in [
        (&["--batch", "cluster"][..], "cluster batches have none; give --batch neighbor"),
        (&["--ranks", "2"], "--ranks divides graphs without types; leave it out"),
        (&["--draws", "labor"], "--draws chooses among rules for graphs without types"),
        (&["--fanout", "rev_pa=0; *=3"], "--fanout follows no edge type into paper"),
    ] {
        let message = refused(more);
        assert!(says(&message, expected), "{more:?}: {message}");
    }
}

#[test]
fn results_are_those_of_the_target_by_its_own_ids() {
    let work = Workspace::new();
    let (data, run) = (papers(&work), work.arg("run"));
    let trained =
        girih(&[&["train", "--data", &data, "--model", "hsage", "--epochs", "40", "--out", &run], &NAMES[..]].concat())
            .ok();
    assert!(trained.err.contains("the node types topic"), "{}", trained.err);
    let headline = "165 nodes, 808 edges, 4 node types, 6 edge types, 2 classes";
    assert!(trained.err.contains(headline) || trained.out.contains(headline), "{}{}", trained.out, trained.err);
    let table = work.path("classes.tsv");
    girih(&["predict", "--checkpoint", &run, "--out", table.to_str().unwrap()]).ok();
    let lines = fs::read_to_string(&table).unwrap();
    assert!(lines.starts_with("node\tclass\n0\t0\n1\t1\n"), "{lines}");
    assert_eq!(lines.lines().count(), N_PAPERS + 1);
    let logits =
        girih(&["predict", "--checkpoint", &run, "--logits", "--out", &work.arg("x.npy"), "--json"]).ok().result();
    assert_eq!(logits["nodes"], N_PAPERS);
    let embedded = girih(&["embed", "--checkpoint", &run, "--out", &work.arg("e.npy"), "--json"]).ok().result();
    assert_eq!(embedded["nodes"], N_PAPERS);
}

#[test]
fn rules_and_data_that_do_not_fit_are_refused() {
    let work = Workspace::new();
    let (data, run) = (papers(&work), work.arg("run"));
    let train = |more: &[&str]| -> Vec<String> {
        let all = [&["train", "--data", &data, "--model", "hsage", "--epochs", "2"], &NAMES[..], more].concat();
        all.into_iter().map(str::to_owned).collect()
    };
    for (more, expected) in [
        (
            &["--node-features", "autor=learned"][..],
            "there is no node type \"autor\", for which a rule for features is given; \
          papers has author, paper, topic, venue",
        ),
        (
            &["--node-features", "author=mean:writes"],
            "mean:writes names no edge type that ends in author, or more than one; \
          there is venue.rev_av.author, paper.pa.author",
        ),
        (&["--node-features", "venue=mean:av"], "venue is to have the mean over av, but author has no features"),
        (
            &["--batch", "layer"],
            "--batch layer with --model hsage is not supported: such batches have no types of edges",
        ),
        (
            &["--batch", "neighbor", "--fanout", "writes=3,3; *=1,1"],
            "the fan-out names the edge type \"writes\", which the graph does not have; it has author.av.venue",
        ),
        (&["--batch", "neighbor", "--fanout", "pa=3,3"], "the fan-out says nothing of the edge type author.av.venue"),
        (&["--batch", "neighbor", "--fanout", "pa=3; *=1"], "has 1 hops, but the model has 2 layers"),
        (&["--ranks", "2"], "--model hsage on ranks is not supported"),
        (&["--heads", "2"], "hsage"),
    ] {
        let message = girih(&train(more)).refused(1);
        assert!(says(&message, expected), "{more:?}: {message}");
    }
    let wrong = girih(&train(&["--node-features", "author"])).refused(2);
    assert!(says(&wrong, "`author` has no `=`"), "{wrong}");
    let gcn = girih(&[&["train", "--data", &data, "--model", "gcn"], &NAMES[..]].concat()).refused(1);
    assert!(says(&gcn, "types of edges, which gcn does not read; give --model rgcn, hsage, rgat or hgt"), "{gcn}");
    girih(&train(&["--out", &run])).ok();
    fs::write(work.path("papers").join("av.txt"), (0..41).map(|author| format!("{author}\t0\n")).collect::<String>())
        .unwrap();
    let other = girih(&["evaluate", "--checkpoint", &run]).refused(1);
    assert!(
        says(&other, "it has author (41 nodes, learned rows) where the model has author (40 nodes, learned rows)"),
        "{other}"
    );
}

/// Scores of validation and test nodes on samples, which training, evaluation and prediction share.
#[test]
fn networks_of_relations_are_scored_on_samples() {
    let work = Workspace::new();
    let (data, run) = (papers(&work), work.arg("run"));
    let train =
        ["train", "--data", &data, "--model", "hsage", "--epochs", "30", "--batch", "neighbor", "--fanout", "5,2"];
    let trained =
        girih(&[&train[..], &NAMES, &["--score-by", "samples", "--out", &run, "--json"]].concat()).ok().result();
    assert!(trained["test_accuracy"].as_f64().unwrap() > 0.85, "{trained}");
    assert!(trained["train_accuracy"].is_null(), "{trained}");
    let report = fs::read_to_string(work.path("run/report.html")).unwrap();
    assert!(report.contains(">Accuracy</") && !report.contains("ROC-AUC</"), "no chart of accuracies");
    let evaluated = girih(&["evaluate", "--checkpoint", &run, "--json"]).ok().result();
    assert_eq!(
        (&evaluated["test_accuracy"], &evaluated["test_f1_micro"]),
        (&trained["test_accuracy"], &trained["test_accuracy"])
    );
    let shown = girih(&["evaluate", "--checkpoint", &run]).ok().out;
    assert!(shown.contains("--score-by samples, which scores none"), "{shown}");
    girih(&["predict", "--checkpoint", &run, "--out", &work.arg("classes.csv")]).ok();
    assert_eq!(fs::read_to_string(work.path("classes.csv")).unwrap().lines().count(), N_PAPERS + 1);
    let message = girih(&["train", "--data", "synth:planted,nodes=60", "--batch", "neighbor", "--score-by", "samples"])
        .refused(1);
    assert!(says(&message, "only networks of relations are scored on sampled neighbors"), "{message}");
}

/// A plan of generated data that no machine here can hold lists its features and edges by type, and where they are.
#[test]
fn a_plan_of_the_largest_graph_makes_no_data() {
    let sizes = ["--model", "rgat", "--layers", "3", "--hidden", "128", "--heads", "4", "--batch", "neighbor"];
    let batches = ["--fanout", "15,10,5", "--precision", "bf16", "--codec", "topk:8", "--reverse", "merge"];
    let plan = ["--score-by", "samples", "--plan", "--memory", "141GB", "--json"];
    let command = [&["train", "--data", "synth:igbh"], &sizes[..], &batches, &plan].concat();
    let result = girih(&command).ok().result();
    assert_eq!(result["fits"], true, "{result}");
    let tables = |key: &str| result[key].as_array().unwrap().clone();
    let paper = &tables("feature_tables")[0];
    assert_eq!(
        (&paper["name"], &paper["rows"], &paper["memory"]),
        (&"paper".into(), &269_346_174.into(), &"gpu".into())
    );
    assert_eq!(paper["bytes"], 269_346_174_u64 * 64);
    let cites = &tables("edge_tables")[0];
    assert_eq!((&cites["name"], &cites["memory"]), (&"paper.cites.paper".into(), &"main".into()));
    assert_eq!(tables("edge_tables").len(), 7);
    let bytes: u64 = tables("edge_tables").iter().map(|table| table["bytes"].as_u64().unwrap()).sum();
    assert_eq!(result["main_memory_bytes"], bytes);
    let small = girih(&[&command[..command.len() - 3], &["--memory", "20GB", "--json"]].concat());
    assert_eq!((small.code, &small.events()[0]["fits"]), (Some(1), &false.into()), "{}", small.err);
}
