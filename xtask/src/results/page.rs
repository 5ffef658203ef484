//! Text of `docs/results.md`, made of the records.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Deserialize;
use serde_json::Value;

use super::record::{self, Case, FOLDER, Record, UNTIMED};
use super::suites::{SUITES, Suite};
use crate::listing::Listing;

/// Most words of the page.
const WORDS_MAX: usize = 2500;

/// Text before the tables.
const OPENING: &str = "# Results

`cargo xtask results` writes this page from the newest records in `benches/record/`. Do not edit it: `cargo xtask tidy`
compares it with them. [Benchmarks](benchmarks.md) describes the suites and their metrics, and the
[journal](../benches/record/README.md) discusses the figures.

## How to read it
- A record is one run of `cargo xtask bench SUITE` on one machine. Its file name ends in the commit.
- A row is one case of a record. `ms` is the median of its repeats after an untimed round. If orders or ways compete,
  the row has the fastest. The record has the others, and the spread of each time.
- An empty graph, device or record is that of the row above.
- Metrics that start with `x_` compare times: `x_peer` is the speedup over the other library, `x_one` over one GPU.
  Metrics with `share_of_` or `_of_copy` are shares of a ceiling, which the same run measured on its machine.
- Compare rows of one record only. Machines are shared, and differ from hour to hour.
- `dirty` records come from a source with changes beside the commit. Runs that ended early are `not whole`.
";

/// Record of the tests on a GPU.
#[derive(Deserialize)]
struct Verified {
    /// Model name of the GPU.
    device: String,
    /// Number of tests that ran; all passed.
    tests_passed: usize,
    /// Number of tests that need what the machine lacked.
    tests_skipped: usize,
}

/// Record of the tests under compute-sanitizer.
#[derive(Deserialize)]
struct Sanitized {
    /// Model name of the GPU, and version of its driver.
    device: String,
    /// Verdict on each test, by tool.
    tools: BTreeMap<String, BTreeMap<String, Value>>,
}

/// Makes the page.
///
/// # Errors
/// When a file is no record, a record is superseded or of a suite without a table, or the page gets too long.
pub fn page(listing: &Listing) -> Result<String, String> {
    let records = Record::all(listing)?;
    record::refuse_superseded(&records)?;
    if let Some(unknown) = records.iter().find(|record| SUITES.iter().all(|suite| suite.name != record.suite)) {
        return Err(format!("{FOLDER}{}.json: xtask/src/results/suites.rs has no table for it", unknown.name));
    }
    let mut page = OPENING.to_owned();
    for suite in SUITES {
        let of_suite: Vec<&Record> = records.iter().filter(|record| record.suite == suite.name).collect();
        if !of_suite.is_empty() {
            page += &format!("\n## {}\n{}\n\n{}", suite.name, suite.about, table(suite, &of_suite)?);
        }
    }
    page += &tests(listing)?;
    let n_words = page.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count();
    if n_words >= WORDS_MAX {
        return Err(format!("docs/results.md has {n_words} words, not below {WORDS_MAX}; choose fewer rows"));
    }
    Ok(page)
}

/// Chosen case of a record, with its graph and its name without it.
struct Row<'a> {
    /// Record of the case.
    record: &'a Record,
    /// SPEC of the graph.
    graph: &'a str,
    /// Name of the case without the graph.
    name: &'a str,
    /// The case.
    case: &'a Case,
}

