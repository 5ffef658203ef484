//! Computes node orders under a progress bar.

use std::time::{Duration, Instant};

use girih_graph_format::{Csr, Permutation};
use girih_reorder::{Auto, Choice, OrderKind, Progress};
use indicatif::ProgressStyle;

use crate::args::OutputArgs;
use crate::error::CliError;
use crate::{messages, progress};

/// Products with the adjacency in an epoch, per layer: one forward, one backward.
pub const PRODUCTS_PER_LAYER: usize = 2;

/// Node order that was requested by name.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub kind: OrderKind,
    /// Number of equal id ranges that nodes stay in.
    pub blocks: usize,
    pub seed: u64,
    /// How [`OrderKind::Auto`] chooses.
    pub auto: Auto,
}

/// Node order that was computed.
pub struct Ordered {
    /// Name of the order.
    pub name: String,
    pub order: Permutation,
    /// Seconds that the computation took.
    pub seconds: f64,
    /// Predictions for the order, if it was chosen automatically.
    pub choice: Option<Chosen>,
}

/// Predictions for an automatically chosen order.
pub struct Chosen {
    pub kind: OrderKind,
    /// Predicted seconds of a product, before and after ordering.
    pub seconds: [f64; 2],
    /// Number of products after which the order pays off; `None` if it never does.
    pub break_even: Option<f64>,
}

impl Wanted {
    /// Computes the order of `graph`.
    pub fn find(&self, graph: &Csr, output: OutputArgs) -> Result<Ordered, CliError> {
        if self.kind == OrderKind::Parts && self.blocks == 1 {
            return Err(CliError::Usage(
                "the order parts needs the number of parts: give --blocks N (in training --reorder-blocks N, --ranks N or --gpus N), or choose another order, such as community"
                    .to_owned(),
            ));
        }
        if self.blocks > graph.n_rows().max(1) {
            return Err(CliError::Other(format!(
                "{} blocks are more than the {} nodes of the graph: give a smaller --blocks (in training --reorder-blocks)",
                self.blocks,
                graph.n_rows()
            )));
        }
        let order = self.kind.order(self.blocks, self.seed);
        if self.kind != OrderKind::Auto {
            return found(&order.name(), output, |progress| Ok((order.order_with(graph, progress)?, None)));
        }
        let mut found = found(&order.name(), output, |progress| {
            let choice = self.auto.choose(graph, progress)?;
            let chosen = Chosen::of(&choice);
            Ok((choice.order, Some(chosen)))
        })?;
        if let Some(chosen) = &found.choice {
            found.name = format!("{}: {}", found.name, chosen.kind);
        }
        Ok(found)
    }
}

impl Chosen {
    fn of(choice: &Choice) -> Self {
        let seconds = [choice.seconds_before, choice.seconds_after];
        Self { kind: choice.kind, seconds, break_even: choice.break_even() }
    }

    /// Description for people, with the break-even point in epochs of `products_per_epoch` products.
    pub fn describe(&self, products_per_epoch: usize) -> String {
        let [before, after] = self.seconds.map(|seconds| 1e3 * seconds);
        let Some(products) = self.break_even else {
            return format!("no order is predicted to make a product faster than {before:.2} ms");
        };
        let epochs = products / products_per_epoch.max(1) as f64;
        format!(
            "predicted: a product takes {after:.2} ms instead of {before:.2} ms, which pays off after {epochs:.0} epochs"
        )
    }
}

/// Runs `work` under a progress bar, and times it.
fn found(
    name: &str,
    output: OutputArgs,
    work: impl FnOnce(&Progress<'_>) -> Result<(Permutation, Option<Chosen>), CliError>,
) -> Result<Ordered, CliError> {
    const STEPS: u64 = 1000;
    let bar = progress::bar(STEPS, output);
    if !progress::is_drawn() {
        messages::note(output, format!("ordering: {name}"));
    }
    // Not all orders report their progress: the elapsed time and a spinner show that they run.
    let style = ProgressStyle::with_template("{spinner} {msg} {elapsed} {wide_bar} {percent:>3} %");
    bar.set_style(style.expect("a template of known keys"));
    bar.set_message(format!("ordering: {name}"));
    bar.enable_steady_tick(Duration::from_millis(100));
    let start = Instant::now();
    let result = work(&|share: f64| bar.set_position((STEPS as f64 * share) as u64));
    bar.finish_and_clear();
    let (order, choice) = result?;
    Ok(Ordered { name: name.to_owned(), order, seconds: start.elapsed().as_secs_f64(), choice })
}
