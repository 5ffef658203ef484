//! `girih stats`: describes a data set.

mod types;

use girih_compress::CompressedFeatures;
use girih_datasets::{Components, Dataset, Features, Labels, LoadOptions};
use girih_graph_format::file::ReadTimes;
use girih_graph_format::{Csr, TileHistogram, TimedRows};
use girih_machine::readable_bytes;
use girih_partition::counted;
use girih_reorder::quality::{Quality, WINDOWS};
use rayon::prelude::*;
use serde_json::{Value, json};

use super::reorder::{rows_held, shown_gap};
use crate::args::{CacheArgs, StatsArgs};
use crate::context::data::load_required;
use crate::context::reading;
use crate::error::CliError;
use crate::output::Results;

/// Loads the data and describes it.
pub fn run(args: &StatsArgs) -> Result<(), CliError> {
    let options = LoadOptions { times: ReadTimes::IfThere, ..args.data.options(0, 1) };
    let dataset = load_required(&args.data, &options)?;
    let mut results = Results::default();
    let generated = if dataset.generated { " (generated)" } else { "" };
    results
        .add("data", dataset.name.as_str(), "Data", format!("{}{generated}", dataset.name))
        .add_hidden("generated", dataset.generated)
        .add("nodes", dataset.n_nodes(), "Nodes", dataset.n_nodes().to_string())
        .add("edges", dataset.n_edges(), "Stored edges", dataset.n_edges().to_string());
    types::add(&mut results, &dataset);
    if let Some(timed) = &dataset.timed {
        add_times(&mut results, timed);
    }
    add_topology(&mut results, &dataset.graph);
    add_order(&mut results, &dataset.graph, args.cache);
    add_contents(&mut results, &dataset);
    results.print(args.output.json);
    Ok(())
}

/// Adds the number of edges with their times, and the span of these.
fn add_times(results: &mut Results, timed: &TimedRows) {
    let tick = timed.tick();
    let mut times = timed.times().to_vec();
    times.par_sort_unstable();
    times.dedup();
    let ends = [times.first(), times.last()].map(|time| tick.show(time.copied().unwrap_or_default()));
    let (n_edges, n_times) = (timed.n_edges(), times.len());
    let shown = format!("{n_edges} edges at {} from {} to {}", counted(n_times, "time"), ends[0], ends[1]);
    results
        .add("times", json!({ "first": ends[0], "last": ends[1], "distinct": n_times }), "Times", shown)
        .add_hidden("timed_edges", n_edges)
        .add_hidden("tick", tick.to_string());
}

fn add_topology(results: &mut Results, graph: &Csr) {
    let (in_degrees, out_degrees) = (in_degrees(graph), out_degrees(graph));
    let isolated = in_degrees.iter().zip(&out_degrees).filter(|degrees| matches!(degrees, (0, 0))).count();
    let components = Components::of(graph);
    let loops = (0..graph.n_rows()).filter(|&v| graph.row(v).binary_search(&(v as u32)).is_ok()).count();
    let symmetric = graph.is_symmetric();
    let yes = |flag: bool| if flag { "yes" } else { "no" };
    results
        .add("symmetric", symmetric, "Symmetric", yes(symmetric))
        .add("weighted", graph.values().is_some(), "Weighted", yes(graph.values().is_some()))
        .add("self_loops", loops, "Self loops", loops.to_string())
        .add("isolated", isolated, "Nodes without edges", isolated.to_string());
    let in_degrees = Degrees::of(in_degrees);
    if symmetric {
        results.add("degree", in_degrees.to_json(), "Degree", in_degrees.describe());
    } else {
        let out_degrees = Degrees::of(out_degrees);
        results.add("degree", in_degrees.to_json(), "In-degree", in_degrees.describe()).add(
            "out_degree",
            out_degrees.to_json(),
            "Out-degree",
            out_degrees.describe(),
        );
    }
    let largest = counted(components.largest(), "node");
    results.add("components", components.count(), "Components", components.count().to_string()).add(
        "largest_component",
        components.largest(),
        "Largest component",
        largest,
    );
}

