//! [`Auto`]: the order that a device is predicted to multiply quickest with.

use std::time::Instant;

use girih_graph_format::{Csr, Permutation, ReuseCurve};
use girih_machine::{Hierarchy, Machine, Product};

use crate::{OrderKind, Progress, Reorder, ReorderError, square};

/// Reads that predictions look at: half a percent of error is less than what the device's figures are off.
const READS_LOOKED_AT: usize = 1 << 20;
/// Orders worth a try, the quickest to find first, with the non-zeros that two cores number in a second, about. Figures
/// instead of the clock, so that the same graph and device give the same order. Clusters of METIS and SlashBurn take
/// ten times as long, and were ahead of communities on no graph (`docs/reordering.md`).
const CANDIDATES: [(OrderKind, f64); 3] =
    [(OrderKind::Degree, 1e9), (OrderKind::Community, 2e7), (OrderKind::Rcm, 1e7)];
/// An order has to be predicted to leave less than this share of the time; predictions are not better than that.
const WORTH_IT: f64 = 0.97;

/// Tries orders on a graph, predicts from how often caches would hold what a product reads ([`ReuseCurve`]) how long
/// one takes on a device, and picks the quickest. Orders that take longer to find than they could still save are not
/// tried.
#[derive(Clone, Debug, PartialEq)]
pub struct Auto {
    /// What multiplies.
    pub device: Hierarchy,
    /// Bytes of a row of the operand.
    pub row_bytes: usize,
    /// Products that the order is for.
    pub n_products: f64,
    /// Equal ranges of ids that nodes stay in ([`Blockwise`](crate::Blockwise)); one for the whole graph.
    pub blocks: usize,
}

/// What [`Auto`] picked.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The order's kind; [`OrderKind::None`] when none pays.
    pub kind: OrderKind,
    /// The order.
    pub order: Permutation,
    /// Seconds of a product in the order that there was, predicted.
    pub seconds_before: f64,
    /// Seconds of a product in the chosen order, predicted.
    pub seconds_after: f64,
    /// Seconds that the choice took: all orders tried, and what was predicted of them.
    pub seconds_spent: f64,
    /// Every order tried.
    pub tried: Vec<Tried>,
}

/// An order that was tried.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tried {
    /// Its kind.
    pub kind: OrderKind,
    /// Seconds that it took to find, apply and judge.
    pub seconds: f64,
    /// Seconds of a product in it, predicted.
    pub product_seconds: f64,
}

impl Choice {
    /// Products after which the choice has paid for itself; none when it gains nothing.
    #[must_use]
    pub fn break_even(&self) -> Option<f64> {
        let saved = self.seconds_before - self.seconds_after;
        (saved > 0.0).then(|| self.seconds_spent / saved)
    }
}

impl Auto {
    /// The processor at hand, operands of 128 columns of `f32`, and as many products as some hundreds of epochs take.
    #[must_use]
    pub fn here(blocks: usize) -> Self {
        let device = Hierarchy::of_processor(&Machine::here());
        Self { device, row_bytes: 128 * size_of::<f32>(), n_products: 1000.0, blocks }
    }

    /// Picks an order of `graph`, the same each time for the same device.
    ///
    /// # Errors
    /// When `graph` is not square, or an order fails.
    pub fn choose(&self, graph: &Csr, progress: &Progress<'_>) -> Result<Choice, ReorderError> {
        square(graph)?;
        let start = Instant::now();
        let seconds_before = self.product_seconds(graph);
        let mut best = (OrderKind::None, Permutation::identity(graph.n_rows()), seconds_before);
        let mut tried = Vec::new();
        for (i, (kind, rate)) in CANDIDATES.into_iter().enumerate() {
            let most_saved = self.n_products * (WORTH_IT * best.2 - self.floor(graph));
            if graph.nnz() as f64 / rate >= most_saved {
                continue;
            }
            let trial = Instant::now();
            let of_this = |share| progress((i as f64 + share) / CANDIDATES.len() as f64);
            let order = kind.order(self.blocks, 0).order_with(graph, &of_this)?;
            let product_seconds = self.product_seconds(&graph.permuted(&order));
            tried.push(Tried { kind, seconds: trial.elapsed().as_secs_f64(), product_seconds });
            if product_seconds < WORTH_IT * best.2 {
                best = (kind, order, product_seconds);
            }
        }
        let (kind, order, seconds_after) = best;
        let seconds_spent = start.elapsed().as_secs_f64();
        Ok(Choice { kind, order, seconds_before, seconds_after, seconds_spent, tried })
    }

    /// Seconds of a product with the graph as it is numbered, predicted.
    #[must_use]
    pub fn product_seconds(&self, graph: &Csr) -> f64 {
        let reuse = ReuseCurve::of(graph, READS_LOOKED_AT);
        self.device.seconds_in_passes(&self.product(graph), |rows| reuse.hit_rate(rows))
    }

    /// No order takes less than one whose reads all hit the nearest cache.
    fn floor(&self, graph: &Csr) -> f64 {
        self.device.seconds(&self.product(graph), |_| 1.0)
    }

    fn product(&self, graph: &Csr) -> Product {
        Product { n_rows: graph.n_rows(), nnz: graph.nnz(), row_bytes: self.row_bytes }
    }
}

impl Reorder for Auto {
    fn name(&self) -> String {
        if self.blocks > 1 { format!("auto in {} blocks", self.blocks) } else { "auto".to_owned() }
    }

    fn order_with(&self, graph: &Csr, progress: &Progress<'_>) -> Result<Permutation, ReorderError> {
        Ok(self.choose(graph, progress)?.order)
    }
}
