//! [`FeaturesFrom`]: features for graphs that have none, made from the graph itself.

use std::fmt;
use std::str::FromStr;

use girih_graph_format::{Csr, Matrix, NodeId, Notes};
use girih_random::{Key, purpose};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::{DatasetError, Features, Outline};

/// Number of columns of [`FeaturesFrom::Degree`].
pub const DEGREE_COLUMNS: usize = 5;
/// Longest walk of [`FeaturesFrom::RandomWalk`], in steps.
const MAX_STEPS: usize = 256;
/// Widest rows of [`FeaturesFrom::Embedding`].
const MAX_WIDTH: usize = 1 << 20;
/// Largest number of multiplications for exact return probabilities: some minutes of two cores.
const EXACT_COST_MAX: u128 = 200_000_000_000;
/// Number of walks from each node for estimated return probabilities.
const WALKS: usize = 512;
/// Number of start nodes whose distributions are multiplied together.
const BLOCK_COLUMNS: usize = 64;

/// Rule that makes a row of features for each node of a graph without features.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum FeaturesFrom {
    /// Local degree profile (Cai and Wang, 2018) of `log(1 + in-degree)`: the node's own value, then minimum, maximum,
    /// mean and standard deviation over its in-neighbors. Weights are not read.
    Degree,
    /// Identity: one column per node, stored sparse with one value per row.
    OneHot,
    /// Learned row of this width for each node: a parameter of the model.
    Embedding(usize),
    /// Random-walk structural encoding (Dwivedi et al., ICLR 2022): the probability that a walk along edges is back at
    /// its start after 1, 2, … steps, up to this number. All edges of a node are equally likely; weights are not read.
    RandomWalk(usize),
}

/// Method to compute return probabilities of random walks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalkMethod {
    /// Products of the transition matrix with blocks of its columns.
    Exact,
    /// Fractions of this number of drawn walks from each node.
    Drawn(usize),
}

impl WalkMethod {
    /// Exact where `n_nodes · n_edges · n_steps` multiplications are affordable, drawn walks otherwise.
    #[must_use]
    pub fn for_sizes(n_nodes: usize, n_edges: usize, n_steps: usize) -> Self {
        let cost = n_nodes as u128 * n_edges as u128 * n_steps as u128;
        if cost <= EXACT_COST_MAX { Self::Exact } else { Self::Drawn(WALKS) }
    }
}

impl fmt::Display for WalkMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact => f.write_str("exact"),
            Self::Drawn(n) => {
                write!(f, "estimated from {n} walks a node, standard error at most {:.3}", 0.5 / (*n as f64).sqrt())
            }
        }
    }
}

impl FeaturesFrom {
    /// The four rules as users write them, for messages.
    pub const VALUES: &'static str = "degree, onehot, embedding:64 or random-walk:16";

    /// Number of columns for a graph of `n_nodes` nodes.
    #[must_use]
    pub fn width(self, n_nodes: usize) -> usize {
        match self {
            Self::Degree => DEGREE_COLUMNS,
            Self::OneHot => n_nodes,
            Self::Embedding(width) => width,
            Self::RandomWalk(n_steps) => n_steps,
        }
    }

    /// Whether rows are parameters of the model, instead of values that are computed once.
    #[must_use]
    pub fn is_learned(self) -> bool {
        matches!(self, Self::Embedding(_))
    }

    /// Whether a row belongs to one node of the training graph, so that it has no meaning on another graph or under
    /// another numbering.
    #[must_use]
    pub fn knows_nodes(self) -> bool {
        matches!(self, Self::OneHot | Self::Embedding(_))
    }

    /// Number of stored values, if rows are stored sparse.
    #[must_use]
    pub fn n_stored(self, n_nodes: usize) -> Option<usize> {
        (self == Self::OneHot).then_some(n_nodes)
    }

    /// Notes that features are made, for a graph with these numbers of nodes and stored edges.
    pub fn note(self, notes: &mut Notes, n_nodes: usize, n_edges: usize) {
        let what = match self {
            Self::Degree => "the local degree profile of log(1 + in-degree), weights not read".to_owned(),
            Self::OneHot => "a column for each node".to_owned(),
            Self::Embedding(_) => "learned rows, one a node".to_owned(),
            Self::RandomWalk(n_steps) => {
                let method = WalkMethod::for_sizes(n_nodes, n_edges, n_steps);
                format!("return probabilities of random walks of 1 to {n_steps} steps, weights not read, {method}")
            }
        };
        let width = self.width(n_nodes);
        let columns = if width == 1 { "column" } else { "columns" };
        let counts = [("nodes", n_nodes as u64), ("columns", width as u64)];
        notes.make_up("invented_features", format!("features made by {self}: {what} ({width} {columns})"), &counts);
    }

