//! Edge lists as people find them. Headers, comments and dictionaries are obeyed, unused data is noted, and ambiguous
//! input is refused with the choice.

use std::fs;
use std::path::Path;

use crate::common::data_folder;
use girih_graph_format::file::{
    Array, Columns, EdgeList, EdgeListOptions, Npz, Sniffed, Tensors, parse_edge_list, parse_matrix_market,
    parse_metis, read_edge_list, read_integers, sniff, sniff_file,
};
use girih_graph_format::{Duplicates, FormatError, Notes};
use proptest::prelude::*;

fn read(text: &str) -> Result<EdgeList, FormatError> {
    parse_edge_list(text.as_bytes(), &EdgeListOptions::default())
}

fn read_as(text: &str, columns: &str) -> Result<EdgeList, FormatError> {
    let columns: Columns = columns.parse()?;
    parse_edge_list(text.as_bytes(), &EdgeListOptions { columns: Some(columns), ..EdgeListOptions::default() })
}

/// Pairs of source and target, in the order of the list.
fn pairs(list: &EdgeList) -> Vec<(u32, u32)> {
    list.edges.cols().iter().copied().zip(list.edges.rows().iter().copied()).collect()
}

/// Parses a list that must give these pairs.
fn expect(text: &str, expected: &[(u32, u32)]) -> EdgeList {
    let list = read(text).unwrap_or_else(|error| panic!("{text:?}: {error}"));
    assert_eq!(pairs(&list), expected, "{text:?}");
    list
}

fn not_used(list: &EdgeList) -> String {
    list.notes.not_used_line().unwrap_or_default()
}

fn refusal(text: &str) -> String {
    read(text).expect_err(text).to_string()
}

#[test]
fn a_header_names_source_and_target_in_any_order() {
    for header in [
        "source,target",
        "Src,Dst",
        "from,to",
        "u,v",
        "head,tail",
        "Source_ID,Target-Id",
        "node1,node2",
        "id_1,id_2",
        "FromNodeId,ToNodeId",
        "source node,target node",
        "sender,recipient",
    ] {
        let list = expect(&format!("{header}\n3,1\n1,0\n"), &[(3, 1), (1, 0)]);
        assert!(list.notes.is_empty(), "{header}: {:?}", list.notes);
        let mut names: Vec<&str> = header.split(',').collect();
        names.reverse();
        expect(&format!("{}\n3,1\n1,2\n", names.join(",")), &[(1, 3), (2, 1)]);
        expect(&format!("{}\n3\t1\n1\t2\n", names.join("\t")), &[(1, 3), (2, 1)]);
        expect(&format!("{}\n3;1\n1;2\n", names.join(";")), &[(1, 3), (2, 1)]);
    }
    // A header in a comment, as SNAP has it.
    expect("# Directed graph\n# FromNodeId\tToNodeId\n3\t1\n", &[(3, 1)]);
    expect("# ToNodeId FromNodeId\n3\t1\n", &[(1, 3)]);
    expect("# edges go from any node to another\n3\t1\n", &[(3, 1)]);
}

#[test]
fn columns_that_are_not_nodes_or_weights_are_left_out_by_name() {
    let list = expect(",source,target\n0,5,1\n1,1,2\n", &[(5, 1), (1, 2)]);
    assert_eq!(not_used(&list), "not used: column 1 (no name): numbers of lines or edges");
    assert_eq!(list.notes.warnings, ["ids count from 1; node 0 has no edges"]);
    let list = expect("Unnamed: 0\tsource\ttarget\n7\t5\t1\n9\t1\t2\n", &[(5, 1), (1, 2)]);
    assert!(list.notes.warnings[0].contains("does not count lines"), "{:?}", list.notes);

    let list = expect(
        "weight,id,timestamp,to,from,color\n0.5,0,1082040961,1,0,red\n-2,1,1082040962,2,1,blue\n",
        &[(0, 1), (1, 2)],
    );
    assert_eq!(list.edges.values(), Some(&[0.5, -2.0][..]));
    let line = not_used(&list);
    for name in ["column 2 (id)", "column 3 (timestamp): times of edges", "column 6 (color): no common name of nodes"] {
        assert!(line.contains(name), "{line}");
    }
    // Ambiguous names are not weights.
    for name in ["value", "rating", "score", "feature", "count", "uid", "type"] {
        let list = expect(&format!("source,target,{name}\n0,1,5\n"), &[(0, 1)]);
        assert!(list.edges.values().is_none() && not_used(&list).contains(&format!("column 3 ({name})")), "{name}");
    }
}

