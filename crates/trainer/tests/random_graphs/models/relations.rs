//! R-GCN on graphs whose edges are dealt to relations.

use girih_graph_format::{Coo, Duplicates, EdgeType, NodeType, Schema, TypedGraph};
use girih_trainer::SelfWeight;

use super::{Reference, whole_weight};
use crate::bounded::{Bounded, Rows, map, plus_row, product};
use crate::graphs::{Draws, SmallGraph};

/// Graph with types: its edges are dealt to relations, and its nodes to types.
pub(super) struct Typed {
    pub(super) graph: TypedGraph,
    /// Edges of each relation: row `v` has the in-neighbors of node `v`.
    pub(super) relations: Vec<Vec<Vec<usize>>>,
    /// Type of each node.
    pub(super) types: Vec<usize>,
}

impl Typed {
    pub(super) fn new(draws: &mut Draws, graph: &SmallGraph) -> Self {
        let n = graph.n;
        let (n_first, n_colours) = (draws.between(0, n), draws.between(1, 3));
        let types: Vec<usize> = (0..n).map(|v| usize::from(v >= n_first)).collect();
        let node_types = [("a", n_first), ("b", n - n_first)];
        let node_types = node_types.map(|(name, n_nodes)| NodeType { name: name.to_owned(), n_nodes }).into();
        let ends = (0..n_colours).flat_map(|colour| [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(s, d)| (colour, s, d)));
        let ends: Vec<(usize, usize, usize)> = ends.collect();
        let of_end = |&(colour, source, destination): &(usize, usize, usize)| EdgeType {
            relation: format!("r{colour}"),
            source,
            destination,
            reverse_of: None,
        };
        let schema = Schema::new(node_types, ends.iter().map(of_end).collect()).unwrap();
        let mut relations = vec![vec![Vec::new(); n]; ends.len()];
        for v in 0..n {
            for &u in graph.csr.row(v) {
                let wanted = (draws.below(n_colours), types[u as usize], types[v]);
                relations[ends.iter().position(|ends| *ends == wanted).unwrap()][v].push(u as usize);
            }
        }
        let list = |(relation, &(_, source, destination)): (&Vec<Vec<usize>>, &(usize, usize, usize))| {
            let [source, destination] = [source, destination].map(|end| schema.first(end));
            let entries = relation.iter().enumerate().flat_map(|(v, row)| row.iter().map(move |&u| (v, u)));
            entries.map(|(v, u)| ((v - destination) as u32, (u - source) as u32)).unzip()
        };
        let lists: Vec<(Vec<u32>, Vec<u32>)> = relations.iter().zip(&ends).map(list).collect();
        let csrs = lists.into_iter().enumerate().map(|(number, (rows, cols))| {
            let (n_rows, n_cols) = schema.shape(number);
            Coo::new(n_rows, n_cols, rows, cols, None).unwrap().to_csr(Duplicates::Refuse).unwrap()
        });
        let csrs = csrs.collect();
        Self { graph: TypedGraph::new(schema, csrs).unwrap(), relations, types }
    }
}

