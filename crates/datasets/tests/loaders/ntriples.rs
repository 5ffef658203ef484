//! N-Triples: small files, random terms, damage, and real files.

use std::collections::{BTreeSet, HashMap};
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::common::{load_default, real, refusal, write_text};
use flate2::read::GzDecoder;
use girih_datasets::{Dataset, Features, Literals, LoadOptions, NodeTypesFrom, ReverseEdges, load};
use girih_graph_format::Duplicates;
use proptest::prelude::*;
use tempfile::TempDir;

/// Options that leave reverse relations out.
pub fn forward() -> LoadOptions {
    LoadOptions { reverse: Some(ReverseEdges::No), ..LoadOptions::default() }
}

fn written(text: &str) -> (TempDir, PathBuf) {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("small.nt");
    write_text(&path, text);
    (home, path)
}

fn loaded(text: &str, options: &LoadOptions) -> Dataset {
    let (_home, path) = written(text);
    load(path.to_str().unwrap(), options).unwrap_or_else(|error| panic!("{error}"))
}

fn nodes(dataset: &Dataset) -> Vec<&str> {
    dataset.names.as_ref().unwrap().nodes.iter().collect()
}

/// Relation, source and destination of each edge, by name.
fn edges(dataset: &Dataset) -> BTreeSet<[String; 3]> {
    let (typed, names) = (&dataset.typed.as_ref().unwrap().graph, &dataset.names.as_ref().unwrap().nodes);
    let mut edges = BTreeSet::new();
    for (of, relation) in typed.schema().edge_types().iter().zip(typed.relations()) {
        for v in 0..relation.n_rows() {
            let edge = |&u: &u32| [of.relation.clone(), names.get(u as usize).to_owned(), names.get(v).to_owned()];
            edges.extend(relation.row(v).iter().map(edge));
        }
    }
    edges
}

#[test]
fn subjects_point_to_objects_and_every_distinct_term_is_a_node() {
    let text = "\u{feff}# a comment\n\
        <http://a> <http://knows> <http://b> . # another\r\n\
        \t<http://a><http://says>\"http://b\"@EN.\n\
        \n\
        _:x.y <http://knows> <http://a> .\n\
        <http://a> <http://says> \"caf\\u00e9 \\\"1\\\"\\n\"^^<http://type> .\n\
        <http://a> <http://says> \"http://b\" .\n\
        <http://b> <http://says> \"http://b\"^^<http://www.w3.org/2001/XMLSchema#string> .\n\
        <http://a> <http://knows> <http://\\u0062> .";
    let dataset = loaded(text, &forward());
    let expected =
        ["http://a", "http://b", "\"http://b\"@en", "_:x.y", "\"café \\\"1\\\"\\n\"^^<http://type>", "\"http://b\""];
    assert_eq!(nodes(&dataset), expected);
    let typed = &dataset.typed.as_ref().unwrap().graph;
    let (schema, relations) = (typed.schema(), typed.relations());
    assert_eq!(schema.to_string(), "1 node type, 2 edge types");
    assert_eq!(
        (schema.edge_name(0), schema.edge_name(1)),
        ("entity.http://knows.entity".into(), "entity.http://says.entity".into())
    );
    let rows = |relation: usize| (0..6).map(|v| relations[relation].row(v).to_vec()).collect::<Vec<_>>();
    assert_eq!(rows(0), [vec![3], vec![0], vec![], vec![], vec![], vec![]]);
    assert_eq!(rows(1), [vec![], vec![], vec![0], vec![], vec![0], vec![0, 1]]);
    let made: Vec<&str> = dataset.notes.made_up.iter().map(|made| made.kind).collect();
    assert_eq!((dataset.name.as_str(), made), ("small", vec!["merged_edges"]));
}

