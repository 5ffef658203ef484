//! Seeds in text, plain and packed: edge lists, matrices, graphs, tables.

use std::io::Write;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use girih_datasets::OutputFormat;
use girih_graph_format::file::NpzWriter;

use super::{planted, written, written_one};
use crate::Input;

fn each(name: &str, texts: &[&str]) -> Vec<Input> {
    texts.iter().map(|text| Input::one(name, text.as_bytes())).collect()
}

/// Text packed by gzip.
pub(crate) fn gzip(text: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    packed.write_all(text).expect("memory");
    packed.finish().expect("memory")
}

const EDGE_LISTS: &[&str] = &[
    "0,1\n1,2\n2,0\n",
    "source,target,weight\n0,1,0.5\n1,2,-2e3\n",
    "# girih: nodes 9; columns source,target\n0 1\n1 2\n",
    "# girih: nodes 4\n",
    "# FromNodeId\tToNodeId\n0\t1\n3\t2\n",
    "% bip positive\n% 3 3 2\n1 1 2 1082040961\n2 2 1 1082040962\n3 1 1 1082040963\n",
    "% asym unweighted\n1 2\n2 3\n",
    "0 1 {'weight': 3.0, 'color': 'red'}\n1 2 {'weight': 1}\n",
    "\"user\";\"item\";\"rating\"\n\"0\";\"3\";\"5\"\n",
    ",src,dst\n0,4,5\n1,5,6\n",
    "from,to,feature,time\n6,2,4,1289241911.72836\n6,5,2,1289241941.53378\n1,15,1,7\n",
    "user_id,item_id,timestamp,state_label,comma_separated_list_of_features\n0,0,0.0,0,-0.5,1e-3\n1,0,6.0,1,2,0\n",
];

pub(crate) fn edge_lists() -> Vec<Input> {
    each("edges.csv", EDGE_LISTS)
}

/// Inputs of the texts under a file name, and of a file that girih writes under it.
fn with_a_written_one(name: &str, texts: &[&str]) -> Vec<Input> {
    let save = |path: &Path| planted().save_as(OutputFormat::of(path).expect("a format"), path);
    let mut seeds = each(name, texts);
    seeds.push(written_one(name, |path| save(path).expect("a file")));
    seeds
}

pub(crate) fn matrix_market() -> Vec<Input> {
    with_a_written_one(
        "matrix.mtx",
        &[
            "%%MatrixMarket matrix coordinate real general\n% words\n3 3 2\n2 1 0.5\n3 1 -1\n",
            "%%MatrixMarket matrix coordinate pattern symmetric\n4 4 3\n2 1\n3 1\n4 4\n",
            "%%MatrixMarket matrix array integer skew-symmetric\n3 3\n1\n0\n2\n",
            "%%MatrixMarket matrix array real general\n2 2\n0\n1.5\n0\n2\n",
        ],
    )
}

pub(crate) fn metis() -> Vec<Input> {
    with_a_written_one(
        "metis.graph",
        &[
            "% words\n3 2 001\n2 5 3 1\n1 5\n1 1\n",
            "4 2 011 2\n7 7 2 1\n7 7 1 1\n7 7 4 1\n7 7 3 1\n",
            "5 1\n2\n1\n\n\n\n",
        ],
    )
}

pub(crate) fn packed() -> Vec<Input> {
    let lists = edge_lists().into_iter().take(3).map(|input| ("edges.csv.gz", input));
    let matrices = matrix_market().into_iter().take(2).map(|input| ("matrix.mtx.gz", input));
    let graphs = metis().into_iter().take(2).map(|input| ("metis.graph.gz", input));
    lists.chain(matrices).chain(graphs).map(|(name, input)| Input::one(name, gzip(&input.files[0].bytes))).collect()
}

pub(crate) fn ntriples() -> Vec<Input> {
    let graph = &b"# people\n<a:1> <k:> <a:2> .\n<a:2> <n:> \"caf\\u00e9 \\\"x\\\"\"@en .\n_:x <k:> <a:1> .\n"[..];
    let train = &b"person\tid\tlabel\na:1\t1.0\tred\na:2\t2.0\tblue\n"[..];
    let test = &b"person\tlabel\n_:x\tred\n"[..];
    let all = &b"id\tperson\tlabel\n1\ta:1\tred\n"[..];
    vec![
        Input::folder(&[("graph.nt", graph), ("trainingSet.tsv", train), ("testSet.tsv", test)]),
        Input::folder(&[("graph.nt.gz", &gzip(graph)), ("trainingSet.tsv", train), ("completeDataset.tsv", all)]),
        Input::folder(&[("alone.nt", graph)]),
    ]
}

pub(crate) fn lightgcn() -> Vec<Input> {
    let (train, test) = (&b"0 0 2\n1 1\n2 0 1 2\n"[..], &b"0 3\n1 0 3\n2\n"[..]);
    let users = &b"org_id remap_id\na 0\nb 1\nc 2\n"[..];
    let items = &b"org_id remap_id\na 0\nb 1\nc 2\nd 3\n"[..];
    vec![
        Input::folder(&[("test.txt", test), ("train.txt", train)]),
        Input::folder(&[("test.txt", test), ("train.txt", train), ("user_list.txt", users), ("item_list.txt", items)]),
    ]
}

