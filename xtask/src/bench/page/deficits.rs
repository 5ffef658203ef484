//! Everything that is not better: goals that were missed, slower cases, GPUs that idle.

use super::html::{escape, record_link, table};
use super::plots::{PEER_METRICS, fastest_by_gpus, is_peer, without_attributes};
use crate::bench::papers::figure;
use crate::results::record::Record;

/// Share of a speedup over the number of GPUs, below which GPUs are idle.
const EFFICIENCY_MIN: f64 = 0.75;

/// Lists of deficits.
pub fn lists(records: &[Record]) -> String {
    let mut body = String::new();
    for (title, headings, rows) in [
        ("Goals that were missed", ["what", "found", "at most", "record"], missed_goals(records)),
        ("Slower than another library", ["case", "speedup", "metric", "record"], slower(records)),
        ("Less than three quarters of the GPUs", ["case", "speedup", "GPUs", "record"], idle_gpus(records)),
    ] {
        let headings = headings.map(str::to_owned);
        let list = if rows.is_empty() { "<p>None.</p>\n".to_owned() } else { table(&headings, &rows) };
        body += &format!("<h3>{title}</h3>\n{list}");
    }
    body
}

fn missed_goals(records: &[Record]) -> Vec<Vec<String>> {
    let goals = records.iter().flat_map(|record| record.goals.iter().map(move |goal| (record, goal)));
    goals
        .filter(|(_, goal)| !goal.is_met)
        .map(|(record, goal)| {
            let what = escape(&without_attributes(&goal.what));
            vec![what, figure(goal.found), figure(goal.at_most), record_link(&record.name)]
        })
        .collect()
}

fn slower(records: &[Record]) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for record in records {
        for case in record.cases.iter().filter(|case| !is_peer(&case.name)) {
            for metric in PEER_METRICS {
                let value = case.metrics.get(metric).copied().flatten();
                if let Some(value) = value.filter(|value| *value < 1.0) {
                    let name = escape(&without_attributes(&case.name));
                    rows.push(vec![name, figure(value), format!("<code>{metric}</code>"), record_link(&record.name)]);
                }
            }
        }
    }
    rows
}

fn idle_gpus(records: &[Record]) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for record in records.iter().filter(|record| record.device.is_some()) {
        let fastest = fastest_by_gpus(record, "");
        for (n_gpus, (speedup, case)) in fastest {
            if n_gpus > 1 && speedup < EFFICIENCY_MIN * n_gpus as f64 {
                let case = escape(case);
                rows.push(vec![case, figure(speedup), n_gpus.to_string(), record_link(&record.name)]);
            }
        }
    }
    rows
}
