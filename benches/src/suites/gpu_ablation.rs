//! `gpu-ablation`: effect of each part of sparse products on a CUDA device, as in tables 4 and 5 of Miao et al. 2023.
//! The baseline is the existing node order with rows only. Then come node orders, and dense blocks for tensor cores,
//! with given thresholds and with the device's own choice.
//!
//! Epochs are those of `gpu-fullbatch` with the first aggregation computed once. Products sum neighbors over rows of
//! the hidden width.
//!
//! Cases are `ORDER/STORAGE/BLOCKS`. Blocks start at a density of 2, 5 or 10 %, do not exist (`never`), or are the
//! device's choice (`auto`). `product_ms` is the time of a product.

use std::borrow::Cow;

use girih_compute::Dtype;
use girih_compute::prelude::*;
use girih_datasets::Dataset;
use girih_graph_format::Csr;
use girih_kernels::{Cuda, Split, Tiling};
use girih_reorder::OrderKind;

use super::epochs::Epochs;
use super::gpu::{self, Order, Product};
use super::gpu_fullbatch::{gcn, hidden};
use super::setup::{DTYPES, Setup};
use crate::timing::{Contestant, Protocol, Summary, compete};
use crate::{Case, Error, Goal, Report, graphs, table};

/// Orders of the paper, and girih's own.
const ORDERS: [OrderKind; 6] =
    [OrderKind::None, OrderKind::Degree, OrderKind::Slashburn, OrderKind::Rcm, OrderKind::Metis, OrderKind::Community];
/// Density thresholds of the paper, between no blocks and the device's own choice.
const TILINGS: [Tiling; 5] = [Tiling::Never, Tiling::From(0.02), Tiling::From(0.05), Tiling::From(0.1), Tiling::Auto];
/// Per cent by which the device's own choice may be slower than the best one.
const AUTO_PERCENT: f64 = 5.0;

/// Adds a case for each order, choice of blocks and storage type, and goals for the device's own choice.
pub(super) fn run(setup: &Setup, report: &mut Report) -> Result<(), Error> {
    let mut cuda = gpu::open_device(report)?;
    let spec = setup.graph_or(graphs::FULL);
    let dataset = graphs::load(spec)?;
    report.graph = Some(graphs::describe(&dataset));
    let (hidden, protocol) = (hidden(setup, spec), setup.protocol);
    let mut arms = Vec::new();
    for &kind in setup.orders_or(&ORDERS) {
        let order = Order::find(kind, &dataset.graph)?;
        let ordered = match &order.permutation {
            Some(permutation) => Cow::Owned(dataset.clone().permuted(permutation)?),
            None => Cow::Borrowed(&dataset),
        };
        let graph = ordered.graph.clone().with_values(None)?;
        for &tiling in setup.tilings_or(&TILINGS) {
            for precision in DTYPES {
                cuda = cuda.tiling(tiling).storing(precision);
                let (product, split) = measure_product(&cuda, &graph, hidden, protocol)?;
                let epoch = measure_epoch(&cuda, &ordered, hidden, protocol)?;
                arms.push(Arm { order: kind, order_s: order.seconds, tiling, precision, epoch, product, split });
            }
        }
    }
    report.cases.extend(arms.iter().map(|arm| arm.case(&arms)));
    report.goals.extend(arms.iter().filter(|arm| arm.tiling == Tiling::Auto).flat_map(|arm| arm.goals(&arms)));
    for precision in DTYPES {
        println!("{}", paper_table(precision, &arms));
    }
    Ok(())
}

fn measure_epoch(cuda: &Cuda, dataset: &Dataset, hidden: usize, protocol: Protocol) -> Result<Summary, Error> {
    let config = gcn(hidden, cuda.activations(), true, protocol);
    Ok(Epochs::time(cuda, dataset.clone(), &config, protocol, &mut [])?.epoch())
}

fn measure_product(
    cuda: &Cuda,
    graph: &Csr,
    width: usize,
    protocol: Protocol,
) -> Result<(Summary, Option<Split>), Error> {
    let mut product = Product::new(cuda, graph, width, cuda.activations())?;
    let results = compete(protocol, vec![Contestant::timed("product", || product.seconds())])?;
    Ok((results[0].1, cuda.split(&product.sparse)))
}

/// Measurement of one combination of settings.
struct Arm {
    order: OrderKind,
    /// Seconds of computing the order.
    order_s: f64,
    tiling: Tiling,
    precision: Dtype,
    epoch: Summary,
    product: Summary,
    /// Division of the entries into blocks and rows, if there are blocks.
    split: Option<Split>,
}

impl Arm {
    /// Name prefix `ORDER/STORAGE`.
    fn place(&self) -> String {
        format!("{}/{}", self.order, self.precision.name())
    }

