//! Folders of triples: names and ids, orders of columns, folders of LightGCN beside them, damage, and real files.

use std::path::Path;

use crate::common::{load_default, real, refusal, write_text};
use girih_datasets::{Dataset, LoadOptions, OutputFormat, ReverseEdges, Triple, load};
use girih_graph_format::Duplicates;
use proptest::prelude::*;
use tempfile::TempDir;

const TRAIN: &str = "ann\tknows\tbob\nbob\tknows\tcid\ncid\tlikes\tann\nann\tlikes\tnew york\n";
const VALID: &str = "ann\tknows\tcid\n";
const TEST: &str = "dan\tlikes\tann\nbob\tlikes\tann\n";

fn folder(files: &[(&str, &str)]) -> TempDir {
    let home = tempfile::tempdir().unwrap();
    files.iter().for_each(|(name, text)| write_text(&home.path().join(name), text));
    home
}

fn small(train: &str) -> TempDir {
    folder(&[("train.txt", train), ("valid.txt", VALID), ("test.txt", TEST)])
}

/// Triples of a part, by name.
fn told(dataset: &Dataset, part: &[Triple]) -> Vec<[String; 3]> {
    let (nodes, relations) = (&dataset.names.as_ref().unwrap().nodes, &dataset.triples.as_ref().unwrap().relations);
    let of = |&[head, relation, tail]: &Triple| {
        [nodes.get(head as usize), relations.get(relation as usize), nodes.get(tail as usize)].map(str::to_owned)
    };
    part.iter().map(of).collect()
}

fn columns(text: &str) -> LoadOptions {
    LoadOptions { columns: Some(text.parse().unwrap()), ..LoadOptions::default() }
}

#[test]
fn relations_of_training_triples_are_types_of_edges_and_all_parts_are_lists() {
    let home = small(TRAIN);
    let dataset = load_default(home.path());
    let triples = dataset.triples.as_ref().unwrap();
    assert_eq!(dataset.outline().triples, Some([4, 1, 2]));
    assert_eq!(told(&dataset, &triples.train)[3], ["ann", "likes", "new york"]);
    assert_eq!(told(&dataset, &triples.val), [["ann", "knows", "cid"]]);
    assert_eq!(told(&dataset, &triples.test)[0], ["dan", "likes", "ann"]);
    assert_eq!(triples.n_unseen(dataset.n_nodes()), 1, "dan alone is in no training triple");
    let typed = &dataset.typed.as_ref().unwrap().graph;
    let names: Vec<&str> = typed.schema().edge_types().iter().map(|of| &of.relation[..]).collect();
    assert_eq!((names.len(), names[0], names[2]), (4, "knows", "likes"));
    // Row `tail` has the head.
    assert_eq!(typed.relations()[0].row(triples.train[0][2] as usize), [triples.train[0][0]]);
    assert_eq!(typed.n_edges(), 8);
    let forward = LoadOptions { reverse: Some(ReverseEdges::No), ..LoadOptions::default() };
    let forward = load(home.path().to_str().unwrap(), &forward).unwrap();
    assert_eq!((forward.typed.as_ref().unwrap().graph.n_edges(), &forward.triples), (4, &dataset.triples));
}

#[test]
fn the_files_may_end_in_tsv_and_columns_may_have_any_order_that_is_told() {
    let plain = load_default(small(TRAIN).path());
    let moved = |order: [usize; 3], text: &str| -> String {
        let line = |line: &str| {
            let fields: Vec<&str> = line.split('\t').collect();
            order.map(|place| fields[place]).join("\t") + "\n"
        };
        text.lines().map(line).collect()
    };
    for (order, flag) in [([1, 0, 2], "relation,head,tail"), ([0, 2, 1], "HEAD,tail,relation")] {
        let texts = [TRAIN, VALID, TEST].map(|text| moved(order, text));
        let files = [("train.tsv", &texts[0][..]), ("valid.tsv", &texts[1]), ("test.tsv", &texts[2])];
        let home = folder(&files);
        let message = refusal(home.path(), &LoadOptions::default());
        assert!(message.contains("train.tsv") && message.contains(&flag.to_lowercase()), "{message}");
        let found = load(home.path().to_str().unwrap(), &columns(flag)).unwrap();
        assert_eq!(
            told(&found, &found.triples.as_ref().unwrap().train),
            told(&plain, &plain.triples.as_ref().unwrap().train)
        );
    }
    let message = refusal(small(TRAIN).path(), &columns("source,target"));
    assert!(message.contains("head,relation,tail"), "{message}");
}