#[test]
fn contradictions_and_two_readings_are_refused_with_the_choice() {
    let stamps = "0 1 1082040961\n1 2 1082155839\n";
    for (text, expected) in [
        ("foo,bar\n0,1\n", "line 1: the header (foo, bar) names 0 columns as sources and 0 as targets"),
        (
            "source,other\n0,1\n",
            "names 1 columns as sources and 0 as targets; expected one of each, say which is which by --columns source,target",
        ),
        ("source,from,target\n0,1,2\n", "names 2 columns as sources and 1 as targets"),
        ("source,target,weight,w\n0,1,2,3\n", "names several weights"),
        (
            "source,target\n0,1,2\n",
            "the header names 2 columns (source, target), but the first line after it has 3 fields",
        ),
        ("user,target\n0,1\n", "they may share their ids or not"),
        (
            stamps,
            "line 1: the third column may hold times or weights, all from 100000000 on; say so by --columns source,target,time or --columns source,target,weight",
        ),
        (
            "1,2,1,1082040961\n",
            "line 1: 4 fields without a header; say which is which by --columns source,target,weight,time, by --columns source,target,-,-",
        ),
        ("1 2 3 4 5\n", "--columns source,target,-,-,-"),
        ("source,target\n", "a header, but no edge follows it"),
        ("1|2\n", "expected source, target and an optional weight"),
        ("1;2;0,5\n", "\"0,5\" is not a weight; expected a finite number; decimals stand behind a point"),
        ("src,dst\n18446744073709551615,1\n", "line 2: node id 18446744073709551615 is too large"),
        ("src,dst\n123456789012345678901234567890,1\n", "line 2: node id 123456789012345678901234567890 is too large"),
        ("", "the file holds no edge"),
        ("# nothing\n\n", "the file holds no edge"),
    ] {
        let message = refusal(text);
        assert!(message.contains(expected), "{text:?}: {message}");
    }
    // The remedies work.
    assert_eq!(read_as(stamps, "source,target,time").unwrap().edges.values(), None);
    assert_eq!(read_as(stamps, "source,target,weight").unwrap().edges.len(), 2);
    let list = read_as("1,2,7,1082040961\n", "target,source,weight,time").unwrap();
    assert_eq!((pairs(&list), list.edges.values()), (vec![(2, 1)], Some(&[7.0][..])));
    assert_eq!(pairs(&read_as("foo,bar\n0,1\n", "source,target").unwrap()), [(0, 1)]);
    assert_eq!(pairs(&read_as(",0,1\n0,5,1\n1,1,2\n", "-,source,target").unwrap()), [(5, 1), (1, 2)]);
}

#[test]
fn options_say_which_columns_are_which() {
    let list = read_as("target,source\n0,1\n", "source,target").unwrap();
    assert_eq!(pairs(&list), [(0, 1)]);
    assert_eq!(not_used(&list), "not used: line 1 (header target, source): --columns takes its place");
    assert!(read_as("source,target\n0,1\n", "Source, TARGET").unwrap().notes.is_empty());
    for (text, columns, expected) in [
        ("0,1,2\n", "source,target", "line 1: 3 fields, but --columns source,target names 2"),
        ("0,1\n", "source,weight", "columns source,weight: 0 of them are target"),
        ("0,1\n", "source,source,target", "2 of them are source"),
        (
            "0,1\n",
            "source,target,value",
            "\"value\" is no role of a column; expected source, target, weight, time or -",
        ),
    ] {
        let message = read_as(text, columns).expect_err(text).to_string();
        assert!(message.contains(expected), "{message}");
    }
    let columns: Columns = "source,target,-,weight".parse().unwrap();
    assert_eq!(columns.to_string(), "source,target,-,weight");
}