#[test]
fn reverses_are_added_and_literals_dropped_as_asked() {
    let text = "<a:1> <p:1> <a:2> .\n<a:3> <p:2> \"x\" .\n";
    let with = loaded(text, &LoadOptions::default());
    let typed = &with.typed.as_ref().unwrap().graph;
    assert_eq!((typed.relations().len(), typed.n_edges(), with.n_edges()), (4, 4, 4));
    assert_eq!(typed.schema().edge_types()[1].reverse_of, Some(0));
    assert_eq!(
        with.notes.made_up[0].text,
        "2 reverse relations are added, with 2 edges (--reverse no leaves them out)"
    );
    let merge = LoadOptions { reverse: Some(ReverseEdges::Merge), ..LoadOptions::default() };
    let merged = loaded(text, &merge);
    let typed = &merged.typed.as_ref().unwrap().graph;
    assert_eq!((typed.relations().len(), typed.n_edges()), (2, 4), "all relations are inside one type");
    assert!(typed.relations().iter().all(girih_graph_format::Csr::is_symmetric));
    let without = loaded(text, &LoadOptions { literals: Some(Literals::Drop), ..forward() });
    assert_eq!(nodes(&without), ["a:1", "a:2", "a:3"]);
    assert_eq!((without.n_edges(), without.typed.as_ref().unwrap().graph.relations().len()), (1, 1));
    assert_eq!(without.notes.made_up[0].counts, [("triples", 1)]);
    let twice = "<a:1> <p:1> <a:2> .\n<a:1> <p:1> <a:2> .\n";
    let (_home, path) = written(twice);
    let refuse = LoadOptions { duplicates: Some(Duplicates::Refuse), ..LoadOptions::default() };
    assert!(refusal(&path, &refuse).contains("triples are stated again, 1 of one predicate; --duplicates merge"));
    let sum = LoadOptions { duplicates: Some(Duplicates::Sum), ..LoadOptions::default() };
    assert!(refusal(&path, &sum).contains("--duplicates sum gives weights"));
    let both = LoadOptions { symmetrize: Some(true), ..LoadOptions::default() };
    assert!(refusal(&path, &both).contains("--reverse add"));
}

#[test]
fn literals_are_features_of_their_subjects() {
    let text = "<a:1> <p:mass> \"1.0\" .\n<a:2> <p:mass> \"3\"^^<t:x> .\n<a:1> <p:knows> <a:2> .\n<a:3> <p:knows> <a:1> .\n\
        <a:2> <p:name> \"x\"@en .\n<a:1> <p:name> \"7\" .\n<a:2> <p:name> \"7\" .\n<a:2> <p:name> \"x\"@en .\n";
    let data = loaded(text, &LoadOptions { literals: Some(Literals::Features), ..forward() });
    assert_eq!((nodes(&data), data.n_edges()), (vec!["a:1", "a:2", "a:3"], 2));
    let Some(Features::Sparse(features)) = &data.features else { panic!("sparse features") };
    assert_eq!((features.n_rows(), features.n_cols()), (3, 3));
    let rows: Vec<Vec<(u32, f32)>> = (0..3).map(|v| features.row_entries(v).collect()).collect();
    assert_eq!(rows, [vec![(0, -1.0), (2, 1.0)], vec![(0, 1.0), (1, 1.0), (2, 1.0)], vec![]]);
    assert_eq!(
        data.notes.made_up[0].text,
        "6 triples that end in literals are features of 3 columns (--literals nodes reads them as nodes)"
    );
    let (_home, path) = written("<a:1> <p:1> <a:2> .\n");
    let message = refusal(&path, &LoadOptions { literals: Some(Literals::Features), ..LoadOptions::default() });
    assert!(message.contains("no triple ends in a literal; leave --literals features out"), "{message}");
}

const RDF_TYPE: &str = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>";

#[test]
fn classes_of_rdf_are_node_types() {
    let text = format!(
        "<a:1> {RDF_TYPE} <c:Boss> .\n<a:1> {RDF_TYPE} <c:Person> .\n<a:2> {RDF_TYPE} <c:Person> .\n<a:3> {RDF_TYPE} <c:Paper> .\n\
         <a:1> <p:writes> <a:3> .\n<a:1> <p:knows> <a:2> .\n<a:2> <p:knows> <a:3> .\n<a:3> <p:title> \"x\" .\n"
    );
    let typed_by = |literals, labels: Option<PathBuf>| {
        let (_home, path) = written(&text);
        let options = LoadOptions { node_types: Some(NodeTypesFrom::RdfType), literals, labels, ..forward() };
        load(path.to_str().unwrap(), &options)
    };
    let data = typed_by(None, None).unwrap();
    let typed = data.typed.as_ref().unwrap();
    let schema = typed.graph.schema();
    let types: Vec<(&str, usize)> = schema.node_types().iter().map(|of| (of.name.as_str(), of.n_nodes)).collect();
    assert_eq!(types, [("c:Person", 2), ("entity", 3), ("c:Paper", 1), ("literal", 1)]);
    assert_eq!(nodes(&data), ["a:1", "a:2", "c:Boss", "c:Person", "c:Paper", "a:3", "\"x\""]);
    let edges: Vec<(String, usize)> = (0..schema.edge_types().len())
        .map(|of| (schema.edge_name(of), typed.graph.relations()[of].nnz()))
        .filter(|(name, _)| !name.contains("22-rdf-syntax-ns"))
        .collect();
    let expected = [
        ("c:Person.p:writes.c:Paper", 1),
        ("c:Person.p:knows.c:Person", 1),
        ("c:Person.p:knows.c:Paper", 1),
        ("c:Paper.p:title.literal", 1),
    ];
    assert_eq!(edges, expected.map(|(name, n)| (name.to_owned(), n)));
    assert!(data.notes.made_up.iter().any(|made| made.kind == "other_classes"));
    let featured = typed_by(Some(Literals::Features), None).unwrap();
    let of_types: Vec<bool> =
        featured.typed.as_ref().unwrap().features.iter().map(|features| features.given().is_some()).collect();
    assert_eq!(of_types, [false, false, true]);
    // Labels make their type the target.
    let home = tempfile::tempdir().unwrap();
    let table = |rows: &str| {
        let path = home.path().join("labels.tsv");
        std::fs::write(&path, format!("node\tlabel\n{rows}")).unwrap();
        Some(path)
    };
    let labelled = typed_by(None, table("a:3\tgood\n")).unwrap();
    assert_eq!(labelled.typed.as_ref().unwrap().target, 2);
    let message = typed_by(None, table("a:1\tgood\na:3\tbad\n")).unwrap_err().to_string();
    assert!(message.contains("labelled nodes are of the types c:Person and c:Paper (the node of row 2"), "{message}");
    let (_home, path) = written("<a:1> <p:1> <a:2> .\n");
    let options = LoadOptions { node_types: Some(NodeTypesFrom::RdfType), ..forward() };
    assert!(refusal(&path, &options).contains("no node has a class; leave --node-types out"));
}