pub(crate) fn movielens() -> Vec<Input> {
    let ratings = ("u.data", &b"2\t3\t5\t881250949\n1\t1\t3\t881250100\n4\t3\t1\t881250950\n"[..]);
    let counts = ("u.info", &b"5 users\n4 items\n3 ratings\n"[..]);
    vec![Input::folder(&[ratings]), Input::folder(&[ratings, counts])]
}

pub(crate) fn tables() -> Vec<Input> {
    let edges = ("edges.csv", &b"0,1\n1,2\n2,3\n3,0\n"[..]);
    let features = &b"1,0.5\n0,1e-1\n0,0\n-2,3\n"[..];
    let labels = &b"node,label\n0,1\n1,0\n3,1\n2,\n"[..];
    vec![
        Input::folder(&[edges, ("features.csv", features), ("labels.csv", labels)]),
        Input::folder(&[edges, ("features.txt", b"1 2\n3 4\n5 6\n7 8\n"), ("labels.txt", b"0\n1\n0\n1\n")]),
        Input::folder(&[edges, ("features.csv.gz", &gzip(features)), ("labels.csv", b"0,1\n1,1\n0,0\n1,0\n")]),
    ]
}

/// OGB raw folder in text; `splits` are its split files.
pub(crate) fn ogb_with(splits: &[(&str, &[u8])]) -> Input {
    let raw: [(&str, &[u8]); 5] = [
        ("raw/edge.csv.gz", &gzip(b"0,1\n2,1\n")),
        ("raw/num-node-list.csv.gz", &gzip(b"4\n")),
        ("raw/num-edge-list.csv.gz", &gzip(b"2\n")),
        ("raw/node-feat.csv.gz", &gzip(b"1,0.5\n0,1e-1\n0,0\n-2,3\n")),
        ("raw/node-label.csv.gz", &gzip(b"1\n\n0.0\nnan\n")),
    ];
    Input::folder(&[&raw[..], splits].concat())
}

/// Raw folders of OGB with types, as text and as archives.
pub(crate) fn ogb_typed() -> Vec<Input> {
    let text: [(&str, &[u8]); 12] = [
        ("raw/num-node-dict.csv.gz", &gzip(b"paper,author\n4,2\n")),
        ("raw/nodetype-has-feat.csv.gz", &gzip(b"paper,author\nTrue,False\n")),
        ("raw/triplet-type-list.csv.gz", &gzip(b"author,writes,paper\npaper,cites,paper\n")),
        ("raw/relations/author___writes___paper/edge.csv.gz", &gzip(b"0,0\n1,2\n1,3\n")),
        ("raw/relations/author___writes___paper/num-edge-list.csv.gz", &gzip(b"3\n")),
        ("raw/relations/paper___cites___paper/edge.csv.gz", &gzip(b"1,0\n")),
        ("raw/relations/paper___cites___paper/num-edge-list.csv.gz", &gzip(b"1\n")),
        ("raw/node-feat/paper/node-feat.csv.gz", &gzip(b"1,0.5\n0,1e-1\n0,0\n-2,3\n")),
        ("raw/node-label/paper/node-label.csv.gz", &gzip(b"1\n\n0.0\nnan\n")),
        ("split/time/paper/train.csv.gz", &gzip(b"2\n")),
        ("split/time/paper/valid.csv.gz", &gzip(b"0\n")),
        ("split/time/nodetype-has-split.csv.gz", &gzip(b"paper,author\nTrue,False\n")),
    ];
    let archives = |folder: &Path| {
        let raw = folder.join("raw");
        std::fs::create_dir(&raw).expect("a folder");
        let write = |name: &str, arrays: &[(&str, &[usize], &[i64])]| {
            let written = NpzWriter::write_file(&raw.join(name), |npz| {
                arrays.iter().try_for_each(|(name, shape, values)| npz.array(name, shape, values))
            });
            written.expect("a file");
        };
        write("num_nodes_dict.npz", &[("author", &[1], &[2]), ("paper", &[1], &[4])]);
        write("num_edges_dict.npz", &[("author___writes___paper", &[1], &[3])]);
        write("edge_index_dict.npz", &[("author___writes___paper", &[2, 3], &[0, 1, 1, 0, 2, 3])]);
        write("node_feat_dict.npz", &[("paper", &[4, 1], &[1, 2, 3, 4])]);
        write("node-label.npz", &[("paper", &[4, 1], &[1, -1, 0, 0])]);
    };
    vec![Input::folder(&text), written(archives)]
}

pub(crate) fn ogb() -> Vec<Input> {
    let parts: [(&str, &[u8]); 4] = [
        ("raw/edge_weight.csv.gz", &gzip(b"0.5\n2\n")),
        ("split/time/train.csv.gz", &gzip(b"2\n")),
        ("split/time/valid.csv.gz", &gzip(b"0\n")),
        ("split/time/test.csv.gz", &gzip(b"3\n1\n")),
    ];
    vec![ogb_with(&parts)]
}