#[test]
fn users_and_items_have_ids_of_their_own() {
    let text = "userId,movieId,rating\n0,0,5\n2,1,3\n";
    let list = expect(text, &[(0, 3), (2, 4)]);
    assert_eq!((list.sides, list.edges.n_rows()), (Some((3, 2)), 5));
    assert_eq!(list.notes.made_up[0].counts, [("left", 3), ("right", 2)]);
    let bipartite = |text: &str, bipartite, n_nodes| {
        let options = EdgeListOptions { bipartite: Some(bipartite), n_nodes, ..EdgeListOptions::default() };
        parse_edge_list(text.as_bytes(), &options)
    };
    let one = bipartite(text, false, None).unwrap();
    assert_eq!((pairs(&one), one.sides), (vec![(0, 0), (2, 1)], None));
    assert_eq!(pairs(&bipartite("0 0\n1 0\n", true, Some(3)).unwrap()), [(0, 2), (1, 2)]);
    let message = bipartite("0 0\n1 0\n", true, Some(4)).unwrap_err().to_string();
    assert!(message.contains("2 and 1 nodes on two sides are 3, but 4 nodes are asked for"), "{message}");
}

#[test]
fn users_and_items_stay_apart_where_options_name_their_columns() {
    let options = |columns: &str, bipartite| EdgeListOptions {
        columns: Some(columns.parse().unwrap()),
        bipartite,
        ..EdgeListOptions::default()
    };
    let told = |text: &str, columns: &str, bipartite| {
        let list = parse_edge_list(text.as_bytes(), &options(columns, bipartite)).unwrap();
        (pairs(&list), list.sides)
    };
    let jodie = "user_id,item_id,timestamp,state_label,comma_separated_list_of_features\n\
                 3,3,0.0,0,-0.5,1\n0,1,6.0,0,1,2\n";
    let apart = (vec![(3, 7), (0, 5)], Some((4, 4)));
    assert_eq!(told(jodie, "source,target,time,-,-,-", None), apart);
    // The sources come first, so here the items.
    assert_eq!(told(jodie, "target,source,time,-,-,-", None), (vec![(3, 7), (1, 4)], Some((4, 4))));
    let joined = (vec![(3, 3), (0, 1)], None);
    assert_eq!(told(jodie, "source,target,time,-,-,-", Some(false)), joined);
    // Either other column is no side.
    assert_eq!(told(jodie, "source,-,-,target,-,-", None), (vec![(3, 0), (0, 0)], None));

    for (header, is_apart) in [
        ("customer,product,rating", true),
        ("# user item rating", true),
        ("# every user rates items", false),
        ("# UserId MovieId weight", true),
        ("source,target,rating", false),
        ("user,target,rating", false),
        ("user,item", false),
    ] {
        let text = format!("{header}\n3,3,5\n0,1,4\n");
        let expected = if is_apart { &apart } else { &joined };
        assert_eq!(&told(&text, "source,target,-", None), expected, "{header}");
    }
    let own = "# girih: nodes 4; columns source,target,weight\n# user item weight\n3 3 5\n0 1 4\n";
    assert_eq!(told(own, "source,target,-", None), joined);
}

#[test]
fn konect_is_read_as_its_first_line_says() {
    let list = expect("% sym unweighted\n1 2 \n2 3 \n", &[(0, 1), (1, 2)]);
    assert_eq!((list.directed, list.edges.values()), (Some(false), None));
    assert_eq!(list.notes.made_up[0].kind, "shifted_ids");
    let list = expect("% asym positive\n% 3 5 5\n1 2 2 1082040961\n2 3 1 1082040962\n", &[(0, 1), (1, 2)]);
    assert_eq!((list.directed, list.edges.n_rows(), list.edges.values()), (Some(true), 5, Some(&[2.0, 1.0][..])));
    assert_eq!(not_used(&list), "not used: column 4 (time): times of edges");
    let list = expect("% bip weighted\n% 2 4 3\n1 1 4.5\n2 1 -1\n", &[(0, 4), (1, 4)]);
    assert_eq!((list.sides, list.edges.n_rows()), (Some((4, 3)), 7));
    let list = expect("% asym unweighted\n1 2 1 1082040961\n", &[(0, 1)]);
    assert!(
        list.edges.values().is_none()
            && not_used(&list).contains("column 3 (weight, of a network that line 1 calls unweighted)")
    );
    for (text, expected) in [
        ("% asym positive\n% 4 5 5\n1 2 2\n2 3 1\n", "line 2: 4 edges are stated, but the file lists 2"),
        ("% sym unweighted\n0 2\n", "line 2: node 0 does not exist"),
        (
            "% sym unweighted\n% 1 3 3\n1 4\n",
            "line 3: node 4 does not exist; there are at most 3 nodes, numbered from 1",
        ),
        ("% bip unweighted\n% 1 3 2\n3 3\n", "line 3: node 3 does not exist; there are at most 2 nodes"),
        ("% sym dynamic\n1 2 1 5\n", "come and go over time"),
        ("% sym heavy\n1 2\n", "line 1: heavy is no kind of KONECT's weights"),
        ("% sym signed\n1 2\n", "line 1 announces weights"),
    ] {
        let message = refusal(text);
        assert!(message.contains(expected), "{text:?}: {message}");
    }
}

