//! `girih reorder`: renumbers the nodes of a data set, and reports the effect.

mod page;

use std::cmp::Ordering;
use std::io::Write as _;
use std::path::Path;
use std::time::Instant;

use girih_datasets::{Dataset, saved_name};
use girih_graph_format::file::FolderWriter;
use girih_graph_format::{Csr, Permutation, file};
use girih_machine::{Cache, Hierarchy, Machine};
use girih_partition::counted;
use girih_reorder::quality::Quality;
use girih_reorder::spy::{self, FILE_SIDE, Spy};
use girih_reorder::{Auto, OrderKind, Random, Reorder};
use serde_json::Value;

use crate::args::{CacheArgs, ReorderArgs};
use crate::context::data::{load_with_warnings, refuse_unverified};
use crate::context::order::{Ordered, PRODUCTS_PER_LAYER, Wanted};
use crate::error::CliError;
use crate::output::{Results, print_line};
use crate::{messages, paths};

/// File of an order beside the data that it ordered.
const ORDER_FILE: &str = "new_of_old.npy";
/// Size of the cache in KiB if the machine does not report one.
const CACHE_KIB_GUESS: u64 = 16 << 10;

/// Number of layers assumed for the break-even point in epochs.
const LAYERS_USUAL: usize = 2;

/// Order with its quality.
struct Found {
    ordered: Ordered,
    quality: Quality,
}

/// Computes orders, reports, and writes the requested files.
pub fn run(args: &ReorderArgs) -> Result<(), CliError> {
    [&args.out, &args.plot, &args.report].into_iter().flatten().try_for_each(|path| paths::check(path))?;
    if args.out.is_some() {
        refuse_unverified(&args.data)?;
    }
    let mut dataset = load_with_warnings(&args.data, &args.data.options(args.seed, 1))?;
    check_output(args, &dataset)?;
    let mut renamed = Permutation::identity(dataset.n_nodes());
    if args.shuffle {
        renamed = Random { seed: args.seed }.order(&dataset.graph)?;
        dataset = dataset.permuted(&renamed)?;
    }
    let before = Quality::with_cache(&dataset.graph, rows_held(args.cache));
    let mut found = Vec::new();
    for ordered in orders(args, &dataset.graph)? {
        let quality = Quality::with_cache(&dataset.graph.permuted(&ordered.order), rows_held(args.cache));
        found.push(Found { ordered, quality });
    }
    if found.len() > 1 && !args.output.json {
        print_comparison(&before, &found);
    }
    // `max_by` keeps the last of equal orders; reversed, it keeps the user's first.
    let best = found.iter().rev().max_by(|a, b| by_merit(&a.quality, &b.quality)).expect("at least one order");
    if by_merit(&best.quality, &before).is_lt() {
        messages::note(args.output, "no order is better than the one that the data have");
    }
    let mut results = describe(&dataset, &before, best);
    if found.len() > 1 {
        let all = found.iter().map(|found| describe(&dataset, &before, found).to_part());
        results.add_hidden("orders", all.collect::<Vec<_>>());
    }
    if let Some(path) = &args.plot {
        let ordered = |found: &Found| Spy::of(&dataset.graph.permuted(&found.ordered.order), FILE_SIDE);
        let mut panels = vec![Spy::of(&dataset.graph, FILE_SIDE)];
        panels.extend(found.iter().map(ordered));
        write_bytes(path, &spy::side_by_side(&panels))?;
        results.add("plot", path.display().to_string(), "Drawn to", path.display().to_string());
    }
    if let Some(path) = &args.report {
        let inside_blocks = inside_blocks(args, best, &dataset.graph)?;
        let named = (dataset.name.as_str(), &dataset.graph);
        write_bytes(path, page::of(named, &before, (&found, best), inside_blocks.as_ref())?.as_bytes())?;
        results.add("report", path.display().to_string(), "Reported in", path.display().to_string());
    }
    if let Some(out) = &args.out {
        write(dataset, &renamed, &best.ordered.order, out)?;
        results.add("out", out.display().to_string(), "Written to", out.display().to_string());
    }
    results.print(args.output.json);
    Ok(())
}

/// Compares orders by non-zeros in large blocks, then in small tiles, then by smaller gaps.
fn by_merit(a: &Quality, b: &Quality) -> Ordering {
    let coverage = a.coverage_256.total_cmp(&b.coverage_256);
    let tiles = || a.dense_tile_share.total_cmp(&b.dense_tile_share);
    coverage.then_with(tiles).then_with(|| b.gaps.mean_log2.total_cmp(&a.gaps.mean_log2))
}

