//! [`Chances`]: probabilities of draws, as running sums of integers.

use girih_graph_format::Csr;

use crate::NodeId;
use crate::bias::{RowBias, running_sums};

/// Probabilities with which numbered items, such as nodes, are drawn; exact, as the rows of a [`Bias`](crate::Bias).
#[derive(Clone, Debug, Default)]
pub(crate) struct Chances {
    running: Vec<u64>,
}

impl Chances {
    /// Chances in proportion to `weights`, which are finite and not negative.
    pub(crate) fn new(weights: &[f64]) -> Self {
        let mut running = vec![0; weights.len()];
        running_sums(weights.iter().copied(), &mut running);
        Self { running }
    }

    /// Chances of nodes in proportion to the squared norms of their columns in the mean over neighbors, summed over
    /// all rows (Chen et al., FastGCN, ICLR 2018, section 3.1).
    pub(crate) fn of_columns(graph: &Csr) -> Self {
        let mut norms = vec![0.0; graph.n_cols()];
        for row in 0..graph.n_rows() {
            mean_weights(graph, row).for_each(|(source, weight)| norms[source as usize] += weight * weight);
        }
        Self::new(&norms)
    }

    /// Number of items.
    pub(crate) fn len(&self) -> usize {
        self.running.len()
    }

    /// Running sums of the integer weights.
    pub(crate) fn sums(&self) -> RowBias<'_> {
        RowBias::new(&self.running)
    }

    /// Chance of item `i` in one draw.
    pub(crate) fn of(&self, i: usize) -> f64 {
        let sums = self.sums();
        sums.weight(i as u32) as f64 / sums.total() as f64
    }

    /// Factor from weights to chances in Poisson sampling, so that `count` items are taken on average: the `rate` of
    /// [`poisson`](Self::poisson). Chances are capped at one, and the others grow to keep the sum.
    pub(crate) fn poisson_rate(&self, count: u32) -> f64 {
        let (sums, mut rate) = (self.sums(), 0.0);
        loop {
            let (mut n_certain, mut rest) = (0.0, 0.0);
            for i in 0..self.len() {
                let weight = sums.weight(i as u32) as f64;
                if rate * weight >= 1.0 { n_certain += 1.0 } else { rest += weight }
            }
            if rest == 0.0 {
                return f64::INFINITY;
            }
            let next = (f64::from(count) - n_certain) / rest;
            if next <= rate {
                return rate;
            }
            rate = next;
        }
    }

    /// Chance that Poisson sampling takes item `i`.
    pub(crate) fn poisson(&self, i: usize, rate: f64) -> f64 {
        let weight = self.sums().weight(i as u32);
        if weight == 0 { 0.0 } else { (rate * weight as f64).min(1.0) }
    }
}

/// Sources of a row with their weights in the mean over the row's neighbors, weighted if the graph is.
pub(crate) fn mean_weights(graph: &Csr, row: usize) -> impl Iterator<Item = (NodeId, f64)> + '_ {
    let weight = move |edge: usize| graph.values().map_or(1.0, |weights| f64::from(weights[edge]).abs());
    let range = graph.row_range(row);
    let sum = graph.values().map_or(range.len() as f64, |_| range.clone().map(weight).sum());
    // If the sum is zero, every weight is zero and there is no mean.
    range.filter(move |_| sum > 0.0).map(move |edge| (graph.indices()[edge], weight(edge) / sum))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chances_of_single_things_add_up_to_their_number() {
        let chances = Chances::new(&[8.0, 1.0, 1.0, 0.0, 4.0, 2.0]);
        let poisson = |count| -> Vec<f64> {
            let rate = chances.poisson_rate(count);
            (0..6).map(|i| chances.poisson(i, rate)).collect()
        };
        assert_eq!(poisson(1), [0.5, 0.0625, 0.0625, 0.0, 0.25, 0.125]);
        assert_eq!(poisson(2), [1.0, 0.125, 0.125, 0.0, 0.5, 0.25]);
        // The chance of the second largest reaches one only after that of the largest does.
        assert_eq!(poisson(3), [1.0, 0.25, 0.25, 0.0, 1.0, 0.5]);
        assert_eq!(poisson(5), [1.0, 1.0, 1.0, 0.0, 1.0, 1.0]);
        assert_eq!(poisson(9), poisson(5));
        assert_eq!(Chances::new(&[]).poisson_rate(3), f64::INFINITY);
    }
}