#[test]
fn networkx_lists_are_read_with_their_weights() {
    let list = expect("0 1 {}\n1 2 {}\n", &[(0, 1), (1, 2)]);
    assert!(list.edges.values().is_none() && list.notes.is_empty());
    let list = expect("0 1 {'weight': 3.0, 'color': 'a, {b}'}\n", &[(0, 1)]);
    assert_eq!(list.edges.values(), Some(&[3.0][..]));
    assert_eq!(not_used(&list), "not used: key \"color\" of edges");
    let list = expect("0,1,{'weight': 3}\n1,2,{'weight': 0.5}\n", &[(0, 1), (1, 2)]);
    assert_eq!(list.edges.values(), Some(&[3.0, 0.5][..]));
    for (text, expected) in [
        ("0 1 {}\n1 2 {'weight': 1}\n", "line 2: some edges have the key 'weight' and others do not"),
        ("0 1 {'weight': 1}\n1 2 {}\n", "line 2: some edges have the key 'weight'"),
        ("0 1 {}\n1 2\n", "line 2: no {…} at its end"),
        ("0 1 {}\n1 2 3 {}\n", "line 2: more than two fields in front"),
        ("0 1 {'weight': 'x'}\n", "is not a weight"),
        ("0 1 {weight}\n", "is not a dictionary as networkx writes it"),
    ] {
        let message = refusal(text);
        assert!(message.contains(expected), "{text:?}: {message}");
    }
}

#[test]
fn doubts_are_noted() {
    let warning = |text: &str| read(text).unwrap().notes.warnings.join("; ");
    assert_eq!(warning("0 1\n1 2\n"), "");
    assert!(warning("0 1\n1 2").contains("does not end with a line end"));
    assert_eq!(warning("1 2\n2 3\n"), "ids count from 1; node 0 has no edges");
    assert_eq!(warning("0 9\n"), "8 of the ids below 10 never occur; each is a node without edges");
    assert_eq!(warning("# Nodes: 3 Edges: 5\n0 1\n1 2\n"), "line 1 states 5 edges, but the file lists 2");
    assert_eq!(warning("# Nodes: 3 Edges: 2\n0 1\n1 2\n"), "");
}

#[test]
fn numbers_of_nodes_are_stated_in_a_comment() {
    let list = expect("# girih: nodes 5\n0 1\n", &[(0, 1)]);
    assert_eq!(list.edges.n_rows(), 5);
    assert_eq!(read("# girih: nodes 5\n").unwrap().edges.n_rows(), 5);
    let with_n_nodes = EdgeListOptions { n_nodes: Some(6), ..EdgeListOptions::default() };
    let message = parse_edge_list(b"# girih: nodes 5\n0 1\n", &with_n_nodes).unwrap_err().to_string();
    assert!(message.contains("line 1: 5 nodes are stated, but 6 are asked for"), "{message}");
    assert!(refusal("# girih: nodes 2\n0 2\n").contains("line 2: node 2 does not exist; there are at most 2 nodes"));
    assert!(refusal("# girih: nodes many\n0 2\n").contains("line 1: nodes: expected a number"));
    let list = expect("# girih: nodes 3; colour red\n0 1\n", &[(0, 1)]);
    assert_eq!(not_used(&list), "not used: line 1: colour red: unknown to this girih");
}