    /// Refuses data that must not get made features.
    ///
    /// # Errors
    /// When the data has features, or users and items.
    pub(crate) fn check_data(self, outline: &Outline) -> Result<(), DatasetError> {
        let Outline { name, n_features, n_users, relations, .. } = outline;
        if relations.node_types.len() > 1 {
            return Err(DatasetError::invalid(format!(
                "{name} has {} types of nodes, whose features belong to types, and --features-from {self} makes rows of \
                 all nodes; leave it out",
                relations.node_types.len()
            )));
        }
        if n_users.is_some() {
            return Err(DatasetError::invalid(format!(
                "{name} has users and items, for each of which lightgcn learns a row by itself; leave --features-from \
                 {self} out, and train --model lightgcn"
            )));
        }
        if *n_features > 0 {
            return Err(DatasetError::invalid(format!(
                "{name} has features of its own ({n_features} columns), and --features-from {self} asks to make others; \
                 leave --features-from out, or give data without features"
            )));
        }
        Ok(())
    }

    /// Makes features of the nodes of `graph`, whose row `v` lists the in-neighbors of `v`; `None` for learned rows.
    /// `method` computes return probabilities; `seed` is the random seed of drawn walks.
    ///
    /// # Errors
    /// When there are too many nodes for a matrix.
    ///
    /// # Panics
    /// When the graph is not square.
    pub fn features(self, graph: &Csr, method: WalkMethod, seed: u64) -> Result<Option<Features>, DatasetError> {
        assert!(graph.is_square(), "features are made for the nodes of a graph");
        Ok(match self {
            Self::Degree => Some(Features::Dense(degree_profile(graph)?)),
            Self::OneHot => Some(Features::Sparse(identity(graph.n_rows())?)),
            Self::Embedding(_) => None,
            Self::RandomWalk(n_steps) => Some(Features::Dense(return_probabilities(graph, n_steps, method, seed)?)),
        })
    }
}

impl fmt::Display for FeaturesFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Degree => f.write_str("degree"),
            Self::OneHot => f.write_str("onehot"),
            Self::Embedding(width) => write!(f, "embedding:{width}"),
            Self::RandomWalk(n_steps) => write!(f, "random-walk:{n_steps}"),
        }
    }
}

impl FromStr for FeaturesFrom {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |name: &str, number: &str, max: usize| match number.parse() {
            Ok(n) if (1..=max).contains(&n) => Ok(n),
            _ => Err(format!("`{number}` in `{text}` must be a number from 1 to {max}, as in {name}")),
        };
        match text.split_once(':') {
            None if text == "degree" => Ok(Self::Degree),
            None if text == "onehot" => Ok(Self::OneHot),
            Some(("embedding", width)) => number("embedding:64", width, MAX_WIDTH).map(Self::Embedding),
            Some(("random-walk", steps)) => number("random-walk:16", steps, MAX_STEPS).map(Self::RandomWalk),
            _ => Err(format!("`{text}` is no rule for features; expected {}", Self::VALUES)),
        }
    }
}

