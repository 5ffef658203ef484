//! [`Chances`]: how likely draws are, as running sums of integers.

use girih_graph_format::Csr;

use crate::NodeId;
use crate::bias::{RowBias, running_sums};

/// Chances of numbered things to be drawn, such as nodes; exact, as those of a row in a [`Bias`](crate::Bias).
#[derive(Clone, Debug, Default)]
pub(crate) struct Chances {
    running: Vec<u64>,
}

impl Chances {
    /// In proportion to `weights`, which are finite and not negative.
    pub(crate) fn new(weights: &[f64]) -> Self {
        let mut running = vec![0; weights.len()];
        running_sums(weights.iter().copied(), &mut running);
        Self { running }
    }

    /// Of nodes, in proportion to the squared norms of their columns: what a node adds to the mean over neighbours, summed over
    /// all rows (Chen et al., FastGCN, ICLR 2018, section 3.2).
    pub(crate) fn of_columns(graph: &Csr) -> Self {
        let mut norms = vec![0.0; graph.n_cols()];
        for row in 0..graph.n_rows() {
            mean_weights(graph, row).for_each(|(source, weight)| norms[source as usize] += weight * weight);
        }
        Self::new(&norms)
    }

    /// How many things there are.
    pub(crate) fn len(&self) -> usize {
        self.running.len()
    }

    /// The running sums.
    pub(crate) fn sums(&self) -> RowBias<'_> {
        RowBias::new(&self.running)
    }

    /// The chance of thing `i` in one draw.
    pub(crate) fn of(&self, i: usize) -> f64 {
        let sums = self.sums();
        sums.weight(i as u32) as f64 / sums.total() as f64
    }
}

/// The sources of a row, and what each counts in the mean over the row's neighbours, weighted if the graph is.
pub(crate) fn mean_weights(graph: &Csr, row: usize) -> impl Iterator<Item = (NodeId, f64)> + '_ {
    let entries = move || graph.row_entries(row).map(|(source, weight)| (source, f64::from(weight).abs()));
    let sum: f64 = entries().map(|(_, weight)| weight).sum();
    entries().filter(move |_| sum > 0.0).map(move |(source, weight)| (source, weight / sum))
}
