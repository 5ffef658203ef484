//! Charts of the page: other libraries, ceilings and scaling.

use std::collections::BTreeMap;

use super::svg::{Bar, Chart, Series, bars, chart};
use crate::results::record::{Case, Record};

/// Metrics that are speedups over another library.
pub const PEER_METRICS: [&str; 5] = ["x_peer", "x_peer_copy", "x_peer_scaled", "x_wholegraph", "x_cusparse"];
/// Maximum number of bars of a chart.
const BARS_MAX: usize = 14;

/// Whether a case is that of another library.
pub fn is_peer(case: &str) -> bool {
    case.split('/')
        .any(|part| ["dgl ", "pyg ", "torch ", "wholegraph ", "cusparse"].iter().any(|name| part.starts_with(name)))
}

/// Name without the settings after a comma of a SPEC, which are too long for a page.
pub fn without_attributes(name: &str) -> String {
    let Some((spec, rest)) = name.split_once('/').filter(|(spec, _)| spec.starts_with("synth:") && spec.contains(','))
    else {
        return name.to_owned();
    };
    format!("{}, …/{rest}", spec.split(',').next().unwrap_or(spec))
}

fn charts(all: &[String]) -> String {
    format!("<div class=\"charts\">\n{}</div>\n", all.concat())
}

/// Bars of the speedup over another library, a chart for each record and metric.
pub fn peers(records: &[Record]) -> String {
    let mut all = Vec::new();
    for record in records {
        for metric in PEER_METRICS {
            let of_metric = |case: &Case| {
                let value = case.metrics.get(metric).copied().flatten()?;
                Some(Bar { label: without_attributes(&case.name), value })
            };
            let found: Vec<Bar> =
                record.cases.iter().filter(|case| !is_peer(&case.name)).filter_map(of_metric).take(BARS_MAX).collect();
            if !found.is_empty() {
                let device = record.device_of(&record.cases[0].name);
                all.push(bars(&format!("{}: {metric}, {device}, {}", record.name, record.date), 1.0, &found));
            }
        }
    }
    charts(&all)
}

/// Charts of rates over intensity, with the ceiling of the run.
pub fn ceilings(records: &[Record]) -> String {
    charts(&records.iter().filter_map(ceiling_chart).collect::<Vec<_>>())
}

fn ceiling_chart(record: &Record) -> Option<String> {
    let (points, roofs) = match record.suite.as_str() {
        "gpu-spmm" => {
            (gpu_points(record)?, vec![("copies within memory".to_owned(), record.device.as_ref()?.copy_gb_s)])
        }
        "spmm" => {
            let roof = |name: &str, key: &str| Some((name.to_owned(), *record.ceilings.get(key)?));
            let (memory, cache) =
                (roof("reads of memory", "dram_read_gb_s_all")?, roof("reads of the L3", "l3_read_gb_s_all")?);
            (cpu_points(record), vec![memory, cache])
        }
        _ => return None,
    };
    let intensities: Vec<f64> = points.iter().flat_map(|series| &series.points).map(|point| point.0).collect();
    let least = intensities.iter().copied().fold(f64::INFINITY, f64::min);
    let greatest = intensities.iter().copied().fold(0.0, f64::max);
    let mut series = points;
    for (name, gb_s) in roofs {
        let ends = [least, greatest].map(|intensity| (intensity, gb_s * intensity / 1e3));
        let name = format!("{name}, {gb_s:.0} GB/s");
        series.push(Series { name, points: ends.to_vec(), is_line: true, is_ceiling: true });
    }
    let title = format!("{}, {}, {}", record.name, record.device_of(""), record.date);
    Some(chart(&Chart { title: &title, x: "operations a byte", y: "10¹² operations a second", series: &series }))
}

/// Points of products on a GPU, a series for each library and storage type; bytes are the compulsory ones.
fn gpu_points(record: &Record) -> Option<Vec<Series>> {
    let n_edges = record.n_edges()?;
    let mut series: Vec<Series> = Vec::new();
    for case in &record.cases {
        let parts: Vec<&str> = case.name.split('/').collect();
        let [_, width, dtype, library] = parts[..] else { continue };
        let (Some(width), Some(Some(mb))) =
            (width.strip_prefix('w').and_then(|width| width.parse::<f64>().ok()), case.metrics.get("compulsory_mb"))
        else {
            continue;
        };
        let operations = 2.0 * n_edges * width;
        let point = (operations / (1e6 * mb), operations / case.time.median_s / 1e12);
        push(&mut series, &format!("{library}, {dtype}"), point);
    }
    Some(series)
}