/// Orders that the arguments request.
fn orders(args: &ReorderArgs, graph: &Csr) -> Result<Vec<Ordered>, CliError> {
    if let Some(path) = &args.permutation {
        let (start, order) = (Instant::now(), read(path, graph.n_rows())?);
        let (name, seconds) = (path.display().to_string(), start.elapsed().as_secs_f64());
        return Ok(vec![Ordered { name, order, seconds, choice: None }]);
    }
    let auto = Auto { device: device(args), row_bytes: row_bytes(args.cache), ..Auto::here(args.blocks as usize) };
    let wanted = |&kind| Wanted { kind, blocks: args.blocks as usize, seed: args.seed, auto: auto.clone() };
    args.order.iter().map(|kind| wanted(kind).find(graph, args.output)).collect()
}

/// Device that `auto` optimises for: the described one, otherwise the CPU of this machine.
fn device(args: &ReorderArgs) -> Hierarchy {
    let mut device = Hierarchy::of_cpu(&Machine::here());
    if let (Some(gb_s), Some(memory_gb_s)) = (args.cache_gb_s, args.memory_gb_s) {
        let bytes = args.cache.cache.map_or(device.largest_cache(), |kib| kib << 10);
        device = Hierarchy { caches: vec![Cache { bytes, gb_s }], memory_gb_s, entry_ns: 0.0, row_ns: 0.0 };
    }
    device
}

/// Checks the output before the work: ids with a meaning cannot be renumbered, and no other data set is overwritten.
fn check_output(args: &ReorderArgs, dataset: &Dataset) -> Result<(), CliError> {
    let name = &dataset.name;
    if dataset.interactions.is_some() && (args.out.is_some() || args.shuffle) {
        return Err(CliError::Other(format!(
            "{name} has users and items, which keep their ids: leave --out and --shuffle out, and the effect of the order is reported"
        )));
    }
    let Some(out) = &args.out else { return Ok(()) };
    dataset.check_writable()?;
    let used = out.is_file() || std::fs::read_dir(out).is_ok_and(|mut entries| entries.next().is_some());
    let held = saved_name(out);
    if !used || held.as_ref() == Some(name) {
        return Ok(());
    }
    let held = held.map_or("something else".to_owned(), |other| format!("another data set, {other}"));
    let message = format!("{}: holds {held}; choose another --out for {name}", out.display());
    Err(CliError::Other(message))
}

fn write_bytes(path: &Path, bytes: &[u8]) -> Result<(), CliError> {
    paths::make_parents(path)?;
    Ok(file::write_file(path, |out| Ok(out.write_all(bytes)?))?)
}

/// Reads an order from a file that lists the new id of every node.
fn read(path: &Path, n_nodes: usize) -> Result<Permutation, CliError> {
    let wrong = |message: String| CliError::Other(format!("{}: {message}", path.display()));
    let array = file::Array::read(path)?;
    array.expect_1d()?;
    let ids = array.into_i64()?;
    if ids.len() != n_nodes {
        let (ids, nodes) = (counted(ids.len(), "id"), counted(n_nodes, "node"));
        return Err(wrong(format!("{ids} for a graph of {nodes}; list the new id of every node")));
    }
    let id = |(old, &id): (usize, &i64)| {
        u32::try_from(id).map_err(|_| wrong(format!("entry {old} is {id}; new ids are 0 to {}", n_nodes - 1)))
    };
    let ids = ids.iter().enumerate().map(id).collect::<Result<Vec<_>, _>>()?;
    Permutation::from_new_of_old(ids).map_err(|error| wrong(error.to_string()))
}

/// The `best` order, applied inside each block of the report's partition; `None` if it has no name.
fn inside_blocks(args: &ReorderArgs, best: &Found, graph: &Csr) -> Result<Option<Permutation>, CliError> {
    let is_best = |kind: &&OrderKind| kind.order(args.blocks as usize, args.seed).name() == best.ordered.name;
    let kind = args.order.iter().find(is_best);
    Ok(kind.map(|kind| kind.order(page::BLOCKS, args.seed).order(graph)).transpose()?)
}

/// Writes the reordered data as a girih folder, with the order from the ids that were read. `renamed` is the
/// permutation that was applied to the data before.
fn write(dataset: Dataset, renamed: &Permutation, order: &Permutation, out: &Path) -> Result<(), CliError> {
    paths::make_parents(out)?;
    let ids: Vec<i64> = renamed.then(order).new_of_old().iter().map(|&new| i64::from(new)).collect();
    // Both are written together: without the order, old ids could not be recovered.
    let save_order = |folder: &FolderWriter| file::write_npy(&folder.path_of(ORDER_FILE), &[ids.len()], &ids);
    Ok(dataset.permuted(order)?.save_with(out, save_order)?)
}