    fn is_base(&self) -> bool {
        self.order == OrderKind::None && self.tiling == Tiling::Never
    }

    /// Case, compared with the baseline in `all` if that was measured.
    fn case(&self, all: &[Self]) -> Case {
        let case = Case::new(format!("{}/{}", self.place(), self.tiling), self.epoch)
            .with("product_ms", 1e3 * self.product.median_s)
            .with("n_blocks", self.split.map_or(0.0, |split| split.n_blocks as f64))
            .with("coverage", self.split.map_or(0.0, |split| split.coverage))
            .with("order_s", self.order_s);
        match all.iter().find(|arm| arm.is_base() && arm.precision == self.precision) {
            None => case,
            Some(base) => case
                .with("x_base", base.epoch.median_s / self.epoch.median_s)
                .with("x_base_product", base.product.median_s / self.product.median_s),
        }
    }

    /// Goals that compare this choice of blocks with the best of `all` for the same order and storage type, in epochs
    /// and products. The shortest times count: epochs of a millisecond vary by a fifth with other work of the host.
    fn goals(&self, all: &[Self]) -> [Goal; 2] {
        let beside_best = |name: &str, seconds: fn(&Self) -> f64| {
            let same = all.iter().filter(|arm| arm.order == self.order && arm.precision == self.precision);
            let best = same.map(seconds).fold(f64::INFINITY, f64::min);
            let what = format!("{}: {name} with {} blocks beside the best choice, percent", self.place(), self.tiling);
            Goal::at_most(what, 100.0 * (seconds(self) / best - 1.0), AUTO_PERCENT)
        };
        [beside_best("epoch", |arm| arm.epoch.min_s), beside_best("product", |arm| arm.product.min_s)]
    }
}

/// Table with milliseconds of an epoch and of a product; one row per order, one column per choice of blocks.
fn paper_table(precision: Dtype, arms: &[Arm]) -> String {
    let mut rows: Vec<Vec<String>> = vec![vec![precision.name().to_owned()]];
    for arm in arms.iter().filter(|arm| arm.precision == precision) {
        let order = arm.order.to_string();
        if rows.last().is_none_or(|row| row[0] != order) {
            rows.push(vec![order]);
        }
        if rows.len() == 2 {
            rows[0].push(arm.tiling.to_string());
        }
        let [epoch, product] = [arm.epoch, arm.product].map(|time| table::significant(1e3 * time.median_s));
        rows.last_mut().expect("the row of the order").push(format!("{epoch} ({product})"));
    }
    format!("milliseconds of an epoch (of a product)\n{}", table::align(&rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arms() -> Vec<Arm> {
        let arm = |order, tiling, epoch_s: f64, product_s: f64| Arm {
            order,
            order_s: 2.0,
            tiling,
            precision: Dtype::Bf16,
            epoch: Summary::of(&[epoch_s]),
            product: Summary::of(&[product_s]),
            split: Some(Split { entries_min: 328, threshold: 0.02, n_blocks: 7, coverage: 0.5 }),
        };
        let (none, community) = (OrderKind::None, OrderKind::Community);
        vec![
            arm(none, Tiling::Never, 0.012, 0.004),
            arm(none, Tiling::Auto, 0.012, 0.004),
            arm(community, Tiling::Never, 0.006, 0.002),
            arm(community, Tiling::Auto, 0.0041, 0.0011),
            arm(community, Tiling::From(0.05), 0.004, 0.001),
        ]
    }

    #[test]
    fn cases_stand_beside_the_base() {
        let arms = arms();
        let case = arms[4].case(&arms);
        assert_eq!(case.name, "community/bf16/0.05");
        assert_eq!((case.metrics["x_base"], case.metrics["x_base_product"]), (3.0, 4.0));
        assert!(!arms[4].case(&arms[2..]).metrics.contains_key("x_base"), "the base was not measured");
    }

    #[test]
    fn the_devices_choice_is_held_against_the_best_in_its_order() {
        let arms = arms();
        let [epoch, product] = arms[3].goals(&arms);
        assert!((epoch.found - 2.5).abs() < 1e-9 && epoch.is_met, "{epoch:?}");
        assert!((product.found - 10.0).abs() < 1e-9 && !product.is_met, "{product:?}");
        assert_eq!(arms[1].goals(&arms)[0].found, 0.0, "other orders do not count");
    }

    #[test]
    fn the_table_has_a_row_for_each_order() {
        let text = paper_table(Dtype::Bf16, &arms()[..4]);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["bf16", "never", "auto"]);
        assert_eq!(lines[2], ["none", "12.00", "(4.000)", "12.00", "(4.000)"]);
        assert_eq!(lines[3], ["community", "6.000", "(2.000)", "4.100", "(1.100)"]);
    }
}
