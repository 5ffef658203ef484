//! Small random graphs and data, equal for a seed on every machine.

use girih_datasets::{Features, Labels, Split, UNLABELLED};
use girih_graph_format::{Coo, Csr, Duplicates, Matrix, Permutation};
use girih_random::{Key, Stream};

/// Number of nodes of the largest graph.
const MAX_NODES: u64 = 24;
/// Random purpose, distinct from those of the library.
const PURPOSE: u32 = 0x7261_6e64;

/// Random draws of one seed for one subject.
pub struct Draws(Stream);

impl Draws {
    /// Draws for `subject`, independent of other subjects.
    pub fn new(seed: u64, subject: u64) -> Self {
        Self(Key::new(seed, PURPOSE).child(subject).stream(0, 0))
    }

    /// Random number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0.below(bound as u64) as usize
    }

    /// Random number from `low` to `high`, inclusive.
    pub fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    /// True with probability 1/n.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// Random element of `values`.
    pub fn one_of<T: Clone>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())].clone()
    }

    /// Standard normal number.
    pub fn normal(&mut self) -> f32 {
        self.0.normal()
    }

    /// Uniform number from 0 to 1.
    pub fn unit(&mut self) -> f32 {
        self.0.unit_f32()
    }

    /// Random permutation of `items`.
    pub fn shuffled<T>(&mut self, mut items: Vec<T>) -> Vec<T> {
        self.0.shuffle(&mut items);
        items
    }
}

/// Distribution of edge weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weights {
    /// No weights: every edge counts one.
    None,
    /// Plain weights, from 0.1 to 3.
    Plain,
    /// Integers from 1 to 9.
    Integer,
    /// Plain weights divided by a million.
    Tiny,
    /// Plain weights times a million.
    Large,
    /// Log-uniform, from 10⁻⁶ to 10⁶.
    Wide,
    /// Plain weights, some of which are zero.
    Zeros,
    /// Normal numbers, about half of them negative.
    Negative,
}

impl Weights {
    fn draw(self, draws: &mut Draws) -> f32 {
        let plain = 0.1 + 2.9 * draws.unit();
        match self {
            Self::None => 1.0,
            Self::Plain => plain,
            Self::Integer => draws.between(1, 9) as f32,
            Self::Tiny => plain * 1e-6,
            Self::Large => plain * 1e6,
            Self::Wide => 10f32.powf(12.0 * draws.unit() - 6.0),
            Self::Zeros if draws.one_in(3) => 0.0,
            Self::Zeros => plain,
            Self::Negative => draws.normal(),
        }
    }
}

/// Graph of at most 24 nodes, as its original edge list and as a matrix.
#[derive(Clone, Debug)]
pub struct SmallGraph {
    /// Number of nodes, at least one.
    pub n: usize,
    /// Destination, source and weight of every edge, including parallel edges.
    pub edges: Vec<(u32, u32, f32)>,
    /// Distribution of the weights.
    pub weights: Weights,
    /// Rule for parallel edges.
    pub duplicates: Duplicates,
    /// Adjacency matrix.
    pub csr: Csr,
}

impl SmallGraph {
    /// Random graph.
    pub fn new(draws: &mut Draws) -> Self {
        let n = match draws.below(8) {
            0 => 1,
            1 => 2,
            _ => draws.between(3, MAX_NODES as usize),
        };
        let kinds = [
            Weights::None,
            Weights::None,
            Weights::None,
            Weights::Plain,
            Weights::Integer,
            Weights::Tiny,
            Weights::Large,
            Weights::Wide,
            Weights::Zeros,
            Weights::Negative,
        ];
        let (weights, symmetric) = (draws.one_of(&kinds), draws.one_in(2));
        let duplicates = draws.one_of(&[Duplicates::Merge, Duplicates::Sum, Duplicates::Keep]);
        let edges = edges(draws, n, weights, symmetric);
        let csr = matrix(n, &edges, weights, duplicates);
        Self { n, edges, weights, duplicates, csr }
    }

    /// Weight of every pair of nodes; `None` without an edge.
    pub fn dense(&self) -> Vec<Vec<Option<f64>>> {
        dense(&self.csr)
    }

    /// Whether the graph has a negative weight.
    pub fn has_negative(&self) -> bool {
        self.csr.values().is_some_and(|values| values.iter().any(|&w| w < 0.0))
    }
}

/// Random edge list: none, all pairs, a star, a path, or random edges with self-loops and parallel edges.
fn edges(draws: &mut Draws, n: usize, weights: Weights, symmetric: bool) -> Vec<(u32, u32, f32)> {
    let ids = 0..n as u32;
    let pairs: Vec<(u32, u32)> = match draws.below(12) {
        0 => Vec::new(),
        1 => ids.clone().flat_map(|v| ids.clone().map(move |u| (v, u))).collect(),
        2 => ids.clone().skip(1).map(|v| (0, v)).collect(),
        3 => ids.clone().skip(1).map(|v| (v, v - 1)).collect(),
        _ => {
            // Few edges leave nodes isolated; many edges include parallel ones.
            let n_edges = draws.below(draws_per_node(n) + 1);
            // In some graphs, only the first nodes have edges.
            let reach = if draws.one_in(4) { n.div_ceil(2) } else { n };
            (0..n_edges).map(|_| (draws.below(reach) as u32, draws.below(reach) as u32)).collect()
        }
    };
    let mut edges = Vec::new();
    for (v, u) in draws.shuffled(pairs) {
        let weight = weights.draw(draws);
        edges.push((v, u, weight));
        if symmetric && u != v {
            edges.push((u, v, weight));
        }
    }
    edges
}