impl TryFrom<String> for FeaturesFrom {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<FeaturesFrom> for String {
    fn from(rule: FeaturesFrom) -> Self {
        rule.to_string()
    }
}

/// Pattern of the `n × n` identity.
fn identity(n: usize) -> Result<Csr, DatasetError> {
    Ok(Csr::new(n, n, (0..=n as u64).collect::<Vec<_>>(), (0..n as NodeId).collect::<Vec<_>>(), None)?)
}

/// Local degree profile, `n × DEGREE_COLUMNS`.
fn degree_profile(graph: &Csr) -> Result<Matrix, DatasetError> {
    let log_degree = |v: usize| (graph.degree(v) as f64).ln_1p();
    let mut values = vec![0.0f32; graph.n_rows() * DEGREE_COLUMNS];
    values.par_chunks_exact_mut(DEGREE_COLUMNS).enumerate().for_each(|(v, row)| {
        row[0] = log_degree(v) as f32;
        let n = graph.degree(v) as f64;
        if n == 0.0 {
            return;
        }
        let neighbors = || graph.row(v).iter().map(|&u| log_degree(u as usize));
        let mean = neighbors().sum::<f64>() / n;
        let variance = neighbors().map(|value| (value - mean).powi(2)).sum::<f64>() / n;
        let (min, max) = (neighbors().fold(f64::INFINITY, f64::min), neighbors().fold(0.0, f64::max));
        for (slot, value) in row[1..].iter_mut().zip([min, max, mean, variance.sqrt()]) {
            *slot = value as f32;
        }
    });
    Ok(Matrix::new(graph.n_rows(), DEGREE_COLUMNS, values)?)
}

/// Diagonals of the first powers of the transition matrix, `n × n_steps`.
fn return_probabilities(graph: &Csr, n_steps: usize, method: WalkMethod, seed: u64) -> Result<Matrix, DatasetError> {
    // Rows list in-neighbors, and walks go along edges.
    let turned;
    let steps_of = if graph.is_symmetric() {
        graph
    } else {
        turned = graph.transposed();
        &turned
    };
    let values = match method {
        WalkMethod::Exact => exact_returns(steps_of, n_steps),
        WalkMethod::Drawn(n_walks) => drawn_returns(steps_of, n_steps, n_walks, seed),
    };
    Ok(Matrix::new(graph.n_rows(), n_steps, values)?)
}

/// Return probabilities by products with [`BLOCK_COLUMNS`] columns at a time, in two buffers of that width.
fn exact_returns(graph: &Csr, n_steps: usize) -> Vec<f32> {
    let n = graph.n_rows();
    let mut returns = vec![0.0f32; n * n_steps];
    let mut buffers = [vec![0.0f32; n * BLOCK_COLUMNS], vec![0.0f32; n * BLOCK_COLUMNS]];
    for first in (0..n).step_by(BLOCK_COLUMNS) {
        let starts = first..n.min(first + BLOCK_COLUMNS);
        let [x, next] = &mut buffers;
        x.par_iter_mut().for_each(|value| *value = 0.0);
        starts.clone().for_each(|v| x[v * BLOCK_COLUMNS + v - first] = 1.0);
        for step in 0..n_steps {
            take_step(graph, x, next);
            std::mem::swap(x, next);
            starts.clone().for_each(|v| returns[v * n_steps + step] = x[v * BLOCK_COLUMNS + v - first]);
        }
    }
    returns
}

/// `next = D⁻¹·A·x`, [`BLOCK_COLUMNS`] columns each; a node without edges gets zeros.
fn take_step(graph: &Csr, x: &[f32], next: &mut [f32]) {
    next.par_chunks_exact_mut(BLOCK_COLUMNS).enumerate().with_min_len(64).for_each(|(v, out)| {
        out.fill(0.0);
        for &u in graph.row(v) {
            let row = &x[u as usize * BLOCK_COLUMNS..][..BLOCK_COLUMNS];
            out.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
        }
        let share = 1.0 / graph.degree(v).max(1) as f32;
        out.iter_mut().for_each(|sum| *sum *= share);
    });
}

/// Fractions of `n_walks` walks from each node that are back after each number of steps. Draws are keyed by node and
/// walk; a walk ends at a node without edges.
fn drawn_returns(graph: &Csr, n_steps: usize, n_walks: usize, seed: u64) -> Vec<f32> {
    let key = Key::new(seed, purpose::FEATURES);
    let mut returns = vec![0.0f32; graph.n_rows() * n_steps];
    returns.par_chunks_exact_mut(n_steps).enumerate().for_each(|(start, row)| {
        for walk in 0..n_walks as u64 {
            let (mut stream, mut at) = (key.stream(start as u64, walk << 32), start);
            for count in row.iter_mut() {
                let Some(below) = Some(graph.degree(at)).filter(|&degree| degree > 0) else { break };
                at = graph.row(at)[stream.below(below as u64) as usize] as usize;
                *count += f32::from(u8::from(at == start));
            }
        }
        row.iter_mut().for_each(|count| *count /= n_walks as f32);
    });
    returns
}