impl Reference<'_> {
    /// Schlichtkrull et al. (2018), equations 2 and 3, with means over the neighbors of each relation.
    pub(super) fn rgcn(&self) -> Rows {
        let layers = self.config.layers;
        let mut x = self.features.clone();
        for layer in 0..layers {
            let learns_rows = x.is_empty();
            let outputs = self.param(layer, "bias")[0].len();
            // Product of the weight of a relation with the row of a node.
            let product_of = |relation: usize, u: usize| -> Vec<Bounded> {
                if learns_rows {
                    return self.learned_row(relation, u, outputs);
                }
                let weight = self.weight_of_relation(layer, relation, x[u].len());
                let row = |c: usize| Bounded::dot((0..x[u].len()).map(|k| (x[u][k], weight[k * outputs + c])));
                (0..outputs).map(row).collect()
            };
            let rows = (0..self.n()).map(|v| {
                let mut sum = self.own_product(layer, (&x, v), outputs);
                for (relation, neighbors) in self.relations.iter().enumerate().filter(|(_, of)| !of[v].is_empty()) {
                    let products: Rows = neighbors[v].iter().map(|&u| product_of(relation, u)).collect();
                    for (c, sum) in sum.iter_mut().enumerate() {
                        let share = Bounded::from(1.0).over((products.len() as f64).into());
                        let mean = Bounded::dot(products.iter().map(|product| (product[c], share)));
                        *sum = sum.plus(mean);
                    }
                }
                sum
            });
            let out = plus_row(rows.collect(), self.param(layer, "bias"));
            x = if layer + 1 == layers { out } else { map(out, Bounded::relu) };
        }
        x
    }

    /// Product of a node's own row, or zeros.
    fn own_product(&self, layer: usize, (x, v): (&Rows, usize), outputs: usize) -> Vec<Bounded> {
        if self.config.self_weight == SelfWeight::None {
            return vec![Bounded::default(); outputs];
        }
        let own = self.param(layer, "self");
        match (x.is_empty(), self.config.self_weight) {
            (true, _) => own[v].clone(),
            (false, SelfWeight::Type) => {
                let weight = &own[self.types[v]];
                (0..outputs)
                    .map(|c| Bounded::dot((0..x[v].len()).map(|k| (x[v][k], weight[k * outputs + c]))))
                    .collect()
            }
            (false, SelfWeight::Relation) => {
                let mut sum = vec![Bounded::default(); outputs];
                for relation in (0..self.relations.len()).filter(|&relation| self.ends_in(relation, self.types[v])) {
                    let weight = &own[relation];
                    for (c, sum) in sum.iter_mut().enumerate() {
                        let terms = (0..x[v].len()).map(|k| (x[v][k], weight[k * outputs + c]));
                        *sum = sum.plus(Bounded::dot(terms));
                    }
                }
                sum
            }
            (false, _) => product(&vec![x[v].clone()], own, outputs).remove(0),
        }
    }

    /// Whether a relation ends in a node type, by the order of [`Typed`]: of each colour, (0, 0), (0, 1), (1, 0), (1, 1).
    fn ends_in(&self, relation: usize, node_type: usize) -> bool {
        relation % 2 == node_type
    }

    /// Elements of the weight of a relation, row by row.
    fn weight_of_relation(&self, layer: usize, relation: usize, inputs: usize) -> Vec<Bounded> {
        if let Some(blocks) = self.params.get(&format!("layer{layer}.blocks")) {
            return whole_weight(&blocks[relation], self.config.blocks, inputs);
        }
        if self.config.bases == 0 {
            return self.param(layer, "weight")[relation].clone();
        }
        let (coefficients, bases) = (self.param(layer, "coefficients"), self.param(layer, "bases"));
        product(&vec![coefficients[relation].clone()], bases, bases[0].len()).remove(0)
    }

    /// Row that a network without features learns for a node and a relation.
    fn learned_row(&self, relation: usize, u: usize, outputs: usize) -> Vec<Bounded> {
        if self.config.bases == 0 {
            let is_source = |relation: usize, u: usize| self.relations[relation].iter().any(|row| row.contains(&u));
            let pairs = (0..self.n()).flat_map(|u| (0..self.relations.len()).map(move |relation| (u, relation)));
            let before =
                pairs.take_while(|&pair| pair != (u, relation)).filter(|&(u, relation)| is_source(relation, u));
            return self.param(0, "weight")[before.count()].clone();
        }
        let (coefficients, bases) = (self.param(0, "coefficients"), self.param(0, "bases"));
        let of_basis = |b: usize, c: usize| (coefficients[relation][b], bases[u][b * outputs + c]);
        (0..outputs).map(|c| Bounded::dot((0..self.config.bases).map(|b| of_basis(b, c)))).collect()
    }
}