fn draws_per_node(n: usize) -> usize {
    4 * n
}

/// Matrix of an edge list, built by the library.
fn matrix(n: usize, edges: &[(u32, u32, f32)], weights: Weights, duplicates: Duplicates) -> Csr {
    let rows = edges.iter().map(|edge| edge.0).collect();
    let cols = edges.iter().map(|edge| edge.1).collect();
    let values = (weights != Weights::None).then(|| edges.iter().map(|edge| edge.2).collect());
    Coo::new(n, n, rows, cols, values).unwrap().to_csr(duplicates).unwrap()
}

/// Dense table of a matrix; `None` without an entry.
pub fn dense(csr: &Csr) -> Vec<Vec<Option<f64>>> {
    let mut dense = vec![vec![None; csr.n_cols()]; csr.n_rows()];
    for v in 0..csr.n_rows() {
        for (u, weight) in csr.row_entries(v) {
            assert!(dense[v][u as usize].replace(f64::from(weight)).is_none(), "entry {v}, {u} twice");
        }
    }
    dense
}

/// Values of features, row by row, including zeros and negative values.
fn feature_values(draws: &mut Draws, n: usize, width: usize) -> Vec<f32> {
    let kind = draws.below(4);
    let mut value = || match kind {
        0 => draws.normal(),
        1 => [0.0, draws.normal()][draws.below(2)],
        2 => [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, draws.normal()][draws.below(10)],
        _ => draws.below(7) as f32 - 3.0,
    };
    let values: Vec<f32> = (0..n * width).map(|_| value()).collect();
    if draws.one_in(16) { vec![0.0; n * width] } else { values }
}

/// Random features of `n` nodes, dense or sparse.
pub fn features(draws: &mut Draws, n: usize) -> Features {
    let width = draws.between(1, 20);
    let values = feature_values(draws, n, width);
    if draws.one_in(2) {
        return Features::Dense(Matrix::new(n, width, values).unwrap());
    }
    let entries: Vec<(usize, f32)> = values.into_iter().enumerate().filter(|(_, value)| *value != 0.0).collect();
    let rows = entries.iter().map(|(at, _)| (at / width) as u32).collect();
    let cols = entries.iter().map(|(at, _)| (at % width) as u32).collect();
    let values = entries.iter().map(|(_, value)| *value).collect();
    Features::Sparse(Coo::new(n, width, rows, cols, Some(values)).unwrap().to_csr(Duplicates::Refuse).unwrap())
}

/// Rows of features as `f64`.
pub fn feature_rows(features: &Features) -> Vec<Vec<f64>> {
    let rows = |matrix: &Matrix| -> Vec<Vec<f64>> {
        (0..matrix.n_rows()).map(|v| matrix.row(v).iter().map(|&x| f64::from(x)).collect()).collect()
    };
    match features {
        Features::Dense(matrix) => rows(matrix),
        Features::Sparse(csr) => {
            let zero = |row: Vec<Option<f64>>| row.into_iter().map(|x| x.unwrap_or(0.0)).collect();
            dense(csr).into_iter().map(zero).collect()
        }
        Features::Compressed(codes) => {
            let mut values = vec![0.0; codes.n_rows() * codes.width()];
            codes.decode(0, &mut values);
            rows(&Matrix::new(codes.n_rows(), codes.width(), values).unwrap())
        }
    }
}

/// Random labels of `n` nodes: one of a few classes or unlabelled, or several classes per node.
pub fn labels(draws: &mut Draws, n: usize) -> Labels {
    let n_classes = draws.between(1, 4);
    if draws.one_in(4) {
        let targets = (0..n * n_classes).map(|_| draws.below(2) as f32).collect::<Vec<_>>();
        return Labels::Multi { n_classes, targets: Matrix::new(n, n_classes, targets).unwrap() };
    }
    let class = |draws: &mut Draws| if draws.one_in(5) { UNLABELLED } else { draws.below(n_classes) as u32 };
    Labels::Single { n_classes, classes: (0..n).map(|_| class(draws)).collect() }
}

/// Random split of `n` nodes. Parts may be empty.
pub fn split(draws: &mut Draws, n: usize) -> Split {
    let mut split = Split::default();
    for v in 0..n as u32 {
        match draws.below(4) {
            0 => split.train.push(v),
            1 => split.val.push(v),
            2 => split.test.push(v),
            _ => {}
        }
    }
    split
}

/// Random permutation of `n` nodes.
pub fn numbering(draws: &mut Draws, n: usize) -> Permutation {
    Permutation::from_new_of_old(draws.shuffled((0..n as u32).collect())).unwrap()
}
