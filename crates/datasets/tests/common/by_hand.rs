//! Typed data built by hand, to compare with what loaders make of files.

use girih_datasets::{Dataset, Features, Labels, Split, TypeFeatures, TypedData, UNLABELLED};
use girih_graph_format::{Coo, Csr, Duplicates, EdgeType, Matrix, NodeId, NodeType, Schema, TypedGraph};

/// Relation: names of its parts, and pairs of ids of sources and destinations.
pub type Listed<'a> = ([&'a str; 3], &'a [(NodeId, NodeId)]);

/// Two rows, of sources and of destinations.
pub fn rows_of(pairs: &[(NodeId, NodeId)]) -> Vec<i64> {
    let sources = pairs.iter().map(|pair| i64::from(pair.0));
    sources.chain(pairs.iter().map(|pair| i64::from(pair.1))).collect()
}

/// Width and values of features, if there are any.
pub type Rows<'a> = Option<(usize, &'a [f32])>;

/// Typed data by ids inside the types.
pub struct ByHand<'a> {
    pub name: &'a str,
    /// Types, ascending, with their numbers of nodes and their features.
    pub types: &'a [(&'a str, usize, Rows<'a>)],
    pub relations: &'a [Listed<'a>],
    pub target: usize,
    /// Classes of the target's nodes, negative where unknown, and the number of classes.
    pub classes: (&'a [i64], usize),
    /// Training, validation and test nodes.
    pub split: [&'a [NodeId]; 3],
}

impl ByHand<'_> {
    /// Data in which each relation has its reverse.
    pub fn dataset(&self) -> Dataset {
        let number = |name: &str| self.types.iter().position(|of| of.0 == name).unwrap();
        let node_types: Vec<NodeType> =
            self.types.iter().map(|&(name, n_nodes, _)| NodeType { name: name.to_owned(), n_nodes }).collect();
        let edge_type = |([source, relation, destination], _): &Listed<'_>| EdgeType {
            relation: (*relation).to_owned(),
            source: number(source),
            destination: number(destination),
            reverse_of: None,
        };
        let edge_types: Vec<EdgeType> = self.relations.iter().map(edge_type).collect();
        let adjacency = |(of, (_, pairs)): (&EdgeType, &Listed<'_>)| -> Csr {
            let (sources, destinations) = pairs.iter().copied().unzip();
            let (n_rows, n_cols) = (node_types[of.destination].n_nodes, node_types[of.source].n_nodes);
            Coo::new(n_rows, n_cols, destinations, sources, None).unwrap().to_csr(Duplicates::Refuse).unwrap()
        };
        let adjacencies = edge_types.iter().zip(self.relations).map(adjacency).collect();
        let schema = Schema::new(node_types, edge_types).unwrap();
        let graph = TypedGraph::new(schema, adjacencies).unwrap().with_reverses().unwrap();
        self.with_nodes(graph)
    }

    fn with_nodes(&self, graph: TypedGraph) -> Dataset {
        let (first, n_all) = (graph.schema().first(self.target), graph.n_nodes());
        let features = self.types.iter().map(|&(_, n_nodes, features)| match features {
            None => TypeFeatures::None,
            Some((width, values)) => {
                TypeFeatures::Given(Features::Dense(Matrix::new(n_nodes, width, values.to_vec()).unwrap()))
            }
        });
        let mut features: Vec<TypeFeatures> = features.collect();
        let only = if features.len() == 1 { features.pop() } else { None };
        let plain = only.and_then(|of| if let TypeFeatures::Given(rows) = of { Some(rows) } else { None });
        let mut classes = vec![UNLABELLED; n_all];
        for (class, all) in self.classes.0.iter().zip(&mut classes[first..]) {
            *all = u32::try_from(*class).unwrap_or(UNLABELLED);
        }
        let part = |nodes: &[NodeId]| nodes.iter().map(|node| node + first as NodeId).collect();
        let [train, val, test] = self.split.map(part);
        let typed = TypedData { graph, features, target: self.target };
        let dataset = Dataset {
            features: plain,
            labels: Some(Labels::Single { n_classes: self.classes.1, classes }),
            splits: vec![Split { train, val, test }],
            ..Dataset::of_typed(self.name, typed).unwrap()
        };
        dataset.validate().unwrap();
        dataset
    }
}