#[test]
fn ids_with_counts_and_tables_get_their_names() {
    let home = folder(&[
        ("train2id.txt", "3\n0 0 1\n1\t0\t2\n2 1 0\n"),
        ("valid2id.txt", "1\n0 1 2\n"),
        ("test2id.txt", "0\n"),
        ("entity2id_no_sort.txt", "4\n/m/b c\t1\n/m/a\t0\n/m/d\t2\n/m/unused\t3\n"),
        ("relation2id.txt", "2\nr0\t0\nr1 1\n"),
        ("type_constrain.txt", "1\n"),
    ]);
    let dataset = load_default(home.path());
    let triples = dataset.triples.as_ref().unwrap();
    assert_eq!(dataset.n_nodes(), 4);
    assert_eq!(triples.train, [[0, 0, 1], [1, 0, 2], [2, 1, 0]]);
    assert_eq!(told(&dataset, &triples.val), [["/m/a", "r1", "/m/d"]]);
    assert!(dataset.notes.not_used_line().unwrap().contains("type_constrain.txt"));
    for (name, text, expected) in [
        ("entity2id_no_sort.txt", "/m/a 0\n/m/b 1\n", "is none of the 2 ids"),
        ("entity2id_no_sort.txt", "/m/a 0\n/m/b 2\n", "the 1th id is 2"),
        ("relation2id.txt", "3\nr0 0\nr1 1\n", "counts 3 names, and 2 follow"),
        ("relation2id.txt", "r0\nr1\n", "line 1"),
    ] {
        let original = std::fs::read(home.path().join(name)).unwrap();
        write_text(&home.path().join(name), text);
        let message = refusal(home.path(), &LoadOptions::default());
        assert!(message.contains(expected), "{message}");
        std::fs::write(home.path().join(name), original).unwrap();
    }
}

