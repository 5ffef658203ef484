//! Ids of edge lists that count from another number than 0: the same data set as from 0, advice, and refusals.

use std::fs;
use std::path::{Path, PathBuf};

use girih_datasets::{Dataset, Labels, LoadOptions, UNLABELLED, load};
use girih_graph_format::file::{Columns, ReadTimes, write_npy};
use proptest::prelude::*;
use tempfile::TempDir;

/// Source, target, time and value of an edge, with ids from 0.
type Edge = (u32, u32, i64, u8);

/// Form of a list.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    /// Lines with a header of these names.
    Header,
    /// Lines without names, whose columns the options name.
    Bare,
    /// networkx's dictionaries, which have no times.
    Dicts,
    /// KONECT's first line, after which ids count from 1.
    Konect,
}

/// A list to write.
#[derive(Clone, Debug)]
struct List {
    edges: Vec<Edge>,
    form: Form,
    has_sides: bool,
    reads_times: bool,
    reads_features: bool,
}

impl List {
    /// Text with ids from `first`.
    fn text(&self, first: u32) -> String {
        let mut text = match (self.form, self.has_sides) {
            (Form::Header, true) => "user,time,score,item\n".to_owned(),
            (Form::Header, false) => "from,time,score,to\n".to_owned(),
            (Form::Konect, true) => "% bip weighted\n".to_owned(),
            (Form::Konect, false) => "% sym weighted\n".to_owned(),
            (Form::Bare | Form::Dicts, _) => String::new(),
        };
        for (source, target, time, value) in &self.edges {
            let (source, target) = (source + first, target + first);
            text += &match self.form {
                Form::Header | Form::Bare => format!("{source},{time},{value},{target}\n"),
                Form::Dicts => format!("{source} {target} {{'weight': {value}}}\n"),
                Form::Konect => format!("{source} {target} {value} {time}\n"),
            };
        }
        text
    }

    fn options(&self, ids_from: Option<u32>) -> LoadOptions {
        let reads_times = self.reads_times && self.form != Form::Dicts;
        let columns: Option<Columns> = (self.form == Form::Bare).then(|| "source,time,weight,target".parse().unwrap());
        LoadOptions {
            bipartite: matches!(self.form, Form::Bare | Form::Dicts).then_some(self.has_sides),
            times: if reads_times { ReadTimes::Required } else { ReadTimes::No },
            edge_features: vec!["3".to_owned(); usize::from(reads_times && self.reads_features)],
            columns,
            ids_from,
            ..LoadOptions::default()
        }
    }

    /// Numbers of sources and targets, and of nodes.
    fn sizes(&self) -> (usize, usize, usize) {
        let end = |ids: &mut dyn Iterator<Item = u32>| ids.max().unwrap() as usize + 1;
        let left = end(&mut self.edges.iter().map(|edge| edge.0));
        let right = end(&mut self.edges.iter().map(|edge| edge.1));
        (left, right, if self.has_sides { left + right } else { left.max(right) })
    }
}

fn written(text: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("edges.txt");
    fs::write(&path, text).unwrap();
    (folder, path)
}

fn loaded(path: &Path, options: &LoadOptions) -> Dataset {
    load(path.to_str().unwrap(), options).unwrap_or_else(|error| panic!("{error}"))
}

/// Message of a refusal, which may name a file beside the list.
fn refusal(path: &Path, options: &LoadOptions) -> String {
    load(path.to_str().unwrap(), options).expect_err("this data must be refused").to_string()
}

/// Rows of features for `n` nodes, and their labels, beside a list.
fn rows_beside(list: &Path, n: usize) -> (PathBuf, PathBuf) {
    let [features, labels] = ["x.npy", "y.npy"].map(|name| list.with_file_name(name));
    write_npy(&features, &[n, 1], &vec![1f32; n]).unwrap();
    write_npy(&labels, &[n], &(0..n as i64).map(|v| v % 2).collect::<Vec<_>>()).unwrap();
    (features, labels)
}

fn lists() -> impl Strategy<Value = List> {
    let edges = prop::collection::vec((0..6u32, 0..6u32, 0..9i64, 1..5u8), 1..40);
    let forms = prop::sample::select(vec![Form::Header, Form::Bare, Form::Dicts, Form::Konect]);
    (edges, forms, any::<[bool; 3]>()).prop_map(|(edges, form, [has_sides, reads_times, reads_features])| List {
        edges,
        form,
        has_sides,
        reads_times,
        reads_features,
    })
}