#[test]
fn lines_that_are_no_triples_are_refused_by_number() {
    let refused = |line: &str, parts: &[&str]| {
        let (_home, path) = written(&format!("# first\n<a:1> <p:1> <a:2> .\n{line}\n<a:1> <p:1> <a:3> .\n"));
        let message = refusal(&path, &LoadOptions::default());
        for part in [&["line 3: "], parts].concat() {
            assert!(message.contains(part), "{line}: {part:?} is not in: {message}");
        }
    };
    refused("<a:1> <p:1> \"open .", &["the literal `\"open .` has no end", "\\n"]);
    refused("<a:1> <p:1> \"x\\q\" .", &["`\\q` is no escape", "\\u and four digits"]);
    refused("<a:1> <p:1> \"x\\", &["has no end"]);
    refused("<a:1> <p:1> <a:2>", &["the line ends, but expected a dot"]);
    refused("<a:1> <p:1> <a:2> . x", &["found `x`, but expected the end of the line"]);
    refused("<a:1> <p:1> <a:2> <g:1> .", &["N-Quads"]);
    refused("<a:1> <p:1> <a 2> .", &["the IRI `<a 2> .` is broken: the character ' '", "\\u escapes"]);
    refused("<a:1> <p:1> <a:2\\u0020> .", &["an escape of ' '"]);
    refused("<a:1> <p:1> <a:2", &["the line ends before `>`"]);
    refused("<a:1> <p:1> <two> .", &["relative", "expected a scheme"]);
    refused("<a:1> <p:1> <> .", &["relative"]);
    refused("\"x\" <p:1> <a:2> .", &["a literal as subject"]);
    refused("<a:1> _:p <a:2> .", &["expected an IRI as predicate"]);
    refused("<a:1> <p:1> \"x\"@ .", &["expected a language"]);
    refused("<a:1> <p:1> \"x\"@en-.", &["expected a language"]);
    refused("<a:1> <p:1> _: .", &["after `_:`"]);
    refused("<a:1>", &["the line ends, but expected an IRI as predicate"]);
    refused("<< <a:1> <p:1> <a:2> >> <p:1> <a:2> .", &["found `<< <a:1>"]);
    for turtle in [
        "@prefix ex: <http://e/> .",
        "PREFIX ex: <http://e/>",
        "ex:a ex:b ex:c .",
        "<a:1> a <a:2> .",
        "<a:1> <p:1> ex:c .",
        "<a:1> <p:1> <a:2> ; <p:2> <a:3> .",
        "<a:1> <p:1> <a:2>, <a:3> .",
        "<a:1> <p:1> 'x' .",
        "<a:1> <p:1> \"\"\"x\"\"\" .",
        "<a:1> <p:1> 3.5 .",
        "<a:1> <p:1> true .",
        "<a:1> <p:1> \"1\"^^xsd:int .",
        "[] <p:1> <a:2> .",
    ] {
        refused(turtle, &["this is Turtle; convert it to N-Triples"]);
    }
}