/// First bytes of other files, and their kinds.
fn other_files() -> Vec<(Vec<u8>, Sniffed)> {
    let wide = |text: &str, width: usize, big: bool| -> Vec<u8> {
        text.bytes()
            .flat_map(|byte| {
                let mut unit = vec![0; width];
                unit[if big { width - 1 } else { 0 }] = byte;
                unit
            })
            .collect()
    };
    let mut files: Vec<(Vec<u8>, Sniffed)> = vec![
        (b"\n<!DOCTYPE html>\n<p>0 1</p>\n".to_vec(), Sniffed::Html),
        (b"<HTML>".to_vec(), Sniffed::Html),
        (b"version 1\noid sha256:0123\nsize 12\n".to_vec(), Sniffed::LfsPointer),
        (b"\x1f\x8b\x08\0rest".to_vec(), Sniffed::Gzip),
        (b"PK\x03\x04rest".to_vec(), Sniffed::Zip),
        (b"\x93NUMPY\x01\0".to_vec(), Sniffed::Npy),
        (b"\x80\x04\x95".to_vec(), Sniffed::Pickle),
        (b"\x89HDF\r\n\x1a\n".to_vec(), Sniffed::Hdf5),
        (b"PAR1".to_vec(), Sniffed::Parquet),
        (b"{\"edges\": [[0, 1]]}".to_vec(), Sniffed::Json),
        (b"[[0, 1]]".to_vec(), Sniffed::Json),
        (b"%%MatrixMarket matrix coordinate pattern general\n2 2 1\n1 2\n".to_vec(), Sniffed::MatrixMarket),
        (b"0 1\n1 \0\n".to_vec(), Sniffed::Binary),
        (b"BZh9".to_vec(), Sniffed::Packed),
    ];
    for big in [false, true] {
        files.push((wide("0 1\n1 2\n", 2, big), Sniffed::Utf16));
        files.push((wide("0 1\n1 2\n", 4, big), Sniffed::Utf32));
    }
    files.push(([b"\xff\xfe".to_vec(), wide("0 1\n", 2, false)].concat(), Sniffed::Utf16));
    files.push(([b"\0\0\xfe\xff".to_vec(), wide("0 1\n", 4, true)].concat(), Sniffed::Utf32));
    files
}

#[test]
fn files_of_another_kind_are_named() {
    let home = tempfile::tempdir().unwrap();
    for (bytes, kind) in other_files() {
        assert_eq!(sniff(&bytes), Some(kind), "{bytes:?}");
        let path = home.path().join("e.txt");
        fs::write(&path, &bytes).unwrap();
        assert_eq!(sniff_file(&path).unwrap(), Some(kind));
        let of_list = read_edge_list(&path, &EdgeListOptions::default()).expect_err("another kind");
        let messages = [
            Some(of_list),
            parse_metis(&bytes).err(),
            read_integers(&path, &mut Notes::default()).err(),
            parse_matrix_market(&bytes, Duplicates::Sum).err().or_else(|| parse_metis(&bytes).err()),
        ];
        for error in messages.map(|error| error.expect("another kind")) {
            let message = error.to_string();
            assert!(message.contains(kind.name()) && message.contains(kind.remedy()), "{message}");
            assert!(!error.is_corrupt(), "{message}");
        }
    }
    let path = home.path().join("e.txt.gz");
    fs::write(&path, "0 1\n").unwrap();
    let message = read_edge_list(&path, &EdgeListOptions::default()).unwrap_err().to_string();
    assert!(
        message.contains("e.txt.gz: the name ends in .gz, but its bytes are plain text; take .gz off"),
        "{message}"
    );
    fs::write(&path, "").unwrap();
    assert!(read_edge_list(&path, &EdgeListOptions::default()).unwrap_err().to_string().contains("is empty (0 bytes)"));
    for text in ["", "0 1\n", "0,1\n", "% c\n", "version 2\n", "# <html>\n", "\u{feff}0 1\n", "1", "naïve 1\n"] {
        assert_eq!(sniff(text.as_bytes()), None, "{text:?}");
    }
}