/// Number of rows of the operand that the simulated cache holds.
pub fn rows_held(cache: CacheArgs) -> usize {
    let here = || Machine::here().l3_bytes.map_or(CACHE_KIB_GUESS, |bytes| bytes >> 10);
    let bytes = cache.cache.unwrap_or_else(here) << 10;
    bytes as usize / row_bytes(cache)
}

/// Bytes of a row of the operand.
fn row_bytes(cache: CacheArgs) -> usize {
    cache.width as usize * size_of::<f32>()
}

/// Mean gap as text. Without entries the sum is -0.0; adding 0.0 removes the sign.
pub fn shown_gap(gap: f64) -> String {
    format!("{:.2}", gap + 0.0)
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

fn describe(dataset: &Dataset, before: &Quality, found: &Found) -> Results {
    let Found { ordered: Ordered { name, seconds, choice, .. }, quality: after } = found;
    let rate = dataset.n_edges() as f64 / seconds / 1e6;
    let mut results = Results::default();
    results
        .add("order", name.as_str(), "Order", name.as_str())
        .add_hidden("data", dataset.name.as_str())
        .add_hidden("generated", dataset.generated)
        .add("seconds", *seconds, "Seconds", format!("{seconds:.3} ({rate:.1} million edges/s)"))
        .add_hidden("nodes", dataset.n_nodes())
        .add_hidden("edges", dataset.n_edges());
    if let Some(choice) = choice {
        let [before, after] = choice.seconds.map(|seconds| 1e3 * seconds);
        results
            .add("chosen", choice.kind.to_string(), "Chosen", choice.describe(PRODUCTS_PER_LAYER * LAYERS_USUAL))
            .add_hidden("predicted_product_ms_before", before)
            .add_hidden("predicted_product_ms_after", after)
            .add_hidden("break_even_products", choice.break_even);
    }
    let mut add = |keys: [&'static str; 2], label: &'static str, values: [Value; 2], shown: [String; 2]| {
        let ([key_before, key_after], [before, after]) = (keys, values);
        results.add_hidden(key_before, before).add(key_after, after, label, shown.join(" → "));
    };
    let both = |of: fn(&Quality) -> f64| [of(before), of(after)];
    let (bandwidths, tiles) = ([before, after].map(|q| q.gaps.bandwidth), [before, after].map(|q| q.tiles));
    add(
        ["bandwidth_before", "bandwidth_after"],
        "Bandwidth",
        bandwidths.map(Value::from),
        bandwidths.map(|n| n.to_string()),
    );
    let gaps = both(|q| q.gaps.mean_log2);
    add(["mean_gap_before", "mean_gap_after"], "Mean log₂ gap", gaps.map(Value::from), gaps.map(shown_gap));
    add(["tiles_before", "tiles_after"], "Tiles of 32×32", tiles.map(Value::from), tiles.map(|n| n.to_string()));
    let mut add_share = |keys, label, shares: [f64; 2]| add(keys, label, shares.map(Value::from), shares.map(percent));
    let keys = ["nnz_share_in_dense_tiles_before", "nnz_share_in_dense_tiles_after"];
    add_share(keys, "Entries in those filled to 5 %", both(|q| q.dense_tile_share));
    let keys = ["coverage_before", "coverage_after"];
    add_share(keys, "Entries in 256×64 blocks filled to 2 %", both(|q| q.coverage_256));
    let holds_all = before.rows_held >= dataset.n_nodes();
    let hits = if holds_all { "Simulated cache hit rate" } else { "Reads that a cache would hit" };
    add_share(["lru_hit_rate_before", "lru_hit_rate_after"], hits, both(|q| q.lru_hit_rate));
    results
}

/// Table of orders, one line each.
fn print_comparison(before: &Quality, found: &[Found]) {
    let row = |name: &str, seconds: String, q: &Quality| {
        print_line(&format!(
            "{name:<24} {seconds:>9} {:>10} {:>8} {:>9} {:>9} {:>9}",
            q.gaps.bandwidth,
            shown_gap(q.gaps.mean_log2),
            percent(q.dense_tile_share),
            percent(q.coverage_256),
            percent(q.lru_hit_rate)
        ));
    };
    print_line(&format!(
        "{:<24} {:>9} {:>10} {:>8} {:>9} {:>9} {:>9}",
        "order", "seconds", "bandwidth", "log gap", "tiles 5%", "256×64 2%", "cache hit"
    ));
    row("as it is", String::new(), before);
    found.iter().for_each(|found| row(&found.ordered.name, format!("{:.3}", found.ordered.seconds), &found.quality));
    print_line("");
}