#[test]
fn files_that_hold_no_triples_are_refused() {
    for (text, part) in
        [("", "no triple"), ("# nothing\n\n", "2 lines and no triple"), ("<?xml version=\"1.0\"?>", "XML page")]
    {
        let (_home, path) = written(text);
        assert!(refusal(&path, &LoadOptions::default()).contains(part), "{text}");
    }
    let (home, path) = written("");
    std::fs::write(&path, b"<a:1> <p:1> <a:2> .\n<a:1> <p:1> \"caf\xe9\" .\n").unwrap();
    assert!(refusal(&path, &LoadOptions::default()).contains("line 2 is no UTF-8 text"));
    let dropped = home.path().join("literals.nt");
    write_text(&dropped, "<a:1> <p:1> \"x\" .\n");
    let options = LoadOptions { literals: Some(Literals::Drop), ..LoadOptions::default() };
    assert!(refusal(&dropped, &options).contains("no triple between nodes"));
    let turtle = home.path().join("data.ttl.gz");
    write_text(&turtle, "");
    assert!(refusal(&turtle, &LoadOptions::default()).contains("Turtle is not read; convert it to N-Triples"));
}

#[test]
fn options_of_typed_data_are_refused_for_other_data() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("edges.csv");
    write_text(&path, "0,1\n1,2\n");
    let options = LoadOptions { reverse: Some(ReverseEdges::Add), ..LoadOptions::default() };
    assert!(refusal(&path, &options).contains("--reverse is for data with types, which this is not; leave it out"));
    let generated = load("synth:planted,nodes=50", &options).unwrap_err().to_string();
    assert!(generated.contains("--reverse is for data with types"), "{generated}");
}

/// Name of a term, its forms in a file, and whether it may be a subject.
#[derive(Clone, Debug)]
enum Term {
    Iri(String),
    Blank(String),
    Literal { value: String, suffix: String },
}

impl Term {
    fn name(&self) -> String {
        match self {
            Self::Iri(iri) => iri.clone(),
            Self::Blank(label) => format!("_:{label}"),
            Self::Literal { value, suffix } => {
                let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n").replace('\r', "\\r");
                format!("\"{value}\"{suffix}")
            }
        }
    }

    /// Text in a file. Bits of `choices` choose between forms of a character.
    fn text(&self, mut choices: u64) -> String {
        let mut next = || {
            choices = choices.rotate_left(7).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 1;
            choices >> 60
        };
        let coded = |c: char, n: u64| match n % 2 {
            0 if (c as u32) < 0x1_0000 => format!("\\u{:04X}", c as u32),
            _ => format!("\\U{:08x}", c as u32),
        };
        match self {
            Self::Iri(iri) => {
                let text: String = iri.chars().map(|c| if next() == 0 { coded(c, next()) } else { c.into() }).collect();
                format!("<{text}>")
            }
            Self::Blank(label) => format!("_:{label}"),
            Self::Literal { value, suffix } => {
                let character = |c: char| match (c, next()) {
                    (_, 0) => coded(c, next()),
                    ('"' | '\\', _) => format!("\\{c}"),
                    ('\n', _) => "\\n".to_owned(),
                    ('\r', _) => "\\r".to_owned(),
                    ('\t', 8..) => "\\t".to_owned(),
                    ('\u{8}', 8..) => "\\b".to_owned(),
                    ('\u{c}', 8..) => "\\f".to_owned(),
                    ('\'', 8..) => "\\'".to_owned(),
                    _ => c.to_string(),
                };
                let text: String = value.chars().map(character).collect();
                format!("\"{text}\"{suffix}")
            }
        }
    }
}

fn iri() -> impl Strategy<Value = Term> {
    "[a-c]:[a-c/#~é😀?=%]{0,3}".prop_map(Term::Iri)
}

fn resource() -> impl Strategy<Value = Term> {
    prop_oneof![iri(), "[A-Za-z0-9_:é](([a-c0-9.·-]){0,3}[a-c0-9-])?".prop_map(Term::Blank)]
}

fn term() -> impl Strategy<Value = Term> {
    let suffix = prop_oneof![Just(String::new()), "@[a-z]{2}(-[a-z0-9]{1,3})?", "\\^\\^<t:[a-c#]{1,2}>"];
    let literal = ("[a-b\"\\\\\n\r\t\u{8}\u{c}'é😀 .#<>@^]{0,6}", suffix);
    let literal = literal.prop_map(|(value, suffix)| Term::Literal { value, suffix });
    prop_oneof![resource(), literal]
}