proptest! {
    /// A column of any unknown name is noted at any position, and changes nothing else.
    #[test]
    fn unknown_columns_are_named(name in "[a-z]{4,12}x", at in 0..4usize, edges in proptest::collection::vec((0..9u32, 0..9u32, 1..9u8), 1..20)) {
        let line = |extra: &str, fields: [String; 3]| {
            let mut fields = fields.to_vec();
            if !extra.is_empty() {
                fields.insert(at, extra.to_owned());
            }
            fields.join(",") + "\n"
        };
        let text = |extra: [&str; 2]| {
            let header = line(extra[0], ["target", "weight", "source"].map(str::to_owned));
            let lines = edges.iter().map(|(u, v, w)| line(extra[1], [v.to_string(), w.to_string(), u.to_string()]));
            header + &lines.collect::<String>()
        };
        let (plain, more) = (read(&text(["", ""])).unwrap(), read(&text([&name, "7"])).unwrap());
        prop_assert_eq!(&plain.edges, &more.edges);
        prop_assert_eq!(plain.notes.not_used.len(), 0);
        let column = format!("column {} ({name})", at + 1);
        prop_assert_eq!(&more.notes.not_used[0].what, &column);
        prop_assert_eq!(pairs(&plain), edges.iter().map(|&(u, v, _)| (u, v)).collect::<Vec<_>>());
    }

    /// Any words in the place of a header or comment are read or refused, and never panic.
    #[test]
    fn any_head_is_no_panic(head in "[#%{}:;,|/ a-z0-9\\-\t\n']{0,60}", columns in "[a-z,\\-]{0,20}") {
        for tail in ["0 1\n", "1,2,3\n", "1 2 {}\n"] {
            let _ = read(&format!("{head}\n{tail}"));
            let _ = read(&format!("% bip positive\n% {head}\n{tail}"));
        }
        let _ = columns.parse::<Columns>();
    }
}

#[test]
fn real_lists_with_times() {
    let Some(data) = data_folder() else { return println!("skipped: no data") };
    let options = |columns: Option<&str>| EdgeListOptions {
        columns: columns.map(|columns| columns.parse().unwrap()),
        ..EdgeListOptions::default()
    };
    let messages = data.join("hetero/collegemsg/CollegeMsg.txt");
    let message = read_edge_list(&messages, &options(None)).unwrap_err().to_string();
    assert!(message.contains("CollegeMsg.txt: line 1: the third column may hold times or weights"), "{message}");
    let list = read_edge_list(&messages, &options(Some("source,target,time"))).unwrap();
    assert_eq!((list.edges.len(), list.edges.n_rows(), list.edges.values()), (59_835, 1_900, None));
    assert_eq!(list.notes.warnings, ["ids count from 1; node 0 has no edges"]);
    let graph = list.edges.to_csr(Duplicates::Sum).unwrap();
    assert_eq!(graph.nnz(), 20_296);
    assert_eq!(graph.values().unwrap().iter().sum::<f32>(), 59_835.0);

    let trust = read_edge_list(&data.join("hetero/bitcoin-otc/soc-sign-bitcoinotc.csv"), &options(None)).unwrap();
    assert_eq!((trust.edges.len(), trust.edges.n_rows(), trust.edges.values()), (35_592, 6_006, None));
    let line = not_used(&trust);
    assert!(line.contains("column 3 (feature)") && line.contains("column 4 (time): times of edges"), "{line}");
}

/// A web page in the place of an array, an archive or tensors is named as such; damaged bytes are not.
#[test]
fn binary_formats_name_what_stands_in_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    let readers: [fn(&Path) -> String; 3] = [
        |path| Array::read(path).unwrap_err().to_string(),
        |path| Npz::open(path).err().unwrap().to_string(),
        |path| Tensors::open(path).unwrap_err().to_string(),
    ];
    for read in readers {
        for (bytes, expected) in [
            (&b"<!DOCTYPE html><html>404</html>"[..], "an HTML or XML page"),
            (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 2\n", "git lfs pull"),
            (b"\x1f\x8b\x08\x00\x00", "a gzip file"),
        ] {
            fs::write(&path, bytes).unwrap();
            let message = read(&path);
            assert!(message.contains(expected) && !message.contains("damaged"), "{message}");
        }
        fs::write(&path, b"\x00\x01\x02\x03\xff\xfe\xfd\xfc").unwrap();
        assert!(read(&path).contains("damaged"));
    }
}