proptest! {
    /// A list with ids from `first` is the data set of the list with ids from 0.
    #[test]
    fn ids_may_count_from_any_number(list in lists(), first in 0..4u32, with_rows: bool, says_so: bool) {
        let in_konect = list.form == Form::Konect;
        let (_zero, path) = written(&List { form: if in_konect { Form::Bare } else { list.form }, ..list.clone() }.text(0));
        let as_bare = List { form: Form::Bare, ..list.clone() };
        let of_zero = loaded(&path, &if in_konect { as_bare.options(None) } else { list.options(None) });
        let (left, right, n_nodes) = list.sizes();
        prop_assert_eq!(of_zero.n_nodes(), n_nodes);

        let first = if in_konect { 1 } else { first };
        let (_shifted, path) = written(&list.text(first));
        let ids_from = if in_konect && !says_so { None } else { Some(first) };
        let options = list.options(ids_from);
        let features = with_rows.then(|| rows_beside(&path, n_nodes).0);
        let shifted = loaded(&path, &LoadOptions { features: features.clone(), ..options.clone() });
        let values = |dataset: &Dataset| dataset.edge_features.as_ref().map(|rows| rows.values().to_vec());
        prop_assert_eq!(values(&shifted), values(&of_zero));
        // KONECT's columns have names, and there are no rows of features for the list from 0.
        let bare = |dataset: &Dataset| {
            let edge_features = dataset.edge_features.clone().filter(|_| !in_konect);
            Dataset { features: None, edge_features, ..dataset.clone() }
        };
        prop_assert_eq!(bare(&shifted), bare(&of_zero));
        if list.has_sides {
            let sides = shifted.notes.made_up.iter().find(|made| made.kind == "sides").unwrap();
            prop_assert_eq!(&sides.counts, &[("left", left as u64), ("right", right as u64)]);
        }

        // Rows for each node show the fault where nothing says that ids count from 1.
        let names_all = list.edges.iter().any(|edge| edge.0 == 0) && list.edges.iter().any(|edge| edge.1 == 0);
        if let (Some(features), 1, false, true) = (features, first, in_konect, names_all || !list.has_sides) {
            let options = LoadOptions { features: Some(features), ids_from: None, ..options };
            let message = refusal(&path, &options);
            prop_assert!(message.contains("where ids count from 1, give --ids-from 1"), "{}", message);
        }
    }
}

#[test]
fn labels_name_nodes_as_the_list_does() {
    for (text, ids_from) in
        [("0 1\n1 2\n2 3\n", None), ("1 2\n2 3\n3 4\n", Some(1)), ("% sym unweighted\n1 2\n2 3\n3 4\n", None)]
    {
        let (_folder, path) = written(text);
        let first = u32::from(text != "0 1\n1 2\n2 3\n");
        let table = path.with_file_name("y.csv");
        fs::write(&table, format!("node,label\n{},1\n{},0\n", first + 3, first + 1)).unwrap();
        let options = LoadOptions { labels: Some(table.clone()), ids_from, ..LoadOptions::default() };
        let Some(Labels::Single { classes, .. }) = loaded(&path, &options).labels else { panic!("no classes") };
        assert_eq!(classes, [UNLABELLED, 0, UNLABELLED, 1], "{text:?}");
        fs::write(&table, format!("node,label\n{},1\n", first + 4)).unwrap();
        let message = refusal(&path, &options);
        let told = format!("node {} does not exist; there are 4, numbered from {first}", first + 4);
        assert!(message.contains(&told), "{message}");
    }
}

#[test]
fn rows_for_both_sides_tell_of_ids_from_one() {
    let (_folder, path) = written("user,item\n1,1\n2,2\n3,1\n");
    let (features, labels) = rows_beside(&path, 5);
    let (features, labels) = (Some(features), Some(labels));
    for (options, told) in [
        (LoadOptions { features, ..LoadOptions::default() }, "has a row for each of these, and no edge names node 0"),
        (LoadOptions { labels, ..LoadOptions::default() }, "the nodes 0 and 4, the first ones of both sides"),
    ] {
        let message = refusal(&path, &options);
        assert!(message.contains(told) && message.contains("give --ids-from 1"), "{message}");
        assert_eq!(loaded(&path, &LoadOptions { ids_from: Some(1), ..options }).n_nodes(), 5);
    }
    let warnings = loaded(&path, &LoadOptions::default()).notes.warnings;
    assert_eq!(warnings, ["ids count from 1 on both sides; the nodes 0 and 4 have no edges"]);
}

#[test]
fn konect_counts_from_one_whatever_is_said() {
    let (_folder, path) = written("% bip unweighted\n% 2 3 2\n1 1\n3 2\n");
    let from = |ids_from| LoadOptions { ids_from, ..LoadOptions::default() };
    assert_eq!(loaded(&path, &from(Some(1))), loaded(&path, &from(None)));
    for first in [0, 2] {
        let message = refusal(&path, &from(Some(first)));
        let told = format!("line 1 is KONECT's, whose ids count from 1, but --ids-from {first} is given");
        assert!(message.contains(&told), "{message}");
    }
    let (_, labels) = rows_beside(&path, 4);
    let message = refusal(&path, &LoadOptions { labels: Some(labels), ..LoadOptions::default() });
    assert!(message.contains("4 labels for 5 nodes") && !message.contains("--ids-from"), "{message}");
}

#[test]
fn nodes_before_the_first_are_refused() {
    let options = |ids_from| LoadOptions { ids_from, bipartite: Some(true), ..LoadOptions::default() };
    let (_folder, path) = written("1 1\n2 0\n");
    let message = refusal(&path, &options(Some(1)));
    assert!(message.contains("line 2: node 0 does not exist; ids count from 1"), "{message}");
    assert!(message.ends_with("ids count from 1 by --ids-from: leave that out"), "{message}");
    let (_folder, path) = written("# girih: nodes 3\n1 2\n3 1\n");
    assert_eq!(loaded(&path, &LoadOptions { ids_from: Some(1), ..LoadOptions::default() }).n_nodes(), 3);
    let (_folder, path) = written("# girih: nodes 3\n1 2\n0 1\n");
    let message = refusal(&path, &LoadOptions { ids_from: Some(1), ..LoadOptions::default() });
    assert!(message.contains("line 3: node 0 does not exist; there are at most 3 nodes, numbered from 1"), "{message}");
}