/// Text of triples, with its names and edges.
fn document() -> impl Strategy<Value = (String, Vec<String>, BTreeSet<[String; 3]>)> {
    let blank = prop::sample::select(vec![" ", "\t", "  ", ""]);
    let end = prop::sample::select(vec!["\n", "\r\n", "\n\n", " # end\n", "\t\n"]);
    let line = (resource(), iri(), term(), any::<u64>(), blank, end);
    prop::collection::vec(line, 1..12).prop_map(|lines| {
        let (mut text, mut names, mut edges) = (String::new(), Vec::new(), BTreeSet::new());
        for (subject, predicate, object, choices, blank, end) in lines {
            // A name may end in a dot, so that a blank has to stand behind it.
            let gap = if matches!(object, Term::Blank(_)) { " " } else { blank };
            let [s, p, o] = [&subject, &predicate, &object].map(|term| term.text(choices));
            text.push_str(&format!("{blank}{s} {p}{blank}{o}{gap}.{end}"));
            for name in [subject.name(), object.name()] {
                if !names.contains(&name) {
                    names.push(name);
                }
            }
            edges.insert([predicate.name(), subject.name(), object.name()]);
        }
        (text, names, edges)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn triples_are_read_as_they_were_written((text, names, expected) in document()) {
        let dataset = loaded(&text, &forward());
        prop_assert_eq!(nodes(&dataset), names);
        prop_assert_eq!(edges(&dataset), expected);
        dataset.validate().unwrap();
    }

    #[test]
    fn damaged_triples_are_refused_or_read(
        (text, _, _) in document(), at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<bool>(),
    ) {
        let mut bytes = text.into_bytes();
        let at = at.index(bytes.len());
        if cut { bytes.truncate(at) } else { bytes[at] = byte }
        let (_home, path) = written("");
        std::fs::write(&path, bytes).unwrap();
        match load(path.to_str().unwrap(), &LoadOptions::default()) {
            Ok(dataset) => dataset.validate().unwrap(),
            Err(error) => prop_assert!(error.to_string().contains("small.nt"), "{}", error),
        }
    }
}

/// Text in which each `\u` and four digits is a character.
fn with_characters(text: &str) -> String {
    let mut parts = text.split("\\u");
    let character = |part: &str| {
        let code = u32::from_str_radix(&part[..4], 16).unwrap();
        format!("{}{}", char::from_u32(code).unwrap(), &part[4..])
    };
    let first = parts.next().unwrap().to_owned();
    parts.fold(first, |text, part| text + &character(part))
}

/// Edges of a file by splitting lines at blanks.
fn split_lines(path: &Path) -> (Vec<String>, BTreeSet<[String; 3]>) {
    let mut text = String::new();
    GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    let bare = |term: &str| {
        let term = with_characters(term);
        match term.strip_prefix('<') {
            Some(iri) => iri.strip_suffix('>').unwrap().to_owned(),
            None => term.replace("^^<http://www.w3.org/2001/XMLSchema#string>", ""),
        }
    };
    let (mut names, mut seen, mut edges) = (Vec::new(), HashMap::new(), BTreeSet::new());
    for line in text.lines().filter(|line| !line.is_empty()) {
        let (subject, rest) = line.split_once(' ').unwrap();
        let (predicate, object) = rest.split_once(' ').unwrap();
        let object = object.trim_end().strip_suffix('.').unwrap().trim_end();
        for name in [bare(subject), bare(object)] {
            seen.entry(name.clone()).or_insert_with(|| names.push(name));
        }
        edges.insert([bare(predicate), bare(subject), bare(object)]);
    }
    (names, edges)
}

#[test]
fn real_graphs_have_their_published_sizes_and_the_edges_of_a_simple_reader() {
    for (folder, file, sizes) in [
        ("hetero/aifb", "aifb_stripped.nt.gz", [8285, 29_043, 45, 2835]),
        ("hetero/mutag", "mutag_stripped.nt.gz", [23_644, 74_227, 23, 22_540]),
    ] {
        let Some(folder) = real(folder) else { return };
        let path = folder.join(file);
        let plain = load(path.to_str().unwrap(), &forward()).unwrap();
        let typed = &plain.typed.as_ref().unwrap().graph;
        let dropped = LoadOptions { literals: Some(Literals::Drop), ..forward() };
        let n_resources = load(path.to_str().unwrap(), &dropped).unwrap().n_nodes();
        assert_eq!([plain.n_nodes(), typed.n_edges(), typed.relations().len(), n_resources], sizes);
        let (names, expected) = split_lines(&path);
        assert!(nodes(&plain) == names && edges(&plain) == expected, "{file}");
        let both = load_default(&path);
        assert_eq!(both.typed.as_ref().unwrap().graph.n_edges(), 2 * sizes[1]);
    }
}
