//! [`LinkSizes`]: numbers of links and pairs, for dry runs.

use girih_compute::{Dtype, Shape, Symbolic, SymbolicMatrix};

use super::sizes::DataSizes;
use crate::config::{DEFAULT_BATCH_SIZE, TrainConfig};
use crate::tape::Targets;
use crate::tasks::links::{Link, Pairs};

/// Expected number of links of each part, and maximal number of pairs of a step.
pub(crate) struct LinkSizes {
    n_all: usize,
    pub(crate) train: usize,
    /// Validation and test pairs.
    pub(crate) held_out_pairs: [usize; 2],
    pub(crate) step_pairs: usize,
    /// Number of edges of the whole graph.
    n_edges: usize,
    width: usize,
}

impl LinkSizes {
    pub(crate) fn new(config: &TrainConfig, data: &DataSizes) -> Self {
        let (n_all, train, held_out_pairs) = match data.edge_split {
            Some([train, val, test]) => (train, train, [val, test]),
            None => {
                let n_all = if data.symmetric { data.n_edges / 2 } else { data.n_edges };
                let of = |share: f64| (share * n_all as f64).round() as usize;
                let held_out = [of(config.links.val), of(config.links.test)];
                // Each has one non-link.
                (n_all, n_all.saturating_sub(held_out[0] + held_out[1]), held_out.map(|n_links| 2 * n_links))
            }
        };
        let batch_size = config.batch.is_sampled().then(|| config.batch_size.unwrap_or(DEFAULT_BATCH_SIZE));
        let step_pairs = batch_size.unwrap_or(train).min(train) * (1 + config.links.negatives);
        Self { n_all, train, held_out_pairs, step_pairs, n_edges: data.n_edges, width: config.links.width }
    }

    /// Sizes of the message graph, for a model with embeddings instead of classes.
    pub(crate) fn messages(&self, data: &DataSizes) -> DataSizes {
        let n_edges = (data.n_edges as u128 * self.train as u128 / self.n_all.max(1) as u128) as usize;
        DataSizes { n_edges, n_classes: self.width, n_train: self.train, ..data.clone() }
    }

    /// Host memory of link prediction: the whole graph, to draw non-links, and the training links.
    pub(crate) fn on_host(&self, symbolic: &Symbolic, data: &DataSizes) -> SymbolicMatrix {
        let graph_words = self.n_edges * if data.weighted { 2 } else { 1 } + 2 * (data.n_nodes + 1);
        let link_words = self.train * size_of::<Link>() / size_of::<f32>();
        symbolic.matrix(Shape::new(graph_words + link_words, 1), Dtype::F32)
    }
}

impl Pairs<Symbolic> {
    /// Symbolic pairs, `n_pairs` of them.
    pub(crate) fn symbolic(symbolic: &Symbolic, n_pairs: usize) -> Self {
        let ids = || symbolic.ids(n_pairs);
        Self {
            n_pairs,
            first: ids(),
            second: ids(),
            diagonal: symbolic.sparse(Shape::new(n_pairs, n_pairs), n_pairs, false, true),
            targets: Targets::Multi(symbolic.matrix(Shape::new(n_pairs, 1), Dtype::F32)),
            all: ids(),
        }
    }
}
