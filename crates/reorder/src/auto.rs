//! [`Auto`]: the order with the shortest predicted product on a device.

use std::time::Instant;

use girih_graph_format::{Csr, Permutation, ReuseCurve};
use girih_machine::{Hierarchy, Machine, Product};

use crate::{OrderKind, Progress, Reorder, ReorderError, square};

/// Maximum number of reads that a prediction simulates; its error of half a percent is below that of the device's
/// rates.
const READS_LOOKED_AT: usize = 1 << 20;
/// Orders to try, fastest to compute first, with the approximate number of non-zeros per second that two cores order.
/// Constants are used instead of the clock, so that one graph and device always give one order. METIS clusters and
/// SlashBurn take ten times as long, and beat communities on no graph (`docs/reordering.md`).
const CANDIDATES: [(OrderKind, f64); 3] =
    [(OrderKind::Degree, 1e9), (OrderKind::Community, 2e7), (OrderKind::Rcm, 1e7)];
/// Maximum share of the predicted time that a new order may take to be chosen; predictions are no more precise.
const WORTH_IT: f64 = 0.97;

/// Order by prediction: tries orders on a graph, predicts the time of a product on a device from cache hit rates
/// ([`ReuseCurve`]), and picks the fastest. Orders that take longer to compute than they could still save are not
/// tried.
#[derive(Clone, Debug, PartialEq)]
pub struct Auto {
    /// Memory hierarchy of the device that multiplies.
    pub device: Hierarchy,
    /// Bytes of a row of the operand.
    pub row_bytes: usize,
    /// Number of products that the order is for.
    pub n_products: f64,
    /// Number of equal ranges of ids that nodes stay in ([`Blockwise`](crate::Blockwise)); 1 for the whole graph.
    pub blocks: usize,
}

/// Choice of [`Auto`].
#[derive(Clone, Debug)]
pub struct Choice {
    /// Kind of the order; [`OrderKind::None`] if no order pays.
    pub kind: OrderKind,
    /// Permutation of the order.
    pub order: Permutation,
    /// Predicted seconds of a product in the original order.
    pub seconds_before: f64,
    /// Predicted seconds of a product in the chosen order.
    pub seconds_after: f64,
    /// Seconds that the choice took: all tried orders and their predictions.
    pub seconds_spent: f64,
    /// All tried orders.
    pub tried: Vec<Tried>,
}

/// Result of an order that was tried.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tried {
    /// Kind of the order.
    pub kind: OrderKind,
    /// Seconds to compute, apply and evaluate the order.
    pub seconds: f64,
    /// Predicted seconds of a product in this order.
    pub product_seconds: f64,
}

impl Choice {
    /// Number of products after which the order has saved the time of the choice; `None` if it saves nothing.
    #[must_use]
    pub fn break_even(&self) -> Option<f64> {
        let saved = self.seconds_before - self.seconds_after;
        (saved > 0.0).then(|| self.seconds_spent / saved)
    }
}

impl Auto {
    /// Settings for this machine's CPU, operands of 128 columns of `f32`, and 1000 products, as in some hundreds of
    /// epochs.
    #[must_use]
    pub fn here(blocks: usize) -> Self {
        let device = Hierarchy::of_cpu(&Machine::here());
        Self { device, row_bytes: 128 * size_of::<f32>(), n_products: 1000.0, blocks }
    }

    /// Picks an order of `graph`; the choice is deterministic for a given device.
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

    /// Predicted seconds of a product with the graph as it is numbered.
    #[must_use]
    pub fn product_seconds(&self, graph: &Csr) -> f64 {
        let reuse = ReuseCurve::of(graph, READS_LOOKED_AT);
        self.device.seconds_in_passes(&self.product(graph), |rows| reuse.hit_rate(rows))
    }

    /// Lower bound of a product's seconds over all orders: every read hits the nearest cache.
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