/// Table of a suite, without metrics that no row has. Graph, device and record are empty where the row above has the
/// same.
fn table(suite: &Suite, records: &[&Record]) -> Result<String, String> {
    let mut rows = Vec::new();
    for record in records {
        let chosen = rows_of(suite, record);
        if chosen.is_empty() {
            return Err(format!("{FOLDER}{}.json: no case fits its table in xtask/src/results/suites.rs", record.name));
        }
        rows.extend(chosen);
    }
    let has = |metric: &&&str| rows.iter().any(|row| row.case.metrics.contains_key(**metric));
    let metrics: Vec<&str> = suite.metrics.iter().filter(has).copied().collect();
    let headings: String = metrics.iter().map(|metric| format!(" `{metric}` |")).collect();
    let rules = "--:|".repeat(metrics.len());
    let mut table = format!("| graph | device | case | ms |{headings} record |\n|---|---|---|--:|{rules}---|\n");
    let mut above = [const { String::new() }; 3];
    for Row { record, graph, name, case } in rows {
        let of_record = [format!("`{graph}`"), record.device_of(&case.name), record.link()];
        let is_continued = above[2] == of_record[2];
        let shown = |at: usize| if is_continued && above[at] == of_record[at] { "" } else { &of_record[at] };
        let values =
            metrics.iter().map(|metric| case.metrics.get(*metric).copied().flatten().map_or(String::new(), figure));
        let mut cells = vec![shown(0).to_owned(), shown(1).to_owned(), format!("`{name}`")];
        cells.push(figure(1e3 * case.time.median_s));
        cells.extend(values);
        cells.push(shown(2).to_owned());
        let row: String =
            cells.iter().map(|cell| if cell.is_empty() { " |".to_owned() } else { format!(" {cell} |") }).collect();
        let _ = writeln!(table, "|{row}");
        above = of_record;
    }
    Ok(table)
}

/// Fastest case for each pattern and graph of a record.
fn rows_of<'a>(suite: &Suite, record: &'a Record) -> Vec<Row<'a>> {
    let mut rows: Vec<Row<'a>> = Vec::new();
    for (graph, cases) in record.cases_by_graph() {
        for pattern in suite.rows {
            let fitting = cases.iter().filter(|(name, _)| fits(pattern, name));
            let fastest = fitting.min_by(|a, b| a.1.time.median_s.total_cmp(&b.1.time.median_s));
            if let Some((name, case)) = fastest.filter(|(_, case)| rows.iter().all(|row| row.case.name != case.name)) {
                rows.push(Row { record, graph, name, case });
            }
        }
    }
    rows
}

/// Whether a name fits a pattern, in which `*` is any text.
pub fn fits(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((before, after)) => name
            .strip_prefix(before)
            .is_some_and(|rest| rest.char_indices().any(|(at, _)| fits(after, &rest[at..])) || fits(after, "")),
    }
}

/// Number with about three digits.
fn figure(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        0.1.. => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// Section about tests on a GPU, as far as it is recorded.
fn tests(listing: &Listing) -> Result<String, String> {
    let [verified, sanitized] = UNTIMED.map(|name| (name, format!("{FOLDER}{name}.json")));
    let mut lines = String::new();
    let failed = |path: &str, e: serde_json::Error| format!("{path}: not a record: {e}");
    let link = |name: &str| format!("[{name}](../{FOLDER}{name}.json)");
    if let Some(text) = listing.text(&verified.1) {
        let Verified { device, tests_passed, tests_skipped } =
            serde_json::from_str(text).map_err(|e| failed(&verified.1, e))?;
        lines += &format!(
            "- {}: {tests_passed} tests passed, {tests_skipped} were skipped. Device: {device}.\n",
            link(verified.0)
        );
    }
    if let Some(text) = listing.text(&sanitized.1) {
        let Sanitized { device, tools } = serde_json::from_str(text).map_err(|e| failed(&sanitized.1, e))?;
        let count = |(tool, verdicts): (&String, &BTreeMap<String, Value>)| {
            let n_clean = verdicts.values().filter(|verdict| verdict.get("clean").is_some()).count();
            format!("{tool} {n_clean}/{}", verdicts.len())
        };
        let counts: Vec<String> = tools.iter().map(count).collect();
        lines += &format!(
            "- {}: tests that are clean under compute-sanitizer, of those begun: {}. Device: {device}.\n",
            link(sanitized.0),
            counts.join(", ")
        );
    }
    Ok(if lines.is_empty() { lines } else { format!("\n## Tests on a GPU\n{lines}") })
}
