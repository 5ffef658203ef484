//! Random typed data: up to four types with difficult names, some of them empty.

use std::sync::Arc;

use girih_datasets::{Dataset, Features, Labels, Names, Split, TypeFeatures, TypedData, UNLABELLED};
use girih_graph_format::{Coo, Csr, Duplicates, EdgeType, Matrix, NodeId, NodeType, Schema, TypedGraph};
use girih_random::{Key, Stream};

const NAMES: [&str; 12] = [
    "paper",
    "two words",
    "it's \"quoted\"",
    "größe",
    "論文",
    "a.b",
    "x_y",
    "http://example.org/a#b",
    "back\\slash",
    "tab\tand\nline",
    "rev_x",
    "UPPER",
];

/// Data whose every part is drawn.
pub fn random(seed: u64) -> Dataset {
    let mut stream = Key::new(seed, 7).stream(0, 0);
    let node_types = node_types(&mut stream);
    let graph = graph(&node_types, &mut stream);
    let target = stream.below(node_types.len() as u64) as usize;
    let features: Vec<TypeFeatures> = node_types.iter().map(|of| features(of.n_nodes, &mut stream)).collect();
    let (n_all, first) = (graph.n_nodes(), graph.schema().first(target));
    let (labels, classes) = labels(n_all, first..first + node_types[target].n_nodes, &mut stream);
    let splits = (0..stream.below(3)).map(|_| split(first, node_types[target].n_nodes, &mut stream)).collect();
    let names = (stream.below(2) == 0).then(|| {
        let nodes = (0..n_all).map(|i| NAMES[(i * 5 + seed as usize % 7) % NAMES.len()]).collect();
        Arc::new(Names { nodes, classes })
    });
    let (typed, plain) = if node_types.len() == 1 {
        let [features] = &features[..] else { unreachable!() };
        let plain = if let TypeFeatures::Given(rows) = features { Some(rows.clone()) } else { None };
        (TypedData { graph, features: Vec::new(), target }, plain)
    } else {
        (TypedData { graph, features, target }, None)
    };
    let dataset = Dataset::of_typed("data", typed).unwrap();
    let dataset = Dataset { features: plain, labels, splits, names, ..dataset };
    dataset.validate().unwrap();
    dataset
}

fn node_types(stream: &mut Stream) -> Vec<NodeType> {
    let mut names = NAMES.to_vec();
    stream.shuffle(&mut names);
    let n_types = 1 + stream.below(4) as usize;
    names[..n_types]
        .iter()
        .map(|name| NodeType { name: (*name).to_owned(), n_nodes: stream.below(6) as usize })
        .collect()
}

fn graph(types: &[NodeType], stream: &mut Stream) -> TypedGraph {
    let (mut edge_types, mut relations): (Vec<EdgeType>, Vec<Csr>) = (Vec::new(), Vec::new());
    for number in 0..stream.below(5) {
        let [source, destination] = [0; 2].map(|_| stream.below(types.len() as u64) as usize);
        let relation = NAMES[(number as usize * 3) % NAMES.len()].to_owned();
        let (n_rows, n_cols) = (types[destination].n_nodes, types[source].n_nodes);
        let n_edges = if n_rows * n_cols == 0 { 0 } else { stream.below(9) };
        let ids = |n: usize, stream: &mut Stream| (0..n_edges).map(|_| stream.below(n as u64) as NodeId).collect();
        let (rows, cols): (Vec<_>, Vec<_>) = (ids(n_rows, stream), ids(n_cols, stream));
        let adjacency = Coo::new(n_rows, n_cols, rows, cols, None).unwrap().to_csr(Duplicates::Merge).unwrap();
        edge_types.push(EdgeType { relation, source, destination, reverse_of: None });
        relations.push(adjacency);
    }
    let graph = TypedGraph::new(Schema::new(types.to_vec(), edge_types).unwrap(), relations).unwrap();
    // A relation may be called as a reverse that would be added.
    if stream.below(2) == 0 { graph.with_reverses().unwrap_or(graph) } else { graph }
}

fn features(n_nodes: usize, stream: &mut Stream) -> TypeFeatures {
    let width = stream.below(4) as usize;
    let values: Vec<f32> = (0..n_nodes * width).map(|_| stream.below(3) as f32 - 0.5).collect();
    match stream.below(5) {
        0 => TypeFeatures::None,
        1 => TypeFeatures::Learned(None),
        2 => TypeFeatures::Learned(Some(1 + width)),
        3 => TypeFeatures::Given(Features::Dense(Matrix::new(n_nodes, width, values).unwrap())),
        _ => {
            let matrix = Csr::of_nonzeros(&Matrix::new(n_nodes, width, values).unwrap()).unwrap();
            let matrix = if stream.below(2) == 0 { matrix.with_values(None).unwrap() } else { matrix };
            TypeFeatures::Given(Features::Sparse(matrix))
        }
    }
}

fn labels(n_all: usize, ids: std::ops::Range<usize>, stream: &mut Stream) -> (Option<Labels>, Vec<String>) {
    let class_names = || vec!["no".to_owned(), "ye\\s".to_owned(), String::new()];
    match stream.below(3) {
        0 => (None, Vec::new()),
        1 => {
            let mut classes = vec![UNLABELLED; n_all];
            classes[ids].iter_mut().for_each(|class| *class = [0, 1, UNLABELLED][stream.below(3) as usize]);
            (Some(Labels::Single { n_classes: 3, classes }), class_names())
        }
        _ => {
            let mut targets = vec![0.0; n_all * 3];
            targets[ids.start * 3..ids.end * 3].iter_mut().for_each(|target| *target = stream.below(2) as f32);
            let targets = Matrix::new(n_all, 3, targets).unwrap();
            (Some(Labels::Multi { n_classes: 3, targets }), class_names())
        }
    }
}

fn split(first: usize, n_nodes: usize, stream: &mut Stream) -> Split {
    let mut split = Split::default();
    for node in first..first + n_nodes {
        match stream.below(4) {
            0 => split.train.push(node as NodeId),
            1 => split.val.push(node as NodeId),
            2 => split.test.push(node as NodeId),
            _ => {}
        }
    }
    split
}
