//! Triples from files to scores: what each command prints, and what is refused.

use std::fs;

use crate::girih::{Workspace, assert_keys, girih, says};

/// Writes a folder of triples: twelve people in three teams know their team; one of them only in the test.
fn write_teams(work: &Workspace) -> String {
    let mut parts = [String::new(), String::new(), String::new()];
    for person in 0..12 {
        for other in (0..12).filter(|other| other % 3 == person % 3 && *other != person) {
            let part = if (person + other) % 7 == 3 { 1 + person % 2 } else { 0 };
            parts[part] += &format!("p{person}\tknows\tp{other}\n");
        }
        parts[0] += &format!("p{person}\tis_in\tteam {}\n", person % 3);
    }
    parts[2] += "new\tis_in\tteam 0\n";
    fs::create_dir(work.path("teams")).unwrap();
    for (name, text) in ["train", "valid", "test"].into_iter().zip(parts) {
        fs::write(work.path("teams").join(format!("{name}.txt")), text).unwrap();
    }
    work.arg("teams")
}

const QUICK: [&str; 8] = ["--task", "triples", "--embedding-width", "8", "--batch-size", "10", "--lr", "0.05"];

#[test]
fn triples_are_counted_trained_resumed_and_scored() {
    let work = Workspace::new();
    let (data, out) = (write_teams(&work), work.arg("out"));
    let stats = girih(&["stats", &data, "--json"]).ok().result();
    assert_eq!((&stats["triples"]["relations"], &stats["triples"]["unseen_entities"]), (&2.into(), &1.into()));
    assert_eq!(stats["nodes"], 16);

    let train = |epochs: &str, more: &[&str]| {
        let flags = ["train", "--data", &data, "--epochs", epochs, "--eval-every", "2", "--out", &out, "--json"];
        girih(&[&flags[..], &QUICK, more].concat()).ok()
    };
    train("2", &["--decoder", "transe"]);
    let finished = girih(&["train", "--out", &out, "--resume", "--epochs", "6", "--json"]).ok();
    let scored: Vec<bool> = finished.events()[..4].iter().map(|event| event.get("val_mrr").is_some()).collect();
    assert_eq!(scored, [false, true, false, true]);
    let result = finished.result();
    let keys = ["test_mrr", "test_hits_at_1", "test_hits_at_3", "test_hits_at_10", "val_mrr", "train_loss"];
    assert_keys(&result, &keys);
    assert_eq!((&result["model"], &result["decoder"]), (&"embedding".into(), &"transe".into()));
    assert_eq!((&result["unseen_entities"], &result["chosen_by"]), (&1.into(), &"val_mrr".into()));
    let evaluated = girih(&["evaluate", "--data", &data, "--checkpoint", &out, "--json"]).ok().result();
    for key in &keys[..5] {
        assert_eq!(evaluated[key], result[key], "{key}");
    }
    let report = fs::read_to_string(work.path("out/report.html")).unwrap();
    assert!(report.contains("Mean reciprocal rank") && report.contains("Entities"));
    let embed = ["embed", "--data", &data, "--checkpoint", &out, "--out", &work.arg("rows.npy"), "--json"];
    assert_eq!(girih(&embed).ok().result()["nodes"], 16);
    let compared = girih(&["compare", &out, "--json"]).ok();
    assert!(compared.out.contains("test_mrr"), "{}", compared.out);
}

/// Networks of relations that make the rows of entities: with whole weights, blocks and learned first rows.
#[test]
fn triples_are_scored_above_networks_of_relations() {
    let work = Workspace::new();
    let data = write_teams(&work);
    let rows = ["--features-from", "embedding:8"];
    let cases: [(&str, &[&str]); 3] = [("rgcn", &[]), ("rgcn", &["--blocks", "4"]), ("rgat", &["--heads", "2"])];
    for (at, (model, more)) in cases.into_iter().enumerate() {
        let out = work.arg(&format!("run{at}"));
        let flags =
            ["train", "--data", &data, "--model", model, "--hidden", "8", "--epochs", "12", "--out", &out, "--json"];
        let rows = if at == 1 { &rows[..] } else { &[] };
        let result = girih(&[&flags[..], &QUICK, more, rows].concat()).ok().result();
        assert_eq!(result["model"], model);
        assert!(result["val_mrr"].as_f64().unwrap() > 0.4, "{model} {more:?}: {result}");
        let evaluated = girih(&["evaluate", "--data", &data, "--checkpoint", &out, "--json"]).ok().result();
        assert_eq!(evaluated["test_mrr"], result["test_mrr"]);
        let embed = ["embed", "--data", &data, "--checkpoint", &out, "--out", &work.arg("rows.npy"), "--json"];
        assert_eq!(girih(&embed).ok().result()["nodes"], 16);
    }
}

#[test]
fn what_triples_do_not_go_with_is_refused_with_a_remedy() {
    let work = Workspace::new();
    let (data, out) = (write_teams(&work), work.arg("out"));
    let train = ["train", "--data", &data, "--epochs", "1", "--out", &out];
    let train = [&train[..], &QUICK].concat();
    for (flags, expected) in [
        (&["--ranks", "2"][..], "--task triples on ranks"),
        (&["--batch", "neighbor"], "do not read sampled neighbors"),
        (&["--features-from", "degree"], "a row of its own"),
        (&["--reorder", "rcm"], "leave --reorder out"),
        (&["--plan"], "leave --plan out"),
        (&["--model", "gcn"], "give --model embedding, rgcn, hsage"),
        (&["--model", "rgcn", "--batch", "neighbor"], "leave --batch out"),
        (&["--model", "rgcn", "--blocks", "7"], "a divisor of hidden"),
        (&["--codec", "int8"], "leave --codec out"),
        (&["--precision", "bf16"], "leave --precision out"),
        (&["--distance", "l1"], "triples.distance"),
        (&["--val-links", "0.2"], "`links`"),
    ] {
        let finished = girih(&[&train[..], flags].concat());
        let code = finished.code.unwrap_or_default();
        assert_ne!(code, 0, "{flags:?}");
        let message = finished.refused(code);
        assert!(says(&message, expected), "{flags:?}: {message}");
    }
    let message = girih(&["train", "--data", &data]).refused(1);
    assert!(says(&message, "--task triples"), "{message}");
    let message = girih(&["convert", "--data", &data, "--out", &work.arg("written")]).refused(1);
    assert!(says(&message, "lists of triples"), "{message}");
    girih(&train).ok();
    let predict = ["predict", "--data", &data, "--checkpoint", &out, "--out", &work.arg("all.npy")];
    let message = girih(&predict).refused(2);
    assert!(says(&message, "girih evaluate"), "{message}");
}