/// Points of products on a CPU, a series for each layout and storage type; bytes are those of gathered rows.
fn cpu_points(record: &Record) -> Vec<Series> {
    let mut series: Vec<Series> = Vec::new();
    for case in &record.cases {
        let metric = |name: &str| case.metrics.get(name).copied().flatten();
        let (Some(gflop_s), Some(gathered)) = (metric("gflop_s"), metric("gathered_gb_s")) else { continue };
        let name = case.name.split_once('/').map_or("", |(_, name)| name);
        push(&mut series, name, (gflop_s / gathered, gflop_s / 1e3));
    }
    series
}

/// Adds a point to the series with a name.
fn push(series: &mut Vec<Series>, name: &str, point: (f64, f64)) {
    match series.iter_mut().find(|series| series.name == name) {
        Some(series) => series.points.push(point),
        None => series.push(Series { name: name.to_owned(), points: vec![point], is_line: false, is_ceiling: false }),
    }
}

/// Greatest speedup over one GPU with its case, by number of GPUs, of cases whose names contain `part`.
pub fn fastest_by_gpus<'a>(record: &'a Record, part: &str) -> BTreeMap<usize, (f64, &'a str)> {
    let mut fastest: BTreeMap<usize, (f64, &'a str)> = BTreeMap::new();
    for case in record.cases.iter().filter(|case| case.name.contains(part)) {
        let Some(speedup) = case.metrics.get("x_one").copied().flatten() else { continue };
        let best = fastest.entry(record.gpus_of(&case.name)).or_insert((speedup, &case.name));
        if speedup > best.0 {
            *best = (speedup, &case.name);
        }
    }
    fastest
}

/// Charts of speedups over one GPU, and of planned epochs.
pub fn scaling(records: &[Record]) -> String {
    let mut all = vec![
        measured(records, ("gpu-ranks", "H200"), "Full batches, bf16, H200", "/bf16/"),
        measured(records, ("gpu-ranks", "H100"), "Full batches, bf16, H100", "/bf16/"),
        measured(records, ("gpu-minibatch", "H200"), "Mini-batches, H200", ""),
        measured(records, ("gpu-sampled", "H100"), "Mini-batches, H100", ""),
        measured(records, ("gpu-large", "H200"), "Features that exceed a GPU, H200", ""),
    ];
    all.extend(records.iter().filter(|record| record.suite == "scaling").map(planned));
    charts(&all)
}

/// Chart of a suite on a model of GPU: a line for each record.
fn measured(records: &[Record], (suite, gpu): (&str, &str), title: &str, part: &str) -> String {
    let mut series = Vec::new();
    let is_shown = |record: &&Record| record.suite == suite && record.device_of("").ends_with(gpu);
    for record in records.iter().filter(is_shown) {
        let mut fastest = fastest_by_gpus(record, part);
        fastest.entry(1).or_insert((1.0, ""));
        if fastest.len() > 1 {
            let points = fastest.iter().map(|(gpus, (speedup, _))| (*gpus as f64, *speedup)).collect();
            let name = record.name.strip_prefix(suite).unwrap_or(&record.name).trim_start_matches('-');
            series.push(Series { name: name.to_owned(), points, is_line: true, is_ceiling: false });
        }
    }
    if series.is_empty() {
        return String::new();
    }
    let most = series.iter().flat_map(|series| &series.points).map(|point| point.0).fold(1.0, f64::max);
    series.push(Series {
        name: "GPUs".to_owned(),
        points: vec![(1.0, 1.0), (most, most)],
        is_line: true,
        is_ceiling: true,
    });
    chart(&Chart { title, x: "GPUs", y: "times one GPU", series: &series })
}

/// Chart of the planned epochs of the record of the suite `scaling`: a line for each graph.
fn planned(record: &Record) -> String {
    let mut series: Vec<Series> = Vec::new();
    for case in record.cases.iter().filter(|case| case.metrics.contains_key("is_choice")) {
        let mut parts = case.name.split('/');
        let (Some(graph), Some(Ok(gpus))) = (parts.next(), parts.next().map(str::parse::<f64>)) else { continue };
        push(&mut series, graph, (gpus, 1e3 * case.time.median_s));
    }
    series.iter_mut().for_each(|series| series.is_line = true);
    let title = format!("Planned epochs, {}; nothing ran, {}", record.device_of(""), record.date);
    chart(&Chart { title: &title, x: "GPUs", y: "ms", series: &series })
}