fn in_degrees(graph: &Csr) -> Vec<usize> {
    (0..graph.n_rows()).map(|v| graph.degree(v)).collect()
}

fn out_degrees(graph: &Csr) -> Vec<usize> {
    let mut degrees = vec![0; graph.n_cols()];
    graph.indices().iter().for_each(|&u| degrees[u as usize] += 1);
    degrees
}

/// Statistics of the degrees.
struct Degrees {
    min: usize,
    median: usize,
    mean: f64,
    p99: usize,
    max: usize,
    n_zero: usize,
}

impl Degrees {
    fn of(mut degrees: Vec<usize>) -> Self {
        degrees.sort_unstable();
        let at =
            |share: f64| degrees.get(((degrees.len() as f64 * share) as usize).min(degrees.len().saturating_sub(1)));
        Self {
            min: degrees.first().copied().unwrap_or(0),
            median: at(0.5).copied().unwrap_or(0),
            mean: degrees.iter().sum::<usize>() as f64 / degrees.len().max(1) as f64,
            p99: at(0.99).copied().unwrap_or(0),
            max: degrees.last().copied().unwrap_or(0),
            n_zero: degrees.partition_point(|&d| d == 0),
        }
    }

    fn to_json(&self) -> Value {
        let Self { min, median, mean, p99, max, n_zero } = self;
        json!({ "min": min, "median": median, "mean": mean, "p99": p99, "max": max, "zero": n_zero })
    }

    fn describe(&self) -> String {
        let Self { min, median, mean, p99, max, n_zero } = self;
        format!(
            "min {min}, median {median}, mean {mean:.2}, 99 % at most {p99}, max {max}; none: {}",
            counted(*n_zero, "node")
        )
    }
}

/// Adds the locality of the node order: gaps between neighbors, coverage of tiles, and cache hits.
fn add_order(results: &mut Results, graph: &Csr, cache: CacheArgs) {
    let quality = Quality::with_cache(graph, rows_held(cache));
    let (tiles, percent) = (TileHistogram::of(graph), |share: f64| format!("{:.1} %", 100.0 * share));
    results
        .add("bandwidth", quality.gaps.bandwidth, "Bandwidth", quality.gaps.bandwidth.to_string())
        .add("mean_gap", quality.gaps.mean_log2, "Mean log₂ gap in a row", shown_gap(quality.gaps.mean_log2))
        .add(
            "window_reuse",
            json!(
                WINDOWS
                    .iter()
                    .zip(quality.window_reuse)
                    .map(|(rows, reuse)| json!({ "rows": rows, "reuse": reuse }))
                    .collect::<Vec<_>>()
            ),
            "Reads of a column in 8, 32, 128 rows",
            quality.window_reuse.map(|reuse| format!("{reuse:.2}")).join(", "),
        )
        .add("tiles", tile_json(&tiles), "32×32 tiles", describe_tiles(&tiles))
        .add("coverage", quality.coverage_256, "Entries in 256×64 blocks filled to 2 %", percent(quality.coverage_256))
        .add_hidden("rows_held", quality.rows_held)
        .add(
            "lru_hit_rate",
            quality.lru_hit_rate,
            "Reads that a cache would hit",
            format!("{} (of {} rows)", percent(quality.lru_hit_rate), quality.rows_held),
        );
}

/// One object per bucket: tiles with at least `entries_from` entries, and fewer than twice as many.
fn tile_json(tiles: &TileHistogram) -> Value {
    let bucket =
        |b: usize| json!({ "entries_from": 1u64 << b, "tiles": tiles.n_tiles[b], "entries": tiles.n_entries[b] });
    (0..TileHistogram::N_BUCKETS).map(bucket).collect()
}

