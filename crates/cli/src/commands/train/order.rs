//! Order of nodes for training.

use girih_datasets::Dataset;
use girih_reorder::{Auto, OrderKind};
use girih_trainer::TrainConfig;

use crate::args::{OutputArgs, TrainArgs};
use crate::context::order::{PRODUCTS_PER_LAYER, Wanted};
use crate::error::CliError;
use crate::messages;

/// Node order for training, if the arguments request one. Nodes stay in as many id ranges as the partition has row
/// blocks, unless the arguments say otherwise. If the partition is still open, that is the number of ranks: row
/// blocks of all partitions consist of these ranges.
pub fn wanted_order(args: &TrainArgs, row_blocks: usize, config: &TrainConfig) -> Option<Wanted> {
    if args.reorder == OrderKind::None {
        return None;
    }
    let blocks = args.reorder_blocks.map_or(row_blocks, |b| b as usize);
    let auto = Auto {
        row_bytes: config.model.hidden * size_of::<f32>(),
        n_products: (config.epochs as usize * config.runs as usize * products_per_epoch(config)) as f64,
        ..Auto::here(blocks)
    };
    Some(Wanted { kind: args.reorder, blocks, seed: config.seed, auto })
}

/// Number of products with the adjacency in an epoch.
fn products_per_epoch(config: &TrainConfig) -> usize {
    PRODUCTS_PER_LAYER * config.model.layers
}

/// Renumbers the nodes of `dataset` as wanted. Returns the data and the name of the order.
pub fn ordered(
    dataset: Dataset,
    wanted: &Wanted,
    config: &TrainConfig,
    output: OutputArgs,
) -> Result<(Dataset, String), CliError> {
    let found = wanted.find(&dataset.graph, output)?;
    messages::note(output, format!("ordered by {} in {:.2} s", found.name, found.seconds));
    if let Some(choice) = &found.choice {
        messages::note(output, choice.describe(products_per_epoch(config)));
    }
    Ok((dataset.permuted(&found.order)?, found.name))
}