#[test]
fn damaged_folders_are_refused_with_file_and_line() {
    for (train, expected) in [
        ("a\tr\tb\na\tr\n", "train.txt: line 2: 2 fields"),
        ("a r b\n\na r b c\n", "train.txt: line 3: 4 fields"),
        ("a r b\na\n", "train.txt: line 2: 1 field;"),
        ("a\t\tb\n", "line 1: field 2 is empty"),
        ("3\na r b\nb r a\n", "line 1 counts 3 triples, and 2 follow"),
        ("0 1 2\n0 1\n", "in a folder without valid.txt"),
        ("", "no triple to train on"),
        ("0\n", "no triple to train on"),
    ] {
        let message = refusal(small(train).path(), &LoadOptions::default());
        assert!(message.contains(expected), "{train:?}: {message}");
    }
    let home = small(TRAIN);
    for (options, expected) in [
        (LoadOptions { symmetrize: Some(true), ..LoadOptions::default() }, "ymmetrize"),
        (LoadOptions { bipartite: Some(true), ..LoadOptions::default() }, "--bipartite"),
        (LoadOptions { target: Some("entity".into()), ..LoadOptions::default() }, "--target"),
    ] {
        let message = refusal(home.path(), &options);
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn repeated_triples_are_merged_and_told_and_held_out_ones_in_training_are_warned_of() {
    let home = small(&format!("{TRAIN}ann\tknows\tbob\nann\tknows\tcid\n"));
    let dataset = load_default(home.path());
    assert_eq!(dataset.outline().triples, Some([5, 1, 2]));
    let made = dataset.notes.made_up.iter().find(|made| made.kind == "merged_triples").unwrap();
    assert!(made.text.contains("train.txt") && made.text.contains("ann, knows, bob"), "{}", made.text);
    assert!(dataset.notes.warnings[0].contains("valid.txt"), "{:?}", dataset.notes.warnings);
    let refused = LoadOptions { duplicates: Some(Duplicates::Refuse), ..LoadOptions::default() };
    let message = refusal(home.path(), &refused);
    assert!(message.contains("train.txt: line 5"), "{message}");
}

#[test]
fn lists_of_items_stay_those_of_lightgcn() {
    let (train, test) = ("0 0 2 3\n1 1\n2 0 1 2\n", "0 1\n1 0 3\n");
    let lists = folder(&[("train.txt", train), ("test.txt", test), ("valid.txt", "0 1\n")]);
    assert!(load_default(lists.path()).interactions.is_some());
    let two = folder(&[("train.txt", "0 0 2\n1 1 3\n"), ("test.txt", "0 1\n1 0\n")]);
    assert!(load_default(two.path()).interactions.is_some(), "without a validation part");
}

#[test]
fn what_formats_cannot_keep_they_refuse() {
    let home = small(TRAIN);
    let dataset = load_default(home.path());
    for (format, name) in [(OutputFormat::Folder, "out"), (OutputFormat::Tensors, "out.safetensors")] {
        let message = dataset.save_as(format, &home.path().join(name)).unwrap_err().to_string();
        assert!(message.contains("lists of triples"), "{message}");
    }
    assert!(dataset.homogeneous().unwrap_err().to_string().contains("triples"));
}

#[test]
fn a_wrong_list_is_no_valid_data_set() {
    let dataset = load_default(small(TRAIN).path());
    let with = |change: fn(&mut girih_datasets::Triples)| {
        let mut triples = (**dataset.triples.as_ref().unwrap()).clone();
        change(&mut triples);
        let changed = Dataset { triples: Some(triples.into()), ..dataset.clone() };
        assert_ne!(changed.fingerprint(), dataset.fingerprint());
        changed.validate().unwrap_err().to_string()
    };
    assert!(with(|t| t.test[0][0] = 99).contains("test triple 0"));
    assert!(with(|t| t.val[0][1] = 2).contains("val triple 0"));
    assert!(with(|t| t.train[1] = [0, 0, 0]).contains("no edge of the graph"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn names_of_any_kind_come_back(rows in prop::collection::vec(("[^\\p{C}\\s]{1,5}", 0..2usize, "[^\\p{C}\\s]{1,5}"), 1..30)) {
        let line = |(head, relation, tail): &(String, usize, String)| format!("x{head}\tr {relation}\tx{tail}\n");
        let text: String = rows.iter().map(line).collect();
        let home = folder(&[("train.txt", &text), ("valid.txt", ""), ("test.txt", "")]);
        let dataset = load(home.path().to_str().unwrap(), &columns("head,relation,tail")).unwrap();
        let mut expected: Vec<[String; 3]> = Vec::new();
        for (head, relation, tail) in &rows {
            let row = [format!("x{head}"), format!("r {relation}"), format!("x{tail}")].map(|name| name.trim().to_owned());
            if !expected.contains(&row) {
                expected.push(row);
            }
        }
        prop_assert_eq!(told(&dataset, &dataset.triples.as_ref().unwrap().train), expected);
    }
}

#[test]
fn published_graphs_have_their_published_sizes() {
    for (name, sizes, n_entities, n_relations, n_unseen) in [
        ("umls", [5216, 652, 661], 135, 46, 0),
        ("wn18rr", [86_835, 3_034, 3_134], 40_943, 11, 384),
        ("fb15k-237", [272_115, 17_535, 20_466], 14_541, 237, 36),
    ] {
        let Some(path) = real(&format!("hetero/{name}")) else { continue };
        let dataset = load_default(Path::new(&path));
        let triples = dataset.triples.as_ref().unwrap();
        assert_eq!(dataset.outline().triples, Some(sizes), "{name}");
        assert_eq!((dataset.n_nodes(), triples.n_relations()), (n_entities, n_relations), "{name}");
        assert_eq!(triples.n_unseen(n_entities), n_unseen, "{name}");
        assert!(dataset.notes.warnings.is_empty(), "{name}: {:?}", dataset.notes.warnings);
    }
}