fn describe_tiles(tiles: &TileHistogram) -> String {
    let total: u64 = tiles.n_entries.iter().sum();
    let share_from = |bucket: usize| {
        let dense: u64 = tiles.n_entries[bucket..].iter().sum();
        100.0 * dense as f64 / total.max(1) as f64
    };
    let occupied: u64 = tiles.n_tiles.iter().sum();
    format!(
        "{occupied} occupied; {:.1} % of entries in tiles filled from 1/16, {:.1} % from 1/4",
        share_from(6),
        share_from(8)
    )
}

fn add_contents(results: &mut Results, dataset: &Dataset) {
    if let Some(features) = &dataset.features {
        let width = features.width();
        let stored = |kind: &str, nnz: usize| {
            let shown = format!("{width} columns, {kind}, {nnz} stored");
            (json!({ "width": width, "kind": kind, "stored": nnz }), shown)
        };
        let (value, shown) = match features {
            Features::Dense(matrix) => stored("dense", matrix.data().len()),
            Features::Sparse(csr) => stored("sparse", csr.nnz()),
            Features::Compressed(codes) => describe_codes(codes),
        };
        results.add("features", value, "Features", shown);
    }
    if let Some(labels) = &dataset.labels {
        let counts = class_counts(labels);
        let kind = if matches!(labels, Labels::Multi { .. }) { "classes, several a node" } else { "classes" };
        let shown = format!("{} {kind}; nodes of each: {counts:?}", labels.n_classes());
        results.add("classes", counts, "Labels", shown);
        if let Some(names) = dataset.names.as_ref().filter(|names| !names.classes.is_empty()) {
            results.add("class_names", names.classes.clone(), "Names of classes", names.classes.join("\n"));
        }
    }
    if let Some(interactions) = &dataset.interactions {
        let (users, items) = (interactions.n_users(), interactions.n_items());
        let (train, test) = (interactions.train().nnz(), interactions.test().nnz());
        let shown = format!("{users} users, {items} items; {train} in training, {test} in test");
        let sizes = json!({ "users": users, "items": items, "train": train, "test": test });
        results.add("interactions", sizes, "Interactions", shown);
    }
    if let Some(triples) = &dataset.triples {
        let [train, val, test] = triples.parts().map(|(_, part)| part.len());
        let (relations, unseen) = (triples.n_relations(), triples.n_unseen(dataset.n_nodes()));
        let shown = format!(
            "{relations} relations; {train} in training, {val} for validation, {test} in test; {} in no training triple",
            counted(unseen, "entity")
        );
        let sizes = json!({
            "relations": relations, "train": train, "val": val, "test": test, "unseen_entities": unseen
        });
        results.add("triples", sizes, "Triples", shown);
    }
    reading::add(results, &dataset.outline().splits, &dataset.notes);
}

/// Description of a store: its codec, its size, and its compression ratio to `f32`.
fn describe_codes(codes: &CompressedFeatures) -> (Value, String) {
    let (codec, row_bytes, width) = (codes.codec().spec().to_string(), codes.codec().row_bytes(), codes.width());
    let (bytes, ratio) = (codes.codes().len() as u64, (size_of::<f32>() * width) as f64 / row_bytes.max(1) as f64);
    let shown = format!(
        "{width} columns, compressed by {codec}: {row_bytes} bytes a row, {}, 1/{ratio:.1} of float32",
        readable_bytes(bytes)
    );
    let value = json!({
        "width": width, "kind": "compressed", "codec": codec, "row_bytes": row_bytes, "bytes": bytes, "ratio": ratio
    });
    (value, shown)
}

fn class_counts(labels: &Labels) -> Vec<u64> {
    let mut counts = vec![0; labels.n_classes()];
    match labels {
        Labels::Single { classes, .. } => {
            for &class in classes {
                if let Some(count) = counts.get_mut(class as usize) {
                    *count += 1;
                }
            }
        }
        Labels::Multi { targets, .. } => {
            for v in 0..targets.n_rows() {
                for (count, &target) in counts.iter_mut().zip(targets.row(v)) {
                    *count += u64::from(target > 0.5);
                }
            }
        }
    }
    counts
}
